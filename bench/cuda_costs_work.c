/* cuda_costs_work.c - the cost of events, streams, contexts, and of putting work. */
#include "cuda_costs.h"

#define MANY 64
#define STREAMS 100
#define BATCH 32
#define EVENT_FLAGS cudaEventDisableTiming

static cost c; /* too large for a stack */

/* ---- events ---- */

static void event_lives(unsigned flags, const char *how)
{
    static cost ends;
    cudaEvent_t events[MANY];

    cost_begin(&c, "cudaEventCreateWithFlags", how, 0);
    cost_begin(&ends, "cudaEventDestroy", how, 0);
    while (cost_goes_on(&c) && cost_goes_on(&ends)) {
        COST_TIMED(&c, MANY, cudaEventCreateWithFlags(&events[turn], flags));
        if (c.error == 0)
            COST_TIMED(&ends, MANY, cudaEventDestroy(events[turn]));
    }
    if (cost_end(&c))
        (void)cost_end(&ends);
}

static void event_records(cudaStream_t stream, unsigned flags, const char *how)
{
    cudaEvent_t event;

    if (!GOOD(cudaEventCreateWithFlags, &event, flags))
        return;
    cost_begin(&c, "cudaEventRecord", how, 0);
    while (cost_goes_on(&c)) {
        COST_TIMED(&c, BATCH, cudaEventRecord(event, stream));
        cost_note(&c, (int)cudaStreamSynchronize(stream));
    }
    (void)cost_end(&c);
    (void)GOOD(cudaEventDestroy, event);
}

/* Not ready is an answer here. */
static int asked(cudaEvent_t event)
{
    int error = (int)cudaEventQuery(event);
    if (error == (int)cudaErrorNotReady)
        (void)cudaGetLastError();
    return error == (int)cudaErrorNotReady ? 0 : error;
}

static void event_asks(cudaEvent_t event, cudaStream_t other, const char *how)
{
    cost_begin(&c, "cudaEventQuery", how, 0);
    while (cost_goes_on(&c))
        COST_TIMED(&c, BATCH, asked(event));
    if (!cost_end(&c))
        return;
    cost_begin(&c, "cudaStreamWaitEvent", how, 0);
    for (int i = 0; i < 20 && cost_goes_on(&c); i++) /* what waits takes up a queue */
        COST_TIMED(&c, 8, cudaStreamWaitEvent(other, event, 0));
    (void)cost_end(&c);
}

static void events_with(cudaStream_t stream, cudaStream_t other)
{
    cudaEvent_t event;

    event_lives(EVENT_FLAGS, "no timing");
    event_lives(cudaEventDefault, "timing");
    event_records(stream, EVENT_FLAGS, "no timing");
    event_records(stream, cudaEventDefault, "timing");
    if (!GOOD(cudaEventCreateWithFlags, &event, EVENT_FLAGS))
        return;
    if (GOOD(cudaEventRecord, event, stream) && GOOD(cudaStreamSynchronize, stream))
        event_asks(event, other, "done");
    gate *closed;
    if (GOOD(gate_put, stream, &closed) && GOOD(cudaEventRecord, event, stream))
        event_asks(event, other, "pending");
    gate_open(closed);
    (void)GOOD(cudaStreamSynchronize, stream);
    (void)GOOD(cudaStreamSynchronize, other);
    (void)GOOD(cudaEventDestroy, event);
}

void costs_of_events(void)
{
    cudaStream_t stream, other;

    if (!GOOD(cudaStreamCreateWithFlags, &stream, cudaStreamNonBlocking))
        return;
    if (GOOD(cudaStreamCreateWithFlags, &other, cudaStreamNonBlocking)) {
        events_with(stream, other);
        (void)GOOD(cudaStreamDestroy, other);
    }
    (void)GOOD(cudaStreamDestroy, stream);
}

/* ---- streams ---- */

void costs_of_streams(void)
{
    static cost ends;
    cudaStream_t streams[16];

    cost_begin(&c, "cudaStreamCreateWithFlags", "non-blocking", 0);
    cost_begin(&ends, "cudaStreamDestroy", "idle", 0);
    while (cost_goes_on(&c) && cost_goes_on(&ends)) {
        COST_TIMED(&c, 16, cudaStreamCreateWithFlags(&streams[turn],
                                                     cudaStreamNonBlocking));
        if (c.error == 0)
            COST_TIMED(&ends, 16, cudaStreamDestroy(streams[turn]));
    }
    if (cost_end(&c))
        (void)cost_end(&ends);
}

static void ids_of(const cudaStream_t *streams, int count, const char *how)
{
    unsigned long long id;
    enum cudaStreamCaptureStatus status;

    cost_begin(&c, "cudaStreamGetId", how, 0);
    while (cost_goes_on(&c))
        COST_TIMED(&c, STREAMS, cudaStreamGetId(streams[turn % count], &id));
    (void)cost_end(&c);
    cost_begin(&c, "cudaStreamIsCapturing", how, 0);
    while (cost_goes_on(&c))
        COST_TIMED(&c, STREAMS, cudaStreamIsCapturing(streams[turn % count], &status));
    (void)cost_end(&c);
}

