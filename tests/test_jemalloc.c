/* test_jemalloc.c - blocks that jemalloc has cut: they go to others only behind their
 * stream, extents come and go as they should, and what failures, captures, the end and
 * misuse leave. */
#include "support_graph.h"

#include <dlfcn.h>
#include <string.h>

#include "internal.h"
#include "weir/capture.h"
#include "weir/jemalloc.h"
#include "weir/resource_ops.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static weir_resource *jemalloc_over(weir_device *device, const char *spec)
{
    weir_resource *upstream = NULL, *mr = NULL;
    must_ok(weir_resource_open(device, spec, &upstream));
    must_ok(weir_jemalloc_create(upstream, NULL, &mr));
    weir_resource_unref(upstream);
    return mr;
}

/* ---- what it is ---- */

static void processes_keep_their_malloc(void **state)
{
    (void)state;
    must(dlsym(RTLD_DEFAULT, "weir_jemalloc_create") != NULL);
    must(dlsym(RTLD_DEFAULT, "mallocx") == NULL);
    must(dlsym(RTLD_DEFAULT, "mallctl") == NULL);
}

/* The library says so as it is loaded. */
static void text_can_name_it(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_resource *mr;
    must_ok(weir_resource_open(device, "jemalloc(pending=1MiB)/pool/pinned", &mr));
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(mr, &properties));
    assert_string_equal(properties.name, "jemalloc");
    assert_string_equal(properties.leaf, "pinned");
    give(mr, NULL, take(mr, NULL, 5000), 5000);
    weir_resource_unref(mr);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_resource_open(device, "jemalloc(pending=0)/pinned", &mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_resource_open(device, "jemalloc", &mr));
    must_answer(WEIR_NOT_SUPPORTED,
                weir_resource_open(device, "jemalloc/device", &mr));
    close_emulated(device);
}

static void memory_is_the_hosts_and_aligned(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(1));
    weir_resource *mr = jemalloc_over(device, "managed");
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(mr, &properties));
    must(properties.host_accessible && properties.managed && properties.can_find);
    must(properties.usable_at_once && properties.can_trim && !properties.can_extend);
    must_equal(properties.max_alignment, 2 * MIB);
    assert_string_equal(properties.name, "jemalloc");
    assert_string_equal(properties.leaf, "managed");
    for (size_t alignment = 1; alignment <= 2 * MIB; alignment *= 2) {
        void *ptr = NULL;
        must_ok(weir_allocate(mr, NULL, 5000, alignment, &ptr));
        must((uintptr_t)ptr % alignment == 0);
        memset(ptr, 7, 5000); /* nobody else is at work on it */
        stamp(device, NULL, ptr, 5000, alignment);
        check_stamp(device, NULL, ptr, 5000, alignment);
        must(weir_deallocate(mr, NULL, ptr, 5000, alignment));
    }
    weir_resource_unref(mr);
    close_emulated(device);
}

static void many_blocks_take_few_extents(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(2));
    weir_resource *mr = jemalloc_over(device, "pinned");
    void *out[1000];
    for (size_t i = 0; i < 1000; i++)
        out[i] = take(mr, NULL, 1 + i);
    must(calls_of(device).pinned_malloc <= 2);
    weir_resource_statistics now = statistics_of(mr);
    must_equal(now.out_blocks, 1000);
    must_equal(now.out_bytes, 500500);
    must(now.held_bytes >= 2 * MIB && now.held_bytes <= 5 * MIB);
    weir_block found = { .struct_size = sizeof found };
    must_ok(weir_resource_find(mr, out[41], &found));
    must(found.ptr == out[41] && found.bytes == 42);
    for (size_t i = 0; i < 1000; i++)
        must(weir_free(mr, out[i]));
    must_answer(WEIR_NOT_FOUND, weir_resource_find(mr, out[41], &found));
    must_equal(statistics_of(mr).out_blocks, 0);
    must_equal(statistics_of(mr).kept_bytes, 500500);
    must_ok(weir_device_sync(device));
    must_equal(weir_resource_trim_sync(mr, 0), now.held_bytes);
    now = statistics_of(mr);
    must_equal(now.held_bytes + now.kept_bytes + now.free_bytes, 0);
    must_equal(now.allocations, now.deallocations);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* ---- stream order ---- */

