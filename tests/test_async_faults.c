/* test_async_faults.c - the leaf async on a device that fails: each kind of call it
 * makes, once and for good, a lost device, and host memory that runs out. */
#include "support_leaf.h"

#include <string.h>

#include "device/device.h"
#include "internal.h"
#include "weir/async.h"
#include "weir/capture.h"

#define MIB ((size_t)1 << 20)

static void must_be_told(scene *s, weir_status status)
{
    void *none = s;
    must_answer(status, weir_allocate(s->mr, s->b, 256, WEIR_ALIGNMENT, &none));
    must(none == NULL);
    must(strstr(weir_last_error().message, "told once") != NULL);
}

/* ---- creation ---- */

/* Whichever call fails, nothing is left of it. */
static void creation_leaves_nothing_behind(void **state)
{
    (void)state;
    static const char *const specs[] = { "async", "async(primed=1MiB)",
                                         "async(pool=default)" };
    static const uint64_t calls[] = { 2, 5, 2 };
    for (size_t i = 0; i < 3; i++) {
        scene s = scene_begin(1 + i, NULL);
        for (uint64_t nth = 1; nth <= calls[i] + 1; nth++) {
            weir_device_calls before = calls_of(s.device);
            plan_fault(s.device, NULL, nth, false, WEIR_DEVICE_ERROR);
            weir_status status = weir_resource_open(s.device, specs[i], &s.mr);
            plan_fault(s.device, NULL, 0, false, WEIR_OK);
            must_equal(status, nth <= calls[i] ? WEIR_DEVICE_ERROR : WEIR_OK);
            must((s.mr == NULL) == (nth <= calls[i]));
            weir_device_calls after = calls_of(s.device);
            bool made = s.mr != NULL, has_pool = i < 2;
            must_equal(after.stream_destroy - before.stream_destroy,
                       made || nth == 1 ? 0 : 1);
            must_equal(after.mempool_destroy - before.mempool_destroy,
                       made || nth <= 2 || !has_pool ? 0 : 1);
        }
        scene_end(&s);
    }
}

