/* test_spec.c - chains of resources from text. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"
#include "weir/pool.h"
#include "weir/spec.h"

static void open_builds_a_chain(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(12));
    static const char *const specs[] = { "device", "system", "pool/device",
                                         "statistics/pool/device", "pool/pool/system",
                                         "statistics/statistics/device" };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        weir_resource *mr;
        must_ok(weir_resource_open(device, specs[i], &mr));
        weir_resource_properties properties = { .struct_size = sizeof properties };
        must_ok(weir_resource_get_properties(mr, &properties));
        size_t length = strcspn(specs[i], "/");
        must(strlen(properties.name) == length);
        must(strncmp(properties.name, specs[i], length) == 0);
        const char *slash = strrchr(specs[i], '/');
        assert_string_equal(properties.leaf, slash == NULL ? specs[i] : slash + 1);
        void *ptr = take(mr, NULL, 1000);
        give(mr, NULL, ptr, 1000);
        weir_resource_unref(mr);
    }
    close_emulated(device);
}

static const char *name_of_chosen(weir_device *device)
{
    weir_resource *mr;
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_open(device, NULL, &mr));
    must_ok(weir_resource_get_properties(mr, &properties));
    weir_resource_unref(mr);
    return properties.name;
}

static void whoever_runs_it_may_choose(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(12));
    weir_resource *mr = NULL;
    must(unsetenv("WEIR_RESOURCE") == 0);
    assert_string_equal(name_of_chosen(device), "pool");
    must(setenv("WEIR_RESOURCE", "statistics/pool/device", 1) == 0);
    assert_string_equal(name_of_chosen(device), "statistics");
    must(setenv("WEIR_RESOURCE", "", 1) == 0);
    assert_string_equal(name_of_chosen(device), "pool");
    must(setenv("WEIR_RESOURCE", "pool/nothing", 1) == 0);
    must_answer(WEIR_INVALID_ARGUMENT, weir_resource_open(device, NULL, &mr));
    must(mr == NULL && strstr(weir_last_error().message, "pool/nothing") != NULL);
    must(strncmp(weir_last_error().message, "WEIR_RESOURCE: ", 15) == 0);
    must_answer(WEIR_INVALID_ARGUMENT, weir_resource_open(NULL, NULL, &mr));
    assert_string_equal(weir_last_error().message, "the device is null");
    must_answer(WEIR_INVALID_ARGUMENT, weir_resource_open(device, "pool/nothing", &mr));
    must(strstr(weir_last_error().message, "WEIR_RESOURCE") == NULL);
    must_ok(weir_resource_open(device, "device", &mr)); /* who says what, gets that */
    weir_resource_unref(mr);
    must(unsetenv("WEIR_RESOURCE") == 0);
    close_emulated(device);
}

/* The options in force of the pool that `spec` names first. */
static weir_pool_options pool_of(weir_device *device, const char *spec)
{
    weir_resource *mr;
    weir_pool_options options = { .struct_size = sizeof options };
    must_ok(weir_resource_open(device, spec, &mr));
    must_ok(weir_pool_get_options(mr, &options));
    weir_resource_unref(mr);
    return options;
}

