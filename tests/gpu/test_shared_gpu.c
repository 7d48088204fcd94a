/* test_shared_gpu.c - two processes with one memory and each other's events, on streams
 * that are stalled.
 *
 *     this process                        the other
 *     writes 1 behind a gate, records --> waits, reads 1;
 *                                         writes 2 behind a gate of its own, records
 *     waits, reads 2                  <--
 *
 * Each is seen to wait while the other's gate is closed. Nothing is opened or made by a
 * process whose own gate is closed. */
#include "gpu/support_gpu.h"
#include "support_process.h"
#include "support_shared.h"
#include "weir/weir.h"

#define BYTES (2 * GRANULE)

typedef struct scene {
    weir_device *device;
    weir_stream stream;
    weir_stream aside; /* never stalled */
    weir_event event;  /* our own, */
    weir__shared_event handle;
    weir_event others; /* and the other's */
} scene;

static void scene_open(scene *s)
{
    s->device = open_threads();
    s->stream = make_stream(s->device, WEIR_STREAM_NON_BLOCKING);
    s->aside = make_stream(s->device, WEIR_STREAM_NON_BLOCKING);
    s->others = NULL;
}

static void scene_close(scene *s)
{
    end_stream(s->device, s->stream);
    end_stream(s->device, s->aside);
    close_emulated(s->device);
}

/* False: the device has no such thing, which is said. */
static bool is_there(const char *what, weir_status status)
{
    if (status != WEIR_NOT_SUPPORTED) {
        must_ok(status);
        return true;
    }
    print_message("left out: %s: %s\n", what, weir_last_error().message);
    return false;
}

static void make_event(scene *s)
{
    must_ok(weir__shared_event_create(s->device, &s->event, &s->handle));
}

static void send_event(const scene *s, int channel)
{
    channel_send(channel, &s->handle, sizeof s->handle, s->handle.fd);
}

static void receive_event(scene *s, int channel)
{
    weir__shared_event handle;
    handle.fd = channel_receive(channel, &handle, sizeof handle);
    must_ok(weir__shared_event_open(s->device, &handle, &s->others));
}

static void importer(int channel)
{
    scene s;
    weir__shared shared;
    scene_open(&s);
    make_event(&s);
    channel_say(channel, "ready");
    int fd = channel_receive(channel, &shared, sizeof shared);
    shared.fd = fd;
    unsigned char *ptr = open_shared(s.device, &shared);
    drop_shared(&shared);
    receive_event(&s, channel);
    must_ok(weir__stream_wait_event(s.device, s.stream, s.others));
    check_stamp(s.device, s.stream, ptr, BYTES, 1);
    must_be_waiting(s.device, s.stream, s.aside);
    unsigned gate = put_gate(s.stream);
    stamp(s.device, s.stream, ptr, BYTES, 2);
    must_ok(weir__event_record(s.device, s.event, s.stream));
    send_event(&s, channel);
    channel_hear(channel, "open");
    open_gate(gate);
    must_ok(weir__stream_sync(s.device, s.stream));
    must_equal(take_stamp_errors(), 0);
    channel_hear(channel, "end");
    must_ok(weir__event_destroy(s.device, s.others));
    must_ok(weir__event_destroy(s.device, s.event));
    if (shared.kind == WEIR_SHARE_POOL) {
        must_ok(weir__mempool_free(s.device, s.stream, ptr));
        must_ok(weir__stream_sync(s.device, s.stream));
    }
    must_ok(weir__shared_close(s.device, ptr));
    scene_close(&s);
}

static void hand_over_and_back(scene *s, void *ptr)
{
    weir__shared shared = export_shared(s->device, ptr);
    make_event(s);
    support_process process = process_start("importer");
    channel_hear(process.channel, "ready");
    unsigned gate = put_gate(s->stream);
    stamp(s->device, s->stream, ptr, BYTES, 1);
    must_ok(weir__event_record(s->device, s->event, s->stream));
    channel_send(process.channel, &shared, sizeof shared, shared.fd);
    drop_shared(&shared);
    send_event(s, process.channel);
    weir__shared_event handle;
    handle.fd = channel_receive(process.channel, &handle, sizeof handle);
    open_gate(gate);
    must_ok(weir__stream_sync(s->device, s->stream));
    must_ok(weir__shared_event_open(s->device, &handle, &s->others));
    must_ok(weir__stream_wait_event(s->device, s->stream, s->others));
    check_stamp(s->device, s->stream, ptr, BYTES, 2);
    must_be_waiting(s->device, s->stream, s->aside);
    channel_say(process.channel, "open");
    must_ok(weir__stream_sync(s->device, s->stream));
    channel_say(process.channel, "end");
    process_end(&process);
    must_ok(weir__event_destroy(s->device, s->others));
    must_ok(weir__event_destroy(s->device, s->event));
}

