/* test_emulated_faults.c - what goes wrong on an emulated device: planned faults, its
 * loss, and captures with what spoils them. */
#include <string.h>

#include "internal.h"
#include "support_work.h"

/* ---- faults ---- */

static void fault_strikes_the_nth_call_once(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_event event = raw_event(device);
    bool done;
    plan_fault(device, "event_record", 3, false, WEIR_DEVICE_ERROR);
    raw_record(device, event, NULL);
    must_ok(weir__event_query(device, event, &done)); /* another kind: not counted */
    raw_record(device, event, NULL);
    must_answer(WEIR_DEVICE_ERROR, weir__event_record(device, event, NULL));
    must(strstr(weir_last_error().message, "event_record") != NULL);
    must(weir_last_error().native_code != 0);
    raw_record(device, event, NULL);
    must_equal(weir_emulated_fault_calls(device), 4);
    must_ok(weir_emulated_set_fault(device, NULL));
    must_equal(weir_emulated_fault_calls(device), 0);
    raw_event_end(device, event);
    close_emulated(device);
}

static void fault_can_last(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    size_t free_bytes, total;
    weir_emulated_fault fault = { .struct_size = sizeof fault, .nth = 2,
                                  .lasting = true, .status = WEIR_OUT_OF_MEMORY };
    must_ok(weir_emulated_set_fault(device, &fault));
    must_ok(weir_device_memory(device, &free_bytes, &total));
    for (int i = 0; i < 3; i++) {
        must_answer(WEIR_OUT_OF_MEMORY,
                    weir_device_memory(device, &free_bytes, &total));
        must_equal(weir_last_error().native_code, 2);
    }
    must_answer(WEIR_OUT_OF_MEMORY, weir__device_sync(device));
    must_ok(weir_emulated_set_fault(device, NULL));
    must_ok(weir__device_sync(device));
    close_emulated(device);
}

static uint32_t faults_of(uint64_t seed, double probability)
{
    weir_device *device = open_stepped(seed);
    weir_event event = raw_event(device);
    weir_emulated_fault fault = { .struct_size = sizeof fault,
                                  .probability = probability };
    uint32_t struck = 0;
    bool done;
    must_ok(weir_emulated_set_fault(device, &fault));
    for (int i = 0; i < 32; i++)
        struck = struck << 1 | (weir__event_query(device, event, &done) != WEIR_OK);
    must_ok(weir_emulated_set_fault(device, NULL));
    raw_event_end(device, event);
    close_emulated(device);
    return struck;
}

static void fault_by_chance_depends_on_the_seed(void **state)
{
    (void)state;
    unsigned struck = 0, different = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        uint32_t first = faults_of(support_seed(seed), 0.25);
        must_equal(first, faults_of(seed, 0.25));
        different += first != faults_of(seed + 1, 0.25);
        struck += (unsigned)__builtin_popcount(first);
    }
    must(different > 15);
    must(struck > 80 && struck < 240); /* of 640, a quarter expected */
    must_equal(faults_of(1, 1.0), UINT32_MAX);
}

static void bad_plans_are_refused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_emulated_fault fault = { .struct_size = sizeof fault, .probability = 1.5 };
    must_answer(WEIR_INVALID_ARGUMENT, weir_emulated_set_fault(device, &fault));
    fault = (weir_emulated_fault){ .struct_size = 0, .nth = 1 };
    must_answer(WEIR_INVALID_ARGUMENT, weir_emulated_set_fault(device, &fault));
    fault = (weir_emulated_fault){ .struct_size = sizeof fault, .nth = 1 };
    for (int status = -1; status <= 15; status += 16) {
        fault.status = (weir_status)status;
        must_answer(WEIR_INVALID_ARGUMENT, weir_emulated_set_fault(device, &fault));
    }
    must_ok(weir__device_sync(device));
    must_equal(weir_emulated_call_bit("malloc"), 1);
    must(weir_emulated_call_bit("launch") != weir_emulated_call_bit("fill"));
    close_emulated(device);
}

