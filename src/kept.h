/* kept.h - blocks that were given back to a leaf and cannot be freed yet.
 *
 * They stand in queues, one per clock, in the order they came: where the oldest of
 * a queue is not done, none behind it is, so that one question answers for all. A block
 * behind several marks stands in the queue of one, and when that is done in the
 * queue of the next. Putting and taking need no memory: the oldest block of a queue is
 * its head.
 *
 * The owner's lock guards all of it. */
#ifndef WEIR_KEPT_H
#define WEIR_KEPT_H

#include "block_table.h"
#include "stream_order.h"
#include "sync.h"

/* Marks that a block can wait for at once. */
#define WEIR__KEPT_MARKS 4

typedef struct weir__kept_block {
    weir__block_record record;           /* first: the table knows no more */
    size_t held_bytes;                   /* what it takes of the device; put needs it */
    uint64_t birth;                      /* the clock that it was allocated under */
    weir__mark marks[WEIR__KEPT_MARKS];  /* to be freed behind all of them */
    size_t mark_count;                   /* at least one, where it stands in a queue */
    size_t marks_left;                   /* of these: it waits for the last of them */
    bool rests_on_giver;                 /* given back behind points: what its giver
                                          * knew to be done needs none */
    uint64_t number;                     /* by age */
    uint64_t asked;                      /* the last round that asked about it */
    struct weir__kept_block *newer;      /* in its queue, or any other list */
    struct weir__kept_block *newest;     /* of a head: the end of its queue */
    struct weir__kept_block *next_queue; /* of a head */
} weir__kept_block;

#define WEIR__KEPT_BUCKETS 64

/* All zero is empty. */
typedef struct weir__kept {
    weir__kept_block *buckets[WEIR__KEPT_BUCKETS]; /* heads, by clock */
    uint64_t last_number;
    uint64_t last_round;
    size_t blocks;
    size_t bytes;       /* held by them */
    size_t room_bytes;  /* what the device spends on them, or somewhat less */
    size_t aside_bytes; /* of bytes: they wait for a device wait */
} weir__kept;

/* Sets the marks of `block` to be behind `count` points, and behind the capture that it
 * was allocated in, if any. What does not fit is done already, which only the caller
 * then knows, or becomes an aside mark; with more captures than fit there are no marks,
 * and the block must never be freed. To be called without locks, before it is put. */
void weir__kept_mark_behind(weir__kept_block *block, weir__order *order,
                            const weir_point *points, size_t count);

/* The mark that a block in a queue waits for now. */
weir__mark weir__kept_mark(const weir__kept_block *block);

/* Puts `block`, with its marks, at the end of a queue; keeps its number if it has
 * one. */
void weir__kept_put(weir__kept *kept, weir__kept_block *block);

/* Takes what is known to be done from the queue of `clock`: a list through `newer`. */
weir__kept_block *weir__kept_take_done(weir__kept *kept, weir__order *order,
                                       uint64_t clock);

/* Some head that has not been asked about in `round`, which it now has; or null. */
weir__kept_block *weir__kept_next_to_ask(weir__kept *kept, uint64_t round);

/* The oldest block that a wait could free: none of a capture. Or null. */
weir__kept_block *weir__kept_oldest(weir__kept *kept, weir__order *order);

/* The block at `ptr` of a resource called `name`, which nobody else can give back from
 * now on; or null, and the misuse handler has been told. Without `lock`, which guards
 * the table. */
weir__kept_block *weir__kept_begin_leaving(weir__block_table *table, weir__mutex *lock,
                                           const char *name, void *ptr, size_t bytes,
                                           size_t alignment);

/* A free that the device refused, told by the next allocate: WEIR_OK, or told
 * already. */
typedef struct weir__kept_refusal {
    weir_status status;
    int32_t code;
} weir__kept_refusal;

/* Answers the refusal, and forgets it. Without `lock`, which guards it. */
weir_status weir__kept_tell_refusal(weir__kept_refusal *refusal, weir__mutex *lock,
                                    const char *name);

/* Takes any block, whatever it waits for; or null. */
weir__kept_block *weir__kept_take_any(weir__kept *kept);

/* Walks it all, and stops if it is not sound. */
void weir__kept_verify(const weir__kept *kept);

#endif
