/* cases_buffers.c - what a buffer costs beside the memory in it, and handing a tensor
 * over by DLPack: on a known stream, without anybody to wait for. */
#include <stdlib.h>

#include "allocator_weir.h"
#include "cases.h"

#define BATCH ((size_t)1024)

static bool batch_prepare(bench_run *self)
{
    self->batch = BATCH;
    return true;
}

static weir_stream own_stream(void)
{
    return weir_under_test_stream(1);
}

static void *buffer_open(bench_run *self, unsigned thread)
{
    weir_buffer *buffer = malloc(sizeof *buffer);

    (void)thread;
    if (buffer == NULL ||
        weir_buffer_allocate(weir_under_test(), own_stream(), self->what->bytes,
                             WEIR_ALIGNMENT, buffer) != WEIR_OK) {
        free(buffer);
        say_failed(self->what->name);
        return NULL;
    }
    return buffer;
}

static void buffer_close(bench_run *self, void *opened)
{
    (void)self;
    weir_buffer_reset(opened);
    free(opened);
}

static bool allocate_run(bench_run *self, void *opened)
{
    weir_buffer buffer;

    (void)opened;
    for (size_t i = 0; i < self->batch; i++) {
        if (weir_buffer_allocate(weir_under_test(), own_stream(), self->what->bytes,
                                 WEIR_ALIGNMENT, &buffer) != WEIR_OK)
            return say_failed(self->what->name);
        weir_buffer_reset(&buffer);
    }
    return true;
}

static bool share_run(bench_run *self, void *opened)
{
    weir_buffer slice;

    for (size_t i = 0; i < self->batch; i++) {
        if (weir_buffer_slice(opened, 0, self->what->bytes / 2, &slice) != WEIR_OK)
            return say_failed(self->what->name);
        weir_buffer_reset(&slice);
    }
    return true;
}

/* Out by __dlpack__, in by from_dlpack, and the end of what came in. */
static bool round_trip_run(bench_run *self, void *opened)
{
    static const uint32_t version[2] = { 1, 3 };
    const int64_t shape[2] = { 2, (int64_t)self->what->bytes / 8 };
    const int64_t stream = (int64_t)(intptr_t)own_stream();
    const weir_tensor tensor = { { WEIR_DTYPE_FLOAT, 32, 1 }, 2, shape, NULL, 0 };
    weir_dlpack_request request = WEIR_DLPACK_REQUEST_INIT;
    weir_tensor seen;
    weir_buffer import;
    weir_dlpack out;

    request.max_version = version;
    request.stream = &stream;
    for (size_t i = 0; i < self->batch; i++) {
        if (weir_dlpack_export(opened, &tensor, &request, &out) != WEIR_OK ||
            weir_dlpack_import(weir_under_test_device(), own_stream(), out, NULL,
                               &import, &seen) != WEIR_OK)
            return say_failed(self->what->name);
        weir_buffer_reset(&import);
    }
    return true;
}

/* What that needs of the host: two records, as large as they are there. */
static bool records_run(bench_run *self, void *opened)
{
    (void)opened;
    for (size_t i = 0; i < self->batch; i++) {
        void *volatile exported = malloc(152);
        void *volatile imported = malloc(288);
        if (exported == NULL || imported == NULL)
            return say_failed(self->what->name);
        free(imported);
        free(exported);
    }
    return true;
}

const bench_kind kind_buffer_allocate = { "buffer", batch_prepare, buffer_open,
                                          allocate_run, buffer_close };
const bench_kind kind_buffer_slice = { "slice", batch_prepare, buffer_open, share_run,
                                       buffer_close };
const bench_kind kind_round_trip = { "tensor", batch_prepare, buffer_open,
                                     round_trip_run, buffer_close };
const bench_kind kind_records = { "pair of records", batch_prepare, buffer_open,
                                  records_run, buffer_close };
