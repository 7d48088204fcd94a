/* model_counter.c - memory that is freed without the order (weir__order_steady), model-
 * checked: the order's own code, with the counters of its clocks on a simulated weak
 * memory, and all ways in which threads can free, close, take and wait.
 *
 * Three locks are all that the threads have in common: the pool's, the order's, and one
 * in the driver, which puts what is done on a stream into one order. An event is known
 * by where in that order it was recorded. Whoever takes a block for another stream is
 * to wait for an event behind the work that was last done on the block. */
#include <string.h>

#include "device/device.h"
#include "internal.h"
#include "support.h"
#include "support_weak.h"
#include "sync.h"

enum { POOL, ORDER, DRIVER };

typedef struct driver_event {
    uint32_t position; /* where it was recorded */
} driver_event;

static void counter_store(_Atomic uint64_t *counter, uint64_t number, memory_order by);
static weir_status driver_create(weir_event *out);
static weir_status driver_record(weir_event event);
static weir_status driver_wait(weir_stream stream, weir_event event);

/* The code of the order, with these in the place of the machine and the device. */
#undef atomic_load_explicit
#undef atomic_store_explicit
#define atomic_load_explicit(word, order)           weak_load(word, order)
#define atomic_store_explicit(word, value, order)   counter_store(word, value, order)
#define weir__mutex_lock(lock)                      weak_lock_ranked(ORDER)
#define weir__mutex_unlock(lock)                    weak_unlock_ranked(ORDER)
#define weir__event_create(device, out)             driver_create(out)
#define weir__event_record(device, event, stream)   driver_record(event)
#define weir__stream_wait_event(device, stream, event) driver_wait(stream, event)
#define weir__stream_is_capturing(device, stream, out) \
    ((void)(device), (void)(stream), *(out) = false, WEIR_OK)
#include "stream_order.c"

#define BLOCKS 2u
#define EVENTS 8u

enum { FREES, TAKES, TAKES_TOO, STREAMS };

static struct {
    weir_device device;
    weir__device_ops ops;
    weir__order order;
    weir__clock clocks[STREAMS];
    weir__cover covers[EVENTS];
    driver_event events[EVENTS];
    uint32_t events_made;
    uint32_t position;           /* of what was done last on the stream that frees */
    uint32_t behind[STREAMS];    /* the last position that each of them waits for */
    struct {
        weir__mark mark;
        uint32_t position;       /* of what was done with it last */
        bool is_free;
    } blocks[BLOCKS];
    uint64_t taken;              /* in all runs */
} now;

static uint64_t id_of(uint32_t stream)
{
    return stream + 1;
}

static weir_stream handle_of(uint32_t stream)
{
    return now.clocks[stream].stream;
}

/* ---- the driver ---- */

/* Whoever has the order's lock may load it without more ado. */
static void counter_store(_Atomic uint64_t *counter, uint64_t number, memory_order by)
{
    weak_store(counter, (uint32_t)number, by);
    *counter = number;
}

static uint32_t driver_does(void)
{
    weak_lock_ranked(DRIVER);
    uint32_t position = ++now.position;
    weak_unlock_ranked(DRIVER);
    return position;
}

static weir_status driver_create(weir_event *out)
{
    must(now.events_made < EVENTS);
    *out = (weir_event)(void *)&now.events[now.events_made++];
    return WEIR_OK;
}

static driver_event *event_of(weir_event event)
{
    return (driver_event *)(void *)event;
}

static weir_status driver_record(weir_event event)
{
    weak_lock_ranked(DRIVER);
    event_of(event)->position = ++now.position;
    weak_unlock_ranked(DRIVER);
    return WEIR_OK;
}

static weir_status driver_wait(weir_stream stream, weir_event event)
{
    uint32_t waiting = TAKES;
    while (handle_of(waiting) != stream)
        waiting++;
    weak_lock_ranked(DRIVER);
    if (now.behind[waiting] < event_of(event)->position)
        now.behind[waiting] = event_of(event)->position;
    weak_unlock_ranked(DRIVER);
    return WEIR_OK;
}

/* ---- what threads do ---- */

static void put_back(uint32_t block, uint32_t position, weir__mark mark)
{
    now.blocks[block].mark = mark;
    now.blocks[block].position = position;
    now.blocks[block].is_free = true;
}

