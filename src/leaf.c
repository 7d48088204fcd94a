/* leaf.c - see leaf.h.
 *
 * Every block that the device has given stands in one table, also while it is kept, so
 * that a second free of it is told from that of a foreign pointer. It leaves the table
 * before the device takes it back, because the device may give the same address to
 * another thread at once; if the device refuses, it is kept again.
 *
 *     out --deallocate--> leaving --(its mark is taken)--> back (kept)
 *                                                           |  its marks are done
 *                                  device <---free--- in flight
 *
 * No device call is made under the lock. */
#include "leaf_internal.h"

#include <string.h>

#include "internal.h"
#include "resource_internal.h"
#include "weir/leaves.h"

/* A test build keeps less, so that freeing on the way is common there. */
#ifdef WEIR_TESTING
#define KEEP_BYTES ((size_t)4 << 20)
#else
#define KEEP_BYTES WEIR_LEAF_KEEP_BYTES
#endif

/* How often destroy tries to free what the device does not take. */
#define DESTROY_ROUNDS 3

typedef struct weir__leaf leaf;

static weir__kept_block *block_of(weir__block_record *record)
{
    return (weir__kept_block *)record;
}

static struct weir__order *order_of(const leaf *self)
{
    return self->device->order;
}

static void leaf_verify_locked(leaf *self)
{
#ifdef WEIR_TESTING
    size_t count = self->table.count;
    if (count <= 64 || (count & (count - 1)) == 0) { /* large ones not every time */
        weir__block_table_verify(&self->table);
        weir__kept_verify(&self->kept);
    }
#endif
    WEIR_ASSERT(self->counts.out_bytes <= self->out_held_bytes &&
                    self->out_held_bytes <= self->counts.held_bytes,
                "more is out than is held");
}

static void raise_to(size_t *peak, size_t value)
{
    if (*peak < value)
        *peak = value;
}

/* ---- freeing ---- */

/* Takes a list of kept blocks that are done out of the table. */
static void take_off_locked(leaf *self, weir__kept_block *list)
{
    for (; list != NULL; list = list->newer) {
        weir__block_table_remove(&self->table, &list->record);
        self->in_flight_blocks++;
    }
}

/* The device has refused to take `block`: it is kept as it was, and the next allocate
 * tells why. */
static void put_back_locked(leaf *self, weir__kept_block *block, weir_status status,
                            int32_t code)
{
    self->refused++;
    self->refusal = (weir__kept_refusal){ status, code };
    raise_to(&self->counts.peak_held_bytes, self->counts.held_bytes);
    weir__block_table_insert(&self->table, &block->record);
    weir__kept_put(&self->kept, block);
}

/* Frees one block in flight. Returns the bytes that the device has back. */
static size_t free_block(leaf *self, weir__kept_block *block)
{
    size_t bytes = block->held_bytes;
    weir_status status = self->kind->give(self->device, self->options,
                                          block->record.ptr, block->record.bytes);
    int32_t code = status == WEIR_OK ? 0 : weir_last_error().native_code;

    weir__mutex_lock(&self->lock);
    self->in_flight_blocks--;
    if (status == WEIR_OK) {
        self->freed++;
        self->counts.held_bytes -= bytes;
    } else {
        put_back_locked(self, block, status, code);
    }
    leaf_verify_locked(self);
    weir__cond_broadcast(&self->landed_more);
    weir__mutex_unlock(&self->lock);

    if (status != WEIR_OK)
        return 0;
    weir__host_free(block);
    return bytes;
}

static size_t free_list(leaf *self, weir__kept_block *list)
{
    size_t bytes = 0;
    while (list != NULL) {
        weir__kept_block *next = list->newer;
        bytes += free_block(self, list);
        list = next;
    }
    return bytes;
}

/* To the ledger: all that this thread knows to be done, it tells to all. */
static void tell_what_is_known(const leaf *self)
{
    weir__note_done(self->device, 0, NULL);
}

/* Takes off what is known to be done behind `mark`. */
static weir__kept_block *take_done(leaf *self, weir__mark mark)
{
    weir__mutex_lock(&self->lock);
    weir__kept_block *list = weir__kept_take_done(&self->kept, order_of(self),
                                                  mark.clock);
    take_off_locked(self, list);
    weir__mutex_unlock(&self->lock);
    return list;
}

