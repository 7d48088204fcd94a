/* weir_trace.c - reads an allocation trace, line by line, and refuses what is wrong.
 *
 * The file is never in memory as a whole. Each line is cut into its six fields, each
 * field becomes a number, and each event is held against what came before: a table
 * from id to the last block of that name tells whether it is live. The first fault
 * ends the reading, with the line's number, and everything read so far is freed. */
#include "weir_trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define HEADER "t_ns,thread,stream,op,id,size"

/* Six numbers of 20 digits would do. */
#define LINE_BYTES_MAX 160
#define CHUNK_BYTES 65536

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

/* ---- the reader ---- */

typedef struct reader {
    gzFile file;
    char chunk[CHUNK_BYTES];
    size_t chunk_bytes;
    size_t chunk_at;
    char line[LINE_BYTES_MAX + 1];
    size_t line_number;

    trace trace;
    size_t events_capacity;
    size_t blocks_capacity;
    number_table threads;
    number_table streams;
    number_table ids; /* to the last block of that name */
    uint64_t last_time;
    size_t live_bytes;
    size_t live_blocks;
    trace_error *error;
} reader;

__attribute__((format(printf, 2, 3)))
static bool refuse(reader *self, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(self->error->message, sizeof self->error->message, format, args);
    va_end(args);
    self->error->line = self->line_number;
    return false;
}

static bool refuse_for_memory(reader *self)
{
    self->line_number = 0;
    return refuse(self, "no host memory for a trace of this length");
}

/* ---- lines ---- */

/* What zlib found wrong with the file when a read came back short. */
static bool refuse_for_zlib(reader *self)
{
    int code;
    int cause = errno;
    const char *words = gzerror(self->file, &code);

    if (code == Z_BUF_ERROR)
        return refuse(self, "the gzip file is cut short");
    if (code == Z_ERRNO) {
        self->line_number = 0;
        return refuse(self, "cannot be read: %s", strerror(cause));
    }
    if (code == Z_MEM_ERROR)
        return refuse_for_memory(self);
    return refuse(self, "the gzip file is broken: %s", words);
}

/* Reads the next chunk; an empty one at the end of the file. */
static bool chunk_fill(reader *self)
{
    errno = 0;
    int bytes = gzread(self->file, self->chunk, CHUNK_BYTES);
    int code = Z_OK;
    (void)gzerror(self->file, &code);
    if (bytes < 0 || (bytes == 0 && code != Z_OK && code != Z_STREAM_END))
        return refuse_for_zlib(self);
    self->chunk_bytes = (size_t)bytes;
    self->chunk_at = 0;
    return true;
}

/* Reads a line without its end. *more is false at the end of the file, where a line
 * that has begun and not ended is a fault: half a number is a number too. */
static bool line_read(reader *self, bool *more)
{
    size_t bytes = 0;

    self->line_number++;
    for (;;) {
        if (self->chunk_at == self->chunk_bytes && !chunk_fill(self))
            return false;
        if (self->chunk_bytes == 0)
            break;
        char c = self->chunk[self->chunk_at++];
        if (c == '\n') {
            if (bytes > 0 && self->line[bytes - 1] == '\r')
                bytes--;
            self->line[bytes] = '\0';
            if (strlen(self->line) != bytes)
                return refuse(self, "there is a null byte in the line");
            *more = true;
            return true;
        }
        if (bytes == LINE_BYTES_MAX)
            return refuse(self, "the line has more than %d bytes", LINE_BYTES_MAX);
        self->line[bytes++] = c;
    }
    *more = false;
    if (bytes > 0)
        return refuse(self, "the last line has no end: the file is cut short");
    return true;
}

/* ---- fields ---- */

enum { TIME, THREAD, STREAM, OP, ID, SIZE, FIELD_COUNT };

static const char *const field_names[FIELD_COUNT] = {
    "t_ns", "thread", "stream", "op", "id", "size"
};

/* Cuts the line at its commas, in place. */
static bool fields_cut(reader *self, char *fields[FIELD_COUNT])
{
    size_t count = 1;

    fields[0] = self->line;
    for (char *at = self->line; *at != '\0'; at++) {
        if (*at != ',')
            continue;
        if (count < FIELD_COUNT)
            fields[count] = at + 1;
        count++;
        *at = '\0';
    }
    if (count != FIELD_COUNT)
        return refuse(self, "%zu field%s; there are %d: %s",
                      count, count == 1 ? "" : "s", FIELD_COUNT, HEADER);
    return true;
}

/* Digits only, up to UINT64_MAX. */
static bool field_number(reader *self, char *const fields[FIELD_COUNT], int which,
                         uint64_t *out)
{
    uint64_t number = 0;

    for (const char *at = fields[which]; *at != '\0'; at++) {
        if (*at < '0' || *at > '9')
            return refuse(self, "%s is `%.24s`, which is no number",
                          field_names[which], fields[which]);
        uint64_t digit = (uint64_t)(*at - '0');
        if (number > (UINT64_MAX - digit) / 10)
            return refuse(self, "%s is `%.40s`, which is too large",
                          field_names[which], fields[which]);
        number = number * 10 + digit;
    }
    if (fields[which][0] == '\0')
        return refuse(self, "%s is empty", field_names[which]);
    *out = number;
    return true;
}

/* One line as it stands, before it is held against the others. */
typedef struct trace_line {
    uint64_t time, thread, stream, id, bytes;
    bool is_free;
} trace_line;