/* As settle_spilt_locked of a pool: a number one above the counter. */
static void frees(uint32_t block)
{
    uint32_t position = driver_does();
    weak_lock_ranked(POOL);
    uint64_t number =
        weak_load(&now.clocks[FREES].counter, memory_order_relaxed) + UINT64_C(1);
    put_back(block, position, (weir__mark){ id_of(FREES), number });
    weak_unlock_ranked(POOL);
}

/* As weir__cache_empty, and a magazine that goes to the depot. */
static void frees_with_an_event(uint32_t block)
{
    uint32_t position = driver_does();
    weir__mark mark = weir__order_mark_closed(&now.order, id_of(FREES));
    weak_lock_ranked(POOL);
    put_back(block, position, mark);
    weak_unlock_ranked(POOL);
}

/* As close_sometimes, of the cache of another thread for that stream. */
static void closes(void)
{
    (void)weir__order_mark_closed(&now.order, id_of(FREES));
}

static void takes(uint32_t block, uint32_t stream)
{
    weak_lock_ranked(POOL);
    bool is_free = now.blocks[block].is_free;
    now.blocks[block].is_free = false;
    weak_unlock_ranked(POOL);
    if (!is_free)
        return;
    must_ok(weir__order_wait(&now.order, id_of(stream), handle_of(stream),
                             now.blocks[block].mark));
    must(now.behind[stream] >= now.blocks[block].position);
    now.taken++;
}

static void frees_one(void)
{
    frees(0);
}

static void frees_both(void)
{
    frees(0);
    frees(1);
}

static void frees_one_and_then_one_with_an_event(void)
{
    frees(0);
    frees_with_an_event(1);
}

static void takes_the_first(void)
{
    takes(0, TAKES);
}

static void takes_both(void)
{
    takes(0, TAKES);
    takes(1, TAKES);
}

static void takes_the_second(void)
{
    takes(1, TAKES_TOO);
}

/* ---- runs ---- */

static void clear(void)
{
    weir__order *order = &now.order;
    for (uint32_t i = 0; i < STREAMS; i++) {
        weir__clock_done(order, &now.clocks[i], UINT64_MAX);
        weir__behind_unref(now.clocks[i].behind);
    }
}

static void begin(void)
{
    weir__order *order = &now.order;
    uint64_t taken = now.taken;
    memset(&now, 0, sizeof now);
    now.taken = taken;
    now.device.ops = &now.ops;
    order->device = &now.device;
    order->live = STREAMS;
    for (uint32_t i = 0; i < STREAMS; i++) {
        weir__clock *clock = &now.clocks[i];
        clock->id = id_of(i);
        clock->kind = WEIR__CLOCK_KNOWN;
        clock->stream = (weir_stream)(void *)clock;
        order->by_id[clock->id % CLOCK_BUCKETS] = clock;
    }
    for (uint32_t i = 0; i < EVENTS; i++) {
        now.covers[i].next = order->spare_covers;
        order->spare_covers = &now.covers[i];
    }
    order->clock_count = STREAMS;
    order->spare_count = order->cover_total = EVENTS;
}

static void begin_again(void)
{
    clear();
    begin();
}

static void explore(weak_program program)
{
    program.words[0] = &now.clocks[FREES].counter;
    program.end = begin_again;
    now.taken = 0;
    begin();
    weak_explore(&program);
    clear();
    must(now.taken > 0);
}

static void one_frees_one_takes(void **state)
{
    (void)state;
    explore((weak_program){ .what = "frees both, takes both", .threads = 2,
                            .play = { frees_both, takes_both } });
}

static void one_frees_one_closes_one_takes(void **state)
{
    (void)state;
    explore((weak_program){ .what = "frees, closes, takes", .threads = 3,
                            .play = { frees_one, closes, takes_the_first } });
}

static void one_frees_two_take(void **state)
{
    (void)state;
    explore((weak_program){
        .what = "frees both, two take", .threads = 3,
        .play = { frees_both, takes_the_first, takes_the_second } });
}

static void one_frees_and_closes_one_takes(void **state)
{
    (void)state;
    explore((weak_program){
        .what = "frees, frees with an event, takes both", .threads = 2,
        .play = { frees_one_and_then_one_with_an_event, takes_both } });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_frees_one_takes),
        cmocka_unit_test(one_frees_one_closes_one_takes),
        cmocka_unit_test(one_frees_two_take),
        cmocka_unit_test(one_frees_and_closes_one_takes),
    };
    return cmocka_run_group_tests_name("the counter of a clock", tests, NULL, NULL);
}
