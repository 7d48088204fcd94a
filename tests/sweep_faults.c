/* sweep_faults.c - everything that a resource, a stream, a point or a capture can be
 * asked for, while each host allocation and each device call on the way fails in turn.
 *
 * A scenario is first run with the first call failing, then with the second, and so on
 * until it runs through; then again with all calls from the nth on failing, and with
 * the device lost at the nth. Each run opens its own device. What is claimed after each
 * step and at the end is in support_sweep.[ch].
 *
 * How many calls a scenario makes is written down beside it, for each chain of
 * resources: a call that is new in the library, or gone, shows here. To be changed
 * with the reason known. */
#include "support_sweep.h"

#include <stdio.h>
#include <string.h>

#include "internal.h"

enum { A, B, BLOCKING };

static bool is_pool(const sweep_chain *chain)
{
    return chain->pool;
}

static bool is_leaf(const sweep_chain *chain)
{
    return !chain->pool;
}

static bool has_spec(const sweep_chain *chain)
{
    return chain->spec != NULL;
}

/* ---- making ---- */

static void make(sweep_scene *it)
{
    weir_status status = it->chain->make(it->device, &it->mr);
    must(sweep_went_well(it, status) == (it->mr != NULL));
}

static void open_by_name(sweep_scene *it)
{
    weir_status status = weir_resource_open(it->device, it->chain->spec, &it->mr);
    must(sweep_went_well(it, status) == (it->mr != NULL));
}

/* ---- allocating ---- */

static void allocate(sweep_scene *it)
{
    attempt(it, 0, it->streams[A], SMALL);
    attempt(it, 1, it->streams[B], SMALL);
}

static void allocate_on_unknown(sweep_scene *it)
{
    attempt(it, 0, it->unknown, SMALL);
}

static void allocate_on_per_thread(sweep_scene *it)
{
    attempt(it, 0, WEIR_STREAM_PER_THREAD, SMALL);
}

static void allocate_on_legacy(sweep_scene *it)
{
    attempt(it, 0, NULL, SMALL);
}

static void prepare_hit(sweep_scene *it)
{
    sweep_take(it, 0, it->streams[A], SMALL);
    sweep_take(it, 1, it->streams[A], SMALL);
    sweep_give(it, 0, it->streams[A]);
}

static void hit(sweep_scene *it)
{
    attempt(it, 0, it->streams[A], SMALL);
}

static void prepare_other(sweep_scene *it, weir_stream owner)
{
    sweep_take(it, 0, owner, CHUNK);
    sweep_stall(it, owner);
    sweep_give(it, 0, owner);
}

static void prepare_miss(sweep_scene *it)
{
    prepare_other(it, it->streams[A]);
}

static void prepare_miss_of_unknown(sweep_scene *it)
{
    prepare_other(it, it->unknown);
}

static void prepare_miss_of_legacy(sweep_scene *it)
{
    prepare_other(it, NULL);
}

static void miss(sweep_scene *it)
{
    attempt(it, 1, it->streams[B], CHUNK);
}

/* What was done is found out by asking. */
static void prepare_done(sweep_scene *it)
{
    prepare_miss(it);
    sweep_open_gates(it);
    weir_event event;
    must_ok(weir_event_create(it->device, &event));
    must_ok(weir_event_record(it->device, it->streams[A], event));
    must_ok(weir_event_sync(it->device, event));
    must_ok(weir_event_destroy(it->device, event));
}

static void prepare_growth(sweep_scene *it)
{
    sweep_take(it, 0, it->streams[A], CHUNK);
}

static void grow(sweep_scene *it)
{
    attempt(it, 1, it->streams[A], CHUNK);
    attempt(it, 2, it->streams[A], CHUNK + CHUNK / 2);
}

/* Two neighbours of different streams, at work. */
static void prepare_merge(sweep_scene *it)
{
    sweep_take(it, 0, it->streams[A], CHUNK / 2);
    sweep_take(it, 1, it->streams[B], CHUNK / 2);
    sweep_stall(it, it->streams[A]);
    sweep_stall(it, it->streams[B]);
    sweep_give(it, 0, it->streams[A]);
    sweep_give(it, 1, it->streams[B]);
}

