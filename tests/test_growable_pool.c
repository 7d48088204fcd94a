/* test_growable_pool.c - a growable as it comes: a pool cuts its pages into small
 * blocks, and passes on what is to be aligned to pages, which has them to itself. */
#include <string.h>

#include "support.h"
#include "support_work.h"
#include "weir/buffer.h"
#include "weir/growable.h"
#include "weir/pool.h"
#include "weir/resource_ops.h"

#define MIB  ((size_t)1 << 20)
#define PAGE WEIR_GROWABLE_PAGE_BYTES

typedef struct scene {
    weir_device *device;
    weir_resource *mr;
    weir_stream a, b;
    size_t before; /* bytes of the device that were free */
} scene;

static scene begin_with(const char *spec, size_t memory_bytes, uint64_t seed)
{
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.memory_bytes = memory_bytes;
    emulated.seed = seed;
    options.emulated = &emulated;
    scene it = { .device = open_with("emulated:0", &options) };
    it.before = device_free_bytes(it.device);
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.b = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_resource_open(it.device, spec, &it.mr));
    return it;
}

static scene begin(const char *spec, size_t memory_bytes)
{
    return begin_with(spec, memory_bytes, 0);
}

static void end(scene *it)
{
    if (it->mr != NULL) {
        weir_resource_statistics now = statistics_of(it->mr);
        must_equal(now.out_blocks, 0);
        must_equal(now.out_bytes, 0);
        must_equal(now.allocations, now.deallocations);
        weir_resource_unref(it->mr);
    }
    end_stream(it->device, it->a);
    end_stream(it->device, it->b);
    must_equal(device_free_bytes(it->device), it->before);
    close_emulated(it->device);
}

static size_t mapped_bytes(const scene *it)
{
    return it->before - device_free_bytes(it->device);
}

/* Of a stream or the host. */
static uint64_t waits_of(const scene *it)
{
    weir_device_calls calls = calls_of(it->device);
    return calls.stream_wait_event + calls.event_sync + calls.stream_sync;
}

static void *take_pages(weir_resource *mr, weir_stream stream, size_t bytes)
{
    void *ptr;
    must_ok(weir_allocate(mr, stream, bytes, PAGE, &ptr));
    must_equal((uintptr_t)ptr % PAGE, 0);
    return ptr;
}

static void give_pages(weir_resource *mr, weir_stream stream, void *ptr, size_t bytes)
{
    must(weir_deallocate(mr, stream, ptr, bytes, PAGE));
}

/* ---- what is cut ---- */

static void small_blocks_share_pages(void **state)
{
    (void)state;
    enum { BLOCKS = 1000 };
    scene it = begin("growable(chunk=2MiB)", 256 * MIB);
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = take(it.mr, it.a, 1024);
    must_equal(mapped_bytes(&it), PAGE);
    must_equal(statistics_of(it.mr).held_bytes, PAGE);
    /* What work still uses serves its stream again, and nothing more is mapped. */
    for (int i = 0; i < BLOCKS; i++)
        stamp(it.device, it.a, blocks[i], 1024, (uint64_t)i + 1);
    for (int i = 0; i < BLOCKS; i++)
        give(it.mr, it.a, blocks[i], 1024);
    uint64_t waits = waits_of(&it);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = take(it.mr, it.a, 1024);
    must_equal(waits_of(&it), waits);
    must_equal(mapped_bytes(&it), PAGE);
    for (int i = 0; i < BLOCKS; i++)
        give(it.mr, it.a, blocks[i], 1024);
    end(&it);
}

/* Nor has a limited pool anything from below that it does not count. */
static void a_limit_is_on_all_that_a_pool_has(void **state)
{
    (void)state;
    scene it = begin("pool(limit=4MiB)/growable(chunk=2MiB)", 256 * MIB);
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(it.mr, &properties));
    must(!properties.can_extend && properties.cut_bytes == 0);
    must(!properties.usable_at_once && !properties.pages_usable_at_once);
    void *a = take_pages(it.mr, it.a, PAGE), *none = it.device;
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(it.mr, it.a, 2 * PAGE, PAGE, &none));
    must(none == NULL);
    give_pages(it.mr, it.a, a, PAGE);
    end(&it);
}

