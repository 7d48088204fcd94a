/* dlpack_exchange.c - what DLPack's exchange table has that needs no Python: an
 * allocator over a device's current resource, and a thread's current stream.
 *
 * Memory of the host lies behind the tensor's own record: no device is needed for
 * it. */
#include <stdio.h>

#include "device/device.h"
#include "dlpack_internal.h"
#include "internal.h"
#include "weir/current.h"

/* The open device that a consumer calls so. */
static weir_status find_device(weir__dl_device place, weir_device **out)
{
    char name[sizeof (*out)->name];
    bool is_cuda = place.device_type == WEIR_DLPACK_CUDA;
    *out = NULL;
    if (!is_cuda && place.device_type != WEIR_DLPACK_EXT_DEV)
        return weir__fail(WEIR_NOT_SUPPORTED, "no device of Weir's has the type %d",
                          place.device_type);
    snprintf(name, sizeof name, "%s:%d", is_cuda ? "cuda" : "emulated",
             place.device_id);
    *out = weir__device_find(name);
    if (*out == NULL)
        return weir__fail(WEIR_NOT_FOUND, "device %s is not open", name);
    return WEIR_OK;
}

/* ---- the allocator ---- */

static weir_status allocate_host(const weir__array *array, const weir__span *span,
                                 weir_dlpack *out)
{
    weir__request it = { .array = *array,
                         .place = { WEIR_DLPACK_CPU, 0 },
                         .is_versioned = true,
                         .access = WEIR_WRITE };
    weir__export *self;
    weir_status status = weir__export_create(
        array, (size_t)span->bytes + WEIR__DLPACK_ALIGNMENT, &self);
    if (status != WEIR_OK)
        return status;
    void *first = weir__dlpack_align(self->dimensions + 2 * array->ndim);
    weir__export_fill(self, &it, span->count != 0 ? first : NULL, out);
    return WEIR_OK;
}

/* A buffer of the current resource's, on the current stream; it must be where it was
 * asked for. */
static weir_status draw(weir_device *device, size_t bytes, weir_buffer *out)
{
    weir_resource *mr;
    weir_dlpack_place place;
    *out = (weir_buffer){ .data = NULL };
    weir_status status = weir_current_resource(device, &mr);
    if (status != WEIR_OK)
        return status;
    status = weir_buffer_allocate(mr, weir_current_stream(device), bytes,
                                  WEIR__DLPACK_ALIGNMENT, out);
    weir_resource_unref(mr);
    if (status == WEIR_OK)
        status = weir_dlpack_device(out, &place);
    if (status == WEIR_OK && place.type != weir__dlpack_type(device))
        status = weir__fail(WEIR_NOT_SUPPORTED, "the current resource has memory of "
                            "type %d, not the device's own", place.type);
    return status;
}

static weir_status allocate_device(weir_device *device, const weir_tensor *tensor,
                                   size_t bytes, weir_dlpack *out)
{
    static const uint32_t version[] = { WEIR__DL_MAJOR, WEIR__DL_MINOR };
    weir_buffer buffer;
    weir_status status = draw(device, bytes, &buffer);
    if (status == WEIR_OK) {
        int64_t stream = (int64_t)(uintptr_t)weir__stream_of(buffer.stream);
        weir_dlpack_request request = WEIR_DLPACK_REQUEST_INIT;
        request.max_version = version;
        request.stream = &stream;
        status = weir_dlpack_export(&buffer, tensor, &request, out);
    }
    weir_buffer_reset(&buffer);
    return status;
}

static weir_status allocate(const weir__dl_tensor *prototype, weir_dlpack *out)
{
    weir_device *device;
    weir__span span;
    weir__array array = { prototype->dtype, prototype->ndim, prototype->shape, NULL };
    weir_tensor tensor = {
        .dtype = { array.dtype.code, array.dtype.bits, array.dtype.lanes },
        .ndim = array.ndim,
        .shape = array.shape,
    };
    weir_status status = weir__dtype_check(array.dtype, false);
    if (status == WEIR_OK)
        status = weir__array_measure(&array, &span);
    if (status == WEIR_OK && prototype->device.device_type == WEIR_DLPACK_CPU)
        return allocate_host(&array, &span, out);
    if (status == WEIR_OK)
        status = find_device(prototype->device, &device);
    if (status != WEIR_OK)
        return status;
    status = allocate_device(device, &tensor, (size_t)span.bytes, out);
    weir_device_unref(device);
    return status;
}

/* Python's name for what went wrong. */
static const char *kind_of_error(weir_status status)
{
    switch (status) {
    case WEIR_OUT_OF_MEMORY:
    case WEIR_LIMIT_REACHED:
    case WEIR_OUT_OF_HOST_MEMORY: return "MemoryError";
    case WEIR_INVALID_ARGUMENT: return "ValueError";
    case WEIR_NOT_SUPPORTED: return "BufferError";
    default: return "RuntimeError";
    }
}

int weir_dlpack_allocate(void *prototype, struct DLManagedTensorVersioned **out,
                         void *error_context,
                         void (*set_error)(void *error_context, const char *kind,
                                           const char *message))
{
    weir_dlpack made = { NULL, NULL };
    weir_status status = weir__enter();
    if (status == WEIR_OK && (prototype == NULL || out == NULL))
        status = weir__fail(WEIR_INVALID_ARGUMENT, "%s is null",
                            prototype == NULL ? "the prototype" : "out");
    if (status == WEIR_OK)
        status = allocate(prototype, &made);
    if (out != NULL)
        *out = made.versioned;
    if (status != WEIR_OK && set_error != NULL)
        set_error(error_context, kind_of_error(status), weir_last_error().message);
    return status == WEIR_OK ? 0 : -1;
}

/* ---- the current stream ---- */

int weir_dlpack_current_work_stream(int32_t device_type, int32_t device_id,
                                    void **out_stream)
{
    weir_device *device;
    if (out_stream != NULL)
        *out_stream = NULL;
    weir_status status = weir__enter();
    if (status == WEIR_OK && out_stream == NULL)
        status = weir__fail(WEIR_INVALID_ARGUMENT, "out_stream is null");
    if (status != WEIR_OK)
        return -1;
    if (device_type == WEIR_DLPACK_CPU || device_type == WEIR_DLPACK_CUDA_HOST)
        return 0;
    if (device_type == WEIR_DLPACK_CUDA_MANAGED)
        device_type = WEIR_DLPACK_CUDA;
    if (find_device((weir__dl_device){ device_type, device_id }, &device) != WEIR_OK)
        return -1;
    *out_stream = weir_current_stream(device);
    weir_device_unref(device);
    return 0;
}
