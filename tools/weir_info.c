/* weir_info.c - the command `weir info`: the devices here, what each can do, the
 * versions of library and headers, and which build it is; or how to write a resource.
 *
 * Everything is asked of the library, nothing is known beforehand: a device is
 * opened, and on it each resource that can be named. */
#include "weir_info.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "weir/device.h"
#include "weir/resource.h"
#include "weir/spec.h"
#include "weir/version.h"
#include "weir_say.h"

static const char *const devices[] = { "cuda:0", "emulated:0" };

void info_help(void)
{
    fputs(
"usage: weir info [--resources] [--json]\n"
"\n"
"Prints the devices here, what each can do and which resources it has, the versions\n"
"of the library and of the headers that this command was built with, and the build.\n"
"\n"
"  --resources   instead, how a resource is written: the grammar, each resource, and\n"
"                each of its options with its default\n"
"  --json        print one JSON object\n",
    stdout);
}

/* Prints to one of the two: as JSON if json is there, else as text. */
typedef struct info {
    say_json *json;
} info;

/* ---- resources ---- */

typedef struct ability {
    const char *key;   /* in JSON */
    const char *words; /* in text */
    bool has;
} ability;

#define ABILITY_COUNT 6

/* Of a kind that only a newer library knows, nothing is said. */
static const char *share_kind_name(weir_share_kind kind)
{
    switch (kind) {
    case WEIR_SHARE_FD: return "fd";
    case WEIR_SHARE_LEGACY: return "legacy";
    case WEIR_SHARE_POOL: return "pool";
    default: return "none";
    }
}

static void abilities_of(const weir_resource_properties *it, ability out[ABILITY_COUNT])
{
    const ability all[ABILITY_COUNT] = {
        { "host_accessible", "host access", it->host_accessible },
        { "managed", "managed", it->managed },
        { "pinned", "pinned", it->pinned },
        { "can_trim", "trims", it->can_trim },
        { "can_extend", "extends", it->can_extend },
        { "can_find", "finds blocks", it->can_find },
    };
    memcpy(out, all, sizeof all);
}

static void resource_print(const info *self, const char *spec,
                           const weir_resource_properties *it)
{
    ability abilities[ABILITY_COUNT];

    abilities_of(it, abilities);
    if (self->json == NULL) {
        const char *between = "";
        printf("  %-24s", spec);
        for (size_t i = 0; i < ABILITY_COUNT; i++) {
            if (abilities[i].has) {
                printf("%s%s", between, abilities[i].words);
                between = ", ";
            }
        }
        if (it->share_kind != WEIR_SHARE_NONE)
            printf("%sshared (%s)", between, share_kind_name(it->share_kind));
        puts("");
        return;
    }
    say_json_open(self->json, NULL, '{');
    say_json_text(self->json, "resource", spec);
    say_json_number(self->json, "max_alignment", it->max_alignment);
    for (size_t i = 0; i < ABILITY_COUNT; i++)
        say_json_bool(self->json, abilities[i].key, abilities[i].has);
    say_json_text(self->json, "share_kind", share_kind_name(it->share_kind));
    say_json_close(self->json, '}');
}

static void resource_try(const info *self, weir_device *device, const char *spec)
{
    weir_resource *mr;
    weir_resource_properties properties = { .struct_size = sizeof properties };

    if (weir_resource_open(device, spec, &mr) != WEIR_OK)
        return;
    if (weir_resource_get_properties(mr, &properties) == WEIR_OK)
        resource_print(self, spec, &properties);
    weir_resource_unref(mr);
}

/* Each leaf that this device has, and a pool over it. */
static void resources_print(const info *self, weir_device *device)
{
    weir_spec_kind kind = { .struct_size = sizeof kind };
    char spec[64];

    for (size_t i = 0; weir_spec_kind_get(i, &kind) == WEIR_OK; i++) {
        if (!kind.is_leaf || kind.only_from != NULL)
            continue;
        resource_try(self, device, kind.name);
        snprintf(spec, sizeof spec, "pool/%s", kind.name);
        resource_try(self, device, spec);
    }
}

/* ---- devices ---- */

static void uuid_text(const uint8_t uuid[16], char out[37])
{
    static const char hex[] = "0123456789abcdef";
    size_t at = 0;

    for (size_t i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            out[at++] = '-';
        out[at++] = hex[uuid[i] >> 4];
        out[at++] = hex[uuid[i] & 15];
    }
    out[at] = '\0';
}

