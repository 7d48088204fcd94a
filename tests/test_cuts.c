/* test_cuts.c - what a pool over growable gives back of a chunk that is in use, what
 * that waits for, and what it can be used for elsewhere. */
#include <string.h>

#include "internal.h"
#include "support_pool.h"
#include "support_work.h"
#include "weir/resource_ops.h"

#define PAGE WEIR_GROWABLE_PAGE_BYTES

/* Two pages have four blocks, less one in each second. Chunks are pages, for so much is
 * missing each time. */
#define BLOCKS 12
#define BYTES  (3 * MIB / 2)

/* A pool over growable, with blocks one behind the other. */
typedef struct stage {
    pool_scene scene;
    unsigned char *ptrs[BLOCKS];
    size_t free_before;  /* of the device */
} stage;

static void stage_open_over(stage *it, const char *spec)
{
    it->scene.device = open_stepped(0);
    it->free_before = device_free_bytes(it->scene.device);
    for (int i = 0; i < STREAMS; i++)
        it->scene.streams[i] = make_stream(it->scene.device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_resource_open(it->scene.device, spec, &it->scene.pool));
    for (size_t i = 0; i < BLOCKS; i++) {
        it->ptrs[i] = take_on(&it->scene, 0, BYTES);
        must(it->ptrs[i] == it->ptrs[0] + i * BYTES);
    }
}

static void stage_open(stage *it)
{
    stage_open_over(it, "pool(cache=none)/growable(chunk=2MiB)");
}

/* Gives back those from `first` to `last`. */
static void give_some(stage *it, int first, int last, int stream)
{
    if (stream != 0)
        must_ok(weir_stream_wait(it->scene.device, it->scene.streams[stream],
                                 it->scene.streams[0]));
    for (int i = first; i <= last; i++) {
        give_on(&it->scene, stream, it->ptrs[i], BYTES);
        it->ptrs[i] = NULL;
    }
}

/* The bytes of the pages that blocks lie in. */
static size_t live_bytes(const stage *it)
{
    size_t count = 0;
    uintptr_t next = 0;
    for (int i = 0; i < BLOCKS; i++) {
        uintptr_t begin = (uintptr_t)it->ptrs[i] / PAGE;
        uintptr_t end = ((uintptr_t)it->ptrs[i] + BYTES - 1) / PAGE + 1;
        if (it->ptrs[i] == NULL)
            continue;
        count += end - (begin > next ? begin : next);
        next = end;
    }
    return count * PAGE;
}

/* Claims that the pool and the device agree on what is held. */
static void must_hold(const stage *it, size_t bytes)
{
    must_equal(statistics_of(it->scene.pool).held_bytes, bytes);
    must_equal(it->free_before - device_free_bytes(it->scene.device), bytes);
}

static void stage_close(stage *it)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (it->ptrs[i] != NULL)
            give_on(&it->scene, 0, it->ptrs[i], BYTES);
    }
    close_scene(&it->scene);
}

static void trim_leaves_what_is_out(void **state)
{
    (void)state;
    stage it;
    stage_open(&it);
    weir_resource *pool = it.scene.pool;
    must_hold(&it, 9 * PAGE);
    give_some(&it, 2, 4, 0);
    give_some(&it, 6, 8, 1);
    give_some(&it, 10, 11, 0);
    must_equal(live_bytes(&it), 6 * PAGE);
    must_equal(weir_resource_trim_sync(pool, 0), 3 * PAGE);
    must_hold(&it, 6 * PAGE);
    must_equal(weir_resource_trim_sync(pool, 0), 0);

    /* What is left in between is the pool's, and so is what is drawn anew. */
    void *small = take_on(&it.scene, 1, 512 * KIB);
    must_hold(&it, 6 * PAGE);
    void *large = take_on(&it.scene, 1, 5 * MIB);
    must_equal(it.free_before - device_free_bytes(it.scene.device),
               statistics_of(pool).held_bytes);
    give_on(&it.scene, 1, small, 512 * KIB);
    give_on(&it.scene, 1, large, 5 * MIB);
    give_some(&it, 0, 1, 0);
    give_some(&it, 5, 5, 2);
    must(weir_resource_trim_sync(pool, 0) > 0);
    must_hold(&it, live_bytes(&it));
    give_some(&it, 9, 9, 0);
    must(weir_resource_trim_sync(pool, 0) > 0);
    must_hold(&it, 0);
    stage_close(&it);
}

