/* test_graph_memory.c - a resource's memory in graphs: declared captures over two
 * streams that fork and join, launched while others take from the same resource; what
 * a capture may hand out again; and captures that nobody declared, which no call
 * spoils. */
#include <string.h>

#include "support_pool.h"
#include "support_scene.h"
#include "support_work.h"

/* ---- a graph over a resource ---- */

#define BLOCK   (64 * KIB)
#define NUMBERS ((int)(BLOCK / sizeof(uint64_t)))
#define OTHERS  64

/*     s   p = 2x   record ----------- wait   r = p + q   y += r
 *     t              wait   q = p + 1   record
 */
typedef struct rig {
    weir_device *device;
    weir_resource *mr;
    bool is_pool;            /* of 2 MiB, which all want */
    weir_stream s, t, other;
    weir_event es, et;
    uint64_t *seen;          /* host memory */
    void *x, *y;             /* from outside of the captures */
    void *inside[4];         /* p, q, r and what s takes then */
    weir_capture *on_s, *on_t;
    weir_emulated_graph *graph;
} rig;

/* Null: the pool. */
static void rig_open(rig *it, const char *spec, weir_emulated_scheduler scheduler,
                     uint64_t seed)
{
    *it = (rig){ .device = open_emulated(scheduler, seed), .is_pool = spec == NULL };
    if (it->is_pool)
        it->mr = open_pool(open_leaf(it->device), MIB, 2 * MIB, MIB);
    else
        must_ok(weir_resource_open(it->device, spec, &it->mr));
    it->s = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    it->t = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    it->other = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    it->es = raw_event(it->device);
    it->et = raw_event(it->device);
    void *seen;
    must_ok(weir__host_malloc(it->device, BLOCK, 256, &seen));
    it->seen = seen;
    it->x = take(it->mr, it->s, BLOCK);
    it->y = take(it->mr, it->s, BLOCK);
    must_ok(weir_fill(it->device, it->s, it->y, 0, BLOCK));
}

static void rig_close(rig *it)
{
    give(it->mr, it->s, it->x, BLOCK);
    give(it->mr, it->s, it->y, BLOCK);
    raw_event_end(it->device, it->es);
    raw_event_end(it->device, it->et);
    must_ok(weir_device_sync(it->device));
    must_ok(weir__host_free_device(it->device, it->seen));
    end_stream(it->device, it->s);
    end_stream(it->device, it->t);
    end_stream(it->device, it->other);
    weir_resource_unref(it->mr);
    close_emulated(it->device);
}

static void twice(void *argument, void *const views[])
{
    uint64_t *to = views[0];
    const uint64_t *from = views[1];
    (void)argument;
    for (int i = 0; i < NUMBERS; i++)
        to[i] = 2 * from[i];
}

static void one_more(void *argument, void *const views[])
{
    uint64_t *to = views[0];
    const uint64_t *from = views[1];
    (void)argument;
    for (int i = 0; i < NUMBERS; i++)
        to[i] = from[i] + 1;
}

static void add(void *argument, void *const views[])
{
    uint64_t *to = views[0];
    const uint64_t *a = views[1], *b = views[2];
    (void)argument;
    for (int i = 0; i < NUMBERS; i++)
        to[i] = a[i] + b[i];
}

static void put(rig *it, weir_stream stream, weir_emulated_kernel kernel, void *to,
                void *a, void *b)
{
    const weir_emulated_range ranges[] = { { to, BLOCK, WEIR_EMULATED_WRITE },
                                           { a, BLOCK, WEIR_EMULATED_READ },
                                           { b, BLOCK, WEIR_EMULATED_READ } };
    must_ok(weir_emulated_launch(it->device, stream, kernel, NULL, ranges,
                                 b != NULL ? 3 : 2));
}

/* Captures the graph above. p goes back on the stream that it came from, q on the other
 * one, and r only when the capture has ended. */
