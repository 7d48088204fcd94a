/* test_outside.c - a thread outside of a stepped run that has what one in the run waits
 * for, and itself waits for another one of the run: that has to have its turn. */
#include <pthread.h>
#include <sched.h>

#include "gate.h"
#include "support.h"
#include "sync.h"

typedef struct scene {
    weir__mutex lock;
    weir__gate gate;
    atomic_bool is_held;   /* the lock, or the gate: by the thread outside */
    atomic_uint is_wanted; /* by so many of the run */
    atomic_bool is_helped; /* by its last */
} scene;

typedef struct part {
    scene *it;
    void (*play)(scene *it);
} part;

static void play(void *argument)
{
    part *self = argument;
    self->play(self->it);
}

static uint32_t choose_the_first(void *context, uint32_t n)
{
    (void)context;
    (void)n;
    return 0;
}

static void help(scene *it)
{
    must(atomic_load(&it->is_wanted) > 0); /* else there is nothing to see */
    atomic_store(&it->is_helped, true);
}

static void wait_for(atomic_bool *flag)
{
    while (!atomic_load(flag))
        sched_yield();
}

#define WANT_MOST 3u

/* `hold` runs outside; in the run so many want what that has, and then one helps it. */
static void play_beside(scene *it, void *(*hold)(void *), void (*want)(scene *),
                        size_t wanting)
{
    pthread_t outside;
    part parts[WANT_MOST + 1];
    void *arguments[WANT_MOST + 1];
    for (size_t i = 0; i <= wanting; i++) {
        parts[i] = (part){ it, i == wanting ? help : want };
        arguments[i] = &parts[i];
    }
    must(pthread_create(&outside, NULL, hold, it) == 0);
    wait_for(&it->is_held);
    must_ok(weir__baton_run(choose_the_first, NULL, 1, wanting + 1, play, arguments));
    must(pthread_join(outside, NULL) == 0);
    must(atomic_load(&it->is_helped));
}

static void *hold_lock(void *argument)
{
    scene *it = argument;
    weir__mutex_lock(&it->lock);
    atomic_store(&it->is_held, true);
    wait_for(&it->is_helped);
    weir__mutex_unlock(&it->lock);
    return NULL;
}

static void want_lock(scene *it)
{
    atomic_fetch_add(&it->is_wanted, 1);
    weir__mutex_lock(&it->lock);
    weir__mutex_unlock(&it->lock);
}

static void holder_of_a_lock_may_wait_for_the_run(void **state)
{
    (void)state;
    for (size_t wanting = 1; wanting <= WANT_MOST; wanting++) {
        scene it = { .is_held = false };
        weir__mutex_init(&it.lock, WEIR__RANK_LEAF); /* where no turn is lost before */
        play_beside(&it, hold_lock, want_lock, wanting);
        weir__mutex_destroy(&it.lock);
    }
}

static void *be_inside(void *argument)
{
    scene *it = argument;
    weir__gate_init(&it->gate);
    must(weir__gate_enter(&it->gate));
    atomic_store(&it->is_held, true);
    wait_for(&it->is_helped);
    weir__gate_leave(&it->gate);
    return NULL;
}

static void close_gate(scene *it)
{
    atomic_fetch_add(&it->is_wanted, 1);
    weir__gate_close_begin(&it->gate);
    weir__gate_barrier();
    weir__gate_close_wait(&it->gate);
    weir__gate_open(&it->gate);
}

static void owner_of_a_gate_may_wait_for_the_run(void **state)
{
    (void)state;
    scene it = { .is_held = false };
    play_beside(&it, be_inside, close_gate, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holder_of_a_lock_may_wait_for_the_run),
        cmocka_unit_test(owner_of_a_gate_may_wait_for_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
