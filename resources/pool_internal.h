/* pool_internal.h - what the parts of the pool share: pool.c is what everybody meets,
 * pool_miss.c looks beyond the stream's own memory, pool_place.c where to cut it,
 * pool_share.c sees to it that this is seldom needed, pool_chunks.c draws from
 * upstream, pool_back.c gives back to it, pool_parts.c cuts out what of a chunk can go
 * by itself, pool_pages.c passes on what is not to be cut, pool_owners.c knows who may
 * own memory. */
#ifndef WEIR_POOL_INTERNAL_H
#define WEIR_POOL_INTERNAL_H

#include "heap.h"
#include "internal.h"
#include "pool_depot.h"
#include "stream_order.h"
#include "sync.h"
#include "weir/pool.h"
#include "weir/resource_ops.h"

/* When it is worth while to look for a run of several owners again. */
typedef struct weir__pool_search {
    size_t bytes;            /* so many were not found */
    uint64_t again_at;       /* in `releases` */
} weir__pool_search;

/* Host memory for the seat of a thread that only gives back: all of it, or nothing. */
typedef struct weir__spare_seat {
    void *caches, *seat, *table, *cache;
} weir__spare_seat;

typedef struct weir__pool {
    weir_resource *mr;           /* the weir_resource around this */
    void *memory;                /* of the host, that this is in */
    weir_resource *upstream;     /* kept alive by the weir_resource around this */
    weir_device *device;
    weir__order *order;          /* the device's */
    weir_pool_options options;   /* in force; what goes by what is held is 0 */
    weir_resource_properties up; /* upstream's */

    /* Set once, when it is made: */
    size_t gate_bytes;           /* the largest request that looks into caches; or 0 */
    size_t hit_bytes;            /* and that may be a plain hit */
    bool listens;                /* the ledger hears what threads know to be done */
    size_t pass_alignment;       /* what is to be aligned so is upstream's business
                                    (pool_pages.c); SIZE_MAX: nothing is */
    /* Changes with `miss` held: */
    size_t cache_bytes;          /* most in a cache, or in the depot; and with all gates
                                    closed */
    size_t lone_bytes;           /* most in its thread's only one; as that */
    _Atomic uint32_t spare_grains; /* the most that a block may have: WEIR__SPARE_MOST,
                                    or 0 where room is short; read at any time */
    /* Up to here, and with the heap's view: what is read without a lock, on lines that
     * nobody writes often. */
    weir__heap heap;             /* guarded by `lock` */
    uint64_t releases;           /* a count of what makes a search worth while: blocks
                                    that came back, and growth; guarded by `lock` */
    /* Guards the heap and all below, for short: under it nobody is called but the
     * order, about what it knows. Rank resource. */
    weir__mutex lock;
    size_t held_bytes;           /* in chunks; changes with both locks held */
    size_t passed_bytes, passed_blocks; /* that are out, and upstream's */
    uint64_t ways_made;          /* for these: how often it gave something upstream */
    bool has_dropped;            /* marks that a thread knew to be done: the ledger has
                                    what it knew, for all who take memory here */
    size_t tidy_at;              /* so many owners of free memory are worth a look */
    size_t reserved_count;       /* owners that wait for their clocks to be dropped */
    size_t reserved_look_at;     /* so many of them are worth a look for those */
    weir__pool_search known_runs, waiting_runs;
    uint64_t looked_at;          /* in `releases`: when a request last looked around */
    uint64_t wanted_at;          /* in `releases`: ... or took another stream's memory,
                                    or looked for some */
    bool is_short;               /* there is no room to grow, or upstream refused to
                                    and nothing went back since; both locks */
    bool is_frayed;              /* it grew though it had room, in pieces; `miss` */
    bool is_crowded;             /* what threads kept was taken from them, with much
                                    free, of several streams; `miss` */
    uint64_t forget_at;          /* in `releases`: these two are over */
    size_t threads;              /* that keep much, when it last looked at what they
                                    keep; one at least; changes with both locks held */
    size_t end_bytes;            /* what it can hold, as far as is known; SIZE_MAX where
                                    there is no end of it; both locks */
    size_t peak_bytes;           /* the most that was out when it was looked at, where
                                    there is an end; both locks */
    bool is_settled;             /* no more than that has been out for long; both
                                    locks */
    uint64_t look_at;            /* in `releases`: then that is so; both locks */
    size_t look_above;           /* so much of the heap is taken: more may be out; both
                                    locks */
    bool is_tight;               /* a request found no room, though so much was free;
                                    both locks */
    bool has_room;               /* it is settled, not tight, and much was never out;
                                    or there is no end; both locks */
    uint64_t taken_back;         /* blocks, from caches, by requests for which it could
                                    have grown instead; both locks */
    uint32_t unlooked;           /* how often caches were fitted since; `miss` */
    size_t cut_bytes;            /* what lies free in one piece of no more than this is
                                    cut as it comes; changes with both locks held */
    size_t much_bytes;           /* where no more is free in all, everything is; as
                                    that */
    uint64_t place_at;           /* in `releases`: a look at all runs is worth while */
    uint64_t gather_at;          /* in `releases` */
    weir__depot depot;
    weir_resource_statistics counts; /* but what is in the seats' tallies */
    weir__lost lost;             /* what was given up, and is not gathered yet */
    weir__lost untold;           /* ... and nobody was told of yet */
    atomic_bool has_untold;      /* also read without the lock */
    bool counts_whole_grains;    /* out_bytes may be so much too large */
    bool closing;                /* the last unref was */
    weir__spare_seat spare_seat;
    bool wants_spare_seat;       /* a thread that only gives back could use one */

    /* Guards the list of seats; held while their gates are closed. Rank seats. */
    weir__mutex seats_lock;
    weir__seat *seats;
    uint32_t seat_number;        /* the last that was given */
    uint32_t seat_count;         /* of the list, threads that have ended included */
    uint32_t sweep_at;           /* so many are worth a look for these */
    bool no_more_seats;          /* the pool is about to end */
    weir__order_listener listener;
    /* Who has it may look beyond its stream's own memory: one request at a time,
     * trim as well. Held across calls to the device and upstream, on purpose: two
     * requests that both saw too little would both draw a chunk, or wait for two
     * halves of the same run. Rank miss. */
    weir__mutex miss;
} weir__pool;

