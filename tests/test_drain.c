/* test_drain.c - weir_device_drain_sync beside calls that look, lack memory, or are
 * about to give back: what is in nobody's list is in somebody's hands. */
#include <string.h>

#include "support_buffer.h"
#include "support_scene.h"
#include "support_work.h"

/* ---- buffers that leave something behind ---- */

static weir_buffer adopted(buffer_scene *it, weir_deleter deleter, void *context)
{
    static char bytes[64];
    weir_foreign foreign = WEIR_FOREIGN_INIT;
    foreign.ptr = bytes;
    foreign.bytes = sizeof bytes;
    foreign.kind = WEIR_MEMORY_HOST;
    foreign.ignores_stream = true;
    foreign.deleter = deleter;
    foreign.context = context;
    weir_buffer buffer;
    must_ok(weir_buffer_adopt(it->device, it->b, &foreign, &buffer));
    return buffer;
}

/* Ended while its stream is stalled, which goes on then: the deleter waits for a call
 * that looks. */
static void leave(buffer_scene *it, weir_deleter deleter, void *context)
{
    uint64_t gate = stall_stream(it, it->b);
    weir_buffer buffer = adopted(it, deleter, context);
    weir_buffer_reset(&buffer);
    open_stream(it, gate);
}

/* ---- beside who looks ---- */

#define DRAINED 20

typedef struct crowd {
    buffer_scene it;
    uint32_t ends;   /* deleters that have run */
    uint32_t early;  /* drains that returned before */
} crowd;

static void ends_one(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    crowd *self = context;
    (void)ptr;
    (void)bytes;
    (void)stream;
    must_ok(weir_device_drain_sync(self->it.device)); /* waits for nobody */
    self->ends++;
}

static void looks_again_and_again(void *argument)
{
    crowd *self = argument;
    for (int i = 0; i < 2 * DRAINED; i++)
        look_in_vain(&self->it);
}

static void leaves_and_drains(void *argument)
{
    crowd *self = argument;
    for (uint32_t i = 0; i < DRAINED; i++) {
        leave(&self->it, ends_one, self);
        must_ok(weir_device_drain_sync(self->it.device));
        self->early += self->ends != i + 1;
    }
}

/* What another thread looks at is in no list meanwhile, and is waited for. */
static void who_drains_waits_for_who_looks(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("seeds of drains beside looks", 40, 400);
    for (uint64_t i = 0; i < seeds; i++) {
        (void)support_seed(i);
        crowd self = { .it = buffer_scene_open() };
        run_both(self.it.device, leaves_and_drains, looks_again_and_again, &self);
        must_equal(self.early, 0);
        must_equal(self.ends, DRAINED);
        buffer_scene_close(&self.it);
    }
}

/* ---- what cannot be waited for ---- */

static void ends_one_alone(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    uint32_t *ends = context;
    (void)ptr;
    (void)bytes;
    (void)stream;
    (*ends)++;
}

/* A capture would be spoilt by the wait: all stays where it was, for the next. */
static void a_drain_that_fails_ends_nothing(void **state)
{
    (void)state;
    for (int captures = 0; captures < 2; captures++) {
        buffer_scene it = buffer_scene_open();
        stranger other = stranger_come(&it);
        weir_buffer unnamed = make_buffer(&it, it.a, KIB);
        uint32_t ends = 0;
        use_unnamed(&other, &unnamed);
        leave(&it, ends_one_alone, &ends);
        const weir_pending before = pending_of(it.device);
        must(before.deferred_count == 1 && before.limbo_count == 1);
        if (captures)
            must_ok(weir_emulated_capture_begin(it.device, it.a));
        else
            plan_fault(it.device, "device_sync", 1, false, WEIR_DEVICE_ERROR);
        must_answer(captures ? WEIR_CAPTURING : WEIR_DEVICE_ERROR,
                    weir_device_drain_sync(it.device));
        if (captures)
            must_ok(weir_emulated_capture_end(it.device, it.a, NULL));
        const weir_pending after = pending_of(it.device);
        must(memcmp(&after, &before, sizeof after) == 0);
        must_equal(ends, 0);
        must_ok(weir_device_drain_sync(it.device));
        must_equal(ends, 1);
        must_equal(pending_of(it.device).limbo_count, 0);
        stranger_go(&other);
        buffer_scene_close(&it);
    }
}

