/* cudart_ipc.c - memory and events that other processes open by handles of 64 octets,
 * and what the driver says of such memory.
 *
 * cudaMalloc's memory has a handle here where it is of whole granules; the real one
 * gives one for less too, and then all of the granule is opened. The emulated device's
 * octets leave room, which says how long it is, and whose. Its events go by file
 * descriptor: here the handle says where that is, in which process. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/emulated_shared.h"
#include "fakes/fakes_internal.h"

/* At the end of the octets. */
typedef struct mark {
    uint64_t bytes;
    int64_t process;
} mark;
#define MARK_AT (WEIR__SHARED_OCTETS - sizeof(mark))

typedef struct block {
    struct block *next;
    fakes_context *context;
    unsigned char *base;
    size_t bytes;
    uint64_t opens;                 /* 0: it is this process's own */
    cudaIpcMemHandle_t handle;      /* of another's */
} block;

/* An event of this process's that has a handle; its descriptor stays open. */
typedef struct shared_event {
    struct shared_event *next;
    const fakes_context *context;
    cudaEvent_t event;
    weir__shared_event handle;
} shared_event;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by the lock, as what is written of them; each is used by one thread at a
 * time, and looked at by all. */
static block *blocks;
static shared_event *events;

/* ---- records ---- */

/* The block that has the address; null: none. */
static block *block_at(const void *ptr)
{
    pthread_mutex_lock(&lock);
    block *each = blocks;
    while (each != NULL && (uintptr_t)ptr - (uintptr_t)each->base >= each->bytes)
        each = each->next;
    pthread_mutex_unlock(&lock);
    return each;
}

static void block_add(block *made)
{
    pthread_mutex_lock(&lock);
    made->next = blocks;
    blocks = made;
    pthread_mutex_unlock(&lock);
}

static uint64_t block_count(block *self, int change)
{
    pthread_mutex_lock(&lock);
    self->opens += (uint64_t)change;
    uint64_t opens = self->opens;
    pthread_mutex_unlock(&lock);
    return opens;
}

static void block_remove(block *gone)
{
    pthread_mutex_lock(&lock);
    block **link = &blocks;
    while (*link != gone)
        link = &(*link)->next;
    *link = gone->next;
    pthread_mutex_unlock(&lock);
    free(gone);
}

