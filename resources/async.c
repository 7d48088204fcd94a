/* async.c - the leaf `async`: memory from a pool of the driver's, in its stream order.
 *
 * What the driver can do in stream order is left to it: a block is allocated on the
 * stream that it is asked for on, and freed at once on the one that it comes back on.
 * No mark is taken and no event recorded. What remains for us:
 *
 *   points    a block that comes back behind points is freed on `back`, a stream of our
 *             own, once that has been made to wait for them
 *   captures  on a stream that is captured the driver's calls would become nodes of the
 *             graph. So a capture's memory is drawn on another stream that the host
 *             waits for, and what a capture has had is kept, with its mark, until it is
 *             released; then it is freed on `back`, behind the mark
 *   failures  what the driver does not take is kept likewise
 *
 * Each allocate looks at two kept blocks, trim and whoever lacks memory at all; see
 * async_kept.c. No device call is made under the lock. */
#include "async_internal.h"

#include <string.h>

#include "internal.h"
#include "leaf.h"
#include "stream_order.h"

/* How many kept blocks an allocate looks at. */
#define LOOKS 2

static const char name[] = "async";

static weir__order *order_of(const weir__async *self)
{
    return self->device->order;
}

static weir__kept_block *block_of(weir__block_record *record)
{
    return (weir__kept_block *)record;
}

/* ---- the pool and the device ---- */

static void raise_to(size_t *peak, size_t value)
{
    if (*peak < value)
        *peak = value;
}

/* Asks the pool how much it has. False: it did not say. */
static bool ask_state(weir__async *self, weir__mempool_state *out)
{
    if (weir__mempool_get_state(self->device, self->pool, out) != WEIR_OK)
        return false;
    weir__mutex_lock(&self->lock);
    self->reserved_bytes = (size_t)out->reserved_bytes;
    raise_to(&self->counts.peak_held_bytes, self->reserved_bytes);
    weir__mutex_unlock(&self->lock);
    return true;
}

static bool wait_for_all(weir__async *self)
{
    return weir__order_device_sync(order_of(self)) == WEIR_OK;
}

/* ---- allocating ---- */

/* The clock of the declared capture that `stream` is in, or 0. CAPTURING: something
 * else captures it. */
static weir_status find_capture(const weir__async *self, weir_stream stream,
                                uint64_t *out)
{
    weir__order *order = order_of(self);
    *out = 0;
    if (weir__order_stream_is_captured(order, stream)) {
        weir_status status = weir__order_clock(order, stream, out);
        if (status != WEIR_OK || weir__order_is_captured(order,
                                                         (weir__mark){ *out, 0 }))
            return status;
        *out = 0; /* it ended just now */
    }
    return weir__refuse_capturing(order, stream);
}

/* What out of memory is told with. */
static weir_status fail_memory(weir__async *self, size_t bytes)
{
    weir_out_of_memory report = { .struct_size = sizeof report,
                                  .requested_bytes = bytes,
                                  .limit_bytes = SIZE_MAX,
                                  .resource = name };
    weir__mempool_state state;
    (void)ask_state(self, &state); /* else what was known last */
    weir__mutex_lock(&self->lock);
    report.held_bytes = self->reserved_bytes;
    report.in_use_bytes = self->counts.out_bytes;
    weir__mutex_unlock(&self->lock);

    size_t max = self->max_bytes;
    bool passes_max = max != 0 && (bytes > max || report.held_bytes > max - bytes);
    if (passes_max)
        report.limit_bytes = max;
    return weir__fail_memory(passes_max ? WEIR_LIMIT_REACHED : WEIR_OUT_OF_MEMORY,
                             &report);
}

/* Whether `bytes` may be there once all that was freed is done. */
static bool could_suffice(weir__async *self, size_t bytes)
{
    static weir_status (*const measures[])(weir_device *, size_t *) = {
        [WEIR_ASYNC_DEVICE] = weir__measure_device,
        [WEIR_ASYNC_MANAGED] = weir__measure_both,
        [WEIR_ASYNC_PINNED] = weir__measure_host,
    };
    weir__mempool_state state;
    size_t free_bytes = 0, max = self->max_bytes;
    if (!ask_state(self, &state) || state.reserved_bytes <= state.used_bytes ||
        measures[self->memory](self->device, &free_bytes) != WEIR_OK)
        return false;
    if (max != 0 && (bytes > max || state.used_bytes > max - bytes))
        return false;
    uint64_t pending_bytes = state.reserved_bytes - state.used_bytes;
    return bytes <= free_bytes || bytes - free_bytes <= pending_bytes;
}

