/* test_cuda_open.c - CUDA devices are opened, or it is said why not; what a program
 * does with the runtime itself meanwhile; and the leaves on them. Over the stand-in. */
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "device/module.h"
#include "fakes/primitives.h"
#include "internal.h"
#include "weir/weir.h"

/* ---- opening ---- */

static void must_not_open(const char *name, const char *words)
{
    weir_device *device;
    weir__module_linked = weir__cuda_module();
    size_t live = weir__host_live();
    must_answer(WEIR_NOT_SUPPORTED, weir_device_open(name, NULL, &device));
    must(device == NULL);
    must(strstr(weir_last_error().message, words) != NULL);
    must_equal(weir__host_live(), live);
    must_equal(fakes_look().retained, 0);
    must_equal(fakes_look().last_error, 0);
    must_equal(fakes_look().implicit, 0);
}

/* "auto" then is the emulated device. */
static void must_be_emulated(void)
{
    weir_device *device;
    weir_device_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_device_open("auto", NULL, &device));
    must_ok(weir_device_get_properties(device, &properties));
    must(properties.emulated);
    weir_device_unref(device);
}

static void devices_that_are_not_there_are_told(void **state)
{
    (void)state;
    weir_device *none; /* the record of a failure stays with the thread */
    must(weir_device_open("no device", NULL, &none) == WEIR_INVALID_ARGUMENT);
    static const struct {
        fakes_machine machine;
        const char *name;
        const char *words;
    } cases[] = {
        { { .driver_version = -1 }, "cuda:0", "no NVIDIA driver" },
        { { .driver_version = 11080 }, "cuda:0", "newer" },
        { { .devices = -1 }, "cuda:0", "0 CUDA devices" },
        { { .devices = 2 }, "cuda:2", "2 CUDA devices" },
        { { .missing = "cuCtxPushCurrent" }, "cuda:0", "cuCtxPushCurrent" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fakes_set_machine(&cases[i].machine);
        must_not_open(cases[i].name, cases[i].words);
        if (strcmp(cases[i].name, "cuda:0") == 0)
            must_be_emulated();
    }
    fakes_set_machine(NULL);
}

/* A library that is there for linking only: as good as no driver. */
static void stubs_are_no_driver(void **state)
{
    (void)state;
    static const char *const calls[] = { "cudaDriverGetVersion", "cudaGetDeviceCount" };
    for (size_t i = 0; i < 2; i++) {
        fakes_fail(calls[i], 1, true, cudaErrorStubLibrary);
        must_not_open("cuda:0", "cudaErrorStubLibrary");
        must_be_emulated();
        fakes_fail(NULL, 0, false, 0);
    }
}

static void must_refuse_module(const weir__module *module)
{
    weir_device *device;
    weir__module_linked = module;
    must_answer(WEIR_NOT_SUPPORTED, weir_device_open("cuda:0", NULL, &device));
    must(strstr(weir_last_error().message, "another build") != NULL);
    must(device == NULL);
}

static void modules_of_other_builds_are_refused(void **state)
{
    (void)state;
    weir__module module = *weir__cuda_module();
    module.version++;
    must_refuse_module(&module);
    module = *weir__cuda_module();
    module.ops_size -= sizeof(void *);
    must_refuse_module(&module);
    module = *weir__cuda_module();
    module.struct_size++;
    must_refuse_module(&module);
    weir__module_linked = NULL; /* there is none beside this program */
    weir_device *device;
    must_answer(WEIR_NOT_SUPPORTED, weir_device_open("cuda:0", NULL, &device));
    must(strstr(weir_last_error().message, "module") != NULL);
}

/* Each call on the way fails in turn; nothing stays behind. */
static void opening_survives_every_failure(void **state)
{
    (void)state;
    weir_device *device;
    weir__module_linked = weir__cuda_module();
    uint64_t nth = 0;
    size_t live = weir__host_live();
    const char *struck;
    do {
        fakes_fail(NULL, ++nth, false, cudaErrorUnknown);
        weir_status status = weir_device_open("cuda:4", NULL, &device);
        struck = fakes_fault_struck();
        fakes_fail(NULL, 0, false, 0);
        must((struck == NULL) == (status == WEIR_OK));
        if (status == WEIR_OK)
            break;
        must_answer(WEIR_DEVICE_ERROR, status);
        must_equal(weir_last_error().native_code, cudaErrorUnknown);
        must(strstr(weir_last_error().message, "cudaErrorUnknown") != NULL);
        must(device == NULL);
        must_equal(weir__host_live(), live);
        must_equal(fakes_look().retained, 0);
        must_equal(fakes_look().last_error, 0);
    } while (struck != NULL);
    must(nth > 15);
    /* Nobody else's context was made. */
    must_equal(fakes_look().retained, 1);
    must_equal(fakes_look().implicit, 0);
    must_equal(fakes_look().pushed, 0);
    weir_device_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_device_get_properties(device, &properties));
    must_equal(properties.ordinal, 4);
    must(!properties.emulated && strstr(properties.description, "GPU 4") != NULL);
    must_equal(properties.uuid[15], 4);
    weir_device_unref(device);
    must_equal(fakes_look().retained, 0);
    must_equal(weir__host_live(), live);
}

