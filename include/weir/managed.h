/* weir/managed.h - the leaf `managed`: memory that host and device both touch, and that
 * moves to where it is touched (cudaMallocManaged). Devices without concurrent managed
 * access (under WSL, for one) let the host touch none of it while anything runs there,
 * have no more of it than of their own memory, and take no advice.
 *
 * The driver takes the device's memory for it 128 MiB at a time, and keeps what of that
 * was not used yet: up to 126 MiB less than one expects are free once it is given back
 * (driver 580.159, and uvm_perf_pma_batch_nonpinned_order of its open kernel modules).
 *
 * What is given back is kept until it is done, as weir/leaves.h says. */
#ifndef WEIR_MANAGED_H
#define WEIR_MANAGED_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_managed_location {
    WEIR_MANAGED_ANYWHERE = 0,
    WEIR_MANAGED_DEVICE = 1,
    WEIR_MANAGED_HOST = 2
} weir_managed_location;

/* Zero asks for the default; start from WEIR_MANAGED_OPTIONS_INIT. */
typedef struct weir_managed_options {
    size_t struct_size;
    weir_managed_location preferred; /* where it should stay; the others reach it */
    bool read_mostly;                /* copies of it may lie in several places */
} weir_managed_options;

#define WEIR_MANAGED_OPTIONS_INIT                                                \
    { sizeof(weir_managed_options), WEIR_MANAGED_ANYWHERE, false }

/* Creates the leaf. `options` may be null. Aligned to 256. INVALID_ARGUMENT: the
 * options have no meaning; *out is null. Where the device has no managed memory, or
 * takes no such advice, the first allocation answers NOT_SUPPORTED. */
WEIR_API WEIR_NODISCARD weir_status
weir_managed_create(weir_device *device, const weir_managed_options *options,
                    weir_resource **out);

#ifdef __cplusplus
}
#endif
#endif
