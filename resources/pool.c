/* pool.c - reuses freed memory, stream by stream, before asking upstream.
 *
 * A heap (src/heap.h) knows what is free and behind which mark; the device's stream
 * order says who may take it. Every free byte carries the mark of its own last use,
 * so whoever takes it knows what to wait for.
 *
 * The way of a request:
 *     hit    a best fit under the stream's own clock: one short lock, no device call
 *     miss   one thread at a time, in pool_miss.c: known or asked to be done, the rest
 *            of the initial size, waiting for other streams, growth
 * A miss takes blocks out of the heap while it waits or asks. A thread that finds
 * nothing because of that becomes a miss itself, waits for the first to be through,
 * and looks again: nobody is refused for what is only on its way.
 *
 * A free takes its mark before the block is free for anybody to see, and without the
 * lock, for that may record an event. Until then the block is neither out nor free:
 * a second free of it that races with the first is found.
 *
 * Who keeps whom alive: the weir_resource around the pool holds upstream and device. It
 * leaves it to the pool to count the blocks that are out, which happens under its lock
 * anyway: the last unref, or after it the last block that comes back, ends both.
 * A chunk's record belongs to the pool, from drawing it to giving it back.
 */
#include "weir/pool.h"

#include "device/device.h"
#include "internal.h"
#include "pool_internal.h"
#include "resource_internal.h"

/* Any alignment costs the pool at most that many bytes in front of a block, which stay
 * free; a page of the device's is the most that anything asks for. */
#define POOL_MAX_ALIGNMENT ((size_t)2 << 20)

/* ---- allocation ---- */

bool weir__pool_may_take(const weir__request *request, uint32_t block)
{
    weir__mark mark;
    uint32_t cursor = 0;
    while (weir__heap_next_mark(&request->pool->heap, block, &cursor, &mark)) {
        if (mark.clock != request->clock &&
            !weir__order_may_take(request->pool->order, request->clock, mark))
            return false;
    }
    return true;
}

static void count_out(weir_resource_statistics *counts, size_t bytes)
{
    counts->allocations++;
    counts->out_blocks++;
    counts->out_bytes += bytes;
    if (counts->peak_out_bytes < counts->out_bytes)
        counts->peak_out_bytes = counts->out_bytes;
}

/* The ledger's name for what marks that were dropped stand for. */
static uint64_t dropped_key(const weir__pool *self)
{
    return (uint64_t)(uintptr_t)self;
}

void weir__pool_note_dropped_locked(weir__pool *self)
{
    const weir__device_ops *ops = self->device->ops;
    self->has_dropped = true;
    if (ops->note_done != NULL)
        ops->note_done(self->device->self, dropped_key(self), NULL);
}

void weir__pool_learn_dropped_locked(weir__pool *self)
{
    const weir__device_ops *ops = self->device->ops;
    if (self->has_dropped && ops->note_learn != NULL)
        ops->note_learn(self->device->self, dropped_key(self));
}

weir__mark weir__pool_owned_mark(const weir__pool *self, weir__mark mark)
{
    if (weir__heap_can_release(&self->heap, mark.clock))
        return mark;
    return weir__order_mark_here(self->order, 0);
}

uint32_t weir__pool_hand_out_locked(weir__request *request, weir__heap_run run,
                                    weir__mark front, weir__mark rest)
{
    weir__pool *self = request->pool;
    WEIR_ASSERT(weir__mutex_is_mine(&self->lock), "handing out changes the heap");
    WEIR_CHECK(!self->closing, "allocated after the last unref");

    uint32_t id = weir__heap_hand_out(&self->heap, run, request->bytes,
                                      request->alignment, front, rest);
    id = weir__heap_move_home(&self->heap, id, request->owner);
    weir__heap_block *block = weir__heap_block_of(&self->heap, id);
    uint32_t tag = weir__heap_out_tag(request->asked_bytes, request->asked_alignment);
    if (request->owner->kind == WEIR__POOL_CAPTURE)
        tag |= WEIR__TAG_CAPTURED;
    weir__heap_set_tag(block, tag);
    atomic_store_explicit(&block->link, request->owner->slot, memory_order_relaxed);
    weir__pool_learn_dropped_locked(self);
    count_out(&self->counts, request->asked_bytes);
    return id;
}

