/* test_limiting.c - the limit holds, and what upstream refuses is not counted. */
#include "support.h"

#include <stdatomic.h>
#include <string.h>

#include "internal.h"
#include "weir/leaves.h"
#include "weir/limiting.h"

static weir_resource *limit_device(weir_device *device, size_t limit_bytes)
{
    weir_resource *leaf, *mr;
    must_ok(weir_device_resource_create(device, &leaf));
    must_ok(weir_limiting_create(leaf, limit_bytes, &mr));
    weir_resource_unref(leaf);
    return mr;
}

static void limiting_refuses_what_would_pass_the_limit(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(1));
    weir_resource *mr = limit_device(device, 100);
    void *a = take(mr, NULL, 60), *b = &mr;

    must_answer(WEIR_LIMIT_REACHED, weir_allocate(mr, NULL, 41, 8, &b));
    must(b == NULL);
    must(strstr(weir_last_error().message, "limit 100") != NULL);
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.requested_bytes, 41);
    must_equal(report.limit_bytes, 100);
    must_equal(report.in_use_bytes, 60);
    must_equal(report.largest_free_bytes, 40);
    assert_string_equal(report.resource, "limiting");

    b = take(mr, NULL, 40);
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(mr, NULL, SIZE_MAX, 8, &(void *){ NULL }));
    must(take(mr, NULL, 0) == NULL); /* nothing is always there */
    give(mr, NULL, a, 60);
    give(mr, NULL, b, 40);
    a = take(mr, NULL, 100); /* under the limit by what was freed */
    give(mr, NULL, a, 100);
    weir_resource_unref(mr);
    close_emulated(device);
}

static void limiting_uncounts_what_upstream_refused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(2));
    weir_resource *mr = limit_device(device, 100);
    void *ptr = &mr;
    plan_fault(device, "malloc", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir_allocate(mr, NULL, 100, 8, &ptr));
    must(ptr == NULL);
    ptr = take(mr, NULL, 100);

    /* And what upstream did not take back stays counted. */
    misuse_log log;
    misuse_begin(&log);
    must(!weir_deallocate(mr, NULL, ptr, 50, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, ptr);
    must(!weir_deallocate_after(mr, ptr, 50, WEIR_ALIGNMENT, NULL, 0));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, ptr);
    misuse_end();
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(mr, NULL, 1, 8, &(void *){ NULL }));

    must_ok(weir_stream_sync(device, NULL));
    must(weir_deallocate_after(mr, ptr, 100, WEIR_ALIGNMENT, NULL, 0));
    ptr = take(mr, NULL, 100);
    must(weir_free(mr, ptr));
    weir_resource_unref(mr);
    close_emulated(device);
}

static void limiting_refuses_even_what_upstream_has_not(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(3));
    weir_resource *mr = limit_device(device, SIZE_MAX);
    void *ptr;
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(mr, NULL, (size_t)1 << 50, 8, &ptr));
    must_ok(weir_allocate(mr, NULL, 8, 8, &ptr));
    must(weir_deallocate(mr, NULL, ptr, 8, 8));
    weir_resource_unref(mr);

    mr = limit_device(device, 0);
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(mr, NULL, 1, 8, &ptr));
    weir_resource_unref(mr);
    close_emulated(device);
}

static void limiting_create_survives_every_host_failure(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(4));
    weir_resource *leaf, *mr = NULL;
    must_ok(weir_device_resource_create(device, &leaf));
    uint64_t failing;
    for (failing = 1; mr == NULL; failing++) {
        size_t live = weir__host_live();
        weir__host_fail_at(failing, false);
        weir_status status = weir_limiting_create(leaf, 100, &mr);
        weir__host_fail_at(0, false);
        if (status != WEIR_OK) {
            must_answer(WEIR_OUT_OF_HOST_MEMORY, status);
            must_equal(weir__host_live(), live);
        }
    }
    must_equal(failing - 1, 3); /* two fail in turn, then none */
    weir_resource_unref(mr);
    weir_resource_unref(leaf);
    close_emulated(device);
}

/* ---- many threads at one limit ---- */

#define THREADS 4
#define LIMIT   ((size_t)10000)

typedef struct worker {
    weir_resource *mr;
    uint64_t random;
    int rounds;
} worker;

static atomic_size_t out_now;

static void take_and_give(void *argument)
{
    worker *self = argument;
    for (int i = 0; i < self->rounds; i++) {
        size_t bytes = (size_t)support_random_between(&self->random, 1, 4000);
        void *ptr;
        weir_status status = weir_allocate(self->mr, WEIR_STREAM_PER_THREAD, bytes,
                                           WEIR_ALIGNMENT, &ptr);
        if (status == WEIR_LIMIT_REACHED)
            continue;
        must_answer(WEIR_OK, status);
        /* Counted after the fact and uncounted before: never more than is out. */
        must(atomic_fetch_add(&out_now, bytes) + bytes <= LIMIT);
        atomic_fetch_sub(&out_now, bytes);
        give(self->mr, WEIR_STREAM_PER_THREAD, ptr, bytes);
    }
}

static void run_workers(weir_device *device, uint64_t seed, int rounds)
{
    weir_resource *mr = limit_device(device, LIMIT);
    worker workers[THREADS];
    void *arguments[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){ mr, seed * THREADS + i, rounds };
        arguments[i] = &workers[i];
    }
    must_ok(weir_emulated_run_threads(device, THREADS, take_and_give, arguments));
    void *all = take(mr, NULL, LIMIT); /* nothing is left counted */
    give(mr, NULL, all, LIMIT);
    weir_resource_unref(mr);
}

static void limit_holds_for_many_threads(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("seeds of threads at a limit", 20, 300);
    for (uint64_t i = 0; i < seeds; i++) {
        uint64_t seed = support_seed(i);
        weir_device *device = open_stepped(seed);
        run_workers(device, seed, 10);
        close_emulated(device);
    }
    weir_device *device = open_threads();
    run_workers(device, 1, (int)support_bound("rounds at a limit", 300, 5000));
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limiting_refuses_what_would_pass_the_limit),
        cmocka_unit_test(limiting_uncounts_what_upstream_refused),
        cmocka_unit_test(limiting_refuses_even_what_upstream_has_not),
        cmocka_unit_test(limiting_create_survives_every_host_failure),
        cmocka_unit_test(limit_holds_for_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
