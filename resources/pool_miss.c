/* pool_miss.c - a request whose stream has nothing that fits under its own clock.
 *
 * In this order, once the depot has gone to the heap if it has nothing for the request:
 * what the stream may take as far as is known; what turns out to be done when asked
 * for; what is left of the initial size; growth, while little lies idle on other
 * streams; their memory, for which this one is made to wait, magazines of the depot
 * first; all of it once more with what was in caches; growth; what was left out before,
 * for it would have cost much or did not fit well (before growth, where that is refused
 * anyhow); growth once more after each flush. All of it with the lock `miss` held, and
 * the pool's own lock only in between the calls.
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
#include "pool_hit.h"
#include "pool_internal.h"
#include "pool_seats.h"
#include "pool_share.h"

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define POOL_OWNERS_MOST 4u
#else
#define POOL_OWNERS_MOST 64u
#endif
#define BLOCKS_PER_WALK 8u

static weir__heap *heap_of(const weir__request *request)
{
    return &request->pool->heap;
}

static void hold_run(weir__heap *heap, weir__heap_run run)
{
    for (uint32_t block = run.first;; block = weir__heap_after(heap, block)) {
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

static size_t mark_count(const weir__heap *heap, uint32_t block)
{
    size_t count = 0;
    weir__mark mark;
    for (uint32_t at = 0; weir__heap_next_mark(heap, block, &at, &mark);)
        count++;
    return count;
}

/* What waits for several marks goes where it is found, once all but one are done. */
static void settle_limbo_locked(weir__pool *self) WEIR_REQUIRES(self->lock)
{
    weir__heap *heap = &self->heap;
    for (uint32_t block = weir__heap_next_limbo(heap, 0), next; block; block = next) {
        next = weir__heap_next_limbo(heap, block);
        weir__heap_hold(heap, block);
        size_t marks = mark_count(heap, block);
        weir__heap_drop_done(heap, block, mark_is_done, self->order);
        if (mark_count(heap, block) < marks)
            weir__pool_note_dropped_locked(self);
        (void)weir__heap_release(heap, block, weir__heap_mark(heap, block));
    }
}

/* Where very many streams have left memory, what is done goes to one owner: a search
 * looks at each. Not again before there are twice as many as were left. */
static void gather_done_locked(weir__pool *self) WEIR_REQUIRES(self->lock)
{
    weir__heap *heap = &self->heap;
    if (heap->owning_count <= POOL_OWNERS_MOST || heap->owning_count < self->tidy_at)
        return;
    weir__heap_owner *owner;
    for (uint32_t slot = WEIR__OWNER_ASIDE + 1;
         (owner = weir__heap_next_owner(heap, &slot)) != NULL; slot++) {
        weir__mark latest = { owner->clock, owner->latest };
        if (!mark_is_done(self->order, latest))
            continue;
        weir__heap_owner_move_all(heap, owner, WEIR__MARK_DONE);
        weir__pool_note_dropped_locked(self);
    }
    self->tidy_at = heap->owning_count * 2;
}

/* The mark of what is left of `block`. If it waits for several, the stream is behind
 * all of them, but for what is done. */
static weir__mark remainder_mark_locked(const weir__request *request, uint32_t block)
    WEIR_REQUIRES(request->pool->lock)
{
    if (!weir__heap_has_more(heap_of(request), block))
        return weir__heap_mark(heap_of(request), block);
    weir__pool_note_dropped_locked(request->pool);
    return weir__order_mark_here(request->pool->order, request->clock);
}

uint32_t weir__pool_take_run_locked(weir__request *request, weir__heap_run run)
{
    WEIR_ASSERT(weir__pool_may_take_run(request, run),
                "what is handed out may be taken");
    /* What is left gets the stream's mark: then with an event. */
    if ((weir__heap_has_more(heap_of(request), run.first) ||
         weir__heap_has_more(heap_of(request), run.last)) &&
        !weir__pool_marks_later(request))
        return weir__pool_take_waiting_locked(request, run, false);
    weir__mark front = remainder_mark_locked(request, run.first);
    weir__mark rest = remainder_mark_locked(request, run.last);
    hold_run(heap_of(request), run);
    return weir__pool_hand_out_locked(request, run, front, rest);
}

