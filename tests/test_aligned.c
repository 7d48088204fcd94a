/* test_aligned.c - every request of the size that is wanted is aligned, however it
 * comes and wherever from, and upstream gets back what it gave. */
#include "support.h"

#include <string.h>

#include "internal.h"
#include "support_roomy.h"
#include "weir/aligned.h"
#include "weir/buffer.h"
#include "weir/leaves.h"
#include "weir/limiting.h"
#include "weir/resource_ops.h"
#include "weir/statistics.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static weir_resource *align(weir_resource *upstream, size_t alignment, size_t threshold)
{
    weir_resource *mr;
    weir_aligned_options options = { sizeof options, alignment, threshold };
    must_ok(weir_aligned_create(upstream, &options, &mr));
    return mr;
}

/* A leaf whose blocks begin 256 bytes behind what it draws, so that no more alignment
 * is there by chance. That it gets back what it gave it sees to itself. */
static weir_status crooked_allocate(void *context, weir_stream stream, size_t bytes,
                                    size_t alignment, void **out)
{
    must(alignment <= WEIR_ALIGNMENT);
    if (bytes > SIZE_MAX - 4096 - 256)
        return weir_resource_refuse(WEIR_OUT_OF_MEMORY, "nobody has that much");
    weir_status status = weir_allocate(context, stream, bytes + 256, 4096, out);
    if (status == WEIR_OK)
        *out = (char *)*out + 256;
    return status;
}

static void crooked_deallocate(void *context, weir_stream stream, void *ptr,
                               size_t bytes, size_t alignment)
{
    must(alignment <= WEIR_ALIGNMENT);
    must(weir_deallocate(context, stream, (char *)ptr - 256, bytes + 256, 4096));
}

static void crooked_destroy(void *context)
{
    weir_resource_unref(context);
}

static weir_resource *crooked_open(weir_device *device)
{
    const weir_callbacks calls = { .struct_size = sizeof calls,
                                   .allocate = crooked_allocate,
                                   .deallocate = crooked_deallocate,
                                   .destroy = crooked_destroy };
    weir_resource *pool, *mr;
    must_ok(weir_resource_open(device, "pool/device", &pool));
    must_ok(weir_callback_create(device, &calls, pool, &mr));
    return mr;
}

static weir_resource *open_over(weir_device *device, const char *upstream)
{
    weir_resource *mr;
    if (upstream == NULL)
        return crooked_open(device);
    must_ok(weir_resource_open(device, upstream, &mr));
    return mr;
}

/* ---- alignment ---- */

/* Ways to give a block back. */
enum { ON_ITS_STREAM, ON_ANOTHER, BEHIND_POINTS, BY_ADDRESS, WAYS };

typedef struct scene {
    weir_device *device;
    weir_resource *mr;
    weir_stream streams[2];
} scene;

static void give_back(scene *s, void *ptr, size_t bytes, size_t alignment, int way)
{
    weir_point point;
    must_ok(weir_stream_wait(s->device, s->streams[1], s->streams[0]));
    switch (way) {
    case ON_ITS_STREAM:
        must(weir_deallocate(s->mr, s->streams[0], ptr, bytes, alignment));
        break;
    case ON_ANOTHER:
        must(weir_deallocate(s->mr, s->streams[1], ptr, bytes, alignment));
        break;
    case BEHIND_POINTS:
        must_ok(weir_point_here(s->device, s->streams[1], &point));
        must(weir_deallocate_after(s->mr, ptr, bytes, alignment, &point, 1));
        break;
    default:
        must(weir_free(s->mr, ptr));
        break;
    }
}

