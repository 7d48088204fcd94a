/* test_pool_knowledge.c - what a thread knows to be done, and its stream is behind only
 * with its next operation: a pool may rest on it, and hand on what comes of that to
 * another thread before there is such an operation.
 *
 *     main    uses memory on the streams `giver`, and gives it back
 *     other   waits on the host for some of it; takes memory on `middle`, and before
 *             that call is back:
 *     main    takes what was left over on `taker`, with no hand-over but the pool's
 *
 * The call that is not back is one of a resource above the pool, which stands still. */
#include <pthread.h>
#include <semaphore.h>

#include "support_pool.h"

typedef struct relay {
    weir_device *device;
    weir_resource *pool;  /* that both use */
    weir_resource *above; /* a callback's: passes everything to `pool` */
    weir_stream middle;
    weir_stream waits_for; /* on the host; null: for nobody */
    size_t bytes;         /* that the other takes */
    void *ptr;            /* what it got */
    sem_t taken, go_on;
} relay;

static weir_status stand_still(void *context, weir_stream stream, size_t bytes,
                               size_t alignment, void **out)
{
    relay *it = context;
    weir_status status = weir_allocate(it->pool, stream, bytes, alignment, out);
    must(sem_post(&it->taken) == 0);
    must(sem_wait(&it->go_on) == 0);
    return status;
}

static void pass_back(void *context, weir_stream stream, void *ptr, size_t bytes,
                      size_t alignment)
{
    const relay *it = context;
    must(weir_deallocate(it->pool, stream, ptr, bytes, alignment));
}

static void *other(void *argument)
{
    relay *it = argument;
    if (it->waits_for != NULL)
        must_ok(weir_stream_sync(it->device, it->waits_for));
    it->ptr = take(it->above, it->middle, it->bytes);
    return NULL;
}

/* Lets the other take `bytes` on `middle`, and takes `rest` on `taker` meanwhile. */
static void take_behind(relay *it, weir_stream taker, size_t rest)
{
    const weir_callbacks calls = { .struct_size = sizeof calls,
                                   .allocate = stand_still,
                                   .deallocate = pass_back };
    pthread_t thread;
    must_ok(weir_callback_create(it->device, &calls, it, &it->above));
    must(sem_init(&it->taken, 0, 0) == 0 && sem_init(&it->go_on, 0, 0) == 0);
    must(pthread_create(&thread, NULL, other, it) == 0);
    must(sem_wait(&it->taken) == 0);
    uint64_t held = statistics_of(it->pool).held_bytes;
    void *ptr = take(it->pool, taker, rest);
    must_equal(statistics_of(it->pool).held_bytes, held);
    stamp(it->device, taker, ptr, rest, 1);
    must_be_quiet(it->device);
    must(sem_post(&it->go_on) == 0);
    must(pthread_join(thread, NULL) == 0);
    give(it->pool, taker, ptr, rest);
    give(it->above, it->middle, it->ptr, it->bytes);
    weir_resource_unref(it->above);
    must(sem_destroy(&it->taken) == 0 && sem_destroy(&it->go_on) == 0);
}

static void *used(weir_device *device, weir_resource *mr, weir_stream stream,
                  size_t bytes)
{
    void *ptr = take(mr, stream, bytes);
    stamp(device, stream, ptr, bytes, 2);
    return ptr;
}

/* The pool below hands out what the giver drew, without a wait. */
static void a_chunk_is_drawn_of_what_is_done(void **state)
{
    (void)state;
    weir_device *device = open_stepped(1);
    weir_stream giver = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream middle = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream taker = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_resource *async;
    must_ok(weir_resource_open(device, "async", &async));
    weir_resource *below = open_pool(async, 0, MIB, MIB);
    void *first = used(device, below, giver, 512);
    relay it = { .device = device, .middle = middle, .waits_for = giver,
                 .pool = open_pool(weir_resource_ref(below), 0, 0, 256 * KIB),
                 .bytes = 8 * KIB };
    take_behind(&it, taker, 8 * KIB);
    give(below, giver, first, 512);
    weir_resource_unref(it.pool);
    weir_resource_unref(below);
    end_stream(device, giver);
    end_stream(device, middle);
    end_stream(device, taker);
    close_emulated(device);
}

/* A magazine of the giver's is done: its rest stays in the other thread's cache, from
 * where it is flushed. */
static void what_is_done_is_cached(void **state)
{
    (void)state;
    enum { BLOCKS = 5 }; /* as many as a cache does not keep */
    weir_device *device = open_stepped(1);
    weir_stream giver = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream middle = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream taker = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    relay it = { .device = device, .middle = middle, .waits_for = giver,
                 .bytes = 512 };
    must_ok(weir_resource_open(device, "pool(initial=2560,limit=2560)/device",
                               &it.pool));
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = used(device, it.pool, giver, 512);
    for (int i = 0; i < BLOCKS; i++)
        give(it.pool, giver, blocks[i], 512);
    for (int i = 0; i < BLOCKS - 2; i++)
        blocks[i] = take(it.pool, giver, 512);
    take_behind(&it, taker, 512);
    for (int i = 0; i < BLOCKS - 2; i++)
        give(it.pool, giver, blocks[i], 512);
    weir_resource_unref(it.pool);
    end_stream(device, giver);
    end_stream(device, middle);
    end_stream(device, taker);
    close_emulated(device);
}

/* The device says of a large stretch that it is done: the piece of it that its stream
 * gets serves another thread on the same stream. */
static void a_piece_is_cut_of_what_is_done(void **state)
{
    (void)state;
    weir_device *device = open_stepped(1);
    weir_stream givers[2], middle = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    void *blocks[2];
    relay it = { .device = device, .middle = middle, .bytes = 64 * KIB };
    must_ok(weir_resource_open(
        device, "pool(growth=8MiB, slack=2MiB, cache=none)/device", &it.pool));
    for (int i = 0; i < 2; i++) {
        givers[i] = make_stream(device, WEIR_STREAM_NON_BLOCKING);
        blocks[i] = used(device, it.pool, givers[i], 4 * MIB);
    }
    for (int i = 0; i < 2; i++)
        give(it.pool, givers[i], blocks[i], 4 * MIB);
    for (bool stepped = true; stepped;)
        must_ok(weir_emulated_step(device, &stepped)); /* main has not asked */
    uint64_t waited = calls_of(device).stream_wait_event;
    take_behind(&it, middle, 8 * KIB);
    must_equal(calls_of(device).stream_wait_event, waited);
    weir_resource_unref(it.pool);
    for (int i = 0; i < 2; i++)
        end_stream(device, givers[i]);
    end_stream(device, middle);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_is_drawn_of_what_is_done),
        cmocka_unit_test(what_is_done_is_cached),
        cmocka_unit_test(a_piece_is_cut_of_what_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
