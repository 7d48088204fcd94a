/* allocator_cuda.c - what CUDA itself has: cudaMalloc; or, with --spec async,
 * cudaMallocAsync from the device's default pool, which keeps what it has drawn. */
#include "allocator.h"

#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

const char *const allocator_name = "cuda";

static cudaStream_t streams[STREAMS_MAX + 1]; /* the first is the default stream */
static unsigned stream_count;
static bool is_async;

const char *allocator_description(void)
{
    return is_async ? "cudaMallocAsync, the default pool, keeping everything"
                    : "cudaMalloc";
}

bool allocator_takes(const char *option)
{
    return strcmp(option, "--spec") == 0;
}

static bool good(const char *call, cudaError_t error)
{
    if (error == cudaSuccess)
        return true;
    fprintf(stderr, "%s: %s\n", call, cudaGetErrorName(error));
    return false;
}

/* By default it gives all back whenever the host waits. */
static bool keep_everything(void)
{
    cudaMemPool_t pool;
    uint64_t everything = UINT64_MAX;

    return good("cudaDeviceGetDefaultMemPool", cudaDeviceGetDefaultMemPool(&pool, 0)) &&
           good("cudaMemPoolSetAttribute",
                cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold,
                                        &everything));
}

bool allocator_open(const allocator_options *options)
{
    is_async = options->spec != NULL && strcmp(options->spec, "async") == 0;
    if (options->spec != NULL && !is_async) {
        fprintf(stderr, "%s: --spec is \"async\" or is left out, not \"%s\"\n",
                allocator_name, options->spec);
        return false;
    }
    if (is_async && !keep_everything())
        return false;
    while (stream_count < options->streams) {
        cudaError_t error = cudaStreamCreateWithFlags(&streams[stream_count + 1],
                                                      cudaStreamNonBlocking);
        if (!good("cudaStreamCreateWithFlags", error))
            return false;
        stream_count++;
    }
    return true;
}

void allocator_close(void)
{
    for (; stream_count > 0; stream_count--)
        good("cudaStreamDestroy", cudaStreamDestroy(streams[stream_count]));
}

void *allocator_allocate(size_t bytes, unsigned stream)
{
    void *ptr = NULL;
    cudaError_t error = is_async ? cudaMallocAsync(&ptr, bytes, streams[stream])
                                 : cudaMalloc(&ptr, bytes);
    return good(allocator_name, error) ? ptr : NULL;
}

void allocator_deallocate(void *ptr, size_t bytes, unsigned stream)
{
    (void)bytes;
    if (is_async)
        good("cudaFreeAsync", cudaFreeAsync(ptr, streams[stream]));
    else
        good("cudaFree", cudaFree(ptr));
}

allocator_calls allocator_get_calls(void)
{
    return (allocator_calls){ 0 };
}
