/* test_cuda_driver.c - which drivers a CUDA device runs on, and what becomes of it when
 * a program resets it or Weir closes it. Over the stand-in. */
#include <string.h>

#include <cuda_runtime_api.h>

#include "device/module.h"
#include "fakes/primitives.h"
#include "internal.h"
#include "stream_order.h"
#include "weir/weir.h"

/* ---- versions ---- */

static void must_not_serve(const char *words)
{
    weir_device *device;
    weir__module_linked = weir__cuda_module();
    must_answer(WEIR_NOT_SUPPORTED, weir_device_open("cuda:0", NULL, &device));
    must(strstr(weir_last_error().message, words) != NULL);
    must_equal(fakes_look().retained, 0);
    must_equal(fakes_look().last_error, 0);
}

static void must_serve(bool has_record_all)
{
    weir_event event;
    weir_device *device = cuda_open(0);
    must(weir__has_record_all(device) == has_record_all);
    must_ok(weir__event_create(device, &event));
    must_answer(has_record_all ? WEIR_OK : WEIR_NOT_SUPPORTED,
                weir__event_record_all(device, event));
    must_ok(weir__event_destroy(device, event));
    must_equal(fakes_look().last_error, 0);
    close_emulated(device);
}

/* A driver of an earlier minor version serves a later runtime, without what is newer
 * than itself: unless that runtime asks for what it needs as of its own version. */
static void earlier_minor_versions_serve(void **state)
{
    (void)state;
    static const fakes_machine machines[] = {
        { .runtime_version = 12060, .driver_version = 12000 },
        { .runtime_version = 12060, .driver_version = 12040 },
        { .runtime_version = 12060, .driver_version = 12050 },
    };
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        fakes_set_machine(&machines[i]);
        if (CUDART_VERSION >= 12050)
            must_serve(machines[i].driver_version >= 12050);
        else
            must_not_serve("it needs a newer one");
    }
    fakes_set_machine(NULL);
    must_serve(CUDART_VERSION >= 12050);
}

/* Whether what a thread frees on its own stream is kept, and gets no event. */
static bool keeps_of_own(weir_device *device)
{
    enum { FREES = 20 };
    weir_resource *mr;
    must_ok(weir_resource_open(device, "pool/device", &mr));
    const uint64_t before = calls_of(device).event_record;
    for (int i = 0; i < FREES; i++)
        give(mr, WEIR_STREAM_PER_THREAD, take(mr, WEIR_STREAM_PER_THREAD, 1000), 1000);
    const uint64_t recorded = calls_of(device).event_record - before;
    weir_resource_unref(mr);
    return recorded < FREES / 4;
}

/* The driver's event behind all of a device came with CUDA 12.5. */
static void events_behind_all_are_missing_in_older_drivers(void **state)
{
    (void)state;
    static const fakes_machine old = { .missing = "cuCtxRecordEvent" };
    weir_event event;
    weir__mark mark;
    fakes_set_machine(&old);
    weir_device *device = cuda_open(0);
    must_ok(weir__event_create(device, &event));
    must_answer(WEIR_NOT_SUPPORTED, weir__event_record_all(device, event));
    must(strstr(weir_last_error().message, "cuCtxRecordEvent") != NULL);
    must_ok(weir__order_stock(device->order));
    must_answer(WEIR_NOT_SUPPORTED, weir__order_all_point(device->order, &mark));
    must_ok(weir__event_record(device, event, NULL)); /* that is there still */
    must_ok(weir__event_destroy(device, event));
    must(!weir__device_is_lost(device) && !keeps_of_own(device));
    close_emulated(device);
    fakes_set_machine(NULL);
    device = cuda_open(0);
    must(keeps_of_own(device) == weir__has_record_all(device)); /* as it was built */
    close_emulated(device);
}

static void earlier_major_versions_do_not(void **state)
{
    (void)state;
    static const fakes_machine machines[] = {
        { .runtime_version = 12000, .driver_version = 11080 },
        { .runtime_version = 13000, .driver_version = 12090 },
    };
    for (size_t i = 0; i < 2; i++) {
        fakes_set_machine(&machines[i]);
        must_not_serve("it needs a newer one");
    }
    fakes_set_machine(NULL);
}

/* ---- resets ---- */

/* A program of its own, with a resource and work of Weir's beside it. */
typedef struct reset_scene {
    weir_device *device;
    weir_resource *mr;
    weir_stream stream;
    weir_event event;
    void *ptr;
} reset_scene;

static reset_scene reset_scene_begin(void)
{
    reset_scene it = { .device = cuda_open(0) };
    must_equal(cudaSetDevice(0), 0);
    must_ok(weir_resource_open(it.device, "device", &it.mr));
    it.stream = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir__event_create(it.device, &it.event));
    it.ptr = take(it.mr, it.stream, 1000);
    return it;
}

