/* test_tracking.c - what is out is known, with who allocated it; leaks are told when
 * the last reference goes, and both ends of a double free are named. */
#include "support.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"
#include "support_roomy.h"
#include "weir/leaves.h"
#include "weir/resource_ops.h"
#include "weir/statistics.h"
#include "weir/tracking.h"

#define LINES 400
#define KIB   ((size_t)1024)

/* ---- what was told ---- */

typedef struct told {
    size_t count;
    char lines[LINES][200];
    weir_resource *mr; /* not null: each line of a block gives this one back */
    void *ptr;
} told;

static void listen_to(void *context, const char *text)
{
    told *self = context;
    must(self->count < LINES && strchr(text, '\n') == NULL);
    snprintf(self->lines[self->count++], sizeof self->lines[0], "%s", text);
    if (self->ptr != NULL && strncmp(text, "block", 5) == 0) {
        size_t live = weir__host_live();
        give(self->mr, NULL, self->ptr, 1000);
        must_equal(weir__host_live(), live); /* the resource is there yet */
        self->ptr = NULL;
    }
}

static size_t blocks_in(const told *self)
{
    size_t count = 0;
    for (size_t i = 0; i < self->count; i++)
        count += strncmp(self->lines[i], "block ", 6) == 0;
    return count;
}

/* The line of the block at `ptr`, with its size, or LINES. */
static size_t line_of(const told *self, const void *ptr, size_t bytes)
{
    char words[80];
    snprintf(words, sizeof words, ": %zu bytes at %p, alignment", bytes, ptr);
    for (size_t i = 0; i < self->count; i++) {
        if (strstr(self->lines[i], words) != NULL)
            return i;
    }
    return LINES;
}

static weir_resource *track(weir_resource *upstream, size_t frames, size_t freed,
                            told *to)
{
    weir_resource *mr;
    weir_tracking_options options = WEIR_TRACKING_OPTIONS_INIT;
    options.frames = frames;
    options.freed_blocks = freed;
    options.on_leak = to == NULL ? NULL : listen_to;
    options.context = to;
    must_ok(weir_tracking_create(upstream, &options, &mr));
    return mr;
}

/* ---- call sites ---- */

static __attribute__((noinline)) void *allocate_here(weir_resource *mr)
{
    void *volatile ptr = NULL;
    void *out;
    must_ok(weir_allocate(mr, NULL, 1000, WEIR_ALIGNMENT, &out));
    ptr = out;
    return ptr;
}

static __attribute__((noinline)) bool free_here(weir_resource *mr, void *ptr)
{
    volatile bool done = weir_deallocate(mr, NULL, ptr, 1000, WEIR_ALIGNMENT);
    return done;
}

static __attribute__((noinline)) bool free_again_here(weir_resource *mr, void *ptr)
{
    volatile bool done = weir_deallocate_after(mr, ptr, 1000, WEIR_ALIGNMENT, NULL, 0);
    return done;
}

static const uintptr_t *functions(void)
{
    static uintptr_t all[3];
    all[0] = (uintptr_t)&allocate_here;
    all[1] = (uintptr_t)&free_here;
    all[2] = (uintptr_t)&free_again_here;
    return all;
}

/* Which of the three the address that ends in `text` is in; 3: none. */
static size_t function_at(const char *text)
{
    Dl_info info;
    const uintptr_t *all = functions();
    must(dladdr((void *)(uintptr_t)&blocks_in, &info) != 0);
    const char *plus = strchr(text, '+');
    if (plus == NULL)
        return 3;
    uintptr_t at = (uintptr_t)info.dli_fbase + strtoul(plus + 1, NULL, 16);
    size_t found = 3;
    for (size_t i = 0; i < 3; i++) {
        if (at > all[i] && at - all[i] < 2048 && (found == 3 || all[i] > all[found]))
            found = i;
    }
    return found;
}

/* Which of the three is the innermost in what follows `text`, up to `end`. */
static size_t first_function(const char *text, const char *end)
{
    for (const char *at = text; at != NULL && at < end; at = strchr(at, '+')) {
        size_t found = function_at(at);
        if (found != 3)
            return found;
        at = strchr(at, '+') + 1;
    }
    return 3;
}

