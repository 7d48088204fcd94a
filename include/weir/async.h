/* weir/async.h - the leaf `async`: memory from one of the device's own pools, in stream
 * order (cudaMallocAsync).
 *
 * The driver reuses what was freed on the same stream; by its three policies also what
 * was freed on others. Memory that is given back goes to the driver at once, on the
 * stream it is given back on; what comes back behind points, on a stream of the leaf's
 * own that waits for them. A pool of its own keeps what it has drawn (see
 * release_threshold_bytes); the driver's default, 0, costs milliseconds at each wait of
 * the host.
 *
 * No driver's call is made on a stream that is captured. Memory for a declared capture
 * (weir/capture.h) is drawn elsewhere, and the host waits for it; where the driver
 * reuses what is still in use (WEIR_ASYNC_REUSE_INTERNAL), for that too. What a capture
 * has had goes to the driver once the capture is released: two blocks with each
 * allocate, all with trim.
 *
 * Where there is no room, allocate waits on the host, last of all, for what was freed
 * and is not done, where no capture forbids that.
 *
 * Statistics: held_bytes is what the pool had reserved when it was asked, for others
 * too where it is shared; peak_held_bytes the most that it ever answered. Trim gives
 * back what is free, of a shared pool what others keep in it as well; to know, it waits
 * for all work of the device, where no capture forbids that.
 *
 * The end of the leaf waits only where it still keeps something itself (of captures, or
 * what the driver did not take). A pool of its own keeps nothing from then on:
 * what is done goes back at once, the rest when the host next waits for a stream or
 * more. On a CUDA device the pool itself, which has nothing by then, is destroyed with
 * the next wait for all of the device, the end of another such leaf, or the device's
 * close; what is not done by its close only gives its memory back.
 *
 * Who destroys a pool by cudaMemPoolDestroy waits first for what was freed to it: with
 * driver 580.159 a later allocation on the legacy or a per-thread stream, from another
 * pool, may crash otherwise.
 *
 * A thread that allocates on its own per-thread default stream waits for that
 * (weir_stream_sync) before it ends: driver 580.159 may otherwise never let it, if what
 * it had there goes back behind points or on other streams meanwhile. */
#ifndef WEIR_ASYNC_H
#define WEIR_ASYNC_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A pool of the device's own; weir_mempool is cudaMemPool_t. */
typedef struct CUmemPoolHandle_st *weir_mempool;

typedef enum weir_async_pool {
    WEIR_ASYNC_OWN = 0,     /* made for this resource, and destroyed with it */
    WEIR_ASYNC_DEFAULT = 1, /* the device's default one, as it is; but the device is
                               let reach one of pinned memory, as CUDA does not */
    WEIR_ASYNC_FOREIGN = 2  /* somebody else's, as it is; not destroyed. The device must
                               be able to reach it (cudaMemPoolSetAccess) */
} weir_async_pool;

typedef enum weir_async_memory {
    WEIR_ASYNC_DEVICE = 0,
    WEIR_ASYNC_MANAGED = 1, /* CUDA 13 */
    WEIR_ASYNC_PINNED = 2   /* of the host; CUDA 13 */
} weir_async_memory;

/* What a driver's pool may reuse for a stream besides what was freed on that. */
#define WEIR_ASYNC_REUSE_SAME_STREAM   1u /* nothing else */
#define WEIR_ASYNC_REUSE_EVENTS        2u /* what it has waited for, by events */
#define WEIR_ASYNC_REUSE_OPPORTUNISTIC 4u /* what is done by chance */
#define WEIR_ASYNC_REUSE_INTERNAL      8u /* anything: the driver makes it wait */

/* How memory of the pool can be handed to other processes, CUDA's numbers. Device
 * memory of a pool of its own with POSIX_FD is of WEIR_SHARE_POOL: weir_ipc_export
 * takes it if share_whole_base is set, for who opens one block could map all of the
 * pool. Of a foreign pool the driver is asked then; its share_kind is none. */
#define WEIR_ASYNC_HANDLE_POSIX_FD 1u
#define WEIR_ASYNC_HANDLE_FABRIC   8u

/* Zero asks for the default; start from WEIR_ASYNC_OPTIONS_INIT. But for `pool`,
 * `foreign` and `memory`, options are for a pool of its own; with another they are
 * refused with INVALID_ARGUMENT, as is what has no meaning. */
typedef struct weir_async_options {
    size_t struct_size;
    weir_async_pool pool;
    weir_mempool foreign;           /* for WEIR_ASYNC_FOREIGN */
    weir_async_memory memory;       /* for WEIR_ASYNC_FOREIGN: what it hands out */
    size_t primed_bytes;            /* drawn at creation, for whichever stream comes
                                       first; default none */
    size_t release_threshold_bytes; /* how much the pool keeps when the host waits;
                                       default everything; 1 keeps nothing */
    size_t max_bytes;               /* to reserve at most; default: the driver's. None
                                       for managed memory */
    uint32_t handle_types;          /* WEIR_ASYNC_HANDLE_..., or'ed; default none */
    uint32_t reuse;                 /* WEIR_ASYNC_REUSE_..., or'ed; default all */
    bool on_numa_node;              /* pinned: on that node of the host's */
    int32_t numa_node;
} weir_async_options;

#define WEIR_ASYNC_OPTIONS_INIT                                                  \
    { sizeof(weir_async_options), WEIR_ASYNC_OWN, NULL, WEIR_ASYNC_DEVICE,       \
      0, 0, 0, 0, 0, false, 0 }

/* Creates the leaf. `options` may be null. Alignment up to 256. A foreign pool has to
 * outlive the leaf and its blocks.
 *
 *   NOT_SUPPORTED      the device has no pools, none of that memory, or none with such
 *                      handles; or max_bytes is set for managed memory, whose pools
 *                      CUDA does not bound
 *   OUT_OF_MEMORY      it cannot be primed with so much
 *   INVALID_ARGUMENT   the options have no meaning
 *
 * On failure *out is null. An allocation that would pass max_bytes answers
 * LIMIT_REACHED. */
WEIR_API WEIR_NODISCARD weir_status
weir_async_create(weir_device *device, const weir_async_options *options,
                  weir_resource **out);

/* The pool behind `mr`, which must be an `async`; it belongs to whom it belonged to,
 * and an own one lives as long as `mr`. INVALID_ARGUMENT: it is none. */
WEIR_API WEIR_NODISCARD weir_status
weir_async_get_pool(weir_resource *mr, weir_mempool *out);

#ifdef __cplusplus
}
#endif
#endif
