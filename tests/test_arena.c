/* test_arena.c - whose arena a block is cut from and goes back to, how superblocks go
 * from one arena to another, and what is given back when. */
#include "support_pool.h"

#include <string.h>

#include "internal.h"

/* What a test build has by default. */
#define SUPERBLOCK (256 * KIB)
#define SMALL      (64 * KIB) /* the largest that is */
/* Room for one superblock, wherever upstream's memory begins, and no small block more.
 * */
#define LIMIT      (SUPERBLOCK + 64 * KIB)
#define HELD       (LIMIT - 256)

static weir_resource *open_arena(weir_resource *upstream, size_t limit_bytes)
{
    weir_arena_options options = WEIR_ARENA_OPTIONS_INIT;
    options.limit_bytes = limit_bytes;
    weir_resource *mr;
    must_ok(weir_arena_create(upstream, &options, &mr));
    weir_resource_unref(upstream);
    return mr;
}

static pool_scene open_scene_on(weir_emulated_scheduler scheduler, size_t limit_bytes)
{
    (void)support_seed(1);
    pool_scene it = open_scene_without_pool(scheduler, 128 * MIB);
    it.pool = open_arena(open_leaf(it.device), limit_bytes);
    return it;
}

static pool_scene open_arena_scene(size_t limit_bytes)
{
    return open_scene_on(WEIR_EMULATED_STEPPED, limit_bytes);
}

/* Whether `ptr` lies in the superblock that begins at `base`. */
static bool lies_in(const void *base, const void *ptr)
{
    return (uintptr_t)ptr - (uintptr_t)base < SUPERBLOCK;
}

/* Four small blocks: a superblock, from its beginning on. */
static void fill(pool_scene *it, int stream, void *blocks[4])
{
    for (int i = 0; i < 4; i++) {
        blocks[i] = take_on(it, stream, SMALL);
        must((char *)blocks[i] == (char *)blocks[0] + (size_t)i * SMALL);
    }
}

static void empty(pool_scene *it, int stream, void *blocks[4])
{
    for (int i = 0; i < 4; i++)
        give_on(it, stream, blocks[i], SMALL);
}

/* ---- options and places ---- */

