/* test_pool_place.c - where a pool cuts what several streams have left: a large stretch
 * at its beginning, so that what is free serves large requests, too. */
#include "pool_internal.h"
#include "resource_parts.h"
#include "support_pool.h"
#include "weir/growable.h"

static pool_scene open_with_slack(weir_emulated_scheduler scheduler, bool extends,
                                  size_t growth_bytes, size_t slack_bytes)
{
    pool_scene it = open_scene_without_pool(scheduler, 256 * MIB);
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = growth_bytes;
    options.slack_bytes = slack_bytes;
    weir_resource *leaf;
    if (extends)
        must_ok(weir_growable_create(it.device, NULL, &leaf));
    else
        leaf = open_leaf(it.device);
    must_ok(weir_pool_create(leaf, &options, &it.pool));
    weir_resource_unref(leaf);
    return it;
}

static pool_scene open_over(weir_emulated_scheduler scheduler, bool extends,
                            size_t growth_bytes)
{
    return open_with_slack(scheduler, extends, growth_bytes, WEIR_POOL_NO_SLACK);
}

static size_t held(const pool_scene *it)
{
    return statistics_of(it->pool).held_bytes;
}

/* ---- one stretch of several streams ---- */

#define PARTS      16
#define PART_BYTES (256 * KIB)

/* All of one chunk, each part left by another stream than its neighbours. */
static char *leave_parts(pool_scene *it)
{
    void *parts[PARTS];
    for (int i = 0; i < PARTS; i++)
        parts[i] = take_on(it, i % STREAMS, PART_BYTES);
    for (int i = 0; i < PARTS; i++)
        give_on(it, i % STREAMS, parts[i], PART_BYTES);
    return parts[0];
}

/* The stream has parts of its own in the middle: there the stretch would be cut in
 * two. */
static void a_large_stretch_is_cut_at_its_beginning(void **state)
{
    (void)state;
    const size_t all = PARTS * PART_BYTES, small = 128 * KIB;
    pool_scene it = open_over(WEIR_EMULATED_STEPPED, false, all);
    char *begin = leave_parts(&it);
    must(take_on(&it, 2, small) == begin);
    must_equal(waits(&it), 1);
    must(take_on(&it, 3, all - small) == begin + small);
    must_equal(held(&it), all);
    give_on(&it, 2, begin, small);
    give_on(&it, 3, begin + small, all - small);
    close_scene(&it);
}

/* Whose own part the beginning is waits for nobody. */
static void who_is_at_the_beginning_waits_for_nobody(void **state)
{
    (void)state;
    const size_t all = PARTS * PART_BYTES;
    pool_scene it = open_over(WEIR_EMULATED_STEPPED, false, all);
    char *begin = leave_parts(&it);
    must(take_on(&it, 0, PART_BYTES) == begin);
    must_equal(waits(&it), 0);
    give_on(&it, 0, begin, PART_BYTES);
    close_scene(&it);
}

/* What lies in front of an aligned block stays as it was, of several streams: whose the
 * first of it is takes no more than that without a wait. */
static void what_is_in_front_of_an_aligned_block_stays_apart(void **state)
{
    (void)state;
    const size_t all = PARTS * PART_BYTES;
    pool_scene it = open_over(WEIR_EMULATED_STEPPED, false, all);
    char *begin = leave_parts(&it);
    must((uintptr_t)begin % MIB == 0);
    void *first = take_on(&it, 0, PART_BYTES), *aligned;
    must(first == begin);
    for (int i = 1; i < STREAMS; i++)
        must_ok(weir_stream_wait(it.device, it.streams[0], it.streams[i]));
    must_ok(weir_allocate(it.pool, it.streams[0], PART_BYTES, MIB, &aligned));
    must(aligned == begin + MIB);
    uint64_t before = waits(&it);
    must(take_on(&it, 1, 2 * PART_BYTES) == begin + PART_BYTES);
    must_equal(waits(&it), before + 1);
    give_on(&it, 0, first, PART_BYTES);
    give_on(&it, 1, begin + PART_BYTES, 2 * PART_BYTES);
    must(weir_deallocate(it.pool, it.streams[0], aligned, PART_BYTES, MIB));
    close_scene(&it);
}

