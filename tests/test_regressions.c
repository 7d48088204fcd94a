/* test_regressions.c - what went wrong in other allocators, with the numbers of their
 * reports: the same must not happen here. rmm#2489 is in test_order.c. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "support_pool.h"
#include "support_process.h"

#define CYCLES 100

/* ---- streams that end ---- */

/* rmm#649, #2251, #2394: a stream is destroyed before the buffer on it, and its handle
 * comes back as another stream's. */
static void a_stream_may_end_before_its_buffer(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, SIZE_MAX, 0);
    weir_stream old = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    weir_buffer buffer;
    uint64_t gate;
    must_ok(weir_buffer_allocate(it.pool, old, MIB, WEIR_ALIGNMENT, &buffer));
    must_ok(weir_emulated_stall(it.device, old, &gate));
    stamp(it.device, old, buffer.data, MIB, 1);
    check_stamp(it.device, old, buffer.data, MIB, 1);
    end_stream(it.device, old);
    weir_stream young = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must(young == old); /* as drivers do it */
    weir_buffer_reset(&buffer);
    void *ptr = take(it.pool, young, MIB);
    stamp(it.device, young, ptr, MIB, 2); /* found if it is the block, and not behind */
    must_ok(weir_emulated_open_gate(it.device, gate));
    check_stamp(it.device, young, ptr, MIB, 2);
    give(it.pool, young, ptr, MIB);
    end_stream(it.device, young);
    close_scene(&it);
}

/* rmm#510: what was freed on a stream that is destroyed is nobody's any more. */
static void what_an_ended_stream_freed_is_found(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, 8 * MIB, 0);
    for (int i = 0; i < CYCLES; i++) {
        weir_stream own = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        void *ptr = take(it.pool, own, 6 * MIB);
        stamp(it.device, own, ptr, 6 * MIB, 1);
        give(it.pool, own, ptr, 6 * MIB);
        end_stream(it.device, own);
    }
    give_on(&it, 0, take_on(&it, 0, 6 * MIB), 6 * MIB);
    close_scene(&it);
}

typedef struct lent {
    pool_scene *scene;
    void *ptr;
} lent;

static void *take_on_own_default(void *context)
{
    lent *it = context;
    it->ptr = take(it->scene->pool, WEIR_STREAM_PER_THREAD, MIB);
    stamp(it->scene->device, WEIR_STREAM_PER_THREAD, it->ptr, MIB, 7);
    return NULL;
}

/* rmm#1393, #558: memory of one thread's default stream is freed by another, to which
 * the same handle means another stream. */
static void a_threads_default_stream_is_its_own(void **state)
{
    (void)state;
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_THREADS, 64 * MIB);
    it.pool = open_pool(open_leaf(it.device), 0, SIZE_MAX, 0);
    pthread_t thread;
    lent block = { &it, NULL };
    must(pthread_create(&thread, NULL, take_on_own_default, &block) == 0);
    must(pthread_join(thread, NULL) == 0);
    must_ok(weir_device_sync(it.device)); /* its stream has ended with it */
    check_stamp(it.device, WEIR_STREAM_PER_THREAD, block.ptr, MIB, 7);
    give(it.pool, WEIR_STREAM_PER_THREAD, block.ptr, MIB);
    void *ptr = take(it.pool, it.streams[0], MIB);
    stamp(it.device, it.streams[0], ptr, MIB, 8);
    give(it.pool, it.streams[0], ptr, MIB);
    close_scene(&it);
}

/* ---- locks ---- */

typedef struct slow_upstream {
    weir_resource *leaf, *pool;
    weir_stream stream, other;
    int depth;
} slow_upstream;

static void *take_meanwhile(void *context)
{
    slow_upstream *it = context;
    give(it->pool, it->other, take(it->pool, it->other, 4 * KIB), 4 * KIB); /* a hit */
    give(it->pool, it->other, take(it->pool, it->other, MIB), MIB);         /* none */
    return NULL;
}

/* Another thread has memory of the same pool before this comes back. */
static weir_status slow_allocate(void *context, weir_stream stream, size_t bytes,
                                 size_t alignment, void **out)
{
    slow_upstream *it = context;
    pthread_t thread;
    if (it->pool != NULL && it->depth++ == 0) {
        must(pthread_create(&thread, NULL, take_meanwhile, it) == 0);
        must(pthread_join(thread, NULL) == 0);
    }
    return weir_allocate(it->leaf, stream, bytes, alignment, out);
}

