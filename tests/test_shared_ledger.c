/* test_shared_ledger.c - two processes that write to the same memory: what their
 * ledgers find, and that they find nothing where events order it. */
#include <string.h>
#include <unistd.h>

#include "support_process.h"
#include "support_shared.h"
#include "support_work.h"

/* What the other process is to do. */
typedef struct orders {
    weir_emulated_scheduler scheduler;
    bool has_ledger;
    bool waits;      /* for the event that came with the memory */
    bool tells;      /* that the memory was written before */
} orders;

static weir_device *open_for(weir_emulated_scheduler scheduler, bool has_ledger)
{
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = scheduler;
    emulated.memory_bytes = 64 * MIB;
    emulated.no_ledger = !has_ledger;
    options.emulated = &emulated;
    return open_with("emulated:0", &options);
}

static void note(weir_device *device, weir_event event, void *ptr, bool writes)
{
    device->ops->note_foreign(device->self, event, ptr, GRANULE, writes);
}

static weir_event send_event(weir_device *device, weir_stream stream, int channel)
{
    weir__shared_event handle;
    weir_event event;
    must_ok(weir__shared_event_create(device, &event, &handle));
    raw_record(device, event, stream);
    channel_send(channel, &handle, sizeof handle, handle.fd);
    close(handle.fd);
    return event;
}

static weir_event receive_event(weir_device *device, int channel)
{
    weir__shared_event handle;
    weir_event event;
    handle.fd = channel_receive(channel, &handle, sizeof handle);
    must_ok(weir__shared_event_open(device, &handle, &event));
    close(handle.fd);
    return event;
}

static void end(weir_device *device, uint64_t findings)
{
    must_ok(weir_device_sync(device));
    must_equal(weir_emulated_findings(device), findings);
    if (findings == 0)
        close_emulated(device);
    else
        close_anyhow(device);
}

static void must_name_another_process(weir_device *device)
{
    weir_emulated_finding finding = { .struct_size = sizeof finding };
    must_ok(weir_emulated_get_finding(device, 0, &finding));
    must(strcmp(finding.first, "another process writes") == 0 ||
         strcmp(finding.second, "another process writes") == 0);
    must_equal(finding.bytes, GRANULE);
}

/* Writes to memory that it opens, behind what was there or not, and tells so. */
static void importer(int channel)
{
    orders what;
    weir__shared shared;
    (void)channel_receive(channel, &what, sizeof what);
    weir_device *device = open_for(what.scheduler, what.has_ledger);
    weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream other = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    shared.fd = channel_receive(channel, &shared, sizeof shared);
    unsigned char *ptr = open_shared(device, &shared);
    drop_shared(&shared);
    weir_event event = receive_event(device, channel), between = raw_event(device);
    if (what.tells)
        note(device, event, ptr, true);
    if (what.waits)
        raw_wait_event(device, other, event);
    raw_event_end(device, event); /* what was learnt stays */
    raw_record(device, between, other);
    raw_wait_event(device, stream, between);
    must_ok(weir__fill(device, stream, ptr, 2, GRANULE));
    bool is_found = what.tells && what.has_ledger && !what.waits;
    must_equal(weir_emulated_findings(device), is_found);
    if (is_found)
        must_name_another_process(device);

    event = send_event(device, stream, channel);
    channel_hear(channel, "end");
    raw_sync_stream(device, stream);
    raw_event_end(device, event);
    raw_event_end(device, between);
    must_ok(weir__shared_close(device, ptr));
    raw_stream_end(device, stream);
    raw_stream_end(device, other);
    end(device, is_found);
}

/* Shares memory that it has written, and writes again once the other has, on another
 * stream, behind the event that comes back or not. */
static void handover(orders what, bool waits_here, uint64_t findings)
{
    weir_device *device = open_for(what.scheduler, true);
    weir_stream first = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream second = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    support_process process = process_start("importer");
    unsigned char *ptr = make_shared(device, WEIR_SHARE_FD, GRANULE);
    weir__shared shared = export_shared(device, ptr);
    must_ok(weir__fill(device, first, ptr, 1, GRANULE));
    channel_send(process.channel, &what, sizeof what, -1);
    channel_send(process.channel, &shared, sizeof shared, shared.fd);
    drop_shared(&shared);
    weir_event event = send_event(device, first, process.channel);

    weir_event back = receive_event(device, process.channel);
    note(device, back, ptr, true);
    if (waits_here)
        raw_wait_event(device, second, back);
    must_ok(weir__fill(device, second, ptr, 3, GRANULE));
    must_equal(weir_emulated_findings(device), findings);
    if (findings > 0)
        must_name_another_process(device);
    channel_say(process.channel, "end");
    must_ok(weir__event_sync(device, back));
    must_ok(weir_device_sync(device));
    process_end(&process);
    must_ok(weir__shared_free(device, ptr));
    raw_event_end(device, event);
    raw_event_end(device, back);
    raw_stream_end(device, first);
    raw_stream_end(device, second);
    end(device, findings);
}

static const weir_emulated_scheduler schedulers[] = {
    WEIR_EMULATED_THREADS, WEIR_EMULATED_STEPPED, WEIR_EMULATED_NO_WORK
};

static void ordered_processes_are_quiet(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        handover((orders){ schedulers[i], true, true, true }, true, 0);
        handover((orders){ schedulers[i], true, true, false }, true, 0);
        handover((orders){ schedulers[i], false, true, true }, true, 0);
    }
}

/* The importer's access is found there; here, that it was not behind ours. Whoever
 * waits for the event is behind the importer alone then. */
static void importer_that_does_not_wait_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        handover((orders){ schedulers[i], true, false, true }, true, 2);
        handover((orders){ schedulers[i], true, false, false }, true, 2);
    }
}

/* One for the importer's access; it stands for our own, which it was behind. */
static void exporter_that_does_not_wait_is_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++)
        handover((orders){ schedulers[i], true, true, true }, false, 1);
}

int main(int argc, char **argv)
{
    static const support_child children[] = { { "importer", importer } };
    support_children(argc, argv, children, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordered_processes_are_quiet),
        cmocka_unit_test(importer_that_does_not_wait_is_found),
        cmocka_unit_test(exporter_that_does_not_wait_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
