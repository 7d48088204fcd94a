/* pool_hit_back.c - deallocations that a thread's own cache serves: see pool_hit.c.
 *
 * A free is judged by the block's record alone, found without a lock (where it was when
 * the block went out, or by its address): its tag says that it is out, and what was
 * asked for. Whatever is not as it should be goes the slow way, which looks again under
 * the lock and knows what the matter is. Two frees of one block on two threads at the
 * same moment may both see it out: see pool_lost.c. */
#include "pool_hit.h"

#include "internal.h"
#include "resource_parts.h"

/* Makes room in a bin that has two magazines: one goes to the depot, behind a mark, and
 * an event if others may want it. Whether they do is known from the last time, and
 * looked at again under the lock: so that one lock is enough nearly always. */
static void deposit(weir__pool *self, weir__cache *cache, weir__bin *bin)
{
    weir__magazine magazine = {
        .head = bin->full,
        .holder_tag = cache->holder_tag,
        .grains = bin->grains,
        .mark = { cache->clock, 0 }
    };
    const bool was_quiet = cache->is_quiet;
    if (was_quiet) {
        magazine.mark.number = weir__cache_mark(cache, WEIR__MAGAZINE);
    } else {
        magazine.mark = weir__order_mark_closed(self->order, cache->clock);
        cache->unclosed = 0;
    }
    cache->bytes -= weir__magazine_bytes(&magazine);
    bin->full = 0;
    weir__mutex_lock(&self->lock);
    self->releases += WEIR__MAGAZINE;
    weir__cache_note_quiet_locked(self, cache);
    if (was_quiet && !cache->is_quiet) {
        weir__mutex_unlock(&self->lock);
        weir__cache_close(self, cache);
        weir__mutex_lock(&self->lock);
    }
    weir__depot_put(&self->depot, magazine);
    while (weir__depot_is_full(&self->depot) || self->depot.bytes > self->cache_bytes)
        weir__pool_drain_locked(self);
    weir__mutex_unlock(&self->lock);
}

/* What was spilt is too much. */
static void relieve(weir__pool *self, weir__cache *cache)
{
    weir__mutex_lock(&self->lock);
    weir__cache_settle_spilt_locked(self, cache);
    weir__mutex_unlock(&self->lock);
    weir__cache_close_sometimes(self, cache);
}

/* What was spilt goes anyway. */
static inline bool has_too_much(const weir__cache *cache)
{
    return cache->bytes - cache->spill.bytes > cache->most_bytes;
}

void weir__seat_shrink(weir__pool *self, const weir__seat *seat)
{
    for (uint32_t at = 0; at <= seat->mask; at++) {
        weir__cache *cache = seat->caches[at];
        if (cache == NULL || cache->bytes <= cache->most_bytes)
            continue;
        cache->most_bytes /= 2; /* with room for what is large, which makes none */
        for (uint32_t i = 0; i < WEIR__BINS && has_too_much(cache); i++)
            weir__cache_make_room(cache, &self->heap.view, 1);
        relieve(self, cache);
        if (cache->bytes > cache->most_bytes)
            (void)weir__cache_empty(self, cache);
        cache->most_bytes = self->cache_bytes;
    }
}

/* Whether the thread has only given back on that stream for a while, be it that others
 * allocate, or that it does on another one, or that the cache had nothing for it. */
static inline bool is_pouring(weir__cache *cache)
{
    if (cache->pours_from != cache->allocations) {
        cache->pours_from = cache->allocations;
        cache->pours = 0;
    }
    return cache->pours++ >= WEIR__POUR_AFTER;
}

/* Whether there is room after that for a block that counts already. But as long as what
 * was spilt is there, bins that have more than their share make room as well. From
 * where nothing is taken all goes, to coalesce; where blocks have nothing to spare, for
 * room is short, once the bins are full and that is kept, but large ones drive nothing
 * out there. */
static bool make_room(const weir__pool *self, weir__cache *cache, uint32_t grains)
{
    const bool is_short =
        atomic_load_explicit(&self->spare_grains, memory_order_relaxed) == 0;
    if (!is_short && is_pouring(cache)) {
        weir__cache_spill_all(cache, &self->heap.view);
        return false;
    }
    if (!is_short)
        weir__cache_make_room(cache, &self->heap.view, grains);
    const bool is_kept = !has_too_much(cache);
    if (is_kept || grains > WEIR__LARGE_GRAINS)
        return is_kept;
    cache->passed = is_short ? WEIR__PASSED_MOST : cache->passed + 1;
    return is_short;
}

