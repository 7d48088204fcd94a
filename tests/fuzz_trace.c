/* fuzz_trace.c - the reader of traces and logs against broken files: never a crash, and
 * what it takes is sound.
 *
 * Each file is made by a small generator in one of the three forms, and then damaged:
 * bytes are changed, lines are swapped, doubled or cut out, numbers get new digits, a
 * part of another form comes in, a gzip file is hit in its packed bytes. What is read
 * all the same is held against a recount of its own, event by event. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "support.h"
#include "tools/weir_plan.h"
#include "tools/weir_trace.h"

#define LOG_HEADER "Thread,Time,Action,Pointer,Size,Stream"
#define TEXT_BYTES 16384
#define EVENTS_MAX 60

/* In memory: what a disk does is none of the reader's business. */
static int file;
static char path[64];

/* ---- good files ---- */

typedef struct text {
    char bytes[TEXT_BYTES];
    size_t count;
} text;

__attribute__((format(printf, 2, 3)))
static void text_add(text *self, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(self->bytes + self->count, sizeof self->bytes - self->count,
                           format, args);
    va_end(args);
    must(length >= 0 && self->count + (size_t)length < sizeof self->bytes);
    self->count += (size_t)length;
}

static const char *const headers[] = {
    "t_ns,thread,stream,op,id,size", LOG_HEADER,
    LOG_HEADER ",Device,Alignment,Sequence",
};
enum { FORMS = 3 };

typedef struct maker {
    text *out;
    size_t form;
    uint64_t *state;
    size_t lines;
} maker;

static void add_line(maker *self, bool is_free, uint64_t id, uint64_t bytes)
{
    static const char *const streams[] = { "0", "0x1", "0x2", "0x55d0c8a2b2c0" };
    uint64_t thread = support_random_below(self->state, 3);
    uint64_t stream = support_random_below(self->state, 4);
    self->lines++;
    if (self->form == 0) {
        text_add(self->out, "%zu,%u,%u,%c,%u,%u\n", self->lines, (unsigned)thread,
                 (unsigned)stream, is_free ? 'F' : 'A', (unsigned)id, (unsigned)bytes);
        return;
    }
    text_add(self->out, "%u,12:34:56.789012,%s,0x%x,%u,%s", (unsigned)thread,
             is_free ? "free" : "allocate", (unsigned)id * 256, (unsigned)bytes,
             streams[stream]);
    if (self->form == 2)
        text_add(self->out, ",cuda:0,256,%zu", self->lines);
    text_add(self->out, "\n");
}

static void add_odd_line(maker *self)
{
    static const char *const actions[] = { "allocate failure", "allocate", "free" };
    self->lines++;
    text_add(self->out, "7,12:34:56.789012,%s,(nil),0,0x2",
             actions[support_random_below(self->state, 3)]);
    if (self->form == 2)
        text_add(self->out, ",cuda:0,256,%zu", self->lines);
    text_add(self->out, "\n");
}

static void make_good(text *out, size_t form, uint64_t *state)
{
    enum { IDS = 8 };
    uint64_t live[IDS] = { 0 }; /* bytes, by id */
    maker self = { out, form, state, 0 };
    uint64_t events = support_random_between(state, 1, EVENTS_MAX);
    text_add(out, "%s\n", headers[form]);
    add_line(&self, false, IDS + 1, 1); /* there is one allocation in any case */
    for (uint64_t i = 0; i < events; i++) {
        uint64_t id = support_random_below(state, IDS);
        if (form != 0 && support_random_below(state, 8) == 0) {
            add_odd_line(&self);
            continue;
        }
        bool is_free = live[id] != 0;
        uint64_t bytes = is_free ? live[id] : support_random_between(state, 1, 5000);
        add_line(&self, is_free, id + 1, bytes);
        live[id] = is_free ? 0 : bytes;
    }
}

/* ---- damage ---- */

/* Where the line begins that holds byte `at`, and where the next one does. */
static void line_around(const text *self, size_t at, size_t *from, size_t *to)
{
    *from = at;
    while (*from > 0 && self->bytes[*from - 1] != '\n')
        --*from;
    *to = at;
    while (*to < self->count && self->bytes[*to] != '\n')
        ++*to;
    *to += *to < self->count;
}

