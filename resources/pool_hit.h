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

/* What weir_allocate and weir_deallocate do where no ledger listens. */
weir_status weir__pool_hit(weir_resource *mr, weir_stream stream, size_t bytes,
                           size_t alignment, void **out);
bool weir__pool_hit_back(weir_resource *mr, weir_stream stream, void *ptr, size_t bytes,
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

/* ---- pool_refill.c: behind the gate ---- */

/* What is to be done outside of the gate. */
typedef struct weir__errand {
    weir_stream wanted; /* the thread frees on it, and has no cache for it: giving back
                           cannot make one */
    bool surplus;       /* a magazine of another stream's is to be taken */
    bool lay_by;        /* a seat for a thread that only gives back */
} weir__errand;

/* A block of `grains` grains, of which `bytes` bytes were asked for. Null: there is
 * none, but if *loads, the cache has a magazine of these now. */
void *weir__pool_refill(weir__pool *pool, weir__cache *cache, uint32_t grains,
                        size_t bytes, size_t alignment, bool *loads,
                        weir__errand *after);

/* The same for what is too large for any stack. */
void *weir__pool_take_large(weir__pool *pool, weir__cache *cache, uint32_t grains,
                            size_t bytes, size_t alignment, weir__errand *after);
/* Such a block becomes free, that was out with `tag` and of which `bytes` bytes were
 * asked for, and what was spilt. False: it is not what it was, and nothing has
 * changed. */
bool weir__pool_give_large(weir__pool *pool, weir__cache *cache, uint32_t id,
                           weir__heap_block *block, const void *ptr, size_t bytes,
                           uint32_t tag);

/* What was spilt becomes free. */
void weir__cache_settle_spilt_locked(weir__pool *pool, weir__cache *cache)
    WEIR_REQUIRES(pool->lock);
/* Where much has become free since the last, an event; without locks. */
void weir__cache_close_sometimes(weir__pool *pool, weir__cache *cache);

/* Takes over `count` blocks, from `id` on, of a magazine that the
 * cache's stream may use. False: the bin has blocks already. */
bool weir__cache_load(weir__pool *pool, weir__cache *cache,
                      const weir__magazine *magazine, uint32_t id, uint32_t count);

#endif
