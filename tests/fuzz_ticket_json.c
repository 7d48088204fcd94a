/* fuzz_ticket_json.c - lists in JSON that are no tickets, almost: each is read for what
 * it says or refused. What such a list is stands here once more, by other means. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "support_corpus.h"
#include "ticket.h"

#define TEXT_MAX 4096

/* ---- the model ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void strip(const char **from, const char **to)
{
    while (*from < *to && is_space(**from))
        ++*from;
    while (*from < *to && is_space((*to)[-1]))
        --*to;
}

/* If it is one, it is spelt as the only one that it can be. */
static bool is_number(const char *from, const char *to, uint8_t *out)
{
    static char spelt[256][4];
    for (unsigned i = 0; i < 256 && spelt[255][0] == '\0'; i++)
        snprintf(spelt[i], sizeof spelt[i], "%u", i);
    strip(&from, &to);
    *out = 0;
    for (const char *at = from; at < to; at++)
        *out = (uint8_t)(*out * 10 + (uint8_t)(*at - '0'));
    size_t length = (size_t)(to - from);
    return length == strlen(spelt[*out]) && memcmp(from, spelt[*out], length) == 0;
}

/* What stands between the commas. */
static bool is_list(const char *text, size_t length, weir_ticket *out)
{
    const char *from = text, *to = text + length;
    size_t count = 0;
    strip(&from, &to);
    if (to - from < 2 || *from != '[' || to[-1] != ']')
        return false;
    for (from++, to--; from <= to && count < 256; count++) {
        const char *comma = memchr(from, ',', (size_t)(to - from));
        const char *end = comma != NULL ? comma : to;
        if (!is_number(from, end, &out->octets[count]))
            return false;
        from = end + 1;
    }
    return count == 256 && from == to + 1;
}

/* ---- the claims ---- */

static weir_status try_text(const uint8_t *input, size_t length)
{
    static const weir_ticket nothing;
    weir_ticket read, wanted = nothing;
    weir__ticket said;
    const char *text = (const char *)input;
    bool is_right = is_list(text, length, &wanted) &&
                    weir__ticket_read(&wanted, &said) == WEIR_OK;
    memset(&read, 0xff, sizeof read);
    weir_status status = weir_ticket_from_json(text, length, &read);
    must_equal(status, is_right ? WEIR_OK : WEIR_INVALID_ARGUMENT);
    must(memcmp(&read, is_right ? &wanted : &nothing, sizeof read) == 0);
    return status;
}

/* ---- the inputs ---- */

typedef struct writer {
    uint64_t random;
    size_t length;
    char text[TEXT_MAX];
} writer;

static uint64_t below(writer *self, uint64_t n)
{
    return support_random_below(&self->random, n);
}

static void insert(writer *self, size_t at, const char *text, size_t length)
{
    if (self->length + length > TEXT_MAX)
        return;
    memmove(self->text + at + length, self->text + at, self->length - at);
    memcpy(self->text + at, text, length);
    self->length += length;
}

static void put_list(writer *self)
{
    char text[WEIR_TICKET_JSON_BYTES];
    weir_ticket ticket;
    weir__ticket it = { .kind = WEIR_SHARE_LEGACY, .is_detached = true,
                        .access = WEIR_READ, .base_bytes = 1 + below(self, 100000) };
    it.bytes = 1 + below(self, it.base_bytes);
    for (size_t i = 0; i < sizeof it.handle; i++)
        it.handle[i] = (unsigned char)below(self, below(self, 2) == 0 ? 256 : 12);
    weir__ticket_write(&it, &ticket);
    must_ok(weir_ticket_to_json(&ticket, text, sizeof text, &self->length));
    memcpy(self->text, text, self->length);
}

static void damage(writer *self)
{
    static const char *const pieces[] = {
        " ", "\n", "\t\r ", "\v", "\f", ",", ",,", "[", "]", "[]", "0", "00", "255",
        "256", "1000", "-", "+", ".", "e", "E1", "0x", "\"", "null", "{}", "]]", ",0",
        "1,2", "99999999999999999999", "/**/", "\xef\xbb\xbf", "\xc2\xa0"
    };
    const char *piece = pieces[below(self, sizeof pieces / sizeof pieces[0])];
    size_t at = below(self, self->length + 1);
    char octet = (char)below(self, 256);
    switch (below(self, 7)) {
    case 0: insert(self, at, piece, strlen(piece)); return;
    case 1: insert(self, 0, piece, strlen(piece)); return;
    case 2: insert(self, self->length, piece, strlen(piece)); return;
    case 3: insert(self, at, &octet, 1); return;
    case 4: self->length -= below(self, self->length - at + 1); return;
    case 5: /* a piece of it is left out */
        if (at < self->length) {
            size_t count = 1 + below(self, self->length - at);
            count = count > 5 ? 1 + count % 5 : count;
            memmove(self->text + at, self->text + at + count,
                    self->length - at - count);
            self->length -= count;
        }
        return;
    default: /* or a number is another */
        if (at < self->length && self->text[at] >= '0' && self->text[at] <= '9')
            self->text[at] = (char)('0' + below(self, 10));
    }
}

/* White space that changes nothing. */
static void spread(writer *self)
{
    static const char spaces[] = " \t\n\r";
    for (uint64_t count = below(self, 6); count > 0; count--) {
        size_t at = below(self, self->length);
        if (strchr("[,", self->text[at]) != NULL)
            insert(self, at + 1, spaces + below(self, 4), 1);
    }
}

static void lists_are_read_whole_or_refused(void **state)
{
    (void)state;
    static writer it;
    uint64_t runs = support_bound("tickets in JSON", 100000, 1000000);
    uint64_t read = 0;
    corpus_begin("ticket_json/*.json", 12, try_text);
    for (uint64_t i = 0; i < runs; i++) {
        it.random = support_seed(i);
        put_list(&it);
        spread(&it);
        for (uint64_t count = below(&it, 3); count > 0; count--)
            damage(&it);
        char *text = malloc(it.length + (it.length == 0));
        must(text != NULL);
        memcpy(text, it.text, it.length);
        weir_status status = try_text((const uint8_t *)text, it.length);
        free(text);
        read += status == WEIR_OK;
        corpus_must_have(status, (const uint8_t *)it.text, it.length);
    }
    must(read > runs / 5 && read < runs - runs / 5);
}

int main(int argc, char **argv)
{
    corpus_read_options(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read_whole_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