/* The neighbour in front of a block, if the request's stream may take it; or 0. */
static uint32_t known_before(const weir__request *request, uint32_t block)
{
    const weir__heap *heap = heap_of(request);
    uint32_t before = weir__heap_before(heap, block);
    bool may = before != 0 && weir__heap_is_idle(weir__heap_block_of(heap, before)) &&
               weir__pool_may_take(request, before);
    return may ? before : 0;
}

/* Begins with the neighbours in front of `block` that may be taken too, and is no
 * longer than the request needs: what lies before a fresh remainder is used up with
 * it, as if both were one. */
static weir__heap_run widen(const weir__request *request, uint32_t block)
{
    const weir__heap *heap = heap_of(request);
    weir__heap_run run = { block, block };
    for (uint32_t before; (before = known_before(request, run.first)) != 0;)
        run.first = before;
    run.last = run.first;
    while (!weir__heap_fits(heap, run.first, run.last, request->bytes,
                            request->alignment))
        run.last = weir__heap_after(heap, run.last);
    const weir__heap_block *first = weir__heap_block_of(heap, run.first);
    while (weir__heap_gap(first, request->alignment) >= weir__heap_bytes(first)) {
        run.first = weir__heap_after(heap, run.first);
        first = weir__heap_block_of(heap, run.first);
    }
    return run;
}

static bool is_known(void *context, uint32_t block)
{
    return weir__pool_may_take(context, block);
}

/* Whether free memory has more than one owner: otherwise nothing is gained by looking
 * at runs. */
static bool is_mixed(const weir__heap *heap)
{
    return heap->limbo_blocks > 0 || heap->owning_count > 1;
}

typedef bool (*block_judge)(void *request, uint32_t block);

static size_t bytes_at(const weir__heap *heap, uint32_t block)
{
    return weir__heap_bytes(weir__heap_block_of(heap, block));
}

/* Looks for a run: a walk over all blocks, so not for as many bytes as were sought in
 * vain since anything came back; and less often than that where streams take more than
 * they need. Nobody is refused before he has walked. */
static weir__heap_run find_run_locked(weir__request *request, weir__pool_search *last,
                                      block_judge passes)
    WEIR_REQUIRES(request->pool->lock)
{
    const weir__pool *self = request->pool;
    const weir__heap *heap = &self->heap;
    bool is_free = weir__pool_has_slack(self);
    if (!is_mixed(heap) || heap->bytes - heap->taken_bytes < request->bytes)
        return (weir__heap_run){ 0, 0 };
    if (!request->is_thorough && self->releases < last->again_at &&
        (is_free || request->bytes >= last->bytes)) {
        request->has_skipped = true;
        return (weir__heap_run){ 0, 0 };
    }
    weir__heap_run run = weir__heap_find_run(heap, request->bytes, request->alignment,
                                             passes, request);
    last->bytes = request->bytes;
    last->again_at = 0;
    if (is_free)
        last->again_at =
            self->releases + 1 +
            (heap->taken_blocks + heap->free_blocks) / BLOCKS_PER_WALK;
    else if (run.first == 0 && request->barred_count == 0)
        last->again_at = self->releases + 1;
    return run;
}

/* The smallest of the owners' best fits that `passes`, or 0. */
static uint32_t smallest_fit_locked(weir__request *request, size_t bytes,
                                    block_judge passes)
    WEIR_REQUIRES(request->pool->lock)
{
    const weir__heap *heap = heap_of(request);
    const weir__heap_owner *owner;
    uint32_t best = 0;
    for (uint32_t slot = 0; (owner = weir__heap_next_owner(heap, &slot)) != NULL;
         slot++) {
        uint32_t block = weir__heap_best(heap, owner, bytes, request->alignment);
        if (block != 0 && (best == 0 || bytes_at(heap, block) < bytes_at(heap, best)) &&
            passes(request, block))
            best = block;
    }
    return best;
}

/* The smallest that has room for a piece, or for as large a part of it as there is; at
 * least for the request. */
static uint32_t piece_fit_locked(weir__request *request, block_judge passes)
    WEIR_REQUIRES(request->pool->lock)
{
    size_t bytes = weir__pool_piece_bytes_locked(request);
    uint32_t block;
    while ((block = smallest_fit_locked(request, bytes, passes)) == 0 &&
           bytes > request->bytes) {
        bytes = bytes / 4 & ~(WEIR__HEAP_GRAIN - 1);
        if (bytes < request->bytes)
            bytes = request->bytes;
    }
    return block;
}

