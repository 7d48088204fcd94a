/* pool_hit.c - allocations and deallocations that a thread's own cache serves.
 *
 * The way of a request, inside of the thread's gate:
 *     hit     a block of that size on its stack: no lock, no read-modify-write, no line
 *             that another thread writes, no call
 *     lent    one of the next larger size, where the cache is nearly full: as cheap
 *     refill  under the pool's lock, from the depot or the heap: see pool_refill.c
 * What is too large for any stack takes that lock, unless it has the size of one that
 * was freed right before: see pool_large.c.
 * What none of these serves leaves the gate and goes the whole way, in pool.c; what
 * waits for another stream or asks for host memory is an errand for outside of the
 * gate: another stream's magazine that is to be waited for, a cache, a seat for a
 * thread that only gives back.
 *
 * A free is judged by the block's record alone, found without a lock (where it was when
 * the block went out, or by its address): its tag says that it is out, and what was
 * asked for. Whatever is not as it should be goes the slow way, which looks again under
 * the lock and knows what the matter is. Two frees of one block on two threads at the
 * same moment may both see it out: see pool_lost.c. */
#include "pool_hit.h"

#include "device/device.h"
#include "internal.h"
#include "resource_parts.h"

static inline uint32_t grains_of(size_t bytes)
{
    return (uint32_t)((bytes + (WEIR__HEAP_GRAIN - 1)) >> WEIR__HEAP_GRAIN_BITS);
}

/* How many a request gets, and the bin for these. Relaxed: any will do. */
static inline weir__bin *bin_for(const weir__pool *self, weir__cache *cache,
                                 size_t bytes, uint32_t *grains)
{
    uint32_t spare = atomic_load_explicit(&self->spare_grains, memory_order_relaxed);
    *grains = weir__class_up(grains_of(bytes), spare);
    return weir__cache_bin(cache, *grains);
}

/* ---- tallies ---- */

void weir__pool_count_out(weir__pool *self, size_t bytes)
{
    weir__seat *seat = weir__seat_here(self);
    if (seat != NULL && weir__gate_enter(&seat->gate)) {
        weir__tally_out(&seat->tally, bytes);
        weir__gate_leave(&seat->gate);
        return;
    }
    weir_resource_statistics *counts = &self->counts;
    weir__mutex_lock(&self->lock);
    counts->allocations++;
    counts->out_blocks++;
    counts->out_bytes += bytes;
    weir__pool_note_peak_locked(self, (int64_t)counts->out_bytes);
    weir__mutex_unlock(&self->lock);
}

void weir__pool_count_back(weir__pool *self, size_t bytes)
{
    weir__seat *seat = weir__seat_here(self);
    if (seat != NULL && weir__gate_enter(&seat->gate)) {
        weir__tally_back(&seat->tally, bytes);
        weir__gate_leave(&seat->gate);
        return;
    }
    weir__mutex_lock(&self->lock);
    self->counts.deallocations++;
    self->counts.out_blocks--;
    self->counts.out_bytes -= bytes;
    weir__mutex_unlock(&self->lock);
}

/* ---- out ---- */

void weir__pool_learn_dropped(weir__pool *self)
{
    weir__mutex_lock(&self->lock);
    weir__pool_learn_dropped_locked(self);
    weir__mutex_unlock(&self->lock);
}

/* The block on top of a bin that is not empty, as the caller's. False: what is there is
 * somebody else's. */
static WEIR_INLINE bool take_top(weir__pool *self, weir__seat *seat,
                                 weir__cache *cache, weir__bin *bin, size_t bytes,
                                 size_t alignment, void **out)
{
    weir__heap_block *block = bin->top;
    const uint64_t base = weir__heap_untagged(block, cache->holder_tag);
    if (WEIR_UNLIKELY((base & WEIR__TAG_MASK) != 0))
        return false;
    const size_t size = weir__grains_size(bin->grains);
    const uint64_t head = base | weir__heap_out_tag_in(size, bytes, alignment);
    void *ptr = bin->ptr;
    *out = ptr;
    weir__recent_set(seat, ptr, bin->top_id, head, alignment,
                     weir__bin_offset(cache, bin));
    const uint32_t below = weir__link_of(block);
    weir__link_set(block, cache->owner);
    weir__heap_set_head(block, head);
    weir__bin_drop(bin, &self->heap.view, below);
    cache->bytes -= size;
    cache->taken++;
    weir__tally_out(&seat->tally, bytes);
    return true;
}

