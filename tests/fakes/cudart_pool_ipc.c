/* cudart_pool_ipc.c - of the runtime: pools of memory that other processes open, and
 * what the driver says of pools' memory.
 *
 * A pool's descriptor is that of the file that the emulated pool lies in, and the
 * octets of a block are the emulated device's. An imported pool here has one block. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/emulated_mempool.h"
#include "device/emulated_shared.h"
#include "fakes/fakes_internal.h"

typedef struct import {
    struct import *next;
    fakes_context *context;
    int fd;
    bool is_granted;     /* the device may touch it */
    bool is_destroyed;   /* ends with its block */
    bool is_freed;       /* the block, in stream order */
    unsigned char *base; /* null: no block yet */
    size_t bytes;
} import;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by the lock, as what is written of them; each is used by one thread at a
 * time, and looked at by all. */
static import *imports;

/* ---- records ---- */

/* The one that `pool` is; null: none that lives. */
static import *import_of(const fakes_context *context, cudaMemPool_t pool)
{
    pthread_mutex_lock(&lock);
    import *each = imports;
    while (each != NULL && ((void *)each != (void *)pool || each->is_destroyed ||
                            each->context != context))
        each = each->next;
    pthread_mutex_unlock(&lock);
    return each;
}

/* The one whose block, which is not freed, has the address; null: none. */
static import *import_at(uintptr_t address)
{
    pthread_mutex_lock(&lock);
    import *each = imports;
    while (each != NULL && (each->is_freed ||
                            address - (uintptr_t)each->base >= each->bytes))
        each = each->next;
    pthread_mutex_unlock(&lock);
    return each;
}

static void flag_set(bool *flag)
{
    pthread_mutex_lock(&lock);
    *flag = true;
    pthread_mutex_unlock(&lock);
}

/* The driver's, once nothing of it is out. */
static int import_end_if_over(import *self)
{
    if (!self->is_destroyed || (self->base != NULL && !self->is_freed))
        return cudaSuccess;
    if (self->base != NULL) {
        weir_status status = self->context->ops->shared_close(self->context->device,
                                                              self->base);
        if (status != WEIR_OK)
            return fakes_error_of(self->context, status);
    }
    pthread_mutex_lock(&lock);
    import **link = &imports;
    while (*link != self)
        link = &(*link)->next;
    *link = self->next;
    pthread_mutex_unlock(&lock);
    close(self->fd);
    free(self);
    return cudaSuccess;
}

