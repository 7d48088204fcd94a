/* test_heap_map.c - how the heap finds blocks by their address: what happens without
 * host memory for that, and where it ends. */
#include "internal.h"
#include "support_heap.h"

/* The next block of one grain. */
static uint32_t promise_and_take(weir__heap *heap, const weir__heap_owner *done)
{
    must(weir__heap_promise(heap));
    uint32_t id = take_best(heap, done, GRAIN, GRAIN);
    weir__heap_forget_promise(heap);
    return id;
}

/* Takes block after block while there is no host memory, until there are no records any
 * more: most of them have no entry in the map. Returns how many. */
static uint32_t take_beyond_the_map(weir__heap *heap, uint32_t ids[], uint32_t most)
{
    enum { PROMISES = 8 };
    const weir__heap_owner *done = weir__heap_owner_at(heap, WEIR__OWNER_DONE);
    for (int i = 0; i < PROMISES; i++) /* so that there are records */
        must(weir__heap_promise(heap));
    for (int i = 0; i < PROMISES; i++)
        weir__heap_forget_promise(heap);
    weir__host_fail_at(1, true);
    uint32_t taken = 0;
    while (heap->spare_count >= WEIR__HEAP_PROMISE && taken < most) {
        ids[taken++] = promise_and_take(heap, done);
        weir__heap_verify(heap);
    }
    must(taken > 16 && heap->missing > 8);
    return taken;
}

/* Where there is no host memory for a larger segment of the map, what finds no room
 * there is found all the same, goes, and has its entry as soon as there is memory. */
static void heap_finds_what_is_missing_from_the_map(void **state)
{
    (void)state;
    enum { BLOCKS = 24 };
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap(&heap, &chunk, BLOCKS * GRAIN);
    const weir__heap_owner *done = weir__heap_owner_at(&heap, WEIR__OWNER_DONE);
    uint32_t ids[BLOCKS];
    const uint32_t taken = take_beyond_the_map(&heap, ids, BLOCKS);
    for (uint32_t i = 0; i < taken; i++) {
        must_equal(weir__heap_find(&heap, (void *)(BASE + i * GRAIN)), ids[i]);
        must_equal(weir__heap_find(&heap, (void *)(BASE + i * GRAIN + 16)), 0);
    }
    must_equal(weir__heap_find(&heap, (void *)(BASE + BLOCKS * GRAIN)), 0);
    must_equal(weir__heap_first(&heap, &chunk), ids[0]);

    /* The first one goes, and comes again: without an entry, or with the one it had. */
    come_back(&heap, ids[0]);
    weir__heap_release(&heap, ids[0], WEIR__MARK_DONE);
    weir__heap_verify(&heap);
    ids[0] = promise_and_take(&heap, done);
    must_equal(weir__heap_first(&heap, &chunk), ids[0]);
    come_back(&heap, ids[taken - 1]);
    weir__heap_release(&heap, ids[taken - 1], WEIR__MARK_DONE);
    weir__heap_verify(&heap);
    must(heap.missing > 0);

    weir__host_fail_at(0, false);
    must(weir__heap_promise(&heap));
    weir__heap_forget_promise(&heap);
    must_equal(heap.missing, 0);
    weir__heap_verify(&heap);
    for (uint32_t i = 0; i < taken - 1; i++) {
        must_equal(weir__heap_map_find(&heap, BASE + i * GRAIN), ids[i]);
    }
    weir__heap_close(&heap);
}

