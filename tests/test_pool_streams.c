/* test_pool_streams.c - the pool on several streams and threads: who gets whose memory,
 * who is made to wait for it, and who is not. */
#include "support_pool.h"

#include "internal.h"

/* ---- what needs no wait ---- */

static void fresh_memory_is_for_all_streams(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 4 * MIB, 4 * MIB, MIB);
    void *blocks[STREAMS];
    for (int i = 0; i < STREAMS; i++)
        blocks[i] = take_on(&it, i, MIB);
    must_equal(waits(&it), 0);
    must_equal(calls_of(it.device).event_query, 0);
    for (int i = 0; i < STREAMS; i++)
        give_on(&it, i, blocks[i], MIB);
    close_scene(&it);
}

static void memory_that_is_done_is_taken_without_a_wait(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, MIB, MIB);
    void *a = take_on(&it, 0, MIB);
    give_on(&it, 0, a, MIB);
    must_ok(weir_stream_sync(it.device, it.streams[0]));
    void *b = take_on(&it, 1, MIB);
    must(b == a);
    must_equal(waits(&it), 0);
    give_on(&it, 1, b, MIB);
    close_scene(&it);
}

/* What is done, though nobody has noticed, costs one question and no wait. */
static void memory_is_asked_about_before_it_is_waited_for(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, MIB, MIB);
    void *a = take_on(&it, 0, MIB);
    give_on(&it, 0, a, MIB);
    bool more = true;
    while (more)
        must_ok(weir_emulated_step(it.device, &more));
    uint64_t before = calls_of(it.device).event_query;
    void *b = take_on(&it, 1, MIB);
    must(b == a);
    must_equal(calls_of(it.device).event_query, before + 1);
    must_equal(waits(&it), 0);
    give_on(&it, 1, b, MIB);
    close_scene(&it);
}

static void what_a_stream_is_behind_is_taken_without_a_wait(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, MIB, MIB);
    void *a = take_on(&it, 0, MIB);
    uint64_t gate = stall(&it, 0);
    give_on(&it, 0, a, MIB);
    must_ok(weir_stream_wait(it.device, it.streams[1], it.streams[0]));
    uint64_t before = waits(&it);
    void *b = take_on(&it, 1, MIB);
    must(b == a);
    must_equal(waits(&it), before);
    open_gate(&it, gate);
    give_on(&it, 1, b, MIB);
    close_scene(&it);
}

/* Memory that waits for nobody is preferred, also if it is the larger block; and one
 * stream's own to all others'. */
static void what_needs_no_wait_comes_first(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 8 * MIB, 8 * MIB, MIB);
    void *a = take_on(&it, 0, MIB), *wall1 = take_on(&it, 3, MIB);
    void *b = take_on(&it, 1, 2 * MIB), *wall2 = take_on(&it, 3, 4 * MIB);
    uint64_t gate = stall(&it, 0);
    give_on(&it, 0, a, MIB);
    give_on(&it, 1, b, 2 * MIB);
    must_ok(weir_stream_sync(it.device, it.streams[1]));
    void *c = take_on(&it, 2, MIB);
    must(c == b);
    must_equal(waits(&it), 0);
    give_on(&it, 2, c, MIB);

    /* Now one MiB each is 0's, 1's and 2's; and 2's own is there for it. */
    void *d = take_on(&it, 2, MIB);
    must(d == b);
    void *e = take_on(&it, 2, MIB);
    must(e == (char *)b + MIB);
    must_equal(waits(&it), 0);
    void *f = take_on(&it, 2, MIB);
    must(f == a);
    must_equal(waits(&it), 1);
    open_gate(&it, gate);
    give_on(&it, 2, d, MIB);
    give_on(&it, 2, e, MIB);
    give_on(&it, 2, f, MIB);
    give_on(&it, 3, wall1, MIB);
    give_on(&it, 3, wall2, 4 * MIB);
    close_scene(&it);
}

/* ---- what needs one ---- */

