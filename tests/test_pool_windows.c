/* test_pool_windows.c - a request is held up at each place where it lets others go on,
 * and there another thread does all that it may: takes and gives back, ends streams,
 * begins captures, trims, makes device calls fail. What the request found before may
 * then be gone, or be another's.
 *
 * All runs in stepped order: the first thread goes on for so many choices, then the
 * second for as long as it can, and then the first again. */
#include <string.h>

#include "device/device.h"
#include "internal.h"
#include "resource_parts.h"
#include "stream_order.h"
#include "support_actor.h"

#define STRIPE  (2 * KIB)
#define STRIPES 7   /* that are free, of three streams */
#define HELD    36  /* blocks that stay out: of a fixed pool nearly all */

#define SWITCHES 3
#define NEVER    UINT64_MAX

typedef struct stage {
    pool_scene scene;
    uint64_t switches[SWITCHES]; /* where the turn becomes the other's, in choices */
    uint64_t choices;            /* so far */
    int switched;                /* so often */
    bool takes_turns;            /* instead, at each choice */
    bool is_through;             /* the first thread was before the first switch */
    void *held[HELD];
    size_t held_bytes;           /* each */
} stage;

/* The turn is the first thread's, until a switch; of streams any will do. */
static uint32_t choose(void *context, uint32_t n)
{
    stage *it = context;
    while (it->switched < SWITCHES && it->choices >= it->switches[it->switched])
        it->switched++;
    it->choices++;
    if (it->takes_turns)
        return it->choices % 4 == 0 ? 0 : n - 1;
    return it->switched % 2 == 0 ? 0 : n - 1;
}

static void verify(stage *it)
{
    weir__pool *pool = it->scene.pool->self;
    weir__mutex_lock(&pool->lock);
    weir__heap_verify(&pool->heap);
    weir__mutex_unlock(&pool->lock);
    weir__order_verify(it->scene.device->order);
}

/* ---- what threads do ---- */

static void *try_for(stage *it, weir_stream stream, size_t bytes)
{
    void *ptr;
    weir_status status =
        weir_allocate(it->scene.pool, stream, bytes, WEIR_ALIGNMENT, &ptr);
    must(status == WEIR_OK || status == WEIR_OUT_OF_MEMORY ||
         status == WEIR_LIMIT_REACHED || status == WEIR_DEVICE_ERROR ||
         status == WEIR_CAPTURING || status == WEIR_OUT_OF_HOST_MEMORY);
    return ptr;
}

static void *ask_for(stage *it, weir_stream stream, size_t bytes)
{
    void *ptr = try_for(it, stream, bytes);
    weir__host_spare(true); /* what the test needs itself */
    if (ptr != NULL)
        stamp(it->scene.device, stream, ptr, bytes, (uintptr_t)ptr);
    weir__host_spare(false);
    return ptr;
}

static void give_up(stage *it, weir_stream stream, void *ptr, size_t bytes)
{
    if (ptr == NULL)
        return;
    weir__host_spare(true);
    check_stamp(it->scene.device, stream, ptr, bytes, (uintptr_t)ptr);
    weir__host_spare(false);
    give(it->scene.pool, stream, ptr, bytes);
}

/* More than a stripe, a piece of one, the rest of one, much; all on one stream. */
static void asks(void *argument)
{
    stage *it = argument;
    static const size_t sizes[] = { 3 * KIB, 256, STRIPE, 8 * KIB };
    void *ptrs[4];
    for (int i = 0; i < 4; i++)
        ptrs[i] = ask_for(it, it->scene.streams[0], sizes[i]);
    for (int i = 0; i < 4; i++)
        give_up(it, it->scene.streams[0], ptrs[i], sizes[i]);
}

static void turns_over(stage *it, weir_stream stream, size_t bytes)
{
    void *ptrs[2] = { ask_for(it, stream, bytes), ask_for(it, stream, 256) };
    give_up(it, stream, ptrs[0], bytes);
    give_up(it, stream, ptrs[1], 256);
}

static void trades(void *argument)
{
    stage *it = argument;
    verify(it);
    for (int i = 1; i < STREAMS; i++)
        turns_over(it, it->scene.streams[i], (size_t)i * 1536);
    verify(it);
}

/* Of what the first thread may have found neighbours come back. */
static void gives_back(void *argument)
{
    stage *it = argument;
    for (int i = 0; i < HELD; i++) {
        give_up(it, it->scene.streams[1], it->held[i], it->held_bytes);
        it->held[i] = NULL;
    }
    verify(it);
    weir_thread_flush();
}

