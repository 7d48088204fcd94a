/* test_order.c - stream order as a user of pools meets it: who waits for whom when
 * memory changes hands, and who does not. */
#include "support_scene.h"

static uint8_t first_byte(scene *it, const void *ptr)
{
    uint8_t byte = 0;
    must_ok(weir_copy_sync(it->device, it->d, &byte, ptr, 1));
    return byte;
}

/* ---- rmm#2489 ---- */

/* A frees X behind a stall; B asks for more than there is. */
static void *refused_big_after_stall(scene *it, uint64_t *gate)
{
    void *big;
    void *x = take(it->pool, it->a, SIZE);
    must_ok(weir_emulated_stall(it->device, it->a, gate));
    must_ok(weir_fill(it->device, it->a, x, 0xAA, SIZE));
    give(it->pool, it->a, x, SIZE);

    uint64_t waits = calls_of(it->device).stream_wait_event;
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(it->pool, it->b, 2 * SIZE, WEIR_ALIGNMENT, &big));
    must_equal(calls_of(it->device).stream_wait_event, waits);
    must_finish(it, it->b);
    return x;
}

static void takes_and_overwrites(scene *it, weir_stream stream, void *x)
{
    void *y = take(it->pool, stream, SIZE);
    must(y == x);
    must_ok(weir_fill(it->device, stream, y, 0xCC, SIZE));
}

static void rmm2489(scene *it)
{
    uint64_t gate;
    void *x = refused_big_after_stall(it, &gate);
    takes_and_overwrites(it, it->c, x);
    must_not_finish(it, it->c);

    must_ok(weir_emulated_open_gate(it->device, gate));
    must_ok(weir_device_sync(it->device));
    must_equal(first_byte(it, x), 0xCC);
    give(it->pool, it->c, x, SIZE);
}

static void third_stream_waits_for_the_first(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    rmm2489(&it);
    scene_close(&it);
}

static void third_stream_waits_despite_a_stale_event(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    give(it.pool, it.b, take(it.pool, it.b, SIZE), SIZE);
    rmm2489(&it);
    scene_close(&it);
}

static void dependencies_carry_through_two_handovers(void **state)
{
    (void)state;
    scene it = scene_open(false);
    uint64_t gate;
    scene_make_streams(&it);
    void *x = refused_big_after_stall(&it, &gate);
    give(it.pool, it.c, take(it.pool, it.c, SIZE), SIZE);
    takes_and_overwrites(&it, it.d, x);
    must_not_finish(&it, it.d);

    must_ok(weir_emulated_open_gate(it.device, gate));
    must_ok(weir_device_sync(it.device));
    must_equal(first_byte(&it, x), 0xCC);
    give(it.pool, it.d, x, SIZE);
    scene_close(&it);
}

typedef struct release_scene {
    scene it;
    uint64_t gate;
} release_scene;

static void opens_the_gate(void *argument)
{
    release_scene *release = argument;
    for (int i = 0; i < 20; i++) { /* any call is a place to lose the turn */
        bool stepped;
        must_ok(weir_emulated_step(release->it.device, &stepped));
    }
    must_equal(device_free_bytes(release->it.device), MEMORY - SIZE);
    must_ok(weir_emulated_open_gate(release->it.device, release->gate));
}

static void destroys_the_pool(void *argument)
{
    release_scene *release = argument;
    weir_resource_unref(release->it.pool);
}

/* Memory must not go back upstream before A's fill is done: the ledger sees if it
 * does. */
static void destroying_a_pool_waits_for_the_first_stream(void **state)
{
    (void)state;
    release_scene release = { .it = scene_open(false) };
    scene_make_streams(&release.it);
    refused_big_after_stall(&release.it, &release.gate);
    run_both(release.it.device, destroys_the_pool, opens_the_gate, &release);
    release.it.pool = NULL;
    must_equal(device_free_bytes(release.it.device), MEMORY);
    scene_close(&release.it);
}

/* ---- waits for what was freed, not for what came after ---- */

static void taker_does_not_wait_for_later_work(bool eager)
{
    scene it = scene_open(eager);
    uint64_t gate;
    if (!eager)
        scene_make_streams(&it); /* the device meets a second stream before the free */
    else
        it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);

    void *x = take(it.pool, it.a, SIZE);
    must_ok(weir_fill(it.device, it.a, x, 0xAA, SIZE));
    give(it.pool, it.a, x, SIZE);
    must_ok(weir_emulated_stall(it.device, it.a, &gate));

    weir_stream c = eager ? make_stream(it.device, WEIR_STREAM_NON_BLOCKING) : it.c;
    takes_and_overwrites(&it, c, x);
    must_ok(weir_stream_sync(it.device, c));
    give(it.pool, c, x, SIZE);
    must_ok(weir_emulated_open_gate(it.device, gate));
    if (eager)
        end_stream(it.device, c);
    scene_close(&it);
}

