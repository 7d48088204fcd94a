/* allocator_weir.c - Weir as its users have it: libweir.so through its public calls,
 * all checks on; over an emulated device whose calls cost nothing, or the one named. */
#include "allocator.h"

#include <stdio.h>

#include "allocator_weir.h"

#define DEFAULT_SPEC "pool/device"
#define DEVICE_BYTES ((size_t)64 << 30)

static weir_device *device;
static weir_resource *resource;
static weir_stream streams[STREAMS_MAX + 1]; /* the first is the default stream */
static unsigned stream_count;
static bool streams_are_unknown;

const char *const allocator_name = "weir";

weir_device *weir_under_test_device(void)
{
    return device;
}

weir_resource *weir_under_test(void)
{
    return resource;
}

weir_stream weir_under_test_stream(unsigned stream)
{
    return streams[stream];
}

const char *allocator_description(void)
{
    static char text[512];
    snprintf(text, sizeof text, "Weir %s, %s", weir_version_string(),
             weir_build_string());
    return text;
}

bool allocator_takes(const char *option)
{
    (void)option;
    return true;
}

bool say_failed(const char *what)
{
    fprintf(stderr, "weir: %s: %s\n", what, weir_last_error().message);
    return false;
}

weir_status open_no_work_device(size_t memory_bytes, weir_device **out)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;

    emulated.memory_bytes = memory_bytes;
    emulated.scheduler = WEIR_EMULATED_NO_WORK;
    emulated.no_ledger = true;
    options.emulated = &emulated;
    return weir_device_open("emulated", &options, out);
}

static weir_status open_device(const allocator_options *options)
{
    size_t bytes = options->memory_bytes == 0 ? DEVICE_BYTES : options->memory_bytes;

    if (options->device != NULL)
        return weir_device_open(options->device, NULL, &device);
    return open_no_work_device(bytes, &device);
}

static weir_status make_stream(weir_stream *out)
{
    if (streams_are_unknown)
        return weir_emulated_stream_create(device, WEIR_STREAM_NON_BLOCKING, out);
    return weir_stream_create(device, WEIR_STREAM_NON_BLOCKING, out);
}

bool allocator_open(const allocator_options *options)
{
    const char *spec = options->spec == NULL ? DEFAULT_SPEC : options->spec;

    streams_are_unknown = options->unknown;
    if (open_device(options) != WEIR_OK)
        return say_failed("no device");
    if (weir_resource_open(device, spec, &resource) != WEIR_OK)
        return say_failed(spec);
    while (stream_count < options->streams && !options->own) {
        if (make_stream(&streams[stream_count + 1]) != WEIR_OK)
            return say_failed("no stream");
        stream_count++;
    }
    for (unsigned i = 1; options->own && i <= options->streams; i++)
        streams[i] = WEIR_STREAM_PER_THREAD;
    return true;
}

void allocator_close(void)
{
    weir_resource_unref(resource);
    for (unsigned i = 1; i <= stream_count; i++) {
        weir_status status = streams_are_unknown
                                 ? weir_emulated_stream_destroy(device, streams[i])
                                 : weir_stream_destroy(device, streams[i]);
        if (status != WEIR_OK)
            say_failed("a stream is not destroyed");
    }
    stream_count = 0;
    weir_device_unref(device);
}

void *allocator_allocate(size_t bytes, unsigned stream)
{
    void *ptr;
    weir_status status = weir_allocate(resource, streams[stream], bytes, WEIR_ALIGNMENT,
                                       &ptr);
    return status == WEIR_OK ? ptr : NULL;
}

void allocator_deallocate(void *ptr, size_t bytes, unsigned stream)
{
    weir_deallocate(resource, streams[stream], ptr, bytes, WEIR_ALIGNMENT);
}

allocator_calls allocator_get_calls(void)
{
    weir_device_calls calls = { .struct_size = sizeof calls };
    allocator_calls counted = { 0 };
    uint64_t all = 0;

    if (weir_device_get_calls(device, &calls) != WEIR_OK) {
        say_failed("no counts");
        return counted;
    }
#define X(name) all += calls.name;
    WEIR_DEVICE_CALL_MAP(X)
#undef X
    counted.event_record = calls.event_record;
    counted.event_query = calls.event_query;
    counted.stream_wait_event = calls.stream_wait_event;
    counted.others = all - calls.event_record - calls.event_query -
                     calls.stream_wait_event;
    return counted;
}
