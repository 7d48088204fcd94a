/* tracking.c - records of the blocks that are out, with who allocated them.
 *
 * A block's record is in a table, by address, and in a list, by age, while the block is
 * out. It leaves both before the block goes back to upstream, for then the address may
 * be another block's at once, and goes into a ring of those freed last, with the second
 * call site; where upstream refuses, it returns from there. A new one in the ring's
 * place sends the oldest out of it.
 *
 *     table, list  --begin_return-->  ring, LEAVING  --end_return-->  ring, BACK
 *          ^---------- upstream refuses ----'     '-- pushed out meanwhile: freed --
 *
 * A report walks the list with a cursor that is a member of it, so that no lock is held
 * while a line is handed out, and no host memory is needed. */
#include "weir/tracking.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "block_table.h"
#include "call_sites.h"
#include "internal.h"
#include "resource_internal.h"
#include "sync.h"

typedef struct age_link {
    struct age_link *older, *newer;
    uint64_t number; /* of the block, from 1; of the one a cursor stands behind */
    bool is_cursor;
} age_link;

typedef struct tracked_block {
    weir__block_record record;
    age_link by_age;
    size_t slot;        /* in the ring, once it is not out */
    bool is_pushed_out; /* of the ring, while it was leaving */
    void *frames[];     /* who allocated it, then who gave it back */
} tracked_block;

typedef struct tracking {
    weir_resource *mr;       /* itself; written once, before anybody has it */
    weir_resource *upstream; /* counted by the resource */
    weir_tracking_options options;
    atomic_uint_least64_t failures; /* of requests that upstream has not seen */

    weir__mutex lock;        /* guards all below, and the records */
    weir__block_table table; /* of those that are out */
    age_link ages;               /* their list's end: newer is the oldest */
    uint64_t numbers;        /* given to blocks so far */
    size_t out_blocks;       /* with those whose deallocation is under way */
    size_t out_bytes;
    size_t next_slot;        /* of the ring */
    bool is_closing;         /* the last reference is gone */
    tracked_block *freed[];  /* the ring: options.freed_blocks of them, or null */
} tracking;

/* ---- records ---- */

static tracked_block *block_of(age_link *by_age)
{
    return (tracked_block *)((char *)by_age - offsetof(tracked_block, by_age));
}

static void link_behind(age_link *older, age_link *it)
{
    it->older = older;
    it->newer = older->newer;
    it->newer->older = it;
    older->newer = it;
}

static void unlink_it(age_link *it)
{
    it->older->newer = it->newer;
    it->newer->older = it->older;
}

static void put_by_age_locked(tracking *self, age_link *it) WEIR_REQUIRES(&self->lock)
{
    age_link *older = self->ages.older;
    while (older != &self->ages && older->number > it->number)
        older = older->older;
    link_behind(older, it);
}

static size_t frames_bytes(const tracking *self)
{
    return self->options.frames * sizeof(void *);
}

static void keep_allocated(tracking *self, tracked_block *block)
{
    weir__mutex_lock(&self->lock);
    block->by_age.number = ++self->numbers;
    weir__block_table_insert(&self->table, &block->record);
    put_by_age_locked(self, &block->by_age);
    self->out_blocks++;
    self->out_bytes += block->record.bytes;
    weir__mutex_unlock(&self->lock);
}

static weir_status tracking_allocate(void *context, weir_stream stream, size_t bytes,
                                     size_t alignment, void **out)
{
    tracking *self = context;
    void *ptr;
    tracked_block *block = weir__host_alloc(sizeof *block + 2 * frames_bytes(self));
    if (block == NULL) {
        atomic_fetch_add(&self->failures, 1);
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "tracking: no memory for the record of a block");
    }
    weir__site_take(block->frames, self->options.frames);
    weir_status status = weir_allocate(self->upstream, stream, bytes, alignment, &ptr);
    if (status != WEIR_OK) {
        weir__host_free(block);
        return status;
    }
    block->record = (weir__block_record){ .ptr = ptr, .bytes = bytes,
                                          .alignment = alignment, .stream = stream,
                                          .state = WEIR__BLOCK_OUT };
    block->by_age.is_cursor = false;
    block->is_pushed_out = false;
    keep_allocated(self, block);
    *out = ptr;
    return WEIR_OK;
}