/* Blocks of sizes around the threshold, asked for with each alignment that may be. */
static void check_blocks(scene *s, weir_resource *upstream, size_t alignment,
                         size_t threshold)
{
    const size_t sizes[] = { 1, threshold > 1 ? threshold - 1 : 2,
                             threshold > 0 ? threshold : 3, threshold + 1, 100 * KIB };
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    s->mr = align(upstream, alignment, threshold);
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(s->mr, &properties));
    must(properties.max_alignment >= alignment);
    int turn = 0;
    for (size_t asked = 1; asked <= properties.max_alignment; asked *= 4, turn++) {
        void *ptr[SIZES];
        size_t out_bytes = 0;
        for (size_t i = 0; i < SIZES; i++) {
            must_ok(weir_allocate(s->mr, s->streams[0], sizes[i], asked, &ptr[i]));
            size_t wanted = sizes[i] >= threshold && asked < alignment ? alignment
                                                                       : asked;
            must_equal((uintptr_t)ptr[i] % wanted, 0);
            stamp(s->device, s->streams[0], ptr[i], sizes[i], i + 1);
            out_bytes += sizes[i];
            weir_block found = { .struct_size = sizeof found };
            must_ok(weir_resource_find(s->mr, ptr[i], &found));
            must(found.ptr == ptr[i] && found.bytes == sizes[i]);
            must(found.alignment == asked && found.stream == s->streams[0]);
        }
        must_equal(statistics_of(s->mr).out_bytes, out_bytes);
        must_equal(statistics_of(s->mr).out_blocks, SIZES);
        for (size_t i = 0; i < SIZES; i++) {
            check_stamp(s->device, s->streams[0], ptr[i], sizes[i], i + 1);
            give_back(s, ptr[i], sizes[i], asked, (int)(i + (size_t)turn) % WAYS);
        }
        must_equal(statistics_of(s->mr).out_bytes, 0);
        must_equal(statistics_of(upstream).out_blocks, 0);
        must_equal(statistics_of(upstream).out_bytes, 0);
    }
    weir_resource_unref(s->mr);
}

static void every_request_from_the_threshold_is_aligned(void **state)
{
    (void)state;
    static const char *const upstreams[] = { NULL, "device", "pinned", "pool/device",
                                             "async", "shareable" };
    const size_t alignments[] = { 64, 512, 4096, 64 * KIB, 4 * MIB };
    scene s = { .device = open_stepped(support_seed(1)) };
    for (size_t i = 0; i < 2; i++)
        s.streams[i] = make_stream(s.device, WEIR_STREAM_NON_BLOCKING);
    for (size_t i = 0; i < sizeof upstreams / sizeof upstreams[0]; i++) {
        weir_resource *upstream = open_over(s.device, upstreams[i]);
        for (size_t j = 0; j < sizeof alignments / sizeof alignments[0]; j++) {
            check_blocks(&s, upstream, alignments[j], 0);
            check_blocks(&s, upstream, alignments[j], 5000);
        }
        weir_resource_unref(upstream);
    }
    for (size_t i = 0; i < 2; i++)
        end_stream(s.device, s.streams[i]);
    close_emulated(s.device);
}

/* Each way in which a buffer comes to new memory. */
static void buffers_are_aligned_wherever_they_grow(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(2));
    weir_resource *upstream = crooked_open(device), *mr = align(upstream, 64 * KIB, 0);
    weir_buffer buffer, copy;
    must_ok(weir_buffer_allocate(mr, NULL, 1000, 8, &buffer));
    must_equal((uintptr_t)buffer.data % (64 * KIB), 0);
    must_ok(weir_buffer_resize(&buffer, 200000, NULL));
    must_equal((uintptr_t)buffer.data % (64 * KIB), 0);
    must_ok(weir_buffer_reserve(&buffer, 900000, NULL));
    must_equal((uintptr_t)buffer.data % (64 * KIB), 0);
    must_ok(weir_buffer_shrink(&buffer, NULL));
    must_equal((uintptr_t)buffer.data % (64 * KIB), 0);
    must_ok(weir_buffer_copy(&buffer, NULL, NULL, &copy));
    must_equal((uintptr_t)copy.data % (64 * KIB), 0);
    weir_buffer_reset(&copy);
    weir_buffer_reset(&buffer);
    must_equal(statistics_of(upstream).out_blocks, 0);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    close_emulated(device);
}

/* ---- what does not change passes through ---- */

