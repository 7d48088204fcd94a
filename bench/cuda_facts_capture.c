/* cuda_facts_capture.c - of cuda_facts: captures, and events behind all of a device,
 * which spoil them. */
#include "cuda_facts.h"

#include <pthread.h>
#include <time.h>

/* ---- capture ---- */

/* Begins a capture in global mode; null: refused. */
static cudaStream_t capture_begin(unsigned flags)
{
    cudaStream_t stream = stream_of(flags);
    if (stream != NULL
        && !GOOD(cudaStreamBeginCapture, stream, cudaStreamCaptureModeGlobal))
        return NULL;
    return stream;
}

static bool capture_is_intact(cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    (void)cudaGetLastError();
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
    return error == cudaSuccess;
}

void fact_legacy_is_not_asked_in_capture(void)
{
    enum cudaStreamCaptureStatus status;
    cudaStream_t stream = capture_begin(cudaStreamDefault);
    if (stream == NULL)
        return;
    cudaError_t error = cudaStreamIsCapturing(cudaStreamLegacy, &status);
    (void)cudaGetLastError();
    bool intact = capture_is_intact(stream);
    answer(error == cudaErrorStreamCaptureImplicit && intact,
           intact ? cudaGetErrorName(error) : "the capture was spoilt");
}

typedef struct query {
    cudaEvent_t event;
    bool relaxed;
} query;

static int call_query(void *argument)
{
    query *self = argument;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (self->relaxed)
        (void)cudaThreadExchangeStreamCaptureMode(&mode);
    return (int)cudaEventQuery(self->event);
}

/* A query on another thread while this one captures. */
static void query_in_capture(bool relaxed)
{
    query what = { .relaxed = relaxed };
    aside call = { .run = call_query, .argument = &what };
    pthread_t thread;

    if (!GOOD(cudaEventCreateWithFlags, &what.event, cudaEventDisableTiming)
        || !GOOD(cudaEventRecord, what.event, cudaStreamLegacy)
        || !good("cudaDeviceSynchronize", (int)cudaDeviceSynchronize()))
        return;
    cudaStream_t stream = capture_begin(cudaStreamNonBlocking);
    (void)sem_init(&call.is_back, 0, 0);
    if (stream == NULL || pthread_create(&thread, NULL, aside_thread, &call) != 0)
        return;
    (void)pthread_join(thread, NULL);
    (void)sem_destroy(&call.is_back);
    bool intact = capture_is_intact(stream);
    bool refused = call.error == (int)cudaErrorStreamCaptureUnsupported;
    if (relaxed)
        answer(call.error == 0 && intact, intact ? "the query was refused"
                                                 : "the capture was spoilt");
    else
        answer(refused && !intact, refused ? "the capture goes on"
                                           : "the query was answered");
}

void fact_query_spoils_global_capture(void)
{
    query_in_capture(false);
}

void fact_relaxed_query_spares_capture(void)
{
    query_in_capture(true);
}

void fact_relaxed_malloc_spares_capture(void)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    void *ptr = NULL;
    cudaStream_t stream = capture_begin(cudaStreamNonBlocking);
    if (stream == NULL || !GOOD(cudaThreadExchangeStreamCaptureMode, &mode))
        return;
    cudaError_t error = cudaMalloc(&ptr, 4 << 20);
    (void)cudaGetLastError();
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    bool intact = capture_is_intact(stream);
    if (error == cudaSuccess)
        (void)cudaFree(ptr);
    answer(error == cudaSuccess && intact,
           intact ? "cudaMalloc was refused" : "the capture was spoilt");
}

/* Whether the capture goes on after `ask`, in relaxed mode, about its own stream. */
static bool spares_capture(int (*ask)(cudaStream_t stream), int *error)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaStream_t stream = capture_begin(cudaStreamNonBlocking);
    if (stream == NULL || !GOOD(cudaThreadExchangeStreamCaptureMode, &mode))
        return false;
    *error = ask(stream);
    (void)cudaGetLastError();
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    return capture_is_intact(stream);
}

static int ask_id(cudaStream_t stream)
{
    unsigned long long id;
    return (int)cudaStreamGetId(stream, &id);
}

