/* support_buffer.h - for the tests of buffers: a stepped device with two streams and a
 * pool, foreign memory whose end is counted, and work on what a buffer shows. */
#ifndef WEIR_TESTS_SUPPORT_BUFFER_H
#define WEIR_TESTS_SUPPORT_BUFFER_H

#include "support.h"
#include "weir/weir.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

typedef struct buffer_scene {
    weir_device *device;
    weir_stream a, b;      /* non-blocking, known */
    weir_resource *pool;
} buffer_scene;

buffer_scene buffer_scene_open(void);
buffer_scene buffer_scene_on(weir_device *device);
void buffer_scene_close(buffer_scene *it);

/* The same with a pool of so many bytes. */
#define SMALL_SCENE_BYTES (4 * MIB)
buffer_scene small_scene_open(void);

weir_buffer make_buffer(buffer_scene *it, weir_stream stream, size_t bytes);

/* Writes to all that a buffer shows, or checks what was written, on `stream`. */
void write_all(buffer_scene *it, weir_stream stream, const weir_buffer *buffer,
              uint64_t key);
void check_all(buffer_scene *it, weir_stream stream, const weir_buffer *buffer,
              uint64_t key);

/* Nothing on `stream` is done before the gate is opened. */
uint64_t stall_stream(buffer_scene *it, weir_stream stream);
void open_stream(buffer_scene *it, uint64_t gate);

/* Memory of the pool's that a deleter gives back to it. */
typedef struct foreign_block {
    buffer_scene *it;
    uint32_t ends;         /* how often the deleter was called */
    weir_stream stream;    /* with this, */
    void *ptr;             /* these */
    size_t bytes;
} foreign_block;

weir_foreign make_foreign(buffer_scene *it, size_t bytes, foreign_block *context);

/* A stream of somebody else's, of which nobody is told. */
typedef struct stranger {
    buffer_scene *it;
    weir_stream stream;
} stranger;

stranger stranger_come(buffer_scene *it);
void stranger_go(stranger *self);
/* The stranger writes 7 to all that `buffer` shows, behind what is on its stream; then
 * the buffer is reset. */
void use_unnamed(stranger *self, weir_buffer *buffer);
void must_be_in_limbo(const buffer_scene *it, size_t count, size_t bytes);

/* Calls about buffers that do nothing by themselves. The first may find no record for a
 * point; it leaves some for the next. */
void look_in_vain(buffer_scene *it);

weir_buffer_properties properties_of(const weir_buffer *buffer);
weir_pending pending_of(weir_device *device);
void must_be_empty(const weir_buffer *buffer);

#endif
