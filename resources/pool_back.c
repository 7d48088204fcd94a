/* pool_back.c - what a pool gives back to upstream: a chunk as a whole or not at all,
 * so only while all of it is free; what can go by itself is made a chunk first
 * (pool_parts.c). While it is looked at its blocks are held: nobody takes a part of it,
 * and a free beside them waits with its merge. */
#include "device/device.h"
#include "internal.h"
#include "pool_internal.h"
#include "pool_share.h"

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define UNFINISHED_MAX 4u
#else
#define UNFINISHED_MAX 32u
#endif

/* ---- chunks ---- */

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
    size_t room = self->options.limit_bytes - busy_bytes;
    size_t slack = weir__pool_chunk_slack(self);
    return room > slack && weir__pool_needed_bytes(request) <= room - slack;
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

/* The first mark that is not known to be done, but for captures', and for those of
 * clocks for which a wait has failed. */
typedef struct progress {
    weir__order *order;
    weir__mark open; /* clock 0: there is none */
    uint64_t failed[UNFINISHED_MAX];
    size_t failed_count;
} progress;

static bool has_failed(const progress *self, uint64_t clock)
{
    for (size_t i = 0; i < self->failed_count; i++) {
        if (self->failed[i] == clock)
            return true;
    }
    return false;
}

static bool is_known_or_noted(void *context, weir__mark mark)
{
    progress *self = context;
    if (weir__order_is_captured(self->order, mark))
        return false;
    bool is_done = weir__order_may_take(self->order, 0, mark);
    if (!is_done && self->open.clock == 0 && !has_failed(self, mark.clock))
        self->open = mark;
    return is_done;
}

/* Waits for that, while others go on: what it finds then may be another's. False: there
 * is none, or more waits have failed than there is room for. */
static bool wait_for_open(weir__pool *self, progress *seen)
    WEIR_REQUIRES(self->miss)
{
    const weir__mark open = seen->open;
    if (open.clock == 0 || seen->failed_count == UNFINISHED_MAX)
        return false;
    seen->open = WEIR__MARK_DONE;
    weir__mutex_unlock(&self->miss);
    weir_status status = weir__order_sync(seen->order, open);
    weir__mutex_lock(&self->miss);
    if (status != WEIR_OK)
        seen->failed[seen->failed_count++] = open.clock;
    weir__pool_forget_skips(self);
    return true;
}

size_t weir__pool_trim_sync(weir__pool *self, size_t keep_bytes)
{
    size_t given = 0;
    weir__mutex_lock(&self->lock);
    (void)weir__heap_settle(&self->heap);
    /* As many waits as there are marks by now: others may go on for ever. */
    size_t waits = self->heap.free_made - self->heap.free_spare_count +
                   self->heap.returned_blocks;
    weir__pool_forget_peak_locked(self);
    weir__mutex_unlock(&self->lock);
    progress seen = { .order = self->order, .open = WEIR__MARK_DONE };
    while (self->held_bytes > keep_bytes && !weir__device_is_lost(self->device)) {
        weir__chunk *chunk = take_chunk(self, is_known_or_noted, &seen);
        if (chunk != NULL)
            given += give_upstream(self, chunk, NULL, 0);
        else if (waits > 0 && wait_for_open(self, &seen))
            waits--;
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
    return weir__device_is_lost(rest->pool->device) ||
           weir__order_sync(rest->pool->order, mark) == WEIR_OK ||
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
    const size_t needed = weir__pool_needed_bytes(request);
    size_t given = 0, bytes;

    if (!flush_can_help(request))
        return false;

    /* What a capture has is its own, and goes nowhere before it is released. */
    if (weir__order_is_captured(self->order, (weir__mark){ request->clock, 0 }))
        return false;
    while ((bytes = weir__pool_flush_chunk(request)) > 0)
        given += bytes;
    if (given < needed)
        given += weir__pool_flush_parts(request, needed - given);
    weir__pool_forget_skips(self);
    if (given < needed && request->wait_status == WEIR_OK)
        given += flush_behind_points(request, needed - given);
    return given > 0;
}

size_t weir__pool_give_idle(weir__pool *self)
{
    size_t given = 0;
    weir__mutex_lock(&self->lock);
    (void)weir__heap_settle(&self->heap);
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
