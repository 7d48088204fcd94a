/* test_hits.c - a hit takes no lock, asks for no host memory and calls no device:
 * counted in the test build; and it looks at its arguments, and at who calls, as well
 * as the core does. tests/test_hit_*.c look at the library as it ships. */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gate.h"
#include "pool_hit.h"
#include "resource_parts.h"
#include "support_hits.h"

#define GRAIN   ((size_t)256)
#define PAIRS   10000
#define THREADS 2

/* ---- tests ---- */

static void hits_of_one(pool_scene *it, size_t bytes, size_t depth)
{
    for (int round = 0; round < WARM_ROUNDS; round++)
        run_on(it, round % STREAMS, bytes, depth);
    weir_resource_statistics statistics = statistics_of(it->pool);
    counts before = counts_here(it);
    for (int round = 0; round < PAIRS / (int)depth; round++)
        run_on(it, round % STREAMS, bytes, depth);
    must_have_counted_nothing(it, &before);
    must_equal(statistics_of(it->pool).allocations - statistics.allocations,
               PAIRS / depth * depth);
}

static void hits_lock_nothing_and_call_nobody(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 256, 512, KIB, LARGEST };
    pool_scene it = open_quiet_scene();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t depth = 1; depth <= DEPTH_MAX; depth++)
            hits_of_one(&it, sizes[i], depth);
    }
    close_scene(&it);
}

/* Which is decided when the pool is made. */
static void hits_fence_where_owners_do(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        weir__gate_force_fences(i == 0);
        const bool fences = weir__gate_fences;
        pool_scene it = open_quiet_scene();
        must((it.pool->allocate == weir__pool_hit_fenced) == fences);
        must((it.pool->deallocate == weir__pool_hit_back_fenced) == fences);
        hits_of_one(&it, KIB, DEPTH_MAX);
        close_scene(&it);
    }
}

typedef struct turns {
    int last; /* who had it */
    int changes;
} turns;

typedef struct actor {
    pool_scene *scene;
    pthread_barrier_t *barrier;
    int stream;
    turns *turns;
} actor;

/* All are warm before anybody counts, and all have counted before anybody ends. */
static void act(void *argument)
{
    actor *self = argument;
    for (int round = 0; round < WARM_ROUNDS; round++)
        run_on(self->scene, self->stream, LARGEST, 1);
    pthread_barrier_wait(self->barrier);
    counts before = counts_here(self->scene);
    for (int round = 0; round < PAIRS; round++)
        run_on(self->scene, self->stream, LARGEST, 1);
    pthread_barrier_wait(self->barrier);
    must_have_counted_nothing(self->scene, &before);
    pthread_barrier_wait(self->barrier);
}

static void hits_of_threads_lock_nothing(void **state)
{
    (void)state;
    pool_scene it = open_quiet_scene();
    pthread_barrier_t barrier;
    actor actors[THREADS];
    void *arguments[THREADS];
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        actors[i] = (actor){ .scene = &it, .barrier = &barrier, .stream = i };
        arguments[i] = &actors[i];
    }
    must_ok(support_run_threads(it.device, THREADS, act, arguments));
    pthread_barrier_destroy(&barrier);
    close_scene(&it);
}

static void act_by_turns(void *argument)
{
    actor *self = argument;
    for (int round = -WARM_ROUNDS; round < QUIET_ROUNDS; round++) {
        self->turns->changes += round >= 0 && self->turns->last != self->stream;
        self->turns->last = self->stream;
        run_on(self->scene, self->stream, KIB, 1);
    }
}

/* In a run of `device` with the scene's pool. */
static void must_change_at_hits(weir_device *device, pool_scene *scene)
{
    actor actors[THREADS];
    void *arguments[THREADS];
    turns all = { 0 };
    for (int i = 0; i < THREADS; i++) {
        actors[i] = (actor){ .scene = scene, .stream = i, .turns = &all };
        arguments[i] = &actors[i];
    }
    must_ok(support_run_threads(device, THREADS, act_by_turns, arguments));
    must(all.changes > THREADS);
}

/* In a stepped run they may change at each call, also at one that would hit; and of a
 * pool on another device, which has no turns. */
