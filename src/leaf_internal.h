/* leaf_internal.h - what the files of a leaf share. */
#ifndef WEIR_LEAF_INTERNAL_H
#define WEIR_LEAF_INTERNAL_H

#include "kept.h"
#include "leaf.h"
#include "sync.h"

typedef struct weir__leaf {
    const weir__leaf_kind *kind;
    weir_device *device;         /* counted by the resource */
    weir__mutex lock;            /* guards everything below */
    weir__cond landed_more;
    weir__block_table table;     /* of weir__kept_block */
    weir__kept kept;
    size_t in_flight_blocks;     /* being freed, right now */
    size_t out_held_bytes;       /* what the blocks take that are out */
    uint64_t freed;              /* blocks that the device has taken back */
    uint64_t refused;            /* ... has not, for it failed */
    weir__kept_refusal refusal;
    weir_resource_statistics counts; /* but for what `kept` knows */
    _Alignas(max_align_t) unsigned char options[]; /* of the kind's type */
} weir__leaf;

/* ---- leaf.c ---- */

/* Frees all that is done, asking the device once for each stream that is not. Returns
 * how many bytes it has back. */
size_t weir__leaf_free_done(weir__leaf *self);
/* The leaf that `mr` is, if it is of that kind; else null. */
weir__leaf *weir__leaf_of(weir_resource *mr, const weir__leaf_kind *kind);
/* What a block of so many bytes takes of the device. */
size_t weir__leaf_held_bytes_of(const weir__leaf *self, size_t bytes);

/* ---- leaf_held.c: of kinds that hold memory of their own ---- */

/* Waits on the host for the kept block that came first. NOT_FOUND (unrecorded):
 * there is none to wait for. Of any kind. */
weir_status weir__leaf_wait_for_oldest(weir__leaf *self);
/* Waits for all that is kept, and frees it; but not for what a capture has that is not
 * released. */
weir_status weir__leaf_settle(weir__leaf *self);

/* True: there was room, as it was or with what is done by now. */
bool weir__leaf_reuse(weir__leaf *self, size_t bytes, void **out);
weir_status weir__leaf_extend(void *context, weir_stream stream, void *ptr,
                              size_t bytes, size_t alignment, size_t new_bytes);
weir_status weir__leaf_cut(void *context, void *ptr, size_t bytes, size_t alignment,
                           size_t wanted_bytes, size_t *from, size_t *to);
/* Where the kind remaps: what it has free goes to the device, so many bytes, for which
 * it waits on the host. */
void weir__leaf_make_room(weir__leaf *self, size_t bytes);
size_t weir__leaf_trim_held(weir__leaf *self, size_t keep_bytes);

#endif