/* Whether an allocation of that size on `stream`, of a few, gets bytes of the block. */
static bool can_get(weir_resource *mr, weir_stream stream, size_t bytes, void *wanted)
{
    void *out[8];
    bool got = false;
    for (size_t i = 0; i < 8; i++) {
        out[i] = take(mr, stream, bytes);
        got = got || ((uintptr_t)out[i] < (uintptr_t)wanted + bytes &&
                      (uintptr_t)out[i] + bytes > (uintptr_t)wanted);
    }
    for (size_t i = 0; i < 8; i++)
        give(mr, stream, out[i], bytes);
    return got;
}

static void nothing_is_reused_before_its_point(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(3));
    weir_stream a = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream b = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_resource *mr = jemalloc_over(device, "pinned");
    uint64_t gate;
    void *ptr = take(mr, a, 300 * KIB);
    must_ok(weir_emulated_stall(device, a, &gate));
    stamp(device, a, ptr, 300 * KIB, 1);
    give(mr, a, ptr, 300 * KIB);
    must_equal(statistics_of(mr).kept_bytes, 300 * KIB);
    must(!can_get(mr, b, 300 * KIB, ptr));
    must(!can_get(mr, a, 300 * KIB, ptr)); /* not even there */
    must_ok(weir_emulated_open_gate(device, gate));
    must_ok(weir_device_sync(device));
    bool got = false;
    for (int i = 0; i < 20 && !got; i++) {
        must_ok(weir_device_sync(device));
        got = can_get(mr, b, 300 * KIB, ptr);
    }
    must(got);
    weir_resource_unref(mr);
    end_stream(device, a);
    end_stream(device, b);
    close_emulated(device);
}

static void upstream_without_room_is_waited_with(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(4));
    weir_stream a = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_resource *mr = jemalloc_over(device, "limiting(9MiB)/system");
    for (uint64_t i = 0; i < 50; i++) { /* each but the first waits for the last one */
        void *ptr = take(mr, a, 5 * MIB);
        stamp(device, a, ptr, 5 * MIB, i);
        check_stamp(device, a, ptr, 5 * MIB, i);
        give(mr, a, ptr, 5 * MIB);
    }
    void *ptr = take(mr, a, 7 * MIB); /* that one's extent goes back first */
    stamp(device, a, ptr, 7 * MIB, 50);
    check_stamp(device, a, ptr, 7 * MIB, 50);
    give(mr, a, ptr, 7 * MIB);
    ptr = mr;
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(mr, a, 10 * MIB, 8, &ptr));
    must(ptr == NULL);
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    assert_string_equal(report.resource, "limiting");
    must_equal(statistics_of(mr).failures, 1);
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(mr, a, SIZE_MAX / 2, 8, &ptr));
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(mr, a, SIZE_MAX - 9, 8, &ptr));
    weir_resource_unref(mr);
    end_stream(device, a);
    close_emulated(device);
}

/* Small blocks next to each other, when the first extent is all there is. */
static void small_room_is_used_up(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(5));
    weir_resource *mr = jemalloc_over(device, "limiting(64KiB)/system");
    void *ptr = take(mr, NULL, 100); /* less than jemalloc likes to draw */
    give(mr, NULL, ptr, 100);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* Extents of an upstream whose memory is not usable at once are waited for. */
