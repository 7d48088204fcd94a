/* weir/pinned.h - the leaf `pinned`: host memory that stays where it is, so that the
 * device copies to and from it at full speed, and asynchronously (cudaHostAlloc).
 *
 * Pinning costs milliseconds for each ten megabytes: put a pool over it
 * ("pool/pinned"), and it is a stream-ordered pool of pinned memory. What is given back
 * is kept until it is done, as weir/leaves.h says. */
#ifndef WEIR_PINNED_H
#define WEIR_PINNED_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero asks for the default; start from WEIR_PINNED_OPTIONS_INIT. */
typedef struct weir_pinned_options {
    size_t struct_size;
    bool portable;     /* pinned for all devices, not only for this one */
    bool mapped;       /* in the device's address space too; with unified addresses,
                          which every device here has, it is so anyway */
    bool on_numa_node; /* on that node of the host's, and no other */
    int32_t numa_node;
} weir_pinned_options;

#define WEIR_PINNED_OPTIONS_INIT                                                 \
    { sizeof(weir_pinned_options), false, false, false, 0 }

/* Creates the leaf. `options` may be null. Alignment up to 4096; a small block for
 * which more than 512 is asked may take 2 MiB, for the driver packs those. Where the
 * device cannot reach memory of one node at the host's address, the first allocation
 * answers NOT_SUPPORTED.
 *
 *   NOT_SUPPORTED      the host has no such node, or lets nobody bind memory to it
 *   INVALID_ARGUMENT   the options have no meaning
 *
 * On failure *out is null. */
WEIR_API WEIR_NODISCARD weir_status
weir_pinned_create(weir_device *device, const weir_pinned_options *options,
                   weir_resource **out);

#ifdef __cplusplus
}
#endif
#endif
