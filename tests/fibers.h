/* fibers.h - see fibers.c. */
#ifndef WEIR_TESTS_FIBERS_H
#define WEIR_TESTS_FIBERS_H

#include <stdbool.h>

typedef struct weir__fiber weir__fiber;

/* Whether stepped runs are of fibers. */
bool weir__fibers_are_on(void);

/* The calling thread, as the first of its fibers; null: there is no memory. Freed by
 * its own weir__fiber_end, when all others have ended. */
weir__fiber *weir__fiber_of_thread(void);
/* One that calls entry(argument) when it is first gone to. It must not return before
 * weir__fiber_end. Null: there is no memory. */
weir__fiber *weir__fiber_begin(weir__fiber *home, void (*entry)(void *argument),
                               void *argument);
/* The running one stops here until somebody goes back to it. */
void weir__fiber_go(weir__fiber *to);
/* By home: its entry returns, and what the system does where a thread ends is done. */
void weir__fiber_end(weir__fiber *self);
/* Whether the caller is one, other than home. */
bool weir__fiber_runs(void);
/* As __cxa_thread_atexit_impl, for the running one; false: there is no room. */
bool weir__fiber_watch_first(void (*end)(void *));

#endif