/* A call that is struck has had no effect. */
static void struck_calls_have_no_effect(void **state)
{
    (void)state;
    static work_log log;
    weir_device *device = open_stepped(0);
    size_t before = device_free_bytes(device);
    void *ptr = NULL;
    work_log_begin(&log);
    plan_fault(device, NULL, 1, true, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir__malloc(device, 100, &ptr));
    must_answer(WEIR_DEVICE_ERROR, work_try_put(device, NULL, &log, 'a'));
    plan_fault(device, NULL, 0, false, WEIR_DEVICE_ERROR);
    must_ok(weir__device_sync(device));
    must_have_run(&log, "");
    must_equal(device_free_bytes(device), before);
    close_emulated(device);
}

/* ---- loss ---- */

static void lost(weir_emulated_scheduler scheduler)
{
    static work_log log;
    weir_device *device = open_emulated(scheduler, 3);
    weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_device_properties about = { .struct_size = sizeof about };
    void *ptr = NULL;
    bool done;
    work_log_begin(&log);
    uint64_t gate = raw_stall(device, stream);
    work_put(device, stream, &log, 'a');
    plan_fault(device, "malloc", 1, false, WEIR_DEVICE_LOST);
    must_answer(WEIR_DEVICE_LOST, weir__malloc(device, 100, &ptr));
    plan_fault(device, NULL, 0, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_LOST, weir__malloc(device, 100, &ptr));
    must_answer(WEIR_DEVICE_LOST, weir__stream_query(device, stream, &done));
    must_answer(WEIR_DEVICE_LOST, weir__device_sync(device));
    uint64_t no_gate;
    must_answer(WEIR_DEVICE_LOST, weir_emulated_stall(device, NULL, &no_gate));
    must_ok(weir_device_get_properties(device, &about));
    must(about.lost);
    raw_open_gate(device, gate);
    close_anyhow(device);
    must_have_run(&log, ""); /* what was left is dropped */
}

static void lost_device_stays_lost(void **state)
{
    (void)state;
    lost(WEIR_EMULATED_THREADS);
    lost(WEIR_EMULATED_STEPPED);
    lost(WEIR_EMULATED_NO_WORK);
}

/* A worker that waits for the work of a stream that has ended waits for nothing once
 * that work is dropped: closing would wait for the worker. */
static void lost_device_ends_the_workers_of_ended_streams(void **state)
{
    (void)state;
    static work_log log;
    weir_device *device = open_threads();
    weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_event event = raw_event(device);
    void *ptr;
    work_log_begin(&log);
    raw_record(device, event, stream);
    (void)raw_stall(device, stream);
    work_put(device, stream, &log, 'a');
    must_ok(weir__event_sync(device, event));
    raw_stream_end(device, stream);
    for (int i = 0; i < 100; i++) { /* meanwhile the worker goes to sleep at the gate */
        raw_record(device, event, NULL);
        must_ok(weir__event_sync(device, event));
    }
    plan_fault(device, "malloc", 1, false, WEIR_DEVICE_LOST);
    must_answer(WEIR_DEVICE_LOST, weir__malloc(device, 100, &ptr));
    close_anyhow(device);
    must_have_run(&log, "");
}

/* ---- capture ---- */

static void captured_work_is_counted_and_not_run(void **state)
{
    (void)state;
    static work_log log;
    weir_device *device = open_stepped(0);
    weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_event event = raw_event(device);
    size_t captured = 0;
    bool capturing = true;
    void *ptr;
    work_log_begin(&log);
    must_ok(weir__stream_is_capturing(device, stream, &capturing));
    must(!capturing);
    must_ok(weir_emulated_capture_begin(device, stream));
    must_answer(WEIR_DEVICE_ERROR, weir_emulated_capture_begin(device, stream));
    must_ok(weir__stream_is_capturing(device, stream, &capturing));
    must(capturing);
    work_put(device, stream, &log, 'a');
    must_ok(weir__malloc(device, 64, &ptr));
    must_ok(weir__fill(device, stream, ptr, 1, 64));
    must_ok(weir__free(device, ptr));
    raw_record(device, event, stream);
    raw_wait_event(device, stream, event);
    must_ok(weir_emulated_capture_end(device, stream, &captured));
    must_equal(captured, 4);
    must_answer(WEIR_DEVICE_ERROR, weir_emulated_capture_end(device, stream, NULL));

    bool done;
    must_answer(WEIR_DEVICE_ERROR, weir__event_query(device, event, &done));
    raw_record(device, event, stream); /* outside of a capture: an event as any other */
    must_ok(weir__event_sync(device, event));
    must_have_run(&log, "");
    raw_event_end(device, event);
    raw_stream_end(device, stream);
    close_emulated(device);
}

