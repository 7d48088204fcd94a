/* cuda_module.h - what the files of libweir_cuda.so share. Nothing else in the project
 * includes a CUDA header.
 *
 * Every primitive is a pair around calls of the CUDA runtime:
 *     enter         makes the device's primary context the thread's current one
 *     leave         takes it off again, tells what went wrong, and leaves nothing in
 *                   the runtime's last error
 * Contexts are pushed and popped, never set: cudaSetDevice creates them, and what the
 * thread had is none of our business. Calls that a capture in progress would forbid
 * are made cold: in relaxed capture mode, where they do no harm. */
#ifndef WEIR_DEVICE_CUDA_MODULE_H
#define WEIR_DEVICE_CUDA_MODULE_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "device/module.h"

#if CUDART_VERSION < 12000
#error "the CUDA module needs CUDA 12 or later"
#endif

/* The driver's entry points: our name, its name, its arguments. */
#define WEIR__DRIVER_MAP(X)                                                      \
    X(device_get, "cuDeviceGet", (CUdevice *, int))                             \
    X(device_name, "cuDeviceGetName", (char *, int, CUdevice))                  \
    X(device_uuid, "cuDeviceGetUuid", (CUuuid *, CUdevice))                     \
    X(device_memory, "cuDeviceTotalMem", (size_t *, CUdevice))                  \
    X(device_peer, "cuDeviceCanAccessPeer", (int *, CUdevice, CUdevice))        \
    X(context_retain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))      \
    X(context_release, "cuDevicePrimaryCtxRelease", (CUdevice))                 \
    X(context_push, "cuCtxPushCurrent", (CUcontext))                            \
    X(context_pop, "cuCtxPopCurrent", (CUcontext *))                            \
    X(context_peer, "cuCtxEnablePeerAccess", (CUcontext, unsigned))

typedef struct weir__cuda {
    const weir__module_host *host;
    int32_t ordinal;
    CUdevice device;
    CUcontext context;     /* the primary one; null: not retained */
    bool reaches_pageable; /* ordinary host memory */
    bool reaches_registered; /* the same once it is registered, at its own address */
    bool has_pools;        /* of the driver's, of the device's memory, */
    bool has_host_pools;   /* of the host's, */
    bool has_numa_pools;   /* of one node of the host's, */
    bool has_managed_pools;
    uint32_t pool_handles; /* what handles they can have */
    size_t memory_bytes;
    char description[128];
    uint8_t uuid[16];
    struct {
#define X(name, symbol, arguments) CUresult (*name) arguments;
        WEIR__DRIVER_MAP(X)
#undef X
    } driver;
    CUresult (*record_all)(CUcontext, CUevent); /* null: the driver has none */
} weir__cuda;

/* What a failure of the call means: DEVICE_ERROR, but where memory is given or taken a
 * shortage is OUT_OF_MEMORY, and an address that is none INVALID_ARGUMENT. */
typedef enum weir__cuda_call {
    WEIR__CUDA_WORK,
    WEIR__CUDA_MEMORY
} weir__cuda_call;

/* Makes a status of `error`, which `call` answered (its name and arguments, as in the
 * source), and records it. */
weir_status weir__cuda_judge(weir__cuda *self, weir__cuda_call kind, cudaError_t error,
                             const char *call);
/* The driver's numbers are the runtime's. */
static inline weir_status weir__cuda_judge_driver(weir__cuda *self, CUresult result,
                                                  const char *call)
{
    return weir__cuda_judge(self, WEIR__CUDA_WORK, (cudaError_t)result, call);
}

weir_status weir__cuda_fail(weir__cuda *self, weir_status status, int32_t native_code,
                            const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* In front of a call, and after it: the judged `error`. Whose context or capture mode
 * cannot be put back has no device any more (DEVICE_LOST). */
weir_status weir__cuda_enter(weir__cuda *self);
weir_status weir__cuda_leave(weir__cuda *self, weir__cuda_call kind, cudaError_t error,
                             const char *call);

/* The same around a call that a capture in progress would forbid. */
weir_status weir__cuda_enter_cold(weir__cuda *self, enum cudaStreamCaptureMode *mode);
weir_status weir__cuda_leave_cold(weir__cuda *self, enum cudaStreamCaptureMode mode,
                                  weir__cuda_call kind, cudaError_t error,
                                  const char *call);

/* The whole of a primitive that is one call; `self` is the device in it. Where that is
 * made by a function of ours, `name` tells what was asked of CUDA. */
#define WEIR__CUDA_DO(self, kind, call) WEIR__CUDA_DO_AS(self, kind, call, #call)
#define WEIR__CUDA_DO_AS(self, kind, call, name)                                 \
    do {                                                                         \
        weir_status entered = weir__cuda_enter(self);                            \
        if (entered != WEIR_OK)                                                  \
            return entered;                                                      \
        return weir__cuda_leave(self, kind, call, name);                         \
    } while (0)

#define WEIR__CUDA_DO_COLD(self, kind, call)                                     \
    WEIR__CUDA_DO_COLD_AS(self, kind, call, #call)
#define WEIR__CUDA_DO_COLD_AS(self, kind, call, name)                            \
    do {                                                                         \
        enum cudaStreamCaptureMode mode;                                         \
        weir_status entered = weir__cuda_enter_cold(self, &mode);                \
        if (entered != WEIR_OK)                                                  \
            return entered;                                                      \
        return weir__cuda_leave_cold(self, mode, kind, call, name);              \
    } while (0)

/* ---- cuda.c and cuda_open.c ---- */

extern const weir__device_ops weir__cuda_ops;
void weir__cuda_properties(void *device, weir_device_properties *out);
void weir__cuda_close(void *device);

/* ---- cuda_memory.c ---- */

weir_status weir__cuda_malloc(void *device, size_t bytes, void **out);
weir_status weir__cuda_free(void *device, void *ptr);
weir_status weir__cuda_host_malloc(void *device, size_t bytes, size_t alignment,
                                   void **out);
weir_status weir__cuda_host_free(void *device, void *ptr);
weir_status weir__cuda_memory_info(void *device, size_t *free_bytes,
                                   size_t *total_bytes);
weir_status weir__cuda_managed_malloc(void *device, size_t bytes,
                                      const weir_managed_options *options, void **out);
weir_status weir__cuda_pinned_malloc(void *device, size_t bytes, uint32_t flags,
                                     void **out);
weir_status weir__cuda_pinned_free(void *device, void *ptr);
weir_status weir__cuda_host_register(void *device, void *ptr, size_t bytes,
                                     uint32_t flags);
weir_status weir__cuda_host_unregister(void *device, void *ptr);
weir_status weir__cuda_mempool_create(void *device, const weir_async_options *options,
                                      weir_mempool *out);
weir_status weir__cuda_mempool_default(void *device, weir_async_memory memory,
                                       weir_mempool *out);
weir_status weir__cuda_mempool_destroy(void *device, weir_mempool pool);
weir_status weir__cuda_mempool_malloc(void *device, weir_mempool pool,
                                      weir_stream stream, size_t bytes, void **out);
weir_status weir__cuda_mempool_free(void *device, weir_stream stream, void *ptr);
weir_status weir__cuda_mempool_trim(void *device, weir_mempool pool, size_t keep_bytes);
weir_status weir__cuda_mempool_get_state(void *device, weir_mempool pool,
                                         weir__mempool_state *out);

#endif
