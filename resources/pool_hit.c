/* pool_hit.c - allocations and deallocations that a thread's own cache serves.
 *
 * The way of a request, inside of the thread's gate:
 *     hit     a block of that size on its stack: no lock, no read-modify-write, no line
 *             that another thread writes, no call
 *     refill  under the pool's lock, from the depot or the heap: see pool_refill.c
 * What neither serves leaves the gate and goes the whole way, in pool.c; what waits for
 * another stream or asks for host memory is an errand for outside of the gate: a
 * magazine of another stream's, a cache, a seat for a thread that only gives back.
 *
 * A free is judged by the block's record alone, found without a lock (where it was when
 * the block went out, or by its address): its tag says that it is out, and what was
 * asked for. Whatever is not as it should be goes the slow way, which looks again under
 * the lock and knows what the matter is. Two frees of one block on two threads at the
 * same moment may both see it out: see pool_lost.c. */
#include "pool_hit.h"

#include "internal.h"
#include "pool_internal.h"
#include "pool_seats.h"

static weir__heap_view *view_of(weir__pool *self)
{
    return &self->heap.view;
}

static inline uint32_t grains_of(size_t bytes)
{
    return (uint32_t)((bytes + (WEIR__HEAP_GRAIN - 1)) >> WEIR__HEAP_GRAIN_BITS);
}

/* How many a request gets, and the bin for these. Relaxed: any will do. */
static inline weir__bin *bin_for(const weir__pool *self, weir__cache *cache,
                                 size_t bytes, uint32_t *grains)
{
    uint32_t spare = atomic_load_explicit(&self->spare_grains, memory_order_relaxed);
    return weir__cache_bin_for(cache, grains_of(bytes), spare, grains);
}

/* ---- tallies ---- */

static inline void tally_out(weir__tally *tally, size_t bytes)
{
    tally->allocations++;
    tally->out_bytes += (int64_t)bytes;
    if (tally->peak_bytes < tally->out_bytes)
        tally->peak_bytes = tally->out_bytes;
}

static inline void tally_back(weir__tally *tally, size_t bytes)
{
    tally->deallocations++;
    tally->out_bytes -= (int64_t)bytes;
}

