/* cuda.c - CUDA devices: how a call is made and judged, streams, events and work.
 *
 * This and its neighbours, cuda_*.c, are libweir_cuda.so; see cuda_module.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "device/cuda_module.h"

/* CUDA 12 has the numbers, and not yet the names. */
#define ERROR_CONTAINED          226
#define ERROR_TENSOR_MEMORY_LEAK 721

/* ---- failures ---- */

weir_status weir__cuda_fail(weir__cuda *self, weir_status status, int32_t native_code,
                            const char *format, ...)
{
    char sentence[400];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    if (status == WEIR_DEVICE_LOST)
        atomic_store(&self->is_lost, true);
    return self->host->fail(status, native_code, sentence);
}

/* Whether the context, and with it the device for this process, is gone for good: after
 * these every later call fails, and memory's contents mean nothing. */
static bool is_sticky(cudaError_t error)
{
    switch ((int)error) {
    case cudaErrorCudartUnloading: /* the driver has left before us */
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case ERROR_CONTAINED:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case ERROR_TENSOR_MEMORY_LEAK:
    case cudaErrorMpsClientTerminated: /* by its server */
    case cudaErrorExternalDevice: return true;
    default: return false;
    }
}

static weir_status status_of(weir__cuda_call kind, cudaError_t error)
{
    const bool memory = kind != WEIR__CUDA_WORK;
    if (is_sticky(error))
        return WEIR_DEVICE_LOST;
    switch ((int)error) {
    case cudaErrorMemoryAllocation:
        return memory ? WEIR_OUT_OF_MEMORY : WEIR_DEVICE_ERROR;
    case cudaErrorInvalidValue:
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorHostMemoryNotRegistered:
        return memory ? WEIR_INVALID_ARGUMENT : WEIR_DEVICE_ERROR;
    case cudaErrorNotPermitted: /* handles that this process may not make */
        return memory ? WEIR_NOT_SUPPORTED : WEIR_DEVICE_ERROR;
    case cudaErrorInvalidResourceHandle: /* none, one that has ended, */
    case cudaErrorMapBufferObjectFailed:
    case cudaErrorDeviceUninitialized: /* or this process's own */
        return kind == WEIR__CUDA_OPEN ? WEIR_INVALID_ARGUMENT : WEIR_DEVICE_ERROR;
    case cudaErrorInvalidDevice: /* that of what is opened, too */
        return kind == WEIR__CUDA_OPEN ? WEIR_INVALID_ARGUMENT : WEIR_NOT_SUPPORTED;
    case cudaErrorNotSupported:
    case cudaErrorStubLibrary: /* links, and does nothing */
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorNoDevice:
    case cudaErrorPeerAccessUnsupported: return WEIR_NOT_SUPPORTED;
    default: return WEIR_DEVICE_ERROR;
    }
}

/* A device that has such memory maps it: what it cannot map was said to be longer than
 * it is (driver 580.159). */
static bool is_too_long(weir__cuda_call kind, cudaError_t error, const char *call)
{
    return kind == WEIR__CUDA_OPEN && error == cudaErrorNotSupported && call != NULL &&
           strcmp(call, "cuMemMap") == 0;
}

weir_status weir__cuda_judge(weir__cuda *self, weir__cuda_call kind, cudaError_t error,
                             const char *call)
{
    if (error == cudaSuccess)
        return WEIR_OK;
    /* What was handled here is nobody else's business. */
    (void)cudaGetLastError();
    if (call == NULL)
        return weir__cuda_fail(self, status_of(kind, error), (int32_t)error,
                               "what cuda:%d was given is no memory that it shares, or "
                               "not of that length",
                               (int)self->ordinal);
    int length = (int)strcspn(call, "(");
    weir_status status = is_too_long(kind, error, call) ? WEIR_INVALID_ARGUMENT
                                                        : status_of(kind, error);
    return weir__cuda_fail(self, status, (int32_t)error,
                           "%.*s on cuda:%d answered %s (%d): %s", length, call,
                           (int)self->ordinal, cudaGetErrorName(error), (int)error,
                           cudaGetErrorString(error));
}

/* ---- around each call ---- */

/* We hold the context: that it is none any more, or another, means that somebody has
 * reset the device, and all that was made in it is gone. */
static weir_status fail_reset(weir__cuda *self, CUresult result, const char *call)
{
    return weir__cuda_fail(self, WEIR_DEVICE_LOST, (int32_t)result,
                           "%s on cuda:%d answered %s (%d): the device has been reset",
                           call, (int)self->ordinal,
                           cudaGetErrorName((cudaError_t)result), (int)result);
}

