/* test_buffer_size.c - buffers that grow, shrink, are copied, become owners and are
 * released: contents stay, and the old stream is before the new one. */
#include <string.h>

#include "internal.h"
#include "support_buffer.h"

/* ---- size ---- */

static void resizing_keeps_the_contents(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, 1000);
    uint64_t gate = stall_stream(&it, it.a);
    write_all(&it, it.a, &x, 5);
    void *old = x.data;
    uint64_t before = calls_of(it.device).copy;
    must_ok(weir_buffer_resize(&x, MIB, it.b)); /* behind what is stalled */
    must(x.data != old && x.size == MIB && x.capacity == MIB && x.stream == it.b);
    must_equal(calls_of(it.device).copy, before + 1);
    must_equal(statistics_of(it.pool).out_bytes, MIB);
    check_stamp(it.device, it.b, x.data, 1000, 5);
    weir_buffer y = make_buffer(&it, it.a, 1000); /* the old bytes, maybe */
    write_all(&it, it.a, &y, 6);
    open_stream(&it, gate);
    weir_buffer_reset(&y);
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
}

static void within_its_capacity_nothing_moves(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, 1000);
    must_ok(weir_buffer_reserve(&x, 5000, it.a));
    must(x.size == 1000 && x.capacity == 5120);
    write_all(&it, it.a, &x, 5);
    void *old = x.data;
    uint64_t before = calls_of(it.device).copy;
    must_ok(weir_buffer_resize(&x, 5120, it.b));
    must(x.data == old && x.size == 5120 && x.stream == it.b);
    check_stamp(it.device, it.b, x.data, 1000, 5); /* it has waited for a */
    must_ok(weir_buffer_resize(&x, 0, it.b));
    must(x.data == old && x.size == 0 && x.capacity == 5120);
    must_equal(calls_of(it.device).copy, before);
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
}

/* Nor does anything go back; but the stream that gets the buffer waits for those who
 * write to it, whichever call hands it over. */
static void who_takes_over_waits_where_nothing_moves(void **state)
{
    (void)state;
    for (int call = 0; call < 3; call++) {
        buffer_scene it = buffer_scene_open();
        weir_stream c = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        weir_buffer x = make_buffer(&it, it.a, KIB);
        uint64_t gates[] = { stall_stream(&it, it.a), stall_stream(&it, it.b) };
        write_all(&it, it.a, &x, 5);
        must_ok(weir_buffer_wait(&x, it.b, WEIR_WRITE));
        write_all(&it, it.b, &x, 6);
        must_ok(weir_buffer_use(&x, it.b, WEIR_WRITE));
        void *old = x.data;
        switch (call) {
        case 0: must_ok(weir_buffer_reserve(&x, 10, c)); break;
        case 1: must_ok(weir_buffer_resize(&x, KIB, c)); break;
        default: must_ok(weir_buffer_shrink(&x, c)); break;
        }
        must(x.data == old && x.size == KIB && x.stream == c);
        must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, c)); /* is behind */
        check_all(&it, c, &x, 6);
        write_all(&it, c, &x, 7);
        for (int i = 0; i < 2; i++)
            open_stream(&it, gates[i]);
        weir_buffer_reset(&x);
        end_stream(it.device, c);
        buffer_scene_close(&it);
    }
}

/* Whoever reads the old bytes reads them still. */
static void readers_keep_the_old_bytes(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, MIB);
    write_all(&it, it.a, &x, 5);
    must_ok(weir_buffer_wait(&x, it.b, WEIR_READ));
    uint64_t gate = stall_stream(&it, it.b);
    check_all(&it, it.b, &x, 5);
    must_ok(weir_buffer_use(&x, it.b, WEIR_READ));
    must_ok(weir_buffer_resize(&x, 2 * MIB, it.a));
    weir_buffer y = make_buffer(&it, it.a, MIB);
    write_all(&it, it.a, &y, 6);
    open_stream(&it, gate);
    weir_buffer_reset(&y);
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
}

