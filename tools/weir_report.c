/* weir_report.c - the results of a replay: as a table for people, and as JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "weir_replay.h"
#include "weir_say.h"

static double over(size_t bytes, size_t base)
{
    return base == 0 ? NAN : (double)bytes / (double)base;
}

static double held_over_live(const replay_result *it)
{
    return over(it->timing.held_is_known ? it->timing.peak_held_bytes : 0,
                it->timing.held_is_known ? it->timing.peak_live_bytes : 0);
}

/* One lane: the plan's peak is the run's. */
static double fit_over_live(const replay_report *report, const replay_result *it)
{
    return over(it->fit_bytes, it->fit_bytes == 0 ? 0 : report->plan->peak_live_bytes);
}

/* No event takes no time: zero is a pass that broke off. */
static double known_time(double ns)
{
    return ns > 0 ? ns : NAN;
}

static double predicted_ns(const replay_result *it)
{
    return known_time(it->timing.ns_per_event) + it->timing.device_ns_per_event;
}

static const char *spread_name(plan_spread spread)
{
    switch (spread) {
    case PLAN_TRACE: return "trace";
    case PLAN_RANDOM: return "random";
    case PLAN_THREAD: return "thread";
    case PLAN_PHASE: return "phase";
    }
    return "?";
}

/* ---- table ---- */

/* One row for each figure, one column for each resource: the figure to the right, and
 * behind it how many times that of the first resource it is. */
#define NAME_COLUMNS 22
#define FIGURE_COLUMNS 12
#define RATIO_COLUMNS 10

typedef struct cell {
    char figure[32];
    char ratio[16];  /* or nothing */
} cell;

typedef cell cells[REPLAY_SPECS_MAX];

/* The widest name of a resource, or figure. */
static int figure_columns(const replay_report *report)
{
    size_t columns = FIGURE_COLUMNS;
    for (size_t i = 0; i < report->result_count; i++) {
        if (strlen(report->results[i].spec) > columns)
            columns = strlen(report->results[i].spec);
    }
    return (int)columns;
}

static void row_begin(const char *name)
{
    printf("%-*s", NAME_COLUMNS, name);
}

static void row_add(const replay_report *report, size_t index, const char *figure,
                    const char *ratio)
{
    bool is_last = index == report->result_count - 1;
    int pad = is_last ? 0 : RATIO_COLUMNS;
    printf("  %*s%-*s%s", figure_columns(report), figure, pad, ratio,
           is_last ? "\n" : "");
}

static void row_print(const replay_report *report, const char *name, cells line)
{
    row_begin(name);
    for (size_t i = 0; i < report->result_count; i++)
        row_add(report, i, line[i].figure, line[i].ratio);
}

static void cell_compare(cell *self, double figure, double first)
{
    if (first > 0 && isfinite(figure) && figure / first < 1000)
        snprintf(self->ratio, sizeof self->ratio, " (%.2fx)", figure / first);
}

static void row_times(const replay_report *report)
{
    cells line = { 0 };

    for (size_t i = 0; i < report->result_count; i++) {
        double ns = known_time(report->results[i].timing.ns_per_event);
        snprintf(line[i].figure, sizeof line[i].figure, ns > 0 ? "%.1f" : "-", ns);
        if (i > 0)
            cell_compare(&line[i], ns, report->results[0].timing.ns_per_event);
    }
    row_print(report, "ns per event", line);
}

/* What the host's part of an event takes here, and with it what its device calls take
 * elsewhere. */
static void rows_predicted(const replay_report *report)
{
    cells device = { 0 }, both = { 0 };

    if (report->options->costs_path == NULL)
        return;
    for (size_t i = 0; i < report->result_count; i++) {
        double ns = report->results[i].timing.device_ns_per_event;
        double sum = predicted_ns(&report->results[i]);
        snprintf(device[i].figure, sizeof device[i].figure, "%.1f", ns);
        snprintf(both[i].figure, sizeof both[i].figure, sum > 0 ? "%.1f" : "-", sum);
        if (i > 0)
            cell_compare(&both[i], sum, predicted_ns(&report->results[0]));
    }
    row_print(report, "  its device calls", device);
    row_print(report, "  predicted in all", both);
}

/* Zero stands for what is not known. */
static void row_bytes(const replay_report *report, const char *name,
                      const size_t *figures)
{
    cells line = { 0 };

    for (size_t i = 0; i < report->result_count; i++) {
        bool known = figures[i] != 0;
        snprintf(line[i].figure, sizeof line[i].figure, "%s",
                 known ? say_bytes(figures[i]).text : "-");
        if (i > 0 && known)
            cell_compare(&line[i], (double)figures[i], (double)figures[0]);
    }
    row_print(report, name, line);
}

