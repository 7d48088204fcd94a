/* leaf_measure.c - how much there is left where a leaf's memory comes from. */
#include <unistd.h>

#include "leaf.h"

weir_status weir__measure_device(weir_device *device, size_t *free_bytes)
{
    size_t total_bytes;
    return weir_device_memory(device, free_bytes, &total_bytes);
}

/* What the operating system calls available counts caches that it would give up; it
 * is the best that there is. */
weir_status weir__measure_host(weir_device *device, size_t *free_bytes)
{
    (void)device;
    long pages = sysconf(_SC_AVPHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);
    *free_bytes = pages > 0 && page_bytes > 0 ? (size_t)pages * (size_t)page_bytes : 0;
    return WEIR_OK;
}

weir_status weir__measure_both(weir_device *device, size_t *free_bytes)
{
    size_t of_host = 0;
    (void)weir__measure_host(device, &of_host);
    weir_status status = weir__measure_device(device, free_bytes);
    *free_bytes += of_host;
    return status;
}
