/* pool_parts.c - parts of a chunk go back upstream while others of it are out.
 *
 *     chunk      |   OUT   |      FREE      | OUT |  FREE  |
 *     upstream              <---- cut ---->
 *     chunks     |   OUT   |F|     FREE     |F|OUT|  FREE  |
 *
 * Of neighbours that are all free upstream cuts out what the device can have back
 * (resource_ops.h: cut). That becomes a chunk of its own, all free, and goes as any
 * other does, behind the same marks and with the same waits; or stays, if it may not.
 * What is cut off lies where it was, in chunks of its own from then on: it merges with
 * nothing across, for there is nothing any more. */
#include "internal.h"
#include "pool_internal.h"

/* Neighbours in one chunk that are all free, and of their bytes those that could be
 * cut out. */
typedef struct idle_run {
    weir__chunk *chunk;
    weir__heap_run run;
    size_t from, to;
    size_t marks;        /* that one of them has, at the most */
} idle_run;

static uintptr_t base_at(const weir__heap *heap, uint32_t block)
{
    return weir__heap_base(weir__heap_block_of(heap, block));
}

static uintptr_t end_at(const weir__heap *heap, uint32_t block)
{
    const weir__heap_block *it = weir__heap_block_of(heap, block);
    return weir__heap_base(it) + weir__heap_bytes(it);
}

static size_t marks_at(const weir__heap *heap, uint32_t block)
{
    size_t count = 0;
    weir__mark mark;
    for (uint32_t at = 0; weir__heap_next_mark(heap, block, &at, &mark);)
        count++;
    return count;
}

/* The last block of a chunk that no one of these has looked at; or 0. */
static uint32_t last_unseen(const weir__heap *heap, const weir__chunk *chunk)
{
    uintptr_t end = chunk->unseen_end;
    uint32_t block = end != 0 && end != chunk->base + chunk->bytes
                         ? weir__heap_find(heap, (const void *)end)
                         : 0;
    if (block != 0)
        return weir__heap_before(heap, block);
    block = weir__heap_last(heap, chunk);
    while (end != 0 && block != 0 && end_at(heap, block) > end)
        block = weir__heap_before(heap, block);
    return block;
}

/* What of a run upstream could cut out. False: nothing, or the chunk is all free. */
static bool find_part(const weir__pool *self, idle_run *it)
{
    const weir__heap *heap = &self->heap;
    const size_t step = self->up.cut_bytes;
    uintptr_t base = it->chunk->base, last = base + it->chunk->bytes;
    uintptr_t begin = base_at(heap, it->run.first), end = end_at(heap, it->run.last);
    if (begin != base)
        begin = (begin + (step - 1)) & ~(uintptr_t)(step - 1);
    if (end != last)
        end &= ~(uintptr_t)(step - 1);
    if (begin >= end || (begin == base && end == last))
        return false;
    it->from = begin - base;
    it->to = end - base;
    return true;
}

/* The last run of a chunk that nobody has looked at, and has a part to be cut out. */
static bool find_in_locked(weir__pool *self, weir__chunk *chunk,
                           weir__heap_usable may_go, void *context, idle_run *out)
    WEIR_REQUIRES(self->lock)
{
    const weir__heap *heap = &self->heap;
    uint32_t block = last_unseen(heap, chunk);
    while (block != 0) {
        *out = (idle_run){ .chunk = chunk };
        for (; block != 0 && weir__heap_is_idle(weir__heap_block_of(heap, block)) &&
               may_go(context, block);
             block = weir__heap_before(heap, block)) {
            size_t marks = marks_at(heap, block);
            out->run.first = block;
            out->run.last = out->run.last != 0 ? out->run.last : block;
            out->marks = marks > out->marks ? marks : out->marks;
        }
        if (out->run.first == 0) {
            block = weir__heap_before(heap, block);
        } else if (find_part(self, out)) {
            chunk->unseen_end = base_at(heap, out->run.first);
            return true;
        }
    }
    chunk->unseen_end = chunk->base;
    return false;
}

/* Promises the records that it takes to cut what has so many marks: to begin with one
 * promise was made. Returns how many there are then; 0: there is no host memory. */
