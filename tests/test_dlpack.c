/* test_dlpack.c - exports: what a round trip costs, behind whose work the bytes come
 * back, limbo, captures, forks, and what is refused. (What a tensor says and who waits
 * is in check_dlpack.c and check_dlpack_asked.c.) */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"
#include "support_buffer.h"
#include "support_dlpack.h"
#include "sync.h"

/* ---- what it costs ---- */

typedef struct counts {
    weir_device_calls device;
    uint64_t host_calls;
    uint64_t locks;
} counts;

static counts counts_here(weir_device *device)
{
    return (counts){ calls_of(device), weir__host_calls(), weir__mutex_count() };
}

static void must_have_cost(weir_device *device, const counts *before, uint64_t records)
{
    counts now = counts_here(device);
    must_equal(now.locks, before->locks);
    must_equal(now.host_calls - before->host_calls, records);
    must(memcmp(&now.device, &before->device, sizeof now.device) == 0);
}

static void round_trip(weir_device *device, weir_buffer *buffer,
                       const weir_dlpack_request *request)
{
    weir_buffer import;
    weir_tensor tensor;
    must_ok(weir_dlpack_import(device, buffer->stream, must_export(buffer, request),
                               NULL, &import, &tensor));
    must(import.data == buffer->data);
    weir_buffer_reset(&import);
}

/* Without a ledger, which wants to be told things. */
static void a_round_trip_costs_two_records(void **state)
{
    (void)state;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.no_ledger = true;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    weir_device *device = open_with("emulated:0", &options);
    weir_resource *pool;
    must_ok(weir_resource_open(device, "pool/device", &pool));
    weir_stream known = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    const weir_stream streams[] = { known, NULL };
    for (size_t i = 0; i < 2; i++) {
        weir_buffer buffer;
        int64_t to = number_of(streams[i]);
        weir_dlpack_request request =
            ask(streams[i] != NULL ? &to : NULL, WEIR_WRITE);
        must_ok(weir_buffer_allocate(pool, streams[i], MIB, 256, &buffer));
        must_ok(weir_fill(device, streams[i], buffer.data, 1, MIB)); /* still running */
        for (int round = 0; round < 3; round++) {
            counts before = counts_here(device);
            round_trip(device, &buffer, &request);
            must_have_cost(device, &before, 2);
            before = counts_here(device);
            weir_dlpack_delete(must_export(&buffer, &request));
            must_have_cost(device, &before, 1);
        }
        weir_buffer_reset(&buffer);
    }
    weir_resource_unref(pool);
    end_stream(device, known);
    close_emulated(device);
}

/* ---- the end of a tensor ---- */

/* A pool with room for one block of so many bytes: who gets it gets the same again. */
#define ROOM MIB

static buffer_scene tight_scene(void)
{
    buffer_scene it = buffer_scene_open();
    weir_resource_unref(it.pool);
    must_ok(weir_resource_open(it.device, "pool(initial=1MiB,growth=1MiB)/"
                               "limiting(1MiB)/device", &it.pool));
    return it;
}

/* Claims that all of the pool can be had on stream a, and whether it is handed out
 * behind work that is held on b. */
static void must_come_back(buffer_scene *it, uint64_t gate, bool behind)
{
    must_equal(statistics_of(it->pool).out_bytes, 0);
    void *ptr = take(it->pool, it->a, ROOM);
    stamp(it->device, it->a, ptr, ROOM, 77);
    must_answer(behind ? WEIR_DEVICE_ERROR : WEIR_OK,
                weir_stream_sync(it->device, it->a));
    open_stream(it, gate);
    check_stamp(it->device, it->a, ptr, ROOM, 77);
    give(it->pool, it->a, ptr, ROOM);
}

/* The consumer's work is held while it deletes its tensor. */
static void bytes_come_back_behind_the_consumers_stream(void **state)
{
    (void)state;
    buffer_scene it = tight_scene();
    int64_t to = number_of(it.b);
    weir_dlpack_request request = ask(&to, WEIR_WRITE);
    weir_buffer buffer = make_buffer(&it, it.a, ROOM);
    write_all(&it, it.a, &buffer, 1);
    weir_dlpack x = must_export(&buffer, &request);
    uint64_t gate = stall_stream(&it, it.b);
    check_stamp(it.device, it.b, data_of(x), ROOM, 1);
    weir_buffer_reset(&buffer);
    weir_dlpack_delete(x);
    must_equal(pending_of(it.device).limbo_count, 0);
    must_come_back(&it, gate, true);
    buffer_scene_close(&it);
}

