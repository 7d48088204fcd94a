/* cuda_memory.c - memory of a CUDA device, of the host for it, and the driver's
 * pools. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda_module.h"

/* ---- memory that is given at once ---- */

weir_status weir__cuda_malloc(void *device, size_t bytes, void **out)
{
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_MEMORY, cudaMalloc(out, bytes));
}

weir_status weir__cuda_free(void *device, void *ptr)
{
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_MEMORY, cudaFree(ptr));
}

weir_status weir__cuda_host_malloc(void *device, size_t bytes, size_t alignment,
                                   void **out)
{
    weir__cuda *self = device;
    if (!self->reaches_pageable)
        return weir__cuda_fail(self, WEIR_NOT_SUPPORTED, cudaErrorNotSupported,
                               "cuda:%d cannot reach ordinary host memory: use pinned "
                               "or managed memory",
                               (int)self->ordinal);
    if (posix_memalign(out, alignment < sizeof(void *) ? sizeof(void *) : alignment,
                       bytes) != 0)
        return weir__cuda_fail(self, WEIR_OUT_OF_MEMORY, cudaErrorMemoryAllocation,
                               "the host has no %zu bytes", bytes);
    return WEIR_OK;
}

weir_status weir__cuda_host_free(void *device, void *ptr)
{
    (void)device;
    free(ptr);
    return WEIR_OK;
}

weir_status weir__cuda_memory_info(void *device, size_t *free_bytes,
                                   size_t *total_bytes)
{
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_WORK,
                       cudaMemGetInfo(free_bytes, total_bytes));
}

/* ---- memory that moves ---- */

/* CUDA 13 says where by a location, CUDA 12 by a number. */
#if CUDART_VERSION >= 13000
typedef struct cudaMemLocation somewhere;

static somewhere place_at(bool on_host, int ordinal)
{
    return (somewhere){
        .type = on_host ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice,
        .id = on_host ? 0 : ordinal,
    };
}

static cudaError_t prefetch(void *ptr, size_t bytes, somewhere to, cudaStream_t stream)
{
    return cudaMemPrefetchAsync(ptr, bytes, to, 0, stream);
}
#else
typedef int somewhere;

static somewhere place_at(bool on_host, int ordinal)
{
    return on_host ? cudaCpuDeviceId : ordinal;
}

static cudaError_t prefetch(void *ptr, size_t bytes, somewhere to, cudaStream_t stream)
{
    return cudaMemPrefetchAsync(ptr, bytes, to, stream);
}
#endif

static cudaError_t advise(void *ptr, size_t bytes, enum cudaMemoryAdvise advice,
                          bool on_host, int ordinal)
{
    return cudaMemAdvise(ptr, bytes, advice, place_at(on_host, ordinal));
}

static weir_status fail_unmoved(weir__cuda *self)
{
    return weir__cuda_fail(self, WEIR_NOT_SUPPORTED, cudaErrorNotSupported,
                           "cuda:%d has no memory that moves when it is told to",
                           (int)self->ordinal);
}

weir_status weir__cuda_prefetch(void *device, weir_stream stream, void *ptr,
                                size_t bytes, weir__place place)
{
    weir__cuda *self = device;
    if (!self->moves_managed)
        return fail_unmoved(self);
    somewhere to = place_at(place == WEIR__PLACE_HOST, (int)self->ordinal);
    WEIR__CUDA_DO_AS(device, WEIR__CUDA_MEMORY, prefetch(ptr, bytes, to, stream),
                     "cudaMemPrefetchAsync");
}

weir_status weir__cuda_prefer(void *device, void *ptr, size_t bytes, weir__place place)
{
    weir__cuda *self = device;
    if (!self->moves_managed)
        return fail_unmoved(self);
    enum cudaMemoryAdvise advice = place == WEIR__PLACE_ANY
                                       ? cudaMemAdviseUnsetPreferredLocation
                                       : cudaMemAdviseSetPreferredLocation;
    WEIR__CUDA_DO_COLD_AS(device, WEIR__CUDA_MEMORY,
                          advise(ptr, bytes, advice, place == WEIR__PLACE_HOST,
                                 (int)self->ordinal),
                          "cudaMemAdvise");
}

static cudaError_t managed_make(const weir__cuda *self, size_t bytes,
                                const weir_managed_options *options, void **out)
{
    bool on_host = options->preferred == WEIR_MANAGED_HOST;
    cudaError_t error = cudaMallocManaged(out, bytes, cudaMemAttachGlobal);
    if (error != cudaSuccess)
        return error;
    if (options->preferred != WEIR_MANAGED_ANYWHERE)
        error = advise(*out, bytes, cudaMemAdviseSetPreferredLocation, on_host,
                       (int)self->ordinal);
    if (error == cudaSuccess && options->read_mostly)
        error = advise(*out, bytes, cudaMemAdviseSetReadMostly, false,
                       (int)self->ordinal);
    if (error != cudaSuccess)
        (void)cudaFree(*out);
    return error;
}

