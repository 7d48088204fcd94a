/* pool_chunks.c - what a pool draws from upstream. A fresh chunk carries a mark of the
 * stream that drew it, for upstream hands out in stream order; unless its memory may be
 * touched by all at once. (What it gives back is in pool_back.c.) */
#include "device/device.h"
#include "internal.h"
#include "pool_internal.h"
#include "pool_share.h"

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static uintptr_t grains_up(uintptr_t address)
{
    return (address + (WEIR__HEAP_GRAIN - 1)) & ~(uintptr_t)(WEIR__HEAP_GRAIN - 1);
}

/* ---- sizes ---- */

/* What a chunk is aligned to: as the request wants it, as far as upstream can; and to
 * pages where it can grow by them, for upstream may have blocks that cannot. */
static size_t chunk_alignment(const weir__request *request)
{
    const weir_resource_properties *up = &request->pool->up;
    return least(up->can_extend ? WEIR__POOL_ALIGNMENT_MOST : request->alignment,
                 up->max_alignment);
}

size_t weir__pool_needed_bytes(const weir__request *request)
{
    size_t aligned = chunk_alignment(request);
    if (aligned < WEIR__HEAP_GRAIN)
        aligned = WEIR__HEAP_GRAIN;
    return request->bytes + (request->alignment - least(aligned, request->alignment));
}

static size_t round_to_growth(const weir__pool *self, size_t bytes)
{
    size_t growth = weir__pool_growth_now(self);
    size_t over = bytes % growth;
    size_t rounded = over == 0 ? bytes : bytes + (growth - over);
    return rounded & ~(WEIR__HEAP_GRAIN - 1);
}

/* What the limit still allows to draw. Nobody else changes what is held. */
static size_t room_bytes(const weir__pool *self)
{
    size_t room = self->options.limit_bytes - self->held_bytes;
    size_t slack = weir__pool_chunk_slack(self);
    return room > slack ? room - slack : 0;
}

/* ---- drawing ---- */

/* For they are aligned so. */
static bool chunks_are_usable_at_once(const weir__pool *self)
{
    return self->up.can_extend ? self->up.pages_usable_at_once
                               : self->up.usable_at_once;
}

/* What upstream hands out may rest on what this thread knows, and a mark of the stream
 * be taken for it before the stream is behind that. So it may of an upstream that has
 * cut it out of memory of its own, as one that extends has, though all may use it. */
static void count_drawn_locked(weir__pool *self, size_t bytes)
    WEIR_REQUIRES(self->lock)
{
    if (!chunks_are_usable_at_once(self) || self->up.can_extend)
        weir__pool_note_dropped_locked(self);
    self->releases++;
    self->held_bytes += bytes;
    weir__pool_note_room_locked(self, false);
    weir__pool_note_held_locked(self);
}

/* The clock of memory that upstream has just handed out on the request's stream. What
 * all may use at once is nobody's, but as long as there is one stream it is that one's:
 * with what is freed beside it, it is one. */
static uint64_t fresh_clock(const weir__request *request)
{
    const weir__pool *self = request->pool;
    bool is_own = !chunks_are_usable_at_once(self) ||
                  (request->owner->kind != WEIR__POOL_CAPTURE &&
                   weir__order_has_one_stream(self->order));
    return is_own ? request->clock : 0;
}

/* Where an event cannot be recorded later, for whoever else comes to want what is left,
 * it is recorded now. */
static weir__mark fresh_mark(const weir__request *request, uint64_t clock)
{
    weir__order *order = request->pool->order;
    if (clock == 0)
        return WEIR__MARK_DONE;
    weir__mark mark = weir__order_mark_here(order, clock);
    uint64_t steady;
    const _Atomic uint64_t *counter;
    if (!weir__order_steady(order, request->stream, &steady, &counter))
        (void)weir__order_close(order, clock);
    return mark;
}

/* Draws a chunk of `bytes` usable bytes, which are sure to serve the request. */
static weir_status draw(weir__request *request, size_t bytes, uint32_t *out)
{
    weir__pool *self = request->pool;
    if (bytes > WEIR__CHUNK_MOST)
        return WEIR_OUT_OF_MEMORY; /* and the request says how much is too much */
    weir__chunk *chunk = weir__host_alloc(sizeof *chunk);
    if (chunk == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "pool: no memory for records");
    *chunk = (weir__chunk){ .drawn_bytes = bytes + weir__pool_chunk_slack(self),
                            .drawn_alignment = chunk_alignment(request) };
    weir_status status = weir_allocate(self->upstream, request->stream,
                                       chunk->drawn_bytes, chunk->drawn_alignment,
                                       &chunk->ptr);
    if (status != WEIR_OK) {
        weir__host_free(chunk);
        return status;
    }
    weir__mark mark = fresh_mark(request, fresh_clock(request));
    uintptr_t base = grains_up((uintptr_t)chunk->ptr);

    weir__mutex_lock(&self->lock);
    status = weir__heap_reserve(&self->heap, base, bytes);
    if (status == WEIR_OK) {
        count_drawn_locked(self, chunk->drawn_bytes);
        uint32_t block = weir__heap_add_chunk(&self->heap, chunk, base, bytes);
        *out = weir__pool_hand_out_locked(request, (weir__heap_run){ block, block },
                                          mark, mark);
    }
    weir__mutex_unlock(&self->lock);
    if (status != WEIR_OK) {
        (void)weir_deallocate(self->upstream, request->stream, chunk->ptr,
                              chunk->drawn_bytes, chunk->drawn_alignment);
        weir__host_free(chunk);
    }
    return status;
}

/* Draws `bytes` or, if that is refused, what the pool would grow by, or what is needed.
 * 0 with OK: that was refused as well. */