static int ask_flags(cudaStream_t stream)
{
    unsigned flags;
    return (int)cudaStreamGetFlags(stream, &flags);
}

static int ask_capturing(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status;
    return (int)cudaStreamIsCapturing(stream, &status);
}

void fact_name_spoils_capture(void)
{
    int id = 0, flags = 0;
    bool spared = spares_capture(ask_id, &id);
    spared = spares_capture(ask_flags, &flags) || spared;
    answer(!spared && id == (int)cudaErrorStreamCaptureUnsupported && flags == id,
           spared ? "a capture goes on" : "another error");
}

void fact_capturing_spares_capture(void)
{
    int error = 0;
    bool spared = spares_capture(ask_capturing, &error);
    answer(spared && error == 0, spared ? "it is refused" : "the capture was spoilt");
}

/* ---- an event behind all of the device ---- */

static CUcontext all_context;
static CUresult (*all_record)(CUcontext, CUevent);

static bool all_find(void)
{
    CUresult (*current)(CUcontext *);
    return good("cuCtxGetCurrent", driver_find("cuCtxGetCurrent", &current))
           && good("cuCtxGetCurrent", (int)current(&all_context))
           && good("cuCtxRecordEvent", driver_find_of("cuCtxRecordEvent", 12050,
                                                      &all_record));
}

/* A thread that stalls its own stream, and ends at once or when it is told to. */
typedef struct own {
    gate *closed;
    int error;
    sem_t is_put, may_end;
} own;

static void *own_thread(void *argument)
{
    own *self = argument;
    self->error = (int)cudaSetDevice(0);
    if (self->error == 0)
        self->error = gate_put(cudaStreamPerThread, &self->closed);
    (void)sem_post(&self->is_put);
    (void)sem_wait(&self->may_end);
    return NULL;
}

/* Whether an event behind all is done while another thread's own stream stands still,
 * whose thread lives, or has ended; -1: refused. */
static int is_done_behind_own(bool has_ended)
{
    own other = { .closed = NULL };
    pthread_t thread;
    cudaEvent_t event;
    int done = -1;

    if (!all_find() || !GOOD(cudaEventCreateWithFlags, &event, cudaEventDisableTiming)
        || sem_init(&other.is_put, 0, 0) != 0 || sem_init(&other.may_end, 0, 0) != 0
        || pthread_create(&thread, NULL, own_thread, &other) != 0)
        return -1;
    (void)sem_wait(&other.is_put);
    if (has_ended) {
        (void)sem_post(&other.may_end);
        (void)pthread_join(thread, NULL);
    }
    if (good("cudaLaunchHostFunc", other.error)
        && good("cuCtxRecordEvent", (int)all_record(all_context, event))) {
        const struct timespec awhile = { .tv_nsec = PATIENCE_NS };
        (void)nanosleep(&awhile, NULL);
        done = cudaEventQuery(event) == cudaSuccess;
        (void)cudaGetLastError();
    }
    gate_open(other.closed);
    if (!has_ended) {
        (void)sem_post(&other.may_end);
        (void)pthread_join(thread, NULL);
    }
    (void)good("cudaDeviceSynchronize", (int)cudaDeviceSynchronize());
    return done;
}

void fact_all_is_behind_own_streams(void)
{
    int done = is_done_behind_own(false);
    if (done >= 0)
        answer(done == 0, "it was done while one stood still");
}

void fact_all_is_behind_ended_threads(void)
{
    int done = is_done_behind_own(true);
    if (done >= 0)
        answer(done == 0, "it was done while one stood still");
}

void fact_all_spoils_capture(void)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaEvent_t event;
    if (!all_find() || !GOOD(cudaEventCreateWithFlags, &event, cudaEventDisableTiming))
        return;
    cudaStream_t stream = capture_begin(cudaStreamNonBlocking);
    if (stream == NULL || !GOOD(cudaThreadExchangeStreamCaptureMode, &mode))
        return;
    int error = (int)all_record(all_context, event);
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    bool intact = capture_is_intact(stream);
    answer(!intact && error == (int)cudaErrorStreamCaptureUnsupported,
           intact ? "the capture goes on" : "another error");
}
