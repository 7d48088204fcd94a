/* test_cuda_range.c - addresses of CUDA devices that memory is mapped to piece by
 * piece: what is reachable, what devices lack, and what a failing call leaves. Over the
 * stand-in; test_cuda.c fails each call in turn. */
#include <string.h>

#include <cuda_runtime_api.h>

#include "device/module.h"
#include "fakes/shared.h"
#include "internal.h"
#include "weir/growable.h"

static unsigned char *reserve(weir_device *device, size_t pieces)
{
    void *base = NULL;
    must_ok(weir__range_reserve(device, pieces * GRANULE, &base));
    must((uintptr_t)base % GRANULE == 0);
    return base;
}

/* Each mapping needs its access anew, also where it follows another. */
static void every_piece_is_reachable(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    size_t before = device_free_bytes(device);
    unsigned char *base = reserve(device, 8);
    must(weir__fill(device, NULL, base, 0, 1) != WEIR_OK);
    for (int round = 0; round < 2; round++) {
        must_ok(weir__range_map(device, base + 3 * GRANULE, 2 * GRANULE));
        must_ok(weir__range_map(device, base + 5 * GRANULE, GRANULE));
        must_ok(weir__range_map(device, base + 2 * GRANULE, GRANULE));
        must_equal(device_free_bytes(device), before - 4 * GRANULE);
        must_equal(fakes_look().mappings, 3);
        must_equal(fakes_look().objects, 0); /* no handle is kept */
        put(device, base + 2 * GRANULE, 4 * GRANULE, (uint8_t)(7 + round));
        must_have(device, base + 2 * GRANULE, 4 * GRANULE, (uint8_t)(7 + round));
        must_ok(weir__range_unmap(device, base + 3 * GRANULE, 2 * GRANULE));
        must_have(device, base + 2 * GRANULE, GRANULE, (uint8_t)(7 + round));
        must(weir__fill(device, NULL, base + 3 * GRANULE, 0, 1) != WEIR_OK);
        must_ok(weir__range_unmap(device, base + 2 * GRANULE, GRANULE));
        must_ok(weir__range_unmap(device, base + 5 * GRANULE, GRANULE));
        must_equal(device_free_bytes(device), before);
    }
    must_ok(weir__range_release(device, base, 8 * GRANULE));
    end_device(device);
}

static void peers_reach_it(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0), *peer = cuda_open(1);
    unsigned char *base = reserve(device, 1);
    must_ok(weir__range_map(device, base, GRANULE));
    must_ok(weir__enable_peer(peer, device));
    put(peer, base, GRANULE, 3);
    must_have(device, base, GRANULE, 3);
    must_ok(weir__range_unmap(device, base, GRANULE));
    must_ok(weir__range_release(device, base, GRANULE));
    close_emulated(peer);
    end_device(device);
}

static void bad_addresses_are_refused(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    unsigned char *base = reserve(device, 4);
    must_ok(weir__range_map(device, base + GRANULE, 2 * GRANULE));
    size_t before = device_free_bytes(device);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir__range_map(device, base + 2 * GRANULE, GRANULE));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir__range_map(device, base, 2 * GRANULE));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir__range_map(device, base + 3 * GRANULE, 2 * GRANULE));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir__range_unmap(device, base + GRANULE, GRANULE));
    must_answer(WEIR_INVALID_ARGUMENT, weir__range_unmap(device, base, GRANULE));
    must_answer(WEIR_INVALID_ARGUMENT, weir__range_release(device, base, 4 * GRANULE));
    must_equal(device_free_bytes(device), before);
    must_equal(fakes_look().objects, 0);
    must_ok(weir__range_unmap(device, base + GRANULE, 2 * GRANULE));
    must_ok(weir__range_release(device, base, 4 * GRANULE));
    end_device(device);
}

