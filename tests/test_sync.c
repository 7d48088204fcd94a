/* test_sync.c - locks, conditions, and the baton of stepped runs. */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"
#include "support.h"
#include "support_explore.h"
#include "sync.h"

#define THREADS 3
#define ROUNDS  4

/* What the threads of one run share. */
typedef struct shared {
    weir__mutex lock;
    weir__cond cond;
    uint32_t counter;
    bool locked;       /* whether the counter is changed under the lock */
    bool ready;
    char order[64];    /* who did something, in turn */
    size_t length;
} shared;

typedef struct player {
    shared *with;
    char name;
} player;

static uint32_t choose_by_seed(void *state, uint32_t n)
{
    return (uint32_t)support_random_below(state, n);
}

static shared *shared_begin(shared *self, bool locked)
{
    memset(self, 0, sizeof *self);
    weir__mutex_init(&self->lock, WEIR__RANK_RESOURCE);
    weir__cond_init(&self->cond);
    self->locked = locked;
    return self;
}

static void shared_end(shared *self)
{
    weir__cond_destroy(&self->cond);
    weir__mutex_destroy(&self->lock);
}

static void play(shared *with, size_t count, void (*entry)(void *), uint64_t seed)
{
    player players[THREADS];
    void *arguments[THREADS];
    uint64_t state = seed;
    for (size_t i = 0; i < count; i++) {
        players[i] = (player){ with, (char)('a' + i) };
        arguments[i] = &players[i];
    }
    must_ok(weir__baton_run(choose_by_seed, &state, 1, count, entry, arguments));
}

static void note(player *self)
{
    must(self->with->length < sizeof self->with->order - 1);
    self->with->order[self->with->length++] = self->name;
}

/* Reads, may lose the turn, writes: an update is lost if nothing excludes another. */
static void increment(void *argument)
{
    player *self = argument;
    for (int i = 0; i < ROUNDS; i++) {
        if (self->with->locked)
            weir__mutex_lock(&self->with->lock);
        uint32_t seen = self->with->counter;
        weir__yield();
        self->with->counter = seen + 1;
        note(self);
        if (self->with->locked)
            weir__mutex_unlock(&self->with->lock);
    }
}

static void mutex_excludes_in_every_seed(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("seeds of threads that take turns", 200, 5000);
    for (uint64_t seed = 0; seed < seeds; seed++) {
        shared with;
        support_use_seed(seed);
        play(shared_begin(&with, true), THREADS, increment, seed);
        must_equal(with.counter, THREADS * ROUNDS);
        shared_end(&with);
    }
}

/* Who tries gets it, or not, at once. */
static void who_tries_does_not_wait(void **state)
{
    (void)state;
    weir__mutex lock = WEIR__MUTEX_INIT(WEIR__RANK_RESOURCE);
    must(weir__mutex_try(&lock) && weir__mutex_is_mine(&lock));
    must(!weir__mutex_try(&lock));
    weir__mutex_unlock(&lock);
    weir__mutex_destroy(&lock);
}

static void turns_really_interleave_without_a_lock(void **state)
{
    (void)state;
    uint32_t lost = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        shared with;
        play(shared_begin(&with, false), THREADS, increment, support_seed(seed));
        lost += with.counter < THREADS * ROUNDS;
        shared_end(&with);
    }
    must(lost > 10);
}

static void run_is_the_same_for_the_same_seed(void **state)
{
    (void)state;
    uint32_t different = 0;
    char before[64] = "";
    for (uint64_t seed = 0; seed < 20; seed++) {
        shared first, second;
        play(shared_begin(&first, true), THREADS, increment, support_seed(seed));
        play(shared_begin(&second, true), THREADS, increment, seed);
        must(strcmp(first.order, second.order) == 0);
        different += strcmp(first.order, before) != 0;
        snprintf(before, sizeof before, "%s", first.order);
        shared_end(&first);
        shared_end(&second);
    }
    must(different > 10);
}

static void note_once(void *argument)
{
    weir__yield();
    note(argument);
}

static void exploring_finds_every_order(void **state)
{
    (void)state;
    static explorer ways;
    ways.active = true;
    unsigned found = 0;
    do {
        shared with;
        player players[] = { { &with, 'a' }, { &with, 'b' } };
        void *arguments[] = { &players[0], &players[1] };
        shared_begin(&with, false);
        must_ok(weir__baton_run(explore_choose, &ways, 1, 2, note_once, arguments));
        must(strcmp(with.order, "ab") == 0 || strcmp(with.order, "ba") == 0);
        found |= with.order[0] == 'a' ? 1 : 2;
        shared_end(&with);
    } while (explore_next(&ways));
    must_equal(found, 3);
    must(ways.runs >= 2);
}