static uint64_t begin_round(leaf *self)
{
    weir__mutex_lock(&self->lock);
    uint64_t round = ++self->kept.last_round;
    weir__mutex_unlock(&self->lock);
    return round;
}

static bool next_to_ask(leaf *self, uint64_t round, weir__mark *out)
{
    weir__mutex_lock(&self->lock);
    const weir__kept_block *block = weir__kept_next_to_ask(&self->kept, round);
    if (block != NULL)
        *out = weir__kept_mark(block);
    weir__mutex_unlock(&self->lock);
    return block != NULL;
}

size_t weir__leaf_free_done(leaf *self)
{
    size_t bytes = 0;
    weir__mark mark;
    uint64_t round = begin_round(self);
    while (next_to_ask(self, round, &mark)) {
        weir__order_cover(order_of(self), mark);
        if (weir__order_is_done(order_of(self), 0, mark))
            bytes += free_list(self, take_done(self, mark));
    }
    return bytes;
}

static uint64_t count_freed(leaf *self)
{
    weir__mutex_lock(&self->lock);
    uint64_t freed = self->freed;
    weir__mutex_unlock(&self->lock);
    return freed;
}

/* Others may free what this thread lacks; when it looked, `freed` blocks were. True
 * once there are more, false if no free is under way any more. */
static bool wait_for_landing(leaf *self, uint64_t freed)
{
    weir__mutex_lock(&self->lock);
    while (self->in_flight_blocks != 0 && self->freed == freed)
        weir__cond_wait(&self->landed_more, &self->lock);
    bool has_more = self->freed != freed;
    weir__mutex_unlock(&self->lock);
    return has_more;
}

/* ---- allocating ---- */

static bool keeps_too_much(leaf *self)
{
    weir__mutex_lock(&self->lock);
    bool too_much = self->kept.bytes > KEEP_BYTES;
    weir__mutex_unlock(&self->lock);
    return too_much;
}

size_t weir__leaf_held_bytes_of(const leaf *self, size_t bytes)
{
    size_t step = self->kind->object_bytes;
    if (step == 0)
        return bytes;
    return bytes <= SIZE_MAX - step ? (bytes + step - 1) & ~(step - 1) : SIZE_MAX;
}

/* What a kind that cuts blocks holds in all; of any other the blocks. */
static size_t held_locked(const leaf *self) WEIR_REQUIRES(&self->lock)
{
    weir_resource_statistics held = self->counts;
    if (self->kind->describe != NULL)
        self->kind->describe(self->options, &held);
    return held.held_bytes;
}

/* Whether `bytes` may be there once everything that is kept is free: with what the
 * device has, and what the kind holds beside its blocks. */
static bool could_suffice(leaf *self, size_t bytes)
{
    size_t free_bytes = 0;
    bytes = weir__leaf_held_bytes_of(self, bytes);
    if (self->kind->measure(self->device, &free_bytes) != WEIR_OK)
        return false;
    weir__mutex_lock(&self->lock);
    size_t room_bytes = self->kept.room_bytes;
    size_t held_bytes = held_locked(self); /* less for a moment, while one lands */
    if (held_bytes > self->counts.held_bytes)
        free_bytes += held_bytes - self->counts.held_bytes;
    weir__mutex_unlock(&self->lock);
    return room_bytes != 0 && (bytes <= free_bytes || bytes - free_bytes <= room_bytes);
}

/* What out of memory is told with. */
static weir_status fail_memory(leaf *self, size_t bytes)
{
    size_t free_bytes = 0;
    if (self->kind->measure(self->device, &free_bytes) != WEIR_OK)
        free_bytes = 0;
    weir_out_of_memory report = { .struct_size = sizeof report,
                                  .requested_bytes = bytes,
                                  .limit_bytes = SIZE_MAX,
                                  .largest_free_bytes = free_bytes,
                                  .resource = self->kind->name };
    weir__mutex_lock(&self->lock);
    report.held_bytes = held_locked(self);
    report.in_use_bytes = self->counts.out_bytes;
    weir__mutex_unlock(&self->lock);
    return weir__fail_memory(WEIR_OUT_OF_MEMORY, &report);
}

