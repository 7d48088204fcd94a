/* sleeper.h - the second thread of a benchmark program.
 *
 * It sleeps from the start to the end: without one, glibc leaves locked instructions
 * out, and whatever uses a mutex looks faster than it is. */
#ifndef WEIR_BENCH_SLEEPER_H
#define WEIR_BENCH_SLEEPER_H

#include <stdbool.h>

/* False: there is no thread to be had, and nothing to end. One at a time. */
bool sleeper_start(void);
void sleeper_end(void);

#endif
