/* heap.h - which bytes of which chunks are free, and behind what: best fit with
 * immediate coalescing. Pure records: no device, no locks, no stream order.
 *
 *     chunk   |  OUT  | FREE 5:9 | FREE 7:2 |  OUT  | FREE 5:11 | END
 *                      clock 5     clock 7
 *
 * A chunk is cut without gaps into blocks, each with a record out of band
 * (heap_records.h). Blocks are named by their record's id; 0 is none. What always holds
 * between two calls:
 *   - Every block begins at a multiple of 256, and so does what follows it.
 *   - Two free neighbours never have the same clock: they are merged at once, under the
 *     later mark. Neighbours of different clocks stay apart until a request takes both.
 *   - Every clock that free memory waits for has an owner, with counts and with bins of
 *     its own. Up to 512 KiB each size has a bin, above that sizes that are near each
 *     other share one. So the best fit of a clock is in the request's own bin, or in
 *     the next that has any (but see weir__heap_best).
 *   - What was handed out is in the map by address, but for what found no room there;
 *     what has never been, but as a chunk's first block, is not. A block's neighbours
 *     stand in its tie; behind the last of a chunk is the chunk's END.
 *
 * Giving back never needs memory: a merge only frees records, and for what merges with
 * nothing some are kept. Should these be used up the block is RETURNED: free, but not
 * to be found before somebody promises himself records (that takes a program
 * that frees a great many blocks in a row, no two of them neighbours). Whoever is about
 * to take promises itself records first (weir__heap_promise), and then cannot fail. */
#ifndef WEIR_HEAP_H
#define WEIR_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "heap_records.h"
#include "internal.h"
#include "stream_order.h"

/* The most records that one request uses. Blocks: a fresh chunk, its end, what is cut
 * off in front, and behind. Free records, and rows for them: for the last two, or three
 * if what is fresh is released as it is. */
#define WEIR__HEAP_PROMISE      4u
#define WEIR__HEAP_PROMISE_FREE 3u

/* Bins are in rows of 64. Blocks of up to 2^EXACT_BITS grains have one for each size;
 * each doubling from there on has one row. */
#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define WEIR__EXACT_BITS 7u
#else
#define WEIR__EXACT_BITS 11u
#endif
#define WEIR__EXACT_ROWS (1u << (WEIR__EXACT_BITS - 6))
#define WEIR__BIN_ROWS   (WEIR__EXACT_ROWS + 32u - WEIR__EXACT_BITS)
_Static_assert(WEIR__BIN_ROWS <= 64, "a word has a bit for each");

/* Lines of its own: the next row may be of another thread's stream. */
typedef struct weir__heap_row {
    uint64_t bits;        /* which of the bins have something */
    struct weir__heap_row *next_spare;
    uint32_t firsts[64];  /* of these: records */
    char apart[48];
} weir__heap_row;

/* Who free memory belongs to: a clock. Those of clock 0 and of WEIR__CLOCK_ASIDE are
 * always there; another goes when nothing names it any more. */
typedef struct weir__heap_owner {
    uint64_t clock;
    weir_stream stream;   /* as weir__heap_owner_get was told */
    uint64_t latest;      /* the latest number that was released under it */
    size_t free_blocks;   /* in the bins */
    size_t free_bytes;
    uint32_t slot;        /* names it */
    uint32_t pins;        /* the caller's: while this is not 0 it stays */
    uint32_t kind;        /* the caller's; 0 when it is made */
    uint32_t next_spare;
    uint64_t known;       /* the caller's, for weir__heap_known_place */
    bool is_reserved;     /* the caller's; false when it is made */
    bool is_spare;
    bool is_named;        /* for a sweep */
    uint64_t summary;     /* which of its rows have something */
    uint64_t has_rows;    /* which there are: those that had, too, until others may need
                             them, or it has nothing in any */
    weir__heap_row *rows[WEIR__BIN_ROWS];
} weir__heap_owner;

