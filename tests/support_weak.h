/* support_weak.h - a simulated memory, weak as that of C11 but for one thing (below),
 * and every way in which a small program of threads can go on it.
 *
 * Each word has all the values that were ever stored in it, oldest first. A thread has
 * a view: how far it has seen of each word. A load may give any value from its view on,
 * however old: so stores arrive late, out of order, and at each thread at another time,
 * and loads are done early. What orders:
 *   - a release stores the thread's view along, and an acquire that loads it takes it
 *     over; an exchange loads the last value there is;
 *   - a sequentially consistent load of a word sees the last such store of that word,
 *     and is not said to see more;
 *   - weak_membarrier puts a full fence into the caller, then one into each other
 *     thread, in any order and with anything between them, then one into the caller.
 * Left out are loads that give what is stored later only (C11 would allow that for
 * relaxed ones): a word has one writer at a time, and whoever loads it relaxed does
 * nothing with it that could be such a store.
 *
 * Plain accesses are looked at by vector clocks, which know only of releases that were
 * acquired, of a lock, and of a thread's own order: two that conflict and are not
 * ordered by those are a race, even if none of the ways tried shows a wrong value. */
#ifndef WEIR_TESTS_SUPPORT_WEAK_H
#define WEIR_TESTS_SUPPORT_WEAK_H

#include <stdatomic.h>
#include <stdint.h>

#define WEAK_THREADS 3
#define WEAK_WORDS   4
#define WEAK_STORES  40 /* of one word, the first included, which is 0 */
#define WEAK_PLACES  2
#define WEAK_RANKS   3

/* A program: each of the threads plays, and then `end` looks at what has become of it;
 * `end` may be null. */
typedef struct weak_program {
    const char *what;
    uint32_t threads;
    void (*play[WEAK_THREADS])(void);
    void (*end)(void);
    const void *words[WEAK_WORDS]; /* what is loaded and stored; null after the last */
} weak_program;

/* Runs it in all ways, once from each state that it can be in; prints how many there
 * were. A race, an overlap, or a wait that nobody can end fails the test. */
void weak_explore(const weak_program *program);

/* For the threads of a program, as in stdatomic.h. */
uint32_t weak_load(const volatile void *word, memory_order order);
void     weak_store(const volatile void *word, uint32_t value, memory_order order);
uint32_t weak_exchange(const volatile void *word, uint32_t value);
uint32_t weak_exchange_explicit(const volatile void *word, uint32_t value,
                                memory_order order);
/* Gives the last value; `value` takes its place if it is `expected`. */
uint32_t weak_compare_exchange(const volatile void *word, uint32_t expected,
                               uint32_t value, memory_order order);

/* Adds to the last value, relaxed. */
void weak_add(const volatile void *word, uint32_t value);

/* futex(2): sleeps if the last value is `value`; and wakes one of those who do, any. */
void weak_futex_wait(const volatile void *word, uint32_t value);
void weak_futex_wake(const volatile void *word);

void weak_membarrier(void);

/* Until somebody has stored to the word that this thread has loaded last, since the
 * value that it has got; then it gets a later one. */
void weak_await_change(void);

/* A lock, one for all. */
void weak_lock(void);
void weak_unlock(void);
/* Others, by their rank: a thread that has one takes only those of a higher rank. What
 * they guard need not be simulated: it may depend on who had them, in which order. */
void weak_lock_ranked(uint32_t rank);
void weak_unlock_ranked(uint32_t rank);

/* A plain access to what only one may be at. Between begin and end nobody else may be
 * there, and each time that anybody comes is to be ordered behind all before. */
void weak_work_begin(uint32_t place);
void weak_work_end(uint32_t place);

#endif
