/* test_limbo.c - bytes whose last user nobody named: they wait, are asked about when
 * memory is wanted, and go behind a point of the whole device. */
#include <string.h>

#include "internal.h"
#include "storage.h"
#include "support_buffer.h"
#include "support_scene.h"
#include "support_work.h"

#define LIMIT SMALL_SCENE_BYTES

/* ---- looks ---- */

static void settle(weir_device *device)
{
    bool stepped = true;
    while (stepped)
        must_ok(weir_emulated_step(device, &stepped));
}

/* ---- until memory is wanted ---- */

static void nothing_is_asked_before_memory_is_wanted(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    stranger other = stranger_come(&it);
    weir_buffer buffer = make_buffer(&it, it.a, 64 * KIB);
    weir_storage *storage = buffer.storage;
    weir__storage_hold(storage, WEIR__HOLDER_NONE);
    weir_buffer_reset(&buffer);
    uint64_t calls = calls_in_all(it.device);
    weir__host_fail_at(1, true);
    weir__storage_leave_unnamed(storage);
    weir__host_fail_at(0, false);
    must_equal(calls_in_all(it.device), calls);
    must_be_in_limbo(&it, 1, 64 * KIB);
    look_in_vain(&it);
    buffer = make_buffer(&it, it.a, 64 * KIB);
    use_unnamed(&other, &buffer);
    must_be_in_limbo(&it, 2, 128 * KIB);
    must_equal(calls_of(it.device).event_record_all, 0);
    must_ok(weir_device_drain_sync(it.device));
    must_be_in_limbo(&it, 0, 0);
    stranger_go(&other);
    buffer_scene_close(&it);
}

/* ---- a thread's own stream ---- */

typedef struct producer {
    buffer_scene *it;
    weir_buffer buffer;
} producer;

static void makes_on_its_own(void *argument)
{
    producer *self = argument;
    self->buffer = make_buffer(self->it, WEIR_STREAM_PER_THREAD, 4 * KIB);
    write_all(self->it, WEIR_STREAM_PER_THREAD, &self->buffer, 3);
}

/* Nobody else can name it: who waits does so for all of the device. */
static void another_threads_own_stream_is_waited_for(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    producer made = { .it = &it };
    void *argument = &made;
    must_ok(weir_emulated_run_threads(it.device, 1, makes_on_its_own, &argument));
    must_ok(weir_buffer_wait(&made.buffer, it.a, WEIR_READ));
    check_all(&it, it.a, &made.buffer, 3);
    weir_buffer copy;
    must_ok(weir_buffer_copy(&made.buffer, NULL, it.b, &copy));
    check_all(&it, it.b, &copy, 3);
    must_ok(weir_buffer_resize(&made.buffer, 8 * KIB, it.a));
    must_equal(made.buffer.size, 8 * KIB);
    weir_buffer_reset(&copy);
    weir_buffer_reset(&made.buffer);
    must_ok(weir_device_drain_sync(it.device));
    buffer_scene_close(&it);
}

/* ---- above the bound ---- */

static void limbo_above_its_bound_goes_behind_a_point(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    stranger other = stranger_come(&it);
    size_t bound = pending_of(it.device).limbo_bound;
    uint64_t gate = stall_stream(&it, other.stream);
    weir_buffer buffers[3];
    for (int i = 0; i < 3; i++)
        buffers[i] = make_buffer(&it, it.a, bound / 2 + KIB);
    for (int i = 0; i < 2; i++)
        use_unnamed(&other, &buffers[i]);
    must_be_in_limbo(&it, 2, bound + 2 * KIB);
    for (int i = 0; i < 3; i++)
        look_in_vain(&it);
    must_equal(calls_of(it.device).event_record_all, 1); /* and no other meanwhile */
    must_be_in_limbo(&it, 2, bound + 2 * KIB);

    uint64_t later = stall_stream(&it, it.b); /* behind that point */
    open_stream(&it, gate);
    settle(it.device);
    use_unnamed(&other, &buffers[2]);
    settle(it.device);
    look_in_vain(&it);
    must_be_in_limbo(&it, 1, bound / 2 + KIB); /* which the point does not cover */
    must_equal(calls_of(it.device).event_record_all, 1);

    /* The bytes are as good as new, for any stream. */
    weir_buffer again = make_buffer(&it, it.a, 2 * (bound / 2 + KIB));
    write_all(&it, it.a, &again, 1);
    check_all(&it, it.a, &again, 1);
    weir_buffer_reset(&again);
    const weir_device_calls calls = calls_of(it.device);
    must_equal(calls.device_sync + calls.event_sync, 0);
    open_stream(&it, later);
    must_ok(weir_device_drain_sync(it.device));
    stranger_go(&other);
    buffer_scene_close(&it);
}

