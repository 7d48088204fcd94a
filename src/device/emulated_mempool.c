/* emulated_mempool.c - the device's own pools, as a driver has them: made, destroyed,
 * asked, and the primitives on them. What they are made of: emulated_mempool.h.
 *
 * A handle is the address of a living pool of this device, and is looked up before it
 * is believed. A pool that is destroyed ends when its memory is back and nobody can be
 * using that any more; until then it lives on without a handle. To give memory back is
 * an operation of the stream, which can be waited for; to hand it out is none. */
#include "device/emulated_mempool.h"
#include "device/emulated_shared.h"

#define ALL_REUSE (WEIR_ASYNC_REUSE_SAME_STREAM | WEIR_ASYNC_REUSE_EVENTS | \
                   WEIR_ASYNC_REUSE_OPPORTUNISTIC | WEIR_ASYNC_REUSE_INTERNAL)

/* ---- lives ---- */

static weir_status mempool_find(weir__emulated *device, weir_mempool handle,
                                weir__mempool **out)
{
    weir__mempool *pool = device->mempools;
    while (pool != NULL && (pool->is_dying || (void *)pool != (void *)handle))
        pool = pool->next;
    *out = pool;
    if (pool == NULL)
        return weir__fail_native(WEIR_INVALID_ARGUMENT, WEIR__NATIVE_INVALID_VALUE,
                                 "%p is no pool of emulated device %d", (void *)handle,
                                 (int)device->ordinal);
    return WEIR_OK;
}

static void mempool_unlink(weir__mempool *pool)
{
    weir__mempool **link = &pool->device->mempools;
    while (*link != pool)
        link = &(*link)->next;
    *link = pool->next;
}

/* Ends a destroyed pool that has nothing left. */
static void mempool_end_if_over(weir__mempool *pool)
{
    weir__mempool_release(pool, 0);
    if (pool->reserved_bytes > 0)
        return;
    mempool_unlink(pool);
    weir__mempool_forget(pool);
    weir__host_free(pool);
}

static void verify(const weir__mempool *pool)
{
#ifdef WEIR_TESTING
    weir__mempool_verify(pool);
#else
    (void)pool;
#endif
}

void weir__mempools_learn(weir__emulated *device, weir__position waited)
{
    for (weir__mempool *pool = device->mempools; pool != NULL;) {
        weir__mempool *next = pool->next;
        weir__mempool_learn(pool, waited);
        weir__mempool_release(pool, pool->options.release_threshold_bytes);
        verify(pool);
        if (pool->is_dying)
            mempool_end_if_over(pool);
        pool = next;
    }
    weir__graph_memories_reap(device, false);
}

void weir__mempools_free(weir__emulated *device)
{
    weir__graph_memories_reap(device, true);
    while (device->mempools != NULL) {
        weir__mempool *pool = device->mempools;
        device->mempools = pool->next;
        weir__mempool_forget(pool);
        weir__host_free(pool);
    }
    device->spans_out = (weir__blocks){ .root = NULL };
}

/* ---- making ---- */

static weir_status options_check(const weir__emulated *device,
                                 const weir_async_options *options)
{
    const uint32_t known = WEIR_ASYNC_HANDLE_POSIX_FD | WEIR_ASYNC_HANDLE_FABRIC;
    if ((unsigned)options->memory > WEIR_ASYNC_PINNED)
        return weir__fail_native(WEIR_INVALID_ARGUMENT, WEIR__NATIVE_INVALID_VALUE,
                                 "%d is no memory that a pool could hold",
                                 (int)options->memory);
    if (options->memory == WEIR_ASYNC_MANAGED && options->max_bytes != 0)
        return weir__fail_native(WEIR_NOT_SUPPORTED, WEIR__NATIVE_NOT_SUPPORTED,
                                 "a pool of managed memory of emulated device %d "
                                 "cannot be bounded, and max_bytes is %zu",
                                 (int)device->ordinal, options->max_bytes);
    /* A pool of the host's has handles only if it is on a node of the host's. */
    bool has_handles = options->memory == WEIR_ASYNC_DEVICE ||
                       (options->memory == WEIR_ASYNC_PINNED && options->on_numa_node);
    if ((options->handle_types & ~known) != 0 ||
        (options->handle_types != 0 && !has_handles))
        return weir__fail_native(WEIR_NOT_SUPPORTED, WEIR__NATIVE_NOT_SUPPORTED,
                                 "emulated device %d has no such pools with handles of "
                                 "types %#x", (int)device->ordinal,
                                 (unsigned)options->handle_types);
    return WEIR_OK;
}