static inline void put_back(weir__pool *self, weir__cache *cache,
                            weir__heap_block *block, uint32_t id, void *ptr,
                            uint32_t grains)
{
    weir__bin *bin = weir__cache_bin(cache, grains);
    bool is_kept = bin->grains == grains;
    cache->bytes += weir__grains_size(grains);
    if (cache->bytes > cache->most_bytes && is_kept)
        is_kept = make_room(self, cache, grains);
    if (WEIR_LIKELY(is_kept)) {
        if (WEIR_UNLIKELY(!weir__bin_push(bin, block, id, ptr, cache->holder_tag))) {
            deposit(self, cache, bin);
            (void)weir__bin_push(bin, block, id, ptr, cache->holder_tag);
        }
    } else {
        weir__cache_spill(cache, block, id);
    }
    if (WEIR_UNLIKELY(cache->bytes > cache->most_bytes ||
                      cache->spill.count >= WEIR__SPILL_MOST))
        relieve(self, cache);
    if (WEIR_UNLIKELY(cache->passed >= WEIR__PASSED_MOST)) {
        cache->passed = 0;
        (void)weir__cache_empty(self, cache);
    }
}

/* What the block is has been looked at. */
static WEIR_NOINLINE bool put_back_and_leave(weir__pool *self, weir__cache *cache,
                                             weir__heap_block *block, uint32_t id,
                                             void *ptr, size_t bytes)
{
    weir__seat *seat = weir__own_thread.seat;
    weir__tally_back(&seat->tally, &cache->deallocations, bytes);
    put_back(self, cache, block, id, ptr, weir__heap_grains(block));
    weir__gate_leave(&seat->gate);
    return true;
}

/* All that is not simply put on its stack; this leaves the gate. */
static inline bool put_back_any(weir__pool *self, weir__cache *cache,
                                weir__heap_block *block, uint32_t id, void *ptr,
                                size_t bytes, size_t alignment)
{
    return weir__pool_is_large(bytes)
               ? weir__pool_put_back_large(cache, block, id, ptr, bytes, alignment)
               : put_back_and_leave(self, cache, block, id, ptr, bytes);
}

bool weir__pool_deallocate(void *context, weir_stream stream, void *ptr, size_t bytes,
                           size_t alignment)
{
    weir__pool *self = context;
    weir__seat *seat = weir__seat_here(self);
    if (WEIR_LIKELY(seat != NULL && bytes <= self->gate_bytes &&
                    weir__gate_enter(&seat->gate))) {
        weir__cache *cache = weir__cache_find(seat, weir__stream_of(stream));
        if (WEIR_UNLIKELY(cache == NULL)) {
            seat->wanted = weir__stream_of(stream);
            weir__gate_leave(&seat->gate);
        } else {
            weir__found it = weir__pool_look_up_out(self, ptr, bytes, alignment);
            if (it.block != NULL)
                return put_back_any(self, cache, it.block, it.id, ptr, bytes,
                                    alignment);
            weir__gate_leave(&seat->gate);
        }
    }
    return weir__pool_deallocate_slowly(self, stream, ptr, bytes, alignment);
}

/* What is simply put on the stack of its bin, or on the spill list, inside of the gate,
 * which it leaves; else all is done that there is to do. */
static WEIR_INLINE bool put_on_stack(weir__pool *self, weir__seat *seat,
                                     weir__cache *cache, weir__bin *bin,
                                     weir__heap_block *block, uint32_t id, void *ptr,
                                     size_t bytes, size_t alignment)
{
    const uint32_t grains = weir__heap_grains(block);
    const size_t held = cache->bytes + weir__grains_size(grains);
    if (WEIR_UNLIKELY(held > cache->most_bytes))
        return put_back_any(self, cache, block, id, ptr, bytes, alignment);
    if (WEIR_LIKELY(bin->grains == grains && bin->count != WEIR__MAGAZINE))
        (void)weir__bin_push(bin, block, id, ptr, cache->holder_tag);
    else if (bin->grains != grains && cache->spill.count + 1 < WEIR__SPILL_MOST &&
             !weir__pool_is_large(bytes))
        weir__cache_spill(cache, block, id);
    else
        return put_back_any(self, cache, block, id, ptr, bytes, alignment);
    cache->bytes = held;
    weir__tally_back(&seat->tally, &cache->deallocations, bytes);
    weir__gate_leave_alone(&seat->gate);
    return true;
}

