/* memory.c - bench_memory: what memory Weir's pool needs for a workload.
 *
 *     bench_memory fit CASE     the smallest pool, of one chunk that is all it may
 *                               hold, which does a turnover once
 *     bench_memory host CASE    the host memory that the blocks of a turnover cost
 *     bench_memory drift CASE   held and live, over a turnover many times as long, of a
 *                               pool that begins with nothing
 *     bench_memory grown CASE SPEC  what other resources come to hold, over as long
 *
 * Prints one JSON object. Exit status: 0; 1 something failed; 2 wrong usage. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator.h"
#include "allocator_weir.h"
#include "cases.h"

#define DRIFT_SAMPLES 128
#define DRIFT_STEPS   (TURNOVER_STEPS * 16)

static const bench_case *find_turnover(const char *name)
{
    for (size_t i = 0; i < case_count; i++)
        if (strcmp(cases[i].name, name) == 0 && cases[i].kind == &kind_turnover)
            return &cases[i];
    return NULL;
}

/* ---- a turnover on a pool of its own ---- */

typedef struct slot {
    void *ptr;
    uint32_t bytes;
    uint32_t stream;
} slot;

typedef struct bed {
    turnover work;
    slot *slots;
    size_t live_bytes;
    const char *spec;       /* of resources to build; null: a pool */
    weir_device *device;
    weir_stream streams[STREAMS_MAX + 1];
    weir_resource *pool;
} bed;

/* False: out of memory; anything else ends the program. */
static bool bed_step(bed *self, const turnover_step *step)
{
    slot *block = &self->slots[step->slot];

    if (block->ptr != NULL)
        weir_deallocate(self->pool, self->streams[block->stream], block->ptr,
                        block->bytes, WEIR_ALIGNMENT);
    self->live_bytes -= block->bytes;
    *block = (slot){ NULL, step->bytes, step->free_stream };
    weir_status status = weir_allocate(self->pool, self->streams[step->stream],
                                       step->bytes, WEIR_ALIGNMENT, &block->ptr);
    if (status == WEIR_OK) {
        self->live_bytes += step->bytes;
        return true;
    }
    block->bytes = 0;
    if (status == WEIR_OUT_OF_MEMORY || status == WEIR_LIMIT_REACHED)
        return false;
    say_failed("allocate");
    exit(1);
}

static bool bed_fill(bed *self)
{
    bool good = true;
    for (size_t i = 0; good && i < self->work.slot_count; i++)
        good = bed_step(self, &self->work.first[i]);
    return good;
}

static bool bed_steps(bed *self, size_t from, size_t count)
{
    bool good = true;
    for (size_t i = from; good && i < from + count; i++)
        good = bed_step(self, &self->work.steps[i]);
    return good;
}

static void bed_empty(bed *self)
{
    for (size_t i = 0; i < self->work.slot_count; i++) {
        slot *block = &self->slots[i];
        if (block->ptr != NULL)
            weir_deallocate(self->pool, self->streams[block->stream], block->ptr,
                            block->bytes, WEIR_ALIGNMENT);
        *block = (slot){ 0 };
    }
    self->live_bytes = 0;
}

/* A pool of one chunk of `bytes` and no more; 0: one that grows from nothing, or what
 * was asked for. */
static bool bed_begin(bed *self, size_t bytes)
{
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    weir_resource *leaf;

    if (self->spec != NULL)
        return weir_resource_open(self->device, self->spec, &self->pool) == WEIR_OK ||
               say_failed(self->spec);
    options.initial_bytes = bytes;
    options.limit_bytes = bytes;
    if (weir_device_resource_create(self->device, &leaf) != WEIR_OK)
        return say_failed("the device's resource");
    weir_status status = weir_pool_create(leaf, &options, &self->pool);
    weir_resource_unref(leaf);
    return status == WEIR_OK || say_failed("pool");
}

static void bed_end(bed *self)
{
    bed_empty(self);
    weir_resource_unref(self->pool);
}

static bool bed_make(bed *self, const bench_case *what, size_t steps)
{
    turnover_shape shape = what->shape;

    *self = (bed){ 0 };
    shape.stream_first = 1;
    if (steps != 0)
        shape.step_count = steps;
    if (!turnover_make(&shape, &self->work))
        return false;
    self->slots = calloc(self->work.slot_count, sizeof *self->slots);
    if (self->slots == NULL)
        return false;
    if (open_no_work_device(64 * GIB, &self->device) != WEIR_OK)
        return say_failed("no device");
    for (unsigned i = 1; i <= what->streams; i++)
        if (weir_stream_create(self->device, WEIR_STREAM_NON_BLOCKING,
                               &self->streams[i]) != WEIR_OK)
            return say_failed("no stream");
    return true;
}

static void bed_clear(bed *self)
{
    for (unsigned i = 1; i <= STREAMS_MAX && self->streams[i] != NULL; i++)
        if (weir_stream_destroy(self->device, self->streams[i]) != WEIR_OK)
            say_failed("a stream is not destroyed");
    weir_device_unref(self->device);
    free(self->slots);
    turnover_clear(&self->work);
}

static weir_resource_statistics bed_statistics(const bed *self)
{
    weir_resource_statistics s = { .struct_size = sizeof s };
    if (weir_resource_get_statistics(self->pool, &s) != WEIR_OK) {
        say_failed("statistics");
        exit(1);
    }
    return s;
}

/* ---- fit ---- */