static void options_reach_the_resource(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(13));
    static const struct {
        const char *spec;
        size_t initial, limit, growth, cache, slack;
    } good[] = {
        { "pool/device", 0, SIZE_MAX, 0, 0, 0 },
        { "pool()/device", 0, SIZE_MAX, 0, 0, 0 },
        { "pool( )/device()", 0, SIZE_MAX, 0, 0, 0 },
        { "pool(1MiB)/device", 1 << 20, SIZE_MAX, 0, 0, 0 },
        { "pool(initial=1MiB)/device", 1 << 20, SIZE_MAX, 0, 0, 0 },
        { "pool(1MiB,limit=2MiB,growth=3KiB)/device", 1 << 20, 2 << 20, 3 << 10, 0, 0 },
        { "pool(growth=7,limit=2MB,initial=1KB)/device", 1000, 2000000, 7, 0, 0 },
        { " pool\t( initial = 1MiB ,limit= 2GiB) / device ", 1 << 20,
          (size_t)2 << 30, 0, 0, 0 },
        { "pool(0)/device", 0, SIZE_MAX, 0, 0, 0 },
        { "pool(0.0GiB,limit=1)/device", 0, 1, 0, 0, 0 },
        { "pool(none,limit=unlimited,growth=auto)/device", 0, SIZE_MAX, 0, 0, 0 },
        { "pool(cache=none)/device", 0, SIZE_MAX, 0, WEIR_POOL_NO_CACHE, 0 },
        { "pool(cache=48MiB)/device", 0, SIZE_MAX, 0, (size_t)48 << 20, 0 },
        { "pool(slack=none)/device", 0, SIZE_MAX, 0, 0, WEIR_POOL_NO_SLACK },
        { "pool(slack=auto)/device", 0, SIZE_MAX, 0, 0, 0 },
        { "pool(slack=1MiB)/device", 0, SIZE_MAX, 0, 0, 1 << 20 },
        { "pool(cache=auto)/growable", 0, SIZE_MAX, 0, 0, 0 },
        { "pool(limit=16777215.9999999999999TiB)/device", 0, SIZE_MAX, 0, 0, 0 },
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        weir_pool_options options = pool_of(device, good[i].spec);
        must_equal(options.initial_bytes, good[i].initial);
        must_equal(options.limit_bytes, good[i].limit);
        must_equal(options.growth_bytes, good[i].growth);
        must_equal(options.cache_bytes, good[i].cache);
        must_equal(options.slack_bytes, good[i].slack);
    }
    close_emulated(device);
}

static void sizes_are_exact(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(14));
    static const struct {
        const char *text;
        size_t bytes;
    } sizes[] = {
        { "1", 1 }, { "007", 7 },
        { "1B", 1 }, { "1KiB", 1024 }, { "1MiB", 1 << 20 }, { "1GiB", 1 << 30 },
        { "1TiB", (size_t)1 << 40 }, { "1KB", 1000 }, { "1MB", 1000000 },
        { "1GB", 1000000000 }, { "1TB", 1000000000000 }, { "1.5GiB", 3 << 29 },
        { "0.1KiB", 102 }, { "0.001KB", 1 }, { "0.0019KB", 1 }, { "1.9", 1 },
        { "0.99999999999999999999999999999999KiB", 1023 },
        { "1.00000000000000000000000000000001KB", 1000 },
        { "18446744073709551615", SIZE_MAX }, { "18446744073709551615B", SIZE_MAX },
        { "18014398509481983.99999KiB", SIZE_MAX },
        { "18446744073.709551615GB", SIZE_MAX },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char spec[100];
        snprintf(spec, sizeof spec, "pool(growth=%s)/device", sizes[i].text);
        if (pool_of(device, spec).growth_bytes != sizes[i].bytes)
            fail_msg("%s is read as %zu", sizes[i].text,
                     pool_of(device, spec).growth_bytes);
    }
    close_emulated(device);
}

/* ---- refusals ---- */

typedef struct refusal {
    const char *spec;
    size_t character;  /* from 1 */
    const char *words; /* in the sentence */
} refusal;

static void must_refuse(weir_device *device, const refusal *it)
{
    char place[32];
    weir_resource *mr = (weir_resource *)device;
    size_t live = weir__host_live();
    must_answer(WEIR_INVALID_ARGUMENT, weir_resource_open(device, it->spec, &mr));
    must(mr == NULL);
    must_equal(weir__host_live(), live);
    snprintf(place, sizeof place, ": character %zu: ", it->character);
    const char *message = weir_last_error().message;
    if (strstr(message, place) == NULL || strstr(message, it->words) == NULL)
        fail_msg("\"%.99s\": not character %zu, \"%s\", but: %s", it->spec,
                 it->character, it->words, message);
}

