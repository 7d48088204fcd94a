/* test_order_captures.c - stream order where streams are captured, declared or not,
 * known to Weir or not. */
#include <string.h>

#include "device/device.h"
#include "stream_order.h"
#include "support_scene.h"

static void captured_memory_stays_the_captures_own(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    weir_capture *capture;
    size_t captured;
    must_ok(weir_capture_begin(it.pool, it.a, &capture));
    must_ok(weir_emulated_capture_begin(it.device, it.a));
    void *x = take(it.pool, it.a, SIZE);
    stamp(it.device, it.a, x, SIZE, 1);
    give(it.pool, it.a, x, SIZE);
    must(take(it.pool, it.a, SIZE) == x); /* it may reuse its own */
    give(it.pool, it.a, x, SIZE);
    void *other;
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(it.pool, it.b, SIZE, WEIR_ALIGNMENT, &other));
    must_ok(weir_emulated_capture_end(it.device, it.a, &captured));
    must_equal(captured, 1); /* the stamp, and nothing of Weir's */
    must_ok(weir_capture_end(capture));
    must_answer(WEIR_INVALID_ARGUMENT, weir_capture_end(capture));
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(it.pool, it.b, SIZE, WEIR_ALIGNMENT, &other));

    must_ok(weir_capture_release(capture, it.c));
    must(take(it.pool, it.b, SIZE) == x);
    give(it.pool, it.b, x, SIZE);
    scene_close(&it);
}

/* Freed in the capture, but born before: work from before may still use it, so not even
 * the capture gets it. */
static void capture_does_not_reuse_what_it_adopts(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    weir_capture *capture;
    void *other, *x = take(it.pool, it.a, SIZE);
    stamp(it.device, it.a, x, SIZE, 1);
    must_ok(weir_capture_begin(it.pool, it.a, &capture));
    give(it.pool, it.a, x, SIZE);
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(it.pool, it.a, SIZE, WEIR_ALIGNMENT, &other));
    must_ok(weir_capture_end(capture));
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(it.pool, it.a, SIZE, WEIR_ALIGNMENT, &other));
    must_ok(weir_capture_release(capture, it.a));
    must(take(it.pool, it.b, SIZE) == x);
    stamp(it.device, it.b, x, SIZE, 2);
    give(it.pool, it.b, x, SIZE);
    scene_close(&it);
}

/* Freed after the end, but before the release: still the capture's. */
static void memory_born_in_a_capture_returns_to_it(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    weir_capture *capture;
    must_ok(weir_capture_begin(it.pool, it.a, &capture));
    void *other, *x = take(it.pool, it.a, SIZE);
    must_ok(weir_capture_end(capture));
    give(it.pool, it.b, x, SIZE);
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(it.pool, it.b, SIZE, WEIR_ALIGNMENT, &other));
    must_ok(weir_capture_release(capture, it.a));
    must(take(it.pool, it.b, SIZE) == x);
    give(it.pool, it.b, x, SIZE);
    scene_close(&it);
}

static void capture_takes_only_what_is_done(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    weir_capture *capture;
    void *y, *x = take(it.pool, it.b, SIZE);
    stamp(it.device, it.b, x, SIZE, 1);
    give(it.pool, it.b, x, SIZE);
    must_ok(weir_capture_begin(it.pool, it.a, &capture));
    weir_device_calls before = calls_of(it.device);
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(it.pool, it.a, SIZE, WEIR_ALIGNMENT, &y));
    must_answer(WEIR_CAPTURING, weir_stream_wait(it.device, it.a, it.b));
    must_answer(WEIR_CAPTURING, weir_stream_sync(it.device, it.a));
    must_answer(WEIR_CAPTURING, weir_stream_destroy(it.device, it.a));
    must_equal(calls_of(it.device).event_query, before.event_query);
    must_equal(calls_of(it.device).stream_wait_event, before.stream_wait_event);
    must_answer(WEIR_CAPTURING, weir_device_sync(it.device)); /* it may begin now */
    must_equal(calls_of(it.device).device_sync, before.device_sync);
    must_ok(weir_stream_sync(it.device, it.b));
    must(take(it.pool, it.a, SIZE) == x);
    give(it.pool, it.a, x, SIZE);
    must_ok(weir_capture_release(capture, it.b)); /* ends it as well */
    scene_close(&it);
}

