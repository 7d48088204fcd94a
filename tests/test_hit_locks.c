/* test_hit_locks.c - how many locks the library takes as it ships, with stacks as deep
 * as a user has them: none for hits, two for each magazine of blocks that one thread
 * allocates and another frees, and a few more where it frees them on another stream.
 *
 * The program is linked from the library's own objects, and the linker puts a count in
 * the place of what takes a lock. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hits.h"
#include "sync.h"

#define PAIRS    32768
#define BATCH    16   /* blocks that change hands at once */
#define WARM     512  /* batches before anything is counted: by then nobody is expected
                         to look for another stream's memory */
#define MAGAZINE 32   /* as the pool's */
#define LOCKS_MOST 2  /* for each magazine: the pool's to take it, and to give it */
#define LOCKS_END  8  /* of a thread */
#define LOCKS_BETWEEN_MOST 12 /* with a wait */
#define BYTES    ((size_t)4096)
#define LIVE     64   /* large blocks */
#define LARGE    ((size_t)1 << 18)
#define RANDOM_LIVE  256
#define RANDOM_KEPT ((size_t)64 << 20)
#define RANDOM_PAIRS ((size_t)1 << 19)
#define RANDOM_PAIRS_LEAST 90 /* for each lock */
#define ROOMY       ((size_t)256 << 20) /* eight times what is live */
#define ROOMY_PAIRS_LEAST 10
#define PARTS       32
#define PART_BYTES  ((size_t)4 << 20)
#define LOCKS_TOGETHER_MOST 6 /* of which checks take one */
#define LOCKS_LARGE_MOST 6 /* of a pair: the pool's for each, the order's for what is
                              known and taken, and now and then the whole way */

/* ---- locks, counted ---- */

static _Thread_local uint64_t locks;

/* What the linker makes of the library's calls, and what they were (--wrap). */
void __real_weir__mutex_lock(weir__mutex *mutex);
void __wrap_weir__mutex_lock(weir__mutex *mutex);

void __wrap_weir__mutex_lock(weir__mutex *mutex)
{
    locks++;
    __real_weir__mutex_lock(mutex);
}

/* ---- one thread ---- */

static weir_device_calls calls_of(const hits_scene *it)
{
    weir_device_calls calls = { .struct_size = sizeof calls };
    assert_int_equal(weir_device_get_calls(it->device, &calls), WEIR_OK);
    return calls;
}

static uint64_t sum_of(const weir_device_calls *calls)
{
    uint64_t sum = 0;
#define X(name) sum += calls->name;
    WEIR_DEVICE_CALL_MAP(X)
#undef X
    return sum;
}

static void hits_lock_nothing(void **state)
{
    (void)state;
    hits_scene it = hits_open();
    uint64_t before = locks;
    hits_run(&it, HITS_STREAMS, BYTES, HITS_DEPTH_MAX, 4);
    assert_true(locks > before);
    weir_device_calls calls = calls_of(&it);
    before = locks;
    hits_run(&it, HITS_STREAMS, BYTES, HITS_DEPTH_MAX,
             PAIRS / HITS_STREAMS / HITS_DEPTH_MAX);
    assert_int_equal(locks, before);
    weir_device_calls calls_after = calls_of(&it);
    assert_int_equal(sum_of(&calls_after), sum_of(&calls));
    hits_close(&it);
}

/* ---- blocks that change hands ---- */

/* A batch of blocks, full or empty. */
typedef struct hands {
    hits_scene scene;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_full; /* guarded by lock, as is blocks while nobody works on it */
    void *blocks[BATCH];
    uint64_t locks_to_free;
} hands;

static void await_full(hands *self, bool is_full)
{
    pthread_mutex_lock(&self->lock);
    while (self->is_full != is_full)
        pthread_cond_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
}

static void set_full(hands *self, bool is_full)
{
    pthread_mutex_lock(&self->lock);
    self->is_full = is_full;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

static void *free_batches(void *argument)
{
    hands *self = argument;
    uint64_t before = 0;
    for (size_t round = 0; round < WARM + PAIRS / BATCH; round++) {
        if (round == WARM)
            before = locks;
        await_full(self, true);
        for (size_t i = 0; i < BATCH; i++)
            hits_give(&self->scene, 0, self->blocks[i], BYTES);
        if (round == WARM + PAIRS / BATCH - 1)
            self->locks_to_free = locks - before;
        set_full(self, false);
    }
    return NULL;
}

static void frees_on_another_thread_lock_seldom(void **state)
{
    (void)state;
    hands it = { .scene = hits_open(),
                 .lock = PTHREAD_MUTEX_INITIALIZER,
                 .changed = PTHREAD_COND_INITIALIZER };
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, free_batches, &it), 0);
    uint64_t before = 0;
    weir_device_calls calls = { 0 };
    for (size_t round = 0; round < WARM + PAIRS / BATCH; round++) {
        await_full(&it, false);
        if (round == WARM) {
            before = locks;
            calls = calls_of(&it.scene);
        }
        for (size_t i = 0; i < BATCH; i++)
            it.blocks[i] = hits_take(&it.scene, 0, BYTES);
        set_full(&it, true);
    }
    uint64_t locks_to_take = locks - before;
    assert_int_equal(pthread_join(other, NULL), 0);

    weir_device_calls calls_after = calls_of(&it.scene);
    uint64_t records = calls_after.event_record - calls.event_record;
    print_message("locks of a pair: %.3f to take, %.3f to free; %.3f events recorded, "
                  "%.3f calls of the device\n",
                  (double)locks_to_take / PAIRS, (double)it.locks_to_free / PAIRS,
                  (double)records / PAIRS,
                  (double)(sum_of(&calls_after) - sum_of(&calls)) / PAIRS);
    assert_true(locks_to_take + it.locks_to_free <=
                PAIRS / MAGAZINE * LOCKS_MOST + LOCKS_END);
    assert_true(records <= 1); /* the thread's end */
    hits_close(&it.scene);
}

