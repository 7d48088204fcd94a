/* dlpack_export.c - tensors for other libraries: once it is clear what is asked for,
 * the bytes are copied if they must be, and last the consumer is made to wait. What can
 * fail comes before anything that others could notice.
 *
 * Who ends last gives back: an export is one more holder of the buffer's storage, on
 * the consumer's stream. Of a stream that may end before the tensor, nothing is kept,
 * and when the tensor is deleted nobody can say what still uses the bytes: so it leaves
 * unnamed. A copy for the host is storage with its bytes behind its own record. */
#include <string.h>

#include "buffer_internal.h"
#include "dlpack_internal.h"
#include "internal.h"
#include "pending.h"
#include "weir/current.h"

/* ---- the end of a tensor ---- */

/* A place among the holders with nothing put on its stream. */
static weir__holder idle(weir__holder holder)
{
    return (weir__holder){ holder.life, WEIR__NO_STREAM };
}

static bool is_captured(const weir__export *self)
{
    weir__order *order = self->storage->device->order;
    weir_stream stream = self->holder.stream;
    return stream != WEIR__NO_STREAM &&
           !weir__order_lives(order, stream, self->holder.life) &&
           weir__order_stream_is_captured(order, stream);
}

/* The record goes, and its place among the holders. */
static void leave(weir__export *self, weir__holder holder)
{
    weir_storage *storage = self->storage;
    weir__host_free(self);
    if (storage != NULL)
        weir__storage_leave(storage, &holder);
}

/* Behind what is on the consumer's stream, if that has a name; a capture takes nothing
 * that a deleter brings. */
static void end(weir__export *self)
{
    if (weir__is_forked())
        return;
    if (self->storage == NULL || (!self->is_unnamed && !is_captured(self))) {
        leave(self, self->holder);
        return;
    }
    weir__storage_note_unnamed(self->storage, self->access);
    leave(self, idle(self->holder));
}

/* Its place among the holders becomes one on that stream, which leaves. */
static WEIR_NOINLINE weir_status end_elsewhere(weir__export *self, weir_stream stream)
{
    weir_storage *storage = self->storage;
    weir__holder to;
    if (weir__order_stream_is_captured(storage->device->order, stream))
        return weir__fail(WEIR_CAPTURING, "the stream is being captured");
    weir_status status = weir__holder_make(storage->device, stream, &to);
    if (status != WEIR_OK)
        return status;
    weir__storage_hold(storage, to);
    weir__storage_leave_idle(storage, self->holder);
    weir__host_free(self);
    weir__storage_leave(storage, &to);
    return WEIR_OK;
}

static weir_status end_on(weir__export *self, weir_stream stream)
{
    const weir_storage *storage = self->storage;
    if (storage != NULL &&
        !weir__holder_is_on(storage->device->order, &self->holder, stream))
        return end_elsewhere(self, stream);
    leave(self, self->holder);
    return WEIR_OK;
}

void weir__export_end(weir__export *self, weir_stream stream)
{
    if (end_on(self, stream) == WEIR_OK)
        return;
    self->is_unnamed = true;
    end(self);
}

static void delete_legacy(struct DLManagedTensor *tensor)
{
    if (tensor != NULL)
        end(weir__dl_managed_of(tensor)->manager_ctx);
}

static void delete_versioned(struct DLManagedTensorVersioned *tensor)
{
    if (tensor != NULL)
        end(weir__dl_versioned_of(tensor)->manager_ctx);
}

weir__export *weir__export_of(struct DLManagedTensor *tensor)
{
    weir__dl_managed *it = weir__dl_managed_of(tensor);
    return it != NULL && it->deleter == delete_legacy ? it->manager_ctx : NULL;
}

weir__export *weir__export_of_versioned(struct DLManagedTensorVersioned *tensor)
{
    weir__dl_versioned *it = weir__dl_versioned_of(tensor);
    return it != NULL && it->deleter == delete_versioned ? it->manager_ctx : NULL;
}

static weir_status done(weir__export *self, weir_stream stream)
{
    weir_status status = weir__enter();
    if (status == WEIR_OK && self == NULL)
        status = weir__fail(WEIR_INVALID_ARGUMENT, "the tensor is not Weir's");
    return status == WEIR_OK ? end_on(self, stream) : status;
}

