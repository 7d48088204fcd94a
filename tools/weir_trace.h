/* weir_trace.h - an allocation trace, read from a file and checked.
 *
 * The file is text, plain or gzip: the header `t_ns,thread,stream,op,id,size`, then
 * a line for each event, in the order of time. op is A (allocates) or F (frees); id
 * is any number, and names one allocation until its free; size is in bytes, and is
 * the same on both. What is never freed was live at the end.
 *
 * In memory threads, streams and blocks are numbers from 0, in the order in which
 * they first appear. What holds of a trace that was read: every free comes after the
 * allocation of its block, there is at most one, and no block is empty. */
#ifndef WEIR_TRACE_H
#define WEIR_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct trace_event {
    uint32_t block;
    uint32_t thread;
    uint32_t stream;
    bool is_free;
} trace_event;

#define TRACE_NEVER SIZE_MAX

typedef struct trace_block {
    uint64_t id;          /* as in the file; can appear again after its free */
    size_t bytes;
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