static void retires(void *argument)
{
    stage *it = argument;
    weir_device *device = it->scene.device;
    for (int i = 1; i < STREAMS; i++) {
        weir_stream old = it->scene.streams[i];
        it->scene.streams[i] = make_stream(device, WEIR_STREAM_NON_BLOCKING);
        must_ok(weir_stream_wait(device, it->scene.streams[i], old));
        end_stream(device, old);
        turns_over(it, it->scene.streams[i], STRIPE);
    }
    verify(it);
}

static void captures(void *argument)
{
    stage *it = argument;
    weir_capture *capture;
    weir_stream stream = it->scene.streams[2];
    must_ok(weir_capture_begin(it->scene.pool, stream, &capture));
    void *first = try_for(it, stream, STRIPE), *second = try_for(it, stream, 256);
    if (first != NULL)
        give(it->scene.pool, stream, first, STRIPE);
    verify(it);
    must_ok(weir_capture_end(capture));
    turns_over(it, stream, STRIPE);
    must_ok(weir_capture_release(capture, stream));
    if (second != NULL)
        give(it->scene.pool, stream, second, 256);
}

/* On the stream that the first thread asks on, and works on: it is not in the graph. */
static void captures_there(void *argument)
{
    stage *it = argument;
    weir_capture *capture;
    must_ok(weir_capture_begin(it->scene.pool, it->scene.streams[0], &capture));
    turns_over(it, it->scene.streams[1], STRIPE);
    must_ok(weir_capture_release(capture, it->scene.streams[0]));
}

static void trims(void *argument)
{
    stage *it = argument;
    (void)weir_resource_trim_sync(it->scene.pool, 0);
    (void)statistics_of(it->scene.pool);
    turns_over(it, it->scene.streams[1], STRIPE);
    (void)weir_resource_trim_sync(it->scene.pool, 0);
    verify(it);
}

/* Each has a clock and an owner for a while. */
static void comes_and_goes(void *argument)
{
    stage *it = argument;
    for (int i = 0; i < 4; i++) {
        weir_stream stream;
        must_ok(weir_emulated_stream_create(it->scene.device, WEIR_STREAM_NON_BLOCKING,
                                            &stream));
        turns_over(it, stream, STRIPE);
        must_ok(weir_stream_sync(it->scene.device, stream));
        must_ok(weir_emulated_stream_destroy(it->scene.device, stream));
    }
    verify(it);
}

static void waits_for_all(void *argument)
{
    stage *it = argument;
    must_ok(weir_device_sync(it->scene.device));
    for (int i = STREAMS; --i > 0;)
        turns_over(it, it->scene.streams[i], 3 * KIB);
}

static void lets_waits_fail(void *argument)
{
    stage *it = argument;
    plan_fault(it->scene.device, "stream_wait_event", 1, true, WEIR_DEVICE_ERROR);
    turns_over(it, it->scene.streams[1], STRIPE);
}

static void takes_host_memory(void *argument)
{
    stage *it = argument;
    turns_over(it, it->scene.streams[1], STRIPE);
    weir__host_fail_at(1, true);
    turns_over(it, it->scene.streams[2], STRIPE);
}

static void lets_records_fail(void *argument)
{
    stage *it = argument;
    plan_fault(it->scene.device, "event_record", 1, true, WEIR_DEVICE_ERROR);
    turns_over(it, it->scene.streams[1], STRIPE);
}

/* ---- the stage ---- */

/* Stripes of three streams, whose work is pending, and blocks that are out. */
static void fill(stage *it)
{
    void *stripes[STRIPES];
    for (int i = 0; i < HELD; i++)
        it->held[i] = take_on(&it->scene, 1, it->held_bytes);
    for (int i = 0; i < STRIPES; i++)
        stripes[i] = take_on(&it->scene, 1 + i % (STREAMS - 1), STRIPE);
    for (int i = 0; i < STRIPES; i++)
        give_on(&it->scene, 1 + i % (STREAMS - 1), stripes[i], STRIPE);
    weir_thread_flush();
}

static void open_device(stage *it, bool no_ledger)
{
    *it = (stage){ .switches = { NEVER, NEVER, NEVER } };
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.memory_bytes = 64 * MIB;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.no_ledger = no_ledger;
    emulated.choose = choose;
    emulated.choose_context = it;
    weir_device_options device = WEIR_DEVICE_OPTIONS_INIT;
    device.emulated = &emulated;
    it->scene.device = open_with("emulated:0", &device);
    for (int i = 0; i < STREAMS; i++)
        it->scene.streams[i] = make_stream(it->scene.device, WEIR_STREAM_NON_BLOCKING);
}