/* Gives up what may stand in the way of a request: first what is kept, and what an own
 * pool has free in other sizes; then, after a wait, also what was freed and was not
 * done. False: there is no more to be done. */
static bool make_room(weir__async *self, size_t bytes, int round)
{
    if (round > 1 || (round == 1 && !(could_suffice(self, bytes) &&
                                      wait_for_all(self))))
        return false;
    weir__async_free_kept(self, SIZE_MAX);
    if (self->owns_pool)
        (void)weir__mempool_trim(self->device, self->pool, 0);
    return true;
}

static weir_status draw(weir__async *self, weir_stream stream, size_t bytes, void **out)
{
    int round = 0;
    for (;;) {
        uint64_t freed = weir__async_count_freed(self);
        weir_status status = weir__mempool_malloc(self->device, self->pool, stream,
                                                  bytes, out);
        if (status != WEIR_OUT_OF_MEMORY)
            return status;
        if (weir__async_wait_for_landing(self, freed))
            continue;
        if (!make_room(self, bytes, round++))
            return fail_memory(self, bytes);
    }
}

/* Draws on a stream of its own, and waits for it: a graph may use it at any time. If
 * that fails and the driver does not take it back, the block is the caller's to
 * keep. */
static weir_status draw_for_capture(weir__async *self, weir__kept_block *block,
                                    bool *must_keep)
{
    weir_stream fresh;
    weir_device *device = self->device;
    weir_status status = weir__stream_create(device, false, &fresh);
    if (status != WEIR_OK)
        return status;
    status = draw(self, fresh, block->record.bytes, &block->record.ptr);
    bool drawn = status == WEIR_OK;
    if (drawn)
        status = weir__stream_sync(device, fresh);
    int32_t code = status == WEIR_OK ? 0 : weir_last_error().native_code;
    if (drawn && status != WEIR_OK)
        *must_keep = weir__mempool_free(device, fresh, block->record.ptr) != WEIR_OK;
    (void)weir__stream_destroy(device, fresh);
    if (drawn && status != WEIR_OK)
        return weir__fail_native(status, code,
                                 "%s: memory for a capture could not be waited for",
                                 name);
    return status;
}

static weir_status draw_block(weir__async *self, weir__kept_block *block,
                              bool *must_keep)
{
    if (block->birth != 0)
        return draw_for_capture(self, block, must_keep);
    return draw(self, block->record.stream, block->record.bytes, &block->record.ptr);
}

static void hand_out(weir__async *self, weir__kept_block *block)
{
    weir__mutex_lock(&self->lock);
    weir_resource_statistics *counts = &self->counts;
    weir__block_table_insert(&self->table, &block->record);
    counts->out_bytes += block->record.bytes;
    counts->out_blocks++;
    counts->allocations++;
    raise_to(&counts->peak_out_bytes, counts->out_bytes);
    weir__async_verify_locked(self);
    weir__mutex_unlock(&self->lock);
}

/* The driver gave this block, and neither it nor we can use it now. */
static void keep_stray(weir__async *self, weir__kept_block *block)
{
    block->marks[0] = weir__order_mark_here(order_of(self), 0); /* an aside one */
    block->mark_count = 1;
    block->birth = 0;
    weir__mutex_lock(&self->lock);
    weir__block_table_insert(&self->table, &block->record);
    weir__async_keep_locked(self, block);
    weir__mutex_unlock(&self->lock);
}

static weir_status allocate(weir__async *self, weir__kept_block **slot,
                            const weir__block_record *wanted)
{
    uint64_t birth = 0;
    weir_status status = weir__kept_tell_refusal(&self->refusal, &self->lock, name);
    if (status == WEIR_OK)
        status = find_capture(self, wanted->stream, &birth);
    if (status != WEIR_OK)
        return status;
    weir__kept_block *block = *slot = weir__host_alloc(sizeof *block);
    if (block == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "%s: no memory for a block's record",
                          name);
    *block = (weir__kept_block){ .record = *wanted, .birth = birth };
    weir__async_free_kept(self, LOOKS);

    bool must_keep = false;
    status = draw_block(self, block, &must_keep);
    if (must_keep) {
        keep_stray(self, block);
        *slot = NULL;
    }
    return status;
}

