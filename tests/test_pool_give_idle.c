/* test_pool_give_idle.c - a pool that gives idle chunks upstream and does not wait:
 * behind which work, and what it keeps. */
#include <pthread.h>

#include "support_pool.h"

/* The host does not wait, and the leaf frees nothing that is at work. */
static void idle_chunks_go_behind_their_work(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 0, MIB);
    void *a = take_on(&it, 0, MIB), *b = take_on(&it, 0, MIB);
    uint64_t gate = stall(&it, 0);
    give_on(&it, 0, a, MIB);
    must_equal(weir_pool_give_back(it.pool), MIB);
    must_equal(weir_pool_give_back(it.pool), 0); /* what is out stays */
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[0]));
    must_equal(statistics_of(it.pool).held_bytes, MIB);
    open_gate(&it, gate);
    give_on(&it, 0, b, MIB);
    must_equal(weir_pool_give_back(it.pool), MIB);
    close_scene(&it);
}

/* Before a request is refused, too, whose stream waits for nothing: all is free, if not
 * done, and in two chunks. */
static void nobody_is_refused_for_chunks_that_are_at_work(void **state)
{
    (void)state;
    pool_scene it = open_scene(2, 0, 2 * MIB, MIB);
    void *a = take_on(&it, 0, MIB), *b = take_on(&it, 0, MIB);
    uint64_t gate = stall(&it, 0);
    give_on(&it, 0, a, MIB);
    give_on(&it, 0, b, MIB);
    uint64_t waits = calls_of(it.device).stream_wait_event;
    void *both = take_on(&it, 1, 2 * MIB);
    must_equal(calls_of(it.device).stream_wait_event, waits);
    must_equal(statistics_of(it.pool).held_bytes, 2 * MIB);
    must_ok(weir_stream_sync(it.device, it.streams[1]));
    open_gate(&it, gate);
    give_on(&it, 1, both, 2 * MIB);
    close_scene(&it);
}

/* Nor for holes between those that were done: as many bytes as are wanted, but upstream
 * has them in two places. */
static void nobody_is_refused_for_holes_upstream(void **state)
{
    (void)state;
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 64 * MIB);
    weir_resource *below = open_pool(open_leaf(it.device), 3 * MIB, 3 * MIB, 0);
    it.pool = open_pool(below, 0, 0, MIB);
    unsigned char *ptrs[3];
    for (int i = 0; i < 3; i++) {
        ptrs[i] = take_on(&it, i % 2, MIB);
        must(ptrs[i] == ptrs[0] + (size_t)i * MIB);
    }
    uint64_t gate = stall(&it, 1);
    for (int i = 0; i < 3; i++)
        give_on(&it, i % 2, ptrs[i], MIB);
    must_ok(weir_stream_sync(it.device, it.streams[0]));
    void *both = take_on(&it, 0, 2 * MIB);
    must_equal(statistics_of(it.pool).held_bytes, 2 * MIB);
    open_gate(&it, gate);
    give_on(&it, 0, both, 2 * MIB);
    close_scene(&it);
}

/* A capture goes on with what it had. */
static void a_capture_keeps_its_chunks(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 0, MIB);
    weir_capture *capture;
    must_ok(weir_capture_begin(it.pool, it.streams[0], &capture));
    void *a = take(it.pool, it.streams[0], 256 * KIB);
    give(it.pool, it.streams[0], a, 256 * KIB);
    must_equal(weir_pool_give_back(it.pool), 0);
    must(take(it.pool, it.streams[0], 256 * KIB) == a);
    give(it.pool, it.streams[0], a, 256 * KIB);
    must_ok(weir_capture_end(capture));
    must_equal(weir_pool_give_back(it.pool), 0);
    must_ok(weir_capture_release(capture, it.streams[0]));
    must_equal(weir_pool_give_back(it.pool), MIB);
    close_scene(&it);
}

/* Whose it is nobody can tell: it stays until the whole device was waited for. */
static void what_is_set_aside_stays(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 0, MIB);
    weir_stream nameless;
    must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING,
                                        &nameless));
    void *a = take(it.pool, it.streams[0], 256 * KIB);
    must_ok(weir_stream_wait(it.device, nameless, it.streams[0]));
    stamp(it.device, nameless, a, 256 * KIB, 1);
    plan_fault(it.device, "stream_get_id", 1, true, WEIR_DEVICE_ERROR);
    give(it.pool, nameless, a, 256 * KIB);
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    must_equal(statistics_of(it.pool).set_aside_bytes, 256 * KIB);
    must_equal(weir_pool_give_back(it.pool), 0);
    must_ok(weir_device_sync(it.device));
    must_equal(weir_pool_give_back(it.pool), MIB);
    must_ok(weir_emulated_stream_destroy(it.device, nameless));
    close_scene(&it);
}

