/* weir/shareable.h - the leaf `shareable`: memory of the device that other processes
 * can open. Each block is a kernel object of its own, so that who opens one reaches no
 * other.
 *
 * A block takes whole objects of 2 MiB: one of 5 bytes takes as much as one of 2 MiB,
 * and each is a call to the kernel. Small blocks want a pool ("pool/shareable", or the
 * driver's own, "async(handle_types=posix_fd)"); but then several lie in one object:
 * they can only be shared with all that lies beside them. So there is no kind POOL
 * here: with a pool for each block it would be one of kind FD, at the same price.
 *
 * What is given back is kept until it is done, as weir/leaves.h says. Statistics count
 * what is out as asked for, and what is held and kept in whole objects. */
#ifndef WEIR_SHAREABLE_H
#define WEIR_SHAREABLE_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_SHAREABLE_OBJECT_BYTES ((size_t)2 << 20)

/* Zero asks for the default; start from WEIR_SHAREABLE_OPTIONS_INIT. */
typedef struct weir_shareable_options {
    size_t struct_size;
    weir_share_kind kind; /* default: by file descriptor, where the device can, else
                             legacy; share_kind of the properties says which */
} weir_shareable_options;

#define WEIR_SHAREABLE_OPTIONS_INIT                                              \
    { sizeof(weir_shareable_options), WEIR_SHARE_NONE }

/* Creates the leaf. `options` may be null. Alignment up to WEIR_SHAREABLE_OBJECT_BYTES.
 * Where the device has no memory of a kind that was asked for, or none to share at all,
 * the first allocation answers NOT_SUPPORTED. Without a kind this draws one object to
 * see whether the device can, and gives it back; if the device does not take it, it is
 * kept like any other block.
 *
 *   INVALID_ARGUMENT     there is no such kind
 *   DEVICE_ERROR         the device failed, when asked for that object
 *   OUT_OF_HOST_MEMORY   there is no memory, or no file descriptor, on the host
 *
 * On failure *out is null. */
WEIR_API WEIR_NODISCARD weir_status
weir_shareable_create(weir_device *device, const weir_shareable_options *options,
                      weir_resource **out);

#ifdef __cplusplus
}
#endif
#endif
