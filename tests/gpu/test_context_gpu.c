/* test_context_gpu.c - what a program finds of CUDA after Weir's calls, good ones and
 * bad ones: the context that its thread had, also if that was none, and no error that
 * is not its own. */
#include <string.h>

#include <cuda.h>

#include "gpu/support_gpu.h"
#include "weir/weir.h"

#define BYTES ((size_t)1 << 20)

typedef CUresult get_current(CUcontext *out);

static get_current *find_get_current(void)
{
    void *found = NULL;
    get_current *function;
    enum cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    must_cuda(cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &found, 12000,
                                               cudaEnableDefault, &result));
#else
    must_cuda(cudaGetDriverEntryPoint("cuCtxGetCurrent", &found, cudaEnableDefault,
                                      &result));
#endif
    must_equal(result, cudaDriverEntryPointSuccess);
    memcpy(&function, &found, sizeof function); /* a function, which C forbids */
    return function;
}

typedef struct visit {
    weir_device *device;
    get_current *get;
    bool has_context; /* the thread, to begin with */
    CUcontext before;
} visit;

/* The device first: before it, nothing is to be asked of CUDA. */
static visit visit_begin(void)
{
    visit v = { .device = open_threads() };
    v.get = find_get_current();
    return v;
}

static void must_be_as_before(visit *v)
{
    CUcontext now = NULL;
    must_equal(v->get(&now), CUDA_SUCCESS);
    must(now == v->before);
    must_cuda(cudaPeekAtLastError());
    must_equal(v->get(&v->before), CUDA_SUCCESS); /* whatever asking has done */
}

#define leaves_all(call) (must_ok(call), must_be_as_before(v))

static void call_streams(visit *v, weir_stream *stream)
{
    weir_event event;
    weir_point point;
    bool done;
    leaves_all(weir_stream_create(v->device, WEIR_STREAM_NON_BLOCKING, stream));
    leaves_all(weir_event_create(v->device, &event));
    leaves_all(weir_event_record(v->device, *stream, event));
    leaves_all(weir_stream_wait_event(v->device, NULL, event));
    leaves_all(weir_event_query(v->device, event, &done));
    leaves_all(weir_event_sync(v->device, event));
    leaves_all(weir_event_destroy(v->device, event));
    leaves_all(weir_stream_wait(v->device, *stream, WEIR_STREAM_PER_THREAD));
    leaves_all(weir_point_here(v->device, *stream, &point));
    leaves_all(weir_point_sync(v->device, point));
    leaves_all(weir_stream_query(v->device, *stream, &done));
    leaves_all(weir_stream_sync(v->device, *stream));
    leaves_all(weir_device_sync(v->device));
}

static void call_memory(visit *v, const char *spec, weir_stream stream)
{
    static unsigned char bytes[64];
    weir_resource *mr;
    void *ptr, *other, *none;
    weir_status status = weir_resource_open(v->device, spec, &mr);
    must_be_as_before(v);
    if (status == WEIR_NOT_SUPPORTED)
        return;
    must_ok(status);
    leaves_all(weir_allocate(mr, stream, BYTES, WEIR_ALIGNMENT, &ptr));
    leaves_all(weir_allocate(mr, NULL, BYTES, WEIR_ALIGNMENT, &other));
    leaves_all(weir_fill(v->device, stream, ptr, 7, BYTES));
    leaves_all(weir_copy(v->device, stream, other, ptr, BYTES));
    leaves_all(weir_copy_sync(v->device, stream, bytes, other, sizeof bytes));
    must_equal(bytes[63], 7);
    must(weir_deallocate(mr, stream, other, BYTES, WEIR_ALIGNMENT));
    must_be_as_before(v);
    must(weir_deallocate(mr, stream, ptr, BYTES, WEIR_ALIGNMENT));
    must_be_as_before(v);
    if (support_may_ask_too_much(mr))
        must(weir_allocate(mr, stream, (size_t)1 << 50, WEIR_ALIGNMENT, &none)
             != WEIR_OK);
    must_be_as_before(v);
    (void)weir_resource_trim_sync(mr, 0);
    must_be_as_before(v);
    weir_resource_unref(mr);
    must_be_as_before(v);
}

static void call_everything(void *argument)
{
    static const char *const specs[] = {
        "device", "system", "managed", "pinned", "async", "async(pool=default)",
        "pool/device",
    };
    visit *v = argument;
    weir_device_properties properties = { .struct_size = sizeof properties };
    weir_stream stream;
    size_t free_bytes, total_bytes;
    must_equal(v->get(&v->before), CUDA_SUCCESS);
    must((v->before != NULL) == v->has_context);
    leaves_all(weir_device_get_properties(v->device, &properties));
    leaves_all(weir_device_memory(v->device, &free_bytes, &total_bytes));
    call_streams(v, &stream);
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        call_memory(v, specs[i], stream);
    leaves_all(weir_stream_destroy(v->device, stream));
}

static void a_thread_without_a_context_has_none_afterwards(void **state)
{
    (void)state;
    visit v = visit_begin();
    void *const arguments[] = { &v };
    must_ok(support_run_threads(v.device, 1, call_everything, arguments));
    close_emulated(v.device);
}

static void a_thread_with_a_context_has_the_same_afterwards(void **state)
{
    (void)state;
    visit v = visit_begin();
    must_cuda(cudaSetDevice(0));
    must_cuda(cudaFree(NULL));
    v.has_context = true;
    call_everything(&v);
    close_emulated(v.device);
}

/* "Not yet" is an error to the runtime. */
static void an_answer_leaves_no_error(void **state)
{
    (void)state;
    bool done = true;
    weir_device *device = open_threads();
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_event event;
    must_ok(weir_event_create(device, &event));
    unsigned gate = put_gate(stream);
    must_ok(weir_event_record(device, stream, event));
    must_ok(weir_stream_query(device, stream, &done));
    must(!done);
    must_cuda(cudaPeekAtLastError());
    done = true;
    must_ok(weir_event_query(device, event, &done));
    must(!done);
    must_cuda(cudaPeekAtLastError());
    open_gate(gate);
    must_ok(weir_event_sync(device, event));
    must_ok(weir_event_destroy(device, event));
    end_stream(device, stream);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_without_a_context_has_none_afterwards),
        cmocka_unit_test(a_thread_with_a_context_has_the_same_afterwards),
        cmocka_unit_test(an_answer_leaves_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
