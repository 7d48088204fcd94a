/* test_gate.c - the gate: an owner and flushers on real threads, with membarrier and
 * without it, and every way in which a stepped run can interleave them. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gate.h"
#include "internal.h"
#include "support.h"
#include "support_explore.h"
#include "sync.h"

#define WORDS    8
#define OWNERS   3
#define FLUSHERS 2

/* What a gate guards: plain words, all of one value whenever nobody is at work. */
typedef struct room {
    _Alignas(64) weir__gate gate;
    _Alignas(64) uint64_t words[WORDS];
} room;

static void room_open(room *self)
{
    memset(self, 0, sizeof *self);
    weir__gate_init(&self->gate);
}

static void room_work(room *self)
{
    uint64_t value = self->words[0];
    for (size_t i = 0; i < WORDS; i++) {
        must_equal(self->words[i], value);
        self->words[i] = value + 1;
    }
}

/* Runs `test` with membarrier, where the system has it, and with owners that fence. */
static void with_and_without_membarrier(void (*test)(void))
{
    weir__gate_force_fences(false);
    if (weir__gate_fences)
        print_message("membarrier is refused here: owners fence in all tests\n");
    test();
    weir__gate_force_fences(true);
    must(weir__gate_fences);
    test();
    weir__gate_force_fences(false);
}

/* ---- one thread ---- */

static void owner_is_refused_while_it_is_closed(void **state)
{
    (void)state;
    weir__gate gate;
    weir__gate_init(&gate);
    must(weir__gate_enter(&gate));
    weir__gate_leave(&gate);
    must(!weir__gate_is_closed(&gate));

    weir__gate_close_begin(&gate);
    must(weir__gate_is_closed(&gate));
    must(!weir__gate_enter(&gate));
    weir__gate_barrier();
    weir__gate_close_wait(&gate); /* the refused one is not inside */
    must(!weir__gate_enter(&gate));
    weir__gate_open(&gate);

    must(!weir__gate_is_closed(&gate));
    must(weir__gate_enter(&gate));
    weir__gate_leave(&gate);
}

static void owner_flushes_its_own(void **state)
{
    (void)state;
    room own;
    room_open(&own);
    for (int i = 0; i < 10; i++) {
        must(weir__gate_enter(&own.gate));
        room_work(&own);
        weir__gate_leave(&own.gate);
        weir__gate_close_begin(&own.gate);
        weir__gate_barrier();
        weir__gate_close_wait(&own.gate);
        room_work(&own);
        weir__gate_open(&own.gate);
    }
    must_equal(own.words[0], 20);
}

/* ---- real threads ---- */

typedef struct building {
    weir__mutex lock;      /* of the flushers, and of an owner that is refused */
    room rooms[OWNERS];
    uint64_t visits;       /* of each owner at least, and until all is flushed */
    uint64_t flushes;      /* guarded by the lock, as what follows */
    uint64_t refusals;
    uint64_t visits_made;
    _Atomic int64_t flushes_left;
    _Atomic uint32_t owners_left;
} building;

typedef struct actor {
    building *in;
    uint32_t number;
} actor;

static void *owner_main(void *argument)
{
    actor *self = argument;
    room *own = &self->in->rooms[self->number];
    weir__mutex_lock(&self->in->lock);
    weir__gate_init(&own->gate); /* it becomes this thread's */
    weir__mutex_unlock(&self->in->lock);
    uint64_t made = 0;
    for (; made < self->in->visits || atomic_load_explicit(&self->in->flushes_left,
                                                           memory_order_relaxed) > 0;
         made++) {
        if (weir__gate_enter(&own->gate)) {
            room_work(own);
            weir__gate_leave(&own->gate);
            continue;
        }
        weir__mutex_lock(&self->in->lock);
        self->in->refusals++;
        room_work(own);
        weir__mutex_unlock(&self->in->lock);
    }
    weir__mutex_lock(&self->in->lock);
    self->in->visits_made += made;
    weir__mutex_unlock(&self->in->lock);
    atomic_fetch_sub(&self->in->owners_left, 1);
    return NULL;
}

/* All gates with one barrier, or a single one. */
static void flush(building *self, uint32_t first, uint32_t count)
{
    weir__mutex_lock(&self->lock);
    for (uint32_t i = first; i < first + count; i++)
        weir__gate_close_begin(&self->rooms[i].gate);
    weir__gate_barrier();
    for (uint32_t i = first; i < first + count; i++)
        weir__gate_close_wait(&self->rooms[i].gate);
    for (uint32_t i = first; i < first + count; i++) {
        room_work(&self->rooms[i]);
        self->flushes++;
    }
    atomic_fetch_sub(&self->flushes_left, 1);
    for (uint32_t i = first; i < first + count; i++)
        weir__gate_open(&self->rooms[i].gate);
    weir__mutex_unlock(&self->lock);
}