/* ---- beside who lacks memory ---- */

typedef struct needy {
    buffer_scene it;
    stranger other;
    weir_status got;
} needy;

/* Called by who drains. */
static void takes_all(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    needy *self = context;
    (void)ptr;
    (void)bytes;
    (void)stream;
    weir_buffer half = make_buffer(&self->it, self->it.a, SMALL_SCENE_BYTES / 2), all;
    use_unnamed(&self->other, &half);
    self->got = weir_buffer_allocate(self->it.pool, self->it.a, SMALL_SCENE_BYTES,
                                     WEIR_ALIGNMENT, &all);
    weir_buffer_reset(&all);
}

static void who_lacks_memory_has_limbo_beside_a_drain(void **state)
{
    (void)state;
    needy self = { .it = small_scene_open() };
    self.other = stranger_come(&self.it);
    leave(&self.it, takes_all, &self);
    self.got = WEIR_DEVICE_LOST;
    must_ok(weir_device_drain_sync(self.it.device));
    must_ok(self.got);
    must_ok(weir_device_drain_sync(self.it.device));
    stranger_go(&self.other);
    buffer_scene_close(&self.it);
}

/* ---- deleters that wait for each other ---- */

static void is_begun_and_waits(void *context, void *ptr, size_t bytes,
                               weir_stream stream)
{
    weir_device *device = context;
    (void)ptr;
    (void)bytes;
    (void)stream;
    must_ok(weir_emulated_host_signal(device, 1));
    must_ok(weir_emulated_host_await(device, 2));
}

static void drains(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    (void)ptr;
    (void)bytes;
    (void)stream;
    must_ok(weir_device_drain_sync(context));
}

static void looks_until_it_is_done(void *argument)
{
    buffer_scene *it = argument;
    while (pending_of(it->device).deferred_count > 0)
        look_in_vain(it);
}

/* At once, for nothing was put on the stream. */
static void resets_and_then_says_so(void *argument)
{
    buffer_scene *it = argument;
    must_ok(weir_emulated_host_await(it->device, 1));
    weir_buffer buffer = adopted(it, drains, it->device);
    weir_buffer_reset(&buffer);
    must_ok(weir_emulated_host_signal(it->device, 2));
}

static void who_drains_in_a_deleter_waits_for_no_other(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    leave(&it, is_begun_and_waits, it.device);
    must_equal(pending_of(it.device).deferred_count, 1);
    must_ok(weir_stream_sync(it.device, it.b));
    run_both(it.device, looks_until_it_is_done, resets_and_then_says_so, &it);

    /* After that who looks finds what there is. */
    leave(&it, drains, it.device);
    must_equal(pending_of(it.device).deferred_count, 1);
    must_ok(weir_stream_sync(it.device, it.b));
    look_in_vain(&it);
    must_equal(pending_of(it.device).deferred_count, 0);
    buffer_scene_close(&it);
}

/* ---- what follows ---- */

#define CHAINED 5

typedef struct chain {
    buffer_scene it;
    uint32_t ends;
} chain;

static void leaves_the_next(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    chain *self = context;
    (void)ptr;
    (void)bytes;
    (void)stream;
    if (++self->ends < CHAINED)
        leave(&self->it, leaves_the_next, self);
}

/* Else it would keep the device open: nobody comes by after the drain. */
static void what_deleters_leave_is_drained_too(void **state)
{
    (void)state;
    chain self = { .it = buffer_scene_open() };
    leave(&self.it, leaves_the_next, &self);
    must_equal(pending_of(self.it.device).deferred_count, 1);
    must_ok(weir_device_drain_sync(self.it.device));
    must_equal(pending_of(self.it.device).deferred_count, 0);
    must_equal(self.ends, CHAINED);
    buffer_scene_close(&self.it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_drains_waits_for_who_looks),
        cmocka_unit_test(a_drain_that_fails_ends_nothing),
        cmocka_unit_test(who_lacks_memory_has_limbo_beside_a_drain),
        cmocka_unit_test(who_drains_in_a_deleter_waits_for_no_other),
        cmocka_unit_test(what_deleters_leave_is_drained_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