void fakes_forget_blocks(const fakes_context *context)
{
    pthread_mutex_lock(&lock);
    for (block **link = &blocks; *link != NULL;) {
        block *each = *link;
        if (each->context == context) {
            *link = each->next;
            free(each);
        } else {
            link = &each->next;
        }
    }
    for (shared_event **link = &events; *link != NULL;) {
        shared_event *each = *link;
        if (each->context == context) {
            *link = each->next;
            close(each->handle.fd);
            free(each);
        } else {
            link = &each->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* ---- cudaMalloc's ---- */

/* The emulated device's calls malloc and free, about an object that it shares. */
static weir_status device_malloc(weir__emulated *device, size_t bytes, void **out)
{
    weir__arena *object;
    weir_status status = weir__emulated_begin(device, WEIR__CALL_malloc);
    if (status == WEIR_OK)
        status = weir__object_make(device->arena, WEIR_SHARE_LEGACY, bytes, &object);
    if (status == WEIR_OK) {
        *out = object->base;
        weir__cost_bytes(device, WEIR__CALL_malloc, bytes);
        if (device->ledger != NULL)
            weir__ledger_memory_begin(device->ledger, &device->owner,
                                      weir__this_thread(), (uintptr_t)*out, bytes);
    }
    weir__mutex_unlock(&device->lock);
    return status;
}

static weir_status device_free(weir__emulated *device, void *ptr)
{
    weir_status status = weir__emulated_begin(device, WEIR__CALL_free);
    if (status == WEIR_OK) {
        weir__arena *object = weir__object_find(device->arena, ptr, 1);
        weir__cost_bytes(device, WEIR__CALL_free, object->bytes);
        if (device->ledger != NULL)
            weir__ledger_memory_end(device->ledger, weir__this_thread(),
                                    (uintptr_t)ptr);
        weir__object_end(object);
    }
    weir__mutex_unlock(&device->lock);
    return status;
}

int fakes_block_malloc(fakes_context *context, size_t bytes, void **out)
{
    const weir__device_ops *ops = context->ops;
    void *base;
    if (bytes % FAKES_GRANULE != 0 || fakes_the_machine.packs_blocks)
        return fakes_error_of(context, ops->malloc(context->device, bytes, out));
    block *made = malloc(sizeof *made);
    if (made == NULL)
        return cudaErrorMemoryAllocation;
    weir_status status = device_malloc(context->device, bytes, &base);
    if (status != WEIR_OK) {
        free(made);
        return fakes_error_of(context, status);
    }
    *made = (block){ .context = context, .base = base, .bytes = bytes };
    block_add(made);
    *out = base;
    return cudaSuccess;
}

int fakes_block_free(fakes_context *context, void *ptr)
{
    block *found = block_at(ptr);
    if (found == NULL || found->context != context)
        return fakes_error_of(context, context->ops->free(context->device, ptr));
    if (found->base != ptr || found->opens != 0)
        return cudaErrorInvalidValue;
    int error = fakes_error_of(context, device_free(context->device, ptr));
    if (error == cudaSuccess)
        block_remove(found);
    return error;
}

/* ---- what an address is ---- */

static void answer_int(int value, void *out)
{
    memcpy(out, &value, sizeof value);
}

/* Of the address that `of` or `in` has, or nobody (null, zeros). */
static void attribute_get(CUpointer_attribute attribute, const block *of,
                          const fakes_pooled *in, void *out)
{
    uint64_t handles = in->handle_types;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        answer_int(of != NULL && of->opens == 0 && !fakes_the_machine.no_ipc, out);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        answer_int(of != NULL ? of->context->ordinal : in->ordinal, out);
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        memcpy(out, &in->pool, sizeof in->pool);
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        memcpy(out, &handles, sizeof handles);
        break;
    default: fakes_not_provided("cuPointerGetAttributes of this attribute");
    }
}

/* Anything may be asked about; what is nobody's has zeros. */
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes,
                                void **out, CUdeviceptr address)
{
    int error = fakes_begin(FAKES_cuPointerGetAttributes);
    const block *found = block_at((void *)(uintptr_t)address);
    fakes_pooled pooled = { .base = 0 };
    if (error == CUDA_SUCCESS)
        (void)fakes_pool_find((uintptr_t)address, &pooled);
    for (unsigned i = 0; error == CUDA_SUCCESS && i < count; i++)
        attribute_get(attributes[i], found, &pooled, out[i]);
    return fakes_end_driver(error);
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    int error = fakes_begin(FAKES_cuMemGetAddressRange);
    const block *found = block_at((void *)(uintptr_t)address);
    fakes_pooled pooled;
    if (error == CUDA_SUCCESS && found == NULL) {
        if (!fakes_pool_find((uintptr_t)address, &pooled))
            return fakes_end_driver(CUDA_ERROR_NOT_FOUND);
        *base = (CUdeviceptr)pooled.base;
        *bytes = pooled.bytes;
    } else if (error == CUDA_SUCCESS) {
        *base = (CUdeviceptr)(uintptr_t)found->base;
        *bytes = found->bytes;
    }
    return fakes_end_driver(error);
}

/* ---- handles of memory ---- */

static mark mark_of(const cudaIpcMemHandle_t *handle)
{
    mark read;
    memcpy(&read, handle->reserved + MARK_AT, sizeof read);
    return read;
}

/* Of any address in a block: that of the whole. */
static int handle_make(fakes_context *context, const void *ptr, cudaIpcMemHandle_t *out)
{
    weir__shared made;
    const block *found = block_at(ptr);
    if (fakes_the_machine.no_ipc)
        return cudaErrorNotSupported;
    if (found == NULL || found->opens != 0 || found->context != context)
        return cudaErrorInvalidValue;
    weir_status status = context->ops->shared_export(context->device, found->base,
                                                     &made);
    if (status != WEIR_OK)
        return fakes_error_of(context, status);
    mark written = { found->bytes, (int64_t)getpid() };
    memcpy(out, made.octets, sizeof *out);
    memcpy(out->reserved + MARK_AT, &written, sizeof written);
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *ptr)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaIpcGetMemHandle, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess)
        error = handle_make(context, ptr, out);
    return fakes_end(error);
}

/* The block that this context has already opened by that handle; null: none. */
static block *block_opened(const fakes_context *context,
                           const cudaIpcMemHandle_t *handle)
{
    pthread_mutex_lock(&lock);
    block *each = blocks;
    while (each != NULL && (each->opens == 0 || each->context != context ||
                            memcmp(&each->handle, handle, sizeof *handle) != 0))
        each = each->next;
    pthread_mutex_unlock(&lock);
    return each;
}

static int block_open(fakes_context *context, const cudaIpcMemHandle_t *handle,
                      block **out)
{
    void *base;
    weir__shared from = { .kind = WEIR_SHARE_LEGACY, .bytes = mark_of(handle).bytes,
                          .fd = -1 };
    memcpy(from.octets, handle, MARK_AT);
    block *made = malloc(sizeof *made);
    if (made == NULL)
        return cudaErrorMemoryAllocation;
    weir_status status = context->ops->shared_open(context->device, &from, &base);
    if (status != WEIR_OK) {
        free(made);
        return status == WEIR_INVALID_ARGUMENT ? cudaErrorInvalidResourceHandle
                                               : fakes_error_of(context, status);
    }
    *made = (block){ .context = context, .base = base, .bytes = from.bytes,
                     .handle = *handle };
    block_add(made);
    *out = made;
    return cudaSuccess;
}

