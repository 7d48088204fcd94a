/* test_shared_event.c - events of an emulated device that other processes open: what
 * waits for them here waits for what the other has put on its streams. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "support_process.h"
#include "support_shared.h"
#include "support_work.h"

static const weir_emulated_scheduler schedulers[] = {
    WEIR_EMULATED_THREADS, WEIR_EMULATED_STEPPED, WEIR_EMULATED_NO_WORK
};

static weir_event make_event(weir_device *device, weir__shared_event *handle)
{
    weir_event event;
    must_ok(weir__shared_event_create(device, &event, handle));
    must(handle->fd >= 0 && (fcntl(handle->fd, F_GETFD) & FD_CLOEXEC) != 0);
    return event;
}

static weir_event open_event(weir_device *device, const weir__shared_event *handle)
{
    weir_event event;
    must_ok(weir__shared_event_open(device, handle, &event));
    return event;
}

/* ---- two processes ---- */

/* Has a stream that is stalled before a record, and opens the gate when told to. */
static void recorder(int channel)
{
    weir_emulated_scheduler scheduler;
    (void)channel_receive(channel, &scheduler, sizeof scheduler);
    weir_device *device = open_emulated(scheduler, 1);
    weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir__shared_event handle;
    weir_event event = make_event(device, &handle);
    uint64_t gate = raw_stall(device, stream);
    raw_record(device, event, stream);
    channel_send(channel, &handle, sizeof handle, handle.fd);
    close(handle.fd);
    channel_hear(channel, "open");
    raw_open_gate(device, gate);
    raw_sync_stream(device, stream);
    channel_hear(channel, "end");
    raw_event_end(device, event);
    raw_stream_end(device, stream);
    close_emulated(device);
}

static support_process start_recorder(weir_emulated_scheduler scheduler,
                                      weir__shared_event *handle)
{
    support_process process = process_start("recorder");
    channel_send(process.channel, &scheduler, sizeof scheduler, -1);
    handle->fd = channel_receive(process.channel, handle, sizeof *handle);
    return process;
}

static weir_event open_and_close(weir_device *device, weir__shared_event *handle)
{
    must(handle->fd >= 0);
    weir_event event = open_event(device, handle);
    close(handle->fd);
    return event;
}

/* As many times as it takes to be sure that the wait comes before the gate opens. */
static void stream_waits(weir_emulated_scheduler here, weir_emulated_scheduler there)
{
    static work_log log;
    weir__shared_event handle;
    support_process process = start_recorder(there, &handle);
    weir_device *device = open_emulated(here, 2);
    weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream free_one = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream behind = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_event event = open_and_close(device, &handle), own = raw_event(device);
    bool done;
    work_log_begin(&log);
    raw_wait_event(device, stream, event);
    work_put(device, stream, &log, 'a');
    raw_record(device, own, stream);
    raw_wait_event(device, behind, own);
    work_put(device, behind, &log, 'b');
    work_put(device, free_one, &log, 'c');
    raw_sync_stream(device, free_one);
    for (int i = 0; i < 200; i++) /* more than it takes to look at the process */
        must(!raw_event_is_done(device, event));
    must_ok(weir__stream_query(device, stream, &done));
    must(!done);
    must_have_run(&log, "c");

    channel_say(process.channel, "open");
    raw_sync_stream(device, behind);
    must_have_run(&log, "cab");
    must(raw_event_is_done(device, event));
    must_ok(weir__event_sync(device, event));
    channel_say(process.channel, "end");
    process_end(&process);
    must(raw_event_is_done(device, event)); /* and stays */
    raw_event_end(device, event);
    raw_event_end(device, own);
    raw_stream_end(device, stream);
    raw_stream_end(device, free_one);
    raw_stream_end(device, behind);
    close_emulated(device);
}

static void streams_wait_for_the_other_process(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        stream_waits(WEIR_EMULATED_THREADS, WEIR_EMULATED_THREADS);
        stream_waits(WEIR_EMULATED_STEPPED, WEIR_EMULATED_THREADS);
        stream_waits(WEIR_EMULATED_STEPPED, WEIR_EMULATED_STEPPED);
        stream_waits(WEIR_EMULATED_THREADS, WEIR_EMULATED_STEPPED);
    }
}

