/* checking_calls.c - what the resource `checking` does at an allocation, a deallocation
 * and an extension.
 *
 * What is done with device memory is put on the stream of the call: an allocation fills
 * the guards, a deallocation copies them (checking_looks.c) and fills the block, which
 * is then held back (checking_held.c). So it is in order like the program's own work,
 * and where that is in order nothing is found. Nothing is put on a stream that is being
 * captured. A check that cannot be made is counted, and no reason to fail. */
#include <string.h>

#include "call_sites.h"
#include "checking_parts.h"
#include "internal.h"
#include "weir/resource_ops.h"

static weir__order *order_of(const weir__checking *self)
{
    return self->device->order;
}

/* Whether something of ours may be put on `stream`; *status says, if not, whether it is
 * in a capture that Weir was not told of. */
static bool may_work_on(weir__checking *self, weir_stream stream, weir_status *status)
{
    bool capturing = false;
    *status = WEIR_OK;
    if (weir__device_is_lost(self->device) ||
        weir__order_stream_is_captured(order_of(self), weir__stream_of(stream)) ||
        weir__stream_is_capturing(self->device, stream, &capturing) != WEIR_OK)
        return false;
    /* The legacy stream is not captured itself: a blocking one is. */
    if (capturing && weir__stream_of(stream) != WEIR_STREAM_LEGACY)
        *status = weir__fail(WEIR_CAPTURING, "checking: the stream is being captured, "
                             "and Weir was not told: weir_capture_begin does");
    return !capturing;
}

/* ---- allocation ---- */

static bool fill_guard(weir__checking *self, weir_stream stream, void *ptr)
{
    return weir__checking_fill(self, stream, ptr, WEIR__GUARD_BYTE,
                               self->options.guard_bytes);
}

static void fill_new(weir__checking *self, weir_stream stream, void *ptr, size_t bytes)
{
    if (self->options.fills &&
        !weir__checking_fill(self, stream, ptr, self->options.first_byte, bytes))
        weir__checking_leave_out(self);
}

/* What the ledger is told of a block's surroundings. */
static void note_guards(weir__checking *self, const weir__checked *block)
{
    const size_t guard = self->options.guard_bytes;
    unsigned char *ptr = block->record.ptr;
    size_t bytes = block->record.bytes;
    weir__note_guard(self->device, ptr - guard, guard, ptr, bytes);
    weir__note_guard(self->device, ptr + bytes, guard, ptr, bytes);
}

static void put_guards(weir__checking *self, weir_stream stream, weir__checked *block)
{
    unsigned char *ptr = block->record.ptr;
    block->is_guarded =
        fill_guard(self, stream, weir__checked_region(self, block)) &&
        fill_guard(self, stream, ptr + block->record.bytes);
    if (!block->is_guarded)
        weir__checking_leave_out(self);
    fill_new(self, stream, ptr, block->record.bytes);
}

/* A point behind which others are, who may use what is allocated now on `stream`. */
static weir__mark birth_on(weir__checking *self, weir_stream stream)
{
    uint64_t clock;
    if (!self->options.strict ||
        weir__order_clock(order_of(self), stream, &clock) != WEIR_OK)
        return WEIR__MARK_DONE;
    return weir__order_mark_closed(order_of(self), clock);
}

static weir_status refuse(size_t bytes)
{
    weir_out_of_memory report = { .requested_bytes = bytes, .limit_bytes = SIZE_MAX,
                                  .resource = "checking" };
    return weir__fail_memory(WEIR_OUT_OF_MEMORY, &report);
}

static weir_status make_record(weir__checking *self, size_t bytes, size_t alignment,
                               weir__checked **out)
{
    const size_t guard = self->options.guard_bytes;
    size_t in_front = (guard + (alignment - 1)) & ~(alignment - 1);
    if (bytes > SIZE_MAX - in_front - guard)
        return refuse(bytes);
    size_t frames_bytes = 2 * self->options.frames * sizeof(void *);
    weir__checked *block = weir__host_alloc(sizeof *block + frames_bytes);
    if (block == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "checking: no memory for the record of a block");
    memset(block, 0, sizeof *block + frames_bytes);
    block->record.bytes = bytes;
    block->record.alignment = alignment;
    block->record.state = WEIR__BLOCK_OUT;
    block->below_bytes = in_front + bytes + guard;
    block->holds = 1;
    *out = block;
    return WEIR_OK;
}

