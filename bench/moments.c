/* moments.c - bench_moments: what happens seldom, and how long it takes.
 *
 *     bench_moments [NAME...]     those whose names begin so, as "handover/4K"; all
 *
 *     handover   memory freed on one stream, wanted on another, and there is no other
 *     growth     a pool that starts empty takes 1 GiB
 *     trim       it gives all of that back
 *     refusal    a full pool of many free blocks, none of which is large enough: the
 *                first, which empties the caches; and one that finds them empty
 *     priming    RMM's ASYNC_PRIMING: 100 blocks of 0.9 % of the device, two rounds
 *
 * Prints one JSON object in a line for each:
 *
 *     {"name": "handover/4K", "samples": 1000, "ns": [quartile, median, quartile],
 *      "calls": {"event_record": per sample, ...}}
 *
 * All times are of the host's clock, whose own cost ("clock") is in them. A second
 * thread sleeps meanwhile, as in bench.c.
 *
 * Exit status: 0; 1 something failed; 2 no name begins so. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocator.h"
#include "allocator_weir.h"
#include "sleeper.h"
#include "work.h"

#define SAMPLES_MAX 4096
#define WORDS_MAX   16

/* ---- measuring ---- */

typedef struct moment {
    const char *name;
    size_t count;
    allocator_calls calls; /* during the samples */
    double ns[SAMPLES_MAX];
} moment;

static moment the; /* too large for a stack */

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* What was asked for, and whether it was found; without any, all is wanted. */
static struct {
    char **words;
    size_t count;
    bool only_looks; /* nothing is wanted yet: it is seen which names there are */
    bool found[WORDS_MAX];
} asked;

static bool is_wanted(const char *name)
{
    bool wanted = asked.count == 0;

    for (size_t i = 0; i < asked.count; i++) {
        bool begins = strncmp(name, asked.words[i], strlen(asked.words[i])) == 0;
        asked.found[i] = asked.found[i] || begins;
        wanted = wanted || begins;
    }
    return wanted && !asked.only_looks;
}

/* The moment of that name, if it is wanted. */
#define IF_WANTED(MOMENT, NAME, ...)                                             \
    do {                                                                         \
        if (is_wanted(NAME))                                                     \
            MOMENT(NAME, __VA_ARGS__);                                           \
    } while (0)

static void moment_begin(const char *name)
{
    the.name = name;
    the.count = 0;
    the.calls = (allocator_calls){ 0 };
}