static void requests_that_need_nothing_cost_nothing(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(3));
    weir_resource *upstream, *mr;
    must_ok(weir_resource_open(device, "pool/device", &upstream));
    mr = align(upstream, 512, 5000);
    void *first = NULL;
    for (int i = 0; i < 2; i++) { /* all there is to make is made */
        first = take(mr, NULL, 4999);
        give(mr, NULL, first, 4999);
    }
    uint64_t calls = weir__host_calls();
    first = take(mr, NULL, 4999);
    must_equal(weir__host_calls(), calls); /* a hit, without a record */
    weir_block below = { .struct_size = sizeof below };
    must_ok(weir_resource_find(upstream, first, &below));
    must(below.bytes == 4999 && below.alignment == WEIR_ALIGNMENT);

    /* What upstream can align, it does: no byte more. */
    void *second = take(mr, NULL, 5000);
    must_ok(weir_resource_find(upstream, second, &below));
    must(below.bytes == 5000 && below.alignment == 512);
    give(mr, NULL, first, 4999);
    give(mr, NULL, second, 5000);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    close_emulated(device);
}

static void misuse_is_found_across_the_threshold(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(4));
    weir_resource *upstream = crooked_open(device), *mr = align(upstream, 4096, 5000);
    void *small, *large;
    misuse_log log;
    must_ok(weir_allocate(mr, NULL, 100, 8, &small));
    must_ok(weir_allocate(mr, NULL, 6000, 8, &large));
    const struct {
        void *ptr;
        size_t bytes, alignment;
    } wrong[] = {
        { small, 6000, 8 }, { small, 101, 8 },   { small, 100, 16 },
        { small, 100, 512 }, { large, 100, 8 },  { large, 6001, 8 },
        { large, 6000, 16 }, { large, 6000, 4096 }, { large, 6000 + 4096 - 256, 256 },
    };
    misuse_begin(&log);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        must(!weir_deallocate(mr, NULL, wrong[i].ptr, wrong[i].bytes,
                              wrong[i].alignment));
        must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, wrong[i].ptr);
        must(!weir_deallocate_after(mr, wrong[i].ptr, wrong[i].bytes,
                                    wrong[i].alignment, NULL, 0));
        must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, wrong[i].ptr);
    }
    must_equal(statistics_of(mr).out_bytes, 6100);
    must(weir_deallocate(mr, NULL, large, 6000, 8));
    must(!weir_deallocate(mr, NULL, large, 6000, 8));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, large);
    must(!weir_free(mr, large));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, large);
    misuse_end();
    must(weir_free(mr, small));
    must_equal(statistics_of(upstream).out_blocks, 0);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    close_emulated(device);
}

/* Upstream knows of a block there, and whoever holds that has another address of it. */
static void what_upstream_gave_is_no_block(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(11));
    weir_resource *upstream = crooked_open(device), *mr = align(upstream, 4096, 0);
    weir_block found = { .struct_size = sizeof found };
    void *ptr = take(mr, NULL, 1000), *below = (char *)ptr - 4096 + 256;
    misuse_log log;
    must_ok(weir_resource_find(upstream, below, &found));
    for (int i = 0; i < 2; i++) { /* nothing has changed */
        must_answer(WEIR_NOT_FOUND, weir_resource_find(mr, below, &found));
        misuse_begin(&log);
        must(!weir_free(mr, below));
        must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, below);
        must(!weir_deallocate(mr, NULL, below, 1000 + 4096 - 256, 256));
        must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, below);
        must(!weir_deallocate(mr, NULL, ptr, 1001, WEIR_ALIGNMENT));
        must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, ptr);
        misuse_end();
    }
    give(mr, NULL, ptr, 1000);
    must_ok(weir_allocate(upstream, NULL, 1000, 256, &ptr)); /* it is free again */
    must(ptr == below);
    give(upstream, NULL, ptr, 1000);

    ptr = take(mr, NULL, 1000);
    below = (char *)ptr - 4096 + 256;
    void *again; /* also where upstream refused it, for it has it back already */
    must(weir_deallocate(upstream, NULL, below, 1000 + 4096 - 256, 256));
    misuse_begin(&log);
    must(!weir_deallocate(mr, NULL, ptr, 1000, WEIR_ALIGNMENT));
    misuse_end();
    must_ok(weir_allocate(upstream, NULL, 1000 + 4096 - 256, 256, &again));
    must(again == below);
    must_answer(WEIR_NOT_FOUND, weir_resource_find(mr, below, &found));
    give(mr, NULL, ptr, 1000);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    close_emulated(device);
}