static void shrinking_gives_back(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, MIB);
    write_all(&it, it.a, &x, 5);
    must_ok(weir_buffer_resize(&x, 700, it.a));
    must_ok(weir_buffer_shrink(&x, it.b));
    must(x.size == 700 && x.capacity == 768 && x.stream == it.b);
    must_equal(statistics_of(it.pool).out_bytes, 768);
    void *old = x.data;
    must_ok(weir_buffer_shrink(&x, it.b));
    must(x.data == old);
    must_ok(weir_buffer_resize(&x, 0, it.b));
    must_ok(weir_buffer_shrink(&x, it.b));
    must(x.data == NULL && x.capacity == 0 && x.storage == NULL);
    must_equal(statistics_of(it.pool).out_bytes, 0);
    must_ok(weir_buffer_resize(&x, 10, it.a)); /* it still knows where */
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
}

static void what_is_shared_keeps_its_size(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, MIB), y;
    must_ok(weir_buffer_share(&x, &y));
    weir_buffer seen = x;
    must_answer(WEIR_NOT_OWNED, weir_buffer_resize(&x, 2 * MIB, it.b));
    must_answer(WEIR_NOT_OWNED, weir_buffer_resize(&x, 1, it.b));
    must_answer(WEIR_NOT_OWNED, weir_buffer_shrink(&y, it.b));
    must(memcmp(&x, &seen, sizeof x) == 0);
    weir_buffer_reset(&y);
    must_ok(weir_buffer_resize(&x, 2 * MIB, it.b));
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
}

static void sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, KIB);
    weir_buffer seen = x;
    must_answer(WEIR_INVALID_ARGUMENT, weir_buffer_resize(&x, SIZE_MAX, it.a));
    must_answer(WEIR_INVALID_ARGUMENT, weir_buffer_reserve(&x, SIZE_MAX - 255, it.a));
    must_answer(WEIR_OUT_OF_MEMORY, weir_buffer_resize(&x, (size_t)1 << 40, it.a));
    must(memcmp(&x, &seen, sizeof x) == 0);
    weir_buffer_reset(&x);
    must_answer(WEIR_NOT_SUPPORTED, weir_buffer_resize(&x, 1, it.a)); /* no resource */
    buffer_scene_close(&it);
}

static void a_large_alignment_is_kept(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed_in_use());
    weir_resource *mr;
    weir_buffer x;
    must_ok(weir_resource_open(device, "pool/device", &mr));
    weir_resource_properties p = { .struct_size = sizeof p };
    must_ok(weir_resource_get_properties(mr, &p));
    must_ok(weir_buffer_allocate(mr, NULL, KIB, p.max_alignment, &x));
    must_ok(weir_buffer_resize(&x, MIB, NULL));
    must_equal((uintptr_t)x.data & (p.max_alignment - 1), 0);
    weir_buffer_reset(&x);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* ---- copies and owners ---- */

static void a_copy_is_its_own(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, MIB), y;
    uint64_t gate = stall_stream(&it, it.a);
    write_all(&it, it.a, &x, 5);
    must_ok(weir_buffer_copy(&x, NULL, it.b, &y));
    must(y.data != x.data && y.size == MIB && y.stream == it.b);
    must_ok(weir_buffer_wait(&x, it.a, WEIR_WRITE)); /* for the copy */
    write_all(&it, it.a, &x, 6);
    check_all(&it, it.b, &y, 5);
    open_stream(&it, gate);
    weir_buffer_reset(&x);
    weir_buffer_reset(&y);
    buffer_scene_close(&it);
}

