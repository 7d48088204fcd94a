/* allocator.h - the allocator that a benchmark program measures.
 *
 * Each program is linked with one file that implements this, so that a process has one
 * allocator. All calls are through these functions, and what they cost by themselves is
 * measured too: by allocator_null.c. */
#ifndef WEIR_BENCH_ALLOCATOR_H
#define WEIR_BENCH_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STREAMS_MAX 64

typedef struct allocator_options {
    unsigned streams;    /* to make, besides the default stream */
    bool unknown;        /* for Weir: do not introduce them to it */
    bool own;            /* for Weir: each is the calling thread's own */
    const char *spec;    /* for Weir: resources to build; null: the default */
    const char *device;  /* for Weir: the device's name; null: an emulated one */
    size_t memory_bytes; /* for Weir: of the emulated device; 0: the default */
} allocator_options;

/* What the program is called, and what it measures, for people: with version. */
extern const char *const allocator_name;
const char *allocator_description(void);

/* Whether it makes something of an option that is for Weir, as "--spec"; what it does
 * not is wrong usage. */
bool allocator_takes(const char *option);

/* False: it was said why, on stderr. One at a time. */
bool allocator_open(const allocator_options *options);
void allocator_close(void);

/* Null: it has failed. */
void *allocator_allocate(size_t bytes, unsigned stream);
void allocator_deallocate(void *ptr, size_t bytes, unsigned stream);

/* Device calls so far, by kind; an allocator without a device has none. */
#define ALLOCATOR_CALL_MAP(X)                                                    \
    X(event_record) X(event_query) X(stream_wait_event) X(others)

typedef struct allocator_calls {
#define X(name) uint64_t name;
    ALLOCATOR_CALL_MAP(X)
#undef X
} allocator_calls;

allocator_calls allocator_get_calls(void);

#endif