static void the_taker_waits_for_the_donor(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, MIB, MIB);
    void *a = take_on(&it, 0, MIB);
    uint64_t gate = stall(&it, 0);
    give_on(&it, 0, a, MIB);
    void *b = take(it.pool, it.streams[1], MIB);
    must(b == a);
    must_equal(waits(&it), 1);
    stamp(it.device, it.streams[1], b, MIB, (uintptr_t)b);
    give_on(&it, 1, b, MIB);
    /* Once is enough: it is behind that for ever. */
    open_gate(&it, gate);
    close_scene(&it);
}

/* The rest of a block that another stream took a part of is still its donor's,
 * without a wait; and who takes it from the donor waits for the donor alone. */
static void the_remainder_stays_the_donors(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 4 * MIB, 4 * MIB);
    void *a = take_on(&it, 0, 4 * MIB);
    uint64_t gate = stall(&it, 0);
    give_on(&it, 0, a, 4 * MIB);
    void *b = take_on(&it, 1, MIB);
    uint64_t second = stall(&it, 1);
    must_equal(waits(&it), 1);
    void *c = take_on(&it, 0, MIB);
    must_equal(waits(&it), 1);
    void *d = take_on(&it, 2, 2 * MIB);
    must_equal(waits(&it), 2);
    open_gate(&it, gate);
    must_ok(weir_stream_sync(it.device, it.streams[2])); /* not stalled with 1 */
    open_gate(&it, second);
    give_on(&it, 0, c, MIB);
    give_on(&it, 1, b, MIB);
    give_on(&it, 2, d, 2 * MIB);
    close_scene(&it);
}

/* Neighbours of three streams serve a fourth, which waits for each. What is left of
 * them is behind all: the next taker is as well. */
static void neighbours_of_several_streams_are_merged(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 3 * MIB, 3 * MIB, MIB);
    void *blocks[3];
    uint64_t gates[3];
    for (int i = 0; i < 3; i++)
        blocks[i] = take_on(&it, i, MIB);
    for (int i = 0; i < 3; i++) {
        gates[i] = stall(&it, i);
        give_on(&it, i, blocks[i], MIB);
    }
    size_t bytes = 2 * MIB + 512 * KIB;
    void *b = take_on(&it, 3, bytes);
    must(b == blocks[0]);
    must_equal(waits(&it), 3);

    /* On stream 1, which must not begin before 0 and 2 are through. */
    char *rest = take_on(&it, 1, 512 * KIB);
    must(rest == (char *)b + bytes);
    open_gate(&it, gates[1]);
    open_gate(&it, gates[2]);
    weir_status status = weir_stream_sync(it.device, it.streams[1]);
    must(status == WEIR_DEVICE_ERROR); /* it waits for 0, which is stalled */
    open_gate(&it, gates[0]);
    must_ok(weir_stream_sync(it.device, it.streams[1]));
    give_on(&it, 1, rest, 512 * KIB);
    give_on(&it, 3, b, bytes);
    close_scene(&it);
}

/* The remainder of a merge does not wait for what the taker does with its part. */
static void the_rest_of_a_merge_is_free_of_what_comes_later(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 2 * MIB, 2 * MIB, MIB);
    void *a = take_on(&it, 0, MIB), *b = take_on(&it, 1, MIB);
    give_on(&it, 0, a, MIB);
    give_on(&it, 1, b, MIB);
    must(take_on(&it, 2, MIB + 512 * KIB) == a);
    uint64_t gate = stall(&it, 2);
    void *rest = take_on(&it, 3, 512 * KIB);
    must_ok(weir_stream_sync(it.device, it.streams[3]));
    open_gate(&it, gate);
    give_on(&it, 3, rest, 512 * KIB);
    give_on(&it, 2, a, MIB + 512 * KIB);
    close_scene(&it);
}

/* rmm#2489: a request that cannot be served leaves no wait behind and merges nothing,
 * so the next taker waits for the true last use. */
static void what_is_refused_waits_for_nothing(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, MIB, MIB, MIB);
    void *x = take_on(&it, 0, MIB);
    uint64_t gate = stall(&it, 0);
    stamp(it.device, it.streams[0], x, MIB, 0xAA);
    give(it.pool, it.streams[0], x, MIB);

    (void)try_take(&it, 1, 2 * MIB, WEIR_LIMIT_REACHED);
    must_equal(waits(&it), 0);
    must_ok(weir_stream_sync(it.device, it.streams[1]));
    must_equal(statistics_of(it.pool).largest_free_bytes, MIB);

    void *y = take(it.pool, it.streams[2], MIB);
    must(y == x);
    stamp(it.device, it.streams[2], y, MIB, 0xCC);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[2]));
    open_gate(&it, gate);
    must_ok(weir_stream_sync(it.device, it.streams[2]));
    check_stamp(it.device, it.streams[2], y, MIB, 0xCC);
    give(it.pool, it.streams[2], y, MIB);
    close_scene(&it);
}

