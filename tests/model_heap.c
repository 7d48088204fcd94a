/* model_heap.c - the heap against a naive one.
 *
 * The model is an array of blocks for each chunk, searched from end to end. Random
 * programs run on both: every request must get the same address, every question
 * the same answer, and after every step the heap's records must agree with
 * themselves and with the model's. Addresses are made up; nobody touches them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "heap.h"
#include "internal.h"
#include "support.h"

#define GRAIN         WEIR__HEAP_GRAIN
#define CHUNKS_MAX    6u
#define CHUNK_GRAINS  64u
#define BLOCKS_MAX    256u
#define SLOT_BYTES    ((uintptr_t)1 << 20)
#define BASE          ((uintptr_t)1 << 40)

typedef struct model_block {
    uintptr_t base;
    size_t bytes;
    weir__heap_state state; /* FREE, LIMBO or OUT */
    weir__mark mark;
} model_block;

typedef struct model_chunk {
    weir__chunk record;
    uintptr_t slot;
    size_t count;
    model_block blocks[BLOCKS_MAX];
} model_chunk;

typedef struct model {
    weir__heap heap;
    model_chunk *chunks[CHUNKS_MAX]; /* oldest first */
    size_t chunk_count;
    uint64_t state;                  /* of the random numbers */
    uint64_t clocks;                 /* how many there are, from 0 */
    uint64_t last_number;
    uint64_t usable;                 /* the clocks that a run may have, a bit each */
} model;

static uint64_t below(model *m, uint64_t n)
{
    return support_random_below(&m->state, n);
}

/* ---- the naive heap ---- */

static bool model_fits(uintptr_t base, uintptr_t end, size_t bytes, size_t alignment)
{
    while (base % alignment != 0)
        base += GRAIN;
    return base < end && end - base >= bytes;
}

static void model_remove(model_chunk *chunk, size_t at)
{
    memmove(&chunk->blocks[at], &chunk->blocks[at + 1],
            (chunk->count - at - 1) * sizeof(model_block));
    chunk->count--;
}

static void model_insert(model_chunk *chunk, size_t at, model_block block)
{
    must(chunk->count < BLOCKS_MAX);
    memmove(&chunk->blocks[at + 1], &chunk->blocks[at],
            (chunk->count - at) * sizeof(model_block));
    chunk->blocks[at] = block;
    chunk->count++;
}

static void model_merge(model_chunk *chunk)
{
    for (size_t i = 0; i + 1 < chunk->count;) {
        model_block *a = &chunk->blocks[i], *b = a + 1;
        if (a->state != WEIR__HEAP_FREE || b->state != WEIR__HEAP_FREE ||
            a->mark.clock != b->mark.clock) {
            i++;
            continue;
        }
        a->bytes += b->bytes;
        if (a->mark.number < b->mark.number)
            a->mark.number = b->mark.number;
        model_remove(chunk, i + 1);
    }
}

static model_block *model_best(model *m, uint64_t clock, size_t bytes, size_t alignment)
{
    model_block *best = NULL;
    for (size_t c = 0; c < m->chunk_count; c++) {
        for (size_t i = 0; i < m->chunks[c]->count; i++) {
            model_block *b = &m->chunks[c]->blocks[i];
            if (b->state == WEIR__HEAP_FREE && b->mark.clock == clock &&
                model_fits(b->base, b->base + b->bytes, bytes, alignment) &&
                (best == NULL || b->bytes < best->bytes ||
                 (b->bytes == best->bytes && b->base < best->base)))
                best = b;
        }
    }
    return best;
}

/* Whether the i-th to the j-th block of a chunk may all be part of a run. */
static bool model_usable(const model *m, const model_chunk *chunk, size_t i, size_t j)
{
    for (; i <= j; i++) {
        const model_block *b = &chunk->blocks[i];
        if (b->state == WEIR__HEAP_OUT || !(m->usable >> b->mark.clock & 1))
            return false;
    }
    return true;
}

typedef struct model_run {
    model_chunk *chunk;
    size_t first, last, bytes;
} model_run;

static model_run model_find_run(model *m, size_t bytes, size_t alignment)
{
    model_run best = { NULL, 0, 0, SIZE_MAX };
    for (size_t c = 0; c < m->chunk_count; c++) {
        model_chunk *chunk = m->chunks[c];
        for (size_t i = 0; i < chunk->count; i++) {
            for (size_t j = i; j < chunk->count && model_usable(m, chunk, i, j); j++) {
                uintptr_t base = chunk->blocks[i].base;
                uintptr_t end = chunk->blocks[j].base + chunk->blocks[j].bytes;
                if (model_fits(base, end, bytes, alignment) && end - base < best.bytes)
                    best = (model_run){ chunk, i, j, end - base };
            }
        }
    }
    return best;
}

