/* fakes_capture.c - who may do what while something captures: the threads' capture
 * modes, the captures that go on, and the calls that are unsafe.
 *
 * A capture that was begun through weir/emulated.h was so in global mode, and forbids
 * most: to the thread that began it, and to all others. */
#include <pthread.h>
#include <stdlib.h>

#include "fakes/fakes_internal.h"

_Thread_local enum cudaStreamCaptureMode fakes_capture_mode =
    cudaStreamCaptureModeGlobal;

/* ---- captures that the runtime has begun ---- */

typedef struct begun {
    const weir__emulated *device;
    uint64_t number; /* the device's, of the capture */
    enum cudaStreamCaptureMode mode;
    uint64_t thread;
    struct begun *next;
} begun;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static begun *all_begun; /* guarded by lock */

static bool begun_take(const weir__graph *capture, bool remove, begun *out)
{
    pthread_mutex_lock(&lock);
    begun **link = &all_begun;
    while (*link != NULL && ((*link)->device != capture->device ||
                             (*link)->number != capture->number))
        link = &(*link)->next;
    begun *found = *link;
    bool any = found != NULL;
    if (any)
        *out = *found;
    if (any && remove) {
        *link = found->next;
        free(found);
    }
    pthread_mutex_unlock(&lock);
    return any;
}

static bool begun_add(const weir__graph *capture, enum cudaStreamCaptureMode mode)
{
    begun *made = malloc(sizeof *made);
    if (made == NULL)
        return false;
    *made = (begun){ capture->device, capture->number, mode, weir__this_thread(),
                     NULL };
    pthread_mutex_lock(&lock);
    made->next = all_begun;
    all_begun = made;
    pthread_mutex_unlock(&lock);
    return true;
}

void fakes_forget_captures(const weir__emulated *device)
{
    pthread_mutex_lock(&lock);
    for (begun **link = &all_begun; *link != NULL;) {
        begun *gone = *link;
        if (gone->device == device) {
            *link = gone->next;
            free(gone);
        } else {
            link = &gone->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* ---- what is unsafe ---- */

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    int error = fakes_begin(FAKES_cudaThreadExchangeStreamCaptureMode);
    if (error == cudaSuccess &&
        (mode == NULL || (unsigned)*mode > cudaStreamCaptureModeRelaxed))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        enum cudaStreamCaptureMode before = fakes_capture_mode;
        fakes_capture_mode = *mode;
        *mode = before;
    }
    return fakes_end(error);
}

/* Whether `capture` forbids this thread an unsafe call. */
static bool forbids(const weir__graph *capture)
{
    begun it;
    if (!begun_take(capture, false, &it))
        return true;
    if (it.mode == cudaStreamCaptureModeRelaxed)
        return false;
    return it.thread == weir__this_thread() ||
           (it.mode == cudaStreamCaptureModeGlobal &&
            fakes_capture_mode == cudaStreamCaptureModeGlobal);
}

static bool spoil_those_that_forbid(weir__emulated *device)
{
    bool any = false;
    weir__mutex_lock(&device->lock);
    for (weir__graph *each = device->captures; each != NULL; each = each->next) {
        if (forbids(each))
            any = each->is_spoilt = true;
    }
    weir__mutex_unlock(&device->lock);
    return any;
}

int fakes_refuse_unsafe(void)
{
    bool any = false;
    if (fakes_capture_mode == cudaStreamCaptureModeRelaxed)
        return cudaSuccess;
    for (int ordinal = 0; ordinal < FAKES_DEVICES; ordinal++) {
        weir__emulated *device = fakes_emulated(ordinal);
        if (device != NULL && spoil_those_that_forbid(device))
            any = true;
    }
    if (!any)
        return cudaSuccess;
    atomic_fetch_add(&fakes_count.spoilt, 1);
    return cudaErrorStreamCaptureUnsupported;
}

/* ---- what a stream is doing ---- */

static bool has_blocking(const weir__graph *capture)
{
    for (const weir__branch *branch = &capture->origin; branch; branch = branch->next) {
        if (branch->queue != NULL && branch->queue->is_blocking)
            return true;
    }
    return false;
}

/* Of the legacy stream it is an error to ask while a blocking one is captured. */
static int state_of_locked(weir__emulated *device, cudaStream_t stream,
                           enum cudaStreamCaptureStatus *out, unsigned long long *id)
{
    weir__queue *queue;
    *out = cudaStreamCaptureStatusNone;
    if (weir__stream_find(device, fakes_stream(stream), &queue) != WEIR_OK)
        return cudaErrorInvalidResourceHandle;
    for (const weir__graph *each = device->captures; queue->is_legacy && each != NULL;
         each = each->next) {
        if (has_blocking(each))
            return cudaErrorStreamCaptureImplicit;
    }
    if (queue->branch == NULL)
        return cudaSuccess;
    *id = queue->branch->graph->number;
    *out = queue->branch->graph->is_spoilt ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

static int state_of(fakes_context *context, cudaStream_t stream,
                    enum cudaStreamCaptureStatus *out, unsigned long long *id)
{
    weir__mutex_lock(&context->device->lock);
    int error = state_of_locked(context->device, stream, out, id);
    weir__mutex_unlock(&context->device->lock);
    return error;
}

bool fakes_is_capturing(fakes_context *context, cudaStream_t stream)
{
    enum cudaStreamCaptureStatus state;
    unsigned long long id;
    return state_of(context, stream, &state, &id) == cudaSuccess &&
           state != cudaStreamCaptureStatusNone;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  enum cudaStreamCaptureStatus *out)
{
    fakes_context *context;
    bool counted;
    unsigned long long id;
    int error = fakes_begin_in(FAKES_cudaStreamIsCapturing, &context);
    if (error == cudaSuccess && out == NULL)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) /* the primitive, for its faults */
        error = fakes_error_of(context,
                               context->ops->stream_is_capturing(
                                   context->device, fakes_stream(stream), &counted));
    if (error == cudaSuccess)
        error = state_of(context, stream, out, &id);
    return fakes_end(error);
}

/* Says whether, and in which; of the graph nothing. */
static cudaError_t capture_info(cudaStream_t stream,
                                enum cudaStreamCaptureStatus *state,
                                unsigned long long *id)
{
    fakes_context *context;
    unsigned long long none;
    int error = fakes_begin_in(FAKES_cudaStreamGetCaptureInfo, &context);
    if (error == cudaSuccess && state == NULL)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = state_of(context, stream, state, id != NULL ? id : &none);
    return fakes_end(error);
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                     enum cudaStreamCaptureStatus *state,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes,
                                     const cudaGraphEdgeData **edges, size_t *count)
{
    if (graph != NULL || nodes != NULL || edges != NULL || count != NULL)
        fakes_not_provided("cudaStreamGetCaptureInfo of a graph");
    return capture_info(stream, state, id);
}
#else
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                     enum cudaStreamCaptureStatus *state,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, size_t *count)
{
    if (graph != NULL || nodes != NULL || count != NULL)
        fakes_not_provided("cudaStreamGetCaptureInfo of a graph");
    return capture_info(stream, state, id);
}
#endif

