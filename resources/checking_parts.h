/* checking_parts.h - what the files of the resource `checking` share.
 *
 *     below                      ptr                          ptr + bytes
 *     |<- rest ->|<-- guard -->|<--------- bytes --------->|<-- guard -->|
 *                 0              guard_bytes       the region's own offsets
 *
 * The region of a block is what is looked at: its two guards and its bytes. `rest`
 * keeps the address aligned.
 *
 * A block's record is in the table, by address, while it is out and while it is held
 * back; each look under way holds it besides. Who takes the last hold away frees it. */
#ifndef WEIR_CHECKING_PARTS_H
#define WEIR_CHECKING_PARTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "block_table.h"
#include "device/device.h"
#include "stream_order.h"
#include "sync.h"
#include "weir/checking.h"

/* Looks that can be under way at once. A test build shrinks it. */
#ifdef WEIR_TESTING
#define WEIR__LOOKS_MOST 6
#else
#define WEIR__LOOKS_MOST 64
#endif
/* How often a request asks upstream that others are quicker than each time. */
#define WEIR__DRAWS_MOST    1000
/* It waits for what others are just giving, each time so often, and so long. */
#define WEIR__LANDING_WAITS 10
#define WEIR__LANDING_MS    10
#define WEIR__LOOK_PARTS    2
#define WEIR__CHECKED_MARKS 4

#define WEIR__GUARD_BYTE ((uint8_t)0xe5)
#define WEIR__FREED_BYTE ((uint8_t)0xdb)

typedef struct weir__checked {
    weir__block_record record;        /* as asked for, and as handed out */
    struct weir__checked *older, *newer; /* among those out, held back, or leaving */
    void *below;                      /* as upstream gave it, with this alignment: */
    size_t below_bytes;
    uint64_t number;                  /* by age, from 1 */
    uint64_t held_number;             /* likewise, of those held back */
    uint32_t holds;                   /* of the table, and of looks */
    uint32_t pins;                    /* looks of weir_checking_check_sync at it */
    uint64_t taker;                   /* the thread that gives it upstream: leaving */
    bool is_moving;                   /* its end: it is being extended */
    bool is_guarded;                  /* the guards were filled */
    bool is_poisoned;                 /* its bytes were, when it came back */
    bool is_freed;                    /* on freed_on, by the second site */
    bool zone_told[3];                /* by weir__zone */
    weir_stream freed_on;             /* WEIR__NO_STREAM: behind points */
    weir__mark birth;                 /* strict only: where it was allocated */
    weir__mark looked;                /* behind the last look that was waited for */
    weir_point behind[WEIR__CHECKED_MARKS]; /* held back: it leaves behind these */
    size_t behind_count;
    void *frames[];                   /* who allocated it, then who gave it back */
} weir__checked;

/* A list of blocks by age; all zero is empty. */
typedef struct weir__checked_list {
    weir__checked *oldest, *newest;
} weir__checked_list;

typedef enum weir__zone {
    WEIR__ZONE_FRONT,
    WEIR__ZONE_BYTES,
    WEIR__ZONE_BACK
} weir__zone;

typedef enum weir__look_state {
    WEIR__LOOK_FREE,
    WEIR__LOOK_TAKEN,     /* one thread's */
    WEIR__LOOK_UNDER_WAY  /* to be judged once `mark` is done */
} weir__look_state;

/* Some bytes of a region. */
typedef struct weir__look_part {
    size_t at, bytes;
} weir__look_part;

typedef struct weir__look {
    weir__look_state state;
    weir__mark mark;       /* behind its last copies */
    weir__checked *block;  /* held; null: nothing to judge */
    weir__look_part parts[WEIR__LOOK_PARTS]; /* one after the other in its slot */
    size_t part_count;
    size_t block_bytes;    /* when it was copied: it may be extended since */
    unsigned char *slot;   /* pinned, options.look_bytes; written once */
} weir__look;

