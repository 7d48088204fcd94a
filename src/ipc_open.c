/* ipc_open.c - opening a ticket: as a share of this process's own bytes, or by asking
 * the exporter, or (detached) by what it says itself. */
#include <string.h>
#include <unistd.h>

#include "buffer_internal.h"
#include "ipc_import.h"
#include "pending.h"

#define TIMEOUT_MS 10000

/* What all ways of opening go by. */
typedef struct asked {
    weir_device *device;
    weir_stream stream;
    const weir_ticket *ticket;
    weir__ticket it;       /* what it says */
    weir_access access;
    uint32_t timeout_ms;
    int64_t deadline;      /* that is when, by weir__ipc_now */
} asked;

static weir_status fail_refused(weir_status status)
{
    const char *why = status == WEIR_NOT_FOUND   ? "knows of no such ticket (any more)"
                      : status == WEIR_NOT_OWNED ? "lets nobody write"
                                                 : "could not share the memory";
    return weir__fail(status, "the exporter %s", why);
}

static uint32_t left_ms(const asked *by)
{
    int64_t left = by->deadline - weir__ipc_now();
    return left > 0 ? (uint32_t)left : 0;
}

/* A buffer that shows the ticket's part of `base`. */
static void show(const asked *by, void *base, weir_buffer *out)
{
    out->data = (char *)base + by->it.offset;
    out->size = out->capacity = (size_t)by->it.bytes;
}

/* ---- this process's own ---- */

static weir_status open_local(const asked *by, weir__export *export, weir_buffer *out)
{
    weir__holder holder;
    weir_status status = weir__holder_make(by->device, by->stream, &holder);
    if (status != WEIR_OK)
        return status;
    weir__service_drain(export);
    status = weir__export_enter(export, by->access, holder);
    if (status != WEIR_OK)
        return fail_refused(status);
    weir_storage *storage = export->storage;
    if (export->has_event)
        status = weir__stream_wait_event(by->device, by->stream, export->event);
    if (status == WEIR_OK) {
        *out = weir__buffer_of(storage, NULL, holder);
        show(by, export->base, out);
    } else {
        weir__storage_leave(storage, &holder);
    }
    weir__export_exit(export);
    return status;
}

/* ---- another's ---- */

static weir__import *import_new(const asked *by)
{
    weir__import *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return NULL;
    *self = (weir__import){ .ticket = *by->ticket,
                            .device = by->device,
                            .access = by->access,
                            .kind = by->it.kind,
                            .fd = -1,
                            .peer = { .pidfd = -1 },
                            .back_handle = { .fd = -1 },
                            .slot = WEIR__IPC_NO_SLOT };
    return self;
}

/* Nobody is there, or he has hung up. If the process lives it has nothing to give. */
static weir_status hung_up(const asked *by)
{
    if (weir__process_start_time(by->it.pid) == by->it.start_time)
        return fail_refused(WEIR_NOT_FOUND);
    return weir__fail(WEIR_PEER_GONE, "process %d, which made the ticket, has ended",
                      (int)by->it.pid);
}

/* The answer still comes some time. Nobody shares what has to wait for that. */
static weir_status fail_late(const asked *by, weir__import *self)
{
    self->late_answers++;
    weir__import_mark(self, WEIR_NOT_FOUND);
    return weir__fail(WEIR_PEER_GONE, "process %d did not answer in %u ms",
                      (int)by->it.pid, (unsigned)by->timeout_ms);
}

/* Sends and receives what belongs to it. What it did not wait for may come first. */
static weir_status ask(const asked *by, weir__import *self, weir__message_kind kind,
                       weir__message *out)
{
    weir__message message = { .kind = kind,
                              .access = by->access,
                              .ticket = *by->ticket,
                              .memory = { .fd = -1 },
                              .event = { .fd = -1 } };
    weir_status status = weir__socket_send(self->fd, &message, left_ms(by));
    while (status == WEIR_OK) {
        status = weir__socket_receive(self->fd, &self->peer, left_ms(by), out);
        if (status == WEIR_NOT_FOUND)
            return fail_late(by, self);
        if (status == WEIR_OK && out->kind == WEIR__MESSAGE_OVER)
            weir__import_mark(self, WEIR_NOT_FOUND);
        else if (status == WEIR_OK && self->late_answers > 0)
            self->late_answers--;
        else
            break;
        weir__message_close(out);
    }
    if (status == WEIR_PEER_GONE)
        return hung_up(by);
    if (status == WEIR_OK && out->kind != WEIR__MESSAGE_ANSWER) {
        weir__message_close(out);
        status = weir__fail(WEIR_INVALID_ARGUMENT, "process %d sent no answer",
                            (int)by->it.pid);
    }
    if (status == WEIR_OK && out->status != WEIR_OK) {
        weir__message_close(out);
        status = fail_refused(out->status);
    }
    return status;
}

