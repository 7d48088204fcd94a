/* test_order_listen.c - those who keep memory per stream: what they hear before streams
 * end and captures begin, and which clocks they may rest on until then. */
#include "device/device.h"
#include "stream_order.h"
#include "support.h"
#include "support_scene.h"
#include "weir/weir.h"

/* ---- somebody who listens ---- */

typedef struct ears {
    weir__order_listener listener; /* first */
    weir__order *order;
    uint32_t count;
    weir_stream stream;      /* of the last call, and what held during it */
    uint64_t clock;
    bool was_steady;
    bool was_captured;
    weir__mark mark;         /* taken and closed then */
    weir_status closed;
} ears;

static bool is_steady(weir__order *order, weir_stream stream)
{
    uint64_t clock;
    const _Atomic uint64_t *counter;
    return weir__order_steady(order, stream, &clock, &counter);
}

static void hears(weir__order_listener *listener, weir_stream stream, uint64_t clock)
{
    ears *self = (ears *)listener;
    self->count++;
    self->stream = stream;
    self->clock = clock;
    self->was_steady = is_steady(self->order, stream);
    self->was_captured = weir__order_stream_is_captured(self->order, stream);
    self->mark = weir__order_mark_here(self->order, clock);
    self->closed = weir__order_close(self->order, clock);
}

static void listen(ears *self, weir_device *device)
{
    *self = (ears){ .listener = { .stream_changes = hears }, .order = device->order };
    must_ok(weir__order_listen(self->order, &self->listener));
}

static uint64_t clock_of(weir_device *device, weir_stream stream)
{
    uint64_t clock;
    must_ok(weir__order_clock(device->order, stream, &clock));
    return clock;
}

/* ---- streams that end ---- */

/* What is marked then is covered by an event, and can be waited for afterwards. */
static void listener_hears_of_a_retirement_before_it(void **state)
{
    (void)state;
    ears all;
    scene it = scene_open(false);
    scene_make_streams(&it);
    uint64_t clock = clock_of(it.device, it.a), taker = clock_of(it.device, it.b);
    listen(&all, it.device);
    must(is_steady(it.device->order, it.a));

    uint64_t gate;
    must_ok(weir_emulated_stall(it.device, it.a, &gate));
    must_ok(weir_stream_retire(it.device, it.a));
    must_equal(all.count, 1);
    must(all.stream == it.a && all.clock == clock);
    must(!all.was_steady);
    must_ok(all.closed);
    must(!is_steady(it.device->order, it.a));

    must(weir__order_can_wait(it.device->order, taker, all.mark));
    must_ok(weir__order_wait(it.device->order, taker, it.b, all.mark));
    must_not_finish(&it, it.b);
    must_ok(weir_emulated_open_gate(it.device, gate));

    must_ok(weir_stream_register(it.device, it.a)); /* another life */
    must(is_steady(it.device->order, it.a));
    must(clock_of(it.device, it.a) != clock);
    must_ok(weir_stream_retire(it.device, it.a));
    must_equal(all.count, 2);
    must_ok(weir__stream_destroy(it.device, it.a));
    it.a = NULL;
    weir__order_unlisten(it.device->order, &all.listener);
    scene_close(&it);
}

static void refused_retirement_leaves_all_as_it_was(void **state)
{
    (void)state;
    ears all;
    scene it = scene_open(false);
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    listen(&all, it.device);
    uint64_t captured;

    must_ok(weir_emulated_capture_begin(it.device, it.a)); /* nobody has told Weir */
    must_answer(WEIR_CAPTURING, weir_stream_retire(it.device, it.a));
    must_ok(weir_emulated_capture_end(it.device, it.a, &captured));
    must_equal(all.count, 0);
    must(is_steady(it.device->order, it.a));

    weir_capture *capture;
    must_ok(weir_capture_begin(it.pool, it.a, &capture));
    must_equal(all.count, 1);
    must_answer(WEIR_CAPTURING, weir_stream_retire(it.device, it.a));
    must_equal(all.count, 1);
    must_ok(weir_capture_release(capture, it.a));
    must(is_steady(it.device->order, it.a));

    weir_stream unknown = (weir_stream)&all;
    must_answer(WEIR_NOT_FOUND, weir_stream_retire(it.device, unknown));
    must_equal(all.count, 2); /* the capture's end */
    weir__order_unlisten(it.device->order, &all.listener);
    scene_close(&it);
}

/* ---- captures ---- */

