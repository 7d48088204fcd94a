/* arena.c - an arena for each stream over a global one, from which they take
 * superblocks.
 *
 *     arena       which of the pools, by the stream or by the address
 *     pools       one per arena, for what is small   |  what is large
 *     global      a pool: superblocks go out and come back in stream order
 *     upstream
 *
 * A pool is an arena already: magazines per thread and stream, marks instead of
 * synchronisation, batches of events, captures, streams that end. What it has one of is
 * its heap: threads that find nothing in their magazines meet on its lock. So here each
 * stream has a pool of its own, which grows by superblocks of the global one. Only who
 * needs a superblock, or a large block, meets others, and they need not wait for the
 * device for that: a superblock that comes back is memory like any other, free behind
 * the marks of what has used it.
 *
 * A mechanism with heaps of its own would be the pool's once more. Which arena a stream
 * has is no matter of stream order, for a pool serves any stream. So nothing depends on
 * the choice but who meets whom.
 *
 * Free superblocks go back (give_back) when nothing else will have them do so: when the
 * last stream of an arena ends, before a request is refused, and after a stretch of
 * growth, which is noted where the global pool draws from upstream (source).
 *
 * Who keeps whom alive: the weir_resource around this keeps upstream; this keeps the
 * pools, as long as there are references; each arena's pool its superblocks
 * (superblocks, one resource per arena), these the global pool, that the source, which
 * keeps upstream too. A pool ends with its last block; the source ends last, and with
 * it this, unless the block's deallocation has to count it yet. */
#include "weir/arena.h"

#include <stdatomic.h>

#include "arena_parts.h"
#include "device/device.h"
#include "internal.h"
#include "resource_internal.h"
#include "weir/pool.h"

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define SUPERBLOCK_BYTES ((size_t)256 << 10)
#define ARENAS           ((size_t)3)
#else
#define SUPERBLOCK_BYTES ((size_t)4 << 20)
#define ARENAS           ((size_t)16)
#endif
#define LARGE_SHARE      4u

/* ---- giving back ---- */

static void all_give_back(weir__arenas *self)
{
    atomic_store(&self->grown_bytes, 0);
    atomic_store(&self->wants_back, false);
    for (size_t i = 0; i < self->options.arenas; i++)
        (void)weir_pool_give_back(self->arenas[i].pool);
}

/* The order's: a stream ends, or a capture begins or ends on it, and it finds an arena
 * anew if it goes on. What is out of its old one comes back there. */
static void stream_changes(weir__order_listener *listener, weir_stream stream,
                           uint64_t clock)
{
    weir__arenas *self = (weir__arenas *)(void *)((char *)listener -
                                                  offsetof(weir__arenas, listener));
    uint32_t index;
    (void)clock;
    if (weir__arena_streams_drop(&self->streams, stream, &index))
        (void)weir_pool_give_back(self->arenas[index].pool);
}

/* ---- what there is ---- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* One pool after the other, while others go on: what lies free may be counted twice. */
static void arena_statistics(void *context, weir_resource_statistics *out)
{
    weir__arenas *self = context;
    if (weir_resource_get_statistics(self->global, out) != WEIR_OK)
        return;
    out->deallocations = atomic_load(&self->deallocations); /* not more than out */
    out->allocations = atomic_load(&self->allocations);
    out->out_blocks = (size_t)(out->allocations - out->deallocations);
    out->out_bytes = atomic_load(&self->out_bytes);
    for (size_t i = 0; i < self->options.arenas; i++) {
        weir_resource_statistics one = { .struct_size = sizeof one };
        if (weir_resource_get_statistics(self->arenas[i].pool, &one) != WEIR_OK)
            continue;
        out->out_bytes += one.out_bytes;
        out->out_blocks += one.out_blocks;
        out->free_bytes += one.free_bytes;
        out->free_blocks += one.free_blocks;
        if (out->largest_free_bytes < one.largest_free_bytes)
            out->largest_free_bytes = one.largest_free_bytes;
        out->set_aside_bytes += one.set_aside_bytes;
        out->allocations += one.allocations;
        out->deallocations += one.deallocations;
    }
    out->failures = atomic_load(&self->failures);
    out->free_bytes = least(out->free_bytes, out->held_bytes);
    out->largest_free_bytes = least(out->largest_free_bytes, out->free_bytes);
    if (out->peak_out_bytes < out->out_bytes)
        out->peak_out_bytes = out->out_bytes;
}

