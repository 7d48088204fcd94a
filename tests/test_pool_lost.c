/* test_pool_lost.c - two threads give the same block back at the same moment: whoever
 * meets it tells, nobody is handed what another has, nothing is lost for good, and the
 * counts come right again. See pool_lost.c. */
#include <sched.h>
#include <stdatomic.h>

#include "resource_parts.h"
#include "support_actor.h"
#include "support_hits.h"

#define BYTES ((size_t)253) /* asked for; whole blocks are larger */
#define BLOCK ((size_t)256)

/* ---- the stage: a pool of COUNT blocks, two threads that have a cache ---- */

#define COUNT 24

typedef struct stage {
    pool_scene scene;
    actor *threads[2];
    atomic_uint told;        /* misuse */
    bool races;              /* then it may not be known of what */
    void *out[COUNT];        /* all there are, or those that are out */
    int out_count;
} stage;

static void hears(void *context, const weir_misuse *misuse)
{
    stage *it = context;
    must(misuse->kind == WEIR_MISUSE_DOUBLE_FREE);
    must(misuse->ptr != NULL || it->races);
    must(misuse->bytes == BLOCK || misuse->bytes == BYTES);
    atomic_fetch_add(&it->told, 1);
}

static weir__pool *pool_of(const stage *it)
{
    return it->scene.pool->self;
}

static void stage_begin_in(stage *it, pool_scene scene)
{
    *it = (stage){ .scene = scene };
    weir_set_misuse_handler(hears, it);
    for (int i = 0; i < 2; i++)
        it->threads[i] = actor_begin();
    weir_stream stream = it->scene.streams[0];
    for (int i = 0; i < 2; i++) {
        blocks warm = { it->scene.pool, stream, BYTES, 1, { NULL } };
        actor_does(it->threads[i], turn_over_blocks, &warm);
    }
    (void)weir_resource_trim_sync(it->scene.pool, SIZE_MAX);
    for (it->out_count = 0; it->out_count < COUNT; it->out_count++)
        it->out[it->out_count] = take(it->scene.pool, stream, BYTES);
}

static void stage_begin(stage *it)
{
    stage_begin_in(it, open_cached(COUNT * BLOCK, 0));
}

/* Where no ledger listens. */
static void stage_begin_unheard(stage *it)
{
    pool_scene scene = open_quiet_scene();
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.limit_bytes = options.growth_bytes = COUNT * BLOCK;
    reopen_as(&scene, &options);
    stage_begin_in(it, scene);
}

/* A block that is out, and is not from now on. */
static void *pick(stage *it)
{
    return it->out[--it->out_count];
}

static void give_on_thread(stage *it, int thread, void *ptr)
{
    blocks one = { it->scene.pool, it->scene.streams[0], BYTES, 1, { ptr } };
    actor_does(it->threads[thread], give_blocks, &one);
}

static bool is_among(void *const *all, int count, const void *ptr)
{
    for (int i = 0; i < count; i++) {
        if (all[i] == ptr)
            return true;
    }
    return false;
}

typedef struct attempt {
    stage *it;
    void *ptr;
} attempt;

static void tries_to_take(void *argument)
{
    attempt *self = argument;
    const stage *it = self->it;
    weir_status status = weir_allocate(it->scene.pool, it->scene.streams[0], BYTES,
                                       WEIR_ALIGNMENT, &self->ptr);
    must(status == WEIR_OK || status == WEIR_LIMIT_REACHED);
}

/* False: there is none to be had now. What goes out was not out. */
static bool take_on_thread(stage *it, int thread)
{
    attempt one = { it, NULL };
    if (thread < 2)
        actor_does(it->threads[thread], tries_to_take, &one);
    else
        tries_to_take(&one);
    if (one.ptr == NULL)
        return false;
    must(it->out_count < COUNT);
    must(!is_among(it->out, it->out_count, one.ptr));
    it->out[it->out_count++] = one.ptr;
    return true;
}

/* All there is can be had again, each block once; and the counts are right. */
static void must_be_whole(stage *it)
{
    while (take_on_thread(it, 2))
        continue;
    (void)weir_resource_trim_sync(it->scene.pool, SIZE_MAX);
    must_ok(weir_device_sync(it->scene.device)); /* for what was set aside */
    while (take_on_thread(it, 2))
        continue;
    must_equal(it->out_count, COUNT);
    must_equal(pool_of(it)->lost.lists, 0);
    weir__heap_verify(&pool_of(it)->heap);
    weir_resource_statistics now = statistics_of(it->scene.pool);
    must_equal(now.out_blocks, COUNT);
    must_equal(now.allocations - now.deallocations, COUNT);
    must(now.out_bytes >= COUNT * BYTES && now.out_bytes <= COUNT * BLOCK);
    while (it->out_count > 0)
        give(it->scene.pool, it->scene.streams[0], pick(it), BYTES);
    (void)cached_in(it->scene.pool); /* looks them over */
    now = statistics_of(it->scene.pool);
    must_equal(now.out_blocks, 0);
    must_equal(now.out_bytes, 0);
    must_equal(now.deallocations, now.allocations);
    must_equal(now.free_bytes, now.held_bytes);
}

