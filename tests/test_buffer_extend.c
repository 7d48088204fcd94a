/* test_buffer_extend.c - buffers that grow where they are, because their resource can
 * extend a block: who is before whom, what is counted, and what happens where it
 * cannot. */
#include <string.h>

#include "support_buffer.h"
#include "support_roomy.h"

#define ROOM (64 * KIB)

typedef struct scene {
    buffer_scene on;
    roomy roomy;
    weir_resource *mr;
    weir_buffer x;       /* of that, on a, and written there */
} scene;

static void scene_open(scene *it, size_t bytes)
{
    it->on = buffer_scene_open();
    it->mr = roomy_open(&it->roomy, it->on.pool, ROOM);
    must_ok(weir_buffer_allocate(it->mr, it->on.a, bytes, WEIR_ALIGNMENT, &it->x));
    write_all(&it->on, it->on.a, &it->x, 5);
}

static void scene_close(scene *it)
{
    weir_buffer_reset(&it->x);
    must_equal(statistics_of(it->mr).out_bytes, 0);
    must_equal(statistics_of(it->mr).out_blocks, 0);
    must_equal(statistics_of(it->on.pool).out_bytes, 0);
    weir_resource_unref(it->mr);
    buffer_scene_close(&it->on);
}

static void growing_leaves_the_bytes_where_they_are(void **state)
{
    (void)state;
    scene it;
    scene_open(&it, 1000);
    void *old = it.x.data;
    uint64_t copies = calls_of(it.on.device).copy;
    must_ok(weir_buffer_resize(&it.x, 5000, it.on.a));
    must(it.x.data == old && it.x.size == 5000 && it.x.capacity == 5120);
    must_equal(it.roomy.extensions, 1);
    must_equal(statistics_of(it.mr).out_bytes, 5120);
    must_equal(statistics_of(it.mr).out_blocks, 1);
    must_ok(weir_buffer_reserve(&it.x, ROOM, it.on.b));
    must(it.x.data == old && it.x.size == 5000 && it.x.capacity == ROOM);
    must_equal(it.roomy.extensions, 2);
    must_equal(statistics_of(it.mr).out_bytes, ROOM);
    must_equal(calls_of(it.on.device).copy, copies);
    check_stamp(it.on.device, it.on.b, old, 1000, 5);
    weir_released r = { .struct_size = sizeof r };
    must_ok(weir_buffer_release(&it.x, &r)); /* it goes back as long as it is now */
    must(r.ptr == old && r.bytes == ROOM);
    must_ok(weir_released_free_sync(it.on.device, &r));
    scene_close(&it);
}

/* The stream that gets it is behind all who write to it; who reads it, on yet another
 * one, does so until the end. */
static void who_grows_it_waits_as_for_a_move(void **state)
{
    (void)state;
    scene it;
    scene_open(&it, KIB);
    weir_stream c = make_stream(it.on.device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_buffer_wait(&it.x, c, WEIR_READ));
    uint64_t reading = stall_stream(&it.on, c);
    check_stamp(it.on.device, c, it.x.data, 512, 5);
    must_ok(weir_buffer_use(&it.x, c, WEIR_READ));
    uint64_t writing = stall_stream(&it.on, it.on.a);
    stamp(it.on.device, it.on.a, (char *)it.x.data + 512, 512, 6);
    must_ok(weir_buffer_resize(&it.x, ROOM, it.on.b));
    must(it.x.stream == it.on.b);
    must_equal(it.roomy.extensions, 1);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.on.device, it.on.b));
    check_stamp(it.on.device, it.on.b, (char *)it.x.data + 512, 512, 6);
    stamp(it.on.device, it.on.b, (char *)it.x.data + KIB, ROOM - KIB, 7);
    open_stream(&it.on, writing);
    must_ok(weir_stream_sync(it.on.device, it.on.b)); /* not behind the reader */
    weir_buffer_reset(&it.x);
    void *again = take(it.on.pool, it.on.b, MIB);     /* but the bytes are */
    stamp(it.on.device, it.on.b, again, MIB, 8);
    open_stream(&it.on, reading);
    give(it.on.pool, it.on.b, again, MIB);
    end_stream(it.on.device, c);
    scene_close(&it);
}

static void what_cannot_be_extended_moves(void **state)
{
    (void)state;
    scene it;
    scene_open(&it, ROOM);
    void *old = it.x.data;
    must_answer(WEIR_OUT_OF_MEMORY, weir_buffer_resize(&it.x, ROOM + 1, it.on.b));
    must(it.x.data == old && it.x.size == ROOM && it.x.stream == it.on.a);
    must_equal(it.roomy.refusals, 1);
    must_equal(statistics_of(it.mr).out_bytes, ROOM);
    weir_buffer y;
    must_ok(weir_buffer_slice(&it.x, ROOM / 2, 512, &y));
    weir_buffer_reset(&it.x);
    must_ok(weir_buffer_resize(&y, KIB, it.on.b)); /* is less than its block */
    must(y.data != (char *)old + ROOM / 2 && it.roomy.extensions == 0);
    must_equal(statistics_of(it.mr).out_bytes, KIB);
    must_equal(statistics_of(it.mr).out_blocks, 1);
    weir_buffer_reset(&y);
    scene_close(&it);
}