weir_status weir_dlpack_done(struct DLManagedTensor *tensor, weir_stream stream)
{
    return done(weir__export_of(tensor), stream);
}

weir_status weir_dlpack_done_versioned(struct DLManagedTensorVersioned *tensor,
                                       weir_stream stream)
{
    return done(weir__export_of_versioned(tensor), stream);
}

/* ---- its bytes ---- */

static bool lives(const weir_buffer *buffer)
{
    weir__holder own = weir__buffer_holder(buffer);
    return weir__order_lives(buffer->storage->device->order, own.stream, own.life);
}

/* On another stream than the buffer's. */
static WEIR_NOINLINE weir_status name_other_consumer(const weir__request *it,
                                                     weir__export *out)
{
    weir__holder made;
    weir_status status = weir__holder_make(it->from.device, it->stream, &made);
    if (status != WEIR_OK)
        return status;
    out->is_unnamed = made.life.changes == 0 && !it->asked.stream_outlives_tensor;
    if (!out->is_unnamed)
        out->holder = made;
    return WEIR_OK;
}

/* The consumer's place among the holders of the bytes. *is_own: that is the buffer's,
 * on whose stream it is, known to be the same still. */
static WEIR_INLINE weir_status name_consumer(const weir__request *it,
                                             const weir_buffer *buffer,
                                             weir__export *out, bool *is_own)
{
    weir__holder own = weir__buffer_holder(buffer);
    *is_own = false;
    if (it->place.type == WEIR_DLPACK_CPU)
        return WEIR_OK; /* what the host does is done when it says so */
    out->is_unnamed = it->consumer == WEIR__CONSUMER_UNTOLD ||
                      it->stream == WEIR_STREAM_PER_THREAD;
    if (out->is_unnamed)
        return WEIR_OK;
    if (!weir__holder_is_on(it->from.device->order, &own, it->stream))
        return name_other_consumer(it, out);
    out->holder = own;
    *is_own = true;
    return WEIR_OK;
}

static weir_status make_ready(const weir__request *it, weir_storage *storage,
                              weir__holder own, bool is_own)
{
    switch (it->consumer) {
    case WEIR__CONSUMER_HOST: return weir__storage_wait_sync(storage, own, it->access);
    case WEIR__CONSUMER_STREAM:
        return is_own && !weir__storage_has_uses(storage)
                   ? WEIR_OK
                   : weir__storage_wait_for_others(storage, own, it->stream,
                                                   it->access);
    case WEIR__CONSUMER_UNTOLD: break;
    }
    return WEIR_OK;
}

/* Shows what the buffer has. */
static weir_status share(const weir__request *it, const weir_buffer *buffer,
                         weir__export *out, char **first)
{
    bool is_own;
    weir_status status = name_consumer(it, buffer, out, &is_own);
    if (status == WEIR_OK)
        status = make_ready(it, buffer->storage, weir__buffer_holder(buffer), is_own);
    if (status != WEIR_OK)
        return status;
    weir__storage_hold(buffer->storage, out->holder);
    out->storage = buffer->storage;
    *first = (char *)buffer->data + it->byte_offset;
    return WEIR_OK;
}

/* ---- copies ----
 *
 * Of all from the lowest byte to the highest, with the same strides. */

/* The buffer's own stream, while it lives; then the legacy one. */
static weir_status choose_stream(const weir_buffer *buffer, weir__holder *out)
{
    *out = weir__buffer_holder(buffer);
    return lives(buffer) ? WEIR_OK
                         : weir__holder_make(buffer->storage->device, NULL, out);
}

/* Where the copy comes from that is like the bytes; counted. */
static weir_status find_resource(const weir__request *it, const weir_buffer *buffer,
                                 weir_resource **out)
{
    *out = buffer->resource;
    if (*out != NULL)
        (void)weir_resource_ref(*out);
    weir_status status =
        *out != NULL ? WEIR_OK : weir_current_resource(it->from.device, out);
    if (status != WEIR_OK || weir__memory_kind(*out) == it->from.kind)
        return status;
    weir_resource_unref(*out);
    return weir__fail(WEIR_NOT_SUPPORTED, "the buffer has no resource, and the current "
                      "one's memory is of another kind");
}

