/* sync.c - locks and conditions that a stepped run sees.
 *
 * Outside of such a run they are futexes; who finds a lock taken looks some times more
 * before it sleeps. Inside, a thread that finds a lock taken by another thread of the
 * run passes its turn on and is woken by the unlock. What a thread outside of the run
 * holds it asks for again and again: others have the turn in between, and once all have
 * had it, it sleeps for a millisecond; else nobody who has the turn blocks in the
 * system. */
#include "sync.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"
#include "lock_word.h"

/* ---- ranks, checked in test builds; and what these count ---- */

#ifdef WEIR_TESTING
#define HELD_MAX 16

static _Thread_local struct {
    uint64_t ever;
    uint32_t count;
    weir__rank ranks[HELD_MAX];
} held;

uint64_t weir__mutex_count(void)
{
    return held.ever;
}

static void rank_push(weir__rank rank)
{
    weir__rank highest = 0;
    for (uint32_t i = 0; i < held.count; i++) {
        if (held.ranks[i] > highest)
            highest = held.ranks[i];
    }
    bool in_order = rank > highest ||
                    (rank == WEIR__RANK_MISS && highest == WEIR__RANK_MISS);
    WEIR_CHECK(in_order, "a lock is taken out of its rank");
    WEIR_CHECK(held.count < HELD_MAX, "a thread holds too many locks");
    held.ranks[held.count++] = rank;
    held.ever++;
}

/* Locks may be given back in any order. */
static void rank_drop(weir__rank rank)
{
    uint32_t i = held.count;
    while (i > 0 && held.ranks[i - 1] != rank)
        i--;
    WEIR_CHECK(i > 0, "a lock is given back that was not taken");
    held.count--;
    for (; i <= held.count; i++)
        held.ranks[i - 1] = held.ranks[i];
}

static _Thread_local weir__watch *watch;

void weir__mutex_watch(weir__watch *by)
{
    watch = by;
}

static void note_look(uint32_t pauses)
{
    if (watch != NULL) {
        watch->looks++;
        watch->pauses += pauses;
        watch->tell(watch);
    }
}

static void note_sleep(void)
{
    if (watch != NULL) {
        watch->sleeps++;
        watch->tell(watch);
    }
}
#else
static void rank_push(weir__rank rank)
{
    (void)rank;
}

static void rank_drop(weir__rank rank)
{
    (void)rank;
}

static void note_look(uint32_t pauses)
{
    (void)pauses;
}

static void note_sleep(void)
{
}
#endif

/* ---- the system ---- */

_Atomic uint32_t weir__sleepers[WEIR__SLEEPERS];

/* Locks leave errno as it is. */
static void futex(_Atomic uint32_t *word, int what, uint32_t value,
                  const struct timespec *most)
{
    int before = errno;
    (void)syscall(SYS_futex, word, what, value, most, NULL, 0);
    errno = before;
}

void weir__futex_wait(_Atomic uint32_t *word, uint32_t value,
                      const struct timespec *most)
{
    futex(word, FUTEX_WAIT_PRIVATE, value, most);
}

WEIR_NOINLINE void weir__futex_wake(_Atomic uint32_t *word, int count)
{
    futex(word, FUTEX_WAKE_PRIVATE, (uint32_t)count, NULL);
}

/* ---- mutexes ---- */

static uint64_t owner_get(const weir__mutex *mutex)
{
    /* Relaxed: a thread only needs to see its own number, or that it is not there. */
    return __atomic_load_n(&mutex->owner, __ATOMIC_RELAXED);
}

static void owner_set(weir__mutex *mutex, uint64_t number)
{
    __atomic_store_n(&mutex->owner, number, __ATOMIC_RELAXED);
}

void weir__mutex_destroy(weir__mutex *mutex)
{
    WEIR_CHECK(owner_get(mutex) == 0, "a mutex is destroyed while it is taken");
}

bool weir__mutex_is_mine(weir__mutex *mutex)
{
    return owner_get(mutex) == weir__thread_self()->number;
}

/* Gives other threads of the processor so much time. */
static inline void pause_briefly(uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
}

/* Tries only where that may succeed: the holder needs the line to give it back. */
static bool take_if_free(weir__mutex *mutex)
{
    return atomic_load_explicit(&mutex->word, memory_order_relaxed) == 0 &&
           weir__word_take(&mutex->word);
}

/* Most locks are held for less time than it takes to fall asleep and be woken, so who
 * finds one taken looks again for some thirty microseconds before it sleeps. */
static void lock_taken(weir__mutex *mutex)
{
    uint32_t pauses = 1;
    for (uint32_t look = 0; look < WEIR__LOOKS; look++) {
        pause_briefly(pauses);
        note_look(pauses);
        if (take_if_free(mutex))
            return;
        if (pauses < WEIR__PAUSES_MOST)
            pauses *= 2;
    }
    note_sleep();
    weir__word_sleep(&mutex->word);
}

