/* test_heap_bins.c - which of an owner's free blocks is the best fit, where there are
 * many of one size or of sizes that share a bin. */
#include <string.h>

#include "heap_bins.h"
#include "support_heap.h"

/* The first size that shares a bin, with the next. */
#define NEAR (((size_t)1 << WEIR__EXACT_BITS) + 2)
/* Behind BASE, with lower bits that are none. */
#define FAR  ((uintptr_t)5 << 40)

/* Blocks that may become free, in two chunks that lie far apart, and what stays out
 * between them. */
typedef struct sieve {
    weir__heap heap;
    weir__chunk chunks[2];
    weir__heap_owner *owner;
    size_t count;
    uint32_t *ids;
} sieve;

static uint32_t take_out(sieve *it, size_t bytes)
{
    must(weir__heap_promise(&it->heap));
    weir__heap_taken taken = weir__heap_take_best(
        &it->heap, it->owner, bytes, WEIR__HEAP_HOMES, WEIR__HEAP_OUT, 0);
    weir__heap_forget_promise(&it->heap);
    return taken.id;
}

static void give_back(sieve *it, uint32_t id)
{
    must(weir__heap_promise(&it->heap));
    weir__heap_forget_promise(&it->heap);
    come_back(&it->heap, id);
    weir__heap_release(&it->heap, id, WEIR__MARK_DONE);
}

static void add_far_chunk(sieve *it, size_t bytes)
{
    must(weir__heap_promise(&it->heap));
    must_ok(weir__heap_reserve(&it->heap, FAR, bytes));
    uint32_t all = weir__heap_add_chunk(&it->heap, &it->chunks[1], FAR, bytes);
    weir__heap_release(&it->heap, all, WEIR__MARK_DONE);
    weir__heap_forget_promise(&it->heap);
}

/* `count` blocks, half of them in each chunk, which they fill; in turn of so many
 * sizes, from `grains` on. */
static void open_sieve(sieve *it, size_t count, size_t grains, size_t sizes)
{
    *it = (sieve){ .count = count, .ids = test_malloc(count * sizeof *it->ids) };
    size_t bytes = 0;
    for (size_t i = 0; i < count / 2; i++)
        bytes += (grains + i % sizes + 1) * GRAIN;
    open_heap(&it->heap, &it->chunks[0], bytes);
    it->owner = weir__heap_owner_at(&it->heap, WEIR__OWNER_DONE);
    for (size_t i = 0; i < count; i++) {
        if (i == count / 2)
            add_far_chunk(it, bytes);
        it->ids[i] = take_out(it, (grains + i % (count / 2) % sizes) * GRAIN);
        must(take_out(it, GRAIN) != 0);
    }
}

static void close_sieve(sieve *it)
{
    weir__heap_verify(&it->heap);
    weir__heap_close(&it->heap);
    test_free(it->ids);
}

/* A bin of several sizes is no deeper than a random tree also when addresses only
 * grow. */
static void bins_are_not_deep_in_any_order(void **state)
{
    (void)state;
    const size_t blocks = (size_t)support_bound("test_heap_bins.deep", 5000, 50000);
    sieve it;
    open_sieve(&it, blocks, NEAR, 1);
    for (size_t i = 0; i < blocks; i++)
        give_back(&it, it.ids[i]);
    const weir__heap_bin bin = weir__heap_bin_of(NEAR);
    const uint32_t root = it.owner->rows[bin.row]->roots[bin.bit];
    size_t deepest = 0;
    for (size_t i = 0; i < blocks; i++) {
        const uint64_t key = weir__heap_key_of(
            it.owner, weir__heap_block_of(&it.heap, it.ids[i]));
        const weir__heap_free *at = weir__heap_free_at(&it.heap, root);
        size_t depth = 0;
        for (; at->key != key; depth++)
            at = weir__heap_free_at(&it.heap, at->below[at->key < key]);
        deepest = depth > deepest ? depth : deepest;
    }
    must(deepest < 64);
    close_sieve(&it);
}

/* Which of `count` free blocks, the last that became free last, should be taken: of
 * the smallest the lowest; or of one size that of a few. */
static size_t best_of(const sieve *it, const uint32_t *all, size_t count, bool is_exact)
{
    const size_t looks = is_exact && count > WEIR__BIN_LOOKS ? WEIR__BIN_LOOKS : count;
    size_t best = count - 1;
    for (size_t i = count - looks; i < count; i++) {
        const size_t bytes = weir__heap_bytes(weir__heap_block_of(&it->heap, all[i]));
        const size_t least =
            weir__heap_bytes(weir__heap_block_of(&it->heap, all[best]));
        if (bytes < least || (bytes == least && base_of(&it->heap, all[i]) <
                                                    base_of(&it->heap, all[best])))
            best = i;
    }
    return best;
}

#define BLOCKS (6 * WEIR__BIN_LOOKS)

static void best_fits_are(size_t grains, size_t sizes, bool is_exact, uint64_t seed)
{
    uint64_t random = seed;
    uint32_t all[BLOCKS];
    size_t out = BLOCKS, count = 0;
    sieve it;
    open_sieve(&it, BLOCKS, grains, sizes);
    for (uint32_t step = 0; step < 20 * BLOCKS; step++) {
        /* By turns more is given back, and more is taken. */
        const uint64_t giving = step / (5 * BLOCKS) % 2 == 0 ? 3 : 1;
        if (out > 0 && support_random_below(&random, 4) < giving) {
            size_t at = (size_t)support_random_below(&random, out);
            give_back(&it, it.ids[at]);
            all[count++] = it.ids[at];
            it.ids[at] = it.ids[--out];
        } else if (count > 0) {
            const size_t at = best_of(&it, all, count, is_exact);
            size_t bytes = weir__heap_bytes(weir__heap_block_of(&it.heap, all[at]));
            if (!is_exact && step % 2 == 0) /* what is left of it comes back with it */
                bytes = (grains - 1) * GRAIN;
            must_equal(weir__heap_best(&it.heap, it.owner, bytes, GRAIN), all[at]);
            must_equal(take_out(&it, bytes), all[at]);
            it.ids[out++] = all[at];
            memmove(&all[at], &all[at + 1], (--count - at) * sizeof *all);
        }
        weir__heap_verify(&it.heap);
    }
    close_sieve(&it);
}

static void of_one_size_a_low_one_is_taken(void **state)
{
    (void)state;
    for (uint64_t program = 0; program < 100; program++)
        best_fits_are(2, 1, true, support_seed(program));
}

static void of_near_sizes_the_lowest_is_taken(void **state)
{
    (void)state;
    for (uint64_t program = 0; program < 100; program++)
        best_fits_are(NEAR, 2, false, support_seed(program));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bins_are_not_deep_in_any_order),
        cmocka_unit_test(of_one_size_a_low_one_is_taken),
        cmocka_unit_test(of_near_sizes_the_lowest_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
