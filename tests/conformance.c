/* conformance.c - one suite that every resource passes, on each kind of scheduler.
 *
 * Every block that is handed out is written by a kernel with a pattern of its own, on
 * its stream, and checked on the device before it is given back; no two blocks that are
 * out overlap. At the end of each case the counts are zero, and close_emulated finds
 * the ledger quiet and the device's memory free. */
#include "support.h"
#include "support_made.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir/jemalloc.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

/* ---- the resources ---- */

#ifdef WEIR_HAS_JEMALLOC
static weir_resource *make_jemalloc(weir_device *device)
{
    weir_resource *upstream = NULL, *mr = NULL;
    must_ok(weir_resource_open(device, "pinned", &upstream));
    must_ok(weir_jemalloc_create(upstream, NULL, &mr));
    weir_resource_unref(upstream);
    return mr;
}
#endif

/* A spec for weir_resource_open, or a function. */
static const struct kind {
    const char *name;
    weir_resource *(*make)(weir_device *device);
} kinds[] = {
    { "system(headroom=2GiB)", NULL },
    { "device", NULL }, { "system", NULL }, { "managed", NULL }, { "pinned", NULL },
    { "shareable", NULL },
    { "shareable(kind=legacy)", NULL },
    { "growable", NULL }, { "growable(pages_only=true)", NULL },
    { "growable(remap=true, pages_only=true)", NULL },
    { "callback", make_callback },
    { "pool/device", NULL }, { "pool/system", NULL },
    { "pool/managed", NULL }, { "pool/pinned", NULL },
    { "pool/shareable", NULL },
    { "pool/growable", NULL }, { "pool/growable(remap=true)", NULL },
    { "pool/pool/device", NULL },
    { "statistics/pool/device", NULL },
    { "tracking(frames=3, freed=10)/pool/device", NULL },
    { "checking/pool/device", NULL },
    /* Room for what the cases take, and little more: one fills it. */
    { "checking(guard=100B, quarantine=1MiB, fill=7)/limiting(512MiB)/pinned", NULL },
    { "aligned(64KiB)/device", NULL },
    { "aligned(2MiB, threshold=100KB)/pool/pinned", NULL },
    { "fallback(pool/pinned)/pool(limit=8MiB)/device", NULL },
    { "limiting(3GiB)/pool/device", NULL },
#ifdef WEIR_HAS_JEMALLOC
    { "jemalloc over pinned", make_jemalloc },
#endif
    { "prefetch/managed", NULL }, { "pool/prefetch(location=host)/managed", NULL },
    { "failure_callback over pool/device", make_failure_callback },
    { "logging over pool/device", make_logging },
    { "pool(initial=64MiB, growth=8MiB)/device", NULL },
    { "fixed_size(block=5MiB, blocks=4)/device", NULL },
    { "fixed_size(8MiB)/pool/device", NULL },
    { "binning/pool/device", NULL },
    { "binning(min=18, max=20)/device", NULL },
    { "arena/device", NULL }, { "arena(superblock=8MiB, arenas=1)/system", NULL },
    { "async", NULL },
    { "async(pool=default)", NULL },
    { "async(handle_types=posix_fd)", NULL },
    { "pool/async", NULL },
};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* ---- a run ---- */

#define STREAMS 5

typedef struct world {
    weir_device *device;
    weir_resource *mr; /* null: it has ended on its own */
    weir_stream streams[STREAMS]; /* defaults, two that do not block, one that does */
    uint64_t seed;
} world;

typedef struct trial {
    char name[120];
    const struct kind *kind;
    weir_emulated_scheduler scheduler;
    void (*run)(world *w);
} trial;

static void world_begin(world *w, const trial *t, uint64_t seed)
{
    w->seed = seed;
    w->device = open_emulated(t->scheduler, seed);
    if (t->kind->make != NULL)
        w->mr = t->kind->make(w->device);
    else
        w->mr = open_or_leave_out(w->device, t->kind->name);
    w->streams[0] = NULL;
    w->streams[1] = WEIR_STREAM_PER_THREAD;
    w->streams[2] = make_stream(w->device, WEIR_STREAM_NON_BLOCKING);
    w->streams[3] = make_stream(w->device, WEIR_STREAM_NON_BLOCKING);
    w->streams[4] = make_stream(w->device, WEIR_STREAM_BLOCKING);
}