static bool fits(bed *self, size_t bytes)
{
    if (!bed_begin(self, bytes))
        exit(1);
    bool good = bed_fill(self) && bed_steps(self, 0, self->work.step_count);
    bed_end(self);
    return good;
}

static size_t round_up(size_t bytes, size_t step)
{
    return (bytes + step - 1) / step * step;
}

/* To a two-thousandth of the peak, upwards from there. */
static size_t smallest_that_fits(bed *self, size_t peak)
{
    size_t step = round_up(peak / 2000 + 1, WEIR_ALIGNMENT);
    size_t low = round_up(peak, WEIR_ALIGNMENT) - WEIR_ALIGNMENT, high = low + step;

    for (size_t stride = step; !fits(self, high); stride *= 2) {
        low = high;
        high += stride;
    }
    while (high - low > step) {
        size_t middle = low + round_up((high - low) / 2, WEIR_ALIGNMENT);
        if (fits(self, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}

static int say_fit(bed *self)
{
    size_t peak = turnover_peak_bytes(&self->work, 1);
    size_t rounded = turnover_peak_bytes(&self->work, WEIR_ALIGNMENT);
    if (peak == 0 || rounded == 0)
        return 1;
    size_t fit = smallest_that_fits(self, peak);

    printf("{\"peak_bytes\": %zu, \"rounded\": %.5f, \"fit_bytes\": %zu, "
           "\"fit\": %.5f}\n", peak, (double)rounded / (double)peak, fit,
           (double)fit / (double)peak);
    return 0;
}

/* ---- host ---- */

/* Pages of this process alone that it has written to. */
static size_t private_bytes(void)
{
    char line[256];
    size_t kib = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Private_Dirty: %zu kB", &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return kib * 1024;
}

static size_t malloc_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* After the fill and all steps. The emulated device's memory is never touched here. */
static int say_host(bed *self)
{
    memset(self->slots, 1, self->work.slot_count * sizeof *self->slots);
    memset(self->slots, 0, self->work.slot_count * sizeof *self->slots);
    if (!bed_begin(self, 0))
        return 1;
    size_t mallocs = malloc_bytes(), pages = private_bytes();
    if (!bed_fill(self) || !bed_steps(self, 0, self->work.step_count))
        return 1;
    mallocs = malloc_bytes() - mallocs;
    pages = private_bytes() - pages;
    weir_resource_statistics s = bed_statistics(self);
    double allowed = 32.0 * (double)s.out_blocks + 0.001 * (double)s.held_bytes;
    bed_end(self);
    printf("{\"blocks\": %zu, \"held_bytes\": %zu, \"malloc_bytes\": %zu, "
           "\"private_bytes\": %zu, \"allowed_bytes\": %.0f, \"per_block\": %.2f, "
           "\"of_allowed\": %.4f}\n", s.out_blocks, s.held_bytes, mallocs, pages,
           allowed, (double)pages / (double)s.out_blocks, (double)pages / allowed);
    return 0;
}

/* ---- drift ---- */

static int say_drift(bed *self)
{
    size_t steps = self->work.step_count / DRIFT_SAMPLES;

    if (!bed_begin(self, 0) || !bed_fill(self))
        return 1;
    printf("{\"steps\": %zu, \"samples\": [", steps);
    for (size_t i = 0; i <= DRIFT_SAMPLES; i++) {
        if (i > 0 && !bed_steps(self, (i - 1) * steps, steps))
            return 1;
        weir_resource_statistics s = bed_statistics(self);
        printf("%s[%zu, %zu, %zu]", i == 0 ? "" : ", ", s.held_bytes, self->live_bytes,
               s.largest_free_bytes);
    }
    size_t held = bed_statistics(self).peak_held_bytes;
    size_t peak = turnover_peak_bytes(&self->work, 1);
    printf("], \"peak_bytes\": %zu, \"grown_bytes\": %zu, \"grown\": %.5f}\n", peak,
           held, (double)held / (double)peak);
    bed_end(self);
    return 0;
}

/* ---- grown ---- */

static int say_grown(bed *self)
{
    if (!bed_begin(self, 0) || !bed_fill(self) ||
        !bed_steps(self, 0, self->work.step_count))
        return 1;
    size_t held = bed_statistics(self).peak_held_bytes;
    size_t peak = turnover_peak_bytes(&self->work, 1);
    bed_end(self);
    printf("{\"peak_bytes\": %zu, \"grown_bytes\": %zu}\n", peak, held);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*say)(bed *self);
        size_t steps;
        int words; /* of the command, the program's name included */
    } commands[] = { { "fit", say_fit, 0, 3 }, { "host", say_host, 0, 3 },
                     { "drift", say_drift, DRIFT_STEPS, 3 },
                     { "grown", say_grown, DRIFT_STEPS, 4 } };
    const bench_case *what = argc >= 3 ? find_turnover(argv[2]) : NULL;

    for (size_t i = 0; what != NULL && i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, argv[1]) != 0 || commands[i].words != argc)
            continue;
        bed self;
        if (!bed_make(&self, what, commands[i].steps))
            return 1;
        self.spec = argc == 4 ? argv[3] : NULL;
        int status = commands[i].say(&self);
        if (status != 0)
            say_failed(commands[i].name);
        else
            bed_clear(&self);
        return status;
    }
    fprintf(stderr, "usage: bench_memory fit|host|drift CASE, or grown CASE SPEC, of "
                    "turnover\n");
    return 2;
}