static void capture(rig *it)
{
    must_ok(weir_capture_begin(it->mr, it->s, &it->on_s));
    must_ok(weir_capture_begin(it->mr, it->t, &it->on_t));
    must_ok(weir_emulated_capture_begin(it->device, it->s));

    void *p = take(it->mr, it->s, BLOCK);
    put(it, it->s, twice, p, it->x, NULL);
    must_ok(weir_event_record(it->device, it->s, it->es));
    must_ok(weir_stream_wait_event(it->device, it->t, it->es));
    void *q = take(it->mr, it->t, BLOCK);
    put(it, it->t, one_more, q, p, NULL);
    must_ok(weir_event_record(it->device, it->t, it->et));
    must_ok(weir_stream_wait_event(it->device, it->s, it->et));
    void *r = take(it->mr, it->s, BLOCK);
    must(r != p && r != q);
    put(it, it->s, add, r, p, q);
    give(it->mr, it->s, q, BLOCK);
    give(it->mr, it->s, p, BLOCK);
    void *again = take(it->mr, it->s, BLOCK);
    must(again != q && (again == p || !it->is_pool)); /* it was s that gave p out */
    put(it, it->s, add, again, r, it->y);
    must_ok(weir_copy(it->device, it->s, it->y, again, BLOCK));
    give(it->mr, it->s, again, BLOCK);

    must_ok(weir_emulated_capture_end_graph(it->device, it->s, &it->graph));
    must_ok(weir_capture_end(it->on_s));
    must_ok(weir_capture_end(it->on_t));
    give(it->mr, it->other, r, BLOCK);
    memcpy(it->inside, (void *[]){ p, q, r, again }, sizeof it->inside);
}

static bool overlap(const void *a, const void *b)
{
    uintptr_t first = (uintptr_t)a, second = (uintptr_t)b;
    return first < second + BLOCK && second < first + BLOCK;
}

/* Others take all that they can get, or some where that is a lot, use it and give it
 * back. Answers how much. */
static int take_all(rig *it)
{
    void *blocks[OTHERS];
    int count = 0, most = it->is_pool ? OTHERS : OTHERS / 8;
    while (count < most && weir_allocate(it->mr, it->other, BLOCK, WEIR_ALIGNMENT,
                                         &blocks[count]) == WEIR_OK)
        count++;
    must(count > 0 && (count < most || !it->is_pool));
    for (int i = 0; i < count; i++) {
        for (int j = 0; it->on_s != NULL && j < 4; j++)
            must(!overlap(blocks[i], it->inside[j]));
        stamp(it->device, it->other, blocks[i], BLOCK, (uint64_t)i);
        check_stamp(it->device, it->other, blocks[i], BLOCK, (uint64_t)i);
        give(it->mr, it->other, blocks[i], BLOCK);
    }
    return count;
}

/* y has become `number`. */
static void must_see(rig *it, uint64_t number)
{
    must_ok(weir__copy(it->device, it->s, it->seen, it->y, BLOCK));
    must_ok(weir_stream_sync(it->device, it->s));
    for (int i = 0; i < NUMBERS; i++)
        must_equal(it->seen[i], number);
}

static void serve(const char *spec, weir_emulated_scheduler scheduler, uint64_t seed)
{
    rig it;
    rig_open(&it, spec, scheduler, seed);
    capture(&it);
    int before = take_all(&it);
    uint64_t y = 0;
    for (uint64_t x = 0; x < 3; x++) {
        must_ok(weir_fill(it.device, it.s, it.x, (uint8_t)x, BLOCK));
        must_ok(weir_emulated_graph_launch(it.device, it.graph, it.s));
        must_equal(take_all(&it), before);
        y += 4 * x * UINT64_C(0x0101010101010101) + 1;
        if (x != 1) /* of two in a row nobody waits for the first */
            must_see(&it, y);
    }
    must_ok(weir_emulated_graph_destroy(it.device, it.graph));
    must_ok(weir_stream_wait(it.device, it.s, it.other)); /* on which r went back */
    must_ok(weir_capture_release(it.on_s, it.s));
    must_ok(weir_capture_release(it.on_t, it.s));
    it.on_s = it.on_t = NULL;
    must_equal(take_all(&it), before + (it.is_pool ? 3 : 0));
    rig_close(&it);
}