/* And what of its own block lies in front of it is not the last one's. */
static void what_is_in_front_after_a_wait_is_not_the_last_ones(void **state)
{
    (void)state;
    const size_t small = 64 * KIB;
    pool_scene it = open_over(WEIR_EMULATED_STEPPED, false, PARTS * PART_BYTES);
    char *begin = leave_parts(&it);
    void *first = take_on(&it, 0, small), *aligned;
    must(first == begin);
    must_ok(weir_allocate(it.pool, it.streams[2], PART_BYTES, 2 * small, &aligned));
    must(aligned == begin + 2 * small);
    uint64_t before = waits(&it);
    must(take_on(&it, 1, small) == begin + small);
    must_equal(waits(&it), before + 1);
    give_on(&it, 0, first, small);
    give_on(&it, 1, begin + small, small);
    must(weir_deallocate(it.pool, it.streams[2], aligned, PART_BYTES, 2 * small));
    close_scene(&it);
}

/* What is small against the pool is cut where the stream has something in it: nobody
 * waits. */
static void a_small_stretch_is_cut_anywhere(void **state)
{
    (void)state;
    pool_scene it = open_over(WEIR_EMULATED_STEPPED, false, PARTS * PART_BYTES);
    void *parts[PARTS];
    for (int i = 0; i < PARTS; i++)
        parts[i] = take_on(&it, i % STREAMS, PART_BYTES);
    give_on(&it, 0, parts[4], PART_BYTES);
    give_on(&it, 1, parts[5], PART_BYTES);
    must(take_on(&it, 1, 128 * KIB) == parts[5]);
    must_equal(waits(&it), 0);
    parts[4] = NULL;
    give_on(&it, 1, parts[5], 128 * KIB);
    for (int i = 0; i < PARTS; i++)
        if (i != 4 && i != 5)
            give_on(&it, i % STREAMS, parts[i], PART_BYTES);
    close_scene(&it);
}

/* Who takes what another has left, even at once and without a wait, wants it: what is
 * left from then on gets events. */
static void what_is_placed_at_once_was_wanted(void **state)
{
    (void)state;
    pool_scene it = open_over(WEIR_EMULATED_STEPPED, false, PARTS * PART_BYTES);
    const weir__pool *pool = it.pool->self;
    void *parts[PARTS];
    for (int i = 0; i < PARTS; i++)
        parts[i] = take_on(&it, i % STREAMS, PART_BYTES);
    give_on(&it, 0, parts[4], PART_BYTES);
    give_on(&it, 1, parts[5], PART_BYTES);
    weir_thread_flush();
    must_ok(weir_stream_wait(it.device, it.streams[1], it.streams[0]));
    const uint64_t waited = waits(&it), looked_at = pool->looked_at;
    must(pool->wanted_at != pool->releases);
    must(take_on(&it, 1, PART_BYTES + PART_BYTES / 2) == parts[4]);
    must_equal(waits(&it), waited);
    must_equal(pool->looked_at, looked_at);
    must_equal(pool->wanted_at, pool->releases);
    give_on(&it, 1, parts[4], PART_BYTES + PART_BYTES / 2);
    for (int i = 0; i < PARTS; i++)
        if (i != 4 && i != 5)
            give_on(&it, i % STREAMS, parts[i], PART_BYTES);
    close_scene(&it);
}

/* And so it is though a smaller one is another's, whichever is met first. */
static void a_small_stretch_of_the_own_comes_first(void **state)
{
    (void)state;
    const size_t all = PARTS * PART_BYTES, small = PART_BYTES / 2;
    for (int mine = 0; mine < 2; mine++) {
        pool_scene it = open_over(WEIR_EMULATED_STEPPED, false, all);
        void *others = take_on(&it, 1 - mine, small), *a = take_on(&it, 2, small);
        void *own = take_on(&it, mine, PART_BYTES);
        void *b = take_on(&it, 2, all - 2 * PART_BYTES);
        give_on(&it, 1 - mine, others, small);
        give_on(&it, mine, own, PART_BYTES);
        weir_thread_flush();
        must(take_on(&it, mine, small / 2) == own);
        must_equal(waits(&it), 0);
        give_on(&it, mine, own, small / 2);
        give_on(&it, 2, a, small);
        give_on(&it, 2, b, all - 2 * PART_BYTES);
        close_scene(&it);
    }
}

/* Where very much is free, in pieces, others' stretches are looked at once a few blocks
 * have come back: in between what is the own is small enough. */
