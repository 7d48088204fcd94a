/* device.c - the leaf `device`: memory of the device, one call of its allocator for
 * each block (cudaMalloc). See leaf.h for what becomes of blocks that come back. */
#include "leaf.h"
#include "weir/leaves.h"

/* The allocator aligns to more than anybody may ask for. */
static weir_status draw(weir_device *device, size_t bytes, size_t alignment, void **out)
{
    (void)alignment;
    return weir__malloc(device, bytes, out);
}

static weir_status measure(weir_device *device, size_t *free_bytes)
{
    size_t total_bytes;
    return weir_device_memory(device, free_bytes, &total_bytes);
}

static const weir__leaf_kind device_kind = {
    .name = "device",
    .max_alignment = WEIR_ALIGNMENT,
    .host_accessible = false,
    .draw = draw,
    .give = weir__free,
    .measure = measure,
};

weir_status weir_device_resource_create(weir_device *device, weir_resource **out)
{
    return weir__leaf_create(&device_kind, device, out);
}