static void stage_end(stage *it)
{
    for (int i = 0; i < 2; i++) {
        if (it->threads[i] != NULL)
            actor_end(it->threads[i]);
    }
    weir_set_misuse_handler(NULL, NULL);
    close_scene(&it->scene);
}

/* ---- one block on two stacks ---- */

/* Where X lies on a thread's stack: with one block below it, and so many above it. In
 * a test build a magazine has two. */
typedef enum place { ON_TOP = 0, IN_FULL = 1, IN_DEPOT = 3, PLACES = 4 } place;

typedef struct knot {
    place places[2];
    int tag, link;           /* whose it has */
} knot;

/* What the two threads would have left, had both seen X out before either wrote. */
static void *tie(stage *it, const knot *as)
{
    void *x = pick(it);
    uint32_t links[2];
    weir__heap_block *block = block_at(&pool_of(it)->heap, x);
    uint32_t tags[2], out = weir__heap_tag(block);
    for (int i = 0; i < 2; i++) {
        give_on_thread(it, i, pick(it)); /* below it */
        weir__heap_set_tag(block, out);
        give_on_thread(it, i, x);
        tags[i] = weir__heap_tag(block);
        links[i] = weir__link_of(block);
        must(links[i] != 0);
    }
    must(tags[0] != tags[1] && links[0] != links[1]);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < (int)as->places[i]; k++)
            give_on_thread(it, i, pick(it)); /* above it */
    }
    weir__heap_set_tag(block, tags[as->tag]);
    weir__link_set(block, links[as->link]);
    return x;
}

/* ---- who meets it ---- */

static void hit(stage *it)
{
    while (take_on_thread(it, 0) || take_on_thread(it, 1))
        continue;
}

static void trim(stage *it)
{
    (void)weir_resource_trim_sync(it->scene.pool, SIZE_MAX);
}

static void retire(stage *it)
{
    weir_stream old = it->scene.streams[0];
    it->scene.streams[0] = make_stream(it->scene.device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_stream_wait(it->scene.device, it->scene.streams[0], old));
    end_stream(it->scene.device, old);
}

static void flushes(void *argument)
{
    (void)argument;
    weir_thread_flush();
}

static void flush(stage *it)
{
    for (int i = 0; i < 2; i++)
        actor_does(it->threads[i], flushes, NULL);
}

static void end_threads(stage *it)
{
    for (int i = 0; i < 2; i++) {
        actor_end(it->threads[i]);
        it->threads[i] = NULL;
    }
}

/* On a thread with no stack of its own, which looks in the depot and in the heap. */
static void refill(stage *it)
{
    for (int i = 0; i < 6; i++)
        (void)take_on_thread(it, 2);
}

/* Another stream, which waits for a magazine. */
static void cross(stage *it)
{
    weir_stream first = it->scene.streams[0];
    it->scene.streams[0] = it->scene.streams[1];
    for (int i = 0; i < 6; i++)
        (void)take_on_thread(it, 2);
    for (int i = 0; i < 6 && it->out_count > 0; i++)
        give(it->scene.pool, it->scene.streams[0], pick(it), BYTES);
    it->scene.streams[0] = first;
}

static void (*const meetings[])(stage *) = { hit,         trim,   retire, flush,
                                             end_threads, refill, cross };
#define MEETINGS (sizeof meetings / sizeof *meetings)

static void nothing_is_lost_or_handed_out_twice(void **state)
{
    (void)state;
    uint64_t knots = 0;
    for (uint64_t i = 0; i < (uint64_t)PLACES * PLACES * 4 * MEETINGS; i++) {
        const knot as = { { (place)(i % PLACES), (place)(i / PLACES % PLACES) },
                          (int)(i / PLACES / PLACES % 2),
                          (int)(i / PLACES / PLACES / 2 % 2) };
        if ((int)as.places[0] == 2 || (int)as.places[1] == 2)
            continue;
        support_use_seed(i);
        stage it;
        stage_begin(&it);
        (void)tie(&it, &as);
        meetings[i / PLACES / PLACES / 4](&it);
        must_be_whole(&it);
        must(atomic_load(&it.told) > 0);
        stage_end(&it);
        knots++;
    }
    print_message("%llu knots\n", (unsigned long long)knots);
    must(knots > 200);
}