static void others_are_not_looked_at_each_time(void **state)
{
    (void)state;
    enum { COUNT = 400 }; /* of which half is free: 192 are looked at for each block */
    const size_t small = 64 * KIB;
    void *pieces[COUNT];
    pool_scene it = open_over(WEIR_EMULATED_STEPPED, false, PARTS * PART_BYTES);
    char *others = take_on(&it, 1, 2 * small);
    void *a = take_on(&it, 2, small), *own = take_on(&it, 0, PART_BYTES);
    for (int i = 0; i < COUNT; i++)
        pieces[i] = take_on(&it, 2, 256);
    give_on(&it, 1, others, 2 * small);
    give_on(&it, 0, own, PART_BYTES);
    for (int i = 0; i < COUNT; i += 2)
        give_on(&it, 2, pieces[i], 256);
    weir_thread_flush();
    must_ok(weir_device_sync(it.device));
    must(take_on(&it, 0, small) == others);
    must(take_on(&it, 0, small) == own);
    give_on(&it, 2, pieces[1], 256);
    weir_thread_flush();
    must(take_on(&it, 0, small) == others + small);
    give_on(&it, 0, others, small);
    give_on(&it, 0, own, small);
    give_on(&it, 0, others + small, small);
    give_on(&it, 2, a, small);
    for (int i = 3; i < COUNT; i += 2)
        give_on(&it, 2, pieces[i], 256);
    close_scene(&it);
}

/* What waits for several streams, and is done, is whole again before anybody who has
 * nothing of his own is placed. */
static void what_was_of_several_is_whole_before_it_is_placed(void **state)
{
    (void)state;
    const size_t small = 64 * KIB;
    pool_scene it = open_over(WEIR_EMULATED_STEPPED, false, PARTS * PART_BYTES);
    void *mine = take_on(&it, 0, 256);
    void *large = take_on(&it, 1, PART_BYTES), *a = take_on(&it, 2, small);
    void *both = take_on(&it, 3, 2 * small), *b = take_on(&it, 2, small);
    void *little = take_on(&it, 3, 256);
    weir_point points[2];
    give_on(&it, 1, large, PART_BYTES);
    give_on(&it, 3, little, 256);
    weir_thread_flush();
    for (int i = 0; i < 2; i++)
        must_ok(weir_point_here(it.device, it.streams[2 + i], &points[i]));
    must(weir_deallocate_after(it.pool, both, 2 * small, WEIR_ALIGNMENT, points, 2));
    must_ok(weir_device_sync(it.device));
    must(weir__pool_is_wary(it.pool->self));
    must(take_on(&it, 0, small) == both);
    give_on(&it, 0, both, small);
    give_on(&it, 0, mine, 256);
    give_on(&it, 2, a, small);
    give_on(&it, 2, b, small);
    close_scene(&it);
}

/* Where hardly more is free than one stretch may have whole, no stretch is minded: the
 * stream takes its own. */
static void a_small_pool_is_cut_anywhere(void **state)
{
    (void)state;
    const size_t all = PARTS * PART_BYTES, slack = all - PART_BYTES;
    pool_scene it = open_with_slack(WEIR_EMULATED_STEPPED, false, all, slack);
    char *begin = leave_parts(&it);
    char *own = take_on(&it, 2, PART_BYTES / 2);
    must(own != begin);
    must_equal(waits(&it), 0);
    give_on(&it, 2, own, PART_BYTES / 2);
    close_scene(&it);
}

/* The smallest stretch with room, though another's, before a large one of the own. */
static void a_small_stretch_comes_before_a_large_one(void **state)
{
    (void)state;
    pool_scene it = open_over(WEIR_EMULATED_STEPPED, false, PARTS * PART_BYTES);
    const size_t large = 12 * PART_BYTES, small = 2 * PART_BYTES;
    void *a = take_on(&it, 0, large), *b = take_on(&it, 2, PART_BYTES);
    void *c = take_on(&it, 1, small), *d = take_on(&it, 2, PART_BYTES);
    give_on(&it, 0, a, large);
    give_on(&it, 1, c, small);
    must(take_on(&it, 0, small) == c);
    must_equal(waits(&it), 1);
    must(take_on(&it, 1, large) == a);
    must_equal(held(&it), PARTS * PART_BYTES);
    give_on(&it, 0, c, small);
    give_on(&it, 1, a, large);
    give_on(&it, 2, b, PART_BYTES);
    give_on(&it, 2, d, PART_BYTES);
    close_scene(&it);
}

/* But a large one of the own, though up to twice as large, before a wait; whichever is
 * met first. */
static void a_large_stretch_of_the_own_comes_before_a_wait(void **state)
{
    (void)state;
    const size_t small = 4 * PART_BYTES, large = 6 * PART_BYTES;
    const size_t rest = (PARTS - 11) * PART_BYTES;
    for (int mine = 0; mine < 2; mine++) {
        pool_scene it = open_over(WEIR_EMULATED_STEPPED, false, PARTS * PART_BYTES);
        void *others = take_on(&it, 1 - mine, small), *a = take_on(&it, 2, PART_BYTES);
        void *own = take_on(&it, mine, large), *b = take_on(&it, 2, rest);
        give_on(&it, 1 - mine, others, small);
        give_on(&it, mine, own, large);
        must(take_on(&it, mine, 3 * PART_BYTES) == own);
        must_equal(waits(&it), 0);
        give_on(&it, mine, own, 3 * PART_BYTES);
        give_on(&it, 2, a, PART_BYTES);
        give_on(&it, 2, b, rest);
        close_scene(&it);
    }
}

