/* cuda_shared.c - memory and events of a CUDA device that other processes can open.
 *
 * FD: virtual memory. An object of the driver's, for which a file descriptor can stand
 *     elsewhere, is mapped into a range of addresses of its own, and then made
 *     reachable: a mapping begins with no access at all. Made as NCCL wants what it
 *     registers: for the device and all its peers, in recommended granules, and for
 *     other devices on the bus where that is supported.
 * LEGACY: cudaMalloc's, for which 64 octets stand. The driver packs what is smaller
 *     than 2 MiB together, and whoever opens one of these reaches all: hence whole
 *     multiples. How often a handle is open it counts itself. The process that has
 *     made the memory cannot open it.
 * POOL: blocks of the driver's pools that are made to be shared (cuda_shared_pool.c).
 *
 * Mappings are recorded (cuda_mappings.c), the rest the driver knows best. */
#include <string.h>

#include "device/cuda_module.h"

#define GRANULE ((size_t)2 << 20)

_Static_assert(sizeof(cudaIpcMemHandle_t) == WEIR__SHARED_OCTETS &&
               sizeof(cudaIpcEventHandle_t) == WEIR__SHARED_OCTETS,
               "CUDA's handles are our octets");

/* ---- what the device can share ---- */

static weir_status ask_driver(weir__cuda *self, CUdevice_attribute attribute, int *out)
{
    *out = 0;
    return weir__cuda_judge_driver(
        self, self->driver.attribute(out, attribute, self->device),
        "cuDeviceGetAttribute");
}

static void grant_to(weir__cuda *self, int ordinal)
{
    self->access[self->access_count++] = (CUmemAccessDesc){
        .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal },
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
}

static weir_status find_peers(weir__cuda *self)
{
    int count = 0;
    grant_to(self, (int)self->ordinal);
    weir_status status = weir__cuda_judge(self, WEIR__CUDA_WORK,
                                          cudaGetDeviceCount(&count),
                                          "cudaGetDeviceCount");
    for (int i = 0; status == WEIR_OK && i < count && i < WEIR__DEVICE_ORDINALS; i++) {
        CUdevice peer;
        int can = 0;
        if (i == (int)self->ordinal)
            continue;
        status = weir__cuda_judge_driver(self, self->driver.device_get(&peer, i),
                                         "cuDeviceGet");
        if (status == WEIR_OK)
            status = weir__cuda_judge_driver(
                self, self->driver.device_peer(&can, peer, self->device),
                "cuDeviceCanAccessPeer");
        if (status == WEIR_OK && can)
            grant_to(self, i);
    }
    return status;
}

weir_status weir__cuda_shared_begin(weir__cuda *self)
{
    int maps = 0, descriptors = 0, rdma = 0;
    weir_status status = ask_driver(
        self, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &maps);
    if (status == WEIR_OK)
        status = ask_driver(
            self, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            &descriptors);
    if (status == WEIR_OK)
        status = ask_driver(
            self, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, &rdma);
    self->has_descriptors = maps != 0 && descriptors != 0;
    self->has_rdma = rdma != 0;
    return status == WEIR_OK && self->has_descriptors ? find_peers(self) : status;
}

static weir_status fail_kind(weir__cuda *self, weir_share_kind kind)
{
    return weir__cuda_fail(self, WEIR_NOT_SUPPORTED, cudaErrorNotSupported,
                           "cuda:%d has no memory that is shared by %s",
                           (int)self->ordinal,
                           kind == WEIR_SHARE_FD     ? "a file descriptor"
                           : kind == WEIR_SHARE_POOL ? "the descriptor of its pool"
                                                     : "a handle of the legacy kind");
}

static weir_status check_kind(weir__cuda *self, weir_share_kind kind)
{
    bool has = (kind == WEIR_SHARE_FD && self->has_descriptors) ||
               (kind == WEIR_SHARE_LEGACY && self->has_ipc) ||
               (kind == WEIR_SHARE_POOL && weir__cuda_shares_pools(self));
    return has ? WEIR_OK : fail_kind(self, kind);
}

/* ---- the legacy kind ---- */

/* A block that does not begin with a granule may share it with others. */
static cudaError_t block_make(size_t bytes, void **out, const char **call)
{
    void *ptr;
    cudaError_t error = WEIR__ASK(
        "cudaMalloc", cudaMalloc(&ptr, weir__cuda_round_up(bytes, GRANULE)));
    if (error != cudaSuccess)
        return error;
    if (weir__cuda_address_of(ptr) % GRANULE != 0) {
        (void)cudaFree(ptr);
        return cudaErrorNotSupported;
    }
    *out = ptr;
    return cudaSuccess;
}

static weir_status block_malloc(weir__cuda *self, size_t bytes, void **out)
{
    WEIR__CUDA_DO_STEPS(self, WEIR__CUDA_MEMORY, block_make(bytes, out, call));
}