static weir_status tracking_extend(void *context, weir_stream stream, void *ptr,
                                   size_t bytes, size_t alignment, size_t new_bytes)
{
    tracking *self = context;
    weir__mutex_lock(&self->lock);
    weir__block_fault fault = weir__block_judge(
        weir__block_table_find(&self->table, ptr), bytes, alignment);
    weir__mutex_unlock(&self->lock);
    if (fault.kind != 0)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "tracking: %p is no block of %zu bytes, alignment %zu", ptr,
                          bytes, alignment);
    weir_status status = weir_resource_extend(self->upstream, stream, ptr, bytes,
                                              alignment, new_bytes);
    if (status != WEIR_OK)
        return status;
    weir__mutex_lock(&self->lock);
    weir__block_record *record = weir__block_table_find(&self->table, ptr);
    if (record != NULL) { /* else somebody has given it back meanwhile */
        self->out_bytes += new_bytes - record->bytes;
        record->bytes = new_bytes;
    }
    weir__mutex_unlock(&self->lock);
    return WEIR_OK;
}

/* ---- deallocation ---- */

/* Puts `block` into the ring. What that pushes out, and nobody holds, is returned. */
static tracked_block *remember_locked(tracking *self, tracked_block *block)
    WEIR_REQUIRES(&self->lock)
{
    block->slot = self->next_slot;
    self->next_slot = (self->next_slot + 1) % self->options.freed_blocks;
    tracked_block *oldest = self->freed[block->slot];
    self->freed[block->slot] = block;
    if (oldest == NULL || oldest->record.state == WEIR__BLOCK_BACK)
        return oldest;
    oldest->is_pushed_out = true;
    return NULL;
}

/* The one that was given back last of those that were at `ptr`, or null. */
static tracked_block *find_freed_locked(const tracking *self, const void *ptr)
    WEIR_REQUIRES(&self->lock)
{
    const size_t count = self->options.freed_blocks;
    for (size_t i = 1; i <= count; i++) {
        tracked_block *block = self->freed[(self->next_slot + count - i) % count];
        if (block != NULL && block->record.ptr == ptr)
            return block;
    }
    return NULL;
}

/* What is said of a wrong deallocation, copied while the record is there. */
typedef struct wrong_return {
    weir__block_fault fault;
    bool is_known;
    void *frames[WEIR__FRAMES_MAX]; /* of the first deallocation, or the allocation */
} wrong_return;

static void judge_locked(tracking *self, tracked_block *block, const void *ptr,
                         size_t bytes, size_t alignment, wrong_return *out)
    WEIR_REQUIRES(&self->lock)
{
    weir__block_record *record = block == NULL ? NULL : &block->record;
    out->fault = weir__block_judge(record, bytes, alignment);
    if (out->fault.kind == 0)
        return;
    void *const *frames = NULL;
    if (block != NULL) {
        frames = block->frames;
    } else if ((block = find_freed_locked(self, ptr)) != NULL) {
        out->fault = weir__block_judge(&block->record, bytes, alignment);
        frames = block->frames + self->options.frames;
    }
    out->is_known = frames != NULL;
    if (frames != NULL)
        memcpy(out->frames, frames, frames_bytes(self));
}

static void tell_misuse(const tracking *self, const wrong_return *wrong,
                        void *const *frames, const void *ptr, size_t bytes,
                        size_t alignment)
{
    const weir__block_fault *fault = &wrong->fault;
    if (!wrong->is_known) {
        weir__block_report(fault, "tracking", ptr, bytes, alignment);
        return;
    }
    const size_t count = self->options.frames;
    weir__site_words before = weir__site_say(wrong->frames, count);
    if (fault->kind == WEIR_MISUSE_DOUBLE_FREE)
        weir__misuse(fault->kind, ptr, bytes,
                     "tracking: %p was given back already, by %s; now by %s", ptr,
                     before.text, weir__site_say(frames, count).text);
    else
        weir__misuse(fault->kind, ptr, bytes,
                     "tracking: %p comes back with %zu bytes, alignment %zu, and was "
                     "allocated with %zu, %zu by %s",
                     ptr, bytes, alignment, fault->bytes, fault->alignment,
                     before.text);
}

