/* test_pool_kept.c - what a pool's caches may keep, and how much: streams that end and
 * are captured, streams that nothing is kept for, misuse with warm caches, statistics,
 * bounds, and no host memory. */
#include "internal.h"
#include "resource_parts.h"
#include "support_actor.h"

#define SMALL ((size_t)256)
#define LARGE (8 * SMALL) /* the largest that is kept */

/* What is in threads' caches, without the depot. */
static size_t kept_in(weir_resource *pool)
{
    cached_memory all = cached_in(pool);
    return all.bytes - all.depot_bytes;
}

/* ---- streams that end ---- */

/* Its handle is another stream's at once, on which what was kept may not be used before
 * the old one's work is done. */
static void a_streams_caches_end_with_it(void **state)
{
    (void)state;
    pool_scene it = open_cached(12 * SMALL, 0);
    actor *other = actor_begin();
    blocks all = { it.pool, it.streams[0], SMALL, 12, { NULL } };
    actor_does(other, take_blocks, &all);
    for (int i = 0; i < all.count; i++)
        stamp(it.device, it.streams[0], all.ptrs[i], SMALL, (uint64_t)i);
    uint64_t gate = stall(&it, 0);
    for (int i = 0; i < all.count; i++)
        check_stamp(it.device, it.streams[0], all.ptrs[i], SMALL, (uint64_t)i);
    actor_does(other, give_blocks, &all);
    must_equal(cached_in(it.pool).caches, 1);
    must(cached_in(it.pool).depot_bytes > 0);

    weir_stream old = it.streams[0];
    end_stream(it.device, old);
    must_equal(cached_in(it.pool).caches, 0);
    must_equal(kept_in(it.pool), 0);
    must(cached_in(it.pool).depot_bytes > 0);
    weir_stream made[64];
    int count = 0;
    do
        made[count++] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    while (made[count - 1] != old && count < 64);
    it.streams[0] = made[--count];
    while (count > 0)
        end_stream(it.device, made[--count]);

    all.stream = it.streams[0];
    actor_does(other, take_blocks, &all);
    for (int i = 0; i < all.count; i++)
        stamp(it.device, it.streams[0], all.ptrs[i], SMALL, 7);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[0]));
    open_gate(&it, gate);
    must_ok(weir_stream_sync(it.device, it.streams[0]));
    actor_does(other, give_blocks, &all);
    must_equal(cached_in(it.pool).caches, 1);
    actor_end(other);
    close_scene(&it);
}

static void a_capture_empties_its_streams_caches(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    blocks all = { it.pool, it.streams[0], SMALL, 4, { NULL } };
    blocks more = { it.pool, it.streams[1], SMALL, 4, { NULL } };
    turn_over_blocks(&all);
    turn_over_blocks(&more);
    must_equal(cached_in(it.pool).caches, 2);
    size_t elsewhere = kept_in(it.pool);
    weir_capture *capture;
    must_ok(weir_capture_begin(it.pool, it.streams[0], &capture));
    must_equal(cached_in(it.pool).caches, 1);
    must(kept_in(it.pool) < elsewhere);
    elsewhere = kept_in(it.pool);
    for (int i = 0; i < 3; i++)
        turn_over_blocks(&all); /* in the capture */
    must_equal(cached_in(it.pool).caches, 1);
    must_equal(kept_in(it.pool), elsewhere);
    void *inside = take(it.pool, it.streams[0], SMALL);
    must_ok(weir_capture_end(capture));

    turn_over_blocks(&all);
    must_equal(cached_in(it.pool).caches, 2);
    must(kept_in(it.pool) > elsewhere);
    /* What comes from the capture is its own until the release. */
    elsewhere = cached_in(it.pool).bytes;
    give(it.pool, it.streams[0], inside, SMALL);
    must_equal(cached_in(it.pool).bytes, elsewhere);
    must_ok(weir_capture_release(capture, it.streams[0]));
    close_scene(&it);
}

