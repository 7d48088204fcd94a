/* weir/binning.h - each size from the resource that is best for it: bins of one size
 * for what is small, anything else for what is not.
 *
 * A request goes to the smallest bin that it fits into, by size and by alignment, and
 * to upstream if there is none. Bins of the range are weir/fixed_size.h over upstream,
 * one for each power of two; others may be added, of any size and over any resource,
 * also while other threads allocate and free: these take no lock for it. A block goes
 * back to where it came from, also if a bin that fits it better has come since.
 *
 * A bin keeps what it has drawn: what is free in one serves no other before
 * weir_resource_trim_sync. A bin that cannot grow refuses; no other is asked. */
#ifndef WEIR_BINNING_H
#define WEIR_BINNING_H

#include <stdint.h>

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The bins of the range: 2^min_exponent bytes, and every power of two up to
 * 2^max_exponent. Zero asks for the default; start from WEIR_BINNING_OPTIONS_INIT. */
typedef struct weir_binning_options {
    size_t struct_size;
    uint32_t min_exponent; /* from 8 on; default 8 (256 bytes);
                              WEIR_BINNING_NO_RANGE: there are none */
    uint32_t max_exponent; /* up to 39; default 22 (4 MiB) */
} weir_binning_options;

#define WEIR_BINNING_OPTIONS_INIT { sizeof(weir_binning_options), 0, 0 }
#define WEIR_BINNING_NO_RANGE     1u
#define WEIR_BINNING_EXPONENT_MIN 8u
#define WEIR_BINNING_EXPONENT_MAX 39u

/* Creates a resource over `upstream`, which it keeps alive. `options` may be null.
 *
 * Statistics are sums over all bins and what went to upstream at once; so a peak is
 * that of all together or more. Of bins over other resources only what came through
 * here is counted, as asked for. An out-of-memory report has the sums, too.
 *
 *   INVALID_ARGUMENT     the range is none, or max_exponent is set without one
 *   OUT_OF_HOST_MEMORY   and *out is null, as on every failure */
WEIR_API WEIR_NODISCARD weir_status
weir_binning_create(weir_resource *upstream, const weir_binning_options *options,
                    weir_resource **out);

/* Adds a bin for requests of up to `bytes` bytes. With `bin` null it is one of blocks
 * of that size over upstream (rounded up to a multiple of 256); else `bin` has them,
 * which is kept alive; it may be used by others, too, and draw from what `mr` draws
 * from. Each block that `mr` has from it is written down, which takes a lock each way,
 * and host memory while it is out. Blocks that are out stay where they are. Each
 * addition leaves a table of bins behind, for who may be reading it, until `mr` ends.
 *
 *   INVALID_ARGUMENT     `mr` is no binning resource; there is a bin of that size;
 *                        `bin` is `mr`, or draws from it, is of another device, or its
 *                        memory is not all that `mr` promises
 *                        (weir_resource_properties)
 *   NOT_SUPPORTED        `bin` does not know its blocks (can_find)
 *   OUT_OF_HOST_MEMORY   nothing has changed, as on every failure */
WEIR_API WEIR_NODISCARD weir_status
weir_binning_add(weir_resource *mr, size_t bytes, weir_resource *bin);

/* Fills *out, whose struct_size the caller has set, with the options in force. `mr` is
 * a binning resource, or INVALID_ARGUMENT. */
WEIR_API WEIR_NODISCARD weir_status
weir_binning_get_options(weir_resource *mr, weir_binning_options *out);

#ifdef __cplusplus
}
#endif
#endif
