/* test_hits_large.c - what is too large for any stack: it takes one lock each way, or
 * none where it has the size of what was freed right before. */
#include "resource_parts.h"
#include "stream_order.h"
#include "support_hits.h"

/* What is in no stack takes one lock each way, and nothing else, where others may want
 * it or the cache has no room for it. */
static void what_is_large_takes_one_lock(void **state)
{
    (void)state;
    pool_scene it = open_quiet_scene();
    for (int i = 0; i < WARM_ROUNDS; i++)
        run_on(&it, 0, 2 * LARGEST, 1);
    for (int round = 0; round < 2; round++) {
        counts before = counts_here(&it);
        void *ptr = take(it.pool, it.streams[0], 2 * LARGEST);
        before.locks++;
        must_have_counted_nothing(&it, &before);
        give(it.pool, it.streams[0], ptr, 2 * LARGEST);
        before.locks++;
        must_have_counted_nothing(&it, &before);
        reopen_cached(&it, 2 * LARGEST - WEIR_ALIGNMENT);
        for (int i = 0; i < QUIET_ROUNDS; i++)
            run_on(&it, 0, 2 * LARGEST, 1);
    }
    close_scene(&it);
}

/* Else it waits for a request of its size, as long as nothing else is missed; and few
 * do. */
static void what_is_large_waits_for_its_size(void **state)
{
    (void)state;
    const size_t large = 2 * LARGEST, larger = 3 * LARGEST, third = 4 * LARGEST;
    pool_scene it = open_quiet_scene();
    weir_stream stream = it.streams[0];
    for (int i = 0; i < QUIET_ROUNDS; i++) {
        run_on(&it, 0, large, 2);
        run_on(&it, 0, larger, 1);
        run_on(&it, 0, third, 1);
    }
    char *a = take(it.pool, stream, large), *b = take(it.pool, stream, larger);
    char *c = take(it.pool, stream, third);
    counts before = counts_here(&it);
    give(it.pool, stream, a, large);
    give(it.pool, stream, b, larger);
    for (int i = 0; i < 3; i++) {
        must(take(it.pool, stream, large) == a);
        must(take(it.pool, stream, larger) == b);
        give(it.pool, stream, b, larger);
        give(it.pool, stream, a, large);
    }
    must_have_counted_nothing(&it, &before);
    must_be_refused(&it, a, large, WEIR_ALIGNMENT, WEIR_MISUSE_DOUBLE_FREE);
    must_be_refused(&it, b, larger, WEIR_ALIGNMENT, WEIR_MISUSE_DOUBLE_FREE);
    uint64_t locks = counts_here(&it).locks;
    give(it.pool, stream, c, third); /* there are WEIR__SPILL_MOST - 1 already */
    must_equal(counts_here(&it).locks, locks + 1);
    c = take(it.pool, stream, large - WEIR_ALIGNMENT);
    must_equal(counts_here(&it).locks, locks + 2);
    char *d = take(it.pool, stream, larger); /* what waited is free now */
    must_equal(counts_here(&it).locks, locks + 3);
    give(it.pool, stream, c, large - WEIR_ALIGNMENT);
    give(it.pool, stream, d, larger);
    close_scene(&it);
}

/* It is of the stream on which it was handed out last. */
static void what_waited_is_of_its_stream(void **state)
{
    (void)state;
    pool_scene it = open_quiet_scene();
    for (int i = 0; i < QUIET_ROUNDS; i++)
        run_on(&it, 0, 2 * LARGEST, 1);
    void *a = take(it.pool, it.streams[1], 2 * LARGEST);
    for (int i = 0; i < QUIET_ROUNDS; i++) /* nobody has missed anything since */
        run_on(&it, 0, 3 * LARGEST, 1);
    give(it.pool, it.streams[0], a, 2 * LARGEST);
    const uint64_t locks = counts_here(&it).locks;
    must(take(it.pool, it.streams[0], 2 * LARGEST) == a);
    must_equal(counts_here(&it).locks, locks);
    weir_block block = { .struct_size = sizeof block };
    must_ok(weir_resource_find(it.pool, a, &block));
    must(block.stream == it.streams[0]);
    give(it.pool, it.streams[0], a, 2 * LARGEST);
    close_scene(&it);
}