static void world_end(world *w)
{
    if (w->mr != NULL) {
        weir_resource_statistics now = statistics_of(w->mr);
        must_equal(now.out_bytes, 0);
        must_equal(now.out_blocks, 0);
        must_equal(now.allocations, now.deallocations);
    }
    weir_resource_unref(w->mr);
    for (size_t i = 2; i < STREAMS; i++)
        end_stream(w->device, w->streams[i]);
    close_emulated(w->device);
}

static size_t max_alignment(const world *w)
{
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(w->mr, &properties));
    return properties.max_alignment;
}

/* ---- blocks ---- */

typedef struct block {
    void *ptr;
    size_t bytes;
    size_t alignment;
    weir_stream stream;
    uint64_t key;
} block;

static void must_be_sound(const block *one)
{
    must(one->ptr != NULL);
    must((uintptr_t)one->ptr % one->alignment == 0);
}

static bool overlap(const block *a, const block *b)
{
    uintptr_t from_a = (uintptr_t)a->ptr, from_b = (uintptr_t)b->ptr;
    return from_a < from_b + b->bytes && from_b < from_a + a->bytes;
}

/* Allocates and stamps, or passes on why not. */
static weir_status block_try(world *w, block *one, weir_stream stream, size_t bytes,
                             size_t alignment, uint64_t key)
{
    *one = (block){ NULL, bytes, alignment, stream, key };
    weir_status status = weir_allocate(w->mr, stream, bytes, alignment, &one->ptr);
    if (status != WEIR_OK) {
        must(one->ptr == NULL);
        return status;
    }
    must_be_sound(one);
    stamp(w->device, stream, one->ptr, bytes, key);
    return WEIR_OK;
}

static void block_take(world *w, block *one, weir_stream stream, size_t bytes,
                       uint64_t key)
{
    must_ok(block_try(w, one, stream, bytes, WEIR_ALIGNMENT, key));
}

static void block_give(world *w, block *one)
{
    check_stamp(w->device, one->stream, one->ptr, one->bytes, one->key);
    must(weir_deallocate(w->mr, one->stream, one->ptr, one->bytes, one->alignment));
    one->ptr = NULL;
}

/* Moves the block to another stream, which reads it there. */
static void block_hand_over(world *w, block *one, weir_stream to)
{
    must_ok(weir_stream_wait(w->device, to, one->stream));
    one->stream = to;
    check_stamp(w->device, to, one->ptr, one->bytes, one->key);
}

/* Reads the block on its own and on another stream, and gives it behind both. */
static void block_give_behind_points(world *w, block *one, weir_stream other)
{
    weir_point points[2];
    must_ok(weir_stream_wait(w->device, other, one->stream));
    check_stamp(w->device, other, one->ptr, one->bytes, one->key);
    check_stamp(w->device, one->stream, one->ptr, one->bytes, one->key);
    must_ok(weir_point_here(w->device, one->stream, &points[0]));
    must_ok(weir_point_here(w->device, other, &points[1]));
    must(weir_deallocate_after(w->mr, one->ptr, one->bytes, one->alignment, points, 2));
    one->ptr = NULL;
}

/* ---- cases: one thread ---- */

static void zero_bytes_are_null(world *w)
{
    for (size_t i = 0; i < STREAMS; i++) {
        void *ptr = w;
        must_ok(weir_allocate(w->mr, w->streams[i], 0, WEIR_ALIGNMENT, &ptr));
        must(ptr == NULL);
        must(weir_deallocate(w->mr, w->streams[i], NULL, 0, WEIR_ALIGNMENT));
    }
}

static void allocations_are_different(world *w)
{
    for (size_t i = 0; i < STREAMS; i++) {
        block a, b;
        block_take(w, &a, w->streams[i], 128, 1);
        block_take(w, &b, w->streams[(i + 1) % STREAMS], 128, 2);
        must(!overlap(&a, &b));
        block_give(w, &a);
        block_give(w, &b);
    }
}

static bool is_no_room(weir_status status)
{
    return status == WEIR_OUT_OF_MEMORY || status == WEIR_LIMIT_REACHED;
}

