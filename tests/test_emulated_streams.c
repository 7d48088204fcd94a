/* test_emulated_streams.c - the order of work on an emulated device: streams, events,
 * the default streams, gates, schedules and their seeds, handles and their lives. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"
#include "support_work.h"

/* Every test of order holds for both schedulers; stepped ones for many seeds. */
static void on_both(void (*test)(weir_device *device, work_log *log))
{
    static work_log log;
    for (uint64_t seed = 0; seed < 40; seed++) {
        weir_device *device = seed == 0 ? open_threads() : open_stepped(seed);
        work_log_begin(&log);
        test(device, &log);
        close_emulated(device);
    }
}

/* ---- streams and events ---- */

static void in_order(weir_device *device, work_log *log)
{
    weir_stream a = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    for (char name = 'a'; name <= 'j'; name++)
        work_put(device, a, log, name);
    raw_sync_stream(device, a);
    must_have_run(log, "abcdefghij");
    raw_stream_end(device, a);
}

static void stream_runs_in_order(void **state)
{
    (void)state;
    on_both(in_order);
}

static void stepped_work_runs_only_while_the_host_waits(void **state)
{
    (void)state;
    static work_log log;
    weir_device *device = open_stepped(1);
    bool ran = true;
    work_log_begin(&log);
    must_ok(weir_emulated_step(device, &ran));
    must(!ran);
    work_put(device, NULL, &log, 'a');
    work_put(device, NULL, &log, 'b');
    must_have_run(&log, "");
    must_ok(weir_emulated_step(device, &ran));
    must(ran);
    must_have_run(&log, "a");
    raw_sync_stream(device, NULL);
    must_have_run(&log, "ab");
    close_emulated(device);
}

static void event_carries_order(weir_device *device, work_log *log)
{
    weir_stream a = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream b = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_event event = raw_event(device);
    must(raw_event_is_done(device, event));   /* never recorded */
    raw_wait_event(device, b, event);         /* no wait */
    uint64_t gate = raw_stall(device, a);
    work_put(device, a, log, 'a');
    raw_record(device, event, a);
    raw_wait_event(device, b, event);
    work_put(device, b, log, 'b');
    must(!raw_event_is_done(device, event));
    must_have_run(log, "");
    raw_open_gate(device, gate);
    raw_sync_stream(device, b);
    must_have_run(log, "ab");
    must_ok(weir__event_sync(device, event));
    must(raw_event_is_done(device, event));
    raw_event_end(device, event);
    raw_stream_end(device, a);
    raw_stream_end(device, b);
}

static void event_orders_streams(void **state)
{
    (void)state;
    on_both(event_carries_order);
}

/* b waits for the first record; the second, behind a closed gate, is nothing to it. The
 * same for an event that is destroyed after the wait was put. */
static void moved_event(weir_device *device, work_log *log)
{
    weir_stream a = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream b = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_event event = raw_event(device);
    uint64_t first = raw_stall(device, a);
    work_put(device, a, log, 'a');
    raw_record(device, event, a);
    raw_wait_event(device, b, event);
    work_put(device, b, log, 'b');
    uint64_t second = raw_stall(device, a);
    raw_record(device, event, a);
    must_have_run(log, "");
    raw_open_gate(device, first);
    raw_sync_stream(device, b);
    must_have_run(log, "ab");
    must(!raw_event_is_done(device, event));

    raw_wait_event(device, b, event);
    work_put(device, b, log, 'c');
    raw_event_end(device, event);
    bool done;
    must_ok(weir__stream_query(device, b, &done));
    must(!done);
    must_answer(WEIR_DEVICE_ERROR, weir__event_query(device, event, &done));
    raw_open_gate(device, second);
    raw_sync_stream(device, b);
    must_have_run(log, "abc");
    raw_stream_end(device, a);
    raw_stream_end(device, b);
}

static void waits_keep_where_the_event_was(void **state)
{
    (void)state;
    on_both(moved_event);
}

/* ---- default streams ---- */

