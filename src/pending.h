/* pending.h - storages that nobody holds, and whose bytes cannot be given back yet:
 * their deleter ignores streams, and a use is not known to be done (deferred); or work
 * uses them that nobody can name (in limbo). One list of each for a device. */
#ifndef WEIR_PENDING_H
#define WEIR_PENDING_H

#include "device/device.h"
#include "internal.h"
#include "weir/buffer.h"

typedef struct weir__pending weir__pending;

weir_status weir__pending_create(weir__pending **out);
/* Both lists are empty. Null is ignored. */
void weir__pending_destroy(weir__pending *pending);

/* Hand over a storage; make no device call. */
void weir__pending_defer(weir_storage *storage);
void weir__pending_to_limbo(weir_storage *storage);

/* Looks after the first few of those deferred, and after limbo where that is above its
 * bound: what every call about buffers of a device may do. Never waits. To be called
 * without locks. */
WEIR_COLD void weir__pending_look_after(weir_device *device);
static inline void weir__pending_look(weir_device *device)
{
    /* It begins with whether a look has something to do. */
    const _Atomic bool *is_wanted = (const void *)device->pending;
    if (WEIR_UNLIKELY(*is_wanted))
        weir__pending_look_after(device);
}

/* As weir_allocate; but where that finds no memory, what is in limbo is given back:
 * what is done, and if that is not enough all, for which the host waits. */
weir_status weir__pending_allocate(weir_resource *mr, weir_stream stream, size_t bytes,
                                   size_t alignment, void **out);

#endif
