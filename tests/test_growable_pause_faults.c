/* test_growable_pause_faults.c - pausing and resuming where something fails: each
 * device call and each host allocation in turn, no room on the device or on the host,
 * chunks that are not unmapped, captures; and below other resources, and beside
 * threads. */
#include <stdio.h>
#include <string.h>

#include "device/device.h"
#include "internal.h"
#include "support.h"
#include "weir/capture.h"
#include "weir/weir.h"

#define MIB  ((size_t)1 << 20)
#define PAGE WEIR_GROWABLE_PAGE_BYTES

static weir_device *open_small(size_t memory_bytes, bool no_ledger, uint64_t seed)
{
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.seed = seed;
    emulated.memory_bytes = memory_bytes;
    emulated.no_ledger = no_ledger;
    options.emulated = &emulated;
    return open_with("emulated:0", &options);
}

static weir_resource *open_spec(weir_device *device, const char *spec)
{
    weir_resource *mr;
    must_ok(weir_resource_open(device, spec, &mr));
    return mr;
}

static weir_growable_pause pause_of(weir_resource *mr)
{
    weir_growable_pause now = { .struct_size = sizeof now };
    must_ok(weir_growable_get_pause(mr, &now));
    return now;
}

static bool is_paused(weir_resource *mr)
{
    return pause_of(mr).is_paused;
}

/* ---- every call ---- */

enum { BLOCKS = 3 };

typedef struct scene {
    weir_device *device;
    weir_stream stream, other; /* which has waited for what was written */
    weir_resource *mr, *host;
    void *blocks[BLOCKS]; /* a page each, a chunk each */
} scene;

static void scene_begin(scene *it, bool no_ledger)
{
    it->device = open_small(64 * MIB, no_ledger, 0);
    it->stream = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    it->mr = open_spec(it->device, "growable(chunk=2MiB, pages_only=true)");
    it->host = open_spec(it->device, "pool/pinned");
    void *returned = NULL; /* between the others: there are two runs to copy */
    for (size_t i = 0; i < BLOCKS; i++) {
        it->blocks[i] = take(it->mr, it->stream, PAGE);
        stamp(it->device, it->stream, it->blocks[i], PAGE, i + 1);
        if (i == 0)
            returned = take(it->mr, it->stream, PAGE);
    }
    give(it->mr, it->stream, returned, PAGE);
    it->other = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_stream_wait(it->device, it->other, it->stream));
}

/* Pauses and resumes as far as that goes; after each the one state or the other. */
static void scene_act(scene *it, bool kept, weir_status wanted)
{
    weir_status status = weir_growable_pause_sync(it->mr, it->stream,
                                                  kept ? it->host : NULL);
    must(status == WEIR_OK || status == wanted);
    must_equal(is_paused(it->mr), status == WEIR_OK);
    must_equal(statistics_of(it->host).out_bytes,
               kept && status == WEIR_OK ? 3 * PAGE : 0);
    if (status != WEIR_OK)
        must(statistics_of(it->mr).held_bytes >= 3 * PAGE);
    status = weir_growable_resume(it->mr, it->stream);
    must(status == WEIR_OK || status == wanted);
    must(status != WEIR_OK || !is_paused(it->mr));
    if (is_paused(it->mr) && kept)
        must_equal(statistics_of(it->host).out_bytes, 3 * PAGE);
}

static void scene_close(scene *it)
{
    weir_resource_unref(it->host);
    end_stream(it->device, it->other);
    end_stream(it->device, it->stream);
    close_emulated(it->device);
}

/* With the fault gone, all is as it should be. */
static void scene_end(scene *it, bool kept)
{
    must_ok(weir_growable_resume(it->mr, it->stream));
    must_equal(statistics_of(it->host).out_bytes, 0);
    must(statistics_of(it->mr).held_bytes >= 3 * PAGE);
    for (size_t i = 0; i < BLOCKS; i++) {
        if (!kept)
            stamp(it->device, it->stream, it->blocks[i], PAGE, i + 1);
        check_stamp(it->device, it->stream, it->blocks[i], PAGE, i + 1);
        give(it->mr, it->stream, it->blocks[i], PAGE);
    }
    (void)weir_resource_trim_sync(it->mr, 0);
    must_equal(statistics_of(it->mr).held_bytes, 0);
    must_equal(device_free_bytes(it->device), 64 * MIB);
    weir_resource_unref(it->mr);
    scene_close(it);
}