/* Cuts a block out of a run, and returns its address. */
static uintptr_t model_hand_out(model_run run, size_t bytes, size_t alignment,
                                weir__mark front, weir__mark rest)
{
    model_chunk *chunk = run.chunk;
    model_block whole = chunk->blocks[run.first];
    whole.bytes = run.bytes;
    for (size_t i = run.first; i <= run.last; i++)
        model_remove(chunk, run.first);

    uintptr_t base = whole.base;
    while (base % alignment != 0)
        base += GRAIN;
    size_t at = run.first;
    if (base != whole.base)
        model_insert(chunk, at++, (model_block){ whole.base, base - whole.base,
                                                 WEIR__HEAP_FREE, front });
    model_insert(chunk, at++, (model_block){ base, bytes, WEIR__HEAP_OUT, { 0, 0 } });
    size_t left = whole.base + whole.bytes - base - bytes;
    if (left > 0)
        model_insert(chunk, at, (model_block){ base + bytes, left, WEIR__HEAP_FREE,
                                               rest });
    model_merge(chunk);
    return base;
}

static size_t model_largest(const model *m)
{
    size_t largest = 0;
    for (size_t c = 0; c < m->chunk_count; c++) {
        size_t run = 0;
        for (size_t i = 0; i < m->chunks[c]->count; i++) {
            const model_block *b = &m->chunks[c]->blocks[i];
            run = b->state == WEIR__HEAP_OUT ? 0 : run + b->bytes;
            largest = run > largest ? run : largest;
        }
    }
    return largest;
}

/* A random block in the given state, or null. */
static model_block *model_pick(model *m, weir__heap_state state, model_chunk **in)
{
    model_block *picked = NULL;
    uint64_t seen = 0;
    for (size_t c = 0; c < m->chunk_count; c++) {
        for (size_t i = 0; i < m->chunks[c]->count; i++) {
            if (m->chunks[c]->blocks[i].state == state && below(m, ++seen) == 0) {
                picked = &m->chunks[c]->blocks[i];
                *in = m->chunks[c];
            }
        }
    }
    return picked;
}

/* ---- both must say the same ---- */

static void compare_blocks(const model *m)
{
    for (size_t c = 0; c < m->chunk_count; c++) {
        const weir__heap_block *b = m->chunks[c]->record.first;
        for (size_t i = 0; i < m->chunks[c]->count; i++, b = b->after) {
            const model_block *want = &m->chunks[c]->blocks[i];
            must(b != NULL && b->base == want->base && b->bytes == want->bytes);
            must(b->state == want->state);
            must(b->state == WEIR__HEAP_OUT || (b->mark.clock == want->mark.clock &&
                                                b->mark.number == want->mark.number));
            must((weir__heap_find(&m->heap, (void *)b->base) == b) ==
                 (b->state == WEIR__HEAP_OUT));
            must(weir__heap_around(&m->heap, (char *)b->base + 1) == b);
        }
        must(b == NULL);
    }
}

static void compare_clocks(model *m)
{
    uint64_t got = 0;
    for (uint64_t clock = 0; clock <= m->clocks; clock++) {
        bool there = model_best(m, clock, GRAIN, GRAIN) != NULL;
        if (!there)
            continue;
        must(weir__heap_next_clock(&m->heap, &got) && got == clock);
        got++;
    }
    must(!weir__heap_next_clock(&m->heap, &got));
}

static void compare(model *m)
{
    weir__heap_verify(&m->heap);
    compare_blocks(m);
    compare_clocks(m);
    must_equal(weir__heap_largest_free(&m->heap), model_largest(m));
}

/* ---- what a program does ---- */

static size_t random_bytes(model *m)
{
    uint64_t grains = below(m, 4) == 0 ? CHUNK_GRAINS : 8;
    return (size_t)(below(m, grains) + 1) * GRAIN;
}

static size_t random_alignment(model *m)
{
    return below(m, 3) != 0 ? GRAIN : GRAIN << below(m, 4);
}

static weir__mark random_mark(model *m)
{
    weir__mark mark = { below(m, m->clocks), 0 };
    if (mark.clock != 0)
        mark.number = below(m, 4) == 0 ? below(m, 1000) : ++m->last_number;
    return mark;
}

