/* pool_share.h - how a pool's memory is divided between streams and threads: see
 * pool_share.c. Called with one of the pool's locks, or both. */
#ifndef WEIR_POOL_SHARE_H
#define WEIR_POOL_SHARE_H

#include "pool_internal.h"

/* What chunks are multiples of now. */
size_t weir__pool_growth_now(const weir__pool *pool);
/* Whether the pool has slack: if not, streams take what they need, and no more. */
bool weir__pool_has_slack(const weir__pool *pool);
/* And whether it may grow before it takes what others have. */
bool weir__pool_grows_freely(const weir__pool *pool);

/* Each makes a piece of a block, with room for the request, the stream's own. False:
 * pieces are not for it, or there is no host memory; nothing has changed. */

/* Of a FREE block that is nobody's. */
bool weir__pool_take_fresh_locked(weir__request *request, uint32_t block)
    WEIR_REQUIRES(request->pool->lock);
/* Of a FREE block of another's that the stream may take, as far as is known. */
bool weir__pool_take_known_locked(weir__request *request, uint32_t block)
    WEIR_REQUIRES(request->pool->lock);
/* Of a HELD block of another's, with one mark, for which the stream waits; `mark` is a
 * piece mark, taken after that. */
bool weir__pool_take_waited_locked(weir__request *request, uint32_t block,
                                   weir__mark mark)
    WEIR_REQUIRES(request->pool->lock);
/* To be called without the pool's lock; done where there will be no piece. */
weir__mark weir__pool_piece_mark(const weir__request *request);

/* How much a stream takes from another at once: the request's bytes or more. */
size_t weir__pool_piece_bytes_locked(const weir__request *request)
    WEIR_REQUIRES(request->pool->lock);

/* Whether so little lies idle under other streams' clocks that growth comes before
 * waiting for them: not in a pool that is wary. With the lock miss, without the pool's
 * lock. */
bool weir__pool_grows_first(const weir__request *request);

/* Whether so little is free, what threads keep included, that the pool grows before it
 * takes that from them. With the lock miss, and all gates closed. */
bool weir__pool_leaves_caches(weir__pool *pool);

/* The pool grows then: it notes whether that is for want of whole pieces. With the lock
 * miss, without the pool's lock. */
void weir__pool_note_frayed(const weir__request *request);

/* What threads kept was taken from them. With the lock miss, without the pool's
 * lock. */
void weir__pool_note_crowd(weir__pool *pool);

/* Notes whether there is room to grow, after held_bytes changed or growth was refused;
 * with the lock miss as well. */
void weir__pool_note_room_locked(weir__pool *pool, bool is_refused)
    WEIR_REQUIRES(pool->lock);

/* The request is refused: if so much is free, that is in pieces, and where the pool
 * cannot grow all goes into making them whole from now on. With the lock miss, without
 * the pool's lock. */
void weir__pool_note_tight(const weir__request *request);

/* After end_bytes was set; before anybody knows the pool, or with both locks. */
void weir__pool_note_end(weir__pool *pool);

/* The most that was out is to be found anew. */
void weir__pool_forget_peak_locked(weir__pool *pool) WEIR_REQUIRES(pool->lock);

/* Whether a request of `bytes` bytes had better look at all streams' memory than take
 * `block` (0: there is none), for little is left and the pool cannot grow. */
bool weir__pool_is_poor_locked(const weir__pool *pool, uint32_t block, size_t bytes)
    WEIR_REQUIRES(pool->lock);

/* Whether the request does; 0 is no block. */
bool weir__pool_declines_locked(weir__request *request, uint32_t block)
    WEIR_REQUIRES(request->pool->lock);

/* There, and not too often: lets the request's stream wait for all that others have
 * left, and merges free neighbours of several streams. True: the lock was let go of
 * meanwhile, so whatever was found before is to be looked for again. With the lock
 * miss. */
bool weir__pool_gather_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock);

/* How many grains a block may have to spare now; with the lock miss, or before anybody
 * knows the pool. */
uint32_t weir__pool_spare_grains(const weir__pool *pool);

/* The most that a thread may keep of a stream where there is room. With the lock miss,
 * or before anybody knows the pool. */
size_t weir__pool_cache_most(const weir__pool *pool);
/* What one may keep that is its thread's only one, where others may keep so much. */
size_t weir__pool_lone_most(const weir__pool *pool, size_t cache_bytes);

/* Elsewhere threads keep less, and blocks have nothing to spare. Now and then counts
 * who keeps much. May close the gates: with the lock miss, without the pool's lock. */
void weir__pool_fit_caches(weir__pool *pool);

/* Whether what is out may be so much more, or settled, that it is to be looked at. */
static inline bool weir__pool_wants_look_locked(const weir__pool *pool)
    WEIR_REQUIRES(pool->lock)
{
    return pool->heap.taken_bytes >= pool->look_above ||
           pool->releases >= pool->look_at;
}

/* What threads that miss are asked to do besides: to lay a seat by, to forget why they
 * keep less, or to look. It is done without locks, outside of the gate. */
static inline bool weir__pool_has_chores_locked(const weir__pool *pool)
    WEIR_REQUIRES(pool->lock)
{
    return pool->wants_spare_seat || pool->releases >= pool->forget_at ||
           weir__pool_wants_look_locked(pool);
}
WEIR_COLD void weir__pool_do_chores(weir__pool *pool);

#endif
