/* test_order_gpu.c - stream order on a CUDA device, with streams that are stalled.
 *
 * In each case a kernel that reads a block waits behind a closed gate while the block
 * is given back and taken by somebody else, who writes it. The reader must still find
 * what it was promised: so the writer waits too, and that is seen before the gate opens
 * and in the contents after.
 *
 * While a gate is closed nothing is asked of CUDA that may wait for all kernels, such
 * as memory: what a case needs it has drawn before. */
#include <string.h>

#include "gpu/support_gpu.h"
#include "weir/weir.h"

#define BYTES ((size_t)1 << 20)

/* A pool with room for one block, so that who takes next gets the same. */
#define ONE_BLOCK "pool(initial=1MiB, limit=1MiB, cache=none)/"

typedef struct scene {
    weir_device *device;
    weir_resource *mr;
    weir_stream a, b, c;  /* non-blocking */
    weir_stream blocking;
    weir_stream aside;    /* non-blocking too, and never stalled */
} scene;

static void scene_open(scene *s, const char *spec)
{
    s->device = open_threads();
    s->mr = open_or_leave_out(s->device, spec);
    s->a = make_stream(s->device, WEIR_STREAM_NON_BLOCKING);
    s->b = make_stream(s->device, WEIR_STREAM_NON_BLOCKING);
    s->c = make_stream(s->device, WEIR_STREAM_NON_BLOCKING);
    s->aside = make_stream(s->device, WEIR_STREAM_NON_BLOCKING);
    s->blocking = make_stream(s->device, WEIR_STREAM_BLOCKING);
}

static void scene_close(scene *s)
{
    must_ok(weir_device_sync(s->device));
    weir_resource_unref(s->mr);
    end_stream(s->device, s->a);
    end_stream(s->device, s->b);
    end_stream(s->device, s->c);
    end_stream(s->device, s->aside);
    end_stream(s->device, s->blocking);
    close_emulated(s->device);
}

/* A block that a kernel behind the gate will read on `stream`, under key 1. */
static void *take_and_stall(scene *s, weir_stream stream, unsigned *gate)
{
    void *ptr = take(s->mr, stream, BYTES);
    stamp(s->device, stream, ptr, BYTES, 1);
    *gate = put_gate(stream);
    check_stamp(s->device, stream, ptr, BYTES, 1);
    return ptr;
}

/* `stream` takes the block that is still to be read, and writes it. */
static void take_over(scene *s, weir_stream stream, const void *ptr)
{
    must(take(s->mr, stream, BYTES) == ptr);
    stamp(s->device, stream, (void *)(uintptr_t)ptr, BYTES, 2);
    must_be_waiting(s->device, stream, s->aside);
}

/* The gate is open, or about to be. */
static void give_over(scene *s, weir_stream stream, void *ptr)
{
    check_stamp(s->device, stream, ptr, BYTES, 2);
    give(s->mr, stream, ptr, BYTES);
}

static void hand_on(scene *s, weir_stream from, weir_stream to)
{
    unsigned gate;
    void *ptr = take_and_stall(s, from, &gate);
    give(s->mr, from, ptr, BYTES);
    take_over(s, to, ptr);
    open_gate(gate);
    give_over(s, to, ptr);
}

/* ---- streams of each kind ---- */

static void memory_waits_for_the_stream_it_comes_from(void **state)
{
    (void)state;
    scene s;
    scene_open(&s, ONE_BLOCK "device");
    hand_on(&s, s.a, s.b);
    hand_on(&s, s.b, s.a);
    scene_close(&s);
}

/* With an event for a non-blocking stream, by CUDA's own rule for a blocking one. */
static void memory_waits_for_the_legacy_stream(void **state)
{
    (void)state;
    scene s;
    scene_open(&s, ONE_BLOCK "device");
    hand_on(&s, NULL, s.a);
    hand_on(&s, s.a, NULL);
    hand_on(&s, NULL, s.blocking);
    hand_on(&s, s.blocking, NULL);
    hand_on(&s, s.blocking, s.a);
    scene_close(&s);
}

/* What CUDA says of work, Weir takes to hold of an event on its own: that on a blocking
 * stream it is behind earlier work of the legacy stream, and the other way round. */
