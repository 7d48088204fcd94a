/* test_bench.c - the benchmarks do the work that they say: the draws are those of the
 * generators they are named after, and what is made of them is what others measured. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/draws.h"
#include "bench/work.h"

/* ---- draws ---- */

/* The C++ standard demands the 10000th. */
static void minstd_is_the_standards_engine(void **state)
{
    (void)state;
    uint32_t engine = MINSTD_SEED;
    must_equal(minstd_next(&engine), 16807);
    for (int i = 2; i < 10000; i++)
        minstd_next(&engine);
    must_equal(minstd_next(&engine), 1043618065);
}

/* From a program in C++, g++ 12.2: the sum of 1000 draws from 1 to `most` of
 * std::uniform_int_distribution, each with 31 times the sum so far, modulo 2^64; and
 * what the engine draws then. */
static void minstd_draws_what_the_distribution_draws(void **state)
{
    (void)state;
    static const struct {
        uint64_t most, sum;
        uint32_t after;
    } known[] = {
        { 99, 4846111043769066492u, 2021703321u },
        { 1048576, 14508875669723485183u, 2021703321u },
        { 2147483645, 5184067215778958304u, 2021703321u },
        { 2147483646, 5184067215778958304u, 2021703321u },
        { 1500000000, 7165830064208856181u, 608452375u }, /* of three draws one is no */
        { 4294967296, 11795680375789599380u, 147074414u }, /* two draws each */
        { 1099511627776, 8188643439561539948u, 331637305u },
    };
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        uint32_t engine = MINSTD_SEED;
        uint64_t sum = 0;
        for (int i = 0; i < 1000; i++)
            sum = sum * 31 + minstd_between(&engine, 1, known[k].most);
        must_equal(sum, known[k].sum);
        must_equal(minstd_next(&engine), known[k].after);
    }
}

/* The values of the generator's reference for this seed. */
static void splitmix_is_the_reference(void **state)
{
    (void)state;
    uint64_t seed = 1234567;
    must_equal(splitmix_next(&seed), 6457827717110365317u);
    must_equal(splitmix_next(&seed), 3203168211198807973u);
    must_equal(splitmix_next(&seed), 9817491932198370423u);
}

/* Each of the twelve doublings from 256 B to 1 MiB gets its share. */
static void sizes_are_log_uniform(void **state)
{
    (void)state;
    const size_t draws = 120000;
    size_t count[12] = { 0 };
    uint64_t seed = 1;
    for (size_t i = 0; i < draws; i++) {
        size_t bytes = splitmix_size(&seed, 256, MIB), doubling = 0;
        must(bytes >= 256 && bytes < MIB);
        while (bytes >= (size_t)512 << doubling)
            doubling++;
        count[doubling]++;
    }
    for (size_t i = 0; i < 12; i++)
        must(count[i] > draws / 12 * 95 / 100 && count[i] < draws / 12 * 105 / 100);
}

/* ---- turnover ---- */

static void turnover_replaces_a_block_per_step(void **state)
{
    (void)state;
    const turnover_shape shape = { .live = 100, .bytes_min = 256, .bytes_max = MIB,
                                   .stream_first = 1, .stream_count = 4,
                                   .step_count = 4096, .seed = 7 };
    turnover work, again;
    size_t on[5] = { 0 }, seen[100] = { 0 }, live = 0;

    must(turnover_make(&shape, &work) && turnover_make(&shape, &again));
    for (size_t i = 0; i < work.slot_count; i++) {
        must_equal(work.first[i].slot, i);
        live += work.first[i].bytes;
    }
    must(turnover_peak_bytes(&work, 1) >= live);
    for (size_t i = 0; i < work.step_count; i++) {
        const turnover_step *step = &work.steps[i];
        must(step->slot < 100 && step->stream >= 1 && step->stream <= 4);
        must_equal(step->free_stream, step->stream);
        must(step->slot == again.steps[i].slot && step->bytes == again.steps[i].bytes);
        seen[step->slot]++;
        on[step->stream]++;
    }
    for (size_t i = 0; i < 100; i++)
        must(seen[i] > 0);
    for (size_t i = 1; i <= 4; i++)
        must(on[i] > 4096 / 4 * 9 / 10 && on[i] < 4096 / 4 * 11 / 10);
    turnover_clear(&work);
    turnover_clear(&again);
}

/* W3 and W4: the oldest goes first, streams take turns, and a block may be freed on
 * another stream than its own. */
static void turnover_in_turn_frees_the_oldest(void **state)
{
    (void)state;
    turnover_shape shape = { .live = 64, .bytes_min = 256, .bytes_max = MIB,
                             .in_turn = true, .stream_first = 1, .stream_count = 4 };
    turnover work;

    must(turnover_make(&shape, &work));
    must_equal(work.step_count, TURNOVER_STEPS);
    for (size_t i = 0; i < work.step_count; i++) {
        must_equal(work.steps[i].slot, i % 64);
        must_equal(work.steps[i].stream, 1 + i % 4);
    }
    turnover_clear(&work);
    shape.stream_count = 0;
    shape.freed_on = 2;
    must(turnover_make(&shape, &work));
    must(work.steps[5].stream == 1 && work.steps[5].free_stream == 2);
    turnover_clear(&work);
}

