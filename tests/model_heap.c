/* model_heap.c - the heap against a naive one.
 *
 * The model is an array of blocks for each chunk, searched from end to end. Random
 * programs run on both: every request must get the same address, every question
 * the same answer, and after every step the heap's records must agree with
 * themselves and with the model's. Addresses are made up; nobody touches them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "heap_internal.h"
#include "internal.h"
#include "support.h"
#include "support_naive_heap.h"

#define SLOT_BYTES    ((uintptr_t)1 << 20)
#define BASE          ((uintptr_t)1 << 40)
#define FAR           ((uintptr_t)5 << 40)

#ifdef SUPPORT_SHIPPED /* and so it counts nothing */
#define PROGRAMS support_bound("model_heap_shipped.programs", 300, 3000)
static size_t host_live(void)
{
    return 0;
}
#else
#define PROGRAMS support_bound("model_heap.programs", 1000, 20000)
static size_t host_live(void)
{
    return weir__host_live();
}
#endif

/* ---- both must say the same ---- */

/* By walking; and by its address, if it must be or may be found so. */
static uint32_t find(const model *m, const model_block *b)
{
    uint32_t id = weir__heap_around(&m->heap, (void *)b->base);
    uint32_t found = weir__heap_find(&m->heap, (void *)b->base);
    bool is_taken = b->state == WEIR__HEAP_OUT || b->state == WEIR__HEAP_CACHED;
    must(found == id || (found == 0 && !is_taken));
    return id;
}

static void compare_blocks(const model *m)
{
    for (size_t c = 0; c < m->chunk_count; c++) {
        const weir__chunk *chunk = &m->chunks[c]->record;
        uint32_t id = weir__heap_first(&m->heap, chunk), last = 0;
        for (size_t i = 0; i < m->chunks[c]->count; i++) {
            const model_block *want = &m->chunks[c]->blocks[i];
            const weir__heap_block *b = weir__heap_block_of(&m->heap, id);
            must(id != 0 && weir__heap_base(b) == want->base &&
                 weir__heap_bytes(b) == want->bytes);
            must(weir__heap_state_of(b) == want->state);
            if (model_is_idle(want)) {
                weir__mark mark = weir__heap_mark(&m->heap, id);
                must(mark.clock == want->mark.clock);
                must(mark.number == want->mark.number);
            }
            if (want->state == WEIR__HEAP_OUT) {
                uint32_t slot = atomic_load_explicit(&b->link, memory_order_relaxed);
                const weir__heap_owner *owner = weir__heap_owner_at(&m->heap, slot);
                must(!owner->is_spare && owner->clock == want->mark.clock);
            }
            must(find(m, want) == id && weir__heap_before(&m->heap, id) == last);
            must(weir__heap_find(&m->heap, (char *)want->base + 1) == 0);
            must(weir__heap_around(&m->heap, (char *)want->base + 1) == id);
            last = id;
            id = weir__heap_after(&m->heap, id);
        }
        must(id == 0 && weir__heap_last(&m->heap, chunk) == last);
    }
}

static size_t model_bytes_of(const model *m, uint64_t clock)
{
    size_t bytes = 0;
    for (size_t c = 0; c < m->chunk_count; c++) {
        for (size_t i = 0; i < m->chunks[c]->count; i++) {
            const model_block *b = &m->chunks[c]->blocks[i];
            if (b->state == WEIR__HEAP_FREE && b->mark.clock == clock)
                bytes += b->bytes;
        }
    }
    return bytes;
}

static void compare_owners(const model *m)
{
    size_t owning = 0, seen = 0;
    for (uint64_t clock = 0; clock < m->clocks; clock++) {
        size_t bytes = model_bytes_of(m, clock);
        const weir__heap_owner *owner = weir__heap_owner_find(&m->heap, clock);
        must_equal(owner != NULL ? owner->free_bytes : 0, bytes);
        owning += bytes > 0;
    }
    const weir__heap_owner *owner;
    for (uint32_t slot = 0; (owner = weir__heap_next_owner(&m->heap, &slot)) != NULL;
         slot++, seen++)
        must(owner->slot == slot && owner->free_blocks > 0);
    must(seen == owning && m->heap.owning_count == owning);
}

static void compare(model *m)
{
    weir__heap_verify(&m->heap);
    compare_blocks(m);
    compare_owners(m);
    must_equal(weir__heap_largest_free(&m->heap), model_largest(m));
}

/* ---- what a program does ---- */

