/* model_lock.c - the lock of one word, model-checked: the library's own code on a
 * simulated weak memory, in all ways in which its threads can go on. Nobody is in it
 * beside another, each is ordered behind those before, and nobody sleeps for ever. */
#include "support.h"
#include "support_weak.h"

/* Of all locks: more wake whom they need not, and none has fewer. Only the address
 * counts. */
static _Atomic uint32_t all_sleepers;

static _Atomic uint32_t *sleepers_of(const _Atomic uint32_t *lock)
{
    (void)lock;
    return &all_sleepers;
}

/* The lock's code, with the memory's operations in the place of the machine's. */
#define WEIR__LOCK_MODEL
#define WEIR__LOCK_COMPARE_EXCHANGE(word, expected, value, order)                \
    (weak_compare_exchange(word, *(expected), value, order) == *(expected))
#define WEIR__LOCK_LOAD(word, order)         weak_load(word, order)
#define WEIR__LOCK_STORE(word, value, order) weak_store(word, value, order)
#define WEIR__LOCK_ADD(word, value)          weak_add(word, value)
#define WEIR__LOCK_KEEP_ORDER()              ((void)0)
#define WEIR__LOCK_FENCE_ALL()               (weak_membarrier(), true)
#define WEIR__LOCK_WAIT(word, value, most) \
    ((void)(most), weak_futex_wait(word, value))
#define WEIR__LOCK_WAKE(word)                weak_futex_wake(word)
#define WEIR__LOCK_SLEEPERS(word)            sleepers_of(word)
#include "lock_word.h"

static _Atomic uint32_t locks[2]; /* only their addresses count */

/* There is a fence for all threads: without one, who sleeps looks again, by and by.
 * Who finds it taken sleeps at once: to look some times before changes nothing. */
static void enter(_Atomic uint32_t *lock)
{
    if (!weir__word_take(lock))
        weir__word_sleep(lock);
}

static void visit(uint32_t number)
{
    enter(&locks[number]);
    weak_work_begin(number);
    weak_work_end(number);
    weir__word_give(&locks[number]);
}

static void visits_it_twice(void)
{
    visit(0);
    visit(0);
}

static void visits_it_once(void)
{
    visit(0);
}

static void visits_one_in_the_other(void)
{
    enter(&locks[0]);
    visit(1);
    weir__word_give(&locks[0]);
}

static void visits_both(void)
{
    visit(1);
    visit(0);
}

static void two_threads_take_turns(void **state)
{
    (void)state;
    weak_explore(&(weak_program){ .what = "two threads", .threads = 2,
                                  .play = { visits_it_twice, visits_it_twice },
                                  .words = { &locks[0], &all_sleepers } });
}

static void three_threads_take_turns(void **state)
{
    (void)state;
    weak_explore(&(weak_program){
        .what = "three threads", .threads = 3,
        .play = { visits_it_once, visits_it_once, visits_it_once },
        .words = { &locks[0], &all_sleepers } });
}

static void two_locks_are_two(void **state)
{
    (void)state;
    weak_explore(&(weak_program){
        .what = "two locks", .threads = 2,
        .play = { visits_one_in_the_other, visits_both },
        .words = { &locks[0], &locks[1], &all_sleepers } });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_threads_take_turns),
        cmocka_unit_test(three_threads_take_turns),
        cmocka_unit_test(two_locks_are_two),
    };
    return cmocka_run_group_tests_name("a lock of one word", tests, NULL, NULL);
}
