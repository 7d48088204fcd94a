/* test_pool_own.c - what is kept for a thread's own stream, the per-thread default
 * stream: on which nobody else can record an event. */
#include "clocks.h"
#include "device/emulated.h"
#include "resource_parts.h"
#include "support_actor.h"

#define SMALL ((size_t)256)
#define ALL   12 /* blocks that the pool has room for: some go to the depot */
#define FEW   4  /* so many a cache keeps */

/* Blocks that a thread has used on its own stream, which is stalled, and given back. */
typedef struct leaver {
    pool_scene *it;
    blocks all;
    uint64_t gate;
} leaver;

static leaver leaver_of(pool_scene *it, int count)
{
    return (leaver){ it,
                     { it->pool, WEIR_STREAM_PER_THREAD, SMALL, count, { NULL } },
                     0 };
}

/* What is in caches, without the depot. */
static size_t kept_in(weir_resource *pool)
{
    cached_memory all = cached_in(pool);
    return (all.bytes - all.depot_bytes) / SMALL;
}

/* Once something was recorded on the stream there is a cache. */
static void warm(void *argument)
{
    leaver *self = argument;
    blocks one = self->all;
    one.count = 1;
    turn_over_blocks(&one);
    turn_over_blocks(&one);
}

static void leave(void *argument)
{
    leaver *self = argument;
    weir_device *device = self->it->device;
    warm(self);
    take_blocks(&self->all);
    for (int i = 0; i < self->all.count; i++)
        stamp(device, WEIR_STREAM_PER_THREAD, self->all.ptrs[i], self->all.bytes,
              (uint64_t)i);
    must_ok(weir_emulated_stall(device, WEIR_STREAM_PER_THREAD, &self->gate));
    for (int i = 0; i < self->all.count; i++)
        check_stamp(device, WEIR_STREAM_PER_THREAD, self->all.ptrs[i],
                    self->all.bytes, (uint64_t)i);
    give_blocks(&self->all);
}

/* Takes so many blocks on a stream, whose work then comes after the leaver's. */
static void take_behind(pool_scene *it, const leaver *left, weir_stream stream,
                        int count)
{
    blocks mine = { it->pool, stream, SMALL, count, { NULL } };
    take_blocks(&mine);
    for (int i = 0; i < count; i++)
        stamp(it->device, stream, mine.ptrs[i], SMALL, 7);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it->device, stream));
    open_gate(it, left->gate);
    must_ok(weir_stream_sync(it->device, stream));
    give_blocks(&mine);
}

/* ---- hits ---- */

static void a_hit_calls_no_device(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    blocks some = { it.pool, WEIR_STREAM_PER_THREAD, SMALL, 2, { NULL } };
    turn_over_blocks(&some);
    must_equal(cached_in(it.pool).caches, 0); /* the driver has not met it yet */
    turn_over_blocks(&some);
    must_equal(cached_in(it.pool).caches, 1);
    must_equal(cached_in(it.pool).blocks, 2);
    weir_device_calls before = calls_of(it.device);
    for (int i = 0; i < 50; i++)
        turn_over_blocks(&some);
    weir_device_calls after = calls_of(it.device);
#define X(name) must_equal(after.name, before.name);
    WEIR_DEVICE_CALL_MAP(X)
#undef X
    close_scene(&it);
}

static void each_thread_has_its_own(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    actor *other = actor_begin();
    leaver theirs = leaver_of(&it, FEW);
    blocks mine = theirs.all;
    actor_does(other, leave, &theirs);
    turn_over_blocks(&mine); /* of what nobody is at work on */
    turn_over_blocks(&mine);
    must_equal(cached_in(it.pool).caches, 2);
    must_equal(kept_in(it.pool), 2 * FEW);
    must_ok(weir_stream_sync(it.device, WEIR_STREAM_PER_THREAD));
    open_gate(&it, theirs.gate);
    actor_end(other);
    must_equal(cached_in(it.pool).caches, 1);
    close_scene(&it);
}

/* ---- others want it ---- */

typedef enum taker { NON_BLOCKING, BLOCKING, LEGACY, OWN, TAKERS } taker;

