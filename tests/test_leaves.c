/* test_leaves.c - the leaves device, system and callback: what they keep, when they
 * free it, and what they tell. */
#include "support_leaf.h"

#include <string.h>

#include "weir/capture.h"
#include "weir/leaves.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

/* ---- keeping ---- */

static void leaf_keeps_what_is_in_use_until_it_is_done(void **state)
{
    (void)state;
    scene s = scene_begin(1, "device");
    size_t before = device_free_bytes(s.device);
    void *ptr = take(s.mr, s.a, MIB);
    uint64_t gate = scene_stall(&s, s.a);
    stamp(s.device, s.a, ptr, MIB, 1);
    give(s.mr, s.a, ptr, MIB);

    weir_resource_statistics now = statistics_of(s.mr);
    must_equal(now.out_bytes, 0);
    must_equal(now.held_bytes, MIB);
    must_equal(now.kept_bytes, MIB);
    must_equal(now.free_blocks, 1);
    must(device_free_bytes(s.device) < before);

    scene_open_gate(&s, gate);
    must_equal(weir_resource_trim_sync(s.mr, 0), MIB); /* waits for the kernel */
    now = statistics_of(s.mr);
    must_equal(now.held_bytes, 0);
    must_equal(now.peak_held_bytes, MIB);
    must_equal(now.allocations, 1);
    must_equal(now.deallocations, 1);
    must_equal(device_free_bytes(s.device), before);
    must_equal(weir_resource_trim_sync(s.mr, 0), 0);
    scene_end(&s);
}

/* On a lone stream nobody records events; the leaf has to see to it. */
static void leaf_frees_what_is_done_above_its_bound(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(2));
    weir_resource *mr;
    must_ok(weir_device_resource_create(device, &mr));
    size_t most = 0;
    for (int i = 0; i < 400; i++) {
        void *ptr = take(mr, NULL, MIB);
        stamp(device, NULL, ptr, MIB, (uint64_t)i);
        give(mr, NULL, ptr, MIB);
        for (bool stepped = true; stepped;) /* done, but nobody has told Weir */
            must_ok(weir_emulated_step(device, &stepped));
        size_t kept = statistics_of(mr).kept_bytes;
        most = kept > most ? kept : most;
    }
    must(most > 4 * MIB);
    must(most <= WEIR_LEAF_KEEP_BYTES + MIB);
    weir_resource_unref(mr);
    close_emulated(device);
}

static void leaf_trims_to_what_it_may_keep(void **state)
{
    (void)state;
    scene s = scene_begin(3, "device");
    void *out = take(s.mr, s.a, 5 * MIB);
    void *back = take(s.mr, s.b, MIB);
    give(s.mr, s.b, back, MIB);
    must_equal(weir_resource_trim_sync(s.mr, 6 * MIB), 0);
    must_equal(weir_resource_trim_sync(s.mr, MIB), MIB); /* what is out stays */
    must_equal(statistics_of(s.mr).held_bytes, 5 * MIB);
    give(s.mr, s.a, out, 5 * MIB);
    scene_end(&s);
}

