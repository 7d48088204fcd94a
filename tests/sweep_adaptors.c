/* sweep_adaptors.c - what is the adaptors' own, while each host allocation and each
 * device call on the way fails in turn: as sweep_faults.c, and with its claims. */
#include "support_sweep.h"

#include "device/device.h"
#include "internal.h"
#include "weir/checking.h"

enum { A, B };

static void make(sweep_scene *it)
{
    weir_status status = it->chain->make(it->device, &it->mr);
    must(sweep_went_well(it, status) == (it->mr != NULL));
}

/* ---- fallback ---- */

static weir_status make_fallback(weir_device *device, weir_resource **out)
{
    return weir_resource_open(device, "fallback(device)/limiting(8KiB)/device", out);
}

static weir_status make_fallback_pools(weir_device *device, weir_resource **out)
{
    return weir_resource_open(device,
                              "fallback(\"pool(growth=128KiB)/device\")/"
                              "pool(growth=128KiB, limit=128KiB)/device", out);
}

/* The primary's, and what it has no room for. */
static void allocate_from_both(sweep_scene *it)
{
    attempt(it, 0, it->streams[A], SMALL);
    attempt(it, 1, it->streams[B], CHUNK);
    attempt(it, 2, it->streams[A], CHUNK);
}

static void prepare_both(sweep_scene *it)
{
    sweep_take(it, 0, it->streams[A], SMALL);
    sweep_take(it, 1, it->streams[A], CHUNK);
    sweep_take(it, 2, it->streams[A], CHUNK);
    for (int i = 0; i < SWEEP_STREAMS; i++) {
        if (i != A)
            sweep_order(it, it->streams[i], it->streams[A]);
        sweep_stall(it, it->streams[i]);
        must_ok(weir_point_here(it->device, it->streams[i], &it->points[i]));
    }
}

static void free_both(sweep_scene *it)
{
    must_give(it, 0, it->streams[A]);
    must_give(it, 1, it->streams[B]);
    must_free(it, 2);
}

static void free_both_after(sweep_scene *it)
{
    must_give_after(it, 0, 1);
    must_give_after(it, 1, 3);
    must_give_after(it, 2, 2);
}

static void prepare_end(sweep_scene *it)
{
    prepare_both(it);
    for (int i = 0; i < 3; i++)
        sweep_give(it, i, it->streams[A]);
    sweep_open_gates(it);
}

static void trim(sweep_scene *it)
{
    weir_resource_statistics before = statistics_of(it->mr);
    size_t bytes = weir_resource_trim_sync(it->mr, 0);
    must_equal(statistics_of(it->mr).held_bytes + bytes, before.held_bytes);
}

static void end(sweep_scene *it)
{
    sweep_end_resource(it);
}

/* ---- failure_callback ---- */

static sweep_scene *helped; /* the one whose block 0 can be done without */

static bool give_first_block(void *context, weir_stream stream, size_t bytes,
                             size_t refusals)
{
    sweep_block *block = &helped->blocks[0];
    (void)context;
    (void)bytes;
    (void)refusals;
    if (block->ptr == NULL)
        return false;
    must(weir_deallocate(helped->mr, stream, block->ptr, block->bytes, WEIR_ALIGNMENT));
    block->ptr = NULL;
    return true;
}

static weir_status make_failure_callback(weir_device *device, weir_resource **out)
{
    weir_resource *upstream;
    *out = NULL;
    weir_status status =
        weir_resource_open(device, "limiting(128KiB)/device", &upstream);
    if (status != WEIR_OK)
        return status;
    status = weir_failure_callback_create(upstream, give_first_block, NULL, NULL, out);
    weir_resource_unref(upstream);
    return status;
}

static void prepare_help(sweep_scene *it)
{
    sweep_take(it, 0, it->streams[A], CHUNK);
    helped = it;
}

/* The hook gives the block back; that stays so, also if the second try fails. */
static void allocate_with_help(sweep_scene *it)
{
    void *ptr = it;
    weir_status status = weir_allocate(it->mr, it->streams[A], CHUNK / 2,
                                       WEIR_ALIGNMENT, &ptr);
    must((status == WEIR_OK) == (ptr != NULL));
    must(it->blocks[0].ptr == NULL || weir__device_is_lost(it->device));
    if (sweep_went_well(it, status))
        it->blocks[1] = (sweep_block){ ptr, CHUNK / 2, it->streams[A], 0, false };
    must_equal(statistics_of(it->mr).out_blocks,
               (it->blocks[0].ptr != NULL) + (it->blocks[1].ptr != NULL));
}