static void do_add_chunk(model *m)
{
    if (m->chunk_count == CHUNKS_MAX)
        return;
    uintptr_t slot = below(m, CHUNKS_MAX * 2);
    for (size_t c = 0; c < m->chunk_count; c++) {
        if (m->chunks[c]->slot == slot)
            return;
    }
    model_chunk *chunk = test_calloc(1, sizeof *chunk);
    size_t bytes = (size_t)(below(m, CHUNK_GRAINS) + 1) * GRAIN;
    weir__mark mark = random_mark(m);
    chunk->slot = slot;
    uintptr_t base = BASE + slot * SLOT_BYTES + below(m, 8) * GRAIN;
    model_insert(chunk, 0, (model_block){ base, bytes, WEIR__HEAP_FREE, mark });
    m->chunks[m->chunk_count++] = chunk;

    must(weir__heap_promise(&m->heap));
    weir__heap_block *block = weir__heap_add_chunk(&m->heap, &chunk->record,
                                                   chunk->blocks[0].base, bytes);
    weir__heap_release(&m->heap, block, mark);
    weir__heap_forget_promise(&m->heap);
}

static void do_extend_chunk(model *m)
{
    if (m->chunk_count == 0)
        return;
    model_chunk *chunk = m->chunks[below(m, m->chunk_count)];
    if (chunk->record.bytes > 4 * CHUNK_GRAINS * GRAIN || chunk->count > BLOCKS_MAX / 2)
        return;
    size_t bytes = random_bytes(m);
    weir__mark mark = random_mark(m);
    model_insert(chunk, chunk->count,
                 (model_block){ chunk->record.base + chunk->record.bytes, bytes,
                                WEIR__HEAP_FREE, mark });
    model_merge(chunk);

    must(weir__heap_promise(&m->heap));
    weir__heap_block *block = weir__heap_extend_chunk(&m->heap, &chunk->record, bytes);
    weir__heap_release(&m->heap, block, mark);
    weir__heap_forget_promise(&m->heap);
}

static void do_remove_chunk(model *m)
{
    if (m->chunk_count == 0)
        return;
    size_t at = below(m, m->chunk_count);
    model_chunk *chunk = m->chunks[at];
    bool idle = true;
    for (size_t i = 0; i < chunk->count; i++)
        idle = idle && chunk->blocks[i].state != WEIR__HEAP_OUT;
    must((chunk->record.busy == 0) == idle);
    if (!idle)
        return;

    for (weir__heap_block *b = chunk->record.first; b != NULL; b = b->after)
        weir__heap_hold(&m->heap, b);
    weir__heap_remove_chunk(&m->heap, &chunk->record);
    test_free(chunk);
    m->chunk_count--;
    memmove(&m->chunks[at], &m->chunks[at + 1],
            (m->chunk_count - at) * sizeof m->chunks[0]);
}

static void do_allocate(model *m)
{
    uint64_t clock = below(m, m->clocks);
    size_t bytes = random_bytes(m), alignment = random_alignment(m);
    model_block *want = model_best(m, clock, bytes, alignment);
    weir__heap_block *got = weir__heap_best(&m->heap, clock, bytes, alignment);
    must((want == NULL) == (got == NULL));
    if (want == NULL)
        return;
    must(got->base == want->base && got->bytes == want->bytes);

    model_run run = { NULL, 0, 0, want->bytes };
    for (size_t c = 0; c < m->chunk_count; c++) {
        if (want >= m->chunks[c]->blocks && want < m->chunks[c]->blocks + BLOCKS_MAX)
            run.chunk = m->chunks[c];
    }
    run.first = run.last = (size_t)(want - run.chunk->blocks);
    weir__mark mark = want->mark;
    uintptr_t base = model_hand_out(run, bytes, alignment, mark, mark);

    must(weir__heap_promise(&m->heap));
    weir__heap_hold(&m->heap, got);
    got = weir__heap_hand_out(&m->heap, (weir__heap_run){ got, got }, bytes, alignment,
                              mark, mark);
    weir__heap_forget_promise(&m->heap);
    must(got->base == base && got->bytes == bytes);
}

static bool is_usable(void *context, const weir__heap_block *block)
{
    const model *m = context;
    return m->usable >> block->mark.clock & 1;
}

