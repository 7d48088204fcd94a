/* test_points.c - a point is its own device's, as long as that is open: who asks
 * another one about it is told so, rather than that it is done. */
#include "support.h"

typedef struct scene {
    weir_device *device, *other;
    weir_stream stream, others;
    weir_point point; /* on `stream`, which stands still */
    uint64_t gate;
} scene;

static scene scene_open(uint64_t seed)
{
    scene it = { .device = open_stepped(support_seed(seed)),
                 .other = open_with("emulated:1", NULL) };
    it.stream = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.others = make_stream(it.other, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_emulated_stall(it.device, it.stream, &it.gate));
    must_ok(weir_point_here(it.device, it.stream, &it.point));
    return it;
}

static void scene_close(scene *it)
{
    must_ok(weir_emulated_open_gate(it->device, it->gate));
    must_ok(weir_point_sync(it->device, it->point));
    must_ok(weir_stream_destroy(it->device, it->stream));
    must_ok(weir_stream_destroy(it->other, it->others));
    weir_device_unref(it->device);
    weir_device_unref(it->other);
}

static void must_be_no_point(weir_device *device, weir_stream stream, weir_point point)
{
    bool is_done = true;
    must_answer(WEIR_INVALID_ARGUMENT, weir_stream_wait_point(device, stream, point));
    must_answer(WEIR_INVALID_ARGUMENT, weir_point_query(device, point, &is_done));
    must(!is_done);
    must_answer(WEIR_INVALID_ARGUMENT, weir_point_sync(device, point));
}

static void other_devices_refuse_a_point(void **state)
{
    (void)state;
    scene it = scene_open(1);
    bool is_done = true;
    must_be_no_point(it.other, it.others, it.point);
    must_ok(weir_point_query(it.device, it.point, &is_done));
    must(!is_done);
    scene_close(&it);
}

static void block_stays_out_of_who_names_it(void **state)
{
    (void)state;
    scene it = scene_open(2);
    misuse_log log;
    weir_resource *mr;
    must_ok(weir_resource_open(it.other, "pool/device", &mr));
    void *ptr = take(mr, it.others, 1000);
    weir_point points[2] = { { 0 }, it.point };
    must_ok(weir_point_here(it.other, it.others, &points[0]));
    misuse_begin(&log);
    must(!weir_deallocate_after(mr, ptr, 1000, WEIR_ALIGNMENT, points, 2));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_STREAM, ptr);
    misuse_end();
    must(weir_deallocate_after(mr, ptr, 1000, WEIR_ALIGNMENT, points, 1));
    weir_resource_unref(mr);
    scene_close(&it);
}

static void point_ends_with_its_device(void **state)
{
    (void)state;
    scene it = scene_open(3);
    const weir_point point = it.point, none = { 0 };
    scene_close(&it);
    weir_device *device = open_stepped(support_seed(3));
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    must_be_no_point(device, stream, point);
    must_ok(weir_point_sync(device, none));
    must_ok(weir_stream_wait_point(device, stream, none));
    must_ok(weir_stream_destroy(device, stream));
    weir_device_unref(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_devices_refuse_a_point),
        cmocka_unit_test(block_stays_out_of_who_names_it),
        cmocka_unit_test(point_ends_with_its_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
