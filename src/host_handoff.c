/* host_handoff.c - copies between a buffer and the host's memory. What can fail comes
 * before the copy is put on its stream, or is that: noting it cannot fail, so that no
 * copy is ever under way that the caller does not know of. */
#include "weir/host.h"

#include "buffer_internal.h"
#include "internal.h"

/* ---- checks ---- */

static weir_status check_range(const weir_buffer *buffer, size_t offset, size_t bytes,
                               const void *host)
{
    if (offset > buffer->size || bytes > buffer->size - offset)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "%zu bytes from %zu on are not inside of %zu", bytes, offset,
                          buffer->size);
    if (host == NULL && bytes != 0)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the host's memory is null");
    return WEIR_OK;
}

static weir_status check_storage(const weir_buffer *buffer, weir_access access)
{
    weir_status status = weir__buffer_owns(buffer, "to be copied to or from the host");
    if (status == WEIR_OK && access == WEIR_WRITE && buffer->storage->read_only)
        return weir__fail(WEIR_NOT_SUPPORTED, "the bytes are for reading only");
    return status;
}

/* ---- copies ---- */

/* The stream waits for whom the access has to. */
static weir_status begin(const weir_buffer *buffer, weir_stream stream,
                         weir_access access, weir__holder *user)
{
    weir_status status = check_storage(buffer, access);
    if (status != WEIR_OK)
        return status;
    weir_storage *storage = buffer->storage;
    status = weir__order_may_sync(storage->device->order, stream);
    if (status == WEIR_OK)
        status = weir__holder_make(storage->device, stream, user);
    if (status == WEIR_OK)
        status = weir__storage_wait(storage, weir__buffer_holder(buffer), stream,
                                    access);
    return status;
}

/* What both ways do; the one that is not null says which. */
static weir_status copy(weir_buffer *buffer, weir_stream stream, size_t offset,
                        size_t bytes, void *to, const void *from, weir_point *out)
{
    const weir_access access = to != NULL ? WEIR_READ : WEIR_WRITE;
    weir__holder user;
    *out = (weir_point){ 0, 0 };
    weir_status status = check_range(buffer, offset, bytes, to != NULL ? to : from);
    if (status != WEIR_OK || bytes == 0)
        return status;
    status = begin(buffer, stream, access, &user);
    if (status != WEIR_OK)
        return status;
    char *at = (char *)buffer->data + offset;
    weir_storage *storage = buffer->storage;
    status = weir__copy(storage->device, stream, to != NULL ? to : at,
                        to != NULL ? at : from, bytes);
    if (status != WEIR_OK)
        return status;
    weir__mark mark = weir__storage_note_user(storage, user, access);
    *out = (weir_point){ mark.clock, mark.number };
    return WEIR_OK;
}

weir_status weir_buffer_to_host(weir_buffer *buffer, weir_stream stream, size_t offset,
                                size_t bytes, void *host, weir_point *out)
{
    if (out != NULL)
        *out = (weir_point){ 0, 0 };
    weir_status status = weir__buffer_enter(buffer, out);
    if (status == WEIR_OK)
        status = copy(buffer, stream, offset, bytes, host, NULL, out);
    return status;
}

weir_status weir_buffer_from_host(weir_buffer *buffer, weir_stream stream,
                                  size_t offset, size_t bytes, const void *host,
                                  weir_point *out)
{
    if (out != NULL)
        *out = (weir_point){ 0, 0 };
    weir_status status = weir__buffer_enter(buffer, out);
    if (status == WEIR_OK)
        status = copy(buffer, stream, offset, bytes, NULL, host, out);
    return status;
}

/* ---- and waits ---- */

static weir_status copy_sync(weir_buffer *buffer, weir_stream stream, size_t offset,
                             size_t bytes, void *to, const void *from)
{
    weir_point point;
    weir_status status = weir__buffer_enter(buffer, buffer);
    if (status == WEIR_OK)
        status = copy(buffer, stream, offset, bytes, to, from, &point);
    if (status != WEIR_OK || bytes == 0)
        return status;
    return weir__order_stream_sync(buffer->storage->device->order, stream);
}

weir_status weir_buffer_to_host_sync(weir_buffer *buffer, weir_stream stream,
                                     size_t offset, size_t bytes, void *host)
{
    return copy_sync(buffer, stream, offset, bytes, host, NULL);
}

weir_status weir_buffer_from_host_sync(weir_buffer *buffer, weir_stream stream,
                                       size_t offset, size_t bytes, const void *host)
{
    return copy_sync(buffer, stream, offset, bytes, NULL, host);
}
