/* test_checking_calls.c - `checking` where a check cannot be made, or is made on other
 * terms: captures, stalled streams, device calls that fail, no memory, threads, and the
 * ledger of an emulated device. Where the program does nothing wrong, nothing is found.
 */
#include "support.h"

#include <stdio.h>
#include <string.h>

#include "checking_parts.h"
#include "internal.h"
#include "resource_internal.h"
#include "support_leaf.h"
#include "weir/capture.h"
#include "weir/checking.h"
#include "weir/leaves.h"
#include "weir/resource_ops.h"

#define KIB ((size_t)1024)

static weir_checking_statistics counts_of(weir_resource *mr)
{
    weir_checking_statistics out = { .struct_size = sizeof out };
    must_ok(weir_checking_get_statistics(mr, &out));
    return out;
}

static void must_find_nothing(weir_resource *mr)
{
    uint64_t found = 99;
    must_ok(weir_checking_check_sync(mr, &found));
    must_equal(found, 0);
}

static void do_nothing(void *argument, void *const views[])
{
    (void)argument;
    (void)views;
}

/* A kernel that says that it touches one byte. */
static void touch(scene *s, weir_stream stream, void *ptr, ptrdiff_t at,
                  weir_emulated_access access)
{
    const weir_emulated_range range = { (char *)ptr + at, 1, access };
    must_ok(weir_emulated_launch(s->device, stream, do_nothing, NULL, &range, 1));
}

/* ---- the ledger ---- */

static void must_have_found(scene *s, size_t index, const char *words)
{
    weir_emulated_finding finding = { .struct_size = sizeof finding };
    must_equal(weir_emulated_findings(s->device), index + 1);
    must_ok(weir_emulated_get_finding(s->device, index, &finding));
    if (strstr(finding.message, words) == NULL)
        print_error("not \"%s\": %s\n", words, finding.message);
    must(strstr(finding.message, words) != NULL);
}

static void ledger_finds_it_at_once(void **state)
{
    (void)state;
    scene s = scene_begin(1, "checking(guard=100B)/pool/device");
    char words[100];
    void *ptr = take(s.mr, s.a, 1000);
    for (ptrdiff_t at = 0; at < 1000; at += 333)
        touch(&s, s.a, ptr, at, WEIR_EMULATED_READ_WRITE);
    must_equal(weir_emulated_findings(s.device), 0);
    touch(&s, s.a, ptr, 1000, WEIR_EMULATED_READ);
    snprintf(words, sizeof words, "past the end of the block of 1000 bytes at %p", ptr);
    must_have_found(&s, 0, words);
    touch(&s, s.a, ptr, 1099, WEIR_EMULATED_WRITE);
    must_have_found(&s, 1, "kernel writes on stream");
    touch(&s, s.a, ptr, -100, WEIR_EMULATED_WRITE);
    must_have_found(&s, 2, "before the start of the block of 1000 bytes");
    give(s.mr, s.a, ptr, 1000);
    must_equal(weir_emulated_findings(s.device), 3); /* our own looks are none */
    touch(&s, s.a, ptr, 500, WEIR_EMULATED_READ);
    must_have_found(&s, 3, "gave them back");
    must_find_nothing(s.mr); /* nothing was really written */

    /* What were guards are no more: others may have the bytes. */
    weir_resource_unref(s.mr);
    must_ok(weir_resource_open(s.device, "pool/device", &s.mr));
    ptr = take(s.mr, s.a, 8 * KIB * KIB);
    stamp(s.device, s.a, ptr, 8 * KIB * KIB, 1);
    give(s.mr, s.a, ptr, 8 * KIB * KIB);
    must_equal(weir_emulated_findings(s.device), 4);
    weir_resource_unref(s.mr);
    end_stream(s.device, s.a);
    end_stream(s.device, s.b);
    close_anyhow(s.device);
}

/* ---- captures ---- */

