/* cudart_pool.c - of the runtime: pools of memory in stream order.
 *
 * A new pool is as the driver makes it: it follows all reuse policies, and keeps
 * nothing when the host waits; its attributes change that. */
#include <stdio.h>
#include <stdlib.h>

#include "device/emulated_mempool.h"
#include "fakes/fakes_internal.h"

#define ALL_REUSE (WEIR_ASYNC_REUSE_SAME_STREAM | WEIR_ASYNC_REUSE_EVENTS | \
                   WEIR_ASYNC_REUSE_OPPORTUNISTIC | WEIR_ASYNC_REUSE_INTERNAL)

static int check_supported(void)
{
    return fakes_the_machine.no_pools ? cudaErrorNotSupported : cudaSuccess;
}

/* To make a pool, or to ask or change one, is not for a thread that captures. */
static int begin_unsafe(fakes_call call, fakes_context **context)
{
    int error = fakes_begin_in(call, context);
    return error == cudaSuccess ? fakes_refuse_unsafe() : error;
}

/* Under the device's lock. */
static weir__mempool *pool_of(const fakes_context *context, cudaMemPool_t handle)
{
    weir__mempool *pool = context->device->mempools;
    while (pool != NULL && (pool->is_dying || (void *)pool != (void *)handle))
        pool = pool->next;
    return pool;
}

/* ---- making ---- */

/* What memory `where` and `type` ask for; false: none that a pool has. */
static bool memory_of(const fakes_context *context, const struct cudaMemLocation *where,
                      enum cudaMemAllocationType type, weir_async_options *out)
{
#if CUDART_VERSION >= 13000
    if (type == cudaMemAllocationTypeManaged) {
        out->memory = WEIR_ASYNC_MANAGED;
        return where->type == cudaMemLocationTypeNone;
    }
#endif
    if (type != cudaMemAllocationTypePinned)
        return false;
    if (where->type == cudaMemLocationTypeDevice)
        return where->id == context->ordinal;
#if CUDART_VERSION >= 13000
    out->memory = WEIR_ASYNC_PINNED;
    out->on_numa_node = where->type == cudaMemLocationTypeHostNuma;
    out->numa_node = where->id;
    return out->on_numa_node || where->type == cudaMemLocationTypeHost;
#else
    (void)out; /* of the device, as by default */
    return false;
#endif
}

static int pool_make(fakes_context *context, cudaMemPool_t *out,
                     const struct cudaMemPoolProps *props)
{
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    if (out == NULL || props == NULL ||
        !memory_of(context, &props->location, props->allocType, &options))
        return cudaErrorInvalidValue;
    for (size_t i = 0; i < sizeof props->reserved; i++) {
        if (props->reserved[i] != 0)
            return cudaErrorInvalidValue;
    }
    options.handle_types = (uint32_t)props->handleTypes;
    if (options.memory == WEIR_ASYNC_PINNED &&
        (fakes_the_machine.no_host_pools ||
         (!options.on_numa_node && options.handle_types != 0)))
        return cudaErrorInvalidValue;
    if (options.handle_types != 0 && fakes_the_machine.no_handles)
        return cudaErrorInvalidValue;
    options.reuse = ALL_REUSE;
#if CUDART_VERSION >= 12020
    options.max_bytes = props->maxSize;
    if (options.memory == WEIR_ASYNC_MANAGED && options.max_bytes != 0)
        return cudaErrorInvalidValue;
#endif
    return fakes_error_of(context, context->ops->mempool_create(context->device,
                                                                &options, out));
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *out, const struct cudaMemPoolProps *props)
{
    fakes_context *context;
    int error = begin_unsafe(FAKES_cudaMemPoolCreate, &context);
    if (error == cudaSuccess)
        error = check_supported();
    if (error == cudaSuccess)
        error = pool_make(context, out, props);
    if (error == cudaSuccess)
        atomic_fetch_add(&fakes_count.pools, 1);
    return fakes_end(error);
}

/* Whether something was freed to it that no wait of the host has shown done. */
static bool is_pending(const weir__mempool *pool)
{
    const weir__chunk *chunk = pool->chunks;
    while (chunk != NULL && chunk->pending == 0)
        chunk = chunk->next;
    return chunk != NULL;
}

/* As driver 580.159 does, if later. */
static void crash_if_pending(const fakes_context *context, cudaMemPool_t handle)
{
    weir__mutex_lock(&context->device->lock);
    const weir__mempool *pool = pool_of(context, handle);
    const bool crashes = pool != NULL && is_pending(pool);
    weir__mutex_unlock(&context->device->lock);
    if (!crashes)
        return;
    fprintf(stderr, "the stand-in for CUDA: a pool is destroyed before the host has "
                    "waited for what was freed to it\n");
    abort();
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    fakes_context *context;
    int error = begin_unsafe(FAKES_cudaMemPoolDestroy, &context);
    if (error == cudaSuccess)
        crash_if_pending(context, pool);
    if (error == cudaSuccess && fakes_pool_is_imported(context, pool))
        error = fakes_pool_end(context, pool);
    else if (error == cudaSuccess)
        error = fakes_error_of(context,
                               context->ops->mempool_destroy(context->device, pool));
    if (error == cudaSuccess && context->pool == pool)
        context->pool = NULL;
    return fakes_end(fakes_gave_back(&fakes_count.pools, error));
}

