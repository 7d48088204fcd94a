/* support_program_parts.h - what the two files that run programs share:
 * support_program_run.c does the steps, support_program_scene.c what is around them. */
#ifndef WEIR_TESTS_SUPPORT_PROGRAM_PARTS_H
#define WEIR_TESTS_SUPPORT_PROGRAM_PARTS_H

#include <pthread.h>

#include "support_program.h"

/* What a block holds: nothing known, the pattern of a key, or one value. */
typedef struct content {
    enum { CONTENT_UNKNOWN, CONTENT_PATTERN, CONTENT_VALUE } kind;
    uint64_t key;
    size_t bytes;
} content;

typedef struct run run;

/* What a kernel is to do: expect a content in its first range, write one to its
 * last. */
typedef struct work {
    run *in;
    int step;
    content expected;
    content written;
    size_t last;
} work;

typedef struct counts {
    atomic_uint_least64_t out_bytes, out_blocks, allocations, deallocations, failures;
} counts;

/* Addresses that are out, or a capture's own. */
typedef struct lease {
    uintptr_t begin, end;
    int capture;         /* -1 while the block is out */
    int block;
} lease;

struct run {
    const program *program;
    weir_device *device;
    weir_resource *resources[PROGRAM_RESOURCES];
    counts counts[PROGRAM_RESOURCES];
    weir_stream streams[PROGRAM_STREAMS];
    weir_event events[PROGRAM_SLOTS];
    weir_point points[PROGRAM_SLOTS];
    uint64_t gates[PROGRAM_SLOTS];
    weir_capture *captures[PROGRAM_CAPTURES];
    void *blocks[PROGRAM_BLOCKS];
    content contents[PROGRAM_BLOCKS];
    work works[PROGRAM_STEPS];
    pthread_mutex_t lock;
    lease leases[PROGRAM_BLOCKS]; /* guarded by the lock */
    size_t lease_count;           /* likewise */
    atomic_int current;           /* the step that began last */
    bool may_set_aside;           /* a free may lack a record that it needs */
};

/* Claims that name the step. */
void program_step_failed(const run *self, int number, const char *words, int line);

#define claim(condition)                                                         \
    ((condition) ? (void)0                                                       \
                 : program_step_failed(self, number, #condition, __LINE__))
#define claim_ok(call) claim((call) == WEIR_OK)

/* Runs step `number`. */
void program_do_step(run *self, int number);
/* Makes stream `stream`, which Weir or somebody else makes. */
void program_begin_stream(run *self, int stream);
/* Every count that a resource gives, against what the program has seen. */
void program_check_counts(run *self, int number);

#endif