static uint32_t take_fit_locked(weir__request *request, uint32_t block)
    WEIR_REQUIRES(request->pool->lock)
{
    uint64_t clock = weir__heap_mark(heap_of(request), block).clock;
    bool got = clock == 0 ? weir__pool_take_fresh_locked(request, block)
                          : clock != request->clock &&
                                weir__pool_take_known_locked(request, block);
    return got ? weir__pool_take_own_locked(request)
               : weir__pool_take_run_locked(request, widen(request, block));
}

/* A block that may be taken; if there is none, a run. */
static uint32_t take_known_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock)
{
    uint32_t best = piece_fit_locked(request, is_known);
    if (weir__pool_declines_locked(request, best))
        return 0;
    if (best != 0)
        return take_fit_locked(request, best);
    weir__heap_run run =
        find_run_locked(request, &request->pool->known_runs, is_known);
    return run.first != 0 ? weir__pool_take_run_locked(request, run) : 0;
}

/* Asks about the best fit of each owner, at most once, until one is done. The lock is
 * let go of while the device is asked; the heap may change meanwhile, so an answer is
 * good for another look. */
static uint32_t take_asked_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock)
{
    weir__pool *self = request->pool;
    const weir__heap_owner *owner;
    for (uint32_t slot = 0;
         (owner = weir__heap_next_owner(&self->heap, &slot)) != NULL; slot++) {
        uint32_t block =
            weir__heap_best(&self->heap, owner, request->bytes, request->alignment);
        if (block == 0 || owner == request->owner)
            continue;
        weir__mark mark = weir__heap_mark(&self->heap, block);
        weir__mutex_unlock(&self->lock);
        bool done = weir__order_is_done(self->order, request->clock, mark);
        weir__mutex_lock(&self->lock);
        uint32_t taken = done ? take_known_locked(request) : 0;
        if (taken != 0)
            return taken;
    }
    return 0;
}

/* ---- what can be waited for ---- */

bool weir__pool_can_wait(void *context, uint32_t block)
{
    const weir__request *request = context;
    weir__order *order = request->pool->order;
    weir__mark mark;
    uint32_t cursor = 0;
    while (weir__heap_next_mark(heap_of(request), block, &cursor, &mark)) {
        if (mark.clock != request->clock &&
            (weir__pool_is_barred(request, mark.clock) ||
             !weir__order_can_wait(order, request->clock, mark)))
            return false;
    }
    return true;
}

/* One block of another stream that has room; else neighbours that have it together. */
static weir__heap_run find_waiting_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock)
{
    uint32_t best = piece_fit_locked(request, weir__pool_can_wait);
    if (best != 0)
        return (weir__heap_run){ best, best };
    return find_run_locked(request, &request->pool->waiting_runs, weir__pool_can_wait);
}

bool weir__pool_next_mark(weir__pool *self, weir__pool_marks *at, weir__mark *out)
{
    bool found = false;
    weir__mutex_lock(&self->lock);
    while (at->block != 0 && !found) {
        found = weir__heap_next_mark(&self->heap, at->block, &at->cursor, out);
        if (found)
            break;
        at->block = at->block != at->last ? weir__heap_after(&self->heap, at->block)
                                          : 0;
        at->cursor = 0;
    }
    weir__mutex_unlock(&self->lock);
    return found;
}

/* Lets the stream wait for all marks of a run of HELD blocks. On failure *failed is the
 * clock that could not be waited for. */
