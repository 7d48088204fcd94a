/* test_ledger_memory.c - what the ledger knows of bytes: the lives of a block and who
 * has been handed it, overlaps, and the memory of several devices. */
#include <string.h>

#include "internal.h"
#include "support.h"
#include "support_ledger.h"

/* ---- lives of a block ---- */

static void reuse(bool with)
{
    allocate_on(A);
    write_on(A);
    deallocate_on(A);
    if (with)
        wait_for(B, A);
    allocate_on(B);
}

static void reuse_across_streams_waits(void **state)
{
    (void)state;
    check_edge(reuse);
}

static void use_on_another_stream(bool with)
{
    allocate_on(A);
    if (with)
        wait_for(B, A);
    write_on(B);
    wait_for(A, B);
    deallocate_on(A);
}

static void given_back_on_another_stream(bool with)
{
    allocate_on(A);
    write_on(A);
    if (with)
        wait_for(B, A);
    deallocate_on(B);
}

/* The event was recorded behind the work, but before the deallocation. */
static void waits_for_less_than_the_deallocation(bool with)
{
    allocate_on(A);
    write_on(A);
    weir__ledger_position *early = record(A);
    deallocate_on(A);
    weir__ledger_position *late = record(A);
    weir__ledger_stream_wait(ledger, host, B, with ? late : early);
    weir__ledger_unref(ledger, early);
    weir__ledger_unref(ledger, late);
    allocate_on(B);
}

static void allocation_and_deallocation_are_writes(void **state)
{
    (void)state;
    check_edge(use_on_another_stream);
    check_edge(given_back_on_another_stream);
    check_edge(waits_for_less_than_the_deallocation);
}

/* Given back behind points: nobody's write, but what was done before stays. */
static void behind_points(bool with)
{
    allocate_on(A);
    wait_for(B, A);
    write_on(B);
    deallocate_on(0);
    if (with)
        wait_for(C, B);
    allocate_on(C);
}

static void deallocation_behind_points_keeps_the_history(void **state)
{
    (void)state;
    check_edge(behind_points);
}

/* For a capture a block is handed out on no stream: all before must be known done. */
static void for_a_capture(bool with)
{
    allocate_on(A);
    write_on(A);
    deallocate_on(A);
    weir__ledger_position *end = record(A);
    if (with)
        weir__ledger_host_wait(ledger, host, end);
    allocate_on(WEIR__LEDGER_CAPTURE);
    if (!with) { /* it stands for the write before it */
        must(strstr(ours.message, "allocate by the host") == ours.message);
        must(strcmp(ours.last.first, "deallocate") == 0);
    }
    weir__ledger_unref(ledger, end);
    deallocate_on(WEIR__LEDGER_CAPTURE);
    weir__ledger_allocate(ledger, host, WEIR__LEDGER_CAPTURE, BASE + SIZE + 16, BLOCK);
    weir__ledger_allocate(ledger, host, WEIR__LEDGER_CAPTURE, 16, BLOCK);
}

static void capture_gets_what_is_known_to_be_done(void **state)
{
    (void)state;
    check_edge(for_a_capture);
}

static void captures_block_is_out(bool with)
{
    allocate_on(WEIR__LEDGER_CAPTURE);
    if (with)
        deallocate_on(WEIR__LEDGER_CAPTURE);
    allocate_on(A);
}

static void captures_block_is_owned(void **state)
{
    (void)state;
    check_edge(captures_block_is_out);
}

/* The pool of rmm#2489 as it calls the device: X is freed on A, whose stream is
 * stalled; BIG on B takes A's list, waits for A and fails; then X goes to C. The
 * wrong pool keeps X under B's event, which was never recorded after that wait. */
static void pool_takes_over_for_b(void)
{
    allocate_on(A);
    write_on(A);
    deallocate_on(A);
    wait_for(B, A);
}

static void rmm_2489(bool with)
{
    pool_takes_over_for_b();
    if (with)
        wait_for(C, B);
    allocate_on(C);
    if (with)
        write_on(C);
}

