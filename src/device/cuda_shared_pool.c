/* cuda_shared_pool.c - blocks of the pools of a CUDA device, in other processes.
 *
 * Who made the pool has asked for file descriptors that can stand for it. One goes to
 * the importer, with the 64 octets that the driver makes of a block's address. There it
 * makes a pool that nothing can be allocated from, and the octets an address in that: a
 * pool for each, so that the end of one is no other's. The address is freed in stream
 * order (mempool_free), as it must be before its exporter frees it; and once that is
 * done its pool ends. Both are in one record of cuda_mappings.c. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda_module.h"

_Static_assert(sizeof(struct cudaMemPoolPtrExportData) == WEIR__SHARED_OCTETS,
               "CUDA's octets are ours");

#define BY_DESCRIPTOR cudaMemHandleTypePosixFileDescriptor

bool weir__cuda_shares_pools(const weir__cuda *self)
{
    return self->has_pools && (self->pool_handles & WEIR_ASYNC_HANDLE_POSIX_FD) != 0;
}

/* ---- exporting ---- */

cudaError_t weir__cuda_pool_export(const weir__cuda_block *block, weir__shared *out,
                                   const char **call)
{
    struct cudaMemPoolPtrExportData place;
    int fd = -1;
    cudaError_t error = WEIR__ASK("cudaMemPoolExportToShareableHandle",
                                  cudaMemPoolExportToShareableHandle(
                                      &fd, block->pool, BY_DESCRIPTOR, 0));
    if (error != cudaSuccess)
        return error;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* the driver promises nothing */
    /* Of a pool that was never exported the driver tells no place (seen of 580.159:
     * cudaErrorInvalidValue). */
    error = WEIR__ASK(
        "cudaMemPoolExportPointer",
        cudaMemPoolExportPointer(&place, weir__cuda_pointer_to(block->base)));
    if (error != cudaSuccess) {
        (void)close(fd);
        return error;
    }
    weir__cuda_tell(out, WEIR_SHARE_POOL, block->bytes);
    out->fd = fd;
    memcpy(out->octets, &place, sizeof place);
    return cudaSuccess;
}

/* ---- importing ---- */

/* The device itself has it by default, but for the pools of others. */
static cudaError_t grant(const weir__cuda *self, cudaMemPool_t pool, const char **call)
{
    struct cudaMemAccessDesc access = {
        .location = { .type = cudaMemLocationTypeDevice, .id = (int)self->ordinal },
        .flags = cudaMemAccessFlagsProtReadWrite,
    };
    enum cudaMemAccessFlags now = cudaMemAccessFlagsProtNone;
    cudaError_t error = WEIR__ASK("cudaMemPoolGetAccess",
                                  cudaMemPoolGetAccess(&now, pool, &access.location));
    if (error != cudaSuccess || now == cudaMemAccessFlagsProtReadWrite)
        return error;
    return WEIR__ASK("cudaMemPoolSetAccess", cudaMemPoolSetAccess(pool, &access, 1));
}

/* Whether all of the bytes that were promised are there, in the device's memory. */
static cudaError_t check_block(weir__cuda *self, CUdeviceptr address, size_t bytes,
                               const char **call)
{
    uint64_t ordinal = 0; /* larger than what is written */
    CUpointer_attribute asked = CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    void *answer = &ordinal;
    CUdeviceptr base = 0;
    size_t found = 0;
    cudaError_t error = WEIR__ASK(
        "cuPointerGetAttributes",
        self->driver.pointer_attributes(1, &asked, &answer, address));
    if (error == cudaSuccess)
        error = WEIR__ASK("cuMemGetAddressRange",
                          self->driver.address_range(&base, &found, address));
    if (error != cudaSuccess)
        return error;
    size_t offset = (size_t)(address - base);
    bool has = ordinal == (uint64_t)self->ordinal && bytes != 0 && offset < found &&
               bytes <= found - offset;
    return has ? cudaSuccess : WEIR__REFUSE(cudaErrorInvalidValue);
}

static cudaError_t block_import(weir__cuda *self, cudaMemPool_t pool,
                                const weir__shared *from, CUdeviceptr *out,
                                const char **call)
{
    void *ptr;
    struct cudaMemPoolPtrExportData place;
    memcpy(&place, from->octets, sizeof place);
    cudaError_t error = WEIR__ASK("cudaMemPoolImportPointer",
                                  cudaMemPoolImportPointer(&ptr, pool, &place));
    if (error != cudaSuccess)
        return error;
    *out = weir__cuda_address_of(ptr);
    error = check_block(self, *out, from->bytes, call);
    if (error != cudaSuccess)
        (void)cudaFree(ptr); /* on no stream: nobody has used it */
    return error;
}

cudaError_t weir__cuda_pool_open(weir__cuda *self, const weir__shared *from,
                                 weir__cuda_mapping *it, const char **call)
{
    cudaMemPool_t pool;
    cudaError_t error = WEIR__ASK(
        "cudaMemPoolImportFromShareableHandle",
        cudaMemPoolImportFromShareableHandle(
            &pool, weir__cuda_pointer_to((CUdeviceptr)from->fd), BY_DESCRIPTOR, 0));
    if (error != cudaSuccess)
        return error;
    error = grant(self, pool, call);
    if (error == cudaSuccess)
        error = block_import(self, pool, from, &it->address, call);
    if (error != cudaSuccess) {
        (void)cudaMemPoolDestroy(pool);
        return error;
    }
    it->bytes = from->bytes;
    it->is_opened = true;
    it->state = WEIR__CUDA_POOLED;
    it->pool = pool;
    return cudaSuccess;
}
