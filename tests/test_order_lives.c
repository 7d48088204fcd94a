/* test_order_lives.c - streams' clocks end while other threads are at work: a stream is
 * retired while they have in hand all records of events that there are; and a clock is
 * dropped while they mean it, because its stream is unknown to Weir, and idle. */
#include "clocks.h"
#include "internal.h"
#include "support_scene.h"
#include "support_work.h"

/* What others have taken. */
static weir__cover *take_all_records(weir__order *order)
{
    weir__cover *taken = NULL, *one;
    weir__mutex_lock(&order->lock);
    while ((one = weir__cover_take(order)) != NULL) {
        one->next = taken;
        taken = one;
    }
    weir__mutex_unlock(&order->lock);
    must(taken != NULL);
    return taken;
}

static void give_back_records(weir__order *order, weir__cover *taken)
{
    weir__mutex_lock(&order->lock);
    while (taken != NULL) {
        weir__cover *next = taken->next;
        weir__cover_unref(order, taken);
        taken = next;
    }
    weir__mutex_unlock(&order->lock);
    weir__order_verify(order);
}

/* A stream that is alone, with memory freed on it whose mark is still open: without an
 * event by its end nobody could ever wait for that. */
static void *leave_memory(scene *it, uint64_t *gate)
{
    it->a = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    void *ptr = take(it->pool, it->a, SIZE);
    must_ok(weir_emulated_stall(it->device, it->a, gate));
    stamp(it->device, it->a, ptr, SIZE, 1);
    give(it->pool, it->a, ptr, SIZE);
    must_equal(calls_of(it->device).event_record, 0);
    return ptr;
}

static void retirement_sees_to_a_record(void **state)
{
    (void)state;
    scene it = scene_open(false);
    weir__order *order = it.device->order;
    uint64_t gate;
    void *ptr = leave_memory(&it, &gate);
    weir__cover *taken = take_all_records(order);
    must_ok(weir_stream_destroy(it.device, it.a));
    it.a = NULL;
    must_equal(calls_of(it.device).event_record, 1);
    give_back_records(order, taken);
    it.b = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must(take(it.pool, it.b, SIZE) == ptr);
    stamp(it.device, it.b, ptr, SIZE, 2);
    must_not_finish(&it, it.b); /* it is behind that event */
    must_ok(weir_emulated_open_gate(it.device, gate));
    check_stamp(it.device, it.b, ptr, SIZE, 2);
    give(it.pool, it.b, ptr, SIZE);
    scene_close(&it);
}

/* Where there is no memory for one, either, the stream is forgotten all the same, and
 * its memory waits for the device. */
static void retirement_without_a_record_forgets_the_stream(void **state)
{
    (void)state;
    scene it = scene_open(false);
    weir__order *order = it.device->order;
    uint64_t gate;
    void *ptr = leave_memory(&it, &gate), *again;
    weir__cover *taken = take_all_records(order);
    weir__host_fail_at(1, true);
    must_answer(WEIR_OUT_OF_HOST_MEMORY, weir_stream_retire(it.device, it.a));
    weir__host_fail_at(0, false);
    must_answer(WEIR_NOT_FOUND, weir_stream_retire(it.device, it.a));
    must_ok(weir_emulated_stream_destroy(it.device, it.a));
    it.a = NULL;
    give_back_records(order, taken);
    it.b = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must(weir_allocate(it.pool, it.b, SIZE, WEIR_ALIGNMENT, &again) != WEIR_OK);
    must_ok(weir_emulated_open_gate(it.device, gate));
    must_ok(weir_device_sync(it.device));
    must(take(it.pool, it.b, SIZE) == ptr);
    stamp(it.device, it.b, ptr, SIZE, 2);
    give(it.pool, it.b, ptr, SIZE);
    scene_close(&it);
}

#define STRANGERS 6

typedef struct passage {
    weir_device *device;
    weir_resource *mr;
    weir_stream strangers[STRANGERS]; /* streams that Weir is not told of */
} passage;

/* Each stream is captured by this thread alone. */
static void captures_some(void *argument)
{
    passage *self = argument;
    for (int i = 0; i < STRANGERS / 2; i++) {
        weir_capture *capture = NULL;
        must_ok(weir_capture_begin(self->mr, self->strangers[i], &capture));
        must_ok(weir_capture_end(capture));
        must_ok(weir_capture_release(capture, self->strangers[i]));
    }
}

/* To meet one, Weir drops what it has of two that are idle. */
static void meets_others(void *argument)
{
    passage *self = argument;
    for (int i = STRANGERS / 2; i < STRANGERS; i++) {
        weir_point point;
        must_ok(weir_point_here(self->device, self->strangers[i], &point));
    }
}

static void stream_is_captured_while_its_clock_is_dropped(void **state)
{
    (void)state;
    uint64_t runs = support_bound("captures of strangers", 600, 2000);
    for (uint64_t seed = 0; seed < runs; seed++) {
        passage self = { .device = open_stepped(support_seed(seed)) };
        must_ok(weir_device_resource_create(self.device, &self.mr));
        for (int i = 0; i < STRANGERS; i++)
            self.strangers[i] = raw_stream(self.device, WEIR_STREAM_NON_BLOCKING);
        run_both(self.device, captures_some, meets_others, &self);
        weir_resource_unref(self.mr);
        for (int i = 0; i < STRANGERS; i++)
            raw_stream_end(self.device, self.strangers[i]);
        weir__order_verify(self.device->order);
        close_emulated(self.device);
    }
}

/* Who holds one while he ends it would wait for himself. */
static void who_holds_a_life_may_end_it(void **state)
{
    (void)state;
    weir_device *device = open_stepped(1);
    weir__order *order = device->order;
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir__life life;
    must_ok(weir__order_life(order, stream, &life));
    must(weir__order_hold_life(order, stream, life));
    end_stream(device, stream);
    must_ok(weir_device_sync(device));
    end_stream(device, make_stream(device, WEIR_STREAM_NON_BLOCKING));
    weir__order_let_go_life(order, life);
    must(!weir__order_hold_life(order, stream, life));
    weir__order_verify(order);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(retirement_sees_to_a_record),
        cmocka_unit_test(retirement_without_a_record_forgets_the_stream),
        cmocka_unit_test(stream_is_captured_while_its_clock_is_dropped),
        cmocka_unit_test(who_holds_a_life_may_end_it),
    };
    return cmocka_run_group_tests_name("lives of streams", tests, NULL, NULL);
}
