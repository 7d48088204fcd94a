/* test_pool_faults.c - the pool when the device or the host's memory fails: either it
 * does without, or nothing has changed. */
#include "support_pool.h"

#include <string.h>

#include "internal.h"

/* A wait that fails changes nothing: the block is there for the next. */
static void a_failed_wait_puts_all_back(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 2 * MIB, 2 * MIB, MIB);
    void *a = take_on(&it, 0, MIB), *b = take_on(&it, 1, MIB);
    uint64_t gates[2] = { stall(&it, 0), stall(&it, 1) };
    give_on(&it, 0, a, MIB);
    give_on(&it, 1, b, MIB);
    weir_resource_statistics before = statistics_of(it.pool);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        plan_fault(it.device, "stream_wait_event", nth, true, WEIR_DEVICE_ERROR);
        (void)try_take(&it, 2, 2 * MIB, WEIR_DEVICE_ERROR);
        plan_fault(it.device, NULL, 0, false, WEIR_OK);
        before.failures++;
        weir_resource_statistics after = statistics_of(it.pool);
        must(memcmp(&before, &after, sizeof before) == 0);
    }
    void *c = take_on(&it, 2, 2 * MIB);
    open_gate(&it, gates[0]);
    open_gate(&it, gates[1]);
    give_on(&it, 2, c, 2 * MIB);
    close_scene(&it);
}

/* The merge's own event cannot be recorded: the remainder is still safe. */
static void a_merge_without_its_event_is_safe(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 2 * MIB, 2 * MIB, MIB);
    void *a = take_on(&it, 0, MIB), *b = take_on(&it, 1, MIB);
    uint64_t gates[2] = { stall(&it, 0), stall(&it, 1) };
    give_on(&it, 0, a, MIB);
    give_on(&it, 1, b, MIB);
    plan_fault(it.device, "event_record", 1, true, WEIR_DEVICE_ERROR);
    void *c = take_on(&it, 2, MIB + 512 * KIB);
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    void *d = take_on(&it, 3, 512 * KIB);
    open_gate(&it, gates[0]);
    open_gate(&it, gates[1]);
    give_on(&it, 2, c, MIB + 512 * KIB);
    give_on(&it, 3, d, 512 * KIB);
    close_scene(&it);
}

static void a_lost_device_lets_the_pool_end(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 0, MIB);
    void *a = take_on(&it, 0, MIB), *b = take_on(&it, 1, MIB), *none;
    give_on(&it, 0, a, MIB);
    plan_fault(it.device, NULL, 1, true, WEIR_DEVICE_LOST);
    must_answer(WEIR_DEVICE_LOST, weir_stream_sync(it.device, it.streams[0]));
    must_answer(WEIR_DEVICE_LOST, weir_allocate(it.pool, it.streams[0], MIB,
                                                WEIR_ALIGNMENT, &none));
    give(it.pool, it.streams[1], b, MIB);
    must_equal(weir_resource_trim_sync(it.pool, 0), 0);
    weir_resource_unref(it.pool);
    for (int i = 0; i < STREAMS; i++)
        (void)weir_stream_destroy(it.device, it.streams[i]);
    close_anyhow(it.device);
}

/* As many blocks as there is host memory for, and all of them back. Answers how
 * often the library has asked for host memory. */
static uint64_t run_without(weir_device *device, uint64_t nth, bool lasting)
{
    weir_resource *pool = open_pool(open_leaf(device), 0, 8 * MIB, MIB);
    void *blocks[10];
    uint64_t count = 0;
    weir__host_fail_at(nth, lasting);
    for (int i = 0; i < 10; i++) {
        weir_status status =
            weir_allocate(pool, NULL, 300 * KIB, WEIR_ALIGNMENT, &blocks[count]);
        must(status == WEIR_OK || status == WEIR_OUT_OF_HOST_MEMORY);
        count += status == WEIR_OK;
    }
    must_equal(statistics_of(pool).out_blocks, count);
    must_equal(statistics_of(pool).failures, 10 - count);
    uint64_t calls = weir__host_calls();
    for (uint64_t i = 0; i < count; i++)
        give(pool, NULL, blocks[i], 300 * KIB);
    must_equal(weir__host_calls(), calls); /* giving back asks for none */
    weir__host_fail_at(0, false);
    weir_resource_unref(pool);
    return calls;
}

/* Each host allocation fails in turn, once and for good. */
static void pool_survives_a_lack_of_host_memory(void **state)
{
    (void)state;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.no_ledger = true; /* it would need host memory of its own */
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    for (int lasting = 0; lasting < 2; lasting++) {
        uint64_t nth = 0, calls;
        do {
            weir_device *device = open_with("emulated:0", &options);
            calls = run_without(device, ++nth, lasting != 0);
            close_emulated(device);
        } while (calls >= nth);
        must(nth > 8);
    }
}

/* ---- two frees of one block ---- */

typedef struct race {
    weir_resource *pool;
    void *ptr;
    bool done[2];
} race;

typedef struct racer {
    race *race;
    int seat;
} racer;

static void free_it(void *argument)
{
    racer *self = argument;
    race *it = self->race;
    it->done[self->seat] =
        weir_deallocate(it->pool, NULL, it->ptr, MIB, WEIR_ALIGNMENT);
}