static void threads_change_at_a_hit(void **state)
{
    (void)state;
    pool_scene it = open_scene_of(WEIR_EMULATED_STEPPED);
    must_change_at_hits(it.device, &it);
    close_scene(&it);

    it = open_quiet_scene();
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    weir_device *stepped = open_with("emulated:1", &options);
    must_change_at_hits(stepped, &it);
    close_emulated(stepped);
    close_scene(&it);
}

/* What is no hit may find nothing. */
static void a_miss_tells_null(void **state)
{
    (void)state;
    pool_scene it = open_quiet_scene();
    weir_stream stream = it.streams[0];
    give(it.pool, stream, warm_hit(&it, LARGEST), LARGEST);
    plan_fault(it.device, "malloc", 1, true, WEIR_OUT_OF_MEMORY);
    static struct { void *ptr; size_t bytes; } blocks[4 * MIB / LARGEST];
    size_t count = 0;
    for (size_t bytes = MIB; bytes >= LARGEST; count++) {
        must(count < sizeof blocks / sizeof blocks[0]);
        void *ptr = &it;
        weir_status status =
            weir_allocate(it.pool, stream, bytes, WEIR_ALIGNMENT, &ptr);
        must((ptr == NULL) == (status != WEIR_OK));
        blocks[count].ptr = ptr;
        blocks[count].bytes = bytes;
        bytes = status == WEIR_OK ? bytes : bytes / 2;
    }
    while (count-- > 0)
        must(weir_deallocate(it.pool, stream, blocks[count].ptr, blocks[count].bytes,
                             WEIR_ALIGNMENT));
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    close_scene(&it);
}

/* The first pair of a pool is no hit. */
static void a_lock_is_counted(void **state)
{
    (void)state;
    pool_scene it = open_quiet_scene();
    counts before = counts_here(&it);
    run_on(&it, 0, KIB, 1);
    counts after = counts_here(&it);
    must(after.locks > before.locks);
    must(after.host_calls > before.host_calls);
    must(after.device.malloc == before.device.malloc + 1);
    close_scene(&it);
}

/* Whoever hits looks at them himself. */
static void arguments_are_looked_at(void **state)
{
    (void)state;
    pool_scene it = open_quiet_scene();
    weir_stream stream = it.streams[0];
    give(it.pool, stream, warm_hit(&it, KIB), KIB);
    must(weir_deallocate(it.pool, stream, NULL, 0, 0));
    must(weir_deallocate(it.pool, stream, NULL, KIB, WEIR_ALIGNMENT));
    const uint64_t frees = statistics_of(it.pool).deallocations;
    must(weir_deallocate(it.pool, stream, NULL, 0, WEIR_ALIGNMENT));
    must_equal(statistics_of(it.pool).deallocations, frees);

    void *out = &it;
    must_answer(WEIR_INVALID_ARGUMENT,
            weir_allocate(it.pool, stream, KIB, WEIR_ALIGNMENT, NULL));
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(it.pool, stream, KIB, 0, &out));
    must(out == NULL);
    static const size_t alignments[] = { 3, 3 * WEIR_ALIGNMENT / 4, SIZE_MAX };
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++)
        must_answer(WEIR_INVALID_ARGUMENT,
                weir_allocate(it.pool, stream, KIB, alignments[i], &out));
    must_answer(WEIR_INVALID_ARGUMENT,
            weir_allocate(NULL, stream, KIB, WEIR_ALIGNMENT, &out));
    out = &it;
    must_ok(weir_allocate(it.pool, stream, 0, WEIR_ALIGNMENT, &out));
    must(out == NULL);
    must_answer(WEIR_OUT_OF_MEMORY,
            weir_allocate(it.pool, stream, SIZE_MAX, WEIR_ALIGNMENT, &out));
    close_scene(&it);
}

static void a_child_hits_nothing(void **state)
{
    (void)state;
    pool_scene it = open_quiet_scene();
    void *ptr = warm_hit(&it, KIB);
    give(it.pool, it.streams[0], ptr, KIB);
    weir_resource_statistics before = statistics_of(it.pool);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        void *out = &it;
        weir_status status =
            weir_allocate(it.pool, it.streams[0], KIB, WEIR_ALIGNMENT, &out);
        _exit(status == WEIR_OK || out != NULL);
    }
    int status = -1;
    must(waitpid(child, &status, 0) == child);
    must_equal(status, 0);
    weir_resource_statistics after = statistics_of(it.pool);
    must(memcmp(&before, &after, sizeof before) == 0);
    close_scene(&it);
}

