/* model_graphs.c - a graph does what its capture was given: random work on streams that
 * fork and join runs twice as it is, and on another device as a graph that is launched
 * twice. The ledger finds as much in either, and where it finds nothing the contents
 * are the same. */
#include <string.h>

#include "device/device.h"
#include "support.h"
#include "support_work.h"

#define STREAMS  4 /* the first one is the origin */
#define EVENTS   3
#define BLOCKS   4
#define STEPS    24
#define NUMBERS  16
#define BYTES    (NUMBERS * sizeof(uint64_t))

typedef enum step_kind { MIX, COPY, FILL, RECORD, WAIT, ORDER, KINDS } step_kind;

typedef struct step {
    step_kind kind;
    int stream, other;    /* order: who waits, and for whom */
    int to, from;
    int event;
    uint64_t number;
} step;

typedef struct program {
    step steps[STEPS];
    int count;
} program;

/* ---- programs ---- */

static void program_make(program *made, uint64_t seed)
{
    uint64_t random = seed;
    bool recorded[EVENTS] = { false };
    made->count = (int)support_random_between(&random, 1, STEPS);
    uint64_t orders = support_random_below(&random, 4); /* how much is ordered */
    for (int i = 0; i < made->count; i++) {
        step *it = &made->steps[i];
        *it = (step){ .kind = (step_kind)support_random_below(&random, KINDS),
                      .stream = (int)support_random_below(&random, STREAMS),
                      .other = (int)support_random_below(&random, STREAMS),
                      .to = (int)support_random_below(&random, BLOCKS),
                      .from = (int)support_random_below(&random, BLOCKS),
                      .event = (int)support_random_below(&random, EVENTS),
                      .number = support_random(&random) };
        if (it->kind < RECORD && support_random_below(&random, 4) < orders)
            it->kind = ORDER;
        if (it->kind == WAIT && !recorded[it->event])
            it->kind = RECORD;
        recorded[it->event] = recorded[it->event] || it->kind == RECORD;
    }
}

/* ---- running them ---- */

typedef struct stage {
    weir_device *device;
    weir_stream streams[STREAMS];
    weir_event events[EVENTS];
    weir_event link;         /* of forks, joins and orders */
    void *blocks[BLOCKS];
} stage;

static void stage_open(stage *it, weir_emulated_scheduler scheduler, uint64_t seed)
{
    it->device = open_emulated(scheduler, seed);
    for (int i = 0; i < STREAMS; i++)
        it->streams[i] = raw_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    for (int i = 0; i < EVENTS; i++)
        it->events[i] = raw_event(it->device);
    it->link = raw_event(it->device);
    for (int i = 0; i < BLOCKS; i++) {
        must_ok(weir__malloc(it->device, BYTES, &it->blocks[i]));
        must_ok(weir__fill(it->device, it->streams[0], it->blocks[i], (uint8_t)i,
                           BYTES));
    }
}

/* Answers what the ledger found. */
static size_t stage_close(stage *it, uint64_t contents[BLOCKS][NUMBERS])
{
    for (int i = 0; i < BLOCKS; i++)
        must_ok(weir__copy(it->device, it->streams[0], contents[i], it->blocks[i],
                           BYTES));
    must_ok(weir__device_sync(it->device));
    size_t findings = weir_emulated_findings(it->device);
    for (int i = 0; i < BLOCKS; i++)
        must_ok(weir__free(it->device, it->blocks[i]));
    for (int i = 0; i < STREAMS; i++)
        raw_stream_end(it->device, it->streams[i]);
    for (int i = 0; i < EVENTS; i++)
        raw_event_end(it->device, it->events[i]);
    raw_event_end(it->device, it->link);
    close_anyhow(it->device);
    return findings;
}

/* Notices each order of two that touch the same block. */
static void mix(void *argument, void *const views[])
{
    const step *how = argument;
    uint64_t *to = views[0];
    const uint64_t *from = views[1];
    for (int i = 0; i < NUMBERS; i++)
        to[i] = to[i] * 31 + from[i] + how->number;
}

