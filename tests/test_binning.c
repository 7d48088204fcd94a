/* test_binning.c - which bin a size goes to, where a block goes back to, and what is
 * summed up over all bins. For programs that add bins see test_binning_adds.c. */
#include "support_pool.h"

#include <string.h>

#include "internal.h"

static weir_resource *open_bins(weir_resource *upstream, uint32_t min, uint32_t max)
{
    const weir_binning_options options = { sizeof options, min, max };
    weir_resource *mr;
    must_ok(weir_binning_create(upstream, &options, &mr));
    weir_resource_unref(upstream);
    return mr;
}

static pool_scene open_bins_scene(uint64_t seed, uint32_t min, uint32_t max)
{
    (void)support_seed(seed);
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 256 * MIB);
    it.pool = open_bins(open_leaf(it.device), min, max);
    return it;
}

/* A pool of its own, and what it has out. */
static weir_resource *other_pool(weir_device *device)
{
    weir_resource *mr;
    must_ok(weir_resource_open(device, "pool(growth=1MiB)/device", &mr));
    return mr;
}

static bool has_out(weir_resource *mr, const void *ptr)
{
    weir_block found = { .struct_size = sizeof found };
    return weir_resource_find(mr, ptr, &found) == WEIR_OK;
}

/* ---- what is refused ---- */

#define bad(call)                                                                \
    do {                                                                         \
        must_answer(WEIR_INVALID_ARGUMENT, (call));                              \
        must(strlen(weir_last_error().message) > 8);                             \
    } while (0)

static void nonsense_is_refused(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 0, MIB);
    weir_resource *mr = it.pool;
    size_t block_bytes = 5;
    weir_fixed_size_options fixed = WEIR_FIXED_SIZE_OPTIONS_INIT;
    bad(weir_fixed_size_create(NULL, 5, NULL, &mr));
    must(mr == NULL);
    bad(weir_fixed_size_create(it.pool, 0, NULL, &mr));
    bad(weir_fixed_size_create(it.pool, SIZE_MAX, NULL, &mr));
    bad(weir_fixed_size_create(it.pool, 5, NULL, NULL));
    fixed.slab_blocks = SIZE_MAX;
    bad(weir_fixed_size_create(it.pool, 5, &fixed, &mr));
    fixed.struct_size = 1;
    bad(weir_fixed_size_create(it.pool, 5, &fixed, &mr));
    fixed.struct_size = sizeof fixed;
    bad(weir_fixed_size_get_options(it.pool, &block_bytes, &fixed));
    must(block_bytes == 0);
    bad(weir_fixed_size_get_options(NULL, &block_bytes, &fixed));
    bad(weir_fixed_size_get_options(it.pool, NULL, &fixed));
    bad(weir_fixed_size_get_options(it.pool, &block_bytes, NULL));
    must(!weir_fixed_size_has(it.pool, &it) && !weir_fixed_size_has(NULL, &it));

    static const uint32_t ranges[][2] = {
        { 31, 0 }, { 31, 40 }, { 31, UINT32_MAX }, { UINT32_MAX, UINT32_MAX }, { 7, 9 },
        { 9, 8 }, { 2, 0 }, { 0, 7 }, { WEIR_BINNING_NO_RANGE, 9 }
    };
    weir_binning_options bins = WEIR_BINNING_OPTIONS_INIT;
    bad(weir_binning_create(NULL, NULL, &mr));
    bad(weir_binning_create(it.pool, NULL, NULL));
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        bins = (weir_binning_options){ sizeof bins, ranges[i][0], ranges[i][1] };
        bad(weir_binning_create(it.pool, &bins, &mr));
        must(mr == NULL);
    }
    bins.struct_size = 1;
    bad(weir_binning_create(it.pool, &bins, &mr));
    bins.struct_size = sizeof bins;
    bad(weir_binning_get_options(it.pool, &bins));
    bad(weir_binning_get_options(NULL, &bins));
    bad(weir_binning_add(it.pool, 5, NULL));
    bad(weir_binning_add(NULL, 5, NULL));
    close_scene(&it);
}

