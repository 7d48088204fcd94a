/* pool_pages.h - what a pool passes on to its upstream, which has pages: see
 * pool_pages.c. To be called without locks. */
#ifndef WEIR_POOL_PAGES_H
#define WEIR_POOL_PAGES_H

#include "pool_internal.h"

/* Whether the pool ever passes anything on. */
static inline bool weir__pool_passes(const weir__pool *pool)
{
    return pool->pass_alignment != SIZE_MAX;
}

/* Upstream's answers to a request, and to what comes back of such. */
weir_status weir__pool_pass(weir__pool *pool, weir_stream stream, size_t bytes,
                            size_t alignment, void **out);
bool weir__pool_pass_back(weir__pool *pool, weir_stream stream, void *ptr, size_t bytes,
                          size_t alignment);
bool weir__pool_pass_back_after(weir__pool *pool, void *ptr, size_t bytes,
                                size_t alignment, const weir_point *points,
                                size_t count);
weir_status weir__pool_find_passed(weir__pool *pool, const void *ptr, weir_block *out);
size_t weir__pool_passed_bytes(weir__pool *pool);

/* Of the table of operations. NOT_SUPPORTED: a block that was not passed on. */
weir_status weir__pool_extend(void *pool, weir_stream stream, void *ptr, size_t bytes,
                              size_t alignment, size_t new_bytes);
weir_status weir__pool_cut(void *pool, void *ptr, size_t bytes, size_t alignment,
                           size_t wanted_bytes, size_t *from, size_t *to);

#endif