static weir_status mempool_make(weir__emulated *device,
                                const weir_async_options *options, weir__mempool **out)
{
    weir_status status = options_check(device, options);
    if (status != WEIR_OK)
        return status;
    weir__mempool *pool = weir__host_alloc(sizeof *pool);
    if (pool == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a pool");
    *pool = (weir__mempool){ .device = device, .options = *options,
                             .next = device->mempools };
    if (options->memory == WEIR_ASYNC_DEVICE &&
        (options->handle_types & WEIR_ASYNC_HANDLE_POSIX_FD) != 0) {
        size_t most = options->max_bytes != 0 ? options->max_bytes : SIZE_MAX;
        status = weir__object_make_pool(device->arena, most, &pool->shared);
    }
    if (status != WEIR_OK) {
        weir__host_free(pool);
        return status;
    }
    device->mempools = pool;
    *out = pool;
    return WEIR_OK;
}

static weir_status default_find(weir__emulated *device, weir_async_memory memory,
                                weir__mempool **out)
{
    const weir_async_options options = { .struct_size = sizeof options,
                                         .memory = memory, .reuse = ALL_REUSE };
    for (weir__mempool *pool = device->mempools; pool != NULL; pool = pool->next) {
        if (pool->is_default && pool->options.memory == memory) {
            *out = pool;
            return WEIR_OK;
        }
    }
    weir_status status = mempool_make(device, &options, out);
    if (status == WEIR_OK)
        (*out)->is_default = true;
    return status;
}

weir_status weir__emulated_mempool_create(void *device,
                                          const weir_async_options *options,
                                          weir_mempool *out)
{
    weir__emulated *self = device;
    weir__mempool *pool = NULL;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_mempool_create);
    if (status == WEIR_OK)
        status = mempool_make(self, options, &pool);
    if (status == WEIR_OK)
        *out = (weir_mempool)(void *)pool;
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir__emulated_mempool_default(void *device, weir_async_memory memory,
                                           weir_mempool *out)
{
    weir__emulated *self = device;
    weir__mempool *pool = NULL;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_mempool_default);
    if (status == WEIR_OK)
        status = default_find(self, memory, &pool);
    if (status == WEIR_OK)
        *out = (weir_mempool)(void *)pool;
    weir__mutex_unlock(&self->lock);
    return status;
}

/* The head of what is about a pool. */
static weir_status begin_on(weir__emulated *self, weir__call call, weir_mempool handle,
                            weir__mempool **out)
{
    weir_status status = weir__emulated_begin(self, call);
    return status == WEIR_OK ? mempool_find(self, handle, out) : status;
}

static weir_status destroy_locked(weir__mempool *pool)
{
    if (pool->is_default)
        return weir__fail_native(WEIR_INVALID_ARGUMENT, WEIR__NATIVE_INVALID_VALUE,
                                 "a default pool of emulated device %d is never "
                                 "destroyed", (int)pool->device->ordinal);
    pool->is_dying = true;
    mempool_end_if_over(pool);
    return WEIR_OK;
}

