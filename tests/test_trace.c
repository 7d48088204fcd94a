/* test_trace.c - the reader of allocation traces: what it makes of a good file, and
 * that each kind of broken one is refused with its line, and leaves nothing behind.
 *
 * Needs no device; it is linked with tools/weir_trace.c. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "tools/weir_plan.h"
#include "tools/weir_trace.h"

#define HEADER "t_ns,thread,stream,op,id,size\n"
#define LOG_HEADER "Thread,Time,Action,Pointer,Size,Stream"
#define RMM_HEADER LOG_HEADER "\n"
#define WEIR_HEADER LOG_HEADER ",Device,Alignment,Sequence\n"

/* ---- files ---- */

static char folder[] = "/tmp/weir_trace_XXXXXX";
static char path[64];

static int folder_make(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/trace.csv", folder);
    return 0;
}

static int folder_remove(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static void write_bytes(const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void write_text(const char *text)
{
    write_bytes(text, strlen(text));
}

/* Writes `text` as gzip, and returns the bytes of the file. */
static size_t write_gzip(const char *text)
{
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, text, (unsigned)strlen(text)), strlen(text));
    assert_int_equal(gzclose(file), Z_OK);
    FILE *back = fopen(path, "rb");
    assert_non_null(back);
    assert_int_equal(fseek(back, 0, SEEK_END), 0);
    long bytes = ftell(back);
    (void)fclose(back);
    return (size_t)bytes;
}

/* A trace with many lines, which does not fit into one chunk of the reader; the caller
 * frees it. */
static char *long_text(size_t pairs)
{
    size_t bytes = sizeof HEADER + pairs * 64;
    char *text = malloc(bytes);
    assert_non_null(text);
    size_t used = (size_t)snprintf(text, bytes, "%s", HEADER);
    for (size_t i = 0; i < pairs; i++)
        used += (size_t)snprintf(text + used, bytes - used,
                                 "%zu,7,0,A,%zu,512\n%zu,7,0,F,%zu,512\n",
                                 2 * i, i * 977, 2 * i + 1, i * 977);
    return text;
}

/* ---- good files ---- */

static void read_good(trace *out)
{
    trace_error error;
    bool good = trace_read(path, out, &error);
    if (!good)
        print_message("line %zu: %s\n", error.line, error.message);
    assert_true(good);
}

static void trace_tells_blocks_threads_and_streams_apart(void **state)
{
    (void)state;
    trace it;
    write_text(HEADER
               "0,900,18446744073709551615,A,18446744073709551615,100\n"
               "5,901,3,A,0,50\n"
               "5,900,3,F,18446744073709551615,100\n"
               "9,901,3,A,7,20\n");
    read_good(&it);

    assert_int_equal(it.event_count, 4);
    assert_int_equal(it.block_count, 3);
    assert_int_equal(it.thread_count, 2);
    assert_int_equal(it.stream_count, 2);
    assert_int_equal(it.peak_live_bytes, 150);
    assert_int_equal(it.peak_live_blocks, 2);

    assert_int_equal(it.events[0].thread, 0);
    assert_int_equal(it.events[0].stream, 0);
    assert_int_equal(it.events[0].kind, TRACE_ALLOCATE);
    assert_int_equal(it.events[1].thread, 1);
    assert_int_equal(it.events[1].stream, 1);
    assert_int_equal(it.events[2].block, 0);
    assert_int_equal(it.events[2].thread, 0);
    assert_int_equal(it.events[2].kind, TRACE_FREE);
    assert_int_equal(it.events[3].block, 2);

    assert_true(it.blocks[0].id == UINT64_MAX);
    assert_int_equal(it.blocks[0].bytes, 100);
    assert_int_equal(it.blocks[0].allocated_at, 0);
    assert_int_equal(it.blocks[0].freed_at, 2);
    assert_int_equal(it.blocks[1].freed_at, TRACE_NEVER);
    trace_clear(&it);
    assert_null(it.events);
    assert_int_equal(it.event_count, 0);
}

static void trace_takes_an_id_again_after_its_free(void **state)
{
    (void)state;
    trace it;
    write_text(HEADER
               "0,0,0,A,1,10\n1,0,0,F,1,10\n2,0,0,A,1,30\n3,0,0,F,1,30\n");
    read_good(&it);
    assert_int_equal(it.block_count, 2);
    assert_int_equal(it.blocks[0].freed_at, 1);
    assert_int_equal(it.blocks[1].bytes, 30);
    assert_int_equal(it.events[3].block, 1);
    assert_int_equal(it.peak_live_bytes, 30);
    trace_clear(&it);
}