static void event_follows_the_rule(scene *s, weir_stream from, weir_stream over)
{
    weir_event event;
    void *ptr = take(s->mr, from, BYTES);
    must_ok(weir_event_create(s->device, &event));
    unsigned gate = put_gate(from);
    stamp(s->device, from, ptr, BYTES, 1);
    must_ok(weir_event_record(s->device, over, event));
    must_ok(weir_stream_wait_event(s->device, s->a, event));
    check_stamp(s->device, s->a, ptr, BYTES, 1);
    must_be_waiting(s->device, s->a, s->aside);
    open_gate(gate);
    must_ok(weir_event_destroy(s->device, event));
    give(s->mr, s->a, ptr, BYTES);
    must_ok(weir_device_sync(s->device));
}

static void an_event_is_work_to_the_rule_of_the_legacy_stream(void **state)
{
    (void)state;
    scene s;
    scene_open(&s, ONE_BLOCK "device");
    event_follows_the_rule(&s, NULL, s.blocking);
    event_follows_the_rule(&s, s.blocking, NULL);
    scene_close(&s);
}

/* Over a stream that follows `from` by that rule and on which nothing is put. */
static void hand_on_over(scene *s, weir_stream from, weir_stream over, weir_stream to)
{
    unsigned gate;
    void *ptr = take_and_stall(s, from, &gate);
    give(s->mr, from, ptr, BYTES);
    must(take(s->mr, over, BYTES) == ptr);
    give(s->mr, over, ptr, BYTES);
    take_over(s, to, ptr);
    open_gate(gate);
    give_over(s, to, ptr);
    must_ok(weir_device_sync(s->device));
}

static void memory_waits_for_all_that_it_has_passed(void **state)
{
    (void)state;
    scene s;
    scene_open(&s, ONE_BLOCK "device");
    hand_on_over(&s, NULL, s.blocking, s.a);
    hand_on_over(&s, s.blocking, NULL, s.a);
    hand_on_over(&s, s.a, s.b, s.c);
    hand_on_over(&s, s.a, NULL, s.blocking);
    scene_close(&s);
}

typedef struct passing {
    scene *s;
    bool is_giver;
    void **ptr;
    unsigned *gate;
} passing;

static void pass_between_threads(void *argument)
{
    passing *self = argument;
    scene *s = self->s;
    weir_stream own = WEIR_STREAM_PER_THREAD;
    if (self->is_giver) {
        *self->ptr = take_and_stall(s, own, self->gate);
        give(s->mr, own, *self->ptr, BYTES);
        must_ok(support_host_signal(s->device, 1));
        must_ok(support_host_await(s->device, 2)); /* its stream lives so long */
        return;
    }
    must_ok(support_host_await(s->device, 1));
    take_over(s, own, *self->ptr);
    open_gate(*self->gate);
    give_over(s, own, *self->ptr);
    must_ok(support_host_signal(s->device, 2));
}

static void memory_waits_for_another_threads_stream(void **state)
{
    (void)state;
    scene s;
    void *ptr;
    unsigned gate;
    scene_open(&s, ONE_BLOCK "device");
    passing giver = { &s, true, &ptr, &gate }, taker = { &s, false, &ptr, &gate };
    void *const arguments[] = { &giver, &taker };
    must_ok(support_run_threads(s.device, 2, pass_between_threads, arguments));
    scene_close(&s);
}

/* ---- streams that end ---- */

/* Makes streams until one has the handle of `ended`; the last made, in any case. */
static size_t make_until(weir_stream ended, weir_stream *made, size_t most)
{
    size_t count = 0;
    do
        must_cuda(cudaStreamCreateWithFlags(&made[count], cudaStreamNonBlocking));
    while (made[count++] != ended && count < most);
    if (made[count - 1] != ended)
        print_message("no handle was used again among %zu streams\n", count);
    return count;
}

/* The race of rmm#2489: a stream that Weir knows nothing of ends with work on it, and
 * another gets its handle. */
static void memory_waits_for_a_stream_whose_handle_is_used_again(void **state)
{
    (void)state;
    enum { MOST = 4 };
    scene s;
    unsigned gate;
    weir_stream ended, made[MOST];
    scene_open(&s, ONE_BLOCK "device");
    must_cuda(cudaStreamCreateWithFlags(&ended, cudaStreamNonBlocking));
    void *ptr = take_and_stall(&s, ended, &gate);
    give(s.mr, ended, ptr, BYTES);
    must_cuda(cudaStreamDestroy(ended));
    size_t count = make_until(ended, made, MOST);
    take_over(&s, made[count - 1], ptr);
    open_gate(gate);
    give_over(&s, made[count - 1], ptr);
    while (count > 0)
        must_cuda(cudaStreamDestroy(made[--count]));
    scene_close(&s);
}

