/* test_strangers.c - who waits for bytes, or moves them, that somebody has used whom
 * nobody named, and goes on using them. */
#include <pthread.h>
#include <string.h>

#include "storage.h"
#include "support_buffer.h"
#include "support_scene.h"
#include "support_work.h"
#include "weir/capture.h"

/* The same beside `buffer`, which is not reset, and so holds them still. */
static void use_unnamed_beside(stranger *self, weir_buffer *buffer)
{
    weir_buffer second;
    must_ok(weir_buffer_wait(buffer, self->stream, WEIR_WRITE));
    must_ok(weir_buffer_share(buffer, &second));
    use_unnamed(self, &second);
}

/* The stranger reads what `buffer` shows. */
static void read_unnamed(stranger *self, const weir_buffer *buffer, uint64_t key)
{
    buffer_scene *it = self->it;
    must_ok(weir_buffer_wait(buffer, self->stream, WEIR_READ));
    check_all(it, self->stream, buffer, key);
    weir__storage_note_unnamed(buffer->storage, WEIR_READ);
}

/* Who waits is behind the stranger, without the host; once that is known, the bytes are
 * like any others. */
static void who_waits_is_behind_strangers(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    stranger other = stranger_come(&it);
    weir_buffer buffer = make_buffer(&it, it.a, 64 * KIB);
    for (int i = 0; i < 3; i++) {
        weir_stream waits = i == 1 ? it.b : it.a;
        uint64_t gate = stall_stream(&it, other.stream);
        use_unnamed_beside(&other, &buffer);
        must_ok(weir_buffer_wait(&buffer, waits, WEIR_READ));
        check_all(&it, waits, &buffer, 7);
        must_ok(weir_buffer_use(&buffer, waits, WEIR_READ));
        open_stream(&it, gate);
    }
    must_ok(weir_buffer_wait(&buffer, it.a, WEIR_WRITE)); /* for the other reader */
    uint64_t calls = calls_in_all(it.device);
    must_ok(weir_buffer_wait(&buffer, it.a, WEIR_WRITE)); /* for nobody */
    must_equal(calls_in_all(it.device), calls);
    weir_buffer_reset(&buffer);
    must_be_in_limbo(&it, 0, 0);
    const weir_device_calls all = calls_of(it.device);
    must_equal(all.device_sync + all.event_sync + all.stream_sync, 0);
    buffer = make_buffer(&it, it.a, 64 * KIB);
    write_all(&it, it.a, &buffer, 1);
    check_all(&it, it.a, &buffer, 1);
    weir_buffer_reset(&buffer);
    stranger_go(&other);
    buffer_scene_close(&it);
}

/* Who reads need not wait for who reads. */
static void readers_pass_readers(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    stranger other = stranger_come(&it);
    weir_buffer buffer = make_buffer(&it, it.a, 64 * KIB);
    write_all(&it, it.a, &buffer, 1);
    uint64_t gate = stall_stream(&it, other.stream);
    read_unnamed(&other, &buffer, 1);
    uint64_t calls = calls_in_all(it.device);
    must_ok(weir_buffer_wait(&buffer, it.a, WEIR_READ));
    must_equal(calls_in_all(it.device), calls);
    check_all(&it, it.a, &buffer, 1);
    must_ok(weir_buffer_wait_sync(&buffer, WEIR_READ)); /* the gate is shut */
    must_ok(weir_buffer_wait(&buffer, it.b, WEIR_WRITE));
    write_all(&it, it.b, &buffer, 2);
    must_ok(weir_buffer_use(&buffer, it.b, WEIR_WRITE));
    open_stream(&it, gate);
    weir_buffer_reset(&buffer);
    must_ok(weir_device_drain_sync(it.device));
    stranger_go(&other);
    buffer_scene_close(&it);
}

/* So is the host; and where the device has no points, it waits for others, too. */
static void the_host_is_behind_strangers(void **state)
{
    (void)state;
    for (int for_others = 0; for_others < 2; for_others++) {
        buffer_scene it = buffer_scene_open();
        stranger other = stranger_come(&it);
        weir_buffer buffer = make_buffer(&it, it.a, 64 * KIB);
        use_unnamed_beside(&other, &buffer);
        if (for_others) {
            plan_fault(it.device, "event_record_all", 1, true, WEIR_NOT_SUPPORTED);
            must_ok(weir_buffer_wait(&buffer, it.b, WEIR_WRITE));
            must_equal(weir_emulated_fault_calls(it.device), 1);
            plan_fault(it.device, NULL, 0, false, WEIR_OK);
        } else {
            must_ok(weir_buffer_wait_sync(&buffer, WEIR_READ));
        }
        must_equal(calls_of(it.device).device_sync, 1);
        must_ok(weir_buffer_wait_sync(&buffer, WEIR_READ)); /* it is known now */
        must_equal(calls_of(it.device).device_sync, 1);
        write_all(&it, it.b, &buffer, 1);
        must_ok(weir_buffer_use(&buffer, it.b, WEIR_WRITE));
        weir_buffer_reset(&buffer);
        must_be_in_limbo(&it, 0, 0);
        stranger_go(&other);
        buffer_scene_close(&it);
    }
}

