/* test_pool_room.c - a pool that has an end, a limit or what a device has: how much it
 * spends on speed goes by how much of that has never been out. */
#include <pthread.h>
#include <semaphore.h>

#include "pool_share.h"
#include "resource_parts.h"
#include "support_pool.h"
#include "weir/leaves.h"

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
    void *ptrs[WHOLE / BLOCK + 1];
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
    for (size_t parts = 1; parts <= 6; parts++) {
        come_to(&it, &all, parts * PART);
        must(parts == 1 || !rounds_up(&it)); /* for all may be wanted */
    }
    go_on(&it, &all);
    must(rounds_up(&it));
    come_to(&it, &all, PART);
    come_to(&it, &all, 6 * PART); /* as before */
    must(rounds_up(&it));
    come_to(&it, &all, 9 * PART);
    must(!rounds_up(&it));
    go_on(&it, &all);
    must(rounds_up(&it));
    come_to(&it, &all, WHOLE - BLOCK);
    go_on(&it, &all);
    must(!rounds_up(&it));
    for (int gives = 0; gives < 2; gives++) {
        come_to(&it, &all, PART); /* what was out may be out again */
        go_on(&it, &all);
        must(!rounds_up(&it));
        if (gives)
            (void)weir_pool_give_back(it.pool);
        else
            (void)weir_resource_trim_sync(it.pool, WHOLE);
        go_on(&it, &all);
        must(rounds_up(&it));
        come_to(&it, &all, WHOLE - BLOCK);
        go_on(&it, &all);
    }
    come_to(&it, &all, 0);
    close_scene(&it);
}

/* What may still be drawn is room, though it is less than is drawn at once. */
static void a_limit_is_the_end(void **state)
{
    (void)state;
    pool_scene it = open_scene(0, 0, 3 * PART, 2 * PART);
    const weir__pool *pool = it.pool->self;
    give_on(&it, 0, take_on(&it, 0, BLOCK), BLOCK);
    must(pool->is_short);
    must_equal(pool->end_bytes, 3 * PART);
    must_equal(pool->held_bytes, 2 * PART);
    close_scene(&it);
}

/* Where others have left memory that merges with nobody's, more room is needed. */
static void several_streams_need_more_room(void **state)
{
    (void)state;
    for (int streams = 1; streams <= 2; streams++) {
        pool_scene it = open_whole(WHOLE);
        blocks all = { .count = 0 };
        come_to(&it, &all, (streams == 1 ? 10 : 9) * PART);
        uint64_t gates[2];
        for (int i = 0; i < 2; i++) {
            gates[i] = stall(&it, i + 1);
            if (streams == 1)
                continue;
            give(it.pool, it.streams[i + 1],
                 take(it.pool, it.streams[i + 1], PART / 2), PART / 2);
            weir_thread_flush();
        }
        go_on(&it, &all);
        must_equal(rounds_up(&it), streams == 1);
        for (int i = 0; i < 2; i++)
            open_gate(&it, gates[i]);
        come_to(&it, &all, 0);
        close_scene(&it);
    }
}

/* ---- what is left by others ---- */

/* Gives it back and takes it again, until it is settled how much is out. */
static void turn_over(pool_scene *it, void *ptr, size_t bytes)
{
    for (int i = 0; i < 64; i++) {
        give(it->pool, it->streams[0], ptr, bytes);
        weir_thread_flush();
        must(take(it->pool, it->streams[0], bytes) == ptr);
    }
}

/* A stream that waits for another takes a part of the room, and no more; or where that
 * is not settled no more than it needs. */
