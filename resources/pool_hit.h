/* pool_hit.h - between the pool's files: what a thread's own cache serves (pool_hit.c,
 * pool_hit_back.c), and what goes the whole way (pool.c). */
#ifndef WEIR_POOL_HIT_H
#define WEIR_POOL_HIT_H

#include "internal.h"
#include "pool_internal.h"
#include "pool_seats.h"
#include "pool_share.h"
#include "resource_parts.h"

/* The table's. */
weir_status weir__pool_allocate(void *context, weir_stream stream, size_t bytes,
                                size_t alignment, void **out);
bool weir__pool_deallocate(void *context, weir_stream stream, void *ptr, size_t bytes,
                           size_t alignment);

/* What weir_allocate and weir_deallocate do: see weir__counting. */
weir_status weir__pool_hit(weir_resource *mr, weir_stream stream, size_t bytes,
                           size_t alignment, void **out);
bool weir__pool_hit_back(weir_resource *mr, weir_stream stream, void *ptr, size_t bytes,
                         size_t alignment);
/* The same where owners of gates fence. */
weir_status weir__pool_hit_fenced(weir_resource *mr, weir_stream stream, size_t bytes,
                                  size_t alignment, void **out);
bool weir__pool_hit_back_fenced(weir_resource *mr, weir_stream stream, void *ptr,
                                size_t bytes, size_t alignment);

/* See weir__counting. */
bool weir__pool_hit_back_of(weir_resource *mr, weir_stream stream, uint64_t clock,
                            void *ptr, size_t bytes, size_t alignment);

bool weir__pool_deallocate_after(void *context, void *ptr, size_t bytes,
                                 size_t alignment, const weir_point *points,
                                 size_t count);

/* Without the cache. */
weir_status weir__pool_allocate_slowly(weir__pool *pool, weir_stream stream,
                                       size_t bytes, size_t alignment, void **out);
bool weir__pool_deallocate_slowly(weir__pool *pool, weir_stream stream, void *ptr,
                                  size_t bytes, size_t alignment);

/* From a magazine of the depot, whose blocks have that size. False: there is none that
 * the stream may wait for. */
bool weir__pool_allocate_surplus(weir__pool *pool, weir_stream stream, size_t bytes,
                                 size_t alignment, void **out);

/* A block has gone out, or come back, without a cache. */
void weir__pool_count_out(weir__pool *pool, size_t bytes);
void weir__pool_count_back(weir__pool *pool, size_t bytes);

/* Outside of the gate again, with what was allocated inside; or, if that is null, the
 * whole way. Where no ledger listens a quick call is not counted in the thread's depth
 * until then. */
static inline weir_status weir__pool_leave_or_go_on(weir__pool *pool,
                                                    weir_stream stream, size_t bytes,
                                                    size_t alignment, void **out)
{
    weir__pool_tell_lost_at(pool, pool->listens);
    if (WEIR_LIKELY(*out != NULL))
        return WEIR_OK;
    weir__own_thread.depth += !pool->listens;
    weir_status status =
        weir__pool_allocate_slowly(pool, stream, bytes, alignment, out);
    weir__own_thread.depth -= !pool->listens;
    return status;
}

/* ---- behind the gate ---- */

/* A block of so much goes out, and comes back; `calls` counts that. */
static inline void weir__tally_out(weir__tally *tally, uint64_t *calls, size_t bytes)
{
    ++*calls;
    if (WEIR_UNLIKELY((tally->below_peak -= (int64_t)bytes) < 0)) {
        tally->peak_bytes -= tally->below_peak;
        tally->below_peak = 0;
    }
}

static inline void weir__tally_back(weir__tally *tally, uint64_t *calls, size_t bytes)
{
    ++*calls;
    tally->below_peak += (int64_t)bytes;
}

/* What is to be done outside of the gate. */
typedef struct weir__errand {
    weir_stream wanted; /* the thread frees on it, and has no cache for it: giving back
                           cannot make one */
    bool surplus;       /* a magazine of another stream's is to be taken */
    bool chores;        /* what the pool wants to be done now and then */
} weir__errand;

static inline weir__errand weir__errand_begin(weir__seat *seat)
{
    weir__errand after = { .wanted = seat->wanted };
    seat->wanted = NULL;
    return after;
}