/* The copy runs, though its event could not be recorded: then nobody can name it. */
static void a_copy_that_cannot_be_noted_is_not_forgotten(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_stream unknown;
    must_ok(support_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &unknown));
    size_t in_limbo = 0;
    for (uint64_t nth = 1; nth <= 6; nth++) {
        weir_buffer x = make_buffer(&it, it.a, MIB), y;
        write_all(&it, it.a, &x, 5);
        plan_fault(it.device, "event_record", nth, false, WEIR_DEVICE_ERROR);
        weir_status status = weir_buffer_copy(&x, NULL, unknown, &y);
        plan_fault(it.device, NULL, 0, false, WEIR_OK);
        weir_buffer_reset(&x);
        in_limbo += pending_of(it.device).limbo_count;
        must(status == WEIR_OK || pending_of(it.device).limbo_count == 0);
        weir_buffer_reset(&y);
        x = make_buffer(&it, it.a, MIB);
        write_all(&it, it.a, &x, 6);
        weir_buffer_reset(&x);
        must_ok(weir_device_drain_sync(it.device));
    }
    must_equal(in_limbo, 1);
    must_ok(support_stream_destroy(it.device, unknown));
    buffer_scene_close(&it);
}

static weir_status moves(weir_buffer *buffer, weir_stream stream)
{
    return weir_buffer_resize(buffer, 2 * MIB, stream);
}

static weir_status copies(weir_buffer *buffer, weir_stream stream)
{
    weir_buffer copy;
    weir_status status = weir_buffer_copy(buffer, NULL, stream, &copy);
    weir_buffer_reset(&copy);
    return status;
}

static void must_note_what_failed(weir_status (*call)(weir_buffer *, weir_stream))
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.no_ledger = true; /* which needs host memory of its own */
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    buffer_scene it = { .device = open_with("emulated:6", &options) };
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.b = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_resource_open(it.device, "pool/device", &it.pool));
    uint32_t late = 0;
    for (uint64_t nth = 1; nth <= 12; nth++) {
        weir_buffer x = make_buffer(&it, it.a, MIB), seen = x;
        weir_weak_buffer weak;
        must_ok(weir_buffer_weaken(&x, &weak));
        write_all(&it, it.a, &x, 5);
        uint64_t copied = calls_of(it.device).copy;
        weir__host_fail_at(nth, false);
        weir_status status = call(&x, it.b);
        weir__host_fail_at(0, false);
        if (status != WEIR_OK)
            must(memcmp(&x, &seen, sizeof x) == 0);
        if (strstr(weir_last_error().message, "a storage") != NULL &&
            status != WEIR_OK && calls_of(it.device).copy > copied) {
            uint64_t waits = calls_of(it.device).stream_wait_event;
            must_ok(weir_buffer_wait(&x, it.a, WEIR_WRITE));
            must_equal(calls_of(it.device).stream_wait_event, waits + 1);
            late++;
        }
        weir_weak_buffer_reset(&weak);
        weir_buffer_reset(&x);
    }
    must(late > 0);
    buffer_scene_close(&it);
}

/* A move or a copy for which the last piece of host memory is missing has copied
 * already: what it read is waited for. */
static void a_move_that_failed_is_noted(void **state)
{
    (void)state;
    must_note_what_failed(moves);
}

static void a_copy_that_failed_is_noted(void **state)
{
    (void)state;
    must_note_what_failed(copies);
}

static void a_copy_stays_on_its_device(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_device *device = open_with("emulated:7", &options);
    weir_resource *other;
    must_ok(weir_resource_open(device, "pool/device", &other));
    weir_buffer x = make_buffer(&it, it.a, MIB), y;
    must_answer(WEIR_INVALID_ARGUMENT, weir_buffer_copy(&x, other, NULL, &y));
    must_be_empty(&y);
    must_equal(statistics_of(other).out_bytes, 0);
    must(properties_of(&x).is_alone);
    weir_stream foreign = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_buffer seen = x;
    must_answer(WEIR_DEVICE_ERROR, weir_buffer_set_stream(&x, foreign));
    must_answer(WEIR_DEVICE_ERROR, weir_buffer_resize(&x, 2 * MIB, foreign));
    must_answer(WEIR_DEVICE_ERROR, weir_buffer_use(&x, foreign, WEIR_READ));
    must_answer(WEIR_DEVICE_ERROR, weir_buffer_wait(&x, foreign, WEIR_READ));
    must(memcmp(&x, &seen, sizeof x) == 0);
    end_stream(device, foreign);
    weir_buffer_reset(&x);
    weir_resource_unref(other);
    close_emulated(device);
    buffer_scene_close(&it);
}