static void merge(sweep_scene *it)
{
    attempt(it, 2, it->streams[BLOCKING], CHUNK - SMALL);
    attempt(it, 3, it->streams[A], SMALL / 2);
}

/* The same twice: so much is free that it matters where it is cut. */
static void prepare_place(sweep_scene *it)
{
    for (int i = 0; i < 4; i++)
        sweep_take(it, i, it->streams[i % 2 == 0 ? A : B], CHUNK / 2);
    sweep_stall(it, it->streams[A]);
    sweep_stall(it, it->streams[B]);
    for (int i = 0; i < 4; i++)
        sweep_give(it, i, it->streams[i % 2 == 0 ? A : B]);
}

static void place(sweep_scene *it)
{
    attempt(it, 4, it->streams[BLOCKING], CHUNK - SMALL);
    attempt(it, 5, it->streams[A], SMALL / 2);
}

/* All that a pool may hold is free, in chunks too small. */
static void prepare_flush(sweep_scene *it)
{
    for (int i = 0; i < 4; i++)
        sweep_take(it, i, it->streams[A], CHUNK);
    for (int i = 0; i < 4; i++)
        sweep_give(it, i, it->streams[A]);
}

static void flush(sweep_scene *it)
{
    attempt_or_shrink(it, 0, it->streams[A], 3 * CHUNK);
}

/* A leaf keeps more than it wants to, and frees on the way. */
static void prepare_kept(sweep_scene *it)
{
    size_t bytes = (size_t)5 << 20;
    void *ptr = take(it->mr, it->streams[A], bytes);
    give(it->mr, it->streams[A], ptr, bytes);
    must_ok(weir_stream_sync(it->device, it->streams[A]));
}

static void free_kept(sweep_scene *it)
{
    attempt_or_shrink(it, 0, it->streams[A], SMALL);
}

/* ---- freeing ---- */

static void prepare_free(sweep_scene *it)
{
    sweep_take(it, 0, it->streams[A], SMALL);
    sweep_take(it, 1, it->streams[A], SMALL);
    sweep_take(it, 2, it->streams[A], CHUNK);
    weir_stream others[] = { it->streams[B], it->streams[BLOCKING], it->unknown, NULL,
                             WEIR_STREAM_PER_THREAD };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        sweep_order(it, others[i], it->streams[A]);
    sweep_stall(it, it->streams[A]);
}

/* Where no stream blocks, the legacy stream gets its events at once. */
static void prepare_legacy_alone(sweep_scene *it)
{
    end_stream(it->device, it->streams[BLOCKING]);
    it->streams[BLOCKING] = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    prepare_free(it);
}

static void free_two(sweep_scene *it, weir_stream stream)
{
    must_give(it, 0, stream);
    must_give(it, 2, stream);
}

static void free_on_same(sweep_scene *it)
{
    free_two(it, it->streams[A]);
}

static void free_on_other(sweep_scene *it)
{
    free_two(it, it->streams[B]);
}

static void free_on_blocking(sweep_scene *it)
{
    free_two(it, it->streams[BLOCKING]);
}

static void free_on_unknown(sweep_scene *it)
{
    free_two(it, it->unknown);
}

static void free_on_per_thread(sweep_scene *it)
{
    free_two(it, WEIR_STREAM_PER_THREAD);
}

static void free_on_legacy(sweep_scene *it)
{
    free_two(it, NULL);
}

static void free_by_address(sweep_scene *it)
{
    must_free(it, 0);
    must_free(it, 2);
}

static void prepare_after(sweep_scene *it)
{
    sweep_take(it, 0, it->streams[A], SMALL);
    sweep_take(it, 1, it->streams[A], SMALL);
    sweep_take(it, 2, it->streams[A], CHUNK);
    for (int i = 0; i < SWEEP_STREAMS; i++) {
        if (i != A)
            sweep_order(it, it->streams[i], it->streams[A]);
        sweep_stall(it, it->streams[i]);
        must_ok(weir_point_here(it->device, it->streams[i], &it->points[i]));
    }
    if (it->chain->by_legacy) /* the host may have to wait */
        sweep_open_gates(it);
}

