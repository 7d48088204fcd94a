/* weir/leaves.h - the resources at the bottom of a chain.
 *
 * What is given back to `device`, to `system` (weir/system.h), `managed`
 * (weir/managed.h), `pinned` (weir/pinned.h) and `shareable` (weir/shareable.h) is
 * kept, with its point in stream order, until that is done: freeing under running work
 * would be an error, and no leaf relies on the device's free to wait. What is done is
 * freed by trim, by an allocate that finds more than WEIR_LEAF_KEEP_BYTES kept, and by
 * one that would fail. If that is not enough, and only then, allocate waits on the host
 * for kept memory: these are the leaves that weir/resource.h speaks of. But a CUDA
 * device's own free waits, in practice, for all that runs on it at that moment: put a
 * pool over a leaf where that matters.
 *
 * A block that comes back behind points of more than four streams still at work is set
 * aside, until a wait for the whole device has passed. */
#ifndef WEIR_LEAVES_H
#define WEIR_LEAVES_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_LEAF_KEEP_BYTES ((size_t)64 << 20)

/* Memory of the device, one device call each (cudaMalloc): aligned to 256, touched by
 * the device only. */
WEIR_API WEIR_NODISCARD weir_status
weir_device_resource_create(weir_device *device, weir_resource **out);

/* Ordinary host memory (malloc): weir/system.h, with all defaults. */
WEIR_API WEIR_NODISCARD weir_status
weir_system_resource_create(weir_device *device, weir_resource **out);

/* Memory from functions of the caller's, for whatever is not here. */
typedef struct weir_callbacks {
    size_t struct_size;
    /* As the members of the same name in weir/resource_ops.h, but that deallocate has
     * nothing to answer: it gets no memory that was not allocated here. It is told the
     * bytes and alignment that allocate was, and the stream that the memory was given
     * back on. destroy may be null. */
    weir_status (*allocate)(void *context, weir_stream stream,
                            size_t bytes, size_t alignment, void **out);
    void (*deallocate)(void *context, weir_stream stream,
                       void *ptr, size_t bytes, size_t alignment);
    void (*destroy)(void *context);
    bool host_accessible;
    bool usable_at_once;    /* as in weir_resource_properties */
    size_t max_alignment;   /* 0: WEIR_ALIGNMENT */
} weir_callbacks;

/* Creates a leaf of `device` that calls `callbacks`, copied, with `context`. It keeps a
 * record of each block, so that weir_free works and misuse is found. Where `allocate`
 * refuses and has not said why (weir_resource_refuse, or a call of the library's that
 * failed in it), the leaf says so. */
WEIR_API WEIR_NODISCARD weir_status
weir_callback_create(weir_device *device, const weir_callbacks *callbacks,
                     void *context, weir_resource **out);

#ifdef __cplusplus
}
#endif
#endif