/* Leaves the gate, and does all but `surplus`; what is lost is told after that. */
static inline void weir__errand_run(weir__pool *pool, weir__seat *seat,
                                    const weir__errand *after)
{
    weir__gate_leave(&seat->gate);
    if (WEIR_UNLIKELY(after->wanted != NULL))
        weir__pool_take_seat(pool, after->wanted);
    if (WEIR_UNLIKELY(after->chores))
        weir__pool_do_chores(pool);
}

/* The outermost call is noted by the core; here, what is known of marks that were
 * dropped. */
WEIR_COLD void weir__pool_learn_dropped(weir__pool *pool);

/* ---- pool_refill.c: behind the gate ---- */

/* A block of `grains` grains, of which `bytes` bytes were asked for. Null: there is
 * none, but if *loads, the cache has a magazine of these now. */
void *weir__pool_refill(weir__pool *pool, weir__seat *seat, weir__cache *cache,
                        uint32_t grains, size_t bytes, size_t alignment, bool *loads,
                        weir__errand *after);

/* What was spilt becomes free; and whether others may want memory is looked at. */
void weir__cache_settle_some_locked(weir__pool *pool, weir__cache *cache)
    WEIR_REQUIRES(pool->lock);
static inline void weir__cache_settle_spilt_locked(weir__pool *pool, weir__cache *cache)
    WEIR_REQUIRES(pool->lock)
{
    weir__cache_note_quiet_locked(pool, cache);
    if ((cache->spill.count | cache->lost.lists) != 0)
        weir__cache_settle_some_locked(pool, cache);
}

/* An event behind all that has become free, without locks; and now and then one, so
 * that others wait for no more than they have to; if there are any that may. */
void weir__cache_close(weir__pool *pool, weir__cache *cache);
static inline void weir__cache_close_sometimes(weir__pool *pool, weir__cache *cache)
{
    const uint32_t most = cache->own_of != 0 ? 0 : WEIR__CLOSE_EVERY - 1;
    if (WEIR_UNLIKELY(cache->unclosed > most && !cache->is_quiet))
        weir__cache_close(pool, cache);
}

/* Takes over `count` blocks, from `id` on, of a magazine that the
 * cache's stream may use. False: the bin has blocks already. */
bool weir__cache_load(weir__pool *pool, weir__cache *cache,
                      const weir__magazine *magazine, uint32_t id, uint32_t count);

/* A best fit of what nothing uses any more: `size` bytes, of which so many were asked
 * for; or none. */
WEIR_COLD weir__heap_taken weir__cache_take_done_locked(weir__pool *pool,
                                                        const weir__cache *cache,
                                                        size_t size, size_t bytes,
                                                        size_t alignment)
    WEIR_REQUIRES(pool->lock);
/* The same of what the stream may take, where it spoils least. */
WEIR_COLD weir__heap_taken weir__cache_take_placed_locked(weir__pool *pool,
                                                          const weir__cache *cache,
                                                          size_t size, size_t bytes,
                                                          size_t alignment)
    WEIR_REQUIRES(pool->lock);

/* The same of the stream's own; of that; or, in a pool that is wary, of the last, where
 * nothing is left to be merged before. Needs the heap's promise. */
static inline weir__heap_taken weir__cache_take_fit_locked(weir__pool *pool,
                                                           const weir__cache *cache,
                                                           size_t size, size_t bytes,
                                                           size_t alignment)
    WEIR_REQUIRES(pool->lock)
{
    weir__heap *heap = &pool->heap;
    weir__heap_owner *owner = weir__heap_owner_at(heap, cache->owner);
    if (WEIR_UNLIKELY(pool->is_short) &&
        weir__pool_is_poor_locked(
            pool, weir__heap_best(heap, owner, size, WEIR__HEAP_GRAIN), size))
        return (weir__heap_taken){ NULL, 0 };
    if (WEIR_UNLIKELY(weir__pool_is_wary(pool)) &&
        weir__pool_spares_locked(pool,
                                 weir__heap_best(heap, owner, size, WEIR__HEAP_GRAIN)))
        return weir__cache_take_placed_locked(pool, cache, size, bytes, alignment);
    weir__heap_taken taken = weir__pool_take_fit_locked(
        pool, owner, owner, cache->home, size, bytes, alignment);
    if (WEIR_UNLIKELY(taken.block == NULL))
        taken = weir__cache_take_done_locked(pool, cache, size, bytes, alignment);
    if (WEIR_UNLIKELY(taken.block == NULL) && weir__pool_is_wary(pool) &&
        heap->limbo_blocks == 0 && pool->depot.count == 0)
        taken = weir__cache_take_placed_locked(pool, cache, size, bytes, alignment);
    return taken;
}

