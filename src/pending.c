/* pending.c - see pending.h.
 *
 * Of those deferred each call looks after a few, oldest first, and asks the device
 * about their uses; who is not done yet goes to the end. What is in limbo waits for a
 * point behind all work of the device: nobody takes one before memory is wanted. */
#include "pending.h"

#include "internal.h"
#include "storage.h"

#define LOOKS       4
#define LIMBO_BOUND ((size_t)64 << 20)

typedef struct list {
    weir_storage *first, *last;
    size_t count, bytes;
} list;

struct weir__pending {
    weir__mutex lock;
    list deferred, limbo;
    _Atomic size_t deferred_count; /* that of the list, to be read without the lock */
};

weir_status weir__pending_create(weir__pending **out)
{
    weir__pending *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a device's buffers");
    *self = (weir__pending){ .deferred = { .count = 0 } };
    weir__mutex_init(&self->lock, WEIR__RANK_PENDING);
    *out = self;
    return WEIR_OK;
}

void weir__pending_destroy(weir__pending *self)
{
    if (self == NULL)
        return;
    WEIR_CHECK(self->deferred.count == 0 && self->limbo.count == 0,
               "what waits keeps its device open");
    weir__mutex_destroy(&self->lock);
    weir__host_free(self);
}

/* ---- lists ---- */

static void list_push(list *to, weir_storage *storage)
{
    storage->next = NULL;
    if (to->last != NULL)
        to->last->next = storage;
    else
        to->first = storage;
    to->last = storage;
    to->count++;
    to->bytes += storage->bytes;
}

static weir_storage *list_pop(list *from)
{
    weir_storage *storage = from->first;
    if (storage == NULL)
        return NULL;
    from->first = storage->next;
    if (from->first == NULL)
        from->last = NULL;
    from->count--;
    from->bytes -= storage->bytes;
    return storage;
}

static void push(weir__pending *self, list *to, weir_storage *storage)
{
    weir__mutex_lock(&self->lock);
    list_push(to, storage);
    self->deferred_count = self->deferred.count;
    weir__mutex_unlock(&self->lock);
}

static weir_storage *pop(weir__pending *self, list *from)
{
    weir__mutex_lock(&self->lock);
    weir_storage *storage = list_pop(from);
    self->deferred_count = self->deferred.count;
    weir__mutex_unlock(&self->lock);
    return storage;
}

/* All of `from`, for the caller alone. */
static list take_all(weir__pending *self, list *from)
{
    weir__mutex_lock(&self->lock);
    list all = *from;
    *from = (list){ NULL, NULL, 0, 0 };
    self->deferred_count = self->deferred.count;
    weir__mutex_unlock(&self->lock);
    return all;
}

void weir__pending_defer(weir_storage *storage)
{
    weir__pending *self = storage->device->pending;
    push(self, &self->deferred, storage);
}

void weir__pending_to_limbo(weir_storage *storage)
{
    weir__pending *self = storage->device->pending;
    push(self, &self->limbo, storage);
}

/* ---- giving back ---- */

void weir__pending_look(weir_device *device)
{
    weir__pending *self = device->pending;
    if (WEIR_LIKELY(self->deferred_count == 0))
        return;
    (void)weir_device_ref(device); /* one of these may be all that keeps it */
    for (int i = 0; i < LOOKS; i++) {
        weir_storage *storage = pop(self, &self->deferred);
        if (storage != NULL && !weir__storage_end(storage, false))
            push(self, &self->deferred, storage);
    }
    weir_device_unref(device);
}

static void end_all(list all)
{
    for (weir_storage *storage; (storage = list_pop(&all)) != NULL;)
        (void)weir__storage_end(storage, true);
}

weir_status weir_device_drain_sync(weir_device *device)
{
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (device == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the device is null");
    weir__pending *self = device->pending;
    (void)weir_device_ref(device); /* as above */
    list deferred = take_all(self, &self->deferred);
    list limbo = take_all(self, &self->limbo);
    if (deferred.count + limbo.count > 0)
        status = weir__order_device_sync(device->order);
    if (status == WEIR_OK || weir__device_is_lost(device)) {
        end_all(deferred);
        end_all(limbo);
    } else {
        for (weir_storage *storage; (storage = list_pop(&deferred)) != NULL;)
            push(self, &self->deferred, storage);
        for (weir_storage *storage; (storage = list_pop(&limbo)) != NULL;)
            push(self, &self->limbo, storage);
    }
    weir_device_unref(device);
    return status;
}

weir_status weir_device_get_pending(weir_device *device, weir_pending *out)
{
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (device == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the device is null");
    weir__pending *self = device->pending;
    weir__mutex_lock(&self->lock);
    weir_pending it = {
        .struct_size = sizeof it,
        .deferred_count = self->deferred.count,
        .deferred_bytes = self->deferred.bytes,
        .limbo_count = self->limbo.count,
        .limbo_bytes = self->limbo.bytes,
        .limbo_bound = LIMBO_BOUND
    };
    weir__mutex_unlock(&self->lock);
    return weir__fill_out(out, &it, sizeof it);
}