/* Also where so few are left by then that they would have had room from the start. */
static void heap_maps_the_few_that_are_left(void **state)
{
    (void)state;
    enum { BLOCKS = 24 };
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap(&heap, &chunk, 2 * BLOCKS * GRAIN);
    uint32_t ids[BLOCKS];
    const uint32_t taken = take_beyond_the_map(&heap, ids, BLOCKS);
    for (uint32_t i = 0; i < taken - 2; i++) {
        come_back(&heap, ids[i]);
        weir__heap_release(&heap, ids[i], WEIR__MARK_DONE);
    }
    weir__heap_verify(&heap);
    must(heap.missing > 0);
    weir__host_fail_at(0, false);
    must(weir__heap_promise(&heap));
    weir__heap_forget_promise(&heap);
    must_equal(heap.missing, 0);
    for (uint32_t i = taken - 2; i < taken; i++)
        must_equal(weir__heap_map_find(&heap, BASE + i * GRAIN), ids[i]);
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

/* A segment that is made larger has room then: where it is full, and one block more
 * comes and goes, again and again, that is done once. It goes when it becomes part of
 * the one in front. */
static void heap_makes_a_segment_larger_once(void **state)
{
    (void)state;
    const uint32_t entries = 1u << WEIR__ENTRY_BITS, most = entries - entries / 4;
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap(&heap, &chunk, 4 * most * GRAIN);
    const weir__heap_owner *done = weir__heap_owner_at(&heap, WEIR__OWNER_DONE);
    const _Atomic uint32_t *first = NULL;
    uint32_t ids[2] = { 0 };
    for (uint32_t i = 0; i < most - 1; i++)
        (void)promise_and_take(&heap, done);
    for (uint32_t round = 0; round < 8; round++) {
        for (int i = 0; i < 2; i++)
            ids[i] = promise_and_take(&heap, done);
        for (int i = 0; i < 2; i++) {
            come_back(&heap, ids[i]);
            weir__heap_release(&heap, ids[i], WEIR__MARK_DONE);
        }
        if (round > 1)
            must(weir__heap_probe_begin(&heap.view, BASE).entries == first);
        first = weir__heap_probe_begin(&heap.view, BASE).entries;
    }
    must_equal(weir__heap_probe_begin(&heap.view, BASE).mask + 1, 2 * entries);
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

/* What was never handed out is not in the map; and what is given back stays there until
 * it is part of another. */
static void heap_maps_what_it_hands_out(void **state)
{
    (void)state;
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap(&heap, &chunk, 8 * GRAIN);
    const weir__heap_owner *done = weir__heap_owner_at(&heap, WEIR__OWNER_DONE);
    uint32_t first = promise_and_take(&heap, done);
    must_equal(weir__heap_map_find(&heap, BASE), first);
    must_equal(weir__heap_map_find(&heap, BASE + GRAIN), 0);
    uint32_t second = promise_and_take(&heap, done);
    must_equal(weir__heap_map_find(&heap, BASE + GRAIN), second);
    come_back(&heap, second);
    weir__heap_release(&heap, second, WEIR__MARK_DONE);
    must_equal(weir__heap_map_find(&heap, BASE + GRAIN), second);
    must_equal(promise_and_take(&heap, done), second);
    weir__heap_verify(&heap);
    uint32_t ids[] = { first, second };
    for (int i = 0; i < 2; i++) {
        come_back(&heap, ids[i]);
        weir__heap_release(&heap, ids[i], WEIR__MARK_DONE);
    }
    must_equal(weir__heap_map_find(&heap, BASE), first);
    must_equal(weir__heap_map_find(&heap, BASE + GRAIN), 0);
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

/* Where a chunk becomes two within a segment of the map, each needs that by itself. */
static void heap_splits_a_chunk_within_a_segment(void **state)
{
    (void)state;
    weir__heap heap;
    weir__chunk chunk = { 0 }, rest = { 0 };
    open_heap(&heap, &chunk, 8 * GRAIN);
    const weir__heap_owner *done = weir__heap_owner_at(&heap, WEIR__OWNER_DONE);
    must(weir__heap_promise(&heap));
    uint32_t first = take_best(&heap, done, 3 * GRAIN, GRAIN);
    uint32_t second = weir__heap_after(&heap, first); /* was never handed out */
    weir__heap_forget_promise(&heap);
    must(weir__heap_promise(&heap));
    weir__heap_split_chunk(&heap, &chunk, &rest, second);
    weir__heap_forget_promise(&heap);
    weir__heap_verify(&heap);
    must_equal(rest.base, BASE + 3 * GRAIN);
    must_equal(weir__heap_map_find(&heap, rest.base), second);
    must_equal(weir__heap_first(&heap, &rest), second);

    come_back(&heap, first);
    weir__heap_release(&heap, first, WEIR__MARK_DONE);
    weir__heap_hold(&heap, first);
    weir__heap_remove_chunk(&heap, &chunk);
    weir__heap_verify(&heap);
    must_equal(weir__heap_find(&heap, (void *)BASE), 0);
    must_equal(weir__heap_find(&heap, (void *)rest.base), second);
    weir__heap_close(&heap);
}

/* What says where segments are lies in several pages: a chunk may begin in one and end
 * in another, of words and of counts. */
static void heap_has_chunks_over_several_pages(void **state)
{
    (void)state;
    const size_t words = (size_t)1 << 16; /* in the largest of pages, and more */
    const size_t segment = (size_t)1 << WEIR__SEGMENT_BITS;
    const uintptr_t line = BASE + words * segment;
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap_at(&heap, &chunk, line - 2 * segment, 4 * segment);
    const weir__heap_owner *done = weir__heap_owner_at(&heap, WEIR__OWNER_DONE);
    uint32_t ids[4];
    for (size_t i = 0; i < 4; i++) {
        must(weir__heap_promise(&heap));
        ids[i] = take_best(&heap, done, segment, GRAIN);
        weir__heap_forget_promise(&heap);
        must_equal(base_of(&heap, ids[i]), line + i * segment - 2 * segment);
        must_equal(weir__heap_map_find(&heap, base_of(&heap, ids[i])), ids[i]);
    }
    weir__heap_verify(&heap);
    for (size_t i = 0; i < 4; i++) {
        come_back(&heap, ids[i]);
        weir__heap_release(&heap, ids[i], WEIR__MARK_DONE);
    }
    weir__heap_hold(&heap, ids[0]);
    weir__heap_remove_chunk(&heap, &chunk);
    for (size_t i = 0; i < 4; i++)
        must_equal(weir__heap_map_find(&heap, line + i * segment - 2 * segment), 0);
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

/* Ids have an end, and who asks for one more record is refused before anything has
 * changed. */
static void heap_says_when_it_has_no_more_ids(void **state)
{
    (void)state;
    const size_t most = (size_t)1 << WEIR__ID_BITS;
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap(&heap, &chunk, most * GRAIN);
    const weir__heap_owner *done = weir__heap_owner_at(&heap, WEIR__OWNER_DONE);
    size_t taken = 0;
    while (weir__heap_promise(&heap)) {
        must(base_of(&heap, take_best(&heap, done, GRAIN, GRAIN)) ==
             BASE + taken++ * GRAIN);
        weir__heap_forget_promise(&heap);
    }
    must(taken < most && taken >= most - 2 * WEIR__HEAP_PROMISE);
    must(!weir__heap_promise(&heap));
    must_equal(heap.taken_blocks, taken);
    uint32_t last = weir__heap_find(&heap, (void *)(BASE + (taken - 1) * GRAIN));
    come_back(&heap, last);
    weir__heap_release(&heap, last, WEIR__MARK_DONE);
    must(weir__heap_promise(&heap));
    weir__heap_forget_promise(&heap);
    weir__heap_close(&heap);
}

/* The first four are those from where the address is at home, round to the beginning;
 * what lies behind a segment's entries is none of them. */
static void a_lookup_begins_with_the_next_four(void **state)
{
    (void)state;
    enum { ENTRIES = 8, BEHIND = 3, FEW = 4 };
    const uint32_t fits = UINT32_C(1) << WEIR__ID_BITS;
    for (uint32_t home = 0; home < ENTRIES; home++) {
        _Atomic uint32_t entries[ENTRIES + BEHIND];
        const weir__heap_probe probe = { .entries = entries, .at = home,
                                         .mask = ENTRIES - 1, .print = 1,
                                         .left = ENTRIES };
        for (uint32_t i = 0; i < ENTRIES + BEHIND; i++) /* another print, or behind */
            atomic_init(&entries[i], i < ENTRIES ? i + 1 : fits | (i + 1));
        must_equal(weir__heap_probe_few(&probe), 0);
        for (uint32_t i = ENTRIES; i-- > 0;) { /* each is nearer than those before */
            const uint32_t at = (home + i) % ENTRIES;
            atomic_store(&entries[at], fits | (at + 1));
            must_equal(weir__heap_probe_few(&probe), i < FEW ? fits | (at + 1) : 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heap_finds_what_is_missing_from_the_map),
        cmocka_unit_test(heap_maps_the_few_that_are_left),
        cmocka_unit_test(heap_makes_a_segment_larger_once),
        cmocka_unit_test(heap_maps_what_it_hands_out),
        cmocka_unit_test(heap_splits_a_chunk_within_a_segment),
        cmocka_unit_test(heap_has_chunks_over_several_pages),
        cmocka_unit_test(heap_says_when_it_has_no_more_ids),
        cmocka_unit_test(a_lookup_begins_with_the_next_four),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