static void legacy_is_a_barrier(weir_device *device, work_log *log)
{
    weir_stream a = raw_stream(device, WEIR_STREAM_BLOCKING);
    weir_stream b = raw_stream(device, WEIR_STREAM_BLOCKING);
    weir_stream free = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    uint64_t gate = raw_stall(device, a);
    work_put(device, a, log, 'a');
    work_put(device, NULL, log, 'l');
    work_put(device, b, log, 'b');
    work_put(device, free, log, 'f');
    raw_sync_stream(device, free);
    must_have_run(log, "f"); /* b waits for l, and l for a */
    raw_open_gate(device, gate);
    raw_sync_stream(device, b);
    must_have_run(log, "falb");

    gate = raw_stall(device, free);
    work_put(device, free, log, 'F');
    work_put(device, WEIR_STREAM_LEGACY, log, 'L');
    raw_sync_stream(device, WEIR_STREAM_LEGACY);
    must_have_run(log, "falbL");
    raw_open_gate(device, gate);
    must_ok(weir__device_sync(device));
    must_have_run(log, "falbLF");
    raw_stream_end(device, a);
    raw_stream_end(device, b);
    raw_stream_end(device, free);
}

static void legacy_and_blocking_streams_wait_for_each_other(void **state)
{
    (void)state;
    on_both(legacy_is_a_barrier);
}

/* A record or a wait on the legacy stream is an operation, so a barrier too; and a
 * destroyed blocking stream still counts while it has work. */
static void markers_are_operations(weir_device *device, work_log *log)
{
    weir_stream a = raw_stream(device, WEIR_STREAM_BLOCKING);
    weir_stream b = raw_stream(device, WEIR_STREAM_BLOCKING);
    weir_event event = raw_event(device);
    uint64_t gate = raw_stall(device, a);
    work_put(device, a, log, 'a');
    raw_stream_end(device, a);
    raw_record(device, event, NULL);
    work_put(device, b, log, 'b');
    must(!raw_event_is_done(device, event));
    must_have_run(log, "");
    raw_open_gate(device, gate);
    must_ok(weir__event_sync(device, event));
    must(has_run(log, 'a'));
    raw_sync_stream(device, b);
    must_have_run(log, "ab");
    raw_event_end(device, event);
    raw_stream_end(device, b);
}

static void records_on_the_legacy_stream_are_barriers(void **state)
{
    (void)state;
    on_both(markers_are_operations);
}

typedef struct own_stream_user {
    weir_device *device;
    work_log *log;
    uint64_t id;
    uint64_t gate;
} own_stream_user;

static void *use_own_stream(void *argument)
{
    own_stream_user *self = argument;
    bool blocking = false;
    self->id = raw_id_of(self->device, WEIR_STREAM_PER_THREAD);
    must_equal(self->id, raw_id_of(self->device, WEIR_STREAM_PER_THREAD));
    must_ok(weir__stream_get_flags(self->device, WEIR_STREAM_PER_THREAD, &blocking));
    must(blocking);
    self->gate = raw_stall(self->device, WEIR_STREAM_PER_THREAD);
    work_put(self->device, WEIR_STREAM_PER_THREAD, self->log, 't');
    return NULL;
}

static void own_streams(weir_device *device, work_log *log)
{
    pthread_t thread;
    own_stream_user other = { device, log, 0, 0 };
    uint64_t mine = raw_id_of(device, WEIR_STREAM_PER_THREAD);
    must(pthread_create(&thread, NULL, use_own_stream, &other) == 0);
    pthread_join(thread, NULL);
    must(other.id > mine && mine == raw_id_of(device, WEIR_STREAM_PER_THREAD));
    must(raw_id_of(device, NULL) != raw_id_of(device, WEIR_STREAM_PER_THREAD));

    work_put(device, WEIR_STREAM_PER_THREAD, log, 'm');
    raw_sync_stream(device, WEIR_STREAM_PER_THREAD); /* not held by the other's gate */
    must_have_run(log, "m");
    raw_open_gate(device, other.gate); /* the thread has ended, its work has not */
    must_ok(weir__device_sync(device));
    must_have_run(log, "mt");
}

static void per_thread_streams_are_one_for_each_thread(void **state)
{
    (void)state;
    on_both(own_streams);
}

/* ---- gates ---- */