static void extents_are_everybodys(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(6));
    weir_stream a = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream b = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_resource *pool = NULL, *mr = NULL;
    must_ok(weir_resource_open(device, "pool(growth=64MiB)/pinned", &pool));
    must_ok(weir_jemalloc_create(pool, NULL, &mr));
    void *before = take(pool, a, 30 * MIB);
    stamp(device, a, before, 30 * MIB, 1);
    give(pool, a, before, 30 * MIB);
    void *first = take(mr, a, 100), *beside = take(mr, b, 100);
    stamp(device, b, beside, 100, 2);
    stamp(device, a, first, 100, 3);
    check_stamp(device, b, beside, 100, 2);
    weir_resource_unref(pool);
    weir_resource_unref(mr); /* two are out: both live on */
    give(mr, a, first, 100);
    give(mr, b, beside, 100);
    end_stream(device, a);
    end_stream(device, b);
    close_emulated(device);
}

static void captured_streams_get_nothing(void **state)
{
    (void)state;
    for (int declared = 0; declared < 2; declared++) {
        stage it = stage_on(open_stepped(support_seed(7)));
        weir_resource *mr = jemalloc_over(it.device, "pinned");
        weir_capture *capture = NULL;
        void *ptr = take(mr, it.s, 300 * KIB), *none = mr;
        raw_sync_stream(it.device, it.s);
        if (declared != 0)
            must_ok(weir_capture_begin(mr, it.s, &capture));
        graph_begin(&it);
        must_answer(WEIR_CAPTURING, weir_allocate(mr, it.s, 100, 8, &none));
        must(none == NULL);
        stamp(it.device, it.s, ptr, 300 * KIB, 1);
        give(mr, it.s, ptr, 300 * KIB);
        weir_emulated_graph *graph = graph_end(&it); /* not spoilt */
        if (declared != 0)
            must_ok(weir_capture_end(capture));
        if (declared != 0) /* else nobody knows that a graph may use what came back */
            graph_launch(&it, graph, it.s);
        must_ok(weir_device_sync(it.device));
        for (int i = 0; i < 10; i++) /* the graph may run again */
            must(!can_get(mr, it.t, 300 * KIB, ptr));
        (void)weir_resource_trim_sync(mr, 0);
        must(statistics_of(mr).kept_bytes >= 300 * KIB);
        if (declared != 0)
            graph_launch(&it, graph, it.s);
        must_ok(weir_capture_release(capture, it.s));
        graph_destroy(&it, graph);
        weir_resource_unref(mr); /* waits for the device */
        stage_close(&it);
    }
}

/* ---- threads ---- */

#define THREADS 3
#define SEEDS   20

typedef struct worker {
    weir_device *device;
    weir_resource *mr;
    weir_stream stream;
    uint64_t number;
} worker;

static void use_and_free(void *argument)
{
    const worker *self = argument;
    void *out[4] = { NULL };
    for (uint64_t i = 0; i < 24; i++) {
        size_t bytes = (i % 4 + 1) * 30 * KIB;
        uint64_t key = self->number * 1000 + i % 4;
        if (out[i % 4] != NULL) {
            check_stamp(self->device, self->stream, out[i % 4], bytes, key);
            give(self->mr, self->stream, out[i % 4], bytes);
        }
        out[i % 4] = take(self->mr, self->stream, bytes);
        stamp(self->device, self->stream, out[i % 4], bytes, key);
        if (i % 8 == 7)
            (void)weir_resource_trim_sync(self->mr, 0);
    }
    for (uint64_t i = 0; i < 4; i++)
        give(self->mr, self->stream, out[i], (i + 1) * 30 * KIB);
}

static void threads_hand_over_in_order(void **state)
{
    (void)state;
    for (uint64_t i = 0; i <= SEEDS; i++) {
        weir_device *device = i < SEEDS ? open_stepped(support_seed(i))
                                        : open_threads();
        worker workers[THREADS];
        void *arguments[THREADS];
        weir_resource *mr = jemalloc_over(device, "limiting(6MiB)/system");
        for (uint64_t j = 0; j < THREADS; j++) {
            workers[j] = (worker){ device, mr,
                                   make_stream(device, WEIR_STREAM_NON_BLOCKING), j };
            arguments[j] = &workers[j];
        }
        must_ok(support_run_threads(device, THREADS, use_and_free, arguments));
        for (size_t j = 0; j < THREADS; j++)
            end_stream(device, workers[j].stream);
        weir_resource_unref(mr);
        close_emulated(device);
    }
}

