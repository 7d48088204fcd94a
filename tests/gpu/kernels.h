/* kernels.h - what the tests put on the streams of a CUDA device: kernels (kernels.cu),
 * or over the stand-in for the runtime emulated ones (kernels_standin.c).
 *
 * All of them are put on the calling thread's device, which is the first. */
#ifndef WEIR_TESTS_GPU_KERNELS_H
#define WEIR_TESTS_GPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KERNELS_GATES 64
#define KERNELS_TOLD  8

typedef struct kernels_damage {
    uint64_t address; /* of the block */
    uint64_t bytes;
    uint64_t key;     /* that it should have */
    uint64_t offset;  /* of the word */
} kernels_damage;

/* What kernels have seen since the last kernels_take_log. */
typedef struct kernels_log {
    unsigned long long wrong;    /* words, or at least one for each block */
    unsigned long long given_up; /* gates that nobody opened in GATE_SECONDS */
    kernels_damage first[KERNELS_TOLD];
} kernels_log;

/* Before Weir opens the device: sets in the environment what the driver reads there,
 * and what stands behind the stand-in. */
void kernels_prepare(void);
/* After that: everything is loaded now, because loading may wait for kernels
 * that run, and they for a gate. Does it once in a process. */
cudaError_t kernels_begin(void);
/* The last device is closed. */
void kernels_end(void);

/* Reads the log and begins a new one; to be called when all kernels have run. */
cudaError_t kernels_take_log(kernels_log *out);

/* Writes the pattern of `key`, or logs where it is not. */
cudaError_t kernels_write(cudaStream_t stream, void *ptr, size_t bytes, uint64_t key);
cudaError_t kernels_check(cudaStream_t stream, void *ptr, size_t bytes, uint64_t key);
/* Does nothing for so long. */
cudaError_t kernels_delay(cudaStream_t stream, uint64_t ns);

/* A closed gate on `stream`, of KERNELS_GATES: what comes later waits. One that is left
 * closed gives up after a while, and says so in the log. */
cudaError_t kernels_gate(cudaStream_t stream, unsigned gate);
void kernels_open_gate(unsigned gate);

#ifdef __cplusplus
}
#endif
#endif
