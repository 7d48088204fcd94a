/* baton.c - host threads that take turns: of all threads in a run, one has the turn and
 * all others sleep, each on a semaphore of its own.
 *
 * The turn is lost only where the library says so (weir__yield, a lock, a wait), and
 * who is next is asked of a chooser: so the chooser's answers determine the run. All of
 * the baton's fields are guarded by the turn itself; handing it over through a
 * semaphore orders them, and all that the threads do. */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>

#include "internal.h"
#include "sync.h"
#ifdef WEIR_TESTING
#include "fibers.h"
#endif

struct weir__fiber;

typedef enum seat_state {
    SEAT_RUNNABLE,
    SEAT_BLOCKED, /* on a lock of a thread in the run */
    SEAT_WAITING, /* for a condition, or for progress */
    SEAT_ENDED
} seat_state;

typedef struct weir__baton weir__baton;

typedef struct seat {
    weir__baton *baton;
    pthread_t thread;
    uint64_t number; /* of the thread, once it has started */
    void *argument;
    sem_t turn;
    const void *what; /* it is blocked on, or waits for */
    seat_state state;
    bool alone; /* it was woken because nobody else can go on */
    bool gave_way; /* to others, and not all of them have since */
    struct weir__fiber *fiber; /* in test builds; null: it has a thread */
} seat;

struct weir__baton {
    weir__chooser choose; /* null: no turns */
    void *context;
    uint32_t patience;    /* a yield passes the turn on if 0 of so many is chosen */
    void (*entry)(void *argument);
    int processor;        /* that whoever has the turn runs on */
    bool cancelled;       /* a thread could not be started: nobody runs */
    uint32_t count;
    struct weir__fiber *home; /* the calling thread, where there are fibers */
    seat seats[];
};

/* What those wait for who wait for any progress at all. */
static const char progress_of_others;

/* ---- turns ---- */

static uint32_t seats_runnable(const weir__baton *baton)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < baton->count; i++)
        count += baton->seats[i].state == SEAT_RUNNABLE;
    return count;
}

static seat *seat_nth_in(weir__baton *baton, seat_state state, uint32_t nth)
{
    for (uint32_t i = 0; i < baton->count; i++) {
        if (baton->seats[i].state == state && nth-- == 0)
            return &baton->seats[i];
    }
    return NULL;
}

/* Somebody who can go on; if there is none, somebody who waits, and is told that
 * waiting is vain. Null: all have ended. */
static seat *seat_next(weir__baton *baton)
{
    uint32_t count = seats_runnable(baton);
    if (count > 0) {
        uint32_t nth = count == 1 ? 0 : baton->choose(baton->context, count);
        WEIR_CHECK(nth < count, "the chooser chose what was not offered");
        return seat_nth_in(baton, SEAT_RUNNABLE, nth);
    }
    seat *waiting = seat_nth_in(baton, SEAT_WAITING, 0);
    if (waiting != NULL) {
        waiting->alone = true;
        waiting->state = SEAT_RUNNABLE;
        return waiting;
    }
    WEIR_CHECK(seat_nth_in(baton, SEAT_BLOCKED, 0) == NULL,
               "deadlock: every thread of the run is blocked on a lock of another's");
    return NULL;
}

static void turn_give(seat *to)
{
    int failed = sem_post(&to->turn);
    WEIR_CHECK(!failed, "the turn could not be given");
}

static void turn_await(seat *self)
{
    while (sem_wait(&self->turn) != 0) {
        /* a signal handler ran */
    }
}

static void turn_swap(seat *self, seat *next)
{
#ifdef WEIR_TESTING
    if (next->fiber != NULL) {
        weir__fiber_go(next->fiber);
        return;
    }
#endif
    turn_give(next);
    turn_await(self);
}

static void turn_pass(seat *self)
{
    seat *next = seat_next(self->baton);
    if (next != self)
        turn_swap(self, next);
}