static void prepare_after_none(sweep_scene *it)
{
    prepare_after(it);
    sweep_open_gates(it);
    must_ok(weir_device_sync(it->device));
}

static void free_after_none(sweep_scene *it)
{
    must_give_after(it, 0, 0);
    must_give_after(it, 2, 0);
}

static void free_after_one(sweep_scene *it)
{
    must_give_after(it, 0, 1);
    must_give_after(it, 2, 1);
}

static void free_after_three(sweep_scene *it)
{
    must_give_after(it, 0, 3);
    must_give_after(it, 2, 3);
}

/* What waits for three is taken by a fourth. */
static void take_after_three(sweep_scene *it)
{
    must_give_after(it, 2, 3);
    attempt(it, 3, it->unknown, CHUNK);
}

/* ---- giving back upstream ---- */

/* Everything comes back from three streams, whose work is still to be done. */
static void prepare_end(sweep_scene *it)
{
    weir_stream streams[] = { it->streams[A], it->streams[B], it->unknown };
    for (int i = 0; i < 3; i++)
        sweep_take(it, i, streams[i], CHUNK);
    for (int i = 0; i < 3; i++) {
        sweep_stall(it, streams[i]);
        sweep_give(it, i, streams[i]);
    }
    sweep_open_gates(it);
}

static void trim_to(sweep_scene *it, size_t keep_bytes)
{
    weir_resource_statistics before = statistics_of(it->mr);
    size_t bytes = weir_resource_trim_sync(it->mr, keep_bytes);
    weir_resource_statistics after = statistics_of(it->mr);
    must_equal(after.held_bytes + bytes, before.held_bytes);
    must_equal(after.out_blocks, 0);
}

static void trim(sweep_scene *it)
{
    trim_to(it, CHUNK);
}

static void trim_all(sweep_scene *it)
{
    trim_to(it, 0);
}

static void end(sweep_scene *it)
{
    sweep_end_resource(it);
}

/* The last block comes back after the last unref. */
static void prepare_late_end(sweep_scene *it)
{
    prepare_end(it);
    sweep_take(it, 3, it->streams[A], SMALL);
}

static void end_late(sweep_scene *it)
{
    const sweep_block *block = &it->blocks[3];
    weir_resource *mr = it->mr;
    weir_resource_unref(mr);
    must(weir_deallocate(mr, block->stream, block->ptr, block->bytes, WEIR_ALIGNMENT));
    it->blocks[3].ptr = NULL;
    sweep_has_ended(it);
}

/* ---- the sweeps ---- */

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

static void making_survives_every_fault(void **state)
{
    (void)state;
    static const sweep_entry all[] = {
        { { "make", NULL, make, true, NULL },
          { 3, 3, 6, 22, 22, 24, 24, 41, 5, 24, 24 },
          { 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 0 } },
        { { "open by name", NULL, open_by_name, true, has_spec },
          { 3, 3, 0, 22, 22, 0, 24, 41, 5, 24, 24 },
          { 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 0 } },
    };
    sweep_all(all, COUNT_OF(all));
}

