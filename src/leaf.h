/* leaf.h - a leaf that cannot free in stream order: what comes back to it is kept with
 * its marks, and freed once they are done. include/weir/leaves.h says when. */
#ifndef WEIR_LEAF_H
#define WEIR_LEAF_H

#include "device/device.h"
#include "weir/resource_ops.h"

/* Where its memory comes from. */
typedef struct weir__leaf_kind {
    const char *name;
    size_t max_alignment;
    bool host_accessible;
    weir_status (*draw)(weir_device *device, size_t bytes, size_t alignment,
                        void **out);
    weir_status (*give)(weir_device *device, void *ptr);
    /* How much there is left to draw. */
    weir_status (*measure)(weir_device *device, size_t *free_bytes);
} weir__leaf_kind;

/* Makes the resource; `kind` outlives it. */
weir_status weir__leaf_create(const weir__leaf_kind *kind, weir_device *device,
                              weir_resource **out);

#endif
