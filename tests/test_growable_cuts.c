/* test_growable_cuts.c - parts of blocks that go back while the rest stays, and blocks
 * that are made of what is free elsewhere. */
#include <string.h>

#include "internal.h"
#include "support_pool.h"
#include "support_work.h"
#include "weir/resource_ops.h"

#define PAGE  WEIR_GROWABLE_PAGE_BYTES
#define CHUNK (4 * PAGE)

static weir_status cut(weir_resource *mr, void *ptr, size_t bytes, size_t wanted,
                       size_t *from, size_t *to)
{
    return weir_resource_cut(mr, ptr, bytes, WEIR_ALIGNMENT, wanted, from, to);
}

/* Claims what is cut of the bytes from `from` to `to`. */
static void must_cut(weir_resource *mr, void *ptr, size_t bytes, size_t wanted,
                     size_t from, size_t to, size_t cut_from, size_t cut_to)
{
    must_ok(cut(mr, ptr, bytes, wanted, &from, &to));
    must_equal(from, cut_from);
    must_equal(to, cut_to);
}

static weir_resource *open_growable(weir_device *device)
{
    weir_resource *mr;
    must_ok(weir_resource_open(device, "growable(chunk=8MiB, pages_only=true)", &mr));
    return mr;
}

/* ---- growable ---- */

static void a_part_becomes_a_block(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr = open_growable(device);
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(mr, &properties));
    must_equal(properties.cut_bytes, PAGE);
    size_t bytes = 4 * CHUNK - 1000;
    unsigned char *a = take(mr, NULL, bytes);
    stamp(device, NULL, a, CHUNK, 1);
    stamp(device, NULL, a + 3 * CHUNK, CHUNK - 1000, 2);
    /* Whole chunks, of what may go. Mapped as one, they are one. */
    must_cut(mr, a, bytes, SIZE_MAX, PAGE, bytes, 0, 0);
    must_equal(statistics_of(mr).out_blocks, 1);
    give(mr, NULL, a, bytes);
    must_equal(weir_resource_trim_sync(mr, 0), 4 * CHUNK);

    /* Mapped one by one they can be told apart. */
    a = take(mr, NULL, CHUNK);
    for (size_t i = 1; i < 4; i++)
        must_ok(weir_resource_extend(mr, NULL, a, i * CHUNK, WEIR_ALIGNMENT,
                                     i < 3 ? (i + 1) * CHUNK : bytes));
    stamp(device, NULL, a, CHUNK, 1);
    stamp(device, NULL, a + 3 * CHUNK, CHUNK - 1000, 2);
    must_cut(mr, a, bytes, SIZE_MAX, CHUNK - 1, bytes - 1, CHUNK, 3 * CHUNK);
    weir_resource_statistics now = statistics_of(mr);
    must_equal(now.out_blocks, 3);
    must_equal(now.out_bytes, bytes);
    must_equal(now.allocations - now.deallocations, 3);
    weir_block found = { .struct_size = sizeof found };
    must_ok(weir_resource_find(mr, a + CHUNK, &found));
    must_equal(found.bytes, 2 * CHUNK);
    must_ok(weir_resource_find(mr, a + 3 * CHUNK, &found));
    must_equal(found.bytes, CHUNK - 1000);
    must_equal(found.alignment, WEIR_ALIGNMENT);

    give(mr, NULL, a + CHUNK, 2 * CHUNK);
    must_equal(weir_resource_trim_sync(mr, 0), 2 * CHUNK);
    must_equal(statistics_of(mr).held_bytes, 2 * CHUNK);
    check_stamp(device, NULL, a, CHUNK, 1);
    check_stamp(device, NULL, a + 3 * CHUNK, CHUNK - 1000, 2);
    must_ok(weir_resource_extend(mr, NULL, a, CHUNK, WEIR_ALIGNMENT, 3 * CHUNK));
    give(mr, NULL, a, 3 * CHUNK);
    give(mr, NULL, a + 3 * CHUNK, CHUNK - 1000);
    must_equal(weir_resource_trim_sync(mr, 0), 4 * CHUNK);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* What is cut out can be another's, while what is left is not. */
