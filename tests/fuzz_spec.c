/* fuzz_spec.c - specs made at random. Those that are right must set exactly what they
 * say, however they are written; those that were damaged, and random texts, must be
 * refused with a place in the text or mean the same each time, and leave nothing.
 *
 * All of it goes to a table of the tests' own: what the library has may open files. */
#include "support_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { PARTS = 5, FILE_LENGTH = 24 };

/* A text that is being written. */
typedef struct writer {
    uint64_t random;
    size_t length;
    char text[WEIR_SPEC_LENGTH_MAX + 2];
} writer;

static uint64_t below(writer *self, uint64_t n)
{
    return support_random_below(&self->random, n);
}

static void put(writer *self, const char *text)
{
    size_t length = strlen(text);
    must(self->length + length < sizeof self->text);
    memcpy(self->text + self->length, text, length + 1);
    self->length += length;
}

static void put_blanks(writer *self)
{
    while (below(self, 6) == 0)
        put(self, below(self, 2) == 0 ? " " : "\t");
}

/* `text` as a token, with blanks around it where these may be. */
static void put_token(writer *self, const char *text)
{
    put_blanks(self);
    put(self, text);
    put_blanks(self);
}

/* ---- values: each is written, and said ---- */

static size_t put_size(writer *self)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {
        { "", 1 }, { "B", 1 }, { "KiB", 1024 }, { "MiB", 1048576 },
        { "GiB", 1073741824 }, { "TiB", 1099511627776 }, { "KB", 1000 },
        { "MB", 1000000 }, { "GB", 1000000000 }, { "TB", 1000000000000 },
    };
    char text[64];
    size_t unit = below(self, sizeof units / sizeof units[0]);
    uint64_t whole = 16 + below(self, UINT64_C(1) << below(self, 20));
    if (below(self, 3) == 0)
        whole = SIZE_MAX / units[unit].bytes - 1 - below(self, 5);
    uint64_t bytes = whole * units[unit].bytes;
    if (below(self, 2) == 0) {
        snprintf(text, sizeof text, "%llu%s", (unsigned long long)whole,
                 units[unit].name);
    } else {
        uint64_t millionths = below(self, 1000000);
        snprintf(text, sizeof text, "%llu.%06llu%s", (unsigned long long)whole,
                 (unsigned long long)millionths, units[unit].name);
        bytes += millionths * units[unit].bytes / 1000000;
    }
    put_token(self, text);
    return bytes;
}

static int64_t put_integer(writer *self, int64_t least, int64_t most)
{
    char text[32];
    uint64_t range = (uint64_t)most - (uint64_t)least;
    int64_t number = (int64_t)((uint64_t)least + support_random(&self->random) % range);
    if (below(self, 4) == 0)
        number = below(self, 2) == 0 ? least : most;
    snprintf(text, sizeof text, "%lld", (long long)number);
    put_token(self, text);
    return number;
}

static bool put_boolean(writer *self, const char *name)
{
    static const char *const words[] = { "no", "false", "off", "yes", "true", "on" };
    size_t which = below(self, 7);
    put_token(self, name);
    if (which == 6)
        return true;
    put(self, "=");
    put_token(self, words[which]);
    return which >= 3;
}

static uint64_t put_words(writer *self, uint64_t high)
{
    char text[32] = "none";
    uint64_t flags = 0;
    size_t used = 0;
    for (size_t i = 0; i < 2; i++) {
        uint64_t bit = i == 0 ? 1 : high;
        if (below(self, 2) == 0)
            continue;
        flags |= bit;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                 used == 0 ? "" : "+",
                                 high >> 32 == 0 ? (i == 0 ? "a" : "high")
                                                 : (i == 0 ? "low" : "top"));
    }
    put_token(self, text);
    return flags;
}

/* A file name of any characters, quoted where it has to be and sometimes else. */
static void put_text(writer *self, char out[FILE_LENGTH])
{
    size_t length = below(self, FILE_LENGTH);
    bool needs_quotes = length == 0;
    for (size_t i = 0; i < length; i++) {
        static const char odd[] = " \t,()\"=\\";
        bool is_odd = below(self, 8) == 0;
        out[i] = is_odd ? odd[below(self, sizeof odd - 1)]
                        : "abcxyz019/._-+:"[below(self, 15)];
        needs_quotes = needs_quotes || (is_odd && out[i] != '\\');
    }
    out[length] = '\0';
    put_blanks(self);
    if (!needs_quotes && below(self, 2) == 0) {
        put(self, out);
        return;
    }
    put(self, "\"");
    for (size_t i = 0; i < length; i++) {
        if (out[i] == '"' || out[i] == '\\' || below(self, 9) == 0)
            put(self, "\\");
        put(self, (char[]){ out[i], '\0' });
    }
    put(self, "\"");
    put_blanks(self);
}

