/* pool.c - reuses freed memory, stream by stream, before asking upstream.
 *
 * A heap (src/heap.h) knows what is free and behind which mark; the device's stream
 * order says who may take it. Every free byte carries the mark of its own last use,
 * so whoever takes it knows what to wait for.
 *
 * The way of a request:
 *     cache  what the calling thread keeps of that stream (pool_hit.c): no lock; or,
 *            under one short lock, a magazine of the depot or a best fit of the heap
 *     heap   a best fit under the stream's own clock: one short lock, no device call
 *     miss   one thread at a time, in pool_miss.c: known or asked to be done, the rest
 *            of the initial size, waiting for other streams, what others keep, growth
 * This file begins behind the cache, where streams that Weir does not know, aligned
 * requests and captures go at once.
 *
 * A miss takes blocks out of the heap while it waits or asks. A thread that finds
 * nothing because of that becomes a miss itself, waits for the first to be through,
 * and looks again: nobody is refused for what is only on its way.
 *
 * A free takes its mark before the block is free for anybody to see, and without the
 * lock, for that may record an event. Until then the block is neither out nor free:
 * a second free of it that races with the first is found.
 */
#include "weir/pool.h"

#include "device/device.h"
#include "internal.h"
#include "pool_hit.h"
#include "pool_internal.h"
#include "pool_pages.h"
#include "pool_seats.h"
#include "pool_share.h"
#include "resource_internal.h"

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

/* Only where the stream was made to wait just now there is nothing to look up: what was
 * learnt by a wait may be forgotten again. */
bool weir__pool_may_take_run(const weir__request *request, weir__heap_run run)
{
    for (uint32_t block = run.first;;
         block = weir__heap_after(&request->pool->heap, block)) {
        if (!weir__pool_may_take(request, block))
            return false;
        if (block == run.last)
            return true;
    }
}

void weir__pool_note_dropped_locked(weir__pool *self)
{
    self->has_dropped = true;
    weir__note_done(self->device, weir__pool_dropped_key(self), NULL);
}

void weir__pool_learn_dropped_locked(weir__pool *self)
{
    if (self->has_dropped)
        weir__note_learn(self->device, weir__pool_dropped_key(self));
}

void weir__pool_mark_out_locked(const weir__request *request, weir__heap_block *block)
{
    weir__pool *self = request->pool;
    weir__link_set(block, request->owner->slot);
    weir__heap_set_tag(block, weir__pool_out_tag(request->owner, request->asked_bytes,
                                                 request->asked_alignment));
    if (WEIR_UNLIKELY(self->has_dropped))
        weir__pool_learn_dropped_locked(self);
}

uint32_t weir__pool_hand_out_locked(weir__request *request, weir__heap_run run,
                                    weir__mark front, weir__mark rest)
{
    weir__heap *heap = &request->pool->heap;
    WEIR_ASSERT(weir__mutex_is_mine(&request->pool->lock),
                "handing out changes the heap");
    WEIR_CHECK(!request->pool->closing, "allocated after the last unref");
    uint32_t id = weir__heap_hand_out(heap, run, request->bytes, request->alignment,
                                      front, rest);
    id = weir__heap_move_to(heap, id, request->home);
    weir__pool_mark_out_locked(request, weir__heap_block_of(heap, id));
    return id;
}

static uint32_t take_best_locked(weir__request *request, weir__heap_owner *owner)
    WEIR_REQUIRES(request->pool->lock)
{
    weir__heap *heap = &request->pool->heap;
    uint32_t block;
    if (WEIR_UNLIKELY(request->pool->is_short) &&
        weir__pool_declines_locked(request, weir__heap_best(heap, owner, request->bytes,
                                                            request->alignment)))
        return 0;
    if (WEIR_UNLIKELY(weir__pool_is_wary(request->pool)) && !request->is_placed &&
        weir__pool_spares_locked(request->pool,
                                 weir__heap_best(heap, owner, request->bytes,
                                                 request->alignment)))
        return 0;
    if (request->alignment <= WEIR__HEAP_GRAIN)
        return weir__pool_take_fit_locked(request->pool, owner, request->owner,
                                          request->home, request->bytes,
                                          request->asked_bytes,
                                          request->asked_alignment).id;
    block = weir__heap_best(heap, owner, request->bytes, request->alignment);
    if (block == 0)
        return 0;
    weir__mark mark = weir__heap_mark(heap, block);
    weir__heap_hold(heap, block);
    return weir__pool_hand_out_locked(request, (weir__heap_run){ block, block }, mark,
                                      mark);
}