static void nothing_is_put_on_streams_that_are_captured(void **state)
{
    (void)state;
    scene s = scene_begin(2, "checking(strict)/pool/device");
    void *before = take(s.mr, s.a, 1000), *second = take(s.mr, s.a, 1000), *ptr = &s;
    weir_capture *capture;
    size_t captured;
    must_equal(counts_of(s.mr).not_checked, 0);
    must_ok(weir_capture_begin(s.mr, s.a, &capture));
    must_ok(weir_emulated_capture_begin(s.device, s.a));
    void *of_capture = take(s.mr, s.a, 1000), *kept = take(s.mr, s.a, 1000);
    must_equal(counts_of(s.mr).not_checked, 2);
    give(s.mr, s.a, of_capture, 1000);
    must_equal(counts_of(s.mr).not_checked, 3);
    must_answer(WEIR_CAPTURING, weir_checking_check_sync(s.mr, NULL));
    must_ok(weir_emulated_capture_end(s.device, s.a, &captured));
    must_equal(captured, 0);
    must_ok(weir_capture_end(capture));
    give(s.mr, s.a, kept, 1000);
    must_ok(weir_capture_release(capture, s.a));
    must_equal(counts_of(s.mr).quarantine_blocks, 0);

    /* One that Weir is not told of. */
    must_ok(weir_emulated_capture_begin(s.device, s.a));
    must_answer(WEIR_CAPTURING,
                weir_allocate(s.mr, s.a, 1000, WEIR_ALIGNMENT, &ptr));
    must(ptr == NULL);
    must_equal(statistics_of(s.mr).failures, 1);
    give(s.mr, s.a, before, 1000);
    must_ok(weir_emulated_capture_end(s.device, s.a, &captured));
    must_equal(captured, 0);
    must_equal(counts_of(s.mr).not_checked, 5);
    give(s.mr, s.a, second, 1000);
    must_equal(counts_of(s.mr).quarantine_blocks, 1);
    must_find_nothing(s.mr);
    scene_end(&s);
}

/* ---- streams that stand still ---- */

static void streams_that_stand_still_stop_nobody(void **state)
{
    (void)state;
    scene s = scene_begin(3, "checking(quarantine=100KiB)/pool/device");
    weir_device_calls before = calls_of(s.device);
    uint64_t gate = scene_stall(&s, s.a);
    for (int i = 0; i < 40; i++) {
        void *ptr = take(s.mr, i % 2 == 0 ? s.a : s.b, 20 * KIB);
        stamp(s.device, i % 2 == 0 ? s.a : s.b, ptr, 20 * KIB, (uint64_t)i + 1);
        give(s.mr, i % 2 == 0 ? s.a : s.b, ptr, 20 * KIB);
        must(counts_of(s.mr).quarantine_bytes <= 200 * KIB);
    }
    weir_device_calls after = calls_of(s.device);
    must_equal(after.stream_sync + after.event_sync + after.device_sync,
               before.stream_sync + before.event_sync + before.device_sync);
    must(counts_of(s.mr).not_checked > 0);
    weir_resource_statistics now = statistics_of(s.mr);
    must_equal(now.out_bytes, 0);
    must_equal(now.kept_bytes, counts_of(s.mr).quarantine_bytes);
    scene_open_gate(&s, gate);
    must_find_nothing(s.mr);
    must_equal(statistics_of(s.mr).kept_bytes, 0);
    must(counts_of(s.mr).looks > 0);
    scene_end(&s);
}