/* A chunk that upstream handed out in stream order is the asking stream's. */
static void a_fresh_chunk_belongs_to_who_drew_it(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 4 * MIB, 4 * MIB);
    weir_resource *outer = open_pool(weir_resource_ref(it.pool), 0, 0, 4 * MIB);
    void *x = take_on(&it, 0, 4 * MIB);
    uint64_t gate = stall(&it, 0);
    give_on(&it, 0, x, 4 * MIB);

    void *a = take(outer, it.streams[0], MIB);
    must(a == x);
    void *b = take(outer, it.streams[1], MIB);
    must_equal(waits(&it), 1);
    stamp(it.device, it.streams[1], b, MIB, 1);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[1]));
    open_gate(&it, gate);
    give(outer, it.streams[0], a, MIB);
    give(outer, it.streams[1], b, MIB);
    weir_resource_unref(outer);
    close_scene(&it);
}

/* ---- behind points ---- */

static weir_point point_of(pool_scene *it, int stream)
{
    weir_point point;
    must_ok(weir_point_here(it->device, it->streams[stream], &point));
    return point;
}

static void a_block_freed_behind_points_waits_for_all(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, MIB, MIB);
    void *a = take_on(&it, 0, MIB);
    uint64_t gates[3];
    for (int i = 1; i < 3; i++)
        must_ok(weir_stream_wait(it.device, it.streams[i], it.streams[0]));
    for (int i = 0; i < 3; i++) {
        gates[i] = stall(&it, i);
        check_stamp(it.device, it.streams[i], a, MIB, (uintptr_t)a);
    }
    weir_point points[4];
    for (int i = 0; i < 3; i++)
        points[i] = point_of(&it, i);
    points[3] = points[0];
    must(weir_deallocate_after(it.pool, a, MIB, WEIR_ALIGNMENT, points, 4));
    weir_resource_statistics s = statistics_of(it.pool);
    must_equal(s.free_blocks, 1);
    must_equal(s.largest_free_bytes, MIB);

    uint64_t before = waits(&it);
    void *b = take_on(&it, 3, MIB);
    must(b == a);
    must_equal(waits(&it), before + 3);
    for (int i = 0; i < 3; i++) {
        must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[3]));
        open_gate(&it, gates[i]);
    }
    must_ok(weir_stream_sync(it.device, it.streams[3]));

    /* All of them done, or none: for everybody, at once. */
    check_stamp(it.device, it.streams[3], b, MIB, (uintptr_t)b);
    points[0] = point_of(&it, 3);
    for (int i = 0; i < 4; i++)
        must_ok(weir_point_sync(it.device, points[i]));
    must(weir_deallocate_after(it.pool, b, MIB, WEIR_ALIGNMENT, points, 4));
    before = waits(&it);
    b = take_on(&it, 1, MIB);
    must_ok(weir_stream_sync(it.device, it.streams[1]));
    must(weir_deallocate_after(it.pool, b, MIB, WEIR_ALIGNMENT, NULL, 0));
    b = take_on(&it, 2, MIB);
    must_equal(waits(&it), before);
    give_on(&it, 2, b, MIB);
    close_scene(&it);
}

/* Of a block that waits for two streams one takes a part that is behind both, and that
 * Weir does not know: nobody can ask it for an event later, so the rest has one. */
