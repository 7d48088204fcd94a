/* cuda_module.h - what the files of libweir_cuda.so share. Nothing else in the project
 * includes a CUDA header.
 *
 * Every primitive is a pair around calls of the CUDA runtime:
 *     enter         makes the device's primary context the thread's current one, if it
 *                   is the one that the device was opened with
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
    X(context_id, "cuCtxGetId", (CUcontext, unsigned long long *))              \
    X(context_push, "cuCtxPushCurrent", (CUcontext))                            \
    X(context_pop, "cuCtxPopCurrent", (CUcontext *))                            \
    X(context_peer, "cuCtxEnablePeerAccess", (CUcontext, unsigned))             \
    X(attribute, "cuDeviceGetAttribute", (int *, CUdevice_attribute, CUdevice)) \
    X(granularity, "cuMemGetAllocationGranularity",                             \
      (size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags)) \
    X(object_create, "cuMemCreate",                                             \
      (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,     \
       unsigned long long))                                                     \
    X(object_release, "cuMemRelease", (CUmemGenericAllocationHandle))           \
    X(object_export, "cuMemExportToShareableHandle",                            \
      (void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,         \
       unsigned long long))                                                     \
    X(object_import, "cuMemImportFromShareableHandle",                          \
      (CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType))      \
    X(object_properties, "cuMemGetAllocationPropertiesFromHandle",              \
      (CUmemAllocationProp *, CUmemGenericAllocationHandle))                    \
    X(address_reserve, "cuMemAddressReserve",                                   \
      (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))         \
    X(address_free, "cuMemAddressFree", (CUdeviceptr, size_t))                  \
    X(map, "cuMemMap", (CUdeviceptr, size_t, size_t,                            \
                        CUmemGenericAllocationHandle, unsigned long long))      \
    X(unmap, "cuMemUnmap", (CUdeviceptr, size_t))                               \
    X(set_access, "cuMemSetAccess",                                             \
      (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))                   \
    X(address_range, "cuMemGetAddressRange",                                    \
      (CUdeviceptr *, size_t *, CUdeviceptr))                                   \
    X(pointer_attributes, "cuPointerGetAttributes",                             \
      (unsigned, CUpointer_attribute *, void **, CUdeviceptr))

/* An object that a file descriptor can stand for, and where it is mapped. Its end is
 * three calls; one that fails leaves it there for another try, which goes on there. Or
 * a block of another process's pool, which is there for this alone. */
typedef struct weir__cuda_mapping {
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    cudaMemPool_t pool;
    bool is_opened; /* another process's */
    enum {
        WEIR__CUDA_MAPPED,
        WEIR__CUDA_UNMAPPED, /* the object lives, */
        WEIR__CUDA_RESERVED, /* or only the address is held */
        WEIR__CUDA_POOLED    /* it is of the pool, and has no handle */
    } state;
} weir__cuda_mapping;

/* All of a device, by address: cuda_mappings.c. */
typedef struct weir__cuda_mappings {
    weir__mutex lock;       /* guards what follows; a leaf */
    weir__cuda_mapping *at; /* in order */
    size_t count;
    size_t promised;        /* places kept for what comes, or comes back */
    size_t room;
} weir__cuda_mappings;

/* Part of a range that was mapped halfway. */
typedef struct weir__cuda_piece {
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    bool has_handle;
    bool is_mapped;
} weir__cuda_piece;

typedef struct weir__cuda_pool weir__cuda_pool; /* cuda_pools.c */

#define WEIR__CUDA_STUCK 16

typedef struct weir__cuda {
    const weir__module_host *host;
    int32_t ordinal;
    CUdevice device;
    int driver_version;    /* the latest CUDA that it is for: 12040 is 12.4 */
    CUcontext context;     /* the primary one; null: not retained */
    unsigned long long context_id; /* as it was opened: another is not ours */
    atomic_bool is_used;   /* a call was made there: something may run */
    atomic_bool is_lost;   /* one has answered so: nothing does any more */
    bool reaches_pageable; /* ordinary host memory */
    bool moves_managed;    /* managed memory, when it is told to, and such ordinary */
    bool reaches_registered; /* the same once it is registered, at its own address */
    bool has_pools;        /* of the driver's, of the device's memory, */
    bool has_host_pools;   /* of the host's, */
    bool has_numa_pools;   /* of one node of the host's, */
    bool has_managed_pools;
    uint32_t pool_handles; /* what handles they can have */
    bool has_descriptors;  /* of memory, that stand for it in other processes, */
    bool has_ipc;          /* or handles of the legacy kind, and such of events */
    bool has_rdma;         /* other devices on the bus can reach what is mapped */
    CUmemAccessDesc access[WEIR__DEVICE_ORDINALS]; /* who else can: it and its peers */
    size_t access_count;
    weir__cuda_mappings mappings;
    weir__cuda_piece stuck[WEIR__CUDA_STUCK]; /* could not be undone yet; guarded */
    size_t stuck_count;                       /* by the mappings' lock */
    weir__cuda_pool *living_pools; /* of those made here, and of those */
    weir__cuda_pool *ended_pools;  /* that cannot be destroyed yet; likewise guarded */
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
    WEIR__CUDA_MEMORY,
    WEIR__CUDA_OPEN    /* the same, and what was to be opened may be anything */
} weir__cuda_call;

/* Makes a status of `error`, which `call` answered (its name and arguments, as in the
 * source; null: none did, it was found out here), and records it. */
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

/* The same of several calls: a function of ours makes them, each by WEIR__ASK, which
 * notes its name in *call, and hands that on to those that it calls itself. */
