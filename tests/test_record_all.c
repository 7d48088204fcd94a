/* test_record_all.c - points behind all of a device: the primitive that records an
 * event there, and what stream order makes of it for memory whose last user nobody
 * knows. */
#include <string.h>

#include "clocks.h"
#include "internal.h"
#include "stream_order.h"
#include "support_scene.h"
#include "support_sweep.h"
#include "support_work.h"

#define BYTES ((size_t)4096)

static void record_all(weir_device *device, weir_event event)
{
    must_ok(weir__event_record_all(device, event));
}

/* Moves a stepped device on until all is done that nothing holds. */
static void settle(weir_device *device)
{
    bool stepped = true;
    while (stepped)
        must_ok(weir_emulated_step(device, &stepped));
}

/* ---- the primitive: what it covers ---- */

/* Streams of all kinds, and one that has ended with its work still to do. */
static void event_is_behind_every_stream(void **state)
{
    (void)state;
    enum { STREAMS = 5 };
    weir_device *device = open_stepped(support_seed(1));
    weir_stream streams[STREAMS] = {
        NULL, WEIR_STREAM_PER_THREAD, raw_stream(device, WEIR_STREAM_BLOCKING),
        raw_stream(device, WEIR_STREAM_NON_BLOCKING),
        raw_stream(device, WEIR_STREAM_NON_BLOCKING)
    };
    weir_event event = raw_event(device);
    for (int i = 0; i < STREAMS; i++) {
        uint64_t gate = raw_stall(device, streams[i]);
        record_all(device, event);
        if (i == STREAMS - 1)
            raw_stream_end(device, streams[i]);
        settle(device);
        must(!raw_event_is_done(device, event));
        raw_open_gate(device, gate);
        settle(device);
        must(raw_event_is_done(device, event));
    }
    raw_stream_end(device, streams[2]);
    raw_stream_end(device, streams[3]);
    raw_event_end(device, event);
    close_emulated(device);
}

/* It is on no stream: neither does what comes later hold it, nor does it hold that; and
 * it is no operation of the legacy stream's. */
static void event_is_on_no_stream(void **state)
{
    (void)state;
    work_log log;
    work_log_begin(&log);
    weir_device *device = open_stepped(support_seed(2));
    weir_stream a = raw_stream(device, WEIR_STREAM_BLOCKING);
    weir_stream b = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_event event = raw_event(device);
    uint64_t gate = raw_stall(device, b);
    record_all(device, event);
    work_put(device, a, &log, 'a');
    work_put(device, NULL, &log, 'l');
    raw_sync_stream(device, NULL);
    must_have_run(&log, "al");
    must(!raw_event_is_done(device, event));

    uint64_t later = raw_stall(device, a);
    raw_open_gate(device, gate);
    must_ok(weir__event_sync(device, event));
    must(raw_event_is_done(device, event));
    raw_open_gate(device, later);
    raw_stream_end(device, a);
    raw_stream_end(device, b);
    raw_event_end(device, event);
    close_emulated(device);
}

static void event_that_is_recorded_again_means_the_new_place(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(3));
    weir_stream a = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_event event = raw_event(device);
    record_all(device, event); /* of nothing */
    must_ok(weir__event_sync(device, event));
    uint64_t gate = raw_stall(device, a);
    record_all(device, event);
    must(!raw_event_is_done(device, event));
    raw_record(device, event, NULL);
    must_ok(weir__event_sync(device, event));
    record_all(device, event);
    must(!raw_event_is_done(device, event));
    raw_event_end(device, event); /* while it waits */
    raw_open_gate(device, gate);
    raw_stream_end(device, a);
    close_emulated(device);
}

/* ---- who waits for it knows of all streams ---- */

typedef struct pair {
    weir_device *device;
    weir_stream a, b, t;
    weir_event event;
    void *ptr;
} pair;

/* Two streams write a half each. */
static pair pair_open(weir_device *device)
{
    pair it = { .device = device };
    it.a = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    it.b = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    it.t = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    it.event = raw_event(device);
    must_ok(weir__malloc(device, 2 * BYTES, &it.ptr));
    stamp(device, it.a, it.ptr, BYTES, 1);
    stamp(device, it.b, (char *)it.ptr + BYTES, BYTES, 2);
    return it;
}

