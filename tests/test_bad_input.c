/* test_bad_input.c - what has no meaning is refused, by every public function, with a
 * sentence, and nothing has changed afterwards. */
#include "support.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"
#include "weir/capture.h"
#include "weir/leaves.h"
#include "weir/limiting.h"
#include "weir/pool.h"
#include "weir/resource_ops.h"
#include "weir/statistics.h"
#include "weir/version.h"
#include "weir/weir.h"

/* A refusal is INVALID_ARGUMENT, and says why in words of its own. */
#define bad(call)                                                                \
    do {                                                                         \
        must_answer(WEIR_INVALID_ARGUMENT, (call));                              \
        must(weir_last_error().status == WEIR_INVALID_ARGUMENT);                 \
        must(strlen(weir_last_error().message) > 8);                             \
    } while (0)

/* One of everything. */
typedef struct scene {
    weir_device *device;
    weir_resource *mr;       /* statistics/pool/device */
    weir_stream stream;
    weir_event event;
    void *block;             /* of 1000 bytes, stamped */
    weir_resource_statistics before;
    size_t host_live;
    misuse_log log;
} scene;

static void scene_begin(scene *s, uint64_t seed)
{
    s->device = open_stepped(support_seed(seed));
    must_ok(weir_resource_open(s->device, "statistics/pool/device", &s->mr));
    s->stream = make_stream(s->device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_event_create(s->device, &s->event));
    s->block = take(s->mr, s->stream, 1000);
    stamp(s->device, s->stream, s->block, 1000, seed);
    must_ok(weir_stream_sync(s->device, s->stream));
    s->before = statistics_of(s->mr);
    s->host_live = weir__host_live();
    misuse_begin(&s->log);
}

/* Claims that nothing has changed but the count of failures. */
static void scene_end(scene *s, uint64_t seed)
{
    misuse_end();
    must_equal(s->log.count, 0);
    must_equal(weir__host_live(), s->host_live);
    weir_resource_statistics now = statistics_of(s->mr);
    now.failures = s->before.failures;
    must(memcmp(&now, &s->before, sizeof now) == 0);
    check_stamp(s->device, s->stream, s->block, 1000, seed);
    give(s->mr, s->stream, s->block, 1000);
    must_ok(weir_event_destroy(s->device, s->event));
    end_stream(s->device, s->stream);
    weir_resource_unref(s->mr);
    close_emulated(s->device);
}

/* ---- status.h, version.h ---- */

static void words_are_there_for_every_status(void **state)
{
    (void)state;
    for (int i = -3; i < 100; i++)
        must(strlen(weir_status_string((weir_status)i)) > 0);
    must(strlen(weir_version_string()) > 0 && strlen(weir_build_string()) > 0);
    must_equal(weir_version(), WEIR_VERSION);
    bad(weir_last_out_of_memory(NULL));
    weir_out_of_memory report = { .struct_size = 0 };
    bad(weir_last_out_of_memory(&report));
    report.struct_size = sizeof(size_t) - 1;
    bad(weir_last_out_of_memory(&report));
}

/* ---- device.h ---- */

static void devices_are_opened_by_name_only(void **state)
{
    (void)state;
    weir_device *device = (weir_device *)&state;
    static const char *const names[] = {
        "", "emulate", "emulated:", "emulated:x", "emulated:16", "emulated:-1",
        "emulated:1x", "emulated: 1", "emulated:99999999999999999999", "cuda:",
        "Emulated", "auto:0", "emulated:0x1", "cuda:16", "emulated\n",
    };
    bad(weir_device_open(NULL, NULL, &device));
    must(device == NULL);
    bad(weir_device_open("emulated", NULL, NULL));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        device = (weir_device *)&state;
        weir_status status = weir_device_open(names[i], NULL, &device);
        must_answer(WEIR_INVALID_ARGUMENT, status);
        must(device == NULL);
    }
    /* Too many for any machine. */
    must_answer(WEIR_NOT_SUPPORTED, weir_device_open("cuda:15", NULL, &device));
    must(device == NULL && weir_last_error().message[0] != '\0');
}

