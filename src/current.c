/* current.c - a device's current resource, and a thread's current stream on it.
 *
 * Who keeps whom: a resource keeps its device open, so one that the device held without
 * more would keep it open for ever. One that was set does, until null is set. The
 * device's own, made here, does not:
 *
 *     user, resources ---> device ===> own resource (a pool) ---> its leaf
 *                            ^____________|________________________|
 *
 * The device holds it (===>) only as long as it has other references than those of that
 * chain. When the last of the others goes, the device lets go: if nobody else has the
 * resource, both end. If somebody has, it goes on like any resource and keeps the
 * device open; the device still knows it, and gives it to who asks, until its own last
 * unref, which is told under the lock.
 *
 * A thread's current streams lie in one record on the heap with a place for each name
 * that a device can have. Beside the stream stands the serial number of the device that
 * was open by that name then: of one opened later the thread knows nothing. Nobody but
 * the thread reads or writes it, so there is no lock. */
#include "weir/current.h"

#include <string.h>

#include "current.h"
#include "device/device.h"
#include "internal.h"
#include "resource_parts.h"

static weir_status check(const weir_device *device)
{
    weir_status status = weir__enter();
    if (status == WEIR_OK && device == NULL)
        status = weir__fail(WEIR_INVALID_ARGUMENT, "the device is null");
    return status;
}

/* ---- with the device ---- */

void weir__current_begin(weir_device *device)
{
    weir__mutex_init(&device->current.lock, WEIR__RANK_CURRENT);
}

void weir__current_end(weir_device *device)
{
    const weir__current *self = &device->current;
    WEIR_CHECK(self->set == NULL && self->own == NULL,
               "a device is closed while it has a resource");
    weir__mutex_destroy(&device->current.lock);
}

static bool has_other_references(const weir_device *device)
{
    return atomic_load(&device->references) > device->current.own_references;
}

weir_resource *weir__current_let_go(weir_device *device)
{
    weir__current *self = &device->current;
    weir_resource *own = NULL;
    weir__mutex_lock(&self->lock);
    if (self->own_is_held && !has_other_references(device)) {
        self->own_is_held = false;
        own = self->own;
    }
    weir__mutex_unlock(&self->lock);
    return own;
}

uint64_t weir__current_own_unref(weir_resource *mr)
{
    weir__current *self = &mr->device->current;
    weir__mutex_lock(&self->lock);
    uint64_t before = atomic_fetch_sub(&mr->counts, 1);
    if ((before & REFERENCES_MASK) == 1) {
        WEIR_CHECK(!self->own_is_held, "unreferenced too often");
        self->own = NULL;
        self->own_references = 0;
    }
    /* It counts its blocks itself, so it lives until close() is called for this; and
     * with it the device, and this lock. */
    weir__mutex_unlock(&self->lock);
    return before;
}

/* ---- the current resource ---- */

/* With a reference for the caller; null: there is none yet. Who asks holds, as a rule,
 * the device, and then the device may hold its own again. */
static weir_resource *current_locked(weir_device *device)
    WEIR_REQUIRES(device->current.lock)
{
    weir__current *self = &device->current;
    if (self->set != NULL)
        return weir_resource_ref(self->set);
    if (self->own == NULL)
        return NULL;
    if (!self->own_is_held && has_other_references(device)) {
        self->own_is_held = true;
        weir_resource_ref(self->own);
    }
    return weir_resource_ref(self->own);
}

/* Makes `made` the device's own, with its reference, if there is none. */
static bool adopt_locked(weir_device *device, weir_resource *made)
    WEIR_REQUIRES(device->current.lock)
{
    weir__current *self = &device->current;
    if (self->own != NULL)
        return false;
    WEIR_CHECK(made->counting != NULL, "its last unref may be told under a lock");
    made->is_devices_own = true;
    self->own = made;
    self->own_is_held = true;
    for (weir_resource *it = made; it != NULL; it = it->upstream)
        self->own_references++;
    WEIR_CHECK(self->own_references <= WEIR__CURRENT_OWN_REFERENCES_MAX,
               "nobody counts on more");
    return true;
}