/* What the pool notes in an owner's `kind`, once it has looked: whether its clock is a
 * capture's. */
#define WEIR__POOL_PLAIN   1u
#define WEIR__POOL_CAPTURE 2u

#define WEIR__POOL_BARRED 8u

/* Any alignment costs the pool at most that many bytes in front of a block, which stay
 * free; a page of the device's is the most that anything asks for. */
#define WEIR__POOL_ALIGNMENT_MOST ((size_t)2 << 20)

/* One call of allocate on its way through the pool. */
typedef struct weir__request {
    weir__pool *pool;
    weir_stream stream;
    uint64_t clock;              /* of `stream` */
    weir__heap_owner *owner;     /* of `clock`, in the pool's heap; once it has looked
                                    there */
    uint32_t home;               /* where the block's record should be; HOMES until the
                                    owner is met: with those of all its stream's */
    size_t asked_bytes;
    size_t asked_alignment;
    size_t bytes;                /* whole grains; some to spare, perhaps */
    size_t alignment;            /* a grain at least */
    /* Clocks that could not be waited for: this request looks for nothing of theirs any
     * more. */
    uint64_t barred[WEIR__POOL_BARRED];
    size_t barred_count;
    weir_status wait_status;     /* of the last wait that failed, and its code */
    int32_t wait_code;
    bool grows_first;            /* rather than wait */
    bool is_placed;              /* it was offered a place: nothing is spared now */
    bool has_piece;              /* was cut for it: it declines nothing now */
    bool has_skipped;            /* it left out a search for runs */
    bool has_declined;           /* it left out what fits it badly */
    bool is_thorough;            /* it leaves out nothing any more */
    weir_status refusal;         /* OUT_OF_MEMORY or LIMIT_REACHED: no growth */
} weir__request;

/* ---- pool.c ---- */

/* Cuts the request's block out of a run of HELD blocks that it may take, and counts it
 * as out. */
uint32_t weir__pool_hand_out_locked(weir__request *request, weir__heap_run run,
                                    weir__mark front, weir__mark rest)
    WEIR_REQUIRES(request->pool->lock);

