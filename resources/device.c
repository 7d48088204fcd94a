/* device.c - the leaf `device`: memory of the device, one call of its allocator for
 * each block (cudaMalloc). See leaf.h for what becomes of blocks that come back. */
#include "leaf.h"
#include "weir/leaves.h"

/* The allocator aligns to more than anybody may ask for. */
static weir_status draw(weir_device *device, const void *options, size_t bytes,
                        size_t alignment, void **out)
{
    (void)options;
    (void)alignment;
    return weir__malloc(device, bytes, out);
}

static weir_status give(weir_device *device, const void *options, void *ptr,
                        size_t bytes)
{
    (void)options;
    (void)bytes;
    return weir__free(device, ptr);
}

static const weir__leaf_kind device_kind = {
    .name = "device",
    .max_alignment = WEIR_ALIGNMENT,
    .host_accessible = false,
    .draw = draw,
    .give = give,
    .measure = weir__measure_device,
};

weir_status weir_device_resource_create(weir_device *device, weir_resource **out)
{
    return weir__leaf_create(&device_kind, device, NULL, out);
}