uint32_t weir__pool_take_own_locked(weir__request *request)
{
    weir__heap *heap = &request->pool->heap;
    uint32_t block =
        weir__heap_best(heap, request->owner, request->bytes, request->alignment);
    if (block == 0)
        return 0;
    weir__mark mark = weir__heap_mark(heap, block);
    weir__heap_hold(heap, block);
    return weir__pool_hand_out_locked(request, (weir__heap_run){ block, block }, mark,
                                      mark);
}

static void report_locked(const weir__request *request, weir_out_of_memory *report)
{
    const weir__pool *self = request->pool;
    *report = (weir_out_of_memory){
        .struct_size = sizeof *report,
        .requested_bytes = request->asked_bytes,
        .limit_bytes = self->options.limit_bytes,
        .held_bytes = self->held_bytes,
        .in_use_bytes = self->heap.taken_bytes,
        .largest_free_bytes = weir__heap_largest_free(&self->heap),
        .resource = "pool",
    };
}

/* Counts a failure. `status` is OK if there simply is no memory; everything else has
 * its sentence already. */
static weir_status refuse(const weir__request *request, weir_status status)
{
    weir_out_of_memory report;
    weir__mutex_lock(&request->pool->lock);
    request->pool->counts.failures++;
    report_locked(request, &report);
    weir__mutex_unlock(&request->pool->lock);
    if (status != WEIR_OK)
        return status;
    if (request->wait_status != WEIR_OK)
        return weir__fail_native(request->wait_status, request->wait_code,
                                 "pool: memory of another stream has room for %zu "
                                 "bytes, but it could not be waited for",
                                 request->asked_bytes);
    return weir__fail_memory(request->refusal, &report);
}

bool weir__pool_meet_owner_locked(weir__request *request)
{
    weir__pool *self = request->pool;
    weir__heap_owner *owner =
        weir__heap_owner_get(&self->heap, request->clock, request->stream);
    if (owner != NULL && owner->kind == 0)
        owner->kind = weir__order_is_captured(self->order,
                                              (weir__mark){ request->clock, 0 })
                          ? WEIR__POOL_CAPTURE
                          : WEIR__POOL_PLAIN;
    request->owner = owner;
    return owner != NULL;
}

/* The promise makes owners, and may use those of which nothing is left for that. */
static bool promise_locked(weir__request *request) WEIR_REQUIRES(request->pool->lock)
{
    if (!weir__pool_meet_owner_locked(request))
        return false;
    request->owner->pins++;
    bool promised = weir__heap_promise(&request->pool->heap);
    request->owner->pins--;
    return promised;
}

static weir_status pool_allocate(void *context, weir_stream stream,
                                 size_t bytes, size_t alignment, void **out)
{
    weir__pool *self = context;
    weir__request request = {
        .pool = self,
        .stream = stream,
        .asked_bytes = bytes,
        .asked_alignment = alignment,
        .alignment = alignment > WEIR__HEAP_GRAIN ? alignment : WEIR__HEAP_GRAIN,
    };
    if (bytes > SIZE_MAX / 2) { /* rounding it up may overflow */
        request.refusal = WEIR_OUT_OF_MEMORY;
        return refuse(&request, WEIR_OK);
    }
    request.bytes = (bytes + WEIR__HEAP_GRAIN - 1) & ~(WEIR__HEAP_GRAIN - 1);
    weir_status status = weir__order_clock(self->order, stream, &request.clock);
    if (status != WEIR_OK)
        return refuse(&request, status);

    uint32_t block = 0;
    weir__mutex_lock(&self->lock);
    bool promised = promise_locked(&request);
    if (promised)
        block = weir__pool_take_own_locked(&request);
    if (block != 0)
        weir__heap_forget_promise(&self->heap);
    uintptr_t base =
        block != 0 ? weir__heap_base(weir__heap_block_of(&self->heap, block)) : 0;
    weir__mutex_unlock(&self->lock);
    if (!promised)
        return refuse(&request, weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                                           "pool: no memory for records"));

    if (block == 0) {
        status = weir__pool_serve(&request, &block);
        weir__mutex_lock(&self->lock);
        weir__heap_forget_promise(&self->heap);
        if (block != 0)
            base = weir__heap_base(weir__heap_block_of(&self->heap, block));
        weir__mutex_unlock(&self->lock);
        if (block == 0)
            return refuse(&request, status);
    }
    *out = (void *)base;
    return WEIR_OK;
}

/* ---- deallocation ---- */

/* What is wrong with a pointer that somebody gives back. */
typedef struct slip {
    weir_misuse_kind kind; /* 0: nothing */
    size_t bytes;          /* WRONG_SIZE: as asked for */
    size_t alignment;
} slip;

