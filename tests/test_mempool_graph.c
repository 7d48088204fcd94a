/* test_mempool_graph.c - pools of the emulated device on a stream that is captured:
 * what is allocated there belongs to the graph. */
#include <string.h>

#include "internal.h"
#include "support_mempool.h"

typedef struct scene {
    weir_device *device;
    size_t free_bytes; /* before anything was drawn */
    weir_stream a;
    weir_stream b;
    weir_mempool pool;
} scene;

static void scene_begin(scene *self)
{
    self->device = open_stepped(0);
    self->free_bytes = device_free_bytes(self->device);
    self->a = raw_stream(self->device, WEIR_STREAM_NON_BLOCKING);
    self->b = raw_stream(self->device, WEIR_STREAM_NON_BLOCKING);
    self->pool = make_pool(self->device, SAME, EVERYTHING);
}

static void scene_end(scene *self)
{
    end_pool(self->device, self->pool);
    raw_stream_end(self->device, self->a);
    raw_stream_end(self->device, self->b);
    close_emulated(self->device);
}

static void capture(scene *self)
{
    must_ok(weir_emulated_capture_begin(self->device, self->a));
}

static weir_emulated_graph *captured(scene *self)
{
    weir_emulated_graph *graph;
    must_ok(weir_emulated_capture_end_graph(self->device, self->a, &graph));
    return graph;
}

static void launch(scene *self, weir_emulated_graph *graph, weir_stream stream)
{
    must_ok(weir_emulated_graph_launch(self->device, graph, stream));
}

static void destroy(scene *self, weir_emulated_graph *graph)
{
    must_ok(weir_emulated_graph_destroy(self->device, graph));
}

/* Allocated, written, read and freed in the graph; launched often. */
static void memory_lives_in_the_graph(void **state)
{
    (void)state;
    scene self;
    unsigned char got[2] = { 0 };
    scene_begin(&self);
    capture(&self);
    unsigned char *ptr = draw(self.device, self.pool, self.a, CHUNK);
    must_ok(weir__fill(self.device, self.a, ptr, 5, CHUNK));
    must_ok(weir__copy(self.device, self.a, got, ptr + CHUNK - 1, 1));
    back(self.device, self.a, ptr);
    weir_emulated_graph *graph = captured(&self);
    must_hold(self.device, self.pool, 0, 0);
    must_equal(device_free_bytes(self.device), self.free_bytes - CHUNK);
    for (int turn = 0; turn < 3; turn++) {
        got[0] = 0;
        launch(&self, graph, turn == 1 ? self.b : self.a);
        must_ok(weir__device_sync(self.device));
        must_equal(got[0], 5);
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir__mempool_free(self.device, self.a, ptr));
        must_equal(device_free_bytes(self.device), self.free_bytes - CHUNK);
    }
    destroy(&self, graph);
    must_equal(device_free_bytes(self.device), self.free_bytes);
    scene_end(&self);
}

/* Allocated in the graph, freed behind it, on another stream. */
static void memory_can_outlive_the_launch(void **state)
{
    (void)state;
    scene self;
    unsigned char got = 0;
    scene_begin(&self);
    capture(&self);
    unsigned char *ptr = draw(self.device, self.pool, self.a, CHUNK);
    must_ok(weir__fill(self.device, self.a, ptr, 6, CHUNK));
    weir_emulated_graph *graph = captured(&self);
    must_answer(WEIR_INVALID_ARGUMENT, weir__mempool_free(self.device, self.a, ptr));
    for (int turn = 0; turn < 2; turn++) {
        launch(&self, graph, self.b);
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir_emulated_graph_launch(self.device, graph, self.b));
        must_equal(weir_last_error().native_code, 1);
        must_ok(weir__copy(self.device, self.b, &got, ptr, 1));
        back(self.device, self.b, ptr);
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir__mempool_free(self.device, self.b, ptr));
    }
    raw_sync_stream(self.device, self.b);
    must_equal(got, 6);
    must_equal(device_free_bytes(self.device), self.free_bytes - CHUNK);
    destroy(&self, graph);
    must_equal(device_free_bytes(self.device), self.free_bytes);
    scene_end(&self);
}