/* On another stream than those that failed, with copies left on theirs. */
static void scene_resume_elsewhere(scene *it, bool kept)
{
    must_ok(weir_growable_resume(it->mr, it->other));
    must_ok(weir_stream_wait(it->device, it->stream, it->other));
    scene_end(it, kept);
}

/* As it is: paused, with copies left of a resume, or not, with copies of the pause. */
static void scene_drop(scene *it, bool kept)
{
    weir_stream on = is_paused(it->mr) ? it->other : it->stream;
    (void)kept;
    for (size_t i = 0; i < BLOCKS; i++)
        give(it->mr, on, it->blocks[i], PAGE);
    weir_resource_unref(it->mr);
    must_equal(statistics_of(it->host).out_bytes, 0);
    void *again = take(it->host, it->other, BLOCKS * PAGE);
    stamp(it->device, it->other, again, BLOCKS * PAGE, 9);
    give(it->host, it->other, again, BLOCKS * PAGE);
    scene_close(it);
}

static uint64_t sweep_device(bool kept, bool lasting, void (*end)(scene *, bool))
{
    for (uint64_t nth = 1;; nth++) {
        scene it;
        scene_begin(&it, false);
        plan_fault(it.device, NULL, nth, lasting, WEIR_DEVICE_ERROR);
        scene_act(&it, kept, WEIR_DEVICE_ERROR);
        uint64_t calls = weir_emulated_fault_calls(it.device);
        plan_fault(it.device, NULL, 0, false, WEIR_OK);
        end(&it, kept);
        if (calls < nth)
            return nth - 1;
    }
}

static void every_device_call_fails_in_turn(void **state)
{
    (void)state;
    uint64_t kept = sweep_device(true, false, scene_end);
    uint64_t dropped = sweep_device(false, false, scene_end);
    printf("pause: %llu device calls failed in turn, %llu where nothing is kept\n",
           (unsigned long long)kept, (unsigned long long)dropped);
    must_equal(kept, dropped + 7); /* room, two copies, and two back; room given back */
    (void)sweep_device(true, true, scene_end);
    (void)sweep_device(true, true, scene_resume_elsewhere);
    (void)sweep_device(true, true, scene_drop);
}

static void every_host_allocation_fails_in_turn(void **state)
{
    (void)state;
    uint64_t nth = 0, calls;
    do {
        scene it;
        scene_begin(&it, true);
        weir__host_fail_at(++nth, false);
        scene_act(&it, true, WEIR_OUT_OF_HOST_MEMORY);
        calls = weir__host_calls();
        weir__host_fail_at(0, false);
        scene_end(&it, true);
    } while (calls >= nth);
    must(nth > 2);
}

/* Nothing hangs, and the host memory goes. */
static void the_device_is_lost_in_turn(void **state)
{
    (void)state;
    uint64_t nth = 0, calls;
    do {
        scene it;
        scene_begin(&it, false);
        plan_fault(it.device, NULL, ++nth, true, WEIR_DEVICE_LOST);
        scene_act(&it, true, WEIR_DEVICE_LOST);
        calls = weir_emulated_fault_calls(it.device);
        plan_fault(it.device, NULL, 0, false, WEIR_OK);
        for (size_t i = 0; i < BLOCKS; i++)
            give(it.mr, it.stream, it.blocks[i], PAGE);
        weir_resource_unref(it.mr);
        weir_resource_unref(it.host);
        close_anyhow(it.device);
    } while (calls >= nth && nth < 60);
}

/* ---- no room ---- */