static void turn_over_between_streams(const hits_scene *it, size_t pairs)
{
    for (size_t i = 0; i < pairs; i++)
        hits_give(it, 1, hits_take(it, 0, BYTES), BYTES);
}

/* What is allocated on one stream and freed on another, for ever: by magazines, each
 * for one event and one wait. */
static void frees_on_another_stream_lock_seldom(void **state)
{
    (void)state;
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.cache_bytes = PAIRS / 4 * BYTES; /* so much goes round before it is a lot */
    hits_scene it = hits_open_with(&options);
    turn_over_between_streams(&it, PAIRS);
    uint64_t before = locks;
    weir_device_calls calls = calls_of(&it);
    turn_over_between_streams(&it, PAIRS);
    weir_device_calls calls_after = calls_of(&it);
    uint64_t records = calls_after.event_record - calls.event_record;
    uint64_t waits = calls_after.stream_wait_event - calls.stream_wait_event;
    print_message("locks of a pair: %.3f; %.3f events recorded, %.3f waits\n",
                  (double)(locks - before) / PAIRS, (double)records / PAIRS,
                  (double)waits / PAIRS);
    assert_true(locks - before <= PAIRS / MAGAZINE * LOCKS_BETWEEN_MOST);
    assert_true(records <= PAIRS / MAGAZINE + 2);
    assert_true(waits <= PAIRS / MAGAZINE + 2);
    hits_close(&it);
}

/* What no thread keeps, on several streams that leave much free: it is placed with
 * respect to what all of them have left, and nearly always under one lock. */
static void large_blocks_of_several_streams_lock_seldom(void **state)
{
    (void)state;
    hits_scene it = hits_open();
    struct {
        void *ptr;
        size_t stream, bytes;
    } live[LIVE] = { { NULL, 0, 0 } };
    uint64_t before = 0, draws = 1;
    for (size_t i = 0; i < LIVE * LIVE * 2; i++) {
        if (i == LIVE * LIVE)
            before = locks;
        draws = draws * UINT64_C(6364136223846793005) + 1442695040888963407u;
        const size_t at = draws >> 58, bits = draws >> 32;
        if (live[at].ptr != NULL)
            hits_give(&it, live[at].stream, live[at].ptr, live[at].bytes);
        live[at].stream = bits % HITS_STREAMS;
        live[at].bytes = (9 + bits / HITS_STREAMS % 48) * LARGE;
        live[at].ptr = hits_take(&it, live[at].stream, live[at].bytes);
    }
    const uint64_t more = locks - before;
    print_message("locks of a pair: %.2f\n", (double)more / (LIVE * LIVE));
    assert_true(more <= LIVE * LIVE * LOCKS_LARGE_MOST);
    for (size_t i = 0; i < LIVE; i++)
        if (live[i].ptr != NULL)
            hits_give(&it, live[i].stream, live[i].ptr, live[i].bytes);
    hits_close(&it);
}

/* For pairs of sizes of all kinds, once as many have been. */
static uint64_t locks_of_random_sizes(const weir_pool_options *options)
{
    hits_scene it = hits_open_with(options);
    static struct {
        void *ptr;
        size_t bytes;
    } live[RANDOM_LIVE];
    uint64_t before = 0, draws = 1;
    for (size_t i = 0; i < 2 * RANDOM_PAIRS; i++) {
        if (i == RANDOM_PAIRS)
            before = locks;
        draws = draws * UINT64_C(6364136223846793005) + 1442695040888963407u;
        const size_t at = draws >> 56, least = (size_t)256 << (draws >> 32) % 12;
        if (live[at].ptr != NULL)
            hits_give(&it, 0, live[at].ptr, live[at].bytes);
        live[at].bytes = least + (draws >> 36) % least;
        live[at].ptr = hits_take(&it, 0, live[at].bytes);
    }
    const uint64_t more = locks - before;
    print_message("locks of a pair: %.5f\n", (double)more / RANDOM_PAIRS);
    for (size_t i = 0; i < RANDOM_LIVE; i++) {
        hits_give(&it, 0, live[i].ptr, live[i].bytes);
        live[i].ptr = NULL;
    }
    hits_close(&it);
    return more;
}

