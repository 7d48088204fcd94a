/* test_pool_knowledge.c - what a thread knows to be done, and its stream is behind only
 * with its next operation: a pool may rest on it, and hand on what comes of that to
 * another thread before there is such an operation.
 *
 *     main    uses memory on the streams `giver`, and gives it back
 *     other   waits on the host for some of it; takes memory on `middle`, and before
 *             that call is back:
 *     main    takes what was left over on `taker`, or from below what the pool has
 *             given back there, with no hand-over but the resources'
 *
 * The call that is not back is one of a resource above the pool, or below, which stands
 * still. */
#include <pthread.h>
#include <semaphore.h>

#include "support_pool.h"

/* So many requests, of which the first makes the cache and the others miss, and nothing
 * comes back: the next one takes what is another's. */
#define BEFORE 5

/* As many blocks as a cache does not keep in a stack: it gives up the first two. */
#define BLOCKS 5

typedef struct relay {
    weir_device *device;
    weir_resource *pool;  /* that both use */
    weir_resource *above; /* a callback's: passes everything to `pool` */
    weir_stream middle;
    weir_stream waits_for; /* on the host; null: for nobody */
    size_t bytes;         /* that the other takes */
    void **before;        /* what it took of KIB each before; or null */
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
    for (int i = 0; it->before != NULL && i < BEFORE; i++)
        it->before[i] = take(it->pool, it->middle, KIB);
    if (it->waits_for != NULL)
        must_ok(weir_stream_sync(it->device, it->waits_for));
    it->ptr = take(it->above, it->middle, it->bytes);
    return NULL;
}

static pthread_t other_begins(relay *it)
{
    pthread_t thread;
    must(sem_init(&it->taken, 0, 0) == 0 && sem_init(&it->go_on, 0, 0) == 0);
    must(pthread_create(&thread, NULL, other, it) == 0);
    must(sem_wait(&it->taken) == 0);
    return thread;
}

static void other_goes_on(relay *it, pthread_t thread)
{
    must(sem_post(&it->go_on) == 0);
    must(pthread_join(thread, NULL) == 0);
    must(sem_destroy(&it->taken) == 0 && sem_destroy(&it->go_on) == 0);
}