static void turnover_peak_is_of_any_time(void **state)
{
    (void)state;
    turnover_step first[] = { { 0, 10, 1, 1 }, { 1, 20, 1, 1 } };
    turnover_step steps[] = { { 0, 50, 1, 1 }, { 1, 5, 1, 1 }, { 0, 1, 1, 1 } };
    const turnover work = { first, steps, 2, 3 };
    must_equal(turnover_peak_bytes(&work, 1), 70);
    must_equal(turnover_peak_bytes(&work, 16), 64 + 32);
}

/* ---- scripts ---- */

/* Plays it, and checks each event. Returns how many bytes were live at most. */
static size_t play(const script *it)
{
    uint64_t *live = calloc(it->slot_count, sizeof *live);
    size_t bytes = 0, peak = 0, blocks = 0, blocks_peak = 0, allocations = 0;

    must(live != NULL);
    for (size_t i = 0; i < it->event_count; i++) {
        const script_event *event = &it->events[i];
        must(event->slot < it->slot_count && event->bytes > 0);
        must_equal(live[event->slot], event->is_free ? event->bytes : 0);
        live[event->slot] = event->is_free ? 0 : event->bytes;
        bytes = event->is_free ? bytes - event->bytes : bytes + event->bytes;
        blocks = event->is_free ? blocks - 1 : blocks + 1;
        allocations += !event->is_free;
        peak = bytes > peak ? bytes : peak;
        blocks_peak = blocks > blocks_peak ? blocks : blocks_peak;
    }
    must(bytes == 0 && blocks == 0);
    must_equal(it->event_count, 2 * it->allocation_count);
    must_equal(it->allocation_count, allocations);
    must_equal(it->peak_bytes, peak);
    must_equal(it->peak_blocks, blocks_peak);
    free(live);
    return peak;
}

/* Each event's bytes, and one more of a free, with 31 times the sum so far. */
static uint64_t sum_of(const script *it)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < it->event_count; i++)
        sum = sum * 31 + it->events[i].bytes + it->events[i].is_free;
    return sum;
}

/* W2: the same steps as in C++ with the generator and the distributions of g++ 12.2. */
static void random_allocations_are_rmms(void **state)
{
    (void)state;
    static const struct {
        size_t count, mib, peak_bytes, peak_blocks;
        uint64_t sum;
    } known[] = {
        { 1000, 4096, 16775344215u, 15, 2096391800487829104u },
        { 1000, 1, 323760572, 638, 17658274643628800154u },
        { 100000, 1, 16777215997u, 36071, 2211764089618856154u },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        script it;
        must(script_make_random(known[i].count, known[i].mib * MIB, &it));
        must_equal(it.allocation_count, known[i].count);
        must_equal(play(&it), known[i].peak_bytes);
        must_equal(it.peak_blocks, known[i].peak_blocks);
        must_equal(sum_of(&it), known[i].sum);
        script_clear(&it);
    }
}

/* A file of its own for each call; the caller removes it. */
static void write_file(const char *text, char path[32])
{
    snprintf(path, 32, "/tmp/test_bench.XXXXXX");
    int fd = mkstemp(path);
    must(fd >= 0);
    FILE *file = fdopen(fd, "w");
    must(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void scripts_are_read(void **state)
{
    (void)state;
    const char *why;
    char path[32];
    script it;

    write_file("A 0 10\nA 1 20\nF 0\nA 2 7\nF 2\n", path);
    must(script_read(path, &it, &why));
    must(why == NULL);
    must_equal(it.event_count, 6); /* block 1 is freed at the end */
    must_equal(it.slot_count, 2);  /* block 2 has that of block 0 */
    must_equal(it.peak_blocks, 2);
    must_equal(play(&it), 30);
    script_clear(&it);
    must(remove(path) == 0);
    must(!script_read(path, &it, &why));
    assert_string_equal(why, "it cannot be opened");
}

static void scripts_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = { "", "A 0\n", "A 1 10\n", "A 0 10\nA 0 10\n",
                                       "F 0\n", "A 0 10\nF 0\nF 0\n", "A 0 0\n", "x\n",
                                       "A 0 10 more\n" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char path[32];
        const char *why = NULL;
        script it;
        write_file(bad[i], path);
        must(!script_read(path, &it, &why));
        must(why != NULL && it.events == NULL);
        must(remove(path) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minstd_is_the_standards_engine),
        cmocka_unit_test(minstd_draws_what_the_distribution_draws),
        cmocka_unit_test(splitmix_is_the_reference),
        cmocka_unit_test(sizes_are_log_uniform),
        cmocka_unit_test(turnover_replaces_a_block_per_step),
        cmocka_unit_test(turnover_in_turn_frees_the_oldest),
        cmocka_unit_test(turnover_peak_is_of_any_time),
        cmocka_unit_test(random_allocations_are_rmms),
        cmocka_unit_test(scripts_are_read),
        cmocka_unit_test(scripts_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests_name("bench", tests, NULL, NULL);
}