static void devices_without_host_memory_do_not_open(void **state)
{
    (void)state;
    weir_device *device = NULL;
    weir__module_linked = weir__cuda_module();
    size_t live = weir__host_live();
    for (uint64_t nth = 1; device == NULL; nth++) {
        weir__host_fail_at(nth, false);
        weir_status status = weir_device_open("cuda:4", NULL, &device);
        weir__host_fail_at(0, false);
        must(status == WEIR_OK || status == WEIR_OUT_OF_HOST_MEMORY);
        if (status != WEIR_OK)
            must_equal(weir__host_live(), live);
    }
    must_answer(WEIR_OUT_OF_HOST_MEMORY, (weir__host_fail_at(1, false),
                weir__launch(device, NULL, NULL, NULL, NULL, 0)));
    weir__host_fail_at(0, false);
    weir_emulated_range range = { &device, 1, WEIR_EMULATED_READ };
    must_answer(WEIR_NOT_SUPPORTED, weir__launch(device, NULL, NULL, NULL, &range, 1));
    must_answer(WEIR_NOT_SUPPORTED, weir_emulated_step(device, &(bool){ false }));
    weir_device_unref(device);
}

/* ---- what is not there ---- */

static void what_a_device_lacks_is_told(void **state)
{
    (void)state;
    static const fakes_machine poor = { .no_peers = true, .no_pools = true,
                                        .no_managed = true, .no_pageable = true };
    fakes_set_machine(&poor);
    weir_device *device = cuda_open(0), *peer = cuda_open(1);
    weir_resource *mr;
    void *ptr;
    must_answer(WEIR_NOT_SUPPORTED, weir_device_enable_peer(device, peer));
    must_answer(WEIR_NOT_SUPPORTED, weir_async_create(device, NULL, &mr));
    must_answer(WEIR_NOT_SUPPORTED, weir__host_malloc(device, 1000, 256, &ptr));
    const weir_managed_options managed = WEIR_MANAGED_OPTIONS_INIT;
    must_answer(WEIR_NOT_SUPPORTED, weir__managed_malloc(device, 1000, &managed, &ptr));
    must_equal(fakes_look().last_error, 0);
    fakes_set_machine(NULL);
    must_ok(weir_device_enable_peer(device, peer));
    must_ok(weir_device_enable_peer(device, peer)); /* as good as the first time */
    must_equal(fakes_look().last_error, 0);
    close_emulated(peer);
    close_emulated(device);
}

