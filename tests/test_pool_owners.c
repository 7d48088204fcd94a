/* test_pool_owners.c - whose memory is that comes back: for streams that Weir knows,
 * and for captures, a pool has an owner ready when the stream becomes known or the
 * capture begins. A free then asks for no host memory, and loses no mark. */
#include <pthread.h>
#include <string.h>

#include "device/device.h"
#include "internal.h"
#include "stream_order.h"
#include "support_hits.h"
#include "support_pool.h"
#include "support_sweep.h"

#define MANY 24 /* many more than a pool has owners to spare for */

static void *blocks[MANY];
static weir_stream streams[MANY];

static void take_blocks(pool_scene *it)
{
    for (int i = 0; i < MANY; i++)
        blocks[i] = take_on(it, 0, 4 * KIB);
}

static void make_streams(pool_scene *it)
{
    for (int i = 0; i < MANY; i++)
        streams[i] = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
}

static void order_streams(pool_scene *it)
{
    for (int i = 0; i < MANY; i++)
        must_ok(weir_stream_wait(it->device, streams[i], it->streams[0]));
}

/* Gives `blocks` back, each on a stream of its own, while no host memory is to be had
 * for the library. */
static void give_without_memory(pool_scene *it)
{
    for (int i = 0; i < MANY; i++) {
        check_stamp(it->device, streams[i], blocks[i], 4 * KIB, (uintptr_t)blocks[i]);
        sweep_watch_library(it->device);
        bool done = weir_deallocate(it->pool, streams[i], blocks[i], 4 * KIB,
                                    WEIR_ALIGNMENT);
        sweep_library_must_not_have_asked(it->device);
        must(done);
    }
    must_equal(statistics_of(it->pool).set_aside_bytes, 0);
}

/* Each stream gets its own again, though nothing is done. */
static void must_take_their_own(pool_scene *it)
{
    uint64_t before = waits(it);
    for (int i = 0; i < MANY; i++)
        must(take(it->pool, streams[i], 4 * KIB) == blocks[i]);
    must_equal(waits(it), before);
    for (int i = 0; i < MANY; i++)
        give(it->pool, streams[i], blocks[i], 4 * KIB);
}

static void end_streams(pool_scene *it)
{
    for (int i = 0; i < MANY; i++)
        end_stream(it->device, streams[i]);
}

/* The pool is there, and has its last request behind it, when the streams come. */
static void frees_on_streams_made_later_keep_their_marks(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, MANY * 4 * KIB, MANY * 4 * KIB);
    take_blocks(&it);
    make_streams(&it);
    order_streams(&it);
    give_without_memory(&it);
    must_take_their_own(&it);
    end_streams(&it);
    close_scene(&it);
}

/* The streams are there when the pool comes. */
static void frees_on_streams_made_before_keep_their_marks(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, MANY * 4 * KIB, MANY * 4 * KIB);
    make_streams(&it);
    weir_resource_unref(it.pool);
    it.pool = open_pool(open_leaf(it.device), 0, MANY * 4 * KIB, MANY * 4 * KIB);
    take_blocks(&it);
    order_streams(&it);
    give_without_memory(&it);
    must_take_their_own(&it);
    end_streams(&it);
    close_scene(&it);
}

/* What comes into a capture from outside is of a clock that never allocates. Not even a
 * wait for the device gives it to others before the capture is released. */
static void frees_in_captures_keep_their_marks(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, MANY * 4 * KIB, MANY * 4 * KIB);
    weir_capture *captures[MANY];
    take_blocks(&it);
    make_streams(&it);
    order_streams(&it);
    for (int i = 0; i < MANY; i++)
        must_ok(weir_capture_begin(it.pool, streams[i], &captures[i]));
    for (int i = 0; i < MANY; i++) {
        sweep_watch_library(it.device);
        bool done = weir_deallocate(it.pool, streams[i], blocks[i], 4 * KIB,
                                    WEIR_ALIGNMENT);
        sweep_library_must_not_have_asked(it.device);
        must(done);
    }
    must_equal(statistics_of(it.pool).set_aside_bytes, 0);
    for (int i = 0; i < MANY; i++)
        must_ok(weir_capture_end(captures[i]));
    must_ok(weir_device_sync(it.device));
    (void)try_take(&it, 1, 4 * KIB, WEIR_LIMIT_REACHED);
    for (int i = 0; i < MANY; i++)
        must_ok(weir_capture_release(captures[i], streams[i]));
    give(it.pool, it.streams[1], take(it.pool, it.streams[1], MANY * 4 * KIB),
         MANY * 4 * KIB);
    end_streams(&it);
    close_scene(&it);
}

/* ---- how owners go ---- */

