/* test_ledger.c - each kind of edge: there, and the ledger is quiet; left out, and it
 * finds the race. */
#include <string.h>

#include "internal.h"
#include "support.h"
#include "support_ledger.h"

/* ---- order on one stream, and none between two ---- */

static void program_order(bool with)
{
    write_on(A);
    write_on(with ? A : B);
}

static void stream_orders_its_own_work(void **state)
{
    (void)state;
    check_edge(program_order);
}

static void only_reads(void)
{
    read_on(A);
    read_on(B);
    read_on(BLOCKING);
    read_on(A);
}

static void reads_do_not_conflict(void **state)
{
    (void)state;
    check_quiet(only_reads);
}

static void read_then_write(bool with)
{
    read_on(A);
    read_on(B);
    wait_for(C, B);
    if (with)
        wait_for(C, A);
    write_on(C);
}

static void write_waits_for_every_read(void **state)
{
    (void)state;
    check_edge(read_then_write);
}

static void write_then_read(bool with)
{
    write_on(A);
    if (with)
        wait_for(B, A);
    read_on(B);
    read_on(B); /* on the bad way it is found once more */
    if (!with)
        ours.count--;
}

static void read_waits_for_the_write(void **state)
{
    (void)state;
    check_edge(write_then_read);
}

static void finding_names_both_sides(void **state)
{
    (void)state;
    set_scene();
    touch(A, BASE, 100, WEIR_EMULATED_READ);
    touch(B, BASE + 60, 100, WEIR_EMULATED_READ_WRITE);
    must_equal(ours.count, 1);
    must(strcmp(ours.last.first, "kernel reads") == 0);
    must(strcmp(ours.last.second, "kernel writes") == 0);
    must_equal(ours.last.first_stream, A);
    must_equal(ours.last.second_stream, B);
    must_equal(ours.last.ptr, BASE + 60);
    must_equal(ours.last.bytes, 40);
    must(strcmp(ours.message,
                "kernel writes on stream 12 is not ordered after kernel reads on "
                "stream 11: both touch 0x10003c, 40 bytes, and stream 12 does not wait "
                "for stream 11") == 0);
    clear_scene();
}

/* ---- edges through the host ---- */

static void host_waits_for_an_event(bool with)
{
    write_on(A);
    weir__ledger_position *position = record(A);
    if (with)
        weir__ledger_host_wait(ledger, host, position);
    weir__ledger_unref(ledger, position);
    write_on(B);
}

static void host_waits_for_a_stream(bool with)
{
    write_on(A);
    weir__ledger_position *position = weir__ledger_look(ledger, A);
    if (with)
        weir__ledger_host_wait(ledger, host, position);
    weir__ledger_unref(ledger, position);
    write_on(B);
}

static void host_waits_for_the_device(bool with)
{
    write_on(A);
    void *device = with ? &ours : &others;
    host_waits(weir__ledger_record_all(ledger, host, device));
    write_on(B);
}

static void device_wait_reaches_ended_streams(bool with)
{
    weir__ledger_stream_begin(ledger, &our_owner, 99, false, false);
    write_on(99);
    weir__ledger_position *before = weir__ledger_record_all(ledger, host, &ours);
    write_on(99);
    weir__ledger_stream_end(ledger, 99);
    weir__ledger_position *after = weir__ledger_record_all(ledger, host, &ours);
    weir__ledger_host_wait(ledger, host, with ? after : before);
    weir__ledger_unref(ledger, before);
    weir__ledger_unref(ledger, after);
    write_on(B);
}

static void host_waits_are_edges(void **state)
{
    (void)state;
    check_edge(host_waits_for_an_event);
    check_edge(host_waits_for_a_stream);
    check_edge(host_waits_for_the_device);
    check_edge(device_wait_reaches_ended_streams);
}

/* What a thread knows does not depend on who asks for it. */
static void thread_to_stream(bool with)
{
    write_on(A);
    host_waits(record(A));
    host = with ? 1 : 2;
    write_on(B);
}

