/* test_graph_contents.c - what graphs compute: a forked and joined one runs again and
 * again under every scheduler, and is whole or not there when host memory fails. */
#include "internal.h"
#include "support_graph.h"

#define BYTES ((size_t)1024)

/* ---- contents ---- */

#define NUMBERS ((int)(BYTES / sizeof(uint64_t)))

/* to = factor * from + more */
typedef struct formula {
    uint64_t factor, more;
} formula;

static void compute(void *argument, void *const views[])
{
    const formula *how = argument;
    uint64_t *to = views[0];
    const uint64_t *from = views[1];
    for (int i = 0; i < NUMBERS; i++)
        to[i] = how->factor * from[i] + how->more;
}

static void accumulate(void *argument, void *const views[])
{
    uint64_t *to = views[0];
    const uint64_t *from = views[1];
    (void)argument;
    for (int i = 0; i < NUMBERS; i++)
        to[i] += from[i];
}

static weir_status put(stage *it, weir_stream stream, weir_emulated_kernel kernel,
                       formula *how, void *to, void *from)
{
    const weir_emulated_range ranges[] = { { to, BYTES, WEIR_EMULATED_READ_WRITE },
                                           { from, BYTES, WEIR_EMULATED_READ } };
    return weir_emulated_launch(it->device, stream, kernel, how, ranges, 2);
}

/* Blocks x, y, z and the capture that turns x into 3x + 1:
 *
 *     s   fill y   record -----------------------------------. wait   x += z
 *     t              wait   y = 2x   record ------. wait   copy z <- y   record
 *     u                               wait   y += 1   record
 */
typedef struct sum {
    stage it;
    void *x, *y, *z;
    uint64_t *seen; /* host memory */
} sum;

static void sum_open(sum *of, weir_device *device)
{
    *of = (sum){ .it = stage_on(device) };
    must_ok(weir__malloc(device, BYTES, &of->x));
    must_ok(weir__malloc(device, BYTES, &of->y));
    must_ok(weir__malloc(device, BYTES, &of->z));
    void *seen;
    must_ok(weir__host_malloc(device, BYTES, 256, &seen));
    of->seen = seen;
}

static void sum_leave(sum *of)
{
    must_ok(weir__device_sync(of->it.device));
    must_ok(weir__free(of->it.device, of->x));
    must_ok(weir__free(of->it.device, of->y));
    must_ok(weir__free(of->it.device, of->z));
    must_ok(weir__host_free_device(of->it.device, of->seen));
}

static weir_status try_record_wait(sum *of, weir_stream waiter, weir_stream waited,
                                   weir_event event)
{
    weir_status status = weir__event_record(of->it.device, event, waited);
    if (status == WEIR_OK)
        status = weir__stream_wait_event(of->it.device, waiter, event);
    return status;
}

static weir_status try_sum(sum *of)
{
    static formula twice = { 2, 0 }, one_more = { 1, 1 };
    stage *it = &of->it;
    weir_status status = weir__fill(it->device, it->s, of->y, 0, BYTES);
    if (status == WEIR_OK)
        status = try_record_wait(of, it->t, it->s, it->es);
    if (status == WEIR_OK)
        status = put(it, it->t, compute, &twice, of->y, of->x);
    if (status == WEIR_OK)
        status = try_record_wait(of, it->u, it->t, it->et);
    if (status == WEIR_OK)
        status = put(it, it->u, compute, &one_more, of->y, of->y);
    if (status == WEIR_OK)
        status = try_record_wait(of, it->t, it->u, it->eu);
    if (status == WEIR_OK)
        status = weir__copy(it->device, it->t, of->z, of->y, BYTES);
    if (status == WEIR_OK)
        status = try_record_wait(of, it->s, it->t, it->et);
    if (status == WEIR_OK)
        status = put(it, it->s, accumulate, NULL, of->x, of->z);
    return status;
}

static void must_see(sum *of, weir_stream stream, uint64_t number)
{
    must_ok(weir__copy(of->it.device, stream, of->seen, of->x, BYTES));
    raw_sync_stream(of->it.device, stream);
    for (int i = 0; i < NUMBERS; i++)
        must_equal(of->seen[i], number);
}

