/* sync.h - locks, and the baton that host threads of a stepped run pass on.
 *
 * Every lock of the library is one of these, so that a stepped run sees it: a thread in
 * such a run may lose its turn wherever it takes a lock, and never blocks in the
 * operating system while it has the turn.
 *
 * Ranks, lowest is taken first; a thread never takes a lock of a rank that it holds
 * or has passed (checked in test builds), but for rank miss: a resource's upstream is
 * asked with the resource's own held.
 *     registry < current < pages < ipc < listeners < miss < seats < resource < order <
 *     devices < device < leaves
 * A leaf lock is held for a few lines that take no other but later leaves: it is no
 * place to lose the turn, and nobody who has the turn ever finds one taken. */
#ifndef WEIR_SYNC_H
#define WEIR_SYNC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/status.h"

#if defined(__clang__)
#define WEIR_REQUIRES(lock) __attribute__((requires_capability(lock)))
#define WEIR_CAPABILITY     __attribute__((capability("mutex")))
#define WEIR_ACQUIRE(lock)  __attribute__((acquire_capability(lock)))
#define WEIR_RELEASE(lock)  __attribute__((release_capability(lock)))
#define WEIR_TRIES(lock)    __attribute__((try_acquire_capability(true, lock)))
#else
#define WEIR_REQUIRES(lock)
#define WEIR_CAPABILITY
#define WEIR_ACQUIRE(lock)
#define WEIR_RELEASE(lock)
#define WEIR_TRIES(lock)
#endif

typedef enum weir__rank {
    WEIR__RANK_REGISTRY = 1, /* the list of open devices */
    WEIR__RANK_CURRENT,      /* a device's current resource */
    WEIR__RANK_PAGES,        /* the host's pages that buffers have registered */
    WEIR__RANK_IPC,          /* exports, imports, and who has them open */
    WEIR__RANK_LISTENERS,    /* who is told of the ends of streams, and is told */
    WEIR__RANK_MISS,         /* one at a time may look beyond a resource's own memory */
    WEIR__RANK_SEATS,        /* a pool's threads and their caches */
    WEIR__RANK_RESOURCE,     /* a resource's records */
    WEIR__RANK_ORDER,        /* a device's clocks */
    WEIR__RANK_DEVICES,      /* the list of open emulated devices */
    WEIR__RANK_DEVICE,       /* an emulated device */
    WEIR__RANK_LEAF,         /* this and all after it are leaves */
    WEIR__RANK_MEMORY = WEIR__RANK_LEAF, /* the records of all emulated memory */
    WEIR__RANK_LEDGER,       /* the ledger */
    WEIR__RANK_FINDINGS,     /* what a device was told by the ledger */
    WEIR__RANK_STORAGE,      /* the uses of a storage that were noted */
    WEIR__RANK_PENDING,      /* the storages of a device that wait for their end */
    WEIR__RANK_MAPPINGS,     /* what a CUDA device has mapped that others can open */
    WEIR__RANK_SPARES,       /* what emulated devices had mapped that are closed */
    WEIR__RANK_GROWABLE      /* the pages of a growable resource */
} weir__rank;

typedef struct WEIR_CAPABILITY weir__mutex {
    _Atomic uint32_t word; /* see lock_word.h */
    weir__rank rank;
    uint64_t owner; /* thread number; atomic accesses; for weir__mutex_is_mine */
} weir__mutex;

/* For one with static storage. */
#define WEIR__MUTEX_INIT(rank) { 0, rank, 0 }

static inline void weir__mutex_init(weir__mutex *mutex, weir__rank rank)
{
    *mutex = (weir__mutex)WEIR__MUTEX_INIT(rank);
}
void weir__mutex_destroy(weir__mutex *mutex);
void weir__mutex_lock(weir__mutex *mutex) WEIR_ACQUIRE(mutex);
/* Takes it if it is free; a stepped run goes on with the same thread. */
bool weir__mutex_try(weir__mutex *mutex) WEIR_TRIES(mutex);
void weir__mutex_unlock(weir__mutex *mutex) WEIR_RELEASE(mutex);
bool weir__mutex_is_mine(weir__mutex *mutex);

/* So often a thread that finds a lock taken looks again before it sleeps; not in a
 * stepped run. Each time it pauses twice as often before, up to the most: for each look
 * takes the line from the holder, who needs it to go on, and who asks for the lock
 * again and again gets on best undisturbed (Anderson, "The Performance of Spin Lock
 * Alternatives for Shared-Memory Multiprocessors"). */
