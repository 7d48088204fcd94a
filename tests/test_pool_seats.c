/* test_pool_seats.c - what a pool keeps for threads that come, sleep and go: who gets
 * it from them, behind what; and that nothing of it is lost. */
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gate.h"
#include "support_actor.h"

/* All of it in caches, in blocks that are cached. */
#define SMALL ((size_t)256)
#define LARGE (8 * SMALL)
#define ALL   (32 * LARGE)

static bool calls_are(weir_device_calls before, weir_device_calls after)
{
    return memcmp(&before, &after, sizeof before) == 0;
}

/* ---- who gets it ---- */

static void what_was_freed_comes_again(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    for (int stream = 0; stream < 2; stream++) {
        void *first = take_on(&it, stream, SMALL - 3);
        give_on(&it, stream, first, SMALL - 3);
        weir_device_calls before = calls_of(it.device);
        for (int i = 0; i < 10; i++) {
            void *ptr = take(it.pool, it.streams[stream], SMALL);
            must(ptr == first);
            give(it.pool, it.streams[stream], ptr, SMALL);
        }
        must(calls_are(before, calls_of(it.device)));
        must(cached_in(it.pool).blocks > 0);
    }
    close_scene(&it);
}

/* What the actor freed lately, in this order: a full magazine at a time. */
static bool is_of(const blocks *all, const void *ptr)
{
    for (int i = 0; i < all->count; i++) {
        if (all->ptrs[i] == ptr)
            return true;
    }
    return false;
}

/* With one stream nobody records or waits. */
static void another_thread_gets_whole_magazines(void **state)
{
    (void)state;
    pool_scene it = open_cached(10 * SMALL, 0);
    for (int i = 1; i < STREAMS; i++)
        end_stream(it.device, it.streams[i]);
    uint64_t before = calls_of(it.device).event_record;
    actor *other = actor_begin();
    blocks all = { it.pool, it.streams[0], SMALL, 10, { NULL } };
    actor_does(other, turn_over_blocks, &all);
    must(cached_in(it.pool).depot_bytes > 0);
    size_t most = cached_in(it.pool).depot_bytes / SMALL;

    blocks mine = { it.pool, it.streams[0], SMALL, (int)most, { NULL } };
    size_t kept = cached_in(it.pool).bytes;
    take_blocks(&mine);
    for (int i = 0; i < mine.count; i++)
        must(is_of(&all, mine.ptrs[i]));
    /* None of it came by emptying the other's cache. */
    must_equal(cached_in(it.pool).bytes, kept - most * SMALL);
    must_equal(cached_in(it.pool).depot_bytes, 0);
    must_equal(calls_of(it.device).event_record, before);
    must_equal(waits(&it), 0);
    give_blocks(&mine);
    actor_end(other);
    for (int i = 1; i < STREAMS; i++)
        it.streams[i] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    close_scene(&it);
}

/* Of another size than is asked for, they become free before anybody's cache does; but
 * not where what was never used will do. */
