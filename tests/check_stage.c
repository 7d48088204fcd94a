/* check_stage.c - the stage that the tests of the checklist stand on: the device is the
 * one that was asked for, and a missing wait does not get through on any. */
#include "support_checklist.h"

#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)4096)

static void the_device_is_the_one_asked_for(void **state)
{
    (void)state;
    const char *wish = getenv("WEIR_TEST_DEVICE");
    weir_device *device = checklist_open(), *other = checklist_open_other();
    must(device != other);
    weir_device_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_device_get_properties(device, &properties));
    bool is_cuda = wish != NULL && strcmp(wish, "cuda") == 0;
    assert_string_equal(properties.name, is_cuda ? "cuda:0" : "emulated:0");

    bool is_threads = wish != NULL && strcmp(wish, "threads") == 0;
    bool has_stepped;
    must_answer(is_threads ? WEIR_NOT_SUPPORTED : WEIR_OK,
                weir_emulated_step(device, &has_stepped));
    checklist_close(other);
    checklist_close(device);
}

static void a_missing_wait_is_found(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    void *ptr = take(it.mr, it.a, BYTES);
    uint64_t gate = checklist_hold(it.device, it.a);
    stamp(it.device, it.a, ptr, BYTES, 1);
    check_stamp(it.device, it.b, ptr, BYTES, 1);
    must_not_be_held(it.device, it.b);
    must_be_held(it.device, it.a);
    must(take_stamp_errors() > 0);
    checklist_let_go(it.device, gate);
    must_ok(weir_device_sync(it.device));
    must(weir_emulated_findings(it.device) > 0);
    give(it.mr, it.a, ptr, BYTES);
    weir_resource_unref(it.mr);
    end_stream(it.device, it.a);
    end_stream(it.device, it.b);
    end_stream(it.device, it.c);
    close_anyhow(it.device);
}

static void what_waits_is_held_and_finds_its_bytes(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    void *ptr = take(it.mr, it.a, BYTES);
    uint64_t gate = checklist_hold(it.device, it.a);
    stamp(it.device, it.a, ptr, BYTES, 1);
    must_ok(weir_stream_wait(it.device, it.b, it.a));
    check_stamp(it.device, it.b, ptr, BYTES, 1);
    must_be_held(it.device, it.b);
    must_not_be_held(it.device, it.c);
    checklist_let_go(it.device, gate);
    must_not_be_held(it.device, it.b);
    must_equal(checklist_copies(it.device), 0);
    give(it.mr, it.b, ptr, BYTES);
    checklist_end(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_is_the_one_asked_for),
        cmocka_unit_test(a_missing_wait_is_found),
        cmocka_unit_test(what_waits_is_held_and_finds_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
