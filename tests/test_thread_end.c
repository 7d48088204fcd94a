/* test_thread_end.c - what a thread keeps is handed over when it ends, and what other
 * destructors do after that works, and leaves nothing. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/emulated.h"
#include "gate.h"
#include "internal.h"
#include "support.h"
#include "sync.h"
#include "weir/weir.h"

#define THREADS 4
#define BYTES   ((size_t)1000)
/* Of destructors, but the last, which is for what looks on: a ledger, a sanitizer. The
 * thread sanitizer has ended the thread before that one begins, so under it nothing may
 * be left to tell then. */
#ifdef WEIR_SANITIZE_THREAD
#define ROUNDS  (PTHREAD_DESTRUCTOR_ITERATIONS - 2)
#else
#define ROUNDS  (PTHREAD_DESTRUCTOR_ITERATIONS - 1)
#endif

/* ---- a stand-in for caches ---- */

typedef struct keeper {
    weir_resource *mr;
    uint64_t thread;           /* that kept it */
    uint32_t ended;
    bool was_alone;            /* in the end: on that thread, which kept nothing more */
    uint32_t rounds;           /* of the other destructor */
    uint32_t rounds_after;     /* of these, behind the end */
    bool was_refused;          /* and none of these could keep anything */
} keeper;

static void ends(void *caches)
{
    keeper *self = caches;
    const weir__thread *thread = weir__thread_self();
    self->ended++;
    self->was_alone = thread->number == self->thread && thread->caches == NULL;
    give(self->mr, NULL, take(self->mr, NULL, BYTES), BYTES);
}

static void keep(keeper *self)
{
    weir__thread *thread = weir__thread_self();
    must(weir__thread_watch_exit(WEIR__KEEPS_CACHES, ends));
    self->thread = thread->number;
    thread->caches = (struct weir__thread_caches *)(void *)self;
}

static void run(void *(*entry)(void *), void *argument)
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, entry, argument) == 0);
    must(pthread_join(thread, NULL) == 0);
}

static weir_resource *open_resource(weir_device *device, const char *spec)
{
    weir_resource *mr;
    must_ok(weir_resource_open(device, spec, &mr));
    return mr;
}

/* ---- without keys ---- */

/* In a child of its own, and before anything has made a key; no device knows of it. */
static void thread_that_cannot_be_watched_is_told(void **state)
{
    (void)state;
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        pthread_key_t key;
        while (pthread_key_create(&key, NULL) == 0)
            continue;
        _exit(weir__thread_watch_exit(WEIR__KEEPS_CACHES, ends) ? 1 : 0);
    }
    int status = -1;
    must(waitpid(child, &status, 0) == child);
    must_equal(status, 0);
}

/* ---- the end ---- */

static void *keeps(void *argument)
{
    keep(argument);
    return NULL;
}

static void *keeps_and_gives_up(void *argument)
{
    keep(argument);
    weir__thread_self()->caches = NULL;
    return NULL;
}

static void thread_hands_over_what_it_kept(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    keeper self = { .mr = open_resource(device, "device") };
    run(keeps, &self);
    must_equal(self.ended, 1);
    must(self.was_alone);
    run(keeps_and_gives_up, &self);
    must_equal(self.ended, 1);
    weir_resource_unref(self.mr);
    close_emulated(device);
}

/* ---- destructors of other keys ---- */

static pthread_key_t other_key;

/* Comes again in later rounds, which are behind the end. */
static void other_destructor(void *value)
{
    keeper *self = value;
    give(self->mr, NULL, take(self->mr, NULL, BYTES), BYTES);
    if (++self->rounds == 2) /* the record of what failed has been freed by then */
        must_answer(WEIR_INVALID_ARGUMENT, weir_stream_sync(NULL, NULL));
    if (self->ended > 0) {
        self->rounds_after++;
        if (weir__thread_watch_exit(WEIR__KEEPS_CACHES, ends))
            self->was_refused = false;
    }
    if (self->rounds < ROUNDS)
        (void)pthread_setspecific(other_key, self);
}

static void *keeps_beside_another_key(void *argument)
{
    keep(argument);
    must(pthread_setspecific(other_key, argument) == 0);
    return NULL;
}

static void destructors_behind_the_end_do_without(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    keeper self = { .mr = open_resource(device, "device"), .was_refused = true };
    must(pthread_key_create(&other_key, other_destructor) == 0);
    run(keeps_beside_another_key, &self);
    must(self.rounds >= 2 && self.rounds_after >= 1);
    must_equal(self.ended, 1);
    must(self.was_alone && self.was_refused);
    must_equal(statistics_of(self.mr).out_blocks, 0);
    must(pthread_key_delete(other_key) == 0);
    weir_resource_unref(self.mr);
    close_emulated(device);
}

