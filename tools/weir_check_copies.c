/* weir_check_copies.c - the checked pass on a real device, without kernels of our own:
 * is every byte where it was put?
 *
 * Each block is filled with a byte drawn for it on the stream that it is allocated on:
 * whole or in parts, as check_next_part has it. On the stream that uses it, right
 * before it is freed there, samples of these parts are copied to pinned memory of the
 * host, which is compared when it is full and when all is over:
 *
 *     fill ---- hand off ---- copy samples ---- free        (stream order)
 *                                  |
 *                              staging ---- stream_sync ---- compare   (host)
 *
 * There is no ledger, so memory that is handed out too early shows only where
 * somebody's fill gets between a block's own and its samples. For that to happen where
 * it can, the streams are made to lag: now and then one that frees is first given work
 * that takes longer than the host takes to hand the memory out again. */
#include "weir_check.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "weir/leaves.h"
#include "weir/pinned.h"
#include "weir_say.h"

#define PAGE_BYTES ((size_t)4096)
#define STAGING_BYTES ((size_t)8 << 20)
#define SAMPLES_MOST 4096
#define PACE_EVERY 16

/* One free in so many comes behind up to so many fills of its stream's ballast. */
#define LAG_EVERY 16
#define LAG_FILLS 8
#define BALLAST_BYTES ((size_t)4 << 20)

typedef struct damage {
    const plan_block *block;
    size_t offset;
    uint8_t expected;
    uint8_t found;
} damage;

typedef struct copies {
    pass pass;
    const char *spec;
    uint8_t *values;         /* what each block is filled with */
    weir_resource *pinned;   /* the staging's, */
    weir_resource *leaf;     /* and the ballast's */
    unsigned char *ballast;  /* BALLAST_BYTES for each stream */
    pass_pace *paces;
    atomic_size_t events_done;
    pthread_mutex_t lock;    /* guards the next two */
    size_t data_errors;
    damage damages[CHECK_FAULTS_TOLD];
} copies;

/* Bytes of a block on their way to the staging. */
typedef struct sample {
    uint32_t block;
    size_t offset;  /* in the block */
    size_t bytes;
    size_t at;      /* in the staging */
} sample;

/* One host thread's part. */
typedef struct copies_lane {
    copies *whole;
    const plan_lane *plan;
    size_t index;
    uint64_t random;
    unsigned char *staging;
    size_t staged_bytes;
    sample samples[SAMPLES_MOST];
    size_t sample_count;
    pthread_t thread;
} copies_lane;

/* False: it failed, and was said. */
static bool is_put(copies *self, const char *what, weir_status status)
{
    if (status != WEIR_OK)
        pass_break(&self->pass, what, status);
    return status == WEIR_OK;
}

/* ---- what has come back ---- */

static void damage_note(copies *self, const sample *what, size_t at, uint8_t found)
{
    pthread_mutex_lock(&self->lock);
    if (self->data_errors < CHECK_FAULTS_TOLD)
        self->damages[self->data_errors] = (damage){
            .block = &self->pass.work->blocks[what->block],
            .offset = what->offset + at,
            .expected = self->values[what->block],
            .found = found,
        };
    self->data_errors++;
    pthread_mutex_unlock(&self->lock);
}

/* False: it is damaged, which was noted. */
static bool sample_compare(copies_lane *self, const sample *what)
{
    const unsigned char *copied = self->staging + what->at;
    uint8_t expected = self->whole->values[what->block];

    for (size_t i = 0; i < what->bytes; i++) {
        if (copied[i] != expected) {
            damage_note(self->whole, what, i, copied[i]);
            return false;
        }
    }
    return true;
}

/* Waits for the copies and compares them: of each block the first damage counts. */
static void lane_compare(copies_lane *self)
{
    pass *ours = &self->whole->pass;
    uint32_t damaged = UINT32_MAX;

    for (size_t i = 0; i < ours->stream_count; i++)
        (void)is_put(self->whole, "weir_stream_sync",
                     weir_stream_sync(ours->device, ours->streams[i]));
    for (size_t i = 0; i < self->sample_count && !atomic_load(&ours->broke); i++) {
        const sample *what = &self->samples[i];
        if (what->block != damaged && !sample_compare(self, what))
            damaged = what->block;
    }
    self->sample_count = 0;
    self->staged_bytes = 0;
}

/* ---- work on blocks ---- */

static void block_fill(copies *self, uint32_t block, void *ptr)
{
    const plan_block *it = &self->pass.work->blocks[block];
    size_t from = 0, to = 0;

    while (check_next_part(it->bytes, &from, &to)) {
        weir_status status = weir_fill(
            self->pass.device, self->pass.streams[it->allocated_on],
            (unsigned char *)ptr + from, self->values[block], to - from);
        if (!is_put(self, "weir_fill", status))
            return;
    }
}