static void the_ledger_knows_a_part(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr;
    must_ok(weir_resource_open(device, "growable(remap=true, pages_only=true)", &mr));
    unsigned char *a = take(mr, NULL, CHUNK);
    must_cut(mr, a, CHUNK, SIZE_MAX, PAGE, 2 * PAGE, PAGE, 2 * PAGE);
    give(mr, NULL, a + PAGE, PAGE);
    must(take(mr, NULL, PAGE) == a + PAGE);
    must_be_quiet(device);
    give(mr, NULL, a + 2 * PAGE, CHUNK - 2 * PAGE);
    give(mr, NULL, a + PAGE, PAGE);
    give(mr, NULL, a, PAGE);
    must(take(mr, NULL, CHUNK) == a);
    must_be_quiet(device);
    give(mr, NULL, a, CHUNK);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* A block of so many chunks, each mapped by itself. */
static unsigned char *take_chunks(weir_resource *mr, size_t count)
{
    unsigned char *ptr = take(mr, NULL, CHUNK);
    for (size_t i = 1; i < count; i++)
        must_ok(weir_resource_extend(mr, NULL, ptr, i * CHUNK, WEIR_ALIGNMENT,
                                     (i + 1) * CHUNK));
    return ptr;
}

static void no_more_is_cut_than_is_wanted(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr = open_growable(device);
    unsigned char *a = take_chunks(mr, 4);
    must_cut(mr, a, 4 * CHUNK, 1, 0, 4 * CHUNK, 3 * CHUNK, 4 * CHUNK);
    must_cut(mr, a, 3 * CHUNK, CHUNK + 1, 0, 3 * CHUNK, CHUNK, 3 * CHUNK);
    must_equal(statistics_of(mr).out_blocks, 3);
    must_cut(mr, a, CHUNK, SIZE_MAX, 0, CHUNK, 0, CHUNK); /* which it is already */
    must_equal(statistics_of(mr).out_blocks, 3);
    give(mr, NULL, a, CHUNK);
    give(mr, NULL, a + CHUNK, 2 * CHUNK);
    give(mr, NULL, a + 3 * CHUNK, CHUNK);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* A chunk that others have a part of goes only if that is back. */
static void neighbours_keep_a_chunk(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr = open_growable(device);
    unsigned char *front = take(mr, NULL, PAGE);
    unsigned char *a = take(mr, NULL, 3 * PAGE);
    must(a == front + PAGE);
    must_ok(weir_resource_extend(mr, NULL, a, 3 * PAGE, WEIR_ALIGNMENT, 5 * PAGE));
    unsigned char *behind = take(mr, NULL, PAGE);
    must(behind == a + 5 * PAGE);
    must_cut(mr, a, 5 * PAGE, SIZE_MAX, 0, 5 * PAGE, 0, 0);
    give(mr, NULL, behind, PAGE);
    must_cut(mr, a, 5 * PAGE, SIZE_MAX, 0, 5 * PAGE, 3 * PAGE, 5 * PAGE);
    give(mr, NULL, a + 3 * PAGE, 2 * PAGE);
    must_equal(weir_resource_trim_sync(mr, 0), CHUNK);
    give(mr, NULL, front, PAGE);
    must_cut(mr, a, 3 * PAGE, 1, PAGE, 3 * PAGE, 0, 0);
    must_cut(mr, a, 3 * PAGE, 1, 0, 3 * PAGE, 0, 3 * PAGE);
    give(mr, NULL, a, 3 * PAGE);
    weir_resource_unref(mr);
    close_emulated(device);
}

static void what_is_no_block_is_not_cut(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr = open_growable(device), *plain;
    must_ok(weir_resource_open(device, "device", &plain));
    unsigned char *a = take_chunks(mr, 3), *b = take(plain, NULL, MIB);
    size_t from = CHUNK, to = 2 * CHUNK, bytes = 3 * CHUNK;
    must_answer(WEIR_INVALID_ARGUMENT, cut(mr, a + CHUNK, CHUNK, 1, &from, &to));
    from = 0;
    must_answer(WEIR_INVALID_ARGUMENT, cut(mr, a + PAGE, bytes, 1, &from, &to));
    must_answer(WEIR_INVALID_ARGUMENT, cut(mr, a, bytes - 1, 1, &from, &to));
    must_answer(WEIR_INVALID_ARGUMENT, cut(mr, NULL, bytes, 1, &from, &to));
    must_answer(WEIR_INVALID_ARGUMENT, cut(mr, a, bytes, 0, &from, &to));
    must_answer(WEIR_INVALID_ARGUMENT, cut(mr, a, CHUNK, 1, &from, &to));
    must_answer(WEIR_INVALID_ARGUMENT, cut(mr, a, bytes, 1, &to, &from));
    must_answer(WEIR_INVALID_ARGUMENT, cut(mr, a, bytes, 1, NULL, &to));
    must_answer(WEIR_INVALID_ARGUMENT, cut(mr, a, bytes, 1, &from, NULL));
    must_answer(WEIR_INVALID_ARGUMENT, cut(NULL, a, bytes, 1, &from, &to));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_resource_cut(mr, a, bytes, 3, 1, &from, &to));
    size_t half = MIB / 2, end = MIB;
    must_answer(WEIR_NOT_SUPPORTED, cut(plain, b, MIB, 1, &half, &end));
    must_equal(half, MIB / 2);
    give(mr, NULL, a, bytes);
    must_answer(WEIR_INVALID_ARGUMENT, cut(mr, a, bytes, 1, &from, &to));
    must(from == 0 && to == 2 * CHUNK);
    give(plain, NULL, b, MIB);
    weir_resource_unref(plain);
    weir_resource_unref(mr);
    close_emulated(device);
}

static void without_host_memory_nothing_is_cut(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        weir_device *device = open_stepped(0);
        weir_resource *mr = open_growable(device);
        unsigned char *a = take_chunks(mr, 3);
        size_t from = CHUNK, to = 2 * CHUNK;
        weir__host_fail_at(nth, false);
        weir_status status = cut(mr, a, 3 * CHUNK, 1, &from, &to);
        weir__host_fail_at(0, false);
        must_equal(status, WEIR_OUT_OF_HOST_MEMORY);
        must_equal(statistics_of(mr).out_blocks, 1);
        give(mr, NULL, a, 3 * CHUNK);
        weir_resource_unref(mr);
        close_emulated(device);
    }
}

