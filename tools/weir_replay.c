/* weir_replay.c - the command `weir replay`: reads a trace, runs it over each resource,
 * and reports what that cost and whether anything was wrong. */
#include "weir_replay.h"

#include <stdlib.h>
#include <string.h>

#include "weir_say.h"

/* ---- where it runs ---- */

typedef struct host {
    char device[32];       /* as the device calls itself */
    bool is_emulated;
    size_t memory_bytes;   /* that an emulated one is to have */
} host;

#define MEMORY_BYTES_LEAST ((size_t)32 << 30)

/* Memory costs only what is touched. Twice the peak leaves room for what packs badly,
 * and the same again for threads, which do not keep the order of the trace. */
static size_t memory_wanted(const replay_options *options, const trace *from)
{
    size_t times = options->thread_count > 1 ? 4 : 2;

    if (options->memory_bytes != 0)
        return options->memory_bytes;
    if (from->peak_live_bytes > SIZE_MAX / 2 / times)
        return SIZE_MAX / 2;
    size_t wanted = from->peak_live_bytes * times;
    return wanted > MEMORY_BYTES_LEAST ? wanted : MEMORY_BYTES_LEAST;
}

/* Asks the device that --device names what it is. */
static bool host_find(const replay_options *options, const trace *from, host *out)
{
    weir_device *device;
    weir_device_properties properties = { .struct_size = sizeof properties };

    weir_status status = weir_device_open(options->device, NULL, &device);
    if (status == WEIR_OK) {
        status = weir_device_get_properties(device, &properties);
        if (status == WEIR_OK) {
            snprintf(out->device, sizeof out->device, "%s", properties.name);
            out->is_emulated = properties.emulated;
            out->memory_bytes = memory_wanted(options, from);
        }
        weir_device_unref(device);
    }
    if (status != WEIR_OK)
        say_failure(options->device, status);
    return status == WEIR_OK;
}

static pass_place place_of(const replay_options *options, const host *where,
                           const char *spec, weir_emulated_scheduler scheduler)
{
    return (pass_place){
        .device = where->device,
        .is_emulated = where->is_emulated,
        .scheduler = scheduler,
        .memory_bytes = where->memory_bytes,
        .costs = options->costs_path == NULL ? NULL : &options->costs,
        .seed = options->seed,
        .spec = spec,
        .skip_wait = options->skip_wait,
    };
}

/* Opens each resource once and closes it: a name that means nothing ends the command
 * before anything has run. */
static bool specs_open(const replay_options *options, const host *where,
                       const plan *work)
{
    for (size_t i = 0; i < options->spec_count; i++) {
        pass trial;
        pass_place place = place_of(options, where, options->specs[i],
                                    WEIR_EMULATED_NO_WORK);
        if (!pass_open(&trial, work, &place))
            return false;
        pass_close(&trial);
    }
    return true;
}

/* ---- one resource ---- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What was live at most, and held meanwhile, where that is not the trace's alone: in a
 * pass that takes no time, for every block is counted. */
static bool result_count(const plan *work, const pass_place *place, replay_result *out)
{
    static const char above[] = "statistics/";
    pass_place counted = *place;
    pass_timing timing;

    if (work->lane_count == 1 && out->out_of_memory == 0)
        return true;
    char *spec = malloc(sizeof above + strlen(place->spec));
    if (spec == NULL) {
        say("no host memory");
        return false;
    }
    memcpy(spec, above, sizeof above - 1);
    memcpy(spec + sizeof above - 1, place->spec, strlen(place->spec) + 1);
    counted.spec = spec;
    say_progress("%s: a pass that is counted", place->spec);
    bool good = pass_time(work, &counted, &timing);
    free(spec);
    if (!good)
        return false;
    out->timing.peak_live_bytes = timing.peak_live_bytes;
    out->timing.peak_held_bytes = timing.peak_held_bytes;
    out->timing.held_is_known = timing.held_is_known;
    out->timing.kept_bytes = timing.kept_bytes;
    return true;
}

/* Runs the timed passes; the result has all of the best one. */
static bool result_time(const replay_options *options, const plan *work,
                        const pass_place *place, replay_result *out)
{
    double *times = calloc(options->repeat, sizeof *times);
    if (times == NULL) {
        say("no host memory");
        return false;
    }
    bool good = true;
    for (size_t i = 0; i < options->repeat; i++) {
        pass_timing timing;
        say_progress("%s: timed pass %zu of %zu", place->spec, i + 1, options->repeat);
        good = pass_time(work, place, &timing);
        if (!good)
            break;
        times[i] = timing.ns_per_event;
        if (timing.out_of_memory > out->out_of_memory)
            out->out_of_memory = timing.out_of_memory;
        if (i == 0 || timing.ns_per_event < out->timing.ns_per_event)
            out->timing = timing;
    }
    if (good) {
        qsort(times, options->repeat, sizeof *times, compare_doubles);
        out->ns_median = times[options->repeat / 2];
        good = result_count(work, place, out);
    }
    free(times);
    return good;
}

