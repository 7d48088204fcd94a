/* heap.h - which bytes of which chunks are free, and behind what: best fit with
 * immediate coalescing. Pure records: no device, no locks, no stream order.
 *
 *     chunk   |  OUT  | FREE 5:9 | FREE 7:2 |  OUT  | FREE 5:11 |
 *                      clock 5     clock 7
 *
 * A chunk is cut without gaps into blocks, each with a record out of band, in a list
 * by address. What always holds between two calls:
 *   - Every block begins at a multiple of 256, and so does what follows it.
 *   - Two free neighbours never have the same clock: they are merged at once, under the
 *     later mark. Neighbours of different clocks stay apart until a request takes both.
 *   - Free blocks are in one search tree, sorted by (clock, bytes, address). So the
 *     best fit of a clock is a lower bound in it, and so is the next clock that has
 *     anything free. A clock has no record of its own here: one that was never seen
 *     costs nothing, and one that is gone leaves nothing.
 *   - Blocks that are out are in a hash table by address.
 *
 * Giving back never needs memory: a merge only frees records. Whoever is about to
 * take promises itself records first (weir__heap_promise), and then cannot fail.
 */
#ifndef WEIR_HEAP_H
#define WEIR_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stream_order.h"

#define WEIR__HEAP_GRAIN ((size_t)256)

/* The most records that one request uses: a fresh chunk, what is cut off in front, and
 * what is cut off behind. */
#define WEIR__HEAP_PROMISE 3u

typedef enum weir__heap_state {
    WEIR__HEAP_SPARE,     /* a record that stands for nothing */
    WEIR__HEAP_FREE,      /* in the tree, behind `mark` */
    WEIR__HEAP_LIMBO,     /* free, behind `mark` and all of `more`: not in the tree */
    WEIR__HEAP_HELD,      /* somebody is at work on it: neither free nor out */
    WEIR__HEAP_OUT,       /* handed out */
    WEIR__HEAP_RETURNING  /* was out, and is about to be free */
} weir__heap_state;

typedef struct weir__heap_block weir__heap_block;
typedef struct weir__chunk weir__chunk;

struct weir__heap_block {
    uintptr_t base;
    size_t bytes;
    weir__mark mark;                /* FREE, LIMBO; HELD: as it was while free */
    weir__heap_block *left, *right; /* FREE: in the tree. LIMBO: in the list, before and
                                       after */
    uint32_t priority;              /* FREE: above those of its children */
    weir__heap_state state;

    weir__heap_block *before, *after; /* neighbours by address */
    weir__chunk *chunk;
    weir__heap_block *next;  /* SPARE: the next spare; OUT, RETURNING: in the bucket */
    weir__heap_block *more;  /* further records, whose marks count as well */

    /* OUT, RETURNING: what the caller asked for. */
    size_t asked_bytes;
    size_t asked_alignment;
    weir_stream stream;
    uint64_t birth;          /* the clock it was allocated under */
};

static inline bool weir__heap_is_idle(const weir__heap_block *block)
{
    return block->state == WEIR__HEAP_FREE || block->state == WEIR__HEAP_LIMBO;
}

/* Memory from upstream. The record is the caller's, linked here while it is part of the
 * heap. */
struct weir__chunk {
    uintptr_t base;                  /* what the heap uses: multiples of the grain */
    size_t bytes;
    weir__heap_block *first, *last;
    size_t busy;                     /* blocks that are neither FREE nor LIMBO */
    weir__chunk *older, *newer;
    void *ptr;                       /* the caller's: as upstream gave it */
    size_t drawn_bytes;
    size_t drawn_alignment;
    bool skipped;                    /* the caller's, for a walk over all chunks */
};

typedef struct weir__heap_slab weir__heap_slab;

typedef struct weir__heap {
    weir__heap_block *root;          /* of the tree */
    weir__heap_block *limbo;         /* first of the list */
    weir__chunk *oldest, *newest;
    weir__heap_block **buckets;
    size_t bucket_count;             /* a power of two, or 0 */
    weir__heap_block *spares;
    size_t spare_count;
    size_t promised;                 /* of these, to requests under way */
    weir__heap_slab *slabs;
    size_t bytes;                    /* of all chunks */
    size_t out_bytes;                /* of these, OUT or RETURNING */
    size_t out_blocks;
    size_t free_blocks;              /* FREE */
    size_t limbo_blocks;
} weir__heap;

void weir__heap_init(weir__heap *heap);
/* Frees all records. The chunks' are the caller's. */
void weir__heap_close(weir__heap *heap);

/* Makes sure that one request will find its records, until weir__heap_forget_promise.
 * False: no host memory, and nothing has changed. */
bool weir__heap_promise(weir__heap *heap);
void weir__heap_forget_promise(weir__heap *heap);

/* ---- chunks ---- */

/* Links `chunk`, of `bytes` bytes at `base`; returns the one block, HELD, that it
 * is. */