/* A promise, which makes FREE what was RETURNED: behind the latest mark of its clock
 * that the heap remembers, which is no earlier than its own. */
static bool promise(model *m)
{
    for (size_t c = 0; c < m->chunk_count; c++) {
        for (size_t i = 0; i < m->chunks[c]->count; i++) {
            model_block *b = &m->chunks[c]->blocks[i];
            if (b->state != WEIR__HEAP_RETURNED)
                continue;
            weir__mark mark = weir__heap_mark(&m->heap, find(m, b));
            must(mark.clock == b->mark.clock && mark.number >= b->mark.number);
            b->mark = mark;
        }
    }
    if (!weir__heap_promise(&m->heap))
        return false;
    for (size_t c = 0; c < m->chunk_count; c++) {
        for (size_t i = 0; i < m->chunks[c]->count; i++) {
            model_block *b = &m->chunks[c]->blocks[i];
            if (b->state == WEIR__HEAP_RETURNED)
                b->state = WEIR__HEAP_FREE;
        }
        model_merge(m->chunks[c]);
    }
    return true;
}

static size_t random_bytes(model *m)
{
    uint64_t grains = model_below(m, 4) == 0 ? CHUNK_GRAINS : 8;
    return (size_t)(model_below(m, grains) + 1) * GRAIN;
}

static size_t random_alignment(model *m)
{
    return model_below(m, 3) != 0 ? GRAIN : GRAIN << model_below(m, 4);
}

static weir__mark random_mark(model *m)
{
    weir__mark mark = { model_below(m, m->clocks), 0 };
    if (mark.clock != 0)
        mark.number = model_below(m, 4) == 0 ? model_below(m, 1000) : ++m->last_number;
    return mark;
}

/* Where a chunk may begin, or 0: in a slot that is not in use, or right behind another
 * chunk, which is then not made longer. */
static uintptr_t place_for_chunk(model *m, uintptr_t *slot)
{
    const uintptr_t behind = CHUNKS_MAX * 2; /* added to the slot of the other */
    *slot = model_below(m, behind);
    const model_chunk *other = NULL;
    for (size_t c = 0; c < m->chunk_count; c++) {
        if (m->chunks[c]->slot == *slot + behind)
            return 0;
        if (m->chunks[c]->slot == *slot)
            other = m->chunks[c];
    }
    if (other == NULL) /* some far apart: each bit of an address counts */
        return BASE + *slot * SLOT_BYTES + (*slot & 3) * FAR +
               model_below(m, 8) * GRAIN;
    *slot += behind;
    return other->record.base + other->record.bytes;
}

static void do_add_chunk(model *m)
{
    uintptr_t slot, base;
    if (m->chunk_count == CHUNKS_MAX || (base = place_for_chunk(m, &slot)) == 0)
        return;
    model_chunk *chunk = test_calloc(1, sizeof *chunk);
    size_t bytes = (size_t)(model_below(m, CHUNK_GRAINS) + 1) * GRAIN;
    weir__mark mark = random_mark(m);
    chunk->slot = slot;
    must(promise(m));
    model_insert(chunk, 0, (model_block){ base, bytes, WEIR__HEAP_FREE, mark });
    m->chunks[m->chunk_count++] = chunk;
    must_ok(weir__heap_reserve(&m->heap, base, bytes));
    uint32_t block = weir__heap_add_chunk(&m->heap, &chunk->record, base, bytes);
    weir__heap_release(&m->heap, block, mark);
    weir__heap_forget_promise(&m->heap);
}

static void do_extend_chunk(model *m)
{
    if (m->chunk_count == 0)
        return;
    model_chunk *chunk = m->chunks[model_below(m, m->chunk_count)];
    if (chunk->record.bytes > 4 * CHUNK_GRAINS * GRAIN || chunk->count > BLOCKS_MAX / 2)
        return;
    size_t bytes = random_bytes(m);
    weir__mark mark = random_mark(m);
    uintptr_t end = chunk->record.base + chunk->record.bytes;
    for (size_t c = 0; c < m->chunk_count; c++) {
        if (m->chunks[c]->record.base == end)
            return;
    }
    must(promise(m));
    model_insert(chunk, chunk->count,
                 (model_block){ end, bytes, WEIR__HEAP_FREE, mark });
    model_merge(chunk);
    must_ok(weir__heap_reserve(&m->heap, end, bytes));
    uint32_t block = weir__heap_extend_chunk(&m->heap, &chunk->record, bytes);
    weir__heap_release(&m->heap, block, mark);
    weir__heap_forget_promise(&m->heap);
}