static int default_of(fakes_context *context, weir_async_memory memory,
                      cudaMemPool_t *out)
{
    int error = out != NULL ? check_supported() : cudaErrorInvalidValue;
    if (error != cudaSuccess)
        return error;
    return fakes_error_of(context,
                          context->ops->mempool_default(context->device, memory, out));
}

/* Of another device than the current one nothing is known here. */
static int check_device(const fakes_context *context, int device)
{
    return device == context->ordinal ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *out, int device)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaDeviceGetDefaultMemPool, &context);
    if (error == cudaSuccess)
        error = check_device(context, device);
    if (error == cudaSuccess)
        error = default_of(context, WEIR_ASYNC_DEVICE, out);
    return fakes_end(error);
}

#if CUDART_VERSION >= 13000
cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t *out,
                                     struct cudaMemLocation *location,
                                     enum cudaMemAllocationType type)
{
    fakes_context *context;
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    int error = fakes_begin_in(FAKES_cudaMemGetDefaultMemPool, &context);
    if (error == cudaSuccess &&
        (location == NULL || !memory_of(context, location, type, &options)))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = default_of(context, options.memory, out);
    return fakes_end(error);
}
#endif

/* ---- the device's current pool ---- */

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *out, int device)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaDeviceGetMemPool, &context);
    if (error == cudaSuccess)
        error = check_device(context, device);
    if (error == cudaSuccess && context->pool != NULL && out != NULL)
        *out = context->pool;
    else if (error == cudaSuccess)
        error = default_of(context, WEIR_ASYNC_DEVICE, out);
    return fakes_end(error);
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaDeviceSetMemPool, &context);
    if (error == cudaSuccess)
        error = check_device(context, device);
    if (error == cudaSuccess) {
        weir__mutex_lock(&context->device->lock);
        if (pool_of(context, pool) != NULL)
            context->pool = pool;
        else
            error = cudaErrorInvalidValue;
        weir__mutex_unlock(&context->device->lock);
    }
    return fakes_end(error);
}

/* ---- attributes ---- */

static void reuse_set(weir_async_options *options, uint32_t bit, int on)
{
    options->reuse = on != 0 ? options->reuse | bit : options->reuse & ~bit;
}

static int attribute_set(weir_async_options *options, enum cudaMemPoolAttr attribute,
                         const void *value)
{
    switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
        reuse_set(options, WEIR_ASYNC_REUSE_EVENTS, *(const int *)value);
        return cudaSuccess;
    case cudaMemPoolReuseAllowOpportunistic:
        reuse_set(options, WEIR_ASYNC_REUSE_OPPORTUNISTIC, *(const int *)value);
        return cudaSuccess;
    case cudaMemPoolReuseAllowInternalDependencies:
        reuse_set(options, WEIR_ASYNC_REUSE_INTERNAL, *(const int *)value);
        return cudaSuccess;
    case cudaMemPoolAttrReleaseThreshold:
        options->release_threshold_bytes = *(const cuuint64_t *)value;
        return cudaSuccess;
    default: return cudaErrorInvalidValue;
    }
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle,
                                    enum cudaMemPoolAttr attribute, void *value)
{
    fakes_context *context;
    int error = begin_unsafe(FAKES_cudaMemPoolSetAttribute, &context);
    if (error == cudaSuccess) {
        weir__mutex_lock(&context->device->lock);
        weir__mempool *pool = pool_of(context, handle);
        error = pool != NULL && value != NULL
                    ? attribute_set(&pool->options, attribute, value)
                    : cudaErrorInvalidValue;
        weir__mutex_unlock(&context->device->lock);
    }
    return fakes_end(error);
}

static int attribute_get(const weir__mempool *pool, enum cudaMemPoolAttr attribute,
                         void *value)
{
    const weir_async_options *options = &pool->options;
    switch (attribute) {
    case cudaMemPoolReuseFollowEventDependencies:
        *(int *)value = (options->reuse & WEIR_ASYNC_REUSE_EVENTS) != 0;
        return cudaSuccess;
    case cudaMemPoolReuseAllowOpportunistic:
        *(int *)value = (options->reuse & WEIR_ASYNC_REUSE_OPPORTUNISTIC) != 0;
        return cudaSuccess;
    case cudaMemPoolReuseAllowInternalDependencies:
        *(int *)value = (options->reuse & WEIR_ASYNC_REUSE_INTERNAL) != 0;
        return cudaSuccess;
    case cudaMemPoolAttrReleaseThreshold:
        *(cuuint64_t *)value = options->release_threshold_bytes;
        return cudaSuccess;
    case cudaMemPoolAttrUsedMemCurrent:
        *(cuuint64_t *)value = pool->used_bytes;
        return cudaSuccess;
    case cudaMemPoolAttrReservedMemCurrent:
        *(cuuint64_t *)value = pool->reserved_bytes;
        return cudaSuccess;
    default: fakes_not_provided("cudaMemPoolGetAttribute of this attribute");
    }
}