uint32_t weir__pool_take_own_locked(weir__request *request)
{
    return take_best_locked(request, request->owner);
}

uint32_t weir__pool_take_done_locked(weir__request *request)
{
    weir__heap_owner *done =
        weir__heap_owner_at(&request->pool->heap, WEIR__OWNER_DONE);
    uint32_t block = weir__heap_best(&request->pool->heap, done, request->bytes,
                                     request->alignment);
    bool known = weir__order_may_take(request->pool->order, request->clock,
                                      WEIR__MARK_DONE); /* for the ledger to hear */
    if (!known || block == 0 ||
        (weir__pool_is_wary(request->pool) && !request->is_placed &&
         weir__pool_spares_locked(request->pool, block)))
        return 0;
    return weir__pool_take_fresh_locked(request, block)
               ? weir__pool_take_own_locked(request)
               : take_best_locked(request, done);
}

static void report_locked(const weir__request *request, weir_out_of_memory *report)
{
    const weir__pool *self = request->pool;
    *report = (weir_out_of_memory){
        .struct_size = sizeof *report,
        .requested_bytes = request->asked_bytes,
        .limit_bytes = self->options.limit_bytes,
        .held_bytes = self->held_bytes + self->passed_bytes,
        .in_use_bytes = self->heap.taken_bytes + self->passed_bytes,
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

/* What has room to spare is not to be had: then what has none may be. */
static weir_status serve(weir__request *request, uint32_t *out)
{
    const size_t least = weir__pool_whole_grains(request->asked_bytes);
    weir_status status = weir__pool_serve(request, out);
    if (*out != 0 || status != WEIR_OK || request->bytes == least)
        return status;
    request->bytes = least;
    return weir__pool_serve(request, out);
}

weir_status weir__pool_allocate_slowly(weir__pool *self, weir_stream stream,
                                       size_t bytes, size_t alignment, void **out)
{
    weir__request request = {
        .pool = self,
        .stream = stream,
        .asked_bytes = bytes,
        .asked_alignment = alignment,
        .alignment = alignment > WEIR__HEAP_GRAIN ? alignment : WEIR__HEAP_GRAIN,
    };
    if (alignment >= self->pass_alignment)
        return weir__pool_pass(self, stream, bytes, alignment, out);
    if (bytes > SIZE_MAX / 2) { /* rounding it up may overflow */
        request.refusal = WEIR_OUT_OF_MEMORY;
        return refuse(&request, WEIR_OK);
    }
    request.bytes = weir__pool_room_for(self, bytes);
    weir_status status = weir__order_clock(self->order, stream, &request.clock);
    if (status != WEIR_OK)
        return refuse(&request, status);
    request.home = weir__pool_take_seat(self, weir__stream_of(stream));

    uint32_t block = 0;
    weir__mutex_lock(&self->lock);
    bool promised = promise_locked(&request);
    if (promised)
        block = weir__pool_take_own_locked(&request);
    if (block != 0)
        weir__heap_forget_promise(&self->heap);
    uintptr_t base =
        block != 0 ? weir__heap_base(weir__heap_block_of(&self->heap, block)) : 0;
    const bool has_chores = block != 0 && weir__pool_has_chores_locked(self);
    weir__mutex_unlock(&self->lock);
    if (!promised)
        return refuse(&request, weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                                           "pool: no memory for records"));

    if (block == 0) {
        status = serve(&request, &block);
        weir__mutex_lock(&self->lock);
        weir__heap_forget_promise(&self->heap);
        if (block != 0)
            base = weir__heap_base(weir__heap_block_of(&self->heap, block));
        weir__mutex_unlock(&self->lock);
        if (block == 0)
            return refuse(&request, status);
    }
    weir__pool_count_out(self, bytes);
    weir__pool_tell_lost(self);
    if (has_chores)
        weir__pool_do_chores(self);
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

/* A block, as another thread may be giving it to its cache meanwhile, or taking it from
 * there: it is out where it was so before and after its link was read. (One that comes
 * back and goes out again in between has another's birth, for who only asks.) */
typedef struct sighting {
    uint32_t tag;
    uint32_t birth; /* if it is out: the owner whose stream it was allocated on */
    bool is_out;
} sighting;

static sighting see_locked(const weir__pool *self, const weir__heap_block *block)
    WEIR_REQUIRES(self->lock)
{
    const uint64_t head = atomic_load_explicit(&block->head, memory_order_acquire);
    sighting it = { (uint32_t)head & WEIR__TAG_MASK, 0, false };
    it.birth = atomic_load_explicit(&block->link, memory_order_acquire);
    it.is_out = (it.tag & WEIR__TAG_STATE_MASK) == WEIR__HEAP_OUT &&
                weir__heap_is_still(block, head) &&
                it.birth < self->heap.owner_count;
    return it;
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
    const uint32_t id = weir__heap_find(&self->heap, ptr);
    if (id == 0) {
        *wrong = unknown_pointer(self, ptr);
        weir__mutex_unlock(&self->lock);
        return it;
    }
    weir__heap_block *block = weir__heap_block_of(&self->heap, id);
    sighting seen = see_locked(self, block);
    size_t asked = weir__heap_asked_bytes(block, seen.tag);
    size_t aligned = weir__heap_asked_alignment(seen.tag);
    if (!seen.is_out) {
        wrong->kind = WEIR_MISUSE_DOUBLE_FREE;
    } else if (asked != bytes || aligned != alignment) {
        *wrong = (slip){ WEIR_MISUSE_WRONG_SIZE, asked, aligned };
    } else {
        const weir__heap_owner *birth = weir__heap_owner_at(&self->heap, seen.birth);
        if (weir__heap_claim(block, weir__heap_head(ptr, seen.tag), WEIR__HEAP_CACHED))
            it = (returning){ id, bytes, birth->clock };
        else
            wrong->kind = WEIR_MISUSE_DOUBLE_FREE; /* at this very moment */
    }
    weir__mutex_unlock(&self->lock);
    return it;
}

/* What is not the pool's may be upstream's: that knows what is wrong with it. */
static bool may_be_passed(const weir__pool *self, const slip *wrong)
{
    return wrong->kind == WEIR_MISUSE_FOREIGN_POINTER && weir__pool_passes(self);
}

static void tell_slip(slip wrong, const void *ptr, size_t bytes, size_t alignment)
{
    if (wrong.kind == WEIR_MISUSE_WRONG_SIZE)
        weir__misuse(wrong.kind, ptr, bytes,
                     "pool: %p comes back with %zu bytes, alignment %zu; it was "
                     "allocated with %zu bytes, alignment %zu",
                     ptr, bytes, alignment, wrong.bytes, wrong.alignment);
    else if (wrong.kind == WEIR_MISUSE_DOUBLE_FREE)
        weir__misuse(wrong.kind, ptr, bytes,
                     "pool: %p is not out: given back already, or not handed out yet",
                     ptr);
    else
        weir__misuse(wrong.kind, ptr, bytes, "pool: %p was never allocated here", ptr);
}

/* True if that was the last block of a pool that nobody refers to any more: the caller
 * ends it. Else another thread may end it as soon as the lock is given back. */
static bool finish_return_locked(weir__pool *self, uint32_t block, weir__mark mark)
    WEIR_REQUIRES(self->lock)
{
    self->releases++;
    (void)weir__heap_release(&self->heap, block, weir__pool_owned_mark(self, mark));
    return weir__pool_is_over_locked(self);
}

void weir__pool_drain_locked(weir__pool *self)
{
    weir__magazine magazine =
        weir__depot_take(&self->depot, weir__depot_oldest(&self->depot));
    weir__block_list list = weir__magazine_blocks(&magazine);
    weir__pool_settle_locked(self, &list, magazine.mark);
}

bool weir__pool_deallocate_slowly(weir__pool *self, weir_stream stream,
                                  void *ptr, size_t bytes, size_t alignment)
{
    slip wrong;
    returning it = begin_return(self, ptr, bytes, alignment, &wrong);
    if (it.block == 0 && may_be_passed(self, &wrong))
        return weir__pool_pass_back(self, stream, ptr, bytes, alignment);
    if (it.block == 0) {
        tell_slip(wrong, ptr, bytes, alignment);
        return false;
    }
    weir__mark mark = weir__order_free_mark(self->order, stream, it.birth);

    weir__pool_take_spare_seat(self, weir__stream_of(stream));
    weir__pool_count_back(self, bytes);
    weir__mutex_lock(&self->lock);
    bool is_over = finish_return_locked(self, it.block, mark);
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
 * last of them stays if all are. */
static weir__mark mark_behind_locked(weir__pool *self, uint32_t block,
                                     const weir_point *points, size_t count)
    WEIR_REQUIRES(self->lock)
{
    weir__mark mark = WEIR__MARK_DONE;
    bool is_open = false;
    for (size_t i = 0; i < count; i++) {
        const weir__mark next = { points[i].clock, points[i].mark };
        bool next_is_open = !weir__order_may_take(self->order, 0, next);
        if (!is_open) {
            mark = next;
            is_open = next_is_open;
        } else if (next_is_open && !wait_for_locked(self, block, &mark, next)) {
            /* No record to spare, and none to be had here. */
            weir__heap_drop_marks(&self->heap, block);
            return weir__order_mark_here(self->order, 0);
        }
    }
    return mark;
}

bool weir__pool_deallocate_after(void *context, void *ptr, size_t bytes,
                                  size_t alignment, const weir_point *points,
                                  size_t count)
{
    weir__pool *self = context;
    slip wrong;
    returning it = begin_return(self, ptr, bytes, alignment, &wrong);
    if (it.block == 0 && may_be_passed(self, &wrong))
        return weir__pool_pass_back_after(self, ptr, bytes, alignment, points, count);
    if (it.block == 0) {
        tell_slip(wrong, ptr, bytes, alignment);
        return false;
    }
    weir__mark birth = { it.birth, 0 };
    bool is_captured = weir__order_is_captured(self->order, birth);

    weir__pool_count_back(self, bytes);
    weir__mutex_lock(&self->lock);
    weir__mark mark = is_captured
                          ? weir__order_capture_mark(self->order, birth.clock,
                                                     count == 0)
                          : mark_behind_locked(self, it.block, points, count);
    weir__pool_note_dropped_locked(self); /* that may be why a stream has no point */
    bool is_over = finish_return_locked(self, it.block, mark);
    weir__mutex_unlock(&self->lock);
    if (is_over)
        weir__resource_ended(self->mr);
    return true;
}

/* ---- questions ---- */

/* Who asks about another's block, that comes back and goes out again while it is looked
 * at, would be told of another's birth: so it is out only if two looks agree. */
static sighting see_twice_locked(const weir__pool *self, const weir__heap_block *block)
    WEIR_REQUIRES(self->lock)
{
    const sighting first = see_locked(self, block);
    sighting seen = see_locked(self, block);
    seen.is_out = seen.is_out && first.is_out && seen.birth == first.birth;
    return seen;
}

weir_status weir__pool_find(void *context, const void *ptr, weir_block *out)
{
    weir__pool *self = context;
    weir__mutex_lock(&self->lock);
    const uint32_t id = weir__heap_find(&self->heap, ptr);
    const weir__heap_block *block = NULL;
    sighting seen = { 0 };
    if (id != 0) {
        block = weir__heap_block_of(&self->heap, id);
        seen = see_twice_locked(self, block);
    }
    if (seen.is_out)
        *out = (weir_block){
            .struct_size = sizeof *out,
            .ptr = (void *)weir__heap_base(block),
            .bytes = weir__heap_asked_bytes(block, seen.tag),
            .alignment = weir__heap_asked_alignment(seen.tag),
            .stream = weir__heap_owner_at(&self->heap, seen.birth)->stream
        };
    weir__mutex_unlock(&self->lock);
    if (id == 0 && weir__pool_passes(self))
        return weir__pool_find_passed(self, ptr, out);
    if (!seen.is_out)
        return weir__fail(WEIR_NOT_FOUND, "pool: no block that is out begins at %p",
                          ptr);
    return WEIR_OK;
}
