/* device.h - what a device can do: one table of primitives, with an implementation
 * for each kind of device, and the calls that the rest of Weir makes.
 *
 * What holds for all primitives:
 *   - `self` is the implementation's own object. Any thread may call any of them.
 *   - Arguments have been checked: pointers are not null, sizes not zero, a stream is
 *     legacy (never null: null has become WEIR_STREAM_LEGACY), per-thread, or a handle
 *     that lives, an event is one that event_create gave.
 *   - On failure nothing has changed, and weir__fail_native has recorded why: with
 *     DEVICE_ERROR, OUT_OF_MEMORY (the mallocs), OUT_OF_HOST_MEMORY,
 *     NOT_SUPPORTED, INVALID_ARGUMENT (memory it cannot reach) or DEVICE_LOST; after
 *     DEVICE_LOST they always do.
 *   - None waits on the host, but malloc, free, the host_, pinned_, managed_, shared_
 *     and range_ calls, mempool_trim, the _syncs and close.
 *   - Only locks of rank device are taken inside. The caller holds none of rank
 *     resource or above.
 *   - The calling thread has no other device or context afterwards than before.
 */
#ifndef WEIR_DEVICE_DEVICE_H
#define WEIR_DEVICE_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "internal.h"
#include "sync.h"
#include "weir/async.h"
#include "weir/device.h"
#include "weir/emulated.h"
#include "weir/managed.h"
#include "weir/resource.h"
#include "weir/stream.h"

struct weir__emulated;
struct weir__order;
struct weir_resource;

/* How host memory is pinned; or'ed. */
#define WEIR__PINNED_WHOLE ((size_t)2 << 20)
#define WEIR__PINNED_PORTABLE 1u
#define WEIR__PINNED_MAPPED   2u

/* Where memory that can move is, or should be. */
typedef enum weir__place {
    WEIR__PLACE_ANY, /* of prefer only: nothing is preferred any more */
    WEIR__PLACE_DEVICE,
    WEIR__PLACE_HOST
} weir__place;

/* What a pool of the device's own holds. */
typedef struct weir__mempool_state {
    uint64_t reserved_bytes; /* from the device */
    uint64_t used_bytes;     /* of these, handed out */
} weir__mempool_state;

/* What another process needs to reach memory that is shared, or an event. */
#define WEIR__SHARED_OCTETS 64
typedef struct weir__shared {
    weir_share_kind kind;
    size_t bytes;                             /* of the whole object, or pool's block */
    int fd;                                   /* of kinds FD and POOL; else -1 */
    unsigned char octets[WEIR__SHARED_OCTETS]; /* of LEGACY and POOL; else zeros */
} weir__shared;

typedef struct weir__shared_event {
    int fd;                                   /* -1: the octets say it all */
    unsigned char octets[WEIR__SHARED_OCTETS];
} weir__shared_event;

