/* ipc_import.c - what other processes export, here: mapped, kept while it may be wanted
 * again, and unmapped. src/ipc_open.c asks for it. */
#include <string.h>
#include <unistd.h>

#include "ipc.h"
#include "ipc_courier.h"
#include "ipc_import.h"

#define SEND_MS 1000
#define SOON_MS 5 /* until work is asked about again that was not done */

#ifdef WEIR_TESTING /* long enough to open again, and short enough to wait for */
#define IDLE_MS 1000
#else
#define IDLE_MS WEIR_IPC_IDLE_MS
#endif

/* ---- the list ---- */

static void list_add(weir__import *self) WEIR_REQUIRES(weir__ipc_all.lock)
{
    self->next = weir__ipc_all.imports;
    weir__ipc_all.imports = self;
}

void weir__import_unlist(weir__import *self)
{
    weir__import **link = &weir__ipc_all.imports;
    while (*link != self)
        link = &(*link)->next;
    *link = self->next;
}

/* Nobody holds it any more, and its deleter has still to be called: that can be long,
 * for a caller may have been given it, or nobody knows yet what to wait for. */
static bool is_left(const weir__import *self)
{
    return self->state == WEIR__IMPORT_OPEN && self->storage != NULL &&
           !weir__storage_is_held(self->storage);
}

/* Whoever asks for what `made` is may have this. */
static bool is_good_for(const weir__import *self, const weir__import *made)
{
    return self->device == made->device && self->access == made->access &&
           !self->is_gone && !self->is_over && !is_left(self) &&
           memcmp(&self->ticket, &made->ticket, sizeof made->ticket) == 0;
}

/* The service cannot end while there is one on the list. */
static weir_status add_new(weir__import *made) WEIR_REQUIRES(weir__ipc_all.lock)
{
    weir_status status = weir__ipc_start(false);
    if (status == WEIR_OK)
        list_add(made);
    return status;
}

static weir__import *find(const weir__import *made) WEIR_REQUIRES(weir__ipc_all.lock)
{
    weir__import *found = weir__ipc_all.imports;
    while (found != NULL && !is_good_for(found, made))
        found = found->next;
    return found;
}

/* Until something has changed, perhaps. */
static weir_status wait_for_change(int64_t deadline) WEIR_REQUIRES(weir__ipc_all.lock)
{
    int64_t left = deadline - weir__ipc_now();
    if (left <= 0)
        return weir__fail(WEIR_PEER_GONE, "another thread asks the exporter about the "
                          "ticket, and has no answer in time");
    weir__cond_wait_for(&weir__ipc_all.changed, &weir__ipc_all.lock, (uint32_t)left);
    return WEIR_OK;
}

weir_status weir__import_take(weir__import *made, int64_t deadline, weir__import **out)
{
    weir_status status = WEIR_OK;
    weir__mutex_lock(&weir__ipc_all.lock);
    *out = find(made);
    while (status == WEIR_OK && *out != NULL && (*out)->state == WEIR__IMPORT_ASKING) {
        status = wait_for_change(deadline);
        *out = find(made);
    }
    if (status == WEIR_OK && *out == NULL) {
        status = add_new(made);
        *out = made;
    }
    if (status == WEIR_OK)
        (*out)->state = WEIR__IMPORT_ASKING;
    weir__mutex_unlock(&weir__ipc_all.lock);
    return status;
}

void weir__import_put(weir__import *self, weir__import_state state,
                      weir_storage *storage)
{
    weir__ipc *it = &weir__ipc_all;
    weir__mutex_lock(&it->lock);
    self->state = state;
    self->storage = storage;
    self->idle_since = weir__ipc_now();
    weir__ipc_wake();
    weir__cond_broadcast(&it->changed);
    weir__mutex_unlock(&it->lock);
}

void weir__import_mark(weir__import *self, weir_status why)
{
    weir__mutex_lock(&weir__ipc_all.lock);
    if (why == WEIR_NOT_FOUND)
        self->is_over = true;
    else
        self->is_gone = true;
    weir__mutex_unlock(&weir__ipc_all.lock);
}

void weir__import_drop(weir__import *self)
{
    weir__ipc *it = &weir__ipc_all;
    weir__mutex_lock(&it->lock);
    weir__import_unlist(self);
    weir__cond_broadcast(&it->changed);
    weir__mutex_unlock(&it->lock);
    weir__import_free(self);
}

/* ---- what the ledger is told: who has seen the work done tells who unmaps ---- */

static void tell_done(const weir__import *self)
{
    weir__note_done(self->device, (uintptr_t)self, NULL);
}

static void tell_unmapped(const weir__import *self)
{
    weir__note_learn(self->device, (uintptr_t)self);
    weir__note_forget(self->device, (uintptr_t)self, false);
}