static weir_stream stream_of(const pool_scene *it, taker who, weir_stream blocking)
{
    const weir_stream streams[TAKERS] = { it->streams[0], blocking, NULL,
                                          WEIR_STREAM_PER_THREAD };
    return streams[who];
}

/* Whoever empties the cache of a thread that sleeps, its stream's work comes first. */
static void what_a_thread_keeps_is_behind_its_stream(void **state)
{
    (void)state;
    for (taker who = 0; who < TAKERS; who++) {
        pool_scene it = open_cached(ALL * SMALL, 0);
        weir_stream blocking = make_stream(it.device, WEIR_STREAM_BLOCKING);
        actor *other = actor_begin();
        leaver left = leaver_of(&it, ALL);
        actor_does(other, leave, &left);
        must_equal(cached_in(it.pool).caches, 1);
        take_behind(&it, &left, stream_of(&it, who, blocking), ALL);
        actor_end(other);
        end_stream(it.device, blocking);
        close_scene(&it);
    }
}

/* And though nobody has wanted another's memory for long. */
static void what_a_thread_keeps_quietly_is_behind_its_stream(void **state)
{
    (void)state;
    pool_scene it = open_cached(ALL * SMALL, 0);
    actor *other = actor_begin();
    leaver left = leaver_of(&it, ALL);
    actor_does(other, warm, &left);
    for (int i = 0; i < 40; i++)
        actor_does(other, turn_over_blocks, &left.all);
    actor_does(other, leave, &left);
    take_behind(&it, &left, it.streams[0], ALL);
    actor_end(other);
    close_scene(&it);
}

static void what_a_thread_leaves_is_behind_its_stream(void **state)
{
    (void)state;
    for (taker who = 0; who < TAKERS; who++) {
        pool_scene it = open_cached(ALL * SMALL, 0);
        weir_stream blocking = make_stream(it.device, WEIR_STREAM_BLOCKING);
        actor *other = actor_begin();
        leaver left = leaver_of(&it, ALL);
        actor_does(other, leave, &left);
        actor_end(other);
        must_equal(cached_in(it.pool).caches, 0);
        take_behind(&it, &left, stream_of(&it, who, blocking), ALL);
        end_stream(it.device, blocking);
        close_scene(&it);
    }
}

/* What a cache has no room for can be waited for while its thread sleeps, and the cache
 * keeps the rest. */
static void close_at_once(bool quietly)
{
    pool_scene it = open_cached(ALL * SMALL, quietly ? 0 : 2 * SMALL);
    actor *other = actor_begin();
    leaver left = leaver_of(&it, ALL);
    for (int i = 0; i < 40 && quietly; i++) /* nobody has wanted another's for long */
        actor_does(other, turn_over_blocks, &left.all);
    actor_does(other, leave, &left);
    const size_t kept = kept_in(it.pool);
    must(kept <= FEW);
    weir_device_calls before = calls_of(it.device);
    blocks mine = { it.pool, it.streams[0], SMALL, ALL - FEW, { NULL } };
    take_blocks(&mine);
    must_equal(kept_in(it.pool), kept);
    must_equal(calls_of(it.device).event_record, before.event_record);
    must_equal(calls_of(it.device).event_record_all, before.event_record_all);
    must(calls_of(it.device).stream_wait_event > before.stream_wait_event);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[0]));
    open_gate(&it, left.gate);
    must_ok(weir_stream_sync(it.device, it.streams[0]));
    give_blocks(&mine);
    actor_end(other);
    close_scene(&it);
}

static void what_is_not_kept_is_closed_at_once(void **state)
{
    (void)state;
    close_at_once(false);
    close_at_once(true);
}

/* One that is never kept is free, for whoever waits, at once. */
static void what_is_never_kept_is_closed_by_itself(void **state)
{
    (void)state;
    const size_t large = 16 * SMALL;
    pool_scene it = open_cached(large, 0);
    actor *other = actor_begin();
    leaver left = leaver_of(&it, 1);
    actor_does(other, warm, &left);
    left.all.bytes = large;
    actor_does(other, leave, &left);
    void *ptr = take(it.pool, it.streams[0], large);
    stamp(it.device, it.streams[0], ptr, large, 7);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[0]));
    open_gate(&it, left.gate);
    must_ok(weir_stream_sync(it.device, it.streams[0]));
    give(it.pool, it.streams[0], ptr, large);
    actor_end(other);
    close_scene(&it);
}

