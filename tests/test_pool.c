/* test_pool.c - the pool on one stream: what it draws and gives back, limits, reports,
 * misuse, and upstreams of several kinds. test_pool_streams.c has what crosses
 * streams. */
#include "support_pool.h"

#include <string.h>

/* A stepped device and one known stream. */
typedef struct one {
    weir_device *device;
    weir_stream stream;
} one;

static one open_one(void)
{
    one it;
    it.device = open_stepped(1);
    it.stream = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    return it;
}

static void close_one(one it)
{
    end_stream(it.device, it.stream);
    close_emulated(it.device);
}

static size_t held(weir_resource *mr)
{
    return statistics_of(mr).held_bytes;
}

/* ---- drawing ---- */

static void pool_draws_multiples_of_its_growth(void **state)
{
    (void)state;
    one it = open_one();
    weir_resource *pool = open_pool(open_leaf(it.device), 0, 0, 4 * MIB);
    must_equal(held(pool), 0);

    char *a = take(pool, it.stream, 1);
    must_equal(held(pool), 4 * MIB);
    char *b = take(pool, it.stream, 3 * MIB);
    must_equal(b - a, 256);
    must_equal(calls_of(it.device).malloc, 1);
    void *c = take(pool, it.stream, 5 * MIB);
    must_equal(held(pool), 12 * MIB);

    weir_resource_statistics s = statistics_of(pool);
    must_equal(s.out_bytes, 8 * MIB + 1);
    must_equal(s.out_blocks, 3);
    must_equal(s.free_bytes, 4 * MIB - 256);
    must_equal(s.largest_free_bytes, 3 * MIB);
    must_equal(s.allocations, 3);

    give(pool, it.stream, a, 1);
    give(pool, it.stream, b, 3 * MIB);
    give(pool, it.stream, c, 5 * MIB);
    s = statistics_of(pool);
    must_equal(s.out_bytes, 0);
    must_equal(s.deallocations, 3);
    must_equal(s.peak_out_bytes, 8 * MIB + 1);
    must_equal(s.free_bytes, s.held_bytes);
    must_equal(s.peak_held_bytes, 12 * MIB);
    weir_resource_unref(pool);
    close_one(it);
}

static void pool_draws_the_initial_size_at_once(void **state)
{
    (void)state;
    one it = open_one();
    weir_resource *pool = open_pool(open_leaf(it.device), 64 * MIB, 0, 4 * MIB);
    must_equal(calls_of(it.device).malloc, 0);
    void *blocks[16];
    for (int i = 0; i < 16; i++)
        blocks[i] = take(pool, it.stream, 4 * MIB);
    must_equal(held(pool), 64 * MIB);
    must_equal(calls_of(it.device).malloc, 1);
    for (int i = 0; i < 16; i++)
        give(pool, it.stream, blocks[i], 4 * MIB);

    /* All of it has become one block again. */
    give(pool, it.stream, take(pool, it.stream, 64 * MIB), 64 * MIB);
    must_equal(calls_of(it.device).malloc, 1);
    weir_resource_unref(pool);
    close_one(it);
}

/* Memory that was never used continues what is free before it, as if they were one. */
static void pool_uses_fresh_memory_behind_freed(void **state)
{
    (void)state;
    one it = open_one();
    weir_resource *pool = open_pool(open_leaf(it.device), 4 * MIB, 4 * MIB, MIB);
    void *a = take(pool, it.stream, MIB);
    give(pool, it.stream, a, MIB);
    void *b = take(pool, it.stream, 4 * MIB);
    must(b == a);
    must_equal(calls_of(it.device).event_record, 0);
    give(pool, it.stream, b, 4 * MIB);
    weir_resource_unref(pool);

    pool = open_pool(open_leaf(it.device), 4 * MIB, 4 * MIB, MIB);
    a = take(pool, it.stream, MIB);
    give(pool, it.stream, a, MIB);
    b = take(pool, it.stream, 2 * MIB); /* the fresh part alone would have room */
    must(b == a);
    give(pool, it.stream, b, 2 * MIB);
    weir_resource_unref(pool);
    close_one(it);
}

