/* cuda_costs.h - how the cost of a call is measured and told.
 *
 *     cost c;
 *     cost_begin(&c, "cudaEventRecord", "idle", 0);
 *     while (cost_goes_on(&c))
 *         COST_TIMED(&c, 32, cudaEventRecord(event, stream));
 *     cost_end(&c);
 *
 * Each turn of the loop is one sample: the mean of so many calls in a row. It ends with
 * enough samples, after long enough, or at the first call that fails; told is then
 * the median and the quartiles, or the failure. */
#ifndef CUDA_COSTS_H
#define CUDA_COSTS_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda_gate.h"

#define COST_SAMPLES_MAX 1001

typedef struct cost {
    const char *call;
    const char *how;   /* what the call met with, or a word for what it is about */
    size_t bytes;      /* that it is about; 0: none */
    double ns[COST_SAMPLES_MAX];
    size_t count;
    double began_ns;
    int error;         /* of the first call that failed; a CUresult is the same */
} cost;

double now_ns(void);

void cost_begin(cost *self, const char *call, const char *how, size_t bytes);
bool cost_goes_on(const cost *self);
void cost_add(cost *self, double ns, int calls);
/* Tells it. False: a call failed. */
bool cost_end(cost *self);

static inline void cost_note(cost *self, int error)
{
    if (error != 0 && self->error == 0)
        self->error = error;
}

/* `calls` calls are one sample. */
#define COST_TIMED(self, calls, call)                                            \
    do {                                                                         \
        double from_ns = now_ns();                                               \
        for (int turn = 0; turn < (calls); turn++)                               \
            cost_note((self), (int)(call));                                      \
        cost_add((self), now_ns() - from_ns, (calls));                           \
    } while (0)

/* Tells that `call` answered `error` where nothing was to be measured yet; or, with
 * CUDA_ERROR_NOT_FOUND, that there is no such function here. */
void cost_tell_refused(const char *call, int error);

/* True for success; else tells. */
bool good(const char *call, int error);
#define GOOD(function, ...) good(#function, (int)function(__VA_ARGS__))
/* An entry point of the driver's. */
#define GOOD_ENTRY(symbol, out) good(symbol, driver_find(symbol, out))

/* The groups of calls: each makes what it needs, and leaves nothing behind. */
void costs_of_events(void);      /* cuda_costs_work.c */
void costs_of_streams(void);
void costs_of_ids(void);
void costs_of_contexts(void);
void costs_of_work(void);
void costs_of_syncs(void);
void costs_of_malloc(void);      /* cuda_costs_memory.c */
void costs_of_pools(void);
void costs_of_pinned(void);
void costs_of_managed(void);
void costs_of_mapping(void);     /* cuda_costs_mapping.c */
void costs_of_ipc(void);
/* The other process of costs_of_ipc; returns what the program answers. */
int ipc_importer_main(const char *handle);

#endif
