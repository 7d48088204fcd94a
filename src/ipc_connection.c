/* ipc_connection.c - what the service does for one importer: it lets it in, and out
 * again behind its event, or once its process has ended. */
#include <string.h>
#include <unistd.h>

#include "ipc_courier.h"
#include "ipc_internal.h"
#include "weir/stream.h"

#define SEND_MS 1000

static bool answer(weir__connection *self, const weir__message *message)
{
    return weir__socket_send(self->fd, message, SEND_MS) == WEIR_OK;
}

static bool answer_status(weir__connection *self, weir_status status)
{
    weir__message message = { .kind = WEIR__MESSAGE_ANSWER,
                              .status = status,
                              .memory = { .fd = -1 },
                              .event = { .fd = -1 } };
    return answer(self, &message);
}

/* Nothing more is read from it. Bytes that it holds it holds until its process has
 * ended: only then nothing can use them. */
static void hang_up(weir__connection *self)
{
    weir__mutex_lock(&weir__ipc_all.lock);
    if (self->fd >= 0)
        (void)close(self->fd);
    self->fd = -1;
    weir__mutex_unlock(&weir__ipc_all.lock);
}

static void refuse(weir__connection *self)
{
    weir__mutex_lock(&weir__ipc_all.lock);
    weir__ipc_all.refused++;
    weir__mutex_unlock(&weir__ipc_all.lock);
    hang_up(self);
}

static void set_open(weir__connection *self, bool is_open)
{
    weir__mutex_lock(&weir__ipc_all.lock);
    self->is_open = is_open;
    weir__mutex_unlock(&weir__ipc_all.lock);
}

static void exit_and_leave(weir__export *export)
{
    weir_storage *storage = export->storage;
    weir__export_exit(export);
    weir__storage_leave(storage, &WEIR__HOLDER_NONE);
}

/* Lets go of the bytes, behind what was noted. */
static void leave(weir__connection *self)
{
    exit_and_leave(self->export);
    set_open(self, false);
}

/* ---- in ---- */

/* It has entered: sends all that it needs. */
static weir_status send_memory(weir__connection *self)
{
    weir__export *export = self->export;
    weir__message message = { .kind = WEIR__MESSAGE_ANSWER,
                              .status = WEIR_OK,
                              .has_memory = true,
                              .has_event = export->has_event,
                              .event = { .fd = -1 } };
    if (export->has_event)
        message.event = export->handle;
    message.event_has_fd = message.event.fd >= 0;
    weir_status status = weir__shared_export(export->device, export->base,
                                             &message.memory);
    if (status != WEIR_OK)
        return status;
    bool is_sent = answer(self, &message);
    if (message.memory.fd >= 0)
        (void)close(message.memory.fd);
    return is_sent ? WEIR_OK : WEIR_PEER_GONE;
}

static void read_open(weir__connection *self, const weir__message *message)
{
    weir__export *export = weir__export_find(&message->ticket);
    weir_status status = WEIR_NOT_FOUND;
    if (export != NULL) {
        weir__connections_drain(export, self);
        status = weir__export_enter(export, message->access, WEIR__HOLDER_NONE);
    }
    if (status != WEIR_OK) {
        if (export != NULL)
            weir__export_unref(export);
        (void)answer_status(self, status);
        refuse(self);
        return;
    }
    self->export = export;
    self->access = message->access;
    set_open(self, true);
    status = send_memory(self);
    if (status == WEIR_OK)
        return;
    leave(self); /* it never had them */
    if (status != WEIR_PEER_GONE)
        (void)answer_status(self, status);
    hang_up(self);
}

