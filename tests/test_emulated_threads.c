/* test_emulated_threads.c - host threads on an emulated device: runs by turns and side
 * by side, signals, waits for each other; and what the device tells the ledger. */
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "internal.h"
#include "support_explore.h"
#include "support_work.h"

#define THREADS 3

typedef struct stage {
    weir_device *device;
    work_log log;
    weir_stream streams[THREADS];
    uint64_t gate;
    void *memory;
    weir_event event;
    size_t refused; /* by whoever has the turn */
    bool is_quiet;
} stage;

typedef struct actor {
    stage *on;
    unsigned number;
} actor;

static void play(stage *self, unsigned count, void (*entry)(void *))
{
    actor actors[THREADS];
    void *arguments[THREADS];
    for (unsigned i = 0; i < count; i++) {
        actors[i] = (actor){ self, i };
        arguments[i] = &actors[i];
    }
    must_ok(weir_emulated_run_threads(self->device, count, entry, arguments));
}

static stage *stage_open(weir_device *device)
{
    static stage self;
    memset(&self, 0, sizeof self);
    work_log_begin(&self.log);
    self.device = device;
    for (int i = 0; i < THREADS; i++)
        self.streams[i] = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir__malloc(device, 4096, &self.memory));
    self.event = raw_event(device);
    return &self;
}

static void stage_close(stage *self, void (*close)(weir_device *))
{
    must_ok(weir__device_sync(self->device));
    raw_event_end(self->device, self->event);
    must_ok(weir__free(self->device, self->memory));
    for (int i = 0; i < THREADS; i++)
        raw_stream_end(self->device, self->streams[i]);
    close(self->device);
}

/* ---- runs ---- */

static void work_and_wait(void *argument)
{
    actor *self = argument;
    for (int i = 0; i < 4; i++) {
        /* Each has names of its own: the log's slots are taken with the turn. */
        work_put(self->on->device, self->on->streams[self->number], &self->on->log,
                 (char)('a' + self->number));
        if (i == 1)
            raw_sync_stream(self->on->device, self->on->streams[self->number]);
    }
}

static void run_of_threads_is_the_same_for_the_same_seed(void **state)
{
    (void)state;
    char first[WORK_LOG_MAX + 1], before[WORK_LOG_MAX + 1] = "";
    unsigned different = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        for (int again = 0; again < 2; again++) {
            stage *self = stage_open(open_stepped(support_seed(seed)));
            play(self, THREADS, work_and_wait);
            must_ok(weir__device_sync(self->device));
            if (again == 1)
                must_have_run(&self->log, first);
            for (size_t i = 0; i <= WORK_LOG_MAX; i++)
                first[i] = atomic_load(&self->log.names[i]);
            must_equal(strlen(first), 4 * THREADS);
            stage_close(self, close_emulated);
        }
        different += strcmp(first, before) != 0;
        memcpy(before, first, sizeof first);
    }
    must(different >= 18);
}

static _Atomic unsigned ran_last, changes;

static void notes_itself(void *argument)
{
    const actor *self = argument;
    for (int i = 0; i < 50; i++) {
        changes += atomic_exchange(&ran_last, self->number) != self->number;
        weir__yield();
    }
}

/* By the seed, as weir_emulated_run_threads says: what goes wrong only where one does
 * much while another stands still is found, and what needs a change at each step. */
static void threads_change_often_or_rarely(void **state)
{
    (void)state;
    unsigned before = UINT_MAX;
    for (uint64_t kind = 0; kind < 4; kind++) {
        changes = 0;
        for (uint64_t seed = kind; seed < 80; seed += 4) {
            stage *self = stage_open(open_stepped(seed));
            play(self, 2, notes_itself);
            stage_close(self, close_emulated);
        }
        must(changes < before / 2);
        before = changes;
    }
    must(changes >= 20);
}

static void put_one(void *argument)
{
    actor *self = argument;
    weir_stream stream = self->on->streams[0];
    work_put(self->on->device, stream, &self->on->log, (char)('a' + self->number));
}

/* Two threads put work on one stream: a chooser that tries everything meets both
 * orders, and nothing else. */