void fakes_forget_pools(const fakes_context *context)
{
    pthread_mutex_lock(&lock);
    for (import **link = &imports; *link != NULL;) {
        import *each = *link;
        if (each->context == context) {
            *link = each->next;
            close(each->fd);
            free(each);
        } else {
            link = &each->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* ---- what an address is ---- */

/* The block of a pool of that device that has the address. */
static bool pooled_at(int ordinal, uintptr_t address, fakes_pooled *out)
{
    weir__emulated *device = fakes_emulated(ordinal);
    if (device == NULL)
        return false;
    weir__mutex_lock(&device->lock);
    const weir__block *block = weir__blocks_at_or_below(&device->spans_out, address);
    bool has = block != NULL && address - block->ptr < block->bytes;
    if (has) {
        const weir__mempool *pool = ((const weir__span *)block)->chunk->pool;
        *out = (fakes_pooled){ block->ptr, block->bytes, (uintptr_t)pool,
                               pool->options.handle_types, ordinal };
    }
    weir__mutex_unlock(&device->lock);
    return has;
}

bool fakes_pool_find(uintptr_t address, fakes_pooled *out)
{
    const import *opened = import_at(address);
    if (opened != NULL) {
        int shift = fakes_the_machine.imports_elsewhere ? 1 : 0;
        *out = (fakes_pooled){ (uintptr_t)opened->base, opened->bytes,
                               (uintptr_t)opened, 0,
                               opened->context->ordinal + shift };
        return true;
    }
    for (int i = 0; i < FAKES_DEVICES; i++) {
        if (pooled_at(i, address, out))
            return true;
    }
    return false;
}

/* ---- exporting ---- */

static int begin_in(fakes_call call, fakes_context **context)
{
    int error = fakes_begin_in(call, context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    return error == cudaSuccess && fakes_the_machine.no_handles
               ? cudaErrorNotSupported
               : error;
}

/* The driver does not say that its descriptors are closed on exec. */
static int pool_export(fakes_context *context, cudaMemPool_t handle, int *out)
{
    weir__mutex_lock(&context->device->lock);
    weir__mempool *pool = context->device->mempools;
    while (pool != NULL && (pool->is_dying || (void *)pool != (void *)handle))
        pool = pool->next;
    int fd = pool != NULL && pool->shared != NULL ? dup(pool->shared->fd) : -1;
    if (fd >= 0)
        pool->is_exported = true;
    weir__mutex_unlock(&context->device->lock);
    if (fd < 0)
        return cudaErrorInvalidValue;
    *out = fd;
    return cudaSuccess;
}

cudaError_t cudaMemPoolExportToShareableHandle(void *out, cudaMemPool_t pool,
                                               enum cudaMemAllocationHandleType type,
                                               unsigned flags)
{
    fakes_context *context;
    int error = begin_in(FAKES_cudaMemPoolExportToShareableHandle, &context);
    if (error == cudaSuccess &&
        (out == NULL || type != cudaMemHandleTypePosixFileDescriptor || flags != 0))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = pool_export(context, pool, out);
    return fakes_end(error);
}

/* Whether that of a block's pool was asked for. */
static bool pool_is_exported(fakes_context *context, uintptr_t address)
{
    weir__mutex_lock(&context->device->lock);
    const weir__block *block =
        weir__blocks_at_or_below(&context->device->spans_out, address);
    bool is_exported = block != NULL && address - block->ptr < block->bytes &&
                       ((const weir__span *)block)->chunk->pool->is_exported;
    weir__mutex_unlock(&context->device->lock);
    return is_exported;
}

/* Of its base only, as the driver's documentation has it, and once there is a
 * descriptor of its pool: driver 580.159 answers this error before. */
cudaError_t cudaMemPoolExportPointer(struct cudaMemPoolPtrExportData *out, void *ptr)
{
    fakes_context *context;
    weir__shared made;
    int error = begin_in(FAKES_cudaMemPoolExportPointer, &context);
    if (error == cudaSuccess && !pool_is_exported(context, (uintptr_t)ptr))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = fakes_error_of(context, context->ops->shared_export(context->device,
                                                                    ptr, &made));
    if (error == cudaSuccess && made.kind != WEIR_SHARE_POOL)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        memcpy(out, made.octets, sizeof *out);
        close(made.fd);
    }
    return fakes_end(error);
}

/* ---- importing ---- */

static int pool_import(fakes_context *context, int from, cudaMemPool_t *out)
{
    int fd = fcntl(from, F_DUPFD_CLOEXEC, 0);
    import *made = fd >= 0 ? malloc(sizeof *made) : NULL;
    if (made == NULL) {
        if (fd >= 0)
            close(fd);
        return fd < 0 ? cudaErrorInvalidValue : cudaErrorMemoryAllocation;
    }
    *made = (import){ .context = context, .fd = fd,
                      .is_granted = !fakes_the_machine.closes_pools };
    pthread_mutex_lock(&lock);
    made->next = imports;
    imports = made;
    pthread_mutex_unlock(&lock);
    *out = (cudaMemPool_t)(void *)made;
    atomic_fetch_add(&fakes_count.pools, 1);
    return cudaSuccess;
}

cudaError_t cudaMemPoolImportFromShareableHandle(cudaMemPool_t *out, void *handle,
                                                 enum cudaMemAllocationHandleType type,
                                                 unsigned flags)
{
    fakes_context *context;
    int error = begin_in(FAKES_cudaMemPoolImportFromShareableHandle, &context);
    if (error == cudaSuccess &&
        (out == NULL || type != cudaMemHandleTypePosixFileDescriptor || flags != 0))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = pool_import(context, (int)(uintptr_t)handle, out);
    return fakes_end(error);
}

static int block_import(import *self, const struct cudaMemPoolPtrExportData *data,
                        void **out)
{
    weir__pool_place place;
    memcpy(&place, data, sizeof place);
    weir__shared from = { .kind = WEIR_SHARE_POOL, .bytes = (size_t)place.bytes,
                          .fd = self->fd };
    memcpy(from.octets, data, sizeof from.octets);
    void *base;
    weir_status status = self->context->ops->shared_open(self->context->device, &from,
                                                         &base);
    if (status != WEIR_OK)
        return status == WEIR_INVALID_ARGUMENT ? cudaErrorInvalidValue
                                               : fakes_error_of(self->context, status);
    pthread_mutex_lock(&lock);
    self->base = base;
    self->bytes = from.bytes;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&fakes_count.pool_blocks, 1);
    *out = base;
    return cudaSuccess;
}

cudaError_t cudaMemPoolImportPointer(void **out, cudaMemPool_t pool,
                                     struct cudaMemPoolPtrExportData *data)
{
    fakes_context *context;
    int error = begin_in(FAKES_cudaMemPoolImportPointer, &context);
    import *self = error == cudaSuccess ? import_of(context, pool) : NULL;
    if (error == cudaSuccess && (self == NULL || out == NULL || data == NULL))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess && (!self->is_granted || self->base != NULL))
        fakes_not_provided("a pool that the device may not touch, or a second block");
    if (error == cudaSuccess)
        error = block_import(self, data, out);
    return fakes_end(error);
}

cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *out, cudaMemPool_t pool,
                                 struct cudaMemLocation *location)
{
    fakes_context *context;
    int error = begin_in(FAKES_cudaMemPoolGetAccess, &context);
    const import *self = error == cudaSuccess ? import_of(context, pool) : NULL;
    if (error == cudaSuccess &&
        (self == NULL || out == NULL || location == NULL ||
         location->type != cudaMemLocationTypeDevice ||
         location->id != context->ordinal))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        *out = self->is_granted ? cudaMemAccessFlagsProtReadWrite
                                : cudaMemAccessFlagsProtNone;
    return fakes_end(error);
}

