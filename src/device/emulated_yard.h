/* emulated_yard.h - addresses for what emulated devices make of the host's memory. All
 * are theirs until the last device is closed (or the system has no more): so nobody
 * else's memory is where some was that was given back, and who touches that is seen.
 * Until then it can be touched: work that was put on a stream too late does no harm. */
#ifndef WEIR_DEVICE_EMULATED_YARD_H
#define WEIR_DEVICE_EMULATED_YARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/status.h"

#define WEIR__YARD_GRANULE ((size_t)512)

/* One device more, or less: with the last all is unmapped. OUT_OF_MEMORY,
 * OUT_OF_HOST_MEMORY: there is not one more. */
weir_status weir__yard_open(void);
void weir__yard_close(void);

/* Bytes at a multiple of `alignment`, a power of two. Nobody else is given any of the
 * granules that they are in. OUT_OF_MEMORY: the host has not so many;
 * OUT_OF_HOST_MEMORY: it has none for records. */
weir_status weir__yard_take(size_t bytes, size_t alignment, void **out);
void weir__yard_give(void *ptr);

/* Whether any of these addresses is in the yard, taken or not. */
bool weir__yard_has(uintptr_t ptr, size_t bytes);

/* Whether work may touch these bytes, which are no device's: they are the program's
 * own, or in one block that is out (emulated_host.c knows them). */
weir_status weir__host_judge(uintptr_t ptr, size_t bytes);

#endif