/* After a reset anybody's next call of the runtime makes the context anew, at the same
 * address: only its id tells. To ask for it is a third call of the driver's beside the
 * push and the pop, which take 33 ns together (H100, driver 580.159). */
weir_status weir__cuda_enter(weir__cuda *self)
{
    unsigned long long id = self->context_id;
    const char *call = "cuCtxGetId";
    if (!atomic_load(&self->is_used))
        atomic_store(&self->is_used, true);
    CUresult result = self->driver.context_id(self->context, &id);
    if (result == CUDA_SUCCESS && id != self->context_id)
        return weir__cuda_fail(self, WEIR_DEVICE_LOST, CUDA_ERROR_CONTEXT_IS_DESTROYED,
                               "cuCtxGetId on cuda:%d answered %llu, and it was %llu: "
                               "the device has been reset",
                               (int)self->ordinal, id, self->context_id);
    if (result == CUDA_SUCCESS) {
        call = "cuCtxPushCurrent";
        result = self->driver.context_push(self->context);
    }
    if (result == CUDA_ERROR_INVALID_CONTEXT)
        return fail_reset(self, result, call);
    return weir__cuda_judge_driver(self, result, call);
}

/* `result` is of what puts the thread back as it was. */
static weir_status judge_restored(weir__cuda *self, cudaError_t result,
                                  const char *call)
{
    if (result == cudaSuccess)
        return WEIR_OK;
    (void)cudaGetLastError();
    return weir__cuda_fail(self, WEIR_DEVICE_LOST, (int32_t)result,
                           "%s on cuda:%d answered %s (%d): the thread is not as it "
                           "was",
                           call, (int)self->ordinal, cudaGetErrorName(result),
                           (int)result);
}

weir_status weir__cuda_leave(weir__cuda *self, weir__cuda_call kind, cudaError_t error,
                             const char *call)
{
    CUcontext popped;
    weir_status status = weir__cuda_judge(self, kind, error, call);
    weir_status restored = judge_restored(
        self, (cudaError_t)self->driver.context_pop(&popped), "cuCtxPopCurrent");
    return restored != WEIR_OK ? restored : status;
}

weir_status weir__cuda_enter_cold(weir__cuda *self, enum cudaStreamCaptureMode *mode)
{
    weir_status status = weir__cuda_enter(self);
    if (status != WEIR_OK)
        return status;
    *mode = cudaStreamCaptureModeRelaxed;
    cudaError_t error = cudaThreadExchangeStreamCaptureMode(mode);
    if (error == cudaSuccess)
        return WEIR_OK;
    return weir__cuda_leave(self, WEIR__CUDA_WORK, error,
                            "cudaThreadExchangeStreamCaptureMode");
}

weir_status weir__cuda_leave_cold(weir__cuda *self, enum cudaStreamCaptureMode mode,
                                  weir__cuda_call kind, cudaError_t error,
                                  const char *call)
{
    cudaError_t back = cudaThreadExchangeStreamCaptureMode(&mode);
    weir_status status = weir__cuda_leave(self, kind, error, call);
    weir_status restored = judge_restored(self, back,
                                          "cudaThreadExchangeStreamCaptureMode");
    return restored != WEIR_OK ? restored : status;
}

/* ---- streams ---- */

static weir_status stream_create(void *device, bool blocking, weir_stream *out)
{
    unsigned flags = blocking ? cudaStreamDefault : cudaStreamNonBlocking;
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_WORK, cudaStreamCreateWithFlags(out, flags));
}

static weir_status stream_destroy(void *device, weir_stream stream)
{
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_WORK, cudaStreamDestroy(stream));
}

static cudaError_t ask_id(weir_stream stream, uint64_t *out)
{
    unsigned long long id = 0;
    cudaError_t error = cudaStreamGetId(stream, &id);
    *out = id;
    return error;
}

static weir_status stream_get_id(void *device, weir_stream stream, uint64_t *out)
{
    WEIR__CUDA_DO_AS(device, WEIR__CUDA_WORK, ask_id(stream, out), "cudaStreamGetId");
}

static cudaError_t ask_flags(weir_stream stream, bool *blocking)
{
    unsigned flags = 0;
    cudaError_t error = cudaStreamGetFlags(stream, &flags);
    *blocking = (flags & cudaStreamNonBlocking) == 0;
    return error;
}

static weir_status stream_get_flags(void *device, weir_stream stream, bool *blocking)
{
    WEIR__CUDA_DO_AS(device, WEIR__CUDA_WORK, ask_flags(stream, blocking),
                     "cudaStreamGetFlags");
}

