/* weir_trace.c - reads an allocation trace, line by line, and refuses what is wrong.
 *
 * Each line becomes an event, which is held against what came before: a table from id
 * to the last block of that name tells whether it is live. The first fault ends the
 * reading, with the line's number, and everything read so far is freed. */
#include "weir_trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir_form.h"

/* ---- from numbers to indices ---- */

/* Open addressing, at most half full; a slot is empty if its index is NONE. */
#define NONE UINT32_MAX

typedef struct number_slot {
    uint64_t number;
    uint32_t index;
} number_slot;

typedef struct number_table {
    number_slot *slots;
    size_t capacity; /* zero or a power of two */
    size_t count;
} number_table;

static size_t number_hash(uint64_t number)
{
    number ^= number >> 32;
    number *= UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(number ^ number >> 29);
}

/* The slot of `number`, or the empty one where it belongs. */
static number_slot *number_slot_of(const number_table *self, uint64_t number)
{
    size_t at = number_hash(number) & (self->capacity - 1);
    while (self->slots[at].index != NONE && self->slots[at].number != number)
        at = (at + 1) & (self->capacity - 1);
    return &self->slots[at];
}

static bool number_table_grow(number_table *self)
{
    number_table bigger = { NULL, self->capacity == 0 ? 64 : self->capacity * 2,
                            self->count };
    bigger.slots = malloc(bigger.capacity * sizeof *bigger.slots);
    if (bigger.slots == NULL)
        return false;
    for (size_t i = 0; i < bigger.capacity; i++)
        bigger.slots[i].index = NONE;
    for (size_t i = 0; i < self->capacity; i++) {
        if (self->slots[i].index != NONE)
            *number_slot_of(&bigger, self->slots[i].number) = self->slots[i];
    }
    free(self->slots);
    *self = bigger;
    return true;
}

/* The slot of `number`; a new one has the index `fresh`. Null: no memory. */
static number_slot *number_table_enter(number_table *self, uint64_t number,
                                       uint32_t fresh)
{
    if (self->count * 2 >= self->capacity && !number_table_grow(self))
        return NULL;
    number_slot *slot = number_slot_of(self, number);
    if (slot->index == NONE) {
        *slot = (number_slot){ number, fresh };
        self->count++;
    }
    return slot;
}

static void number_table_clear(number_table *self)
{
    for (size_t i = 0; i < self->capacity; i++)
        self->slots[i].index = NONE;
    self->count = 0;
}

/* ---- the reader ---- */

typedef struct reader {
    lines lines;
    form form;
    trace trace;
    size_t events_capacity;
    size_t blocks_capacity;
    number_table threads;
    number_table streams;     /* those with a name */
    number_table own_streams; /* from the thread's number */
    number_table ids;         /* to the last block of that name */
    uint64_t last_time;
    size_t live_bytes;
    size_t live_blocks;
} reader;

#define refuse(self, ...) lines_refuse(&(self)->lines, __VA_ARGS__)

static bool refuse_for_memory(reader *self)
{
    return lines_refuse_for_memory(&self->lines);
}

typedef struct name_text {
    char text[40];
} name_text;

/* What the file calls a block. */
static name_text name_of(const reader *self, uint64_t id)
{
    name_text out;
    (void)snprintf(out.text, sizeof out.text,
                   self->form.kind == FORM_TRACE ? "id %" PRIu64 : "pointer 0x%" PRIx64,
                   id);
    return out;
}

/* ---- events ---- */

/* Makes room for one more item; false: no memory. */
static bool array_grow(void **items, size_t *capacity, size_t count, size_t item_bytes)
{
    if (count < *capacity)
        return true;
    size_t more = *capacity == 0 ? 1024 : *capacity * 2;
    void *bigger = more > PTRDIFF_MAX / item_bytes ? NULL
                                                   : realloc(*items, more * item_bytes);
    if (bigger == NULL)
        return false;
    *items = bigger;
    *capacity = more;
    return true;
}

static bool events_make_room(reader *self)
{
    void *events = self->trace.events;
    void *blocks = self->trace.blocks;
    bool grown = array_grow(&events, &self->events_capacity, self->trace.event_count,
                            sizeof(trace_event))
                 && array_grow(&blocks, &self->blocks_capacity,
                               self->trace.block_count, sizeof(trace_block));
    self->trace.events = events;
    self->trace.blocks = blocks;
    return grown;
}

/* Enters the block of an allocation under its id. */
static bool block_begin(reader *self, const trace_line *line, uint32_t *out)
{
    trace *made = &self->trace;
    uint32_t fresh = (uint32_t)made->block_count;
    number_slot *slot = number_table_enter(&self->ids, line->id, fresh);

    if (slot == NULL)
        return refuse_for_memory(self);
    if (slot->index != fresh) {
        const trace_block *before = &made->blocks[slot->index];
        if (before->freed_at == TRACE_NEVER)
            return refuse(self, "%s is allocated again; it is live since line %zu",
                          name_of(self, line->id).text,
                          trace_line_of(before->allocated_at));
        slot->index = fresh;
    }
    if (line->bytes > PTRDIFF_MAX - self->live_bytes)
        return refuse(self, "more bytes are live than an address can tell apart");

    made->blocks[made->block_count++] = (trace_block){
        .id = line->id,
        .bytes = (size_t)line->bytes,
        .alignment = (size_t)line->alignment,
        .allocated_at = made->event_count,
        .freed_at = TRACE_NEVER,
    };
    self->live_bytes += (size_t)line->bytes;
    self->live_blocks++;
    if (self->live_bytes > made->peak_live_bytes)
        made->peak_live_bytes = self->live_bytes;
    if (self->live_blocks > made->peak_live_blocks)
        made->peak_live_blocks = self->live_blocks;
    *out = fresh;
    return true;
}