static void allocating_survives_every_fault(void **state)
{
    (void)state;
    static const sweep_entry all[] = {
        { { "allocate", NULL, allocate, false, NULL },
          { 4, 8, 6, 17, 19, 17, 17, 31, 7, 24, 17 },
          { 2, 2, 2, 1, 1, 1, 1, 6, 6, 7, 1 } },
        { { "allocate on unknown", NULL, allocate_on_unknown, false, NULL },
          { 4, 6, 5, 16, 18, 16, 16, 29, 5, 21, 16 },
          { 4, 4, 4, 6, 6, 6, 6, 11, 3, 8, 6 } },
        { { "allocate on per-thread", NULL, allocate_on_per_thread, false, NULL },
          { 4, 6, 5, 14, 16, 14, 14, 27, 7, 21, 14 },
          { 1, 1, 1, 1, 1, 1, 1, 4, 3, 5, 1 } },
        { { "allocate on legacy", NULL, allocate_on_legacy, false, NULL },
          { 2, 4, 3, 13, 15, 13, 13, 23, 5, 16, 13 },
          { 1, 1, 1, 1, 1, 1, 1, 1, 3, 2, 1 } },
        { { "kept", prepare_kept, free_kept, false, is_leaf },
          { 2, 4, 3, 0, 0, 0, 0, 0, 2, 0, 0 },
          { 2, 2, 2, 0, 0, 0, 0, 0, 4, 0, 0 } },
        { { "hit", prepare_hit, hit, false, is_pool },
          { 0, 0, 0, 1, 1, 1, 1, 1, 0, 1, 1 },
          { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } },
        { { "miss", prepare_miss, miss, false, is_pool },
          { 0, 0, 0, 8, 8, 8, 8, 8, 0, 8, 8 },
          { 0, 0, 0, 5, 5, 5, 5, 5, 0, 5, 5 } },
        { { "miss of unknown", prepare_miss_of_unknown, miss, false, is_pool },
          { 0, 0, 0, 4, 4, 4, 4, 4, 0, 4, 4 },
          { 0, 0, 0, 3, 3, 3, 3, 3, 0, 3, 3 } },
        { { "miss of legacy", prepare_miss_of_legacy, miss, false, is_pool },
          { 0, 0, 0, 8, 8, 8, 8, 8, 0, 8, 8 },
          { 0, 0, 0, 5, 5, 5, 5, 5, 0, 5, 5 } },
        { { "done", prepare_done, miss, false, is_pool },
          { 0, 0, 0, 7, 7, 7, 7, 7, 0, 7, 7 },
          { 0, 0, 0, 5, 5, 5, 5, 5, 0, 5, 5 } },
        { { "grow", prepare_growth, grow, false, NULL },
          { 5, 9, 8, 14, 18, 14, 14, 23, 11, 20, 14 },
          { 2, 2, 2, 2, 2, 2, 2, 2, 6, 4, 2 } },
        { { "merge", prepare_merge, merge, false, is_pool },
          { 0, 0, 0, 16, 16, 16, 16, 16, 0, 16, 16 },
          { 0, 0, 0, 16, 16, 16, 16, 16, 0, 16, 16 } },
        { { "place", prepare_place, place, false, is_pool },
          { 0, 0, 0, 11, 11, 11, 11, 11, 0, 11, 11 },
          { 0, 0, 0, 9, 9, 9, 9, 9, 0, 9, 9 } },
        { { "flush", prepare_flush, flush, false, is_pool },
          { 0, 0, 0, 12, 14, 12, 12, 18, 0, 13, 12 },
          { 0, 0, 0, 10, 10, 10, 10, 15, 0, 10, 10 } },
    };
    sweep_all(all, COUNT_OF(all));
}

