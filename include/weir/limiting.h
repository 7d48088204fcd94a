/* weir/limiting.h - refuses to let more than a set number of bytes be out. */
#ifndef WEIR_LIMITING_H
#define WEIR_LIMITING_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a resource over `upstream`, which it keeps alive, that answers
 * LIMIT_REACHED to a request that would put more than `limit_bytes` out. Counted is
 * what was asked for, not what upstream spends on it. */
WEIR_API WEIR_NODISCARD weir_status
weir_limiting_create(weir_resource *upstream, size_t limit_bytes,
                     weir_resource **out);

#ifdef __cplusplus
}
#endif
#endif