/* ---- aligned ---- */

static weir_status make_aligned(weir_device *device, weir_resource **out)
{
    return weir_resource_open(device, "aligned(4KiB, threshold=10KB)/device", out);
}

/* ---- tracking ---- */

static weir_status make_tracking(weir_device *device, weir_resource **out)
{
    return weir_resource_open(device, "tracking(freed=2)/device", out);
}

/* ---- prefetch ---- */

static weir_status make_prefetch(weir_device *device, weir_resource **out)
{
    return weir_resource_open(device, "prefetch/managed", out);
}

/* A block is there also where its prefetch was refused; and all are counted. */
static void allocate_prefetched(sweep_scene *it)
{
    weir_prefetch_counts counts = { .struct_size = sizeof counts };
    allocate_from_both(it);
    must_ok(weir_prefetch_get_counts(it->mr, &counts));
    must_equal(counts.prefetches + counts.failures,
               statistics_of(it->mr).allocations);
}

/* ---- checking ---- */

static weir_status make_checking(weir_device *device, weir_resource **out)
{
    return weir_resource_open(device, "checking(quarantine=200KB)/device", out);
}

static weir_checking_statistics checked(const sweep_scene *it)
{
    weir_checking_statistics out = { .struct_size = sizeof out };
    must_ok(weir_checking_get_statistics(it->mr, &out));
    return out;
}

/* Nobody has done anything wrong, whatever could not be looked at. */
static void must_have_found_nothing(const sweep_scene *it)
{
    weir_checking_statistics now = checked(it);
    must_equal(now.overruns + now.uses_after_free + now.wrong_frees +
               now.wrong_streams, 0);
}

static void allocate_checked(sweep_scene *it)
{
    allocate_from_both(it);
    must_have_found_nothing(it);
}

static void free_checked(sweep_scene *it)
{
    free_both(it);
    must_have_found_nothing(it);
}

static void free_checked_after(sweep_scene *it)
{
    free_both_after(it);
    must_have_found_nothing(it);
}

static void trim_checked(sweep_scene *it)
{
    (void)weir_resource_trim_sync(it->mr, 0);
    must_equal(checked(it).quarantine_bytes, 0);
    must_have_found_nothing(it);
}

static void check_all(sweep_scene *it)
{
    weir_status status = weir_checking_check_sync(it->mr, NULL);
    must(status == WEIR_OK || sweep_went_well(it, status) == (status == WEIR_OK));
    must_have_found_nothing(it);
}

/* ---- the sweeps ---- */

typedef struct sweep {
    sweep_scenario scenario;
    sweep_chain chain;
    uint64_t host, device; /* calls that it makes */
} sweep;

static void run_all(const sweep *all, size_t count)
{
    bool as_written = true;
    for (size_t i = 0; i < count; i++) {
        const sweep *one = &all[i];
        uint64_t host, device;
        sweep_both(&one->scenario, &one->chain, &host, &device);
        if (support_is_cuda() && host <= one->host)
            host = one->host; /* the driver's are not struck */
        if (host != one->host || device != one->device)
            print_error("%s, %s: %llu host allocations, %llu device calls\n",
                        one->scenario.name, one->chain.name, (unsigned long long)host,
                        (unsigned long long)device);
        as_written = as_written && host == one->host && device == one->device;
    }
    must(as_written);
}

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

#define PLAIN { "fallback", NULL, false, false, make_fallback, false }
#define POOLS { "fallback of pools", NULL, true, false, make_fallback_pools, false }

static void fallback_survives_every_fault(void **state)
{
    (void)state;
    static const sweep all[] = {
        { { "make", NULL, make, true, NULL }, PLAIN, 11, 0 },
        { { "make", NULL, make, true, NULL }, POOLS, 47, 0 },
        { { "allocate", NULL, allocate_from_both, false, NULL }, PLAIN, 8, 3 },
        { { "allocate", NULL, allocate_from_both, false, NULL }, POOLS, 37, 3 },
        { { "free", prepare_both, free_both, false, NULL }, PLAIN, 3, 9 },
        { { "free", prepare_both, free_both, false, NULL }, POOLS, 1, 3 },
        { { "free after", prepare_both, free_both_after, false, NULL }, PLAIN, 0, 0 },
        { { "free after", prepare_both, free_both_after, false, NULL }, POOLS, 0, 0 },
        { { "trim", prepare_end, trim, false, NULL }, PLAIN, 0, 5 },
        { { "trim", prepare_end, trim, false, NULL }, POOLS, 1, 7 },
        { { "end", prepare_end, end, false, NULL }, PLAIN, 0, 5 },
        { { "end", prepare_end, end, false, NULL }, POOLS, 1, 7 },
    };
    run_all(all, COUNT_OF(all));
}

