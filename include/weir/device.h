/* weir/device.h - a device: one GPU, or one emulated in software.
 *
 * A process has one weir_device per GPU: opening it again gives the same one with one
 * more reference, so that everything that shares the GPU shares its stream order. */
#ifndef WEIR_DEVICE_H
#define WEIR_DEVICE_H

#include "weir/status.h"
#include "weir/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weir_emulated_options; /* weir/emulated.h */

/* Zero asks for the default; start from WEIR_DEVICE_OPTIONS_INIT. */
typedef struct weir_device_options {
    size_t struct_size;
    /* Records an event at every deallocation. Otherwise that begins once the device has
     * met a second stream: what was freed before is then waited for with an event
     * at the end of its stream, behind whatever was put there since. */
    bool eager;
    /* For emulated devices; null: all defaults. Copied. */
    const struct weir_emulated_options *emulated;
} weir_device_options;

#define WEIR_DEVICE_OPTIONS_INIT { sizeof(weir_device_options), false, NULL }

/* Opens the device called `name`:
 *   "auto"          the first CUDA device, or else "emulated"
 *   "emulated"      the same as "emulated:0"
 *   "emulated:N"    emulated device number N, 0 to 15
 *   "cuda:N"        CUDA device number N
 * `options` may be null. A device that is open already is the one returned; options
 * that differ from those it was opened with are refused with INVALID_ARGUMENT.
 *
 *   INVALID_ARGUMENT   the name or the options have no meaning
 *   NOT_SUPPORTED      no such device here, or this build has no module for it
 *   DEVICE_ERROR       it is there, and failed to start */
WEIR_API WEIR_NODISCARD weir_status
weir_device_open(const char *name, const weir_device_options *options,
                 weir_device **out);

/* Shares `device`, and returns it. The last unref closes it: an emulated one ends,
 * after a wait on the host for work that still runs; a CUDA device is only let go of,
 * and its work goes on: its primary context stays until the process ends, unless it
 * was never used, or is lost. Resources hold a reference each, and so do adopted bytes
 * (weir/buffer.h), also where nothing but their deleter is left, which waits for uses:
 * without later calls nobody looks whether these are done, so weir_device_drain_sync
 * comes before the last unref. Null is ignored. */
WEIR_API weir_device *weir_device_ref(weir_device *device);
WEIR_API void         weir_device_unref(weir_device *device);

typedef struct weir_device_properties {
    size_t struct_size;
    const char *name;        /* as for weir_device_open: "emulated:0"; lives with it */
    const char *description; /* for people; lives with the device */
    bool emulated;
    int32_t ordinal;
    uint8_t uuid[16];        /* the same in every process */
    size_t memory_bytes;     /* in all */
    bool lost;               /* it has failed for good, or the program has reset it
                                (cudaDeviceReset) */
    /* Managed memory may be touched by the host while work runs; and it moves to where
     * it is told to (concurrentManagedAccess). */
    bool concurrent_managed;
    bool pageable_access;    /* work reaches ordinary host memory, as malloc's */
} weir_device_properties;

/* Fills *out, whose struct_size the caller has set. */
WEIR_API WEIR_NODISCARD weir_status
weir_device_get_properties(weir_device *device, weir_device_properties *out);

/* How many bytes of the device's memory are free, and how many there are in all. */
WEIR_API WEIR_NODISCARD weir_status
weir_device_memory(weir_device *device, size_t *free_bytes, size_t *total_bytes);

/* Lets work of `device` touch the memory of `peer`, from now on; but not that of
 * its own pools (weir/async.h), each of which has its own say (cudaMemPoolSetAccess).
 * NOT_SUPPORTED: the two cannot reach each other. Asking twice
 * does nothing. */
WEIR_API WEIR_NODISCARD weir_status
weir_device_enable_peer(weir_device *device, weir_device *peer);

/* Waits on the host until all work put on any stream of `device` is done. CAPTURING: a
 * stream is being captured, or declared so (see weir/capture.h), which that would
 * spoil; who declares one meanwhile goes on when this has ended. */
WEIR_API WEIR_NODISCARD weir_status weir_device_sync(weir_device *device);

/* How often Weir has called into the device, by kind of call, since it was opened. */
#define WEIR_DEVICE_CALL_MAP(X)                                                  \
    X(malloc) X(free) X(host_malloc) X(host_free) X(memory_info)                \
    X(stream_create) X(stream_destroy) X(stream_get_id) X(stream_get_flags)     \
    X(stream_is_capturing) X(stream_sync) X(stream_query) X(stream_wait_event)  \
    X(event_create) X(event_destroy) X(event_record) X(event_query)             \
    X(event_sync) X(device_sync) X(copy) X(fill) X(launch) X(enable_peer)       \
    X(managed_malloc) X(pinned_malloc) X(pinned_free)                           \
    X(host_register) X(host_unregister)                                         \
    X(mempool_create) X(mempool_default) X(mempool_destroy)                     \
    X(mempool_malloc) X(mempool_free) X(mempool_trim) X(mempool_get_state)      \
    X(event_record_all)                                                         \
    X(shared_malloc) X(shared_free) X(shared_find) X(shared_export)             \
    X(shared_open) X(shared_close) X(shared_event_create) X(shared_event_open)  \
    X(range_reserve) X(range_release) X(range_map) X(range_unmap)               \
    X(prefetch) X(prefer)

typedef struct weir_device_calls {
    size_t struct_size;
#define WEIR_DEVICE_CALL_COUNT(name) uint64_t name;
    WEIR_DEVICE_CALL_MAP(WEIR_DEVICE_CALL_COUNT)
#undef WEIR_DEVICE_CALL_COUNT
} weir_device_calls;

/* Fills *out, whose struct_size the caller has set. */
WEIR_API WEIR_NODISCARD weir_status
weir_device_get_calls(weir_device *device, weir_device_calls *out);

#ifdef __cplusplus
}
#endif
#endif
