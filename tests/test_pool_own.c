/* test_pool_own.c - a thread's own stream, the per-thread default stream: its handle is
 * another stream on each thread. */
#include "support_actor.h"

#define SMALL ((size_t)256)

typedef struct own_capture {
    pool_scene *it;
    blocks one;
    uint64_t gate;
    weir_capture *capture;
} own_capture;

/* Of the thread's own stream, which is at work for a block that is free by then. */
static void begin_own_capture(void *argument)
{
    own_capture *self = argument;
    weir_device *device = self->it->device;
    take_blocks(&self->one);
    stamp(device, WEIR_STREAM_PER_THREAD, self->one.ptrs[0], SMALL, 1);
    must_ok(weir_emulated_stall(device, WEIR_STREAM_PER_THREAD, &self->gate));
    check_stamp(device, WEIR_STREAM_PER_THREAD, self->one.ptrs[0], SMALL, 1);
    give_blocks(&self->one);
    must_ok(weir_capture_begin(self->it->pool, WEIR_STREAM_PER_THREAD, &self->capture));
}

/* On whose own stream nothing is at work: what is asked of that says nothing about the
 * other's. */
static void another_thread_ends_a_capture(void **state)
{
    (void)state;
    pool_scene it = open_cached(2 * SMALL, 0);
    blocks one = { it.pool, WEIR_STREAM_PER_THREAD, SMALL, 1, { NULL } };
    own_capture own = { &it, one, 0, NULL };
    actor *other = actor_begin();
    actor_does(other, begin_own_capture, &own);
    must_ok(weir_capture_end(own.capture));
    must_ok(weir_capture_release(own.capture, it.streams[0]));
    for (int i = 0; i < 8; i++) { /* so many that clocks are dropped that are done */
        actor *brief = actor_begin();
        actor_does(brief, turn_over_blocks, &one);
        actor_end(brief);
    }
    blocks both = { it.pool, it.streams[1], SMALL, 2, { NULL } };
    take_blocks(&both);
    for (int i = 0; i < both.count; i++)
        stamp(it.device, it.streams[1], both.ptrs[i], SMALL, 2);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[1]));
    open_gate(&it, own.gate);
    must_ok(weir_stream_sync(it.device, it.streams[1]));
    give_blocks(&both);
    actor_end(other);
    close_scene(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_thread_ends_a_capture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