/* A block that comes back. */
typedef struct returning {
    uint32_t block;        /* 0: none */
    size_t asked_bytes;
    uint64_t birth;        /* the clock that it was allocated under */
} returning;

static size_t asked_bytes(const weir__heap_block *block)
{
    uint32_t slack = weir__heap_tag(block) >> WEIR__TAG_SLACK_SHIFT & 0xffu;
    return weir__heap_bytes(block) - slack;
}

static size_t asked_alignment(const weir__heap_block *block)
{
    return (size_t)1 << (weir__heap_tag(block) >> WEIR__TAG_ALIGN_SHIFT & 31u);
}

static const weir__heap_owner *birth_of(const weir__pool *self,
                                        const weir__heap_block *block)
{
    return weir__heap_owner_at(
        &self->heap, atomic_load_explicit(&block->link, memory_order_relaxed));
}

/* A pointer that is not the address of a block that is out. What lies in free memory
 * may have been handed out before; nobody remembers. */
static slip unknown_pointer(const weir__pool *self, const void *ptr)
{
    uint32_t around = weir__heap_around(&self->heap, ptr);
    bool is_free = around != 0 &&
                   weir__heap_state_at(&self->heap, around) != WEIR__HEAP_OUT;
    return (slip){ .kind = is_free ? WEIR_MISUSE_DOUBLE_FREE
                                   : WEIR_MISUSE_FOREIGN_POINTER };
}

/* The block at `ptr`, on its way back from now on (CACHED, by nobody); or none, and the
 * slip. */
static returning begin_return(weir__pool *self, const void *ptr, size_t bytes,
                              size_t alignment, slip *wrong)
{
    returning it = { 0 };
    *wrong = (slip){ 0 };
    weir__mutex_lock(&self->lock);
    uint32_t id = 0;
    weir__heap_block *block = weir__heap_lookup(&self->heap.view, ptr, &id);
    if (block == NULL) {
        *wrong = unknown_pointer(self, ptr);
    } else if (weir__heap_state_of(block) != WEIR__HEAP_OUT) {
        wrong->kind = WEIR_MISUSE_DOUBLE_FREE;
    } else if (asked_bytes(block) != bytes || asked_alignment(block) != alignment) {
        *wrong = (slip){ WEIR_MISUSE_WRONG_SIZE, asked_bytes(block),
                         asked_alignment(block) };
    } else {
        it = (returning){ id, bytes, birth_of(self, block)->clock };
        weir__heap_set_tag(block, WEIR__HEAP_CACHED);
    }
    weir__mutex_unlock(&self->lock);
    return it;
}

static void tell_slip(slip wrong, const void *ptr, size_t bytes, size_t alignment)
{
    if (wrong.kind == WEIR_MISUSE_WRONG_SIZE)
        weir__misuse(wrong.kind, ptr, bytes,
                     "pool: %p comes back with %zu bytes, alignment %zu; it was "
                     "allocated with %zu bytes, alignment %zu",
                     ptr, bytes, alignment, wrong.bytes, wrong.alignment);
    else if (wrong.kind == WEIR_MISUSE_DOUBLE_FREE)
        weir__misuse(wrong.kind, ptr, bytes, "pool: %p has been given back already",
                     ptr);
    else
        weir__misuse(wrong.kind, ptr, bytes, "pool: %p was never allocated here", ptr);
}

/* True if that was the last block of a pool that nobody refers to any more: the caller
 * ends it. Else another thread may end it as soon as the lock is given back. */
static bool finish_return_locked(weir__pool *self, returning it, weir__mark mark)
    WEIR_REQUIRES(self->lock)
{
    self->counts.deallocations++;
    self->counts.out_blocks--;
    self->counts.out_bytes -= it.asked_bytes;
    (void)weir__heap_release(&self->heap, it.block, weir__pool_owned_mark(self, mark));
    return self->closing && self->counts.out_blocks == 0;
}

static bool pool_deallocate(void *context, weir_stream stream,
                            void *ptr, size_t bytes, size_t alignment)
{
    weir__pool *self = context;
    slip wrong;
    returning it = begin_return(self, ptr, bytes, alignment, &wrong);
    if (it.block == 0) {
        tell_slip(wrong, ptr, bytes, alignment);
        return false;
    }
    weir__mark mark = weir__order_free_mark(self->order, stream, it.birth);

    weir__mutex_lock(&self->lock);
    /* The ledger hears of what users give back; what a resource above does may rest on
     * what this thread knows, and the stream does not. */
    if (weir__thread_self()->depth > 1)
        weir__pool_note_dropped_locked(self);
    bool is_over = finish_return_locked(self, it, mark);
    weir__mutex_unlock(&self->lock);
    if (is_over)
        weir__resource_ended(self->mr);
    return true;
}