typedef struct weir__device_ops {
    const char *kind; /* "emulated", "cuda" */

    /* The last call: frees all. What runs is waited for on a device that ends with it,
     * the emulated one, and goes on on any other. */
    void (*close)(void *self);
    /* Fills ordinal, uuid, emulated, description, memory_bytes. */
    void (*properties)(void *self, weir_device_properties *out);

    /* Memory of the device, aligned to 256 at least. free wants what malloc gave; work
     * that uses it is done. */
    weir_status (*malloc)(void *self, size_t bytes, void **out);
    weir_status (*free)(void *self, void *ptr);
    /* Ordinary host memory that the device can reach; alignment up to 64 KiB. */
    weir_status (*host_malloc)(void *self, size_t bytes, size_t alignment, void **out);
    weir_status (*host_free)(void *self, void *ptr);
    weir_status (*memory_info)(void *self, size_t *free_bytes, size_t *total_bytes);

    weir_status (*stream_create)(void *self, bool blocking, weir_stream *out);
    weir_status (*stream_destroy)(void *self, weir_stream stream);
    /* Never used twice in a process; for legacy and per-thread ones too. Neither this
     * nor the flags may be asked for while the stream is captured: that spoils the
     * capture, in every mode, and is refused (DEVICE_ERROR). Seen of driver 580.159,
     * which answers cudaErrorStreamCaptureUnsupported. */
    weir_status (*stream_get_id)(void *self, weir_stream stream, uint64_t *out);
    weir_status (*stream_get_flags)(void *self, weir_stream stream, bool *blocking);
    /* Also of the legacy stream while a blocking one is captured. */
    weir_status (*stream_is_capturing)(void *self, weir_stream stream, bool *out);
    weir_status (*stream_sync)(void *self, weir_stream stream);
    weir_status (*stream_query)(void *self, weir_stream stream, bool *done);
    weir_status (*stream_wait_event)(void *self, weir_stream stream, weir_event event);

    weir_status (*event_create)(void *self, weir_event *out);
    weir_status (*event_destroy)(void *self, weir_event event);
    weir_status (*event_record)(void *self, weir_event event, weir_stream stream);
    /* Behind everything put on any stream of the device so far, also on those that have
     * ended, and on no stream itself. Spoils every capture that goes on, and is refused
     * then (DEVICE_ERROR), as device_sync is. NOT_SUPPORTED: there is no such call. */
    weir_status (*event_record_all)(void *self, weir_event event);
    bool (*has_record_all)(void *self); /* whether there is */
    weir_status (*event_query)(void *self, weir_event event, bool *done);
    weir_status (*event_sync)(void *self, weir_event event);
    weir_status (*device_sync)(void *self);

    weir_status (*copy)(void *self, weir_stream stream,
                        void *dst, const void *src, size_t bytes);
    weir_status (*fill)(void *self, weir_stream stream,
                        void *ptr, uint8_t value, size_t bytes);
    /* Work of the host's, in stream order; the emulated device's kernels. A real
     * device takes only calls without ranges. */
    weir_status (*launch)(void *self, weir_stream stream, weir_emulated_kernel kernel,
                          void *argument, const weir_emulated_range *ranges,
                          size_t count);
    weir_status (*enable_peer)(void *self, void *peer);

    /* Memory that moves between host and device; free takes it back. If the advice that
     * the options ask for is refused, there is no memory either. */
    weir_status (*managed_malloc)(void *self, size_t bytes,
                                  const weir_managed_options *options, void **out);
    /* Host memory that is pinned, aligned to a page where it is WEIR__PINNED_WHOLE or
     * more, else to 256 at least (driver 580.159 packs what is smaller); and host
     * memory of the caller's, whole pages, made so. Work that uses it is done before
     * the end. */
    weir_status (*pinned_malloc)(void *self, size_t bytes, uint32_t flags, void **out);
    weir_status (*pinned_free)(void *self, void *ptr);
    weir_status (*host_register)(void *self, void *ptr, size_t bytes, uint32_t flags);
    weir_status (*host_unregister)(void *self, void *ptr);

    /* Pools of the device's own. `options` are complete: no zero asks for a default,
     * but max_bytes (the driver's own) and handle_types (none); managed memory is not
     * bounded: with max_bytes that is NOT_SUPPORTED. destroy may come while
     * memory is out: the pool then ends with the last of it; the default one is never
     * destroyed. malloc: usable by work put on `stream` from now on; free: by nobody
     * after what is on `stream`. On a stream that captures they mean nodes of the
     * graph: not for us. trim gives back what is free and done until `keep_bytes` are
     * reserved. */
    weir_status (*mempool_create)(void *self, const weir_async_options *options,
                                  weir_mempool *out);
    weir_status (*mempool_default)(void *self, weir_async_memory memory,
                                   weir_mempool *out);
    weir_status (*mempool_destroy)(void *self, weir_mempool pool);
    weir_status (*mempool_malloc)(void *self, weir_mempool pool, weir_stream stream,
                                  size_t bytes, void **out);
    weir_status (*mempool_free)(void *self, weir_stream stream, void *ptr);
    weir_status (*mempool_trim)(void *self, weir_mempool pool, size_t keep_bytes);
    weir_status (*mempool_get_state)(void *self, weir_mempool pool,
                                     weir__mempool_state *out);

    /* Memory for other processes: each allocation an object of its own, of whole
     * granules (2 MiB), aligned to one. free: work that uses it is done, here and
     * elsewhere. NOT_SUPPORTED: no memory of that kind; or POOL, for that is what
     * mempool_malloc gives of a pool with handle_types. Where others have opened that,
     * mempool_free comes behind theirs. */
    weir_status (*shared_malloc)(void *self, weir_share_kind kind, size_t bytes,
                                 void **out);
    weir_status (*shared_free)(void *self, void *ptr);
    /* The object that all of the `bytes` bytes at `ptr` lie in, also where it is no
     * shared_malloc's but can be shared all the same: where it begins, its kind and
     * bytes; no handle. NOT_SUPPORTED: there is none. */
    weir_status (*shared_find)(void *self, const void *ptr, size_t bytes, void **base,
                               weir__shared *out);
    /* All of the object that begins at `base`. A file descriptor is the caller's, and
     * closed on exec. */
    weir_status (*shared_export)(void *self, void *base, weir__shared *out);
    /* The same object in this process; `from`, and its file descriptor, stay the
     * caller's. Believes nothing: INVALID_ARGUMENT if there is no such object, it has
     * other bytes than `from` says, or could be made shorter by another. In a process
     * that has it already: again the same address, or another; of kind LEGACY a CUDA
     * device refuses what its own process has made. close: work that uses it is
     * done, and of kind POOL mempool_free has taken it. */
    weir_status (*shared_open)(void *self, const weir__shared *from, void **out);
    weir_status (*shared_close)(void *self, void *ptr);
    /* An event, as event_create's, that other processes can open; event_destroy ends
     * it. A file descriptor is the caller's. NOT_SUPPORTED: there is no such event. */
    weir_status (*shared_event_create)(void *self, weir_event *out,
                                       weir__shared_event *handle);
    /* Another's: it can be waited for, asked about and destroyed, not recorded. What it
     * stands for is its last record when the wait is put. Where its process ends, all
     * that it had put on its streams counts as done. */
    weir_status (*shared_event_open)(void *self, const weir__shared_event *handle,
                                     weir_event *out);

    /* Addresses that memory of the device is mapped to, piece by piece; all in whole
     * granules (2 MiB). Reserved ones are nobody else's, and touched by nothing.
     * NOT_SUPPORTED: the device has no such addresses. release wants all of what
     * reserve gave, with nothing mapped. map: `bytes` bytes more of the device's memory
     * are at `ptr`, where nothing was; what was in them is unknown. What lies side by
     * side is one, for work that uses it. unmap: all of what one map has given; work
     * that uses it is done. */
    weir_status (*range_reserve)(void *self, size_t bytes, void **out);
    weir_status (*range_release)(void *self, void *base, size_t bytes);
    weir_status (*range_map)(void *self, void *ptr, size_t bytes);
    weir_status (*range_unmap)(void *self, void *ptr, size_t bytes);

    /* For memory that moves between host and device, managed or, where the device
     * reaches it, ordinary memory of the host's; else INVALID_ARGUMENT. Neither changes
     * what is in it, and both concern whole pages, with what else is in these.
     * NOT_SUPPORTED where the properties say no concurrent_managed. prefetch: when the
     * stream comes to it, the pages move; who frees them is behind that. Not for a
     * stream that captures, or the legacy one beside a capture: that spoils it. prefer:
     * where they should stay from now on; the other reaches them there. */
    weir_status (*prefetch)(void *self, weir_stream stream, void *ptr, size_t bytes,
                            weir__place place);
    weir_status (*prefer)(void *self, void *ptr, size_t bytes, weir__place place);

    /* The emulated device that this is, or stands on; null: none. No device call. */
    struct weir__emulated *(*emulated)(void *self);

    /* What a ledger wants to know besides; all null where there is none. They cannot
     * fail and are no device calls. */

    /* The outermost resource hands out a block, or is about to take it back.
     * `stream` is weir__capture_stream for the memory of a declared capture, on which
     * nothing runs yet, and for what goes back to one; WEIR__NO_STREAM for what goes
     * back behind points. Of no bytes: a resource gives memory to the one below on the
     * stream, and may rest on what this thread knows; so that is now behind it. */
    void (*note_allocate)(void *self, weir_stream stream, void *ptr, size_t bytes);
    void (*note_deallocate)(void *self, weir_stream stream, void *ptr, size_t bytes);
    /* Such a block of `bytes` is `new_bytes` long from now on. */
    void (*note_extend)(void *self, weir_stream stream, void *ptr, size_t bytes,
                        size_t new_bytes);
    /* Such a block is several from now on, one of them from `from` to `to`. */
    void (*note_cut)(void *self, void *ptr, size_t bytes, size_t from, size_t to);
    /* The host may touch such a block as soon as it is handed out. */
    void (*note_at_once)(void *self, void *ptr, size_t bytes);
    /* What went back to a capture is nobody's any more: its graph is not launched. */
    void (*note_release)(void *self, uint64_t capture);
    /* Hand-overs between host threads inside Weir. A thread that has learnt that
     * `event` (as it was recorded when this thread asked; null: all that this thread
     * knows) is done tells it to clock `key`; another that reads the done mark of
     * that clock learns it. What a key knew that is forgotten is key 0's, if it is
     * kept; else nobody knows it but who has learnt it. */
    void (*note_done)(void *self, uint64_t key, weir_event event);
    void (*note_learn)(void *self, uint64_t key);
    void (*note_forget)(void *self, uint64_t key, bool is_kept);
    /* `bytes` bytes at `ptr` are beside the block of `block_bytes` at `block`, and for
     * nobody to touch; with block_bytes 0 they are beside none any more, and back. */
    void (*note_guard)(void *self, void *ptr, size_t bytes, void *block,
                       size_t block_bytes);
    /* From begin to end what the calling thread puts on streams is Weir's own, and may
     * touch what is out to nobody, in order like all else. */
    void (*note_inspect)(void *self, bool begins);
    /* Another process has done this to the bytes, in front of the last record of
     * `event`, which is its own, opened here: nobody here is behind it but who waits
     * for that event. */
    void (*note_foreign)(void *self, weir_event event, void *ptr, size_t bytes,
                         bool writes);
} weir__device_ops;

