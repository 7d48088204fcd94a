/* test_ledger_foreign.c - the ledger and those of other processes, whose tellings are
 * made up here: who is behind what they have done, and what is forgotten of it. */
#include <string.h>
#include <unistd.h>

#include "device/ledger_foreign.h"
#include "internal.h"
#include "ipc_process.h"
#include "support.h"
#include "support_ledger.h"

/* Streams of process 77, by the names that all processes know. */
#define NAME(process, id) (UINT64_C(1) << 63 | (uint64_t)(process) << 32 | (id))
#define X NAME(77, 5)
#define Y NAME(77, 6)
#define ROOM 64

static weir__ledger_teller alive(void)
{
    int32_t pid = (int32_t)getpid();
    return (weir__ledger_teller){ pid, weir__process_start_time(pid) };
}

/* What process 77 tells in its telling `number`. */
static weir__ledger_position *hear_from(weir__ledger_teller teller, uint64_t number,
                                        const weir__epoch *epochs, size_t count)
{
    weir__epoch room[ROOM];
    const weir__ledger_telling telling = { 77, number, X, count };
    must(count <= ROOM);
    memcpy(room, epochs, count * sizeof *epochs);
    weir__ledger_position *position =
        weir__ledger_hear(ledger, &teller, &telling, room);
    weir__ledger_verify(ledger);
    return position;
}

#define HEAR(number, ...)                                                        \
    hear_from(alive(), number, (const weir__epoch[]){ __VA_ARGS__ },             \
              sizeof((const weir__epoch[]){ __VA_ARGS__ }) / sizeof(weir__epoch))

static void foreign(uint64_t stream, const weir__ledger_position *position, bool writes)
{
    weir__ledger_foreign(ledger, stream, position, BASE, BLOCK, writes);
    weir__ledger_verify(ledger);
}

static void forget_position(weir__ledger_position *position)
{
    weir__ledger_unref(ledger, position);
}

/* ---- their accesses ---- */

static void they_write(bool with)
{
    weir__ledger_position *event = HEAR(1, { X, 3 });
    foreign(X, event, true);
    if (with)
        weir__ledger_stream_wait(ledger, host, A, event);
    forget_position(event);
    read_on(A);
    if (!with) {
        must(strcmp(ours.last.first, "another process writes") == 0);
        must(ours.last.first_stream == X && ours.last.second_stream == A);
    }
}

static void they_read(bool with)
{
    weir__ledger_position *event = HEAR(1, { X, 3 });
    foreign(X, event, false);
    read_on(B); /* which they do not mind */
    stream_waits(A, record(B));
    if (with)
        weir__ledger_host_wait(ledger, host, event);
    forget_position(event);
    write_on(A);
}

/* What is recorded there behind the first does as well. */
static void a_later_event_is_waited_for(bool with)
{
    weir__ledger_position *event = HEAR(1, { X, 3 }, { Y, 0 });
    foreign(X, event, true);
    forget_position(event);
    stream_waits(A, HEAR(2, { X, with ? 4 : 2 }, { Y, 1 }));
    write_on(A);
}

static void their_accesses_are_findings(void **state)
{
    (void)state;
    check_edge(they_write);
    check_edge(they_read);
    check_edge(a_later_event_is_waited_for);
}

/* ---- what was before, and what comes back ---- */

/* Tells of a record of `stream`, with more of process 77. */
static weir__ledger_position *round_trip(uint64_t stream, bool is_carried)
{
    weir__epoch epochs[ROOM];
    weir__ledger_telling telling;
    weir__ledger_position *event = record(stream);
    weir__ledger_tell_others(ledger, event, stream, epochs, ROOM - 1, &telling);
    must(telling.count > 0 && telling.count < ROOM);
    must_equal(telling.stream & UINT32_MAX, stream);
    must(telling.process > 0 && telling.process < UINT64_C(1) << 31);
    forget_position(event);
    for (size_t i = 0; i < telling.count && !is_carried; i++)
        epochs[i].time = 0;
    epochs[telling.count] = (weir__epoch){ X, 1 };
    return hear_from(alive(), 1, epochs, telling.count + 1);
}

static void order_leads_through_them(bool with)
{
    write_on(A);
    stream_waits(B, round_trip(A, with));
    write_on(B);
}

static void they_are_behind_what_was(bool with)
{
    write_on(A);
    weir__ledger_position *event = round_trip(A, with);
    foreign(X, event, true);
    if (!with)
        must(strcmp(ours.last.second, "another process writes") == 0);
    stream_waits(B, event);
    stream_waits(B, record(A)); /* if it did not come back */
    write_on(B);
}

/* It has no ledger, and may be behind what it was told. */
static void they_say_nothing_of_it(bool with)
{
    static const weir__ledger_telling silent;
    const weir__ledger_teller self = alive();
    weir__epoch none;
    write_on(A);
    if (with)
        forget_position(round_trip(A, false));
    weir__ledger_position *event = weir__ledger_hear(ledger, &self, &silent, &none);
    foreign(0, event, true);
    stream_waits(B, event);
    write_on(B);
}