static void rmm_2489_stale(bool with)
{
    allocate_on(B);
    deallocate_on(B);
    weir__ledger_position *stale = record(B);
    wait_for(A, B);
    pool_takes_over_for_b();
    weir__ledger_stream_wait(ledger, host, C, stale);
    weir__ledger_unref(ledger, stale);
    if (with)
        wait_for(C, B);
    allocate_on(C);
}

static void rmm_2489_release(bool with)
{
    pool_takes_over_for_b();
    if (with)
        host_waits(record(B));
    weir__ledger_memory_end(ledger, host, BASE);
}

static void rmm_2489_chain(bool with)
{
    pool_takes_over_for_b();
    wait_for(C, B);
    allocate_on(C);
    weir__ledger_position *early = record(C);
    write_on(C);
    deallocate_on(C);
    weir__ledger_position *late = record(C);
    weir__ledger_stream_wait(ledger, host, D, with ? late : early);
    weir__ledger_unref(ledger, early);
    weir__ledger_unref(ledger, late);
    allocate_on(D);
}

static void history_outlives_the_block(void **state)
{
    (void)state;
    check_edge(rmm_2489);
    check_edge(rmm_2489_stale);
    check_edge(rmm_2489_chain);
}

static void release_under_running_work_is_found(void **state)
{
    (void)state;
    size_t live = weir__host_live();
    for (int with = 1; with >= 0; with--) {
        set_scene();
        rmm_2489_release(with != 0);
        must_have_found(with ? 0 : 1, with != 0);
        if (!with) {
            must(strcmp(ours.last.second, "free") == 0);
            must_equal(ours.last.second_stream, 0);
            must(strstr(ours.message, "the host thread has not waited for stream 11"));
        }
        /* The same addresses begin anew, clean. */
        weir__ledger_memory_begin(ledger, &our_owner, host, BASE, SIZE);
        write_on(C);
        must_have_found(with ? 0 : 1, with != 0);
        clear_scene();
    }
    must_equal(weir__host_live(), live);
}

/* The host may touch it, but not take it away. */
static void end_of_what_is_open(bool with)
{
    allocate_on(A);
    weir__ledger_at_once(ledger, BASE, BLOCK);
    weir__ledger_host_access(ledger, &our_owner, host, BASE, BLOCK, true);
    if (with)
        host_waits(record(A));
    weir__ledger_memory_end(ledger, host, BASE);
}

static void what_the_host_may_touch_does_not_end_at_once(void **state)
{
    (void)state;
    for (int with = 1; with >= 0; with--) {
        set_scene();
        end_of_what_is_open(with != 0);
        must_have_found(with ? 0 : 1, with != 0);
        weir__ledger_memory_begin(ledger, &our_owner, host, BASE, SIZE);
        clear_scene();
    }
}

/* ---- leases ---- */

static void use_after_free(bool with)
{
    allocate_on(A);
    if (!with)
        deallocate_on(A);
    read_on(A);
}

static void use_after_free_behind_points(bool with)
{
    allocate_on(A);
    if (!with)
        deallocate_on(0);
    write_on(A);
}

/* Only the graph of a capture uses what went back to the capture. */
static void use_of_what_a_capture_keeps(bool with)
{
    allocate_on(A);
    deallocate_on(WEIR__LEDGER_CAPTURE);
    if (with)
        weir__ledger_stream_is_graphs(ledger, A);
    write_on(A);
}

/* Wherever it goes back, which needs to know nothing of what the graph does later. */
static void use_of_what_a_capture_had(bool with)
{
    allocate_on(WEIR__LEDGER_CAPTURE);
    write_on(B);
    wait_for(A, B);
    deallocate_on(with ? A : 0);
    weir__ledger_stream_is_graphs(ledger, B);
    write_on(B);
    if (!with) { /* now it is another's */
        allocate_on(B);
        deallocate_on(0);
        write_on(B);
    }
}

#define CAPTURE       (WEIR__LEDGER_CAPTURE | 7)
#define OTHER_CAPTURE (WEIR__LEDGER_CAPTURE | 8)

