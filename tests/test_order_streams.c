/* test_order_streams.c - stream order on every kind of stream: default, unknown,
 * retired, and those that an event could not be recorded on. */
#include "device/device.h"
#include "stream_order.h"
#include "support_scene.h"

/* ---- default streams ---- */

typedef struct relay {
    scene *it;
    void *x;
    bool alive; /* the first thread still lives when the second takes */
} relay;

static void relay_first(void *argument)
{
    relay *self = argument;
    weir_device *device = self->it->device;
    self->x = take(self->it->pool, WEIR_STREAM_PER_THREAD, SIZE);
    stamp(device, WEIR_STREAM_PER_THREAD, self->x, SIZE, 1);
    check_stamp(device, WEIR_STREAM_PER_THREAD, self->x, SIZE, 1);
    give(self->it->pool, WEIR_STREAM_PER_THREAD, self->x, SIZE);
    must_ok(weir_emulated_host_signal(device, 1));
    if (self->alive)
        must_ok(weir_emulated_host_await(device, 2));
}

static void relay_second(void *argument)
{
    relay *self = argument;
    weir_device *device = self->it->device;
    if (self->alive)
        must_ok(weir_emulated_host_await(device, 1));
    must(take(self->it->pool, WEIR_STREAM_PER_THREAD, SIZE) == self->x);
    stamp(device, WEIR_STREAM_PER_THREAD, self->x, SIZE, 2);
    check_stamp(device, WEIR_STREAM_PER_THREAD, self->x, SIZE, 2);
    give(self->it->pool, WEIR_STREAM_PER_THREAD, self->x, SIZE);
    must_ok(weir_emulated_host_signal(device, 2));
}

static void per_thread_memory_is_taken_while_its_thread_lives(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("test_order_streams.relays", 20, 200);
    for (uint64_t i = 0; i < seeds; i++) {
        support_use_seed(i);
        scene it = scene_open(false);
        relay self = { .it = &it, .alive = true };
        run_both(it.device, relay_first, relay_second, &self);
        scene_close(&it);
    }
}

static void per_thread_memory_is_taken_after_its_thread_ended(void **state)
{
    (void)state;
    scene it = scene_open(false);
    relay self = { .it = &it, .alive = false };
    void *arguments[1] = { &self };
    must_ok(weir_emulated_run_threads(it.device, 1, relay_first, arguments));
    must_ok(weir_emulated_run_threads(it.device, 1, relay_second, arguments));
    scene_close(&it);
}

/* Memory goes from `from` to `to`; returns how many events that took. */
static uint64_t events_to_hand_over(scene *it, weir_stream from, weir_stream to)
{
    void *x = take(it->pool, from, SIZE);
    stamp(it->device, from, x, SIZE, 1);
    give(it->pool, from, x, SIZE);
    uint64_t waits = calls_of(it->device).stream_wait_event;
    must(take(it->pool, to, SIZE) == x);
    waits = calls_of(it->device).stream_wait_event - waits;
    stamp(it->device, to, x, SIZE, 2);
    check_stamp(it->device, to, x, SIZE, 2);
    give(it->pool, to, x, SIZE);
    must_ok(weir_device_sync(it->device));
    must_be_quiet(it->device);
    return waits;
}

/* An event on the legacy stream would hold up all blocking streams. */
static void legacy_makes_no_barrier_for_blocking_streams(void **state)
{
    (void)state;
    scene it = scene_open(false);
    weir_stream blocking = make_stream(it.device, WEIR_STREAM_BLOCKING);
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    uint64_t recorded = calls_of(it.device).event_record;
    give(it.pool, NULL, take(it.pool, NULL, SIZE), SIZE);
    must_equal(events_to_hand_over(&it, NULL, blocking), 0);
    /* One on the blocking stream as it takes, and one as it frees; none on legacy. */
    must_equal(calls_of(it.device).event_record, recorded + 2);
    must_equal(events_to_hand_over(&it, NULL, it.a), 1);
    end_stream(it.device, blocking);
    scene_close(&it);
}

static void legacy_needs_events_with_non_blocking_streams_only(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    weir_stream blocking = make_stream(it.device, WEIR_STREAM_BLOCKING);
    must_equal(events_to_hand_over(&it, NULL, blocking), 0);
    must_equal(events_to_hand_over(&it, blocking, NULL), 0);
    must_equal(events_to_hand_over(&it, WEIR_STREAM_LEGACY, blocking), 0);
    must_equal(events_to_hand_over(&it, NULL, WEIR_STREAM_PER_THREAD), 0);
    must_equal(events_to_hand_over(&it, NULL, it.a), 1);
    must_equal(events_to_hand_over(&it, it.a, NULL), 1);
    must_equal(events_to_hand_over(&it, it.a, blocking), 1);
    must_equal(events_to_hand_over(&it, NULL, WEIR_STREAM_LEGACY), 0);
    end_stream(it.device, blocking);
    scene_close(&it);
}

