/* test_pool_classes.c - how large a pool's blocks are: of one size for all requests of
 * a class while the pool has room, of whole grains where it has none; and what was
 * asked for is not forgotten over that. And which classes a full cache keeps. */
#include "internal.h"
#include "resource_parts.h"
#include "support_actor.h"
#include "weir/limiting.h"

#define SMALL ((size_t)256)
#define LEAST (5 * SMALL) /* of a class, */
#define MOST  (8 * SMALL) /* and the most */

/* No more to spare than the part that a class is wide; and one size, of one bin, is so
 * for all of it. */
static void a_class_has_one_bin_and_one_size(void **state)
{
    (void)state;
    for (uint32_t grains = 1; grains <= WEIR__CLASSED_GRAINS; grains++) {
        uint32_t up = weir__class_up(grains, WEIR__SPARE_MOST);
        must(up >= grains && up - grains <= WEIR__SPARE_MOST);
        must(grains > WEIR__SMALL_BINS || up == grains);
        must((up - grains) << WEIR__CLASS_BITS < grains);
        must(weir__cache_bin_index(up) == weir__cache_bin_index(grains));
        must(up == WEIR__CACHED_GRAINS ||
             weir__cache_bin_index(up + 1) == weir__cache_bin_index(up) + 1);
        must(weir__class_up(up, WEIR__SPARE_MOST) == up);
        must(weir__class_up(grains, 0) == grains);
    }
    must(weir__class_up(WEIR__CLASSED_GRAINS + 1, WEIR__SPARE_MOST) ==
         WEIR__CLASSED_GRAINS + 1);
    must(weir__class_up(UINT32_MAX, WEIR__SPARE_MOST) == UINT32_MAX);
}

/* Which a hit finds by the request alone, before it knows how large its blocks are; and
 * what is too large for any is led to the last. */
static void a_request_finds_the_bin_of_what_it_gets(void **state)
{
    (void)state;
    for (uint32_t grains = 1; grains <= 3 * WEIR__CACHED_GRAINS; grains++) {
        const size_t index = weir__cache_bin_index(grains);
        const uint32_t up = weir__class_up(grains, WEIR__SPARE_MOST);
        must(weir__cache_bin_index(up) == index);
        must(grains > WEIR__CACHED_GRAINS ||
             weir__cache_index_above(grains - 1) == index);
        must(grains < WEIR__CACHED_GRAINS || index == WEIR__BINS - 1);
        must(index < WEIR__BINS);
    }
    must(weir__cache_bin_index(UINT32_MAX) == WEIR__BINS - 1);
}

static void out_is(weir_resource *pool, size_t whole)
{
    weir_resource_statistics s = statistics_of(pool);
    must_equal(s.held_bytes - s.free_bytes, whole);
}

static weir_block found(weir_resource *pool, const void *ptr)
{
    weir_block block = { .struct_size = sizeof block };
    must_ok(weir_resource_find(pool, ptr, &block));
    return block;
}

static void must_refuse_others(weir_resource *pool, weir_stream stream, void *ptr,
                               size_t bytes)
{
    for (size_t other = 1; other <= 2 * MOST; other++) {
        if (other == bytes)
            continue;
        misuse_log log;
        misuse_begin(&log);
        must(!weir_deallocate(pool, stream, ptr, other, WEIR_ALIGNMENT));
        misuse_end();
        must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, ptr);
        if (other % SMALL == 2 && bytes % SMALL != 2) /* all of a grain are alike */
            other += SMALL - 4;
    }
}

/* The block goes round, whatever of its class is asked for; and with each turn only
 * what was asked for comes back. */
static void a_block_serves_its_class(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    weir_stream s = it.streams[0];
    void *first = take(it.pool, s, LEAST);
    give(it.pool, s, first, LEAST);
    for (size_t bytes = MOST; bytes > LEAST - SMALL; bytes -= SMALL / 2) {
        void *ptr = take(it.pool, s, bytes);
        must(ptr == first);
        must_equal(found(it.pool, ptr).bytes, bytes);
        must_equal(statistics_of(it.pool).out_bytes, bytes);
        out_is(it.pool, MOST);
        must_refuse_others(it.pool, s, ptr, bytes);
        give(it.pool, s, ptr, bytes);
        must_equal(cached_in(it.pool).bytes, MOST);
    }
    void *aligned;
    must_ok(weir_allocate(it.pool, s, LEAST, 4096, &aligned));
    out_is(it.pool, MOST);
    weir_thread_flush();
    must_equal(found(it.pool, aligned).bytes, LEAST);
    must_ok(weir_stream_sync(it.device, s));
    must(weir_deallocate(it.pool, s, aligned, LEAST, 4096));
    out_is(it.pool, 0);
    close_scene(&it);
}

/* Of a chunk that is all there will be nothing is spared. */
static void what_is_short_is_exact(void **state)
{
    (void)state;
    pool_scene it = open_scene(0, 3 * LEAST, 3 * LEAST, 0);
    void *ptrs[3];
    for (int i = 0; i < 3; i++)
        ptrs[i] = take(it.pool, it.streams[0], LEAST);
    out_is(it.pool, 3 * LEAST);
    for (int i = 0; i < 3; i++)
        give(it.pool, it.streams[0], ptrs[i], LEAST);
    close_scene(&it);
}

