/* pool_miss.c - a request whose stream has nothing that fits under its own clock.
 *
 * In this order: what the stream may take as far as is known; what turns out to be
 * done when asked for; what is left of the initial size; other streams' memory, for
 * which this one is made to wait; growth; growth once more after a flush. All of it
 * with the lock `miss` held, and the pool's own lock only in between the calls.
 *
 * What is taken apart is left as it was: a remainder keeps the mark of its own last
 * use, so that its stream goes on without a wait and nobody else gets one. Only
 * where memory of several streams was merged, each of which the taker has waited
 * for, the remainder gets a new mark of the taker's, after those waits: no older
 * mark is behind all of them. That mark is closed like that of a free, so that who
 * takes the remainder waits for the merge and not for what the taker does next.
 */
#include "device/device.h"
#include "internal.h"
#include "pool_internal.h"

static weir__heap *heap_of(const weir__request *request)
{
    return &request->pool->heap;
}

static void hold_run(weir__heap *heap, weir__heap_run run)
{
    for (weir__heap_block *block = run.first;; block = block->after) {
        weir__heap_hold(heap, block);
        if (block == run.last)
            return;
    }
}

/* ---- what may be taken as far as is known ---- */

static bool mark_is_done(void *context, weir__mark mark)
{
    return weir__order_may_take(context, 0, mark);
}

static size_t mark_count(const weir__heap_block *block)
{
    size_t count = 0;
    for (; block != NULL; block = block->more)
        count++;
    return count;
}

/* What waits for several marks goes where it is found, once all but one are done. */
static void settle_limbo_locked(weir__pool *self) WEIR_REQUIRES(self->lock)
{
    for (weir__heap_block *block = self->heap.limbo, *next; block; block = next) {
        next = block->right;
        weir__heap_hold(&self->heap, block);
        size_t marks = mark_count(block);
        weir__heap_drop_done(&self->heap, block, mark_is_done, self->order);
        if (mark_count(block) < marks)
            weir__pool_note_dropped_locked(self);
        weir__heap_release(&self->heap, block, block->mark);
    }
}

/* The mark of what is left of `block`. If it waits for several, the stream is behind
 * all of them. */
static weir__mark remainder_mark(const weir__request *request,
                                 const weir__heap_block *block)
{
    if (block->more == NULL)
        return block->mark;
    return weir__order_mark_here(request->pool->order, request->clock);
}

/* The rule of the house, once more for every block of a run. Only where the stream was
 * made to wait just now there is nothing to look up: what was learnt by a wait may be
 * forgotten again. */
static bool __attribute__((unused)) /* in a release */
may_take_run(const weir__request *request, weir__heap_run run)
{
    for (const weir__heap_block *block = run.first;; block = block->after) {
        if (!weir__pool_may_take(request, block))
            return false;
        if (block == run.last)
            return true;
    }
}

static weir__heap_block *take_run_locked(weir__request *request, weir__heap_run run)
    WEIR_REQUIRES(request->pool->lock)
{
    WEIR_ASSERT(may_take_run(request, run), "what is handed out may be taken");
    weir__mark front = remainder_mark(request, run.first);
    weir__mark rest = remainder_mark(request, run.last);
    hold_run(heap_of(request), run);
    return weir__pool_hand_out_locked(request, run, front, rest);
}

/* Begins with the neighbours in front of `block` that may be taken too, and is no
 * longer than the request needs: what lies before a fresh remainder is used up with
 * it, as if both were one. */
static weir__heap_run widen(const weir__request *request, weir__heap_block *block)
{
    weir__heap_run run = { block, block };
    while (run.first->before != NULL && weir__heap_is_idle(run.first->before) &&
           weir__pool_may_take(request, run.first->before))
        run.first = run.first->before;
    run.last = run.first;
    while (!weir__heap_fits(run.first, run.last, request->bytes, request->alignment))
        run.last = run.last->after;
    while (weir__heap_gap(run.first, request->alignment) >= run.first->bytes)
        run.first = run.first->after;
    return run;
}