#define WEIR__LOOKS       30u
#define WEIR__PAUSES_MOST 32u

#ifdef WEIR_TESTING
uint64_t weir__mutex_count(void); /* how many the calling thread has ever taken */

/* Told when the calling thread finds locks taken; null: nobody is. */
typedef struct weir__watch {
    void (*tell)(struct weir__watch *self); /* before each look, and each sleep */
    uint32_t looks;
    uint32_t pauses; /* in all */
    uint32_t sleeps; /* how often the waiting was left to the system */
} weir__watch;
void weir__mutex_watch(weir__watch *by);
#endif

/* A condition to wait for under a mutex, always the same one. A wait may end without
 * cause. broadcast is called with that mutex held. */
typedef struct weir__cond {
    _Atomic uint32_t generation; /* how often it was broadcast; a futex */
    uint32_t sleepers;           /* guarded by the mutex */
} weir__cond;

/* For one with static storage. */
#define WEIR__COND_INIT { 0, 0 }

static inline void weir__cond_init(weir__cond *cond)
{
    *cond = (weir__cond)WEIR__COND_INIT;
}
void weir__cond_destroy(weir__cond *cond);
void weir__cond_wait(weir__cond *cond, weir__mutex *mutex) WEIR_REQUIRES(mutex);
/* The same for so long at most. In a stepped run the time counts where only a thread
 * outside of it can wake this one. */
void weir__cond_wait_for(weir__cond *cond, weir__mutex *mutex, uint32_t most_ms)
    WEIR_REQUIRES(mutex);
/* The same for a millisecond at most; in a stepped run the turn is kept. */
void weir__cond_wait_briefly(weir__cond *cond, weir__mutex *mutex)
    WEIR_REQUIRES(mutex);
void weir__cond_broadcast(weir__cond *cond);

/* ---- the baton ---- */

/* A place where a thread of a stepped run may lose its turn; elsewhere nothing. Public
 * calls, device calls and weir__mutex_lock come here. */
void weir__yield(void);

/* Where another thread may come in between what one reads and what it does about that:
 * in test builds a stepped run may do so, too. Without locks. */
#ifdef WEIR_TESTING
#define WEIR_WINDOW() weir__yield()
#else
#define WEIR_WINDOW() ((void)0)
#endif

/* Decides among n >= 2 possibilities. */
typedef uint32_t (*weir__chooser)(void *context, uint32_t n);

/* Runs `count` threads by turns until all have returned, `choose` picking who is next
 * among those that can go on; with a null `choose` they run side by side, with no
 * turns. At weir__yield a thread keeps its turn unless `choose` picks 0 of `patience`;
 * where that is 1 it never does. Each calls entry(arguments[i]), and then, by turns
 * still, hands over what it keeps (weir__thread_end). OUT_OF_HOST_MEMORY or
 * DEVICE_ERROR if they cannot be started: then none has run. INVALID_ARGUMENT: the
 * caller is in such a run itself. */
weir_status weir__baton_run(weir__chooser choose, void *context, uint32_t patience,
                            size_t count, void (*entry)(void *argument),
                            void *const arguments[]);

/* Called with the turn, when the running thread has nothing to do until somebody else
 * has done something (weir__baton_progress). Between the look that found nothing to
 * do and this call there must be no place to lose the turn. Returns false if no other
 * thread can go on: then nothing will ever change. Outside of a run it is false at
 * once. */
bool weir__baton_wait_for_others(void);

/* Something has changed that a thread in weir__baton_wait_for_others may be after. */
void weir__baton_progress(void);

/* Between baton.c and what locks, sync.c and gate.c: the running thread waits until
 * `what` is woken. Gives false, and does not wait, if `owner` is the number of a thread
 * outside of the run; and false if the turn came back because nobody else can go on.
 * Those who wait for a lock (`is_lock`) are never told so: that is a deadlock, and
 * stops. */
bool weir__baton_block(const void *what, bool is_lock, uint64_t owner);
void weir__baton_wake(const void *what);
/* What the running thread waits for is in the hands of a thread outside of the run, who
 * may be waiting for another of the run: that goes on, until the turn comes back.
 * False: no other can, or all that can have given way as well: it is time to sleep. */
bool weir__baton_give_way(void);

#endif