static void leaf_keeps_for_many_streams(void **state)
{
    (void)state;
    size_t count = (size_t)support_bound("streams with kept memory", 300, 3000);
    weir_device *device = open_stepped(support_seed(4));
    weir_resource *mr;
    must_ok(weir_device_resource_create(device, &mr));
    for (size_t i = 0; i < count; i++) {
        weir_stream s = make_stream(device, WEIR_STREAM_NON_BLOCKING);
        void *ptr = take(mr, s, 256);
        stamp(device, s, ptr, 256, i);
        give(mr, s, ptr, 256);
        end_stream(device, s);
    }
    must_equal(statistics_of(mr).kept_bytes, 256 * count);
    must_equal(weir_resource_trim_sync(mr, 0), 256 * count);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* ---- points ---- */

/* Frees behind points of `count` stalled streams, whose gates open one by one: the
 * memory may go only behind the last. */
static void free_behind_points(size_t count)
{
    scene s = scene_begin(5 + count, "device");
    weir_stream streams[6];
    uint64_t gates[6];
    weir_point points[7];
    void *ptr = take(s.mr, s.a, MIB);
    for (size_t i = 0; i < count; i++) {
        streams[i] = make_stream(s.device, WEIR_STREAM_NON_BLOCKING);
        must_ok(weir_stream_wait(s.device, streams[i], s.a)); /* has the block now */
        gates[i] = scene_stall(&s, streams[i]);
        must_ok(weir_point_here(s.device, streams[i], &points[i]));
    }
    must_ok(weir_point_here(s.device, streams[0], &points[count])); /* once more */
    must(weir_deallocate_after(s.mr, ptr, MIB, WEIR_ALIGNMENT, points, count + 1));
    must_equal(statistics_of(s.mr).set_aside_bytes, count > 4 ? MIB : 0);

    for (size_t i = 0; i < count; i++) {
        /* An allocate that cannot be served frees what is done, and nothing else. */
        void *none;
        must_answer(WEIR_OUT_OF_MEMORY,
                    weir_allocate(s.mr, s.a, 64 * GIB, WEIR_ALIGNMENT, &none));
        must_equal(statistics_of(s.mr).kept_bytes, MIB);
        scene_open_gate(&s, gates[count - 1 - i]);
        must_ok(weir_stream_sync(s.device, streams[count - 1 - i]));
    }
    must_equal(weir_resource_trim_sync(s.mr, 0), MIB);
    for (size_t i = 0; i < count; i++)
        end_stream(s.device, streams[i]);
    scene_end(&s);
}

static void leaf_frees_behind_all_points(void **state)
{
    (void)state;
    for (size_t count = 1; count <= 6; count++)
        free_behind_points(count);
}

static void leaf_needs_no_points(void **state)
{
    (void)state;
    scene s = scene_begin(12, "device");
    void *ptr = take(s.mr, s.a, MIB);
    must_ok(weir_stream_sync(s.device, s.a));
    uint64_t gate = scene_stall(&s, s.a);
    must(weir_deallocate_after(s.mr, ptr, MIB, WEIR_ALIGNMENT, NULL, 0));
    must_equal(weir_resource_trim_sync(s.mr, 0), MIB); /* nobody waits for a */
    scene_open_gate(&s, gate);
    scene_end(&s);
}

/* One thread gives back what it has waited for itself, behind no point; another frees
 * it, and nothing but the leaf tells it that the work is done. */
typedef struct role {
    scene *s;
    bool gives;
} role;

static void play(void *argument)
{
    const role *self = argument;
    scene *s = self->s;
    if (self->gives) {
        void *ptr = take(s->mr, s->a, MIB);
        stamp(s->device, s->a, ptr, MIB, 3);
        must_ok(weir_stream_sync(s->device, s->a));
        must(weir_deallocate_after(s->mr, ptr, MIB, WEIR_ALIGNMENT, NULL, 0));
        return;
    }
    while (weir_resource_trim_sync(s->mr, 0) == 0)
        continue;
}

static void what_one_thread_knows_done_another_may_free(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        scene s = scene_begin(seed, "device");
        role giver = { &s, true }, freer = { &s, false };
        void *const both[] = { &giver, &freer };
        must_ok(weir_emulated_run_threads(s.device, 2, play, both));
        scene_end(&s);
    }
}

/* ---- captures ---- */

static void leaf_keeps_what_a_capture_has(void **state)
{
    (void)state;
    scene s = scene_begin(13, "device");
    weir_capture *capture;
    void *inside[2];
    must_ok(weir_capture_begin(s.mr, s.a, &capture));
    for (int i = 0; i < 2; i++)
        inside[i] = take(s.mr, s.a, MIB);
    give(s.mr, s.a, inside[0], MIB);
    weir_point point;
    must_ok(weir_point_here(s.device, s.b, &point));
    must(weir_deallocate_after(s.mr, inside[1], MIB, WEIR_ALIGNMENT, &point, 1));
    must_ok(weir_capture_end(capture));

    must_equal(weir_resource_trim_sync(s.mr, 0), 0);
    must_equal(statistics_of(s.mr).kept_bytes, 2 * MIB);
    must_ok(weir_capture_release(capture, s.a));
    must_equal(weir_resource_trim_sync(s.mr, 0), 2 * MIB);
    scene_end(&s);
}

/* ---- out of memory ---- */

static void leaf_waits_for_kept_memory_before_it_fails(void **state)
{
    (void)state;
    scene s = scene_begin(14, "device");
    void *ptr = take(s.mr, s.a, 3 * GIB);
    stamp(s.device, s.a, ptr, 3 * GIB, 7);
    give(s.mr, s.a, ptr, 3 * GIB);
    ptr = take(s.mr, s.b, 3 * GIB);
    must_equal(statistics_of(s.mr).held_bytes, 3 * GIB);
    give(s.mr, s.b, ptr, 3 * GIB);
    scene_end(&s);
}