static void nothing_hits_on_a_lost_device(void **state)
{
    (void)state;
    pool_scene it = open_quiet_scene();
    void *ptr = warm_hit(&it, KIB), *again = warm_hit(&it, 2 * KIB), *none = &it;
    give(it.pool, it.streams[0], ptr, KIB);
    plan_fault(it.device, NULL, 1, true, WEIR_DEVICE_LOST);
    must_answer(WEIR_DEVICE_LOST, weir_stream_sync(it.device, it.streams[0]));
    must_answer(WEIR_DEVICE_LOST, weir_allocate(it.pool, it.streams[0], KIB,
                                                WEIR_ALIGNMENT, &none));
    must(none == NULL);
    give(it.pool, it.streams[0], again, 2 * KIB);
    weir_resource_unref(it.pool);
    for (int i = 0; i < STREAMS; i++)
        (void)weir_stream_destroy(it.device, it.streams[i]);
    close_anyhow(it.device);
}

/* It went to the heap, and there another block has its place. */
static void what_was_a_hit_is_cut_anew(void **state)
{
    (void)state;
    pool_scene it = open_quiet_scene();
    void *pin = take(it.pool, it.streams[0], KIB);
    char *a = warm_hit(&it, LARGEST);
    give(it.pool, it.streams[0], a, LARGEST);
    (void)weir_resource_trim_sync(it.pool, SIZE_MAX);
    char *b = take(it.pool, it.streams[0], KIB);
    must(a == b);
    must_be_refused(&it, b, LARGEST, WEIR_ALIGNMENT, WEIR_MISUSE_WRONG_SIZE);
    give(it.pool, it.streams[0], b, KIB);
    give(it.pool, it.streams[0], pin, KIB);
    close_scene(&it);
}

/* The same with a larger one, of a size that nobody had: it is no hit, and nothing is
 * known of it but what was known of the other. */
static void what_was_a_hit_becomes_larger(void **state)
{
    (void)state;
    pool_scene it = open_quiet_scene();
    void *pin = take(it.pool, it.streams[0], KIB);
    run_on(&it, 0, 3 * LARGEST, 1); /* from now on the stream's own */
    char *a = warm_hit(&it, KIB);
    give(it.pool, it.streams[0], a, KIB);
    (void)weir_resource_trim_sync(it.pool, SIZE_MAX);
    for (size_t bytes = LARGEST; bytes <= 2 * LARGEST; bytes += LARGEST) {
        char *b = take(it.pool, it.streams[0], bytes);
        must(a == b);
        must_be_refused(&it, b, KIB, WEIR_ALIGNMENT, WEIR_MISUSE_WRONG_SIZE);
        give(it.pool, it.streams[0], b, bytes);
        (void)weir_resource_trim_sync(it.pool, SIZE_MAX);
    }
    give(it.pool, it.streams[0], pin, KIB);
    close_scene(&it);
}

/* Where blocks are no larger than they were asked for, those in the bin of a size may
 * be too small for a request, or too large. */
static void a_hit_is_as_large_as_asked_for(void **state)
{
    (void)state;
    const size_t less = 5 * WEIR_ALIGNMENT, much = 8 * WEIR_ALIGNMENT;
    pool_scene it = open_exact_scene(0);
    weir_stream stream = it.streams[0];

    char *a = warm_hit(&it, less), *pin = take(it.pool, stream, KIB);
    must(pin == a + less);
    give(it.pool, stream, a, less);
    char *b = take(it.pool, stream, much);
    must(b == pin + KIB);
    give(it.pool, stream, b, much);
    char *c = take(it.pool, stream, less);
    must(c == a);
    give(it.pool, stream, c, less);
    give(it.pool, stream, pin, KIB);
    close_scene(&it);
}

/* A cache of so many bytes has a block of two grains, and once had one of one grain,
 * which is out. */
