/* fixed_size.c - blocks of one size, cut out of slabs of upstream.
 *
 * The blocks are a pool's, which is asked for nothing but whole ones:
 *
 *     fixed_size  what was asked for, by block; too much is refused
 *     pool        which block, and in whose stream order; growth is one slab
 *     slabs       draws them from upstream, and knows them by address
 *     upstream
 *
 * A pool with one size has no gaps: every run of free memory is a number of blocks, so
 * a fit is as good as any other, and what the pool does anyway (a hit without a lock,
 * marks, batches of events, captures, streams that end, trim) is what is wanted here.
 * A second mechanism with lists of its own would be as long as the pool's hit, its
 * depot and its miss together, and slower until it had all three. The pool has no
 * slack here, for pieces of a slab need not be whole blocks; so streams share before it
 * grows.
 *
 * What a pool does not know is what was asked for: a word per block says it
 * (fixed_size_slabs.h). Whoever gives a block back takes its word away, in one step: of
 * two that give back the same block one is told, at once.
 *
 * Who keeps whom alive: the weir_resource around this keeps upstream, this keeps the
 * pool, the pool the slabs, these upstream too. It has no count of its own: once the
 * last reference is gone it lets go of the pool, which ends with its last block; with
 * the pool's last slab the slabs end, and with them this. */
#include "weir/fixed_size.h"

#include <stdatomic.h>

#include "fixed_size_slabs.h"
#include "internal.h"
#include "resource_internal.h"
#include "weir/pool.h"

#define GRAIN WEIR__HEAP_GRAIN

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define SLAB_BYTES ((size_t)64 << 10)
#else
#define SLAB_BYTES ((size_t)8 << 20)
#endif
#define SLAB_BLOCKS_LEAST ((size_t)4)

typedef struct fixed_size {
    weir_resource *mr;         /* around this; set once it is made */
    weir_resource *upstream;   /* kept alive by that */
    weir_resource *pool;
    /* Set at creation: */
    weir_fixed_size_options options; /* in force */
    size_t block_bytes;
    size_t slab_alignment;     /* that slabs are drawn with */
    size_t slab_slack;         /* by how much more, to have them begin at a grain */

    atomic_uint_least64_t refused; /* requests that were too large */
    weir__slabs slabs;
} fixed_size;

/* ---- slabs: a resource between the pool and upstream ---- */

/* The pool asks for a slab, or for one block if upstream has no slab. */
static weir_status slabs_allocate(void *context, weir_stream stream, size_t bytes,
                                  size_t alignment, void **out)
{
    fixed_size *self = context;
    (void)alignment; /* ours is at least that */
    weir__slab *it = weir__slab_begin(
        &self->slabs, (uint32_t)((bytes - self->slab_slack) / self->block_bytes));
    if (it == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "fixed_size: no memory for records");
    weir_status status =
        weir_allocate(self->upstream, stream, bytes, self->slab_alignment, out);
    if (status == WEIR_OK)
        weir__slab_drawn(&self->slabs, it, *out);
    else
        weir__slab_not_drawn(&self->slabs, it);
    return status;
}

static bool slabs_deallocate(void *context, weir_stream stream, void *ptr, size_t bytes,
                             size_t alignment)
{
    fixed_size *self = context;
    (void)alignment;
    weir__slab_gone(&self->slabs, ptr);
    return weir_deallocate(self->upstream, stream, ptr, bytes, self->slab_alignment);
}

static bool slabs_deallocate_after(void *context, void *ptr, size_t bytes,
                                   size_t alignment, const weir_point *points,
                                   size_t count)
{
    fixed_size *self = context;
    (void)alignment;
    weir__slab_gone(&self->slabs, ptr);
    return weir_deallocate_after(self->upstream, ptr, bytes, self->slab_alignment,
                                 points, count);
}

static weir_resource *upstream_of(void *context)
{
    return ((fixed_size *)context)->upstream;
}

static void slabs_properties(void *context, weir_resource_properties *out)
{
    out->max_alignment = ((fixed_size *)context)->slab_alignment;
}

/* The last slab is back, and the pool is no more. */
static void slabs_destroy(void *context)
{
    fixed_size *self = context;
    if (self->mr != NULL)
        weir__resource_ended(self->mr);
}

