/* test_shared_event_faults.c - events of other processes where something is wrong:
 * handles that are none, files that lie, calls that fail, what runs out. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "internal.h"
#include "support_shared.h"
#include "support_work.h"

/* The file's head, as emulated_shared_event.c lays it out. */
enum { AT_MAGIC = 0, AT_START_TIME = 8, AT_PID = 16, AT_RECORDED = 24, AT_DONE = 32 };

/* The handle of an event of this process's that lives until end_event. */
static weir_event make_event(weir_device *device, weir__shared_event *handle)
{
    weir_event event;
    must_ok(weir__shared_event_create(device, &event, handle));
    return event;
}

static void must_not_open_event(weir_device *device, const weir__shared_event *handle)
{
    weir_event none = NULL;
    unsigned before = open_descriptors();
    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_event_open(device, handle, &none));
    must(none == NULL);
    must_equal(open_descriptors(), before);
}

/* A copy of the file, which anybody can write, with `bytes` bytes. */
static weir__shared_event copy_file(const weir__shared_event *from, size_t bytes,
                                    int seals)
{
    unsigned char all[4096];
    weir__shared_event copy = *from;
    must(pread(from->fd, all, sizeof all, 0) == sizeof all);
    copy.fd = memfd_create("any", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    must(copy.fd >= 0 && write(copy.fd, all, sizeof all) == sizeof all);
    must(ftruncate(copy.fd, (off_t)bytes) == 0);
    must(seals == 0 || fcntl(copy.fd, F_ADD_SEALS, seals) == 0);
    return copy;
}

static size_t length_of(const weir__shared_event *handle)
{
    off_t end = lseek(handle->fd, 0, SEEK_END);
    must(end > 0);
    return (size_t)end;
}

static void overwrite(const weir__shared_event *handle, size_t at, uint64_t value,
                      size_t bytes)
{
    must(pwrite(handle->fd, &value, bytes, (off_t)at) == (ssize_t)bytes);
}

static void bad_handles_are_refused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir__shared_event handle, bad;
    weir_event event = make_event(device, &handle);
    size_t length = length_of(&handle);
    bad = handle, bad.octets[0]++;
    must_not_open_event(device, &bad);
    bad = handle, memset(bad.octets, 0, sizeof bad.octets);
    must_not_open_event(device, &bad);
    bad = handle, bad.fd = -1;
    must_not_open_event(device, &bad);
    bad.fd = 1 << 20;
    must_not_open_event(device, &bad);

    char path[64];
    int ends[2];
    snprintf(path, sizeof path, "/proc/self/fd/%d", handle.fd);
    must(pipe(ends) == 0);
    int fds[] = { open(path, O_WRONLY | O_CLOEXEC), open(path, O_PATH | O_CLOEXEC),
                  open("/dev/null", O_RDWR | O_CLOEXEC), ends[0], ends[1],
                  copy_file(&handle, length, 0).fd,
                  copy_file(&handle, length, F_SEAL_GROW | F_SEAL_SEAL).fd,
                  copy_file(&handle, length - 1, F_SEAL_SHRINK).fd,
                  copy_file(&handle, length + 4096, F_SEAL_SHRINK).fd };
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        must(fds[i] >= 0);
        bad.fd = fds[i];
        must_not_open_event(device, &bad);
        close(fds[i]);
    }
    close(handle.fd);
    raw_event_end(device, event);
    close_emulated(device);
}

static void bad_heads_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint64_t value;
        size_t bytes;
    } lies[] = { { AT_MAGIC, 0, 8 }, { AT_START_TIME, 0, 8 }, { AT_PID, 0, 4 },
                 { AT_PID, UINT32_MAX, 4 } };
    weir_device *device = open_stepped(0);
    weir__shared_event handle;
    weir_event event = make_event(device, &handle);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        weir__shared_event bad = copy_file(&handle, length_of(&handle), F_SEAL_SHRINK);
        overwrite(&bad, lies[i].at, lies[i].value, lies[i].bytes);
        must_not_open_event(device, &bad);
        close(bad.fd);
    }
    close(handle.fd);
    raw_event_end(device, event);
    close_emulated(device);
}