static void write_first_byte(void *argument, void *const views[])
{
    (void)argument;
    *(char *)views[0] = 1;
}

/* It comes back behind more points than are kept one by one: one wait for the device
 * stands for them, but not for the graph. */
static void memory_of_a_graph_stays_behind_many_points(void **state)
{
    (void)state;
    enum { MANY = 6 };
    scene it = scene_open(false);
    scene_make_streams(&it);
    weir_resource *mr;
    weir_capture *capture;
    weir_emulated_graph *graph;
    weir_stream streams[MANY];
    weir_point points[MANY];
    uint64_t gates[MANY];
    must_ok(weir_resource_open(it.device, "device", &mr));
    must_ok(weir_capture_begin(mr, it.a, &capture));
    must_ok(weir_emulated_capture_begin(it.device, it.a));
    void *x = take(mr, it.a, SIZE);
    const weir_emulated_range range = { x, SIZE, WEIR_EMULATED_WRITE };
    must_ok(weir_emulated_launch(it.device, it.a, write_first_byte, NULL, &range, 1));
    must_ok(weir_emulated_capture_end_graph(it.device, it.a, &graph));
    must_ok(weir_capture_end(capture));
    for (int i = 0; i < MANY; i++) {
        streams[i] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        must_ok(weir_emulated_stall(it.device, streams[i], &gates[i]));
        must_ok(weir_point_here(it.device, streams[i], &points[i]));
    }
    must(weir_deallocate_after(mr, x, SIZE, WEIR_ALIGNMENT, points, MANY));
    for (int i = 0; i < MANY; i++) {
        must_ok(weir_emulated_open_gate(it.device, gates[i]));
        end_stream(it.device, streams[i]);
    }
    must_ok(weir_device_sync(it.device));
    must_equal(weir_resource_trim_sync(mr, 0), 0);
    must_ok(weir_emulated_graph_launch(it.device, graph, it.b));
    must_ok(weir_stream_sync(it.device, it.b));
    must_be_quiet(it.device);
    must_ok(weir_emulated_graph_destroy(it.device, graph));
    must_ok(weir_capture_release(capture, it.b));
    must_equal(weir_resource_trim_sync(mr, 0), SIZE);
    weir_resource_unref(mr);
    scene_close(&it);
}

/* A resource of its own has a block set aside, which waits for the device. */
static weir_resource *open_with_set_aside(const scene *it, const char *spec, void **x)
{
    weir_resource *mr;
    must_ok(weir_resource_open(it->device, spec, &mr));
    weir_stream gone = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    *x = take(mr, gone, SIZE);
    end_stream(it->device, gone);
    give(mr, gone, *x, SIZE);
    return mr;
}

/* Who ends has no other occasion: he waits though a capture is declared, as long as
 * none has begun. */
static void what_ends_beside_a_declared_capture_leaks_nothing(void **state)
{
    (void)state;
    static const char *const specs[] = { "device", "pool/device", "checking/device",
                                         "async" };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        scene it = scene_open(false);
        scene_make_streams(&it);
        const size_t before = device_free_bytes(it.device);
        weir_capture *capture;
        void *x;
        weir_resource *mr = open_with_set_aside(&it, specs[i], &x);
        must_ok(weir_capture_begin(it.pool, it.a, &capture));
        must_answer(WEIR_CAPTURING, weir_device_sync(it.device));
        weir_resource_unref(mr);
        must_ok(weir_capture_release(capture, it.a));
        must_ok(weir_device_sync(it.device)); /* a driver's pool gives back then */
        must_equal(device_free_bytes(it.device), before);
        scene_close(&it);
    }
}