static void done_names_the_stream(void **state)
{
    (void)state;
    for (int legacy = 0; legacy < 2; legacy++) {
        buffer_scene it = tight_scene();
        int64_t none = -1;
        weir_dlpack_request request = ask(&none, WEIR_WRITE);
        if (legacy)
            request.max_version = NULL;
        weir_buffer buffer = make_buffer(&it, it.a, ROOM);
        write_all(&it, it.a, &buffer, 1);
        weir_dlpack x = must_export(&buffer, &request);
        must_ok(weir_buffer_wait(&buffer, it.b, WEIR_WRITE));
        uint64_t gate = stall_stream(&it, it.b);
        check_stamp(it.device, it.b, data_of(x), ROOM, 1);
        weir_buffer_reset(&buffer);
        must_ok(legacy ? weir_dlpack_done(x.legacy, it.b)
                       : weir_dlpack_done_versioned(x.versioned, it.b));
        must_equal(pending_of(it.device).limbo_count, 0);
        must_come_back(&it, gate, true);
        buffer_scene_close(&it);
    }
}

/* Of another stream than the one that it was exported to. */
static void done_may_name_another_stream(void **state)
{
    (void)state;
    buffer_scene it = tight_scene();
    int64_t to = number_of(it.a);
    weir_dlpack_request request = ask(&to, WEIR_READ);
    weir_buffer buffer = make_buffer(&it, it.a, ROOM);
    write_all(&it, it.a, &buffer, 1);
    weir_dlpack x = must_export(&buffer, &request);
    must_ok(weir_buffer_wait(&buffer, it.b, WEIR_READ));
    uint64_t gate = stall_stream(&it, it.b);
    check_stamp(it.device, it.b, data_of(x), ROOM, 1);
    must_ok(weir_dlpack_done_versioned(x.versioned, it.b));
    weir_buffer_reset(&buffer);
    must_come_back(&it, gate, true);
    buffer_scene_close(&it);
}

/* The exporter's stream is the tensor's as well, and so the exporter, which left
 * before, had nothing to note. */
static void done_elsewhere_keeps_the_exporters_work(void **state)
{
    (void)state;
    buffer_scene it = tight_scene();
    int64_t to = number_of(it.a);
    weir_dlpack_request request = ask(&to, WEIR_READ);
    weir_buffer buffer = make_buffer(&it, it.a, ROOM);
    write_all(&it, it.a, &buffer, 1);
    weir_dlpack x = must_export(&buffer, &request);
    must_ok(weir_buffer_wait(&buffer, it.b, WEIR_READ));
    check_stamp(it.device, it.b, data_of(x), ROOM, 1);
    uint64_t gate = stall_stream(&it, it.a);
    check_all(&it, it.a, &buffer, 1);
    weir_buffer_reset(&buffer);
    must_ok(weir_dlpack_done_versioned(x.versioned, it.b));
    void *ptr = take(it.pool, it.b, ROOM);
    stamp(it.device, it.b, ptr, ROOM, 2);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.b));
    open_stream(&it, gate);
    give(it.pool, it.b, ptr, ROOM);
    buffer_scene_close(&it);
}

/* What the importer put on its stream, and what it noted, holds the exporter's
 * bytes. */
static void an_import_of_our_own_knows_its_streams(void **state)
{
    (void)state;
    for (int noted = 0; noted < 2; noted++) {
        buffer_scene it = tight_scene();
        int64_t none = -1;
        weir_dlpack_request request = ask(&none, WEIR_WRITE);
        weir_buffer buffer = make_buffer(&it, it.a, ROOM), import;
        weir_tensor tensor;
        write_all(&it, it.a, &buffer, 1);
        must_ok(weir_buffer_wait(&buffer, it.b, WEIR_WRITE));
        must_ok(weir_dlpack_import(it.device, noted ? it.a : it.b,
                                   must_export(&buffer, &request), NULL, &import,
                                   &tensor));
        weir_buffer_reset(&buffer);
        uint64_t gate = stall_stream(&it, it.b);
        check_all(&it, it.b, &import, 1);
        if (noted)
            must_ok(weir_buffer_use(&import, it.b, WEIR_READ));
        weir_buffer_reset(&import);
        must_equal(pending_of(it.device).limbo_count, 0);
        must_come_back(&it, gate, true);
        buffer_scene_close(&it);
    }
}