#define WEIR__OWNER_DONE  0u
#define WEIR__OWNER_ASIDE 1u

/* Memory from upstream. The record is the caller's, linked here while it is part of the
 * heap. */
typedef struct weir__chunk weir__chunk;
struct weir__chunk {
    uintptr_t base;                  /* what the heap uses: multiples of the grain */
    size_t bytes;
    uint32_t end;                    /* the record of its END */
    size_t segments;                 /* of the map, that it wants */
    weir__chunk *older, *newer;
    void *ptr;                       /* the caller's: as upstream gave it */
    size_t drawn_bytes;
    size_t drawn_alignment;
    bool skipped;                    /* the caller's, for a walk over all chunks */
    uintptr_t unseen_end;            /* likewise */
};

/* The second record of what is free or held. Its id stands in the block's `link`. It
 * has all that a search in a bin compares, so that each step looks at one line. */
typedef struct weir__heap_free {
    uint32_t beside[2];   /* FREE: records in the bin, before and after. LIMBO: blocks
                             in the list, likewise. Spare: the first is the next */
    uint64_t number;      /* with the owner's clock the mark */
    uint64_t key;         /* owner 24; FREE: and the base in grains 40 */
    uint32_t block;       /* FREE: whose it is; no other record names a FREE block */
    uint32_t more;        /* LIMBO, HELD: a further record, whose mark counts as well.
                             FREE: the block's grains */
} weir__heap_free;

/* The neighbours of a block, which nobody looks at without the lock: apart from its
 * record, so that whoever changes them does not touch the lines of who hits it. */
typedef struct weir__heap_tie {
    uint32_t before;         /* the one in front, in its chunk; 0: none */
    uint32_t after;          /* the one behind, or the chunk's END; of an END 0; and
                                whether the block is in the map */
} weir__heap_tie;

typedef struct weir__heap_segments weir__heap_segments;
/* The most entries of a segment are twice the blocks that may begin there. */
#define WEIR__SEGMENT_SIZES (WEIR__SEGMENT_BITS - WEIR__HEAP_GRAIN_BITS + 2)
typedef struct weir__heap_rows weir__heap_rows;

/* Records of a home that stand for nothing. A line of its own: who takes and gives back
 * at another home is another thread. */
typedef struct weir__heap_spares {
    uint32_t blocks, frees;          /* the first of each kind */
    bool is_used;                    /* some block records are at home there */
    char apart[55];
} weir__heap_spares;

/* What is written with every request stands together, at the end: where threads take
 * turns each line of it has to come from another processor. The view, which is read
 * without the lock, is far from that. Lines are kept where `spares` begins with one. */