/* A block that nobody else knows of is the request's. */
void weir__pool_mark_out_locked(const weir__request *request, weir__heap_block *block)
    WEIR_REQUIRES(request->pool->lock);

/* The oldest magazine of the depot, which has one, goes to the heap. */
void weir__pool_drain_locked(weir__pool *pool) WEIR_REQUIRES(pool->lock);

/* The best fit of the stream's own memory, or 0. */
uint32_t weir__pool_take_own_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock);

/* The best fit of what nothing uses any more, or 0. */
uint32_t weir__pool_take_done_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock);

/* Whether the request's stream may take a block, as far as is known; and the rule of
 * the house for every block of a run. */
bool weir__pool_may_take(const weir__request *request, uint32_t block);
bool weir__pool_may_take_run(const weir__request *request, weir__heap_run run)
    WEIR_REQUIRES(request->pool->lock);

weir_status weir__pool_find(void *pool, const void *ptr, weir_block *out);

/* So many bytes were out, as far as one thread knows; its own may be below zero. */
static inline void weir__pool_note_peak_locked(weir__pool *pool, int64_t out_bytes)
{
    if (out_bytes > 0 && pool->counts.peak_out_bytes < (size_t)out_bytes)
        pool->counts.peak_out_bytes = (size_t)out_bytes;
}

/* After what is held, or passed on, has grown. */
static inline void weir__pool_note_held_locked(weir__pool *pool)
{
    size_t held_bytes = pool->held_bytes + pool->passed_bytes;
    if (pool->counts.peak_held_bytes < held_bytes)
        pool->counts.peak_held_bytes = held_bytes;
}

/* Whether that was the last block of a pool that nobody refers to any more. */
static inline bool weir__pool_is_over_locked(const weir__pool *pool)
{
    return pool->closing && pool->heap.taken_blocks == 0 && pool->passed_blocks == 0;
}

/* The ledger's name for what marks that were dropped stand for. */
static inline uint64_t weir__pool_dropped_key(const weir__pool *pool)
{
    return (uint64_t)(uintptr_t)pool;
}

/* Tells the ledger that memory becomes free without a mark, for the calling thread
 * knows that to be done: from now on, who is handed memory learns what this thread
 * knows. Also when a mark of the request's stream comes to stand for what was done: the
 * stream is behind that only with its next operation, which another's may precede. */
void weir__pool_note_dropped_locked(weir__pool *pool) WEIR_REQUIRES(pool->lock);
/* That who: before memory goes out, or upstream. */
void weir__pool_learn_dropped_locked(weir__pool *pool) WEIR_REQUIRES(pool->lock);

/* Whether upstream has said that it has not so much. */
static inline bool weir__pool_is_refusal(weir_status status)
{
    return status == WEIR_OUT_OF_MEMORY || status == WEIR_LIMIT_REACHED;
}

/* ---- how large a block is ---- */

static inline size_t weir__pool_whole_grains(size_t bytes)
{
    return (bytes + WEIR__HEAP_GRAIN - 1) & ~(WEIR__HEAP_GRAIN - 1);
}

/* What a request for `bytes` bytes gets that is lent none. Relaxed: the block
 * remembers. */
static inline size_t weir__pool_room_for(const weir__pool *pool, size_t bytes)
{
    size_t room = weir__pool_whole_grains(bytes);
    uint32_t grains = (uint32_t)(room >> WEIR__HEAP_GRAIN_BITS);
    uint32_t spare = atomic_load_explicit(&pool->spare_grains, memory_order_relaxed);
    if (room > weir__grains_size(WEIR__CLASSED_GRAINS))
        return room;
    return weir__grains_size(weir__class_up(grains, spare));
}

/* The tag of a block that is out on the stream of `owner`. */
static inline uint32_t weir__pool_out_tag(const weir__heap_owner *owner,
                                          size_t asked_bytes, size_t alignment)
{
    uint32_t tag = weir__heap_out_tag(asked_bytes, alignment);
    return owner->kind != WEIR__POOL_CAPTURE ? tag : tag | WEIR__TAG_CAPTURED;
}

/* The best fit of what is free under `owner` for `bytes` bytes, of which so many were
 * asked for on the stream of `to`, with no more alignment than a grain's; or none. */
