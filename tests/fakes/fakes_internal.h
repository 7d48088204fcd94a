/* fakes_internal.h - what the files of the stand-in share.
 *
 * Every function stands between a begin and an end. The begin counts it, lets a planned
 * fault strike, and finds the context; from there to the end the library's host
 * allocations on this thread are the driver's: they neither fail nor count. The end
 * notes the thread's last error.
 *
 * The stand-in's own locks are leaves, not held over a call into the emulated device
 * but to open one: in all others a stepped run may change threads. A device is closed
 * while no other thread uses it, as with the real one. */
#ifndef WEIR_TESTS_FAKES_INTERNAL_H
#define WEIR_TESTS_FAKES_INTERNAL_H

#include <stdatomic.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "device/emulated.h"
#include "fakes/fakes.h"

/* The functions that are provided: all that can fail, and then those that cannot. */
#define FAKES_CALL_MAP(X)                                                        \
    X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetUuid) X(cuDeviceTotalMem)     \
    X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)                     \
    X(cuCtxGetId) X(cuCtxPushCurrent) X(cuCtxGetCurrent) X(cuCtxSetCurrent)      \
    X(cuDeviceCanAccessPeer) X(cuCtxEnablePeerAccess) X(cuCtxRecordEvent)        \
    X(cudaDriverGetVersion) X(cudaRuntimeGetVersion) X(cudaGetDeviceCount)       \
    X(cudaGetDriverEntryPoint) X(cudaGetDriverEntryPointByVersion)               \
    X(cudaDeviceGetAttribute) X(cudaSetDevice) X(cudaGetDevice)                  \
    X(cudaDeviceReset)                                                           \
    X(cudaDeviceSynchronize) X(cudaMemGetInfo) X(cudaMalloc) X(cudaFree)         \
    X(cudaHostAlloc) X(cudaFreeHost) X(cudaHostRegister) X(cudaHostUnregister)   \
    X(cudaMallocManaged) X(cudaMemAdvise) X(cudaMemPrefetchAsync)                \
    X(cudaPointerGetAttributes)                                                  \
    X(cudaMemcpy) X(cudaMemset) X(cudaMemcpyAsync) X(cudaMemsetAsync)            \
    X(cudaStreamCreate) X(cudaStreamCreateWithFlags) X(cudaStreamDestroy)        \
    X(cudaStreamGetId) X(cudaStreamGetFlags) X(cudaStreamSynchronize)            \
    X(cudaStreamQuery) X(cudaStreamWaitEvent) X(cudaStreamIsCapturing)           \
    X(cudaEventCreate) X(cudaEventCreateWithFlags) X(cudaEventDestroy)           \
    X(cudaEventRecord) X(cudaEventQuery) X(cudaEventSynchronize)                 \
    X(cudaLaunchHostFunc) X(cudaStreamBeginCapture) X(cudaStreamEndCapture)      \
    X(cudaStreamGetCaptureInfo) X(cudaGraphInstantiate) X(cudaGraphLaunch)       \
    X(cudaGraphExecDestroy) X(cudaGraphDestroy)                                  \
    X(cudaMemPoolCreate) X(cudaMemPoolDestroy) X(cudaMemPoolSetAttribute)        \
    X(cudaMemPoolGetAttribute) X(cudaMemPoolSetAccess) X(cudaMemPoolTrimTo)      \
    X(cudaDeviceGetDefaultMemPool) X(cudaMemGetDefaultMemPool)                   \
    X(cudaDeviceGetMemPool) X(cudaDeviceSetMemPool) X(cudaMallocAsync)           \
    X(cudaMallocFromPoolAsync) X(cudaFreeAsync) X(cudaMemPoolGetAccess)          \
    X(cudaMemPoolExportToShareableHandle) X(cudaMemPoolExportPointer)            \
    X(cudaMemPoolImportFromShareableHandle) X(cudaMemPoolImportPointer)          \
    X(cuDeviceGetAttribute) X(cuPointerGetAttributes) X(cuMemGetAddressRange)    \
    X(cuMemGetAllocationGranularity) X(cuMemCreate) X(cuMemRelease)              \
    X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap)         \
    X(cuMemSetAccess) X(cuMemExportToShareableHandle)                            \
    X(cuMemImportFromShareableHandle) X(cuMemGetAllocationPropertiesFromHandle)  \
    X(cudaIpcGetMemHandle) X(cudaIpcOpenMemHandle) X(cudaIpcCloseMemHandle)      \
    X(cudaIpcGetEventHandle) X(cudaIpcOpenEventHandle)                           \
    X(cuCtxPopCurrent) X(cudaThreadExchangeStreamCaptureMode)                    \
    X(cudaGetErrorName) X(cudaGetErrorString) X(cudaGetLastError)                \
    X(cudaPeekAtLastError)

typedef enum fakes_call {
#define X(name) FAKES_##name,
    FAKES_CALL_MAP(X)
#undef X
    FAKES_CALL_COUNT,
    FAKES_FIRST_SAFE = FAKES_cuCtxPopCurrent
} fakes_call;

/* ---- contexts: fakes_context.c ---- */

/* The primary context of one device; a CUcontext points to it. */
typedef struct fakes_context {
    int ordinal;
    int retained;          /* guarded by the lock */
    weir__emulated *device; /* lives while it is retained; null after a reset, until
                             * somebody retains it or the runtime is called in it */
    unsigned long long id; /* of this life of it; guarded by the lock */
    const weir__device_ops *ops;
    _Atomic int spoilt;    /* what every call answers; 0: nothing has gone wrong yet */
    atomic_bool is_implicit; /* a runtime call retains it until fakes_reset */
    atomic_bool peers[FAKES_DEVICES];
    _Atomic(cudaMemPool_t) pool; /* what cudaMallocAsync takes; null: the default one */
} fakes_context;

