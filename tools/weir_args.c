/* weir_args.c - the command line of `weir replay`. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir_replay.h"
#include "weir_say.h"
#include "weir_value.h"

#define STREAMS_MAX 1024
#define THREADS_MAX 64
#define REPEAT_MAX 1000

enum {
    ARG_RESOURCE = 1, ARG_COMPARE, ARG_DEVICE, ARG_STREAMS, ARG_SPREAD, ARG_SEED,
    ARG_THREADS, ARG_REPEAT, ARG_MEMORY, ARG_FIT, ARG_VERIFY, ARG_SKIP_WAIT, ARG_JSON,
    ARG_COSTS, ARG_HELP
};

static const struct option arguments[] = {
    { "resource", required_argument, NULL, ARG_RESOURCE },
    { "compare", required_argument, NULL, ARG_COMPARE },
    { "device", required_argument, NULL, ARG_DEVICE },
    { "streams", required_argument, NULL, ARG_STREAMS },
    { "spread", required_argument, NULL, ARG_SPREAD },
    { "seed", required_argument, NULL, ARG_SEED },
    { "threads", required_argument, NULL, ARG_THREADS },
    { "repeat", required_argument, NULL, ARG_REPEAT },
    { "memory", required_argument, NULL, ARG_MEMORY },
    { "fit", no_argument, NULL, ARG_FIT },
    { "verify", no_argument, NULL, ARG_VERIFY },
    { "costs", required_argument, NULL, ARG_COSTS },
    { "skip-wait", no_argument, NULL, ARG_SKIP_WAIT },
    { "json", no_argument, NULL, ARG_JSON },
    { "help", no_argument, NULL, ARG_HELP },
    { NULL, 0, NULL, 0 }
};

void replay_help(void)
{
    fputs(
"usage: weir replay TRACE [option ...]\n"
"\n"
"Replays an allocation trace through a memory resource, and reports what it cost.\n"
"TRACE holds lines `t_ns,thread,stream,op,id,size`, plain or gzip; op A allocates, F\n"
"frees, and what is never freed is live at the end. It may be a log too, of RMM's\n"
"logging_resource_adaptor or of Weir's logging.\n"
"\n"
"Timed passes come first, with nothing but the resource at work; then one checked\n"
"pass on a stepped device, whose ledger finds every use of memory out of order. A\n"
"real device has none: it is checked with --verify, and shows only what collides.\n"
"\n"
"  --resource SPEC    the resource, outermost first; default pool/device; `weir info\n"
"                     --resources tells what there is\n"
"  --compare A,B,...  run these in turn, and compare them with the first; or, where\n"
"                     --resource is given, run that before them, and compare with it\n"
"  --device NAME      emulated, emulated:N, cuda:N or auto, which is the default\n"
"  --streams N        spread the trace over N streams; trace, which is the default:\n"
"                     those that it names\n"
"  --spread HOW       with --streams:\n"
"                       random  any stream; half of the blocks are used on and freed\n"
"                               from another than they were allocated on (default)\n"
"                       thread  the threads of the trace go round the streams\n"
"                       phase   the trace in equal parts, four to a stream, does\n"
"  --seed S           of what is drawn at random; default 1\n"
"  --threads N        deal the events to N host threads; a free waits for its own\n"
"                     allocation; default 1\n"
"  --repeat N         timed passes; the best one counts; default 3\n"
"  --memory BYTES     of an emulated device, as 8GiB; default: ample for the trace\n"
"  --fit              find the smallest single chunk with which a pool serves the\n"
"                     trace; with one thread\n"
"  --verify           in the checked pass write every block, whole up to 1 MiB and\n"
"                     in samples above, and read it back before it is freed\n"
"  --costs FILE       what calls take elsewhere, to predict what an event would take\n"
"                     there; lines as `malloc 9000 200`: a kind of call, its ns,\n"
"                     and its ns for each MiB; bench/costs/ has one\n"
"  --skip-wait        leave out the waits between streams, to see it found\n"
"  --json             print one JSON object instead of a table\n"
"\n"
"Exit status: 0 nothing was found wrong; 1 something was: memory ran out, an access\n"
"out of order, wrong data, a failure; 2 nothing was run: wrong usage, a broken trace,\n"
"no such device.\n", stdout);
}

/* ---- values ---- */

static bool parse_count(const char *option, const char *text, size_t most, size_t *out)
{
    uint64_t number;
    if (!value_number(option, text, 1, most, &number))
        return false;
    *out = (size_t)number;
    return true;
}

static bool parse_spread(const char *text, replay_options *out)
{
    static const struct {
        const char *name;
        plan_spread spread;
    } spreads[] = {
        { "random", PLAN_RANDOM }, { "thread", PLAN_THREAD }, { "phase", PLAN_PHASE }
    };

    for (size_t i = 0; i < sizeof spreads / sizeof *spreads; i++) {
        if (strcmp(text, spreads[i].name) == 0) {
            out->spread = spreads[i].spread;
            out->spread_is_given = true;
            return true;
        }
    }
    say("--spread is thread, phase or random, not `%s`", text);
    return false;
}

