/* test_cuda_moves.c - memory of CUDA devices that moves between host and device: what
 * it is told, and machines where it does not. Over the stand-in; test_cuda.c fails each
 * call in turn. */
#include <string.h>

#include <cuda_runtime_api.h>

#include "device/emulated_places.h"
#include "fakes/primitives.h"
#include "internal.h"
#include "weir/leaves.h"

static void *take_managed(weir_device *device)
{
    const weir_managed_options options = { .struct_size = sizeof options };
    void *ptr = NULL;
    must_ok(weir__managed_malloc(device, BYTES, &options, &ptr));
    return ptr;
}

static void places_are_passed_on(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    void *ptr = take_managed(device);
    must_ok(weir__prefetch(device, NULL, ptr, BYTES, WEIR__PLACE_DEVICE));
    must(weir__host_moved(ptr) == WEIR__PLACE_DEVICE);
    must_ok(weir__prefetch(device, NULL, ptr, BYTES, WEIR__PLACE_HOST));
    must(weir__host_moved(ptr) == WEIR__PLACE_HOST);
    must_ok(weir__prefer(device, ptr, BYTES, WEIR__PLACE_DEVICE));
    must(weir__host_preferred(ptr) == WEIR__PLACE_DEVICE);
    must_ok(weir__prefer(device, ptr, BYTES, WEIR__PLACE_HOST));
    must(weir__host_preferred(ptr) == WEIR__PLACE_HOST);
    must_ok(weir__prefer(device, ptr, BYTES, WEIR__PLACE_ANY));
    must(weir__host_preferred(ptr) == WEIR__PLACE_ANY);
    must_ok(weir__free(device, ptr));
    must_ok(weir__malloc(device, BYTES, &ptr));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir__prefetch(device, NULL, ptr, BYTES, WEIR__PLACE_DEVICE));
    must_equal(weir_last_error().native_code, cudaErrorInvalidValue);
    must_ok(weir__free(device, ptr));
    close_emulated(device);
}

static void must_not_open(weir_device *device, const char *spec, const char *words)
{
    weir_resource *mr = NULL;
    must_answer(WEIR_NOT_SUPPORTED, weir_resource_open(device, spec, &mr));
    must(mr == NULL);
    must(strstr(weir_last_error().message, words) != NULL);
}

static void machine_may_move_nothing(void **state)
{
    (void)state;
    static const fakes_machine fixed = { .no_managed = true };
    char own[16];
    fakes_set_machine(&fixed);
    weir_device *device = cuda_open(0);
    weir_device_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_device_get_properties(device, &properties));
    must(!properties.concurrent_managed && properties.pageable_access);
    must_not_open(device, "prefetch/managed", "does not move managed memory");
    must_not_open(device, "prefetch/system", "does not move ordinary memory");
    must_not_open(device, "system(headroom=1MiB)", "use managed");
    must_answer(WEIR_NOT_SUPPORTED, weir__prefetch(device, NULL, own, sizeof own,
                                                   WEIR__PLACE_DEVICE));
    must_answer(WEIR_NOT_SUPPORTED,
                weir__prefer(device, own, sizeof own, WEIR__PLACE_DEVICE));
    must_equal(fakes_calls("cudaMemPrefetchAsync") + fakes_calls("cudaMemAdvise"), 0);
    close_emulated(device);
    fakes_set_machine(NULL);
}

static void machine_may_not_reach_ordinary_memory(void **state)
{
    (void)state;
    static const fakes_machine apart = { .no_pageable = true };
    weir_resource *mr;
    fakes_set_machine(&apart);
    weir_device *device = cuda_open(0);
    weir_device_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_device_get_properties(device, &properties));
    must(properties.concurrent_managed && !properties.pageable_access);
    must_not_open(device, "system", "cannot reach ordinary host memory");
    must_not_open(device, "prefetch/system", "cannot reach ordinary host memory");
    must_not_open(device, "system(headroom=1MiB)", "use managed");
    must_ok(weir_resource_open(device, "prefetch/managed", &mr));
    weir_resource_unref(mr);
    close_emulated(device);
    fakes_set_machine(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_passed_on),
        cmocka_unit_test(machine_may_move_nothing),
        cmocka_unit_test(machine_may_not_reach_ordinary_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