static void stage_open(stage *it, bool is_fixed, bool no_ledger)
{
    open_device(it, no_ledger);
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    it->held_bytes = is_fixed ? STRIPE : 256;
    options.initial_bytes = HELD * it->held_bytes + STRIPES * STRIPE;
    if (is_fixed)
        options.limit_bytes = options.initial_bytes;
    options.growth_bytes = 8 * KIB;
    options.slack_bytes = 16 * KIB;
    weir_resource *leaf = open_leaf(it->scene.device);
    must_ok(weir_pool_create(leaf, &options, &it->scene.pool));
    weir_resource_unref(leaf);
    fill(it);
    it->choices = 0;
}

static void stage_close(stage *it)
{
    it->switched = SWITCHES - 1;
    plan_fault(it->scene.device, NULL, 0, false, WEIR_OK);
    weir__host_fail_at(0, false);
    verify(it);
    for (int i = 0; i < HELD; i++)
        give_up(it, it->scene.streams[1], it->held[i], it->held_bytes);
    must_equal(statistics_of(it->scene.pool).out_blocks, 0);
    must_ok(weir_device_sync(it->scene.device));
    weir_resource_statistics now = statistics_of(it->scene.pool);
    must_equal(now.free_bytes, now.held_bytes);
    (void)weir_resource_trim_sync(it->scene.pool, 0);
    must_equal(statistics_of(it->scene.pool).held_bytes, 0);
    close_scene(&it->scene);
}

/* ---- all windows of all ---- */

typedef struct pair {
    void (*first)(void *stage), (*second)(void *stage);
    bool is_fixed;
} pair;

typedef struct job {
    stage *it;
    void (*does)(void *stage);
    bool is_first;
} job;

static void do_job(void *argument)
{
    job *self = argument;
    self->does(self->it);
    if (self->is_first)
        self->it->is_through = self->it->switched == 0;
}

/* False: the first thread was through before it was held up. */
static bool run_with(const pair *both, const uint64_t *switches)
{
    stage it;
    stage_open(&it, both->is_fixed, both->second == takes_host_memory);
    memcpy(it.switches, switches, sizeof it.switches);
    job jobs[2] = { { &it, both->first, true }, { &it, both->second, false } };
    void *arguments[2] = { &jobs[0], &jobs[1] };
    must_ok(weir_emulated_run_threads(it.scene.device, 2, do_job, arguments));
    stage_close(&it);
    return !it.is_through;
}

/* The first is held up once, at each place, till the second is through. */
static uint64_t hold_up_everywhere(const pair *both, uint64_t step)
{
    uint64_t windows = 0;
    for (uint64_t at = 0;; at += step, windows++) {
        const uint64_t switches[SWITCHES] = { at, NEVER, NEVER };
        support_use_seed(at);
        if (!run_with(both, switches))
            return windows;
    }
}

/* Both are, here and there. */
static void switch_about(const pair *both, uint64_t run)
{
    uint64_t draws = support_seed(run), switches[SWITCHES], at = 0;
    for (int i = 0; i < SWITCHES; i++)
        switches[i] = at += support_random_below(&draws, 150);
    (void)run_with(both, switches);
}

#define PAIR(first, second) \
    { first, second, true }, { first, second, false }

static const pair pairs[] = {
    PAIR(asks, trades), PAIR(asks, gives_back), PAIR(asks, retires),
    PAIR(asks, captures), PAIR(asks, trims),
    PAIR(asks, comes_and_goes), PAIR(asks, waits_for_all),
    PAIR(asks, takes_host_memory), PAIR(asks, lets_waits_fail),
    PAIR(asks, lets_records_fail),
    PAIR(trims, asks), PAIR(trims, gives_back),
    PAIR(trims, captures), PAIR(trims, comes_and_goes), PAIR(trims, waits_for_all),
    PAIR(trims, lets_records_fail), PAIR(comes_and_goes, asks),
    PAIR(comes_and_goes, captures), PAIR(comes_and_goes, gives_back),
    PAIR(gives_back, asks), PAIR(gives_back, comes_and_goes), PAIR(captures, asks),
    PAIR(retires, asks),
    /* The last: who asks while a capture is on cannot know whether he is in it. */
    PAIR(asks, captures_there),
};
#define PAIRS (sizeof pairs / sizeof *pairs)

static void what_was_found_before_is_looked_for_again(void **state)
{
    (void)state;
    /* Each so many-th place. */
    uint64_t share = support_bound("test_pool_windows.share", 1, 16), windows = 0;
    for (size_t i = 0; i < PAIRS; i++)
        windows += hold_up_everywhere(&pairs[i], 17 - share);
    print_message("%llu windows\n", (unsigned long long)windows);
    must(windows > 4 * PAIRS);
}