static void wait_at_a_closed_gate_is_told(void **state)
{
    (void)state;
    static work_log log;
    weir_device *device = open_stepped(3);
    work_log_begin(&log);
    weir_stream a = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream b = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_event event = raw_event(device);
    uint64_t gate = raw_stall(device, a);
    raw_record(device, event, a);
    raw_wait_event(device, b, event);
    work_put(device, b, &log, 'b');

    char words[100];
    must_answer(WEIR_DEVICE_ERROR, weir__stream_sync(device, b));
    snprintf(words, sizeof words, "waits for stream %u",
             (unsigned)raw_id_of(device, b));
    must(strstr(weir_last_error().message, "deadlock") != NULL);
    must(strstr(weir_last_error().message, words) != NULL);
    snprintf(words, sizeof words, "gate %u, at which stream %u waits", (unsigned)gate,
             (unsigned)raw_id_of(device, a));
    must(strstr(weir_last_error().message, words) != NULL);
    must_answer(WEIR_DEVICE_ERROR, weir__event_sync(device, event));
    must_answer(WEIR_DEVICE_ERROR, weir__device_sync(device));

    raw_open_gate(device, gate);
    raw_open_gate(device, gate); /* once more does nothing */
    raw_sync_stream(device, b);
    must_have_run(&log, "b");
    raw_event_end(device, event);
    raw_stream_end(device, a);
    raw_stream_end(device, b);
    close_emulated(device);
}

/* Closing opens all gates and runs what is left, wherever it is. */
static void left_behind(weir_device *device, work_log *log)
{
    weir_stream a = raw_stream(device, WEIR_STREAM_BLOCKING);
    (void)raw_stall(device, a);
    work_put(device, a, log, 'a');
    work_put(device, NULL, log, 'l');
    raw_stream_end(device, a);
    weir_stream b = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_event event = raw_event(device);
    raw_record(device, event, NULL);
    raw_wait_event(device, b, event);
    work_put(device, b, log, 'b');
}

static void closing_runs_what_is_left(void **state)
{
    (void)state;
    static work_log log;
    for (int scheduler = 0; scheduler < 2; scheduler++) {
        weir_device *device = open_emulated((weir_emulated_scheduler)scheduler, 9);
        work_log_begin(&log);
        left_behind(device, &log);
        must_have_run(&log, "");
        close_anyhow(device);
        must_have_run(&log, "alb");
    }
}

/* ---- schedules ---- */

static void schedule_of(uint64_t seed, work_log *log)
{
    weir_device *device = open_stepped(seed);
    weir_stream streams[3];
    work_log_begin(log);
    for (int i = 0; i < 3; i++)
        streams[i] = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    for (int i = 0; i < 30; i++)
        work_put(device, streams[i % 3], log, (char)('a' + i % 3));
    bool done;
    must_ok(weir__stream_query(device, streams[0], &done));
    must_ok(weir__device_sync(device));
    for (int i = 0; i < 3; i++)
        raw_stream_end(device, streams[i]);
    close_emulated(device);
}

static void seed_makes_the_schedule(void **state)
{
    (void)state;
    static work_log one, two, before;
    unsigned different = 0;
    work_log_begin(&before);
    for (uint64_t seed = 0; seed < 20; seed++) {
        schedule_of(support_seed(seed), &one);
        schedule_of(seed, &two);
        char names[WORK_LOG_MAX + 1], others[WORK_LOG_MAX + 1];
        for (size_t i = 0; i <= WORK_LOG_MAX; i++) {
            must_equal(one.names[i], two.names[i]);
            names[i] = atomic_load(&one.names[i]);
            others[i] = atomic_load(&before.names[i]);
            atomic_store(&before.names[i], names[i]);
        }
        must_equal(strlen(names), 30);
        different += strcmp(names, others) != 0;
    }
    must(different >= 19);
}

static uint32_t choose_last(void *context, uint32_t n)
{
    ++*(unsigned *)context;
    return n - 1;
}

static void chooser_takes_the_place_of_the_seed(void **state)
{
    (void)state;
    static work_log log;
    unsigned asked = 0;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.choose = choose_last;
    emulated.choose_context = &asked;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    weir_device *device = open_with("emulated:0", &options);
    weir_stream a = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream b = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    work_log_begin(&log);
    work_put(device, a, &log, 'a');
    work_put(device, a, &log, 'a');
    work_put(device, b, &log, 'b');
    work_put(device, b, &log, 'b');
    must_ok(weir__device_sync(device));
    must_have_run(&log, "bbaa");
    must_equal(asked, 2); /* with one stream left there is nothing to choose */
    raw_stream_end(device, a);
    raw_stream_end(device, b);
    close_emulated(device);
}