static void end_and_hand_on(scene *s, weir_stream_kind kind, weir_stream to)
{
    unsigned gate;
    weir_stream retired = make_stream(s->device, kind);
    void *ptr = take_and_stall(s, retired, &gate);
    give(s->mr, retired, ptr, BYTES);
    end_stream(s->device, retired);
    take_over(s, to, ptr);
    open_gate(gate);
    give_over(s, to, ptr);
}

/* Nothing is said of a blocking stream that has ended and the legacy stream. */
static void memory_waits_for_a_retired_stream(void **state)
{
    (void)state;
    scene s;
    scene_open(&s, ONE_BLOCK "device");
    end_and_hand_on(&s, WEIR_STREAM_NON_BLOCKING, s.b);
    end_and_hand_on(&s, WEIR_STREAM_BLOCKING, s.b);
    end_and_hand_on(&s, WEIR_STREAM_BLOCKING, NULL);
    scene_close(&s);
}

/* ---- points, and what waits for nothing ---- */

static void memory_waits_for_each_point_it_was_given_behind(void **state)
{
    (void)state;
    scene s;
    unsigned gates[2];
    weir_point points[2];
    scene_open(&s, ONE_BLOCK "device");
    void *ptr = take(s.mr, s.a, BYTES);
    stamp(s.device, s.a, ptr, BYTES, 1);
    must_ok(weir_stream_wait(s.device, s.b, s.a));
    gates[0] = put_gate(s.a);
    gates[1] = put_gate(s.b);
    check_stamp(s.device, s.a, ptr, BYTES, 1);
    check_stamp(s.device, s.b, ptr, BYTES, 1);
    must_ok(weir_point_here(s.device, s.a, &points[0]));
    must_ok(weir_point_here(s.device, s.b, &points[1]));
    must(weir_deallocate_after(s.mr, ptr, BYTES, WEIR_ALIGNMENT, points, 2));
    take_over(&s, s.c, ptr);
    open_gate(gates[0]);
    must_be_waiting(s.device, s.c, s.aside);
    open_gate(gates[1]);
    give_over(&s, s.c, ptr);
    scene_close(&s);
}

/* Neither for later work of the stream it comes from nor for a later event there. */
static void memory_waits_for_nothing_put_later(void **state)
{
    (void)state;
    scene s;
    unsigned gates[2];
    weir_resource *second;
    scene_open(&s, ONE_BLOCK "device");
    must_ok(weir_resource_open(s.device, ONE_BLOCK "device", &second));
    give(s.mr, s.b, take(s.mr, s.b, BYTES), BYTES);
    give(second, s.a, take(second, s.a, BYTES), BYTES);
    void *ptr = take_and_stall(&s, s.a, &gates[0]);
    give(s.mr, s.a, ptr, BYTES);
    gates[1] = put_gate(s.a);
    give(second, s.a, take(second, s.a, BYTES), BYTES);
    take_over(&s, s.b, ptr);
    open_gate(gates[0]);
    give_over(&s, s.b, ptr);
    must_ok(weir_stream_sync(s.device, s.b)); /* or the second gate gives up */
    open_gate(gates[1]);
    weir_resource_unref(second);
    scene_close(&s);
}

/* Only who asks for another stream's memory waits for it. */
static void own_memory_waits_for_nobody(void **state)
{
    (void)state;
    scene s;
    unsigned gate;
    scene_open(&s, "pool(initial=4MiB, limit=4MiB)/device");
    void *stalled = take_and_stall(&s, s.a, &gate);
    give(s.mr, s.a, stalled, BYTES);
    for (int i = 0; i < 100; i++) {
        void *ptr = take(s.mr, s.b, BYTES);
        must(ptr != stalled);
        stamp(s.device, s.b, ptr, BYTES, 2);
        give_over(&s, s.b, ptr);
    }
    must_ok(weir_stream_sync(s.device, s.b)); /* or the gate gives up */
    open_gate(gate);
    scene_close(&s);
}

/* ---- leaves ---- */

