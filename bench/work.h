/* work.h - what a benchmark does, written down before the clock starts.
 *
 * Two forms. A `turnover` has a fixed number of blocks live: each step frees one and
 * allocates another in its place. A `script` allocates and frees in any order.
 *
 * Streams are numbers: 0 is the device's default stream, 1 and up are made for the
 * run. Slots are places where a block is kept while it is live. */
#ifndef WEIR_BENCH_WORK_H
#define WEIR_BENCH_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

/* ---- turnover ---- */

typedef struct turnover_step {
    uint32_t slot;
    uint32_t bytes;       /* of the new block */
    uint8_t stream;       /* it is allocated on */
    uint8_t free_stream;  /* it will be freed on */
} turnover_step;

typedef struct turnover {
    turnover_step *first; /* one for each slot: fills it, in this order */
    turnover_step *steps; /* then these, over and over */
    size_t slot_count, step_count;
} turnover;

#define TURNOVER_STEPS ((size_t)1 << 18)

/* How to make one. */
typedef struct turnover_shape {
    size_t live;
    size_t bytes_min, bytes_max; /* log-uniform between them */
    bool in_turn;                /* frees the oldest; else a random one */
    unsigned stream_first;       /* blocks are allocated on stream_count streams from */
    unsigned stream_count;       /* this one, by turns or else at random; 0: on one */
    unsigned freed_on;           /* 0: on its own stream; else on this one */
    size_t step_count;           /* 0: TURNOVER_STEPS */
    uint64_t seed;
} turnover_shape;

/* False: no host memory, and *out holds nothing. */
bool turnover_make(const turnover_shape *shape, turnover *out);
void turnover_clear(turnover *self);

/* The most that is live at once, over a fill and one round of the steps, if each block
 * takes a multiple of `unit` bytes. 0: no host memory. */
size_t turnover_peak_bytes(const turnover *self, size_t unit);

/* ---- scripts ---- */

typedef struct script_event {
    uint64_t bytes;  /* of the block, whether allocated or freed */
    uint32_t slot;
    bool is_free;
} script_event;

typedef struct script {
    script_event *events;  /* a block that is live at the end is freed there */
    size_t event_count, allocation_count, slot_count;
    size_t peak_bytes, peak_blocks;
} script;

/* RMM's benchmark random_allocations, draw by draw: `count` allocations of up to
 * `bytes_max`, while less than 16 000 MiB are live. False: no host memory. */
bool script_make_random(size_t count, size_t bytes_max, script *out);

/* Reads lines "A ID BYTES" and "F ID" in which ids count up from 0, each freed at most
 * once. False: no host memory, or not such a file; `why` says which. */
bool script_read(const char *path, script *out, const char **why);

void script_clear(script *self);

#endif