/* Once it has begun he leaks rather: the capture is intact. */
static void what_ends_beside_a_capture_leaves_it_intact(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    weir_capture *capture;
    void *x;
    weir_resource *mr = open_with_set_aside(&it, "device", &x);
    must_ok(weir_capture_begin(it.pool, it.a, &capture));
    must_ok(weir_emulated_capture_begin(it.device, it.a));
    weir_resource_unref(mr);
    must(strstr(weir_last_error().message, "ends and leaks") != NULL);
    must_ok(weir_emulated_capture_end(it.device, it.a, NULL));
    must_ok(weir_capture_release(capture, it.a));
    must_ok(weir_device_sync(it.device));
    must_ok(weir__free(it.device, x)); /* what was leaked */
    scene_close(&it);
}

static void undeclared_capture_is_left_intact(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    size_t captured;
    void *y, *x = take(it.pool, it.a, SIZE);
    stamp(it.device, it.a, x, SIZE, 1);
    give(it.pool, it.a, x, SIZE);
    must_ok(weir_emulated_capture_begin(it.device, it.b));
    weir_status status = weir_allocate(it.pool, it.b, SIZE, WEIR_ALIGNMENT, &y);
    must(status == WEIR_CAPTURING || status == WEIR_LIMIT_REACHED);
    must_answer(WEIR_CAPTURING, weir_stream_wait(it.device, it.b, it.a));
    must_answer(WEIR_CAPTURING, weir_stream_wait(it.device, it.a, it.b));
    must_ok(weir_emulated_capture_end(it.device, it.b, &captured));
    must_equal(captured, 0);
    must(take(it.pool, it.b, SIZE) == x);
    give(it.pool, it.b, x, SIZE);
    scene_close(&it);
}

/* The driver bears no question who a capturing stream is: what Weir does not know is
 * left alone, and what comes back there is set aside. */
static void undeclared_capture_of_an_unknown_stream_is_left_intact(void **state)
{
    (void)state;
    scene it = scene_open(false);
    weir_stream foreign;
    size_t captured;
    void *y;
    must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &foreign));
    void *x = take(it.pool, foreign, SIZE);
    stamp(it.device, foreign, x, SIZE, 1);
    must_ok(weir_emulated_capture_begin(it.device, foreign));
    must_answer(WEIR_CAPTURING,
                weir_allocate(it.pool, foreign, SIZE, WEIR_ALIGNMENT, &y));
    must_answer(WEIR_CAPTURING, weir_stream_register(it.device, foreign));
    give(it.pool, foreign, x, SIZE);
    must_ok(weir_emulated_capture_end(it.device, foreign, &captured));
    must_equal(captured, 0);
    must(weir_allocate(it.pool, foreign, SIZE, WEIR_ALIGNMENT, &y) != WEIR_OK);
    must_ok(weir_device_sync(it.device));
    must(take(it.pool, foreign, SIZE) == x);
    give(it.pool, foreign, x, SIZE);
    must_ok(weir_emulated_stream_destroy(it.device, foreign));
    scene_close(&it);
}

/* One that is declared is known by its handle until the end: whether that was before
 * the driver's own beginning or after it, when nobody may ask who it is. */
static void declared_capture_of_an_unknown_stream_is_known(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        scene it = scene_open(false);
        weir_stream foreign;
        weir_capture *capture, *none;
        size_t captured;
        void *y;
        must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING,
                                            &foreign));
        if (late)
            must_ok(weir_emulated_capture_begin(it.device, foreign));
        must_ok(weir_capture_begin(it.pool, foreign, &capture));
        if (!late)
            must_ok(weir_emulated_capture_begin(it.device, foreign));
        must_answer(WEIR_CAPTURING, weir_capture_begin(it.pool, foreign, &none));
        void *x = take(it.pool, foreign, SIZE);
        stamp(it.device, foreign, x, SIZE, 1);
        give(it.pool, foreign, x, SIZE);
        must(take(it.pool, foreign, SIZE) == x); /* its own comes back to it */
        give(it.pool, foreign, x, SIZE);
        must_ok(weir_emulated_capture_end(it.device, foreign, &captured));
        must_equal(captured, 1);
        must_ok(weir_capture_end(capture));
        must(weir_allocate(it.pool, foreign, SIZE, WEIR_ALIGNMENT, &y) != WEIR_OK);
        must_ok(weir_capture_release(capture, foreign));
        must(take(it.pool, foreign, SIZE) == x);
        give(it.pool, foreign, x, SIZE);
        must_ok(weir_emulated_stream_destroy(it.device, foreign));
        scene_close(&it);
    }
}

