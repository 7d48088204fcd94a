/* leaf_held.c - leaves whose kind holds memory of its own, out of which blocks are cut.
 *
 * What is given back waits in the leaf as in any other; what is done goes to the kind,
 * and is no block any more. Nobody is made to wait before a block can grow, and trim
 * waits for those blocks only that keep memory from the device. */
#include "internal.h"
#include "leaf_internal.h"

bool weir__leaf_reuse(weir__leaf *self, size_t bytes, void **out)
{
    const weir__leaf_kind *kind = self->kind;
    return kind->reuse(self->device, self->options, bytes, out) ||
           (weir__leaf_free_done(self) > 0 &&
            kind->reuse(self->device, self->options, bytes, out));
}

/* ---- extending ---- */

/* The record of a block of `bytes` that is out, or null. */
static weir__block_record *find_out_locked(weir__leaf *self, const void *ptr,
                                           size_t bytes)
{
    weir__block_record *record = weir__block_table_find(&self->table, ptr);
    bool is_it = record != NULL && record->state == WEIR__BLOCK_OUT &&
                 record->bytes == bytes;
    return is_it ? record : NULL;
}

static bool is_out(weir__leaf *self, const void *ptr, size_t bytes)
{
    weir__mutex_lock(&self->lock);
    bool is = find_out_locked(self, ptr, bytes) != NULL;
    weir__mutex_unlock(&self->lock);
    return is;
}

static void raise_to(size_t *peak, size_t value)
{
    if (*peak < value)
        *peak = value;
}

static void lengthen(weir__leaf *self, const void *ptr, size_t bytes, size_t new_bytes)
{
    weir_resource_statistics *counts = &self->counts;
    size_t more = weir__leaf_held_bytes_of(self, new_bytes) -
                  weir__leaf_held_bytes_of(self, bytes);
    weir__mutex_lock(&self->lock);
    weir__block_record *record = find_out_locked(self, ptr, bytes);
    WEIR_CHECK(record != NULL, "a block that is being extended is its owner's");
    record->bytes = new_bytes;
    ((weir__kept_block *)record)->held_bytes += more;
    self->out_held_bytes += more;
    counts->held_bytes += more;
    counts->out_bytes += new_bytes - bytes;
    raise_to(&counts->peak_out_bytes, counts->out_bytes);
    raise_to(&counts->peak_held_bytes, counts->held_bytes);
    weir__mutex_unlock(&self->lock);
}

/* The kind has said why. */
static void report_no_room(weir__leaf *self, size_t new_bytes)
{
    weir__mutex_lock(&self->lock);
    weir_resource_statistics now = self->counts;
    if (self->kind->describe != NULL)
        self->kind->describe(self->options, &now);
    weir__mutex_unlock(&self->lock);
    weir__report_memory(
        &(weir_out_of_memory){ .requested_bytes = new_bytes,
                               .limit_bytes = SIZE_MAX,
                               .held_bytes = now.held_bytes,
                               .in_use_bytes = now.out_bytes,
                               .largest_free_bytes = now.largest_free_bytes,
                               .resource = self->kind->name });
}

/* What is added may be used on any stream. */
weir_status weir__leaf_extend(void *context, weir_stream stream, void *ptr,
                              size_t bytes, size_t alignment, size_t new_bytes)
{
    weir__leaf *self = context;
    const weir__leaf_kind *kind = self->kind;
    (void)stream;
    (void)alignment;
    if (!is_out(self, ptr, bytes) || new_bytes < bytes)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "%s: no block of %zu bytes at %p can be %zu long", kind->name,
                          bytes, ptr, new_bytes);
    weir__leaf_make_room(self, weir__leaf_held_bytes_of(self, new_bytes) -
                                   weir__leaf_held_bytes_of(self, bytes));
    weir_status status = kind->extend(self->device, self->options, ptr, bytes,
                                      new_bytes);
    if (status == WEIR_OUT_OF_MEMORY && weir__leaf_free_done(self) > 0)
        status = kind->extend(self->device, self->options, ptr, bytes, new_bytes);
    if (status == WEIR_OK)
        lengthen(self, ptr, bytes, new_bytes);
    else if (status == WEIR_OUT_OF_MEMORY)
        report_no_room(self, new_bytes);
    return status;
}

/* ---- cutting ---- */

/* The records of what is cut off: behind the first piece, and behind that. */
typedef struct cut_off {
    weir__kept_block *records[2];
    size_t count;
} cut_off;

static void cut_off_drop(const cut_off *off)
{
    for (size_t i = 0; i < off->count; i++)
        weir__host_free(off->records[i]);
}

static weir_status cut_off_make(const weir__leaf *self, size_t count, cut_off *out)
{
    for (out->count = 0; out->count < count; out->count++) {
        out->records[out->count] = weir__host_alloc(sizeof(weir__kept_block));
        if (out->records[out->count] == NULL) {
            cut_off_drop(out);
            return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                              "%s: no memory for a block's record", self->kind->name);
        }
    }
    return WEIR_OK;
}

static void shorten(const weir__leaf *self, weir__kept_block *block, size_t bytes)
{
    block->record.bytes = bytes;
    block->held_bytes = weir__leaf_held_bytes_of(self, bytes);
}