static size_t promise_locked(weir__pool *self, size_t marks) WEIR_REQUIRES(self->lock)
{
    size_t promises = 1;
    bool there = true;
    while (there && promises * WEIR__HEAP_PROMISE_FREE < 2 * marks) {
        there = weir__heap_promise(&self->heap);
        promises += there;
    }
    /* For two more chunks of the map: what a chunk needs whatever its bytes, twice. */
    there = there && weir__heap_reserve(&self->heap, self->heap.oldest->base,
                                        (size_t)2 << WEIR__SEGMENT_BITS) == WEIR_OK;
    for (; !there && promises > 0; promises--)
        weir__heap_forget_promise(&self->heap);
    return promises;
}

static void release_held_locked(weir__pool *self, uint32_t block)
    WEIR_REQUIRES(self->lock)
{
    weir__heap *heap = &self->heap;
    for (uint32_t next; block != 0 &&
                        weir__heap_state_at(heap, block) == WEIR__HEAP_HELD;
         block = next) {
        next = weir__heap_after(heap, block);
        (void)weir__heap_release(heap, block, weir__heap_mark(heap, block));
    }
}

/* The block that begins at `at`, for which one from `block` on, HELD, is cut in two. */
static uint32_t block_from_locked(weir__pool *self, uint32_t block, uintptr_t at)
    WEIR_REQUIRES(self->lock)
{
    weir__heap *heap = &self->heap;
    while (end_at(heap, block) <= at)
        block = weir__heap_after(heap, block);
    uintptr_t base = base_at(heap, block);
    return base == at ? block : weir__heap_cut(heap, block, at - base);
}

/* The chunk ends where `block` begins, and a new one begins there. */
static void split_locked(weir__pool *self, weir__chunk *chunk, weir__chunk *rest,
                         uint32_t block) WEIR_REQUIRES(self->lock)
{
    weir__heap_split_chunk(&self->heap, chunk, rest, block);
    rest->ptr = (unsigned char *)chunk->ptr + chunk->bytes;
    rest->drawn_alignment = chunk->drawn_alignment;
    rest->drawn_bytes = chunk->drawn_bytes - chunk->bytes;
    rest->unseen_end = rest->base;
    chunk->drawn_bytes = chunk->bytes;
}

/* Upstream has cut out the part: so does the heap. *records are for the chunks that
 * this makes; what is not used of them stays the caller's. */
static void cut_out_locked(weir__pool *self, const idle_run *it,
                           weir__chunk *records[2], size_t promises)
    WEIR_REQUIRES(self->lock)
{
    weir__chunk *chunk = it->chunk;
    uint32_t front = it->run.first, behind = 0;
    uint32_t middle = block_from_locked(self, front, chunk->base + it->from);
    if (it->to < chunk->bytes)
        behind = block_from_locked(self, middle, chunk->base + it->to);
    if (behind != 0) {
        split_locked(self, chunk, records[0], behind);
        records[0] = NULL;
    }
    if (it->from > 0) {
        split_locked(self, chunk, records[1], middle);
        records[1] = NULL;
    }
    for (; promises > 0; promises--)
        weir__heap_forget_promise(&self->heap);
    if (middle != front)
        release_held_locked(self, front);
    release_held_locked(self, middle);
    release_held_locked(self, behind);
}

/* Finds a run, whose blocks are HELD then. False: there is none, or no host memory. */
static bool hold_locked(weir__pool *self, weir__heap_usable may_go, void *context,
                        idle_run *out, size_t *promises) WEIR_REQUIRES(self->lock)
{
    weir__heap *heap = &self->heap;
    bool found = false;
    if (!weir__heap_promise(heap)) /* now, for it changes what is free */
        return false;
    for (weir__chunk *chunk = heap->newest; chunk != NULL && !found;
         chunk = chunk->older)
        found = find_in_locked(self, chunk, may_go, context, out);
    if (!found) {
        weir__heap_forget_promise(heap);
        return false;
    }
    *promises = promise_locked(self, out->marks);
    if (*promises == 0)
        return false;
    for (uint32_t block = out->run.first;; block = weir__heap_after(heap, block)) {
        weir__heap_hold(heap, block);
        if (block == out->run.last)
            return true;
    }
}

