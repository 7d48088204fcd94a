/* test_graphs.c - graphs on the emulated device: streams that fork into a capture and
 * join, what a capture refuses, launches and their order, and what the ledger finds
 * inside a graph. */
#include "support_graph.h"

#define BYTES ((size_t)1024)

/* ---- captures and their ends ---- */

static void ends_only_where_it_began_and_joined(void **state)
{
    (void)state;
    static work_log log;
    work_log_begin(&log);
    stage it = stage_on(open_stepped(0));
    graph_begin(&it);
    work_put(it.device, it.s, &log, 'a');
    stage_after(&it, it.t, it.s, it.es);
    must_not_end(&it, it.t, 903); /* unmatched, and nothing else */
    must_answer(WEIR_DEVICE_ERROR, weir_emulated_capture_begin(it.device, it.t));
    work_put(it.device, it.t, &log, 'b');
    raw_record(it.device, it.et, it.t);
    work_put(it.device, it.t, &log, 'c');
    raw_wait_event(it.device, it.s, it.et); /* the record is in front of c */
    must_not_end(&it, it.s, 904);
    must(!stage_is_capturing(&it, it.s) && !stage_is_capturing(&it, it.t));
    must_not_end(&it, it.s, 401);
    raw_sync_stream(it.device, it.s);
    must_have_run(&log, "");

    graph_begin(&it); /* joined through others, and twice */
    stage_after(&it, it.t, it.s, it.es);
    stage_after(&it, it.u, it.t, it.et);
    work_put(it.device, it.u, &log, 'd');
    stage_after(&it, it.t, it.u, it.eu);
    stage_after(&it, it.s, it.t, it.et);
    weir_emulated_graph *graph = graph_end(&it);
    graph_destroy(&it, graph);

    graph_begin(&it); /* u is behind t, and s behind what t was before that */
    stage_after(&it, it.t, it.s, it.es);
    stage_after(&it, it.u, it.s, it.es);
    raw_record(it.device, it.et, it.t);
    stage_after(&it, it.t, it.u, it.eu);
    raw_wait_event(it.device, it.s, it.et);
    must_not_end(&it, it.s, 904);
    stage_close(&it);
}

static void waits_from_elsewhere_are_refused(void **state)
{
    (void)state;
    stage it = stage_on(open_stepped(0));
    graph_begin(&it); /* two captures do not merge */
    must_ok(weir_emulated_capture_begin(it.device, it.t));
    raw_record(it.device, it.es, it.s);
    must_answer(WEIR_DEVICE_ERROR,
                weir__stream_wait_event(it.device, it.t, it.es));
    must_equal(weir_last_error().native_code, 902);
    must_not_end(&it, it.s, 901);
    must_not_end(&it, it.t, 901);

    graph_begin(&it); /* an event of a capture that is over leads nowhere */
    must_answer(WEIR_DEVICE_ERROR,
                weir__stream_wait_event(it.device, it.t, it.es));
    must_equal(weir_last_error().native_code, 905);
    stage_after(&it, it.t, it.s, it.es);
    raw_record(it.device, it.eu, it.u); /* nor one from outside into a capture */
    must_answer(WEIR_DEVICE_ERROR,
                weir__stream_wait_event(it.device, it.t, it.eu));
    must_equal(weir_last_error().native_code, 905);
    must_answer(WEIR_DEVICE_ERROR,
                weir__stream_wait_event(it.device, it.v, it.es)); /* spoilt */
    must(!stage_is_capturing(&it, it.v));
    must_not_end(&it, it.s, 901);
    stage_close(&it);
}

/* What one may not do with a stream or an event while it is joined to a capture. */
static void joined_streams_are_not_asked_about(void **state)
{
    (void)state;
    stage it = stage_on(open_stepped(0));
    bool done;
    for (int i = 0; i < 4; i++) {
        graph_begin(&it);
        stage_after(&it, it.t, it.s, it.es);
        raw_record(it.device, it.et, it.t);
        weir_status status =
            i == 0 ? weir__stream_sync(it.device, it.t)
            : i == 1 ? weir__stream_query(it.device, it.t, &done)
            : i == 2 ? weir__event_sync(it.device, it.et)
                     : weir__event_query(it.device, it.et, &done);
        must_answer(WEIR_DEVICE_ERROR, status);
        must_not_end(&it, it.s, 901);
        raw_sync_stream(it.device, it.t);
    }
    weir_stream blocking = raw_stream(it.device, WEIR_STREAM_BLOCKING);
    graph_begin(&it);
    raw_record(it.device, it.ev, NULL); /* nobody minds: all are non-blocking */
    stage_after(&it, blocking, it.s, it.es);
    must_answer(WEIR_DEVICE_ERROR, weir__event_record(it.device, it.ev, NULL));
    must_equal(weir_last_error().native_code, 906);
    must_not_end(&it, it.s, 901);
    for (int i = 0; i < 2; i++) { /* to ask of it or to wait for it is no better */
        graph_begin(&it);
        raw_sync_stream(it.device, NULL);
        stage_after(&it, blocking, it.s, it.es);
        must_answer(WEIR_DEVICE_ERROR,
                    i == 0 ? weir__stream_sync(it.device, NULL)
                           : weir__stream_query(it.device, NULL, &done));
        must_equal(weir_last_error().native_code, 906);
        must_not_end(&it, it.s, 901);
    }
    raw_stream_end(it.device, blocking);
    stage_close(&it);
}