static seat *seat_self(void)
{
    weir__thread *thread = weir__thread_self();
    return thread->baton == NULL ? NULL : &thread->baton->seats[thread->baton_seat];
}

static bool wants_to_pass(const weir__baton *baton)
{
    return baton->patience == 1 || baton->choose(baton->context, baton->patience) == 0;
}

void weir__yield(void)
{
    seat *self = seat_self();
    if (self != NULL && wants_to_pass(self->baton))
        turn_pass(self);
}

/* ---- waiting ---- */

/* Whether the thread of that number needs a turn to go on: one that has ended its part
 * may still take locks on its way out, and wakes nobody here. */
static bool has_thread(const weir__baton *baton, uint64_t number)
{
    for (uint32_t i = 0; i < baton->count; i++) {
        if (baton->seats[i].number == number)
            return number != 0 && baton->seats[i].state != SEAT_ENDED;
    }
    return false;
}

bool weir__baton_block(const void *what, bool is_lock, uint64_t owner)
{
    seat *self = seat_self();
    WEIR_CHECK(self != NULL, "a thread without a turn would wait for one");
    if (is_lock && !has_thread(self->baton, owner))
        return false;
    self->what = what;
    self->alone = false;
    self->state = is_lock ? SEAT_BLOCKED : SEAT_WAITING;
    turn_pass(self);
    WEIR_CHECK(self->state == SEAT_RUNNABLE, "the turn went to one who cannot go on");
    return !self->alone;
}

/* Another that can go on, and has not given way; null: there is none. */
static seat *seat_beside(weir__baton *baton, const seat *self)
{
    seat *found = NULL;
    for (uint32_t left = baton->count; left > 0; left--) {
        seat *other = &baton->seats[left - 1];
        if (other != self && other->state == SEAT_RUNNABLE && !other->gave_way &&
            (found == NULL || baton->choose(baton->context, 2) == 0))
            found = other;
    }
    return found;
}

bool weir__baton_give_way(void)
{
    seat *self = seat_self();
    if (self == NULL)
        return false;
    weir__baton *baton = self->baton;
    seat *next = seat_beside(baton, self);
    if (next == NULL) {
        for (uint32_t i = 0; i < baton->count; i++)
            baton->seats[i].gave_way = false;
        return false;
    }
    self->gave_way = true;
    turn_swap(self, next);
    return true;
}

void weir__baton_wake(const void *what)
{
    seat *self = seat_self();
    if (self == NULL)
        return;
    for (uint32_t i = 0; i < self->baton->count; i++) {
        seat *other = &self->baton->seats[i];
        if ((other->state == SEAT_BLOCKED || other->state == SEAT_WAITING) &&
            other->what == what)
            other->state = SEAT_RUNNABLE;
    }
}

bool weir__baton_wait_for_others(void)
{
    return seat_self() != NULL && weir__baton_block(&progress_of_others, false, 0);
}

void weir__baton_progress(void)
{
    weir__baton_wake(&progress_of_others);
}

/* ---- a run ---- */

/* Only one runs at a time, and a turn goes to another processor in twice the time. If
 * the system will not have it so, it is as it was. */
static void stay_on(int processor)
{
    cpu_set_t only;
    CPU_ZERO(&only);
    if (processor >= 0 && processor < CPU_SETSIZE) {
        CPU_SET((size_t)processor, &only);
        (void)pthread_setaffinity_np(pthread_self(), sizeof only, &only);
    }
}

/* Until it has ended: who has the turn then. */
static seat *run_by_turns(seat *self)
{
    weir__thread *thread = weir__thread_self();
    weir__baton *baton = self->baton;
    thread->baton = baton;
    thread->baton_seat = (uint16_t)(self - baton->seats);
    self->number = thread->number;

    baton->entry(self->argument);
    weir__thread_end(); /* without a turn it would be at any time of the others' */

    thread->baton = NULL;
    self->state = SEAT_ENDED;
    return seat_next(baton);
}