/* What the close left on its stream; a stepped device moves on by being asked. */
static bool is_done(weir__import *self)
{
    bool done = true;
    if (self->is_used && !weir__device_is_lost(self->device) &&
        weir__event_query(self->device, self->back, &done) != WEIR_OK)
        done = weir__device_is_lost(self->device);
    if (done && self->is_used)
        tell_done(self);
    if (done)
        self->is_used = false;
    return done;
}

/* ---- a pool's block, that its driver wants freed before its exporter does ---- */

static bool must_be_freed(const weir__import *self)
{
    return self->kind == WEIR_SHARE_POOL && self->base != NULL && !self->is_freed;
}

/* Behind what is on `stream`. */
static bool free_on(weir__import *self, weir_stream stream)
{
    if (weir__order_stream_is_captured(self->device->order, stream))
        return false;
    self->is_freed = weir__mempool_free(self->device, stream, self->base) == WEIR_OK;
    return self->is_freed;
}

/* All that has used it is done: on a stream of its own, and the host waits. False: it
 * is not known to be free. */
static bool free_sync(weir__import *self)
{
    weir_stream fresh;
    weir_device *device = self->device;
    if (weir__stream_create(device, false, &fresh) != WEIR_OK)
        return false;
    bool is_done = free_on(self, fresh) && weir__stream_sync(device, fresh) == WEIR_OK;
    (void)weir__stream_destroy(device, fresh);
    return is_done;
}

bool weir__import_free_unused(weir__import *self)
{
    return !must_be_freed(self) || free_sync(self);
}

/* ---- the end of the last buffer ---- */

/* For the exporter, whose bytes may be used again behind what is on `stream`. */
static bool record_back(weir__import *self, weir_stream stream)
{
    if (self->back == NULL ||
        weir__order_stream_is_captured(self->device->order, stream))
        return false;
    /* The event stands for all who have used it since it was mapped. */
    if (!is_done(self) &&
        weir__stream_wait_event(self->device, stream, self->back) != WEIR_OK)
        return false;
    if (weir__event_record(self->device, self->back, stream) != WEIR_OK)
        return false;
    self->is_used = true;
    return true;
}

/* The host waits for what is on `stream`. */
static bool finish_sync(weir__import *self, weir_stream stream)
{
    if (weir__order_stream_sync(self->device->order, stream) == WEIR_OK &&
        weir__import_free_unused(self))
        return true;
    return weir__device_is_lost(self->device);
}

/* False: nobody knows when the work ends. It stays mapped until the device closes, and
 * the exporter learns of the end with the process. */
static bool close_on(weir__import *self, weir_stream stream)
{
    weir__message message = { .kind = WEIR__MESSAGE_CLOSE,
                              .memory = { .fd = -1 },
                              .event = { .fd = -1 } };
    if (self->kind == WEIR_SHARE_POOL)
        weir__import_mark(self, WEIR_NOT_FOUND); /* who opens it next maps it anew */
    message.has_event = (!must_be_freed(self) || free_on(self, stream)) &&
                        record_back(self, stream);
    if (message.has_event)
        message.event = self->back_handle;
    message.event_has_fd = message.event.fd >= 0;
    if (!message.has_event && !finish_sync(self, stream))
        return false;
    if (self->fd < 0 || weir__socket_send(self->fd, &message, SEND_MS) != WEIR_OK)
        weir__import_mark(self, WEIR_PEER_GONE);
    else
        self->late_answers++;
    return true;
}

static void end_import(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    weir__import *self = context;
    weir__ipc *it = &weir__ipc_all;
    (void)ptr;
    (void)bytes;
    weir__mutex_lock(&it->lock);
    while (self->state == WEIR__IMPORT_ASKING)
        weir__cond_wait(&it->changed, &it->lock);
    weir_storage *storage = self->storage;
    self->state = WEIR__IMPORT_ASKING;
    weir__mutex_unlock(&it->lock);
    bool is_closed = close_on(self, stream);
    tell_done(self);
    weir__storage_drop_record(storage);
    /* The device may close after this. */
    weir__import_put(self, is_closed ? WEIR__IMPORT_CLOSED : WEIR__IMPORT_OPEN, NULL);
}

bool weir__storage_is_import(const weir_storage *storage)
{
    return storage->deleter == end_import || weir__storage_is_detached(storage);
}

weir__import *weir__import_of(const weir_storage *storage)
{
    return storage->deleter == end_import ? storage->context : NULL;
}

weir_deleter weir__import_deleter(void)
{
    return end_import;
}

/* ---- the service's part ---- */

static void hang_up(weir__import *self)
{
    (void)close(self->fd);
    self->fd = -1;
    self->is_gone = true;
}

