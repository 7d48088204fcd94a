/* lines.h - counts how often a line of memory has to come from another processor.
 *
 * What is compiled with -fsanitize=thread asks at each load and store, as for the
 * sanitizer's runtime, in whose place this is. Threads are processors, each with a
 * cache that never forgets: a line comes to one when it loads what it does not have, or
 * stores to what another has as well; and a store takes it from all others. So it
 * counts what is shared, on whatever machine, and nothing else.
 *
 * Not counted are whole structures that are copied or cleared by the C library. Threads
 * take turns, and one at a time is at work between lines_begin and lines_end. */
#ifndef WEIR_TESTS_LINES_H
#define WEIR_TESTS_LINES_H

#include <stdint.h>

/* The calling thread is processor `number`, 0 to 7, from now on. */
void lines_begin(unsigned number);
/* What it does is not looked at. */
void lines_end(void);

/* How many came since the last time. */
uint64_t lines_moved(void);

#endif