static void trim_keeps_what_it_is_asked_to(void **state)
{
    (void)state;
    stage it;
    stage_open(&it);
    weir_resource *pool = it.scene.pool;
    give_some(&it, 1, BLOCKS - 1, 0);
    must_equal(weir_resource_trim_sync(pool, 15 * MIB), 4 * MIB);
    must_hold(&it, 14 * MIB);
    must_equal(weir_resource_trim_sync(pool, 14 * MIB), 0);
    must_equal(weir_resource_trim_sync(pool, 13 * MIB), 2 * MIB);
    must_equal(weir_resource_trim_sync(pool, 0), 10 * MIB);
    must_hold(&it, PAGE);
    stage_close(&it);
}

/* It waits for what it unmaps: were the rest waited for, the gate would never open. */
static void trim_waits_for_no_more(void **state)
{
    (void)state;
    stage it;
    stage_open(&it);
    weir_resource *pool = it.scene.pool;
    give_some(&it, 2, 3, 0);
    give_some(&it, 6, 8, 1);
    unsigned char *held = take_on(&it.scene, 2, 512 * KIB);
    must(held == it.ptrs[1] + BYTES);
    uint64_t gate = stall(&it.scene, 2);
    give_on(&it.scene, 2, held, 512 * KIB);
    must_equal(weir_resource_trim_sync(pool, 0), 2 * PAGE);
    must_hold(&it, live_bytes(&it));
    open_gate(&it.scene, gate);
    must_equal(weir_resource_trim_sync(pool, 0), 0);
    stage_close(&it);
}

/* What a capture has stays where it is until that is released. */
static void what_a_capture_has_is_not_cut(void **state)
{
    (void)state;
    stage it;
    stage_open(&it);
    weir_resource *pool = it.scene.pool;
    weir_capture *capture;
    give_some(&it, 2, 8, 0);
    must_ok(weir_device_sync(it.scene.device)); /* which nobody asks in a capture */
    must_ok(weir_capture_begin(pool, it.scene.streams[1], &capture));
    unsigned char *inside = take(pool, it.scene.streams[1], 4 * MIB);
    must(inside == it.ptrs[1] + BYTES);
    give(pool, it.scene.streams[1], inside, 4 * MIB);
    must_ok(weir_capture_end(capture));
    must_equal(weir_resource_trim_sync(pool, 0), 2 * PAGE);
    must_hold(&it, 7 * PAGE);
    must_equal(weir_pool_give_back(pool), 0);
    must_ok(weir_capture_release(capture, it.scene.streams[1]));
    must_equal(weir_resource_trim_sync(pool, 0), 2 * PAGE);
    must_hold(&it, live_bytes(&it));
    stage_close(&it);
}

/* What goes without a wait goes behind its points, of several streams; and what is cut
 * off in front and behind stays behind them, too. */