/* An adaptor that keeps no record of its blocks, and hides those of its upstream. */
typedef struct blind {
    weir_resource *below;
    weir_device *device;
} blind;

static weir_status blind_allocate(void *context, weir_stream stream, size_t bytes,
                                  size_t alignment, void **out)
{
    return weir_allocate(((blind *)context)->below, stream, bytes, alignment, out);
}

static bool blind_deallocate(void *context, weir_stream stream, void *ptr, size_t bytes,
                             size_t alignment)
{
    return weir_deallocate(((blind *)context)->below, stream, ptr, bytes, alignment);
}

static void blind_properties(void *context, weir_resource_properties *out)
{
    out->device = ((blind *)context)->device;
    out->device_accessible = true;
}

static void blind_destroy(void *context)
{
    weir_resource_unref(((blind *)context)->below);
}

/* Takes over the reference to `self->below`. */
static weir_resource *open_blind(blind *self)
{
    const weir_resource_ops ops = { .struct_size = sizeof ops,
                                    .name = "blind",
                                    .allocate = blind_allocate,
                                    .deallocate = blind_deallocate,
                                    .destroy = blind_destroy,
                                    .properties = blind_properties };
    weir_resource *mr;
    must_ok(weir_resource_create(&ops, self, &mr));
    return mr;
}

static void not_every_resource_is_a_bin(void **state)
{
    (void)state;
    pool_scene it = open_bins_scene(1, 10, 12);
    weir_resource *other = other_pool(it.device), *host;
    blind self = { weir_resource_ref(other), it.device };
    weir_resource *mr = open_blind(&self);
    bad(weir_binning_add(it.pool, 0, NULL));
    bad(weir_binning_add(it.pool, SIZE_MAX, NULL));
    bad(weir_binning_add(it.pool, SIZE_MAX - 1, NULL)); /* no slab has that */
    bad(weir_binning_add(it.pool, 2048, NULL));         /* there is one */
    bad(weir_binning_add(it.pool, 2048, other));
    bad(weir_binning_add(it.pool, 2000, NULL)); /* which makes it 2048 */
    bad(weir_binning_add(it.pool, 5000, it.pool));
    must_answer(WEIR_NOT_SUPPORTED, weir_binning_add(it.pool, 5000, mr));
    must(strstr(weir_last_error().message, "blind does not know") != NULL);
    must_ok(weir_resource_open(it.device, "system", &host));
    must_ok(weir_binning_add(it.pool, 5000, host)); /* reached by both */
    weir_resource *on_host = open_bins(weir_resource_ref(host), 10, 10);
    must_answer(WEIR_INVALID_ARGUMENT, weir_binning_add(on_host, 5000, other));
    weir_device *second = open_with("emulated:1", NULL);
    weir_resource *away = open_leaf(second);
    must_answer(WEIR_INVALID_ARGUMENT, weir_binning_add(it.pool, 5001, away));
    must(strstr(weir_last_error().message, "another device") != NULL);
    weir_resource_unref(away);
    close_emulated(second);
    weir_resource_unref(on_host);
    weir_resource_unref(mr);
    weir_resource_unref(host);
    weir_resource_unref(other);
    close_scene(&it);
}

/* Else a request would go round until the stack ends, and none would ever end. */
static void what_draws_from_it_is_no_bin(void **state)
{
    (void)state;
    pool_scene it = open_bins_scene(1, 10, 12);
    weir_resource *other = open_bins(open_leaf(it.device), 10, 10), *over, *both;
    must_ok(weir_statistics_create(it.pool, &over));
    bad(weir_binning_add(it.pool, 5000, over));
    must(strstr(weir_last_error().message, "draws from it") != NULL);
    must_ok(weir_fallback_create(other, over, &both));
    bad(weir_binning_add(it.pool, 5000, both));
    must_ok(weir_binning_add(other, 5000, over)); /* so `other` is over it, too */
    bad(weir_binning_add(it.pool, 5000, other));
    give(it.pool, NULL, take(it.pool, NULL, 5000), 5000);
    weir_resource_unref(both);
    weir_resource_unref(over);
    weir_resource_unref(other);
    close_scene(&it);
}