/* ---- failures ---- */

/* Ends the faults; returns how many calls were counted. */
static uint64_t end_faults(weir_device *device)
{
    uint64_t calls = weir_emulated_fault_calls(device) + weir__host_calls();
    plan_fault(device, NULL, 0, false, WEIR_OK);
    weir__host_fail_at(0, false);
    return calls;
}

static size_t bytes_of(size_t i)
{
    return i < 4 ? (i + 1) * 100 * KIB : 3 * MIB;
}

static void try_allocate(weir_device *device, weir_resource *mr, weir_stream stream,
                         size_t i, void **out)
{
    weir_resource_statistics before = statistics_of(mr);
    *out = mr;
    if (weir_allocate(mr, stream, bytes_of(i), 8, out) == WEIR_OK) {
        (void)try_stamp(device, stream, *out, bytes_of(i), i);
        return;
    }
    must(*out == NULL);
    must_equal(statistics_of(mr).out_bytes, before.out_bytes);
    must_equal(statistics_of(mr).failures, before.failures + 1);
}

/* Goes as far as it does, and gives all back. */
static uint64_t run_program(weir_device *device, weir_resource *upstream,
                            const weir_stream *streams)
{
    weir_resource *mr = NULL;
    if (weir_jemalloc_create(upstream, NULL, &mr) != WEIR_OK) {
        must(mr == NULL);
        return end_faults(device);
    }
    void *out[6];
    for (size_t i = 0; i < 6; i++) {
        try_allocate(device, mr, streams[i % 2], i, &out[i]);
        if (i % 3 == 0 && out[i] != NULL) {
            must(weir_deallocate(mr, streams[i % 2], out[i], bytes_of(i), 8));
            out[i] = NULL;
        }
        if (i == 3)
            (void)weir_resource_trim_sync(mr, 0);
    }
    for (size_t i = 0; i < 6; i++) {
        if (out[i] != NULL)
            must(weir_deallocate(mr, streams[i % 2], out[i], bytes_of(i), 8));
    }
    must_equal(statistics_of(mr).out_blocks, 0);
    uint64_t calls = end_faults(device);
    weir_resource_unref(mr);
    return calls;
}

static uint64_t run_under_fault(bool of_host, uint64_t nth, bool lasting)
{
    weir_device *device = open_stepped(support_seed(nth));
    weir_stream streams[2] = { make_stream(device, WEIR_STREAM_NON_BLOCKING),
                               make_stream(device, WEIR_STREAM_BLOCKING) };
    weir_resource *upstream;
    must_ok(weir_resource_open(device, "limiting(7MiB)/system", &upstream));
    must_ok(weir_stream_wait(device, streams[1], streams[0])); /* it has met both */
    weir__host_fail_at(of_host ? nth : 0, lasting);
    plan_fault(device, NULL, of_host ? 0 : nth, lasting, WEIR_DEVICE_ERROR);
    uint64_t calls = run_program(device, upstream, streams);
    weir_resource_unref(upstream);
    end_stream(device, streams[0]);
    end_stream(device, streams[1]);
    must_ok(weir_device_sync(device));
    (void)take_stamp_errors(); /* kernels may have been left out */
    if (of_host && weir_emulated_findings(device) > 0)
        close_anyhow(device); /* the ledger had no memory, and said so */
    else
        close_emulated(device);
    return calls;
}