typedef struct weir__checking {
    weir_resource *upstream; /* counted by the resource */
    weir_device *device;
    weir_checking_options options;
    unsigned char *staging;  /* pinned: the slots of all looks */
    weir_stream watcher;     /* its own, for looks at what has come back */
    atomic_uint_least64_t overruns, uses_after_free, wrong_frees, wrong_streams;
    atomic_uint_least64_t looked, not_checked;

    weir__mutex lock;        /* guards all below, and the records */
    weir__cond unpinned;     /* a block is, or moves no more */
    weir__cond landed;       /* one that was held back has gone upstream */
    weir__block_table table;
    weir__checked_list out, held;
    weir__checked_list leaving; /* held back until now, and not upstream yet */
    uint64_t landings;       /* of these so far */
    uint64_t numbers, held_numbers; /* given to blocks so far */
    size_t held_blocks, held_bytes; /* of the quarantine, guards and all */
    size_t next_look;        /* to ask about */
    size_t under_way;
    weir__look looks[WEIR__LOOKS_MOST];
    weir_resource_statistics counts;
} weir__checking;

static inline unsigned char *weir__checked_region(const weir__checking *self,
                                                  const weir__checked *block)
{
    return (unsigned char *)block->record.ptr - self->options.guard_bytes;
}

static inline size_t weir__checked_region_bytes(const weir__checking *self,
                                                const weir__checked *block)
{
    return 2 * self->options.guard_bytes + block->record.bytes;
}

static inline void weir__checking_leave_out(weir__checking *self)
{
    atomic_fetch_add(&self->not_checked, 1);
}

/* ---- records ---- */

void weir__checked_link(weir__checked_list *list, weir__checked *block);
void weir__checked_unlink(weir__checked_list *list, weir__checked *block);
/* Frees it with its last hold. Without the lock. */
void weir__checked_let_go(weir__checking *self, weir__checked *block);

/* ---- checking_looks.c: what is put on streams, and what becomes of it ---- */

/* Fills `bytes` bytes at `ptr`; false: the device refused. */
bool weir__checking_fill(weir__checking *self, weir_stream stream, void *ptr,
                         uint8_t value, size_t bytes);

/* A free look, taken; or null. */
weir__look *weir__look_take(weir__checking *self);
/* Copies `count` parts of the block's region into a look that is taken, on `stream`.
 * False: the device refused; weir__look_end is due all the same. */
bool weir__look_copy(weir__checking *self, weir__look *look, weir_stream stream,
                     weir__checked *block, const weir__look_part *parts, size_t count);
/* `mark` is behind the copies: the look is under way, and holds the block if it is
 * `good`. */
void weir__look_end(weir__checking *self, weir__look *look, weir__checked *block,
                    bool good, weir__mark mark);

/* Judges a few looks that are done, and tells what they found; all that are done; or
 * all, waiting on the host for them (false: some cannot be waited for). To be called
 * without locks. */
void weir__looks_judge_some(weir__checking *self);
void weir__looks_judge_done(weir__checking *self);
bool weir__looks_judge_all_sync(weir__checking *self);

/* A mark on the watcher's stream, behind all that it has been given. */
weir__mark weir__checking_watched(weir__checking *self);

/* Looks at `bytes` bytes of the region from `at` on, with the watcher, piece by piece,
 * and waits; the last mark is the block's `looked`. Everything in front of that is
 * known to be done. */
void weir__checking_look_sync(weir__checking *self, weir__checked *block, size_t at,
                              size_t bytes);

/* ---- checking_calls.c: of the resource's table ---- */

weir_status weir__checking_allocate(void *context, weir_stream stream, size_t bytes,
                                    size_t alignment, void **out);
bool weir__checking_deallocate(void *context, weir_stream stream, void *ptr,
                               size_t bytes, size_t alignment);
bool weir__checking_deallocate_after(void *context, void *ptr, size_t bytes,
                                     size_t alignment, const weir_point *points,
                                     size_t count);
weir_status weir__checking_extend(void *context, weir_stream stream, void *ptr,
                                  size_t bytes, size_t alignment, size_t new_bytes);

/* ---- checking_held.c: the quarantine ---- */

/* Whether a block is to be held back at all. */
bool weir__checking_holds(const weir__checking *self, const weir__checked *block);
/* Holds `block` back, behind the points it has, and lets go of what is too much. */
void weir__checking_hold(weir__checking *self, weir__checked *block);
/* All that is held back goes upstream; what is done is looked at first, or with
 * `waits` everything, which is waited for. True: this call gave something. */
bool weir__checking_empty(weir__checking *self, bool waits);
/* How many blocks have gone from here upstream so far. */
uint64_t weir__checking_count_landings(weir__checking *self);
/* Other threads may have in their hands what this one lacks; when it looked, there were
 * `landings`. True once there are more, false if none is on its way, or it takes
 * long. */
bool weir__checking_wait_for_landing(weir__checking *self, uint64_t landings);

#endif