static bool is_too_little(weir_status status)
{
    return status == WEIR_OUT_OF_MEMORY || status == WEIR_LIMIT_REACHED;
}

/* A pool has said why; of too little memory all arenas have a part. */
static weir_status refuse(weir__arenas *self, weir_status status, size_t bytes)
{
    weir_out_of_memory report = { .struct_size = sizeof report };
    weir_resource_statistics now = { .struct_size = sizeof now };
    atomic_fetch_add(&self->failures, 1);
    /* A superblock may have been drawn for which an arena had no records. */
    if (status == WEIR_OUT_OF_HOST_MEMORY)
        (void)weir_pool_give_back(self->global);
    if (!is_too_little(status) || weir_last_out_of_memory(&report) != WEIR_OK)
        return status;
    arena_statistics(self, &now);
    report.requested_bytes = bytes;
    report.limit_bytes = self->options.limit_bytes;
    report.held_bytes = now.held_bytes;
    report.in_use_bytes = now.out_bytes;
    report.largest_free_bytes = now.largest_free_bytes;
    report.resource = "arena";
    return weir__fail_memory(status, &report);
}

/* ---- allocation ---- */

static inline bool is_small(const weir__arenas *self, size_t bytes, size_t alignment)
{
    return bytes <= self->small_bytes && alignment <= self->small_bytes;
}

static weir_status allocate_globally(weir__arenas *self, weir_stream stream,
                                     size_t bytes, size_t alignment, void **out)
{
    weir_status status = weir_allocate(self->global, stream, bytes, alignment, out);
    if (status == WEIR_OK) {
        atomic_fetch_add(&self->out_bytes, bytes);
        atomic_fetch_add(&self->allocations, 1);
    }
    return status;
}

/* A request that was refused, by arena number `at` if it is small: once more, when all
 * arenas have given back what they can; and a small one from any of them, and where
 * there is no room for a superblock from the global arena. */
static WEIR_COLD weir_status allocate_again(weir__arenas *self, uint32_t at,
                                            weir_stream stream, size_t bytes,
                                            size_t alignment, void **out)
{
    weir_status status = WEIR_LIMIT_REACHED;
    all_give_back(self);
    if (is_small(self, bytes, alignment)) {
        for (size_t i = 0; i < self->options.arenas && is_too_little(status); i++)
            status = weir_allocate(
                self->arenas[(at + i) % self->options.arenas].pool, stream, bytes,
                alignment, out);
    }
    return is_too_little(status)
               ? allocate_globally(self, stream, bytes, alignment, out)
               : status;
}

static weir_status arena_allocate(void *context, weir_stream stream, size_t bytes,
                                  size_t alignment, void **out)
{
    weir__arenas *self = context;
    weir_status status;
    uint32_t at = 0;
    if (WEIR_LIKELY(is_small(self, bytes, alignment))) {
        at = weir__arena_streams_find(&self->streams, stream);
        status = weir_allocate(self->arenas[at].pool, stream, bytes, alignment, out);
    } else {
        status = allocate_globally(self, stream, bytes, alignment, out);
    }
    if (WEIR_UNLIKELY(is_too_little(status)))
        status = allocate_again(self, at, stream, bytes, alignment, out);
    if (WEIR_UNLIKELY(status != WEIR_OK))
        return refuse(self, status, bytes);
    /* Relaxed: it is as good a moment later. */
    if (WEIR_UNLIKELY(
            atomic_load_explicit(&self->wants_back, memory_order_relaxed)))
        all_give_back(self);
    return WEIR_OK;
}

/* ---- deallocation ---- */

/* The pool of the arena that a block came from, or null: the global one. They tell what
 * is wrong with it. */
static weir_resource *pool_of(weir__arenas *self, const void *ptr)
{
    uint32_t number = weir__arena_map_find(&self->map, ptr);
    return number != 0 ? self->arenas[number - 1].pool : NULL;
}

/* Before a block goes back: afterwards there would be nothing of this any more, if that
 * was the last one. To be counted it has to be back, for it may be none. */
static void begin_back(weir__arenas *self)
{
    atomic_fetch_add(&self->holders, 1);
}

static bool end_back(weir__arenas *self, size_t bytes, bool done)
{
    if (done) {
        atomic_fetch_add(&self->deallocations, 1);
        atomic_fetch_sub(&self->out_bytes, bytes);
    }
    weir__arenas_leave(self);
    return done;
}

