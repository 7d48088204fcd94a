/* test_spec_values.c - options of every type in specs, on a resource that records what
 * it gets; and whether the library's own table is sound. */
#include "support_spec.h"

#include <stdio.h>
#include <string.h>

#include "internal.h"
#include "weir/spec.h"

/* The options that `spec`, a leaf alone, sets. */
static probe_values values_of(weir_device *device, const char *spec)
{
    weir_resource *mr;
    must_ok(probe_open(device, spec, &mr));
    must_equal(probe_count, 1);
    weir_resource_unref(mr);
    return probe_records[0].values;
}

static void what_is_not_given_is_blank(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(1));
    static const char *const specs[] = { "probe", "probe()", " probe\t(\t) " };
    for (size_t i = 0; i < 3; i++) {
        probe_values it = values_of(device, specs[i]);
        must(probe_is_same(&it, &probe_blank));
    }
    close_emulated(device);
}

static void texts_are_taken_whole(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(2));
    static const struct { const char *spec, *text; } texts[] = {
        { "probe(a.csv)", "a.csv" },
        { "probe(/tmp/a/b.csv,append)", "/tmp/a/b.csv" },
        { "probe(file=/tmp/a/b.csv)", "/tmp/a/b.csv" },
        { "probe( file = ../a-b_c+d:e;'f'%.csv )", "../a-b_c+d:e;'f'%.csv" },
        { "probe(file=\"a,b.csv\")", "a,b.csv" },
        { "probe(\"a,b (c)=d/e\")", "a,b (c)=d/e" },
        { "probe(\"a\\\"b\\\\c\\d\")", "a\"b\\cd" },
        { "probe(file=a\\b)", "a\\b" },
        { "probe(file=\"\")", "" },
        { "probe(file=\" \")", " " },
        { "probe(\"append\")", "append" },
        { "probe(\"file\")", "file" },
        { "probe(file=append)", "append" },
        { "probe(4GiB)", "4GiB" },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        probe_values it = values_of(device, texts[i].spec);
        assert_string_equal(it.file, texts[i].text);
    }
    close_emulated(device);
}

static void each_type_reaches_its_field(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(3));
    static const char *const yes[] = { "true", "yes", "on" };
    static const char *const no[] = { "false", "no", "off" };
    char spec[100];
    for (size_t i = 0; i < 3; i++) {
        snprintf(spec, sizeof spec, "probe(append=%s, quiet=%s)", yes[i], no[i]);
        must(values_of(device, spec).append && !values_of(device, spec).quiet);
    }
    must(values_of(device, "probe(append)").append);
    must(values_of(device, "probe(mode=fast,quiet)").quiet);
    must(!values_of(device, "probe(mode=fast,quiet)").append);

    must(values_of(device, "probe(node=0)").node == 0);
    must(values_of(device, "probe(node=1023)").node == 1023);
    must(values_of(device, "probe(node=any)").node == -1);
    must(values_of(device, "probe(far=-9223372036854775807)").far == -INT64_MAX);
    must(values_of(device, "probe(far=9223372036854775807)").far == INT64_MAX);
    must(values_of(device, "probe(far=-0)").far == 0);

    must(values_of(device, "probe(mode=fast)").mode == PROBE_FAST);
    must_equal(values_of(device, "probe(flags=none)").flags, 0);
    must_equal(values_of(device, "probe(flags=b)").flags, 2);
    must_equal(values_of(device, "probe(flags=high+a)").flags, 0x80000001u);
    must_equal(values_of(device, "probe(wide=top+low)").wide_flags,
               UINT64_C(1) << 63 | 1);
    must_equal(values_of(device, "probe(size=all)").size, SIZE_MAX);
    must_equal(values_of(device, "probe(size=half)").size, SIZE_MAX / 2);
    must_equal(values_of(device, "probe(size=16)").size, 16);
    close_emulated(device);
}

typedef struct refusal {
    const char *spec;
    size_t character;
    const char *words;
} refusal;