static void options_are_read_back(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 0, MIB);
    static const uint32_t cases[][4] = { { 0, 0, 8, 22 },   { 9, 0, 9, 22 },
                                         { 0, 10, 8, 10 },  { 39, 39, 39, 39 },
                                         { 30, 33, 30, 33 }, { 1, 0, 1, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_resource *mr = open_bins(weir_resource_ref(it.pool), cases[i][0],
                                      cases[i][1]);
        weir_binning_options options = WEIR_BINNING_OPTIONS_INIT;
        must_ok(weir_binning_get_options(mr, &options));
        must_equal(options.min_exponent, cases[i][2]);
        must_equal(options.max_exponent, cases[i][3]);
        weir_resource_unref(mr);
    }
    close_scene(&it);
}

/* ---- where a request goes ---- */

/* How much a request for `bytes` takes: of a fresh bin the whole slab. */
static void requests_go_to_the_smallest_bin_that_fits(void **state)
{
    (void)state;
    static const struct {
        size_t bytes, block; /* 0: upstream */
    } cases[] = { { 1, 1 * KIB },        { 1024, 1 * KIB },     { 1025, 2 * KIB },
                  { 2048, 2 * KIB },     { 2049, 3 * KIB },     { 3000, 3 * KIB },
                  { 3 * KIB, 3 * KIB },  { 3073, 4 * KIB },     { 4096, 4 * KIB },
                  { 4097, 0 },           { 5 * MIB, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pool_scene it = open_bins_scene(1, 10, 12);
        must_ok(weir_binning_add(it.pool, 3 * KIB, NULL));
        void *ptr = take_on(&it, 0, cases[i].bytes);
        weir_resource_statistics now = statistics_of(it.pool);
        size_t block = cases[i].block != 0 ? cases[i].block : cases[i].bytes;
        size_t slab = cases[i].block != 0 ? 64 * KIB / block * block : block;
        must_equal(now.held_bytes, slab); /* in a test build */
        must_equal(now.out_bytes, cases[i].bytes);
        must_equal(now.out_blocks, 1);
        must_equal(now.free_bytes, slab - block);
        must_equal(now.peak_held_bytes, slab);
        must_equal(now.allocations, 1);
        weir_block found = { .struct_size = sizeof found };
        must_ok(weir_resource_find(it.pool, ptr, &found));
        must(found.bytes == cases[i].bytes && found.stream == it.streams[0]);
        give_on(&it, 0, ptr, cases[i].bytes);
        now = statistics_of(it.pool);
        must_equal(now.out_bytes, 0);
        must_equal(now.deallocations, 1);
        close_scene(&it);
    }
}

/* A bin that cannot align it is not asked. */
static void alignment_counts_too(void **state)
{
    (void)state;
    (void)support_seed(1);
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 256 * MIB);
    it.pool = open_bins(other_pool(it.device), 10, 12);
    must_ok(weir_binning_add(it.pool, 1536, NULL)); /* aligned to 512 */
    void *blocks[4];
    const size_t alignments[] = { 512, 1024, 4096, 2 * MIB };
    const size_t held[] = { 64 * KIB / 1536 * 1536, 64 * KIB, 64 * KIB, 1500 };
    for (int i = 0; i < 4; i++) {
        size_t before = statistics_of(it.pool).held_bytes;
        must_ok(weir_allocate(it.pool, it.streams[0], 1500, alignments[i], &blocks[i]));
        must((uintptr_t)blocks[i] % alignments[i] == 0);
        must_equal(statistics_of(it.pool).held_bytes - before, held[i]);
    }
    for (int i = 0; i < 4; i++)
        must(weir_deallocate(it.pool, it.streams[0], blocks[i], 1500, alignments[i]));
    must_equal(statistics_of(it.pool).out_blocks, 0);
    close_scene(&it);
}

