/* weir_pass.c - opens a device for one run of a plan, and the passes that are timed.
 *
 * A timed pass does nothing but call the resource: on the emulated device no work is
 * done and no ledger kept, so that the time is that of the host's part alone. */
#include "weir_pass.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "weir/pool.h"
#include "weir_say.h"

/* ---- open and close ---- */

void pass_break(pass *self, const char *what, weir_status status)
{
    if (!atomic_exchange(&self->broke, true))
        say_failure(what, status);
}

void pass_refuse_block(pass *self, uint32_t block, weir_status status)
{
    if (status == WEIR_OUT_OF_MEMORY || status == WEIR_LIMIT_REACHED)
        atomic_fetch_add(&self->out_of_memory, 1);
    else
        pass_break(self, "weir_allocate", status);
    atomic_store_explicit(&self->slots[block], PASS_REFUSED, memory_order_release);
}

static weir_status device_open(const pass_place *place, weir_device **out)
{
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;

    if (place->is_emulated) {
        emulated.scheduler = place->scheduler;
        emulated.memory_bytes = place->memory_bytes;
        emulated.seed = place->seed;
        emulated.costs = place->costs;
        emulated.no_ledger = place->scheduler == WEIR_EMULATED_NO_WORK;
        options.emulated = &emulated;
    }
    return weir_device_open(place->device, &options, out);
}

/* A pool of one chunk over what the spec has below its first element. */
static weir_status one_chunk_open(weir_device *device, const pass_place *place,
                                  weir_resource **out)
{
    const char *rest = strchr(place->spec, '/');
    weir_resource *upstream;
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.initial_bytes = place->chunk_bytes;
    options.limit_bytes = place->chunk_bytes;
    options.growth_bytes = WEIR_ALIGNMENT;

    *out = NULL;
    weir_status status = weir_resource_open(device, rest == NULL ? "" : rest + 1,
                                            &upstream);
    if (status != WEIR_OK)
        return status;
    status = weir_pool_create(upstream, &options, out);
    weir_resource_unref(upstream);
    return status;
}

static bool pass_open_parts(pass *self, const pass_place *place)
{
    weir_status status = device_open(place, &self->device);
    if (status != WEIR_OK) {
        pass_break(self, place->device, status);
        return false;
    }
    self->streams = calloc(self->work->stream_count, sizeof(weir_stream));
    self->slots = calloc(self->work->block_count, sizeof *self->slots);
    if (self->streams == NULL || self->slots == NULL) {
        say("no host memory for %zu blocks", self->work->block_count);
        return false;
    }
    while (self->stream_count < self->work->stream_count) {
        weir_stream *stream = &self->streams[self->stream_count];
        if (self->stream_count == self->work->legacy_stream)
            *stream = WEIR_STREAM_LEGACY;
        else
            status = weir_stream_create(self->device, WEIR_STREAM_NON_BLOCKING, stream);
        if (status != WEIR_OK) {
            pass_break(self, "weir_stream_create", status);
            return false;
        }
        self->stream_count++;
    }
    status = place->chunk_bytes != 0
        ? one_chunk_open(self->device, place, &self->mr)
        : weir_resource_open(self->device, place->spec, &self->mr);
    if (status != WEIR_OK)
        pass_break(self, place->spec, status);
    return status == WEIR_OK;
}

bool pass_open(pass *self, const plan *work, const pass_place *place)
{
    *self = (pass){ .work = work, .skip_wait = place->skip_wait };
    if (pass_open_parts(self, place))
        return true;
    pass_close(self);
    return false;
}

void pass_close(pass *self)
{
    for (size_t i = 0; self->mr != NULL && i < self->work->block_count; i++) {
        uintptr_t ptr = atomic_load(&self->slots[i]);
        if (ptr != PASS_NOT_YET && ptr != PASS_REFUSED)
            pass_deallocate(self, (uint32_t)i, (void *)ptr);
    }
    if (self->device != NULL) {
        weir_status status = weir_device_sync(self->device);
        if (status != WEIR_OK)
            pass_break(self, "weir_device_sync", status);
    }
    if (self->mr != NULL)
        weir_resource_unref(self->mr);
    for (size_t i = 0; i < self->stream_count; i++) {
        if (self->streams[i] != WEIR_STREAM_LEGACY)
            (void)weir_stream_destroy(self->device, self->streams[i]);
    }
    if (self->device != NULL)
        weir_device_unref(self->device);
    free(self->streams);
    free(self->slots);
    self->mr = NULL;
    self->device = NULL;
    self->streams = NULL;
    self->slots = NULL;
    self->stream_count = 0;
}