/* ---- streams that nothing is kept for ---- */

static void keeps_nothing_of(weir_resource *pool, weir_stream stream)
{
    blocks all = { pool, stream, SMALL, 9, { NULL } };
    turn_over_blocks(&all);
    turn_over_blocks(&all);
    must_equal(cached_in(pool).blocks, 0);
    must_equal(cached_in(pool).caches, 0);
    must_equal(statistics_of(pool).out_blocks, 0);
}

static void nothing_is_kept_for_streams_of_the_moment(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    weir_stream unknown;
    must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &unknown));
    keeps_nothing_of(it.pool, unknown);
    must_ok(weir_emulated_stream_destroy(it.device, unknown));
    close_scene(&it);
}

static void nothing_is_kept_on_an_eager_device(void **state)
{
    (void)state;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    options.eager = true;
    weir_device *device = open_with("emulated:0", &options);
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_resource *pool;
    must_ok(weir_resource_open(device, "pool/device", &pool));
    keeps_nothing_of(pool, stream);
    keeps_nothing_of(pool, WEIR_STREAM_PER_THREAD);
    weir_resource_unref(pool);
    end_stream(device, stream);
    close_emulated(device);
}

static void nothing_is_kept_without_a_cache(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, WEIR_POOL_NO_CACHE);
    keeps_nothing_of(it.pool, it.streams[0]);
    must_equal(cached_in(it.pool).seats, 0);
    close_scene(&it);
}

/* ---- misuse ---- */

static void must_refuse(weir_resource *pool, weir_stream stream, void *ptr,
                        size_t bytes, size_t alignment, weir_misuse_kind kind)
{
    misuse_log log;
    cached_memory before = cached_in(pool);
    weir_resource_statistics counts = statistics_of(pool);
    misuse_begin(&log);
    must(!weir_deallocate(pool, stream, ptr, bytes, alignment));
    misuse_end();
    must_be_misuse(&log, kind, ptr);
    cached_memory after = cached_in(pool);
    weir_resource_statistics now = statistics_of(pool);
    must_equal(after.blocks, before.blocks);
    must_equal(after.bytes, before.bytes);
    must_equal(now.out_blocks, counts.out_blocks);
    must_equal(now.out_bytes, counts.out_bytes);
    must_equal(now.deallocations, counts.deallocations);
}

typedef struct slip {
    weir_resource *pool;
    weir_stream stream;
    void *ptr;
} slip;

static void frees_twice(void *argument)
{
    slip *self = argument;
    must_refuse(self->pool, self->stream, self->ptr, SMALL, WEIR_ALIGNMENT,
                WEIR_MISUSE_DOUBLE_FREE);
}

static void misuse_is_told_by_warm_caches(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    weir_stream s = it.streams[0];
    actor *other = actor_begin();
    blocks warm = { it.pool, s, SMALL, 9, { NULL } };
    actor_does(other, turn_over_blocks, &warm); /* a seat, and magazines */
    void *theirs = warm.ptrs[0];
    turn_over_blocks(&warm);

    char *ptr = take(it.pool, s, SMALL);
    char stranger[512];
    must_refuse(it.pool, s, ptr, SMALL - 1, WEIR_ALIGNMENT, WEIR_MISUSE_WRONG_SIZE);
    must_refuse(it.pool, s, ptr, 2 * SMALL, WEIR_ALIGNMENT, WEIR_MISUSE_WRONG_SIZE);
    must_refuse(it.pool, s, ptr, SMALL, 2 * WEIR_ALIGNMENT, WEIR_MISUSE_WRONG_SIZE);
    must_refuse(it.pool, s, ptr + 1, SMALL, WEIR_ALIGNMENT,
                WEIR_MISUSE_FOREIGN_POINTER);
    must_refuse(it.pool, s, stranger, SMALL, WEIR_ALIGNMENT,
                WEIR_MISUSE_FOREIGN_POINTER);
    void *large = take(it.pool, s, LARGE);
    must_refuse(it.pool, s, (char *)large + SMALL, SMALL, WEIR_ALIGNMENT,
                WEIR_MISUSE_FOREIGN_POINTER);
    give(it.pool, s, large, LARGE);

    give(it.pool, s, ptr, SMALL);
    slip again = { it.pool, s, ptr };
    frees_twice(&again);                       /* on the thread that has it */
    actor_does(other, frees_twice, &again);   /* on another */
    again.stream = it.streams[1];
    frees_twice(&again);                       /* on another stream */
    again = (slip){ it.pool, s, theirs };
    frees_twice(&again);
    again.ptr = ptr;
    weir_thread_flush();
    frees_twice(&again);                       /* in the heap */
    actor_does(other, frees_twice, &again);
    must_equal(statistics_of(it.pool).out_blocks, 0);
    turn_over_blocks(&warm);
    actor_end(other);
    close_scene(&it);
}

