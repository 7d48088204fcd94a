/* weir/fallback.h - asks one resource, and another where that one has no room.
 *
 * For memory that may come from a slower place before a program fails: a pool of the
 * device's, then managed or pinned memory; a pool with a limit, then the driver's. */
#ifndef WEIR_FALLBACK_H
#define WEIR_FALLBACK_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a resource that asks `primary`, and `alternate` for what that refuses with
 * OUT_OF_MEMORY or LIMIT_REACHED; every other answer of primary's stands. It keeps both
 * alive. They are of one device, and two resources, or INVALID_ARGUMENT.
 *
 * Memory goes back to where it came from, whichever way it is given back, and a block
 * is extended only where it lies. A block of primary's costs one load more, unless
 * more than a thousand are out of alternate's; a block of alternate's a record on the
 * host, and a lock.
 *
 * If alternate refuses, too, its answer and its out-of-memory report are passed up, and
 * the sentence has what both said. OUT_OF_HOST_MEMORY: no room for the record.
 *
 * Properties are what both promise; can_trim and can_extend if either can, and
 * weir_resource_find works where both can find. A trim asks both: alternate keeps what
 * primary leaves of keep_bytes. Statistics are sums of both, so that a peak is that of
 * both at once or more; largest_free_bytes is the larger; failures are of requests to
 * this resource. Where both only pass on what one resource below counts, as
 * limiting/pool and that pool do, they are that one's. There are none if one of the two
 * keeps none.
 *
 * In text the alternate is a chain of its own: "fallback(pinned)/pool/device",
 * "fallback(alternate=\"pool(limit=8GiB)/managed\")/pool/device". */
WEIR_API WEIR_NODISCARD weir_status
weir_fallback_create(weir_resource *primary, weir_resource *alternate,
                     weir_resource **out);

#ifdef __cplusplus
}
#endif
#endif