static pool_scene open_with_next(size_t cache_bytes, bool exact, void **small,
                                 void **next)
{
    pool_scene it = open_quiet_scene();
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.cache_bytes = cache_bytes;
    options.exact = exact;
    reopen_as(&it, &options);
    weir_stream stream = it.streams[0];
    give(it.pool, stream, take(it.pool, stream, GRAIN), GRAIN);
    *small = take(it.pool, stream, GRAIN);
    *next = take(it.pool, stream, 2 * GRAIN);
    give(it.pool, stream, *next, 2 * GRAIN);
    return it;
}

static size_t out_in(weir_resource *pool)
{
    weir_resource_statistics s = statistics_of(pool);
    return s.held_bytes - s.free_bytes;
}

/* Where a cache has no room for one more, a request has one that is there and a little
 * larger; which is what it was when it comes back. */
static void a_full_cache_lends_what_is_larger(void **state)
{
    (void)state;
    void *small, *next;
    pool_scene it = open_with_next(2 * GRAIN, false, &small, &next);
    weir_stream stream = it.streams[0];
    counts before = counts_here(&it);
    void *ptr = take(it.pool, stream, GRAIN - 1);
    must_have_counted_nothing(&it, &before);
    must(ptr == next);
    must_equal(out_in(it.pool), 3 * GRAIN);
    must_be_refused(&it, ptr, GRAIN, WEIR_ALIGNMENT, WEIR_MISUSE_WRONG_SIZE);
    must_be_refused(&it, ptr, 2 * GRAIN, WEIR_ALIGNMENT, WEIR_MISUSE_WRONG_SIZE);
    before = counts_here(&it);
    give(it.pool, stream, ptr, GRAIN - 1);
    must_have_counted_nothing(&it, &before);
    ptr = take(it.pool, stream, 2 * GRAIN);
    must_have_counted_nothing(&it, &before);
    must(ptr == next);
    give(it.pool, stream, ptr, 2 * GRAIN);
    give(it.pool, stream, small, GRAIN);
    close_scene(&it);
}

/* A block that was lent, found by its address when it comes back, is put where those of
 * its size are. */
static void what_was_lent_goes_back_to_its_size(void **state)
{
    (void)state;
    void *small, *next, *ptr;
    pool_scene it = open_with_next(2 * GRAIN, false, &small, &next);
    weir_stream stream = it.streams[0];
    counts before = counts_here(&it);
    must_ok(weir_allocate(it.pool, stream, GRAIN, 64, &ptr));
    must(ptr == next);
    must(weir_deallocate(it.pool, stream, ptr, GRAIN, 64));
    ptr = take(it.pool, stream, 2 * GRAIN);
    must(ptr == next);
    must_have_counted_nothing(&it, &before);
    give(it.pool, stream, ptr, 2 * GRAIN);
    give(it.pool, stream, small, GRAIN);
    close_scene(&it);
}

/* There is no size next to the largest that has a bin. */
static void the_largest_size_is_lent_nothing(void **state)
{
    (void)state;
    void *small, *next;
    pool_scene it = open_with_next(2 * GRAIN, false, &small, &next);
    void *first = take(it.pool, it.streams[0], LARGEST);
    void *second = take(it.pool, it.streams[0], LARGEST);
    must(first != second && second != next);
    give(it.pool, it.streams[0], second, LARGEST);
    give(it.pool, it.streams[0], first, LARGEST);
    give(it.pool, it.streams[0], small, GRAIN);
    close_scene(&it);
}

/* What was spilt goes with the next miss: it fills no cache. */
static void what_is_spilt_fills_no_cache(void **state)
{
    (void)state;
    const size_t large = 58 * GRAIN;
    void *small, *next;
    pool_scene it = open_with_next(64 * GRAIN, false, &small, &next);
    weir_stream stream = it.streams[0];
    for (int i = 0; i < QUIET_ROUNDS; i++)
        run_on(&it, 0, large, 1);
    counts before = counts_here(&it);
    run_on(&it, 0, large, 1);
    must_have_counted_nothing(&it, &before); /* it waits there */
    void *ptr = take(it.pool, stream, GRAIN);
    must(ptr != next);
    give(it.pool, stream, ptr, GRAIN);
    give(it.pool, stream, small, GRAIN);
    close_scene(&it);
}

