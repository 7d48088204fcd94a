/* test_sync_threads.c - locks and conditions between threads that run side by side, and
 * sleep in the system; in a stepped run only where nobody in it can wake another. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "gate.h"
#include "internal.h"
#include "lock_word.h"
#include "support.h"
#include "sync.h"

#define THREADS 4

typedef struct shared {
    weir__mutex lock;
    weir__cond cond;
    uint64_t rounds;
    uint64_t counter; /* guarded by lock, as all that follows */
    bool is_over;
} shared;

typedef struct player {
    shared *with;
    uint32_t number;
    weir__watch watch;
} player;

static void is_not_told(weir__watch *self)
{
    (void)self;
}

/* Runs it on so many threads; how often they slept for the lock. */
static uint64_t play(shared *with, uint32_t count, void *(*entry)(void *))
{
    pthread_t threads[THREADS];
    player players[THREADS];
    uint64_t sleeps = 0;
    weir__mutex_init(&with->lock, WEIR__RANK_RESOURCE);
    weir__cond_init(&with->cond);
    for (uint32_t i = 0; i < count; i++) {
        players[i] = (player){ with, i, { .tell = is_not_told } };
        must(pthread_create(&threads[i], NULL, entry, &players[i]) == 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        must(pthread_join(threads[i], NULL) == 0);
        sleeps += players[i].watch.sleeps;
    }
    weir__cond_destroy(&with->cond);
    weir__mutex_destroy(&with->lock);
    return sleeps;
}

/* Its holder lets others run, who then find it taken for longer than they look; and
 * what they do in the system is none of their callers' errors. */
static void *counts_slowly(void *argument)
{
    player *self = argument;
    shared *with = self->with;
    weir__mutex_watch(&self->watch);
    for (uint64_t i = 0; i < with->rounds; i++) {
        errno = 77;
        weir__mutex_lock(&with->lock);
        uint64_t seen = with->counter;
        for (int j = 0; j < 3; j++)
            sched_yield();
        with->counter = seen + 1;
        weir__mutex_unlock(&with->lock);
        must_equal(errno, 77);
    }
    weir__mutex_watch(NULL);
    return NULL;
}

static void all_who_sleep_get_it(void)
{
    uint64_t sleeps = 0;
    for (int tries = 0; sleeps == 0 && tries < 100; tries++) {
        shared with = {
            .rounds = support_bound("test_sync_threads.rounds", 500, 20000)
        };
        sleeps = play(&with, THREADS, counts_slowly);
        must_equal(with.counter, THREADS * with.rounds);
    }
    must(sleeps > 0);
    for (uint32_t i = 0; i < WEIR__SLEEPERS; i++)
        must_equal(atomic_load(&weir__sleepers[i]), 0);
}

/* Also where nobody can put a fence into all threads. */
static void all_who_sleep_for_a_lock_get_it(void **state)
{
    (void)state;
    all_who_sleep_get_it();
    weir__gate_force_fences(true);
    all_who_sleep_get_it();
    weir__gate_force_fences(false);
}

/* Each in turn, and whoever is not in turn waits to be told. */
static void *takes_turns(void *argument)
{
    player *self = argument;
    shared *with = self->with;
    errno = 77;
    for (uint64_t i = 0; i < with->rounds; i++) {
        weir__mutex_lock(&with->lock);
        while (with->counter % THREADS != self->number)
            weir__cond_wait(&with->cond, &with->lock);
        with->counter++;
        weir__cond_broadcast(&with->cond);
        weir__mutex_unlock(&with->lock);
    }
    must_equal(errno, 77);
    return NULL;
}

static void nobody_misses_a_broadcast(void **state)
{
    (void)state;
    shared with = { .rounds = support_bound("test_sync_threads.turns", 500, 20000) };
    (void)play(&with, THREADS, takes_turns);
    must_equal(with.counter, THREADS * with.rounds);
}

/* The first is told by nobody, and looks again after a while each time. */
static void *waits_briefly(void *argument)
{
    player *self = argument;
    shared *with = self->with;
    weir__mutex_lock(&with->lock);
    if (self->number == 0) {
        while (!with->is_over) {
            weir__cond_wait_briefly(&with->cond, &with->lock);
            with->counter++;
        }
    } else {
        while (with->counter < with->rounds) {
            weir__mutex_unlock(&with->lock);
            sched_yield();
            weir__mutex_lock(&with->lock);
        }
        with->is_over = true;
    }
    weir__mutex_unlock(&with->lock);
    return NULL;
}

static void brief_wait_ends(void **state)
{
    (void)state;
    shared with = { .rounds = 3 };
    (void)play(&with, 2, waits_briefly);
    must(with.counter >= with.rounds);
}

static uint32_t choose_first(void *unused, uint32_t count)
{
    (void)unused;
    (void)count;
    return 0;
}

static void waits_in_vain(void *argument)
{
    shared *with = argument;
    weir__mutex_lock(&with->lock);
    weir__cond_wait_for(&with->cond, &with->lock, 1);
    weir__mutex_unlock(&with->lock);
}

static void wait_ends_in_time(void **state)
{
    (void)state;
    shared with = { .rounds = 0 };
    void *arguments[] = { &with, &with };
    weir__mutex_init(&with.lock, WEIR__RANK_RESOURCE);
    weir__cond_init(&with.cond);
    waits_in_vain(&with);
    must_ok(weir__baton_run(choose_first, NULL, 1, 2, waits_in_vain, arguments));
    weir__cond_destroy(&with.cond);
    weir__mutex_destroy(&with.lock);
}

/* ---- threads that cannot be had ---- */

/* No sanitizer gets along with so little. */
#if !defined(WEIR_SANITIZE_ADDRESS) && !defined(WEIR_SANITIZE_THREAD)

enum { MANY = 64 };

/* So that there is room for some of so many, but not for all. */
static struct rlimit leave_little_room(void)
{
    struct rlimit before, little;
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    must(file != NULL && fscanf(file, "%lu", &pages) == 1);
    (void)fclose(file);
    must(getrlimit(RLIMIT_AS, &before) == 0);
    little = before;
    little.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)20 << 20);
    must(setrlimit(RLIMIT_AS, &little) == 0);
    return before;
}

