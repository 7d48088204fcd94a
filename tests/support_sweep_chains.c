/* support_sweep_chains.c - see support_sweep.h: the chains of resources, and who asks
 * for host memory. */
#include "device/device.h"
#include "internal.h"
#include "support_sweep.h"

/* ---- the resources ---- */

/* What `make_below` makes, and over it what `make` makes, which keeps it alive. */
static weir_status make_over(weir_device *device,
                             weir_status (*make_below)(weir_device *, weir_resource **),
                             weir_status (*make)(weir_resource *, weir_resource **),
                             weir_resource **out)
{
    *out = NULL;
    weir_resource *below = NULL;
    weir_status status = make_below(device, &below);
    must((status == WEIR_OK) == (below != NULL));
    if (status != WEIR_OK)
        return status;
    status = make(below, out);
    must((status == WEIR_OK) == (*out != NULL));
    weir_resource_unref(below);
    return status;
}

static weir_status make_pool_part(weir_resource *upstream, weir_resource **out)
{
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = CHUNK;
    options.limit_bytes = 4 * CHUNK;
    return weir_pool_create(upstream, &options, out);
}

static weir_status make_limiting_part(weir_resource *upstream, weir_resource **out)
{
    return weir_limiting_create(upstream, 64 * CHUNK, out);
}

static weir_status make_pool(weir_device *device, weir_resource **out)
{
    return make_over(device, weir_device_resource_create, make_pool_part, out);
}

static weir_status make_pool_system(weir_device *device, weir_resource **out)
{
    return make_over(device, weir_system_resource_create, make_pool_part, out);
}

static weir_status make_limiting(weir_device *device, weir_resource **out)
{
    return make_over(device, make_pool, make_limiting_part, out);
}

static weir_status make_statistics(weir_device *device, weir_resource **out)
{
    return make_over(device, make_pool, weir_statistics_create, out);
}

static weir_status make_pool_pool(weir_device *device, weir_resource **out)
{
    return make_over(device, make_pool, make_pool_part, out);
}

static weir_status make_logging_part(weir_resource *upstream, weir_resource **out)
{
    return weir_logging_create(upstream, "/dev/null", NULL, out);
}

static weir_status make_logging(weir_device *device, weir_resource **out)
{
    return make_over(device, make_pool, make_logging_part, out);
}

/* The functions behind the leaf `callback`: memory of a leaf of its own. */
static weir_status callback_allocate(void *context, weir_stream stream, size_t bytes,
                                     size_t alignment, void **out)
{
    return weir_allocate(context, stream, bytes, alignment, out);
}

static void callback_deallocate(void *context, weir_stream stream, void *ptr,
                                size_t bytes, size_t alignment)
{
    must(weir_deallocate(context, stream, ptr, bytes, alignment));
}

static void callback_destroy(void *context)
{
    weir_resource_unref(context);
}

static weir_status make_callback_part(weir_resource *below, weir_resource **out)
{
    const weir_callbacks calls = { .struct_size = sizeof calls,
                                   .allocate = callback_allocate,
                                   .deallocate = callback_deallocate,
                                   .destroy = callback_destroy,
                                   .usable_at_once = true };
    weir_status status =
        weir_callback_create(weir_resource_device(below), &calls, below, out);
    if (status == WEIR_OK)
        weir_resource_ref(below);
    return status;
}

static weir_status make_callback(weir_device *device, weir_resource **out)
{
    return make_over(device, weir_device_resource_create, make_callback_part, out);
}

static weir_status make_async(weir_device *device, weir_resource **out)
{
    return weir_async_create(device, NULL, out);
}

static weir_status make_pool_async(weir_device *device, weir_resource **out)
{
    return make_over(device, make_async, make_pool_part, out);
}

const sweep_chain sweep_chains[SWEEP_CHAINS] = {
    { "device", "device", false, false, weir_device_resource_create, false },
    { "system", "system", false, false, weir_system_resource_create, false },
    { "callback", NULL, false, true, make_callback, false },
    { "pool/device", "pool/device", true, false, make_pool, false },
    { "pool/system", "pool/system", true, false, make_pool_system, false },
    { "limiting/pool/device", NULL, true, false, make_limiting, false },
    { "statistics/pool/device", "statistics/pool/device", true, false,
      make_statistics, false },
    { "pool/pool/device", "pool/pool/device", true, false, make_pool_pool, false },
    { "async", "async", false, false, make_async, true },
    { "pool/async", "pool/async", true, false, make_pool_async, true },
    { "logging/pool/device", "logging(/dev/null)/pool/device", true, false,
      make_logging, false },
};