/* Adds `mark` to those a block waits for besides *first. One per clock: the latest. */
static bool wait_for_locked(weir__pool *self, uint32_t block, weir__mark *first,
                            weir__mark mark) WEIR_REQUIRES(self->lock)
{
    if (first->clock != mark.clock)
        return weir__heap_add_mark(&self->heap, block, mark);
    if (first->number < mark.number)
        first->number = mark.number;
    return true;
}

/* The mark to release `block` with, which is behind all points; what it has to wait for
 * besides becomes its further marks. Points that are done are left out, but that the
 * last of them stays if all are; who takes the block learns what this thread knows. */
static weir__mark mark_behind_locked(weir__pool *self, uint32_t block,
                                     const weir_point *points, size_t count)
    WEIR_REQUIRES(self->lock)
{
    weir__mark mark = WEIR__MARK_DONE;
    bool is_open = false;
    bool drops = count == 0;
    for (size_t i = 0; i < count; i++) {
        const weir__mark next = { points[i].clock, points[i].mark };
        bool next_is_open = !weir__order_may_take(self->order, 0, next);
        drops = drops || (!next_is_open && count > 1);
        if (!is_open) {
            mark = next;
            is_open = next_is_open;
        } else if (next_is_open && !wait_for_locked(self, block, &mark, next)) {
            /* No record to spare, and none to be had here. */
            weir__heap_drop_marks(&self->heap, block);
            return weir__order_mark_here(self->order, 0);
        }
    }
    if (drops)
        weir__pool_note_dropped_locked(self);
    return mark;
}

static bool pool_deallocate_after(void *context, void *ptr, size_t bytes,
                                  size_t alignment, const weir_point *points,
                                  size_t count)
{
    weir__pool *self = context;
    slip wrong;
    returning it = begin_return(self, ptr, bytes, alignment, &wrong);
    if (it.block == 0) {
        tell_slip(wrong, ptr, bytes, alignment);
        return false;
    }
    weir__mark birth = { it.birth, 0 };
    bool is_captured = weir__order_is_captured(self->order, birth);

    weir__mutex_lock(&self->lock);
    weir__mark mark = is_captured
                          ? weir__order_capture_mark(self->order, birth.clock,
                                                     count == 0)
                          : mark_behind_locked(self, it.block, points, count);
    bool is_over = finish_return_locked(self, it, mark);
    weir__mutex_unlock(&self->lock);
    if (is_over)
        weir__resource_ended(self->mr);
    return true;
}

/* ---- questions ---- */

static weir_status pool_find(void *context, const void *ptr, weir_block *out)
{
    weir__pool *self = context;
    weir__mutex_lock(&self->lock);
    uint32_t id;
    const weir__heap_block *block = weir__heap_lookup(&self->heap.view, ptr, &id);
    bool is_out = block != NULL && weir__heap_state_of(block) == WEIR__HEAP_OUT;
    if (is_out)
        *out = (weir_block){ .struct_size = sizeof *out,
                             .ptr = (void *)weir__heap_base(block),
                             .bytes = asked_bytes(block),
                             .alignment = asked_alignment(block),
                             .stream = birth_of(self, block)->stream };
    weir__mutex_unlock(&self->lock);
    if (!is_out)
        return weir__fail(WEIR_NOT_FOUND, "pool: no block that is out begins at %p",
                          ptr);
    return WEIR_OK;
}

static void pool_statistics(void *context, weir_resource_statistics *out)
{
    weir__pool *self = context;
    weir__mutex_lock(&self->lock);
    const weir__heap *heap = &self->heap;
    *out = self->counts;
    out->struct_size = sizeof *out;
    out->held_bytes = self->held_bytes;
    out->free_bytes = heap->bytes - heap->taken_bytes;
    out->free_blocks =
        heap->free_blocks + heap->limbo_blocks + heap->returned_blocks;
    out->largest_free_bytes = weir__heap_largest_free(heap);
    out->set_aside_bytes = weir__heap_owner_at(heap, WEIR__OWNER_ASIDE)->free_bytes;
    weir__mutex_unlock(&self->lock);
}

