/* test_statistics.c - what passes through is counted, exactly, also by many threads. */
#include "support.h"
#include "support_roomy.h"

#include <string.h>

#include "weir/fallback.h"
#include "weir/leaves.h"
#include "weir/limiting.h"
#include "weir/resource_ops.h"
#include "weir/statistics.h"

static weir_resource *count_device(weir_device *device)
{
    weir_resource *mr;
    must_ok(weir_resource_open(device, "statistics/device", &mr));
    return mr;
}

static void statistics_count_what_is_out_and_its_peak(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(1));
    weir_resource *mr = count_device(device);
    void *a = take(mr, NULL, 1000), *b = take(mr, NULL, 500);
    (void)take(mr, NULL, 0); /* is no allocation */
    give(mr, NULL, a, 1000);
    a = take(mr, NULL, 200);

    weir_resource_statistics now = statistics_of(mr);
    must_equal(now.out_bytes, 700);
    must_equal(now.out_blocks, 2);
    must_equal(now.peak_out_bytes, 1500);
    must_equal(now.allocations, 3);
    must_equal(now.deallocations, 1);
    must_equal(now.failures, 0);
    must_equal(now.held_bytes, 1700); /* as upstream says: the leaf keeps the first */
    must_equal(now.kept_bytes, 1000);

    must_ok(weir_statistics_reset(mr));
    now = statistics_of(mr);
    must_equal(now.out_bytes, 700);
    must_equal(now.out_blocks, 2);
    must_equal(now.peak_out_bytes, 700);
    must_equal(now.allocations + now.deallocations + now.failures, 0);
    give(mr, NULL, a, 200);
    must_ok(weir_stream_sync(device, NULL));
    must(weir_deallocate_after(mr, b, 500, WEIR_ALIGNMENT, NULL, 0));
    now = statistics_of(mr);
    must_equal(now.out_bytes + now.out_blocks, 0);
    must_equal(now.deallocations, 2);
    must_equal(now.peak_out_bytes, 700); /* what was out at the reset */
    weir_resource_unref(mr);
    close_emulated(device);
}

static void statistics_count_failures_and_no_misuse(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(2));
    weir_resource *mr = count_device(device);
    void *ptr = take(mr, NULL, 100), *none;
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(mr, NULL, (size_t)1 << 50, 8, &none));
    misuse_log log;
    misuse_begin(&log);
    must(!weir_deallocate(mr, NULL, ptr, 101, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, ptr);
    must(!weir_deallocate(mr, NULL, ptr, SIZE_MAX, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, ptr);
    must(!weir_deallocate_after(mr, &log, 100, WEIR_ALIGNMENT, NULL, 0));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, &log);
    weir_resource_statistics now = statistics_of(mr);
    must_equal(now.out_bytes, 100);
    must_equal(now.failures, 1);
    must_equal(now.deallocations, 0);
    give(mr, NULL, ptr, 100);
    must(!weir_deallocate(mr, NULL, ptr, 100, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, ptr);
    now = statistics_of(mr);
    must_equal(now.out_bytes, 0); /* and not below */
    must_equal(now.deallocations, 1);
    misuse_end();
    weir_resource_unref(mr);
    close_emulated(device);
}

static void statistics_can_be_nested(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(3));
    weir_resource *inner = count_device(device), *limited, *outer;
    must_ok(weir_limiting_create(inner, 1000, &limited));
    must_ok(weir_statistics_create(limited, &outer));
    void *a = take(outer, NULL, 600), *b = take(inner, NULL, 50), *none;
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(outer, NULL, 500, 8, &none));
    must_equal(statistics_of(outer).out_bytes, 600);
    must_equal(statistics_of(outer).failures, 1);
    must_equal(statistics_of(inner).out_bytes, 650);
    must_equal(statistics_of(inner).failures, 0); /* it was not asked */
    must_equal(statistics_of(limited).out_bytes, 650); /* upstream's */
    must_answer(WEIR_INVALID_ARGUMENT, weir_statistics_reset(limited));
    must_answer(WEIR_INVALID_ARGUMENT, weir_statistics_reset(NULL));
    give(outer, NULL, a, 600);
    give(inner, NULL, b, 50);
    weir_resource_unref(outer);
    weir_resource_unref(limited);
    weir_resource_unref(inner);
    close_emulated(device);
}