/* Told by what the device says of itself: to a driver it would be a wrong argument. */
static void pools_that_a_device_lacks_are_told(void **state)
{
    (void)state;
    static const fakes_machine poor = { .no_host_pools = true, .no_handles = true,
                                        .no_registered = true };
    static const char *const lacking[] = {
        "async(memory=pinned)", "async(memory=pinned, numa=0)",
        "async(memory=pinned, pool=default)", "async(handle_types=posix_fd)",
        "async(handle_types=fabric)"
    };
    static const char *const never[] = {
        "async(memory=pinned, handle_types=posix_fd)",
        "async(memory=managed, handle_types=posix_fd)"
    };
    weir_resource *mr;
    void *page = NULL;
    fakes_set_machine(&poor);
    weir_device *device = cuda_open(0);
    for (size_t i = 0; i < sizeof lacking / sizeof lacking[0]; i++)
        must_answer(WEIR_NOT_SUPPORTED, weir_resource_open(device, lacking[i], &mr));
    must_answer(WEIR_NOT_SUPPORTED, weir__host_register(device, &page, 4096, 0));
    must_equal(fakes_look().registered_blocks, 0);
    must_ok(weir_resource_open(device, "async", &mr));
    weir_resource_unref(mr);
    close_emulated(device);
    fakes_set_machine(NULL);
    device = cuda_open(0);
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
        must_answer(WEIR_NOT_SUPPORTED, weir_resource_open(device, never[i], &mr));
    /* Of a process that may not have them the device does not tell. */
    fakes_fail("cudaMemPoolCreate", 1, false, cudaErrorNotPermitted);
    must_answer(WEIR_NOT_SUPPORTED, weir_resource_open(device, lacking[4], &mr));
    fakes_fail(NULL, 0, false, 0);
    close_emulated(device);
}

/* Nobody else may touch host memory of a pool unless that is granted. */
static void pinned_pools_are_granted_to_the_device(void **state)
{
    (void)state;
    static const char *const specs[] = { "async(memory=pinned)",
                                         "async(memory=pinned, pool=default)" };
    for (size_t i = 0; CUDART_VERSION >= 13000 && i < 2; i++) {
        weir_device *device = cuda_open(0);
        weir_resource *mr;
        fakes_forget();
        must_ok(weir_resource_open(device, specs[i], &mr));
        must_equal(fakes_calls("cudaMemPoolSetAccess"), 1);
        void *ptr = take(mr, NULL, 1000);
        must_ok(weir_fill(device, NULL, ptr, 1, 1000));
        give(mr, NULL, ptr, 1000);
        weir_resource_unref(mr);
        close_emulated(device);
    }
}

static void pools_are_of_every_memory(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    static const weir_async_memory kinds[] = { WEIR_ASYNC_DEVICE, WEIR_ASYNC_MANAGED,
                                               WEIR_ASYNC_PINNED };
    for (size_t i = 0; i < 4; i++) {
        weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
        weir_mempool pool;
        bool has = i == 0 || CUDART_VERSION >= 13000;
        options.memory = kinds[i % 3 + i / 3 * 2];
        options.on_numa_node = i == 3;
        options.reuse = WEIR_ASYNC_REUSE_SAME_STREAM;
        options.max_bytes = options.memory == WEIR_ASYNC_MANAGED ? 0 : 1000000;
        weir_status status = weir__mempool_create(device, &options, &pool);
        must_equal(status, has ? WEIR_OK : WEIR_NOT_SUPPORTED);
        if (has)
            must_ok(weir__mempool_destroy(device, pool));
        status = weir__mempool_default(device, options.memory, &pool);
        must_equal(status, has ? WEIR_OK : WEIR_NOT_SUPPORTED);
    }
    void *ptr;
    must_ok(weir__host_malloc(device, 1000, 4096, &ptr));
    must_equal((uintptr_t)ptr % 4096, 0);
    must_ok(weir__host_free_device(device, ptr));
    must_answer(WEIR_OUT_OF_MEMORY, weir__host_malloc(device, SIZE_MAX / 2, 256, &ptr));
    close_emulated(device);
}

/* ---- frees ---- */

