/* test_buffer.c - buffers: who owns, who borrows, who holds with others, and behind
 * whose work the bytes go back. */
#include <string.h>

#include "support_buffer.h"

_Static_assert(sizeof(weir_buffer) == 64, "a buffer is one line");

/* ---- beginning and end ---- */

static void a_buffer_owns_what_it_allocates(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, MIB);
    must(x.data != NULL && x.storage != NULL && x.resource == it.pool);
    must(x.stream == it.a && x.capacity == MIB);
    weir_buffer_properties p = properties_of(&x);
    must(p.owns && p.is_alone && !p.read_only && p.device == it.device);
    must_equal(p.kind, WEIR_MEMORY_DEVICE);
    write_all(&it, it.a, &x, 7);
    must_equal(statistics_of(it.pool).out_bytes, MIB);
    weir_buffer_reset(&x);
    must_be_empty(&x);
    must_equal(statistics_of(it.pool).out_bytes, 0);
    weir_buffer_reset(&x);
    weir_buffer_reset(NULL);
    buffer_scene_close(&it);
}

static void an_empty_buffer_grows(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x, y;
    must_ok(weir_buffer_init(it.pool, it.a, &x));
    must(x.data == NULL && x.size == 0 && x.resource == it.pool);
    must_ok(weir_buffer_allocate(it.pool, it.a, 0, WEIR_ALIGNMENT, &y));
    must(y.data == NULL && y.resource == it.pool);
    weir_buffer_reset(&y);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_allocate(it.pool, it.a, 0, 3, &y));
    must_be_empty(&y);
    must_ok(weir_buffer_resize(&x, 100, it.b));
    must(x.data != NULL && x.size == 100 && x.capacity == 256 && x.stream == it.b);
    must_equal(statistics_of(it.pool).out_bytes, 256);
    write_all(&it, it.b, &x, 3);
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
}

static void a_view_borrows(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    void *ptr = take(it.pool, it.a, MIB);
    weir_buffer x, y;
    must_answer(WEIR_INVALID_ARGUMENT, weir_buffer_view(ptr, SIZE_MAX, it.a, &x));
    must_ok(weir_buffer_view(ptr, MIB, it.a, &x));
    must(x.data == ptr && x.storage == NULL && !properties_of(&x).owns);
    must_ok(weir_buffer_slice(&x, 256, 512, &y));
    must(y.data == (char *)ptr + 256 && y.size == 512 && y.storage == NULL);
    must_answer(WEIR_NOT_OWNED, weir_buffer_share(&x, &y));
    must_be_empty(&y);
    must_answer(WEIR_NOT_OWNED, weir_buffer_use(&x, it.a, WEIR_READ));
    must_answer(WEIR_NOT_OWNED, weir_buffer_wait(&x, it.a, WEIR_READ));
    must_answer(WEIR_NOT_OWNED, weir_buffer_wait_sync(&x, WEIR_READ));
    must_answer(WEIR_NOT_OWNED, weir_buffer_resize(&x, 2 * MIB, it.a));
    must_answer(WEIR_NOT_OWNED, weir_buffer_reserve(&x, 1, it.a));
    must_answer(WEIR_NOT_OWNED, weir_buffer_shrink(&x, it.a));
    weir_weak_buffer weak;
    must_answer(WEIR_NOT_OWNED, weir_buffer_weaken(&x, &weak));
    weir_released r = { .struct_size = sizeof r };
    must_answer(WEIR_NOT_OWNED, weir_buffer_release(&x, &r));
    must(x.data == ptr && x.size == MIB);
    weir_buffer_reset(&x);
    give(it.pool, it.a, ptr, MIB);
    buffer_scene_close(&it);
}

/* ---- holders ---- */

