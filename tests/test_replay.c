/* test_replay.c - the passes of `weir replay` over plans made by hand: what is checked,
 * what is held, and how small a chunk serves. */
#include "support.h"

#include "tools/weir_replay.h"

enum { BLOCKS_MAX = 512, SEEDS = 8 };

#define KIB ((size_t)1 << 10)

/* One lane, two streams. */
typedef struct made {
    plan plan;
    plan_lane lane;
    plan_block blocks[BLOCKS_MAX];
    plan_event events[2 * BLOCKS_MAX];
    size_t live_bytes;
} made;

static void made_begin(made *self)
{
    *self = (made){ .plan = { .blocks = self->blocks, .events = self->events,
                              .lanes = &self->lane, .lane_count = 1,
                              .stream_count = 2, .legacy_stream = TRACE_NO_STREAM,
                              .streams_used = 2 } };
    self->lane.events = self->events;
}

static void made_event(made *self, uint32_t block, bool is_free)
{
    size_t index = self->plan.event_count++;
    must(index < 2 * BLOCKS_MAX);
    self->events[index] = (plan_event){ .position = (uint32_t)index, .block = block,
                                        .is_free = is_free };
    self->lane.count = self->plan.event_count;
    if (is_free)
        self->live_bytes -= self->blocks[block].bytes;
    else
        self->live_bytes += self->blocks[block].bytes;
    if (self->live_bytes > self->plan.peak_live_bytes)
        self->plan.peak_live_bytes = self->live_bytes;
}

/* Written on stream 0, and read on `used_on`. */
static uint32_t made_allocate(made *self, size_t bytes, uint32_t used_on)
{
    uint32_t block = (uint32_t)self->plan.block_count++;
    must(block < BLOCKS_MAX);
    self->blocks[block] = (plan_block){ .bytes = bytes, .alignment = WEIR_ALIGNMENT,
                                        .id = block, .used_on = used_on };
    self->plan.handoffs += used_on != 0;
    made_event(self, block, false);
    return block;
}

static void made_free(made *self, uint32_t block)
{
    self->blocks[block].is_freed = true;
    made_event(self, block, true);
}

static pass_place place_of(const char *spec, weir_emulated_scheduler scheduler)
{
    return (pass_place){ .device = "emulated:0", .is_emulated = true,
                         .scheduler = scheduler, .memory_bytes = (size_t)1 << 30,
                         .seed = 1, .spec = spec };
}

/* ---- the checked pass ---- */

static check_result checked(const made *it, uint64_t seed, bool skip_wait)
{
    pass_place place = place_of("pool/device", WEIR_EMULATED_STEPPED);
    check_result result;
    place.seed = seed;
    place.skip_wait = skip_wait;
    must(check_run(&it->plan, &place, true, &result));
    must(result.has_ledger);
    must_equal(result.out_of_memory, 0);
    return result;
}

/* Blocks of these sizes, used on another stream; how many were not as they were written
 * where the waits were left out. Of each its read and its free are found then. */
static size_t errors_without_waits(size_t least, size_t most, bool frees)
{
    made it;
    size_t errors = 0;
    made_begin(&it);
    for (size_t i = 0; i < BLOCKS_MAX; i++) {
        (void)made_allocate(&it, least + i % (most - least + 1), 1);
        if (frees && i >= 8)
            made_free(&it, (uint32_t)i - 8);
    }
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        check_result result = checked(&it, seed, false);
        must_equal(result.ledger_findings, 0);
        must_equal(result.data_errors, 0);
        result = checked(&it, seed, true);
        must(result.ledger_findings >= 2 * BLOCKS_MAX);
        errors += result.data_errors;
    }
    return errors;
}

static void what_is_live_at_the_end_is_read_and_freed(void **state)
{
    (void)state;
    (void)errors_without_waits(8, 2000, false);
}

static void all_bytes_of_small_blocks_are_compared(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes <= 7; bytes++)
        must(errors_without_waits(bytes, bytes, true) != 0);
}

/* ---- a chunk that serves ---- */

/* Every second of `count` blocks of 256 KiB is freed: `bytes` more find no hole. */
static void hole_costs_its_size(size_t count, size_t bytes)
{
    made it;
    bool broke;
    made_begin(&it);
    for (size_t i = 0; i < count; i++)
        (void)made_allocate(&it, 256 * KIB, 0);
    for (size_t i = 0; i < count; i += 2)
        made_free(&it, (uint32_t)i);
    (void)made_allocate(&it, bytes, 0);
    pass_place place = place_of("pool/device", WEIR_EMULATED_NO_WORK);
    size_t found = fit_find(&it.plan, &place, &broke);
    must(!broke);
    size_t least = count * 256 * KIB + bytes;
    size_t step = it.plan.peak_live_bytes / 16384 + WEIR_ALIGNMENT;
    if (found < least || found > least + step)
        fail_msg("a chunk of %zu bytes was found, where %zu serve", found, least);
}

static void the_smallest_chunk_is_found(void **state)
{
    (void)state;
    hole_costs_its_size(8, 1024 * KIB);
    for (size_t i = 0; i < 8; i++)
        hole_costs_its_size(8, (300 + 317 * i) * KIB);
}

/* ---- what is held ---- */

static pass_timing timed(const made *it, const char *spec)
{
    pass_place place = place_of(spec, WEIR_EMULATED_NO_WORK);
    pass_timing result;
    must(pass_time(&it->plan, &place, &result));
    must_equal(result.out_of_memory, 0);
    return result;
}

static void all_leaves_count_as_held(void **state)
{
    (void)state;
    made it;
    made_begin(&it);
    (void)made_allocate(&it, 13, 0);
    (void)made_allocate(&it, 1000, 0);
    pass_timing result = timed(&it, "fallback(pinned)/limiting(500)/device");
    must(result.held_is_known);
    must_equal(result.peak_held_bytes, 1013);
    must_equal(result.kept_bytes, 0);
}

static void what_a_leaf_keeps_is_told(void **state)
{
    (void)state;
    made it;
    made_begin(&it);
    uint32_t first = made_allocate(&it, 4096, 1); /* freed behind a wait */
    (void)made_allocate(&it, 256, 0);
    made_free(&it, first);
    pass_timing result = timed(&it, "device");
    must(result.held_is_known);
    must_equal(result.kept_bytes, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_live_at_the_end_is_read_and_freed),
        cmocka_unit_test(all_bytes_of_small_blocks_are_compared),
        cmocka_unit_test(the_smallest_chunk_is_found),
        cmocka_unit_test(all_leaves_count_as_held),
        cmocka_unit_test(what_a_leaf_keeps_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