static void exploring_finds_both_orders_of_two_calls(void **state)
{
    (void)state;
    static explorer ways;
    unsigned found = 0;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.choose = explore_choose;
    emulated.choose_context = &ways;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    ways.most_switches = 2;
    do {
        stage *self = stage_open(open_with("emulated:0", &options));
        ways.active = true;
        play(self, 2, put_one);
        ways.active = false;
        must_ok(weir__device_sync(self->device));
        found |= has_run(&self->log, 'a') && self->log.names[0] == 'a' ? 1 : 2;
        must_equal(atomic_load(&self->log.length), 2);
        stage_close(self, close_emulated);
    } while (explore_next(&ways));
    must_equal(found, 3);
}

static void open_the_gate(stage *self)
{
    raw_open_gate(self->device, self->gate);
}

static void wait_or_open(void *argument)
{
    actor *self = argument;
    if (self->number == 0) {
        raw_sync_stream(self->on->device, self->on->streams[0]);
        must(has_run(&self->on->log, 'x'));
    } else if (self->number == 1) {
        must_ok(weir__device_sync(self->on->device));
    } else {
        open_the_gate(self->on);
    }
}

/* Two wait, and the third opens the gate: nobody is told of a deadlock. */
static void waits_let_others_go_on(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        bool threads = seed == 0;
        stage *self = stage_open(threads ? open_threads() : open_stepped(seed));
        self->gate = raw_stall(self->device, self->streams[0]);
        work_put(self->device, self->streams[0], &self->log, 'x');
        play(self, THREADS, wait_or_open);
        must_have_run(&self->log, "x");
        stage_close(self, close_emulated);
    }
}

static void open_and_await(void *argument)
{
    actor *self = argument;
    if (self->number == 0) {
        open_the_gate(self->on);
        must_ok(weir_emulated_host_await(self->on->device, 5));
    } else {
        raw_sync_stream(self->on->device, self->on->streams[0]);
        must_ok(weir_emulated_host_signal(self->on->device, 5));
    }
}

/* Who opens a gate may then wait for what that lets another thread do. */
static void opening_a_gate_wakes_who_waits(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        stage *self = stage_open(open_stepped(support_seed(seed)));
        self->gate = raw_stall(self->device, self->streams[0]);
        play(self, 2, open_and_await);
        stage_close(self, close_emulated);
    }
}

static void wait_in_vain(void *argument)
{
    actor *self = argument;
    weir_status status = self->number == 0
                             ? weir__stream_sync(self->on->device, self->on->streams[0])
                             : weir_emulated_host_await(self->on->device, 77);
    must(status == WEIR_DEVICE_ERROR);
    must(strstr(weir_last_error().message, "deadlock") != NULL);
    self->on->refused++;
}

static void waits_in_vain_are_told_in_a_run(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++) {
        stage *self = stage_open(open_stepped(support_seed(seed)));
        self->gate = raw_stall(self->device, self->streams[0]);
        must_ok(weir_emulated_host_signal(self->device, 78)); /* not what they await */
        play(self, THREADS, wait_in_vain);
        must_equal(self->refused, THREADS);
        raw_open_gate(self->device, self->gate);
        stage_close(self, close_emulated);
    }
}

static void run_in_a_run(void *argument)
{
    actor *self = argument;
    weir_device *device = self->on->device;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_emulated_run_threads(device, 1, run_in_a_run, &argument));
    self->on->refused++;
}

static void runs_do_not_nest(void **state)
{
    (void)state;
    stage *self = stage_open(open_stepped(0));
    play(self, 1, run_in_a_run);
    must_equal(self->refused, 1);
    must_ok(weir_emulated_run_threads(self->device, 0, run_in_a_run, NULL));
    stage_close(self, close_emulated);
}

/* ---- what the ledger is told ---- */

static void see_nothing(void *argument, void *const views[])
{
    (void)argument;
    (void)views;
}

static void touch(stage *self, unsigned stream, weir_emulated_access access)
{
    const weir_emulated_range range = { self->memory, 4096, access };
    must_ok(weir_emulated_launch(self->device, self->streams[stream], see_nothing, NULL,
                                 &range, 1));
}

/* Writes on stream 0, then lets `order` order stream 1 behind it, or not, and reads
 * there; returns how many findings that made. */
static size_t findings_of(weir_emulated_scheduler scheduler, void (*order)(stage *self))
{
    stage *self = stage_open(open_emulated(scheduler, 7));
    touch(self, 0, WEIR_EMULATED_WRITE);
    order(self);
    touch(self, 1, WEIR_EMULATED_READ);
    size_t findings = weir_emulated_findings(self->device);
    stage_close(self, close_anyhow);
    return findings;
}