/* ---- what a device has for each thread ---- */

/* In all rounds, also in that in which the device is told of the thread's end. */
static void names_its_own_stream(void *value)
{
    static _Thread_local int rounds;
    must_ok(weir_stream_sync(value, WEIR_STREAM_PER_THREAD));
    if (++rounds < ROUNDS)
        (void)pthread_setspecific(other_key, value);
}

static void *has_its_own_stream(void *argument)
{
    must_ok(weir_stream_sync(argument, WEIR_STREAM_PER_THREAD));
    must(pthread_setspecific(other_key, argument) == 0);
    return NULL;
}

/* Else every such thread left the device a stream more. */
static void stream_of_a_thread_ends_with_it(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    const weir__emulated *emulated = device->ops->emulated(device->self);
    (void)device_free_bytes(device); /* makes the key that is first in each round */
    must(pthread_key_create(&other_key, names_its_own_stream) == 0);
    run(has_its_own_stream, device);
    must(emulated->own_streams == NULL);
    must(pthread_key_delete(other_key) == 0);
    close_emulated(device);
}

/* ---- pools ---- */

/* In all rounds. */
static void takes_and_gives(void *value)
{
    static _Thread_local int rounds;
    weir_resource *pool = value;
    void *first = take(pool, NULL, BYTES), *second = take(pool, NULL, BYTES);
    give(pool, NULL, second, BYTES);
    give(pool, NULL, first, BYTES);
    if (++rounds < ROUNDS)
        (void)pthread_setspecific(other_key, pool);
}

static void *uses_a_pool(void *argument)
{
    weir_resource *pool = argument;
    must(pthread_setspecific(other_key, pool) == 0);
    for (int i = 0; i < 20; i++)
        give(pool, NULL, take(pool, NULL, BYTES), BYTES);
    return NULL;
}

static void threads_that_end_leave_nothing_in_a_pool(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    size_t before = device_free_bytes(device);
    weir_resource *pool = open_resource(device, "pool/device");
    must(pthread_key_create(&other_key, takes_and_gives) == 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, uses_a_pool, pool) == 0);
    for (int i = 0; i < THREADS; i++)
        must(pthread_join(threads[i], NULL) == 0);
    must(pthread_key_delete(other_key) == 0);

    weir_resource_statistics statistics = statistics_of(pool);
    must_equal(statistics.out_blocks, 0);
    must_equal(statistics.allocations, statistics.deallocations);
    must(weir_resource_trim_sync(pool, 0) > 0);
    must_equal(statistics_of(pool).held_bytes, 0);
    must_equal(device_free_bytes(device), before);
    weir_resource_unref(pool);
    close_emulated(device);
}

/* ---- forks ---- */

/* The child's only thread ends; what it kept is the parent's. */
static void leaves_the_child(void *value)
{
    keeper *self = value;
    if (++self->rounds == 2)
        _exit(self->ended == 0 ? 0 : 1);
    (void)pthread_setspecific(other_key, self);
}

static void *keeps_and_forks(void *argument)
{
    keeper *self = argument;
    keep(self);
    pid_t child = fork();
    if (child == 0) {
        (void)pthread_setspecific(other_key, self);
        pthread_exit(NULL);
    }
    int status = -1;
    must(waitpid(child, &status, 0) == child);
    must_equal(status, 0);
    return NULL;
}

static void child_hands_nothing_over(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    keeper self = { .mr = open_resource(device, "device") };
    must(pthread_key_create(&other_key, leaves_the_child) == 0);
    run(keeps_and_forks, &self);
    must_equal(self.ended, 1);
    must(pthread_key_delete(other_key) == 0);
    weir_resource_unref(self.mr);
    close_emulated(device);
}

/* ---- stepped runs ---- */

static uint32_t chooses_the_first(void *context, uint32_t n)
{
    (void)context;
    (void)n;
    return 0;
}

static bool ended_in_turn;

static void ends_in_turn(void *caches)
{
    (void)caches;
    ended_in_turn = weir__thread_self()->baton != NULL;
}

static void keeps_in_a_run(void *argument)
{
    (void)argument;
    must(weir__thread_watch_exit(WEIR__KEEPS_CACHES, ends_in_turn));
    weir__thread_self()->caches = (struct weir__thread_caches *)(void *)&ended_in_turn;
}

/* Else what it does in its end would be done at any time of the others'. */
static void stepped_thread_ends_in_its_turn(void **state)
{
    (void)state;
    void *none[] = { NULL };
    ended_in_turn = false;
    must_ok(weir__baton_run(chooses_the_first, NULL, 1, 1, keeps_in_a_run, none));
    must(ended_in_turn);
}

/* ---- what each has of its own, be they the system's or fibers ---- */