/* ---- host memory that the library asks for ---- */

/* While a block is given back the device's calls go through these, which add up the
 * host memory that an emulated device asks for by itself: a stream of it is a list on
 * the host. What remains was the library's. */
static uint64_t device_asked;

#define OWN(returned, name, parameters, arguments)                               \
    static returned own_##name parameters                                        \
    {                                                                            \
        uint64_t before = weir__host_calls();                                    \
        returned answer = real->name arguments;                                  \
        device_asked += weir__host_calls() - before;                             \
        return answer;                                                           \
    }
#define OWN_NOTE(name, parameters, arguments)                                    \
    static void own_##name parameters                                            \
    {                                                                            \
        uint64_t before = weir__host_calls();                                    \
        real->name arguments;                                                    \
        device_asked += weir__host_calls() - before;                             \
    }

static const weir__device_ops *real;

OWN(weir_status, free, (void *self, void *ptr), (self, ptr))
OWN(weir_status, host_free, (void *self, void *ptr), (self, ptr))
OWN(weir_status, stream_get_id, (void *self, weir_stream stream, uint64_t *out),
    (self, stream, out))
OWN(weir_status, stream_get_flags, (void *self, weir_stream stream, bool *blocking),
    (self, stream, blocking))
OWN(weir_status, stream_is_capturing, (void *self, weir_stream stream, bool *out),
    (self, stream, out))
OWN(weir_status, stream_wait_event, (void *self, weir_stream stream, weir_event event),
    (self, stream, event))
OWN(weir_status, event_create, (void *self, weir_event *out), (self, out))
OWN(weir_status, event_record, (void *self, weir_event event, weir_stream stream),
    (self, event, stream))
OWN(weir_status, event_record_all, (void *self, weir_event event), (self, event))
OWN(weir_status, event_query, (void *self, weir_event event, bool *done),
    (self, event, done))
OWN(weir_status, mempool_free, (void *self, weir_stream stream, void *ptr),
    (self, stream, ptr))
OWN(weir_status, copy, (void *self, weir_stream stream, void *dst, const void *src,
                        size_t bytes), (self, stream, dst, src, bytes))
OWN(weir_status, fill, (void *self, weir_stream stream, void *ptr, uint8_t value,
                        size_t bytes), (self, stream, ptr, value, bytes))
OWN_NOTE(note_guard, (void *self, void *ptr, size_t bytes, void *block,
                      size_t block_bytes), (self, ptr, bytes, block, block_bytes))
OWN_NOTE(note_inspect, (void *self, bool begins), (self, begins))
OWN_NOTE(note_deallocate,
         (void *self, weir_stream stream, void *ptr, size_t bytes),
         (self, stream, ptr, bytes))
OWN_NOTE(note_done, (void *self, uint64_t key, weir_event event), (self, key, event))
OWN_NOTE(note_learn, (void *self, uint64_t key), (self, key))
OWN_NOTE(note_forget, (void *self, uint64_t key, bool is_kept), (self, key, is_kept))

static weir__device_ops own_ops;
static uint64_t asked_before;

void sweep_watch_library(weir_device *device)
{
    real = device->ops;
    own_ops = *real;
    own_ops.free = own_free;
    own_ops.host_free = own_host_free;
    own_ops.stream_get_id = own_stream_get_id;
    own_ops.stream_get_flags = own_stream_get_flags;
    own_ops.stream_is_capturing = own_stream_is_capturing;
    own_ops.stream_wait_event = own_stream_wait_event;
    own_ops.event_create = own_event_create;
    own_ops.event_record = own_event_record;
    own_ops.event_record_all = own_event_record_all;
    own_ops.event_query = own_event_query;
    own_ops.mempool_free = own_mempool_free;
    own_ops.copy = own_copy;
    own_ops.fill = own_fill;
    own_ops.note_guard = own_note_guard;
    own_ops.note_inspect = own_note_inspect;
    own_ops.note_deallocate = own_note_deallocate;
    own_ops.note_done = own_note_done;
    own_ops.note_learn = own_note_learn;
    own_ops.note_forget = own_note_forget;
    device->ops = &own_ops;
    device_asked = 0;
    asked_before = weir__host_calls();
}

void sweep_watch_no_more(weir_device *device)
{
    device->ops = real;
}

void sweep_library_must_not_have_asked(weir_device *device)
{
    sweep_watch_no_more(device);
    must_equal(weir__host_calls() - asked_before, device_asked);
}
