/* test_cuda.c - what the module for CUDA devices promises besides what the suites ask
 * of every device: that a call leaves the thread as it was, that each failure is told
 * with its own code and name, and that a capture elsewhere takes no harm. Over the
 * stand-in for the runtime; every primitive in turn. */
#include "support.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "device/device.h"
#include "device/module.h"
#include "fakes/fakes.h"
#include "internal.h"

#define BYTES      ((size_t)1 << 16)
#define USERS_OWN  5 /* the device whose context the calling thread has */

/* ---- one primitive ---- */

/* What it works on. */
typedef struct scene {
    weir_device *device;
    weir_device *peer;
    CUcontext context; /* the calling thread's */
    weir_stream stream;
    weir_stream made_stream;
    weir_event event;
    weir_mempool pool;
    void *ptr;
    void *host;
    bool is_done; /* the primitive has succeeded */
} scene;

typedef struct primitive {
    const char *name;
    weir_status memory; /* what a shortage of memory is told as */
    void (*prepare)(scene *it); /* may be null */
    weir_status (*act)(scene *it);
    void (*undo)(scene *it); /* may be null; also after a failure */
} primitive;

static void prepare_ptr(scene *it)
{
    must_ok(weir__malloc(it->device, BYTES, &it->ptr));
}

static void free_ptr(scene *it)
{
    must_ok(weir__stream_sync(it->device, it->stream));
    if (it->ptr != NULL)
        must_ok(weir__free(it->device, it->ptr));
    it->ptr = NULL;
}

static weir_status act_malloc(scene *it)
{
    return weir__malloc(it->device, BYTES, &it->ptr);
}

static weir_status act_free(scene *it)
{
    weir_status status = weir__free(it->device, it->ptr);
    if (status == WEIR_OK)
        it->ptr = NULL;
    return status;
}

static weir_status act_managed_malloc(scene *it)
{
    const weir_managed_options options = { sizeof options, WEIR_MANAGED_HOST, true };
    weir_status status = weir__managed_malloc(it->device, BYTES, &options, &it->ptr);
    if (status != WEIR_OK)
        it->ptr = NULL;
    return status;
}

static weir_status act_pinned_malloc(scene *it)
{
    return weir__pinned_malloc(it->device, BYTES, WEIR__PINNED_PORTABLE, &it->host);
}

static void prepare_pinned(scene *it)
{
    must_ok(act_pinned_malloc(it));
}

static weir_status act_pinned_free(scene *it)
{
    weir_status status = weir__pinned_free(it->device, it->host);
    if (status == WEIR_OK)
        it->host = NULL;
    return status;
}

static void free_pinned(scene *it)
{
    if (it->host != NULL)
        must_ok(act_pinned_free(it));
}

static unsigned char pages[2 * 4096] __attribute__((aligned(4096)));

static weir_status act_host_register(scene *it)
{
    return weir__host_register(it->device, pages, sizeof pages, WEIR__PINNED_MAPPED);
}

static void prepare_registered(scene *it)
{
    must_ok(act_host_register(it));
}

static weir_status act_host_unregister(scene *it)
{
    return weir__host_unregister(it->device, pages);
}

static void unregister_if_done(scene *it)
{
    if (it->is_done)
        must_ok(act_host_unregister(it));
}

static void unregister_if_not_done(scene *it)
{
    if (!it->is_done)
        must_ok(act_host_unregister(it));
}

static weir_status act_memory_info(scene *it)
{
    size_t free_bytes, total_bytes;
    return weir__memory_info(it->device, &free_bytes, &total_bytes);
}

static weir_status act_stream_create(scene *it)
{
    return weir__stream_create(it->device, true, &it->made_stream);
}

static void prepare_stream(scene *it)
{
    must_ok(act_stream_create(it));
}

static weir_status act_stream_destroy(scene *it)
{
    weir_status status = weir__stream_destroy(it->device, it->made_stream);
    if (status == WEIR_OK)
        it->made_stream = NULL;
    return status;
}

static void end_made_stream(scene *it)
{
    if (it->made_stream != NULL)
        must_ok(act_stream_destroy(it));
}

static weir_status act_stream_get_id(scene *it)
{
    uint64_t id;
    return weir__stream_get_id(it->device, it->stream, &id);
}

static weir_status act_stream_get_flags(scene *it)
{
    bool blocking;
    return weir__stream_get_flags(it->device, it->stream, &blocking);
}