static weir_status tell_refusal(leaf *self)
{
    return weir__kept_tell_refusal(&self->refusal, &self->lock, self->kind->name);
}

/* Draws from the device; where that has no room, frees what is done, and only then
 * waits for what is not. Where the device does not take it, this is an end too. */
static weir_status draw(leaf *self, size_t bytes, size_t alignment, void **out)
{
    if (self->kind->reuse != NULL && weir__leaf_reuse(self, bytes, out))
        return WEIR_OK;
    weir__leaf_make_room(self, bytes);
    for (;;) {
        uint64_t freed = count_freed(self);
        weir_status status = self->kind->draw(self->device, self->options, bytes,
                                              alignment, out);
        if (status != WEIR_OUT_OF_MEMORY)
            return status;
        if (weir__leaf_free_done(self) != 0 || wait_for_landing(self, freed))
            continue;
        status = tell_refusal(self);
        if (status == WEIR_OK && could_suffice(self, bytes))
            status = weir__leaf_wait_for_oldest(self);
        else if (status == WEIR_OK)
            status = WEIR_NOT_FOUND;
        if (status == WEIR_NOT_FOUND && !wait_for_landing(self, freed))
            return fail_memory(self, bytes);
        if (status != WEIR_NOT_FOUND && status != WEIR_OK)
            return status;
    }
}

static weir_status prepare(leaf *self, weir_stream stream, weir__kept_block **out)
{
    weir_status status = tell_refusal(self);
    uint64_t birth = 0;
    if (status == WEIR_OK)
        status = weir__order_clock(order_of(self), stream, &birth);
    if (status != WEIR_OK)
        return status;
    weir__kept_block *block = weir__host_alloc(sizeof *block);
    if (block == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "%s: no memory for a block's record",
                          self->kind->name);
    *block = (weir__kept_block){ .birth = birth };
    block->record.stream = stream;
    *out = block;
    return WEIR_OK;
}

static void hand_out(leaf *self, weir__kept_block *block)
{
    size_t bytes = block->record.bytes;
    weir__mutex_lock(&self->lock);
    weir__block_table_insert(&self->table, &block->record);
    weir_resource_statistics *counts = &self->counts;
    counts->out_bytes += bytes;
    counts->out_blocks++;
    counts->held_bytes += block->held_bytes;
    self->out_held_bytes += block->held_bytes;
    counts->allocations++;
    raise_to(&counts->peak_out_bytes, counts->out_bytes);
    raise_to(&counts->peak_held_bytes, counts->held_bytes);
    leaf_verify_locked(self);
    weir__mutex_unlock(&self->lock);
}

static weir_status leaf_allocate(void *context, weir_stream stream,
                                 size_t bytes, size_t alignment, void **out)
{
    leaf *self = context;
    weir__kept_block *block = NULL;
    weir_status status = prepare(self, stream, &block);
    if (status == WEIR_OK && keeps_too_much(self))
        weir__leaf_free_done(self);
    if (status == WEIR_OK)
        status = draw(self, bytes, alignment, out);
    if (status != WEIR_OK) {
        weir__host_free(block);
        weir__mutex_lock(&self->lock);
        self->counts.failures++;
        weir__mutex_unlock(&self->lock);
        return status;
    }
    block->record.ptr = *out;
    block->record.bytes = bytes;
    block->record.alignment = alignment;
    block->record.state = WEIR__BLOCK_OUT;
    block->held_bytes = weir__leaf_held_bytes_of(self, bytes);
    hand_out(self, block);
    return WEIR_OK;
}

/* ---- taking back ---- */

static weir__kept_block *begin_leaving(leaf *self, void *ptr, size_t bytes,
                                       size_t alignment)
{
    return weir__kept_begin_leaving(&self->table, &self->lock, self->kind->name, ptr,
                                    bytes, alignment);
}

/* Keeps it behind its marks; without any it is not freed before the device is
 * closed. */
