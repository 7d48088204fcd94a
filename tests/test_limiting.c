/* test_limiting.c - the limit holds, and what upstream refuses is not counted. */
#include "support.h"
#include "support_roomy.h"

#include <stdatomic.h>
#include <string.h>

#include "internal.h"
#include "weir/leaves.h"
#include "weir/limiting.h"
#include "weir/resource_ops.h"

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

static void limiting_counts_extensions(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(5));
    weir_resource *pool, *mr;
    roomy room;
    must_ok(weir_resource_open(device, "pool/device", &pool));
    weir_resource *upstream = roomy_open(&room, pool, 4096);
    must_ok(weir_limiting_create(upstream, 5000, &mr));
    void *a = take(mr, NULL, 1000), *b = take(mr, NULL, 1000);
    must_ok(weir_resource_extend(mr, NULL, a, 1000, WEIR_ALIGNMENT, 3500));
    must_answer(WEIR_LIMIT_REACHED,
                weir_resource_extend(mr, NULL, b, 1000, WEIR_ALIGNMENT, 1501));
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.requested_bytes, 501);
    must_equal(room.extensions, 1);
    must_ok(weir_resource_extend(mr, NULL, b, 1000, WEIR_ALIGNMENT, 1500));
    give(mr, NULL, a, 3500);
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_resource_extend(mr, NULL, b, 1500, WEIR_ALIGNMENT, 4097));
    a = take(mr, NULL, 3500); /* what upstream refused is not counted */
    give(mr, NULL, a, 3500);
    give(mr, NULL, b, 1500);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    weir_resource_unref(pool);
    close_emulated(device);
}

/* ---- the soft limit ---- */

typedef struct listener {
    weir_resource *mr;
    atomic_size_t calls, out_bytes;
    void *spare; /* 100 bytes that it gives back, or null */
} listener;

static void listen(void *context, weir_stream stream, size_t out_bytes)
{
    listener *self = context;
    atomic_fetch_add(&self->calls, 1);
    atomic_store(&self->out_bytes, out_bytes);
    if (self->spare == NULL)
        return;
    void *ptr = self->spare, *none;
    self->spare = NULL;
    check_stamp(weir_resource_device(self->mr), stream, ptr, 100, 1);
    give(self->mr, stream, ptr, 100);
    ptr = take(self->mr, stream, 100); /* passes it again */
    give(self->mr, stream, ptr, 100);
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(self->mr, stream, 1000, 8, &none));
}

static weir_resource *limit_softly(weir_device *device, listener *it, size_t soft_bytes)
{
    weir_limiting_options options = WEIR_LIMITING_OPTIONS_INIT;
    weir_resource *leaf;
    options.on_soft_limit = listen;
    options.context = it;
    options.soft_limit_bytes = soft_bytes;
    must_ok(weir_resource_open(device, "pool(limit=1MiB)/device", &leaf));
    must_ok(weir_limiting_create_with(leaf, 1000, &options, &it->mr));
    weir_resource_unref(leaf);
    return it->mr;
}

static void soft_limit_is_told_each_time_it_is_passed(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(6));
    listener it = { .spare = NULL };
    weir_resource *mr = limit_softly(device, &it, 500);
    void *a = take(mr, NULL, 500);
    must_equal(it.calls, 0); /* reached, not passed */
    void *b = take(mr, NULL, 1), *c = take(mr, NULL, 100);
    must_equal(it.calls, 1);
    must_equal(it.out_bytes, 501);
    give(mr, NULL, b, 1);
    b = take(mr, NULL, 1);
    must_equal(it.calls, 1); /* it was above all the time */
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(mr, NULL, 500, 8, &(void *){ NULL }));
    must_equal(it.calls, 1);
    give(mr, NULL, c, 100);
    give(mr, NULL, b, 1);
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(mr, NULL, 501, 8, &(void *){ NULL }));
    must_equal(it.calls, 1); /* what is refused does not pass it */
    b = take(mr, NULL, 500);
    must_equal(it.calls, 2);
    must_equal(it.out_bytes, 1000);
    give(mr, NULL, a, 500);
    give(mr, NULL, b, 500);
    weir_resource_unref(mr);
    close_emulated(device);
}

