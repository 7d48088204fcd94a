/* test_pool_gives_back.c - threads that only give back: what they need is laid by for
 * them by threads that allocate, for a free asks for no host memory. */
#include "internal.h"
#include "resource_parts.h"
#include "support_actor.h"
#include "support_sweep.h"

#define BYTES ((size_t)1000)
#define LARGE ((size_t)4000) /* too much for any stack */
#define COUNT 4

/* Gives back while no host memory is to be had for the library. */
static void give_without_memory(void *argument)
{
    const blocks *all = argument;
    weir_device *device = weir_resource_device(all->pool);
    for (int i = 0; i < all->count; i++) {
        sweep_watch_library(device);
        bool done = weir_deallocate(all->pool, all->stream, all->ptrs[i], all->bytes,
                                    WEIR_ALIGNMENT);
        sweep_library_must_not_have_asked(device);
        must(done);
    }
}

static void get_what_was_laid_by(size_t bytes)
{
    pool_scene it = open_cached(0, 0);
    actor *other = actor_begin();
    for (uint32_t stream = 0; stream < 2; stream++) {
        blocks all = { it.pool, it.streams[stream], bytes, COUNT, { NULL } };
        take_blocks(&all);
        size_t before = cached_in(it.pool).caches;
        actor_does(other, give_without_memory, &all);
        must_equal(cached_in(it.pool).caches, before);
        take_blocks(&all);
        actor_does(other, give_without_memory, &all);
        must_equal(cached_in(it.pool).caches, before + 1);
        (void)weir_resource_trim_sync(it.pool, 0);
    }
    must_equal(statistics_of(it.pool).out_blocks, 0);
    actor_end(other);
    close_scene(&it);
}

/* The first free on a stream asks for a seat, an allocation lays one by, and the next
 * free has it; whatever the sizes. */
static void thread_gets_what_was_laid_by(void **state)
{
    (void)state;
    get_what_was_laid_by(BYTES);
    get_what_was_laid_by(LARGE);
}

/* What nobody has come for goes with the pool. */
static void what_was_laid_by_goes_with_the_pool(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    actor *other = actor_begin();
    blocks all = { it.pool, it.streams[0], BYTES, COUNT, { NULL } };
    take_blocks(&all);
    actor_does(other, give_without_memory, &all);
    take_blocks(&all);
    const weir__pool *pool = it.pool->self;
    must(pool->spare_seat.cache != NULL && !pool->wants_spare_seat);
    give_blocks(&all);
    actor_end(other);
    close_scene(&it);
}

/* Each part of it fails once: nothing is laid by, nothing leaks, and the request that
 * was asked for it is served. */
static void without_host_memory_nothing_is_laid_by(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 5; nth++) {
        pool_scene it = open_cached(0, 0);
        actor *other = actor_begin();
        blocks all = { it.pool, it.streams[0], BYTES, COUNT, { NULL } };
        take_blocks(&all);
        actor_does(other, give_without_memory, &all);
        weir__host_fail_at(nth, false);
        take_blocks(&all);
        weir__host_fail_at(0, false);
        const weir__pool *pool = it.pool->self;
        must((pool->spare_seat.cache != NULL) == (nth == 5));
        must(!pool->wants_spare_seat);
        give_blocks(&all);
        actor_end(other);
        close_scene(&it);
    }
}

static void give_once_all_is_done(void *argument)
{
    blocks *all = argument;
    must_ok(weir_device_sync(weir_resource_device(all->pool)));
    give_blocks(all);
}

/* Streams that can have no cache ask for none. */
static void unknown_streams_lay_nothing_by(void **state)
{
    (void)state;
    pool_scene it = open_cached(0, 0);
    actor *other = actor_begin();
    blocks all = { it.pool, WEIR_STREAM_PER_THREAD, BYTES, 1, { NULL } };
    all.ptrs[0] = take_on(&it, 0, BYTES);
    actor_does(other, give_once_all_is_done, &all);
    const weir__pool *pool = it.pool->self;
    must(!pool->wants_spare_seat && pool->spare_seat.cache == NULL);
    actor_end(other);
    close_scene(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_gets_what_was_laid_by),
        cmocka_unit_test(what_was_laid_by_goes_with_the_pool),
        cmocka_unit_test(without_host_memory_nothing_is_laid_by),
        cmocka_unit_test(unknown_streams_lay_nothing_by),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