static void trace_takes_lines_that_end_as_on_other_systems(void **state)
{
    (void)state;
    trace it;
    write_text("t_ns,thread,stream,op,id,size\r\n0,0,0,A,1,10\r\n");
    read_good(&it);
    assert_int_equal(it.event_count, 1);
    trace_clear(&it);
}

static void trace_is_the_same_plain_and_gzipped(void **state)
{
    (void)state;
    trace plain, zipped;
    char *text = long_text(20000);
    write_text(text);
    read_good(&plain);
    (void)write_gzip(text);
    read_good(&zipped);
    free(text);

    assert_int_equal(plain.event_count, 40000);
    assert_int_equal(plain.peak_live_bytes, 512);
    assert_int_equal(zipped.event_count, plain.event_count);
    assert_int_equal(zipped.block_count, plain.block_count);
    for (size_t i = 0; i < plain.event_count; i++) {
        assert_int_equal(zipped.events[i].block, plain.events[i].block);
        assert_int_equal(zipped.events[i].kind, plain.events[i].kind);
        assert_int_equal(plain.events[i].block, i / 2);
    }
    trace_clear(&plain);
    trace_clear(&zipped);
}

/* ---- good logs ---- */

/* As RMM writes it: two threads, a stream of their own each, the legacy stream by two
 * names, a failure, and a call for nothing; an address comes back. */
static void trace_reads_a_log_of_rmm(void **state)
{
    (void)state;
    trace it;
    write_text(RMM_HEADER
               "4711,23:59:59.999999,allocate,0x7f0000000200,512,0x55d0c8a2b2c0\n"
               "4712,00:00:00.000000,allocate,0x7F0000000400,100,0x2\n"
               "4711,00:00:00.000002,allocate failure,(nil),1099511627776,0x2\n"
               "4711,00:00:00.000001,allocate,(nil),0,0x2\n"
               "4711,00:00:00:000003,free,(nil),0,0x2\n"
               "4711,00:00:00.000003,allocate,0x7f0000000600,1,0x1\n"
               "4712,00:00:00.000004,free,0x7f0000000200,512,0\n"
               "4712,00:00:00.000005,allocate,0x7f0000000200,300,0x2\n"
               "4712,00:00:00.000005,allocate failure,0x0,0,0x55d0c8a2b2c0\n");
    read_good(&it);

    assert_int_equal(it.event_count, 9);
    assert_int_equal(it.block_count, 4);
    assert_int_equal(it.thread_count, 2);
    assert_int_equal(it.failure_count, 2);
    assert_int_equal(it.nothing_count, 2);
    assert_int_equal(it.peak_live_bytes, 613);
    static const trace_event events[] = {
        { 0, 0, 0, TRACE_ALLOCATE },
        { 1, 1, 1, TRACE_ALLOCATE },
        { TRACE_NO_BLOCK, 0, 2, TRACE_FAILURE },
        { TRACE_NO_BLOCK, 0, 2, TRACE_NOTHING },
        { TRACE_NO_BLOCK, 0, 2, TRACE_NOTHING },
        { 2, 0, 3, TRACE_ALLOCATE },
        { 0, 1, 3, TRACE_FREE },
        { 3, 1, 1, TRACE_ALLOCATE },
        { TRACE_NO_BLOCK, 1, 0, TRACE_FAILURE },
    };
    for (size_t i = 0; i < it.event_count; i++) {
        assert_int_equal(it.events[i].block, events[i].block);
        assert_int_equal(it.events[i].thread, events[i].thread);
        assert_int_equal(it.events[i].stream, events[i].stream);
        assert_int_equal(it.events[i].kind, events[i].kind);
    }
    assert_int_equal(it.stream_count, 4);
    assert_int_equal(it.legacy_stream, 3);
    assert_int_equal(it.blocks[0].freed_at, 6);
    assert_int_equal(it.blocks[0].alignment, 256);
    assert_true(it.blocks[3].id == UINT64_C(0x7f0000000200));
    trace_clear(&it);
}

/* Two runs in one file: what the first has not freed stays live, and its address may
 * be another block's in the second. */