/* ---- conditions ---- */

static void wait_or_tell(void *argument)
{
    player *self = argument;
    shared *with = self->with;
    weir__mutex_lock(&with->lock);
    if (self->name == 'a') {
        with->ready = true;
        note(self);
        weir__cond_broadcast(&with->cond);
    }
    while (!with->ready)
        weir__cond_wait(&with->cond, &with->lock);
    must(weir__mutex_is_mine(&with->lock));
    note(self);
    weir__mutex_unlock(&with->lock);
}

static void cond_wakes_all_who_wait(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        shared with;
        play(shared_begin(&with, true), THREADS, wait_or_tell, support_seed(seed));
        must(with.order[0] == 'a');
        must_equal(with.length, THREADS + 1);
        shared_end(&with);
    }
}

static void *tell_from_outside(void *argument)
{
    shared *with = argument;
    weir__mutex_lock(&with->lock);
    with->ready = true;
    weir__cond_broadcast(&with->cond);
    weir__mutex_unlock(&with->lock);
    return NULL;
}

static void wait_for_outside(void *argument)
{
    player *self = argument;
    weir__mutex_lock(&self->with->lock);
    while (!self->with->ready)
        weir__cond_wait(&self->with->cond, &self->with->lock);
    weir__mutex_unlock(&self->with->lock);
    self->with->counter++; /* by whoever has the turn */
}

static void cond_can_be_told_from_outside_of_the_run(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        shared with;
        pthread_t outside;
        shared_begin(&with, true);
        must(pthread_create(&outside, NULL, tell_from_outside, &with) == 0);
        play(&with, 1, wait_for_outside, support_seed(seed));
        pthread_join(outside, NULL);
        must_equal(with.counter, 1);
        shared_end(&with);
    }
}

static void tell_and_see(void *argument)
{
    player *self = argument;
    shared *with = self->with;
    if (self->name == 'a') {
        weir__mutex_lock(&with->lock);
        with->ready = true;
        weir__cond_broadcast(&with->cond);
        weir__mutex_unlock(&with->lock);
        while (with->counter == 0)
            must(weir__baton_wait_for_others());
        return;
    }
    wait_for_outside(argument);
    weir__baton_progress();
}

/* Who tells may then wait for what the others do with it. */
static void cond_wakes_at_once(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        shared with;
        play(shared_begin(&with, true), 2, tell_and_see, support_seed(seed));
        must_equal(with.counter, 1);
        shared_end(&with);
    }
}

/* ---- threads outside of the run ---- */

static atomic_bool outside_has_it, inside_wants_it;

static void *hold_from_outside(void *argument)
{
    shared *with = argument;
    weir__mutex_lock(&with->lock);
    atomic_store(&outside_has_it, true);
    while (!atomic_load(&inside_wants_it))
        sched_yield();
    for (int i = 0; i < 1000; i++)
        sched_yield(); /* it is likely to wait by now; all is well if it does not */
    weir__mutex_unlock(&with->lock);
    return NULL;
}

static void want_it(void *argument)
{
    player *self = argument;
    atomic_store(&inside_wants_it, true);
    weir__mutex_lock(&self->with->lock);
    self->with->counter++;
    weir__mutex_unlock(&self->with->lock);
}

static void lock_held_outside_is_waited_for(void **state)
{
    (void)state;
    shared with;
    pthread_t outside;
    shared_begin(&with, true);
    must(pthread_create(&outside, NULL, hold_from_outside, &with) == 0);
    while (!atomic_load(&outside_has_it))
        sched_yield();
    play(&with, THREADS, want_it, 1);
    pthread_join(outside, NULL);
    must_equal(with.counter, THREADS);
    shared_end(&with);
}

/* ---- waiting for others ---- */

static void wait_for_progress(void *argument)
{
    player *self = argument;
    if (self->name == 'b') {
        for (int i = 0; i < ROUNDS; i++)
            weir__yield();
        self->with->ready = true;
        weir__baton_progress();
        return;
    }
    while (!self->with->ready)
        must(weir__baton_wait_for_others());
    self->with->counter++;
}

static void waiting_ends_with_progress(void **state)
{
    (void)state;
    must(!weir__baton_wait_for_others()); /* outside of a run */
    for (uint64_t seed = 0; seed < 50; seed++) {
        shared with;
        play(shared_begin(&with, false), THREADS, wait_for_progress,
             support_seed(seed));
        must_equal(with.counter, THREADS - 1);
        shared_end(&with);
    }
}

