/* cudart_memory.c - of the runtime: memory of the device, of the host, and managed. */
#include <unistd.h>

#include "fakes/fakes_internal.h"

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaMalloc, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess && out == NULL)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        *out = NULL;
        if (bytes > 0)
            error = fakes_block_malloc(context, bytes, out);
        if (*out != NULL)
            atomic_fetch_add(&fakes_count.device_blocks, 1);
    }
    return fakes_end(error);
}

cudaError_t cudaFree(void *ptr)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaFree, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess && fakes_pool_has_block(context, ptr))
        return fakes_end(fakes_gave_back(&fakes_count.pool_blocks,
                                         fakes_pool_free(context, NULL, ptr)));
    if (error == cudaSuccess && ptr != NULL)
        error = fakes_block_free(context, ptr);
    if (ptr != NULL)
        error = fakes_gave_back(&fakes_count.device_blocks, error);
    return fakes_end(error);
}

/* ---- of the host ---- */

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    fakes_context *context;
    const unsigned known = cudaHostAllocPortable | cudaHostAllocMapped;
    int error = fakes_begin_in(FAKES_cudaHostAlloc, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess &&
        (out == NULL || (flags & ~(known | cudaHostAllocWriteCombined)) != 0))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        *out = NULL;
        if (bytes > 0)
            error = fakes_error_of(context, context->ops->pinned_malloc(context->device,
                                                                        bytes,
                                                                        flags & known,
                                                                        out));
        if (*out != NULL)
            atomic_fetch_add(&fakes_count.pinned_blocks, 1);
    }
    return fakes_end(error);
}

cudaError_t cudaFreeHost(void *ptr)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaFreeHost, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess && ptr != NULL)
        error = fakes_error_of(context, context->ops->pinned_free(context->device,
                                                                  ptr));
    if (ptr != NULL)
        error = fakes_gave_back(&fakes_count.pinned_blocks, error);
    return fakes_end(error);
}

cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned flags)
{
    fakes_context *context;
    const unsigned known = cudaHostRegisterPortable | cudaHostRegisterMapped;
    int error = fakes_begin_in(FAKES_cudaHostRegister, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess && (ptr == NULL || bytes == 0 || (flags & ~known) != 0))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = fakes_error_of(context,
                               context->ops->host_register(context->device, ptr, bytes,
                                                           flags));
    if (error == cudaSuccess)
        atomic_fetch_add(&fakes_count.registered_blocks, 1);
    return fakes_end(error);
}

cudaError_t cudaHostUnregister(void *ptr)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaHostUnregister, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess)
        error = ptr != NULL ? fakes_error_of(context, context->ops->host_unregister(
                                                          context->device, ptr))
                            : cudaErrorInvalidValue;
    return fakes_end(fakes_gave_back(&fakes_count.registered_blocks, error));
}

/* ---- managed ---- */

cudaError_t cudaMallocManaged(void **out, size_t bytes, unsigned flags)
{
    static const weir_managed_options options = WEIR_MANAGED_OPTIONS_INIT;
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaMallocManaged, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess && fakes_the_machine.no_managed)
        error = cudaErrorNotSupported;
    if (error == cudaSuccess && (out == NULL || bytes == 0 ||
                                 (flags != cudaMemAttachGlobal &&
                                  flags != cudaMemAttachHost)))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = fakes_error_of(context, context->ops->managed_malloc(
                                            context->device, bytes, &options, out));
    if (error == cudaSuccess)
        atomic_fetch_add(&fakes_count.device_blocks, 1);
    return fakes_end(error);
}

/* Neither advice nor a prefetch changes contents. */
static int judge_place(const void *ptr, size_t bytes, bool on_host, int device)
{
    if (ptr == NULL || bytes == 0)
        return cudaErrorInvalidValue;
    if (!on_host && (device < 0 || device >= fakes_device_count()))
        return cudaErrorInvalidDevice;
    return fakes_the_machine.no_managed ? cudaErrorNotSupported : cudaSuccess;
}

static weir_status prefer(const fakes_context *context, const void *ptr, size_t bytes,
                          weir__place place)
{
    return context->ops->prefer(context->device, (void *)(uintptr_t)ptr, bytes, place);
}

static cudaError_t advise(const void *ptr, size_t bytes, enum cudaMemoryAdvise advice,
                          bool on_host, int device)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaMemAdvise, &context);
    if (error == cudaSuccess)
        error = judge_place(ptr, bytes, on_host, device);
    if (error == cudaSuccess && (advice < cudaMemAdviseSetReadMostly ||
                                 advice > cudaMemAdviseUnsetAccessedBy))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess && advice == cudaMemAdviseSetPreferredLocation)
        error = fakes_error_of(context, prefer(context, ptr, bytes,
                                               on_host ? WEIR__PLACE_HOST
                                                       : WEIR__PLACE_DEVICE));
    if (error == cudaSuccess && advice == cudaMemAdviseUnsetPreferredLocation)
        error = fakes_error_of(context, prefer(context, ptr, bytes, WEIR__PLACE_ANY));
    return fakes_end(error);
}

static cudaError_t prefetch(const void *ptr, size_t bytes, bool on_host, int device,
                            cudaStream_t stream)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaMemPrefetchAsync, &context);
    if (error == cudaSuccess)
        error = judge_place(ptr, bytes, on_host, device);
    if (error == cudaSuccess)
        error = fakes_error_of(context, context->ops->prefetch(
                                            context->device, fakes_stream(stream),
                                            (void *)(uintptr_t)ptr, bytes,
                                            on_host ? WEIR__PLACE_HOST
                                                    : WEIR__PLACE_DEVICE));
    return fakes_end(error);
}

#if CUDART_VERSION >= 13000
cudaError_t cudaMemAdvise(const void *ptr, size_t bytes, enum cudaMemoryAdvise advice,
                          struct cudaMemLocation location)
{
    bool on_host = location.type != cudaMemLocationTypeDevice;
    return advise(ptr, bytes, advice, on_host, location.id);
}

cudaError_t cudaMemPrefetchAsync(const void *ptr, size_t bytes,
                                 struct cudaMemLocation location, unsigned flags,
                                 cudaStream_t stream)
{
    bool on_host = location.type != cudaMemLocationTypeDevice;
    return prefetch(ptr, flags == 0 ? bytes : 0, on_host, location.id, stream);
}
#else
cudaError_t cudaMemAdvise(const void *ptr, size_t bytes, enum cudaMemoryAdvise advice,
                          int device)
{
    return advise(ptr, bytes, advice, device == cudaCpuDeviceId, device);
}

cudaError_t cudaMemPrefetchAsync(const void *ptr, size_t bytes, int device,
                                 cudaStream_t stream)
{
    return prefetch(ptr, bytes, device == cudaCpuDeviceId, device, stream);
}
#endif

/* ---- what an address is ---- */

/* Memory that the host can touch as well is not told from the host's own. */
static int attributes_of(fakes_context *context, const void *ptr,
                         struct cudaPointerAttributes *out)
{
    void *view;
    *out = (struct cudaPointerAttributes){ .type = cudaMemoryTypeUnregistered,
                                           .device = -2 };
    if (weir__memory_view(context->device, ptr, 1, &view) != WEIR_OK || view == ptr)
        return cudaSuccess;
    out->type = cudaMemoryTypeDevice;
    out->device = context->ordinal;
    out->devicePointer = (void *)(uintptr_t)ptr;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *ptr)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaPointerGetAttributes, &context);
    if (error == cudaSuccess && out == NULL)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = attributes_of(context, ptr, out);
    return fakes_end(error);
}
