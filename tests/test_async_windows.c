/* test_async_windows.c - a thread is held up at each place where it has kept blocks of
 * an `async` in its hands, on their way to the driver: another that needs them waits
 * for them, and is not refused. */
#include "support_pool.h"

#define BLOCK  (2 * MIB)
#define BLOCKS 3 /* the pool's most */

typedef struct stage {
    pool_scene scene;
    uint64_t at, choices; /* where the first thread is held up, and how far it came */
    bool is_through;      /* it was before */
} stage;

static uint32_t choose(void *context, uint32_t n)
{
    stage *it = context;
    return it->choices++ < it->at ? 0 : n - 1;
}

static void trims(void *argument)
{
    stage *it = argument;
    (void)weir_resource_trim_sync(it->scene.pool, 0);
    it->is_through = it->choices <= it->at;
}

static void takes_all(void *argument)
{
    stage *it = argument;
    void *ptrs[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        ptrs[i] = take_on(&it->scene, 1, BLOCK);
    for (int i = 0; i < BLOCKS; i++)
        give_on(&it->scene, 1, ptrs[i], BLOCK);
}

typedef struct job {
    void (*does)(void *stage);
    stage *it;
} job;

static void do_job(void *argument)
{
    job *self = argument;
    self->does(self->it);
}

static void stage_open(stage *it)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.memory_bytes = 64 * MIB;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.choose = choose;
    emulated.choose_context = it;
    weir_device_options device = WEIR_DEVICE_OPTIONS_INIT;
    device.emulated = &emulated;
    it->scene.device = open_with("emulated:0", &device);
    for (int i = 0; i < STREAMS; i++)
        it->scene.streams[i] = make_stream(it->scene.device, WEIR_STREAM_NON_BLOCKING);
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    options.max_bytes = BLOCKS * BLOCK;
    must_ok(weir_async_create(it->scene.device, &options, &it->scene.pool));
}

/* All the pool has is kept, of a capture that is released. */
static void keep_all(stage *it)
{
    weir_capture *capture;
    void *ptrs[BLOCKS];
    weir_stream stream = it->scene.streams[2];
    must_ok(weir_capture_begin(it->scene.pool, stream, &capture));
    for (int i = 0; i < BLOCKS; i++)
        ptrs[i] = take(it->scene.pool, stream, BLOCK);
    for (int i = 0; i < BLOCKS; i++)
        give(it->scene.pool, stream, ptrs[i], BLOCK);
    must_equal(statistics_of(it->scene.pool).kept_bytes, BLOCKS * BLOCK);
    must_ok(weir_capture_release(capture, stream));
}

/* False: the first thread was through before it was held up. */
static bool run_at(uint64_t at)
{
    stage it = { .at = UINT64_MAX };
    support_use_seed(at);
    stage_open(&it);
    keep_all(&it);
    it.at = at;
    it.choices = 0;
    job jobs[2] = { { trims, &it }, { takes_all, &it } };
    void *arguments[2] = { &jobs[0], &jobs[1] };
    must_ok(weir_emulated_run_threads(it.scene.device, 2, do_job, arguments));
    must_equal(statistics_of(it.scene.pool).out_blocks, 0);
    must_equal(statistics_of(it.scene.pool).kept_bytes, 0);
    close_scene(&it.scene);
    return !it.is_through;
}

static void what_is_on_its_way_is_waited_for(void **state)
{
    (void)state;
    uint64_t at = 0;
    while (run_at(at))
        at++;
    print_message("%llu windows\n", (unsigned long long)at);
    must(at > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_on_its_way_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
