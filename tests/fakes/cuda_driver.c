/* cuda_driver.c - the driver's entry points that the stand-in provides, and the way the
 * runtime hands them out. */
#include <stdio.h>
#include <string.h>

#include "fakes/fakes_internal.h"

static int device_check(CUdevice device)
{
    return device >= 0 && device < fakes_device_count() ? CUDA_SUCCESS
                                                         : CUDA_ERROR_INVALID_DEVICE;
}

/* ---- devices ---- */

CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
    int error = fakes_begin(FAKES_cuDeviceGet);
    if (error == CUDA_SUCCESS)
        error = device_check(ordinal);
    if (error == CUDA_SUCCESS)
        *out = ordinal;
    return fakes_end_driver(error);
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    int error = fakes_begin(FAKES_cuDeviceGetName);
    if (error == CUDA_SUCCESS)
        error = device_check(device);
    if (error == CUDA_SUCCESS && length > 0)
        snprintf(name, (size_t)length, "stand-in GPU %d", device);
    return fakes_end_driver(error);
}

CUresult cuDeviceGetUuid(CUuuid *out, CUdevice device)
{
    int error = fakes_begin(FAKES_cuDeviceGetUuid);
    if (error == CUDA_SUCCESS)
        error = device_check(device);
    if (error == CUDA_SUCCESS) {
        memcpy(out->bytes, "weir stand-in  ", sizeof out->bytes);
        out->bytes[sizeof out->bytes - 1] = (char)device;
    }
    return fakes_end_driver(error);
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    int error = fakes_begin(FAKES_cuDeviceTotalMem);
    if (error == CUDA_SUCCESS)
        error = device_check(device);
    if (error == CUDA_SUCCESS)
        *bytes = fakes_memory_bytes(device);
    return fakes_end_driver(error);
}

CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute attribute, CUdevice device)
{
    const fakes_machine *machine = &fakes_the_machine;
    int error = fakes_begin(FAKES_cuDeviceGetAttribute);
    if (error == CUDA_SUCCESS)
        error = device_check(device);
    if (error != CUDA_SUCCESS)
        return fakes_end_driver(error);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *out = !machine->no_mapping;
        break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        *out = !machine->no_descriptors;
        break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        *out = !machine->no_rdma;
        break;
    default: fakes_not_provided("cuDeviceGetAttribute of this attribute");
    }
    return fakes_end_driver(CUDA_SUCCESS);
}

/* ---- contexts ---- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    fakes_context *context = NULL;
    int error = fakes_begin(FAKES_cuDevicePrimaryCtxRetain);
    if (error == CUDA_SUCCESS)
        error = device_check(device);
    if (error == CUDA_SUCCESS)
        error = fakes_retain(device, &context);
    if (error == CUDA_SUCCESS)
        *out = (CUcontext)(void *)context;
    return fakes_end_driver(error);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    int error = fakes_begin(FAKES_cuDevicePrimaryCtxRelease);
    if (error == CUDA_SUCCESS)
        error = device_check(device);
    if (error == CUDA_SUCCESS)
        error = fakes_release(device);
    return fakes_end_driver(error);
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long *out)
{
    int error = fakes_begin(FAKES_cuCtxGetId);
    fakes_context *context = fakes_context_of(handle);
    if (error == CUDA_SUCCESS && handle == NULL)
        fakes_not_provided("cuCtxGetId of the current context");
    if (error == CUDA_SUCCESS && context == NULL)
        error = CUDA_ERROR_INVALID_CONTEXT;
    if (error == CUDA_SUCCESS)
        *out = fakes_id_of(context);
    return fakes_end_driver(error);
}

CUresult cuCtxPushCurrent(CUcontext handle)
{
    int error = fakes_begin(FAKES_cuCtxPushCurrent);
    fakes_context *context = fakes_context_of(handle);
    if (error == CUDA_SUCCESS)
        error = context != NULL ? fakes_push(context) : CUDA_ERROR_INVALID_CONTEXT;
    return fakes_end_driver(error);
}

CUresult cuCtxPopCurrent(CUcontext *out)
{
    fakes_context *context = NULL;
    int error = fakes_begin(FAKES_cuCtxPopCurrent);
    if (error == CUDA_SUCCESS)
        error = fakes_pop(&context);
    if (error == CUDA_SUCCESS && out != NULL)
        *out = (CUcontext)(void *)context;
    return fakes_end_driver(error);
}

CUresult cuCtxGetCurrent(CUcontext *out)
{
    int error = fakes_begin(FAKES_cuCtxGetCurrent);
    if (error == CUDA_SUCCESS)
        *out = (CUcontext)(void *)fakes_current();
    return fakes_end_driver(error);
}

CUresult cuCtxSetCurrent(CUcontext handle)
{
    int error = fakes_begin(FAKES_cuCtxSetCurrent);
    fakes_context *context = fakes_context_of(handle);
    if (error == CUDA_SUCCESS && handle != NULL && context == NULL)
        error = CUDA_ERROR_INVALID_CONTEXT;
    if (error == CUDA_SUCCESS)
        fakes_set_current(context);
    return fakes_end_driver(error);
}

/* ---- peers ---- */