static void the_last_holder_gives_back(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, MIB), y, z;
    write_all(&it, it.a, &x, 9);
    must_ok(weir_buffer_share(&x, &y));
    must_ok(weir_buffer_slice(&y, 512, 1024, &z));
    must(y.data == x.data && z.data == (char *)x.data + 512 && z.capacity == 1024);
    must(!properties_of(&x).is_alone);
    weir_buffer_reset(&x);
    must_equal(statistics_of(it.pool).out_bytes, MIB);
    check_all(&it, it.a, &y, 9);
    weir_buffer_reset(&z);
    must(properties_of(&y).is_alone);
    must_equal(statistics_of(it.pool).out_bytes, MIB);
    weir_buffer_reset(&y);
    must_equal(statistics_of(it.pool).out_bytes, 0);
    buffer_scene_close(&it);
}

static void slices_lie_inside(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, 1000), y;
    must_answer(WEIR_INVALID_ARGUMENT, weir_buffer_slice(&x, 0, 1001, &y));
    must_answer(WEIR_INVALID_ARGUMENT, weir_buffer_slice(&x, 1001, 0, &y));
    must_answer(WEIR_INVALID_ARGUMENT, weir_buffer_slice(&x, 1, SIZE_MAX, &y));
    must_be_empty(&y);
    must(properties_of(&x).is_alone);
    must_ok(weir_buffer_slice(&x, 1000, 0, &y));
    weir_buffer_reset(&y);
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
}

static void a_weak_holder_sees_the_end(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, MIB), y;
    weir_weak_buffer weak;
    must_ok(weir_buffer_weaken(&x, &weak));
    must(properties_of(&x).is_alone);
    must_ok(weir_weak_buffer_upgrade(&weak, &y));
    must(y.data == x.data && !properties_of(&x).is_alone);
    weir_buffer_reset(&x);
    must_ok(weir_weak_buffer_upgrade(&weak, &x));
    weir_buffer_reset(&x);
    weir_buffer_reset(&y);
    must_equal(statistics_of(it.pool).out_bytes, 0);
    must_answer(WEIR_NOT_FOUND, weir_weak_buffer_upgrade(&weak, &y));
    must_be_empty(&y);
    weir_weak_buffer_reset(&weak);
    weir_weak_buffer_reset(&weak);
    buffer_scene_close(&it);
}

/* The bytes that were known are gone; the new ones nobody knows. */
static void a_weak_holder_sees_a_move(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, KIB), y;
    weir_weak_buffer weak;
    must_ok(weir_buffer_weaken(&x, &weak));
    must_ok(weir_buffer_resize(&x, MIB, it.a));
    must_answer(WEIR_NOT_FOUND, weir_weak_buffer_upgrade(&weak, &y));
    weir_weak_buffer_reset(&weak);
    weir_buffer_reset(&x);
    must_equal(statistics_of(it.pool).out_bytes, 0);
    buffer_scene_close(&it);
}

/* ---- stream order ---- */

/* Reused at once on the stream of its last use, and on another only behind it. */
static void bytes_go_back_behind_noted_uses(void **state)
{
    (void)state;
    for (int access = WEIR_READ; access <= WEIR_WRITE; access++) {
        buffer_scene it = buffer_scene_open();
        weir_buffer x = make_buffer(&it, it.a, MIB);
        write_all(&it, it.a, &x, 5);
        must_ok(weir_buffer_wait(&x, it.b, WEIR_READ));
        uint64_t gate = stall_stream(&it, it.b);
        check_all(&it, it.b, &x, 5);
        must_ok(weir_buffer_use(&x, it.b, (weir_access)access));
        weir_buffer_reset(&x);
        weir_buffer y = make_buffer(&it, it.a, MIB);
        write_all(&it, it.a, &y, 6);
        open_stream(&it, gate);
        weir_buffer_reset(&y);
        buffer_scene_close(&it);
    }
}

static void who_writes_waits_for_readers(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, MIB);
    write_all(&it, it.a, &x, 5);
    must_ok(weir_buffer_wait(&x, it.b, WEIR_READ));
    check_all(&it, it.b, &x, 5);
    must_ok(weir_buffer_use(&x, it.b, WEIR_READ));
    uint64_t before = calls_of(it.device).stream_wait_event;
    must_ok(weir_buffer_wait(&x, it.a, WEIR_READ));
    must_equal(calls_of(it.device).stream_wait_event, before); /* no writer but a */
    must_ok(weir_buffer_wait(&x, it.a, WEIR_WRITE));
    must(calls_of(it.device).stream_wait_event > before);
    write_all(&it, it.a, &x, 6);
    must_ok(weir_buffer_wait_sync(&x, WEIR_WRITE));
    weir_buffer_reset(&x);
    buffer_scene_close(&it);
}

