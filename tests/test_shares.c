/* test_shares.c - threads each of which has no more out than its share of all that
 * there is: none of them is ever refused, whatever the others do meanwhile. What is on
 * its way from one to another, or back to the device, is nobody's, and can be had.
 *
 * Blocks are all of one size, so that no gap is too small. */
#include "support_pool.h"

#define THREADS 3
#define SHARE   12
#define STEPS   250

typedef struct stage {
    pool_scene scene;
    size_t bytes;       /* of each block */
    bool by_streams;    /* each thread has one of its own, and gives back on another */
} stage;

typedef struct worker {
    stage *it;
    int index;
    uint64_t draws;
    int share;
    struct {
        void *ptr;
        int stream;
    } blocks[3 * SHARE];
    int count;
} worker;

static int below(worker *self, int n)
{
    return (int)support_random_below(&self->draws, (uint64_t)n);
}

static void take_one(worker *self)
{
    const stage *it = self->it;
    int stream = it->by_streams ? self->index : below(self, STREAMS);
    void *ptr = take(it->scene.pool, it->scene.streams[stream], it->bytes);
    stamp(it->scene.device, it->scene.streams[stream], ptr, it->bytes, (uintptr_t)ptr);
    self->blocks[self->count].ptr = ptr;
    self->blocks[self->count++].stream = stream;
}

/* On the stream that it was taken on, or on one that waits for it. */
static void give_one(worker *self)
{
    const stage *it = self->it;
    int at = below(self, self->count), stream = self->blocks[at].stream;
    int other = it->by_streams ? STREAMS - 1 : below(self, STREAMS);
    void *ptr = self->blocks[at].ptr;
    weir_stream on = it->scene.streams[stream];
    check_stamp(it->scene.device, on, ptr, it->bytes, (uintptr_t)ptr);
    if (other != stream && (it->by_streams || below(self, 3) == 0)) {
        must_ok(weir_stream_wait(it->scene.device, it->scene.streams[other], on));
        on = it->scene.streams[other];
    }
    give(it->scene.pool, on, ptr, it->bytes);
    self->blocks[at] = self->blocks[--self->count];
}

static void do_besides(worker *self)
{
    const stage *it = self->it;
    bool done;
    switch (below(self, 5)) {
    case 0:
        (void)weir_resource_trim_sync(it->scene.pool, SIZE_MAX);
        break;
    case 1:
        weir_thread_flush();
        break;
    case 2:
        (void)statistics_of(it->scene.pool);
        break;
    case 3:
        must_ok(weir_stream_query(it->scene.device, it->scene.streams[self->index],
                                  &done));
        break;
    default:
        must_ok(weir_stream_sync(it->scene.device, it->scene.streams[self->index]));
        break;
    }
}

static void work(void *argument)
{
    worker *self = argument;
    for (int i = 0; i < STEPS; i++) {
        if (self->count < self->share && below(self, 2 * self->share) >= self->count)
            take_one(self);
        else if (self->count > 0)
            give_one(self);
        if (below(self, 16) == 0)
            do_besides(self);
    }
    while (self->count > 0)
        give_one(self);
}

static void run_workers(stage *it, uint64_t seed)
{
    worker workers[THREADS];
    void *arguments[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){ .it = it, .index = i, .share = SHARE,
                               .draws = seed * THREADS + (uint64_t)i };
        arguments[i] = &workers[i];
    }
    must_ok(weir_emulated_run_threads(it->scene.device, THREADS, work, arguments));
    must_equal(statistics_of(it->scene.pool).out_blocks, 0);
}

/* ---- a pool ---- */

/* Of all at once; or chunk by chunk, each stream having pieces, until upstream has no
 * more. */
static pool_scene open_scene_of(size_t bytes, bool is_fixed)
{
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 64 * MIB);
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    if (is_fixed) {
        options.initial_bytes = options.limit_bytes = bytes;
    } else {
        options.growth_bytes = 4 * KIB;
        options.slack_bytes = 2 * KIB;
    }
    weir_resource *leaf = open_leaf(it.device), *most;
    must_ok(weir_limiting_create(leaf, bytes, &most));
    must_ok(weir_pool_create(most, &options, &it.pool));
    weir_resource_unref(most);
    weir_resource_unref(leaf);
    return it;
}

static void run_pool(uint64_t seed, bool is_fixed)
{
    stage it = { .bytes = 256, .by_streams = seed % 2 != 0 };
    it.scene = open_scene_of(THREADS * SHARE * it.bytes, is_fixed);
    run_workers(&it, seed);
    weir_resource_statistics now = statistics_of(it.scene.pool);
    must_equal(now.free_bytes, now.held_bytes);
    close_scene(&it.scene);
}

static void pool_refuses_nobody(void **state)
{
    (void)state;
    uint64_t runs = support_bound("test_shares.pool_runs", 90, 2000);
    for (uint64_t run = 0; run < runs; run++)
        run_pool(support_seed(run), true);
}

static void growing_pool_refuses_nobody(void **state)
{
    (void)state;
    uint64_t runs = support_bound("test_shares.growing_runs", 10, 1000);
    for (uint64_t run = 0; run < runs; run++)
        run_pool(support_seed(run), false);
}

/* ---- a leaf ---- */

static void leaf_refuses_nobody(void **state)
{
    (void)state;
    uint64_t runs = support_bound("test_shares.leaf_runs", 6, 500);
    for (uint64_t run = 0; run < runs; run++) {
        uint64_t seed = support_seed(run);
        stage it = { .bytes = 64 * KIB, .by_streams = seed % 2 != 0 };
        it.scene = open_scene_without_pool(WEIR_EMULATED_STEPPED,
                                           THREADS * SHARE * it.bytes);
        it.scene.pool = open_leaf(it.scene.device);
        run_workers(&it, seed);
        close_scene(&it.scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_refuses_nobody),
        cmocka_unit_test(growing_pool_refuses_nobody),
        cmocka_unit_test(leaf_refuses_nobody),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
