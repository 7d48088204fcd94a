/* cases.h - what the benchmark programs can measure. */
#ifndef WEIR_BENCH_CASES_H
#define WEIR_BENCH_CASES_H

#include <stdbool.h>
#include <stddef.h>

#include "work.h"

typedef struct bench_case bench_case;

/* A case that runs. */
typedef struct bench_run {
    const bench_case *what;
    unsigned threads;
    const char *path;     /* of the script to read; may be null */
    script script;        /* of cases that have one */
    size_t batch;         /* units between two looks at the clock */
} bench_run;

/* One way to use an allocator. */
typedef struct bench_kind {
    const char *unit;     /* of work: "pair" of an allocate and a deallocate, "event" */
    /* Makes what all threads share, and sets the batch. */
    bool (*prepare)(bench_run *self);
    /* What one thread needs; null: it has failed. Threads count from 0; thread i has
     * the streams from 1 + i * what->streams. */
    void *(*open)(bench_run *self, unsigned thread);
    /* Does self->batch units; false: it has failed. */
    bool (*run)(bench_run *self, void *opened);
    void (*close)(bench_run *self, void *opened);
} bench_kind;

struct bench_case {
    const char *name;
    const bench_kind *kind;
    unsigned streams;        /* of each thread, besides the default stream */
    unsigned crew;           /* threads that do a unit together; 0: each its own */
    size_t bytes, depth;     /* of lifo; and of other_thread, how many it keeps */
    turnover_shape shape;    /* of turnover and lookup; each thread has its own seed */
    size_t count, bytes_max; /* of a random script */
};

/* cases.c: for every allocator. */
extern const bench_case cases[];
extern const size_t case_count;

/* Only for this program's allocator. */
extern const bench_case own_cases[];
extern const size_t own_case_count;

/* cases_loops.c */
extern const bench_kind kind_lifo;     /* allocates `depth`, frees the last first */
extern const bench_kind kind_turnover;
extern const bench_kind kind_random;   /* RMM's random_allocations */
extern const bench_kind kind_script;   /* from a file, on one stream */
/* Reads a record of 16 bytes per step: each when the last has been seen; or ahead. */
extern const bench_kind kind_lookup, kind_lookup_table, kind_lookup_ahead;

/* cases_threads.c */
extern const bench_kind kind_shared_stream; /* lifo, all threads on one stream */
extern const bench_kind kind_other_thread;  /* thread 0 allocates, thread 1 frees what
                                               came `depth` before the last */

#endif