#define HELP { "failure_callback", NULL, false, false, make_failure_callback, false }

static void failure_callback_survives_every_fault(void **state)
{
    (void)state;
    static const sweep all[] = {
        { { "make", NULL, make, true, NULL }, HELP, 7, 0 },
        { { "allocate", prepare_help, allocate_with_help, false, NULL }, HELP, 5, 4 },
    };
    run_all(all, COUNT_OF(all));
}

#define ALIGNED { "aligned", NULL, false, false, make_aligned, false }

static void aligned_survives_every_fault(void **state)
{
    (void)state;
    static const sweep all[] = {
        { { "make", NULL, make, true, NULL }, ALIGNED, 7, 0 },
        { { "allocate", NULL, allocate_from_both, false, NULL }, ALIGNED, 9, 3 },
        { { "free", prepare_both, free_both, false, NULL }, ALIGNED, 3, 9 },
        { { "free after", prepare_both, free_both_after, false, NULL }, ALIGNED, 0, 0 },
        { { "trim", prepare_end, trim, false, NULL }, ALIGNED, 0, 5 },
        { { "end", prepare_end, end, false, NULL }, ALIGNED, 0, 5 },
    };
    run_all(all, COUNT_OF(all));
}

#define TRACKING { "tracking", NULL, false, false, make_tracking, false }

static void tracking_survives_every_fault(void **state)
{
    (void)state;
    static const sweep all[] = {
        { { "make", NULL, make, true, NULL }, TRACKING, 6, 0 },
        { { "allocate", NULL, allocate_from_both, false, NULL }, TRACKING, 11, 3 },
        { { "free", prepare_both, free_both, false, NULL }, TRACKING, 3, 9 },
        { { "free after", prepare_both, free_both_after, false, NULL },
          TRACKING, 0, 0 },
        { { "trim", prepare_end, trim, false, NULL }, TRACKING, 0, 5 },
        { { "end", prepare_end, end, false, NULL }, TRACKING, 0, 5 },
    };
    run_all(all, COUNT_OF(all));
}

#define PREFETCH { "prefetch", NULL, false, false, make_prefetch, false }

static void prefetch_survives_every_fault(void **state)
{
    (void)state;
    static const sweep all[] = {
        { { "make", NULL, make, true, NULL }, PREFETCH, 5, 0 },
        { { "allocate", NULL, allocate_prefetched, false, NULL }, PREFETCH, 16, 9 },
        { { "free", prepare_both, free_both, false, NULL }, PREFETCH, 3, 9 },
    };
    run_all(all, COUNT_OF(all));
}

#define CHECKING { "checking", NULL, false, false, make_checking, true }

static void checking_survives_every_fault(void **state)
{
    (void)state;
    static const sweep all[] = {
        { { "make", NULL, make, true, NULL }, CHECKING, 12, 2 },
        { { "allocate", NULL, allocate_checked, false, NULL }, CHECKING, 17, 12 },
        { { "free", prepare_both, free_checked, false, NULL }, CHECKING, 12, 24 },
        { { "free after", prepare_both, free_checked_after, false, NULL },
          CHECKING, 0, 0 },
        { { "trim", prepare_end, trim_checked, false, NULL }, CHECKING, 14, 32 },
        { { "check", prepare_end, check_all, false, NULL }, CHECKING, 15, 34 },
        { { "end", prepare_end, end, false, NULL }, CHECKING, 14, 35 },
    };
    run_all(all, COUNT_OF(all));
}

static int print_points(void **state)
{
    (void)state;
    if (!support_is_cuda()) /* where there are fewer */
        print_message("bound: sweep_adaptors.points = %llu\n",
                      (unsigned long long)sweep_points);
    return 0;
}

#define A_SWEEP(test) cmocka_unit_test_teardown(test, sweep_tell_where)

int main(void)
{
    const struct CMUnitTest tests[] = {
        A_SWEEP(fallback_survives_every_fault),
        A_SWEEP(failure_callback_survives_every_fault),
        A_SWEEP(aligned_survives_every_fault),
        A_SWEEP(tracking_survives_every_fault),
        A_SWEEP(checking_survives_every_fault),
        A_SWEEP(prefetch_survives_every_fault),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, print_points);
}