/* It is that capture's until it is released, also where it was out at that time. */
static void use_of_what_was_released(bool with)
{
    allocate_on(CAPTURE);
    deallocate_on(CAPTURE);
    weir__ledger_stream_is_graphs(ledger, A);
    weir__ledger_release(ledger, with ? OTHER_CAPTURE : CAPTURE);
    write_on(A);
}

/* What was handed out for one and goes back in another is the first one's. */
static void use_of_what_another_capture_gave_back(bool with)
{
    allocate_on(CAPTURE);
    deallocate_on(OTHER_CAPTURE);
    weir__ledger_stream_is_graphs(ledger, A);
    weir__ledger_release(ledger, with ? OTHER_CAPTURE : CAPTURE);
    write_on(A);
}

static void use_of_what_went_back_to_nobody(bool with)
{
    allocate_on(CAPTURE);
    weir__ledger_release(ledger, with ? OTHER_CAPTURE : CAPTURE);
    deallocate_on(0);
    weir__ledger_stream_is_graphs(ledger, A);
    write_on(A);
}

static void use_beyond_the_block(bool with)
{
    weir__ledger_allocate(ledger, host, A, BASE, BLOCK);
    weir__ledger_allocate(ledger, host, A, BASE + BLOCK, BLOCK);
    weir__ledger_deallocate(ledger, host, A, BASE + BLOCK, BLOCK);
    touch(A, BASE + 1, BLOCK - (with ? 1 : 0), WEIR_EMULATED_READ);
    if (!with) {
        must_equal(ours.last.ptr, BASE + BLOCK);
        must_equal(ours.last.bytes, 1);
        must(strcmp(ours.message, "kernel reads on stream 11 uses 0x101000, 1 bytes, "
                    "after deallocate on stream 11 gave them back") == 0);
    }
}

static void use_after_free_is_found_even_in_order(void **state)
{
    (void)state;
    check_edge(use_after_free);
    check_edge(use_after_free_behind_points);
    check_edge(use_of_what_a_capture_keeps);
    check_edge(use_of_what_a_capture_had);
    check_edge(use_of_what_was_released);
    check_edge(use_of_what_another_capture_gave_back);
    check_edge(use_of_what_went_back_to_nobody);
    check_edge(use_beyond_the_block);
}

static void owned_twice(bool with)
{
    allocate_on(A);
    if (with)
        deallocate_on(A);
    allocate_on(A);
}

static void owned_twice_in_part(bool with)
{
    allocate_on(A);
    size_t at = with ? BLOCK : BLOCK - 16;
    weir__ledger_allocate(ledger, host, A, BASE + at, BLOCK);
    if (!with) {
        must_equal(ours.last.ptr, BASE + BLOCK - 16);
        must_equal(ours.last.bytes, 16);
        must(strcmp(ours.message, "allocate on stream 11 hands out 0x100ff0, 16 bytes, "
                    "that are out since allocate on stream 11") == 0);
    }
    weir__ledger_verify(ledger);
    /* Each of the two gives back what is still its own. */
    weir__ledger_deallocate(ledger, host, A, BASE, BLOCK);
    weir__ledger_verify(ledger);
    weir__ledger_deallocate(ledger, host, A, BASE + at, BLOCK);
    weir__ledger_verify(ledger);
    weir__ledger_allocate(ledger, host, A, BASE, 2 * BLOCK);
}

/* A block that was extended is one: all of it goes back, and what was added was handed
 * out by then. */
static void owned_twice_once_extended(bool with)
{
    allocate_on(A);
    weir__ledger_extend(ledger, host, A, BASE, BLOCK, 2 * BLOCK);
    weir__ledger_verify(ledger);
    weir__ledger_deallocate(ledger, host, A, BASE, with ? 2 * BLOCK : BLOCK);
    weir__ledger_verify(ledger);
    weir__ledger_allocate(ledger, host, A, BASE + BLOCK, BLOCK);
}