static bool is_known(void *context, const weir__heap_block *block)
{
    return weir__pool_may_take(context, block);
}

/* Whether free memory has more than one owner: otherwise nothing is gained by looking
 * at runs. */
static bool is_mixed(const weir__heap *heap)
{
    uint64_t clock = 0;
    if (heap->limbo != NULL)
        return true;
    if (!weir__heap_next_clock(heap, &clock) || clock == UINT64_MAX)
        return false;
    clock++;
    return weir__heap_next_clock(heap, &clock);
}

typedef bool (*block_judge)(void *request, const weir__heap_block *block);

/* The smallest of the clocks' best fits that `passes`, or null. */
static weir__heap_block *smallest_fit_locked(weir__request *request, block_judge passes)
    WEIR_REQUIRES(request->pool->lock)
{
    const weir__heap *heap = heap_of(request);
    weir__heap_block *best = NULL;
    for (uint64_t clock = 0; weir__heap_next_clock(heap, &clock); clock++) {
        weir__heap_block *block =
            weir__heap_best(heap, clock, request->bytes, request->alignment);
        if (block != NULL && (best == NULL || block->bytes < best->bytes) &&
            passes(request, block))
            best = block;
        if (clock == UINT64_MAX)
            break;
    }
    return best;
}

/* The smallest that may be taken; if there is none, a run. */
static weir__heap_block *take_known_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock)
{
    const weir__heap *heap = heap_of(request);
    weir__heap_block *best = smallest_fit_locked(request, is_known);
    if (best != NULL)
        return take_run_locked(request, widen(request, best));
    if (!is_mixed(heap))
        return NULL;
    weir__heap_run run = weir__heap_find_run(heap, request->bytes, request->alignment,
                                             is_known, request);
    return run.first != NULL ? take_run_locked(request, run) : NULL;
}

/* Asks about the best fit of each clock, at most once, until one is done. The lock is
 * let go of while the device is asked; the heap may change meanwhile, so an answer is
 * good for another look. */
static weir__heap_block *take_asked_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock)
{
    weir__pool *self = request->pool;
    for (uint64_t clock = 0; weir__heap_next_clock(&self->heap, &clock); clock++) {
        const weir__heap_block *block =
            weir__heap_best(&self->heap, clock, request->bytes, request->alignment);
        if (block != NULL && clock != request->clock) {
            weir__mark mark = block->mark;
            weir__mutex_unlock(&self->lock);
            bool done = weir__order_is_done(self->order, request->clock, mark);
            weir__mutex_lock(&self->lock);
            weir__heap_block *taken = done ? take_known_locked(request) : NULL;
            if (taken != NULL)
                return taken;
        }
        if (clock == UINT64_MAX)
            break;
    }
    return NULL;
}

/* ---- what can be waited for ---- */

static bool is_barred(const weir__request *request, uint64_t clock)
{
    for (size_t i = 0; i < request->barred_count; i++) {
        if (request->barred[i] == clock)
            return true;
    }
    return false;
}

static bool can_wait(void *context, const weir__heap_block *block)
{
    const weir__request *request = context;
    weir__order *order = request->pool->order;
    for (; block != NULL; block = block->more) {
        if (block->mark.clock != request->clock &&
            (is_barred(request, block->mark.clock) ||
             !weir__order_can_wait(order, request->clock, block->mark)))
            return false;
    }
    return true;
}

/* One block of another stream that has room, the smallest; else neighbours that have it
 * together. */
static weir__heap_run find_waiting_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock)
{
    const weir__heap *heap = heap_of(request);
    weir__heap_block *best = smallest_fit_locked(request, can_wait);
    if (best != NULL || !is_mixed(heap))
        return (weir__heap_run){ best, best };
    return weir__heap_find_run(heap, request->bytes, request->alignment, can_wait,
                               request);
}

/* Lets the stream wait for all marks of a run of HELD blocks. On failure *failed is the
 * clock that could not be waited for. */
