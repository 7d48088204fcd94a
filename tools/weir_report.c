/* weir_report.c - the results of a replay: as a table for people, and as JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
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
#define NAME_COLUMNS 18
#define FIGURE_COLUMNS 12

static void row(const char *name)
{
    printf("%-*s", NAME_COLUMNS, name);
}

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

static void cell_with(const replay_report *report, const char *text, const char *ratio)
{
    bool is_last = *ratio == '\0' && report->result_count == 1;
    printf("  %*s%-*s", figure_columns(report), text, is_last ? 0 : 10, ratio);
}

static void cell(const replay_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void cell(const replay_report *report, const char *format, ...)
{
    va_list args;
    char text[64];

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cell_with(report, text, "");
}

static void cell_against(const replay_report *report, const char *text, double figure,
                         double first, bool is_first)
{
    char ratio[32] = "";
    if (!is_first && first > 0 && isfinite(figure))
        snprintf(ratio, sizeof ratio, " (%.2fx)", figure / first);
    cell_with(report, text, ratio);
}

static void row_times(const replay_report *report)
{
    row("ns per event");
    for (size_t i = 0; i < report->result_count; i++) {
        char text[32];
        double ns = report->results[i].timing.ns_per_event;
        snprintf(text, sizeof text, "%.1f", ns);
        cell_against(report, text, ns, report->results[0].timing.ns_per_event, i == 0);
    }
    puts("");
}

static void row_bytes(const replay_report *report, const char *name,
                      size_t (*figure)(const replay_result *))
{
    row(name);
    for (size_t i = 0; i < report->result_count; i++) {
        size_t bytes = figure(&report->results[i]);
        size_t first = figure(&report->results[0]);
        cell_against(report, bytes == 0 ? "-" : say_bytes(bytes).text,
                     bytes == 0 ? NAN : (double)bytes, (double)first, i == 0);
    }
    puts("");
}

static size_t peak_live(const replay_result *it)
{
    return it->timing.peak_live_bytes;
}

static size_t peak_held(const replay_result *it)
{
    return it->timing.peak_held_bytes;
}

static size_t fit_bytes(const replay_result *it)
{
    return it->fit_bytes;
}

static void cell_ratio(const replay_report *report, double ratio)
{
    if (isfinite(ratio))
        cell(report, "%.4f", ratio);
    else
        cell(report, "-");
}

static void rows_ratios(const replay_report *report)
{
    row("held / live");
    for (size_t i = 0; i < report->result_count; i++)
        cell_ratio(report, held_over_live(&report->results[i]));
    puts("");
    if (!report->options->fit)
        return;
    row_bytes(report, "smallest chunk", fit_bytes);
    row("chunk / live");
    for (size_t i = 0; i < report->result_count; i++)
        cell_ratio(report, fit_over_live(report, &report->results[i]));
    puts("");
}

static void row_count(const replay_report *report, const char *name,
                      uint64_t (*figure)(const replay_result *))
{
    row(name);
    for (size_t i = 0; i < report->result_count; i++)
        cell(report, "%" PRIu64, figure(&report->results[i]));
    puts("");
}

/* Kinds of calls that no resource made are left out; the JSON has them all. */
#define X(name)                                                                  \
    static uint64_t calls_##name(const replay_result *it)                        \
    {                                                                            \
        return it->timing.calls.name;                                            \
    }
WEIR_DEVICE_CALL_MAP(X)
#undef X

static void rows_calls(const replay_report *report)
{
    static const struct {
        const char *name;
        uint64_t (*figure)(const replay_result *);
    } kinds[] = {
#define X(name) { "  " #name, calls_##name },
        WEIR_DEVICE_CALL_MAP(X)
#undef X
    };
    bool any = false;

    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        uint64_t sum = 0;
        for (size_t i = 0; i < report->result_count; i++)
            sum += kinds[k].figure(&report->results[i]);
        if (sum != 0 && !any)
            puts("device calls");
        any = any || sum != 0;
        if (sum != 0)
            row_count(report, kinds[k].name, kinds[k].figure);
    }
    if (!any)
        puts("device calls: none");
}

static uint64_t out_of_memory(const replay_result *it)
{
    return it->out_of_memory;
}

static uint64_t ledger_findings(const replay_result *it)
{
    return it->check.ledger_findings;
}

static uint64_t data_errors(const replay_result *it)
{
    return it->check.data_errors;
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
    row("");
    for (size_t i = 0; i < report->result_count; i++)
        cell(report, "%s", report->results[i].spec);
    puts("");
}

static void table_foot(const replay_report *report)
{
    size_t wrong = 0;
    const char *how = report->options->verify ? "contents and order" : "order";

    for (size_t i = 0; i < report->result_count; i++) {
        const replay_result *it = &report->results[i];
        wrong += it->out_of_memory + it->check.ledger_findings + it->check.data_errors;
    }
    puts("");
    if (wrong != 0)
        puts("SOMETHING IS WRONG: see above");
    else if (report->results[0].is_checked)
        printf("nothing is wrong: %s of all blocks checked\n", how);
    else
        puts("nothing is wrong; order and contents were not checked: only an emulated "
             "device does that");
}

void replay_print_table(const replay_report *report)
{
    table_head(report);
    row_times(report);
    row_bytes(report, "peak live", peak_live);
    row_bytes(report, "peak held", peak_held);
    rows_ratios(report);
    rows_calls(report);
    row_count(report, "out of memory", out_of_memory);
    if (report->results[0].is_checked) {
        row_count(report, "ledger findings", ledger_findings);
        if (report->options->verify)
            row_count(report, "data errors", data_errors);
    }
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
    say_json_real(json, "ns_per_event", it->timing.ns_per_event, 2);
    say_json_real(json, "ns_per_event_median", it->ns_median, 2);
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
    if (it->is_checked) {
        say_json_number(json, "ledger_findings", it->check.ledger_findings);
        say_json_number(json, "data_errors", it->check.data_errors);
    } else {
        say_json_null(json, "ledger_findings");
        say_json_null(json, "data_errors");
    }
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
    say_json_number(&json, "allocations", report->trace->block_count);
    say_json_number(&json, "handoffs", report->plan->handoffs);
    say_json_number(&json, "crossings", report->plan->crossings);
    say_json_open(&json, "results", '[');
    for (size_t i = 0; i < report->result_count; i++)
        json_result(&json, report, &report->results[i]);
    say_json_close(&json, ']');
    say_json_close(&json, '}');
}