/* From upstream; what is held back gives way to it, also what other threads hold back
 * or give upstream meanwhile. Who is always too late is refused in the end, as is who
 * asks for more than there can be while others are busy. */
static weir_status draw(weir__checking *self, weir_stream stream, weir__checked *block)
{
    for (int left = WEIR__DRAWS_MOST;; left--) {
        uint64_t landings = weir__checking_count_landings(self);
        weir_status status = weir_allocate(self->upstream, stream, block->below_bytes,
                                           block->record.alignment, &block->below);
        if ((status != WEIR_OUT_OF_MEMORY && status != WEIR_LIMIT_REACHED) ||
            left == 0 ||
            (!weir__checking_empty(self, false) &&
             !weir__checking_wait_for_landing(self, landings)))
            return status;
    }
}

static void count_out_locked(weir__checking *self, size_t bytes)
    WEIR_REQUIRES(&self->lock)
{
    weir_resource_statistics *counts = &self->counts;
    counts->out_bytes += bytes;
    if (counts->peak_out_bytes < counts->out_bytes)
        counts->peak_out_bytes = counts->out_bytes;
}

static void put_out(weir__checking *self, weir__checked *block)
{
    weir__mutex_lock(&self->lock);
    block->number = ++self->numbers;
    weir__block_table_insert(&self->table, &block->record);
    weir__checked_link(&self->out, block);
    self->counts.allocations++;
    self->counts.out_blocks++;
    count_out_locked(self, block->record.bytes);
    weir__mutex_unlock(&self->lock);
}

static weir_status allocate(weir__checking *self, weir_stream stream, size_t bytes,
                            size_t alignment, void *const *site, weir__checked **out)
{
    weir_status status;
    weir__checked *block = NULL;
    bool may_fill = may_work_on(self, stream, &status);
    if (status == WEIR_OK)
        status = make_record(self, bytes, alignment, &block);
    if (status != WEIR_OK)
        return status;
    memcpy(block->frames, site, self->options.frames * sizeof(void *));
    status = draw(self, stream, block);
    if (status != WEIR_OK) {
        weir__report_as_own(status, bytes, block->below_bytes - bytes, "checking");
        weir__host_free(block);
        return status;
    }
    block->record.ptr = (unsigned char *)block->below + block->below_bytes -
                        self->options.guard_bytes - bytes;
    block->record.stream = stream;
    if (may_fill)
        put_guards(self, stream, block);
    else
        weir__checking_leave_out(self);
    note_guards(self, block);
    block->birth = birth_on(self, stream);
    *out = block;
    return WEIR_OK;
}

weir_status weir__checking_allocate(void *context, weir_stream stream, size_t bytes,
                                    size_t alignment, void **out)
{
    weir__checking *self = context;
    weir__checked *block;
    void *site[WEIR_CHECKING_FRAMES_MAX];
    weir__site_take(site, self->options.frames);
    weir__looks_judge_some(self);
    weir_status status = allocate(self, stream, bytes, alignment, site, &block);
    if (status != WEIR_OK) {
        weir__mutex_lock(&self->lock);
        self->counts.failures++;
        weir__mutex_unlock(&self->lock);
        return status;
    }
    *out = block->record.ptr;
    put_out(self, block);
    return WEIR_OK;
}

/* ---- deallocation ---- */

/* The thread learns that nobody looks at `block` any more. */
static void learn_looked(weir__checking *self, const weir__checked *block)
{
    if (block->looked.clock != 0)
        (void)weir__order_may_take(order_of(self), 0, block->looked);
}