static void do_remove_chunk(model *m)
{
    if (m->chunk_count == 0)
        return;
    size_t at = model_below(m, m->chunk_count);
    model_chunk *chunk = m->chunks[at];
    bool idle = true;
    for (size_t i = 0; i < chunk->count; i++)
        idle = idle && model_is_idle(&chunk->blocks[i]);
    must(weir__heap_chunk_is_idle(&m->heap, &chunk->record) == idle);
    if (!idle)
        return;

    for (uint32_t b = weir__heap_first(&m->heap, &chunk->record); b != 0;
         b = weir__heap_after(&m->heap, b))
        weir__heap_hold(&m->heap, b);
    weir__heap_remove_chunk(&m->heap, &chunk->record);
    test_free(chunk);
    m->chunk_count--;
    memmove(&m->chunks[at], &m->chunks[at + 1],
            (m->chunk_count - at) * sizeof m->chunks[0]);
}

/* It is given a link to a random owner, who stays while it is out. */
static void must_be_out(model *m, uint32_t id, uintptr_t base, size_t bytes)
{
    weir__heap_block *block = weir__heap_block_of(&m->heap, id);
    must(weir__heap_base(block) == base && weir__heap_bytes(block) == bytes);
    must(weir__heap_state_of(block) == WEIR__HEAP_OUT);
    const weir__heap_owner *owner =
        weir__heap_owner_get(&m->heap, model_below(m, m->clocks), NULL);
    atomic_store_explicit(&block->link, owner->slot, memory_order_relaxed);
    model_at(m, base)->mark.clock = owner->clock;
}

/* Its record stays where it is, or comes home at once. */
static uint32_t take_at_once(model *m, weir__heap_owner *owner, size_t bytes,
                             uint32_t best)
{
    uint32_t home = model_below(m, 2) == 0 ? WEIR__HEAP_HOMES
                                           : weir__heap_home_for(owner);
    weir__heap_taken taken = weir__heap_take_best(&m->heap, owner, bytes, home,
                                                  WEIR__HEAP_OUT, owner->slot);
    must((taken.block == NULL) == (best == 0));
    must(best == 0 || taken.block == weir__heap_block_of(&m->heap, taken.id));
    must(home != WEIR__HEAP_HOMES || taken.id == best);
    return taken.id;
}

static void do_allocate(model *m)
{
    uint64_t clock = model_below(m, m->clocks);
    size_t bytes = random_bytes(m), alignment = random_alignment(m);
    must(promise(m));
    model_block *want = model_best(m, clock, bytes, alignment);
    weir__heap_owner *owner = weir__heap_owner_get(&m->heap, clock, NULL);
    uint32_t got = weir__heap_best(&m->heap, owner, bytes, alignment);
    bool at_once = alignment <= GRAIN && model_below(m, 2) == 0;
    must((want == NULL) == (got == 0));
    if (want == NULL) {
        if (at_once)
            (void)take_at_once(m, owner, bytes, 0);
        weir__heap_forget_promise(&m->heap);
        return;
    }
    want = model_at(m, weir__heap_base(weir__heap_block_of(&m->heap, got)));
    must(model_is_good(m, want, clock, bytes, alignment));

    model_run run = { NULL, 0, 0, want->bytes };
    for (size_t c = 0; c < m->chunk_count; c++) {
        if (want >= m->chunks[c]->blocks && want < m->chunks[c]->blocks + BLOCKS_MAX)
            run.chunk = m->chunks[c];
    }
    run.first = run.last = (size_t)(want - run.chunk->blocks);
    weir__mark mark = want->mark;
    uintptr_t base = model_hand_out(run, bytes, alignment, mark, mark);

    if (at_once) {
        got = take_at_once(m, owner, bytes, got);
    } else {
        weir__heap_hold(&m->heap, got);
        got = weir__heap_hand_out(&m->heap, (weir__heap_run){ got, got }, bytes,
                                  alignment, mark, mark);
    }
    got = weir__heap_move_home(&m->heap, got, owner);
    weir__heap_forget_promise(&m->heap);
    must_be_out(m, got, base, bytes);
}

static bool is_usable(void *context, uint32_t block)
{
    const model *m = context;
    return m->usable >> weir__heap_mark(&m->heap, block).clock & 1;
}

