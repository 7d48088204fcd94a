/* cuda_facts_pools.c - facts about pools; those that may crash are asked in a process
 * of their own. */
#include "cuda_facts.h"

#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static bool pool_make(cudaMemPool_t *out)
{
    struct cudaMemPoolProps properties;

    memset(&properties, 0, sizeof properties);
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    return GOOD(cudaMemPoolCreate, out, &properties);
}

void fact_pool_returns_at_sync(void)
{
    cudaMemPool_t pool;
    cudaStream_t stream = stream_of(cudaStreamNonBlocking);
    uint64_t before = 0, after = 0;
    void *ptr;

    if (stream == NULL || !pool_make(&pool)
        || !GOOD(cudaMallocFromPoolAsync, &ptr, 64 << 20, pool, stream)
        || !GOOD(cudaMemPoolGetAttribute, pool, cudaMemPoolAttrReservedMemCurrent,
                 &before)
        || !GOOD(cudaFreeAsync, ptr, stream) || !GOOD(cudaStreamSynchronize, stream)
        || !GOOD(cudaMemPoolGetAttribute, pool, cudaMemPoolAttrReservedMemCurrent,
                 &after))
        return;
    answer(before > 0 && after == 0, "the pool has it still");
}

void fact_pool_reuses_on_one_stream(void)
{
    cudaStream_t stream = stream_of(cudaStreamNonBlocking);
    void *ptr, *again;
    gate *closed;

    if (stream == NULL || !GOOD(gate_put, stream, &closed))
        return;
    bool made = GOOD(cudaMallocAsync, &ptr, 4 << 20, stream)
                && GOOD(cudaFreeAsync, ptr, stream)
                && GOOD(cudaMallocAsync, &again, 4 << 20, stream)
                && GOOD(cudaFreeAsync, again, stream);
    gate_open(closed);
    if (made && GOOD(cudaStreamSynchronize, stream))
        answer(ptr == again, "it took other memory");
}

/* ---- ends ---- */

extern char **environ;

static const char at_once[] = "at once", on_others[] = "on others",
                  unseen[] = "unseen", empty[] = "empty";

enum { ENDS = 12, BLOCKS = 60, MOST_BYTES = 5 << 20 };

/* Draws blocks on both streams, uses them, and frees them: behind gates, if there are
 * any. */
static bool use(cudaMemPool_t pool, const cudaStream_t streams[2], gate *gates[2],
                uint64_t *random)
{
    void *blocks[BLOCKS];
    bool fine = true;

    for (int i = 0; i < BLOCKS && fine; i++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        size_t bytes = 1 + (size_t)(*random >> 33) % MOST_BYTES;
        fine = GOOD(cudaMallocFromPoolAsync, &blocks[i], bytes, pool, streams[i % 2])
               && GOOD(cudaMemsetAsync, blocks[i], 0, bytes, streams[i % 2]);
    }
    for (int i = 0; i < 2 && fine; i++)
        fine = GOOD(gate_put, streams[i], &gates[i]);
    for (int i = 0; i < BLOCKS && fine; i++)
        fine = GOOD(cudaFreeAsync, blocks[(i * 7) % BLOCKS], streams[(i * 7) % 2]);
    return fine;
}

/* Until it is done, which is no wait. */
static bool ask_until_done(cudaStream_t stream)
{
    cudaEvent_t event;
    cudaError_t error = cudaErrorNotReady;

    if (!GOOD(cudaEventCreateWithFlags, &event, cudaEventDisableTiming)
        || !GOOD(cudaEventRecord, event, stream))
        return false;
    while (error == cudaErrorNotReady)
        error = cudaEventQuery(event);
    (void)cudaGetLastError();
    return good("cudaEventQuery", (int)error) && GOOD(cudaEventDestroy, event);
}

static bool end(cudaMemPool_t pool, const cudaStream_t streams[2], gate *gates[2],
                const char *how)
{
    bool early = strcmp(how, unseen) != 0 && strcmp(how, empty) != 0;
    bool fine = !early || GOOD(cudaMemPoolDestroy, pool);
    uint64_t none = 0, reserved = 0;

    gate_open(gates[0]);
    gate_open(gates[1]);
    if (strcmp(how, unseen) == 0)
        fine = ask_until_done(streams[0]) && ask_until_done(streams[1])
               && GOOD(cudaMemPoolDestroy, pool);
    if (strcmp(how, empty) == 0)
        fine = GOOD(cudaMemPoolSetAttribute, pool, cudaMemPoolAttrReleaseThreshold,
                    &none)
               && GOOD(cudaStreamSynchronize, streams[0])
               && GOOD(cudaStreamSynchronize, streams[1])
               && GOOD(cudaMemPoolGetAttribute, pool, cudaMemPoolAttrReservedMemCurrent,
                       &reserved)
               && reserved == 0 && GOOD(cudaMemPoolDestroy, pool);
    return fine && good("cudaDeviceSynchronize", (int)cudaDeviceSynchronize());
}

int ends_pools(const char *how)
{
    cudaStream_t streams[2] = { cudaStreamLegacy, cudaStreamPerThread };
    uint64_t all = UINT64_MAX, random = 1;
    bool fine = true;

    for (int i = 0; i < 2 && strcmp(how, on_others) == 0; i++) {
        streams[i] = stream_of(cudaStreamNonBlocking);
        fine = fine && streams[i] != NULL;
    }
    for (int i = 0; i < ENDS && fine; i++) {
        gate *gates[2] = { NULL, NULL };
        cudaMemPool_t pool;
        fine = pool_make(&pool)
               && GOOD(cudaMemPoolSetAttribute, pool, cudaMemPoolAttrReleaseThreshold,
                       &all)
               && use(pool, streams, gates, &random) && end(pool, streams, gates, how);
    }
    return fine ? 0 : 1;
}

static void answer_of_ends(const char *how, bool crashes)
{
    char *const argv[] = { (char[]){ "cuda_facts" }, (char[]){ ENDS_POOLS },
                           (char *)(uintptr_t)how, NULL };
    pid_t child;
    int status;

    if (!GOOD(posix_spawn, &child, "/proc/self/exe", NULL, NULL, argv, environ)
        || waitpid(child, &status, 0) != child)
        return;
    if (WIFSIGNALED(status))
        answer(crashes, "it crashed");
    else if (WEXITSTATUS(status) == 0)
        answer(!crashes, "it went well");
}

void fact_early_end_crashes(void)
{
    answer_of_ends(at_once, true);
}

void fact_early_end_crashes_on_others(void)
{
    answer_of_ends(on_others, true);
}

void fact_unseen_end_crashes(void)
{
    answer_of_ends(unseen, true);
}

void fact_empty_end_is_sound(void)
{
    answer_of_ends(empty, false);
}