static void order_comes_back(void **state)
{
    (void)state;
    check_edge(they_say_nothing_of_it);
    check_edge(order_leads_through_them);
    check_edge(they_are_behind_what_was);
}

/* All that the ledger knows is listed, and a stream that is gone is not. */
static void tellings_list_what_is_known(void **state)
{
    (void)state;
    weir__epoch epochs[ROOM];
    weir__ledger_telling telling;
    set_scene();
    write_on(A);
    write_on(B);
    stream_waits(B, HEAR(1, { X, 7 }, { Y, 0 }));
    weir__ledger_position *event = record(B);
    weir__ledger_tell_others(ledger, event, B, epochs, ROOM, &telling);
    uint64_t number = telling.number;
    must_equal(telling.count, 11); /* ten here, and X */
    bool has_a = false, has_b = false, has_x = false;
    for (size_t i = 0; i < telling.count; i++) {
        has_a |= epochs[i].stream == NAME(telling.process, A) && epochs[i].time == 0;
        has_b |= epochs[i].stream == NAME(telling.process, B) && epochs[i].time > 0;
        has_x |= epochs[i].stream == X && epochs[i].time == 7;
    }
    must(has_a && has_b && has_x);
    weir__ledger_tell_others(ledger, event, B, epochs, 3, &telling);
    must(telling.count == 11 && telling.number > number);
    weir__ledger_tell_others(ledger, NULL, B, epochs, 3, &telling);
    must_equal(telling.process, 0);
    forget_position(event);
    clear_scene();
}

/* ---- accesses that are told late, or as one's own ---- */

static void they_tell_late(void)
{
    weir__ledger_position *early = HEAR(1, { X, 3 }), *late = HEAR(2, { X, 9 });
    foreign(X, late, true);
    foreign(X, early, true);
    foreign(X, early, false);
    foreign(X, late, false);
    foreign(X, late, false);
    foreign(X, early, true);
    stream_waits(A, late);
    forget_position(early);
    write_on(A);
}

/* In front of a record that this process has made itself; then the stream goes on. */
static void they_are_this_process(void)
{
    weir__epoch epochs[ROOM];
    weir__ledger_telling telling;
    const weir__ledger_teller self = alive();
    write_on(A);
    weir__ledger_position *event = record(A);
    weir__ledger_tell_others(ledger, event, A, epochs, ROOM, &telling);
    forget_position(event);
    event = weir__ledger_hear(ledger, &self, &telling, epochs);
    write_on(A);
    foreign(telling.stream, event, true);
    foreign(telling.stream, event, false);
    forget_position(event);
    write_on(A);
}

/* Who says what cannot be; or where nothing is. */
static void they_say_nothing(void)
{
    weir__ledger_position *event = HEAR(1, { X, 3 }, { A, 5 }, { 0, 1 }, { X, 2 });
    foreign(Y, event, true);
    foreign(A, event, true);
    foreign(0, event, true);
    weir__ledger_foreign(ledger, X, event, 16, 16, true);
    weir__ledger_foreign(ledger, X, event, BASE, 0, true);
    weir__ledger_foreign(ledger, X, NULL, BASE, BLOCK, true);
    forget_position(event);
    write_on(A);
}

static void late_and_odd_accesses_are_sound(void **state)
{
    (void)state;
    check_quiet(they_tell_late);
    check_quiet(they_are_this_process);
    check_quiet(they_say_nothing);
}

/* ---- forgetting ---- */

/* What says nothing of X may be behind it all the same, once X is forgotten. */
static void they_forget(bool with)
{
    weir__ledger_position *event = HEAR(1, { X, 3 }, { Y, 0 });
    foreign(X, event, true);
    forget_position(event);
    event = with ? HEAR(2, { Y, 1 }) : HEAR(2, { Y, 1 }, { X, 0 });
    stream_waits(A, event);
    write_on(A);
}

/* An old telling does not know what began after it. */
static void they_told_before(bool with)
{
    weir__ledger_position *event = HEAR(3, { X, 3 }, { Y, 2 });
    foreign(Y, event, true);
    forget_position(HEAR(2, { X, 2 }));
    stream_waits(A, with ? event : HEAR(2, { X, 2 }));
    if (!with)
        forget_position(event);
    write_on(A);
}

static void what_they_forget_is_no_finding(void **state)
{
    (void)state;
    check_edge(they_forget);
    check_edge(they_told_before);
}

/* One stream of theirs after the other: nothing is left of those that were forgotten,
 * but where an access names them. */
