/* pool_hit.c - allocations that a thread's own cache serves; what comes back to it is
 * in pool_hit_back.c.
 *
 * The way of a request, inside of the thread's gate:
 *     hit     a block of that size on its stack: no lock, no read-modify-write, no line
 *             that another thread writes, no call
 *     lent    one of the next larger sizes, where the cache is nearly full: no lock
 *             either
 *     refill  under the pool's lock, from the depot or the heap: see pool_refill.c
 * What is too large for any stack takes that lock, unless it has the size of one that
 * was freed right before: see pool_large.c.
 * What none of these serves leaves the gate and goes the whole way, in pool.c; what
 * waits for another stream or asks for host memory is an errand for outside of the
 * gate: another stream's magazine that is to be waited for, a cache, a seat for a
 * thread that only gives back. */
#include "pool_hit.h"

#include "device/device.h"
#include "internal.h"
#include "resource_parts.h"

/* How many a request gets, and the bin for these. Relaxed: any will do. */
static inline weir__bin *bin_for(const weir__pool *self, weir__cache *cache,
                                 size_t bytes, uint32_t *grains)
{
    uint32_t spare = atomic_load_explicit(&self->spare_grains, memory_order_relaxed);
    *grains = weir__class_up(weir__grains_of(bytes), spare);
    return weir__cache_bin(cache, *grains);
}

void weir__pool_learn_dropped(weir__pool *self)
{
    weir__mutex_lock(&self->lock);
    weir__pool_learn_dropped_locked(self);
    weir__mutex_unlock(&self->lock);
}

/* The block on top of a bin that is not empty, `offset` bytes from the first, as the
 * caller's. False: what is there is somebody else's, and *out is null. In an order that
 * needs few registers. */
static WEIR_INLINE bool take_top(weir__pool *self, weir__seat *seat,
                                 weir__cache *cache, size_t offset, size_t bytes,
                                 size_t alignment, void **out)
{
    weir__bin *bin = weir__bin_at(cache, offset);
    void *ptr = bin->ptr;
    *out = ptr;
    weir__recent_set(seat, ptr, bin->top_id, offset);
    weir__heap_block *block = bin->top;
    const uint64_t base = weir__heap_untagged(block, cache->holder_tag);
    if (WEIR_UNLIKELY((base & WEIR__TAG_MASK) != 0)) {
        *out = NULL;
        return false;
    }
    const uint64_t head = base + weir__heap_out_tag(bytes, alignment);
    const uint32_t below = weir__link_of(block);
    weir__link_set(block, cache->owner);
    weir__heap_set_head(block, head);
    weir__bin_drop(bin, &self->heap.view, below);
    cache->bytes -= weir__grains_size(bin->grains);
    weir__tally_out(&seat->tally, &cache->allocations, bytes);
    return true;
}

/* Whether a request may have a block of a larger size instead of one of its own, of
 * which there is none: where bins have nearly all that is kept, one more would drive
 * out another. As long as there is room it is had for good, and there the next time. */
static inline bool is_nearly_full(const weir__cache *cache)
{
    return cache->bytes - cache->spill.bytes >
           cache->most_bytes - cache->most_bytes / WEIR__NEARLY_SHARE;
}

/* Whether blocks of that bin are not much larger. */
static inline bool may_serve(const weir__pool *self, const weir__bin *bin, size_t bytes)
{
    const uint32_t need = weir__grains_of(bytes), more = bin->grains - need;
    return more <= need / WEIR__NEXT_SHARE &&
           more <= atomic_load_explicit(&self->spare_grains, memory_order_relaxed);
}

/* The bin that has a block for the request: its own, or one of the next; or null. */
static inline weir__bin *bin_that_has(const weir__pool *self, weir__cache *cache,
                                      weir__bin *bin, size_t bytes)
{
    const weir__heap_view *view = &self->heap.view;
    if (weir__bin_is_ready(bin, view))
        return bin;
    const weir__bin *end = cache->bins + WEIR__BINS;
    uint32_t left = is_nearly_full(cache) ? WEIR__NEXT_BINS : 0;
    for (; left > 0 && ++bin != end; left--) {
        if (may_serve(self, bin, bytes) && weir__bin_is_ready(bin, view))
            return bin;
    }
    return NULL;
}

/* What is no plain hit: from the second magazine, which becomes the first, of a larger
 * size, or by a refill. */
static inline bool hit_or_refill(weir__pool *self, weir__seat *seat, weir__cache *cache,
                                 size_t bytes, size_t alignment, void **out,
                                 weir__errand *after)
{
    uint32_t grains;
    weir__bin *bin = bin_for(self, cache, bytes, &grains);
    weir__bin *has = NULL;
    bool done = false;
    if (bin->grains != grains)
        (void)weir__cache_claim(cache, &self->heap.view, grains);
    else
        has = bin_that_has(self, cache, bin, bytes);
    if (has != NULL) {
        done = take_top(self, seat, cache, weir__bin_offset(cache, has), bytes,
                        alignment, out);
        if (WEIR_UNLIKELY(!done))
            weir__cache_give_up(cache, has);
    }
    if (!done) {
        bool loads;
        *after = weir__errand_begin(seat);
        *out = weir__pool_refill(self, seat, cache, grains, bytes, alignment, &loads,
                                 after);
        done = *out != NULL;
        if (done)
            weir__tally_out(&seat->tally, &cache->allocations, bytes);
        else if (loads && bin->count != 0)
            done = take_top(self, seat, cache, weir__bin_offset(cache, bin), bytes,
                            alignment, out);
    }
    return done;
}

