/* test_pool_short.c - a pool that has no room to grow, and little left: it wastes next
 * to nothing, though its memory is of several streams, and keeps their order. */
#include "pool_seats.h"
#include "resource_parts.h"
#include "support_actor.h"

#define LIVE 2048

static pool_scene open_fixed(weir_emulated_scheduler scheduler, size_t bytes)
{
    pool_scene it = open_scene_without_pool(scheduler, 64 * MIB);
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.initial_bytes = options.limit_bytes = bytes;
    options.slack_bytes = (size_t)1 << 40; /* as much as there may be */
    weir_resource *leaf = open_leaf(it.device);
    must_ok(weir_pool_create(leaf, &options, &it.pool));
    weir_resource_unref(leaf);
    return it;
}

typedef struct turnover {
    pool_scene *it;
    uint64_t draws;
    struct {
        void *ptr;
        size_t bytes;
        int stream;
    } blocks[LIVE];
    size_t live, peak; /* in units of 256 bytes */
    uint64_t refused;
    bool works;        /* on what it takes */
    bool is_beside;    /* another: with each second stream, */
    int first_stream;  /* beginning here */
} turnover;

static void give_one(turnover *self, size_t at)
{
    if (self->blocks[at].ptr == NULL)
        return;
    if (self->works)
        give_on(self->it, self->blocks[at].stream, self->blocks[at].ptr,
                self->blocks[at].bytes);
    else
        give(self->it->pool, self->it->streams[self->blocks[at].stream],
             self->blocks[at].ptr, self->blocks[at].bytes);
    self->blocks[at].ptr = NULL;
    self->live -= self->blocks[at].bytes;
}

static int some_stream(turnover *self)
{
    int count = self->is_beside ? STREAMS / 2 : STREAMS;
    int at = (int)support_random_below(&self->draws, (uint64_t)count);
    return self->is_beside ? self->first_stream + 2 * at : at;
}

/* In the place of one another of 256 B to 8 KiB, each doubling as likely, on one of the
 * streams. */
static void turn_one(turnover *self, size_t at)
{
    give_one(self, at);
    size_t least = (size_t)1 << support_random_below(&self->draws, 5);
    size_t grains = least + (size_t)support_random_below(&self->draws, least);
    int stream = some_stream(self);
    void *ptr;
    self->blocks[at].bytes = grains * 256;
    self->blocks[at].stream = stream;
    weir_status status =
        weir_allocate(self->it->pool, self->it->streams[stream], grains * 256,
                      WEIR_ALIGNMENT, &ptr);
    self->refused += status != WEIR_OK;
    must(status == WEIR_OK || status == WEIR_LIMIT_REACHED);
    if (status != WEIR_OK)
        return;
    if (self->works)
        stamp(self->it->device, self->it->streams[stream], ptr, grains * 256,
              (uintptr_t)ptr);
    self->blocks[at].ptr = ptr;
    self->live += grains * 256;
    if (self->peak < self->live)
        self->peak = self->live;
}

static void turn_over(turnover *self, size_t live, size_t turns)
{
    for (size_t at = 0; at < live; at++)
        turn_one(self, at);
    for (size_t i = 0; i < turns; i++)
        turn_one(self, (size_t)support_random_below(&self->draws, live));
}

static void end_turnover(turnover *self)
{
    for (size_t at = 0; at < LIVE; at++)
        give_one(self, at);
    must_equal(statistics_of(self->it->pool).out_blocks, 0);
}

/* How many requests a pool of `bytes` refuses; *peak is what is live at most. */
static uint64_t refusals_of(size_t bytes, uint64_t seed, size_t *peak)
{
    pool_scene it = open_fixed(WEIR_EMULATED_NO_WORK, bytes);
    turnover all = { .it = &it, .draws = seed };
    turn_over(&all, LIVE, 10 * (size_t)LIVE);
    *peak = all.peak;
    end_turnover(&all);
    close_scene(&it);
    return all.refused;
}

/* As if all streams were one. */
static void several_streams_need_little_more_than_is_live(void **state)
{
    (void)state;
    uint64_t runs = support_bound("test_pool_short.fits", 3, 40);
    for (uint64_t run = 0; run < runs; run++) {
        uint64_t seed = support_seed(run);
        size_t peak, other;
        must_equal(refusals_of(32 * MIB, seed, &peak), 0);
        must_equal(refusals_of(peak / 100 * 108 / 256 * 256, seed, &other),
                   0);
        must_equal(other, peak);
    }
}

/* With work on all of it: who got what too early, the device finds. */
static void what_is_merged_is_in_order(void **state)
{
    (void)state;
    uint64_t runs = support_bound("test_pool_short.runs", 20, 500);
    for (uint64_t run = 0; run < runs; run++) {
        uint64_t seed = support_seed(run);
        pool_scene it = open_fixed(WEIR_EMULATED_STEPPED, 128 * KIB);
        turnover all = { .it = &it, .draws = seed, .works = true };
        turn_over(&all, 64, 300);
        must(waits(&it) > 0);
        end_turnover(&all);
        must_ok(weir_device_sync(it.device));
        must_equal(statistics_of(it.pool).free_bytes, 128 * KIB);
        give(it.pool, it.streams[0], take(it.pool, it.streams[0], 128 * KIB),
             128 * KIB);
        close_scene(&it);
    }
}