static void give_slowly(const stage *it, void *ptr)
{
    weir_point point;
    must_ok(weir_point_here(it->scene.device, it->scene.streams[0], &point));
    must(weir_deallocate_after(it->scene.pool, ptr, BYTES, WEIR_ALIGNMENT, &point, 1));
}

/* One of the two goes the slow way: it has the block in the heap, perhaps as a part of
 * another, when the other comes upon it. */
static void what_is_in_the_heap_is_met(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 3 * MEETINGS * 2; i++) {
        const place places[3] = { ON_TOP, IN_FULL, IN_DEPOT };
        support_use_seed(i);
        stage it;
        stage_begin(&it);
        void *x = pick(&it);
        weir__heap_block *block = block_at(&pool_of(&it)->heap, x);
        uint32_t out = weir__heap_tag(block), owner = weir__link_of(block);
        give_on_thread(&it, 0, pick(&it));
        give_on_thread(&it, 0, x);
        for (int k = 0; k < (int)places[i % 3]; k++)
            give_on_thread(&it, 0, pick(&it));
        weir__heap_set_tag(block, out);
        weir__link_set(block, owner);
        give_slowly(&it, x);
        for (int k = 0; i % 2 == 0 && k < 3; k++) /* its neighbours, too */
            give_slowly(&it, pick(&it));
        meetings[i / 3 / 2](&it);
        must_be_whole(&it);
        must_equal(atomic_load(&it.told), 1);
        stage_end(&it);
    }
}

/* Nobody knows which stream it was freed on: so not even that one gets it before a wait
 * for the device. */
static void what_went_astray_is_set_aside(void **state)
{
    (void)state;
    const knot as = { { ON_TOP, ON_TOP }, 0, 0 };
    stage it;
    stage_begin(&it);
    void *x = tie(&it, &as);
    trim(&it);
    must_equal(atomic_load(&it.told), 1);
    weir_resource_statistics now = statistics_of(it.scene.pool);
    must_equal(now.set_aside_bytes, BLOCK); /* below x, on the second's stack */
    must_equal(now.out_blocks, COUNT - 3);
    must_equal(now.deallocations, now.allocations - (COUNT - 3));
    while (take_on_thread(&it, 2))
        continue;
    must_equal(it.out_count, COUNT - 1);
    must(is_among(it.out, it.out_count, x));
    must_be_whole(&it);
    must_equal(atomic_load(&it.told), 1);
    stage_end(&it);
}

/* A pool above holds a lock of its own while it asks for more: it is the next call that
 * tells, if it is no hit. */
static void nobody_is_told_below_another(void (*begin)(stage *it))
{
    const knot as = { { IN_DEPOT, IN_DEPOT }, 0, 1 };
    stage it;
    begin(&it);
    (void)tie(&it, &as);
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = BLOCK;
    weir_resource *above;
    must_ok(weir_pool_create(it.scene.pool, &options, &above));
    void *drawn[COUNT];
    int count = 0;
    while (pool_of(&it)->untold.lists == 0) {
        must(count < COUNT);
        drawn[count++] = take(above, it.scene.streams[0], BYTES);
    }
    must_equal(atomic_load(&it.told), 0);
    do
        must(take_on_thread(&it, 2)); /* until it misses */
    while (atomic_load(&it.told) == 0);
    must_equal(atomic_load(&it.told), 1);
    while (count > 0)
        give(above, it.scene.streams[0], drawn[--count], BYTES);
    weir_resource_unref(above);
    must_be_whole(&it);
    stage_end(&it);
}

static void nobody_is_told_below_another_pool(void **state)
{
    (void)state;
    nobody_is_told_below_another(stage_begin);
    nobody_is_told_below_another(stage_begin_unheard);
}

/* The last unref has it that all is met, and the pool ends with its last block. */
static void pool_ends(void **state)
{
    (void)state;
    for (int i = 0; i < 36; i++) {
        const place places[3] = { ON_TOP, IN_FULL, IN_DEPOT };
        const knot as = { { places[i % 3], places[i / 3 % 3] }, i / 9 % 2, i / 18 };
        support_use_seed((uint64_t)i);
        stage it;
        stage_begin(&it);
        (void)tie(&it, &as);
        weir_stream stream = it.scene.streams[0];
        weir_resource *pool = it.scene.pool;
        void *last = pick(&it);
        while (it.out_count > 0)
            give(pool, stream, pick(&it), BYTES);
        weir_resource_unref(pool);
        must(atomic_load(&it.told) > 0);
        give(pool, stream, last, BYTES); /* and that was the pool */
        must_hold_nothing(it.scene.device);
        it.scene.pool = NULL;
        stage_end(&it);
    }
}