/* And what lies free between what is out makes way for what is larger. */
static void below_a_limit_what_is_free_makes_way(void **state)
{
    (void)state;
    scene it = begin("pool(limit=8MiB)/growable(chunk=2MiB)", 256 * MIB);
    void *ptrs[4], *none = it.device;
    for (int i = 0; i < 4; i++)
        ptrs[i] = take(it.mr, it.a, PAGE);
    for (int i = 0; i < 4; i += 2)
        give(it.mr, it.a, ptrs[i], PAGE);
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(it.mr, it.a, 3 * PAGE, WEIR_ALIGNMENT, &none));
    void *large = take(it.mr, it.a, 2 * PAGE);
    must_equal(statistics_of(it.mr).held_bytes, 4 * PAGE);
    give(it.mr, it.a, large, 2 * PAGE);
    for (int i = 1; i < 4; i += 2)
        give(it.mr, it.a, ptrs[i], PAGE);
    end(&it);
}

/* ---- what is passed on ---- */

static void what_is_aligned_has_pages_to_itself(void **state)
{
    (void)state;
    scene it = begin("growable(chunk=2MiB)", 256 * MIB);
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(it.mr, &properties));
    must(properties.can_extend && properties.can_find && properties.can_trim);
    must(!properties.usable_at_once && properties.pages_usable_at_once);
    must_equal(properties.cut_bytes, PAGE);
    must_equal(properties.max_alignment, PAGE);

    unsigned char *small = take(it.mr, it.a, 1000);
    unsigned char *large = take_pages(it.mr, it.a, 3 * PAGE);
    must_equal(mapped_bytes(&it), 4 * PAGE);
    must_ok(weir_resource_extend(it.mr, it.a, large, 3 * PAGE, PAGE, 5 * PAGE));
    must_equal(mapped_bytes(&it), 6 * PAGE);
    weir_resource_statistics now = statistics_of(it.mr);
    must_equal(now.out_blocks, 2);
    must_equal(now.out_bytes, 5 * PAGE + 1000);
    must_equal(now.peak_out_bytes, now.out_bytes);
    must_equal(now.held_bytes, 6 * PAGE);
    must_equal(now.peak_held_bytes, 6 * PAGE);

    size_t from = 3 * PAGE, to = 5 * PAGE; /* what was added is a chunk */
    must_ok(weir_resource_cut(it.mr, large, 5 * PAGE, PAGE, PAGE, &from, &to));
    must(from == 3 * PAGE && to == 5 * PAGE);
    now = statistics_of(it.mr);
    must_equal(now.out_blocks, 3);
    must_equal(now.out_bytes, 5 * PAGE + 1000);
    must_equal(now.allocations, 3);
    unsigned char *rest = large + 3 * PAGE;
    weir_block found = { .struct_size = sizeof found };
    must_ok(weir_resource_find(it.mr, rest, &found));
    must(found.ptr == rest && found.bytes == 2 * PAGE && found.alignment == PAGE);
    must_ok(weir_resource_find(it.mr, small, &found));
    must(found.ptr == small && found.bytes == 1000);
    must_answer(WEIR_NOT_FOUND, weir_resource_find(it.mr, small + 256, &found));
    must_answer(WEIR_NOT_FOUND, weir_resource_find(it.mr, large + 256, &found));

    must(weir_free(it.mr, large));
    weir_point here;
    must_ok(weir_point_here(it.device, it.b, &here));
    must(weir_deallocate_after(it.mr, rest, 2 * PAGE, PAGE, &here, 1));
    give(it.mr, it.a, small, 1000);
    must_equal(weir_resource_trim_sync(it.mr, 0), PAGE);
    must_equal(mapped_bytes(&it), 0);
    end(&it);
}

static void what_is_cut_neither_grows_nor_goes_in_parts(void **state)
{
    (void)state;
    scene it = begin("growable(chunk=2MiB)", 256 * MIB);
    void *x = take(it.mr, it.a, 3 * PAGE);
    size_t from = 0, to = PAGE;
    must_answer(WEIR_NOT_SUPPORTED, weir_resource_extend(it.mr, it.a, x, 3 * PAGE,
                                                         WEIR_ALIGNMENT, 4 * PAGE));
    must_answer(WEIR_NOT_SUPPORTED, weir_resource_cut(it.mr, x, 3 * PAGE,
                                                      WEIR_ALIGNMENT, 1, &from, &to));
    must(from == 0 && to == PAGE);
    give(it.mr, it.a, x, 3 * PAGE);
    end(&it);
}

