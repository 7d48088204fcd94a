/* pool_refill.c - under the pool's lock, for a stack that is empty: what was spilt goes
 * to the heap, then a magazine of the same stream comes from the depot, or of another's
 * that it may have as it is, or one block, the heap's best fit of what is the stream's
 * or nobody's. */
#include "pool_hit.h"
#include "pool_seats.h"
#include "pool_share.h"

#include "internal.h"

/* How many magazines of one size are looked at for one of the own stream. */
#define LOOK_MOST 8

/* So many misses and nothing given back say that a stream's memory comes back
 * elsewhere. */
#define DRY_LEAST 4

/* Whether the depot has more of something than it should, and nothing comes back on the
 * stream: what goes from one stream to another, again and again, is handed over as it
 * is. */
static inline bool has_surplus(const weir__pool *self, const weir__cache *cache)
{
    const weir__depot *depot = &self->depot;
    return cache->dry > DRY_LEAST && (depot->bytes > self->cache_bytes / 2 ||
                                      depot->count > WEIR__DEPOT_MOST / 2);
}

/* A magazine of the stream's own. Or, where there is more than enough, the oldest of
 * another's, if the stream may take it as it is; if not, *surplus is set. */
static const weir__magazine *find_magazine_locked(weir__pool *self,
                                                  const weir__cache *cache,
                                                  uint32_t grains, bool *surplus)
    WEIR_REQUIRES(self->lock)
{
    const weir__depot *depot = &self->depot;
    const weir__magazine *oldest = weir__depot_next(depot, grains, NULL);
    const weir__magazine *magazine = oldest;
    for (int i = 0; i < LOOK_MOST && magazine != NULL; i++) {
        if (magazine->mark.clock == cache->clock)
            return magazine;
        magazine = weir__depot_next(depot, grains, magazine);
    }
    if (oldest == NULL || !has_surplus(self, cache))
        return NULL;
    weir__pool_note_want_locked(self);
    if (!weir__order_may_take(self->order, cache->clock, oldest->mark)) {
        *surplus = true;
        return NULL;
    }
    weir__pool_note_dropped_locked(self); /* before a flusher may have it */
    return oldest;
}

bool weir__cache_load(weir__pool *self, weir__cache *cache,
                      const weir__magazine *magazine, uint32_t id, uint32_t count)
{
    weir__bin *bin = weir__cache_claim(cache, &self->heap.view, magazine->grains);
    weir__heap_block *block = NULL, *above = NULL;
    uint32_t top = id, loaded = 0;
    if (bin->count > 0)
        return false;
    for (; loaded < count; loaded++, above = block) {
        block = weir__heap_at(&self->heap.view, id);
        if (weir__heap_tag(block) != magazine->holder_tag)
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
    weir__bin_load(bin, &self->heap.view, top, loaded);
    cache->bytes += weir__grains_size(magazine->grains) * loaded;
    return true;
}

void weir__cache_settle_some_locked(weir__pool *self, weir__cache *cache)
{
    if (WEIR_UNLIKELY(cache->lost.lists != 0))
        weir__pool_note_lost_locked(self, &cache->lost);
    if (cache->spill.count == 0)
        return;
    uint64_t number = weir__cache_mark_locked(self, cache, cache->spill.count);
    cache->bytes -= cache->spill.bytes;
    weir__pool_settle_to_locked(self, &cache->spill,
                                weir__heap_owner_at(&self->heap, cache->owner), number);
}

void weir__cache_close(weir__pool *self, weir__cache *cache)
{
    cache->unclosed = 0;
    (void)weir__order_mark_closed(self->order, cache->clock);
}

static weir__request request_of(weir__pool *self, const weir__cache *cache, size_t size,
                                size_t bytes, size_t alignment)
{
    return (weir__request){ .pool = self,
                            .stream = cache->stream,
                            .clock = cache->clock,
                            .owner = weir__heap_owner_at(&self->heap, cache->owner),
                            .home = cache->home,
                            .asked_bytes = bytes,
                            .asked_alignment = alignment,
                            .bytes = size,
                            .alignment = WEIR__HEAP_GRAIN };
}

static weir__heap_taken taken_of(const weir__pool *self, uint32_t id)
{
    weir__heap_block *block = weir__heap_block_of(&self->heap, id);
    return id != 0 ? (weir__heap_taken){ block, id } : (weir__heap_taken){ NULL, 0 };
}

weir__heap_taken weir__cache_take_done_locked(weir__pool *self,
                                              const weir__cache *cache, size_t size,
                                              size_t bytes, size_t alignment)
{
    weir__request request = request_of(self, cache, size, bytes, alignment);
    return taken_of(self, weir__pool_take_done_locked(&request));
}

weir__heap_taken weir__cache_take_placed_locked(weir__pool *self,
                                                const weir__cache *cache, size_t size,
                                                size_t bytes, size_t alignment)
{
    weir__request request = request_of(self, cache, size, bytes, alignment);
    return taken_of(self, weir__pool_place_known_locked(&request));
}

void *weir__pool_refill(weir__pool *self, weir__seat *seat, weir__cache *cache,
                        uint32_t grains, size_t bytes, size_t alignment, bool *loads,
                        weir__errand *after)
{
    weir__heap_taken taken = { NULL, 0 };
    void *ptr = NULL;
    weir__magazine magazine;
    magazine.head = 0;
    magazine.grains = grains;
    *loads = false;
    weir__cache_missed(cache);

    weir__mutex_lock(&self->lock);
    if (WEIR_LIKELY(weir__heap_promise(&self->heap))) {
        weir__cache_settle_spilt_locked(self, cache);
        const weir__magazine *found = NULL;
        if (self->depot.count != 0)
            found = find_magazine_locked(self, cache, grains, &after->surplus);
        if (found != NULL)
            magazine = weir__depot_take(&self->depot, found);
        else if (!after->surplus)
            taken = weir__cache_take_fit_locked(self, cache, weir__grains_size(grains),
                                                bytes, alignment);
        weir__heap_forget_promise(&self->heap);
    }
    if (WEIR_LIKELY(taken.block != NULL))
        ptr = (void *)weir__heap_base(taken.block);
    after->chores = weir__pool_has_chores_locked(self);
    weir__mutex_unlock(&self->lock);
    weir__cache_close_sometimes(self, cache);
    if (WEIR_LIKELY(ptr != NULL))
        weir__recent_set(seat, ptr, taken.id,
                         weir__bin_offset(cache, weir__cache_bin(cache, grains)));
    if (magazine.head != 0) {
        *loads =
            weir__cache_load(self, cache, &magazine, magazine.head, WEIR__MAGAZINE);
        WEIR_CHECK(*loads, "who misses has an empty stack");
    }
    return ptr;
}
