/* cuda_costs.c - what each CUDA call costs here: medians and quartiles, by size where
 * size matters.
 *
 *     cuda_costs [--json] [GROUP...]     cuda_costs --list
 *
 * Needs nothing of Weir. Groups are independent, and can be run in processes of their
 * own, so that one which dies does not take the others along. With --json each figure
 * is one line as soon as it is known:
 *
 *     {"group": "events", "call": "cudaEventRecord", "how": "idle", "bytes": 0,
 *      "samples": 1001, "ns": [480.1, 495.0, 517.2]}          quartiles and median
 *     {"group": "ipc", "call": "cudaIpcGetMemHandle",
 *      "refused": "cudaErrorNotSupported"}
 *     {"group": "mapping", "call": "cuMemMap", "not_provided": true}
 *
 * Exit status: 0, also where calls are refused; 1 no device; 2 wrong usage. */
#include "cuda_costs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECONDS_MAX 0.25
#define SAMPLES_LEAST 5

static bool json;
static const char *group_name;

/* ---- measuring ---- */

double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

void cost_begin(cost *self, const char *call, const char *how, size_t bytes)
{
    self->call = call;
    self->how = how;
    self->bytes = bytes;
    self->count = 0;
    self->error = 0;
    self->began_ns = now_ns();
}

bool cost_goes_on(const cost *self)
{
    if (self->error != 0 || self->count == COST_SAMPLES_MAX)
        return false;
    return self->count < SAMPLES_LEAST
           || now_ns() - self->began_ns < SECONDS_MAX * 1e9;
}

void cost_add(cost *self, double ns, int calls)
{
    if (self->count < COST_SAMPLES_MAX)
        self->ns[self->count++] = ns / calls;
}

/* ---- telling ---- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void cost_tell_refused(const char *call, int error)
{
    bool missing = error == CUDA_ERROR_NOT_FOUND;
    const char *name = cudaGetErrorName((cudaError_t)error);

    (void)cudaGetLastError();
    if (json && missing)
        printf("{\"group\": \"%s\", \"call\": \"%s\", \"not_provided\": true}\n",
               group_name, call);
    else if (json)
        printf("{\"group\": \"%s\", \"call\": \"%s\", \"refused\": \"%s\"}\n",
               group_name, call, name);
    else
        printf("%-30s %s\n", call, missing ? "not provided" : name);
    fflush(stdout);
}

bool cost_end(cost *self)
{
    if (self->error != 0) {
        cost_tell_refused(self->call, self->error);
        return false;
    }
    qsort(self->ns, self->count, sizeof *self->ns, compare_doubles);
    double low = self->ns[self->count / 4], middle = self->ns[self->count / 2];
    double high = self->ns[self->count * 3 / 4];
    if (json)
        printf("{\"group\": \"%s\", \"call\": \"%s\", \"how\": \"%s\", \"bytes\": %zu, "
               "\"samples\": %zu, \"ns\": [%.1f, %.1f, %.1f]}\n", group_name,
               self->call, self->how, self->bytes, self->count, low, middle, high);
    else
        printf("%-30s %-18s %12zu %14.0f %14.0f %14.0f %8zu\n", self->call, self->how,
               self->bytes, low, middle, high, self->count);
    fflush(stdout);
    return true;
}

bool good(const char *call, int error)
{
    if (error != 0)
        cost_tell_refused(call, error);
    return error == 0;
}

/* ---- the program ---- */

static void costs_of_clock(void)
{
    static cost c;
    cost_begin(&c, "clock_gettime", "for comparison", 0);
    while (cost_goes_on(&c))
        COST_TIMED(&c, 32, now_ns() < 0);
    cost_end(&c);
}

static const struct {
    const char *name;
    void (*run)(void);
} groups[] = {
    { "clock", costs_of_clock }, { "events", costs_of_events },
    { "streams", costs_of_streams }, { "ids", costs_of_ids },
    { "contexts", costs_of_contexts }, { "work", costs_of_work },
    { "syncs", costs_of_syncs }, { "malloc", costs_of_malloc },
    { "pools", costs_of_pools }, { "pinned", costs_of_pinned },
    { "managed", costs_of_managed }, { "mapping", costs_of_mapping },
    { "ipc", costs_of_ipc },
};

#define GROUPS (sizeof groups / sizeof *groups)

static bool is_wanted(int argc, char **argv, int first, const char *name)
{
    if (first == argc)
        return true;
    for (int i = first; i < argc; i++) {
        if (strcmp(argv[i], name) == 0)
            return true;
    }
    return false;
}

static bool names_are_known(int argc, char **argv, int first)
{
    for (int i = first; i < argc; i++) {
        bool known = false;
        for (size_t k = 0; k < GROUPS; k++)
            known = known || strcmp(argv[i], groups[k].name) == 0;
        if (!known) {
            fprintf(stderr, "cuda_costs: there is no group %s; see --list\n", argv[i]);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    int first = 1;

    if (argc == 3 && strcmp(argv[1], "--importer") == 0) {
        json = true;
        group_name = "ipc";
        return ipc_importer_main(argv[2]);
    }
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < GROUPS; i++)
            puts(groups[i].name);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--json") == 0) {
        json = true;
        first = 2;
    }
    if (!names_are_known(argc, argv, first))
        return 2;
    group_name = "device";
    if (!GOOD(cudaSetDevice, 0) || !GOOD(cudaFree, NULL)) /* makes the context */
        return 1;
    if (!json)
        printf("%-30s %-18s %12s %14s %14s %14s %8s\n", "call", "how", "bytes",
               "ns: quartile", "median", "quartile", "samples");
    for (size_t i = 0; i < GROUPS; i++) {
        group_name = groups[i].name;
        if (is_wanted(argc, argv, first, group_name))
            groups[i].run();
    }
    return 0;
}