static void host_waits_for_the_other_process(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        weir__shared_event handle;
        support_process process = start_recorder(WEIR_EMULATED_THREADS, &handle);
        weir_device *device = open_emulated(schedulers[i], 2);
        weir_event event = open_and_close(device, &handle);
        must(!raw_event_is_done(device, event));
        channel_say(process.channel, "open");
        must_ok(weir__event_sync(device, event));
        must(raw_event_is_done(device, event));
        channel_say(process.channel, "end");
        process_end(&process);
        raw_event_end(device, event);
        close_emulated(device);
    }
}

/* What waits for it is done, too: streams, and the whole device. */
static void killed(weir_emulated_scheduler scheduler, bool is_reaped)
{
    static work_log log;
    weir__shared_event handle;
    support_process process = start_recorder(WEIR_EMULATED_THREADS, &handle);
    weir_device *device = open_emulated(scheduler, 2);
    weir_stream stream = raw_stream(device, WEIR_STREAM_BLOCKING);
    weir_event event = open_and_close(device, &handle);
    work_log_begin(&log);
    raw_wait_event(device, stream, event);
    must_ok(work_try_put(device, NULL, &log, 'a')); /* behind it by the legacy rules */
    process_kill(&process);
    if (is_reaped)
        process_reap(&process);
    must_ok(weir__event_sync(device, event));
    must(raw_event_is_done(device, event));
    must_ok(weir_device_sync(device));
    must_have_run(&log, scheduler == WEIR_EMULATED_NO_WORK ? "" : "a");
    if (!is_reaped)
        process_reap(&process);
    raw_event_end(device, event);
    raw_stream_end(device, stream);
    close_emulated(device);
}

static void recorder_that_has_ended_is_done(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        killed(schedulers[i], false);
        killed(schedulers[i], true);
    }
}

/* Closing a device waits for what its streams wait for. */
static void closing_waits_for_the_other_process(void **state)
{
    (void)state;
    static work_log log;
    for (size_t i = 0; i < 2; i++) {
        weir__shared_event handle;
        support_process process = start_recorder(WEIR_EMULATED_THREADS, &handle);
        weir_device *device = open_emulated(schedulers[i], 2);
        weir_event event = open_and_close(device, &handle);
        work_log_begin(&log);
        raw_wait_event(device, NULL, event);
        work_put(device, NULL, &log, 'a');
        raw_event_end(device, event); /* who waits still does */
        channel_say(process.channel, "open");
        close_anyhow(device);
        must_have_run(&log, "a");
        channel_say(process.channel, "end");
        process_end(&process);
    }
}

/* ---- one process, which opens what it has made ---- */

typedef struct scene {
    weir_device *device;
    weir_stream a, b;
    weir_event own, opened;
    weir__shared_event handle;
} scene;

static scene set_scene(weir_emulated_scheduler scheduler)
{
    scene self = { .device = open_emulated(scheduler, 3) };
    self.a = raw_stream(self.device, WEIR_STREAM_NON_BLOCKING);
    self.b = raw_stream(self.device, WEIR_STREAM_NON_BLOCKING);
    self.own = make_event(self.device, &self.handle);
    self.opened = open_event(self.device, &self.handle);
    return self;
}

static void clear_scene(const scene *self)
{
    must_ok(weir_device_sync(self->device));
    close(self->handle.fd);
    raw_event_end(self->device, self->own);
    raw_event_end(self->device, self->opened);
    raw_stream_end(self->device, self->a);
    raw_stream_end(self->device, self->b);
    close_emulated(self->device);
}

static void event_that_was_never_recorded_is_done(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        scene self = set_scene(schedulers[i]);
        must(raw_event_is_done(self.device, self.opened));
        must(raw_event_is_done(self.device, self.own));
        must_ok(weir__event_sync(self.device, self.opened));
        raw_wait_event(self.device, self.a, self.opened);
        raw_sync_stream(self.device, self.a);
        clear_scene(&self);
    }
}

