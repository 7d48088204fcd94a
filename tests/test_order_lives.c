/* test_order_lives.c - a stream is retired while other threads have in hand all records
 * of events that there are. */
#include "clocks.h"
#include "internal.h"
#include "support_scene.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(retirement_sees_to_a_record),
        cmocka_unit_test(retirement_without_a_record_forgets_the_stream),
    };
    return cmocka_run_group_tests_name("lives of streams", tests, NULL, NULL);
}
