/* support_pattern.c - see support_pattern.h. */
#include "support_pattern.h"

#include <stdbool.h>
#include <string.h>

#define WHOLE_BYTES ((size_t)256 << 10)
#define PAGE_BYTES  ((size_t)4096)
#define STEP_BYTES  ((size_t)256 << 10)

#define CHUNK_WORDS 64 /* that are made at a time */

/* The pattern: a word per eight bytes, each with its place in it. Makes those of the
 * next chunk from `from` on, and answers how many bytes of it lie before `to`. Much of
 * the time of most suites passes here, and what it writes to is its caller's own: so no
 * sanitizer looks at each word. */
__attribute__((no_sanitize("address", "thread", "undefined")))
static size_t chunk_make(uint64_t words[CHUNK_WORDS], size_t from, size_t to,
                         uint64_t key)
{
    const uint64_t factor = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t word = (key ^ UINT64_C(0x5bd1e9955bd1e995)) + from * factor;
    size_t count = (to - from + 7) / 8;
    if (count > CHUNK_WORDS)
        count = CHUNK_WORDS;
    for (size_t i = 0; i < count; i++, word += 8 * factor)
        words[i] = word;
    return count * 8 < to - from ? count * 8 : to - from;
}

static void part_write(unsigned char *base, size_t from, size_t to, uint64_t key)
{
    uint64_t words[CHUNK_WORDS];
    while (from < to) {
        size_t bytes = chunk_make(words, from, to, key);
        memcpy(base + from, words, bytes);
        from += bytes;
    }
}

/* The offset of the first wrong word, or `to`. */
static size_t part_compare(const unsigned char *base, size_t from, size_t to,
                           uint64_t key)
{
    uint64_t words[CHUNK_WORDS];
    while (from < to) {
        size_t bytes = chunk_make(words, from, to, key), i = 0;
        if (memcmp(base + from, words, bytes) != 0) {
            while (memcmp(base + from, &words[i], bytes < 8 ? bytes : 8) == 0)
                from += 8, bytes -= 8, i++;
            return from;
        }
        from += bytes;
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