/* ---- lanes ---- */

#define PACE_EVERY 64

typedef struct timed_lane {
    pass *pass;
    const plan_lane *plan;
    pass_pace *paces;
    size_t index;
    pthread_barrier_t *start;
    struct timespec end;
} timed_lane;

static void lane_allocate(pass *self, uint32_t block)
{
    void *ptr;

    if (!pass_allocate(self, block, &ptr))
        return;
    (void)pass_hand_off(self, block);
    atomic_store_explicit(&self->slots[block], (uintptr_t)ptr, memory_order_release);
}

static void lane_free(pass *self, uint32_t block)
{
    uintptr_t ptr = pass_wait_slot(self, block);
    if (ptr != PASS_REFUSED)
        pass_deallocate(self, block, (void *)ptr);
}

static void lane_run(timed_lane *self)
{
    pass *ours = self->pass;
    bool alone = ours->work->lane_count == 1;
    atomic_size_t *position = &self->paces[self->index].position;
    const plan_event *end = self->plan->events + self->plan->count;

    for (const plan_event *event = self->plan->events; event < end; event++) {
        if (!alone) {
            atomic_store_explicit(position, event->position, memory_order_relaxed);
            if ((size_t)(end - event) % PACE_EVERY == 0)
                pass_keep_pace(ours, self->paces, event->position);
        }
        if (event->is_free)
            lane_free(ours, event->block);
        else
            lane_allocate(ours, event->block);
    }
    atomic_store_explicit(position, ours->work->event_count, memory_order_relaxed);
    clock_gettime(CLOCK_MONOTONIC, &self->end);
}

static void *lane_thread(void *argument)
{
    timed_lane *self = argument;
    (void)pthread_barrier_wait(self->start);
    lane_run(self);
    return NULL;
}

static double ns_between(struct timespec from, struct timespec to)
{
    return (double)(to.tv_sec - from.tv_sec) * 1e9
           + (double)(to.tv_nsec - from.tv_nsec);
}

/* Runs lanes 1 and up as threads, and lane 0 here, and returns how long it took. All
 * wait for each other at the barrier, so that making threads is not timed. */
static double lanes_time(timed_lane *lanes, size_t count, pthread_t *threads)
{
    struct timespec begin, end;
    pthread_barrier_t start;

    (void)pthread_barrier_init(&start, NULL, (unsigned)count);
    for (size_t i = 1; i < count; i++) {
        lanes[i].start = &start;
        int code = pthread_create(&threads[i], NULL, lane_thread, &lanes[i]);
        if (code != 0) {
            say("cannot start a thread: %s", strerror(code));
            exit(SAY_REFUSED); /* those before wait at the barrier for ever */
        }
    }
    (void)pthread_barrier_wait(&start);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    lane_run(&lanes[0]);
    end = lanes[0].end;
    for (size_t i = 1; i < count; i++) {
        (void)pthread_join(threads[i], NULL);
        if (ns_between(end, lanes[i].end) > 0)
            end = lanes[i].end;
    }
    (void)pthread_barrier_destroy(&start);
    return ns_between(begin, end);
}

/* ---- a second thread that sleeps ---- */

/* With one thread in the process the C library leaves out what makes locks hold
 * between processors, and a resource with locks looks twice as fast as it is. */
typedef struct sleeper {
    pthread_t thread;
    pthread_mutex_t wake; /* held by who wants it to sleep on */
    bool runs;
} sleeper;

static void *sleeper_thread(void *argument)
{
    sleeper *self = argument;
    (void)pthread_mutex_lock(&self->wake);
    (void)pthread_mutex_unlock(&self->wake);
    return NULL;
}

static void sleeper_begin(sleeper *self)
{
    (void)pthread_mutex_init(&self->wake, NULL);
    (void)pthread_mutex_lock(&self->wake);
    self->runs = pthread_create(&self->thread, NULL, sleeper_thread, self) == 0;
}

static void sleeper_end(sleeper *self)
{
    (void)pthread_mutex_unlock(&self->wake);
    if (self->runs)
        (void)pthread_join(self->thread, NULL);
    (void)pthread_mutex_destroy(&self->wake);
}

/* ---- timed passes ---- */

static weir_device_calls calls_between(const weir_device_calls *from,
                                       const weir_device_calls *to)
{
    weir_device_calls calls = { .struct_size = sizeof calls };
#define X(name) calls.name = to->name - from->name;
    WEIR_DEVICE_CALL_MAP(X)
#undef X
    return calls;
}

