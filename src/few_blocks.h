/* few_blocks.h - an adaptor's record of those of its blocks that are not like the rest.
 *
 * Records are in a table under a lock. In front of it stands an array of counters: an
 * address counts in one of its places while it has a record. Where that counter is
 * zero there is none, and so to ask about a block without a record costs one load of a
 * word that nobody else writes, as long as no more blocks have one than there are
 * places.
 *
 * Who asks about a block that is out has heard of it from whom it was handed out to,
 * and so sees it counted: the loads need no order of their own. Nobody else's record of
 * the same address can be met, if each is taken out before its block goes back to where
 * it came from. */
#ifndef WEIR_FEW_BLOCKS_H
#define WEIR_FEW_BLOCKS_H

#include <stdatomic.h>

#include "block_table.h"
#include "sync.h"

/* A test build has few, so that two addresses in one place are common there. */
#ifdef WEIR_TESTING
#define WEIR__FEW_PLACES 4
#else
#define WEIR__FEW_PLACES 1024
#endif

typedef struct weir__few_blocks {
    weir__mutex lock;        /* guards the table, and all that its records say */
    weir__block_table table;
    atomic_uint_least32_t counts[WEIR__FEW_PLACES]; /* written under the lock */
} weir__few_blocks;

/* OUT_OF_HOST_MEMORY: then there is nothing to finish. */
weir_status weir__few_blocks_init(weir__few_blocks *self);
/* Every record must have been taken. */
void weir__few_blocks_finish(weir__few_blocks *self);

/* Keeps `record`, which says what its block was asked for as. */
void weir__few_blocks_insert(weir__few_blocks *self, weir__block_record *record);
/* The same for one that was taken; asks for no host memory. */
void weir__few_blocks_reinsert(weir__few_blocks *self, weir__block_record *record);

/* Whether the block at `ptr` has a record; if so and *out is wanted, with what it was
 * asked for as. */
bool weir__few_blocks_find(weir__few_blocks *self, const void *ptr, weir_block *out);

/* Takes the record of the block at `ptr` out, for its deallocation with `bytes` and
 * `alignment`. Null: it has none, or *fault says what is wrong, and nothing was
 * changed. */
weir__block_record *weir__few_blocks_take(weir__few_blocks *self, const void *ptr,
                                          size_t bytes, size_t alignment,
                                          weir__block_fault *fault);

/* The block at `ptr`, which has a record, is `bytes` long from now on. */
void weir__few_blocks_resize(weir__few_blocks *self, const void *ptr, size_t bytes);

#endif
