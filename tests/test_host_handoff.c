/* test_host_handoff.c - copies between a buffer and the host's memory: whom they wait
 * for, who waits for them, and that a failure leaves nothing behind. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "storage.h"
#include "support_buffer.h"
#include "support_work.h"

/* The host's own bytes; each begins with another. */
static unsigned char *make_bytes(size_t bytes, unsigned char first)
{
    unsigned char *made = malloc(bytes);
    must(made != NULL);
    for (size_t i = 0; i < bytes; i++)
        made[i] = (unsigned char)(first + i * 7 + i / 256);
    return made;
}

static bool is_done(buffer_scene *it, weir_point point)
{
    bool done;
    must_ok(weir_point_query(it->device, point, &done));
    return done;
}

static uint32_t uses_of(const weir_buffer *buffer)
{
    return buffer->storage->use_count;
}

/* ---- copies ---- */

static void bytes_go_there_and_back(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    unsigned char *from = make_bytes(MIB, 3), *to = make_bytes(MIB, 90);
    weir_buffer x = make_buffer(&it, it.a, MIB);
    weir_point there, back;
    must_ok(weir_buffer_from_host(&x, it.a, 0, MIB, from, &there));
    must_ok(weir_buffer_to_host(&x, it.b, 0, MIB, to, &back)); /* waits for the first */
    must_equal(uses_of(&x), 2);
    must_ok(weir_point_sync(it.device, back));
    must(is_done(&it, there));
    must(memcmp(from, to, MIB) == 0);
    must_ok(weir_buffer_to_host(&x, it.b, 1000, 24, to, &back)); /* a range */
    must_ok(weir_point_sync(it.device, back));
    must(memcmp(from + 1000, to, 24) == 0 && memcmp(from + 24, to + 24, 99) == 0);
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
    free(from);
    free(to);
}

static void the_host_waits_where_the_name_says_so(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    unsigned char *from = make_bytes(MIB, 3), *kept = make_bytes(MIB, 3);
    weir_buffer x = make_buffer(&it, it.a, MIB);
    must_ok(weir_buffer_from_host_sync(&x, it.b, 0, MIB, from));
    memset(from, 0, MIB); /* nobody reads it any more */
    must_ok(weir_buffer_to_host_sync(&x, it.a, 0, MIB, from));
    must(memcmp(from, kept, MIB) == 0);
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
    free(from);
    free(kept);
}

/* Pinned memory is memory of the device's own: the ledger sees the host's side too. */
static void pinned_memory_is_ordered_by_the_point(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_resource *pinned;
    must_ok(weir_resource_open(it.device, "pinned", &pinned));
    void *host = take(pinned, it.a, MIB);
    weir_buffer x = make_buffer(&it, it.a, MIB);
    write_all(&it, it.a, &x, 8);
    weir_point point;
    must_ok(weir_buffer_to_host(&x, it.a, 0, MIB, host, &point));
    must_ok(weir_stream_wait_point(it.device, it.b, point));
    check_stamp(it.device, it.b, host, MIB, 8);
    give(pinned, it.b, host, MIB);
    weir_buffer_reset(&x);
    weir_resource_unref(pinned);
    buffer_scene_close(&it);
}

/* ---- order ---- */

static void what_is_copied_was_written(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    unsigned char *from = make_bytes(MIB, 3), *to = make_bytes(MIB, 90);
    weir_buffer x = make_buffer(&it, it.a, MIB);
    uint64_t gate = stall_stream(&it, it.a);
    weir_point there, back;
    must_ok(weir_buffer_from_host(&x, it.a, 0, MIB, from, &there));
    must_ok(weir_buffer_to_host(&x, it.b, 0, MIB, to, &back));
    must(!is_done(&it, back) && memcmp(from, to, MIB) != 0);
    open_stream(&it, gate);
    must_ok(weir_point_sync(it.device, back));
    must(memcmp(from, to, MIB) == 0);
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
    free(from);
    free(to);
}

static void what_is_read_is_not_overwritten(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    unsigned char *from = make_bytes(MIB, 3);
    weir_buffer x = make_buffer(&it, it.a, MIB);
    write_all(&it, it.a, &x, 5);
    must_ok(weir_buffer_wait(&x, it.b, WEIR_READ));
    uint64_t gate = stall_stream(&it, it.b);
    check_all(&it, it.b, &x, 5);
    must_ok(weir_buffer_use(&x, it.b, WEIR_READ));
    weir_point point;
    must_ok(weir_buffer_from_host(&x, it.a, 0, MIB, from, &point));
    must(!is_done(&it, point));
    open_stream(&it, gate);
    must_ok(weir_point_sync(it.device, point));
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
    free(from);
}