static void pair_check(const pair *it)
{
    check_stamp(it->device, it->t, it->ptr, BYTES, 1);
    check_stamp(it->device, it->t, (char *)it->ptr + BYTES, BYTES, 2);
}

static void pair_end(pair *it)
{
    must_ok(weir__device_sync(it->device));
    must_ok(weir__free(it->device, it->ptr));
    raw_stream_end(it->device, it->a);
    raw_stream_end(it->device, it->b);
    raw_stream_end(it->device, it->t);
    raw_event_end(it->device, it->event);
}

static void who_waits_is_behind_all(weir_device *device)
{
    pair it = pair_open(device);
    record_all(device, it.event);
    raw_wait_event(device, it.t, it.event);
    pair_check(&it);
    pair_end(&it);

    it = pair_open(device);
    record_all(device, it.event);
    must_ok(weir__event_sync(device, it.event));
    pair_check(&it);
    must_ok(weir__event_sync(device, it.event));
    pair_end(&it);

    it = pair_open(device);
    record_all(device, it.event);
    while (!raw_event_is_done(device, it.event))
        continue;
    pair_check(&it);
    pair_end(&it);
}

static void waits_and_questions_teach_everything(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 10; i++) {
        weir_device *device = open_stepped(support_seed(i));
        who_waits_is_behind_all(device);
        close_emulated(device);
    }
    weir_device *device = open_threads();
    for (int i = 0; i < 10; i++)
        who_waits_is_behind_all(device);
    close_emulated(device);
}

/* What was put on a stream after the record is a race. */
static void later_work_is_not_covered(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(4));
    pair it = pair_open(device);
    record_all(device, it.event);
    stamp(device, it.a, it.ptr, BYTES, 1);
    raw_wait_event(device, it.t, it.event);
    must_equal(weir_emulated_findings(device), 0);
    pair_check(&it);
    must(weir_emulated_findings(device) > 0);
    must_ok(weir__device_sync(device));
    (void)take_stamp_errors();
    pair_end(&it);
    close_anyhow(device);
}

/* Without work an event is pending until the host has waited. */
static void device_without_work_counts_it(void **state)
{
    (void)state;
    weir_device *device = open_emulated(WEIR_EMULATED_NO_WORK, 0);
    weir_event one = raw_event(device), two = raw_event(device);
    record_all(device, one);
    must(!raw_event_is_done(device, one));
    must_ok(weir__event_sync(device, one));
    must(raw_event_is_done(device, one));
    record_all(device, two);
    must(!raw_event_is_done(device, two));
    must_ok(weir__device_sync(device));
    must(raw_event_is_done(device, two));
    must_equal(calls_of(device).event_record_all, 2);
    raw_event_end(device, one);
    raw_event_end(device, two);
    close_emulated(device);
}

/* ---- what goes wrong ---- */

static void capture_forbids_it(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(5));
    weir_stream a = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_event event = raw_event(device);
    uint64_t gate = raw_stall(device, NULL);
    raw_record(device, event, NULL);
    must_ok(weir_emulated_capture_begin(device, a));
    must_answer(WEIR_DEVICE_ERROR, weir__event_record_all(device, event));
    must_equal(weir_last_error().native_code, 900);
    must_answer(WEIR_DEVICE_ERROR, weir_emulated_capture_end(device, a, NULL));
    must_equal(weir_last_error().native_code, 901); /* as with a driver: it is spoilt */
    must(!raw_event_is_done(device, event)); /* it is where it was */
    raw_open_gate(device, gate);
    must_ok(weir__event_sync(device, event));
    record_all(device, event);
    raw_stream_end(device, a);
    raw_event_end(device, event);
    close_emulated(device);
}