static void no_room_on_the_device_leaves_it_paused(void **state)
{
    (void)state;
    scene it;
    scene_begin(&it, false);
    must_ok(weir_growable_pause_sync(it.mr, it.stream, it.host));
    must_equal(device_free_bytes(it.device), 64 * MIB);
    must_equal(pause_of(it.mr).absent_bytes, 3 * PAGE);
    weir_resource *other = open_spec(it.device, "device");
    for (size_t room = 0; room < 3 * PAGE; room += PAGE) { /* for some chunks */
        void *theirs = take(other, it.stream, 64 * MIB - room);
        must_answer(WEIR_OUT_OF_MEMORY, weir_growable_resume(it.mr, it.stream));
        must_equal(device_free_bytes(it.device), room);
        must(is_paused(it.mr));
        must_equal(pause_of(it.mr).kept_bytes, 3 * PAGE);
        must_equal(pause_of(it.mr).absent_bytes, 3 * PAGE);
        give(other, it.stream, theirs, 64 * MIB - room);
        (void)weir_resource_trim_sync(other, 0);
    }
    weir_resource_unref(other);
    scene_end(&it, true);
}

static void no_room_on_the_host_pauses_nothing(void **state)
{
    (void)state;
    scene it;
    scene_begin(&it, false);
    weir_resource *few = open_spec(it.device, "limiting(5MiB)/pinned");
    must_answer(WEIR_LIMIT_REACHED,
                weir_growable_pause_sync(it.mr, it.stream, few));
    must(!is_paused(it.mr));
    must_equal(statistics_of(it.mr).held_bytes, 3 * PAGE);
    check_stamp(it.device, it.stream, it.blocks[0], PAGE, 1);

    /* Nor can it be kept in what is paused itself, or on another device. */
    must_answer(WEIR_PAUSED, weir_growable_pause_sync(it.mr, it.stream, it.mr));
    must(!is_paused(it.mr));
    weir_device *second = open_with("emulated:1", NULL);
    weir_resource *far = open_spec(second, "pinned");
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_growable_pause_sync(it.mr, it.stream, far));
    weir_resource_unref(far);
    close_emulated(second);
    must_equal(statistics_of(few).out_blocks, 0);
    weir_resource_unref(few);
    scene_end(&it, true);
}

/* The first run is being copied when the second cannot be. What is unmapped next was
 * given back behind all that the program has put anywhere. */
static void a_pause_that_fails_reads_no_more(void **state)
{
    (void)state;
    scene it;
    scene_begin(&it, false);
    plan_fault(it.device, "copy", 2, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR,
                weir_growable_pause_sync(it.mr, it.stream, it.host));
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    for (size_t i = 0; i < BLOCKS; i++)
        give(it.mr, it.other, it.blocks[i], PAGE);
    must_equal(weir_resource_trim_sync(it.mr, 0), 3 * PAGE);
    for (size_t i = 0; i < BLOCKS; i++) {
        it.blocks[i] = take(it.mr, it.stream, PAGE);
        stamp(it.device, it.stream, it.blocks[i], PAGE, i + 1);
    }
    scene_end(&it, true);
}

/* To the pool it is free since before the resume, which has it written all the same. */
static void what_a_resume_writes_is_not_unmapped(void **state)
{
    (void)state;
    scene it;
    scene_begin(&it, false);
    weir_resource *pool = open_spec(it.device, "pool/growable(chunk=2MiB)");
    void *stays = take(pool, it.stream, PAGE);
    void *goes = take(pool, it.stream, 4 * PAGE);
    weir_stream other = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    stamp(it.device, it.stream, stays, PAGE, 7);
    must_ok(weir_growable_pause_sync(pool, it.stream, it.host));
    must_ok(weir_stream_wait(it.device, other, it.stream));
    give(pool, other, goes, 4 * PAGE);
    must_ok(weir_stream_wait(it.device, it.stream, other));
    must_ok(weir_growable_resume(pool, it.stream));
    must(weir_resource_trim_sync(pool, 0) > 0);
    check_stamp(it.device, it.stream, stays, PAGE, 7);
    give(pool, it.stream, stays, PAGE);
    end_stream(it.device, other);
    weir_resource_unref(pool);
    scene_end(&it, true);
}