static void wait_in_vain(void *argument)
{
    player *self = argument;
    if (!weir__baton_wait_for_others())
        self->with->counter++;
}

/* Nobody makes progress: whoever is last is told, and then the others one by one. */
static void waiting_in_vain_is_told(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        shared with;
        play(shared_begin(&with, false), THREADS, wait_in_vain, support_seed(seed));
        must_equal(with.counter, THREADS);
        shared_end(&with);
    }
}

/* ---- runs ---- */

static atomic_uint met;

static void meet_the_other(void *argument)
{
    (void)argument;
    atomic_fetch_add(&met, 1);
    while (atomic_load(&met) < 2) {
        /* the other runs at the same time */
    }
}

static void run_without_a_chooser_is_side_by_side(void **state)
{
    (void)state;
    void *arguments[] = { NULL, NULL };
    atomic_store(&met, 0);
    must_ok(weir__baton_run(NULL, NULL, 1, 2, meet_the_other, arguments));
    must_equal(atomic_load(&met), 2);
}

static void begin_another(void *argument)
{
    player *self = argument;
    void *arguments[] = { argument };
    uint64_t seed = 0;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir__baton_run(choose_by_seed, &seed, 1, 1, begin_another, arguments));
    self->with->counter++;
}

static void run_refuses_to_begin_inside_another(void **state)
{
    (void)state;
    shared with;
    play(shared_begin(&with, false), 1, begin_another, 0);
    must_equal(with.counter, 1);
    shared_end(&with);
}

static void run_that_finds_no_memory_runs_nobody(void **state)
{
    (void)state;
    shared with;
    player one = { shared_begin(&with, true), 'a' };
    void *arguments[] = { &one };
    uint64_t seed = 0;
    weir__host_fail_at(1, false);
    must_answer(WEIR_OUT_OF_HOST_MEMORY,
                weir__baton_run(choose_by_seed, &seed, 1, 1, increment, arguments));
    weir__host_fail_at(0, false);
    must_equal(with.counter, 0);
    shared_end(&with);
}

/* ---- what must stop the program ---- */

/* Runs `what` in a child, whose words are not shown; true if it was stopped. */
static bool stops(void (*what)(void))
{
    fflush(NULL);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) != NULL)
            what();
        _exit(0);
    }
    int result = 0;
    must(waitpid(child, &result, 0) == child);
    return WIFSIGNALED(result) || WEXITSTATUS(result) != 0;
}

static void lock_out_of_rank(void)
{
    weir__mutex order = WEIR__MUTEX_INIT(WEIR__RANK_ORDER);
    weir__mutex resource = WEIR__MUTEX_INIT(WEIR__RANK_RESOURCE);
    weir__mutex_lock(&order);
    weir__mutex_lock(&resource);
}

static void lock_in_rank(void)
{
    weir__mutex upper = WEIR__MUTEX_INIT(WEIR__RANK_MISS);
    weir__mutex lower = WEIR__MUTEX_INIT(WEIR__RANK_MISS);
    weir__mutex resource = WEIR__MUTEX_INIT(WEIR__RANK_RESOURCE);
    weir__mutex_lock(&upper);
    weir__mutex_lock(&lower);
    weir__mutex_lock(&resource);
    weir__mutex_unlock(&upper);
    weir__mutex_unlock(&resource);
    weir__mutex_unlock(&lower);
}

static void lock_the_same_rank_twice(void)
{
    weir__mutex one = WEIR__MUTEX_INIT(WEIR__RANK_RESOURCE);
    weir__mutex two = WEIR__MUTEX_INIT(WEIR__RANK_RESOURCE);
    weir__mutex_lock(&one);
    weir__mutex_lock(&two);
}

static weir__mutex crossed[] = { WEIR__MUTEX_INIT(WEIR__RANK_MISS),
                                 WEIR__MUTEX_INIT(WEIR__RANK_MISS) };

static void lock_both(void *argument)
{
    player *self = argument;
    size_t first = self->name == 'a' ? 0 : 1;
    weir__mutex_lock(&crossed[first]);
    weir__mutex_lock(&crossed[1 - first]);
    weir__mutex_unlock(&crossed[0]);
    weir__mutex_unlock(&crossed[1]);
}

static void lock_crosswise(void)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        shared with;
        play(shared_begin(&with, true), 2, lock_both, seed);
        shared_end(&with);
    }
}

static void threads_that_lock_each_other_out_stop(void **state)
{
    (void)state;
    must(stops(lock_crosswise));
}