static void leaf_frees_what_is_done_before_it_waits(void **state)
{
    (void)state;
    scene s = scene_begin(15, "device");
    void *stalled = take(s.mr, s.a, GIB);
    uint64_t gate = scene_stall(&s, s.a);
    stamp(s.device, s.a, stalled, GIB, 1);
    give(s.mr, s.a, stalled, GIB);
    void *done = take(s.mr, s.b, 2 * GIB);
    give(s.mr, s.b, done, 2 * GIB);

    done = take(s.mr, s.b, 5 * GIB / 2); /* the gate is closed: a wait would not end */
    give(s.mr, s.b, done, 5 * GIB / 2);
    scene_open_gate(&s, gate);
    scene_end(&s);
}

static void leaf_tells_what_it_knows_when_out_of_memory(void **state)
{
    (void)state;
    scene s = scene_begin(16, "device");
    void *out = take(s.mr, s.b, GIB), *none = &s;
    void *kept = take(s.mr, s.a, GIB);
    uint64_t gate = scene_stall(&s, s.a);
    give(s.mr, s.a, kept, GIB);

    /* Not even all that is kept would do: it does not wait for the closed gate. */
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(s.mr, s.b, 4 * GIB, WEIR_ALIGNMENT, &none));
    must(none == NULL);
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.requested_bytes, 4 * GIB);
    must_equal(report.held_bytes, 2 * GIB);
    must_equal(report.in_use_bytes, GIB);
    must_equal(report.limit_bytes, SIZE_MAX);
    must_equal(report.largest_free_bytes, device_free_bytes(s.device));
    assert_string_equal(report.resource, "device");
    must(strstr(weir_last_error().message, "4294967296") != NULL);
    must_equal(statistics_of(s.mr).failures, 1);

    must_ok(weir_allocate(s.mr, s.b, 2 * GIB, WEIR_ALIGNMENT, &kept));
    give(s.mr, s.b, kept, 2 * GIB);
    give(s.mr, s.b, out, GIB);
    scene_open_gate(&s, gate);
    scene_end(&s);
}

/* ---- a device that fails ---- */