static const refusal refusals[] = {
    { "probe(file)", 7, "file wants a value: \"file=...\"" },
    { "probe(append,append=no)", 14, "probe has \"append\" already" },
    { "probe(a,b)", 9, "probe has no option \"b\"; it has file, append, quiet, node" },
    { "probe(append,a.csv)", 14, "probe has no option \"a.csv\"" },
    { "probe(append,\"x\")", 15, "probe has no option \"x\"" },
    { "probe(file=a b)", 14, "here a \",\" or a \")\" is missing" },
    { "probe(file=a\"b\")", 13, "here a \",\" or a \")\" is missing" },
    { "probe(file=\"a\"b)", 15, "here a \",\" or a \")\" is missing" },
    { "probe(file=\"a)", 12, "this quote is never closed" },
    { "probe(file=\"a\\\")", 12, "this quote is never closed" },
    { "probe(append=maybe)", 14, "append is true, yes, on, false, no or off, not" },
    { "probe(append=True)", 14, "not \"True\"" },
    { "probe(append=\"yes\")", 14, "append is no text: leave the quotes out" },
    { "probe(node=-1)", 12, "node is a number from 0 to 1023, or any, not \"-1\"" },
    { "probe(node=1024)", 12, "not \"1024\"" },
    { "probe(node=)", 12, "here a value is missing" },
    { "probe(far=-)", 11, "far is a number from -9223372036854775807 to 92233720" },
    { "probe(far=1.5)", 11, "not \"1.5\"" },
    { "probe(far=1x)", 11, "not \"1x\"" },
    { "probe(far=--1)", 11, "not \"--1\"" },
    { "probe(far=+1)", 11, "not \"+1\"" },
    { "probe(far=9223372036854775808)", 11, "not \"9223372036854775808\"" },
    { "probe(far=18446744073709551617)", 11, "not \"18446744073709551617\"" },
    { "probe(far=-18446744073709551617)", 11, "not \"-18446744073709551617\"" },
    { "probe(mode=Fast)", 12, "mode cannot be \"Fast\": there are slow, fast" },
    { "probe(mode=fas)", 12, "mode cannot be \"fas\"" },
    { "probe(mode=slow+fast)", 12, "mode cannot be \"slow+fast\"" },
    { "probe(flags=a+c)", 15, "flags cannot be \"c\": there are none, a, b, high" },
    { "probe(flags=a+)", 15, "flags cannot be \"\"" },
    { "probe(flags=+a)", 13, "flags cannot be \"\"" },
    { "probe(flags=a+b+a)", 17, "flags has \"a\" already" },
    { "probe(flags=a+none)", 15, "flags: \"none\" can only stand alone" },
    { "probe(flags=none+none)", 13, "flags: \"none\" can only stand alone" },
    { "probe(wide=both+low)", 17, "wide has \"low\" already" },
    { "probe(size=15)", 12, "size cannot be \"15\": its least is 16B, or all, half" },
    { "wrap/probe", 1, "wrap needs a size: \"wrap(size=...)\"" },
    { "wrap(16,file=x)/wrap(file=x)/probe", 17, "wrap needs a size" },
    { "wrap(1)/pool(2,limit=1)/probe", 9, "below its initial size of 2" },
};

static void refusals_show_the_character(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(4));
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const refusal *it = &refusals[i];
        weir_resource *mr = (weir_resource *)device;
        size_t live = weir__host_live();
        must_answer(WEIR_INVALID_ARGUMENT, probe_open(device, it->spec, &mr));
        must(mr == NULL);
        must_equal(weir__host_live(), live);
        const char *message = weir_last_error().message;
        if (refused_character() != it->character || strstr(message, it->words) == NULL)
            fail_msg("\"%s\": not character %zu, \"%s\", but: %s", it->spec,
                     it->character, it->words, message);
    }
    close_emulated(device);
}

/* A slip at the front is found before the leaf at the end is made. */
static void nothing_is_made_before_all_is_read(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(5));
    weir_resource *mr;
    must_answer(WEIR_INVALID_ARGUMENT, probe_open(device, "wrap(x)/probe", &mr));
    must_equal(probe_count, 0);
    must_ok(probe_open(device, "wrap(1,file=a)/wrap(2,file=\"b c\")/probe(d)", &mr));
    must_equal(probe_count, 3);
    assert_string_equal(probe_records[0].values.file, "d");
    assert_string_equal(probe_records[1].values.file, "b c");
    assert_string_equal(probe_records[2].values.file, "a");
    must_equal(probe_records[2].values.size, 1);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* ---- the library's own table ---- */