static void trace_reads_a_log_of_weir(void **state)
{
    (void)state;
    trace it;
    write_text(WEIR_HEADER
               "1,10:00:00.000000,allocate,0xa00,10,0x99,cuda:0,512,1\n"
               "1,10:00:00.000000,allocate,0xc00,20,0x99,cuda:0,16,2\n"
               "1,10:00:00.000000,free,0xa00,10,0x98,cuda:0,512,3\n"
               "2,09:00:00.000000,allocate,0xc00,5,0,emulated:1,256,1\n"
               "2,09:00:00.000000,free,0xc00,5,0,emulated:1,256,2\n");
    read_good(&it);
    assert_int_equal(it.block_count, 3);
    assert_int_equal(it.stream_count, 3);
    assert_int_equal(it.legacy_stream, 2);
    assert_int_equal(it.blocks[0].alignment, 512);
    assert_int_equal(it.blocks[1].freed_at, TRACE_NEVER);
    assert_int_equal(it.blocks[2].freed_at, 4);
    assert_int_equal(it.peak_live_bytes, 30);
    trace_clear(&it);
}

/* A trace's own stream 0 is no default stream. */
static void trace_has_a_legacy_stream_only_in_a_log(void **state)
{
    (void)state;
    trace it;
    write_text(HEADER "0,0,0,A,1,10\n0,0,1,A,2,10\n0,0,2,A,3,10\n");
    read_good(&it);
    assert_int_equal(it.stream_count, 3);
    assert_int_equal(it.legacy_stream, TRACE_NO_STREAM);
    trace_clear(&it);
}

/* What fails in the log, whatever its size, and asks for nothing, is not in the plan;
 * and the streams are the log's own. */
static void trace_of_a_log_is_planned_without_its_failures(void **state)
{
    (void)state;
    trace it;
    plan work;
    write_text(RMM_HEADER
               "1,00:00:00.000000,allocate failure,(nil),18446744073709551615,0\n"
               "1,00:00:00.000000,allocate,0x100,70,0x7\n"
               "2,00:00:00.000000,allocate,(nil),0,0x2\n"
               "2,00:00:00.000000,free,0x100,70,0x9\n");
    read_good(&it);
    const plan_options options = { .spread = PLAN_TRACE, .thread_count = 2 };
    assert_true(plan_make(&it, &options, &work));
    assert_int_equal(work.event_count, 2);
    assert_int_equal(work.stream_count, 4);
    assert_int_equal(work.legacy_stream, 0);
    assert_int_equal(work.handoffs, 1);
    assert_int_equal(work.crossings, 1);
    assert_int_equal(work.blocks[0].allocated_on, 1);
    assert_int_equal(work.blocks[0].used_on, 3);
    assert_int_equal(work.blocks[0].line, 3);
    assert_int_equal(work.lanes[0].count, 1);
    assert_int_equal(work.lanes[0].events[0].position, 0);
    assert_int_equal(work.lanes[1].count, 1);
    assert_int_equal(work.lanes[1].events[0].position, 1);
    assert_true(work.lanes[1].events[0].is_free);
    plan_clear(&work);
    trace_clear(&it);
}

/* ---- broken files ---- */

/* Reads the file, which must be refused at `line` in a sentence that holds `words`. */
static void assert_refused(size_t line, const char *words)
{
    trace it;
    trace_error error;
    memset(&it, 0xFF, sizeof it);
    bool good = trace_read(path, &it, &error);
    if (good || error.line != line || strstr(error.message, words) == NULL) {
        print_message("expected line %zu: ...%s...\n", line, words);
        print_message("got      line %zu: %s\n", error.line,
                      good ? "(it was read)" : error.message);
        fail();
    }
    assert_null(it.events);
    assert_null(it.blocks);
    assert_int_equal(it.event_count, 0);
    assert_int_equal(it.block_count, 0);
}

static size_t bytes_in_use(void)
{
    return mallinfo2().uordblks + mallinfo2().hblkhd;
}

/* Reads the file a few times; after the first, which may fill the C library's own
 * caches, the heap must not grow. */
static void assert_leaves_nothing(void)
{
    size_t before = 0;
    for (int i = 0; i < 20; i++) {
        trace it;
        trace_error error;
        (void)trace_read(path, &it, &error);
        trace_clear(&it);
        if (i == 0)
            before = bytes_in_use();
    }
    assert_int_equal(bytes_in_use(), before);
}

typedef struct broken {
    const char *text; /* what follows the header */
    size_t line;
    const char *words;
} broken;

