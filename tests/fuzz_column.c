/* fuzz_column.c - lines about columns, as they come to the socket of `weir share`:
 * those that are right are read for what they say; those that somebody has meddled with
 * are refused with a sentence, or say something else that holds together. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "ticket.h"
#include "tools/weir_column.h"

static uint64_t below(uint64_t *random, uint64_t n)
{
    return support_random_below(random, n);
}

static weir_ticket ticket_make(uint64_t *random, uint64_t bytes)
{
    weir__ticket it = { .kind = WEIR_SHARE_FD, .access = WEIR_READ, .bytes = bytes,
                        .pid = (int32_t)support_random_between(random, 1, INT32_MAX),
                        .start_time = 1 + below(random, UINT64_C(1) << 40),
                        .socket = "/run/user/1000/weir/4711" };
    weir_ticket out;
    it.offset = below(random, UINT64_C(1) << 30);
    it.base_bytes = it.offset + bytes;
    for (size_t i = 0; i < sizeof it.export_id; i++)
        it.export_id[i] = (uint8_t)below(random, 256);
    weir__ticket_write(&it, &out);
    return out;
}

static column column_make(uint64_t *random)
{
    static const char *const dtypes[] = { "bool", "int16", "float32", "uint64",
                                          "complex128" };
    static const char letters[] = "abcXYZ019_.-";
    column it;
    refusal why;
    char name[COLUMN_NAME_MAX + 1] = { 0 };
    size_t length = (size_t)support_random_between(random, 1, COLUMN_NAME_MAX);
    memset(&it, 0, sizeof it);
    for (size_t i = 0; i < length; i++)
        name[i] = letters[below(random, sizeof letters - 1)];
    it.dtype = column_dtype_find(dtypes[below(random, 5)]);
    it.has_mask = below(random, 2) == 0;
    must(column_name_set(&it, name, &why));
    must(column_length_set(&it, 1 + below(random, UINT64_C(1) << below(random, 50)),
                           &why));
    it.data = ticket_make(random, column_data_bytes(&it));
    if (it.has_mask)
        it.mask = ticket_make(random, column_mask_bytes(&it));
    return it;
}

static bool is_same(const column *a, const column *b)
{
    return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype &&
           a->length == b->length && a->has_mask == b->has_mask &&
           memcmp(&a->data, &b->data, sizeof a->data) == 0 &&
           memcmp(&a->mask, &b->mask, sizeof a->mask) == 0;
}

/* Reads a copy that ends where the text does, so that a sanitizer sees who goes on. */
static bool read_exactly(const char *text, size_t length, column *out, refusal *why)
{
    char *copy = malloc(length + 1);
    must(copy != NULL);
    memcpy(copy, text, length);
    copy[length] = '\0';
    bool good = column_read(copy, out, why);
    free(copy);
    return good;
}

/* Changes, cuts out, puts in or doubles something somewhere. */
static size_t meddle(uint64_t *random, char *text, size_t length)
{
    static const char put[] = " -0123456789[],x.\t\xff";
    if (length == 0) /* all was cut out */
        return 0;
    size_t at = (size_t)below(random, length);
    size_t count = (size_t)support_random_between(random, 1, 4);
    count = count < length - at ? count : length - at;
    switch (below(random, 4)) {
    case 0:
        text[at] = put[below(random, sizeof put - 1)];
        return length;
    case 1:
        memmove(text + at, text + at + count, length - at - count);
        return length - count;
    case 2:
        memmove(text + at + count, text + at, length - at);
        return length + count;
    default:
        return at == 0 ? length : at;
    }
}

static void must_hold_together(const column *it)
{
    char text[COLUMN_TEXT_MAX];
    column again;
    refusal why;
    weir_ticket_info info = { .struct_size = sizeof info };
    must_ok(weir_ticket_get_info(&it->data, &info));
    must_equal(info.bytes, it->length * it->dtype->bytes);
    must(it->length != 0 && it->length <= SIZE_MAX / 2 / it->dtype->bytes);
    if (it->has_mask) {
        must_ok(weir_ticket_get_info(&it->mask, &info));
        must_equal(info.bytes, (it->length + 7) / 8);
    }
    must(column_write(it, text, &why));
    must(read_exactly(text, strlen(text), &again, &why) && is_same(it, &again));
}

static void lines_are_read_for_what_they_say(void **state)
{
    (void)state;
    uint64_t count = support_bound("lines about columns", 5000, 300000);
    uint64_t taken = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t random = support_seed(i);
        char text[COLUMN_TEXT_MAX + 64];
        column it = column_make(&random), read;
        refusal why;
        must(column_write(&it, text, &why));
        size_t length = strlen(text);
        must(read_exactly(text, length, &read, &why) && is_same(&it, &read));
        for (uint64_t j = 1 + below(&random, 4); j > 0; j--)
            length = meddle(&random, text, length);
        memset(why.text, 0, sizeof why.text);
        if (read_exactly(text, length, &read, &why)) {
            must_hold_together(&read);
            taken++;
        } else {
            must(why.text[0] != '\0' &&
                 memchr(why.text, '\0', sizeof why.text) != NULL);
        }
    }
    must(taken != 0 && taken < count / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_read_for_what_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