static int handle_open(fakes_context *context, const cudaIpcMemHandle_t *handle,
                       void **out)
{
    block *found = block_opened(context, handle);
    if (fakes_the_machine.no_ipc)
        return cudaErrorNotSupported;
    if (mark_of(handle).process == getpid() && !fakes_the_machine.opens_own)
        return cudaErrorDeviceUninitialized;
    int error = found == NULL ? block_open(context, handle, &found) : cudaSuccess;
    if (error != cudaSuccess)
        return error;
    (void)block_count(found, 1);
    *out = found->base;
    atomic_fetch_add(&fakes_count.opened, 1);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned flags)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaIpcOpenMemHandle, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess && flags != cudaIpcMemLazyEnablePeerAccess)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = handle_open(context, &handle, out);
    return fakes_end(error);
}

static int handle_close(fakes_context *context, void *ptr)
{
    block *found = block_at(ptr);
    if (found == NULL || found->opens == 0 || found->base != ptr ||
        found->context != context)
        return cudaErrorInvalidValue;
    if (block_count(found, -1) > 0)
        return cudaSuccess;
    int error = fakes_error_of(context,
                               context->ops->shared_close(context->device, ptr));
    if (error == cudaSuccess)
        block_remove(found);
    else
        (void)block_count(found, 1);
    return error;
}

cudaError_t cudaIpcCloseMemHandle(void *ptr)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaIpcCloseMemHandle, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess)
        error = handle_close(context, ptr);
    return fakes_end(fakes_gave_back(&fakes_count.opened, error));
}

/* ---- events ---- */

int fakes_event_make(fakes_context *context, cudaEvent_t *out)
{
    if (fakes_the_machine.no_ipc)
        return cudaErrorNotSupported;
    shared_event *made = malloc(sizeof *made);
    if (made == NULL)
        return cudaErrorMemoryAllocation;
    made->context = context;
    weir_status status = context->ops->shared_event_create(context->device,
                                                           &made->event, &made->handle);
    if (status != WEIR_OK) {
        free(made);
        return fakes_error_of(context, status);
    }
    *out = made->event;
    pthread_mutex_lock(&lock);
    made->next = events;
    events = made;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

void fakes_event_forget(cudaEvent_t event)
{
    pthread_mutex_lock(&lock);
    shared_event **link = &events;
    while (*link != NULL && (*link)->event != event)
        link = &(*link)->next;
    shared_event *found = *link;
    if (found != NULL)
        *link = found->next;
    pthread_mutex_unlock(&lock);
    if (found != NULL)
        close(found->handle.fd);
    free(found);
}

/* At the end of an event's octets. */
typedef struct event_mark {
    int64_t process;
    int64_t fd;
} event_mark;
#define EVENT_MARK_AT (WEIR__SHARED_OCTETS - sizeof(event_mark))

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *out, cudaEvent_t event)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaIpcGetEventHandle, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error != cudaSuccess)
        return fakes_end(error);
    pthread_mutex_lock(&lock);
    const shared_event *found = events;
    while (found != NULL && (found->event != event || found->context != context))
        found = found->next;
    pthread_mutex_unlock(&lock);
    if (found == NULL)
        return fakes_end(cudaErrorInvalidResourceHandle);
    event_mark written = { (int64_t)getpid(), found->handle.fd };
    memcpy(out, found->handle.octets, sizeof *out);
    memcpy(out->reserved + EVENT_MARK_AT, &written, sizeof written);
    return fakes_end(cudaSuccess);
}

static int event_open(fakes_context *context, const cudaIpcEventHandle_t *handle,
                      cudaEvent_t *out)
{
    char path[64];
    event_mark where;
    weir__shared_event from = { .fd = -1 };
    memcpy(from.octets, handle, EVENT_MARK_AT);
    memcpy(&where, handle->reserved + EVENT_MARK_AT, sizeof where);
    if (fakes_the_machine.no_ipc)
        return cudaErrorNotSupported;
    if (where.process == getpid() && !fakes_the_machine.opens_own)
        return cudaErrorDeviceUninitialized;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)where.process,
             (long long)where.fd);
    from.fd = open(path, O_RDWR | O_CLOEXEC);
    if (from.fd < 0)
        return cudaErrorMapBufferObjectFailed;
    weir_status status = context->ops->shared_event_open(context->device, &from, out);
    close(from.fd);
    if (status == WEIR_INVALID_ARGUMENT)
        return cudaErrorInvalidResourceHandle;
    return fakes_error_of(context, status);
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *out, cudaIpcEventHandle_t handle)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaIpcOpenEventHandle, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess)
        error = event_open(context, &handle, out);
    if (error == cudaSuccess)
        atomic_fetch_add(&fakes_count.events, 1);
    return fakes_end(error);
}