/* What may be cudaMalloc's, or of a pool. Pointers that are nobody's have attributes
 * too: zeros. */
static cudaError_t block_find(weir__cuda *self, const void *ptr, weir__cuda_block *out,
                              const char **call)
{
    /* Larger than what is written. */
    uint64_t is_capable = 0, ordinal = 0, pool = 0, handles = 0;
    CUpointer_attribute asked[] = { CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                    CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES };
    void *answers[] = { &is_capable, &ordinal, &pool, &handles };
    *out = (weir__cuda_block){ .base = 0 };
    CUdeviceptr address = weir__cuda_address_of(ptr);
    cudaError_t error = WEIR__ASK(
        "cuPointerGetAttributes",
        self->driver.pointer_attributes(4, asked, answers, address));
    if (error != cudaSuccess || ordinal != (uint64_t)self->ordinal)
        return error;
    bool is_pooled = pool != 0 && weir__cuda_shares_pools(self) &&
                     (handles & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
    if (!is_pooled && (is_capable == 0 || !self->has_ipc))
        return error;
    if (is_pooled)
        out->pool = weir__cuda_pointer_to((CUdeviceptr)pool);
    return WEIR__ASK("cuMemGetAddressRange",
                     self->driver.address_range(&out->base, &out->bytes, address));
}

/* The same, as all of a primitive. */
static weir_status block_ask(weir__cuda *self, const void *ptr, weir__cuda_block *out)
{
    WEIR__CUDA_DO_STEPS(self, WEIR__CUDA_MEMORY, block_find(self, ptr, out, call));
}

/* The driver maps whole granules of it, and may tell of these. */
static bool block_is(const weir__cuda_block *it, CUdeviceptr address, size_t bytes)
{
    size_t whole = weir__cuda_round_up(bytes, GRANULE);
    return it->base == address && bytes != 0 && it->bytes >= bytes &&
           weir__cuda_round_up(it->bytes, GRANULE) == whole;
}

static cudaError_t block_open(weir__cuda *self, const weir__shared *from, void **out,
                              const char **call)
{
    void *ptr;
    weir__cuda_block found = { .base = 0 };
    cudaIpcMemHandle_t handle;
    memcpy(&handle, from->octets, sizeof handle);
    cudaError_t error = WEIR__ASK(
        "cudaIpcOpenMemHandle",
        cudaIpcOpenMemHandle(&ptr, handle, cudaIpcMemLazyEnablePeerAccess));
    if (error != cudaSuccess)
        return error;
    CUdeviceptr address = weir__cuda_address_of(ptr);
    error = WEIR__ASK("cuMemGetAddressRange",
                      self->driver.address_range(&found.base, &found.bytes, address));
    if (error == cudaSuccess && !block_is(&found, address, from->bytes))
        error = WEIR__REFUSE(cudaErrorInvalidValue);
    if (error == cudaSuccess)
        *out = ptr;
    else
        (void)cudaIpcCloseMemHandle(ptr);
    return error;
}

/* ---- primitives: memory ---- */

void weir__cuda_tell(weir__shared *out, weir_share_kind kind, size_t bytes)
{
    memset(out, 0, sizeof *out);
    out->kind = kind;
    out->bytes = bytes;
    out->fd = -1;
}

weir_status weir__cuda_shared_malloc(void *device, weir_share_kind kind, size_t bytes,
                                     void **out)
{
    weir__cuda *self = device;
    weir_status status = kind == WEIR_SHARE_POOL ? fail_kind(self, kind)
                                                 : check_kind(self, kind);
    if (status != WEIR_OK)
        return status;
    return kind == WEIR_SHARE_FD ? weir__cuda_object_malloc(self, bytes, out)
                                 : block_malloc(self, bytes, out);
}

weir_status weir__cuda_shared_free(void *device, void *ptr)
{
    weir__cuda *self = device;
    weir__cuda_mapping found;
    return weir__cuda_mappings_take(self, ptr, false, &found)
               ? weir__cuda_object_end(self, &found)
               : weir__cuda_free(self, ptr);
}

weir_status weir__cuda_shared_find(void *device, const void *ptr, size_t bytes,
                                   void **base, weir__shared *out)
{
    weir__cuda *self = device;
    weir__cuda_mapping mapping;
    weir__cuda_block found = { .base = 0 };
    if (weir__cuda_mappings_find(self, ptr, bytes, &mapping)) {
        weir__cuda_tell(out, WEIR_SHARE_FD, mapping.bytes);
        *base = weir__cuda_pointer_to(mapping.address);
        return WEIR_OK;
    }
    weir_status status = WEIR_OK;
    if (self->has_ipc || weir__cuda_shares_pools(self))
        status = block_ask(self, ptr, &found);
    if (status != WEIR_OK)
        return status;
    size_t offset = weir__cuda_address_of(ptr) - found.base;
    if (found.base == 0 || offset >= found.bytes || bytes > found.bytes - offset)
        return weir__cuda_fail(self, WEIR_NOT_SUPPORTED, cudaErrorNotSupported,
                               "%zu bytes at %p are in no block of cuda:%d that can be "
                               "shared",
                               bytes, ptr, (int)self->ordinal);
    weir__cuda_tell(out, found.pool != NULL ? WEIR_SHARE_POOL : WEIR_SHARE_LEGACY,
                    found.bytes);
    *base = weir__cuda_pointer_to(found.base);
    return WEIR_OK;
}

static cudaError_t block_export(weir__cuda *self, void *base, weir__shared *out,
                                const char **call)
{
    weir__cuda_block found;
    cudaIpcMemHandle_t handle;
    cudaError_t error = block_find(self, base, &found, call);
    if (error == cudaSuccess && found.base != weir__cuda_address_of(base))
        error = WEIR__REFUSE(cudaErrorInvalidValue);
    if (error == cudaSuccess && found.pool != NULL)
        return weir__cuda_pool_export(&found, out, call);
    if (error == cudaSuccess)
        error = WEIR__ASK("cudaIpcGetMemHandle", cudaIpcGetMemHandle(&handle, base));
    if (error != cudaSuccess)
        return error;
    weir__cuda_tell(out, WEIR_SHARE_LEGACY, found.bytes);
    memcpy(out->octets, &handle, sizeof handle);
    return cudaSuccess;
}

weir_status weir__cuda_shared_export(void *device, void *base, weir__shared *out)
{
    weir__cuda *self = device;
    weir__cuda_mapping mapping;
    bool is_mapped = weir__cuda_mappings_find(self, base, 1, &mapping) &&
                     mapping.address == weir__cuda_address_of(base);
    if (is_mapped)
        return weir__cuda_object_export(self, &mapping, out);
    WEIR__CUDA_DO_STEPS(self, WEIR__CUDA_MEMORY, block_export(self, base, out, call));
}

weir_status weir__cuda_shared_open(void *device, const weir__shared *from, void **out)
{
    weir__cuda *self = device;
    weir_status status = check_kind(self, from->kind);
    if (status != WEIR_OK)
        return status;
    if (from->kind != WEIR_SHARE_LEGACY)
        return weir__cuda_object_open(self, from, out);
    WEIR__CUDA_DO_STEPS(self, WEIR__CUDA_OPEN, block_open(self, from, out, call));
}

weir_status weir__cuda_shared_close(void *device, void *ptr)
{
    weir__cuda *self = device;
    weir__cuda_mapping found;
    if (weir__cuda_mappings_take(self, ptr, true, &found))
        return weir__cuda_object_end(self, &found);
    WEIR__CUDA_DO_COLD(self, WEIR__CUDA_MEMORY, cudaIpcCloseMemHandle(ptr));
}

/* ---- primitives: events ---- */

static weir_status check_events(weir__cuda *self)
{
    if (self->has_ipc)
        return WEIR_OK;
    return weir__cuda_fail(self, WEIR_NOT_SUPPORTED, cudaErrorNotSupported,
                           "cuda:%d has no events that other processes can open",
                           (int)self->ordinal);
}

static cudaError_t event_make(weir_event *out, weir__shared_event *handle,
                              const char **call)
{
    const unsigned flags = cudaEventInterprocess | cudaEventDisableTiming;
    weir_event event;
    cudaIpcEventHandle_t octets;
    cudaError_t error = WEIR__ASK("cudaEventCreateWithFlags",
                                  cudaEventCreateWithFlags(&event, flags));
    if (error != cudaSuccess)
        return error;
    error = WEIR__ASK("cudaIpcGetEventHandle", cudaIpcGetEventHandle(&octets, event));
    if (error != cudaSuccess) {
        (void)cudaEventDestroy(event);
        return error;
    }
    *out = event;
    handle->fd = -1;
    memcpy(handle->octets, &octets, sizeof octets);
    return cudaSuccess;
}

weir_status weir__cuda_shared_event_create(void *device, weir_event *out,
                                           weir__shared_event *handle)
{
    weir__cuda *self = device;
    weir_status status = check_events(self);
    if (status != WEIR_OK)
        return status;
    WEIR__CUDA_DO_STEPS(self, WEIR__CUDA_WORK, event_make(out, handle, call));
}

weir_status weir__cuda_shared_event_open(void *device, const weir__shared_event *handle,
                                         weir_event *out)
{
    weir__cuda *self = device;
    cudaIpcEventHandle_t octets;
    weir_status status = check_events(self);
    if (status != WEIR_OK)
        return status;
    memcpy(&octets, handle->octets, sizeof octets);
    WEIR__CUDA_DO_COLD(self, WEIR__CUDA_OPEN, cudaIpcOpenEventHandle(out, octets));
}