static bool arena_deallocate(void *context, weir_stream stream, void *ptr, size_t bytes,
                             size_t alignment)
{
    weir__arenas *self = context;
    weir_resource *pool = pool_of(self, ptr);
    if (WEIR_LIKELY(pool != NULL))
        return weir_deallocate(pool, stream, ptr, bytes, alignment);
    begin_back(self);
    return end_back(self, bytes,
                    weir_deallocate(self->global, stream, ptr, bytes, alignment));
}

static bool arena_deallocate_after(void *context, void *ptr, size_t bytes,
                                   size_t alignment, const weir_point *points,
                                   size_t count)
{
    weir__arenas *self = context;
    weir_resource *pool = pool_of(self, ptr);
    if (pool != NULL)
        return weir_deallocate_after(pool, ptr, bytes, alignment, points, count);
    begin_back(self);
    return end_back(self, bytes,
                    weir_deallocate_after(self->global, ptr, bytes, alignment, points,
                                          count));
}

static weir_status arena_find(void *context, const void *ptr, weir_block *out)
{
    weir__arenas *self = context;
    weir_resource *pool = pool_of(self, ptr);
    if (weir_resource_find(pool != NULL ? pool : self->global, ptr, out) == WEIR_OK)
        return WEIR_OK;
    return weir__fail(WEIR_NOT_FOUND, "arena: no block that is out begins at %p", ptr);
}

/* ---- the rest ---- */

static void arena_properties(void *context, weir_resource_properties *out)
{
    const weir__arenas *self = context;
    weir_resource_properties global = { .struct_size = sizeof global };
    if (weir_resource_get_properties(self->global, &global) == WEIR_OK)
        out->max_alignment = global.max_alignment;
    out->can_trim = true;
    out->usable_at_once = out->pages_usable_at_once = false;
    out->share_kind = WEIR_SHARE_NONE; /* several blocks lie in one of upstream's */
}

static weir_resource *arena_upstream(void *context)
{
    return ((weir__arenas *)context)->upstream;
}

static size_t arena_trim_sync(void *context, size_t keep_bytes)
{
    weir__arenas *self = context;
    for (size_t i = 0; i < self->options.arenas; i++)
        (void)weir_resource_trim_sync(self->arenas[i].pool, 0);
    return weir_resource_trim_sync(self->global, keep_bytes);
}

static void arena_destroy(void *context)
{
    weir__arenas *self = context;
    weir__arena_map_close(&self->map);
    weir__arena_streams_close(&self->streams);
    weir__host_free(self);
}

/* With the last of these, and the last block, it is over; perhaps before this is
 * through. */
static void let_go(weir__arenas *self)
{
    weir_resource *global = self->global;
    for (size_t i = 0; i < self->options.arenas; i++)
        weir_resource_unref(self->arenas[i].pool);
    weir_resource_unref(global);
}

/* The last unref. */
static bool arena_close(void *context)
{
    weir__arenas *self = context;
    weir__order_unlisten(self->order, &self->listener);
    let_go(self);
    return false;
}

static const weir_resource_ops arena_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "arena",
    .allocate = arena_allocate,
    .deallocate = arena_deallocate,
    .destroy = arena_destroy,
    .trim_sync = arena_trim_sync,
    .upstream = arena_upstream,
    .properties = arena_properties,
    .statistics = arena_statistics,
    .find = arena_find,
    .deallocate_after = arena_deallocate_after,
};

static const weir__counting arena_counting = { .close = arena_close };

/* ---- beginning ---- */

static weir_status options_read(const weir_arena_options *from, weir_arena_options *out)
{
    weir_status status =
        weir__read_options(from, out, sizeof *out, "the options of an arena resource");
    if (status != WEIR_OK)
        return status;
    out->struct_size = sizeof *out;
    if (out->superblock_bytes == 0)
        out->superblock_bytes = SUPERBLOCK_BYTES;
    if (out->limit_bytes == 0)
        out->limit_bytes = SIZE_MAX;
    if (out->arenas == 0)
        out->arenas = ARENAS;
    if (out->superblock_bytes > WEIR_ARENA_SUPERBLOCK_MAX)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "a superblock of %zu bytes is too large: it has %zu at most",
                          out->superblock_bytes, WEIR_ARENA_SUPERBLOCK_MAX);
    if (out->arenas > WEIR_ARENA_ARENAS_MAX)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%zu arenas are too many: there are "
                                                 "%zu at most",
                          out->arenas, WEIR_ARENA_ARENAS_MAX);
    out->superblock_bytes =
        (out->superblock_bytes + (WEIR__REGION - 1)) & ~(WEIR__REGION - 1);
    return WEIR_OK;
}

