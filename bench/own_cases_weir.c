/* own_cases_weir.c - cases that only Weir has: of RMM's benchmarks those that do more
 * than allocate, with RMM's parameters and names; buffers'; and the device's calls. */
#include <stdio.h>
#include <stdlib.h>

#include "allocator_weir.h"
#include "cases.h"

/* ---- MULTI_STREAM_ALLOCATIONS: four kernels in turn on some streams ---- */

#define KERNELS 4

typedef struct multi_stream {
    weir_stream streams[KERNELS];
} multi_stream;

static void kernel(void *argument, void *const views[])
{
    (void)argument;
    (void)views;
}

static bool use_briefly(weir_stream stream, bool launches)
{
    weir_device *device = weir_under_test_device();
    weir_emulated_range range = { NULL, 8, WEIR_EMULATED_WRITE };

    if (weir_allocate(weir_under_test(), stream, 8, WEIR_ALIGNMENT, &range.ptr) !=
        WEIR_OK)
        return false;
    bool good = !launches || weir_emulated_launch(device, stream, kernel, NULL, &range,
                                                  1) == WEIR_OK;
    weir_deallocate(weir_under_test(), stream, range.ptr, 8, WEIR_ALIGNMENT);
    return good;
}

static void multi_close(bench_run *self, void *opened)
{
    multi_stream *it = opened;

    for (size_t i = 0; i < self->what->count && it->streams[i] != NULL; i++)
        if (weir_stream_destroy(weir_under_test_device(), it->streams[i]) != WEIR_OK)
            say_failed("a stream is not destroyed");
    free(it);
}

/* `count` streams; `depth` 1 has them warm. */
static void *multi_open(bench_run *self, unsigned thread)
{
    multi_stream *it = calloc(1, sizeof *it);
    bool good = it != NULL;

    (void)thread;
    for (size_t i = 0; good && i < self->what->count; i++)
        good = weir_stream_create(weir_under_test_device(), WEIR_STREAM_BLOCKING,
                                  &it->streams[i]) == WEIR_OK;
    for (size_t i = 0; good && self->what->depth > 0 && i < self->what->count; i++)
        good = use_briefly(it->streams[i], false);
    if (!good && it != NULL) {
        say_failed(self->what->name);
        multi_close(self, it);
    }
    return good ? it : NULL;
}

static bool multi_prepare(bench_run *self)
{
    self->batch = KERNELS;
    return true;
}

static bool multi_run(bench_run *self, void *opened)
{
    multi_stream *it = opened;
    bool good = true;

    for (size_t i = 0; good && i < KERNELS; i++)
        good = use_briefly(it->streams[i % self->what->count], true);
    good = good && weir_device_sync(weir_under_test_device()) == WEIR_OK;
    return good || say_failed(self->what->name);
}

static const bench_kind kind_multi_stream = { "kernel", multi_prepare, multi_open,
                                              multi_run, multi_close };

/* ---- UVECTOR: constructs one, waits, ends it ---- */

static bool one_prepare(bench_run *self)
{
    self->batch = 1;
    return true;
}

static void *nothing_open(bench_run *self, unsigned thread)
{
    (void)thread;
    return self;
}

static void nothing_close(bench_run *self, void *opened)
{
    (void)self;
    (void)opened;
}

static bool vector_run(bench_run *self, void *opened)
{
    weir_resource *mr = weir_under_test();
    void *ptr;

    (void)opened;
    if (weir_allocate(mr, NULL, self->what->bytes, WEIR_ALIGNMENT, &ptr) != WEIR_OK ||
        weir_device_sync(weir_under_test_device()) != WEIR_OK)
        return say_failed(self->what->name);
    weir_deallocate(mr, NULL, ptr, self->what->bytes, WEIR_ALIGNMENT);
    return true;
}

static const bench_kind kind_vector = { "vector", one_prepare, nothing_open, vector_run,
                                        nothing_close };

/* ---- CUDA_STREAM_POOL: a stream that is there, against one that is made ---- */

#define POOLED 16

static bool pooled_run(bench_run *self, void *opened)
{
    static unsigned next;
    bool done;

    (void)opened;
    weir_stream stream = weir_under_test_stream(1 + next++ % POOLED);
    if (weir_stream_query(weir_under_test_device(), stream, &done) != WEIR_OK)
        return say_failed(self->what->name);
    return true;
}

static bool made_run(bench_run *self, void *opened)
{
    weir_device *device = weir_under_test_device();
    weir_stream stream;
    bool done;

    (void)opened;
    if (weir_stream_create(device, WEIR_STREAM_BLOCKING, &stream) != WEIR_OK ||
        weir_stream_query(device, stream, &done) != WEIR_OK ||
        weir_stream_destroy(device, stream) != WEIR_OK)
        return say_failed(self->what->name);
    return true;
}

static const bench_kind kind_pooled = { "stream", one_prepare, nothing_open, pooled_run,
                                        nothing_close };
static const bench_kind kind_made = { "stream", one_prepare, nothing_open, made_run,
                                      nothing_close };

/* cases_buffers.c */
extern const bench_kind kind_buffer_allocate, kind_buffer_slice, kind_round_trip,
    kind_records;
/* cases_device.c */
extern const bench_kind kind_event_record, kind_event_query, kind_stream_wait;

#define MULTI_STREAM(STREAMS, WARM, NAME)                                        \
    { .name = "RMM/MULTI_STREAM_ALLOCATIONS/" NAME, .kind = &kind_multi_stream,  \
      .count = STREAMS, .depth = WARM }
#define VECTOR(COUNT, NAME)                                                      \
    { .name = "RMM/UVECTOR/" NAME, .kind = &kind_vector,                         \
      .bytes = (size_t)(COUNT) * sizeof(int32_t) }

#define BUFFER .bytes = 4096, .streams = 1

const bench_case own_cases[] = {
    MULTI_STREAM(1, 0, "1"),
    MULTI_STREAM(2, 0, "2"),
    MULTI_STREAM(4, 0, "4"),
    MULTI_STREAM(1, 1, "1/prewarm"),
    MULTI_STREAM(2, 1, "2/prewarm"),
    MULTI_STREAM(4, 1, "4/prewarm"),
    VECTOR(10000, "10k"),
    VECTOR(100000, "100k"),
    VECTOR(1000000, "1M"),
    VECTOR(10000000, "10M"),
    VECTOR(100000000, "100M"),
    VECTOR(1000000000, "1G"),
    { .name = "RMM/CUDA_STREAM_POOL/pool", .kind = &kind_pooled, .streams = POOLED },
    { .name = "RMM/CUDA_STREAM_POOL/new", .kind = &kind_made },
    { .name = "buffer/allocate", .kind = &kind_buffer_allocate, BUFFER },
    { .name = "buffer/slice", .kind = &kind_buffer_slice, BUFFER },
    { .name = "dlpack/round-trip", .kind = &kind_round_trip, BUFFER },
    { .name = "dlpack/records", .kind = &kind_records, BUFFER },
    { .name = "device/event_record", .kind = &kind_event_record, .streams = 1 },
    { .name = "device/event_query", .kind = &kind_event_query, .streams = 1 },
    { .name = "device/stream_wait_event", .kind = &kind_stream_wait, .streams = 2 },
};

const size_t own_case_count = sizeof own_cases / sizeof *own_cases;
