/* lock_word.h - a lock that is one word, 0 if it is free and 1 if it is taken, and
 * where the system sleeps for it.
 *
 * Who gives it back stores and then loads: whether there are any who sleep. That is
 * Dekker's protocol, as in gate.h, and here as well only one side pays for the order,
 * the rare one: who falls asleep is counted first, has a fence put into each thread of
 * the process, and only then looks for the last time whether the lock is taken (which
 * the system does).
 *   1. The fence falls somewhere into the program of who gives the lock back.
 *   2. Before its load: it sees the count, and wakes one.
 *   3. Behind that: so is its store before the fence, and the last look comes after.
 * Where there is no such fence a sleeper looks again from time to time.
 *
 * Counts are of many locks each, and stay: who gives a lock back touches it no more, so
 * that who takes it next may end it. One who sleeps for another lock of the same count
 * costs a call that wakes nobody. */
#ifndef WEIR_LOCK_WORD_H
#define WEIR_LOCK_WORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define WEIR__SLEEPERS 256u

/* How many sleep for locks, or are about to, by what their addresses have in common. */
extern _Atomic uint32_t weir__sleepers[WEIR__SLEEPERS]
    __attribute__((visibility("hidden")));

/* Sleeps, unless *word is another than `value`, until it is woken: for `most` at the
 * longest, null: for ever. May end without cause. */
void weir__futex_wait(_Atomic uint32_t *word, uint32_t value,
                      const struct timespec *most);
/* Wakes `count` of those who sleep. Only the address counts: what was there may have
 * ended. */
void weir__futex_wake(_Atomic uint32_t *word, int count);

/* A model of the memory puts its own in the place of these. */
#ifndef WEIR__LOCK_MODEL
#include "gate.h"

#define WEIR__LOCK_COMPARE_EXCHANGE(word, expected, value, order)                \
    atomic_compare_exchange_strong_explicit(word, expected, value, order,        \
                                            memory_order_relaxed)
#define WEIR__LOCK_LOAD(word, order)         atomic_load_explicit(word, order)
#define WEIR__LOCK_STORE(word, value, order) atomic_store_explicit(word, value, order)
#define WEIR__LOCK_ADD(word, value) \
    ((void)atomic_fetch_add_explicit(word, value, memory_order_relaxed))
#define WEIR__LOCK_KEEP_ORDER()      atomic_signal_fence(memory_order_seq_cst)
#define WEIR__LOCK_FENCE_ALL()       weir__gate_fence_all()
#define WEIR__LOCK_WAIT(word, value, most) weir__futex_wait(word, value, most)
#define WEIR__LOCK_WAKE(word)        weir__futex_wake(word, 1)
#define WEIR__LOCK_SLEEPERS(word) \
    (&weir__sleepers[(uintptr_t)(word) / WEIR__LINE % WEIR__SLEEPERS])
#endif

/* True: it was free, and is the caller's. */
static inline bool weir__word_take(_Atomic uint32_t *word)
{
    uint32_t is_free = 0;
    return WEIR__LOCK_COMPARE_EXCHANGE(word, &is_free, 1, memory_order_acquire);
}

/* Takes it, and sleeps until then. */
static inline void weir__word_sleep(_Atomic uint32_t *word)
{
    static const struct timespec millisecond = { .tv_nsec = 1000000 };
    WEIR__LOCK_ADD(WEIR__LOCK_SLEEPERS(word), 1);
    const struct timespec *most = WEIR__LOCK_FENCE_ALL() ? NULL : &millisecond;
    while (!weir__word_take(word))
        WEIR__LOCK_WAIT(word, 1, most);
    WEIR__LOCK_ADD(WEIR__LOCK_SLEEPERS(word), -1u);
}

static inline void weir__word_give(_Atomic uint32_t *word)
{
    _Atomic uint32_t *sleepers = WEIR__LOCK_SLEEPERS(word);
    WEIR__LOCK_STORE(word, 0, memory_order_release);
    WEIR__LOCK_KEEP_ORDER();
    /* Relaxed: it is ordered behind the store by the sleeper's fence. */
    if (__builtin_expect(WEIR__LOCK_LOAD(sleepers, memory_order_relaxed) != 0, 0))
        WEIR__LOCK_WAKE(word);
}

#endif