static void magazines_are_in_nobodys_way(void **state)
{
    (void)state;
    static const struct {
        size_t fresh, bytes;
        size_t goes; /* of the depot; SIZE_MAX: all */
    } cases[] = { { 0, SMALL, WEIR__MAGAZINE * SMALL },
                  { 0, 2 * SMALL, SIZE_MAX },
                  { 2 * SMALL, 2 * SMALL, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pool_scene it = open_cached(12 * SMALL + cases[i].fresh, 0);
        actor *other = actor_begin();
        blocks all = { it.pool, it.streams[0], SMALL, 12, { NULL } };
        actor_does(other, turn_over_blocks, &all);
        const cached_memory before = cached_in(it.pool);
        const size_t goes = cases[i].goes;
        must(before.depot_bytes > WEIR__MAGAZINE * SMALL);
        void *ptr = take(it.pool, it.streams[1], cases[i].bytes);
        const cached_memory after = cached_in(it.pool);
        must_equal(after.depot_bytes,
                   goes == SIZE_MAX ? 0 : before.depot_bytes - goes);
        must(after.bytes - after.depot_bytes >= before.bytes - before.depot_bytes);
        give(it.pool, it.streams[1], ptr, cases[i].bytes);
        actor_end(other);
        close_scene(&it);
    }
}

static void another_stream_waits_once_for_a_magazine(void **state)
{
    (void)state;
    pool_scene it = open_cached(10 * SMALL, 0);
    actor *other = actor_begin();
    blocks all = { it.pool, it.streams[0], SMALL, 10, { NULL } };
    actor_does(other, take_blocks, &all);
    for (int i = 0; i < all.count; i++)
        stamp(it.device, it.streams[0], all.ptrs[i], SMALL, (uint64_t)i);
    uint64_t gate = stall(&it, 0);
    for (int i = 0; i < all.count; i++)
        check_stamp(it.device, it.streams[0], all.ptrs[i], SMALL, (uint64_t)i);
    actor_does(other, give_blocks, &all);
    int magazines = (int)(cached_in(it.pool).depot_bytes / SMALL / WEIR__MAGAZINE);
    must(magazines > 0);

    blocks mine = { it.pool, it.streams[1], SMALL, (int)WEIR__MAGAZINE, { NULL } };
    void *kept[BLOCKS_MOST];
    int count = 0;
    for (int i = 0; i < magazines; i++) {
        weir_device_calls before = calls_of(it.device);
        take_blocks(&mine);
        weir_device_calls after = calls_of(it.device);
        must(after.stream_wait_event - before.stream_wait_event <= 1);
        must(after.event_record - before.event_record <= 1);
        for (int k = 0; k < mine.count; k++) {
            must(is_of(&all, mine.ptrs[k]));
            kept[count++] = mine.ptrs[k];
            stamp(it.device, it.streams[1], mine.ptrs[k], SMALL, 77);
        }
    }
    must(waits(&it) >= 1);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[1]));
    open_gate(&it, gate);
    must_ok(weir_stream_sync(it.device, it.streams[1]));
    for (int i = 0; i < count; i++)
        give(it.pool, it.streams[1], kept[i], SMALL);
    actor_end(other);
    close_scene(&it);
}

/* Magazines of several frees: each taker is behind that magazine's, not behind what
 * came later. */
static void a_magazine_is_behind_its_own_frees(void **state)
{
    (void)state;
    pool_scene it = open_cached(16 * SMALL, 0);
    actor *other = actor_begin();
    void *x = take_on(&it, 2, SMALL); /* there is a second stream from the start */
    give_on(&it, 2, x, SMALL);
    weir_thread_flush();
    blocks all = { it.pool, it.streams[0], SMALL, 12, { NULL } };
    actor_does(other, turn_over_blocks, &all);
    must(cached_in(it.pool).depot_bytes > 0);
    uint64_t gate = stall(&it, 0); /* after the frees */
    size_t most = cached_in(it.pool).depot_bytes / SMALL;
    blocks mine = { it.pool, it.streams[1], SMALL, (int)most, { NULL } };
    take_blocks(&mine);
    for (int i = 0; i < mine.count; i++)
        stamp(it.device, it.streams[1], mine.ptrs[i], SMALL, 5);
    must_ok(weir_stream_sync(it.device, it.streams[1]));
    open_gate(&it, gate);
    give_blocks(&mine);
    actor_end(other);
    close_scene(&it);
}

/* ---- before growing, and before refusing ---- */

/* All memory is in the cache of a thread that sleeps. A request of another size on
 * `stream` gets it in one piece. */
static void sleeper_gives_all(int stream)
{
    pool_scene it = open_cached(ALL, 0);
    actor *sleeper = actor_begin();
    blocks all = { it.pool, it.streams[0], LARGE, (int)(ALL / LARGE), { NULL } };
    actor_does(sleeper, take_blocks, &all);
    for (int i = 0; i < all.count; i++)
        stamp(it.device, it.streams[0], all.ptrs[i], LARGE, (uint64_t)i);
    uint64_t gate = stall(&it, 0);
    for (int i = 0; i < all.count; i++)
        check_stamp(it.device, it.streams[0], all.ptrs[i], LARGE, (uint64_t)i);
    actor_does(sleeper, give_blocks, &all);
    must(cached_in(it.pool).blocks > 0);

    void *ptr = take(it.pool, it.streams[stream], ALL);
    must(ptr != NULL);
    must_equal(cached_in(it.pool).blocks, 0);
    must_equal(waits(&it), stream == 0 ? 0 : 1);
    stamp(it.device, it.streams[stream], ptr, ALL, 99);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[stream]));
    open_gate(&it, gate);
    must_ok(weir_stream_sync(it.device, it.streams[stream]));
    give(it.pool, it.streams[stream], ptr, ALL);

    /* The sleeper wakes up, and keeps again. */
    actor_does(sleeper, turn_over_blocks, &all);
    must(cached_in(it.pool).blocks > 0);
    must_equal(statistics_of(it.pool).held_bytes, ALL);
    actor_end(sleeper);
    close_scene(&it);
}

