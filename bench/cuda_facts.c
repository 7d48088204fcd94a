/* cuda_facts.c - what Weir's emulated device takes for granted about CUDA, asked of the
 * device that is here.
 *
 *     cuda_facts [FACT...]     cuda_facts --list
 *
 * One line for each fact:
 *
 *     confirmed NAME: what is expected
 *     otherwise NAME: what is expected: what was seen
 *     refused NAME: which call answered what
 *
 * Each fact wants a process of its own where it may spoil the context for the others.
 * Exit status: 0 all confirmed or refused; 1 one is otherwise; 2 wrong usage, or no
 * device. */
#include "cuda_facts.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ROUNDS 1000

/* What is being asked now. */
static const char *fact_name, *fact_expected;
static bool any_otherwise, is_told;

static void tell(const char *word, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void tell(const char *word, const char *format, ...)
{
    va_list args;

    if (is_told)
        return;
    is_told = true;
    printf("%s %s: ", word, fact_name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

void answer(bool as_expected, const char *seen)
{
    any_otherwise = any_otherwise || !as_expected;
    if (as_expected)
        tell("confirmed", "%s", fact_expected);
    else
        tell("otherwise", "%s: %s", fact_expected, seen);
}

bool good(const char *call, int error)
{
    if (error == 0)
        return true;
    (void)cudaGetLastError();
    tell("refused", "%s answered %s", call, cudaGetErrorName((cudaError_t)error));
    return false;
}

/* ---- streams that two facts are about ---- */

cudaStream_t stream_of(unsigned flags)
{
    cudaStream_t stream;
    return GOOD(cudaStreamCreateWithFlags, &stream, flags) ? stream : NULL;
}

/* Whether an event recorded on `second` is done while `first` stands still; 1, 0, or -1
 * where something was refused. */
static int is_done_behind(cudaStream_t first, cudaStream_t second)
{
    cudaEvent_t event;
    gate *closed;
    int done = -1;

    if (!GOOD(cudaEventCreateWithFlags, &event, cudaEventDisableTiming)
        || !GOOD(gate_put, first, &closed))
        return -1;
    if (GOOD(cudaEventRecord, event, second)) {
        struct timespec now, start;
        cudaError_t error = cudaErrorNotReady;
        clock_gettime(CLOCK_MONOTONIC, &start);
        do {
            error = cudaEventQuery(event);
            clock_gettime(CLOCK_MONOTONIC, &now);
        } while (error == cudaErrorNotReady
                 && (now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec
                        - start.tv_nsec < PATIENCE_NS);
        (void)cudaGetLastError();
        if (error == cudaSuccess || error == cudaErrorNotReady)
            done = error == cudaSuccess;
        else
            (void)good("cudaEventQuery", (int)error);
    }
    gate_open(closed);
    (void)good("cudaDeviceSynchronize", (int)cudaDeviceSynchronize());
    return done;
}

static void legacy_is_a_barrier(void)
{
    cudaStream_t stream = stream_of(cudaStreamDefault);
    if (stream == NULL)
        return;
    int done = is_done_behind(cudaStreamLegacy, stream);
    if (done == 0)
        done = is_done_behind(stream, cudaStreamLegacy);
    if (done >= 0)
        answer(done == 0, "it was done while the other stood still");
}

static void legacy_spares_non_blocking(void)
{
    cudaStream_t stream = stream_of(cudaStreamNonBlocking);
    if (stream == NULL)
        return;
    int done = is_done_behind(cudaStreamLegacy, stream);
    if (done >= 0)
        answer(done == 1, "it waited");
}

static void fresh_event_is_done(void)
{
    cudaEvent_t event;
    cudaStream_t stream = stream_of(cudaStreamNonBlocking);
    if (stream == NULL
        || !GOOD(cudaEventCreateWithFlags, &event, cudaEventDisableTiming))
        return;
    bool done = cudaEventQuery(event) == cudaSuccess
                && cudaStreamWaitEvent(stream, event, 0) == cudaSuccess
                && cudaStreamSynchronize(stream) == cudaSuccess;
    answer(done, "a call did not answer success");
}

static void ids_are_unique(void)
{
    static unsigned long long ids[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        cudaStream_t stream = stream_of(cudaStreamNonBlocking);
        if (stream == NULL || !GOOD(cudaStreamGetId, stream, &ids[i])
            || !GOOD(cudaStreamDestroy, stream))
            return;
        for (int k = 0; k < i; k++) {
            if (ids[k] == ids[i]) {
                answer(false, "one came twice");
                return;
            }
        }
    }
    answer(true, "");
}

static void handles_are_reused(void)
{
    static cudaStream_t seen[ROUNDS];
    bool reused = false;

    for (int i = 0; i < ROUNDS && !reused; i++) {
        seen[i] = stream_of(cudaStreamNonBlocking);
        if (seen[i] == NULL || !GOOD(cudaStreamDestroy, seen[i]))
            return;
        for (int k = 0; k < i; k++)
            reused = reused || seen[k] == seen[i];
    }
    answer(reused, "1000 streams had as many handles");
}

/* ---- what waits on the host ---- */

void *aside_thread(void *argument)
{
    aside *self = argument;
    self->error = self->run(self->argument);
    (void)sem_post(&self->is_back);
    return NULL;
}

/* Whether the call comes back while `stream` stands still; -1: refused. */
static int comes_back(cudaStream_t stream, const char *name, int (*run)(void *),
                      void *argument)
{
    aside call = { .run = run, .argument = argument };
    pthread_t thread;
    struct timespec until;
    gate *closed;

    if (!GOOD(gate_put, stream, &closed))
        return -1;
    (void)sem_init(&call.is_back, 0, 0);
    if (pthread_create(&thread, NULL, aside_thread, &call) != 0) {
        gate_open(closed);
        return -1;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += PATIENCE_NS;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    bool back = sem_timedwait(&call.is_back, &until) == 0;
    gate_open(closed);
    (void)pthread_join(thread, NULL);
    (void)sem_destroy(&call.is_back);
    return good(name, call.error) ? back : -1;
}

static int call_free(void *ptr)
{
    return (int)cudaFree(ptr);
}

static void free_waits(void)
{
    cudaStream_t stream = stream_of(cudaStreamNonBlocking);
    void *ptr;
    if (stream == NULL || !GOOD(cudaMalloc, &ptr, 4 << 20))
        return;
    int back = comes_back(stream, "cudaFree", call_free, ptr);
    if (back >= 0)
        answer(back == 0, "it came back while a stream stood still");
}

typedef struct pool_block {
    void *ptr;
    cudaStream_t stream;
} pool_block;

static int call_free_async(void *argument)
{
    pool_block *block = argument;
    return (int)cudaFreeAsync(block->ptr, block->stream);
}

static void pool_free_does_not_wait(void)
{
    pool_block block = { .stream = stream_of(cudaStreamNonBlocking) };
    if (block.stream == NULL
        || !GOOD(cudaMallocAsync, &block.ptr, 4 << 20, block.stream))
        return;
    int back = comes_back(block.stream, "cudaFreeAsync", call_free_async, &block);
    if (back >= 0)
        answer(back == 1, "it waited");
}

static int call_destroy(void *stream)
{
    return (int)cudaStreamDestroy(stream);
}

static void destroy_does_not_wait(void)
{
    cudaStream_t stream = stream_of(cudaStreamNonBlocking);
    if (stream == NULL)
        return;
    int back = comes_back(stream, "cudaStreamDestroy", call_destroy, stream);
    if (back >= 0)
        answer(back == 1, "it waited");
}

/* ---- memory ---- */

static void small_pinned_is_packed(void)
{
    bool is_packed = false;
    for (int i = 0; i < 16; i++) {
        void *ptr;
        if (!GOOD(cudaHostAlloc, &ptr, 3073, cudaHostAllocPortable))
            return;
        is_packed = is_packed || (uintptr_t)ptr % 4096 != 0;
    }
    answer(is_packed, "16 blocks begin with a page each");
}

static void pool_is_exported_first(void)
{
    cudaMemPool_t pool;
    struct cudaMemPoolProps properties;
    struct cudaMemPoolPtrExportData place;
    const enum cudaMemAllocationHandleType kind = cudaMemHandleTypePosixFileDescriptor;
    cudaStream_t stream = stream_of(cudaStreamNonBlocking);
    void *ptr;
    int fd;

    memset(&properties, 0, sizeof properties);
    properties.allocType = cudaMemAllocationTypePinned;
    properties.handleTypes = kind;
    properties.location.type = cudaMemLocationTypeDevice;
    if (stream == NULL || !GOOD(cudaMemPoolCreate, &pool, &properties)
        || !GOOD(cudaMallocFromPoolAsync, &ptr, 4 << 20, pool, stream))
        return;
    cudaError_t before = cudaMemPoolExportPointer(&place, ptr);
    (void)cudaGetLastError();
    if (GOOD(cudaMemPoolExportToShareableHandle, &fd, pool, kind, 0)
        && GOOD(cudaMemPoolExportPointer, &place, ptr))
        answer(before == cudaErrorInvalidValue, cudaGetErrorName(before));
}

/* ---- contexts and errors ---- */

static void context_is_unchanged(void)
{
    CUresult (*current)(CUcontext *);
    CUresult (*set)(CUcontext);
    CUresult (*push)(CUcontext);
    CUresult (*pop)(CUcontext *);
    CUcontext primary, now, popped;
    cudaStream_t stream;
    void *ptr;

    if (!good("cuCtxGetCurrent", driver_find("cuCtxGetCurrent", &current))
        || !good("cuCtxSetCurrent", driver_find("cuCtxSetCurrent", &set))
        || !good("cuCtxPushCurrent", driver_find("cuCtxPushCurrent", &push))
        || !good("cuCtxPopCurrent", driver_find("cuCtxPopCurrent", &pop))
        || !good("cuCtxGetCurrent", (int)current(&primary))
        || !good("cuCtxSetCurrent", (int)set(NULL))
        || !good("cuCtxPushCurrent", (int)push(primary)))
        return;
    bool done = GOOD(cudaStreamCreateWithFlags, &stream, cudaStreamNonBlocking)
                && GOOD(cudaMalloc, &ptr, 4096) && GOOD(cudaFree, ptr)
                && GOOD(cudaStreamDestroy, stream);
    if (!good("cuCtxPopCurrent", (int)pop(&popped))
        || !good("cuCtxGetCurrent", (int)current(&now)) || !done)
        return;
    answer(popped == primary && now == NULL, "the thread has a context");
}

static void error_stays(void)
{
    void *ptr = NULL;
    cudaError_t error = cudaMalloc(&ptr, (size_t)1 << 60);
    bool stays = error != cudaSuccess && cudaPeekAtLastError() == error
                 && cudaGetLastError() == error && cudaGetLastError() == cudaSuccess;
    answer(stays, "it did not");
}

/* ---- the program ---- */

static const struct {
    const char *name;
    void (*ask)(void);
    const char *expected;
} facts[] = {
#define FACT(name, expected) { #name, name, expected }
#define FACT_ELSEWHERE(name, expected) { #name, fact_##name, expected }
    FACT(legacy_is_a_barrier,
         "an event on a blocking stream is behind what the legacy stream had, and the "
         "other way round"),
    FACT(legacy_spares_non_blocking,
         "an event on a non-blocking stream is not behind the legacy stream"),
    FACT(fresh_event_is_done, "an event that was never recorded is done, and no wait"),
    FACT(ids_are_unique, "no stream id comes twice"),
    FACT(handles_are_reused, "handles of streams that were destroyed come again"),
    FACT(free_waits, "cudaFree waits for work on any stream"),
    FACT(pool_free_does_not_wait, "cudaFreeAsync does not wait"),
    FACT(destroy_does_not_wait,
         "cudaStreamDestroy does not wait for the stream's work"),
    FACT_ELSEWHERE(legacy_is_not_asked_in_capture,
         "while a blocking stream captures, cudaStreamIsCapturing of the legacy stream "
         "answers cudaErrorStreamCaptureImplicit and the capture goes on"),
    FACT_ELSEWHERE(query_spoils_global_capture,
         "cudaEventQuery on another thread is refused under a global capture, which it "
         "spoils"),
    FACT_ELSEWHERE(relaxed_query_spares_capture,
         "in relaxed mode it is answered, and the capture goes on"),
    FACT_ELSEWHERE(relaxed_malloc_spares_capture,
         "cudaMalloc in relaxed mode is served during a capture, which goes on"),
    FACT_ELSEWHERE(name_spoils_capture,
         "cudaStreamGetId and cudaStreamGetFlags of a stream that is captured are "
         "refused in relaxed mode, too, and spoil the capture"),
    FACT_ELSEWHERE(capturing_spares_capture,
         "whether it is captured may be asked, and the capture goes on"),
    FACT_ELSEWHERE(all_is_behind_own_streams,
         "an event of cuCtxRecordEvent is behind other threads' own streams"),
    FACT_ELSEWHERE(all_is_behind_ended_threads,
         "and behind those of threads that have ended"),
    FACT_ELSEWHERE(all_spoils_capture,
         "cuCtxRecordEvent is refused while anything is captured, and spoils that"),
    FACT(small_pinned_is_packed,
         "cudaHostAlloc does not begin a page for what is small"),
    FACT(pool_is_exported_first,
         "cudaMemPoolExportPointer is refused until the pool was exported"),
    FACT_ELSEWHERE(pool_returns_at_sync,
         "a pool with release threshold 0 gives its memory back at a stream's wait"),
    FACT_ELSEWHERE(pool_reuses_on_one_stream,
         "a pool hands memory out again on the stream that freed it, before that is "
         "done"),
    FACT_ELSEWHERE(early_end_crashes,
         "after a pool was destroyed while what was freed to it was not done, an "
         "allocation from another, on a default stream, crashes"),
    FACT_ELSEWHERE(empty_end_is_sound,
         "but not after one that had nothing any more, behind a wait of the host"),
    FACT(context_is_unchanged,
         "between a push and a pop of the primary context, calls leave the thread's "
         "stack of contexts as it was"),
    FACT(error_stays,
         "a failed call stays the runtime's last error until it is asked for"),
#undef FACT
#undef FACT_ELSEWHERE
};

#define FACTS (sizeof facts / sizeof *facts)

static void fact_ask(size_t index)
{
    fact_name = facts[index].name;
    fact_expected = facts[index].expected;
    is_told = false;
    facts[index].ask();
    if (!is_told)
        tell("refused", "it could not be asked");
}

int main(int argc, char **argv)
{
    bool known = true;

    fact_name = "device";
    if (argc == 3 && strcmp(argv[1], ENDS_POOLS) == 0)
        return ends_pools(argv[2]);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < FACTS; i++)
            puts(facts[i].name);
        return 0;
    }
    if (!GOOD(cudaSetDevice, 0) || !GOOD(cudaFree, NULL)) /* makes the context */
        return 2;
    for (size_t i = 0; argc == 1 && i < FACTS; i++)
        fact_ask(i);
    for (int k = 1; k < argc; k++) {
        bool found = false;
        for (size_t i = 0; i < FACTS && !found; i++) {
            found = strcmp(argv[k], facts[i].name) == 0;
            if (found)
                fact_ask(i);
        }
        known = known && found;
        if (!found)
            fprintf(stderr, "cuda_facts: there is no fact %s; see --list\n", argv[k]);
    }
    return !known ? 2 : any_otherwise ? 1 : 0;
}