/* A capture that has been spoilt is one until its end. Of the legacy stream the runtime
 * answers with an error while a blocking stream is captured: it must then be left
 * alone, as if it were captured itself. */
static cudaError_t ask_capturing(weir_stream stream, bool *out)
{
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing(stream, &state);
    bool implicit = error == cudaErrorStreamCaptureImplicit;
    *out = implicit || state != cudaStreamCaptureStatusNone;
    if (!implicit)
        return error;
    (void)cudaGetLastError();
    return cudaSuccess;
}

static weir_status stream_is_capturing(void *device, weir_stream stream, bool *out)
{
    WEIR__CUDA_DO_AS(device, WEIR__CUDA_WORK, ask_capturing(stream, out),
                     "cudaStreamIsCapturing");
}

static weir_status stream_sync(void *device, weir_stream stream)
{
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_WORK, cudaStreamSynchronize(stream));
}

/* "Not yet" is an answer, and stays in the runtime's last error like a failure. */
static cudaError_t answer(cudaError_t error, bool *done)
{
    *done = error == cudaSuccess;
    if (error != cudaErrorNotReady)
        return error;
    (void)cudaGetLastError();
    return cudaSuccess;
}

static weir_status stream_query(void *device, weir_stream stream, bool *done)
{
    WEIR__CUDA_DO_COLD_AS(device, WEIR__CUDA_WORK,
                          answer(cudaStreamQuery(stream), done), "cudaStreamQuery");
}

static weir_status stream_wait_event(void *device, weir_stream stream, weir_event event)
{
    WEIR__CUDA_DO(device, WEIR__CUDA_WORK, cudaStreamWaitEvent(stream, event, 0));
}

/* ---- events ---- */

/* Without timing: a tenth of the cost. */
static weir_status event_create(void *device, weir_event *out)
{
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_WORK,
                       cudaEventCreateWithFlags(out, cudaEventDisableTiming));
}

static weir_status event_destroy(void *device, weir_event event)
{
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_WORK, cudaEventDestroy(event));
}

static weir_status event_record(void *device, weir_event event, weir_stream stream)
{
    WEIR__CUDA_DO(device, WEIR__CUDA_WORK, cudaEventRecord(event, stream));
}

static bool has_record_all(void *device)
{
    const weir__cuda *self = device;
    return self->record_all != NULL;
}

/* A call of the driver's, since CUDA 12.5. */
static weir_status event_record_all(void *device, weir_event event)
{
    weir__cuda *self = device;
    if (self->record_all == NULL)
        return weir__cuda_fail(self, WEIR_NOT_SUPPORTED, cudaErrorNotSupported,
                               "the driver of cuda:%d has no cuCtxRecordEvent",
                               (int)self->ordinal);
    WEIR__CUDA_DO_COLD_AS(self, WEIR__CUDA_WORK,
                          (cudaError_t)self->record_all(self->context, event),
                          "cuCtxRecordEvent");
}

static weir_status event_query(void *device, weir_event event, bool *done)
{
    WEIR__CUDA_DO_COLD_AS(device, WEIR__CUDA_WORK, answer(cudaEventQuery(event), done),
                          "cudaEventQuery");
}

static weir_status event_sync(void *device, weir_event event)
{
    WEIR__CUDA_DO_COLD(device, WEIR__CUDA_WORK, cudaEventSynchronize(event));
}

static weir_status wait_for_all(weir__cuda *self)
{
    WEIR__CUDA_DO_COLD(self, WEIR__CUDA_WORK, cudaDeviceSynchronize());
}

static weir_status device_sync(void *device)
{
    weir_status status = wait_for_all(device);
    if (status == WEIR_OK)
        weir__cuda_pools_look(device);
    return status;
}

/* ---- work ---- */