static void streams_may_end_in_a_capture(void **state)
{
    (void)state;
    stage it = stage_on(open_stepped(0));
    weir_stream more = raw_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    graph_begin(&it);
    stage_after(&it, more, it.s, it.es);
    stage_after(&it, it.s, more, it.et);
    raw_stream_end(it.device, more);
    must_not_end(&it, it.s, 901);

    more = raw_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_emulated_capture_begin(it.device, more));
    stage_after(&it, it.t, more, it.et);
    raw_stream_end(it.device, more); /* and the capture with it */
    must(!stage_is_capturing(&it, it.t));
    must_ok(weir__device_sync(it.device));
    stage_close(&it);
}

/* ---- what launches are behind, and what is behind them ---- */

/* A kernel 'a' on s and one 'b' on t, joined. */
static weir_emulated_graph *capture_two(stage *it, work_log *log)
{
    graph_begin(it);
    work_put(it->device, it->s, log, 'a');
    stage_after(it, it->t, it->s, it->es);
    work_put(it->device, it->t, log, 'b');
    stage_after(it, it->s, it->t, it->et);
    return graph_end(it);
}

static void launches_are_in_stream_order(void **state)
{
    (void)state;
    static work_log log;
    uint64_t seeds = support_bound("test_graphs.order_seeds", 10, 200);
    for (uint64_t i = 0; i < seeds; i++) {
        work_log_begin(&log);
        stage it = stage_on(open_stepped(support_seed(i)));
        weir_emulated_graph *graph = capture_two(&it, &log);
        uint64_t gate = raw_stall(it.device, it.u);
        work_put(it.device, it.u, &log, '1');
        graph_launch(&it, graph, it.u);
        work_put(it.device, it.u, &log, '2');
        graph_launch(&it, graph, it.v); /* on a stream that nothing holds */
        work_put(it.device, it.v, &log, '3');
        graph_destroy(&it, graph);
        while (i % 2 == 0 && stage_step(&it)) {
            /* all that can happen */
        }
        must_have_run(&log, "");
        raw_open_gate(it.device, gate);
        raw_sync_stream(it.device, it.v);
        raw_sync_stream(it.device, it.u);
        size_t two = 0;
        while (log.names[two] != '2')
            two++;
        must(two >= 3 && log.names[0] == '1' && log.names[1] == 'a' &&
             log.names[2] == 'b');
        must_equal(atomic_load(&log.length), 7);
        must(log.names[6] == '3' || two == 6);
        stage_close(&it);
    }
}

/* On the legacy stream a launch is a barrier, as any operation there. */
static void launches_know_the_legacy_stream(void **state)
{
    (void)state;
    static work_log log;
    for (uint64_t seed = 0; seed < 10; seed++) {
        work_log_begin(&log);
        stage it = stage_on(open_stepped(seed));
        weir_stream blocking = raw_stream(it.device, WEIR_STREAM_BLOCKING);
        weir_emulated_graph *graph = capture_two(&it, &log);
        uint64_t gate = raw_stall(it.device, blocking);
        work_put(it.device, blocking, &log, '1');
        graph_launch(&it, graph, NULL);
        work_put(it.device, blocking, &log, '2');
        graph_launch(&it, graph, blocking);
        work_put(it.device, NULL, &log, '3');
        raw_sync_stream(it.device, it.t); /* of the graph's own streams none runs */
        raw_open_gate(it.device, gate);
        raw_sync_stream(it.device, NULL);
        must_have_run(&log, "1ab2ab3");
        graph_destroy(&it, graph);
        raw_stream_end(it.device, blocking);
        stage_close(&it);
    }
}