static void a_stream_takes_a_part_of_the_room(void **state)
{
    (void)state;
    const size_t each = 256 * KIB, most = each - 32 * KIB;
    for (size_t is_settled = 0; is_settled < 2; is_settled++) {
        pool_scene it = open_whole(4 * each);
        const weir__pool *pool = it.pool->self;
        uint64_t gates[STREAMS];
        void *again[STREAMS];
        for (int i = 1; i < STREAMS; i++) {
            void *ptr = take_on(&it, i, each);
            gates[i] = stall(&it, i);
            give_on(&it, i, ptr, each);
            weir_thread_flush();
        }
        void *kept = take(it.pool, it.streams[0], each);
        if (is_settled)
            turn_over(&it, kept, each);
        const uint64_t waited = waits(&it);
        must_equal(pool->heap.owning_count, STREAMS - 1);
        void *first = take(it.pool, it.streams[0], BLOCK);
        must_equal(pool->heap.owning_count, STREAMS - 1 + is_settled);
        for (int i = 1; i < STREAMS; i++)
            again[i] = take(it.pool, it.streams[i], most);
        must_equal(waits(&it), waited + 1);
        for (int i = 1; i < STREAMS; i++) {
            open_gate(&it, gates[i]);
            give(it.pool, it.streams[i], again[i], most);
        }
        give(it.pool, it.streams[0], first, BLOCK);
        give(it.pool, it.streams[0], kept, each);
        close_scene(&it);
    }
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
        ptrs[count] = take(it.pool, it.streams[count < BEGIN ? 1 : 0], 64 * KIB);
    } while (ptrs[count++] != ptrs[0] + 2 * MIB);
    must_equal((uintptr_t)ptrs[0] % (2 * MIB), 0);
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(it.pool, it.streams[0], 6 * MIB,
                                                  WEIR_ALIGNMENT, &none));
    turn_over(&it, ptrs[count - 1], 64 * KIB);
    uint64_t gate = stall(&it, 1);
    give(it.pool, it.streams[1], ptrs[0], 64 * KIB);
    weir_thread_flush();
    const uint64_t asked = calls_of(it.device).malloc;
    must_ok(weir_allocate(it.pool, it.streams[0], 32 * KIB, 2 * MIB, &none));
    must(none == ptrs[0]);
    must_equal(calls_of(it.device).malloc, asked);
    open_gate(&it, gate);
    must(weir_deallocate(it.pool, it.streams[0], none, 32 * KIB, 2 * MIB));
    for (int i = 1; i < count; i++)
        give(it.pool, it.streams[i < BEGIN ? 1 : 0], ptrs[i], 64 * KIB);
    close_scene(&it);
}

/* Upstream has not all of the initial size: then the pool grows as ever, and does not
 * ask for it before waiting for others, once all is gone. */
static void what_cannot_be_had_at_once_comes_as_the_pool_grows(void **state)
{
    (void)state;
    enum { COUNT = 32 };
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 8 * MIB);
    it.pool = open_pool(open_leaf(it.device), 16 * MIB, 0, MIB);
    void *ptrs[COUNT];
    for (int i = 0; i < COUNT; i++) {
        ptrs[i] = take(it.pool, it.streams[1], 256 * KIB);
        must_equal(statistics_of(it.pool).held_bytes, ((size_t)i / 4 + 1) * MIB);
    }
    void *none;
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(it.pool, it.streams[1], KIB,
                                                  WEIR_ALIGNMENT, &none));
    uint64_t gate = stall(&it, 1);
    give(it.pool, it.streams[1], ptrs[0], 256 * KIB);
    const uint64_t asked = calls_of(it.device).malloc;
    ptrs[0] = take(it.pool, it.streams[0], 256 * KIB);
    must_equal(calls_of(it.device).malloc, asked);
    open_gate(&it, gate);
    for (int i = 0; i < COUNT; i++)
        give(it.pool, it.streams[i > 0], ptrs[i], 256 * KIB);
    close_scene(&it);
}

/* So much is free, but in pieces: from then on all goes into making it whole. */
static void what_is_refused_for_pieces_is_tight(void **state)
{
    (void)state;
    pool_scene it = open_whole(WHOLE);
    const weir__pool *pool = it.pool->self;
    blocks all = { .count = 0 };
    come_to(&it, &all, BLOCK);
    go_on(&it, &all);
    must(pool->has_room);
    come_to(&it, &all, WHOLE);
    for (size_t i = 0; i < all.count; i += 2)
        give(it.pool, it.streams[0], all.ptrs[i], BLOCK);
    void *none;
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(it.pool, it.streams[0], WHOLE,
                                                  WEIR_ALIGNMENT, &none));
    must(!pool->is_tight);
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(it.pool, it.streams[0], 2 * BLOCK,
                                                  WEIR_ALIGNMENT, &none));
    must(pool->is_tight && !pool->has_room);
    for (size_t i = 1; i < all.count; i += 2)
        give(it.pool, it.streams[0], all.ptrs[i], BLOCK);
    must_equal(weir_resource_trim_sync(it.pool, 0), WHOLE);
    all.count = 0;
    come_to(&it, &all, BLOCK);
    go_on(&it, &all);
    must(!pool->is_tight && pool->has_room);
    come_to(&it, &all, 0);
    close_scene(&it);
}