void weir__import_read(weir__import *self)
{
    weir__message message;
    weir_status status = weir__socket_receive(self->fd, &self->peer, 0, &message);
    if (status == WEIR_NOT_FOUND)
        return;
    if (status == WEIR_OK)
        weir__message_close(&message); /* it has nothing to send unasked */
    if (status == WEIR_OK && message.kind == WEIR__MESSAGE_OVER)
        self->is_over = true;
    else if (status == WEIR_OK && message.kind == WEIR__MESSAGE_ANSWER &&
             self->late_answers > 0)
        self->late_answers--;
    else
        hang_up(self);
}

static void no_later_than(int64_t *next, int64_t when)
{
    if (*next < 0 || when < *next)
        *next = when;
}

bool weir__import_is_idle(weir__import *self, int64_t now, int64_t *next)
{
    bool may_go = self->state == WEIR__IMPORT_CLOSED &&
                  (self->late_answers == 0 || self->is_gone);
    bool must_push = self->state != WEIR__IMPORT_ASKING && self->is_used &&
                     weir__ipc_must_push(self->device);
    int64_t until = self->idle_since + IDLE_MS;
    bool is_due = may_go && (self->is_gone || self->is_over || now >= until);
    if (may_go && !is_due)
        no_later_than(next, until);
    if (!is_due && !must_push)
        return false;
    if (is_done(self))
        return is_due;
    no_later_than(next, now + SOON_MS);
    return false;
}

void weir__import_free(weir__import *self)
{
    weir_device *device = self->device;
    tell_unmapped(self);
    (void)weir__import_free_unused(self); /* it was not opened, or the device ends */
    if (self->base != NULL)
        (void)weir__shared_close(device, self->base);
    if (self->event != NULL)
        (void)weir__event_destroy(device, self->event);
    if (self->back != NULL)
        (void)weir__event_destroy(device, self->back);
    if (self->back_handle.fd >= 0)
        (void)close(self->back_handle.fd);
    if (self->fd >= 0)
        (void)close(self->fd);
    weir__peer_close(&self->peer);
    weir__host_free(self);
}

/* ---- all at once ---- */

/* Of any device (null) what is closed; of one that ends all that has no buffer. */
static bool may_unmap(const weir__import *self, const weir_device *device)
{
    if (device == NULL)
        return self->state == WEIR__IMPORT_CLOSED;
    return self->device == device && self->state != WEIR__IMPORT_ASKING &&
           self->storage == NULL;
}

/* Off the list; null: there is none. */
static weir__import *take_closed(const weir_device *device)
{
    weir__ipc *it = &weir__ipc_all;
    weir__mutex_lock(&it->lock);
    weir__import *found = it->imports;
    while (found != NULL && !may_unmap(found, device))
        found = found->next;
    if (found != NULL) {
        weir__import_unlist(found);
        it->unmapping++;
    }
    weir__mutex_unlock(&it->lock);
    return found;
}

/* Nobody else listens to it now: the event that its exporter was told of must live
 * until he knows. */
static void await_answers(weir__import *self)
{
    weir__message message = { .kind = WEIR__MESSAGE_ANSWER };
    while (self->late_answers > 0 && self->fd >= 0 &&
           (message.kind == WEIR__MESSAGE_ANSWER ||
            message.kind == WEIR__MESSAGE_OVER) &&
           weir__socket_receive(self->fd, &self->peer, SEND_MS, &message) == WEIR_OK) {
        weir__message_close(&message);
        if (message.kind == WEIR__MESSAGE_ANSWER)
            self->late_answers--;
    }
}

/* Waits for work that uses it. On failure it is as it was, unless it must go. */
static weir_status unmap(weir__import *self, bool must_go)
{
    weir__ipc *it = &weir__ipc_all;
    weir_status status = WEIR_OK;
    if (self->is_used && !weir__device_is_lost(self->device))
        status = weir__event_sync(self->device, self->back);
    bool goes = status == WEIR_OK || must_go;
    if (goes) {
        await_answers(self);
        weir__import_free(self);
    }
    weir__mutex_lock(&it->lock);
    if (!goes)
        list_add(self);
    it->unmapping--;
    weir__ipc_wake();
    weir__cond_broadcast(&it->changed);
    weir__mutex_unlock(&it->lock);
    return status;
}

weir_status weir_ipc_trim_sync(void)
{
    weir_status status = weir__enter();
    weir__import *found;
    while (status == WEIR_OK && (found = take_closed(NULL)) != NULL)
        status = unmap(found, false);
    return status;
}

void weir__ipc_device_ends(weir_device *device)
{
    weir__ipc *it = &weir__ipc_all;
    bool others = true;
    while (others) {
        weir__import *found;
        while ((found = take_closed(device)) != NULL)
            (void)unmap(found, true);
        weir__export_push(device, NULL);
        weir__mutex_lock(&it->lock);
        others = it->unmapping > 0; /* this device's, perhaps */
        while (it->unmapping > 0)
            weir__cond_wait(&it->changed, &it->lock);
        weir__mutex_unlock(&it->lock);
    }
    weir__courier_drop(device);
    weir__ipc_settle();
}