static void sleeper_is_flushed_for_its_stream(void **state)
{
    (void)state;
    sleeper_gives_all(0);
}

static void sleeper_is_flushed_for_another_stream(void **state)
{
    (void)state;
    sleeper_gives_all(1);
}

static void sleeper_is_flushed_by_a_trim(void **state)
{
    (void)state;
    pool_scene it = open_cached(ALL, 0);
    actor *sleeper = actor_begin();
    blocks all = { it.pool, it.streams[0], LARGE, (int)(ALL / LARGE), { NULL } };
    actor_does(sleeper, turn_over_blocks, &all);
    must(cached_in(it.pool).blocks > 0);
    must_equal(weir_resource_trim_sync(it.pool, 0), ALL);
    must_equal(statistics_of(it.pool).held_bytes, 0);
    must_equal(cached_in(it.pool).blocks, 0);

    actor_does(sleeper, turn_over_blocks, &all);
    all.count = 1; /* which is out */
    actor_does(sleeper, take_blocks, &all);
    (void)weir_resource_trim_sync(it.pool, 0);
    weir_resource_statistics s = statistics_of(it.pool);
    must_equal(s.held_bytes, ALL); /* the chunk that it is in */
    must_equal(s.free_bytes, ALL - LARGE);
    actor_does(sleeper, give_blocks, &all);
    actor_end(sleeper);
    close_scene(&it);
}

/* The same where owners fence. */
static void fenced(void (*test)(void **state))
{
    weir__gate_force_fences(true);
    test(NULL);
    weir__gate_force_fences(false);
}

static void sleepers_are_flushed_with_fences(void **state)
{
    (void)state;
    fenced(sleeper_is_flushed_for_its_stream);
    fenced(sleeper_is_flushed_for_another_stream);
    fenced(sleeper_is_flushed_by_a_trim);
}

/* ---- threads that end ---- */

static void what_an_ended_thread_kept_is_for_all(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        pool_scene it = open_cached(ALL, 0);
        actor *other = actor_begin();
        blocks all = { it.pool, it.streams[0], LARGE, (int)(ALL / LARGE), { NULL } };
        actor_does(other, turn_over_blocks, &all);
        actor_end(other);
        size_t depot = cached_in(it.pool).depot_bytes;
        must_equal(cached_in(it.pool).bytes, depot);
        must_equal(cached_in(it.pool).seats, 0);
        weir_resource_statistics s = statistics_of(it.pool);
        must_equal(s.allocations, (uint64_t)all.count);
        must_equal(s.deallocations, (uint64_t)all.count);
        must_equal(s.out_bytes, 0);
        must_equal(s.peak_out_bytes, ALL);
        must_equal(s.free_bytes, s.held_bytes);
        give_on(&it, stream, take_on(&it, stream, ALL), ALL);
        close_scene(&it);
    }
}

/* No thread that is gone has a seat for ever. */
static void seats_of_ended_threads_are_few(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    blocks all = { it.pool, it.streams[0], SMALL, 4, { NULL } };
    size_t live = 0;
    for (int i = 0; i < 300; i++) {
        if (i == 100)
            live = weir__host_live();
        actor *other = actor_begin();
        actor_does(other, turn_over_blocks, &all);
        actor_end(other);
    }
    must(weir__host_live() < live + 350); /* the ledger keeps one of each, a seat two */
    must(cached_in(it.pool).seats <= 40);
    weir_resource_statistics s = statistics_of(it.pool);
    must_equal(s.allocations, 300 * 4);
    must_equal(s.out_blocks, 0);
    close_scene(&it);
}

typedef struct ending {
    pool_scene *it;
    int stream;
    atomic_int *ready;
    void *block;
} ending;

static void keeps_and_ends(void *argument)
{
    ending *self = argument;
    pool_scene *it = self->it;
    blocks all = { it->pool, it->streams[self->stream], SMALL, 7, { NULL } };
    turn_over_blocks(&all);
    weir_resource_unref(it->pool);
}


