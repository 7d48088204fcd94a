/* stress.c - real threads on a device with a worker per stream, ledger on: they share
 * a few resources, keep blocks, free them in every way there is, and hand them to each
 * other with exactly the order that the library asks for.
 *
 *     giver    allocate, stamp, point or event, signal, put in the inbox
 *     taker    take out of the inbox, await, wait for it on a stream, check, free or
 *              hand on
 *
 * What each thread chooses hangs on the seed, how they meet does not. Nobody ever waits
 * for room in an inbox or for something to be in it, so the inboxes block nobody; a
 * round that hangs all the same is ended by an alarm. A request that is refused is
 * counted, and the step dropped. */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support.h"
#include "weir/weir.h"

#define WORKERS       6
#define RESOURCES     5
#define STEPS         100
#define HAND_MAX      4 /* blocks that a worker keeps for a while */
#define INBOX_MAX     6
#define HOPS_MAX      3 /* times that a block changes hands */
#define ROUND_SECONDS 60u

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* A block that is out, in one worker's hands. */
typedef struct held {
    int resource;
    void *ptr;
    size_t bytes;
    size_t alignment;
    uint64_t key;
    weir_stream stream;  /* that it was allocated on */
    int allocator;       /* the worker that did */
    bool lasting;        /* `stream` lives, under this handle, to the round's end */
    uint32_t hops;
    weir_point points[HOPS_MAX]; /* where it was used, one of each hop by point */
    size_t point_count;
} held;

typedef struct gift {
    held block;
    uintptr_t channel;
    weir_event event;    /* null: the last of the block's points */
} gift;

typedef struct inbox {
    pthread_mutex_t lock; /* guards everything below */
    gift gifts[INBOX_MAX];
    size_t first, count;
    bool closed;
} inbox;

typedef struct stage {
    weir_device *device;
    size_t memory_bytes; /* free at the beginning */
    weir_resource *leaf, *purse;
    weir_resource *drawing;             /* the pool below the statistics */
    weir_resource *shared[RESOURCES];   /* pool, statistics, pool over [0], async,
                                           arena */
    inbox inboxes[WORKERS];
    atomic_uint_least64_t allocated[RESOURCES];
} stage;

typedef enum duty { NOTHING_ELSE, TRIMS, ASKS, CHURNS } duty;

typedef struct worker {
    stage *it;
    int index;
    duty duty;
    weir_stream stream;  /* one that churns has another in each step */
    uint64_t state;
    held hand[HAND_MAX];
    size_t hand_count;
    uintptr_t gifts;     /* made so far */
} worker;

static struct {
    atomic_uint_least64_t allocations, refusals, gifts, hops, events, returned, streams;
    uint64_t waits;
} totals;

static uint64_t below(worker *self, uint64_t n)
{
    return support_random_below(&self->state, n);
}

static bool one_in(worker *self, uint64_t n)
{
    return below(self, n) == 0;
}

/* ---- inboxes ---- */

/* False: it is full or closed. */
static bool inbox_put(inbox *self, const gift *present)
{
    pthread_mutex_lock(&self->lock);
    bool fits = !self->closed && self->count < INBOX_MAX;
    if (fits)
        self->gifts[(self->first + self->count++) % INBOX_MAX] = *present;
    pthread_mutex_unlock(&self->lock);
    return fits;
}

static bool inbox_take(inbox *self, gift *out)
{
    pthread_mutex_lock(&self->lock);
    bool any = self->count != 0;
    if (any) {
        *out = self->gifts[self->first];
        self->first = (self->first + 1) % INBOX_MAX;
        self->count--;
    }
    pthread_mutex_unlock(&self->lock);
    return any;
}

static void inbox_close(inbox *self)
{
    pthread_mutex_lock(&self->lock);
    self->closed = true;
    pthread_mutex_unlock(&self->lock);
}

/* ---- blocks ---- */

static size_t some_bytes(worker *self)
{
    return 1 + (size_t)below(self, (uint64_t)256 << below(self, 11));
}

