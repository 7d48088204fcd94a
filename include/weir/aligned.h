/* weir/aligned.h - a least alignment for all requests, or for the large ones: for
 * direct storage, registration in pages of 64 KiB or 2 MiB, or vector loads. */
#ifndef WEIR_ALIGNED_H
#define WEIR_ALIGNED_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_aligned_options {
    size_t struct_size;
    size_t alignment;       /* a power of two; 0: WEIR_ALIGNMENT */
    size_t threshold_bytes; /* of the least request that gets it; 0: all do */
} weir_aligned_options;

#define WEIR_ALIGNED_OPTIONS_INIT { sizeof(weir_aligned_options), 0, 0 }

/* Creates a resource over `upstream`, which it keeps alive. A request of at least
 * threshold_bytes is aligned to `alignment` if it asks for less; any other, and one
 * that asks for more, to what it asks for, which may be as much as the larger of
 * `alignment` and upstream's own maximum. Null options are all defaults.
 *
 * What upstream can align is asked of it so; for more than its maximum it is asked for
 * alignment - maximum bytes more, in which the block is found. A request that changes
 * on the way costs a record on the host and a lock (OUT_OF_HOST_MEMORY: no room for
 * the record); one that does not passes through.
 *
 * weir_resource_find and the misuse handler go by what was asked for, and so does the
 * out_bytes of the statistics; failures count what upstream was not asked for, too. All
 * else there is upstream's, with what was asked for more.
 *
 * A block is extended in place where upstream can, but not to the threshold from below
 * unless it happens to be aligned: NOT_SUPPORTED. If `alignment` is above upstream's
 * maximum a block may begin within what upstream gave, and share_kind is none. */
WEIR_API WEIR_NODISCARD weir_status
weir_aligned_create(weir_resource *upstream, const weir_aligned_options *options,
                    weir_resource **out);

/* Fills *out, whose struct_size the caller has set, with the options in force. `mr` is
 * an aligned resource, or INVALID_ARGUMENT. */
WEIR_API WEIR_NODISCARD weir_status
weir_aligned_get_options(weir_resource *mr, weir_aligned_options *out);

#ifdef __cplusplus
}
#endif
#endif