#define WEIR__CUDA_DO_STEPS(self, kind, steps)                                   \
    do {                                                                         \
        enum cudaStreamCaptureMode mode;                                         \
        const char *last = "", **call = &last;                                   \
        weir_status entered = weir__cuda_enter_cold(self, &mode);                \
        if (entered != WEIR_OK)                                                  \
            return entered;                                                      \
        cudaError_t answered = (steps);                                          \
        return weir__cuda_leave_cold(self, mode, kind, answered, last);          \
    } while (0)
#define WEIR__ASK(name, does) (*call = (name), (cudaError_t)(does))
/* No call has failed, and yet what was asked for cannot be. */
#define WEIR__REFUSE(error)   (*call = NULL, (error))

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
weir_status weir__cuda_prefetch(void *device, weir_stream stream, void *ptr,
                                size_t bytes, weir__place place);
weir_status weir__cuda_prefer(void *device, void *ptr, size_t bytes, weir__place place);

/* ---- cuda_pools.c ---- */

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
/* Destroys what has ended and has nothing left; more than a look only where there is
 * something. */
void weir__cuda_pools_look(weir__cuda *self);
/* The device is closed. */
void weir__cuda_pools_end(weir__cuda *self);

/* ---- cuda_mappings.c ---- */

void weir__cuda_mappings_begin(weir__cuda *self);
void weir__cuda_mappings_end(weir__cuda *self);
/* Keeps a place for one more; put takes it, drop gives it up. */
weir_status weir__cuda_mappings_promise(weir__cuda *self);
void weir__cuda_mappings_drop(weir__cuda *self);
void weir__cuda_mappings_put(weir__cuda *self, const weir__cuda_mapping *mapping);
/* Takes the one out that begins at `ptr`, if it is of that kind; its place is kept.
 * False: there is none. */
bool weir__cuda_mappings_take(weir__cuda *self, const void *ptr, bool is_opened,
                              weir__cuda_mapping *out);
/* The one, mapped and made here, that all of the bytes lie in. False: there is none. */
bool weir__cuda_mappings_find(weir__cuda *self, const void *ptr, size_t bytes,
                              weir__cuda_mapping *out);

/* ---- cuda_object.c ---- */

static inline CUdeviceptr weir__cuda_address_of(const void *ptr)
{
    return (CUdeviceptr)(uintptr_t)ptr;
}

static inline void *weir__cuda_pointer_to(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* Where there is no such number the last that there is: no device has so much. */
static inline size_t weir__cuda_round_up(size_t bytes, size_t granule)
{
    size_t rest = bytes % granule;
    if (rest == 0)
        return bytes;
    return bytes - rest + (bytes > SIZE_MAX - granule ? 0 : granule);
}

weir_status weir__cuda_object_malloc(weir__cuda *self, size_t bytes, void **out);
weir_status weir__cuda_object_open(weir__cuda *self, const weir__shared *from,
                                   void **out);
/* The mapping has been taken out of the records. Where not all of it ends it goes
 * back. */
weir_status weir__cuda_object_end(weir__cuda *self, weir__cuda_mapping *it);
weir_status weir__cuda_object_export(weir__cuda *self, const weir__cuda_mapping *it,
                                     weir__shared *out);

/* An object as all of ours are made, in one piece. */
cudaError_t weir__cuda_object_create(weir__cuda *self, size_t bytes,
                                     CUmemGenericAllocationHandle *out,
                                     const char **call);
/* What its bytes are a multiple of, at least. */
cudaError_t weir__cuda_least_granule(weir__cuda *self, size_t *out, const char **call);

/* ---- cuda_range.c ---- */

weir_status weir__cuda_range_reserve(void *device, size_t bytes, void **out);
weir_status weir__cuda_range_release(void *device, void *base, size_t bytes);
weir_status weir__cuda_range_map(void *device, void *ptr, size_t bytes);
weir_status weir__cuda_range_unmap(void *device, void *ptr, size_t bytes);

/* ---- cuda_shared.c and cuda_shared_pool.c ---- */

/* What the driver knows of memory that can be shared and is not mapped by us. */
typedef struct weir__cuda_block {
    CUdeviceptr base; /* 0: it is no such block of the device */
    size_t bytes;
    cudaMemPool_t pool; /* of kind POOL; null: LEGACY */
} weir__cuda_block;

/* Without a handle. */
void weir__cuda_tell(weir__shared *out, weir_share_kind kind, size_t bytes);
/* Whether it has pools of which a file descriptor can stand for one. */
bool weir__cuda_shares_pools(const weir__cuda *self);
/* Parts of primitives. */
cudaError_t weir__cuda_pool_export(const weir__cuda_block *block, weir__shared *out,
                                   const char **call);
cudaError_t weir__cuda_pool_open(weir__cuda *self, const weir__shared *from,
                                 weir__cuda_mapping *it, const char **call);
/* Asks what the device can share. */
weir_status weir__cuda_shared_begin(weir__cuda *self);
weir_status weir__cuda_shared_malloc(void *device, weir_share_kind kind, size_t bytes,
                                     void **out);
weir_status weir__cuda_shared_free(void *device, void *ptr);
weir_status weir__cuda_shared_find(void *device, const void *ptr, size_t bytes,
                                   void **base, weir__shared *out);
weir_status weir__cuda_shared_export(void *device, void *base, weir__shared *out);
weir_status weir__cuda_shared_open(void *device, const weir__shared *from, void **out);
weir_status weir__cuda_shared_close(void *device, void *ptr);
weir_status weir__cuda_shared_event_create(void *device, weir_event *out,
                                           weir__shared_event *handle);
weir_status weir__cuda_shared_event_open(void *device, const weir__shared_event *handle,
                                         weir_event *out);

#endif
