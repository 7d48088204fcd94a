/* cuda_pools.c - the driver's pools: memory in stream order (cudaMallocAsync).
 *
 * A pool may be destroyed while what was freed to it is not done, and ends with the
 * last of that: so CUDA's documentation. Driver 580.159 does not keep to it: later an
 * allocation on the legacy or a per-thread stream, from another pool, reads what is
 * gone and crashes. A program without Weir did so on an H200 in 36 of 36 runs, and in
 * none of 12 where the host had waited first, or it kept to streams that it destroyed,
 * or to one pool (bench/results/README.md).
 *
 * So a pool that ends is told to keep nothing, gives back what it can, and the rest
 * whenever the host next waits for something; it is destroyed once it has nothing.
 * Until then it is on a list, which is looked at when a pool ends, after a wait for all
 * of the device, and at its close. Nobody waits for it here: that would spoil captures.
 * What is left when the device is closed is a handle without memory, or soon without;
 * that is not destroyed. */
#include <string.h>

#include "device/cuda_module.h"

/* ---- records ----
 *
 * One for each pool that was made here and is not destroyed; only of one that has ended
 * it says which, for that needs no more than a place then. */

struct weir__cuda_pool {
    struct weir__cuda_pool *next;
    cudaMemPool_t pool;
};

static void push(weir__cuda *self, weir__cuda_pool **list, weir__cuda_pool *record)
{
    self->host->mutex_lock(&self->mappings.lock);
    record->next = *list;
    *list = record;
    self->host->mutex_unlock(&self->mappings.lock);
}

/* Null: it is empty. */
static weir__cuda_pool *pop(weir__cuda *self, weir__cuda_pool **list)
{
    self->host->mutex_lock(&self->mappings.lock);
    weir__cuda_pool *record = *list;
    if (record != NULL)
        *list = record->next;
    self->host->mutex_unlock(&self->mappings.lock);
    return record;
}

/* ---- making ---- */

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

static weir_status make_one(weir__cuda *self, const weir_async_options *options,
                            weir_mempool *out)
{
    WEIR__CUDA_DO_COLD_AS(self, WEIR__CUDA_MEMORY, pool_make(self, options, out),
                          "cudaMemPoolCreate, or an attribute of the pool,");
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
    weir__cuda_pool *record = self->host->host_alloc(sizeof *record);
    if (record == NULL)
        return self->host->fail(WEIR_OUT_OF_HOST_MEMORY, 0, "no memory for a pool");
    weir_status status = make_one(self, options, out);
    if (status == WEIR_OK)
        push(self, &self->living_pools, record);
    else
        self->host->host_free(record);
    return status;
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

/* ---- the end ---- */

static cudaError_t pool_ask(cudaMemPool_t pool, unsigned long long *reserved,
                            const char **call)
{
    return WEIR__ASK("cudaMemPoolGetAttribute",
                     cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent,
                                             reserved));
}

/* Tells it to keep nothing from now on. */
static cudaError_t pool_empty(cudaMemPool_t pool, unsigned long long *reserved,
                              const char **call)
{
    unsigned long long none = 0;
    cudaError_t error = WEIR__ASK(
        "cudaMemPoolSetAttribute",
        cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &none));
    if (error == cudaSuccess)
        error = WEIR__ASK("cudaMemPoolTrimTo", cudaMemPoolTrimTo(pool, 0));
    return error == cudaSuccess ? pool_ask(pool, reserved, call) : error;
}

static cudaError_t pool_end(weir__cuda *self, cudaMemPool_t pool, const char **call)
{
    unsigned long long reserved = 0;
    cudaError_t error = pool_empty(pool, &reserved, call);
    if (error == cudaSuccess && reserved == 0)
        error = WEIR__ASK("cudaMemPoolDestroy", cudaMemPoolDestroy(pool));
    if (error != cudaSuccess)
        return error;
    weir__cuda_pool *record = pop(self, &self->living_pools);
    if (reserved == 0) {
        self->host->host_free(record);
    } else {
        record->pool = pool;
        push(self, &self->ended_pools, record);
    }
    return cudaSuccess;
}

/* False: it has something still, or a call failed, which is nobody's business. */
static bool try_destroy(cudaMemPool_t pool, const char **call)
{
    unsigned long long reserved = 0;
    cudaError_t error = pool_ask(pool, &reserved, call);
    if (error == cudaSuccess && reserved != 0)
        return false;
    if (error == cudaSuccess)
        error = cudaMemPoolDestroy(pool);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return error == cudaSuccess;
}

static cudaError_t destroy_empty(weir__cuda *self, weir__cuda_pool **list,
                                 const char **call)
{
    while (*list != NULL) {
        weir__cuda_pool *record = *list;
        if (try_destroy(record->pool, call)) {
            *list = record->next;
            self->host->host_free(record);
        } else {
            list = &record->next;
        }
    }
    return cudaSuccess;
}

static weir_status look_at(weir__cuda *self, weir__cuda_pool **list)
{
    WEIR__CUDA_DO_STEPS(self, WEIR__CUDA_MEMORY, destroy_empty(self, list, call));
}

void weir__cuda_pools_look(weir__cuda *self)
{
    weir__cuda_pool *list = NULL, *record;
    while ((record = pop(self, &self->ended_pools)) != NULL) {
        record->next = list;
        list = record;
    }
    if (list != NULL)
        (void)look_at(self, &list);
    while (list != NULL) {
        record = list;
        list = record->next;
        push(self, &self->ended_pools, record);
    }
}

weir_status weir__cuda_mempool_destroy(void *device, weir_mempool pool)
{
    weir__cuda_pools_look(device);
    WEIR__CUDA_DO_STEPS(device, WEIR__CUDA_MEMORY, pool_end(device, pool, call));
}

void weir__cuda_pools_end(weir__cuda *self)
{
    weir__cuda_pool *record;
    weir__cuda_pools_look(self);
    while ((record = pop(self, &self->ended_pools)) != NULL ||
           (record = pop(self, &self->living_pools)) != NULL)
        self->host->host_free(record);
}

/* ---- memory ---- */

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