weir_status weir__emulated_mempool_destroy(void *device, weir_mempool pool)
{
    weir__emulated *self = device;
    weir__mempool *found;
    weir_status status = begin_on(self, WEIR__CALL_mempool_destroy, pool, &found);
    if (status == WEIR_OK)
        status = destroy_locked(found);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* ---- handing out and taking back ---- */

static weir_status take_on(weir__mempool *pool, weir__queue *queue, size_t bytes,
                           void **out)
{
    weir__emulated *self = pool->device;
    weir__span *span;
    weir_status status = weir__mempool_take(pool, queue, bytes, &span);
    if (status != WEIR_OK)
        return status;
    if (self->ledger != NULL)
        weir__ledger_pool_malloc(self->ledger, weir__this_thread(), queue->id,
                                 span->ptr, span->bytes);
    verify(pool);
    *out = (void *)span->ptr;
    return WEIR_OK;
}

static weir_status malloc_locked(weir__mempool *pool, weir_stream stream, size_t bytes,
                                 void **out)
{
    weir__queue *queue;
    weir__branch *branch;
    weir_status status = weir__stream_find(pool->device, stream, &queue);
    if (status == WEIR_OK)
        status = weir__capture_admit(queue, &branch);
    if (status != WEIR_OK)
        return status;
    if (branch != NULL)
        return weir__graph_memory_malloc(branch, pool->options.memory, bytes, out);
    return take_on(pool, queue, bytes, out);
}

weir_status weir__emulated_mempool_malloc(void *device, weir_mempool pool,
                                          weir_stream stream, size_t bytes, void **out)
{
    weir__emulated *self = device;
    weir__mempool *found;
    weir_status status = begin_on(self, WEIR__CALL_mempool_malloc, pool, &found);
    if (status == WEIR_OK)
        status = malloc_locked(found, stream, bytes, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* What is out at an address: of a pool, of a graph that was launched, or of another
 * process's pool. */
typedef struct owner {
    weir__span *span;
    weir__graph_memory *memory;
    weir__arena *import;
} owner;

static weir_status owner_find(weir__emulated *self, const void *ptr, owner *out)
{
    weir__block *block = weir__blocks_at_or_below(&self->spans_out, (uintptr_t)ptr);
    if (block != NULL && block->ptr == (uintptr_t)ptr)
        *out = (owner){ .span = (weir__span *)block };
    else
        *out = (owner){ .memory = weir__graph_memory_find_out(self, ptr),
                        .import = weir__shared_import_at(self, ptr, false) };
    if (out->span == NULL && out->memory == NULL && out->import == NULL)
        return weir__fail_native(WEIR_INVALID_ARGUMENT, WEIR__NATIVE_INVALID_VALUE,
                                 "%p is out from no pool of emulated device %d", ptr,
                                 (int)self->ordinal);
    return WEIR_OK;
}

static void span_give(weir__span *span, weir__queue *queue)
{
    weir__emulated *self = queue->device;
    weir__mempool *pool = span->chunk->pool;
    uint64_t time = 0;
    if (pool->shared != NULL)
        weir__shared_judge_free(self, pool->shared, queue->id, span->ptr, span->bytes);
    if (self->ledger != NULL)
        time = weir__ledger_pool_free(self->ledger, weir__this_thread(), queue->id,
                                      span->ptr, span->bytes);
    weir__mempool_give(span, queue, time);
    verify(pool);
    if (pool->is_dying)
        mempool_end_if_over(pool);
}

/* What is freed here is still its exporter's. */
static void import_give(weir__arena *import, const weir__queue *queue)
{
    weir__emulated *self = queue->device;
    const weir__block *block =
        weir__blocks_at_or_below(&import->blocks, UINTPTR_MAX); /* its only one */
    weir__shared_free_import(import);
    if (self->ledger != NULL)
        (void)weir__ledger_pool_free(self->ledger, weir__this_thread(), queue->id,
                                     block->ptr, block->bytes);
}

static weir_status give_on(weir__queue *queue, const void *ptr)
{
    static const weir__work marker = { .kind = WEIR__WORK_MARKER };
    owner found;
    weir_status status = owner_find(queue->device, ptr, &found);
    if (status == WEIR_OK)
        status = weir__queue_put(queue, &marker, 0, NULL, NULL);
    if (status != WEIR_OK)
        return status;
    if (found.span != NULL)
        span_give(found.span, queue);
    else if (found.import != NULL)
        import_give(found.import, queue);
    else
        weir__graph_memory_give(found.memory, queue);
    return WEIR_OK;
}

static weir_status free_locked(weir__emulated *self, weir_stream stream, void *ptr)
{
    weir__queue *queue;
    weir__branch *branch;
    weir_status status = weir__stream_find(self, stream, &queue);
    if (status == WEIR_OK)
        status = weir__capture_admit(queue, &branch);
    if (status != WEIR_OK)
        return status;
    return branch != NULL ? weir__graph_memory_free_inside(branch, ptr)
                          : give_on(queue, ptr);
}

weir_status weir__emulated_mempool_free(void *device, weir_stream stream, void *ptr)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_mempool_free);
    if (status == WEIR_OK)
        status = free_locked(self, stream, ptr);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* ---- trimming and asking ---- */

weir_status weir__emulated_mempool_trim(void *device, weir_mempool pool,
                                        size_t keep_bytes)
{
    weir__emulated *self = device;
    weir__mempool *found;
    weir_status status = begin_on(self, WEIR__CALL_mempool_trim, pool, &found);
    if (status == WEIR_OK) {
        weir__mempool_release(found, keep_bytes);
        verify(found);
    }
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir__emulated_mempool_get_state(void *device, weir_mempool pool,
                                             weir__mempool_state *out)
{
    weir__emulated *self = device;
    weir__mempool *found;
    weir_status status = begin_on(self, WEIR__CALL_mempool_get_state, pool, &found);
    if (status == WEIR_OK)
        *out = (weir__mempool_state){ .reserved_bytes = found->reserved_bytes,
                                      .used_bytes = found->used_bytes };
    weir__mutex_unlock(&self->lock);
    return status;
}
