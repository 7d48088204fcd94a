/* cuda_facts.h - what the files of cuda_facts share. */
#ifndef CUDA_FACTS_H
#define CUDA_FACTS_H

#include "cuda_gate.h"

#include <semaphore.h>
#include <stdbool.h>

#define PATIENCE_NS 300000000L /* what has not come back by then waits */

/* The answer, once; `seen` is told where it is otherwise. */
void answer(bool as_expected, const char *seen);
/* Whether the call answered success; else that is told. */
bool good(const char *call, int error);
#define GOOD(function, ...) good(#function, (int)function(__VA_ARGS__))
cudaStream_t stream_of(unsigned flags);

/* A call on a thread of its own. */
typedef struct aside {
    int (*run)(void *argument);
    void *argument;
    int error;
    sem_t is_back;
} aside;
void *aside_thread(void *argument);

/* ---- cuda_facts_capture.c ---- */

void fact_legacy_is_not_asked_in_capture(void);
void fact_query_spoils_global_capture(void);
void fact_relaxed_query_spares_capture(void);
void fact_relaxed_malloc_spares_capture(void);
void fact_name_spoils_capture(void);
void fact_capturing_spares_capture(void);
void fact_all_is_behind_own_streams(void);
void fact_all_is_behind_ended_threads(void);
void fact_all_spoils_capture(void);

/* ---- cuda_facts_pools.c ---- */

void fact_pool_returns_at_sync(void);
void fact_pool_reuses_on_one_stream(void);
void fact_early_end_crashes(void);
void fact_empty_end_is_sound(void);

/* The program itself, in a process that may crash. */
#define ENDS_POOLS "--ends-pools"
int ends_pools(const char *how);

#endif