static void device_options_are_read_with_care(void **state)
{
    (void)state;
    weir_device *device;
    struct {
        weir_device_options known;
        int unheard_of;
    } newer = { WEIR_DEVICE_OPTIONS_INIT, 1 };
    newer.known.struct_size = sizeof newer;
    must_answer(WEIR_NOT_SUPPORTED,
                weir_device_open("emulated:7", &newer.known, &device));
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.struct_size = 0;
    bad(weir_device_open("emulated:7", &options, &device));

    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    options.struct_size = sizeof options;
    options.emulated = &emulated;
    emulated.struct_size = 3;
    bad(weir_device_open("emulated:7", &options, &device));
    emulated.struct_size = sizeof emulated;
    emulated.scheduler = (weir_emulated_scheduler)3;
    bad(weir_device_open("emulated:7", &options, &device));
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.memory_bytes = SIZE_MAX;
    must(weir_device_open("emulated:7", &options, &device) != WEIR_OK);
    must(device == NULL);

    /* Open already, and asked for otherwise. */
    emulated.memory_bytes = (size_t)1 << 30;
    must_ok(weir_device_open("emulated:7", &options, &device));
    weir_device *again = NULL;
    emulated.seed = 5;
    bad(weir_device_open("emulated:7", &options, &again));
    emulated.seed = 0;
    emulated.choose_context = &newer;
    bad(weir_device_open("emulated:7", &options, &again));
    must(again == NULL);
    options.emulated = NULL;
    options.eager = true;
    bad(weir_device_open("emulated:7", &options, &again));
    weir_device_unref(device);
    weir_device_unref(NULL);
    must(weir_device_ref(NULL) == NULL);
}

static void device_calls_refuse_nonsense(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 1);
    size_t free_bytes, total_bytes;
    weir_device_properties properties = { .struct_size = sizeof properties,
                                          .memory_bytes = 1 };
    weir_device_calls calls = { .struct_size = sizeof calls, .malloc = 1 };
    bad(weir_device_get_properties(NULL, &properties));
    must_equal(properties.memory_bytes, 0);
    bad(weir_device_get_properties(s.device, NULL));
    properties.struct_size = 0;
    bad(weir_device_get_properties(s.device, &properties));
    bad(weir_device_get_calls(NULL, &calls));
    must_equal(calls.malloc, 0);
    weir_pending pending = { .struct_size = sizeof pending, .limbo_count = 1 };
    bad(weir_device_get_pending(NULL, &pending));
    must_equal(pending.limbo_count, 0);
    bad(weir_device_get_calls(s.device, NULL));
    calls.struct_size = sizeof(size_t);
    bad(weir_device_get_calls(s.device, &calls));
    bad(weir_device_memory(NULL, &free_bytes, &total_bytes));
    bad(weir_device_memory(s.device, NULL, &total_bytes));
    bad(weir_device_memory(s.device, &free_bytes, NULL));
    bad(weir_device_enable_peer(NULL, s.device));
    bad(weir_device_enable_peer(s.device, NULL));
    bad(weir_device_sync(NULL));
    scene_end(&s, 1);
}

/* ---- stream.h ---- */

static void streams_refuse_nonsense(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 2);
    weir_stream stream = s.stream;
    bool done;
    bad(weir_stream_create(NULL, WEIR_STREAM_BLOCKING, &stream));
    must(stream == NULL);
    bad(weir_stream_create(s.device, WEIR_STREAM_BLOCKING, NULL));
    bad(weir_stream_create(s.device, (weir_stream_kind)2, &stream));
    bad(weir_stream_destroy(NULL, s.stream));
    bad(weir_stream_destroy(s.device, NULL));
    bad(weir_stream_destroy(s.device, WEIR_STREAM_LEGACY));
    bad(weir_stream_destroy(s.device, WEIR_STREAM_PER_THREAD));
    bad(weir_stream_register(NULL, s.stream));
    bad(weir_stream_register(s.device, NULL));
    bad(weir_stream_register(s.device, WEIR_STREAM_LEGACY));
    bad(weir_stream_register(s.device, WEIR_STREAM_PER_THREAD));
    bad(weir_stream_register(s.device, s.stream)); /* is known already */
    bad(weir_stream_retire(NULL, s.stream));
    must(weir_stream_retire(s.device, NULL) != WEIR_OK);
    must(weir_stream_retire(s.device, WEIR_STREAM_PER_THREAD) != WEIR_OK);
    bad(weir_stream_wait(NULL, s.stream, NULL));
    bad(weir_stream_sync(NULL, s.stream));
    bad(weir_stream_query(NULL, s.stream, &done));
    bad(weir_stream_query(s.device, s.stream, NULL));
    scene_end(&s, 2);
}

