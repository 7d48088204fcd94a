/* test_cuda.c - what the module for CUDA devices promises besides what the suites ask
 * of every device: that a call leaves the thread as it was, that each failure is told
 * with its own code and name, and that a capture elsewhere takes no harm. Over the
 * stand-in for the runtime; every primitive in turn. */
#include "support.h"

#include <pthread.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "fakes/primitives.h"
#include "internal.h"
#include "weir/current.h"
#include "weir/dlpack.h"

#define USERS_OWN 5 /* the device whose context the calling thread has */

/* ---- the scene ---- */

/* The calling thread has a context of its own, of a device that is no affair of
 * Weir's. */
static scene scene_begin(void)
{
    scene it = { .device = cuda_open(0), .peer = cuda_open(1) };
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
    close_emulated(it->peer);
    fakes_state state = fakes_look();
    must_equal(state.retained, 2); /* the peer's is kept */
    must_equal(state.device_blocks, 0);
    must_equal(state.pool_blocks, 0);
    must_equal(state.pinned_blocks, 0);
    must_equal(state.registered_blocks, 0);
    must_equal(state.streams + state.events + state.pools, 0);
    must_equal(state.objects + state.mappings + state.addresses + state.opened, 0);
    close_emulated(it->device);
    must_equal(fakes_look().retained, 0);
}

/* Does it once, with the nth call failing with `error` if nth is not 0. Returns the
 * name of the call that failed, or null. */
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
        bool is_too_long = wanted == WEIR_NOT_SUPPORTED &&
                           strcmp(one->name, "shared_open") == 0 &&
                           strcmp(struck, "cuMemMap") == 0;
        if (works)
            must_answer(is_too_long ? WEIR_INVALID_ARGUMENT : wanted, status);
        must(status != WEIR_OK);
        const weir_error told = weir_last_error();
        must_equal(told.native_code, error);
        must(strstr(told.message, "cuda:0") != NULL);
        must(strstr(told.message, "cu") == told.message); /* the call, not ours */
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
    must_equal(calls, 3 * PRIMITIVES + 42);
    scene_end(&it);
}

