/* arena_superblocks.c - the two resources in between: superblocks, of which each
 * arena's pool has one that draws from the global pool, and notes whose an address is;
 * and the source, by which the global pool draws from upstream, and which notes how
 * much.
 *
 * A superblock is a number of the map's regions, and nobody else has a part of them. */
#include "arena_parts.h"
#include "internal.h"
#include "resource_internal.h"

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define STRETCH_LEAST ((size_t)4 << 20)
#else
#define STRETCH_LEAST ((size_t)64 << 20)
#endif
#define STRETCH_SHARE 16u

/* ---- the source: between the global pool and upstream ---- */

static void count_grown(weir__arenas *self, size_t bytes)
{
    size_t held = atomic_fetch_add(&self->held_bytes, bytes) + bytes;
    size_t grown = atomic_fetch_add(&self->grown_bytes, bytes) + bytes;
    size_t stretch = held / STRETCH_SHARE;
    if (grown >= (stretch > STRETCH_LEAST ? stretch : STRETCH_LEAST))
        atomic_store(&self->wants_back, true);
}

static weir_status source_allocate(void *context, weir_stream stream, size_t bytes,
                                   size_t alignment, void **out)
{
    weir__arenas *self = context;
    weir_status status = weir_allocate(self->upstream, stream, bytes, alignment, out);
    if (status == WEIR_OK)
        count_grown(self, bytes);
    return status;
}

static bool source_deallocate(void *context, weir_stream stream, void *ptr,
                              size_t bytes, size_t alignment)
{
    weir__arenas *self = context;
    atomic_fetch_sub(&self->held_bytes, bytes);
    return weir_deallocate(self->upstream, stream, ptr, bytes, alignment);
}

static bool source_deallocate_after(void *context, void *ptr, size_t bytes,
                                    size_t alignment, const weir_point *points,
                                    size_t count)
{
    weir__arenas *self = context;
    atomic_fetch_sub(&self->held_bytes, bytes);
    return weir_deallocate_after(self->upstream, ptr, bytes, alignment, points, count);
}

static weir_status source_extend(void *context, weir_stream stream, void *ptr,
                                 size_t bytes, size_t alignment, size_t new_bytes)
{
    weir__arenas *self = context;
    weir_status status = weir_resource_extend(self->upstream, stream, ptr, bytes,
                                              alignment, new_bytes);
    if (status == WEIR_OK)
        count_grown(self, new_bytes - bytes);
    return status;
}

static weir_resource *upstream_of(void *context)
{
    return ((weir__arenas *)context)->upstream;
}

void weir__arenas_leave(weir__arenas *self)
{
    if (atomic_fetch_sub(&self->holders, 1) == 1 && self->mr != NULL)
        weir__resource_ended(self->mr);
}

/* All pools are no more. */
static void source_destroy(void *context)
{
    weir__arenas_leave(context);
}

const weir_resource_ops weir__arena_source_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "arena",
    .allocate = source_allocate,
    .deallocate = source_deallocate,
    .destroy = source_destroy,
    .upstream = upstream_of,
    .deallocate_after = source_deallocate_after,
    .extend = source_extend,
};

/* ---- superblocks: between an arena's pool and the global one ---- */

static size_t region_aligned(size_t alignment)
{
    return alignment > WEIR__REGION ? alignment : WEIR__REGION;
}

static weir_status superblock_draw(void *context, weir_stream stream, size_t bytes,
                                   size_t alignment, void **out)
{
    weir__arena *it = context;
    weir__arenas *all = it->all;
    if (bytes % all->options.superblock_bytes != 0) /* it was refused a whole one */
        return weir__fail(WEIR_LIMIT_REACHED, "arena: no room for a superblock");
    if (!weir__arena_map_promise(&all->map))
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "arena: no memory for records");
    weir_status status = weir_allocate(all->global, stream, bytes,
                                       region_aligned(alignment), out);
    if (status != WEIR_OK) {
        weir__arena_map_forget_promise(&all->map);
        return status;
    }
    weir__arena_map_put(&all->map, *out, bytes, it->number);
    return WEIR_OK;
}

/* Off the map before it is back: from then on it may be another arena's. */
static bool superblock_return(void *context, weir_stream stream, void *ptr,
                              size_t bytes, size_t alignment)
{
    weir__arenas *all = ((weir__arena *)context)->all;
    weir__arena_map_drop(&all->map, ptr, bytes);
    return weir_deallocate(all->global, stream, ptr, bytes, region_aligned(alignment));
}

static bool superblock_return_after(void *context, void *ptr, size_t bytes,
                                    size_t alignment, const weir_point *points,
                                    size_t count)
{
    weir__arenas *all = ((weir__arena *)context)->all;
    weir__arena_map_drop(&all->map, ptr, bytes);
    return weir_deallocate_after(all->global, ptr, bytes, region_aligned(alignment),
                                 points, count);
}

static weir_resource *global_of(void *context)
{
    return ((weir__arena *)context)->all->global;
}

static size_t superblock_trim_sync(void *context, size_t keep_bytes)
{
    (void)context;
    (void)keep_bytes;
    return 0; /* the global pool keeps what it got until it is asked itself */
}

static void superblocks_end(void *context)
{
    (void)context;
}

const weir_resource_ops weir__arena_superblock_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "arena",
    .allocate = superblock_draw,
    .deallocate = superblock_return,
    .destroy = superblocks_end,
    .trim_sync = superblock_trim_sync,
    .upstream = global_of,
    .deallocate_after = superblock_return_after,
};