static void resources_serve_graphs(void **state)
{
    (void)state;
    static const char *const specs[] = { NULL, "device", "managed", "pinned", "async",
                                         "pool/device", "pool/async",
                                         "fixed_size(64KiB)/device", "binning/device" };
    uint64_t seeds = support_bound("test_graph_memory.seeds", 20, 500);
    for (size_t of = 0; of < sizeof specs / sizeof specs[0]; of++) {
        for (uint64_t i = 0; i < (of == 0 ? seeds : seeds / 5); i++)
            serve(specs[of], WEIR_EMULATED_STEPPED, support_seed(i));
        for (int i = 0; i < 3; i++)
            serve(specs[of], WEIR_EMULATED_THREADS, 0);
    }
}

/* ---- what a capture may hand out again ---- */

/* How the block of a capture of `it->a` comes back. */
typedef void (*way_back)(scene *it, void *ptr);

static void in_another_capture(scene *it, void *ptr)
{
    weir_capture *other;
    must_ok(weir_capture_begin(it->pool, it->b, &other));
    give(it->pool, it->b, ptr, SIZE);
    must_ok(weir_capture_release(other, it->d));
}

static void on_a_stream_that_joined(scene *it, void *ptr)
{
    give(it->pool, it->c, ptr, SIZE); /* and nobody has declared it */
}

static void on_an_unknown_stream(scene *it, void *ptr)
{
    weir_stream stream = raw_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    give(it->pool, stream, ptr, SIZE);
    must_ok(weir_stream_wait(it->device, it->d, stream));
    raw_stream_end(it->device, stream);
}

static void behind_a_point(scene *it, void *ptr)
{
    weir_point point;
    must_ok(weir_point_here(it->device, it->d, &point));
    must(weir_deallocate_after(it->pool, ptr, SIZE, WEIR_ALIGNMENT, &point, 1));
}

/* Nothing says that the captured stream is behind what used it there. */
static void what_comes_back_elsewhere_waits_for_the_release(void **state)
{
    (void)state;
    static const way_back all[] = { in_another_capture, on_a_stream_that_joined,
                                    on_an_unknown_stream, behind_a_point };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        scene it = scene_open(false);
        scene_make_streams(&it);
        weir_capture *capture;
        weir_event event = raw_event(it.device);
        must_ok(weir_capture_begin(it.pool, it.a, &capture));
        must_ok(weir_emulated_capture_begin(it.device, it.a));
        raw_record(it.device, event, it.a);
        raw_wait_event(it.device, it.c, event);
        void *other, *x = take(it.pool, it.a, SIZE);
        all[i](&it, x);
        must_answer(WEIR_LIMIT_REACHED,
                    weir_allocate(it.pool, it.a, SIZE, WEIR_ALIGNMENT, &other));
        must_answer(WEIR_LIMIT_REACHED,
                    weir_allocate(it.pool, it.d, SIZE, WEIR_ALIGNMENT, &other));
        raw_record(it.device, event, it.c);
        raw_wait_event(it.device, it.a, event);
        must_ok(weir_emulated_capture_end(it.device, it.a, NULL));
        must_ok(weir_capture_release(capture, it.d));
        must(take(it.pool, it.d, SIZE) == x);
        give(it.pool, it.d, x, SIZE);
        raw_event_end(it.device, event);
        scene_close(&it);
    }
}

/* ---- captures that nobody declared ---- */