/* Nor by a pause on another stream. */
static void what_a_resume_writes_is_not_paused(void **state)
{
    (void)state;
    scene it;
    scene_begin(&it, false);
    weir_resource *mr = open_spec(it.device, "growable(chunk=2MiB, pages_only=true)");
    void *stays = take(mr, it.stream, PAGE);
    stamp(it.device, it.stream, stays, PAGE, 7);
    must_ok(weir_growable_pause_sync(mr, it.stream, it.host));
    must_ok(weir_growable_resume(mr, it.stream));
    must_ok(weir_growable_pause_sync(mr, it.other, NULL));
    must_ok(weir_growable_resume(mr, it.other));
    give(mr, it.stream, stays, PAGE);
    weir_resource_unref(mr);
    scene_end(&it, true);
}

/* Where the copies are is paused, too: its pool has room, but no memory is there. */
static void what_keeps_it_may_be_paused_itself(void **state)
{
    (void)state;
    scene it;
    scene_begin(&it, false);
    weir_resource *keeper = open_spec(it.device, "pool/growable(chunk=16MiB)");
    void *other = take(keeper, it.stream, 256);
    give(keeper, it.stream, take(keeper, it.stream, 8 * MIB), 8 * MIB);
    must_ok(weir_growable_pause_sync(keeper, it.stream, NULL));
    must_answer(WEIR_PAUSED, weir_growable_pause_sync(it.mr, it.stream, keeper));
    must(!is_paused(it.mr));
    must_ok(weir_growable_resume(keeper, it.stream));

    must_ok(weir_growable_pause_sync(it.mr, it.stream, keeper));
    must_ok(weir_growable_pause_sync(keeper, it.stream, it.host));
    uint64_t maps = calls_of(it.device).range_map;
    must_answer(WEIR_PAUSED, weir_growable_resume(it.mr, it.stream));
    must_equal(calls_of(it.device).range_map, maps);
    must(is_paused(it.mr) && pause_of(it.mr).kept_bytes == 3 * PAGE);
    must_ok(weir_growable_resume(keeper, it.stream));
    must_ok(weir_growable_resume(it.mr, it.stream));
    give(keeper, it.stream, other, 256);
    weir_resource_unref(keeper);
    scene_end(&it, true);
}

/* ---- what is not unmapped ---- */

/* The first chunk that is unmapped decides: behind it there is no way back. */
static void chunks_that_stay_are_found_again(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 3; nth++) {
        scene it;
        scene_begin(&it, false);
        (void)weir_resource_trim_sync(it.mr, 0);
        plan_fault(it.device, "range_unmap", nth, false, WEIR_DEVICE_ERROR);
        must_ok(weir_growable_pause_sync(it.mr, it.stream, it.host));
        plan_fault(it.device, NULL, 0, false, WEIR_OK);
        must_equal(statistics_of(it.mr).held_bytes, PAGE);
        must_equal(pause_of(it.mr).absent_bytes, 2 * PAGE);
        must_equal(weir_resource_trim_sync(it.mr, 0), 0);
        uint64_t maps = calls_of(it.device).range_map;
        must_ok(weir_growable_resume(it.mr, it.stream));
        must_equal(calls_of(it.device).range_map, maps + 2);
        scene_end(&it, true);
    }
    scene it;
    scene_begin(&it, false);
    (void)weir_resource_trim_sync(it.mr, 0);
    plan_fault(it.device, "range_unmap", 1, true, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR,
                weir_growable_pause_sync(it.mr, it.stream, it.host));
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    must(!is_paused(it.mr));
    must_equal(statistics_of(it.mr).held_bytes, 3 * PAGE);
    scene_end(&it, true);
}

/* ---- who may not ---- */

static void only_a_growable_is_paused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    static const char *const others[] = { "device", "pool/device",
                                          "fallback(growable)/growable" };
    for (size_t i = 0; i < 3; i++) {
        weir_resource *mr = open_spec(device, others[i]);
        weir_growable_pause now = { .struct_size = sizeof now };
        must_answer(WEIR_INVALID_ARGUMENT, weir_growable_pause_sync(mr, NULL, NULL));
        must_answer(WEIR_INVALID_ARGUMENT, weir_growable_resume(mr, NULL));
        must_answer(WEIR_INVALID_ARGUMENT, weir_growable_get_pause(mr, &now));
        weir_resource_unref(mr);
    }
    must_answer(WEIR_INVALID_ARGUMENT, weir_growable_pause_sync(NULL, NULL, NULL));
    must_answer(WEIR_INVALID_ARGUMENT, weir_growable_resume(NULL, NULL));
    must_answer(WEIR_INVALID_ARGUMENT, weir_growable_get_pause(NULL, NULL));
    close_emulated(device);
}