/* Exponents beyond an int, and the largest request of all. */
static void large_exponents_do_not_overflow(void **state)
{
    (void)state;
    pool_scene it = open_bins_scene(1, 31, 39);
    (void)try_take(&it, 0, (size_t)1 << 39, WEIR_OUT_OF_MEMORY);
    (void)try_take(&it, 0, ((size_t)1 << 32) + 1, WEIR_OUT_OF_MEMORY);
    (void)try_take(&it, 0, ((size_t)1 << 39) + 1, WEIR_OUT_OF_MEMORY);
    (void)try_take(&it, 0, SIZE_MAX, WEIR_OUT_OF_MEMORY);
    (void)try_take(&it, 0, SIZE_MAX / 2 + 2, WEIR_OUT_OF_MEMORY);
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.requested_bytes, SIZE_MAX / 2 + 2);
    assert_string_equal(report.resource, "binning");
    must_equal(statistics_of(it.pool).failures, 5);
    close_scene(&it);
}

/* ---- where a block goes back to ---- */

/* The smallest case: the bin of 1 KiB comes after the block, and then another. */
static void a_later_bin_gets_nothing_of_before(void **state)
{
    (void)state;
    pool_scene it = open_bins_scene(1, 11, 12);
    weir_resource *other = other_pool(it.device), *third = other_pool(it.device);
    void *of_range = take_on(&it, 0, 700);
    must_ok(weir_binning_add(it.pool, 1000, other));
    void *of_other = take_on(&it, 1, 700);
    must(has_out(other, of_other) && !has_out(other, of_range));
    must_ok(weir_binning_add(it.pool, 800, third));
    void *of_third = take_on(&it, 2, 700);
    must(has_out(third, of_third));
    must_ok(weir_binning_add(it.pool, 768, NULL));
    void *of_own = take_on(&it, 3, 700);
    must(!has_out(third, of_own) && !has_out(other, of_own));
    weir_resource_statistics now = statistics_of(it.pool);
    must_equal(now.out_blocks, 4);
    must_equal(now.out_bytes, 2800);
    weir_block found = { .struct_size = sizeof found };
    void *const all[] = { of_range, of_other, of_third, of_own };
    for (int i = 0; i < 4; i++) {
        must_ok(weir_resource_find(it.pool, all[i], &found));
        must(found.ptr == all[i] && found.bytes == 700);
        must(found.stream == it.streams[i]);
    }
    for (int i = 0; i < 4; i++)
        give_on(&it, i, all[i], 700);
    must_equal(statistics_of(other).deallocations, 1);
    must_equal(statistics_of(third).deallocations, 1);
    weir_resource_unref(other);
    weir_resource_unref(third);
    close_scene(&it);
}

/* A slab begins where its first block does: what upstream calls it is no block here. */
static void a_slab_is_no_block(void **state)
{
    (void)state;
    misuse_log log;
    (void)support_seed(1);
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 256 * MIB);
    it.pool = open_bins(other_pool(it.device), 11, 12);
    void *ptr = take_on(&it, 0, 2048);
    give_on(&it, 0, ptr, 2048);
    weir_block found = { .struct_size = sizeof found };
    must_answer(WEIR_NOT_FOUND, weir_resource_find(it.pool, ptr, &found));
    misuse_begin(&log);
    must(!weir_free(it.pool, ptr));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, ptr);
    misuse_end();
    close_scene(&it);
}

/* Nor is a chunk, if none of its size could have been asked of upstream. */
static void a_chunk_of_a_bin_is_no_block(void **state)
{
    (void)state;
    (void)support_seed(1);
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 256 * MIB);
    weir_resource *upstream = other_pool(it.device), *bin;
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = MIB;
    must_ok(weir_pool_create(upstream, &options, &bin));
    it.pool = open_bins(weir_resource_ref(upstream), 20, 22);
    must_ok(weir_binning_add(it.pool, 1000, bin));
    void *stays = take_on(&it, 1, 2000); /* else all that is found is another's */
    void *ptr = take_on(&it, 0, 1000);
    must(has_out(it.pool, ptr) && has_out(upstream, ptr)); /* where the chunk begins */
    give_on(&it, 0, ptr, 1000);
    must(!has_out(it.pool, ptr) && has_out(upstream, ptr));
    give_on(&it, 1, stays, 2000);
    weir_resource_unref(upstream);
    weir_resource_unref(bin);
    close_scene(&it);
}

