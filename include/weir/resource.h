/* weir/resource.h - a memory resource, as the code that allocates sees it.
 *
 * A resource hands out memory in stream order. Memory allocated on a stream may be
 * used at once by work put on that stream; memory deallocated on a stream is reused
 * only by work that comes after what is already on it. Neither call makes the host
 * wait, but for a leaf that says so.
 *
 * Any thread may call any function here. A resource keeps its upstream and its
 * device alive; nothing keeps a stream alive but its owner.
 *
 * On the legacy stream "what is already on it" means what was put on the legacy
 * stream itself: a deallocation is no operation of CUDA's, and makes no barrier.
 * Memory used on another stream and freed on the legacy one needs weir_stream_wait
 * (or any real operation on the legacy stream) in between, as with any other pair of
 * streams. */
#ifndef WEIR_RESOURCE_H
#define WEIR_RESOURCE_H

#include <stdbool.h>
#include <stddef.h>

#include "weir/device.h"
#include "weir/status.h"
#include "weir/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_resource weir_resource;

/* What CUDA's own allocations are aligned to at least, and a good default. */
#define WEIR_ALIGNMENT ((size_t)256)

/* Allocates `bytes` bytes on `stream`, aligned to `alignment`, a power of two up to
 * the resource's maximum. Asking for zero bytes succeeds, and *out is null.
 *
 *   OUT_OF_MEMORY   the device has no room; weir_last_out_of_memory() knows more
 *   LIMIT_REACHED   a limit above the device would be passed
 *   DEVICE_ERROR    the device failed; weir_last_error() holds its own code
 *   DEVICE_LOST     the device failed for good
 *   CAPTURING       a stream is being captured that Weir was not told of
 *   PAUSED          the memory below is paused (weir/growable.h)
 *   NOT_SUPPORTED   the device has no memory of the kind that the leaf hands out
 *
 * On failure *out is null and the resource is as it was before the call. */
WEIR_API WEIR_NODISCARD weir_status
weir_allocate(weir_resource *mr, weir_stream stream,
              size_t bytes, size_t alignment, void **out);

/* Gives back what weir_allocate gave, with the same `bytes` and `alignment`.
 * `stream` may be another one; the caller has then already ordered it after
 * the work that used the memory. A null `ptr` is ignored.
 *
 * Cannot fail, and allocates no host memory: memory this resource did not give is
 * a bug, and goes to the misuse handler. If that returns, the call did nothing, and
 * only then the answer is false. What is not seen, here and by weir_resource_find: an
 * adaptor that keeps no records of its own (statistics, limiting) has blocks out, and
 * is given one that its upstream handed out to others. */
WEIR_API bool
weir_deallocate(weir_resource *mr, weir_stream stream,
                void *ptr, size_t bytes, size_t alignment);

/* The same for memory used on several streams: it is reused only by work behind all of
 * the `count` points. What the calling thread knows to be done needs no point; with
 * none, nothing that was put on a stream uses the memory any more. The allocation
 * counts as put on its stream, which a resource may have made wait for who had the
 * memory before: who gives a block back unused names a point there, or has waited.
 * Where a resource has no better way, the legacy stream is made to wait for points
 * that are still open. Points of another device's (see weir/stream.h) go to the misuse
 * handler. */
WEIR_API bool
weir_deallocate_after(weir_resource *mr, void *ptr, size_t bytes, size_t alignment,
                      const weir_point *points, size_t count);

/* A block that is out. */
typedef struct weir_block {
    size_t struct_size;
    void *ptr;
    size_t bytes;         /* as asked for */
    size_t alignment;     /* as asked for */
    weir_stream stream;   /* that it was allocated on; it may have ended since */
} weir_block;

/* Fills *out, whose struct_size the caller has set, with the block that begins at
 * `ptr`.
 *
 *   NOT_FOUND       this resource has no such block out
 *   NOT_SUPPORTED   it keeps no record of its blocks */
WEIR_API WEIR_NODISCARD weir_status
weir_resource_find(weir_resource *mr, const void *ptr, weir_block *out);

/* Gives back a block by its address alone, as if it were deallocated on the stream
 * that it was allocated on, which must not have ended. Where that was another thread's
 * per-thread default stream, it is this thread's own, which the caller has ordered
 * behind that. Null is ignored. Misuse as for weir_deallocate; a resource that keeps no
 * record of its blocks has none to give. */
WEIR_API bool weir_free(weir_resource *mr, void *ptr);

/* Gives memory that is not in use back to upstream until no more than
 * `keep_bytes` is held, and returns how many bytes went back. Waits on the host
 * for work that still uses what it gives back. */
WEIR_API size_t weir_resource_trim_sync(weir_resource *mr, size_t keep_bytes);

/* Gives what the calling thread has kept of memory that it freed back to the resources
 * that it is of, where every thread can have it. For threads that will be idle for
 * long; the end of a thread does the same. */
WEIR_API void weir_thread_flush(void);

/* Shares ownership of `mr`, and returns it. After the last unref nothing may be
 * allocated; the resource is destroyed once its last block is back, and then waits on
 * the host for work that still uses what it holds. Null is ignored. */
