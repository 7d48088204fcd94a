/* aligned.c - a least alignment for requests of a least size.
 *
 * A request either passes through as it is, or it changes: upstream is asked for a
 * larger alignment, or for more bytes, in which an aligned address is found. Blocks
 * that changed have a record of what upstream gave, so that it gets that back, and of
 * what was asked for, so that slips are found. Whether a block has one is asked of the
 * records, never worked out anew: an extended block may have passed the threshold. What
 * upstream gave has a record too where the block begins elsewhere: it is none of ours.
 *
 *     below                ptr
 *     |<- slack in front ->|<------- bytes ------->|<- the rest of the slack ->| */
#include "weir/aligned.h"

#include <stdint.h>

#include "few_blocks.h"
#include "internal.h"
#include "resource_internal.h"

typedef struct aligned {
    weir_resource *upstream; /* counted by the resource */
    size_t upstreams_max;    /* alignment */
    weir_aligned_options options;
    atomic_size_t slack_bytes; /* what is out at upstream beyond what was asked for */
    atomic_uint_least64_t failures; /* of requests that upstream has not seen */
    weir__few_blocks changed;
    weir__few_blocks hidden;   /* what upstream gave for these: it begins before */
} aligned;

typedef struct changed_block {
    weir__block_record record; /* as asked for, and as handed out */
    weir__block_record hidden; /* of `below`, if that is not record.ptr */
    void *below;               /* as upstream gave it, with below_alignment */
    size_t below_alignment;
    size_t slack_bytes;        /* so much more than record.bytes */
} changed_block;

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* What a block of `bytes` is aligned to. */
static size_t alignment_of(const aligned *self, size_t bytes, size_t alignment)
{
    if (bytes < self->options.threshold_bytes || alignment >= self->options.alignment)
        return alignment;
    return self->options.alignment;
}

static bool is_aligned(const void *ptr, size_t alignment)
{
    return ((uintptr_t)ptr & (alignment - 1)) == 0;
}

static weir_status refuse(size_t bytes)
{
    weir_out_of_memory report = { .requested_bytes = bytes, .limit_bytes = SIZE_MAX,
                                  .resource = "aligned" };
    return weir__fail_memory(WEIR_OUT_OF_MEMORY, &report);
}

/* ---- what upstream gave ---- */

static bool begins_within(const changed_block *block)
{
    return block->below != block->record.ptr;
}

static void add_record(aligned *self, changed_block *block)
{
    block->hidden = (weir__block_record){ .ptr = block->below, .bytes = 1,
                                          .alignment = 1, .state = WEIR__BLOCK_OUT };
    if (begins_within(block))
        weir__few_blocks_insert(&self->hidden, &block->hidden);
    weir__few_blocks_insert(&self->changed, &block->record);
}

/* Before it goes back to upstream, which may give it to others. */
static void unhide_below(aligned *self, const changed_block *block)
{
    weir__block_fault fault;
    if (begins_within(block))
        (void)weir__few_blocks_take(&self->hidden, block->below, 1, 1, &fault);
}

static bool is_hidden(aligned *self, const void *ptr)
{
    return weir__few_blocks_find(&self->hidden, ptr, NULL);
}

/* ---- allocation ---- */

static weir_status make_record(size_t bytes, size_t slack_bytes, changed_block **out)
{
    if (bytes > SIZE_MAX - slack_bytes)
        return refuse(bytes);
    *out = weir__host_alloc(sizeof **out);
    if (*out == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "aligned: no memory for the record of a block");
    return WEIR_OK;
}

static weir_status allocate_changed(aligned *self, weir_stream stream, size_t bytes,
                                    size_t alignment, void **out)
{
    size_t wanted = alignment_of(self, bytes, alignment);
    size_t below_alignment = least(wanted, self->upstreams_max);
    size_t slack_bytes = wanted - below_alignment;
    changed_block *block = NULL;
    weir_status status = make_record(bytes, slack_bytes, &block);
    if (status != WEIR_OK) {
        atomic_fetch_add(&self->failures, 1);
        return status;
    }
    status = weir_allocate(self->upstream, stream, bytes + slack_bytes, below_alignment,
                           &block->below);
    if (status != WEIR_OK) {
        weir__host_free(block);
        weir__report_as_own(status, bytes, slack_bytes, "aligned");
        return status;
    }
    size_t over = (uintptr_t)block->below & (wanted - 1);
    size_t in_front = over == 0 ? 0 : wanted - over;
    WEIR_CHECK(in_front <= slack_bytes, "upstream aligns less than it says");
    block->record = (weir__block_record){ .ptr = (char *)block->below + in_front,
                                          .bytes = bytes, .alignment = alignment,
                                          .stream = stream,
                                          .state = WEIR__BLOCK_OUT };
    block->below_alignment = below_alignment;
    block->slack_bytes = slack_bytes;
    *out = block->record.ptr;
    atomic_fetch_add(&self->slack_bytes, slack_bytes);
    add_record(self, block);
    return WEIR_OK;
}