static void points_and_events_refuse_nonsense(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 3);
    weir_point point = { 1, 2 };
    weir_event event = s.event;
    bool done;
    bad(weir_point_here(NULL, s.stream, &point));
    bad(weir_point_here(s.device, s.stream, NULL));
    bad(weir_stream_wait_point(NULL, s.stream, point));
    bad(weir_point_query(NULL, point, &done));
    bad(weir_point_query(s.device, point, NULL));
    bad(weir_point_sync(NULL, point));
    bad(weir_event_create(NULL, &event));
    must(event == NULL);
    bad(weir_event_create(s.device, NULL));
    bad(weir_event_destroy(NULL, s.event));
    must_ok(weir_event_destroy(s.device, NULL)); /* is ignored */
    bad(weir_event_record(NULL, s.stream, s.event));
    bad(weir_event_record(s.device, s.stream, NULL));
    bad(weir_stream_wait_event(NULL, s.stream, s.event));
    bad(weir_stream_wait_event(s.device, s.stream, NULL));
    bad(weir_event_query(NULL, s.event, &done));
    bad(weir_event_query(s.device, NULL, &done));
    bad(weir_event_query(s.device, s.event, NULL));
    bad(weir_event_sync(NULL, s.event));
    bad(weir_event_sync(s.device, NULL));
    scene_end(&s, 3);
}

static void copies_and_fills_refuse_nonsense(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 4);
    char host[16] = { 0 };
    bad(weir_copy(s.device, s.stream, s.block, s.block, 1));
    bad(weir_copy(s.device, s.stream, s.block, (char *)s.block + 9, 10));
    bad(weir_copy(s.device, s.stream, (char *)s.block + 9, s.block, 10));
    bad(weir_copy(NULL, s.stream, host, s.block, 8));
    bad(weir_copy(s.device, s.stream, NULL, s.block, 8));
    bad(weir_copy(s.device, s.stream, host, NULL, 8));
    bad(weir_copy_sync(NULL, s.stream, host, s.block, 8));
    bad(weir_copy_sync(s.device, s.stream, NULL, s.block, 8));
    bad(weir_fill(NULL, s.stream, s.block, 1, 8));
    bad(weir_fill(s.device, s.stream, NULL, 1, 8));
    must_ok(weir_copy(s.device, s.stream, host, s.block, 0));
    must_ok(weir_copy(s.device, s.stream, NULL, NULL, 0));
    must_ok(weir_fill(s.device, s.stream, NULL, 1, 0));
    /* Far beyond what there is, also where the end wraps around. */
    must(weir_fill(s.device, s.stream, s.block, 1, SIZE_MAX) != WEIR_OK);
    must(weir_fill(s.device, s.stream, s.block, 1, (size_t)1 << 40) != WEIR_OK);
    must(weir_copy(s.device, s.stream, s.block, host, SIZE_MAX - 8) != WEIR_OK);
    must_ok(weir_stream_sync(s.device, s.stream));
    scene_end(&s, 4);
}

/* A handle that no stream has any more. */
static void dead_streams_are_noticed(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 5);
    weir_stream dead = make_stream(s.device, WEIR_STREAM_NON_BLOCKING);
    end_stream(s.device, dead);
    void *ptr;
    bool done;
    weir_point point;
    must(weir_stream_sync(s.device, dead) != WEIR_OK);
    must(weir_stream_query(s.device, dead, &done) != WEIR_OK);
    must(weir_stream_destroy(s.device, dead) != WEIR_OK);
    must(weir_stream_retire(s.device, dead) != WEIR_OK);
    must(weir_stream_wait(s.device, s.stream, dead) != WEIR_OK);
    must(weir_stream_wait(s.device, dead, s.stream) != WEIR_OK);
    must(weir_point_here(s.device, dead, &point) != WEIR_OK);
    must(weir_event_record(s.device, dead, s.event) != WEIR_OK);
    must(weir_fill(s.device, dead, s.block, 1, 8) != WEIR_OK);
    must(weir_allocate(s.mr, dead, 8, 8, &ptr) != WEIR_OK);
    must(ptr == NULL);
    s.host_live = weir__host_live(); /* records of streams may stay */
    scene_end(&s, 5);
}

/* ---- resource.h and the makers ---- */

