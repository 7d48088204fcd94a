/* system.c - the leaf `system`: ordinary host memory that the device can reach. See
 * leaf.h for what becomes of blocks that come back. */
#include "leaf.h"
#include "weir/leaves.h"

static weir_status draw(weir_device *device, const void *options, size_t bytes,
                        size_t alignment, void **out)
{
    (void)options;
    return weir__host_malloc(device, bytes, alignment, out);
}

static weir_status give(weir_device *device, const void *options, void *ptr,
                        size_t bytes)
{
    (void)options;
    (void)bytes;
    return weir__host_free_device(device, ptr);
}

static const weir__leaf_kind system_kind = {
    .name = "system",
    .max_alignment = 4096,
    .host_accessible = true,
    .draw = draw,
    .give = give,
    .measure = weir__measure_host,
};

weir_status weir_system_resource_create(weir_device *device, weir_resource **out)
{
    return weir__leaf_create(&system_kind, device, NULL, out);
}