/* Of a size that a bin has: upstream would take it back. */
static void what_others_have_of_upstream_is_not_taken(void **state)
{
    (void)state;
    misuse_log log;
    (void)support_seed(1);
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 256 * MIB);
    weir_resource *upstream = other_pool(it.device), *bin = other_pool(it.device);
    it.pool = open_bins(weir_resource_ref(upstream), 11, 12);
    void *ptr = take(upstream, it.streams[0], 2000);
    for (int i = 0; i < 2; i++) {
        misuse_begin(&log);
        must(!weir_deallocate(it.pool, it.streams[0], ptr, 2000, WEIR_ALIGNMENT));
        must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, ptr);
        misuse_end();
        must(has_out(upstream, ptr));
        must_equal(statistics_of(it.pool).deallocations, 0);
        if (i == 0)
            must_ok(weir_binning_add(it.pool, 2047, bin)); /* nor has that one it */
    }
    give(upstream, it.streams[0], ptr, 2000);
    weir_resource_unref(upstream);
    weir_resource_unref(bin);
    close_scene(&it);
}

/* Whichever bin the wrong size names. */
static void a_wrong_size_is_told_by_the_bin_it_lies_in(void **state)
{
    (void)state;
    (void)support_seed(1);
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 256 * MIB);
    it.pool = open_bins(other_pool(it.device), 10, 12);
    misuse_log log;
    weir_resource *other = other_pool(it.device);
    void *early = take_on(&it, 0, 3000), *large = take_on(&it, 0, 5000);
    must_ok(weir_binning_add(it.pool, 3 * KIB, NULL));
    must_ok(weir_binning_add(it.pool, 512, other));
    void *late = take_on(&it, 0, 3000), *of_other = take_on(&it, 0, 500);
    void *const blocks[] = { early, large, late, of_other };
    const size_t bytes[] = { 3000, 5000, 3000, 500 };
    static const size_t wrong[] = { 1, 499, 1000, 2000, 2999, 3001, 4096 };
    misuse_begin(&log);
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < sizeof wrong / sizeof wrong[0]; j++) {
            must(!weir_deallocate(it.pool, it.streams[0], blocks[i], wrong[j],
                                  WEIR_ALIGNMENT));
            must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, blocks[i]);
        }
        must(!weir_deallocate(it.pool, it.streams[0], (char *)blocks[i] + 256, bytes[i],
                              WEIR_ALIGNMENT));
        must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, (char *)blocks[i] + 256);
    }
    /* As large as upstream's: there the slab begins, and is as large as that. */
    weir_block slab = { .struct_size = sizeof slab };
    must_ok(weir_resource_find(weir_resource_upstream(it.pool, 0), early, &slab));
    must(slab.bytes > 4096);
    must(!weir_deallocate(it.pool, it.streams[0], early, slab.bytes, slab.alignment));
    must(strstr(log.message, "3000") != NULL);
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, early);
    must_equal(statistics_of(it.pool).out_blocks, 4);
    misuse_end();
    for (size_t i = 0; i < 4; i++)
        give_on(&it, 0, blocks[i], bytes[i]);
    weir_resource_unref(other);
    close_scene(&it);
}

/* Without a record of its blocks upstream still serves; a bin has to have one. */
static void upstream_need_not_know_its_blocks(void **state)
{
    (void)state;
    (void)support_seed(1);
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 256 * MIB);
    blind self = { open_leaf(it.device), it.device };
    weir_resource *upstream = open_blind(&self);
    it.pool = open_bins(weir_resource_ref(upstream), 10, 12);
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(it.pool, &properties));
    must(!properties.can_find && properties.can_trim);
    void *a = take_on(&it, 0, 3000), *b = take_on(&it, 0, 5000);
    weir_block found = { .struct_size = sizeof found };
    must_answer(WEIR_NOT_SUPPORTED, weir_resource_find(it.pool, a, &found));
    must_answer(WEIR_NOT_SUPPORTED, weir_binning_add(it.pool, 3 * KIB, upstream));
    must_ok(weir_binning_add(it.pool, 3 * KIB, NULL));
    must_ok(weir_binning_add(it.pool, 5 * KIB, NULL));
    void *c = take_on(&it, 0, 3000), *d = take_on(&it, 0, 5000);
    give_on(&it, 0, a, 3000);
    give_on(&it, 0, b, 5000);
    give_on(&it, 0, c, 3000);
    give_on(&it, 0, d, 5000);
    weir_resource_unref(upstream);
    close_scene(&it);
}