static void sizes_from_bytes_to_a_petabyte(world *w)
{
    static const size_t sizes[] = { 1, 4, 255, 256, 257, KIB, MIB, GIB };
    for (size_t i = 0; i < STREAMS; i++) {
        for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++) {
            block one;
            weir_status status = block_try(w, &one, w->streams[i], sizes[j],
                                           WEIR_ALIGNMENT, j);
            if (status == WEIR_OK)
                block_give(w, &one);
            else
                must(sizes[j] == GIB && is_no_room(status));
        }
        if (!support_may_ask_too_much(w->mr))
            continue;
        block none;
        weir_status status = block_try(w, &none, w->streams[i], GIB << 20,
                                       WEIR_ALIGNMENT, 0);
        must(is_no_room(status));
        weir_out_of_memory report = { .struct_size = sizeof report };
        must_ok(weir_last_out_of_memory(&report));
        must(report.requested_bytes >= GIB << 20);
        status = block_try(w, &none, w->streams[i], SIZE_MAX, WEIR_ALIGNMENT, 0);
        must(is_no_room(status));
    }
}

static void every_alignment_up_to_the_largest(world *w)
{
    size_t most = max_alignment(w);
    must(most >= WEIR_ALIGNMENT);
    block out[24];
    size_t count = 0;
    for (size_t alignment = 1; alignment <= most && count < 24; alignment *= 2) {
        weir_stream stream = w->streams[count % STREAMS];
        must_ok(block_try(w, &out[count], stream, 3 * alignment + 1, alignment,
                          alignment));
        count++;
    }
    for (size_t i = 0; i < count; i++)
        block_give(w, &out[i]);
    void *ptr;
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(w->mr, NULL, 8, 2 * most, &ptr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(w->mr, NULL, 8, 48, &ptr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(w->mr, NULL, 8, 0, &ptr));
}

static void random_allocations(world *w)
{
    enum { COUNT = 100 };
    block out[COUNT];
    uint64_t random = w->seed;
    for (size_t i = 0; i < COUNT; i++) {
        size_t bytes = (size_t)support_random_between(&random, 1, 5 * MIB);
        weir_stream stream = w->streams[support_random_below(&random, STREAMS)];
        block_take(w, &out[i], stream, bytes, i);
        for (size_t j = 0; j < i; j++)
            must(!overlap(&out[i], &out[j]));
    }
    weir_resource_statistics now = statistics_of(w->mr);
    must_equal(now.out_blocks, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        block_give(w, &out[i]);
}

/* What 53 % allocations and 47 % frees leave behind, on streams of its choice. */
typedef struct mix {
    world *w;
    uint64_t random;
    size_t rounds;
    size_t most_bytes;
    size_t first_stream; /* of w->streams; so many as it may use */
    size_t stream_count;
} mix;

static weir_stream mix_stream(mix *m)
{
    return m->w->streams[m->first_stream +
                         support_random_below(&m->random, m->stream_count)];
}

static void mix_give(mix *m, block *one)
{
    switch (support_random_below(&m->random, 4)) {
    case 0:
        block_hand_over(m->w, one, mix_stream(m));
        block_give(m->w, one);
        break;
    case 1:
        block_give_behind_points(m->w, one, mix_stream(m));
        break;
    default:
        block_give(m->w, one);
        break;
    }
}

static void mix_run(void *argument)
{
    mix *m = argument;
    enum { MOST = 400 };
    block out[MOST];
    size_t count = 0, allocations = 0;
    while (allocations < m->rounds) {
        bool allocate = count == 0 || (count < MOST &&
                                       support_random_below(&m->random, 100) < 53);
        if (allocate) {
            size_t bytes = (size_t)support_random_between(&m->random, 1, m->most_bytes);
            weir_stream stream = mix_stream(m);
            block_take(m->w, &out[count], stream, bytes, support_random(&m->random));
            for (size_t i = 0; i < count; i++)
                must(!overlap(&out[i], &out[count]));
            count++;
            allocations++;
        } else {
            size_t which = (size_t)support_random_below(&m->random, count);
            mix_give(m, &out[which]);
            out[which] = out[--count];
        }
    }
    while (count > 0)
        mix_give(m, &out[--count]);
}

static void mixed_random_allocations_and_frees(world *w)
{
    mix on_all = { w, w->seed, 100, 5 * MIB, 0, STREAMS };
    mix_run(&on_all);
    mix small = { w, w->seed + 1, 200, 2000, 0, STREAMS };
    mix_run(&small);
    mix on_one = { w, w->seed + 2, 100, MIB, 2, 1 };
    mix_run(&on_one);
}

/* ---- cases: several threads ---- */

#define THREADS 4

static void mixed_on_four_threads(world *w)
{
    mix mixes[THREADS];
    void *arguments[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        mixes[i] = (mix){ w, w->seed * THREADS + i, 30, 300 * KIB, 1, 1 };
        arguments[i] = &mixes[i];
    }
    must_ok(support_run_threads(w->device, THREADS, mix_run, arguments));
    for (size_t i = 0; i < THREADS; i++) {
        mixes[i].first_stream = 0;
        mixes[i].stream_count = STREAMS; /* all threads on all streams */
    }
    must_ok(support_run_threads(w->device, THREADS, mix_run, arguments));
}

/* One thread allocates and writes, another reads and frees, with an event and a signal
 * in between. */
typedef struct relay {
    world *w;
    bool is_giver;
    weir_stream giver_stream, taker_stream;
    uint64_t random;
    size_t count;
    block *blocks;      /* shared; [i] is handed over by the i-th signal */
    weir_event *events; /* likewise */
} relay;

static void relay_run(void *argument)
{
    relay *self = argument;
    weir_device *device = self->w->device;
    uintptr_t channel = (uintptr_t)self->blocks;
    for (size_t i = 0; i < self->count; i++) {
        if (self->is_giver) {
            size_t bytes = (size_t)support_random_between(&self->random, 1, MIB);
            block_take(self->w, &self->blocks[i], self->giver_stream, bytes, i);
            must_ok(weir_event_create(device, &self->events[i]));
            must_ok(weir_event_record(device, self->giver_stream, self->events[i]));
            must_ok(support_host_signal(device, channel));
        } else {
            must_ok(support_host_await(device, channel));
            block *one = &self->blocks[i];
            one->stream = self->taker_stream;
            must_ok(weir_stream_wait_event(device, one->stream, self->events[i]));
            must_ok(weir_event_destroy(device, self->events[i]));
            block_give(self->w, one);
        }
    }
}

static void relay_between(world *w, weir_stream giver_stream, weir_stream taker_stream,
                          size_t count)
{
    block blocks[100];
    weir_event events[100];
    must(count <= 100);
    relay giver = { w,       true,  giver_stream, taker_stream,
                    w->seed, count, blocks,       events };
    relay taker = giver;
    taker.is_giver = false;
    void *const arguments[] = { &giver, &taker };
    must_ok(support_run_threads(w->device, 2, relay_run, arguments));
}

static void allocated_on_one_thread_and_freed_on_another(world *w)
{
    relay_between(w, NULL, NULL, 50);
    relay_between(w, WEIR_STREAM_PER_THREAD, WEIR_STREAM_PER_THREAD, 50);
    relay_between(w, w->streams[2], w->streams[2], 50);
    relay_between(w, w->streams[2], w->streams[3], 100);
    relay_between(w, w->streams[4], NULL, 50);
    relay_between(w, NULL, w->streams[2], 50);
}

/* ---- misuse and the end ---- */

static void misuse_changes_nothing(world *w)
{
    block one;
    misuse_log log;
    block_take(w, &one, w->streams[2], 1000, 5);
    misuse_begin(&log);
    must(!weir_deallocate(w->mr, w->streams[2], one.ptr, 1500, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, one.ptr);
    must(!weir_deallocate(w->mr, w->streams[2], &log, 1000, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, &log);
    must_equal(statistics_of(w->mr).out_blocks, 1);
    void *ptr = one.ptr;
    block_give(w, &one);
    must(!weir_deallocate(w->mr, w->streams[2], ptr, 1000, WEIR_ALIGNMENT));
    must(log.kind == WEIR_MISUSE_DOUBLE_FREE ||
         log.kind == WEIR_MISUSE_FOREIGN_POINTER);
    must_equal(log.count, 1);
    misuse_end();
    must_equal(statistics_of(w->mr).out_blocks, 0);
}

static void blocks_are_found_and_freed_by_address(world *w)
{
    block out[20];
    for (size_t i = 0; i < 20; i++) {
        block_take(w, &out[i], w->streams[2 + i % 3], 1 + 1000 * i, i);
        weir_block found = { .struct_size = sizeof found };
        must_ok(weir_resource_find(w->mr, out[i].ptr, &found));
        must(found.ptr == out[i].ptr && found.bytes == out[i].bytes);
        must(found.alignment == WEIR_ALIGNMENT && found.stream == out[i].stream);
    }
    for (size_t i = 0; i < 20; i++) {
        check_stamp(w->device, out[i].stream, out[i].ptr, out[i].bytes, out[i].key);
        must(weir_free(w->mr, out[i].ptr));
    }
}

/* The world's own reference goes, and then the last block: the resource with it. */
static void blocks_may_come_back_after_the_last_unref(world *w)
{
    block out[10];
    for (size_t i = 0; i < 10; i++)
        block_take(w, &out[i], w->streams[2 + i % 3], MIB, i);
    weir_resource_unref(w->mr);
    for (size_t i = 0; i < 10; i++)
        block_give(w, &out[i]);
    w->mr = NULL;
}

static void trim_gives_all_back(world *w)
{
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(w->mr, &properties));
    if (!properties.can_trim)
        return;
    /* Of managed memory a real device keeps some. */
    const size_t bytes = (properties.managed && support_is_gpu() ? 24 : 3) * MIB;
    block out[10];
    size_t before = device_free_bytes(w->device);
    for (size_t i = 0; i < 10; i++)
        block_take(w, &out[i], w->streams[i % STREAMS], bytes, i);
    for (size_t i = 0; i < 10; i++)
        block_give(w, &out[i]);
    while (weir_resource_trim_sync(w->mr, 0) != 0)
        continue;
    must_be_free_again(w->mr, before);
    block_take(w, &out[0], w->streams[3], bytes, 1);
    block_give(w, &out[0]);
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    void (*run)(world *w);
} cases[] = {
#define CASE(name) { #name, name }
    CASE(zero_bytes_are_null),
    CASE(allocations_are_different),
    CASE(sizes_from_bytes_to_a_petabyte),
    CASE(every_alignment_up_to_the_largest),
    CASE(random_allocations),
    CASE(mixed_random_allocations_and_frees),
    CASE(mixed_on_four_threads),
    CASE(allocated_on_one_thread_and_freed_on_another),
    CASE(misuse_changes_nothing),
    CASE(blocks_are_found_and_freed_by_address),
    CASE(blocks_may_come_back_after_the_last_unref),
    CASE(trim_gives_all_back),
#undef CASE
};
#define CASES (sizeof cases / sizeof cases[0])

static uint64_t seeds;

static void trial_run(void **state)
{
    const trial *t = *state;
    for (uint64_t i = 0; i < seeds; i++) {
        world w;
        world_begin(&w, t, support_seed(i));
        t->run(&w);
        world_end(&w);
    }
}

/* An argument picks cases by their names: "pool*stepped*". */
/* Sanitizers take many times as long: each runs one scheduler, the thread sanitizer the
 * one that has threads. */
static bool leaves_out(bool stepped)
{
    bool leaves = stepped && support_is_gpu(); /* which has a scheduler of its own */
#if defined(WEIR_SANITIZE_THREAD)
    leaves = leaves || stepped;
#elif defined(WEIR_SANITIZE_ADDRESS)
    leaves = leaves || !stepped;
#endif
    return leaves;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    static trial trials[KINDS * CASES * 2];
    static struct CMUnitTest tests[KINDS * CASES * 2];
    size_t count = 0;
    support_keep_memory();
    seeds = support_bound("seeds of conformance", 1, 8);
    for (size_t i = 0; i < KINDS * CASES * 2; i++) {
        trial *t = &trials[count];
        bool stepped = i % 2 == 0;
        if (leaves_out(stepped))
            continue;
        t->kind = &kinds[i / 2 / CASES];
        t->scheduler = stepped ? WEIR_EMULATED_STEPPED : WEIR_EMULATED_THREADS;
        t->run = cases[i / 2 % CASES].run;
        snprintf(t->name, sizeof t->name, "%s, %s: %s", t->kind->name,
                 stepped ? "stepped" : "threads", cases[i / 2 % CASES].name);
        tests[count++] = (struct CMUnitTest){ t->name, trial_run, NULL, NULL, t };
    }
    return _cmocka_run_group_tests("conformance", tests, count, NULL, NULL);
}