static void pool_asks_no_device_for_what_one_stream_reuses(void **state)
{
    (void)state;
    one it = open_one();
    weir_resource *pool = open_pool(open_leaf(it.device), 0, 0, 4 * MIB);
    void *first = take(pool, it.stream, MIB);
    stamp(it.device, it.stream, first, MIB, 1);
    give(pool, it.stream, first, MIB);
    weir_device_calls before = calls_of(it.device);
    for (uint64_t i = 0; i < 100; i++) {
        void *block = take(pool, it.stream, MIB - i);
        must(block == first);
        stamp(it.device, it.stream, block, MIB - i, i);
        check_stamp(it.device, it.stream, block, MIB - i, i);
        give(pool, it.stream, block, MIB - i);
    }
    weir_device_calls after = calls_of(it.device);
    after.launch = before.launch;
    must(memcmp(&before, &after, sizeof before) == 0);
    weir_resource_unref(pool);
    close_one(it);
}

static void pool_aligns_as_asked(void **state)
{
    (void)state;
    one it = open_one();
    weir_resource *pool = open_pool(open_leaf(it.device), 0, 0, 256);
    void *blocks[14];
    for (size_t i = 0; i < 14; i++) {
        size_t alignment = (size_t)256 << i;
        must_ok(weir_allocate(pool, it.stream, 3000 + i, alignment, &blocks[i]));
        must_equal((uintptr_t)blocks[i] % alignment, 0);
        must(weir_deallocate(pool, it.stream, blocks[i], 3000 + i, alignment));
        must_ok(weir_allocate(pool, it.stream, 3000 + i, alignment, &blocks[i]));
        stamp(it.device, it.stream, blocks[i], 3000 + i, i);
    }
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(pool, &properties));
    must_equal(properties.max_alignment, (size_t)256 << 13);
    void *none;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_allocate(pool, it.stream, 1, (size_t)256 << 14, &none));
    for (size_t i = 0; i < 14; i++) {
        check_stamp(it.device, it.stream, blocks[i], 3000 + i, i);
        must(weir_deallocate(pool, it.stream, blocks[i], 3000 + i, (size_t)256 << i));
    }
    weir_resource_unref(pool);
    close_one(it);
}

/* ---- refusing ---- */

static weir_out_of_memory last_report(void)
{
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    return report;
}

static void pool_refuses_what_would_pass_its_limit(void **state)
{
    (void)state;
    one it = open_one();
    weir_resource *pool = open_pool(open_leaf(it.device), 0, 10 * MIB, 4 * MIB);
    void *a = take(pool, it.stream, 5 * MIB), *none = a;
    must_equal(held(pool), 8 * MIB);
    weir_resource_statistics before = statistics_of(pool);

    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(pool, it.stream, 4 * MIB, WEIR_ALIGNMENT, &none));
    must(none == NULL);
    weir_out_of_memory report = last_report();
    must_equal(report.requested_bytes, 4 * MIB);
    must_equal(report.limit_bytes, 10 * MIB);
    must_equal(report.held_bytes, 8 * MIB);
    must_equal(report.in_use_bytes, 5 * MIB);
    must_equal(report.largest_free_bytes, 3 * MIB);
    must(strcmp(report.resource, "pool") == 0);
    before.failures++;
    weir_resource_statistics after = statistics_of(pool);
    must(memcmp(&before, &after, sizeof before) == 0);

    /* The last two are less than a whole growth, and what is left of the first is 3. */
    void *b = take(pool, it.stream, 2 * MIB), *c = take(pool, it.stream, 2 * MIB);
    must_equal(held(pool), 10 * MIB);
    give(pool, it.stream, a, 5 * MIB);
    give(pool, it.stream, b, 2 * MIB);
    give(pool, it.stream, c, 2 * MIB);
    weir_resource_unref(pool);
    close_one(it);
}

static weir_device *open_small(void)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.memory_bytes = 64 * MIB;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    return open_with("emulated:0", &options);
}