/* The ledger is told of those who are in front of it. */
static weir_status open_event(const asked *by, weir__import *self,
                              const weir__shared_event *handle)
{
    weir_device *device = by->device;
    weir_status status = weir__shared_event_open(device, handle, &self->event);
    if (status == WEIR_OK && device->ops->note_foreign != NULL)
        device->ops->note_foreign(device->self, self->event,
                                  (char *)self->base + by->it.offset,
                                  (size_t)by->it.bytes, true);
    return status;
}

/* Maps what was sent, which has to be what the ticket says. */
static weir_status map(const asked *by, weir__import *self, const weir__message *sent)
{
    if (!sent->has_memory || sent->memory.kind != by->it.kind ||
        sent->memory.bytes != by->it.base_bytes)
        return weir__fail(WEIR_INVALID_ARGUMENT, "process %d sent other memory than "
                          "its ticket says", (int)by->it.pid);
    void *base;
    weir_status status = weir__shared_open(by->device, &sent->memory, &base);
    if (status != WEIR_OK)
        return status;
    weir__mutex_lock(&weir__ipc_all.lock);
    self->base = base;
    self->base_bytes = sent->memory.bytes;
    weir__ipc_all.maps++;
    weir__mutex_unlock(&weir__ipc_all.lock);
    if (sent->has_event)
        status = open_event(by, self, &sent->event);
    if (status != WEIR_OK)
        return status;
    status = weir__shared_event_create(by->device, &self->back, &self->back_handle);
    return status == WEIR_NOT_SUPPORTED ? WEIR_OK : status; /* then the host waits */
}

/* The exporter believes it open, or may come to; and nothing was done with it. What
 * fails meanwhile is not why. */
static void give_up(weir__import *self)
{
    const weir__message message = { .kind = WEIR__MESSAGE_CLOSE,
                                    .memory = { .fd = -1 },
                                    .event = { .fd = -1 } };
    weir__error_record why;
    weir__error_keep(&why);
    if (weir__import_free_unused(self) &&
        weir__socket_send(self->fd, &message, 0) == WEIR_OK)
        self->late_answers++;
    weir__error_put_back(&why);
}

static weir_status fetch(const asked *by, weir__import *self)
{
    weir__message sent;
    weir_status status = weir__socket_connect(&by->it, &self->peer, &self->fd);
    if (status == WEIR_PEER_GONE)
        return hung_up(by);
    if (status != WEIR_OK)
        return status;
    status = ask(by, self, WEIR__MESSAGE_OPEN, &sent);
    if (status == WEIR_OK) {
        status = map(by, self, &sent);
        weir__message_close(&sent);
    }
    if (status != WEIR_OK)
        give_up(self);
    return status;
}

/* What `stream` has from now on is behind what the exporter recorded. */
static weir_status follow(const asked *by, const weir__import *self)
{
    return self->event != NULL
               ? weir__stream_wait_event(by->device, by->stream, self->event)
               : WEIR_OK;
}

/* The first buffer of it. */
static weir_status begin(const asked *by, weir__import *self, weir_buffer *out)
{
    weir_foreign foreign = WEIR_FOREIGN_INIT;
    foreign.ptr = (char *)self->base + by->it.offset;
    foreign.bytes = (size_t)by->it.bytes;
    foreign.read_only = by->access != WEIR_WRITE;
    foreign.deleter = weir__import_deleter();
    foreign.context = self;
    weir_status status = follow(by, self);
    if (status == WEIR_OK)
        status = weir_buffer_adopt(by->device, by->stream, &foreign, out);
    if (status != WEIR_OK)
        return status;
    weir__storage_keep_record(out->storage);
    return WEIR_OK;
}