/* Between two blocks that it has to itself. */
static void hand_over_of_a_pool(scene *s)
{
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    weir_mempool pool;
    void *blocks[3], *base;
    weir__shared found;
    options.release_threshold_bytes = SIZE_MAX;
    options.reuse = WEIR_ASYNC_REUSE_SAME_STREAM;
    options.handle_types = WEIR_ASYNC_HANDLE_POSIX_FD;
    if (!is_there("pools that can be shared",
                  weir__mempool_create(s->device, &options, &pool)))
        return;
    for (int i = 0; i < 3; i++)
        must_ok(weir__mempool_malloc(s->device, pool, s->stream, BYTES, &blocks[i]));
    must_ok(weir__shared_find(s->device, (char *)blocks[1] + 5, 100, &base, &found));
    must(base == blocks[1] && found.kind == WEIR_SHARE_POOL && found.bytes >= BYTES);
    stamp(s->device, s->stream, blocks[0], BYTES, 3);
    stamp(s->device, s->stream, blocks[2], BYTES, 4);
    must_ok(weir__stream_sync(s->device, s->stream));
    hand_over_and_back(s, blocks[1]);
    check_stamp(s->device, s->stream, blocks[0], BYTES, 3);
    check_stamp(s->device, s->stream, blocks[2], BYTES, 4);
    for (int i = 0; i < 3; i++)
        must_ok(weir__mempool_free(s->device, s->stream, blocks[i]));
    must_ok(weir__stream_sync(s->device, s->stream));
    must_ok(weir__mempool_destroy(s->device, pool));
}

static void memory_goes_there_and_back(void **state)
{
    (void)state;
    static const char *const words[] = { "memory with a file descriptor",
                                         "memory with a legacy handle" };
    scene s;
    weir_event event;
    weir__shared_event handle;
    scene_open(&s);
    if (is_there("events", weir__shared_event_create(s.device, &event, &handle))) {
        must_ok(weir__event_destroy(s.device, event));
        for (size_t i = 0; i < 2; i++) {
            void *ptr;
            if (!is_there(words[i], weir__shared_malloc(s.device, shared_kinds[i],
                                                        BYTES, &ptr)))
                continue;
            hand_over_and_back(&s, ptr);
            must_ok(weir__shared_free(s.device, ptr));
        }
        hand_over_of_a_pool(&s);
    }
    scene_close(&s);
}

/* What the driver answers to what is no handle of its own: nothing dies of it. */
static void what_is_no_handle_is_refused(void **state)
{
    (void)state;
    scene s;
    void *ptr;
    scene_open(&s);
    if (is_there("memory with a file descriptor",
                 weir__shared_malloc(s.device, WEIR_SHARE_FD, BYTES, &ptr))) {
        void *none;
        weir__shared shared = export_shared(s.device, ptr), own = own_file(GRANULE, 0);
        shared.bytes += GRANULE;
        must(weir__shared_open(s.device, &shared, &none) == WEIR_INVALID_ARGUMENT);
        must(weir__shared_open(s.device, &own, &none) != WEIR_OK);
        must(!weir__device_is_lost(s.device));
        drop_shared(&own);
        shared.bytes -= GRANULE;
        unsigned char *opened = open_shared(s.device, &shared);
        stamp(s.device, s.stream, ptr, BYTES, 3);
        check_stamp(s.device, s.stream, opened, BYTES, 3);
        must_ok(weir__stream_sync(s.device, s.stream));
        must_ok(weir__shared_close(s.device, opened));
        drop_shared(&shared);
        must_ok(weir__shared_free(s.device, ptr));
    }
    if (is_there("memory with a legacy handle",
                 weir__shared_malloc(s.device, WEIR_SHARE_LEGACY, BYTES, &ptr))) {
        void *none, *base;
        weir__shared found, shared = export_shared(s.device, ptr);
        must_ok(weir__shared_find(s.device, (char *)ptr + GRANULE, 5, &base, &found));
        must(base == ptr);
        must_equal(found.bytes, BYTES);
        must(weir__shared_open(s.device, &shared, &none) != WEIR_OK); /* our own */
        must(!weir__device_is_lost(s.device));
        must_ok(weir__shared_free(s.device, ptr));
    }
    scene_close(&s);
}

int main(int argc, char **argv)
{
    static const support_child children[] = { { "importer", importer } };
    support_children(argc, argv, children, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_goes_there_and_back),
        cmocka_unit_test(what_is_no_handle_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