typedef struct weir__heap {
    weir__heap_view view;

    /* By id, as the view's records: arrays that grow where they are. */
    weir__heap_tie *ties;
    weir__heap_free *frees;
    uint8_t *homes;                  /* by id >> WEIR__HOME_BITS */
    uint32_t room;                   /* there are addresses for so many of each */
    uint32_t made;                   /* block records, with their ties and homes */
    uint32_t fresh;                  /* from here on nothing has a home yet */
    uint32_t homes_used;             /* that some are at */
    uint32_t free_made;              /* the same of free records */
    uint32_t free_fresh;

    weir__heap_rows *rows;           /* all that were made */
    uint32_t row_count;
    weir__heap_row *row_spares;      /* the first of a list */
    uint32_t rows_look_at;           /* so many rows are worth a look for empty ones */

    weir__heap_owner **owners;       /* by slot */
    uint32_t owner_count, owner_room;
    uint32_t owner_spares, owner_spare_count;
    uint32_t sweep_at;               /* so many owners are worth a look at all blocks */
    uint32_t *by_clock;              /* slots, open addressing; 0: none */
    uint32_t by_clock_mask;
    uint64_t *owning;                /* a bit for each slot that has free blocks */
    size_t owning_count;

    weir__heap_segments *segments;   /* all that were made */
    weir__heap_segment *segment_spares[WEIR__SEGMENT_SIZES]; /* by log2 of entries */
    size_t segment_count, segment_spare_count;
    size_t segment_room;             /* how many of the smallest were made */
    size_t segments_wanted;          /* by the chunks */
    weir__heap_segment *segments_full; /* the first of a list: they want room */
    uint32_t missing;                /* blocks that found none */

    weir__chunk *oldest, *newest;
    uint32_t limbo;                  /* first of the list */
    uint32_t returned;               /* first of the list of RETURNED blocks */
    size_t bytes;                    /* of all chunks */
    size_t limbo_blocks;
    size_t returned_blocks;

    weir__heap_spares spares[WEIR__HEAP_HOMES];
    uint32_t spare_count;            /* with all that is fresh */
    uint32_t free_spare_count;       /* the same of free records */
    uint32_t promised;               /* requests under way */
    uint32_t row_spare_count;
    weir__heap_owner *recent;        /* of the owners, who was asked for last */
    size_t taken_bytes;              /* of all bytes, OUT or CACHED */
    uint32_t taken_blocks;
    uint32_t free_blocks;            /* FREE, in the bins */
} weir__heap;

/* False: no host memory, and there is nothing to close. */
bool weir__heap_init(weir__heap *heap);
/* Frees all records. The chunks' are the caller's. */
void weir__heap_close(weir__heap *heap);

/* Makes sure that one request will find its records, until weir__heap_forget_promise,
 * and that there are some for what is released; what is RETURNED becomes FREE. False:
 * no host memory, or there are as many blocks as there can be; and nothing has changed
 * but for what is RETURNED. */
bool weir__heap_promise(weir__heap *heap);
/* What is RETURNED becomes FREE. False: no host memory for some of it. */
bool weir__heap_settle(weir__heap *heap);
static inline void weir__heap_forget_promise(weir__heap *heap)
{
    WEIR_CHECK(heap->promised > 0, "what was promised is forgotten");
    heap->promised--;
}

static inline weir__heap_block *weir__heap_block_of(const weir__heap *heap, uint32_t id)
{
    return weir__heap_at(&heap->view, id);
}

static inline weir__heap_state weir__heap_state_at(const weir__heap *heap, uint32_t id)
{
    return weir__heap_state_of(weir__heap_block_of(heap, id));
}

/* Whether a block may be part of a run. */
static inline bool weir__heap_is_idle(const weir__heap_block *block)
{
    weir__heap_state state = weir__heap_state_of(block);
    return state == WEIR__HEAP_FREE || state == WEIR__HEAP_LIMBO;
}

/* ---- owners ---- */

/* The owner of a clock; one is made where there is none. Null: no host memory, and
 * nothing has changed. It may go when it has no free memory, no pins, and no block that
 * is OUT names it. */
weir__heap_owner *weir__heap_owner_get(weir__heap *heap, uint64_t clock,
                                       weir_stream stream);
/* The owner that weir__heap_release would use; weir__heap_can_release has said that it
 * can be. */
weir__heap_owner *weir__heap_owner_meet(weir__heap *heap, uint64_t clock);
/* The owner of a clock, or null. */
weir__heap_owner *weir__heap_owner_find(const weir__heap *heap, uint64_t clock);
static inline weir__heap_owner *weir__heap_owner_at(const weir__heap *heap,
                                                    uint32_t slot)
{
    return heap->owners[slot];
}
/* The first owner, from *slot on, that has a free block; null: there is none. *slot is
 * that owner's. */
weir__heap_owner *weir__heap_next_owner(const weir__heap *heap, uint32_t *slot);
/* Sees to it that owners are to be had for clocks that have none yet, as a promise
 * does. False: no host memory. */
