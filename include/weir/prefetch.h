/* weir/prefetch.h - memory that is where it is needed before it is touched.
 *
 * Managed memory, and ordinary memory of the host's on devices that reach it, moves
 * page by page to whoever touches it, at the price of a fault each time. This adaptor
 * puts a prefetch on the stream with every block that it hands out
 * (cudaMemPrefetchAsync), so that the pages move together. */
#ifndef WEIR_PREFETCH_H
#define WEIR_PREFETCH_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_prefetch_location {
    WEIR_PREFETCH_TO_DEVICE = 0, /* the one that the resource allocates for */
    WEIR_PREFETCH_TO_HOST = 1
} weir_prefetch_location;

/* Zero asks for the default; start from WEIR_PREFETCH_OPTIONS_INIT. */
typedef struct weir_prefetch_options {
    size_t struct_size;
    weir_prefetch_location location;
} weir_prefetch_options;

#define WEIR_PREFETCH_OPTIONS_INIT                                               \
    { sizeof(weir_prefetch_options), WEIR_PREFETCH_TO_DEVICE }

/* Creates a resource over `upstream`, which it keeps alive, and whose answers are its
 * own: a prefetch is a hint, and a block is good without it. One that the device
 * refuses is counted, and leaves no other trace: also not in weir_last_error(). None is
 * put on a stream that is being captured, for a graph cannot hold one. With an
 * extension in place it is what was added that is prefetched.
 *
 * Each allocation costs two device calls more: whether the stream is captured, and the
 * prefetch. Whole pages move, with what lies beside a small block in them. Blocks are
 * not usable_at_once (weir_resource_properties), whatever upstream's are: who gives one
 * back is behind its prefetch if it is behind its allocation. Of memory of several
 * kinds at once (weir/fallback.h), or of unknown make (weir_callback_create), what
 * turns out not to move counts as a failure.
 *
 *   NOT_SUPPORTED      upstream's memory does not move: it is the device's, or pinned,
 *                      or ordinary memory and the device has no pageable_access; or the
 *                      device has no concurrent_managed (weir_device_properties)
 *   INVALID_ARGUMENT   the options have no meaning; *out is null */
WEIR_API WEIR_NODISCARD weir_status
weir_prefetch_create(weir_resource *upstream, const weir_prefetch_options *options,
                     weir_resource **out);

/* What has become of the prefetches so far. */
typedef struct weir_prefetch_counts {
    size_t struct_size;
    uint64_t prefetches;       /* were put on a stream, */
    uint64_t prefetched_bytes; /* of so many bytes */
    uint64_t captured;         /* were left out, as the stream was being captured */
    uint64_t failures;         /* were refused by the device */
} weir_prefetch_counts;

/* Fills *out, whose struct_size the caller has set. `mr` is a prefetch resource, or
 * INVALID_ARGUMENT. */
WEIR_API WEIR_NODISCARD weir_status
weir_prefetch_get_counts(weir_resource *mr, weir_prefetch_counts *out);

#ifdef __cplusplus
}
#endif
#endif