/* Takes the record of a block that comes back, by `frames`, out; null: it does not, and
 * the misuse handler was told. */
static tracked_block *begin_return(tracking *self, void *const *frames, void *ptr,
                                   size_t bytes, size_t alignment)
{
    wrong_return wrong = { .is_known = false };
    tracked_block *pushed_out = NULL;
    weir__mutex_lock(&self->lock);
    tracked_block *block = (tracked_block *)weir__block_table_find(&self->table, ptr);
    judge_locked(self, block, ptr, bytes, alignment, &wrong);
    bool is_right = wrong.fault.kind == 0;
    if (is_right) {
        weir__block_table_remove(&self->table, &block->record);
        unlink_it(&block->by_age);
        block->record.state = WEIR__BLOCK_LEAVING;
        memcpy(block->frames + self->options.frames, frames, frames_bytes(self));
        pushed_out = remember_locked(self, block);
    }
    weir__mutex_unlock(&self->lock);
    weir__host_free(pushed_out);
    if (is_right)
        return block;
    tell_misuse(self, &wrong, frames, ptr, bytes, alignment);
    return NULL;
}

/* After upstream's answer. The last block of a closing resource ends it. */
static bool end_return(tracking *self, tracked_block *block, bool done)
{
    bool is_last = false;
    tracked_block *unwanted = NULL;
    weir__mutex_lock(&self->lock);
    if (done) {
        self->out_blocks--;
        self->out_bytes -= block->record.bytes;
        is_last = self->is_closing && self->out_blocks == 0;
        block->record.state = WEIR__BLOCK_BACK;
        unwanted = block->is_pushed_out ? block : NULL;
    } else {
        if (!block->is_pushed_out)
            self->freed[block->slot] = NULL;
        block->is_pushed_out = false;
        block->record.state = WEIR__BLOCK_OUT;
        weir__block_table_reinsert(&self->table, &block->record);
        put_by_age_locked(self, &block->by_age);
    }
    weir__mutex_unlock(&self->lock);
    weir__host_free(unwanted);
    if (is_last)
        weir__resource_ended(self->mr);
    return done;
}

static bool tracking_deallocate(void *context, weir_stream stream, void *ptr,
                                size_t bytes, size_t alignment)
{
    tracking *self = context;
    void *frames[WEIR__FRAMES_MAX];
    weir__site_take(frames, self->options.frames);
    tracked_block *block = begin_return(self, frames, ptr, bytes, alignment);
    if (block == NULL)
        return false;
    return end_return(self, block,
                      weir_deallocate(self->upstream, stream, ptr, bytes, alignment));
}

static bool tracking_deallocate_after(void *context, void *ptr, size_t bytes,
                                      size_t alignment, const weir_point *points,
                                      size_t count)
{
    tracking *self = context;
    void *frames[WEIR__FRAMES_MAX];
    weir__site_take(frames, self->options.frames);
    tracked_block *block = begin_return(self, frames, ptr, bytes, alignment);
    if (block == NULL)
        return false;
    return end_return(self, block,
                      weir_deallocate_after(self->upstream, ptr, bytes, alignment,
                                            points, count));
}

/* ---- reports ---- */

/* What a report says of one block. */
typedef struct shown_block {
    weir__block_record record;
    uint64_t number;
    void *frames[WEIR__FRAMES_MAX];
} shown_block;