static const refusal refusals[] = {
    /* parts */
    { "", 1, "\"\": character 1: here the name of a resource is missing" },
    { "  ", 3, "name of a resource is missing" },
    { "/", 1, "name of a resource is missing" },
    { "pool/", 6, "name of a resource is missing" },
    { "/device", 1, "name of a resource is missing" },
    { "pool//device", 6, "name of a resource is missing" },
    { "(device)", 1, "name of a resource is missing" },
    { "\"device\"", 1, "name of a resource is missing" },
    { "pools/device", 1, "no resource is called \"pools\"; there are device, " },
    { "poo/device", 1, "no resource is called \"poo\"" },
    { "pool/ Device", 7, "no resource is called \"Device\"" },
    { "pool/dev\x01\xC3\xA9", 6, "no resource is called \"dev???\"" },
    { "pool", 1, "pool draws from another resource, which must follow: \"pool/device" },
    { "statistics/pool ", 12, "pool draws from another resource" },
    { "device/device", 1, "device draws from no other resource" },
    { "pool/system()/device", 6, "system draws from no other resource" },
    { "callback", 1, "use weir_callback_create" },
    { "pool/callback(5)", 6, "use weir_callback_create" },
    { "device device", 8, "here a \"/\" is missing" },
    { "device)", 7, "here a \"/\" is missing" },
    { "pool()()/device", 7, "here a \"/\" is missing" },
    { "pool=1/device", 5, "here a \"/\" is missing" },
    /* options */
    { "pool(intial=1GiB)/device", 6,
      "pool(intial=1GiB)/device: character 6: pool has no option \"intial\"; it has "
      "initial, limit, growth, cache" },
    { "pool(1GiB, Limit=2GiB)/device", 12, "pool has no option \"Limit\"" },
    { "device(1)", 8, "device has no options" },
    { "statistics(on=1)/device", 12, "statistics has no options" },
    { "pool(1KiB,limit=2KiB,initial=1KiB)/device", 22, "pool has \"initial\" already" },
    { "pool(limit=2KiB,limit=2KiB)/device", 17, "pool has \"limit\" already" },
    { "limiting(5,limit=5)/device", 12, "limiting has \"limit\" already" },
    { "limiting/device", 1, "limiting needs a limit: \"limiting(limit=...)\"" },
    { "fixed_size/device", 1, "fixed_size needs a block: \"fixed_size(block=...)\"" },
    { "fixed_size(1KiB,blocks=0)/device", 24, "blocks is a number from 1 to" },
    { "fixed_size(1TiB)/device", 1, "no block has 1099511627776 bytes" },
    { "binning(7)/device", 9, "min is a number from 8 to 39, or none" },
    { "binning(max=40)/device", 13, "max is a number from 8 to 39" },
    { "binning(min=20,max=19)/device", 1, "2^20 to 2^19 bytes are no range" },
    { "binning(none,max=19)/device", 1, "there is no range" },
    { "pool/limiting()/device", 6, "limiting needs a limit" },
    { "pool(limit=2KiB,1KiB)/device", 17, "pool has no option \"1KiB\"" },
    { "pool(initial)/device", 6, "initial wants a value: \"initial=...\"" },
    { "pool(,limit=1)/device", 6, "here an option is missing" },
    { "pool(1KiB,)/device", 11, "here an option is missing" },
    { "pool(1KiB,,limit=1)/device", 11, "here an option is missing" },
    { "pool(=1)/device", 6, "here an option is missing" },
    { "pool(initial=)/device", 14, "here a value is missing" },
    { "pool(initial=,limit=1)/device", 14, "here a value is missing" },
    { "pool(initial==1)/device", 14, "here a value is missing" },
    { "pool(initial=1=1)/device", 15, "here a \",\" or a \")\" is missing" },
    { "pool(initial=1 GiB)/device", 16, "here a \",\" or a \")\" is missing" },
    { "pool(initial=1GiB limit=1)/device", 19, "here a \",\" or a \")\" is missing" },
    { "pool(initial=1GiB(2))/device", 18, "here a \",\" or a \")\" is missing" },
    { "pool(initial=1GiB/device", 18, "here a \",\" or a \")\" is missing" },
    { "pool (initial=1GiB", 19, "the \"(\" at character 6 is never closed" },
    { "pool(", 6, "here an option is missing" },
    { "pool(initial", 6, "initial wants a value" },
    { "pool(initial=", 14, "here a value is missing" },
    { "pool(initial=\"1GiB)/device", 14, "this quote is never closed" },
    { "pool(\"", 6, "this quote is never closed" },
    { "pool(\"\\", 6, "this quote is never closed" },
    { "pool(\"\\\"", 6, "this quote is never closed" },
    /* sizes */
    { "pool(initial=x)/device", 14, "initial is a size as 512MiB or 1.5GiB, or none" },
    { "pool(initial=-1)/device", 14, "not \"-1\"" },
    { "pool(initial=.5GiB)/device", 14, "not \".5GiB\"" },
    { "pool(initial=5.GiB)/device", 14, "not \"5.GiB\"" },
    { "limiting(1e9)/device", 11, "there is no unit \"e9\"" },
    { "limiting(limit=7Gib)/device", 17, "there is no unit \"Gib\"" },
    { "limiting(7kB)/device", 11, "there is no unit \"kB\"" },
    { "limiting(1.5.5GiB)/device", 13, "there is no unit \".5GiB\"" },
    { "limiting(0x10)/device", 11, "there is no unit \"x10\"" },
    { "limiting(\"7\")/device", 10, "limit is no text" },
    { "limiting(\"\")/device", 10, "limit is no text" },
    { "limiting(unlimited)/device", 10, "limit is a size as 512MiB or 1.5GiB, not" },
    { "limiting(0.9)/device", 10, "less than a byte" },
    { "limiting(0.0009KB)/device", 10, "less than a byte" },
    { "limiting(18446744073709551616)/device", 10, "no size is above" },
    { "limiting(99999999999999999999KiB)/device", 10, "no size is above" },
    { "limiting(18014398509481984KiB)/device", 10, "no size is above" },
    { "limiting(18446744073.709551616GB)/device", 10, "no size is above" },
    { "limiting(16777216TiB)/device", 10, "no size is above" },
    { "limiting(18446744.073709551616TB)/device", 10, "no size is above" },
    { "pool(limit=0)/device", 12, "its least is 1B, or unlimited" },
    { "pool(1,growth=0.0GiB)/device", 15, "its least is 1B, or auto" },
    { "growable(reserve=0)", 18, "its least is 1B, or auto" },
    /* chains within */
    { "fallback/device", 1, "fallback needs an alternate: \"fallback(alternate=...)" },
    { "fallback(\"\")/device", 11, "alternate is no resource: \"\": character 1: " },
    { "fallback(pool)/device", 10, "pool draws from another resource, which must" },
    { "fallback(callback)/device", 10, "use weir_callback_create" },
    { "fallback(device/pool)/device", 10, "device draws from no other resource" },
    { "fallback(alternate = \"pool(x=1)/device\")/device", 23,
      "pool(x=1)/device: character 6: pool has no option \"x\"" },
    { "fallback(\"fallback(\\\"nothing\\\")/device\")/device", 11,
      "no resource is called \"nothing\"" },
    { "fallback(\"pool(2MiB,limit=1MiB)/device\")/pool/device", 1,
      "below its initial size" },
    /* what the resource itself refuses */
    { "statistics/ pool(2KiB,limit=1KiB)/device", 13, "below its initial size" },
};