/* The blocks begin one behind the other, `at` after the first one's beginning. */
static void cut_locked(weir__leaf *self, weir__kept_block *block, const cut_off *off,
                       const size_t at[2]) WEIR_REQUIRES(&self->lock)
{
    unsigned char *ptr = block->record.ptr;
    size_t end = block->record.bytes;
    for (size_t i = off->count; i-- > 0; end = at[i]) {
        weir__kept_block *piece = off->records[i];
        *piece = *block;
        piece->record.ptr = ptr + at[i];
        shorten(self, piece, end - at[i]);
        weir__block_table_insert(&self->table, &piece->record);
    }
    shorten(self, block, end);
    self->counts.out_blocks += off->count;
    self->counts.allocations += off->count;
}

weir_status weir__leaf_cut(void *context, void *ptr, size_t bytes, size_t alignment,
                           size_t wanted_bytes, size_t *from, size_t *to)
{
    weir__leaf *self = context;
    cut_off off;
    (void)alignment;
    if (!is_out(self, ptr, bytes))
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s: no block of %zu bytes is at %p",
                          self->kind->name, bytes, ptr);
    self->kind->part(self->options, ptr, bytes, wanted_bytes, from, to);
    if (*from == *to || *to - *from == bytes)
        return WEIR_OK;
    size_t borders[3] = { *from, *to }; /* those that are inside */
    const size_t *at = *from == 0 ? borders + 1 : borders;
    weir_status status = cut_off_make(self, (size_t)(*from > 0) + (*to < bytes), &off);
    if (status != WEIR_OK)
        return status;
    weir__mutex_lock(&self->lock);
    weir__block_record *record = find_out_locked(self, ptr, bytes);
    WEIR_CHECK(record != NULL, "a block that is being cut is its owner's");
    cut_locked(self, (weir__kept_block *)record, &off, at);
    weir__mutex_unlock(&self->lock);
    return WEIR_OK;
}

/* ---- trimming ---- */

/* A mark that a kept block waits for, for which trim does. */
static bool awaited_mark_locked(weir__leaf *self, weir__mark *out)
{
    for (size_t i = 0; i < WEIR__KEPT_BUCKETS; i++) {
        for (const weir__kept_block *head = self->kept.buckets[i]; head != NULL;
             head = head->next_queue) {
            for (const weir__kept_block *block = head; block; block = block->newer) {
                *out = weir__kept_mark(block);
                if (!weir__order_is_captured(self->device->order, *out) &&
                    self->kind->is_awaited(self->options, block->record.ptr,
                                           block->record.bytes))
                    return true;
            }
        }
    }
    return false;
}

/* False: there is nothing to wait for, or the device does not. */
static bool wait_for_awaited(weir__leaf *self)
{
    weir__mark mark;
    weir__mutex_lock(&self->lock);
    bool found = awaited_mark_locked(self, &mark);
    weir__mutex_unlock(&self->lock);
    return found && weir__order_sync(self->device->order, mark) == WEIR_OK;
}

static size_t held_bytes(const weir__leaf *self)
{
    weir_resource_statistics counts = { .struct_size = sizeof counts };
    self->kind->describe(self->options, &counts);
    return counts.held_bytes;
}

size_t weir__leaf_trim_held(weir__leaf *self, size_t keep_bytes)
{
    size_t bytes = 0;
    if (held_bytes(self) <= keep_bytes)
        return 0;
    do {
        (void)weir__leaf_free_done(self);
        bytes += self->kind->trim(self->device, self->options, keep_bytes);
    } while (held_bytes(self) > keep_bytes && wait_for_awaited(self));
    return bytes;
}

void weir__leaf_make_room(weir__leaf *self, size_t bytes)
{
    const weir__leaf_kind *kind = self->kind;
    if (kind->remaps == NULL || !kind->remaps(self->options))
        return;
    size_t held = held_bytes(self);
    bytes = weir__leaf_held_bytes_of(self, bytes);
    (void)weir__leaf_trim_held(self, held > bytes ? held - bytes : 0);
}

/* ---- waiting for all that is kept ---- */

weir_status weir__leaf_wait_for_oldest(weir__leaf *self)
{
    weir__order *order = self->device->order;
    weir__mark mark = WEIR__MARK_DONE;
    weir__mutex_lock(&self->lock);
    const weir__kept_block *oldest = weir__kept_oldest(&self->kept, order);
    if (oldest != NULL)
        mark = weir__kept_mark(oldest);
    weir__mutex_unlock(&self->lock);
    return oldest == NULL ? WEIR_NOT_FOUND : weir__order_sync(order, mark);
}

weir_status weir__leaf_settle(weir__leaf *self)
{
    weir_status status;
    do
        (void)weir__leaf_free_done(self);
    while ((status = weir__leaf_wait_for_oldest(self)) == WEIR_OK);
    return status == WEIR_NOT_FOUND ? WEIR_OK : status;
}

const void *weir__leaf_options(weir_resource *mr, const weir__leaf_kind *kind)
{
    const weir__leaf *self = weir__leaf_of(mr, kind);
    return self == NULL ? NULL : self->options;
}

weir_status weir__leaf_settle_sync(weir_resource *mr, const weir__leaf_kind *kind)
{
    return weir__leaf_settle(weir__leaf_of(mr, kind));
}