static weir_status wait_for_run(const weir__request *request, weir__heap_run run,
                                bool asks, uint64_t *failed)
{
    weir__pool_marks at = { run.first, run.last, 0 };
    weir__mark mark;
    while (weir__pool_next_mark(request->pool, &at, &mark)) {
        *failed = mark.clock;
        if (mark.clock == request->clock ||
            (asks && weir__order_is_done(request->pool->order, request->clock, mark)))
            continue;
        weir_status status = weir__order_wait(request->pool->order, request->clock,
                                              request->stream, mark);
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}

/* Puts a run of HELD blocks back as it was. Whom it could have merged with
 * meanwhile, it merges with. */
void weir__pool_put_back_locked(weir__pool *self, weir__heap_run run)
{
    weir__heap *heap = &self->heap;
    for (uint32_t block = run.first, next;; block = next) {
        /* A block that merges with the one in front is gone, but what comes after it is
         * held by us until its turn. */
        next = block != run.last ? weir__heap_after(heap, block) : 0;
        (void)weir__heap_release(heap, block, weir__heap_mark(heap, block));
        if (next == 0)
            return;
    }
}

void weir__pool_bar(weir__request *request, uint64_t clock, weir_status status)
{
    if (request->barred_count < WEIR__POOL_BARRED) /* else who asks gives up soon */
        request->barred[request->barred_count++] = clock;
    WEIR_ASSERT(request->barred_count <= WEIR__POOL_BARRED, "there is room for them");
    request->wait_status = status;
    request->wait_code = weir_last_error().native_code;
}

bool weir__pool_wait_for_run(weir__request *request, weir__heap_run run)
{
    uint64_t failed = 0;
    weir_status status = wait_for_run(request, run, false, &failed);
    if (status != WEIR_OK)
        weir__pool_bar(request, failed, status);
    return status == WEIR_OK;
}

/* All of it was found before anything is waited for: what cannot be served waits for
 * nothing. */
uint32_t weir__pool_take_waiting_locked(weir__request *request, weir__heap_run run,
                                        bool asks)
{
    weir__pool *self = request->pool;
    /* With `asks`, what is cut off at the end keeps its own mark, if it has one. */
    weir__mark left = weir__heap_mark(&self->heap, run.last);
    bool has_one = !weir__heap_has_more(&self->heap, run.last);
    bool is_one = run.first == run.last && has_one;
    has_one = is_one || (has_one && asks && request->alignment <= WEIR__HEAP_GRAIN);
    uint64_t failed = 0;
    hold_run(&self->heap, run);
    weir__mutex_unlock(&self->lock);

    weir_status status = wait_for_run(request, run, asks, &failed);
    weir__mark piece = WEIR__MARK_DONE;
    if (status == WEIR_OK && is_one)
        piece = weir__pool_piece_mark(request);
    else if (status == WEIR_OK && !has_one)
        left = weir__order_free_mark(self->order, request->stream, request->clock);

    weir__mutex_lock(&self->lock);
    if (status == WEIR_OK) {
        /* Some of it may have been done, with nothing put on the stream for it. */
        weir__pool_note_dropped_locked(self);
        left = weir__pool_owned_mark(self, left);
        request->is_placed = true;
        if (is_one && weir__pool_take_waited_locked(request, run.first, piece))
            return weir__pool_take_own_locked(request);
        return weir__pool_hand_out_locked(request, run, left, left);
    }
    weir__pool_put_back_locked(self, run);
    weir__pool_bar(request, failed, status);
    return 0;
}

static uint32_t take_others_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock)
{
    while (request->barred_count < WEIR__POOL_BARRED &&
           request->wait_status != WEIR_DEVICE_LOST) {
        weir__heap_run run = find_waiting_locked(request);
        if (run.first == 0)
            return 0;
        if (weir__pool_gather_locked(request))
            continue;
        uint32_t block = weir__pool_take_waiting_locked(request, run, false);
        if (block != 0)
            return block;
    }
    return 0;
}

/* ---- the whole way ---- */

static uint32_t look_around(weir__request *request)
{
    weir__pool *self = request->pool;
    weir__mutex_lock(&self->lock);
    weir__pool_free_magazines_locked(request);
    self->looked_at = self->releases;
    weir__pool_note_want_locked(self);
    settle_limbo_locked(self);
    gather_done_locked(self);
    (void)weir__heap_settle(heap_of(request));
    uint32_t block = weir__pool_take_own_locked(request);
    if (block == 0)
        block = weir__pool_place_locked(request);
    if (block == 0)
        block = take_known_locked(request);
    if (block == 0 && !request->has_declined)
        block = take_asked_locked(request);
    weir__mutex_unlock(&self->lock);
    return block;
}

static uint32_t look_at_others(weir__request *request)
{
    weir__pool *self = request->pool;
    weir__mutex_lock(&self->lock);
    uint32_t block = take_others_locked(request);
    weir__mutex_unlock(&self->lock);
    return block;
}

static bool has_seen_all(weir__pool *self)
{
    weir__mutex_lock(&self->lock);
    bool seen = self->releases == self->looked_at;
    weir__mutex_unlock(&self->lock);
    return seen;
}