static weir_status copy_part(const weir__request *it, weir_buffer *buffer,
                             weir_stream stream, weir_buffer *out)
{
    weir_buffer part;
    weir_resource *mr;
    weir_status status = find_resource(it, buffer, &mr);
    if (status != WEIR_OK)
        return status;
    status = weir_buffer_slice(buffer, it->byte_offset - (size_t)-it->span.first,
                               (size_t)(it->span.end - it->span.first), &part);
    if (status == WEIR_OK)
        status = weir_buffer_copy(&part, mr, stream, out);
    weir_buffer_reset(&part);
    weir_resource_unref(mr);
    return status;
}

/* By the device. In a capture the copy would be made by the graph, and not now. */
static WEIR_NOINLINE weir_status copy_on_device(const weir__request *it,
                                                weir_buffer *buffer,
                                                weir__export *out, char **first)
{
    weir_buffer copy;
    weir__holder on = { { 0, 0 }, it->stream };
    weir_status status = WEIR_OK;
    bool is_own;
    if (it->consumer != WEIR__CONSUMER_STREAM)
        status = choose_stream(buffer, &on);
    if (status == WEIR_OK)
        status = weir__order_may_sync(it->from.device->order, on.stream);
    if (status == WEIR_OK)
        status = name_consumer(it, buffer, out, &is_own);
    if (status == WEIR_OK)
        status = copy_part(it, buffer, on.stream, &copy);
    if (status != WEIR_OK)
        return status;
    if (it->consumer == WEIR__CONSUMER_HOST)
        status = weir__storage_wait_sync(copy.storage, weir__buffer_holder(&copy),
                                         WEIR_READ);
    if (status == WEIR_OK) {
        weir__storage_hold(copy.storage, out->holder);
        out->storage = copy.storage;
        *first = (char *)copy.data - it->span.first;
    }
    weir_buffer_reset(&copy);
    return status;
}

/* The bytes of a copy for the host lie behind its record, and go with it: but only when
 * what writes them is done. */
static void keep_until_done(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    (void)context;
    (void)ptr;
    (void)bytes;
    (void)stream;
}

static weir_status make_host_storage(const weir__request *it, weir__holder holder,
                                     weir_storage **out)
{
    weir_foreign foreign = WEIR_FOREIGN_INIT;
    foreign.bytes = (size_t)(it->span.end - it->span.first);
    foreign.kind = WEIR_MEMORY_HOST;
    foreign.ignores_stream = true;
    foreign.deleter = keep_until_done;
    weir_status status =
        weir__storage_of_foreign(it->from.device, &foreign, holder,
                                 foreign.bytes + WEIR__DLPACK_ALIGNMENT, out);
    if (status != WEIR_OK)
        return status;
    weir__storage_keep_device(*out);
    (*out)->ptr = weir__dlpack_align(weir__storage_extra(*out));
    return WEIR_OK;
}

/* Puts the copy on `on`, and waits for it there. If the wait fails, the copy is under
 * way and both sides keep their bytes until it is done. */
static weir_status copy_and_wait(const weir__request *it, const weir_buffer *buffer,
                                 weir__holder on, const char *src, weir_storage *to)
{
    weir_storage *from = buffer->storage;
    weir__order *order = it->from.device->order;
    weir_status status = weir__order_may_sync(order, on.stream);
    if (status == WEIR_OK)
        status = weir__storage_wait(from, weir__buffer_holder(buffer), on.stream,
                                    WEIR_READ);
    if (status == WEIR_OK)
        status = weir__copy(it->from.device, weir__stream_of(on.stream), to->ptr, src,
                            to->bytes);
    if (status != WEIR_OK) {
        on = idle(on);
        weir__storage_leave(to, &on);
        return status;
    }
    status = weir__order_stream_sync(order, on.stream);
    if (status != WEIR_OK) {
        weir__storage_hold(from, on);
        weir__storage_leave(from, &on);
        weir__storage_leave(to, &on);
    }
    return status;
}

