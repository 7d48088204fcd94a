/* test_pool_twice.c - two threads give the same large block back at the same moment:
 * one of them is refused at once, and told, whoever is held up between his look and the
 * lock. What stacks take: test_pool_lost.c. */
#include <stdatomic.h>

#include "device/device.h"
#include "pool_internal.h"
#include "resource_parts.h"
#include "support_actor.h"
#include "support_explore.h"
#include "support_hits.h"
#include "support_scene.h"

#define BYTES  ((size_t)253) /* asked for; whole blocks are larger */
#define LARGE  ((size_t)16 * 256) /* no stack takes it: who frees it claims it */
#define ROUNDS 200

typedef struct pair {
    pool_scene scene;
    atomic_uint told;
    void *ptr;
    int given;
    uint32_t turns; /* so many large blocks each thread turns over before */
} pair;

static void hears_of_pair(void *context, const weir_misuse *misuse)
{
    pair *it = context;
    must(misuse->kind == WEIR_MISUSE_DOUBLE_FREE && misuse->ptr == it->ptr &&
         misuse->bytes == LARGE);
    atomic_fetch_add(&it->told, 1);
}

static void gives_large(void *argument)
{
    pair *it = argument;
    const weir_stream s = it->scene.streams[0];
    give(it->scene.pool, s, take(it->scene.pool, s, BYTES), BYTES); /* a cache */
    for (uint32_t i = 0; i < it->turns; i++) {
        const size_t bytes = (2 + i % 2) * LARGE; /* not what was kept before */
        give(it->scene.pool, s, take(it->scene.pool, s, bytes), bytes);
    }
    it->given += weir_deallocate(it->scene.pool, s, it->ptr, LARGE, WEIR_ALIGNMENT);
}

static void come_back_once(int rounds, uint32_t turns)
{
    pair it = { .scene = open_cached(0, 0), .turns = turns };
    weir_set_misuse_handler(hears_of_pair, &it);
    for (int round = 0; round < rounds; round++) {
        it.ptr = take(it.scene.pool, it.scene.streams[0], LARGE);
        it.given = 0;
        must_ok(weir_emulated_run_threads(it.scene.device, 2, gives_large,
                                          (void *[]){ &it, &it }));
        must_equal(it.given, 1);
        must_equal(atomic_load(&it.told), round + 1);
        must_equal(statistics_of(it.scene.pool).out_blocks, 0);
        (void)cached_in(it.scene.pool); /* looks them over */
    }
    weir_set_misuse_handler(NULL, NULL);
    close_scene(&it.scene);
}

static void large_blocks_come_back_once(void **state)
{
    (void)state;
    come_back_once(ROUNDS, 0);
}

/* The same where nobody else wants any: then each would keep it, without the lock. */
static void large_blocks_are_kept_once(void **state)
{
    (void)state;
    come_back_once(ROUNDS / 10, 2 * WEIR__POOL_QUIET_AFTER);
}

/* ---- and by who says of which clock it is ---- */

typedef struct meeting {
    weir_device *device;
    weir_resource *pool;
    weir_stream stream;
    uint64_t clock;
    void *ptr;
    atomic_uint told;
} meeting;

static void hears_at(void *context, const weir_misuse *misuse)
{
    meeting *it = context;
    must(misuse->kind == WEIR_MISUSE_DOUBLE_FREE && misuse->ptr == it->ptr);
    atomic_fetch_add(&it->told, 1);
}

static void gives(void *argument)
{
    meeting *it = argument;
    (void)weir_deallocate(it->pool, it->stream, it->ptr, LARGE, WEIR_ALIGNMENT);
}

/* As a holder does, on a thread that handed it out: in a run no seat is quick unless a
 * ledger listens, and no ledger is told of what is of a clock. */
static void gives_of_a_clock(void *argument)
{
    meeting *it = argument;
    weir__pool *pool = it->pool->self;
    give(it->pool, it->stream, take(it->pool, it->stream, BYTES), BYTES);
    weir__seat *seat = weir__own_thread.seat;
    seat->quick = pool;
    weir__recent_set(seat, it->ptr, weir__heap_find(&pool->heap, it->ptr),
                     weir__cache_last_offset());
    if (!weir__deallocate_of(it->pool, it->stream, it->clock, it->ptr, LARGE,
                             WEIR_ALIGNMENT))
        gives(it);
}

/* What was refused has been told: whoever asked has nothing left to do, and does not
 * try once more. */
static void what_was_told_is_told_once(void **state)
{
    (void)state;
    explorer self = { .most_switches = 3 };
    do {
        weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
        emulated.scheduler = WEIR_EMULATED_STEPPED;
        emulated.choose = explore_choose;
        emulated.choose_context = &self;
        emulated.no_ledger = true;
        weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
        options.emulated = &emulated;
        meeting it = { .device = open_with("emulated:0", &options) };
        weir_set_misuse_handler(hears_at, &it);
        must_ok(weir_resource_open(it.device, "pool/device", &it.pool));
        it.stream = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        must_ok(weir__order_clock(it.device->order, it.stream, &it.clock));
        it.ptr = take(it.pool, it.stream, LARGE);
        self.active = true;
        run_both(it.device, gives_of_a_clock, gives, &it);
        self.active = false;
        must_equal(atomic_load(&it.told), 1);
        must_equal(statistics_of(it.pool).out_blocks, 0);
        weir_set_misuse_handler(NULL, NULL);
        end_stream(it.device, it.stream);
        weir_resource_unref(it.pool);
        close_emulated(it.device);
    } while (explore_next(&self));
    must(self.runs > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_blocks_come_back_once),
        cmocka_unit_test(large_blocks_are_kept_once),
        cmocka_unit_test(what_was_told_is_told_once),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