static weir_status aligned_allocate(void *context, weir_stream stream,
                                    size_t bytes, size_t alignment, void **out)
{
    aligned *self = context;
    if (alignment_of(self, bytes, alignment) != alignment ||
        alignment > self->upstreams_max)
        return allocate_changed(self, stream, bytes, alignment, out);
    return weir_allocate(self->upstream, stream, bytes, alignment, out);
}

/* Takes the record of a block that changed out; null if it did not, or if *fault says
 * what is wrong. */
static changed_block *take_changed(aligned *self, const void *ptr, size_t bytes,
                                   size_t alignment, weir__block_fault *fault)
{
    changed_block *block = (changed_block *)weir__few_blocks_take(
        &self->changed, ptr, bytes, alignment, fault);
    if (block == NULL && fault->kind == 0 && is_hidden(self, ptr))
        *fault = weir__block_judge(NULL, bytes, alignment);
    return block;
}

static weir_status extend_changed(aligned *self, weir_stream stream,
                                  changed_block *block, size_t new_bytes)
{
    size_t bytes = block->record.bytes + block->slack_bytes;
    if (new_bytes > SIZE_MAX - block->slack_bytes)
        return refuse(new_bytes);
    weir_status status =
        weir_resource_extend(self->upstream, stream, block->below, bytes,
                             block->below_alignment, new_bytes + block->slack_bytes);
    if (status == WEIR_OK)
        block->record.bytes = new_bytes;
    else
        weir__report_as_own(status, new_bytes, block->slack_bytes, "aligned");
    return status;
}

/* Nobody else asks for the record of a block that is being extended. */
static weir_status aligned_extend(void *context, weir_stream stream, void *ptr,
                                  size_t bytes, size_t alignment, size_t new_bytes)
{
    aligned *self = context;
    weir__block_fault fault;
    if (!is_aligned(ptr, alignment_of(self, new_bytes, alignment)))
        return weir__fail(WEIR_NOT_SUPPORTED,
                          "aligned: with %zu bytes %p would be aligned to %zu, which "
                          "it is not",
                          new_bytes, ptr, self->options.alignment);
    changed_block *block = take_changed(self, ptr, bytes, alignment, &fault);
    if (fault.kind != 0)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "aligned: %p is no block of %zu bytes, alignment %zu", ptr,
                          bytes, alignment);
    if (block == NULL)
        return weir_resource_extend(self->upstream, stream, ptr, bytes, alignment,
                                    new_bytes);
    weir_status status = extend_changed(self, stream, block, new_bytes);
    weir__few_blocks_reinsert(&self->changed, &block->record);
    return status;
}

/* ---- deallocation ---- */

/* What goes back to upstream for a block that comes back. */
typedef struct returning {
    void *ptr;
    size_t bytes, alignment;
    changed_block *block; /* null: it did not change */
} returning;

/* False: it does not, and the misuse handler was told. */
static bool begin_return(aligned *self, void *ptr, size_t bytes, size_t alignment,
                         returning *it)
{
    weir__block_fault fault;
    changed_block *block = take_changed(self, ptr, bytes, alignment, &fault);
    if (fault.kind != 0) {
        weir__block_report(&fault, "aligned", ptr, bytes, alignment);
        return false;
    }
    *it = (returning){ ptr, bytes, alignment, block };
    if (block == NULL)
        return true;
    unhide_below(self, block);
    *it = (returning){ block->below, bytes + block->slack_bytes, block->below_alignment,
                       block };
    return true;
}

/* After upstream's answer. */
static bool end_return(aligned *self, const returning *it, bool done)
{
    if (it->block == NULL)
        return done;
    if (!done) {
        if (begins_within(it->block))
            weir__few_blocks_reinsert(&self->hidden, &it->block->hidden);
        weir__few_blocks_reinsert(&self->changed, &it->block->record);
        return false;
    }
    atomic_fetch_sub(&self->slack_bytes, it->block->slack_bytes);
    weir__host_free(it->block);
    return true;
}

static bool aligned_deallocate(void *context, weir_stream stream,
                               void *ptr, size_t bytes, size_t alignment)
{
    aligned *self = context;
    returning it;
    if (!begin_return(self, ptr, bytes, alignment, &it))
        return false;
    return end_return(self, &it, weir_deallocate(self->upstream, stream, it.ptr,
                                                 it.bytes, it.alignment));
}

static bool aligned_deallocate_after(void *context, void *ptr, size_t bytes,
                                     size_t alignment, const weir_point *points,
                                     size_t count)
{
    aligned *self = context;
    returning it;
    if (!begin_return(self, ptr, bytes, alignment, &it))
        return false;
    return end_return(self, &it,
                      weir_deallocate_after(self->upstream, it.ptr, it.bytes,
                                            it.alignment, points, count));
}

/* ---- questions ---- */

static weir_resource *aligned_upstream(void *context)
{
    aligned *self = context;
    return self->upstream;
}

