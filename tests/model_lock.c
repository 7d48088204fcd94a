/* model_lock.c - the lock of one word, model-checked: the library's own code on a
 * simulated weak memory, in all ways in which its threads can go on. Nobody is in it
 * beside another, each is ordered behind those before, and nobody sleeps for ever. */
#include "support.h"
#include "support_weak.h"

/* The lock's code, with the memory's operations in the place of the machine's. */
#define WEIR__LOCK_MODEL
#define WEIR__LOCK_EXCHANGE(word, value, order)                                  \
    weak_exchange_explicit(word, value, order)
#define WEIR__LOCK_COMPARE_EXCHANGE(word, expected, value, order)                \
    (weak_compare_exchange(word, *(expected), value, order) == *(expected))
#define WEIR__LOCK_WAIT(word, value) weak_futex_wait(word, value)
#define WEIR__LOCK_WAKE(word)        weak_futex_wake(word)
#include "lock_word.h"

static _Atomic uint32_t locks[2]; /* only their addresses count */
static uint64_t visits;

/* Who finds it taken sleeps at once: to look some times before changes nothing. */
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

static void visits_one(void)
{
    for (uint64_t i = 0; i < visits; i++)
        visit(0);
}

static void visits_it_once(void)
{
    visit(0);
}

static void visits_both(void)
{
    visit(0);
    enter(&locks[0]);
    visit(1);
    weir__word_give(&locks[0]);
}

static void visits_the_second(void)
{
    visit(1);
}

static void two_threads_take_turns(void **state)
{
    (void)state;
    visits = support_bound("model_lock.visits of two", 2, 3);
    weak_explore(&(weak_program){ .what = "two threads", .threads = 2,
                                  .play = { visits_one, visits_one },
                                  .words = { &locks[0] } });
}

static void three_threads_take_turns(void **state)
{
    (void)state;
    visits = support_bound("model_lock.visits of the first of three", 1, 2);
    weak_explore(&(weak_program){
        .what = "three threads", .threads = 3,
        .play = { visits_one, visits_it_once, visits_it_once },
        .words = { &locks[0] } });
}

static void two_locks_are_two(void **state)
{
    (void)state;
    weak_explore(&(weak_program){
        .what = "two locks", .threads = 3,
        .play = { visits_both, visits_both, visits_the_second },
        .words = { &locks[0], &locks[1] } });
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