/* A wait that cannot be had is told, and nothing is taken for done. */
static void a_wait_for_strangers_may_fail(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    stranger other = stranger_come(&it);
    weir_buffer buffer = make_buffer(&it, it.a, 64 * KIB);
    use_unnamed_beside(&other, &buffer);
    must_ok(weir_emulated_capture_begin(it.device, it.b));
    must_answer(WEIR_CAPTURING, weir_buffer_wait(&buffer, it.a, WEIR_READ));
    must_answer(WEIR_CAPTURING, weir_buffer_wait_sync(&buffer, WEIR_READ));
    must_ok(weir_emulated_capture_end(it.device, it.b, NULL));
    plan_fault(it.device, "stream_wait_event", 1, true, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir_buffer_wait(&buffer, it.a, WEIR_READ));
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    weir_buffer_reset(&buffer);
    must_be_in_limbo(&it, 1, 64 * KIB);
    must_ok(weir_device_drain_sync(it.device));
    stranger_go(&other);
    buffer_scene_close(&it);
}

/* Nobody spoils a capture, declared or not, of a stream that waits; nor does the host
 * wait for it instead, be it that another stream has waited before. */
static void captured_streams_cannot_wait_for_strangers(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        bool is_declared = i / 2 == 1, is_known = i / 2 != 0, has_point = i % 2 == 1;
        buffer_scene it = buffer_scene_open();
        stranger other = stranger_come(&it), waits = stranger_come(&it);
        weir_stream stream = is_known ? it.b : waits.stream;
        weir_capture *capture = NULL;
        weir_buffer buffer = make_buffer(&it, it.a, 64 * KIB), copy;
        uint64_t gate = stall_stream(&it, other.stream);
        use_unnamed_beside(&other, &buffer);
        if (has_point)
            must_ok(weir_buffer_wait(&buffer, it.a, WEIR_READ));
        if (is_declared)
            must_ok(weir_capture_begin(it.pool, stream, &capture));
        must_ok(weir_emulated_capture_begin(it.device, stream));
        must_answer(WEIR_CAPTURING, weir_buffer_wait(&buffer, stream, WEIR_READ));
        must_answer(WEIR_CAPTURING, weir_buffer_copy(&buffer, it.pool, stream, &copy));
        must_ok(weir_emulated_capture_end(it.device, stream, NULL));
        const weir_device_calls calls = calls_of(it.device);
        must_equal(calls.device_sync + calls.event_sync + calls.stream_sync, 0);
        open_stream(&it, gate);
        must_ok(weir_capture_release(capture, stream));
        weir_buffer_reset(&buffer);
        must_ok(weir_device_drain_sync(it.device));
        stranger_go(&waits);
        stranger_go(&other);
        buffer_scene_close(&it);
    }
}

/* Who resets it on a stream that is behind strangers, but captured, leaves it to others
 * that are not. */
static void captures_do_not_speak_for_strangers(void **state)
{
    (void)state;
    for (int is_done = 0; is_done < 2; is_done++) {
        buffer_scene it = buffer_scene_open();
        stranger other = stranger_come(&it);
        weir_buffer buffer = make_buffer(&it, it.a, 64 * KIB);
        uint64_t gate = stall_stream(&it, other.stream);
        use_unnamed_beside(&other, &buffer);
        must_ok(weir_buffer_wait(&buffer, it.a, WEIR_WRITE));
        if (is_done) {
            open_stream(&it, gate);
            must_ok(weir_device_sync(it.device));
        }
        weir_capture *capture;
        must_ok(weir_capture_begin(it.pool, it.a, &capture));
        weir_buffer_reset(&buffer);
        must_be_in_limbo(&it, is_done ? 0 : 1, is_done ? 0 : 64 * KIB);
        must_ok(weir_capture_end(capture));
        must_ok(weir_capture_release(capture, it.b));
        buffer = make_buffer(&it, it.b, 64 * KIB);
        write_all(&it, it.b, &buffer, 4);
        weir_buffer_reset(&buffer);
        if (!is_done)
            open_stream(&it, gate);
        must_ok(weir_device_drain_sync(it.device));
        stranger_go(&other);
        buffer_scene_close(&it);
    }
}

static void *moves_to_its_own(void *share)
{
    must_ok(weir_buffer_set_stream(share, WEIR_STREAM_PER_THREAD));
    return NULL;
}

/* On another thread's own stream nobody else can record. */
static void streams_of_other_threads_are_strangers(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer buffer = make_buffer(&it, it.a, 64 * KIB), share;
    pthread_t thread;
    must_ok(weir_buffer_share(&buffer, &share));
    must(pthread_create(&thread, NULL, moves_to_its_own, &share) == 0);
    must(pthread_join(thread, NULL) == 0);
    weir_buffer_reset(&share);
    must_ok(weir_buffer_wait(&buffer, it.b, WEIR_READ));
    must_equal(calls_of(it.device).event_record_all, 1);
    weir_buffer_reset(&buffer);
    must_ok(weir_device_drain_sync(it.device));
    buffer_scene_close(&it);
}