static void soft_limit_is_passed_in_place(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(6));
    listener it = { .spare = NULL };
    weir_limiting_options options = WEIR_LIMITING_OPTIONS_INIT;
    weir_resource *pool;
    roomy room;
    options.on_soft_limit = listen;
    options.context = &it;
    options.soft_limit_bytes = 2000;
    must_ok(weir_resource_open(device, "pool/device", &pool));
    weir_resource *upstream = roomy_open(&room, pool, 4096);
    must_ok(weir_limiting_create_with(upstream, 5000, &options, &it.mr));
    void *a = take(it.mr, NULL, 1000);
    must_ok(weir_resource_extend(it.mr, NULL, a, 1000, WEIR_ALIGNMENT, 2000));
    must_equal(it.calls, 0);
    must_ok(weir_resource_extend(it.mr, NULL, a, 2000, WEIR_ALIGNMENT, 2001));
    must_equal(it.calls, 1);
    must_equal(it.out_bytes, 2001);
    give(it.mr, NULL, a, 2001);
    weir_resource_unref(it.mr);
    weir_resource_unref(upstream);
    weir_resource_unref(pool);
    close_emulated(device);
}

static void soft_limits_hook_may_use_the_resource(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(7));
    listener it = { .spare = NULL };
    weir_resource *mr = limit_softly(device, &it, 500);
    it.spare = take(mr, NULL, 100);
    stamp(device, NULL, it.spare, 100, 1);
    void *none_yet;
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(mr, NULL, 1, 3, &none_yet));
    void *a = take(mr, NULL, 450);
    stamp(device, NULL, a, 450, 2);
    must(it.spare == NULL);
    must_equal(it.calls, 1); /* not for what it does itself */
    must_equal(weir_last_error().status, WEIR_INVALID_ARGUMENT); /* as it was */
    void *b = take(mr, NULL, 100);
    must_equal(it.calls, 2); /* it was below again */
    must_be_quiet(device);
    check_stamp(device, NULL, a, 450, 2);
    give(mr, NULL, a, 450);
    give(mr, NULL, b, 100);
    weir_resource_unref(mr);

    weir_limiting_options options = WEIR_LIMITING_OPTIONS_INIT;
    must_ok(weir_device_resource_create(device, &mr));
    options.soft_limit_bytes = 1001;
    weir_resource *none = mr;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_limiting_create_with(mr, 1000, &options, &none));
    must(none == NULL);
    options.struct_size = 1;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_limiting_create_with(mr, 2000, &options, &none));
    weir_resource_unref(mr);
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

typedef struct taker {
    weir_resource *mr;
    void *ptr;
} taker;

static void take_one(void *argument)
{
    taker *self = argument;
    self->ptr = take(self->mr, NULL, 200);
}

static void give_one(void *argument)
{
    taker *self = argument;
    give(self->mr, NULL, self->ptr, 200);
}

static void one_of_many_threads_passes_the_soft_limit(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("seeds of threads at a soft limit", 20, 300);
    for (uint64_t i = 0; i < seeds; i++) {
        weir_device *device = i == 0 ? open_threads() : open_stepped(support_seed(i));
        listener it = { .spare = NULL };
        weir_resource *mr = limit_softly(device, &it, 500);
        taker takers[THREADS];
        void *arguments[THREADS];
        for (size_t j = 0; j < THREADS; j++) {
            takers[j] = (taker){ mr, NULL };
            arguments[j] = &takers[j];
        }
        for (size_t round = 1; round <= 5; round++) {
            must_ok(weir_emulated_run_threads(device, THREADS, take_one, arguments));
            must_equal(it.calls, round);
            must_ok(weir_emulated_run_threads(device, THREADS, give_one, arguments));
        }
        weir_resource_unref(mr);
        close_emulated(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limiting_refuses_what_would_pass_the_limit),
        cmocka_unit_test(limiting_uncounts_what_upstream_refused),
        cmocka_unit_test(limiting_refuses_even_what_upstream_has_not),
        cmocka_unit_test(limiting_create_survives_every_host_failure),
        cmocka_unit_test(limiting_counts_extensions),
        cmocka_unit_test(soft_limit_is_told_each_time_it_is_passed),
        cmocka_unit_test(soft_limit_is_passed_in_place),
        cmocka_unit_test(soft_limits_hook_may_use_the_resource),
        cmocka_unit_test(limit_holds_for_many_threads),
        cmocka_unit_test(one_of_many_threads_passes_the_soft_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
