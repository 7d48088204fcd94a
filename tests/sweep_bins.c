/* sweep_bins.c - fixed_size and binning while each host allocation and each device call
 * on the way fails in turn, once and for good, or finds the device lost. How many there
 * are is written down, as in sweep_faults.c. */
#include "support_sweep.h"

#include <stdio.h>
#include <string.h>

#include "internal.h"

enum { A, B, BLOCKING };

/* ---- the chains ---- */

static weir_status make_fixed(weir_device *device, weir_resource **out)
{
    weir_resource *leaf;
    weir_fixed_size_options options = WEIR_FIXED_SIZE_OPTIONS_INIT;
    options.slab_blocks = 2;
    weir_status status = weir_device_resource_create(device, &leaf);
    *out = NULL;
    if (status != WEIR_OK)
        return status;
    status = weir_fixed_size_create(leaf, CHUNK, &options, out);
    must((status == WEIR_OK) == (*out != NULL));
    weir_resource_unref(leaf);
    return status;
}

static weir_status make_binning(weir_device *device, weir_resource **out)
{
    weir_resource *leaf;
    weir_binning_options options = { sizeof options, 12, 14 };
    weir_status status = weir_device_resource_create(device, &leaf);
    *out = NULL;
    if (status != WEIR_OK)
        return status;
    status = weir_binning_create(leaf, &options, out);
    must((status == WEIR_OK) == (*out != NULL));
    weir_resource_unref(leaf);
    return status;
}

enum { FIXED, BINNING, CHAINS };

static const sweep_chain chains[CHAINS] = {
    { .name = "fixed_size/device", .spec = "fixed_size(128KiB, blocks=2)/device",
      .pool = true, .make = make_fixed },
    { .name = "binning/device", .spec = "binning(min=12, max=14)/device", .pool = true,
      .make = make_binning },
};

static bool is_fixed(const sweep_chain *chain)
{
    return chain == &chains[FIXED];
}

static bool is_binning(const sweep_chain *chain)
{
    return chain == &chains[BINNING];
}

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

static void allocate(sweep_scene *it)
{
    attempt(it, 0, it->streams[A], SMALL);
    attempt(it, 1, it->streams[B], SMALL);
}

static void allocate_on_unknown(sweep_scene *it)
{
    attempt(it, 0, it->unknown, SMALL);
}

static void prepare_hit(sweep_scene *it)
{
    sweep_take(it, 0, it->streams[A], SMALL);
    sweep_take(it, 1, it->streams[A], SMALL);
    sweep_give(it, 0, it->streams[A]);
}

static void hit(sweep_scene *it)
{
    attempt(it, 0, it->streams[A], SMALL - 1);
}

/* All that is drawn is out but for one block, which another stream still uses. */
static void prepare_miss(sweep_scene *it)
{
    for (int i = 0; i < 2; i++)
        sweep_take(it, i, it->streams[A], CHUNK);
    sweep_stall(it, it->streams[A]);
    sweep_give(it, 0, it->streams[A]);
}

static void miss(sweep_scene *it)
{
    attempt(it, 0, it->streams[B], CHUNK);
}

/* Slab after slab, and what is too large. */
static void grow(sweep_scene *it)
{
    for (int i = 0; i < 5; i++)
        attempt(it, i, it->streams[A], CHUNK);
}

static void too_large(sweep_scene *it)
{
    void *ptr;
    weir_resource_statistics before = statistics_of(it->mr);
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(it->mr, it->streams[A], CHUNK + 1,
                                                  WEIR_ALIGNMENT, &ptr));
    must(ptr == NULL);
    must_equal(statistics_of(it->mr).failures, before.failures + 1);
}

/* Each bin, and upstream. */
static void all_bins(sweep_scene *it)
{
    for (int i = 0; i < 4; i++)
        attempt(it, i, it->streams[A], (size_t)4096 << i);
}

static void prepare_add(sweep_scene *it)
{
    sweep_take(it, 0, it->streams[A], SMALL - 3000);
}

/* A block of before goes back past the bin that has come. */
static void add(sweep_scene *it)
{
    bool is_there = try_call(it, weir_binning_add(it->mr, SMALL - 2048, NULL));
    attempt(it, 1, it->streams[B], SMALL - 3000);
    must_give(it, 0, it->streams[A]);
    if (is_there && it->blocks[1].ptr != NULL)
        must_give(it, 1, it->streams[B]);
}

