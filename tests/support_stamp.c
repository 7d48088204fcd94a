/* support_stamp.c - what the tests ask of an emulated device: contents written and
 * checked by its kernels, and host threads and streams as it knows them. A real device
 * has its own way for each, in tests/gpu. */
#include "support.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/emulated_map.h"
#include "support_pattern.h"

/* ---- contents ---- */

/* What one kernel is to do. Jobs that have run are used again; all are freed with
 * the last device, also those whose kernel never ran. */
typedef struct stamp_job {
    struct stamp_job *next_free;
    struct stamp_job *next_made;
    const void *ptr;
    size_t bytes;
    uint64_t key;
} stamp_job;

static pthread_mutex_t stamp_lock = PTHREAD_MUTEX_INITIALIZER;
static stamp_job *stamp_free; /* guarded by stamp_lock */
static stamp_job *stamp_made; /* likewise */
static atomic_uint_least64_t stamp_errors;

static stamp_job *stamp_job_take(const void *ptr, size_t bytes, uint64_t key)
{
    pthread_mutex_lock(&stamp_lock);
    stamp_job *job = stamp_free;
    if (job != NULL) {
        stamp_free = job->next_free;
    } else {
        job = malloc(sizeof *job);
        must(job != NULL);
        job->next_made = stamp_made;
        stamp_made = job;
    }
    pthread_mutex_unlock(&stamp_lock);
    job->ptr = ptr;
    job->bytes = bytes;
    job->key = key;
    return job;
}

static void stamp_job_done(stamp_job *job)
{
    pthread_mutex_lock(&stamp_lock);
    job->next_free = stamp_free;
    stamp_free = job;
    pthread_mutex_unlock(&stamp_lock);
}

void support_stamps_end(void)
{
    while (stamp_made != NULL) {
        stamp_job *job = stamp_made;
        stamp_made = job->next_made;
        free(job);
    }
    stamp_free = NULL;
}

static void stamp_kernel(void *argument, void *const views[])
{
    stamp_job *job = argument;
    pattern_write(views[0], job->bytes, job->key);
    stamp_job_done(job);
}

static void check_stamp_kernel(void *argument, void *const views[])
{
    stamp_job *job = argument;
    size_t wrong = pattern_compare(views[0], job->bytes, job->key);
    if (wrong != job->bytes && atomic_fetch_add(&stamp_errors, 1) < 8)
        fprintf(stderr, "  damaged: block %p of %zu bytes, key %" PRIx64
                        ", at offset %zu; seed %" PRIu64 "\n",
                job->ptr, job->bytes, job->key, wrong, support_seed_in_use());
    stamp_job_done(job);
}

static weir_status launch_job(weir_device *device, weir_stream stream, void *ptr,
                              size_t bytes, uint64_t key, weir_emulated_kernel kernel,
                              weir_emulated_access access)
{
    weir_emulated_range range = { ptr, bytes, access };
    stamp_job *job = stamp_job_take(ptr, bytes, key);
    weir_status status = weir_emulated_launch(device, stream, kernel, job, &range, 1);
    if (status != WEIR_OK)
        stamp_job_done(job);
    return status;
}

weir_status try_stamp(weir_device *device, weir_stream stream, void *ptr, size_t bytes,
                      uint64_t key)
{
    return launch_job(device, stream, ptr, bytes, key, stamp_kernel,
                      WEIR_EMULATED_WRITE);
}

weir_status try_check_stamp(weir_device *device, weir_stream stream, void *ptr,
                            size_t bytes, uint64_t key)
{
    return launch_job(device, stream, ptr, bytes, key, check_stamp_kernel,
                      WEIR_EMULATED_READ);
}

void stamp(weir_device *device, weir_stream stream, void *ptr, size_t bytes,
           uint64_t key)
{
    if (bytes != 0)
        must_ok(try_stamp(device, stream, ptr, bytes, key));
}

void check_stamp(weir_device *device, weir_stream stream, void *ptr, size_t bytes,
                 uint64_t key)
{
    if (bytes != 0)
        must_ok(try_check_stamp(device, stream, ptr, bytes, key));
}

uint64_t take_stamp_errors(void)
{
    return atomic_exchange(&stamp_errors, 0);
}

/* ---- memory, host threads and streams ---- */

void support_keep_memory(void)
{
    weir__arenas_keep();
    weir__addresses_keep();
}

bool support_is_gpu(void)
{
    return false;
}

weir_resource *open_or_leave_out(weir_device *device, const char *spec)
{
    weir_resource *mr;
    must_ok(weir_resource_open(device, spec, &mr));
    return mr;
}

bool support_may_ask_too_much(weir_resource *mr)
{
    (void)mr;
    return true;
}

void must_hold_nothing(weir_device *device)
{
    size_t free_bytes, total_bytes;
    must_ok(weir_device_memory(device, &free_bytes, &total_bytes));
    must_equal(free_bytes, total_bytes);
}

void must_be_free_again(weir_resource *mr, size_t before)
{
    must_equal(device_free_bytes(weir_resource_device(mr)), before);
}

weir_status support_run_threads(weir_device *device, size_t count,
                                void (*entry)(void *argument), void *const arguments[])
{
    return weir_emulated_run_threads(device, count, entry, arguments);
}

weir_status support_host_signal(weir_device *device, uintptr_t channel)
{
    return weir_emulated_host_signal(device, channel);
}

weir_status support_host_await(weir_device *device, uintptr_t channel)
{
    return weir_emulated_host_await(device, channel);
}

weir_status support_stream_create(weir_device *device, weir_stream_kind kind,
                                  weir_stream *out)
{
    return weir_emulated_stream_create(device, kind, out);
}

weir_status support_stream_destroy(weir_device *device, weir_stream stream)
{
    return weir_emulated_stream_destroy(device, stream);
}
