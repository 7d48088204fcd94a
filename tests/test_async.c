/* test_async.c - the leaf async: whose pool it draws from, what its options do, what it
 * frees when, and what it tells. Captures and failures have their own files. */
#include "support_leaf.h"

#include <string.h>

#include "device/device.h"
#include "weir/async.h"
#include "weir/capture.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static weir__mempool_state state_of(scene *s, weir_mempool pool)
{
    weir__mempool_state state;
    must_ok(weir__mempool_get_state(s->device, pool, &state));
    return state;
}

static weir_mempool pool_of(weir_resource *mr)
{
    weir_mempool pool;
    must_ok(weir_async_get_pool(mr, &pool));
    return pool;
}

/* ---- whose pool ---- */

static weir_async_options blank(void)
{
    const weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    return options;
}

static void each_kind_of_memory_is_what_it_says(void **state)
{
    (void)state;
    static const char *const specs[] = { "async", "async(memory=managed)",
                                         "async(memory=pinned)",
                                         "async(default, memory=pinned)" };
    for (size_t i = 0; i < 4; i++) {
        scene s = scene_begin(4 + i, specs[i]);
        weir_resource_properties is = { .struct_size = sizeof is };
        must_ok(weir_resource_get_properties(s.mr, &is));
        must(is.device_accessible && !is.usable_at_once);
        must(is.can_trim && is.can_find && !is.can_extend);
        must_equal(is.host_accessible, i > 0);
        must_equal(is.managed, i == 1);
        must_equal(is.pinned, i > 1);
        must_equal(is.max_alignment, WEIR_ALIGNMENT);
        assert_string_equal(is.leaf, "async");
        unsigned char *ptr = take(s.mr, s.a, 5000);
        stamp(s.device, s.a, ptr, 5000, i);
        check_stamp(s.device, s.a, ptr, 5000, i);
        must_ok(weir_stream_sync(s.device, s.a));
        if (i > 0)
            ptr[0] = ptr[1]; /* the host may */
        give(s.mr, s.a, ptr, 5000);
        scene_end(&s);
    }
}

static void primed_memory_serves_every_stream(void **state)
{
    (void)state;
    scene s = scene_begin(8, "async(primed=4MiB, reuse=same_stream)");
    must_equal(statistics_of(s.mr).held_bytes, 4 * MIB);
    must_equal(statistics_of(s.mr).out_bytes, 0);
    must_equal(statistics_of(s.mr).allocations, 0);
    size_t free_bytes = device_free_bytes(s.device);
    void *x = take(s.mr, s.a, 2 * MIB), *y = take(s.mr, s.b, 2 * MIB);
    must_equal(device_free_bytes(s.device), free_bytes);
    give(s.mr, s.a, x, 2 * MIB);
    give(s.mr, s.b, y, 2 * MIB);
    scene_end(&s);
}

static void a_pool_that_cannot_be_primed_is_none(void **state)
{
    (void)state;
    scene s = scene_begin(9, NULL);
    weir_async_options options = blank();
    options.primed_bytes = 64 * GIB;
    size_t free_bytes = device_free_bytes(s.device);
    must_answer(WEIR_OUT_OF_MEMORY, weir_async_create(s.device, &options, &s.mr));
    must(s.mr == NULL);
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.requested_bytes, 64 * GIB);
    must_equal(device_free_bytes(s.device), free_bytes);
    must_equal(calls_of(s.device).mempool_destroy, 1);
    must_equal(calls_of(s.device).stream_destroy, 1);
    scene_end(&s);
}

/* By default nothing goes back when the host waits; the driver's default is all. */
static void threshold_says_what_a_wait_leaves(void **state)
{
    (void)state;
    static const char *const specs[] = { "async", "async(release_threshold=0)",
                                         "async(release_threshold=2MiB)" };
    static const size_t left[] = { 4 * MIB, 0, 2 * MIB };
    for (size_t i = 0; i < 3; i++) {
        scene s = scene_begin(10 + i, specs[i]);
        void *x = take(s.mr, s.a, 2 * MIB), *y = take(s.mr, s.a, 2 * MIB);
        give(s.mr, s.a, x, 2 * MIB);
        give(s.mr, s.a, y, 2 * MIB);
        must_equal(statistics_of(s.mr).held_bytes, 4 * MIB);
        must_ok(weir_stream_sync(s.device, s.a));
        must_equal(statistics_of(s.mr).held_bytes, left[i]);
        must_equal(statistics_of(s.mr).free_bytes, left[i]);
        must_equal(statistics_of(s.mr).peak_held_bytes, 4 * MIB);
        scene_end(&s);
    }
}