/* Lets the other take `bytes` on `middle`, and takes `rest` on `taker` meanwhile. */
static void take_behind(relay *it, weir_stream taker, size_t rest)
{
    const weir_callbacks calls = { .struct_size = sizeof calls,
                                   .allocate = stand_still,
                                   .deallocate = pass_back };
    must_ok(weir_callback_create(it->device, &calls, it, &it->above));
    pthread_t thread = other_begins(it);
    uint64_t held = statistics_of(it->pool).held_bytes;
    void *ptr = take(it->pool, taker, rest);
    must_equal(statistics_of(it->pool).held_bytes, held);
    stamp(it->device, taker, ptr, rest, 1);
    must_be_quiet(it->device);
    other_goes_on(it, thread);
    give(it->pool, taker, ptr, rest);
    give(it->above, it->middle, it->ptr, it->bytes);
    weir_resource_unref(it->above);
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

/* The giver uses and gives back `bytes`, so that two of them are in the depot, and
 * takes the others again. */
static void put_in_depot(const relay *it, weir_stream giver, size_t bytes,
                         void *blocks[BLOCKS])
{
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = used(it->device, it->pool, giver, bytes);
    for (int i = 0; i < BLOCKS; i++) /* of which the first two are not neighbours */
        give(it->pool, giver, blocks[i * 2 % BLOCKS], bytes);
    for (int i = 0; i < BLOCKS - 2; i++)
        blocks[i] = take(it->pool, giver, bytes);
}

/* The same where nothing comes back on `middle` and the depot is half full, also of
 * what is not done: the other takes the giver's magazine as one of its own. */
static void what_is_done_is_taken_over(void **state)
{
    (void)state;
    pool_scene scene = open_scene_without_pool(WEIR_EMULATED_STEPPED, MIB);
    weir_stream giver = scene.streams[0], middle = scene.streams[1];
    weir_stream taker = scene.streams[2], filler = scene.streams[3];
    void *small[BLOCKS], *large[BLOCKS], *before[BEFORE];
    relay it = { .device = scene.device, .middle = middle, .waits_for = giver,
                 .bytes = 512, .before = before };
    must_ok(weir_resource_open(
        it.device, "pool(initial=8960,limit=8960,cache=2560)/device", &it.pool));
    put_in_depot(&it, filler, 256, small);
    put_in_depot(&it, giver, 512, large);
    take_behind(&it, taker, 512);
    for (int i = 0; i < BLOCKS - 2; i++) {
        give(it.pool, filler, small[i], 256);
        give(it.pool, giver, large[i], 512);
    }
    for (int i = 0; i < BEFORE; i++)
        give(it.pool, middle, before[i], KIB);
    weir_resource_unref(it.pool);
    close_scene(&scene);
}

/* Nobody else has wanted memory for long, and so a magazine has no event, and a mark
 * that was not taken yet: what the host has waited for is before that. */
static void what_comes_after_a_wait_is_not_done(void **state)
{
    (void)state;
    pool_scene scene = open_scene_without_pool(WEIR_EMULATED_STEPPED, MIB);
    weir_stream giver = scene.streams[0], taker = scene.streams[1];
    relay it = { .device = scene.device };
    void *blocks[BLOCKS];
    must_ok(weir_resource_open(it.device, "pool(initial=2560,limit=2560)/device",
                               &it.pool));
    for (int i = 0; i < 40; i++) { /* two become free at a time */
        put_in_depot(&it, giver, 512, blocks);
        for (int j = 0; j < BLOCKS - 2; j++)
            give(it.pool, giver, blocks[j], 512);
    }
    must_ok(weir_stream_sync(it.device, giver));
    put_in_depot(&it, giver, 512, blocks);
    void *ptr = take(it.pool, taker, 512);
    stamp(it.device, taker, ptr, 512, 1);
    must_be_quiet(it.device);
    give(it.pool, taker, ptr, 512);
    for (int i = 0; i < BLOCKS - 2; i++)
        give(it.pool, giver, blocks[i], 512);
    weir_resource_unref(it.pool);
    close_scene(&scene);
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

static void *waits_for_the_giver(void *argument)
{
    const relay *it = argument;
    must_ok(weir_stream_sync(it->device, it->waits_for));
    return NULL;
}

/* The other has waited for the giver: main is placed in what that left, without a wait,
 * for it is a smaller stretch than its own. */
static void a_request_is_placed_in_what_is_done(void **state)
{
    (void)state;
    pool_scene scene = open_scene_without_pool(WEIR_EMULATED_STEPPED, 4 * MIB);
    weir_stream giver = scene.streams[0], taker = scene.streams[2];
    relay it = { .device = scene.device, .waits_for = giver };
    must_ok(weir_resource_open(it.device, "pool(growth=4MiB, slack=none)/device",
                               &it.pool));
    void *others = used(it.device, it.pool, giver, 128 * KIB);
    void *between = take(it.pool, scene.streams[1], 64 * KIB);
    void *own = used(it.device, it.pool, taker, 256 * KIB);
    give(it.pool, giver, others, 128 * KIB);
    give(it.pool, taker, own, 256 * KIB);
    weir_thread_flush();
    pthread_t thread;
    must(pthread_create(&thread, NULL, waits_for_the_giver, &it) == 0);
    must(pthread_join(thread, NULL) == 0);
    uint64_t waited = waits(&scene);
    void *ptr = take(it.pool, taker, 64 * KIB);
    must(ptr == others);
    must_equal(waits(&scene), waited);
    stamp(it.device, taker, ptr, 64 * KIB, 1);
    must_be_quiet(it.device);
    give(it.pool, taker, ptr, 64 * KIB);
    give(it.pool, scene.streams[1], between, 64 * KIB);
    weir_resource_unref(it.pool);
    close_scene(&scene);
}

static weir_status pass_down(void *context, weir_stream stream, size_t bytes,
                             size_t alignment, void **out)
{
    const relay *it = context;
    return weir_allocate(it->pool, stream, bytes, alignment, out);
}

static void stand_still_once(void *context, weir_stream stream, void *ptr, size_t bytes,
                             size_t alignment)
{
    relay *it = context;
    must(weir_deallocate(it->pool, stream, ptr, bytes, alignment));
    if (it->waits_for == NULL)
        return;
    it->waits_for = NULL;
    must(sem_post(&it->taken) == 0);
    must(sem_wait(&it->go_on) == 0);
}

/* The other needs the room of a chunk that the giver used, and so has its pool give it
 * back on `middle`, the legacy stream: no event is recorded on that for a free as long
 * as there are blocking streams. Main gets the memory of the resource below. */
static void a_chunk_goes_back(const char *below, size_t rest)
{
    pool_scene scene = open_scene_without_pool(WEIR_EMULATED_STEPPED, 4 * MIB);
    weir_stream giver = scene.streams[0], taker = scene.streams[2];
    relay it = { .device = scene.device, .waits_for = giver,
                 .middle = WEIR_STREAM_LEGACY, .bytes = 2 * MIB };
    weir_stream blocking = make_stream(it.device, WEIR_STREAM_BLOCKING);
    const weir_callbacks calls = { .struct_size = sizeof calls,
                                   .allocate = pass_down,
                                   .deallocate = stand_still_once };
    weir_resource *between;
    must_ok(weir_resource_open(it.device, below, &it.pool));
    must_ok(weir_callback_create(it.device, &calls, &it, &between));
    it.above = open_pool(between, 0, 2 * MIB, MIB);

    give(it.above, giver, used(it.device, it.above, giver, MIB), MIB);
    pthread_t thread = other_begins(&it);
    void *ptr = take(it.pool, taker, rest);
    stamp(it.device, taker, ptr, rest, 1);
    must_be_quiet(it.device);
    give(it.pool, taker, ptr, rest);
    other_goes_on(&it, thread);
    give(it.above, it.middle, it.ptr, it.bytes);
    weir_resource_unref(it.above);
    weir_resource_unref(it.pool);
    end_stream(it.device, blocking);
    close_scene(&scene);
}

static void a_chunk_of_what_is_done_goes_back(void **state)
{
    (void)state;
    a_chunk_goes_back("device", 4 * MIB);
    a_chunk_goes_back("async(max=4MiB)", 4 * MIB);
    a_chunk_goes_back("pool(growth=4MiB, limit=4MiB, cache=none)/device", 3 * MIB);
}

static void *gives_behind_the_rest(void *argument)
{
    relay *it = argument;
    weir_point point;
    must_ok(weir_stream_sync(it->device, it->waits_for));
    must_ok(weir_point_here(it->device, it->middle, &point));
    must(weir_deallocate_after(it->pool, it->ptr, it->bytes, WEIR_ALIGNMENT, &point,
                               1));
    return NULL;
}

/* Of two streams that use a block the other has waited for one, and names the second
 * only. Main waits for that, and gets the block. */
static void a_block_goes_back_behind_the_rest(const char *spec, size_t memory_bytes)
{
    pool_scene scene = open_scene_without_pool(WEIR_EMULATED_STEPPED, memory_bytes);
    relay it = { .device = scene.device, .waits_for = scene.streams[0],
                 .middle = scene.streams[1], .bytes = MIB };
    must_ok(weir_resource_open(it.device, spec, &it.pool));
    it.ptr = take(it.pool, it.middle, MIB);
    stamp(it.device, it.middle, it.ptr, MIB, 1);
    must_ok(weir_stream_wait(it.device, it.waits_for, it.middle));
    check_stamp(it.device, it.waits_for, it.ptr, MIB, 1);
    pthread_t thread;
    must(pthread_create(&thread, NULL, gives_behind_the_rest, &it) == 0);
    must(pthread_join(thread, NULL) == 0);
    must_ok(weir_stream_sync(it.device, it.middle));
    void *ptr = take(it.pool, scene.streams[2], MIB);
    stamp(it.device, scene.streams[2], ptr, MIB, 2);
    must_be_quiet(it.device);
    give(it.pool, scene.streams[2], ptr, MIB);
    weir_resource_unref(it.pool);
    close_scene(&scene);
}

static void blocks_go_back_behind_the_rest(void **state)
{
    (void)state;
    a_block_goes_back_behind_the_rest("device", MIB);
    a_block_goes_back_behind_the_rest("growable", 2 * MIB);
    a_block_goes_back_behind_the_rest("async(max=2MiB)", 2 * MIB);
    a_block_goes_back_behind_the_rest("pool(limit=1536KiB)/device", 2 * MIB);
    a_block_goes_back_behind_the_rest("fixed_size(1MiB, blocks=1)/device", MIB);
    a_block_goes_back_behind_the_rest("checking/device", 2 * MIB);
}

/* ---- a table without deallocate_after ---- */

/* A leaf of one block, on the legacy stream, on which it comes back. */
typedef struct parked {
    weir_device *device;
    weir_resource *below;
    weir_resource *mr;
    void *block;
    sem_t met, go_on;
} parked;

static weir_status parked_allocate(void *context, weir_stream stream, size_t bytes,
                                   size_t alignment, void **out)
{
    parked *self = context;
    must(stream == WEIR_STREAM_LEGACY);
    weir_status status = WEIR_OK;
    if (self->block == NULL)
        status = weir_allocate(self->below, stream, bytes, alignment, &self->block);
    *out = self->block;
    return status;
}

static bool parked_deallocate(void *context, weir_stream stream, void *ptr,
                              size_t bytes, size_t alignment)
{
    const parked *self = context;
    (void)bytes;
    (void)alignment;
    must(stream == WEIR_STREAM_LEGACY && ptr == self->block);
    return true;
}

static void parked_properties(void *context, weir_resource_properties *out)
{
    const parked *self = context;
    out->device = self->device;
    out->device_accessible = true;
}

static void parked_destroy(void *context)
{
    const parked *self = context;
    must(weir_deallocate(self->below, NULL, self->block, KIB, WEIR_ALIGNMENT));
}

/* A thread that the ledger has met, and that is told nothing after that. */
static void *take_on_legacy(void *argument)
{
    parked *self = argument;
    must_ok(weir_stream_sync(self->device, WEIR_STREAM_LEGACY));
    must(sem_post(&self->met) == 0);
    must(sem_wait(&self->go_on) == 0);
    void *ptr = take(self->mr, WEIR_STREAM_LEGACY, KIB);
    stamp(self->device, WEIR_STREAM_LEGACY, ptr, KIB, 1);
    give(self->mr, WEIR_STREAM_LEGACY, ptr, KIB);
    return NULL;
}

static void what_is_done_comes_back_on_the_legacy_stream(void **state)
{
    (void)state;
    static const weir_resource_ops ops = { .struct_size = sizeof ops, .name = "parked",
                                           .allocate = parked_allocate,
                                           .deallocate = parked_deallocate,
                                           .properties = parked_properties,
                                           .destroy = parked_destroy };
    parked self = { .device = open_stepped(1) };
    weir_stream stream = make_stream(self.device, WEIR_STREAM_NON_BLOCKING);
    weir_point point;
    pthread_t thread;
    must_ok(weir_resource_open(self.device, "device", &self.below));
    must_ok(weir_resource_create(&ops, &self, &self.mr));
    must(sem_init(&self.met, 0, 0) == 0 && sem_init(&self.go_on, 0, 0) == 0);
    must(pthread_create(&thread, NULL, take_on_legacy, &self) == 0);
    must(sem_wait(&self.met) == 0);

    void *ptr = take(self.mr, WEIR_STREAM_LEGACY, KIB);
    must_ok(weir_stream_wait(self.device, stream, WEIR_STREAM_LEGACY));
    stamp(self.device, stream, ptr, KIB, 2);
    must_ok(weir_point_here(self.device, stream, &point));
    must_ok(weir_stream_sync(self.device, stream));
    must(weir_deallocate_after(self.mr, ptr, KIB, WEIR_ALIGNMENT, &point, 1));
    must(sem_post(&self.go_on) == 0);
    must(pthread_join(thread, NULL) == 0);
    must_be_quiet(self.device);

    must(sem_destroy(&self.met) == 0 && sem_destroy(&self.go_on) == 0);
    weir_resource_unref(self.mr);
    weir_resource_unref(self.below);
    end_stream(self.device, stream);
    close_emulated(self.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_is_drawn_of_what_is_done),
        cmocka_unit_test(what_is_done_is_cached),
        cmocka_unit_test(what_is_done_is_taken_over),
        cmocka_unit_test(what_comes_after_a_wait_is_not_done),
        cmocka_unit_test(a_piece_is_cut_of_what_is_done),
        cmocka_unit_test(a_request_is_placed_in_what_is_done),
        cmocka_unit_test(a_chunk_of_what_is_done_goes_back),
        cmocka_unit_test(blocks_go_back_behind_the_rest),
        cmocka_unit_test(what_is_done_comes_back_on_the_legacy_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