/* A graph that goes leaves its memory with who has it, until that is freed and done. */
static void memory_can_outlive_the_graph(void **state)
{
    (void)state;
    scene self;
    unsigned char got = 0;
    scene_begin(&self);
    capture(&self);
    unsigned char *ptr = draw(self.device, self.pool, self.a, CHUNK);
    must_ok(weir__fill(self.device, self.a, ptr, 6, CHUNK));
    weir_emulated_graph *graph = captured(&self);
    launch(&self, graph, self.a);
    destroy(&self, graph);
    raw_sync_stream(self.device, self.a);
    must_equal(device_free_bytes(self.device), self.free_bytes - CHUNK);
    must_ok(weir__copy(self.device, self.a, &got, ptr, 1));
    back(self.device, self.a, ptr);
    must_equal(device_free_bytes(self.device), self.free_bytes - CHUNK);
    raw_sync_stream(self.device, self.a);
    must_equal(got, 6);
    must_equal(device_free_bytes(self.device), self.free_bytes);
    scene_end(&self);
}

/* What was launched still runs when the graph goes. */
static void memory_waits_for_what_runs(void **state)
{
    (void)state;
    scene self;
    scene_begin(&self);
    capture(&self);
    unsigned char *ptr = draw(self.device, self.pool, self.a, CHUNK);
    must_ok(weir__fill(self.device, self.a, ptr, 6, CHUNK));
    back(self.device, self.a, ptr);
    weir_emulated_graph *graph = captured(&self);
    uint64_t gate = raw_stall(self.device, self.a);
    launch(&self, graph, self.a);
    destroy(&self, graph);
    step_all(self.device);
    must_equal(device_free_bytes(self.device), self.free_bytes - CHUNK);
    raw_open_gate(self.device, gate);
    raw_sync_stream(self.device, self.a);
    must_equal(device_free_bytes(self.device), self.free_bytes);
    scene_end(&self);
}

static void forgotten_capture_returns_all(void **state)
{
    (void)state;
    scene self;
    size_t count;
    scene_begin(&self);
    capture(&self);
    (void)draw(self.device, self.pool, self.a, CHUNK);
    must_ok(weir_emulated_capture_end(self.device, self.a, &count));
    must_equal(count, 1);
    must_equal(device_free_bytes(self.device), self.free_bytes);
    scene_end(&self);
}

static void other_memory_is_not_freed_in_a_capture(void **state)
{
    (void)state;
    scene self;
    bool capturing;
    scene_begin(&self);
    char *ordinary = draw(self.device, self.pool, self.a, CHUNK);
    capture(&self);
    char *first = draw(self.device, self.pool, self.a, CHUNK);
    weir_emulated_graph *one = captured(&self);
    launch(&self, one, self.b);
    capture(&self);
    char *ptr = draw(self.device, self.pool, self.a, CHUNK);
    char *wrong[] = { ordinary, first, ptr + 512 };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir__mempool_free(self.device, self.a, wrong[i]));
        must_equal(weir_last_error().native_code, 1);
    }
    must_answer(WEIR_INVALID_ARGUMENT, weir__mempool_free(self.device, self.b, ptr));
    back(self.device, self.a, ptr);
    must_answer(WEIR_INVALID_ARGUMENT, weir__mempool_free(self.device, self.a, ptr));
    must_ok(weir__stream_is_capturing(self.device, self.a, &capturing));
    must(capturing);
    weir_emulated_graph *two = captured(&self); /* not spoilt */
    launch(&self, two, self.b);
    back(self.device, self.b, first);
    back(self.device, self.a, ordinary);
    destroy(&self, one);
    destroy(&self, two);
    scene_end(&self);
}

