/* support_pattern.h - the pattern that tests write to blocks: a word for each eight
 * bytes, which hangs on the key and on its place. */
#ifndef WEIR_TESTS_SUPPORT_PATTERN_H
#define WEIR_TESTS_SUPPORT_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* Of blocks above 256 KiB in their first and last page and one page of each 256 KiB. */
void pattern_write(unsigned char *base, size_t bytes, uint64_t key);
/* The offset of the first wrong word, or `bytes`. */
size_t pattern_compare(const unsigned char *base, size_t bytes, uint64_t key);

#endif