static void add_other(sweep_scene *it)
{
    weir_resource *other;
    weir_status status = weir_device_resource_create(it->device, &other);
    if (!sweep_went_well(it, status))
        return;
    (void)try_call(it, weir_binning_add(it->mr, SMALL - 2048, other));
    attempt(it, 1, it->streams[B], SMALL - 3000);
    if (it->blocks[1].ptr != NULL)
        must_give(it, 1, it->streams[B]);
    weir_resource_unref(other);
}

static void prepare_free(sweep_scene *it)
{
    sweep_take(it, 0, it->streams[A], SMALL);
    sweep_take(it, 1, it->streams[A], SMALL);
    sweep_take(it, 2, it->streams[A], CHUNK);
    sweep_order(it, it->streams[B], it->streams[A]);
    sweep_order(it, it->unknown, it->streams[A]);
    sweep_stall(it, it->streams[A]);
}

static void free_on_same(sweep_scene *it)
{
    must_give(it, 0, it->streams[A]);
    must_give(it, 2, it->streams[A]);
}

static void free_on_other(sweep_scene *it)
{
    must_give(it, 0, it->streams[B]);
    must_give(it, 2, it->streams[B]);
}

static void free_on_unknown(sweep_scene *it)
{
    must_give(it, 0, it->unknown);
    must_give(it, 2, it->unknown);
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
    attempt(it, 2, it->unknown, SMALL);
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

typedef struct bins_entry {
    sweep_scenario scenario;
    uint64_t host[CHAINS], device[CHAINS];
} bins_entry;

static const bins_entry all[] = {
    { { "make", NULL, make, true, NULL }, { 26, 79 }, { 0, 0 } },
    { { "open by name", NULL, open_by_name, true, NULL }, { 26, 79 }, { 0, 0 } },
    { { "allocate", NULL, allocate, false, NULL }, { 18, 18 }, { 1, 1 } },
    { { "allocate on unknown", NULL, allocate_on_unknown, false, NULL },
      { 17, 17 }, { 6, 6 } },
    { { "hit", prepare_hit, hit, false, NULL }, { 0, 1 }, { 0, 0 } },
    { { "miss", prepare_miss, miss, false, is_fixed }, { 5, 0 }, { 5, 0 } },
    { { "grow", NULL, grow, false, is_fixed }, { 32, 0 }, { 3, 0 } },
    { { "too large", prepare_hit, too_large, false, is_fixed }, { 0, 0 }, { 0, 0 } },
    { { "all bins", NULL, all_bins, false, is_binning }, { 0, 43 }, { 0, 4 } },
    { { "add", prepare_add, add, false, is_binning }, { 0, 38 }, { 0, 1 } },
    { { "add another's", prepare_add, add_other, false, is_binning },
      { 0, 12 }, { 0, 4 } },
    { { "free on same", prepare_free, free_on_same, false, NULL }, { 1, 1 }, { 3, 3 } },
    { { "free on other", prepare_free, free_on_other, false, NULL },
      { 2, 2 }, { 6, 6 } },
    { { "free on unknown", prepare_free, free_on_unknown, false, NULL },
      { 2, 2 }, { 11, 11 } },
    { { "free by address", prepare_free, free_by_address, false, NULL },
      { 1, 1 }, { 3, 3 } },
    { { "free after three", prepare_after, free_after_three, false, NULL },
      { 15, 5 }, { 23, 3 } },
    { { "trim all", prepare_end, trim_all, false, NULL }, { 2, 2 }, { 11, 11 } },
    { { "end", prepare_end, end, false, NULL }, { 2, 2 }, { 11, 11 } },
    { { "late end", prepare_late_end, end_late, false, NULL }, { 3, 2 }, { 14, 11 } },
};

static void bins_survive_every_fault(void **state)
{
    (void)state;
    bool as_written = true;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (int j = 0; j < CHAINS; j++) {
            const bins_entry *one = &all[i];
            if (one->scenario.suits != NULL && !one->scenario.suits(&chains[j]))
                continue;
            uint64_t host, device;
            sweep_both(&one->scenario, &chains[j], &host, &device);
            if (support_is_cuda() && host <= one->host[j])
                host = one->host[j]; /* the driver's are not struck */
            if (host != one->host[j] || device != one->device[j]) {
                as_written = false;
                fprintf(stderr, "  %s on %s makes other calls than written down: %llu "
                        "host allocations, %llu device calls\n", one->scenario.name,
                        chains[j].name, (unsigned long long)host,
                        (unsigned long long)device);
            }
        }
    }
    must(as_written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(bins_survive_every_fault, sweep_tell_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