/* Lost, and with it the device; and so for every call from then on. */
static void sticky_errors_lose_the_device(void **state)
{
    (void)state;
    static const cudaError_t errors[] = {
        cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorECCUncorrectable,
        cudaErrorNvlinkUncorrectable, cudaErrorLaunchTimeout, cudaErrorAssert,
        cudaErrorContextIsDestroyed, cudaErrorHardwareStackError,
        cudaErrorIllegalInstruction, cudaErrorMisalignedAddress,
        cudaErrorInvalidAddressSpace, cudaErrorInvalidPc, cudaErrorCudartUnloading,
        cudaErrorExternalDevice, cudaErrorMpsClientTerminated,
        (cudaError_t)226 /* contained */, (cudaError_t)721 /* tensor memory leak */ };
    const int count = sizeof errors / sizeof errors[0];
    for (int i = 0; i < PRIMITIVES; i++) {
        weir_device *device = cuda_open(0);
        scene it = { .device = device, .peer = cuda_open(1) };
        must_ok(weir__stream_create(device, false, &it.stream));
        fakes_forget();
        if (primitives[i].prepare != NULL)
            primitives[i].prepare(&it);
        cudaError_t error = errors[i % count];
        fakes_fail(NULL, 3, false, (int)error); /* two are to push the context */
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

/* Its mode cannot be relaxed: nothing has happened. Its context or mode cannot be put
 * back: nothing can be promised of it any more. */
static void threads_that_stay_changed_lose_the_device(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        uint64_t nth;
        weir_status wanted;
    } cases[] = {
        { "cudaThreadExchangeStreamCaptureMode", 1, WEIR_DEVICE_ERROR },
        { "cudaThreadExchangeStreamCaptureMode", 2, WEIR_DEVICE_LOST },
        { "cuCtxPopCurrent", 1, WEIR_DEVICE_LOST },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_device *device = cuda_open(0);
        size_t free_bytes, total_bytes;
        fakes_fail(cases[i].call, cases[i].nth, false, cudaErrorNotPermitted);
        must_answer(cases[i].wanted, weir__memory_info(device, &free_bytes,
                                                       &total_bytes));
        must_equal(weir_last_error().native_code, cudaErrorNotPermitted);
        must(strstr(weir_last_error().message, cases[i].call) != NULL);
        must_equal(fakes_look().last_error, 0);
        must_equal(fakes_look().pushed, i == 2);
        must_equal(weir__device_is_lost(device), cases[i].wanted == WEIR_DEVICE_LOST);
        close_anyhow(device);
        must_equal(fakes_look().pushed, 0);
    }
}

/* While it is asked for: the id is still its own, and it is none any more. */
static void a_context_that_is_reset_meanwhile_is_lost(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    size_t free_bytes, total_bytes;
    fakes_fail("cuCtxPushCurrent", 1, false, CUDA_ERROR_INVALID_CONTEXT);
    must_answer(WEIR_DEVICE_LOST, weir__memory_info(device, &free_bytes, &total_bytes));
    must_equal(weir_last_error().native_code, CUDA_ERROR_INVALID_CONTEXT);
    must(weir__device_is_lost(device));
    must_equal(fakes_look().pushed, 0);
    close_anyhow(device);
}

static void events_have_no_timing(void **state)
{
    (void)state;
    scene it = scene_begin();
    must_ok(weir__event_create(it.device, &it.event));
    fakes_state now = fakes_look();
    must_equal(now.event_flags, cudaEventDisableTiming);
    must_equal(now.timed_events, 0);
    must_ok(weir__event_destroy(it.device, it.event));
    must_ok(weir__stream_create(it.device, false, &it.made_stream));
    must_equal(fakes_look().stream_flags, cudaStreamNonBlocking);
    must_ok(weir__stream_destroy(it.device, it.made_stream));
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

/* ---- what a device passes on ---- */

static void devices_of_two_kinds_are_no_peers(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0), *emulated;
    must_ok(weir_device_open("emulated:15", NULL, &emulated));
    must_answer(WEIR_NOT_SUPPORTED, weir_device_enable_peer(device, emulated));
    must_answer(WEIR_NOT_SUPPORTED, weir_device_enable_peer(emulated, device));
    must_equal(fakes_look().last_error, 0);
    weir_device_unref(emulated);
    close_emulated(device);
}

/* Each way of reuse has an attribute of its own. */
static void pools_reuse_as_they_were_told(void **state)
{
    (void)state;
    static const struct {
        uint32_t bit;
        enum cudaMemPoolAttr attribute;
    } ways[] = {
        { WEIR_ASYNC_REUSE_EVENTS, cudaMemPoolReuseFollowEventDependencies },
        { WEIR_ASYNC_REUSE_OPPORTUNISTIC, cudaMemPoolReuseAllowOpportunistic },
        { WEIR_ASYNC_REUSE_INTERNAL, cudaMemPoolReuseAllowInternalDependencies },
    };
    enum { WAYS = sizeof ways / sizeof ways[0] };
    weir_device *device = cuda_open(0);
    CUcontext context; /* to ask the pool itself */
    must_equal(cuDevicePrimaryCtxRetain(&context, 0), 0);
    must_equal(cuCtxPushCurrent(context), 0);
    for (uint32_t i = 0; i < 1u << WAYS; i++) {
        weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
        weir_mempool pool;
        options.reuse = WEIR_ASYNC_REUSE_SAME_STREAM;
        for (uint32_t way = 0; way < WAYS; way++)
            options.reuse |= (i >> way & 1) != 0 ? ways[way].bit : 0;
        must_ok(weir__mempool_create(device, &options, &pool));
        for (uint32_t way = 0; way < WAYS; way++) {
            int value = -1;
            must_equal(cudaMemPoolGetAttribute((cudaMemPool_t)pool, ways[way].attribute,
                                               &value), cudaSuccess);
            must_equal(value, i >> way & 1);
        }
        must_ok(weir__mempool_destroy(device, pool));
    }
    must_equal(cuCtxPopCurrent(&context), 0);
    must_equal(cuDevicePrimaryCtxRelease(0), 0);
    close_emulated(device);
}

/* Managed memory is worked on by the device's streams: by what is current there. */
static void consumers_of_managed_memory_are_told_its_stream(void **state)
{
    (void)state;
    static const int32_t types[] = { WEIR_DLPACK_CUDA, WEIR_DLPACK_CUDA_MANAGED };
    weir_device *device = cuda_open(0);
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_set_current_stream(device, stream, NULL));
    for (int i = 0; i < 2; i++) {
        void *current = NULL;
        must_equal(weir_dlpack_current_work_stream(types[i], 0, &current), 0);
        must(current == stream);
    }
    must_ok(weir_set_current_stream(device, NULL, NULL));
    end_stream(device, stream);
    close_emulated(device);
}

/* ---- captures elsewhere ---- */

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
    fakes_forget();
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
    for (int i = 0; i < SAFE_PRIMITIVES; i++) {
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
        cmocka_unit_test(threads_that_stay_changed_lose_the_device),
        cmocka_unit_test(a_context_that_is_reset_meanwhile_is_lost),
        cmocka_unit_test(events_have_no_timing),
        cmocka_unit_test(devices_of_two_kinds_are_no_peers),
        cmocka_unit_test(pools_reuse_as_they_were_told),
        cmocka_unit_test(consumers_of_managed_memory_are_told_its_stream),
        cmocka_unit_test(unsafe_calls_spoil_a_capture),
        cmocka_unit_test(captures_elsewhere_take_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