/* False: there was no room. */
static bool block_make(worker *self, held *out)
{
    stage *it = self->it;
    *out = (held){
        .resource = (int)below(self, RESOURCES), .bytes = some_bytes(self),
        .alignment = (size_t)1 << below(self, 9), .key = support_random(&self->state),
        .stream = self->stream, .allocator = self->index,
        .lasting = self->duty != CHURNS && self->stream != WEIR_STREAM_PER_THREAD,
    };
    weir_status status = weir_allocate(it->shared[out->resource], self->stream,
                                       out->bytes, out->alignment, &out->ptr);
    if (status == WEIR_OUT_OF_MEMORY || status == WEIR_LIMIT_REACHED) {
        must(out->ptr == NULL);
        atomic_fetch_add(&totals.refusals, 1);
        return false;
    }
    must_ok(status);
    must((uintptr_t)out->ptr % out->alignment == 0);
    atomic_fetch_add(&it->allocated[out->resource], 1);
    atomic_fetch_add(&totals.allocations, 1);
    stamp(it->device, self->stream, out->ptr, out->bytes, out->key);
    return true;
}

/* weir_free gives back on the stream of the allocation: under its handle, which must
 * mean the same stream here, and behind what was done elsewhere. */
static bool block_free_by_address(worker *self, held *block)
{
    stage *it = self->it;
    bool own = block->allocator == self->index && block->stream == self->stream;
    if (!block->lasting && !(own && self->stream == WEIR_STREAM_PER_THREAD))
        return false;
    if (block->stream != self->stream)
        must_ok(weir_stream_wait(it->device, block->stream, self->stream));
    must(weir_free(it->shared[block->resource], block->ptr));
    return true;
}

/* Behind its earlier points as well: waited for already, so that they only add work. */
static void block_free_behind_points(worker *self, held *block)
{
    stage *it = self->it;
    weir_point points[HOPS_MAX + 1];
    memcpy(points, block->points, sizeof block->points);
    must_ok(weir_point_here(it->device, self->stream, &points[block->point_count]));
    must(weir_deallocate_after(it->shared[block->resource], block->ptr, block->bytes,
                               block->alignment, points, block->point_count + 1));
}

/* Its last check is put on the worker's own stream before. */
static void block_free(worker *self, held *block)
{
    stage *it = self->it;
    weir_resource *mr = it->shared[block->resource];
    check_stamp(it->device, self->stream, block->ptr, block->bytes, block->key);
    atomic_fetch_add(&totals.returned, 1);
    uint64_t way = below(self, 8);
    if (way < 2 && block_free_by_address(self, block))
        return;
    if (way == 2 || way == 3) {
        block_free_behind_points(self, block);
    } else if (way == 4) {
        must_ok(weir_stream_sync(it->device, self->stream));
        must(weir_deallocate_after(mr, block->ptr, block->bytes, block->alignment,
                                   NULL, 0));
    } else {
        must(weir_deallocate(mr, self->stream, block->ptr, block->bytes,
                             block->alignment));
    }
}

/* ---- handing over ---- */

/* Makes the taker's stream follow the giver's. */
static void gift_accept(worker *self, gift *present)
{
    weir_device *device = self->it->device;
    held *block = &present->block;
    must_ok(support_host_await(device, present->channel));
    if (present->event != NULL) {
        must_ok(weir_stream_wait_event(device, self->stream, present->event));
        must_ok(weir_event_destroy(device, present->event));
    } else {
        must_ok(weir_stream_wait_point(device, self->stream,
                                       block->points[block->point_count - 1]));
    }
}