static void no_more_than_max_is_reserved(void **state)
{
    (void)state;
    scene s = scene_begin(13, "async(max=4MiB)");
    void *x = take(s.mr, s.a, 3 * MIB), *none = &s;
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(s.mr, s.a, 2 * MIB, WEIR_ALIGNMENT, &none));
    must(none == NULL);
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.requested_bytes, 2 * MIB);
    must_equal(report.limit_bytes, 4 * MIB);
    must_equal(report.in_use_bytes, 3 * MIB);
    must_equal(report.held_bytes, 3 * MIB);
    assert_string_equal(report.resource, "async");
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(s.mr, s.a, SIZE_MAX, WEIR_ALIGNMENT, &none));
    give(s.mr, s.a, x, 3 * MIB);
    x = take(s.mr, s.a, 4 * MIB);
    give(s.mr, s.a, x, 4 * MIB);
    must_equal(statistics_of(s.mr).failures, 2);
    scene_end(&s);
}

static void default_pool_is_shared_and_stays(void **state)
{
    (void)state;
    scene s = scene_begin(14, "async(pool=default)");
    weir_resource *other;
    must_ok(weir_resource_open(s.device, "async(default)", &other));
    weir_mempool pool = pool_of(s.mr);
    must(pool_of(other) == pool);
    void *x = take(s.mr, s.a, MIB), *y = take(other, s.a, MIB);
    must_equal(statistics_of(s.mr).held_bytes, 2 * MIB); /* of both */
    must_equal(statistics_of(s.mr).out_bytes, MIB);
    give(other, s.a, y, MIB);
    weir_resource_unref(other);
    must_equal(state_of(&s, pool).used_bytes, MIB);
    give(s.mr, s.a, x, MIB);
    weir_resource_unref(s.mr);
    s.mr = NULL;
    must_equal(state_of(&s, pool).reserved_bytes, 2 * MIB); /* nobody trimmed it */
    weir_device_calls calls = calls_of(s.device);
    must_equal(calls.mempool_create + calls.mempool_destroy + calls.mempool_trim, 0);
    must_ok(weir_device_sync(s.device)); /* its own threshold: nothing */
    must_equal(state_of(&s, pool).reserved_bytes, 0);
    scene_end(&s);
}

static void foreign_pool_is_not_destroyed(void **state)
{
    (void)state;
    scene s = scene_begin(15, "async");
    weir_async_options options = blank();
    options.pool = WEIR_ASYNC_FOREIGN;
    options.foreign = pool_of(s.mr);
    weir_resource *guest;
    must_ok(weir_async_create(s.device, &options, &guest));
    must(pool_of(guest) == options.foreign);
    void *x = take(guest, s.a, MIB);
    stamp(s.device, s.a, x, MIB, 1);
    must_equal(state_of(&s, options.foreign).used_bytes, MIB);
    give(guest, s.a, x, MIB);
    weir_resource_unref(guest);
    must_equal(calls_of(s.device).mempool_destroy, 0);
    x = take(s.mr, s.a, MIB);
    give(s.mr, s.a, x, MIB);
    weir_resource_unref(s.mr);
    s.mr = NULL;
    must_equal(calls_of(s.device).mempool_destroy, 1);
    scene_end(&s);
}

static void only_an_async_has_a_pool(void **state)
{
    (void)state;
    scene s = scene_begin(16, "pool/async");
    weir_mempool pool = (weir_mempool)&s;
    must_answer(WEIR_INVALID_ARGUMENT, weir_async_get_pool(s.mr, &pool));
    must(pool == NULL);
    must_answer(WEIR_INVALID_ARGUMENT, weir_async_get_pool(NULL, &pool));
    must_answer(WEIR_INVALID_ARGUMENT, weir_async_get_pool(s.mr, NULL));
    scene_end(&s);
}