static void runs_again_and_again(weir_emulated_scheduler scheduler, uint64_t seed)
{
    sum of;
    sum_open(&of, open_emulated(scheduler, seed));
    stage *it = &of.it;
    must_ok(weir__fill(it->device, it->s, of.x, 0, BYTES));
    graph_begin(it);
    must_ok(try_sum(&of));
    must(stage_is_capturing(it, it->s) && stage_is_capturing(it, it->t));
    must(stage_is_capturing(it, it->u));
    must(!stage_is_capturing(it, it->v));
    weir_emulated_graph *graph = graph_end(it);
    must(!stage_is_capturing(it, it->s) && !stage_is_capturing(it, it->t));

    graph_launch(it, graph, it->s);
    graph_launch(it, graph, it->s);
    if (scheduler != WEIR_EMULATED_NO_WORK)
        must_see(&of, it->s, 4);
    graph_launch(it, graph, it->v); /* behind the last launch, on whatever stream */
    if (scheduler != WEIR_EMULATED_NO_WORK)
        must_see(&of, it->v, 13);
    bool done;
    raw_record(it->device, it->ev, it->v);
    must_ok(weir__event_sync(it->device, it->ev));
    must_ok(weir__event_query(it->device, it->ev, &done));
    must(done);
    graph_destroy(it, graph);
    sum_leave(&of);
    stage_close(it);
}

static void graphs_run_again_and_again(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("test_graph_contents.seeds", 20, 500);
    for (uint64_t i = 0; i < seeds; i++)
        runs_again_and_again(WEIR_EMULATED_STEPPED, support_seed(i));
    for (int i = 0; i < 5; i++)
        runs_again_and_again(WEIR_EMULATED_THREADS, 0);
    runs_again_and_again(WEIR_EMULATED_NO_WORK, 0);
}

/* ---- host memory ---- */

static weir_device *open_without_ledger(weir_emulated_scheduler scheduler)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = scheduler;
    emulated.no_ledger = true;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    return open_with("emulated:0", &options);
}

/* One host allocation of a capture fails: nothing is half done. Answers whether there
 * were so many. */
static bool capture_fails_at(weir_emulated_scheduler scheduler, uint64_t failing)
{
    sum of;
    sum_open(&of, open_without_ledger(scheduler));
    stage *it = &of.it;
    weir_emulated_graph *graph = NULL;
    must_ok(weir__fill(it->device, it->s, of.x, 0, BYTES));
    weir__host_fail_at(failing, false);
    weir_status status = weir_emulated_capture_begin(it->device, it->s);
    bool begun = status == WEIR_OK;
    if (begun)
        status = try_sum(&of);
    bool complete = status == WEIR_OK;
    if (begun)
        status = weir_emulated_capture_end_graph(it->device, it->s, &graph);
    weir__host_fail_at(0, false);
    must(complete || begun || status == WEIR_OUT_OF_HOST_MEMORY);
    must(!complete || status == WEIR_OK);
    must(!stage_is_capturing(it, it->s) && !stage_is_capturing(it, it->t));
    if (status == WEIR_OK && complete) {
        graph_launch(it, graph, it->s);
        must_see(&of, it->s, 1);
    }
    sum_leave(&of);
    stage_close(it);
    return !complete;
}

/* One of a launch fails: nothing of it was put. */
static bool launch_fails_at(weir_emulated_scheduler scheduler, uint64_t failing)
{
    sum of;
    sum_open(&of, open_without_ledger(scheduler));
    stage *it = &of.it;
    must_ok(weir__fill(it->device, it->v, of.x, 0, BYTES));
    graph_begin(it);
    must_ok(try_sum(&of));
    weir_emulated_graph *graph = graph_end(it);
    graph_launch(it, graph, it->v);
    weir__host_fail_at(failing, false);
    weir_status status = weir_emulated_graph_launch(it->device, graph, it->v);
    weir__host_fail_at(0, false);
    must(status == WEIR_OK || status == WEIR_OUT_OF_HOST_MEMORY);
    must_see(&of, it->v, status == WEIR_OK ? 4 : 1);
    graph_launch(it, graph, it->v);
    must_see(&of, it->v, status == WEIR_OK ? 13 : 4);
    sum_leave(&of);
    stage_close(it);
    return status != WEIR_OK;
}

static void host_memory_may_fail(void **state)
{
    (void)state;
    for (int scheduler = 0; scheduler < 2; scheduler++) {
        uint64_t captures = 1, launches = 1;
        while (capture_fails_at((weir_emulated_scheduler)scheduler, captures))
            captures++;
        while (launch_fails_at((weir_emulated_scheduler)scheduler, launches))
            launches++;
        must_equal(captures, 17);
        must(launches >= 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_run_again_and_again),
        cmocka_unit_test(host_memory_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