static void done_refuses_what_is_not_ours(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    static char bytes[16];
    foreign_tensor from;
    foreign_tensor_init(&from, WEIR_DLPACK_CPU, 0, bytes, 2, 8);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_dlpack_done(foreign_legacy(&from).legacy, it.a));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_dlpack_done_versioned(foreign_versioned(&from).versioned, it.a));
    must_answer(WEIR_INVALID_ARGUMENT, weir_dlpack_done(NULL, it.a));
    must_answer(WEIR_INVALID_ARGUMENT, weir_dlpack_done_versioned(NULL, it.a));
    must_equal(from.deletions, 0);
    weir_dlpack_delete((weir_dlpack){ NULL, NULL });
    buffer_scene_close(&it);
}

/* Who has no name that lasts waits in limbo, and without a call to the device. */
static void only_streams_without_a_name_lead_to_limbo(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_stream unknown;
    must_ok(support_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &unknown));
    const struct {
        int64_t to; /* 0: none */
        bool outlives, limbo;
    } cases[] = {
        { 0, false, false }, { 1, false, false }, { 2, false, true },
        { 2, true, true }, { -1, false, true }, { -1, true, true },
        { number_of(it.b), false, false }, { number_of(unknown), false, true },
        { number_of(unknown), true, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_buffer buffer = make_buffer(&it, it.a, KIB);
        weir_dlpack_request request =
            ask(cases[i].to != 0 ? &cases[i].to : NULL, WEIR_READ);
        request.stream_outlives_tensor = cases[i].outlives;
        weir_dlpack x = must_export(&buffer, &request);
        weir_buffer_reset(&buffer);
        weir_device_calls before = calls_of(it.device);
        weir_dlpack_delete(x);
        weir_device_calls after = calls_of(it.device);
        must_equal(pending_of(it.device).limbo_count, cases[i].limbo);
        must_equal(pending_of(it.device).limbo_bytes, cases[i].limbo ? KIB : 0);
        if (cases[i].limbo)
            must(memcmp(&before, &after, sizeof before) == 0);
        must_ok(weir_device_drain_sync(it.device));
        must_equal(statistics_of(it.pool).out_bytes, 0);
    }
    must_ok(support_stream_destroy(it.device, unknown));
    buffer_scene_close(&it);
}

/* A consumer without a name has written until its tensor is deleted: who comes next
 * waits for that, but reads beside one that only read. */
static void the_next_is_behind_who_had_no_name(void **state)
{
    (void)state;
    const weir_access accesses[] = { WEIR_READ, WEIR_WRITE };
    for (size_t i = 0; i < 4; i++) {
        buffer_scene it = buffer_scene_open();
        stranger other = stranger_come(&it);
        weir_buffer buffer = make_buffer(&it, it.a, KIB);
        int64_t to = number_of(other.stream);
        weir_dlpack_request request = ask(&to, accesses[i / 2]);
        weir_dlpack x = must_export(&buffer, &request);
        uint64_t gate = stall_stream(&it, other.stream);
        if (accesses[i / 2] == WEIR_WRITE)
            write_all(&it, other.stream, &buffer, 1);
        weir_dlpack_delete(x);
        to = number_of(it.a);
        request = ask(&to, accesses[i % 2]);
        uint64_t points = calls_of(it.device).event_record_all;
        x = must_export(&buffer, &request);
        points = calls_of(it.device).event_record_all - points;
        must_equal(points, i != 0);
        if (accesses[i % 2] == WEIR_WRITE)
            write_all(&it, it.a, &buffer, 2);
        else if (i != 0)
            check_all(&it, it.a, &buffer, 1);
        weir_dlpack_delete(x);
        open_stream(&it, gate);
        weir_buffer_reset(&buffer);
        must_ok(weir_device_drain_sync(it.device));
        stranger_go(&other);
        buffer_scene_close(&it);
    }
}