/* Inside of the gate, which it leaves. */
static WEIR_INLINE bool look_up_and_put_back(weir__cache *cache, weir__seat *seat,
                                             void *ptr, size_t bytes, size_t alignment)
{
    weir__pool *self = seat->pool;
    const weir_stream stream = cache->alias;
    weir__found it = { 0 };
    if (WEIR_LIKELY(bytes <= self->gate_bytes))
        it = weir__pool_look_up_out(self, ptr, bytes, alignment);
    if (WEIR_LIKELY(it.block != NULL)) {
        /* By what was asked for, so that it is loaded while the block still is; unless
         * that has blocks of another size, as where this one was lent. */
        weir__bin *bin = weir__cache_bin(cache, weir__grains_of(bytes));
        const uint32_t grains = weir__heap_grains(it.block);
        if (WEIR_UNLIKELY(bin->grains != grains))
            bin = weir__cache_bin(cache, grains);
        return put_on_stack(self, seat, cache, bin, it.block, it.id, ptr, bytes,
                            alignment);
    }
    weir__gate_leave(&seat->gate);
    return weir__deallocate_rest(self->mr, stream, ptr, bytes, alignment);
}

/* What this thread has not handed out lately. Who hits passes on no more than this. */
static WEIR_NOINLINE bool deallocate_inside(weir__cache *cache, weir__seat *seat,
                                            void *ptr, size_t bytes)
{
    return look_up_and_put_back(cache, seat, ptr, bytes, WEIR_ALIGNMENT);
}

/* The same of another alignment. */
static WEIR_NOINLINE bool deallocate_aligned(weir__cache *cache, weir__seat *seat,
                                             void *ptr, size_t bytes, size_t alignment)
{
    return look_up_and_put_back(cache, seat, ptr, bytes, alignment);
}

/* The same where the stream's cache may be anywhere, or nowhere. */
static WEIR_NOINLINE bool find_and_deallocate(weir_resource *mr, weir_stream stream,
                                              void *ptr, size_t bytes,
                                              size_t alignment)
{
    weir__seat *seat = weir__own_thread.seat;
    weir__cache *cache = weir__cache_fetch(seat, &seat->back_to, stream);
    if (WEIR_LIKELY(cache != NULL))
        return deallocate_aligned(cache, seat, ptr, bytes, alignment);
    weir__gate_leave(&seat->gate);
    return weir__deallocate_rest(mr, stream, ptr, bytes, alignment);
}

/* What this thread has handed out lately, but is not simply put on the stack of its
 * bin; inside of the gate, which it leaves. */
static WEIR_NOINLINE bool put_back_known(weir__cache *cache, weir__seat *seat,
                                         void *ptr, size_t bytes, uint32_t id)
{
    weir__pool *self = seat->pool;
    weir__heap_block *block = weir__heap_at(&self->heap.view, id);
    if (weir__pool_is_large(bytes))
        return weir__pool_put_back_large(cache, block, id, ptr, bytes, WEIR_ALIGNMENT);
    weir__bin *bin = weir__cache_bin(cache, weir__heap_grains(block));
    return put_on_stack(self, seat, cache, bin, block, id, ptr, bytes, WEIR_ALIGNMENT);
}

/* Whether a record is that of the block at `ptr`, which is out, and so much was asked
 * for, aligned as most is; and how large it is. */
static WEIR_INLINE bool is_out_at(const weir__heap_block *block, const void *ptr,
                                  size_t bytes, size_t *size)
{
    const uint64_t head =
        weir__heap_head(ptr, weir__heap_out_tag(bytes, WEIR_ALIGNMENT));
    if (WEIR_UNLIKELY(!weir__heap_may_begin(ptr)) ||
        WEIR_UNLIKELY(!weir__heap_is_still(block, head)))
        return false;
    *size = weir__heap_bytes(block);
    return weir__heap_fits_asked(*size, bytes);
}