static void thread_gives_a_stream_what_it_knows(void **state)
{
    (void)state;
    check_edge(thread_to_stream);
}

static void signal_and_await(bool with)
{
    write_on(A);
    host_waits(record(A));
    weir__ledger_position *token = weir__ledger_host_give(ledger, 1);
    if (with)
        weir__ledger_host_take(ledger, 2, token);
    weir__ledger_unref(ledger, token);
    host = 2;
    write_on(B);
}

static void signal_before_the_wait(bool with)
{
    write_on(A);
    weir__ledger_position *early = weir__ledger_host_give(ledger, 1);
    host_waits(record(A));
    weir__ledger_position *late = weir__ledger_host_give(ledger, 1);
    weir__ledger_host_take(ledger, 2, with ? late : early);
    weir__ledger_unref(ledger, early);
    weir__ledger_unref(ledger, late);
    host = 2;
    write_on(B);
}

static void threads_hand_over_what_they_declare(void **state)
{
    (void)state;
    check_edge(signal_and_await);
    check_edge(signal_before_the_wait);
}

static void new_thread(bool with)
{
    write_on(A);
    host_waits(record(A));
    if (with)
        weir__ledger_thread_end(ledger, 2); /* else it lives, and does not know */
    host = 3;
    write_on(B);
}

static void new_thread_knows_what_all_others_know(void **state)
{
    (void)state;
    check_edge(new_thread);
}

static void last_thread_ended(bool with)
{
    write_on(A);
    if (with)
        host_waits(record(A));
    weir__ledger_thread_end(ledger, 2);
    weir__ledger_thread_end(ledger, 1);
    host = 3;
    write_on(B);
}

static void new_thread_alone_knows_what_the_last_knew(void **state)
{
    (void)state;
    check_edge(last_thread_ended);
}

/* ---- edges between streams ---- */

static void record_and_wait(bool with)
{
    write_on(A);
    weir__ledger_position *position = record(A);
    if (with)
        weir__ledger_stream_wait(ledger, host, B, position);
    weir__ledger_unref(ledger, position);
    write_on(B);
}

static void recorded_too_early(bool with)
{
    if (with)
        write_on(A);
    weir__ledger_position *position = record(A);
    if (!with)
        write_on(A);
    stream_waits(B, position);
    write_on(B);
}

static void waited_too_late(bool with)
{
    write_on(A);
    if (with)
        wait_for(B, A);
    read_on(B);
    wait_for(B, A);
    read_on(B);
}

static void through_a_third(bool with)
{
    write_on(A);
    wait_for(B, A);
    wait_for(C, with ? B : D);
    write_on(C);
}

/* The third had recorded before it waited: a new wait does not change old records. */
static void through_a_third_too_early(bool with)
{
    write_on(A);
    weir__ledger_position *early = record(B);
    wait_for(B, A);
    weir__ledger_position *late = record(B);
    weir__ledger_stream_wait(ledger, host, C, with ? late : early);
    weir__ledger_unref(ledger, early);
    weir__ledger_unref(ledger, late);
    write_on(C);
}

static void record_and_wait_is_an_edge(void **state)
{
    (void)state;
    check_edge(record_and_wait);
    check_edge(recorded_too_early);
    check_edge(waited_too_late);
    check_edge(through_a_third);
    check_edge(through_a_third_too_early);
}

/* An event that is recorded twice: who waited in between keeps the first position, and
 * gets nothing of the second. */
static void recorded_again(bool with)
{
    write_on(A);
    weir__ledger_position *first = record(A);
    weir__ledger_stream_wait(ledger, host, B, first);
    weir__ledger_unref(ledger, first);
    if (!with)
        write_on(A);
    weir__ledger_position *second = record(A);
    write_on(B);
    weir__ledger_unref(ledger, second);
}

