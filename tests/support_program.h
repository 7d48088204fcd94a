/* support_program.h - random programs for the emulated device that are correct by
 * construction: every use of memory is ordered behind what it must follow, by one of
 * the many ways that a program has.
 *
 * A program is made in full from a seed, as one list of steps of which each belongs to
 * a host thread. Threads run their steps in the order of the list, and wait for each
 * other only where the list says so (SIGNAL, AWAIT), for steps that stand before; so a
 * program never deadlocks. The maker keeps, for each step, the set of steps that it is
 * surely behind. It knows nothing of what resources do inside, which only adds order.
 *
 * Which kinds of steps a program has, and how often, is drawn from the seed as well:
 * what is rare in the average program is common in some. */
#ifndef WEIR_TESTS_SUPPORT_PROGRAM_H
#define WEIR_TESTS_SUPPORT_PROGRAM_H

#include <stdatomic.h>

#include "support.h"
#include "weir/weir.h"

enum {
    PROGRAM_STEPS = 640,
    PROGRAM_BLOCKS = 128,
    PROGRAM_STREAMS = 32,
    PROGRAM_SLOTS = 192,     /* of events, of points, of gates, of channels each */
    PROGRAM_HOSTS = 4,
    PROGRAM_RESOURCES = 3,
    PROGRAM_CAPTURES = 4,
    PROGRAM_POINTS = 8       /* that one block is freed behind */
};

#define PROGRAM_OPS(X)                                                           \
    X(ALLOCATE) X(FREE) X(FREE_BY_ADDRESS) X(FREE_AFTER) X(KERNEL) X(FILL)      \
    X(COPY) X(READ_BACK) X(WAIT) X(RECORD) X(WAIT_EVENT) X(POINT) X(WAIT_POINT) \
    X(SYNC) X(SYNC_EVENT) X(SYNC_POINT) X(SYNC_DEVICE) X(POLL) X(POLL_EVENT)    \
    X(POLL_POINT) X(QUERY) X(SIGNAL) X(AWAIT) X(STALL) X(OPEN) X(MAKE_STREAM)   \
    X(MAKE_FOREIGN) X(REGISTER) X(RETIRE) X(END_STREAM) X(END_FOREIGN) X(TRIM)  \
    X(FIND) X(CAPTURE) X(RELEASE)

typedef enum program_op {
#define X(name) PROGRAM_##name,
    PROGRAM_OPS(X)
#undef X
    PROGRAM_OP_COUNT
} program_op;

const char *program_op_name(program_op op);

/* Numbers of things are -1 where a step has none. */
typedef struct program_step {
    program_op op;
    int host;
    int stream;
    int other;       /* WAIT: the stream waited for */
    int block;       /* the block written, allocated, freed; CAPTURE: the first */
    int source;      /* the block read */
    int slot;        /* event, point, gate, channel or capture */
    int resource;
    int count;       /* points of FREE_AFTER; blocks of CAPTURE */
    int points[PROGRAM_POINTS];
    uint64_t number; /* key, fill value, bytes to keep, or the blocks freed (a mask) */
} program_step;

typedef enum program_stream_sort {
    PROGRAM_LEGACY,
    PROGRAM_OWN,        /* the per-thread stream of its host */
    PROGRAM_KNOWN,      /* of weir_stream_create */
    PROGRAM_FOREIGN,    /* unknown to Weir */
    PROGRAM_REGISTERED
} program_stream_sort;

typedef struct program_stream {
    program_stream_sort sort;
    bool is_blocking;
    bool is_first;      /* there from the beginning */
    bool is_alive;      /* at the end of the program (while it is made: now) */
    int host;           /* the only one to use it; -1: all */
    int since;          /* the step that made it so; -1: the beginning */
    int end_point;      /* a point behind all of it, once it has ended */
} program_stream;

typedef struct program_block {
    int resource;
    int stream;         /* of the allocation */
    size_t bytes;
    size_t alignment;
    int capture;        /* that it was allocated in, or -1 */
} program_block;

typedef struct program_options {
    int hosts;          /* 1: steps run on the calling thread */
    size_t steps;       /* about how many, before what orders them is added */
    bool omit;          /* leaves one ordering step out */
    bool gates;         /* may hold streams up */
} program_options;

typedef struct program {
    uint64_t seed;
    program_options options;
    const char *specs[PROGRAM_RESOURCES];
    int resource_count;
    bool eager;
    uint64_t pool_bytes;      /* initial size and limit of the pools, or 0 */
    program_stream streams[PROGRAM_STREAMS];
    int stream_count;
    program_block blocks[PROGRAM_BLOCKS];
    int block_count;
    program_step steps[PROGRAM_STEPS];
    int step_count;
    int event_count, point_count, gate_count, channel_count, capture_count;
    /* With `omit`: the step that is not ordered, or -1 if there was no place for one;
     * and whether nothing else at all can have ordered it. */
    int omitted;
    bool is_definite;
} program;

void program_make(program *self, uint64_t seed, const program_options *options);
void program_print(const program *self);

/* Runs it on "emulated:0" and claims that all went as it must: contents, addresses,
 * statistics, and at the end nothing left anywhere. Gives how many findings the ledger
 * made; claims that there were none unless the program was made with `omit`. */
size_t program_run(const program *self, weir_emulated_scheduler scheduler);

/* What all runs so far did: allocations that succeeded, requests that were refused,
 * contents that were checked, steps by kind. */
typedef struct program_sums {
    atomic_uint_least64_t steps, allocations, refusals, checks;
    atomic_uint_least64_t op_counts[PROGRAM_OP_COUNT];
} program_sums;
extern program_sums program_totals;

#endif
