/* cuda_costs_memory.c - the cost of getting memory and of giving it back, by size. */
#include "cuda_costs.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static cost gets, ends; /* too large for a stack */

/* ---- pairs of calls ---- */

/* Gets `bytes`, and gives them back; `self` is what either needs besides. */
typedef struct pair {
    const char *get_name, *end_name, *how;
    int (*get)(void *self, size_t bytes, void **out);
    int (*end)(void *self, void *ptr);
} pair;

static bool pair_cost(const pair *calls, void *self, size_t bytes)
{
    void *ptr = NULL;

    cost_begin(&gets, calls->get_name, calls->how, bytes);
    cost_begin(&ends, calls->end_name, calls->how, bytes);
    while (cost_goes_on(&gets) && cost_goes_on(&ends)) {
        COST_TIMED(&gets, 1, calls->get(self, bytes, &ptr));
        if (gets.error == 0)
            COST_TIMED(&ends, 1, calls->end(self, ptr));
    }
    return cost_end(&gets) && cost_end(&ends);
}

static void pair_costs(const pair *calls, void *self, const size_t *sizes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!pair_cost(calls, self, sizes[i]))
            return;
    }
}

#define COUNT(array) (sizeof (array) / sizeof *(array))

/* ---- cudaMalloc ---- */

static int device_get(void *self, size_t bytes, void **out)
{
    (void)self;
    return (int)cudaMalloc(out, bytes);
}

static int device_end(void *self, void *ptr)
{
    (void)self;
    return (int)cudaFree(ptr);
}

void costs_of_malloc(void)
{
    static const pair calls = { "cudaMalloc", "cudaFree", "idle", device_get,
                                device_end };
    static const size_t sizes[] = { 256, 64 * KIB, 2 * MIB, 32 * MIB, 256 * MIB, GIB };
    pair_costs(&calls, NULL, sizes, COUNT(sizes));
}

/* ---- pools ---- */

typedef struct pool_place {
    cudaMemPool_t pool;
    cudaStream_t stream;
} pool_place;

static int pool_get(void *self, size_t bytes, void **out)
{
    pool_place *at = self;
    return (int)cudaMallocFromPoolAsync(out, bytes, at->pool, at->stream);
}

static int pool_end(void *self, void *ptr)
{
    pool_place *at = self;
    return (int)cudaFreeAsync(ptr, at->stream);
}

/* What the pool has to draw first, and to give back. */
static bool pool_draw_cost(pool_place *at, size_t bytes)
{
    void *ptr;

    cost_begin(&gets, "cudaMallocFromPoolAsync", "pool grows", bytes);
    cost_begin(&ends, "cudaMemPoolTrimTo", "to nothing", bytes);
    while (cost_goes_on(&gets) && cost_goes_on(&ends)) {
        COST_TIMED(&gets, 1, pool_get(at, bytes, &ptr));
        if (gets.error != 0)
            break;
        cost_note(&ends, pool_end(at, ptr));
        cost_note(&ends, (int)cudaStreamSynchronize(at->stream));
        COST_TIMED(&ends, 1, cudaMemPoolTrimTo(at->pool, 0));
    }
    return cost_end(&gets) && cost_end(&ends);
}

static void pool_costs(pool_place *at)
{
    static const pair hits = { "cudaMallocFromPoolAsync", "cudaFreeAsync",
                               "pool has it", pool_get, pool_end };
    static const size_t sizes[] = { 256, MIB, 64 * MIB, 512 * MIB };

    for (size_t i = 0; i < COUNT(sizes); i++) {
        void *ptr;
        if (!good(hits.get_name, pool_get(at, sizes[i], &ptr))
            || !good(hits.end_name, pool_end(at, ptr))
            || !pair_cost(&hits, at, sizes[i])
            || !GOOD(cudaStreamSynchronize, at->stream)
            || !GOOD(cudaMemPoolTrimTo, at->pool, 0)
            || !pool_draw_cost(at, sizes[i]))
            return;
    }
}

static bool pool_make(cudaMemPool_t *out)
{
    struct cudaMemPoolProps properties;
    uint64_t threshold = UINT64_MAX;

    memset(&properties, 0, sizeof properties);
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    if (!GOOD(cudaMemPoolCreate, out, &properties))
        return false;
    if (GOOD(cudaMemPoolSetAttribute, *out, cudaMemPoolAttrReleaseThreshold,
             &threshold))
        return true;
    (void)GOOD(cudaMemPoolDestroy, *out);
    return false;
}

/* A pool costs to make, as well: with the first memory it draws. */
void costs_of_pools(void)
{
    pool_place at;

    if (!GOOD(cudaStreamCreateWithFlags, &at.stream, cudaStreamNonBlocking))
        return;
    if (pool_make(&at.pool)) {
        pool_costs(&at);
        (void)GOOD(cudaStreamSynchronize, at.stream);
        (void)GOOD(cudaMemPoolDestroy, at.pool);
    }
    (void)GOOD(cudaStreamDestroy, at.stream);
}

/* ---- pinned and managed ---- */

static int pinned_get(void *self, size_t bytes, void **out)
{
    (void)self;
    return (int)cudaHostAlloc(out, bytes, cudaHostAllocPortable);
}

static int pinned_end(void *self, void *ptr)
{
    (void)self;
    return (int)cudaFreeHost(ptr);
}

static int register_get(void *self, size_t bytes, void **out)
{
    *out = self;
    return (int)cudaHostRegister(self, bytes, cudaHostRegisterPortable);
}

static int register_end(void *self, void *ptr)
{
    (void)self;
    return (int)cudaHostUnregister(ptr);
}

void costs_of_pinned(void)
{
    static const pair pinned = { "cudaHostAlloc", "cudaFreeHost", "", pinned_get,
                                 pinned_end };
    static const pair registered = { "cudaHostRegister", "cudaHostUnregister",
                                     "touched before", register_get, register_end };
    static const size_t sizes[] = { 4 * KIB, 2 * MIB, 32 * MIB, 256 * MIB };
    void *pages = aligned_alloc(4 * KIB, 256 * MIB);

    pair_costs(&pinned, NULL, sizes, COUNT(sizes));
    if (pages == NULL)
        return;
    memset(pages, 1, 256 * MIB);
    pair_costs(&registered, pages, sizes, COUNT(sizes));
    free(pages);
}

static int managed_get(void *self, size_t bytes, void **out)
{
    (void)self;
    return (int)cudaMallocManaged(out, bytes, cudaMemAttachGlobal);
}

void costs_of_managed(void)
{
    static const pair calls = { "cudaMallocManaged", "cudaFree", "managed", managed_get,
                                device_end };
    static const size_t sizes[] = { 4 * KIB, 2 * MIB, 64 * MIB };
    pair_costs(&calls, NULL, sizes, COUNT(sizes));
}