weir_status weir_current_resource(weir_device *device, weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_status status = check(device);
    if (status != WEIR_OK)
        return status;

    weir__current *self = &device->current;
    weir__mutex_lock(&self->lock);
    *out = current_locked(device);
    weir__mutex_unlock(&self->lock);
    if (*out != NULL)
        return WEIR_OK;

    /* Without the lock: another thread may be quicker, and then it is that one's. */
    weir_resource *made;
    status = weir_resource_open(device, "pool/device", &made);
    if (status != WEIR_OK)
        return status;
    weir__mutex_lock(&self->lock);
    bool is_adopted = adopt_locked(device, made);
    *out = current_locked(device);
    weir__mutex_unlock(&self->lock);
    if (!is_adopted)
        weir_resource_unref(made);
    return WEIR_OK;
}

weir_status weir_set_current_resource(weir_device *device, weir_resource *mr,
                                      weir_resource **old)
{
    if (old != NULL)
        *old = NULL;
    weir_status status = check(device);
    if (status != WEIR_OK)
        return status;
    if (mr != NULL && mr->device != device)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is a resource of %s, not of %s",
                          mr->ops.name, mr->device->name, device->name);

    weir__current *self = &device->current;
    weir__mutex_lock(&self->lock);
    weir_resource *before = self->set;
    self->set = mr != NULL && mr != self->own ? weir_resource_ref(mr) : NULL;
    weir__mutex_unlock(&self->lock);
    if (old != NULL)
        *old = before;
    else
        weir_resource_unref(before);
    return WEIR_OK;
}

/* ---- the current stream ---- */

typedef struct stream_place {
    uint64_t serial; /* of the device; 0: none is set */
    weir_stream stream;
} stream_place;

struct weir__thread_streams {
    uint32_t used;
    stream_place places[WEIR__DEVICE_SLOTS];
};

weir_stream weir_current_stream(weir_device *device)
{
    const struct weir__thread_streams *streams = weir__own_thread.streams;
    if (streams == NULL || device == NULL || weir__is_forked())
        return NULL;
    const stream_place *place = &streams->places[device->slot];
    return place->serial == device->serial ? place->stream : NULL;
}

static struct weir__thread_streams *streams_here(void)
{
    weir__thread *thread = weir__thread_self();
    if (thread->streams != NULL ||
        !weir__thread_watch_exit(WEIR__KEEPS_STREAMS, weir__host_free))
        return thread->streams;
    thread->streams = weir__host_alloc(sizeof *thread->streams);
    if (thread->streams != NULL)
        memset(thread->streams, 0, sizeof *thread->streams);
    return thread->streams;
}

static weir_status remember(const weir_device *device, weir_stream stream)
{
    struct weir__thread_streams *streams = streams_here();
    if (streams == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "no memory to remember the thread's current stream");
    stream_place *place = &streams->places[device->slot];
    if (place->serial == 0)
        streams->used++;
    *place = (stream_place){ device->serial, stream };
    return WEIR_OK;
}

/* The last that is forgotten takes the record with it. */
static void forget(const weir_device *device)
{
    struct weir__thread_streams *streams = weir__own_thread.streams;
    if (streams == NULL || streams->places[device->slot].serial == 0)
        return;
    streams->places[device->slot] = (stream_place){ 0, NULL };
    if (--streams->used == 0) {
        weir__own_thread.streams = NULL;
        weir__host_free(streams);
    }
}

weir_status weir_set_current_stream(weir_device *device, weir_stream stream,
                                    weir_stream *old)
{
    if (old != NULL)
        *old = NULL;
    weir_status status = check(device);
    if (status != WEIR_OK)
        return status;
    weir_stream before = weir_current_stream(device);
    if (stream == NULL)
        forget(device);
    else
        status = remember(device, stream);
    if (status == WEIR_OK && old != NULL)
        *old = before;
    return status;
}