static void moment_add(double ns)
{
    if (the.count < SAMPLES_MAX)
        the.ns[the.count++] = ns;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void moment_end(void)
{
    double n = (double)the.count;

    qsort(the.ns, the.count, sizeof *the.ns, compare_doubles);
    printf("{\"name\": \"%s\", \"samples\": %zu, \"ns\": [%.1f, %.1f, %.1f], "
           "\"calls\": {", the.name, the.count, the.ns[the.count / 4],
           the.ns[the.count / 2], the.ns[the.count * 3 / 4]);
    const char *comma = "";
#define X(kind)                                                                  \
    printf("%s\"" #kind "\": %.4f", comma, (double)the.calls.kind / n);          \
    comma = ", ";
    ALLOCATOR_CALL_MAP(X)
#undef X
    printf("}}\n");
    fflush(stdout);
}

/* Does it, and counts its device calls as the moment's. */
#define COUNTED(CALL)                                                            \
    do {                                                                         \
        allocator_calls before_ = allocator_get_calls();                         \
        CALL;                                                                    \
        count_calls(before_, allocator_get_calls());                             \
    } while (0)

/* Does it, as a sample. */
#define TIMED(CALL)                                                              \
    do {                                                                         \
        double began_ = 0, ended_ = 0;                                           \
        COUNTED(began_ = now_ns(); CALL; ended_ = now_ns());                     \
        moment_add(ended_ - began_);                                             \
    } while (0)

static void count_calls(allocator_calls before, allocator_calls after)
{
#define X(kind) the.calls.kind += after.kind - before.kind;
    ALLOCATOR_CALL_MAP(X)
#undef X
}

/* ---- a pool ---- */

static void must(bool good, const char *what)
{
    if (good)
        return;
    say_failed(what);
    exit(1);
}

static void begin(const char *spec, unsigned streams)
{
    const allocator_options options = { .streams = streams, .spec = spec };
    must(allocator_open(&options), spec);
}

static void *take(size_t bytes, unsigned stream)
{
    void *ptr = allocator_allocate(bytes, stream);
    must(ptr != NULL, the.name);
    return ptr;
}

/* ---- hand-over ---- */

#define HANDOVERS 1000
#define FULL "pool(initial=64MiB, limit=64MiB)/device"
#define FULL_BYTES (64 * MIB)
#define BATCH 32

/* A pool that is full of blocks of `bytes` on stream 1, of which `batch` are freed, and
 * taken by stream 2; and back again. */
static void handover(const char *name, size_t bytes, size_t batch)
{
    size_t count = FULL_BYTES / bytes;
    void **blocks = calloc(count, sizeof *blocks);
    unsigned from = 1, to = 2;

    must(blocks != NULL, name);
    begin(FULL, 2);
    moment_begin(name);
    for (size_t i = 0; i < count; i++)
        blocks[i] = take(bytes, 1);
    for (size_t i = 0; i < HANDOVERS; i++) {
        COUNTED(for (size_t k = 0; k < batch; k++)
                    allocator_deallocate(blocks[k], bytes, from));
        TIMED(for (size_t k = 0; k < batch; k++) blocks[k] = take(bytes, to));
        from = to;
        to = 3 - from;
    }
    moment_end();
    for (size_t i = 0; i < count; i++)
        allocator_deallocate(blocks[i], bytes, i < batch ? from : 1);
    allocator_close();
    free(blocks);
}

/* The same, but it is another thread that frees on stream 1, and then sleeps. */
typedef struct sleeper {
    pthread_barrier_t freed, taken;
    void *block;
    size_t bytes;
} sleeper;

static void *free_and_sleep(void *argument)
{
    sleeper *self = argument;
    for (size_t i = 0; i < HANDOVERS; i++) {
        COUNTED(allocator_deallocate(self->block, self->bytes, 1));
        pthread_barrier_wait(&self->freed);
        pthread_barrier_wait(&self->taken);
    }
    return NULL;
}

static void handover_from_a_sleeper(const char *name, size_t bytes)
{
    size_t count = FULL_BYTES / bytes;
    void **blocks = calloc(count, sizeof *blocks);
    static sleeper other;
    pthread_t thread;

    must(blocks != NULL, name);
    begin(FULL, 2);
    moment_begin(name);
    for (size_t i = 0; i < count; i++)
        blocks[i] = take(bytes, 1);
    other.block = blocks[0];
    other.bytes = bytes;
    pthread_barrier_init(&other.freed, NULL, 2);
    pthread_barrier_init(&other.taken, NULL, 2);
    must(pthread_create(&thread, NULL, free_and_sleep, &other) == 0, name);
    for (size_t i = 0; i < HANDOVERS; i++) {
        pthread_barrier_wait(&other.freed);
        TIMED(other.block = take(bytes, 2));
        pthread_barrier_wait(&other.taken);
    }
    pthread_join(thread, NULL);
    moment_end();
    allocator_deallocate(other.block, bytes, 2);
    for (size_t i = 1; i < count; i++)
        allocator_deallocate(blocks[i], bytes, 1);
    allocator_close();
    free(blocks);
}

static void all_handovers(void)
{
    IF_WANTED(handover, "handover/4K", 4 * KIB, 1);
    IF_WANTED(handover, "handover/1M", MIB, 1);
    IF_WANTED(handover, "handover/4K/batch of 32", 4 * KIB, BATCH);
    IF_WANTED(handover_from_a_sleeper, "handover/4K/sleeping thread's", 4 * KIB);
}

/* ---- growth and trim ---- */

#define GROWN_BYTES (GIB)
#define GROWTHS 16

/* Each sample is a whole GiB in blocks of `bytes`; or its trim. */
static void grow_and_trim(const char *name, size_t bytes, bool is_trim)
{
    size_t count = GROWN_BYTES / bytes;
    void **blocks = calloc(count, sizeof *blocks);
    size_t back = 0;

    must(blocks != NULL, name);
    begin(NULL, 1);
    moment_begin(name);
    for (size_t i = 0; i < GROWTHS; i++) {
        if (is_trim)
            for (size_t k = 0; k < count; k++)
                blocks[k] = take(bytes, 1);
        else
            TIMED(for (size_t k = 0; k < count; k++) blocks[k] = take(bytes, 1));
        for (size_t k = 0; k < count; k++)
            allocator_deallocate(blocks[k], bytes, 1);
        if (is_trim)
            TIMED(back = weir_resource_trim_sync(weir_under_test(), 0));
        else
            back = weir_resource_trim_sync(weir_under_test(), 0);
        must(back >= GROWN_BYTES, "trim");
    }
    moment_end();
    allocator_close();
    free(blocks);
}

static void all_growths(void)
{
    IF_WANTED(grow_and_trim, "growth/1 GiB of 64K", 64 * KIB, false);
    IF_WANTED(grow_and_trim, "growth/1 GiB of 1M", MIB, false);
}

static void all_trims(void)
{
    IF_WANTED(grow_and_trim, "trim/1 GiB of 64K", 64 * KIB, true);
    IF_WANTED(grow_and_trim, "trim/1 GiB of 1M", MIB, true);
}

/* ---- refusal ---- */

#define REFUSALS 200

#define REFUSED_BYTES (64 * KIB)
#define REFUSED_COUNT (GIB / REFUSED_BYTES)

/* Takes or frees every `step`th block from number `first`, on `streams` streams by
 * turns. */
static void each(void **blocks, size_t first, size_t step, unsigned streams, bool takes)
{
    for (size_t i = first; i < REFUSED_COUNT; i += step) {
        unsigned stream = 1 + (unsigned)(i / 2 % streams);
        if (takes)
            blocks[i] = take(REFUSED_BYTES, stream);
        else
            allocator_deallocate(blocks[i], REFUSED_BYTES, stream);
    }
}

static void be_refused(void)
{
    weir_status status = WEIR_OK;
    void *ptr;

    TIMED(status = weir_allocate(weir_under_test(), weir_under_test_stream(1),
                                 2 * REFUSED_BYTES, WEIR_ALIGNMENT, &ptr));
    must(status == WEIR_OUT_OF_MEMORY || status == WEIR_LIMIT_REACHED, the.name);
}

/* 1 GiB of blocks, of which every second is free. A refusal empties the caches; if each
 * is to be a first one, they are filled again in between. */
static void refusal(const char *name, unsigned streams, bool first)
{
    void **blocks = calloc(REFUSED_COUNT, sizeof *blocks);

    must(blocks != NULL, name);
    begin("pool(initial=1GiB, limit=1GiB)/device", streams);
    moment_begin(name);
    each(blocks, 0, 1, streams, true);
    each(blocks, 0, 2, streams, false);
    for (size_t i = 0; i < REFUSALS; i++) {
        be_refused();
        if (first) {
            each(blocks, 0, 2, streams, true);
            each(blocks, 0, 2, streams, false);
        }
    }
    moment_end();
    each(blocks, 1, 2, streams, false);
    allocator_close();
    free(blocks);
}

static void all_refusals(void)
{
    IF_WANTED(refusal, "refusal/8192 free, one stream", 1, true);
    IF_WANTED(refusal, "refusal/8192 free, one stream, again", 1, false);
    IF_WANTED(refusal, "refusal/8192 free, four streams", 4, true);
    IF_WANTED(refusal, "refusal/8192 free, four streams, again", 4, false);
}

/* ---- priming ---- */

#define PRIMINGS 64
#define DEVICE_BYTES (64 * GIB) /* that of allocator_weir.c */
#define PRIMED_BLOCKS 100

typedef enum priming { PRIMING_MAKE, PRIMING_FIRST, PRIMING_ROUND } priming;

static void take_round(size_t bytes)
{
    void *blocks[PRIMED_BLOCKS];
    for (size_t i = 0; i < PRIMED_BLOCKS; i++)
        blocks[i] = take(bytes, 0);
    for (size_t i = 0; i < PRIMED_BLOCKS; i++)
        allocator_deallocate(blocks[i], bytes, 0);
}

/* `what` is the sample: making a resource, its first allocate, or a round of all
 * blocks, the first or the second. */
static void prime(const char *name, const char *spec, priming what, bool second)
{
    size_t bytes = DEVICE_BYTES / 1000 * 9;
    weir_resource *mr;
    void *ptr = NULL;

    moment_begin(name);
    for (size_t i = 0; i < PRIMINGS; i++) {
        begin(spec, 0);
        if (what == PRIMING_MAKE) {
            TIMED(must(weir_resource_open(weir_under_test_device(), spec, &mr) ==
                       WEIR_OK, name));
            weir_resource_unref(mr);
        } else if (what == PRIMING_FIRST) {
            TIMED(ptr = take(bytes, 0));
            allocator_deallocate(ptr, bytes, 0);
        } else {
            if (second)
                take_round(bytes);
            TIMED(take_round(bytes));
        }
        allocator_close();
    }
    moment_end();
}

static void all_primings(void)
{
    const char *const bare = "async", *const primed = "async(primed=32GiB)";

    IF_WANTED(prime, "priming/async/make", bare, PRIMING_MAKE, false);
    IF_WANTED(prime, "priming/async/first", bare, PRIMING_FIRST, false);
    IF_WANTED(prime, "priming/async/round 1", bare, PRIMING_ROUND, false);
    IF_WANTED(prime, "priming/async/round 2", bare, PRIMING_ROUND, true);
    IF_WANTED(prime, "priming/primed async/make", primed, PRIMING_MAKE, false);
    IF_WANTED(prime, "priming/primed async/first", primed, PRIMING_FIRST, false);
    IF_WANTED(prime, "priming/primed async/round 1", primed, PRIMING_ROUND, false);
    IF_WANTED(prime, "priming/primed async/round 2", primed, PRIMING_ROUND, true);
}

/* ---- the program ---- */

static void clock_alone(const char *name)
{
    begin(NULL, 0);
    moment_begin(name);
    for (size_t i = 0; i < SAMPLES_MAX; i++)
        TIMED((void)0);
    moment_end();
    allocator_close();
}

static void all_moments(void)
{
    if (is_wanted("clock"))
        clock_alone("clock");
    all_handovers();
    all_growths();
    all_trims();
    all_refusals();
    all_primings();
}

/* False: it was said of which there is none. */
static bool all_are_found(void)
{
    bool good = true;

    asked.only_looks = true;
    all_moments();
    asked.only_looks = false;
    for (size_t i = 0; i < asked.count; i++) {
        if (!asked.found[i])
            fprintf(stderr, "bench_moments: no moment's name begins with '%s'\n",
                    asked.words[i]);
        good = good && asked.found[i];
    }
    return good;
}

int main(int argc, char **argv)
{
    asked.words = argv + 1;
    asked.count = (size_t)argc - 1;
    if (asked.count > WORDS_MAX) {
        fprintf(stderr, "bench_moments: more than %d names\n", WORDS_MAX);
        return 2;
    }
    if (!all_are_found())
        return 2;
    if (!sleeper_start())
        return 1;
    all_moments();
    sleeper_end();
    return 0;
}