static void makers_refuse_nonsense(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 6);
    weir_resource *mr = s.mr;
    const weir_callbacks none = { .struct_size = sizeof none };
    const weir_resource_ops no_ops = { .struct_size = sizeof no_ops };
    bad(weir_device_resource_create(NULL, &mr));
    must(mr == NULL);
    bad(weir_device_resource_create(s.device, NULL));
    bad(weir_system_resource_create(NULL, &mr));
    bad(weir_system_resource_create(s.device, NULL));
    bad(weir_callback_create(NULL, &none, NULL, &mr));
    bad(weir_callback_create(s.device, NULL, NULL, &mr));
    bad(weir_callback_create(s.device, &none, NULL, &mr));
    bad(weir_callback_create(s.device, &none, NULL, NULL));
    bad(weir_limiting_create(NULL, 5, &mr));
    bad(weir_limiting_create(s.mr, 5, NULL));
    bad(weir_statistics_create(NULL, &mr));
    bad(weir_statistics_create(s.mr, NULL));
    bad(weir_statistics_reset(NULL));
    bad(weir_pool_create(NULL, NULL, &mr));
    bad(weir_pool_create(s.mr, NULL, NULL));
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.initial_bytes = 2000;
    options.limit_bytes = 1000;
    bad(weir_pool_create(s.mr, &options, &mr));
    must(mr == NULL);
    options.struct_size = 1;
    bad(weir_pool_create(s.mr, &options, &mr));
    options.struct_size = sizeof options;
    bad(weir_pool_get_options(s.mr, &options)); /* is no pool */
    bad(weir_pool_get_options(NULL, &options));
    bad(weir_resource_create(NULL, NULL, &mr));
    bad(weir_resource_create(&no_ops, NULL, &mr));
    bad(weir_resource_create(&no_ops, NULL, NULL));
    bad(weir_resource_open(NULL, "device", &mr));
    bad(weir_resource_open(s.device, "device", NULL));
    scene_end(&s, 6);
}

static void resources_refuse_nonsense(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 7);
    void *ptr = &s;
    bad(weir_allocate(NULL, s.stream, 8, 8, &ptr));
    must(ptr == NULL);
    bad(weir_allocate(s.mr, s.stream, 8, 8, NULL));
    static const size_t alignments[] = { 0, 3, 24, SIZE_MAX, SIZE_MAX / 2 + 1 };
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++)
        bad(weir_allocate(s.mr, s.stream, 8, alignments[i], &ptr));
    static const size_t sizes[] = { SIZE_MAX, SIZE_MAX - 255, SIZE_MAX - 256,
                                    SIZE_MAX / 2, (size_t)1 << 63, (size_t)1 << 50 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        must_answer(WEIR_OUT_OF_MEMORY,
                    weir_allocate(s.mr, s.stream, sizes[i], 256, &ptr));
        must(ptr == NULL);
        weir_out_of_memory report = { .struct_size = sizeof report };
        must_ok(weir_last_out_of_memory(&report));
    }
    weir_block block = { .struct_size = sizeof block };
    bad(weir_resource_find(NULL, s.block, &block));
    bad(weir_resource_find(s.mr, s.block, NULL));
    must_answer(WEIR_NOT_FOUND, weir_resource_find(s.mr, NULL, &block));
    block.struct_size = 0;
    bad(weir_resource_find(s.mr, s.block, &block));
    weir_resource_properties properties = { .struct_size = 0 };
    bad(weir_resource_get_properties(s.mr, &properties));
    bad(weir_resource_get_properties(s.mr, NULL));
    properties = (weir_resource_properties){ .struct_size = sizeof properties,
                                             .max_alignment = 1 };
    bad(weir_resource_get_properties(NULL, &properties));
    must_equal(properties.max_alignment, 0);
    weir_resource_statistics statistics = { .struct_size = 0 };
    bad(weir_resource_get_statistics(s.mr, &statistics));
    bad(weir_resource_get_statistics(s.mr, NULL));
    statistics.struct_size = sizeof statistics;
    bad(weir_resource_get_statistics(NULL, &statistics));
    must(weir_resource_device(NULL) == NULL);
    must(weir_resource_upstream(NULL, 0) == NULL);
    must(weir_resource_upstream(s.mr, 2) == NULL);
    must_equal(weir_resource_trim_sync(NULL, 0), 0);
    weir_resource_unref(NULL);
    must(weir_resource_ref(NULL) == NULL);
    bad(weir_resource_extend(NULL, s.stream, s.block, 1000, 256, 2000));
    must(weir_resource_extend(s.mr, s.stream, NULL, 1000, 256, 2000) != WEIR_OK);
    must_ok(weir_resource_refuse(WEIR_OK, NULL));
    weir_resource_report_misuse(NULL);
    scene_end(&s, 7);
}