enum { UNTOUCHED = 7 };

static _Thread_local unsigned own = UNTOUCHED;
static pthread_key_t own_key;
static atomic_uint first_ended, then_ended; /* a bit for each */

static void ends_first(void *none)
{
    (void)none;
    atomic_fetch_or(&first_ended, 1u << own);
}

static void ends_then(void *value)
{
    const unsigned *number = value;
    must_equal(own, *number);
    must(atomic_load(&first_ended) & 1u << own);
    atomic_fetch_or(&then_ended, 1u << own);
}

static void has_its_own(void *argument)
{
    const unsigned *number = argument;
    must_equal(own, UNTOUCHED);
    must(pthread_getspecific(own_key) == NULL);
    must_equal(weir_last_error().status, WEIR_OK);
    must_equal(errno, 0);
    own = *number;
    must(pthread_setspecific(own_key, number) == 0);
    weir__host_fail_at(1, false);
    must(!weir__thread_watch_first(ends_first));
    weir__host_fail_at(0, false);
    must(weir__thread_watch_first(ends_first));
    weir__failed(WEIR_INVALID_ARGUMENT, (int32_t)*number, "my own");
    errno = (int)*number;
    for (int turn = 0; turn < 3; turn++) {
        weir__yield();
        must_equal(errno, *number);
        must_equal(own, *number);
        must(pthread_getspecific(own_key) == number);
        must_equal(weir_last_error().native_code, *number);
    }
}

static uint32_t chooses_each(void *context, uint32_t n)
{
    uint32_t *choices = context;
    return (*choices)++ % n;
}

static void stepped_threads_have_their_own(void **state)
{
    (void)state;
    unsigned numbers[] = { 1, 2, 3 };
    void *arguments[] = { &numbers[0], &numbers[1], &numbers[2] };
    uint32_t choices = 0;
    atomic_store(&first_ended, 0);
    atomic_store(&then_ended, 0);
    own = 5;
    errno = 5;
    must_ok(weir__baton_run(chooses_each, &choices, 1, 3, has_its_own, arguments));
    must_equal(own, 5);
    own = UNTOUCHED;
    must(pthread_getspecific(own_key) == NULL);
    must_equal(atomic_load(&first_ended), 1u << 1 | 1u << 2 | 1u << 3);
    must_equal(atomic_load(&then_ended), 1u << 1 | 1u << 2 | 1u << 3);
}

/* Its owner ends while a flusher has it. */
typedef struct passage {
    weir__gate gate;
    bool is_owned, is_closed, is_passed;
} passage;

static void passes_once_it_is_open(passage *self)
{
    weir__gate_init(&self->gate);
    self->is_owned = true;
    weir__baton_progress();
    while (!self->is_closed)
        must(weir__baton_wait_for_others());
    while (!weir__gate_enter(&self->gate))
        weir__gate_await(&self->gate);
    self->is_passed = true;
    weir__gate_leave(&self->gate);
}

static void opens_it_again(passage *self)
{
    while (!self->is_owned)
        must(weir__baton_wait_for_others());
    weir__gate_close_begin(&self->gate);
    weir__gate_barrier();
    weir__gate_close_wait(&self->gate);
    self->is_closed = true;
    weir__baton_progress();
    weir__yield(); /* the other is refused, and waits */
    must(!self->is_passed);
    weir__gate_open(&self->gate);
    weir__yield();
    must(self->is_passed);
}

typedef struct role {
    passage *on;
    void (*play)(passage *);
} role;

static void plays(void *argument)
{
    role *self = argument;
    self->play(self->on);
}

static void refused_owner_waits_until_it_is_told(void **state)
{
    (void)state;
    passage self = { .is_owned = false };
    role roles[] = { { &self, passes_once_it_is_open }, { &self, opens_it_again } };
    void *arguments[] = { &roles[0], &roles[1] };
    must_ok(weir__baton_run(chooses_the_first, NULL, 1, 2, plays, arguments));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_that_cannot_be_watched_is_told),
        cmocka_unit_test(thread_hands_over_what_it_kept),
        cmocka_unit_test(destructors_behind_the_end_do_without),
        cmocka_unit_test(stream_of_a_thread_ends_with_it),
        cmocka_unit_test(threads_that_end_leave_nothing_in_a_pool),
        cmocka_unit_test(child_hands_nothing_over),
        cmocka_unit_test(stepped_thread_ends_in_its_turn),
        cmocka_unit_test(stepped_threads_have_their_own),
        cmocka_unit_test(refused_owner_waits_until_it_is_told),
    };
    if (!weir__key_make(&own_key, ends_then))
        return 1;
    return cmocka_run_group_tests_name("ends of threads", tests, NULL, NULL);
}