static void row_ratios(const replay_report *report, const char *name,
                       const double *figures)
{
    cells line = { 0 };

    for (size_t i = 0; i < report->result_count; i++)
        snprintf(line[i].figure, sizeof line[i].figure,
                 isfinite(figures[i]) ? "%.4f" : "-", figures[i]);
    row_print(report, name, line);
}

static void row_counts(const replay_report *report, const char *name,
                       const uint64_t *figures)
{
    cells line = { 0 };

    for (size_t i = 0; i < report->result_count; i++)
        snprintf(line[i].figure, sizeof line[i].figure, "%" PRIu64, figures[i]);
    row_print(report, name, line);
}

static void rows_memory(const replay_report *report)
{
    size_t live[REPLAY_SPECS_MAX], held[REPLAY_SPECS_MAX], chunks[REPLAY_SPECS_MAX];
    double held_ratios[REPLAY_SPECS_MAX], chunk_ratios[REPLAY_SPECS_MAX];

    for (size_t i = 0; i < report->result_count; i++) {
        const replay_result *it = &report->results[i];
        live[i] = it->timing.peak_live_bytes;
        held[i] = it->timing.peak_held_bytes;
        chunks[i] = it->fit_bytes;
        held_ratios[i] = held_over_live(it);
        chunk_ratios[i] = fit_over_live(report, it);
    }
    row_bytes(report, "peak live", live);
    row_bytes(report, "peak held", held);
    row_ratios(report, "held / live", held_ratios);
    if (!report->options->fit)
        return;
    row_bytes(report, "smallest chunk", chunks);
    row_ratios(report, "chunk / live", chunk_ratios);
}

/* Kinds of calls that no resource made are left out; the JSON has them all. */
static void row_calls(const replay_report *report, const char *name,
                      const uint64_t *figures, bool *any)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < report->result_count; i++)
        sum += figures[i];
    if (sum == 0)
        return;
    if (!*any)
        puts("device calls");
    *any = true;
    row_counts(report, name, figures);
}