/* A list that takes what no bin does, or will not for long. */
static void spilt_blocks_are_looked_at(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    weir_stream s = it.streams[0];
    stage ears = { 0 };
    weir_set_misuse_handler(hears, &ears);
    actor *other = actor_begin();
    blocks pair = { it.pool, s, BYTES, 2, { NULL } };
    actor_does(other, turn_over_blocks, &pair);
    turn_over_blocks(&pair);
    weir__pool *pool = it.pool->self;
    weir__cache *cache = weir__cache_find(weir__seat_here(pool), s);
    must(cache != NULL);
    take_blocks(&pair);
    weir_thread_flush();
    give(it.pool, s, pair.ptrs[0], BYTES);
    weir__heap_block *block = block_at(&pool->heap, pair.ptrs[0]);
    weir__cache_spill_all(cache, &pool->heap.view);
    must_equal(cache->spill.count, 1);
    weir__heap_set_tag(block, weir__heap_out_tag(BYTES, WEIR_ALIGNMENT));
    blocks one = { it.pool, s, BYTES, 1, { pair.ptrs[0] } };
    actor_does(other, give_blocks, &one);

    void *large = take(it.pool, s, 4 * BLOCK); /* settles what was spilt */
    must(weir__heap_state_of(block) == WEIR__HEAP_CACHED);
    must_equal(atomic_load(&ears.told), 1);
    give(it.pool, s, large, 4 * BLOCK);
    give(it.pool, s, pair.ptrs[1], BYTES);
    (void)weir_resource_trim_sync(it.pool, SIZE_MAX);
    must_equal(statistics_of(it.pool).out_blocks, 0);
    must_equal(statistics_of(it.pool).out_bytes, 0);
    must_equal(pool->heap.taken_blocks, 0);
    must_equal(atomic_load(&ears.told), 1);
    actor_end(other);
    weir_set_misuse_handler(NULL, NULL);
    close_scene(&it);
}

/* ---- in earnest ---- */

/* As many as a cache has room for: a block that went on from there while the other free
 * of it is held up between its look and its store is what nothing mends. */
#define RACED (2 * WEIR__MAGAZINE)

typedef struct race {
    stage *it;
    void *ptrs[RACED];
    atomic_uint ready;
} race;

/* Both begin as nearly at once as can be. */
static void gives_all(void *argument)
{
    race *self = argument;
    const stage *it = self->it;
    for (unsigned i = 0; i < RACED; i++) {
        atomic_fetch_add(&self->ready, 1);
        for (int spun = 0; atomic_load(&self->ready) < 2 * (i + 1); spun++) {
            if (spun > 1000)
                (void)sched_yield();
        }
        (void)weir_deallocate(it->scene.pool, it->scene.streams[0], self->ptrs[i],
                              BYTES, WEIR_ALIGNMENT);
    }
}

static void *gives_all_too(void *argument)
{
    race *self = argument;
    actor_does(self->it->threads[1], gives_all, self);
    return NULL;
}

static void threads_that_race_lose_nothing(void **state)
{
    (void)state;
    uint64_t rounds = support_bound("test_pool_lost.rounds", 300, 10000);
    uint64_t both = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        stage it;
        stage_begin(&it);
        it.races = true;
        race two = { .it = &it };
        for (unsigned k = 0; k < RACED; k++)
            two.ptrs[k] = pick(&it);
        pthread_t second;
        must(pthread_create(&second, NULL, gives_all_too, &two) == 0);
        actor_does(it.threads[0], gives_all, &two);
        must(pthread_join(second, NULL) == 0);
        both += RACED - atomic_load(&it.told);
        hit(&it);
        must_be_whole(&it);
        must(atomic_load(&it.told) > 0);
        stage_end(&it);
    }
    print_message("%llu blocks were taken by both\n", (unsigned long long)both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost_or_handed_out_twice),
        cmocka_unit_test(what_is_in_the_heap_is_met),
        cmocka_unit_test(what_went_astray_is_set_aside),
        cmocka_unit_test(nobody_is_told_below_another_pool),
        cmocka_unit_test(pool_ends),
        cmocka_unit_test(spilt_blocks_are_looked_at),
        cmocka_unit_test(threads_that_race_lose_nothing),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