static const broken broken_files[] = {
    { "", 2, "there are no events" },
    { "\n", 2, "1 field; there are 6" },
    { "0,0,0,A,1\n", 2, "5 fields; there are 6" },
    { "0,0,0,A,1,10,\n", 2, "7 fields; there are 6" },
    { "0,0,0,A,1,10,,,,,,,,\n", 2, "14 fields; there are 6" },
    { "0;0;0;A;1;10\n", 2, "1 field;" },
    { "0,0,0,A,1,10\n\n", 3, "1 field;" },
    { "x,0,0,A,1,10\n", 2, "t_ns is `x`, which is no number" },
    { "0,-1,0,A,1,10\n", 2, "thread is `-1`, which is no number" },
    { "0,0,1.5,A,1,10\n", 2, "stream is `1.5`, which is no number" },
    { "0,0,0,A,0x1,10\n", 2, "id is `0x1`, which is no number" },
    { "0,0,0,A,1,+10\n", 2, "size is `+10`, which is no number" },
    { "0,0,0,A, 1,10\n", 2, "id is ` 1`, which is no number" },
    { "0,0,0,A,1,1e6\n", 2, "size is `1e6`, which is no number" },
    { "0,0,0,A,1,\n", 2, "size is empty" },
    { ",0,0,A,1,10\n", 2, "t_ns is empty" },
    { "18446744073709551616,0,0,A,1,10\n", 2, "t_ns is `18446744073709551616`, which "
                                              "is too large" },
    { "0,0,0,A,99999999999999999999999999,10\n", 2, "which is too large" },
    { "0,0,0,A,1,18446744073709551615\n", 2, "size is 18446744073709551615, which is "
                                             "too large" },
    { "0,0,0,A,1,9000000000000000000\n0,0,0,A,2,9000000000000000000\n", 3,
      "more bytes are live" },
    { "0,0,0,A,1,0\n", 2, "size is 0" },
    { "0,0,0,,1,10\n", 2, "op is ``; it is A or F" },
    { "0,0,0,a,1,10\n", 2, "op is `a`; it is A or F" },
    { "0,0,0,AF,1,10\n", 2, "op is `AF`; it is A or F" },
    { "0,0,0,A,1,10\n0,0,0,A,1,10\n", 3, "id 1 is allocated again; it is live since "
                                         "line 2" },
    { "0,0,0,F,1,10\n", 2, "id 1 is freed and was never allocated" },
    { "0,0,0,A,1,10\n1,0,0,F,2,10\n", 3, "id 2 is freed and was never allocated" },
    { "0,0,0,A,1,10\n1,0,0,F,1,10\n2,0,0,F,1,10\n", 4, "id 1 is freed again; it was "
                                                       "freed in line 3" },
    { "0,0,0,A,1,10\n1,0,0,F,1,11\n", 3, "id 1 is freed with 11 bytes; it was "
                                         "allocated in line 2 with 10" },
    { "5,0,0,A,1,10\n4,0,0,F,1,10\n", 3, "the time goes back, from 5 to 4" },
    { "0,0,0,A,1,10", 2, "the last line has no end" },
    { "0,0,0,A,1,10\n1,0,0,F,1", 3, "the last line has no end" },
    { "# by hand\n0,0,0,A,1,10\n", 2, "1 field;" },
};

#define T "1,00:00:00.000000,"

static const broken broken_rmm_logs[] = {
    { "", 2, "there are no events" },
    { T "allocate failure,(nil),5,0\n", 3, "nothing is allocated" },
    { T "allocate,0x1,10\n", 2, "5 fields; there are 6" },
    { T "allocate,0x1,10,0,cuda:0,256,1\n", 2, "9 fields; there are 6" },
    { "x,00:00:00.000000,allocate,0x1,10,0\n", 2, "Thread is `x`" },
    { "0x1,00:00:00.000000,allocate,0x1,10,0\n", 2, "Thread is `0x1`" },
    { "1,0:00:00.000000,allocate,0x1,10,0\n", 2, "Time is `0:00:00.000000`" },
    { "1,30:00:00.000000,allocate,0x1,10,0\n", 2, "Time is `30:00:00.000000`" },
    { "1,00-00:00.000000,allocate,0x1,10,0\n", 2, "Time is `00-00:00.000000`" },
    { "1,00:00.00.000000,allocate,0x1,10,0\n", 2, "Time is `00:00.00.000000`" },
    { "1,,allocate,0x1,10,0\n", 2, "Time is ``" },
    { T "alloc,0x1,10,0\n", 2, "Action is `alloc`" },
    { T "deallocate,0x1,10,0\n", 2, "Action is `deallocate`" },
    { T "allocate,0x,10,0\n", 2, "Pointer is empty" },
    { T "allocate,0xg,10,0\n", 2, "Pointer is `g`, which is no number" },
    { T "allocate,0x10000000000000000,10,0\n", 2, "which is too large" },
    { T "allocate,(nil),10,0\n", 2, "Pointer is null, of 10 bytes" },
    { T "free,0x0,10,0\n", 2, "Pointer is null, of 10 bytes" },
    { T "allocate,0x1,-1,0\n", 2, "Size is `-1`, which is no number" },
    { T "allocate,0x1,0x10,0\n", 2, "Size is `0x10`, which is no number" },
    { T "allocate,0x1,18446744073709551615,0\n", 2, "Size is 18446744073709551615" },
    { T "allocate,0x1,10,\n", 2, "Stream is empty" },
    { T "allocate,0x1,10,legacy\n", 2, "Stream is `legacy`, which is no number" },
    { T "free,0x1,10,0\n", 2, "pointer 0x1 is freed and was never allocated" },
    { T "allocate,0x1,10,0\n" T "allocate,0x1,10,0\n", 3, "pointer 0x1 is allocated "
                                                        "again; it is live since" },
    { T "allocate,0x1,10,0\n" T "free,0x1,10,0\n" T "free,0x1,10,0\n", 4,
      "pointer 0x1 is freed again; it was freed in line 3" },
    { T "allocate,0x1,10,0\n" T "free,0x1,11,0\n", 3, "freed with 11 bytes" },
    { T "allocate,0x1,10,0", 2, "the last line has no end" },
};