static void recording_again_keeps_earlier_waits(void **state)
{
    (void)state;
    check_edge(recorded_again);
}

/* ---- the legacy stream ---- */

static void legacy_after(bool with)
{
    write_on(with ? BLOCKING : A);
    write_on(LEGACY);
}

static void after_legacy(bool with)
{
    write_on(LEGACY);
    write_on(with ? BLOCKING : A);
}

static void blocking_to_blocking(bool with)
{
    write_on(BLOCKING);
    if (with)
        weir__ledger_operation(ledger, host, LEGACY, "kernel", NULL, 0);
    write_on(BLOCKING_2);
}

static void wait_on_legacy_is_an_operation(bool with)
{
    weir__ledger_position *old = record(A);
    write_on(BLOCKING);
    if (with)
        weir__ledger_stream_wait(ledger, host, LEGACY, old);
    weir__ledger_unref(ledger, old);
    host_waits(weir__ledger_look(ledger, LEGACY));
    write_on(A);
}

static void record_is_an_operation_and_a_look_is_none(bool with)
{
    write_on(LEGACY);
    host_waits(with ? record(BLOCKING) : weir__ledger_look(ledger, BLOCKING));
    write_on(A);
}

static void other_devices_legacy(bool with)
{
    write_on(BLOCKING);
    uint64_t legacy = with ? LEGACY : THEIR_LEGACY;
    weir__ledger_operation(ledger, host, legacy, "kernel", NULL, 0);
    write_on(BLOCKING_2);
}

static void legacy_stream_is_a_barrier_for_blocking_streams(void **state)
{
    (void)state;
    check_edge(legacy_after);
    check_edge(after_legacy);
    check_edge(blocking_to_blocking);
    check_edge(wait_on_legacy_is_an_operation);
    check_edge(record_is_an_operation_and_a_look_is_none);
    check_edge(other_devices_legacy);
}

static void block_moves_to_legacy(bool with)
{
    uint64_t from = with ? BLOCKING : A;
    allocate_on(from);
    write_on(from);
    deallocate_on(from);
    allocate_on(LEGACY);
    if (with)
        write_on(LEGACY);
}

static void block_moves_from_legacy(bool with)
{
    uint64_t to = with ? BLOCKING : A;
    allocate_on(LEGACY);
    write_on(LEGACY);
    deallocate_on(LEGACY);
    allocate_on(to);
    if (with)
        write_on(to);
}

static void block_moves_between_blocking(bool with)
{
    allocate_on(BLOCKING);
    write_on(BLOCKING);
    deallocate_on(BLOCKING);
    if (with)
        weir__ledger_unref(ledger, record(LEGACY));
    allocate_on(BLOCKING_2);
}

static void blocks_move_by_the_legacy_rules(void **state)
{
    (void)state;
    check_edge(block_moves_to_legacy);
    check_edge(block_moves_from_legacy);
    check_edge(block_moves_between_blocking);
}

/* Used on one blocking stream, given back on the legacy stream: only an operation of
 * the legacy stream, before or after, puts another blocking stream behind the use. */
static void given_back_on_legacy(bool with)
{
    allocate_on(BLOCKING);
    write_on(BLOCKING);
    deallocate_on(LEGACY);
    if (with)
        weir__ledger_unref(ledger, record(LEGACY));
    allocate_on(BLOCKING_2);
    if (!with) /* once for the use; the allocation on the same stream is below it */
        must(strcmp(ours.last.first, "kernel writes") == 0);
}

/* Handed out on the legacy stream and given back unused: the promise was never kept. */
static void passed_through_legacy(bool with)
{
    allocate_on(BLOCKING);
    write_on(BLOCKING);
    deallocate_on(BLOCKING);
    allocate_on(LEGACY);
    if (with)
        write_on(LEGACY);
    deallocate_on(LEGACY);
    allocate_on(BLOCKING_2);
    if (!with)
        must(strcmp(ours.last.first, "deallocate") == 0);
}

