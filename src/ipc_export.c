/* ipc_export.c - tickets for bytes of this process's, and their end. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "buffer_internal.h"
#include "ipc.h"
#include "ipc_internal.h"

/* ---- what can be exported ---- */

static weir_status fail_kind(const char *what)
{
    return weir__fail(WEIR_NOT_SUPPORTED, "%s cannot be shared with other processes",
                      what);
}

/* The resource's blocks are objects of their own, and no parts of a driver's pool. */
static bool is_object(const weir_storage *storage)
{
    weir_resource_properties it = { .struct_size = sizeof it };
    return storage->is_block &&
           weir_resource_get_properties(storage->resource, &it) == WEIR_OK &&
           (it.share_kind == WEIR_SHARE_FD || it.share_kind == WEIR_SHARE_LEGACY);
}

static weir_status check_storage(const weir_storage *storage,
                                 const weir_export_options *options)
{
    if (storage->kind == WEIR_MEMORY_PINNED)
        return fail_kind("pinned memory");
    if (storage->kind == WEIR_MEMORY_MANAGED)
        return fail_kind("managed memory");
    if (storage->kind != WEIR_MEMORY_DEVICE)
        return fail_kind("the host's memory");
    if (weir__storage_is_import(storage))
        return weir__fail(WEIR_NOT_SUPPORTED, "an import is its exporter's to export");
    if (storage->read_only && options->access == WEIR_WRITE)
        return weir__fail(WEIR_NOT_SUPPORTED, "the buffer is for reading only");
    if (!options->share_whole_base && !is_object(storage))
        return weir__fail(WEIR_NOT_SUPPORTED, "the bytes are no object of their own: "
                          "who opens them reaches others too (allocate them from "
                          "`shareable`, or set share_whole_base)");
    return WEIR_OK;
}

static weir_status read_options(const weir_export_options *from,
                                weir_export_options *out)
{
    weir_status status = weir__read_options(from, out, sizeof *out, "export options");
    if (status != WEIR_OK)
        return status;
    if (out->access == 0)
        out->access = WEIR_READ;
    if (out->access != WEIR_READ && out->access != WEIR_WRITE)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%d is no access", (int)out->access);
    if (out->detached && out->one_time)
        return weir__fail(WEIR_INVALID_ARGUMENT, "nobody counts who opens a detached "
                          "ticket: it cannot be for one time");
    return WEIR_OK;
}

/* What the ticket says of the bytes; *base is where their object begins. */
static weir_status describe(const weir_buffer *buffer,
                            const weir_export_options *options, weir__ticket *ticket,
                            void **base)
{
    weir__shared object;
    weir_device *device = buffer->storage->device;
    weir_status status = check_storage(buffer->storage, options);
    if (status == WEIR_OK && buffer->size == 0)
        status = weir__fail(WEIR_INVALID_ARGUMENT, "there are no bytes to export");
    if (status == WEIR_OK)
        status = weir__shared_find(device, buffer->data, buffer->size, base, &object);
    if (status != WEIR_OK)
        return status;
    weir_device_properties properties = { .struct_size = sizeof properties };
    device->ops->properties(device->self, &properties);
    *ticket = (weir__ticket){
        .kind = object.kind,
        .is_detached = options->detached,
        .access = options->access,
        .base_bytes = object.bytes,
        .offset = (uint64_t)((char *)buffer->data - (char *)*base),
        .bytes = buffer->size,
    };
    memcpy(ticket->device_uuid, properties.uuid, sizeof ticket->device_uuid);
    return WEIR_OK;
}

/* ---- order ---- */

/* What is recorded is behind all that importers have to be behind. */
static weir_status record(const weir_buffer *buffer, weir__export *self)
{
    weir_stream stream;
    weir_device *device = self->device;
    weir_status status = weir__buffer_gather_uses(buffer, self->access, &stream);
    if (status == WEIR_OK)
        status = weir__refuse_capturing(device->order, stream);
    if (status == WEIR_OK && self->has_event)
        return weir__event_record(device, self->event, stream);
    return status == WEIR_OK ? weir__order_stream_sync(device->order, stream) : status;
}

static weir_status event_make(weir__export *self)
{
    self->handle.fd = -1;
    weir_status status = weir__shared_event_create(self->device, &self->event,
                                                   &self->handle);
    self->has_event = status == WEIR_OK;
    return status == WEIR_NOT_SUPPORTED ? WEIR_OK : status;
}

/* ---- exports ---- */

static void event_end(weir__export *self)
{
    (void)weir__event_destroy(self->device, self->event);
    self->has_event = false;
}

bool weir__export_is_owed(const weir__export *self)
{
    bool is_done;
    if (!self->has_event || !self->was_opened || !weir__ipc_must_push(self->device))
        return false;
    if (weir__event_query(self->device, self->event, &is_done) == WEIR_OK)
        return !is_done;
    return !weir__device_is_lost(self->device); /* to be asked again */
}