/* Where it has, the request gets one of its own; and where no block is larger than what
 * was asked for. */
static void only_a_full_cache_lends(void **state)
{
    (void)state;
    static const struct {
        size_t cache_bytes;
        bool exact, lends;
    } cases[] = {
        { 2 * GRAIN, false, true },
        { 2 * GRAIN + GRAIN / 2, false, true },
        { 2 * GRAIN + 3 * GRAIN / 4, false, false }, /* more than a quarter is left */
        { 4 * GRAIN, false, false },
        { 2 * GRAIN, true, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        void *small, *next;
        pool_scene it =
            open_with_next(cases[i].cache_bytes, cases[i].exact, &small, &next);
        void *ptr = take(it.pool, it.streams[0], GRAIN);
        must((ptr == next) == cases[i].lends);
        must_equal(out_in(it.pool), (cases[i].lends ? 3 : 2) * GRAIN);
        give(it.pool, it.streams[0], ptr, GRAIN);
        give(it.pool, it.streams[0], small, GRAIN);
        close_scene(&it);
    }
}

/* A thread goes from one stream to another: each has its own blocks. */
static void a_hit_is_of_its_stream(void **state)
{
    (void)state;
    pool_scene it = open_quiet_scene();
    void *blocks[STREAMS];
    for (int round = 0; round < WARM_ROUNDS; round++)
        run_on(&it, round % STREAMS, KIB, 1);
    for (int i = 0; i < STREAMS; i++) {
        blocks[i] = take(it.pool, it.streams[i], KIB);
        give(it.pool, it.streams[i], blocks[i], KIB);
        must(i == 0 || blocks[i] != blocks[i - 1]);
    }
    for (int i = STREAMS; i-- > 0;) {
        void *again = take(it.pool, it.streams[i], KIB);
        must(again == blocks[i]);
        give(it.pool, it.streams[i], again, KIB);
    }
    close_scene(&it);
}

/* What is freed on a stream goes out on no other as if it were its own: whether the
 * stream has no cache yet, or has one, and wherever in the table that is. */
static void a_free_is_of_its_stream(void **state)
{
    (void)state;
    enum { OTHERS = 24, TURNS = 3 };
    pool_scene it = open_quiet_scene();
    weir_stream others[OTHERS];
    for (int i = 0; i < OTHERS; i++)
        others[i] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    for (int i = 0; i < TURNS * OTHERS; i++) {
        run_on(&it, 0, KIB, 2); /* has two for the next two */
        void *freed = take(it.pool, it.streams[0], KIB);
        give(it.pool, others[i % OTHERS], freed, KIB);
        void *next = take(it.pool, it.streams[0], KIB);
        must(next != freed);
        give(it.pool, it.streams[0], next, KIB);
    }
    for (int i = 0; i < OTHERS; i++)
        must_ok(weir_stream_destroy(it.device, others[i]));
    close_scene(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_lock_nothing_and_call_nobody),
        cmocka_unit_test(hits_fence_where_owners_do),
        cmocka_unit_test(hits_of_threads_lock_nothing),
        cmocka_unit_test(threads_change_at_a_hit),
        cmocka_unit_test(a_miss_tells_null),
        cmocka_unit_test(a_lock_is_counted),
        cmocka_unit_test(arguments_are_looked_at),
        cmocka_unit_test(a_child_hits_nothing),
        cmocka_unit_test(nothing_hits_on_a_lost_device),
        cmocka_unit_test(what_was_a_hit_is_cut_anew),
        cmocka_unit_test(what_was_a_hit_becomes_larger),
        cmocka_unit_test(a_hit_is_as_large_as_asked_for),
        cmocka_unit_test(a_full_cache_lends_what_is_larger),
        cmocka_unit_test(what_was_lent_goes_back_to_its_size),
        cmocka_unit_test(the_largest_size_is_lent_nothing),
        cmocka_unit_test(what_is_spilt_fills_no_cache),
        cmocka_unit_test(only_a_full_cache_lends),
        cmocka_unit_test(a_hit_is_of_its_stream),
        cmocka_unit_test(a_free_is_of_its_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