static weir_status act_stream_is_capturing(scene *it)
{
    bool capturing;
    return weir__stream_is_capturing(it->device, it->stream, &capturing);
}

static weir_status act_stream_sync(scene *it)
{
    return weir__stream_sync(it->device, it->stream);
}

static void put_work(scene *it)
{
    must_ok(weir__fill(it->device, it->stream, it->ptr, 7, BYTES));
}

static void prepare_work(scene *it)
{
    prepare_ptr(it);
    put_work(it);
}

static weir_status act_stream_query(scene *it)
{
    bool done;
    return weir__stream_query(it->device, it->stream, &done);
}

static weir_status act_event_create(scene *it)
{
    return weir__event_create(it->device, &it->event);
}

static weir_status act_event_record(scene *it)
{
    return weir__event_record(it->device, it->event, it->stream);
}

static void prepare_event(scene *it)
{
    must_ok(act_event_create(it));
    prepare_work(it);
    must_ok(act_event_record(it));
}

static weir_status act_event_destroy(scene *it)
{
    weir_status status = weir__event_destroy(it->device, it->event);
    if (status == WEIR_OK)
        it->event = NULL;
    return status;
}

static void end_event(scene *it)
{
    if (it->event != NULL)
        must_ok(act_event_destroy(it));
    free_ptr(it);
}

static weir_status act_stream_wait_event(scene *it)
{
    return weir__stream_wait_event(it->device, it->stream, it->event);
}

static weir_status act_event_query(scene *it)
{
    bool done;
    return weir__event_query(it->device, it->event, &done);
}

static weir_status act_event_sync(scene *it)
{
    return weir__event_sync(it->device, it->event);
}

static weir_status act_device_sync(scene *it)
{
    return weir__device_sync(it->device);
}

static weir_status act_copy(scene *it)
{
    return weir__copy(it->device, it->stream, it->ptr, pages, sizeof pages);
}

static weir_status act_fill(scene *it)
{
    return weir__fill(it->device, it->stream, it->ptr, 3, BYTES);
}

static void do_nothing(void *argument, void *const views[])
{
    (void)argument;
    (void)views;
}

static weir_status act_launch(scene *it)
{
    return weir__launch(it->device, it->stream, do_nothing, NULL, NULL, 0);
}

static void wait_for_stream(scene *it)
{
    must_ok(act_stream_sync(it));
}

static weir_status act_enable_peer(scene *it)
{
    return weir__enable_peer(it->device, it->peer);
}

static weir_async_options pool_options(weir_async_memory memory)
{
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    options.memory = memory;
    options.release_threshold_bytes = SIZE_MAX;
    options.reuse = WEIR_ASYNC_REUSE_SAME_STREAM | WEIR_ASYNC_REUSE_EVENTS;
    return options;
}

static weir_status act_mempool_create(scene *it)
{
    weir_async_options options = pool_options(WEIR_ASYNC_DEVICE);
    weir_status status = weir__mempool_create(it->device, &options, &it->pool);
    if (status != WEIR_OK)
        it->pool = NULL;
    return status;
}

static void prepare_mempool(scene *it)
{
    must_ok(act_mempool_create(it));
}

static weir_status act_mempool_destroy(scene *it)
{
    weir_status status = weir__mempool_destroy(it->device, it->pool);
    if (status == WEIR_OK)
        it->pool = NULL;
    return status;
}

static weir_status act_mempool_free(scene *it)
{
    weir_status status = weir__mempool_free(it->device, it->stream, it->ptr);
    if (status == WEIR_OK)
        it->ptr = NULL;
    return status;
}

static void end_mempool(scene *it)
{
    if (it->ptr != NULL)
        must_ok(act_mempool_free(it));
    if (it->pool != NULL)
        must_ok(act_mempool_destroy(it));
    must_ok(act_stream_sync(it));
}

static weir_status act_mempool_default(scene *it)
{
    weir_mempool pool;
    return weir__mempool_default(it->device, WEIR_ASYNC_DEVICE, &pool);
}

static weir_status act_mempool_malloc(scene *it)
{
    return weir__mempool_malloc(it->device, it->pool, it->stream, BYTES, &it->ptr);
}

static void prepare_mempool_ptr(scene *it)
{
    prepare_mempool(it);
    must_ok(act_mempool_malloc(it));
}

static weir_status act_mempool_trim(scene *it)
{
    return weir__mempool_trim(it->device, it->pool, 0);
}

