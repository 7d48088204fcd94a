/* statistics.c - counts what passes through to an upstream resource.
 *
 * Each number is exact once the calls that change it have returned; while calls are
 * under way, numbers that are read together may be of different moments. */
#include "weir/statistics.h"

#include <stdatomic.h>

#include "internal.h"
#include "resource_internal.h"

typedef struct statistics {
    weir_resource *upstream; /* counted by the resource */
    atomic_size_t out_bytes;
    atomic_size_t out_blocks;
    atomic_size_t peak_out_bytes;
    atomic_uint_least64_t allocations;
    atomic_uint_least64_t deallocations;
    atomic_uint_least64_t failures;
} statistics;

static void raise_peak(statistics *self, size_t out_bytes)
{
    size_t peak = atomic_load(&self->peak_out_bytes);
    while (peak < out_bytes && !atomic_compare_exchange_weak(&self->peak_out_bytes,
                                                             &peak, out_bytes)) {
    }
}

static weir_status statistics_allocate(void *context, weir_stream stream,
                                       size_t bytes, size_t alignment, void **out)
{
    statistics *self = context;
    weir_status status = weir_allocate(self->upstream, stream, bytes, alignment, out);
    if (status != WEIR_OK) {
        atomic_fetch_add(&self->failures, 1);
        return status;
    }
    raise_peak(self, atomic_fetch_add(&self->out_bytes, bytes) + bytes);
    atomic_fetch_add(&self->out_blocks, 1);
    atomic_fetch_add(&self->allocations, 1);
    return WEIR_OK;
}

static weir_status statistics_extend(void *context, weir_stream stream, void *ptr,
                                     size_t bytes, size_t alignment, size_t new_bytes)
{
    statistics *self = context;
    weir_status status = weir_resource_extend(self->upstream, stream, ptr, bytes,
                                              alignment, new_bytes);
    size_t more = new_bytes - bytes;
    if (status == WEIR_OK)
        raise_peak(self, atomic_fetch_add(&self->out_bytes, more) + more);
    return status;
}

static weir_status statistics_cut(void *context, void *ptr, size_t bytes,
                                  size_t alignment, size_t wanted_bytes, size_t *from,
                                  size_t *to)
{
    statistics *self = context;
    weir_status status = weir_resource_cut(self->upstream, ptr, bytes, alignment,
                                           wanted_bytes, from, to);
    if (status != WEIR_OK || *from == *to)
        return status;
    size_t more = (size_t)(*from > 0) + (*to < bytes);
    atomic_fetch_add(&self->out_blocks, more);
    atomic_fetch_add(&self->allocations, more);
    return WEIR_OK;
}

static void count_back(statistics *self, size_t bytes)
{
    size_t out_bytes = atomic_fetch_sub(&self->out_bytes, bytes);
    WEIR_CHECK(bytes <= out_bytes, "more came back than went out");
    atomic_fetch_sub(&self->out_blocks, 1);
    atomic_fetch_add(&self->deallocations, 1);
}

static bool statistics_deallocate(void *context, weir_stream stream,
                                  void *ptr, size_t bytes, size_t alignment)
{
    statistics *self = context;
    if (!weir_deallocate(self->upstream, stream, ptr, bytes, alignment))
        return false;
    count_back(self, bytes);
    return true;
}

static bool statistics_deallocate_after(void *context, void *ptr, size_t bytes,
                                        size_t alignment, const weir_point *points,
                                        size_t count)
{
    statistics *self = context;
    if (!weir_deallocate_after(self->upstream, ptr, bytes, alignment, points, count))
        return false;
    count_back(self, bytes);
    return true;
}

static weir_resource *statistics_upstream(void *context)
{
    statistics *self = context;
    return self->upstream;
}

static void statistics_statistics(void *context, weir_resource_statistics *out)
{
    statistics *self = context;
    weir_resource_statistics below = { .struct_size = sizeof below };
    if (weir_resource_get_statistics(self->upstream, &below) == WEIR_OK)
        *out = below;
    out->out_bytes = atomic_load(&self->out_bytes);
    out->out_blocks = atomic_load(&self->out_blocks);
    /* Others go on meanwhile: a block is out a moment before the peak is raised, and
     * may be allocated and back between two of these. */
    out->peak_out_bytes = atomic_load(&self->peak_out_bytes);
    if (out->peak_out_bytes < out->out_bytes)
        out->peak_out_bytes = out->out_bytes;
    out->deallocations = atomic_load(&self->deallocations);
    out->allocations = atomic_load(&self->allocations);
    out->failures = atomic_load(&self->failures);
}

static void statistics_destroy(void *context)
{
    statistics *self = context;
    WEIR_CHECK(atomic_load(&self->out_blocks) == 0, "memory is still out");
    weir__host_free(self);
}

static const weir_resource_ops statistics_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "statistics",
    .allocate = statistics_allocate,
    .deallocate = statistics_deallocate,
    .destroy = statistics_destroy,
    .upstream = statistics_upstream,
    .statistics = statistics_statistics,
    .deallocate_after = statistics_deallocate_after,
    .extend = statistics_extend,
    .cut = statistics_cut,
};

weir_status weir_statistics_create(weir_resource *upstream, weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    if (upstream == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the upstream is null");
    weir_resource_properties up = { .struct_size = sizeof up };
    weir_status status = weir_resource_get_properties(upstream, &up);
    if (status != WEIR_OK)
        return status;

    statistics *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "no memory for the resource statistics");
    self->upstream = upstream;
    atomic_init(&self->out_bytes, 0);
    atomic_init(&self->out_blocks, 0);
    atomic_init(&self->peak_out_bytes, 0);
    atomic_init(&self->allocations, 0);
    atomic_init(&self->deallocations, 0);
    atomic_init(&self->failures, 0);

    weir_resource_ops ops = statistics_ops;
    if (!up.can_extend)
        ops.extend = NULL;
    if (up.cut_bytes == 0)
        ops.cut = NULL;
    status = weir_resource_create(&ops, self, out);
    if (status != WEIR_OK)
        statistics_destroy(self);
    return status;
}

weir_status weir_statistics_reset(weir_resource *mr)
{
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    statistics *self = weir__resource_self(mr, &statistics_ops);
    if (self == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is no statistics resource",
                          mr == NULL ? "null" : "this");
    atomic_store(&self->allocations, 0);
    atomic_store(&self->deallocations, 0);
    atomic_store(&self->failures, 0);
    atomic_store(&self->peak_out_bytes, 0);
    raise_peak(self, atomic_load(&self->out_bytes));
    return WEIR_OK;
}