static void absent_print(const info *self, const char *name, weir_status status)
{
    weir_error error = weir_last_error();
    const char *why = error.status == status ? error.message
                                             : weir_status_string(status);

    if (self->json == NULL) {
        printf("\n%s: not here\n  %s\n", name, why);
        return;
    }
    say_json_open(self->json, NULL, '{');
    say_json_text(self->json, "device", name);
    say_json_bool(self->json, "available", false);
    say_json_text(self->json, "reason", why);
    say_json_close(self->json, '}');
}

static void device_text(const weir_device_properties *it, const char *uuid, size_t free)
{
    printf("\n%s: %s\n", it->name, it->description);
    printf("  memory    %s, of which %s free\n", say_bytes(it->memory_bytes).text,
           say_bytes(free).text);
    printf("  uuid      %s\n", uuid);
    printf("  streams   blocking and non-blocking, legacy and per-thread default "
           "streams, capture\n");
    if (it->emulated)
        puts("  work      in threads, stepped by a seed, or none (for timing)\n"
             "            kernels are host functions\n"
             "            a ledger finds every access that is not ordered\n"
             "            any call can be made to fail\n"
             "            emulated:0 to emulated:15 reach each other as peers");
    puts("  resources");
}

static void device_json(say_json *json, const weir_device_properties *it,
                        const char *uuid, size_t free)
{
    say_json_open(json, NULL, '{');
    say_json_text(json, "device", it->name);
    say_json_bool(json, "available", true);
    say_json_text(json, "description", it->description);
    say_json_bool(json, "emulated", it->emulated);
    say_json_bool(json, "has_ledger", it->emulated);
    say_json_number(json, "ordinal", (uint64_t)it->ordinal);
    say_json_text(json, "uuid", uuid);
    say_json_number(json, "memory_bytes", it->memory_bytes);
    say_json_number(json, "free_bytes", free);
    say_json_open(json, "resources", '[');
}

static weir_status device_print(const info *self, weir_device *device)
{
    weir_device_properties properties = { .struct_size = sizeof properties };
    size_t free_bytes = 0, total_bytes = 0;
    char uuid[37];

    weir_status status = weir_device_get_properties(device, &properties);
    if (status == WEIR_OK)
        status = weir_device_memory(device, &free_bytes, &total_bytes);
    if (status != WEIR_OK)
        return status;
    uuid_text(properties.uuid, uuid);
    if (self->json != NULL)
        device_json(self->json, &properties, uuid, free_bytes);
    else
        device_text(&properties, uuid, free_bytes);
    resources_print(self, device);
    if (self->json != NULL) {
        say_json_close(self->json, ']');
        say_json_close(self->json, '}');
    }
    return WEIR_OK;
}

static void devices_print(const info *self)
{
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        weir_device *device;
        weir_status status = weir_device_open(devices[i], NULL, &device);
        if (status == WEIR_OK) {
            status = device_print(self, device);
            weir_device_unref(device);
        }
        if (status != WEIR_OK)
            absent_print(self, devices[i], status);
    }
}

/* ---- what text can name ---- */

/* Prints `text` in lines that begin at column 21. */
static void print_wrapped(const char *text)
{
    const int indent = 21, room = 88 - indent;
    int used = 0;

    printf("%*s", indent, "");
    while (*text != '\0') {
        int length = (int)strcspn(text, " ");
        if (used > 0 && used + 1 + length > room) {
            printf("\n%*s", indent, "");
            used = 0;
        }
        used += printf("%s%.*s", used > 0 ? " " : "", length, text);
        text += length;
        text += strspn(text, " ");
    }
    puts("");
}

static void option_text(const weir_spec_option *it)
{
    char words[200];

    if (it->default_text == NULL)
        printf("  %-18s %s, must be given\n", it->name, it->type);
    else
        printf("  %-18s %s = %s\n", it->name, it->type, it->default_text);
    print_wrapped(it->doc);
    if (it->choices == NULL
        || (it->default_text != NULL && strcmp(it->choices, it->default_text) == 0))
        return;
    snprintf(words, sizeof words, "words: %s", it->choices);
    print_wrapped(words);
}

/* The words apart, for JSON. */
static void choices_json(say_json *json, const char *choices)
{
    char word[100];

    say_json_open(json, "choices", '[');
    while (choices != NULL && *choices != '\0') {
        size_t length = strcspn(choices, ",");
        snprintf(word, sizeof word, "%.*s", (int)length, choices);
        say_json_text(json, NULL, word);
        choices += length;
        choices += strspn(choices, ", ");
    }
    say_json_close(json, ']');
}