static void the_rest_of_what_waits_for_several_can_be_waited_for(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 64 * KIB, 64 * KIB);
    weir_stream unknown;
    must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &unknown));
    void *a = take_on(&it, 0, 64 * KIB);
    must_ok(weir_stream_wait(it.device, it.streams[1], it.streams[0]));
    uint64_t gates[2] = { stall(&it, 0), stall(&it, 1) };
    weir_point points[2] = { point_of(&it, 0), point_of(&it, 1) };
    for (int i = 0; i < 2; i++)
        must_ok(weir_stream_wait_point(it.device, unknown, points[i]));
    must(weir_deallocate_after(it.pool, a, 64 * KIB, WEIR_ALIGNMENT, points, 2));
    uint64_t before = waits(&it);
    void *b = take(it.pool, unknown, 16 * KIB);
    must_equal(waits(&it), before);
    void *c = take_on(&it, 2, 48 * KIB);
    must_equal(waits(&it), before + 1);
    for (int i = 0; i < 2; i++)
        open_gate(&it, gates[i]);
    give(it.pool, unknown, b, 16 * KIB);
    give_on(&it, 2, c, 48 * KIB);
    must_ok(weir_device_sync(it.device));
    must_ok(weir_emulated_stream_destroy(it.device, unknown));
    close_scene(&it);
}

/* Free memory of more streams than a search looks at one by one goes to all, but
 * only what is known to be done. */
static void what_many_streams_left_is_gathered_when_it_is_done(void **state)
{
    (void)state;
    enum { MANY = 8 };
    pool_scene it = open_scene(1, 0, MANY * MIB, MIB);
    weir_stream many[MANY];
    uint64_t gates[MANY];
    void *blocks[MANY];
    for (int i = 0; i < MANY; i++) {
        many[i] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        blocks[i] = take(it.pool, many[i], MIB);
    }
    for (int i = 0; i < MANY; i++) {
        must_ok(weir_emulated_stall(it.device, many[i], &gates[i]));
        stamp(it.device, many[i], blocks[i], MIB, 1);
        give(it.pool, many[i], blocks[i], MIB);
    }
    uint64_t before = waits(&it);
    void *a = take_on(&it, 0, MIB);
    must_equal(waits(&it), before + 1);
    for (int i = 0; i < MANY; i++) {
        open_gate(&it, gates[i]);
        must_ok(weir_stream_sync(it.device, many[i]));
    }
    void *b = take_on(&it, 1, MIB);
    void *c = take_on(&it, 2, MIB);
    must_equal(waits(&it), before + 1);
    give_on(&it, 0, a, MIB);
    give_on(&it, 1, b, MIB);
    give_on(&it, 2, c, MIB);
    for (int i = 0; i < MANY; i++)
        end_stream(it.device, many[i]);
    close_scene(&it);
}

/* Points that become done while the block waits in limbo are dropped one by one; the
 * block merges with its neighbours again, and can be trimmed. */
static void what_is_in_limbo_settles(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 4 * MIB, 2 * MIB);
    void *a = take_on(&it, 0, MIB), *b = take_on(&it, 0, MIB);
    must_ok(weir_stream_wait(it.device, it.streams[1], it.streams[0]));
    check_stamp(it.device, it.streams[1], a, MIB, (uintptr_t)a);
    weir_point points[2] = { point_of(&it, 0), point_of(&it, 1) };
    must(weir_deallocate_after(it.pool, a, MIB, WEIR_ALIGNMENT, points, 2));
    give_on(&it, 0, b, MIB);
    must_equal(statistics_of(it.pool).free_blocks, 2);
    must_ok(weir_point_sync(it.device, points[1]));
    (void)try_take(&it, 0, 5 * MIB, WEIR_LIMIT_REACHED);
    must_equal(statistics_of(it.pool).free_blocks, 1);
    must_equal(statistics_of(it.pool).held_bytes, 2 * MIB); /* not for nothing */
    void *c = take_on(&it, 0, 2 * MIB);
    must(c == a);
    points[0] = point_of(&it, 0);
    points[1] = point_of(&it, 1);
    must(weir_deallocate_after(it.pool, c, 2 * MIB, WEIR_ALIGNMENT, points, 2));
    must_equal(weir_resource_trim_sync(it.pool, 0), 2 * MIB);
    close_scene(&it);
}

/* With no record to spare a block that waits for several points is set aside, until a
 * wait for the whole device; giving it back still needs no memory. */