/* ---- sums ---- */

static void trim_goes_through_all_bins(void **state)
{
    (void)state;
    pool_scene it = open_bins_scene(1, 10, 12);
    weir_resource *other = other_pool(it.device);
    must_ok(weir_binning_add(it.pool, 6 * KIB, other));
    must_ok(weir_binning_add(it.pool, 5 * KIB, other)); /* what it holds counts once */
    static const size_t sizes[] = { 1 * KIB, 2 * KIB, 4 * KIB, 6 * KIB };
    void *blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = take_on(&it, 0, sizes[i]);
    must_equal(statistics_of(it.pool).held_bytes, 3 * 64 * KIB + 6 * KIB);
    must_equal(weir_resource_trim_sync(it.pool, 0), 0);
    for (int i = 0; i < 4; i++)
        give_on(&it, 0, blocks[i], sizes[i]);
    must_equal(weir_resource_trim_sync(it.pool, 64 * KIB + MIB), 2 * 64 * KIB);
    must_equal(statistics_of(it.pool).held_bytes, 64 * KIB);
    must_equal(weir_resource_trim_sync(it.pool, 1), 64 * KIB + MIB); /* and other's */
    must_equal(statistics_of(it.pool).held_bytes, 0);
    must_equal(statistics_of(other).held_bytes, 0);
    weir_resource_unref(other);
    close_scene(&it);
}

static void what_is_short_is_told_of_all_bins(void **state)
{
    (void)state;
    (void)support_seed(1);
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 256 * MIB);
    weir_resource *leaf = open_leaf(it.device), *limited;
    must_ok(weir_limiting_create(leaf, 100 * KIB, &limited));
    weir_resource_unref(leaf);
    it.pool = open_bins(limited, 10, 12);
    void *a = take_on(&it, 0, 1000), *b = take_on(&it, 1, 30 * KIB);
    void *c = take_on(&it, 2, 4 * KIB); /* no slab any more: a block */
    (void)try_take(&it, 0, 2 * KIB + 1000, WEIR_LIMIT_REACHED);
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.requested_bytes, 2 * KIB + 1000);
    must_equal(report.held_bytes, 64 * KIB + 30 * KIB + 4 * KIB);
    must_equal(report.in_use_bytes, 1000 + 30 * KIB + 4 * KIB);
    assert_string_equal(report.resource, "binning");
    must_equal(statistics_of(it.pool).failures, 1);
    must_equal(statistics_of(it.pool).allocations, 3);
    give_on(&it, 0, a, 1000);
    give_on(&it, 1, b, 30 * KIB);
    give_on(&it, 2, c, 4 * KIB);
    close_scene(&it);
}

/* An argument picks tests by their names. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(not_every_resource_is_a_bin),
        cmocka_unit_test(what_draws_from_it_is_no_bin),
        cmocka_unit_test(options_are_read_back),
        cmocka_unit_test(requests_go_to_the_smallest_bin_that_fits),
        cmocka_unit_test(alignment_counts_too),
        cmocka_unit_test(large_exponents_do_not_overflow),
        cmocka_unit_test(a_later_bin_gets_nothing_of_before),
        cmocka_unit_test(a_slab_is_no_block),
        cmocka_unit_test(a_chunk_of_a_bin_is_no_block),
        cmocka_unit_test(what_others_have_of_upstream_is_not_taken),
        cmocka_unit_test(a_wrong_size_is_told_by_the_bin_it_lies_in),
        cmocka_unit_test(upstream_need_not_know_its_blocks),
        cmocka_unit_test(trim_goes_through_all_bins),
        cmocka_unit_test(what_is_short_is_told_of_all_bins),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