/* Neither waits nor gives back: that is for later. */
static void no_call_to_free_on_the_users_free(void **state)
{
    (void)state;
    static const char *const specs[] = { "device", "managed", "pinned", "pool/device" };
    static const char *const frees[] = { "cudaFree", "cudaFree", "cudaFreeHost",
                                         "cudaFree" };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        weir_device *device = cuda_open(0);
        weir_resource *mr;
        must_ok(weir_resource_open(device, specs[i], &mr));
        weir_stream s = make_stream(device, WEIR_STREAM_NON_BLOCKING);
        weir_stream t = make_stream(device, WEIR_STREAM_NON_BLOCKING);
        for (int round = 0; round < 3; round++) {
            void *a = take(mr, s, 100000), *b = take(mr, t, 300000);
            must_ok(weir_fill(device, s, a, 1, 100000));
            if (round == 2)
                must_ok(weir_device_sync(device));
            uint64_t before = fakes_calls(frees[i]);
            uint64_t waits = fakes_calls("cudaStreamSynchronize") +
                             fakes_calls("cudaEventSynchronize") +
                             fakes_calls("cudaDeviceSynchronize");
            give(mr, s, a, 100000);
            give(mr, t, b, 300000);
            must_equal(fakes_calls(frees[i]), before);
            must_equal(fakes_calls("cudaStreamSynchronize") +
                           fakes_calls("cudaEventSynchronize") +
                           fakes_calls("cudaDeviceSynchronize"),
                       waits);
        }
        weir_resource_unref(mr);
        must(fakes_calls(frees[i]) > 0);
        end_stream(device, s);
        end_stream(device, t);
        close_emulated(device);
    }
}

/* ---- graphs ---- */

static void count_up(void *counter)
{
    ++*(int *)counter;
}

typedef struct graph_scene {
    weir_device *device;
    CUcontext context;
    weir_resource *mr;
    weir_stream s, t;
} graph_scene;

static graph_scene graph_scene_begin(void)
{
    graph_scene it = { .device = cuda_open(0) };
    must_equal(cuDevicePrimaryCtxRetain(&it.context, 0), 0);
    must_equal(cuCtxPushCurrent(it.context), 0);
    must_ok(weir_resource_open(it.device, "pool/device", &it.mr));
    it.s = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.t = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    return it;
}

static void graph_scene_end(graph_scene *it)
{
    CUcontext popped;
    end_stream(it->device, it->s);
    end_stream(it->device, it->t);
    weir_resource_unref(it->mr);
    must_equal(cuCtxPopCurrent(&popped), 0);
    must_equal(cuDevicePrimaryCtxRelease(0), 0);
    must_equal(fakes_look().graphs, 0);
    close_emulated(it->device);
}

static void launch_twice(graph_scene *it, cudaGraph_t graph)
{
    cudaGraphExec_t instance;
    must_equal(cudaGraphInstantiate(&instance, graph, 0), 0);
    must_equal(cudaGraphDestroy(graph), 0);
    must_equal(cudaGraphLaunch(instance, it->s), 0);
    must_equal(cudaGraphLaunch(instance, it->s), 0);
    must_ok(weir_stream_sync(it->device, it->s));
    must_equal(cudaGraphExecDestroy(instance), 0);
}

/* A graph of two streams, forked and joined, on memory of a declared capture. */
static void declared_captures_make_graphs(void **state)
{
    (void)state;
    graph_scene it = graph_scene_begin();
    weir_capture *capture;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    int runs = 0;
    unsigned char back[1000] = { 0 };
    must_equal(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), 0);
    must_equal(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), 0);
    must_ok(weir_capture_begin(it.mr, it.s, &capture));
    must_equal(cudaStreamBeginCapture(it.s, cudaStreamCaptureModeGlobal), 0);
    void *a = take(it.mr, it.s, 1000), *b = take(it.mr, it.s, 1000);
    must_equal(cudaMemsetAsync(a, 5, 1000, it.s), 0);
    must_equal(cudaEventRecord(fork, it.s), 0);
    must_equal(cudaStreamWaitEvent(it.t, fork, 0), 0);
    must_equal(cudaLaunchHostFunc(it.t, count_up, &runs), 0);
    must_equal(cudaMemcpyAsync(b, a, 1000, cudaMemcpyDefault, it.t), 0);
    must_equal(cudaEventRecord(join, it.t), 0);
    must_equal(cudaStreamWaitEvent(it.s, join, 0), 0);
    must_equal(cudaMemcpyAsync(back, b, 1000, cudaMemcpyDefault, it.s), 0);
    give(it.mr, it.s, a, 1000);
    give(it.mr, it.s, b, 1000);
    must_equal(cudaStreamEndCapture(it.s, &graph), 0);
    must_ok(weir_capture_end(capture));
    launch_twice(&it, graph);
    must_equal(runs, 2);
    must(back[0] == 5 && back[999] == 5);
    must_ok(weir_capture_release(capture, it.s));
    must_equal(cudaEventDestroy(fork), 0);
    must_equal(cudaEventDestroy(join), 0);
    graph_scene_end(&it);
}