/* ---- what it costs ---- */

/* An allocation and a free are one call each, and the question whether the stream is
 * captured: no event, no mark, no other question, whatever the stream. */
static void blocks_cost_no_events(void **state)
{
    (void)state;
    scene s = scene_begin(17, "async");
    weir_stream unknown;
    must_ok(weir_emulated_stream_create(s.device, WEIR_STREAM_NON_BLOCKING, &unknown));
    const weir_stream streams[] = { s.a, s.b, NULL, WEIR_STREAM_PER_THREAD, unknown };
    for (size_t i = 0; i < 5; i++) {
        weir_device_calls before = calls_of(s.device);
        give(s.mr, streams[i], take(s.mr, streams[i], MIB), MIB);
        weir_device_calls after = calls_of(s.device);
        must_equal(after.mempool_malloc, before.mempool_malloc + 1);
        must_equal(after.mempool_free, before.mempool_free + 1);
        must_equal(after.stream_is_capturing, before.stream_is_capturing + 2);
        before.mempool_malloc++;
        before.mempool_free++;
        before.stream_is_capturing += 2;
        must(memcmp(&after, &before, sizeof after) == 0);
    }
    must_ok(weir_emulated_stream_destroy(s.device, unknown));
    scene_end(&s);
}

/* It is not met as a stream of the user's: a pool beside it goes on without events. */
static void its_own_stream_costs_others_nothing(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(18));
    weir_resource *async, *pool;
    must_ok(weir_resource_open(device, "async", &async));
    must_ok(weir_resource_open(device, "pool/device", &pool));
    for (int i = 0; i < 3; i++)
        give(pool, NULL, take(pool, NULL, MIB), MIB);
    must_equal(calls_of(device).event_record, 0);
    weir_resource_unref(pool);
    weir_resource_unref(async);
    close_emulated(device);
}

static void statistics_are_exact(void **state)
{
    (void)state;
    scene s = scene_begin(19, "async");
    void *x = take(s.mr, s.a, 1000), *y = take(s.mr, s.b, MIB);
    weir_resource_statistics now = statistics_of(s.mr);
    must_equal(now.out_bytes, MIB + 1000);
    must_equal(now.out_blocks, 2);
    must_equal(now.held_bytes, state_of(&s, pool_of(s.mr)).reserved_bytes);
    must_equal(now.free_bytes, now.held_bytes - now.out_bytes);
    give(s.mr, s.b, y, MIB);
    must(weir_free(s.mr, x));
    weir_resource_statistics then = now;
    now = statistics_of(s.mr);
    must_equal(now.out_bytes + now.out_blocks + now.kept_bytes + now.failures, 0);
    must_equal(now.peak_out_bytes, MIB + 1000);
    must_equal(now.held_bytes, then.held_bytes);
    must_equal(now.free_bytes, now.held_bytes);
    must_equal(now.allocations, 2);
    must_equal(now.deallocations, 2);
    must_equal(weir_resource_trim_sync(s.mr, 0), now.held_bytes);
    now = statistics_of(s.mr);
    must_equal(now.held_bytes, 0);
    must_equal(now.peak_held_bytes, then.held_bytes);
    must_equal(weir_resource_trim_sync(s.mr, 0), 0);
    scene_end(&s);
}

/* ---- trim ---- */

static void trim_waits_for_what_it_gives_back(void **state)
{
    (void)state;
    scene s = scene_begin(20, "async");
    void *x = take(s.mr, s.a, 2 * MIB), *y = take(s.mr, s.b, MIB);
    void *z = take(s.mr, s.b, MIB);
    uint64_t gate = scene_stall(&s, s.a);
    stamp(s.device, s.a, x, 2 * MIB, 1);
    give(s.mr, s.a, x, 2 * MIB);
    give(s.mr, s.b, y, MIB);
    must_equal(weir_resource_trim_sync(s.mr, 4 * MIB), 0);
    must_ok(weir_stream_sync(s.device, s.b));
    must_equal(weir_resource_trim_sync(s.mr, 0), MIB); /* a is stalled */
    must_ok(weir_emulated_open_gate(s.device, gate));
    must_equal(weir_resource_trim_sync(s.mr, 0), 2 * MIB);
    must_equal(statistics_of(s.mr).held_bytes, MIB);
    give(s.mr, s.b, z, MIB);
    scene_end(&s);
}

