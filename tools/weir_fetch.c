/* weir_fetch.c - see weir_fetch.h. */
#include "weir_fetch.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir_carry.h"
#include "weir_say.h"
#include "weir_talk.h"

/* How often a column is asked for again that was replaced before it was opened. */
#define TRIES 3

void fetch_help(void)
{
    fputs(
"usage: weir fetch --socket PATH NAME [--slice FROM:TO] [--out FILE]\n"
"       weir fetch --socket PATH --add NAME --dtype DTYPE FILE [--mask FILE]\n"
"       weir fetch --socket PATH --list\n"
"\n"
"Reads a column that `weir share` serves, where it lies, and tells what it is: dtype,\n"
"items, how many of them are null, bytes, and the CRC-32 of these. Or adds one: puts\n"
"it on the device in memory of its own, which the server opens and copies.\n"
"\n"
"  --socket PATH    where the server listens\n"
"  --slice FROM:TO  only these items, from 0; the last is TO - 1\n"
"  --out FILE       write the bytes of the items there, and tell nothing; - is stdout\n"
"  --add NAME       the name of the new column: letters, digits, _ . and -\n"
"  --dtype DTYPE    what its items are: bool, int8, uint8, int16, uint16, float16,\n"
"                   bfloat16, int32, uint32, float32, int64, uint64, float64,\n"
"                   complex64 or complex128; FILE has their bytes, one after another\n"
"  --mask FILE      a bit for each item, lowest first, set where it is not null\n"
"  --list           tell which columns there are\n"
"  --device NAME    the server's: emulated:N or cuda:N; default emulated:0\n"
"  --json           print one JSON object, where there is something to tell\n"
"\n"
"Exit status: 0 it is done; 1 it is not: the server refuses, there is no such column,\n"
"the device fails; 2 nothing was run: wrong usage, nobody serves.\n", stdout);
}

typedef struct fetch_options {
    const char *socket;
    const char *device;
    const char *name;      /* of a column to read */
    const char *out;       /* null: tell what it is */
    const char *add;       /* the name of one to add */
    const char *dtype, *data, *mask;
    bool has_slice;
    uint64_t from, to;
    bool wants_list, wants_json;
} fetch_options;

/* ---- --list ---- */

enum { LIST_WORDS = 5 };

static bool list_line(char *rest, say_json *json, refusal *why)
{
    char *words[LIST_WORDS], *next = NULL;
    for (size_t i = 0; i < LIST_WORDS; i++) {
        words[i] = strtok_r(i == 0 ? rest : NULL, " ", &next);
        if (words[i] == NULL)
            return refuse(why, "the server lists a column in %zu words", i);
    }
    if (json == NULL) {
        printf("%-24s %-10s %12s items %14s bytes  %s\n", words[0], words[1], words[2],
               words[3], words[4]);
        return true;
    }
    say_json_open(json, NULL, '{');
    say_json_text(json, "column", words[0]);
    say_json_text(json, "dtype", words[1]);
    say_json_number(json, "length", strtoull(words[2], NULL, 10));
    say_json_number(json, "bytes", strtoull(words[3], NULL, 10));
    say_json_bool(json, "masked", strcmp(words[4], "masked") == 0);
    say_json_close(json, '}');
    return true;
}

static bool run_list(talk *server, bool wants_json, refusal *why)
{
    say_json json = { .file = stdout };
    const char *verb;
    char *rest;

    if (!talk_send(server, why, "list"))
        return false;
    if (wants_json) {
        say_json_open(&json, NULL, '{');
        say_json_open(&json, "columns", '[');
    }
    for (;;) {
        if (!talk_receive(server, &verb, &rest, why))
            return false;
        if (strcmp(verb, "end") == 0)
            break;
        if (strcmp(verb, "has") != 0 || rest == NULL)
            return refuse(why, "the server says `%.80s`", verb);
        if (!list_line(rest, wants_json ? &json : NULL, why))
            return false;
    }
    if (wants_json) {
        say_json_close(&json, ']');
        say_json_close(&json, '}');
    }
    return true;
}

/* ---- a column ---- */