/* The legacy stream takes and gives back without putting anything on the stream in
 * between: the next taker is not behind the first user by CUDA's rule alone. */
static void legacy_passes_on_what_it_never_used(void **state)
{
    (void)state;
    scene it = scene_open(false);
    uint64_t gate;
    weir_stream first = make_stream(it.device, WEIR_STREAM_BLOCKING);
    weir_stream second = make_stream(it.device, WEIR_STREAM_BLOCKING);
    void *x = take(it.pool, first, SIZE);
    must_ok(weir_emulated_stall(it.device, first, &gate));
    stamp(it.device, first, x, SIZE, 1);
    give(it.pool, first, x, SIZE);
    give(it.pool, NULL, take(it.pool, NULL, SIZE), SIZE);
    must(take(it.pool, second, SIZE) == x);
    stamp(it.device, second, x, SIZE, 2);
    must_not_finish(&it, second);
    must_ok(weir_emulated_open_gate(it.device, gate));
    check_stamp(it.device, second, x, SIZE, 2);
    give(it.pool, second, x, SIZE);
    end_stream(it.device, first);
    end_stream(it.device, second);
    scene_close(&it);
}

/* The same where the user orders the legacy stream, and then frees there. */
static void legacy_waits_are_passed_on(void **state)
{
    (void)state;
    scene it = scene_open(false);
    uint64_t gate;
    weir_stream first = make_stream(it.device, WEIR_STREAM_BLOCKING);
    weir_stream second = make_stream(it.device, WEIR_STREAM_BLOCKING);
    void *x = take(it.pool, first, SIZE);
    must_ok(weir_emulated_stall(it.device, first, &gate));
    stamp(it.device, first, x, SIZE, 1);
    must_ok(weir_stream_wait(it.device, NULL, first));
    give(it.pool, NULL, x, SIZE);
    must(take(it.pool, second, SIZE) == x);
    stamp(it.device, second, x, SIZE, 2);
    must_not_finish(&it, second);
    must_ok(weir_emulated_open_gate(it.device, gate));
    check_stamp(it.device, second, x, SIZE, 2);
    give(it.pool, second, x, SIZE);
    end_stream(it.device, first);
    end_stream(it.device, second);
    scene_close(&it);
}

/* Memory that was handed out by the rule is behind its last user by the next operation.
 * The host's wait for the stream is none, so there has to be one before. */
static void host_waits_for_what_was_handed_out(bool legacy_takes)
{
    scene it = scene_open(false);
    uint64_t gate;
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    weir_stream blocking = make_stream(it.device, WEIR_STREAM_BLOCKING);
    weir_stream user = legacy_takes ? blocking : NULL;
    weir_stream idle = legacy_takes ? NULL : blocking;
    void *x = take(it.pool, user, SIZE);
    must_ok(weir_emulated_stall(it.device, user, &gate));
    stamp(it.device, user, x, SIZE, 1);
    give(it.pool, user, x, SIZE);
    must(take(it.pool, idle, SIZE) == x);
    bool done;
    must_ok(weir_stream_query(it.device, idle, &done));
    must(!done);
    must_not_finish(&it, idle);
    must_ok(weir_emulated_open_gate(it.device, gate));
    must_finish(&it, idle);
    stamp(it.device, it.a, x, SIZE, 2); /* the host has ordered it */
    give(it.pool, it.a, x, SIZE);
    end_stream(it.device, blocking);
    scene_close(&it);
}

static void host_waits_for_what_the_legacy_stream_was_handed(void **state)
{
    (void)state;
    host_waits_for_what_was_handed_out(true);
}

static void host_waits_for_what_a_blocking_stream_was_handed(void **state)
{
    (void)state;
    host_waits_for_what_was_handed_out(false);
}

static void unknown_blocking_stream_waits_at_once(void **state)
{
    (void)state;
    scene it = scene_open(false);
    uint64_t gate;
    weir_stream foreign;
    must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_BLOCKING, &foreign));
    void *x = take(it.pool, NULL, SIZE);
    must_ok(weir_emulated_stall(it.device, NULL, &gate));
    stamp(it.device, NULL, x, SIZE, 1);
    give(it.pool, NULL, x, SIZE);
    must(take(it.pool, foreign, SIZE) == x);
    must_not_finish(&it, foreign);
    must_ok(weir_emulated_open_gate(it.device, gate));
    must_finish(&it, foreign);
    give(it.pool, foreign, x, SIZE);
    must_finish(&it, foreign);
    must_ok(weir_emulated_stream_destroy(it.device, foreign));
    scene_close(&it);
}