static void failures_leave_the_event_as_it_was(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(6));
    weir_event event = raw_event(device);
    uint64_t gate = raw_stall(device, NULL);
    plan_fault(device, "event_record_all", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir__event_record_all(device, event));
    must(raw_event_is_done(device, event)); /* it never was recorded */
    plan_fault(device, NULL, 0, false, WEIR_OK);

    uint64_t failing = 1;
    weir_status status = WEIR_OUT_OF_HOST_MEMORY;
    for (; status != WEIR_OK && !support_is_cuda(); failing++) {
        weir__host_fail_at(failing, false);
        status = weir__event_record_all(device, event);
        weir__host_fail_at(0, false);
        if (status != WEIR_OK) {
            must_answer(WEIR_OUT_OF_HOST_MEMORY, status);
            must(raw_event_is_done(device, event));
            must_be_quiet(device);
        }
        if (failing == 2) /* behind these are the ledger's, which then says so */
            break;
    }
    record_all(device, event);
    must(!raw_event_is_done(device, event));
    raw_open_gate(device, gate);
    raw_event_end(device, event);
    plan_fault(device, "event_record_all", 1, false, WEIR_DEVICE_LOST);
    must_answer(WEIR_DEVICE_LOST, weir__event_record_all(device, event));
    must_answer(WEIR_DEVICE_LOST, weir__event_record_all(device, event));
    close_anyhow(device);
}

/* ---- memory whose last user nobody knows ---- */

/* What a block gets that comes back from nobody knows where. */
static weir__mark aside_mark(const scene *it)
{
    return weir__order_mark_here(it->device->order, 0);
}

static bool is_done(const scene *it, weir__mark mark)
{
    return weir__order_is_done(it->device->order, 0, mark);
}

static weir__mark all_point(const scene *it)
{
    weir__mark mark;
    must_ok(weir__order_stock(it->device->order));
    must_ok(weir__order_all_point(it->device->order, &mark));
    weir__order_verify(it->device->order);
    return mark;
}

static weir_status try_all_point(const scene *it)
{
    must_ok(weir__order_stock(it->device->order));
    weir__mark mark = { 7, 7 };
    weir_status status = weir__order_all_point(it->device->order, &mark);
    must(status == WEIR_OK || mark.clock == 0);
    weir__order_verify(it->device->order);
    return status;
}

/* One point covers all that was set aside before, and nothing later. */
static void point_covers_what_was_set_aside_before(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    uint64_t gate, later;
    must_ok(weir_emulated_stall(it.device, it.a, &gate));
    weir__mark first = aside_mark(&it), second = aside_mark(&it);
    must(!is_done(&it, first) && !is_done(&it, second));
    must_equal(calls_of(it.device).event_query, 0); /* there is nothing to ask about */
    (void)all_point(&it);
    weir__mark third = aside_mark(&it);
    must(!is_done(&it, first) && !is_done(&it, second) && !is_done(&it, third));
    must_ok(weir_emulated_stall(it.device, it.b, &later));
    must_ok(weir_emulated_open_gate(it.device, gate));
    settle(it.device);
    must(is_done(&it, second));
    uint64_t asked = calls_of(it.device).event_query;
    must(is_done(&it, first) && !is_done(&it, third));
    must_equal(calls_of(it.device).event_query, asked); /* it is known */
    weir__mark point = all_point(&it);
    must(!is_done(&it, third) && !is_done(&it, point));
    must_ok(weir_emulated_open_gate(it.device, later));
    settle(it.device);
    must(is_done(&it, third) && is_done(&it, point));
    weir__order_verify(it.device->order);
    scene_close(&it);
}

/* Streams that nobody has told the library of, and memory that comes back by its
 * address alone. */
static void memory_of_nobody_is_handed_out_behind_a_point(void **state)
{
    (void)state;
    for (int by_wait = 0; by_wait < 2; by_wait++) {
        scene it = scene_open(false);
        scene_make_streams(&it);
        uint64_t gate;
        weir_stream foreign = raw_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        void *x;
        must_ok(weir__malloc(it.device, SIZE, &x));
        must_ok(weir_emulated_stall(it.device, foreign, &gate));
        stamp(it.device, foreign, x, SIZE, 1);
        raw_stream_end(it.device, foreign);
        weir__mark mark = aside_mark(&it);
        must(!weir__order_can_wait(it.device->order, 1, mark));
        must_answer(WEIR_DEVICE_ERROR,
                    weir__order_wait(it.device->order, 1, it.a, mark));
        (void)all_point(&it);

        uint64_t clock;
        must_ok(weir__order_clock(it.device->order, it.a, &clock));
        must(weir__order_can_wait(it.device->order, clock, mark));
        if (by_wait) { /* the stream waits on the device, and that is remembered */
            must_ok(weir__order_wait(it.device->order, clock, it.a, mark));
            must(weir__order_may_take(it.device->order, clock, mark));
            stamp(it.device, it.a, x, SIZE, 2);
            must_not_finish(&it, it.a);
            must_ok(weir_emulated_open_gate(it.device, gate));
        } else {
            must_ok(weir_emulated_open_gate(it.device, gate));
            must_ok(weir__order_sync(it.device->order, mark));
            must_equal(calls_of(it.device).device_sync, 0);
            must(weir__order_may_take(it.device->order, clock, mark));
            stamp(it.device, it.a, x, SIZE, 2);
        }
        check_stamp(it.device, it.a, x, SIZE, 2);
        must_finish(&it, it.a);
        must_ok(weir__free(it.device, x));
        scene_close(&it);
    }
}