/* Nobody has it open, and nobody will: gives back what it has. From before it is off
 * the list `unmapping` counts it, so that the service is there for what is owed. */
static void export_end(weir__export *self)
{
    weir__ipc *it = &weir__ipc_all;
    weir_device *device = self->device;
    if (self->has_event && self->handle.fd >= 0)
        (void)close(self->handle.fd);
    weir__storage_drop_record(self->storage);
    self->storage = NULL;
    bool is_owed = weir__export_is_owed(self);
    if (!is_owed && self->has_event)
        event_end(self);
    weir__mutex_lock(&it->lock);
    if (is_owed) {
        self->references++;
        self->next = it->owed;
        it->owed = self;
    }
    it->unmapping--;
    weir__ipc_wake();
    weir__cond_broadcast(&it->changed);
    weir__mutex_unlock(&it->lock);
    weir_device_unref(device);
}

/* One that need not be asked for any more, off the list; or (`device` not null) any of
 * that device. */
static weir__export *take_owed(const weir_device *device, bool *is_left)
{
    weir__ipc *it = &weir__ipc_all;
    weir__mutex_lock(&it->lock);
    weir__export **link = &it->owed;
    while (*link != NULL &&
           (device != NULL ? (*link)->device != device : weir__export_is_owed(*link)))
        link = &(*link)->next;
    weir__export *found = *link;
    if (found != NULL)
        *link = found->next;
    if (is_left != NULL)
        *is_left = it->owed != NULL;
    if (found != NULL)
        it->unmapping++;
    weir__mutex_unlock(&it->lock);
    return found;
}

void weir__export_push(const weir_device *device, bool *is_left)
{
    weir__ipc *it = &weir__ipc_all;
    weir__export *found;
    while ((found = take_owed(device, is_left)) != NULL) {
        event_end(found);
        weir__export_unref(found);
        weir__mutex_lock(&it->lock);
        it->unmapping--;
        weir__cond_broadcast(&it->changed);
        weir__mutex_unlock(&it->lock);
    }
}

void weir__export_unref(weir__export *self)
{
    weir__mutex_lock(&weir__ipc_all.lock);
    bool is_last = --self->references == 0;
    weir__mutex_unlock(&weir__ipc_all.lock);
    if (is_last)
        weir__host_free(self);
}

void weir__export_exit(weir__export *self)
{
    weir__mutex_lock(&weir__ipc_all.lock);
    bool ends = --self->importers == 0 && self->is_over;
    weir__ipc_all.unmapping += ends;
    weir__mutex_unlock(&weir__ipc_all.lock);
    if (ends)
        export_end(self);
}

weir__export *weir__export_find(const weir_ticket *ticket)
{
    weir__ipc *it = &weir__ipc_all;
    weir__mutex_lock(&it->lock);
    weir__export *found = it->exports;
    while (found != NULL && memcmp(&found->ticket, ticket, sizeof *ticket) != 0)
        found = found->next;
    if (found != NULL)
        found->references++;
    weir__mutex_unlock(&it->lock);
    return found;
}

weir_status weir__export_enter(weir__export *self, weir_access access,
                               weir__holder holder)
{
    weir__ipc *it = &weir__ipc_all;
    weir_status status = WEIR_OK;
    weir__mutex_lock(&it->lock);
    if (self->is_over || (self->one_time && self->was_opened))
        status = WEIR_NOT_FOUND;
    else if (access == WEIR_WRITE && self->access != WEIR_WRITE)
        status = WEIR_NOT_OWNED;
    else if (!weir__storage_hold_weak(self->storage, holder))
        status = WEIR_NOT_FOUND;
    if (status == WEIR_OK) {
        self->was_opened = true;
        self->importers++;
    }
    weir__mutex_unlock(&it->lock);
    return status;
}

/* Off the list: the caller has the list's reference. */
static void list_remove(weir__export *self) WEIR_REQUIRES(weir__ipc_all.lock)
{
    weir__export **link = &weir__ipc_all.exports;
    while (*link != self)
        link = &(*link)->next;
    *link = self->next;
    self->next = NULL;
    self->is_over = true;
}

static weir_status list_add(weir__export *self, weir__ticket *ticket)
{
    weir__ipc *it = &weir__ipc_all;
    weir__mutex_lock(&it->lock);
    weir_status status = weir__ipc_start(true);
    if (status == WEIR_OK) {
        ticket->pid = (int32_t)getpid();
        ticket->start_time = weir__process_start_time(ticket->pid);
        memcpy(ticket->socket, it->path, sizeof ticket->socket);
        weir__ticket_write(ticket, &self->ticket);
        atomic_store(&self->storage->is_exported, true);
        self->next = it->exports;
        it->exports = self;
    }
    weir__mutex_unlock(&it->lock);
    return status;
}