#define W T "allocate,0x1,10,0,cuda:0,256,1\n" T

static const broken broken_weir_logs[] = {
    { T "allocate,0x1,10,0\n", 2, "6 fields; there are 9" },
    { T "allocate,0x1,10,0,cuda:0,256,2\n", 2, "Sequence is 2 after 0" },
    { T "allocate,0x1,10,0,cuda:0,256,0\n", 2, "Sequence is 0 after 0" },
    { T "allocate,0x1,10,0,cuda:0,256,\n", 2, "Sequence is empty" },
    { T "allocate,0x1,10,0,cuda:0,24,1\n", 2, "Alignment is 24, which is no power" },
    { T "allocate,0x1,10,0,cuda:0,0,1\n", 2, "Alignment is 0, which is no power" },
    { T "allocate,0x1,10,0,,256,1\n", 2, "Device is ``" },
    { T "allocate,0x1,10,0,a-device-with-a-name-of-many-characters,256,1\n", 2,
      "Device is `a-device-with" },
    { W "free,0x1,10,0,cuda:0,256,3\n", 3, "Sequence is 3 after 1: lines of the log "
                                            "are missing" },
    { W "free,0x1,10,0,cuda:1,256,2\n", 3, "Device is `cuda:1` after `cuda:0`" },
    { W "free,0x1,10,0,cuda:0,64,2\n", 3, "pointer 0x1 is freed with alignment 64; it "
                                           "was allocated in line 2 with 256" },
    { W "free,0x1,10,0,cuda:0,256,1\n", 3, "freed and was never allocated" },
};

static void assert_all_refused(const char *header, const broken *files, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s%s", header, files[i].text);
        write_text(text);
        assert_refused(files[i].line, files[i].words);
        (void)write_gzip(text);
        assert_refused(files[i].line, files[i].words);
        assert_leaves_nothing();
    }
}

static void trace_refuses_each_kind_of_broken_line(void **state)
{
    (void)state;
    assert_all_refused(HEADER, broken_files,
                       sizeof broken_files / sizeof *broken_files);
}

static void trace_refuses_each_kind_of_broken_line_of_a_log(void **state)
{
    (void)state;
    assert_all_refused(RMM_HEADER, broken_rmm_logs,
                       sizeof broken_rmm_logs / sizeof *broken_rmm_logs);
    assert_all_refused(WEIR_HEADER, broken_weir_logs,
                       sizeof broken_weir_logs / sizeof *broken_weir_logs);
}

static void trace_refuses_a_file_without_the_header(void **state)
{
    (void)state;
    write_text("");
    assert_refused(1, "the file is empty");
    write_text("0,0,0,A,1,10\n");
    assert_refused(1, "the first line is not `t_ns,thread,stream,op,id,size`");
    write_text("t_ns,thread,stream,op,id,bytes\n0,0,0,A,1,10\n");
    assert_refused(1, "the first line is not");
    write_text(LOG_HEADER ",Device\n1,00:00:00.000000,allocate,0x1,10,0,cuda:0\n");
    assert_refused(1, "the first line is not");
    write_text("t_ns,thread,stream,op,id,size");
    assert_refused(1, "the last line has no end");
}

