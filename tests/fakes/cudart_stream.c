/* cudart_stream.c - of the runtime: streams and events. */
#include "fakes/fakes_internal.h"

/* ---- streams ---- */

static int stream_make(fakes_context *context, cudaStream_t *out, unsigned flags)
{
    if (out == NULL || flags > cudaStreamNonBlocking)
        return cudaErrorInvalidValue;
    int refused = fakes_refuse_unsafe();
    if (refused != cudaSuccess)
        return refused;
    weir_status status = context->ops->stream_create(
        context->device, flags != cudaStreamNonBlocking, out);
    if (status != WEIR_OK)
        return fakes_error_of(context, status);
    atomic_fetch_add(&fakes_count.streams, 1);
    atomic_fetch_or(&fakes_count.stream_flags, flags);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaStreamCreate, &context);
    if (error == cudaSuccess)
        error = stream_make(context, out, cudaStreamDefault);
    return fakes_end(error);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaStreamCreateWithFlags, &context);
    if (error == cudaSuccess)
        error = stream_make(context, out, flags);
    return fakes_end(error);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaStreamDestroy, &context);
    if (error == cudaSuccess && (uintptr_t)stream <= (uintptr_t)cudaStreamPerThread)
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess)
        error = fakes_error_of(context, context->ops->stream_destroy(context->device,
                                                                     stream));
    return fakes_end(fakes_gave_back(&fakes_count.streams, error));
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *out)
{
    fakes_context *context;
    uint64_t id = 0;
    int error = fakes_begin_in(FAKES_cudaStreamGetId, &context);
    if (error == cudaSuccess && out == NULL)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = fakes_error_of(context,
                               context->ops->stream_get_id(
                                   context->device, fakes_stream(stream), &id));
    if (error == cudaSuccess)
        *out = id;
    return fakes_end(error);
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *out)
{
    fakes_context *context;
    bool blocking = false;
    int error = fakes_begin_in(FAKES_cudaStreamGetFlags, &context);
    if (error == cudaSuccess && out == NULL)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = fakes_error_of(context,
                               context->ops->stream_get_flags(
                                   context->device, fakes_stream(stream), &blocking));
    if (error == cudaSuccess)
        *out = blocking ? cudaStreamDefault : cudaStreamNonBlocking;
    return fakes_end(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaStreamSynchronize, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess)
        error = fakes_error_of(context, context->ops->stream_sync(
                                            context->device, fakes_stream(stream)));
    return fakes_end(error);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    fakes_context *context;
    bool done = false;
    int error = fakes_begin_in(FAKES_cudaStreamQuery, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess)
        error = fakes_error_of(context, context->ops->stream_query(
                                            context->device, fakes_stream(stream),
                                            &done));
    if (error == cudaSuccess && !done)
        error = cudaErrorNotReady;
    return fakes_end(error);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaStreamWaitEvent, &context);
    if (error == cudaSuccess && flags > cudaEventWaitExternal)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = fakes_error_of(context,
                               context->ops->stream_wait_event(
                                   context->device, fakes_stream(stream), event));
    return fakes_end(error);
}

/* ---- events ---- */

static int event_make(fakes_context *context, cudaEvent_t *out, unsigned flags)
{
    bool is_shared = (flags & cudaEventInterprocess) != 0;
    bool is_timed = (flags & cudaEventDisableTiming) == 0;
    if (out == NULL || flags > 7 || (is_shared && is_timed))
        return cudaErrorInvalidValue;
    int error = is_shared ? fakes_event_make(context, out)
                          : fakes_error_of(context,
                                           context->ops->event_create(context->device,
                                                                      out));
    if (error != cudaSuccess)
        return error;
    atomic_fetch_add(&fakes_count.events, 1);
    atomic_fetch_or(&fakes_count.event_flags, flags);
    if (is_timed)
        atomic_fetch_add(&fakes_count.timed_events, 1);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaEventCreate, &context);
    if (error == cudaSuccess)
        error = event_make(context, out, cudaEventDefault);
    return fakes_end(error);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaEventCreateWithFlags, &context);
    if (error == cudaSuccess)
        error = event_make(context, out, flags);
    return fakes_end(error);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaEventDestroy, &context);
    if (error == cudaSuccess)
        error = fakes_error_of(context, context->ops->event_destroy(context->device,
                                                                    event));
    if (error == cudaSuccess)
        fakes_event_forget(event);
    return fakes_end(fakes_gave_back(&fakes_count.events, error));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaEventRecord, &context);
    if (error == cudaSuccess)
        error = fakes_error_of(context,
                               context->ops->event_record(context->device, event,
                                                          fakes_stream(stream)));
    return fakes_end(error);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    fakes_context *context;
    bool done = false;
    int error = fakes_begin_in(FAKES_cudaEventQuery, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess)
        error = fakes_error_of(context, context->ops->event_query(context->device,
                                                                  event, &done));
    if (error == cudaSuccess && !done)
        error = cudaErrorNotReady;
    return fakes_end(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaEventSynchronize, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess)
        error = fakes_error_of(context, context->ops->event_sync(context->device,
                                                                 event));
    return fakes_end(error);
}