static bool line_parse(reader *self, trace_line *out)
{
    char *fields[FIELD_COUNT];

    if (!fields_cut(self, fields)
        || !field_number(self, fields, TIME, &out->time)
        || !field_number(self, fields, THREAD, &out->thread)
        || !field_number(self, fields, STREAM, &out->stream)
        || !field_number(self, fields, ID, &out->id)
        || !field_number(self, fields, SIZE, &out->bytes))
        return false;
    if (strcmp(fields[OP], "A") != 0 && strcmp(fields[OP], "F") != 0)
        return refuse(self, "op is `%.24s`; it is A or F", fields[OP]);
    out->is_free = fields[OP][0] == 'F';

    if (out->bytes == 0)
        return refuse(self, "size is 0");
    if (out->bytes > PTRDIFF_MAX)
        return refuse(self, "size is %" PRIu64 ", which is too large", out->bytes);
    if (out->time < self->last_time)
        return refuse(self, "the time goes back, from %" PRIu64 " to %" PRIu64,
                      self->last_time, out->time);
    return true;
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
            return refuse(self, "id %" PRIu64 " is allocated again; it is live since "
                          "line %zu", line->id, trace_line_of(before->allocated_at));
        slot->index = fresh;
    }
    if (line->bytes > PTRDIFF_MAX - self->live_bytes)
        return refuse(self, "more bytes are live than an address can tell apart");

    made->blocks[made->block_count++] = (trace_block){
        .id = line->id,
        .bytes = (size_t)line->bytes,
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

static bool block_end(reader *self, const trace_line *line, uint32_t *out)
{
    trace *made = &self->trace;
    if (self->ids.count == 0)
        return refuse(self, "id %" PRIu64 " is freed and was never allocated",
                      line->id);

    uint32_t index = number_slot_of(&self->ids, line->id)->index;
    if (index == NONE)
        return refuse(self, "id %" PRIu64 " is freed and was never allocated",
                      line->id);
    trace_block *block = &made->blocks[index];
    if (block->freed_at != TRACE_NEVER)
        return refuse(self, "id %" PRIu64 " is freed again; it was freed in line %zu",
                      line->id, trace_line_of(block->freed_at));
    if (block->bytes != line->bytes)
        return refuse(self, "id %" PRIu64 " is freed with %" PRIu64 " bytes; it was "
                      "allocated in line %zu with %zu", line->id, line->bytes,
                      trace_line_of(block->allocated_at), block->bytes);

    block->freed_at = made->event_count;
    self->live_bytes -= block->bytes;
    self->live_blocks--;
    *out = index;
    return true;
}

static bool event_add(reader *self, const trace_line *line)
{
    trace *made = &self->trace;

    if (made->event_count == UINT32_MAX - 1)
        return refuse(self, "more than %" PRIu32 " events", UINT32_MAX - 1);
    number_slot *thread = number_table_enter(&self->threads, line->thread,
                                             (uint32_t)self->threads.count);
    number_slot *stream = number_table_enter(&self->streams, line->stream,
                                             (uint32_t)self->streams.count);
    if (thread == NULL || stream == NULL || !events_make_room(self))
        return refuse_for_memory(self);

    trace_event event = { .thread = thread->index, .stream = stream->index,
                          .is_free = line->is_free };
    if (line->is_free ? !block_end(self, line, &event.block)
                       : !block_begin(self, line, &event.block))
        return false;
    made->events[made->event_count++] = event;
    self->last_time = line->time;
    return true;
}

/* ---- the whole file ---- */

static bool header_read(reader *self)
{
    bool more;

    if (!line_read(self, &more))
        return false;
    if (!more)
        return refuse(self, "the file is empty");
    if (strcmp(self->line, HEADER) != 0)
        return refuse(self, "the first line is not `%s`", HEADER);
    return true;
}

static bool body_read(reader *self)
{
    bool more;
    trace_line line;

    for (;;) {
        if (!line_read(self, &more))
            return false;
        if (!more)
            break;
        if (!line_parse(self, &line) || !event_add(self, &line))
            return false;
    }
    if (self->trace.event_count == 0)
        return refuse(self, "there are no events");
    self->trace.thread_count = self->threads.count;
    self->trace.stream_count = self->streams.count;
    return true;
}

static bool file_open(reader *self, const char *path)
{
    errno = 0;
    self->file = gzopen(path, "rbe");
    if (self->file == NULL)
        return refuse(self, "cannot be opened: %s",
                      errno != 0 ? strerror(errno) : "no host memory");
    return true;
}

void trace_clear(trace *self)
{
    free(self->events);
    free(self->blocks);
    *self = (trace){ 0 };
}

bool trace_read(const char *path, trace *out, trace_error *error)
{
    *out = (trace){ 0 };
    *error = (trace_error){ 0 };
    reader *self = calloc(1, sizeof *self);
    if (self == NULL) {
        snprintf(error->message, sizeof error->message, "no host memory to read it");
        return false;
    }
    self->error = error;

    bool good = file_open(self, path) && header_read(self) && body_read(self);
    if (self->file != NULL)
        (void)gzclose_r(self->file);
    if (good)
        *out = self->trace;
    else
        trace_clear(&self->trace);
    free(self->threads.slots);
    free(self->streams.slots);
    free(self->ids.slots);
    free(self);
    return good;
}