/* A graph's memory stays its own, under the same addresses; what was in it when it was
 * given back there nobody wants. */
static void captures_keep_their_memory(void **state)
{
    (void)state;
    scene it;
    scene_begin(&it, false);
    weir_capture *capture;
    must_ok(weir_capture_begin(it.mr, it.stream, &capture));
    must_answer(WEIR_CAPTURING, weir_growable_pause_sync(it.mr, it.stream, it.host));
    must(!is_paused(it.mr));
    void *inside = take(it.mr, it.stream, PAGE);
    give(it.mr, it.stream, inside, PAGE);
    must_ok(weir_capture_end(capture));
    must_ok(weir_growable_pause_sync(it.mr, it.stream, it.host));
    must_equal(pause_of(it.mr).kept_bytes, 3 * PAGE);
    must_equal(pause_of(it.mr).absent_bytes, 4 * PAGE);

    weir_stream other = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    weir_capture *second;
    must_ok(weir_capture_begin(it.host, other, &second));
    must_answer(WEIR_CAPTURING, weir_growable_resume(it.mr, other));
    must_ok(weir_capture_end(second));
    must_ok(weir_capture_release(second, other));
    must(is_paused(it.mr));
    must_ok(weir_growable_resume(it.mr, it.stream));
    must_equal(statistics_of(it.mr).held_bytes, 4 * PAGE);
    stamp(it.device, it.stream, inside, PAGE, 5); /* as a launch of it would */
    void *beside = take(it.mr, it.stream, PAGE);
    must(beside != inside);
    give(it.mr, it.stream, beside, PAGE);
    must_ok(weir_capture_release(capture, it.stream));
    end_stream(it.device, other);
    scene_end(&it, true);
}

/* ---- with resources above ---- */

static void a_pool_above_is_paused_with_it(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    size_t before = device_free_bytes(device);
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_resource *weights = open_spec(device, "statistics/pool/growable(chunk=4MiB)");
    weir_resource *cache = open_spec(device, "pool/growable(chunk=4MiB)");
    weir_resource *host = open_spec(device, "pool/pinned");
    void *layers[8], *pages = take(cache, stream, 9 * MIB);
    for (size_t i = 0; i < 8; i++) {
        layers[i] = take(weights, stream, (i + 1) * 300000);
        stamp(device, stream, layers[i], (i + 1) * 300000, i);
    }
    stamp(device, stream, pages, 9 * MIB, 99);
    give(weights, stream, layers[3], 4 * 300000);

    for (int round = 0; round < 3; round++) {
        must_ok(weir_growable_pause_sync(weights, stream, host));
        must_ok(weir_growable_pause_sync(cache, stream, NULL));
        must_equal(device_free_bytes(device), before);
        must_equal(pause_of(cache).kept_bytes, 0);
        must(pause_of(weights).kept_bytes <= 12 * MIB);
        void *none = device, *late = NULL;
        must_answer(WEIR_PAUSED,
                    weir_allocate(cache, stream, 64 * MIB, 256, &none));
        must(none == NULL);
        late = take(weights, stream, 100000); /* of what the pool has */
        must_ok(weir_growable_resume(weights, stream)); /* one without the other */
        must(is_paused(cache));
        stamp(device, stream, late, 100000, 50);
        for (size_t i = 0; i < 8; i++) {
            if (i != 3)
                check_stamp(device, stream, layers[i], (i + 1) * 300000, i);
        }
        check_stamp(device, stream, late, 100000, 50);
        give(weights, stream, late, 100000);
        must_ok(weir_growable_resume(cache, stream));
        stamp(device, stream, pages, 9 * MIB, 98);
        check_stamp(device, stream, pages, 9 * MIB, 98);
        must_equal(statistics_of(host).out_blocks, 0);
    }
    for (size_t i = 0; i < 8; i++) {
        if (i != 3)
            give(weights, stream, layers[i], (i + 1) * 300000);
    }
    give(cache, stream, pages, 9 * MIB);
    weir_resource_unref(cache);
    weir_resource_unref(weights);
    weir_resource_unref(host);
    end_stream(device, stream);
    close_emulated(device);
}