static void by_nothing(stage *self)
{
    (void)self;
}

static void by_an_event(stage *self)
{
    raw_record(self->device, self->event, self->streams[0]);
    raw_wait_event(self->device, self->streams[1], self->event);
}

static void by_an_event_too_early(stage *self)
{
    raw_record(self->device, self->event, self->streams[0]);
    touch(self, 0, WEIR_EMULATED_WRITE);
    raw_wait_event(self->device, self->streams[1], self->event);
}

static void by_a_record_alone(stage *self)
{
    raw_record(self->device, self->event, self->streams[0]);
}

static void by_stream_sync(stage *self)
{
    raw_sync_stream(self->device, self->streams[0]);
}

static void by_event_sync(stage *self)
{
    raw_record(self->device, self->event, self->streams[0]);
    must_ok(weir__event_sync(self->device, self->event));
}

static void by_device_sync(stage *self)
{
    must_ok(weir__device_sync(self->device));
}

static void by_a_stream_query(stage *self)
{
    bool done = false;
    while (!done)
        must_ok(weir__stream_query(self->device, self->streams[0], &done));
}

static void by_an_event_query(stage *self)
{
    raw_record(self->device, self->event, self->streams[0]);
    while (!raw_event_is_done(self->device, self->event)) {
        /* asked until the answer is yes */
    }
}

static void by_a_wait_for_another(stage *self)
{
    raw_sync_stream(self->device, self->streams[2]);
}

static void ledger_hears_of_every_edge(void **state)
{
    (void)state;
    static void (*const quiet[])(stage *) = {
        by_an_event, by_stream_sync, by_event_sync, by_device_sync, by_a_stream_query,
        by_an_event_query
    };
    static void (*const found[])(stage *) = {
        by_nothing, by_an_event_too_early, by_a_record_alone, by_a_wait_for_another
    };
    for (int scheduler = 0; scheduler < 2; scheduler++) {
        for (size_t i = 0; i < sizeof quiet / sizeof quiet[0]; i++)
            must_equal(findings_of((weir_emulated_scheduler)scheduler, quiet[i]), 0);
        for (size_t i = 0; i < sizeof found / sizeof found[0]; i++)
            must_equal(findings_of((weir_emulated_scheduler)scheduler, found[i]), 1);
    }
}

static void count_finding(void *context, const weir_emulated_finding *finding)
{
    must(finding->bytes == 4096);
    ++*(unsigned *)context;
}

static void findings_can_be_read(void **state)
{
    (void)state;
    unsigned told = 0;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.on_finding = count_finding;
    emulated.finding_context = &told;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    stage *self = stage_open(open_with("emulated:0", &options));
    uint64_t first = raw_id_of(self->device, self->streams[0]);
    weir_emulated_finding finding = { .struct_size = sizeof finding };
    touch(self, 0, WEIR_EMULATED_WRITE);
    touch(self, 1, WEIR_EMULATED_READ_WRITE);
    must_equal(weir_emulated_findings(self->device), 1);
    must_equal(told, 1);
    must_ok(weir_emulated_get_finding(self->device, 0, &finding));
    must_equal(finding.first_stream, first);
    must_equal(finding.second_stream, first + 1);
    must_equal(finding.ptr, (uintptr_t)self->memory);
    must(strcmp(finding.first, "kernel writes") == 0);
    must(strlen(finding.message) > 20);
    must_answer(WEIR_NOT_FOUND, weir_emulated_get_finding(self->device, 1, &finding));
    must_equal(finding.bytes, 0);

    for (int i = 0; i < 100; i++)
        touch(self, i % 2 == 0 ? 0 : 1, WEIR_EMULATED_WRITE);
    must(weir_emulated_findings(self->device) > 64);
    must_ok(weir_emulated_get_finding(self->device, 63, &finding));
    must_answer(WEIR_NOT_FOUND, weir_emulated_get_finding(self->device, 64, &finding));
    stage_close(self, close_anyhow);
}

/* ---- hand-overs between host threads ---- */

/* One writes, waits, and signals; the other awaits, and reads on another stream.
 * Without the signal nothing orders the two for the ledger, whatever the turns were. */