/* All that is no plain hit and not large, inside of the gate, which it leaves. Who hits
 * passes on no more than this, so that nothing has to be saved for it. */
static WEIR_NOINLINE weir_status allocate_inside(weir__cache *cache, weir__seat *seat,
                                                 size_t bytes, size_t alignment,
                                                 void **out)
{
    weir__pool *self = seat->pool;
    const weir_stream stream = cache->alias; /* as users name it */
    weir__errand after = { 0 };
    void *ptr = NULL;
    bool done = hit_or_refill(self, seat, cache, bytes, alignment, &ptr, &after);
    if (WEIR_UNLIKELY(self->listens) && done)
        weir__pool_learn_dropped(self);
    weir__errand_run(self, seat, &after);
    if (WEIR_UNLIKELY(after.surplus && !done))
        (void)weir__pool_allocate_surplus(self, stream, bytes, alignment, &ptr);
    *out = ptr;
    return weir__pool_leave_or_go_on(self, stream, bytes, alignment, out);
}

/* The same of any size. */
static inline weir_status allocate_with(weir__pool *self, weir_stream stream,
                                        size_t bytes, size_t alignment, void **out,
                                        weir__cache *cache)
{
    return weir__pool_is_large(bytes)
               ? weir__pool_allocate_large(self, stream, bytes, alignment, out, cache)
               : allocate_inside(cache, weir__own_thread.seat, bytes, alignment, out);
}

/* The same where the stream's cache may be anywhere, or nowhere. */
static WEIR_NOINLINE weir_status find_and_allocate(weir__pool *self, weir_stream stream,
                                                   size_t bytes, size_t alignment,
                                                   void **out)
{
    weir__seat *seat = weir__own_thread.seat;
    weir__cache *cache = weir__cache_fetch(seat, &seat->out_of, stream);
    if (WEIR_LIKELY(cache != NULL))
        return allocate_with(self, stream, bytes, alignment, out, cache);
    weir__gate_leave(&seat->gate);
    *out = NULL;
    return weir__pool_leave_or_go_on(self, stream, bytes, alignment, out);
}

weir_status weir__pool_allocate(void *context, weir_stream stream, size_t bytes,
                                size_t alignment, void **out)
{
    weir__pool *self = context;
    weir__seat *seat = weir__seat_here(self);
    if (WEIR_LIKELY(seat != NULL && alignment <= WEIR__HEAP_GRAIN &&
                    bytes <= self->gate_bytes && weir__gate_enter(&seat->gate)))
        return find_and_allocate(self, stream, bytes, alignment, out);
    weir__pool_tell_lost(self);
    return weir__pool_allocate_slowly(self, stream, bytes, alignment, out);
}

/* What is no plain hit by its arguments, or is refused at the gate. */
static WEIR_NOINLINE weir_status hit_any(weir_resource *mr, weir_stream stream,
                                         size_t bytes, size_t alignment, void **out)
{
    weir__pool *self = mr->self;
    weir__seat *seat = weir__own_thread.seat;
    if (WEIR_UNLIKELY(!weir__seat_is_quick(seat, self) ||
                      bytes - 1 >= self->gate_bytes || alignment != WEIR_ALIGNMENT ||
                      out == NULL || weir__device_is_lost(self->device) ||
                      !weir__gate_enter(&seat->gate)))
        return weir__allocate_rest(mr, stream, bytes, alignment, out);
    weir__cache *cache = weir__cache_near(seat, &seat->out_of, stream);
    return WEIR_LIKELY(cache != NULL)
               ? allocate_with(self, stream, bytes, alignment, out, cache)
               : find_and_allocate(self, stream, bytes, alignment, out);
}

static WEIR_INLINE weir_status hit(weir_resource *mr, weir_stream stream, size_t bytes,
                                   size_t alignment, void **out, bool fences)
{
    weir__pool *self = mr->self;
    weir__seat *seat = weir__own_thread.seat;
    if (WEIR_UNLIKELY(!weir__seat_is_quick(seat, self) ||
                      bytes - 1 >= self->hit_bytes || alignment != WEIR_ALIGNMENT ||
                      out == NULL || weir__device_is_lost(self->device) ||
                      !weir__gate_enter_as(&seat->gate, fences)))
        return hit_any(mr, stream, bytes, alignment, out);

    weir__cache *cache = weir__cache_near(seat, &seat->out_of, stream);
    if (WEIR_UNLIKELY(cache == NULL))
        return find_and_allocate(self, stream, bytes, alignment, out);
    const uint32_t below = (uint32_t)((bytes - 1) >> WEIR__HEAP_GRAIN_BITS);
    const size_t offset = weir__cache_index_above(below) * sizeof(weir__bin);
    weir__bin *bin = weir__bin_at(cache, offset);
    /* Nothing smaller than the request, and no larger than it may be at the moment. */
    uint32_t spare = atomic_load_explicit(&self->spare_grains, memory_order_relaxed);
    if (WEIR_UNLIKELY(bin->grains - 1 - below > spare || bin->count == 0 ||
                      !take_top(self, seat, cache, offset, bytes, WEIR_ALIGNMENT, out)))
        return allocate_inside(cache, seat, bytes, WEIR_ALIGNMENT, out);
    weir__gate_leave_alone(&seat->gate);
    return WEIR_OK;
}

weir_status weir__pool_hit(weir_resource *mr, weir_stream stream, size_t bytes,
                           size_t alignment, void **out)
{
    return hit(mr, stream, bytes, alignment, out, false);
}

weir_status weir__pool_hit_fenced(weir_resource *mr, weir_stream stream, size_t bytes,
                                  size_t alignment, void **out)
{
    return hit(mr, stream, bytes, alignment, out, true);
}
