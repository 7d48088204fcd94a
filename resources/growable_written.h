/* growable_written.h - what a resume has put on its stream to be written, and may still
 * be under way: nothing of a growable is unmapped before.
 *
 * That is all that was out when it was paused, also what resources above have had back
 * since. No mark of theirs is behind it, for it is on a stream that they know nothing
 * of. Any thread may call these; the waits are to be without locks of rank resource and
 * above. */
#ifndef WEIR_GROWABLE_WRITTEN_H
#define WEIR_GROWABLE_WRITTEN_H

#include "device/device.h"
#include "stream_order.h"
#include "sync.h"

typedef struct weir__written {
    weir_device *device; /* not counted */
    weir__mutex lock;
    weir__mark mark;     /* guarded by the lock; DONE: it was waited for */
} weir__written;

void weir__written_init(weir__written *it, weir_device *device);
void weir__written_end(weir__written *it);
/* It is what was put on `stream`. What was noted before was waited for. */
void weir__written_note(weir__written *it, weir_stream stream);
/* Waits for it on the host, and tells the ledger's clock `key`. On failure it may be
 * under way. */
weir_status weir__written_sync(weir__written *it, uint64_t key);

#endif