/* Whatever is given back, nobody asks CUDA any more: it has none of it. */
static void reset_scene_end(reset_scene *it)
{
    fakes_forget();
    give(it->mr, it->stream, it->ptr, 1000);
    weir_resource_unref(it->mr);
    must_answer(WEIR_DEVICE_LOST, weir__event_destroy(it->device, it->event));
    must_answer(WEIR_DEVICE_LOST, weir_stream_destroy(it->device, it->stream));
    must_equal(fakes_calls("cudaFree") + fakes_calls("cudaEventDestroy") +
                   fakes_calls("cudaStreamDestroy"),
               0);
    must_equal(fakes_look().refused, 0);
    close_anyhow(it->device);
}

static void must_be_lost(reset_scene *it, int32_t code)
{
    void *ptr;
    must_answer(WEIR_DEVICE_LOST,
                weir__event_record(it->device, it->event, it->stream));
    must_equal(weir_last_error().native_code, code);
    must(strstr(weir_last_error().message, "reset") != NULL);
    must(weir__device_is_lost(it->device));
    must_answer(WEIR_DEVICE_LOST, weir__malloc(it->device, 1000, &ptr));
    must_equal(fakes_look().pushed, 1); /* the program's */
    must_equal(fakes_look().last_error, 0);
}

static void a_device_that_was_reset_is_lost(void **state)
{
    (void)state;
    reset_scene it = reset_scene_begin();
    must_equal(cudaDeviceReset(), 0);
    must_be_lost(&it, CUDA_ERROR_INVALID_CONTEXT);
    reset_scene_end(&it);
}

/* The program goes on with its own, and with that the context lives again. */
static void a_context_made_anew_is_another(void **state)
{
    (void)state;
    reset_scene it = reset_scene_begin();
    void *ptr;
    must_equal(cudaDeviceReset(), 0);
    must_equal(cudaMalloc(&ptr, 1000), 0);
    must_be_lost(&it, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    must_equal(cudaFree(ptr), 0);
    reset_scene_end(&it);
}

/* Once the lost one is closed, the next begins in the context as it is now. */
static void a_device_opens_again_after_a_reset(void **state)
{
    (void)state;
    reset_scene it = reset_scene_begin();
    weir_device *device;
    CUcontext context;
    void *ptr;
    must_equal(cuDevicePrimaryCtxRetain(&context, 0), 0);
    must_equal(cudaDeviceReset(), 0);
    must_be_lost(&it, CUDA_ERROR_INVALID_CONTEXT);
    reset_scene_end(&it);
    must_equal(fakes_look().retained, 1);
    must_ok(weir_device_open("cuda:0", NULL, &device));
    must_ok(weir__malloc(device, 1000, &ptr));
    must_ok(weir__free(device, ptr));
    weir_device_unref(device);
    must_equal(cuDevicePrimaryCtxRelease(0), 0);
    support_tidy_up();
    must_equal(fakes_look().retained, 0);
}

/* ---- closing ---- */

static void count_up(void *counter)
{
    ++*(int *)counter;
}

static void count_one(void *counter, void *const views[])
{
    (void)views;
    count_up(counter);
}

/* Nothing runs before somebody waits; closed by weir_device_unref alone. */
static weir_device *open_stepped_device(void)
{
    weir_emulated_options options = WEIR_EMULATED_OPTIONS_INIT;
    weir_device *device;
    options.scheduler = WEIR_EMULATED_STEPPED;
    options.no_ledger = true;
    fakes_set_device(0, &options);
    weir__module_linked = weir__cuda_module();
    must_ok(weir_device_open("cuda:0", NULL, &device));
    return device;
}

/* What the program sees of the device once it waits for it. */
static void wait_for_device(void)
{
    CUcontext context, popped;
    must_equal(cuDevicePrimaryCtxRetain(&context, 0), 0);
    must_equal(cuCtxPushCurrent(context), 0);
    must_equal(cudaDeviceSynchronize(), 0);
    must_equal(cuCtxPopCurrent(&popped), 0);
    must_equal(cuDevicePrimaryCtxRelease(0), 0);
}

/* Nobody but Weir holds the context; however often it is opened, it holds it once. */
static void work_goes_on_after_closing(void **state)
{
    (void)state;
    int runs = 0;
    for (int i = 1; i <= 3; i++) {
        weir_device *device;
        device = open_stepped_device();
        weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
        must_ok(weir__launch(device, stream, count_one, &runs, NULL, 0));
        must_ok(weir_stream_destroy(device, stream));
        weir_device_unref(device);
        must_equal(fakes_look().retained, 1);
        wait_for_device();
        must_equal(runs, i);
    }
    support_tidy_up();
    must_equal(fakes_look().retained, 0);
}

static void use(weir_device *device)
{
    void *ptr;
    must_ok(weir__malloc(device, 1000, &ptr));
    must_ok(weir__free(device, ptr));
}

static void a_device_that_was_not_used_is_not_kept(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        weir_device *device = open_stepped_device();
        if (i == 1)
            use(device);
        weir_device_unref(device);
        must_equal(fakes_look().retained, i);
    }
    support_tidy_up();
}

