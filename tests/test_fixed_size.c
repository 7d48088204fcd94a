/* test_fixed_size.c - blocks of one size: what is refused, what is held, who gets whose
 * block and waits for it, and what is told of what comes back. */
#include "support_pool.h"

#include <stdatomic.h>
#include <string.h>

#include "internal.h"

#define BLOCK (768 * KIB) /* not a power of two */

static weir_resource *open_fixed(weir_resource *upstream, size_t block_bytes,
                                 size_t slab_blocks)
{
    weir_fixed_size_options options = WEIR_FIXED_SIZE_OPTIONS_INIT;
    options.slab_blocks = slab_blocks;
    weir_resource *mr;
    must_ok(weir_fixed_size_create(upstream, block_bytes, &options, &mr));
    weir_resource_unref(upstream);
    return mr;
}

static pool_scene open_fixed_scene(uint64_t seed, size_t slab_blocks)
{
    (void)support_seed(seed);
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 64 * MIB);
    it.pool = open_fixed(open_leaf(it.device), BLOCK, slab_blocks);
    return it;
}

/* ---- sizes ---- */

static void options_are_read_back(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(1));
    static const struct {
        size_t asked, blocks, block, in_force;
    } cases[] = {
        { 1, 0, 256, 256 },              /* 64 KiB in a test build */
        { 257, 0, 512, 128 },
        { 40 * KIB, 0, 40 * KIB, 4 },
        { 256, 7, 256, 7 },
        { WEIR_FIXED_SIZE_SLAB_MAX / 2, 0, WEIR_FIXED_SIZE_SLAB_MAX / 2, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_resource *mr = open_fixed(open_leaf(device), cases[i].asked,
                                       cases[i].blocks);
        weir_fixed_size_options options = WEIR_FIXED_SIZE_OPTIONS_INIT;
        size_t block_bytes;
        must_ok(weir_fixed_size_get_options(mr, &block_bytes, &options));
        must_equal(block_bytes, cases[i].block);
        must_equal(options.slab_blocks, cases[i].in_force);
        weir_resource_unref(mr);
    }

    weir_fixed_size_options options = WEIR_FIXED_SIZE_OPTIONS_INIT;
    weir_resource *leaf = open_leaf(device), *mr;
    options.slab_blocks = 2;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_fixed_size_create(leaf, WEIR_FIXED_SIZE_SLAB_MAX / 2, &options,
                                       &mr));
    must(strstr(weir_last_error().message, "too large") != NULL);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_fixed_size_create(leaf, WEIR_FIXED_SIZE_SLAB_MAX, NULL, &mr));
    weir_resource_unref(leaf);
    close_emulated(device);
}

static void what_is_larger_than_a_block_is_refused(void **state)
{
    (void)state;
    pool_scene it = open_fixed_scene(1, 4);
    must(try_take(&it, 0, BLOCK + 2, WEIR_LIMIT_REACHED) == NULL);
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.requested_bytes, BLOCK + 2);
    must_equal(report.held_bytes, 0);
    must_equal(report.largest_free_bytes, 0); /* nothing is drawn yet */
    void *whole = take_on(&it, 0, BLOCK), *byte = take_on(&it, 0, 1);
    must((char *)byte == (char *)whole + BLOCK); /* a byte takes a block */
    must(try_take(&it, 0, BLOCK + 1, WEIR_LIMIT_REACHED) == NULL);
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.requested_bytes, BLOCK + 1);
    must_equal(report.limit_bytes, SIZE_MAX); /* of how much it may hold */
    must_equal(report.largest_free_bytes, 2 * BLOCK);
    must_equal(report.held_bytes, 4 * BLOCK);
    must_equal(report.in_use_bytes, BLOCK + 1);
    assert_string_equal(report.resource, "fixed_size");
    must(try_take(&it, 0, SIZE_MAX, WEIR_LIMIT_REACHED) == NULL);

    weir_resource_statistics now = statistics_of(it.pool);
    must_equal(now.failures, 3);
    must_equal(now.allocations, 2);
    must_equal(now.out_blocks, 2);
    must_equal(now.out_bytes, BLOCK + 1);
    must_equal(now.held_bytes, 4 * BLOCK);
    must_equal(now.free_bytes, 2 * BLOCK);
    give_on(&it, 0, whole, BLOCK);
    give_on(&it, 0, byte, 1);
    now = statistics_of(it.pool);
    must_equal(now.out_bytes, 0);
    must_equal(now.peak_out_bytes, 2 * BLOCK);
    must_equal(now.deallocations, 2);
    close_scene(&it);
}

