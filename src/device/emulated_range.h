/* emulated_range.h - addresses of an emulated device that memory is mapped to, and what
 * they need of its memory. */
#ifndef WEIR_DEVICE_EMULATED_RANGE_H
#define WEIR_DEVICE_EMULATED_RANGE_H

#include "device/emulated.h"

/* ---- emulated_memory.c ---- */

/* What guards arenas and their blocks, and the devices' free bytes. */
void weir__memory_lock(void);
void weir__memory_unlock(void);
/* The arena that has any of the bytes; null: they are the host's. Under the lock. */
weir__arena *weir__arena_of(uintptr_t ptr, size_t bytes);
/* An arena is found from now on. Without the lock. */
void weir__arena_enlist(weir__arena *arena);

/* ---- emulated_range.c ---- */

weir_status weir__emulated_range_reserve(void *device, size_t bytes, void **out);
weir_status weir__emulated_range_release(void *device, void *base, size_t bytes);
weir_status weir__emulated_range_map(void *device, void *ptr, size_t bytes);
weir_status weir__emulated_range_unmap(void *device, void *ptr, size_t bytes);

#endif
