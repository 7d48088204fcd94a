/* cuda_gate.c - gates on streams, and the driver's entry points. */
#include "cuda_gate.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER_VERSION 12000 /* of which entry points are asked for */

/* Two hold it: who opens it, and the host function; the last one frees it. */
struct gate {
    sem_t is_open;
    atomic_int holders;
};

static void gate_drop(gate *self)
{
    if (atomic_fetch_sub(&self->holders, 1) > 1)
        return;
    (void)sem_destroy(&self->is_open);
    free(self);
}

static void CUDART_CB gate_wait(void *argument)
{
    gate *self = argument;
    while (sem_wait(&self->is_open) != 0 && errno == EINTR)
        ;
    gate_drop(self);
}

int gate_put(cudaStream_t stream, gate **out)
{
    *out = NULL;
    gate *self = malloc(sizeof *self);
    if (self == NULL)
        return (int)cudaErrorMemoryAllocation;
    (void)sem_init(&self->is_open, 0, 0);
    atomic_init(&self->holders, 2);
    int error = (int)cudaLaunchHostFunc(stream, gate_wait, self);
    if (error != 0) {
        gate_drop(self);
        gate_drop(self);
        return error;
    }
    *out = self;
    return 0;
}

void gate_open(gate *self)
{
    if (self == NULL)
        return;
    (void)sem_post(&self->is_open);
    gate_drop(self);
}

int driver_find(const char *symbol, void *out)
{
    return driver_find_of(symbol, DRIVER_VERSION, out);
}

int driver_find_of(const char *symbol, unsigned version, void *out)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *entry = NULL;
#if CUDART_VERSION >= 12050
    int error = (int)cudaGetDriverEntryPointByVersion(symbol, &entry, version,
                                                      cudaEnableDefault, &found);
#else
    (void)version;
    int error = (int)cudaGetDriverEntryPoint(symbol, &entry, cudaEnableDefault, &found);
#endif
    if (error == 0 && (found != cudaDriverEntryPointSuccess || entry == NULL))
        error = CUDA_ERROR_NOT_FOUND;
    if (error == 0)
        memcpy(out, &entry, sizeof entry); /* a function, which C forbids */
    return error;
}
