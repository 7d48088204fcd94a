/* test_capture_gpu.c - memory of graphs that are captured with the runtime's own calls.
 *
 *     a   take p, write it --- fork --- gate, read p ------- join --- read q, give back
 *     b                          \ take q, write it, read it /
 *
 * The gate is closed at the first launch: meanwhile another stream takes all that the
 * pool has left, and writes it. */
#include <stdio.h>

#include "gpu/support_gpu.h"
#include "weir/weir.h"

#define BYTES  ((size_t)1 << 20)
#define BLOCKS 6

/* Grows by one block at a time, also while something is captured. */
#define POOL "pool(growth=1MiB, limit=6MiB)/device"

static const struct mode {
    const char *name;
    enum cudaStreamCaptureMode mode;
} modes[] = {
    { "global", cudaStreamCaptureModeGlobal },
    { "thread-local", cudaStreamCaptureModeThreadLocal },
    { "relaxed", cudaStreamCaptureModeRelaxed },
};
#define MODES (sizeof modes / sizeof modes[0])

typedef struct scene {
    weir_device *device;
    weir_resource *mr;
    weir_stream a, b, other, aside;
    cudaEvent_t forked, joined;
} scene;

static void scene_open(scene *s, const char *spec)
{
    s->device = open_threads();
    must_ok(weir_resource_open(s->device, spec, &s->mr));
    s->a = make_stream(s->device, WEIR_STREAM_NON_BLOCKING);
    s->b = make_stream(s->device, WEIR_STREAM_NON_BLOCKING);
    s->other = make_stream(s->device, WEIR_STREAM_NON_BLOCKING);
    s->aside = make_stream(s->device, WEIR_STREAM_NON_BLOCKING);
    must_cuda(cudaEventCreateWithFlags(&s->forked, cudaEventDisableTiming));
    must_cuda(cudaEventCreateWithFlags(&s->joined, cudaEventDisableTiming));
}

static void scene_close(scene *s)
{
    must_ok(weir_device_sync(s->device));
    must_cuda(cudaEventDestroy(s->forked));
    must_cuda(cudaEventDestroy(s->joined));
    weir_resource_unref(s->mr);
    end_stream(s->device, s->a);
    end_stream(s->device, s->b);
    end_stream(s->device, s->other);
    end_stream(s->device, s->aside);
    close_emulated(s->device);
}

static void must_be_captured_still(weir_stream stream)
{
    enum cudaStreamCaptureStatus state;
    must_cuda(cudaStreamIsCapturing(stream, &state));
    must_equal(state, cudaStreamCaptureStatusActive);
}

static void order_behind(cudaEvent_t event, weir_stream first, weir_stream second)
{
    must_cuda(cudaEventRecord(event, first));
    must_cuda(cudaStreamWaitEvent(second, event, 0));
}

/* ---- a declared capture ---- */

typedef struct captured {
    weir_capture *captures[2]; /* of a and b */
    void *p, *q;
    unsigned gate;
    cudaGraph_t graph;
    cudaGraphExec_t instance;
} captured;

/* Another thread makes the pool grow, which a global capture would forbid it. */
static void grow_elsewhere(void *argument)
{
    scene *s = argument;
    void *ptr = take(s->mr, s->other, BYTES);
    stamp(s->device, s->other, ptr, BYTES, 9);
    check_stamp(s->device, s->other, ptr, BYTES, 9);
    give(s->mr, s->other, ptr, BYTES);
}

static void capture_begin(scene *s, captured *it, enum cudaStreamCaptureMode mode)
{
    must_ok(weir_capture_begin(s->mr, s->a, &it->captures[0]));
    must_ok(weir_capture_begin(s->mr, s->b, &it->captures[1]));
    must_cuda(cudaStreamBeginCapture(s->a, mode));
}

static void capture_end(scene *s, captured *it)
{
    must_cuda(cudaStreamEndCapture(s->a, &it->graph));
    must(it->graph != NULL);
    must_ok(weir_capture_end(it->captures[0]));
    must_ok(weir_capture_end(it->captures[1]));
    must_cuda(cudaGraphInstantiate(&it->instance, it->graph, 0));
}

/* Everything in it is drawn from the device while the capture goes on. */
static void capture_work(scene *s, captured *it)
{
    void *const argument[] = { s };
    it->p = take(s->mr, s->a, BYTES);
    stamp(s->device, s->a, it->p, BYTES, 3);
    order_behind(s->forked, s->a, s->b);
    it->q = take(s->mr, s->b, BYTES);
    must(it->q != it->p);
    stamp(s->device, s->b, it->q, BYTES, 4);
    check_stamp(s->device, s->b, it->q, BYTES, 4);
    must_ok(support_run_threads(s->device, 1, grow_elsewhere, argument));
    must_be_captured_still(s->a);
    must_be_captured_still(s->b);
    it->gate = put_gate(s->a);
    check_stamp(s->device, s->a, it->p, BYTES, 3);
    order_behind(s->joined, s->b, s->a);
    check_stamp(s->device, s->a, it->q, BYTES, 4);
    give(s->mr, s->a, it->p, BYTES);
    void *again = take(s->mr, s->a, BYTES);
    must(again == it->p); /* its own comes back to it at once */
    stamp(s->device, s->a, again, BYTES, 5);
    check_stamp(s->device, s->a, again, BYTES, 5);
    give(s->mr, s->a, again, BYTES);
    give(s->mr, s->a, it->q, BYTES);
}

