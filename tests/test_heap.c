/* test_heap.c - the heap's promises: records, owners, and what all of it costs on the
 * host. Addresses are made up; nobody touches them. The map: test_heap_map.c. */

#include "internal.h"
#include "support_heap.h"

/* Further marks never use up the records that a request was promised. */
static void heap_keeps_what_it_promised(void **state)
{
    (void)state;
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap(&heap, &chunk, 64 * GRAIN);
    const weir__heap_owner *done = weir__heap_owner_at(&heap, WEIR__OWNER_DONE);
    must(weir__heap_promise(&heap));
    uint32_t out = take_best(&heap, done, GRAIN, GRAIN);
    weir__heap_forget_promise(&heap);

    must(weir__heap_promise(&heap));
    come_back(&heap, out);
    for (uint64_t clock = 1; weir__heap_add_mark(&heap, out, (weir__mark){ clock, 1 });
         clock++) {
        weir__heap_verify(&heap);
        must(weir__heap_owner_get(&heap, clock + 1, NULL) != NULL);
    }
    weir__heap_release(&heap, out, WEIR__MARK_DONE);
    out = take_best(&heap, done, GRAIN, 8 * GRAIN);
    weir__heap_forget_promise(&heap);
    must(base_of(&heap, out) == BASE + 8 * GRAIN);
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

#define TAKER ((uint64_t)9)

static bool is_not_of_3(void *context, uint32_t id)
{
    return weir__heap_mark(context, id).clock != 3;
}

/* Later from one to the next. */
static weir__mark takers_mark(void *context)
{
    weir__heap *heap = context;
    return (weir__mark){ TAKER, weir__heap_owner_find(heap, TAKER)->latest + 1 };
}

/* Neighbours of several clocks become one, as far as they are usable; what has none
 * stays what it was. */
static void heap_merges_what_is_usable(void **state)
{
    (void)state;
    enum { BLOCKS = 10, OUT = 4 };
    static const uint64_t clocks[BLOCKS] = { 1, 2, 1, 3, 0, 2, 1, 3, 3, 2 };
    weir__heap heap;
    weir__chunk chunk = { 0 };
    uint32_t ids[BLOCKS];
    open_heap(&heap, &chunk, BLOCKS * GRAIN);
    weir__heap_owner *taker = weir__heap_owner_get(&heap, TAKER, NULL);
    must(taker != NULL);
    taker->pins++;
    for (int i = 0; i < BLOCKS; i++) {
        must(weir__heap_promise(&heap));
        ids[i] = take_best(&heap, weir__heap_owner_at(&heap, WEIR__OWNER_DONE), GRAIN,
                           GRAIN);
        weir__heap_forget_promise(&heap);
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (i == OUT)
            continue;
        must(weir__heap_owner_get(&heap, clocks[i], NULL) != NULL);
        come_back(&heap, ids[i]);
        weir__heap_release(&heap, ids[i], (weir__mark){ clocks[i], 7 });
        must(weir__heap_promise(&heap)); /* so that it has a record */
        weir__heap_forget_promise(&heap);
    }
    must_equal(heap.free_blocks, BLOCKS - 2); /* the two of clock 3 are one */

    const weir__heap_merger merger = { is_not_of_3, takers_mark, &heap };
    must_equal(weir__heap_merge(&heap, &merger), 3);
    weir__heap_verify(&heap);
    must_equal(taker->free_blocks, 2);
    must_equal(taker->free_bytes, 5 * GRAIN);
    uint32_t best = weir__heap_best(&heap, taker, 3 * GRAIN, GRAIN);
    must(base_of(&heap, best) == BASE);
    must_equal(weir__heap_mark(&heap, best).number, 2);
    best = weir__heap_best(&heap, taker, 2 * GRAIN, GRAIN);
    must(base_of(&heap, best) == BASE + 5 * GRAIN);
    must_equal(weir__heap_owner_find(&heap, 3)->free_bytes, 3 * GRAIN);
    must_equal(weir__heap_owner_find(&heap, 2)->free_bytes, GRAIN);
    must_equal(weir__heap_merge(&heap, &merger), 0);
    weir__heap_close(&heap);
}

/* Nor do frees of very many owners, each of which needs a row of its own, use up the
 * rows that a request was promised. */
static void heap_keeps_the_rows_that_it_promised(void **state)
{
    (void)state;
    enum { BLOCKS = 4 * WEIR__BIN_ROWS };
    weir__heap heap;
    weir__chunk chunk = { 0 };
    uint32_t out[BLOCKS];
    open_heap(&heap, &chunk, 1000 * GRAIN);
    weir__heap_owner *done = weir__heap_owner_at(&heap, WEIR__OWNER_DONE);
    must(weir__heap_promise(&heap));
    const uint32_t kept = take_best(&heap, done, 90 * GRAIN, GRAIN);
    weir__heap_forget_promise(&heap);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        must(weir__heap_promise(&heap));
        out[i] = weir__heap_take_best(&heap, done, GRAIN, WEIR__HEAP_HOMES,
                                      WEIR__HEAP_OUT, 0).id;
        weir__heap_forget_promise(&heap);
        weir__heap_owner *owner = weir__heap_owner_get(&heap, i + 1, NULL);
        must(owner != NULL);
        owner->pins++;
    }
    /* No two of them neighbours; of free records there are enough then. */
    for (uint32_t i = 0; i < BLOCKS; i += 2) {
        must(weir__heap_promise(&heap));
        come_back(&heap, out[i]);
        weir__heap_release(&heap, out[i], WEIR__MARK_DONE);
        weir__heap_forget_promise(&heap);
    }
    come_back(&heap, kept); /* so that the owner of what is done always has something */
    weir__heap_release(&heap, kept, WEIR__MARK_DONE);
    must(weir__heap_promise(&heap));
    for (uint32_t i = 0; i < BLOCKS; i += 2)
        out[i] = weir__heap_take_best(&heap, done, GRAIN, WEIR__HEAP_HOMES,
                                      WEIR__HEAP_OUT, 0).id;
    weir__heap_rows_give_back(&heap, done);
    must(done->rows[0] == NULL);
    for (uint32_t i = 0; i < BLOCKS; i += 2) {
        come_back(&heap, out[i]);
        weir__heap_release(&heap, out[i], (weir__mark){ i + 1, 1 });
    }
    must(weir__heap_free_unpromised(&heap) > 0);
    size_t returned = heap.returned_blocks;
    must(returned > 0);
    /* What is cut off in front of the large block needs a row. */
    uint32_t got = take_best(&heap, done, 100 * GRAIN, 128 * GRAIN);
    must_equal(heap.returned_blocks, returned);
    must(base_of(&heap, got) == BASE + 256 * GRAIN);
    weir__heap_verify(&heap);
    weir__heap_forget_promise(&heap);
    must(weir__heap_promise(&heap));
    must_equal(heap.returned_blocks, 0);
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

#define EACH 24 /* blocks of each owner: more than a line has records */

/* A grain of what is done, whose record is where those of a clock's owner are, if there
 * is one. */
static uint32_t take_home(weir__heap *heap, uint64_t clock)
{
    must(weir__heap_promise(heap));
    weir__heap_owner *owner = weir__heap_owner_get(heap, clock, NULL);
    owner->pins = 1; /* it stays */
    const weir__heap_owner *done = weir__heap_owner_at(heap, WEIR__OWNER_DONE);
    uint32_t id = take_best(heap, done, GRAIN, GRAIN);
    id = weir__heap_move_home(heap, id, owner);
    weir__heap_forget_promise(heap);
    return id;
}

/* Whoever hits writes to the record of his block: that is in no line with a record that
 * another owner's thread writes to, by whatever turns they got their blocks. */
static void heap_keeps_the_records_of_owners_apart(void **state)
{
    (void)state;
    weir__heap heap;
    weir__chunk chunk = { 0 };
    uintptr_t lines[2][EACH][2]; /* the first and the last of each */
    open_heap(&heap, &chunk, 1024 * GRAIN);
    for (size_t i = 0; i < EACH; i++) /* makes many records, none of which is used */
        must(weir__heap_promise(&heap));
    for (size_t i = 0; i < EACH; i++)
        weir__heap_forget_promise(&heap);
    for (uint64_t i = 0; i < 2 * EACH; i++) {
        uint32_t id = take_home(&heap, 1 + i % 2);
        weir__heap_verify(&heap);
        must(base_of(&heap, id) == BASE + i * GRAIN);
        uintptr_t record = (uintptr_t)weir__heap_block_of(&heap, id);
        lines[i % 2][i / 2][0] = record / 64;
        lines[i % 2][i / 2][1] = (record + sizeof(weir__heap_block) - 1) / 64;
    }
    for (size_t i = 0; i < EACH; i++) {
        for (size_t k = 0; k < EACH; k++)
            must(lines[0][i][1] < lines[1][k][0] || lines[1][k][1] < lines[0][i][0]);
    }
    weir__heap_close(&heap);
}

/* The same without a stock of records, of all homes. As much as others may have for
 * themselves does not count: who has none at his own gets more, and so does who comes
 * first. */
static void heap_makes_records_for_each_home(void **state)
{
    (void)state;
    enum { OWNERS = 2 * WEIR__HEAP_HOMES };
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap(&heap, &chunk, 1024 * GRAIN);
    uint32_t homes = 0;
    for (uint64_t i = 0; i < OWNERS * EACH; i++) {
        const uint64_t clock = 1 + i % OWNERS;
        uint32_t id = take_home(&heap, clock);
        const uint32_t home =
            weir__heap_home_for(weir__heap_owner_find(&heap, clock));
        must_equal(weir__heap_home_of(&heap, id), home);
        homes |= 1u << home;
    }
    must_equal(homes, (1u << WEIR__HEAP_HOMES) - 1);
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

/* The same of the records of what is free, of which a group has eight. Neighbours of
 * two owners do not merge. */
static void heap_keeps_the_free_records_of_owners_apart(void **state)
{
    (void)state;
    weir__heap heap;
    weir__chunk chunk = { 0 };
    uint32_t blocks[2 * EACH], groups[2][EACH];
    open_heap(&heap, &chunk, 1024 * GRAIN);
    const weir__heap_owner *done = weir__heap_owner_at(&heap, WEIR__OWNER_DONE);
    for (size_t i = 0; i < 2 * EACH; i++)
        must(weir__heap_promise(&heap));
    for (size_t i = 0; i < 2 * EACH; i++) {
        blocks[i] = take_best(&heap, done, GRAIN, GRAIN);
        weir__heap_forget_promise(&heap);
    }
    for (size_t i = 0; i < 2 * EACH; i++) {
        must(weir__heap_promise(&heap));
        weir__heap_owner *owner = weir__heap_owner_get(&heap, 1 + i % 2, NULL);
        owner->pins = 1; /* it stays */
        come_back(&heap, blocks[i]);
        (void)weir__heap_release(&heap, blocks[i], (weir__mark){ owner->clock, 1 });
        weir__heap_forget_promise(&heap);
        weir__heap_verify(&heap);
        groups[i % 2][i / 2] =
            weir__heap_link(weir__heap_block_of(&heap, blocks[i])) / 8;
    }
    for (size_t i = 0; i < EACH; i++) {
        for (size_t k = 0; k < EACH; k++)
            must(groups[0][i] != groups[1][k]);
    }
    weir__heap_close(&heap);
}

/* Who has no owner, and can be given none, is told so before anything changes. */
static void heap_says_when_it_knows_no_more_clocks(void **state)
{
    (void)state;
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap(&heap, &chunk, 64 * GRAIN);
    must(weir__heap_promise(&heap));
    uint32_t out = take_best(&heap, weir__heap_owner_at(&heap, WEIR__OWNER_DONE), GRAIN,
                             GRAIN);
    weir__heap_forget_promise(&heap);
    come_back(&heap, out);
    uint64_t clock = 1;
    for (; weir__heap_can_release(&heap, clock); clock++)
        must(weir__heap_owner_get(&heap, clock, NULL) != NULL);
    must_equal(clock, 2 + WEIR__OWNERS_SPARE);
    must(!weir__heap_add_mark(&heap, out, (weir__mark){ clock, 1 }));
    must(weir__heap_can_release(&heap, 1) && weir__heap_can_release(&heap, 0));
    must(weir__heap_can_release(&heap, WEIR__CLOCK_ASIDE));
    weir__heap_release(&heap, out, (weir__mark){ WEIR__CLOCK_ASIDE, 1 });
    must_equal(weir__heap_owner_at(&heap, WEIR__OWNER_ASIDE)->free_bytes, GRAIN);
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

/* Frees in a row that merge with nothing, without any memory for records: what is left
 * over counts as free at once, and is found from the next promise on. */
static void heap_takes_back_without_records(void **state)
{
    (void)state;
    enum { BLOCKS = 256 };
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap(&heap, &chunk, BLOCKS * GRAIN);
    const weir__heap_owner *done = weir__heap_owner_at(&heap, WEIR__OWNER_DONE);
    for (int i = 0; i < BLOCKS; i++) {
        must(weir__heap_promise(&heap));
        (void)take_best(&heap, done, GRAIN, GRAIN);
        weir__heap_forget_promise(&heap);
    }
    weir__host_fail_at(1, true);
    for (uintptr_t i = 0; i < BLOCKS; i += 2) {
        uint32_t id = weir__heap_find(&heap, (void *)(BASE + i * GRAIN));
        come_back(&heap, id);
        weir__heap_release(&heap, id, WEIR__MARK_DONE);
        weir__heap_verify(&heap);
    }
    must_equal(weir__host_calls(), 0);
    must_equal(heap.taken_blocks, BLOCKS / 2);
    must(heap.returned_blocks > BLOCKS / 4);
    must_equal(heap.returned_blocks + done->free_blocks, BLOCKS / 2);
    uint32_t lost = heap.returned;
    must_equal(weir__heap_state_at(&heap, lost), WEIR__HEAP_RETURNED);
    must(!weir__heap_promise(&heap));
    weir__heap_verify(&heap);

    weir__host_fail_at(0, false);
    must(weir__heap_promise(&heap));
    weir__heap_forget_promise(&heap);
    must_equal(heap.returned_blocks, 0);
    must_equal(done->free_blocks, BLOCKS / 2);
    must_equal(weir__heap_state_at(&heap, lost), WEIR__HEAP_FREE);
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

static size_t spare_segments(const weir__heap *heap)
{
    size_t bytes = 0;
    for (uint32_t bits = 0; bits < WEIR__SEGMENT_SIZES; bits++) {
        const weir__heap_segment *segment = heap->segment_spares[bits];
        for (; segment != NULL; segment = segment->next)
            bytes += sizeof *segment + (sizeof(uint32_t) << bits);
    }
    return bytes;
}

/* No process has 2^50 bytes of addresses; it gets half of that, or half of this. */
static void addresses_are_had_for_fewer(void **state)
{
    (void)state;
    const size_t bytes = (size_t)1 << 30, most = (size_t)1 << 20, page = 1 << 16;
    size_t count = most;
    must(weir__host_reserve(bytes, &count, most, false) == NULL);
    count = most;
    unsigned char *array = weir__host_reserve(bytes, &count, 1, true);
    must(array != NULL && count > 0 && count < most && most % count == 0);
    must(array[0] == 0 && array[count * bytes - 1] == 0);
    must(weir__host_commit(array, 0, 1));
    array[0] = 1;
    must(weir__host_commit(array, 1, page + 1));
    must(array[0] == 1 && array[page] == 0);
    array[page] = 2;
    must(weir__host_commit(array, page + 1, page + 2)); /* it is there */
    must(array[page] == 2 && array[page + 1] == 0);
    must(weir__host_commit(array + count * bytes - page, 0, page));
    weir__host_release(array, count * bytes);
    must(!weir__host_commit(array, 0, 1));
    must(!weir__host_commit(array + count * bytes - page, 0, page));
}

/* A live block costs about what its record does. */
static void heap_is_small(void **state)
{
    (void)state;
    size_t blocks = (size_t)support_bound("test_heap.blocks", 20000, 200000);
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap(&heap, &chunk, 2 * blocks * GRAIN);
    const weir__heap_owner *done = weir__heap_owner_at(&heap, WEIR__OWNER_DONE);
    size_t empty = weir__heap_host_bytes(&heap);
    for (size_t i = 0; i < 2 * blocks; i++) {
        must(weir__heap_promise(&heap));
        must(base_of(&heap, take_best(&heap, done, GRAIN, GRAIN)) == BASE + i * GRAIN);
        weir__heap_forget_promise(&heap);
    }
    /* Records of 24 bytes, two entries of 4, what is made before it is used, and what
     * is kept for frees; and segments that larger ones have taken the place of. */
    must(weir__heap_host_bytes(&heap) - empty <
         2 * blocks * 38 + spare_segments(&heap));
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

/* Very many clocks, each of which frees a block and is not seen again. */
static void heap_forgets_clocks(void **state)
{
    (void)state;
    uint64_t clocks = support_bound("test_heap.clocks", 20000, 200000);
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap(&heap, &chunk, 64 * GRAIN);
    weir__heap_owner *done = weir__heap_owner_at(&heap, WEIR__OWNER_DONE);
    size_t after_few = 0;
    for (uint64_t clock = 1; clock <= clocks; clock++) {
        must(weir__heap_promise(&heap));
        weir__heap_owner *owner = weir__heap_owner_get(&heap, clock, NULL);
        uint32_t out = take_best(&heap, done, GRAIN, GRAIN);
        atomic_store(&weir__heap_block_of(&heap, out)->link, owner->slot);
        weir__heap_forget_promise(&heap);
        come_back(&heap, out);
        weir__heap_release(&heap, out, (weir__mark){ clock, 1 });
        weir__heap_owner_move_all(&heap, owner, WEIR__MARK_DONE);
        if (clock == 100)
            after_few = weir__heap_host_bytes(&heap);
    }
    must_equal(weir__heap_host_bytes(&heap), after_few);
    must_equal(done->free_blocks, 1);
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

/* A thread may be between the two words of a block of its own while owners that nothing
 * names are looked for: its tag says that it is out, its link is none of theirs. */
static void heap_forgets_clocks_while_links_change(void **state)
{
    (void)state;
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap(&heap, &chunk, 64 * GRAIN);
    const weir__heap_owner *done = weir__heap_owner_at(&heap, WEIR__OWNER_DONE);
    must(weir__heap_promise(&heap));
    uint32_t out = take_best(&heap, done, GRAIN, GRAIN);
    weir__heap_forget_promise(&heap);
    uint32_t links[] = { heap.owner_room, UINT32_MAX };
    uint32_t count = 0;
    for (uint64_t clock = 1; clock <= 200; clock++) {
        atomic_store(&weir__heap_block_of(&heap, out)->link, links[clock % 2]);
        must(weir__heap_owner_get(&heap, clock, NULL) != NULL);
        if (clock == 100)
            count = heap.owner_count;
    }
    must_equal(heap.owner_count, count); /* some were forgotten */
    atomic_store(&weir__heap_block_of(&heap, out)->link, WEIR__OWNER_DONE);
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

/* Addresses that a record cannot name are refused, and so is memory for the map. */
static void heap_refuses_what_it_cannot_map(void **state)
{
    (void)state;
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap(&heap, &chunk, 64 * GRAIN);
    const uintptr_t top = (uintptr_t)1 << 48;
    must_answer(WEIR_NOT_SUPPORTED, weir__heap_reserve(&heap, top, GRAIN));
    must_answer(WEIR_NOT_SUPPORTED, weir__heap_reserve(&heap, top - GRAIN, GRAIN));
    must_answer(WEIR_NOT_SUPPORTED,
                weir__heap_reserve(&heap, UINTPTR_MAX - GRAIN + 1, 2 * GRAIN));
    must_ok(weir__heap_reserve(&heap, top - 2 * GRAIN, GRAIN));
    for (uint64_t nth = 1; nth <= 2; nth++) {
        weir__host_fail_at(nth, false);
        must_answer(WEIR_OUT_OF_HOST_MEMORY,
                    weir__heap_reserve(&heap, BASE << 1, (size_t)64 << 20));
        weir__heap_verify(&heap);
    }
    weir__host_fail_at(0, false);
    must_ok(weir__heap_reserve(&heap, BASE << 1, (size_t)64 << 20));
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

static void heap_knows_the_highest_addresses(void **state)
{
    (void)state;
    enum { BLOCKS = 16 };
    const uintptr_t base = ((uintptr_t)1 << 48) - (BLOCKS + 1) * GRAIN;
    const uint32_t tag = weir__heap_out_tag(GRAIN, GRAIN);
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap_at(&heap, &chunk, base, BLOCKS * GRAIN);
    for (uintptr_t at = base; at < base + BLOCKS * GRAIN; at += GRAIN) {
        must(weir__heap_promise(&heap));
        weir__heap_taken taken =
            weir__heap_take_best(&heap, weir__heap_owner_at(&heap, WEIR__OWNER_DONE),
                                 GRAIN, WEIR__HEAP_HOMES, tag, 0);
        weir__heap_forget_promise(&heap);
        uint32_t id = 0;
        must_equal(weir__heap_base(taken.block), at);
        must(weir__heap_lookup_tagged(&heap.view, (const void *)at, tag, &id) ==
             taken.block);
        must_equal(id, taken.id);
    }
    /* There is nothing above these, and what has lower bits in common is another. */
    const uintptr_t far[] = { (uintptr_t)1 << 48, base + ((uintptr_t)1 << 48),
                              base + ((uintptr_t)1 << 63), 0 - GRAIN };
    for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
        uint32_t id = 0;
        must(weir__heap_lookup_tagged(&heap.view, (const void *)far[i], tag, &id) ==
             NULL);
        must_equal(weir__heap_find(&heap, (const void *)far[i]), 0);
    }
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heap_keeps_what_it_promised),
        cmocka_unit_test(heap_merges_what_is_usable),
        cmocka_unit_test(heap_keeps_the_rows_that_it_promised),
        cmocka_unit_test(heap_keeps_the_records_of_owners_apart),
        cmocka_unit_test(heap_makes_records_for_each_home),
        cmocka_unit_test(heap_keeps_the_free_records_of_owners_apart),
        cmocka_unit_test(heap_says_when_it_knows_no_more_clocks),
        cmocka_unit_test(heap_takes_back_without_records),
        cmocka_unit_test(addresses_are_had_for_fewer),
        cmocka_unit_test(heap_is_small),
        cmocka_unit_test(heap_forgets_clocks),
        cmocka_unit_test(heap_forgets_clocks_while_links_change),
        cmocka_unit_test(heap_refuses_what_it_cannot_map),
        cmocka_unit_test(heap_knows_the_highest_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
