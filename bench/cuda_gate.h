/* cuda_gate.h - a stream that stands still for as long as one wants, and the driver's
 * entry points. */
#ifndef CUDA_GATE_H
#define CUDA_GATE_H

#include <cuda.h>
#include <cuda_runtime_api.h>

/* A host function that waits until the gate is opened: what comes after it on its
 * stream waits with it. */
typedef struct gate gate;

/* Answers a cudaError_t. */
int gate_put(cudaStream_t stream, gate **out);
/* Lets it through; null: nothing. Whoever has put it opens it, once. */
void gate_open(gate *self);

/* Finds an entry point of the driver's; `out` is where the pointer to it goes. Answers
 * a CUresult: CUDA_ERROR_NOT_FOUND where there is none of that name. */
int driver_find(const char *symbol, void *out);
/* The same, as it is since that version of CUDA. */
int driver_find_of(const char *symbol, unsigned version, void *out);

#endif