/* No event behind all of the device can be recorded while something is captured: what
 * was another thread's can be had afterwards, and needs no wait of the host. */
static void what_a_thread_keeps_waits_for_captures(void **state)
{
    (void)state;
    for (int declared = 0; declared < 2; declared++) {
        pool_scene it = open_cached(FEW * SMALL, 0);
        weir_stream captured = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        weir_capture *capture = NULL;
        actor *other = actor_begin();
        leaver left = leaver_of(&it, FEW);
        actor_does(other, leave, &left);
        must_equal(kept_in(it.pool), FEW);
        if (declared)
            must_ok(weir_capture_begin(it.pool, captured, &capture));
        else
            must_ok(weir_emulated_capture_begin(it.device, captured));
        (void)try_take(&it, 0, SMALL, WEIR_CAPTURING);
        uint64_t waits = calls_of(it.device).device_sync;
        (void)weir_resource_trim_sync(it.pool, 0);
        must_equal(calls_of(it.device).device_sync, waits);
        if (declared) /* it might begin at any time */
            must_ok(weir_emulated_capture_begin(it.device, captured));
        must_ok(weir_emulated_capture_end(it.device, captured, NULL)); /* not spoilt */
        must_ok(weir_capture_release(capture, it.streams[1]));
        take_behind(&it, &left, it.streams[0], FEW);
        actor_end(other);
        end_stream(it.device, captured);
        close_scene(&it);
    }
}

/* What others find in no state to be waited for is the thread's own still: it takes it
 * at once, in its stream's order. */
static void what_others_took_out_comes_back_at_once(void **state)
{
    (void)state;
    pool_scene it = open_cached(FEW * SMALL, 0);
    actor *other = actor_begin();
    leaver left = leaver_of(&it, FEW);
    actor_does(other, leave, &left);
    must_ok(weir_emulated_capture_begin(it.device, it.streams[1]));
    (void)try_take(&it, 0, SMALL, WEIR_CAPTURING); /* everybody's caches are empty */
    must_ok(weir_emulated_capture_end(it.device, it.streams[1], NULL));
    must_equal(kept_in(it.pool), 0);
    weir_device_calls before = calls_of(it.device);
    actor_does(other, take_blocks, &left.all);
    must_equal(calls_of(it.device).stream_wait_event, before.stream_wait_event);
    must_equal(calls_of(it.device).event_record_all, before.event_record_all);
    open_gate(&it, left.gate);
    actor_does(other, give_blocks, &left.all);
    actor_end(other);
    close_scene(&it);
}

/* Once its thread comes by, it records an event of its own, and nobody waits for all of
 * the device. */
static void a_thread_closes_what_others_took_out(void **state)
{
    (void)state;
    pool_scene it = open_cached(2 * FEW * SMALL, 0);
    actor *other = actor_begin();
    leaver left = leaver_of(&it, FEW);
    blocks one = left.all, large = left.all;
    one.count = 1;
    one.bytes = 2 * SMALL;
    large.stream = it.streams[0];
    actor_does(other, leave, &left);
    weir__pool_flush_caches(it.pool->self);
    must_equal(kept_in(it.pool), 0);
    uint64_t recorded = calls_of(it.device).event_record;
    actor_does(other, take_blocks, &one);
    must(calls_of(it.device).event_record > recorded);
    weir_device_calls before = calls_of(it.device);
    take_blocks(&large);
    must_equal(calls_of(it.device).event_record_all, before.event_record_all);
    open_gate(&it, left.gate);
    give_blocks(&large);
    actor_does(other, give_blocks, &one);
    actor_end(other);
    close_scene(&it);
}

/* ---- the end of a thread ---- */

static pthread_key_t first_key; /* of all: its destructor is called before others */

