/* pool_seats.h - the seats of a pool's threads: how they begin and end, and how others
 * get what is in their caches. See pool_cache.h for what they are. */
#ifndef WEIR_POOL_SEATS_H
#define WEIR_POOL_SEATS_H

#include "internal.h"
#include "pool_internal.h"

/* All seats of a thread. */
typedef struct weir__thread_caches {
    weir__seat *mine;
} weir__thread_caches;

/* Whether its pool has let go of it. */
static inline bool weir__seat_is_dead(const weir__seat *seat)
{
    /* Acquire: the pool has finished with it. */
    return atomic_load_explicit(&seat->is_dead, memory_order_acquire);
}

weir__seat *weir__seat_search(const weir__pool *pool);

/* The calling thread's seat in `pool`, or null. It may be dead: its gate is closed. */
static inline weir__seat *weir__seat_here(const weir__pool *pool)
{
    weir__seat *seat = weir__own_thread.seat;
    return WEIR_LIKELY(seat->pool == pool) ? seat : weir__seat_search(pool);
}

/* Sees to it that the thread has a cache for `stream`, where there can be one. May ask
 * for host memory; without it there is none. Returns the cache's home; without one
 * WEIR__HEAP_HOMES. To be called without locks, outside of the gate. */
uint32_t weir__pool_take_seat(weir__pool *pool, weir_stream stream);

/* The same for a thread that gives back, and so may ask for no host memory, if a seat
 * has been laid by; else the next one that allocates is asked to. The pool must not be
 * about to end. */
void weir__pool_take_spare_seat(weir__pool *pool, weir_stream stream);
/* Lays one by, if there is the host memory. To be called without locks, outside of the
 * gate. */
void weir__pool_lay_by_seat(weir__pool *pool);
void weir__spare_seat_clear(weir__spare_seat *spare);

/* ---- behind the gate: by its owner, or by a flusher ---- */

/* Gives all that a cache has to the heap, behind a new mark. True: there was something.
 * May call the device, and takes the pool's lock. */
bool weir__cache_empty(weir__pool *pool, weir__cache *cache);

/* Its caches may keep what the pool says now. */
void weir__seat_fit(const weir__pool *pool, const weir__seat *seat);

/* Ends the seat's cache for `stream`, if it is of that clock. */
void weir__seat_forget(weir__pool *pool, weir__seat *seat, weir_stream stream,
                       uint64_t clock);

/* Releases a list of CACHED blocks behind `mark`; or behind mark `number` of the clock
 * that `owner` is of. */
void weir__pool_settle_locked(weir__pool *pool, weir__block_list *list,
                              weir__mark mark) WEIR_REQUIRES(pool->lock);
void weir__pool_settle_to_locked(weir__pool *pool, weir__block_list *list,
                                 weir__heap_owner *owner, uint64_t number)
    WEIR_REQUIRES(pool->lock);

/* ---- for who has no lock but perhaps `miss` ---- */

/* Between the two everybody is kept out of the caches, and what threads have counted is
 * in the pool's counts. */
void weir__pool_seats_close(weir__pool *pool) WEIR_ACQUIRE(pool->seats_lock);
void weir__pool_seats_open(weir__pool *pool) WEIR_RELEASE(pool->seats_lock);
/* Between them: gives all caches and the depot to the heap, also those of threads that
 * sleep. True: there was something. */
bool weir__pool_empty_caches(weir__pool *pool) WEIR_REQUIRES(pool->seats_lock);
static inline void weir__pool_flush_caches(weir__pool *pool)
{
    weir__pool_seats_close(pool);
    (void)weir__pool_empty_caches(pool);
    weir__pool_seats_open(pool);
}

/* pool_tallies.c: adds what threads have counted to the pool's counts; with all gates
 * closed. */
void weir__pool_fold_locked(weir__pool *pool)
    WEIR_REQUIRES(pool->lock) WEIR_REQUIRES(pool->seats_lock);

/* Flushes, and no thread gets a seat any more. */
void weir__pool_end_caches(weir__pool *pool);

/* A stream ends, or a capture begins or ends on it: its caches go. */
void weir__pool_stream_changes(weir__order_listener *listener, weir_stream stream,
                               uint64_t clock);

/* ---- pool_own.c ---- */

/* Whether the calling thread may have a cache for its own stream: sees to it that the
 * thread's end is heard of in time. Without locks, outside of the gate. */
bool weir__pool_watch_own(const weir__pool *pool);

/* ---- pool_life.c ---- */

/* What caches and depot have. */
typedef struct weir__kept {
    size_t blocks, bytes;
    size_t threads;          /* that keep more, of all their streams, than half of what
                                they may of one of several where nothing is in the
                                way */
} weir__kept;

/* With both locks held, under closed gates. */
weir__kept weir__pool_kept_locked(const weir__pool *pool) WEIR_REQUIRES(pool->lock);

#endif