static void order(stage *it, int waiter, int waited)
{
    raw_record(it->device, it->link, it->streams[waited]);
    raw_wait_event(it->device, it->streams[waiter], it->link);
}

static void step_run(stage *it, step *what)
{
    weir_stream stream = it->streams[what->stream];
    void *to = it->blocks[what->to], *from = it->blocks[what->from];
    const weir_emulated_range ranges[] = { { to, BYTES, WEIR_EMULATED_READ_WRITE },
                                           { from, BYTES, WEIR_EMULATED_READ } };
    switch (what->kind) {
    case MIX:
        must_ok(weir_emulated_launch(it->device, stream, mix, what, ranges, 2));
        break;
    case COPY: must_ok(weir__copy(it->device, stream, to, from, BYTES)); break;
    case FILL:
        must_ok(weir__fill(it->device, stream, to, (uint8_t)what->number, BYTES));
        break;
    case RECORD: raw_record(it->device, it->events[what->event], stream); break;
    case WAIT: raw_wait_event(it->device, stream, it->events[what->event]); break;
    case ORDER: order(it, what->stream, what->other); break;
    case KINDS: break;
    }
}

/* Forks, runs, and joins. */
static void program_run(stage *it, program *what)
{
    for (int i = 1; i < STREAMS; i++)
        order(it, i, 0);
    for (int i = 0; i < what->count; i++)
        step_run(it, &what->steps[i]);
    for (int i = 1; i < STREAMS; i++)
        order(it, 0, i);
}

static size_t run_as_it_is(program *what, uint64_t seed,
                           uint64_t contents[BLOCKS][NUMBERS])
{
    stage it;
    stage_open(&it, WEIR_EMULATED_STEPPED, seed);
    program_run(&it, what);
    program_run(&it, what);
    return stage_close(&it, contents);
}

static size_t run_as_a_graph(program *what, weir_emulated_scheduler scheduler,
                             uint64_t seed, uint64_t contents[BLOCKS][NUMBERS])
{
    stage it;
    weir_emulated_graph *graph;
    stage_open(&it, scheduler, seed);
    must_ok(weir_emulated_capture_begin(it.device, it.streams[0]));
    program_run(&it, what);
    must_ok(weir_emulated_capture_end_graph(it.device, it.streams[0], &graph));
    must_ok(weir_emulated_graph_launch(it.device, graph, it.streams[0]));
    must_ok(weir_emulated_graph_launch(it.device, graph, it.streams[0]));
    must_ok(weir_emulated_graph_destroy(it.device, graph));
    return stage_close(&it, contents);
}

/* ---- both, side by side ---- */

static void graphs_do_what_they_were_given(void **state)
{
    (void)state;
    uint64_t programs = support_bound("model_graphs.programs", 2000, 50000);
    uint64_t quiet = 0, racy = 0;
    for (uint64_t i = 0; i < programs; i++) {
        static uint64_t plain[BLOCKS][NUMBERS], captured[BLOCKS][NUMBERS];
        program made;
        uint64_t seed = support_seed(i);
        program_make(&made, seed);
        size_t findings = run_as_it_is(&made, seed, plain);
        bool on_threads = findings == 0 && i % 8 == 0; /* where nothing really races */
        weir_emulated_scheduler scheduler = on_threads ? WEIR_EMULATED_THREADS
                                                       : WEIR_EMULATED_STEPPED;
        must_equal(run_as_a_graph(&made, scheduler, seed, captured), findings);
        must(findings > 0 || memcmp(plain, captured, sizeof plain) == 0);
        quiet += findings == 0;
        racy += findings > 0;
    }
    print_message("%llu programs without a race, %llu with one\n",
                  (unsigned long long)quiet, (unsigned long long)racy);
    must(programs < 100 || (quiet > programs / 10 && racy > programs / 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_do_what_they_were_given),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