static void leaf_keeps_what_the_device_does_not_take(void **state)
{
    (void)state;
    scene s = scene_begin(17, "device");
    void *ptr = take(s.mr, s.a, MIB);
    give(s.mr, s.a, ptr, MIB);
    plan_fault(s.device, "free", 1, false, WEIR_DEVICE_ERROR);
    must_equal(weir_resource_trim_sync(s.mr, 0), 0);
    must_equal(statistics_of(s.mr).kept_bytes, MIB);

    misuse_log log;
    misuse_begin(&log);
    must(!weir_deallocate(s.mr, s.a, ptr, MIB, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, ptr);
    misuse_end();

    must_answer(WEIR_DEVICE_ERROR, weir_allocate(s.mr, s.a, 1, WEIR_ALIGNMENT, &ptr));
    ptr = take(s.mr, s.a, 1); /* told once */
    must_equal(weir_resource_trim_sync(s.mr, 0), MIB);
    give(s.mr, s.a, ptr, 1);
    scene_end(&s);
}

static void leaf_does_not_try_for_ever(void **state)
{
    (void)state;
    scene s = scene_begin(18, "device");
    void *ptr = take(s.mr, s.a, 3 * GIB), *none;
    give(s.mr, s.a, ptr, 3 * GIB);
    plan_fault(s.device, "free", 1, true, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR,
                weir_allocate(s.mr, s.a, 2 * GIB, WEIR_ALIGNMENT, &none));
    must_equal(weir_resource_trim_sync(s.mr, 0), 0);
    plan_fault(s.device, NULL, 0, false, WEIR_OK);
    must_answer(WEIR_DEVICE_ERROR,
                weir_allocate(s.mr, s.a, 2 * GIB, WEIR_ALIGNMENT, &none));
    must_equal(weir_resource_trim_sync(s.mr, 0), 3 * GIB);
    scene_end(&s);
}

static void leaf_leaks_when_the_device_is_lost(void **state)
{
    (void)state;
    scene s = scene_begin(19, "device");
    void *a = take(s.mr, s.a, MIB), *b = take(s.mr, s.b, MIB), *none;
    stamp(s.device, s.a, a, MIB, 1);
    give(s.mr, s.a, a, MIB);
    plan_fault(s.device, "malloc", 1, true, WEIR_DEVICE_LOST);
    must_answer(WEIR_DEVICE_LOST, weir_allocate(s.mr, s.a, 1, WEIR_ALIGNMENT, &none));
    must_answer(WEIR_DEVICE_LOST, weir_allocate(s.mr, s.a, 1, WEIR_ALIGNMENT, &none));
    give(s.mr, s.b, b, MIB);
    must_equal(statistics_of(s.mr).out_blocks, 0);
    must_equal(weir_resource_trim_sync(s.mr, 0), 0);
    weir_resource_unref(s.mr);
    must_equal(weir_last_error().status, WEIR_DEVICE_LOST);
    must(strstr(weir_last_error().message, "leaks 2097152 bytes in 2 blocks") != NULL);
    close_anyhow(s.device);
}

/* ---- misuse ---- */

static void leaf_tells_misuse_apart(void **state)
{
    (void)state;
    static const char *const specs[] = { "device", "system" };
    for (size_t i = 0; i < 2; i++) {
        scene s = scene_begin(20 + i, specs[i]);
        misuse_log log;
        misuse_begin(&log);
        void *ptr = take(s.mr, s.a, 1000);
        must(!weir_deallocate(s.mr, s.a, ptr, 1001, WEIR_ALIGNMENT));
        must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, ptr);
        must(!weir_deallocate(s.mr, s.a, ptr, 1000, 128));
        must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, ptr);
        must(!weir_deallocate(s.mr, s.a, ptr, 0, WEIR_ALIGNMENT));
        must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, ptr);
        must(!weir_deallocate(s.mr, s.a, (char *)ptr + 256, 744, WEIR_ALIGNMENT));
        must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, (char *)ptr + 256);
        must_equal(statistics_of(s.mr).out_bytes, 1000);
        give(s.mr, s.a, ptr, 1000);
        must(!weir_deallocate(s.mr, s.a, ptr, 1000, WEIR_ALIGNMENT));
        must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, ptr);
        must(!weir_deallocate_after(s.mr, ptr, 1000, WEIR_ALIGNMENT, NULL, 0));
        must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, ptr);
        must_equal(weir_resource_trim_sync(s.mr, 0), 1000);
        must(!weir_deallocate(s.mr, s.a, ptr, 1000, WEIR_ALIGNMENT));
        must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, ptr); /* the device's again */
        misuse_end();
        scene_end(&s);
    }
}

typedef struct racer {
    scene *s;
    void *ptr;
    bool won;
} racer;

static void free_it(void *argument)
{
    racer *self = argument;
    self->won = weir_deallocate(self->s->mr, self->s->a, self->ptr, 64, WEIR_ALIGNMENT);
}

static void two_frees_that_race_have_one_winner(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("seeds of racing frees", 50, 1000);
    for (uint64_t seed = 0; seed < seeds; seed++) {
        scene s = scene_begin(seed, "device");
        misuse_log log;
        misuse_begin(&log);
        racer racers[2] = { { &s, take(s.mr, s.a, 64), false } };
        racers[1] = racers[0];
        void *const arguments[] = { &racers[0], &racers[1] };
        must_ok(weir_emulated_run_threads(s.device, 2, free_it, arguments));
        must(racers[0].won != racers[1].won);
        must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, racers[0].ptr);
        must_equal(statistics_of(s.mr).deallocations, 1);
        misuse_end();
        scene_end(&s);
    }
}

/* ---- system and callback ---- */

static void system_memory_is_the_hosts_too(void **state)
{
    (void)state;
    scene s = scene_begin(23, "system");
    unsigned char *ptr;
    must_ok(weir_allocate(s.mr, s.a, 10000, 4096, (void **)&ptr));
    must((uintptr_t)ptr % 4096 == 0);
    stamp(s.device, s.a, ptr, 10000, 9);
    check_stamp(s.device, s.a, ptr, 10000, 9);
    must_ok(weir_stream_sync(s.device, s.a));
    unsigned char byte = ptr[9999];
    ptr[9999] = (unsigned char)(byte + 1);
    check_stamp(s.device, s.a, ptr, 10000, 9);
    must_ok(weir_stream_sync(s.device, s.a));
    must_equal(take_stamp_errors(), 1);
    must(weir_deallocate(s.mr, s.a, ptr, 10000, 4096));
    void *none;
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(s.mr, s.a, 1, 8192, &none));
    scene_end(&s);
}