/* Neither way may the bytes be another's before the copy is done. */
static void the_bytes_go_back_behind_the_copy(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        buffer_scene it = buffer_scene_open();
        unsigned char *host = make_bytes(MIB, 3);
        weir_buffer x = make_buffer(&it, it.a, MIB);
        write_all(&it, it.a, &x, 5);
        must_ok(weir_buffer_wait(&x, it.b, WEIR_READ));
        uint64_t gate = stall_stream(&it, it.b);
        weir_point point;
        if (way == 0)
            must_ok(weir_buffer_to_host(&x, it.b, 0, MIB, host, &point));
        else
            must_ok(weir_buffer_from_host(&x, it.b, 0, MIB, host, &point));
        weir_buffer_reset(&x);
        weir_buffer y = make_buffer(&it, it.a, MIB);
        write_all(&it, it.a, &y, 6);
        check_all(&it, it.a, &y, 6);
        open_stream(&it, gate);
        must_ok(weir_point_sync(it.device, point));
        weir_buffer_reset(&y);
        buffer_scene_close(&it);
        free(host);
    }
}

/* Who reads waits for a copy to the device, and need not for one from it. */
static void copies_are_noted_as_what_they_are(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    unsigned char *host = make_bytes(KIB, 3);
    weir_buffer x = make_buffer(&it, it.a, KIB);
    weir_point point;
    must_ok(weir_fill(it.device, it.a, x.data, 1, KIB));
    must_ok(weir_buffer_to_host(&x, it.b, 0, KIB, host, &point));
    uint64_t waits = calls_of(it.device).stream_wait_event;
    must_ok(weir_buffer_wait(&x, it.a, WEIR_READ));
    must_equal(calls_of(it.device).stream_wait_event, waits);
    must_ok(weir_point_sync(it.device, point));
    must_ok(weir_buffer_from_host(&x, it.b, 0, KIB, host, &point));
    waits = calls_of(it.device).stream_wait_event;
    must_ok(weir_buffer_wait(&x, it.a, WEIR_READ));
    must_equal(calls_of(it.device).stream_wait_event, waits + 1);
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
    free(host);
}

static void copies_on_many_streams_all_count(void **state)
{
    (void)state;
    enum { MANY = 7 };
    buffer_scene it = buffer_scene_open();
    weir_stream streams[MANY];
    uint64_t gates[MANY];
    unsigned char *host = make_bytes(MANY * KIB, 3);
    weir_point point;
    weir_buffer x = make_buffer(&it, it.a, KIB);
    write_all(&it, it.a, &x, 5);
    for (size_t i = 0; i < MANY; i++) {
        streams[i] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        must_ok(weir_buffer_wait(&x, streams[i], WEIR_READ));
        gates[i] = stall_stream(&it, streams[i]);
        must_ok(weir_buffer_to_host(&x, streams[i], 0, KIB, host + i * KIB, &point));
    }
    weir_buffer_reset(&x);
    weir_buffer y = make_buffer(&it, it.a, KIB);
    write_all(&it, it.a, &y, 6);
    for (size_t i = 0; i < MANY; i++)
        open_stream(&it, gates[i]);
    weir_buffer_reset(&y);
    must_ok(weir_device_sync(it.device));
    for (size_t i = 0; i < MANY; i++)
        end_stream(it.device, streams[i]);
    buffer_scene_close(&it);
    free(host);
}

/* ---- what is refused ---- */

/* Both ways, and both that wait, answer the same. */
static void must_refuse(weir_status status, weir_buffer *buffer, weir_stream stream,
                        size_t offset, size_t bytes, void *host)
{
    weir_point point = { 7, 7 };
    must_answer(status,
                weir_buffer_to_host(buffer, stream, offset, bytes, host, &point));
    must(point.clock == 0 && point.mark == 0);
    must_answer(status,
                weir_buffer_from_host(buffer, stream, offset, bytes, host, &point));
    must_answer(status, weir_buffer_to_host_sync(buffer, stream, offset, bytes, host));
    must_answer(status,
                weir_buffer_from_host_sync(buffer, stream, offset, bytes, host));
}