/* What statistics says of a chain with it at the top. */
static void pieces_are_blocks_to_statistics(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr;
    must_ok(weir_resource_open(
        device, "statistics/growable(chunk=8MiB, pages_only=true)", &mr));
    unsigned char *a = take_chunks(mr, 3);
    must_cut(mr, a, 3 * CHUNK, 1, CHUNK, 2 * CHUNK, CHUNK, 2 * CHUNK);
    must_equal(statistics_of(mr).out_blocks, 3);
    must_equal(statistics_of(mr).out_bytes, 3 * CHUNK);
    for (size_t i = 0; i < 3; i++)
        give(mr, NULL, a + i * CHUNK, CHUNK);
    must_equal(statistics_of(mr).out_blocks, 0);
    must_equal(statistics_of(mr).deallocations, 3);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* A block larger than any hole is made of what is free in all of them. What used that
 * may still be under way: it is waited for, or the device would find it. */
static void free_chunks_make_a_block(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr;
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_resource_open(device, "growable(remap=true, pages_only=true)", &mr));
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(mr, &properties));
    must(properties.remaps);
    unsigned char *blocks[4];
    for (uint64_t i = 0; i < 4; i++) {
        blocks[i] = take(mr, stream, CHUNK);
        stamp(device, stream, blocks[i], CHUNK, i);
    }
    must_equal(calls_of(device).range_map, 16); /* a page each */
    give(mr, stream, blocks[0], CHUNK);
    give(mr, stream, blocks[2], CHUNK);
    unsigned char *large = take(mr, stream, 2 * CHUNK);
    must(large == blocks[3] + CHUNK);
    must_equal(statistics_of(mr).held_bytes, 4 * CHUNK);
    must_equal(statistics_of(mr).peak_held_bytes, 4 * CHUNK);
    stamp(device, stream, large, 2 * CHUNK, 4);
    check_stamp(device, stream, blocks[1], CHUNK, 1);
    check_stamp(device, stream, blocks[3], CHUNK, 3);
    check_stamp(device, stream, large, 2 * CHUNK, 4);

    /* So it is with what a block is extended by: no more than is missing is mapped. */
    give(mr, stream, blocks[1], CHUNK);
    must_ok(weir_resource_extend(mr, stream, large, 2 * CHUNK, WEIR_ALIGNMENT,
                                 3 * CHUNK + PAGE));
    must_equal(statistics_of(mr).held_bytes, 4 * CHUNK + PAGE);
    check_stamp(device, stream, large, 2 * CHUNK, 4);
    give(mr, stream, large, 3 * CHUNK + PAGE);
    give(mr, stream, blocks[3], CHUNK);
    end_stream(device, stream);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* In its last page a block has room: nothing has to go for that, or is waited for. */
static void room_in_a_page_costs_nothing(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr;
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_resource_open(device, "growable(remap=true, pages_only=true)", &mr));
    void *block = take(mr, stream, PAGE + 100), *other = take(mr, stream, PAGE);
    uint64_t gate = raw_stall(device, stream);
    give(mr, stream, other, PAGE);
    uint64_t waits = calls_of(device).event_sync;
    must_ok(weir_resource_extend(mr, stream, block, PAGE + 100, WEIR_ALIGNMENT,
                                 2 * PAGE));
    must_equal(calls_of(device).event_sync, waits);
    must_equal(statistics_of(mr).held_bytes, 3 * PAGE);
    raw_open_gate(device, gate);
    give(mr, stream, block, 2 * PAGE);
    end_stream(device, stream);
    weir_resource_unref(mr);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_becomes_a_block),
        cmocka_unit_test(the_ledger_knows_a_part),
        cmocka_unit_test(no_more_is_cut_than_is_wanted),
        cmocka_unit_test(neighbours_keep_a_chunk),
        cmocka_unit_test(what_is_no_block_is_not_cut),
        cmocka_unit_test(without_host_memory_nothing_is_cut),
        cmocka_unit_test(pieces_are_blocks_to_statistics),
        cmocka_unit_test(free_chunks_make_a_block),
        cmocka_unit_test(room_in_a_page_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