/* Whether a request may have a block of the next larger size instead of one of its own,
 * of which there is none: where bins have nearly all that is kept, one more would drive
 * out another. As long as there is room it is had for good, and there the next time. */
static inline bool may_have_next(const weir__pool *self, const weir__cache *cache,
                                 const weir__bin *next, size_t bytes)
{
    const size_t kept = cache->bytes - cache->spill.bytes;
    if (next == cache->bins + WEIR__BINS ||
        kept <= self->cache_bytes - self->cache_bytes / WEIR__NEARLY_SHARE)
        return false;
    const uint32_t need = grains_of(bytes), more = next->grains - need;
    return more <= need / WEIR__NEXT_SHARE &&
           more <= atomic_load_explicit(&self->spare_grains, memory_order_relaxed);
}

/* The bin that has a block for the request: its own, or the next; or null. */
static inline weir__bin *bin_that_has(const weir__pool *self, const weir__cache *cache,
                                      weir__bin *bin, size_t bytes)
{
    const weir__heap_view *view = &self->heap.view;
    if (weir__bin_is_ready(bin, view))
        return bin;
    return may_have_next(self, cache, bin + 1, bytes) &&
                   weir__bin_is_ready(bin + 1, view)
               ? bin + 1
               : NULL;
}

/* What is no plain hit: from the second magazine, which becomes the first, of the next
 * larger size, or by a refill. */
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
        done = take_top(self, seat, cache, has, bytes, alignment, out);
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
            weir__tally_out(&seat->tally, bytes);
        else if (loads && bin->count != 0)
            done = take_top(self, seat, cache, bin, bytes, alignment, out);
    }
    return done;
}

/* The stream's cache, which may be anywhere, and is at hand then; or null. */
static inline weir__cache *find_cache(const weir__seat *seat, weir__cache **at_hand,
                                      weir_stream stream)
{
    weir__cache *cache = weir__cache_find(seat, weir__stream_of(stream));
    *at_hand = cache != NULL ? cache : &weir__no_cache;
    return cache;
}

/* All that is no plain hit and not large, inside of the gate, which it leaves; of any
 * size if there is no cache. */
static WEIR_NOINLINE weir_status allocate_inside(weir__pool *self, weir_stream stream,
                                                 size_t bytes, size_t alignment,
                                                 void **out, weir__cache *cache)
{
    weir__seat *seat = weir__own_thread.seat;
    weir__errand after = { 0 };
    void *ptr = NULL;
    bool done = false;
    if (WEIR_LIKELY(cache != NULL)) {
        done = hit_or_refill(self, seat, cache, bytes, alignment, &ptr, &after);
        if (WEIR_UNLIKELY(self->listens) && done)
            weir__pool_learn_dropped(self);
    }
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
    return cache != NULL && weir__pool_is_large(bytes)
               ? weir__pool_allocate_large(self, stream, bytes, alignment, out, cache)
               : allocate_inside(self, stream, bytes, alignment, out, cache);
}