/* False: the other has no room; the block, unchanged but for a point, stays here. */
static bool block_hand_over(worker *self, held *block)
{
    weir_device *device = self->it->device;
    size_t to = (size_t)(self->index + 1 + (int)below(self, WORKERS - 1)) % WORKERS;
    if (block->hops == HOPS_MAX)
        return false;
    block->hops++;
    gift present = { .channel = ++self->gifts * WORKERS + (uintptr_t)self->index };
    if (one_in(self, 3)) {
        must_ok(weir_event_create(device, &present.event));
        must_ok(weir_event_record(device, self->stream, present.event));
    } else {
        must_ok(weir_point_here(device, self->stream,
                                &block->points[block->point_count++]));
    }
    present.block = *block;
    bool by_event = present.event != NULL;
    must_ok(support_host_signal(device, present.channel));
    if (!inbox_put(&self->it->inboxes[to], &present)) {
        gift_accept(self, &present);
        return false;
    }
    atomic_fetch_add(&totals.gifts, 1);
    atomic_fetch_add(&totals.hops, block->hops > 1);
    atomic_fetch_add(&totals.events, by_event);
    return true;
}

/* Done with: given away, perhaps with another stamp, or freed. */
static void block_part(worker *self, held *block, bool may_give)
{
    if (may_give && !one_in(self, 3)) {
        if (one_in(self, 3)) {
            block->key = support_random(&self->state);
            stamp(self->it->device, self->stream, block->ptr, block->bytes, block->key);
        }
        if (block_hand_over(self, block))
            return;
    }
    block_free(self, block);
}

static void take_gift(worker *self, bool may_give)
{
    gift present;
    if (!inbox_take(&self->it->inboxes[self->index], &present))
        return;
    held *block = &present.block;
    gift_accept(self, &present);
    check_stamp(self->it->device, self->stream, block->ptr, block->bytes, block->key);
    block_part(self, block, may_give);
}

/* ---- what some do besides ---- */

static void trim(worker *self)
{
    stage *it = self->it;
    weir_resource *mr = one_in(self, 4) ? it->leaf : it->shared[below(self, RESOURCES)];
    (void)weir_resource_trim_sync(mr, (size_t)below(self, MIB));
}

static void ask(worker *self)
{
    stage *it = self->it;
    int at = (int)below(self, RESOURCES);
    weir_resource *mr = it->shared[at];
    weir_resource_statistics s = statistics_of(mr);
    must(s.deallocations <= s.allocations && s.out_bytes <= s.peak_out_bytes);
    must(s.largest_free_bytes <= s.free_bytes && s.free_bytes <= s.held_bytes);
    weir_resource_properties p = { .struct_size = sizeof p };
    must_ok(weir_resource_get_properties(mr, &p));
    must(p.can_find && p.can_trim && p.device == it->device);
    weir_block found = { .struct_size = sizeof found };
    must_answer(WEIR_NOT_FOUND, weir_resource_find(mr, self, &found));
    for (size_t i = 0; i < self->hand_count; i++) {
        const held *block = &self->hand[i];
        must_ok(weir_resource_find(it->shared[block->resource], block->ptr, &found));
        must(found.ptr == block->ptr && found.stream == block->stream);
        must_equal(found.bytes, block->bytes);
        must_equal(found.alignment, block->alignment);
    }
    bool done;
    must_ok(weir_stream_query(it->device, self->stream, &done));
    size_t free_bytes, total_bytes;
    must_ok(weir_device_memory(it->device, &free_bytes, &total_bytes));
    must(free_bytes <= total_bytes);
}

/* ---- workers ---- */

static void step(worker *self)
{
    held block;
    for (uint64_t i = below(self, 3); i > 0; i--)
        take_gift(self, true);
    if (block_make(self, &block)) {
        bool keeps = self->duty != CHURNS && self->hand_count < HAND_MAX;
        if (keeps && one_in(self, 2))
            self->hand[self->hand_count++] = block;
        else
            block_part(self, &block, true);
    }
    if (self->hand_count != 0 && one_in(self, 3)) {
        size_t at = (size_t)below(self, self->hand_count);
        block = self->hand[at];
        self->hand[at] = self->hand[--self->hand_count];
        block_part(self, &block, true);
    }
    if (self->duty == TRIMS && one_in(self, 8))
        trim(self);
    if (self->duty == ASKS && one_in(self, 2))
        ask(self);
}

