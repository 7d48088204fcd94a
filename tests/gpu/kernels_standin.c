/* kernels_standin.c - see kernels.h: emulated ones, over the stand-in for the runtime.
 *
 * The device behind it has a worker for each stream, and keeps no ledger: programs here
 * see what they would see of a real one. What a kernel needs stays until the last
 * device is closed, since a graph may run it again. */
#include "gpu/kernels.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "device/emulated.h"
#include "fakes/fakes.h"
#include "support_pattern.h"

#define GATE_TURNS 200000 /* of GATE_TURN_NS */
#define GATE_TURN_NS 100000

typedef struct job {
    struct job *next;
    void *ptr;
    size_t bytes;
    uint64_t key; /* or how long, or which gate */
} job;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static job *jobs;       /* guarded by lock */
static kernels_log the_log; /* likewise */
static atomic_uint gates[KERNELS_GATES]; /* 1: open */

/* ---- what kernels do ---- */

static void sleep_ns(uint64_t ns)
{
    struct timespec time = { .tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u) };
    (void)nanosleep(&time, NULL);
}

static void run_write(void *argument, void *const views[])
{
    const job *self = argument;
    pattern_write(views[0], self->bytes, self->key);
}

static void run_check(void *argument, void *const views[])
{
    const job *self = argument;
    size_t wrong = pattern_compare(views[0], self->bytes, self->key);
    if (wrong == self->bytes)
        return;
    pthread_mutex_lock(&lock);
    if (the_log.wrong < KERNELS_TOLD)
        the_log.first[the_log.wrong] = (kernels_damage){
            (uintptr_t)self->ptr, self->bytes, self->key, wrong
        };
    the_log.wrong++;
    pthread_mutex_unlock(&lock);
}

/* A short one only lets others go first: sleeping takes the host much longer. */
static void run_delay(void *argument, void *const views[])
{
    const job *self = argument;
    (void)views;
    if (self->key < GATE_TURN_NS)
        (void)sched_yield();
    else
        sleep_ns(self->key);
}

static void run_gate(void *argument, void *const views[])
{
    const job *self = argument;
    (void)views;
    for (int turn = 0; atomic_load(&gates[self->key]) == 0; turn++) {
        if (turn == GATE_TURNS) {
            pthread_mutex_lock(&lock);
            the_log.given_up++;
            pthread_mutex_unlock(&lock);
            return;
        }
        sleep_ns(GATE_TURN_NS);
    }
}

/* ---- putting them ---- */

static cudaError_t put(cudaStream_t stream, weir_emulated_kernel kernel, job what,
                       weir_emulated_access access)
{
    weir_emulated_range range = { what.ptr, what.bytes, access };
    job *kept = malloc(sizeof *kept);
    if (kept == NULL)
        return cudaErrorMemoryAllocation;
    pthread_mutex_lock(&lock);
    what.next = jobs;
    jobs = kept;
    *kept = what;
    pthread_mutex_unlock(&lock);
    if (stream == NULL)
        stream = WEIR_STREAM_LEGACY;
    weir_status status = weir__emulated_launch(fakes_emulated(0), stream, kernel, kept,
                                               &range, what.bytes != 0);
    return status == WEIR_OK ? cudaSuccess : cudaErrorLaunchFailure;
}

cudaError_t kernels_write(cudaStream_t stream, void *ptr, size_t bytes, uint64_t key)
{
    job what = { .ptr = ptr, .bytes = bytes, .key = key };
    return put(stream, run_write, what, WEIR_EMULATED_WRITE);
}

cudaError_t kernels_check(cudaStream_t stream, void *ptr, size_t bytes, uint64_t key)
{
    job what = { .ptr = ptr, .bytes = bytes, .key = key };
    return put(stream, run_check, what, WEIR_EMULATED_READ);
}

cudaError_t kernels_delay(cudaStream_t stream, uint64_t ns)
{
    return put(stream, run_delay, (job){ .key = ns }, WEIR_EMULATED_READ);
}

cudaError_t kernels_gate(cudaStream_t stream, unsigned gate)
{
    atomic_store(&gates[gate], 0);
    return put(stream, run_gate, (job){ .key = gate }, WEIR_EMULATED_READ);
}

void kernels_open_gate(unsigned gate)
{
    atomic_store(&gates[gate], 1);
}

/* ---- log, begin and end ---- */

cudaError_t kernels_take_log(kernels_log *out)
{
    pthread_mutex_lock(&lock);
    *out = the_log;
    the_log = (kernels_log){ 0 };
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

/* As the first real one was: an H100 in a virtual machine. */
static const fakes_machine like_the_first = { .no_pageable = true };

void kernels_prepare(void)
{
    weir_emulated_options options = WEIR_EMULATED_OPTIONS_INIT;
    options.memory_bytes = (size_t)4 << 30;
    options.no_ledger = true;
    fakes_set_device(0, &options);
    fakes_set_machine(&like_the_first);
}

cudaError_t kernels_begin(void)
{
    return cudaSuccess;
}

/* A call of the runtime's without a context has made one that only this ends. */
void kernels_end(void)
{
    fakes_end_process();
    fakes_reset();
    while (jobs != NULL) {
        job *gone = jobs;
        jobs = gone->next;
        free(gone);
    }
}
