/* weir/tracking.h - knows which blocks are out, and which code allocated them: finds
 * leaks, and names both ends of a double free. */
#ifndef WEIR_TRACKING_H
#define WEIR_TRACKING_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_TRACKING_FRAMES_MAX 32
#define WEIR_TRACKING_FREED_MAX  (1 << 20)

/* Is given a report line by line, without line ends; `text` lives as long as the call.
 * No lock is held: it may allocate and give back, of this resource, too. */
typedef void (*weir_tracking_line)(void *context, const char *text);

typedef struct weir_tracking_options {
    size_t struct_size;
    size_t frames;         /* kept of each call site, at most FRAMES_MAX; 0: 8 */
    size_t freed_blocks;   /* the last so many are remembered, up to FREED_MAX;
                              0: 1024 */
    weir_tracking_line on_leak; /* null: the last unref reports nothing */
    void *context;              /* for it; lives until the last unref has returned */
} weir_tracking_options;

#define WEIR_TRACKING_OPTIONS_INIT                                               \
    { sizeof(weir_tracking_options), 0, 0, NULL, NULL }

/* Creates a resource over `upstream`, which it keeps alive, that keeps a record of each
 * block that is out, with the call site that allocated it. It is asked for before
 * upstream is (OUT_OF_HOST_MEMORY), and costs a walk up the call stack and a lock for
 * each call. Null options are all defaults.
 *
 * A resource lives until its last block is back, and so the report of leaks is due when
 * its last reference goes: if blocks are out then, weir_resource_unref gives on_leak
 * what weir_tracking_report would. A program that gives blocks back later, which it
 * may, sees these, too.
 *
 * A block that is given back twice, or with a wrong size, goes to the misuse handler;
 * the sentence names both deallocations, or the allocation. The second deallocation is
 * known as one while the block is among the last freed_blocks; later it is of a foreign
 * pointer. One that comes when the address was handed out anew cannot be told from a
 * right one.
 *
 * weir_resource_find goes by the records. All else is upstream's; the failures of the
 * statistics count those for want of a record, too. */
WEIR_API WEIR_NODISCARD weir_status
weir_tracking_create(weir_resource *upstream, const weir_tracking_options *options,
                     weir_resource **out);

/* Gives `line` a report: how many blocks are out and how many bytes; then for each, the
 * oldest first, a line of its own, and one for each frame of its call site, indented.
 * A frame is NAME+OFFSET where the name of the function can be found (in what a linker
 * exports), and MODULE+OFFSET, which addr2line takes. The first frames are Weir's own.
 * Blocks that come and go meanwhile may be left out; no host memory is needed.
 * INVALID_ARGUMENT: `mr` is no tracking resource, or `line` is null. */
WEIR_API WEIR_NODISCARD weir_status
weir_tracking_report(weir_resource *mr, weir_tracking_line line, void *context);

/* A weir_tracking_line that writes to standard error; `context` is ignored. */
WEIR_API void weir_tracking_line_to_stderr(void *context, const char *text);

/* Fills *out, whose struct_size the caller has set, with the options in force. `mr` is
 * a tracking resource, or INVALID_ARGUMENT. */
WEIR_API WEIR_NODISCARD weir_status
weir_tracking_get_options(weir_resource *mr, weir_tracking_options *out);

#ifdef __cplusplus
}
#endif
#endif