#define WEIR__RANGE_GRANULE ((size_t)2 << 20)

#define WEIR__NO_STREAM ((weir_stream)UINTPTR_MAX)

/* Stands in the notes for a capture, by its clock: a number that no handle has. */
#define WEIR__CAPTURE_BIT ((uintptr_t)1 << 63)
static inline weir_stream weir__capture_stream(uint64_t clock)
{
    return (weir_stream)(WEIR__CAPTURE_BIT | clock);
}

/* 0: it is none. */
static inline uint64_t weir__capture_of_stream(weir_stream stream)
{
    const uintptr_t bits = (uintptr_t)stream;
    return stream == WEIR__NO_STREAM || bits < WEIR__CAPTURE_BIT
               ? 0
               : bits & ~WEIR__CAPTURE_BIT;
}

/* One bit for each kind of primitive, in the order of WEIR_DEVICE_CALL_MAP. */
typedef enum weir__call {
#define X(name) WEIR__CALL_##name,
    WEIR_DEVICE_CALL_MAP(X)
#undef X
    WEIR__CALL_COUNT
} weir__call;

/* One for each name: at most one device of a name is open at a time. */
#define WEIR__DEVICE_SLOTS 32
#define WEIR__DEVICE_ORDINALS (WEIR__DEVICE_SLOTS / 2) /* of each kind, CUDA last */