/* All that would do something with a stream that is captured, or be a barrier to it. */
static void try_everything(scene *it, weir_stream captured)
{
    bool done;
    void *ptr;
    weir_point point;
    must_answer(WEIR_CAPTURING,
                weir_allocate(it->pool, captured, SIZE, WEIR_ALIGNMENT, &ptr));
    must_answer(WEIR_CAPTURING, weir_stream_wait(it->device, captured, it->a));
    must_answer(WEIR_CAPTURING, weir_stream_wait(it->device, it->a, captured));
    must_ok(weir_point_here(it->device, it->a, &point));
    must_answer(WEIR_CAPTURING, weir_stream_wait_point(it->device, captured, point));
    must_answer(WEIR_CAPTURING, weir_stream_sync(it->device, captured));
    must_answer(WEIR_CAPTURING,
                weir_copy_sync(it->device, captured, &ptr, &done, sizeof done));
    must_answer(WEIR_CAPTURING, weir_stream_query(it->device, captured, &done));
    must_answer(WEIR_CAPTURING, weir_stream_retire(it->device, captured));
    must_answer(WEIR_CAPTURING, weir_stream_destroy(it->device, captured));
    must_answer(WEIR_CAPTURING, weir_device_sync(it->device));
}

/* The stream is the origin, or one that joined; known to Weir either way. */
static void undeclared(bool joins)
{
    static work_log log;
    work_log_begin(&log);
    scene it = scene_open(false);
    scene_make_streams(&it);
    weir_event event = raw_event(it.device);
    weir_stream captured = joins ? it.c : it.b;
    void *x = take(it.pool, it.a, SIZE);
    stamp(it.device, it.a, x, SIZE, 1);
    uint64_t gate = raw_stall(it.device, it.a); /* x is not done before */
    give(it.pool, it.a, x, SIZE);

    must_ok(weir_emulated_capture_begin(it.device, it.b));
    work_put(it.device, it.b, &log, '1');
    raw_record(it.device, event, it.b);
    raw_wait_event(it.device, it.c, event);
    try_everything(&it, captured);
    raw_open_gate(it.device, gate);
    work_put(it.device, it.c, &log, '2');
    raw_record(it.device, event, it.c);
    raw_wait_event(it.device, it.b, event);
    weir_emulated_graph *graph;
    must_ok(weir_emulated_capture_end_graph(it.device, it.b, &graph));

    must_ok(weir_emulated_graph_launch(it.device, graph, it.b));
    must_ok(weir_stream_sync(it.device, it.b));
    must_have_run(&log, "12");
    must_ok(weir_emulated_graph_destroy(it.device, graph));
    must(take(it.pool, captured, SIZE) == x); /* a stream as any other again */
    give(it.pool, captured, x, SIZE);
    raw_event_end(it.device, event);
    scene_close(&it);
}

static void undeclared_captures_are_left_intact(void **state)
{
    (void)state;
    undeclared(false);
    undeclared(true);
}

/* What is given back on a captured stream that nobody declared can have no event.
 * Nobody else gets it before one can be recorded. */
static void frees_leave_undeclared_captures_intact(void **state)
{
    (void)state;
    for (int is_known = 0; is_known < 2; is_known++) {
        scene it = scene_open(true);
        scene_make_streams(&it);
        weir_stream unknown = raw_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        weir_stream stream = is_known ? it.b : unknown;
        size_t captured;
        void *other, *x = take(it.pool, stream, SIZE);
        stamp(it.device, stream, x, SIZE, 1);
        must_ok(weir_emulated_capture_begin(it.device, stream));
        give(it.pool, stream, x, SIZE);
        must(weir_allocate(it.pool, it.a, SIZE, WEIR_ALIGNMENT, &other) != WEIR_OK);
        must_ok(weir_emulated_capture_end(it.device, stream, &captured));
        must_equal(captured, 0);
        must_ok(weir_device_sync(it.device));
        must(take(it.pool, it.a, SIZE) == x);
        give(it.pool, it.a, x, SIZE);
        raw_stream_end(it.device, unknown);
        scene_close(&it);
    }
}

/* Nor goes upstream, for nobody could wait for it there, what has no event because none
 * could be recorded. */