static void the_host_waits(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_resource *pinned;
    must_ok(weir_resource_open(it.device, "pool/pinned", &pinned));
    weir_buffer x;
    must_ok(weir_buffer_allocate(pinned, it.a, KIB, WEIR_ALIGNMENT, &x));
    must_equal(properties_of(&x).kind, WEIR_MEMORY_PINNED);
    must_ok(weir_fill(it.device, it.a, x.data, 0x5a, KIB));
    must_ok(weir_buffer_wait_sync(&x, WEIR_READ));
    must(((unsigned char *)x.data)[KIB - 1] == 0x5a);
    weir_buffer_reset(&x);
    weir_resource_unref(pinned);
    buffer_scene_close(&it);
}

/* More streams than there is room for: some wait for others, and all count. */
static void uses_of_many_streams_all_count(void **state)
{
    (void)state;
    enum { MANY = 12 };
    buffer_scene it = buffer_scene_open();
    weir_stream streams[MANY];
    uint64_t gates[MANY];
    weir_buffer x = make_buffer(&it, it.a, MIB);
    write_all(&it, it.a, &x, 5);
    for (int i = 0; i < MANY; i++) {
        streams[i] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        must_ok(weir_buffer_wait(&x, streams[i], WEIR_READ));
        gates[i] = stall_stream(&it, streams[i]);
        check_all(&it, streams[i], &x, 5);
        must_ok(weir_buffer_use(&x, streams[i], WEIR_READ));
    }
    weir_buffer_reset(&x);
    weir_buffer y = make_buffer(&it, it.a, MIB);
    write_all(&it, it.a, &y, 6);
    for (int i = 0; i < MANY; i++)
        open_stream(&it, gates[i]);
    weir_buffer_reset(&y);
    for (int i = 0; i < MANY; i++)
        end_stream(it.device, streams[i]);
    buffer_scene_close(&it);
}

/* Its last point counts, though the handle may be another stream's. */
static void a_stream_ends_before_its_buffer(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_stream c = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    weir_buffer x = make_buffer(&it, c, MIB), y;
    must_ok(weir_buffer_share(&x, &y));
    uint64_t gate = stall_stream(&it, c);
    write_all(&it, c, &x, 5);
    must_ok(weir_stream_destroy(it.device, c));
    weir_stream d = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    weir_buffer_reset(&y);
    weir_buffer_reset(&x);
    weir_buffer z = make_buffer(&it, d, MIB);
    write_all(&it, d, &z, 6);
    open_stream(&it, gate);
    weir_buffer_reset(&z);
    end_stream(it.device, d);
    buffer_scene_close(&it);
}

/* The same where there is no other stream, and nobody has asked how far this one is. */
static void the_only_stream_ends_before_its_buffer(void **state)
{
    (void)state;
    buffer_scene it = { .device = open_stepped(support_seed_in_use()) };
    weir_resource *leaf;
    must_ok(weir_device_resource_create(it.device, &leaf));
    weir_stream c = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    weir_buffer x;
    must_ok(weir_buffer_allocate(leaf, c, MIB, WEIR_ALIGNMENT, &x));
    uint64_t gate = stall_stream(&it, c);
    write_all(&it, c, &x, 5);
    must_ok(weir_stream_destroy(it.device, c));
    weir_buffer_reset(&x);
    must_equal(statistics_of(leaf).kept_bytes, MIB);
    open_stream(&it, gate);
    weir_resource_unref(leaf);
    close_emulated(it.device);
}

