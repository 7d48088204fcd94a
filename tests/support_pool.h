/* support_pool.h - for the tests of the pool: a stepped device, four streams, and a
 * pool over the device's memory. Blocks are stamped with their own address. */
#ifndef WEIR_TESTS_SUPPORT_POOL_H
#define WEIR_TESTS_SUPPORT_POOL_H

#include "support.h"
#include "weir/weir.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define STREAMS 4

typedef struct pool_scene {
    weir_device *device;
    weir_stream streams[STREAMS]; /* non-blocking, known */
    weir_resource *pool;
} pool_scene;

/* Takes over the caller's reference to `upstream`. */
weir_resource *open_pool(weir_resource *upstream, size_t initial_bytes,
                         size_t limit_bytes, size_t growth_bytes);
weir_resource *open_leaf(weir_device *device);

pool_scene open_scene(uint64_t seed, size_t initial_bytes, size_t limit_bytes,
                      size_t growth_bytes);
/* One without its pool, which the caller makes: on a device of so much memory, which
 * has a ledger if it does any work. */
pool_scene open_scene_without_pool(weir_emulated_scheduler scheduler,
                                   size_t memory_bytes);
void close_scene(pool_scene *it);

/* Allocates on stream number `stream` and stamps there; checks there and gives back. */
void *take_on(pool_scene *it, int stream, size_t bytes);
void give_on(pool_scene *it, int stream, void *ptr, size_t bytes);
void *try_take(pool_scene *it, int stream, size_t bytes, weir_status wanted);

uint64_t stall(pool_scene *it, int stream);
void open_gate(pool_scene *it, uint64_t gate);

/* How often a stream was made to wait so far. */
uint64_t waits(pool_scene *it);

#endif