static void threads_that_take_turns_get_what_is_theirs(void **state)
{
    (void)state;
    uint64_t runs = support_bound("test_pool_windows.runs", 4, 400);
    for (uint64_t run = 0; run < runs * (PAIRS - 2); run++)
        switch_about(&pairs[run % (PAIRS - 2)], run);
}

/* ---- how often ---- */

static void asks_once(void *argument)
{
    stage *it = argument;
    void *ptr = ask_for(it, it->scene.streams[0], 3 * KIB);
    it->is_through = true;
    give_up(it, it->scene.streams[0], ptr, 3 * KIB);
}

/* Two blocks again and again, with work on them; one of the two is always free. */
static void turns_two_over(void *argument)
{
    stage *it = argument;
    weir_stream stream = it->scene.streams[1];
    give_up(it, stream, it->held[1], STRIPE);
    it->held[1] = NULL;
    for (int i = 0; i < 500 && !it->is_through; i++) {
        give_up(it, stream, it->held[i % 2], STRIPE);
        weir_thread_flush();
        it->held[i % 2] = NULL;
        it->held[(i + 1) % 2] = ask_for(it, stream, STRIPE);
    }
}

/* Whatever comes back meanwhile: it waits for each of the others once, and for what it
 * then takes. */
static void who_asks_waits_for_all_no_more_than_once(void **state)
{
    (void)state;
    stage it;
    support_use_seed(0);
    stage_open(&it, true, false);
    uint64_t before = waits(&it.scene);
    it.takes_turns = true;
    job jobs[2] = { { &it, asks_once, true }, { &it, turns_two_over, false } };
    void *arguments[2] = { &jobs[0], &jobs[1] };
    must_ok(weir_emulated_run_threads(it.scene.device, 2, do_job, arguments));
    it.takes_turns = false;
    uint64_t waited = waits(&it.scene) - before;
    print_message("%llu waits\n", (unsigned long long)waited);
    must(waited >= STREAMS - 1 && waited <= STREAMS + 1);
    stage_close(&it);
}

/* ---- what is handed over ---- */

/* Of what is left one thread takes a block, with a magazine that was freed on another
 * stream; and another all the rest, also what comes with that block. */
#define LEFT   8
#define BEFORE 5 /* so often it has to find nothing on its stream: see pool_hit.c */

typedef struct taker {
    stage *it;
    int stream, before, count;
    bool is_first;
    uint64_t at; /* where it is held up, once it has found nothing so often */
} taker;

static void take_some(void *argument)
{
    taker *self = argument;
    stage *it = self->it;
    void *ptrs[BEFORE + LEFT];
    int count = self->before + self->count;
    for (int i = 0; i < count; i++) {
        if (i == self->before && self->is_first) {
            it->choices = 0;
            it->switches[0] = self->at;
            must_ok(weir_emulated_host_signal(it->scene.device, 1));
        } else if (i == 0 && self->stream == 2) {
            must_ok(weir_emulated_host_await(it->scene.device, 1));
        }
        ptrs[i] = take_on(&it->scene, self->stream, 256);
    }
    if (self->is_first)
        it->is_through = it->switched == 0;
    for (int i = 0; i < count; i++)
        give_on(&it->scene, self->stream, ptrs[i], 256);
}

static bool hand_over_at(uint64_t at)
{
    stage it;
    support_use_seed(at);
    open_device(&it, false);
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.initial_bytes = options.limit_bytes = (BEFORE + LEFT) * 256;
    options.cache_bytes = 6 * 256;
    weir_resource *leaf = open_leaf(it.scene.device);
    must_ok(weir_pool_create(leaf, &options, &it.scene.pool));
    weir_resource_unref(leaf);
    taker all[3] = { { &it, 1, BEFORE, 1, true, at },
                     { &it, 2, 0, LEFT - 1, false, 0 },
                     { &it, 0, 0, LEFT, false, 0 } };
    take_some(&all[2]); /* half of it is in the depot now */
    void *arguments[2] = { &all[0], &all[1] };
    must_ok(weir_emulated_run_threads(it.scene.device, 2, take_some, arguments));
    it.switched = SWITCHES - 1;
    close_scene(&it.scene);
    return !it.is_through;
}

static void what_is_handed_over_can_be_had(void **state)
{
    (void)state;
    uint64_t at = 0;
    while (hand_over_at(at))
        at++;
    print_message("%llu windows\n", (unsigned long long)at);
    must(at > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_found_before_is_looked_for_again),
        cmocka_unit_test(threads_that_take_turns_get_what_is_theirs),
        cmocka_unit_test(who_asks_waits_for_all_no_more_than_once),
        cmocka_unit_test(what_is_handed_over_can_be_had),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