/* What a capture leaves of what is done in a large stretch, behind a part that is not,
 * is others' as before. */
static void what_a_capture_leaves_is_not_its_own(void **state)
{
    (void)state;
    const size_t all = PARTS * PART_BYTES, bytes = PART_BYTES + 64 * KIB;
    pool_scene it = open_over(WEIR_EMULATED_STEPPED, false, all);
    uint64_t gate = stall(&it, 0);
    char *begin = leave_parts(&it);
    weir_thread_flush();
    for (int i = 1; i < STREAMS; i++)
        must_ok(weir_stream_sync(it.device, it.streams[i]));
    weir_capture *capture;
    void *captured;
    must_ok(weir_capture_begin(it.pool, it.streams[1], &capture));
    must_ok(weir_allocate(it.pool, it.streams[1], bytes, 2 * PART_BYTES, &captured));
    must(captured == begin + 2 * PART_BYTES);
    char *rest = begin + 2 * PART_BYTES + bytes;
    must(take_on(&it, 2, (size_t)(begin + all - rest)) == rest);
    must_equal(held(&it), all);
    must(weir_deallocate(it.pool, it.streams[1], captured, bytes, 2 * PART_BYTES));
    must_ok(weir_capture_end(capture));
    must_ok(weir_capture_release(capture, it.streams[1]));
    open_gate(&it, gate);
    give_on(&it, 2, rest, (size_t)(begin + all - rest));
    close_scene(&it);
}

/* ---- the end of what grows in place ---- */

static void what_is_free_at_the_end_is_part_of_what_grows(void **state)
{
    (void)state;
    pool_scene it = open_over(WEIR_EMULATED_STEPPED, true, 2 * MIB);
    void *a = take_on(&it, 0, MIB), *b = take_on(&it, 1, MIB);
    must_equal(held(&it), 2 * MIB);
    uint64_t gates[2] = { stall(&it, 0), stall(&it, 1) };
    give_on(&it, 0, a, MIB);
    give_on(&it, 1, b, MIB);
    void *c = take_on(&it, 2, 3 * MIB);
    must(c == a);
    must_equal(held(&it), 4 * MIB);
    must_equal(waits(&it), 2);
    /* What is left is new, and waits for neither. */
    must(take_on(&it, 3, MIB) == (char *)c + 3 * MIB);
    must_ok(weir_stream_sync(it.device, it.streams[3]));
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[2]));
    open_gate(&it, gates[0]);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[2]));
    open_gate(&it, gates[1]);
    must_ok(weir_stream_sync(it.device, it.streams[2]));
    give_on(&it, 2, c, 3 * MIB);
    give_on(&it, 3, (char *)c + 3 * MIB, MIB);
    close_scene(&it);
}

/* Where the pool had better grow than have a stream wait, the end of another's is left
 * as well. */
static void who_grows_first_does_not_wait_for_the_end(void **state)
{
    (void)state;
    pool_scene it = open_with_slack(WEIR_EMULATED_STEPPED, true, 2 * MIB, 4 * MIB);
    void *a = take_on(&it, 0, 2 * MIB);
    uint64_t gate = stall(&it, 0);
    give_on(&it, 0, a, 2 * MIB);
    void *b = take_on(&it, 1, 3 * MIB);
    must_equal(waits(&it), 0);
    must_equal(held(&it), 6 * MIB);
    must_ok(weir_stream_sync(it.device, it.streams[1])); /* not stalled with 0 */
    open_gate(&it, gate);
    give_on(&it, 1, b, 3 * MIB);
    close_scene(&it);
}

/* ---- a program ---- */

#define LIVE_MOST 512

typedef struct program {
    pool_scene *it;
    uint64_t draws;
    bool works;
    struct {
        void *ptr;
        size_t bytes;
        int stream; /* that it is freed on */
    } blocks[LIVE_MOST];
    size_t count, live, peak;
} program;

/* Each doubling from 256 bytes on as likely. */
static size_t draw_bytes(program *self, unsigned doublings)
{
    size_t least = (size_t)256 << support_random_below(&self->draws, doublings);
    return least + (size_t)support_random_below(&self->draws, least / 256) * 256;
}