extern fakes_machine fakes_the_machine;
int fakes_device_count(void);
int fakes_runtime_version(void);
int fakes_driver_version(void); /* 0: none */
/* Answers CUDA_ERROR_... */
int fakes_retain(int ordinal, fakes_context **out);
int fakes_release(int ordinal);
int fakes_retained(int ordinal);
/* All that was made in the context is gone; who retains it still does. */
void fakes_reset_context(int ordinal);
/* Makes it anew after that, as the runtime does. Answers CUDA_ERROR_... */
int fakes_revive(fakes_context *context);
unsigned long long fakes_id_of(const fakes_context *context);
/* As a runtime call without a context does: retained until fakes_reset. */
int fakes_retain_implicitly(int ordinal, fakes_context **out);
size_t fakes_memory_bytes(int ordinal);
/* The thread's stack. */
fakes_context *fakes_current(void);
int fakes_push(fakes_context *context);
int fakes_pop(fakes_context **out);
int fakes_pushed(void);
void fakes_set_current(fakes_context *context);
/* The context that `handle` is; null: it is none that lives, or it was reset. */
fakes_context *fakes_context_of(const void *handle);
int fakes_thread_device(void);
void fakes_set_thread_device(int ordinal);
/* Gives implicit contexts back, and empties the thread's stack. */
void fakes_contexts_reset(void);

/* ---- begin and end: fakes.c ---- */

/* Of a call that needs no context; answers a cudaError_t. */
int fakes_begin(fakes_call call);
cudaError_t fakes_end(int error); /* of the runtime: becomes the last error */
CUresult fakes_end_driver(int error);
/* The same for a call of the runtime's that works in the current context. */
int fakes_begin_in(fakes_call call, fakes_context **out);

/* Nothing that is left on the emulated device runs any more. */
void fakes_halt(weir__emulated *device);
/* The error of what the emulated device has answered. */
int fakes_error_of(fakes_context *context, weir_status status);
/* A stream as the emulated device knows it. */
static inline weir_stream fakes_stream(cudaStream_t stream)
{
    return stream == NULL ? WEIR_STREAM_LEGACY : stream;
}

/* What is out, and what has been seen; atomic, added to where it happens. */
typedef struct fakes_counts {
    atomic_int_least64_t device_blocks, pinned_blocks,
        registered_blocks, pool_blocks, streams, events, pools, graphs, objects,
        mappings, addresses, opened;
    atomic_uint_least64_t refused, timed_events, event_flags, stream_flags, set_devices,
        implicit, spoilt, rdma_objects;
} fakes_counts;
extern fakes_counts fakes_count;
/* One of what `out` counts was given back, with that answer; which it returns. */
int fakes_gave_back(atomic_int_least64_t *out, int error);

int fakes_last_error(bool clear);
_Noreturn void fakes_not_provided(const char *name);

/* ---- capture: fakes_capture.c ---- */

extern _Thread_local enum cudaStreamCaptureMode fakes_capture_mode;
/* Before a call that may harm captures: cudaSuccess, or the error, with those captures
 * spoilt. */
int fakes_refuse_unsafe(void);
bool fakes_is_capturing(fakes_context *context, cudaStream_t stream);

/* The device ends. */
void fakes_forget_captures(const weir__emulated *device);

/* ---- mapped memory: cuda_mapping.c ---- */

/* In which memory is mapped, and has handles. */
#define FAKES_GRANULE ((size_t)2 << 20)
/* Whether the device may reach all of the bytes, as far as they are in mapped memory:
 * cudaSuccess or an error. */
int fakes_check_access(const fakes_context *context, const void *ptr, size_t bytes);
/* The context ends, and with it what is mapped there. */
void fakes_forget_objects(const fakes_context *context);

/* ---- memory and events with handles: cudart_ipc.c ---- */

/* cudaMalloc's and cudaFree's: of whole granules it has a handle. */
int fakes_block_malloc(fakes_context *context, size_t bytes, void **out);
int fakes_block_free(fakes_context *context, void *ptr);
/* An event with a handle; and it is destroyed, whether or not it has one. */
int fakes_event_make(fakes_context *context, cudaEvent_t *out);
void fakes_event_forget(cudaEvent_t event);
/* The context ends. */
void fakes_forget_blocks(const fakes_context *context);

/* ---- pools with handles: cudart_pool_ipc.c ---- */

/* A block of a pool, of any device's or imported. */
typedef struct fakes_pooled {
    uintptr_t base;
    size_t bytes;
    uintptr_t pool;
    uint32_t handle_types;
    int ordinal;
} fakes_pooled;
bool fakes_pool_find(uintptr_t address, fakes_pooled *out);

/* Imported ones, and their blocks. */
bool fakes_pool_is_imported(const fakes_context *context, cudaMemPool_t pool);
bool fakes_pool_has_block(const fakes_context *context, const void *ptr);
int fakes_pool_free(fakes_context *context, cudaStream_t stream, void *ptr);
/* The device may reach it. False: it is none that was imported. */
bool fakes_pool_grant(const fakes_context *context, cudaMemPool_t pool);
int fakes_pool_end(const fakes_context *context, cudaMemPool_t pool);
/* The context ends. */
void fakes_forget_pools(const fakes_context *context);

/* ---- graphs: cudart_graph.c ---- */

/* Takes over `graph`, also where it fails. */
int fakes_graph_make(fakes_context *context, weir__graph *graph, cudaGraph_t *out);
/* The context ends, and its graphs with it. */
void fakes_forget_graphs(const fakes_context *context);

/* ---- host functions: cudart_work.c ---- */

/* The context ends: what was put and never ran is forgotten. */
void fakes_forget_jobs(const fakes_context *context);

#endif