static const weir_resource_ops slabs_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "fixed_size",
    .allocate = slabs_allocate,
    .deallocate = slabs_deallocate,
    .destroy = slabs_destroy,
    .upstream = upstream_of,
    .properties = slabs_properties,
    .deallocate_after = slabs_deallocate_after,
};

/* ---- blocks ---- */

static weir_status refuse_size(fixed_size *self, size_t bytes)
{
    weir_out_of_memory report = {
        .struct_size = sizeof report,
        .requested_bytes = bytes,
        .limit_bytes = SIZE_MAX,
        .resource = "fixed_size",
    };
    weir_resource_statistics now = { .struct_size = sizeof now };
    if (weir_resource_get_statistics(self->pool, &now) == WEIR_OK)
        report.largest_free_bytes = now.largest_free_bytes;
    weir__slabs_count(&self->slabs, &report.in_use_bytes, &report.held_bytes);
    atomic_fetch_add(&self->refused, 1);
    weir__failed(WEIR_LIMIT_REACHED, 0,
                 "fixed_size has no %zu bytes in one block: each has %zu; %zu held, "
                 "%zu in use, largest free run %zu",
                 bytes, self->block_bytes, report.held_bytes, report.in_use_bytes,
                 report.largest_free_bytes);
    weir__report_memory(&report);
    return WEIR_LIMIT_REACHED;
}

/* The pool has said why, in whole blocks and under its own name. */
static weir_status refuse_as_pool(weir_status status, size_t bytes)
{
    weir_out_of_memory report = { .struct_size = sizeof report };
    if ((status != WEIR_OUT_OF_MEMORY && status != WEIR_LIMIT_REACHED) ||
        weir_last_out_of_memory(&report) != WEIR_OK)
        return status;
    report.requested_bytes = bytes;
    report.resource = "fixed_size";
    return weir__fail_memory(status, &report);
}

static weir_status fixed_size_allocate(void *context, weir_stream stream, size_t bytes,
                                       size_t alignment, void **out)
{
    fixed_size *self = context;
    if (WEIR_UNLIKELY(bytes > self->block_bytes))
        return refuse_size(self, bytes);
    /* Every block is aligned as far as this resource goes. */
    weir_status status =
        weir_allocate(self->pool, stream, self->block_bytes, GRAIN, out);
    if (WEIR_UNLIKELY(status != WEIR_OK))
        return refuse_as_pool(status, bytes);
    weir__slab_place at = weir__slab_find(&self->slabs, *out);
    WEIR_CHECK(at.slab != NULL, "a block lies in a slab");
    _Atomic uint64_t *word = weir__slab_word(&self->slabs, at);
    WEIR_CHECK(word != NULL, "a slab is cut into whole blocks");
    /* Relaxed: whoever gives it back was handed it, after this. */
    atomic_store_explicit(word, weir__asked_word(bytes, alignment),
                          memory_order_relaxed);
    return WEIR_OK;
}

/* Tells what is wrong with `ptr`, which comes back; `word` is that of the block that
 * begins there, or 0. */
static WEIR_COLD void tell_slip(fixed_size *self, weir__slab_place at, uint64_t word,
                                const void *ptr, size_t bytes, size_t alignment)
{
    size_t index = at.offset / self->block_bytes;
    bool is_free = at.slab != NULL && index < at.slab->room &&
                   atomic_load(weir__slab_asked(&self->slabs, at.slab,
                                                (uint32_t)index)) == 0;
    if (word != 0)
        weir__misuse(WEIR_MISUSE_WRONG_SIZE, ptr, bytes,
                     "fixed_size: %p comes back with %zu bytes, alignment %zu; it was "
                     "allocated with %zu bytes, alignment %zu",
                     ptr, bytes, alignment, weir__asked_bytes(word),
                     weir__asked_alignment(word));
    else if (is_free)
        weir__misuse(WEIR_MISUSE_DOUBLE_FREE, ptr, bytes,
                     "fixed_size: %p is not out: given back already, or not "
                     "handed out yet", ptr);
    else
        weir__misuse(WEIR_MISUSE_FOREIGN_POINTER, ptr, bytes,
                     "fixed_size: %p was never allocated here", ptr);
}

/* Takes the word of a block away: from now on it is nobody's. False: it is not out as
 * told, nothing has changed, and the misuse handler knows. */