/* What is refused with room to spare, and served without, is no refusal. */
static void what_is_served_in_the_end_is_not_tight(void **state)
{
    (void)state;
    enum { CLASS = 2048, LESS = 1536, ALL = 64 << 10, MOST = ALL / CLASS };
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 8 * MIB);
    weir_resource *rest, *leaf = open_leaf(it.device);
    must_ok(weir_device_resource_create(it.device, &rest));
    void *others = take(rest, it.streams[0], 8 * MIB - ALL);
    void *ptrs[MOST], *ends[2];
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = ALL;
    must_ok(weir_pool_create(leaf, &options, &it.pool));
    const weir__pool *pool = it.pool->self;
    size_t count = 0;
    ends[0] = take(it.pool, it.streams[0], 256);
    ptrs[count++] = take(it.pool, it.streams[0], CLASS);
    ends[1] = take(it.pool, it.streams[0], 256);
    while (pool->heap.bytes - pool->heap.taken_bytes > LESS)
        ptrs[count++] = take(it.pool, it.streams[0], CLASS);
    must_equal(pool->heap.bytes - pool->heap.taken_bytes, LESS);
    for (int i = 0; i < 2; i++)
        give(it.pool, it.streams[0], ends[i], 256);
    weir_thread_flush();
    must(rounds_up(&it));
    void *ptr = take(it.pool, it.streams[0], LESS);
    must(pool->is_short && !pool->is_tight);
    give(it.pool, it.streams[0], ptr, LESS);
    while (count > 0)
        give(it.pool, it.streams[0], ptrs[--count], CLASS);
    give(rest, it.streams[0], others, 8 * MIB - ALL);
    weir_resource_unref(rest);
    weir_resource_unref(leaf);
    close_scene(&it);
}

/* Nor what is refused to a capture: for others whole chunks go upstream, and come back
 * as one. */
static void what_others_could_have_is_not_tight(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 2 * MIB, MIB);
    const weir__pool *pool = it.pool->self;
    void *ptrs[2];
    for (int i = 0; i < 2; i++)
        ptrs[i] = take_on(&it, i, MIB);
    uint64_t gates[2] = { stall(&it, 0), stall(&it, 1) };
    for (int i = 0; i < 2; i++)
        give_on(&it, i, ptrs[i], MIB);
    weir_capture *capture;
    must_ok(weir_capture_begin(it.pool, it.streams[2], &capture));
    (void)try_take(&it, 2, 2 * MIB, WEIR_LIMIT_REACHED);
    must_ok(weir_capture_end(capture));
    must_ok(weir_capture_release(capture, it.streams[2]));
    must(pool->is_short && !pool->is_tight);
    for (int i = 0; i < 2; i++)
        open_gate(&it, gates[i]);
    void *all = take_on(&it, 3, 2 * MIB);
    must(!pool->is_tight);
    give_on(&it, 3, all, 2 * MIB);
    close_scene(&it);
}

/* Until it grows again. */
static void what_can_grow_again_is_not_tight(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    pool_scene it = open_on_small_device(8 * MIB);
    const weir__pool *pool = it.pool->self;
    weir_resource *leaf = open_leaf(it.device);
    void *ptrs[COUNT], *rest = take(leaf, it.streams[1], 4 * MIB), *large;
    for (int i = 0; i < COUNT; i++)
        ptrs[i] = take(it.pool, it.streams[0], 4 * MIB / COUNT);
    for (int i = 0; i < COUNT; i += 2)
        give(it.pool, it.streams[0], ptrs[i], 4 * MIB / COUNT);
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(it.pool, it.streams[0], MIB,
                                                  WEIR_ALIGNMENT, &large));
    must(pool->is_tight && !pool->has_room);
    give(leaf, it.streams[1], rest, 4 * MIB);
    (void)weir_resource_trim_sync(leaf, 0);
    large = take(it.pool, it.streams[0], MIB);
    must(!pool->is_tight && pool->has_room);
    give(it.pool, it.streams[0], large, MIB);
    for (int i = 1; i < COUNT; i += 2)
        give(it.pool, it.streams[0], ptrs[i], 4 * MIB / COUNT);
    weir_resource_unref(leaf);
    close_scene(&it);
}

static bool has_chores(weir__pool *pool)
{
    weir__mutex_lock(&pool->lock);
    const bool has = weir__pool_has_chores_locked(pool);
    weir__mutex_unlock(&pool->lock);
    return has;
}

/* A look while little is out makes nobody look sooner than before. */
static void who_looks_at_little_looks_no_sooner(void **state)
{
    (void)state;
    pool_scene it = open_whole(WHOLE);
    weir__pool *pool = it.pool->self;
    blocks all = { .count = 0 };
    come_to(&it, &all, 6 * PART);
    go_on(&it, &all);
    const size_t above = pool->look_above;
    must(above > 6 * PART);
    come_to(&it, &all, PART);
    weir__mutex_lock(&pool->miss);
    do
        weir__pool_fit_caches(pool);
    while (pool->unlooked != 0);
    weir__mutex_unlock(&pool->miss);
    must_equal(pool->look_above, above);
    come_to(&it, &all, 0);
    close_scene(&it);
}