static void *flusher_main(void *argument)
{
    actor *self = argument;
    uint64_t random = support_seed_in_use() + self->number;
    while (atomic_load(&self->in->owners_left) > 0) {
        if (support_random_below(&random, 2) == 0)
            flush(self->in, 0, OWNERS);
        else
            flush(self->in, (uint32_t)support_random_below(&random, OWNERS), 1);
        /* Not by yielding: owners who are always busy take the rest of their time. */
        for (uint64_t i = support_random_below(&random, 2000); i > 0; i--)
            atomic_signal_fence(memory_order_seq_cst);
    }
    return NULL;
}

static void owners_and_flushers_exclude_each_other(void)
{
    (void)support_seed(0);
    static building self;
    memset(&self, 0, sizeof self);
    weir__mutex_init(&self.lock, WEIR__RANK_RESOURCE);
    for (int i = 0; i < OWNERS; i++)
        room_open(&self.rooms[i]);
    self.visits = support_bound("visits of an owner", 1000000, 10000000);
    self.flushes_left = (int64_t)support_bound("flushes of busy owners", 100, 5000);
    self.owners_left = OWNERS;

    actor actors[OWNERS + FLUSHERS];
    pthread_t threads[OWNERS + FLUSHERS];
    for (uint32_t i = 0; i < OWNERS + FLUSHERS; i++) {
        actors[i] = (actor){ &self, i };
        must(pthread_create(&threads[i], NULL, i < OWNERS ? owner_main : flusher_main,
                            &actors[i]) == 0);
    }
    for (uint32_t i = 0; i < OWNERS + FLUSHERS; i++)
        must(pthread_join(threads[i], NULL) == 0);

    uint64_t works = 0;
    for (int i = 0; i < OWNERS; i++)
        works += self.rooms[i].words[0];
    must_equal(works, self.visits_made + self.flushes);
    print_message("%s: %llu visits, %llu flushes, %llu refusals\n",
                  weir__gate_fences ? "owners fence" : "membarrier",
                  (unsigned long long)self.visits_made,
                  (unsigned long long)self.flushes, (unsigned long long)self.refusals);
    weir__mutex_destroy(&self.lock);
}

static void state_is_never_torn(void **state)
{
    (void)state;
    with_and_without_membarrier(owners_and_flushers_exclude_each_other);
}

/* Somebody who stays inside until the gate is seen to be closed, and some more; if the
 * flusher did not wait it would most likely see what was there before. */
typedef struct guest {
    room own;
    sem_t is_inside;
    pthread_t thread;
} guest;

static void *guest_main(void *argument)
{
    guest *self = argument;
    weir__gate_init(&self->own.gate);
    must(weir__gate_enter(&self->own.gate));
    must(sem_post(&self->is_inside) == 0);
    while (!weir__gate_is_closed(&self->own.gate))
        (void)sched_yield();
    for (int i = 0; i < 100; i++)
        (void)sched_yield();
    room_work(&self->own);
    weir__gate_leave(&self->own.gate);
    return NULL;
}

static void guest_enters(guest *self)
{
    memset(self, 0, sizeof *self);
    must(sem_init(&self->is_inside, 0, 0) == 0);
    must(pthread_create(&self->thread, NULL, guest_main, self) == 0);
    while (sem_wait(&self->is_inside) != 0) {
        /* a signal handler ran */
    }
}

static void guest_is_closed_out(void *argument)
{
    guest *self = argument;
    weir__gate_close_begin(&self->own.gate);
    weir__gate_barrier();
    weir__gate_close_wait(&self->own.gate);
    must_equal(self->own.words[0], 1);
    weir__gate_open(&self->own.gate);
}

static void guest_ends(guest *self)
{
    must(pthread_join(self->thread, NULL) == 0);
    must(sem_destroy(&self->is_inside) == 0);
}

static void flusher_waits_for_an_owner_inside(void)
{
    guest self;
    guest_enters(&self);
    guest_is_closed_out(&self);
    guest_ends(&self);
}

static void close_waits_for_an_owner_inside(void **state)
{
    (void)state;
    with_and_without_membarrier(flusher_waits_for_an_owner_inside);
}