bool weir__heap_owners_stock(weir__heap *heap);
/* Whether weir__heap_release would take a mark of `clock` now. */
bool weir__heap_can_release(const weir__heap *heap, uint64_t clock);
/* All that is FREE under `from` is FREE behind `mark` now. */
void weir__heap_owner_move_all(weir__heap *heap, weir__heap_owner *from,
                               weir__mark mark);

/* ---- chunks ---- */

/* Makes sure that weir__heap_add_chunk or weir__heap_extend_chunk finds what it needs
 * for `bytes` bytes at `base`, until the next of these. OUT_OF_HOST_MEMORY,
 * NOT_SUPPORTED (addresses of 2^48 or above): nothing has changed. */
weir_status weir__heap_reserve(weir__heap *heap, uintptr_t base, size_t bytes);
/* The most bytes that a chunk can have. */
#define WEIR__CHUNK_MOST ((size_t)UINT32_MAX << WEIR__HEAP_GRAIN_BITS)

/* Links `chunk`, of `bytes` bytes at `base`; returns the one block, HELD and without a
 * mark, that it is. Needs the promise, and that the room is reserved. */
uint32_t weir__heap_add_chunk(weir__heap *heap, weir__chunk *chunk, uintptr_t base,
                              size_t bytes);
/* Makes `chunk` longer by `bytes`; returns the new block, HELD, at its end. Needs the
 * same. */
uint32_t weir__heap_extend_chunk(weir__heap *heap, weir__chunk *chunk, size_t bytes);
/* Makes two chunks of one: `rest`, a new record, begins with `block`, which is not the
 * first. Needs a record that was promised, and what weir__heap_reserve reserves for
 * nothing. */
void weir__heap_split_chunk(weir__heap *heap, weir__chunk *chunk, weir__chunk *rest,
                            uint32_t block);
/* Unlinks `chunk`, all of whose blocks are HELD. */
void weir__heap_remove_chunk(weir__heap *heap, weir__chunk *chunk);
/* Whether all blocks of `chunk` are FREE or LIMBO. Stops at the first that is not. */
bool weir__heap_chunk_is_idle(const weir__heap *heap, const weir__chunk *chunk);

/* The first and the last block of a chunk, and the neighbours of a block in its chunk;
 * 0: none. */
uint32_t weir__heap_first(const weir__heap *heap, const weir__chunk *chunk);
uint32_t weir__heap_last(const weir__heap *heap, const weir__chunk *chunk);
uint32_t weir__heap_before(const weir__heap *heap, uint32_t block);
uint32_t weir__heap_after(const weir__heap *heap, uint32_t block);

/* ---- looking: nothing changes ---- */

/* The best fit among the free blocks of an owner: the smallest with room for `bytes`
 * (a multiple of the grain) at a multiple of `alignment`; of equal ones the lowest. But
 * of each bin only the few count that became free last, as long as one of these has
 * room; where none has in any bin, all are gone through. 0: there is none. */
uint32_t weir__heap_best(const weir__heap *heap, const weir__heap_owner *owner,
                         size_t bytes, size_t alignment);

/* Whether there is room for `bytes` at a multiple of `alignment` from where `first`
 * begins to where its neighbour `last` ends. */
bool weir__heap_fits(const weir__heap *heap, uint32_t first, uint32_t last,
                     size_t bytes, size_t alignment);

/* How many bytes lie between where `block` begins and the next multiple of
 * `alignment`. */
static inline size_t weir__heap_gap(const weir__heap_block *block, size_t alignment)
{
    return (size_t)(0 - weir__heap_base(block)) & (alignment - 1);
}

/* Goes through the marks of a block that is not taken: *cursor is 0 to begin with.
 * False: there are no more. Of what is RETURNED only a later one is known. */
bool weir__heap_next_mark(const weir__heap *heap, uint32_t block, uint32_t *cursor,
                          weir__mark *out);