static void used_before_it_is_extended(bool with)
{
    allocate_on(A);
    touch(A, BASE, BLOCK, WEIR_EMULATED_READ); /* what it had may be used meanwhile */
    touch(B, BASE + BLOCK, BLOCK, WEIR_EMULATED_READ);
    if (with)
        wait_for(A, B);
    weir__ledger_extend(ledger, host, A, BASE, BLOCK, 2 * BLOCK);
    if (!with)
        must_equal(ours.last.ptr, BASE + BLOCK);
    weir__ledger_deallocate(ledger, host, 0, BASE, 2 * BLOCK);
}

static void used_after_it_was_extended(bool with)
{
    allocate_on(A);
    weir__ledger_extend(ledger, host, A, BASE, BLOCK, 2 * BLOCK);
    if (!with)
        weir__ledger_deallocate(ledger, host, A, BASE, 2 * BLOCK);
    touch(A, BASE + 16, 16, WEIR_EMULATED_READ);
}

static void an_extended_block_is_one(void **state)
{
    (void)state;
    check_edge(owned_twice_once_extended);
    check_edge(used_before_it_is_extended);
    check_edge(used_after_it_was_extended);
}

static void handing_out_what_is_out_is_found(void **state)
{
    (void)state;
    check_edge(owned_twice);
    check_edge(owned_twice_in_part);
}

static void not_a_block(void)
{
    weir__ledger_deallocate(ledger, host, B, BASE, BLOCK); /* never handed out */
    allocate_on(A);
    weir__ledger_deallocate(ledger, host, B, BASE, BLOCK - 1);
    weir__ledger_deallocate(ledger, host, B, BASE + 1, BLOCK);
    weir__ledger_deallocate(ledger, host, B, PEER + 2 * SIZE, BLOCK);
    write_on(A);
    deallocate_on(A);
    deallocate_on(B); /* a second time */
    wait_for(C, A);
    allocate_on(C);
}

static void deallocation_of_what_is_no_block_changes_nothing(void **state)
{
    (void)state;
    check_quiet(not_a_block);
}

/* ---- bytes ---- */

static void partial_overlap(bool with)
{
    touch(A, BASE + 100, 100, WEIR_EMULATED_WRITE);
    touch(B, BASE + (with ? 200 : 199), 50, WEIR_EMULATED_WRITE);
    touch(C, BASE + 50, 50, WEIR_EMULATED_WRITE);
    if (!with) {
        must_equal(ours.last.ptr, BASE + 199);
        must_equal(ours.last.bytes, 1);
    }
}

static void overlap_is_found_to_the_byte(void **state)
{
    (void)state;
    check_edge(partial_overlap);
}

/* Several pieces, several ranges, one pair: told once, at the first gapless bytes. */
static void one_finding_for_a_pair(void **state)
{
    (void)state;
    set_scene();
    weir__ledger_access first = { BASE, 16 * BLOCK, WEIR_EMULATED_WRITE };
    weir__ledger_operation(ledger, host, A, "fill", &first, 1);
    touch(C, BASE + 64 * BLOCK, BLOCK, WEIR_EMULATED_WRITE);
    for (size_t i = 1; i < 8; i++) /* cuts it up */
        weir__ledger_allocate(ledger, host, A, BASE + i * BLOCK, BLOCK);
    weir__ledger_access second[] = {
        { BASE + 8 * BLOCK, 2 * BLOCK, WEIR_EMULATED_READ },
        { BASE + 12 * BLOCK, BLOCK, WEIR_EMULATED_WRITE },
        { BASE + 64 * BLOCK, 1, WEIR_EMULATED_READ },
        { BASE + 14 * BLOCK, 0, WEIR_EMULATED_READ },
    };
    weir__ledger_operation(ledger, host, B, "copy", second, 4);
    must_equal(ours.count, 2); /* one with A, one with C */
    must(strcmp(ours.last.second, "copy reads") == 0);
    must_equal(ours.last.first_stream, C);
    clear_scene();
}