static inline weir__heap_taken weir__pool_take_fit_locked(weir__pool *pool,
                                                          weir__heap_owner *owner,
                                                          const weir__heap_owner *to,
                                                          uint32_t home, size_t bytes,
                                                          size_t asked_bytes,
                                                          size_t alignment)
    WEIR_REQUIRES(pool->lock)
{
    WEIR_ASSERT(weir__mutex_is_mine(&pool->lock), "handing out changes the heap");
    WEIR_CHECK(!pool->closing, "allocated after the last unref");
    weir__heap_taken taken = weir__heap_take_best(
        &pool->heap, owner, bytes, home,
        weir__pool_out_tag(to, asked_bytes, alignment), to->slot);
    if (WEIR_UNLIKELY(pool->has_dropped) && taken.block != NULL)
        weir__pool_learn_dropped_locked(pool);
    return taken;
}

/* ---- pool_owners.c ---- */

/* The order's: the clock gets an owner, until it is dropped. OUT_OF_HOST_MEMORY: it
 * got none. */
weir_status weir__pool_clock_begins(weir__order_listener *listener, weir_stream stream,
                                    uint64_t clock);

/* Finds the owner of the request's clock, which stays while the lock is held. False: no
 * host memory. */
bool weir__pool_meet_owner_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock);

/* A cache of seat number `seat` is for the owner's stream, which it pins. */
void weir__pool_add_cache(weir__heap_owner *owner, weir__cache *cache, uint32_t seat);

/* What memory becomes free behind that is free behind `mark`: the same; or, if its
 * clock has no owner and none is spare, done if it is, else an aside one. */
weir__mark weir__pool_owned_mark(weir__pool *pool, weir__mark mark)
    WEIR_REQUIRES(pool->lock);

/* ---- pool_lost.c ---- */

/* Something was given up, by who has taken the lock since; *lost is nothing then. */
void weir__pool_note_lost_locked(weir__pool *pool, weir__lost *lost)
    WEIR_REQUIRES(pool->lock);

/* Takes a magazine out of the depot, whose first block is its own; who goes through the
 * others looks at each. False: that was not so, and all is given up. */
bool weir__pool_take_out_locked(weir__pool *pool, const weir__magazine *magazine,
                                weir__magazine *out) WEIR_REQUIRES(pool->lock);

/* What is in a list of nobody's goes to the heap. With all gates closed, the caches and
 * the depot empty, and no request with a magazine in its hands. */
void weir__pool_gather_lost_locked(weir__pool *pool) WEIR_REQUIRES(pool->lock);

/* Tells of what was given back twice, where somebody met it. To be called without
 * locks, outside of the gate. The second does not where a resource above may have some,
 * as the thread's depth tells, in which the caller counts or not: then the next call
 * does. */
void weir__pool_tell_lost_now(weir__pool *pool);
static inline void weir__pool_tell_lost_at(weir__pool *pool, bool is_counted)
{
    /* Relaxed: who sees it looks under the lock. */
    if (WEIR_UNLIKELY(atomic_load_explicit(&pool->has_untold, memory_order_relaxed)) &&
        weir__own_thread.depth <= is_counted)
        weir__pool_tell_lost_now(pool);
}
static inline void weir__pool_tell_lost(weir__pool *pool)
{
    weir__pool_tell_lost_at(pool, true);
}

/* ---- pool_place.c ---- */

/* Whether several streams have some of what is free. */
static inline bool weir__pool_is_shared(const weir__pool *pool)
{
    const weir__heap *heap = &pool->heap;
    return heap->owning_count > 1 &&
           (heap->owning_count > 2 || heap->owners[WEIR__OWNER_DONE]->free_blocks == 0);
}

/* Whether it matters where the pool's memory is cut: it is shared, and twice as much is
 * free as may be whole, for each thread that keeps much. To look at all of it for each
 * miss would not pay in a pool that is not much more than that. */
static inline bool weir__pool_is_wary(const weir__pool *pool)
{
    const weir__heap *heap = &pool->heap;
    return weir__pool_is_shared(pool) &&
           heap->bytes - heap->taken_bytes > pool->much_bytes;
}

/* In a pool that is wary: whether a block (0: none) lies in so much free memory, of
 * whatever streams, that it had better stay whole. */