static void leak_is_reported_with_its_call_site(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(1));
    weir_resource *upstream;
    static told heard;
    heard = (told){ .count = 0 };
    must_ok(weir_resource_open(device, "pool/device", &upstream));
    weir_resource *mr = track(upstream, 0, 0, &heard);
    void *first = take(mr, NULL, 500), *second = allocate_here(mr);
    void *third = take(mr, NULL, 700);
    give(mr, NULL, first, 500);
    must_equal(heard.count, 0);
    weir_resource_unref(mr);
    assert_string_equal(heard.lines[0],
                        "tracking: 2 blocks with 1700 bytes are out");
    must_equal(blocks_in(&heard), 2);
    must_equal(line_of(&heard, second, 1000), 1); /* the oldest first */
    must(strncmp(heard.lines[1], "block 2: ", 9) == 0);
    size_t next = line_of(&heard, third, 700);
    must(next > 2 && next <= 1 + 1 + 8 && next < LINES);
    size_t named = 0;
    for (size_t i = 2; i < next; i++) {
        must(strncmp(heard.lines[i], "    ", 4) == 0);
        named += function_at(heard.lines[i]) == 0;
    }
    must_equal(named, 1);
    for (size_t i = next + 1; i < heard.count; i++)
        must(function_at(heard.lines[i]) != 0);

    /* It lives on until its last block is back, and says no more. */
    size_t count = heard.count;
    must(free_here(mr, second));
    must_equal(statistics_of(upstream).out_blocks, 1);
    give(mr, NULL, third, 700);
    must_equal(heard.count, count);
    weir_resource_unref(upstream);
    close_emulated(device); /* which claims that the resource is gone */
}

static void nothing_is_told_where_nothing_leaks(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(2));
    weir_resource *upstream, *mr;
    static told heard;
    heard = (told){ .count = 0 };
    must_ok(weir_resource_open(device, "pool/device", &upstream));
    mr = track(upstream, 1, 1, &heard);
    void *ptr = take(mr, NULL, 1000);
    weir_resource_ref(mr);
    weir_resource_unref(mr); /* not the last */
    give(mr, NULL, ptr, 1000);
    weir_resource_unref(mr);
    must_equal(heard.count, 0);

    mr = track(upstream, 1, 1, NULL); /* a leak, and nobody to tell */
    ptr = take(mr, NULL, 1000);
    weir_resource_unref(mr);
    give(mr, NULL, ptr, 1000);

    /* The sink may give back what it is told of: nothing ends before it is through. */
    mr = track(upstream, 4, 1, &heard);
    heard.mr = mr;
    heard.ptr = take(mr, NULL, 1000);
    weir_resource_unref(mr);
    must_equal(blocks_in(&heard), 1);
    must(heard.ptr == NULL);
    must_equal(heard.count, 1 + 1 + 4);
    weir_resource_unref(upstream);
    close_emulated(device);
}

/* As "tracking(report)" does when its last reference goes. */
static void report_can_go_to_standard_error(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(8));
    weir_resource *mr;
    int pipes[2], before = dup(STDERR_FILENO);
    must_ok(weir_resource_open(device, "tracking(frames=1, report)/device", &mr));
    void *ptr = take(mr, NULL, 1000);
    must(before >= 0 && pipe(pipes) == 0 && dup2(pipes[1], STDERR_FILENO) >= 0);
    weir_resource_unref(mr);
    must(dup2(before, STDERR_FILENO) >= 0);
    close(pipes[1]);
    close(before);
    char text[1000], words[80];
    size_t used = 0;
    for (ssize_t got = 1; got > 0; used += (size_t)got) {
        got = read(pipes[0], text + used, sizeof text - 1 - used);
        must(got >= 0);
    }
    text[used] = '\0';
    close(pipes[0]);
    snprintf(words, sizeof words, "tracking: 1 blocks with 1000 bytes are out\n"
             "block 1: 1000 bytes at %p", ptr);
    must(strncmp(text, words, strlen(words)) == 0 && text[used - 1] == '\n');
    give(mr, NULL, ptr, 1000);
    close_emulated(device);
}