static void aligned_properties(void *context, weir_resource_properties *out)
{
    const aligned *self = context;
    if (self->options.alignment <= out->max_alignment)
        return;
    out->max_alignment = self->options.alignment;
    out->share_kind = WEIR_SHARE_NONE;
}

static weir_status aligned_find(void *context, const void *ptr, weir_block *out)
{
    aligned *self = context;
    if (weir__few_blocks_find(&self->changed, ptr, out))
        return WEIR_OK;
    if (is_hidden(self, ptr))
        return weir__block_describe(NULL, "aligned", ptr, out);
    out->struct_size = sizeof *out;
    return weir_resource_find(self->upstream, ptr, out);
}

static void aligned_statistics(void *context, weir_resource_statistics *out)
{
    aligned *self = context;
    /* Loaded first: a block counts as out at upstream before its slack is added. */
    size_t slack_bytes = atomic_load(&self->slack_bytes);
    weir_resource_statistics below = { .struct_size = sizeof below };
    if (weir_resource_get_statistics(self->upstream, &below) != WEIR_OK)
        return;
    *out = below;
    /* Others go on meanwhile, and some of it may be back. */
    out->out_bytes -= least(slack_bytes, out->out_bytes);
    out->failures += atomic_load(&self->failures);
}

static void aligned_destroy(void *context)
{
    aligned *self = context;
    WEIR_CHECK(atomic_load(&self->slack_bytes) == 0, "memory is still out");
    weir__few_blocks_finish(&self->changed);
    weir__few_blocks_finish(&self->hidden);
    weir__host_free(self);
}

static const weir_resource_ops aligned_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "aligned",
    .allocate = aligned_allocate,
    .deallocate = aligned_deallocate,
    .destroy = aligned_destroy,
    .upstream = aligned_upstream,
    .properties = aligned_properties,
    .statistics = aligned_statistics,
    .find = aligned_find,
    .deallocate_after = aligned_deallocate_after,
    .extend = aligned_extend,
};

/* ---- creation ---- */

static weir_status options_read(const weir_aligned_options *from,
                                weir_aligned_options *out)
{
    weir_status status =
        weir__read_options(from, out, sizeof *out, "the options of aligned");
    if (status != WEIR_OK)
        return status;
    out->struct_size = sizeof *out;
    if (out->alignment == 0)
        out->alignment = WEIR_ALIGNMENT;
    if ((out->alignment & (out->alignment - 1)) != 0)
        return weir__fail(WEIR_INVALID_ARGUMENT, "alignment %zu is no power of two",
                          out->alignment);
    return WEIR_OK;
}

/* The table without what upstream cannot do. */
static weir_resource_ops choose_ops(weir_resource *upstream,
                                    const weir_resource_properties *up)
{
    weir_resource_ops ops = aligned_ops;
    weir_resource_statistics now = { .struct_size = sizeof now };
    if (!up->can_extend)
        ops.extend = NULL;
    if (!up->can_find)
        ops.find = NULL;
    if (weir_resource_get_statistics(upstream, &now) != WEIR_OK)
        ops.statistics = NULL;
    return ops;
}

static weir_status init_records(aligned *self)
{
    weir_status status = weir__few_blocks_init(&self->changed);
    if (status != WEIR_OK)
        return status;
    status = weir__few_blocks_init(&self->hidden);
    if (status != WEIR_OK)
        weir__few_blocks_finish(&self->changed);
    return status;
}

weir_status weir_aligned_create(weir_resource *upstream,
                                const weir_aligned_options *options,
                                weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_aligned_options in_force;
    weir_resource_properties up = { .struct_size = sizeof up };
    weir_status status = weir__enter();
    if (status == WEIR_OK && upstream == NULL)
        status = weir__fail(WEIR_INVALID_ARGUMENT, "the upstream is null");
    if (status == WEIR_OK)
        status = options_read(options, &in_force);
    if (status == WEIR_OK)
        status = weir_resource_get_properties(upstream, &up);
    if (status != WEIR_OK)
        return status;

    aligned *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "no memory for the resource aligned");
    self->upstream = upstream;
    self->upstreams_max = up.max_alignment;
    self->options = in_force;
    atomic_init(&self->slack_bytes, 0);
    atomic_init(&self->failures, 0);
    status = init_records(self);
    if (status != WEIR_OK) {
        weir__host_free(self);
        return status;
    }
    weir_resource_ops ops = choose_ops(upstream, &up);
    status = weir_resource_create(&ops, self, out);
    if (status != WEIR_OK)
        aligned_destroy(self);
    return status;
}

weir_status weir_aligned_get_options(weir_resource *mr, weir_aligned_options *out)
{
    const weir_aligned_options none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__enter();
    if (status != WEIR_OK)
        return status;
    const aligned *self = weir__resource_self(mr, &aligned_ops);
    if (self == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is no aligned resource",
                          mr == NULL ? "null" : "this");
    return weir__fill_out(out, &self->options, sizeof self->options);
}