static void cut_out(text *self, size_t from, size_t to)
{
    memmove(self->bytes + from, self->bytes + to, self->count - to);
    self->count -= to - from;
}

/* As far as there is room. */
static void put_in(text *self, size_t at, const char *bytes, size_t count)
{
    char copy[512];
    if (count > sizeof copy || self->count + count >= sizeof self->bytes)
        return;
    memcpy(copy, bytes, count); /* it may lie in the text itself */
    memmove(self->bytes + at + count, self->bytes + at, self->count - at);
    memcpy(self->bytes + at, copy, count);
    self->count += count;
}

static void damage_once(text *self, uint64_t *state)
{
    static const char *const pieces[] = {
        ",", "\n", "\r\n", "0", "-", "18446744073709551615", "0x", "(nil)", "\0",
        "allocate", "free", "allocate failure", "t_ns,thread,stream,op,id,size\n",
        LOG_HEADER "\n", ",cuda:0,256,1\n", "9999999999999999999999", " ", "F", "A",
    };
    if (self->count == 0)
        return;
    size_t at = (size_t)support_random_below(state, self->count), from, to;
    size_t piece = (size_t)support_random_below(state, sizeof pieces / sizeof *pieces);
    line_around(self, at, &from, &to);
    switch (support_random_below(state, 7)) {
    case 0: self->bytes[at] = (char)support_random(state); break;
    case 1: self->bytes[at] = (char)('0' + support_random_below(state, 10)); break;
    case 2:
        put_in(self, at, pieces[piece], strlen(pieces[piece]) + (piece == 8));
        break;
    case 3: cut_out(self, from, to); break;
    case 4: put_in(self, from, self->bytes + from, to - from); break;
    case 5: cut_out(self, at, to - (to > at)); break;
    default: self->count = at; break;
    }
}

/* All of it, as a gzip file; returns how many bytes that has. One stream is used again
 * and again: to make one takes longer than to pack such a text. */
static size_t pack(const text *self, unsigned char *out, size_t room)
{
    static z_stream packer;
    static bool is_made;
    if (!is_made)
        must(deflateInit2(&packer, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8,
                          Z_DEFAULT_STRATEGY) == Z_OK);
    is_made = true;
    static unsigned char in[TEXT_BYTES];
    memcpy(in, self->bytes, self->count);
    packer.next_in = in;
    packer.avail_in = (unsigned)self->count;
    packer.next_out = out;
    packer.avail_out = (unsigned)room;
    must(deflate(&packer, Z_FINISH) == Z_STREAM_END);
    size_t count = packer.total_out;
    must(deflateReset(&packer) == Z_OK);
    return count;
}

static void write_all(const void *bytes, size_t count)
{
    must(pwrite(file, bytes, count, 0) == (ssize_t)count);
    must(ftruncate(file, (off_t)count) == 0);
}

/* Writes the text, plain or gzip, and hits a few of a gzip file's bytes. */
static void write_damaged(const text *self, uint64_t *state)
{
    static unsigned char packed[TEXT_BYTES + 1024];
    if (support_random_below(state, 3) != 0) {
        write_all(self->bytes, self->count);
        return;
    }
    size_t count = pack(self, packed, sizeof packed);
    if (support_random_below(state, 2) != 0) {
        size_t at = (size_t)support_random_below(state, count);
        packed[at] = (unsigned char)support_random_below(state, 256);
    }
    write_all(packed, count);
}

/* ---- what was read ---- */

static void must_be_empty(const trace *it, const trace_error *error)
{
    must(it->events == NULL && it->blocks == NULL);
    must_equal(it->event_count + it->block_count + it->stream_count, 0);
    must(error->message[0] != '\0');
}

static void must_be_event(const trace *it, size_t index)
{
    const trace_event *event = &it->events[index];
    must(event->thread < it->thread_count && event->stream < it->stream_count);
    if (event->kind != TRACE_ALLOCATE && event->kind != TRACE_FREE) {
        must_equal(event->block, TRACE_NO_BLOCK);
        return;
    }
    must(event->block < it->block_count);
    const trace_block *block = &it->blocks[event->block];
    must_equal(event->kind == TRACE_FREE ? block->freed_at : block->allocated_at,
               index);
}

