/* pool_magazines.c - what a request that missed gets from the depot: a magazine, of
 * another stream's too, for one event and one wait at most. The rest of it goes to the
 * thread's own cache. */
#include "internal.h"
#include "pool_hit.h"
#include "pool_internal.h"
#include "pool_seats.h"

static bool mark_is_known(const weir__request *request, weir__mark mark)
{
    return mark.clock == request->clock ||
           weir__order_may_take(request->pool->order, request->clock, mark);
}

static bool mark_can_wait(const weir__request *request, weir__mark mark)
{
    return !weir__pool_is_barred(request, mark.clock) &&
           weir__order_can_wait(request->pool->order, request->clock, mark);
}

/* The next one that could serve the request, after `after` (null: of all); or null. */
static const weir__magazine *next_fit(const weir__request *request,
                                      const weir__magazine *after)
    WEIR_REQUIRES(request->pool->lock)
{
    const size_t grains = request->bytes >> WEIR__HEAP_GRAIN_BITS;
    return request->alignment <= WEIR__HEAP_GRAIN && grains <= WEIR__CACHED_GRAINS
               ? weir__depot_next(&request->pool->depot, (uint32_t)grains, after)
               : NULL;
}

/* Takes the oldest of these that `passes`; false: none. */
static bool take_magazine(const weir__request *request,
                          bool (*passes)(const weir__request *, weir__mark),
                          weir__magazine *out)
{
    weir__pool *self = request->pool;
    const weir__magazine *magazine = NULL;
    weir__mutex_lock(&self->lock);
    do
        magazine = next_fit(request, magazine);
    while (magazine != NULL && !passes(request, magazine->mark));
    bool taken =
        magazine != NULL && weir__pool_take_out_locked(self, magazine, out);
    weir__mutex_unlock(&self->lock);
    return taken;
}

/* The rest of a magazine, whose first block the request gets. False: the thread has no
 * cache for the stream, or a flusher has it. */
static bool keep_rest(const weir__request *request, const weir__magazine *magazine,
                      uint32_t rest)
{
    weir__pool *self = request->pool;
    weir__seat *seat = weir__seat_here(self);
    if (seat == NULL || !weir__gate_enter(&seat->gate))
        return false;
    weir__cache *cache = weir__cache_find(seat, weir__stream_of(request->stream));
    bool kept = cache != NULL && cache->clock == request->clock &&
                weir__cache_load(self, cache, magazine, rest, WEIR__MAGAZINE - 1);
    weir__gate_leave(&seat->gate);
    return kept;
}

/* Serves the request from a magazine that its stream may use. */
static uint32_t serve_from(weir__request *request, const weir__magazine *magazine)
{
    weir__pool *self = request->pool;
    weir__heap_block *block = weir__heap_at(&self->heap.view, magazine->head);
    uint32_t rest = weir__link_of(block);
    weir__mutex_lock(&self->lock);
    weir__pool_note_dropped_locked(self); /* before a flusher may have the rest */
    weir__mutex_unlock(&self->lock);
    bool kept = keep_rest(request, magazine, rest);
    weir__mark mark = WEIR__MARK_DONE;
    if (!kept)
        mark = weir__order_free_mark(self->order, request->stream, request->clock);

    weir__mutex_lock(&self->lock);
    weir__block_list list = weir__magazine_blocks(magazine);
    list.head = rest;
    list.count--;
    if (!kept)
        weir__pool_settle_locked(self, &list, mark);
    weir__pool_mark_out_locked(request, block);
    weir__mutex_unlock(&self->lock);
    return magazine->head;
}

uint32_t weir__pool_take_known_magazine(weir__request *request)
{
    weir__magazine magazine;
    return take_magazine(request, mark_is_known, &magazine)
               ? serve_from(request, &magazine)
               : 0;
}

uint32_t weir__pool_take_magazine(weir__request *request)
{
    weir__pool *self = request->pool;
    weir__magazine magazine;
    while (request->barred_count < WEIR__POOL_BARRED &&
           take_magazine(request, mark_can_wait, &magazine)) {
        weir_status status = weir__order_wait(self->order, request->clock,
                                              request->stream, magazine.mark);
        if (status == WEIR_OK)
            return serve_from(request, &magazine);
        weir__pool_bar(request, magazine.mark.clock, status);
        weir__mutex_lock(&self->lock);
        weir__block_list list = weir__magazine_blocks(&magazine);
        weir__pool_settle_locked(self, &list, magazine.mark);
        weir__mutex_unlock(&self->lock);
    }
    return 0;
}

void weir__pool_free_magazines_locked(const weir__request *request)
{
    weir__pool *self = request->pool;
    const weir__heap_owner *nobody =
        weir__heap_owner_at(&self->heap, WEIR__OWNER_DONE);
    const weir__magazine *magazine = NULL;
    if (self->depot.count == 0 ||
        weir__heap_best(&self->heap, nobody, request->bytes, request->alignment) != 0)
        return;
    while ((magazine = next_fit(request, magazine)) != NULL) {
        if (mark_is_known(request, magazine->mark) ||
            mark_can_wait(request, magazine->mark))
            return;
    }
    while (self->depot.count != 0)
        weir__pool_drain_locked(self);
}

bool weir__pool_allocate_surplus(weir__pool *self, weir_stream stream, size_t bytes,
                                 size_t alignment, void **out)
{
    weir__request request = {
        .pool = self,
        .stream = stream,
        .home = WEIR__HEAP_HOMES,
        .asked_bytes = bytes,
        .asked_alignment = alignment,
        .alignment = WEIR__HEAP_GRAIN,
        .bytes = weir__pool_room_for(self, bytes),
    };
    if (weir__order_clock(self->order, stream, &request.clock) != WEIR_OK)
        return false;
    weir__mutex_lock(&self->lock);
    bool met = weir__pool_meet_owner_locked(&request);
    if (met)
        request.owner->pins++;
    weir__mutex_unlock(&self->lock);
    if (!met)
        return false;
    weir__mutex_lock(&self->miss); /* nobody else is to look for what is in our hands */
    uint32_t block = weir__pool_take_known_magazine(&request);
    if (block == 0)
        block = weir__pool_take_magazine(&request);
    weir__mutex_unlock(&self->miss);
    weir__mutex_lock(&self->lock);
    request.owner->pins--;
    if (block != 0)
        *out = (void *)weir__heap_base(weir__heap_block_of(&self->heap, block));
    weir__mutex_unlock(&self->lock);
    if (block != 0)
        weir__pool_count_out(self, bytes);
    return block != 0;
}
