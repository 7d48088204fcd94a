/* bench.c - a benchmark program: one allocator, and one case at a time.
 *
 *     bench_NAME --list
 *     bench_NAME CASE [OPTION...]
 *
 *     --threads N     of a case that may have several; default 1
 *     --seconds S     to measure for, about; default 0.2
 *     --script FILE   of the case "trace"
 *     --batches N     does so many batches of work in the function bench_counted, for
 *                     a program that counts instructions, and measures nothing; says
 *                     {"units": how many that were}
 *     --spec TEXT     for Weir: resources to build; default "pool/device"; for CUDA:
 *                     "async"
 *     --memory BYTES  for Weir: of the emulated device; default 64 GiB
 *     --device NAME   for Weir: the device; default an emulated one, without work
 *     --unknown       for Weir: streams that it is not told of
 *     --own           for Weir: each thread's own stream, the per-thread default one
 *
 * What is for Weir is wrong usage with another allocator.
 *
 * Prints Google Benchmark's JSON; a unit is what the case says, mostly a pair. A second
 * thread sleeps meanwhile, so that nothing is cheaper than in a program with threads.
 *
 * Exit status: 0; 1 something failed; 2 wrong usage. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator.h"
#include "cases.h"
#include "shim.h"
#include "sleeper.h"

typedef struct bench_options {
    const char *name, *script;
    unsigned threads;
    double seconds;
    size_t batches; /* 0: to be measured */
    allocator_options allocator;
} bench_options;

/* ---- a case on Google Benchmark ---- */

static void *case_open(void *self, int thread)
{
    bench_run *run = self;
    return run->what->kind->open(run, (unsigned)thread);
}

static bool case_run(void *self, void *opened, size_t count)
{
    bench_run *run = self;
    (void)count;
    return run->what->kind->run(run, opened);
}

static void case_close(void *self, void *opened)
{
    bench_run *run = self;
    run->what->kind->close(run, opened);
}

static size_t case_count_calls(void *self, shim_counter *counters)
{
    allocator_calls calls = allocator_get_calls();
    size_t n = 0;

    (void)self;
#define X(name) counters[n++] = (shim_counter){ #name, (double)calls.name };
    ALLOCATOR_CALL_MAP(X)
#undef X
    return n;
}

static bool measure(bench_run *run, double seconds)
{
    const shim_case what = {
        .name = run->what->name,
        .threads = (int)run->threads,
        .crew = run->what->crew == 0 ? 1 : (int)run->what->crew,
        .self = run,
        .open = case_open,
        .run = case_run,
        .close = case_close,
        .batch = run->batch,
        .count = case_count_calls,
    };
    const char *const context[][2] = {
        { "allocator", allocator_name },
        { "description", allocator_description() },
        { "unit", run->what->kind->unit },
    };
    return shim_measure(&what, seconds, context, sizeof context / sizeof *context);
}

/* ---- without a clock ---- */

bool bench_counted(bench_run *run, void *opened, size_t batches);

/* Not static, and never inlined: what counts instructions knows it by name. */
__attribute__((noinline)) bool bench_counted(bench_run *run, void *opened,
                                             size_t batches)
{
    bool good = true;
    while (good && batches-- > 0)
        good = run->what->kind->run(run, opened);
    return good;
}

static bool count(bench_run *run, size_t batches)
{
    const bench_kind *kind = run->what->kind;
    void *opened = kind->open(run, 0);

    if (opened == NULL)
        return false;
    /* Once before, so that what is done only once is not counted. */
    bool good = kind->run(run, opened) && bench_counted(run, opened, batches);
    kind->close(run, opened);
    printf("{\"units\": %zu}\n", batches * run->batch);
    return good;
}

/* ---- the program ---- */

static const bench_case *find_in(const bench_case *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    return NULL;
}

static const bench_case *find_case(const char *name)
{
    const bench_case *found = find_in(cases, case_count, name);
    return found != NULL ? found : find_in(own_cases, own_case_count, name);
}

static int list_cases(void)
{
    for (size_t i = 0; i < case_count; i++)
        puts(cases[i].name);
    for (size_t i = 0; i < own_case_count; i++)
        puts(own_cases[i].name);
    return 0;
}

static int run_case(const bench_case *what, const bench_options *options)
{
    bench_run run = { .what = what, .threads = options->threads,
                      .path = options->script };
    allocator_options wanted = options->allocator;

    wanted.streams = what->streams * run.threads;
    if (wanted.streams > STREAMS_MAX || !allocator_open(&wanted) || !sleeper_start())
        return 1;
    bool good = what->kind->prepare(&run);
    if (good && options->batches > 0)
        good = count(&run, options->batches);
    else if (good)
        good = measure(&run, options->seconds);
    script_clear(&run.script);
    sleeper_end();
    allocator_close();
    if (!good)
        fprintf(stderr, "%s: %s has failed\n", allocator_name, what->name);
    return good ? 0 : 1;
}

static bool read_count(const char *text, size_t most, size_t *out)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || number == 0 || number > most)
        return false;
    *out = (size_t)number;
    return true;
}

/* Those that are for Weir are known by every program, and taken by few. */
static bool is_taken(const char *option)
{
    static const char *const for_weir[] = { "--spec", "--memory", "--device",
                                            "--unknown", "--own" };
    for (size_t i = 0; i < sizeof for_weir / sizeof *for_weir; i++) {
        if (strcmp(option, for_weir[i]) != 0 || allocator_takes(option))
            continue;
        fprintf(stderr, "%s: %s means nothing to it\n", allocator_name, option);
        return false;
    }
    return true;
}

static bool read_option(const char *option, const char *value, bench_options *out)
{
    size_t number = 0;
    char *end;

    if (strcmp(option, "--script") == 0) {
        out->script = value;
    } else if (strcmp(option, "--spec") == 0) {
        out->allocator.spec = value;
    } else if (strcmp(option, "--device") == 0) {
        out->allocator.device = value;
    } else if (strcmp(option, "--batches") == 0) {
        return read_count(value, SIZE_MAX, &out->batches);
    } else if (strcmp(option, "--memory") == 0) {
        return read_count(value, SIZE_MAX, &out->allocator.memory_bytes);
    } else if (strcmp(option, "--threads") == 0) {
        if (!read_count(value, STREAMS_MAX, &number))
            return false;
        out->threads = (unsigned)number;
    } else if (strcmp(option, "--seconds") == 0) {
        out->seconds = strtod(value, &end);
        return *end == '\0' && out->seconds > 0;
    } else {
        return false;
    }
    return true;
}

static bool read_options(int argc, char **argv, bench_options *out)
{
    *out = (bench_options){ .threads = 1, .seconds = 0.2 };
    if (argc < 2)
        return false;
    out->name = argv[1];
    for (int i = 2; i < argc; i++) {
        if (!is_taken(argv[i])) {
            return false;
        } else if (strcmp(argv[i], "--unknown") == 0) {
            out->allocator.unknown = true;
        } else if (strcmp(argv[i], "--own") == 0) {
            out->allocator.own = true;
        } else if (i + 1 == argc || !read_option(argv[i], argv[i + 1], out)) {
            return false;
        } else {
            i++;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    bench_options options;

    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        return list_cases();
    if (!read_options(argc, argv, &options)) {
        fprintf(stderr, "usage: %s --list | CASE [OPTION...]\n", argv[0]);
        return 2;
    }
    const bench_case *what = find_case(options.name);
    if (what == NULL) {
        fprintf(stderr, "%s: no case is called %s\n", allocator_name, options.name);
        return 2;
    }
    return run_case(what, &options);
}