static bool result_fit(const plan *work, const pass_place *place, replay_result *out)
{
    bool broke;

    if (!fit_is_possible(place->spec))
        return true;
    out->fit_bytes = fit_find(work, place, &broke);
    if (out->fit_bytes == 0 && !broke)
        say("%s: no single chunk that the device has room for serves the trace",
            place->spec);
    return out->fit_bytes != 0;
}

static bool result_check(const replay_options *options, const plan *work,
                         const pass_place *place, replay_result *out)
{
    say_progress("%s: checked pass", place->spec);
    if (!check_run(work, place, options->verify, &out->check))
        return false;
    out->is_checked = true;
    if (out->check.out_of_memory > out->out_of_memory)
        out->out_of_memory = out->check.out_of_memory;
    return true;
}

static void result_make(const replay_options *options, const plan *work,
                        const host *where, const char *spec, replay_result *out)
{
    pass_place timed = place_of(options, where, spec, WEIR_EMULATED_NO_WORK);
    pass_place checked = place_of(options, where, spec, WEIR_EMULATED_STEPPED);

    out->spec = spec;
    out->failed = !result_time(options, work, &timed, out);
    if (!out->failed && options->fit)
        out->failed = !result_fit(work, &timed, out);
    bool can_check = where->is_emulated || options->verify;
    if (can_check && !result_check(options, work, &checked, out))
        out->failed = true;
    say_progress("%s", "");
}

static bool result_is_good(const replay_result *it)
{
    return !it->failed && it->out_of_memory == 0 && it->check.ledger_findings == 0
           && it->check.data_errors == 0;
}

/* ---- the command ---- */

static int replay_results(const replay_options *options, const trace *from,
                          const plan *work, const host *where, replay_result *results)
{
    bool good = true;

    for (size_t i = 0; i < options->spec_count; i++) {
        result_make(options, work, where, options->specs[i], &results[i]);
        good = good && result_is_good(&results[i]);
    }
    replay_report report = {
        .options = options, .trace = from, .plan = work, .device = where->device,
        .results = results, .result_count = options->spec_count,
    };
    if (options->json)
        replay_print_json(&report);
    else
        replay_print_table(&report);
    return good ? SAY_GOOD : SAY_WRONG;
}

static int replay_plan(const replay_options *options, const trace *from,
                       const plan *work)
{
    host where;
    replay_result results[REPLAY_SPECS_MAX] = { 0 };

    if (options->spread == PLAN_THREAD && work->streams_used < work->stream_count)
        say("note: the threads of the trace fill %zu of the %zu streams",
            work->streams_used, work->stream_count);
    if (!host_find(options, from, &where))
        return SAY_REFUSED;
    if (options->costs_path != NULL && !where.is_emulated) {
        say("--costs wants an emulated device: calls of %s take what they take",
            where.device);
        return SAY_REFUSED;
    }
    if (!specs_open(options, &where, work))
        return SAY_REFUSED;
    return replay_results(options, from, work, &where, results);
}

static int replay_trace(const replay_options *options)
{
    trace from;
    trace_error error;
    plan work;
    plan_options planned = {
        .spread = options->spread, .stream_count = options->stream_count,
        .thread_count = options->thread_count, .seed = options->seed,
    };

    if (!trace_read(options->trace_path, &from, &error)) {
        if (error.line != 0)
            say("%s:%zu: %s", options->trace_path, error.line, error.message);
        else
            say("%s: %s", options->trace_path, error.message);
        return SAY_REFUSED;
    }
    int code = SAY_REFUSED;
    if (plan_make(&from, &planned, &work)) {
        code = replay_plan(options, &from, &work);
        plan_clear(&work);
    } else {
        say("no host memory for a plan of %zu events", from.event_count);
    }
    trace_clear(&from);
    return code;
}

int replay_main(int argc, char **argv)
{
    replay_options options;
    int code = SAY_REFUSED;

    switch (replay_parse(argc, argv, &options)) {
    case REPLAY_HELP:
        replay_help();
        code = SAY_GOOD;
        break;
    case REPLAY_USAGE:
        say("try `weir replay --help`");
        break;
    case REPLAY_RUN:
        if (options.costs_path == NULL || costs_read(options.costs_path,
                                                     &options.costs))
            code = replay_trace(&options);
        break;
    }
    replay_options_clear(&options);
    return code;
}
