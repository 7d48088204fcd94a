/* fakes.c - what every function of the stand-in begins and ends with: counting, planned
 * faults, the last error of the thread. */
#include "fakes/fakes_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fakes_counts fakes_count;

static const char *const names[] = {
#define X(name) #name,
    FAKES_CALL_MAP(X)
#undef X
};

static atomic_uint_least64_t calls[FAKES_CALL_COUNT];
static _Thread_local int last_error;

void fakes_not_provided(const char *name)
{
    fprintf(stderr, "the stand-in for CUDA does not provide %s\n", name);
    fflush(NULL);
    abort();
}

static fakes_call call_of(const char *name)
{
    for (int call = 0; call < FAKES_CALL_COUNT; call++) {
        if (strcmp(names[call], name) == 0)
            return (fakes_call)call;
    }
    fakes_not_provided(name);
}

uint64_t fakes_calls(const char *name)
{
    return atomic_load(&calls[call_of(name)]);
}

/* ---- faults ---- */

static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int call; /* less than 0: any that can fail */
    uint64_t nth;
    bool lasting;
    int error;
    uint64_t seen;
    const char *struck;
} fault; /* guarded by fault_lock; nth 0: none */
static atomic_bool has_fault;

void fakes_fail(const char *name, uint64_t nth, bool lasting, int error)
{
    int call = name == NULL ? -1 : (int)call_of(name);
    pthread_mutex_lock(&fault_lock);
    fault.call = call;
    fault.nth = nth;
    fault.lasting = lasting;
    fault.error = error;
    fault.seen = 0;
    fault.struck = NULL;
    pthread_mutex_unlock(&fault_lock);
    atomic_store(&has_fault, nth != 0);
}

uint64_t fakes_fault_calls(void)
{
    pthread_mutex_lock(&fault_lock);
    uint64_t seen = fault.seen;
    pthread_mutex_unlock(&fault_lock);
    return seen;
}

const char *fakes_fault_struck(void)
{
    pthread_mutex_lock(&fault_lock);
    const char *struck = fault.struck;
    pthread_mutex_unlock(&fault_lock);
    return struck;
}

/* The error that strikes this call; 0: none. */
static int fault_strike(fakes_call call)
{
    if (!atomic_load(&has_fault))
        return 0;
    int error = 0;
    pthread_mutex_lock(&fault_lock);
    if (fault.nth != 0 &&
        (fault.call < 0 ? call < FAKES_FIRST_SAFE : (fakes_call)fault.call == call)) {
        fault.seen++;
        if (fault.seen == fault.nth || (fault.seen > fault.nth && fault.lasting))
            error = fault.error;
        if (error != 0 && fault.struck == NULL)
            fault.struck = names[call];
    }
    pthread_mutex_unlock(&fault_lock);
    return error;
}

/* Errors after which nothing works any more in the context. */
static bool spoils_context(int error)
{
    switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure: return true;
    default: return false;
    }
}

void fakes_halt(weir__emulated *device)
{
    weir__mutex_lock(&device->lock);
    weir__emulated_lose(device);
    while (device->running > 0)
        weir__cond_wait(&device->changed, &device->lock);
    weir__mutex_unlock(&device->lock);
}

static void spoil(fakes_context *context, int error)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&context->spoilt, &none, error))
        fakes_halt(context->device);
}

int fakes_error_of(fakes_context *context, weir_status status)
{
    switch (status) {
    case WEIR_OK: return cudaSuccess;
    case WEIR_DEVICE_LOST: {
        int none = 0;
        atomic_compare_exchange_strong(&context->spoilt, &none, cudaErrorLaunchFailure);
        return atomic_load(&context->spoilt);
    }
    case WEIR_OUT_OF_MEMORY:
    case WEIR_OUT_OF_HOST_MEMORY: return cudaErrorMemoryAllocation;
    default: break;
    }
    int native = weir_last_error().native_code;
    bool told = native != 0 && native != WEIR__NATIVE_PLANNED;
    if (!told && status == WEIR_NOT_SUPPORTED)
        return cudaErrorNotSupported;
    if (!told && status == WEIR_INVALID_ARGUMENT)
        return cudaErrorInvalidValue;
    if (native == WEIR__NATIVE_DEADLOCK)
        return cudaErrorTimeout; /* a real one would wait for ever */
    if (native == WEIR__NATIVE_BAD_ADDRESS)
        return cudaErrorInvalidValue;
    return native != 0 ? native : cudaErrorUnknown;
}

/* ---- begin and end ---- */

/* In a test program host allocations can be made to fail: never the driver's. */
static void spare(bool begin)
{
#ifdef WEIR_TESTING
    weir__host_spare(begin);
#else
    (void)begin;
#endif
}