static void frees_without_an_event_go_nowhere(void **state)
{
    (void)state;
    scene it = scene_open(true);
    scene_make_streams(&it);
    weir_stream unknown = raw_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    void *other, *x = take(it.pool, unknown, SIZE);
    stamp(it.device, unknown, x, SIZE, 1);
    plan_fault(it.device, "event_record", 1, true, WEIR_DEVICE_ERROR);
    give(it.pool, unknown, x, SIZE);
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    must(weir_allocate(it.pool, it.a, SIZE, WEIR_ALIGNMENT, &other) != WEIR_OK);
    must_ok(weir_device_sync(it.device));
    must(take(it.pool, it.a, SIZE) == x);
    give(it.pool, it.a, x, SIZE);
    raw_stream_end(it.device, unknown);
    scene_close(&it);
}

/* A record on the legacy stream would be a barrier to a captured blocking one. */
static void legacy_stream_waits_for_captures_of_blocking_ones(void **state)
{
    (void)state;
    scene it = scene_open(false);
    scene_make_streams(&it);
    weir_stream blocking = make_stream(it.device, WEIR_STREAM_BLOCKING);
    size_t captured;
    void *other, *x = take(it.pool, NULL, SIZE);
    stamp(it.device, NULL, x, SIZE, 1);
    give(it.pool, NULL, x, SIZE);
    must_ok(weir_emulated_capture_begin(it.device, blocking));
    must_answer(WEIR_CAPTURING,
                weir_allocate(it.pool, it.a, SIZE, WEIR_ALIGNMENT, &other));
    must_answer(WEIR_CAPTURING, weir_stream_wait(it.device, it.a, NULL));
    must_answer(WEIR_CAPTURING, weir_stream_sync(it.device, NULL));
    must_answer(WEIR_CAPTURING, weir_device_sync(it.device));
    must_ok(weir_emulated_capture_end(it.device, blocking, &captured));
    must(take(it.pool, it.a, SIZE) == x);
    give(it.pool, it.a, x, SIZE);
    end_stream(it.device, blocking);
    scene_close(&it);
}

/* The graph's memory is the resource's again. */
static void graph_is_not_launched_behind_a_release(void **state)
{
    (void)state;
    static const char *const specs[] = { "pool/device", "arena/device", "device",
                                         "async", "pool/pinned" };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        weir_device *device = open_stepped(support_seed(i));
        weir_stream s = make_stream(device, WEIR_STREAM_NON_BLOCKING);
        weir_resource *mr;
        weir_capture *capture;
        weir_emulated_graph *graph;
        must_ok(weir_resource_open(device, specs[i], &mr));
        must_ok(weir_capture_begin(mr, s, &capture));
        must_ok(weir_emulated_capture_begin(device, s));
        void *ptr = take(mr, s, BLOCK);
        must_ok(weir_fill(device, s, ptr, 1, BLOCK));
        give(mr, s, ptr, BLOCK);
        must_ok(weir_emulated_capture_end_graph(device, s, &graph));
        must_ok(weir_capture_end(capture));
        for (int launch = 0; launch < 2; launch++)
            must_ok(weir_emulated_graph_launch(device, graph, s));
        must_be_quiet(device);
        must_ok(weir_capture_release(capture, s));
        must_be_quiet(device);
        must_ok(weir_emulated_graph_launch(device, graph, s));
        must_equal(weir_emulated_findings(device), 1);
        must_ok(weir_device_sync(device));
        end_stream(device, s);
        weir_resource_unref(mr);
        close_anyhow(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resources_serve_graphs),
        cmocka_unit_test(what_comes_back_elsewhere_waits_for_the_release),
        cmocka_unit_test(undeclared_captures_are_left_intact),
        cmocka_unit_test(frees_leave_undeclared_captures_intact),
        cmocka_unit_test(frees_without_an_event_go_nowhere),
        cmocka_unit_test(legacy_stream_waits_for_captures_of_blocking_ones),
        cmocka_unit_test(graph_is_not_launched_behind_a_release),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
