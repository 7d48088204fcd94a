/* support_sweep_buffers.h - for sweep_buffers.c: a scene with a few buffers to act
 * in while a planned fault strikes, and what has to hold after each step and at the
 * end. */
#ifndef WEIR_TESTS_SUPPORT_SWEEP_BUFFERS_H
#define WEIR_TESTS_SUPPORT_SWEEP_BUFFERS_H

#include "support_buffer.h"
#include "support_sweep.h"

#define BYTES ((size_t)1024)
#define KEY  7

typedef struct buffers_scene {
    sweep_fault fault;
    weir_device *device;
    weir_stream a, b, c, unknown; /* c blocks */
    weir_resource *pool;
    weir_buffer x, y, made;       /* x and y show what was written */
    bool is_written;              /* so does `made` */
    bool is_noted_surely;         /* a use that may have got no event */
    weir_weak_buffer weak;
    void *block;                  /* out, and nobody's */
    uint32_t adoptions, ends;
    bool ends_behind_all;         /* the deleter ignores its stream, */
    bool is_read;                 /* and is called once this is true */
    size_t host_live;
} buffers_scene;

typedef struct sweep_of_buffer {
    const char *name;
    void (*prepare)(buffers_scene *it);
    void (*act)(buffers_scene *it);
    uint64_t host, device; /* calls: host allocations, the emulated device's too */
} sweep_of_buffer;

/* A call that changes a buffer, or fills an empty one. */
#define try_on(it, buffer, call)                                                 \
    (buffers_before((it), (buffer)), buffers_after((it), (buffer), (call)))

void buffers_before(buffers_scene *it, const weir_buffer *buffer);
/* Whether `status` is a success; else it is the planned failure, and the buffer and
 * what is out are as they were. */
bool buffers_after(buffers_scene *it, const weir_buffer *buffer, weir_status status);

/* Runs each at every point, and claims that there are as many as are written down. */
void buffers_sweep_all(const sweep_of_buffer *all, size_t count);

/* Teardowns: of a test, of all. */
int buffers_sweep_tell_where(void **state);
int buffers_sweep_print_points(void **state);

#endif