static weir_status async_allocate(void *context, weir_stream stream,
                                  size_t bytes, size_t alignment, void **out)
{
    weir__async *self = context;
    const weir__block_record wanted = { .bytes = bytes, .alignment = alignment,
                                        .stream = stream, .state = WEIR__BLOCK_OUT };
    weir__kept_block *block = NULL;
    weir_status status = allocate(self, &block, &wanted);
    if (status != WEIR_OK) {
        weir__host_free(block);
        weir__mutex_lock(&self->lock);
        self->counts.failures++;
        weir__mutex_unlock(&self->lock);
        return status;
    }
    *out = block->record.ptr;
    hand_out(self, block);
    return WEIR_OK;
}

/* ---- taking back ---- */

static weir__kept_block *begin_leaving(weir__async *self, void *ptr, size_t bytes,
                                       size_t alignment)
{
    return weir__kept_begin_leaving(&self->table, &self->lock, name, ptr, bytes,
                                    alignment);
}

static void count_back_locked(weir__async *self, const weir__kept_block *block)
{
    self->counts.out_bytes -= block->record.bytes;
    self->counts.out_blocks--;
    self->counts.deallocations++;
}

/* Frees a block that comes back, on `stream`. */
static void free_leaving(weir__async *self, weir_stream stream, weir__kept_block *block)
{
    weir__mutex_lock(&self->lock);
    weir__block_table_remove(&self->table, &block->record);
    count_back_locked(self, block);
    weir__async_verify_locked(self);
    weir__mutex_unlock(&self->lock);
    (void)weir__async_free_block(self, stream, block);
}

/* Keeps a block that comes back, behind its marks. */
static void keep_leaving(weir__async *self, weir__kept_block *block)
{
    weir__mutex_lock(&self->lock);
    count_back_locked(self, block);
    weir__async_keep_locked(self, block);
    weir__mutex_unlock(&self->lock);
}

static bool is_of_capture(const weir__async *self, const weir__kept_block *block)
{
    return block->birth != 0 &&
           weir__order_is_captured(order_of(self), (weir__mark){ block->birth, 0 });
}

/* Whether the driver can be given the block on `stream` now. An error is no answer. */
static bool can_free_on(const weir__async *self, weir_stream stream,
                        const weir__kept_block *block)
{
    return !is_of_capture(self, block) &&
           !weir__order_stream_is_captured(order_of(self), stream) &&
           weir__refuse_capturing(order_of(self), stream) == WEIR_OK;
}

static bool async_deallocate(void *context, weir_stream stream,
                             void *ptr, size_t bytes, size_t alignment)
{
    weir__async *self = context;
    weir__kept_block *block = begin_leaving(self, ptr, bytes, alignment);
    if (block == NULL)
        return false;
    if (can_free_on(self, stream, block)) {
        free_leaving(self, stream, block);
        return true;
    }
    block->marks[0] = weir__order_free_mark(order_of(self), stream, block->birth);
    block->mark_count = 1;
    keep_leaving(self, block);
    return true;
}

/* To the ledger: all that this thread knows to be done, it tells to all. */
static void tell_what_is_known(const weir__async *self)
{
    weir__note_done(self->device, 0, NULL);
}

/* Puts `back` behind all points; false, if it cannot be. */
static bool back_follows(const weir__async *self, const weir_point *points,
                         size_t count)
{
    for (size_t i = 0; i < count; i++) {
        weir__mark mark = { points[i].clock, points[i].mark };
        if (weir__async_back_waits(self, &mark, 1) != WEIR_OK)
            return false;
    }
    return true;
}

static bool async_deallocate_after(void *context, void *ptr, size_t bytes,
                                   size_t alignment, const weir_point *points,
                                   size_t count)
{
    weir__async *self = context;
    weir__kept_block *block = begin_leaving(self, ptr, bytes, alignment);
    if (block == NULL)
        return false;
    if (!is_of_capture(self, block) && back_follows(self, points, count)) {
        free_leaving(self, self->back, block);
        return true;
    }
    weir__kept_mark_behind(block, order_of(self), points, count);
    tell_what_is_known(self);
    keep_leaving(self, block);
    return true;
}

