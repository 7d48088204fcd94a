/* cuda_memory.c - memory of a CUDA device, and of the host for it. */
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