static void option_json(say_json *json, const weir_spec_option *it, bool is_first)
{
    say_json_open(json, NULL, '{');
    say_json_text(json, "option", it->name);
    say_json_text(json, "type", it->type);
    if (it->default_text == NULL)
        say_json_null(json, "default");
    else
        say_json_text(json, "default", it->default_text);
    say_json_bool(json, "required", it->default_text == NULL);
    say_json_bool(json, "name_may_be_left_out", is_first);
    choices_json(json, it->choices);
    say_json_text(json, "doc", it->doc);
    say_json_close(json, '}');
}

static void kind_text(const weir_spec_kind *it)
{
    char written[64];

    snprintf(written, sizeof written, "%s%s", it->name, it->is_leaf ? "" : "/...");
    printf("\n%-20s %s\n", written, it->purpose);
    if (it->only_from != NULL)
        printf("  not from text: use %s\n", it->only_from);
}

static void kind_json(say_json *json, const weir_spec_kind *it)
{
    say_json_open(json, NULL, '{');
    say_json_text(json, "resource", it->name);
    say_json_text(json, "purpose", it->purpose);
    say_json_bool(json, "is_leaf", it->is_leaf);
    if (it->only_from == NULL)
        say_json_null(json, "only_from");
    else
        say_json_text(json, "only_from", it->only_from);
    say_json_open(json, "options", '[');
}

static void kinds_print(const info *self)
{
    weir_spec_kind kind = { .struct_size = sizeof kind };
    weir_spec_option option = { .struct_size = sizeof option };

    for (size_t i = 0; weir_spec_kind_get(i, &kind) == WEIR_OK; i++) {
        if (self->json != NULL)
            kind_json(self->json, &kind);
        else
            kind_text(&kind);
        for (size_t j = 0; weir_spec_option_get(i, j, &option) == WEIR_OK; j++) {
            if (self->json != NULL)
                option_json(self->json, &option, j == 0);
            else
                option_text(&option);
        }
        if (self->json != NULL) {
            say_json_close(self->json, ']');
            say_json_close(self->json, '}');
        }
    }
}

static void print_resources(bool wants_json)
{
    say_json json = { .file = stdout };
    info self = { wants_json ? &json : NULL };

    if (!wants_json) {
        fputs(weir_spec_grammar(), stdout);
        kinds_print(&self);
        return;
    }
    say_json_open(&json, NULL, '{');
    say_json_text(&json, "grammar", weir_spec_grammar());
    say_json_number(&json, "length_max", WEIR_SPEC_LENGTH_MAX);
    say_json_number(&json, "parts_max", WEIR_SPEC_PARTS_MAX);
    say_json_open(&json, "resources", '[');
    kinds_print(&self);
    say_json_close(&json, ']');
    say_json_close(&json, '}');
}

/* ---- the command ---- */

static void print_text(void)
{
    info self = { NULL };

    printf("Weir %s, built against the headers of %d.%d.%d\n", weir_version_string(),
           WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH);
    printf("build: %s\n", weir_build_string());
    devices_print(&self);
}

static void print_json(void)
{
    say_json json = { .file = stdout };
    info self = { &json };
    char headers[32];

    snprintf(headers, sizeof headers, "%d.%d.%d", WEIR_VERSION_MAJOR,
             WEIR_VERSION_MINOR, WEIR_VERSION_PATCH);
    say_json_open(&json, NULL, '{');
    say_json_text(&json, "version", weir_version_string());
    say_json_text(&json, "headers", headers);
    say_json_text(&json, "build", weir_build_string());
    say_json_open(&json, "devices", '[');
    devices_print(&self);
    say_json_close(&json, ']');
    say_json_close(&json, '}');
}

int info_main(int argc, char **argv)
{
    static const struct option arguments[] = {
        { "json", no_argument, NULL, 'j' },
        { "resources", no_argument, NULL, 'r' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 }
    };
    bool wants_json = false, wants_resources = false;
    int code;

    optind = 1;
    while ((code = getopt_long(argc, argv, "h", arguments, NULL)) != -1) {
        if (code == 'h') {
            info_help();
            return SAY_GOOD;
        }
        if (code != 'j' && code != 'r') {
            say("try `weir info --help`");
            return SAY_REFUSED;
        }
        wants_json = wants_json || code == 'j';
        wants_resources = wants_resources || code == 'r';
    }
    if (optind != argc) {
        say("what is `%s`? try `weir info --help`", argv[optind]);
        return SAY_REFUSED;
    }
    if (wants_resources)
        print_resources(wants_json);
    else if (wants_json)
        print_json();
    else
        print_text();
    return SAY_GOOD;
}