/* ---- beginning and end ---- */

static int begin_locked(weir__emulated *device, cudaStream_t stream,
                        enum cudaStreamCaptureMode mode, weir_status *status)
{
    weir__queue *queue;
    *status = weir__stream_find(device, fakes_stream(stream), &queue);
    if (*status == WEIR_OK)
        *status = weir__capture_begin(queue);
    if (*status != WEIR_OK)
        return cudaSuccess; /* the status tells */
    if (begun_add(queue->branch->graph, mode))
        return cudaSuccess;
    weir__capture_drop(queue);
    return cudaErrorMemoryAllocation;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    fakes_context *context;
    weir_status status = WEIR_OK;
    int error = fakes_begin_in(FAKES_cudaStreamBeginCapture, &context);
    if (error == cudaSuccess && (unsigned)mode > cudaStreamCaptureModeRelaxed)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        weir__mutex_lock(&context->device->lock);
        error = begin_locked(context->device, stream, mode, &status);
        weir__mutex_unlock(&context->device->lock);
    }
    if (error == cudaSuccess)
        error = fakes_error_of(context, status);
    return fakes_end(error);
}

static int end_locked(weir__emulated *device, cudaStream_t stream, weir__graph **out,
                      weir_status *status)
{
    weir__queue *queue;
    begun it;
    size_t count;
    *status = weir__stream_find(device, fakes_stream(stream), &queue);
    if (*status != WEIR_OK)
        return cudaSuccess;
    if (queue->branch != NULL && begun_take(queue->branch->graph, false, &it) &&
        it.mode != cudaStreamCaptureModeRelaxed && it.thread != weir__this_thread())
        return cudaErrorStreamCaptureWrongThread;
    if (queue->branch != NULL && queue->branch == &queue->branch->graph->origin)
        (void)begun_take(queue->branch->graph, true, &it);
    *status = weir__capture_end(queue, out, &count);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    fakes_context *context;
    weir__graph *graph = NULL;
    weir_status status = WEIR_OK;
    int error = fakes_begin_in(FAKES_cudaStreamEndCapture, &context);
    if (error == cudaSuccess && out == NULL)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        *out = NULL;
        weir__mutex_lock(&context->device->lock);
        error = end_locked(context->device, stream, &graph, &status);
        weir__mutex_unlock(&context->device->lock);
    }
    if (error == cudaSuccess)
        error = fakes_error_of(context, status);
    if (error == cudaSuccess)
        error = fakes_graph_make(context, graph, out);
    return fakes_end(error);
}
