/* model_buffers.c - random plays with buffers (support_buffer_player.h), by one host
 * thread or several that hold the same bytes: what is ordered is never found fault with
 * and loses no byte, statuses are those of a naive model, each deleter comes once, and
 * in the end everything is back. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "support_buffer_player.h"

enum { PLAYERS = 3, COMMON = 2 };

static player players[PLAYERS];
static player_storage common[COMMON];

static player_scene scene_open(weir_emulated_scheduler scheduler, uint64_t seed)
{
    player_scene it = { .device = open_emulated(scheduler, seed) };
    must_ok(weir_resource_open(it.device, "pool/device", &it.pool));
    it.streams[STREAM_A] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.streams[STREAM_B] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.streams[STREAM_BLOCKING] = make_stream(it.device, WEIR_STREAM_BLOCKING);
    must_ok(support_stream_create(it.device, WEIR_STREAM_NON_BLOCKING,
                                  &it.streams[STREAM_UNKNOWN]));
    it.streams[STREAM_LEGACY] = WEIR_STREAM_LEGACY;
    it.streams[STREAM_OWN] = WEIR_STREAM_PER_THREAD;
    it.streams[STREAM_MORTAL] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    return it;
}

static void scene_close(player_scene *it)
{
    must_ok(weir_device_drain_sync(it->device));
    must_equal(statistics_of(it->pool).out_bytes, 0);
    must_equal(pending_of(it->device).deferred_count, 0);
    weir_resource_unref(it->pool);
    for (int i = 0; i < PLAYER_STREAMS; i++) {
        if (i == STREAM_UNKNOWN)
            must_ok(support_stream_destroy(it->device, it->streams[i]));
        else if (i != STREAM_LEGACY && i != STREAM_OWN)
            end_stream(it->device, it->streams[i]);
    }
    close_emulated(it->device);
}

static void play_together(player_scene *it, uint64_t seed, size_t count)
{
    player *all[PLAYERS];
    void *arguments[PLAYERS];
    for (size_t i = 0; i < count; i++) {
        arguments[i] = all[i] = &players[i];
        player_begin(all[i], it, seed + i, count == 1);
    }
    for (size_t i = 0; i < COMMON && count > 1; i++)
        players_share(all, count, &common[i], i);
    if (count == 1)
        player_play(all[0]);
    else
        must_ok(support_run_threads(it->device, count, player_play, arguments));
    must_ok(weir_device_drain_sync(it->device));
    for (size_t i = 0; i < count; i++)
        player_must_be_over(all[i]);
}

static void play_all(const char *what, uint64_t quick, uint64_t full, bool alone,
                     weir_emulated_scheduler scheduler)
{
    uint64_t bound = support_bound(what, quick, full);
    if (getenv("WEIR_SEED") != NULL)
        bound = 1;
    for (uint64_t i = 0; i < bound; i++) {
        uint64_t seed = support_seed(i);
        player_scene it = scene_open(scheduler, seed);
        play_together(&it, seed, alone ? 1 : 2 + (size_t)(seed % (PLAYERS - 1)));
        scene_close(&it);
    }
}

static void one_player_plays_clean(void **state)
{
    (void)state;
    play_all("plays with buffers", 300, 10000, true, WEIR_EMULATED_STEPPED);
}

static void players_that_take_turns_play_clean(void **state)
{
    (void)state;
    play_all("plays with buffers by turns", 100, 5000, false, WEIR_EMULATED_STEPPED);
}

static void players_side_by_side_play_clean(void **state)
{
    (void)state;
    play_all("plays with buffers side by side", 40, 2000, false, WEIR_EMULATED_THREADS);
}

/* What is switched off by accident proves nothing. */
static void players_do_everything(void **state)
{
    (void)state;
    for (int op = 0; op < PLAYER_OP_COUNT && getenv("WEIR_SEED") == NULL; op++) {
        uint64_t count = atomic_load(&player_counts[op]);
        if (count < 20)
            fprintf(stderr, "  %s happened %" PRIu64 " times\n",
                    player_op_name((player_op)op), count);
        must(count >= 20);
    }
    print_message("%" PRIu64 " contents checked, %" PRIu64 " refusals\n",
                  (uint64_t)player_checks, (uint64_t)player_refusals);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_player_plays_clean),
        cmocka_unit_test(players_that_take_turns_play_clean),
        cmocka_unit_test(players_side_by_side_play_clean),
        cmocka_unit_test(players_do_everything),
    };
#ifdef WEIR_SANITIZE_THREAD /* which sees nothing where threads take turns */
    cmocka_set_test_filter("players_side_by_side_play_clean");
#endif
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