/* ---- parts: written, and what they must set ---- */

typedef struct model {
    size_t count;
    probe_record parts[PARTS]; /* outermost first */
} model;

typedef enum option {
    OPTION_FILE, OPTION_SIZE, OPTION_MODE, OPTION_APPEND, OPTION_QUIET, OPTION_NODE,
    OPTION_FAR, OPTION_FLAGS, OPTION_WIDE, OPTIONS
} option;

static const char *const option_names[OPTIONS] = {
    "file", "size", "mode", "append", "quiet", "node", "far", "flags", "wide"
};

static void put_value(writer *self, option which, probe_record *out)
{
    probe_values *values = &out->values;
    switch (which) {
    case OPTION_FILE:
        put_text(self, out->file);
        values->file = out->file;
        return;
    case OPTION_SIZE: values->size = put_size(self); return;
    case OPTION_MODE:
        values->mode = below(self, 2) == 0 ? PROBE_SLOW : PROBE_FAST;
        put_token(self, values->mode == PROBE_SLOW ? "slow" : "fast");
        return;
    case OPTION_NODE: values->node = (int32_t)put_integer(self, 0, 1023); return;
    case OPTION_FAR: values->far = put_integer(self, -INT64_MAX, INT64_MAX); return;
    case OPTION_FLAGS:
        values->flags = (uint32_t)put_words(self, UINT64_C(1) << 31);
        return;
    case OPTION_WIDE: values->wide_flags = put_words(self, UINT64_C(1) << 63); return;
    case OPTION_APPEND:
    case OPTION_QUIET:
    case OPTIONS: break;
    }
    must(which < OPTIONS);
}

static bool name_may_be_left_out(const probe_record *of, option which, bool is_first)
{
    return is_first && which == (of->is_leaf ? OPTION_FILE : OPTION_SIZE);
}

static void put_option(writer *self, option which, bool is_first, probe_record *out)
{
    if (!is_first)
        put(self, ",");
    if (which == OPTION_APPEND) {
        out->values.append = put_boolean(self, "append");
        return;
    }
    if (which == OPTION_QUIET) {
        out->values.quiet = put_boolean(self, "quiet");
        return;
    }
    if (!name_may_be_left_out(out, which, is_first) || below(self, 2) == 0) {
        put_token(self, option_names[which]);
        put(self, "=");
    }
    put_value(self, which, out);
}

static void put_part(writer *self, bool is_leaf, probe_record *out)
{
    option order[OPTIONS];
    size_t count = is_leaf ? OPTIONS : OPTION_MODE + 1;
    *out = (probe_record){ .is_leaf = is_leaf, .values = probe_blank };
    for (size_t i = 0; i < count; i++) {
        size_t other = below(self, i + 1);
        order[i] = order[other];
        order[other] = (option)i;
    }
    put_token(self, is_leaf ? "probe" : "wrap");
    bool is_first = true;
    for (size_t i = 0; i < count; i++) {
        bool is_needed = !is_leaf && order[i] == OPTION_SIZE;
        if (!is_needed && below(self, 2) == 0)
            continue;
        if (is_first)
            put(self, "(");
        put_option(self, order[i], is_first, out);
        is_first = false;
    }
    if (is_first && below(self, 2) == 0)
        return;
    put(self, is_first ? "()" : ")");
    put_blanks(self);
}

static void put_spec(writer *self, model *out)
{
    out->count = 1 + below(self, PARTS);
    self->length = 0;
    for (size_t i = 0; i < out->count; i++) {
        put_part(self, i + 1 == out->count, &out->parts[i]);
        if (i + 1 < out->count)
            put(self, "/");
    }
}

/* ---- claims ---- */

static void must_be_made(const writer *it, const model *from)
{
    must_equal(probe_count, from->count);
    for (size_t i = 0; i < from->count; i++) {
        const probe_record *made = &probe_records[from->count - 1 - i];
        const probe_record *wanted = &from->parts[i];
        if (made->is_leaf != wanted->is_leaf
            || !probe_is_same(&made->values, &wanted->values))
            fail_msg("part %zu of \"%.300s\" is not what it says", i, it->text);
    }
}

/* Claims that `spec` sets what the records say, once more. */
static void must_mean_the_same(weir_device *device, const char *spec)
{
    static probe_record before[WEIR_SPEC_PARTS_MAX];
    weir_resource *mr;
    size_t count = probe_count;
    memcpy(before, probe_records, count * sizeof before[0]);
    for (size_t i = 0; i < count; i++) {
        if (before[i].values.file != NULL)
            before[i].values.file = before[i].file;
    }
    must_ok(probe_open(device, spec, &mr));
    weir_resource_unref(mr);
    must_equal(probe_count, count);
    for (size_t i = 0; i < count; i++)
        must(probe_is_same(&before[i].values, &probe_records[i].values));
}