/* The legacy stream's next operation is behind the blocking streams that there are
 * then. One that has ended is none of them, whether it ends before its memory is
 * taken or after. */
static void legacy_takes_from_a_stream_that_ends(bool before)
{
    scene it = scene_open(false);
    uint64_t gate;
    weir_stream first = make_stream(it.device, WEIR_STREAM_BLOCKING);
    void *x = take(it.pool, first, SIZE);
    must_ok(weir_emulated_stall(it.device, first, &gate));
    stamp(it.device, first, x, SIZE, 1);
    give(it.pool, first, x, SIZE);
    if (before)
        must_ok(weir_stream_destroy(it.device, first));
    must(take(it.pool, NULL, SIZE) == x);
    if (!before)
        must_ok(weir_stream_destroy(it.device, first));
    stamp(it.device, NULL, x, SIZE, 2);
    must_not_finish(&it, NULL);
    must_ok(weir_emulated_open_gate(it.device, gate));
    check_stamp(it.device, NULL, x, SIZE, 2);
    give(it.pool, NULL, x, SIZE);
    scene_close(&it);
}

static void legacy_waits_for_a_stream_that_has_ended(void **state)
{
    (void)state;
    legacy_takes_from_a_stream_that_ends(true);
}

static void legacy_waits_for_a_stream_that_ends_later(void **state)
{
    (void)state;
    legacy_takes_from_a_stream_that_ends(false);
}

/* ---- streams that end ---- */

static void reused_handle_is_another_stream(void **state)
{
    (void)state;
    scene it = scene_open(false);
    uint64_t gate;
    weir_stream old, young;
    must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &old));
    void *x = take(it.pool, old, SIZE);
    must_ok(weir_emulated_stall(it.device, old, &gate));
    stamp(it.device, old, x, SIZE, 1);
    give(it.pool, old, x, SIZE);
    must_ok(weir_emulated_stream_destroy(it.device, old));
    must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &young));
    must(young == old);

    must(take(it.pool, young, SIZE) == x);
    stamp(it.device, young, x, SIZE, 2);
    must_not_finish(&it, young);
    must_ok(weir_emulated_open_gate(it.device, gate));
    check_stamp(it.device, young, x, SIZE, 2);
    give(it.pool, young, x, SIZE);
    must_finish(&it, young);
    must_ok(weir_emulated_stream_destroy(it.device, young));
    scene_close(&it);
}

/* Retiring records what was open, since nobody can do that later. */
static void retired_stream_leaves_its_marks_ordered(void **state)
{
    (void)state;
    scene it = scene_open(false);
    uint64_t gate;
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING); /* alone: nothing closes */
    void *x = take(it.pool, it.a, SIZE);
    must_ok(weir_emulated_stall(it.device, it.a, &gate));
    stamp(it.device, it.a, x, SIZE, 1);
    give(it.pool, it.a, x, SIZE);
    must_equal(calls_of(it.device).event_record, 0);
    must_ok(weir_stream_destroy(it.device, it.a));
    must_equal(calls_of(it.device).event_record, 1);
    it.a = NULL;

    it.b = make_stream(it.device, WEIR_STREAM_NON_BLOCKING); /* the same handle */
    must(take(it.pool, it.b, SIZE) == x);
    stamp(it.device, it.b, x, SIZE, 2);
    must_not_finish(&it, it.b);
    must_ok(weir_emulated_open_gate(it.device, gate));
    check_stamp(it.device, it.b, x, SIZE, 2);
    give(it.pool, it.b, x, SIZE);
    scene_close(&it);
}

/* The owner of a registered stream keeps it; only the promise ends. */
static void registered_stream_is_cheap_until_it_is_retired(void **state)
{
    (void)state;
    scene it = scene_open(false);
    weir_stream foreign;
    must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &foreign));
    must_ok(weir_stream_register(it.device, foreign));
    must_answer(WEIR_INVALID_ARGUMENT, weir_stream_register(it.device, foreign));
    uint64_t asked = calls_of(it.device).stream_get_id;
    give(it.pool, foreign, take(it.pool, foreign, SIZE), SIZE);
    must_equal(calls_of(it.device).stream_get_id, asked);
    must_equal(calls_of(it.device).event_record, 0);

    must_ok(weir_stream_retire(it.device, foreign));
    must_answer(WEIR_NOT_FOUND, weir_stream_retire(it.device, foreign));
    uint64_t recorded = calls_of(it.device).event_record;
    give(it.pool, foreign, take(it.pool, foreign, SIZE), SIZE);
    must_equal(calls_of(it.device).stream_get_id, asked + 2);
    must_equal(calls_of(it.device).event_record, recorded + 1);
    must_ok(weir_emulated_stream_destroy(it.device, foreign));
    scene_close(&it);
}