/* Moves the cursor behind the next block up to number `last`. */
static bool next_block(tracking *self, age_link *cursor, uint64_t last,
                       shown_block *out)
{
    weir__mutex_lock(&self->lock);
    age_link *at = cursor->newer;
    while (at != &self->ages && at->is_cursor)
        at = at->newer;
    bool found = at != &self->ages && at->number <= last;
    if (found) {
        const tracked_block *block = block_of(at);
        *out = (shown_block){ .record = block->record, .number = at->number };
        memcpy(out->frames, block->frames, frames_bytes(self));
        unlink_it(cursor);
        cursor->number = at->number;
        link_behind(at, cursor);
    }
    weir__mutex_unlock(&self->lock);
    return found;
}

static void report_block(const tracking *self, const shown_block *block,
                         weir_tracking_line line, void *context)
{
    char text[400];
    const weir__block_record *record = &block->record;
    snprintf(text, sizeof text, "block %" PRIu64 ": %zu bytes at %p, alignment %zu, "
             "on stream %p", block->number, record->bytes, record->ptr,
             record->alignment, (void *)record->stream);
    line(context, text);
    for (size_t i = 0; i < self->options.frames && block->frames[i] != NULL; i++) {
        memcpy(text, "    ", 4);
        weir__frame_say(text + 4, sizeof text - 4, block->frames[i]);
        line(context, text);
    }
}

static void report(tracking *self, weir_tracking_line line, void *context)
{
    age_link cursor = { .is_cursor = true };
    weir__mutex_lock(&self->lock);
    size_t blocks = self->out_blocks, bytes = self->out_bytes;
    uint64_t last = self->numbers;
    link_behind(&self->ages, &cursor);
    weir__mutex_unlock(&self->lock);

    char text[100];
    snprintf(text, sizeof text, "tracking: %zu blocks with %zu bytes are out", blocks,
             bytes);
    line(context, text);
    shown_block block;
    while (next_block(self, &cursor, last, &block))
        report_block(self, &block, line, context);

    weir__mutex_lock(&self->lock);
    unlink_it(&cursor);
    weir__mutex_unlock(&self->lock);
}

void weir_tracking_line_to_stderr(void *context, const char *text)
{
    (void)context;
    (void)dprintf(STDERR_FILENO, "%s\n", text);
}

/* ---- questions ---- */

static weir_resource *tracking_upstream(void *context)
{
    tracking *self = context;
    return self->upstream;
}

static weir_status tracking_find(void *context, const void *ptr, weir_block *out)
{
    tracking *self = context;
    weir__mutex_lock(&self->lock);
    weir_status status = weir__block_describe(
        weir__block_table_find(&self->table, ptr), "tracking", ptr, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

static void tracking_statistics(void *context, weir_resource_statistics *out)
{
    tracking *self = context;
    weir_resource_statistics below = { .struct_size = sizeof below };
    if (weir_resource_get_statistics(self->upstream, &below) != WEIR_OK)
        return;
    *out = below;
    out->failures += atomic_load(&self->failures);
}

/* ---- the end ---- */

/* The report comes first: once the resource is closing, the last block ends it. */
static bool tracking_close(void *context)
{
    tracking *self = context;
    weir__mutex_lock(&self->lock);
    bool is_leaking = self->out_blocks != 0;
    weir__mutex_unlock(&self->lock);
    if (is_leaking && self->options.on_leak != NULL)
        report(self, self->options.on_leak, self->options.context);
    weir__mutex_lock(&self->lock);
    self->is_closing = true;
    bool is_done = self->out_blocks == 0;
    weir__mutex_unlock(&self->lock);
    return is_done;
}

static void tracking_destroy(void *context)
{
    tracking *self = context;
    for (size_t i = 0; i < self->options.freed_blocks; i++)
        weir__host_free(self->freed[i]);
    weir__block_table_finish(&self->table);
    weir__mutex_destroy(&self->lock);
    weir__host_free(self);
}

static const weir_resource_ops tracking_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "tracking",
    .allocate = tracking_allocate,
    .deallocate = tracking_deallocate,
    .destroy = tracking_destroy,
    .upstream = tracking_upstream,
    .statistics = tracking_statistics,
    .find = tracking_find,
    .deallocate_after = tracking_deallocate_after,
    .extend = tracking_extend,
};

static const weir__counting tracking_counting = { .close = tracking_close };

/* ---- creation ---- */

static weir_status options_read(const weir_tracking_options *from,
                                weir_tracking_options *out)
{
    weir_status status =
        weir__read_options(from, out, sizeof *out, "the options of tracking");
    if (status != WEIR_OK)
        return status;
    out->struct_size = sizeof *out;
    if (out->frames == 0)
        out->frames = 8;
    if (out->freed_blocks == 0)
        out->freed_blocks = 1024;
    if (out->frames > WEIR__FRAMES_MAX)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%zu frames of each call site; %zu "
                          "are the most", out->frames, WEIR__FRAMES_MAX);
    if (out->freed_blocks > WEIR_TRACKING_FREED_MAX)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%zu freed blocks; %d are the most",
                          out->freed_blocks, WEIR_TRACKING_FREED_MAX);
    return WEIR_OK;
}