/* Neither limbo nor the capture takes harm. */
static void captures_are_left_alone(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    stranger other = stranger_come(&it);
    size_t bound = pending_of(it.device).limbo_bound;
    weir_buffer buffer = make_buffer(&it, it.a, bound + KIB);
    use_unnamed(&other, &buffer);
    must_ok(weir_emulated_capture_begin(it.device, it.b));
    look_in_vain(&it);
    must_be_in_limbo(&it, 1, bound + KIB);
    must_equal(calls_of(it.device).event_record_all, 0);
    must_ok(weir_emulated_capture_end(it.device, it.b, NULL));
    look_in_vain(&it);
    settle(it.device);
    look_in_vain(&it);
    must_be_in_limbo(&it, 0, 0);
    stranger_go(&other);
    buffer_scene_close(&it);
}

static void device_without_points_keeps_it(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    stranger other = stranger_come(&it);
    size_t bound = pending_of(it.device).limbo_bound;
    weir_buffer buffer = make_buffer(&it, it.a, bound + KIB);
    use_unnamed(&other, &buffer);
    plan_fault(it.device, "event_record_all", 1, true, WEIR_NOT_SUPPORTED);
    look_in_vain(&it);
    look_in_vain(&it);
    must_equal(weir_emulated_fault_calls(it.device), 1); /* it is known then */
    must_be_in_limbo(&it, 1, bound + KIB);
    must_ok(weir_device_drain_sync(it.device));
    must_be_in_limbo(&it, 0, 0);
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    stranger_go(&other);
    buffer_scene_close(&it);
}

/* One that cannot be had now is had by a later call. */
static void failures_are_tried_again(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    stranger other = stranger_come(&it);
    size_t bound = pending_of(it.device).limbo_bound;
    weir_buffer buffer = make_buffer(&it, it.a, bound + KIB);
    use_unnamed(&other, &buffer);
    static const char *const calls[] = { "event_record_all", "event_query" };
    for (int i = 0; i < 2; i++) {
        plan_fault(it.device, calls[i], 1, true, WEIR_DEVICE_ERROR);
        look_in_vain(&it);
        must(weir_emulated_fault_calls(it.device) > 0);
        must_be_in_limbo(&it, 1, bound + KIB);
    }
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    settle(it.device);
    look_in_vain(&it);
    must_be_in_limbo(&it, 0, 0);
    stranger_go(&other);
    buffer_scene_close(&it);
}

/* Of a device that is lost nothing is waited for. */
static void lost_device_gives_it_up(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    stranger other = stranger_come(&it);
    size_t bound = pending_of(it.device).limbo_bound;
    (void)stall_stream(&it, other.stream);
    weir_buffer buffer = make_buffer(&it, it.a, bound + KIB);
    use_unnamed(&other, &buffer);
    plan_fault(it.device, "event_record_all", 1, false, WEIR_DEVICE_LOST);
    look_in_vain(&it);
    look_in_vain(&it);
    must_be_in_limbo(&it, 0, 0);
    weir_resource_unref(it.pool);
    close_anyhow(it.device);
}

/* ---- no memory ---- */

static void what_is_done_is_taken_without_a_wait(void **state)
{
    (void)state;
    for (int grows = 0; grows < 2; grows++) {
        buffer_scene it = small_scene_open();
        stranger other = stranger_come(&it);
        weir_buffer buffer = make_buffer(&it, it.a, LIMIT);
        use_unnamed(&other, &buffer);
        weir__mark point; /* taken by somebody, for his own reasons */
        must_ok(weir__order_stock(it.device->order));
        must_ok(weir__order_all_point(it.device->order, &point));
        settle(it.device);
        if (grows) {
            must_ok(weir_buffer_init(it.pool, it.b, &buffer));
            must_ok(weir_buffer_resize(&buffer, LIMIT, it.b));
        } else {
            buffer = make_buffer(&it, it.b, LIMIT);
        }
        write_all(&it, it.b, &buffer, 2);
        check_all(&it, it.b, &buffer, 2);
        const weir_device_calls calls = calls_of(it.device);
        must_equal(calls.event_record_all, 1);
        must_equal(calls.device_sync + calls.event_sync + calls.stream_sync, 0);
        must_be_in_limbo(&it, 0, 0);
        weir_buffer_reset(&buffer);
        stranger_go(&other);
        buffer_scene_close(&it);
    }
}

