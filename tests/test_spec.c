/* test_spec.c - chains of resources from text. */
#include "support.h"

#include <string.h>

#include "internal.h"

static void open_builds_a_chain(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(12));
    static const char *const specs[] = { "device", "system", "pool/device",
                                         "statistics/pool/device", "pool/pool/system",
                                         "statistics/statistics/device" };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        weir_resource *mr;
        must_ok(weir_resource_open(device, specs[i], &mr));
        weir_resource_properties properties = { .struct_size = sizeof properties };
        must_ok(weir_resource_get_properties(mr, &properties));
        size_t length = strcspn(specs[i], "/");
        must(strlen(properties.name) == length);
        must(strncmp(properties.name, specs[i], length) == 0);
        const char *slash = strrchr(specs[i], '/');
        assert_string_equal(properties.leaf, slash == NULL ? specs[i] : slash + 1);
        void *ptr = take(mr, NULL, 1000);
        give(mr, NULL, ptr, 1000);
        weir_resource_unref(mr);
    }
    close_emulated(device);
}

static void open_names_the_part_that_is_wrong(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(13));
    static const struct { const char *spec, *named; } bad[] = {
        { "", "\"\"" },
        { "/", "\"\"" },
        { "pool/", "\"\"" },
        { "/device", "\"\"" },
        { "pool//device", "\"\"" },
        { "pool", "pool" },
        { "statistics/pool", "pool" },
        { "device/device", "device" },
        { "system/pool/device", "system" },
        { "pools/device", "pools" },
        { "poo/device", "\"poo\"" },
        { "pool/Device", "Device" },
        { " device", " device" },
        { "limiting/device", "weir_limiting_create" },
        { "callback", "weir_callback_create" },
        { "pool/limiting(5)/device", "limiting(5)" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        weir_resource *mr = (weir_resource *)device;
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir_resource_open(device, bad[i].spec, &mr));
        must(mr == NULL);
        if (strstr(weir_last_error().message, bad[i].named) == NULL)
            fail_msg("\"%s\": %s", bad[i].spec, weir_last_error().message);
    }
    close_emulated(device);
}

static void open_survives_every_host_failure(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(14));
    weir_resource *mr = NULL;
    uint64_t failing;
    for (failing = 1; mr == NULL; failing++) {
        size_t live = weir__host_live();
        weir__host_fail_at(failing, false);
        weir_status status = weir_resource_open(device, "statistics/device", &mr);
        weir__host_fail_at(0, false);
        if (status != WEIR_OK) {
            must_answer(WEIR_OUT_OF_HOST_MEMORY, status);
            must(mr == NULL);
            must_equal(weir__host_live(), live);
        }
    }
    must_equal(failing - 1, 6); /* five fail in turn, then none */
    weir_resource_unref(mr);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_builds_a_chain),
        cmocka_unit_test(open_names_the_part_that_is_wrong),
        cmocka_unit_test(open_survives_every_host_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
