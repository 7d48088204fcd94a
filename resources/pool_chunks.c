/* pool_chunks.c - what a pool draws from upstream and gives back to it.
 *
 * A chunk goes back as a whole or not at all, so only while all of it is free; what can
 * go by itself is made a chunk first (pool_parts.c). While
 * it is looked at its blocks are held: nobody takes a part of it, and a free beside
 * them waits with its merge. A fresh chunk carries a mark of the stream that drew
 * it, for upstream hands out in stream order; unless its memory may be touched by
 * all at once.
 */
#include "device/device.h"
#include "internal.h"
#include "pool_internal.h"

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define UNFINISHED_MAX 4u
#else
#define UNFINISHED_MAX 32u
#endif

static bool is_refusal(weir_status status)
{
    return status == WEIR_OUT_OF_MEMORY || status == WEIR_LIMIT_REACHED;
}

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

/* How much longer a chunk has to be than what of it the heap can use. */
static size_t chunk_slack(const weir__pool *self)
{
    return self->up.max_alignment < WEIR__HEAP_GRAIN ? WEIR__HEAP_GRAIN : 0;
}

/* The smallest chunk, or extension, that is sure to serve the request. */
static size_t needed_bytes(const weir__request *request)
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
    size_t slack = chunk_slack(self);
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
    *chunk = (weir__chunk){ .drawn_bytes = bytes + chunk_slack(self),
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

/* Draws `bytes` or, if that is refused, what is needed. 0 with OK: that was
 * refused as well. */
static weir_status draw_or_less(weir__request *request, size_t bytes,
                                uint32_t *out)
{
    weir__pool *self = request->pool;
    size_t needed = needed_bytes(request), room = room_bytes(self);
    if (needed > room) {
        request->refusal = WEIR_LIMIT_REACHED;
        return WEIR_OK;
    }
    weir_status status = WEIR_LIMIT_REACHED;
    if (bytes <= room)
        status = draw(request, bytes, out);
    if (is_refusal(status) && bytes != needed)
        status = draw(request, needed, out);
    if (!is_refusal(status))
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
    size_t needed = needed_bytes(request);
    if (self->held_bytes >= initial)
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
    if (is_refusal(status) && added != needed - got) {
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
    return is_refusal(status) || status == WEIR_NOT_SUPPORTED ? WEIR_OK : status;
}

weir_status weir__pool_grow(weir__request *request, uint32_t *out)
{
    const weir__pool *self = request->pool;
    if (self->up.remaps)
        weir__pool_make_room(request, needed_bytes(request));
    weir_status status = self->up.can_extend ? extend(request, out) : WEIR_OK;
    if (*out != 0 || status != WEIR_OK)
        return status;
    return draw_or_less(request, round_to_growth(self, needed_bytes(request)), out);
}

/* ---- giving back ---- */

/* All blocks of an idle chunk become HELD: from now on they are the caller's. */
static void hold_chunk_locked(weir__pool *self, const weir__chunk *chunk)
    WEIR_REQUIRES(self->lock)
{
    weir__heap *heap = &self->heap;
    for (uint32_t block = weir__heap_first(heap, chunk); block != 0;
         block = weir__heap_after(heap, block))
        weir__heap_hold(heap, block);
}

static void release_chunk_locked(weir__pool *self, const weir__chunk *chunk)
    WEIR_REQUIRES(self->lock)
{
    weir__heap *heap = &self->heap;
    for (uint32_t block = weir__heap_first(heap, chunk), next; block != 0;
         block = next) {
        next = weir__heap_after(heap, block);
        (void)weir__heap_release(heap, block, weir__heap_mark(heap, block));
    }
}

/* Unlinks a chunk whose blocks are HELD. */
static void remove_chunk_locked(weir__pool *self, weir__chunk *chunk)
    WEIR_REQUIRES(self->lock)
{
    weir__heap_remove_chunk(&self->heap, chunk);
    self->held_bytes -= chunk->drawn_bytes;
    self->is_frayed = self->is_frayed && self->held_bytes > 0;
    weir__pool_note_room_locked(self, false);
}

typedef bool (*mark_visitor)(void *context, weir__mark mark);

/* Whether `visit` says so for all marks of a chunk whose blocks are HELD, from the
 * first on. */
static bool all_marks(weir__pool *self, uint32_t first, mark_visitor visit,
                      void *context)
{
    weir__pool_marks at = { first, 0, 0 };
    weir__mark mark;
    while (weir__pool_next_mark(self, &at, &mark)) {
        if (!visit(context, mark))
            return false;
    }
    return true;
}

/* The newest chunk that is all free and not skipped before, or null. */
static weir__chunk *idle_chunk_locked(weir__pool *self) WEIR_REQUIRES(self->lock)
{
    weir__chunk *chunk = self->heap.newest;
    while (chunk != NULL &&
           (chunk->skipped || !weir__heap_chunk_is_idle(&self->heap, chunk)))
        chunk = chunk->older;
    return chunk;
}

static void forget_skips_locked(weir__pool *self) WEIR_REQUIRES(self->lock)
{
    for (weir__chunk *chunk = self->heap.newest; chunk; chunk = chunk->older) {
        chunk->skipped = false;
        chunk->unseen_end = 0;
    }
}

/* Takes the newest idle chunk all of whose marks pass `visit`, called without the
 * pool's lock, out of the heap; or null. */
static weir__chunk *take_chunk(weir__pool *self, mark_visitor visit, void *context)
{
    weir__mutex_lock(&self->lock);
    weir__chunk *chunk;
    while ((chunk = idle_chunk_locked(self)) != NULL) {
        hold_chunk_locked(self, chunk);
        uint32_t first = weir__heap_first(&self->heap, chunk);
        weir__mutex_unlock(&self->lock);
        bool passes = all_marks(self, first, visit, context);
        weir__mutex_lock(&self->lock);
        if (passes) {
            weir__pool_learn_dropped_locked(self);
            remove_chunk_locked(self, chunk);
            break;
        }
        release_chunk_locked(self, chunk);
        chunk->skipped = true;
    }
    weir__mutex_unlock(&self->lock);
    return chunk;
}

void weir__pool_forget_skips(weir__pool *self)
{
    weir__mutex_lock(&self->lock);
    forget_skips_locked(self);
    weir__mutex_unlock(&self->lock);
}

static bool may_go(void *context, weir__mark mark)
{
    const weir__request *request = context;
    return mark.clock == request->clock ||
           weir__order_is_done(request->pool->order, request->clock, mark);
}

/* Whether the limit has room for the request once all idle chunks are gone, and what
 * may be cut out: otherwise their going changes nothing but that they are missed
 * later. */
static bool flush_can_help(const weir__request *request)
{
    weir__pool *self = request->pool;
    size_t busy_bytes = 0;
    weir__mutex_lock(&self->lock);
    for (const weir__chunk *chunk = self->heap.newest; chunk; chunk = chunk->older)
        busy_bytes += weir__heap_chunk_is_idle(&self->heap, chunk) ? 0
                                                                   : chunk->drawn_bytes;
    if (self->up.cut_bytes != 0)
        busy_bytes = self->heap.taken_bytes;
    weir__mutex_unlock(&self->lock);
    size_t room = self->options.limit_bytes - busy_bytes, slack = chunk_slack(self);
    return room > slack && needed_bytes(request) <= room - slack;
}

size_t weir__pool_flush_chunk(weir__request *request)
{
    weir__pool *self = request->pool;
    weir__chunk *chunk = take_chunk(self, may_go, request);
    if (chunk == NULL)
        return 0;
    size_t bytes = chunk->drawn_bytes;
    (void)weir_deallocate(self->upstream, request->stream, chunk->ptr, bytes,
                          chunk->drawn_alignment);
    weir__host_free(chunk);
    return bytes;
}

/* Gives a chunk that is not in the heap any more upstream, behind `count` points. */
static size_t give_upstream(weir__pool *self, weir__chunk *chunk,
                            const weir_point *points, size_t count)
{
    size_t bytes = chunk->drawn_bytes;
    (void)weir_deallocate_after(self->upstream, chunk->ptr, bytes,
                                chunk->drawn_alignment, points, count);
    weir__host_free(chunk);
    return bytes;
}

static bool sync(void *context, weir__mark mark)
{
    return weir__order_sync(((weir__pool *)context)->order, mark) == WEIR_OK;
}

/* What is captured is not waited for. */
static bool sync_unless_captured(void *context, weir__mark mark)
{
    return !weir__order_is_captured(((weir__pool *)context)->order, mark) &&
           sync(context, mark);
}

void weir__pool_settle_returned_locked(weir__pool *self)
{
    if (self->heap.returned_blocks > 0 && weir__heap_promise(&self->heap))
        weir__heap_forget_promise(&self->heap);
}

size_t weir__pool_trim_sync(weir__pool *self, size_t keep_bytes)
{
    size_t given = 0;
    weir__mutex_lock(&self->lock);
    weir__pool_settle_returned_locked(self);
    weir__mutex_unlock(&self->lock);
    while (self->held_bytes > keep_bytes && !weir__device_is_lost(self->device)) {
        weir__chunk *chunk = take_chunk(self, sync_unless_captured, self);
        if (chunk != NULL)
            given += give_upstream(self, chunk, NULL, 0);
        else if (!weir__pool_cut_out(self, self->held_bytes - keep_bytes,
                                     weir__pool_has_no_capture, self))
            break;
    }
    weir__pool_forget_skips(self);
    return given;
}

/* What was not waited for. */
typedef struct unfinished {
    weir__pool *pool;
    const weir__request *request; /* that it is given for; null: for none */
    weir_point points[UNFINISHED_MAX]; /* one per clock */
    size_t count;
} unfinished;

/* Of each clock the latest counts. False: that are too many. */
static bool note_unfinished(unfinished *rest, weir__mark mark)
{
    for (size_t i = 0; i < rest->count; i++) {
        if (rest->points[i].clock == mark.clock) {
            if (rest->points[i].mark < mark.number)
                rest->points[i].mark = mark.number;
            return true;
        }
    }
    if (rest->count == UNFINISHED_MAX)
        return false;
    rest->points[rest->count++] = (weir_point){ mark.clock, mark.number };
    return true;
}

/* In a device that is lost nothing runs any more. */
static bool sync_or_note(void *context, weir__mark mark)
{
    unfinished *rest = context;
    return weir__device_is_lost(rest->pool->device) || sync(rest->pool, mark) ||
           note_unfinished(rest, mark);
}

/* What a capture has is its own, and for what is set aside there is no point. For a
 * request only what its stream could wait for: not what the device alone knows to be
 * captured. */
static bool note_for_upstream(void *context, weir__mark mark)
{
    unfinished *rest = context;
    weir__order *order = rest->pool->order;
    if (weir__order_is_done(order, 0, mark))
        return true;
    if (mark.clock != WEIR__CLOCK_ASIDE && !weir__order_is_captured(order, mark) &&
        (rest->request == NULL ||
         weir__order_can_wait(order, rest->request->clock, mark)) &&
        note_unfinished(rest, mark))
        return true;
    rest->count = 0; /* for the next chunk */
    return false;
}

/* Where nothing else is left: chunks that are all free, if still at work for other
 * streams, so many bytes. It is upstream's to wait. */
static size_t flush_behind_points(weir__request *request, size_t bytes)
{
    weir__pool *self = request->pool;
    size_t given = 0;
    while (given < bytes) {
        unfinished rest = { .pool = self, .request = request };
        weir__chunk *chunk = take_chunk(self, note_for_upstream, &rest);
        if (chunk == NULL)
            break;
        given += give_upstream(self, chunk, rest.points, rest.count);
    }
    weir__pool_forget_skips(self);
    return given;
}

bool weir__pool_flush(weir__request *request)
{
    weir__pool *self = request->pool;
    size_t given = 0, bytes;

    if (!flush_can_help(request))
        return false;

    /* What a capture has is its own, and goes nowhere before it is released. */
    if (weir__order_is_captured(self->order, (weir__mark){ request->clock, 0 }))
        return false;
    while ((bytes = weir__pool_flush_chunk(request)) > 0)
        given += bytes;
    if (given < needed_bytes(request))
        given += weir__pool_flush_parts(request, needed_bytes(request) - given);
    weir__pool_forget_skips(self);
    if (given < needed_bytes(request) && request->wait_status == WEIR_OK)
        given += flush_behind_points(request, needed_bytes(request) - given);
    return given > 0;
}

size_t weir__pool_give_idle(weir__pool *self)
{
    size_t given = 0;
    weir__mutex_lock(&self->lock);
    weir__pool_settle_returned_locked(self);
    weir__mutex_unlock(&self->lock);
    while (!weir__device_is_lost(self->device)) {
        unfinished rest = { .pool = self };
        weir__chunk *chunk = take_chunk(self, note_for_upstream, &rest);
        if (chunk == NULL &&
            weir__pool_cut_out(self, SIZE_MAX, weir__pool_has_points, self))
            continue;
        if (chunk == NULL)
            break;
        given += give_upstream(self, chunk, rest.points, rest.count);
    }
    weir__pool_forget_skips(self);
    return given;
}

/* What cannot be waited for, because the device failed or a capture has it, is
 * upstream's to wait for; a leaf then says what it could not give back. */
size_t weir__pool_give_back_all(weir__pool *self)
{
    size_t leaked = 0;
    for (weir__chunk *chunk = self->heap.newest, *older; chunk; chunk = older) {
        older = chunk->older;
        unfinished rest = { .pool = self };
        uint32_t first = weir__heap_first(&self->heap, chunk);
        if (all_marks(self, first, sync_or_note, &rest)) {
            (void)give_upstream(self, chunk, rest.points, rest.count);
            continue;
        }
        leaked += chunk->drawn_bytes;
        weir__host_free(chunk);
    }
    return leaked;
}