static void a_view_becomes_an_owner(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    void *ptr = take(it.pool, it.a, MIB);
    weir_buffer x;
    must_ok(weir_buffer_view(ptr, MIB, it.a, &x));
    write_all(&it, it.a, &x, 5);
    must_answer(WEIR_NOT_SUPPORTED, weir_buffer_own(&x, NULL, it.a));
    must_ok(weir_buffer_own(&x, it.pool, it.a));
    must(x.data != ptr && x.size == MIB && x.resource == it.pool);
    must(properties_of(&x).is_alone);
    give(it.pool, it.a, ptr, MIB);
    check_all(&it, it.a, &x, 5);
    void *own = x.data;
    must_ok(weir_buffer_own(&x, NULL, it.b));
    must(x.data == own);
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
}

static void one_of_two_becomes_its_own(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, MIB), y;
    write_all(&it, it.a, &x, 5);
    must_ok(weir_buffer_share(&x, &y));
    must_ok(weir_buffer_own(&y, NULL, it.b));
    must(y.data != x.data && properties_of(&x).is_alone && properties_of(&y).is_alone);
    weir_buffer_reset(&x);
    check_all(&it, it.b, &y, 5);
    weir_buffer_reset(&y);
    buffer_scene_close(&it);
}

/* ---- given away ---- */

static void what_is_released_is_the_callers(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, MIB), y;
    void *ptr = x.data;
    write_all(&it, it.a, &x, 5);
    must_ok(weir_buffer_wait(&x, it.b, WEIR_READ));
    check_all(&it, it.b, &x, 5);
    must_ok(weir_buffer_use(&x, it.b, WEIR_READ));
    must_ok(weir_buffer_resize(&x, KIB, it.a));
    weir_released r = { .struct_size = sizeof r };
    must_ok(weir_buffer_release(&x, &r));
    must(x.data == NULL && x.storage == NULL && x.size == 0 && x.resource == it.pool);
    must(r.data == ptr && r.size == KIB && r.ptr == ptr && r.bytes == MIB);
    must(r.resource == it.pool && r.stream == it.a && r.deleter == NULL);
    weir_buffer_reset(&x);
    must_equal(statistics_of(it.pool).out_bytes, MIB);
    stamp(it.device, r.stream, r.ptr, r.bytes, 6); /* behind who read it */
    must_ok(weir_buffer_adopt_block(it.pool, it.a, r.ptr, r.bytes, r.alignment, &y));
    weir_resource_unref(r.resource);
    must(y.data == ptr && y.size == MIB);
    check_all(&it, it.a, &y, 6);
    r = (weir_released){ .struct_size = sizeof r };
    must_ok(weir_buffer_release(&y, &r));
    must_ok(weir_released_free_sync(it.device, &r));
    must(r.ptr == NULL && r.resource == NULL);
    must_equal(statistics_of(it.pool).out_bytes, 0);
    weir_buffer_reset(&y);
    buffer_scene_close(&it);
}

static void a_deleter_is_released_with_its_bytes(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    foreign_block end;
    for (int ignores = 0; ignores < 2; ignores++) {
        weir_foreign foreign = make_foreign(&it, MIB, &end);
        foreign.ignores_stream = ignores;
        weir_buffer x;
        must_ok(weir_buffer_adopt(it.device, it.a, &foreign, &x));
        write_all(&it, it.a, &x, 5);
        weir_released r = { .struct_size = sizeof r };
        must_ok(weir_buffer_release(&x, &r));
        must(r.resource == NULL && r.context == &end && r.ignores_stream == ignores);
        weir_buffer_reset(&x);
        must_equal(end.ends, 0);
        must_ok(weir_released_free_sync(it.device, &r));
        must_equal(end.ends, 1);
    }
    buffer_scene_close(&it);
}