static void come_and_go(pool_scene *it, int count)
{
    for (int i = 0; i < count; i++) {
        weir_stream stream = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
        weir_capture *capture;
        must_ok(weir_capture_begin(it->pool, stream, &capture));
        must_ok(weir_capture_release(capture, stream));
        must_ok(weir_device_sync(it->device));
        end_stream(it->device, stream);
    }
}

static void streams_that_come_and_go_leave_no_owners(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, MIB, MIB);
    size_t most = 0;
    for (int round = 0; round < 60; round++) {
        come_and_go(&it, 10);
        if (round < 20 && most < weir__host_live())
            most = weir__host_live();
        must(weir__host_live() <= most);
    }
    close_scene(&it);
}

#define HITTERS 4

typedef struct hitter {
    pool_scene *scene;
    weir_stream stream;
    atomic_bool *stops;
    pthread_t thread;
} hitter;

/* Blocks whose records come after as many as there are owners. */
static void *hits(void *argument)
{
    hitter *self = argument;
    enum { BEFORE = 25, OUT = 4 };
    weir_resource *pool = self->scene->pool;
    void *before[BEFORE], *out[OUT];
    for (int i = 0; i < BEFORE; i++)
        before[i] = take(pool, self->stream, KIB);
    while (!atomic_load(self->stops)) {
        for (int i = 0; i < OUT; i++)
            out[i] = take(pool, self->stream, KIB);
        for (int i = 0; i < OUT; i++)
            give(pool, self->stream, out[i], KIB);
    }
    for (int i = 0; i < BEFORE; i++)
        give(pool, self->stream, before[i], KIB);
    return NULL;
}

/* Owners that nothing names are looked for while threads put blocks on their stacks and
 * take them from there. */
static void streams_come_and_go_while_others_hit(void **state)
{
    (void)state;
    uint64_t rounds = support_bound("test_pool_owners.streams", 200, 5000);
    pool_scene it = open_scene(1, 0, MIB, MIB);
    reopen_cached(&it, MIB);
    atomic_bool stops = false;
    hitter all[HITTERS];
    for (int i = 0; i < HITTERS; i++) {
        all[i] = (hitter){ &it, it.streams[i % STREAMS], &stops, 0 };
        must(pthread_create(&all[i].thread, NULL, hits, &all[i]) == 0);
    }
    come_and_go(&it, (int)rounds);
    atomic_store(&stops, true);
    for (int i = 0; i < HITTERS; i++)
        must(pthread_join(all[i].thread, NULL) == 0);
    close_scene(&it);
}

#define ASKED 4

typedef struct changer {
    pool_scene *scene;
    void *ptrs[ASKED];
    atomic_bool is_ready, stops;
} changer;

/* Blocks that go, and come again at the same addresses. */
static void *changes(void *argument)
{
    changer *self = argument;
    weir_resource *pool = self->scene->pool;
    weir_stream stream = self->scene->streams[1];
    while (!atomic_load(&self->stops)) {
        void *out[ASKED];
        for (int i = 0; i < ASKED; i++)
            out[i] = take(pool, stream, KIB);
        if (!atomic_load(&self->is_ready))
            memcpy(self->ptrs, out, sizeof out);
        atomic_store(&self->is_ready, true);
        for (int i = ASKED; i-- > 0;)
            give(pool, stream, out[i], KIB);
    }
    return NULL;
}

/* Who asks about a block that another thread hits just now is told of its stream, or
 * that it is not out. (That a block comes back and goes out again while its record is
 * read has to be allowed for.) */
static void what_others_hit_is_found_on_its_stream(void **state)
{
    (void)state;
    uint64_t rounds = support_bound("test_pool_owners.questions", 1000000, 4000000);
    pool_scene it = open_quiet_scene();
    changer other = { .scene = &it };
    pthread_t thread;
    must(pthread_create(&thread, NULL, changes, &other) == 0);
    while (!atomic_load(&other.is_ready))
        continue;
    uint64_t answers = 0, wrong = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        weir_block found = { .struct_size = sizeof found };
        weir_status status =
            weir_resource_find(it.pool, other.ptrs[i % ASKED], &found);
        must(status == WEIR_OK || status == WEIR_NOT_FOUND);
        answers += status == WEIR_OK;
        wrong += status == WEIR_OK && found.stream != it.streams[1];
    }
    atomic_store(&other.stops, true);
    must(pthread_join(thread, NULL) == 0);
    must(answers > 0 && wrong <= 2);
    close_scene(&it);
}

/* A stream has left a magazine in the depot; its clock is dropped, its owner has become
 * another's, and none is spare. What it freed is done, so it is not set aside. */
