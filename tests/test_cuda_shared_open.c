/* test_cuda_shared_open.c - memory and events of CUDA devices that are opened by what
 * stands for them, here and in another process; and what is refused. Over the
 * stand-in. */
#include <fcntl.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "fakes/shared.h"
#include "support_process.h"

/* ---- opening ---- */

static void descriptors_stand_for_the_memory(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    unsigned before = open_descriptors();
    unsigned char *ptr = make_shared(device, WEIR_SHARE_FD, GRANULE);
    weir__shared shared = export_shared(device, ptr);
    weir__shared again = export_shared(device, ptr);
    must_equal(shared.bytes, GRANULE);
    must(shared.fd != again.fd);
    must((fcntl(shared.fd, F_GETFD) & FD_CLOEXEC) != 0);
    put(device, ptr, GRANULE, 5);
    unsigned char *a = open_shared(device, &shared), *b = open_shared(device, &again);
    drop_shared(&again);
    must(a != ptr && b != ptr && a != b);
    must_have(device, a, GRANULE, 5);
    must_ok(weir__shared_free(device, ptr));
    put(device, b, GRANULE, 6); /* which outlives its first name */
    must_have(device, a, GRANULE, 6);
    must_not_find(device, a);
    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_free(device, a));
    must_ok(weir__shared_close(device, a));
    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_close(device, a));
    a = open_shared(device, &shared);
    must_have(device, a, GRANULE, 6);
    must_ok(weir__shared_close(device, a));
    must_ok(weir__shared_close(device, b));
    drop_shared(&shared);
    must_equal(open_descriptors(), before);
    end_device(device);
}

static void descriptors_of_other_things_are_refused(void **state)
{
    (void)state;
    static const fakes_machine elsewhere = { .imports_elsewhere = true };
    static const size_t wrong[] = { 0, 1, GRANULE + 1, 3 * GRANULE, 1000 * GRANULE,
                                    SIZE_MAX - GRANULE + 1 };
    weir_device *device = cuda_open(0);
    unsigned char *ptr = make_shared(device, WEIR_SHARE_FD, 2 * GRANULE);
    weir__shared shared = export_shared(device, ptr), own = own_file(GRANULE, 0);
    weir__shared none = { .kind = WEIR_SHARE_FD, .bytes = GRANULE, .fd = -1 };
    weir__shared file = { .kind = WEIR_SHARE_FD, .bytes = GRANULE, .fd = 0 };
    must_not_open(device, &own);
    drop_shared(&own);
    must_not_open(device, &none);
    must_not_open(device, &file);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        shared.bytes = wrong[i];
        must_not_open(device, &shared);
        must_equal(fakes_look().objects, 1);
        must_equal(fakes_look().addresses, 1);
    }
    shared.bytes = 2 * GRANULE;
    fakes_set_machine(&elsewhere);
    must_not_open(device, &shared);
    must(strstr(weir_last_error().message, "no memory that it shares") != NULL);
    must_equal(fakes_look().objects, 1);
    drop_shared(&shared);
    must_ok(weir__shared_free(device, ptr));
    end_device(device);
}

/* The driver's own count: the same address each time, until the last close. */
static void legacy_handles_are_counted(void **state)
{
    (void)state;
    static const fakes_machine opens_own = { .opens_own = true };
    weir_device *device = device_of(&opens_own);
    unsigned char *ptr = make_shared(device, WEIR_SHARE_LEGACY, 2 * GRANULE);
    weir__shared shared = export_shared(device, ptr);
    must_equal(shared.fd, -1);
    put(device, ptr, 2 * GRANULE, 8);
    unsigned char *a = open_shared(device, &shared);
    must(a != ptr && open_shared(device, &shared) == a);
    must_ok(weir__shared_close(device, a));
    must_have(device, a, 2 * GRANULE, 8);
    must_not_find(device, a);
    must_ok(weir__shared_close(device, a));
    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_close(device, a));
    must_ok(weir__shared_free(device, ptr));
    must_not_open(device, &shared);
    end_device(device);
}

