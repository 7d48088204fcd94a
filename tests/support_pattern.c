/* support_pattern.c - see support_pattern.h. */
#include "support_pattern.h"

#include <stdbool.h>
#include <string.h>

#define WHOLE_BYTES ((size_t)1 << 20)
#define PAGE_BYTES  ((size_t)4096)
#define STEP_BYTES  ((size_t)256 << 10)

/* The pattern: a word per eight bytes, each with its place in it. */
static uint64_t pattern_word(uint64_t key, size_t offset)
{
    return (key ^ UINT64_C(0x5bd1e9955bd1e995)) + offset * UINT64_C(0x9e3779b97f4a7c15);
}

/* Whole words first: most of the time of most suites passes here. */
static void part_write(unsigned char *base, size_t from, size_t to, uint64_t key)
{
    size_t at = from;
    for (; to - at >= 8; at += 8) {
        uint64_t word = pattern_word(key, at);
        memcpy(base + at, &word, 8);
    }
    uint64_t word = pattern_word(key, at);
    memcpy(base + at, &word, to - at);
}

/* The offset of the first wrong word, or `to`. */
static size_t part_compare(const unsigned char *base, size_t from, size_t to,
                            uint64_t key)
{
    size_t at = from;
    for (; to - at >= 8; at += 8) {
        uint64_t found;
        memcpy(&found, base + at, 8);
        if (found != pattern_word(key, at))
            return at;
    }
    uint64_t word = pattern_word(key, at);
    return memcmp(base + at, &word, to - at) != 0 ? at : to;
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