/* To the stream's cache; inside of the gate, which it leaves. */
static WEIR_INLINE bool put_back_to(const weir__pool *self, weir__cache *cache,
                                    weir__seat *seat, void *ptr, size_t bytes)
{
    const weir__recent *recent = weir__recent_of(seat, ptr);
    const uint32_t id = recent->id;
    weir__heap_block *block = weir__heap_at(&self->heap.view, id);
    size_t size;
    if (WEIR_UNLIKELY(!is_out_at(block, ptr, bytes, &size)))
        return deallocate_inside(cache, seat, ptr, bytes);

    weir__bin *bin = weir__bin_at(cache, recent->bin);
    if (WEIR_UNLIKELY(weir__grains_size(bin->grains) != size ||
                      bin->count == WEIR__MAGAZINE))
        return put_back_known(cache, seat, ptr, bytes, id);
    const size_t held = cache->bytes + size;
    if (WEIR_UNLIKELY(held > cache->most_bytes))
        return put_back_known(cache, seat, ptr, bytes, id);
    (void)weir__bin_push(bin, block, id, ptr, cache->holder_tag);
    cache->bytes = held;
    weir__tally_back(&seat->tally, &cache->deallocations, bytes);
    weir__gate_leave_alone(&seat->gate);
    return true;
}

static WEIR_INLINE bool hit_back(weir_resource *mr, weir_stream stream, void *ptr,
                                 size_t bytes, size_t alignment, bool fences)
{
    weir__pool *self = mr->self;
    weir__seat *seat = weir__own_thread.seat;
    if (WEIR_UNLIKELY(!weir__seat_is_quick(seat, self) ||
                      !weir__gate_enter_as(&seat->gate, fences)))
        return weir__deallocate_rest(mr, stream, ptr, bytes, alignment);

    weir__cache *cache = weir__cache_near(seat, &seat->back_to, stream);
    if (WEIR_UNLIKELY(cache == NULL))
        return find_and_deallocate(mr, stream, ptr, bytes, alignment);
    if (WEIR_UNLIKELY(alignment != WEIR_ALIGNMENT))
        return deallocate_aligned(cache, seat, ptr, bytes, alignment);
    return put_back_to(self, cache, seat, ptr, bytes);
}

bool weir__pool_hit_back(weir_resource *mr, weir_stream stream, void *ptr, size_t bytes,
                         size_t alignment)
{
    return hit_back(mr, stream, ptr, bytes, alignment, false);
}

bool weir__pool_hit_back_fenced(weir_resource *mr, weir_stream stream, void *ptr,
                                size_t bytes, size_t alignment)
{
    return hit_back(mr, stream, ptr, bytes, alignment, true);
}

/* Whoever ends the stream has to pass this gate before that, and to empty the cache.
 * What is found to be no block's then has been told. */
bool weir__pool_hit_back_of(weir_resource *mr, weir_stream stream, uint64_t clock,
                            void *ptr, size_t bytes, size_t alignment)
{
    weir__pool *self = mr->self;
    weir__seat *seat = weir__own_thread.seat;
    if (WEIR_UNLIKELY(!weir__seat_is_quick(seat, self) || bytes > self->gate_bytes ||
                      !weir__gate_enter(&seat->gate)))
        return false;
    weir__cache *cache = weir__cache_find(seat, weir__stream_of(stream));
    weir__found it = { 0 };
    if (WEIR_LIKELY(cache != NULL && cache->clock == clock)) {
        const weir__recent *recent = weir__recent_of(seat, ptr);
        const weir__heap_block *block = weir__heap_at(&self->heap.view, recent->id);
        size_t size;
        if (alignment == WEIR_ALIGNMENT &&
            is_out_at(block, ptr, bytes, &size)) {
            (void)put_back_known(cache, seat, ptr, bytes, recent->id);
            return true;
        }
        it = weir__pool_look_up_out(self, ptr, bytes, alignment);
    }
    if (WEIR_LIKELY(it.block != NULL)) {
        (void)put_back_any(self, cache, it.block, it.id, ptr, bytes, alignment);
        return true;
    }
    weir__gate_leave(&seat->gate);
    return false;
}
