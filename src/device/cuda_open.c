/* cuda_open.c - finds the driver and a device, and holds on to its primary context.
 *
 * Nothing here makes a context but cuDevicePrimaryCtxRetain, and that only for the
 * device that was asked for; the context is the one that the runtime uses too, so
 * everything in the process that uses the device shares it. Each open device holds it;
 * and the first that was used leaves its hold when it is closed, for whoever lets go of
 * the last resets the context, and ends the work there (cuDevicePrimaryCtxRelease). */
#include <stdio.h>
#include <string.h>

#include "device/cuda_module.h"
#include "weir/version.h"

/* Entry points are asked for as of this version of CUDA, which all of them have, */
#define DRIVER_VERSION 12000
/* but for cuCtxRecordEvent. */
#define RECORD_ALL_VERSION 12050

static int major_of(int version)
{
    return version / 1000;
}

static int minor_of(int version)
{
    return version % 1000 / 10;
}

/* Of drivers that serve the runtime, which is of that version. Any of its major version
 * does; but before CUDA 12.5 the runtime asks for entry points as of its own version
 * only, and a driver of an earlier one refuses each. */
static int oldest_driver(int runtime)
{
#if CUDART_VERSION >= 12050
    return runtime - runtime % 1000;
#else
    return runtime;
#endif
}

/* Asks the runtime for what can be known without a device. */
static weir_status check_driver(weir__cuda *self)
{
    int runtime = 0;
    weir_status status = weir__cuda_judge(self, WEIR__CUDA_WORK,
                                          cudaDriverGetVersion(&self->driver_version),
                                          "cudaDriverGetVersion");
    const int driver = self->driver_version;
    if (status == WEIR_OK)
        status = weir__cuda_judge(self, WEIR__CUDA_WORK,
                                  cudaRuntimeGetVersion(&runtime),
                                  "cudaRuntimeGetVersion");
    if (status != WEIR_OK)
        return status;
    if (driver == 0)
        return weir__cuda_fail(self, WEIR_NOT_SUPPORTED, cudaErrorInsufficientDriver,
                               "no NVIDIA driver is installed here");
    if (driver < oldest_driver(runtime))
        return weir__cuda_fail(self, WEIR_NOT_SUPPORTED, cudaErrorInsufficientDriver,
                               "the NVIDIA driver here is for CUDA %d.%d, and Weir's "
                               "module is built with CUDA %d.%d: it needs a newer one",
                               major_of(driver), minor_of(driver), major_of(runtime),
                               minor_of(runtime));
    return WEIR_OK;
}

static weir_status check_ordinal(weir__cuda *self)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorNoDevice) {
        (void)cudaGetLastError();
        error = cudaSuccess;
        count = 0;
    }
    weir_status status = weir__cuda_judge(self, WEIR__CUDA_WORK, error,
                                          "cudaGetDeviceCount");
    if (status != WEIR_OK || self->ordinal < count)
        return status;
    return weir__cuda_fail(self, WEIR_NOT_SUPPORTED, cudaErrorNoDevice,
                           "there is no cuda:%d: the driver shows %d CUDA devices",
                           (int)self->ordinal, count);
}

/* *out is null where the driver has no such function. A version that is later than the
 * driver's is an error. */
static cudaError_t entry_point(const char *symbol, unsigned version, void **out)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    *out = NULL;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion(symbol, out, version,
                                                         cudaEnableDefault, &found);
#else
    (void)version; /* the runtime's own */
    cudaError_t error = cudaGetDriverEntryPoint(symbol, out, cudaEnableDefault, &found);
#endif
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess)
        *out = NULL;
    return error;
}

static weir_status find_record_all(weir__cuda *self)
{
    void *found;
    if (self->driver_version < RECORD_ALL_VERSION)
        return WEIR_OK; /* it has none */
    cudaError_t error = entry_point("cuCtxRecordEvent", RECORD_ALL_VERSION, &found);
    memcpy(&self->record_all, &found, sizeof found);
    return weir__cuda_judge(self, WEIR__CUDA_WORK, error, "cuCtxRecordEvent");
}

static weir_status find_entry_points(weir__cuda *self)
{
    const struct {
        const char *symbol;
        void *where;
    } wanted[] = {
#define X(name, symbol, arguments) { symbol, &self->driver.name },
        WEIR__DRIVER_MAP(X)
#undef X
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found;
        cudaError_t error = entry_point(wanted[i].symbol, DRIVER_VERSION, &found);
        if (error == cudaSuccess && found == NULL)
            error = cudaErrorCallRequiresNewerDriver;
        weir_status status = weir__cuda_judge(self, WEIR__CUDA_WORK, error,
                                              wanted[i].symbol);
        if (status != WEIR_OK)
            return status;
        memcpy(wanted[i].where, &found, sizeof found); /* a function, which C forbids */
    }
    return find_record_all(self);
}

static weir_status ask_attribute(weir__cuda *self, enum cudaDeviceAttr attribute,
                                 int *out)
{
    *out = 0;
    return weir__cuda_judge(self, WEIR__CUDA_WORK,
                            cudaDeviceGetAttribute(out, attribute, (int)self->ordinal),
                            "cudaDeviceGetAttribute");
}