/* What one may not do while `stream` captures; each spoils the capture. */
typedef weir_status (*spoiler)(weir_device *device, weir_stream stream,
                               weir_event captured, weir_event other);

static weir_status sync_it(weir_device *device, weir_stream stream, weir_event captured,
                           weir_event other)
{
    (void)captured;
    (void)other;
    return weir__stream_sync(device, stream);
}

static weir_status query_it(weir_device *device, weir_stream stream,
                            weir_event captured, weir_event other)
{
    bool done;
    (void)captured;
    (void)other;
    return weir__stream_query(device, stream, &done);
}

static weir_status ask_name(weir_device *device, weir_stream stream,
                            weir_event captured, weir_event other)
{
    uint64_t id;
    (void)captured;
    (void)other;
    return weir__stream_get_id(device, stream, &id);
}

static weir_status ask_flags(weir_device *device, weir_stream stream,
                             weir_event captured, weir_event other)
{
    bool blocking;
    (void)captured;
    (void)other;
    return weir__stream_get_flags(device, stream, &blocking);
}

static weir_status sync_all(weir_device *device, weir_stream stream,
                            weir_event captured, weir_event other)
{
    (void)stream;
    (void)captured;
    (void)other;
    return weir__device_sync(device);
}

static weir_status query_event(weir_device *device, weir_stream stream,
                               weir_event captured, weir_event other)
{
    bool done;
    (void)stream;
    (void)other;
    return weir__event_query(device, captured, &done);
}

static weir_status sync_event(weir_device *device, weir_stream stream,
                              weir_event captured, weir_event other)
{
    (void)stream;
    (void)other;
    return weir__event_sync(device, captured);
}

static weir_status wait_on_legacy(weir_device *device, weir_stream stream,
                                  weir_event captured, weir_event other)
{
    (void)stream;
    (void)other;
    return weir__stream_wait_event(device, NULL, captured);
}

static weir_status wait_from_outside(weir_device *device, weir_stream stream,
                                     weir_event captured, weir_event other)
{
    (void)captured;
    return weir__stream_wait_event(device, stream, other);
}

static weir_status use_legacy(weir_device *device, weir_stream stream,
                              weir_event captured, weir_event other)
{
    (void)stream;
    (void)captured;
    return weir__event_record(device, other, NULL);
}

static void spoil_by(spoiler spoil)
{
    static work_log log;
    weir_device *device = open_stepped(0);
    weir_stream stream = raw_stream(device, WEIR_STREAM_BLOCKING);
    weir_event captured = raw_event(device), other = raw_event(device);
    size_t count = 1;
    work_log_begin(&log);
    raw_record(device, other, WEIR_STREAM_PER_THREAD);
    must_ok(weir_emulated_capture_begin(device, stream));
    raw_record(device, captured, stream);
    must_answer(WEIR_DEVICE_ERROR, spoil(device, stream, captured, other));
    must(weir_last_error().native_code >= 900);
    must_answer(WEIR_DEVICE_ERROR, work_try_put(device, stream, &log, 'a'));
    must_answer(WEIR_DEVICE_ERROR, weir_emulated_capture_end(device, stream, &count));
    must_equal(count, 0);
    raw_sync_stream(device, stream); /* and then it is a stream again */
    must_ok(weir__device_sync(device));
    raw_event_end(device, captured);
    raw_event_end(device, other);
    raw_stream_end(device, stream);
    close_emulated(device);
}

static void captures_are_spoilt(void **state)
{
    (void)state;
    static const spoiler all[] = { sync_it, query_it, ask_name, ask_flags, sync_all,
                                   query_event, sync_event, wait_on_legacy,
                                   wait_from_outside, use_legacy };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        spoil_by(all[i]);
}

/* The legacy stream and a non-blocking one do not know each other, captured or not; and
 * a stream may end while it captures. */