static void options_are_read_back(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(1));
    static const struct {
        weir_arena_options asked, in_force;
    } cases[] = {
        { { sizeof(weir_arena_options), 0, 0, 0 },
          { sizeof(weir_arena_options), SUPERBLOCK, SIZE_MAX, 3 } },
        { { sizeof(weir_arena_options), 1, 7, 64 },
          { sizeof(weir_arena_options), 64 * KIB, 7, 64 } },
        { { sizeof(weir_arena_options), WEIR_ARENA_SUPERBLOCK_MAX - 1, 0, 1 },
          { sizeof(weir_arena_options), WEIR_ARENA_SUPERBLOCK_MAX, SIZE_MAX, 1 } },
    };
    weir_resource *leaf = open_leaf(device), *mr;
    weir_arena_options options = WEIR_ARENA_OPTIONS_INIT;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        must_ok(weir_arena_create(leaf, &cases[i].asked, &mr));
        must_ok(weir_arena_get_options(mr, &options));
        must(memcmp(&options, &cases[i].in_force, sizeof options) == 0);
        weir_resource_unref(mr);
    }
    options = (weir_arena_options)WEIR_ARENA_OPTIONS_INIT;
    options.superblock_bytes = WEIR_ARENA_SUPERBLOCK_MAX + 1;
    must_answer(WEIR_INVALID_ARGUMENT, weir_arena_create(leaf, &options, &mr));
    must(mr == NULL);
    options.superblock_bytes = 0;
    options.arenas = WEIR_ARENA_ARENAS_MAX + 1;
    must_answer(WEIR_INVALID_ARGUMENT, weir_arena_create(leaf, &options, &mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_arena_create(NULL, NULL, &mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_arena_create(leaf, NULL, NULL));
    must_answer(WEIR_INVALID_ARGUMENT, weir_arena_get_options(leaf, &options));
    must_answer(WEIR_INVALID_ARGUMENT, weir_arena_get_options(NULL, &options));
    must_equal(weir_pool_give_back(leaf), 0); /* is no pool */
    weir_resource_unref(leaf);

    must_ok(weir_resource_open(device, "arena(superblock=1MiB, limit=9MiB, arenas=5)"
                                       "/device", &mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_arena_get_options(mr, NULL));
    must_ok(weir_arena_get_options(mr, &options));
    must_equal(options.superblock_bytes, MIB);
    must_equal(options.limit_bytes, 9 * MIB);
    must_equal(options.arenas, 5);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* Three streams have one each, the fourth shares. What is large, or aligned so far, is
 * in none. */
static void streams_have_arenas_of_their_own(void **state)
{
    (void)state;
    pool_scene it = open_arena_scene(0);
    void *first[STREAMS], *second[STREAMS], *aligned;
    for (int i = 0; i < STREAMS; i++)
        first[i] = take_on(&it, i, SMALL);
    for (int i = 0; i < STREAMS; i++) {
        second[i] = take_on(&it, i, 1000);
        must(lies_in(first[i % 3], second[i]));
        for (int j = 0; j < 3; j++)
            must(lies_in(first[j], first[i]) == (j == i % 3));
    }
    void *large = take_on(&it, 0, SMALL + 1);
    must_ok(weir_allocate(it.pool, it.streams[0], 256, 2 * MIB, &aligned));
    must((uintptr_t)aligned % (2 * MIB) == 0);
    for (int j = 0; j < 3; j++)
        must(!lies_in(first[j], large) && !lies_in(first[j], aligned));

    weir_resource_statistics now = statistics_of(it.pool);
    must_equal(now.out_blocks, 2 * STREAMS + 2);
    must_equal(now.out_bytes, STREAMS * (SMALL + 1000) + SMALL + 1 + 256);
    must_equal(now.allocations, 2 * STREAMS + 2);
    must(now.peak_out_bytes >= now.out_bytes);
    must(weir_deallocate(it.pool, it.streams[0], aligned, 256, 2 * MIB));
    give_on(&it, 0, large, SMALL + 1);
    for (int i = 0; i < STREAMS; i++) {
        give_on(&it, i, first[i], SMALL);
        give_on(&it, i, second[i], 1000);
    }
    now = statistics_of(it.pool);
    must_equal(now.out_bytes, 0);
    must_equal(now.out_blocks, 0);
    must_equal(now.deallocations, 2 * STREAMS + 2);
    must_equal(now.free_bytes, now.held_bytes);
    close_scene(&it);
}

/* ---- stream order ---- */

/* A block of stream 0's arena that was freed on stream 1 is back in that arena: stream
 * 0 gets it, and waits for stream 1, on the device. */
static void a_block_goes_back_to_its_arena(void **state)
{
    (void)state;
    pool_scene it = open_arena_scene(LIMIT);
    void *blocks[4];
    fill(&it, 0, blocks);
    must_ok(weir_stream_wait(it.device, it.streams[1], it.streams[0]));
    uint64_t before = waits(&it), gate = stall(&it, 1);
    give_on(&it, 1, blocks[2], SMALL);
    void *again = take_on(&it, 0, SMALL);
    must(again == blocks[2]);
    must_equal(waits(&it) - before, 1);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[0]));
    open_gate(&it, gate);
    must_ok(weir_stream_sync(it.device, it.streams[0]));
    empty(&it, 0, blocks);
    close_scene(&it);
}

/* Behind several points. */
static void behind_points_means_behind_all(void **state)
{
    (void)state;
    pool_scene it = open_arena_scene(LIMIT);
    void *blocks[4];
    weir_point points[2];
    fill(&it, 0, blocks);
    must_ok(weir_stream_wait(it.device, it.streams[1], it.streams[0]));
    must_ok(weir_stream_wait(it.device, it.streams[2], it.streams[0]));
    uint64_t gates[2] = { stall(&it, 1), stall(&it, 2) };
    for (int i = 0; i < 2; i++) {
        check_stamp(it.device, it.streams[1 + i], blocks[0], SMALL,
                    (uintptr_t)blocks[0]);
        must_ok(weir_point_here(it.device, it.streams[1 + i], &points[i]));
    }
    must(weir_deallocate_after(it.pool, blocks[0], SMALL, WEIR_ALIGNMENT, points, 2));
    must(take_on(&it, 0, SMALL) == blocks[0]);
    for (int i = 0; i < 2; i++) {
        must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[0]));
        open_gate(&it, gates[i]);
    }
    must_ok(weir_stream_sync(it.device, it.streams[0]));
    empty(&it, 0, blocks);
    close_scene(&it);
}