static void do_allocate_run(model *m)
{
    size_t bytes = random_bytes(m), alignment = random_alignment(m);
    m->usable = support_random(&m->state) | support_random(&m->state);
    must(promise(m));
    model_run want = model_find_run(m, bytes, alignment);
    weir__heap_run got = weir__heap_find_run(&m->heap, bytes, alignment, is_usable, m);
    must((want.chunk == NULL) == (got.first == 0));
    if (want.chunk == NULL) {
        weir__heap_forget_promise(&m->heap);
        return;
    }
    must(got.first == find(m, &want.chunk->blocks[want.first]));
    must(got.last == find(m, &want.chunk->blocks[want.last]));

    weir__mark front = random_mark(m), rest = random_mark(m);
    must(weir__heap_owner_get(&m->heap, front.clock, NULL) != NULL);
    must(weir__heap_owner_get(&m->heap, rest.clock, NULL) != NULL);
    uintptr_t base = model_hand_out(want, bytes, alignment, front, rest);

    for (uint32_t b = got.first;; b = weir__heap_after(&m->heap, b)) {
        weir__heap_hold(&m->heap, b);
        if (b == got.last)
            break;
    }
    uint32_t block = weir__heap_hand_out(&m->heap, got, bytes, alignment, front, rest);
    block = weir__heap_move_home(&m->heap, block,
                                 weir__heap_owner_find(&m->heap, front.clock));
    weir__heap_forget_promise(&m->heap);
    must_be_out(m, block, base, bytes);
}

/* With some chance behind several marks, then in limbo. */
static void do_free(model *m)
{
    model_chunk *chunk;
    model_block *out = model_pick(m, WEIR__HEAP_OUT, &chunk);
    if (out == NULL)
        return;
    weir__mark mark = random_mark(m);
    uint32_t block = find(m, out);
    weir__heap_set_tag(weir__heap_block_of(&m->heap, block), WEIR__HEAP_CACHED);
    weir__heap_verify(&m->heap);

    out->state = WEIR__HEAP_FREE;
    while (model_below(m, 8) == 0) {
        if (weir__heap_add_mark(&m->heap, block, random_mark(m)))
            out->state = WEIR__HEAP_LIMBO;
    }
    if (!weir__heap_can_release(&m->heap, mark.clock)) {
        must_equal(m->heap.owner_spare_count, 0);
        mark = WEIR__MARK_DONE;
    }
    out->mark = mark;
    bool has_records = weir__heap_free_unpromised(&m->heap) > 0 &&
                       m->heap.row_spare_count > 0;
    block = weir__heap_release(&m->heap, block, mark);
    if (weir__heap_state_at(&m->heap, block) == WEIR__HEAP_RETURNED) {
        must(!has_records && block == find(m, out));
        out->state = WEIR__HEAP_RETURNED;
        m->returned++;
    }
    model_merge(chunk);
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
    uint32_t block = find(m, waits), cursor = 0;
    uint64_t done = model_below(m, m->last_number + 2), open = 0, lowest = UINT64_MAX;
    weir__mark mark;
    while (weir__heap_next_mark(&m->heap, block, &cursor, &mark)) {
        open += mark.number >= done;
        if (mark.number >= done && mark.number < lowest)
            lowest = mark.number;
    }
    weir__heap_hold(&m->heap, block);
    weir__heap_drop_done(&m->heap, block, is_below, &done);

    uint64_t left = 0;
    for (cursor = 0; weir__heap_next_mark(&m->heap, block, &cursor, &mark); left++)
        must(open == 0 || mark.number >= lowest);
    must_equal(left, open > 0 ? open : 1);
    must(weir__heap_has_more(&m->heap, block) == (left > 1));
    mark = weir__heap_mark(&m->heap, block);
    waits->mark = mark;
    bool has_row = m->heap.row_spare_count > 0;
    block = weir__heap_release(&m->heap, block, mark);
    if (left == 1)
        waits->state = WEIR__HEAP_FREE;
    if (weir__heap_state_at(&m->heap, block) == WEIR__HEAP_RETURNED) {
        must(left == 1 && !has_row && block == find(m, waits));
        waits->state = WEIR__HEAP_RETURNED;
        m->returned++;
    }
    model_merge(chunk);
}