/* Half as much is live as a thread may keep: it keeps what is most likely to be asked
 * for. */
static void random_sizes_lock_seldom(void **state)
{
    (void)state;
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.cache_bytes = RANDOM_KEPT;
    assert_true(locks_of_random_sizes(&options) <= RANDOM_PAIRS / RANDOM_PAIRS_LEAST);
}

/* A pool that is made as large as it is to be has room for that, too. */
static void random_sizes_lock_seldom_where_there_is_room(void **state)
{
    (void)state;
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.initial_bytes = options.limit_bytes = ROOMY;
    assert_true(locks_of_random_sizes(&options) <= RANDOM_PAIRS / ROOMY_PAIRS_LEAST);
}

/* Of every four parts two streams have left one each, side by side, and one stream has
 * waited for the other: what is only large enough with the other's is found by who
 * looks for his own. */
static void what_is_large_enough_only_together_locks_seldom(void **state)
{
    (void)state;
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.initial_bytes = PARTS * PART_BYTES;
    options.slack_bytes = PART_BYTES / 4;
    hits_scene it = hits_open_with(&options);
    void *parts[PARTS], *more = hits_take(&it, 0, PART_BYTES); /* than the initial */
    for (size_t i = 0; i < PARTS; i++)
        parts[i] = hits_take(&it, i % 2, PART_BYTES);
    for (size_t i = 0; i < PARTS; i++)
        if (i % 4 < 2)
            hits_give(&it, i % 2, parts[i], PART_BYTES);
    weir_thread_flush();
    assert_int_equal(weir_stream_wait(it.device, it.streams[0], it.streams[1]),
                     WEIR_OK);
    hits_give(&it, 0, hits_take(&it, 0, 256), 256); /* again at home there */
    uint64_t before = locks;
    void *two = hits_take(&it, 0, 2 * PART_BYTES);
    const uint64_t taken = locks - before;
    print_message("locks to take two parts: %d\n", (int)taken);
    assert_true(taken <= LOCKS_TOGETHER_MOST);
    hits_give(&it, 0, two, 2 * PART_BYTES);
    hits_give(&it, 0, more, PART_BYTES);
    for (size_t i = 0; i < PARTS; i++)
        if (i % 4 >= 2)
            hits_give(&it, i % 2, parts[i], PART_BYTES);
    hits_close(&it);
}

/* A cache that one block of `larger` bytes fills, and a request for `bytes`: whether it
 * gets that block. */
static bool is_lent(size_t larger, size_t bytes)
{
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.cache_bytes = larger;
    hits_scene it = hits_open_with(&options);
    hits_give(&it, 0, hits_take(&it, 0, bytes), bytes);
    void *out = hits_take(&it, 0, bytes), *last = hits_take(&it, 0, larger);
    hits_give(&it, 0, last, larger);
    uint64_t before = locks;
    void *ptr = hits_take(&it, 0, bytes);
    const bool is = ptr == last;
    assert_true(is == (locks == before));
    hits_give(&it, 0, ptr, bytes);
    hits_give(&it, 0, out, bytes);
    hits_close(&it);
    return is;
}

/* A full cache has one that is larger, of one of the next three sizes and by no more
 * than an eighth, without a lock. */
static void what_is_a_little_larger_is_lent(void **state)
{
    (void)state;
    const size_t grain = 256;
    assert_true(is_lent(9 * grain, 8 * grain));
    assert_false(is_lent(8 * grain, 7 * grain));
    assert_false(is_lent(10 * grain, 8 * grain));
    assert_true(is_lent(27 * grain, 24 * grain));
    assert_false(is_lent(28 * grain, 24 * grain));
    assert_true(is_lent(992 * grain, 960 * grain));
    assert_true(is_lent(992 * grain, 929 * grain)); /* of 929 to 960 grains */
    assert_true(is_lent(1024 * grain, 960 * grain));
    assert_false(is_lent(4096 * grain, 3968 * grain)); /* more than a tag tells */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_lock_nothing),
        cmocka_unit_test(frees_on_another_thread_lock_seldom),
        cmocka_unit_test(frees_on_another_stream_lock_seldom),
        cmocka_unit_test(large_blocks_of_several_streams_lock_seldom),
        cmocka_unit_test(random_sizes_lock_seldom),
        cmocka_unit_test(random_sizes_lock_seldom_where_there_is_room),
        cmocka_unit_test(what_is_large_enough_only_together_locks_seldom),
        cmocka_unit_test(what_is_a_little_larger_is_lent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