/* A wait means the event as it was recorded then; also a stream's own. */
static void waits_keep_the_record_they_met(void **state)
{
    (void)state;
    static work_log log;
    for (uint64_t seed = 0; seed < 20; seed++) {
        work_log_begin(&log);
        stage it = stage_on(open_stepped(seed));
        graph_begin(&it);
        work_put(it.device, it.s, &log, 'a');
        stage_after(&it, it.t, it.s, it.es);
        work_put(it.device, it.s, &log, 'b');
        stage_after(&it, it.s, it.s, it.es);
        work_put(it.device, it.t, &log, 'c');
        (void)raw_stall(it.device, it.t); /* holds nothing */
        stage_after(&it, it.s, it.t, it.et);
        weir_emulated_graph *graph = graph_end(&it);
        graph_launch(&it, graph, it.u);
        raw_sync_stream(it.device, it.u);
        must(log.names[0] == 'a' && has_run(&log, 'b') && has_run(&log, 'c'));
        must_equal(atomic_load(&log.length), 3);
        graph_destroy(&it, graph);
        stage_close(&it);
    }
}

static void nothing_is_launched_over_memory_that_is_gone(void **state)
{
    (void)state;
    static work_log log;
    work_log_begin(&log);
    stage it = stage_on(open_stepped(0));
    void *x;
    must_ok(weir__malloc(it.device, BYTES, &x));
    graph_begin(&it);
    work_put(it.device, it.s, &log, 'a');
    must_ok(weir__fill(it.device, it.s, x, 1, BYTES));
    weir_emulated_graph *graph = graph_end(&it);
    must_ok(weir__free(it.device, x));
    for (int i = 0; i < 2; i++) {
        must_answer(WEIR_DEVICE_ERROR,
                    weir_emulated_graph_launch(it.device, graph, it.s));
        raw_sync_stream(it.device, it.s);
        must_have_run(&log, "");
    }
    void *again;
    must_ok(weir__malloc(it.device, BYTES, &again));
    must(again == x);
    graph_begin(&it); /* no graphs inside of graphs */
    must_answer(WEIR_NOT_SUPPORTED,
                weir_emulated_graph_launch(it.device, graph, it.s));
    graph_destroy(&it, graph_end(&it));
    graph_launch(&it, graph, it.s);
    raw_sync_stream(it.device, it.s);
    must_have_run(&log, "a");
    must_ok(weir__free(it.device, again));
    stage_close(&it); /* and the graph with the device */
}

/* More than a stepped device lets lie, with nobody waiting. */
static void launches_find_room(void **state)
{
    (void)state;
    static work_log log;
    work_log_begin(&log);
    stage it = stage_on(open_stepped(0));
    graph_begin(&it);
    for (int i = 0; i < 700; i++)
        raw_record(it.device, it.es, it.s);
    work_put(it.device, it.s, &log, 'a');
    weir_emulated_graph *graph = graph_end(&it);
    for (int i = 0; i < 6; i++)
        graph_launch(&it, graph, it.s);
    must(has_run(&log, 'a'));
    raw_sync_stream(it.device, it.s);
    must_have_run(&log, "aaaaaa");
    graph_destroy(&it, graph);
    stage_close(&it);
}

static void lost_devices_launch_nothing(void **state)
{
    (void)state;
    static work_log log;
    void *ptr;
    for (int scheduler = 0; scheduler < 3; scheduler++) {
        work_log_begin(&log);
        stage it = stage_on(open_emulated((weir_emulated_scheduler)scheduler, 0));
        weir_emulated_graph *graph = capture_two(&it, &log);
        (void)raw_stall(it.device, it.s);
        graph_launch(&it, graph, it.s);
        plan_fault(it.device, "malloc", 1, false, WEIR_DEVICE_LOST);
        must_answer(WEIR_DEVICE_LOST, weir__malloc(it.device, 100, &ptr));
        must_answer(WEIR_DEVICE_LOST,
                    weir_emulated_graph_launch(it.device, graph, it.s));
        must_ok(weir_emulated_graph_destroy(it.device, graph));
        close_anyhow(it.device);
        must_have_run(&log, "");
    }
}

/* ---- what the ledger finds ---- */

