/* cuda_costs_mapping.c - the cost of virtual memory management, step by step, and of
 * memory shared between processes. */
#include "cuda_costs.h"

#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

extern char **environ;

/* ---- virtual memory ---- */

#define STEPS(X)                                                                 \
    X(reserve, "cuMemAddressReserve") X(create, "cuMemCreate") X(map, "cuMemMap") \
    X(access, "cuMemSetAccess") X(unmap, "cuMemUnmap") X(release, "cuMemRelease") \
    X(address_free, "cuMemAddressFree")

typedef struct driver {
    CUresult (*reserve)(CUdeviceptr *out, size_t bytes, size_t alignment,
                        CUdeviceptr hint, unsigned long long flags);
    CUresult (*create)(CUmemGenericAllocationHandle *out, size_t bytes,
                       const CUmemAllocationProp *what, unsigned long long flags);
    CUresult (*map)(CUdeviceptr ptr, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags);
    CUresult (*access)(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *what,
                       size_t count);
    CUresult (*unmap)(CUdeviceptr ptr, size_t bytes);
    CUresult (*release)(CUmemGenericAllocationHandle handle);
    CUresult (*address_free)(CUdeviceptr ptr, size_t bytes);
} driver;

typedef struct steps {
#define X(name, symbol) cost name;
    STEPS(X)
#undef X
} steps;

static steps the; /* too large for a stack */

/* Once through all steps; those that come after a failure are left out, but what has
 * been made is unmade. */
static void mapping_go(const driver *cuda, size_t bytes)
{
    const CUmemLocation here = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 };
    const CUmemAllocationProp what = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = here };
    const CUmemAccessDesc all = { .location = here,
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    CUmemGenericAllocationHandle handle;
    CUdeviceptr ptr;

    COST_TIMED(&the.reserve, 1, cuda->reserve(&ptr, bytes, 0, 0, 0));
    if (the.reserve.error != 0)
        return;
    COST_TIMED(&the.create, 1, cuda->create(&handle, bytes, &what, 0));
    if (the.create.error == 0) {
        COST_TIMED(&the.map, 1, cuda->map(ptr, bytes, 0, handle, 0));
        if (the.map.error == 0) {
            COST_TIMED(&the.access, 1, cuda->access(ptr, bytes, &all, 1));
            COST_TIMED(&the.unmap, 1, cuda->unmap(ptr, bytes));
        }
        COST_TIMED(&the.release, 1, cuda->release(handle));
    }
    COST_TIMED(&the.address_free, 1, cuda->address_free(ptr, bytes));
}

static bool mapping_cost(const driver *cuda, size_t bytes)
{
    bool goes_on = true, all = true;

#define X(name, symbol) cost_begin(&the.name, symbol, "", bytes);
    STEPS(X)
#undef X
    while (goes_on && cost_goes_on(&the.reserve)) {
        mapping_go(cuda, bytes);
#define X(name, symbol) goes_on = goes_on && the.name.error == 0;
        STEPS(X)
#undef X
    }
#define X(name, symbol)                                                          \
    if (the.name.count > 0)                                                      \
        all = cost_end(&the.name) && all;
    STEPS(X)
#undef X
    return all;
}

void costs_of_mapping(void)
{
    driver cuda;

#define X(name, symbol)                                                          \
    if (!GOOD_ENTRY(symbol, &cuda.name))                                         \
        return;
    STEPS(X)
#undef X
    for (size_t bytes = 2 * MIB; bytes <= 2048 * MIB; bytes *= 4) {
        if (!mapping_cost(&cuda, bytes))
            return;
    }
}

/* ---- between processes ---- */

#define HANDLE_WORDS (2 * sizeof(cudaIpcMemHandle_t) + 1)

static void handle_write(const cudaIpcMemHandle_t *handle, char *out)
{
    unsigned char bytes[sizeof *handle];
    memcpy(bytes, handle, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

static bool handle_read(const char *text, cudaIpcMemHandle_t *out)
{
    unsigned char bytes[sizeof *out];
    if (strlen(text) != HANDLE_WORDS - 1)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++) {
        unsigned byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            return false;
        bytes[i] = (unsigned char)byte;
    }
    memcpy(out, bytes, sizeof *out);
    return true;
}

/* Waits for the importer, which has the handle on its command line. */
static void importer_run(char *handle)
{
    char program[] = "/proc/self/exe", option[] = "--importer";
    char *arguments[] = { program, option, handle, NULL };
    pid_t child;
    int answer = 0;

    fflush(stdout);
    int error = posix_spawn(&child, program, NULL, NULL, arguments, environ);
    if (error != 0 || waitpid(child, &answer, 0) != child || answer != 0)
        fprintf(stderr, "cuda_costs: the importing process failed\n");
}

void costs_of_ipc(void)
{
    static cost c;
    cudaIpcMemHandle_t handle;
    char words[HANDLE_WORDS];
    void *ptr;

    if (!GOOD(cudaMalloc, &ptr, 4 * MIB))
        return;
    cost_begin(&c, "cudaIpcGetMemHandle", "", 4 * MIB);
    while (cost_goes_on(&c))
        COST_TIMED(&c, 1, cudaIpcGetMemHandle(&handle, ptr));
    if (cost_end(&c)) {
        handle_write(&handle, words);
        importer_run(words);
    }
    (void)GOOD(cudaFree, ptr);
}

int ipc_importer_main(const char *text)
{
    static cost opens, closes;
    cudaIpcMemHandle_t handle;
    void *ptr;

    if (!handle_read(text, &handle)) {
        fprintf(stderr, "cuda_costs: this is no handle: %s\n", text);
        return 2;
    }
    if (!GOOD(cudaSetDevice, 0) || !GOOD(cudaFree, NULL))
        return 1;
    cost_begin(&opens, "cudaIpcOpenMemHandle", "", 4 * MIB);
    cost_begin(&closes, "cudaIpcCloseMemHandle", "", 4 * MIB);
    while (cost_goes_on(&opens) && cost_goes_on(&closes)) {
        COST_TIMED(&opens, 1, cudaIpcOpenMemHandle(&ptr, handle,
                                                   cudaIpcMemLazyEnablePeerAccess));
        if (opens.error == 0)
            COST_TIMED(&closes, 1, cudaIpcCloseMemHandle(ptr));
    }
    if (cost_end(&opens))
        (void)cost_end(&closes);
    return 0;
}