static void turns_over(void *argument)
{
    turnover *self = argument;
    turn_over(self, 48, 200);
    for (size_t at = 0; at < 48; at++)
        give_one(self, at);
}

/* Two threads, each with streams of its own: what one found while the other merged is
 * found again. */
static void threads_merge_side_by_side(void **state)
{
    (void)state;
    uint64_t runs = support_bound("test_pool_short.thread_runs", 30, 1000);
    for (uint64_t run = 0; run < runs; run++) {
        uint64_t seed = support_seed(run);
        pool_scene it = open_fixed(WEIR_EMULATED_STEPPED, 128 * KIB);
        turnover halves[2];
        void *arguments[2];
        for (int i = 0; i < 2; i++) {
            halves[i] = (turnover){ .it = &it, .draws = seed + (uint64_t)i };
            halves[i].works = halves[i].is_beside = true;
            halves[i].first_stream = i;
            arguments[i] = &halves[i];
        }
        must_ok(weir_emulated_run_threads(it.device, 2, turns_over, arguments));
        must_equal(statistics_of(it.pool).out_blocks, 0);
        must_ok(weir_device_sync(it.device));
        must_equal(statistics_of(it.pool).free_bytes, 128 * KIB);
        close_scene(&it);
    }
}

/* Who takes of what two streams left is one that Weir does not know: nobody can ask it
 * for an event later, so nothing is merged under its clock, and the rest has one. */
static void what_is_left_of_several_can_be_waited_for(void **state)
{
    (void)state;
    enum { COUNT = 22 };
    char *ptrs[COUNT];
    pool_scene it = open_scene(1, COUNT * 4 * KIB, COUNT * 4 * KIB, MIB);
    weir_stream unknown;
    must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &unknown));
    for (int i = 0; i < COUNT; i++)
        ptrs[i] = take_on(&it, i < 2 ? i : 3, 4 * KIB);
    must(ptrs[1] == ptrs[0] + 4 * KIB);
    uint64_t gates[2] = { stall(&it, 0), stall(&it, 1) };
    for (int i = 0; i < 2; i++)
        give_on(&it, i, ptrs[i], 4 * KIB);
    void *a = take(it.pool, unknown, 6 * KIB);
    must(a == ptrs[0]);
    void *b = take_on(&it, 2, 2 * KIB);
    must(b == ptrs[0] + 6 * KIB);
    for (int i = 0; i < 2; i++)
        open_gate(&it, gates[i]);
    give(it.pool, unknown, a, 6 * KIB);
    give_on(&it, 2, b, 2 * KIB);
    for (int i = 2; i < COUNT; i++)
        give_on(&it, 3, ptrs[i], 4 * KIB);
    must_ok(weir_device_sync(it.device));
    must_ok(weir_emulated_stream_destroy(it.device, unknown));
    close_scene(&it);
}

/* Each thread and stream keeps less, until there is room to grow again. A test build's
 * share of what is held is all of it. */
static void threads_keep_less_of_a_pool_without_room(void **state)
{
    (void)state;
    pool_scene it = open_cached(MIB, 4 * MIB);
    const weir__pool *pool = it.pool->self;
    must_equal(pool->cache_bytes, 4 * MIB);
    void *a = take_on(&it, 0, 256);
    must_equal(pool->cache_bytes, MIB);
    give_on(&it, 0, a, 256);
    must_equal(weir_resource_trim_sync(it.pool, 0), MIB);
    (void)try_take(&it, 0, 2 * MIB, WEIR_LIMIT_REACHED);
    must_equal(pool->cache_bytes, 4 * MIB);
    close_scene(&it);
}

/* ... and more of a large one, in steps, unless it was told how much: a test build's
 * share is all of it, rounded down to 16 MiB. */
static void threads_keep_more_of_a_large_pool(void **state)
{
    (void)state;
    static const size_t told[] = { 0, 4 * MIB };
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        pool_scene it = open_cached(0, told[i]);
        const weir__pool *pool = it.pool->self;
        const size_t least = told[i] != 0 ? told[i] : 64 * MIB;
        void *most = take_on(&it, 0, 63 * MIB), *step[17];
        for (size_t n = 0; n < 17; n++) {
            step[n] = take_on(&it, 0, MIB);
            must_equal(pool->held_bytes, (64 + n) * MIB);
            if (n < 16)
                must_equal(pool->cache_bytes, least);
        }
        must_equal(pool->cache_bytes, told[i] != 0 ? told[i] : 80 * MIB);
        give_on(&it, 0, most, 63 * MIB);
        must_equal(i == 0 ? weir_resource_trim_sync(it.pool, 0)
                          : weir_pool_give_back(it.pool), 63 * MIB);
        must_equal(pool->cache_bytes, least);
        for (size_t n = 0; n < 17; n++)
            give_on(&it, 0, step[n], MIB);
        close_scene(&it);
    }
}

