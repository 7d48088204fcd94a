/* weir/jemalloc.h - memory that the host reaches, cut by jemalloc: a resource in a
 * library of its own, libweir_jemalloc.so. Not part of weir/weir.h.
 *
 * jemalloc's arenas stand between a program's blocks and an upstream that gives whole
 * extents: pinned, managed or system. What comes back on a stream is given to jemalloc
 * only once the stream has come to that point, so that nothing it hands out is still in
 * use by anybody: device, stream or host.
 *
 * The library brings a jemalloc of its own, of which nobody else sees anything: the
 * program's malloc stays what it was, also if that is another jemalloc. (It reads
 * MALLOC_CONF as any does.) But its thread-local memory is of the kind that must be
 * there when a program starts: link with it; dlopen fails ("cannot allocate memory in
 * static TLS block"). Once it is loaded weir_resource_open knows it
 * ("jemalloc/pinned", "jemalloc(pending=16MiB)/managed"): link with -Wl,--no-as-needed
 * if nothing else of it is called. */
#ifndef WEIR_JEMALLOC_H
#define WEIR_JEMALLOC_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero asks for the default; start from WEIR_JEMALLOC_OPTIONS_INIT. */
typedef struct weir_jemalloc_options {
    size_t struct_size;
    /* Once more than this waits for its streams, each allocation looks at all of it,
     * and not only at a few blocks. 0: 64 MiB. */
    size_t pending_bytes;
} weir_jemalloc_options;

#define WEIR_JEMALLOC_OPTIONS_INIT { sizeof(weir_jemalloc_options), 0 }

/* Creates a resource over `upstream`, which it keeps alive. Aligned to 2 MiB at most.
 * Blocks are usable at once on every stream, and by the host.
 *
 * What is given back is pending until its stream has come to that point: a few pending
 * blocks are looked at by each allocation, all of them under pressure (more than
 * pending_bytes, or upstream has no room) and by trim. An allocation waits on the host
 * for pending blocks only where it would fail; for the whole device where that has
 * refused to record a point. A stream that is being captured gets no memory here
 * (CAPTURING), and what comes back on one is not used again before the end of the
 * resource, for a graph may use it: release captures before that.
 *
 * Extents are drawn as jemalloc asks for them, 2 MiB and growing; where upstream's
 * memory is not usable_at_once the host waits for it, once for each. They go back by
 * trim, where jemalloc has a whole one free; and all of them when no block is out or
 * pending. `upstream` is asked for them on the stream of the allocation.
 *
 * With its last reference the resource waits on the host for what is pending; if
 * nobody can wait for that, its extents are leaked, and weir_last_error() says so. Of
 * jemalloc's own records some stay until the process ends.
 *
 *   NOT_SUPPORTED        the host does not reach upstream's memory
 *   INVALID_ARGUMENT     the options have no meaning
 *   OUT_OF_HOST_MEMORY   jemalloc has no room for another arena; *out is null */
WEIR_API WEIR_NODISCARD weir_status
weir_jemalloc_create(weir_resource *upstream, const weir_jemalloc_options *options,
                     weir_resource **out);

#ifdef __cplusplus
}
#endif
#endif