/* Of one wait the nth device call fails: it is told, or done without, and the next does
 * what it is asked. False: there were fewer. */
static bool fails_at(uint64_t nth)
{
    buffer_scene it = buffer_scene_open();
    stranger other = stranger_come(&it);
    weir_buffer buffer = make_buffer(&it, it.a, 64 * KIB);
    use_unnamed_beside(&other, &buffer);
    plan_fault(it.device, NULL, nth, false, WEIR_DEVICE_ERROR);
    weir_status status = weir_buffer_wait(&buffer, it.b, WEIR_WRITE);
    bool was_there = weir_emulated_fault_calls(it.device) >= nth;
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    if (status != WEIR_OK)
        must_ok(weir_buffer_wait(&buffer, it.b, WEIR_WRITE));
    write_all(&it, it.b, &buffer, 1);
    must_ok(weir_buffer_use(&buffer, it.b, WEIR_WRITE));
    weir_buffer_reset(&buffer);
    must_ok(weir_device_drain_sync(it.device));
    stranger_go(&other);
    buffer_scene_close(&it);
    return was_there;
}

static void each_call_of_a_wait_may_fail(void **state)
{
    (void)state;
    uint64_t nth = 1;
    while (fails_at(nth))
        nth++;
    must(nth > 3);
}

/* What is released is theirs to the end, on the buffer's stream. */
static void what_is_released_is_behind_strangers(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    stranger other = stranger_come(&it);
    weir_buffer buffer = make_buffer(&it, it.a, MIB);
    uint64_t gate = stall_stream(&it, other.stream);
    use_unnamed_beside(&other, &buffer);
    const weir_buffer seen = buffer;
    weir_released r = { .struct_size = sizeof r };
    plan_fault(it.device, "event_record_all", 1, true, WEIR_NOT_SUPPORTED);
    /* A wait that would never end is refused by the device. */
    must_answer(WEIR_DEVICE_ERROR, weir_buffer_release(&buffer, &r));
    must(memcmp(&buffer, &seen, sizeof seen) == 0 && r.ptr == NULL);
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    must_ok(weir_buffer_release(&buffer, &r));
    must(r.stream == it.a && r.ptr == seen.data);
    check_stamp(it.device, r.stream, r.ptr, r.bytes, 7);
    must_ok(weir_released_free_sync(it.device, &r));
    weir_buffer_reset(&buffer);
    must_be_in_limbo(&it, 0, 0);
    open_stream(&it, gate);
    stranger_go(&other);
    buffer_scene_close(&it);
}

static weir_buffer moved(buffer_scene *it, weir_buffer buffer, bool shrinks)
{
    if (shrinks) {
        must_ok(weir_buffer_resize(&buffer, 512, it->a));
        must_ok(weir_buffer_shrink(&buffer, it->a));
    } else {
        must_ok(weir_buffer_resize(&buffer, MIB, it->a));
    }
    return buffer;
}

/* The copy waits for who writes, and then the old bytes are that stream's again; those
 * that somebody still reads go to limbo. The new ones are nobody else's. */
static void what_moves_is_behind_strangers(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool shrinks = i % 2 == 1, reads = i >= 2;
        buffer_scene it = buffer_scene_open();
        stranger other = stranger_come(&it);
        weir_buffer buffer = make_buffer(&it, it.a, 64 * KIB);
        write_all(&it, it.a, &buffer, 7);
        uint64_t gate = stall_stream(&it, other.stream);
        if (reads)
            read_unnamed(&other, &buffer, 7);
        else
            use_unnamed_beside(&other, &buffer);
        const void *old = buffer.data;
        buffer = moved(&it, buffer, shrinks);
        must(buffer.data != old);
        must_be_in_limbo(&it, reads ? 1 : 0, reads ? 64 * KIB : 0);
        weir_buffer again = make_buffer(&it, it.a, 64 * KIB);
        must((again.data == old) == !reads);
        write_all(&it, it.a, &again, 2);
        weir_buffer_reset(&again);
        check_stamp(it.device, it.a, buffer.data, 512, 7);
        weir_buffer_reset(&buffer);
        must_be_in_limbo(&it, reads ? 1 : 0, reads ? 64 * KIB : 0);
        open_stream(&it, gate);
        must_ok(weir_device_drain_sync(it.device));
        must_be_in_limbo(&it, 0, 0);
        stranger_go(&other);
        buffer_scene_close(&it);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_is_behind_strangers),
        cmocka_unit_test(readers_pass_readers),
        cmocka_unit_test(the_host_is_behind_strangers),
        cmocka_unit_test(a_wait_for_strangers_may_fail),
        cmocka_unit_test(each_call_of_a_wait_may_fail),
        cmocka_unit_test(captured_streams_cannot_wait_for_strangers),
        cmocka_unit_test(captures_do_not_speak_for_strangers),
        cmocka_unit_test(streams_of_other_threads_are_strangers),
        cmocka_unit_test(what_is_released_is_behind_strangers),
        cmocka_unit_test(what_moves_is_behind_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