/* A limit, and what lies above it kept for those who may pass it: what is held is held
 * once, and what a trim leaves is left once. */
static void one_resource_below_two_counts_once(void **state)
{
    (void)state;
    const size_t mib = (size_t)1 << 20;
    weir_device *device = open_stepped(support_seed(1));
    weir_resource *below, *limited, *mr;
    must_ok(weir_resource_open(device, "pool(growth=1MiB)/device", &below));
    must_ok(weir_limiting_create(below, mib, &limited));
    must_ok(weir_fallback_create(limited, below, &mr));
    void *first = take(mr, NULL, mib), *second = take(mr, NULL, mib);
    must_equal(statistics_of(mr).out_bytes, 2 * mib);
    must_equal(statistics_of(mr).held_bytes, 2 * mib);
    must_equal(statistics_of(mr).allocations, 2);
    give(mr, NULL, first, mib);
    give(mr, NULL, second, mib);
    must_equal(weir_resource_trim_sync(mr, mib), mib);
    must_equal(statistics_of(below).held_bytes, mib);
    weir_resource_unref(mr);
    weir_resource_unref(limited);
    weir_resource_unref(below);
    close_emulated(device);
}

static void extensions_are_counted(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(4));
    weir_resource *pool, *mr;
    roomy room;
    must_ok(weir_resource_open(device, "pool/device", &pool));
    weir_resource *upstream = roomy_open(&room, pool, 4096);
    must_ok(weir_statistics_create(upstream, &mr));
    void *ptr = take(mr, NULL, 1000);
    must_ok(weir_resource_extend(mr, NULL, ptr, 1000, WEIR_ALIGNMENT, 3000));
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_resource_extend(mr, NULL, ptr, 3000, WEIR_ALIGNMENT, 5000));
    must_equal(statistics_of(mr).out_bytes, 3000);
    must_equal(statistics_of(mr).peak_out_bytes, 3000);
    must_equal(statistics_of(mr).allocations, 1);
    give(mr, NULL, ptr, 3000);
    must_equal(statistics_of(mr).out_bytes, 0);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    weir_resource_unref(pool);
    close_emulated(device);
}

#define THREADS 4
#define HELD    8

typedef struct worker {
    weir_resource *mr;
    uint64_t random;
    int rounds;
    uint64_t allocations, failures, deallocations; /* as it knows itself */
    size_t out_bytes, most_bytes;
    void *ptr[HELD];    /* what is out at its end, for the test to give back */
    size_t bytes[HELD];
} worker;

static void work(void *argument)
{
    worker *self = argument;
    for (int i = 0; i < self->rounds; i++) {
        size_t slot = (size_t)support_random_below(&self->random, HELD);
        void **ptr = &self->ptr[slot];
        size_t *bytes = &self->bytes[slot];
        if (*ptr != NULL) {
            give(self->mr, WEIR_STREAM_PER_THREAD, *ptr, *bytes);
            self->deallocations++;
            self->out_bytes -= *bytes;
            *ptr = NULL;
            continue;
        }
        bool too_much = support_random_below(&self->random, 10) == 0;
        *bytes = too_much ? (size_t)1 << 50
                          : (size_t)support_random_between(&self->random, 1, 5000);
        must_answer(too_much ? WEIR_OUT_OF_MEMORY : WEIR_OK,
                    weir_allocate(self->mr, WEIR_STREAM_PER_THREAD, *bytes,
                                  WEIR_ALIGNMENT, ptr));
        if (too_much) {
            self->failures++;
            continue;
        }
        self->allocations++;
        self->out_bytes += *bytes;
        if (self->most_bytes < self->out_bytes)
            self->most_bytes = self->out_bytes;
    }
    must_ok(weir_stream_sync(weir_resource_device(self->mr), WEIR_STREAM_PER_THREAD));
}