static void freeing_survives_every_fault(void **state)
{
    (void)state;
    static const sweep_entry all[] = {
        { { "free on same", prepare_free, free_on_same, false, NULL },
          { 2, 2, 2, 1, 1, 1, 1, 1, 2, 1, 1 },
          { 6, 6, 6, 3, 3, 3, 3, 3, 8, 3, 3 } },
        { { "free on other", prepare_free, free_on_other, false, NULL },
          { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 },
          { 6, 6, 6, 6, 6, 6, 6, 6, 8, 6, 6 } },
        { { "free on blocking", prepare_free, free_on_blocking, false, NULL },
          { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 },
          { 6, 6, 6, 6, 6, 6, 6, 6, 8, 6, 6 } },
        { { "free on unknown", prepare_free, free_on_unknown, false, NULL },
          { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 },
          { 11, 11, 11, 11, 11, 11, 11, 11, 8, 11, 11 } },
        { { "free on per-thread", prepare_free, free_on_per_thread, false, NULL },
          { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 },
          { 6, 6, 6, 6, 6, 6, 6, 6, 8, 6, 6 } },
        { { "free on legacy", prepare_free, free_on_legacy, false, NULL },
          { 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0 },
          { 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0 } },
        { { "free on legacy alone", prepare_legacy_alone, free_on_legacy, false, NULL },
          { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 },
          { 6, 6, 6, 6, 6, 6, 6, 6, 8, 6, 6 } },
        { { "free by address", prepare_free, free_by_address, false, NULL },
          { 2, 2, 2, 1, 1, 1, 1, 1, 2, 1, 1 },
          { 6, 6, 6, 3, 3, 3, 3, 3, 8, 3, 3 } },
        { { "free after none", prepare_after_none, free_after_none, false, NULL },
          { 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0 },
          { 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0 } },
        { { "free after one", prepare_after, free_after_one, false, NULL },
          { 0, 0, 4, 0, 0, 0, 0, 0, 5, 0, 0 },
          { 0, 0, 5, 0, 0, 0, 0, 0, 13, 0, 0 } },
        { { "free after three", prepare_after, free_after_three, false, NULL },
          { 0, 0, 11, 0, 0, 0, 0, 0, 11, 0, 0 },
          { 0, 0, 13, 0, 0, 0, 0, 0, 27, 0, 0 } },
        { { "taken after three", prepare_after, take_after_three, false, NULL },
          { 4, 6, 16, 15, 15, 15, 15, 15, 10, 15, 15 },
          { 4, 4, 17, 23, 23, 23, 23, 23, 21, 23, 23 } },
    };
    sweep_all(all, COUNT_OF(all));
}

static void ending_survives_every_fault(void **state)
{
    (void)state;
    /* A pool of CUDA's is emptied before it is destroyed. */
    const uint64_t more = support_is_cuda();
    const sweep_entry all[] = {
        { { "trim", prepare_end, trim, false, NULL },
          { 0, 0, 0, 2, 2, 2, 2, 2, 1, 5, 2 },
          { 13, 13, 0, 10, 10, 10, 10, 9, 13, 20, 10 } },
        { { "trim all", prepare_end, trim_all, false, NULL },
          { 0, 0, 0, 2, 2, 2, 2, 2, 1, 6, 2 },
          { 13, 13, 0, 12, 12, 12, 12, 11, 13, 22, 12 } },
        { { "end", prepare_end, end, false, NULL },
          { 0, 0, 0, 2, 2, 2, 2, 2, 0, 5, 2 },
          { 13, 13, 13, 12, 12, 12, 12, 11, 2 + more, 13 + more, 12 } },
        { { "late end", prepare_late_end, end_late, false, NULL },
          { 1, 1, 1, 3, 3, 2, 2, 3, 1, 6, 2 },
          { 20, 20, 20, 15, 15, 12, 12, 14, 4 + more, 16 + more, 12 } },
    };
    sweep_all(all, COUNT_OF(all));
}

/* Opening a device makes no device call, for there is none yet. */
static void opening_a_device_survives_every_fault(void **state)
{
    (void)state;
    uint64_t calls = sweep_open_device(false);
    /* Under CUDA most of them are the driver's, which are not struck. */
    must_equal(calls, support_is_cuda() ? 6 : 17);
    must_equal(sweep_open_device(true), calls);
    sweep_points += 2 * calls;
}

static int print_points(void **state)
{
    (void)state;
    print_message("bound: sweep_faults.points = %llu\n",
                  (unsigned long long)sweep_points);
    return 0;
}

#define A_SWEEP(test) cmocka_unit_test_teardown(test, sweep_tell_where)

int main(void)
{
    const struct CMUnitTest tests[] = {
        A_SWEEP(opening_a_device_survives_every_fault),
        A_SWEEP(making_survives_every_fault),
        A_SWEEP(allocating_survives_every_fault),
        A_SWEEP(freeing_survives_every_fault),
        A_SWEEP(ending_survives_every_fault),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, print_points);
}
