/* test_spec_added.c - resources that a program adds to those that text can name. */
#include <stdio.h>
#include <string.h>

#include "spec.h"
#include "support.h"
#include "support_work.h"
#include "weir/leaves.h"
#include "weir/limiting.h"
#include "weir/resource_ops.h"
#include "weir/spec.h"

/* ---- a resource of somebody's ---- */

typedef struct options {
    size_t struct_size;
    size_t most_bytes;
    int64_t level;
    bool is_strict;
    const char *label;
    const char *below;
} options;

static const options blank = { .struct_size = sizeof blank, .most_bytes = 4096,
                               .level = -3, .label = "none" };

/* What the last one was made with. */
static options seen;
static char seen_label[40], seen_below[40];

static weir_status make(weir_device *device, weir_resource *upstream,
                        const void *from, weir_resource **out)
{
    (void)device;
    seen = *(const options *)from;
    snprintf(seen_label, sizeof seen_label, "%s", seen.label);
    snprintf(seen_below, sizeof seen_below, "%s", seen.below);
    return weir_limiting_create(upstream, seen.most_bytes, out);
}

static weir_status make_leaf(weir_device *device, weir_resource *upstream,
                             const void *from, weir_resource **out)
{
    must(upstream == NULL);
    (void)from; /* of no bytes */
    return weir_device_resource_create(device, out);
}

/* Says nothing, and makes nothing. */
static weir_status answer_of_silent;
static weir_status make_silent(weir_device *device, weir_resource *upstream,
                               const void *from, weir_resource **out)
{
    (void)device;
    (void)upstream;
    (void)from;
    (void)out;
    return answer_of_silent;
}

#define FIELD(member) .name = #member, .offset = offsetof(options, member), .doc = "it"
static const weir_spec_field fields[] = {
    { FIELD(most_bytes), .type = WEIR_SPEC_SIZE, .default_text = "4KiB", .least = 256 },
    { FIELD(level), .type = WEIR_SPEC_INTEGER, .default_text = "-3", .least = -9 },
    { FIELD(is_strict), .type = WEIR_SPEC_BOOLEAN, .default_text = "no" },
    { FIELD(label), .type = WEIR_SPEC_TEXT, .default_text = "none" },
    { FIELD(below), .type = WEIR_SPEC_CHAIN }, /* has to be given */
};

static weir_spec_addition addition(const char *name)
{
    return (weir_spec_addition){
        .struct_size = sizeof(weir_spec_addition), .name = name, .purpose = "a test's",
        .blank = &blank, .blank_bytes = sizeof blank, .fields = fields,
        .field_count = sizeof fields / sizeof fields[0], .make = make
    };
}

static weir_status add_leaf(const char *name)
{
    weir_spec_addition it = { .struct_size = sizeof it, .name = name,
                              .purpose = "a leaf", .is_leaf = true,
                              .make = make_leaf };
    if (strcmp(name, "silent") == 0)
        it.make = make_silent;
    return weir_spec_add(&it);
}

/* ---- */

