/* test_pool_threads.c - when a pool grows beside what threads keep, and when it takes
 * that first; and what it learns from having grown. Both depend on how many threads
 * keep much. */
#include "internal.h"
#include "pool_internal.h"
#include "pool_share.h"
#include "resource_parts.h"
#include "support_actor.h"

#define SMALL   ((size_t)256)
#define MOST    (8 * SMALL)
#define THREADS 3

/* Threads that do one thing after the other; the first is this one. */
typedef struct crew {
    pool_scene it;
    actor *actors[THREADS];
    int threads;
} crew;

static crew crew_begin(const weir_pool_options *options, int threads)
{
    crew self = { .it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 4 * MIB),
                  .threads = threads };
    weir_resource *leaf = open_leaf(self.it.device);
    must_ok(weir_pool_create(leaf, options, &self.it.pool));
    weir_resource_unref(leaf);
    for (int i = 1; i < threads; i++)
        self.actors[i] = actor_begin();
    return self;
}

static void crew_end(crew *self)
{
    for (int i = 1; i < self->threads; i++)
        actor_end(self->actors[i]);
    close_scene(&self->it);
}

/* All threads by turns. */
static void crew_does(const crew *self, void (*job)(void *argument), blocks *all,
                      int count)
{
    for (int i = 0; i < count; i++) {
        if (i % self->threads == 0)
            job(&all[i]);
        else
            actor_does(self->actors[i % self->threads], job, &all[i]);
    }
}

/* Takes all of them and gives them back, twice: from then on there is a bin. */
static void crew_keeps(const crew *self, blocks *all, int count)
{
    for (int turn = 0; turn < 2; turn++) {
        crew_does(self, take_blocks, all, count);
        crew_does(self, give_blocks, all, count);
    }
}

/* A pool grows while little is free, and nothing that threads keep goes for that; but
 * not beyond the slack and what a thread may keep of its only stream, as many times as
 * there are threads that keep more than half of what they may of a stream. */