static void what_has_no_meaning_is_refused(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    unsigned char host[16] = { 0 };
    weir_point point;
    weir_buffer x = make_buffer(&it, it.a, 1000), view, none;
    uint64_t copies = calls_of(it.device).copy;
    must_refuse(WEIR_INVALID_ARGUMENT, NULL, it.a, 0, 16, host);
    must_refuse(WEIR_INVALID_ARGUMENT, &x, it.a, 0, 16, NULL);
    must_refuse(WEIR_INVALID_ARGUMENT, &x, it.a, 985, 16, host);
    must_refuse(WEIR_INVALID_ARGUMENT, &x, it.a, 1001, 0, host);
    must_refuse(WEIR_INVALID_ARGUMENT, &x, it.a, 1, SIZE_MAX, host);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_to_host(&x, it.a, 0, 16, host, NULL));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_from_host(&x, it.a, 0, 16, host, NULL));
    must_ok(weir_buffer_view(x.data, x.size, it.a, &view));
    must_refuse(WEIR_NOT_OWNED, &view, it.a, 0, 16, host);
    must_equal(uses_of(&x), 0);

    must_ok(weir_buffer_init(it.pool, it.a, &none));
    must_refuse(WEIR_INVALID_ARGUMENT, &none, it.a, 0, 16, host);
    must_refuse(WEIR_OK, &none, it.a, 0, 0, NULL);
    must_refuse(WEIR_OK, &x, it.a, 1000, 0, NULL);
    must_ok(weir_buffer_to_host(&x, it.a, 0, 0, NULL, &point));
    must(is_done(&it, point));
    must_equal(uses_of(&x), 0);
    must_equal(calls_of(it.device).copy, copies);
    weir_buffer_reset(&none);
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
}

static void bytes_for_reading_are_not_written(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    unsigned char host[16];
    foreign_block end;
    weir_point point;
    weir_foreign foreign = make_foreign(&it, KIB, &end);
    foreign.read_only = true;
    weir_buffer x;
    must_ok(weir_fill(it.device, it.a, foreign.ptr, 9, KIB));
    must_ok(weir_buffer_adopt(it.device, it.a, &foreign, &x));
    must_answer(WEIR_NOT_SUPPORTED,
                weir_buffer_from_host(&x, it.a, 0, 16, host, &point));
    must_ok(weir_buffer_to_host_sync(&x, it.a, 0, 16, host));
    must(host[0] == 9 && host[15] == 9);
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
}

/* The capture goes on, whether it was declared or not. */
static void a_captured_stream_is_refused(void **state)
{
    (void)state;
    for (int declared = 0; declared < 2; declared++) {
        buffer_scene it = buffer_scene_open();
        unsigned char host[16] = { 0 };
        weir_capture *capture = NULL;
        weir_buffer x = make_buffer(&it, it.b, KIB); /* nothing to wait for */
        if (declared)
            must_ok(weir_capture_begin(it.pool, it.b, &capture));
        else
            must_ok(weir_emulated_capture_begin(it.device, it.b));
        must_refuse(WEIR_CAPTURING, &x, it.b, 0, 16, host);
        must_equal(uses_of(&x), 0);
        if (declared) {
            must_ok(weir_capture_end(capture));
            must_ok(weir_capture_release(capture, it.a));
        } else {
            size_t captured;
            must_ok(weir_emulated_capture_end(it.device, it.b, &captured));
            must_equal(captured, 0);
        }
        weir_buffer_reset(&x);
        buffer_scene_close(&it);
    }
}

/* ---- failures ---- */

static void a_copy_that_fails_leaves_nothing(void **state)
{
    (void)state;
    static const char *const kinds[] = { "copy", "stream_wait_event",
                                         "stream_is_capturing" };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        buffer_scene it = buffer_scene_open();
        unsigned char host[16] = { 0 };
        weir_buffer x = make_buffer(&it, it.a, KIB);
        write_all(&it, it.a, &x, 5);
        weir_point point;
        for (int way = 0; way < 2; way++) {
            uint64_t copies = calls_of(it.device).copy;
            plan_fault(it.device, kinds[i], 1, false, WEIR_DEVICE_ERROR);
            if (way == 0)
                must_answer(WEIR_DEVICE_ERROR,
                            weir_buffer_to_host(&x, it.b, 0, 16, host, &point));
            else
                must_answer(WEIR_DEVICE_ERROR,
                            weir_buffer_from_host(&x, it.b, 0, 16, host, &point));
            must(point.clock == 0 && point.mark == 0);
            must_equal(uses_of(&x), 0);
            must_equal(calls_of(it.device).copy, copies + (i == 0));
        }
        plan_fault(it.device, NULL, 0, false, WEIR_OK);
        check_all(&it, it.a, &x, 5);
        weir_buffer_reset(&x);
        buffer_scene_close(&it);
    }
}

