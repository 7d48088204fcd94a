/* weir/logging.h - writes each call that passes through to a file, in the form of RMM.
 *
 * The file is CSV. Its first six columns are those of RMM's logging_resource_adaptor,
 * in names, order and form, so that what reads RMM's log reads this one; three more
 * follow, and `weir replay` reads both:
 *
 *   Thread,Time,Action,Pointer,Size,Stream,Device,Alignment,Sequence
 *   4711,15:47:02.841961,allocate,0x7f0000000000,1048576,0x55d0c8a2b2c0,cuda:0,256,1
 *   4711,15:47:02.841977,allocate failure,(nil),4096,0,cuda:0,256,2
 *   4712,15:47:02.842006,free,0x7f0000000000,1048576,0x2,cuda:0,256,3
 *
 * Thread is the system's number of the thread, Time that of day in the time zone as of
 * the beginning, Stream the handle as it was given (0 and 0x1: legacy, 0x2: the calling
 * thread's own). Sequence counts the lines of one resource from 1, and a line never
 * stands before one with a lower number; some have zeros in front, which fill up a page
 * of the file.
 *
 * The order is a valid one to replay: an allocation is logged after upstream made it,
 * a deallocation before upstream gets the memory back. weir_deallocate_after, which
 * names no stream, is logged as on the legacy one (0x1). A block that has grown in
 * place (weir_resource_extend) is two lines, one right behind the other: a free with
 * its old size and an allocation with its new one, of the same pointer, both on the
 * stream of the call; a replay may move it there. One that was cut (weir_resource_cut)
 * is a free and two or three allocations, on the legacy stream. Not logged is what asks
 * nothing of upstream: zero bytes, null, an alignment that cannot be, an allocation
 * from a lost device; and what changes nothing: a block that upstream does not extend,
 * and misuse that it can tell beforehand (can_find). */
#ifndef WEIR_LOGGING_H
#define WEIR_LOGGING_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_logging_options {
    size_t struct_size;
    /* Go on behind what the file holds, which must be a log of this form. Else the
     * file begins anew. */
    bool append;
    /* Lines may wait in memory until they are this many bytes, 1 MiB at most; zero:
     * each is written at once. */
    size_t flush_bytes;
} weir_logging_options;

#define WEIR_LOGGING_OPTIONS_INIT { sizeof(weir_logging_options), false, 0 }

/* Creates a resource over `upstream`, which it keeps alive, that writes a line to
 * `file` for each call. Null options are all defaults. What has no end, as a terminal
 * or /dev/stderr, may be a file too.
 *
 * Only whole lines reach the file, with one write each or, with flush_bytes, for many,
 * and none lies across a multiple of 4 KiB. So a process that is killed leaves no half
 * line, and loses nothing; with flush_bytes up to that many bytes. A failure to
 * allocate is written at once in any case. What waits is written by
 * weir_logging_flush, and when the resource ends; not when the process does. A crash of
 * the whole machine can lose more.
 *
 * A line that cannot be written is lost, and nothing else happens: the call that it
 * tells of succeeds or fails as upstream has it. See weir_logging_get_state.
 *
 * A fork's child writes nothing. Signals about the file (SIGXFSZ, SIGPIPE) do not
 * reach the program.
 *
 *   FILE_ERROR         the file cannot be opened, read or written, or another resource
 *                      of this or another process writes to it; native_code is errno
 *   INVALID_ARGUMENT   the file to append to is no log of this form, or its last line
 *                      is torn; or flush_bytes is too large
 *
 * After a failure the file is as it was, or empty where it was created, or where not
 * even the names of the columns could be written. A fork's child that lives on counts
 * as a writer until it executes a program. */
WEIR_API WEIR_NODISCARD weir_status
weir_logging_create(weir_resource *upstream, const char *file,
                    const weir_logging_options *options, weir_resource **out);

/* Fills *out, whose struct_size the caller has set, with the options in force. `mr` is
 * a logging resource, or INVALID_ARGUMENT. */
WEIR_API WEIR_NODISCARD weir_status
weir_logging_get_options(weir_resource *mr, weir_logging_options *out);

/* Writes what waits. FILE_ERROR: it could not be, and is lost. `mr` is a logging
 * resource, or INVALID_ARGUMENT. */
WEIR_API WEIR_NODISCARD weir_status weir_logging_flush(weir_resource *mr);

/* How the log is doing. Each number of lines is since the resource was created. */
typedef struct weir_logging_state {
    size_t struct_size;
    uint64_t lines;         /* the last number in the column Sequence */
    uint64_t lines_waiting; /* of these, not written yet */
    uint64_t lines_lost;    /* of these, not in the file: the numbers have gaps there */
    int32_t last_errno;     /* why the last one was lost; 0: none was */
} weir_logging_state;

/* Fills *out, whose struct_size the caller has set. `mr` is a logging resource, or
 * INVALID_ARGUMENT. */
WEIR_API WEIR_NODISCARD weir_status
weir_logging_get_state(weir_resource *mr, weir_logging_state *out);

#ifdef __cplusplus
}
#endif
#endif