/* The mark behind which so many blocks become free: one above the counter, see
 * weir__order_steady. */
static inline uint64_t weir__cache_mark(weir__cache *cache, uint32_t blocks)
{
    cache->unclosed += blocks;
    return atomic_load_explicit(cache->counter, memory_order_relaxed) + 1;
}

/* The same, and whether others may want memory is looked at. */
static inline uint64_t weir__cache_mark_locked(weir__pool *pool, weir__cache *cache,
                                               uint32_t blocks)
    WEIR_REQUIRES(pool->lock)
{
    weir__cache_note_quiet_locked(pool, cache);
    return weir__cache_mark(cache, blocks);
}

/* ---- pool_large.c: what is never in a stack; leaves the gate ---- */

static inline bool weir__pool_is_large(size_t bytes)
{
    return bytes > weir__grains_size(WEIR__CACHED_GRAINS);
}

weir_status weir__pool_allocate_large(weir__pool *pool, weir_stream stream,
                                      size_t bytes, size_t alignment, void **out,
                                      weir__cache *cache);
/* What was seen to be out. */
bool weir__pool_put_back_large(weir__cache *cache, weir__heap_block *block, uint32_t id,
                               void *ptr, size_t bytes, size_t alignment);

/* ---- pool_hit.c, pool_hit_back.c ---- */

/* The calling thread's, which has several caches: those that have more than they may
 * give up some of what they have most of, until it is half of that; or all. May call
 * the device, and takes the pool's lock. */
void weir__seat_shrink(weir__pool *pool, const weir__seat *seat);

static inline uint32_t weir__grains_of(size_t bytes)
{
    return (uint32_t)((bytes + (WEIR__HEAP_GRAIN - 1)) >> WEIR__HEAP_GRAIN_BITS);
}

/* Whether the calling thread's seat is one in the pool, and may be used quickly. */
static inline bool weir__seat_is_quick(const weir__seat *seat, const weir__pool *self)
{
    return WEIR_LIKELY(seat->quick == self);
}

/* The stream's cache, if it is the one at hand or at its first place; behind the
 * gate. */
static inline weir__cache *weir__cache_near(const weir__seat *seat,
                                            weir__cache **at_hand, weir_stream stream)
{
    weir__cache *cache = *at_hand;
    if (WEIR_LIKELY(cache->stream == stream || cache->alias == stream))
        return cache;
    weir__cache *near = weir__cache_probe(seat, stream);
    if (WEIR_UNLIKELY(cache == &weir__no_cache) && near != NULL)
        *at_hand = near;
    return near;
}

/* The stream's cache, which may be anywhere, and is at hand then; or null. */
static inline weir__cache *weir__cache_fetch(const weir__seat *seat,
                                             weir__cache **at_hand, weir_stream stream)
{
    weir__cache *cache = weir__cache_find(seat, weir__stream_of(stream));
    *at_hand = cache != NULL ? cache : &weir__no_cache;
    return cache;
}

/* A block that is out, as it was found without a lock. */
typedef struct weir__found {
    weir__heap_block *block; /* null: there is none */
    uint32_t id;
} weir__found;

/* The one at `ptr` of which so much was asked for, by its address. A tag has no room
 * for alignments that no block has. */
static WEIR_INLINE weir__found weir__pool_look_up_out(const weir__pool *pool,
                                                      const void *ptr, size_t bytes,
                                                      size_t alignment)
{
    weir__found it = { 0 };
    if (WEIR_UNLIKELY(!is_power_of_two(alignment) ||
                      alignment > WEIR__POOL_ALIGNMENT_MOST))
        return it;
    it.block = weir__heap_lookup_tagged(&pool->heap.view, ptr,
                                        weir__heap_out_tag(bytes, alignment), &it.id);
    if (WEIR_LIKELY(it.block != NULL) &&
        WEIR_UNLIKELY(!weir__heap_fits_asked(weir__heap_bytes(it.block), bytes)))
        it.block = NULL;
    return it;
}

#endif