static void do_anything(model *m, uint64_t favour_free)
{
    uint64_t dice = model_below(m, 100);
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
    uint64_t programs = PROGRAMS;
    size_t live = host_live();
    for (uint64_t i = 0; i < programs; i++) {
        static const uint64_t clocks[] = { 1, 2, 4, 16, 60 };
        model m = { .state = support_seed(i) };
        must(weir__heap_init(&m.heap));
        m.clocks = clocks[model_below(&m, sizeof clocks / sizeof clocks[0])];
        uint64_t favour_free = 20 + model_below(&m, 30);
        for (int step = 0; step < 300; step++) {
            do_anything(&m, favour_free);
            compare(&m);
        }
        while (m.chunk_count > 0)
            test_free(m.chunks[--m.chunk_count]);
        weir__heap_close(&m.heap);
        must_equal(host_live(), live);
    }
}

#ifndef SUPPORT_SHIPPED /* which cannot be made to fail */
/* Giving back asks for no memory, and a promise that fails changes nothing. */
static void heap_needs_memory_only_to_promise(void **state)
{
    (void)state;
    uint64_t programs = support_bound("model_heap.programs_without_memory", 30, 300);
    uint64_t returned = 0;
    for (uint64_t i = 0; i < programs; i++) {
        model m = { .state = support_seed(i), .clocks = 4 };
        must(weir__heap_init(&m.heap));
        for (int step = 0; step < 200; step++) {
            weir__host_fail_at(1, true);
            if (promise(&m))
                weir__heap_forget_promise(&m.heap);
            weir__heap_verify(&m.heap);
            uint64_t before = weir__host_calls();
            for (uint64_t frees = model_below(&m, 60); frees > 0; frees--)
                do_free(&m);
            do_settle(&m);
            do_remove_chunk(&m);
            must_equal(weir__host_calls(), before);
            weir__host_fail_at(0, false);
            compare(&m);
            for (int j = 0; j < 40; j++)
                do_anything(&m, 10);
            compare(&m);
        }
        while (m.chunk_count > 0)
            test_free(m.chunks[--m.chunk_count]);
        weir__heap_close(&m.heap);
        returned += m.returned;
    }
    must(returned > 0);
}
#endif

/* How many entries are looked at until a block's own is found. */
static uint32_t entries_looked_at(const weir__heap *heap, uint32_t id)
{
    const uintptr_t base = weir__heap_base(weir__heap_block_of(heap, id));
    weir__heap_probe probe = weir__heap_probe_begin(&heap->view, base);
    const uint32_t all = probe.left;
    uint32_t entry;
    while (weir__heap_entry_id(entry = weir__heap_probe_step(&probe)) != id)
        must(entry != 0);
    return all - probe.left;
}

/* Blocks of one size side by side, as many as begin in a segment: whatever the size,
 * their entries are spread. */
static void blocks_of_any_size_are_found_soon(void **state)
{
    (void)state;
    const size_t segment = (size_t)1 << WEIR__SEGMENT_BITS;
    for (size_t grains = 1; grains < 1500; grains += grains < 64 ? 1 : 7) {
        const size_t bytes = grains * WEIR__HEAP_GRAIN, count = segment / bytes;
        weir__heap heap;
        weir__chunk chunk = { 0 };
        must(weir__heap_init(&heap) && weir__heap_promise(&heap));
        must_ok(weir__heap_reserve(&heap, BASE, count * bytes));
        uint32_t all = weir__heap_add_chunk(&heap, &chunk, BASE, count * bytes);
        weir__heap_release(&heap, all, WEIR__MARK_DONE);
        weir__heap_forget_promise(&heap);
        weir__heap_owner *done = weir__heap_owner_at(&heap, WEIR__OWNER_DONE);
        for (size_t i = 0; i < count; i++) {
            must(weir__heap_promise(&heap));
            must(weir__heap_take_best(&heap, done, bytes, WEIR__HEAP_HOMES,
                                      WEIR__HEAP_OUT, 0).block != NULL);
            weir__heap_forget_promise(&heap);
        }
        must(weir__heap_promise(&heap)); /* the last of them may have wanted room */
        weir__heap_forget_promise(&heap);
        size_t looked_at = 0;
        for (uint32_t id = weir__heap_first(&heap, &chunk); id != 0;
             id = weir__heap_after(&heap, id))
            looked_at += entries_looked_at(&heap, id);
        must(looked_at <= count * 5); /* also where four neighbours have one hash */
        weir__heap_close(&heap);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heap_agrees_with_the_model),
        cmocka_unit_test(blocks_of_any_size_are_found_soon),
#ifndef SUPPORT_SHIPPED
        cmocka_unit_test(heap_needs_memory_only_to_promise),
#endif
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