static void do_allocate_run(model *m)
{
    size_t bytes = random_bytes(m), alignment = random_alignment(m);
    m->usable = support_random(&m->state) | support_random(&m->state);
    model_run want = model_find_run(m, bytes, alignment);
    weir__heap_run got = weir__heap_find_run(&m->heap, bytes, alignment, is_usable, m);
    must((want.chunk == NULL) == (got.first == NULL));
    if (want.chunk == NULL)
        return;
    must(got.first->base == want.chunk->blocks[want.first].base);
    must(got.last->base == want.chunk->blocks[want.last].base);

    weir__mark front = random_mark(m), rest = random_mark(m);
    uintptr_t base = model_hand_out(want, bytes, alignment, front, rest);

    must(weir__heap_promise(&m->heap));
    for (weir__heap_block *b = got.first;; b = b->after) {
        weir__heap_hold(&m->heap, b);
        if (b == got.last)
            break;
    }
    weir__heap_block *block =
        weir__heap_hand_out(&m->heap, got, bytes, alignment, front, rest);
    weir__heap_forget_promise(&m->heap);
    must(block->base == base && block->bytes == bytes);
}

/* With some chance behind several marks, then in limbo. */
static void do_free(model *m)
{
    model_chunk *chunk;
    model_block *out = model_pick(m, WEIR__HEAP_OUT, &chunk);
    if (out == NULL)
        return;
    weir__mark mark = random_mark(m);
    weir__heap_block *block = weir__heap_find(&m->heap, (void *)out->base);
    must(block != NULL && block->bytes == out->bytes);
    weir__heap_begin_return(&m->heap, block);
    weir__heap_verify(&m->heap);

    out->state = WEIR__HEAP_FREE;
    out->mark = mark;
    while (below(m, 8) == 0) {
        if (weir__heap_add_mark(&m->heap, block, random_mark(m)))
            out->state = WEIR__HEAP_LIMBO;
    }
    model_merge(chunk);
    weir__heap_release(&m->heap, block, mark);
}

/* "Done" is a mark below a number, and each of the few that remain must be there. */
static bool is_below(void *context, weir__mark mark)
{
    return mark.number < *(const uint64_t *)context;
}

/* A block in limbo loses the marks that are done; if one is left, it is free behind
 * it. */
static void do_settle(model *m)
{
    model_chunk *chunk;
    model_block *waits = model_pick(m, WEIR__HEAP_LIMBO, &chunk);
    if (waits == NULL)
        return;
    weir__heap_block *block = weir__heap_around(&m->heap, (void *)waits->base);
    uint64_t done = below(m, m->last_number + 2), open = 0, lowest = UINT64_MAX;
    for (const weir__heap_block *b = block; b != NULL; b = b->more) {
        open += b->mark.number >= done;
        if (b->mark.number >= done && b->mark.number < lowest)
            lowest = b->mark.number;
    }
    weir__heap_hold(&m->heap, block);
    weir__heap_drop_done(&m->heap, block, is_below, &done);

    uint64_t left = 0;
    for (const weir__heap_block *b = block; b != NULL; b = b->more) {
        must(open == 0 || b->mark.number >= lowest);
        left++;
    }
    must_equal(left, open > 0 ? open : 1);
    waits->mark = block->mark;
    if (left == 1)
        waits->state = WEIR__HEAP_FREE;
    model_merge(chunk);
    weir__heap_release(&m->heap, block, block->mark);
}

static void do_anything(model *m, uint64_t favour_free)
{
    uint64_t dice = below(m, 100);
    if (dice < 3)
        do_add_chunk(m);
    else if (dice < 5)
        do_remove_chunk(m);
    else if (dice < 7)
        do_extend_chunk(m);
    else if (dice < 12)
        do_settle(m);
    else if (dice < 12 + favour_free)
        do_free(m);
    else if (dice < 85)
        do_allocate(m);
    else
        do_allocate_run(m);
}

/* ---- the tests ---- */

static void heap_agrees_with_the_model(void **state)
{
    (void)state;
    uint64_t programs = support_bound("model_heap.programs", 1000, 20000);
    size_t live = weir__host_live();
    for (uint64_t i = 0; i < programs; i++) {
        static const uint64_t clocks[] = { 1, 2, 4, 16, 60 };
        model m = { .state = support_seed(i) };
        weir__heap_init(&m.heap);
        m.clocks = clocks[below(&m, sizeof clocks / sizeof clocks[0])];
        uint64_t favour_free = 20 + below(&m, 30);
        for (int step = 0; step < 300; step++) {
            do_anything(&m, favour_free);
            compare(&m);
        }
        while (m.chunk_count > 0)
            test_free(m.chunks[--m.chunk_count]);
        weir__heap_close(&m.heap);
        must_equal(weir__host_live(), live);
    }
}