/* Slab after slab is filled to its end, without a gap; then upstream has room for
 * single blocks only, and then for none. */
static void slabs_are_filled_and_then_single_blocks(void **state)
{
    (void)state;
    enum { BLOCKS = 5 + 5 + 2 };
    (void)support_seed(1);
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 64 * MIB);
    weir_resource *leaf = open_leaf(it.device), *limited;
    must_ok(weir_limiting_create(leaf, 12 * BLOCK + BLOCK / 2, &limited));
    weir_resource_unref(leaf);
    it.pool = open_fixed(limited, BLOCK, 5);
    for (int round = 0; round < 3; round++) {
        void *blocks[BLOCKS];
        for (int i = 0; i < BLOCKS; i++)
            blocks[i] = take_on(&it, i % STREAMS, BLOCK - (size_t)i);
        must_equal(statistics_of(it.pool).held_bytes, 12 * BLOCK);
        must(try_take(&it, 0, 100, WEIR_LIMIT_REACHED) == NULL);
        weir_out_of_memory report = { .struct_size = sizeof report };
        must_ok(weir_last_out_of_memory(&report));
        must_equal(report.requested_bytes, 100);
        must_equal(report.held_bytes, 12 * BLOCK);
        must_equal(report.in_use_bytes, 12 * BLOCK);
        must_equal(report.largest_free_bytes, 0);
        assert_string_equal(report.resource, "fixed_size");
        for (int i = 0; i < BLOCKS; i++)
            give_on(&it, i % STREAMS, blocks[i], BLOCK - (size_t)i);
        if (round > 0) /* all of it, and again */
            must_equal(weir_resource_trim_sync(it.pool, 0), 12 * BLOCK);
    }
    close_scene(&it);
}

/* As far as the block size goes, and upstream. */
static void blocks_are_aligned_as_promised(void **state)
{
    (void)state;
    static const struct {
        const char *upstream;
        size_t block, alignment;
    } cases[] = { { "pool/device", 8 * KIB, 8 * KIB },
                  { "pool/device", 24 * KIB, 8 * KIB },
                  { "pool/device", 8 * MIB, 2 * MIB },
                  { "pool/device", 300, 512 },
                  { "system", 64 * KIB, 4 * KIB },
                  { "device", 64 * KIB, 256 } };
    weir_device *device = open_stepped(support_seed(1));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_resource *upstream;
        must_ok(weir_resource_open(device, cases[i].upstream, &upstream));
        void *in_the_way = take(upstream, NULL, 256);
        weir_resource *mr = open_fixed(weir_resource_ref(upstream), cases[i].block, 3);
        weir_resource_properties properties = { .struct_size = sizeof properties };
        must_ok(weir_resource_get_properties(mr, &properties));
        must_equal(properties.max_alignment, cases[i].alignment);
        must(properties.can_find && properties.can_trim && !properties.can_extend);
        must(properties.share_kind == WEIR_SHARE_NONE);
        void *blocks[7];
        for (size_t j = 0; j < 7; j++) {
            must_ok(weir_allocate(mr, NULL, 1, cases[i].alignment, &blocks[j]));
            must((uintptr_t)blocks[j] % cases[i].alignment == 0);
        }
        for (size_t j = 0; j < 7; j++)
            must(weir_deallocate(mr, NULL, blocks[j], 1, cases[i].alignment));
        weir_resource_unref(mr);
        give(upstream, NULL, in_the_way, 256);
        weir_resource_unref(upstream);
    }
    close_emulated(device);
}

