/* weir_replay.h - the command `weir replay`: its options, its results, their report. */
#ifndef WEIR_REPLAY_H
#define WEIR_REPLAY_H

#include "weir_check.h"
#include "weir_costs.h"
#include "weir_pass.h"
#include "weir_plan.h"
#include "weir_trace.h"

#define REPLAY_SPECS_MAX 16

typedef struct replay_options {
    const char *trace_path;
    const char *specs[REPLAY_SPECS_MAX];
    size_t spec_count;
    char *compare;          /* the text of --compare, cut up; specs point into it */
    const char *device;
    size_t stream_count;    /* 0: those of the trace */
    plan_spread spread;
    bool spread_is_given;
    uint64_t seed;
    size_t thread_count;
    size_t repeat;
    size_t memory_bytes;    /* 0: enough for the trace */
    const char *costs_path; /* null: nothing is predicted; else the next is read */
    weir_emulated_costs costs;
    bool fit;
    bool verify;
    bool skip_wait;
    bool json;
} replay_options;

typedef enum replay_parsed {
    REPLAY_RUN,
    REPLAY_HELP,
    REPLAY_USAGE  /* it was said what is wrong */
} replay_parsed;

/* Reads the command line after `weir replay`; argv[0] is not looked at. */
replay_parsed replay_parse(int argc, char **argv, replay_options *out);
void replay_options_clear(replay_options *self);
void replay_help(void);

/* What one resource has done. */
typedef struct replay_result {
    const char *spec;
    pass_timing timing;     /* its ns_per_event is that of the best pass */
    double ns_median;
    size_t fit_bytes;       /* 0: not asked, not a pool, or none found */
    bool is_checked;        /* the next one holds something */
    check_result check;
    size_t out_of_memory;   /* of the pass that had most */
    bool failed;            /* a pass broke off, or no chunk fits; it was said why */
} replay_result;

typedef struct replay_report {
    const replay_options *options;
    const trace *trace;
    const plan *plan;
    const char *device;     /* as the device calls itself */
    const replay_result *results;
    size_t result_count;
} replay_report;

void replay_print_table(const replay_report *report);
void replay_print_json(const replay_report *report);

/* Finds the smallest single chunk with which a pool serves the whole plan, to a step of
 * a sixteen-thousandth of the peak; 0 if there is none, and then *broke tells whether
 * something failed that was said. */
size_t fit_find(const plan *work, const pass_place *place, bool *broke);
bool fit_is_possible(const char *spec);

int replay_main(int argc, char **argv);

#endif