static weir_status act_mempool_get_state(scene *it)
{
    weir__mempool_state state;
    return weir__mempool_get_state(it->device, it->pool, &state);
}

#define NO_MEMORY WEIR_OUT_OF_MEMORY
#define AN_ERROR  WEIR_DEVICE_ERROR

static const primitive primitives[] = {
    { "malloc", NO_MEMORY, NULL, act_malloc, free_ptr },
    { "free", NO_MEMORY, prepare_ptr, act_free, free_ptr },
    { "managed_malloc", NO_MEMORY, NULL, act_managed_malloc, free_ptr },
    { "pinned_malloc", NO_MEMORY, NULL, act_pinned_malloc, free_pinned },
    { "pinned_free", NO_MEMORY, prepare_pinned, act_pinned_free, free_pinned },
    { "host_register", NO_MEMORY, NULL, act_host_register, unregister_if_done },
    { "host_unregister", NO_MEMORY, prepare_registered, act_host_unregister,
      unregister_if_not_done },
    { "memory_info", AN_ERROR, NULL, act_memory_info, NULL },
    { "stream_create", AN_ERROR, NULL, act_stream_create, end_made_stream },
    { "stream_destroy", AN_ERROR, prepare_stream, act_stream_destroy, end_made_stream },
    { "stream_get_id", AN_ERROR, NULL, act_stream_get_id, NULL },
    { "stream_get_flags", AN_ERROR, NULL, act_stream_get_flags, NULL },
    { "stream_is_capturing", AN_ERROR, NULL, act_stream_is_capturing, NULL },
    { "stream_sync", AN_ERROR, prepare_work, act_stream_sync, free_ptr },
    { "stream_query", AN_ERROR, prepare_work, act_stream_query, free_ptr },
    { "stream_wait_event", AN_ERROR, prepare_event, act_stream_wait_event, end_event },
    { "event_create", AN_ERROR, NULL, act_event_create, end_event },
    { "event_destroy", AN_ERROR, prepare_event, act_event_destroy, end_event },
    { "event_record", AN_ERROR, prepare_event, act_event_record, end_event },
    { "event_query", AN_ERROR, prepare_event, act_event_query, end_event },
    { "event_sync", AN_ERROR, prepare_event, act_event_sync, end_event },
    { "copy", AN_ERROR, prepare_ptr, act_copy, free_ptr },
    { "fill", AN_ERROR, prepare_ptr, act_fill, free_ptr },
    { "launch", AN_ERROR, NULL, act_launch, wait_for_stream },
    { "enable_peer", AN_ERROR, NULL, act_enable_peer, NULL },
    { "mempool_create", NO_MEMORY, NULL, act_mempool_create, end_mempool },
    { "mempool_default", NO_MEMORY, NULL, act_mempool_default, NULL },
    { "mempool_destroy", NO_MEMORY, prepare_mempool, act_mempool_destroy, end_mempool },
    { "mempool_malloc", NO_MEMORY, prepare_mempool, act_mempool_malloc, end_mempool },
    { "mempool_free", NO_MEMORY, prepare_mempool_ptr, act_mempool_free, end_mempool },
    { "mempool_trim", NO_MEMORY, prepare_mempool, act_mempool_trim, end_mempool },
    { "mempool_get_state", NO_MEMORY, prepare_mempool, act_mempool_get_state,
      end_mempool },
    /* The last: it may not be called while any stream is captured. */
    { "device_sync", AN_ERROR, prepare_work, act_device_sync, free_ptr },
};

enum { PRIMITIVES = sizeof primitives / sizeof primitives[0] };

/* ---- the scene ---- */

static weir_device *open_cuda(int ordinal)
{
    char name[16];
    weir_emulated_options options = WEIR_EMULATED_OPTIONS_INIT;
    options.memory_bytes = (size_t)256 << 20;
    options.scheduler = WEIR_EMULATED_STEPPED;
    options.no_ledger = true; /* nobody would tell it of hand-overs */
    fakes_set_device(ordinal, &options);
    weir__module_linked = weir__cuda_module();
    snprintf(name, sizeof name, "cuda:%d", ordinal);
    return open_with(name, NULL);
}

static void close_cuda(weir_device *device)
{
    must_ok(weir_device_sync(device));
    size_t free_bytes, total_bytes;
    must_ok(weir_device_memory(device, &free_bytes, &total_bytes));
    must_equal(free_bytes, total_bytes);
    close_anyhow(device);
}