static void a_small_pool_grows_first(void **state)
{
    (void)state;
    static const struct {
        size_t slack_bytes, cache_bytes;
        int streams; /* so many blocks of MOST are kept, of a stream each */
        int threads;
        bool grows;
        size_t lone_bytes; /* as where a pool was told nothing; 0: as it is */
    } cases[] = {
        { 2 * MOST, MOST, 1, 1, true, 0 },
        { MOST / 2, MOST, 1, 1, true, 0 },
        { MOST / 2, MOST, 2, 1, false, 0 },
        { MOST / 2, MOST, 2, 1, true, 2 * MOST },
        { MOST + SMALL, MOST, 2, 1, true, 0 },
        { WEIR_POOL_NO_SLACK, 2 * MOST, 1, 1, false, 0 },
        { MOST / 2, MOST, 2, 2, true, 0 },
        { MOST / 2, MOST, 3, 2, false, 0 },
        { MOST / 2, MOST, 3, 3, true, 0 },
        { MOST / 2, MOST, 4, 3, true, 0 }, /* the slack counts for each as well */
        { SMALL, 2 * MOST, 3, 3, false, 0 }, /* nobody keeps more than half */
        { SMALL, 2 * MOST - SMALL, 3, 3, true, 0 },
        { WEIR_POOL_NO_SLACK, MOST, 3, 3, false, 0 },
        { SMALL, SIZE_MAX, 4, 3, true, 0 },
        { SIZE_MAX / 2 + 1, SIZE_MAX, 4, 3, true, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
        options.growth_bytes = MOST;
        options.slack_bytes = cases[i].slack_bytes;
        options.cache_bytes = cases[i].cache_bytes;
        crew self = crew_begin(&options, cases[i].threads);
        pool_scene *it = &self.it;
        const size_t kept = (size_t)cases[i].streams;
        blocks all[STREAMS];
        for (int j = 0; j < cases[i].streams; j++)
            all[j] = (blocks){ it->pool, it->streams[j], MOST, 1, { NULL } };
        crew_keeps(&self, all, cases[i].streams);
        must_equal(cached_in(it->pool).blocks, kept);
        must_equal(cached_in(it->pool).bytes, kept * MOST);
        weir__pool *pool = it->pool->self;
        if (cases[i].lone_bytes != 0)
            pool->lone_bytes = cases[i].lone_bytes;
        void *ptr = take(it->pool, it->streams[0], SMALL);
        must_equal(statistics_of(it->pool).held_bytes,
                   (kept + cases[i].grows) * MOST);
        must_equal(cached_in(it->pool).blocks, cases[i].grows ? kept : 0);
        must(pool->much_bytes >= pool->cut_bytes);
        give(it->pool, it->streams[0], ptr, SMALL);
        crew_end(&self);
    }
}

/* A chunk in parts that two streams have, some of which are back, and threads that keep
 * much; and it is 280 KiB that may lie in pieces. */
#define PART  ((size_t)32 << 10)
#define PARTS 30
#define CUT   ((size_t)280 << 10)
#define WHOLE (10 * PART) /* there is no such piece */

typedef struct pieces {
    crew all;
    weir__pool *pool;
    void *ptrs[PARTS];
} pieces;

static bool is_back(int part)
{
    return part % 4 == 1 || part == 2 || part == PARTS - 3;
}

static size_t free_in(const weir__pool *pool)
{
    return pool->heap.bytes - pool->heap.taken_bytes;
}

static pieces in_pieces(int threads)
{
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = MIB;
    options.slack_bytes = CUT;
    options.cache_bytes = 4 * SMALL;
    pieces self = { .all = crew_begin(&options, threads) };
    pool_scene *it = &self.all.it;
    self.pool = it->pool->self;
    blocks kept[THREADS];
    for (int i = 0; i < threads; i++)
        kept[i] = (blocks){ it->pool, it->streams[0], SMALL, 3, { NULL } };
    crew_keeps(&self.all, kept, threads);
    for (int i = 0; i < PARTS; i++)
        self.ptrs[i] = take(it->pool, it->streams[i % 2], PART);
    for (int i = 0; i < PARTS; i++) {
        if (is_back(i))
            give(it->pool, it->streams[i % 2], self.ptrs[i], PART);
    }
    must_equal(self.pool->held_bytes, MIB);
    must(free_in(self.pool) > CUT && free_in(self.pool) < 2 * CUT);
    return self;
}

static void pieces_end(pieces *self)
{
    pool_scene *it = &self->all.it;
    for (int i = 0; i < PARTS; i++) {
        if (!is_back(i))
            give(it->pool, it->streams[i % 2], self->ptrs[i], PART);
    }
    crew_end(&self->all);
}

/* A pool that grows though so much is free in pieces lets threads keep less from then
 * on, and looks where it cuts. Where several keep much, there may be more. */
static void what_is_much_goes_by_threads(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        pieces self = in_pieces(threads);
        pool_scene *it = &self.all.it;
        void *whole = take(it->pool, it->streams[0], WHOLE);
        must_equal(self.pool->held_bytes, 2 * MIB);
        must_equal(self.pool->is_frayed, threads == 1);
        must(free_in(self.pool) > 2 * CUT && free_in(self.pool) < 4 * CUT);
        must_equal(weir__pool_is_wary(self.pool), threads == 1);
        give(it->pool, it->streams[0], whole, WHOLE);
        pieces_end(&self);
    }
}

/* More than may lie in one piece, but a 16th of all. */
static void little_of_all_frays_nothing(void **state)
{
    (void)state;
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = MIB;
    options.slack_bytes = PART / 4;
    options.cache_bytes = 4 * SMALL;
    crew self = crew_begin(&options, 1);
    pool_scene *it = &self.it;
    const weir__pool *pool = it->pool->self;
    void *parts[MIB / PART];
    for (size_t i = 0; i < MIB / PART; i++)
        parts[i] = take(it->pool, it->streams[i % 2], PART);
    give(it->pool, it->streams[0], parts[0], PART); /* no neighbours */
    give(it->pool, it->streams[1], parts[MIB / PART - 1], PART);
    must_equal(pool->held_bytes, MIB);
    must(weir__pool_is_shared(pool));
    must(free_in(pool) > pool->cut_bytes && free_in(pool) == MIB / 16);
    void *more = take(it->pool, it->streams[0], PART + SMALL);
    must_equal(pool->held_bytes, 2 * MIB);
    must(!pool->is_frayed);
    give(it->pool, it->streams[0], more, PART + SMALL);
    for (size_t i = 1; i + 1 < MIB / PART; i++)
        give(it->pool, it->streams[i % 2], parts[i], PART);
    crew_end(&self);
}