static void what_was_added_is_made(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr = NULL;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_resource_open(device, "mine(below=device)/their_leaf", &mr));
    weir_spec_addition mine = addition("mine");
    must_ok(weir_spec_add(&mine));
    memset(&mine, 0xee, sizeof mine); /* it is not itself that has to stay */
    must_ok(add_leaf("their_leaf"));

    must_ok(weir_resource_open(device, "mine(below=device)/their_leaf", &mr));
    must_equal(seen.most_bytes, 4096);
    must(seen.level == -3 && !seen.is_strict);
    assert_string_equal(seen_label, "none");
    assert_string_equal(seen_below, "device");
    give(mr, NULL, take(mr, NULL, 4096), 4096);
    void *none;
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(mr, NULL, 4097, 256, &none));
    weir_resource_unref(mr);

    must_ok(weir_resource_open(device,
                               "pool/mine(1MiB, level=7, is_strict, label=\"a, b\", "
                               "below=\"mine(below=device)/their_leaf\")/device",
                               &mr));
    must_equal(seen.most_bytes, 1 << 20);
    must(seen.level == 7 && seen.is_strict);
    assert_string_equal(seen_label, "a, b");
    assert_string_equal(seen_below, "mine(below=device)/their_leaf");
    give(mr, NULL, take(mr, NULL, 1000), 1000);
    weir_resource_unref(mr);

    static const char *const wrong[] = {
        "mine/device", "mine(1, below=device)/device",
        "mine(level=-10, below=device)/device",
        "mine(below=nothing)/device", "mine(below=device)", "their_leaf/device",
        "their_leaf(1)", "mine(colour=red)/device",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        must_answer(WEIR_INVALID_ARGUMENT, weir_resource_open(device, wrong[i], &mr));
        must(mr == NULL && strstr(weir_last_error().message, "character") != NULL);
    }
    close_emulated(device);
}

static void what_makes_nothing_is_told(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr;
    must_ok(add_leaf("silent"));
    static const weir_status answers[] = { WEIR_NOT_SUPPORTED, WEIR_INVALID_ARGUMENT,
                                           WEIR_OK };
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        answer_of_silent = answers[i];
        (void)weir_resource_refuse(WEIR_PEER_GONE, "an older failure");
        must_answer(answers[i] != WEIR_OK ? answers[i] : WEIR_DEVICE_ERROR,
                    weir_resource_open(device, "pool/silent", &mr));
        must(mr == NULL);
        must(weir_last_error().status != WEIR_PEER_GONE);
        must(strstr(weir_last_error().message, "silent") != NULL);
        must(strstr(weir_last_error().message, "older") == NULL);
    }
    close_emulated(device);
}

static void it_is_told_like_any_other(void **state)
{
    (void)state;
    weir_spec_kind kind = { .struct_size = sizeof kind };
    size_t number = 0;
    while (weir_spec_kind_get(number, &kind) == WEIR_OK &&
           strcmp(kind.name, "mine") != 0)
        number++;
    assert_string_equal(kind.name, "mine");
    assert_string_equal(kind.purpose, "a test's");
    must(!kind.is_leaf && kind.only_from == NULL);
    must_equal(kind.option_count, 5);
    weir_spec_option option = { .struct_size = sizeof option };
    must_ok(weir_spec_option_get(number, 1, &option));
    assert_string_equal(option.name, "level");
    assert_string_equal(option.type, "integer");
    assert_string_equal(option.default_text, "-3");
    must_answer(WEIR_NOT_FOUND, weir_spec_option_get(number, 5, &option));
    const weir__spec_table other = { NULL, 0 }; /* which is not the library's */
    must(weir__spec_kind_at(&other, 0) == NULL);
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    static const weir_spec_field nameless = { .doc = "", .type = WEIR_SPEC_SIZE };
    static const weir_spec_field outside = { .name = "x", .doc = "",
                                             .offset = sizeof blank - 1 };
    static const weir_spec_field strange = { .name = "x", .doc = "",
                                             .type = (weir_spec_type)9 };
    static const weir_spec_field undone = { .name = "x", .doc = "",
                                            .default_text = "12 apples" };
    static const weir_spec_field negative = { .name = "x", .doc = "", .least = -1 };
    static char text[WEIR_SPEC_LENGTH_MAX + 2]; /* longer than any spec */
    memset(text, 'a', sizeof text - 1);
    const weir_spec_field endless = { .name = "x", .doc = "", .type = WEIR_SPEC_TEXT,
                                      .default_text = text };
    static const weir_spec_field twice[] = { { .name = "x", .doc = "" },
                                             { .name = "x", .doc = "" } };
    const struct {
        const weir_spec_field *fields;
        size_t count;
    } bad[] = { { &nameless, 1 }, { &outside, 1 }, { &strange, 1 }, { &undone, 1 },
                { &negative, 1 }, { &endless, 1 },
                { twice, 2 }, { NULL, 1 }, { fields, 0 }, { fields, 17 } };
    weir_spec_addition it;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        it = addition("bad");
        it.fields = bad[i].fields;
        it.field_count = bad[i].count;
        must_answer(WEIR_INVALID_ARGUMENT, weir_spec_add(&it));
    }
    static const char *const names[] = { NULL, "", "Mine", "a-b", "pool", "callback",
                                         "mine" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        it = addition(names[i]);
        must_answer(WEIR_INVALID_ARGUMENT, weir_spec_add(&it));
    }
    it = addition("bad");
    it.make = NULL;
    must_answer(WEIR_INVALID_ARGUMENT, weir_spec_add(&it));
    it = addition("bad");
    it.purpose = NULL;
    must_answer(WEIR_INVALID_ARGUMENT, weir_spec_add(&it));
    it = addition("bad");
    it.blank_bytes = 257;
    must_answer(WEIR_INVALID_ARGUMENT, weir_spec_add(&it));
    it = addition("bad");
    it.blank = NULL;
    must_answer(WEIR_INVALID_ARGUMENT, weir_spec_add(&it));
    it = addition("bad");
    it.struct_size--;
    must_answer(WEIR_INVALID_ARGUMENT, weir_spec_add(&it));
    must_answer(WEIR_INVALID_ARGUMENT, weir_spec_add(NULL));
    struct {
        weir_spec_addition it;
        uint64_t more;
    } newer = { .it = addition("bad"), .more = 1 };
    newer.it.struct_size = sizeof newer;
    must_answer(WEIR_NOT_SUPPORTED, weir_spec_add(&newer.it));
    weir_device *device = open_stepped(0);
    weir_resource *mr;
    must_answer(WEIR_INVALID_ARGUMENT, weir_resource_open(device, "bad/device", &mr));
    close_emulated(device);
}