static void listener_hears_of_a_capture_before_and_after(void **state)
{
    (void)state;
    ears all;
    scene it = scene_open(false);
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    uint64_t clock = clock_of(it.device, it.a);
    listen(&all, it.device);
    weir_capture *capture, *second;

    must_ok(weir_capture_begin(it.pool, it.a, &capture));
    must_equal(all.count, 1);
    must(all.stream == it.a && all.clock == clock);
    must(!all.was_captured && !all.was_steady);
    must_equal(all.mark.clock, clock);
    must(!is_steady(it.device->order, it.a));
    must_answer(WEIR_CAPTURING, weir_capture_begin(it.pool, it.a, &second));
    must_equal(all.count, 1);

    must_ok(weir_capture_end(capture));
    must_equal(all.count, 2);
    must(all.stream == it.a && all.clock == clock);
    must(!all.was_captured && all.was_steady);
    must_answer(WEIR_INVALID_ARGUMENT, weir_capture_end(capture));
    must_ok(weir_capture_release(capture, it.a)); /* of one that has ended */
    must_equal(all.count, 2);

    must_ok(weir_capture_begin(it.pool, it.a, &capture));
    must_ok(weir_capture_release(capture, it.a)); /* ends it as well */
    must_equal(all.count, 4);
    must(is_steady(it.device->order, it.a));
    weir__order_unlisten(it.device->order, &all.listener);
    scene_close(&it);
}

/* ---- which clocks are steady ---- */

static void stream_is_steady_if_its_clock_ends_with_a_word(void **state)
{
    (void)state;
    scene it = scene_open(false);
    weir__order *order = it.device->order;
    uint64_t clock, legacy;
    const _Atomic uint64_t *counter, *of_legacy;
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);

    must(weir__order_steady(order, it.a, &clock, &counter));
    must_equal(clock, clock_of(it.device, it.a));
    must(weir__order_steady(order, NULL, &legacy, &of_legacy));
    must_equal(legacy, clock_of(it.device, WEIR_STREAM_LEGACY));
    must(weir__order_steady(order, WEIR_STREAM_LEGACY, &clock, &counter));
    must(clock == legacy && counter == of_legacy);

    must(!weir__order_steady(order, WEIR_STREAM_PER_THREAD, &clock, &counter));
    must(clock == 0 && counter == NULL);
    (void)clock_of(it.device, WEIR_STREAM_PER_THREAD);
    must(!is_steady(order, WEIR_STREAM_PER_THREAD));
    weir_stream unknown;
    must_ok(weir__stream_create(it.device, false, &unknown));
    must(!is_steady(order, unknown));
    (void)clock_of(it.device, unknown);
    must(!is_steady(order, unknown));
    must_ok(weir__stream_destroy(it.device, unknown));
    scene_close(&it);
}

static void no_stream_is_steady_where_each_free_has_its_event(void **state)
{
    (void)state;
    scene it = scene_open(true);
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must(!is_steady(it.device->order, it.a));
    must(!is_steady(it.device->order, NULL));
    scene_close(&it);
}

/* The next mark is one for what was freed before it, as the header explains. */
static void counter_tells_the_next_mark(void **state)
{
    (void)state;
    scene it = scene_open(false);
    uint64_t clock;
    const _Atomic uint64_t *counter;
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must(weir__order_steady(it.device->order, it.a, &clock, &counter));
    for (int i = 0; i < 3; i++) {
        uint64_t number = *counter + 1;
        weir__mark mark = weir__order_mark_here(it.device->order, clock);
        must(mark.clock == clock && mark.number == number);
        must_equal(*counter, number);
    }
    scene_close(&it);
}

/* ---- who listens ---- */

static void all_listeners_hear_until_they_leave(void **state)
{
    (void)state;
    ears three[3];
    scene it = scene_open(false);
    scene_make_streams(&it);
    for (int i = 0; i < 3; i++)
        listen(&three[i], it.device);
    must_ok(weir_stream_destroy(it.device, it.a));
    must(three[0].count == 1 && three[1].count == 1 && three[2].count == 1);
    weir__order_unlisten(it.device->order, &three[1].listener);
    must_ok(weir_stream_destroy(it.device, it.b));
    must(three[0].count == 2 && three[1].count == 1 && three[2].count == 2);
    weir__order_unlisten(it.device->order, &three[0].listener);
    weir__order_unlisten(it.device->order, &three[2].listener);
    must_ok(weir_stream_destroy(it.device, it.c));
    must(three[0].count == 2 && three[1].count == 1 && three[2].count == 2);
    it.a = it.b = it.c = NULL;
    scene_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listener_hears_of_a_retirement_before_it),
        cmocka_unit_test(refused_retirement_leaves_all_as_it_was),
        cmocka_unit_test(listener_hears_of_a_capture_before_and_after),
        cmocka_unit_test(stream_is_steady_if_its_clock_ends_with_a_word),
        cmocka_unit_test(no_stream_is_steady_where_each_free_has_its_event),
        cmocka_unit_test(counter_tells_the_next_mark),
        cmocka_unit_test(all_listeners_hear_until_they_leave),
    };
    return cmocka_run_group_tests_name("listeners", tests, NULL, NULL);
}