static weir_status make_self(weir_resource *upstream,
                             const weir_tracking_options *options, tracking **out)
{
    size_t freed_bytes = options->freed_blocks * sizeof(tracked_block *);
    tracking *self = weir__host_alloc(sizeof *self + freed_bytes);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "no memory for the resource tracking");
    memset(self, 0, sizeof *self + freed_bytes);
    self->upstream = upstream;
    self->options = *options;
    atomic_init(&self->failures, 0);
    self->ages.older = self->ages.newer = &self->ages;
    weir_status status = weir__block_table_init(&self->table);
    if (status != WEIR_OK) {
        weir__host_free(self);
        return status;
    }
    weir__mutex_init(&self->lock, WEIR__RANK_RESOURCE);
    *out = self;
    return WEIR_OK;
}

weir_status weir_tracking_create(weir_resource *upstream,
                                 const weir_tracking_options *options,
                                 weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_tracking_options in_force;
    weir_resource_properties up = { .struct_size = sizeof up };
    weir_status status = weir__enter();
    if (status == WEIR_OK && upstream == NULL)
        status = weir__fail(WEIR_INVALID_ARGUMENT, "the upstream is null");
    if (status == WEIR_OK)
        status = options_read(options, &in_force);
    if (status == WEIR_OK)
        status = weir_resource_get_properties(upstream, &up);
    tracking *self = NULL;
    if (status == WEIR_OK)
        status = make_self(upstream, &in_force, &self);
    if (status != WEIR_OK)
        return status;

    weir__sites_begin();
    weir_resource_ops ops = tracking_ops;
    weir_resource_statistics now = { .struct_size = sizeof now };
    if (!up.can_extend)
        ops.extend = NULL;
    if (weir_resource_get_statistics(upstream, &now) != WEIR_OK)
        ops.statistics = NULL;
    status = weir__resource_create_counting(&ops, &tracking_counting, self, out);
    if (status != WEIR_OK) {
        tracking_destroy(self);
        return status;
    }
    self->mr = *out;
    return WEIR_OK;
}

/* Null: said why. */
static tracking *self_of(weir_resource *mr)
{
    tracking *self = weir__resource_self(mr, &tracking_ops);
    if (self == NULL)
        (void)weir__fail(WEIR_INVALID_ARGUMENT, "%s is no tracking resource",
                         mr == NULL ? "null" : "this");
    return self;
}

weir_status weir_tracking_report(weir_resource *mr, weir_tracking_line line,
                                 void *context)
{
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    tracking *self = self_of(mr);
    if (self == NULL)
        return WEIR_INVALID_ARGUMENT;
    if (line == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "nobody takes the report: line is "
                          "null");
    report(self, line, context);
    return WEIR_OK;
}

weir_status weir_tracking_get_options(weir_resource *mr, weir_tracking_options *out)
{
    const weir_tracking_options none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__enter();
    if (status != WEIR_OK)
        return status;
    const tracking *self = self_of(mr);
    if (self == NULL)
        return WEIR_INVALID_ARGUMENT;
    return weir__fill_out(out, &self->options, sizeof self->options);
}