static void trace_refuses_lines_that_are_no_text(void **state)
{
    (void)state;
    static const char with_null[] = HEADER "0,0,0,A,1,10\0\n";
    write_bytes(with_null, sizeof with_null - 1);
    assert_refused(2, "there is a null byte in the line");

    char text[500] = HEADER;
    memset(text + strlen(text), '1', 400);
    write_text(text);
    assert_refused(2, "the line has more than 384 bytes");
}

static void trace_refuses_what_cannot_be_read(void **state)
{
    (void)state;
    trace it;
    trace_error error;
    assert_false(trace_read("/nowhere/at/all.csv", &it, &error));
    assert_non_null(strstr(error.message, "cannot be opened: No such file"));
    assert_int_equal(error.line, 0);
    assert_false(trace_read(folder, &it, &error));
    assert_non_null(strstr(error.message, "cannot be read: Is a directory"));
}

/* Cut anywhere, a gzip file is never taken for a shorter trace. */
static void trace_refuses_a_gzip_file_cut_short(void **state)
{
    (void)state;
    char *text = long_text(300);
    size_t bytes = write_gzip(text);
    free(text);
    for (size_t keep = 2; keep < bytes; keep++) {
        trace it;
        trace_error error;
        assert_int_equal(truncate(path, (off_t)(bytes - (keep - 1))), 0);
        if (trace_read(path, &it, &error))
            fail_msg("cut to %zu of %zu bytes it was read", bytes - (keep - 1), bytes);
        assert_int_equal(it.event_count, 0);
    }
}

static void trace_refuses_a_gzip_file_with_wrong_bytes(void **state)
{
    (void)state;
    char *text = long_text(3000);
    size_t bytes = write_gzip(text);
    free(text);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)bytes - 8, SEEK_SET), 0); /* the checksum */
    assert_int_equal(fputs("none", file) >= 0, 1);
    assert_int_equal(fclose(file), 0);

    trace it;
    trace_error error;
    assert_false(trace_read(path, &it, &error));
    assert_non_null(strstr(error.message, "the gzip file is broken"));
    for (int fills = 0; fills < 2; fills++) { /* what follows: a part of it, or none */
        (void)write_gzip(HEADER "100,0,0,A,1,512\n");
        file = fopen(path, "ab");
        assert_int_equal(fwrite(fills ? "\0\0\0" : "more", 1, 3, file), 3);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(trace_read(path, &it, &error), fills);
        assert_int_equal(error.line, fills ? 0 : 3); /* what is good was read */
        assert_true(fills || strstr(error.message, "the gzip file is broken"));
    }
    trace_clear(&it);
}

/* ---- what is left behind ---- */

static void trace_leaves_nothing_behind(void **state)
{
    (void)state;
    char *text = long_text(5000);
    size_t bytes = write_gzip(text);
    assert_leaves_nothing();
    assert_int_equal(truncate(path, (off_t)bytes / 2), 0);
    assert_leaves_nothing();
    text[strlen(text) - 4] = 'x';
    write_text(text);
    assert_leaves_nothing();
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace_tells_blocks_threads_and_streams_apart),
        cmocka_unit_test(trace_takes_an_id_again_after_its_free),
        cmocka_unit_test(trace_takes_lines_that_end_as_on_other_systems),
        cmocka_unit_test(trace_is_the_same_plain_and_gzipped),
        cmocka_unit_test(trace_reads_a_log_of_rmm),
        cmocka_unit_test(trace_reads_a_log_of_weir),
        cmocka_unit_test(trace_has_a_legacy_stream_only_in_a_log),
        cmocka_unit_test(trace_of_a_log_is_planned_without_its_failures),
        cmocka_unit_test(trace_refuses_each_kind_of_broken_line),
        cmocka_unit_test(trace_refuses_each_kind_of_broken_line_of_a_log),
        cmocka_unit_test(trace_refuses_a_file_without_the_header),
        cmocka_unit_test(trace_refuses_lines_that_are_no_text),
        cmocka_unit_test(trace_refuses_what_cannot_be_read),
        cmocka_unit_test(trace_refuses_a_gzip_file_cut_short),
        cmocka_unit_test(trace_refuses_a_gzip_file_with_wrong_bytes),
        cmocka_unit_test(trace_leaves_nothing_behind),
    };
    return cmocka_run_group_tests_name("trace", tests, folder_make, folder_remove);
}