static weir_status open_new(const asked *by, weir__import *self, weir_buffer *out)
{
    weir_status status = fetch(by, self);
    if (status == WEIR_OK) {
        status = begin(by, self, out);
        if (status != WEIR_OK)
            give_up(self);
    }
    if (status == WEIR_OK) {
        weir__import_put(self, WEIR__IMPORT_OPEN, out->storage);
        return WEIR_OK;
    }
    weir__error_record why;
    weir__error_keep(&why);
    weir__import_drop(self);
    weir__error_put_back(&why);
    return status;
}

static bool is_refusal(weir_status status)
{
    return status == WEIR_NOT_FOUND || status == WEIR_NOT_OWNED;
}

/* It is mapped; the exporter is asked whether it may be opened once more. What that
 * does not answer as it should is of no more use for others; where the answer is only
 * late, whoever has it open still tells of the close, and waits until that is known. */
static weir_status ask_again(const asked *by, weir__import *self)
{
    weir__message answer;
    weir_status status = ask(by, self, WEIR__MESSAGE_AGAIN, &answer);
    if (status == WEIR_OK)
        weir__message_close(&answer);
    else if (status != WEIR_NOT_OWNED && !self->is_over)
        weir__import_mark(self, status);
    return status;
}

static weir_status open_cached(const asked *by, weir__import *self, weir_buffer *out)
{
    weir_status status = ask_again(by, self);
    bool is_open = !is_refusal(status);
    if (status == WEIR_OK)
        status = begin(by, self, out);
    if (status != WEIR_OK && is_open)
        give_up(self);
    if (status == WEIR_OK)
        weir__import_put(self, WEIR__IMPORT_OPEN, out->storage);
    else
        weir__import_put(self, WEIR__IMPORT_CLOSED, NULL);
    return status;
}

/* Another buffer of what is open. *ended: its last one has ended meanwhile, so that the
 * next take does not find it. */
static weir_status open_shared(const asked *by, weir__import *self, weir_buffer *out,
                               bool *ended)
{
    weir__holder holder;
    weir_storage *storage = self->storage;
    weir_status status = weir__holder_make(by->device, by->stream, &holder);
    if (status == WEIR_OK)
        status = ask_again(by, self);
    bool is_held = status == WEIR_OK && weir__storage_hold_weak(storage, holder);
    *ended = status == WEIR_OK && !is_held;
    weir__import_put(self, WEIR__IMPORT_OPEN, storage);
    if (!is_held)
        return status;
    status = follow(by, self); /* which lives as long as it is held */
    if (status == WEIR_OK)
        *out = weir__buffer_of(storage, NULL, holder);
    else
        weir__storage_leave(storage, &holder);
    return status;
}