/* The rest of what the pool may hold; later it might wait for kernels. */
static void draw_the_rest(scene *s)
{
    void *blocks[BLOCKS - 2];
    for (size_t i = 0; i < BLOCKS - 2; i++)
        blocks[i] = take(s->mr, s->other, BYTES);
    for (size_t i = 0; i < BLOCKS - 2; i++)
        give(s->mr, s->other, blocks[i], BYTES);
}

/* Takes what is left, writes it, and gives it back: none of it the graph's. */
static void use_what_is_left(scene *s, const captured *it)
{
    void *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS - 2; i++) {
        blocks[i] = take(s->mr, s->other, BYTES);
        must(blocks[i] != it->p && blocks[i] != it->q);
        stamp(s->device, s->other, blocks[i], BYTES, 100 + i);
    }
    void *none;
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(s->mr, s->other, BYTES, WEIR_ALIGNMENT, &none));
    for (size_t i = 0; i < BLOCKS - 2; i++) {
        check_stamp(s->device, s->other, blocks[i], BYTES, 100 + i);
        give(s->mr, s->other, blocks[i], BYTES);
    }
}

/* All blocks can be had again, and the first who gets the graph's waits for it. */
static void release(scene *s, captured *it, weir_stream last)
{
    must_ok(weir_capture_release(it->captures[0], last));
    must_ok(weir_capture_release(it->captures[1], last));
    must_cuda(cudaGraphExecDestroy(it->instance));
    must_cuda(cudaGraphDestroy(it->graph));
    void *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = take(s->mr, s->other, BYTES);
        stamp(s->device, s->other, blocks[i], BYTES, 200 + i);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        check_stamp(s->device, s->other, blocks[i], BYTES, 200 + i);
        give(s->mr, s->other, blocks[i], BYTES);
    }
}

static void a_graph_keeps_its_memory(void **state)
{
    const struct mode *mode = *state;
    scene s;
    captured it;
    scene_open(&s, POOL);
    capture_begin(&s, &it, mode->mode);
    capture_work(&s, &it);
    capture_end(&s, &it);
    draw_the_rest(&s);
    must_cuda(cudaGraphLaunch(it.instance, s.a));
    let_others_run(s.aside);
    use_what_is_left(&s, &it);
    must_ok(weir_stream_sync(s.device, s.other)); /* waits for no graph */
    open_gate(it.gate);
    must_cuda(cudaGraphLaunch(it.instance, s.a));
    use_what_is_left(&s, &it);
    release(&s, &it, s.a);
    scene_close(&s);
}

/* The stream that the graph is launched on need not be one that it was captured on;
 * the memory goes to others behind its last launch. */
static void memory_of_a_graph_waits_for_its_last_launch(void **state)
{
    (void)state;
    scene s;
    captured it;
    scene_open(&s, POOL);
    capture_begin(&s, &it, cudaStreamCaptureModeGlobal);
    capture_work(&s, &it);
    capture_end(&s, &it);
    draw_the_rest(&s);
    weir_stream launching = make_stream(s.device, WEIR_STREAM_NON_BLOCKING);
    must_cuda(cudaGraphLaunch(it.instance, launching));
    must_ok(weir_capture_release(it.captures[0], launching));
    must_ok(weir_capture_release(it.captures[1], launching));
    void *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = take(s.mr, s.other, BYTES);
        stamp(s.device, s.other, blocks[i], BYTES, i);
    }
    must_be_waiting(s.device, s.other, s.aside);
    open_gate(it.gate);
    for (size_t i = 0; i < BLOCKS; i++) {
        check_stamp(s.device, s.other, blocks[i], BYTES, i);
        give(s.mr, s.other, blocks[i], BYTES);
    }
    must_ok(weir_device_sync(s.device));
    must_cuda(cudaGraphExecDestroy(it.instance));
    must_cuda(cudaGraphDestroy(it.graph));
    end_stream(s.device, launching);
    scene_close(&s);
}

