/* cuda_range.c - addresses of a CUDA device that memory is mapped to piece by piece.
 *
 * A piece is an object of the driver's like those that can be shared (cuda_object.c),
 * mapped from its beginning, and reachable for the device and its peers: a mapping
 * begins with no access at all, and each needs it anew. Its handle goes at once, so
 * that the object ends with its mapping, and nothing has to be recorded here: but what
 * failed halfway and could not be undone, until it can. */
#include <string.h>

#include "device/cuda_module.h"

static weir_status check_support(weir__cuda *self)
{
    if (self->has_descriptors)
        return WEIR_OK;
    return weir__cuda_fail(self, WEIR_NOT_SUPPORTED, cudaErrorNotSupported,
                           "cuda:%d has no addresses to map memory to",
                           (int)self->ordinal);
}

/* What is asked for is whole granules of ours; the driver's must be no larger. */
static cudaError_t range_make(weir__cuda *self, size_t bytes, CUdeviceptr *out,
                              const char **call)
{
    size_t granule = 0;
    cudaError_t error = weir__cuda_least_granule(self, &granule, call);
    if (error == cudaSuccess && (granule == 0 || WEIR__RANGE_GRANULE % granule != 0))
        error = WEIR__REFUSE(cudaErrorNotSupported);
    if (error == cudaSuccess)
        error = WEIR__ASK("cuMemAddressReserve",
                          self->driver.address_reserve(out, bytes, WEIR__RANGE_GRANULE,
                                                       0, 0));
    return error;
}

static weir_status reserve(weir__cuda *self, size_t bytes, CUdeviceptr *out)
{
    WEIR__CUDA_DO_STEPS(self, WEIR__CUDA_MEMORY, range_make(self, bytes, out, call));
}

weir_status weir__cuda_range_reserve(void *device, size_t bytes, void **out)
{
    weir__cuda *self = device;
    CUdeviceptr base = 0;
    weir_status status = check_support(self);
    if (status == WEIR_OK)
        status = reserve(self, bytes, &base);
    if (status == WEIR_OK)
        *out = weir__cuda_pointer_to(base);
    return status;
}

/* Goes on from where it is. */
static cudaError_t piece_end(weir__cuda *self, weir__cuda_piece *it, const char **call)
{
    cudaError_t error = cudaSuccess;
    if (it->is_mapped) {
        error = WEIR__ASK("cuMemUnmap", self->driver.unmap(it->address, it->bytes));
        it->is_mapped = error != cudaSuccess;
    }
    if (error == cudaSuccess && it->has_handle) {
        error = WEIR__ASK("cuMemRelease", self->driver.object_release(it->handle));
        it->has_handle = error != cudaSuccess;
    }
    return error;
}

static void stuck_put(weir__cuda *self, const weir__cuda_piece *it)
{
    self->host->mutex_lock(&self->mappings.lock);
    if (self->stuck_count < WEIR__CUDA_STUCK)
        self->stuck[self->stuck_count++] = *it;
    self->host->mutex_unlock(&self->mappings.lock);
}

static bool stuck_take(weir__cuda *self, weir__cuda_piece *out)
{
    self->host->mutex_lock(&self->mappings.lock);
    bool has = self->stuck_count > 0;
    if (has)
        *out = self->stuck[--self->stuck_count];
    self->host->mutex_unlock(&self->mappings.lock);
    return has;
}

/* What could not be undone is undone before anything else: nobody knows that it is in
 * the way. So there is one for each thread at most. */
static cudaError_t stuck_end(weir__cuda *self, const char **call)
{
    weir__cuda_piece it;
    while (stuck_take(self, &it)) {
        cudaError_t error = piece_end(self, &it, call);
        if (error != cudaSuccess) {
            stuck_put(self, &it);
            return error;
        }
    }
    return cudaSuccess;
}

static cudaError_t piece_map(weir__cuda *self, CUdeviceptr address, size_t bytes,
                             const char **call)
{
    const char *unheard = "";
    weir__cuda_piece it = { .address = address, .bytes = bytes };
    cudaError_t error = stuck_end(self, call);
    if (error == cudaSuccess)
        error = weir__cuda_object_create(self, bytes, &it.handle, call);
    if (error != cudaSuccess)
        return error;
    it.has_handle = true;
    error = WEIR__ASK("cuMemMap", self->driver.map(address, bytes, 0, it.handle, 0));
    it.is_mapped = error == cudaSuccess;
    if (error == cudaSuccess) {
        error = WEIR__ASK("cuMemRelease", self->driver.object_release(it.handle));
        it.has_handle = error != cudaSuccess;
    }
    if (error == cudaSuccess)
        error = WEIR__ASK("cuMemSetAccess",
                          self->driver.set_access(address, bytes, self->access,
                                                  self->access_count));
    if (error != cudaSuccess && piece_end(self, &it, &unheard) != cudaSuccess)
        stuck_put(self, &it);
    return error;
}

weir_status weir__cuda_range_map(void *device, void *ptr, size_t bytes)
{
    weir__cuda *self = device;
    WEIR__CUDA_DO_STEPS(self, WEIR__CUDA_MEMORY,
                        piece_map(self, weir__cuda_address_of(ptr), bytes, call));
}

static cudaError_t range_end(weir__cuda *self, CUdeviceptr base, size_t bytes,
                             const char **call)
{
    cudaError_t error = stuck_end(self, call);
    if (error != cudaSuccess)
        return error;
    return WEIR__ASK("cuMemAddressFree", self->driver.address_free(base, bytes));
}

weir_status weir__cuda_range_release(void *device, void *base, size_t bytes)
{
    weir__cuda *self = device;
    WEIR__CUDA_DO_STEPS(self, WEIR__CUDA_MEMORY,
                        range_end(self, weir__cuda_address_of(base), bytes, call));
}

weir_status weir__cuda_range_unmap(void *device, void *ptr, size_t bytes)
{
    weir__cuda *self = device;
    WEIR__CUDA_DO_COLD_AS(self, WEIR__CUDA_MEMORY,
                          (cudaError_t)self->driver.unmap(weir__cuda_address_of(ptr),
                                                          bytes),
                          "cuMemUnmap");
}