static void without_records_a_block_is_set_aside(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 64 * KIB, 64 * KIB);
    weir_stream more[12];
    weir_point points[12];
    void *a = take_on(&it, 0, 64 * KIB);
    uint64_t gate = stall(&it, 0);
    for (int i = 0; i < 12; i++) {
        more[i] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        must_ok(weir_stream_wait(it.device, more[i], it.streams[0]));
        check_stamp(it.device, more[i], a, 64 * KIB, (uintptr_t)a);
        must_ok(weir_point_here(it.device, more[i], &points[i]));
    }
    weir__host_fail_at(1, true);
    must(weir_deallocate_after(it.pool, a, 64 * KIB, WEIR_ALIGNMENT, points, 12));
    weir__host_fail_at(0, false);
    must_equal(statistics_of(it.pool).set_aside_bytes, 64 * KIB);
    (void)try_take(&it, 1, KIB, WEIR_LIMIT_REACHED);
    open_gate(&it, gate);
    must_ok(weir_device_sync(it.device));
    void *b = take_on(&it, 1, 64 * KIB);
    must(b == a);
    must_equal(statistics_of(it.pool).set_aside_bytes, 0);
    give_on(&it, 1, b, 64 * KIB);
    for (int i = 0; i < 12; i++)
        end_stream(it.device, more[i]);
    close_scene(&it);
}

/* ---- captures ---- */

static void what_a_capture_has_is_its_own(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 2 * MIB, MIB);
    weir_capture *capture;
    void *wall = take_on(&it, 0, 768 * KIB);
    must_ok(weir_capture_begin(it.pool, it.streams[0], &capture));
    void *a = take(it.pool, it.streams[0], MIB);
    give(it.pool, it.streams[0], a, MIB);
    must(take(it.pool, it.streams[0], MIB) == a);
    (void)try_take(&it, 0, MIB + KIB, WEIR_LIMIT_REACHED);
    must(weir_deallocate_after(it.pool, a, MIB, WEIR_ALIGNMENT, NULL, 0));
    must(take(it.pool, it.streams[0], MIB) == a);
    give(it.pool, it.streams[0], a, MIB);
    must(take(it.pool, it.streams[0], MIB) == a);
    must(weir_deallocate_after(it.pool, a, MIB, WEIR_ALIGNMENT, NULL, 0));
    must_ok(weir_capture_end(capture));

    (void)try_take(&it, 1, MIB, WEIR_LIMIT_REACHED);
    (void)try_take(&it, 0, MIB, WEIR_LIMIT_REACHED);
    (void)try_take(&it, 1, 2 * MIB, WEIR_LIMIT_REACHED);
    must_equal(weir_resource_trim_sync(it.pool, 0), 0);
    must_ok(weir_capture_release(capture, it.streams[0]));
    void *b = take_on(&it, 1, MIB);
    must(b == a);
    give_on(&it, 1, b, MIB);
    give_on(&it, 0, wall, 768 * KIB);
    close_scene(&it);
}

/* Not even to make room for itself: a graph that is captured already runs on it. */
static void what_a_capture_has_is_not_flushed(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 2 * MIB, MIB);
    weir_capture *capture;
    must_ok(weir_capture_begin(it.pool, it.streams[0], &capture));
    void *a = take(it.pool, it.streams[0], MIB);
    give(it.pool, it.streams[0], a, MIB);
    (void)try_take(&it, 0, 2 * MIB, WEIR_LIMIT_REACHED);
    must(take(it.pool, it.streams[0], MIB) == a);
    give(it.pool, it.streams[0], a, MIB);
    must_ok(weir_capture_release(capture, it.streams[0]));
    give_on(&it, 0, take_on(&it, 0, 2 * MIB), 2 * MIB);
    close_scene(&it);
}

/* ---- threads ---- */

#define THREADS 3

typedef struct worker {
    pool_scene *it;
    int stream;
    uint64_t state;
} worker;

/* Each has at most one block at a time, and there is room for one each: whatever is on
 * its way, nobody is refused. */
