/* support_work.c - see support_work.h. */
#include "support_work.h"

#include <stdio.h>
#include <string.h>

void work_log_begin(work_log *log)
{
    atomic_store(&log->length, 0);
    for (size_t i = 0; i <= WORK_LOG_MAX; i++)
        atomic_store(&log->names[i], 0);
    log->launched = 0;
}

static void leave_name(void *argument, void *const views[])
{
    const struct work_name *job = argument;
    (void)views;
    size_t at = atomic_fetch_add(&job->log->length, 1);
    atomic_store(&job->log->names[at], job->name);
}

weir_status work_try_put(weir_device *device, weir_stream stream, work_log *log,
                         char name)
{
    must(log->launched < WORK_LOG_MAX);
    struct work_name *job = &log->jobs[log->launched++];
    *job = (struct work_name){ log, name };
    return weir_emulated_launch(device, stream, leave_name, job, NULL, 0);
}

void work_put(weir_device *device, weir_stream stream, work_log *log, char name)
{
    must_ok(work_try_put(device, stream, log, name));
}

static void names_read(work_log *log, char names[static WORK_LOG_MAX + 1])
{
    for (size_t i = 0; i <= WORK_LOG_MAX; i++)
        names[i] = atomic_load(&log->names[i]);
}

void must_have_run(work_log *log, const char *names)
{
    char have[WORK_LOG_MAX + 1];
    names_read(log, have);
    if (strcmp(have, names) != 0)
        fprintf(stderr, "  ran \"%s\", not \"%s\"\n", have, names);
    must(strcmp(have, names) == 0);
}

bool has_run(work_log *log, char name)
{
    char have[WORK_LOG_MAX + 1];
    names_read(log, have);
    return strchr(have, name) != NULL;
}

weir_event raw_event(weir_device *device)
{
    weir_event event;
    must_ok(weir__event_create(device, &event));
    return event;
}

void raw_event_end(weir_device *device, weir_event event)
{
    must_ok(weir__event_destroy(device, event));
}

void raw_record(weir_device *device, weir_event event, weir_stream stream)
{
    must_ok(weir__event_record(device, event, stream));
}

void raw_wait_event(weir_device *device, weir_stream stream, weir_event event)
{
    must_ok(weir__stream_wait_event(device, stream, event));
}

bool raw_event_is_done(weir_device *device, weir_event event)
{
    bool done;
    must_ok(weir__event_query(device, event, &done));
    return done;
}

void raw_sync_stream(weir_device *device, weir_stream stream)
{
    must_ok(weir__stream_sync(device, stream));
}

uint64_t raw_stall(weir_device *device, weir_stream stream)
{
    uint64_t gate;
    must_ok(weir_emulated_stall(device, stream, &gate));
    return gate;
}

void raw_open_gate(weir_device *device, uint64_t gate)
{
    must_ok(weir_emulated_open_gate(device, gate));
}

uint64_t raw_id_of(weir_device *device, weir_stream stream)
{
    uint64_t id;
    must_ok(weir__stream_get_id(device, stream, &id));
    return id;
}

weir_stream raw_stream(weir_device *device, weir_stream_kind kind)
{
    weir_stream stream;
    must_ok(weir_emulated_stream_create(device, kind, &stream));
    return stream;
}

void raw_stream_end(weir_device *device, weir_stream stream)
{
    must_ok(weir_emulated_stream_destroy(device, stream));
}