static void double_free_is_named_with_both_sites(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(3));
    weir_resource *upstream;
    misuse_log log;
    must_ok(weir_resource_open(device, "pool/device", &upstream));
    weir_resource *mr = track(upstream, 8, 2, NULL);
    void *ptr = allocate_here(mr), *others[2];
    for (size_t i = 0; i < 2; i++)
        others[i] = take(mr, NULL, 5000);
    must(free_here(mr, ptr));
    misuse_begin(&log);
    size_t live = weir__host_live();
    uint64_t calls = weir__host_calls();
    must(!free_again_here(mr, ptr));
    must(weir__host_live() == live && weir__host_calls() == calls);
    const char *now = strstr(log.message, "; now by ");
    must(strstr(log.message, "was given back already, by ") != NULL && now != NULL);
    must_equal(first_function(log.message, now), 1);
    must_equal(first_function(now, now + strlen(now)), 2);
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, ptr);
    must(!weir_free(mr, ptr));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, ptr);

    give(mr, NULL, others[0], 5000); /* the ring is full, */
    must(!free_here(mr, ptr));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, ptr);
    give(mr, NULL, others[1], 5000); /* and has forgotten the oldest */
    must(!free_here(mr, ptr));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, ptr);
    must(!weir_deallocate(mr, NULL, others[1], 5000, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, others[1]);
    misuse_end();
    must_equal(statistics_of(upstream).out_blocks, 0);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    close_emulated(device);
}

static void wrong_size_is_named_with_the_allocation(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(4));
    weir_resource *upstream;
    misuse_log log;
    must_ok(weir_resource_open(device, "pool/device", &upstream));
    weir_resource *mr = track(upstream, 8, 2, NULL);
    void *ptr = allocate_here(mr);
    misuse_begin(&log);
    must(!weir_deallocate(mr, NULL, ptr, 999, WEIR_ALIGNMENT));
    must_equal(first_function(strstr(log.message, " by "), log.message +
                              strlen(log.message)), 0);
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, ptr);
    must(!weir_deallocate_after(mr, ptr, 1000, 8, NULL, 0));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, ptr);
    must(!free_here(mr, (char *)ptr + 256));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, (char *)ptr + 256);
    misuse_end();
    weir_block block = { .struct_size = sizeof block };
    must_ok(weir_resource_find(mr, ptr, &block));
    must(block.ptr == ptr && block.bytes == 1000 && block.alignment == WEIR_ALIGNMENT);
    must(weir_free(mr, ptr));
    must_answer(WEIR_NOT_FOUND, weir_resource_find(mr, ptr, &block));
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    close_emulated(device);
}

/* Upstream says that it has the block back already: it stays out here, at its place. */
static void block_that_upstream_refuses_stays_out(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(5));
    weir_resource *upstream;
    static told heard;
    heard = (told){ .count = 0 };
    must_ok(weir_resource_open(device, "pool(cache=none)/device", &upstream));
    weir_resource *mr = track(upstream, 1, 2, NULL);
    void *ptr = take(mr, NULL, 1000), *newer = take(mr, NULL, 9000);
    must(weir_deallocate(upstream, NULL, ptr, 1000, WEIR_ALIGNMENT));
    misuse_log log;
    misuse_begin(&log);
    must(!weir_deallocate(mr, NULL, ptr, 1000, WEIR_ALIGNMENT));
    must(!weir_deallocate_after(mr, ptr, 1000, WEIR_ALIGNMENT, NULL, 0));
    must_equal(log.count, 2);
    misuse_end();
    must_ok(weir_tracking_report(mr, listen_to, &heard));
    must_equal(blocks_in(&heard), 2);
    must(line_of(&heard, ptr, 1000) < line_of(&heard, newer, 9000));
    void *again;
    must_ok(weir_allocate(upstream, NULL, 1000, WEIR_ALIGNMENT, &again));
    must(again == ptr);
    give(mr, NULL, ptr, 1000);
    give(mr, NULL, newer, 9000);
    heard.count = 0;
    must_ok(weir_tracking_report(mr, listen_to, &heard));
    must_equal(heard.count, 1);
    assert_string_equal(heard.lines[0], "tracking: 0 blocks with 0 bytes are out");
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    close_emulated(device);
}