/* Upstream says that it has the block back already: it stays out here. */
static void block_that_upstream_refuses_stays_out(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(5));
    weir_resource *upstream, *mr;
    must_ok(weir_resource_open(device, "pool(cache=none)/device", &upstream));
    mr = align(upstream, 4096, 0);
    void *ptr = take(mr, NULL, 1000);
    must(weir_deallocate(upstream, NULL, ptr, 1000, 4096)); /* behind its back */
    misuse_log log;
    misuse_begin(&log);
    must(!weir_deallocate(mr, NULL, ptr, 1000, WEIR_ALIGNMENT));
    must(!weir_deallocate_after(mr, ptr, 1000, WEIR_ALIGNMENT, NULL, 0));
    must_equal(log.count, 2);
    misuse_end();
    void *again;
    must_ok(weir_allocate(upstream, NULL, 1000, 4096, &again));
    must(again == ptr);
    give(mr, NULL, ptr, 1000);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    close_emulated(device);
}

/* ---- refusals ---- */

static void sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(6));
    weir_resource *upstream = crooked_open(device), *mr = align(upstream, MIB, 5000);
    const size_t sizes[] = { SIZE_MAX, SIZE_MAX - MIB + 256 + 1 };
    for (size_t i = 0; i < 2; i++) {
        void *ptr = &mr;
        must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(mr, NULL, sizes[i], 8, &ptr));
        must(ptr == NULL);
        weir_out_of_memory report = { .struct_size = sizeof report };
        must_ok(weir_last_out_of_memory(&report));
        must_equal(report.requested_bytes, sizes[i]);
        assert_string_equal(report.resource, "aligned");
    }
    /* One byte less is upstream's to refuse. */
    void *ptr = &mr;
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(mr, NULL, SIZE_MAX - MIB + 256, 8, &ptr));
    must(strstr(weir_last_error().message, "nobody has that much") != NULL);
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(mr, NULL, 8, 2 * MIB, &ptr));
    must_equal(statistics_of(mr).out_blocks, 0);
    must_equal(statistics_of(mr).out_bytes, 0);
    must_equal(statistics_of(mr).failures, 3); /* what is not asked is none */
    must_equal(statistics_of(upstream).failures, 1);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    close_emulated(device);
}

/* Upstream was asked for more than the program asks for. */
static void refusal_says_what_was_asked_for(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(12));
    weir_out_of_memory report = { .struct_size = sizeof report };
    weir_resource *mr;
    void *none;
    must_ok(weir_resource_open(device, "aligned(1MiB)/limiting(2MiB)/device", &mr));
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(mr, NULL, 1500 * KIB, WEIR_ALIGNMENT, &none));
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.requested_bytes, 1500 * KIB);
    must_equal(report.limit_bytes, 2 * MIB);
    must_equal(report.largest_free_bytes, MIB + WEIR_ALIGNMENT);
    assert_string_equal(report.resource, "aligned");
    must(strstr(weir_last_error().message, "aligned has no 1536000 bytes") != NULL);
    weir_resource_unref(mr);
    close_emulated(device);
}