weir__heap_block *weir__heap_add_chunk(weir__heap *heap, weir__chunk *chunk,
                                       uintptr_t base, size_t bytes);
/* Makes `chunk` longer by `bytes`; returns the new block, HELD, at its end. */
weir__heap_block *weir__heap_extend_chunk(weir__heap *heap, weir__chunk *chunk,
                                          size_t bytes);
/* Unlinks `chunk`, all of whose blocks are HELD. */
void weir__heap_remove_chunk(weir__heap *heap, weir__chunk *chunk);

/* ---- looking: nothing changes ---- */

/* The best fit among the free blocks of `clock`: the smallest that has room for `bytes`
 * (a multiple of the grain) at a multiple of `alignment`, of equal ones the lowest.
 * Null: there is none. */
weir__heap_block *weir__heap_best(const weir__heap *heap, uint64_t clock, size_t bytes,
                                  size_t alignment);
/* The first clock, from *clock on, that has a free block; false: there is none. */
bool weir__heap_next_clock(const weir__heap *heap, uint64_t *clock);
/* The block after `block`, or the first with null, in the order of the tree; null:
 * none. */
weir__heap_block *weir__heap_next_free(const weir__heap *heap,
                                       const weir__heap_block *block);

/* Whether there is room for `bytes` at a multiple of `alignment` from where `first`
 * begins to where its neighbour `last` ends. */
bool weir__heap_fits(const weir__heap_block *first, const weir__heap_block *last,
                     size_t bytes, size_t alignment);

/* How many bytes lie between where `block` begins and the next multiple of
 * `alignment`. */
static inline size_t weir__heap_gap(const weir__heap_block *block, size_t alignment)
{
    return (size_t)(0 - block->base) & (alignment - 1);
}

/* Says whether a FREE or LIMBO block may be part of a run. */
typedef bool (*weir__heap_usable)(void *context, const weir__heap_block *block);

/* Neighbours in one chunk. */
typedef struct weir__heap_run {
    weir__heap_block *first, *last;
} weir__heap_run;

/* The smallest run of usable FREE and LIMBO blocks that has room; of equal ones the one
 * in the oldest chunk, there the lowest. first is null if there is none. Walks all
 * blocks. */
weir__heap_run weir__heap_find_run(const weir__heap *heap, size_t bytes,
                                   size_t alignment, weir__heap_usable usable,
                                   void *context);

/* The block that was handed out at `ptr`, OUT or RETURNING, or null. */
weir__heap_block *weir__heap_find(const weir__heap *heap, const void *ptr);
/* The block, whatever its state, that `ptr` lies in, or null. Walks all blocks. */
weir__heap_block *weir__heap_around(const weir__heap *heap, const void *ptr);

/* The largest run of FREE and LIMBO bytes, of whatever clocks. Walks all blocks. */
size_t weir__heap_largest_free(const weir__heap *heap);

/* The bytes that are FREE under `clock`. */
size_t weir__heap_bytes_of(const weir__heap *heap, uint64_t clock);

/* ---- changing ---- */

/* FREE or LIMBO becomes HELD; it keeps its marks. */
void weir__heap_hold(weir__heap *heap, weir__heap_block *block);
/* HELD or RETURNING becomes FREE behind `mark`, and merges with its neighbours of that
 * clock; or LIMBO, if it has more marks. Returns what it is part of now. */
weir__heap_block *weir__heap_release(weir__heap *heap, weir__heap_block *block,
                                     weir__mark mark);

/* Cuts `bytes` bytes at a multiple of `alignment` out of a run of HELD blocks, as
 * low as they fit. What is left in front and behind becomes FREE behind its mark.
 * Needs the promise. Returns the block, OUT, whose asked_ members, stream and birth
 * the caller sets. */
weir__heap_block *weir__heap_hand_out(weir__heap *heap, weir__heap_run run,
                                      size_t bytes, size_t alignment, weir__mark front,
                                      weir__mark rest);
/* OUT becomes RETURNING: it is still found, as one that was given back already. */
void weir__heap_begin_return(weir__heap *heap, weir__heap_block *block);
/* RETURNING becomes OUT again. */
void weir__heap_cancel_return(weir__heap *heap, weir__heap_block *block);

/* Gives a HELD or RETURNING block one more mark to wait for. False: there is no record
 * that is not promised; nothing has changed. */
bool weir__heap_add_mark(weir__heap *heap, weir__heap_block *block, weir__mark mark);
/* Takes them all away. */
void weir__heap_drop_marks(weir__heap *heap, weir__heap_block *block);

/* Takes away those of a HELD block's marks that `is_done` says are done, but for one if
 * all are. */
typedef bool (*weir__heap_is_done)(void *context, weir__mark mark);
void weir__heap_drop_done(weir__heap *heap, weir__heap_block *block,
                          weir__heap_is_done is_done, void *context);

/* Stops if a record contradicts another. Walks everything. */
void weir__heap_verify(const weir__heap *heap);

#endif