static void forgotten_streams_leave_nothing(void **state)
{
    (void)state;
    set_scene();
    size_t most = 0;
    for (uint64_t i = 1; i <= 2000; i++) {
        uint64_t stream = NAME(77, 100 + i);
        weir__ledger_position *event = HEAR(i, { stream, 1 });
        foreign(stream, event, false);
        weir__ledger_host_wait(ledger, 2, event);
        host_waits(event);
        read_on(A);
        weir__ledger_size size = weir__ledger_measure(ledger);
        if (size.actors + size.entries > most)
            most = size.actors + size.entries;
    }
    must(most < 400); /* some are there until the next pruning */
    must_have_found(0, true);
    clear_scene();
}

/* The same for processes that end, each after one telling. */
static void processes_that_end_leave_nothing(void **state)
{
    (void)state;
    set_scene();
    size_t most = 0;
    const weir__ledger_teller gone = { INT32_MAX, 1 }, self = alive();
    for (uint64_t i = 1; i <= 2000; i++) {
        weir__epoch epoch = { NAME(1000 + i, 1), 1 };
        const weir__ledger_telling telling = { 1000 + i, 1, epoch.stream, 1 };
        stream_waits(A, weir__ledger_hear(ledger, i % 10 == 0 ? &self : &gone, &telling,
                                          &epoch));
        read_on(A);
        weir__ledger_size size = weir__ledger_measure(ledger);
        if (i < 1000 && size.actors > most)
            most = size.actors;
    }
    must(most < 800);
    weir__ledger_size size = weir__ledger_measure(ledger);
    must(size.actors >= 200); /* those that live stay */
    clear_scene();
}

/* ---- what goes wrong ---- */

static void everything(void)
{
    weir__ledger_position *event = HEAR(1, { X, 3 }, { Y, 2 });
    foreign(X, event, true);
    weir__ledger_stream_wait(ledger, host, A, event);
    write_on(A);
    weir__ledger_unref(ledger, event);
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
        must_equal(ours.count, failed ? 1 : 0);
        must(!failed || strcmp(ours.last.second, "the ledger is deaf") == 0);
        clear_scene();
    }
    must(nth > 6);
    must_equal(weir__host_live(), live);

    set_scene(); /* what could not be read at all */
    const weir__ledger_teller self = alive();
    const weir__ledger_telling telling = { 77, 1, X, 1000000 };
    must(weir__ledger_hear(ledger, &self, &telling, NULL) == NULL);
    must(strcmp(ours.last.second, "the ledger is deaf") == 0);
    clear_scene();
}

/* Any numbers at all: they are findings at worst. */
static void lies_do_no_harm(void **state)
{
    (void)state;
    uint64_t count = support_bound("tellings of nonsense", 2000, 100000);
    set_scene();
    uint64_t random = support_seed(0);
    const weir__ledger_teller self = alive();
    weir__epoch epochs[ROOM];
    weir__ledger_telling own;
    weir__ledger_position *event = record(A);
    weir__ledger_tell_others(ledger, event, A, epochs, ROOM, &own);
    forget_position(event);
    const uint64_t processes[] = { 77, 78, own.process, 0 };
    for (uint64_t i = 0; i < count; i++) {
        weir__ledger_telling telling = {
            processes[support_random_below(&random, 4)], support_random(&random) >> 40,
            X, support_random_below(&random, ROOM)
        };
        for (size_t k = 0; k < telling.count; k++) {
            uint64_t of = processes[support_random_below(&random, 4)];
            uint64_t id = support_random_below(&random, 40);
            uint64_t shift = support_random_below(&random, 64);
            epochs[k] = (weir__epoch){ NAME(of, id), support_random(&random) >> shift };
            if (support_random_below(&random, 8) == 0)
                epochs[k].stream = support_random_below(&random, 40);
        }
        event = weir__ledger_hear(ledger, &self, &telling, epochs);
        must(event != NULL);
        weir__ledger_foreign(ledger, epochs[0].stream, event, BASE, BLOCK, i % 2 == 0);
        weir__ledger_stream_wait(ledger, host, A + i % 3, event);
        forget_position(event);
        const weir__ledger_access access = { BASE, BLOCK, WEIR_EMULATED_WRITE };
        weir__ledger_operation(ledger, host, A + i % 4, "kernel", &access, 1);
    }
    weir__ledger_device_end(ledger, &ours);
    weir__ledger_device_end(ledger, &others);
    weir__ledger_close(ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(their_accesses_are_findings),
        cmocka_unit_test(order_comes_back),
        cmocka_unit_test(tellings_list_what_is_known),
        cmocka_unit_test(late_and_odd_accesses_are_sound),
        cmocka_unit_test(what_they_forget_is_no_finding),
        cmocka_unit_test(forgotten_streams_leave_nothing),
        cmocka_unit_test(processes_that_end_leave_nothing),
        cmocka_unit_test(without_host_memory_it_is_deaf_and_says_so),
        cmocka_unit_test(lies_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