/* ---- an upstream that aligns to 16 only, with slabs that begin anywhere ---- */

typedef struct crooked {
    weir_resource *below;
} crooked;

static weir_status crooked_allocate(void *context, weir_stream stream, size_t bytes,
                                    size_t alignment, void **out)
{
    crooked *self = context;
    (void)alignment;
    must_ok(weir_allocate(self->below, stream, bytes + 16, 256, out));
    *out = (char *)*out + 16;
    return WEIR_OK;
}

static void crooked_deallocate(void *context, weir_stream stream, void *ptr,
                               size_t bytes, size_t alignment)
{
    crooked *self = context;
    (void)alignment;
    must(weir_deallocate(self->below, stream, (char *)ptr - 16, bytes + 16, 256));
}

static void crooked_destroy(void *context)
{
    weir_resource_unref(((crooked *)context)->below);
}

static void slabs_may_begin_anywhere(void **state)
{
    (void)state;
    (void)support_seed(1);
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 64 * MIB);
    crooked self = { open_leaf(it.device) };
    const weir_callbacks calls = { .struct_size = sizeof calls,
                                   .allocate = crooked_allocate,
                                   .deallocate = crooked_deallocate,
                                   .destroy = crooked_destroy,
                                   .max_alignment = 16 };
    weir_resource *upstream;
    must_ok(weir_callback_create(it.device, &calls, &self, &upstream));
    it.pool = open_fixed(upstream, 256, 3);
    void *blocks[10];
    for (int i = 0; i < 10; i++) {
        blocks[i] = take_on(&it, i % STREAMS, 256);
        must((uintptr_t)blocks[i] % 256 == 0);
    }
    must_equal(statistics_of(it.pool).held_bytes, 4 * 4 * 256);
    for (int i = 2; i < 9; i += 3) /* behind the last of a slab */
        must(weir_fixed_size_has(it.pool, blocks[i]) &&
             !weir_fixed_size_has(it.pool, (char *)blocks[i] + 256));
    for (int i = 0; i < 10; i++)
        give_on(&it, i % STREAMS, blocks[i], 256);
    must_equal(weir_resource_trim_sync(it.pool, 0), 4 * 4 * 256);
    close_scene(&it);
}

/* ---- stream order ---- */

static void a_block_is_its_streams_own_at_once(void **state)
{
    (void)state;
    pool_scene it = open_fixed_scene(1, 1);
    void *a = take_on(&it, 0, BLOCK);
    uint64_t gate = stall(&it, 0);
    give_on(&it, 0, a, BLOCK);
    weir_device_calls before = calls_of(it.device);
    void *b = take(it.pool, it.streams[0], BLOCK);
    weir_device_calls after = calls_of(it.device);
    must(b == a);
    must(memcmp(&before, &after, sizeof before) == 0); /* no call at all */
    stamp(it.device, it.streams[0], b, BLOCK, (uintptr_t)b);
    open_gate(&it, gate);
    give_on(&it, 0, b, BLOCK);
    close_scene(&it);
}

/* Before a slab is drawn for it; and the wait is the device's. */
static void another_stream_waits_for_it_on_the_device(void **state)
{
    (void)state;
    pool_scene it = open_fixed_scene(1, 1);
    void *a = take_on(&it, 0, BLOCK);
    uint64_t gate = stall(&it, 0);
    give_on(&it, 0, a, BLOCK);
    void *b = take_on(&it, 1, 100);
    must(b == a);
    must_equal(waits(&it), 1);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[1]));
    open_gate(&it, gate);
    must_ok(weir_stream_sync(it.device, it.streams[1]));
    give_on(&it, 1, b, 100);
    must_equal(statistics_of(it.pool).peak_held_bytes, BLOCK);
    close_scene(&it);
}