static void pool_properties(void *context, weir_resource_properties *out)
{
    (void)context;
    out->max_alignment = POOL_MAX_ALIGNMENT;
    out->can_trim = true;
    out->usable_at_once = false;
}

static weir_resource *pool_upstream(void *context)
{
    return ((weir__pool *)context)->upstream;
}

static size_t pool_trim_sync(void *context, size_t keep_bytes)
{
    weir__pool *self = context;
    weir__mutex_lock(&self->miss);
    size_t bytes = weir__pool_trim_sync(self, keep_bytes);
    weir__mutex_unlock(&self->miss);
    /* A leaf keeps what it is given until somebody asks for it. */
    (void)weir_resource_trim_sync(self->upstream, keep_bytes);
    return bytes;
}

/* ---- beginning and end ---- */

static void pool_free(weir__pool *self)
{
    const weir__device_ops *ops = self->device->ops;
    if (self->has_dropped && ops->note_forget != NULL)
        ops->note_forget(self->device->self, dropped_key(self));
    weir__heap_close(&self->heap);
    weir__mutex_destroy(&self->miss);
    weir__mutex_destroy(&self->lock);
    weir__host_free(self);
}

/* The last unref. What is on its way back counts as out until it is back. */
static bool pool_close(void *context)
{
    weir__pool *self = context;
    weir__mutex_lock(&self->lock);
    self->closing = true;
    bool is_over = self->counts.out_blocks == 0;
    weir__mutex_unlock(&self->lock);
    return is_over;
}

static void pool_destroy(void *context)
{
    weir__pool *self = context;
    WEIR_CHECK(self->heap.taken_blocks == 0, "memory is still out");
    size_t leaked_bytes = weir__pool_give_back_all(self);
    if (leaked_bytes > 0)
        (void)weir__fail(WEIR_DEVICE_ERROR,
                         "pool: %zu bytes did not go back upstream: too many streams "
                         "may still use them",
                         leaked_bytes);
    pool_free(self);
}

static const weir_resource_ops pool_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "pool",
    .allocate = pool_allocate,
    .deallocate = pool_deallocate,
    .destroy = pool_destroy,
    .trim_sync = pool_trim_sync,
    .upstream = pool_upstream,
    .properties = pool_properties,
    .statistics = pool_statistics,
    .find = pool_find,
    .deallocate_after = pool_deallocate_after,
};

static const weir__counting pool_counting = { .close = pool_close };

static weir_status options_read(const weir_pool_options *from, weir_pool_options *out)
{
    weir_status status =
        weir__read_options(from, out, sizeof *out, "the options of a pool");
    if (status != WEIR_OK)
        return status;
    out->struct_size = sizeof *out;
    if (out->limit_bytes == 0)
        out->limit_bytes = SIZE_MAX;
    if (out->limit_bytes < out->initial_bytes)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "the limit of a pool is %zu bytes, below its initial size of "
                          "%zu",
                          out->limit_bytes, out->initial_bytes);
    return WEIR_OK;
}

weir_status weir_pool_create(weir_resource *upstream, const weir_pool_options *options,
                             weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (upstream == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the upstream of a pool is null");
    weir_pool_options in_force;
    status = options_read(options, &in_force);
    if (status != WEIR_OK)
        return status;
    weir_resource_properties up = { .struct_size = sizeof up };
    status = weir_resource_get_properties(upstream, &up);
    if (status != WEIR_OK)
        return status;

    weir__pool *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a pool");
    *self = (weir__pool){ .upstream = upstream,
                          .device = up.device,
                          .order = up.device->order,
                          .options = in_force,
                          .up = up };
    weir__mutex_init(&self->miss, WEIR__RANK_MISS);
    weir__mutex_init(&self->lock, WEIR__RANK_RESOURCE);
    if (!weir__heap_init(&self->heap)) {
        weir__mutex_destroy(&self->miss);
        weir__mutex_destroy(&self->lock);
        weir__host_free(self);
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a pool");
    }

    status = weir__resource_create_counting(&pool_ops, &pool_counting, self, out);
    if (status != WEIR_OK)
        pool_free(self);
    else
        self->mr = *out;
    return status;
}

weir_status weir_pool_get_options(weir_resource *mr, weir_pool_options *out)
{
    const weir_pool_options none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__enter();
    if (status != WEIR_OK)
        return status;
    const weir__pool *self = weir__resource_self(mr, &pool_ops);
    if (self == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the resource is no pool");
    return weir__fill_out(out, &self->options, sizeof self->options);
}