void weir__pool_count_out(weir__pool *self, size_t bytes)
{
    weir__seat *seat = weir__seat_here(self);
    if (seat != NULL && weir__gate_enter(&seat->gate)) {
        tally_out(&seat->tally, bytes);
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
        tally_back(&seat->tally, bytes);
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

/* The outermost call is noted by the core; here, what is known of marks that were
 * dropped. */
static WEIR_COLD void learn_dropped(weir__pool *self)
{
    weir__mutex_lock(&self->lock);
    weir__pool_learn_dropped_locked(self);
    weir__mutex_unlock(&self->lock);
}

/* A block off the stack is the caller's. Returns its tag. */
static inline uint32_t hand_out(weir__seat *seat, weir__cache *cache,
                                weir__heap_block *block, uint32_t grains, size_t bytes,
                                size_t alignment)
{
    weir__link_set(block, cache->owner);
    uint32_t tag = weir__heap_set_tag(
        block, weir__heap_out_tag_in(weir__grains_size(grains), bytes, alignment));
    cache->bytes -= weir__grains_size(grains);
    tally_out(&seat->tally, bytes);
    return tag;
}

/* The bin is the one for `grains` grains. False: it has another size (so it is with all
 * that are too large), or none on top, or what is there is somebody else's. */
static inline bool hit_bin(weir__pool *self, weir__seat *seat, weir__cache *cache,
                           weir__bin *bin, uint32_t grains, size_t bytes,
                           size_t alignment, void **out)
{
    if (WEIR_UNLIKELY(bin->grains != grains || bin->count == 0 ||
                      weir__heap_low_tag(bin->top) != cache->holder_tag))
        return false;
    void *ptr = bin->ptr;
    weir__recent *recent = weir__recent_of(cache, ptr);
    *recent = (weir__recent){ .ptr = ptr, .bytes = bytes, .id = bin->top_id,
                              .alignment = (uint32_t)alignment,
                              .bin = (uint32_t)(bin - cache->bins), .block = bin->top };
    recent->tag = hand_out(seat, cache, weir__bin_pop(bin, view_of(self)), grains,
                           bytes, alignment);
    *out = ptr;
    return true;
}

static inline bool hit(weir__pool *self, weir__seat *seat, weir__cache *cache,
                       size_t bytes, size_t alignment, void **out)
{
    uint32_t grains;
    weir__bin *bin = bin_for(self, cache, bytes, &grains);
    return hit_bin(self, seat, cache, bin, grains, bytes, alignment, out);
}

/* What is no plain hit: from the second magazine, which becomes the first, or by a
 * refill; and what the ledger has to hear. */
static inline bool hit_or_refill(weir__pool *self, weir__seat *seat, weir__cache *cache,
                                 size_t bytes, size_t alignment, void **out,
                                 weir__errand *after)
{
    uint32_t grains;
    weir__bin *bin = bin_for(self, cache, bytes, &grains);
    bool done = false;
    if (bin->grains != grains) {
        if (grains <= WEIR__CACHED_GRAINS)
            (void)weir__cache_claim(cache, view_of(self), grains);
    } else if (weir__bin_is_ready(bin, view_of(self))) {
        done = hit_bin(self, seat, cache, bin, grains, bytes, alignment, out);
        if (WEIR_UNLIKELY(!done))
            weir__cache_give_up(cache, bin);
    }
    if (!done) {
        bool loads;
        after->wanted = seat->wanted;
        seat->wanted = NULL;
        *out = weir__pool_refill(self, cache, grains, bytes, alignment, &loads, after);
        done = *out != NULL;
        if (done)
            tally_out(&seat->tally, bytes);
        else if (loads)
            done = hit_bin(self, seat, cache, weir__cache_bin(cache, grains), grains,
                           bytes, alignment, out);
    }
    if (WEIR_UNLIKELY(self->listens) && done)
        learn_dropped(self);
    return done;
}

/* All that is no plain hit, inside of the gate, which it leaves. */
static WEIR_NOINLINE weir_status allocate_inside(weir__pool *self, weir__seat *seat,
                                                 weir__cache *cache, weir_stream stream,
                                                 size_t bytes, size_t alignment,
                                                 void **out)
{
    weir__errand after = { 0 };
    void *ptr = NULL;
    bool done = cache != NULL &&
                hit_or_refill(self, seat, cache, bytes, alignment, &ptr, &after);
    weir__gate_leave(&seat->gate);
    if (WEIR_UNLIKELY(after.wanted != NULL))
        weir__pool_take_seat(self, after.wanted);
    if (WEIR_UNLIKELY(after.lay_by))
        weir__pool_lay_by_seat(self);
    if (WEIR_UNLIKELY(after.surplus && !done))
        done = weir__pool_allocate_surplus(self, stream, bytes, alignment, &ptr);
    weir__pool_tell_lost(self);
    if (WEIR_UNLIKELY(!done))
        return weir__pool_allocate_slowly(self, stream, bytes, alignment, out);
    *out = ptr;
    return WEIR_OK;
}

static WEIR_NOINLINE weir_status allocate_otherwise(weir__pool *self,
                                                    weir_stream stream, size_t bytes,
                                                    size_t alignment, void **out)
{
    weir__seat *seat = weir__seat_here(self);
    if (WEIR_LIKELY(seat != NULL && alignment <= WEIR__HEAP_GRAIN &&
                    bytes <= self->gate_bytes && weir__gate_enter(&seat->gate)))
        return allocate_inside(self, seat,
                               weir__cache_find(seat, weir__stream_of(stream)), stream,
                               bytes, alignment, out);
    weir__pool_tell_lost(self);
    return weir__pool_allocate_slowly(self, stream, bytes, alignment, out);
}

/* The stream's cache, if it is the last that was looked for or at its first place;
 * behind the gate. */
static inline weir__cache *near_cache(weir__seat *seat, weir_stream stream)
{
    weir__cache *last = seat->last;
    if (WEIR_LIKELY(last != NULL && (last->stream == stream || last->alias == stream)))
        return last;
    weir__cache *cache = weir__cache_probe(seat, stream);
    if (WEIR_UNLIKELY(last == NULL))
        seat->last = cache;
    return cache;
}

weir_status weir__pool_allocate(void *context, weir_stream stream, size_t bytes,
                                size_t alignment, void **out)
{
    weir__pool *self = context;
    weir__seat *seat = weir__own_thread.seat;
    if (WEIR_UNLIKELY(seat == NULL || seat->pool != self ||
                      alignment > WEIR__HEAP_GRAIN || bytes > self->hit_bytes ||
                      !weir__gate_enter(&seat->gate)))
        return allocate_otherwise(self, stream, bytes, alignment, out);

    weir__cache *cache = near_cache(seat, stream);
    if (WEIR_UNLIKELY(cache == NULL))
        cache = weir__cache_find(seat, weir__stream_of(stream));
    else if (WEIR_LIKELY(hit(self, seat, cache, bytes, alignment, out))) {
        weir__gate_leave(&seat->gate);
        return WEIR_OK;
    }
    return allocate_inside(self, seat, cache, stream, bytes, alignment, out);
}

/* ---- back ---- */

static void close_now(weir__pool *self, weir__cache *cache)
{
    (void)weir__order_close(self->order, cache->clock);
    cache->unclosed = 0;
}

/* Makes room in a bin that has two magazines: one goes to the depot, behind a mark, and
 * an event if others may want it. Whether they do is known from the last time, and
 * looked at again under the lock: so that one lock is enough nearly always. */
static void deposit(weir__pool *self, weir__cache *cache, weir__bin *bin)
{
    weir__magazine magazine = {
        .head = bin->full,
        .holder_tag = cache->holder_tag,
        .grains = bin->grains,
        .mark = weir__order_mark_here(self->order, cache->clock)
    };
    const bool was_quiet = cache->is_quiet;
    cache->unclosed += WEIR__MAGAZINE;
    if (!was_quiet)
        close_now(self, cache);
    cache->bytes -= weir__magazine_bytes(&magazine);
    bin->full = 0;
    weir__mutex_lock(&self->lock);
    self->releases += WEIR__MAGAZINE;
    cache->is_quiet = weir__pool_is_quiet_locked(self);
    if (was_quiet && !cache->is_quiet) {
        weir__mutex_unlock(&self->lock);
        close_now(self, cache);
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

/* Whether there is room after that for a block that counts already. Where the pool is
 * short all goes, to coalesce, once that is kept; but large ones drive nothing out. */
static bool make_room(const weir__pool *self, weir__cache *cache, uint32_t grains)
{
    bool is_short =
        atomic_load_explicit(&self->spare_grains, memory_order_relaxed) == 0;
    if (is_short && grains <= WEIR__LARGE_GRAINS) {
        cache->passed = WEIR__PASSED_MOST;
        return true;
    }
    if (!is_short)
        weir__cache_make_room(cache, &self->heap.view, grains, self->cache_bytes);
    bool is_kept = cache->bytes - cache->spill.bytes <= self->cache_bytes;
    cache->passed += !is_kept && grains <= WEIR__LARGE_GRAINS;
    return is_kept;
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
                      cache->spill.count >= WEIR__SPILL_MOST ||
                      grains > WEIR__CACHED_GRAINS))
        relieve(self, cache);
    if (WEIR_UNLIKELY(cache->passed >= WEIR__PASSED_MOST)) {
        cache->passed = 0;
        (void)weir__cache_empty(self, cache);
    }
}

/* All that is not simply put on its stack. What the block is has been looked at; this
 * leaves the gate. */
static WEIR_NOINLINE bool put_back_and_leave(weir__pool *self, weir__seat *seat,
                                             weir__cache *cache,
                                             weir__heap_block *block, uint32_t id,
                                             void *ptr, size_t bytes)
{
    tally_back(&seat->tally, bytes);
    put_back(self, cache, block, id, ptr, weir__heap_grains(block));
    weir__gate_leave(&seat->gate);
    return true;
}

/* Whether so many bytes were asked for of a block that is out. */
static inline bool is_of(const weir__heap_block *block, size_t bytes)
{
    return weir__heap_asked_bytes(block, weir__heap_tag(block)) == bytes;
}

static WEIR_NOINLINE bool deallocate_otherwise(weir__pool *self, weir_stream stream,
                                               void *ptr, size_t bytes,
                                               size_t alignment)
{
    weir__seat *seat = weir__seat_here(self);
    if (WEIR_LIKELY(seat != NULL && bytes <= self->gate_bytes &&
                    weir__gate_enter(&seat->gate))) {
        uint32_t id = 0;
        weir__cache *cache = weir__cache_find(seat, weir__stream_of(stream));
        weir__heap_block *block = NULL;
        if (WEIR_LIKELY(cache != NULL))
            block = weir__heap_lookup_tagged(
                view_of(self), ptr, weir__heap_out_tag(bytes, alignment), &id);
        else
            seat->wanted = weir__stream_of(stream);
        if (WEIR_LIKELY(block != NULL && is_of(block, bytes)))
            return put_back_and_leave(self, seat, cache, block, id, ptr, bytes);
        weir__gate_leave(&seat->gate);
    }
    return weir__pool_deallocate_slowly(self, stream, ptr, bytes, alignment);
}

/* The record of a block that is out, of so many bytes, and the bin for it, if there is
 * one; from where they were last, if the block is still as it was. */
static inline weir__heap_block *find_out(weir__pool *self, weir__cache *cache,
                                         const void *ptr, size_t bytes,
                                         size_t alignment, uint32_t *id,
                                         weir__bin **bin)
{
    const weir__recent *recent = weir__recent_of(cache, ptr);
    if (recent->ptr == ptr && recent->bytes == bytes &&
        recent->alignment == alignment &&
        weir__heap_is_still(recent->block, ptr, recent->tag)) {
        *id = recent->id;
        *bin = &cache->bins[recent->bin];
        return recent->block;
    }
    weir__heap_block *block = weir__heap_lookup_tagged(
        view_of(self), ptr, weir__heap_out_tag(bytes, alignment), id);
    if (block == NULL || !is_of(block, bytes))
        return NULL;
    *bin = weir__cache_bin(cache, weir__heap_grains(block));
    return block;
}

bool weir__pool_deallocate(void *context, weir_stream stream, void *ptr, size_t bytes,
                           size_t alignment)
{
    weir__pool *self = context;
    weir__seat *seat = weir__own_thread.seat;
    if (WEIR_UNLIKELY(seat == NULL || seat->pool != self ||
                      bytes > self->hit_bytes || !weir__gate_enter(&seat->gate)))
        return deallocate_otherwise(self, stream, ptr, bytes, alignment);

    uint32_t id = 0;
    weir__cache *cache = near_cache(seat, stream);
    weir__bin *bin = NULL;
    weir__heap_block *block = NULL;
    if (WEIR_LIKELY(cache != NULL))
        block = find_out(self, cache, ptr, bytes, alignment, &id, &bin);
    if (WEIR_UNLIKELY(block == NULL)) {
        weir__gate_leave(&seat->gate);
        return deallocate_otherwise(self, stream, ptr, bytes, alignment);
    }
    const uint32_t grains = weir__heap_grains(block);
    const size_t size = weir__grains_size(grains);
    if (WEIR_UNLIKELY(cache->bytes + size > self->cache_bytes))
        return put_back_and_leave(self, seat, cache, block, id, ptr, bytes);
    if (WEIR_LIKELY(bin->grains == grains && bin->count != WEIR__MAGAZINE))
        (void)weir__bin_push(bin, block, id, ptr, cache->holder_tag);
    else if (bin->grains != grains && grains <= WEIR__CACHED_GRAINS &&
             cache->spill.count + 1 < WEIR__SPILL_MOST)
        weir__cache_spill(cache, block, id);
    else
        return put_back_and_leave(self, seat, cache, block, id, ptr, bytes);
    cache->dry = 0;
    cache->bytes += size;
    tally_back(&seat->tally, bytes);
    weir__gate_leave(&seat->gate);
    return true;
}