/* Two threads see a block out at the same moment, and both take it: the one that it is
 * not marked for learns that when it comes to its top. */
static void a_block_on_two_stacks_goes_out_once(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    weir_stream s = it.streams[0];
    actor *other = actor_begin();
    blocks warm = { it.pool, s, SMALL, 1, { NULL } };
    actor_does(other, turn_over_blocks, &warm);
    weir_thread_flush();
    blocks mine = { it.pool, s, SMALL, 1, { NULL } };
    take_blocks(&mine);
    give_blocks(&mine);

    /* As if the second had looked before the first wrote. */
    weir__pool *pool = it.pool->self;
    weir__heap_block *block = block_at(&pool->heap, mine.ptrs[0]);
    must(weir__heap_state_of(block) == WEIR__HEAP_CACHED);
    weir__heap_set_tag(block, weir__heap_out_tag(SMALL, WEIR_ALIGNMENT));
    actor_does(other, give_blocks, &mine);
    must(weir__heap_state_of(block) == WEIR__HEAP_CACHED);

    misuse_log log;
    misuse_begin(&log);
    void *first = take(it.pool, s, SMALL);
    misuse_end();
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, mine.ptrs[0]);
    must(first != mine.ptrs[0]);
    blocks theirs = { it.pool, s, SMALL, 2, { NULL } };
    actor_does(other, take_blocks, &theirs);
    must(theirs.ptrs[0] == mine.ptrs[0]);
    must(theirs.ptrs[1] != mine.ptrs[0] && theirs.ptrs[1] != first);
    stamp(it.device, s, first, SMALL, 1);
    stamp(it.device, s, theirs.ptrs[0], SMALL, 2);
    check_stamp(it.device, s, first, SMALL, 1);
    give(it.pool, s, first, SMALL);
    actor_does(other, give_blocks, &theirs);
    (void)cached_in(it.pool); /* looks them over */
    actor_end(other);
    close_scene(&it);
}

/* ---- statistics and bounds ---- */

typedef struct held {
    void *ptr;
    size_t bytes;
} held;

/* What a request has got of a pool that can grow: that of its class, or a little more
 * where its cache is nearly full. */
static size_t whole_at(weir_resource *mr, const held *at)
{
    weir__pool *pool = mr->self;
    const uint32_t grains = (uint32_t)((at->bytes + SMALL - 1) / SMALL);
    weir__mutex_lock(&pool->lock);
    uint32_t id = weir__heap_find(&pool->heap, at->ptr);
    uint32_t whole = weir__heap_grains(weir__heap_block_of(&pool->heap, id));
    weir__mutex_unlock(&pool->lock);
    must(whole >= grains && whole - grains <= WEIR__SPARE_MOST);
    must(whole == weir__class_up(grains, WEIR__SPARE_MOST) ||
         whole - grains <= grains / WEIR__NEXT_SHARE);
    return whole * SMALL;
}

typedef struct counted {
    size_t asked, whole, peak;
    uint64_t allocations, deallocations, out;
} counted;