/* All that there is lies free in the arena of stream 0, and its work runs still: a
 * superblock goes to the arena of stream 1, which waits on the device. So does a large
 * block. */
static void a_superblock_goes_to_another_arena(void **state)
{
    (void)state;
    for (size_t bytes = SMALL; bytes <= SUPERBLOCK; bytes += SUPERBLOCK - SMALL) {
        pool_scene it = open_arena_scene(LIMIT);
        void *blocks[4];
        fill(&it, 0, blocks);
        uint64_t gate = stall(&it, 0);
        empty(&it, 0, blocks);
        uint64_t before = waits(&it);
        void *other = take_on(&it, 1, bytes);
        must(other == blocks[0]);
        must_equal(waits(&it) - before, 1);
        must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[1]));
        must(try_take(&it, 2, SUPERBLOCK, WEIR_LIMIT_REACHED) == NULL);
        open_gate(&it, gate);
        must_ok(weir_stream_sync(it.device, it.streams[1]));
        give_on(&it, 1, other, bytes);
        must_equal(statistics_of(it.pool).held_bytes, HELD);
        close_scene(&it);
    }
}

/* A superblock that several streams have used, some of whose work is done. */
static void a_superblock_goes_behind_all_its_users(void **state)
{
    (void)state;
    pool_scene it = open_arena_scene(LIMIT);
    void *blocks[4];
    uint64_t gates[2];
    fill(&it, 0, blocks);
    for (int i = 1; i < STREAMS; i++)
        must_ok(weir_stream_wait(it.device, it.streams[i], it.streams[0]));
    for (int i = 0; i < 2; i++)
        gates[i] = stall(&it, 1 + i);
    for (int i = 0; i < 3; i++)
        give_on(&it, i, blocks[i], SMALL);
    give_on(&it, 0, blocks[3], SMALL);
    must_ok(weir_stream_sync(it.device, it.streams[0]));
    void *other = take_on(&it, 3, SUPERBLOCK);
    must(other == blocks[0]);
    for (int i = 0; i < 2; i++) {
        must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[3]));
        open_gate(&it, gates[i]);
    }
    must_ok(weir_stream_sync(it.device, it.streams[3]));
    give_on(&it, 3, other, SUPERBLOCK);
    close_scene(&it);
}

/* A superblock that is in use stays where it is; what is free in it serves others where
 * there is nothing else. */
static void any_arena_serves_where_there_is_no_more(void **state)
{
    (void)state;
    pool_scene it = open_arena_scene(LIMIT);
    void *blocks[4];
    fill(&it, 0, blocks);
    for (int i = 1; i < 4; i++)
        give_on(&it, 0, blocks[i], SMALL);
    for (int i = 1; i < 4; i++) {
        void *other = take_on(&it, i, SMALL);
        must(lies_in(blocks[0], other));
        blocks[i] = other;
    }
    must(try_take(&it, 1, SMALL, WEIR_LIMIT_REACHED) == NULL);
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.requested_bytes, SMALL);
    must_equal(report.limit_bytes, LIMIT);
    must_equal(report.held_bytes, HELD);
    must_equal(report.in_use_bytes, SUPERBLOCK);
    must(report.largest_free_bytes < SMALL);
    assert_string_equal(report.resource, "arena");
    must_equal(statistics_of(it.pool).failures, 1);
    for (int i = 0; i < 4; i++)
        give_on(&it, i, blocks[i], SMALL);
    close_scene(&it);
}

/* What threads keep is had too, also of a thread that is not there. */
static void what_threads_keep_is_had(void **state)
{
    (void)state;
    enum { BLOCKS = (256 << 10) / 256 }; /* a superblock */
    pool_scene it = open_scene_on(WEIR_EMULATED_NO_WORK, LIMIT);
    static void *blocks[BLOCKS];
    for (int round = 0; round < 3; round++) {
        weir_stream stream = it.streams[round];
        for (int i = 0; i < BLOCKS; i++)
            blocks[i] = take(it.pool, stream, 256);
        must_equal(statistics_of(it.pool).free_bytes, HELD - SUPERBLOCK);
        for (int i = 0; i < BLOCKS; i++)
            give(it.pool, stream, blocks[i], 256);
    }
    must_equal(statistics_of(it.pool).held_bytes, HELD);
    close_scene(&it);
}