/* The chunks of a growable are as NCCL wants them, also those of a resume. */
static void paused_memory_is_reached_again(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0), *peer = cuda_open(1);
    weir_resource *mr, *host;
    must_ok(weir_resource_open(device, "growable(chunk=2MiB)", &mr));
    must_ok(weir_resource_open(device, "pinned", &host));
    must_ok(weir__enable_peer(peer, device));
    uint64_t before = fakes_look().rdma_objects;
    unsigned char *ptr = take(mr, NULL, GRANULE);
    must_equal(fakes_look().rdma_objects, before + 1);
    put(peer, ptr, GRANULE, 3);
    must_ok(weir_growable_pause_sync(mr, NULL, host));
    must(weir__fill(peer, NULL, ptr, 0, 1) != WEIR_OK);
    must_ok(weir_growable_resume(mr, NULL));
    must_equal(fakes_look().rdma_objects, before + 2);
    must_have(device, ptr, GRANULE, 3);
    put(peer, ptr, GRANULE, 4);
    must_have(device, ptr, GRANULE, 4);
    give(mr, NULL, ptr, GRANULE);
    weir_resource_unref(mr);
    weir_resource_unref(host);
    close_emulated(peer);
    close_emulated(device); /* which keeps events until then */
}

static void devices_may_have_none(void **state)
{
    (void)state;
    static const fakes_machine machines[] = { { .no_mapping = true },
                                              { .no_descriptors = true } };
    for (size_t i = 0; i < 2; i++) {
        weir_device *device = device_of(&machines[i]);
        void *none = device;
        must_answer(WEIR_NOT_SUPPORTED, weir__range_reserve(device, GRANULE, &none));
        must(none == device);
        end_device(device);
    }
}

/* Room for what is left, and no more. */
static void shortage_leaves_nothing(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    size_t all = device_free_bytes(device) / GRANULE * GRANULE;
    unsigned char *base = reserve(device, 2 * all / GRANULE);
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__range_map(device, base, all + GRANULE));
    must_ok(weir__range_map(device, base + GRANULE, all));
    must_answer(WEIR_OUT_OF_MEMORY, weir__range_map(device, base, GRANULE));
    must_ok(weir__range_unmap(device, base + GRANULE, all));
    must_ok(weir__range_release(device, base, 2 * all));
    end_device(device);
}

/* The addresses can be used again, and no handle is lost. */
static void steps_fail_for_good(void **state)
{
    (void)state;
    static const char *const calls[] = { "cuMemCreate", "cuMemMap", "cuMemRelease",
                                         "cuMemSetAccess" };
    for (size_t i = 0; i < 4; i++) {
        weir_device *device = cuda_open(0);
        unsigned char *base = reserve(device, 2);
        fakes_fail(calls[i], 1, true, (int)cudaErrorUnknown);
        must_answer(WEIR_DEVICE_ERROR, weir__range_map(device, base, GRANULE));
        must(strstr(weir_last_error().message, calls[i]) != NULL);
        fakes_fail(NULL, 0, false, 0);
        must_ok(weir__range_map(device, base, GRANULE));
        put(device, base, GRANULE, 5);
        must_ok(weir__range_unmap(device, base, GRANULE));
        must_ok(weir__range_release(device, base, 2 * GRANULE));
        end_device(device);
    }
}

/* From some call on all fail, so that nothing can be undone: that is done later, before
 * anything else, whatever is to be mapped then. */
static void what_is_stuck_is_undone_later(void **state)
{
    (void)state;
    weir_status status = WEIR_DEVICE_ERROR;
    uint64_t nth = 0;
    while (status != WEIR_OK) {
        weir_device *device = cuda_open(0);
        unsigned char *base = reserve(device, 3);
        fakes_fail(NULL, ++nth, true, (int)cudaErrorUnknown);
        status = weir__range_map(device, base + GRANULE, GRANULE);
        bool is_lost = weir__device_is_lost(device);
        must(status == WEIR_OK || is_lost ||
             weir__range_map(device, base + GRANULE, GRANULE) != WEIR_OK);
        fakes_fail(NULL, 0, false, 0);
        if (weir__device_is_lost(device)) {
            close_anyhow(device);
            continue;
        }
        if (status == WEIR_OK)
            must_ok(weir__range_unmap(device, base + GRANULE, GRANULE));
        must_ok(weir__range_map(device, base, 3 * GRANULE));
        put(device, base, 3 * GRANULE, 5);
        must_ok(weir__range_unmap(device, base, 3 * GRANULE));
        must_ok(weir__range_release(device, base, 3 * GRANULE));
        end_device(device);
    }
    must(nth > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_is_reachable),
        cmocka_unit_test(peers_reach_it),
        cmocka_unit_test(paused_memory_is_reached_again),
        cmocka_unit_test(bad_addresses_are_refused),
        cmocka_unit_test(devices_may_have_none),
        cmocka_unit_test(shortage_leaves_nothing),
        cmocka_unit_test(steps_fail_for_good),
        cmocka_unit_test(what_is_stuck_is_undone_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