WEIR_API weir_resource *weir_resource_ref(weir_resource *mr);
WEIR_API void           weir_resource_unref(weir_resource *mr);

/* How another process can reach memory. */
typedef enum weir_share_kind {
    WEIR_SHARE_NONE = 0,
    WEIR_SHARE_FD = 1,     /* by a file descriptor (CUDA: virtual memory management) */
    WEIR_SHARE_LEGACY = 2, /* by 64 octets (cudaIpcGetMemHandle) */
    WEIR_SHARE_POOL = 3    /* by a file descriptor of the driver's pool that it is of,
                              and 64 octets: who has the one reaches all of the pool */
} weir_share_kind;

/* What memory a resource hands out. */
typedef struct weir_resource_properties {
    size_t struct_size;
    const char *name;          /* of the resource asked: "pool"; outlives it */
    const char *leaf;          /* of the resource at the bottom of its chain */
    weir_device *device;       /* not counted */
    size_t max_alignment;
    bool device_accessible;
    bool host_accessible;
    bool managed;
    bool pinned;
    bool can_trim;             /* weir_resource_trim_sync can give something back */
    bool can_extend;           /* a block can grow in place (resource_ops.h); where that
                                  depends, one that is aligned to max_alignment */
    bool can_find;             /* weir_resource_find and weir_free work */
    /* Nothing that was put on any stream uses memory that it hands out: who draws from
     * it needs no wait to pass it on to another stream than it was allocated on. (Users
     * order their own work behind the allocation all the same, as with any resource: an
     * emulated device's ledger tells of work that is not.) */
    bool usable_at_once;
    /* Each block is an object of its own, which weir_ipc_export shares in that way; but
     * of kind POOL only if share_whole_base is set. */
    weir_share_kind share_kind;
    /* Not 0: a part of a block can go back while the rest stays (resource_ops.h), and
     * begins and ends at multiples of so many bytes, a power of two, or with the
     * block. */
    size_t cut_bytes;
    /* What goes back serves a request of any size: so who has parts that are free gives
     * them back before he asks for more, and less is held. */
    bool remaps;
    /* As usable_at_once, of blocks that are aligned to max_alignment: what cuts others
     * out of memory that streams pass to each other may have those from below. */
    bool pages_usable_at_once;
} weir_resource_properties;

/* Fills *out, whose struct_size the caller has set. */
WEIR_API WEIR_NODISCARD weir_status
weir_resource_get_properties(weir_resource *mr, weir_resource_properties *out);

/* The device that `mr` allocates for; not counted. */
WEIR_API weir_device *weir_resource_device(weir_resource *mr);

/* What `mr` draws from: 0 its upstream, 1 the second one of those that have two. Null
 * where there is none; not counted, and good as long as `mr` is. What a chain holds of
 * the device is what its leaves hold. */
WEIR_API weir_resource *weir_resource_upstream(weir_resource *mr, size_t which);

/* What a resource has done and holds. What it does not count stays zero. */
typedef struct weir_resource_statistics {
    size_t struct_size;
    size_t out_bytes;          /* asked for, and not back yet */
    size_t out_blocks;
    size_t peak_out_bytes;
    size_t held_bytes;         /* from upstream, or from the device */
    size_t peak_held_bytes;
    size_t free_bytes;         /* held, and not out */
    size_t free_blocks;
    size_t largest_free_bytes;
    size_t kept_bytes;         /* given back to a leaf, waiting to be freed */
    size_t set_aside_bytes;    /* not to be reused before a weir_device_sync */
    uint64_t allocations;      /* that succeeded; of zero bytes not counted */
    uint64_t deallocations;
    uint64_t failures;
    size_t leaked_bytes;       /* that nobody gives upstream any more; of resources of
                                  yours: Weir's own leak only as they end */
} weir_resource_statistics;

/* Fills *out, whose struct_size the caller has set. NOT_SUPPORTED: `mr` keeps none. */
WEIR_API WEIR_NODISCARD weir_status
weir_resource_get_statistics(weir_resource *mr, weir_resource_statistics *out);

/* Builds a chain of resources from text, outermost first: "pool/device",
 * "limiting(40GiB)/pool(initial=1GiB, growth=64MiB)/device". The last is a leaf. Only
 * the outermost is the caller's; it keeps the others alive. weir/spec.h tells the
 * grammar, the resources and their options; `weir info --resources` prints them.
 *
 * Null leaves the choice to whoever runs the program: what the environment variable
 * WEIR_RESOURCE says, which a program with raised privileges does not look at, or else,
 * as where that is empty, "pool/device". So a program that opens its resource, or its
 * device's current one, like this can be run with WEIR_RESOURCE=checking/pool/device in
 * front.
 *
 *   INVALID_ARGUMENT   the text has no meaning, or a resource refuses its options: the
 *                      sentence shows the place and says which character it is, from 1,
 *                      counted in bytes
 *
 * and what the resources' own create functions answer. Where the text is that of
 * WEIR_RESOURCE the sentence begins with this name. The whole text is read before
 * anything is made; on failure nothing is left of what was. */
WEIR_API WEIR_NODISCARD weir_status
weir_resource_open(weir_device *device, const char *spec, weir_resource **out);

#ifdef __cplusplus
}
#endif
#endif