/* What the free `line` says of its block is what the allocation said. */
static bool block_matches(reader *self, const trace_line *line,
                          const trace_block *block)
{
    if (block->bytes != line->bytes)
        return refuse(self, "%s is freed with %" PRIu64 " bytes; it was allocated in "
                      "line %zu with %zu", name_of(self, line->id).text, line->bytes,
                      trace_line_of(block->allocated_at), block->bytes);
    if (block->alignment != line->alignment)
        return refuse(self, "%s is freed with alignment %" PRIu64 "; it was allocated "
                      "in line %zu with %zu", name_of(self, line->id).text,
                      line->alignment, trace_line_of(block->allocated_at),
                      block->alignment);
    return true;
}

static bool block_end(reader *self, const trace_line *line, uint32_t *out)
{
    trace *made = &self->trace;
    uint32_t index = self->ids.count == 0
                         ? NONE
                         : number_slot_of(&self->ids, line->id)->index;
    if (index == NONE)
        return refuse(self, "%s is freed and was never allocated",
                      name_of(self, line->id).text);
    trace_block *block = &made->blocks[index];
    if (block->freed_at != TRACE_NEVER)
        return refuse(self, "%s is freed again; it was freed in line %zu",
                      name_of(self, line->id).text, trace_line_of(block->freed_at));
    if (!block_matches(self, line, block))
        return false;

    block->freed_at = made->event_count;
    self->live_bytes -= block->bytes;
    self->live_blocks--;
    *out = index;
    return true;
}

/* The index of the stream that the line names. */
static bool stream_enter(reader *self, const trace_line *line, uint32_t *out)
{
    trace *made = &self->trace;
    uint32_t fresh = (uint32_t)made->stream_count;

    if (line->stream_kind == FORM_LEGACY) {
        if (made->legacy_stream == TRACE_NO_STREAM)
            made->legacy_stream = fresh;
        *out = made->legacy_stream;
    } else {
        bool is_own = line->stream_kind == FORM_OWN;
        number_slot *slot =
            number_table_enter(is_own ? &self->own_streams : &self->streams,
                               is_own ? line->thread : line->stream, fresh);
        if (slot == NULL)
            return refuse_for_memory(self);
        *out = slot->index;
    }
    made->stream_count += *out == fresh;
    return true;
}

static bool block_of_event(reader *self, const trace_line *line, trace_event *event)
{
    trace *made = &self->trace;

    switch (line->kind) {
    case TRACE_ALLOCATE: return block_begin(self, line, &event->block);
    case TRACE_FREE: return block_end(self, line, &event->block);
    case TRACE_FAILURE: made->failure_count++; break;
    case TRACE_NOTHING: made->nothing_count++; break;
    }
    event->block = TRACE_NO_BLOCK;
    return true;
}

static bool event_add(reader *self, const trace_line *line)
{
    trace *made = &self->trace;
    trace_event event = { .kind = line->kind };

    if (made->event_count == UINT32_MAX - 1)
        return refuse(self, "more than %" PRIu32 " events", UINT32_MAX - 1);
    if (line->time < self->last_time)
        return refuse(self, "the time goes back, from %" PRIu64 " to %" PRIu64,
                      self->last_time, line->time);
    if (line->begins_run)
        number_table_clear(&self->ids); /* another run's addresses are others */
    number_slot *thread = number_table_enter(&self->threads, line->thread,
                                             (uint32_t)self->threads.count);
    if (thread == NULL || !events_make_room(self))
        return refuse_for_memory(self);
    event.thread = thread->index;
    if (!stream_enter(self, line, &event.stream)
        || !block_of_event(self, line, &event))
        return false;
    made->events[made->event_count++] = event;
    self->last_time = line->time;
    return true;
}

/* ---- the whole file ---- */

static bool header_read(reader *self)
{
    bool more;

    if (!lines_read(&self->lines, &more))
        return false;
    if (!more)
        return refuse(self, "the file is empty");
    return form_begin(&self->form, &self->lines);
}

static bool body_read(reader *self)
{
    bool more;
    trace_line line;

    for (;;) {
        if (!lines_read(&self->lines, &more))
            return false;
        if (!more)
            break;
        if (!form_read(&self->form, &self->lines, &line) || !event_add(self, &line))
            return false;
    }
    if (self->trace.event_count == 0)
        return refuse(self, "there are no events");
    if (self->trace.block_count == 0)
        return refuse(self, "nothing is allocated");
    self->trace.thread_count = self->threads.count;
    return true;
}

void trace_clear(trace *self)
{
    free(self->events);
    free(self->blocks);
    *self = (trace){ .legacy_stream = TRACE_NO_STREAM };
}

bool trace_read(const char *path, trace *out, trace_error *error)
{
    *out = (trace){ .legacy_stream = TRACE_NO_STREAM };
    *error = (trace_error){ 0 };
    reader *self = calloc(1, sizeof *self);
    if (self == NULL) {
        snprintf(error->message, sizeof error->message, "no host memory to read it");
        return false;
    }
    self->lines.error = error;
    self->trace.legacy_stream = TRACE_NO_STREAM;

    bool good = lines_open(&self->lines, path) && header_read(self) && body_read(self);
    lines_close(&self->lines);
    if (good)
        *out = self->trace;
    else
        trace_clear(&self->trace);
    free(self->threads.slots);
    free(self->streams.slots);
    free(self->own_streams.slots);
    free(self->ids.slots);
    free(self);
    return good;
}