static bool spec_add(replay_options *self, const char *spec)
{
    if (*spec == '\0') {
        say("a resource has no name");
        return false;
    }
    if (self->spec_count == REPLAY_SPECS_MAX) {
        say("%d resources at most", REPLAY_SPECS_MAX);
        return false;
    }
    self->specs[self->spec_count++] = spec;
    return true;
}

/* How long the first of the resources in `text` is: up to a comma that is neither
 * between parentheses nor in quotes. */
static size_t spec_length(const char *text)
{
    bool is_quoted = false;
    size_t depth = 0, at;

    for (at = 0; text[at] != '\0'; at++) {
        if (is_quoted && text[at] == '\\' && text[at + 1] != '\0')
            at++;
        else if (text[at] == '"')
            is_quoted = !is_quoted;
        else if (!is_quoted && text[at] == '(')
            depth++;
        else if (!is_quoted && text[at] == ')' && depth > 0)
            depth--;
        else if (!is_quoted && text[at] == ',' && depth == 0)
            break;
    }
    return at;
}

static bool parse_compare(const char *text, replay_options *out)
{
    if (out->compare != NULL) {
        say("--compare is given twice; separate resources by commas");
        return false;
    }
    out->compare = strdup(text);
    if (out->compare == NULL) {
        say("no host memory");
        return false;
    }
    for (char *spec = out->compare;;) {
        char *end = spec + spec_length(spec);
        bool is_last = *end == '\0';
        *end = '\0';
        if (!spec_add(out, spec))
            return false;
        if (is_last)
            return true;
        spec = end + 1;
    }
}

/* ---- the whole line ---- */

static bool parse_one(int code, const char *text, const char **resource,
                      replay_options *out)
{
    switch (code) {
    case ARG_RESOURCE: *resource = text; return true;
    case ARG_COMPARE: return parse_compare(text, out);
    case ARG_DEVICE: out->device = text; return true;
    case ARG_STREAMS:
        out->stream_count = 0;
        return strcmp(text, "trace") == 0
               || parse_count("streams", text, STREAMS_MAX, &out->stream_count);
    case ARG_SPREAD: return parse_spread(text, out);
    case ARG_SEED: return value_number("seed", text, 0, UINT64_MAX, &out->seed);
    case ARG_THREADS:
        return parse_count("threads", text, THREADS_MAX, &out->thread_count);
    case ARG_REPEAT: return parse_count("repeat", text, REPEAT_MAX, &out->repeat);
    case ARG_MEMORY: return value_bytes("memory", text, &out->memory_bytes);
    case ARG_FIT: out->fit = true; return true;
    case ARG_VERIFY: out->verify = true; return true;
    case ARG_COSTS: out->costs_path = text; return true;
    case ARG_SKIP_WAIT: out->skip_wait = true; return true;
    case ARG_JSON: out->json = true; return true;
    default: return false; /* getopt has said why */
    }
}

/* The resource of --resource comes before those of --compare, wherever it stood. */
static bool specs_complete(replay_options *self, const char *resource)
{
    if (resource == NULL && self->spec_count > 0)
        return true;
    if (!spec_add(self, resource == NULL ? "pool/device" : resource))
        return false;
    const char *first = self->specs[self->spec_count - 1];
    memmove(&self->specs[1], &self->specs[0],
            (self->spec_count - 1) * sizeof self->specs[0]);
    self->specs[0] = first;
    return true;
}

static bool options_agree(const replay_options *self)
{
    size_t pools = 0;

    for (size_t i = 0; i < self->spec_count; i++)
        pools += fit_is_possible(self->specs[i]);
    if (self->fit && self->thread_count > 1)
        say("--fit wants one thread: with more, no two runs are the same");
    else if (self->fit && pools == 0)
        say("--fit wants a resource that begins with `pool/`");
    else if (self->spread_is_given && self->stream_count == 0)
        say("--spread wants a number of --streams");
    else
        return true;
    return false;
}

replay_parsed replay_parse(int argc, char **argv, replay_options *out)
{
    const char *resource = NULL;
    int code;

    *out = (replay_options){
        .device = "auto", .spread = PLAN_RANDOM, .seed = 1, .thread_count = 1,
        .repeat = 3,
    };
    optind = 1;
    while ((code = getopt_long(argc, argv, "h", arguments, NULL)) != -1) {
        if (code == ARG_HELP || code == 'h')
            return REPLAY_HELP;
        if (!parse_one(code, optarg, &resource, out))
            return REPLAY_USAGE;
    }
    if (optind + 1 != argc) {
        if (optind == argc)
            say("there is no trace to replay");
        else
            say("one trace at a time: what is `%s`?", argv[optind + 1]);
        return REPLAY_USAGE;
    }
    out->trace_path = argv[optind];
    if (out->stream_count == 0)
        out->spread = PLAN_TRACE;
    return specs_complete(out, resource) && options_agree(out) ? REPLAY_RUN
                                                               : REPLAY_USAGE;
}

void replay_options_clear(replay_options *self)
{
    free(self->compare);
    self->compare = NULL;
}
