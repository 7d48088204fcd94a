/* work.c - makes what the benchmarks do, see work.h. */
#include "work.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draws.h"

/* ---- turnover ---- */

static turnover_step step_draw(const turnover_shape *shape, size_t number, size_t slot,
                               uint64_t *seed)
{
    size_t bytes = splitmix_size(seed, shape->bytes_min, shape->bytes_max);
    size_t stream = 0;
    if (shape->stream_count > 1)
        stream = shape->in_turn ? number % shape->stream_count
                                : splitmix_below(seed, shape->stream_count);
    turnover_step step = {
        .slot = (uint32_t)slot,
        .bytes = (uint32_t)bytes,
        .stream = (uint8_t)(shape->stream_first + stream),
    };
    step.free_stream = (uint8_t)shape->freed_on;
    if (shape->freed_on == 0)
        step.free_stream = step.stream;
    return step;
}

bool turnover_make(const turnover_shape *shape, turnover *out)
{
    size_t steps = shape->step_count == 0 ? TURNOVER_STEPS : shape->step_count;
    uint64_t seed = shape->seed;

    *out = (turnover){ .slot_count = shape->live, .step_count = steps };
    out->first = calloc(shape->live, sizeof *out->first);
    out->steps = calloc(steps, sizeof *out->steps);
    if (out->first == NULL || out->steps == NULL) {
        turnover_clear(out);
        return false;
    }
    for (size_t i = 0; i < shape->live; i++)
        out->first[i] = step_draw(shape, i, i, &seed);
    for (size_t i = 0; i < steps; i++) {
        size_t slot = shape->in_turn ? i % shape->live
                                     : splitmix_below(&seed, shape->live);
        out->steps[i] = step_draw(shape, i, slot, &seed);
    }
    return true;
}

void turnover_clear(turnover *self)
{
    free(self->first);
    free(self->steps);
    *self = (turnover){ 0 };
}

size_t turnover_peak_bytes(const turnover *self, size_t unit)
{
    size_t *taken = calloc(self->slot_count, sizeof *taken);
    size_t live = 0, peak = 0;

    if (taken == NULL)
        return 0;
    for (size_t i = 0; i < self->slot_count + self->step_count; i++) {
        const turnover_step *step = i < self->slot_count
                                        ? &self->first[i]
                                        : &self->steps[i - self->slot_count];
        live -= taken[step->slot];
        taken[step->slot] = (step->bytes + unit - 1) / unit * unit;
        live += taken[step->slot];
        if (live > peak)
            peak = live;
    }
    free(taken);
    return peak;
}

/* ---- scripts ---- */

/* A script that is being written, and what of it is live. */
typedef struct writer {
    script *out;
    size_t event_room;
    uint32_t *spare;       /* slots that blocks have left, the last first */
    size_t spare_count, slot_room;
    size_t live_bytes, live_blocks;
} writer;

/* `array`, moved if it had no room for `needed` items; null: no host memory, and it is
 * as it was. */
static void *with_room(void *array, size_t *room, size_t needed, size_t size)
{
    if (needed <= *room)
        return array;
    size_t more = *room < 1024 ? 1024 : *room * 2;
    void *grown = realloc(array, more * size);
    if (grown != NULL)
        *room = more;
    return grown;
}

static bool write_event(writer *self, script_event event)
{
    script *out = self->out;

    script_event *events = with_room(out->events, &self->event_room,
                                     out->event_count + 1, sizeof *events);
    if (events == NULL)
        return false;
    out->events = events;
    events[out->event_count++] = event;
    return true;
}

static bool write_allocate(writer *self, uint64_t bytes, uint32_t *slot)
{
    script *out = self->out;

    if (self->spare_count == 0) {
        uint32_t *spare = with_room(self->spare, &self->slot_room, out->slot_count + 1,
                                    sizeof *spare);
        if (spare == NULL)
            return false;
        self->spare = spare;
        spare[self->spare_count++] = (uint32_t)out->slot_count++;
    }
    *slot = self->spare[--self->spare_count];
    out->allocation_count++;
    self->live_bytes += bytes;
    self->live_blocks++;
    if (self->live_bytes > out->peak_bytes)
        out->peak_bytes = self->live_bytes;
    if (self->live_blocks > out->peak_blocks)
        out->peak_blocks = self->live_blocks;
    return write_event(self, (script_event){ bytes, *slot, false });
}