static void legacy_handles_of_other_things_are_refused(void **state)
{
    (void)state;
    static const fakes_machine opens_own = { .opens_own = true };
    static const size_t wrong[] = { 0, GRANULE, 2 * GRANULE + 1, 3 * GRANULE,
                                    SIZE_MAX };
    weir_device *device = cuda_open(0);
    unsigned char *ptr = make_shared(device, WEIR_SHARE_LEGACY, 2 * GRANULE);
    weir__shared shared = export_shared(device, ptr), damaged = shared;
    must_not_open(device, &shared); /* it is this process's own */
    fakes_set_machine(&opens_own);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        shared.bytes = wrong[i];
        must_not_open(device, &shared);
        must_equal(fakes_look().opened, 0);
    }
    damaged.octets[0] ^= 1;
    must_not_open(device, &damaged);
    must_ok(weir__shared_free(device, ptr));
    end_device(device);
}

/* ---- events ---- */

static bool is_done(weir_device *device, weir_event event)
{
    bool done;
    must_ok(weir__event_query(device, event, &done));
    return done;
}

/* What was recorded last is what the other's waits are for. */
static void events_are_opened_once_they_are_made(void **state)
{
    (void)state;
    static const fakes_machine opens_own = { .opens_own = true };
    weir_device *device = device_of(&opens_own);
    weir_event event, opened;
    weir__shared_event handle;
    void *ptr;
    unsigned before = open_descriptors();
    must_ok(weir__malloc(device, BYTES, &ptr));
    fakes_forget();
    must_ok(weir__shared_event_create(device, &event, &handle));
    must_equal(fakes_look().event_flags,
               cudaEventInterprocess | cudaEventDisableTiming);
    must_equal(fakes_look().timed_events, 0);
    must_equal(handle.fd, -1);
    must_ok(weir__shared_event_open(device, &handle, &opened));
    must(opened != event && is_done(device, opened)); /* never recorded */
    must_ok(weir__fill(device, NULL, ptr, 1, BYTES));
    must_ok(weir__event_record(device, event, NULL));
    must(!is_done(device, opened));
    must_ok(weir__event_sync(device, event));
    must(is_done(device, opened));
    must_ok(weir__event_destroy(device, opened));
    must_ok(weir__event_destroy(device, event));
    must_ok(weir__free(device, ptr));
    must_equal(open_descriptors(), before);
    end_device(device);
}

static void must_not_open_event(weir_device *device, const weir__shared_event *handle)
{
    weir_event none = NULL;
    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_event_open(device, handle, &none));
    must(none == NULL);
}

static void handles_of_no_event_are_refused(void **state)
{
    (void)state;
    static const fakes_machine opens_own = { .opens_own = true };
    weir_device *device = cuda_open(0);
    weir_event event;
    weir__shared_event handle, damaged;
    must_ok(weir__shared_event_create(device, &event, &handle));
    must_not_open_event(device, &handle); /* it is this process's own */
    fakes_set_machine(&opens_own);
    damaged = handle;
    damaged.octets[0] ^= 1;
    must_not_open_event(device, &damaged);
    memset(damaged.octets, 0, sizeof damaged.octets);
    must_not_open_event(device, &damaged);
    must_ok(weir__event_destroy(device, event));
    must_not_open_event(device, &handle);
    end_device(device);
}

/* ---- two processes ---- */

/* Opens what it is sent, finds 1 there, leaves 2. */
static void importer(int channel)
{
    weir_device *device = cuda_open(0);
    weir__shared shared;
    int fd = channel_receive(channel, &shared, sizeof shared);
    must((fd >= 0) == (shared.kind == WEIR_SHARE_FD));
    shared.fd = fd;
    unsigned char *ptr = open_shared(device, &shared);
    drop_shared(&shared);
    must_have(device, ptr, GRANULE, 1);
    put(device, ptr, GRANULE, 2);
    channel_say(channel, "written");
    channel_hear(channel, "close");
    must_ok(weir__shared_close(device, ptr));
    end_device(device);
}

