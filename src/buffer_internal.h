/* buffer_internal.h - what buffer.c (windows, holders, order), buffer_size.c (growing,
 * copying) and those who make buffers of other storage share. */
#ifndef WEIR_BUFFER_INTERNAL_H
#define WEIR_BUFFER_INTERNAL_H

#include "storage.h"
#include "weir/buffer.h"

/* The life of the buffer's stream is kept where its struct says `reserved`. */
static inline weir__holder weir__buffer_holder(const weir_buffer *buffer)
{
    return (weir__holder){ buffer->stream,
                           { buffer->reserved[0], buffer->reserved[1] } };
}

static inline void weir__buffer_set_holder(weir_buffer *buffer, weir__holder holder)
{
    buffer->stream = holder.stream;
    buffer->reserved[0] = holder.life.clock;
    buffer->reserved[1] = holder.life.changes;
}

/* What all calls begin with that take a buffer and can fail. */
weir_status weir__buffer_enter(const weir_buffer *buffer, const void *out);

/* NOT_OWNED for a view or an empty one: `what` cannot be done with it. */
weir_status weir__buffer_owns(const weir_buffer *buffer, const char *what);

weir_status weir__buffer_refuse_shared(void);

/* The life of `stream` on `device`, for a holder to be. */
weir_status weir__holder_make(weir_device *device, weir_stream stream,
                              weir__holder *out);

/* A buffer that shows all of `storage`, whose one holder it is. */
weir_buffer weir__buffer_of(weir_storage *storage, weir_resource *mr,
                            weir__holder holder);

/* Allocates `bytes` bytes, more than none, on `holder`'s stream. */
weir_status weir__buffer_draw(weir_resource *mr, size_t bytes, size_t alignment,
                              weir__holder holder, weir_buffer *out);

#endif