static void tell_part(const column *it, const carry_part *part, bool wants_json)
{
    say_json json = { .file = stdout };
    char crc[16];

    snprintf(crc, sizeof crc, "%08" PRIx32, part->crc32);
    if (!wants_json) {
        printf("column  %s\ndtype   %s\n", it->name, it->dtype->name);
        printf("items   %" PRIu64 " to %" PRIu64 " of %" PRIu64 "\n", part->from,
               part->to, it->length);
        printf("nulls   %" PRIu64 "\nbytes   %" PRIu64 "\ncrc32   %s\n", part->nulls,
               part->bytes, crc);
        return;
    }
    say_json_open(&json, NULL, '{');
    say_json_text(&json, "column", it->name);
    say_json_text(&json, "dtype", it->dtype->name);
    say_json_number(&json, "length", it->length);
    say_json_number(&json, "from", part->from);
    say_json_number(&json, "to", part->to);
    say_json_bool(&json, "masked", it->has_mask);
    say_json_number(&json, "nulls", part->nulls);
    say_json_number(&json, "bytes", part->bytes);
    say_json_text(&json, "crc32", crc);
    say_json_close(&json, '}');
}

/* Asks for a column; the tickets that come are those of now. */
static bool column_ask(talk *server, const fetch_options *options, column *out,
                       carry_part *part, refusal *why)
{
    const char *verb;
    char *rest;

    if (!talk_send(server, why, "get %s", options->name) ||
        !talk_receive(server, &verb, &rest, why))
        return false;
    if (strcmp(verb, "column") != 0 || rest == NULL)
        return refuse(why, "the server says `%.80s`", verb);
    if (!column_read(rest, out, why))
        return false;
    part->from = options->has_slice ? options->from : 0;
    part->to = options->has_slice ? options->to : out->length;
    return (part->from <= part->to && part->to <= out->length) ||
           refuse(why, "%" PRIu64 ":%" PRIu64 " is no part of %s, which has %" PRIu64
                       " items", part->from, part->to, out->name, out->length);
}

/* Only once there is something to write: what the file held stays as long. */
static bool out_open(const char *path, FILE **file, refusal *why)
{
    if (path == NULL || *file != NULL)
        return true;
    *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "wb");
    return *file != NULL || refuse(why, "%s: %s", path, strerror(errno));
}

static bool run_read(talk *server, const fetch_options *options, carry *place,
                     refusal *why)
{
    column it;
    carry_part part;
    FILE *file = NULL;
    bool is_over = true, good = false;

    for (int i = 0; i < TRIES && is_over; i++) {
        is_over = false;
        good = column_ask(server, options, &it, &part, why) &&
               out_open(options->out, &file, why) &&
               carry_read(place, &it, &part, file, &is_over, why);
    }
    if (file != NULL && file != stdout && fclose(file) != 0 && good)
        good = refuse(why, "%s: %s", options->out, strerror(errno));
    if (good && file == NULL)
        tell_part(&it, &part, options->wants_json);
    return good;
}

/* ---- --add ---- */

static bool run_add(talk *server, const fetch_options *options, const column *named,
                    carry *place, refusal *why)
{
    column it = *named;
    char text[COLUMN_TEXT_MAX];
    const char *verb;
    char *rest;

    if (!carry_bring(place, "shareable", options->data, options->mask, &it, why) ||
        !column_write(&it, text, why) || !talk_send(server, why, "add %s", text) ||
        !talk_receive(server, &verb, &rest, why))
        return false;
    return strcmp(verb, "ok") == 0 || refuse(why, "the server says `%.80s`", verb);
}

/* ---- the command ---- */

static bool options_make_sense(const fetch_options *it, column *named, refusal *why)
{
    int tasks = (it->name != NULL) + (it->add != NULL) + it->wants_list;
    if (it->socket == NULL)
        return refuse(why, "--socket is needed");
    if (tasks != 1)
        return refuse(why, "it is either a column's name, or --add, or --list");
    if (it->name == NULL && (it->has_slice || it->out != NULL))
        return refuse(why, "--slice and --out are for a column that is read");
    if (it->wants_json && (it->add != NULL || it->out != NULL))
        return refuse(why, "with %s there is nothing that --json could tell",
                      it->add != NULL ? "--add" : "--out");
    if (it->add == NULL) {
        if (it->dtype != NULL || it->mask != NULL)
            return refuse(why, "--dtype and --mask are for a column that is added");
        return it->name == NULL || column_name_set(named, it->name, why);
    }
    if (it->dtype == NULL || it->data == NULL)
        return refuse(why, "--add needs --dtype and a file");
    named->dtype = column_dtype_find(it->dtype);
    if (named->dtype == NULL)
        return refuse(why, "there is no dtype `%.80s`; there are %s", it->dtype,
                      column_dtype_names());
    return column_name_set(named, it->add, why);
}