/* The calling thread has a context of its own, of a device that is no affair of
 * Weir's. */
static scene scene_begin(void)
{
    scene it = { .device = open_cuda(0), .peer = open_cuda(1) };
    must_equal(cuDevicePrimaryCtxRetain(&it.context, USERS_OWN), 0);
    must_equal(cuCtxPushCurrent(it.context), 0);
    must_ok(weir__stream_create(it.device, false, &it.stream));
    fakes_forget();
    return it;
}

/* Nobody has another context than before, and there is no error to be found. */
static void must_be_untouched(const scene *it)
{
    fakes_state state = fakes_look();
    CUcontext current;
    must_equal(cuCtxGetCurrent(&current), 0);
    must(current == it->context);
    must_equal(state.pushed, 1);
    must_equal(state.retained, 3);
    must_equal(state.last_error, 0);
    must(!state.is_relaxed);
    must_equal(state.implicit, 0);
    must_equal(state.set_devices, 0);
    must_equal(state.timed_events, 0);
}

static void scene_end(scene *it)
{
    CUcontext popped;
    must_ok(weir__stream_destroy(it->device, it->stream));
    must_be_untouched(it);
    must_equal(cuCtxPopCurrent(&popped), 0);
    must_equal(cuDevicePrimaryCtxRelease(USERS_OWN), 0);
    close_cuda(it->peer);
    fakes_state state = fakes_look();
    must_equal(state.retained, 1);
    must_equal(state.device_blocks + state.pool_blocks + state.pinned_blocks +
                   state.registered_blocks + state.streams + state.events + state.pools,
               0);
    close_cuda(it->device);
    must_equal(fakes_look().retained, 0);
}

/* Does it once, with the nth call failing with `error` if nth is not 0. Returns the name
 * of the call that failed, or null. */
static const char *run(scene *it, const primitive *one, uint64_t nth, cudaError_t error,
                       weir_status *status)
{
    if (one->prepare != NULL)
        one->prepare(it);
    fakes_fail(NULL, nth, false, (int)error);
    *status = one->act(it);
    const char *struck = fakes_fault_struck();
    fakes_fail(NULL, 0, false, 0);
    must_be_untouched(it);
    it->is_done = *status == WEIR_OK;
    if (one->undo != NULL && *status != WEIR_DEVICE_LOST)
        one->undo(it);
    return struck;
}

/* ---- claims ---- */

static void calls_leave_the_thread_as_it_was(void **state)
{
    (void)state;
    scene it = scene_begin();
    for (int i = 0; i < PRIMITIVES; i++) {
        weir_status status;
        must(run(&it, &primitives[i], 0, cudaSuccess, &status) == NULL);
        must_ok(status);
    }
    scene_end(&it);
}

/* Each call that a primitive makes fails in turn; returns how many there are. */
static uint64_t fail_all(scene *it, const primitive *one, cudaError_t error,
                         weir_status wanted)
{
    for (uint64_t nth = 1;; nth++) {
        weir_status status;
        const char *struck = run(it, one, nth, error, &status);
        if (struck == NULL) {
            must_ok(status);
            return nth - 1;
        }
        bool works = strncmp(struck, "cuCtx", 5) != 0 &&
                     strncmp(struck, "cuDevice", 8) != 0 &&
                     strcmp(struck, "cudaThreadExchangeStreamCaptureMode") != 0;
        if (works)
            must_answer(wanted, status);
        must(status != WEIR_OK);
        const weir_error told = weir_last_error();
        must_equal(told.native_code, error);
        must(strstr(told.message, "cuda:0") != NULL);
        must(strstr(told.message, cudaGetErrorName(error)) != NULL);
    }
}

static void failures_are_told_with_their_own_code(void **state)
{
    (void)state;
    scene it = scene_begin();
    uint64_t calls = 0;
    for (int i = 0; i < PRIMITIVES; i++) {
        const primitive *one = &primitives[i];
        calls += fail_all(&it, one, cudaErrorUnknown, WEIR_DEVICE_ERROR);
        must(fail_all(&it, one, cudaErrorMemoryAllocation, one->memory) > 1);
        (void)fail_all(&it, one, cudaErrorNotSupported, WEIR_NOT_SUPPORTED);
    }
    must_equal(calls, 74);
    scene_end(&it);
}