/* All of it once more with what was in caches, if anything came to the heap since the
 * last time. Meanwhile nobody has a cache: else what is free could be in one while the
 * heap is looked at, and in the heap while that is emptied, and be seen in neither. */
static uint32_t look_behind_gates(weir__request *request)
{
    weir__pool *self = request->pool;
    uint32_t block = 0;
    weir__pool_seats_close(self);
    if (!request->is_thorough && weir__pool_leaves_caches(self)) {
        request->has_skipped = true;
        weir__pool_seats_open(self);
        return 0;
    }
    request->is_placed = false;
    weir__mutex_lock(&self->lock);
    if (weir__pool_grows_freely(self)) /* else there is no choice */
        self->taken_back += weir__pool_kept_locked(self).blocks;
    weir__mutex_unlock(&self->lock);
    bool has_more = weir__pool_empty_caches(self);
    weir__pool_note_crowd(self);
    if (has_more || request->is_thorough || !has_seen_all(self)) {
        block = look_around(request);
        if (block == 0)
            block = look_at_others(request);
    }
    weir__pool_seats_open(self);
    return block;
}

static weir_status miss(weir__request *request, uint32_t *out)
    WEIR_REQUIRES(request->pool->miss)
{
    weir_status status = WEIR_OK;
    *out = 0;
    if (request->bytes > WEIR__CHUNK_MOST) { /* nobody has that: all stays as it is */
        request->refusal = request->bytes > request->pool->options.limit_bytes
                               ? WEIR_LIMIT_REACHED
                               : WEIR_OUT_OF_MEMORY;
        return WEIR_OK;
    }
    *out = look_around(request);
    if (*out == 0)
        *out = weir__pool_take_known_magazine(request);
    if (*out == 0)
        status = weir__pool_draw_initial(request, out);
    request->grows_first = *out == 0 && status == WEIR_OK &&
                           weir__pool_grows_first(request);
    if (request->grows_first)
        status = weir__pool_grow(request, out);
    request->grows_first = false;
    if (*out == 0 && status == WEIR_OK)
        *out = weir__pool_take_magazine(request);
    if (*out == 0 && status == WEIR_OK)
        *out = look_at_others(request);
    if (*out == 0 && status == WEIR_OK)
        *out = look_behind_gates(request);
    /* Where it cannot grow as it likes, upstream is asked once all was looked at. */
    const bool asks_last = request->has_skipped && request->pool->is_short;
    if (*out == 0 && status == WEIR_OK && !asks_last) {
        weir__pool_note_frayed(request);
        status = weir__pool_grow(request, out);
    }
    if (*out == 0 && status == WEIR_OK &&
        (request->has_skipped || request->has_declined)) {
        request->is_thorough = true;
        *out = look_behind_gates(request);
    }
    if (*out == 0 && status == WEIR_OK && asks_last)
        status = weir__pool_grow(request, out);
    /* Upstream may have holes between what went: then more goes. */
    while (*out == 0 && status == WEIR_OK && weir__pool_flush(request))
        status = weir__pool_grow(request, out);
    if (*out == 0 && status == WEIR_OK)
        weir__pool_note_tight(request);
    return status;
}

/* The request's clock is held. */
static weir_status serve_held(weir__request *request, uint32_t *out)
{
    weir__pool *self = request->pool;
    weir__mutex_lock(&self->lock);
    if (self->is_short) /* who misses looks once, for what is just enough */
        request->bytes = weir__pool_whole_grains(request->asked_bytes);
    bool met = weir__pool_meet_owner_locked(request);
    if (met)
        request->owner->pins++;
    weir__mutex_unlock(&self->lock);
    if (!met)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "pool: no memory for records");

    weir__mutex_lock(&self->miss);
    weir_status status = miss(request, out);
    weir__pool_fit_caches(self);
    weir__mutex_unlock(&self->miss);

    weir__mutex_lock(&self->lock);
    request->owner->pins--;
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir__pool_serve(weir__request *request, uint32_t *out)
{
    weir__pool *self = request->pool;
    while (!weir__order_hold(self->order, request->clock)) {
        weir_status met = weir__order_clock(self->order, request->stream,
                                            &request->clock);
        if (met != WEIR_OK)
            return met;
    }
    weir_status status = serve_held(request, out);
    weir__order_let_go(self->order, request->clock);
    return status;
}