/* Each order of the threads' ends and the pool's. */
static void threads_and_pool_end_together(void **state)
{
    (void)state;
    uint64_t runs = support_bound("test_pool_seats.end_runs", 60, 1000);
    for (uint64_t run = 0; run < runs; run++) {
        pool_scene it = { .device = open_stepped(support_seed(run)) };
        for (int i = 0; i < STREAMS; i++)
            it.streams[i] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        must_ok(weir_resource_open(it.device, "pool/device", &it.pool));
        ending parts[3];
        void *arguments[3];
        for (int i = 0; i < 3; i++) {
            parts[i] = (ending){ &it, i % 2, NULL, NULL };
            arguments[i] = &parts[i];
            if (i > 0)
                (void)weir_resource_ref(it.pool);
        }
        must_ok(weir_emulated_run_threads(it.device, 3, keeps_and_ends, arguments));
        must_equal(device_free_bytes(it.device), (size_t)4 << 30);
        for (int i = 0; i < STREAMS; i++)
            end_stream(it.device, it.streams[i]);
        close_emulated(it.device);
    }
}

static void *races_to_its_end(void *argument)
{
    ending *self = argument;
    blocks all = { self->it->pool, self->it->streams[self->stream], SMALL, 7,
                   { NULL } };
    turn_over_blocks(&all);
    atomic_fetch_add(self->ready, 1);
    return NULL; /* and the thread ends */
}

static void thread_ends_while_the_pool_does(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    uint64_t runs = support_bound("test_pool_seats.race_runs", 200, 4000);
    for (uint64_t run = 0; run < runs; run++) {
        pool_scene it = { .device = device, .streams = { stream } };
        must_ok(weir_resource_open(device, "pool/device", &it.pool));
        atomic_int ready = 0;
        ending parts[2] = { { &it, 0, &ready, NULL }, { &it, 0, &ready, NULL } };
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            must(pthread_create(&threads[i], NULL, races_to_its_end, &parts[i]) == 0);
        while (atomic_load(&ready) < 2)
            continue;
        weir_resource_unref(it.pool);
        for (int i = 0; i < 2; i++)
            must(pthread_join(threads[i], NULL) == 0);
        must_equal(device_free_bytes(device), (size_t)4 << 30);
    }
    end_stream(device, stream);
    close_emulated(device);
}

/* ---- pools that end ---- */

/* The sleeper's seats are dead; it sweeps them when it next has to do with a pool. */
static void thread_outlives_its_pools(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    actor *other = actor_begin();
    blocks all = { it.pool, it.streams[0], SMALL, 7, { NULL } };
    size_t live = 0;
    for (int i = 0; i < 40; i++) {
        weir_resource *pool;
        must_ok(weir_resource_open(it.device, "pool/device", &pool));
        all.pool = pool;
        actor_does(other, turn_over_blocks, &all);
        must_equal(cached_in(pool).seats, 1);
        weir_resource_unref(pool); /* on this thread, with the other's cache */
        if (i == 10)
            live = weir__host_live();
        must(i <= 10 || weir__host_live() <= live);
    }
    actor_end(other);
    close_scene(&it);
}

static void flushes(void *argument)
{
    (void)argument;
    weir_thread_flush();
    weir_thread_flush();
}

static void flush_sweeps_what_is_dead(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    actor *other = actor_begin();
    actor_does(other, flushes, NULL); /* nothing there */
    size_t live = 0;
    size_t before = device_free_bytes(it.device);
    for (int i = 0; i < 12; i++) {
        blocks all = { NULL, it.streams[0], SMALL, 7, { NULL } };
        must_ok(weir_resource_open(it.device, "pool/device", &all.pool));
        actor_does(other, turn_over_blocks, &all);
        weir_resource_unref(all.pool);
        must(i <= 8 || weir__host_live() > live);
        if (i <= 8) { /* by now the device has what it needs */
            actor_does(other, flushes, NULL);
            live = weir__host_live();
        }
    }
    must_equal(device_free_bytes(it.device), before);
    actor_does(other, flushes, NULL);
    must_equal(weir__host_live(), live);
    actor_end(other);
    close_scene(&it);
}

/* Brings a block back on a thread that has no seat, after the last unref; and one that
 * had a seat. */
static void last_block_ends_the_pool_anywhere(void **state)
{
    (void)state;
    for (int on_sleeper = 0; on_sleeper < 2; on_sleeper++) {
        pool_scene it = open_cached(0, 0);
        actor *maker = actor_begin(), *other = actor_begin();
        blocks all = { NULL, it.streams[0], SMALL, 7, { NULL } };
        size_t before = device_free_bytes(it.device);
        must_ok(weir_resource_open(it.device, "pool/device", &all.pool));
        actor_does(maker, turn_over_blocks, &all);
        actor_does(maker, take_blocks, &all);
        weir_resource_unref(all.pool);
        must(device_free_bytes(it.device) < before);
        actor_does(on_sleeper ? maker : other, give_blocks, &all);
        must_equal(device_free_bytes(it.device), before);
        actor_end(maker);
        actor_end(other);
        close_scene(&it);
    }
}