static void extended_blocks_are_told_as_they_are(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(6));
    weir_resource *pool;
    roomy room;
    static told heard;
    heard = (told){ .count = 0 };
    must_ok(weir_resource_open(device, "pool/device", &pool));
    weir_resource *upstream = roomy_open(&room, pool, 32 * KIB);
    weir_resource *mr = track(upstream, 2, 4, NULL);
    void *ptr = take(mr, NULL, 6000);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_resource_extend(mr, NULL, ptr, 5000, WEIR_ALIGNMENT, 7000));
    must_equal(room.extensions + room.refusals, 0);
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_resource_extend(mr, NULL, ptr, 6000, WEIR_ALIGNMENT, 64 * KIB));
    must_ok(weir_resource_extend(mr, NULL, ptr, 6000, WEIR_ALIGNMENT, 20000));
    must_ok(weir_tracking_report(mr, listen_to, &heard));
    assert_string_equal(heard.lines[0], "tracking: 1 blocks with 20000 bytes are out");
    must_equal(line_of(&heard, ptr, 20000), 1);
    give(mr, NULL, ptr, 20000);
    must_equal(room.out_bytes + room.out_blocks, 0);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    weir_resource_unref(pool);

    must_ok(weir_resource_open(device, "device", &upstream));
    mr = track(upstream, 2, 4, NULL);
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(mr, &properties));
    must(!properties.can_extend && properties.can_find);
    assert_string_equal(properties.name, "tracking");
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    close_emulated(device);
}

/* ---- many threads ---- */

#define THREADS 3
#define HELD    6

typedef struct worker {
    weir_device *device;
    weir_resource *mr;
    uint64_t random;
    int steps;
    bool reports;
    told heard;
} worker;

static void take_and_give(void *argument)
{
    worker *self = argument;
    void *ptr[HELD] = { NULL };
    size_t bytes[HELD] = { 0 };
    const weir_stream stream = WEIR_STREAM_PER_THREAD;
    for (int i = 0; i < self->steps + HELD; i++) {
        size_t slot = i < self->steps
                          ? (size_t)support_random_below(&self->random, HELD)
                          : (size_t)(i - self->steps);
        if (self->reports && i % 8 == 0) {
            self->heard.count = 0;
            must_ok(weir_tracking_report(self->mr, listen_to, &self->heard));
            must(blocks_in(&self->heard) <= THREADS * HELD);
            for (size_t held = 0; held < HELD; held++)
                must(ptr[held] == NULL ||
                     line_of(&self->heard, ptr[held], bytes[held]) < LINES);
        }
        if (ptr[slot] != NULL) {
            check_stamp(self->device, stream, ptr[slot], bytes[slot], slot);
            give(self->mr, stream, ptr[slot], bytes[slot]);
            ptr[slot] = NULL;
        } else if (i < self->steps) {
            bytes[slot] = (size_t)support_random_between(&self->random, 1, 10000);
            ptr[slot] = take(self->mr, stream, bytes[slot]);
            stamp(self->device, stream, ptr[slot], bytes[slot], slot);
        }
    }
    weir_resource_unref(self->mr); /* each has one: one of them ends it */
}

static void run_workers(weir_device *device, uint64_t seed, int steps)
{
    static worker workers[THREADS];
    static told leaks;
    leaks = (told){ .count = 0 };
    weir_resource *upstream;
    must_ok(weir_resource_open(device, "statistics/pool/device", &upstream));
    weir_resource *mr = track(upstream, 2, 2, &leaks);
    void *arguments[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){ .device = device, .mr = i == 0 ? mr :
                                                        weir_resource_ref(mr),
                               .random = seed * THREADS + i, .steps = steps,
                               .reports = i == 0 };
        arguments[i] = &workers[i];
    }
    must_ok(support_run_threads(device, THREADS, take_and_give, arguments));
    must_equal(statistics_of(upstream).out_blocks, 0);
    must_equal(leaks.count, 0);
    weir_resource_unref(upstream);
}