/* It has the memory mapped. Open: asks for one who shares what it has. */
static void read_again(weir__connection *self, const weir__message *message)
{
    weir__export *export = self->export;
    weir_status status = WEIR_NOT_FOUND;
    if (memcmp(&message->ticket, &export->ticket, sizeof export->ticket) == 0) {
        weir__connections_drain(export, self);
        status = weir__export_enter(export, message->access, WEIR__HOLDER_NONE);
    }
    if (status == WEIR_OK && message->access == WEIR_WRITE)
        self->access = WEIR_WRITE;
    bool is_new = status == WEIR_OK && !self->is_open;
    if (is_new)
        set_open(self, true);
    else if (status == WEIR_OK)
        exit_and_leave(export);
    if (answer_status(self, status))
        return;
    if (is_new)
        leave(self); /* it was not told */
    hang_up(self);
}

/* ---- out ---- */

/* What a ticket lets several write: who opens it next is behind all who have closed. */
static weir_status hand_on(weir__export *export, weir_stream courier)
{
    if (!export->has_event || export->access != WEIR_WRITE)
        return WEIR_OK;
    weir_status status = weir__stream_wait_event(export->device, courier,
                                                 export->event);
    if (status == WEIR_OK)
        status = weir__event_record(export->device, export->event, courier);
    return status;
}

/* What is on a courier's stream from now on is behind the importer, which is noted. */
static weir_status follow(weir__connection *self, weir_event event)
{
    weir__export *export = self->export;
    weir_device *device = export->device;
    weir__holder courier;
    weir_status status = weir__courier_find(device, &courier);
    if (status == WEIR_OK && device->ops->note_foreign != NULL)
        device->ops->note_foreign(device->self, event, export->data, export->size,
                                  self->access == WEIR_WRITE);
    if (status == WEIR_OK)
        status = weir__stream_wait_event(device, courier.stream, event);
    if (status != WEIR_OK)
        return status;
    (void)weir__storage_note_user(export->storage, courier, self->access);
    return hand_on(export, courier.stream);
}

/* Without an event its host has waited. */
static weir_status let_out(weir__connection *self, const weir__message *message)
{
    weir_event event;
    weir_device *device = self->export->device;
    if (!message->has_event)
        return WEIR_OK;
    weir_status status = weir__shared_event_open(device, &message->event, &event);
    if (status != WEIR_OK)
        return status;
    status = follow(self, event);
    if (status != WEIR_OK)
        status = weir__event_sync(device, event);
    (void)weir__event_destroy(device, event);
    return status;
}

static void read_close(weir__connection *self, const weir__message *message)
{
    weir_status status = let_out(self, message);
    if (status != WEIR_OK && !weir__device_is_lost(self->export->device)) {
        hang_up(self); /* until its process has ended */
        return;
    }
    leave(self);
    if (!answer_status(self, WEIR_OK))
        hang_up(self);
}

/* ---- what comes ---- */

static void read_message(weir__connection *self, const weir__message *message)
{
    if (message->kind == WEIR__MESSAGE_OPEN && self->export == NULL)
        read_open(self, message);
    else if (message->kind == WEIR__MESSAGE_AGAIN && self->export != NULL)
        read_again(self, message);
    else if (message->kind == WEIR__MESSAGE_CLOSE && self->is_open)
        read_close(self, message);
    else
        refuse(self);
}

bool weir__connection_read(weir__connection *self)
{
    weir__message message;
    weir_status status = weir__socket_receive(self->fd, &self->peer, 0, &message);
    if (status == WEIR_NOT_FOUND)
        return false;
    if (status == WEIR_OK) {
        read_message(self, &message);
        weir__message_close(&message);
    } else if (status == WEIR_PEER_GONE) {
        hang_up(self);
    } else {
        refuse(self);
    }
    return true;
}

void weir__connection_ended(weir__connection *self)
{
    hang_up(self);
    if (self->is_open)
        leave(self);
}

void weir__connection_tell(weir__connection *self)
{
    const weir__message message = { .kind = WEIR__MESSAGE_OVER,
                                    .memory = { .fd = -1 },
                                    .event = { .fd = -1 } };
    self->is_told = true;
    if (!answer(self, &message))
        hang_up(self);
}

void weir__connection_free(weir__connection *self)
{
    hang_up(self);
    weir__peer_close(&self->peer);
    if (self->export != NULL)
        weir__export_unref(self->export);
    weir__host_free(self);
}