static void promise_of_legacy_is_not_kept_by_allocations(void **state)
{
    (void)state;
    check_edge(given_back_on_legacy);
    check_edge(passed_through_legacy);
}

/* ---- hand-overs inside ---- */

static void done_and_learn(bool with)
{
    write_on(A);
    weir__ledger_position *position = record(A);
    weir__ledger_host_wait(ledger, 1, position);
    weir__ledger_done(ledger, 1, &ours, KEY, position);
    weir__ledger_unref(ledger, position);
    weir__ledger_learn(ledger, 2, &ours, with ? KEY : KEY + 1);
    host = 2;
    write_on(B);
}

static void done_with_all_it_knows(bool with)
{
    write_on(A);
    if (with)
        host_waits(record(A));
    weir__ledger_done(ledger, 1, &ours, KEY, NULL);
    weir__ledger_learn(ledger, 2, &ours, KEY);
    host = 2;
    write_on(B);
}

static void done_says_no_more_than_its_position(bool with)
{
    write_on(A);
    weir__ledger_position *a = record(A);
    weir__ledger_position *b = record(B);
    weir__ledger_host_wait(ledger, 1, a);
    weir__ledger_done(ledger, 1, &ours, KEY, with ? a : b);
    weir__ledger_unref(ledger, a);
    weir__ledger_unref(ledger, b);
    weir__ledger_learn(ledger, 2, &ours, KEY);
    host = 2;
    write_on(B);
}

static void forgotten_goes_to_key_0(bool with)
{
    write_on(A);
    host_waits(record(A));
    weir__ledger_done(ledger, 1, &ours, KEY, NULL);
    weir__ledger_forget(ledger, &ours, KEY, true);
    weir__ledger_learn(ledger, 2, &ours, with ? 0 : KEY);
    host = 2;
    write_on(B);
}

static void forgotten_goes_nowhere_else(bool with)
{
    write_on(A);
    host_waits(record(A));
    weir__ledger_done(ledger, 1, &ours, KEY, NULL);
    weir__ledger_forget(ledger, &ours, KEY, with);
    weir__ledger_learn(ledger, 2, &ours, 0);
    host = 2;
    write_on(B);
}

static void keys_are_of_one_device(bool with)
{
    write_on(A);
    host_waits(record(A));
    weir__ledger_done(ledger, 1, &ours, KEY, NULL);
    void *device = with ? &ours : &others;
    weir__ledger_learn(ledger, 2, device, KEY);
    host = 2;
    write_on(B);
}

static void done_and_learn_are_edges(void **state)
{
    (void)state;
    check_edge(done_and_learn);
    check_edge(done_with_all_it_knows);
    check_edge(done_says_no_more_than_its_position);
    check_edge(forgotten_goes_to_key_0);
    check_edge(forgotten_goes_nowhere_else);
    check_edge(keys_are_of_one_device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_orders_its_own_work),
        cmocka_unit_test(reads_do_not_conflict),
        cmocka_unit_test(write_waits_for_every_read),
        cmocka_unit_test(read_waits_for_the_write),
        cmocka_unit_test(finding_names_both_sides),
        cmocka_unit_test(host_waits_are_edges),
        cmocka_unit_test(thread_gives_a_stream_what_it_knows),
        cmocka_unit_test(threads_hand_over_what_they_declare),
        cmocka_unit_test(new_thread_knows_what_all_others_know),
        cmocka_unit_test(new_thread_alone_knows_what_the_last_knew),
        cmocka_unit_test(record_and_wait_is_an_edge),
        cmocka_unit_test(recording_again_keeps_earlier_waits),
        cmocka_unit_test(legacy_stream_is_a_barrier_for_blocking_streams),
        cmocka_unit_test(blocks_move_by_the_legacy_rules),
        cmocka_unit_test(promise_of_legacy_is_not_kept_by_allocations),
        cmocka_unit_test(done_and_learn_are_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
