/* weir/failure_callback.h - asks the program for help where there is no room.
 *
 * For programs that can do without some of their memory: that spill it, drop a cache,
 * or wait until another thread has given some back. */
#ifndef WEIR_FAILURE_CALLBACK_H
#define WEIR_FAILURE_CALLBACK_H

#include <stdbool.h>

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Is called when upstream has refused `bytes` bytes on `stream` for the `refusals`-th
 * time, from 1; weir_last_error() and weir_last_out_of_memory() say why. True: try
 * again. Comes from the thread that allocates, maybe from several at a time, and no
 * lock of this resource's is held.
 *
 * It may allocate, give back and trim, of this resource, too; but an allocation of its
 * own that is refused fails at once: it is never called from within itself. A resource
 * above this one may hold a lock of its own meanwhile, as a pool does: it is not to be
 * called from here. Put this one on top. */
typedef bool (*weir_failure_hook)(void *context, weir_stream stream, size_t bytes,
                                  size_t refusals);

typedef struct weir_failure_callback_options {
    size_t struct_size;
    /* How often a request is tried again at most, whatever the hook says. 0: 100. */
    size_t max_retries;
} weir_failure_callback_options;

#define WEIR_FAILURE_CALLBACK_OPTIONS_INIT                                       \
    { sizeof(weir_failure_callback_options), 0 }

/* Creates a resource over `upstream`, which it keeps alive. Where that answers
 * OUT_OF_MEMORY or LIMIT_REACHED, it calls `hook` with `context`, and asks upstream
 * again as long as the answer is true. Otherwise, and after the last retry, the
 * answer is upstream's last: its status, its sentence and its report, whatever the hook
 * has called in between.
 *
 * An extension in place that is refused is not tried again: what the hook gives back is
 * no neighbour of the block. All else goes straight to upstream.
 *
 * `context` has to live until the resource has ended. Null options are all defaults. */
WEIR_API WEIR_NODISCARD weir_status
weir_failure_callback_create(weir_resource *upstream, weir_failure_hook hook,
                             void *context,
                             const weir_failure_callback_options *options,
                             weir_resource **out);

/* Fills *out, whose struct_size the caller has set, with the options in force. `mr` is
 * a failure_callback resource, or INVALID_ARGUMENT. */
WEIR_API WEIR_NODISCARD weir_status
weir_failure_callback_get_options(weir_resource *mr,
                                  weir_failure_callback_options *out);

#ifdef __cplusplus
}
#endif
#endif