/* Who wants it so has nothing to spare anywhere. */
static void what_is_to_be_exact_is(void **state)
{
    (void)state;
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 64 * MIB);
    weir_resource *leaf = open_leaf(it.device);
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.exact = true;
    must_ok(weir_pool_create(leaf, &options, &it.pool));
    weir_resource_unref(leaf);
    for (size_t bytes = LEAST; bytes < MOST; bytes += SMALL) {
        void *ptr = take(it.pool, it.streams[0], bytes);
        out_is(it.pool, bytes);
        give(it.pool, it.streams[0], ptr, bytes);
        weir_thread_flush();
        out_is(it.pool, 0);
    }
    close_scene(&it);
}

/* Nobody is refused for what would only be spare. */
static void what_is_refused_with_spare_is_had_without(void **state)
{
    (void)state;
    const size_t bytes = MOST - SMALL;
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 64 * MIB);
    weir_resource *leaf = open_leaf(it.device), *upstream;
    must_ok(weir_limiting_create(leaf, bytes, &upstream));
    weir_resource_unref(leaf);
    it.pool = open_pool(upstream, 0, 0, SMALL);
    void *ptr = take(it.pool, it.streams[0], bytes);
    out_is(it.pool, bytes);
    give(it.pool, it.streams[0], ptr, bytes);
    close_scene(&it);
}

static void keeps(weir_resource *pool, size_t count, size_t bytes)
{
    cached_memory cached = cached_in(pool);
    must_equal(cached.blocks, count);
    must_equal(cached.bytes, bytes);
}

/* A small block takes the place of one of two large ones; a large one that of none. */
static void room_is_made_by_who_has_much(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 2 * MOST);
    blocks large = { it.pool, it.streams[0], MOST, 3, { NULL } };
    void *small = take(it.pool, it.streams[0], SMALL);
    take_blocks(&large);
    for (int i = 0; i < 2; i++)
        give(it.pool, it.streams[0], large.ptrs[i], MOST);
    keeps(it.pool, 2, 2 * MOST);
    give(it.pool, it.streams[0], small, SMALL);
    keeps(it.pool, 2, MOST + SMALL);
    give(it.pool, it.streams[0], large.ptrs[2], MOST);
    keeps(it.pool, 2, MOST + SMALL);
    close_scene(&it);
}

/* Who gives back and gives back on a stream, and asks for nothing there, has no use for
 * what is kept of it: after a few for which room is made, all goes whenever that is
 * full, until he asks for something again. */
static void room_is_for_who_asks_as_well(void **state)
{
    (void)state;
    enum { GIVEN = 16 };
    const size_t full = 4 * MOST;
    for (int asks = 0; asks < 3; asks++) { /* not at all, elsewhere, and here: a hit */
        pool_scene it = open_cached(0, full);
        weir_stream s = it.streams[0], t = it.streams[asks == 2 ? 0 : 1];
        const size_t bytes = asks == 2 ? MOST : SMALL;
        blocks first = { it.pool, s, MOST, 4, { NULL } };
        blocks more = { it.pool, s, MOST, GIVEN, { NULL } };
        take_blocks(&first);
        take_blocks(&more);
        give_blocks(&first);
        uint32_t made = 0, gone = 0;
        for (size_t i = 0; i < GIVEN; i++) {
            if (asks != 0)
                give(it.pool, t, take(it.pool, t, bytes), bytes);
            const bool wants = cached_in(it.pool).most_bytes == full;
            give(it.pool, s, more.ptrs[i], MOST);
            const size_t left = cached_in(it.pool).most_bytes;
            made += wants && left >= MOST && left < full;
            gone += wants && left < MOST;
        }
        must(asks == 2 ? made > WEIR__POUR_AFTER : made == WEIR__POUR_AFTER);
        must(asks == 2 ? gone == 0 : gone > 1);
        more.count = 5;
        take_blocks(&more);
        give_blocks(&more);
        must(cached_in(it.pool).most_bytes >= MOST);
        close_scene(&it);
    }
}

/* One that nobody asks for any more is in the way of others, but not for ever. */
static void what_nobody_wants_goes_in_the_end(void **state)
{
    (void)state;
    const size_t half = MOST / 2;
    pool_scene it = open_cached(0, MOST);
    weir_stream s = it.streams[0];
    give(it.pool, s, take(it.pool, s, 4 * MOST), 4 * MOST); /* to the heap */
    give(it.pool, s, take(it.pool, s, MOST), MOST);
    keeps(it.pool, 1, MOST);
    for (uint32_t i = 1; i < WEIR__PASSED_MOST; i++) {
        give(it.pool, s, take(it.pool, s, half), half);
        keeps(it.pool, 1, MOST);
    }
    give(it.pool, s, take(it.pool, s, half), half);
    keeps(it.pool, 0, 0);
    give(it.pool, s, take(it.pool, s, half), half);
    keeps(it.pool, 1, half);
    close_scene(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_class_has_one_bin_and_one_size),
        cmocka_unit_test(a_request_finds_the_bin_of_what_it_gets),
        cmocka_unit_test(a_block_serves_its_class),
        cmocka_unit_test(what_is_short_is_exact),
        cmocka_unit_test(what_is_to_be_exact_is),
        cmocka_unit_test(what_is_refused_with_spare_is_had_without),
        cmocka_unit_test(room_is_made_by_who_has_much),
        cmocka_unit_test(room_is_for_who_asks_as_well),
        cmocka_unit_test(what_nobody_wants_goes_in_the_end),
    };
    return cmocka_run_group_tests_name("how large blocks are", tests, NULL, NULL);
}
