/* primitives.h - every primitive of the module for CUDA devices, once, with what has to
 * be there before it and what has to go afterwards. */
#ifndef WEIR_TESTS_FAKES_PRIMITIVES_H
#define WEIR_TESTS_FAKES_PRIMITIVES_H

#include <cuda.h>

#include "device/device.h"
#include "fakes/fakes.h"
#include "support.h"

#define BYTES ((size_t)1 << 16)

/* What it works on. */
typedef struct scene {
    weir_device *device;
    weir_device *peer;
    CUcontext context; /* the calling thread's */
    weir_stream stream;
    weir_stream made_stream;
    weir_event event;
    weir_mempool pool;
    void *ptr;
    void *host;
    void *opened;
    void *range;
    weir__shared shared; /* how to open ptr, */
    weir__shared_event shared_event; /* and event */
    weir_event opened_event;
    bool is_done; /* the primitive has succeeded */
} scene;

typedef struct primitive {
    const char *name;
    weir_status memory; /* what a shortage of memory is told as */
    void (*prepare)(scene *it); /* may be null */
    weir_status (*act)(scene *it);
    void (*undo)(scene *it); /* may be null; also after a failure */
} primitive;

/* The last may not be called while any stream is captured: device_sync, and since CUDA
 * 12.5 event_record_all. */
#if CUDA_VERSION >= 12050
enum { PRIMITIVES = 56, SAFE_PRIMITIVES = 54 };
#else
enum { PRIMITIVES = 55, SAFE_PRIMITIVES = 54 };
#endif
extern const primitive primitives[PRIMITIVES];

/* ---- primitives_range.c: what there is of ranges in a scene ---- */

void prepare_range(scene *it);
void prepare_piece(scene *it);
weir_status act_range_reserve(scene *it);
weir_status act_range_release(scene *it);
weir_status act_range_map(scene *it);
weir_status act_range_unmap(scene *it);
void end_range(scene *it);
weir_status act_prefetch(scene *it); /* of ptr */
weir_status act_prefer(scene *it);

/* A device of the stand-in's, stepped, without a ledger; close_emulated closes it. */
weir_device *cuda_open(int ordinal);

#endif
