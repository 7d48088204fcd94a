/* kernels.cu - see kernels.h: the real ones. */
#include "kernels.h"

#include <stdlib.h>

#define GATE_SECONDS 20
#define THREADS 256u
#define BLOCKS_MAX 2048u

static __device__ kernels_log the_log;
static volatile unsigned *gates; /* in pinned memory: 1 is open */

/* ---- contents ---- */

static __device__ unsigned long long word_of(uint64_t key, size_t offset)
{
    return (key ^ 0x5bd1e9955bd1e995ull) + offset * 0x9e3779b97f4a7c15ull;
}

/* Whether the word at `offset` can be touched at once. */
static __device__ bool is_whole(const unsigned char *base, size_t bytes, size_t offset)
{
    return (uintptr_t)(base + offset) % 8 == 0 && bytes - offset >= 8;
}

static __global__ void write_all(unsigned char *base, size_t bytes, uint64_t key)
{
    size_t step = (size_t)gridDim.x * blockDim.x * 8;
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    for (; at < bytes; at += step) {
        unsigned long long word = word_of(key, at);
        if (is_whole(base, bytes, at)) {
            *(unsigned long long *)(base + at) = word;
            continue;
        }
        for (size_t i = 0; i < 8 && at + i < bytes; i++)
            base[at + i] = (unsigned char)(word >> (8 * i));
    }
}

static __device__ bool word_is(const unsigned char *base, size_t bytes, size_t at,
                               unsigned long long word)
{
    if (is_whole(base, bytes, at))
        return *(const volatile unsigned long long *)(base + at) == word;
    for (size_t i = 0; i < 8 && at + i < bytes; i++) {
        if (base[at + i] != (unsigned char)(word >> (8 * i)))
            return false;
    }
    return true;
}

static __global__ void check_all(const unsigned char *base, size_t bytes, uint64_t key)
{
    size_t step = (size_t)gridDim.x * blockDim.x * 8;
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    for (; at < bytes; at += step) {
        if (word_is(base, bytes, at, word_of(key, at)))
            continue;
        unsigned long long index = atomicAdd(&the_log.wrong, 1ull);
        if (index < KERNELS_TOLD) {
            kernels_damage what = { (uint64_t)(uintptr_t)base, bytes, key, at };
            the_log.first[index] = what;
        }
    }
}

static unsigned blocks_for(size_t bytes)
{
    size_t blocks = (bytes + 8 * THREADS - 1) / (8 * THREADS);
    return blocks < BLOCKS_MAX ? (unsigned)blocks : BLOCKS_MAX;
}

extern "C" cudaError_t kernels_write(cudaStream_t stream, void *ptr, size_t bytes,
                                     uint64_t key)
{
    write_all<<<blocks_for(bytes), THREADS, 0, stream>>>((unsigned char *)ptr, bytes,
                                                         key);
    return cudaGetLastError();
}

extern "C" cudaError_t kernels_check(cudaStream_t stream, void *ptr, size_t bytes,
                                     uint64_t key)
{
    check_all<<<blocks_for(bytes), THREADS, 0, stream>>>((unsigned char *)ptr, bytes,
                                                         key);
    return cudaGetLastError();
}

/* ---- time and gates ---- */

static __device__ unsigned long long now_ns(void)
{
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

static __global__ void wait_ns(unsigned long long ns)
{
    unsigned long long begin = now_ns();
    while (now_ns() - begin < ns)
        __nanosleep(1000);
}

static __global__ void wait_gate(const volatile unsigned *gate)
{
    unsigned long long begin = now_ns();
    while (*gate == 0) {
        if (now_ns() - begin > GATE_SECONDS * 1000000000ull) {
            atomicAdd(&the_log.given_up, 1ull);
            return;
        }
        __nanosleep(1000);
    }
}

extern "C" cudaError_t kernels_delay(cudaStream_t stream, uint64_t ns)
{
    wait_ns<<<1, 1, 0, stream>>>(ns);
    return cudaGetLastError();
}

extern "C" cudaError_t kernels_gate(cudaStream_t stream, unsigned gate)
{
    gates[gate] = 0;
    wait_gate<<<1, 1, 0, stream>>>(&gates[gate]);
    return cudaGetLastError();
}

extern "C" void kernels_open_gate(unsigned gate)
{
    gates[gate] = 1;
}

/* ---- the log ---- */

extern "C" cudaError_t kernels_take_log(kernels_log *out)
{
    static const kernels_log none = {};
    cudaError_t error = cudaDeviceSynchronize();
    if (error == cudaSuccess)
        error = cudaMemcpyFromSymbol(out, the_log, sizeof *out);
    if (error == cudaSuccess)
        error = cudaMemcpyToSymbol(the_log, &none, sizeof none);
    return error;
}

/* ---- begin and end ---- */

/* More than eight streams would share queues otherwise, and one that is stalled would
 * hold up others. */
extern "C" void kernels_prepare(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
}

/* Each kernel, and what the driver's own fills and copies need. */
static cudaError_t run_each(unsigned char *ptr, size_t bytes)
{
    kernels_log log;
    kernels_open_gate(0);
    wait_gate<<<1, 1>>>(&gates[0]);
    wait_ns<<<1, 1>>>(1);
    write_all<<<1, THREADS>>>(ptr, bytes, 1);
    check_all<<<1, THREADS>>>(ptr, bytes, 1);
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess)
        error = cudaMemsetAsync(ptr, 0, bytes / 2, 0);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(ptr, 0, bytes / 2 - 3, 0);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(ptr, ptr + bytes / 2, bytes / 2, cudaMemcpyDefault, 0);
    return error == cudaSuccess ? kernels_take_log(&log) : error;
}

/* The first managed memory that is touched costs the device 126 MiB, which it keeps:
 * support_gpu.c says why. */
static cudaError_t touch_managed(size_t bytes)
{
    void *memory = NULL;
    cudaError_t error = cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal);
    if (error != cudaSuccess) {
        (void)cudaGetLastError(); /* there is none */
        return cudaSuccess;
    }
    error = run_each((unsigned char *)memory, bytes);
    cudaError_t end = cudaFree(memory);
    return error != cudaSuccess ? error : end;
}

extern "C" cudaError_t kernels_begin(void)
{
    enum { BYTES = 1 << 20 };
    static bool is_done;
    void *memory = NULL, *host = NULL;
    if (is_done)
        return cudaSuccess;
    cudaError_t error = cudaHostAlloc(&host, KERNELS_GATES * sizeof *gates,
                                      cudaHostAllocMapped | cudaHostAllocPortable);
    if (error != cudaSuccess)
        return error;
    gates = (volatile unsigned *)host;
    error = cudaMalloc(&memory, BYTES);
    if (error == cudaSuccess)
        error = run_each((unsigned char *)memory, BYTES);
    if (error == cudaSuccess)
        error = touch_managed(BYTES);
    cudaError_t end = cudaFree(memory);
    is_done = error == cudaSuccess && end == cudaSuccess;
    return error != cudaSuccess ? error : end;
}

extern "C" void kernels_end(void)
{
}
