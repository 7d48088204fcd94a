/* cases_device.c - what calls of the emulated device cost by themselves, as through
 * device.h and stream.h: what Weir's own figures have of it. */
#include <stdlib.h>

#include "allocator_weir.h"
#include "cases.h"

#define BATCH ((size_t)1024)

static bool batch_prepare(bench_run *self)
{
    self->batch = BATCH;
    return true;
}

typedef struct device_calls {
    weir_device *device;
    weir_event event;
} device_calls;

static void calls_close(bench_run *self, void *opened)
{
    device_calls *it = opened;

    if (it->event != NULL && weir_event_destroy(it->device, it->event) != WEIR_OK)
        say_failed(self->what->name);
    free(it);
}

/* The event is one that has been recorded. */
static void *calls_open(bench_run *self, unsigned thread)
{
    device_calls *it = calloc(1, sizeof *it);

    (void)thread;
    if (it == NULL)
        return NULL;
    it->device = weir_under_test_device();
    if (weir_event_create(it->device, &it->event) == WEIR_OK &&
        weir_event_record(it->device, weir_under_test_stream(1), it->event) == WEIR_OK)
        return it;
    say_failed(self->what->name);
    calls_close(self, it);
    return NULL;
}

static bool record_run(bench_run *self, void *opened)
{
    device_calls *it = opened;
    weir_stream stream = weir_under_test_stream(1);

    for (size_t i = 0; i < self->batch; i++)
        if (weir_event_record(it->device, stream, it->event) != WEIR_OK)
            return say_failed(self->what->name);
    return true;
}

static bool query_run(bench_run *self, void *opened)
{
    device_calls *it = opened;
    bool done;

    for (size_t i = 0; i < self->batch; i++)
        if (weir_event_query(it->device, it->event, &done) != WEIR_OK)
            return say_failed(self->what->name);
    return true;
}

static bool wait_run(bench_run *self, void *opened)
{
    device_calls *it = opened;
    weir_stream stream = weir_under_test_stream(2);

    for (size_t i = 0; i < self->batch; i++)
        if (weir_stream_wait_event(it->device, stream, it->event) != WEIR_OK)
            return say_failed(self->what->name);
    return true;
}

const bench_kind kind_event_record = { "call", batch_prepare, calls_open, record_run,
                                       calls_close };
const bench_kind kind_event_query = { "call", batch_prepare, calls_open, query_run,
                                      calls_close };
const bench_kind kind_stream_wait = { "call", batch_prepare, calls_open, wait_run,
                                      calls_close };
