/* weir/checking.h - finds out which block was overrun, or written after it was given
 * back, on a device where nothing else tells: put it in front of the chain of a program
 * that spoils its memory ("checking/pool/device"). */
#ifndef WEIR_CHECKING_H
#define WEIR_CHECKING_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_CHECKING_GUARD_MAX     ((size_t)64 << 10)
#define WEIR_CHECKING_LOOK_MAX      ((size_t)1 << 20)
#define WEIR_CHECKING_FRAMES_MAX    16
#define WEIR_CHECKING_NO_QUARANTINE SIZE_MAX

/* Zero asks for the default. */
typedef struct weir_checking_options {
    size_t struct_size;
    size_t guard_bytes;      /* on each side of a block, at most GUARD_MAX; 0: 256 */
    size_t quarantine_bytes; /* of blocks given back, held back; 0: 64 MiB */
    size_t look_bytes;       /* looked at of a block that leaves the quarantine, four
                                times the guard at least, LOOK_MAX at most; 0: 64 KiB */
    size_t frames;           /* kept of each call site, at most FRAMES_MAX; 0: 4 */
    bool fills;              /* blocks begin with `first_byte` in all bytes */
    uint8_t first_byte;
    bool strict;             /* all waits between streams are made through Weir */
} weir_checking_options;

#define WEIR_CHECKING_OPTIONS_INIT                                               \
    { sizeof(weir_checking_options), 0, 0, 0, 0, false, 0, false }

/* Creates a resource over `upstream`, which it keeps alive. What it finds goes to the
 * misuse handler, in a sentence that has the block's address and bytes, which bytes
 * were written, and on which streams and by which code it was allocated and given back:
 *
 *   OVERRUN          there are guard bytes on both sides of each block, filled when it
 *                    is allocated and looked at when it comes back: some were written
 *   USE_AFTER_FREE   a block that came back is filled and held back for a while; by the
 *                    time it leaves, some of it was written. All of it is looked at up
 *                    to look_bytes, else the first and the last half of these
 *   DOUBLE_FREE      given back again, while it is held back
 *   FOREIGN_POINTER, WRONG_SIZE   as from every resource that keeps records
 *   WRONG_STREAM     `strict` only: it comes back on a stream that is, as far as Weir
 *                    was told, not behind its allocation. It comes back all the same
 *
 * Fills and looks are put on streams, and never stop the host: a look is a copy to
 * pinned memory, judged by a later call, from whose thread the handler is told; what
 * was found changes nothing about that call. Only trim, the end of the resource and
 * weir_checking_check_sync wait. What is not found: a write that leaves the bytes as
 * they were filled, and reads; with `fills` what was never written stands out.
 *
 * Without a fault of the program's there is no finding. Where a check cannot be made it
 * is left out and counted: the stream is being captured, by weir_capture_begin or
 * otherwise (a graph would repeat it; memory that a capture allocated is never
 * checked); the device refuses a fill or a copy; 64 looks are under way already; the
 * block leaves the quarantine while work in front of its deallocation runs, for which
 * up to twice quarantine_bytes wait; it came back behind more than four points, or
 * without a place in the quarantine behind points that are not done. An allocation on a
 * stream in a capture that Weir was not told of is refused: CAPTURING.
 *
 * On an emulated device that keeps a ledger, work that touches guard bytes, or a block
 * that is held back, is a finding at once, reads too.
 *
 * A block costs its guards (in front as many bytes as its alignment at least), a record
 * on the host, two fills and two copies of a guard, and a fill, a copy and an event in
 * the quarantine; on the legacy stream each of these is an operation, and so a barrier.
 * The resource has 64 times look_bytes of pinned memory, and a stream of its own. What
 * is held back goes upstream before an allocation fails for want of memory; that waits
 * for another thread which is just giving some, 100 ms at most. Blocks can be extended
 * if upstream's can. Its memory is no object of its own any more (share_kind), nor
 * usable at once on all streams.
 *
 * The answers are those of the device for a stream and pinned memory, besides
 * OUT_OF_HOST_MEMORY. Null options are all defaults. */
WEIR_API WEIR_NODISCARD weir_status
weir_checking_create(weir_resource *upstream, const weir_checking_options *options,
                     weir_resource **out);

/* Waits on the host for all work of the device, and looks at everything that is there:
 * what is under way, the guards of all blocks that are out, and all bytes of what is
 * held back, which then goes upstream. Writes how many findings the handler was told by
 * this call (out may be null). Blocks that others allocate or extend meanwhile may be
 * left out; to give back a block while its guards are looked at waits for that.
 *
 *   CAPTURING       a stream is being captured, which a wait would spoil
 *   DEVICE_ERROR    the device refused the wait: nothing was looked at */
WEIR_API WEIR_NODISCARD weir_status
weir_checking_check_sync(weir_resource *mr, uint64_t *out);

typedef struct weir_checking_statistics {
    size_t struct_size;
    uint64_t overruns;           /* findings, each told to the handler */
    uint64_t uses_after_free;
    uint64_t wrong_frees;        /* double, foreign, with a wrong size */
    uint64_t wrong_streams;
    uint64_t looks;              /* that were judged */
    uint64_t not_checked;        /* that were left out, and blocks without guards */
    size_t quarantine_blocks;    /* held back now */
    size_t quarantine_bytes;
} weir_checking_statistics;

/* Fills *out, whose struct_size the caller has set. `mr` is a checking resource, or
 * INVALID_ARGUMENT; so for the next. */
WEIR_API WEIR_NODISCARD weir_status
weir_checking_get_statistics(weir_resource *mr, weir_checking_statistics *out);

/* The same with the options in force. */
WEIR_API WEIR_NODISCARD weir_status
weir_checking_get_options(weir_resource *mr, weir_checking_options *out);

#ifdef __cplusplus
}
#endif
#endif
