/* test_pool_room.c - a pool that has an end, a limit or what a device has: how much it
 * spends on speed goes by how much of that has never been out. */
#include "pool_internal.h"
#include "resource_parts.h"
#include "support_pool.h"

#define PART   ((size_t)16 * KIB) /* looked at */
#define WHOLE  (16 * PART)
#define BLOCK  ((size_t)4 * KIB)
#define PLENTY ((size_t)1 << 40)

/* A pool that is all there will be, with as much slack as there can be. */
static pool_scene open_whole(size_t bytes)
{
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 64 * MIB);
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.initial_bytes = options.limit_bytes = bytes;
    options.slack_bytes = PLENTY;
    weir_resource *leaf = open_leaf(it.device);
    must_ok(weir_pool_create(leaf, &options, &it.pool));
    weir_resource_unref(leaf);
    return it;
}

static bool rounds_up(const pool_scene *it)
{
    const weir__pool *pool = it->pool->self;
    return pool->spare_grains > 0;
}

/* ---- what is out ---- */

typedef struct blocks {
    void *ptrs[16 * PART / BLOCK];
    size_t count;
} blocks;

/* Takes or gives until so much is out, on stream 0. */
static void come_to(pool_scene *it, blocks *all, size_t bytes)
{
    while (all->count < bytes / BLOCK)
        all->ptrs[all->count++] = take(it->pool, it->streams[0], BLOCK);
    while (all->count > bytes / BLOCK)
        give(it->pool, it->streams[0], all->ptrs[--all->count], BLOCK);
    weir_thread_flush();
}

/* For long about as much is out. */
static void go_on(pool_scene *it, blocks *all)
{
    for (size_t i = 0; i < 4 * (sizeof all->ptrs / sizeof *all->ptrs); i++) {
        void **one = &all->ptrs[i % all->count];
        give(it->pool, it->streams[0], *one, BLOCK);
        weir_thread_flush();
        *one = take(it->pool, it->streams[0], BLOCK);
    }
}

static void blocks_are_rounded_up_once_there_is_room(void **state)
{
    (void)state;
    pool_scene it = open_whole(WHOLE);
    blocks all = { .count = 0 };
    for (size_t parts = 1; parts <= 8; parts++) {
        come_to(&it, &all, parts * PART);
        must(parts == 1 || !rounds_up(&it)); /* for all may be wanted */
    }
    go_on(&it, &all);
    must(rounds_up(&it));
    come_to(&it, &all, PART);
    come_to(&it, &all, 8 * PART); /* as before */
    must(rounds_up(&it));
    come_to(&it, &all, 11 * PART);
    must(!rounds_up(&it));
    go_on(&it, &all);
    must(rounds_up(&it));
    come_to(&it, &all, WHOLE - BLOCK);
    go_on(&it, &all);
    must(!rounds_up(&it));
    come_to(&it, &all, PART); /* what was out may be out again */
    go_on(&it, &all);
    must(!rounds_up(&it));
    (void)weir_resource_trim_sync(it.pool, WHOLE);
    go_on(&it, &all);
    must(rounds_up(&it));
    come_to(&it, &all, 0);
    close_scene(&it);
}

/* Where others have left memory that merges with nobody's, more room is needed. */
static void several_streams_need_more_room(void **state)
{
    (void)state;
    for (int streams = 1; streams <= 2; streams++) {
        pool_scene it = open_whole(WHOLE);
        blocks all = { .count = 0 };
        come_to(&it, &all, 13 * PART);
        if (streams == 2) {
            give_on(&it, 1, take_on(&it, 1, PART), PART);
            weir_thread_flush();
        }
        go_on(&it, &all);
        must_equal(rounds_up(&it), streams == 1);
        come_to(&it, &all, 0);
        close_scene(&it);
    }
}

/* ---- what is left by others ---- */

/* A stream that waits for another takes more than it needs, but no more than a part of
 * what has never been out. */
static void a_stream_takes_a_part_of_the_room(void **state)
{
    (void)state;
    enum { LEFT = 32 };
    pool_scene it = open_whole(MIB);
    void *kept = take_on(&it, 0, 256 * KIB), *of_1 = take_on(&it, 1, 512 * KIB);
    uint64_t gates[] = { stall(&it, 1), stall(&it, 2) };
    give_on(&it, 1, of_1, 512 * KIB);
    give_on(&it, 2, take_on(&it, 2, 256 * KIB), 256 * KIB); /* what was nobody's */
    weir_thread_flush();

    const uint64_t waited = waits(&it);
    void *first = take_on(&it, 0, BLOCK);
    must_equal(waits(&it), waited + 1);
    void *second = take_on(&it, 0, BLOCK);
    must_equal(waits(&it), waited + 1);
    void *again = take_on(&it, 2, 256 * KIB - LEFT * KIB);
    must_equal(waits(&it), waited + 1);
    for (int i = 0; i < 2; i++)
        open_gate(&it, gates[i]);
    give_on(&it, 2, again, 256 * KIB - LEFT * KIB);
    give_on(&it, 0, first, BLOCK);
    give_on(&it, 0, second, BLOCK);
    give_on(&it, 0, kept, 256 * KIB);
    close_scene(&it);
}

/* A pool over a device that is all there is. */
static pool_scene open_on_small_device(size_t bytes)
{
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, bytes);
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = bytes / 2;
    options.slack_bytes = PLENTY;
    weir_resource *leaf = open_leaf(it.device);
    must_ok(weir_pool_create(leaf, &options, &it.pool));
    weir_resource_unref(leaf);
    return it;
}

/* Who was refused by the device does not ask it again before waiting for others, though
 * little lies idle: of 4 MiB only the first block begins with a multiple of 2. */
static void what_is_full_is_not_asked_first(void **state)
{
    (void)state;
    enum { BEGIN = 8, MOST = 40 };
    pool_scene it = open_on_small_device(8 * MIB);
    unsigned char *ptrs[MOST];
    void *none;
    int count = 0;
    do {
        must(count < MOST);
        ptrs[count] = take_on(&it, count < BEGIN ? 1 : 0, 64 * KIB);
    } while (ptrs[count++] != ptrs[0] + 2 * MIB);
    must_equal((uintptr_t)ptrs[0] % (2 * MIB), 0);
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(it.pool, it.streams[0], 6 * MIB,
                                                  WEIR_ALIGNMENT, &none));
    uint64_t gate = stall(&it, 1);
    give_on(&it, 1, ptrs[0], 64 * KIB);
    weir_thread_flush();
    const uint64_t asked = calls_of(it.device).malloc;
    must_ok(weir_allocate(it.pool, it.streams[0], 32 * KIB, 2 * MIB, &none));
    must(none == ptrs[0]);
    must_equal(calls_of(it.device).malloc, asked);
    open_gate(&it, gate);
    must(weir_deallocate(it.pool, it.streams[0], none, 32 * KIB, 2 * MIB));
    for (int i = 1; i < count; i++)
        give_on(&it, i < BEGIN ? 1 : 0, ptrs[i], 64 * KIB);
    close_scene(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_rounded_up_once_there_is_room),
        cmocka_unit_test(several_streams_need_more_room),
        cmocka_unit_test(a_stream_takes_a_part_of_the_room),
        cmocka_unit_test(what_is_full_is_not_asked_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
