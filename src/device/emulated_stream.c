/* emulated_stream.c - handles, and what one can ask of a stream.
 *
 * A handle is used again for the next stream after its own was destroyed, on purpose
 * and at once: code that keeps handles too long meets a living stream with another id,
 * as it would on a real device. Handles stay in memory until the device closes, so
 * that a dead one can be told from a living one.
 *
 * The per-thread stream of a host thread is made when the thread first names it, and
 * ends with the thread. */
#include <stdatomic.h>

#include "device/emulated.h"

#define HANDLE_MAGIC      UINT64_C(0x5745495253545245)
#define HANDLES_PER_SLAB  64

typedef struct handle_slab {
    weir__slab slab;
    weir__handle handles[HANDLES_PER_SLAB];
} handle_slab;

/* ---- from handles to queues ---- */

static weir_status fail_handle(weir_stream stream, const char *why)
{
    return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_BAD_HANDLE,
                             "%p is no stream of this device: %s", (void *)stream, why);
}

static weir_status own_stream_find(weir__emulated *device, weir__queue **out)
{
    uint64_t thread = weir__this_thread();
    for (weir__own_stream *own = device->own_streams; own != NULL; own = own->next) {
        if (own->thread == thread) {
            *out = own->queue;
            return WEIR_OK;
        }
    }
    weir__own_stream *own = weir__host_alloc(sizeof *own);
    if (own == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a per-thread stream");
    weir_status status = weir__queue_make(device, false, true, &own->queue);
    if (status != WEIR_OK) {
        weir__host_free(own);
        return status;
    }
    own->thread = thread;
    own->next = device->own_streams;
    device->own_streams = own;
    *out = own->queue;
    return WEIR_OK;
}

static weir_status handle_find(weir__emulated *device, weir_stream stream,
                               weir__handle **out)
{
    if (!weir__emulated_may_keep(stream))
        return fail_handle(stream, "it never was a handle");
    weir__handle *handle = (weir__handle *)(void *)stream;
    if (handle->magic != HANDLE_MAGIC)
        return fail_handle(stream, "it never was a handle");
    if (handle->device != device)
        return fail_handle(stream, "it belongs to another device");
    if (handle->queue == NULL)
        return fail_handle(stream, "it was destroyed");
    *out = handle;
    return WEIR_OK;
}

weir_status weir__stream_find(weir__emulated *device, weir_stream stream,
                              weir__queue **out)
{
    if (stream == WEIR_STREAM_LEGACY) {
        *out = device->legacy;
        return WEIR_OK;
    }
    if (stream == WEIR_STREAM_PER_THREAD)
        return own_stream_find(device, out);
    weir__handle *handle = NULL;
    weir_status status = handle_find(device, stream, &handle);
    if (status == WEIR_OK)
        *out = handle->queue;
    return status;
}

/* ---- making and ending ---- */

static weir_status handles_grow(weir__emulated *device)
{
    handle_slab *slab = weir__emulated_keep(device, sizeof *slab);
    if (slab == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for streams");
    for (size_t i = HANDLES_PER_SLAB; i-- > 0;) {
        slab->handles[i] = (weir__handle){ .magic = HANDLE_MAGIC, .device = device,
                                           .next_free = device->free_handles };
        device->free_handles = &slab->handles[i];
    }
    return WEIR_OK;
}

weir_status weir__stream_make(weir__emulated *device, bool blocking, weir_stream *out)
{
    weir__queue *queue;
    weir_status status = WEIR_OK;
    if (device->free_handles == NULL)
        status = handles_grow(device);
    if (status == WEIR_OK)
        status = weir__queue_make(device, false, blocking, &queue);
    if (status != WEIR_OK)
        return status;
    weir__handle *handle = device->free_handles;
    device->free_handles = handle->next_free;
    handle->queue = queue;
    *out = (weir_stream)(void *)handle;
    return WEIR_OK;
}

weir_status weir__stream_end(weir__emulated *device, weir_stream stream)
{
    if (stream == WEIR_STREAM_LEGACY || stream == WEIR_STREAM_PER_THREAD)
        return weir__fail(WEIR_INVALID_ARGUMENT, "a default stream never ends");
    weir__handle *handle = NULL;
    weir_status status = handle_find(device, stream, &handle);
    if (status != WEIR_OK)
        return status;
    weir__queue_detach(handle->queue);
    handle->queue = NULL;
    handle->next_free = device->free_handles;
    device->free_handles = handle;
    return WEIR_OK;
}

static void own_stream_free(weir__own_stream *own)
{
    weir__queue_detach(own->queue);
    weir__host_free(own);
}

void weir__stream_end_own(weir__emulated *device, uint64_t thread)
{
    weir__own_stream **link = &device->own_streams;
    while (*link != NULL && (*link)->thread != thread)
        link = &(*link)->next;
    weir__own_stream *own = *link;
    if (own == NULL)
        return;
    *link = own->next;
    own_stream_free(own);
}

static void slab_detach(weir__emulated *device, handle_slab *slab)
{
    for (size_t i = 0; i < HANDLES_PER_SLAB; i++) {
        if (slab->handles[i].queue != NULL)
            (void)weir__stream_end(device, (weir_stream)(void *)&slab->handles[i]);
    }
}

void weir__streams_detach(weir__emulated *device)
{
    for (weir__slab *slab = device->slabs; slab != NULL; slab = slab->next) {
        handle_slab *handles = (handle_slab *)(void *)slab;
        if (handles->handles[0].magic == HANDLE_MAGIC)
            slab_detach(device, handles);
    }
    while (device->own_streams != NULL) {
        weir__own_stream *own = device->own_streams;
        device->own_streams = own->next;
        own_stream_free(own);
    }
    if (device->everything != NULL)
        weir__queue_detach(device->everything);
    if (device->legacy != NULL)
        weir__queue_detach(device->legacy);
    device->everything = device->legacy = NULL;
}

/* ---- primitives ---- */

weir_status weir__emulated_stream_create(void *device, bool blocking, weir_stream *out)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_stream_create);
    if (status == WEIR_OK)
        status = weir__stream_make(self, blocking, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir__emulated_stream_destroy(void *device, weir_stream stream)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_stream_destroy);
    if (status == WEIR_OK)
        status = weir__stream_end(self, stream);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* The head of what asks something of a stream. */
static weir_status begin_on(weir__emulated *self, weir__call call, weir_stream stream,
                            weir__queue **out)
{
    weir_status status = weir__emulated_begin(self, call);
    return status == WEIR_OK ? weir__stream_find(self, stream, out) : status;
}

/* Who a stream is nobody may ask while it is captured; the legacy one is not. */
static weir_status forbid_name(weir__queue *queue)
{
    return queue->is_legacy ? WEIR_OK : weir__capture_forbid(queue->device, queue);
}

weir_status weir__emulated_stream_get_id(void *device, weir_stream stream,
                                         uint64_t *out)
{
    weir__emulated *self = device;
    weir__queue *queue;
    weir_status status = begin_on(self, WEIR__CALL_stream_get_id, stream, &queue);
    if (status == WEIR_OK)
        status = forbid_name(queue);
    if (status == WEIR_OK)
        *out = queue->id;
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir__emulated_stream_get_flags(void *device, weir_stream stream,
                                            bool *blocking)
{
    weir__emulated *self = device;
    weir__queue *queue;
    weir_status status = begin_on(self, WEIR__CALL_stream_get_flags, stream, &queue);
    if (status == WEIR_OK)
        status = forbid_name(queue);
    if (status == WEIR_OK)
        *blocking = queue->is_blocking;
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir__emulated_stream_is_capturing(void *device, weir_stream stream,
                                               bool *out)
{
    weir__emulated *self = device;
    weir__queue *queue;
    weir_status status = begin_on(self, WEIR__CALL_stream_is_capturing, stream, &queue);
    if (status == WEIR_OK)
        *out = weir__capture_has(queue);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* ---- waiting and asking ---- */

/* What the ledger says the host will know after a wait that begins now; null without a
 * ledger. */
static weir__ledger_position *look(weir__emulated *self, const weir__queue *queue)
{
    if (self->ledger == NULL)
        return NULL;
    if (queue != NULL)
        return weir__ledger_look(self->ledger, queue->id);
    return weir__ledger_record_all(self->ledger, weir__this_thread(), self);
}

static void learn(weir__emulated *self, weir__ledger_position *position, bool learned)
{
    if (position == NULL)
        return;
    if (learned)
        weir__ledger_host_wait(self->ledger, weir__this_thread(), position);
    weir__ledger_unref(self->ledger, position);
}

static weir_status wait_locked(weir__emulated *self, weir__queue *queue)
{
    weir_status status = weir__capture_forbid(self, queue);
    if (status != WEIR_OK)
        return status;
    weir__position upto = { .queue = NULL, .issue = self->issue };
    weir__ledger_position *seen = look(self, queue);
    if (queue != NULL)
        upto = weir__queue_position(weir__queue_ref(queue));
    status = weir__schedule_wait(self, upto);
    if (status == WEIR_OK)
        weir__mempools_learn(self, upto);
    weir__queue_unref(queue);
    learn(self, seen, status == WEIR_OK);
    return status;
}

weir_status weir__emulated_stream_sync(void *device, weir_stream stream)
{
    weir__emulated *self = device;
    weir__queue *queue;
    weir_status status = begin_on(self, WEIR__CALL_stream_sync, stream, &queue);
    if (status == WEIR_OK)
        status = wait_locked(self, queue);
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir__emulated_device_sync(void *device)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_device_sync);
    if (status == WEIR_OK)
        status = wait_locked(self, NULL);
    weir__mutex_unlock(&self->lock);
    return status;
}

static weir_status query_locked(weir__emulated *self, weir__queue *queue, bool *done)
{
    weir_status status = weir__capture_forbid(self, queue);
    if (status != WEIR_OK)
        return status;
    *done = weir__schedule_query(self, weir__queue_position(queue));
    if (*done)
        learn(self, look(self, queue), true);
    return WEIR_OK;
}

weir_status weir__emulated_stream_query(void *device, weir_stream stream, bool *done)
{
    weir__emulated *self = device;
    weir__queue *queue;
    weir_status status = begin_on(self, WEIR__CALL_stream_query, stream, &queue);
    if (status == WEIR_OK)
        status = query_locked(self, queue, done);
    weir__mutex_unlock(&self->lock);
    return status;
}