/* ---- weir_thread_flush ---- */

static void flush_gives_back(void **state)
{
    (void)state;
    pool_scene it = open_cached(ALL, 0);
    actor *other = actor_begin();
    blocks all = { it.pool, it.streams[0], LARGE, (int)(ALL / LARGE), { NULL } };
    actor_does(other, turn_over_blocks, &all);
    blocks mine = { it.pool, it.streams[2], SMALL, 1, { NULL } };
    cached_memory before = cached_in(it.pool);
    must(before.bytes > before.depot_bytes);
    weir_thread_flush(); /* nothing of the other's */
    must_equal(cached_in(it.pool).bytes, before.bytes);
    actor_does(other, flushes, NULL);
    must_equal(cached_in(it.pool).bytes, before.depot_bytes);
    must(statistics_of(it.pool).largest_free_bytes >= LARGE);
    turn_over_blocks(&mine); /* from the heap, where the depot's are too then */
    must_equal(cached_in(it.pool).depot_bytes, 0);
    all.count = 8;
    actor_does(other, turn_over_blocks, &all); /* and it keeps again */
    must(cached_in(it.pool).bytes > cached_in(it.pool).depot_bytes);
    actor_end(other);
    close_scene(&it);
}

static void flush_is_harmless_in_a_forks_child(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    give_on(&it, 0, take_on(&it, 0, SMALL), SMALL);
    give_on(&it, 0, take_on(&it, 0, SMALL), SMALL);
    size_t before = cached_in(it.pool).bytes;
    must(before > 0);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        weir_thread_flush();
        weir_thread_flush();
        _exit(0);
    }
    int status = -1;
    must(waitpid(child, &status, 0) == child);
    must_equal(status, 0);
    must_equal(cached_in(it.pool).bytes, before);
    close_scene(&it);
}

static pthread_key_t flush_key;

/* Of a key that may come before or after the library's own. */
static void flushes_as_it_ends(void *value)
{
    blocks *all = value;
    weir_thread_flush();
    turn_over_blocks(all);
    weir_thread_flush();
}

static void sets_the_key(void *argument)
{
    must(pthread_setspecific(flush_key, argument) == 0);
    turn_over_blocks(argument);
}

static void flush_works_in_a_destructor(void **state)
{
    (void)state;
    pool_scene it = open_cached(ALL, 0);
    must(pthread_key_create(&flush_key, flushes_as_it_ends) == 0);
    blocks all = { it.pool, it.streams[0], LARGE, 7, { NULL } };
    actor *other = actor_begin();
    actor_does(other, sets_the_key, &all);
    actor_end(other);
    must(pthread_key_delete(flush_key) == 0);
    cached_memory after = cached_in(it.pool);
    must_equal(after.bytes, after.depot_bytes);
    must_equal(cached_in(it.pool).seats, 0); /* whoever looks frees them */
    weir_resource_statistics s = statistics_of(it.pool);
    must_equal(s.allocations, 14);
    must_equal(s.out_blocks, 0);
    give_on(&it, 1, take_on(&it, 1, ALL), ALL);
    close_scene(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_freed_comes_again),
        cmocka_unit_test(another_thread_gets_whole_magazines),
        cmocka_unit_test(magazines_are_in_nobodys_way),
        cmocka_unit_test(another_stream_waits_once_for_a_magazine),
        cmocka_unit_test(a_magazine_is_behind_its_own_frees),
        cmocka_unit_test(sleeper_is_flushed_for_its_stream),
        cmocka_unit_test(sleeper_is_flushed_for_another_stream),
        cmocka_unit_test(sleeper_is_flushed_by_a_trim),
        cmocka_unit_test(sleepers_are_flushed_with_fences),
        cmocka_unit_test(what_an_ended_thread_kept_is_for_all),
        cmocka_unit_test(seats_of_ended_threads_are_few),
        cmocka_unit_test(threads_and_pool_end_together),
        cmocka_unit_test(thread_ends_while_the_pool_does),
        cmocka_unit_test(thread_outlives_its_pools),
        cmocka_unit_test(flush_sweeps_what_is_dead),
        cmocka_unit_test(last_block_ends_the_pool_anywhere),
        cmocka_unit_test(flush_gives_back),
        cmocka_unit_test(flush_is_harmless_in_a_forks_child),
        cmocka_unit_test(flush_works_in_a_destructor),
    };
    return cmocka_run_group_tests_name("seats of a pool", tests, NULL, NULL);
}
