/* primitives.c - the way to a device's primitives: every call passes through here, is
 * counted, and is refused once the device is lost. */
#include "device/device.h"
#include "internal.h"
#include "sync.h"

/* Before each: false (with the reason recorded) if the device is lost. */
static bool may_call(weir_device *device, weir__call call)
{
    if (weir__device_is_lost(device)) {
        weir__failed(WEIR_DEVICE_LOST, 0, "%s is lost", device->name);
        return false;
    }
    atomic_fetch_add_explicit(&device->calls[call], 1, memory_order_relaxed);
    weir__yield();
    return true;
}

/* After each: remembers a loss. */
static weir_status seen(weir_device *device, weir_status status)
{
    if (status == WEIR_DEVICE_LOST)
        atomic_store(&device->lost, true);
    return status;
}

#define CALL(device, name, ...)                                                  \
    (may_call(device, WEIR__CALL_##name)                                         \
         ? seen(device, (device)->ops->name((device)->self, __VA_ARGS__))        \
         : WEIR_DEVICE_LOST)

weir_status weir__malloc(weir_device *device, size_t bytes, void **out)
{
    return CALL(device, malloc, bytes, out);
}

weir_status weir__free(weir_device *device, void *ptr)
{
    return CALL(device, free, ptr);
}

weir_status weir__host_malloc(weir_device *device, size_t bytes, size_t alignment,
                              void **out)
{
    return CALL(device, host_malloc, bytes, alignment, out);
}

weir_status weir__host_free_device(weir_device *device, void *ptr)
{
    return CALL(device, host_free, ptr);
}

weir_status weir__stream_create(weir_device *device, bool blocking, weir_stream *out)
{
    return CALL(device, stream_create, blocking, out);
}

weir_status weir__stream_destroy(weir_device *device, weir_stream stream)
{
    return CALL(device, stream_destroy, stream);
}

weir_status weir__stream_get_id(weir_device *device, weir_stream stream, uint64_t *out)
{
    return CALL(device, stream_get_id, weir__stream_of(stream), out);
}

weir_status weir__stream_get_flags(weir_device *device, weir_stream stream,
                                   bool *blocking)
{
    return CALL(device, stream_get_flags, weir__stream_of(stream), blocking);
}

weir_status weir__stream_is_capturing(weir_device *device, weir_stream stream,
                                      bool *out)
{
    return CALL(device, stream_is_capturing, weir__stream_of(stream), out);
}

weir_status weir__stream_sync(weir_device *device, weir_stream stream)
{
    return CALL(device, stream_sync, weir__stream_of(stream));
}

weir_status weir__stream_query(weir_device *device, weir_stream stream, bool *done)
{
    return CALL(device, stream_query, weir__stream_of(stream), done);
}

weir_status weir__stream_wait_event(weir_device *device, weir_stream stream,
                                    weir_event event)
{
    return CALL(device, stream_wait_event, weir__stream_of(stream), event);
}

weir_status weir__event_create(weir_device *device, weir_event *out)
{
    return CALL(device, event_create, out);
}

weir_status weir__event_destroy(weir_device *device, weir_event event)
{
    return CALL(device, event_destroy, event);
}

weir_status weir__event_record(weir_device *device, weir_event event,
                               weir_stream stream)
{
    return CALL(device, event_record, event, weir__stream_of(stream));
}

bool weir__has_record_all(weir_device *device)
{
    return device->ops->has_record_all(device->self);
}

weir_status weir__event_record_all(weir_device *device, weir_event event)
{
    return CALL(device, event_record_all, event);
}

weir_status weir__event_query(weir_device *device, weir_event event, bool *done)
{
    return CALL(device, event_query, event, done);
}

weir_status weir__event_sync(weir_device *device, weir_event event)
{
    return CALL(device, event_sync, event);
}

weir_status weir__device_sync(weir_device *device)
{
    if (!may_call(device, WEIR__CALL_device_sync))
        return WEIR_DEVICE_LOST;
    return seen(device, device->ops->device_sync(device->self));
}

weir_status weir__memory_info(weir_device *device, size_t *free_bytes,
                              size_t *total_bytes)
{
    return CALL(device, memory_info, free_bytes, total_bytes);
}

weir_status weir__copy(weir_device *device, weir_stream stream,
                       void *dst, const void *src, size_t bytes)
{
    return CALL(device, copy, weir__stream_of(stream), dst, src, bytes);
}

weir_status weir__fill(weir_device *device, weir_stream stream,
                       void *ptr, uint8_t value, size_t bytes)
{
    return CALL(device, fill, weir__stream_of(stream), ptr, value, bytes);
}

weir_status weir__launch(weir_device *device, weir_stream stream,
                         weir_emulated_kernel kernel, void *argument,
                         const weir_emulated_range *ranges, size_t count)
{
    return CALL(device, launch, weir__stream_of(stream), kernel, argument, ranges,
                count);
}

weir_status weir__enable_peer(weir_device *device, weir_device *peer)
{
    return CALL(device, enable_peer, peer->self);
}

weir_status weir__managed_malloc(weir_device *device, size_t bytes,
                                 const weir_managed_options *options, void **out)
{
    return CALL(device, managed_malloc, bytes, options, out);
}

weir_status weir__pinned_malloc(weir_device *device, size_t bytes, uint32_t flags,
                                void **out)
{
    return CALL(device, pinned_malloc, bytes, flags, out);
}

weir_status weir__pinned_free(weir_device *device, void *ptr)
{
    return CALL(device, pinned_free, ptr);
}

weir_status weir__host_register(weir_device *device, void *ptr, size_t bytes,
                                uint32_t flags)
{
    return CALL(device, host_register, ptr, bytes, flags);
}

weir_status weir__host_unregister(weir_device *device, void *ptr)
{
    return CALL(device, host_unregister, ptr);
}

weir_status weir__mempool_create(weir_device *device, const weir_async_options *options,
                                 weir_mempool *out)
{
    return CALL(device, mempool_create, options, out);
}

weir_status weir__mempool_default(weir_device *device, weir_async_memory memory,
                                  weir_mempool *out)
{
    return CALL(device, mempool_default, memory, out);
}

weir_status weir__mempool_destroy(weir_device *device, weir_mempool pool)
{
    return CALL(device, mempool_destroy, pool);
}

weir_status weir__mempool_malloc(weir_device *device, weir_mempool pool,
                                 weir_stream stream, size_t bytes, void **out)
{
    return CALL(device, mempool_malloc, pool, weir__stream_of(stream), bytes, out);
}

weir_status weir__mempool_free(weir_device *device, weir_stream stream, void *ptr)
{
    return CALL(device, mempool_free, weir__stream_of(stream), ptr);
}

weir_status weir__mempool_trim(weir_device *device, weir_mempool pool,
                               size_t keep_bytes)
{
    return CALL(device, mempool_trim, pool, keep_bytes);
}

weir_status weir__mempool_get_state(weir_device *device, weir_mempool pool,
                                    weir__mempool_state *out)
{
    return CALL(device, mempool_get_state, pool, out);
}

weir_status weir__shared_malloc(weir_device *device, weir_share_kind kind, size_t bytes,
                                void **out)
{
    return CALL(device, shared_malloc, kind, bytes, out);
}

weir_status weir__shared_free(weir_device *device, void *ptr)
{
    return CALL(device, shared_free, ptr);
}

weir_status weir__shared_find(weir_device *device, const void *ptr, size_t bytes,
                              void **base, weir__shared *out)
{
    return CALL(device, shared_find, ptr, bytes, base, out);
}

weir_status weir__shared_export(weir_device *device, void *base, weir__shared *out)
{
    return CALL(device, shared_export, base, out);
}

weir_status weir__shared_open(weir_device *device, const weir__shared *from, void **out)
{
    return CALL(device, shared_open, from, out);
}

weir_status weir__shared_close(weir_device *device, void *ptr)
{
    return CALL(device, shared_close, ptr);
}

weir_status weir__shared_event_create(weir_device *device, weir_event *out,
                                      weir__shared_event *handle)
{
    return CALL(device, shared_event_create, out, handle);
}

weir_status weir__shared_event_open(weir_device *device,
                                    const weir__shared_event *handle, weir_event *out)
{
    return CALL(device, shared_event_open, handle, out);
}

weir_status weir__range_reserve(weir_device *device, size_t bytes, void **out)
{
    return CALL(device, range_reserve, bytes, out);
}

weir_status weir__range_release(weir_device *device, void *base, size_t bytes)
{
    return CALL(device, range_release, base, bytes);
}

weir_status weir__range_map(weir_device *device, void *ptr, size_t bytes)
{
    return CALL(device, range_map, ptr, bytes);
}

weir_status weir__range_unmap(weir_device *device, void *ptr, size_t bytes)
{
    return CALL(device, range_unmap, ptr, bytes);
}

weir_status weir__prefetch(weir_device *device, weir_stream stream, void *ptr,
                           size_t bytes, weir__place place)
{
    return CALL(device, prefetch, weir__stream_of(stream), ptr, bytes, place);
}

weir_status weir__prefer(weir_device *device, void *ptr, size_t bytes,
                         weir__place place)
{
    return CALL(device, prefer, ptr, bytes, place);
}
