/* lock_word.h - a lock that is one word, and where the system sleeps for it: 0 it is
 * free, 1 it is taken, 2 it is taken and somebody may sleep (Ulrich Drepper, "Futexes
 * Are Tricky", where it is the third of the mutexes).
 *
 * Who gives it back touches it no more: so who takes it next may end it. */
#ifndef WEIR_LOCK_WORD_H
#define WEIR_LOCK_WORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Sleeps, unless *word is another than `value`, until it is woken: for `most` at the
 * longest, null: for ever. May end without cause. */
void weir__futex_wait(_Atomic uint32_t *word, uint32_t value,
                      const struct timespec *most);
/* Wakes `count` of those who sleep. Only the address counts: what was there may have
 * ended. */
void weir__futex_wake(_Atomic uint32_t *word, int count);

/* A model of the memory puts its own in the place of these. */
#ifndef WEIR__LOCK_MODEL
#define WEIR__LOCK_EXCHANGE(word, value, order)                                  \
    atomic_exchange_explicit(word, value, order)
#define WEIR__LOCK_COMPARE_EXCHANGE(word, expected, value, order)                \
    atomic_compare_exchange_strong_explicit(word, expected, value, order,        \
                                            memory_order_relaxed)
#define WEIR__LOCK_WAIT(word, value) weir__futex_wait(word, value, NULL)
#define WEIR__LOCK_WAKE(word)        weir__futex_wake(word, 1)
#endif

/* True: it was free, and is the caller's. */
static inline bool weir__word_take(_Atomic uint32_t *word)
{
    uint32_t is_free = 0;
    return WEIR__LOCK_COMPARE_EXCHANGE(word, &is_free, 1, memory_order_acquire);
}

/* Takes it, and sleeps until then. Whether others sleep nobody has counted, so it is
 * given back as if they did. */
static inline void weir__word_sleep(_Atomic uint32_t *word)
{
    while (WEIR__LOCK_EXCHANGE(word, 2, memory_order_acquire) != 0)
        WEIR__LOCK_WAIT(word, 2);
}

static inline void weir__word_give(_Atomic uint32_t *word)
{
    if (__builtin_expect(WEIR__LOCK_EXCHANGE(word, 0, memory_order_release) == 2, 0))
        WEIR__LOCK_WAKE(word);
}

#endif
