/* weir_trace.h - an allocation trace, read from a file and checked.
 *
 * The file is text, plain or gzip, in one of three forms that the first line tells.
 *
 * `t_ns,thread,stream,op,id,size` is followed by a line for each event, in the order of
 * time. op is A (allocates) or F (frees); id is any number, and names one allocation
 * until its free; size is in bytes, and is the same on both. What is never freed was
 * live at the end.
 *
 * `Thread,Time,Action,Pointer,Size,Stream` is the log of RMM's
 * logging_resource_adaptor, in the order of its lines. Addresses name allocations. Of
 * its streams 0 and 0x1 are the legacy default stream, and 0x2 is another one on each
 * thread. Allocations that failed, and those of zero bytes, are events without a block.
 *
 * With `,Device,Alignment,Sequence` behind that it is the log of Weir's logging (see
 * weir/logging.h); lines may not be missing. Where Sequence begins anew, so does
 * another run of a program: what the one before has not freed stays live.
 *
 * In memory threads, streams and blocks are numbers from 0, in the order in which
 * they first appear. What holds of a trace that was read: every free comes after the
 * allocation of its block, there is at most one, no block is empty, and there is a
 * block. Each line but the first is an event. */
#ifndef WEIR_TRACE_H
#define WEIR_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum trace_kind {
    TRACE_ALLOCATE,
    TRACE_FREE,
    TRACE_FAILURE, /* an allocation that failed; it has no block */
    TRACE_NOTHING  /* zero bytes, allocated or freed; likewise */
} trace_kind;

#define TRACE_NO_BLOCK UINT32_MAX
#define TRACE_NO_STREAM UINT32_MAX

typedef struct trace_event {
    uint32_t block;
    uint32_t thread;
    uint32_t stream;
    trace_kind kind;
} trace_event;

#define TRACE_NEVER SIZE_MAX

typedef struct trace_block {
    uint64_t id;          /* as in the file; can appear again after its free */
    size_t bytes;
    size_t alignment;     /* 256 where the file does not say */
    size_t allocated_at;  /* index of the event */
    size_t freed_at;      /* likewise, or TRACE_NEVER */
} trace_block;

typedef struct trace {
    trace_event *events;
    size_t event_count;
    trace_block *blocks;
    size_t block_count;
    size_t thread_count;
    size_t stream_count;
    uint32_t legacy_stream;   /* the one that is the legacy default stream, or
                                 TRACE_NO_STREAM */
    size_t failure_count;     /* of the events, those of each kind */
    size_t nothing_count;
    size_t peak_live_bytes;
    size_t peak_live_blocks;
} trace;

typedef struct trace_error {
    size_t line;          /* from 1; 0: not one line's fault */
    char message[200];
} trace_error;

/* Reads the file at `path`. On failure *out is empty and *error says why. */
bool trace_read(const char *path, trace *out, trace_error *error);

/* The line on which event `index` stands; the header is line 1. */
static inline size_t trace_line_of(size_t index)
{
    return index + 2;
}

/* Frees what trace_read made, and empties it. */
void trace_clear(trace *self);

#endif