/* Once a stream has wanted more than its own, what is large is free for it at once:
 * also if the thread had nothing to settle at its next miss. */
static void what_is_wanted_does_not_wait(void **state)
{
    (void)state;
    const size_t large = 2 * LARGEST, larger = 3 * LARGEST;
    pool_scene it = open_quiet_scene();
    weir_stream stream = it.streams[0];
    for (int i = 0; i < QUIET_ROUNDS; i++)
        run_on(&it, 0, large, 1);
    void *a = take(it.pool, stream, large);
    void *other = take(it.pool, it.streams[1], 4 * LARGEST);
    void *b = take(it.pool, stream, larger);
    const uint64_t locks = counts_here(&it).locks;
    give(it.pool, stream, a, large);
    must(counts_here(&it).locks > locks);
    give(it.pool, stream, b, larger);
    give(it.pool, it.streams[1], other, 4 * LARGEST);
    close_scene(&it);
}

/* Nor if what waited was taken away for it. */
static void what_was_wanted_does_not_wait(void **state)
{
    (void)state;
    const size_t large = 2 * LARGEST, larger = 3 * LARGEST;
    pool_scene it = open_quiet_scene();
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.slack_bytes = WEIR_POOL_NO_SLACK;
    reopen_as(&it, &options);
    weir_stream stream = it.streams[0];
    for (int i = 0; i < QUIET_ROUNDS; i++) {
        run_on(&it, 0, large, 1);
        run_on(&it, 0, larger, 1);
    }
    void *a = take(it.pool, stream, large), *b = take(it.pool, stream, larger);
    uint64_t locks = counts_here(&it).locks;
    give(it.pool, stream, b, larger);
    must_equal(counts_here(&it).locks, locks);
    void *other = take(it.pool, it.streams[1], 16 * MIB);
    locks = counts_here(&it).locks;
    give(it.pool, stream, a, large);
    must(counts_here(&it).locks > locks);
    give(it.pool, it.streams[1], other, 16 * MIB);
    close_scene(&it);
}

/* Where a pool is short what waits makes way for what is small, which stays. */
static void what_waits_drives_nothing_out(void **state)
{
    (void)state;
    const size_t large = 2 * LARGEST, cache = 3 * LARGEST;
    pool_scene it = open_quiet_scene();
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.exact = true;
    options.cache_bytes = cache;
    reopen_as(&it, &options);
    for (int i = 0; i < QUIET_ROUNDS; i++) {
        run_on(&it, 0, large, 1);
        run_on(&it, 0, KIB, 2);
    }
    weir_stream stream = it.streams[0];
    void *a = take(it.pool, stream, KIB), *b = take(it.pool, stream, KIB);
    void *c = take(it.pool, stream, large), *d = take(it.pool, stream, KIB);
    counts before = counts_here(&it);
    give(it.pool, stream, c, large); /* waits */
    give(it.pool, stream, a, KIB);
    give(it.pool, stream, b, KIB);
    must_have_counted_nothing(&it, &before);
    give(it.pool, stream, d, KIB); /* the large one goes, and the three are there */
    before.locks++;
    must_have_counted_nothing(&it, &before);
    a = take(it.pool, stream, KIB);
    b = take(it.pool, stream, KIB);
    d = take(it.pool, stream, KIB);
    must_have_counted_nothing(&it, &before);
    give(it.pool, stream, a, KIB);
    give(it.pool, stream, b, KIB);
    give(it.pool, stream, d, KIB);
    close_scene(&it);
}

/* What found no stack becomes free with the next large request, which may need it:
 *     | large | spilt, 8 | out, 5 |     and all of the first two is asked for */