static void keep(leaf *self, weir__kept_block *block)
{
    weir__mutex_lock(&self->lock);
    block->record.state = WEIR__BLOCK_BACK;
    if (self->kind->keep != NULL)
        self->kind->keep(self->options, block->record.ptr, block->record.bytes);
    if (block->mark_count > 0) {
        weir__kept_put(&self->kept, block);
    } else {
        self->counts.set_aside_bytes += block->held_bytes;
    }
    self->counts.out_bytes -= block->record.bytes;
    self->out_held_bytes -= block->held_bytes;
    self->counts.out_blocks--;
    self->counts.deallocations++;
    leaf_verify_locked(self);
    weir__mutex_unlock(&self->lock);
}

static bool leaf_deallocate(void *context, weir_stream stream,
                            void *ptr, size_t bytes, size_t alignment)
{
    leaf *self = context;
    weir__kept_block *block = begin_leaving(self, ptr, bytes, alignment);
    if (block == NULL)
        return false;
    block->marks[0] = weir__order_free_mark(order_of(self), stream, block->birth);
    block->mark_count = 1;
    keep(self, block);
    return true;
}

static bool leaf_deallocate_after(void *context, void *ptr, size_t bytes,
                                  size_t alignment, const weir_point *points,
                                  size_t count)
{
    leaf *self = context;
    weir__kept_block *block = begin_leaving(self, ptr, bytes, alignment);
    if (block == NULL)
        return false;
    weir__kept_mark_behind(block, order_of(self), points, count);
    tell_what_is_known(self);
    keep(self, block);
    return true;
}

/* ---- the rest ---- */

/* Whether more than `keep_bytes` is held, and no more than `refused` frees have failed
 * so far. */
static bool can_trim_on(leaf *self, size_t keep_bytes, uint64_t refused)
{
    weir__mutex_lock(&self->lock);
    bool can = self->counts.held_bytes > keep_bytes && self->refused <= refused;
    weir__mutex_unlock(&self->lock);
    return can;
}

static size_t leaf_trim_sync(void *context, size_t keep_bytes)
{
    leaf *self = context;
    size_t bytes = 0;
    if (self->kind->trim != NULL)
        return weir__leaf_trim_held(self, keep_bytes);
    weir__mutex_lock(&self->lock);
    uint64_t refused = self->refused;
    weir__mutex_unlock(&self->lock);
    while (can_trim_on(self, keep_bytes, refused)) {
        size_t freed = weir__leaf_free_done(self);
        bytes += freed;
        if (freed == 0 && weir__leaf_wait_for_oldest(self) != WEIR_OK)
            break;
    }
    return bytes;
}

static void leaf_properties(void *context, weir_resource_properties *out)
{
    leaf *self = context;
    out->device = self->device;
    out->max_alignment = self->kind->max_alignment;
    out->device_accessible = true;
    out->host_accessible = self->kind->host_accessible;
    out->managed = self->kind->managed;
    out->pinned = self->kind->pinned;
    out->usable_at_once = true;
    out->share_kind = self->kind->share_kind;
    out->cut_bytes = self->kind->object_bytes;
    out->remaps = self->kind->remaps != NULL && self->kind->remaps(self->options);
}

static void leaf_statistics(void *context, weir_resource_statistics *out)
{
    leaf *self = context;
    weir__mutex_lock(&self->lock);
    *out = self->counts;
    out->struct_size = sizeof *out;
    if (self->kind->describe != NULL)
        self->kind->describe(self->options, out);
    out->kept_bytes = self->counts.held_bytes - self->out_held_bytes;
    out->free_bytes = out->held_bytes > self->out_held_bytes
                          ? out->held_bytes - self->out_held_bytes : 0; /* 0: paused */
    out->free_blocks = self->table.count + self->in_flight_blocks - out->out_blocks;
    out->set_aside_bytes += self->kept.aside_bytes;
    weir__mutex_unlock(&self->lock);
}