static void pool_reports_a_full_device_and_goes_on(void **state)
{
    (void)state;
    weir_device *device = open_small();
    weir_resource *pool = open_pool(open_leaf(device), 0, 0, 16 * MIB);
    void *a = take(pool, NULL, MIB), *none;
    static const size_t giants[] = { (size_t)1 << 30, (size_t)1 << 50, SIZE_MAX / 2,
                                     SIZE_MAX / 2 + 1, SIZE_MAX };
    for (size_t i = 0; i < sizeof giants / sizeof giants[0]; i++) {
        must_answer(WEIR_OUT_OF_MEMORY,
                    weir_allocate(pool, NULL, giants[i], WEIR_ALIGNMENT, &none));
        weir_out_of_memory report = last_report();
        must_equal(report.requested_bytes, giants[i]);
        must_equal(report.limit_bytes, SIZE_MAX);
        must_equal(report.held_bytes, 16 * MIB);
        must_equal(report.in_use_bytes, MIB);
        must_equal(report.largest_free_bytes, 15 * MIB);
        must(strcmp(report.resource, "pool") == 0);
        must(strstr(weir_last_error().message, "pool") != NULL);
    }
    /* The growth would be 48, and there are 48: then 10 do not fit into any growth. */
    void *b = take(pool, NULL, 33 * MIB);
    give(pool, NULL, take(pool, NULL, 15 * MIB), 15 * MIB);
    give(pool, NULL, a, MIB);
    give(pool, NULL, b, 33 * MIB);
    weir_resource_unref(pool);
    close_emulated(device);
}

static void pool_takes_less_where_its_growth_does_not_fit(void **state)
{
    (void)state;
    weir_device *device = open_small();
    weir_resource *pool = open_pool(open_leaf(device), 0, 0, 40 * MIB);
    void *a = take(pool, NULL, MIB);
    must_equal(held(pool), 40 * MIB);
    void *b = take(pool, NULL, 39 * MIB);
    void *c = take(pool, NULL, 20 * MIB);
    must_equal(held(pool), 60 * MIB);
    give(pool, NULL, a, MIB);
    give(pool, NULL, b, 39 * MIB);
    give(pool, NULL, c, 20 * MIB);

    /* Neither chunk has room for all, together they do: they go back first. */
    void *d = take(pool, NULL, 50 * MIB);
    stamp(device, NULL, d, 50 * MIB, 7);
    check_stamp(device, NULL, d, 50 * MIB, 7);
    give(pool, NULL, d, 50 * MIB);
    weir_resource_unref(pool);
    close_emulated(device);
}

/* ---- giving back ---- */

static void pool_trims_free_chunks_only(void **state)
{
    (void)state;
    one it = open_one();
    weir_resource *pool = open_pool(open_leaf(it.device), 0, 0, MIB);
    size_t before = device_free_bytes(it.device);
    void *blocks[4];
    for (int i = 0; i < 4; i++) {
        blocks[i] = take(pool, it.stream, MIB);
        stamp(it.device, it.stream, blocks[i], MIB, 1);
    }
    give(pool, it.stream, blocks[0], MIB);
    give(pool, it.stream, blocks[1], MIB);
    give(pool, it.stream, blocks[3], MIB);
    must_equal(weir_resource_trim_sync(pool, 4 * MIB), 0);
    must_equal(weir_resource_trim_sync(pool, 3 * MIB), MIB);
    must_equal(held(pool), 3 * MIB);
    must_equal(weir_resource_trim_sync(pool, 0), 2 * MIB);
    must_equal(weir_resource_trim_sync(pool, 0), 0);
    must_equal(held(pool), MIB);
    must_equal(before - device_free_bytes(it.device), MIB);
    give(pool, it.stream, blocks[2], MIB);
    must_equal(weir_resource_trim_sync(pool, 0), MIB);
    must_equal(device_free_bytes(it.device), before);
    give(pool, it.stream, take(pool, it.stream, MIB), MIB);
    weir_resource_unref(pool);
    close_one(it);
}