static void what_is_done_needs_no_owner(void **state)
{
    (void)state;
    enum { MAGAZINE = 2, CACHED = 3, COUNT = MAGAZINE + CACHED, FOREIGN = 4 };
    pool_scene it = open_scene(1, 0, MIB, MIB);
    void *taken[COUNT], *others[FOREIGN];
    weir_stream foreign[FOREIGN];
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.initial_bytes = options.limit_bytes = (COUNT + FOREIGN) * KIB;
    weir_resource *leaf = open_leaf(it.device), *pool;
    must_ok(weir_pool_create(leaf, &options, &pool));
    weir_resource_unref(leaf);

    weir_stream stream = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    for (int i = 0; i < COUNT; i++)
        taken[i] = take(pool, stream, KIB);
    for (int i = 0; i < FOREIGN; i++)
        others[i] = take(pool, it.streams[0], KIB);
    for (int i = 0; i < COUNT; i++)
        give(pool, stream, taken[i], KIB);
    must_ok(weir_device_sync(it.device));
    end_stream(it.device, stream);
    for (int i = 0; i < CACHED; i++) /* all but what is in the depot */
        taken[i] = take(pool, it.streams[0], KIB);
    come_and_go(&it, 40);

    for (int i = 0; i < FOREIGN; i++) {
        must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING,
                                            &foreign[i]));
        must_ok(weir_stream_wait(it.device, foreign[i], it.streams[0]));
    }
    size_t aside = 0; /* of these, for which there is none */
    for (int i = 0; i < FOREIGN; i++) {
        give(pool, foreign[i], others[i], KIB);
        aside = statistics_of(pool).set_aside_bytes;
    }
    must(aside > 0);
    (void)weir_resource_trim_sync(pool, SIZE_MAX); /* empties caches and depot */
    must_equal(statistics_of(pool).set_aside_bytes, aside);
    for (int i = 0; i < FOREIGN; i++)
        must_ok(weir_emulated_stream_destroy(it.device, foreign[i]));
    for (int i = 0; i < CACHED; i++)
        give(pool, it.streams[0], taken[i], KIB);
    weir_resource_unref(pool);
    close_scene(&it);
}

/* A listener that refuses some clocks. */
typedef struct refuser {
    weir__order_listener listener; /* first */
    uint32_t count;                /* of clocks that it heard of */
    uint32_t refuses_at;
} refuser;

static weir_status refuses(weir__order_listener *listener, weir_stream stream,
                           uint64_t clock)
{
    (void)stream;
    (void)clock;
    refuser *self = (refuser *)listener;
    if (++self->count != self->refuses_at)
        return WEIR_OK;
    return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "refused");
}

static void hears_of_changes(weir__order_listener *listener, weir_stream stream,
                             uint64_t clock)
{
    (void)listener;
    (void)stream;
    (void)clock;
}

/* Whoever is told of a clock before another refuses it keeps nothing of it for long. */
static void clocks_that_never_begin_leave_no_owners(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 0, MIB, MIB);
    refuser last = { .listener = { .clock_begins = refuses,
                                   .stream_changes = hears_of_changes } };
    weir_stream stream;
    weir_resource_unref(it.pool);
    must_ok(weir__order_listen(it.device->order, &last.listener));
    must_equal(last.count, STREAMS + 1); /* and the legacy stream's */
    it.pool = open_pool(open_leaf(it.device), 0, MIB, MIB); /* is told first */
    size_t most = 0;
    for (int i = 0; i < 120; i++) {
        last.refuses_at = last.count + 1;
        must_answer(WEIR_OUT_OF_HOST_MEMORY,
                    weir_stream_create(it.device, WEIR_STREAM_BLOCKING, &stream));
        must(stream == NULL);
        last.refuses_at = last.count + 2; /* the second clock of a capture */
        weir_capture *capture;
        must_answer(WEIR_OUT_OF_HOST_MEMORY,
                    weir_capture_begin(it.pool, it.streams[0], &capture));
        must(capture == NULL);
        if (i < 40 && most < weir__host_live())
            most = weir__host_live();
        must(weir__host_live() <= most);
    }
    weir__order_unlisten(it.device->order, &last.listener);
    last.refuses_at = last.count + 3;
    must_answer(WEIR_OUT_OF_HOST_MEMORY,
                weir__order_listen(it.device->order, &last.listener));
    must_equal(last.count, last.refuses_at);
    stream = make_stream(it.device, WEIR_STREAM_BLOCKING); /* it does not listen */
    must_equal(last.count, last.refuses_at);
    end_stream(it.device, stream);
    close_scene(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frees_on_streams_made_later_keep_their_marks),
        cmocka_unit_test(frees_on_streams_made_before_keep_their_marks),
        cmocka_unit_test(frees_in_captures_keep_their_marks),
        cmocka_unit_test(streams_that_come_and_go_leave_no_owners),
        cmocka_unit_test(streams_come_and_go_while_others_hit),
        cmocka_unit_test(what_others_hit_is_found_on_its_stream),
        cmocka_unit_test(what_is_done_needs_no_owner),
        cmocka_unit_test(clocks_that_never_begin_leave_no_owners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