/* A misuse handler that returns: the block stays out, as it was. */
static void wrong_frees_change_nothing(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 8);
    misuse_log *log = &s.log;
    weir_point point;
    must_ok(weir_point_here(s.device, s.stream, &point));

    must(!weir_deallocate(NULL, s.stream, s.block, 1000, 256));
    must_be_misuse(log, WEIR_MISUSE_FOREIGN_POINTER, s.block);
    must(!weir_deallocate(s.mr, s.stream, s.block, 0, 256));
    must_be_misuse(log, WEIR_MISUSE_WRONG_SIZE, s.block);
    must(!weir_deallocate(s.mr, s.stream, s.block, 5000, 256));
    must_be_misuse(log, WEIR_MISUSE_WRONG_SIZE, s.block);
    must(!weir_deallocate(s.mr, s.stream, s.block, SIZE_MAX, 256));
    must_be_misuse(log, WEIR_MISUSE_WRONG_SIZE, s.block);
    must(!weir_deallocate(s.mr, s.stream, s.block, 1000, 3));
    must_be_misuse(log, WEIR_MISUSE_WRONG_SIZE, s.block);
    must(!weir_deallocate(s.mr, s.stream, &s, 1000, 256));
    must_be_misuse(log, WEIR_MISUSE_FOREIGN_POINTER, &s);
    must(!weir_deallocate(s.mr, s.stream, (char *)s.block + 8, 992, 8));
    must_be_misuse(log, WEIR_MISUSE_FOREIGN_POINTER, (char *)s.block + 8);

    must(!weir_deallocate_after(NULL, s.block, 1000, 256, &point, 1));
    must_be_misuse(log, WEIR_MISUSE_FOREIGN_POINTER, s.block);
    must(!weir_deallocate_after(s.mr, s.block, 1000, 256, NULL, 1));
    must_be_misuse(log, WEIR_MISUSE_WRONG_STREAM, s.block);
    must(!weir_deallocate_after(s.mr, s.block, 5000, 256, &point, 1));
    must_be_misuse(log, WEIR_MISUSE_WRONG_SIZE, s.block);
    must(!weir_free(NULL, s.block));
    must_be_misuse(log, WEIR_MISUSE_FOREIGN_POINTER, s.block);
    must(!weir_free(s.mr, &s));
    must_be_misuse(log, WEIR_MISUSE_FOREIGN_POINTER, &s);
    must(weir_free(NULL, NULL) && weir_free(s.mr, NULL));
    must(weir_deallocate(NULL, NULL, NULL, 5, 5));
    must(weir_deallocate_after(NULL, NULL, 5, 5, NULL, 5));
    scene_end(&s, 8);
}

/* In a child, whose misuse is seen before its lack of a device is. */
static void default_handler_stops_the_process(void **state)
{
    (void)state;
    const weir_misuse misuse = { WEIR_MISUSE_DOUBLE_FREE, "told on purpose", NULL, 0 };
    fflush(NULL);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        must(freopen("/dev/null", "w", stderr) != NULL);
        weir_resource_report_misuse(&misuse);
        _exit(0);
    }
    int status = 0;
    must(waitpid(child, &status, 0) == child);
    must(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* ---- capture.h ---- */

static void captures_refuse_nonsense(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 10);
    weir_capture *capture = (weir_capture *)&s, *second;
    bad(weir_capture_begin(NULL, s.stream, &capture));
    must(capture == NULL);
    bad(weir_capture_begin(s.mr, s.stream, NULL));
    bad(weir_capture_begin(s.mr, NULL, &capture));
    bad(weir_capture_begin(s.mr, WEIR_STREAM_LEGACY, &capture));
    bad(weir_capture_end(NULL));
    must_ok(weir_capture_release(NULL, s.stream));
    must_ok(weir_capture_begin(s.mr, s.stream, &capture));
    must_answer(WEIR_CAPTURING, weir_capture_begin(s.mr, s.stream, &second));
    must(second == NULL);
    must_ok(weir_capture_end(capture));
    bad(weir_capture_end(capture));
    must_ok(weir_capture_release(capture, s.stream));
    s.host_live = weir__host_live(); /* clocks may be stocked */
    scene_end(&s, 10);
}

/* ---- emulated.h ---- */

static void no_kernel(void *argument, void *const views[])
{
    (void)argument;
    (void)views;
}

static void no_thread(void *argument)
{
    (void)argument;
}

