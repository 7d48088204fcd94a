/* pending.c - see pending.h.
 *
 * Of those deferred each call looks after a few, oldest first, and asks the device
 * about their uses; who is not done yet goes to the end. One call at a time: a deleter
 * may end a buffer, and that one's call look for the next, and so on.
 *
 * What is in limbo carries a mark of what is set aside, and so is done with a point
 * behind all work of the device that was taken later (weir__order_all_point). Nobody
 * takes one before memory is wanted: when limbo is above its bound, or an allocation
 * finds nothing. While the oldest is behind one that is not done, there is no other.
 * Where the device has no such points, it takes a wait, and only the second reason is
 * good enough for that. */
#include "pending.h"

#include <assert.h>

#include "internal.h"
#include "storage.h"

#define LOOKS       4
#define LIMBO_BOUND ((size_t)64 << 20)

typedef struct list {
    weir_storage *first, *last;
    size_t count, bytes;
} list;

struct weir__pending {
    _Atomic bool is_wanted;  /* a look has something to do; read without the lock */
    weir__mutex lock;
    weir__cond settled;      /* nothing is in hands any more */
    list deferred, limbo;
    size_t in_hands;         /* neither there nor there: a call is at work on it */
    uint32_t drains;         /* that wait for that: who only looks takes nothing */
    uint64_t followed;       /* came from within deleters: who drains goes on then */
    uint64_t point;          /* number of the last point that was taken */
    bool has_no_points;      /* the device has none */
    atomic_bool is_looking;
};
static_assert(offsetof(struct weir__pending, is_wanted) == 0, "it comes first");

weir_status weir__pending_create(weir__pending **out)
{
    weir__pending *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a device's buffers");
    *self = (weir__pending){ .deferred = { .count = 0 } };
    atomic_init(&self->is_looking, false);
    weir__mutex_init(&self->lock, WEIR__RANK_PENDING);
    weir__cond_init(&self->settled);
    *out = self;
    return WEIR_OK;
}