static weir_status open_remote(const asked *by, weir_buffer *out)
{
    weir__import *made = import_new(by);
    if (made == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for an import");
    weir_status status = WEIR_OK;
    for (bool again = true; again && status == WEIR_OK;) {
        weir__import *self;
        again = false;
        status = weir__import_take(made, by->deadline, &self);
        if (status == WEIR_OK && self == made)
            return open_new(by, made, out);
        if (status == WEIR_OK && self->storage != NULL)
            status = open_shared(by, self, out, &again);
        else if (status == WEIR_OK)
            status = open_cached(by, self, out);
    }
    weir__host_free(made);
    return status;
}

/* ---- nobody's ---- */

static void end_detached(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    weir_device *device = context;
    (void)bytes;
    (void)stream;
    (void)weir__shared_close(device, ptr);
}

bool weir__storage_is_detached(const weir_storage *storage)
{
    return storage->deleter == end_detached;
}

static weir_status open_detached(const asked *by, weir_buffer *out)
{
    weir__shared object = { .kind = by->it.kind, .bytes = by->it.base_bytes, .fd = -1 };
    weir_foreign foreign = WEIR_FOREIGN_INIT;
    memcpy(object.octets, by->it.handle, sizeof object.octets);
    weir_status status = weir__shared_open(by->device, &object, &foreign.ptr);
    if (status != WEIR_OK)
        return status;
    foreign.bytes = object.bytes;
    foreign.read_only = by->access != WEIR_WRITE;
    foreign.ignores_stream = true;
    foreign.deleter = end_detached;
    foreign.context = by->device;
    status = weir_buffer_adopt(by->device, by->stream, &foreign, out);
    if (status == WEIR_OK)
        show(by, foreign.ptr, out);
    else
        (void)weir__shared_close(by->device, foreign.ptr);
    return status;
}

/* ---- opening ---- */

static weir_status read_options(const weir_open_options *from, asked *by)
{
    weir_open_options options;
    weir_status status = weir__read_options(from, &options, sizeof options,
                                            "open options");
    if (status != WEIR_OK)
        return status;
    by->access = options.access != 0 ? options.access : WEIR_READ;
    by->timeout_ms = options.timeout_ms != 0 ? options.timeout_ms : TIMEOUT_MS;
    by->deadline = weir__ipc_now() + by->timeout_ms;
    if (by->access != WEIR_READ && by->access != WEIR_WRITE)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%d is no access", (int)by->access);
    return WEIR_OK;
}

static weir_status check(const asked *by)
{
    weir_device_properties properties = { .struct_size = sizeof properties };
    by->device->ops->properties(by->device->self, &properties);
    if (memcmp(properties.uuid, by->it.device_uuid, sizeof properties.uuid) != 0)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the ticket is for memory of another "
                          "device than %s", by->device->name);
    if (by->access == WEIR_WRITE && by->it.access != WEIR_WRITE)
        return fail_refused(WEIR_NOT_OWNED);
    return weir__refuse_capturing(by->device->order, by->stream);
}

/* Of this process: nobody has to be asked, least of all by who answers here. */
static bool is_own(const asked *by)
{
    return by->it.pid == getpid() &&
           by->it.start_time == weir__process_start_time(by->it.pid);
}

static weir_status open_any(const asked *by, weir_buffer *out)
{
    if (by->it.is_detached)
        return open_detached(by, out);
    weir__export *own = weir__export_find(by->ticket);
    if (own == NULL)
        return is_own(by) ? fail_refused(WEIR_NOT_FOUND) : open_remote(by, out);
    weir_status status = open_local(by, own, out);
    weir__export_unref(own);
    return status;
}

weir_status weir_ipc_open(weir_device *device, weir_stream stream,
                          const weir_ticket *ticket, const weir_open_options *options,
                          weir_buffer *out)
{
    asked by = { .device = device, .stream = stream, .ticket = ticket };
    if (out != NULL)
        *out = (weir_buffer){ .data = NULL };
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (device == NULL || ticket == NULL || out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is null",
                          device == NULL   ? "the device"
                          : ticket == NULL ? "the ticket"
                                           : "out");
    weir__pending_look(device);
    status = read_options(options, &by);
    if (status == WEIR_OK)
        status = weir__ticket_read(ticket, &by.it);
    if (status == WEIR_OK)
        status = check(&by);
    return status == WEIR_OK ? open_any(&by, out) : status;
}

/* ---- closing ---- */

weir_status weir_ipc_close(weir_buffer *buffer, weir_stream stream)
{
    weir_status status = weir__buffer_enter(buffer, buffer);
    if (status != WEIR_OK || (buffer->storage == NULL && buffer->data == NULL))
        return status;
    status = weir__buffer_owns(buffer, "to be closed");
    if (status == WEIR_OK)
        status = weir__storage_use(buffer->storage, stream,
                                   buffer->storage->read_only ? WEIR_READ : WEIR_WRITE);
    if (status == WEIR_OK)
        weir_buffer_reset(buffer);
    return status;
}

weir_status weir_ipc_check(const weir_buffer *buffer)
{
    weir_status status = weir__buffer_enter(buffer, buffer);
    if (status == WEIR_OK)
        status = weir__buffer_owns(buffer, "to be asked about");
    if (status != WEIR_OK)
        return status;
    const weir__import *import = weir__import_of(buffer->storage);
    if (import == NULL || !weir__peer_has_ended(&import->peer))
        return WEIR_OK;
    return weir__fail(WEIR_PEER_GONE, "process %d, whose bytes they are, has ended",
                      (int)import->peer.pid);
}