/* On a device that does no work nobody listens, and threads keep what they free. */
static void a_hit_makes_no_call(void **state)
{
    (void)state;
    pool_scene it = open_scene_on(WEIR_EMULATED_NO_WORK, 0);
    void *others[STREAMS];
    for (int i = 0; i < STREAMS; i++)
        others[i] = take(it.pool, it.streams[i], 1);
    give(it.pool, it.streams[0], take(it.pool, it.streams[0], 256), 256);
    weir_device_calls before = calls_of(it.device);
    for (int i = 0; i < 1000; i++)
        give(it.pool, it.streams[0], take(it.pool, it.streams[0], 256), 256);
    weir_device_calls after = calls_of(it.device);
    must(memcmp(&before, &after, sizeof before) == 0);
    for (int i = 0; i < STREAMS; i++)
        give(it.pool, it.streams[i], others[i], 1);
    close_scene(&it);
}

/* What a capture had stays its own until it is released; then it is anybody's. */
static void captures_keep_their_blocks(void **state)
{
    (void)state;
    pool_scene it = open_arena_scene(LIMIT);
    weir_capture *capture;
    must_ok(weir_capture_begin(it.pool, it.streams[0], &capture));
    void *a = take(it.pool, it.streams[0], SMALL);
    give(it.pool, it.streams[0], a, SMALL);
    must(take(it.pool, it.streams[0], SMALL) == a); /* which may use it again */
    give(it.pool, it.streams[0], a, SMALL);
    must_ok(weir_capture_end(capture));
    must(try_take(&it, 1, SUPERBLOCK, WEIR_LIMIT_REACHED) == NULL);
    must_ok(weir_capture_release(capture, it.streams[0]));
    void *all = take_on(&it, 1, SUPERBLOCK);
    must(all == a);
    give_on(&it, 1, all, SUPERBLOCK);
    close_scene(&it);
}

/* ---- what goes back when ---- */

#define MANY (16 * MIB / SMALL)

static void take_many(pool_scene *it, weir_stream stream, void **blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        blocks[i] = take(it->pool, stream, SMALL);
}

static void give_many(pool_scene *it, weir_stream stream, void **blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        give(it->pool, stream, blocks[i], SMALL);
}

/* The host does not wait for a stream that ends with its work running still: what it
 * had is the global arena's, behind that work. */
static void a_streams_end_gives_its_superblocks_back(void **state)
{
    (void)state;
    static void *blocks[MANY];
    pool_scene it = open_arena_scene(0);
    for (int round = 0; round < 3; round++) {
        weir_stream stream = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        take_many(&it, stream, blocks, MANY);
        size_t held = statistics_of(it.pool).held_bytes;
        uint64_t gate;
        must_ok(weir_emulated_stall(it.device, stream, &gate));
        give_many(&it, stream, blocks, MANY);
        must_ok(weir_stream_destroy(it.device, stream));
        void *large[2];
        for (int i = 0; i < 2; i++)
            large[i] = take_on(&it, 1, 8 * MIB);
        must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[1]));
        must_equal(statistics_of(it.pool).held_bytes, held);
        open_gate(&it, gate);
        for (int i = 0; i < 2; i++)
            give_on(&it, 1, large[i], 8 * MIB);
    }
    close_scene(&it);
}

/* The stream lives, and is idle: what it has left is at work again after a stretch of
 * growth, of 4 MiB in a test build. */
static void idle_superblocks_go_back_as_memory_grows(void **state)
{
    (void)state;
    static void *blocks[MANY], *others[2 * MANY];
    pool_scene it = open_arena_scene(0);
    take_many(&it, it.streams[0], blocks, MANY);
    give_many(&it, it.streams[0], blocks, MANY);
    must_ok(weir_stream_sync(it.device, it.streams[0]));
    size_t held = statistics_of(it.pool).held_bytes;
    take_many(&it, it.streams[1], others, MANY);
    size_t grown = statistics_of(it.pool).held_bytes - held;
    must(grown <= 4 * MIB + 8 * MIB); /* and what a chunk adds */
    must(grown > 0);                  /* which is the price of asking nobody */
    take_many(&it, it.streams[1], others + MANY, MANY);
    must(statistics_of(it.pool).held_bytes <= 2 * 16 * MIB + 12 * MIB);
    give_many(&it, it.streams[1], others, 2 * MANY);
    close_scene(&it);
}

