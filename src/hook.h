/* hook.h - calls of a user's function from within a resource: without locks, as if from
 * outside of it, and never again on a thread that is in it already.
 *
 * Who is in it is a list of records on those threads' own stacks: no host memory is
 * asked for, for there may be none. */
#ifndef WEIR_HOOK_H
#define WEIR_HOOK_H

#include "internal.h"
#include "sync.h"

typedef struct weir__hook_visit {
    struct weir__hook_visit *next;
    uint64_t thread; /* its number */
    uint32_t depth;  /* of its calls, while it was outside */
} weir__hook_visit;

typedef struct weir__hook {
    weir__mutex lock;         /* guards the list */
    weir__hook_visit *inside; /* one for each thread */
} weir__hook;

void weir__hook_init(weir__hook *self);
void weir__hook_finish(weir__hook *self);

/* False: the calling thread is inside already, and nothing has changed. Else it is now,
 * until weir__hook_leave with the same `visit`; and what it calls of Weir counts as the
 * outermost call, so that the ledger is told of it. */
bool weir__hook_enter(weir__hook *self, weir__hook_visit *visit);
void weir__hook_leave(weir__hook *self, weir__hook_visit *visit);

#endif