static void blocks_are_extended_where_alignment_allows(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(7));
    weir_resource *pool;
    roomy room;
    must_ok(weir_resource_open(device, "pool/device", &pool));
    weir_resource *upstream = roomy_open(&room, pool, 32 * KIB);
    weir_resource *mr = align(upstream, 4096, 5000);
    void *large = take(mr, NULL, 6000), *small = take(mr, NULL, 100);
    must_equal((uintptr_t)large % 4096, 0);
    must_ok(weir_resource_extend(mr, NULL, large, 6000, WEIR_ALIGNMENT, 20000));
    must_equal(room.out_bytes, 20000 + 4096 - 256 + 100);
    must_equal(statistics_of(mr).out_bytes, 20100);
    must_answer(WEIR_OUT_OF_MEMORY, weir_resource_extend(mr, NULL, large, 20000,
                                                         WEIR_ALIGNMENT, 32 * KIB));
    must_answer(WEIR_OUT_OF_MEMORY, weir_resource_extend(mr, NULL, large, 20000,
                                                         WEIR_ALIGNMENT, SIZE_MAX));
    must_answer(WEIR_INVALID_ARGUMENT, weir_resource_extend(mr, NULL, large, 6000,
                                                            WEIR_ALIGNMENT, 21000));

    give(mr, NULL, small, 100);
    give(mr, NULL, large, 20000);
    must_equal(room.out_bytes + room.out_blocks, 0);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);

    /* Past the threshold, from each start that a block can have. */
    enum { COUNT = 32 };
    void *out[COUNT];
    size_t bytes[COUNT], granted = 0;
    upstream = roomy_open(&room, pool, 32 * KIB + 256);
    mr = align(upstream, 1024, 5000);
    for (size_t i = 0; i < COUNT; i++) {
        out[i] = take(mr, NULL, 100);
        bool fits = (uintptr_t)out[i] % 1024 == 0;
        must_ok(weir_resource_extend(mr, NULL, out[i], 100, WEIR_ALIGNMENT, 4999));
        must_answer(fits ? WEIR_OK : WEIR_NOT_SUPPORTED,
                    weir_resource_extend(mr, NULL, out[i], 4999, WEIR_ALIGNMENT, 5000));
        bytes[i] = fits ? 5000 : 4999;
        granted += fits;
    }
    must(granted > 0 && granted < COUNT);
    for (size_t i = 0; i < COUNT; i++)
        give(mr, NULL, out[i], bytes[i]);
    must_equal(room.out_bytes + room.out_blocks, 0);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    weir_resource_unref(pool);
    close_emulated(device);
}

static void properties_tell_what_over_allocation_changes(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(8));
    weir_resource *upstream, *mr;
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_open(device, "shareable", &upstream));
    mr = align(upstream, 2 * MIB, 0);
    must_ok(weir_resource_get_properties(mr, &properties));
    must_equal(properties.share_kind, WEIR_SHARE_FD); /* blocks are whole objects */
    must_equal(properties.max_alignment, 2 * MIB);
    must(properties.can_find && properties.can_trim && !properties.can_extend);
    assert_string_equal(properties.name, "aligned");
    assert_string_equal(properties.leaf, "shareable");
    weir_resource_unref(mr);
    mr = align(upstream, 4 * MIB, 0);
    must_ok(weir_resource_get_properties(mr, &properties));
    must_equal(properties.share_kind, WEIR_SHARE_NONE);
    must_equal(properties.max_alignment, 4 * MIB);
    weir_aligned_options options = { .struct_size = sizeof options };
    must_ok(weir_aligned_get_options(mr, &options));
    must(options.alignment == 4 * MIB && options.threshold_bytes == 0);
    weir_resource_unref(mr);
    must_ok(weir_aligned_create(upstream, NULL, &mr));
    must_ok(weir_aligned_get_options(mr, &options));
    must(options.alignment == WEIR_ALIGNMENT && options.threshold_bytes == 0);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    close_emulated(device);
}

/* ---- many threads ---- */

#define THREADS 3
#define HELD    6

typedef struct worker {
    weir_device *device;
    weir_resource *mr;
    uint64_t random;
    int steps;
} worker;

static void take_and_give(void *argument)
{
    worker *self = argument;
    void *ptr[HELD] = { NULL };
    size_t bytes[HELD] = { 0 };
    const weir_stream stream = WEIR_STREAM_PER_THREAD;
    for (int i = 0; i < self->steps + HELD; i++) {
        size_t slot = i < self->steps
                          ? (size_t)support_random_below(&self->random, HELD)
                          : (size_t)(i - self->steps);
        if (ptr[slot] != NULL) {
            check_stamp(self->device, stream, ptr[slot], bytes[slot], slot);
            give(self->mr, stream, ptr[slot], bytes[slot]);
            ptr[slot] = NULL;
        } else if (i < self->steps) {
            bytes[slot] = (size_t)support_random_between(&self->random, 1, 10000);
            ptr[slot] = take(self->mr, stream, bytes[slot]);
            must(bytes[slot] < 5000 || (uintptr_t)ptr[slot] % 4096 == 0);
            stamp(self->device, stream, ptr[slot], bytes[slot], slot);
        }
    }
}