static void refusals_show_the_character(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(15));
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        must_refuse(device, &refusals[i]);
    close_emulated(device);
}

/* No log is begun for a text with a slip in the chain within. */
static void chains_within_are_read_before_anything_is_made(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(20));
    char log[64], spec[200];
    snprintf(log, sizeof log, "/tmp/weir_test_spec_%ld.csv", (long)getpid());
    snprintf(spec, sizeof spec, "fallback(\"pool(x)/device\")/logging(%s)/device", log);
    must_refuse(device, &(refusal){ spec, 11, "initial is a size" });
    must(access(log, F_OK) != 0);

    /* Each level has twice the backslashes of the one before: there is an end. */
    static char deep[WEIR_SPEC_LENGTH_MAX + 2], within[sizeof deep] = "device";
    weir_resource *mr;
    size_t levels = 0;
    for (;;) {
        size_t used = (size_t)snprintf(deep, sizeof deep, "fallback(\"");
        for (const char *c = within; *c != '\0' && used < sizeof deep - 2; c++) {
            if (*c == '"' || *c == '\\')
                deep[used++] = '\\';
            deep[used++] = *c;
        }
        if (used + strlen("\")/device") > WEIR_SPEC_LENGTH_MAX)
            break;
        memcpy(deep + used, "\")/device", sizeof "\")/device");
        memcpy(within, deep, sizeof within);
        levels++;
    }
    must(levels >= 8 && levels <= 12);
    must_ok(weir_resource_open(device, within, &mr));
    give(mr, NULL, take(mr, NULL, 100), 100);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* Of a long text the sentence shows what is around the place. */