/* Each wait is for the record that was the last one then, whichever is done first. */
static void waits_are_for_their_record(void **state)
{
    (void)state;
    static work_log log;
    for (size_t i = 0; i < 2; i++) {
        scene self = set_scene(schedulers[i]);
        weir_stream c = raw_stream(self.device, WEIR_STREAM_NON_BLOCKING);
        weir_stream d = raw_stream(self.device, WEIR_STREAM_NON_BLOCKING);
        work_log_begin(&log);
        uint64_t gate = raw_stall(self.device, self.a);
        raw_record(self.device, self.own, self.a);
        raw_wait_event(self.device, c, self.opened);
        work_put(self.device, c, &log, 'c');
        must(!raw_event_is_done(self.device, self.opened));
        raw_record(self.device, self.own, self.b);
        raw_wait_event(self.device, d, self.opened);
        work_put(self.device, d, &log, 'd');
        raw_sync_stream(self.device, d);
        must(raw_event_is_done(self.device, self.opened));
        must_have_run(&log, "d");
        raw_open_gate(self.device, gate);
        raw_sync_stream(self.device, c);
        must_have_run(&log, "dc");
        raw_stream_end(self.device, c);
        raw_stream_end(self.device, d);
        clear_scene(&self);
    }
}

/* Records that share a place in the file: none is told before all of them are done. */
static void records_may_be_many(void **state)
{
    (void)state;
    scene self = set_scene(WEIR_EMULATED_STEPPED);
    for (int i = 0; i < 1000; i++) {
        raw_record(self.device, self.own, self.b);
        must_ok(weir__event_sync(self.device, self.opened));
    }
    uint64_t gate = raw_stall(self.device, self.a);
    raw_record(self.device, self.own, self.a);
    raw_wait_event(self.device, NULL, self.opened);
    bool done = true;
    for (int i = 0; i < 600; i++) {
        raw_record(self.device, self.own, self.b);
        must_ok(weir__stream_query(self.device, NULL, &done));
        must(!done);
    }
    raw_sync_stream(self.device, self.b);
    must(raw_event_is_done(self.device, self.opened));
    raw_open_gate(self.device, gate);
    raw_sync_stream(self.device, NULL);
    clear_scene(&self);
}

/* A record is told as soon as it is done with those before it, though one with its
 * place in the file is still to come, which may wait for who waits for this. */
static void a_record_waits_for_none_behind_it(void **state)
{
    (void)state;
    for (int ahead = 0; ahead < 3; ahead++) {
        scene self = set_scene(WEIR_EMULATED_STEPPED);
        weir_stream waiting = raw_stream(self.device, WEIR_STREAM_NON_BLOCKING);
        uint64_t first = raw_stall(self.device, self.a);
        raw_record(self.device, self.own, self.a);
        raw_wait_event(self.device, waiting, self.opened);
        uint64_t last = raw_stall(self.device, waiting);
        for (int i = 1; i <= 256 * (ahead + 1); i++) {
            if (i % 256 == 0 && i / 256 <= ahead) { /* done before the first is */
                raw_record(self.device, self.own, self.b);
                raw_wait_event(self.device, waiting, self.opened);
                raw_sync_stream(self.device, self.b);
            } else {
                raw_record(self.device, self.own, i % 256 == 0 ? waiting : self.b);
            }
        }
        must(!raw_event_is_done(self.device, self.opened));
        raw_open_gate(self.device, first);
        raw_open_gate(self.device, last);
        raw_sync_stream(self.device, waiting);
        must(raw_event_is_done(self.device, self.opened));
        raw_stream_end(self.device, waiting);
        clear_scene(&self);
    }
}

/* Both sides may let go of it while something waits. */
static void waits_outlive_the_event(void **state)
{
    (void)state;
    static work_log log;
    for (size_t i = 0; i < 2; i++) {
        scene self = set_scene(schedulers[i]);
        work_log_begin(&log);
        uint64_t gate = raw_stall(self.device, self.a);
        raw_record(self.device, self.own, self.a);
        raw_wait_event(self.device, self.b, self.opened);
        work_put(self.device, self.b, &log, 'b');
        raw_event_end(self.device, self.own);
        raw_event_end(self.device, self.opened);
        self.own = raw_event(self.device); /* another, and at the same place */
        self.opened = raw_event(self.device);
        raw_record(self.device, self.own, NULL);
        must_have_run(&log, "");
        raw_open_gate(self.device, gate);
        raw_sync_stream(self.device, self.b);
        must_have_run(&log, "b");
        clear_scene(&self);
    }
}

static void without_work_a_record_is_done_at_once(void **state)
{
    (void)state;
    scene self = set_scene(WEIR_EMULATED_NO_WORK);
    raw_record(self.device, self.own, self.a);
    must(raw_event_is_done(self.device, self.opened));
    must(!raw_event_is_done(self.device, self.own)); /* here it is pending as any */
    clear_scene(&self);
}