/* Adds what the leaves of a chain hold of the device: what a resource in front of them
 * holds may lie in the next one's blocks. False: one of them does not count it. */
static bool held_add(weir_resource *mr, pass_timing *out)
{
    weir_resource *upstream = weir_resource_upstream(mr, 0);
    weir_resource *second = weir_resource_upstream(mr, 1);
    if (upstream != NULL)
        return held_add(upstream, out) && (second == NULL || held_add(second, out));
    weir_resource_statistics leaf = { .struct_size = sizeof leaf };
    if (weir_resource_get_statistics(mr, &leaf) != WEIR_OK)
        return false;
    out->peak_held_bytes += leaf.peak_held_bytes;
    out->kept_bytes += leaf.kept_bytes;
    return leaf.peak_held_bytes != 0;
}

/* Of one lane that was never refused the trace knows what was live; else the resource
 * does. */
static void peaks_read(pass *self, pass_timing *out)
{
    weir_resource_statistics statistics = { .struct_size = sizeof statistics };
    bool known = weir_resource_get_statistics(self->mr, &statistics) == WEIR_OK;

    out->held_is_known = held_add(self->mr, out);
    if (!out->held_is_known)
        out->peak_held_bytes = 0;
    out->peak_live_bytes = self->work->peak_live_bytes;
    if (known && (self->work->lane_count > 1 || out->out_of_memory != 0))
        out->peak_live_bytes = statistics.peak_out_bytes;
}

static bool calls_read(pass *self, weir_device_calls *out)
{
    *out = (weir_device_calls){ .struct_size = sizeof *out };
    weir_status status = weir_device_get_calls(self->device, out);
    if (status != WEIR_OK)
        pass_break(self, "weir_device_get_calls", status);
    return status == WEIR_OK;
}

static bool pass_time_lanes(pass *self, timed_lane *lanes, pass_pace *paces,
                            pthread_t *threads, pass_timing *out)
{
    size_t count = self->work->lane_count;
    weir_device_calls before, after;
    sleeper second;

    for (size_t i = 0; i < count; i++) {
        lanes[i] = (timed_lane){ .pass = self, .plan = &self->work->lanes[i],
                                 .paces = paces, .index = i };
        atomic_init(&paces[i].position, 0);
    }
    if (!calls_read(self, &before))
        return false;
    double device_ns = weir_emulated_modelled_ns(self->device);
    sleeper_begin(&second);
    double ns = lanes_time(lanes, count, threads);
    sleeper_end(&second);
    device_ns = weir_emulated_modelled_ns(self->device) - device_ns;
    if (!calls_read(self, &after))
        return false;

    out->device_ns_per_event = device_ns / (double)self->work->event_count;
    out->ns_per_event = ns / (double)self->work->event_count;
    out->calls = calls_between(&before, &after);
    out->out_of_memory = atomic_load(&self->out_of_memory);
    peaks_read(self, out);
    return true;
}

bool pass_time(const plan *work, const pass_place *place, pass_timing *out)
{
    pass self;
    size_t count = work->lane_count;

    *out = (pass_timing){ 0 };
    timed_lane *lanes = calloc(count, sizeof *lanes);
    pass_pace *paces = aligned_alloc(_Alignof(pass_pace), count * sizeof *paces);
    pthread_t *threads = calloc(count, sizeof *threads);
    bool good = lanes != NULL && paces != NULL && threads != NULL;
    if (!good)
        say("no host memory for %zu threads", count);
    if (good && pass_open(&self, work, place)) {
        good = pass_time_lanes(&self, lanes, paces, threads, out);
        pass_close(&self);
        good = good && !atomic_load(&self.broke);
    } else {
        good = false;
    }
    free(lanes);
    free(paces);
    free(threads);
    return good;
}

bool pass_serves(const plan *work, const pass_place *place, bool *broke)
{
    pass self;
    const plan_lane *lane = &work->lanes[0];

    *broke = true;
    if (!pass_open(&self, work, place))
        return false;
    bool serves = true;
    for (size_t i = 0; serves && i < lane->count; i++) {
        const plan_event *event = &lane->events[i];
        if (event->is_free)
            lane_free(&self, event->block);
        else
            lane_allocate(&self, event->block);
        serves = atomic_load(&self.slots[event->block]) != PASS_REFUSED;
    }
    pass_close(&self);
    *broke = atomic_load(&self.broke);
    return serves && !*broke;
}