static void *seat_main(void *argument)
{
    seat *self = argument;
    turn_await(self);
    if (self->baton->cancelled)
        return NULL;
    if (self->baton->choose == NULL) {
        self->baton->entry(self->argument);
        return NULL;
    }
    stay_on(self->baton->processor);
    seat *next = run_by_turns(self);
    if (next != NULL)
        turn_give(next);
    return NULL;
}

static void seat_init(seat *self, weir__baton *baton, void *argument)
{
    memset(self, 0, sizeof *self);
    self->baton = baton;
    self->argument = argument;
    self->state = SEAT_RUNNABLE;
    int failed = sem_init(&self->turn, 0, 0);
    WEIR_CHECK(!failed, "the system has no semaphore");
}

/* Starts the threads, which wait for a turn each; returns how many there are. */
static uint32_t seats_start(weir__baton *baton)
{
    for (uint32_t i = 0; i < baton->count; i++) {
        if (pthread_create(&baton->seats[i].thread, NULL, seat_main,
                           &baton->seats[i]) != 0)
            return i;
    }
    return baton->count;
}

static void seats_release(weir__baton *baton, uint32_t started)
{
    if (!baton->cancelled && baton->choose != NULL) {
        turn_give(seat_next(baton));
        return;
    }
    for (uint32_t i = 0; i < started; i++)
        turn_give(&baton->seats[i]);
}

/* How many could start, which have ended. */
static uint32_t run_threads(weir__baton *baton)
{
    uint32_t started = seats_start(baton);
    baton->cancelled = started < baton->count;
    seats_release(baton, started);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(baton->seats[i].thread, NULL);
    return started;
}

#ifdef WEIR_TESTING
static void seat_fiber(void *argument)
{
    seat *self = argument;
    if (self->baton->cancelled)
        return;
    seat *next = run_by_turns(self);
    weir__fiber_go(next != NULL ? next->fiber : self->baton->home);
}

/* The same of fibers. */
static uint32_t run_fibers(weir__baton *baton)
{
    uint32_t started = 0;
    weir__fiber *home = baton->home = weir__fiber_of_thread();
    while (home != NULL && started < baton->count) {
        seat *next = &baton->seats[started];
        next->fiber = weir__fiber_begin(home, seat_fiber, next);
        if (next->fiber == NULL)
            break;
        started++;
    }
    baton->cancelled = started < baton->count;
    if (!baton->cancelled)
        weir__fiber_go(seat_next(baton)->fiber);
    for (uint32_t i = 0; i < started; i++)
        weir__fiber_end(baton->seats[i].fiber);
    if (home != NULL)
        weir__fiber_end(home);
    return started;
}
#endif

weir_status weir__baton_run(weir__chooser choose, void *context, uint32_t patience,
                            size_t count, void (*entry)(void *argument),
                            void *const arguments[])
{
    if (weir__thread_self()->baton != NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "a thread of a stepped run cannot begin another run");
    if (count > UINT16_MAX)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%zu threads are too many", count);
    if (count == 0)
        return WEIR_OK;
    weir__baton *baton = weir__host_alloc(sizeof *baton + count * sizeof(seat));
    if (baton == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for %zu threads", count);
    *baton = (weir__baton){ .choose = choose, .context = context, .entry = entry,
                            .patience = patience, .processor = sched_getcpu(),
                            .count = (uint32_t)count };
    for (uint32_t i = 0; i < baton->count; i++)
        seat_init(&baton->seats[i], baton, arguments[i]);

    uint32_t started;
#ifdef WEIR_TESTING
    if (choose != NULL && weir__fibers_are_on())
        started = run_fibers(baton);
    else
#endif
        started = run_threads(baton);

    bool ran = !baton->cancelled;
    for (uint32_t i = 0; i < baton->count; i++)
        sem_destroy(&baton->seats[i].turn);
    weir__host_free(baton);
    return ran ? WEIR_OK
               : weir__fail(WEIR_DEVICE_ERROR, "only %u of %zu threads could start",
                            (unsigned)started, count);
}