/* Numbers that come and go: a wait may end too soon, and nothing else. */
static void lies_only_end_waits(weir_emulated_scheduler scheduler)
{
    static work_log log;
    weir_device *device = open_emulated(scheduler, 0);
    weir__shared_event handle;
    weir_event event = make_event(device, &handle), opened;
    weir__shared_event copy = copy_file(&handle, length_of(&handle), F_SEAL_SHRINK);
    weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir__shared_event_open(device, &copy, &opened));
    work_log_begin(&log);
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t record = i % 2 == 0 ? UINT64_MAX - i : 7 * i;
        overwrite(&copy, AT_RECORDED, record, 8);
        raw_wait_event(device, stream, opened);
        must(!raw_event_is_done(device, opened));
        work_put(device, stream, &log, 'a');
        overwrite(&copy, AT_DONE + record % 256 * 8, UINT64_MAX, 8);
        must(raw_event_is_done(device, opened));
        raw_sync_stream(device, stream);
        overwrite(&copy, AT_DONE + record % 256 * 8, 0, 8);
        must(!raw_event_is_done(device, opened));
    }
    raw_sync_stream(device, stream);
    must_equal(atomic_load(&log.length), 100);
    close(copy.fd);
    close(handle.fd);
    raw_event_end(device, event);
    raw_event_end(device, opened);
    raw_stream_end(device, stream);
    close_emulated(device);
}

static void files_that_lie_do_no_more(void **state)
{
    (void)state;
    lies_only_end_waits(WEIR_EMULATED_THREADS);
    lies_only_end_waits(WEIR_EMULATED_STEPPED);
}

/* A telling for the ledger that is longer than the file, or of no stream there is. */
static void tellings_that_lie_make_deaf_at_worst(void **state)
{
    (void)state;
    static const uint64_t counts[] = { UINT64_MAX, 1u << 20, 8000, 1, 0 };
    enum { RECORD = 4096 + (1 << 17), PROCESS = RECORD + 8, NUMBER = PROCESS + 8,
           STREAM = NUMBER + 8, COUNT = STREAM + 8, EPOCHS = COUNT + 8 };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        weir_device *device = open_stepped(0);
        weir__shared_event handle;
        weir_event event = make_event(device, &handle), opened;
        weir__shared_event lie = copy_file(&handle, length_of(&handle), F_SEAL_SHRINK);
        overwrite(&lie, AT_RECORDED, 1, 8);
        overwrite(&lie, RECORD, 1, 8);
        overwrite(&lie, PROCESS, 5, 8);
        overwrite(&lie, NUMBER, UINT64_MAX, 8);
        overwrite(&lie, STREAM, UINT64_MAX, 8);
        overwrite(&lie, COUNT, counts[i], 8);
        overwrite(&lie, EPOCHS, UINT64_MAX, 8);
        overwrite(&lie, EPOCHS + 8, UINT64_MAX, 8);
        overwrite(&lie, AT_DONE + 8, 1, 8);
        must_ok(weir__shared_event_open(device, &lie, &opened));
        raw_wait_event(device, NULL, opened);
        must(raw_event_is_done(device, opened));
        raw_sync_stream(device, NULL);
        must_equal(weir_emulated_findings(device), i < 2); /* no room for so many */
        close(lie.fd);
        close(handle.fd);
        raw_event_end(device, event);
        raw_event_end(device, opened);
        if (i < 2)
            close_anyhow(device);
        else
            close_emulated(device);
    }
}

/* ---- calls that fail ---- */

