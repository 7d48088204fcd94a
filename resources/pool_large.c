/* pool_large.c - blocks that are in no stack, for what is large has to coalesce. What
 * comes back waits on the spill list for a request of exactly its size, until the next
 * miss: then it is free, and the best fit comes out of the heap, under one lock. What
 * the cache has no room for, or others may want, is free at once.
 *
 * Who gives back claims the block by a compare-and-exchange of its head, which a hit
 * does without (see pool_lost.c): of two frees at one moment one is refused. */
#include "pool_hit.h"

#include "internal.h"
#include "pool_share.h"
#include "resource_parts.h"

/* The best fit of what is free, under the lock. */
static WEIR_NOINLINE weir_status allocate_fit(weir__pool *self, weir_stream stream,
                                              size_t bytes, size_t alignment,
                                              void **out, weir__cache *cache)
{
    weir__seat *seat = weir__own_thread.seat;
    weir__errand after = weir__errand_begin(seat);
    weir__heap_taken taken = { NULL, 0 };
    void *ptr = NULL;
    weir__cache_missed(cache);

    weir__mutex_lock(&self->lock);
    if (WEIR_LIKELY(weir__heap_promise(&self->heap))) {
        weir__cache_settle_spilt_locked(self, cache);
        taken = weir__cache_take_fit_locked(self, cache, weir__pool_whole_grains(bytes),
                                            bytes, alignment);
        weir__heap_forget_promise(&self->heap);
    }
    if (WEIR_LIKELY(taken.block != NULL))
        ptr = (void *)weir__heap_base(taken.block);
    after.chores = weir__pool_has_chores_locked(self);
    weir__mutex_unlock(&self->lock);
    weir__cache_close_sometimes(self, cache);

    const bool done = ptr != NULL;
    if (WEIR_LIKELY(done)) {
        weir__recent_set(seat, ptr, taken.id, weir__cache_last_offset());
        weir__tally_out(&seat->tally, &cache->allocations, bytes);
        if (WEIR_UNLIKELY(self->listens))
            weir__pool_learn_dropped(self);
    }
    weir__errand_run(self, seat, &after);
    *out = ptr;
    return weir__pool_leave_or_go_on(self, stream, bytes, alignment, out);
}

/* The last that was spilt of that size; else the best fit. */
static WEIR_NOINLINE weir_status allocate_spilt(weir__pool *self, weir_stream stream,
                                                size_t bytes, size_t alignment,
                                                void **out, weir__cache *cache)
{
    weir__seat *seat = weir__own_thread.seat;
    const size_t size = weir__pool_whole_grains(bytes);
    weir__heap_taken taken =
        weir__cache_unspill(cache, &self->heap.view,
                            (uint32_t)(size >> WEIR__HEAP_GRAIN_BITS),
                            weir__heap_out_tag(bytes, alignment));
    if (taken.block == NULL)
        return allocate_fit(self, stream, bytes, alignment, out, cache);
    *out = (void *)weir__heap_base(taken.block);
    weir__recent_set(seat, *out, taken.id, weir__cache_last_offset());
    weir__tally_out(&seat->tally, &cache->allocations, bytes);
    if (WEIR_UNLIKELY(self->listens))
        weir__pool_learn_dropped(self);
    weir__gate_leave(&seat->gate);
    return WEIR_OK;
}

weir_status weir__pool_allocate_large(weir__pool *self, weir_stream stream,
                                      size_t bytes, size_t alignment, void **out,
                                      weir__cache *cache)
{
    return cache->spill.count == 0
               ? allocate_fit(self, stream, bytes, alignment, out, cache)
               : allocate_spilt(self, stream, bytes, alignment, out, cache);
}

/* Whether a block that comes back may wait for a request of its size, without the lock.
 * Not where others may want it. */
static inline bool is_kept(const weir__cache *cache, const weir__heap_block *block)
{
    return cache->bytes + weir__heap_bytes(block) <= cache->most_bytes &&
           cache->spill.count + 1 < WEIR__SPILL_MOST && cache->is_quiet;
}

/* Whether the block, which was seen to be out as so much was asked for, still is, and
 * is this caller's from now on: another thread may be giving it back as well. */
static inline bool claim(weir__heap_block *block, const void *ptr, size_t bytes,
                         size_t alignment, uint32_t as)
{
    WEIR_WINDOW(); /* it was seen before */
    const uint32_t tag = weir__heap_out_tag(bytes, alignment);
    return weir__heap_claim(block, weir__heap_head(ptr, tag), as);
}

/* It was not so: the whole way, which knows what the matter is. */
static WEIR_NOINLINE bool put_back_rest(weir__cache *cache, void *ptr, size_t bytes,
                                        size_t alignment)
{
    weir__seat *seat = weir__own_thread.seat;
    weir_resource *mr = seat->pool->mr;
    const weir_stream stream = cache->alias;
    weir__gate_leave(&seat->gate);
    return weir__deallocate_rest(mr, stream, ptr, bytes, alignment);
}

static WEIR_NOINLINE bool keep(weir__cache *cache, weir__heap_block *block, uint32_t id,
                               void *ptr, size_t bytes, size_t alignment)
{
    weir__seat *seat = weir__own_thread.seat;
    if (WEIR_UNLIKELY(!claim(block, ptr, bytes, alignment, cache->holder_tag)))
        return put_back_rest(cache, ptr, bytes, alignment);
    weir__list_push(&cache->spill, block, id);
    cache->bytes += weir__heap_bytes(block);
    weir__tally_back(&seat->tally, &cache->deallocations, bytes);
    weir__gate_leave(&seat->gate);
    return true;
}

/* It is free behind the mark of now. */
static WEIR_NOINLINE bool release(weir__cache *cache, weir__heap_block *block,
                                  uint32_t id, void *ptr, size_t bytes,
                                  size_t alignment)
{
    weir__seat *seat = weir__own_thread.seat;
    weir__pool *self = seat->pool;
    if (WEIR_UNLIKELY(!claim(block, ptr, bytes, alignment, WEIR__HEAP_CACHED)))
        return put_back_rest(cache, ptr, bytes, alignment);
    weir__mutex_lock(&self->lock);
    const uint64_t number = weir__cache_mark_locked(self, cache, 1);
    (void)weir__heap_release_to(&self->heap, id, block,
                                weir__heap_owner_at(&self->heap, cache->owner), number);
    self->releases++;
    weir__mutex_unlock(&self->lock);
    weir__tally_back(&seat->tally, &cache->deallocations, bytes);
    weir__cache_close_sometimes(self, cache);
    weir__gate_leave(&seat->gate);
    return true;
}

bool weir__pool_put_back_large(weir__cache *cache, weir__heap_block *block, uint32_t id,
                               void *ptr, size_t bytes, size_t alignment)
{
    return is_kept(cache, block)
               ? keep(cache, block, id, ptr, bytes, alignment)
               : release(cache, block, id, ptr, bytes, alignment);
}