static void slow_deallocate(void *context, weir_stream stream, void *ptr, size_t bytes,
                            size_t alignment)
{
    slow_upstream *it = context;
    must(weir_deallocate(it->leaf, stream, ptr, bytes, alignment));
}

/* rmm#1887: the pool's lock is held across calls of upstream. */
static void nobody_waits_for_anothers_growth(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    slow_upstream it = { .leaf = open_leaf(device) };
    const weir_callbacks callbacks = { .struct_size = sizeof callbacks,
                                       .allocate = slow_allocate,
                                       .deallocate = slow_deallocate };
    weir_resource *upstream;
    it.stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    it.other = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_callback_create(device, &callbacks, &it, &upstream));
    weir_resource *pool = open_pool(upstream, 0, SIZE_MAX, 4 * MIB);
    give(pool, it.other, take(pool, it.other, 4 * KIB), 4 * KIB);
    it.pool = pool;
    give(pool, it.stream, take(pool, it.stream, 32 * MIB), 32 * MIB);
    must(it.depth > 0);
    end_stream(device, it.stream);
    end_stream(device, it.other);
    weir_resource_unref(pool);
    weir_resource_unref(it.leaf);
    close_emulated(device);
}

/* ---- memory that is free, and cannot be had ---- */

typedef struct held_block {
    void *ptr;
    size_t bytes;
    int stream;
} held_block;

/* A run of requests that depends on the seed alone, on two streams, of at most about
 * 40 MiB at once. */
static void play(pool_scene *it, uint64_t seed, int streams)
{
    held_block blocks[16] = { { NULL, 0, 0 } };
    for (int i = 0; i < 200; i++) {
        held_block *one = &blocks[support_random_below(&seed, 16)];
        if (one->ptr != NULL) {
            give_on(it, one->stream, one->ptr, one->bytes);
            one->ptr = NULL;
        } else {
            one->bytes = support_random_between(&seed, 1, 5 * MIB / 2);
            one->stream = (int)support_random_below(&seed, (uint64_t)streams);
            one->ptr = take_on(it, one->stream, one->bytes);
        }
    }
    for (int i = 0; i < 16; i++) {
        if (blocks[i].ptr != NULL)
            give_on(it, blocks[i].stream, blocks[i].ptr, blocks[i].bytes);
    }
}

/* rmm#1969: what fitted twice does not the third time. pytorch#193400: a hundred times
 * the same, and ever more is held. */
static void the_same_again_needs_no_more(void **state)
{
    (void)state;
    for (int streams = 1; streams <= 2; streams++) {
        pool_scene it = open_scene(1, 0, 64 * MIB, 0);
        for (int i = 0; i < CYCLES / 10; i++)
            play(&it, 11, streams);
        size_t held = statistics_of(it.pool).held_bytes;
        for (int i = CYCLES / 10; i < CYCLES; i++)
            play(&it, 11, streams);
        must(statistics_of(it.pool).held_bytes <= held);
        close_scene(&it);
    }
}

/* rmm#2039: all is free, in halves on two streams, and the whole cannot be had. */
static void what_two_streams_freed_is_one(void **state)
{
    (void)state;
    void *parts[16];
    pool_scene it = open_scene(1, 0, 16 * MIB, 16 * MIB);
    for (int i = 0; i < 16; i++)
        parts[i] = take_on(&it, i % 2, MIB);
    for (int i = 0; i < 16; i++)
        give_on(&it, i % 2, parts[i], MIB);
    give_on(&it, 2, take_on(&it, 2, 16 * MIB), 16 * MIB);
    close_scene(&it);
}