static void work_that_is_never_done_finds_nothing(void **state)
{
    (void)state;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_NO_WORK;
    emulated.no_ledger = true;
    options.emulated = &emulated;
    weir_device *device = open_with("emulated:0", &options);
    weir_resource *mr;
    must_ok(weir_resource_open(device, "checking/pool/device", &mr));
    for (int i = 0; i < 20; i++)
        give(mr, NULL, take(mr, NULL, 5000), 5000);
    must_find_nothing(mr);
    must(counts_of(mr).looks > 0);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* ---- memory ---- */

static void quarantine_gives_way(void **state)
{
    (void)state;
    scene s = scene_begin(4, "checking(quarantine=1MiB)/limiting(1MiB)/device");
    void *ptr = take(s.mr, s.a, 700 * KIB), *none;
    give(s.mr, s.a, ptr, 700 * KIB);
    must_equal(counts_of(s.mr).quarantine_blocks, 1);
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(s.mr, s.a, 2000 * KIB, WEIR_ALIGNMENT, &none));
    must_equal(counts_of(s.mr).quarantine_blocks, 0);
    ptr = take(s.mr, s.a, 700 * KIB);
    give(s.mr, s.a, ptr, 700 * KIB);
    ptr = take(s.mr, s.b, 800 * KIB);
    must_equal(counts_of(s.mr).quarantine_bytes, 0);
    must_equal(statistics_of(s.mr).failures, 1);
    give(s.mr, s.b, ptr, 800 * KIB);
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(s.mr, s.a, SIZE_MAX - 300,
                                                  WEIR_ALIGNMENT, &none));
    must(none == NULL);
    (void)weir_resource_trim_sync(s.mr, 0);
    must_equal(counts_of(s.mr).quarantine_bytes, 0);
    must_equal(counts_of(s.mr).overruns + counts_of(s.mr).uses_after_free, 0);
    scene_end(&s);
}

/* Behind more points than are kept of a block it goes on at once, and unchecked. */
static void nothing_is_held_behind_many_points(void **state)
{
    (void)state;
    enum { MANY = 2 * WEIR__CHECKED_MARKS };
    for (size_t count = WEIR__CHECKED_MARKS; count <= MANY; count += MANY / 2) {
        scene s = scene_begin(5, "checking/pool/device");
        void *ptr = take(s.mr, s.a, 1000);
        weir_stream streams[MANY];
        weir_point points[MANY];
        uint64_t gates[MANY];
        for (size_t i = 0; i < count; i++) {
            streams[i] = make_stream(s.device, WEIR_STREAM_NON_BLOCKING);
            must_ok(weir_emulated_stall(s.device, streams[i], &gates[i]));
            must_ok(weir_point_here(s.device, streams[i], &points[i]));
        }
        bool holds = count <= WEIR__CHECKED_MARKS;
        must(weir_deallocate_after(s.mr, ptr, 1000, WEIR_ALIGNMENT, points, count));
        must_equal(counts_of(s.mr).quarantine_blocks, holds);
        must_equal(counts_of(s.mr).not_checked, !holds);
        for (size_t i = 0; i < count; i++) {
            must_ok(weir_emulated_open_gate(s.device, gates[i]));
            end_stream(s.device, streams[i]);
        }
        must_find_nothing(s.mr);
        scene_end(&s);
    }
}

/* Upstream says that it has the block back already: it stays out, guards and all. */
typedef struct stubborn {
    weir_resource *below;
    bool refuses;
} stubborn;

static weir_status stubborn_allocate(void *context, weir_stream stream, size_t bytes,
                                     size_t alignment, void **out)
{
    stubborn *self = context;
    return weir_allocate(self->below, stream, bytes, alignment, out);
}

static bool stubborn_deallocate(void *context, weir_stream stream, void *ptr,
                                size_t bytes, size_t alignment)
{
    stubborn *self = context;
    return !self->refuses && weir_deallocate(self->below, stream, ptr, bytes,
                                             alignment);
}

static weir_resource *stubborn_upstream(void *context)
{
    stubborn *self = context;
    return self->below;
}

static void stubborn_destroy(void *context)
{
    (void)context;
}

static void block_that_upstream_refuses_stays_out(void **state)
{
    (void)state;
    scene s = scene_begin(5, "pool/device");
    stubborn self = { s.mr, true };
    const weir_resource_ops ops = { .struct_size = sizeof ops, .name = "stubborn",
                                    .allocate = stubborn_allocate,
                                    .deallocate = stubborn_deallocate,
                                    .upstream = stubborn_upstream,
                                    .destroy = stubborn_destroy };
    weir_resource *upstream, *mr;
    weir_checking_options options = WEIR_CHECKING_OPTIONS_INIT;
    options.quarantine_bytes = WEIR_CHECKING_NO_QUARANTINE;
    must_ok(weir_resource_create(&ops, &self, &upstream));
    must_ok(weir_checking_create(upstream, &options, &mr));
    void *ptr = take(mr, s.a, 1000);
    must(!weir_deallocate(mr, s.a, ptr, 1000, WEIR_ALIGNMENT));
    must_equal(statistics_of(mr).out_blocks, 1);
    must_equal(statistics_of(mr).out_bytes, 1000);
    must_equal(statistics_of(mr).deallocations, 0);
    must_find_nothing(mr);
    self.refuses = false;
    give(mr, s.a, ptr, 1000);
    must_equal(statistics_of(mr).out_blocks + statistics_of(mr).out_bytes, 0);
    must_find_nothing(mr);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    scene_end(&s);
}