weir_status weir__cuda_managed_malloc(void *device, size_t bytes,
                                      const weir_managed_options *options, void **out)
{
    WEIR__CUDA_DO_COLD_AS(device, WEIR__CUDA_MEMORY,
                          managed_make(device, bytes, options, out),
                          "cudaMallocManaged, or the advice,");
}

/* ---- pinned ---- */

_Static_assert(WEIR__PINNED_PORTABLE == cudaHostAllocPortable &&
               WEIR__PINNED_PORTABLE == cudaHostRegisterPortable &&
               WEIR__PINNED_MAPPED == cudaHostAllocMapped &&
               WEIR__PINNED_MAPPED == cudaHostRegisterMapped,
               "our flags are CUDA's");

weir_status weir__cuda_pinned_malloc(void *device, size_t bytes, uint32_t flags,
                                     void **out)
{
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_MEMORY, cudaHostAlloc(out, bytes, flags));
}

weir_status weir__cuda_pinned_free(void *device, void *ptr)
{
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_MEMORY, cudaFreeHost(ptr));
}

weir_status weir__cuda_host_register(void *device, void *ptr, size_t bytes,
                                     uint32_t flags)
{
    weir__cuda *self = device;
    if (!self->reaches_registered)
        return weir__cuda_fail(self, WEIR_NOT_SUPPORTED, cudaErrorNotSupported,
                               "cuda:%d cannot reach registered host memory at its own "
                               "address: use pinned memory of no particular node",
                               (int)self->ordinal);
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_MEMORY, cudaHostRegister(ptr, bytes, flags));
}

weir_status weir__cuda_host_unregister(void *device, void *ptr)
{
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_MEMORY, cudaHostUnregister(ptr));
}

/* ---- the driver's pools ---- */

/* Whether there are pools of that memory, with such handles. Those of the host's have
 * some only if they are on one node of it. */
static bool pool_is_supported(const weir__cuda *self, const weir_async_options *options)
{
    const bool on_node = options->on_numa_node;
    bool has = self->has_pools;
    uint32_t handles = self->pool_handles;
    if (options->memory == WEIR_ASYNC_MANAGED)
        has = has && self->has_managed_pools;
    else if (options->memory == WEIR_ASYNC_PINNED)
        has = has && (on_node ? self->has_numa_pools : self->has_host_pools);
    if (options->memory == WEIR_ASYNC_MANAGED ||
        (options->memory == WEIR_ASYNC_PINNED && !on_node))
        handles = 0;
    return has && (options->handle_types & ~handles) == 0;
}

/* Where memory of such a pool, which is supported, is. */
static void pool_location(const weir__cuda *self, const weir_async_options *options,
                          struct cudaMemPoolProps *props)
{
    props->allocType = cudaMemAllocationTypePinned;
    props->location.type = cudaMemLocationTypeDevice;
    props->location.id = (int)self->ordinal;
#if CUDART_VERSION >= 13000
    if (options->memory == WEIR_ASYNC_DEVICE)
        return;
    props->location.id = 0;
    if (options->memory == WEIR_ASYNC_MANAGED) {
        props->allocType = cudaMemAllocationTypeManaged;
        props->location.type = cudaMemLocationTypeNone;
    } else if (options->on_numa_node) {
        props->location.type = cudaMemLocationTypeHostNuma;
        props->location.id = options->numa_node;
    } else {
        props->location.type = cudaMemLocationTypeHost;
    }
#else
    (void)options; /* no other */
#endif
}

/* CUDA takes the switches as int, the threshold as 64 bits. */
static cudaError_t pool_switch(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
                               uint32_t on)
{
    int value = on != 0;
    return cudaMemPoolSetAttribute(pool, attribute, &value);
}

static cudaError_t pool_tune(cudaMemPool_t pool, const weir_async_options *options)
{
    unsigned long long threshold = options->release_threshold_bytes;
    cudaError_t error = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold,
                                                &threshold);
    if (error == cudaSuccess)
        error = pool_switch(pool, cudaMemPoolReuseFollowEventDependencies,
                            options->reuse & WEIR_ASYNC_REUSE_EVENTS);
    if (error == cudaSuccess)
        error = pool_switch(pool, cudaMemPoolReuseAllowOpportunistic,
                            options->reuse & WEIR_ASYNC_REUSE_OPPORTUNISTIC);
    if (error == cudaSuccess)
        error = pool_switch(pool, cudaMemPoolReuseAllowInternalDependencies,
                            options->reuse & WEIR_ASYNC_REUSE_INTERNAL);
    return error;
}

