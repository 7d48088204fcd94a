/* cudart_device.c - of the runtime: versions, errors, devices and their attributes. */
#include "fakes/fakes_internal.h"

/* ---- versions and errors ---- */

cudaError_t cudaDriverGetVersion(int *version)
{
    int error = fakes_begin(FAKES_cudaDriverGetVersion);
    if (error == cudaSuccess && version == NULL)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        *version = fakes_driver_version();
    return fakes_end(error);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    int error = fakes_begin(FAKES_cudaRuntimeGetVersion);
    if (error == cudaSuccess && version == NULL)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        *version = fakes_runtime_version();
    return fakes_end(error);
}

/* The names of all errors, as the header has them. */
static const char *name_of(cudaError_t error)
{
    static const struct {
        int error;
        const char *name;
    } names[] = {
#define X(name) { name, #name },
#include "fakes_errors.h"
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].error == (int)error)
            return names[i].name;
    }
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error)
{
    (void)fakes_begin(FAKES_cudaGetErrorName);
    (void)fakes_end_driver(cudaSuccess);
    return name_of(error);
}

const char *cudaGetErrorString(cudaError_t error)
{
    (void)fakes_begin(FAKES_cudaGetErrorString);
    (void)fakes_end_driver(cudaSuccess);
    return error == cudaSuccess ? "no error" : "as the stand-in was told";
}

cudaError_t cudaGetLastError(void)
{
    (void)fakes_begin(FAKES_cudaGetLastError);
    int error = fakes_last_error(true);
    (void)fakes_end_driver(cudaSuccess);
    return (cudaError_t)error;
}

cudaError_t cudaPeekAtLastError(void)
{
    (void)fakes_begin(FAKES_cudaPeekAtLastError);
    int error = fakes_last_error(false);
    (void)fakes_end_driver(cudaSuccess);
    return (cudaError_t)error;
}

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    int error = fakes_begin(FAKES_cudaGetDeviceCount);
    if (error == cudaSuccess && count == NULL)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        *count = fakes_device_count();
        error = *count == 0 ? cudaErrorNoDevice : cudaSuccess;
    }
    return fakes_end(error);
}

/* CUDA 12.0 has the number of the second, and not yet the name. */
#define HANDLES ((int)cudaMemHandleTypePosixFileDescriptor | 8)

static int attribute_of(enum cudaDeviceAttr attribute, int *out)
{
    switch (attribute) {
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrHostRegisterSupported: *out = 1; break;
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
        *out = !fakes_the_machine.no_registered;
        break;
    case cudaDevAttrPageableMemoryAccess: *out = !fakes_the_machine.no_pageable; break;
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
        *out = !fakes_the_machine.no_managed;
        break;
    case cudaDevAttrMemoryPoolsSupported: *out = !fakes_the_machine.no_pools; break;
    case cudaDevAttrMemoryPoolSupportedHandleTypes:
        *out = fakes_the_machine.no_pools || fakes_the_machine.no_handles ? 0 : HANDLES;
        break;
#if CUDART_VERSION >= 13000
    case cudaDevAttrHostMemoryPoolsSupported:
    case cudaDevAttrHostNumaMemoryPoolsSupported:
        *out = !fakes_the_machine.no_pools && !fakes_the_machine.no_host_pools;
        break;
#endif
    case cudaDevAttrIpcEventSupport: *out = !fakes_the_machine.no_ipc; break;
    case cudaDevAttrComputeCapabilityMajor: *out = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *out = 0; break;
    default: fakes_not_provided("cudaDeviceGetAttribute of this attribute");
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr attribute, int device)
{
    int error = fakes_begin(FAKES_cudaDeviceGetAttribute);
    if (error == cudaSuccess && out == NULL)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess && (device < 0 || device >= fakes_device_count()))
        error = cudaErrorInvalidDevice;
    if (error == cudaSuccess)
        error = attribute_of(attribute, out);
    return fakes_end(error);
}

cudaError_t cudaGetDevice(int *out)
{
    int error = fakes_begin(FAKES_cudaGetDevice);
    if (error == cudaSuccess && out == NULL)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        *out = fakes_thread_device();
    return fakes_end(error);
}

/* Since CUDA 12 this makes the device's primary context, and the thread's current. */
cudaError_t cudaSetDevice(int device)
{
    fakes_context *context;
    int error = fakes_begin(FAKES_cudaSetDevice);
    if (error == cudaSuccess) {
        atomic_fetch_add(&fakes_count.set_devices, 1);
        if (device < 0 || device >= fakes_device_count())
            error = cudaErrorInvalidDevice;
    }
    if (error == cudaSuccess)
        error = fakes_retain_implicitly(device, &context);
    if (error == cudaSuccess) {
        fakes_set_thread_device(device);
        fakes_set_current(context);
    }
    return fakes_end(error);
}

/* Of the thread's device. Its context stays current, and is made anew by the next call
 * of the runtime in it. */
cudaError_t cudaDeviceReset(void)
{
    int error = fakes_begin(FAKES_cudaDeviceReset);
    if (error == cudaSuccess && fakes_device_count() == 0)
        error = cudaErrorNoDevice;
    if (error == cudaSuccess)
        fakes_reset_context(fakes_thread_device());
    return fakes_end(error);
}

cudaError_t cudaDeviceSynchronize(void)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaDeviceSynchronize, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess)
        error = fakes_error_of(context, context->ops->device_sync(context->device));
    return fakes_end(error);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaMemGetInfo, &context);
    if (error == cudaSuccess && (free_bytes == NULL || total_bytes == NULL))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = fakes_error_of(context, context->ops->memory_info(
                                            context->device, free_bytes, total_bytes));
    return fakes_end(error);
}