static void the_old_stream_is_noted(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, MIB);
    uint64_t gate = stall_stream(&it, it.a);
    write_all(&it, it.a, &x, 5);
    must_ok(weir_buffer_set_stream(&x, it.b));
    must(x.stream == it.b);
    must_ok(weir_buffer_wait(&x, it.b, WEIR_READ));
    check_all(&it, it.b, &x, 5);
    weir_buffer_reset(&x);
    weir_buffer y = make_buffer(&it, it.a, MIB);
    write_all(&it, it.a, &y, 6);
    open_stream(&it, gate);
    weir_buffer_reset(&y);
    buffer_scene_close(&it);
}

/* Without a wait that follows, the old stream still counts at the end. */
static void the_end_waits_for_the_old_stream(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, MIB);
    uint64_t gate = stall_stream(&it, it.a);
    write_all(&it, it.a, &x, 5);
    must_ok(weir_buffer_set_stream(&x, it.b));
    weir_buffer_reset(&x);
    weir_buffer y = make_buffer(&it, it.b, MIB);
    write_all(&it, it.b, &y, 6);
    open_stream(&it, gate);
    weir_buffer_reset(&y);
    buffer_scene_close(&it);
}

/* Who holds with another stream gives back behind what was on this one's. */
static void each_holders_stream_counts(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, MIB), y;
    must_ok(weir_buffer_share(&x, &y));
    must_ok(weir_buffer_set_stream(&y, it.b));
    must_ok(weir_buffer_wait(&y, it.b, WEIR_WRITE)); /* for what is there so far */
    uint64_t gate = stall_stream(&it, it.a);
    write_all(&it, it.a, &x, 5);
    weir_buffer_reset(&x);
    weir_buffer_reset(&y);
    weir_buffer z = make_buffer(&it, it.b, MIB);
    write_all(&it, it.b, &z, 6);
    open_stream(&it, gate);
    weir_buffer_reset(&z);
    buffer_scene_close(&it);
}

/* The other holder goes on at home; what was there before counts for this one. */
static void one_of_two_goes_to_another_stream(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, it.a, MIB), y;
    write_all(&it, it.a, &x, 5);
    must_ok(weir_buffer_share(&x, &y));
    must_ok(weir_buffer_set_stream(&y, it.b));
    must_ok(weir_buffer_wait(&y, it.b, WEIR_READ));
    check_all(&it, it.b, &y, 5);
    weir_buffer_reset(&x);
    weir_buffer_reset(&y);
    buffer_scene_close(&it);
}

static void reset_here(void *argument)
{
    weir_buffer_reset(argument);
}

/* Nobody but the thread can tell how far its own stream is. */
static void a_threads_own_stream_is_that_of_no_other(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer x = make_buffer(&it, WEIR_STREAM_PER_THREAD, MIB);
    uint64_t gate = stall_stream(&it, WEIR_STREAM_PER_THREAD);
    write_all(&it, WEIR_STREAM_PER_THREAD, &x, 5);
    void *argument = &x;
    must_ok(weir_emulated_run_threads(it.device, 1, reset_here, &argument));
    must_be_empty(&x);
    must_equal(statistics_of(it.pool).out_bytes, 0);
    weir_buffer y = make_buffer(&it, it.a, MIB);
    write_all(&it, it.a, &y, 6);
    open_stream(&it, gate);
    weir_buffer_reset(&y);
    buffer_scene_close(&it);
}

/* ---- foreign memory ---- */

static void a_deleter_comes_once_behind_all_uses(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    foreign_block end;
    weir_foreign foreign = make_foreign(&it, MIB, &end);
    weir_buffer x, y;
    must_ok(weir_buffer_adopt(it.device, it.a, &foreign, &x));
    must(x.data == foreign.ptr && x.resource == NULL);
    must_ok(weir_buffer_slice(&x, 0, 256, &y));
    write_all(&it, it.a, &x, 5);
    must_ok(weir_buffer_wait(&x, it.b, WEIR_READ));
    uint64_t gate = stall_stream(&it, it.b);
    check_all(&it, it.b, &x, 5);
    must_ok(weir_buffer_use(&x, it.b, WEIR_READ));
    must_answer(WEIR_NOT_OWNED, weir_buffer_resize(&x, 2 * MIB, it.a));
    weir_buffer_reset(&x);
    must_equal(end.ends, 0);
    weir_buffer_reset(&y);
    must_equal(end.ends, 1);
    must(end.stream == it.a && end.ptr == foreign.ptr && end.bytes == MIB);
    weir_buffer z = make_buffer(&it, it.a, MIB);
    write_all(&it, it.a, &z, 6);
    open_stream(&it, gate);
    weir_buffer_reset(&z);
    buffer_scene_close(&it);
}