typedef struct last_words {
    leaver left;
    size_t caches, caches_later;
} last_words;

static void speak_last(void *argument)
{
    last_words *self = argument;
    leaver again = leaver_of(self->left.it, FEW);
    self->caches = cached_in(self->left.it->pool).caches;
    warm(&again);
    self->caches_later = cached_in(self->left.it->pool).caches;
}

static void keep_last_words(void *argument)
{
    last_words *self = argument;
    must_equal(pthread_setspecific(first_key, self), 0);
    leave(&self->left);
}

/* In destructors of keys, the driver's may have been called already: from then on
 * nothing is kept. */
static void nothing_is_kept_from_the_first_destructor_on(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    actor *other = actor_begin();
    last_words words = { .left = leaver_of(&it, FEW), .caches = 7, .caches_later = 7 };
    actor_does(other, keep_last_words, &words);
    must_equal(cached_in(it.pool).caches, 1);
    actor_end(other);
    must_equal(words.caches, 0);
    must_equal(words.caches_later, 0);
    open_gate(&it, words.left.gate);
    close_scene(&it);
}

/* The keys of a user, and behind it of a driver, which ends the thread's own stream. */
static pthread_key_t late_key, driver_key;

static void begin_last(void *argument)
{
    leaver *self = argument;
    leave(self);
    must_equal(pthread_setspecific(driver_key, self), 0); /* it has met the thread */
}

static void end_own_stream(void *argument)
{
    const leaver *self = argument;
    weir__emulated *device = self->it->device->self;
    weir__mutex_lock(&device->lock);
    weir__stream_end_own(device, weir__thread_self()->number);
    weir__mutex_unlock(&device->lock);
}

static void keep_for_last(void *argument)
{
    must_equal(pthread_setspecific(late_key, argument), 0);
}

/* What glibc was given in a key's destructor it never calls, and never frees. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:__cxa_thread_atexit_impl";
}

/* Whoever uses his own stream in a destructor for the first time is not heard of in
 * time; nothing is recorded on what may be another stream by then. */
static void what_begins_in_a_destructor_is_behind_its_stream(void **state)
{
    (void)state;
    pool_scene it = open_cached(FEW * SMALL, 0);
    actor *other = actor_begin();
    leaver left = leaver_of(&it, FEW);
    actor_does(other, keep_for_last, &left);
    actor_end(other);
    take_behind(&it, &left, it.streams[0], FEW);
    close_scene(&it);
}

static const weir__cache *own_cache_of(weir_resource *pool)
{
    return weir__cache_find(weir__seat_here(pool->self), WEIR_STREAM_PER_THREAD);
}

/* A clock is dropped once all on it is done, but not while there is a cache for it. */
static void its_clock_is_as_old_as_the_cache(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    leaver mine = leaver_of(&it, FEW);
    weir__pool *pool = it.pool->self;
    uint32_t clocks = 0;
    warm(&mine);
    for (int i = 0; i < 24; i++) {
        must_ok(weir_device_sync(it.device));
        must(own_cache_of(it.pool) != NULL);
        must(weir__order_has_clock(pool->order, own_cache_of(it.pool)->clock));
        actor *other = actor_begin();
        actor_does(other, warm, &mine);
        actor_end(other);
        if (i == 12)
            clocks = pool->order->clock_count;
    }
    must(pool->order->clock_count <= clocks + 1);
    close_scene(&it);
}

/* ---- captures, and the end of the pool ---- */

static void a_capture_ends_the_cache_of_its_thread(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    actor *other = actor_begin();
    leaver mine = leaver_of(&it, ALL), theirs = leaver_of(&it, ALL);
    weir_capture *capture;
    actor_does(other, warm, &theirs);
    warm(&mine);
    must_equal(cached_in(it.pool).caches, 2);
    must_ok(weir_capture_begin(it.pool, WEIR_STREAM_PER_THREAD, &capture));
    must_equal(cached_in(it.pool).caches, 1);
    turn_over_blocks(&mine.all);
    must_equal(cached_in(it.pool).caches, 1);
    must_ok(weir_capture_release(capture, it.streams[0]));
    warm(&mine);
    must_equal(cached_in(it.pool).caches, 2);
    actor_end(other);
    close_scene(&it);
}