/* What the threads know themselves has to add up to what was counted. */
static void check_sums(weir_device *device, uint64_t seed, int rounds)
{
    weir_resource *mr = count_device(device);
    worker workers[THREADS];
    void *arguments[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){ .mr = mr, .rounds = rounds,
                               .random = seed * THREADS + i };
        arguments[i] = &workers[i];
    }
    must_ok(support_run_threads(device, THREADS, work, arguments));

    worker sum = { .mr = mr };
    size_t most_of_one = 0;
    for (size_t i = 0; i < THREADS; i++) {
        sum.allocations += workers[i].allocations;
        sum.deallocations += workers[i].deallocations;
        sum.failures += workers[i].failures;
        sum.out_bytes += workers[i].out_bytes;
        sum.most_bytes += workers[i].most_bytes;
        if (most_of_one < workers[i].most_bytes)
            most_of_one = workers[i].most_bytes;
    }
    weir_resource_statistics now = statistics_of(mr);
    must_equal(now.allocations, sum.allocations);
    must_equal(now.deallocations, sum.deallocations);
    must_equal(now.failures, sum.failures);
    must_equal(now.out_bytes, sum.out_bytes);
    must_equal(now.out_blocks, sum.allocations - sum.deallocations);
    must(now.peak_out_bytes >= most_of_one && now.peak_out_bytes <= sum.most_bytes);
    must(now.peak_out_bytes >= now.out_bytes);

    must_ok(weir_device_sync(device));
    for (size_t i = 0; i < THREADS * HELD; i++) {
        worker *one = &workers[i / HELD];
        if (one->ptr[i % HELD] != NULL)
            give(mr, NULL, one->ptr[i % HELD], one->bytes[i % HELD]);
    }
    must_equal(statistics_of(mr).out_bytes, 0);
    must_equal(statistics_of(mr).out_blocks, 0);
    weir_resource_unref(mr);
}

static void statistics_are_exact_with_many_threads(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("seeds of counting threads", 20, 300);
    for (uint64_t i = 0; i < seeds; i++) {
        uint64_t seed = support_seed(i);
        weir_device *device = open_stepped(seed);
        check_sums(device, seed, 30);
        close_emulated(device);
    }
    weir_device *device = open_threads();
    check_sums(device, 1, (int)support_bound("rounds of counting threads", 500, 10000));
    close_emulated(device);
}

typedef struct witness {
    weir_resource *mr;
    size_t bytes;
    int times;
} witness;

static void see_statistics(void *context, const weir_misuse *misuse)
{
    witness *self = context;
    weir_resource_statistics now = statistics_of(self->mr);
    must(misuse->message[0] != '\0');
    must_equal(now.out_blocks, 1);
    must_equal(now.out_bytes, self->bytes);
    must_equal(now.allocations, 1);
    must_equal(now.deallocations, 0);
    self->times++;
}

/* A block counts as back once it is: what is none was never taken off. */
static void a_wrong_free_is_not_counted_meanwhile(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "device", "statistics/device", "pool/device", "fixed_size(1MiB)/device",
        "binning/device", "arena/device", "growable", "async",
    };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        weir_device *device = open_stepped(support_seed(5));
        witness self = { .bytes = (size_t)1 << 20 };
        must_ok(weir_resource_open(device, specs[i], &self.mr));
        char *ptr = take(self.mr, NULL, self.bytes);
        weir_set_misuse_handler(see_statistics, &self);
        must(!weir_deallocate(self.mr, NULL, ptr, self.bytes - 1, WEIR_ALIGNMENT));
        must(!weir_deallocate_after(self.mr, ptr, self.bytes * 8, WEIR_ALIGNMENT, NULL,
                                    0));
        must(!weir_free(self.mr, ptr + 256));
        must(!weir_free(self.mr, &self));
        weir_set_misuse_handler(NULL, NULL);
        must_equal(self.times, 4);
        weir_resource_unref(self.mr);
        give(self.mr, NULL, ptr, self.bytes); /* which ends it */
        close_emulated(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_count_what_is_out_and_its_peak),
        cmocka_unit_test(statistics_count_failures_and_no_misuse),
        cmocka_unit_test(statistics_can_be_nested),
        cmocka_unit_test(one_resource_below_two_counts_once),
        cmocka_unit_test(extensions_are_counted),
        cmocka_unit_test(statistics_are_exact_with_many_threads),
        cmocka_unit_test(a_wrong_free_is_not_counted_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
