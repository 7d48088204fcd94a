/* test_ledger_bounds.c - the ledger without host memory, and how much it keeps. */
#include <string.h>

#include "internal.h"
#include "support.h"
#include "support_ledger.h"

/* ---- no host memory ---- */

/* Needs memory in every way there is. */
static void everything(void)
{
    weir__ledger_stream_begin(ledger, &our_owner, 50, false, true);
    allocate_on(50);
    touch(50, BASE + 10, 10, WEIR_EMULATED_WRITE);
    read_on(A);
    read_on(BLOCKING);
    weir__ledger_position *all = weir__ledger_record_all(ledger, host, &ours);
    weir__ledger_done(ledger, host, &ours, KEY, all);
    weir__ledger_done(ledger, host, &ours, KEY + 1, NULL);
    weir__ledger_forget(ledger, &ours, KEY, true);
    weir__ledger_learn(ledger, 7, &ours, 0);
    host_waits(all);
    wait_for(LEGACY, D);
    stream_waits(C, weir__ledger_look(ledger, LEGACY));
    weir__ledger_position *token = weir__ledger_host_give(ledger, host);
    weir__ledger_host_take(ledger, 8, token);
    weir__ledger_unref(ledger, token);
    deallocate_on(C);
    weir__ledger_memory_begin(ledger, &our_owner, host, 16, 16);
    weir__ledger_memory_end(ledger, 9, 16);
    weir__ledger_stream_end(ledger, 50);
    weir__ledger_thread_end(ledger, 8);
}

static void without_host_memory_it_is_deaf_and_says_so(void **state)
{
    (void)state;
    size_t live = weir__host_live();
    uint64_t nth = 1;
    for (bool failed = true; failed; nth++) {
        set_scene();
        weir__host_fail_at(nth, false);
        everything();
        failed = weir__host_calls() >= nth;
        weir__host_fail_at(0, false);
        if (failed && ours.count > 0 &&
            strcmp(ours.last.second, "the ledger is deaf") == 0) {
            must_equal(others.count, 1); /* all devices are told */
            size_t count = ours.count;
            weir_emulated_finding last = ours.last;
            write_on(A);
            write_on(B);
            must_equal(ours.count, count);
            must(record(A) == NULL && weir__ledger_look(ledger, A) == NULL);
            must(strcmp(last.first, "no host memory") == 0);
            must_equal(last.bytes, 0);

            /* One that opens only now is told as well. */
            log_of_device late = { 0 };
            weir__ledger_owner late_owner = { found, &late };
            weir__ledger_stream_begin(ledger, &late_owner, 60, true, true);
            weir__ledger_stream_begin(ledger, &late_owner, 61, false, true);
            must_equal(late.count, 1);
        } else {
            /* Only pruning may put up with it. */
            must(!failed || others.count == 0);
        }
        clear_scene();
        must_equal(weir__host_live(), live);
    }
    must(nth > 30);
}

static void opening_without_host_memory_is_null(void **state)
{
    (void)state;
    weir__host_fail_at(1, false);
    must(weir__ledger_open() == NULL);
    weir__host_fail_at(0, false);
}

/* ---- bounds ---- */

static void must_be_small(void)
{
    weir__ledger_size size = weir__ledger_measure(ledger);
    must(size.actors < 600);
    must(size.entries < 10000);
    must(size.ranges < 600);
    must(size.accesses < 600);
}

static uint64_t lives(void)
{
    return support_bound("streams and threads that the ledger outlives", 20000, 100000);
}

typedef enum who_waits { THE_HOST, THE_NEXT_STREAM } who_waits;

/* Many short lives of streams, on memory that is reused now and then. */
static void live_and_end(who_waits who, bool blocks)
{
    weir__ledger_position *last = NULL;
    uint64_t count = lives();
    for (uint64_t i = 0; i < count; i++) {
        uint64_t id = 1000 + i;
        uintptr_t ptr = BASE + (i * 7 % 32) * BLOCK;
        weir__ledger_stream_begin(ledger, &our_owner, id, false, i % 2 == 0);
        if (who == THE_NEXT_STREAM)
            weir__ledger_stream_wait(ledger, host, id, last);
        if (blocks)
            weir__ledger_allocate(ledger, host, id, ptr, BLOCK);
        weir__ledger_access half = { ptr + 16, BLOCK / 2, WEIR_EMULATED_READ_WRITE };
        weir__ledger_operation(ledger, host, id, "kernel", &half, 1);
        if (blocks)
            weir__ledger_deallocate(ledger, host, id, ptr, BLOCK);
        weir__ledger_done(ledger, host, &ours, id, NULL);
        weir__ledger_unref(ledger, last);
        last = weir__ledger_record(ledger, host, id);
        weir__ledger_stream_end(ledger, id);
        if (who == THE_HOST)
            weir__ledger_host_wait(ledger, host, last);
        weir__ledger_forget(ledger, &ours, id, true);
        if (i % 1024 == 0) {
            must_be_small();
            weir__ledger_verify(ledger);
        }
    }
    weir__ledger_unref(ledger, last);
    must_be_small();
    must_have_found(0, true);
}

static void ended_streams_leave_memory_flat(void **state)
{
    (void)state;
    for (int way = 0; way < 8; way++) {
        set_scene();
        if (way & 4) /* else thread 2 is idle all the time, and knows nothing */
            weir__ledger_thread_end(ledger, 2);
        live_and_end(way & 1 ? THE_NEXT_STREAM : THE_HOST, (way & 2) != 0);
        clear_scene();
    }
}

/* Each writes bytes of its own, which are never touched again: they are forgotten once
 * all threads know that they are done. */
static void what_all_threads_know_is_forgotten(void **state)
{
    (void)state;
    set_scene();
    weir__ledger_thread_end(ledger, 2);
    for (uint64_t i = 0; i < 10000; i++) {
        weir__ledger_stream_begin(ledger, &our_owner, 1000 + i, false, false);
        touch(1000 + i, BASE + i * 100, 50, WEIR_EMULATED_WRITE);
        host_waits(weir__ledger_look(ledger, 1000 + i));
        weir__ledger_stream_end(ledger, 1000 + i);
        if (i % 1024 == 0)
            must_be_small();
    }
    must_be_small();
    must_have_found(0, true);
    clear_scene();
}

static void ended_threads_leave_memory_flat(void **state)
{
    (void)state;
    set_scene();
    uint64_t count = lives();
    for (uint64_t i = 0; i < count; i++) {
        host = 1000 + i;
        touch(A, BASE + i % 64 * BLOCK, BLOCK, WEIR_EMULATED_WRITE);
        host_waits(weir__ledger_look(ledger, A));
        weir__ledger_thread_end(ledger, host);
        if (i % 1024 == 0)
            must_be_small();
    }
    must_have_found(0, true);
    clear_scene();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_host_memory_it_is_deaf_and_says_so),
        cmocka_unit_test(opening_without_host_memory_is_null),
        cmocka_unit_test(ended_streams_leave_memory_flat),
        cmocka_unit_test(what_all_threads_know_is_forgotten),
        cmocka_unit_test(ended_threads_leave_memory_flat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
