/* test_heap_room.c - a heap where there is room for no more records: in a process that
 * may have few addresses. */
#include "support_heap.h"

/* Who has few shall have some left for all else. */
static void addresses_are_not_all_taken(void **state)
{
    (void)state;
    const size_t bytes = (size_t)1 << 20, most = (size_t)1 << 12;
    struct rlimit before;
    const size_t limit = support_limit_addresses(most * bytes, &before);
    size_t count = most;
    void *few = weir__host_reserve(bytes, &count, 1, false);
    must(setrlimit(RLIMIT_AS, &before) == 0);
    must(few != NULL && count <= limit / bytes / 64);
    weir__host_release(few, count * bytes);
}

/* Where all records there can be are in use: what comes back, so that nothing merges,
 * becomes free all the same, and the chunk can go. */
static void give_all_back(weir__heap *heap, const weir__chunk *chunk)
{
    weir__heap_owner *one = weir__heap_owner_get(heap, 1, NULL);
    weir__heap_owner *two = weir__heap_owner_get(heap, 2, NULL);
    uint64_t clock = 1;
    for (uint32_t id = weir__heap_first(heap, chunk); id != 0;
         id = weir__heap_after(heap, id)) {
        if (weir__heap_state_at(heap, id) != WEIR__HEAP_OUT)
            continue;
        come_back(heap, id);
        (void)weir__heap_release(heap, id, (weir__mark){ clock, 1 });
        clock = 3 - clock;
    }
    must_equal(heap->taken_blocks, 0);
    must(heap->returned_blocks > 0 && !weir__heap_chunk_is_idle(heap, chunk));
    must(!weir__heap_promise(heap)); /* nothing has merged */
    must(weir__heap_settle(heap));
    must_equal(heap->returned_blocks, 0);
    must(weir__heap_chunk_is_idle(heap, chunk));
    weir__heap_owner_move_all(heap, one, WEIR__MARK_DONE);
    weir__heap_owner_move_all(heap, two, WEIR__MARK_DONE);
    must(weir__heap_promise(heap));
    weir__heap_forget_promise(heap);
}

static bool open_heap_within(size_t addresses, weir__heap *heap)
{
    struct rlimit before;
    (void)support_limit_addresses(addresses, &before);
    bool is_open = weir__heap_init(heap);
    must(setrlimit(RLIMIT_AS, &before) == 0);
    return is_open;
}

static void add_all(weir__heap *heap, weir__chunk *chunk, size_t bytes)
{
    must(weir__heap_promise(heap));
    must_ok(weir__heap_reserve(heap, BASE, bytes));
    uint32_t all = weir__heap_add_chunk(heap, chunk, BASE, bytes);
    weir__heap_release(heap, all, WEIR__MARK_DONE);
    weir__heap_forget_promise(heap);
}

/* Opens a heap, fills it, and closes it; returns how many blocks it had room for. */
static size_t fill_heap_within(size_t addresses)
{
    weir__heap heap;
    size_t taken = 0, live = weir__host_live();
    if (open_heap_within(addresses, &heap)) {
        weir__chunk chunk = { 0 };
        add_all(&heap, &chunk, ((size_t)1 << WEIR__ID_BITS) * GRAIN);
        for (; weir__heap_promise(&heap); taken++) {
            (void)take_best(&heap, heap.owners[WEIR__OWNER_DONE], GRAIN, GRAIN);
            weir__heap_forget_promise(&heap);
        }
        must_equal(heap.taken_blocks, taken);
        must(taken < heap.room && taken + 2 * WEIR__HEAP_PROMISE >= heap.room);
        weir__heap_verify(&heap);
        give_all_back(&heap, &chunk);
        weir__heap_verify(&heap);
        weir__heap_close(&heap);
    }
    must_equal(weir__host_live(), live);
    return taken;
}

/* Where there are few addresses there is room for fewer blocks, or no heap. */
static void heap_makes_do_with_few_addresses(void **state)
{
    (void)state;
    const size_t all = (size_t)1 << WEIR__ID_BITS;
    const size_t map = 8 * ((size_t)1 << (WEIR__HEAP_ADDRESS_BITS -
                                           WEIR__SEGMENT_BITS));
    must_equal(fill_heap_within(map / 2), 0);
    must_equal(fill_heap_within(map), 0); /* and nothing else */
    const size_t few = fill_heap_within(map + ((size_t)2 << 20));
    const size_t some = fill_heap_within(map + ((size_t)1 << 30));
    must(few > 0 && few < some && some < all);
}

/* Blocks that wait for several marks have used up all free records that there can be,
 * but for those that a request needs. */
static void a_request_needs_no_reserve_where_there_is_none(void **state)
{
    (void)state;
    const size_t map = 8 * ((size_t)1 << (WEIR__HEAP_ADDRESS_BITS -
                                           WEIR__SEGMENT_BITS));
    weir__heap heap;
    weir__chunk chunk = { 0 };
    must(open_heap_within(map + ((size_t)2 << 20), &heap));
    add_all(&heap, &chunk, (size_t)heap.room * GRAIN);
    for (uint64_t clock = 1; clock < 8; clock++)
        weir__heap_owner_get(&heap, clock, NULL)->pins++;
    const size_t few = WEIR__HEAP_PROMISE_FREE + 1;
    while (heap.free_made < heap.room || heap.free_spare_count > few) {
        must(weir__heap_promise(&heap));
        uint32_t id = take_best(&heap, heap.owners[WEIR__OWNER_DONE], GRAIN, GRAIN);
        weir__heap_forget_promise(&heap);
        come_back(&heap, id);
        for (uint64_t clock = 1; clock < 8 && heap.free_spare_count > few; clock++)
            must(weir__heap_add_mark(&heap, id, (weir__mark){ clock, 1 }));
    }
    must(heap.free_spare_count >= WEIR__HEAP_PROMISE_FREE);
    must(weir__heap_promise(&heap));
    weir__heap_forget_promise(&heap);
    weir__heap_verify(&heap);
    weir__heap_close(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_not_all_taken),
        cmocka_unit_test(heap_makes_do_with_few_addresses),
        cmocka_unit_test(a_request_needs_no_reserve_where_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