/* Megatron-LM#6885: what one idle stream has freed nobody else gets. */
static void an_idle_stream_strands_nothing(void **state)
{
    (void)state;
    void *parts[12];
    pool_scene it = open_scene(1, 0, SIZE_MAX, 0);
    for (int i = 0; i < 12; i++)
        parts[i] = take_on(&it, 1, 20 * MIB + (size_t)i * 64 * KIB);
    for (int i = 0; i < 12; i++)
        give_on(&it, 1, parts[i], 20 * MIB + (size_t)i * 64 * KIB);
    must_ok(weir_stream_sync(it.device, it.streams[1])); /* and it does no more */
    size_t held = statistics_of(it.pool).held_bytes;
    for (int i = 0; i < 12; i++)
        parts[i] = take_on(&it, 0, 20 * MIB + (size_t)i * 64 * KIB);
    must_equal(statistics_of(it.pool).held_bytes, held);
    for (int i = 0; i < 12; i++)
        give_on(&it, 0, parts[i], 20 * MIB + (size_t)i * 64 * KIB);
    close_scene(&it);
}

/* rmm#2510: a driver's pool that keeps nothing stalls at each wait of the host. */
static void a_wait_of_the_host_gives_nothing_back(void **state)
{
    (void)state;
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 256 * MIB);
    must_ok(weir_resource_open(it.device, "async", &it.pool));
    give_on(&it, 0, take_on(&it, 0, 32 * MIB), 32 * MIB);
    size_t held = statistics_of(it.pool).held_bytes;
    for (int i = 0; i < CYCLES; i++) {
        must_ok(weir_device_sync(it.device));
        must_equal(statistics_of(it.pool).held_bytes, held);
        give_on(&it, 0, take_on(&it, 0, 32 * MIB), 32 * MIB);
    }
    close_scene(&it);
}

/* ---- what is asked for ---- */

/* rmm#2154: alignment is ignored. On each way that leads to a block. */
static void alignment_is_as_asked_for(void **state)
{
    (void)state;
    static const size_t alignments[] = { 1, 16, 256, 512, 4 * KIB, 64 * KIB };
    static const char *const specs[] = { "pool/device", "statistics/pool/device",
                                         "limiting(1GiB)/pool/device",
                                         "pool/pinned", "pool/managed" };
    weir_device *device = open_stepped(1);
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        weir_resource *mr;
        must_ok(weir_resource_open(device, specs[s], &mr));
        for (size_t i = 0; i < 6 * 40; i++) {
            size_t alignment = alignments[i % 6], bytes = 1 + i * 97;
            void *odd = take(mr, stream, 300), *ptr, *again;
            must_ok(weir_allocate(mr, stream, bytes, alignment, &ptr));
            must((uintptr_t)ptr % alignment == 0);
            must(weir_deallocate(mr, stream, ptr, bytes, alignment));
            must_ok(weir_allocate(mr, stream, bytes, alignment, &again)); /* a hit */
            must((uintptr_t)again % alignment == 0);
            give(mr, stream, odd, 300);
            must(weir_deallocate(mr, stream, again, bytes, alignment));
        }
        weir_resource_unref(mr);
    }
    end_stream(device, stream);
    close_emulated(device);
}

static void must_refuse(weir_status status)
{
    must(status == WEIR_INVALID_ARGUMENT || status == WEIR_DEVICE_ERROR);
    must(strstr(weir_last_error().message, "another device") != NULL);
}

/* rmm#1405: another device than was meant is used, and nobody says so. */
static void another_devices_stream_is_refused(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, SIZE_MAX, 0);
    weir_device *other = open_with("emulated:1", NULL);
    weir_stream elsewhere = make_stream(other, WEIR_STREAM_NON_BLOCKING);
    weir_buffer buffer;
    void *ptr;
    must_refuse(weir_allocate(it.pool, elsewhere, 4 * KIB, WEIR_ALIGNMENT, &ptr));
    must_ok(weir_buffer_allocate(it.pool, it.streams[0], 4 * KIB, WEIR_ALIGNMENT,
                                 &buffer));
    must_refuse(weir_buffer_set_stream(&buffer, elsewhere));
    must_refuse(weir_buffer_wait(&buffer, elsewhere, WEIR_READ));
    must_refuse(weir_buffer_use(&buffer, elsewhere, WEIR_READ));
    must(buffer.stream == it.streams[0]);
    weir_buffer_reset(&buffer);
    end_stream(other, elsewhere);
    close_emulated(other);
    close_scene(&it);
}