/* ---- what cudart_pool.c and cudart_memory.c ask here ---- */

bool fakes_pool_grant(const fakes_context *context, cudaMemPool_t pool)
{
    import *self = import_of(context, pool);
    if (self != NULL)
        flag_set(&self->is_granted);
    return self != NULL;
}

bool fakes_pool_is_imported(const fakes_context *context, cudaMemPool_t pool)
{
    return import_of(context, pool) != NULL;
}

int fakes_pool_end(const fakes_context *context, cudaMemPool_t pool)
{
    import *self = import_of(context, pool);
    flag_set(&self->is_destroyed);
    int error = import_end_if_over(self);
    if (error != cudaSuccess) {
        pthread_mutex_lock(&lock);
        self->is_destroyed = false;
        pthread_mutex_unlock(&lock);
    }
    return error;
}

bool fakes_pool_has_block(const fakes_context *context, const void *ptr)
{
    const import *self = import_at((uintptr_t)ptr);
    return self != NULL && self->context == context && self->base == ptr;
}

int fakes_pool_free(fakes_context *context, cudaStream_t stream, void *ptr)
{
    import *self = import_at((uintptr_t)ptr);
    weir_status status = context->ops->mempool_free(context->device,
                                                    fakes_stream(stream), ptr);
    if (status != WEIR_OK)
        return fakes_error_of(context, status);
    flag_set(&self->is_freed);
    return import_end_if_over(self);
}
