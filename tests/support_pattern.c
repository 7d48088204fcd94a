/* support_pattern.c - see support_pattern.h. */
#include "support_pattern.h"

#include <stdbool.h>
#include <string.h>

#define WHOLE_BYTES ((size_t)256 << 10)
#define PAGE_BYTES  ((size_t)4096)
#define STEP_BYTES  ((size_t)256 << 10)

/* The pattern: a word per eight bytes, each with its place in it. Much of the time of
 * most suites passes here, and what is written to is the caller's own: so no sanitizer
 * looks at each word. */
#define FACTOR UINT64_C(0x9e3779b97f4a7c15)
#define QUIETLY __attribute__((no_sanitize("address", "thread", "undefined")))

static uint64_t word_at(size_t from, uint64_t key)
{
    return (key ^ UINT64_C(0x5bd1e9955bd1e995)) + from * FACTOR;
}

QUIETLY static void part_write(unsigned char *base, size_t from, size_t to,
                               uint64_t key)
{
    const size_t count = (to - from) / 8;
    uint64_t word = word_at(from, key);
    for (size_t i = 0; i < count; i++, word += 8 * FACTOR)
        memcpy(base + from + 8 * i, &word, 8);
    memcpy(base + from + 8 * count, &word, (to - from) % 8);
}

/* The bits that differ in `count` words. */
QUIETLY static uint64_t words_differ(const unsigned char *at, size_t count,
                                     uint64_t word)
{
    uint64_t differ = 0;
    for (size_t i = 0; i < count; i++, word += 8 * FACTOR) {
        uint64_t found;
        memcpy(&found, at + 8 * i, 8);
        differ |= found ^ word;
    }
    return differ;
}

/* The offset of the first wrong word, or `to`. */
static size_t part_compare(const unsigned char *base, size_t from, size_t to,
                           uint64_t key)
{
    if (words_differ(base + from, (to - from) / 8, word_at(from, key)) == 0)
        from += (to - from) / 8 * 8;
    for (; from < to; from += 8) {
        uint64_t word = word_at(from, key);
        if (memcmp(base + from, &word, to - from < 8 ? to - from : 8) != 0)
            return from;
    }
    return to;
}

/* The next part of a block that carries the pattern, from *from on: writes its ends,
 * and answers false where there is no more. */
static bool next_part(size_t bytes, size_t *from, size_t *to)
{
    if (*to >= bytes)
        return false;
    if (bytes <= WHOLE_BYTES) {
        *from = 0;
        *to = bytes;
        return true;
    }
    size_t last = (bytes - PAGE_BYTES) / 8 * 8;
    *from = *to == 0 ? 0 : *from + STEP_BYTES;
    if (*from >= last) {
        *from = last;
        *to = bytes;
    } else {
        *to = *from + PAGE_BYTES;
    }
    return true;
}

void pattern_write(unsigned char *base, size_t bytes, uint64_t key)
{
    for (size_t from = 0, to = 0; next_part(bytes, &from, &to);)
        part_write(base, from, to, key);
}

size_t pattern_compare(const unsigned char *base, size_t bytes, uint64_t key)
{
    for (size_t from = 0, to = 0; next_part(bytes, &from, &to);) {
        size_t wrong = part_compare(base, from, to, key);
        if (wrong != to)
            return wrong;
    }
    return bytes;
}
