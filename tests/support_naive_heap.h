/* support_naive_heap.h - a heap as simple as can be, for tests to compare with: an
 * array of blocks for each chunk, searched from end to end. */
#ifndef WEIR_SUPPORT_NAIVE_HEAP_H
#define WEIR_SUPPORT_NAIVE_HEAP_H

#include "heap.h"

#define GRAIN         WEIR__HEAP_GRAIN
#define CHUNKS_MAX    6u
#define CHUNK_GRAINS  64u
#define BLOCKS_MAX    256u

typedef struct model_block {
    uintptr_t base;
    size_t bytes;
    weir__heap_state state; /* FREE, LIMBO, OUT or RETURNED */
    weir__mark mark;
} model_block;

typedef struct model_chunk {
    weir__chunk record;
    uintptr_t slot;
    size_t count;
    model_block blocks[BLOCKS_MAX];
} model_chunk;

typedef struct model {
    weir__heap heap;
    model_chunk *chunks[CHUNKS_MAX]; /* oldest first */
    size_t chunk_count;
    uint64_t state;                  /* of the random numbers */
    uint64_t clocks;                 /* how many there are, from 0 */
    uint64_t last_number;
    uint64_t usable;                 /* the clocks that a run may have, a bit each */
    uint64_t returned;               /* how often a free block had no record */
} model;

typedef struct model_run {
    model_chunk *chunk;
    size_t first, last, bytes;
} model_run;

/* A random number below `n`. */
uint64_t model_below(model *m, uint64_t n);

/* FREE or LIMBO. */
bool model_is_idle(const model_block *block);
/* Puts a block into a chunk, as its `at`-th. */
void model_insert(model_chunk *chunk, size_t at, model_block block);
/* Merges what is free side by side. */
void model_merge(model_chunk *chunk);
/* The best fit of a clock, or null. */
model_block *model_best(model *m, uint64_t clock, size_t bytes, size_t alignment);
/* Whether the heap may take a block for that: what is better lies in bins with more
 * blocks than it looks at. */
bool model_is_good(const model *m, const model_block *got, uint64_t clock, size_t bytes,
                   size_t alignment);
/* The smallest run of what may be used; chunk is null if there is none. */
model_run model_find_run(model *m, size_t bytes, size_t alignment);
/* Cuts a block out of a run, and returns its address. */
uintptr_t model_hand_out(model_run run, size_t bytes, size_t alignment,
                         weir__mark front, weir__mark rest);
size_t model_largest(const model *m);
/* A random block in the given state, or null. */
model_block *model_pick(model *m, weir__heap_state state, model_chunk **in);
/* The block that begins at `base`. */
model_block *model_at(model *m, uintptr_t base);

#endif
