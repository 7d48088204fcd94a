/* test_cuda_driver.c - which drivers a CUDA device runs on. Over the stand-in. */
#include <string.h>

#include <cuda_runtime_api.h>

#include "device/module.h"
#include "fakes/primitives.h"
#include "internal.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(earlier_minor_versions_serve),
        cmocka_unit_test(earlier_major_versions_do_not),
        cmocka_unit_test(entry_points_are_not_of_the_future),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
