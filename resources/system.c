/* system.c - the leaf `system`: ordinary host memory that the device can reach. See
 * leaf.h for what becomes of blocks that come back. */
#include <unistd.h>

#include "leaf.h"
#include "weir/leaves.h"

/* What the operating system calls available counts caches that it would give up; it
 * is the best that there is. */
static weir_status measure(weir_device *device, size_t *free_bytes)
{
    (void)device;
    long pages = sysconf(_SC_AVPHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);
    *free_bytes = pages > 0 && page_bytes > 0 ? (size_t)pages * (size_t)page_bytes : 0;
    return WEIR_OK;
}

static const weir__leaf_kind system_kind = {
    .name = "system",
    .max_alignment = 4096,
    .host_accessible = true,
    .draw = weir__host_malloc,
    .give = weir__host_free_device,
    .measure = measure,
};

weir_status weir_system_resource_create(weir_device *device, weir_resource **out)
{
    return weir__leaf_create(&system_kind, device, out);
}