static WEIR_NOINLINE weir_status copy_to_host(const weir__request *it,
                                              const weir_buffer *buffer,
                                              weir__export *out, char **first)
{
    const char *src = (const char *)buffer->data + it->byte_offset + it->span.first;
    weir__holder on = WEIR__HOLDER_NONE;
    weir_storage *to;
    weir_status status = WEIR_OK;
    if (it->from.kind == WEIR_MEMORY_HOST)
        status = weir__storage_wait_sync(buffer->storage, weir__buffer_holder(buffer),
                                         WEIR_READ);
    else
        status = choose_stream(buffer, &on);
    if (status == WEIR_OK)
        status = make_host_storage(it, on, &to);
    if (status != WEIR_OK)
        return status;
    if (it->from.kind == WEIR_MEMORY_HOST)
        memcpy(to->ptr, src, to->bytes);
    else
        status = copy_and_wait(it, buffer, on, src, to);
    if (status != WEIR_OK)
        return status;
    out->storage = to;
    out->holder = idle(on);
    *first = (char *)to->ptr - it->span.first;
    return WEIR_OK;
}

/* ---- the tensor ---- */

weir_status weir__export_create(const weir__array *array, size_t extra,
                                weir__export **out)
{
    size_t dimensions = (size_t)array->ndim;
    weir__export *self = *out = weir__host_alloc(
        sizeof *self + 2 * dimensions * sizeof self->dimensions[0] + extra);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a tensor");
    self->storage = NULL; /* the tensor is filled in last */
    self->holder = WEIR__HOLDER_NONE;
    self->access = WEIR_WRITE;
    self->is_unnamed = false;
    weir__array_write(array, self->dimensions);
    return WEIR_OK;
}

void weir__export_fill(weir__export *self, const weir__request *it, void *first,
                       weir_dlpack *out)
{
    weir__dl_tensor tensor = {
        .data = first,
        .device = { it->place.type, it->place.id },
        .ndim = it->array.ndim,
        .dtype = it->array.dtype,
        .shape = self->dimensions,
        .strides = self->dimensions + it->array.ndim,
    };
    uint64_t flags = it->copies ? WEIR__DL_IS_COPIED : 0;
    self->access = it->access;
    if (it->access == WEIR_READ)
        flags |= WEIR__DL_READ_ONLY;
    if (it->is_versioned) {
        self->tensor.versioned = (weir__dl_versioned){
            { WEIR__DL_MAJOR, WEIR__DL_MINOR }, self, delete_versioned, flags, tensor
        };
        out->versioned = (struct DLManagedTensorVersioned *)(void *)self;
    } else {
        self->tensor.legacy = (weir__dl_managed){ tensor, self, delete_legacy };
        out->legacy = (struct DLManagedTensor *)(void *)self;
    }
}

static weir_status find_bytes(const weir__request *it, weir_buffer *buffer,
                              weir__export *out, char **first)
{
    if (it->span.count == 0)
        return WEIR_OK; /* needs none */
    if (!it->copies)
        return share(it, buffer, out, first);
    if (it->place.type == WEIR_DLPACK_CPU)
        return copy_to_host(it, buffer, out, first);
    return copy_on_device(it, buffer, out, first);
}

weir_status weir_dlpack_export(weir_buffer *buffer, const weir_tensor *tensor,
                               const weir_dlpack_request *from, weir_dlpack *out)
{
    weir__request it;
    char *first = NULL;
    if (out != NULL)
        *out = (weir_dlpack){ NULL, NULL };
    weir_status status = weir__buffer_enter(buffer, out);
    if (status == WEIR_OK && tensor == NULL)
        status = weir__fail(WEIR_INVALID_ARGUMENT, "the tensor is null");
    if (status == WEIR_OK)
        status = weir__request_read(buffer, tensor, from, &it);
    if (status != WEIR_OK)
        return status;
    weir__pending_look(it.from.device);
    weir__export *self;
    status = weir__export_create(&it.array, 0, &self);
    if (status != WEIR_OK)
        return status;
    status = find_bytes(&it, buffer, self, &first);
    if (status == WEIR_OK)
        weir__export_fill(self, &it, first, out);
    else
        weir__host_free(self);
    return status;
}