static void rows_calls(const replay_report *report)
{
    uint64_t figures[REPLAY_SPECS_MAX];
    bool any = false;

#define X(name)                                                                  \
    for (size_t i = 0; i < report->result_count; i++)                            \
        figures[i] = report->results[i].timing.calls.name;                       \
    row_calls(report, "  " #name, figures, &any);
    WEIR_DEVICE_CALL_MAP(X)
#undef X
    if (!any)
        puts("device calls: none");
}

static void rows_faults(const replay_report *report)
{
    uint64_t refused[REPLAY_SPECS_MAX], findings[REPLAY_SPECS_MAX];
    uint64_t errors[REPLAY_SPECS_MAX];

    for (size_t i = 0; i < report->result_count; i++) {
        const replay_result *it = &report->results[i];
        refused[i] = it->out_of_memory;
        findings[i] = it->check.ledger_findings;
        errors[i] = it->check.data_errors;
    }
    row_counts(report, "out of memory", refused);
    if (!report->results[0].is_checked)
        return;
    if (report->results[0].check.has_ledger)
        row_counts(report, "ledger findings", findings);
    if (report->options->verify)
        row_counts(report, "data errors", errors);
}

static const char *plural(size_t count)
{
    return count == 1 ? "" : "s";
}

static void table_head(const replay_report *report)
{
    const trace *from = report->trace;
    const plan *work = report->plan;

    printf("trace   %s\n", report->options->trace_path);
    printf("        %zu events: %zu allocations, of which %zu were live at most\n",
           from->event_count, from->block_count, from->peak_live_blocks);
    if (from->failure_count + from->nothing_count != 0)
        printf("        %zu failure%s and %zu call%s for zero bytes are skipped\n",
               from->failure_count, plural(from->failure_count), from->nothing_count,
               plural(from->nothing_count));
    printf("run     on %s, %zu host thread%s, %zu stream%s", report->device,
           work->lane_count, plural(work->lane_count), work->stream_count,
           plural(work->stream_count));
    if (report->options->spread != PLAN_TRACE)
        printf(" (%s, seed %" PRIu64 ")", spread_name(report->options->spread),
               report->options->seed);
    puts("");
    if (work->handoffs + work->crossings != 0)
        printf("        %zu block%s handed to another stream%s, %zu freed by another "
               "thread\n", work->handoffs, plural(work->handoffs),
               report->options->skip_wait ? " WITHOUT WAITING" : "", work->crossings);
    puts("");
    row_begin("");
    for (size_t i = 0; i < report->result_count; i++)
        row_add(report, i, report->results[i].spec, "");
}

/* Why a leaf without a pool holds so much. */
static void note_kept(const replay_report *report)
{
    for (size_t i = 0; i < report->result_count; i++) {
        const replay_result *it = &report->results[i];
        if (it->timing.kept_bytes == 0)
            continue;
        printf("\n%s frees only what is known to be done, and timed passes do no work "
               "until\nthe host waits: %s of what it held was back.\n", it->spec,
               say_bytes(it->timing.kept_bytes).text);
    }
}

static const char *what_was_checked(const replay_report *report)
{
    const replay_result *it = &report->results[0];
    if (!it->is_checked)
        return "; order and contents were not checked: --verify checks contents, and\n"
               "only an emulated device checks order";
    if (!it->check.has_ledger)
        return ": contents of all blocks checked, and order as far as they would have\n"
               "collided: only an emulated device proves it";
    return report->options->verify ? ": contents and order of all blocks checked"
                                   : ": order of all blocks checked";
}

static void table_foot(const replay_report *report)
{
    size_t wrong = 0;

    for (size_t i = 0; i < report->result_count; i++) {
        const replay_result *it = &report->results[i];
        wrong += it->out_of_memory + it->check.ledger_findings + it->check.data_errors
                 + it->failed;
    }
    note_kept(report);
    if (report->options->costs_path != NULL)
        printf("\npredicted: the time here, and what %s says of the device calls, one "
               "after\nthe other.\n", report->options->costs_path);
    puts("");
    if (wrong != 0)
        puts("SOMETHING IS WRONG: see above");
    else
        printf("nothing is wrong%s\n", what_was_checked(report));
}

void replay_print_table(const replay_report *report)
{
    table_head(report);
    row_times(report);
    rows_predicted(report);
    rows_memory(report);
    rows_calls(report);
    rows_faults(report);
    table_foot(report);
}

/* ---- JSON ---- */

static void json_calls(say_json *json, const weir_device_calls *calls)
{
    say_json_open(json, "device_calls", '{');
#define X(name) say_json_number(json, #name, calls->name);
    WEIR_DEVICE_CALL_MAP(X)
#undef X
    say_json_close(json, '}');
}

static void json_result(say_json *json, const replay_report *report,
                        const replay_result *it)
{
    say_json_open(json, NULL, '{');
    say_json_text(json, "resource", it->spec);
    say_json_number(json, "events", report->plan->event_count);
    say_json_real(json, "ns_per_event", known_time(it->timing.ns_per_event), 2);
    say_json_real(json, "ns_per_event_median", known_time(it->ns_median), 2);
    bool predicts = report->options->costs_path != NULL;
    say_json_real(json, "device_ns_per_event",
                  predicts ? it->timing.device_ns_per_event : NAN, 2);
    say_json_real(json, "predicted_ns_per_event", predicts ? predicted_ns(it) : NAN, 2);
    say_json_number(json, "peak_live_bytes", it->timing.peak_live_bytes);
    if (it->timing.held_is_known)
        say_json_number(json, "peak_held_bytes", it->timing.peak_held_bytes);
    else
        say_json_null(json, "peak_held_bytes");
    say_json_real(json, "held_over_live", held_over_live(it), 6);
    say_json_real(json, "fit_over_live", fit_over_live(report, it), 6);
    if (it->fit_bytes != 0)
        say_json_number(json, "fit_bytes", it->fit_bytes);
    else
        say_json_null(json, "fit_bytes");
    json_calls(json, &it->timing.calls);
    say_json_number(json, "out_of_memory", it->out_of_memory);
    if (it->is_checked && it->check.has_ledger)
        say_json_number(json, "ledger_findings", it->check.ledger_findings);
    else
        say_json_null(json, "ledger_findings");
    if (it->is_checked)
        say_json_number(json, "data_errors", it->check.data_errors);
    else
        say_json_null(json, "data_errors");
    say_json_bool(json, "failed", it->failed);
    say_json_close(json, '}');
}

void replay_print_json(const replay_report *report)
{
    const replay_options *options = report->options;
    say_json json = { .file = stdout };

    say_json_open(&json, NULL, '{');
    say_json_text(&json, "trace", options->trace_path);
    say_json_text(&json, "device", report->device);
    say_json_number(&json, "streams", report->plan->stream_count);
    say_json_text(&json, "spread", spread_name(options->spread));
    say_json_number(&json, "seed", options->seed);
    say_json_number(&json, "threads", report->plan->lane_count);
    say_json_number(&json, "repeat", options->repeat);
    say_json_bool(&json, "verify", options->verify);
    say_json_bool(&json, "skip_wait", options->skip_wait);
    if (options->costs_path != NULL)
        say_json_text(&json, "costs", options->costs_path);
    else
        say_json_null(&json, "costs");
    say_json_number(&json, "allocations", report->trace->block_count);
    say_json_number(&json, "failures_skipped", report->trace->failure_count);
    say_json_number(&json, "zero_bytes_skipped", report->trace->nothing_count);
    say_json_number(&json, "handoffs", report->plan->handoffs);
    say_json_number(&json, "crossings", report->plan->crossings);
    say_json_open(&json, "results", '[');
    for (size_t i = 0; i < report->result_count; i++)
        json_result(&json, report, &report->results[i]);
    say_json_close(&json, ']');
    say_json_close(&json, '}');
}