/* Four streams can be named in a test build. */
static void a_chunk_of_too_many_streams_stays(void **state)
{
    (void)state;
    enum { USERS = STREAMS + 1 };
    pool_scene it = open_scene(1, 0, 0, MIB);
    weir_stream streams[USERS];
    uint64_t gates[USERS];
    void *blocks[USERS];
    for (int i = 0; i < USERS; i++)
        blocks[i] = take(it.pool, it.streams[0], 128 * KIB);
    for (int i = 0; i < USERS; i++) {
        streams[i] = i < STREAMS ? it.streams[i]
                                 : make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        must_ok(weir_stream_wait(it.device, streams[i], it.streams[0]));
    }
    for (int i = 0; i < USERS; i++) {
        must_ok(weir_emulated_stall(it.device, streams[i], &gates[i]));
        stamp(it.device, streams[i], blocks[i], 128 * KIB, 7);
        give(it.pool, streams[i], blocks[i], 128 * KIB);
    }
    must_equal(weir_pool_give_back(it.pool), 0);
    open_gate(&it, gates[0]);
    must_ok(weir_stream_sync(it.device, streams[0]));
    must_equal(weir_pool_give_back(it.pool), MIB);
    for (int i = 1; i < USERS; i++)
        open_gate(&it, gates[i]);
    end_stream(it.device, streams[STREAMS]);
    close_scene(&it);
}

typedef struct giver {
    pool_scene *it;
    weir_resource *inner;
} giver;

/* Waits for stream 0, and so knows what no other thread does. */
static void *give_chunk(void *argument)
{
    const giver *self = argument;
    must_ok(weir_stream_sync(self->it->device, self->it->streams[0]));
    must_equal(weir_pool_give_back(self->inner), MIB);
    return NULL;
}

/* Of two streams that have used a chunk the work of one is done, which the thread knows
 * that gives it back: whoever takes it is behind the other, and learns of the first. */
static void what_is_known_goes_upstream_too(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, MIB, MIB);
    giver other = { &it, open_pool(weir_resource_ref(it.pool), 0, 0, MIB) };
    void *blocks[2];
    for (int i = 0; i < 2; i++) {
        blocks[i] = take(other.inner, it.streams[0], 512 * KIB);
        stamp(it.device, it.streams[0], blocks[i], 512 * KIB, 7);
    }
    must_ok(weir_stream_wait(it.device, it.streams[1], it.streams[0]));
    uint64_t gate = stall(&it, 1);
    for (int i = 0; i < 2; i++) {
        stamp(it.device, it.streams[i], blocks[i], 512 * KIB, 8);
        give(other.inner, it.streams[i], blocks[i], 512 * KIB);
    }
    pthread_t thread;
    must(pthread_create(&thread, NULL, give_chunk, &other) == 0);
    must(pthread_join(thread, NULL) == 0);
    void *all = take_on(&it, 2, MIB);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[2]));
    open_gate(&it, gate);
    give_on(&it, 2, all, MIB);
    weir_resource_unref(other.inner);
    close_scene(&it);
}

/* For a request what is done goes, and is enough: what is not done stays. */
static void no_more_goes_upstream_than_is_needed(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 4 * MIB, MIB);
    void *ptrs[4];
    for (int i = 0; i < 4; i++)
        ptrs[i] = take_on(&it, i > 0, MIB);
    uint64_t gate = stall(&it, 0);
    for (int i = 0; i < 4; i++)
        give_on(&it, i > 0, ptrs[i], MIB);
    must_ok(weir_stream_sync(it.device, it.streams[1]));
    void *a = take_on(&it, 2, 2 * MIB);
    must_equal(statistics_of(it.pool).held_bytes, 3 * MIB);
    open_gate(&it, gate);
    give_on(&it, 2, a, 2 * MIB);
    close_scene(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_chunks_go_behind_their_work),
        cmocka_unit_test(nobody_is_refused_for_chunks_that_are_at_work),
        cmocka_unit_test(nobody_is_refused_for_holes_upstream),
        cmocka_unit_test(a_capture_keeps_its_chunks),
        cmocka_unit_test(what_is_set_aside_stays),
        cmocka_unit_test(a_chunk_of_too_many_streams_stays),
        cmocka_unit_test(what_is_known_goes_upstream_too),
        cmocka_unit_test(no_more_goes_upstream_than_is_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