static bool begin_return(fixed_size *self, const void *ptr, size_t bytes,
                         size_t alignment)
{
    weir__slab_place at = weir__slab_find(&self->slabs, ptr);
    _Atomic uint64_t *word =
        at.slab != NULL ? weir__slab_word(&self->slabs, at) : NULL;
    uint64_t seen = 0;
    if (WEIR_LIKELY(word != NULL)) {
        /* Larger ones would lose bits in a word. */
        seen = bytes <= self->block_bytes ? weir__asked_word(bytes, alignment) : 0;
        if (WEIR_LIKELY(seen != 0 && atomic_compare_exchange_strong(word, &seen, 0)))
            return true;
        seen = atomic_load(word);
    }
    tell_slip(self, at, seen, ptr, bytes, alignment);
    return false;
}

static bool fixed_size_deallocate(void *context, weir_stream stream, void *ptr,
                                  size_t bytes, size_t alignment)
{
    fixed_size *self = context;
    if (WEIR_UNLIKELY(!begin_return(self, ptr, bytes, alignment)))
        return false;
    return weir_deallocate(self->pool, stream, ptr, self->block_bytes, GRAIN);
}

static bool fixed_size_deallocate_after(void *context, void *ptr, size_t bytes,
                                        size_t alignment, const weir_point *points,
                                        size_t count)
{
    fixed_size *self = context;
    if (!begin_return(self, ptr, bytes, alignment))
        return false;
    return weir_deallocate_after(self->pool, ptr, self->block_bytes, GRAIN, points,
                                 count);
}

static weir_status fixed_size_find(void *context, const void *ptr, weir_block *out)
{
    fixed_size *self = context;
    weir__slab_place at = weir__slab_find(&self->slabs, ptr);
    const _Atomic uint64_t *word =
        at.slab != NULL ? weir__slab_word(&self->slabs, at) : NULL;
    uint64_t asked = word != NULL ? atomic_load(word) : 0;
    if (asked == 0 || weir_resource_find(self->pool, ptr, out) != WEIR_OK)
        return weir__fail(WEIR_NOT_FOUND,
                          "fixed_size: no block that is out begins at %p", ptr);
    out->bytes = weir__asked_bytes(asked);
    out->alignment = weir__asked_alignment(asked);
    return WEIR_OK;
}

/* ---- the rest ---- */

static void fixed_size_statistics(void *context, weir_resource_statistics *out)
{
    fixed_size *self = context;
    if (weir_resource_get_statistics(self->pool, out) != WEIR_OK)
        return;
    size_t drawn_bytes; /* the pool has said how much is held */
    weir__slabs_count(&self->slabs, &out->out_bytes, &drawn_bytes);
    out->failures += atomic_load(&self->refused);
}

static void fixed_size_properties(void *context, weir_resource_properties *out)
{
    const fixed_size *self = context;
    out->max_alignment = self->slab_alignment > GRAIN ? self->slab_alignment : GRAIN;
    out->usable_at_once = out->pages_usable_at_once = false;
    out->share_kind = WEIR_SHARE_NONE; /* several blocks lie in one of upstream's */
}

static size_t fixed_size_trim_sync(void *context, size_t keep_bytes)
{
    return weir_resource_trim_sync(((fixed_size *)context)->pool, keep_bytes);
}

static void fixed_size_destroy(void *context)
{
    fixed_size *self = context;
    weir__slabs_close(&self->slabs);
    weir__host_free(self);
}

/* The last unref. What is out keeps the pool; it may be gone before this is through. */
static bool fixed_size_close(void *context)
{
    weir_resource_unref(((fixed_size *)context)->pool);
    return false;
}

static const weir_resource_ops fixed_size_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "fixed_size",
    .allocate = fixed_size_allocate,
    .deallocate = fixed_size_deallocate,
    .destroy = fixed_size_destroy,
    .trim_sync = fixed_size_trim_sync,
    .upstream = upstream_of,
    .properties = fixed_size_properties,
    .statistics = fixed_size_statistics,
    .find = fixed_size_find,
    .deallocate_after = fixed_size_deallocate_after,
};

static const weir__counting fixed_size_counting = { .close = fixed_size_close };

/* ---- beginning ---- */