static void must_count(weir_resource *pool, const counted *all, size_t cache_bytes)
{
    cached_memory cached = cached_in(pool);
    must(cached.most_bytes <= cache_bytes + 10 * SMALL);
    must(cached.depot_bytes <= cache_bytes);
    weir_resource_statistics s = statistics_of(pool);
    must_equal(s.out_bytes, all->asked);
    must_equal(s.out_blocks, all->out);
    must_equal(s.peak_out_bytes, all->peak);
    must_equal(s.allocations, all->allocations);
    must_equal(s.deallocations, all->deallocations);
    must_equal(s.free_bytes + all->whole, s.held_bytes);
}

static void turn(pool_scene *it, held *at, weir_stream stream, size_t bytes,
                 counted *all)
{
    if (at->ptr == NULL) {
        *at = (held){ take(it->pool, stream, bytes), bytes };
        all->asked += bytes;
        all->whole += whole_at(it->pool, at);
        all->allocations++, all->out++;
        all->peak = all->peak < all->asked ? all->asked : all->peak;
        return;
    }
    must_ok(weir_stream_wait(it->device, stream, it->streams[0]));
    must_ok(weir_stream_wait(it->device, stream, it->streams[1]));
    all->whole -= whole_at(it->pool, at);
    give(it->pool, stream, at->ptr, at->bytes);
    all->asked -= at->bytes;
    all->deallocations++, all->out--;
    at->ptr = NULL;
}

/* One thread: all numbers are exact, whatever is kept where; and the bounds hold. */
static void caches_count_and_keep_to_their_bounds(void **state)
{
    (void)state;
    enum { OUT_MOST = 24 };
    uint64_t runs = support_bound("test_pool_kept.count_runs", 10, 200);
    for (uint64_t run = 0; run < runs; run++) {
        uint64_t seed = support_seed(run);
        const size_t cache_bytes = LARGE * (size_t)support_random_between(&seed, 1, 6);
        pool_scene it = open_cached(0, cache_bytes);
        held out[OUT_MOST] = { { NULL, 0 } };
        counted all = { 0 };
        for (int step = 0; step < 400; step++) {
            held *at = &out[support_random_below(&seed, OUT_MOST)];
            weir_stream stream = it.streams[support_random_below(&seed, 2)];
            turn(&it, at, stream, (size_t)support_random_between(&seed, 1, 10 * SMALL),
                 &all);
            if (support_random_below(&seed, 3) == 0)
                must_count(it.pool, &all, cache_bytes);
        }
        must_ok(weir_stream_wait(it.device, it.streams[0], it.streams[1]));
        for (int i = 0; i < OUT_MOST; i++) {
            if (out[i].ptr != NULL)
                give(it.pool, it.streams[0], out[i].ptr, out[i].bytes);
        }
        close_scene(&it);
    }
}

/* Threads hand no more to each other than that either. */
static void a_depot_keeps_to_its_bound(void **state)
{
    (void)state;
    pool_scene it = open_cached(16 * LARGE, 5 * LARGE);
    blocks all = { it.pool, it.streams[0], LARGE, 16, { NULL } };
    for (int i = 0; i < 3; i++)
        turn_over_blocks(&all);
    cached_memory cached = cached_in(it.pool);
    must(cached.depot_bytes > 0 && cached.depot_bytes <= 5 * LARGE);
    must(cached.most_bytes > 0 && cached.most_bytes <= 6 * LARGE);
    close_scene(&it);
}

/* Above what is kept they go to the heap at once while others may want them, and become
 * one. */
static void large_blocks_coalesce_at_once(void **state)
{
    (void)state;
    size_t bytes = LARGE + SMALL;
    pool_scene it = open_cached(4 * bytes, 0);
    blocks all = { it.pool, it.streams[0], bytes, 4, { NULL } };
    for (int i = 0; i < 3; i++) {
        turn_over_blocks(&all);
        must_equal(cached_in(it.pool).blocks, 0);
        must_equal(statistics_of(it.pool).largest_free_bytes, 4 * bytes);
    }
    close_scene(&it);
}