/* The first of these; what is fresh has none: done. */
weir__mark weir__heap_mark(const weir__heap *heap, uint32_t block);
/* Whether there are several. */
bool weir__heap_has_more(const weir__heap *heap, uint32_t block);
/* Goes through the LIMBO blocks: the one after `block`, or the first with 0. */
uint32_t weir__heap_next_limbo(const weir__heap *heap, uint32_t block);

/* Says whether a FREE or LIMBO block may be part of a run. */
typedef bool (*weir__heap_usable)(void *context, uint32_t block);

/* Neighbours in one chunk. */
typedef struct weir__heap_run {
    uint32_t first, last;
} weir__heap_run;

/* The smallest run of usable FREE and LIMBO blocks that has room; of equal ones the one
 * in the oldest chunk, there the lowest. first is 0 if there is none. Walks all
 * blocks. */
weir__heap_run weir__heap_find_run(const weir__heap *heap, size_t bytes,
                                   size_t alignment, weir__heap_usable usable,
                                   void *context);

/* All that is FREE from one taken block to the next, whose clocks it may be of: visits
 * each such run of at least `bytes` bytes that has a block of at least `part`, in no
 * order, but for those at least as large as a visit has answered: they may be left out.
 * Looks at no smaller blocks, and does not go through all. */
typedef size_t (*weir__heap_run_visitor)(void *context, weir__heap_run run,
                                         size_t bytes);
void weir__heap_each_run(const weir__heap *heap, size_t bytes, size_t part,
                         weir__heap_run_visitor visit, void *context);
/* How many bytes of such a run are around a FREE block; stops counting above `most`. */
size_t weir__heap_free_around(const weir__heap *heap, uint32_t block, size_t most);

/* A part of the smallest such run that has one: neighbours that are known and have room
 * together, no more than it takes; first is 0 if there is none. Known is what is marked
 * with at most the number `known` of its owner. One of all that is known there, side by
 * side, has room for so many bytes and is `owner`'s, or has at least `part` bytes and
 * is another's: nobody looks at smaller ones. */
typedef struct weir__heap_places {
    size_t part;
    size_t most;     /* bytes of a run that is of interest */
    size_t enough;   /* others are not sought where one of the owner's has no more */
} weir__heap_places;
weir__heap_run weir__heap_known_place(const weir__heap *heap,
                                      const weir__heap_owner *owner, size_t bytes,
                                      size_t alignment, weir__heap_places where);

/* The block that begins at `ptr` if it is OUT or CACHED; else 0, or a block in another
 * state that begins there. */
uint32_t weir__heap_find(const weir__heap *heap, const void *ptr);
/* The block, whatever its state, that `ptr` lies in, or 0. Walks all blocks. */
uint32_t weir__heap_around(const weir__heap *heap, const void *ptr);

/* The largest run of FREE and LIMBO bytes, of whatever clocks. Walks all blocks. */
size_t weir__heap_largest_free(const weir__heap *heap);

/* ---- changing ---- */

/* FREE or LIMBO becomes HELD; it keeps its marks. */
void weir__heap_hold(weir__heap *heap, uint32_t block);
/* HELD or CACHED becomes FREE behind `mark`, and merges with its neighbours of that
 * clock; or LIMBO, if it has more marks. Without a record for it: RETURNED. Returns
 * what it is part of now. weir__heap_can_release has said that it can be. */
uint32_t weir__heap_release(weir__heap *heap, uint32_t block, weir__mark mark);
/* The same of a CACHED block, behind mark `number` of an owner's clock; `record` is the
 * block's. */
uint32_t weir__heap_release_to(weir__heap *heap, uint32_t block,
                               weir__heap_block *record, weir__heap_owner *owner,
                               uint64_t number);