static weir_status options_read(const weir_fixed_size_options *from, size_t block_bytes,
                                weir_fixed_size_options *out)
{
    weir_status status = weir__read_options(from, out, sizeof *out,
                                            "the options of a fixed_size resource");
    if (status != WEIR_OK)
        return status;
    out->struct_size = sizeof *out;
    const size_t most = (WEIR_FIXED_SIZE_SLAB_MAX - 1) / block_bytes;
    if (out->slab_blocks == 0) {
        out->slab_blocks = SLAB_BYTES / block_bytes;
        if (out->slab_blocks < SLAB_BLOCKS_LEAST)
            out->slab_blocks = most >= SLAB_BLOCKS_LEAST ? SLAB_BLOCKS_LEAST : 1;
    }
    if (out->slab_blocks > most)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "a slab of %zu blocks of %zu bytes is too large: it has to "
                          "be below %zu bytes",
                          out->slab_blocks, block_bytes, WEIR_FIXED_SIZE_SLAB_MAX);
    return WEIR_OK;
}

/* The pool over the slabs, which alone keeps them. */
static weir_status make_pool(fixed_size *self)
{
    weir_resource *slabs;
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = self->options.slab_blocks * self->block_bytes;
    options.slack_bytes = WEIR_POOL_NO_SLACK;
    options.exact = true;
    weir_status status = weir_resource_create(&slabs_ops, self, &slabs);
    if (status != WEIR_OK)
        return status;
    status = weir_pool_create(slabs, &options, &self->pool);
    weir_resource_unref(slabs);
    return status;
}

weir_status weir_fixed_size_create(weir_resource *upstream, size_t block_bytes,
                                   const weir_fixed_size_options *options,
                                   weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (upstream == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the upstream is null");
    if (block_bytes == 0 || block_bytes >= WEIR_FIXED_SIZE_SLAB_MAX - GRAIN)
        return weir__fail(WEIR_INVALID_ARGUMENT, "no block has %zu bytes", block_bytes);
    block_bytes = (block_bytes + (GRAIN - 1)) & ~(GRAIN - 1);
    weir_fixed_size_options in_force;
    weir_resource_properties up = { .struct_size = sizeof up };
    status = options_read(options, block_bytes, &in_force);
    if (status == WEIR_OK)
        status = weir_resource_get_properties(upstream, &up);
    if (status != WEIR_OK)
        return status;

    fixed_size *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "no memory for the resource fixed_size");
    const size_t natural = block_bytes & (0 - block_bytes);
    *self = (fixed_size){
        .upstream = upstream,
        .options = in_force,
        .block_bytes = block_bytes,
        .slab_alignment = natural < up.max_alignment ? natural : up.max_alignment,
        .slab_slack = up.max_alignment < GRAIN ? GRAIN : 0,
    };
    atomic_init(&self->refused, 0);
    if (!weir__slabs_init(&self->slabs, block_bytes,
                          in_force.slab_blocks * block_bytes)) {
        weir__host_free(self);
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "no memory for the resource fixed_size");
    }

    status = make_pool(self);
    if (status != WEIR_OK) {
        fixed_size_destroy(self);
        return status;
    }
    status = weir__resource_create_counting(&fixed_size_ops, &fixed_size_counting, self,
                                            out);
    if (status != WEIR_OK) {
        weir_resource_unref(self->pool);
        fixed_size_destroy(self);
        return status;
    }
    self->mr = *out;
    return WEIR_OK;
}

weir_status weir_fixed_size_get_options(weir_resource *mr, size_t *block_bytes,
                                        weir_fixed_size_options *out)
{
    const weir_fixed_size_options none = { .struct_size = sizeof none };
    if (block_bytes == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "block_bytes is null");
    *block_bytes = 0;
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__enter();
    if (status != WEIR_OK)
        return status;
    const fixed_size *self = weir__resource_self(mr, &fixed_size_ops);
    if (self == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "the resource is no fixed_size resource");
    *block_bytes = self->block_bytes;
    return weir__fill_out(out, &self->options, sizeof self->options);
}

bool weir_fixed_size_has(weir_resource *mr, const void *ptr)
{
    fixed_size *self = weir__resource_self(mr, &fixed_size_ops);
    return self != NULL && weir__slab_find(&self->slabs, ptr).slab != NULL;
}