/* The last step: what still comes is refused, what is there is freed. */
static void finish(worker *self)
{
    inbox *own = &self->it->inboxes[self->index];
    inbox_close(own);
    for (size_t left = own->count; left > 0; left--)
        take_gift(self, false);
    while (self->hand_count > 0)
        block_free(self, &self->hand[--self->hand_count]);
}

static weir_stream_kind some_kind(worker *self)
{
    return one_in(self, 2) ? WEIR_STREAM_BLOCKING : WEIR_STREAM_NON_BLOCKING;
}

/* On a stream made by Weir, on one that it is told of, or on one that it never hears
 * of, which ends with the work on it pending and the blocks used on it out. */
static void step_on_a_stream_of_its_own(worker *self, void (*steps)(worker *))
{
    weir_device *device = self->it->device;
    uint64_t way = below(self, 3);
    atomic_fetch_add(&totals.streams, 1);
    if (way == 0) {
        self->stream = make_stream(device, some_kind(self));
        steps(self);
        end_stream(device, self->stream);
        return;
    }
    must_ok(support_stream_create(device, some_kind(self), &self->stream));
    if (way == 1)
        must_ok(weir_stream_register(device, self->stream));
    steps(self);
    if (way == 1)
        must_ok(weir_stream_retire(device, self->stream));
    must_ok(support_stream_destroy(device, self->stream));
}

static void work(void *argument)
{
    worker *self = argument;
    for (int i = 0; i <= STEPS; i++) {
        void (*steps)(worker *) = i < STEPS ? step : finish;
        if (self->duty == CHURNS)
            step_on_a_stream_of_its_own(self, steps);
        else
            steps(self);
    }
}

/* ---- rounds ---- */

static weir_resource *make_pool(weir_resource *upstream, size_t limit_bytes,
                                size_t growth_bytes)
{
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.limit_bytes = limit_bytes;
    options.growth_bytes = growth_bytes;
    options.slack_bytes = 2 * growth_bytes; /* of those without a limit */
    weir_resource *mr;
    must_ok(weir_pool_create(upstream, &options, &mr));
    return mr;
}

/* So little memory that it goes from one to another all the time; the device has less
 * than the limit in every other round:
 *
 *     shared[0], the pool of shared[2] -+
 *                                       +- limiting -- device, or async
 *     shared[1], statistics -- drawing -+
 *                                       |
 *     shared[4], arena -----------------+
 *     shared[3], async                                                             */
static void stage_open(stage *it, uint64_t seed)
{
    *it = (stage){ .device = NULL };
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.memory_bytes = seed % 2 == 0 ? 64 * MIB : 2 * MIB;
    emulated.scheduler = WEIR_EMULATED_THREADS;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    options.eager = seed % 4 == 3;
    it->device = open_with("emulated", &options);
    it->memory_bytes = device_free_bytes(it->device);
    must_ok(weir_resource_open(it->device, seed % 3 == 2 ? "async" : "device",
                               &it->leaf));
    must_ok(weir_limiting_create(it->leaf, 2 * MIB + 512 * KIB, &it->purse));
    it->shared[0] = make_pool(it->purse, MIB + 512 * KIB, 512 * KIB);
    it->drawing = make_pool(it->purse, 0, 256 * KIB);
    must_ok(weir_statistics_create(it->drawing, &it->shared[1]));
    it->shared[2] = make_pool(it->shared[0], 0, 256 * KIB);
    must_ok(weir_resource_open(it->device, "async(max=512KiB)", &it->shared[3]));
    weir_arena_options arenas = { sizeof arenas, 128 * KIB, 0, 2 };
    must_ok(weir_arena_create(it->purse, &arenas, &it->shared[4]));
    for (int i = 0; i < WORKERS; i++)
        must(pthread_mutex_init(&it->inboxes[i].lock, NULL) == 0);
}

static void must_have_nothing_out(weir_resource *mr)
{
    weir_resource_statistics s = statistics_of(mr);
    must_equal(s.out_blocks, 0);
    must_equal(s.out_bytes, 0);
    must_equal(s.allocations, s.deallocations);
}