/* What a pool with an end has settled is open again once it grows. */
static void a_pool_that_grows_again_is_not_settled(void **state)
{
    (void)state;
    pool_scene it = open_on_small_device(8 * MIB);
    const weir__pool *pool = it.pool->self;
    blocks all = { .count = 0 };
    come_to(&it, &all, BLOCK);
    void *none;
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(it.pool, it.streams[0], 9 * MIB,
                                                  WEIR_ALIGNMENT, &none));
    go_on(&it, &all);
    must(pool->is_settled);
    void *more = take(it.pool, it.streams[0], 4 * MIB);
    must(!pool->is_settled);
    give(it.pool, it.streams[0], more, 4 * MIB);
    come_to(&it, &all, 0);
    close_scene(&it);
}

/* What was once refused has an end for a while; then nobody looks any more. */
static void a_pool_that_grows_again_is_not_looked_at(void **state)
{
    (void)state;
    pool_scene it = open_on_small_device(8 * MIB);
    blocks all = { .count = 0 };
    come_to(&it, &all, BLOCK);
    void *none;
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(it.pool, it.streams[0], 9 * MIB,
                                                  WEIR_ALIGNMENT, &none));
    must(!rounds_up(&it));
    void *more = take(it.pool, it.streams[0], 4 * MIB);
    go_on(&it, &all);
    must(rounds_up(&it));
    must(!has_chores(it.pool->self));
    give(it.pool, it.streams[0], more, 4 * MIB);
    come_to(&it, &all, 0);
    close_scene(&it);
}

/* ---- beside another thread ---- */

/* Upstream of a pool, which waits for a word before it answers. */
typedef struct slow {
    weir_resource *leaf;
    atomic_bool waits;
    sem_t is_asked, may_answer;
} slow;

static weir_status slow_allocate(void *context, weir_stream stream, size_t bytes,
                                 size_t alignment, void **out)
{
    slow *self = context;
    if (atomic_load(&self->waits)) {
        must(sem_post(&self->is_asked) == 0);
        must(sem_wait(&self->may_answer) == 0);
    }
    return weir_allocate(self->leaf, stream, bytes, alignment, out);
}

static void slow_deallocate(void *context, weir_stream stream, void *ptr, size_t bytes,
                            size_t alignment)
{
    slow *self = context;
    must(weir_deallocate(self->leaf, stream, ptr, bytes, alignment));
}

static void *take_and_give(void *argument)
{
    pool_scene *it = argument;
    give_on(it, 1, take_on(it, 1, MIB), MIB);
    return NULL;
}

/* While one thread waits for upstream, another that has what it needs does not. */
static void who_has_enough_waits_for_nobody(void **state)
{
    (void)state;
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 64 * MIB);
    slow up = { .leaf = open_leaf(it.device) };
    must(sem_init(&up.is_asked, 0, 0) == 0 && sem_init(&up.may_answer, 0, 0) == 0);
    const weir_callbacks functions = { .struct_size = sizeof functions,
                                       .allocate = slow_allocate,
                                       .deallocate = slow_deallocate };
    weir_resource *upstream;
    must_ok(weir_callback_create(it.device, &functions, &up, &upstream));
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = MIB;
    options.limit_bytes = 16 * MIB;
    must_ok(weir_pool_create(upstream, &options, &it.pool));
    weir_resource_unref(upstream);
    blocks all = { .count = 0 };
    come_to(&it, &all, BLOCK);
    atomic_store(&up.waits, true);
    pthread_t other;
    must(pthread_create(&other, NULL, take_and_give, &it) == 0);
    must(sem_wait(&up.is_asked) == 0);
    go_on(&it, &all);
    must(has_chores(it.pool->self)); /* which are left to who is in there */
    atomic_store(&up.waits, false);
    must(sem_post(&up.may_answer) == 0);
    must(pthread_join(other, NULL) == 0);
    come_to(&it, &all, 0);
    weir_resource_unref(it.pool);
    it.pool = open_leaf(it.device);
    weir_resource_unref(up.leaf);
    must(sem_destroy(&up.is_asked) == 0 && sem_destroy(&up.may_answer) == 0);
    close_scene(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_rounded_up_once_there_is_room),
        cmocka_unit_test(a_limit_is_the_end),
        cmocka_unit_test(several_streams_need_more_room),
        cmocka_unit_test(a_stream_takes_a_part_of_the_room),
        cmocka_unit_test(what_is_full_is_not_asked_first),
        cmocka_unit_test(what_cannot_be_had_at_once_comes_as_the_pool_grows),
        cmocka_unit_test(what_is_refused_for_pieces_is_tight),
        cmocka_unit_test(what_is_served_in_the_end_is_not_tight),
        cmocka_unit_test(what_others_could_have_is_not_tight),
        cmocka_unit_test(what_can_grow_again_is_not_tight),
        cmocka_unit_test(who_looks_at_little_looks_no_sooner),
        cmocka_unit_test(a_pool_that_grows_again_is_not_settled),
        cmocka_unit_test(a_pool_that_grows_again_is_not_looked_at),
        cmocka_unit_test(who_has_enough_waits_for_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