void weir__pending_destroy(weir__pending *self)
{
    if (self == NULL)
        return;
    WEIR_CHECK(self->deferred.count == 0 && self->limbo.count == 0,
               "what waits keeps its device open");
    weir__cond_destroy(&self->settled);
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

/* Where it was popped. */
static void list_put_back(list *to, weir_storage *storage)
{
    storage->next = to->first;
    to->first = storage;
    if (to->last == NULL)
        to->last = storage;
    to->count++;
    to->bytes += storage->bytes;
}

static bool is_above_bound(const weir__pending *self)
{
    return self->limbo.bytes > LIMBO_BOUND && !self->has_no_points;
}

/* After each change. */
static void unlock(weir__pending *self)
{
    self->is_wanted = self->deferred.count > 0 || is_above_bound(self);
    weir__mutex_unlock(&self->lock);
}

static void push(weir__pending *self, list *to, weir_storage *storage)
{
    weir__mutex_lock(&self->lock);
    list_push(to, storage);
    self->followed += weir__own_thread.gives_back != 0;
    unlock(self);
}

/* ---- in hands ----
 *
 * What a call is at work on is in no list, and yet not given back. Who drains waits for
 * it, but not from within a deleter: that may be what others wait for. */

static void take_locked(weir__pending *self, size_t count)
{
    self->in_hands += count;
    if (count != 0)
        weir__own_thread.gives_back++;
}

static void settle_locked(weir__pending *self, size_t count)
{
    self->in_hands -= count;
    if (count != 0)
        weir__own_thread.gives_back--;
    if (self->in_hands == 0)
        weir__cond_broadcast(&self->settled);
}

/* Null: there is none; or somebody waits to drain, and the caller only looks. */
static weir_storage *pop(weir__pending *self, list *from, bool looks)
{
    weir__mutex_lock(&self->lock);
    weir_storage *storage = looks && self->drains > 0 ? NULL : list_pop(from);
    take_locked(self, storage != NULL);
    unlock(self);
    return storage;
}

/* What was popped is given back; or is where it was again, or goes to the end. */
static void settle(weir__pending *self, size_t count)
{
    weir__mutex_lock(&self->lock);
    settle_locked(self, count);
    unlock(self);
}

static void put_back(weir__pending *self, list *to, weir_storage *storage)
{
    weir__mutex_lock(&self->lock);
    list_put_back(to, storage);
    settle_locked(self, 1);
    unlock(self);
}

static void put_last(weir__pending *self, list *to, weir_storage *storage)
{
    weir__mutex_lock(&self->lock);
    list_push(to, storage);
    settle_locked(self, 1);
    unlock(self);
}

static list take_all(list *from)
{
    list all = *from;
    *from = (list){ NULL, NULL, 0, 0 };
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
    weir__storage_note_unnamed(storage, WEIR_WRITE); /* later than all uses */
    push(self, &self->limbo, storage);
}

/* ---- limbo ---- */

static bool is_done(weir_device *device, const weir_storage *storage)
{
    weir__mark mark = { WEIR__CLOCK_ASIDE, storage->unnamed_all };
    return weir__order_is_done(device->order, 0, mark) || weir__device_is_lost(device);
}

/* Gives back what is done of limbo, oldest first; whether there was any. */
static bool limbo_end_done(weir_device *device, bool looks)
{
    weir__pending *self = device->pending;
    bool any = false;
    for (weir_storage *storage; (storage = pop(self, &self->limbo, looks)) != NULL;) {
        if (!is_done(device, storage)) {
            put_back(self, &self->limbo, storage);
            break;
        }
        (void)weir__storage_end(storage, true);
        settle(self, 1);
        any = true;
    }
    return any;
}

/* Sees to it that the oldest in limbo is behind a point, and then all are. */
static bool limbo_take_point(weir_device *device)
{
    weir__pending *self = device->pending;
    weir__mutex_lock(&self->lock);
    const weir_storage *oldest = self->limbo.first;
    bool has_one = oldest == NULL || oldest->unnamed_all <= self->point;
    weir__mutex_unlock(&self->lock);
    if (has_one)
        return true;
    weir__mark point;
    weir_status status = weir__order_all_point(device->order, &point);
    weir__mutex_lock(&self->lock);
    if (status == WEIR_OK && self->point < point.number)
        self->point = point.number;
    if (status == WEIR_NOT_SUPPORTED)
        self->has_no_points = true;
    unlock(self);
    return status == WEIR_OK;
}

/* Without a wait. */
static bool limbo_end_some(weir_device *device, bool looks)
{
    bool any = limbo_end_done(device, looks);
    return (limbo_take_point(device) && limbo_end_done(device, looks)) || any;
}

/* With one, for all that is there now. The last in the list need not have come last:
 * two may come at once, or a drain that failed put back what was there before. */
static void limbo_end_sync(weir_device *device)
{
    weir__pending *self = device->pending;
    weir__mark newest = { WEIR__CLOCK_ASIDE, 0 };
    weir__mutex_lock(&self->lock);
    for (const weir_storage *it = self->limbo.first; it != NULL; it = it->next) {
        if (it->unnamed_all > newest.number)
            newest.number = it->unnamed_all;
    }
    weir__mutex_unlock(&self->lock);
    if (newest.number != 0 && weir__order_sync(device->order, newest) == WEIR_OK)
        (void)limbo_end_done(device, false);
}

static bool has_limbo(weir__pending *self)
{
    weir__mutex_lock(&self->lock);
    bool has = self->limbo.count > 0;
    weir__mutex_unlock(&self->lock);
    return has;
}

static bool is_short(weir_status status)
{
    return status == WEIR_OUT_OF_MEMORY || status == WEIR_LIMIT_REACHED;
}

weir_status weir__pending_allocate(weir_resource *mr, weir_stream stream, size_t bytes,
                                   size_t alignment, void **out)
{
    weir_device *device = weir_resource_device(mr);
    weir_status status = weir_allocate(mr, stream, bytes, alignment, out);
    if (WEIR_LIKELY(!is_short(status)) || !has_limbo(device->pending))
        return status;
    (void)weir__order_stock(device->order); /* for the point */
    if (limbo_end_some(device, false))
        status = weir_allocate(mr, stream, bytes, alignment, out);
    if (!is_short(status))
        return status;
    limbo_end_sync(device);
    return weir_allocate(mr, stream, bytes, alignment, out);
}

/* ---- giving back ---- */

void weir__pending_look_after(weir_device *device)
{
    weir__pending *self = device->pending;
    if (atomic_exchange(&self->is_looking, true))
        return;
    (void)weir_device_ref(device); /* one of these may be all that keeps it */
    weir__mutex_lock(&self->lock);
    size_t looks = self->deferred.count;
    weir__mutex_unlock(&self->lock);
    for (size_t i = 0; i < looks && i < LOOKS; i++) {
        weir_storage *storage = pop(self, &self->deferred, true);
        if (storage == NULL)
            break;
        if (weir__storage_end(storage, false))
            settle(self, 1);
        else
            put_last(self, &self->deferred, storage);
    }
    weir__mutex_lock(&self->lock);
    bool is_above = is_above_bound(self);
    weir__mutex_unlock(&self->lock);
    if (is_above)
        (void)limbo_end_some(device, true);
    atomic_store(&self->is_looking, false);
    weir_device_unref(device);
}

static void end_all(list all)
{
    for (weir_storage *storage; (storage = list_pop(&all)) != NULL;)
        (void)weir__storage_end(storage, true);
}

/* All that waits, for the caller alone; and nothing is in others' hands. Returns what
 * has followed so far. */
static uint64_t drain_begin(weir__pending *self, list *deferred, list *limbo)
{
    weir__mutex_lock(&self->lock);
    self->drains++;
    while (self->in_hands > 0 && weir__own_thread.gives_back == 0)
        weir__cond_wait(&self->settled, &self->lock);
    *deferred = take_all(&self->deferred);
    *limbo = take_all(&self->limbo);
    take_locked(self, deferred->count + limbo->count);
    self->drains--;
    const uint64_t followed = self->followed;
    unlock(self);
    return followed;
}

/* All that waits is given back, or, if that fails, waits again. *again: something has
 * followed. */
static weir_status drain_once(weir_device *device, bool *again)
{
    weir__pending *self = device->pending;
    weir_status status = WEIR_OK;
    list deferred, limbo;
    const uint64_t followed = drain_begin(self, &deferred, &limbo);
    const size_t taken = deferred.count + limbo.count;
    if (taken > 0)
        status = weir__order_device_sync(device->order);
    const bool ends = status == WEIR_OK || weir__device_is_lost(device);
    if (ends) {
        end_all(deferred);
        end_all(limbo);
    }
    weir__mutex_lock(&self->lock);
    for (weir_storage *storage; !ends && (storage = list_pop(&deferred)) != NULL;)
        list_push(&self->deferred, storage);
    for (weir_storage *storage; !ends && (storage = list_pop(&limbo)) != NULL;)
        list_push(&self->limbo, storage);
    settle_locked(self, taken);
    *again = ends && self->followed != followed;
    unlock(self);
    return status;
}

weir_status weir_device_drain_sync(weir_device *device)
{
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (device == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the device is null");
    (void)weir_device_ref(device); /* as above */
    bool again;
    do {
        const weir_status once = drain_once(device, &again);
        status = status == WEIR_OK ? once : status;
    } while (again);
    weir_device_unref(device);
    return status;
}

weir_status weir_device_get_pending(weir_device *device, weir_pending *out)
{
    const weir_pending none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__enter();
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