static void a_deleter_that_ignores_streams_comes_later(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    foreign_block end;
    weir_foreign foreign = make_foreign(&it, MIB, &end);
    foreign.ignores_stream = true;
    weir_buffer x;
    must_ok(weir_buffer_adopt(it.device, it.a, &foreign, &x));
    uint64_t gate = stall_stream(&it, it.a);
    write_all(&it, it.a, &x, 5);
    weir_buffer_reset(&x);
    must_equal(end.ends, 0);
    must_equal(pending_of(it.device).deferred_count, 1);
    must_equal(pending_of(it.device).deferred_bytes, MIB);
    x = make_buffer(&it, it.b, KIB); /* looks, in vain */
    must_equal(end.ends, 0);
    open_stream(&it, gate);
    must_ok(weir_stream_sync(it.device, it.a));
    weir_buffer_reset(&x);           /* looks again */
    must_equal(end.ends, 1);
    must_equal(pending_of(it.device).deferred_count, 0);
    must_ok(weir_device_drain_sync(it.device));
    buffer_scene_close(&it);
}

/* A call asks about each of those that wait once, and not from within a deleter. */
static void who_waits_is_looked_after_once(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    foreign_block end;
    weir_foreign foreign = make_foreign(&it, MIB, &end);
    foreign.ignores_stream = true;
    weir_buffer x, y;
    must_ok(weir_buffer_init(it.pool, it.b, &y));
    must_ok(weir_buffer_adopt(it.device, it.a, &foreign, &x));
    uint64_t gate = stall_stream(&it, it.a);
    write_all(&it, it.a, &x, 5);
    weir_buffer_reset(&x);
    uint64_t before = calls_of(it.device).event_query;
    must_ok(weir_buffer_init(it.pool, it.b, &x));
    must_equal(calls_of(it.device).event_query, before + 1);
    weir_buffer_reset(&x); /* has nothing, and looks after nobody */
    must_equal(calls_of(it.device).event_query, before + 1);
    weir_buffer_reset(&y);
    open_stream(&it, gate);
    must_ok(weir_device_drain_sync(it.device));
    must_equal(end.ends, 1);
    buffer_scene_close(&it);
}

typedef struct chained_end {
    foreign_block block;
    uint32_t *depth, *most; /* of calls in calls */
} chained_end;

static void end_chained(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    chained_end *self = context;
    *self->most = *self->most > ++*self->depth ? *self->most : *self->depth;
    give(self->block.it->pool, stream, ptr, bytes);
    weir_buffer other = make_buffer(self->block.it, self->block.it->b, KIB);
    weir_buffer_reset(&other);
    --*self->depth;
}

/* However many wait, a deleter that begins and ends buffers is not called from within
 * another one more often than once. */
static void deleters_do_not_pile_up(void **state)
{
    (void)state;
    enum { MANY = 40 };
    static chained_end ends[MANY];
    buffer_scene it = buffer_scene_open();
    uint32_t depth = 0, most = 0;
    uint64_t gate = stall_stream(&it, it.a);
    for (int i = 0; i < MANY; i++) {
        weir_foreign foreign = make_foreign(&it, KIB, &ends[i].block);
        ends[i].depth = &depth;
        ends[i].most = &most;
        foreign.ignores_stream = true;
        foreign.deleter = end_chained;
        foreign.context = &ends[i];
        weir_buffer x;
        must_ok(weir_buffer_adopt(it.device, it.a, &foreign, &x));
        write_all(&it, it.a, &x, 5);
        weir_buffer_reset(&x);
    }
    must_equal(pending_of(it.device).deferred_count, MANY);
    open_stream(&it, gate);
    must_ok(weir_stream_sync(it.device, it.a));
    weir_buffer y = make_buffer(&it, it.b, KIB);
    weir_buffer_reset(&y);
    must_equal(most, 1);
    must_ok(weir_device_drain_sync(it.device));
    must_equal(pending_of(it.device).deferred_count, 0);
    must(most <= 2);
    buffer_scene_close(&it);
}

