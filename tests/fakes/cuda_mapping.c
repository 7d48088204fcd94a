/* cuda_mapping.c - of the driver: memory that the program maps itself.
 *
 * What stands behind a handle is memory that the emulated device shares, which has its
 * address from the beginning. So a range of addresses is the one that the thread's last
 * object has, if that is long enough. Each of the three has its own end; after the last
 * the emulated device's memory goes. Otherwise it is a range of the emulated device's,
 * and what is mapped to it gives up the memory that it had for some of the range's:
 * until then nothing was in it. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fakes/fakes_internal.h"

typedef struct object {
    struct object *next;
    fakes_context *context;
    unsigned char *base;   /* null: a range, and no object */
    void *addresses;       /* where base is null */
    bool is_in_range;      /* mapped to one; its memory ends with the mapping */
    size_t bytes;
    bool is_opened;        /* imported */
    bool has_rdma;
    bool is_released;      /* its handle */
    size_t reserved_bytes; /* 0: the range is nobody's */
    size_t mapped_bytes;   /* 0: not mapped */
    uint32_t access;       /* a bit for each device that may reach what is mapped */
} object;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by the lock, as what is written of them; each is used by one thread at a
 * time, and looked at by all. */
static object *objects;
static _Thread_local const object *latest; /* compared only */

/* ---- records ---- */

static void object_add(object *made)
{
    pthread_mutex_lock(&lock);
    made->next = objects;
    objects = made;
    pthread_mutex_unlock(&lock);
}

static void object_set_released(object *self, bool is_released)
{
    pthread_mutex_lock(&lock);
    self->is_released = is_released;
    pthread_mutex_unlock(&lock);
}

static void object_set_range(object *self, size_t reserved_bytes, size_t mapped_bytes,
                             uint32_t access)
{
    pthread_mutex_lock(&lock);
    self->reserved_bytes = reserved_bytes;
    self->mapped_bytes = mapped_bytes;
    self->access = access;
    pthread_mutex_unlock(&lock);
}

static void object_remove(object *gone)
{
    pthread_mutex_lock(&lock);
    object **link = &objects;
    while (*link != gone)
        link = &(*link)->next;
    *link = gone->next;
    pthread_mutex_unlock(&lock);
    free(gone);
}

static CUmemGenericAllocationHandle handle_of(const object *self)
{
    return (CUmemGenericAllocationHandle)(uintptr_t)self;
}

/* The object whose handle that is; null: none. */
static object *object_of(CUmemGenericAllocationHandle handle)
{
    pthread_mutex_lock(&lock);
    object *each = objects;
    while (each != NULL && (handle_of(each) != handle || each->base == NULL ||
                            each->is_released))
        each = each->next;
    pthread_mutex_unlock(&lock);
    return each;
}

static uintptr_t first_of(const object *self)
{
    return (uintptr_t)(self->base != NULL ? self->base : self->addresses);
}

/* The one whose range, which is reserved, has that address; before the range itself
 * what is mapped to it. Null: none. */
