/* cuda_object.c - objects of a CUDA device's memory that a file descriptor can stand
 * for, and their mappings.
 *
 * An object is made, or imported, then mapped into a range of addresses of its own, and
 * then made reachable: a mapping begins with no access at all. Each step that fails is
 * followed by the ends of those before it. */
#include <fcntl.h>
#include <string.h>

#include "device/cuda_module.h"

static void describe_object(const weir__cuda *self, CUmemAllocationProp *out)
{
    memset(out, 0, sizeof *out);
    out->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    out->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    out->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    out->location.id = (int)self->ordinal;
    out->allocFlags.gpuDirectRDMACapable = self->has_rdma;
}

static cudaError_t ask_granule(weir__cuda *self, size_t *out, const char **call)
{
    CUmemAllocationProp properties;
    describe_object(self, &properties);
    return WEIR__ASK("cuMemGetAllocationGranularity",
                     self->driver.granularity(out, &properties,
                                              CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
}

cudaError_t weir__cuda_least_granule(weir__cuda *self, size_t *out, const char **call)
{
    CUmemAllocationProp properties;
    describe_object(self, &properties);
    return WEIR__ASK("cuMemGetAllocationGranularity",
                     self->driver.granularity(out, &properties,
                                              CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

cudaError_t weir__cuda_object_create(weir__cuda *self, size_t bytes,
                                     CUmemGenericAllocationHandle *out,
                                     const char **call)
{
    CUmemAllocationProp properties;
    describe_object(self, &properties);
    return WEIR__ASK("cuMemCreate",
                     self->driver.object_create(out, bytes, &properties, 0));
}

/* Goes on from where it is; `state` tells how far it has come. */
static cudaError_t mapping_end(weir__cuda *self, weir__cuda_mapping *it,
                               const char **call)
{
    cudaError_t error = cudaSuccess;
    if (it->state == WEIR__CUDA_POOLED)
        return WEIR__ASK("cudaMemPoolDestroy", cudaMemPoolDestroy(it->pool));
    if (it->state == WEIR__CUDA_MAPPED) {
        error = WEIR__ASK("cuMemUnmap", self->driver.unmap(it->address, it->bytes));
        if (error == cudaSuccess)
            it->state = WEIR__CUDA_UNMAPPED;
    }
    if (it->state == WEIR__CUDA_UNMAPPED) {
        error = WEIR__ASK("cuMemRelease", self->driver.object_release(it->handle));
        if (error == cudaSuccess)
            it->state = WEIR__CUDA_RESERVED;
    }
    if (it->state == WEIR__CUDA_RESERVED)
        error = WEIR__ASK("cuMemAddressFree",
                          self->driver.address_free(it->address, it->bytes));
    return error;
}

/* Of `it`, bytes and handle are there. Takes the handle over, also where it fails. */
static cudaError_t mapping_make(weir__cuda *self, size_t granule,
                                weir__cuda_mapping *it, const char **call)
{
    const char *unheard = "";
    cudaError_t error = WEIR__ASK("cuMemAddressReserve",
                                  self->driver.address_reserve(
                                      &it->address, it->bytes, granule, 0, 0));
    if (error != cudaSuccess) {
        (void)self->driver.object_release(it->handle);
        return error;
    }
    it->state = WEIR__CUDA_UNMAPPED;
    error = WEIR__ASK("cuMemMap", self->driver.map(it->address, it->bytes, 0,
                                                   it->handle, 0));
    if (error == cudaSuccess) {
        it->state = WEIR__CUDA_MAPPED;
        error = WEIR__ASK("cuMemSetAccess",
                          self->driver.set_access(it->address, it->bytes, self->access,
                                                  self->access_count));
    }
    if (error != cudaSuccess)
        (void)mapping_end(self, it, &unheard);
    return error;
}

static cudaError_t object_make(weir__cuda *self, size_t bytes, weir__cuda_mapping *it,
                               const char **call)
{
    size_t granule = 0;
    cudaError_t error = ask_granule(self, &granule, call);
    if (error != cudaSuccess)
        return error;
    it->bytes = weir__cuda_round_up(bytes, granule);
    error = weir__cuda_object_create(self, it->bytes, &it->handle, call);
    return error == cudaSuccess ? mapping_make(self, granule, it, call) : error;
}

/* Whether what was imported is memory of the device, of that kind. How long it is the
 * driver does not say: it refuses to map more of it than there is. */
static cudaError_t check_object(weir__cuda *self, CUmemGenericAllocationHandle handle,
                                const char **call)
{
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    cudaError_t error = WEIR__ASK("cuMemGetAllocationPropertiesFromHandle",
                                  self->driver.object_properties(&properties, handle));
    if (error != cudaSuccess)
        return error;
    bool fits = properties.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                properties.location.id == (int)self->ordinal;
    return fits ? cudaSuccess : WEIR__REFUSE(cudaErrorInvalidValue);
}

static cudaError_t object_open(weir__cuda *self, const weir__shared *from,
                               weir__cuda_mapping *it, const char **call)
{
    size_t granule = 0;
    cudaError_t error = ask_granule(self, &granule, call);
    if (error == cudaSuccess && (from->bytes == 0 || from->bytes % granule != 0 ||
                                 from->bytes > self->memory_bytes))
        error = WEIR__REFUSE(cudaErrorInvalidValue); /* as no object has */
    if (error == cudaSuccess)
        error = WEIR__ASK("cuMemImportFromShareableHandle",
                          self->driver.object_import(
                              &it->handle, weir__cuda_pointer_to((CUdeviceptr)from->fd),
                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (error != cudaSuccess)
        return error;
    it->is_opened = true;
    it->bytes = from->bytes;
    error = check_object(self, it->handle, call);
    if (error == cudaSuccess)
        return mapping_make(self, granule, it, call);
    (void)self->driver.object_release(it->handle);
    return error;
}

/* Makes an object, or opens one where `from` is not null; its record is to be made. */
static weir_status mapping_add(weir__cuda *self, size_t bytes, const weir__shared *from,
                               weir__cuda_mapping *it)
{
    if (from != NULL && from->kind == WEIR_SHARE_POOL)
        WEIR__CUDA_DO_STEPS(self, WEIR__CUDA_OPEN,
                            weir__cuda_pool_open(self, from, it, call));
    if (from != NULL)
        WEIR__CUDA_DO_STEPS(self, WEIR__CUDA_OPEN, object_open(self, from, it, call));
    WEIR__CUDA_DO_STEPS(self, WEIR__CUDA_MEMORY, object_make(self, bytes, it, call));
}

static weir_status object_add(weir__cuda *self, size_t bytes, const weir__shared *from,
                              void **out)
{
    weir__cuda_mapping made;
    weir_status status = weir__cuda_mappings_promise(self);
    if (status != WEIR_OK)
        return status;
    memset(&made, 0, sizeof made);
    status = mapping_add(self, bytes, from, &made);
    if (status != WEIR_OK) {
        weir__cuda_mappings_drop(self);
        return status;
    }
    weir__cuda_mappings_put(self, &made);
    *out = weir__cuda_pointer_to(made.address);
    return WEIR_OK;
}

weir_status weir__cuda_object_malloc(weir__cuda *self, size_t bytes, void **out)
{
    return object_add(self, bytes, NULL, out);
}

weir_status weir__cuda_object_open(weir__cuda *self, const weir__shared *from,
                                   void **out)
{
    return object_add(self, 0, from, out);
}

static weir_status mapping_remove(weir__cuda *self, weir__cuda_mapping *it)
{
    WEIR__CUDA_DO_STEPS(self, WEIR__CUDA_MEMORY, mapping_end(self, it, call));
}

weir_status weir__cuda_object_end(weir__cuda *self, weir__cuda_mapping *it)
{
    weir_status status = mapping_remove(self, it);
    if (status == WEIR_OK)
        weir__cuda_mappings_drop(self);
    else
        weir__cuda_mappings_put(self, it);
    return status;
}

static weir_status fd_make(weir__cuda *self, CUmemGenericAllocationHandle handle,
                           int *fd)
{
    const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    WEIR__CUDA_DO_COLD_AS(
        self, WEIR__CUDA_MEMORY,
        (cudaError_t)self->driver.object_export(fd, handle, type, 0),
        "cuMemExportToShareableHandle");
}

weir_status weir__cuda_object_export(weir__cuda *self, const weir__cuda_mapping *it,
                                     weir__shared *out)
{
    int fd = -1;
    weir_status status = fd_make(self, it->handle, &fd);
    if (status != WEIR_OK)
        return status;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* the driver promises nothing */
    weir__cuda_tell(out, WEIR_SHARE_FD, it->bytes);
    out->fd = fd;
    return WEIR_OK;
}