/* ---- device calls that fail ---- */

static void checks_that_fail_are_left_out(void **state)
{
    (void)state;
    static const char *const kinds[] = { "fill", "copy", "event_record",
                                         "stream_is_capturing" };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (uint64_t nth = 1; nth < 5; nth++) {
            scene s = scene_begin(6, "checking/pool/device");
            void *first = take(s.mr, s.a, 1000);
            plan_fault(s.device, kinds[i], nth, nth % 2 == 0, WEIR_DEVICE_ERROR);
            void *second = take(s.mr, s.a, 2000);
            stamp(s.device, s.a, second, 2000, 7);
            check_stamp(s.device, s.a, second, 2000, 7);
            give(s.mr, s.a, first, 1000);
            give(s.mr, s.a, second, 2000);
            plan_fault(s.device, NULL, 0, false, WEIR_OK);
            must_find_nothing(s.mr);
            /* Without an event the bytes are set aside; and looked at all the same. */
            must(counts_of(s.mr).not_checked > 0 || strcmp(kinds[i], "fill") != 0);
            must_equal(statistics_of(s.mr).out_blocks, 0);
            scene_end(&s);
        }
    }
}

/* ---- threads ---- */

typedef struct worker {
    weir_device *device;
    weir_resource *mr;
    uint64_t random;
    int steps;
    bool checks;
} worker;

static void take_and_give(void *argument)
{
    worker *self = argument;
    weir_stream stream = make_stream(self->device, WEIR_STREAM_NON_BLOCKING);
    void *ptr[4] = { NULL };
    size_t bytes[4];
    for (int i = 0; i < self->steps || ptr[i % 4] != NULL; i++) {
        size_t slot = (size_t)i % 4;
        if (self->checks && i % 8 == 7)
            must_find_nothing(self->mr);
        if (ptr[slot] != NULL) {
            check_stamp(self->device, stream, ptr[slot], bytes[slot], slot + 1);
            give(self->mr, stream, ptr[slot], bytes[slot]);
            ptr[slot] = NULL;
        } else if (i < self->steps) {
            bytes[slot] = (size_t)support_random_between(&self->random, 1, 9000);
            ptr[slot] = take(self->mr, stream, bytes[slot]);
            stamp(self->device, stream, ptr[slot], bytes[slot], slot + 1);
        }
    }
    for (size_t slot = 0; slot < 4; slot++) {
        if (ptr[slot] != NULL)
            give(self->mr, stream, ptr[slot], bytes[slot]);
    }
    end_stream(self->device, stream);
}

static void run_workers(weir_device *device, uint64_t seed, int steps)
{
    enum { THREADS = 3 };
    worker workers[THREADS];
    void *arguments[THREADS];
    weir_resource *mr;
    must_ok(weir_resource_open(device, "checking(quarantine=20KiB)/pool/device", &mr));
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){ device, mr, seed * THREADS + i, steps, i == 0 };
        arguments[i] = &workers[i];
    }
    must_ok(support_run_threads(device, THREADS, take_and_give, arguments));
    must_equal(statistics_of(mr).out_bytes, 0);
    must_find_nothing(mr);
    must_equal(counts_of(mr).quarantine_bytes, 0);
    weir_resource_unref(mr);
}

static void threads_and_checks_do_not_disturb_each_other(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("seeds of threads that are checked", 10, 300);
    for (uint64_t i = 0; i < seeds; i++) {
        uint64_t seed = support_seed(i);
        weir_device *device = open_stepped(seed);
        run_workers(device, seed, 20);
        close_emulated(device);
    }
    weir_device *device = open_threads();
    run_workers(device, 1,
                (int)support_bound("rounds of threads that are checked", 100, 3000));
    close_emulated(device);
}

