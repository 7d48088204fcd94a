/* sweep_arena.c - arena while each host allocation and each device call on the way
 * fails in turn, once and for good, or finds the device lost. How many there are is
 * written down, as in sweep_faults.c. */
#include "support_sweep.h"

#include <stdio.h>

#include "internal.h"

enum { A, B, BLOCKING };
enum { PIECE = 64 << 10 }; /* the largest that is no large one, in a test build */

static weir_status make_with(weir_device *device, size_t limit_bytes,
                             weir_resource **out)
{
    weir_resource *leaf;
    weir_arena_options options = WEIR_ARENA_OPTIONS_INIT;
    options.limit_bytes = limit_bytes;
    weir_status status = weir_device_resource_create(device, &leaf);
    *out = NULL;
    if (status != WEIR_OK)
        return status;
    status = weir_arena_create(leaf, &options, out);
    must((status == WEIR_OK) == (*out != NULL));
    weir_resource_unref(leaf);
    return status;
}

static weir_status make_free(weir_device *device, weir_resource **out)
{
    return make_with(device, 0, out);
}

/* Room for one superblock, wherever upstream's memory begins. */
static weir_status make_limited(weir_device *device, weir_resource **out)
{
    return make_with(device, 5 * PIECE, out);
}

static const sweep_chain
    of_any_size = { .name = "arena/device", .spec = "arena/device", .pool = true,
                    .make = make_free },
    of_one = { .name = "arena(limit)/device", .spec = "arena(limit=320KiB)/device",
               .pool = true, .make = make_limited };

/* ---- scenarios ---- */
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

/* Without records for a superblock it goes back, and upstream what it was cut from. */
static void allocate(sweep_scene *it)
{
    attempt_or_shrink(it, 0, it->streams[A], SMALL);
    attempt_or_shrink(it, 1, it->streams[B], SMALL);
}

