/* test_pool_meanwhile.c - what other threads do while one is between two steps of a
 * request, a trim or a flush, in every way in which they can interleave with a bounded
 * number of switches. */
#include "internal.h"
#include "pool_internal.h"
#include "resource_parts.h"
#include "support_explore.h"
#include "support_scene.h"
#include "weir/weir.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

typedef struct stage {
    weir_device *device;
    weir_resource *pool;
    weir_stream own, other;
    void *mine, *theirs;
    uint64_t gate;
    size_t trimmed;
} stage;

static explorer explore_begin(void)
{
    explorer self = { 0 };
    self.most_switches = (uint32_t)support_bound("test_pool_meanwhile.switches", 2, 3);
    return self;
}

static stage stage_open(explorer *self, const weir_pool_options *options)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.choose = explore_choose;
    emulated.choose_context = self;
    weir_device_options device = WEIR_DEVICE_OPTIONS_INIT;
    device.emulated = &emulated;
    stage it = { .device = open_with("emulated:0", &device) };
    weir_resource *leaf;
    must_ok(weir_resource_open(it.device, "device", &leaf));
    must_ok(weir_pool_create(leaf, options, &it.pool));
    weir_resource_unref(leaf);
    return it;
}

static void stage_close(stage *it)
{
    weir_resource_unref(it->pool);
    close_emulated(it->device);
}

/* ---- a stream that comes ---- */

static void takes_of_one_that_ended(void *argument)
{
    stage *it = argument;
    it->mine = take(it->pool, it->own, 256);
    stamp(it->device, it->own, it->mine, 256, 1);
}

static void comes_and_takes(void *argument)
{
    stage *it = argument;
    it->other = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    it->theirs = take(it->pool, it->other, 512);
    stamp(it->device, it->other, it->theirs, 512, 2);
}

/* Two blocks that do not lie side by side, and that work still uses of a stream that
 * has ended: *between is what parts them. */
static void leave_two(stage *it, void **between)
{
    const size_t rest = MIB - 2 * 512;
    weir_stream gone = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    void *small = take(it->pool, gone, 512);
    *between = take(it->pool, gone, 512);
    void *large = take(it->pool, gone, rest);
    must_ok(weir_emulated_stall(it->device, gone, &it->gate));
    stamp(it->device, gone, large, rest, 3);
    stamp(it->device, gone, small, 512, 3);
    give(it->pool, gone, large, rest);
    give(it->pool, gone, small, 512);
    weir_thread_flush();
    end_stream(it->device, gone);
}

/* A request of the only stream cuts no piece for it of what another has left; by the
 * time it has waited there may be a second, for which nobody has. */
static void what_one_waits_for_is_done_for_nobody_else(void **state)
{
    (void)state;
    explorer self = explore_begin();
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = MIB;
    options.slack_bytes = 64 * KIB;
    options.exact = true;
    do {
        stage it = stage_open(&self, &options);
        void *between;
        leave_two(&it, &between);
        it.own = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        self.active = true;
        run_both(it.device, takes_of_one_that_ended, comes_and_takes, &it);
        self.active = false;
        must_ok(weir_emulated_open_gate(it.device, it.gate));
        must_ok(weir_device_sync(it.device));
        must_be_quiet(it.device);
        give(it.pool, it.own, it.mine, 256);
        give(it.pool, it.own, between, 512);
        give(it.pool, it.other, it.theirs, 512);
        end_stream(it.device, it.own);
        end_stream(it.device, it.other);
        stage_close(&it);
    } while (explore_next(&self));
    must(self.runs > 10);
}

/* ---- a trim that waits ---- */

static void trims(void *argument)
{
    stage *it = argument;
    it->trimmed = weir_resource_trim_sync(it->pool, 0);
}

/* What the trim waits for ends only after this thread's calls. */
static void goes_on(void *argument)
{
    stage *it = argument;
    it->theirs = take(it->pool, it->other, 64 * KIB);
    must_ok(weir_emulated_open_gate(it->device, it->gate));
}

static void others_go_on_while_a_trim_waits(void **state)
{
    (void)state;
    explorer self = explore_begin();
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = MIB;
    options.slack_bytes = 8 * MIB; /* so it grows for the other */
    stage it = stage_open(&self, &options);
    it.own = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.other = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    do {
        it.mine = take(it.pool, it.own, MIB);
        must_ok(weir_emulated_stall(it.device, it.own, &it.gate));
        stamp(it.device, it.own, it.mine, MIB, 1);
        give(it.pool, it.own, it.mine, MIB);
        self.active = true;
        run_both(it.device, trims, goes_on, &it);
        self.active = false;
        must_equal(it.trimmed, MIB);
        give(it.pool, it.other, it.theirs, 64 * KIB);
        must_ok(weir_device_sync(it.device)); /* each run begins with nothing */
        (void)weir_resource_trim_sync(it.pool, 0);
        must_equal(statistics_of(it.pool).held_bytes, 0);
        must_be_quiet(it.device);
    } while (explore_next(&self));
    end_stream(it.device, it.own);
    end_stream(it.device, it.other);
    stage_close(&it);
}

/* ---- a flush ---- */

/* What the thread has freed is everybody's afterwards. */
static void flushes(void *argument)
{
    stage *it = argument;
    void *ptr = take(it->pool, it->own, 256);
    give(it->pool, it->own, ptr, 256);
    weir_thread_flush();
    weir__pool *pool = it->pool->self;
    weir__mutex_lock(&pool->lock);
    must_equal(pool->heap.taken_blocks, 0);
    weir__mutex_unlock(&pool->lock);
}

static void asks(void *argument)
{
    stage *it = argument;
    (void)statistics_of(it->pool);
}

static void a_flush_waits_for_who_only_looks(void **state)
{
    (void)state;
    explorer self = explore_begin();
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    stage it = stage_open(&self, &options);
    it.own = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    do {
        self.active = true;
        run_both(it.device, flushes, asks, &it);
        self.active = false;
    } while (explore_next(&self));
    end_stream(it.device, it.own);
    stage_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_one_waits_for_is_done_for_nobody_else),
        cmocka_unit_test(others_go_on_while_a_trim_waits),
        cmocka_unit_test(a_flush_waits_for_who_only_looks),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