/* There is room behind the block, but a slice that begins within it would end beyond
 * what was added. */
static void what_does_not_begin_with_its_block_moves(void **state)
{
    (void)state;
    scene it;
    scene_open(&it, KIB);
    char *old = it.x.data;
    weir_buffer y;
    must_ok(weir_buffer_slice(&it.x, 512, 512, &y));
    weir_buffer_reset(&it.x);
    must_ok(weir_buffer_resize(&y, 2 * KIB, it.on.b));
    must(y.data != old + 512 && y.size == 2 * KIB && y.capacity == 2 * KIB);
    must_equal(it.roomy.extensions, 0);
    must_equal(statistics_of(it.mr).out_bytes, 2 * KIB);
    must_equal(statistics_of(it.mr).out_blocks, 1);
    stamp(it.on.device, it.on.b, y.data, y.capacity, 6);
    weir_buffer_reset(&y);
    scene_close(&it);
}

/* Where the stream cannot be made to wait it does not get the buffer, and the block is
 * as long as before. */
static void a_failure_extends_nothing(void **state)
{
    (void)state;
    static const char *const calls[] = { "event_record", "stream_wait_event" };
    for (int i = 0; i < 2; i++) {
        scene it;
        scene_open(&it, KIB);
        const weir_buffer seen = it.x;
        plan_fault(it.on.device, calls[i], 1, true, WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR, weir_buffer_resize(&it.x, 2 * KIB, it.on.b));
        must_answer(WEIR_DEVICE_ERROR, weir_buffer_reserve(&it.x, 2 * KIB, it.on.b));
        plan_fault(it.on.device, NULL, 0, false, WEIR_OK);
        must(memcmp(&it.x, &seen, sizeof seen) == 0);
        must_equal(it.roomy.extensions, 0);
        must_equal(statistics_of(it.mr).out_bytes, KIB);
        must_equal(statistics_of(it.mr).out_blocks, 1);
        must_ok(weir_buffer_resize(&it.x, 2 * KIB, it.on.b));
        must_equal(it.roomy.extensions, 1);
        check_stamp(it.on.device, it.on.b, it.x.data, KIB, 5);
        scene_close(&it);
    }
}

/* Others see as many bytes as before, and nobody grows while they do. */
static void what_is_shared_is_not_extended(void **state)
{
    (void)state;
    scene it;
    scene_open(&it, KIB);
    weir_buffer y;
    must_ok(weir_buffer_share(&it.x, &y));
    must_answer(WEIR_NOT_OWNED, weir_buffer_resize(&it.x, 2 * KIB, it.on.b));
    must_equal(it.roomy.extensions, 0);
    weir_buffer_reset(&y);
    weir_weak_buffer weak;
    must_ok(weir_buffer_weaken(&it.x, &weak));
    must_ok(weir_buffer_resize(&it.x, 2 * KIB, it.on.b));
    must_equal(it.roomy.extensions, 1);
    must_ok(weir_weak_buffer_upgrade(&weak, &y)); /* the same bytes, as it was */
    must(y.data == it.x.data && y.size == KIB && y.capacity == KIB);
    weir_buffer_reset(&it.x);
    must_ok(weir_buffer_resize(&y, 3 * KIB, it.on.b));
    must(y.data != NULL && y.size == 3 * KIB);
    check_stamp(it.on.device, it.on.b, y.data, KIB, 5);
    weir_buffer_reset(&y);
    weir_weak_buffer_reset(&weak);
    scene_close(&it);
}

/* What is added is out, and goes back, with the rest. */
static void the_ledger_knows_what_was_added(void **state)
{
    (void)state;
    scene it;
    scene_open(&it, KIB);
    char *ptr = it.x.data;
    must_ok(weir_buffer_resize(&it.x, 2 * KIB, it.on.a));
    stamp(it.on.device, it.on.a, ptr + KIB, KIB, 6);
    must_be_quiet(it.on.device);
    weir_buffer_reset(&it.x);
    stamp(it.on.device, it.on.a, ptr + KIB, KIB, 7); /* is nobody's */
    must_equal(weir_emulated_findings(it.on.device), 1);
    weir_resource_unref(it.mr);
    weir_resource_unref(it.on.pool);
    close_anyhow(it.on.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growing_leaves_the_bytes_where_they_are),
        cmocka_unit_test(who_grows_it_waits_as_for_a_move),
        cmocka_unit_test(what_cannot_be_extended_moves),
        cmocka_unit_test(what_does_not_begin_with_its_block_moves),
        cmocka_unit_test(a_failure_extends_nothing),
        cmocka_unit_test(what_is_shared_is_not_extended),
        cmocka_unit_test(the_ledger_knows_what_was_added),
    };
    return cmocka_run_group_tests_name("buffers in place", tests, NULL, NULL);
}
