/* test_growable.c - the leaf `growable`: what is mapped when, where blocks lie, what
 * trim unmaps and waits for, and what happens where memory or addresses run out. */
#include <pthread.h>
#include <string.h>

#include "device/device.h"
#include "internal.h"
#include "support.h"
#include "support_work.h"
#include "weir/capture.h"
#include "weir/growable.h"
#include "weir/resource_ops.h"

#define MIB  ((size_t)1 << 20)
#define PAGE WEIR_GROWABLE_PAGE_BYTES

static weir_device *open_small(size_t memory_bytes)
{
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.memory_bytes = memory_bytes;
    options.emulated = &emulated;
    return open_with("emulated:0", &options);
}

static weir_resource *make(weir_device *device, size_t chunk_bytes)
{
    weir_resource *mr;
    const weir_growable_options options = { sizeof options, chunk_bytes, 0, false,
                                            true };
    must_ok(weir_growable_create(device, &options, &mr));
    return mr;
}

static void must_hold(weir_resource *mr, size_t bytes)
{
    must_equal(statistics_of(mr).held_bytes, bytes);
}

static weir_status extend(weir_resource *mr, void *ptr, size_t bytes, size_t new_bytes)
{
    return weir_resource_extend(mr, NULL, ptr, bytes, WEIR_ALIGNMENT, new_bytes);
}

/* ---- growing ---- */

static void growth_is_the_shortfall_in_chunks(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr = make(device, 0);
    size_t before = device_free_bytes(device);
    unsigned char *a = take(mr, NULL, 1);
    must_equal((uintptr_t)a % PAGE, 0);
    must_hold(mr, 32 * MIB);
    must_equal(device_free_bytes(device), before - 32 * MIB);
    unsigned char *b = take(mr, NULL, 30 * MIB); /* all that is left */
    must(b == a + PAGE);
    must_equal(calls_of(device).range_map, 1);

    /* Beside a free tail no more is mapped than is missing, rounded up. */
    give(mr, NULL, b, 30 * MIB);
    must_ok(weir_device_sync(device));
    unsigned char *c = take(mr, NULL, 33 * MIB);
    must(c == a + PAGE);
    must_hold(mr, 64 * MIB);
    must_equal(calls_of(device).range_map, 2);
    stamp(device, NULL, c, 33 * MIB, 1); /* over the border of two chunks */
    check_stamp(device, NULL, c, 33 * MIB, 1);

    /* No chunk is larger than the most. */
    unsigned char *d = take(mr, NULL, 1100 * MIB);
    must(d == c + 34 * MIB);
    must_equal(calls_of(device).range_map, 5);
    must_hold(mr, 64 * MIB + 1088 * MIB);
    give(mr, NULL, a, 1);
    give(mr, NULL, c, 33 * MIB);
    give(mr, NULL, d, 1100 * MIB);
    weir_resource_unref(mr);
    must_equal(device_free_bytes(device), before);
    close_emulated(device);
}

