/* weir/statistics.h - counts what passes through to another resource. */
#ifndef WEIR_STATISTICS_H
#define WEIR_STATISTICS_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a resource over `upstream`, which it keeps alive, whose
 * weir_resource_get_statistics counts out_bytes, out_blocks, peak_out_bytes,
 * allocations, deallocations and failures of its own; what is held and free is as
 * upstream says. */
WEIR_API WEIR_NODISCARD weir_status
weir_statistics_create(weir_resource *upstream, weir_resource **out);

/* Begins anew: peak_out_bytes becomes out_bytes, the three counters zero. `mr` is a
 * statistics resource, or INVALID_ARGUMENT. */
WEIR_API WEIR_NODISCARD weir_status weir_statistics_reset(weir_resource *mr);

#ifdef __cplusplus
}
#endif
#endif