static void creation_needs_host_memory(void **state)
{
    (void)state;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.no_ledger = true; /* it says so itself when it has no host memory */
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    weir_device *device = open_with("emulated:0", &options);
    weir_resource *mr = NULL;
    uint64_t nth = 0;
    while (mr == NULL) {
        weir__host_fail_at(++nth, false);
        weir_status status = weir_async_create(device, NULL, &mr);
        weir__host_fail_at(0, false);
        must_equal(status, mr == NULL ? WEIR_OUT_OF_HOST_MEMORY : WEIR_OK);
    }
    must(nth > 3); /* the leaf, its table, the resource, and what the device needs */

    void *none;
    weir__host_fail_at(1, false);
    must_answer(WEIR_OUT_OF_HOST_MEMORY,
                weir_allocate(mr, NULL, MIB, WEIR_ALIGNMENT, &none));
    weir__host_fail_at(0, false);
    weir_resource_statistics now = statistics_of(mr);
    must_equal(now.failures, 1);
    must_equal(now.held_bytes + now.allocations + now.out_blocks, 0);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* ---- allocating ---- */

static void a_failed_allocation_changes_nothing(void **state)
{
    (void)state;
    static const char *const calls[] = { "mempool_malloc", "stream_is_capturing" };
    scene s = scene_begin(5, "async");
    for (size_t i = 0; i < 2; i++) {
        void *none = &s;
        plan_fault(s.device, calls[i], 1, false, WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR,
                    weir_allocate(s.mr, s.a, MIB, WEIR_ALIGNMENT, &none));
        must(none == NULL);
    }
    weir_resource_statistics now = statistics_of(s.mr);
    must_equal(now.failures, 2);
    must_equal(now.held_bytes + now.allocations + now.out_blocks, 0);
    scene_end(&s);
}

/* Each call on the way to a capture's memory fails; what was drawn is not lost. */
static void a_captures_memory_survives_failures(void **state)
{
    (void)state;
    static const char *const calls[] = { "stream_create", "mempool_malloc",
                                         "stream_sync" };
    scene s = scene_begin(6, "async");
    weir_capture *capture;
    void *ptr;
    must_ok(weir_capture_begin(s.mr, s.a, &capture));
    for (size_t i = 0; i < 3; i++) {
        plan_fault(s.device, calls[i], 1, false, WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR,
                    weir_allocate(s.mr, s.a, MIB, WEIR_ALIGNMENT, &ptr));
        must_equal(statistics_of(s.mr).kept_bytes, 0);
    }
    ptr = take(s.mr, s.a, MIB);
    give(s.mr, s.a, ptr, MIB);
    must_ok(weir_capture_release(capture, s.a));
    /* Twice what one block needs would show that the first is lost. */
    must_ok(weir_device_sync(s.device));
    must(weir_resource_trim_sync(s.mr, 0) <= 2 * MIB);
    must_equal(statistics_of(s.mr).held_bytes, 0);
    scene_end(&s);
}

/* Neither waited for nor taken back: it is kept until a wait for the device. */
static void a_stray_block_is_kept(void **state)
{
    (void)state;
    scene s = scene_begin(7, "async");
    weir_capture *capture;
    void *none;
    must_ok(weir_capture_begin(s.mr, s.a, &capture));
    /* From the wait on everything fails. */
    plan_fault(s.device, NULL, 3, true, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR,
                weir_allocate(s.mr, s.a, MIB, WEIR_ALIGNMENT, &none));
    plan_fault(s.device, NULL, 0, false, WEIR_OK);
    weir_resource_statistics now = statistics_of(s.mr);
    must_equal(now.kept_bytes, MIB);
    must_equal(now.set_aside_bytes, MIB);
    must_equal(now.out_blocks, 0);
    must_ok(weir_capture_release(capture, s.a));
    must_equal(weir_resource_trim_sync(s.mr, 0), MIB);
    must_equal(statistics_of(s.mr).kept_bytes, 0);
    scene_end(&s);
}

/* ---- giving back ---- */

static void what_the_driver_does_not_take_is_kept_and_told_once(void **state)
{
    (void)state;
    scene s = scene_begin(8, "async");
    void *x = take(s.mr, s.a, MIB);
    stamp(s.device, s.a, x, MIB, 1);
    plan_fault(s.device, "mempool_free", 1, false, WEIR_DEVICE_ERROR);
    give(s.mr, s.a, x, MIB);
    weir_resource_statistics now = statistics_of(s.mr);
    must_equal(now.out_bytes + now.out_blocks, 0);
    must_equal(now.deallocations, 1);
    must_equal(now.kept_bytes, MIB);

    misuse_log log;
    misuse_begin(&log);
    must(!weir_deallocate(s.mr, s.a, x, MIB, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, x);
    misuse_end();

    must_be_told(&s, WEIR_DEVICE_ERROR);
    must_equal(statistics_of(s.mr).kept_bytes, MIB);
    void *y = take(s.mr, s.b, 256);
    must_equal(statistics_of(s.mr).kept_bytes, 0); /* freed on the way */
    give(s.mr, s.b, y, 256);
    scene_end(&s);
}

/* What nobody could ask about may be captured. It is no failure of a free. */
static void a_free_that_cannot_ask_is_kept(void **state)
{
    (void)state;
    scene s = scene_begin(9, "async");
    void *x = take(s.mr, s.a, MIB);
    plan_fault(s.device, "stream_is_capturing", 1, false, WEIR_DEVICE_ERROR);
    give(s.mr, s.a, x, MIB);
    must_equal(statistics_of(s.mr).kept_bytes, MIB);
    void *y = take(s.mr, s.b, 256);
    must_equal(statistics_of(s.mr).kept_bytes, 0);
    give(s.mr, s.b, y, 256);
    scene_end(&s);
}

/* The wait for one of the points fails: then none of it has happened, and the block is
 * behind all of them still. */
static void a_failed_wait_for_points_keeps_the_block(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        scene s = scene_begin(9 + nth, "async");
        void *x = take(s.mr, s.a, MIB), *y;
        must_ok(weir_stream_wait(s.device, s.b, s.a));
        uint64_t gates[2];
        weir_point points[2];
        must_ok(weir_emulated_stall(s.device, s.a, &gates[0]));
        must_ok(weir_emulated_stall(s.device, s.b, &gates[1]));
        must_ok(weir_point_here(s.device, s.a, &points[0]));
        must_ok(weir_point_here(s.device, s.b, &points[1]));
        plan_fault(s.device, "stream_wait_event", nth, false, WEIR_DEVICE_ERROR);
        must(weir_deallocate_after(s.mr, x, MIB, WEIR_ALIGNMENT, points, 2));
        must_equal(statistics_of(s.mr).kept_bytes, MIB);
        must_equal(calls_of(s.device).mempool_free, 0);
        y = take(s.mr, s.b, 256); /* tries again; the host does not wait */
        must_equal(statistics_of(s.mr).kept_bytes, 0);
        give(s.mr, s.b, y, 256);
        must_ok(weir_emulated_open_gate(s.device, gates[0]));
        must_ok(weir_emulated_open_gate(s.device, gates[1]));
        scene_end(&s);
    }
}

/* ---- the rest ---- */

static void trim_that_cannot_be_measured_does_nothing(void **state)
{
    (void)state;
    scene s = scene_begin(12, "async");
    give(s.mr, s.a, take(s.mr, s.a, MIB), MIB);
    must_equal(statistics_of(s.mr).held_bytes, MIB);
    plan_fault(s.device, "mempool_get_state", 1, true, WEIR_DEVICE_ERROR);
    must_equal(weir_resource_trim_sync(s.mr, 0), 0);
    must_equal(calls_of(s.device).mempool_trim, 0);
    must_equal(statistics_of(s.mr).held_bytes, MIB); /* as known last */
    plan_fault(s.device, "mempool_trim", 1, true, WEIR_DEVICE_ERROR);
    must_equal(weir_resource_trim_sync(s.mr, 0), 0);
    plan_fault(s.device, NULL, 0, false, WEIR_OK);
    must_equal(weir_resource_trim_sync(s.mr, 0), MIB);
    scene_end(&s);
}

static void the_end_of_a_pool_is_tried_again(void **state)
{
    (void)state;
    for (int lasting = 0; lasting < 2; lasting++) {
        scene s = scene_begin(13, "async");
        give(s.mr, s.a, take(s.mr, s.a, MIB), MIB);
        must_ok(weir_device_sync(s.device)); /* else CUDA's is not destroyed yet */
        plan_fault(s.device, "mempool_destroy", 1, lasting != 0, WEIR_DEVICE_ERROR);
        weir_resource_unref(s.mr);
        s.mr = NULL;
        must_equal(calls_of(s.device).mempool_destroy, lasting ? 3 : 2);
        plan_fault(s.device, NULL, 0, false, WEIR_OK);
        must_ok(weir_device_sync(s.device));
        end_stream(s.device, s.a);
        end_stream(s.device, s.b);
        if (lasting == 0) {
            close_emulated(s.device);
            continue;
        }
        must(strstr(weir_last_error().message, "leaks its pool") != NULL);
        close_anyhow(s.device);
    }
}

static void a_lost_device_leaves_the_books(void **state)
{
    (void)state;
    scene s = scene_begin(14, "async");
    void *x = take(s.mr, s.a, MIB), *y = take(s.mr, s.b, MIB), *z, *none;
    z = take(s.mr, s.a, MIB);
    weir_point point;
    must_ok(weir_point_here(s.device, s.b, &point));
    must_equal(statistics_of(s.mr).held_bytes, 3 * MIB);
    plan_fault(s.device, "mempool_free", 1, true, WEIR_DEVICE_LOST);
    give(s.mr, s.a, x, MIB);
    must(weir_deallocate_after(s.mr, y, MIB, WEIR_ALIGNMENT, &point, 1));
    must(weir_free(s.mr, z));
    must_answer(WEIR_DEVICE_LOST,
                weir_allocate(s.mr, s.a, 1, WEIR_ALIGNMENT, &none));
    weir_resource_statistics now = statistics_of(s.mr);
    must_equal(now.out_blocks + now.out_bytes, 0);
    must_equal(now.deallocations, 3);
    must_equal(now.held_bytes, 3 * MIB);
    must_equal(now.kept_bytes, 3 * MIB);
    must_equal(weir_resource_trim_sync(s.mr, 0), 0);
    weir_resource *none_made;
    must_answer(WEIR_DEVICE_LOST, weir_async_create(s.device, NULL, &none_made));
    must(none_made == NULL);
    weir_resource_unref(s.mr);
    must_equal(weir_last_error().status, WEIR_DEVICE_LOST);
    must(strstr(weir_last_error().message, "leaks") != NULL);
    close_anyhow(s.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creation_leaves_nothing_behind),
        cmocka_unit_test(creation_needs_host_memory),
        cmocka_unit_test(a_failed_allocation_changes_nothing),
        cmocka_unit_test(a_captures_memory_survives_failures),
        cmocka_unit_test(a_stray_block_is_kept),
        cmocka_unit_test(what_the_driver_does_not_take_is_kept_and_told_once),
        cmocka_unit_test(a_free_that_cannot_ask_is_kept),
        cmocka_unit_test(a_failed_wait_for_points_keeps_the_block),
        cmocka_unit_test(trim_that_cannot_be_measured_does_nothing),
        cmocka_unit_test(the_end_of_a_pool_is_tried_again),
        cmocka_unit_test(a_lost_device_leaves_the_books),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