/* The host is done with a tensor when it says so: no limbo, and no point. */
static void the_host_leaves_nothing_behind(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_resource *mr;
    must_ok(weir_resource_open(it.device, "system", &mr));
    const int64_t none = -1;
    for (size_t i = 0; i < 2; i++) {
        weir_buffer buffer;
        weir_dlpack_request request = ask(i == 0 ? NULL : &none, WEIR_WRITE);
        must_ok(weir_buffer_allocate(mr, it.a, KIB, 64, &buffer));
        weir_dlpack x = must_export(&buffer, &request);
        weir_buffer_reset(&buffer);
        must_equal(statistics_of(mr).out_bytes, KIB);
        weir_dlpack_delete(x);
        must_equal(statistics_of(mr).out_bytes, 0);
        must_equal(pending_of(it.device).limbo_count, 0);
    }
    weir_resource_unref(mr);
    buffer_scene_close(&it);
}

/* The copy is under way when the wait for it fails: nobody gets the bytes before it is
 * done. The buffer's own stream has ended, and the legacy one copies. */
static void a_copy_that_was_not_waited_for_is_not_forgotten(void **state)
{
    (void)state;
    const weir_dlpack_place host = { WEIR_DLPACK_CPU, 0 };
    buffer_scene it = tight_scene();
    weir_stream ended = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    weir_buffer buffer = make_buffer(&it, ended, ROOM);
    write_all(&it, ended, &buffer, 1);
    end_stream(it.device, ended);
    weir_dlpack_request request = ask(NULL, WEIR_READ);
    request.device = &host;
    uint64_t gate = stall_stream(&it, NULL);
    plan_fault(it.device, "stream_sync", 1, false, WEIR_DEVICE_ERROR);
    must_not_export(WEIR_DEVICE_ERROR, &buffer, &request);
    must_equal(pending_of(it.device).deferred_count, 1);
    weir_buffer_reset(&buffer);
    must_come_back(&it, gate, true);
    must_ok(weir_device_drain_sync(it.device));
    must_equal(pending_of(it.device).deferred_count, 0);
    buffer_scene_close(&it);
}

/* ---- anywhere ---- */

static void *delete_it(void *argument)
{
    weir_dlpack_delete(*(weir_dlpack *)argument);
    return NULL;
}

static void any_thread_may_delete(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    weir_resource *pool;
    must_ok(weir_resource_open(device, "pool/device", &pool));
    weir_stream a = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream b = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    int64_t to[] = { number_of(a), number_of(b), -1, 2 };
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    weir_dlpack tensors[THREADS];
    weir_buffer buffer;
    must_ok(weir_buffer_allocate(pool, a, KIB, 256, &buffer));
    stamp(device, a, buffer.data, KIB, 5);
    for (size_t i = 0; i < THREADS; i++) {
        weir_dlpack_request request = ask(&to[i], WEIR_READ);
        tensors[i] = must_export(&buffer, &request);
    }
    check_stamp(device, b, data_of(tensors[1]), KIB, 5);
    weir_buffer_reset(&buffer);
    for (size_t i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, delete_it, &tensors[i]) == 0);
    for (size_t i = 0; i < THREADS; i++)
        must(pthread_join(threads[i], NULL) == 0);
    must_ok(weir_device_drain_sync(device));
    must_equal(statistics_of(pool).out_bytes, 0);
    weir_resource_unref(pool);
    end_stream(device, a);
    end_stream(device, b);
    close_emulated(device);
}

#define CHILD_CLAIM(condition) ((condition) ? (void)0 : _exit(__LINE__ % 250 + 1))