static void allocate_on_unknown(sweep_scene *it)
{
    attempt_or_shrink(it, 0, it->unknown, SMALL);
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

static void prepare_all_of(sweep_scene *it, weir_stream stream)
{
    for (int i = 0; i < 4; i++)
        sweep_take(it, i, stream, PIECE);
    sweep_stall(it, stream);
}

/* Two of them are free on another stream. */
static void prepare_miss(sweep_scene *it)
{
    prepare_all_of(it, it->streams[A]);
    sweep_order(it, it->streams[B], it->streams[A]);
    for (int i = 0; i < 2; i++)
        sweep_give(it, i, it->streams[B]);
}

static void miss(sweep_scene *it)
{
    attempt_or_shrink(it, 0, it->streams[A], PIECE);
}

/* All of the superblock is free in the arena of A, and still at work. */
static void prepare_superblock(sweep_scene *it)
{
    prepare_all_of(it, it->streams[A]);
    for (int i = 0; i < 4; i++)
        sweep_give(it, i, it->streams[A]);
}

static void superblock(sweep_scene *it)
{
    attempt_or_shrink(it, 4, it->streams[B], PIECE);
}

static void large(sweep_scene *it)
{
    attempt_or_shrink(it, 4, it->streams[B], 3 * PIECE);
}

/* ... but for a block: the others are had all the same. */
static void prepare_any(sweep_scene *it)
{
    prepare_all_of(it, it->streams[A]);
    for (int i = 1; i < 4; i++)
        sweep_give(it, i, it->streams[A]);
}

static void prepare_retire(sweep_scene *it)
{
    it->spare = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    sweep_take(it, 0, it->spare, SMALL);
    sweep_take(it, 1, it->spare, PIECE);
    for (int i = 0; i < 2; i++)
        sweep_give(it, i, it->spare);
}

/* Its superblock has gone back also where the event of its end fails; and who comes
 * then takes what is there. */
static void retire(sweep_scene *it)
{
    weir_resource_statistics before = statistics_of(it->mr);
    (void)sweep_went_well(it, weir_stream_destroy(it->device, it->spare));
    it->spare = NULL;
    weir_resource_statistics after = statistics_of(it->mr);
    must_equal(after.held_bytes, before.held_bytes);
    must_equal(after.free_bytes, before.free_bytes);
    must(after.largest_free_bytes >= 4 * PIECE);
    attempt_or_shrink(it, 2, it->streams[B], 3 * PIECE);
}

static void prepare_free(sweep_scene *it)
{
    sweep_take(it, 0, it->streams[A], SMALL);
    sweep_take(it, 1, it->streams[A], SMALL);
    sweep_order(it, it->streams[B], it->streams[A]);
    sweep_order(it, it->unknown, it->streams[A]);
    sweep_stall(it, it->streams[A]);
}

static void free_on_same(sweep_scene *it)
{
    must_give(it, 0, it->streams[A]);
}

static void free_on_other(sweep_scene *it)
{
    must_give(it, 0, it->streams[B]);
}

static void free_on_unknown(sweep_scene *it)
{
    must_give(it, 0, it->unknown);
}

static void free_by_address(sweep_scene *it)
{
    must_free(it, 0);
}

static void prepare_after(sweep_scene *it)
{
    sweep_take(it, 0, it->streams[A], SMALL);
    sweep_take(it, 1, it->streams[A], SMALL);
    for (int i = 0; i < SWEEP_STREAMS; i++) {
        if (i != A)
            sweep_order(it, it->streams[i], it->streams[A]);
        sweep_stall(it, it->streams[i]);
        must_ok(weir_point_here(it->device, it->streams[i], &it->points[i]));
    }
}

static void free_after_three(sweep_scene *it)
{
    must_give_after(it, 0, 3);
    attempt_or_shrink(it, 2, it->unknown, SMALL);
}

static void prepare_end(sweep_scene *it)
{
    weir_stream streams[] = { it->streams[A], it->streams[B], it->unknown };
    for (int i = 0; i < 3; i++)
        sweep_take(it, i, streams[i], SMALL << i);
    for (int i = 0; i < 3; i++) {
        sweep_stall(it, streams[i]);
        sweep_give(it, i, streams[i]);
    }
    sweep_open_gates(it);
}

static void trim_all(sweep_scene *it)
{
    weir_resource_statistics before = statistics_of(it->mr);
    size_t bytes = weir_resource_trim_sync(it->mr, 0);
    weir_resource_statistics after = statistics_of(it->mr);
    must_equal(after.held_bytes + bytes, before.held_bytes);
    must_equal(after.out_blocks, 0);
}

static void end(sweep_scene *it)
{
    sweep_end_resource(it);
}

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

typedef struct arena_entry {
    const sweep_chain *chain;
    sweep_scenario scenario;
    uint64_t host, device;
} arena_entry;

static const arena_entry all[] = {
    { &of_any_size, { "make", NULL, make, true, NULL }, 86, 0 },
    { &of_any_size, { "open by name", NULL, open_by_name, true, NULL }, 86, 0 },
    { &of_any_size, { "allocate", NULL, allocate, false, NULL }, 40, 1 },
    { &of_any_size, { "allocate on unknown", NULL, allocate_on_unknown, false, NULL },
      31, 11 },
    { &of_any_size, { "hit", prepare_hit, hit, false, NULL }, 1, 0 },
    { &of_one, { "miss", prepare_miss, miss, false, NULL }, 4, 3 },
    { &of_one, { "superblock", prepare_superblock, superblock, false, NULL }, 21, 4 },
    { &of_one, { "large", prepare_superblock, large, false, NULL }, 8, 4 },
    { &of_one, { "any arena", prepare_any, superblock, false, NULL }, 31, 6 },
    { &of_one, { "retire", prepare_retire, retire, false, NULL }, 12, 15 },
    { &of_any_size, { "free on same", prepare_free, free_on_same, false, NULL }, 0, 0 },
    { &of_any_size, { "free on other", prepare_free, free_on_other, false, NULL },
      1, 3 },
    { &of_any_size, { "free on unknown", prepare_free, free_on_unknown, false, NULL },
      1, 6 },
    { &of_any_size, { "free by address", prepare_free, free_by_address, false, NULL },
      0, 0 },
    { &of_any_size, { "behind points", prepare_after, free_after_three, false, NULL },
      20, 8 },
    { &of_any_size, { "trim all", prepare_end, trim_all, false, NULL }, 2, 9 },
    { &of_any_size, { "end", prepare_end, end, false, NULL }, 2, 9 },
    { &of_any_size, { "late end", prepare_late_end, end_late, false, NULL }, 3, 12 },
};

static void arenas_survive_every_fault(void **state)
{
    (void)state;
    bool as_written = true;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        uint64_t host, device;
        sweep_both(&all[i].scenario, all[i].chain, &host, &device);
        if (host == all[i].host && device == all[i].device)
            continue;
        as_written = false;
        fprintf(stderr, "  %s makes other calls than written down: %llu host "
                "allocations, %llu device calls\n", all[i].scenario.name,
                (unsigned long long)host, (unsigned long long)device);
    }
    print_message("%llu points\n", (unsigned long long)sweep_points);
    must(as_written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(arenas_survive_every_fault, sweep_tell_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
