/* shim_plain.c - the same as shim.cc without Google Benchmark, for machines that have
 * none: one thread, and the fields of its JSON that are used here. */
#include "shim.h"

#include <stdio.h>
#include <time.h>

static double now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* How long it took, and what for. */
typedef struct span {
    double wall_ns, cpu_ns;
    size_t units;
} span;

static bool span_measure(span *self, const shim_case *what, void *opened,
                         double seconds)
{
    double wall = now_ns(CLOCK_MONOTONIC), cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);

    *self = (span){ 0 };
    while (self->wall_ns < seconds * 1e9) {
        if (!what->run(what->self, opened, what->batch))
            return false;
        self->units += what->batch;
        self->wall_ns = now_ns(CLOCK_MONOTONIC) - wall;
    }
    self->cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    return true;
}

static size_t take_counts(const shim_case *what, shim_counter *out)
{
    return what->count == NULL ? 0 : what->count(what->self, out);
}

bool shim_measure(const shim_case *what, double seconds, const char *const context[][2],
                  size_t context_count)
{
    shim_counter before[SHIM_COUNTERS_MAX], after[SHIM_COUNTERS_MAX];
    span took = { 0 };

    if (what->threads != 1) {
        fprintf(stderr, "%s: only one thread without Google Benchmark\n", what->name);
        return false;
    }
    void *opened = what->open(what->self, 0);
    if (opened == NULL)
        return false;
    bool good = what->run(what->self, opened, what->batch); /* what is done only once */
    take_counts(what, before);
    good = good && span_measure(&took, what, opened, seconds);
    size_t count = take_counts(what, after);
    what->close(what->self, opened);
    if (!good)
        return false;

    double units = (double)took.units;
    printf("{\"context\": {");
    for (size_t i = 0; i < context_count; i++)
        printf("%s\"%s\": \"%s\"", i == 0 ? "" : ", ", context[i][0], context[i][1]);
    printf("}, \"benchmarks\": [{\"name\": \"%s\", \"threads\": 1, "
           "\"real_time\": %.3f, \"cpu_time\": %.3f, \"items_per_second\": %.1f",
           what->name, took.wall_ns / units, took.cpu_ns / units,
           units * 1e9 / took.wall_ns);
    for (size_t i = 0; i < count; i++)
        printf(", \"%s\": %.6f", after[i].name,
               (after[i].value - before[i].value) / units);
    printf("}]}\n");
    return true;
}