/* One thread looks at blocks that another gives back meanwhile, to be handed out at
 * once again: neither the looks nor the ledger find anything. */
static void check_often(void *argument)
{
    worker *self = argument;
    for (int i = 0; i < self->steps; i++)
        must_find_nothing(self->mr);
}

static void give_often(void *argument)
{
    worker *self = argument;
    weir_stream stream = make_stream(self->device, WEIR_STREAM_NON_BLOCKING);
    for (int i = 0; i < 4 * self->steps; i++) {
        void *ptr[3];
        for (int n = 0; n < 3; n++)
            ptr[n] = take(self->mr, stream, 1000);
        for (int n = 0; n < 3; n++)
            give(self->mr, stream, ptr[n], 1000);
    }
    end_stream(self->device, stream);
}

static void entry(void *argument)
{
    worker *self = argument;
    (self->checks ? check_often : give_often)(argument);
}

static void blocks_come_back_while_they_are_looked_at(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("seeds of looks at what comes back", 20, 300);
    for (uint64_t i = 0; i < seeds; i++) {
        uint64_t seed = support_seed(i);
        weir_device *device = open_stepped(seed);
        weir_resource *mr;
        must_ok(weir_resource_open(device, "checking(quarantine=none)/pool/device",
                                   &mr));
        worker workers[] = { { device, mr, seed, 3, true },
                             { device, mr, seed, 3, false } };
        void *const arguments[] = { &workers[0], &workers[1] };
        must_ok(support_run_threads(device, 2, entry, arguments));
        weir_resource_unref(mr);
        close_emulated(device);
    }
}

/* One that is being looked at, which the test pretends, does not come back. */
typedef struct pretence {
    weir_device *device;
    weir_resource *mr;
    weir__checking *self;
    void *ptr;
    bool gives; /* the block; else looks at it */
} pretence;

static void give_one(void *argument)
{
    pretence *it = argument;
    must_ok(support_host_signal(it->device, 1));
    give(it->mr, NULL, it->ptr, 1000);
}

static void look_at_one(void *argument)
{
    pretence *it = argument;
    must_ok(support_host_await(it->device, 1));
    for (int i = 0; i < 100; i++)
        weir__yield();
    must_equal(statistics_of(it->mr).out_blocks, 1);
    weir__mutex_lock(&it->self->lock);
    it->self->out.oldest->pins--;
    weir__cond_broadcast(&it->self->unpinned);
    weir__mutex_unlock(&it->self->lock);
}

static void give_or_look(void *argument)
{
    const pretence *it = argument;
    (it->gives ? give_one : look_at_one)(argument);
}

static void block_that_is_looked_at_stays_out(void **state)
{
    (void)state;
    const weir_resource_ops of_checking = { .allocate = weir__checking_allocate };
    scene s = scene_begin(8, "checking/pool/device");
    pretence it = { s.device, s.mr, weir__resource_self(s.mr, &of_checking),
                    take(s.mr, NULL, 1000), false };
    pretence giver = it;
    giver.gives = true;
    void *const arguments[] = { &it, &giver };
    it.self->out.oldest->pins++;
    must_ok(support_run_threads(s.device, 2, give_or_look, arguments));
    must_equal(statistics_of(s.mr).out_blocks, 0);
    scene_end(&s);
}

/* ---- making ---- */