bool weir__pool_spares_locked(const weir__pool *pool, uint32_t block)
    WEIR_REQUIRES(pool->lock);

/* A block where it spoils least, of what the stream may take; 0: there is none but in
 * what is large against the pool. */
uint32_t weir__pool_place_known_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock);

/* The same of all free memory: else of what is large, or what the stream can be made to
 * wait for; 0: the pool is not wary, or there is none, or a wait failed. Lets go of the
 * lock meanwhile. With the lock miss. */
uint32_t weir__pool_place_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock);

/* What is free at the end of `chunk` and can be part of the request's block, HELD, and
 * its bytes; its first is 0 if that is nothing. All of it is used up, unless it is of
 * `clock`, as what follows it will be. */
weir__heap_run weir__pool_hold_end_locked(weir__request *request,
                                          const weir__chunk *chunk, uint64_t clock,
                                          size_t needed, size_t *bytes)
    WEIR_REQUIRES(request->pool->lock);

/* After held_bytes changed. */
void weir__pool_note_cut_locked(weir__pool *pool) WEIR_REQUIRES(pool->lock);

/* ---- pool_miss.c ---- */

/* Whether the request's stream may be made to wait for a block. */
bool weir__pool_can_wait(void *request, uint32_t block);

/* Hands out a run of idle blocks that the stream may take. Lets go of the lock where
 * one of them waits for several marks and the stream's own cannot be asked for later:
 * that is with the lock miss. */
uint32_t weir__pool_take_run_locked(weir__request *request, weir__heap_run run)
    WEIR_REQUIRES(request->pool->lock);

/* Hands out a run of idle blocks, after waiting for them; 0: that could not be, and who
 * could not be waited for is barred. With `asks` the device is asked first, and what is
 * left keeps its own mark. */
uint32_t weir__pool_take_waiting_locked(weir__request *request, weir__heap_run run,
                                        bool asks) WEIR_REQUIRES(request->pool->lock);

/* Serves a request that found nothing under its own clock; the heap's promise is given,
 * and taken back by the caller. To be called without locks. */
weir_status weir__pool_serve(weir__request *request, uint32_t *out);

/* A clock that could not be waited for: who asked for room in vain says so. */
static inline bool weir__pool_is_barred(const weir__request *request, uint64_t clock)
{
    for (size_t i = 0; i < request->barred_count; i++) {
        if (request->barred[i] == clock)
            return true;
    }
    return false;
}
void weir__pool_bar(weir__request *request, uint64_t clock, weir_status status);

/* Whether an event of the request's stream can be recorded later, for who asks then. */
static inline bool weir__pool_marks_later(const weir__request *request)
{
    uint64_t clock;
    const _Atomic uint64_t *counter;
    return weir__order_steady(request->pool->order, request->stream, &clock,
                              &counter) && clock == request->clock;
}

/* Goes through the marks of blocks from `block` to `last`, or with 0 to the end of the
 * chunk, which nobody else changes: the caller holds them, or is the pool's end. False:
 * there are no more. To be called without the pool's lock. */
typedef struct weir__pool_marks {
    uint32_t block, last;
    uint32_t cursor; /* 0 to begin with */
} weir__pool_marks;
bool weir__pool_next_mark(weir__pool *pool, weir__pool_marks *at, weir__mark *out);

/* ---- pool_magazines.c: with the lock miss, without the pool's lock ---- */

/* A block of a magazine that the stream may take, as far as is known; or 0. */
uint32_t weir__pool_take_known_magazine(weir__request *request);
/* The same after a wait, one for all of the magazine. */
uint32_t weir__pool_take_magazine(weir__request *request);

/* What the depot has becomes free, for it lies between what could be whole; unless the
 * request could have a magazine, or what is nobody's. As much comes back before there
 * is as much again. */
void weir__pool_free_magazines_locked(const weir__request *request)
    WEIR_REQUIRES(request->pool->lock);

/* Makes the request's stream wait for a run of HELD blocks. False: that could not be,
 * and who could not be waited for is barred. To be called without the pool's lock. */
bool weir__pool_wait_for_run(weir__request *request, weir__heap_run run);
/* Puts such a run back as it was. */
void weir__pool_put_back_locked(weir__pool *pool, weir__heap_run run)
    WEIR_REQUIRES(pool->lock);