static void must_be_sound(const trace *it)
{
    size_t counts[4] = { 0 }, live_bytes = 0, live_blocks = 0, peak = 0, most = 0;
    must(it->block_count > 0);
    must(it->legacy_stream == TRACE_NO_STREAM || it->legacy_stream < it->stream_count);
    for (size_t i = 0; i < it->event_count; i++) {
        must_be_event(it, i);
        const trace_event *event = &it->events[i];
        counts[event->kind]++;
        if (event->kind == TRACE_ALLOCATE) {
            live_bytes += it->blocks[event->block].bytes;
            live_blocks++;
        } else if (event->kind == TRACE_FREE) {
            live_bytes -= it->blocks[event->block].bytes;
            live_blocks--;
        }
        peak = live_bytes > peak ? live_bytes : peak;
        most = live_blocks > most ? live_blocks : most;
    }
    must_equal(counts[TRACE_ALLOCATE], it->block_count);
    must_equal(counts[TRACE_FAILURE], it->failure_count);
    must_equal(counts[TRACE_NOTHING], it->nothing_count);
    must_equal(peak, it->peak_live_bytes);
    must_equal(most, it->peak_live_blocks);
    for (size_t i = 0; i < it->block_count; i++) {
        const trace_block *block = &it->blocks[i];
        must(block->bytes > 0 && block->freed_at > block->allocated_at);
        must(block->alignment != 0 && (block->alignment & (block->alignment - 1)) == 0);
    }
}

/* Each event that is played stands in one lane, in order, an allocation before its
 * free. */
static void must_be_planned(const trace *it, uint64_t *state)
{
    plan work;
    plan_options options = { .spread = PLAN_TRACE, .seed = support_random(state),
                             .thread_count = 1 + support_random_below(state, 3) };
    must(plan_make(it, &options, &work));
    must_equal(work.event_count,
               it->event_count - it->failure_count - it->nothing_count);
    size_t count = 0;
    for (size_t i = 0; i < work.lane_count; i++) {
        for (size_t j = 0; j < work.lanes[i].count; j++, count++) {
            const plan_event *event = &work.lanes[i].events[j];
            must(event->block < work.block_count && event->position < work.event_count);
            must(j == 0 || event[-1].position < event->position);
        }
    }
    must_equal(count, work.event_count);
    for (size_t i = 0; i < work.block_count; i++)
        must(work.blocks[i].allocated_on < work.stream_count
             && work.blocks[i].used_on < work.stream_count);
    plan_clear(&work);
}

static bool read_one(uint64_t *state)
{
    trace it;
    trace_error error;
    bool good = trace_read(path, &it, &error);
    if (good) {
        must_be_sound(&it);
        must_be_planned(&it, state);
    } else {
        must_be_empty(&it, &error);
    }
    trace_clear(&it);
    return good;
}

/* ---- all of it ---- */

static void damaged_files_are_read_or_refused(void **test_state)
{
    (void)test_state;
    static text made;
    uint64_t files = support_bound("fuzz_trace.files", 20000, 1000000), good = 0;
    for (uint64_t i = 0; i < files; i++) {
        uint64_t state = support_seed(i);
        made.count = 0;
        make_good(&made, (size_t)support_random_below(&state, FORMS), &state);
        uint64_t hits = support_random_below(&state, 4);
        for (uint64_t hit = 0; hit < hits; hit++)
            damage_once(&made, &state);
        write_damaged(&made, &state);
        good += read_one(&state);
    }
    /* Both ways are common, or this tests little. */
    must(good > files / 10 && good < files * 9 / 10);
}

static void whole_files_are_read(void **test_state)
{
    (void)test_state;
    static text made;
    for (uint64_t i = 0; i < 300; i++) {
        uint64_t state = support_seed(i);
        made.count = 0;
        make_good(&made, i % FORMS, &state);
        write_all(made.bytes, made.count);
        must(read_one(&state));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_files_are_read),
        cmocka_unit_test(damaged_files_are_read_or_refused),
    };
    /* What a file needs is kept for the next, not given back to the system. */
    (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
    file = memfd_create("trace", MFD_CLOEXEC);
    if (file < 0)
        return 1;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return cmocka_run_group_tests_name("fuzz_trace", tests, NULL, NULL);
}