/* t joins, and both write x with nothing between; `ordered`: with an edge between. */
static size_t findings_inside(bool ordered)
{
    stage it = stage_on(open_stepped(0));
    void *x;
    must_ok(weir__malloc(it.device, BYTES, &x));
    graph_begin(&it);
    raw_record(it.device, it.es, it.s);
    must_ok(weir__fill(it.device, it.s, x, 1, BYTES));
    if (ordered)
        raw_record(it.device, it.es, it.s);
    raw_wait_event(it.device, it.t, it.es);
    must_ok(weir__fill(it.device, it.t, x, 2, BYTES));
    stage_after(&it, it.s, it.t, it.et);
    weir_emulated_graph *graph = graph_end(&it);
    must_equal(weir_emulated_findings(it.device), 0);
    graph_launch(&it, graph, it.s);
    size_t findings = weir_emulated_findings(it.device);
    graph_launch(&it, graph, it.u);
    must_equal(weir_emulated_findings(it.device), 2 * findings); /* each by itself */
    raw_sync_stream(it.device, it.u);
    must_ok(weir__free(it.device, x));
    stage_close_anyhow(&it);
    return findings;
}

/* A graph writes x on s; what is on t before and after it does so too. */
static size_t findings_around(bool before, bool afterwards)
{
    stage it = stage_on(open_stepped(0));
    void *x;
    must_ok(weir__malloc(it.device, BYTES, &x));
    graph_begin(&it);
    must_ok(weir__fill(it.device, it.s, x, 1, BYTES));
    weir_emulated_graph *graph = graph_end(&it);
    must_ok(weir__fill(it.device, it.t, x, 2, BYTES));
    if (before)
        stage_after(&it, it.s, it.t, it.et);
    graph_launch(&it, graph, it.s);
    size_t findings = weir_emulated_findings(it.device);
    must_equal(findings, before ? 0 : 1);
    if (afterwards)
        stage_after(&it, it.t, it.s, it.es);
    must_ok(weir__fill(it.device, it.t, x, 3, BYTES));
    findings = weir_emulated_findings(it.device);
    must_ok(weir__device_sync(it.device));
    must_ok(weir__free(it.device, x));
    stage_close_anyhow(&it);
    return findings;
}

static void ledger_finds_what_is_not_ordered(void **state)
{
    (void)state;
    must_equal(findings_inside(true), 0);
    must_equal(findings_inside(false), 1);
    must_equal(findings_around(true, true), 0);
    must_equal(findings_around(false, true), 1);
    must_equal(findings_around(true, false), 1);
    must_equal(findings_around(false, false), 2);
}

/* ---- bad input ---- */

static void nonsense_is_refused(void **state)
{
    (void)state;
    stage it = stage_on(open_stepped(0));
    weir_device *other = open_with("emulated:1", NULL);
    weir_emulated_graph *graph;
    graph_begin(&it);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_emulated_capture_end_graph(it.device, it.s, NULL));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_emulated_capture_end_graph(NULL, it.s, &graph));
    must(graph == NULL);
    must_not_end(&it, (weir_stream)(uintptr_t)3, 400);
    graph = graph_end(&it);
    must_answer(WEIR_INVALID_ARGUMENT, weir_emulated_graph_launch(NULL, graph, it.s));
    must_answer(WEIR_DEVICE_ERROR, weir_emulated_graph_launch(it.device, NULL, it.s));
    must_answer(WEIR_DEVICE_ERROR, weir_emulated_graph_launch(other, graph, NULL));
    must_answer(WEIR_DEVICE_ERROR,
                weir_emulated_graph_launch(it.device, graph, (weir_stream)&it));
    must_answer(WEIR_DEVICE_ERROR, weir_emulated_graph_destroy(other, graph));
    must_ok(weir_emulated_graph_destroy(it.device, NULL));
    graph_destroy(&it, graph);
    must_answer(WEIR_DEVICE_ERROR, weir_emulated_graph_destroy(it.device, graph));
    must_answer(WEIR_DEVICE_ERROR, weir_emulated_graph_launch(it.device, graph, it.s));
    close_emulated(other);
    stage_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_only_where_it_began_and_joined),
        cmocka_unit_test(waits_from_elsewhere_are_refused),
        cmocka_unit_test(joined_streams_are_not_asked_about),
        cmocka_unit_test(streams_may_end_in_a_capture),
        cmocka_unit_test(launches_are_in_stream_order),
        cmocka_unit_test(launches_know_the_legacy_stream),
        cmocka_unit_test(waits_keep_the_record_they_met),
        cmocka_unit_test(nothing_is_launched_over_memory_that_is_gone),
        cmocka_unit_test(launches_find_room),
        cmocka_unit_test(lost_devices_launch_nothing),
        cmocka_unit_test(ledger_finds_what_is_not_ordered),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