/* ---- threads ---- */

enum { USERS = 2 };

typedef struct user {
    weir_resource *mr, *host;
    weir_stream stream;
    uint64_t seed;
    bool pauses;
} user;

/* Allocates, extends, gives back and trims, of memory that it does not touch. */
static void use(const user *it)
{
    uint64_t random = it->seed;
    for (int i = 0; i < 12; i++) {
        size_t bytes = PAGE * support_random_between(&random, 1, 3);
        void *ptr = NULL;
        weir_status status = weir_allocate(it->mr, it->stream, bytes, 256, &ptr);
        must(status == WEIR_OK || status == WEIR_PAUSED);
        if (ptr == NULL)
            continue;
        status = weir_resource_extend(it->mr, it->stream, ptr, bytes, 256,
                                      bytes + PAGE);
        must(status == WEIR_OK || status == WEIR_PAUSED ||
             status == WEIR_OUT_OF_MEMORY);
        give(it->mr, it->stream, ptr, status == WEIR_OK ? bytes + PAGE : bytes);
        if (i % 4 == 3)
            (void)weir_resource_trim_sync(it->mr, 0);
    }
}

static void pause_and_check(const user *it)
{
    weir_device *device = weir_resource_device(it->mr);
    void *ptr = take(it->mr, it->stream, PAGE);
    stamp(device, it->stream, ptr, PAGE, it->seed);
    for (int i = 0; i < 3; i++) {
        must_ok(weir_growable_pause_sync(it->mr, it->stream, it->host));
        must_equal(statistics_of(it->mr).held_bytes, 0);
        must_ok(weir_growable_resume(it->mr, it->stream));
        check_stamp(device, it->stream, ptr, PAGE, it->seed);
    }
    give(it->mr, it->stream, ptr, PAGE);
}

static void run_user(void *argument)
{
    const user *it = argument;
    if (it->pauses)
        pause_and_check(it);
    else
        use(it);
}

static void others_may_come_at_any_time(void **state)
{
    (void)state;
    if (support_is_cuda()) /* whose ledger is always there: it takes these for users */
        skip();
    uint64_t runs = support_bound("threads beside a pause", 240, 400);
    for (uint64_t i = 0; i < runs; i++) {
        uint64_t seed = support_seed(i);
        weir_device *device = open_small(1024 * MIB, true, seed);
        weir_resource *mr = open_spec(device, "growable(chunk=4MiB, pages_only=true)");
        user users[USERS + 1];
        void *arguments[USERS + 1];
        weir_resource *host = open_spec(device, "pinned");
        for (size_t u = 0; u <= USERS; u++) {
            users[u] = (user){ mr, host, make_stream(device, WEIR_STREAM_NON_BLOCKING),
                               seed + u, u == 0 };
            arguments[u] = &users[u];
        }
        must_ok(support_run_threads(device, USERS + 1, run_user, arguments));
        must_equal(statistics_of(mr).out_bytes, 0);
        weir_resource_unref(mr);
        weir_resource_unref(host);
        for (size_t u = 0; u <= USERS; u++)
            end_stream(device, users[u].stream);
        close_emulated(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_device_call_fails_in_turn),
        cmocka_unit_test(every_host_allocation_fails_in_turn),
        cmocka_unit_test(the_device_is_lost_in_turn),
        cmocka_unit_test(no_room_on_the_device_leaves_it_paused),
        cmocka_unit_test(no_room_on_the_host_pauses_nothing),
        cmocka_unit_test(a_pause_that_fails_reads_no_more),
        cmocka_unit_test(what_a_resume_writes_is_not_unmapped),
        cmocka_unit_test(what_a_resume_writes_is_not_paused),
        cmocka_unit_test(what_keeps_it_may_be_paused_itself),
        cmocka_unit_test(chunks_that_stay_are_found_again),
        cmocka_unit_test(only_a_growable_is_paused),
        cmocka_unit_test(captures_keep_their_memory),
        cmocka_unit_test(a_pool_above_is_paused_with_it),
        cmocka_unit_test(others_may_come_at_any_time),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