static void parts_go_behind_what_used_them(void **state)
{
    (void)state;
    stage it;
    stage_open(&it);
    weir_resource *pool = it.scene.pool;
    weir_point points[3];
    uint64_t gates[3];
    give_some(&it, 2, 8, 0);
    unsigned char *large = take_on(&it.scene, 0, 7 * BYTES);
    must(large == it.ptrs[1] + BYTES);
    for (int i = 0; i < 3; i++) {
        must_ok(weir_stream_wait(it.scene.device, it.scene.streams[i],
                                 it.scene.streams[0]));
        gates[i] = stall(&it.scene, i);
        check_stamp(it.scene.device, it.scene.streams[i], large, 7 * BYTES,
                    (uint64_t)(uintptr_t)large);
        must_ok(weir_point_here(it.scene.device, it.scene.streams[i], &points[i]));
    }
    must(weir_deallocate_after(pool, large, 7 * BYTES, WEIR_ALIGNMENT, points, 3));
    must_equal(weir_pool_give_back(pool), 4 * PAGE);
    must_equal(statistics_of(pool).held_bytes, 5 * PAGE);
    must_equal(it.free_before - device_free_bytes(it.scene.device), 9 * PAGE);
    must_equal(statistics_of(pool).free_bytes, 7 * BYTES - 4 * PAGE);

    /* Each of the two that are left is waited for. */
    uint64_t before = waits(&it.scene);
    void *front = take_on(&it.scene, 3, MIB), *behind = take_on(&it.scene, 3, MIB);
    must(front == large);
    must(behind == large + 7 * BYTES - 3 * MIB / 2 || behind == large + 9 * MIB);
    must_equal(waits(&it.scene) - before, 3);
    for (int i = 0; i < 3; i++)
        open_gate(&it.scene, gates[i]);
    give_on(&it.scene, 3, front, MIB);
    give_on(&it.scene, 3, behind, MIB);
    must_equal(weir_resource_trim_sync(pool, 0), 0);
    must_hold(&it, live_bytes(&it));
    stage_close(&it);
}

/* As many points as fit nowhere else: each cut copies them, so records are asked for.
 * Where one is not to be had less is given back, or nothing; and all of it later. */
static bool trims_without_host_memory(uint64_t nth)
{
    stage it;
    stage_open(&it);
    weir_resource *pool = it.scene.pool;
    weir_point points[3];
    give_some(&it, 2, 8, 0);
    unsigned char *large = take_on(&it.scene, 0, 7 * BYTES);
    for (int i = 0; i < 3; i++) {
        must_ok(weir_stream_wait(it.scene.device, it.scene.streams[i],
                                 it.scene.streams[0]));
        must_ok(weir_point_here(it.scene.device, it.scene.streams[i], &points[i]));
    }
    must(weir_deallocate_after(pool, large, 7 * BYTES, WEIR_ALIGNMENT, points, 3));
    weir__host_fail_at(nth, false);
    size_t went = weir_resource_trim_sync(pool, 0);
    weir__host_fail_at(0, false);
    must(went == 0 || went == 4 * PAGE);
    must_hold(&it, 9 * PAGE - went);
    must_equal(went + weir_resource_trim_sync(pool, 0), 4 * PAGE);
    must_hold(&it, live_bytes(&it));
    stage_close(&it);
    return went > 0;
}

static void without_host_memory_less_is_given_back(void **state)
{
    (void)state;
    uint64_t nth = 1;
    while (!trims_without_host_memory(nth))
        nth++;
    print_message("%llu host allocations failed in turn\n",
                  (unsigned long long)nth - 1);
    must(nth > 4);
}

/* A device that does not unmap keeps what it has; it is given back by a later trim. */
static void what_the_device_does_not_take_goes_later(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 4; nth++) {
        stage it;
        stage_open(&it);
        weir_resource *pool = it.scene.pool;
        give_some(&it, 2, 8, 0);
        plan_fault(it.scene.device, "range_unmap", nth, false, WEIR_DEVICE_ERROR);
        must_equal(weir_resource_trim_sync(pool, 0), 4 * PAGE);
        must_equal(statistics_of(pool).held_bytes, 5 * PAGE);
        must_equal(it.free_before - device_free_bytes(it.scene.device),
                   (10 - nth) * PAGE);
        plan_fault(it.scene.device, NULL, 0, false, WEIR_OK);
        (void)weir_resource_trim_sync(pool, 0);
        must_hold(&it, live_bytes(&it));
        stage_close(&it);
    }
}

/* Where the device has no room, a request that fits in no hole is served out of what is
 * free in all of them. */