/* ---- threads ---- */

static char names[WEIR_SPEC_ADDED_MAX][8];
static weir_device *device_of_all;

static void add_half(const size_t *first)
{
    for (size_t i = *first; i < WEIR_SPEC_ADDED_MAX; i += 2) {
        weir_status status = add_leaf(names[i]);
        must(status == WEIR_OK || status == WEIR_OUT_OF_HOST_MEMORY);
    }
}

/* What is found is whole. */
static size_t open_all(void)
{
    weir_spec_kind kind = { .struct_size = sizeof kind };
    size_t opened = 0;
    for (size_t i = 0; weir_spec_kind_get(i, &kind) == WEIR_OK; i++) {
        if (strncmp(kind.name, "leaf", 4) != 0)
            continue;
        weir_resource *mr;
        must_ok(weir_resource_open(device_of_all, kind.name, &mr));
        weir_resource_unref(mr);
        opened++;
    }
    return opened;
}

static void act(void *first)
{
    if (first != NULL)
        add_half(first);
    for (int i = 0; i < 20; i++)
        must(open_all() <= WEIR_SPEC_ADDED_MAX - 3);
}

/* To the last place, while others read. */
static void many_add_and_read(void **state)
{
    (void)state;
    static size_t firsts[2] = { 0, 1 };
    void *const arguments[3] = { NULL, &firsts[0], &firsts[1] };
    for (size_t i = 0; i < WEIR_SPEC_ADDED_MAX; i++)
        snprintf(names[i], sizeof names[i], "leaf%zu", i);
    device_of_all = open_threads();
    must_ok(weir_emulated_run_threads(device_of_all, 3, act, arguments));
    must_equal(open_all(), WEIR_SPEC_ADDED_MAX - 3); /* besides what was there */
    must_answer(WEIR_OUT_OF_HOST_MEMORY, add_leaf("one_more"));
    close_emulated(device_of_all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_added_is_made),
        cmocka_unit_test(what_makes_nothing_is_told),
        cmocka_unit_test(it_is_told_like_any_other),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(many_add_and_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