/* A deleter that ignores its stream is not called before that could be waited for: what
 * was released is the caller's as before. */
static void what_cannot_be_waited_for_is_not_freed(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    foreign_block end;
    weir_foreign foreign = make_foreign(&it, MIB, &end);
    foreign.ignores_stream = true;
    weir_buffer x;
    must_ok(weir_buffer_adopt(it.device, it.a, &foreign, &x));
    write_all(&it, it.a, &x, 5);
    weir_released r = { .struct_size = sizeof r };
    must_ok(weir_buffer_release(&x, &r));
    weir_buffer_reset(&x);
    const weir_released seen = r;
    must_answer(WEIR_INVALID_ARGUMENT, weir_released_free_sync(NULL, &r));
    must_answer(WEIR_INVALID_ARGUMENT, weir_released_free_sync(it.device, NULL));
    plan_fault(it.device, "stream_sync", 1, true, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir_released_free_sync(it.device, &r));
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    must_ok(weir_emulated_capture_begin(it.device, it.a));
    must_answer(WEIR_CAPTURING, weir_released_free_sync(it.device, &r));
    must_ok(weir_emulated_capture_end(it.device, it.a, NULL));
    must_equal(end.ends, 0);
    must(memcmp(&r, &seen, sizeof r) == 0);
    must_ok(weir_released_free_sync(it.device, &r));
    must(end.ends == 1 && r.ptr == NULL && r.deleter == NULL);
    buffer_scene_close(&it);
}

static void what_is_held_is_not_released(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, MIB), y;
    must_ok(weir_buffer_share(&x, &y));
    weir_released r = { .struct_size = sizeof r };
    must_answer(WEIR_NOT_OWNED, weir_buffer_release(&x, &r));
    must(x.data != NULL && r.ptr == NULL);
    weir_buffer_reset(&y);
    must_ok(weir_buffer_release(&x, &r));
    must_ok(weir_released_free_sync(it.device, &r));
    must_answer(WEIR_NOT_OWNED, weir_buffer_release(&x, &r)); /* it is empty */
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
}

static void what_is_no_block_is_not_adopted(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    void *ptr = take(it.pool, it.a, MIB);
    weir_buffer x;
    must_answer(WEIR_NOT_FOUND,
                weir_buffer_adopt_block(it.pool, it.a, (char *)ptr + 256, 256,
                                        WEIR_ALIGNMENT, &x));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_adopt_block(it.pool, it.a, ptr, KIB, WEIR_ALIGNMENT, &x));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_adopt_block(it.pool, it.a, ptr, MIB, 128, &x));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_adopt_block(it.pool, it.a, NULL, MIB, WEIR_ALIGNMENT, &x));
    must_be_empty(&x);
    give(it.pool, it.a, ptr, MIB);
    buffer_scene_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resizing_keeps_the_contents),
        cmocka_unit_test(within_its_capacity_nothing_moves),
        cmocka_unit_test(who_takes_over_waits_where_nothing_moves),
        cmocka_unit_test(readers_keep_the_old_bytes),
        cmocka_unit_test(shrinking_gives_back),
        cmocka_unit_test(what_is_shared_keeps_its_size),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(a_large_alignment_is_kept),
        cmocka_unit_test(a_copy_is_its_own),
        cmocka_unit_test(a_copy_that_cannot_be_noted_is_not_forgotten),
        cmocka_unit_test(a_move_that_failed_is_noted),
        cmocka_unit_test(a_copy_that_failed_is_noted),
        cmocka_unit_test(a_copy_stays_on_its_device),
        cmocka_unit_test(a_view_becomes_an_owner),
        cmocka_unit_test(one_of_two_becomes_its_own),
        cmocka_unit_test(what_is_released_is_the_callers),
        cmocka_unit_test(a_deleter_is_released_with_its_bytes),
        cmocka_unit_test(what_cannot_be_waited_for_is_not_freed),
        cmocka_unit_test(what_is_held_is_not_released),
        cmocka_unit_test(what_is_no_block_is_not_adopted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