/* Waits until nobody looks at `block` any more, which is out; null: nor is it now. */
static weir__checked *find_unpinned_locked(weir__checking *self, const void *ptr)
    WEIR_REQUIRES(&self->lock)
{
    for (;;) {
        weir__checked *block =
            (weir__checked *)weir__block_table_find(&self->table, ptr);
        if (block == NULL || block->pins == 0)
            return block;
        weir__cond_wait(&self->unpinned, &self->lock);
    }
}

static void tell_wrong(weir__checking *self, const weir__block_fault *fault,
                       void *const *frames, const void *ptr, size_t bytes,
                       size_t alignment)
{
    const size_t count = self->options.frames;
    atomic_fetch_add(&self->wrong_frees, 1);
    if (fault->kind == WEIR_MISUSE_DOUBLE_FREE)
        weir__misuse(fault->kind, ptr, bytes, "checking: %p was given back already, "
                     "by %s; now by %s", ptr,
                     weir__site_say(frames, count).text,
                     weir__site_say(frames + count, count).text);
    else
        weir__block_report(fault, "checking", ptr, bytes, alignment);
}

/* Takes a block that comes back out of the table; null: it does not, and the misuse
 * handler was told. */
static weir__checked *begin_return(weir__checking *self, weir_stream stream, void *ptr,
                                   size_t bytes, size_t alignment,
                                   void *const *site)
{
    const size_t site_bytes = self->options.frames * sizeof(void *);
    void *frames[2 * WEIR_CHECKING_FRAMES_MAX]; /* of the first deallocation, of this */
    memset(frames, 0, sizeof frames);
    memcpy(frames + self->options.frames, site, site_bytes);
    weir__mutex_lock(&self->lock);
    weir__checked *block = find_unpinned_locked(self, ptr);
    weir__block_fault fault =
        weir__block_judge(block == NULL ? NULL : &block->record, bytes, alignment);
    if (fault.kind == 0) {
        weir__block_table_remove(&self->table, &block->record);
        weir__checked_unlink(&self->out, block);
        block->record.state = WEIR__BLOCK_LEAVING;
        block->is_freed = true;
        block->freed_on = stream;
        memcpy(block->frames + self->options.frames, site, site_bytes);
        self->counts.deallocations++;
        self->counts.out_blocks--;
        self->counts.out_bytes -= bytes;
    } else if (block != NULL) {
        memcpy(frames, block->frames + self->options.frames, site_bytes);
    }
    weir__mutex_unlock(&self->lock);
    if (fault.kind == 0) {
        learn_looked(self, block);
        return block;
    }
    tell_wrong(self, &fault, frames, ptr, bytes, alignment);
    return NULL;
}

/* Upstream has refused it: all is as before. */
static void undo_return(weir__checking *self, weir__checked *block)
{
    note_guards(self, block);
    weir__mutex_lock(&self->lock);
    block->record.state = WEIR__BLOCK_OUT;
    block->is_freed = false;
    weir__block_table_reinsert(&self->table, &block->record);
    weir__checked_link(&self->out, block);
    self->counts.deallocations--;
    self->counts.out_blocks++;
    self->counts.out_bytes += block->record.bytes;
    weir__mutex_unlock(&self->lock);
}

/* On the stream of the call, or behind its points (stream: WEIR__NO_STREAM). */
static bool pass(weir__checking *self, weir__checked *block, weir_stream stream,
                 const weir_point *points, size_t count)
{
    unsigned char *below = block->below;
    size_t bytes = block->below_bytes, alignment = block->record.alignment;
    weir__note_guard(self->device, below, bytes, below, 0);
    bool done = stream == WEIR__NO_STREAM
                    ? weir_deallocate_after(self->upstream, below, bytes, alignment,
                                            points, count)
                    : weir_deallocate(self->upstream, stream, below, bytes, alignment);
    if (done)
        weir__checked_let_go(self, block);
    else
        undo_return(self, block);
    return done;
}

/* Puts a look at the guards on `stream`, and the filling of what is to be held back;
 * gives the mark behind these. */