static void locks_out_of_rank_stop(void **state)
{
    (void)state;
    must(stops(lock_out_of_rank));
    must(stops(lock_the_same_rank_twice));
    must(!stops(lock_in_rank));
}

/* ---- a lock that another thread holds, in no run ---- */

typedef struct waiter {
    weir__watch watch; /* first: what is told names the whole */
    weir__mutex lock;
    uint32_t give_back_at; /* the look before which the holder gives it back; 0: when
                              who wants it is about to sleep */
    sem_t give_back, gone;
    uint32_t entered;
} waiter;

/* Lets the holder give it back: and wait until it has, if it is between two looks. */
static void tell(weir__watch *watch)
{
    waiter *self = (waiter *)(void *)watch;
    if (watch->sleeps == 0 && watch->looks != self->give_back_at)
        return;
    must(sem_post(&self->give_back) == 0);
    if (watch->sleeps == 0)
        must(sem_wait(&self->gone) == 0);
}

static void *want(void *argument)
{
    waiter *self = argument;
    weir__mutex_watch(&self->watch);
    weir__mutex_lock(&self->lock);
    self->entered++;
    weir__mutex_unlock(&self->lock);
    weir__mutex_watch(NULL);
    return NULL;
}

static waiter wait_for_holder(uint32_t give_back_at)
{
    waiter self = { .watch = { .tell = tell }, .give_back_at = give_back_at };
    pthread_t thread;
    weir__mutex_init(&self.lock, WEIR__RANK_RESOURCE);
    must(sem_init(&self.give_back, 0, 0) == 0 && sem_init(&self.gone, 0, 0) == 0);
    weir__mutex_lock(&self.lock);
    must(pthread_create(&thread, NULL, want, &self) == 0);
    must(sem_wait(&self.give_back) == 0);
    must_equal(self.entered, 0);
    weir__mutex_unlock(&self.lock);
    must(sem_post(&self.gone) == 0);
    must(pthread_join(thread, NULL) == 0);
    weir__mutex_destroy(&self.lock);
    must(sem_destroy(&self.give_back) == 0 && sem_destroy(&self.gone) == 0);
    must_equal(self.entered, 1);
    return self;
}

static void lock_given_back_soon_is_taken_without_sleep(void **state)
{
    (void)state;
    for (uint32_t at = 1; at <= WEIR__LOOKS; at++) {
        waiter it = wait_for_holder(at);
        must_equal(it.watch.looks, at);
        must_equal(it.watch.sleeps, 0);
    }
}

static void lock_held_for_long_is_slept_for(void **state)
{
    (void)state;
    waiter it = wait_for_holder(0);
    must_equal(it.watch.looks, WEIR__LOOKS);
    must_equal(it.watch.sleeps, 1);
}

/* 1, 2, 4 and so on, and then always the most. */
static void who_looks_again_pauses_longer(void **state)
{
    (void)state;
    for (uint32_t at = 1; at <= 3; at++)
        must_equal(wait_for_holder(at).watch.pauses, (1u << at) - 1);
    must(WEIR__PAUSES_MOST == 32 && WEIR__LOOKS > 6);
    must_equal(wait_for_holder(0).watch.pauses, 31 + (WEIR__LOOKS - 5) * 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutex_excludes_in_every_seed),
        cmocka_unit_test(who_tries_does_not_wait),
        cmocka_unit_test(turns_really_interleave_without_a_lock),
        cmocka_unit_test(run_is_the_same_for_the_same_seed),
        cmocka_unit_test(exploring_finds_every_order),
        cmocka_unit_test(cond_wakes_all_who_wait),
        cmocka_unit_test(cond_can_be_told_from_outside_of_the_run),
        cmocka_unit_test(cond_wakes_at_once),
        cmocka_unit_test(lock_held_outside_is_waited_for),
        cmocka_unit_test(waiting_ends_with_progress),
        cmocka_unit_test(waiting_in_vain_is_told),
        cmocka_unit_test(run_without_a_chooser_is_side_by_side),
        cmocka_unit_test(run_refuses_to_begin_inside_another),
        cmocka_unit_test(run_that_finds_no_memory_runs_nobody),
        cmocka_unit_test(threads_that_lock_each_other_out_stop),
        cmocka_unit_test(locks_out_of_rank_stop),
        cmocka_unit_test(lock_given_back_soon_is_taken_without_sleep),
        cmocka_unit_test(lock_held_for_long_is_slept_for),
        cmocka_unit_test(who_looks_again_pauses_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