static bool needs_no_driver(fakes_call call)
{
    return call == FAKES_cudaDriverGetVersion || call == FAKES_cudaRuntimeGetVersion ||
           call > FAKES_cudaThreadExchangeStreamCaptureMode;
}

int fakes_begin(fakes_call call)
{
    spare(true);
    atomic_fetch_add(&calls[call], 1);
    int error = fault_strike(call);
    if (error != 0) {
        fakes_context *context = fakes_current();
        if (context != NULL && spoils_context(error))
            spoil(context, error);
        return error;
    }
    int runtime = fakes_runtime_version();
    if (!needs_no_driver(call) && fakes_driver_version() / 1000 < runtime / 1000)
        return cudaErrorInsufficientDriver;
    return cudaSuccess;
}

int fakes_begin_in(fakes_call call, fakes_context **out)
{
    *out = NULL;
    int error = fakes_begin(call);
    if (error != cudaSuccess)
        return error;
    fakes_context *context = fakes_current();
    if (context == NULL) { /* as the runtime does, unasked */
        error = fakes_device_count() == 0
                    ? cudaErrorNoDevice
                    : fakes_retain_implicitly(fakes_thread_device(), &context);
        if (error != cudaSuccess)
            return error;
        atomic_fetch_add(&fakes_count.implicit, 1);
        fakes_set_current(context);
    }
    error = fakes_revive(context);
    if (error != cudaSuccess)
        return error;
    *out = context;
    return atomic_load(&context->spoilt);
}

CUresult fakes_end_driver(int error)
{
    spare(false);
    return (CUresult)error;
}

cudaError_t fakes_end(int error)
{
    if (error != cudaSuccess)
        last_error = error;
    spare(false);
    return (cudaError_t)error;
}

int fakes_last_error(bool clear)
{
    int error = last_error;
    if (clear && !spoils_context(error))
        last_error = cudaSuccess;
    return error;
}

/* ---- what happened ---- */

int fakes_gave_back(atomic_int_least64_t *out, int error)
{
    if (error == cudaSuccess)
        atomic_fetch_sub(out, 1);
    else
        atomic_fetch_add(&fakes_count.refused, 1);
    return error;
}

void fakes_forget(void)
{
    for (int call = 0; call < FAKES_CALL_COUNT; call++)
        atomic_store(&calls[call], 0);
    atomic_store(&fakes_count.timed_events, 0);
    atomic_store(&fakes_count.event_flags, 0);
    atomic_store(&fakes_count.stream_flags, 0);
    atomic_store(&fakes_count.set_devices, 0);
    atomic_store(&fakes_count.implicit, 0);
    atomic_store(&fakes_count.spoilt, 0);
    atomic_store(&fakes_count.rdma_objects, 0);
}

fakes_state fakes_look(void)
{
    fakes_state state = {
        .pushed = fakes_pushed(),
        .last_error = last_error,
        .is_relaxed = fakes_capture_mode != cudaStreamCaptureModeGlobal,
#define X(name) .name = atomic_load(&fakes_count.name),
        X(device_blocks) X(pool_blocks) X(pinned_blocks) X(registered_blocks)
        X(streams) X(events) X(pools) X(graphs) X(objects) X(mappings) X(addresses)
        X(opened) X(refused) X(timed_events) X(event_flags) X(stream_flags)
        X(set_devices) X(implicit) X(spoilt) X(rdma_objects)
#undef X
    };
    for (int ordinal = 0; ordinal < FAKES_DEVICES; ordinal++)
        state.retained += fakes_retained(ordinal);
    return state;
}

void fakes_reset(void)
{
    fakes_fail(NULL, 0, false, 0);
    fakes_set_machine(NULL);
    fakes_contexts_reset();
    fakes_capture_mode = cudaStreamCaptureModeGlobal;
    last_error = cudaSuccess;
    atomic_store(&fakes_count.device_blocks, 0);
    atomic_store(&fakes_count.pool_blocks, 0);
    atomic_store(&fakes_count.pinned_blocks, 0);
    atomic_store(&fakes_count.registered_blocks, 0);
    atomic_store(&fakes_count.streams, 0);
    atomic_store(&fakes_count.events, 0);
    atomic_store(&fakes_count.pools, 0);
    atomic_store(&fakes_count.graphs, 0);
    atomic_store(&fakes_count.objects, 0);
    atomic_store(&fakes_count.mappings, 0);
    atomic_store(&fakes_count.addresses, 0);
    atomic_store(&fakes_count.opened, 0);
    atomic_store(&fakes_count.refused, 0);
    fakes_forget();
}