static int run(const fetch_options *options)
{
    column named;
    refusal why;
    talk server;
    carry place;

    memset(&named, 0, sizeof named);
    if (!options_make_sense(options, &named, &why)) {
        say("%s; try `weir fetch --help`", why.text);
        return SAY_REFUSED;
    }
    if (!talk_open(options->socket, &server, &why)) {
        say("%s", why.text);
        return SAY_REFUSED;
    }
    int status = SAY_WRONG;
    bool good;
    if (options->wants_list) {
        good = run_list(&server, options->wants_json, &why);
    } else if (!carry_open(options->device, &place, &why)) {
        status = SAY_REFUSED;
        good = false;
    } else {
        good = options->add != NULL ? run_add(&server, options, &named, &place, &why)
                                    : run_read(&server, options, &place, &why);
        carry_close(&place);
    }
    talk_close(&server);
    if (good && (fflush(stdout) != 0 || ferror(stdout)))
        good = refuse(&why, "stdout cannot be written");
    if (!good)
        say("%s", why.text);
    return good ? SAY_GOOD : status;
}

static bool parse_slice(const char *text, fetch_options *out)
{
    char *between = NULL, *end = NULL;

    errno = 0;
    if (*text >= '0' && *text <= '9')
        out->from = strtoull(text, &between, 10);
    if (between != NULL && between[0] == ':' && between[1] >= '0' && between[1] <= '9')
        out->to = strtoull(between + 1, &end, 10);
    out->has_slice = end != NULL && *end == '\0' && errno == 0;
    if (!out->has_slice)
        say("--slice is two numbers of items as 10:20, not `%s`", text);
    return out->has_slice;
}

enum { ARG_SOCKET = 1, ARG_DEVICE, ARG_SLICE, ARG_OUT, ARG_ADD, ARG_DTYPE, ARG_MASK,
       ARG_LIST, ARG_JSON };

static const struct option arguments[] = {
    { "socket", required_argument, NULL, ARG_SOCKET },
    { "device", required_argument, NULL, ARG_DEVICE },
    { "slice", required_argument, NULL, ARG_SLICE },
    { "out", required_argument, NULL, ARG_OUT },
    { "add", required_argument, NULL, ARG_ADD },
    { "dtype", required_argument, NULL, ARG_DTYPE },
    { "mask", required_argument, NULL, ARG_MASK },
    { "list", no_argument, NULL, ARG_LIST },
    { "json", no_argument, NULL, ARG_JSON },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 }
};

static bool take_argument(int code, fetch_options *out)
{
    switch (code) {
    case ARG_SOCKET:
        out->socket = optarg;
        return true;
    case ARG_DEVICE:
        out->device = optarg;
        return true;
    case ARG_SLICE:
        return parse_slice(optarg, out);
    case ARG_OUT:
        out->out = optarg;
        return true;
    case ARG_ADD:
        out->add = optarg;
        return true;
    case ARG_DTYPE:
        out->dtype = optarg;
        return true;
    case ARG_MASK:
        out->mask = optarg;
        return true;
    case ARG_LIST:
        return out->wants_list = true;
    case ARG_JSON:
        return out->wants_json = true;
    default:
        say("try `weir fetch --help`");
        return false;
    }
}

int fetch_main(int argc, char **argv)
{
    fetch_options options = { .device = "emulated:0" };
    int code;

    optind = 1;
    while ((code = getopt_long(argc, argv, "h", arguments, NULL)) != -1) {
        if (code == 'h') {
            fetch_help();
            return SAY_GOOD;
        }
        if (!take_argument(code, &options))
            return SAY_REFUSED;
    }
    const char *word = optind < argc ? argv[optind++] : NULL;
    *(options.add != NULL ? &options.data : &options.name) = word;
    if (optind < argc) {
        say("what is `%s`? try `weir fetch --help`", argv[optind]);
        return SAY_REFUSED;
    }
    return run(&options);
}