/* Giving back asks for no memory, and a promise that fails changes nothing. */
static void heap_needs_memory_only_to_promise(void **state)
{
    (void)state;
    uint64_t programs = support_bound("model_heap.programs_without_memory", 30, 300);
    for (uint64_t i = 0; i < programs; i++) {
        model m = { .state = support_seed(i), .clocks = 4 };
        weir__heap_init(&m.heap);
        for (int step = 0; step < 200; step++) {
            weir__host_fail_at(1, true);
            if (weir__heap_promise(&m.heap))
                weir__heap_forget_promise(&m.heap);
            weir__heap_verify(&m.heap);
            uint64_t before = weir__host_calls();
            do_free(&m);
            do_settle(&m);
            do_remove_chunk(&m);
            must_equal(weir__host_calls(), before);
            weir__host_fail_at(0, false);
            compare(&m);
            for (int j = 0; j < 3; j++)
                do_anything(&m, 10);
            compare(&m);
        }
        while (m.chunk_count > 0)
            test_free(m.chunks[--m.chunk_count]);
        weir__heap_close(&m.heap);
    }
}

/* Further marks never use up the records that a request was promised. */
static void heap_keeps_what_it_promised(void **state)
{
    (void)state;
    weir__heap heap;
    weir__chunk chunk = { 0 };
    weir__mark mark = { 1, 1 };
    weir__heap_init(&heap);
    must(weir__heap_promise(&heap));
    weir__heap_block *all = weir__heap_add_chunk(&heap, &chunk, BASE, 64 * GRAIN);
    weir__heap_run run = { all, all };
    weir__heap_block *out = weir__heap_hand_out(&heap, run, GRAIN, GRAIN, mark, mark);
    weir__heap_forget_promise(&heap);

    must(weir__heap_promise(&heap));
    weir__heap_begin_return(&heap, out);
    while (weir__heap_add_mark(&heap, out, mark))
        weir__heap_verify(&heap);
    weir__heap_release(&heap, out, mark);
    weir__heap_block *best = weir__heap_best(&heap, 1, GRAIN, 8 * GRAIN);
    must(best != NULL);
    weir__heap_hold(&heap, best);
    run = (weir__heap_run){ best, best };
    out = weir__heap_hand_out(&heap, run, GRAIN, 8 * GRAIN, mark, mark);
    weir__heap_forget_promise(&heap);
    must(out->base == BASE + 8 * GRAIN);
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

/* The tree is no deeper than a random one also when addresses and sizes only grow. */
static void heap_is_quick_in_any_order(void **state)
{
    (void)state;
    size_t blocks = (size_t)support_bound("model_heap.blocks", 20000, 200000);
    weir__heap heap;
    weir__chunk chunk = { 0 };
    weir__heap_init(&heap);
    must(weir__heap_promise(&heap));
    weir__heap_block *whole =
        weir__heap_add_chunk(&heap, &chunk, BASE, 2 * blocks * GRAIN);
    weir__heap_release(&heap, whole, WEIR__MARK_DONE);
    weir__heap_forget_promise(&heap);
    for (size_t i = 0; i < 2 * blocks; i++) {
        must(weir__heap_promise(&heap));
        weir__heap_block *b = weir__heap_best(&heap, 0, GRAIN, GRAIN);
        must(b != NULL && b->base == BASE + i * GRAIN);
        weir__heap_hold(&heap, b);
        weir__heap_hand_out(&heap, (weir__heap_run){ b, b }, GRAIN, GRAIN, b->mark,
                            b->mark);
        weir__heap_forget_promise(&heap);
    }
    for (size_t i = 0; i < 2 * blocks; i += 2) {
        weir__heap_block *b = weir__heap_find(&heap, (void *)(BASE + i * GRAIN));
        weir__heap_begin_return(&heap, b);
        weir__heap_release(&heap, b, WEIR__MARK_DONE);
    }
    size_t deepest = 0;
    for (size_t i = 0; i < 2 * blocks; i += 2) {
        size_t depth = 0;
        const weir__heap_block *b = heap.root;
        for (; b->base != BASE + i * GRAIN; depth++)
            b = b->base < BASE + i * GRAIN ? b->right : b->left;
        deepest = depth > deepest ? depth : deepest;
    }
    must(deepest < 64);
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heap_agrees_with_the_model),
        cmocka_unit_test(heap_needs_memory_only_to_promise),
        cmocka_unit_test(heap_keeps_what_it_promised),
        cmocka_unit_test(heap_is_quick_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