/* What runs when a pool ends is waited for, not cut off. */
static void pool_ends_after_what_runs(void **state)
{
    (void)state;
    one it = open_one();
    weir_resource *pool = open_pool(open_leaf(it.device), 0, 0, MIB);
    void *a = take(pool, it.stream, MIB);
    stamp(it.device, it.stream, a, MIB, 1);
    weir_resource_unref(pool);
    check_stamp(it.device, it.stream, a, MIB, 1);
    give(pool, it.stream, a, MIB); /* the last block: now it ends */
    close_one(it);
}

/* ---- misuse ---- */

static void pool_finds_misuse(void **state)
{
    (void)state;
    one it = open_one();
    weir_resource *pool = open_pool(open_leaf(it.device), 0, 0, MIB);
    char *a = take(pool, it.stream, KIB), *b = take(pool, it.stream, KIB);
    char *c = take(pool, it.stream, KIB);
    weir_resource_statistics before = statistics_of(pool);
    misuse_log log;
    misuse_begin(&log);

    must(!weir_deallocate(pool, it.stream, a, KIB + 1, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, a);
    must(!weir_deallocate(pool, it.stream, a, KIB, 2 * WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, a);
    must(!weir_deallocate(pool, it.stream, a + 256, KIB, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, a + 256);
    must(!weir_deallocate(pool, it.stream, &log, KIB, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, &log);
    must(!weir_free(pool, c + KIB));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, c + KIB);
    weir_resource_statistics after = statistics_of(pool);
    must(memcmp(&before, &after, sizeof before) == 0);

    give(pool, it.stream, b, KIB);
    must(!weir_deallocate(pool, it.stream, b, KIB, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, b);
    give(pool, it.stream, c, KIB); /* b, c and the rest are one block now */
    must(!weir_deallocate(pool, it.stream, c, KIB, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, c);
    must(!weir_deallocate_after(pool, c, KIB, WEIR_ALIGNMENT, NULL, 0));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, c);
    must(!weir_free(pool, b));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, b);

    misuse_end();
    give(pool, it.stream, a, KIB);
    weir_resource_unref(pool);
    close_one(it);
}

static void pool_finds_and_frees_by_address(void **state)
{
    (void)state;
    one it = open_one();
    weir_resource *pool = open_pool(open_leaf(it.device), 0, 0, MIB);
    char *a;
    must_ok(weir_allocate(pool, it.stream, 1000, 512, (void **)&a));
    weir_block block = { .struct_size = sizeof block };
    must_ok(weir_resource_find(pool, a, &block));
    must(block.ptr == a && block.bytes == 1000 && block.alignment == 512);
    must(block.stream == it.stream);
    must_answer(WEIR_NOT_FOUND, weir_resource_find(pool, a + 1, &block));
    must(weir_free(pool, a));
    must_answer(WEIR_NOT_FOUND, weir_resource_find(pool, a, &block));
    must_equal(statistics_of(pool).out_blocks, 0);
    weir_resource_unref(pool);
    close_one(it);
}

/* ---- upstreams ---- */

static void pool_stands_on_a_pool(void **state)
{
    (void)state;
    one it = open_one();
    weir_resource *inner = open_pool(open_leaf(it.device), 0, 16 * MIB, MIB), *outer;
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = 4 * MIB;
    must_ok(weir_pool_create(inner, &options, &outer));
    void *blocks[4], *none;
    for (uint64_t i = 0; i < 4; i++) {
        blocks[i] = take(outer, it.stream, 3 * MIB);
        stamp(it.device, it.stream, blocks[i], 3 * MIB, i);
    }
    must_equal(statistics_of(inner).out_bytes, 16 * MIB);
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(outer, it.stream, 3 * MIB, WEIR_ALIGNMENT, &none));
    must(strcmp(last_report().resource, "pool") == 0);
    must_equal(last_report().limit_bytes, SIZE_MAX); /* the outer one's */
    for (uint64_t i = 0; i < 4; i++) {
        check_stamp(it.device, it.stream, blocks[i], 3 * MIB, i);
        give(outer, it.stream, blocks[i], 3 * MIB);
    }
    void *all = take(outer, it.stream, 16 * MIB);
    give(outer, it.stream, all, 16 * MIB);
    weir_resource_unref(outer);
    must_equal(statistics_of(inner).out_bytes, 0);
    weir_resource_unref(inner);
    close_one(it);
}

/* A range of addresses, never touched, that grows at its end. */
typedef struct range_leaf {
    weir_device *device;
    size_t most_bytes;
    size_t out_bytes;
    size_t extensions;
} range_leaf;

#define RANGE_BASE ((uintptr_t)1 << 44)

static weir_status range_allocate(void *context, weir_stream stream,
                                  size_t bytes, size_t alignment, void **out)
{
    range_leaf *self = context;
    (void)stream;
    (void)alignment;
    if (self->out_bytes != 0 || bytes > self->most_bytes)
        return weir_resource_refuse(WEIR_OUT_OF_MEMORY, "the range is taken");
    self->out_bytes = bytes;
    *out = (void *)RANGE_BASE;
    return WEIR_OK;
}

static weir_status range_extend(void *context, weir_stream stream, void *ptr,
                                size_t bytes, size_t alignment, size_t new_bytes)
{
    range_leaf *self = context;
    (void)stream;
    (void)alignment;
    must(ptr == (void *)RANGE_BASE && bytes == self->out_bytes && new_bytes > bytes);
    if (new_bytes > self->most_bytes)
        return weir_resource_refuse(WEIR_OUT_OF_MEMORY, "the range is too short");
    self->out_bytes = new_bytes;
    self->extensions++;
    return WEIR_OK;
}

static bool range_deallocate(void *context, weir_stream stream,
                             void *ptr, size_t bytes, size_t alignment)
{
    range_leaf *self = context;
    (void)stream;
    (void)alignment;
    must(ptr == (void *)RANGE_BASE && bytes == self->out_bytes);
    self->out_bytes = 0;
    return true;
}

static void range_properties(void *context, weir_resource_properties *out)
{
    out->device = ((range_leaf *)context)->device;
    out->device_accessible = true;
}

static void range_destroy(void *context)
{
    (void)context;
}

static weir_resource *open_range(range_leaf *self)
{
    static const weir_resource_ops ops = {
        .struct_size = sizeof ops,
        .name = "range",
        .allocate = range_allocate,
        .deallocate = range_deallocate,
        .destroy = range_destroy,
        .properties = range_properties,
        .extend = range_extend,
    };
    weir_resource *mr;
    must_ok(weir_resource_create(&ops, self, &mr));
    return mr;
}

static void pool_extends_its_last_chunk(void **state)
{
    (void)state;
    one it = open_one();
    range_leaf range = { .device = it.device, .most_bytes = 10 * MIB };
    weir_resource *leaf = open_range(&range), *pool;
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = 2 * MIB;
    must_ok(weir_pool_create(leaf, &options, &pool));
    weir_resource_unref(leaf);

    char *a = take(pool, it.stream, MIB);
    char *b = take(pool, it.stream, 3 * MIB);
    must(b == a + MIB); /* what was left of the first is the beginning of it */
    must_equal(range.out_bytes, 4 * MIB);
    char *c;
    must_ok(weir_allocate(pool, it.stream, MIB, 2 * MIB, (void **)&c));
    must_equal((uintptr_t)c % (2 * MIB), 0);
    must_equal(held(pool), range.out_bytes);
    size_t extensions = range.extensions;
    give(pool, it.stream, a, MIB);
    give(pool, it.stream, b, 3 * MIB);
    must(weir_deallocate(pool, it.stream, c, MIB, 2 * MIB));

    /* The whole growth does not fit any more, and then only what is needed does. */
    char *d = take(pool, it.stream, 9 * MIB + 512 * KIB);
    must(d == a && range.extensions == extensions + 1);
    void *none;
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(pool, it.stream, MIB, WEIR_ALIGNMENT, &none));
    must_equal(statistics_of(pool).out_blocks, 1);
    give(pool, it.stream, d, 9 * MIB + 512 * KIB);
    weir_resource_unref(pool);
    must_equal(range.out_bytes, 0);
    close_one(it);
}

static void pool_grows_in_step_with_what_it_holds(void **state)
{
    (void)state;
    one it = open_one();
    weir_resource *pool = open_pool(open_leaf(it.device), 0, 0, 0);
    void *small = take(pool, it.stream, 1);
    must_equal(held(pool), 8 * MIB);
    void *large = take(pool, it.stream, 120 * MIB);
    must_equal(held(pool), 128 * MIB);
    void *next = take(pool, it.stream, 9 * MIB);
    must_equal(held(pool), 160 * MIB);
    give(pool, it.stream, small, 1);
    give(pool, it.stream, large, 120 * MIB);
    give(pool, it.stream, next, 9 * MIB);
    weir_resource_unref(pool);
    close_one(it);
}

/* ---- options and arguments ---- */

static void pool_reads_its_options(void **state)
{
    (void)state;
    one it = open_one();
    weir_resource *leaf, *pool;
    must_ok(weir_device_resource_create(it.device, &leaf));
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    must_ok(weir_pool_create(leaf, NULL, &pool));
    must_ok(weir_pool_get_options(pool, &options));
    must_equal(options.initial_bytes, 0);
    must_equal(options.limit_bytes, SIZE_MAX);
    must_equal(options.growth_bytes, 0);
    must_equal(options.cache_bytes, 0);
    must_equal(options.slack_bytes, 0);
    weir_resource_unref(pool);

    options.initial_bytes = MIB;
    options.limit_bytes = MIB - 1;
    must_answer(WEIR_INVALID_ARGUMENT, weir_pool_create(leaf, &options, &pool));
    must(pool == NULL);
    options.struct_size = 0;
    must_answer(WEIR_INVALID_ARGUMENT, weir_pool_create(leaf, &options, &pool));
    must_answer(WEIR_INVALID_ARGUMENT, weir_pool_create(NULL, NULL, &pool));
    must_answer(WEIR_INVALID_ARGUMENT, weir_pool_create(leaf, NULL, NULL));
    options.struct_size = sizeof options;
    must_answer(WEIR_INVALID_ARGUMENT, weir_pool_get_options(leaf, &options));
    must_answer(WEIR_INVALID_ARGUMENT, weir_pool_get_options(NULL, &options));

    struct {
        weir_pool_options known;
        size_t unheard_of;
    } newer = { WEIR_POOL_OPTIONS_INIT, 1 };
    newer.known.struct_size = sizeof newer;
    must_answer(WEIR_NOT_SUPPORTED, weir_pool_create(leaf, &newer.known, &pool));
    weir_resource_unref(leaf);
    close_one(it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_draws_multiples_of_its_growth),
        cmocka_unit_test(pool_grows_in_step_with_what_it_holds),
        cmocka_unit_test(pool_draws_the_initial_size_at_once),
        cmocka_unit_test(pool_uses_fresh_memory_behind_freed),
        cmocka_unit_test(pool_asks_no_device_for_what_one_stream_reuses),
        cmocka_unit_test(pool_aligns_as_asked),
        cmocka_unit_test(pool_refuses_what_would_pass_its_limit),
        cmocka_unit_test(pool_reports_a_full_device_and_goes_on),
        cmocka_unit_test(pool_takes_less_where_its_growth_does_not_fit),
        cmocka_unit_test(pool_trims_free_chunks_only),
        cmocka_unit_test(pool_ends_after_what_runs),
        cmocka_unit_test(pool_finds_misuse),
        cmocka_unit_test(pool_finds_and_frees_by_address),
        cmocka_unit_test(pool_stands_on_a_pool),
        cmocka_unit_test(pool_extends_its_last_chunk),
        cmocka_unit_test(pool_reads_its_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
