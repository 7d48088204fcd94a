/* support_mempool.h - short words for the pools of a device's own, for their tests. */
#ifndef WEIR_TESTS_SUPPORT_MEMPOOL_H
#define WEIR_TESTS_SUPPORT_MEMPOOL_H

#include "device/device.h"
#include "support_work.h"

#define CHUNK ((size_t)64 << 10) /* what a pool draws, in tests */
#define EVERYTHING SIZE_MAX      /* as a threshold */

#define SAME     WEIR_ASYNC_REUSE_SAME_STREAM
#define EVENTS   WEIR_ASYNC_REUSE_EVENTS
#define CHANCE   WEIR_ASYNC_REUSE_OPPORTUNISTIC
#define INTERNAL WEIR_ASYNC_REUSE_INTERNAL

/* The primitives, which must succeed. */
weir_mempool make_pool(weir_device *device, uint32_t reuse, size_t threshold);
weir_mempool make_pool_of(weir_device *device, weir_async_memory memory);
/* Whose blocks other processes can open. */
weir_mempool make_pool_to_share(weir_device *device);
void end_pool(weir_device *device, weir_mempool pool);
void *draw(weir_device *device, weir_mempool pool, weir_stream stream, size_t bytes);
void back(weir_device *device, weir_stream stream, void *ptr);
weir__mempool_state state_of(weir_device *device, weir_mempool pool);
void must_hold(weir_device *device, weir_mempool pool, size_t reserved, size_t used);
/* Everything that can go on does. */
void step_all(weir_device *device);

#endif
