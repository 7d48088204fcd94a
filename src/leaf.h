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
    size_t object_bytes;  /* a block takes whole ones, a power of two; 0: as asked */
    weir_share_kind share_kind;
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

    /* A kind may hold memory of its own: then draw cuts out of that, give puts it
     * there, and what follows is all set; or null. */

    /* As draw, but from what is held as it is; false: there is no room. */
    bool (*reuse)(weir_device *device, const void *options, size_t bytes, void **out);
    weir_status (*extend)(weir_device *device, const void *options, void *ptr,
                          size_t bytes, size_t new_bytes);
    /* Of the bytes from *from to *to of a block, which its user does not use any more,
     * sets the last of at least `wanted_bytes`, or else all, that trim could give the
     * device once they are free; equal: none. */
    void (*part)(const void *options, const void *ptr, size_t bytes,
                 size_t wanted_bytes, size_t *from, size_t *to);
    /* Whether what is free goes to the device before more is drawn. */
    bool (*remaps)(const void *options);
    /* The bytes have come back, and are kept until give. */
    void (*keep)(const void *options, const void *ptr, size_t bytes);
    /* Whether trim waits for these bytes, which are kept. */
    bool (*is_awaited)(const void *options, const void *ptr, size_t bytes);
    /* Gives the device what is free while more than `keep_bytes` is held; returns how
     * many bytes. */
    size_t (*trim)(weir_device *device, const void *options, size_t keep_bytes);
    /* Sets what is held, its peak, and the largest that is free. May be called under a
     * resource's lock. */
    void (*describe)(const void *options, weir_resource_statistics *out);
    /* The end; returns how many bytes the device did not take. */
    size_t (*end)(weir_device *device, const void *options);
} weir__leaf_kind;

/* Makes the resource; `kind` outlives it, `options` (null if it has none) is copied. On
 * failure the kind's end has not been called. */
weir_status weir__leaf_create(const weir__leaf_kind *kind, weir_device *device,
                              const void *options, weir_resource **out);

/* Draws that much and gives it back, to see whether the device can; counts nothing.
 * What it does not take back is kept, as if it had been a block. The answers are those
 * of `draw`. For a leaf that nobody else knows yet. */
weir_status weir__leaf_try(weir_resource *mr, size_t bytes);

/* Its own copy of its options, if `mr` is a leaf of that kind; else null. */
const void *weir__leaf_options(weir_resource *mr, const weir__leaf_kind *kind);
/* Waits on the host for all that was given back to a leaf, and frees it; but not for
 * what a capture has that is not released. */
weir_status weir__leaf_settle_sync(weir_resource *mr, const weir__leaf_kind *kind);

/* Measures for a kind: what the device has free, what the host has, and both. */
weir_status weir__measure_device(weir_device *device, size_t *free_bytes);
weir_status weir__measure_host(weir_device *device, size_t *free_bytes);
weir_status weir__measure_both(weir_device *device, size_t *free_bytes);

#endif