static bool sample_put(copies_lane *self, uint32_t block, const void *ptr, size_t from,
                       size_t to)
{
    copies *whole = self->whole;
    const plan_block *it = &whole->pass.work->blocks[block];

    if (self->sample_count == SAMPLES_MOST
        || STAGING_BYTES - self->staged_bytes < to - from)
        lane_compare(self);
    self->samples[self->sample_count++] = (sample){
        .block = block, .offset = from, .bytes = to - from, .at = self->staged_bytes,
    };
    weir_status status = weir_copy(
        whole->pass.device, whole->pass.streams[it->used_on],
        self->staging + self->staged_bytes, (const unsigned char *)ptr + from,
        to - from);
    self->staged_bytes += to - from;
    return is_put(whole, "weir_copy", status);
}

/* Of each part that was written the first page, the last, and one in between. */
static void block_sample(copies_lane *self, uint32_t block, const void *ptr)
{
    size_t bytes = self->whole->pass.work->blocks[block].bytes;
    size_t from = 0, to = 0;
    bool good = true;

    while (good && check_next_part(bytes, &from, &to)) {
        if (to - from <= 2 * PAGE_BYTES) {
            good = sample_put(self, block, ptr, from, to);
            continue;
        }
        size_t pages = (to - from) / PAGE_BYTES - 1; /* but the last */
        size_t page = from + plan_random(&self->random) % pages * PAGE_BYTES;
        good = sample_put(self, block, ptr, from, from + PAGE_BYTES)
               && sample_put(self, block, ptr, page, page + PAGE_BYTES)
               && sample_put(self, block, ptr, to - PAGE_BYTES, to);
    }
}

static void stream_lag(copies_lane *self, uint32_t stream)
{
    copies *whole = self->whole;
    uint64_t draw = plan_random(&self->random);

    if (draw % LAG_EVERY != 0)
        return;
    for (uint64_t i = 0; i < 1 + (draw >> 8) % LAG_FILLS; i++) {
        weir_status status = weir_fill(whole->pass.device, whole->pass.streams[stream],
                                       whole->ballast + stream * BALLAST_BYTES, 0,
                                       BALLAST_BYTES);
        if (!is_put(whole, "weir_fill", status))
            return;
    }
}

/* ---- events ---- */

static void check_allocate(copies_lane *self, uint32_t block)
{
    pass *ours = &self->whole->pass;
    void *ptr;

    if (atomic_load(&ours->broke)) {
        atomic_store(&ours->slots[block], PASS_REFUSED);
        return;
    }
    if (!pass_allocate(ours, block, &ptr))
        return;
    block_fill(self->whole, block, ptr);
    (void)pass_hand_off(ours, block);
    atomic_store(&ours->slots[block], (uintptr_t)ptr);
}

static void check_free(copies_lane *self, uint32_t block)
{
    pass *ours = &self->whole->pass;
    uintptr_t ptr = pass_wait_slot(ours, block);

    if (ptr == PASS_REFUSED)
        return;
    if (!atomic_load(&ours->broke)) {
        stream_lag(self, ours->work->blocks[block].used_on);
        block_sample(self, block, (const void *)ptr);
    }
    pass_deallocate(ours, block, (void *)ptr);
}

static void lane_show(copies_lane *self)
{
    size_t all = self->whole->pass.work->event_count;
    size_t done = 1 + atomic_fetch_add(&self->whole->events_done, 1);
    if (done * 100 / all != (done - 1) * 100 / all)
        say_progress("checked pass: %zu %%", done * 100 / all);
}

static void *lane_run(void *argument)
{
    copies_lane *self = argument;
    pass *ours = &self->whole->pass;
    atomic_size_t *position = &self->whole->paces[self->index].position;

    for (size_t i = 0; i < self->plan->count; i++) {
        const plan_event *event = &self->plan->events[i];
        atomic_store(position, event->position);
        if (i % PACE_EVERY == 0)
            pass_keep_pace(ours, self->whole->paces, event->position);
        if (event->is_free)
            check_free(self, event->block);
        else
            check_allocate(self, event->block);
        lane_show(self);
    }
    atomic_store(position, ours->work->event_count);
    return NULL;
}

/* Lane 0 is the calling thread. */
static void lanes_run(copies_lane *lanes, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        int code = pthread_create(&lanes[i].thread, NULL, lane_run, &lanes[i]);
        if (code != 0) {
            say("cannot start a thread: %s", strerror(code));
            exit(SAY_REFUSED); /* those before wait for this one's part for ever */
        }
    }
    (void)lane_run(&lanes[0]);
    for (size_t i = 1; i < count; i++)
        (void)pthread_join(lanes[i].thread, NULL);
}

/* ---- the whole ---- */

