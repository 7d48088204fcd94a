/* pending.h - storages that nobody holds, and whose bytes cannot be given back yet:
 * their deleter ignores streams, and a use is not known to be done (deferred); or work
 * uses them that nobody can name (in limbo). One list of each for a device. */
#ifndef WEIR_PENDING_H
#define WEIR_PENDING_H

#include "weir/buffer.h"

typedef struct weir__pending weir__pending;

weir_status weir__pending_create(weir__pending **out);
/* Both lists are empty. Null is ignored. */
void weir__pending_destroy(weir__pending *pending);

/* Hand over a storage; make no device call. */
void weir__pending_defer(weir_storage *storage);
void weir__pending_to_limbo(weir_storage *storage);

/* Looks after the first few of those deferred: what every call about buffers of a
 * device may do. To be called without locks. */
void weir__pending_look(weir_device *device);

#endif
