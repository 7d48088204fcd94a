/* shim.h - Google Benchmark, as C sees it. */
#ifndef WEIR_BENCH_SHIM_H
#define WEIR_BENCH_SHIM_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHIM_COUNTERS_MAX 16

/* A number that is reported beside the time. */
typedef struct shim_counter {
    const char *name;
    double value;
} shim_counter;

/* What is measured: `run` of what `open` made, in each of `threads` threads.
 *
 * With one thread, open once and go on with the same through all of Google Benchmark's
 * attempts at a number of repetitions; with more, open and close in each thread, which
 * are new for each attempt. */
typedef struct shim_case {
    const char *name;
    int threads;
    int crew;                              /* threads that do a unit together */
    void *self;                            /* the first argument of all below */
    void *(*open)(void *self, int thread); /* null: it was said why */
    /* Does `count` units of work, or its part of them; false: something failed. */
    bool (*run)(void *self, void *opened, size_t count);
    void (*close)(void *self, void *opened);
    size_t batch;                          /* `count` is always this much */
    /* Fills in at most SHIM_COUNTERS_MAX, and returns how many. Asked before and after,
     * by thread 0; what is reported is the difference per unit. */
    size_t (*count)(void *self, shim_counter *counters);
} shim_case;

/* Measures for about `seconds`, and prints Google Benchmark's JSON, with pairs of words
 * in its context. False: something failed, and it was said what. */
bool shim_measure(const shim_case *what, double seconds, const char *const context[][2],
                  size_t context_count);

#ifdef __cplusplus
}
#endif
#endif