static void the_best_fit_is_taken(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr = make(device, 64 * MIB);
    static const size_t pages[] = { 8, 1, 4, 1, 5, 1, 4, 8 };
    unsigned char *blocks[8];
    for (size_t i = 0; i < 8; i++)
        blocks[i] = take(mr, NULL, pages[i] * PAGE);
    must_hold(mr, 64 * MIB);
    for (size_t i = 0; i < 8; i += 2)
        give(mr, NULL, blocks[i], pages[i] * PAGE);
    must_ok(weir_device_sync(device));
    unsigned char *a = take(mr, NULL, 3 * PAGE + 1);
    must(a == blocks[2]);
    unsigned char *b = take(mr, NULL, 5 * PAGE);
    must(b == blocks[4]);
    must_equal(statistics_of(mr).largest_free_bytes, 8 * PAGE);
    give(mr, NULL, a, 3 * PAGE + 1);
    give(mr, NULL, b, 5 * PAGE);
    for (size_t i = 1; i < 8; i += 2)
        give(mr, NULL, blocks[i], pages[i] * PAGE);
    must_equal(calls_of(device).range_map, 1);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* What is given back and done is reused before more is mapped; what is not done is
 * not, and nobody waits for it. */
static void only_what_is_done_is_reused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr = make(device, 2 * MIB);
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream other = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    void *a = take(mr, stream, PAGE);
    uint64_t gate = raw_stall(device, stream);
    stamp(device, stream, a, PAGE, 1);
    give(mr, stream, a, PAGE);
    void *b = take(mr, other, PAGE);
    must(b != a);
    stamp(device, other, b, PAGE, 2);
    raw_open_gate(device, gate);
    must_ok(weir_stream_sync(device, stream));
    void *c = take(mr, other, PAGE);
    must(c == a);
    stamp(device, other, c, PAGE, 3);
    check_stamp(device, other, b, PAGE, 2);
    check_stamp(device, other, c, PAGE, 3);
    must_hold(mr, 2 * PAGE);
    give(mr, other, b, PAGE);
    give(mr, other, c, PAGE);
    end_stream(device, stream);
    end_stream(device, other);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* ---- extending ---- */

static void blocks_grow_where_they_are(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr = make(device, 8 * MIB);
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(mr, &properties));
    must(properties.can_extend && properties.can_find && properties.can_trim);
    unsigned char *a = take(mr, NULL, MIB);
    stamp(device, NULL, a, MIB, 1);
    must_ok(extend(mr, a, MIB, PAGE));        /* nothing more */
    must_equal(calls_of(device).range_map, 1);
    must_ok(extend(mr, a, PAGE, 8 * MIB));    /* what is mapped */
    must_equal(calls_of(device).range_map, 1);
    must_ok(extend(mr, a, 8 * MIB, 11 * MIB)); /* what is missing */
    must_hold(mr, 16 * MIB);
    check_stamp(device, NULL, a, MIB, 1);
    stamp(device, NULL, a, 11 * MIB, 2);
    check_stamp(device, NULL, a, 11 * MIB, 2);

    unsigned char *b = take(mr, NULL, PAGE);
    must(b == a + 12 * MIB);
    must_answer(WEIR_OUT_OF_MEMORY, extend(mr, a, 11 * MIB, 12 * MIB + 1));
    must_ok(extend(mr, a, 11 * MIB, 12 * MIB));
    must_equal(statistics_of(mr).out_bytes, 12 * MIB + PAGE);
    weir_block found = { .struct_size = sizeof found };
    must_ok(weir_resource_find(mr, a, &found));
    must_equal(found.bytes, 12 * MIB);
    give(mr, NULL, b, PAGE); /* and where it was there is room, once it is done */
    must_ok(weir_device_sync(device));
    must_ok(extend(mr, a, 12 * MIB, 14 * MIB));
    must_hold(mr, 16 * MIB);
    give(mr, NULL, a, 14 * MIB);
    must_equal(statistics_of(mr).out_bytes, 0);
    weir_resource_unref(mr);
    close_emulated(device);
}

