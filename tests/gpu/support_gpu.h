/* support_gpu.h - beside support.h, for the programs that only run on CUDA devices. */
#ifndef WEIR_TESTS_GPU_SUPPORT_GPU_H
#define WEIR_TESTS_GPU_SUPPORT_GPU_H

#include <cuda_runtime_api.h>

#include "gpu/kernels.h"
#include "support.h"

#define must_cuda(call)                                                          \
    support_must_succeed((call), #call, __FILE__, __LINE__)
void support_must_succeed(cudaError_t error, const char *call, const char *file,
                          int line);

/* Puts a closed gate on `stream`. Any that a failed test has left closed is opened when
 * the next test opens its device. */
unsigned put_gate(weir_stream stream);
void open_gate(unsigned gate);

/* Makes the host wait for work on `aside`, a stream that does nothing else, for so long
 * that whatever else could run by now has. */
void let_others_run(weir_stream aside);

/* Claims that what is on `stream` waits, though all that can run has had the time. */
void must_be_waiting(weir_device *device, weir_stream stream, weir_stream aside);

/* Unless it is called again within so many seconds (0: that is off), all threads tell
 * where they are, and the program ends: a real device may not come back. */
void support_watch(unsigned seconds);

#endif