/* How many blocks come back until nobody is expected to look for another's memory. */
#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define WEIR__POOL_QUIET_AFTER 64u
#else
#define WEIR__POOL_QUIET_AFTER 4096u
#endif

/* Whether all streams have had enough of their own for a while. */
static inline bool weir__pool_is_quiet_locked(const weir__pool *pool)
{
    return pool->releases - pool->wanted_at >= WEIR__POOL_QUIET_AFTER;
}

/* Whether others may want memory. What is freed on a thread's own stream is closed at
 * once, while the thread can. */
static inline void weir__cache_note_quiet_locked(const weir__pool *pool,
                                                 weir__cache *cache)
    WEIR_REQUIRES(pool->lock)
{
    cache->is_quiet = cache->own_of == 0 && weir__pool_is_quiet_locked(pool);
}

/* One has not. */
static inline void weir__pool_note_want_locked(weir__pool *pool)
    WEIR_REQUIRES(pool->lock)
{
    pool->wanted_at = pool->releases;
}

/* ---- pool_chunks.c: with the lock miss, without the pool's lock ---- */

/* Draws what is left of the initial size, or what the request needs if that is more.
 * 0 with WEIR_OK: upstream or the limit refuses it. */
weir_status weir__pool_draw_initial(weir__request *request, uint32_t *out);
/* Extends the last chunk or draws a new one. 0 with WEIR_OK: refused, and
 * request->refusal says by whom. */
weir_status weir__pool_grow(weir__request *request, uint32_t *out);
/* How much longer a chunk has to be than what of it the heap can use. */
static inline size_t weir__pool_chunk_slack(const weir__pool *pool)
{
    return pool->up.max_alignment < WEIR__HEAP_GRAIN ? WEIR__HEAP_GRAIN : 0;
}
/* The smallest chunk, or extension, that is sure to serve the request. */
size_t weir__pool_needed_bytes(const weir__request *request);

/* ---- pool_back.c, pool_parts.c: likewise ---- */

/* Gives upstream, in order of the request's stream, all chunks that are free and
 * that the stream may take as a whole; asks for what is not known. If that is too
 * little, then others that are free, behind what they were used for last, unless a
 * wait has failed. True if there were any. */
bool weir__pool_flush(weir__request *request);
/* Gives free chunks upstream until no more than `keep_bytes` is held, waiting on the
 * host; returns how many bytes went. Lets go of the lock miss while it waits. */
size_t weir__pool_trim_sync(weir__pool *pool, size_t keep_bytes)
    WEIR_REQUIRES(pool->miss);
/* Gives chunks that are all free upstream behind what used them last, and waits for
 * nothing; returns how many bytes went. */
size_t weir__pool_give_idle(weir__pool *pool);
/* Of a chunk that has both, makes a chunk of its own of what is free, may go, and could
 * be unmapped upstream: the last that nobody has looked at, at least `wanted_bytes` of
 * it, or all. False: upstream cuts out nothing, or there is no host memory. */
bool weir__pool_cut_out(weir__pool *pool, size_t wanted_bytes,
                        weir__heap_usable may_go, void *context);
/* Whether a block has no mark of a capture that is not released; and, for what upstream
 * waits for, neither one for which there is no point. With the pool's lock. */
bool weir__pool_has_no_capture(void *pool, uint32_t block);
bool weir__pool_has_points(void *pool, uint32_t block);
/* Gives a chunk that is all free, and that the request's stream may take as a whole,
 * upstream in order of the stream; or such parts of chunks, so many bytes, if there are
 * any. Return how many bytes went. */
size_t weir__pool_flush_chunk(weir__request *request);
size_t weir__pool_flush_parts(weir__request *request, size_t bytes);
/* What these have passed over is looked at again. */
void weir__pool_forget_skips(weir__pool *pool);
/* Where upstream remaps: gives it of what is free as much as the request needs beside
 * what lies free at the end. */
void weir__pool_make_room(weir__request *request, size_t needed_bytes);
/* The end: gives all chunks upstream; returns how many bytes could not be. */
size_t weir__pool_give_back_all(weir__pool *pool);

#endif
