/* gate.c - see gate.h. */
#include "gate.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sync.h"

/* A visit takes some hundred nanoseconds, unless its owner has lost its processor. */
#define LOOKS_WITHOUT_PAUSE 100

bool weir__gate_fences;

static bool membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

static void register_process(void)
{
    weir__gate_fences = !membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

static pthread_once_t registered = PTHREAD_ONCE_INIT;

#ifndef WEIR__GATE_MODEL
static bool fence_all_threads(void)
{
    return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

/* Until the owner leaves, if it needs this thread's turn for that; or a short while, in
 * which others have the turn whom it may be waiting for. */
static void pause_after(const weir__gate *gate, uint32_t looks)
{
    bool has_turn = weir__thread_self()->baton != NULL;
    if (has_turn && weir__baton_block(gate, true, gate->owner))
        return;
    if (looks >= LOOKS_WITHOUT_PAUSE && !weir__baton_give_way())
        (void)sched_yield();
}

bool weir__gate_is_mine(const weir__gate *gate)
{
    return gate->owner == weir__thread_self()->number;
}
#endif

void weir__gate_prepare(void)
{
    (void)pthread_once(&registered, register_process);
}

void weir__gate_init(weir__gate *gate)
{
    weir__gate_prepare();
    atomic_init(&gate->busy, 0);
    atomic_init(&gate->closed, 0);
    gate->owner = weir__thread_self()->number;
}

void weir__gate_tell(const weir__gate *gate)
{
    weir__baton_wake(gate);
}

void weir__gate_await(const weir__gate *gate)
{
    bool has_turn = weir__thread_self()->baton != NULL;
    if (!has_turn || !weir__baton_block(gate, false, 0))
        (void)sched_yield();
}

void weir__gate_close_begin(weir__gate *gate)
{
    WEIR__GATE_STORE(&gate->closed, 1, memory_order_seq_cst);
}

void weir__gate_barrier(void)
{
    if (weir__gate_fences)
        return;
    bool done = fence_all_threads();
    WEIR_CHECK(done, "membarrier is refused to a process that has registered for it");
}

bool weir__gate_fence_all(void)
{
    const int before = errno;
    weir__gate_prepare();
    const bool done = !weir__gate_fences && fence_all_threads();
    errno = before;
    return done;
}

void weir__gate_close_wait(weir__gate *gate)
{
    /* Sequentially consistent where owners fence, which includes that it acquires. */
    for (uint32_t looks = 0;
         WEIR__GATE_LOAD(&gate->busy, memory_order_seq_cst) != 0; looks++)
        pause_after(gate, looks);
}

void weir__gate_open(weir__gate *gate)
{
    /* Release: what the flusher did comes before what is done inside. */
    WEIR__GATE_STORE(&gate->closed, 0, memory_order_release);
    weir__gate_tell(gate);
}

bool weir__gate_is_closed(const weir__gate *gate)
{
    return atomic_load_explicit(&gate->closed, memory_order_relaxed) != 0;
}

#ifdef WEIR_TESTING
void weir__gate_force_fences(bool force)
{
    weir__gate_prepare();
    if (force)
        weir__gate_fences = true;
    else
        register_process();
}
#endif