/* Where its event cannot be recorded, the copy counts until the device is idle. */
static void a_copy_that_cannot_be_marked_counts(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    unsigned char *host = make_bytes(MIB, 3);
    weir_stream raw = raw_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    weir_buffer x = make_buffer(&it, raw, MIB);
    write_all(&it, raw, &x, 5);
    weir_point point;
    uint64_t gate = stall_stream(&it, raw);
    plan_fault(it.device, "event_record", 1, true, WEIR_DEVICE_ERROR);
    must_ok(weir_buffer_to_host(&x, raw, 0, MIB, host, &point));
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    must(!is_done(&it, point));
    weir_buffer_reset(&x);
    weir_buffer y = make_buffer(&it, it.a, MIB);
    write_all(&it, it.a, &y, 6);
    open_stream(&it, gate);
    must_ok(weir_point_sync(it.device, point));
    weir_buffer_reset(&y);
    raw_sync_stream(it.device, raw);
    raw_stream_end(it.device, raw);
    must_ok(weir_device_sync(it.device));
    buffer_scene_close(&it);
    free(host);
}

/* Each host allocation fails in turn: of a stream's that Weir did not know, and of its
 * wait for another. */
static void without_host_memory_nothing_is_noted(void **state)
{
    (void)state;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.no_ledger = true; /* which would say so itself */
    options.emulated = &emulated;
    buffer_scene it = buffer_scene_on(open_with("emulated:0", &options));
    unsigned char *host = make_bytes(KIB, 3);
    uint64_t nth = 0, calls = 1, failed = 0;
    while (nth++ < calls) { /* not every one is a must */
        weir_stream raw = raw_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        weir_buffer x = make_buffer(&it, it.a, KIB);
        weir_point point;
        weir__host_fail_at(nth, false);
        weir_status status = weir_buffer_from_host(&x, raw, 0, KIB, host, &point);
        calls = weir__host_calls();
        weir__host_fail_at(0, false);
        must_equal(uses_of(&x), status == WEIR_OK);
        if (status != WEIR_OK) {
            must_equal(status, WEIR_OUT_OF_HOST_MEMORY);
            must(point.clock == 0 && point.mark == 0);
            failed++;
        }
        must_ok(weir_point_sync(it.device, point));
        weir_buffer_reset(&x);
        raw_stream_end(it.device, raw);
    }
    must(failed > 0 || support_is_cuda()); /* the device's own records */
    buffer_scene_close(&it);
    free(host);
}

static void a_wait_that_fails_leaves_the_copy_noted(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    unsigned char *host = make_bytes(KIB, 3);
    weir_buffer x = make_buffer(&it, it.a, KIB);
    write_all(&it, it.a, &x, 5);
    plan_fault(it.device, "stream_sync", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir_buffer_to_host_sync(&x, it.b, 0, KIB, host));
    must_equal(uses_of(&x), 1);
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    must_ok(weir_buffer_wait_sync(&x, WEIR_WRITE));
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
    free(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_there_and_back),
        cmocka_unit_test(the_host_waits_where_the_name_says_so),
        cmocka_unit_test(pinned_memory_is_ordered_by_the_point),
        cmocka_unit_test(what_is_copied_was_written),
        cmocka_unit_test(what_is_read_is_not_overwritten),
        cmocka_unit_test(the_bytes_go_back_behind_the_copy),
        cmocka_unit_test(copies_are_noted_as_what_they_are),
        cmocka_unit_test(copies_on_many_streams_all_count),
        cmocka_unit_test(what_has_no_meaning_is_refused),
        cmocka_unit_test(bytes_for_reading_are_not_written),
        cmocka_unit_test(a_captured_stream_is_refused),
        cmocka_unit_test(a_copy_that_fails_leaves_nothing),
        cmocka_unit_test(a_copy_that_cannot_be_marked_counts),
        cmocka_unit_test(without_host_memory_nothing_is_noted),
        cmocka_unit_test(a_wait_that_fails_leaves_the_copy_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