static void misuse_of_either_is_told(void **state)
{
    (void)state;
    scene it = begin("growable(chunk=2MiB)", 256 * MIB);
    unsigned char *small = take(it.mr, it.a, 1000);
    unsigned char *large = take_pages(it.mr, it.a, PAGE);
    misuse_log log;
    misuse_begin(&log);
    must(!weir_deallocate(it.mr, it.a, large, PAGE, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, large);
    must(!weir_deallocate(it.mr, it.a, large, PAGE - 1, PAGE));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, large);
    must(!weir_deallocate(it.mr, it.a, large + 256, PAGE, PAGE));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, large + 256);
    must(!weir_deallocate(it.mr, it.a, &it, PAGE, PAGE));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, &it);
    /* Where the pool's own pages begin, though the leaf below has a block there. */
    must(!weir_deallocate(it.mr, it.a, small, PAGE, PAGE));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, small);
    give(it.mr, it.a, small, 1000);
    must(!weir_deallocate(it.mr, it.a, small, PAGE, PAGE));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, small);
    give_pages(it.mr, it.a, large, PAGE);
    must(!weir_deallocate_after(it.mr, large, PAGE, PAGE, NULL, 0));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, large);
    misuse_end();
    end(&it);
}

static void must_be_nothing_of_its(weir_resource *pool, weir_stream stream, void *ptr,
                                   size_t bytes, size_t alignment)
{
    misuse_log log;
    weir_block found = { .struct_size = sizeof found };
    size_t from = 0, to = bytes;
    const weir_resource_statistics before = statistics_of(pool);
    misuse_begin(&log);
    must(!weir_deallocate(pool, stream, ptr, bytes, alignment));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, ptr);
    must(!weir_deallocate_after(pool, ptr, bytes, alignment, NULL, 0));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, ptr);
    misuse_end();
    must_answer(WEIR_NOT_FOUND, weir_resource_find(pool, ptr, &found));
    must_answer(WEIR_NOT_SUPPORTED, weir_resource_extend(pool, stream, ptr, bytes,
                                                         alignment, bytes + PAGE));
    must_answer(WEIR_NOT_SUPPORTED,
                weir_resource_cut(pool, ptr, bytes, alignment, 1, &from, &to));
    const weir_resource_statistics after = statistics_of(pool);
    must_equal(after.out_blocks, before.out_blocks);
    must_equal(after.out_bytes, before.out_bytes);
}

/* They are upstream's, which answers for them and would take them back. */
static void what_others_have_below_is_not_taken(void **state)
{
    (void)state;
    scene it = begin("growable(chunk=2MiB)", 256 * MIB);
    weir_resource *above;
    must_ok(weir_pool_create(it.mr, NULL, &above));
    void *small = take(it.mr, it.a, 1000);
    void *large = take_pages(it.mr, it.a, 2 * PAGE);
    must_be_nothing_of_its(above, it.a, small, 1000, WEIR_ALIGNMENT);
    must_be_nothing_of_its(above, it.a, large, 2 * PAGE, PAGE);
    void *passed = take_pages(above, it.a, PAGE);
    must_be_nothing_of_its(above, it.a, small, 1000, WEIR_ALIGNMENT);
    must_be_nothing_of_its(above, it.a, large, 2 * PAGE, PAGE);
    give_pages(above, it.a, passed, PAGE);
    give(it.mr, it.a, small, 1000);
    give_pages(it.mr, it.a, large, 2 * PAGE);
    weir_resource_unref(above);
    end(&it);
}

/* ---- both ---- */

/* Free memory of the pool makes way for pages, also behind work that is not done. */
static void make_pages_of_what_lies_free(const char *spec, size_t memory_bytes,
                                         weir_status refusal)
{
    scene it = begin(spec, memory_bytes);
    void *small = take(it.mr, it.a, 1000), *more = take(it.mr, it.a, 5 * PAGE);
    stamp(it.device, it.a, more, 5 * PAGE, 1);
    give(it.mr, it.a, more, 5 * PAGE);
    void *large = take_pages(it.mr, it.b, 7 * PAGE);
    stamp(it.device, it.b, large, 7 * PAGE, 2);
    check_stamp(it.device, it.b, large, 7 * PAGE, 2);
    void *none = it.device;
    must_answer(refusal, weir_allocate(it.mr, it.a, PAGE, PAGE, &none));
    must(none == NULL);
    must_equal(statistics_of(it.mr).failures, 1);
    must_answer(refusal, weir_allocate(it.mr, it.a, 2 * PAGE, 256, &none));
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.held_bytes, 8 * PAGE);
    give_pages(it.mr, it.b, large, 7 * PAGE);
    give(it.mr, it.a, small, 1000);
    end(&it);
}