static weir_status leaf_find(void *context, const void *ptr, weir_block *out)
{
    leaf *self = context;
    weir__mutex_lock(&self->lock);
    weir_status status = weir__block_describe(weir__block_table_find(&self->table, ptr),
                                              self->kind->name, ptr, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* Forgets what the device did not take. It goes with the device itself. */
static void leak_rest(leaf *self)
{
    size_t blocks = self->table.count;
    size_t bytes = self->counts.held_bytes, left = 0;
    if (self->kind->end != NULL)
        left = self->kind->end(self->device, self->options);
    weir__block_record *record;
    while ((record = weir__block_table_any(&self->table)) != NULL) {
        weir__block_table_remove(&self->table, record);
        weir__host_free(block_of(record));
    }
    if (blocks != 0 || left != 0)
        weir__failed(weir__device_is_lost(self->device) ? WEIR_DEVICE_LOST
                                                        : WEIR_DEVICE_ERROR, 0,
                     "%s ends and leaks %zu bytes in %zu blocks: %s", self->kind->name,
                     left > bytes ? left : bytes, blocks,
                     weir__device_is_lost(self->device)
                         ? "the device is lost"
                         : "the device did not take them, or a capture has them");
}

/* The leaf alone, which has nothing. */
static void leaf_drop(leaf *self)
{
    weir__block_table_finish(&self->table);
    weir__cond_destroy(&self->landed_more);
    weir__mutex_destroy(&self->lock);
    weir__host_free(self);
}

static void leaf_destroy(void *context)
{
    leaf *self = context;
    WEIR_CHECK(self->counts.out_blocks == 0, "a leaf ends while blocks are out");
    if (self->kind->trim != NULL)
        (void)weir__leaf_settle(self); /* for trim may find nothing held */
    for (int round = 0; round < DESTROY_ROUNDS && self->kept.blocks != 0; round++) {
        if (leaf_trim_sync(self, 0) == 0 && self->kept.blocks != 0 &&
            weir__order_last_sync(order_of(self)) == WEIR_OK)
            weir__leaf_free_done(self);
    }
    leak_rest(self);
    leaf_drop(self);
}

static const weir_resource_ops leaf_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .allocate = leaf_allocate,
    .deallocate = leaf_deallocate,
    .destroy = leaf_destroy,
    .trim_sync = leaf_trim_sync,
    .properties = leaf_properties,
    .statistics = leaf_statistics,
    .find = leaf_find,
    .deallocate_after = leaf_deallocate_after,
};

weir_status weir__leaf_create(const weir__leaf_kind *kind, weir_device *device,
                              const void *options, weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    if (device == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the device is null");

    leaf *self = weir__host_alloc(sizeof *self + kind->options_bytes);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for the resource %s",
                          kind->name);
    memset(self, 0, sizeof *self);
    if (kind->options_bytes != 0)
        memcpy(self->options, options, kind->options_bytes);
    self->kind = kind;
    self->device = device;
    weir_status status = weir__block_table_init(&self->table);
    if (status != WEIR_OK) {
        weir__host_free(self);
        return status;
    }
    weir__mutex_init(&self->lock, WEIR__RANK_RESOURCE);
    weir__cond_init(&self->landed_more);

    weir_resource_ops ops = leaf_ops;
    ops.name = kind->name;
    ops.extend = kind->extend != NULL ? weir__leaf_extend : NULL;
    ops.cut = kind->part != NULL ? weir__leaf_cut : NULL;
    status = weir_resource_create(&ops, self, out);
    if (status != WEIR_OK)
        leaf_drop(self);
    return status;
}

weir__leaf *weir__leaf_of(weir_resource *mr, const weir__leaf_kind *kind)
{
    leaf *self = weir__resource_self(mr, &leaf_ops);
    return self != NULL && self->kind == kind ? self : NULL;
}

weir_status weir__leaf_try(weir_resource *mr, size_t bytes)
{
    leaf *self = weir__resource_self(mr, &leaf_ops);
    weir__kept_block *block = weir__host_alloc(sizeof *block);
    if (block == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "%s: no memory for a block's record",
                          self->kind->name);
    *block = (weir__kept_block){ .marks = { WEIR__MARK_DONE }, .mark_count = 1,
                                 .held_bytes = weir__leaf_held_bytes_of(self, bytes) };
    block->record.bytes = bytes;
    block->record.state = WEIR__BLOCK_BACK;
    weir_status status = self->kind->draw(self->device, self->options, bytes, 1,
                                          &block->record.ptr);
    if (status != WEIR_OK) {
        weir__host_free(block);
        return status;
    }
    weir__mutex_lock(&self->lock);
    self->in_flight_blocks++;
    self->counts.held_bytes += block->held_bytes;
    weir__mutex_unlock(&self->lock);
    (void)free_block(self, block);
    return WEIR_OK;
}