/* Somebody else captures there, and Weir leaves. */
static void closing_spares_captures(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    CUcontext context, popped;
    cudaStream_t s;
    cudaGraph_t graph;
    weir_resource *mr;
    must_equal(cuDevicePrimaryCtxRetain(&context, 0), 0);
    must_equal(cuCtxPushCurrent(context), 0);
    must_equal(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), 0);
    must_ok(weir_resource_open(device, "pool/async", &mr));
    give(mr, NULL, take(mr, NULL, 1000), 1000);
    must_equal(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), 0);
    weir_resource_unref(mr);
    weir_device_unref(device);
    must_equal(cudaStreamEndCapture(s, &graph), 0);
    must_equal(cudaGraphDestroy(graph), 0);
    must_equal(cudaStreamDestroy(s), 0);
    must_equal(cuCtxPopCurrent(&popped), 0);
    must_equal(cuDevicePrimaryCtxRelease(0), 0);
    must_equal(fakes_look().retained, 1);
    support_tidy_up();
}

static void do_nothing(void *argument, void *const views[])
{
    (void)argument;
    (void)views;
}

/* Nobody told Weir: it refuses, and the capture takes no harm. */
static void undeclared_captures_take_no_harm(void **state)
{
    (void)state;
    graph_scene it = graph_scene_begin();
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    weir_resource *leaf;
    cudaGraph_t graph;
    int runs = 0;
    void *none;
    weir_resource_unref(it.mr);
    options.limit_bytes = 1 << 20; /* what the other stream has left, or nothing */
    must_ok(weir_device_resource_create(it.device, &leaf));
    must_ok(weir_pool_create(leaf, &options, &it.mr));
    weir_resource_unref(leaf);
    void *ptr = take(it.mr, it.t, 1 << 20);
    must_ok(weir_fill(it.device, it.t, ptr, 1, 1 << 20));
    give(it.mr, it.t, ptr, 1 << 20);
    must_equal(cudaStreamBeginCapture(it.s, cudaStreamCaptureModeGlobal), 0);
    must_equal(cudaLaunchHostFunc(it.s, count_up, &runs), 0);
    must_answer(WEIR_CAPTURING,
                weir_allocate(it.mr, it.s, 1 << 20, WEIR_ALIGNMENT, &none));
    must(none == NULL);
    must_answer(WEIR_CAPTURING, weir_stream_sync(it.device, it.s));
    must_answer(WEIR_NOT_SUPPORTED,
                weir__launch(it.device, it.s, do_nothing, NULL, NULL, 0));
    must_equal(cudaLaunchHostFunc(it.s, count_up, &runs), 0);
    must_equal(cudaStreamEndCapture(it.s, &graph), 0);
    launch_twice(&it, graph);
    must_equal(runs, 4);
    graph_scene_end(&it);
}

/* ---- the stand-in itself ---- */

/* The runtime's functions set the last error, which one call takes and another only
 * shows; a success leaves it. */
static void must_fail_with(cudaError_t wanted, cudaError_t error)
{
    int count;
    must_equal(error, wanted);
    must_equal(cudaPeekAtLastError(), wanted);
    must_equal(cudaGetDeviceCount(&count), 0);
    must_equal(cudaGetLastError(), wanted);
    must_equal(cudaGetLastError(), 0);
}