static void create_refuses_and_fails_well(void **state)
{
    (void)state;
    scene s = scene_begin(7, "device");
    weir_resource *mr = NULL;
    weir_checking_options options = WEIR_CHECKING_OPTIONS_INIT;
    weir_checking_statistics counts = { .struct_size = sizeof counts };
    must_answer(WEIR_INVALID_ARGUMENT, weir_checking_create(NULL, NULL, &mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_checking_create(s.mr, NULL, NULL));
    options.guard_bytes = WEIR_CHECKING_GUARD_MAX + 1;
    must_answer(WEIR_INVALID_ARGUMENT, weir_checking_create(s.mr, &options, &mr));
    options.guard_bytes = 1;
    options.look_bytes = WEIR_CHECKING_LOOK_MAX + 1;
    must_answer(WEIR_INVALID_ARGUMENT, weir_checking_create(s.mr, &options, &mr));
    options.look_bytes = 1;
    options.frames = WEIR_CHECKING_FRAMES_MAX + 1;
    must_answer(WEIR_INVALID_ARGUMENT, weir_checking_create(s.mr, &options, &mr));
    options.struct_size = 1;
    must_answer(WEIR_INVALID_ARGUMENT, weir_checking_create(s.mr, &options, &mr));
    options.struct_size = sizeof options;
    must_answer(WEIR_INVALID_ARGUMENT, weir_checking_get_options(s.mr, &options));
    must_answer(WEIR_INVALID_ARGUMENT, weir_checking_get_statistics(s.mr, &counts));
    must_answer(WEIR_INVALID_ARGUMENT, weir_checking_get_statistics(NULL, &counts));
    must_answer(WEIR_INVALID_ARGUMENT, weir_checking_check_sync(s.mr, NULL));
    must(mr == NULL);
    static const char *const needs[] = { "pinned_malloc", "stream_create" };
    for (size_t i = 0; i < 2; i++) {
        plan_fault(s.device, needs[i], 1, false, WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR, weir_checking_create(s.mr, NULL, &mr));
    }
    plan_fault(s.device, NULL, 0, false, WEIR_OK);

    must_ok(weir_checking_create(s.mr, NULL, &mr));
    must_ok(weir_checking_get_options(mr, &options));
    must(options.guard_bytes == 256 && options.quarantine_bytes == 64 * KIB * KIB &&
         options.look_bytes == 64 * KIB && options.frames == 4);
    weir_resource_properties now = { .struct_size = sizeof now };
    must_ok(weir_resource_get_properties(mr, &now));
    must(!now.usable_at_once && now.can_find && now.can_trim && !now.can_extend);

    /* A record that there is no memory for: upstream is not asked. */
    void *ptr = &mr;
    weir__host_fail_at(1, false);
    must_answer(WEIR_OUT_OF_HOST_MEMORY,
                weir_allocate(mr, NULL, 1000, WEIR_ALIGNMENT, &ptr));
    weir__host_fail_at(0, false);
    must(ptr == NULL && calls_of(s.device).malloc == 0);
    must_equal(statistics_of(mr).failures, 1);
    weir_resource_unref(mr);

    must_ok(weir_resource_open(s.device, "checking(guard=2KiB, quarantine=none, "
                               "look=1KiB, frames=2, fill=255, strict)/device", &mr));
    must_ok(weir_checking_get_options(mr, &options));
    must(options.guard_bytes == 2 * KIB && options.look_bytes == 8 * KIB);
    must(options.quarantine_bytes == WEIR_CHECKING_NO_QUARANTINE);
    must(options.frames == 2 && options.fills && options.first_byte == 255);
    must(options.strict);
    unsigned char byte = 0;
    ptr = take(mr, NULL, 1000);
    must_ok(weir_copy_sync(s.device, NULL, &byte, (char *)ptr + 999, 1));
    must_equal(byte, 255);
    give(mr, NULL, ptr, 1000);
    must_find_nothing(mr);
    weir_resource_unref(mr);
    scene_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ledger_finds_it_at_once),
        cmocka_unit_test(nothing_is_put_on_streams_that_are_captured),
        cmocka_unit_test(streams_that_stand_still_stop_nobody),
        cmocka_unit_test(work_that_is_never_done_finds_nothing),
        cmocka_unit_test(quarantine_gives_way),
        cmocka_unit_test(nothing_is_held_behind_many_points),
        cmocka_unit_test(block_that_upstream_refuses_stays_out),
        cmocka_unit_test(checks_that_fail_are_left_out),
        cmocka_unit_test(threads_and_checks_do_not_disturb_each_other),
        cmocka_unit_test(blocks_come_back_while_they_are_looked_at),
        cmocka_unit_test(block_that_is_looked_at_stays_out),
        cmocka_unit_test(create_refuses_and_fails_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
