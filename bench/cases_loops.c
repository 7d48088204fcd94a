/* cases_loops.c - the loops of one thread. Nothing is drawn, decided or allocated here
 * but by the allocator under test. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator.h"
#include "cases.h"

#define BATCH ((size_t)4096)

/* What a thread writes to is on lines of its own, whatever malloc would do. */
#define LINE ((size_t)128)

static void *zeroed(size_t bytes)
{
    size_t whole = (bytes + LINE) / LINE * LINE;
    void *memory = aligned_alloc(LINE, whole);
    return memory == NULL ? NULL : memset(memory, 0, whole);
}

static unsigned first_stream(const bench_run *self, unsigned thread)
{
    return 1 + thread * self->what->streams;
}

/* ---- lifo ---- */

typedef struct lifo {
    unsigned stream;
    void *ptrs[];
} lifo;

static void *lifo_open(bench_run *self, unsigned thread)
{
    lifo *it = zeroed(sizeof *it + self->what->depth * sizeof(void *));
    if (it != NULL)
        it->stream = first_stream(self, thread);
    return it;
}

static bool lifo_run(bench_run *self, void *opened)
{
    lifo *it = opened;
    size_t bytes = self->what->bytes, depth = self->what->depth;
    unsigned stream = it->stream;
    bool good = true;

    for (size_t done = 0; done < self->batch && good; done += depth) {
        size_t live = 0;
        while (live < depth) {
            it->ptrs[live] = allocator_allocate(bytes, stream);
            if (it->ptrs[live] == NULL)
                break;
            live++;
        }
        good = live == depth;
        while (live > 0)
            allocator_deallocate(it->ptrs[--live], bytes, stream);
    }
    return good;
}

static void lifo_close(bench_run *self, void *opened)
{
    (void)self;
    free(opened);
}

static bool batch_prepare(bench_run *self)
{
    self->batch = BATCH; /* a multiple of all depths and divisor of all step counts */
    return true;
}

const bench_kind kind_lifo = { "pair", batch_prepare, lifo_open, lifo_run, lifo_close };

/* ---- turnover ---- */

typedef struct slot {
    void *ptr;
    uint32_t bytes;
    uint32_t free_stream;
} slot;

typedef struct turning {
    turnover work;
    size_t at;      /* the next step */
    slot *slots;
} turning;

static bool slot_fill(slot *slots, const turnover_step *step)
{
    slot *block = &slots[step->slot];
    block->ptr = allocator_allocate(step->bytes, step->stream);
    block->bytes = step->bytes;
    block->free_stream = step->free_stream;
    return block->ptr != NULL;
}

static void turnover_close(bench_run *self, void *opened)
{
    turning *it = opened;

    (void)self;
    for (size_t i = 0; it->slots != NULL && i < it->work.slot_count; i++) {
        slot *block = &it->slots[i];
        if (block->ptr != NULL)
            allocator_deallocate(block->ptr, block->bytes, block->free_stream);
    }
    free(it->slots);
    turnover_clear(&it->work);
    free(it);
}

static void *turnover_open(bench_run *self, unsigned thread)
{
    turnover_shape shape = self->what->shape;
    turning *it = zeroed(sizeof *it);

    if (it == NULL)
        return NULL;
    shape.stream_first = first_stream(self, thread);
    shape.seed += thread;
    bool good = turnover_make(&shape, &it->work);
    if (good)
        it->slots = zeroed(it->work.slot_count * sizeof *it->slots);
    good = good && it->slots != NULL;
    for (size_t i = 0; good && i < it->work.slot_count; i++)
        good = slot_fill(it->slots, &it->work.first[i]);
    if (!good) {
        turnover_close(self, it);
        return NULL;
    }
    return it;
}

static bool turnover_run(bench_run *self, void *opened)
{
    turning *it = opened;
    const turnover_step *step = &it->work.steps[it->at];
    slot *slots = it->slots;

    for (size_t i = 0; i < self->batch; i++, step++) {
        const slot *old = &slots[step->slot];
        allocator_deallocate(old->ptr, old->bytes, old->free_stream);
        if (!slot_fill(slots, step))
            return false;
    }
    it->at = (it->at + self->batch) % it->work.step_count;
    return true;
}

const bench_kind kind_turnover = { "pair", batch_prepare, turnover_open, turnover_run,
                                   turnover_close };

/* ---- scripts ---- */

static bool random_prepare(bench_run *self)
{
    if (!script_make_random(self->what->count, self->what->bytes_max, &self->script))
        return false;
    self->batch = self->script.allocation_count;
    return true;
}