/* Asking moves the device on sooner or later, but not at once in all seeds. */
static void queries_move_a_stepped_device(void **state)
{
    (void)state;
    static work_log log;
    unsigned at_once = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        weir_device *device = open_stepped(support_seed(seed));
        work_log_begin(&log);
        work_put(device, NULL, &log, 'a');
        bool done = false;
        unsigned asked = 0;
        for (; !done; asked++) {
            must(asked < 100);
            must_ok(weir__stream_query(device, NULL, &done));
            must(done == has_run(&log, 'a'));
        }
        at_once += asked == 1;
        close_emulated(device);
    }
    must(at_once > 5 && at_once < 35);
}

static void stepped_device_bounds_what_is_pending(void **state)
{
    (void)state;
    weir_device *device = open_stepped(1);
    weir_event event = raw_event(device);
    weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    size_t live = weir__host_live();
    for (int i = 0; i < 100000; i++)
        raw_record(device, event, stream);
    must(weir__host_live() < live + 5000);
    raw_sync_stream(device, stream);
    raw_event_end(device, event);
    raw_stream_end(device, stream);
    close_emulated(device);
}

/* ---- handles ---- */

static void handles(weir_device *device, work_log *log)
{
    weir_stream a = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    uint64_t id = raw_id_of(device, a);
    uint64_t gate = raw_stall(device, a);
    work_put(device, a, log, 'a');
    raw_stream_end(device, a);
    uint64_t other;
    must_answer(WEIR_DEVICE_ERROR, weir__stream_get_id(device, a, &other));
    must_equal(weir_last_error().native_code, 400);
    must_answer(WEIR_DEVICE_ERROR, work_try_put(device, a, log, 'x'));

    weir_stream b = raw_stream(device, WEIR_STREAM_BLOCKING);
    bool blocking = false, done = false;
    must(a == b);
    must(raw_id_of(device, b) > id);
    must_ok(weir__stream_get_flags(device, b, &blocking));
    must(blocking);
    while (!done) /* what the handle's first stream still has to do is not asked */
        must_ok(weir__stream_query(device, b, &done));
    work_put(device, b, log, 'b');
    raw_sync_stream(device, b);
    must_have_run(log, "b");
    raw_open_gate(device, gate);
    must_ok(weir__device_sync(device));
    must_have_run(log, "ba");
    raw_stream_end(device, b);
}

static void handles_are_reused_at_once(void **state)
{
    (void)state;
    on_both(handles);
}

static void handles_that_never_were_are_refused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_device *other = open_with("emulated:1", NULL);
    weir_stream theirs = raw_stream(other, WEIR_STREAM_BLOCKING);
    uint64_t words[16] = { 0 };
    uint64_t id;
    bool done;
    must_answer(WEIR_DEVICE_ERROR, weir__stream_get_id(device, theirs, &id));
    must_answer(WEIR_DEVICE_ERROR,
                weir__stream_get_id(device, (weir_stream)0x3, &id));
    must_answer(WEIR_DEVICE_ERROR, /* nor memory of any kind */
                weir__stream_get_id(device, (weir_stream)0x1234560, &id));
    must_answer(WEIR_DEVICE_ERROR,
                weir__event_query(device, (weir_event)0x1234560, &done));
    must_answer(WEIR_DEVICE_ERROR,
                weir__stream_get_id(device, (weir_stream)(void *)words, &id));
    must_answer(WEIR_DEVICE_ERROR,
                weir__event_query(device, (weir_event)(void *)words, &done));
    weir_event event = raw_event(other);
    must_answer(WEIR_DEVICE_ERROR, weir__stream_wait_event(device, NULL, event));
    raw_event_end(other, event);
    raw_stream_end(other, theirs);
    close_emulated(other);
    close_emulated(device);
}