/* ---- stepped runs ---- */

typedef struct stage {
    room own;
    weir__mutex lock;  /* of flushers */
    weir__mutex inner; /* taken inside */
    bool owner_is_inside, flusher_is_inside;
    uint32_t flushes;
    uint32_t wanted;
} stage;

static void steps_through(stage *self, bool *is_inside, const bool *other_is_inside)
{
    must(!*other_is_inside);
    *is_inside = true;
    weir__mutex_lock(&self->inner);
    room_work(&self->own);
    weir__mutex_unlock(&self->inner);
    weir__yield();
    must(!*other_is_inside);
    *is_inside = false;
}

static void owner_visits(stage *self)
{
    for (int i = 0; i < 2; i++) {
        weir__yield();
        if (!weir__gate_enter(&self->own.gate))
            continue;
        steps_through(self, &self->owner_is_inside, &self->flusher_is_inside);
        weir__gate_leave(&self->own.gate);
    }
}

static void flusher_flushes(stage *self)
{
    weir__mutex_lock(&self->lock);
    weir__gate_close_begin(&self->own.gate);
    weir__yield();
    weir__gate_barrier();
    weir__gate_close_wait(&self->own.gate);
    steps_through(self, &self->flusher_is_inside, &self->owner_is_inside);
    weir__gate_open(&self->own.gate);
    self->flushes++;
    weir__mutex_unlock(&self->lock);
    weir__baton_progress();
}

/* Having left, it waits until all are flushed: they are woken by its leave. */
static void stepped_owner(void *argument)
{
    stage *self = argument;
    weir__mutex_lock(&self->lock);
    weir__gate_init(&self->own.gate);
    weir__mutex_unlock(&self->lock);
    owner_visits(self);
    while (self->flushes < self->wanted)
        must(weir__baton_wait_for_others());
}

static void stepped_flusher(void *argument)
{
    flusher_flushes(argument);
}

/* One entry for all: the first to come is the owner. */
typedef struct role {
    void *on;
    void (*play)(void *);
} role;

static void plays(void *argument)
{
    role *self = argument;
    self->play(self->on);
}

static void explore(uint32_t flushers)
{
    static explorer ways;
    ways = (explorer){ .active = true };
    if (flushers > 1)
        ways.most_switches = (uint32_t)support_bound("test_gate.switches", 3, 5);
    do {
        stage self = { .wanted = flushers };
        room_open(&self.own);
        weir__mutex_init(&self.lock, WEIR__RANK_RESOURCE);
        weir__mutex_init(&self.inner, WEIR__RANK_ORDER);
        role roles[1 + FLUSHERS] = { { &self, stepped_owner } };
        void *arguments[1 + FLUSHERS] = { &roles[0] };
        for (uint32_t i = 1; i <= flushers; i++) {
            roles[i] = (role){ &self, stepped_flusher };
            arguments[i] = &roles[i];
        }
        must_ok(weir__baton_run(explore_choose, &ways, 1, 1 + flushers, plays,
                                arguments));
        must_equal(self.flushes, flushers);
        weir__mutex_destroy(&self.inner);
        weir__mutex_destroy(&self.lock);
    } while (explore_next(&ways));
    print_message("%u flushing: %llu interleavings\n", (unsigned)flushers,
                  (unsigned long long)ways.runs);
}

static void stepped_run_passes_the_turn_to_the_owner(void **state)
{
    (void)state;
    explore(1);
    explore(FLUSHERS);
}

static uint32_t chooses_the_first(void *context, uint32_t n)
{
    (void)context;
    (void)n;
    return 0;
}

typedef struct flush_of_a_guest {
    guest of;
    bool is_done;
} flush_of_a_guest;

static void waits_for_the_flush(void *argument)
{
    flush_of_a_guest *self = argument;
    while (!self->is_done)
        must(weir__baton_wait_for_others());
}

static void flushes_the_guest(void *argument)
{
    flush_of_a_guest *self = argument;
    guest_is_closed_out(&self->of);
    self->is_done = true;
    weir__baton_progress();
}

/* An owner outside of the run needs no turn to leave; and nobody in the run is told
 * meanwhile that nobody can go on. */
static void stepped_run_waits_for_an_owner_outside(void **state)
{
    (void)state;
    flush_of_a_guest self = { .is_done = false };
    guest_enters(&self.of);
    role roles[] = { { &self, waits_for_the_flush }, { &self, flushes_the_guest } };
    void *arguments[] = { &roles[0], &roles[1] };
    must_ok(weir__baton_run(chooses_the_first, NULL, 1, 2, plays, arguments));
    guest_ends(&self.of);
}