/* The resources that are a device's current ones, all guarded by the lock. What is
 * `set` keeps the device open. The device's `own` does not: current.c tells how. */
typedef struct weir__current {
    weir__mutex lock;
    struct weir_resource *set; /* counted; or null */
    struct weir_resource *own; /* the default one, once made; or null */
    bool own_is_held;          /* and counted */
    size_t own_references;     /* of this device, that `own` and its upstreams hold */
} weir__current;

struct weir_device {
    atomic_size_t references;
    const weir__device_ops *ops;
    void *self;
    bool listens;                   /* there is a ledger to tell */
    struct weir__order *order;      /* its clocks; lives as long as it does */
    struct weir__pending *pending;  /* bytes that wait to be given back; likewise */
    uint64_t serial;                /* no other in this process has had it; from 1 */
    uint32_t slot;                  /* that of its name */
    atomic_bool lost;
    char name[24];
    weir_device_options options;    /* as opened; .emulated points to the next */
    weir_emulated_options emulated_options; /* its costs are the next */
    weir_emulated_costs costs;
    atomic_uint_least64_t calls[WEIR__CALL_COUNT]; /* far from what is read always */
    weir__current current;
    struct weir_device *next;       /* in the registry, guarded by its lock */
};

/* The primitives as the rest of Weir calls them: counted, a place to lose the turn in a
 * stepped run, refused once the device is lost. A stream may be null. */
