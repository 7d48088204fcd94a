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

static size_t bytes_of(const sieve *it, uint32_t id)
{
    return weir__heap_bytes(weir__heap_block_of(&it->heap, id));
}

/* Which of the last `looks` of `count` free blocks of a bin should be taken: of those
 * with room the smallest, of these the lowest; `count`: none has room. */
static size_t best_of(const sieve *it, const uint32_t *all, size_t count, size_t looks,
                      size_t bytes)
{
    size_t best = count;
    for (size_t i = count - looks; i < count; i++) {
        const size_t room = bytes_of(it, all[i]);
        if (room < bytes)
            continue;
        const size_t least = best < count ? bytes_of(it, all[best]) : SIZE_MAX;
        if (room < least || (room == least && base_of(&it->heap, all[i]) <
                                                  base_of(&it->heap, all[best])))
            best = i;
    }
    return best;
}

#define BLOCKS (6 * WEIR__BIN_LOOKS)

/* Blocks of some sizes from `grains` on, which share a bin, come and go; where they are
 * more than one size what is asked for may be less than any. */
static void best_fits_are(size_t grains, size_t sizes, uint64_t seed)
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
            const size_t looks = count < WEIR__BIN_LOOKS ? count : WEIR__BIN_LOOKS;
            const size_t less = sizes > 1 ? 1 : 0;
            const size_t bytes =
                (grains - less + support_random_below(&random, sizes + less)) * GRAIN;
            size_t at = best_of(&it, all, count, looks, bytes);
            if (at == count)
                at = best_of(&it, all, count, count, bytes);
            const uint32_t want = at < count ? all[at] : 0;
            must_equal(weir__heap_best(&it.heap, it.owner, bytes, GRAIN), want);
            must_equal(take_out(&it, bytes), want);
            if (want == 0)
                continue;
            it.ids[out++] = want;
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
        best_fits_are(2, 1, support_seed(program));
}

static void of_near_sizes_the_best_of_a_few_is_taken(void **state)
{
    (void)state;
    for (uint64_t program = 0; program < 100; program++)
        best_fits_are(NEAR, 2, support_seed(program));
}

/* Far down in its bin lies what fits better than anything in another bin: as long as
 * there is anything there, nobody looks for it. */
static void a_long_bin_is_gone_through_last(void **state)
{
    (void)state;
    const size_t blocks = 6 * (WEIR__BIN_LOOKS + 1);
    sieve it;
    open_sieve(&it, blocks, NEAR, 3);
    const uint32_t larger = it.ids[2], fits = it.ids[1];
    must_equal(bytes_of(&it, larger), (NEAR + 2) * GRAIN);
    give_back(&it, larger);
    give_back(&it, fits);
    for (size_t i = 0; i < 3 * WEIR__BIN_LOOKS; i += 3)
        give_back(&it, it.ids[i]);
    must_equal(take_out(&it, (NEAR + 1) * GRAIN), larger);
    must_equal(take_out(&it, (NEAR + 1) * GRAIN), fits);
    must_equal(take_out(&it, (NEAR + 1) * GRAIN), 0);
    close_sieve(&it);
}

/* ---- rows ---- */

/* A block of so many grains is free under an owner's clock, with no neighbour of it. */
static uint32_t leave(sieve *it, weir__heap_owner *owner, size_t grains)
{
    uint32_t id = take_out(it, grains * GRAIN);
    must(id != 0 && take_out(it, GRAIN) != 0); /* which stays out */
    must(weir__heap_promise(&it->heap));
    weir__heap_forget_promise(&it->heap);
    come_back(&it->heap, id);
    return weir__heap_release(&it->heap, id, (weir__mark){ owner->clock, 1 });
}

static uint32_t rows_of(const weir__heap_owner *owner)
{
    uint32_t count = 0;
    for (uint32_t number = 0; number < WEIR__BIN_ROWS; number++)
        count += owner->rows[number] != NULL;
    return count;
}

/* What leaves the last bin of a row and comes back finds it; but an owner of nothing
 * has none. */
static void rows_stay_while_their_owner_has_anything(void **state)
{
    (void)state;
    weir__chunk chunk = { 0 };
    sieve it = { 0 };
    open_heap(&it.heap, &chunk, 1024 * GRAIN);
    it.owner = weir__heap_owner_at(&it.heap, WEIR__OWNER_DONE);
    weir__heap_owner *one = weir__heap_owner_get(&it.heap, 1, NULL);
    uint32_t small = leave(&it, one, 1), large = leave(&it, one, 100);
    must_equal(rows_of(one), 2);
    const weir__heap_row *its = one->rows[1];
    must_equal((uintptr_t)its % 64, 0); /* no other row has a part of its lines */
    weir__heap_hold(&it.heap, large);
    must(one->rows[1] == its && its->bits == 0);
    weir__heap_verify(&it.heap);
    weir__heap_release(&it.heap, large, (weir__mark){ 1, 1 });
    must(one->rows[1] == its && its->bits != 0);
    weir__heap_hold(&it.heap, large);
    weir__heap_release(&it.heap, large, WEIR__MARK_DONE);
    const size_t spare = it.heap.row_spare_count;
    weir__heap_hold(&it.heap, small);
    must_equal(rows_of(one), 0);
    must_equal(it.heap.row_spare_count, spare + 2);
    weir__heap_release(&it.heap, small, WEIR__MARK_DONE);
    weir__heap_verify(&it.heap);
    weir__heap_close(&it.heap);
}

/* Very many owners that have one block left each, and had others of many sizes: no more
 * rows are made than twice those that have something, and what is always there. */
static void empty_rows_do_not_pile_up(void **state)
{
    (void)state;
    enum { OWNERS = 200, SIZES = 12 };
    weir__chunk chunk = { 0 };
    sieve it = { 0 };
    open_heap(&it.heap, &chunk, (size_t)1 << 26);
    it.owner = weir__heap_owner_at(&it.heap, WEIR__OWNER_DONE);
    for (uint64_t clock = 1; clock <= OWNERS; clock++) {
        weir__heap_owner *owner = weir__heap_owner_get(&it.heap, clock, NULL);
        (void)leave(&it, owner, 1);
        for (uint32_t i = 6; i < SIZES; i++) {
            uint32_t id = leave(&it, owner, (size_t)1 << i);
            weir__heap_hold(&it.heap, id);
            weir__heap_release(&it.heap, id, WEIR__MARK_DONE);
        }
    }
    must(it.heap.row_count < 2 * OWNERS + 4 * WEIR__BIN_ROWS);
    weir__heap_verify(&it.heap);
    weir__heap_close(&it.heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_one_size_a_low_one_is_taken),
        cmocka_unit_test(of_near_sizes_the_best_of_a_few_is_taken),
        cmocka_unit_test(a_long_bin_is_gone_through_last),
        cmocka_unit_test(rows_stay_while_their_owner_has_anything),
        cmocka_unit_test(empty_rows_do_not_pile_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
