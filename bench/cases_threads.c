/* cases_threads.c - loops of several threads that meet: on a stream, or at a block. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "allocator.h"
#include "cases.h"

#define BATCH ((size_t)4096)

static bool batch_prepare(bench_run *self)
{
    self->batch = BATCH;
    return true;
}

/* ---- lifo on one stream ---- */

static void *nothing_open(bench_run *self, unsigned thread)
{
    (void)thread;
    return self;
}

static void nothing_close(bench_run *self, void *opened)
{
    (void)self;
    (void)opened;
}

static bool shared_run(bench_run *self, void *opened)
{
    size_t bytes = self->what->bytes;

    (void)opened;
    for (size_t i = 0; i < self->batch; i++) {
        void *ptr = allocator_allocate(bytes, 1);
        if (ptr == NULL)
            return false;
        allocator_deallocate(ptr, bytes, 1);
    }
    return true;
}

const bench_kind kind_shared_stream = { "pair", batch_prepare, nothing_open, shared_run,
                                        nothing_close };

/* ---- from thread to thread ---- */

/* A ring from thread 0 to thread 1. Each side keeps to its own line, and looks at the
 * other's only when it has to. */
#define RING 256

static struct {
    _Alignas(128) atomic_size_t put;
    size_t taken_seen;
    _Alignas(128) atomic_size_t taken;
    size_t put_seen;
    _Alignas(128) void *blocks[RING];
    atomic_bool failed;
} ring;

static bool ring_put(void *block)
{
    size_t at = atomic_load_explicit(&ring.put, memory_order_relaxed);

    while (at - ring.taken_seen == RING) {
        ring.taken_seen = atomic_load_explicit(&ring.taken, memory_order_acquire);
        if (at - ring.taken_seen < RING)
            break;
        if (atomic_load_explicit(&ring.failed, memory_order_relaxed))
            return false;
        sched_yield();
    }
    ring.blocks[at % RING] = block;
    atomic_store_explicit(&ring.put, at + 1, memory_order_release);
    return true;
}

static void *ring_take(void)
{
    size_t at = atomic_load_explicit(&ring.taken, memory_order_relaxed);

    while (ring.put_seen == at) {
        ring.put_seen = atomic_load_explicit(&ring.put, memory_order_acquire);
        if (ring.put_seen != at)
            break;
        if (atomic_load_explicit(&ring.failed, memory_order_relaxed))
            return NULL;
        sched_yield();
    }
    void *block = ring.blocks[at % RING];
    atomic_store_explicit(&ring.taken, at + 1, memory_order_release);
    return block;
}

/* Who frees keeps what came last, and frees the oldest of that. */
typedef struct side {
    bool allocates;
    size_t at;
    void *kept[RING];
} side;

static void *other_open(bench_run *self, unsigned thread)
{
    side *it = calloc(1, sizeof *it);

    if (self->threads != 2 || self->what->depth > RING || it == NULL) {
        free(it);
        return NULL;
    }
    it->allocates = thread == 0;
    return it;
}

/* The block that is to be freed for one that came; null: none yet. */
static void *exchange(side *it, void *block, size_t depth)
{
    if (depth == 0)
        return block;
    void *oldest = it->kept[it->at];
    it->kept[it->at] = block;
    it->at = it->at + 1 == depth ? 0 : it->at + 1;
    return oldest;
}

static bool other_run(bench_run *self, void *opened)
{
    side *it = opened;
    const size_t bytes = self->what->bytes, depth = self->what->depth;
    bool good = true;

    for (size_t i = 0; i < self->batch && good; i++) {
        void *block = it->allocates ? allocator_allocate(bytes, 1) : ring_take();
        good = block != NULL;
        if (good && it->allocates)
            good = ring_put(block);
        else if (good && (block = exchange(it, block, depth)) != NULL)
            allocator_deallocate(block, bytes, 1);
    }
    if (!good)
        atomic_store_explicit(&ring.failed, true, memory_order_relaxed);
    return good;
}

static void other_close(bench_run *self, void *opened)
{
    side *it = opened;

    for (size_t i = 0; i < RING; i++) {
        if (it->kept[i] != NULL)
            allocator_deallocate(it->kept[i], self->what->bytes, 1);
    }
    free(it);
}

const bench_kind kind_other_thread = { "pair", batch_prepare, other_open, other_run,
                                       other_close };