weir_status weir__malloc(weir_device *device, size_t bytes, void **out);
weir_status weir__free(weir_device *device, void *ptr);
weir_status weir__host_malloc(weir_device *device, size_t bytes, size_t alignment,
                              void **out);
weir_status weir__host_free_device(weir_device *device, void *ptr);
weir_status weir__stream_create(weir_device *device, bool blocking, weir_stream *out);
weir_status weir__stream_destroy(weir_device *device, weir_stream stream);
weir_status weir__stream_get_id(weir_device *device, weir_stream stream, uint64_t *out);
weir_status weir__stream_get_flags(weir_device *device, weir_stream stream,
                                   bool *blocking);
weir_status weir__stream_is_capturing(weir_device *device, weir_stream stream,
                                      bool *out);
weir_status weir__stream_sync(weir_device *device, weir_stream stream);
weir_status weir__stream_query(weir_device *device, weir_stream stream, bool *done);
weir_status weir__stream_wait_event(weir_device *device, weir_stream stream,
                                    weir_event event);
weir_status weir__event_create(weir_device *device, weir_event *out);
weir_status weir__event_destroy(weir_device *device, weir_event event);
weir_status weir__event_record(weir_device *device, weir_event event,
                               weir_stream stream);
weir_status weir__event_record_all(weir_device *device, weir_event event);
/* Whether that is supported; no device call. */
bool weir__has_record_all(weir_device *device);
weir_status weir__event_query(weir_device *device, weir_event event, bool *done);
weir_status weir__event_sync(weir_device *device, weir_event event);
weir_status weir__device_sync(weir_device *device);
weir_status weir__memory_info(weir_device *device, size_t *free_bytes,
                              size_t *total_bytes);
weir_status weir__copy(weir_device *device, weir_stream stream,
                       void *dst, const void *src, size_t bytes);
weir_status weir__fill(weir_device *device, weir_stream stream,
                       void *ptr, uint8_t value, size_t bytes);
weir_status weir__launch(weir_device *device, weir_stream stream,
                         weir_emulated_kernel kernel, void *argument,
                         const weir_emulated_range *ranges, size_t count);
weir_status weir__enable_peer(weir_device *device, weir_device *peer);
weir_status weir__managed_malloc(weir_device *device, size_t bytes,
                                 const weir_managed_options *options, void **out);
weir_status weir__pinned_malloc(weir_device *device, size_t bytes, uint32_t flags,
                                void **out);
weir_status weir__pinned_free(weir_device *device, void *ptr);
weir_status weir__host_register(weir_device *device, void *ptr, size_t bytes,
                                uint32_t flags);
weir_status weir__host_unregister(weir_device *device, void *ptr);
weir_status weir__mempool_create(weir_device *device, const weir_async_options *options,
                                 weir_mempool *out);
weir_status weir__mempool_default(weir_device *device, weir_async_memory memory,
                                  weir_mempool *out);
