/* weir/system.h - the leaf `system`: ordinary host memory, as malloc's, on devices that
 * reach it (pageable_access of weir_device_properties), as the emulated one does.
 *
 * What is given back is kept until it is done, as weir/leaves.h says. */
#ifndef WEIR_SYSTEM_H
#define WEIR_SYSTEM_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero asks for the default; start from WEIR_SYSTEM_OPTIONS_INIT. */
typedef struct weir_system_options {
    size_t struct_size;
    /* So much of the device's own memory stays free for others (1: nothing to speak
     * of). The first part of each block, as much as the device has free beyond that
     * when the block is made, should stay on the device, and the rest on the host
     * (cudaMemAdvise): what does not fit is then reached where it is, and does not push
     * out what does. Blocks are multiples of 64 KiB. Default: pages go to whoever
     * touches them. */
    size_t headroom_bytes;
} weir_system_options;

#define WEIR_SYSTEM_OPTIONS_INIT { sizeof(weir_system_options), 0 }

/* Creates the leaf. `options` may be null. Alignment up to 4096. Where advice is
 * refused there is no block either.
 *
 *   NOT_SUPPORTED   the device has no pageable_access; or, with a headroom, no
 *                   concurrent_managed; *out is null */
WEIR_API WEIR_NODISCARD weir_status
weir_system_create(weir_device *device, const weir_system_options *options,
                   weir_resource **out);

#ifdef __cplusplus
}
#endif
#endif