static object *object_at(CUdeviceptr address)
{
    object *found = NULL;
    pthread_mutex_lock(&lock);
    for (object *each = objects; each != NULL; each = each->next) {
        bool is_it = address - first_of(each) < each->reserved_bytes;
        if (is_it && (found == NULL || found->base == NULL))
            found = each;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Ends it, once nobody has anything of it. */
static int object_end(object *self)
{
    if (!self->is_released || self->reserved_bytes != 0 || self->mapped_bytes != 0)
        return CUDA_SUCCESS;
    const weir__device_ops *ops = self->context->ops;
    weir_status status = WEIR_OK;
    if (self->base == NULL)
        status = ops->range_release(self->context->device, self->addresses,
                                    self->bytes);
    else if (self->is_in_range)
        status = WEIR_OK; /* gone with its mapping */
    else if (self->is_opened)
        status = ops->shared_close(self->context->device, self->base);
    else
        status = ops->shared_free(self->context->device, self->base);
    int error = fakes_error_of(self->context, status);
    if (error == CUDA_SUCCESS)
        object_remove(self);
    return error;
}

void fakes_forget_objects(const fakes_context *context)
{
    pthread_mutex_lock(&lock);
    for (object **link = &objects; *link != NULL;) {
        object *each = *link;
        if (each->context != context) {
            link = &each->next;
            continue;
        }
        *link = each->next;
        free(each);
    }
    pthread_mutex_unlock(&lock);
}

static size_t common_to(uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes)
{
    uintptr_t from = a > b ? a : b;
    uintptr_t to = a + a_bytes < b + b_bytes ? a + a_bytes : b + b_bytes;
    return from < to ? to - from : 0;
}

int fakes_check_access(const fakes_context *context, const void *ptr, size_t bytes)
{
    int error = cudaSuccess;
    pthread_mutex_lock(&lock);
    for (const object *each = objects; each != NULL; each = each->next) {
        uintptr_t first = first_of(each), asked = (uintptr_t)ptr;
        size_t meets = common_to(first, each->bytes, asked, bytes);
        bool may = (each->access >> context->ordinal & 1) != 0;
        if (each->base == NULL) /* the device knows what is mapped there */
            continue;
        if (meets != (may ? common_to(first, each->mapped_bytes, asked, bytes) : 0))
            error = cudaErrorInvalidValue;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

/* ---- objects ---- */

/* Every one of these works in the current context. */
static int begin_in(fakes_call call, fakes_context **out)
{
    int error = fakes_begin(call);
    *out = fakes_current();
    if (error == CUDA_SUCCESS && *out == NULL)
        error = CUDA_ERROR_INVALID_CONTEXT;
    if (error == CUDA_SUCCESS)
        error = atomic_load(&(*out)->spoilt);
    if (error == CUDA_SUCCESS && fakes_the_machine.no_mapping)
        error = CUDA_ERROR_NOT_SUPPORTED;
    return error != CUDA_SUCCESS ? error : fakes_refuse_unsafe();
}

static int properties_check(const fakes_context *context,
                            const CUmemAllocationProp *properties)
{
    if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        properties->win32HandleMetaData != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->location.id != context->ordinal ||
        properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        fakes_not_provided("memory of another device, or without file descriptors");
    if (fakes_the_machine.no_descriptors ||
        (fakes_the_machine.no_rdma && properties->allocFlags.gpuDirectRDMACapable))
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *out,
                                       const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option)
{
    fakes_context *context;
    int error = begin_in(FAKES_cuMemGetAllocationGranularity, &context);
    if (error == CUDA_SUCCESS)
        error = properties_check(context, properties);
    bool best = option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    if (error == CUDA_SUCCESS)
        *out = best && fakes_the_machine.granule != 0 ? fakes_the_machine.granule
                                                      : FAKES_GRANULE;
    return fakes_end_driver(error);
}

static int object_create(fakes_context *context, size_t bytes,
                         const CUmemAllocationProp *properties,
                         CUmemGenericAllocationHandle *out)
{
    void *base;
    object *made = malloc(sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    weir_status status = context->ops->shared_malloc(context->device, WEIR_SHARE_FD,
                                                     bytes, &base);
    if (status != WEIR_OK) {
        free(made);
        return fakes_error_of(context, status);
    }
    *made = (object){ .context = context, .base = base, .bytes = bytes,
                      .has_rdma = properties->allocFlags.gpuDirectRDMACapable != 0 };
    object_add(made);
    latest = made;
    *out = handle_of(made);
    atomic_fetch_add(&fakes_count.objects, 1);
    atomic_fetch_add(&fakes_count.rdma_objects, made->has_rdma);
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    fakes_context *context;
    int error = begin_in(FAKES_cuMemCreate, &context);
    if (error == CUDA_SUCCESS)
        error = properties_check(context, properties);
    if (error == CUDA_SUCCESS &&
        (bytes == 0 || bytes % FAKES_GRANULE != 0 || flags != 0))
        error = CUDA_ERROR_INVALID_VALUE;
    if (error == CUDA_SUCCESS)
        error = object_create(context, bytes, properties, out);
    return fakes_end_driver(error);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    fakes_context *context;
    int error = begin_in(FAKES_cuMemRelease, &context);
    object *self = object_of(handle);
    if (error == CUDA_SUCCESS && self == NULL)
        error = CUDA_ERROR_INVALID_VALUE;
    if (error == CUDA_SUCCESS) {
        object_set_released(self, true);
        error = object_end(self);
        if (error != CUDA_SUCCESS)
            object_set_released(self, false);
    }
    return fakes_end_driver(fakes_gave_back(&fakes_count.objects, error));
}

/* ---- in other processes ---- */

/* The driver does not say that its descriptors are closed on exec. */
CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type,
                                      unsigned long long flags)
{
    fakes_context *context;
    weir__shared made;
    int error = begin_in(FAKES_cuMemExportToShareableHandle, &context);
    const object *self = object_of(handle);
    if (error == CUDA_SUCCESS &&
        (self == NULL || self->is_opened || flags != 0 ||
         type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        error = CUDA_ERROR_INVALID_VALUE;
    if (error == CUDA_SUCCESS)
        error = fakes_error_of(context, self->context->ops->shared_export(
                                            self->context->device, self->base, &made));
    if (error == CUDA_SUCCESS) {
        (void)fcntl(made.fd, F_SETFD, 0);
        memcpy(out, &made.fd, sizeof made.fd);
    }
    return fakes_end_driver(error);
}

/* As long as it is. */
static int object_import(fakes_context *context, int fd,
                         CUmemGenericAllocationHandle *out)
{
    struct stat about;
    void *base;
    if (fstat(fd, &about) != 0 || about.st_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    weir__shared from = { .kind = WEIR_SHARE_FD, .bytes = (size_t)about.st_size,
                          .fd = fd };
    object *made = malloc(sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    weir_status status = context->ops->shared_open(context->device, &from, &base);
    if (status != WEIR_OK) {
        free(made);
        return status == WEIR_INVALID_ARGUMENT ? CUDA_ERROR_INVALID_VALUE
                                               : fakes_error_of(context, status);
    }
    *made = (object){ .context = context, .base = base, .bytes = from.bytes,
                      .is_opened = true };
    object_add(made);
    latest = made;
    *out = handle_of(made);
    atomic_fetch_add(&fakes_count.objects, 1);
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *handle,
                                        CUmemAllocationHandleType type)
{
    fakes_context *context;
    int error = begin_in(FAKES_cuMemImportFromShareableHandle, &context);
    if (error == CUDA_SUCCESS && type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        error = CUDA_ERROR_INVALID_VALUE;
    if (error == CUDA_SUCCESS && fakes_the_machine.no_descriptors)
        error = CUDA_ERROR_NOT_SUPPORTED;
    if (error == CUDA_SUCCESS)
        error = object_import(context, (int)(uintptr_t)handle, out);
    return fakes_end_driver(error);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out,
                                                CUmemGenericAllocationHandle handle)
{
    fakes_context *context;
    int error = begin_in(FAKES_cuMemGetAllocationPropertiesFromHandle, &context);
    const object *self = object_of(handle);
    if (error == CUDA_SUCCESS && self == NULL)
        error = CUDA_ERROR_INVALID_VALUE;
    if (error == CUDA_SUCCESS) {
        memset(out, 0, sizeof *out);
        out->type = CU_MEM_ALLOCATION_TYPE_PINNED;
        out->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        out->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        out->location.id = fakes_the_machine.imports_elsewhere && self->is_opened
                               ? self->context->ordinal + 1
                               : self->context->ordinal;
        out->allocFlags.gpuDirectRDMACapable = self->has_rdma;
    }
    return fakes_end_driver(error);
}

/* ---- addresses ---- */

static bool is_whole(uintptr_t bytes)
{
    return bytes != 0 && bytes % FAKES_GRANULE == 0;
}

static int addresses_add(fakes_context *context, size_t bytes, CUdeviceptr *out)
{
    void *addresses;
    object *made = malloc(sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    weir_status status = context->ops->range_reserve(context->device, bytes,
                                                     &addresses);
    if (status != WEIR_OK) {
        free(made);
        return fakes_error_of(context, status);
    }
    *made = (object){ .context = context, .addresses = addresses, .bytes = bytes,
                      .is_released = true, .reserved_bytes = bytes };
    object_add(made);
    *out = (CUdeviceptr)(uintptr_t)addresses;
    return CUDA_SUCCESS;
}

static int addresses_take(fakes_context *context, size_t bytes, CUdeviceptr *out)
{
    object *self = object_of((CUmemGenericAllocationHandle)(uintptr_t)latest);
    if (self == NULL || self->context != context || self->reserved_bytes != 0 ||
        self->bytes < bytes)
        return addresses_add(context, bytes, out);
    object_set_range(self, bytes, 0, 0);
    *out = (CUdeviceptr)(uintptr_t)self->base;
    return CUDA_SUCCESS;
}

/* Those of larger granules than the emulated device's may not be so aligned. */
CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment,
                             CUdeviceptr hint, unsigned long long flags)
{
    fakes_context *context;
    int error = begin_in(FAKES_cuMemAddressReserve, &context);
    if (error == CUDA_SUCCESS && (bytes == 0 || bytes % 4096 != 0 || flags != 0 ||
                                  (alignment & (alignment - 1)) != 0))
        error = CUDA_ERROR_INVALID_VALUE;
    if (error == CUDA_SUCCESS && hint != 0)
        fakes_not_provided("cuMemAddressReserve with a hint");
    if (error == CUDA_SUCCESS)
        error = addresses_take(context, bytes, out);
    if (error == CUDA_SUCCESS)
        atomic_fetch_add(&fakes_count.addresses, 1);
    return fakes_end_driver(error);
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    fakes_context *context;
    int error = begin_in(FAKES_cuMemAddressFree, &context);
    object *self = object_at(address);
    if (error == CUDA_SUCCESS && (self == NULL || first_of(self) != address ||
                                  self->reserved_bytes != bytes ||
                                  self->mapped_bytes != 0))
        error = CUDA_ERROR_INVALID_VALUE;
    if (error == CUDA_SUCCESS) {
        object_set_range(self, 0, 0, 0);
        error = object_end(self);
        if (error != CUDA_SUCCESS)
            object_set_range(self, bytes, 0, 0);
    }
    return fakes_end_driver(fakes_gave_back(&fakes_count.addresses, error));
}

/* ---- mappings ---- */

/* Gives up the object's own memory for as much at `address`, which is in a range.
 * Where it gets neither that nor its own back, a handle is left without memory. */
static int map_to_range(object *self, CUdeviceptr address)
{
    const weir__device_ops *ops = self->context->ops;
    void *device = self->context->device, *base = self->base;
    weir_status status = ops->shared_free(device, self->base);
    if (status != WEIR_OK)
        return fakes_error_of(self->context, status);
    status = ops->range_map(device, (void *)(uintptr_t)address, self->bytes);
    bool is_lost = status != WEIR_OK &&
                   ops->shared_malloc(device, WEIR_SHARE_FD, self->bytes, &base) !=
                       WEIR_OK;
    pthread_mutex_lock(&lock);
    self->base = status == WEIR_OK ? (void *)(uintptr_t)address : base;
    self->is_in_range = status == WEIR_OK || is_lost;
    if (is_lost)
        self->bytes = 0;
    pthread_mutex_unlock(&lock);
    return fakes_error_of(self->context, status);
}

/* `self` is mapped to a range no more. */
static int unmap_from_range(object *self)
{
    weir_status status = self->context->ops->range_unmap(self->context->device,
                                                         self->base, self->bytes);
    if (status != WEIR_OK)
        return fakes_error_of(self->context, status);
    pthread_mutex_lock(&lock);
    self->bytes = 0;
    pthread_mutex_unlock(&lock);
    object_set_range(self, 0, 0, 0);
    return object_end(self);
}

/* Whether all of the bytes are in what is reserved, from its beginning unless that is a
 * range of the device's. */
static bool may_map(const object *range, CUdeviceptr address, size_t bytes)
{
    size_t in_front = address - first_of(range);
    return range->mapped_bytes == 0 && bytes <= range->reserved_bytes &&
           (range->base == NULL ? in_front <= range->reserved_bytes - bytes
                                : in_front == 0);
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    fakes_context *context;
    int error = begin_in(FAKES_cuMemMap, &context);
    object *self = object_of(handle);
    const object *range = object_at(address);
    if (error == CUDA_SUCCESS &&
        (self == NULL || range == NULL || offset != 0 || flags != 0 ||
         !is_whole(bytes) || !is_whole(address) || !may_map(range, address, bytes)))
        error = CUDA_ERROR_INVALID_VALUE;
    if (error == CUDA_SUCCESS && bytes > self->bytes)
        error = CUDA_ERROR_NOT_SUPPORTED; /* as driver 580.159 answers on an H100 */
    if (error == CUDA_SUCCESS && range != self &&
        (range->base != NULL || bytes != self->bytes || self->is_opened))
        fakes_not_provided("cuMemMap to what another object has");
    if (error == CUDA_SUCCESS && range != self)
        error = map_to_range(self, address);
    if (error == CUDA_SUCCESS) {
        object_set_range(self, range != self ? bytes : self->reserved_bytes, bytes, 0);
        atomic_fetch_add(&fakes_count.mappings, 1);
    }
    return fakes_end_driver(error);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    fakes_context *context;
    int error = begin_in(FAKES_cuMemUnmap, &context);
    object *self = object_at(address);
    if (error == CUDA_SUCCESS &&
        (self == NULL || first_of(self) != address || bytes == 0 ||
         self->mapped_bytes != bytes))
        error = CUDA_ERROR_INVALID_VALUE;
    if (error == CUDA_SUCCESS && self->is_in_range)
        error = unmap_from_range(self);
    else if (error == CUDA_SUCCESS)
        object_set_range(self, self->reserved_bytes, 0, 0);
    return fakes_end_driver(fakes_gave_back(&fakes_count.mappings, error));
}

/* Of the context's own device, or one that can reach it. */
static int access_check(const fakes_context *context, const CUmemAccessDesc *one)
{
    if (one->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        one->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        fakes_not_provided("cuMemSetAccess of this kind");
    if (one->location.id < 0 || one->location.id >= fakes_device_count())
        return CUDA_ERROR_INVALID_DEVICE;
    if (one->location.id != context->ordinal && fakes_the_machine.no_peers)
        return CUDA_ERROR_INVALID_DEVICE;
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *list,
                        size_t count)
{
    fakes_context *context;
    uint32_t access = 0;
    int error = begin_in(FAKES_cuMemSetAccess, &context);
    object *self = object_at(address);
    if (error == CUDA_SUCCESS && (self == NULL || first_of(self) != address ||
                                  self->mapped_bytes != bytes || count == 0))
        error = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; error == CUDA_SUCCESS && i < count; i++) {
        error = access_check(self->context, &list[i]);
        if (error == CUDA_SUCCESS)
            access |= UINT32_C(1) << list[i].location.id;
    }
    if (error == CUDA_SUCCESS)
        object_set_range(self, self->reserved_bytes, bytes, self->access | access);
    return fakes_end_driver(error);
}
