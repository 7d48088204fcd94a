/* test_heap_runs.c - the runs of free blocks that weir__heap_each_run visits, compared
 * with those that a walk over all blocks meets. */
#include "internal.h"
#include "support_heap.h"

#define GRAINS 2048u
#define CLOCKS 3u
#define MOST   192u /* grains of a block: beyond 128 a bin is for several sizes */
#define RUNS   8u

/* Runs that were met: how many, and a sum that tells which. */
typedef struct runs_met {
    const weir__heap *heap;
    size_t limit;        /* of larger ones it does not matter whether they are met */
    size_t count;
    uint64_t sum;
} runs_met;

static void meet(runs_met *all, uintptr_t base, size_t bytes)
{
    if (bytes >= all->limit)
        return;
    all->count++;
    all->sum += weir__heap_hash(base) ^ weir__heap_hash(bytes + 1);
}

static size_t meet_run(void *context, weir__heap_run run, size_t bytes)
{
    runs_met *all = context;
    uintptr_t base = base_of(all->heap, run.first);
    must_equal(weir__heap_end_of(weir__heap_block_of(all->heap, run.last)) - base,
               bytes);
    meet(all, base, bytes);
    return all->limit;
}

static runs_met walk(const weir__heap *heap, const weir__chunk *chunk, size_t bytes,
                     size_t part, size_t limit)
{
    runs_met all = { .limit = limit };
    size_t length = 0, largest = 0;
    uintptr_t at = chunk->base;
    uint32_t id = weir__heap_first(heap, chunk);
    for (;; id = weir__heap_after(heap, id)) {
        size_t its = id != 0 ? weir__heap_bytes(weir__heap_block_of(heap, id)) : 0;
        if (id != 0 && weir__heap_state_at(heap, id) == WEIR__HEAP_FREE) {
            length += its;
            largest = its > largest ? its : largest;
        } else {
            if (length > 0 && length >= bytes && largest >= part)
                meet(&all, at - length, length);
            length = largest = 0;
        }
        at += its;
        if (id == 0)
            return all;
    }
}

static void must_meet_the_same(const weir__heap *heap, const weir__chunk *chunk,
                               uint64_t *state)
{
    size_t bytes = (size_t)support_random_below(state, 2 * MOST) * GRAIN;
    size_t part = (size_t)support_random_below(state, MOST) * GRAIN;
    size_t limit = (1 + (size_t)support_random_below(state, 4 * MOST)) * GRAIN;
    if (limit > 3 * MOST * GRAIN)
        limit = SIZE_MAX;
    runs_met got = { .heap = heap, .limit = limit };
    runs_met want = walk(heap, chunk, bytes, part, limit);
    weir__heap_each_run(heap, bytes, part, meet_run, &got);
    must_equal(got.count, want.count);
    must(got.sum == want.sum);
}

static void give_one(weir__heap *heap, uint32_t id, uint64_t *state)
{
    come_back(heap, id);
    must(weir__heap_promise(heap));
    uint64_t clock = support_random_below(state, CLOCKS);
    must(weir__heap_owner_get(heap, clock, NULL) != NULL);
    if (support_random_below(state, 8) == 0) { /* into limbo, if it can be */
        must(weir__heap_owner_get(heap, clock + CLOCKS, NULL) != NULL);
        (void)weir__heap_add_mark(heap, id, (weir__mark){ clock + CLOCKS, 1 });
    }
    weir__heap_release(heap, id, (weir__mark){ clock, 1 });
    weir__heap_forget_promise(heap);
}

static void each_run_is_met_once(void **state)
{
    (void)state;
    uint64_t runs = support_bound("test_heap_runs.programs", 20, 400);
    for (uint64_t run = 0; run < runs; run++) {
        uint64_t draws = support_seed(run);
        weir__heap heap;
        weir__chunk chunk = { 0 };
        uint32_t out[GRAINS], count = 0;
        open_heap(&heap, &chunk, GRAINS * GRAIN);
        for (int step = 0; step < 300; step++) {
            uint64_t clock = support_random_below(&draws, CLOCKS);
            size_t bytes = (1 + (size_t)support_random_below(&draws, MOST)) * GRAIN;
            weir__heap_owner *owner = weir__heap_owner_find(&heap, clock);
            must(weir__heap_promise(&heap));
            if (owner != NULL && weir__heap_best(&heap, owner, bytes, GRAIN) != 0)
                out[count++] = take_best(&heap, owner, bytes, GRAIN);
            weir__heap_forget_promise(&heap);
            if (count > 0 && support_random_below(&draws, 2) == 0) {
                size_t at = (size_t)support_random_below(&draws, count);
                give_one(&heap, out[at], &draws);
                out[at] = out[--count];
            }
            must_meet_the_same(&heap, &chunk, &draws);
        }
        weir__heap_verify(&heap);
        weir__heap_close(&heap);
    }
}

/* All are of one block. */
static size_t meet_smaller(void *context, weir__heap_run run, size_t bytes)
{
    runs_met *all = context;
    must_equal(run.first, run.last);
    all->count++;
    return all->limit != 0 ? all->limit : bytes;
}

static void what_is_too_large_is_not_looked_at(void **state)
{
    (void)state;
    weir__heap heap;
    weir__chunk chunk = { 0 };
    uint32_t blocks[RUNS];
    open_heap(&heap, &chunk, GRAINS * GRAIN);
    weir__heap_owner *owner = weir__heap_owner_find(&heap, 0);
    for (uint32_t i = 0; i < RUNS; i++) {
        must(weir__heap_promise(&heap));
        blocks[i] = take_best(&heap, owner, (i + 1) * GRAIN, GRAIN);
        (void)take_best(&heap, owner, GRAIN, GRAIN);
        weir__heap_forget_promise(&heap);
    }
    for (uint32_t i = 0; i < RUNS; i++) {
        must(weir__heap_promise(&heap) && weir__heap_owner_get(&heap, 1, NULL) != NULL);
        come_back(&heap, blocks[i]);
        (void)weir__heap_release(&heap, blocks[i], (weir__mark){ 1, 1 });
        weir__heap_forget_promise(&heap);
    }
    const size_t limits[] = { 0, 4 * GRAIN, SIZE_MAX }, met[] = { 2, 4, RUNS + 1 };
    for (size_t i = 0; i < 3; i++) {
        runs_met all = { .heap = &heap, .limit = limits[i] };
        weir__heap_each_run(&heap, GRAIN, GRAIN, meet_smaller, &all);
        must_equal(all.count, met[i]);
    }
    weir__heap_close(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_run_is_met_once),
        cmocka_unit_test(what_is_too_large_is_not_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