/* A pool that has enough, but for what one stream keeps of it, where another wants some
 * again and again: after a while it grows, and that is no reason to keep less. */
static void what_is_taken_back_is_bounded(void **state)
{
    (void)state;
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = 16 * MOST;
    options.slack_bytes = SMALL;
    options.cache_bytes = 8 * MOST;
    crew self = crew_begin(&options, 1);
    pool_scene *it = &self.it;
    weir__pool *pool = it->pool->self;
    blocks all = { it->pool, it->streams[0], MOST, 16, { NULL } };
    turn_over_blocks(&all);
    must_equal(pool->held_bytes, 16 * MOST);
    uint64_t before = 0;
    for (int i = 0; i < 100 && pool->held_bytes == 16 * MOST; i++) {
        before = pool->taken_back;
        void *ptr = take(it->pool, it->streams[1], 14 * MOST);
        give(it->pool, it->streams[1], ptr, 14 * MOST);
        turn_over_blocks(&all);
    }
    must_equal(pool->held_bytes, 32 * MOST);
    must(before > 64 && before < 64 + 16 && pool->taken_back == before);

    /* As for a smaller request, which had room enough. */
    const weir__request request = { .pool = pool, .bytes = SMALL };
    must(weir__pool_is_shared(pool));
    weir__pool_note_frayed(&request);
    must(!pool->is_frayed);
    pool->taken_back = 0;
    weir__pool_note_frayed(&request);
    must(pool->is_frayed);
    crew_end(&self);
}

/* What a pool takes back where it has no choice does not count: later it may have. */
static void what_has_to_be_taken_back_is_not_counted(void **state)
{
    (void)state;
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = options.limit_bytes = 16 * MOST;
    options.cache_bytes = 16 * MOST;
    crew self = crew_begin(&options, 1);
    pool_scene *it = &self.it;
    const weir__pool *pool = it->pool->self;
    blocks all = { it->pool, it->streams[0], MOST, 16, { NULL } };
    turn_over_blocks(&all);
    turn_over_blocks(&all);
    must(cached_in(it->pool).blocks > 0);
    void *ptr = take(it->pool, it->streams[1], 16 * MOST);
    must_equal(cached_in(it->pool).blocks, 0);
    must_equal(pool->taken_back, 0);
    give(it->pool, it->streams[1], ptr, 16 * MOST);
    crew_end(&self);
}

/* Takes and gives back, until the pool has forgotten why threads keep less; how many
 * blocks came back before. */
static uint64_t blocks_until_forgotten(pool_scene *it, size_t bytes, int at_once)
{
    weir__pool *pool = it->pool->self;
    blocks all = { it->pool, it->streams[0], bytes, at_once, { NULL } };
    const uint64_t before = pool->releases;
    for (int i = 0; i < 400 && (pool->is_frayed || pool->is_crowded); i++)
        turn_over_blocks(&all);
    return pool->releases - before;
}

/* Nothing keeps threads from having more for ever: after some hundred blocks that came
 * back the next miss lets them; of a small block, or of one that is never kept. */
static void why_threads_keep_less_is_forgotten(void **state)
{
    (void)state;
    for (int small = 0; small <= 1; small++) {
        pieces self = in_pieces(1);
        pool_scene *it = &self.all.it;
        void *whole = take(it->pool, it->streams[0], WHOLE);
        must(self.pool->is_frayed && !self.pool->is_crowded);
        self.pool->is_crowded = true; /* as if it had become that as well */
        uint64_t count = small ? blocks_until_forgotten(it, SMALL, 8)
                               : blocks_until_forgotten(it, PART, 1);
        must(!self.pool->is_frayed && !self.pool->is_crowded);
        must(self.pool->forget_at == UINT64_MAX); /* else each miss would look */
        must(count >= 240 && count < 300);
        give(it->pool, it->streams[0], whole, WHOLE);
        pieces_end(&self);
    }
}