/* A pool of host memory can be touched by the host only, unless the device is told. */
static cudaError_t pool_grant(const weir__cuda *self, cudaMemPool_t pool,
                              weir_async_memory memory)
{
    struct cudaMemAccessDesc access = { .flags = cudaMemAccessFlagsProtReadWrite };
    if (memory != WEIR_ASYNC_PINNED)
        return cudaSuccess;
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = (int)self->ordinal;
    return cudaMemPoolSetAccess(pool, &access, 1);
}

static cudaError_t pool_make(const weir__cuda *self, const weir_async_options *options,
                             weir_mempool *out)
{
    struct cudaMemPoolProps props;
    memset(&props, 0, sizeof props);
    if (!pool_is_supported(self, options))
        return cudaErrorNotSupported;
    pool_location(self, options, &props);
    props.handleTypes = (enum cudaMemAllocationHandleType)options->handle_types;
#if CUDART_VERSION >= 12020
    props.maxSize = options->max_bytes;
#else
    if (options->max_bytes != 0)
        return cudaErrorNotSupported;
#endif
    cudaError_t error = cudaMemPoolCreate(out, &props);
    if (error != cudaSuccess)
        return error;
    error = pool_tune(*out, options);
    if (error == cudaSuccess)
        error = pool_grant(self, *out, options->memory);
    if (error != cudaSuccess)
        (void)cudaMemPoolDestroy(*out);
    return error;
}

weir_status weir__cuda_mempool_create(void *device, const weir_async_options *options,
                                      weir_mempool *out)
{
    weir__cuda *self = device;
    if (options->memory == WEIR_ASYNC_MANAGED && options->max_bytes != 0)
        return weir__cuda_fail(self, WEIR_NOT_SUPPORTED, cudaErrorNotSupported,
                               "a pool of managed memory of cuda:%d cannot be bounded, "
                               "and max_bytes is %zu",
                               (int)self->ordinal, options->max_bytes);
    WEIR__CUDA_DO_COLD_AS(self, WEIR__CUDA_MEMORY, pool_make(self, options, out),
                          "cudaMemPoolCreate, or an attribute of the pool,");
}

static cudaError_t pool_default(const weir__cuda *self, weir_async_memory memory,
                                weir_mempool *out)
{
    const weir_async_options options = { .memory = memory };
    if (!pool_is_supported(self, &options))
        return cudaErrorNotSupported;
    if (memory == WEIR_ASYNC_DEVICE)
        return cudaDeviceGetDefaultMemPool(out, (int)self->ordinal);
#if CUDART_VERSION >= 13000
    bool managed = memory == WEIR_ASYNC_MANAGED;
    struct cudaMemLocation location = {
        .type = managed ? cudaMemLocationTypeNone : cudaMemLocationTypeHost,
    };
    cudaError_t error = cudaMemGetDefaultMemPool(
        out, &location,
        managed ? cudaMemAllocationTypeManaged : cudaMemAllocationTypePinned);
    return error == cudaSuccess ? pool_grant(self, *out, memory) : error;
#else
    return cudaErrorNotSupported;
#endif
}

weir_status weir__cuda_mempool_default(void *device, weir_async_memory memory,
                                       weir_mempool *out)
{
    WEIR__CUDA_DO_COLD_AS(device, WEIR__CUDA_MEMORY, pool_default(device, memory, out),
                          "cudaMemGetDefaultMemPool");
}

weir_status weir__cuda_mempool_destroy(void *device, weir_mempool pool)
{
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_MEMORY, cudaMemPoolDestroy(pool));
}

/* On a stream that is not captured, beside one that is, this may be a call that a
 * capture forbids. */
weir_status weir__cuda_mempool_malloc(void *device, weir_mempool pool,
                                      weir_stream stream, size_t bytes, void **out)
{
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_MEMORY,
                       cudaMallocFromPoolAsync(out, bytes, pool, stream));
}

weir_status weir__cuda_mempool_free(void *device, weir_stream stream, void *ptr)
{
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_MEMORY, cudaFreeAsync(ptr, stream));
}

weir_status weir__cuda_mempool_trim(void *device, weir_mempool pool, size_t keep_bytes)
{
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_MEMORY, cudaMemPoolTrimTo(pool, keep_bytes));
}

static cudaError_t pool_read(weir_mempool pool, weir__mempool_state *out)
{
    unsigned long long reserved = 0, used = 0;
    cudaError_t error = cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent,
                                                &reserved);
    if (error == cudaSuccess)
        error = cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used);
    *out = (weir__mempool_state){ .reserved_bytes = reserved, .used_bytes = used };
    return error;
}

weir_status weir__cuda_mempool_get_state(void *device, weir_mempool pool,
                                         weir__mempool_state *out)
{
    WEIR__CUDA_DO_COLD_AS(device, WEIR__CUDA_MEMORY, pool_read(pool, out),
                          "cudaMemPoolGetAttribute");
}