static void work(void *argument)
{
    worker *self = argument;
    pool_scene *it = self->it;
    for (int i = 0; i < 6; i++) {
        int stream = (int)support_random_below(&self->state, STREAMS);
        void *ptr;
        uint64_t key = support_random(&self->state);
        must_ok(weir_allocate(it->pool, it->streams[stream], MIB, WEIR_ALIGNMENT,
                              &ptr));
        stamp(it->device, it->streams[stream], ptr, MIB, key);
        check_stamp(it->device, it->streams[stream], ptr, MIB, key);
        if (support_random_below(&self->state, 4) == 0) {
            must_ok(weir_stream_sync(it->device, it->streams[stream]));
            must(weir_deallocate_after(it->pool, ptr, MIB, WEIR_ALIGNMENT, NULL, 0));
        } else {
            give(it->pool, it->streams[stream], ptr, MIB);
        }
        if (support_random_below(&self->state, 8) == 0)
            (void)weir_resource_trim_sync(it->pool, 2 * MIB);
    }
}

static void threads_share_without_a_needless_refusal(void **state)
{
    (void)state;
    uint64_t runs = support_bound("test_pool.thread_runs", 60, 400);
    for (uint64_t run = 0; run < runs; run++) {
        pool_scene it = open_scene(support_seed(run), 0, THREADS * MIB, MIB);
        worker workers[THREADS];
        void *arguments[THREADS];
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (worker){ &it, i, support_seed_in_use() * 17 + (unsigned)i };
            arguments[i] = &workers[i];
        }
        must_ok(weir_emulated_run_threads(it.device, THREADS, work, arguments));
        weir_resource_statistics s = statistics_of(it.pool);
        must_equal(s.allocations, THREADS * 6);
        must_equal(s.failures, 0);
        must_equal(s.free_bytes, s.held_bytes);
        close_scene(&it);
    }
}

/* An event on the legacy stream would end the capture of a blocking one. */
static void legacy_stream_leaves_captures_alone(void **state)
{
    (void)state;
    weir_device *device = open_emulated(WEIR_EMULATED_STEPPED, 0);
    weir_stream a = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream b = make_stream(device, WEIR_STREAM_BLOCKING);
    weir_resource *mr;
    size_t captured;
    void *x, *y;
    must_ok(weir_resource_open(device, "pool/device", &mr));
    must_ok(weir_allocate(mr, NULL, 512, WEIR_ALIGNMENT, &x));
    stamp(device, NULL, x, 512, 1);
    must_ok(weir_emulated_capture_begin(device, b));
    must(weir_deallocate(mr, NULL, x, 512, WEIR_ALIGNMENT));
    must_answer(WEIR_CAPTURING, weir_stream_wait(device, a, NULL));
    must_answer(WEIR_CAPTURING, weir_stream_wait(device, NULL, a));
    must_ok(weir_allocate(mr, a, 512, WEIR_ALIGNMENT, &y));
    must(y != x);
    must_ok(weir_emulated_capture_end(device, b, &captured));
    must_equal(captured, 0);
    must(weir_deallocate(mr, a, y, 512, WEIR_ALIGNMENT));
    weir_resource_unref(mr);
    end_stream(device, a);
    end_stream(device, b);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_memory_is_for_all_streams),
        cmocka_unit_test(memory_that_is_done_is_taken_without_a_wait),
        cmocka_unit_test(memory_is_asked_about_before_it_is_waited_for),
        cmocka_unit_test(what_a_stream_is_behind_is_taken_without_a_wait),
        cmocka_unit_test(what_needs_no_wait_comes_first),
        cmocka_unit_test(the_taker_waits_for_the_donor),
        cmocka_unit_test(the_remainder_stays_the_donors),
        cmocka_unit_test(neighbours_of_several_streams_are_merged),
        cmocka_unit_test(the_rest_of_a_merge_is_free_of_what_comes_later),
        cmocka_unit_test(what_is_refused_waits_for_nothing),
        cmocka_unit_test(a_fresh_chunk_belongs_to_who_drew_it),
        cmocka_unit_test(a_block_freed_behind_points_waits_for_all),
        cmocka_unit_test(the_rest_of_what_waits_for_several_can_be_waited_for),
        cmocka_unit_test(what_many_streams_left_is_gathered_when_it_is_done),
        cmocka_unit_test(what_is_in_limbo_settles),
        cmocka_unit_test(without_records_a_block_is_set_aside),
        cmocka_unit_test(what_a_capture_has_is_its_own),
        cmocka_unit_test(what_a_capture_has_is_not_flushed),
        cmocka_unit_test(threads_share_without_a_needless_refusal),
        cmocka_unit_test(legacy_stream_leaves_captures_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