static void stage_close(stage *it)
{
    totals.waits += calls_of(it->device).stream_wait_event;
    for (int i = RESOURCES - 1; i >= 0; i--) {
        if (i != 0)
            must_equal(statistics_of(it->shared[i]).allocations, it->allocated[i]);
        must_ok(weir_device_sync(it->device)); /* also for what was set aside */
        (void)weir_resource_trim_sync(it->shared[i], 0);
        must_have_nothing_out(it->shared[i]);
        must_equal(statistics_of(it->shared[i]).held_bytes, 0);
    }
    must_have_nothing_out(it->drawing);
    (void)weir_resource_trim_sync(it->leaf, 0);
    must_have_nothing_out(it->leaf);
    must_be_free_again(it->leaf, it->memory_bytes);
    for (int i = 0; i < RESOURCES; i++)
        weir_resource_unref(it->shared[i]);
    weir_resource_unref(it->drawing);
    weir_resource_unref(it->purse);
    weir_resource_unref(it->leaf);
    for (int i = 0; i < WORKERS; i++) {
        must(it->inboxes[i].closed && it->inboxes[i].count == 0);
        pthread_mutex_destroy(&it->inboxes[i].lock);
    }
    close_emulated(it->device);
}

static char hung[80];

static void tell_and_stop(int number)
{
    (void)number;
    ssize_t told = write(STDERR_FILENO, hung, strlen(hung));
    (void)told;
    abort();
}

static void begin_watching(uint64_t seed)
{
    snprintf(hung, sizeof hung, "  the round of seed %" PRIu64 " hangs\n", seed);
    must(signal(SIGALRM, tell_and_stop) != SIG_ERR);
    alarm(ROUND_SECONDS);
}

static void run_round(uint64_t seed)
{
    static stage it;
    static worker workers[WORKERS];
    begin_watching(seed);
    stage_open(&it, seed);
    weir_stream loose = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    weir_stream blocking = make_stream(it.device, WEIR_STREAM_BLOCKING);
    const struct { weir_stream stream; duty duty; } parts[WORKERS] = {
        { NULL, NOTHING_ELSE }, { WEIR_STREAM_PER_THREAD, NOTHING_ELSE },
        { loose, TRIMS },       { blocking, ASKS },
        { WEIR_STREAM_PER_THREAD, NOTHING_ELSE }, { NULL, CHURNS },
    };
    void *arguments[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (worker){
            .it = &it, .index = i, .duty = parts[i].duty, .stream = parts[i].stream,
            .state = seed * WORKERS + (uint64_t)i,
        };
        arguments[i] = &workers[i];
    }
    must_ok(support_run_threads(it.device, WORKERS, work, arguments));
    end_stream(it.device, loose);
    end_stream(it.device, blocking);
    stage_close(&it);
    alarm(0);
}

static void threads_hand_memory_to_each_other(void **state)
{
    (void)state;
    uint64_t rounds = support_bound("stress.rounds", 40, 1000);
    for (uint64_t i = 0; i < rounds; i++)
        run_round(support_seed(i));
    uint64_t allocations = totals.allocations, refusals = totals.refusals;
    print_message("%" PRIu64 " allocations, %" PRIu64 " refused, %" PRIu64
                  " handed over (%" PRIu64 " by event, %" PRIu64 " on), %" PRIu64
                  " streams, %" PRIu64 " waits\n",
                  allocations, refusals, (uint64_t)totals.gifts,
                  (uint64_t)totals.events, (uint64_t)totals.hops,
                  (uint64_t)totals.streams, totals.waits);
    must_equal(allocations, totals.returned);
    /* Enough of everything, or the rounds prove little. */
    must(refusals != 0 && refusals * 4 < allocations);
    must(totals.gifts * 4 > allocations && totals.waits * 2 > totals.gifts);
    must(totals.events != 0 && totals.hops != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_hand_memory_to_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