/* A driver that lacks a kind of pool answers as if what it was asked were wrong. */
static weir_status ask_what_it_has(weir__cuda *self)
{
    const struct {
        enum cudaDeviceAttr attribute;
        bool *out;
    } wanted[] = {
        { cudaDevAttrPageableMemoryAccess, &self->reaches_pageable },
        { cudaDevAttrConcurrentManagedAccess, &self->moves_managed },
        { cudaDevAttrCanUseHostPointerForRegisteredMem, &self->reaches_registered },
        { cudaDevAttrMemoryPoolsSupported, &self->has_pools },
        { cudaDevAttrIpcEventSupport, &self->has_ipc }, /* and so memory's */
#if CUDART_VERSION >= 13000
        { cudaDevAttrHostMemoryPoolsSupported, &self->has_host_pools },
        { cudaDevAttrHostNumaMemoryPoolsSupported, &self->has_numa_pools },
#endif
    };
    int value = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        weir_status status = ask_attribute(self, wanted[i].attribute, &value);
        if (status != WEIR_OK)
            return status;
        *wanted[i].out = value != 0;
    }
#if CUDART_VERSION >= 13000
    self->has_managed_pools = self->moves_managed;
#endif
    weir_status status = ask_attribute(self, cudaDevAttrMemoryPoolSupportedHandleTypes,
                                       &value);
    self->pool_handles = (uint32_t)value;
    return status;
}

static weir_status describe(weir__cuda *self)
{
    char name[80] = "";
    int major = 0, minor = 0;
    CUuuid uuid;
    weir_status status = weir__cuda_judge_driver(
        self, self->driver.device_name(name, (int)sizeof name, self->device),
        "cuDeviceGetName");
    if (status == WEIR_OK)
        status = weir__cuda_judge_driver(
            self, self->driver.device_uuid(&uuid, self->device), "cuDeviceGetUuid");
    if (status == WEIR_OK)
        status = weir__cuda_judge_driver(
            self, self->driver.device_memory(&self->memory_bytes, self->device),
            "cuDeviceTotalMem");
    if (status == WEIR_OK)
        status = ask_attribute(self, cudaDevAttrComputeCapabilityMajor, &major);
    if (status == WEIR_OK)
        status = ask_attribute(self, cudaDevAttrComputeCapabilityMinor, &minor);
    if (status != WEIR_OK)
        return status;
    memcpy(self->uuid, uuid.bytes, sizeof self->uuid);
    snprintf(self->description, sizeof self->description,
             "%s, compute capability %d.%d, driver for CUDA %d.%d", name, major, minor,
             major_of(self->driver_version), minor_of(self->driver_version));
    return WEIR_OK;
}

/* The context comes last: what can be known without it has been checked. */
static weir_status device_start(weir__cuda *self)
{
    weir_status status = check_driver(self);
    if (status == WEIR_OK)
        status = check_ordinal(self);
    if (status == WEIR_OK)
        status = find_entry_points(self);
    if (status == WEIR_OK)
        status = weir__cuda_judge_driver(
            self, self->driver.device_get(&self->device, (int)self->ordinal),
            "cuDeviceGet");
    if (status == WEIR_OK)
        status = describe(self);
    if (status == WEIR_OK)
        status = ask_what_it_has(self);
    if (status == WEIR_OK)
        status = weir__cuda_shared_begin(self);
    if (status == WEIR_OK)
        status = weir__cuda_judge_driver(
            self, self->driver.context_retain(&self->context, self->device),
            "cuDevicePrimaryCtxRetain");
    if (status == WEIR_OK)
        status = weir__cuda_judge_driver(
            self, self->driver.context_id(self->context, &self->context_id),
            "cuCtxGetId");
    return status;
}

/* Whatever the driver answers: there is nobody left to tell. */
static void let_go(weir__cuda *self)
{
    (void)weir__cuda_judge_driver(self, self->driver.context_release(self->device),
                                  "cuDevicePrimaryCtxRelease");
}

static void device_end(weir__cuda *self)
{
    weir__cuda_mappings_end(self);
    self->host->host_free(self);
}

static weir_status cuda_open(const weir__module_host *host, int32_t ordinal,
                             const weir__device_ops **ops, void **out)
{
    weir__cuda *self = host->host_alloc(sizeof *self);
    if (self == NULL)
        return host->fail(WEIR_OUT_OF_HOST_MEMORY, 0, "no memory for a CUDA device");
    memset(self, 0, sizeof *self);
    self->host = host;
    self->ordinal = ordinal;
    weir__cuda_mappings_begin(self);
    weir_status status = device_start(self);
    if (status != WEIR_OK) {
        if (self->context != NULL)
            let_go(self);
        device_end(self);
        return status;
    }
    *ops = &weir__cuda_ops;
    *out = self;
    return WEIR_OK;
}

void weir__cuda_properties(void *device, weir_device_properties *out)
{
    const weir__cuda *self = device;
    out->description = self->description;
    out->ordinal = self->ordinal;
    memcpy(out->uuid, self->uuid, sizeof out->uuid);
    out->memory_bytes = self->memory_bytes;
    out->concurrent_managed = self->moves_managed;
    out->pageable_access = self->reaches_pageable;
}

atomic_bool weir__cuda_kept[WEIR__DEVICE_ORDINALS];

/* There is no wait: others use the device too, and it would spoil every capture that
 * goes on there. Of a device that is lost nothing is kept: unless others hold the
 * context, the next that is opened gets a new one. */
void weir__cuda_close(void *device)
{
    weir__cuda *self = device;
    atomic_bool *kept = &weir__cuda_kept[self->ordinal];
    bool stays = false;
    weir__cuda_pools_end(self);
    if (atomic_load(&self->is_lost)) {
        if (atomic_exchange(kept, false))
            let_go(self);
    } else if (atomic_load(&self->is_used)) {
        stays = !atomic_exchange(kept, true);
    }
    if (!stays)
        let_go(self);
    device_end(self);
}

const weir__module *weir__cuda_module(void)
{
    static const weir__module module = {
        .struct_size = sizeof module,
        .ops_size = sizeof(weir__device_ops),
        .version = WEIR_VERSION,
        .open = cuda_open,
    };
    return &module;
}