static void pages_are_made_of_what_lies_free(void **state)
{
    (void)state;
    make_pages_of_what_lies_free("growable(chunk=2MiB)", 16 * MIB, WEIR_OUT_OF_MEMORY);
    make_pages_of_what_lies_free("pool/limiting(16MiB)/growable(chunk=2MiB)", 256 * MIB,
                                 WEIR_LIMIT_REACHED);
}

static void pages_are_made_of_what_threads_keep(void **state)
{
    (void)state;
    scene it = begin("growable(chunk=2MiB)", 16 * MIB);
    give(it.mr, it.a, take(it.mr, it.a, 1000), 1000);
    must_equal(mapped_bytes(&it), PAGE);
    void *all = take_pages(it.mr, it.b, 8 * PAGE);
    give_pages(it.mr, it.b, all, 8 * PAGE);
    end(&it);
}

typedef struct taker {
    weir_resource *mr;
    weir_stream stream;
} taker;

static void take_three_pages(void *argument)
{
    const taker *it = argument;
    void *pages = take_pages(it->mr, it->stream, 3 * PAGE);
    give_pages(it->mr, it->stream, pages, 3 * PAGE);
}

/* Of two that both find no room, one has given all there was upstream: for both. */
static void two_use_the_way_that_one_has_made(void **state)
{
    (void)state;
    const uint64_t seeds = support_bound("seeds of two in need", 600, 6000);
    for (uint64_t seed = 0; seed < seeds; seed++) {
        scene it = begin_with("growable(chunk=2MiB)", 12 * MIB, support_seed(seed));
        taker takers[2] = { { it.mr, it.a }, { it.mr, it.b } };
        void *const arguments[2] = { &takers[0], &takers[1] };
        give(it.mr, it.a, take(it.mr, it.a, 6 * PAGE), 6 * PAGE);
        must_equal(mapped_bytes(&it), 6 * PAGE);
        must_ok(weir_emulated_run_threads(it.device, 2, take_three_pages, arguments));
        end(&it);
    }
}

/* A pool that grows in place takes back from threads what they keep rather; but not
 * while it holds less than its slack. */
static void what_threads_keep_is_used_before_it_grows(void **state)
{
    (void)state;
    enum { KEPT = 1024 };
    for (int grows = 0; grows < 2; grows++) {
        scene it = begin(grows ? "pool(slack=8MiB, cache=8MiB)/growable(chunk=2MiB)"
                               : "pool(slack=1MiB, cache=8MiB)/growable(chunk=2MiB)",
                         256 * MIB);
        for (int turn = 0; turn < 2; turn++) { /* has its bin from the second on */
            void *x = take(it.mr, it.a, KEPT), *rest = take(it.mr, it.a, PAGE - KEPT);
            give(it.mr, it.a, x, KEPT);
            give(it.mr, it.a, rest, PAGE - KEPT);
        }
        weir_resource_statistics now = statistics_of(it.mr);
        must(now.free_blocks == 2 && now.free_bytes == PAGE); /* one of them is kept */
        give(it.mr, it.a, take(it.mr, it.a, PAGE), PAGE);
        must_equal(mapped_bytes(&it), grows ? 2 * PAGE : PAGE);
        end(&it);
    }
}

/* What is to be kept counts what was passed on. */
static void trim_keeps_what_it_is_told_to(void **state)
{
    (void)state;
    scene it = begin("growable(chunk=2MiB)", 256 * MIB);
    void *x = take(it.mr, it.a, 2 * PAGE), *y = take(it.mr, it.a, 2 * PAGE);
    void *large = take_pages(it.mr, it.a, 2 * PAGE);
    give(it.mr, it.a, y, 2 * PAGE);
    must_equal(weir_resource_trim_sync(it.mr, 6 * PAGE), 0);
    must_equal(mapped_bytes(&it), 6 * PAGE);
    must_equal(weir_resource_trim_sync(it.mr, 5 * PAGE), 2 * PAGE);
    must_equal(mapped_bytes(&it), 4 * PAGE);
    give(it.mr, it.a, x, 2 * PAGE);
    give_pages(it.mr, it.a, large, 2 * PAGE);
    end(&it);
}

