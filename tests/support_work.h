/* support_work.h - kernels that leave their names, in the order in which they ran, for
 * tests of the emulated device; and the waits around them. */
#ifndef WEIR_TESTS_SUPPORT_WORK_H
#define WEIR_TESTS_SUPPORT_WORK_H

#include <stdatomic.h>

#include "device/device.h"
#include "support.h"

#define WORK_LOG_MAX 250

/* Who ran, in turn. Kept by the test until its device is closed. */
typedef struct work_log {
    atomic_size_t length;
    atomic_char names[WORK_LOG_MAX + 1];
    struct work_name {
        struct work_log *log;
        char name;
    } jobs[WORK_LOG_MAX];
    size_t launched;
} work_log;

void work_log_begin(work_log *log);
/* Puts a kernel on `stream` that leaves `name`. */
void work_put(weir_device *device, weir_stream stream, work_log *log, char name);
weir_status work_try_put(weir_device *device, weir_stream stream, work_log *log,
                         char name);
/* Claims that exactly these have run, in this order. */
void must_have_run(work_log *log, const char *names);
bool has_run(work_log *log, char name);
/* The primitives, which must succeed. */
weir_event raw_event(weir_device *device);
void raw_event_end(weir_device *device, weir_event event);
void raw_record(weir_device *device, weir_event event, weir_stream stream);
void raw_wait_event(weir_device *device, weir_stream stream, weir_event event);
bool raw_event_is_done(weir_device *device, weir_event event);
void raw_sync_stream(weir_device *device, weir_stream stream);
uint64_t raw_stall(weir_device *device, weir_stream stream);
void raw_open_gate(weir_device *device, uint64_t gate);
uint64_t raw_id_of(weir_device *device, weir_stream stream);
/* A stream that the library does not know. */
weir_stream raw_stream(weir_device *device, weir_stream_kind kind);
void raw_stream_end(weir_device *device, weir_stream stream);

#endif