static void memory_is_opened_elsewhere(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    for (size_t i = 0; i < 2; i++) {
        unsigned char *ptr = make_shared(device, shared_kinds[i], GRANULE);
        put(device, ptr, GRANULE, 1);
        weir__shared shared = export_shared(device, ptr);
        support_process process = process_start("importer");
        channel_send(process.channel, &shared, sizeof shared, shared.fd);
        drop_shared(&shared);
        channel_hear(process.channel, "written");
        must_have(device, ptr, GRANULE, 2);
        channel_say(process.channel, "close");
        process_end(&process);
        must_ok(weir__shared_free(device, ptr));
    }
    end_device(device);
}

/* Opens memory and an event, and looks at the memory behind the event: finds 3, which
 * the other's device has not written yet. */
static void waiter(int channel)
{
    weir_device *device = cuda_open(0);
    weir__shared shared;
    weir__shared_event handle;
    weir_event event;
    weir_stream stream;
    uint8_t seen = 0;
    bool done;
    shared.fd = -1;
    int fd = channel_receive(channel, &shared, sizeof shared);
    shared.fd = fd;
    must(channel_receive(channel, &handle, sizeof handle) == -1);
    unsigned char *ptr = open_shared(device, &shared);
    drop_shared(&shared);
    must_ok(weir__shared_event_open(device, &handle, &event));
    must_ok(weir__stream_create(device, false, &stream));
    must_ok(weir__stream_wait_event(device, stream, event));
    must_ok(weir__copy(device, stream, &seen, ptr + GRANULE - 1, 1));
    for (int i = 0; i < 20; i++) {
        must_ok(weir__stream_query(device, stream, &done));
        must(!done);
    }
    channel_say(channel, "waiting");
    channel_hear(channel, "run");
    must_ok(weir__stream_sync(device, stream));
    must_equal(seen, 3);
    must_ok(weir__event_destroy(device, event));
    must_ok(weir__stream_destroy(device, stream));
    must_ok(weir__shared_close(device, ptr));
    channel_say(channel, "seen");
    end_device(device);
}

/* Here nothing runs before the host waits for it. */
static void events_are_waited_for_elsewhere(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    weir_event event;
    weir__shared_event handle;
    weir_stream stream;
    unsigned char *ptr = make_shared(device, WEIR_SHARE_FD, GRANULE);
    put(device, ptr, GRANULE, 1);
    must_ok(weir__stream_create(device, false, &stream));
    must_ok(weir__shared_event_create(device, &event, &handle));
    must_ok(weir__fill(device, stream, ptr, 3, GRANULE));
    must_ok(weir__event_record(device, event, stream));
    weir__shared shared = export_shared(device, ptr);
    support_process process = process_start("waiter");
    channel_send(process.channel, &shared, sizeof shared, shared.fd);
    channel_send(process.channel, &handle, sizeof handle, -1);
    drop_shared(&shared);
    channel_hear(process.channel, "waiting");
    must_ok(weir__stream_sync(device, stream));
    channel_say(process.channel, "run");
    channel_hear(process.channel, "seen");
    must_ok(weir__event_destroy(device, event));
    must_ok(weir__stream_destroy(device, stream));
    process_end(&process);
    must_ok(weir__shared_free(device, ptr));
    end_device(device);
}

int main(int argc, char **argv)
{
    static const support_child children[] = { { "importer", importer },
                                              { "waiter", waiter } };
    support_children(argc, argv, children, 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_stand_for_the_memory),
        cmocka_unit_test(descriptors_of_other_things_are_refused),
        cmocka_unit_test(legacy_handles_are_counted),
        cmocka_unit_test(legacy_handles_of_other_things_are_refused),
        cmocka_unit_test(events_are_opened_once_they_are_made),
        cmocka_unit_test(handles_of_no_event_are_refused),
        cmocka_unit_test(memory_is_opened_elsewhere),
        cmocka_unit_test(events_are_waited_for_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
