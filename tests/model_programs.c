/* model_programs.c - random programs (support_program.h) on the emulated device: what
 * is ordered is never found fault with and loses no byte; what is not is found.
 *
 * A failure prints the seed of its program, and with WEIR_SHOW=1 the program. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "support_program.h"

static program made;

static void run_programs(const char *what, uint64_t quick, uint64_t full,
                         program_options options, weir_emulated_scheduler scheduler)
{
    bool varied = options.hosts == 0;
    uint64_t bound = support_bound(what, quick, full);
    if (getenv("WEIR_SEED") != NULL)
        bound = 1;
    for (uint64_t i = 0; i < bound; i++) {
        uint64_t seed = support_seed(i);
        if (varied)
            options.hosts = 2 + (int)(seed % (PROGRAM_HOSTS - 1));
        program_make(&made, seed, &options);
        (void)program_run(&made, scheduler);
    }
}

static void programs_of_one_thread_run_clean(void **state)
{
    (void)state;
    run_programs("programs of one host thread", 1600, 8000,
                 (program_options){ .hosts = 1, .steps = 120, .gates = true },
                 WEIR_EMULATED_STEPPED);
}

static void programs_of_several_threads_run_clean(void **state)
{
    (void)state;
    run_programs("programs of several host threads", 150, 3000,
                 (program_options){ .hosts = 0, .steps = 120, .gates = true },
                 WEIR_EMULATED_STEPPED);
}

static void programs_run_clean_side_by_side(void **state)
{
    (void)state;
    run_programs("programs on worker threads", 40, 600,
                 (program_options){ .hosts = 0, .steps = 120, .gates = true },
                 WEIR_EMULATED_THREADS);
}

/* Each kind of step must have run: what is switched off by accident proves nothing. */
static void programs_do_everything(void **state)
{
    (void)state;
    for (int op = 0; op < PROGRAM_OP_COUNT && getenv("WEIR_SEED") == NULL; op++) {
        uint64_t count = atomic_load(&program_totals.op_counts[op]);
        if (count < 20)
            fprintf(stderr, "  %s ran %" PRIu64 " times\n",
                    program_op_name((program_op)op), count);
        must(count >= 20);
    }
    print_message("%" PRIu64 " steps, %" PRIu64 " allocations, %" PRIu64
                  " refused, %" PRIu64 " contents checked\n",
                  (uint64_t)program_totals.steps, (uint64_t)program_totals.allocations,
                  (uint64_t)program_totals.refusals, (uint64_t)program_totals.checks);
}

/* A program in which one free is not ordered behind a use on another stream. */
static void omitted_orders_are_found(void **state)
{
    (void)state;
    uint64_t bound = support_bound("programs with a race", 100, 2000);
    uint64_t with_one = 0, definite = 0, found = 0;
    for (uint64_t i = 0; i < bound; i++) {
        uint64_t seed = support_seed(i);
        program_options options = { .hosts = seed % 4 == 0 ? 2 : 1, .steps = 80,
                                    .omit = true, .gates = true };
        program_make(&made, seed, &options);
        if (made.omitted < 0)
            continue;
        size_t findings = program_run(&made, WEIR_EMULATED_STEPPED);
        with_one++;
        definite += made.is_definite;
        found += findings != 0;
        if (made.is_definite && findings == 0 && getenv("WEIR_SHOW") != NULL)
            program_print(&made);
        must(findings != 0 || !made.is_definite);
    }
    print_message("%" PRIu64 " programs with a race, found in %" PRIu64
                  "; %" PRIu64 " of them nothing else can have ordered\n",
                  with_one, found, definite);
    must(definite * 4 >= with_one && with_one * 2 >= bound);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_of_one_thread_run_clean),
        cmocka_unit_test(programs_of_several_threads_run_clean),
        cmocka_unit_test(programs_run_clean_side_by_side),
        cmocka_unit_test(programs_do_everything),
        cmocka_unit_test(omitted_orders_are_found),
    };
#ifdef WEIR_SANITIZE_THREAD /* which sees nothing where threads take turns */
    cmocka_set_test_filter("programs_run_clean_side_by_side");
#endif
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