static size_t may_keep(weir_resource *mr, weir_stream stream)
{
    give(mr, stream, take(mr, stream, 256), 256);
    const weir__seat *seat = weir__seat_here(mr->self);
    const weir__cache *cache = weir__cache_find(seat, weir__stream_of(stream));
    must(cache != NULL);
    return cache->most_bytes;
}

/* ... and a thread more of a stream while that is its only one: by default, and where
 * nothing is in the way. */
static void a_thread_keeps_more_of_its_only_stream(void **state)
{
    (void)state;
    static const struct {
        size_t limit, told, lone, each;
    } cases[] = {
        { 0, 0, 128 * MIB, 64 * MIB },
        { 0, 4 * MIB, 4 * MIB, 4 * MIB },
        { MIB, 0, MIB, MIB },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pool_scene it = open_cached(cases[i].limit, cases[i].told);
        const weir_stream first = it.streams[0], other = it.streams[1];
        must_equal(may_keep(it.pool, first), cases[i].lone);
        must_equal(may_keep(it.pool, other), cases[i].each);
        must_equal(may_keep(it.pool, first), cases[i].each);
        must_ok(weir_stream_destroy(it.device, other));
        it.streams[1] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        must_equal(may_keep(it.pool, first), cases[i].lone);
        close_scene(&it);
    }
}

/* A cache that is there learns of it; and a large pool allows no more than it allows
 * for any: see above. */
static void what_may_be_kept_goes_with_the_pool(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    must_equal(may_keep(it.pool, it.streams[0]), 128 * MIB);
    void *most = take_on(&it, 0, 111 * MIB);
    must_equal(may_keep(it.pool, it.streams[0]), 128 * MIB);
    void *more = take_on(&it, 0, 32 * MIB);
    must_equal(may_keep(it.pool, it.streams[0]), 144 * MIB);
    give_on(&it, 0, more, 32 * MIB);
    give_on(&it, 0, most, 111 * MIB);
    must(weir_resource_trim_sync(it.pool, 0) >= 143 * MIB);
    must_equal(may_keep(it.pool, it.streams[0]), 128 * MIB);
    close_scene(&it);
}

/* A thread that kept more of its only stream gives up what is too much when there comes
 * another: where that is enough, some of what it has most of; else all. */
static void a_second_stream_takes_what_is_too_much(void **state)
{
    (void)state;
    enum { COUNT = 6, MOST = 8 * 256 };
    for (size_t sizes = 2; sizes <= COUNT; sizes += COUNT - 2) {
        pool_scene it = open_cached(0, MOST);
        weir__pool *pool = it.pool->self;
        void *ptrs[COUNT];
        for (size_t n = 0; n < COUNT; n++)
            ptrs[n] = take(it.pool, it.streams[0], (1 + n % sizes) * 256);
        pool->lone_bytes = MIB; /* as where a pool was told nothing */
        weir__seat_fit(pool, weir__seat_here(pool));
        for (size_t n = 0; n < COUNT; n++)
            give(it.pool, it.streams[0], ptrs[n], (1 + n % sizes) * 256);
        must(cached_in(it.pool).most_bytes > MOST);
        (void)weir__pool_take_seat(pool, it.streams[1]);
        const size_t kept = cached_in(it.pool).bytes;
        must(sizes == 2 ? kept > 0 && kept <= MOST / 2 : kept == 0);
        must_equal(may_keep(it.pool, it.streams[0]), MOST);
        close_scene(&it);
    }
}

/* What grows in place begins with half of that, be it one stream or several. */
static void threads_keep_less_where_a_pool_grows_in_place(void **state)
{
    (void)state;
    weir_resource *mr;
    weir_device *device = open_stepped(1);
    must_ok(weir_resource_open(device, "pool/growable", &mr));
    const weir__pool *pool = mr->self;
    must_equal(pool->cache_bytes, 32 * MIB);
    void *ptr = take(mr, WEIR_STREAM_LEGACY, 46 * MIB);
    must_equal(pool->cache_bytes, 40 * MIB);
    give(mr, WEIR_STREAM_LEGACY, ptr, 46 * MIB);
    must(weir_pool_give_back(mr) >= 46 * MIB);
    must_equal(pool->cache_bytes, 32 * MIB);
    must_equal(may_keep(mr, WEIR_STREAM_LEGACY), 32 * MIB);
    weir_resource_unref(mr);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_streams_need_little_more_than_is_live),
        cmocka_unit_test(what_is_merged_is_in_order),
        cmocka_unit_test(threads_merge_side_by_side),
        cmocka_unit_test(what_is_left_of_several_can_be_waited_for),
        cmocka_unit_test(threads_keep_less_of_a_pool_without_room),
        cmocka_unit_test(threads_keep_more_of_a_large_pool),
        cmocka_unit_test(a_thread_keeps_more_of_its_only_stream),
        cmocka_unit_test(what_may_be_kept_goes_with_the_pool),
        cmocka_unit_test(a_second_stream_takes_what_is_too_much),
        cmocka_unit_test(threads_keep_less_where_a_pool_grows_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