static void the_host_waits_last_of_all(void **state)
{
    (void)state;
    buffer_scene it = small_scene_open();
    stranger other = stranger_come(&it);
    uint64_t gate = stall_stream(&it, other.stream);
    weir_buffer buffer = make_buffer(&it, it.a, LIMIT);
    use_unnamed(&other, &buffer);
    /* A wait that would never end is refused by the device; what is answered is why
     * there was one. */
    must_answer(WEIR_LIMIT_REACHED, weir_buffer_allocate(it.pool, it.b, LIMIT,
                                                         WEIR_ALIGNMENT, &buffer));
    must(strstr(weir_last_error().message, "pool") != NULL);
    must_be_empty(&buffer);
    must_be_in_limbo(&it, 1, LIMIT);

    open_stream(&it, gate);
    uint64_t waits = calls_of(it.device).event_sync;
    buffer = make_buffer(&it, it.b, LIMIT);
    must(calls_of(it.device).event_sync <= waits + 1);
    must_equal(calls_of(it.device).device_sync, 0);
    write_all(&it, it.b, &buffer, 3);
    check_all(&it, it.b, &buffer, 3);
    weir_buffer_reset(&buffer);
    must_be_in_limbo(&it, 0, 0);
    stranger_go(&other);
    buffer_scene_close(&it);
}

static void without_points_the_host_waits_for_the_device(void **state)
{
    (void)state;
    buffer_scene it = small_scene_open();
    stranger other = stranger_come(&it);
    weir_buffer buffer = make_buffer(&it, it.a, LIMIT);
    use_unnamed(&other, &buffer);
    plan_fault(it.device, "event_record_all", 1, true, WEIR_NOT_SUPPORTED);
    buffer = make_buffer(&it, it.b, LIMIT);
    must_equal(calls_of(it.device).device_sync, 1);
    write_all(&it, it.b, &buffer, 3);
    weir_buffer_reset(&buffer);
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    stranger_go(&other);
    buffer_scene_close(&it);
}

/* Nor for a capture is anything spoilt: there is no memory, then. */
static void no_memory_during_a_capture_is_told(void **state)
{
    (void)state;
    buffer_scene it = small_scene_open();
    stranger other = stranger_come(&it);
    weir_buffer buffer = make_buffer(&it, it.a, LIMIT);
    use_unnamed(&other, &buffer);
    must_ok(weir_emulated_capture_begin(it.device, it.b));
    must_answer(WEIR_LIMIT_REACHED, weir_buffer_allocate(it.pool, it.a, LIMIT,
                                                         WEIR_ALIGNMENT, &buffer));
    must_be_in_limbo(&it, 1, LIMIT);
    must_ok(weir_emulated_capture_end(it.device, it.b, NULL));
    buffer = make_buffer(&it, it.a, LIMIT);
    weir_buffer_reset(&buffer);
    stranger_go(&other);
    buffer_scene_close(&it);
}

static void deleter_of_foreign_memory_is_called_once(void **state)
{
    (void)state;
    buffer_scene it = small_scene_open();
    stranger other = stranger_come(&it);
    foreign_block context;
    weir_foreign foreign = make_foreign(&it, LIMIT, &context);
    weir_buffer buffer;
    must_ok(weir_buffer_adopt(it.device, it.a, &foreign, &buffer));
    use_unnamed(&other, &buffer);
    look_in_vain(&it);
    must_equal(context.ends, 0);
    buffer = make_buffer(&it, it.b, LIMIT);
    must_equal(context.ends, 1);
    must(context.ptr == foreign.ptr && context.bytes == LIMIT);
    write_all(&it, it.b, &buffer, 4);
    weir_buffer_reset(&buffer);
    must_ok(weir_device_drain_sync(it.device));
    must_equal(context.ends, 1);
    stranger_go(&other);
    buffer_scene_close(&it);
}

/* ---- threads ---- */

#define THREADS 3