static bool file_prepare(bench_run *self)
{
    const char *why = "no file is named";
    if (self->path == NULL || !script_read(self->path, &self->script, &why)) {
        fprintf(stderr, "%s: %s\n", self->path == NULL ? "--script" : self->path, why);
        return false;
    }
    self->batch = self->script.event_count;
    return true;
}

typedef struct playing {
    unsigned stream;
    void *ptrs[];
} playing;

static void *script_open(bench_run *self, unsigned thread)
{
    playing *it = zeroed(sizeof *it + self->script.slot_count * sizeof(void *));
    if (it != NULL) /* without streams of its own it is on the default stream */
        it->stream = self->what->streams == 0 ? 0 : first_stream(self, thread);
    return it;
}

static bool script_run(bench_run *self, void *opened)
{
    playing *it = opened;
    const script_event *event = self->script.events;
    const script_event *end = event + self->script.event_count;
    unsigned stream = it->stream;

    for (; event < end; event++) {
        void **ptr = &it->ptrs[event->slot];
        if (event->is_free) {
            allocator_deallocate(*ptr, event->bytes, stream);
        } else {
            *ptr = allocator_allocate(event->bytes, stream);
            if (*ptr == NULL)
                return false;
        }
    }
    return true;
}

const bench_kind kind_random = { "pair", random_prepare, script_open, script_run,
                                 lifo_close };
const bench_kind kind_script = { "event", file_prepare, script_open, script_run,
                                 lifo_close };

/* ---- the bare lookup, for comparison with a turnover ---- */

typedef struct record {
    uint64_t zero;
    uint64_t other;
} record;

typedef struct looking {
    turnover work;
    size_t at;
    record *records;   /* one for each slot */
    slot *slots;       /* where a program keeps what it was given; or null */
    uint64_t seen;
} looking;

static void lookup_close(bench_run *self, void *opened)
{
    looking *it = opened;

    (void)self;
    free(it->slots);
    free(it->records);
    turnover_clear(&it->work);
    free(it);
}

static void *lookup_open(bench_run *self, unsigned thread)
{
    looking *it = zeroed(sizeof *it);

    (void)thread;
    if (it == NULL)
        return NULL;
    bool good = turnover_make(&self->what->shape, &it->work);
    if (good)
        it->records = zeroed(it->work.slot_count * sizeof *it->records);
    if (!good || it->records == NULL) {
        lookup_close(self, it);
        return NULL;
    }
    return it;
}

/* Where to look is only known once the one before has been seen, as with an allocator
 * that finishes one call before the next. */
static bool lookup_run(bench_run *self, void *opened)
{
    looking *it = opened;
    const turnover_step *step = &it->work.steps[it->at];
    uint64_t seen = it->seen;

    for (size_t i = 0; i < self->batch; i++, step++)
        seen = it->records[step->slot + seen].zero;
    it->seen = seen;
    it->at = (it->at + self->batch) % it->work.step_count;
    return seen == 0;
}

static void *lookup_table_open(bench_run *self, unsigned thread)
{
    looking *it = lookup_open(self, thread);

    if (it == NULL)
        return NULL;
    it->slots = zeroed(it->work.slot_count * sizeof *it->slots);
    if (it->slots == NULL) {
        lookup_close(self, it);
        return NULL;
    }
    for (size_t i = 0; i < it->work.slot_count; i++)
        it->slots[i].ptr = &it->records[i];
    return it;
}

/* As the turnover finds what it gives back: the address first. */
static bool lookup_table_run(bench_run *self, void *opened)
{
    looking *it = opened;
    const turnover_step *step = &it->work.steps[it->at];
    uint64_t seen = it->seen;

    for (size_t i = 0; i < self->batch; i++, step++)
        seen = ((const record *)it->slots[step->slot + seen].ptr)->zero;
    it->seen = seen;
    it->at = (it->at + self->batch) % it->work.step_count;
    return seen == 0;
}

static bool lookup_ahead_run(bench_run *self, void *opened)
{
    looking *it = opened;
    const turnover_step *step = &it->work.steps[it->at];
    uint64_t seen = it->seen;

    for (size_t i = 0; i < self->batch; i++, step++)
        seen += it->records[step->slot].zero;
    it->seen = seen;
    it->at = (it->at + self->batch) % it->work.step_count;
    return seen == 0;
}

const bench_kind kind_lookup = { "lookup", batch_prepare, lookup_open, lookup_run,
                                 lookup_close };
const bench_kind kind_lookup_table = { "lookup", batch_prepare, lookup_table_open,
                                       lookup_table_run, lookup_close };
const bench_kind kind_lookup_ahead = { "lookup", batch_prepare, lookup_open,
                                       lookup_ahead_run, lookup_close };
