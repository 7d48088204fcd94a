/* support_program_scene.c - opens what a program (support_program.h) needs, runs its
 * host threads, and ends everything, often with work still under way. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "stream_order.h"
#include "support_program_parts.h"

static void hear_finding(void *context, const weir_emulated_finding *finding)
{
    run *self = context;
    if (self->program->options.omit)
        return;
    fprintf(stderr, "  program %" PRIu64 ", step %d: %s\n", self->program->seed,
            atomic_load(&self->current), finding->message);
}

/* What blocks of one size have: enough for most of a program's, not for all. */
#define FIXED_BYTES ((size_t)12000)
static const weir_binning_options bins = { sizeof bins, 9, 13 };

static void open_resource(run *self, const char *spec, weir_resource **out)
{
    const char *slash = strchr(spec, '/');
    if (slash == NULL) {
        must_ok(weir_resource_open(self->device, spec, out));
        return;
    }
    weir_resource *upstream;
    open_resource(self, slash + 1, &upstream);
    weir_pool_options pool = WEIR_POOL_OPTIONS_INIT;
    pool.growth_bytes = 65536;
    pool.slack_bytes = self->program->seed % 2 == 0 ? 131072 : 0;
    bool is_inner = strchr(slash + 1, '/') == NULL;
    if (is_inner)
        pool.initial_bytes = pool.limit_bytes = self->program->pool_bytes;
    if (spec[0] == 'p')
        must_ok(weir_pool_create(upstream, &pool, out));
    else if (spec[0] == 'f')
        must_ok(weir_fixed_size_create(upstream, FIXED_BYTES, NULL, out));
    else if (spec[0] == 'b')
        must_ok(weir_binning_create(upstream, &bins, out));
    else if (spec[0] == 'l')
        must_ok(weir_limiting_create(upstream, 300000, out));
    else
        must_ok(weir_statistics_create(upstream, out));
    weir_resource_unref(upstream);
}

/* A free allocates nothing. So it may find no record for a stream that is not known,
 * nor for a further point to be behind; then the memory waits for the device. */
static bool may_set_aside(const program *made)
{
    bool may = false;
    for (int i = 0; i < made->stream_count; i++)
        may = may || (made->streams[i].sort != PROGRAM_LEGACY &&
                      made->streams[i].sort != PROGRAM_KNOWN);
    for (int i = 0; i < made->step_count; i++)
        may = may || made->steps[i].count > 1;
    return may;
}

static void scene_begin(run *self, weir_emulated_scheduler scheduler)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.memory_bytes = (size_t)256 << 20;
    emulated.scheduler = scheduler;
    emulated.seed = self->program->seed;
    emulated.on_finding = hear_finding;
    emulated.finding_context = self;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.eager = self->program->eager;
    options.emulated = &emulated;
    self->device = open_with("emulated:0", &options);
    for (int i = 0; i < self->program->resource_count; i++)
        open_resource(self, self->program->specs[i], &self->resources[i]);
    for (int i = 0; i < self->program->stream_count; i++) {
        const program_stream *stream = &self->program->streams[i];
        if (stream->sort == PROGRAM_LEGACY)
            self->streams[i] = self->program->seed % 2 ? WEIR_STREAM_LEGACY : NULL;
        else if (stream->sort == PROGRAM_OWN)
            self->streams[i] = WEIR_STREAM_PER_THREAD;
        else if (stream->is_first)
            program_begin_stream(self, i);
    }
}

static void end_streams(run *self)
{
    for (int i = 0; i < self->program->stream_count; i++) {
        const program_stream *stream = &self->program->streams[i];
        if (!stream->is_alive)
            continue;
        if (stream->sort == PROGRAM_KNOWN)
            must_ok(weir_stream_destroy(self->device, self->streams[i]));
        if (stream->sort == PROGRAM_REGISTERED)
            must_ok(weir_stream_retire(self->device, self->streams[i]));
        if (stream->sort == PROGRAM_REGISTERED || stream->sort == PROGRAM_FOREIGN)
            must_ok(weir_emulated_stream_destroy(self->device, self->streams[i]));
    }
}

/* In one of several orders, often with work still under way. */
static size_t scene_end(run *self)
{
    const program *made = self->program;
    program_check_counts(self, made->step_count - 1);
    if (made->seed % 3 == 0)
        must_ok(weir_device_sync(self->device));
    if (made->seed % 2 == 0)
        end_streams(self);
    for (int i = 0; i < made->resource_count; i++)
        weir_resource_unref(self->resources[i]);
    if (made->seed % 2 == 1)
        end_streams(self);
    for (int i = 0; i < made->event_count; i++)
        must_ok(weir_event_destroy(self->device, self->events[i]));
    weir__order_verify(self->device->order);
    must_ok(weir_device_sync(self->device));
    size_t findings = weir_emulated_findings(self->device);
    if (!made->options.omit) {
        if (findings != 0 && getenv("WEIR_SHOW") != NULL)
            program_print(made);
        close_emulated(self->device);
    } else {
        close_anyhow(self->device);
    }
    return findings;
}

typedef struct host {
    run *run;
    int number;
} host;

static void run_host(void *argument)
{
    const host *self = argument;
    const program *made = self->run->program;
    for (int i = 0; i < made->step_count; i++) {
        if (made->steps[i].host == self->number)
            program_do_step(self->run, i);
    }
}

size_t program_run(const program *made, weir_emulated_scheduler scheduler)
{
    run *self = calloc(1, sizeof *self);
    must(self != NULL);
    self->program = made;
    self->may_set_aside = may_set_aside(made);
    support_use_seed(made->seed);
    pthread_mutex_init(&self->lock, NULL);
    scene_begin(self, scheduler);

    host hosts[PROGRAM_HOSTS];
    void *arguments[PROGRAM_HOSTS];
    for (int i = 0; i < made->options.hosts; i++) {
        hosts[i] = (host){ self, i };
        arguments[i] = &hosts[i];
    }
    if (made->options.hosts == 1)
        run_host(&hosts[0]);
    else
        must_ok(weir_emulated_run_threads(self->device, (size_t)made->options.hosts,
                                          run_host, arguments));
    atomic_fetch_add(&program_totals.steps, (uint64_t)made->step_count);
    size_t findings = scene_end(self);
    pthread_mutex_destroy(&self->lock);
    free(self);
    return findings;
}