static void take_one(program *self, unsigned doublings)
{
    int stream = (int)support_random_below(&self->draws, STREAMS);
    size_t bytes = draw_bytes(self, doublings);
    void *ptr = self->works ? take_on(self->it, stream, bytes)
                            : take(self->it->pool, self->it->streams[stream], bytes);
    int user = stream;
    if (support_random_below(&self->draws, 2) != 0) {
        user = (int)support_random_below(&self->draws, STREAMS);
        if (user != stream)
            must_ok(weir_stream_wait(self->it->device, self->it->streams[user],
                                     self->it->streams[stream]));
    }
    self->blocks[self->count].ptr = ptr;
    self->blocks[self->count].bytes = bytes;
    self->blocks[self->count++].stream = user;
    self->live += bytes;
    if (self->peak < self->live)
        self->peak = self->live;
}

static void give_some(program *self)
{
    size_t at = (size_t)support_random_below(&self->draws, self->count);
    void *ptr = self->blocks[at].ptr;
    size_t bytes = self->blocks[at].bytes;
    if (self->works)
        give_on(self->it, self->blocks[at].stream, ptr, bytes);
    else
        give(self->it->pool, self->it->streams[self->blocks[at].stream], ptr, bytes);
    self->live -= bytes;
    self->blocks[at] = self->blocks[--self->count];
}

/* Fills up to `live` bytes, leaves a part of it, and again: as a training step does. */
static void run_steps(program *self, int steps, size_t live, unsigned doublings)
{
    for (int step = 0; step < steps; step++) {
        while (self->live < live && self->count < LIVE_MOST)
            take_one(self, doublings);
        size_t left = (size_t)support_random_below(&self->draws, live / 4);
        while (self->live > left)
            give_some(self);
    }
    while (self->count > 0)
        give_some(self);
}

/* On a device whose work is never done, so that nothing comes for free. What one run
 * holds is a matter of luck; all of them together are not. */
static void four_streams_need_little_more_than_is_out(void **state)
{
    (void)state;
    uint64_t runs = support_bound("test_pool_place.fits", 100, 400);
    size_t held_bytes = 0, out_bytes = 0;
    for (uint64_t run = 0; run < runs; run++) {
        pool_scene it = open_over(WEIR_EMULATED_NO_WORK, true, 0);
        program all = { .it = &it, .draws = support_seed(run) };
        run_steps(&all, 24, 64 * MIB, 14);
        held_bytes += statistics_of(it.pool).peak_held_bytes;
        out_bytes += all.peak;
        close_scene(&it);
    }
    must(held_bytes <= out_bytes / 100 * 112);
}

/* The same with work on every block, and the device listening. */
static void what_is_cut_is_in_order(void **state)
{
    (void)state;
    uint64_t runs = support_bound("test_pool_place.runs", 12, 300);
    for (uint64_t run = 0; run < runs; run++) {
        bool extends = run % 2 == 0;
        pool_scene it = open_over(WEIR_EMULATED_STEPPED, extends, 256 * KIB);
        program all = { .it = &it, .draws = support_seed(run), .works = true };
        run_steps(&all, 4, 2 * MIB, 10);
        must_ok(weir_device_sync(it.device));
        must_equal(statistics_of(it.pool).free_bytes, held(&it));
        close_scene(&it);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_stretch_is_cut_at_its_beginning),
        cmocka_unit_test(who_is_at_the_beginning_waits_for_nobody),
        cmocka_unit_test(what_is_in_front_of_an_aligned_block_stays_apart),
        cmocka_unit_test(what_is_in_front_after_a_wait_is_not_the_last_ones),
        cmocka_unit_test(a_small_stretch_is_cut_anywhere),
        cmocka_unit_test(what_is_placed_at_once_was_wanted),
        cmocka_unit_test(a_small_stretch_of_the_own_comes_first),
        cmocka_unit_test(others_are_not_looked_at_each_time),
        cmocka_unit_test(what_was_of_several_is_whole_before_it_is_placed),
        cmocka_unit_test(a_small_pool_is_cut_anywhere),
        cmocka_unit_test(a_small_stretch_comes_before_a_large_one),
        cmocka_unit_test(a_large_stretch_of_the_own_comes_before_a_wait),
        cmocka_unit_test(what_a_capture_leaves_is_not_its_own),
        cmocka_unit_test(what_is_free_at_the_end_is_part_of_what_grows),
        cmocka_unit_test(who_grows_first_does_not_wait_for_the_end),
        cmocka_unit_test(four_streams_need_little_more_than_is_out),
        cmocka_unit_test(what_is_cut_is_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