static void beyond_all_memory(void)
{
    touch(A, BASE + SIZE, BLOCK, WEIR_EMULATED_WRITE);
    touch(B, BASE + SIZE, BLOCK, WEIR_EMULATED_WRITE);
    touch(A, 1, 16, WEIR_EMULATED_WRITE);
    touch(B, 1, 16, WEIR_EMULATED_WRITE);
    touch(A, UINTPTR_MAX - 4, SIZE, WEIR_EMULATED_WRITE);
    touch(B, UINTPTR_MAX - 4, SIZE, WEIR_EMULATED_WRITE);
}

static void half_in_memory(bool with)
{
    touch(A, BASE + SIZE - 8, 16, WEIR_EMULATED_WRITE);
    touch(B, BASE + SIZE - (with ? 0 : 1), 8, WEIR_EMULATED_WRITE);
}

static void memory_that_never_began_is_ignored(void **state)
{
    (void)state;
    check_quiet(beyond_all_memory);
    check_edge(half_in_memory);
}

/* ---- several devices ---- */

static void peer_access(bool with)
{
    touch(THEIRS, BASE, BLOCK, WEIR_EMULATED_WRITE);
    if (with)
        wait_for(A, THEIRS);
    write_on(A);
}

static void streams_of_other_devices_count(void **state)
{
    (void)state;
    check_edge(peer_access);

    /* Who comes second is told, wherever the memory is. */
    set_scene();
    write_on(A);
    touch(THEIRS, BASE, BLOCK, WEIR_EMULATED_READ);
    must_equal(ours.count, 0);
    must_equal(others.count, 1);
    weir__ledger_memory_end(ledger, host, BASE);
    must_equal(ours.count, 2); /* neither is waited for */
    clear_scene();
}

static void ended_device_leaves_nothing(void **state)
{
    (void)state;
    set_scene();
    touch(THEIRS, BASE, BLOCK, WEIR_EMULATED_WRITE);
    weir__ledger_position *position = weir__ledger_record(ledger, host, THEIRS);
    weir__ledger_device_end(ledger, &others);
    weir__ledger_verify(ledger);
    write_on(A); /* what it did to memory of ours still counts */
    must_equal(ours.count, 1);
    stream_waits(B, position);
    wait_for(B, A);
    write_on(B);
    must_equal(ours.count, 1);
    weir__ledger_memory_begin(ledger, &our_owner, host, PEER, SIZE);
    touch(C, PEER, SIZE, WEIR_EMULATED_WRITE);
    must_equal(ours.count, 1);
    clear_scene();
}

static void one_ledger_for_the_process(void **state)
{
    (void)state;
    size_t live = weir__host_live();
    weir__ledger *one = weir__ledger_open();
    weir__ledger *two = weir__ledger_open();
    must(one != NULL && one == two);
    weir__ledger_close(two);
    must(weir__ledger_open() == one);
    weir__ledger_close(one);
    weir__ledger_close(one);
    must_equal(weir__host_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reuse_across_streams_waits),
        cmocka_unit_test(allocation_and_deallocation_are_writes),
        cmocka_unit_test(deallocation_behind_points_keeps_the_history),
        cmocka_unit_test(capture_gets_what_is_known_to_be_done),
        cmocka_unit_test(captures_block_is_owned),
        cmocka_unit_test(history_outlives_the_block),
        cmocka_unit_test(release_under_running_work_is_found),
        cmocka_unit_test(what_the_host_may_touch_does_not_end_at_once),
        cmocka_unit_test(use_after_free_is_found_even_in_order),
        cmocka_unit_test(handing_out_what_is_out_is_found),
        cmocka_unit_test(an_extended_block_is_one),
        cmocka_unit_test(deallocation_of_what_is_no_block_changes_nothing),
        cmocka_unit_test(overlap_is_found_to_the_byte),
        cmocka_unit_test(one_finding_for_a_pair),
        cmocka_unit_test(memory_that_never_began_is_ignored),
        cmocka_unit_test(streams_of_other_devices_count),
        cmocka_unit_test(ended_device_leaves_nothing),
        cmocka_unit_test(one_ledger_for_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