/* Each takes half of what there is, and leaves it to nobody knows whom. */
static void takes_and_leaves(void *argument)
{
    stranger *self = argument;
    for (int i = 0; i < 4; i++) {
        weir_buffer buffer;
        weir_status status = weir_buffer_allocate(self->it->pool, self->it->a,
                                                  LIMIT / 2, WEIR_ALIGNMENT, &buffer);
        if (status == WEIR_LIMIT_REACHED)
            continue; /* the others have it */
        must_answer(WEIR_OK, status);
        use_unnamed(self, &buffer);
        look_in_vain(self->it);
    }
}

static void threads_give_back_each_once(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("seeds of threads in limbo", 60, 1000);
    for (uint64_t i = 0; i < seeds; i++) {
        (void)support_seed(i);
        buffer_scene it = small_scene_open();
        stranger others[THREADS];
        void *arguments[THREADS];
        for (int j = 0; j < THREADS; j++) {
            others[j] = stranger_come(&it);
            arguments[j] = &others[j];
        }
        must_ok(weir_emulated_run_threads(it.device, THREADS, takes_and_leaves,
                                          arguments));
        must_ok(weir_device_drain_sync(it.device));
        weir_buffer all = make_buffer(&it, it.b, LIMIT);
        write_all(&it, it.b, &all, 5);
        weir_buffer_reset(&all);
        for (int j = 0; j < THREADS; j++)
            stranger_go(&others[j]);
        buffer_scene_close(&it);
    }
}

typedef struct rivals {
    weir_device *device;
    weir_storage *storage; /* of which one holder is left */
} rivals;

/* All of limbo is in its hands while it waits; it fails, and puts that back. */
static void drains_in_vain(void *argument)
{
    rivals *self = argument;
    plan_fault(self->device, "device_sync", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir_device_drain_sync(self->device));
}

static void leaves_more(void *argument)
{
    rivals *self = argument;
    weir__storage_leave_unnamed(self->storage);
}

/* Who finds no memory waits for all that is there, in whatever order it came. */
static void the_host_waits_for_the_last_that_came(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("seeds of rivals in limbo", 40, 1000);
    for (uint64_t i = 0; i < seeds; i++) {
        (void)support_seed(i);
        buffer_scene it = small_scene_open();
        stranger others[] = { stranger_come(&it), stranger_come(&it) };
        weir_buffer first = make_buffer(&it, it.a, LIMIT / 2);
        weir_buffer second = make_buffer(&it, it.a, LIMIT / 2);
        uint64_t gate = stall_stream(&it, others[0].stream);
        use_unnamed(&others[0], &first);
        weir__mark point; /* of which the second is not behind */
        must_ok(weir__order_stock(it.device->order));
        must_ok(weir__order_all_point(it.device->order, &point));
        must_ok(weir_stream_wait(it.device, others[1].stream, it.a));
        for (int j = 0; j < 50; j++) /* that takes a while */
            write_all(&it, others[1].stream, &second, 8);
        rivals both = { it.device, second.storage };
        weir__storage_hold(second.storage, WEIR__HOLDER_NONE);
        weir_buffer_reset(&second);
        run_both(it.device, drains_in_vain, leaves_more, &both);
        must_be_in_limbo(&it, 2, LIMIT);
        open_stream(&it, gate);
        weir_buffer all = make_buffer(&it, it.b, LIMIT);
        write_all(&it, it.b, &all, 5);
        weir_buffer_reset(&all);
        for (int j = 0; j < 2; j++)
            stranger_go(&others[j]);
        buffer_scene_close(&it);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_asked_before_memory_is_wanted),
        cmocka_unit_test(another_threads_own_stream_is_waited_for),
        cmocka_unit_test(limbo_above_its_bound_goes_behind_a_point),
        cmocka_unit_test(captures_are_left_alone),
        cmocka_unit_test(device_without_points_keeps_it),
        cmocka_unit_test(failures_are_tried_again),
        cmocka_unit_test(lost_device_gives_it_up),
        cmocka_unit_test(what_is_done_is_taken_without_a_wait),
        cmocka_unit_test(the_host_waits_last_of_all),
        cmocka_unit_test(without_points_the_host_waits_for_the_device),
        cmocka_unit_test(no_memory_during_a_capture_is_told),
        cmocka_unit_test(deleter_of_foreign_memory_is_called_once),
        cmocka_unit_test(threads_give_back_each_once),
        cmocka_unit_test(the_host_waits_for_the_last_that_came),
    };
    return cmocka_run_group_tests_name("limbo", tests, NULL, NULL);
}