static void nonsense_is_answered_as_cuda_does(void **state)
{
    (void)state;
    static uint64_t zeros[64];
    graph_scene it = graph_scene_begin();
    cudaStream_t stream;
    CUcontext popped;
    int value;
    must_fail_with(cudaErrorInvalidValue, cudaMalloc(NULL, 100));
    must_fail_with(cudaErrorMemoryAllocation, cudaMalloc((void **)zeros, SIZE_MAX / 2));
    must_fail_with(cudaErrorInvalidValue, cudaFree(zeros));
    must_fail_with(cudaErrorInvalidValue, cudaFreeHost(zeros));
    must_fail_with(cudaErrorInvalidValue, cudaFreeAsync(zeros, it.s));
    must_fail_with(cudaErrorInvalidValue, cudaMemPoolDestroy((cudaMemPool_t)zeros));
    must_fail_with(cudaErrorInvalidValue,
                   cudaGraphLaunch((cudaGraphExec_t)zeros, it.s));
    must_fail_with(cudaErrorInvalidValue, cudaGraphDestroy((cudaGraph_t)zeros));
    must_fail_with(cudaErrorInvalidValue, cudaStreamCreateWithFlags(&stream, 77));
    must_fail_with(cudaErrorInvalidMemcpyDirection,
                   cudaMemcpyAsync(zeros, zeros + 8, 8, (enum cudaMemcpyKind)9, it.s));
    must_fail_with(cudaErrorInvalidResourceHandle,
                   cudaStreamSynchronize((cudaStream_t)zeros));
    must_fail_with(cudaErrorInvalidResourceHandle,
                   cudaEventSynchronize((cudaEvent_t)zeros));
    must_fail_with(cudaErrorInvalidDevice,
                   cudaDeviceGetAttribute(&value, cudaDevAttrManagedMemory, 99));
    must_fail_with(cudaErrorIllegalState,
                   cudaStreamEndCapture(it.s, (cudaGraph_t *)zeros));
    must_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), 0);
    must_equal(cudaStreamDestroy(stream), 0);
    must_fail_with(cudaErrorInvalidResourceHandle, cudaStreamDestroy(stream));
    must_fail_with(cudaErrorInvalidResourceHandle, cudaStreamDestroy(cudaStreamLegacy));
    must_equal(cuCtxPushCurrent((CUcontext)zeros), CUDA_ERROR_INVALID_CONTEXT);
    must_equal(cuCtxPopCurrent(&popped), 0);
    must_equal(cuCtxPopCurrent(NULL), CUDA_ERROR_INVALID_CONTEXT);
    must_equal(cuCtxPushCurrent(popped), 0);
    must_equal(cuDevicePrimaryCtxRelease(7), CUDA_ERROR_INVALID_CONTEXT);
    must_equal(cudaGetLastError(), 0); /* the driver's are not the runtime's */
    graph_scene_end(&it);
}

/* What tests claim that Weir never does is noticed. */
static void a_context_made_by_the_way_is_noticed(void **state)
{
    (void)state;
    void *ptr;
    support_tidy_up();
    must_equal(cudaMalloc(&ptr, 1000), 0);
    must_equal(fakes_look().implicit, 1);
    must_equal(fakes_look().retained, 1);
    must_equal(cudaFree(ptr), 0);
    must_equal(cudaSetDevice(2), 0);
    must_equal(fakes_look().set_devices, 1);
    must_equal(fakes_look().retained, 2);
    fakes_reset();
    must_equal(fakes_look().retained, 0);
    must_equal(fakes_look().pushed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_that_are_not_there_are_told),
        cmocka_unit_test(stubs_are_no_driver),
        cmocka_unit_test(modules_of_other_builds_are_refused),
        cmocka_unit_test(opening_survives_every_failure),
        cmocka_unit_test(devices_without_host_memory_do_not_open),
        cmocka_unit_test(what_a_device_lacks_is_told),
        cmocka_unit_test(pools_that_a_device_lacks_are_told),
        cmocka_unit_test(pinned_pools_are_granted_to_the_device),
        cmocka_unit_test(pools_are_of_every_memory),
        cmocka_unit_test(no_call_to_free_on_the_users_free),
        cmocka_unit_test(closing_spares_captures),
        cmocka_unit_test(declared_captures_make_graphs),
        cmocka_unit_test(undeclared_captures_take_no_harm),
        cmocka_unit_test(nonsense_is_answered_as_cuda_does),
        cmocka_unit_test(a_context_made_by_the_way_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
