/* test_cuda_pools.c - how the driver's pools of a CUDA device end: not before what was
 * freed to them is known to be done, which driver 580.159 does not bear and the
 * stand-in neither. Over the stand-in; test_cuda.c fails each call in turn. */
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "fakes/primitives.h"
#include "internal.h"
#include "support_mempool.h"
#include "weir/leaves.h"

/* Ends a pool of `device` that keeps everything, behind a block on `stream`. */
static void end_behind(weir_device *device, weir_stream stream)
{
    weir_mempool pool = make_pool(device, SAME, EVERYTHING);
    back(device, stream, draw(device, pool, stream, CHUNK));
    end_pool(device, pool);
}

static void must_be_left(uint64_t destroyed, int64_t pools)
{
    must_equal(fakes_calls("cudaMemPoolDestroy"), destroyed);
    must_equal(fakes_look().pools, pools);
}

/* What it has goes back when the host waits for the stream, by itself; it is destroyed
 * when somebody waits for all. */
static void a_pool_stays_until_it_has_nothing(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    weir_stream s = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream streams[] = { NULL, WEIR_STREAM_PER_THREAD, s };
    size_t before = device_free_bytes(device);
    for (int i = 0; i < 3; i++) {
        fakes_forget();
        end_behind(device, streams[i]);
        must_be_left(0, 1);
        must(device_free_bytes(device) < before);
        must_ok(weir__stream_sync(device, streams[i]));
        must_equal(device_free_bytes(device), before);
        must_be_left(0, 1);
        must_ok(weir__device_sync(device));
        must_be_left(1, 0);
        must_ok(weir__device_sync(device));
        must_be_left(1, 0);
    }
    end_stream(device, s);
    close_emulated(device);
}

/* The next that ends sees to those before it; itself it goes at once where all is
 * known to be done, whatever it kept. */
static void an_end_looks_at_those_before(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    fakes_forget();
    end_behind(device, NULL);
    end_behind(device, NULL);
    must_be_left(0, 2);
    weir_mempool pool = make_pool(device, SAME, EVERYTHING);
    back(device, NULL, draw(device, pool, NULL, CHUNK));
    must_ok(weir__stream_sync(device, NULL));
    must_be_left(0, 3);
    end_pool(device, pool);
    must_be_left(3, 0);
    close_emulated(device);
}

/* What cannot be asked, or destroyed, stays for the next look; whoever waited is not
 * told, nor is the thread's last error. */
static void what_cannot_be_ended_now_stays(void **state)
{
    (void)state;
    static const char *const calls[] = { "cudaMemPoolGetAttribute",
                                         "cudaMemPoolDestroy", "cuCtxGetId" };
    weir_device *device = cuda_open(0);
    for (int i = 0; i < 3; i++) {
        end_behind(device, NULL);
        end_behind(device, NULL);
        /* of the context the wait asks, too */
        fakes_fail(calls[i], i == 2 ? 2 : 1, false, cudaErrorUnknown);
        must_ok(weir__device_sync(device));
        must_equal(fakes_look().last_error, 0);
        must_equal(fakes_look().pools, i == 2 ? 2 : 1);
        fakes_fail(NULL, 0, false, 0);
        must_ok(weir__device_sync(device));
        must_equal(fakes_look().pools, 0);
    }
    close_emulated(device);
}

/* Which a look leaves alone. */
static void errors_of_others_stay(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    CUcontext context;
    end_behind(device, NULL);
    must_equal(cuDevicePrimaryCtxRetain(&context, 0), 0);
    must_equal(cuCtxPushCurrent(context), 0);
    must_equal(cudaMemPoolTrimTo(NULL, 0), cudaErrorInvalidValue);
    must_equal(cuCtxPopCurrent(&context), 0);
    must_equal(cuDevicePrimaryCtxRelease(0), 0);
    must_ok(weir__device_sync(device));
    must_equal(fakes_look().pools, 0);
    must_equal(cudaGetLastError(), cudaErrorInvalidValue);
    close_emulated(device);
}

static void a_pool_needs_host_memory(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    weir_resource *mr;
    for (uint64_t nth = 1;; nth++) {
        weir__host_fail_at(nth, false);
        weir_status status = weir_async_create(device, NULL, &mr);
        weir__host_fail_at(0, false);
        if (status == WEIR_OK)
            break;
        must_answer(WEIR_OUT_OF_HOST_MEMORY, status);
        must_equal(fakes_look().pools, 0);
    }
    weir_resource_unref(mr);
    close_emulated(device);
}

/* Nobody waits for what is not done when the device is closed; what is, ends then. */
static void closing_leaves_what_is_not_done(void **state)
{
    (void)state;
    size_t live = weir__host_live();
    weir_device *device = cuda_open(0);
    weir_resource *mr;
    must_ok(weir_async_create(device, NULL, &mr));
    give(mr, NULL, take(mr, NULL, 1000), 1000);
    end_behind(device, NULL);
    must_ok(weir__stream_sync(device, NULL));
    fakes_forget();
    weir_resource_unref(mr); /* which has nothing, and the one before neither */
    must_be_left(2, 0);
    end_behind(device, NULL);
    must_ok(weir__stream_sync(device, NULL));
    fakes_fail("cudaMemPoolDestroy", 1, false, cudaErrorUnknown);
    end_behind(device, NULL);
    fakes_fail(NULL, 0, false, 0);
    must_be_left(3, 2);
    weir_device_unref(device);
    must_be_left(4, 1);
    must_equal(fakes_calls("cudaDeviceSynchronize"), 0);
    weir_thread_flush();
    support_tidy_up(); /* with the context, whose pool it was */
    must_equal(weir__host_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_stays_until_it_has_nothing),
        cmocka_unit_test(an_end_looks_at_those_before),
        cmocka_unit_test(what_cannot_be_ended_now_stays),
        cmocka_unit_test(errors_of_others_stay),
        cmocka_unit_test(a_pool_needs_host_memory),
        cmocka_unit_test(closing_leaves_what_is_not_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