static void lock_by_turns(weir__mutex *mutex)
{
    static const struct timespec millisecond = { .tv_nsec = 1000000 };
    if (mutex->rank < WEIR__RANK_LEAF)
        weir__yield();
    while (!weir__word_take(&mutex->word)) {
        if (!weir__baton_block(mutex, true, owner_get(mutex)) && /* it is outside */
            !weir__baton_give_way())
            weir__futex_wait(&mutex->word, 1, &millisecond);
    }
}

/* All but a lock that is free, found by a thread in no stepped run. */
static WEIR_NOINLINE void lock_fully(weir__mutex *mutex)
{
    weir__thread *self = weir__thread_self();
    WEIR_ASSERT(owner_get(mutex) != self->number, "a thread locks itself out");
    if (self->baton != NULL)
        lock_by_turns(mutex);
    else if (!take_if_free(mutex))
        lock_taken(mutex);
    owner_set(mutex, self->number);
}

void weir__mutex_lock(weir__mutex *mutex)
{
    const weir__thread *self = &weir__own_thread;
    rank_push(mutex->rank);
    if (WEIR_LIKELY(self->number != 0 && self->baton == NULL &&
                    weir__word_take(&mutex->word)))
        owner_set(mutex, self->number);
    else
        lock_fully(mutex);
}

bool weir__mutex_try(weir__mutex *mutex)
{
    if (!weir__word_take(&mutex->word))
        return false;
    rank_push(mutex->rank);
    owner_set(mutex, weir__thread_self()->number);
    return true;
}

void weir__mutex_unlock(weir__mutex *mutex)
{
    WEIR_ASSERT(weir__mutex_is_mine(mutex), "a lock is given back by another thread");
    rank_drop(mutex->rank);
    owner_set(mutex, 0);
    weir__word_give(&mutex->word);
    if (weir__own_thread.baton != NULL)
        weir__baton_wake(mutex);
}

/* ---- conditions ---- */

void weir__cond_destroy(weir__cond *cond)
{
    WEIR_CHECK(cond->sleepers == 0, "a condition is destroyed that somebody waits for");
}

static uint32_t generation_of(const weir__cond *cond)
{
    return atomic_load_explicit(&cond->generation, memory_order_relaxed);
}

/* What is broadcast from here on is not missed: the generation is read with the lock
 * that is held over each broadcast. */
static void wait_in_system(weir__cond *cond, weir__mutex *mutex,
                           const struct timespec *most)
{
    uint32_t generation = generation_of(cond);
    cond->sleepers++;
    owner_set(mutex, 0);
    weir__word_give(&mutex->word);
    weir__futex_wait(&cond->generation, generation, most);
    if (!weir__word_take(&mutex->word))
        lock_taken(mutex);
    owner_set(mutex, weir__thread_self()->number);
    cond->sleepers--;
}

/* Who wakes us may be outside of the run, and then nobody in it can go on before: only
 * in that case the thread waits in the system, and keeps the turn. */
static void wait_by_turns(weir__cond *cond, weir__mutex *mutex,
                          const struct timespec *most)
{
    uint32_t generation = generation_of(cond);
    bool is_long = false;
    while (generation_of(cond) == generation && !is_long) {
        weir__mutex_unlock(mutex);
        bool woken = weir__baton_block(cond, false, 0);
        weir__mutex_lock(mutex);
        while (!woken && generation_of(cond) == generation && !is_long) {
            wait_in_system(cond, mutex, most);
            is_long = most != NULL;
        }
    }
}

static void wait(weir__cond *cond, weir__mutex *mutex, const struct timespec *most)
{
    WEIR_ASSERT(weir__mutex_is_mine(mutex), "a wait without the lock");
    if (weir__thread_self()->baton != NULL)
        wait_by_turns(cond, mutex, most);
    else
        wait_in_system(cond, mutex, most);
}

void weir__cond_wait(weir__cond *cond, weir__mutex *mutex)
{
    wait(cond, mutex, NULL);
}

void weir__cond_wait_for(weir__cond *cond, weir__mutex *mutex, uint32_t most_ms)
{
    const struct timespec most = { .tv_sec = most_ms / 1000,
                                   .tv_nsec = most_ms % 1000 * 1000000L };
    wait(cond, mutex, &most);
}

void weir__cond_wait_briefly(weir__cond *cond, weir__mutex *mutex)
{
    WEIR_ASSERT(weir__mutex_is_mine(mutex), "a wait without the lock");
    const struct timespec millisecond = { .tv_nsec = 1000000 };
    wait_in_system(cond, mutex, &millisecond);
}

void weir__cond_broadcast(weir__cond *cond)
{
    atomic_fetch_add_explicit(&cond->generation, 1, memory_order_relaxed);
    if (cond->sleepers > 0)
        weir__futex_wake(&cond->generation, INT_MAX);
    weir__baton_wake(cond);
}