static weir__mark leave_traces(weir__checking *self, weir_stream stream,
                               weir__checked *block, bool holds)
{
    const size_t guard = self->options.guard_bytes;
    const weir__look_part parts[] = {
        { 0, guard }, { weir__checked_region_bytes(self, block) - guard, guard }
    };
    weir__look *look = weir__look_take(self);
    bool good = look != NULL && weir__look_copy(self, look, stream, block, parts, 2);
    if (look == NULL)
        weir__checking_leave_out(self);
    if (holds) {
        block->is_poisoned = weir__checking_fill(self, stream, block->record.ptr,
                                                 WEIR__FREED_BYTE, block->record.bytes);
        if (!block->is_poisoned)
            weir__checking_leave_out(self);
    }
    weir__mark mark = weir__order_free_mark(order_of(self), stream, 0);
    weir__order_cover(order_of(self), mark);
    if (look != NULL)
        weir__look_end(self, look, block, good, mark);
    return mark;
}

static void check_order(weir__checking *self, const weir__checked *block,
                        weir_stream stream)
{
    uint64_t clock;
    weir__mark birth = block->birth;
    if (!self->options.strict ||
        weir__order_clock(order_of(self), stream, &clock) != WEIR_OK ||
        weir__order_is_done(order_of(self), clock, birth))
        return;
    const size_t count = self->options.frames;
    atomic_fetch_add(&self->wrong_streams, 1);
    weir__misuse(WEIR_MISUSE_WRONG_STREAM, block->record.ptr, block->record.bytes,
                 "checking: the block of %zu bytes at %p is given back on stream %p by "
                 "%s, which Weir knows of no wait for stream %p on, where it was "
                 "allocated by %s",
                 block->record.bytes, block->record.ptr,
                 (void *)weir__stream_of(stream),
                 weir__site_say(block->frames + count, count).text,
                 (void *)weir__stream_of(block->record.stream),
                 weir__site_say(block->frames, count).text);
}

bool weir__checking_deallocate(void *context, weir_stream stream, void *ptr,
                               size_t bytes, size_t alignment)
{
    weir__checking *self = context;
    void *site[WEIR_CHECKING_FRAMES_MAX];
    weir_status status;
    weir__site_take(site, self->options.frames);
    weir__looks_judge_some(self);
    weir__checked *block = begin_return(self, stream, ptr, bytes, alignment, site);
    if (block == NULL)
        return false;
    if (!block->is_guarded || !may_work_on(self, stream, &status)) {
        weir__checking_leave_out(self);
        return pass(self, block, stream, NULL, 0);
    }
    check_order(self, block, stream);
    bool holds = weir__checking_holds(self, block);
    weir__mark mark = leave_traces(self, stream, block, holds);
    if (!holds || mark.clock == WEIR__CLOCK_ASIDE)
        return pass(self, block, stream, NULL, 0);
    block->behind[0] = (weir_point){ mark.clock, mark.number };
    block->behind_count = 1;
    weir__checking_hold(self, block);
    return true;
}

static bool are_done(weir__checking *self, const weir_point *points, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        weir__mark mark = { points[i].clock, points[i].mark };
        if (!weir__order_is_done(order_of(self), 0, mark))
            return false;
    }
    return true;
}

bool weir__checking_deallocate_after(void *context, void *ptr, size_t bytes,
                                     size_t alignment, const weir_point *points,
                                     size_t count)
{
    weir__checking *self = context;
    void *site[WEIR_CHECKING_FRAMES_MAX];
    weir__site_take(site, self->options.frames);
    weir__looks_judge_some(self);
    weir__checked *block =
        begin_return(self, WEIR__NO_STREAM, ptr, bytes, alignment, site);
    if (block == NULL)
        return false;
    bool holds = weir__checking_holds(self, block);
    bool are = block->is_guarded && !weir__device_is_lost(self->device) &&
               are_done(self, points, count);
    if (are) {
        weir__mark mark = leave_traces(self, self->watcher, block, holds);
        block->behind[0] = (weir_point){ mark.clock, mark.number };
        points = block->behind;
        count = 1;
    }
    if (!holds || !block->is_guarded || count > WEIR__CHECKED_MARKS) {
        if (!are)
            weir__checking_leave_out(self);
        return pass(self, block, WEIR__NO_STREAM, points, count);
    }
    for (size_t i = 0; i < count; i++)
        block->behind[i] = points[i];
    block->behind_count = count;
    weir__checking_hold(self, block);
    return true;
}