static bool write_free(writer *self, uint64_t bytes, uint32_t slot)
{
    self->spare[self->spare_count++] = slot;
    self->live_bytes -= bytes;
    self->live_blocks--;
    return write_event(self, (script_event){ bytes, slot, true });
}

static bool writer_end(writer *self, bool good)
{
    free(self->spare);
    if (!good)
        script_clear(self->out);
    return good;
}

void script_clear(script *self)
{
    free(self->events);
    *self = (script){ 0 };
}

typedef struct live_block {
    uint64_t bytes;
    uint32_t slot;
} live_block;

/* Frees number `at` of those that are live; the last takes its place. */
static bool free_one(writer *self, live_block *live, size_t at)
{
    live_block gone = live[at];
    live[at] = live[self->live_blocks - 1];
    return write_free(self, gone.bytes, gone.slot);
}

/* The probability to allocate, the most that may be live, the number of steps and the
 * order of the draws are those of rmm's random_allocations.cpp. */
bool script_make_random(size_t count, size_t bytes_max, script *out)
{
    writer self = { .out = out };
    uint32_t engine = MINSTD_SEED;
    live_block *live = calloc(2 * count, sizeof *live);
    bool good = live != NULL;

    *out = (script){ 0 };
    for (size_t i = 0; good && i < 2 * count; i++) {
        uint64_t bytes = minstd_between(&engine, 1, bytes_max);
        bool allocates = true;
        if (self.live_blocks > 0) {
            uint64_t chance = minstd_between(&engine, 0, 99);
            allocates = chance < 73 && out->allocation_count < count &&
                        self.live_bytes + bytes < 16000 * MIB;
        }
        if (allocates) {
            uint32_t slot;
            good = write_allocate(&self, bytes, &slot);
            if (good)
                live[self.live_blocks - 1] = (live_block){ bytes, slot };
        } else {
            uint64_t at = minstd_between(&engine, 0, count - 1) % self.live_blocks;
            good = free_one(&self, live, (size_t)at);
        }
    }
    while (good && self.live_blocks > 0)
        good = free_one(&self, live, self.live_blocks - 1);
    free(live);
    return writer_end(&self, good);
}

/* ---- from files ---- */

/* One line; `live` has a place for each id, in which 0 bytes mean not live. */
static const char *read_line(writer *self, const char *line, live_block **live,
                             size_t *live_room, size_t *id_count)
{
    char op, end;
    size_t id;
    uint64_t bytes = 0;
    int fields = sscanf(line, "%c %zu %" SCNu64 " %c", &op, &id, &bytes, &end);

    if (fields == 3 && op == 'A' && id == *id_count && bytes > 0) {
        live_block *moved = with_room(*live, live_room, id + 1, sizeof *moved);
        if (moved == NULL)
            return "no host memory";
        *live = moved;
        live_block *block = &(*live)[(*id_count)++];
        block->bytes = bytes;
        return write_allocate(self, bytes, &block->slot) ? NULL : "no host memory";
    }
    if (fields == 2 && op == 'F' && id < *id_count && (*live)[id].bytes > 0) {
        live_block *block = &(*live)[id];
        bytes = block->bytes;
        block->bytes = 0;
        return write_free(self, bytes, block->slot) ? NULL : "no host memory";
    }
    return "a line is neither \"A ID BYTES\" nor \"F ID\" of a live block";
}

bool script_read(const char *path, script *out, const char **why)
{
    writer self = { .out = out };
    live_block *live = NULL;
    size_t live_room = 0, id_count = 0;
    char line[128];
    FILE *file = fopen(path, "r");

    *out = (script){ 0 };
    *why = file == NULL ? "it cannot be opened" : NULL;
    while (*why == NULL && fgets(line, sizeof line, file) != NULL)
        *why = read_line(&self, line, &live, &live_room, &id_count);
    for (size_t id = 0; *why == NULL && id < id_count; id++)
        if (live[id].bytes > 0 && !write_free(&self, live[id].bytes, live[id].slot))
            *why = "no host memory";
    if (*why == NULL && out->allocation_count == 0)
        *why = "it allocates nothing";
    if (file != NULL)
        fclose(file);
    free(live);
    return writer_end(&self, *why == NULL);
}