static void what_is_no_block_does_not_grow(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr = make(device, 8 * MIB);
    unsigned char *a = take(mr, NULL, PAGE);
    must_answer(WEIR_INVALID_ARGUMENT, extend(mr, a + 1, PAGE, 2 * PAGE));
    must_answer(WEIR_INVALID_ARGUMENT, extend(mr, a, PAGE - 1, 2 * PAGE));
    must_answer(WEIR_OUT_OF_MEMORY, extend(mr, a, PAGE, SIZE_MAX));
    must_equal(statistics_of(mr).out_bytes, PAGE);
    give(mr, NULL, a, PAGE);
    must_answer(WEIR_INVALID_ARGUMENT, extend(mr, a, PAGE, 2 * PAGE));
    must_hold(mr, 8 * MIB);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* ---- trimming ---- */

/* Chunks of four pages: what lies in the second keeps it, and no other. */
static void trim_unmaps_chunks_with_nothing_out(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr = make(device, 4 * PAGE);
    size_t before = device_free_bytes(device);
    unsigned char *blocks[4];
    for (size_t i = 0; i < 4; i++)
        blocks[i] = take(mr, NULL, 4 * PAGE);
    for (size_t i = 0; i < 4; i++)
        must(blocks[i] == blocks[0] + i * 4 * PAGE);
    give(mr, NULL, blocks[1], 4 * PAGE);
    must_ok(weir_device_sync(device));
    unsigned char *kept = take(mr, NULL, PAGE);
    must(kept == blocks[1]);
    stamp(device, NULL, kept, PAGE, 1);
    give(mr, NULL, blocks[0], 4 * PAGE);
    give(mr, NULL, blocks[2], 4 * PAGE);
    must_equal(weir_resource_trim_sync(mr, 12 * PAGE), 4 * PAGE);
    must_hold(mr, 12 * PAGE);
    must_equal(weir_resource_trim_sync(mr, 0), 4 * PAGE);
    must_hold(mr, 8 * PAGE);
    must_equal(device_free_bytes(device), before - 8 * PAGE);
    must_equal(weir_resource_trim_sync(mr, 0), 0);
    check_stamp(device, NULL, kept, PAGE, 1);

    /* The addresses are used again, and are one with what adjoins. */
    unsigned char *large = take(mr, NULL, 7 * PAGE);
    must(large == kept + PAGE);
    must_hold(mr, 12 * PAGE);
    stamp(device, NULL, large, 7 * PAGE, 2);
    check_stamp(device, NULL, large, 7 * PAGE, 2);
    give(mr, NULL, large, 7 * PAGE);
    give(mr, NULL, kept, PAGE);
    give(mr, NULL, blocks[3], 4 * PAGE);
    must_equal(weir_resource_trim_sync(mr, 0), 12 * PAGE);
    must_hold(mr, 0);
    must_equal(device_free_bytes(device), before);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* It waits for what it unmaps. What lies beside a block that is out, it lets be: were
 * that waited for, the gate would never open. */
static void trim_waits_for_what_it_unmaps_only(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr = make(device, 4 * PAGE);
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream held = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    unsigned char *out = take(mr, held, PAGE), *beside = take(mr, held, 3 * PAGE);
    unsigned char *alone = take(mr, stream, 4 * PAGE);
    must(beside == out + PAGE && alone == out + 4 * PAGE);
    uint64_t gate = raw_stall(device, held);
    stamp(device, held, beside, 3 * PAGE, 1);
    stamp(device, stream, alone, 4 * PAGE, 2);
    give(mr, held, beside, 3 * PAGE);
    give(mr, stream, alone, 4 * PAGE);
    must_equal(weir_resource_trim_sync(mr, 0), 4 * PAGE);
    must_hold(mr, 4 * PAGE);
    must_equal(statistics_of(mr).kept_bytes, 3 * PAGE);
    raw_open_gate(device, gate);
    give(mr, held, out, PAGE);
    must_equal(weir_resource_trim_sync(mr, 0), 4 * PAGE);
    end_stream(device, stream);
    end_stream(device, held);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* What a capture has keeps its chunk until it is released, and is nobody else's. */
static void what_a_capture_has_stays(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr = make(device, 4 * PAGE);
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_capture *capture;
    must_ok(weir_capture_begin(mr, stream, &capture));
    void *inside = take(mr, stream, 4 * PAGE);
    give(mr, stream, inside, 4 * PAGE);
    must_ok(weir_capture_end(capture));
    must_ok(weir_device_sync(device));
    void *other = take(mr, NULL, 4 * PAGE);
    must(other != inside);
    give(mr, NULL, other, 4 * PAGE);
    must_equal(weir_resource_trim_sync(mr, 0), 4 * PAGE);
    must_hold(mr, 4 * PAGE);
    must_ok(weir_capture_release(capture, stream));
    must_equal(weir_resource_trim_sync(mr, 0), 4 * PAGE);
    end_stream(device, stream);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* ---- where there is no more ---- */

static void shortage_gives_back_what_is_free(void **state)
{
    (void)state;
    weir_device *device = open_small(64 * MIB);
    weir_resource *mr = make(device, 16 * MIB), *plain;
    must_ok(weir_resource_open(device, "device", &plain));
    unsigned char *a = take(mr, NULL, 16 * MIB), *b = take(mr, NULL, 16 * MIB);
    void *rest = take(plain, NULL, 20 * MIB);
    unsigned char *c = take(mr, NULL, 11 * MIB); /* no whole chunk is left */
    must_hold(mr, 44 * MIB);
    must_equal(device_free_bytes(device), 0);
    give(mr, NULL, c, 11 * MIB);
    give(mr, NULL, a, 16 * MIB);
    must_ok(weir_device_sync(device));
    /* In no piece of addresses is there room, but in all chunks that are free. */
    unsigned char *d = take(mr, NULL, 28 * MIB);
    must(d == b + 16 * MIB);
    must_hold(mr, 44 * MIB);
    stamp(device, NULL, d, 28 * MIB, 1);
    check_stamp(device, NULL, d, 28 * MIB, 1);

    void *none = device;
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(mr, NULL, PAGE, 256, &none));
    must(none == NULL);
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    must(strcmp(report.resource, "growable") == 0);
    must_equal(report.requested_bytes, PAGE);
    must_equal(report.held_bytes, 44 * MIB);
    must_equal(report.in_use_bytes, 44 * MIB);
    must_answer(WEIR_OUT_OF_MEMORY, extend(mr, b, 16 * MIB, 17 * MIB));
    must_ok(weir_last_out_of_memory(&report));
    must(strcmp(report.resource, "growable") == 0);
    must_equal(report.requested_bytes, 17 * MIB);
    must_equal(report.held_bytes, 44 * MIB);
    must_equal(report.in_use_bytes, 44 * MIB);
    must_equal(report.largest_free_bytes, 0);
    must(strstr(weir_last_error().message, "has room for 0 more") != NULL);
    must_hold(mr, 44 * MIB);
    give(mr, NULL, b, 16 * MIB);
    give(mr, NULL, d, 28 * MIB);
    give(plain, NULL, rest, 20 * MIB);
    weir_resource_unref(plain);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* What is kept is waited for before a request fails. */
static void shortage_waits_for_what_is_kept(void **state)
{
    (void)state;
    weir_device *device = open_small(32 * MIB);
    weir_resource *mr = make(device, 4 * MIB);
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    void *a = take(mr, stream, 12 * MIB), *b = take(mr, stream, 12 * MIB);
    stamp(device, stream, a, 12 * MIB, 1);
    give(mr, stream, a, 12 * MIB);
    void *c = take(mr, NULL, 20 * MIB);
    must_hold(mr, 32 * MIB);
    give(mr, stream, b, 12 * MIB);
    give(mr, NULL, c, 20 * MIB);
    end_stream(device, stream);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* What is free between blocks that are out or kept counts as room, too. */
static void shortage_waits_for_what_joins_free_pages(void **state)
{
    (void)state;
    weir_device *device = open_small(32 * MIB);
    weir_resource *mr = make(device, 32 * MIB);
    unsigned char *a = take(mr, NULL, PAGE), *b = take(mr, NULL, 10 * MIB);
    stamp(device, NULL, b, 10 * MIB, 1);
    check_stamp(device, NULL, b, 10 * MIB, 1);
    give(mr, NULL, b, 10 * MIB);
    unsigned char *c = take(mr, NULL, 30 * MIB); /* b, and all behind it */
    must(c == b);
    must_hold(mr, 32 * MIB);
    stamp(device, NULL, c, 30 * MIB, 2);
    check_stamp(device, NULL, c, 30 * MIB, 2);
    give(mr, NULL, a, PAGE);
    give(mr, NULL, c, 30 * MIB);
    weir_resource_unref(mr);
    close_emulated(device);
}

static void addresses_run_out(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr;
    const weir_growable_options options = { sizeof options, PAGE, 7 * PAGE - 1,
                                            false, true };
    must_ok(weir_growable_create(device, &options, &mr));
    void *none = device;
    void *a = take(mr, NULL, 3 * PAGE), *b = take(mr, NULL, PAGE);
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(mr, NULL, 4 * PAGE, 256, &none));
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(mr, NULL, SIZE_MAX, 256, &none));
    must_answer(WEIR_OUT_OF_MEMORY, extend(mr, b, PAGE, 4 * PAGE + 1));
    must_hold(mr, 4 * PAGE);
    must_ok(extend(mr, b, PAGE, 4 * PAGE));
    must_hold(mr, 7 * PAGE);
    give(mr, NULL, a, 3 * PAGE);
    give(mr, NULL, b, 4 * PAGE);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* A later chunk of one block fails: the ones before it are unmapped again. */
static void failed_growth_leaves_nothing(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr = make(device, 0);
    for (uint64_t nth = 1; nth <= 3; nth++) {
        void *none = device;
        plan_fault(device, "range_map", nth, false, WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR,
                    weir_allocate(mr, NULL, 1100 * MIB, 256, &none));
        must(none == NULL);
        must_hold(mr, 0);
        must_equal(statistics_of(mr).failures, nth);
    }
    plan_fault(device, NULL, 0, false, WEIR_OK);
    void *a = take(mr, NULL, PAGE);
    plan_fault(device, "range_unmap", 1, true, WEIR_DEVICE_ERROR);
    give(mr, NULL, a, PAGE);
    must_equal(weir_resource_trim_sync(mr, 0), 0);
    must_hold(mr, 32 * MIB);
    plan_fault(device, NULL, 0, false, WEIR_OK);
    void *b = take(mr, NULL, 32 * MIB);
    must(b == a);
    stamp(device, NULL, b, 32 * MIB, 1);
    give(mr, NULL, b, 32 * MIB);
    must_equal(weir_resource_trim_sync(mr, 0), 32 * MIB);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* ---- making it ---- */

static void bad_options_are_refused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr = NULL;
    weir_growable_options options = WEIR_GROWABLE_OPTIONS_INIT;
    options.chunk_bytes = WEIR_GROWABLE_CHUNK_MAX + 1;
    must_answer(WEIR_INVALID_ARGUMENT, weir_growable_create(device, &options, &mr));
    must(mr == NULL);
    options.chunk_bytes = 0;
    options.reserve_bytes = SIZE_MAX;
    must_answer(WEIR_OUT_OF_MEMORY, weir_growable_create(device, &options, &mr));
    options.reserve_bytes = SIZE_MAX / 4;
    must(weir_growable_create(device, &options, &mr) != WEIR_OK);
    must(mr == NULL);
    must_answer(WEIR_INVALID_ARGUMENT, weir_growable_create(NULL, NULL, &mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_growable_create(device, NULL, NULL));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_resource_open(device, "growable(chunk=1GiB)", &mr));
    must_ok(weir_resource_open(device, "growable(chunk=3MiB, reserve=7MiB, "
                                       "pages_only=true)", &mr));
    void *a = take(mr, NULL, 1);
    must_hold(mr, 4 * MIB);
    give(mr, NULL, a, 1);
    weir_resource_unref(mr);

    for (uint64_t nth = 1; nth < 20; nth++) {
        weir__host_fail_at(nth, false);
        weir_status status = weir_growable_create(device, NULL, &mr);
        weir__host_fail_at(0, false);
        must(status == WEIR_OK || status == WEIR_OUT_OF_HOST_MEMORY);
        must((mr != NULL) == (status == WEIR_OK));
        if (mr != NULL)
            weir_resource_unref(mr);
        mr = NULL;
    }
    plan_fault(device, "range_reserve", 1, false, WEIR_NOT_SUPPORTED);
    must_answer(WEIR_NOT_SUPPORTED, weir_growable_create(device, NULL, &mr));
    plan_fault(device, NULL, 0, false, WEIR_OK);
    close_emulated(device);
}

/* ---- with a pool above ---- */

/* One chunk of the pool's, which grows; the best fit is found across all of it. */
static void a_pool_grows_in_place(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr;
    must_ok(weir_resource_open(device, "pool/growable(chunk=8MiB)", &mr));
    unsigned char *blocks[10];
    for (size_t i = 0; i < 10; i++) {
        blocks[i] = take(mr, NULL, 7 * MIB);
        must(i == 0 || blocks[i] == blocks[i - 1] + 7 * MIB);
    }
    must(statistics_of(mr).held_bytes <= 80 * MIB);
    for (size_t i = 0; i < 10; i++)
        give(mr, NULL, blocks[i], 7 * MIB);
    void *all = take(mr, NULL, 70 * MIB);
    must(all == blocks[0]);
    must(statistics_of(mr).held_bytes <= 80 * MIB);
    give(mr, NULL, all, 70 * MIB);
    (void)weir_resource_trim_sync(mr, 0);
    must_equal(statistics_of(mr).held_bytes, 0);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* ---- threads ---- */

static void *use(void *argument)
{
    weir_resource *mr = argument;
    weir_device *device = weir_resource_device(mr);
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    uint64_t random = (uintptr_t)&random;
    for (int i = 0; i < 60; i++) {
        size_t bytes = PAGE * support_random_between(&random, 1, 9);
        unsigned char *ptr = take(mr, stream, bytes);
        stamp(device, stream, ptr, bytes, (uint64_t)i);
        check_stamp(device, stream, ptr, bytes, (uint64_t)i);
        if (i % 3 == 0 &&
            weir_resource_extend(mr, stream, ptr, bytes, WEIR_ALIGNMENT,
                                 bytes + PAGE) == WEIR_OK) {
            bytes += PAGE;
            stamp(device, stream, ptr, bytes, (uint64_t)i);
        }
        give(mr, stream, ptr, bytes);
        if (i % 10 == 9)
            (void)weir_resource_trim_sync(mr, 0);
    }
    end_stream(device, stream);
    return NULL;
}

static void threads_share_the_pages(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    weir_device *device = open_threads();
    weir_resource *mr = make(device, 8 * MIB);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, use, mr) == 0);
    for (int i = 0; i < THREADS; i++)
        must(pthread_join(threads[i], NULL) == 0);
    (void)weir_resource_trim_sync(mr, 0);
    must_hold(mr, 0);
    weir_resource_unref(mr);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growth_is_the_shortfall_in_chunks),
        cmocka_unit_test(the_best_fit_is_taken),
        cmocka_unit_test(only_what_is_done_is_reused),
        cmocka_unit_test(blocks_grow_where_they_are),
        cmocka_unit_test(what_is_no_block_does_not_grow),
        cmocka_unit_test(trim_unmaps_chunks_with_nothing_out),
        cmocka_unit_test(trim_waits_for_what_it_unmaps_only),
        cmocka_unit_test(what_a_capture_has_stays),
        cmocka_unit_test(shortage_gives_back_what_is_free),
        cmocka_unit_test(shortage_waits_for_what_is_kept),
        cmocka_unit_test(shortage_waits_for_what_joins_free_pages),
        cmocka_unit_test(addresses_run_out),
        cmocka_unit_test(failed_growth_leaves_nothing),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(a_pool_grows_in_place),
        cmocka_unit_test(threads_share_the_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