static void threads_and_reports_do_not_disturb_each_other(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("seeds of threads that are tracked", 20, 500);
    for (uint64_t i = 0; i < seeds; i++) {
        uint64_t seed = support_seed(i);
        weir_device *device = open_stepped(seed);
        run_workers(device, seed, 30);
        close_emulated(device);
    }
    weir_device *device = open_threads();
    run_workers(device, 1,
                (int)support_bound("rounds of threads that are tracked", 300, 5000));
    close_emulated(device);
}

/* ---- making ---- */

static void create_refuses_and_fails_well(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(7));
    weir_resource *leaf, *mr = NULL;
    weir_tracking_options options = WEIR_TRACKING_OPTIONS_INIT;
    must_ok(weir_device_resource_create(device, &leaf));
    must_answer(WEIR_INVALID_ARGUMENT, weir_tracking_create(NULL, NULL, &mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_tracking_create(leaf, NULL, NULL));
    options.frames = WEIR_TRACKING_FRAMES_MAX + 1;
    must_answer(WEIR_INVALID_ARGUMENT, weir_tracking_create(leaf, &options, &mr));
    options.frames = WEIR_TRACKING_FRAMES_MAX;
    options.freed_blocks = WEIR_TRACKING_FREED_MAX + 1;
    must_answer(WEIR_INVALID_ARGUMENT, weir_tracking_create(leaf, &options, &mr));
    options.struct_size = 1;
    must_answer(WEIR_INVALID_ARGUMENT, weir_tracking_create(leaf, &options, &mr));
    must(mr == NULL);
    options.struct_size = sizeof options;
    must_answer(WEIR_INVALID_ARGUMENT, weir_tracking_get_options(leaf, &options));
    must_answer(WEIR_INVALID_ARGUMENT, weir_tracking_get_options(NULL, &options));
    must_answer(WEIR_INVALID_ARGUMENT, weir_tracking_report(leaf, listen_to, NULL));

    uint64_t failing;
    for (failing = 1; mr == NULL; failing++) {
        size_t live = weir__host_live();
        weir__host_fail_at(failing, false);
        weir_status status = weir_tracking_create(leaf, NULL, &mr);
        weir__host_fail_at(0, false);
        if (status != WEIR_OK) {
            must_answer(WEIR_OUT_OF_HOST_MEMORY, status);
            must_equal(weir__host_live(), live);
        }
    }
    must_equal(failing - 1, 4); /* three fail in turn, then none */
    must_answer(WEIR_INVALID_ARGUMENT, weir_tracking_report(mr, NULL, NULL));
    must_ok(weir_tracking_get_options(mr, &options));
    must(options.frames == 8 && options.freed_blocks == 1024);

    /* A record that there is no memory for: upstream is not asked. */
    void *ptr = &mr;
    weir__host_fail_at(1, false);
    must_answer(WEIR_OUT_OF_HOST_MEMORY,
                weir_allocate(mr, NULL, 1000, WEIR_ALIGNMENT, &ptr));
    weir__host_fail_at(0, false);
    must(ptr == NULL && calls_of(device).malloc == 0);
    must_equal(statistics_of(mr).failures, 1);
    weir_resource_unref(mr);
    must_ok(weir_resource_open(device, "tracking(frames=2, freed=3, report)/device",
                               &mr));
    must_ok(weir_tracking_get_options(mr, &options));
    must(options.frames == 2 && options.freed_blocks == 3);
    must(options.on_leak == weir_tracking_line_to_stderr);
    weir_resource_unref(mr);
    weir_resource_unref(leaf);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leak_is_reported_with_its_call_site),
        cmocka_unit_test(nothing_is_told_where_nothing_leaks),
        cmocka_unit_test(report_can_go_to_standard_error),
        cmocka_unit_test(double_free_is_named_with_both_sites),
        cmocka_unit_test(wrong_size_is_named_with_the_allocation),
        cmocka_unit_test(block_that_upstream_refuses_stays_out),
        cmocka_unit_test(extended_blocks_are_told_as_they_are),
        cmocka_unit_test(threads_and_reports_do_not_disturb_each_other),
        cmocka_unit_test(create_refuses_and_fails_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