void costs_of_ids(void)
{
    cudaStream_t streams[STREAMS], legacy = cudaStreamLegacy;
    int made = 0;

    while (made < STREAMS
           && GOOD(cudaStreamCreateWithFlags, &streams[made], cudaStreamNonBlocking))
        made++;
    if (made > 0) {
        ids_of(streams, 1, "one stream");
        ids_of(&legacy, 1, "legacy stream");
    }
    if (made == STREAMS)
        ids_of(streams, STREAMS, "100 streams");
    while (made > 0)
        (void)GOOD(cudaStreamDestroy, streams[--made]);
}

/* ---- contexts ---- */

typedef CUresult (*push_function)(CUcontext context);
typedef CUresult (*pop_function)(CUcontext *out);
typedef CUresult (*current_function)(CUcontext *out);
typedef CUresult (*id_function)(CUcontext context, unsigned long long *out);

static int push_and_pop(push_function push, pop_function pop, CUcontext context)
{
    CUcontext popped;
    int error = (int)push(context);
    return error != 0 ? error : (int)pop(&popped);
}

void costs_of_contexts(void)
{
    push_function push;
    pop_function pop;
    current_function current;
    id_function ask_id;
    unsigned long long id;
    CUcontext context;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

    cost_begin(&c, "cudaThreadExchangeStreamCaptureMode", "", 0);
    while (cost_goes_on(&c))
        COST_TIMED(&c, BATCH, cudaThreadExchangeStreamCaptureMode(&mode));
    (void)cost_end(&c);
    if (!GOOD_ENTRY("cuCtxPushCurrent", &push) || !GOOD_ENTRY("cuCtxPopCurrent", &pop)
        || !GOOD_ENTRY("cuCtxGetCurrent", &current)
        || !good("cuCtxGetCurrent", (int)current(&context)))
        return;
    cost_begin(&c, "cuCtxPushCurrent+Pop", "", 0);
    while (cost_goes_on(&c))
        COST_TIMED(&c, BATCH, push_and_pop(push, pop, context));
    (void)cost_end(&c);
    if (!GOOD_ENTRY("cuCtxGetId", &ask_id))
        return;
    cost_begin(&c, "cuCtxGetId", "", 0);
    while (cost_goes_on(&c))
        COST_TIMED(&c, BATCH, ask_id(context, &id));
    (void)cost_end(&c);
}

/* ---- work ---- */

static void CUDART_CB nothing(void *argument)
{
    (void)argument;
}

static void work_with(cudaStream_t stream, char *device, const char *host)
{
    cost_begin(&c, "cudaLaunchHostFunc", "", 0);
    while (cost_goes_on(&c)) {
        COST_TIMED(&c, 8, cudaLaunchHostFunc(stream, nothing, NULL));
        cost_note(&c, (int)cudaStreamSynchronize(stream));
    }
    (void)cost_end(&c);
    cost_begin(&c, "cudaMemsetAsync", "launch", 4096);
    while (cost_goes_on(&c)) {
        COST_TIMED(&c, 8, cudaMemsetAsync(device, 0, 4096, stream));
        cost_note(&c, (int)cudaStreamSynchronize(stream));
    }
    (void)cost_end(&c);
    cost_begin(&c, "cudaMemcpyAsync", "on the device", 4096);
    while (cost_goes_on(&c)) {
        COST_TIMED(&c, 8, cudaMemcpyAsync(device + 4096, device, 4096,
                                          cudaMemcpyDefault, stream));
        cost_note(&c, (int)cudaStreamSynchronize(stream));
    }
    (void)cost_end(&c);
    cost_begin(&c, "cudaMemcpyAsync", "from pinned", 4096);
    while (cost_goes_on(&c)) {
        COST_TIMED(&c, 8, cudaMemcpyAsync(device, host, 4096, cudaMemcpyDefault,
                                          stream));
        cost_note(&c, (int)cudaStreamSynchronize(stream));
    }
    (void)cost_end(&c);
}

void costs_of_work(void)
{
    cudaStream_t stream;
    void *device, *host;

    if (!GOOD(cudaStreamCreateWithFlags, &stream, cudaStreamNonBlocking))
        return;
    if (GOOD(cudaMalloc, &device, 8192)) {
        if (GOOD(cudaHostAlloc, &host, 4096, cudaHostAllocDefault)) {
            work_with(stream, device, host);
            (void)GOOD(cudaFreeHost, host);
        }
        (void)GOOD(cudaFree, device);
    }
    (void)GOOD(cudaStreamDestroy, stream);
}

void costs_of_syncs(void)
{
    cudaStream_t stream;
    size_t free_bytes, total;

    if (!GOOD(cudaStreamCreateWithFlags, &stream, cudaStreamNonBlocking))
        return;
    cost_begin(&c, "cudaStreamQuery", "idle", 0);
    while (cost_goes_on(&c))
        COST_TIMED(&c, BATCH, cudaStreamQuery(stream));
    (void)cost_end(&c);
    cost_begin(&c, "cudaStreamSynchronize", "idle", 0);
    while (cost_goes_on(&c))
        COST_TIMED(&c, BATCH, cudaStreamSynchronize(stream));
    (void)cost_end(&c);
    cost_begin(&c, "cudaDeviceSynchronize", "idle", 0);
    while (cost_goes_on(&c))
        COST_TIMED(&c, BATCH, cudaDeviceSynchronize());
    (void)cost_end(&c);
    cost_begin(&c, "cudaMemGetInfo", "", 0);
    while (cost_goes_on(&c))
        COST_TIMED(&c, 4, cudaMemGetInfo(&free_bytes, &total));
    (void)cost_end(&c);
    (void)GOOD(cudaStreamDestroy, stream);
}