static void use_outside_of_a_launch_is_found(void **state)
{
    (void)state;
    for (int launched = 0; launched < 2; launched++) {
        scene self;
        scene_begin(&self);
        capture(&self);
        char *ptr = draw(self.device, self.pool, self.a, CHUNK);
        weir_emulated_graph *graph = captured(&self);
        if (launched)
            launch(&self, graph, self.b);
        stamp(self.device, self.b, ptr, CHUNK, 1);
        must_equal(weir_emulated_findings(self.device), launched ? 0 : 1);
        destroy(&self, graph);
        close_anyhow(self.device);
    }
}

/* What reads the result of a launch is in the way of the next. */
static void next_launch_is_judged(void **state)
{
    (void)state;
    scene self;
    unsigned char got;
    scene_begin(&self);
    capture(&self);
    char *ptr = draw(self.device, self.pool, self.a, CHUNK);
    must_ok(weir__fill(self.device, self.a, ptr, 6, CHUNK));
    weir_emulated_graph *graph = captured(&self);
    launch(&self, graph, self.a);
    must_ok(weir__copy(self.device, self.a, &got, ptr, 1));
    back(self.device, self.a, ptr);
    must_be_quiet(self.device);
    launch(&self, graph, self.b); /* which knows nothing of a */
    must(weir_emulated_findings(self.device) > 0);
    weir_emulated_finding finding = { .struct_size = sizeof finding };
    must_ok(weir_emulated_get_finding(self.device, 0, &finding));
    must(strcmp(finding.second, "graph malloc") == 0);
    close_anyhow(self.device);
}

static void failures_change_nothing(void **state)
{
    (void)state;
    for (int frees = 0; frees < 2; frees++) {
        for (uint64_t failing = 1;; failing++) {
            scene self;
            void *ptr = NULL;
            scene_begin(&self);
            capture(&self);
            if (frees)
                ptr = draw(self.device, self.pool, self.a, CHUNK);
            size_t free_bytes = device_free_bytes(self.device), count;
            weir__host_fail_at(failing, false);
            weir_status status =
                frees ? weir__mempool_free(self.device, self.a, ptr)
                      : weir__mempool_malloc(self.device, self.pool, self.a, CHUNK,
                                             &ptr);
            bool failed = weir__host_calls() >= failing;
            weir__host_fail_at(0, false);
            must(status == WEIR_OK || status == WEIR_OUT_OF_HOST_MEMORY);
            if (status != WEIR_OK)
                must_equal(device_free_bytes(self.device), free_bytes);
            must_ok(weir_emulated_capture_end(self.device, self.a, &count));
            must_equal(count, (size_t)frees + (status == WEIR_OK));
            close_anyhow(self.device); /* the ledger may have gone deaf */
            if (!failed) {
                must(failing > (frees ? 1 : 3));
                break;
            }
            must(failing < 40);
        }
    }
}

static void device_closes_over_graphs(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        scene self;
        scene_begin(&self);
        weir_mempool pinned = make_pool_of(self.device, WEIR_ASYNC_PINNED);
        capture(&self);
        (void)draw(self.device, pinned, self.a, CHUNK);
        (void)draw(self.device, self.pool, self.a, CHUNK);
        if (i > 0) {
            weir_emulated_graph *graph = captured(&self);
            launch(&self, graph, self.b);
            if (i > 1)
                destroy(&self, graph);
        }
        close_anyhow(self.device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_lives_in_the_graph),
        cmocka_unit_test(memory_can_outlive_the_launch),
        cmocka_unit_test(memory_can_outlive_the_graph),
        cmocka_unit_test(memory_waits_for_what_runs),
        cmocka_unit_test(forgotten_capture_returns_all),
        cmocka_unit_test(other_memory_is_not_freed_in_a_capture),
        cmocka_unit_test(use_outside_of_a_launch_is_found),
        cmocka_unit_test(next_launch_is_judged),
        cmocka_unit_test(failures_change_nothing),
        cmocka_unit_test(device_closes_over_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