static void a_drain_empties_what_waits(void **state)
{
    (void)state;
    enum { MANY = 20 };
    buffer_scene it = buffer_scene_open();
    foreign_block ends[MANY];
    for (int i = 0; i < MANY; i++) {
        weir_foreign foreign = make_foreign(&it, KIB, &ends[i]);
        foreign.ignores_stream = true;
        weir_buffer x;
        must_ok(weir_buffer_adopt(it.device, it.a, &foreign, &x));
        write_all(&it, it.a, &x, 5);
        weir_buffer_reset(&x);
    }
    must(pending_of(it.device).deferred_count > 0);
    must_ok(weir_device_drain_sync(it.device));
    must_equal(pending_of(it.device).deferred_count, 0);
    for (int i = 0; i < MANY; i++)
        must_equal(ends[i].ends, 1);
    buffer_scene_close(&it);
}

static void what_cannot_be_adopted_is_refused(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    foreign_block end;
    weir_foreign foreign = make_foreign(&it, KIB, &end), wrong = foreign;
    weir_buffer x;
    wrong.ptr = NULL;
    must_answer(WEIR_INVALID_ARGUMENT, weir_buffer_adopt(it.device, it.a, &wrong, &x));
    wrong = foreign;
    wrong.bytes = 0;
    must_answer(WEIR_INVALID_ARGUMENT, weir_buffer_adopt(it.device, it.a, &wrong, &x));
    wrong.bytes = SIZE_MAX;
    must_answer(WEIR_INVALID_ARGUMENT, weir_buffer_adopt(it.device, it.a, &wrong, &x));
    wrong = foreign;
    wrong.kind = (weir_memory_kind)4;
    must_answer(WEIR_INVALID_ARGUMENT, weir_buffer_adopt(it.device, it.a, &wrong, &x));
    must_be_empty(&x);
    must_equal(end.ends, 0);
    give(it.pool, it.a, foreign.ptr, KIB);
    buffer_scene_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_owns_what_it_allocates),
        cmocka_unit_test(an_empty_buffer_grows),
        cmocka_unit_test(a_view_borrows),
        cmocka_unit_test(the_last_holder_gives_back),
        cmocka_unit_test(slices_lie_inside),
        cmocka_unit_test(a_weak_holder_sees_the_end),
        cmocka_unit_test(a_weak_holder_sees_a_move),
        cmocka_unit_test(bytes_go_back_behind_noted_uses),
        cmocka_unit_test(who_writes_waits_for_readers),
        cmocka_unit_test(the_host_waits),
        cmocka_unit_test(uses_of_many_streams_all_count),
        cmocka_unit_test(a_stream_ends_before_its_buffer),
        cmocka_unit_test(the_only_stream_ends_before_its_buffer),
        cmocka_unit_test(the_old_stream_is_noted),
        cmocka_unit_test(the_end_waits_for_the_old_stream),
        cmocka_unit_test(each_holders_stream_counts),
        cmocka_unit_test(one_of_two_goes_to_another_stream),
        cmocka_unit_test(a_threads_own_stream_is_that_of_no_other),
        cmocka_unit_test(a_deleter_comes_once_behind_all_uses),
        cmocka_unit_test(a_deleter_that_ignores_streams_comes_later),
        cmocka_unit_test(who_waits_is_looked_after_once),
        cmocka_unit_test(deleters_do_not_pile_up),
        cmocka_unit_test(a_drain_empties_what_waits),
        cmocka_unit_test(what_cannot_be_adopted_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