/* ---- the rest ---- */

/* One round: gives back what is done already; if the round before was not enough, after
 * a wait. */
static void trim_round(weir__async *self, size_t keep_bytes, bool waits)
{
    if (waits && !wait_for_all(self))
        return;
    weir__async_free_kept(self, SIZE_MAX);
    if (waits)
        (void)weir__stream_sync(self->device, self->back);
    (void)weir__mempool_trim(self->device, self->pool, keep_bytes);
}

static size_t async_trim_sync(void *context, size_t keep_bytes)
{
    weir__async *self = context;
    weir__mempool_state before, now;
    if (!ask_state(self, &before) || before.reserved_bytes <= keep_bytes)
        return 0;
    now = before;
    for (int round = 0; round < 2 && now.reserved_bytes > keep_bytes; round++) {
        trim_round(self, keep_bytes, round > 0);
        if (!ask_state(self, &now) && !ask_state(self, &now)) /* it was done */
            return 0;
    }
    return now.reserved_bytes < before.reserved_bytes
               ? (size_t)(before.reserved_bytes - now.reserved_bytes)
               : 0;
}

static void async_properties(void *context, weir_resource_properties *out)
{
    const weir__async *self = context;
    out->device = self->device;
    out->device_accessible = true;
    out->host_accessible = self->memory != WEIR_ASYNC_DEVICE;
    out->managed = self->memory == WEIR_ASYNC_MANAGED;
    out->pinned = self->memory == WEIR_ASYNC_PINNED;
    out->usable_at_once = false;
    out->share_kind = self->is_shared ? WEIR_SHARE_POOL : WEIR_SHARE_NONE;
}

static void async_statistics(void *context, weir_resource_statistics *out)
{
    weir__async *self = context;
    weir__mempool_state state;
    (void)ask_state(self, &state); /* else what was known last */
    weir__mutex_lock(&self->lock);
    *out = self->counts;
    out->struct_size = sizeof *out;
    out->held_bytes = self->reserved_bytes;
    raise_to(&out->held_bytes, out->out_bytes + out->kept_bytes);
    raise_to(&out->peak_held_bytes, out->held_bytes);
    out->free_bytes = out->held_bytes - out->out_bytes;
    out->set_aside_bytes += weir__async_aside_bytes_locked(self);
    weir__mutex_unlock(&self->lock);
}

static weir_status async_find(void *context, const void *ptr, weir_block *out)
{
    weir__async *self = context;
    weir__mutex_lock(&self->lock);
    weir_status status = weir__block_describe(weir__block_table_find(&self->table, ptr),
                                              name, ptr, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* Forgets what the driver did not take. It goes with the pool, or the device. */
static void leak_rest(weir__async *self)
{
    size_t blocks = self->table.count, bytes = self->counts.kept_bytes;
    weir__block_record *record;
    while ((record = weir__block_table_any(&self->table)) != NULL) {
        weir__block_table_remove(&self->table, record);
        weir__host_free(block_of(record));
    }
    bool lost = weir__device_is_lost(self->device);
    if (blocks != 0)
        (void)weir__fail(lost ? WEIR_DEVICE_LOST : WEIR_DEVICE_ERROR,
                         "%s ends and leaks %zu bytes in %zu blocks: %s", name, bytes,
                         blocks,
                         lost ? "the device is lost"
                              : "the device did not take them, or a capture has them");
}

static void async_destroy(void *context)
{
    weir__async *self = context;
    WEIR_CHECK(self->counts.out_blocks == 0, "a leaf ends while blocks are out");
    weir__async_free_kept(self, SIZE_MAX);
    for (int round = 0; round < 2 && weir__async_count_kept(self) != 0; round++) {
        (void)weir__order_last_sync(order_of(self));
        weir__async_free_kept(self, SIZE_MAX);
    }
    leak_rest(self);
    weir__async_free(self);
}

const weir_resource_ops weir__async_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = name,
    .allocate = async_allocate,
    .deallocate = async_deallocate,
    .destroy = async_destroy,
    .trim_sync = async_trim_sync,
    .properties = async_properties,
    .statistics = async_statistics,
    .find = async_find,
    .deallocate_after = async_deallocate_after,
};