static void what_was_spilt_serves_what_is_large(void **state)
{
    (void)state;
    const size_t large = LARGEST + WEIR_ALIGNMENT, spilt = 8 * WEIR_ALIGNMENT,
                 rival = 5 * WEIR_ALIGNMENT;
    pool_scene it = open_exact_scene(large + spilt + rival);
    weir_stream stream = it.streams[0];

    for (int round = 0; round < QUIET_ROUNDS; round++)
        run_on(&it, 0, large, 1); /* all is the stream's own */
    char *a = take(it.pool, stream, large);
    char *b = take(it.pool, stream, spilt);
    char *c = take(it.pool, stream, rival); /* the bin is for these from now on */
    must(b == a + large && c == b + spilt);
    give(it.pool, stream, a, large);
    give(it.pool, stream, b, spilt);
    counts before = counts_here(&it);
    must(take(it.pool, stream, large + spilt) == a);
    before.locks++;
    must_have_counted_nothing(&it, &before);
    give(it.pool, stream, a, large + spilt);
    give(it.pool, stream, c, rival);
    close_scene(&it);
}

/* And one that is too large for any stack, of another stream's memory: where it was a
 * hit before it is not put into a stack, but becomes free at once. */
static void what_was_a_hit_becomes_large(void **state)
{
    (void)state;
    const size_t large = 2 * LARGEST;
    pool_scene it = open_exact_scene(large);
    char *a = warm_hit(&it, KIB);
    void *rest = take(it.pool, it.streams[0], large - KIB);
    give(it.pool, it.streams[1], a, KIB);
    give(it.pool, it.streams[1], rest, large - KIB);
    weir_thread_flush();
    must(take(it.pool, it.streams[0], large) == a);
    uint64_t locks = counts_here(&it).locks;
    give(it.pool, it.streams[0], a, large);
    must(counts_here(&it).locks > locks);
    close_scene(&it);
}

/* A free for a stream that ended hits nothing, though another has its name. */
static void what_is_of_a_clock_hits_only_there(void **state)
{
    (void)state;
    static const size_t sizes[] = { KIB, 2 * LARGEST };
    pool_scene it = open_quiet_scene();
    weir_stream stream = it.streams[0];
    uint64_t clock, other;
    must_ok(weir__order_clock(it.device->order, stream, &clock));
    must_ok(weir__order_clock(it.device->order, it.streams[1], &other));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *a = warm_hit(&it, sizes[i]);
        run_on(&it, 1, sizes[i], 1);
        must(!weir__deallocate_of(it.pool, stream, other, a, sizes[i], WEIR_ALIGNMENT));
        must(!weir__deallocate_of(it.pool, it.streams[1], clock, a, sizes[i],
                                  WEIR_ALIGNMENT));
        must(!weir__deallocate_of(it.pool, stream, clock, a, sizes[i] - 1,
                                  WEIR_ALIGNMENT));
        must_equal(statistics_of(it.pool).out_blocks, 1);
        must(weir__deallocate_of(it.pool, stream, clock, a, sizes[i], WEIR_ALIGNMENT));
        must_equal(statistics_of(it.pool).out_blocks, 0);
    }
    close_scene(&it);
}

/* Whether a request hits, misses or makes the pool grow: the default stream is null to
 * who asks later. */
static void the_default_stream_keeps_its_name(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    pool_scene it = open_quiet_scene();
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = 8 * KIB;
    reopen_as(&it, &options);
    void *all[COUNT];
    static const size_t sizes[] = { KIB, LARGEST, 2 * LARGEST };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        give(it.pool, NULL, take(it.pool, NULL, sizes[i]), sizes[i]);
        for (int k = 0; k < COUNT; k++) {
            weir_block found = { .struct_size = sizeof found };
            all[k] = take(it.pool, NULL, sizes[i]);
            must_ok(weir_resource_find(it.pool, all[k], &found));
            must(found.stream == NULL);
        }
        for (int k = 0; k < COUNT; k++)
            give(it.pool, NULL, all[k], sizes[i]);
    }
    close_scene(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_large_takes_one_lock),
        cmocka_unit_test(what_is_large_waits_for_its_size),
        cmocka_unit_test(what_waited_is_of_its_stream),
        cmocka_unit_test(what_is_wanted_does_not_wait),
        cmocka_unit_test(what_was_wanted_does_not_wait),
        cmocka_unit_test(what_waits_drives_nothing_out),
        cmocka_unit_test(what_was_spilt_serves_what_is_large),
        cmocka_unit_test(what_was_a_hit_becomes_large),
        cmocka_unit_test(what_is_of_a_clock_hits_only_there),
        cmocka_unit_test(the_default_stream_keeps_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