static void every_call_can_be_struck(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir__shared_event handle, none = { .fd = -7 };
    weir_event event = make_event(device, &handle), out = NULL, opened;
    bool done;
    must_ok(weir__shared_event_open(device, &handle, &opened));
    plan_fault(device, "shared_event_create", 1, false, WEIR_NOT_SUPPORTED);
    must_answer(WEIR_NOT_SUPPORTED, weir__shared_event_create(device, &out, &none));
    plan_fault(device, "shared_event_open", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir__shared_event_open(device, &handle, &out));
    must(out == NULL && none.fd == -7);
    plan_fault(device, "event_record", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir__event_record(device, event, NULL));
    must(raw_event_is_done(device, opened)); /* never recorded */
    raw_record(device, event, NULL);
    plan_fault(device, "stream_wait_event", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir__stream_wait_event(device, NULL, opened));
    plan_fault(device, "event_query", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir__event_query(device, opened, &done));
    plan_fault(device, "event_sync", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir__event_sync(device, opened));
    plan_fault(device, "event_destroy", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir__event_destroy(device, opened));
    plan_fault(device, NULL, 0, false, WEIR_OK);
    must_ok(weir__event_sync(device, opened));
    close(handle.fd);
    raw_event_end(device, event);
    raw_event_end(device, opened);
    close_emulated(device);
}

/* Makes, opens, records, waits and ends, until one of them fails. */
static weir_status all_calls(weir_device *device)
{
    weir__shared_event handle;
    weir_event event, opened;
    weir_status status = weir__shared_event_create(device, &event, &handle);
    if (status != WEIR_OK)
        return status;
    status = weir__event_record(device, event, NULL);
    if (status == WEIR_OK)
        status = weir__shared_event_open(device, &handle, &opened);
    close(handle.fd);
    if (status == WEIR_OK) {
        status = weir__stream_wait_event(device, NULL, opened);
        raw_event_end(device, opened);
    }
    raw_event_end(device, event);
    return status;
}

static weir_device *open_without_ledger(void)
{
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.no_ledger = true; /* which would go deaf */
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    options.emulated = &emulated;
    return open_with("emulated:3", &options);
}

static void calls_survive_every_host_failure(void **state)
{
    (void)state;
    weir_device *device = open_without_ledger();
    weir_status status = WEIR_OUT_OF_HOST_MEMORY;
    uint64_t nth = 0;
    raw_event_end(device, raw_event(device)); /* there is room for events now */
    unsigned before = open_descriptors();
    while (status == WEIR_OUT_OF_HOST_MEMORY) {
        weir__host_fail_at(++nth, false);
        status = all_calls(device);
        weir__host_fail_at(0, false);
        must_ok(weir_device_sync(device));
        must_equal(open_descriptors(), before);
    }
    must_ok(status);
    must_equal(nth, 5); /* two states; work for a record, and for a wait */
    close_emulated(device);
}

static void calls_survive_every_missing_descriptor(void **state)
{
    (void)state;
    int spare[64], count = 0;
    struct rlimit usual, few = { .rlim_cur = 64 };
    weir_device *device = open_without_ledger();
    must(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    few.rlim_max = usual.rlim_max;
    must(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while ((spare[count] = dup(0)) >= 0)
        count++;
    must(errno == EMFILE);
    for (int left = 0; left < 4; left++) {
        if (left > 0)
            close(spare[--count]);
        weir_status status = all_calls(device);
        must(status == (left < 3 ? WEIR_DEVICE_ERROR : WEIR_OK));
        must(left == 3 || weir_last_error().native_code == EMFILE);
        must_ok(weir_device_sync(device));
    }
    while (count > 0)
        close(spare[--count]);
    must(setrlimit(RLIMIT_NOFILE, &usual) == 0);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_handles_are_refused),
        cmocka_unit_test(bad_heads_are_refused),
        cmocka_unit_test(files_that_lie_do_no_more),
        cmocka_unit_test(tellings_that_lie_make_deaf_at_worst),
        cmocka_unit_test(every_call_can_be_struck),
        cmocka_unit_test(calls_survive_every_host_failure),
        cmocka_unit_test(calls_survive_every_missing_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
