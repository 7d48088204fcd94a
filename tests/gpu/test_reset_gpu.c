/* test_reset_gpu.c - a program resets the device beside Weir and goes on with it: to
 * Weir it is lost, and none of what was made before goes to the driver again. A process
 * of its own, for nothing that a test has there outlives it. */
#include <stdio.h>
#include <stdlib.h>

#include "device/module.h"
#include "gpu/support_gpu.h"
#include "weir/weir.h"

#define BYTES ((size_t)1 << 20)

static weir_device *open_device(void)
{
    weir_device *device;
    weir__module_linked = weir__cuda_module();
    weir_status status = weir_device_open("cuda:0", NULL, &device);
    if (status == WEIR_NOT_SUPPORTED) {
        print_message("skipped: %s\n", weir_last_error().message);
        exit(77);
    }
    must_ok(status);
    return device;
}

static void a_device_that_was_reset_is_lost(void **state)
{
    (void)state;
    weir_device *device = open_device();
    weir_resource *mr;
    void *own, *none;
    must_cuda(cudaSetDevice(0));
    must_ok(weir_resource_open(device, "pool/device", &mr));
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    void *ptr = take(mr, stream, BYTES);
    must_ok(weir_fill(device, stream, ptr, 7, BYTES));
    must_ok(weir_stream_sync(device, stream));

    must_cuda(cudaDeviceReset());
    must_cuda(cudaMalloc(&own, BYTES)); /* makes the context anew */
    must_answer(WEIR_DEVICE_LOST, weir_stream_sync(device, stream));
    must_answer(WEIR_DEVICE_LOST,
                weir_allocate(mr, stream, 64 * BYTES, WEIR_ALIGNMENT, &none));
    give(mr, stream, ptr, BYTES);
    weir_resource_unref(mr);
    must_answer(WEIR_DEVICE_LOST, weir_stream_destroy(device, stream));
    weir_device_unref(device);
    must_cuda(cudaMemset(own, 1, BYTES)); /* the program's is as it was */
    must_cuda(cudaPeekAtLastError());

    device = open_device(); /* in the context as it is now */
    must_ok(weir_resource_open(device, "pool/device", &mr));
    ptr = take(mr, NULL, BYTES);
    must_ok(weir_fill(device, NULL, ptr, 7, BYTES));
    give(mr, NULL, ptr, BYTES);
    weir_resource_unref(mr);
    weir_device_unref(device);
    must_cuda(cudaFree(own));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_that_was_reset_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