static void trim_gives_back_what_is_free(void **state)
{
    (void)state;
    static void *blocks[MANY];
    pool_scene it = open_arena_scene(0);
    take_many(&it, it.streams[0], blocks, MANY);
    void *other = take_on(&it, 1, 100);
    size_t held = statistics_of(it.pool).held_bytes;
    uint64_t gate = stall(&it, 2);
    give_many(&it, it.streams[0], blocks, MANY);
    must_equal(weir_resource_trim_sync(it.pool, held), 0);
    size_t given = weir_resource_trim_sync(it.pool, 0);
    must_equal(statistics_of(it.pool).held_bytes, held - given);
    must_equal(held - given, 8 * MIB); /* the chunk of what is out */
    give_on(&it, 1, other, 100);
    must_equal(weir_resource_trim_sync(it.pool, 0), 8 * MIB);
    must_hold_nothing(it.device);
    open_gate(&it, gate);
    give_on(&it, 1, take_on(&it, 1, 100), 100);
    close_scene(&it);
}

/* What the global arena has idle goes upstream before a request is refused for want of
 * records, and waits for nothing: whoever gets it there comes behind its work. */
static void what_goes_upstream_goes_behind_its_work(void **state)
{
    (void)state;
    (void)support_seed(1);
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 128 * MIB);
    weir_resource *below;
    void *large, *refused, *next;
    must_ok(weir_resource_open(it.device, "pool/device", &below));
    it.pool = open_arena(weir_resource_ref(below), 0);
    large = take(it.pool, it.streams[0], MIB);
    uint64_t gate = stall(&it, 0);
    stamp(it.device, it.streams[0], large, MIB, 1);
    give(it.pool, it.streams[0], large, MIB);
    weir__host_fail_at(1, true);
    must_answer(WEIR_OUT_OF_HOST_MEMORY, weir_allocate(it.pool, it.streams[1], SMALL,
                                                       WEIR_ALIGNMENT, &refused));
    weir__host_fail_at(0, false);
    must_equal(statistics_of(below).out_blocks, 0);
    next = take(below, it.streams[1], MIB);
    stamp(it.device, it.streams[1], next, MIB, 2);
    open_gate(&it, gate);
    check_stamp(it.device, it.streams[1], next, MIB, 2);
    give(below, it.streams[1], next, MIB);
    weir_resource_unref(below);
    close_scene(&it);
}

/* The upstream's own reference first or last, the arena's before or behind the last
 * block; and a stream that ends in between. */
static void parts_may_go_in_any_order(void **state)
{
    (void)state;
    for (int order = 0; order < 4; order++) {
        (void)support_seed((uint64_t)order);
        pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 64 * MIB);
        weir_resource *leaf = open_leaf(it.device), *counted;
        must_ok(weir_statistics_create(leaf, &counted));
        weir_resource_unref(leaf);
        it.pool = open_arena(weir_resource_ref(counted), 0);
        void *blocks[6];
        for (int i = 0; i < 6; i++)
            blocks[i] = take_on(&it, i % STREAMS, i < 5 ? SMALL : MIB);
        if (order % 2 == 0)
            weir_resource_unref(counted);
        weir_resource *mr = it.pool;
        give_on(&it, 1, blocks[1], SMALL);
        if (order < 2)
            weir_resource_unref(mr);
        weir_stream next = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        must_ok(weir_stream_wait(it.device, next, it.streams[3]));
        end_stream(it.device, it.streams[3]);
        it.streams[3] = next;
        for (int i = 0; i < 6; i++) {
            if (i != 1)
                give_on(&it, i % STREAMS, blocks[i], i < 5 ? SMALL : MIB);
        }
        if (order >= 2)
            weir_resource_unref(mr);
        if (order % 2 != 0) {
            must_equal(statistics_of(counted).out_blocks, 0);
            weir_resource_unref(counted);
        }
        it.pool = NULL;
        close_scene(&it);
    }
}

/* ---- whose a block is ---- */