static void captures_of_non_blocking_streams_bear_the_legacy_one(void **state)
{
    (void)state;
    static work_log log;
    weir_device *device = open_stepped(0);
    weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    size_t captured;
    work_log_begin(&log);
    must_ok(weir_emulated_capture_begin(device, stream));
    work_put(device, NULL, &log, 'l');
    raw_sync_stream(device, NULL);
    must_have_run(&log, "l");
    must_ok(weir_emulated_capture_end(device, stream, &captured));
    must_ok(weir_emulated_capture_begin(device, stream));
    raw_stream_end(device, stream);
    must_ok(weir__device_sync(device));
    close_emulated(device);
}

/* ---- host memory ---- */

static weir_status touch_everything(weir_device *device, work_log *log,
                                    weir_event event, void *ptr)
{
    weir_stream stream;
    weir_status status = weir_emulated_stream_create(device, WEIR_STREAM_BLOCKING,
                                                     &stream);
    if (status != WEIR_OK)
        return status;
    status = weir__event_record(device, event, stream);
    if (status == WEIR_OK)
        status = weir__stream_wait_event(device, WEIR_STREAM_PER_THREAD, event);
    if (status == WEIR_OK)
        status = work_try_put(device, NULL, log, 'a');
    if (status == WEIR_OK)
        status = weir__fill(device, stream, ptr, 1, 100);
    raw_stream_end(device, stream);
    return status;
}

/* Every host allocation of a small program fails in turn, under both schedulers. */
static void calls_survive_every_host_failure(void **state)
{
    (void)state;
    static work_log log;
    for (int scheduler = 0; scheduler < 2; scheduler++) {
        weir_status status = WEIR_OUT_OF_HOST_MEMORY;
        for (uint64_t failing = 1; status != WEIR_OK; failing++) {
            weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
            emulated.scheduler = (weir_emulated_scheduler)scheduler;
            emulated.no_ledger = true;
            weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
            options.emulated = &emulated;
            weir_device *device = open_with("emulated:0", &options);
            weir_event event = raw_event(device);
            void *ptr;
            work_log_begin(&log);
            must_ok(weir__malloc(device, 100, &ptr));
            weir__host_fail_at(failing, false);
            status = touch_everything(device, &log, event, ptr);
            weir__host_fail_at(0, false);
            must(status == WEIR_OK || status == WEIR_OUT_OF_HOST_MEMORY);
            must(status != WEIR_OK || failing > 5);
            must_ok(weir__device_sync(device));
            must_have_run(&log, status == WEIR_OK || has_run(&log, 'a') ? "a" : "");
            must_ok(weir__free(device, ptr));
            raw_event_end(device, event);
            close_emulated(device);
        }
    }
}

static void opening_survives_every_host_failure(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0); /* another stays open: leaks would show */
    size_t live = weir__host_live();
    weir_device *other = NULL;
    uint64_t failing = 1;
    for (; other == NULL; failing++) {
        weir__host_fail_at(failing, false);
        weir_status status = weir_device_open("emulated:1", NULL, &other);
        weir__host_fail_at(0, false);
        must(status == WEIR_OK || status == WEIR_OUT_OF_HOST_MEMORY);
        must(status == WEIR_OK || weir__host_live() == live);
        must(failing < 100);
    }
    must(failing > 5);
    weir_device_unref(other);
    close_anyhow(device); /* the ledger they share may have gone deaf */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_strikes_the_nth_call_once),
        cmocka_unit_test(fault_can_last),
        cmocka_unit_test(fault_by_chance_depends_on_the_seed),
        cmocka_unit_test(bad_plans_are_refused),
        cmocka_unit_test(struck_calls_have_no_effect),
        cmocka_unit_test(lost_device_stays_lost),
        cmocka_unit_test(lost_device_ends_the_workers_of_ended_streams),
        cmocka_unit_test(captured_work_is_counted_and_not_run),
        cmocka_unit_test(captures_are_spoilt),
        cmocka_unit_test(captures_of_non_blocking_streams_bear_the_legacy_one),
        cmocka_unit_test(calls_survive_every_host_failure),
        cmocka_unit_test(opening_survives_every_host_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
