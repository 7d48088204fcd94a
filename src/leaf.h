/* leaf.h - a leaf that cannot free in stream order: what comes back to it is kept with
 * its marks, and freed once they are done. include/weir/leaves.h says when. */
#ifndef WEIR_LEAF_H
#define WEIR_LEAF_H

#include "device/device.h"
#include "weir/resource_ops.h"

/* Where its memory comes from. Each gets the leaf's own copy of its options. */
typedef struct weir__leaf_kind {
    const char *name;
    size_t max_alignment;
    size_t options_bytes; /* of what it is created with; 0: none */
    bool host_accessible;
    bool managed;
    bool pinned;
    weir_status (*draw)(weir_device *device, const void *options, size_t bytes,
                        size_t alignment, void **out);
    /* Wants what draw gave, with the same `bytes`; nobody uses it any more. */
    weir_status (*give)(weir_device *device, const void *options, void *ptr,
                        size_t bytes);
    /* How much there is left to draw, or somewhat more. */
    weir_status (*measure)(weir_device *device, size_t *free_bytes);
} weir__leaf_kind;

/* Makes the resource; `kind` outlives it, `options` (null if it has none) is copied. */
weir_status weir__leaf_create(const weir__leaf_kind *kind, weir_device *device,
                              const void *options, weir_resource **out);

/* Measures for a kind: what the device has free, what the host has, and both. */
weir_status weir__measure_device(weir_device *device, size_t *free_bytes);
weir_status weir__measure_host(weir_device *device, size_t *free_bytes);
weir_status weir__measure_both(weir_device *device, size_t *free_bytes);

#endif