static weir_status draw_or_less(weir__request *request, size_t bytes,
                                uint32_t *out)
{
    weir__pool *self = request->pool;
    size_t needed = weir__pool_needed_bytes(request), room = room_bytes(self);
    if (needed > room) {
        request->refusal = WEIR_LIMIT_REACHED;
        return WEIR_OK;
    }
    const size_t sizes[] = { bytes, round_to_growth(self, needed), needed };
    weir_status status = WEIR_LIMIT_REACHED;
    size_t tried = SIZE_MAX;
    for (size_t i = 0; i < 3 && weir__pool_is_refusal(status); i++) {
        if (sizes[i] > room || sizes[i] >= tried)
            continue;
        tried = sizes[i];
        status = draw(request, tried, out);
    }
    if (!weir__pool_is_refusal(status))
        return status;
    weir__mutex_lock(&self->lock);
    weir__pool_note_room_locked(self, true);
    weir__mutex_unlock(&self->lock);
    request->refusal = status;
    return WEIR_OK;
}

weir_status weir__pool_draw_initial(weir__request *request, uint32_t *out)
{
    const weir__pool *self = request->pool;
    size_t initial = self->options.initial_bytes & ~(WEIR__HEAP_GRAIN - 1);
    size_t needed = weir__pool_needed_bytes(request);
    /* Who was refused asks again once nothing else is left. */
    if (self->held_bytes >= initial || self->end_bytes < self->options.limit_bytes)
        return WEIR_OK;
    size_t left = initial - self->held_bytes;
    return draw_or_less(request, left > needed ? left : needed, out);
}

/* ---- extending ---- */

/* Room in the heap's map comes first: that can be had for nothing. */
static weir_status extend_upstream(const weir__request *request,
                                   const weir__chunk *chunk, size_t bytes)
{
    weir__pool *self = request->pool;
    if (bytes > room_bytes(self) || bytes > WEIR__CHUNK_MOST - chunk->bytes)
        return WEIR_LIMIT_REACHED;
    weir__mutex_lock(&self->lock);
    weir_status status = weir__heap_reserve(&self->heap, chunk->base + chunk->bytes,
                                            bytes);
    weir__mutex_unlock(&self->lock);
    if (status != WEIR_OK)
        return status;
    return weir_resource_extend(self->upstream, request->stream, chunk->ptr,
                                chunk->drawn_bytes, chunk->drawn_alignment,
                                chunk->drawn_bytes + bytes);
}

/* Upstream has made `chunk` longer by `added`. */
static uint32_t add_end(weir__request *request, weir__chunk *chunk, weir__heap_run end,
                        size_t added, weir__mark mark)
{
    weir__pool *self = request->pool;
    bool may = end.first == 0 || weir__pool_wait_for_run(request, end);
    weir__mutex_lock(&self->lock);
    chunk->drawn_bytes += added;
    count_drawn_locked(self, added);
    uint32_t fresh = weir__heap_extend_chunk(&self->heap, chunk, added), block = 0;
    if (may) {
        weir__heap_run run = { end.first != 0 ? end.first : fresh, fresh };
        weir__mark front = end.first != 0 ? weir__heap_mark(&self->heap, end.first)
                                          : mark;
        block = weir__pool_hand_out_locked(request, run, front, mark);
    } else {
        weir__pool_put_back_locked(self, end);
        (void)weir__heap_release(&self->heap, fresh, mark);
    }
    weir__mutex_unlock(&self->lock);
    return block;
}

/* Makes the newest chunk long enough that its end serves the request. 0 with OK: that
 * cannot be done. */
static weir_status extend(weir__request *request, uint32_t *out)
{
    weir__pool *self = request->pool;
    uint64_t clock = fresh_clock(request); /* once: another stream may come meanwhile */
    /* Aligned as far as a fresh chunk would be, which the end of this may not be. */
    size_t needed = request->bytes + (request->alignment - WEIR__HEAP_GRAIN);
    size_t end_bytes = 0;
    weir__mutex_lock(&self->lock);
    weir__chunk *chunk = self->heap.newest;
    weir__heap_run end = { 0, 0 };
    if (chunk != NULL)
        end = weir__pool_hold_end_locked(request, chunk, clock, needed,
                                         &end_bytes);
    weir__mutex_unlock(&self->lock);
    if (chunk == NULL)
        return WEIR_OK;

    /* The end alone may have room by now. */
    size_t got = least(end_bytes, needed - WEIR__HEAP_GRAIN);
    size_t added = round_to_growth(self, needed - got);
    weir_status status = extend_upstream(request, chunk, added);
    if (weir__pool_is_refusal(status) && added != needed - got) {
        added = needed - got;
        status = extend_upstream(request, chunk, added);
    }
    if (status == WEIR_OK) {
        *out = add_end(request, chunk, end, added, fresh_mark(request, clock));
    } else if (end.first != 0) {
        weir__mutex_lock(&self->lock);
        weir__pool_put_back_locked(self, end);
        weir__mutex_unlock(&self->lock);
    }
    const bool is_no = weir__pool_is_refusal(status) || status == WEIR_NOT_SUPPORTED;
    return is_no ? WEIR_OK : status;
}

weir_status weir__pool_grow(weir__request *request, uint32_t *out)
{
    const weir__pool *self = request->pool;
    const size_t needed = weir__pool_needed_bytes(request);
    if (self->up.remaps)
        weir__pool_make_room(request, needed);
    weir_status status = self->up.can_extend ? extend(request, out) : WEIR_OK;
    if (*out != 0 || status != WEIR_OK)
        return status;
    return draw_or_less(request, round_to_growth(self, needed), out);
}