static void every_failure_leaves_it_whole(void **state)
{
    (void)state;
    const uint64_t most = 70;
    for (uint64_t nth = 1; nth <= most; nth++) {
        (void)run_under_fault(false, nth, false);
        (void)run_under_fault(false, nth, true);
        (void)run_under_fault(true, nth, false);
        (void)run_under_fault(true, nth, true);
    }
    must(run_under_fault(true, 0, false) <= most); /* there are no more to fail */
    must(run_under_fault(false, SIZE_MAX, false) <= 2 * most);
}

static void lost_device_ends_without_a_wait(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(8));
    weir_resource *mr = jemalloc_over(device, "system");
    void *ptr = take(mr, NULL, 1000);
    void *other = take(mr, NULL, 2000);
    stamp(device, NULL, ptr, 1000, 1);
    give(mr, NULL, ptr, 1000);
    plan_fault(device, NULL, 1, true, WEIR_DEVICE_LOST);
    must_answer(WEIR_DEVICE_LOST, weir_device_sync(device));
    give(mr, NULL, other, 2000);
    must(weir_allocate(mr, NULL, 1000, 8, &ptr) != WEIR_OK);
    weir_resource_unref(mr);
    close_anyhow(device);
}

/* ---- misuse, and the rest ---- */

static void misuse_is_found(void **state)
{
    (void)state;
    misuse_log log;
    weir_device *device = open_stepped(support_seed(9));
    weir_resource *mr = jemalloc_over(device, "system");
    char *ptr = take(mr, NULL, 1000);
    misuse_begin(&log);
    must(!weir_deallocate(mr, NULL, ptr, 999, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, ptr);
    must(!weir_deallocate(mr, NULL, ptr, 1000, 8));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, ptr);
    must(!weir_deallocate(mr, NULL, ptr + 1, 1000, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, ptr + 1);
    must_equal(statistics_of(mr).out_blocks, 1);
    give(mr, NULL, ptr, 1000);
    must(!weir_deallocate(mr, NULL, ptr, 1000, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, ptr);
    misuse_end();
    must_equal(statistics_of(mr).deallocations, 1);
    weir_resource_unref(mr);
    close_emulated(device);
}

static void create_refuses(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(10));
    weir_resource *leaf, *host, *mr = NULL;
    must_ok(weir_resource_open(device, "device", &leaf));
    must_ok(weir_resource_open(device, "system", &host));
    must_answer(WEIR_NOT_SUPPORTED, weir_jemalloc_create(leaf, NULL, &mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_jemalloc_create(NULL, NULL, &mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_jemalloc_create(host, NULL, NULL));
    struct {
        weir_jemalloc_options known;
        size_t more;
    } options = { { .struct_size = 1 }, 0 };
    must_answer(WEIR_INVALID_ARGUMENT, weir_jemalloc_create(host, &options.known, &mr));
    options.known.struct_size = sizeof options;
    options.more = 1;
    must_answer(WEIR_NOT_SUPPORTED, weir_jemalloc_create(host, &options.known, &mr));
    must(mr == NULL);
    options.more = 0;
    must_ok(weir_jemalloc_create(host, &options.known, &mr));
    weir_resource_unref(mr);
    weir_resource_unref(leaf);
    weir_resource_unref(host);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_keep_their_malloc),
        cmocka_unit_test(text_can_name_it),
        cmocka_unit_test(memory_is_the_hosts_and_aligned),
        cmocka_unit_test(many_blocks_take_few_extents),
        cmocka_unit_test(nothing_is_reused_before_its_point),
        cmocka_unit_test(upstream_without_room_is_waited_with),
        cmocka_unit_test(small_room_is_used_up),
        cmocka_unit_test(extents_are_everybodys),
        cmocka_unit_test(captured_streams_get_nothing),
        cmocka_unit_test(threads_hand_over_in_order),
        cmocka_unit_test(every_failure_leaves_it_whole),
        cmocka_unit_test(lost_device_ends_without_a_wait),
        cmocka_unit_test(misuse_is_found),
        cmocka_unit_test(create_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