static void long_texts_are_cut(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(16));
    char spec[WEIR_SPEC_LENGTH_MAX + 2];
    memset(spec, 'x', sizeof spec);
    spec[WEIR_SPEC_LENGTH_MAX] = '\0';
    must_refuse(device, &(refusal){ spec, 1, "called \"xxxxxxxxxxxxxxxxxxx" });
    must(strstr(weir_last_error().message, "xxx...\"; there are") != NULL);
    spec[WEIR_SPEC_LENGTH_MAX] = 'x';
    spec[WEIR_SPEC_LENGTH_MAX + 1] = '\0';
    must_refuse(device, &(refusal){ spec, 4097, "4096 characters are the most" });

    memset(spec, ' ', sizeof spec);
    memcpy(spec + 4000, "pool(oops=1)/device", 19);
    spec[WEIR_SPEC_LENGTH_MAX] = '\0';
    must_refuse(device, &(refusal){ spec, 4006, "pool(oops=1)/device" });
    assert_int_equal(strncmp(weir_last_error().message, "...", 3), 0);
    close_emulated(device);
}

static void parts_have_a_bound(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(17));
    char spec[WEIR_SPEC_PARTS_MAX * 5 + 8] = "";
    weir_resource *mr;
    for (size_t i = 1; i < WEIR_SPEC_PARTS_MAX; i++)
        memcpy(spec + 5 * (i - 1), "pool/", 5);
    memcpy(spec + 5 * (WEIR_SPEC_PARTS_MAX - 1), "device", 7);
    must_ok(weir_resource_open(device, spec, &mr));
    weir_resource_unref(mr);
    memcpy(spec + 5 * (WEIR_SPEC_PARTS_MAX - 1), "pool/device", 12);
    must_refuse(device, &(refusal){ spec, 5 * WEIR_SPEC_PARTS_MAX + 1,
                                    "32 resources are the most" });
    close_emulated(device);
}

/* Opens `spec` with the first host allocation failing, then the second, until none,
 * and claims that `calls` of them failed. */
static void fail_each(weir_device *device, const char *spec, bool lasting,
                      uint64_t calls)
{
    weir_resource *mr = NULL;
    uint64_t failing;
    for (failing = 1; mr == NULL; failing++) {
        size_t live = weir__host_live();
        weir__host_fail_at(failing, lasting);
        weir_status status = weir_resource_open(device, spec, &mr);
        weir__host_fail_at(0, false);
        if (status != WEIR_OK) {
            must_answer(WEIR_OUT_OF_HOST_MEMORY, status);
            must(mr == NULL);
            must_equal(weir__host_live(), live);
        }
    }
    must_equal(failing - 2, calls);
    weir_resource_unref(mr);
}

static void open_survives_every_host_failure(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(18));
    fail_each(device, "statistics/device", false, 5);
    fail_each(device, "statistics/device", true, 5);
    fail_each(device, "limiting(1GiB)/pool(1MiB)/device", false, 21);
    fail_each(device, "limiting(1GiB)/pool(1MiB)/device", true, 21);
    fail_each(device, "fallback(pool/system)/limiting(1GiB)/device", false, 27);
    fail_each(device, "fallback(pool/system)/limiting(1GiB)/device", true, 27);
    close_emulated(device);
}

/* The text itself costs no host memory. */
static void reading_needs_no_host_memory(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(19));
    weir_resource *mr;
    weir__host_fail_at(1, true);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_resource_open(device, "limiting(1GiB)/pool(x)/device", &mr));
    weir__host_fail_at(0, false);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_builds_a_chain),
        cmocka_unit_test(whoever_runs_it_may_choose),
        cmocka_unit_test(options_reach_the_resource),
        cmocka_unit_test(sizes_are_exact),
        cmocka_unit_test(refusals_show_the_character),
        cmocka_unit_test(chains_within_are_read_before_anything_is_made),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(parts_have_a_bound),
        cmocka_unit_test(open_survives_every_host_failure),
        cmocka_unit_test(reading_needs_no_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