/* A pool over a resource that it alone keeps. */
static weir_status make_pool(const weir_resource_ops *ops, void *context,
                             const weir_pool_options *options, weir_resource **out)
{
    weir_resource *below;
    weir_status status = weir_resource_create(ops, context, &below);
    if (status != WEIR_OK)
        return status;
    status = weir_pool_create(below, options, out);
    weir_resource_unref(below);
    return status;
}

/* The streams of an arena share before it grows, for it has no slack. */
static weir_status make_pools(weir__arenas *self)
{
    weir_pool_options global = WEIR_POOL_OPTIONS_INIT;
    weir_pool_options small = WEIR_POOL_OPTIONS_INIT;
    weir_resource_ops source = weir__arena_source_ops;
    weir_resource_properties up = { .struct_size = sizeof up };
    weir_status status = weir_resource_get_properties(self->upstream, &up);
    if (status != WEIR_OK)
        return status;
    if (!up.can_extend)
        source.extend = NULL;
    global.limit_bytes = self->options.limit_bytes;
    small.growth_bytes = self->options.superblock_bytes;
    small.slack_bytes = WEIR_POOL_NO_SLACK;
    status = make_pool(&source, self, &global, &self->global);
    for (size_t i = 0; status == WEIR_OK && i < self->options.arenas; i++)
        status = make_pool(&weir__arena_superblock_ops, &self->arenas[i], &small,
                           &self->arenas[i].pool);
    return status;
}

/* Without its pools; null: no host memory. */
static weir__arenas *make_empty(weir_resource *upstream, weir_device *device,
                                const weir_arena_options *options)
{
    weir__arenas *self =
        weir__host_alloc(sizeof *self + options->arenas * sizeof self->arenas[0]);
    if (self == NULL)
        return NULL;
    if (!weir__arena_streams_init(&self->streams, device->order,
                                  (uint32_t)options->arenas)) {
        weir__host_free(self);
        return NULL;
    }
    self->mr = NULL;
    self->upstream = upstream;
    self->global = NULL;
    self->order = device->order;
    self->options = *options;
    self->small_bytes = options->superblock_bytes / LARGE_SHARE;
    self->listener = (weir__order_listener){ .stream_changes = stream_changes };
    atomic_init(&self->allocations, 0);
    atomic_init(&self->deallocations, 0);
    atomic_init(&self->out_bytes, 0);
    atomic_init(&self->holders, 1);
    atomic_init(&self->failures, 0);
    atomic_init(&self->held_bytes, 0);
    atomic_init(&self->grown_bytes, 0);
    atomic_init(&self->wants_back, false);
    weir__arena_map_init(&self->map);
    for (size_t i = 0; i < options->arenas; i++) {
        weir__arena *it = &self->arenas[i];
        *it = (weir__arena){ .all = self, .number = (uint8_t)(i + 1) };
    }
    return self;
}

weir_status weir_arena_create(weir_resource *upstream,
                              const weir_arena_options *options, weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (upstream == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the upstream is null");
    weir_arena_options in_force;
    status = options_read(options, &in_force);
    if (status != WEIR_OK)
        return status;
    weir__arenas *self =
        make_empty(upstream, weir_resource_device(upstream), &in_force);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for the resource arena");

    status = make_pools(self);
    if (status == WEIR_OK)
        status = weir__order_listen(self->order, &self->listener);
    if (status != WEIR_OK) {
        let_go(self);
        arena_destroy(self);
        return status;
    }
    status =
        weir__resource_create_counting(&arena_ops, &arena_counting, self, out);
    if (status != WEIR_OK) {
        (void)arena_close(self);
        arena_destroy(self);
        return status;
    }
    self->mr = *out;
    return WEIR_OK;
}

weir_status weir_arena_get_options(weir_resource *mr, weir_arena_options *out)
{
    const weir_arena_options none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__enter();
    if (status != WEIR_OK)
        return status;
    const weir__arenas *self = weir__resource_self(mr, &arena_ops);
    if (self == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the resource is no arena resource");
    return weir__fill_out(out, &self->options, sizeof self->options);
}