weir_status weir__mempool_destroy(weir_device *device, weir_mempool pool);
weir_status weir__mempool_malloc(weir_device *device, weir_mempool pool,
                                 weir_stream stream, size_t bytes, void **out);
weir_status weir__mempool_free(weir_device *device, weir_stream stream, void *ptr);
weir_status weir__mempool_trim(weir_device *device, weir_mempool pool,
                               size_t keep_bytes);
weir_status weir__mempool_get_state(weir_device *device, weir_mempool pool,
                                    weir__mempool_state *out);

weir_status weir__shared_malloc(weir_device *device, weir_share_kind kind, size_t bytes,
                                void **out);
weir_status weir__shared_free(weir_device *device, void *ptr);
weir_status weir__shared_find(weir_device *device, const void *ptr, size_t bytes,
                              void **base, weir__shared *out);
weir_status weir__shared_export(weir_device *device, void *base, weir__shared *out);
weir_status weir__shared_open(weir_device *device, const weir__shared *from,
                              void **out);
weir_status weir__shared_close(weir_device *device, void *ptr);
weir_status weir__shared_event_create(weir_device *device, weir_event *out,
                                      weir__shared_event *handle);
weir_status weir__shared_event_open(weir_device *device,
                                    const weir__shared_event *handle, weir_event *out);

weir_status weir__range_reserve(weir_device *device, size_t bytes, void **out);
weir_status weir__range_release(weir_device *device, void *base, size_t bytes);
weir_status weir__range_map(weir_device *device, void *ptr, size_t bytes);
weir_status weir__range_unmap(weir_device *device, void *ptr, size_t bytes);
weir_status weir__prefetch(weir_device *device, weir_stream stream, void *ptr,
                           size_t bytes, weir__place place);
weir_status weir__prefer(weir_device *device, void *ptr, size_t bytes,
                         weir__place place);

static inline bool weir__device_is_cuda(const weir_device *device)
{
    return device->slot >= WEIR__DEVICE_ORDINALS;
}

/* The device that is open by that name, counted for the caller; null: none is. */
weir_device *weir__device_find(const char *name);

static inline weir_stream weir__stream_of(weir_stream stream)
{
    return stream == NULL ? WEIR_STREAM_LEGACY : stream;
}

static inline bool weir__device_is_lost(weir_device *device)
{
    return atomic_load(&device->lost);
}

/* What the ledger is told, where there is one (see weir__device_ops). */
static inline void weir__note_done(const weir_device *device, uint64_t key,
                                   weir_event event)
{
    if (WEIR_UNLIKELY(device->listens))
        device->ops->note_done(device->self, key, event);
}

static inline void weir__note_learn(const weir_device *device, uint64_t key)
{
    if (WEIR_UNLIKELY(device->listens))
        device->ops->note_learn(device->self, key);
}

static inline void weir__note_forget(const weir_device *device, uint64_t key,
                                     bool is_kept)
{
    if (WEIR_UNLIKELY(device->listens))
        device->ops->note_forget(device->self, key, is_kept);
}

static inline void weir__note_release(const weir_device *device, uint64_t capture)
{
    if (WEIR_UNLIKELY(device->listens))
        device->ops->note_release(device->self, capture);
}

static inline void weir__note_guard(const weir_device *device, void *ptr, size_t bytes,
                                    void *block, size_t block_bytes)
{
    if (WEIR_UNLIKELY(device->listens))
        device->ops->note_guard(device->self, ptr, bytes, block, block_bytes);
}

static inline void weir__note_inspect(const weir_device *device, bool begins)
{
    if (WEIR_UNLIKELY(device->listens))
        device->ops->note_inspect(device->self, begins);
}

/* What weir_device_open needs of each kind: makes the object, or says why not. */
weir_status weir__emulated_open(int32_t ordinal, const weir_emulated_options *options,
                                const weir__device_ops **ops, void **self);

/* Writes the whole of `from`, of which null is all zeros. INVALID_ARGUMENT: one is
 * negative, or no number. */
weir_status weir__costs_read(const weir_emulated_costs *from, weir_emulated_costs *out);

#endif