/* ---- a system that refuses ---- */

/* From now on the process has no membarrier, as in some sandboxes. */
static bool refuse_membarrier(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1 /* EPERM */),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = { sizeof program / sizeof *program, program };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

#define CANNOT_REFUSE 77

/* Runs `what` in a child; gives how it ended. */
static int in_a_child(bool without_membarrier, void (*what)(void))
{
    fflush(NULL);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        if (without_membarrier && !refuse_membarrier())
            _exit(CANNOT_REFUSE);
        what();
        _exit(0);
    }
    int result = 0;
    must(waitpid(child, &result, 0) == child);
    if (WIFEXITED(result) && WEXITSTATUS(result) == CANNOT_REFUSE) {
        print_message("no filter of system calls can be set here\n");
        skip();
    }
    return result;
}

static void works_with_fences(void)
{
    weir__gate_force_fences(false); /* asks once more, and is refused */
    must(weir__gate_fences);
    owners_and_flushers_exclude_each_other();
}

static void refused_membarrier_lets_owners_fence(void **state)
{
    (void)state;
    int result = in_a_child(true, works_with_fences);
    must(WIFEXITED(result));
    must_equal(WEXITSTATUS(result), 0);
}

/* ---- what must stop the program ---- */

static void must_have_stopped(int result)
{
    must(WIFSIGNALED(result));
    must_equal(WTERMSIG(result), SIGABRT);
}

static void has_registered_and_is_refused(void)
{
    must(freopen("/dev/null", "w", stderr) != NULL);
    weir__gate_barrier();
}

static void later_refusal_stops(void **state)
{
    (void)state;
    weir__gate_force_fences(false);
    if (weir__gate_fences)
        skip();
    must_have_stopped(in_a_child(true, has_registered_and_is_refused));
}

static void enters_anothers(void)
{
    must(freopen("/dev/null", "w", stderr) != NULL);
    guest self;
    guest_enters(&self);
    (void)weir__gate_enter(&self.own.gate);
}

static void entering_anothers_stops(void **state)
{
    (void)state;
    must_have_stopped(in_a_child(false, enters_anothers));
}

static void takes_the_flushers_lock_inside(void *argument)
{
    stage *self = argument;
    weir__gate_init(&self->own.gate);
    must(weir__gate_enter(&self->own.gate));
    weir__yield();
    weir__mutex_lock(&self->lock);
    weir__mutex_unlock(&self->lock);
    weir__gate_leave(&self->own.gate);
}

/* The first once, and then the last for ever. */
static uint32_t chooses_the_last_after_all(void *first, uint32_t n)
{
    bool *is_first = first;
    uint32_t chosen = *is_first ? 0 : n - 1;
    *is_first = false;
    return chosen;
}

static void owner_and_flusher_want_each_others(void)
{
    must(freopen("/dev/null", "w", stderr) != NULL);
    stage self = { .wanted = 1 };
    weir__mutex_init(&self.lock, WEIR__RANK_RESOURCE);
    weir__mutex_init(&self.inner, WEIR__RANK_ORDER);
    role roles[] = { { &self, takes_the_flushers_lock_inside },
                     { &self, stepped_flusher } };
    void *arguments[] = { &roles[0], &roles[1] };
    bool is_first = true;
    (void)weir__baton_run(chooses_the_last_after_all, &is_first, 1, 2, plays,
                          arguments);
}

static void deadlock_at_a_gate_stops(void **state)
{
    (void)state;
    must_have_stopped(in_a_child(false, owner_and_flusher_want_each_others));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owner_is_refused_while_it_is_closed),
        cmocka_unit_test(owner_flushes_its_own),
        cmocka_unit_test(state_is_never_torn),
        cmocka_unit_test(close_waits_for_an_owner_inside),
        cmocka_unit_test(stepped_run_passes_the_turn_to_the_owner),
        cmocka_unit_test(stepped_run_waits_for_an_owner_outside),
        cmocka_unit_test(refused_membarrier_lets_owners_fence),
        cmocka_unit_test(later_refusal_stops),
        cmocka_unit_test(entering_anothers_stops),
        cmocka_unit_test(deadlock_at_a_gate_stops),
    };
    return cmocka_run_group_tests_name("gate", tests, NULL, NULL);
}
