/* pool_hit.c - allocations and deallocations that a thread's own cache serves.
 *
 * The way of a request, inside of the thread's gate:
 *     hit     a block of that size on its stack: no lock, no read-modify-write, no line
 *             that another thread writes, no call
 *     refill  under the pool's lock: what was spilt goes to the heap, then a magazine
 *             of the same stream from the depot, or the heap's best fit of what is the
 *             stream's or nobody's
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

static inline size_t size_of(uint32_t grains)
{
    return (size_t)grains << WEIR__HEAP_GRAIN_BITS;
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

/* A block off the stack is the caller's. */
static inline void hand_out(weir__seat *seat, weir__cache *cache,
                            weir__heap_block *block, uint32_t grains, size_t bytes,
                            size_t alignment)
{
    weir__link_set(block, cache->owner);
    weir__heap_set_tag(block,
                       weir__heap_out_tag_in(size_of(grains), bytes, alignment));
    cache->bytes -= size_of(grains);
    tally_out(&seat->tally, bytes);
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
    *recent = (weir__recent){ ptr, bin->top_id, bin->top };
    hand_out(seat, cache, weir__bin_pop(bin, view_of(self)), grains, bytes, alignment);
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

/* ---- refill ---- */

/* How many magazines of one size are looked at for one of the own stream. */
#define LOOK_MOST 8

/* So many misses and nothing given back say that a stream's memory comes back
 * elsewhere. */
#define DRY_LEAST 4

/* *surplus: there is none, but others have some, the depot is half full, and nothing
 * comes back on the stream: what goes from one stream to another, again and again, is
 * handed over as it is. */
static const weir__magazine *own_magazine(const weir__pool *self,
                                          const weir__cache *cache, uint32_t grains,
                                          bool *surplus)
{
    const weir__depot *depot = &self->depot;
    const weir__magazine *magazine = weir__depot_next(depot, grains, NULL);
    *surplus = magazine != NULL && cache->dry > DRY_LEAST &&
               (depot->bytes > self->cache_bytes / 2 ||
                depot->count > WEIR__DEPOT_MOST / 2);
    for (int i = 0; i < LOOK_MOST && magazine != NULL; i++) {
        if (magazine->mark.clock == cache->clock)
            return magazine;
        magazine = weir__depot_next(depot, grains, magazine);
    }
    return NULL;
}

bool weir__cache_load(weir__pool *self, weir__cache *cache,
                      const weir__magazine *magazine, uint32_t id, uint32_t count)
{
    weir__bin *bin = weir__cache_claim(cache, view_of(self), magazine->grains);
    weir__heap_block *block = NULL, *above = NULL;
    uint32_t top = id, loaded = 0;
    if (bin->count > 0)
        return false;
    for (; loaded < count; loaded++, above = block) {
        block = weir__heap_at(view_of(self), id);
        if (weir__heap_low_tag(block) != magazine->holder_tag)
            break;
        weir__heap_set_tag(block, cache->holder_tag);
        id = weir__link_of(block);
    }
    if (WEIR_UNLIKELY(loaded < count)) {
        weir__lost lost = { 0 };
        weir__lost_add(&lost, block, magazine->grains, count - loaded);
        weir__mutex_lock(&self->lock);
        weir__pool_note_lost_locked(self, &lost);
        weir__mutex_unlock(&self->lock);
        if (loaded == 0)
            return true;
        weir__link_set(above, 0);
    }
    weir__bin_load(bin, view_of(self), top, loaded);
    cache->bytes += size_of(magazine->grains) * loaded;
    return true;
}

/* What was spilt becomes free under the pool's lock, which the caller has. A number one
 * above the counter: see weir__order_steady. */
static inline void settle_spilt_locked(weir__pool *self, weir__cache *cache)
    WEIR_REQUIRES(self->lock)
{
    if (WEIR_UNLIKELY(cache->lost.lists != 0))
        weir__pool_note_lost_locked(self, &cache->lost);
    if (cache->spill.count == 0)
        return;
    uint64_t number = atomic_load_explicit(cache->counter, memory_order_relaxed) + 1;
    cache->bytes -= cache->spill.bytes;
    cache->unclosed += cache->spill.count;
    cache->is_quiet = weir__pool_is_quiet_locked(self);
    weir__pool_settle_to_locked(self, &cache->spill,
                                weir__heap_owner_at(&self->heap, cache->owner), number);
}

/* Now and then an event, so that others wait for no more than they have to; if there
 * are any that may. */
static void close_sometimes(weir__pool *self, weir__cache *cache)
{
    if (cache->unclosed < WEIR__CLOSE_EVERY || cache->is_quiet)
        return;
    cache->unclosed = 0;
    (void)weir__order_mark_here(self->order, cache->clock);
    (void)weir__order_close(self->order, cache->clock);
}

/* A best fit of what nothing uses any more; or null. */
static WEIR_COLD weir__heap_block *take_done_locked(weir__pool *self,
                                                    const weir__cache *cache,
                                                    size_t size, size_t bytes,
                                                    size_t alignment)
    WEIR_REQUIRES(self->lock)
{
    weir__request request = { .pool = self,
                              .stream = cache->stream,
                              .clock = cache->clock,
                              .owner = weir__heap_owner_at(&self->heap, cache->owner),
                              .home = cache->home,
                              .asked_bytes = bytes,
                              .asked_alignment = alignment,
                              .bytes = size,
                              .alignment = WEIR__HEAP_GRAIN };
    uint32_t id = weir__pool_take_done_locked(&request);
    return id != 0 ? weir__heap_block_of(&self->heap, id) : NULL;
}

/* A best fit of the stream's own, or of that; or null. */
static inline weir__heap_block *take_fit_locked(weir__pool *self,
                                                const weir__cache *cache, size_t size,
                                                size_t bytes, size_t alignment)
    WEIR_REQUIRES(self->lock)
{
    weir__heap_owner *owner = weir__heap_owner_at(&self->heap, cache->owner);
    if (WEIR_UNLIKELY(self->is_short) &&
        weir__pool_is_poor_locked(
            self, weir__heap_best(&self->heap, owner, size, WEIR__HEAP_GRAIN), size))
        return NULL;
    if (WEIR_UNLIKELY(weir__pool_is_wary(self)) &&
        weir__pool_spares_locked(
            self, weir__heap_best(&self->heap, owner, size, WEIR__HEAP_GRAIN)))
        return NULL;
    weir__heap_block *block =
        weir__pool_take_fit_locked(self, owner, owner, cache->home, size, bytes,
                                   alignment)
            .block;
    return WEIR_LIKELY(block != NULL)
               ? block
               : take_done_locked(self, cache, size, bytes, alignment);
}

/* What is to be done outside of the gate. */
typedef struct errand {
    weir_stream wanted; /* the thread frees on it, and has no cache for it: giving back
                           cannot make one */
    bool surplus;       /* a magazine of another stream's is to be taken */
    bool lay_by;        /* a seat for a thread that only gives back */
} errand;

static inline bool refill(weir__pool *self, weir__seat *seat, weir__cache *cache,
                          uint32_t grains, size_t bytes, size_t alignment, void **out,
                          errand *after)
{
    weir__heap_block *block = NULL;
    weir__magazine magazine;
    magazine.head = 0;
    cache->dry++;

    weir__mutex_lock(&self->lock);
    bool promised = weir__heap_promise(&self->heap);
    if (WEIR_LIKELY(promised)) {
        settle_spilt_locked(self, cache);
        const weir__magazine *own = NULL;
        if (self->depot.count != 0)
            own = own_magazine(self, cache, grains, &after->surplus);
        if (own != NULL)
            magazine = weir__depot_take(&self->depot, own);
        else if (!after->surplus)
            block = take_fit_locked(self, cache, size_of(grains), bytes, alignment);
        weir__heap_forget_promise(&self->heap);
    }
    if (WEIR_LIKELY(block != NULL))
        *out = (void *)weir__heap_base(block);
    after->lay_by = self->wants_spare_seat;
    weir__mutex_unlock(&self->lock);
    close_sometimes(self, cache);

    if (magazine.head != 0) {
        bool loaded =
            weir__cache_load(self, cache, &magazine, magazine.head, WEIR__MAGAZINE);
        WEIR_CHECK(loaded, "who misses has an empty stack");
        return hit_bin(self, seat, cache, weir__cache_bin(cache, grains), grains, bytes,
                       alignment, out);
    }
    if (block == NULL)
        return false;
    tally_out(&seat->tally, bytes);
    return true;
}

/* What is no plain hit: from the second magazine, which becomes the first, or by a
 * refill; and what the ledger has to hear. */
static inline bool hit_or_refill(weir__pool *self, weir__seat *seat, weir__cache *cache,
                                 size_t bytes, size_t alignment, void **out,
                                 errand *after)
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
        after->wanted = seat->wanted;
        seat->wanted = NULL;
        done = refill(self, seat, cache, grains, bytes, alignment, out, after);
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
    errand after = { 0 };
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

/* The cache that the thread used last, if it is the stream's; behind the gate. */
static inline weir__cache *last_cache(const weir__seat *seat, weir_stream stream)
{
    weir__cache *cache = seat->last;
    bool fits = cache != NULL && (cache->stream == stream || cache->alias == stream);
    return WEIR_LIKELY(fits) ? cache : weir__cache_probe(seat, stream);
}

weir_status weir__pool_allocate(void *context, weir_stream stream, size_t bytes,
                                size_t alignment, void **out)
{
    weir__pool *self = context;
    weir__seat *seat = weir__own_thread.seat;
    if (WEIR_UNLIKELY(seat == NULL || seat->pool != self ||
                      alignment > WEIR__HEAP_GRAIN || bytes > self->gate_bytes ||
                      self->listens || !weir__gate_enter(&seat->gate)))
        return allocate_otherwise(self, stream, bytes, alignment, out);

    weir__cache *cache = last_cache(seat, stream);
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
    settle_spilt_locked(self, cache);
    weir__mutex_unlock(&self->lock);
    close_sometimes(self, cache);
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
    cache->bytes += size_of(grains);
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

/* The record of a block that is out, with the tag `low`; from where it was last, if it
 * is still there. */
static inline weir__heap_block *find_out(weir__pool *self, weir__cache *cache,
                                         const void *ptr, uint32_t low, uint32_t *id)
{
    const weir__recent *recent = weir__recent_of(cache, ptr);
    if (recent->ptr == ptr && weir__heap_is_tagged(recent->block, ptr, low)) {
        *id = recent->id;
        return recent->block;
    }
    return weir__heap_lookup_tagged(view_of(self), ptr, low, id);
}

bool weir__pool_deallocate(void *context, weir_stream stream, void *ptr, size_t bytes,
                           size_t alignment)
{
    weir__pool *self = context;
    weir__seat *seat = weir__own_thread.seat;
    if (WEIR_UNLIKELY(seat == NULL || seat->pool != self ||
                      bytes > self->gate_bytes || self->listens ||
                      !weir__gate_enter(&seat->gate)))
        return deallocate_otherwise(self, stream, ptr, bytes, alignment);

    uint32_t id = 0;
    weir__cache *cache = last_cache(seat, stream);
    weir__heap_block *block = NULL;
    if (WEIR_LIKELY(cache != NULL))
        block = find_out(self, cache, ptr, weir__heap_out_tag(bytes, alignment), &id);
    if (WEIR_UNLIKELY(block == NULL || !is_of(block, bytes))) {
        weir__gate_leave(&seat->gate);
        return deallocate_otherwise(self, stream, ptr, bytes, alignment);
    }
    const uint32_t grains = weir__heap_grains(block);
    const size_t size = size_of(grains);
    weir__bin *bin = weir__cache_bin(cache, grains);
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