/* Nobody opens the gate: still told apart from a wait for another process. */
static void deadlocks_are_still_found(void **state)
{
    (void)state;
    scene self = set_scene(WEIR_EMULATED_STEPPED);
    uint64_t gate = raw_stall(self.device, self.a);
    raw_record(self.device, self.own, self.a);
    raw_wait_event(self.device, self.b, self.opened);
    must_answer(WEIR_DEVICE_ERROR, weir__stream_sync(self.device, self.a));
    must_equal(weir_last_error().native_code, 702);
    raw_open_gate(self.device, gate);
    clear_scene(&self);
}

/* A device that is lost drops what it has to do: it tells so, and waits no more. */
static void loss_ends_the_waits(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        weir_device *device = open_emulated(schedulers[i], 3);
        weir_device *other = open_with("emulated:9", NULL);
        weir__shared_event handle;
        weir_event own = make_event(device, &handle);
        weir_event opened = open_event(other, &handle);
        weir_event here = open_event(device, &handle);
        void *none;
        close(handle.fd);
        (void)raw_stall(device, NULL);
        raw_record(device, own, NULL);
        raw_wait_event(other, NULL, opened);
        raw_wait_event(device, NULL, here);
        must(!raw_event_is_done(other, opened));
        plan_fault(device, "malloc", 1, false, WEIR_DEVICE_LOST);
        must_answer(WEIR_DEVICE_LOST, weir__malloc(device, 1, &none));
        must_answer(WEIR_DEVICE_LOST, weir__event_sync(device, here));
        raw_sync_stream(other, NULL);
        must(raw_event_is_done(other, opened));
        raw_event_end(other, opened);
        close_anyhow(device);
        close_emulated(other);
    }
}

/* ---- what is refused ---- */

static void only_its_process_records(void **state)
{
    (void)state;
    scene self = set_scene(WEIR_EMULATED_STEPPED);
    must_answer(WEIR_DEVICE_ERROR, weir__event_record(self.device, self.opened, NULL));
    must_equal(weir_last_error().native_code, 400);
    must_answer(WEIR_NOT_SUPPORTED, weir__event_record_all(self.device, self.opened));
    must_answer(WEIR_NOT_SUPPORTED, weir__event_record_all(self.device, self.own));
    must(raw_event_is_done(self.device, self.opened));
    must(raw_event_is_done(self.device, self.own));
    clear_scene(&self);
}

static void captures_leave_them_out(void **state)
{
    (void)state;
    scene self = set_scene(WEIR_EMULATED_STEPPED);
    size_t captured;
    raw_record(self.device, self.own, self.b);
    raw_sync_stream(self.device, self.b);
    must_ok(weir_emulated_capture_begin(self.device, self.a));
    must_answer(WEIR_DEVICE_ERROR,
                weir__event_record(self.device, self.own, self.a));
    must_equal(weir_last_error().native_code, 900);
    must_answer(WEIR_DEVICE_ERROR,
                weir__stream_wait_event(self.device, self.a, self.opened));
    must_equal(weir_last_error().native_code, 900);
    must(raw_event_is_done(self.device, self.opened)); /* of no capture */
    must_ok(weir__fill(self.device, self.a, &captured, 0, 1));
    must_ok(weir_emulated_capture_end(self.device, self.a, &captured));
    must_equal(captured, 1); /* it went on */
    clear_scene(&self);
}

int main(int argc, char **argv)
{
    static const support_child children[] = { { "recorder", recorder } };
    support_children(argc, argv, children, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_wait_for_the_other_process),
        cmocka_unit_test(host_waits_for_the_other_process),
        cmocka_unit_test(recorder_that_has_ended_is_done),
        cmocka_unit_test(closing_waits_for_the_other_process),
        cmocka_unit_test(event_that_was_never_recorded_is_done),
        cmocka_unit_test(waits_are_for_their_record),
        cmocka_unit_test(records_may_be_many),
        cmocka_unit_test(a_record_waits_for_none_behind_it),
        cmocka_unit_test(waits_outlive_the_event),
        cmocka_unit_test(without_work_a_record_is_done_at_once),
        cmocka_unit_test(deadlocks_are_still_found),
        cmocka_unit_test(loss_ends_the_waits),
        cmocka_unit_test(only_its_process_records),
        cmocka_unit_test(captures_leave_them_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