static void emulated_calls_refuse_nonsense(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s, 11);
    weir_stream stream;
    uint64_t gate;
    size_t captured;
    bool stepped;
    const weir_emulated_range range = { s.block, 8, WEIR_EMULATED_READ };
    weir_emulated_range wrong = range;
    bad(weir_emulated_launch(NULL, s.stream, no_kernel, NULL, &range, 1));
    bad(weir_emulated_launch(s.device, s.stream, NULL, NULL, &range, 1));
    bad(weir_emulated_launch(s.device, s.stream, no_kernel, NULL, NULL, 1));
    wrong.access = (weir_emulated_access)0;
    bad(weir_emulated_launch(s.device, s.stream, no_kernel, NULL, &wrong, 1));
    wrong = range;
    wrong.bytes = SIZE_MAX;
    must(weir_emulated_launch(s.device, s.stream, no_kernel, NULL, &wrong, 1) !=
         WEIR_OK);
    wrong.bytes = 8;
    wrong.ptr = NULL;
    must(weir_emulated_launch(s.device, s.stream, no_kernel, NULL, &wrong, 1) !=
         WEIR_OK);
    bad(weir_emulated_stall(NULL, s.stream, &gate));
    bad(weir_emulated_stall(s.device, s.stream, NULL));
    bad(weir_emulated_open_gate(NULL, 1));
    must(weir_emulated_open_gate(s.device, 12345) != WEIR_OK);
    bad(weir_emulated_step(NULL, &stepped));
    bad(weir_emulated_step(s.device, NULL));
    bad(weir_emulated_stream_create(NULL, WEIR_STREAM_BLOCKING, &stream));
    bad(weir_emulated_stream_create(s.device, WEIR_STREAM_BLOCKING, NULL));
    bad(weir_emulated_stream_create(s.device, (weir_stream_kind)7, &stream));
    bad(weir_emulated_stream_destroy(NULL, s.stream));
    must(weir_emulated_stream_destroy(s.device, NULL) != WEIR_OK);
    bad(weir_emulated_capture_begin(NULL, s.stream));
    must(weir_emulated_capture_begin(s.device, NULL) != WEIR_OK);
    bad(weir_emulated_capture_end(NULL, s.stream, &captured));
    must(weir_emulated_capture_end(s.device, s.stream, &captured) != WEIR_OK);
    must_equal(weir_emulated_findings(NULL), 0);
    weir_emulated_finding finding = { .struct_size = sizeof finding, .bytes = 1 };
    bad(weir_emulated_get_finding(NULL, 0, &finding));
    must_equal(finding.bytes, 0);
    bad(weir_emulated_get_finding(s.device, 0, NULL));
    must_answer(WEIR_NOT_FOUND, weir_emulated_get_finding(s.device, 0, &finding));
    bad(weir_emulated_host_signal(NULL, 1));
    bad(weir_emulated_host_await(NULL, 1));
    void *const arguments[] = { NULL };
    bad(weir_emulated_run_threads(NULL, 1, no_thread, arguments));
    bad(weir_emulated_run_threads(s.device, 1, NULL, arguments));
    must_ok(weir_emulated_run_threads(s.device, 0, no_thread, NULL));
    weir_emulated_fault fault = { .struct_size = sizeof fault };
    bad(weir_emulated_set_fault(NULL, &fault));
    fault.struct_size = 0;
    bad(weir_emulated_set_fault(s.device, &fault));
    must_equal(weir_emulated_call_bit("no such call"), 0);
    must_equal(weir_emulated_call_bit(NULL), 0);
    must_equal(weir_emulated_fault_calls(NULL), 0);
    scene_end(&s, 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_there_for_every_status),
        cmocka_unit_test(devices_are_opened_by_name_only),
        cmocka_unit_test(device_options_are_read_with_care),
        cmocka_unit_test(device_calls_refuse_nonsense),
        cmocka_unit_test(streams_refuse_nonsense),
        cmocka_unit_test(points_and_events_refuse_nonsense),
        cmocka_unit_test(copies_and_fills_refuse_nonsense),
        cmocka_unit_test(dead_streams_are_noticed),
        cmocka_unit_test(makers_refuse_nonsense),
        cmocka_unit_test(resources_refuse_nonsense),
        cmocka_unit_test(wrong_frees_change_nothing),
        cmocka_unit_test(default_handler_stops_the_process),
        cmocka_unit_test(captures_refuse_nonsense),
        cmocka_unit_test(emulated_calls_refuse_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