/* The same where the stream's cache may be anywhere. */
static WEIR_NOINLINE weir_status find_and_allocate(weir__pool *self, weir_stream stream,
                                                   size_t bytes, size_t alignment,
                                                   void **out)
{
    weir__seat *seat = weir__own_thread.seat;
    weir__cache *cache = find_cache(seat, &seat->out_of, stream);
    return allocate_with(self, stream, bytes, alignment, out, cache);
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

/* Whether the calling thread's seat is one in the pool, and may be used quickly. */
static inline bool is_quick(const weir__seat *seat, const weir__pool *self)
{
    return WEIR_LIKELY(seat->quick == self);
}

/* The stream's cache, if it is the one at hand or at its first place; behind the
 * gate. */
static inline weir__cache *near_cache(const weir__seat *seat, weir__cache **at_hand,
                                      weir_stream stream)
{
    weir__cache *cache = *at_hand;
    if (WEIR_LIKELY(cache->stream == stream || cache->alias == stream))
        return cache;
    weir__cache *near = weir__cache_probe(seat, stream);
    if (WEIR_UNLIKELY(cache == &weir__no_cache) && near != NULL)
        *at_hand = near;
    return near;
}

/* What is no plain hit by its arguments, or is refused at the gate. */
static WEIR_NOINLINE weir_status hit_any(weir_resource *mr, weir_stream stream,
                                         size_t bytes, size_t alignment, void **out)
{
    weir__pool *self = mr->self;
    weir__seat *seat = weir__own_thread.seat;
    if (WEIR_UNLIKELY(!is_quick(seat, self) || bytes - 1 >= self->gate_bytes ||
                      alignment != WEIR_ALIGNMENT || out == NULL ||
                      weir__device_is_lost(self->device) ||
                      !weir__gate_enter(&seat->gate)))
        return weir__allocate_rest(mr, stream, bytes, alignment, out);
    weir__cache *cache = near_cache(seat, &seat->out_of, stream);
    return WEIR_LIKELY(cache != NULL)
               ? allocate_with(self, stream, bytes, alignment, out, cache)
               : find_and_allocate(self, stream, bytes, alignment, out);
}

static WEIR_INLINE weir_status hit(weir_resource *mr, weir_stream stream, size_t bytes,
                                   size_t alignment, void **out, bool fences)
{
    weir__pool *self = mr->self;
    weir__seat *seat = weir__own_thread.seat;
    if (WEIR_UNLIKELY(!is_quick(seat, self) || bytes - 1 >= self->hit_bytes ||
                      alignment != WEIR_ALIGNMENT || out == NULL ||
                      weir__device_is_lost(self->device) ||
                      !weir__gate_enter_as(&seat->gate, fences)))
        return hit_any(mr, stream, bytes, alignment, out);

    weir__cache *cache = near_cache(seat, &seat->out_of, stream);
    if (WEIR_UNLIKELY(cache == NULL))
        return find_and_allocate(self, stream, bytes, alignment, out);
    const uint32_t below = (uint32_t)((bytes - 1) >> WEIR__HEAP_GRAIN_BITS);
    weir__bin *bin = &cache->bins[weir__cache_index_above(below)];
    /* Nothing smaller than the request, and no larger than it may be at the moment. */
    uint32_t spare = atomic_load_explicit(&self->spare_grains, memory_order_relaxed);
    if (WEIR_UNLIKELY(bin->grains - 1 - below > spare || bin->count == 0 ||
                      !take_top(self, seat, cache, bin, bytes, WEIR_ALIGNMENT, out)))
        return allocate_inside(self, stream, bytes, alignment, out, cache);
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

/* ---- back ---- */

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
    cache->is_quiet = weir__pool_is_quiet_locked(self);
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

/* Whether the thread has only given back on that stream for a while, be it that others
 * allocate, or that it does on another one. */
static inline bool is_pouring(weir__cache *cache)
{
    if (cache->pours_from != cache->taken) {
        cache->pours_from = cache->taken;
        cache->pours = 0;
    }
    return cache->pours++ >= WEIR__POUR_AFTER;
}

/* Whether there is room after that for a block that counts already. What is spilt goes
 * anyway; but as long as it is there, bins that have more than their share make room as
 * well. From where nothing is taken all goes, to coalesce; where the pool is short once
 * the bins are full and that is kept, but large ones drive nothing out there. */
static bool make_room(const weir__pool *self, weir__cache *cache, uint32_t grains)
{
    const bool is_short =
        atomic_load_explicit(&self->spare_grains, memory_order_relaxed) == 0;
    if (!is_short && is_pouring(cache)) {
        weir__cache_spill_all(cache, &self->heap.view);
        return false;
    }
    if (!is_short)
        weir__cache_make_room(cache, &self->heap.view, grains, self->cache_bytes);
    const bool is_kept = cache->bytes - cache->spill.bytes <= self->cache_bytes;
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
    cache->dry = 0;
    cache->bytes += weir__grains_size(grains);
    if (cache->bytes > self->cache_bytes && is_kept)
        is_kept = make_room(self, cache, grains);
    if (WEIR_LIKELY(is_kept)) {
        if (WEIR_UNLIKELY(!weir__bin_push(bin, block, id, ptr, cache->holder_tag))) {
            deposit(self, cache, bin);
            (void)weir__bin_push(bin, block, id, ptr, cache->holder_tag);
        }
    } else {
        weir__cache_spill(cache, block, id);
    }
    if (WEIR_UNLIKELY(cache->bytes > self->cache_bytes ||
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
    weir__tally_back(&seat->tally, bytes);
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
    if (WEIR_UNLIKELY(held > self->cache_bytes))
        return put_back_any(self, cache, block, id, ptr, bytes, alignment);
    if (WEIR_LIKELY(bin->grains == grains && bin->count != WEIR__MAGAZINE))
        (void)weir__bin_push(bin, block, id, ptr, cache->holder_tag);
    else if (bin->grains != grains && cache->spill.count + 1 < WEIR__SPILL_MOST &&
             !weir__pool_is_large(bytes))
        weir__cache_spill(cache, block, id);
    else
        return put_back_any(self, cache, block, id, ptr, bytes, alignment);
    cache->dry = 0;
    cache->bytes = held;
    weir__tally_back(&seat->tally, bytes);
    weir__gate_leave_alone(&seat->gate);
    return true;
}

/* What this thread has not handed out lately; inside of the gate, which it leaves. The
 * stream's cache; null: it may have one, but not at its first place. */
static WEIR_NOINLINE bool deallocate_inside(weir_resource *mr, weir_stream stream,
                                            void *ptr, size_t bytes, size_t alignment,
                                            weir__cache *cache)
{
    weir__pool *self = mr->self;
    weir__seat *seat = weir__own_thread.seat;
    weir__found it = { 0 };
    if (WEIR_UNLIKELY(cache == NULL))
        cache = find_cache(seat, &seat->back_to, stream);
    if (WEIR_LIKELY(cache != NULL && bytes <= self->gate_bytes))
        it = weir__pool_look_up_out(self, ptr, bytes, alignment);
    if (WEIR_LIKELY(it.block != NULL)) {
        /* By what was asked for, so that it is loaded while the block still is; unless
         * that has blocks of another size, as where this one was lent. */
        weir__bin *bin = weir__cache_bin(cache, grains_of(bytes));
        const uint32_t grains = weir__heap_grains(it.block);
        if (WEIR_UNLIKELY(bin->grains != grains))
            bin = weir__cache_bin(cache, grains);
        return put_on_stack(self, seat, cache, bin, it.block, it.id, ptr, bytes,
                            alignment);
    }
    weir__gate_leave(&seat->gate);
    return weir__deallocate_rest(mr, stream, ptr, bytes, alignment);
}

/* Whether what comes back is not the block that its place knows. */
static WEIR_INLINE bool is_another(const weir__heap_block *block, uint64_t head,
                                   const void *ptr, size_t bytes, size_t alignment)
{
    return weir__heap_head_base(head) != (uintptr_t)ptr ||
           alignment != WEIR_ALIGNMENT || !weir__heap_is_still(block, head) ||
           weir__heap_asked_bytes(block, (uint32_t)head) != bytes;
}

static WEIR_INLINE bool hit_back(weir_resource *mr, weir_stream stream, void *ptr,
                                 size_t bytes, size_t alignment, bool fences)
{
    weir__pool *self = mr->self;
    weir__seat *seat = weir__own_thread.seat;
    if (WEIR_UNLIKELY(!is_quick(seat, self) ||
                      !weir__gate_enter_as(&seat->gate, fences)))
        return weir__deallocate_rest(mr, stream, ptr, bytes, alignment);

    weir__cache *cache = near_cache(seat, &seat->back_to, stream);
    if (WEIR_UNLIKELY(cache == NULL))
        return deallocate_inside(mr, stream, ptr, bytes, alignment, cache);
    const weir__recent *recent = weir__recent_of(seat, ptr);
    weir__heap_block *block = weir__heap_at(&self->heap.view, recent->id);
    if (is_another(block, recent->head, ptr, bytes, alignment))
        return deallocate_inside(mr, stream, ptr, bytes, alignment, cache);
    weir__bin *bin = weir__bin_at(cache, recent->bin);
    return put_on_stack(self, seat, cache, bin, block, recent->id, ptr, bytes,
                        WEIR_ALIGNMENT);
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
    if (WEIR_UNLIKELY(!is_quick(seat, self) || bytes > self->gate_bytes ||
                      !weir__gate_enter(&seat->gate)))
        return false;
    weir__cache *cache = weir__cache_find(seat, weir__stream_of(stream));
    weir__found it = { 0 };
    if (WEIR_LIKELY(cache != NULL && cache->clock == clock)) {
        const weir__recent *recent = weir__recent_of(seat, ptr);
        weir__heap_block *block = weir__heap_at(&self->heap.view, recent->id);
        if (!is_another(block, recent->head, ptr, bytes, alignment)) {
            (void)put_on_stack(self, seat, cache, weir__bin_at(cache, recent->bin),
                               block, recent->id, ptr, bytes, WEIR_ALIGNMENT);
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