static void what_is_done_is_anybodys(void **state)
{
    (void)state;
    pool_scene it = open_fixed_scene(1, 1);
    void *a = take_on(&it, 0, BLOCK);
    give_on(&it, 0, a, BLOCK);
    must_ok(weir_stream_sync(it.device, it.streams[0]));
    void *b = take_on(&it, 1, BLOCK);
    must(b == a);
    must_equal(waits(&it), 0);
    give_on(&it, 1, b, BLOCK);
    close_scene(&it);
}

/* Behind points of two streams: who takes the block waits for both. */
static void behind_points_means_behind_all(void **state)
{
    (void)state;
    pool_scene it = open_fixed_scene(1, 1);
    weir_point points[2];
    void *a = take_on(&it, 0, BLOCK);
    must_ok(weir_stream_wait(it.device, it.streams[1], it.streams[0]));
    check_stamp(it.device, it.streams[1], a, BLOCK, (uintptr_t)a);
    uint64_t gates[2] = { stall(&it, 0), stall(&it, 1) };
    check_stamp(it.device, it.streams[0], a, BLOCK, (uintptr_t)a);
    for (int i = 0; i < 2; i++)
        must_ok(weir_point_here(it.device, it.streams[i], &points[i]));
    must(weir_deallocate_after(it.pool, a, BLOCK, WEIR_ALIGNMENT, points, 2));
    void *b = take_on(&it, 2, BLOCK);
    must(b == a);
    open_gate(&it, gates[0]);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[2]));
    open_gate(&it, gates[1]);
    must_ok(weir_stream_sync(it.device, it.streams[2]));
    give_on(&it, 2, b, BLOCK);
    close_scene(&it);
}

/* On a device that does no work nobody listens: threads keep what they free, and an
 * event is recorded for a batch, not for a block. */
static void a_batch_takes_one_event(void **state)
{
    (void)state;
    enum { BLOCKS = 64 };
    if (support_is_cuda()) /* where somebody listens to whatever is freed */
        skip();
    (void)support_seed(1);
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_NO_WORK, 256 * MIB);
    it.pool = open_fixed(open_leaf(it.device), 256 * KIB, BLOCKS);
    void *blocks[BLOCKS];
    void *other = take(it.pool, it.streams[1], 1); /* the device has met two */
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = take(it.pool, it.streams[0], 256 * KIB);
    uint64_t before = calls_of(it.device).event_record;
    for (int i = 0; i < BLOCKS; i++)
        give(it.pool, it.streams[0], blocks[i], 256 * KIB);
    uint64_t records = calls_of(it.device).event_record - before;
    must(records <= BLOCKS / 2); /* a batch is 2 in a test build */

    before = calls_of(it.device).event_record;
    for (int i = 0; i < 1000; i++) {
        void *ptr = take(it.pool, it.streams[0], 1);
        give(it.pool, it.streams[0], ptr, 1);
    }
    must_equal(calls_of(it.device).event_record, before);
    give(it.pool, it.streams[1], other, 1);
    close_scene(&it);
}

/* What a capture had stays its own until it is released. */
static void captures_keep_their_blocks(void **state)
{
    (void)state;
    pool_scene it = open_fixed_scene(1, 2);
    weir_capture *capture;
    must_ok(weir_capture_begin(it.pool, it.streams[0], &capture));
    void *a = take(it.pool, it.streams[0], BLOCK);
    give(it.pool, it.streams[0], a, BLOCK);
    void *b = take(it.pool, it.streams[0], BLOCK); /* which may use it again */
    must(b == a);
    give(it.pool, it.streams[0], b, BLOCK);
    must_ok(weir_capture_end(capture));
    void *others[3];
    for (int i = 0; i < 3; i++) {
        others[i] = take_on(&it, i, BLOCK);
        must(others[i] != a);
    }
    must_ok(weir_capture_release(capture, it.streams[0]));
    void *c = take_on(&it, 1, BLOCK);
    must(c == a);
    give_on(&it, 1, c, BLOCK);
    for (int i = 0; i < 3; i++)
        give_on(&it, i, others[i], BLOCK);
    close_scene(&it);
}