static weir_status copy(void *device, weir_stream stream, void *dst, const void *src,
                        size_t bytes)
{
    WEIR__CUDA_DO(device, WEIR__CUDA_WORK,
                  cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
}

static weir_status fill(void *device, weir_stream stream, void *ptr, uint8_t value,
                        size_t bytes)
{
    WEIR__CUDA_DO(device, WEIR__CUDA_WORK, cudaMemsetAsync(ptr, value, bytes, stream));
}

/* Carried to the host function that runs it; freed there. */
typedef struct errand {
    const weir__module_host *host;
    weir_emulated_kernel kernel;
    void *argument;
} errand;

static void errand_run(void *carried)
{
    errand it = *(errand *)carried;
    it.host->host_free(carried);
    it.kernel(it.argument, NULL);
}

/* Not into a graph, which would run it again. */
static cudaError_t errand_put(weir_stream stream, errand *carried)
{
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing(stream, &state);
    if (error == cudaSuccess && state != cudaStreamCaptureStatusNone)
        error = cudaErrorNotSupported;
    if (error == cudaSuccess)
        error = cudaLaunchHostFunc(stream, errand_run, carried);
    if (error != cudaSuccess)
        carried->host->host_free(carried);
    return error;
}

static weir_status launch(void *device, weir_stream stream, weir_emulated_kernel kernel,
                          void *argument, const weir_emulated_range *ranges,
                          size_t count)
{
    (void)ranges;
    weir__cuda *self = device;
    if (count != 0)
        return weir__cuda_fail(self, WEIR_NOT_SUPPORTED, cudaErrorNotSupported,
                               "cuda:%d runs no host function as a kernel over memory",
                               (int)self->ordinal);
    errand *carried = self->host->host_alloc(sizeof *carried);
    if (carried == NULL)
        return weir__cuda_fail(self, WEIR_OUT_OF_HOST_MEMORY, 0,
                               "no memory to launch a host function");
    *carried = (errand){ self->host, kernel, argument };
    weir_status status = weir__cuda_enter(self);
    if (status != WEIR_OK) {
        self->host->host_free(carried);
        return status;
    }
    return weir__cuda_leave(self, WEIR__CUDA_WORK, errand_put(stream, carried),
                            "cudaLaunchHostFunc");
}

/* That it was granted before is as good. */
static cudaError_t grant_peer(const weir__cuda *self, const weir__cuda *peer)
{
    int can = 0;
    CUresult result = self->driver.device_peer(&can, self->device, peer->device);
    if (result == CUDA_SUCCESS && !can)
        result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (result == CUDA_SUCCESS)
        result = self->driver.context_peer(peer->context, 0);
    return result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? cudaSuccess
                                                            : (cudaError_t)result;
}

static weir_status enable_peer(void *device, void *peer)
{
    WEIR__CUDA_DO_COLD_AS(device, WEIR__CUDA_WORK, grant_peer(device, peer),
                          "cuCtxEnablePeerAccess");
}

/* ---- all of it ---- */

const weir__device_ops weir__cuda_ops = {
    .kind = "cuda",
    .close = weir__cuda_close,
    .properties = weir__cuda_properties,
    .malloc = weir__cuda_malloc,
    .free = weir__cuda_free,
    .host_malloc = weir__cuda_host_malloc,
    .host_free = weir__cuda_host_free,
    .memory_info = weir__cuda_memory_info,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_get_id = stream_get_id,
    .stream_get_flags = stream_get_flags,
    .stream_is_capturing = stream_is_capturing,
    .stream_sync = stream_sync,
    .stream_query = stream_query,
    .stream_wait_event = stream_wait_event,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_record_all = event_record_all,
    .has_record_all = has_record_all,
    .event_query = event_query,
    .event_sync = event_sync,
    .device_sync = device_sync,
    .copy = copy,
    .fill = fill,
    .launch = launch,
    .enable_peer = enable_peer,
    .managed_malloc = weir__cuda_managed_malloc,
    .pinned_malloc = weir__cuda_pinned_malloc,
    .pinned_free = weir__cuda_pinned_free,
    .host_register = weir__cuda_host_register,
    .host_unregister = weir__cuda_host_unregister,
    .prefetch = weir__cuda_prefetch,
    .prefer = weir__cuda_prefer,
    .mempool_create = weir__cuda_mempool_create,
    .mempool_default = weir__cuda_mempool_default,
    .mempool_destroy = weir__cuda_mempool_destroy,
    .mempool_malloc = weir__cuda_mempool_malloc,
    .mempool_free = weir__cuda_mempool_free,
    .mempool_trim = weir__cuda_mempool_trim,
    .mempool_get_state = weir__cuda_mempool_get_state,
    .shared_malloc = weir__cuda_shared_malloc,
    .shared_free = weir__cuda_shared_free,
    .shared_find = weir__cuda_shared_find,
    .shared_export = weir__cuda_shared_export,
    .shared_open = weir__cuda_shared_open,
    .shared_close = weir__cuda_shared_close,
    .shared_event_create = weir__cuda_shared_event_create,
    .shared_event_open = weir__cuda_shared_event_open,
    .range_reserve = weir__cuda_range_reserve,
    .range_release = weir__cuda_range_release,
    .range_map = weir__cuda_range_map,
    .range_unmap = weir__cuda_range_unmap,
};