/* Whatever the turns, one of them counts and the other is told. */
static void one_of_two_frees_is_misuse(void **state)
{
    (void)state;
    uint64_t runs = support_bound("test_pool.race_runs", 100, 1000);
    for (uint64_t run = 0; run < runs; run++) {
        weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
        emulated.scheduler = WEIR_EMULATED_STEPPED;
        emulated.seed = support_seed(run);
        emulated.no_ledger = true; /* it finds the race of the two frees, rightly */
        weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
        options.emulated = &emulated;
        weir_device *device = open_with("emulated:0", &options);
        race it = { .pool = open_pool(open_leaf(device), 0, MIB, MIB) };
        racer racers[2] = { { &it, 0 }, { &it, 1 } };
        void *arguments[2] = { &racers[0], &racers[1] };
        misuse_log log;
        misuse_begin(&log);
        it.ptr = take(it.pool, NULL, MIB);
        must_ok(weir_emulated_run_threads(device, 2, free_it, arguments));
        must(it.done[0] != it.done[1]);
        must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, it.ptr);
        misuse_end();
        must_equal(statistics_of(it.pool).deallocations, 1);
        must_equal(statistics_of(it.pool).out_blocks, 0);
        weir_resource_unref(it.pool);
        close_emulated(device);
    }
}

/* Of more streams than a request keeps in mind none can be waited for; all that others
 * left is looked at twice, for there is something in a cache. */
static void many_waits_may_fail(void **state)
{
    (void)state;
    enum { MANY = 14 };
    const size_t bytes = 16 * MIB;
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 256 * MIB);
    must_ok(weir_resource_open(it.device, "pool/device", &it.pool));
    weir_stream streams[MANY];
    void *blocks[MANY];
    uint64_t gates[MANY];
    for (int i = 0; i < MANY; i++) {
        streams[i] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        blocks[i] = take(it.pool, streams[i], bytes);
    }
    for (int i = 0; i < MANY; i++) {
        must_ok(weir_emulated_stall(it.device, streams[i], &gates[i]));
        stamp(it.device, streams[i], blocks[i], 256, 1);
        give(it.pool, streams[i], blocks[i], bytes);
    }
    weir_thread_flush();
    for (int i = 0; i < 2; i++) {
        void *small = take(it.pool, streams[0], 256); /* its own */
        give(it.pool, streams[0], small, 256);
    }
    plan_fault(it.device, "malloc", 1, true, WEIR_OUT_OF_MEMORY);
    must_ok(weir_emulated_capture_begin(it.device, it.streams[0]));
    (void)try_take(&it, 0, bytes / 2, WEIR_CAPTURING);
    must_ok(weir_emulated_capture_end(it.device, it.streams[0], NULL));
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    for (int i = 0; i < MANY; i++)
        open_gate(&it, gates[i]);
    void *got = take_on(&it, 0, bytes / 2);
    give_on(&it, 0, got, bytes / 2);
    for (int i = 0; i < MANY; i++)
        end_stream(it.device, streams[i]);
    close_scene(&it);
}

/* What could not be waited for stays; what another stream has used goes. */
static void trim_goes_on_after_a_failed_wait(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        pool_scene it = open_scene(1, 0, 0, MIB);
        void *a = take_on(&it, 0, MIB), *b = take_on(&it, 1, MIB);
        give_on(&it, 0, a, MIB);
        give_on(&it, 1, b, MIB);
        plan_fault(it.device, "event_sync", nth, false, WEIR_DEVICE_ERROR);
        must_equal(weir_resource_trim_sync(it.pool, 0), MIB);
        must_equal(weir_emulated_fault_calls(it.device), 2);
        plan_fault(it.device, NULL, 0, false, WEIR_OK);
        must_equal(weir_resource_trim_sync(it.pool, 0), MIB);
        close_scene(&it);
    }
}

/* What no device has is refused, and nothing goes upstream for it. */
static void what_cannot_be_changes_nothing(void **state)
{
    (void)state;
    const size_t sizes[] = { (size_t)1 << 52, SIZE_MAX / 2, SIZE_MAX / 2 - 255 };
    const size_t growths[] = { 0, MIB, SIZE_MAX / 2 + MIB, SIZE_MAX };
    for (size_t g = 0; g < sizeof growths / sizeof growths[0]; g++) {
        pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 64 * MIB);
        weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
        weir_resource *leaf = open_leaf(it.device);
        options.growth_bytes = growths[g];
        must_ok(weir_pool_create(leaf, &options, &it.pool));
        weir_resource_unref(leaf);
        void *ptr = take_on(&it, 0, MIB);
        give_on(&it, 0, ptr, MIB);
        size_t held = statistics_of(it.pool).held_bytes;
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            for (size_t alignment = 256; alignment <= 2 * MIB; alignment *= 2)
                must_answer(WEIR_OUT_OF_MEMORY,
                            weir_allocate(it.pool, it.streams[0], sizes[i], alignment,
                                          &ptr));
            must_equal(statistics_of(it.pool).held_bytes, held);
        }
        close_scene(&it);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_wait_puts_all_back),
        cmocka_unit_test(a_merge_without_its_event_is_safe),
        cmocka_unit_test(a_lost_device_lets_the_pool_end),
        cmocka_unit_test(many_waits_may_fail),
        cmocka_unit_test(trim_goes_on_after_a_failed_wait),
        cmocka_unit_test(what_cannot_be_changes_nothing),
        cmocka_unit_test(pool_survives_a_lack_of_host_memory),
        cmocka_unit_test(one_of_two_frees_is_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