/* What is live at the end is read and freed too; then what came back is compared. */
static void check_finish(copies *self, copies_lane *lanes, check_result *out)
{
    pass *ours = &self->pass;

    for (size_t i = 0; i < ours->work->block_count; i++) {
        if (atomic_load(&ours->slots[i]) != PASS_NOT_YET)
            check_free(&lanes[0], (uint32_t)i);
    }
    for (size_t i = 0; i < ours->work->lane_count; i++)
        lane_compare(&lanes[i]);
    (void)is_put(self, "weir_device_sync", weir_device_sync(ours->device));
    out->data_errors = self->data_errors;
    out->out_of_memory = atomic_load(&ours->out_of_memory);
    say_progress("%s", "");
    for (size_t i = 0; i < self->data_errors && i < CHECK_FAULTS_TOLD; i++) {
        const damage *it = &self->damages[i];
        say("%s: data: the block of line %zu (id %" PRIu64 ", %zu bytes) holds %02x at "
            "byte %zu, where %02x was written", self->spec, it->block->line,
            it->block->id, it->block->bytes, it->found, it->offset, it->expected);
    }
    if (self->data_errors > CHECK_FAULTS_TOLD)
        say("%s: data: and %zu more", self->spec,
            self->data_errors - CHECK_FAULTS_TOLD);
}

static size_t ballast_bytes(const copies *self)
{
    return self->pass.stream_count * BALLAST_BYTES;
}

static void places_close(copies *self, copies_lane *lanes)
{
    for (size_t i = 0; i < self->pass.work->lane_count; i++) {
        if (lanes[i].staging != NULL)
            (void)weir_deallocate(self->pinned, self->pass.streams[0], lanes[i].staging,
                                  STAGING_BYTES, WEIR_ALIGNMENT);
    }
    if (self->ballast != NULL)
        (void)weir_deallocate(self->leaf, self->pass.streams[0], self->ballast,
                              ballast_bytes(self), WEIR_ALIGNMENT);
    weir_resource_unref(self->pinned);
    weir_resource_unref(self->leaf);
}

/* Staging and ballast. False: said why. */
static bool places_open(copies *self, copies_lane *lanes)
{
    weir_device *device = self->pass.device;
    void *ballast;

    if (!is_put(self, "pinned", weir_pinned_create(device, NULL, &self->pinned))
        || !is_put(self, "device", weir_device_resource_create(device, &self->leaf))
        || !is_put(self, "memory for ballast",
                   weir_allocate(self->leaf, self->pass.streams[0], ballast_bytes(self),
                                 WEIR_ALIGNMENT, &ballast)))
        return false;
    self->ballast = ballast;
    for (size_t i = 0; i < self->pass.work->lane_count; i++) {
        void *staging;
        if (!is_put(self, "pinned memory",
                    weir_allocate(self->pinned, self->pass.streams[0], STAGING_BYTES,
                                  WEIR_ALIGNMENT, &staging)))
            return false;
        lanes[i].staging = staging;
    }
    return true;
}

static void parts_fill(copies *self, copies_lane *lanes, uint64_t seed)
{
    const plan *work = self->pass.work;
    uint64_t state = ~seed;

    for (size_t i = 0; i < work->block_count; i++)
        self->values[i] = (uint8_t)(1 + plan_random(&state) % 255);
    for (size_t i = 0; i < work->lane_count; i++) {
        lanes[i].whole = self;
        lanes[i].plan = &work->lanes[i];
        lanes[i].index = i;
        lanes[i].random = seed + ((uint64_t)i << 32);
        atomic_init(&self->paces[i].position, 0);
    }
}

bool check_run_by_copies(const plan *work, const pass_place *place, check_result *out)
{
    copies self = { .spec = place->spec };
    bool good = false;

    *out = (check_result){ 0 };
    self.values = calloc(work->block_count, sizeof *self.values);
    self.paces = aligned_alloc(_Alignof(pass_pace),
                               work->lane_count * sizeof *self.paces);
    copies_lane *lanes = calloc(work->lane_count, sizeof *lanes);
    (void)pthread_mutex_init(&self.lock, NULL);
    if (self.values == NULL || self.paces == NULL || lanes == NULL) {
        say("no host memory to check %zu blocks", work->block_count);
    } else if (pass_open(&self.pass, work, place)) {
        if (places_open(&self, lanes)) {
            parts_fill(&self, lanes, place->seed);
            lanes_run(lanes, work->lane_count);
            check_finish(&self, lanes, out);
        }
        places_close(&self, lanes);
        pass_close(&self.pass);
        good = !atomic_load(&self.pass.broke);
    }
    (void)pthread_mutex_destroy(&self.lock);
    free(self.values);
    free(self.paces);
    free(lanes);
    return good;
}