static weir__export *export_new(const weir_buffer *buffer,
                                const weir_export_options *options)
{
    weir__export *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return NULL;
    *self = (weir__export){ .device = weir_device_ref(buffer->storage->device),
                            .storage = buffer->storage,
                            .data = buffer->data,
                            .size = buffer->size,
                            .access = options->access,
                            .one_time = options->one_time,
                            .references = 1 };
    weir__storage_keep_record(buffer->storage);
    return self;
}

static weir_status export_counted(const weir_buffer *buffer,
                                  const weir_export_options *options,
                                  weir__ticket *ticket, void *base, weir_ticket *out)
{
    if (getrandom(ticket->export_id, sizeof ticket->export_id, 0) !=
        (ssize_t)sizeof ticket->export_id)
        return weir__fail(WEIR_FILE_ERROR, "the system has no random numbers: %s",
                          strerror(errno));
    weir__export *self = export_new(buffer, options);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for an export");
    self->base = base;
    weir_status status = event_make(self);
    if (status == WEIR_OK)
        status = record(buffer, self);
    if (status == WEIR_OK)
        status = list_add(self, ticket);
    if (status == WEIR_OK) {
        *out = self->ticket;
        return WEIR_OK;
    }
    weir__mutex_lock(&weir__ipc_all.lock);
    weir__ipc_all.unmapping++;
    weir__mutex_unlock(&weir__ipc_all.lock);
    export_end(self);
    weir__host_free(self);
    return status;
}

/* The handle itself is in the ticket, and the caller sees to all the rest. */
static weir_status export_detached(const weir_buffer *buffer, weir__ticket *ticket,
                                   void *base, weir_ticket *out)
{
    weir__shared object;
    if (ticket->kind != WEIR_SHARE_LEGACY)
        return weir__fail(WEIR_NOT_SUPPORTED, "only memory of kind LEGACY has a handle "
                          "that a detached ticket can carry");
    weir_status status = weir__shared_export(buffer->storage->device, base, &object);
    if (status != WEIR_OK)
        return status;
    memcpy(ticket->handle, object.octets, sizeof ticket->handle);
    weir__ticket_write(ticket, out);
    return WEIR_OK;
}

weir_status weir_ipc_export(weir_buffer *buffer, const weir_export_options *from,
                            weir_ticket *out)
{
    weir_export_options options;
    weir__ticket ticket;
    void *base;
    if (out != NULL)
        memset(out, 0, sizeof *out);
    weir_status status = weir__buffer_enter(buffer, out);
    if (status == WEIR_OK)
        status = read_options(from, &options);
    if (status == WEIR_OK)
        status = weir__buffer_owns(buffer, "to be exported");
    if (status == WEIR_OK)
        status = describe(buffer, &options, &ticket, &base);
    if (status != WEIR_OK)
        return status;
    return options.detached ? export_detached(buffer, &ticket, base, out)
                            : export_counted(buffer, &options, &ticket, base, out);
}

/* ---- the end of a ticket ---- */

weir_status weir_ipc_revoke(const weir_ticket *ticket)
{
    weir__ipc *it = &weir__ipc_all;
    weir__ticket says;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (ticket == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the ticket is null");
    status = weir__ticket_read(ticket, &says);
    if (status != WEIR_OK)
        return status;
    weir__export *found = weir__export_find(ticket);
    if (found == NULL)
        return weir__fail(WEIR_NOT_FOUND, "no ticket of this process's, or it is over");
    weir__mutex_lock(&it->lock);
    bool was_over = found->is_over;
    bool ends = !was_over && found->importers == 0;
    it->unmapping += ends;
    if (!was_over)
        list_remove(found);
    weir__ipc_wake();
    weir__mutex_unlock(&it->lock);
    if (ends)
        export_end(found);
    if (!was_over)
        weir__export_unref(found); /* the list's */
    weir__export_unref(found);
    return was_over ? weir__fail(WEIR_NOT_FOUND, "the ticket is over") : WEIR_OK;
}

static weir__export *take_one_of(const weir_storage *storage)
{
    weir__ipc *it = &weir__ipc_all;
    weir__mutex_lock(&it->lock);
    weir__export *found = it->exports;
    while (found != NULL && found->storage != storage)
        found = found->next;
    if (found != NULL) {
        list_remove(found);
        it->unmapping++;
    }
    weir__ipc_wake();
    weir__mutex_unlock(&it->lock);
    return found;
}

void weir__ipc_storage_ends(weir_storage *storage)
{
    weir__export *found;
    while ((found = take_one_of(storage)) != NULL) {
        export_end(found);
        weir__export_unref(found);
    }
}
