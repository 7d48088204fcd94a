/* buffer_internal.h - what buffer.c (windows, holders, order), buffer_size.c (growing,
 * copying) and those who make buffers of other storage share. */
#ifndef WEIR_BUFFER_INTERNAL_H
#define WEIR_BUFFER_INTERNAL_H

#include "internal.h"
#include "storage.h"
#include "weir/buffer.h"

/* The life of the buffer's stream is kept where its struct says `reserved`. */
static inline weir__holder weir__buffer_holder(const weir_buffer *buffer)
{
    return (weir__holder){ { buffer->reserved[0], buffer->reserved[1] },
                           buffer->stream };
}

static inline void weir__buffer_set_holder(weir_buffer *buffer, weir__holder holder)
{
    buffer->stream = holder.stream;
    buffer->reserved[0] = holder.life.clock;
    buffer->reserved[1] = holder.life.changes;
}

/* What all calls begin with that take a buffer and can fail. */
static inline weir_status weir__buffer_enter(const weir_buffer *buffer, const void *out)
{
    weir_status status = weir__enter();
    if (status == WEIR_OK && (buffer == NULL || out == NULL))
        status = weir__fail(WEIR_INVALID_ARGUMENT, "%s is null",
                            buffer == NULL ? "the buffer" : "out");
    return status;
}

/* NOT_OWNED for a view or an empty one: `what` cannot be done with it. */
weir_status weir__buffer_owns(const weir_buffer *buffer, const char *what);

weir_status weir__buffer_refuse_shared(void);

/* The buffer's stream, where it has ended the legacy one, is behind all that an access
 * has to wait for. */
weir_status weir__buffer_gather_uses(const weir_buffer *buffer, weir_access access,
                                     weir_stream *out);

/* The life of `stream` on `device`, for a holder to be. */
weir_status weir__holder_make(weir_device *device, weir_stream stream,
                              weir__holder *out);

/* A buffer that shows all of `storage`, whose one holder it is. */
static inline weir_buffer weir__buffer_of(weir_storage *storage, weir_resource *mr,
                                          weir__holder holder)
{
    weir_buffer buffer = { .data = storage->ptr,
                           .size = storage->bytes,
                           .capacity = storage->bytes,
                           .resource = mr != NULL ? weir_resource_ref(mr) : NULL,
                           .storage = storage };
    weir__buffer_set_holder(&buffer, holder);
    return buffer;
}

/* Allocates `bytes` bytes, more than none, on `holder`'s stream. */
weir_status weir__buffer_draw(weir_resource *mr, size_t bytes, size_t alignment,
                              weir__holder holder, weir_buffer *out);

#endif