/* ---- out of memory ---- */

static void out_of_memory_is_told_with_numbers(void **state)
{
    (void)state;
    scene s = scene_begin(21, "async");
    void *out = take(s.mr, s.a, GIB), *none = &s;
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(s.mr, s.b, 4 * GIB, WEIR_ALIGNMENT, &none));
    must(none == NULL);
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.requested_bytes, 4 * GIB);
    must_equal(report.held_bytes, GIB);
    must_equal(report.in_use_bytes, GIB);
    must_equal(report.limit_bytes, SIZE_MAX);
    must_equal(statistics_of(s.mr).failures, 1);
    give(s.mr, s.a, out, GIB);
    scene_end(&s);
}

/* What waits for a capture that is over by now is needed: all of it, not two blocks. */
static void what_is_kept_goes_before_a_request_fails(void **state)
{
    (void)state;
    scene s = scene_begin(22, "async(max=4MiB)");
    weir_capture *capture;
    void *out[4];
    must_ok(weir_capture_begin(s.mr, s.a, &capture));
    for (int i = 0; i < 4; i++)
        out[i] = take(s.mr, s.a, MIB);
    for (int i = 0; i < 4; i++)
        give(s.mr, s.a, out[i], MIB);
    must_ok(weir_capture_release(capture, s.a));
    must_equal(statistics_of(s.mr).kept_bytes, 4 * MIB);
    out[0] = take(s.mr, s.b, 3 * MIB);
    must_equal(statistics_of(s.mr).kept_bytes, 0);
    give(s.mr, s.b, out[0], 3 * MIB);
    scene_end(&s);
}

/* ---- stream order ---- */

/* Behind points of `count` stalled streams: nobody gets it before the last. The pool
 * has room for nothing else, and makes no stream wait by itself. */
static void free_behind_points(size_t count)
{
    scene s = scene_begin(30 + count,
                          "async(max=1MiB, reuse=same_stream+opportunistic)");
    weir_stream streams[6];
    uint64_t gates[6];
    weir_point points[7];
    void *ptr = take(s.mr, s.a, MIB), *none;
    for (size_t i = 0; i < count; i++) {
        streams[i] = make_stream(s.device, WEIR_STREAM_NON_BLOCKING);
        must_ok(weir_stream_wait(s.device, streams[i], s.a)); /* has the block now */
        gates[i] = scene_stall(&s, streams[i]);
        must_ok(weir_point_here(s.device, streams[i], &points[i]));
    }
    points[count] = points[0]; /* once more */
    must(weir_deallocate_after(s.mr, ptr, MIB, WEIR_ALIGNMENT, points, count + 1));
    must_equal(statistics_of(s.mr).out_blocks + statistics_of(s.mr).kept_bytes, 0);
    for (size_t i = 0; i < count; i++) {
        must_answer(WEIR_LIMIT_REACHED,
                    weir_allocate(s.mr, s.b, MIB, WEIR_ALIGNMENT, &none));
        must_ok(weir_emulated_open_gate(s.device, gates[count - 1 - i]));
        must_ok(weir_stream_sync(s.device, streams[count - 1 - i]));
    }
    must_ok(weir_device_sync(s.device));
    ptr = take(s.mr, s.b, MIB);
    stamp(s.device, s.b, ptr, MIB, 2);
    give(s.mr, s.b, ptr, MIB);
    for (size_t i = 0; i < count; i++)
        end_stream(s.device, streams[i]);
    scene_end(&s);
}

static void memory_goes_behind_all_points(void **state)
{
    (void)state;
    for (size_t count = 1; count <= 6; count++)
        free_behind_points(count);
}