/* But where a pool grows in place, for the sake of having little free, until all has
 * gone back. */
static void in_place_nothing_is_forgotten(void **state)
{
    (void)state;
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 16 * MIB);
    must_ok(weir_resource_open(it.device,
                               "pool(slack=256KiB, cache=1KiB)/growable(chunk=2MiB)",
                               &it.pool));
    const weir__pool *pool = it.pool->self;
    void *parts[PARTS];
    for (int i = 0; i < PARTS; i++)
        parts[i] = take(it.pool, it.streams[0], 2 * PART);
    for (int i = 0; i < PARTS; i += 2)
        give(it.pool, it.streams[0], parts[i], 2 * PART);
    must(!pool->is_frayed);
    void *whole = take(it.pool, it.streams[0], 8 * PART);
    (void)blocks_until_forgotten(&it, PART, 1);
    must(pool->is_frayed);
    give(it.pool, it.streams[0], whole, 8 * PART);
    for (int i = 1; i < PARTS; i += 2)
        give(it.pool, it.streams[0], parts[i], 2 * PART);
    must(weir_resource_trim_sync(it.pool, 0) > 0 && pool->held_bytes == 0);
    must(!pool->is_frayed);
    close_scene(&it);
}

/* Who keeps all that he may at the moment, where that is little, does not keep much. */
static void nobody_keeps_much_of_little(void **state)
{
    (void)state;
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = MIB;
    options.cache_bytes = 16 * MOST;
    crew self = crew_begin(&options, THREADS);
    pool_scene *it = &self.it;
    weir__pool *pool = it->pool->self;
    blocks all[THREADS];
    for (int i = 0; i < THREADS; i++)
        all[i] = (blocks){ it->pool, it->streams[i], MOST, 4, { NULL } };
    crew_keeps(&self, all, THREADS);
    weir__pool_seats_close(pool);
    weir__mutex_lock(&pool->lock);
    pool->cache_bytes = 4 * MOST; /* as in a pool that is short */
    const weir__kept kept = weir__pool_kept_locked(pool);
    weir__mutex_unlock(&pool->lock);
    weir__pool_seats_open(pool);
    must_equal(kept.bytes, THREADS * 4 * MOST);
    must_equal(kept.threads, 0);
    crew_end(&self);
}

static void lets_go(void *argument)
{
    (void)argument;
    weir_thread_flush();
}

/* Also where the pool does not grow: after some requests that went the whole way, here
 * of a stream that has nothing, for what it takes is another's when it comes back. */
static void threads_are_counted_now_and_then(void **state)
{
    (void)state;
    pieces self = in_pieces(2);
    pool_scene *it = &self.all.it;
    void *whole = take(it->pool, it->streams[0], WHOLE);
    blocks none[2] = { 0 };
    crew_does(&self.all, lets_go, none, 2);
    must_equal(self.pool->threads, 2);
    for (int i = 0; self.pool->threads == 2 && i < 16; i++) {
        void *ptr = take(it->pool, it->streams[2], 4 * PART);
        must_ok(weir_stream_sync(it->device, it->streams[2]));
        give(it->pool, it->streams[0], ptr, 4 * PART);
    }
    must_equal(self.pool->threads, 1);
    must(self.pool->unlooked <= 4);
    must_equal(self.pool->held_bytes, 2 * MIB);
    must(weir__pool_is_wary(self.pool));
    give(it->pool, it->streams[0], whole, WHOLE);
    pieces_end(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_pool_grows_first),
        cmocka_unit_test(what_is_much_goes_by_threads),
        cmocka_unit_test(little_of_all_frays_nothing),
        cmocka_unit_test(what_is_taken_back_is_bounded),
        cmocka_unit_test(what_has_to_be_taken_back_is_not_counted),
        cmocka_unit_test(why_threads_keep_less_is_forgotten),
        cmocka_unit_test(in_place_nothing_is_forgotten),
        cmocka_unit_test(nobody_keeps_much_of_little),
        cmocka_unit_test(threads_are_counted_now_and_then),
    };
    return cmocka_run_group_tests_name("how pools grow beside what threads keep", tests,
                                       NULL, NULL);
}