/* What is kept at all is kept only while there is room: smaller ones stay. */
static void large_blocks_drive_nothing_out(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, LARGE + 2 * SMALL);
    blocks small = { it.pool, it.streams[0], SMALL, 2, { NULL } };
    blocks large = { it.pool, it.streams[0], LARGE, 2, { NULL } };
    for (int i = 0; i < 3; i++) {
        take_blocks(&small);
        take_blocks(&large);
        give_blocks(&small);
        give_blocks(&large);
        must_equal(cached_in(it.pool).blocks, 3);
        must_equal(cached_in(it.pool).bytes, LARGE + 2 * SMALL);
    }
    close_scene(&it);
}

/* One more than there is room for, and all of it goes. */
static void small_blocks_keep_to_the_bound(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 4 * SMALL);
    blocks all = { it.pool, it.streams[0], 2 * SMALL, 3, { NULL } };
    for (int i = 0; i < 3; i++) {
        take_blocks(&all);
        give_blocks(&all);
        must(cached_in(it.pool).most_bytes <= 4 * SMALL);
    }
    close_scene(&it);
}

/* A chunk in pieces: blocks of one stream or of two in turn, of which every other two
 * are back. Stream 0 has a small one in its cache, and what is free around that, with
 * it, is larger than the pieces. */
#define PART ((size_t)32 << 10)
#define PARTS 30

typedef struct pieces {
    pool_scene it;
    int streams;
    void *ptrs[PARTS];
    void *other;
} pieces;

static pieces in_pieces(int streams)
{
    pieces all = { .it = open_cached(0, 4 * MIB), .streams = streams };
    pool_scene *it = &all.it;
    void *before = take_on(it, 0, PART / 2), *small = take_on(it, 0, SMALL);
    for (int i = 0; i < PARTS; i++)
        all.ptrs[i] = take_on(it, i % streams, PART);
    for (int i = 0; i < PARTS; i++) {
        if (i % 4 < 2)
            give_on(it, i % streams, all.ptrs[i], PART);
    }
    give_on(it, 0, before, PART / 2);
    all.other = take_on(it, 0, PART + PART / 4);
    give_on(it, 0, small, SMALL);
    must_equal(kept_in(it->pool), SMALL);
    return all;
}

/* Takes what is only there with what is kept. */
static void *take_kept(pieces *all)
{
    const weir__pool *pool = all->it.pool->self;
    must_equal(pool->held_bytes, MIB);
    must_equal(pool->cache_bytes, 4 * MIB);
    void *ptr = take_on(&all->it, 0, 2 * PART + PART / 2 + SMALL);
    must_equal(pool->held_bytes, MIB);
    must_equal(pool->cache_bytes, all->streams == 1 ? 4 * MIB : 16 * SMALL);
    return ptr;
}

static void close_pieces(pieces *all, void *kept)
{
    give_on(&all->it, 0, all->other, PART + PART / 4);
    give_on(&all->it, 0, kept, 2 * PART + PART / 2 + SMALL);
    for (int i = 0; i < PARTS; i++) {
        if (i % 4 >= 2)
            give_on(&all->it, i % all->streams, all->ptrs[i], PART);
    }
    close_scene(&all->it);
}

/* Once that was in the way though much is free of several streams, and once a pool grew
 * for want of a whole piece; but what one stream has in pieces is in nobody's way. */
static void threads_keep_less_of_what_several_streams_have(void **state)
{
    (void)state;
    for (int streams = 1; streams <= 2; streams++) {
        pieces all = in_pieces(streams);
        const weir__pool *pool = all.it.pool->self;
        void *kept = take_kept(&all);
        void *whole = take_on(&all.it, 0, 4 * PART); /* no such piece is free */
        must_equal(pool->held_bytes, 2 * MIB);
        must_equal(pool->cache_bytes, streams == 1 ? 4 * MIB : 2 * MIB);
        give_on(&all.it, 0, whole, 4 * PART);
        close_pieces(&all, kept);
    }
}