/* With no points the giver knows that nothing uses it, whatever is stalled. */
static void memory_goes_behind_no_points_at_once(void **state)
{
    (void)state;
    scene s = scene_begin(37, "async(max=1MiB)");
    void *ptr = take(s.mr, s.a, MIB);
    stamp(s.device, s.a, ptr, MIB, 1);
    must_ok(weir_stream_sync(s.device, s.a));
    uint64_t gate = scene_stall(&s, s.a);
    must(weir_deallocate_after(s.mr, ptr, MIB, WEIR_ALIGNMENT, NULL, 0));
    ptr = take(s.mr, s.b, MIB);
    stamp(s.device, s.b, ptr, MIB, 2);
    must_ok(weir_stream_sync(s.device, s.b));
    give(s.mr, s.b, ptr, MIB);
    must_ok(weir_emulated_open_gate(s.device, gate));
    scene_end(&s);
}

/* Memory of the driver's pools is the stream's that asked for it, a pool's chunk too:
 * what is left of it serves another stream behind that only. */
static void pool_over_it_hands_on_in_stream_order(void **state)
{
    (void)state;
    scene s = scene_begin(39, "pool/async");
    void *x = take(s.mr, s.a, MIB);
    weir_device_calls before = calls_of(s.device);
    void *y = take(s.mr, s.b, MIB); /* of the same chunk */
    must_equal(calls_of(s.device).mempool_malloc, before.mempool_malloc);
    must_equal(calls_of(s.device).stream_wait_event, before.stream_wait_event + 1);
    stamp(s.device, s.a, x, MIB, 1);
    stamp(s.device, s.b, y, MIB, 2);
    check_stamp(s.device, s.a, x, MIB, 1);
    check_stamp(s.device, s.b, y, MIB, 2);
    give(s.mr, s.a, x, MIB);
    give(s.mr, s.b, y, MIB);
    scene_end(&s);
}

/* What a user forgets, the ledger finds: memory is the stream's that asked for it, and
 * a free is behind nothing but its own stream. */
static void who_forgets_to_wait_is_found(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        scene s = scene_begin(38, "async(max=1MiB)");
        void *ptr = take(s.mr, s.a, MIB);
        stamp(s.device, s.a, ptr, MIB, 1);
        if (i > 0)
            must_ok(weir_stream_wait(s.device, s.b, s.a));
        if (i != 1) /* 0: used on another stream; 2: all is well */
            check_stamp(s.device, s.b, ptr, MIB, 1);
        if (i == 2)
            must_ok(weir_stream_wait(s.device, s.a, s.b));
        give(s.mr, s.a, ptr, MIB);
        if (i == 1) /* used after it was given back */
            must(try_check_stamp(s.device, s.b, ptr, MIB, 1) != WEIR_DEVICE_LOST);
        must_ok(weir_device_sync(s.device));
        must_equal(weir_emulated_findings(s.device) > 0, i < 2);
        weir_resource_unref(s.mr);
        end_stream(s.device, s.a);
        end_stream(s.device, s.b);
        (void)take_stamp_errors();
        close_anyhow(s.device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_memory_is_what_it_says),
        cmocka_unit_test(primed_memory_serves_every_stream),
        cmocka_unit_test(a_pool_that_cannot_be_primed_is_none),
        cmocka_unit_test(threshold_says_what_a_wait_leaves),
        cmocka_unit_test(no_more_than_max_is_reserved),
        cmocka_unit_test(default_pool_is_shared_and_stays),
        cmocka_unit_test(foreign_pool_is_not_destroyed),
        cmocka_unit_test(only_an_async_has_a_pool),
        cmocka_unit_test(blocks_cost_no_events),
        cmocka_unit_test(its_own_stream_costs_others_nothing),
        cmocka_unit_test(statistics_are_exact),
        cmocka_unit_test(trim_waits_for_what_it_gives_back),
        cmocka_unit_test(out_of_memory_is_told_with_numbers),
        cmocka_unit_test(what_is_kept_goes_before_a_request_fails),
        cmocka_unit_test(memory_goes_behind_all_points),
        cmocka_unit_test(memory_goes_behind_no_points_at_once),
        cmocka_unit_test(pool_over_it_hands_on_in_stream_order),
        cmocka_unit_test(who_forgets_to_wait_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