/* ---- trim and the end ---- */

static void trim_gives_back_whole_slabs(void **state)
{
    (void)state;
    pool_scene it = open_fixed_scene(1, 2);
    void *blocks[6];
    for (int i = 0; i < 6; i++)
        blocks[i] = take_on(&it, 0, BLOCK);
    for (int i = 0; i < 6; i++) {
        if (i != 3)
            give_on(&it, 0, blocks[i], BLOCK);
    }
    must_equal(weir_resource_trim_sync(it.pool, 4 * BLOCK), 2 * BLOCK);
    must_equal(weir_resource_trim_sync(it.pool, 0), 2 * BLOCK);
    must_equal(weir_resource_trim_sync(it.pool, 0), 0); /* half a slab is out */
    must_equal(statistics_of(it.pool).held_bytes, 2 * BLOCK);
    give_on(&it, 0, blocks[3], BLOCK);
    must_equal(weir_resource_trim_sync(it.pool, 0), 2 * BLOCK);
    must_equal(statistics_of(it.pool).held_bytes, 0);
    must_hold_nothing(it.device);
    give_on(&it, 1, take_on(&it, 1, BLOCK), BLOCK);
    close_scene(&it);
}

/* The upstream's own reference first, then the resource's, then the last block. */
static void parts_may_go_in_any_order(void **state)
{
    (void)state;
    for (int order = 0; order < 4; order++) {
        (void)support_seed((uint64_t)order);
        pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 64 * MIB);
        weir_resource *leaf = open_leaf(it.device), *counted;
        must_ok(weir_statistics_create(leaf, &counted));
        weir_resource_unref(leaf);
        it.pool = open_fixed(weir_resource_ref(counted), BLOCK, 3);
        void *blocks[5];
        for (int i = 0; i < 5; i++)
            blocks[i] = take_on(&it, i % STREAMS, BLOCK);
        if (order % 2 == 0)
            weir_resource_unref(counted);
        for (int i = 0; i < 4; i++)
            give_on(&it, i % STREAMS, blocks[i], BLOCK);
        weir_resource *mr = it.pool;
        if (order < 2)
            weir_resource_unref(mr);
        check_stamp(it.device, it.streams[0], blocks[4], BLOCK, (uintptr_t)blocks[4]);
        if (order < 2)
            must(weir_deallocate(mr, it.streams[0], blocks[4], BLOCK, WEIR_ALIGNMENT));
        else
            give(mr, it.streams[0], blocks[4], BLOCK);
        if (order >= 2)
            weir_resource_unref(mr);
        if (order % 2 != 0) {
            must_equal(statistics_of(counted).out_blocks, 0);
            weir_resource_unref(counted);
        }
        it.pool = NULL;
        close_scene(&it);
    }
}

/* ---- misuse ---- */