/* Whichever of its blocks is the last to come back. */
static void it_ends_with_its_last_block(void **state)
{
    (void)state;
    for (int order = 0; order < 3; order++) {
        scene it = begin("growable(chunk=2MiB)", 256 * MIB);
        weir_resource *mr = it.mr;
        void *small = order < 2 ? take(mr, it.a, 1000) : NULL;
        void *large = take_pages(mr, it.a, PAGE);
        weir_resource_unref(mr);
        it.mr = NULL;
        if (order == 0)
            give(mr, it.a, small, 1000);
        must(mapped_bytes(&it) >= PAGE);
        weir_point here;
        must_ok(weir_point_here(it.device, it.a, &here));
        if (order == 2)
            must(weir_deallocate_after(mr, large, PAGE, PAGE, &here, 1));
        else
            give_pages(mr, it.a, large, PAGE);
        if (order == 1)
            give(mr, it.a, small, 1000);
        end(&it);
    }
}

/* The chunks of a pool above are pages, and grow: also where others stand between. */
static void pools_above_have_their_chunks_from_the_pages(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "pool/growable(chunk=2MiB)", "pool/limiting(1GiB)/growable(chunk=2MiB)",
        "pool/tracking/growable(chunk=2MiB)", "pool/pool/growable(chunk=2MiB)",
    };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        scene it = begin(specs[i], 256 * MIB);
        void *blocks[6];
        for (int j = 0; j < 6; j++)
            blocks[j] = take(it.mr, it.a, PAGE);
        must_equal(mapped_bytes(&it), 6 * PAGE);
        must_equal(statistics_of(it.mr).held_bytes, 6 * PAGE);
        for (int j = 1; j < 6; j++)
            must(blocks[j] == (unsigned char *)blocks[0] + (size_t)j * PAGE);
        weir_resource *leaf = it.mr, *pool = NULL;
        for (weir_resource *next; (next = weir_resource_upstream(leaf, 0)) != NULL;
             leaf = next)
            pool = leaf;
        must_equal(statistics_of(leaf).out_blocks, 1); /* which was extended */
        must_equal(statistics_of(pool).out_blocks, 1); /* likewise: it cuts nothing */
        for (int j = 0; j < 6; j++)
            give(it.mr, it.a, blocks[j], PAGE);
        end(&it);
    }
}

static void a_buffer_of_pages_grows_in_place(void **state)
{
    (void)state;
    scene it = begin("growable(chunk=2MiB)", 256 * MIB);
    weir_buffer x;
    must_ok(weir_buffer_allocate(it.mr, it.a, 1000, PAGE, &x));
    void *data = x.data;
    stamp(it.device, it.a, data, 1000, 1);
    uint64_t copies = calls_of(it.device).copy;
    must_ok(weir_buffer_resize(&x, 40 * MIB, it.b));
    must(x.data == data && x.capacity == 40 * MIB);
    must_equal(calls_of(it.device).copy, copies);
    check_stamp(it.device, it.b, data, 1000, 1);
    must_equal(mapped_bytes(&it), 40 * MIB);
    weir_buffer_reset(&x);
    end(&it);
}

int main(void)
{
    support_keep_memory();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_blocks_share_pages),
        cmocka_unit_test(a_limit_is_on_all_that_a_pool_has),
        cmocka_unit_test(below_a_limit_what_is_free_makes_way),
        cmocka_unit_test(what_is_aligned_has_pages_to_itself),
        cmocka_unit_test(what_is_cut_neither_grows_nor_goes_in_parts),
        cmocka_unit_test(misuse_of_either_is_told),
        cmocka_unit_test(what_others_have_below_is_not_taken),
        cmocka_unit_test(pages_are_made_of_what_lies_free),
        cmocka_unit_test(pages_are_made_of_what_threads_keep),
        cmocka_unit_test(two_use_the_way_that_one_has_made),
        cmocka_unit_test(what_threads_keep_is_used_before_it_grows),
        cmocka_unit_test(trim_keeps_what_it_is_told_to),
        cmocka_unit_test(it_ends_with_its_last_block),
        cmocka_unit_test(pools_above_have_their_chunks_from_the_pages),
        cmocka_unit_test(a_buffer_of_pages_grows_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