/* A thread that finds the memory done by another's question knows what that knew. */
static void finds_it_done(void *argument)
{
    scene *it = argument;
    must_ok(weir_emulated_host_await(it->device, 1));
    weir__mark mark = { WEIR__CLOCK_ASIDE, 1 };
    must(weir__order_may_take(it->device->order, 0, mark));
    stamp(it->device, it->b, it->pool, BYTES, 2); /* see below */
}

static void asks(void *argument)
{
    scene *it = argument;
    (void)all_point(it);
    while (!is_done(it, (weir__mark){ WEIR__CLOCK_ASIDE, 1 }))
        settle(it->device);
    must_ok(weir_emulated_host_signal(it->device, 1));
}

static void what_one_thread_learns_another_may_use(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    void *x;
    must_ok(weir__malloc(it.device, BYTES, &x));
    stamp(it.device, it.a, x, BYTES, 1);
    must_equal(aside_mark(&it).number, 1);
    scene shared = it;
    shared.pool = x;
    run_both(it.device, asks, finds_it_done, &shared);
    must_finish(&it, it.b);
    must_ok(weir__free(it.device, x));
    scene_close(&it);
}

static void point_is_refused_while_a_stream_is_captured(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    weir_capture *capture;
    must_ok(weir_capture_begin(it.pool, it.a, &capture));
    must_ok(weir_emulated_capture_begin(it.device, it.a));
    must_answer(WEIR_CAPTURING, try_all_point(&it));
    must_ok(weir_emulated_capture_end(it.device, it.a, NULL)); /* it is intact */
    must_ok(weir_capture_release(capture, it.a));
    must_ok(weir_emulated_capture_begin(it.device, it.b));
    must_answer(WEIR_CAPTURING, try_all_point(&it));
    must_ok(weir_emulated_capture_end(it.device, it.b, NULL));
    must_equal(calls_of(it.device).event_record_all, 0);
    must_ok(try_all_point(&it));
    must_ok(weir_device_sync(it.device));
    scene_close(&it);
}

/* One thread asks for points, or waits for the device, while another captures, as it
 * has declared. */
typedef struct beside beside;
struct beside {
    scene it;
    bool captures;
    uint64_t lead; /* so many other calls come before each capture */
    void (*turn)(beside *self); /* else */
};

static void ask_for_points(beside *self)
{
    for (int i = 0; i < 24; i++) {
        weir__mark point;
        must_ok(weir__order_stock(self->it.device->order));
        weir_status status = weir__order_all_point(self->it.device->order, &point);
        must(status == WEIR_OK || status == WEIR_CAPTURING ||
             status == WEIR_OUT_OF_HOST_MEMORY); /* captures take spare records */
    }
}

static void wait_for_all(beside *self)
{
    for (int i = 0; i < 24; i++) {
        weir_status status = weir_device_sync(self->it.device);
        must(status == WEIR_OK || status == WEIR_CAPTURING);
    }
}

