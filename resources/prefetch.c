/* prefetch.c - puts a prefetch on the stream with each block that upstream hands out.
 *
 * The block is upstream's, and is good whatever becomes of the prefetch: that is only
 * counted. It is put before the block is handed out, so that what is ordered behind
 * the allocation is behind it, too: upstream frees no memory that a prefetch has yet to
 * come to. */
#include "weir/prefetch.h"

#include "device/device.h"
#include "internal.h"
#include "resource_internal.h"
#include "stream_order.h"

typedef struct prefetch {
    weir_resource *upstream; /* counted by the resource */
    weir_device *device;     /* upstream's */
    weir__place place;
    atomic_uint_least64_t prefetches;
    atomic_uint_least64_t prefetched_bytes;
    atomic_uint_least64_t captured;
    atomic_uint_least64_t failures;
} prefetch;

/* ---- blocks ---- */

static void prefetch_put(prefetch *self, weir_stream stream, void *ptr, size_t bytes)
{
    weir__error_record before; /* the caller has a block, and no error */
    weir__error_keep(&before);
    weir_status status = weir__order_may_sync(self->device->order, stream);
    bool is_captured = status == WEIR_CAPTURING;
    if (status == WEIR_OK)
        status = weir__prefetch(self->device, stream, ptr, bytes, self->place);
    if (status != WEIR_OK)
        weir__error_put_back(&before);
    else
        atomic_fetch_add(&self->prefetched_bytes, bytes);
    atomic_fetch_add(status == WEIR_OK ? &self->prefetches
                     : is_captured     ? &self->captured
                                       : &self->failures, 1);
}

static weir_status prefetch_allocate(void *context, weir_stream stream, size_t bytes,
                                     size_t alignment, void **out)
{
    prefetch *self = context;
    weir_status status = weir_allocate(self->upstream, stream, bytes, alignment, out);
    if (status == WEIR_OK)
        prefetch_put(self, stream, *out, bytes);
    return status;
}

static weir_status prefetch_extend(void *context, weir_stream stream, void *ptr,
                                   size_t bytes, size_t alignment, size_t new_bytes)
{
    prefetch *self = context;
    weir_status status = weir_resource_extend(self->upstream, stream, ptr, bytes,
                                              alignment, new_bytes);
    if (status == WEIR_OK && new_bytes > bytes)
        prefetch_put(self, stream, (char *)ptr + bytes, new_bytes - bytes);
    return status;
}

static bool prefetch_deallocate(void *context, weir_stream stream, void *ptr,
                                size_t bytes, size_t alignment)
{
    prefetch *self = context;
    return weir_deallocate(self->upstream, stream, ptr, bytes, alignment);
}

static bool prefetch_deallocate_after(void *context, void *ptr, size_t bytes,
                                      size_t alignment, const weir_point *points,
                                      size_t count)
{
    prefetch *self = context;
    return weir_deallocate_after(self->upstream, ptr, bytes, alignment, points, count);
}

/* ---- questions and the end ---- */

static weir_resource *prefetch_upstream(void *context)
{
    prefetch *self = context;
    return self->upstream;
}

static void prefetch_properties(void *context, weir_resource_properties *out)
{
    (void)context;
    /* The prefetch comes first. */
    out->usable_at_once = out->pages_usable_at_once = false;
}

static void prefetch_destroy(void *context)
{
    weir__host_free(context);
}

static const weir_resource_ops prefetch_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "prefetch",
    .allocate = prefetch_allocate,
    .deallocate = prefetch_deallocate,
    .destroy = prefetch_destroy,
    .upstream = prefetch_upstream,
    .properties = prefetch_properties,
    .deallocate_after = prefetch_deallocate_after,
    .extend = prefetch_extend,
};

/* ---- creation ---- */

static weir_status options_read(const weir_prefetch_options *from,
                                weir_prefetch_options *out)
{
    weir_status status = weir__read_options(from, out, sizeof *out,
                                            "the options of prefetch");
    if (status == WEIR_OK && out->location != WEIR_PREFETCH_TO_DEVICE &&
        out->location != WEIR_PREFETCH_TO_HOST)
        status = weir__fail(WEIR_INVALID_ARGUMENT,
                            "prefetch: %d is no location to move memory to",
                            (int)out->location);
    return status;
}

/* Whether upstream's memory moves when it is told to. */
static weir_status judge_memory(const weir_resource_properties *up)
{
    weir_device_properties device = { .struct_size = sizeof device };
    weir_status status = weir_device_get_properties(up->device, &device);
    if (status != WEIR_OK)
        return status;
    bool is_ordinary = up->host_accessible && !up->pinned && !up->managed;
    if (!up->managed && !is_ordinary)
        return weir__fail(WEIR_NOT_SUPPORTED,
                          "prefetch: memory of %s stays where it is; managed moves",
                          up->leaf);
    if (!device.concurrent_managed || (is_ordinary && !device.pageable_access))
        return weir__fail(WEIR_NOT_SUPPORTED,
                          "prefetch: %s does not move %s memory when it is told to",
                          device.name, is_ordinary ? "ordinary" : "managed");
    return WEIR_OK;
}

weir_status weir_prefetch_create(weir_resource *upstream,
                                 const weir_prefetch_options *options,
                                 weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_prefetch_options in_force;
    weir_resource_properties up = { .struct_size = sizeof up };
    weir_status status = weir__enter();
    if (status == WEIR_OK && upstream == NULL)
        status = weir__fail(WEIR_INVALID_ARGUMENT, "the upstream is null");
    if (status == WEIR_OK)
        status = options_read(options, &in_force);
    if (status == WEIR_OK)
        status = weir_resource_get_properties(upstream, &up);
    if (status == WEIR_OK)
        status = judge_memory(&up);
    if (status != WEIR_OK)
        return status;

    prefetch *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "no memory for the resource prefetch");
    *self = (prefetch){ .upstream = upstream, .device = up.device,
                        .place = in_force.location == WEIR_PREFETCH_TO_HOST
                                     ? WEIR__PLACE_HOST : WEIR__PLACE_DEVICE };
    weir_resource_ops ops = prefetch_ops;
    if (!up.can_extend)
        ops.extend = NULL;
    status = weir_resource_create(&ops, self, out);
    if (status != WEIR_OK)
        prefetch_destroy(self);
    return status;
}

weir_status weir_prefetch_get_counts(weir_resource *mr, weir_prefetch_counts *out)
{
    weir_prefetch_counts now = { .struct_size = sizeof now };
    weir_status status = weir__fill_out(out, &now, sizeof now);
    if (status == WEIR_OK)
        status = weir__enter();
    if (status != WEIR_OK)
        return status;
    prefetch *self = weir__resource_self(mr, &prefetch_ops);
    if (self == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is no prefetch resource",
                          mr == NULL ? "null" : "this");
    now.prefetches = atomic_load(&self->prefetches);
    now.prefetched_bytes = atomic_load(&self->prefetched_bytes);
    now.captured = atomic_load(&self->captured);
    now.failures = atomic_load(&self->failures);
    return weir__fill_out(out, &now, sizeof now);
}