static void taker_does_not_wait_for_a_stall_after_the_free(void **state)
{
    (void)state;
    taker_does_not_wait_for_later_work(false);
}

static void eager_needs_no_second_stream_for_that(void **state)
{
    (void)state;
    taker_does_not_wait_for_later_work(true);
}

/* A later free has its event behind the stall; the earlier one's is the one that
 * counts. */
static void taker_waits_for_the_oldest_event_that_will_do(void **state)
{
    (void)state;
    scene it = scene_open(false);
    uint64_t gate;
    scene_make_streams(&it);
    void *x = take(it.pool, it.a, SIZE / 2), *y = take(it.pool, it.a, SIZE / 2);
    stamp(it.device, it.a, x, SIZE / 2, 1);
    weir_point early, other;
    must_ok(weir_point_here(it.device, it.a, &early));
    give(it.pool, it.a, x, SIZE / 2);
    must_ok(weir_point_here(it.device, it.b, &other)); /* stocks records of events */
    must_ok(weir_emulated_stall(it.device, it.a, &gate));
    give(it.pool, it.a, y, SIZE / 2);

    must_ok(weir_stream_wait_point(it.device, it.c, early));
    must_finish(&it, it.c);
    must_ok(weir_emulated_open_gate(it.device, gate));
    scene_close(&it);
}

static void one_stream_makes_no_event(void **state)
{
    (void)state;
    scene it = scene_open(false);
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    for (int i = 0; i < 10; i++) {
        void *x = take(it.pool, it.a, SIZE / 2), *y = take(it.pool, it.a, SIZE / 2);
        stamp(it.device, it.a, x, SIZE / 2, 1);
        give(it.pool, it.a, y, SIZE / 2);
        give(it.pool, it.a, x, SIZE / 2);
    }
    weir_device_calls calls = calls_of(it.device);
    must_equal(calls.event_record + calls.event_query + calls.stream_wait_event, 0);
    must_equal(calls.event_create + calls.stream_get_id + calls.stream_is_capturing, 0);
    scene_close(&it);
}

/* The answer yes is kept: a second taker asks nobody. */
static void device_is_asked_once(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    weir_point point;
    void *x = take(it.pool, it.a, SIZE);
    stamp(it.device, it.a, x, SIZE, 1);
    must_ok(weir_point_here(it.device, it.a, &point));
    give(it.pool, it.a, x, SIZE);
    for (bool stepped = true; stepped;) /* nobody waits, so nobody knows */
        must_ok(weir_emulated_step(it.device, &stepped));

    bool done;
    must_ok(weir_point_query(it.device, point, &done));
    must(done);
    must_equal(calls_of(it.device).event_query, 1);
    must_ok(weir_point_query(it.device, point, &done));
    x = take(it.pool, it.b, SIZE);
    must_equal(calls_of(it.device).event_query, 1);
    must_equal(calls_of(it.device).stream_wait_event, 0);
    give(it.pool, it.b, x, SIZE);
    scene_close(&it);
}

/* Where nobody else wanted an event, the question makes one. */
static void point_on_a_lone_stream_becomes_done(void **state)
{
    (void)state;
    scene it = scene_open(false);
    weir_point point;
    bool done = false;
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    void *x = take(it.pool, it.a, SIZE);
    stamp(it.device, it.a, x, SIZE, 1);
    must_ok(weir_point_here(it.device, it.a, &point));
    must_equal(calls_of(it.device).event_record, 0);
    for (int i = 0; i < 1000 && !done; i++)
        must_ok(weir_point_query(it.device, point, &done));
    must(done);
    must_equal(calls_of(it.device).event_record, 1);
    give(it.pool, it.a, x, SIZE);
    scene_close(&it);
}

/* B is behind what the event on S knew when it was recorded, not what S learnt
 * later. */
static void waiting_teaches_what_the_event_knew(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    uint64_t gate;
    weir_point on_s;
    void *x = take(it.pool, it.a, SIZE / 2);
    void *s = take(it.pool, it.b, SIZE / 2);
    stamp(it.device, it.b, s, SIZE / 2, 1);
    give(it.pool, it.b, s, SIZE / 2); /* records an event on b, which knows nothing */
    must_ok(weir_point_here(it.device, it.b, &on_s));

    must_ok(weir_emulated_stall(it.device, it.a, &gate));
    stamp(it.device, it.a, x, SIZE / 2, 2);
    must_ok(weir_stream_wait(it.device, it.b, it.a)); /* b learns later */

    must(take(it.pool, it.c, SIZE / 2) == s); /* c waits for the early event on b */
    must_finish(&it, it.c);
    give(it.pool, it.a, x, SIZE / 2);
    must(take(it.pool, it.c, SIZE / 2) == x); /* and must wait for a all the same */
    stamp(it.device, it.c, x, SIZE / 2, 3);
    must_not_finish(&it, it.c);
    must_ok(weir_emulated_open_gate(it.device, gate));
    give(it.pool, it.c, x, SIZE / 2);
    give(it.pool, it.c, s, SIZE / 2);
    scene_close(&it);
}