/* Does with the run what upstream does with its block. True: a part is cut out. */
static bool cut_run(weir__pool *self, idle_run *it, size_t wanted_bytes,
                    weir__chunk *records[2], size_t promises)
{
    const weir__chunk *chunk = it->chunk;
    weir_status status = weir_resource_cut(
        self->upstream, chunk->ptr, chunk->drawn_bytes, chunk->drawn_alignment,
        wanted_bytes, &it->from, &it->to);
    bool is_cut = status == WEIR_OK && it->from < it->to;
    weir__mutex_lock(&self->lock);
    if (is_cut) {
        cut_out_locked(self, it, records, promises);
    } else {
        for (; promises > 0; promises--)
            weir__heap_forget_promise(&self->heap);
        release_held_locked(self, it->run.first);
    }
    weir__mutex_unlock(&self->lock);
    return is_cut;
}

/* ---- who may go ---- */

bool weir__pool_has_no_capture(void *context, uint32_t block)
{
    const weir__pool *self = context;
    weir__mark mark;
    for (uint32_t at = 0; weir__heap_next_mark(&self->heap, block, &at, &mark);) {
        if (weir__order_is_captured(self->order, mark))
            return false;
    }
    return true;
}

bool weir__pool_has_points(void *context, uint32_t block)
{
    const weir__pool *self = context;
    weir__mark mark;
    for (uint32_t at = 0; weir__heap_next_mark(&self->heap, block, &at, &mark);) {
        if (mark.clock == WEIR__CLOCK_ASIDE)
            return false;
    }
    return weir__pool_has_no_capture(context, block);
}

/* ---- the whole way ---- */

bool weir__pool_cut_out(weir__pool *self, size_t wanted_bytes,
                        weir__heap_usable may_go, void *context)
{
    idle_run it;
    size_t promises;
    bool found = self->up.cut_bytes >= WEIR__HEAP_GRAIN, is_cut = false;
    while (found && !is_cut) {
        weir__chunk *records[2] = { weir__host_alloc(sizeof(weir__chunk)),
                                    weir__host_alloc(sizeof(weir__chunk)) };
        weir__mutex_lock(&self->lock);
        found = records[0] != NULL && records[1] != NULL &&
                hold_locked(self, may_go, context, &it, &promises);
        weir__mutex_unlock(&self->lock);
        is_cut = found && cut_run(self, &it, wanted_bytes, records, promises);
        weir__host_free(records[0]);
        weir__host_free(records[1]);
    }
    return is_cut;
}

static bool may_take(void *request, uint32_t block)
{
    return weir__pool_may_take(request, block);
}

size_t weir__pool_flush_parts(weir__request *request, size_t bytes)
{
    size_t given = 0, more;
    while (given < bytes) {
        more = weir__pool_flush_chunk(request);
        given += more;
        if (more == 0 &&
            !weir__pool_cut_out(request->pool, bytes - given, may_take, request))
            break;
    }
    return given;
}

/* What lies free at the end of the newest chunk, which grows by less for it. It is not
 * to be cut out. */
static size_t leave_end_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock)
{
    const weir__heap *heap = &request->pool->heap;
    weir__chunk *chunk = heap->newest;
    uint32_t end = chunk != NULL ? weir__heap_last(heap, chunk) : 0;
    if (end == 0 || weir__heap_state_at(heap, end) != WEIR__HEAP_FREE ||
        !weir__pool_may_take(request, end))
        return 0;
    chunk->unseen_end = base_at(heap, end);
    return end_at(heap, end) - base_at(heap, end);
}

void weir__pool_make_room(weir__request *request, size_t needed_bytes)
{
    weir__pool *self = request->pool;
    if (weir__order_is_captured(self->order, (weir__mark){ request->clock, 0 }))
        return;
    weir__mutex_lock(&self->lock);
    size_t end_bytes = leave_end_locked(request);
    weir__mutex_unlock(&self->lock);
    if (needed_bytes > end_bytes)
        (void)weir__pool_flush_parts(request, needed_bytes - end_bytes);
    weir__pool_forget_skips(self);
}