static void is_counted(void *argument)
{
    atomic_fetch_add((atomic_uint *)argument, 1);
}

static void nobody_runs_if_not_all_can_start(void **state)
{
    (void)state;
    atomic_uint ran = 0;
    void *arguments[MANY];
    for (int i = 0; i < MANY; i++)
        arguments[i] = &ran;
    weir__chooser choosers[] = { choose_first, NULL };
    for (int i = 0; i < 2; i++) {
        struct rlimit before = leave_little_room();
        weir_status status =
            weir__baton_run(choosers[i], NULL, 1, MANY, is_counted, arguments);
        must(setrlimit(RLIMIT_AS, &before) == 0);
        must_equal(status, WEIR_DEVICE_ERROR);
        must_equal(atomic_load(&ran), 0);
        must_ok(weir__baton_run(choosers[i], NULL, 1, MANY, is_counted, arguments));
        must_equal(atomic_exchange(&ran, 0), MANY);
    }
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_who_sleep_for_a_lock_get_it),
        cmocka_unit_test(nobody_misses_a_broadcast),
        cmocka_unit_test(brief_wait_ends),
        cmocka_unit_test(wait_ends_in_time),
#if !defined(WEIR_SANITIZE_ADDRESS) && !defined(WEIR_SANITIZE_THREAD)
        cmocka_unit_test(nobody_runs_if_not_all_can_start),
#endif
    };
    return cmocka_run_group_tests_name("locks between threads", tests, NULL, NULL);
}