static void a_wrong_word_is_told(void **state)
{
    (void)state;
    pool_scene it = open_fixed_scene(1, 2);
    misuse_log log;
    void *a = take_on(&it, 0, 1000);
    char *b = take_on(&it, 0, BLOCK);
    misuse_begin(&log);
    must(!weir_deallocate(it.pool, it.streams[0], a, 1001, WEIR_ALIGNMENT));
    must(strstr(log.message, "allocated with 1000 bytes, alignment 256") != NULL);
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, a);
    must(!weir_deallocate(it.pool, it.streams[0], a, 1000, 512));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, a);
    must(!weir_deallocate(it.pool, it.streams[0], a, BLOCK + 1, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, a);
    must(!weir_deallocate(it.pool, it.streams[0], a, SIZE_MAX, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, a);
    must(!weir_deallocate_after(it.pool, a, 999, WEIR_ALIGNMENT, NULL, 0));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, a);

    must(!weir_deallocate(it.pool, it.streams[0], b + 256, 1000, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, b + 256);
    must(!weir_free(it.pool, b + 8));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, b + 8);
    must(!weir_free(it.pool, &log));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, &log);
    weir_block found = { .struct_size = sizeof found };
    must_answer(WEIR_NOT_FOUND, weir_resource_find(it.pool, b + 256, &found));
    must_answer(WEIR_NOT_FOUND, weir_resource_find(it.pool, &log, &found));
    must_equal(statistics_of(it.pool).out_blocks, 2);

    give_on(&it, 0, a, 1000);
    must(!weir_deallocate(it.pool, it.streams[0], a, 1000, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, a);
    must(!weir_free(it.pool, (char *)a + 512));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, (char *)a + 512);
    must_answer(WEIR_NOT_FOUND, weir_resource_find(it.pool, a, &found));
    misuse_end();
    give_on(&it, 0, b, BLOCK);
    must_equal(statistics_of(it.pool).deallocations, 2);
    close_scene(&it);
}

typedef struct race {
    weir_resource *mr;
    weir_stream stream;
    void *ptr;
    atomic_int done;
} race;

static void free_it(void *argument)
{
    race *it = argument;
    if (weir_deallocate(it->mr, it->stream, it->ptr, 1000, WEIR_ALIGNMENT))
        atomic_fetch_add(&it->done, 1);
}

/* Of two frees that race one counts, and the other is told at once, whatever the turns:
 * also where threads keep what they free. */
static void one_of_two_frees_is_misuse(void **state)
{
    (void)state;
    uint64_t runs = support_bound("races of two frees of a block of one size", 60, 600);
    for (uint64_t run = 0; run < runs; run++) {
        weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
        emulated.scheduler = WEIR_EMULATED_STEPPED;
        emulated.seed = support_seed(run);
        emulated.no_ledger = true; /* it finds the race, rightly */
        weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
        options.emulated = &emulated;
        weir_device *device = open_with("emulated:0", &options);
        race it = { .mr = open_fixed(open_leaf(device), 4 * KIB, 4),
                    .stream = make_stream(device, WEIR_STREAM_NON_BLOCKING) };
        void *const arguments[] = { &it, &it };
        misuse_log log;
        it.ptr = take(it.mr, it.stream, 1000);
        misuse_begin(&log);
        must_ok(weir_emulated_run_threads(device, 2, free_it, arguments));
        must_equal(it.done, 1);
        must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, it.ptr);
        misuse_end();
        must_equal(statistics_of(it.mr).out_blocks, 0);
        weir_resource_unref(it.mr);
        end_stream(device, it.stream);
        close_emulated(device);
    }
}

/* An argument picks tests by their names. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_read_back),
        cmocka_unit_test(what_is_larger_than_a_block_is_refused),
        cmocka_unit_test(slabs_are_filled_and_then_single_blocks),
        cmocka_unit_test(blocks_are_aligned_as_promised),
        cmocka_unit_test(slabs_may_begin_anywhere),
        cmocka_unit_test(a_block_is_its_streams_own_at_once),
        cmocka_unit_test(another_stream_waits_for_it_on_the_device),
        cmocka_unit_test(what_is_done_is_anybodys),
        cmocka_unit_test(behind_points_means_behind_all),
        cmocka_unit_test(a_batch_takes_one_event),
        cmocka_unit_test(captures_keep_their_blocks),
        cmocka_unit_test(trim_gives_back_whole_slabs),
        cmocka_unit_test(parts_may_go_in_any_order),
        cmocka_unit_test(a_wrong_word_is_told),
        cmocka_unit_test(one_of_two_frees_is_misuse),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