/* Hands out the best fit of an owner for `bytes` bytes (a multiple of the grain), as
 * weir__heap_best, weir__heap_hold and weir__heap_hand_out would; what is left keeps
 * its mark. Its record is moved to `home`, as by weir__heap_move_to, or with
 * WEIR__HEAP_HOMES stays where it is; and has the tag and the link. Needs the promise.
 * Null: there is none. */
weir__heap_taken weir__heap_take_best(weir__heap *heap, weir__heap_owner *owner,
                                      size_t bytes, uint32_t home, uint32_t tag,
                                      uint32_t link);

/* Cuts `bytes` bytes at a multiple of `alignment` out of a run of HELD blocks, as
 * low as they fit. What is left in front and behind becomes FREE behind its mark, whose
 * clock has an owner. Needs the promise. Returns the block, OUT, whose tag and link the
 * caller sets. */
uint32_t weir__heap_hand_out(weir__heap *heap, weir__heap_run run, size_t bytes,
                             size_t alignment, weir__mark front, weir__mark rest);

/* Where the record of a block is, and where those of an owner's blocks should be: a
 * byte for each group of records says so. */
static inline uint32_t weir__heap_home_of(const weir__heap *heap, uint32_t id)
{
    return heap->homes[id >> WEIR__HOME_BITS];
}

static inline uint32_t weir__heap_home_for(const weir__heap_owner *owner)
{
    return owner->slot % WEIR__HEAP_HOMES;
}

/* For weir__heap_move_to. */
uint32_t weir__heap_move_far(weir__heap *heap, uint32_t block, uint32_t home);

/* Moves the record of a block that is OUT to lines of a home, where there is one that
 * nobody is promised: so that who writes to it, and who writes to another home's, are
 * not in each other's way. Returns the block, whose id may be another now, and whose
 * tag and link are the caller's to set again. */
static inline uint32_t weir__heap_move_to(weir__heap *heap, uint32_t block,
                                          uint32_t home)
{
    return WEIR_LIKELY(weir__heap_home_of(heap, block) == home)
               ? block
               : weir__heap_move_far(heap, block, home);
}

/* The same to its owner's. */
static inline uint32_t weir__heap_move_home(weir__heap *heap, uint32_t block,
                                            const weir__heap_owner *owner)
{
    return weir__heap_move_to(heap, block, weir__heap_home_for(owner));
}

/* Gives a HELD or CACHED block, which is HELD then, one more mark to wait for; of each
 * clock the later counts. False: there is no record that is not promised, or no owner;
 * no mark has changed. */
bool weir__heap_add_mark(weir__heap *heap, uint32_t block, weir__mark mark);
/* Leaves a HELD block its first `bytes` bytes; returns another one with the rest,
 * behind the same marks. Needs a record that was promised, and for each mark a free
 * one. */
uint32_t weir__heap_cut(weir__heap *heap, uint32_t block, size_t bytes);
/* Takes them all away from a HELD block. */
void weir__heap_drop_marks(weir__heap *heap, uint32_t block);

/* Makes one of each FREE block and the one behind it, of another clock, where both are
 * usable: it is FREE behind a mark that is asked for after that, of a clock that has an
 * owner. Returns how often. Walks all blocks. */
typedef struct weir__heap_merger {
    weir__heap_usable usable;
    weir__mark (*mark)(void *context);
    void *context;
} weir__heap_merger;
uint32_t weir__heap_merge(weir__heap *heap, const weir__heap_merger *merger);

/* Takes away those of a HELD block's marks that `is_done` says are done, but for one if
 * all are. */
typedef bool (*weir__heap_is_done)(void *context, weir__mark mark);
void weir__heap_drop_done(weir__heap *heap, uint32_t block, weir__heap_is_done is_done,
                          void *context);

/* ---- for tests ---- */

/* Stops if a record contradicts another. Walks everything. */
void weir__heap_verify(const weir__heap *heap);
/* The host memory that it has now. */
size_t weir__heap_host_bytes(const weir__heap *heap);

#endif