/* cuopt#1748: an allocation while the stream is captured breaks the capture. */
static void a_capture_survives_an_allocation(void **state)
{
    (void)state;
    static const char *const specs[] = { "pool/device", "async", "device" };
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        weir_device *device = open_stepped(1);
        weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
        weir_resource *mr;
        size_t captured;
        void *ptr = NULL;
        must_ok(weir_resource_open(device, specs[s], &mr));
        void *before = take(mr, stream, 4 * KIB);
        must_ok(weir_emulated_capture_begin(device, stream));
        stamp(device, stream, before, 4 * KIB, 1);
        weir_status status = weir_allocate(mr, stream, MIB, WEIR_ALIGNMENT, &ptr);
        must(status == WEIR_OK || status == WEIR_CAPTURING);
        must_ok(weir_emulated_capture_end(device, stream, &captured));
        must_equal(captured, 1);
        if (status == WEIR_OK)
            give(mr, stream, ptr, MIB);
        give(mr, stream, before, 4 * KIB);
        weir_resource_unref(mr);
        end_stream(device, stream);
        close_emulated(device);
    }
}

/* ---- the end of the process ---- */

static weir_buffer kept;
static weir_resource *kept_pool;
static weir_device *kept_device;

static void end_late(void)
{
    weir_buffer_reset(&kept);
    weir_resource_unref(kept_pool);
    weir_device_unref(kept_device);
}

static void keep(void)
{
    must_ok(weir_device_open("emulated", NULL, &kept_device));
    must_ok(weir_resource_open(kept_device, "pool/device", &kept_pool));
    must_ok(weir_buffer_allocate(kept_pool, WEIR_STREAM_PER_THREAD, MIB, WEIR_ALIGNMENT,
                                 &kept));
}

static void forgetful(int channel)
{
    (void)channel;
    keep();
}

static void late(int channel)
{
    (void)channel;
    must(atexit(end_late) == 0);
    keep();
}

static const support_child children[] = {
    { "forgetful", forgetful },
    { "late", late },
};

/* rmm#2366: a crash at exit, of what is left, or is let go of by handlers of exit. */
static void a_process_may_end_with_all_there(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        support_process one = process_start("forgetful");
        process_end(&one);
        support_process other = process_start("late");
        process_end(&other);
    }
}

/* rmm#1957: a pool that has grown to its maximum bit by bit, and is all free, must
 * serve a request for all of it: without a flush, and with no byte beyond. */
static void what_grew_bit_by_bit_serves_as_one(void **state)
{
    (void)state;
    enum { PARTS = 16 };
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 128 * MIB);
    must_ok(weir_resource_open(it.device,
                               "pool(initial=8MiB, limit=128MiB, growth=8MiB, "
                               "cache=none)/growable(chunk=8MiB)", &it.pool));
    unsigned char *parts[PARTS];
    for (int i = 0; i < PARTS; i++)
        parts[i] = take_on(&it, 0, 8 * MIB);
    must_equal(statistics_of(it.pool).held_bytes, 128 * MIB);
    for (int i = 0; i < PARTS; i++)
        give_on(&it, 0, parts[(i * 7 + 3) % PARTS], 8 * MIB);
    uint64_t mapped = calls_of(it.device).range_map;
    void *all = take_on(&it, 0, 128 * MIB);
    must(all == parts[0]);
    give_on(&it, 0, all, 128 * MIB);
    must_equal(statistics_of(it.pool).largest_free_bytes, 128 * MIB);
    must_equal(calls_of(it.device).range_map, mapped);
    must_equal(calls_of(it.device).range_unmap, 0);
    close_scene(&it);
}

int main(int argc, char **argv)
{
    support_children(argc, argv, children, sizeof children / sizeof *children);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_may_end_before_its_buffer),
        cmocka_unit_test(what_an_ended_stream_freed_is_found),
        cmocka_unit_test(a_threads_default_stream_is_its_own),
        cmocka_unit_test(nobody_waits_for_anothers_growth),
        cmocka_unit_test(the_same_again_needs_no_more),
        cmocka_unit_test(what_two_streams_freed_is_one),
        cmocka_unit_test(what_grew_bit_by_bit_serves_as_one),
        cmocka_unit_test(an_idle_stream_strands_nothing),
        cmocka_unit_test(a_wait_of_the_host_gives_nothing_back),
        cmocka_unit_test(alignment_is_as_asked_for),
        cmocka_unit_test(another_devices_stream_is_refused),
        cmocka_unit_test(a_capture_survives_an_allocation),
        cmocka_unit_test(a_process_may_end_with_all_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
