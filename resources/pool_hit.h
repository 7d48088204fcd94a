/* pool_hit.h - between the pool's files: what a thread's own cache serves (pool_hit.c),
 * and what goes the whole way (pool.c). */
#ifndef WEIR_POOL_HIT_H
#define WEIR_POOL_HIT_H

#include "pool_internal.h"

/* The table's. */
weir_status weir__pool_allocate(void *context, weir_stream stream, size_t bytes,
                                size_t alignment, void **out);
bool weir__pool_deallocate(void *context, weir_stream stream, void *ptr, size_t bytes,
                           size_t alignment);

bool weir__pool_deallocate_after(void *context, void *ptr, size_t bytes,
                                 size_t alignment, const weir_point *points,
                                 size_t count);

/* Without the cache. */
weir_status weir__pool_allocate_slowly(weir__pool *pool, weir_stream stream,
                                       size_t bytes, size_t alignment, void **out);
bool weir__pool_deallocate_slowly(weir__pool *pool, weir_stream stream, void *ptr,
                                  size_t bytes, size_t alignment);

/* From a magazine of the depot, whose blocks have that size. False: there is none that
 * the stream may wait for. */
bool weir__pool_allocate_surplus(weir__pool *pool, weir_stream stream, size_t bytes,
                                 size_t alignment, void **out);

/* A block has gone out, or come back, without a cache. */
void weir__pool_count_out(weir__pool *pool, size_t bytes);
void weir__pool_count_back(weir__pool *pool, size_t bytes);

/* Behind the gate: takes over `count` blocks, from `id` on, of a magazine that the
 * cache's stream may use. False: the bin has blocks already. */
bool weir__cache_load(weir__pool *pool, weir__cache *cache,
                      const weir__magazine *magazine, uint32_t id, uint32_t count);

#endif
