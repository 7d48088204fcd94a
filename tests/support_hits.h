/* support_hits.h - a pool on an emulated device without work or ledger, and what its
 * calls count in the test build: for tests of hits. */
#ifndef WEIR_TESTS_SUPPORT_HITS_H
#define WEIR_TESTS_SUPPORT_HITS_H

#include <string.h>

#include "internal.h"
#include "support.h"
#include "support_pool.h"
#include "sync.h"

#define WARM_ROUNDS  16
#define QUIET_ROUNDS 80    /* so that nobody else is likely to want anything */
#define DEPTH_MAX    3     /* what the test build's small stacks have room for */
#define LARGEST      (2 * KIB) /* and they have no larger blocks */

static inline pool_scene open_scene_of(weir_emulated_scheduler scheduler)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.memory_bytes = (size_t)1 << 30;
    emulated.scheduler = scheduler;
    emulated.no_ledger = true;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    pool_scene it = { .device = open_with("emulated:0", &options) };
    for (int i = 0; i < STREAMS; i++)
        it.streams[i] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    weir_resource *leaf = open_leaf(it.device);
    must_ok(weir_pool_create(leaf, NULL, &it.pool));
    weir_resource_unref(leaf);
    return it;
}

static inline pool_scene open_quiet_scene(void)
{
    return open_scene_of(WEIR_EMULATED_NO_WORK);
}

/* The pool anew, with these options. */
static inline void reopen_as(pool_scene *it, const weir_pool_options *options)
{
    weir_resource_unref(it->pool);
    weir_resource *leaf = open_leaf(it->device);
    must_ok(weir_pool_create(leaf, options, &it->pool));
    weir_resource_unref(leaf);
}

/* One whose blocks are no larger than they were asked for; and, unless that is 0, that
 * has so many bytes and gets no more. */
static inline pool_scene open_exact_scene(size_t bytes)
{
    pool_scene it = open_quiet_scene();
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.exact = true;
    options.initial_bytes = options.limit_bytes = bytes;
    reopen_as(&it, &options);
    return it;
}

/* The pool anew, with caches of so many bytes. */
static inline void reopen_cached(pool_scene *it, size_t bytes)
{
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.cache_bytes = bytes;
    reopen_as(it, &options);
}

static inline void run_on(pool_scene *it, int stream, size_t bytes, size_t depth)
{
    void *ptrs[DEPTH_MAX];
    for (size_t i = 0; i < depth; i++)
        ptrs[i] = take(it->pool, it->streams[stream], bytes);
    for (size_t i = depth; i-- > 0;)
        give(it->pool, it->streams[stream], ptrs[i], bytes);
}

/* A hit, so that all is known of it at its next free. */
static inline char *warm_hit(pool_scene *it, size_t bytes)
{
    run_on(it, 0, bytes, 1);
    run_on(it, 0, bytes, 1);
    return take(it->pool, it->streams[0], bytes);
}

/* ---- what is counted ---- */

typedef struct counts {
    weir_device_calls device; /* of all threads */
    uint64_t host_calls;      /* likewise */
    uint64_t locks;           /* of the calling thread */
} counts;

static inline counts counts_here(pool_scene *it)
{
    return (counts){ calls_of(it->device), weir__host_calls(), weir__mutex_count() };
}

/* Claims that the calling thread took no lock, and nobody did any of the rest. */
static inline void must_have_counted_nothing(pool_scene *it, const counts *before)
{
    uint64_t locks = weir__mutex_count();
    must_equal(locks, before->locks);
    must_equal(weir__host_calls(), before->host_calls);
    weir_device_calls device = calls_of(it->device);
    must(memcmp(&device, &before->device, sizeof device) == 0);
}

static inline void must_be_refused(pool_scene *it, void *ptr, size_t bytes,
                                   size_t alignment, weir_misuse_kind kind)
{
    misuse_log log;
    misuse_begin(&log);
    must(!weir_deallocate(it->pool, it->streams[0], ptr, bytes, alignment));
    must_be_misuse(&log, kind, ptr);
    misuse_end();
}

#endif