static void in_a_forks_child_nothing_happens(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer buffer = make_buffer(&it, it.a, KIB);
    int64_t extent;
    weir_tensor tensor = bytes_of(&buffer, &extent);
    weir_dlpack_request request = ask(NULL, WEIR_READ);
    weir_dlpack x = must_export(&buffer, NULL), y = must_export(&buffer, &request);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        weir_dlpack none;
        weir_buffer import;
        weir_dlpack_place place;
        void *stream = &place;
        size_t live = weir__host_live();
        weir_dlpack_delete(x);
        weir_dlpack_delete(x); /* would be once too often */
        weir_dlpack_delete(y);
        CHILD_CLAIM(weir_dlpack_done(x.legacy, it.a) == WEIR_FORKED);
        CHILD_CLAIM(weir_dlpack_done_versioned(y.versioned, it.a) == WEIR_FORKED);
        CHILD_CLAIM(weir_dlpack_device(&buffer, &place) == WEIR_FORKED);
        CHILD_CLAIM(weir_dlpack_export(&buffer, &tensor, NULL, &none) == WEIR_FORKED);
        CHILD_CLAIM(weir_dlpack_import(it.device, it.a, x, NULL, &import, &tensor) ==
                    WEIR_FORKED);
        CHILD_CLAIM(weir_dlpack_current_work_stream(WEIR_DLPACK_CPU, 0, &stream) == -1);
        CHILD_CLAIM(stream == NULL);
        CHILD_CLAIM(weir__host_live() == live);
        _exit(0);
    }
    int status = -1;
    must(waitpid(child, &status, 0) == child);
    must_equal(status, 0);
    weir_dlpack_delete(x);
    weir_dlpack_delete(y);
    weir_buffer_reset(&buffer);
    buffer_scene_close(&it);
}

/* ---- captures ---- */

/* Each needs a wait of or for a stream that is captured; declared or not. */
static void captures_are_left_alone(void **state)
{
    (void)state;
    for (int declared = 0; declared < 2; declared++) {
        buffer_scene it = buffer_scene_open();
        weir_capture *capture = NULL;
        weir_emulated_graph *graph;
        int64_t to = number_of(it.b);
        const weir_dlpack_place host = { WEIR_DLPACK_CPU, 0 };
        weir_dlpack_request request = ask(&to, WEIR_READ);
        weir_buffer x = make_buffer(&it, it.a, KIB), y = make_buffer(&it, it.b, KIB);
        write_all(&it, it.a, &x, 1);
        write_all(&it, it.b, &y, 2);
        weir_dlpack before = must_export(&y, &request);
        if (declared)
            must_ok(weir_capture_begin(it.pool, it.b, &capture));
        must_ok(weir_emulated_capture_begin(it.device, it.b));
        must_not_export(WEIR_CAPTURING, &x, &request); /* b would wait for a */
        to = number_of(it.a);
        must_not_export(WEIR_CAPTURING, &y, &request); /* a for b */
        request.device = &host;
        must_not_export(WEIR_CAPTURING, &y, &request); /* the host for b */
        to = number_of(it.b);
        request = ask(&to, WEIR_READ);
        request.copy = WEIR_COPY_ALWAYS;
        must_not_export(WEIR_CAPTURING, &y, &request); /* the graph would copy */
        if (declared)
            must_answer(WEIR_CAPTURING,
                        weir_dlpack_done_versioned(before.versioned, it.b));
        weir_buffer_reset(&x);
        weir_dlpack_delete(before);
        weir_buffer_reset(&y);
        must_equal(pending_of(it.device).limbo_count, declared);
        must_ok(weir_emulated_capture_end_graph(it.device, it.b, &graph));
        must_ok(weir_emulated_graph_destroy(it.device, graph));
        if (declared)
            must_ok(weir_capture_release(capture, it.b));
        must_ok(weir_device_drain_sync(it.device));
        buffer_scene_close(&it);
    }
}

/* ---- what is refused ---- */