static void capture_beside(void *argument)
{
    beside *self = argument;
    weir_capture *capture;
    if (!self->captures) {
        self->turn(self);
        return;
    }
    for (int i = 0; i < 8; i++) {
        for (uint64_t k = 0; k < self->lead; k++) /* the other begins one meanwhile */
            must_ok(weir_stream_sync(self->it.device, self->it.b));
        must_ok(weir_capture_begin(self->it.pool, self->it.a, &capture));
        must_ok(weir_emulated_capture_begin(self->it.device, self->it.a));
        must_ok(weir_emulated_capture_end(self->it.device, self->it.a, NULL));
        must_ok(weir_capture_end(capture));
        must_ok(weir_capture_release(capture, self->it.a));
    }
}

static void capture_beside_who(void (*turn)(beside *self))
{
    uint64_t seeds = support_bound("test_record_all.captures", 60, 600);
    for (uint64_t i = 0; i < seeds; i++) {
        support_use_seed(i);
        scene it = scene_open(false);
        scene_make_streams(&it);
        beside both[2] = { { .it = it, .captures = true, .lead = 1 + i % 11 },
                           { .it = it, .turn = turn } };
        void *arguments[2] = { &both[0], &both[1] };
        must_ok(weir_emulated_run_threads(it.device, 2, capture_beside, arguments));
        scene_close(&it);
    }
}

static void no_capture_begins_while_a_point_is_recorded(void **state)
{
    (void)state;
    capture_beside_who(ask_for_points);
}

static void no_capture_begins_while_the_device_is_waited_for(void **state)
{
    (void)state;
    capture_beside_who(wait_for_all);
}

static void point_that_cannot_be_had_leaves_nothing(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    static const char *const calls[] = { "event_create", "event_record_all" };
    static const weir_status answers[] = { WEIR_DEVICE_ERROR, WEIR_NOT_SUPPORTED };
    weir__mark mark = aside_mark(&it);
    weir__order_size before = weir__order_measure(it.device->order);
    for (int i = 0; i < 4; i++) {
        plan_fault(it.device, calls[i / 2], 1, false, answers[i % 2]);
        must_answer(answers[i % 2], try_all_point(&it));
        plan_fault(it.device, NULL, 0, false, WEIR_OK);
        must_equal(weir__order_measure(it.device->order).covers, before.covers);
        must(!is_done(&it, mark));
    }
    must(!is_done(&it, aside_mark(&it)));
    must_ok(weir_device_sync(it.device));
    must(is_done(&it, mark)); /* as without points */
    scene_close(&it);
}

/* No host memory is asked for, and what frees may come to need is left to them. */
static void points_leave_frees_their_records(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    uint64_t gate;
    must_ok(weir_emulated_stall(it.device, it.a, &gate));
    must_ok(weir__order_stock(it.device->order));
    sweep_watch_library(it.device);
    weir__mark mark;
    weir_status status = WEIR_OK;
    for (int i = 0; i < 20 && status == WEIR_OK; i++)
        status = weir__order_all_point(it.device->order, &mark);
    sweep_library_must_not_have_asked(it.device);
    must_answer(WEIR_OUT_OF_HOST_MEMORY, status);
    must(it.device->order->spare_count >= it.device->order->clock_count);
    (void)all_point(&it);
    must_ok(weir_emulated_open_gate(it.device, gate));
    scene_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(event_is_behind_every_stream),
        cmocka_unit_test(event_is_on_no_stream),
        cmocka_unit_test(event_that_is_recorded_again_means_the_new_place),
        cmocka_unit_test(waits_and_questions_teach_everything),
        cmocka_unit_test(later_work_is_not_covered),
        cmocka_unit_test(device_without_work_counts_it),
        cmocka_unit_test(capture_forbids_it),
        cmocka_unit_test(failures_leave_the_event_as_it_was),
        cmocka_unit_test(point_covers_what_was_set_aside_before),
        cmocka_unit_test(memory_of_nobody_is_handed_out_behind_a_point),
        cmocka_unit_test(what_one_thread_learns_another_may_use),
        cmocka_unit_test(point_is_refused_while_a_stream_is_captured),
        cmocka_unit_test(no_capture_begins_while_a_point_is_recorded),
        cmocka_unit_test(no_capture_begins_while_the_device_is_waited_for),
        cmocka_unit_test(point_that_cannot_be_had_leaves_nothing),
        cmocka_unit_test(points_leave_frees_their_records),
    };
    return cmocka_run_group_tests_name("points behind all", tests, NULL, NULL);
}