static void threads_keep_as_much_again_once_one_stream_has_all(void **state)
{
    (void)state;
    pieces all = in_pieces(2);
    const weir__pool *pool = all.it.pool->self;
    void *kept = take_kept(&all), *taken[PARTS];
    int count = 0;
    while (weir__pool_is_shared(pool) && count < PARTS) {
        must_equal(pool->cache_bytes, 16 * SMALL);
        taken[count++] = take_on(&all.it, 0, PART);
    }
    void *whole = take_on(&all.it, 0, 4 * PART); /* a miss */
    must_equal(pool->cache_bytes, 4 * MIB);
    give_on(&all.it, 0, whole, 4 * PART);
    while (count > 0)
        give_on(&all.it, 0, taken[--count], PART);
    close_pieces(&all, kept);
}

/* ---- no host memory ---- */

/* Fails the `nth` allocation of a first call, on a device without a ledger, which would
 * be deaf from then on. Answers how many allocations there were. */
static uint64_t first_call_without(uint64_t nth, uint64_t *refused, uint64_t *without)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.no_ledger = true;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    weir_device *device = open_with("emulated:0", &options);
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_resource *pool;
    must_ok(weir_resource_open(device, "pool/device", &pool));

    void *ptr = NULL;
    weir__host_fail_at(nth, nth % 2 == 0);
    weir_status status = weir_allocate(pool, stream, SMALL, WEIR_ALIGNMENT, &ptr);
    uint64_t calls = weir__host_calls();
    weir__host_fail_at(0, false);
    must(status == WEIR_OK || status == WEIR_OUT_OF_HOST_MEMORY);
    must((status == WEIR_OK) == (ptr != NULL));
    *refused += status != WEIR_OK;
    *without += status == WEIR_OK && cached_in(pool).caches == 0;
    if (status == WEIR_OK)
        give(pool, stream, ptr, SMALL);

    blocks all = { pool, stream, SMALL, 4, { NULL } };
    turn_over_blocks(&all); /* now there is a cache */
    turn_over_blocks(&all);
    must_equal(cached_in(pool).caches, 1);
    must(kept_in(pool) > 0);
    must_equal(statistics_of(pool).out_blocks, 0);
    weir_resource_unref(pool);
    end_stream(device, stream);
    close_emulated(device); /* and nothing is left */
    return calls;
}

static void seats_do_without_host_memory(void **state)
{
    (void)state;
    uint64_t refused = 0, without = 0, nth = 1;
    while (first_call_without(nth, &refused, &without) >= nth)
        nth++;
    must(nth > 8 && refused > 0 && without > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_streams_caches_end_with_it),
        cmocka_unit_test(a_capture_empties_its_streams_caches),
        cmocka_unit_test(nothing_is_kept_for_streams_of_the_moment),
        cmocka_unit_test(nothing_is_kept_on_an_eager_device),
        cmocka_unit_test(nothing_is_kept_without_a_cache),
        cmocka_unit_test(misuse_is_told_by_warm_caches),
        cmocka_unit_test(a_block_on_two_stacks_goes_out_once),
        cmocka_unit_test(caches_count_and_keep_to_their_bounds),
        cmocka_unit_test(a_depot_keeps_to_its_bound),
        cmocka_unit_test(large_blocks_coalesce_at_once),
        cmocka_unit_test(large_blocks_drive_nothing_out),
        cmocka_unit_test(small_blocks_keep_to_the_bound),
        cmocka_unit_test(threads_keep_less_of_what_several_streams_have),
        cmocka_unit_test(threads_keep_as_much_again_once_one_stream_has_all),
        cmocka_unit_test(seats_do_without_host_memory),
    };
    return cmocka_run_group_tests_name("what a pool keeps", tests, NULL, NULL);
}