static void arguments_are_checked(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer buffer = make_buffer(&it, it.a, KIB), view, empty = { .data = NULL };
    int64_t extent;
    weir_tensor tensor = bytes_of(&buffer, &extent);
    weir_dlpack out;
    weir_dlpack_place place;
    weir_dlpack_request request = WEIR_DLPACK_REQUEST_INIT;
    const weir_status wrong = WEIR_INVALID_ARGUMENT;
    must_answer(wrong, weir_dlpack_export(NULL, &tensor, NULL, &out));
    must_answer(wrong, weir_dlpack_export(&buffer, NULL, NULL, &out));
    must_answer(wrong, weir_dlpack_export(&buffer, &tensor, NULL, NULL));
    must_answer(wrong, weir_dlpack_device(NULL, &place));
    must_answer(wrong, weir_dlpack_device(&buffer, NULL));
    request.access = (weir_access)3;
    must_not_export(wrong, &buffer, &request);
    request = (weir_dlpack_request)WEIR_DLPACK_REQUEST_INIT;
    request.copy = (weir_copying)3;
    must_not_export(wrong, &buffer, &request);
    extent = KIB + 1;
    must_answer(wrong, weir_dlpack_export(&buffer, &tensor, NULL, &out));
    extent = KIB;
    tensor.byte_offset = 1;
    must_answer(wrong, weir_dlpack_export(&buffer, &tensor, NULL, &out));
    tensor.strides = (int64_t[]){ -1 };
    tensor.byte_offset = KIB - 2;
    must_answer(wrong, weir_dlpack_export(&buffer, &tensor, NULL, &out));
    tensor.byte_offset = KIB - 1;
    must_ok(weir_dlpack_export(&buffer, &tensor, NULL, &out));
    weir_dlpack_delete(out);
    must_ok(weir_buffer_view(buffer.data, KIB, it.a, &view));
    must_not_export(WEIR_NOT_OWNED, &view, NULL);
    must_not_export(WEIR_NOT_OWNED, &empty, NULL);
    must_answer(WEIR_NOT_OWNED, weir_dlpack_device(&view, &place));
    must(place.type == 0 && place.id == 0);
    weir_buffer_reset(&buffer);
    buffer_scene_close(&it);
}

/* They need no bytes, wait for nobody and hold nothing. */
static void arrays_without_elements_are_exported_empty(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_buffer none;
    must_ok(weir_buffer_init(it.pool, it.a, &none));
    weir_buffer some = make_buffer(&it, it.a, KIB);
    weir_buffer *const from[] = { &none, &some };
    int64_t shape[] = { 3, 0, 5 };
    weir_tensor tensor = { { WEIR_DTYPE_FLOAT, 64, 1 }, 3, shape, NULL, 0 };
    for (size_t i = 0; i < 4; i++) {
        weir_dlpack_request request = ask(NULL, WEIR_WRITE);
        weir_dlpack out;
        weir_dlpack_place place;
        request.copy = i < 2 ? WEIR_COPY_IF_NEEDED : WEIR_COPY_ALWAYS;
        must_ok(weir_dlpack_device(from[i % 2], &place));
        must_ok(weir_dlpack_export(from[i % 2], &tensor, &request, &out));
        must(data_of(out) == NULL && tensor_of(out)->strides[0] == 5);
        must_equal(tensor_of(out)->device.device_type, place.type);
        must_equal(flags_of(out), i < 2 ? 0 : WEIR__DL_IS_COPIED);
        weir_buffer back;
        weir_tensor seen;
        must_ok(weir_dlpack_import(it.device, it.a, out, NULL, &back, &seen));
        must(back.size == 0 && seen.shape[2] == 5);
        weir_buffer_reset(&back);
        must_ok(weir_device_drain_sync(it.device));
    }
    weir_buffer_reset(&none);
    weir_buffer_reset(&some);
    buffer_scene_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_trip_costs_two_records),
        cmocka_unit_test(bytes_come_back_behind_the_consumers_stream),
        cmocka_unit_test(done_names_the_stream),
        cmocka_unit_test(done_may_name_another_stream),
        cmocka_unit_test(done_elsewhere_keeps_the_exporters_work),
        cmocka_unit_test(an_import_of_our_own_knows_its_streams),
        cmocka_unit_test(done_refuses_what_is_not_ours),
        cmocka_unit_test(only_streams_without_a_name_lead_to_limbo),
        cmocka_unit_test(the_next_is_behind_who_had_no_name),
        cmocka_unit_test(the_host_leaves_nothing_behind),
        cmocka_unit_test(a_copy_that_was_not_waited_for_is_not_forgotten),
        cmocka_unit_test(any_thread_may_delete),
        cmocka_unit_test(in_a_forks_child_nothing_happens),
        cmocka_unit_test(captures_are_left_alone),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(arrays_without_elements_are_exported_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