static weir_status wait_for_run(const weir__request *request, weir__heap_run run,
                                uint64_t *failed)
{
    for (const weir__heap_block *block = run.first;; block = block->after) {
        for (const weir__heap_block *record = block; record; record = record->more) {
            *failed = record->mark.clock;
            if (record->mark.clock == request->clock)
                continue;
            weir_status status = weir__order_wait(request->pool->order, request->clock,
                                                  request->stream, record->mark);
            if (status != WEIR_OK)
                return status;
        }
        if (block == run.last)
            return WEIR_OK;
    }
}

/* Puts a run of HELD blocks back as it was. Whom it could have merged with
 * meanwhile, it merges with. */
static void put_back_locked(weir__pool *self, weir__heap_run run)
    WEIR_REQUIRES(self->lock)
{
    for (weir__heap_block *block = run.first, *next;; block = next) {
        /* A block that merges with the one in front is gone, but what comes after it is
         * held by us until its turn. */
        next = block != run.last ? block->after : NULL;
        weir__heap_release(&self->heap, block, block->mark);
        if (next == NULL)
            return;
    }
}

static void bar(weir__request *request, uint64_t clock, weir_status status)
{
    request->barred[request->barred_count++] = clock;
    request->wait_status = status;
    request->wait_code = weir_last_error().native_code;
}

/* The marks of what is left of a run that was waited for. */
static weir__mark waited_mark(const weir__request *request, weir__heap_run run)
{
    if (run.first == run.last && run.first->more == NULL)
        return run.first->mark;
    return weir__order_free_mark(request->pool->order, request->stream,
                                 request->clock);
}

/* Waits for a run that was found and hands it out; null if that failed. All of it is
 * found before anything is waited for: what cannot be served waits for nothing. */
static weir__heap_block *take_waiting_locked(weir__request *request, weir__heap_run run)
    WEIR_REQUIRES(request->pool->lock)
{
    weir__pool *self = request->pool;
    uint64_t failed = 0;
    hold_run(&self->heap, run);
    weir__mutex_unlock(&self->lock);

    weir_status status = wait_for_run(request, run, &failed);
    weir__mark left = WEIR__MARK_DONE;
    if (status == WEIR_OK)
        left = waited_mark(request, run);

    weir__mutex_lock(&self->lock);
    if (status == WEIR_OK)
        return weir__pool_hand_out_locked(request, run, left, left);
    put_back_locked(self, run);
    bar(request, failed, status);
    return NULL;
}

static weir__heap_block *take_others_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock)
{
    while (request->barred_count < WEIR__POOL_BARRED &&
           request->wait_status != WEIR_DEVICE_LOST) {
        weir__heap_run run = find_waiting_locked(request);
        if (run.first == NULL)
            return NULL;
        weir__heap_block *block = take_waiting_locked(request, run);
        if (block != NULL)
            return block;
    }
    return NULL;
}

/* ---- the whole way ---- */

static weir__heap_block *look_around(weir__request *request)
{
    weir__pool *self = request->pool;
    weir__mutex_lock(&self->lock);
    settle_limbo_locked(self);
    weir__heap_block *block = weir__pool_take_own_locked(request);
    if (block == NULL)
        block = take_known_locked(request);
    if (block == NULL)
        block = take_asked_locked(request);
    weir__mutex_unlock(&self->lock);
    return block;
}

static weir__heap_block *look_at_others(weir__request *request)
{
    weir__pool *self = request->pool;
    weir__mutex_lock(&self->lock);
    weir__heap_block *block = take_others_locked(request);
    weir__mutex_unlock(&self->lock);
    return block;
}

weir_status weir__pool_miss(weir__request *request, weir__heap_block **out)
{
    weir_status status = WEIR_OK;
    *out = look_around(request);
    if (*out == NULL)
        status = weir__pool_draw_initial(request, out);
    if (*out == NULL && status == WEIR_OK)
        *out = look_at_others(request);
    if (*out == NULL && status == WEIR_OK)
        status = weir__pool_grow(request, out);
    if (*out == NULL && status == WEIR_OK && weir__pool_flush(request))
        status = weir__pool_grow(request, out);
    return status;
}
