/* cuda_facts_pools.c - facts about pools; those that may crash are asked in a process
 * of their own. */
#include "cuda_facts.h"

#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

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

/* ---- ends ----
 *
 * A program that allocates and frees on five streams, as it comes, with waits for what
 * goes from one to another, and then ends its pool; and again with another pool. Two of
 * the streams are the default ones, which outlive the pools. */

extern char **environ;

static const char at_once[] = "at once", empty[] = "empty";

enum { ENDS = 20, ALLOCATIONS = 300, LIVE_MOST = 200, STREAMS = 5 };

typedef struct mixture {
    uint64_t random;
    cudaMemPool_t pool;
    cudaStream_t streams[STREAMS];
    cudaEvent_t event;
    struct {
        void *ptr;
        size_t bytes;
        cudaStream_t stream;
    } live[LIVE_MOST];
    size_t count;
} mixture;

static size_t draw(mixture *self, size_t below)
{
    self->random = self->random * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(self->random >> 33) % below;
}

static void CUDART_CB pause_a_little(void *argument)
{
    const struct timespec little = { .tv_nsec = 100000 };
    (void)argument;
    nanosleep(&little, NULL);
}

static bool use(mixture *self, cudaStream_t stream, void *ptr, size_t bytes)
{
    return (draw(self, 8) != 0
            || GOOD(cudaLaunchHostFunc, stream, pause_a_little, NULL))
           && GOOD(cudaMemsetAsync, ptr, 0, bytes, stream);
}

static bool take(mixture *self)
{
    size_t at = self->count++, most = draw(self, 2) == 0 ? 5 << 20 : 2000;
    self->live[at].bytes = 1 + draw(self, most);
    self->live[at].stream = self->streams[draw(self, STREAMS)];
    return GOOD(cudaMallocFromPoolAsync, &self->live[at].ptr, self->live[at].bytes,
                self->pool, self->live[at].stream)
           && use(self, self->live[at].stream, self->live[at].ptr,
                  self->live[at].bytes);
}

/* Half of them on another stream, behind what they were used for on the first. */
static bool give(mixture *self)
{
    size_t at = draw(self, self->count);
    void *ptr = self->live[at].ptr;
    size_t bytes = self->live[at].bytes;
    cudaStream_t from = self->live[at].stream, to = from;
    self->live[at] = self->live[--self->count];
    if (draw(self, 2) == 0) {
        to = self->streams[draw(self, STREAMS)];
        if (!GOOD(cudaEventRecord, self->event, from)
            || !GOOD(cudaStreamWaitEvent, to, self->event, 0))
            return false;
    }
    return use(self, to, ptr, bytes) && GOOD(cudaFreeAsync, ptr, to);
}

static bool mix(mixture *self)
{
    size_t allocations = 0;
    bool fine = true;
    while (fine && (allocations < ALLOCATIONS || self->count > 0)) {
        bool takes = allocations < ALLOCATIONS && self->count < LIVE_MOST
                     && (self->count == 0 || draw(self, 100) < 53);
        fine = takes ? take(self) : give(self);
        allocations += takes;
    }
    return fine;
}

/* At once; or once it has nothing. */
static bool end(cudaMemPool_t pool, bool at_once_too)
{
    uint64_t none = 0, reserved = 0;
    if (!at_once_too
        && (!GOOD(cudaMemPoolSetAttribute, pool, cudaMemPoolAttrReleaseThreshold, &none)
            || !good("cudaDeviceSynchronize", (int)cudaDeviceSynchronize())
            || !GOOD(cudaMemPoolGetAttribute, pool, cudaMemPoolAttrReservedMemCurrent,
                     &reserved)
            || reserved != 0))
        return false;
    return GOOD(cudaMemPoolDestroy, pool);
}

int ends_pools(const char *how)
{
    static mixture self = { .random = 1 };
    uint64_t all = UINT64_MAX;
    bool fine = GOOD(cudaEventCreateWithFlags, &self.event, cudaEventDisableTiming);

    for (int i = 0; i < ENDS && fine; i++) {
        self.streams[0] = cudaStreamLegacy;
        self.streams[1] = cudaStreamPerThread;
        for (int k = 2; k < STREAMS && fine; k++) {
            self.streams[k] = stream_of(k == 2 ? cudaStreamDefault
                                               : cudaStreamNonBlocking);
            fine = self.streams[k] != NULL;
        }
        fine = fine && pool_make(&self.pool)
               && GOOD(cudaMemPoolSetAttribute, self.pool,
                       cudaMemPoolAttrReleaseThreshold, &all)
               && mix(&self) && end(self.pool, strcmp(how, empty) != 0);
        for (int k = 2; k < STREAMS && fine; k++)
            fine = GOOD(cudaStreamDestroy, self.streams[k]);
        fine = fine && good("cudaDeviceSynchronize", (int)cudaDeviceSynchronize());
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

void fact_empty_end_is_sound(void)
{
    answer_of_ends(empty, false);
}