/* A device that is lost has no work: the next begins anew, also if one before it was
 * kept. */
static void a_lost_device_is_not_kept(void **state)
{
    (void)state;
    void *ptr;
    for (int before = 0; before < 2; before++) {
        weir_device *device = open_stepped_device();
        if (before == 1) {
            use(device);
            weir_device_unref(device);
            must_equal(fakes_look().retained, 1);
            device = open_stepped_device();
        }
        fakes_fail("cudaMalloc", 1, false, cudaErrorIllegalAddress);
        must_answer(WEIR_DEVICE_LOST, weir__malloc(device, 1000, &ptr));
        fakes_fail(NULL, 0, false, 0);
        weir_device_unref(device);
        must_equal(fakes_look().retained, 0);
        device = open_stepped_device();
        use(device);
        weir_device_unref(device);
        support_tidy_up();
    }
}

/* ---- the stand-in itself ---- */

static void entry_points_are_not_of_the_future(void **state)
{
    (void)state;
    static const fakes_machine older = { .runtime_version = 12060,
                                         .driver_version = 12040 };
    enum cudaDriverEntryPointQueryResult result;
    void *found;
    fakes_set_machine(&older);
#if CUDART_VERSION >= 12050
    must_equal(cudaGetDriverEntryPointByVersion("cuDeviceGet", &found, 12040,
                                                cudaEnableDefault, &result),
               cudaSuccess);
    must(found != NULL);
    must_equal(cudaGetDriverEntryPointByVersion("cuDeviceGet", &found, 12050,
                                                cudaEnableDefault, &result),
               cudaErrorInvalidValue);
#else
    must_equal(cudaGetDriverEntryPoint("cuDeviceGet", &found, cudaEnableDefault,
                                       &result),
               cudaErrorInvalidValue);
#endif
    must_equal(cudaGetLastError(), cudaErrorInvalidValue);
    fakes_set_machine(NULL);
}

/* The context keeps its address, and stays current; only its id is another. */
static void a_reset_leaves_the_address(void **state)
{
    (void)state;
    unsigned long long before, after;
    CUcontext context, current;
    void *ptr;
    must_equal(cuDevicePrimaryCtxRetain(&context, 0), 0);
    must_equal(cuCtxPushCurrent(context), 0);
    must_equal(cuCtxGetId(context, &before), 0);
    must_equal(cudaDeviceReset(), 0);
    must_equal(cuCtxGetId(context, &after), CUDA_ERROR_INVALID_CONTEXT);
    must_equal(cuCtxPushCurrent(context), CUDA_ERROR_INVALID_CONTEXT);
    must_equal(cudaMalloc(&ptr, 1000), 0);
    must_equal(cuCtxGetCurrent(&current), 0);
    must(current == context);
    must_equal(cuCtxGetId(context, &after), 0);
    must(after != before);
    must_equal(fakes_look().implicit, 0);
    must_equal(fakes_look().retained, 1);
    must_equal(cuCtxPopCurrent(&current), 0);
    must_equal(cuDevicePrimaryCtxRelease(0), 0);
    fakes_reset();
}

/* Who releases the last reference waits for nothing, and ends it all. */
static void the_last_release_ends_what_is_in_flight(void **state)
{
    (void)state;
    CUcontext context, popped;
    cudaStream_t stream;
    int runs = 0;
    for (int i = 0; i < 2; i++) {
        must_equal(cuDevicePrimaryCtxRetain(&context, 0), 0);
        must_equal(cuCtxPushCurrent(context), 0);
        must_equal(cudaStreamCreate(&stream), 0);
        must_equal(cudaLaunchHostFunc(stream, count_up, &runs), 0);
        if (i == 1)
            must_equal(cudaDeviceSynchronize(), 0);
        must_equal(cuCtxPopCurrent(&popped), 0);
        must_equal(cuDevicePrimaryCtxRelease(0), 0);
        must_equal(runs, i);
    }
    fakes_reset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(earlier_minor_versions_serve),
        cmocka_unit_test(events_behind_all_are_missing_in_older_drivers),
        cmocka_unit_test(earlier_major_versions_do_not),
        cmocka_unit_test(a_device_that_was_reset_is_lost),
        cmocka_unit_test(a_context_made_anew_is_another),
        cmocka_unit_test(a_device_opens_again_after_a_reset),
        cmocka_unit_test(work_goes_on_after_closing),
        cmocka_unit_test(a_device_that_was_not_used_is_not_kept),
        cmocka_unit_test(a_lost_device_is_not_kept),
        cmocka_unit_test(entry_points_are_not_of_the_future),
        cmocka_unit_test(a_reset_leaves_the_address),
        cmocka_unit_test(the_last_release_ends_what_is_in_flight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
