/* heap.h - an arena of jemalloc's whose memory comes from a resource.
 *
 * jemalloc asks for extents from within, under locks of its own, where nobody may be
 * called. So its hooks only take from a shelf and put there, and remember what was
 * asked for in vain; who wants memory draws that from upstream outside, puts it on the
 * shelf, and asks again:
 *
 *     heap_cut --> jemalloc --> hook: nothing of that size on the shelf    null, wanted
 *     heap_draw --> upstream --> shelf
 *     heap_cut --> jemalloc --> hook: takes it                             a block
 */
#ifndef WEIR_JEMALLOC_HEAP_H
#define WEIR_JEMALLOC_HEAP_H

#include <pthread.h>

#include "weir/resource.h"

#include <jemalloc/jemalloc.h>

/* What upstream gave, and jemalloc's part of it. */
typedef struct extent {
    struct extent *next;
    void *base;
    size_t bytes, alignment; /* as upstream was asked */
    char *ptr;
    size_t size;             /* as jemalloc was given it, or would be */
} extent;

/* What jemalloc asked for in vain: first, and at last. 0: nothing. */
typedef struct wanted {
    size_t first_size, first_alignment;
    size_t last_size, last_alignment;
} wanted;

typedef struct heap {
    extent_hooks_t hooks;    /* first: a hook finds its heap by it */
    weir_resource *upstream; /* not counted */
    weir_device *device;
    size_t upstreams_max;    /* alignment */
    bool upstream_is_at_once; /* usable */
    unsigned arena;
    pthread_rwlock_t using;  /* for writing: nobody is in jemalloc; a leaf, as is */
    pthread_mutex_t lock;    /* what guards the following */
    extent *shelf;           /* upstream's, not jemalloc's */
    extent *taken;           /* jemalloc has them */
    size_t held_bytes, peak_held_bytes;
    size_t cut;              /* blocks that are jemalloc's callers' */
} heap;

/* Host memory that is no heap's; zeroed. */
void *heap_host_alloc(size_t bytes);
void heap_host_free(void *ptr);

/* False: jemalloc has no arena left, or no memory. */
bool heap_begin(heap *self, weir_resource *upstream,
                const weir_resource_properties *properties);

/* Null: *out says what it takes; nothing, if no extent does. */
void *heap_cut(heap *self, size_t bytes, size_t alignment, wanted *out);
void heap_uncut(heap *self, void *ptr, size_t bytes, size_t alignment);

/* Draws an extent and puts it on the shelf; the answers are upstream's. `stream` is
 * asked to wait for nothing, and the host waits where upstream's memory is not usable
 * at once. */
weir_status heap_draw(heap *self, weir_stream stream, size_t size, size_t alignment);

/* Lets jemalloc give up what it can, all if nothing is cut, and gives upstream what is
 * on the shelf while more than `keep_bytes` is held. Returns how much. To be called by
 * who knows that all of it is done. */
size_t heap_give(heap *self, size_t keep_bytes);

typedef struct heap_counts {
    size_t held_bytes, peak_held_bytes;
} heap_counts;
heap_counts heap_count(heap *self);

/* The end: nothing is cut, or `leaks` is set, and then upstream's blocks stay out, and
 * the memory of the heap with jemalloc. */
void heap_end(heap *self, bool leaks);

#endif