static void holes_serve_where_memory_is_short(void **state)
{
    (void)state;
    stage it;
    stage_open(&it);
    weir_resource *plain;
    must_ok(weir_resource_open(it.scene.device, "device", &plain));
    size_t rest = device_free_bytes(it.scene.device);
    void *all = take(plain, NULL, rest);
    give_some(&it, 2, 4, 0);
    give_some(&it, 6, 11, 0);
    void *large = take_on(&it.scene, 0, 5 * PAGE);
    must_equal(statistics_of(it.scene.pool).held_bytes, 9 * PAGE);
    void *none = it.ptrs;
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(it.scene.pool, it.scene.streams[0], PAGE, WEIR_ALIGNMENT,
                              &none));
    must(none == NULL);
    give_on(&it.scene, 0, large, 5 * PAGE);
    give(plain, NULL, all, rest);
    must_ok(weir_device_sync(it.scene.device));
    weir_resource_unref(plain);
    stage_close(&it);
}

/* ---- adaptors in between ---- */

/* Those that count go on to; what another does not pass on does not happen. */
static void adaptors_pass_it_on_or_not(void **state)
{
    (void)state;
    stage it;
    stage_open_over(&it, "pool(cache=none)/statistics/limiting(18MiB)"
                         "/growable(chunk=2MiB)");
    give_some(&it, 2, 11, 0);
    must_equal(weir_resource_trim_sync(it.scene.pool, 0), 7 * PAGE);
    must_hold(&it, 2 * PAGE);
    for (int i = 2; i < BLOCKS - 1; i++) /* what went counts for the limit no more */
        it.ptrs[i] = take_on(&it.scene, 0, BYTES);
    must_hold(&it, 9 * PAGE);
    stage_close(&it);

    stage_open_over(&it, "pool(cache=none)/tracking/growable(chunk=2MiB)");
    give_some(&it, 2, 11, 0);
    must_equal(weir_resource_trim_sync(it.scene.pool, 0), 0);
    must_hold(&it, 9 * PAGE);
    give_some(&it, 0, 1, 0);
    must_equal(weir_resource_trim_sync(it.scene.pool, 0), 9 * PAGE);
    stage_close(&it);
}

/* ---- remapping ---- */

/* A pool gives back what is free of its chunks before it asks for more. */
static void a_pool_grows_by_what_it_lacks(void **state)
{
    (void)state;
    for (int remaps = 0; remaps < 2; remaps++) {
        stage it;
        stage_open_over(&it, remaps ? "pool(cache=none)/growable(remap=true)"
                                    : "pool(cache=none)/growable(chunk=2MiB)");
        weir_resource_properties properties = { .struct_size = sizeof properties };
        must_ok(weir_resource_get_properties(it.scene.pool, &properties));
        must(properties.remaps == (remaps != 0) && properties.cut_bytes == PAGE);
        give_some(&it, 2, 4, 0);
        give_some(&it, 6, 8, 0);
        void *large = take_on(&it.scene, 0, 5 * MIB);
        must_hold(&it, (remaps ? 10 : 12) * PAGE);
        void *more = take_on(&it.scene, 0, PAGE); /* a MiB of it is free at the end */
        must_hold(&it, (remaps ? 11 : 12) * PAGE);
        give_on(&it.scene, 0, more, PAGE);
        give_on(&it.scene, 0, large, 5 * MIB);
        (void)weir_resource_trim_sync(it.scene.pool, 0);
        must_hold(&it, live_bytes(&it));
        stage_close(&it);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trim_leaves_what_is_out),
        cmocka_unit_test(trim_keeps_what_it_is_asked_to),
        cmocka_unit_test(trim_waits_for_no_more),
        cmocka_unit_test(what_a_capture_has_is_not_cut),
        cmocka_unit_test(parts_go_behind_what_used_them),
        cmocka_unit_test(without_host_memory_less_is_given_back),
        cmocka_unit_test(what_the_device_does_not_take_goes_later),
        cmocka_unit_test(holes_serve_where_memory_is_short),
        cmocka_unit_test(adaptors_pass_it_on_or_not),
        cmocka_unit_test(a_pool_grows_by_what_it_lacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