static void a_pool_ends_before_its_threads(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    actor *other = actor_begin();
    leaver left = leaver_of(&it, ALL);
    actor_does(other, leave, &left);
    open_gate(&it, left.gate);
    weir_resource_unref(it.pool);
    actor_end(other);
    it.pool = open_pool(open_leaf(it.device), 0, 0, 0);
    close_scene(&it);
}

/* ---- who ends another's capture ---- */

typedef struct own_capture {
    pool_scene *it;
    blocks one;
    uint64_t gate;
    weir_capture *capture;
} own_capture;

/* Of the thread's own stream, which is at work for a block that is free by then. */
static void begin_own_capture(void *argument)
{
    own_capture *self = argument;
    weir_device *device = self->it->device;
    take_blocks(&self->one);
    stamp(device, WEIR_STREAM_PER_THREAD, self->one.ptrs[0], SMALL, 1);
    must_ok(weir_emulated_stall(device, WEIR_STREAM_PER_THREAD, &self->gate));
    check_stamp(device, WEIR_STREAM_PER_THREAD, self->one.ptrs[0], SMALL, 1);
    give_blocks(&self->one);
    must_ok(weir_capture_begin(self->it->pool, WEIR_STREAM_PER_THREAD, &self->capture));
}

/* On whose own stream nothing is at work: what is asked of that says nothing about the
 * other's. */
static void another_thread_ends_a_capture(void **state)
{
    (void)state;
    pool_scene it = open_cached(2 * SMALL, 0);
    blocks one = { it.pool, WEIR_STREAM_PER_THREAD, SMALL, 1, { NULL } };
    own_capture own = { &it, one, 0, NULL };
    actor *other = actor_begin();
    actor_does(other, begin_own_capture, &own);
    must_ok(weir_capture_end(own.capture));
    must_ok(weir_capture_release(own.capture, it.streams[0]));
    for (int i = 0; i < 8; i++) { /* so many that clocks are dropped that are done */
        actor *brief = actor_begin();
        actor_does(brief, turn_over_blocks, &one);
        actor_end(brief);
    }
    blocks both = { it.pool, it.streams[1], SMALL, 2, { NULL } };
    take_blocks(&both);
    for (int i = 0; i < both.count; i++)
        stamp(it.device, it.streams[1], both.ptrs[i], SMALL, 2);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[1]));
    open_gate(&it, own.gate);
    must_ok(weir_stream_sync(it.device, it.streams[1]));
    give_blocks(&both);
    actor_end(other);
    close_scene(&it);
}

int main(void)
{
    if (pthread_key_create(&first_key, speak_last) != 0 ||
        pthread_key_create(&late_key, begin_last) != 0 ||
        pthread_key_create(&driver_key, end_own_stream) != 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hit_calls_no_device),
        cmocka_unit_test(each_thread_has_its_own),
        cmocka_unit_test(what_a_thread_keeps_is_behind_its_stream),
        cmocka_unit_test(what_a_thread_keeps_quietly_is_behind_its_stream),
        cmocka_unit_test(what_a_thread_leaves_is_behind_its_stream),
        cmocka_unit_test(what_is_not_kept_is_closed_at_once),
        cmocka_unit_test(what_is_never_kept_is_closed_by_itself),
        cmocka_unit_test(what_a_thread_keeps_waits_for_captures),
        cmocka_unit_test(what_others_took_out_comes_back_at_once),
        cmocka_unit_test(a_thread_closes_what_others_took_out),
        cmocka_unit_test(nothing_is_kept_from_the_first_destructor_on),
        cmocka_unit_test(what_begins_in_a_destructor_is_behind_its_stream),
        cmocka_unit_test(its_clock_is_as_old_as_the_cache),
        cmocka_unit_test(a_capture_ends_the_cache_of_its_thread),
        cmocka_unit_test(a_pool_ends_before_its_threads),
        cmocka_unit_test(another_thread_ends_a_capture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