/* Opens what may be anything. True: it means something, and twice the same. */
static bool must_be_read(weir_device *device, const writer *it)
{
    weir_resource *mr = NULL;
    size_t live = weir__host_live();
    char *spec = strdup(it->text); /* so that a read behind its end is found */
    must(spec != NULL && strlen(spec) == it->length);
    weir_status status = probe_open(device, spec, &mr);
    weir_resource_unref(mr);
    if (status == WEIR_OK) {
        must_mean_the_same(device, spec);
    } else {
        must_answer(WEIR_INVALID_ARGUMENT, status);
        must(mr == NULL);
        size_t character = refused_character();
        if (character < 1 || character > it->length + 1)
            fail_msg("character %zu of %zu: %s", character, it->length,
                     weir_last_error().message);
    }
    free(spec);
    must_equal(weir__host_live(), live);
    return status == WEIR_OK;
}

/* ---- damage ---- */

static const char *const pieces[] = {
    "(", ")", ",", "=", "/", "\"", "\\", "+", " ", "-", ".", "0", "9", "GiB", "KB",
    "probe", "wrap", "pool", "file=", "append", "size=all", "initial=", "none", "\x80",
    "18446744073709551615", "99999999999999999999", "limit=1,initial=2", "probe()/",
};

static const char *any_piece(writer *self)
{
    return pieces[below(self, sizeof pieces / sizeof pieces[0])];
}

static void insert(writer *self, size_t at, const char *text)
{
    size_t length = strlen(text);
    if (self->length + length > WEIR_SPEC_LENGTH_MAX + 1)
        return;
    memmove(self->text + at + length, self->text + at, self->length - at + 1);
    memcpy(self->text + at, text, length);
    self->length += length;
}

static void erase(writer *self, size_t at, size_t length)
{
    length = length < self->length - at ? length : self->length - at;
    memmove(self->text + at, self->text + at + length, self->length - at - length + 1);
    self->length -= length;
}

static void damage(writer *self)
{
    size_t at = below(self, self->length + 1);
    char piece[64];
    size_t length = 1 + below(self, sizeof piece - 1);
    switch (below(self, 5)) {
    case 0: insert(self, at, any_piece(self)); return;
    case 1: erase(self, at, 1 + below(self, 4)); return;
    case 2: erase(self, at, self->length); return;
    case 3: /* a piece of it once more */
        length = length < self->length - at ? length : self->length - at;
        memcpy(piece, self->text + at, length);
        piece[length < sizeof piece ? length : sizeof piece - 1] = '\0';
        insert(self, below(self, self->length + 1), piece);
        return;
    default:
        if (at < self->length)
            self->text[at] = (char)(1 + below(self, 255));
    }
}

static void put_noise(writer *self)
{
    self->length = 0;
    self->text[0] = '\0';
    bool is_raw = below(self, 2) == 0;
    size_t count = below(self, below(self, 50) == 0 ? 5000 : 40);
    for (size_t i = 0; i < count; i++) {
        char raw[2] = { (char)(1 + below(self, 255)), '\0' };
        insert(self, self->length, is_raw ? raw : any_piece(self));
    }
}

/* ---- the runs ---- */

static void right_specs_set_what_they_say(void **state)
{
    (void)state;
    static writer text;
    static model wanted;
    uint64_t runs = support_bound("specs that are right", 3000, 100000);
    weir_device *device = open_stepped(1);
    for (uint64_t i = 0; i < runs; i++) {
        weir_resource *mr;
        text.random = support_seed(i);
        put_spec(&text, &wanted);
        must_ok(probe_open(device, text.text, &mr));
        must_be_made(&text, &wanted);
        weir_resource_unref(mr);
        must(must_be_read(device, &text));
    }
    close_emulated(device);
}

static void damaged_specs_are_read_or_refused(void **state)
{
    (void)state;
    static writer text;
    static model wanted;
    uint64_t runs = support_bound("specs that are damaged", 20000, 1000000);
    uint64_t read = 0;
    weir_device *device = open_stepped(1);
    for (uint64_t i = 0; i < runs; i++) {
        text.random = support_seed(i);
        put_spec(&text, &wanted);
        for (uint64_t count = 1 + below(&text, 3); count > 0; count--)
            damage(&text);
        read += must_be_read(device, &text);
    }
    must(read > runs / 50 && read < runs / 2);
    close_emulated(device);
}

static void noise_is_refused(void **state)
{
    (void)state;
    static writer text;
    uint64_t runs = support_bound("specs that are noise", 20000, 1000000);
    weir_device *device = open_stepped(1);
    for (uint64_t i = 0; i < runs; i++) {
        text.random = support_seed(i);
        put_noise(&text);
        (void)must_be_read(device, &text);
    }
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_specs_set_what_they_say),
        cmocka_unit_test(damaged_specs_are_read_or_refused),
        cmocka_unit_test(noise_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