static void hand_over(void *argument)
{
    actor *self = argument;
    stage *on = self->on;
    if (self->number == 0) {
        touch(on, 0, WEIR_EMULATED_WRITE);
        raw_sync_stream(on->device, on->streams[0]);
        if (on->is_quiet)
            must_ok(weir_emulated_host_signal(on->device, 1));
    } else {
        if (on->is_quiet)
            must_ok(weir_emulated_host_await(on->device, 1));
        touch(on, 1, WEIR_EMULATED_WRITE);
    }
}

static void signals_hand_over(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        stage *self = stage_open(seed < 10 ? open_threads() : open_stepped(seed));
        self->is_quiet = seed % 2 == 0;
        play(self, 2, hand_over);
        must_equal(weir_emulated_findings(self->device), self->is_quiet ? 0 : 1);
        stage_close(self, close_anyhow);
    }
}

static void signals_are_counted_by_channel(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    must_ok(weir_emulated_host_signal(device, 1));
    must_ok(weir_emulated_host_signal(device, 2));
    must_ok(weir_emulated_host_signal(device, 1));
    must_ok(weir_emulated_host_await(device, 1));
    must_ok(weir_emulated_host_await(device, 1));
    must_ok(weir_emulated_host_await(device, 2));
    must_ok(weir_emulated_host_signal(device, 3)); /* for nobody: freed at the end */
    close_emulated(device);
}

static void write_and_wait(void *argument)
{
    actor *self = argument;
    touch(self->on, 1, WEIR_EMULATED_WRITE);
    raw_sync_stream(self->on->device, self->on->streams[1]);
}

typedef struct bystander {
    weir_device *device;
    sem_t met, leave;
} bystander;

/* A thread that knows nothing of what others do, as long as it lives. */
static void *stand_by(void *argument)
{
    bystander *self = argument;
    raw_sync_stream(self->device, NULL);
    sem_post(&self->met);
    sem_wait(&self->leave);
    return NULL;
}

static void bystander_begin(bystander *self, weir_device *device, pthread_t *thread)
{
    self->device = device;
    must(sem_init(&self->met, 0, 0) == 0 && sem_init(&self->leave, 0, 0) == 0);
    must(pthread_create(thread, NULL, stand_by, self) == 0);
    sem_wait(&self->met);
}

static void bystander_end(bystander *self, pthread_t thread)
{
    sem_post(&self->leave);
    pthread_join(thread, NULL);
    sem_destroy(&self->met);
    sem_destroy(&self->leave);
}

/* All that the caller did happens before the run, and the run before its return. The
 * bystander keeps the ledger from forgetting what all threads know. */
static void runs_hand_over_at_both_ends(void **state)
{
    (void)state;
    for (int scheduler = 0; scheduler < 2; scheduler++) {
        stage *self = stage_open(open_emulated((weir_emulated_scheduler)scheduler, 3));
        bystander other;
        pthread_t thread;
        bystander_begin(&other, self->device, &thread);
        touch(self, 0, WEIR_EMULATED_WRITE);
        raw_sync_stream(self->device, self->streams[0]);
        play(self, 1, write_and_wait);
        touch(self, 2, WEIR_EMULATED_WRITE);
        bystander_end(&other, thread);
        stage_close(self, close_emulated); /* finds nothing */
    }
}

static void *end_quietly(void *argument)
{
    raw_sync_stream(argument, WEIR_STREAM_PER_THREAD);
    return NULL;
}

static void threads_leave_memory_flat(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    size_t live = 0;
    for (int i = 0; i < 300; i++) {
        pthread_t thread;
        must(pthread_create(&thread, NULL, end_quietly, device) == 0);
        pthread_join(thread, NULL);
        if (i == 100)
            live = weir__host_live();
    }
    must(weir__host_live() <= live + 20);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_of_threads_is_the_same_for_the_same_seed),
        cmocka_unit_test(threads_change_often_or_rarely),
        cmocka_unit_test(exploring_finds_both_orders_of_two_calls),
        cmocka_unit_test(waits_let_others_go_on),
        cmocka_unit_test(opening_a_gate_wakes_who_waits),
        cmocka_unit_test(waits_in_vain_are_told_in_a_run),
        cmocka_unit_test(runs_do_not_nest),
        cmocka_unit_test(ledger_hears_of_every_edge),
        cmocka_unit_test(findings_can_be_read),
        cmocka_unit_test(signals_hand_over),
        cmocka_unit_test(signals_are_counted_by_channel),
        cmocka_unit_test(runs_hand_over_at_both_ends),
        cmocka_unit_test(threads_leave_memory_flat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