/* Nothing is marked on a clock that stands for a handle alone: so it can be dropped,
 * though the stream is gone before the capture's end is told. */
static void late_captures_leave_no_clocks(void **state)
{
    (void)state;
    enum { MOST = 24 };
    scene it = scene_open(false);
    size_t clocks = 0;
    weir_stream all[MOST]; /* no handle comes twice */
    for (int i = 0; i < MOST; i++)
        must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING,
                                            &all[i]));
    for (int i = 0; i < MOST; i++) {
        weir_stream foreign = all[i];
        weir_capture *capture;
        must_ok(weir_emulated_capture_begin(it.device, foreign));
        must_ok(weir_capture_begin(it.pool, foreign, &capture));
        must_ok(weir_emulated_capture_end(it.device, foreign, NULL));
        must_ok(weir_emulated_stream_destroy(it.device, foreign));
        must_ok(weir_capture_end(capture));
        must_ok(weir_capture_release(capture, NULL));
        must_ok(weir_stream_sync(it.device, NULL));
        if (i == MOST / 2)
            clocks = weir__order_measure(it.device->order).clocks;
    }
    must(weir__order_measure(it.device->order).clocks <= clocks);
    scene_close(&it);
}

typedef struct declarer {
    scene *it;
    weir_stream stream;
    weir_capture *capture;
} declarer;

static void declare(void *argument)
{
    declarer *self = argument;
    weir_status status = weir_capture_begin(self->it->pool, self->stream,
                                            &self->capture);
    must(status == WEIR_OK || status == WEIR_CAPTURING);
}

/* Two threads at once, before the driver's own beginning or after it. */
static void a_capture_is_declared_once(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        support_use_seed(seed);
        scene it = scene_open(false);
        declarer both[2] = { { .it = &it }, { .it = &it } };
        void *arguments[2] = { &both[0], &both[1] };
        weir_stream foreign;
        must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING,
                                            &foreign));
        both[0].stream = both[1].stream = foreign;
        if (seed % 2 == 0)
            must_ok(weir_emulated_capture_begin(it.device, foreign));
        must_ok(weir_emulated_run_threads(it.device, 2, declare, arguments));
        must((both[0].capture != NULL) != (both[1].capture != NULL));
        if (seed % 2 == 0)
            must_ok(weir_emulated_capture_end(it.device, foreign, NULL));
        for (int i = 0; i < 2; i++)
            must_ok(weir_capture_release(both[i].capture, NULL));
        must_ok(weir_emulated_stream_destroy(it.device, foreign));
        scene_close(&it);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captured_memory_stays_the_captures_own),
        cmocka_unit_test(capture_does_not_reuse_what_it_adopts),
        cmocka_unit_test(memory_born_in_a_capture_returns_to_it),
        cmocka_unit_test(capture_takes_only_what_is_done),
        cmocka_unit_test(memory_of_a_graph_stays_behind_many_points),
        cmocka_unit_test(what_ends_beside_a_declared_capture_leaks_nothing),
        cmocka_unit_test(what_ends_beside_a_capture_leaves_it_intact),
        cmocka_unit_test(undeclared_capture_is_left_intact),
        cmocka_unit_test(undeclared_capture_of_an_unknown_stream_is_left_intact),
        cmocka_unit_test(declared_capture_of_an_unknown_stream_is_known),
        cmocka_unit_test(late_captures_leave_no_clocks),
        cmocka_unit_test(a_capture_is_declared_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