/* Lost, and with it the device; and so for every call from then on. */
static void sticky_errors_lose_the_device(void **state)
{
    (void)state;
    static const cudaError_t errors[] = { cudaErrorIllegalAddress,
                                          cudaErrorLaunchFailure,
                                          cudaErrorECCUncorrectable };
    for (int i = 0; i < PRIMITIVES; i++) {
        weir_device *device = open_cuda(0);
        scene it = { .device = device, .peer = open_cuda(1) };
        must_ok(weir__stream_create(device, false, &it.stream));
        fakes_forget();
        if (primitives[i].prepare != NULL)
            primitives[i].prepare(&it);
        cudaError_t error = errors[i % 3];
        fakes_fail(NULL, 2, false, (int)error); /* the first pushes the context */
        must_answer(WEIR_DEVICE_LOST, primitives[i].act(&it));
        must_equal(weir_last_error().native_code, error);
        must(weir__device_is_lost(device));
        fakes_fail(NULL, 0, false, 0);
        must_equal(fakes_look().pushed, 0); /* such an error nobody can clear */
        uint64_t calls = fakes_calls("cudaMalloc");
        must_answer(WEIR_DEVICE_LOST, weir__malloc(device, BYTES, &it.ptr));
        must_equal(fakes_calls("cudaMalloc"), calls); /* nobody is asked any more */
        close_anyhow(it.peer);
        close_anyhow(device);
    }
}

static void events_have_no_timing(void **state)
{
    (void)state;
    scene it = scene_begin();
    must_ok(act_event_create(&it));
    fakes_state now = fakes_look();
    must_equal(now.event_flags, cudaEventDisableTiming);
    must_equal(now.timed_events, 0);
    end_event(&it);
    must_ok(weir__stream_create(it.device, false, &it.made_stream));
    must_equal(fakes_look().stream_flags, cudaStreamNonBlocking);
    end_made_stream(&it);
    scene_end(&it);
}

/* ---- a capture on another thread, in global mode ---- */

static void *capture_begin(void *argument)
{
    scene *it = argument;
    must_equal(cuCtxPushCurrent(it->context), 0);
    must_equal(cudaStreamBeginCapture(it->made_stream, cudaStreamCaptureModeGlobal), 0);
    CUcontext popped;
    must_equal(cuCtxPopCurrent(&popped), 0);
    return NULL;
}

static void on_another_thread(void *(*entry)(void *argument), void *argument)
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, entry, argument) == 0);
    must(pthread_join(thread, NULL) == 0);
}

/* Shows that the next test can fail. */
static void unsafe_calls_spoil_a_capture(void **state)
{
    (void)state;
    scene it = scene_begin();
    cudaGraph_t graph = NULL;
    cudaStream_t stream;
    must_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), 0);
    scene other = { .context = it.context, .made_stream = stream };
    on_another_thread(capture_begin, &other);
    must_equal(cudaMalloc(&it.ptr, BYTES), cudaErrorStreamCaptureUnsupported);
    must_equal(cudaGetLastError(), cudaErrorStreamCaptureUnsupported);
    must_equal(fakes_look().spoilt, 1);
    must_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureWrongThread);
    must_equal(cudaGetLastError(), cudaErrorStreamCaptureWrongThread);
    must_equal(cudaStreamDestroy(stream), 0);
    it.ptr = NULL;
    scene_end(&it);
}

static void captures_elsewhere_take_no_harm(void **state)
{
    (void)state;
    scene it = scene_begin();
    cudaStream_t stream;
    enum cudaStreamCaptureStatus capturing;
    must_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), 0);
    scene other = { .context = it.context, .made_stream = stream };
    on_another_thread(capture_begin, &other);
    for (int i = 0; i < PRIMITIVES - 1; i++) {
        weir_status status;
        (void)run(&it, &primitives[i], 0, cudaSuccess, &status);
        must_ok(status);
        must_equal(cudaStreamIsCapturing(stream, &capturing), 0);
        must_equal(capturing, cudaStreamCaptureStatusActive);
    }
    must_equal(fakes_look().spoilt, 0);
    must_equal(cudaStreamDestroy(stream), 0);
    scene_end(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_leave_the_thread_as_it_was),
        cmocka_unit_test(failures_are_told_with_their_own_code),
        cmocka_unit_test(sticky_errors_lose_the_device),
        cmocka_unit_test(events_have_no_timing),
        cmocka_unit_test(unsafe_calls_spoil_a_capture),
        cmocka_unit_test(captures_elsewhere_take_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