static void many_streams_leave_memory_flat(void **state)
{
    (void)state;
    for (int scheduler = 0; scheduler < 3; scheduler++) {
        uint64_t count = scheduler == WEIR_EMULATED_THREADS ? 2000 : 100000;
        weir_device *device = open_emulated((weir_emulated_scheduler)scheduler, 1);
        weir_event event = raw_event(device);
        size_t live = 0;
        for (uint64_t i = 0; i < count; i++) {
            weir_stream stream = raw_stream(device, (weir_stream_kind)(i % 2));
            raw_record(device, event, stream);
            raw_stream_end(device, stream);
            if (scheduler == WEIR_EMULATED_THREADS && i % 50 == 0)
                must_ok(weir__device_sync(device)); /* workers may lag behind */
            if (i == count / 2)
                live = weir__host_live();
        }
        if (scheduler == WEIR_EMULATED_STEPPED) /* work may lie, up to a bound */
            live += 5000;
        must(weir__host_live() <= live + 2000);
        raw_event_end(device, event);
        close_emulated(device);
    }
}

/* ---- no work ---- */

static void without_work_events_wait_for_the_host(void **state)
{
    (void)state;
    static work_log log;
    weir_device *device = open_emulated(WEIR_EMULATED_NO_WORK, 0);
    weir_stream a = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream b = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_event first = raw_event(device), second = raw_event(device);
    bool done;
    work_log_begin(&log);
    must(raw_event_is_done(device, first));
    (void)raw_stall(device, a); /* gates stop nobody here */
    work_put(device, a, &log, 'a');
    raw_record(device, first, a);
    raw_record(device, second, a);
    for (int i = 0; i < 50; i++)
        must(!raw_event_is_done(device, first));
    must_ok(weir__event_sync(device, first));
    must(raw_event_is_done(device, first) && !raw_event_is_done(device, second));
    must_ok(weir__stream_query(device, a, &done));
    must(!done);
    raw_wait_event(device, b, second);
    raw_sync_stream(device, a);
    must(raw_event_is_done(device, second));
    raw_record(device, first, b);
    must(!raw_event_is_done(device, first));
    must_ok(weir__device_sync(device));
    must(raw_event_is_done(device, first));
    must_have_run(&log, "");
    raw_event_end(device, first);
    raw_event_end(device, second);
    raw_stream_end(device, a);
    raw_stream_end(device, b);
    close_emulated(device);
}

static void without_work_calls_need_no_host_memory(void **state)
{
    (void)state;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_NO_WORK;
    emulated.no_ledger = true;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    weir_device *device = open_with("emulated:0", &options);
    weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_event event = raw_event(device);
    weir__host_fail_at(1, true);
    for (int i = 0; i < 100; i++) {
        raw_record(device, event, stream);
        raw_wait_event(device, NULL, event);
        (void)raw_event_is_done(device, event);
        raw_sync_stream(device, stream);
        raw_event_end(device, event);
        event = raw_event(device);
    }
    must_equal(weir__host_calls(), 0);
    weir__host_fail_at(0, false);
    raw_event_end(device, event);
    raw_stream_end(device, stream);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_runs_in_order),
        cmocka_unit_test(stepped_work_runs_only_while_the_host_waits),
        cmocka_unit_test(event_orders_streams),
        cmocka_unit_test(waits_keep_where_the_event_was),
        cmocka_unit_test(legacy_and_blocking_streams_wait_for_each_other),
        cmocka_unit_test(records_on_the_legacy_stream_are_barriers),
        cmocka_unit_test(per_thread_streams_are_one_for_each_thread),
        cmocka_unit_test(wait_at_a_closed_gate_is_told),
        cmocka_unit_test(closing_runs_what_is_left),
        cmocka_unit_test(seed_makes_the_schedule),
        cmocka_unit_test(chooser_takes_the_place_of_the_seed),
        cmocka_unit_test(queries_move_a_stepped_device),
        cmocka_unit_test(stepped_device_bounds_what_is_pending),
        cmocka_unit_test(handles_are_reused_at_once),
        cmocka_unit_test(handles_that_never_were_are_refused),
        cmocka_unit_test(many_streams_leave_memory_flat),
        cmocka_unit_test(without_work_events_wait_for_the_host),
        cmocka_unit_test(without_work_calls_need_no_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
