/* weir/limiting.h - refuses to let more than a set number of bytes be out, and can tell
 * when it is about to. */
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

/* Is called by the request that takes what is out past the soft limit, `out_bytes` with
 * its own: once for each time it is passed upwards, not for each request above it. That
 * is when the request is counted, before upstream is asked, and no lock of this
 * resource's is held; upstream may refuse yet. It may allocate, give back and trim, of
 * this resource, too, and is not called for what it does itself. As with
 * weir/failure_callback.h, a resource above may hold a lock of its own meanwhile. */
typedef void (*weir_soft_limit_hook)(void *context, weir_stream stream,
                                     size_t out_bytes);

typedef struct weir_limiting_options {
    size_t struct_size;
    weir_soft_limit_hook on_soft_limit; /* null: there is no soft limit */
    void *context;                      /* for it; lives until the resource has ended */
    size_t soft_limit_bytes;            /* at most the limit */
} weir_limiting_options;

#define WEIR_LIMITING_OPTIONS_INIT { sizeof(weir_limiting_options), NULL, NULL, 0 }

/* The same with options; null: none. */
WEIR_API WEIR_NODISCARD weir_status
weir_limiting_create_with(weir_resource *upstream, size_t limit_bytes,
                          const weir_limiting_options *options, weir_resource **out);

#ifdef __cplusplus
}
#endif
#endif