/* Two neighbours of two streams become one block of a third, with a mark of its own. */
static void merged_memory_carries_a_new_mark(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    uint64_t gate;
    void *x = take(it.pool, it.a, SIZE / 2), *y = take(it.pool, it.b, SIZE / 2);
    must_ok(weir_emulated_stall(it.device, it.a, &gate));
    stamp(it.device, it.a, x, SIZE / 2, 1);
    stamp(it.device, it.b, y, SIZE / 2, 2);
    give(it.pool, it.a, x, SIZE / 2);
    give(it.pool, it.b, y, SIZE / 2);

    size_t more = SIZE / 2 + 256; /* spans both, and leaves a piece over */
    void *whole = take(it.pool, it.c, more);
    void *piece = take(it.pool, it.d, SIZE - more);
    stamp(it.device, it.d, piece, SIZE - more, 3);
    stamp(it.device, it.c, whole, more, 4);
    must_not_finish(&it, it.c);
    must_ok(weir_emulated_open_gate(it.device, gate));
    check_stamp(it.device, it.c, whole, more, 4);
    check_stamp(it.device, it.d, piece, SIZE - more, 3);
    give(it.pool, it.d, piece, SIZE - more);
    give(it.pool, it.c, whole, more);
    scene_close(&it);
}

/* ---- points ---- */

static void memory_used_on_several_streams_waits_for_all(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    uint64_t gates[2];
    weir_point points[2];
    void *x = take(it.pool, it.a, SIZE);
    stamp(it.device, it.a, x, SIZE, 1);
    must_ok(weir_stream_wait(it.device, it.b, it.a));
    must_ok(weir_emulated_stall(it.device, it.a, &gates[0]));
    must_ok(weir_emulated_stall(it.device, it.b, &gates[1]));
    check_stamp(it.device, it.a, x, SIZE, 1);
    check_stamp(it.device, it.b, x, SIZE, 1);
    must_ok(weir_point_here(it.device, it.a, &points[0]));
    must_ok(weir_point_here(it.device, it.b, &points[1]));
    must(weir_deallocate_after(it.pool, x, SIZE, WEIR_ALIGNMENT, points, 2));

    void *y = NULL;
    weir_status early = weir_allocate(it.pool, it.c, SIZE, WEIR_ALIGNMENT, &y);
    if (early == WEIR_OK) { /* may be handed out, but then behind both */
        stamp(it.device, it.c, y, SIZE, 2);
        must_ok(weir_emulated_open_gate(it.device, gates[0]));
        must_not_finish(&it, it.c);
        must_ok(weir_emulated_open_gate(it.device, gates[1]));
    } else {
        must_answer(WEIR_LIMIT_REACHED, early);
        must_ok(weir_emulated_open_gate(it.device, gates[0]));
        must_ok(weir_emulated_open_gate(it.device, gates[1]));
        must_ok(weir_device_sync(it.device));
        y = take(it.pool, it.c, SIZE);
    }
    must(y == x);
    give(it.pool, it.c, y, SIZE);
    scene_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(third_stream_waits_for_the_first),
        cmocka_unit_test(third_stream_waits_despite_a_stale_event),
        cmocka_unit_test(dependencies_carry_through_two_handovers),
        cmocka_unit_test(destroying_a_pool_waits_for_the_first_stream),
        cmocka_unit_test(taker_does_not_wait_for_a_stall_after_the_free),
        cmocka_unit_test(eager_needs_no_second_stream_for_that),
        cmocka_unit_test(taker_waits_for_the_oldest_event_that_will_do),
        cmocka_unit_test(one_stream_makes_no_event),
        cmocka_unit_test(device_is_asked_once),
        cmocka_unit_test(point_on_a_lone_stream_becomes_done),
        cmocka_unit_test(waiting_teaches_what_the_event_knew),
        cmocka_unit_test(merged_memory_carries_a_new_mark),
        cmocka_unit_test(memory_used_on_several_streams_waits_for_all),
    };
    return cmocka_run_group_tests_name("stream order", tests, NULL, NULL);
}