/* ---- extension ---- */

/* The block, which nobody looks at until end_move; null: there is none. */
static weir__checked *begin_move(weir__checking *self, const void *ptr, size_t bytes,
                                 size_t alignment)
{
    weir__mutex_lock(&self->lock);
    weir__checked *block = find_unpinned_locked(self, ptr);
    bool is_it = block != NULL &&
                 weir__block_judge(&block->record, bytes, alignment).kind == 0;
    if (is_it)
        block->is_moving = true;
    weir__mutex_unlock(&self->lock);
    if (!is_it)
        return NULL;
    learn_looked(self, block);
    return block;
}

/* One that has grown is as young as one allocated now: the fill of its new guard may be
 * behind what a look at everything has waited for. */
static void end_move(weir__checking *self, weir__checked *block, size_t new_bytes)
{
    weir__mutex_lock(&self->lock);
    size_t more = new_bytes - block->record.bytes;
    if (more > 0) {
        weir__checked_unlink(&self->out, block);
        block->number = ++self->numbers;
        weir__checked_link(&self->out, block);
    }
    block->record.bytes = new_bytes;
    block->below_bytes += more;
    block->is_moving = false;
    count_out_locked(self, more);
    weir__mutex_unlock(&self->lock);
}

/* Looks at the guard that is to be the block's: where it was written, that is told. */
static void look_at_end(weir__checking *self, weir_stream stream, weir__checked *block)
{
    const size_t guard = self->options.guard_bytes;
    weir__look_part part = { guard + block->record.bytes, guard };
    weir__look *look = weir__look_take(self);
    if (look == NULL) {
        weir__checking_leave_out(self);
        return;
    }
    bool good = weir__look_copy(self, look, stream, block, &part, 1);
    weir__mark mark = weir__order_free_mark(order_of(self), stream, 0);
    weir__order_cover(order_of(self), mark);
    weir__look_end(self, look, block, good, mark);
}

/* The new end, with a guard behind it; the old guard's bytes are the block's. */
static void move_guard(weir__checking *self, weir_stream stream, bool may_fill,
                       weir__checked *block, size_t new_bytes)
{
    const size_t guard = self->options.guard_bytes;
    unsigned char *ptr = block->record.ptr;
    size_t bytes = block->record.bytes;
    weir__note_guard(self->device, ptr + bytes, guard, ptr, 0);
    if (may_fill)
        fill_new(self, stream, ptr + bytes, new_bytes - bytes);
    if (block->is_guarded) {
        block->is_guarded = may_fill && fill_guard(self, stream, ptr + new_bytes);
        if (!block->is_guarded)
            weir__checking_leave_out(self);
    }
    weir__note_guard(self->device, ptr + new_bytes, guard, ptr, new_bytes);
}

weir_status weir__checking_extend(void *context, weir_stream stream, void *ptr,
                                  size_t bytes, size_t alignment, size_t new_bytes)
{
    weir__checking *self = context;
    weir_status status;
    bool may_fill = may_work_on(self, stream, &status);
    if (status != WEIR_OK)
        return status;
    weir__checked *block = begin_move(self, ptr, bytes, alignment);
    if (block == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "checking: %p is no block of %zu bytes, alignment %zu", ptr,
                          bytes, alignment);
    if (new_bytes - bytes > SIZE_MAX - block->below_bytes) {
        status = refuse(new_bytes);
    } else {
        if (may_fill && block->is_guarded)
            look_at_end(self, stream, block);
        status = weir_resource_extend(self->upstream, stream, block->below,
                                      block->below_bytes, alignment,
                                      block->below_bytes + (new_bytes - bytes));
        weir__report_as_own(status, new_bytes, block->below_bytes - bytes, "checking");
    }
    if (status == WEIR_OK)
        move_guard(self, stream, may_fill, block, new_bytes);
    end_move(self, block, status == WEIR_OK ? new_bytes : bytes);
    return status;
}