/* What the driver's own pool gave in a capture goes back to it with the release. */
static void memory_of_the_drivers_pool_stays_with_a_graph(void **state)
{
    (void)state;
    scene s;
    captured it;
    void *blocks[BLOCKS];
    scene_open(&s, "async");
    capture_begin(&s, &it, cudaStreamCaptureModeGlobal);
    it.p = take(s.mr, s.a, BYTES);
    stamp(s.device, s.a, it.p, BYTES, 3);
    it.gate = put_gate(s.a);
    check_stamp(s.device, s.a, it.p, BYTES, 3);
    give(s.mr, s.a, it.p, BYTES);
    capture_end(&s, &it);
    must_cuda(cudaGraphLaunch(it.instance, s.a));
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = take(s.mr, s.other, BYTES);
        must(blocks[i] != it.p);
        stamp(s.device, s.other, blocks[i], BYTES, i);
    }
    must_ok(weir_stream_sync(s.device, s.other)); /* waits for no graph */
    open_gate(it.gate);
    must_cuda(cudaGraphLaunch(it.instance, s.a));
    for (size_t i = 0; i < BLOCKS; i++) {
        check_stamp(s.device, s.other, blocks[i], BYTES, i);
        give(s.mr, s.other, blocks[i], BYTES);
    }
    release(&s, &it, s.a);
    scene_close(&s);
}

/* ---- captures that nobody declared ---- */

static void undeclared_begin(weir_stream stream, const struct mode *mode)
{
    must_cuda(cudaStreamBeginCapture(stream, mode->mode));
    must_be_captured_still(stream);
}

static void undeclared_end(weir_stream stream)
{
    cudaGraph_t graph;
    must_be_captured_still(stream);
    must_cuda(cudaStreamEndCapture(stream, &graph));
    must(graph != NULL);
    must_cuda(cudaGraphDestroy(graph));
}

/* What would need a call on the stream is refused, and the capture goes on. */
static void an_undeclared_capture_is_refused(void **state)
{
    scene s;
    void *none;
    bool done;
    scene_open(&s, "pool(initial=1MiB, limit=1MiB)/device");
    void *ptr = take(s.mr, s.b, BYTES);
    unsigned gate = put_gate(s.b);
    stamp(s.device, s.b, ptr, BYTES, 1);
    give(s.mr, s.b, ptr, BYTES);
    undeclared_begin(s.a, *state);
    must_answer(WEIR_CAPTURING,
                weir_allocate(s.mr, s.a, BYTES, WEIR_ALIGNMENT, &none));
    must_answer(WEIR_CAPTURING, weir_stream_query(s.device, s.a, &done));
    must_answer(WEIR_CAPTURING, weir_stream_sync(s.device, s.a));
    must_answer(WEIR_CAPTURING, weir_stream_wait(s.device, s.b, s.a));
    must_answer(WEIR_CAPTURING, weir_device_sync(s.device));
    undeclared_end(s.a);
    open_gate(gate);
    ptr = take(s.mr, s.a, BYTES);
    stamp(s.device, s.a, ptr, BYTES, 2);
    check_stamp(s.device, s.a, ptr, BYTES, 2);
    give(s.mr, s.a, ptr, BYTES);
    scene_close(&s);
}

/* On a stream that Weir does not know each free records an event, which in a capture
 * would be the graph's: the block is set aside until the device was waited for. */
static void a_free_in_an_undeclared_capture_leaves_it_valid(void **state)
{
    scene s;
    weir_stream unknown;
    void *none;
    scene_open(&s, "pool(initial=1MiB, limit=1MiB)/device");
    must_cuda(cudaStreamCreateWithFlags(&unknown, cudaStreamNonBlocking));
    void *ptr = take(s.mr, unknown, BYTES);
    stamp(s.device, unknown, ptr, BYTES, 1);
    undeclared_begin(unknown, *state);
    give(s.mr, unknown, ptr, BYTES);
    must(weir_allocate(s.mr, s.b, BYTES, WEIR_ALIGNMENT, &none) != WEIR_OK);
    undeclared_end(unknown);
    must_ok(weir_device_sync(s.device));
    grow_elsewhere(&s);
    must_cuda(cudaStreamDestroy(unknown));
    scene_close(&s);
}

int main(void)
{
    static struct CMUnitTest tests[3 * MODES + 2];
    static char names[3 * MODES][80];
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } in_each_mode[] = {
        { "a graph keeps its memory", a_graph_keeps_its_memory },
        { "an undeclared capture is refused", an_undeclared_capture_is_refused },
        { "a free in an undeclared capture leaves it valid",
          a_free_in_an_undeclared_capture_leaves_it_valid },
    };
    for (size_t i = 0; i < 3 * MODES; i++) {
        const struct mode *mode = &modes[i % MODES];
        snprintf(names[i], sizeof names[i], "%s: %s", mode->name,
                 in_each_mode[i / MODES].name);
        tests[i] = (struct CMUnitTest){ names[i], in_each_mode[i / MODES].run, NULL,
                                        NULL, (void *)(uintptr_t)mode };
    }
    tests[3 * MODES] = (struct CMUnitTest)
        cmocka_unit_test(memory_of_a_graph_waits_for_its_last_launch);
    tests[3 * MODES + 1] = (struct CMUnitTest)
        cmocka_unit_test(memory_of_the_drivers_pool_stays_with_a_graph);
    return _cmocka_run_group_tests("captures", tests, 3 * MODES + 2, NULL, NULL);
}