static void run_workers(weir_device *device, uint64_t seed, int steps)
{
    weir_resource *leaf, *upstream, *mr;
    must_ok(weir_device_resource_create(device, &leaf));
    must_ok(weir_statistics_create(leaf, &upstream));
    mr = align(upstream, 4096, 5000);
    worker workers[THREADS];
    void *arguments[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){ device, mr, seed * THREADS + i, steps };
        arguments[i] = &workers[i];
    }
    must_ok(support_run_threads(device, THREADS, take_and_give, arguments));
    must_equal(statistics_of(upstream).out_bytes, 0);
    must_equal(statistics_of(mr).out_bytes, 0);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    weir_resource_unref(leaf);
}

static void threads_get_what_is_theirs(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("seeds of threads that align", 20, 500);
    for (uint64_t i = 0; i < seeds; i++) {
        uint64_t seed = support_seed(i);
        weir_device *device = open_stepped(seed);
        run_workers(device, seed, 30);
        close_emulated(device);
    }
    weir_device *device = open_threads();
    run_workers(device, 1,
                (int)support_bound("rounds of threads that align", 300, 5000));
    close_emulated(device);
}

/* ---- making ---- */

static void create_refuses_and_fails_well(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(9));
    weir_resource *leaf, *mr = NULL;
    weir_aligned_options options = WEIR_ALIGNED_OPTIONS_INIT;
    must_ok(weir_device_resource_create(device, &leaf));
    must_answer(WEIR_INVALID_ARGUMENT, weir_aligned_create(NULL, NULL, &mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_aligned_create(leaf, NULL, NULL));
    options.alignment = 768;
    must_answer(WEIR_INVALID_ARGUMENT, weir_aligned_create(leaf, &options, &mr));
    options.struct_size = 1;
    must_answer(WEIR_INVALID_ARGUMENT, weir_aligned_create(leaf, &options, &mr));
    must(mr == NULL);
    options.struct_size = sizeof options;
    must_answer(WEIR_INVALID_ARGUMENT, weir_aligned_get_options(leaf, &options));
    must_answer(WEIR_INVALID_ARGUMENT, weir_aligned_get_options(NULL, &options));
    must_answer(WEIR_INVALID_ARGUMENT, weir_aligned_get_options(leaf, NULL));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_resource_open(device, "aligned(100)/device", &mr));
    must(strstr(weir_last_error().message, "100 is no power of two") != NULL);

    uint64_t failing;
    for (failing = 1; mr == NULL; failing++) {
        size_t live = weir__host_live();
        weir__host_fail_at(failing, false);
        weir_status status = weir_aligned_create(leaf, NULL, &mr);
        weir__host_fail_at(0, false);
        if (status != WEIR_OK) {
            must_answer(WEIR_OUT_OF_HOST_MEMORY, status);
            must_equal(weir__host_live(), live);
        }
    }
    must_equal(failing - 1, 5); /* four fail in turn, then none */
    weir_resource_unref(mr);
    weir_resource_unref(leaf);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_from_the_threshold_is_aligned),
        cmocka_unit_test(buffers_are_aligned_wherever_they_grow),
        cmocka_unit_test(requests_that_need_nothing_cost_nothing),
        cmocka_unit_test(misuse_is_found_across_the_threshold),
        cmocka_unit_test(what_upstream_gave_is_no_block),
        cmocka_unit_test(block_that_upstream_refuses_stays_out),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(refusal_says_what_was_asked_for),
        cmocka_unit_test(blocks_are_extended_where_alignment_allows),
        cmocka_unit_test(properties_tell_what_over_allocation_changes),
        cmocka_unit_test(threads_get_what_is_theirs),
        cmocka_unit_test(create_refuses_and_fails_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