static void many_streams_leave_memory_flat(bool known)
{
    scene it = scene_open(false);
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    uint64_t streams = support_bound("test_order_streams.streams", 5000, 100000);
    weir__order_size early = { 0 };
    for (uint64_t i = 0; i < streams; i++) {
        weir_stream stream;
        if (known)
            stream = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        else
            must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING,
                                                &stream));
        void *x = take(it.pool, stream, SIZE);
        must_ok(weir_fill(it.device, stream, x, (uint8_t)i, 256));
        give(it.pool, stream, x, SIZE);
        if (i % 16 == 0)
            must_finish(&it, stream);
        if (known)
            must_ok(weir_stream_destroy(it.device, stream));
        else
            must_ok(weir_emulated_stream_destroy(it.device, stream));
        if (i == streams / 2)
            early = weir__order_measure(it.device->order);
    }
    weir__order_size late = weir__order_measure(it.device->order);
    must(late.clocks <= early.clocks + 64);
    must(late.covers <= early.covers + 128 && late.events <= late.covers);
    must(late.clocks < 200);
    scene_close(&it);
}

static void known_streams_leave_memory_flat(void **state)
{
    (void)state;
    many_streams_leave_memory_flat(true);
}

static void unknown_streams_leave_memory_flat(void **state)
{
    (void)state;
    many_streams_leave_memory_flat(false);
}

/* ---- when recording fails ---- */

/* An unknown stream's event cannot be recorded later: its memory waits for a device
 * wait. */
static void memory_without_its_event_waits_for_the_device(void **state)
{
    (void)state;
    scene it = scene_open(false);
    weir_stream foreign;
    void *y;
    it.b = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &foreign));
    void *x = take(it.pool, foreign, SIZE);
    stamp(it.device, foreign, x, SIZE, 1);
    plan_fault(it.device, "event_record", 1, true, WEIR_DEVICE_ERROR);
    give(it.pool, foreign, x, SIZE);
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    must_ok(weir_emulated_stream_destroy(it.device, foreign));

    must(weir_allocate(it.pool, it.b, SIZE, WEIR_ALIGNMENT, &y) != WEIR_OK);
    must_ok(weir_device_sync(it.device));
    must(take(it.pool, it.b, SIZE) == x);
    give(it.pool, it.b, x, SIZE);
    scene_close(&it);
}

/* The stream's identity cannot be had: no clock to put the memory under. */
static void memory_of_a_nameless_stream_is_set_aside(void **state)
{
    (void)state;
    scene it = scene_open(false);
    weir_stream foreign;
    void *y;
    it.b = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &foreign));
    void *x = take(it.pool, it.b, SIZE);
    must_ok(weir_stream_wait(it.device, foreign, it.b));
    stamp(it.device, foreign, x, SIZE, 1);
    plan_fault(it.device, "stream_get_id", 1, true, WEIR_DEVICE_ERROR);
    give(it.pool, foreign, x, SIZE);
    plan_fault(it.device, NULL, 0, false, WEIR_OK);

    must(weir_allocate(it.pool, it.b, SIZE, WEIR_ALIGNMENT, &y) != WEIR_OK);
    must_ok(weir_device_sync(it.device));
    must(take(it.pool, it.b, SIZE) == x);
    give(it.pool, it.b, x, SIZE);
    must_ok(weir_emulated_stream_destroy(it.device, foreign));
    scene_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(per_thread_memory_is_taken_while_its_thread_lives),
        cmocka_unit_test(per_thread_memory_is_taken_after_its_thread_ended),
        cmocka_unit_test(legacy_makes_no_barrier_for_blocking_streams),
        cmocka_unit_test(legacy_needs_events_with_non_blocking_streams_only),
        cmocka_unit_test(legacy_passes_on_what_it_never_used),
        cmocka_unit_test(legacy_waits_are_passed_on),
        cmocka_unit_test(host_waits_for_what_the_legacy_stream_was_handed),
        cmocka_unit_test(host_waits_for_what_a_blocking_stream_was_handed),
        cmocka_unit_test(unknown_blocking_stream_waits_at_once),
        cmocka_unit_test(legacy_waits_for_a_stream_that_has_ended),
        cmocka_unit_test(legacy_waits_for_a_stream_that_ends_later),
        cmocka_unit_test(reused_handle_is_another_stream),
        cmocka_unit_test(retired_stream_leaves_its_marks_ordered),
        cmocka_unit_test(registered_stream_is_cheap_until_it_is_retired),
        cmocka_unit_test(known_streams_leave_memory_flat),
        cmocka_unit_test(unknown_streams_leave_memory_flat),
        cmocka_unit_test(memory_without_its_event_waits_for_the_device),
        cmocka_unit_test(memory_of_a_nameless_stream_is_set_aside),
    };
    return cmocka_run_group_tests_name("kinds of streams", tests, NULL, NULL);
}