/* cudaFree would wait for the kernel, or not and let it fault. */
static void the_device_leaf_frees_nothing_that_is_in_use(void **state)
{
    (void)state;
    scene s;
    unsigned gate;
    scene_open(&s, "device");
    void *other = take(s.mr, s.b, BYTES);
    void *ptr = take_and_stall(&s, s.a, &gate);
    uint64_t frees = calls_of(s.device).free;
    give(s.mr, s.a, ptr, BYTES);
    stamp(s.device, s.b, other, BYTES, 2);
    give_over(&s, s.b, other);
    must_equal(calls_of(s.device).free, frees);
    must_equal(statistics_of(s.mr).kept_bytes, 2 * BYTES);
    open_gate(gate);
    must_equal(weir_resource_trim_sync(s.mr, 0), 2 * BYTES);
    must_equal(calls_of(s.device).free, frees + 2);
    scene_close(&s);
}

static void must_hold_byte(scene *s, const void *ptr, int value)
{
    static unsigned char copied[BYTES];
    must_ok(weir_copy_sync(s->device, s->a, copied, ptr, BYTES));
    for (size_t i = 0; i < BYTES; i++)
        must_equal(copied[i], value);
}

/* A copy out of pinned memory is pending when it is given back, and another into it is
 * put on the stream that takes it. */
static void pinned_memory_waits_for_its_copies(void **state)
{
    (void)state;
    scene s;
    weir_resource *leaf;
    scene_open(&s, ONE_BLOCK "pinned");
    must_ok(weir_device_resource_create(s.device, &leaf));
    void *first = take(leaf, s.a, BYTES), *second = take(leaf, s.b, BYTES);
    must_ok(weir_fill(s.device, s.b, second, 2, BYTES));
    void *staging = take(s.mr, s.a, BYTES);
    memset(staging, 1, BYTES);
    unsigned gate = put_gate(s.a);
    must_ok(weir_copy(s.device, s.a, first, staging, BYTES));
    give(s.mr, s.a, staging, BYTES);
    must(take(s.mr, s.b, BYTES) == staging);
    must_ok(weir_copy(s.device, s.b, staging, second, BYTES));
    must_be_waiting(s.device, s.b, s.aside);
    open_gate(gate);
    must_hold_byte(&s, first, 1);
    must_ok(weir_stream_sync(s.device, s.b));
    must_equal(((unsigned char *)staging)[BYTES - 1], 2);
    give(s.mr, s.b, staging, BYTES);
    give(leaf, s.a, first, BYTES);
    give(leaf, s.b, second, BYTES);
    weir_resource_unref(leaf);
    scene_close(&s);
}

/* The driver may give it to another stream with a wait of its own, or other memory. */
static void the_drivers_pool_keeps_order(void **state)
{
    (void)state;
    scene s;
    scene_open(&s, *state);
    void *first = take(s.mr, s.a, BYTES), *second = take(s.mr, s.b, BYTES);
    give(s.mr, s.a, first, BYTES);
    give(s.mr, s.b, second, BYTES);
    for (uint64_t i = 0; i < 20; i++) {
        unsigned gate;
        void *ptr = take_and_stall(&s, s.a, &gate);
        give(s.mr, s.a, ptr, BYTES);
        void *other = take(s.mr, s.b, BYTES);
        stamp(s.device, s.b, other, BYTES, 2);
        if (i % 4 == 0)
            let_others_run(s.aside);
        open_gate(gate);
        give_over(&s, s.b, other);
    }
    scene_close(&s);
}

int main(void)
{
    static char pools[][24] = { "async", "pool/async", "async(pool=default)" };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_is_work_to_the_rule_of_the_legacy_stream),
        cmocka_unit_test(memory_waits_for_the_stream_it_comes_from),
        cmocka_unit_test(memory_waits_for_the_legacy_stream),
        cmocka_unit_test(memory_waits_for_all_that_it_has_passed),
        cmocka_unit_test(memory_waits_for_another_threads_stream),
        cmocka_unit_test(memory_waits_for_a_stream_whose_handle_is_used_again),
        cmocka_unit_test(memory_waits_for_a_retired_stream),
        cmocka_unit_test(memory_waits_for_each_point_it_was_given_behind),
        cmocka_unit_test(memory_waits_for_nothing_put_later),
        cmocka_unit_test(own_memory_waits_for_nobody),
        cmocka_unit_test(the_device_leaf_frees_nothing_that_is_in_use),
        cmocka_unit_test(pinned_memory_waits_for_its_copies),
        cmocka_unit_test_prestate(the_drivers_pool_keeps_order, pools[0]),
        cmocka_unit_test_prestate(the_drivers_pool_keeps_order, pools[1]),
        cmocka_unit_test_prestate(the_drivers_pool_keeps_order, pools[2]),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