static void must_be_sound(const weir__spec_kind *kind, const weir__spec_option *option)
{
    size_t words = 0;
    for (const char *at = option->choices; at != NULL; words++) {
        at = strstr(at, ", ");
        at = at == NULL ? NULL : at + 2;
    }
    if (words != option->value_count)
        fail_msg("%s, %s: %zu words for %zu values", kind->name, option->name, words,
                 option->value_count);
    must(option->name[0] != '\0' && option->doc[0] != '\0');
    must(strlen(option->name) + strlen(kind->name) < 40);
    must(option->choices == NULL || strlen(option->choices) < 100);
    must(option->offset + option->width <= kind->blank_bytes);
    must(option->type != WEIR__SPEC_SIZE || option->width == sizeof(size_t));
    must(option->type != WEIR__SPEC_BOOLEAN || option->width == sizeof(bool));
    must(option->type != WEIR__SPEC_TEXT || option->width == sizeof(char *));
    must(option->type != WEIR__SPEC_INTEGER || option->width == sizeof(int32_t)
         || option->width == sizeof(int64_t));
    must((option->type == WEIR__SPEC_WORD || option->type == WEIR__SPEC_WORDS)
             ? words > 0
             : words == 0 || option->type < WEIR__SPEC_BOOLEAN);
    must(option->type != WEIR__SPEC_INTEGER || option->least < option->most);

    if (option->default_text == NULL)
        return;
    weir__spec_reader reader = { .table = &weir__spec_table_own,
                                 .text = option->default_text,
                                 .length = strlen(option->default_text) };
    weir__spec_token token = { .length = reader.length };
    weir__spec_values values = { .text_used = 0 };
    must_ok(weir__spec_value_set(&reader, option, token, &values));
}

static void the_table_is_sound(void **state)
{
    (void)state;
    const weir__spec_table *table = &weir__spec_table_own;
    for (size_t i = 0; i < table->count; i++) {
        const weir__spec_kind *kind = &table->kinds[i];
        must((kind->make == NULL) == (kind->only_from != NULL));
        must(kind->purpose[0] != '\0');
        must(kind->option_count <= WEIR__SPEC_OPTIONS_MAX);
        must(kind->blank_bytes <= WEIR__SPEC_BLANK_BYTES);
        must((kind->blank == NULL) == (kind->blank_bytes == 0));
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(kind->name, table->kinds[j].name);
        for (size_t j = 0; j < kind->option_count; j++) {
            must_be_sound(kind, &kind->options[j]);
            for (size_t k = 0; k < j; k++)
                assert_string_not_equal(kind->options[j].name, kind->options[k].name);
        }
    }
}

static void the_table_can_be_read(void **state)
{
    (void)state;
    size_t kinds = 0, options = 0;
    weir_spec_kind kind = { .struct_size = sizeof kind };
    weir_spec_option option = { .struct_size = sizeof option };
    for (; weir_spec_kind_get(kinds, &kind) == WEIR_OK; kinds++) {
        const weir__spec_kind *own = &weir__spec_table_own.kinds[kinds];
        assert_string_equal(kind.name, own->name);
        assert_string_equal(kind.purpose, own->purpose);
        must(kind.is_leaf == own->is_leaf);
        must(kind.only_from == own->only_from);
        must_equal(kind.option_count, own->option_count);
        for (size_t j = 0; weir_spec_option_get(kinds, j, &option) == WEIR_OK; j++) {
            assert_string_equal(option.name, own->options[j].name);
            must(option.default_text == own->options[j].default_text);
            must(option.choices == own->options[j].choices);
            must(option.doc == own->options[j].doc);
            must(option.type[0] != '\0');
            options++;
        }
        must_answer(WEIR_NOT_FOUND,
                    weir_spec_option_get(kinds, kind.option_count, &option));
        must(option.name == NULL && option.struct_size == sizeof option);
    }
    must_equal(kinds, weir__spec_table_own.count);
    must(options >= 4);
    must(kind.name == NULL);
    must_answer(WEIR_NOT_FOUND, weir_spec_kind_get(SIZE_MAX, &kind));
    must_answer(WEIR_NOT_FOUND, weir_spec_option_get(SIZE_MAX, 0, &option));
    must_answer(WEIR_NOT_FOUND, weir_spec_option_get(0, SIZE_MAX, &option));
    must_answer(WEIR_INVALID_ARGUMENT, weir_spec_kind_get(0, NULL));
    must_answer(WEIR_INVALID_ARGUMENT, weir_spec_option_get(0, 0, NULL));
    kind.struct_size = 0;
    must_answer(WEIR_INVALID_ARGUMENT, weir_spec_kind_get(0, &kind));
    option.struct_size = sizeof(size_t);
    must_answer(WEIR_INVALID_ARGUMENT, weir_spec_option_get(3, 0, &option));
    must(strstr(weir_spec_grammar(), "part     = name") != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_given_is_blank),
        cmocka_unit_test(texts_are_taken_whole),
        cmocka_unit_test(each_type_reaches_its_field),
        cmocka_unit_test(refusals_show_the_character),
        cmocka_unit_test(nothing_is_made_before_all_is_read),
        cmocka_unit_test(the_table_is_sound),
        cmocka_unit_test(the_table_can_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