/* What is reserved is the emulated primitive, for its faults: Weir asks for both. */
static int get(fakes_context *context, cudaMemPool_t handle,
               enum cudaMemPoolAttr attribute, void *value)
{
    weir__mempool_state state;
    if (value == NULL)
        return cudaErrorInvalidValue;
    if (attribute == cudaMemPoolAttrReservedMemCurrent) {
        weir_status status = context->ops->mempool_get_state(context->device, handle,
                                                             &state);
        if (status != WEIR_OK)
            return fakes_error_of(context, status);
    }
    weir__mutex_lock(&context->device->lock);
    const weir__mempool *pool = pool_of(context, handle);
    int error = pool != NULL ? attribute_get(pool, attribute, value)
                             : cudaErrorInvalidValue;
    weir__mutex_unlock(&context->device->lock);
    return error;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
                                    void *value)
{
    fakes_context *context;
    int error = begin_unsafe(FAKES_cudaMemPoolGetAttribute, &context);
    if (error == cudaSuccess)
        error = get(context, pool, attribute, value);
    return fakes_end(error);
}

/* Only whether the device itself may touch a pool of the host's is known here. */
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool,
                                 const struct cudaMemAccessDesc *who, size_t count)
{
    fakes_context *context;
    int error = begin_unsafe(FAKES_cudaMemPoolSetAccess, &context);
    if (error == cudaSuccess && (who == NULL || count == 0))
        error = cudaErrorInvalidValue;
    for (size_t i = 0; error == cudaSuccess && i < count; i++) {
        if (who[i].location.type != cudaMemLocationTypeDevice)
            error = cudaErrorInvalidValue;
        else
            error = check_device(context, who[i].location.id);
    }
    if (error == cudaSuccess && !fakes_pool_grant(context, pool)) {
        weir__mutex_lock(&context->device->lock);
        weir__mempool *found = pool_of(context, pool);
        error = found != NULL ? cudaSuccess : cudaErrorInvalidValue;
        for (size_t i = 0; found != NULL && i < count; i++)
            found->is_granted = who[i].flags == cudaMemAccessFlagsProtReadWrite;
        weir__mutex_unlock(&context->device->lock);
    }
    return fakes_end(error);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep_bytes)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaMemPoolTrimTo, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess)
        error = fakes_error_of(context,
                               context->ops->mempool_trim(context->device, pool,
                                                          keep_bytes));
    return fakes_end(error);
}

/* ---- memory ---- */

/* A real device would be lost by the first kernel that touches it. */
static bool is_out_of_reach(const fakes_context *context, cudaMemPool_t handle)
{
    weir__mutex_lock(&context->device->lock);
    const weir__mempool *pool = pool_of(context, handle);
    bool far = pool != NULL && pool->options.memory == WEIR_ASYNC_PINNED &&
               !pool->is_granted;
    weir__mutex_unlock(&context->device->lock);
    return far;
}

static int take(fakes_context *context, void **out, size_t bytes, cudaMemPool_t pool,
                cudaStream_t stream)
{
    if (out == NULL)
        return cudaErrorInvalidValue;
    *out = NULL;
    if (bytes == 0)
        return cudaSuccess;
    if (is_out_of_reach(context, pool))
        fakes_not_provided("memory of a pool that the device may not touch");
    int error = fakes_error_of(context,
                               context->ops->mempool_malloc(context->device, pool,
                                                            fakes_stream(stream), bytes,
                                                            out));
    if (error == cudaSuccess)
        atomic_fetch_add(&fakes_count.pool_blocks, 1);
    return error;
}

cudaError_t cudaMallocFromPoolAsync(void **out, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaMallocFromPoolAsync, &context);
    if (error == cudaSuccess)
        error = take(context, out, bytes, pool, stream);
    return fakes_end(error);
}

cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream)
{
    fakes_context *context;
    cudaMemPool_t pool = NULL;
    int error = fakes_begin_in(FAKES_cudaMallocAsync, &context);
    if (error == cudaSuccess && context->pool != NULL)
        pool = context->pool;
    else if (error == cudaSuccess)
        error = default_of(context, WEIR_ASYNC_DEVICE, &pool);
    if (error == cudaSuccess)
        error = take(context, out, bytes, pool, stream);
    return fakes_end(error);
}

cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaFreeAsync, &context);
    if (error == cudaSuccess && ptr == NULL)
        return fakes_end(cudaErrorInvalidValue);
    if (error == cudaSuccess && fakes_pool_has_block(context, ptr))
        error = fakes_pool_free(context, stream, ptr);
    else if (error == cudaSuccess)
        error = fakes_error_of(context,
                               context->ops->mempool_free(context->device,
                                                          fakes_stream(stream), ptr));
    return fakes_end(fakes_gave_back(&fakes_count.pool_blocks, error));
}