CUresult cuDeviceCanAccessPeer(int *out, CUdevice device, CUdevice peer)
{
    int error = fakes_begin(FAKES_cuDeviceCanAccessPeer);
    if (error == CUDA_SUCCESS)
        error = device_check(device);
    if (error == CUDA_SUCCESS)
        error = device_check(peer);
    if (error == CUDA_SUCCESS)
        *out = device != peer && !fakes_the_machine.no_peers;
    return fakes_end_driver(error);
}

static int peer_enable(fakes_context *context, fakes_context *peer)
{
    if (peer == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (peer == context)
        return CUDA_ERROR_INVALID_DEVICE;
    if (fakes_the_machine.no_peers)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    weir_status status = context->ops->enable_peer(context->device, peer->device);
    if (status != WEIR_OK)
        return fakes_error_of(context, status);
    return atomic_exchange(&context->peers[peer->ordinal], true)
               ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
               : CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags)
{
    int error = fakes_begin(FAKES_cuCtxEnablePeerAccess);
    fakes_context *context = fakes_current();
    if (error == CUDA_SUCCESS && flags != 0)
        error = CUDA_ERROR_INVALID_VALUE;
    if (error == CUDA_SUCCESS && context == NULL)
        error = CUDA_ERROR_INVALID_CONTEXT;
    if (error == CUDA_SUCCESS)
        error = atomic_load(&context->spoilt);
    if (error == CUDA_SUCCESS)
        error = peer_enable(context, fakes_context_of(handle));
    return fakes_end_driver(error);
}

/* ---- events ---- */

#if CUDA_VERSION >= 12050 /* in which it is new */
CUresult cuCtxRecordEvent(CUcontext handle, CUevent event)
{
    int error = fakes_begin(FAKES_cuCtxRecordEvent);
    fakes_context *context = fakes_context_of(handle);
    if (error == CUDA_SUCCESS && context == NULL)
        error = CUDA_ERROR_INVALID_CONTEXT;
    if (error == CUDA_SUCCESS)
        error = atomic_load(&context->spoilt);
    if (error == CUDA_SUCCESS)
        error = fakes_error_of(context, context->ops->event_record_all(context->device,
                                                                       event));
    return fakes_end_driver(error);
}
#endif

/* ---- handing them out ---- */

typedef void entry(void);

static const struct {
    const char *name;
    entry *function;
    int since; /* the version of CUDA; 0: older than what we are built with */
} entries[] = {
#define X(name) { #name, (entry *)(name), 0 }
    X(cuDeviceGet), X(cuDeviceGetName), X(cuDeviceGetUuid), X(cuDeviceTotalMem),
    X(cuDevicePrimaryCtxRetain), X(cuDevicePrimaryCtxRelease), X(cuCtxGetId),
    X(cuCtxPushCurrent),
    X(cuCtxPopCurrent), X(cuCtxGetCurrent), X(cuCtxSetCurrent),
    X(cuDeviceCanAccessPeer), X(cuCtxEnablePeerAccess),
    X(cuDeviceGetAttribute), X(cuPointerGetAttributes), X(cuMemGetAddressRange),
    X(cuMemGetAllocationGranularity), X(cuMemCreate), X(cuMemRelease),
    X(cuMemAddressReserve), X(cuMemAddressFree), X(cuMemMap), X(cuMemUnmap),
    X(cuMemSetAccess), X(cuMemExportToShareableHandle),
    X(cuMemImportFromShareableHandle), X(cuMemGetAllocationPropertiesFromHandle),
#if CUDA_VERSION >= 12050
    { "cuCtxRecordEvent", (entry *)cuCtxRecordEvent, 12050 },
#endif
#undef X
};

/* A driver knows nothing of a later version than its own. */
static int entry_find(const char *symbol, int version, void **out,
                      enum cudaDriverEntryPointQueryResult *result)
{
    if (symbol == NULL || out == NULL || version > fakes_driver_version())
        return cudaErrorInvalidValue;
    *out = NULL;
    const char *missing = fakes_the_machine.missing;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        if (strcmp(entries[i].name, symbol) == 0 && entries[i].since <= version &&
            (missing == NULL || strcmp(missing, symbol) != 0))
            memcpy(out, &entries[i].function, sizeof *out);
    }
    if (result != NULL)
        *result = *out != NULL ? cudaDriverEntryPointSuccess
                               : cudaDriverEntryPointSymbolNotFound;
    return *out != NULL || result != NULL ? cudaSuccess : cudaErrorSymbolNotFound;
}

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **out,
                                    unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *result)
{
    int error = fakes_begin(FAKES_cudaGetDriverEntryPoint);
    if (error == cudaSuccess && flags > cudaEnablePerThreadDefaultStream)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = entry_find(symbol, fakes_runtime_version(), out, result);
    return fakes_end(error);
}

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(
    const char *symbol, void **out, unsigned version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *result)
{
    int error = fakes_begin(FAKES_cudaGetDriverEntryPointByVersion);
    if (error == cudaSuccess && flags > cudaEnablePerThreadDefaultStream)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = entry_find(symbol, (int)version, out, result);
    return fakes_end(error);
}
#endif
