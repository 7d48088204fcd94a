/* emulated_schedule.c - who runs what when, in the three ways that a device can work.
 *
 * threads   Each queue has a worker from its first work on; it sleeps on the queue's
 *           own condition, runs work without the device's lock, and ends when the queue
 *           is empty and has no handle any more.
 * stepped   Host threads do the work, with the lock, while they wait or ask: each
 *           step is the first work of one queue that can go on, chosen by the seed. A
 *           wait that finds none lets other threads of the run go on, and fails if that
 *           is vain. As on a real device there is a bound to the work that is pending:
 *           behind it, putting more makes the queue step that has had work for longest.
 * no work   Nothing is kept; a host wait moves `done` forward.
 *
 * What another process has done nobody tells: who waits for that looks again every
 * millisecond (a worker whose first work waits; a host thread that waits and finds
 * nothing else to do). Without work only the host waits for other processes. */
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "device/emulated_shared.h"

/* How much work a stepped device lets lie. */
#define PENDING_MAX 1024

typedef struct weir__worker {
    weir__queue *queue; /* counted while it lives */
    pthread_t thread;
    struct weir__worker *next;
} weir__worker;

/* ---- choices ---- */

/* SplitMix64: small, and good enough to pick streams. */
static uint64_t random_next(weir__emulated *device)
{
    uint64_t z = atomic_fetch_add(&device->random, UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint32_t weir__emulated_choose(void *device, uint32_t n)
{
    weir__emulated *self = device;
    WEIR_CHECK(n >= 2, "a choice among less than two");
    if (self->options.choose == NULL)
        return (uint32_t)(random_next(self) % n);
    uint32_t chosen = self->options.choose(self->options.choose_context, n);
    WEIR_CHECK(chosen < n, "the device's chooser chose what was not offered");
    return chosen;
}

/* ---- what can go on ---- */

static const weir__position *dependency_open(const weir__work *work)
{
    for (size_t i = 0; i < work->dependency_count; i++) {
        const weir__position *on = &work->dependencies[i];
        if (on->foreign != NULL ||
            (on->queue != NULL && on->queue->done < on->position))
            return on;
    }
    return NULL;
}

static bool gate_is_closed(const weir__emulated *device, const weir__work *work)
{
    return work->kind == WEIR__WORK_GATE && !work->gate_is_open &&
           !device->gates_are_open;
}

static bool is_ready(const weir__queue *queue)
{
    const weir__work *work = queue->first;
    return work != NULL && !queue->is_running &&
           !gate_is_closed(queue->device, work) && dependency_open(work) == NULL;
}

/* Looks what other processes have done. */
static void foreign_look(weir__emulated *device)
{
    weir__queue *queue = device->awaited > 0 ? device->active : NULL;
    for (; queue != NULL; queue = queue->next)
        (void)weir__work_look(device, queue->first);
}

void weir__schedule_changed(weir__emulated *device)
{
    weir__cond_broadcast(&device->changed);
    weir__baton_progress();
    if (device->options.scheduler != WEIR_EMULATED_THREADS)
        return;
    for (weir__queue *queue = device->active; queue != NULL; queue = queue->next) {
        if (is_ready(queue))
            weir__cond_broadcast(&queue->wake);
    }
}

/* ---- workers ---- */

static void worker_run(weir__queue *queue)
{
    weir__emulated *device = queue->device;
    const weir__work *work = queue->first;
    queue->is_running = true;
    device->running++;
    weir__mutex_unlock(&device->lock);
    weir__work_run(work);
    weir__mutex_lock(&device->lock);
    device->running--;
    queue->is_running = false;
    weir__queue_finish(queue);
}

static void *worker_main(void *argument)
{
    weir__worker *self = argument;
    weir__queue *queue = self->queue;
    weir__emulated *device = queue->device;

    weir__mutex_lock(&device->lock);
    while (queue->first != NULL || !queue->is_detached) {
        bool is_held = queue->first != NULL && weir__work_look(device, queue->first);
        if (is_ready(queue))
            worker_run(queue);
        else if (is_held)
            weir__cond_wait_briefly(&queue->wake, &device->lock);
        else
            weir__cond_wait(&queue->wake, &device->lock);
    }
    queue->has_worker = false;
    weir__queue_unref(queue);
    self->next = device->ended;
    device->ended = self;
    device->workers--;
    weir__cond_broadcast(&device->changed);
    weir__mutex_unlock(&device->lock);
    return NULL;
}

/* Joins workers that have ended. They hold no lock any more, and want none. */
static void workers_join(weir__emulated *device)
{
    while (device->ended != NULL) {
        weir__worker *worker = device->ended;
        device->ended = worker->next;
        pthread_join(worker->thread, NULL);
        weir__host_free(worker);
    }
}

/* Signals are for the program's own threads. */
static int thread_start(weir__worker *worker)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&worker->thread, NULL, worker_main, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

weir_status weir__schedule_worker(weir__queue *queue)
{
    weir__emulated *device = queue->device;
    if (device->options.scheduler != WEIR_EMULATED_THREADS || queue->has_worker)
        return WEIR_OK;
    workers_join(device);
    weir__worker *worker = weir__host_alloc(sizeof *worker);
    if (worker == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a stream's worker");
    worker->queue = weir__queue_ref(queue);
    int failed = thread_start(worker);
    if (failed) {
        weir__queue_unref(queue);
        weir__host_free(worker);
        return weir__fail_native(WEIR_DEVICE_ERROR, failed,
                                 "no thread could be started for a stream's work");
    }
    queue->has_worker = true;
    device->workers++;
    return WEIR_OK;
}

/* ---- steps ---- */

static uint32_t ready_count(const weir__emulated *device)
{
    uint32_t count = 0;
    for (const weir__queue *queue = device->active; queue; queue = queue->next)
        count += is_ready(queue);
    return count;
}

static weir__queue *ready_nth(const weir__emulated *device, uint32_t nth)
{
    weir__queue *queue = device->active;
    while (!is_ready(queue) || nth-- > 0)
        queue = queue->next;
    return queue;
}

static void queue_step(weir__queue *queue)
{
    weir__work_run(queue->first);
    weir__queue_finish(queue);
}

bool weir__schedule_step(weir__emulated *device)
{
    foreign_look(device);
    uint32_t count = ready_count(device);
    if (count == 0)
        return false;
    uint32_t nth = count == 1 ? 0 : weir__emulated_choose(device, count);
    queue_step(ready_nth(device, nth));
    return true;
}

void weir__schedule_put(weir__queue *queue)
{
    weir__emulated *device = queue->device;
    if (device->options.scheduler == WEIR_EMULATED_THREADS)
        weir__cond_broadcast(&queue->wake);
}

void weir__schedule_make_room(weir__emulated *device)
{
    if (device->options.scheduler != WEIR_EMULATED_STEPPED ||
        device->pending < PENDING_MAX)
        return;
    foreign_look(device);
    weir__queue *queue = device->active;
    while (queue != NULL && !is_ready(queue))
        queue = queue->next;
    if (queue != NULL)
        queue_step(queue);
}

/* ---- waiting and asking ---- */

bool weir__position_is_done(weir__emulated *device, weir__position position)
{
    if (position.foreign != NULL)
        return weir__shared_state_is_done(position.foreign, position.position);
    if (position.queue != NULL && position.queue->done >= position.position)
        return true;
    if (device->options.scheduler == WEIR_EMULATED_NO_WORK)
        return position.issue <= device->waited_issue;
    if (position.queue != NULL)
        return false;
    for (const weir__queue *queue = device->active; queue; queue = queue->next) {
        if (queue->first->issue <= position.issue)
            return false;
    }
    return true;
}

bool weir__schedule_query(weir__emulated *device, weir__position position)
{
    bool is_stepped = device->options.scheduler == WEIR_EMULATED_STEPPED;
    for (int steps = 0; steps < 3 && is_stepped; steps++) {
        foreign_look(device);
        if (weir__position_is_done(device, position) || ready_count(device) == 0 ||
            weir__emulated_choose(device, 2) == 0)
            break;
        weir__schedule_step(device);
    }
    return weir__position_is_done(device, position);
}

/* Follows what holds a wait for `position` up to where it all hangs: without workers,
 * and with nothing that can go on, that is a closed gate. Null: another process. */
static const weir__queue *find_end(const weir__emulated *device,
                                   weir__position position)
{
    if (position.foreign != NULL)
        return NULL;
    const weir__queue *queue = position.queue != NULL ? position.queue : device->active;
    while (queue != NULL && !gate_is_closed(device, queue->first)) {
        const weir__position *on = dependency_open(queue->first);
        WEIR_CHECK(on != NULL, "a wait found nothing to do, and nothing in its way");
        queue = on->queue;
    }
    return queue;
}

static weir_status fail_deadlock(const weir__emulated *device, weir__position awaited,
                                 const weir__queue *end)
{
    const weir__queue *queue = awaited.queue != NULL ? awaited.queue : device->active;
    return weir__fail_native(
        WEIR_DEVICE_ERROR, WEIR__NATIVE_DEADLOCK,
        "deadlock: the host waits for stream %llu, and nobody is left to open gate "
        "%llu, at which stream %llu waits",
        (unsigned long long)queue->id, (unsigned long long)end->first->gate,
        (unsigned long long)end->id);
}

/* Nothing can go on here that a wait for `position` would need. */
static weir_status wait_for_foreign(weir__emulated *device, weir__position position)
{
    const weir__queue *end = find_end(device, position);
    if (end != NULL)
        return fail_deadlock(device, position, end);
    weir__cond_wait_briefly(&device->changed, &device->lock);
    return device->is_lost ? weir__emulated_refuse_lost(device) : WEIR_OK;
}

static weir_status wait_stepped(weir__emulated *device, weir__position position)
{
    while (!weir__position_is_done(device, position)) {
        bool stepped = weir__schedule_step(device);
        weir__mutex_unlock(&device->lock);
        bool go_on = stepped || weir__baton_wait_for_others();
        weir__mutex_lock(&device->lock);
        if (device->is_lost)
            return weir__emulated_refuse_lost(device);
        if (go_on || weir__position_is_done(device, position) ||
            ready_count(device) > 0)
            continue;
        weir_status status = wait_for_foreign(device, position);
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}

static weir_status wait_for_workers(weir__emulated *device, weir__position position)
{
    while (!weir__position_is_done(device, position)) {
        if (position.foreign != NULL)
            weir__cond_wait_briefly(&device->changed, &device->lock);
        else
            weir__cond_wait(&device->changed, &device->lock);
        if (device->is_lost)
            return weir__emulated_refuse_lost(device);
    }
    return WEIR_OK;
}

static weir_status wait_without_work(weir__emulated *device, weir__position position)
{
    if (position.foreign != NULL)
        return wait_for_workers(device, position); /* which are the other process's */
    if (position.queue == NULL)
        device->waited_issue = position.issue;
    else if (position.queue->done < position.position)
        position.queue->done = position.position;
    return WEIR_OK;
}

weir_status weir__schedule_wait(weir__emulated *device, weir__position position)
{
    switch (device->options.scheduler) {
    case WEIR_EMULATED_THREADS: return wait_for_workers(device, position);
    case WEIR_EMULATED_STEPPED: return wait_stepped(device, position);
    case WEIR_EMULATED_NO_WORK: break;
    }
    return wait_without_work(device, position);
}

void weir__schedule_drain(weir__emulated *device)
{
    device->gates_are_open = true;
    weir__schedule_changed(device);
    bool is_stepped = device->options.scheduler == WEIR_EMULATED_STEPPED;
    while (is_stepped && (weir__schedule_step(device) || device->awaited > 0)) {
        if (ready_count(device) == 0 && device->awaited > 0)
            weir__cond_wait_briefly(&device->changed, &device->lock);
    }
    while (device->workers > 0)
        weir__cond_wait(&device->changed, &device->lock);
    workers_join(device);
    WEIR_CHECK(device->active == NULL, "a device closes with work left");
}