typedef struct giver {
    weir_resource *from;
    int destroyed;
    weir_stream back_on;
    void *same;  /* if set, answered for ever */
    weir_status status;
} giver;

static weir_status giver_allocate(void *context, weir_stream stream,
                                  size_t bytes, size_t alignment, void **out)
{
    giver *self = context;
    if (self->status != WEIR_OK)
        return self->status;
    if (self->same != NULL) {
        *out = self->same;
        return WEIR_OK;
    }
    return weir_allocate(self->from, stream, bytes, alignment, out);
}

static void giver_deallocate(void *context, weir_stream stream,
                             void *ptr, size_t bytes, size_t alignment)
{
    giver *self = context;
    self->back_on = stream;
    must(weir_deallocate(self->from, stream, ptr, bytes, alignment));
}

static void giver_destroy(void *context)
{
    giver *self = context;
    self->destroyed++;
    weir_resource_unref(self->from);
}

static void callback_asks_the_callers_functions(void **state)
{
    (void)state;
    scene s = scene_begin(24, "device");
    giver self = { .from = weir_resource_ref(s.mr) };
    const weir_callbacks calls = { .struct_size = sizeof calls,
                                   .allocate = giver_allocate,
                                   .deallocate = giver_deallocate,
                                   .destroy = giver_destroy };
    weir_resource *mr;
    must_ok(weir_callback_create(s.device, &calls, &self, &mr));
    void *a = take(mr, s.a, 500), *none;
    must_equal(statistics_of(s.mr).out_bytes, 500);

    misuse_log log;
    misuse_begin(&log);
    must(!weir_deallocate(mr, s.a, a, 400, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, a);
    must_equal(statistics_of(s.mr).out_bytes, 500); /* they are not asked */
    misuse_end();

    /* What they answer is passed on, with a sentence where they have none. */
    self.status = WEIR_LIMIT_REACHED;
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(mr, s.a, 5, WEIR_ALIGNMENT, &none));
    must_equal(weir_last_error().status, WEIR_LIMIT_REACHED);
    self.status = WEIR_OK;
    self.same = a;
    must_answer(WEIR_DEVICE_ERROR, weir_allocate(mr, s.a, 5, WEIR_ALIGNMENT, &none));
    must_equal(statistics_of(mr).out_bytes, 500);
    must_equal(statistics_of(mr).failures, 2);

    must_ok(weir_stream_wait(s.device, s.b, s.a));
    must(weir_deallocate(mr, s.b, a, 500, WEIR_ALIGNMENT));
    must(self.back_on == s.b);
    weir_resource_unref(mr);
    must_equal(self.destroyed, 1);

    weir_callbacks bad = calls;
    bad.deallocate = NULL;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_callback_create(s.device, &bad, &self, &mr));
    must(mr == NULL);
    must_equal(self.destroyed, 1);
    scene_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaf_keeps_what_is_in_use_until_it_is_done),
        cmocka_unit_test(leaf_frees_what_is_done_above_its_bound),
        cmocka_unit_test(leaf_trims_to_what_it_may_keep),
        cmocka_unit_test(leaf_keeps_for_many_streams),
        cmocka_unit_test(leaf_frees_behind_all_points),
        cmocka_unit_test(leaf_needs_no_points),
        cmocka_unit_test(what_one_thread_knows_done_another_may_free),
        cmocka_unit_test(leaf_keeps_what_a_capture_has),
        cmocka_unit_test(leaf_waits_for_kept_memory_before_it_fails),
        cmocka_unit_test(leaf_frees_what_is_done_before_it_waits),
        cmocka_unit_test(leaf_tells_what_it_knows_when_out_of_memory),
        cmocka_unit_test(leaf_keeps_what_the_device_does_not_take),
        cmocka_unit_test(leaf_does_not_try_for_ever),
        cmocka_unit_test(leaf_leaks_when_the_device_is_lost),
        cmocka_unit_test(leaf_tells_misuse_apart),
        cmocka_unit_test(two_frees_that_race_have_one_winner),
        cmocka_unit_test(system_memory_is_the_hosts_too),
        cmocka_unit_test(callback_asks_the_callers_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