static void a_wrong_free_is_told(void **state)
{
    (void)state;
    pool_scene it = open_arena_scene(0);
    misuse_log log;
    char *a = take_on(&it, 0, 1000), *b = take_on(&it, 0, MIB);
    weir_block found = { .struct_size = sizeof found };
    misuse_begin(&log);
    static const size_t wrong[] = { 1001, SMALL, SMALL + 1, SUPERBLOCK, 8 * MIB };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        must(!weir_deallocate(it.pool, it.streams[0], a, wrong[i], WEIR_ALIGNMENT));
        must(strstr(log.message, "allocated with 1000 bytes") != NULL);
        must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, a);
        must(!weir_deallocate_after(it.pool, b, wrong[i], WEIR_ALIGNMENT, NULL, 0));
        must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, b);
    }
    /* The superblock itself, as it was drawn. */
    must(!weir_deallocate(it.pool, it.streams[0], a, SUPERBLOCK, 64 * KIB));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, a);
    must(!weir_deallocate(it.pool, it.streams[0], a + 512, 256, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, a + 512);
    must(!weir_free(it.pool, &log));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, &log);
    must_ok(weir_resource_find(it.pool, a, &found));
    must_equal(found.bytes, 1000);
    must_ok(weir_resource_find(it.pool, b, &found));
    must_equal(found.bytes, MIB);

    give_on(&it, 0, a, 1000);
    must_answer(WEIR_NOT_FOUND, weir_resource_find(it.pool, a, &found));
    must(!weir_deallocate(it.pool, it.streams[0], a, SUPERBLOCK, 64 * KIB));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, a);
    must(!weir_free(it.pool, a));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, a);
    (void)weir_resource_trim_sync(it.pool, 0); /* the superblock goes, a chunk stays */
    must(!weir_free(it.pool, a));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, a);
    misuse_end();
    give_on(&it, 0, b, MIB);
    close_scene(&it);
}

/* Where there is no room for a superblock the global arena has small blocks as well,
 * one beside the other. */
static void small_blocks_may_be_the_global_arenas(void **state)
{
    (void)state;
    pool_scene it = open_arena_scene(SUPERBLOCK);
    misuse_log log;
    give_on(&it, 0, take_on(&it, 0, 250 * KIB), 250 * KIB);
    void *blocks[STREAMS];
    for (int i = 0; i < STREAMS; i++)
        blocks[i] = take_on(&it, i, 62 * KIB);
    misuse_begin(&log);
    for (int i = 0; i < STREAMS; i++) {
        weir_block found = { .struct_size = sizeof found };
        must_ok(weir_resource_find(it.pool, blocks[i], &found));
        must_equal(found.bytes, 62 * KIB);
        must(!weir_deallocate(it.pool, it.streams[i], blocks[i], 1, WEIR_ALIGNMENT));
        must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, blocks[i]);
    }
    misuse_end();
    for (int i = 0; i < STREAMS; i++)
        give_on(&it, i, blocks[i], 62 * KIB);
    give_on(&it, 2, take_on(&it, 2, 250 * KIB), 250 * KIB);
    must_equal(statistics_of(it.pool).peak_held_bytes, 250 * KIB);
    close_scene(&it);
}

/* An argument picks tests by their names. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_read_back),
        cmocka_unit_test(streams_have_arenas_of_their_own),
        cmocka_unit_test(a_block_goes_back_to_its_arena),
        cmocka_unit_test(behind_points_means_behind_all),
        cmocka_unit_test(a_superblock_goes_to_another_arena),
        cmocka_unit_test(a_superblock_goes_behind_all_its_users),
        cmocka_unit_test(any_arena_serves_where_there_is_no_more),
        cmocka_unit_test(what_threads_keep_is_had),
        cmocka_unit_test(a_hit_makes_no_call),
        cmocka_unit_test(captures_keep_their_blocks),
        cmocka_unit_test(a_streams_end_gives_its_superblocks_back),
        cmocka_unit_test(idle_superblocks_go_back_as_memory_grows),
        cmocka_unit_test(trim_gives_back_what_is_free),
        cmocka_unit_test(what_goes_upstream_goes_behind_its_work),
        cmocka_unit_test(parts_may_go_in_any_order),
        cmocka_unit_test(a_wrong_free_is_told),
        cmocka_unit_test(small_blocks_may_be_the_global_arenas),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
