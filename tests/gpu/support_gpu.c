/* support_gpu.c - what the tests ask of a CUDA device: see support_gpu.h, and the last
 * sections of support.h. Linked in place of support_device.c and support_stamp.c, with
 * the module's objects, so that "cuda:0" is opened without a library of its own.
 *
 * A device is much faster than a host that asks for it: so that memory is given away
 * with work on it pending, some stamps come behind a delay. */
#include "gpu/support_gpu.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/module.h"

/* For what the driver loads late and keeps, and for other programs: in one case, and
 * in a whole run. */
#define SLACK_BYTES ((size_t)16 << 20)
#define SLACK_BYTES_IN_ALL ((size_t)64 << 20)
/* Device memory for what is managed the driver takes in batches of 64 pieces of 2 MiB;
 * what of them was not used yet it keeps (uvm_perf_pma_batch_nonpinned_order in the
 * open kernel modules' uvm_pmm_gpu.c; 98 MiB of driver 580.159 after 15 pieces). */
#define MANAGED_BATCH_BYTES ((size_t)128 << 20)

/* As long as a device may be open in a test: longer than a gate takes to give up. The
 * environment's WEIR_WATCH_SECONDS says otherwise. */
#define WATCH_SECONDS 30

static unsigned watch_seconds(void)
{
    const char *given = getenv("WEIR_WATCH_SECONDS");
    return given != NULL ? (unsigned)strtoul(given, NULL, 10) : WATCH_SECONDS;
}

void support_must_succeed(cudaError_t error, const char *call, const char *file,
                          int line)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "  %s answered %s\n", call, cudaGetErrorName(error));
    support_fail("the CUDA call succeeds", file, line);
}

bool support_is_gpu(void)
{
    return true;
}

void support_keep_memory(void)
{
    /* the driver does so anyhow */
}

bool support_is_cuda(void)
{
    return true;
}

/* ---- devices ---- */

static atomic_bool is_prepared;
static bool is_begun;
static size_t free_at_first;

weir_status support_open(const char *name, const weir_device_options *options,
                         weir_device **out)
{
    static const weir_device_options defaults = WEIR_DEVICE_OPTIONS_INIT;
    weir_device_options rest = options != NULL ? *options : defaults;
    if (strncmp(name, "emulated", 8) != 0 && strcmp(name, "cuda:0") != 0)
        return weir_device_open(name, options, out);
    for (unsigned gate = 0; is_begun && gate < KERNELS_GATES; gate++)
        kernels_open_gate(gate);
    if (!atomic_exchange(&is_prepared, true))
        kernels_prepare();
    weir__module_linked = weir__cuda_module();
    rest.emulated = NULL;
    weir_status status = weir_device_open("cuda:0", &rest, out);
    if (status == WEIR_NOT_SUPPORTED && !is_begun) {
        print_message("skipped: %s\n", weir_last_error().message);
        exit(77);
    }
    if (status != WEIR_OK)
        return status;
    support_watch(watch_seconds());
    must_cuda(kernels_begin());
    if (!is_begun)
        free_at_first = device_free_bytes(*out);
    is_begun = true;
    (void)take_stamp_errors();
    return WEIR_OK;
}

static void must_have_free(weir_device *device, size_t before, size_t slack)
{
    size_t now = device_free_bytes(device);
    if (now + slack < before)
        print_message("%zu MiB are not free again\n", (before - now) >> 20);
    must(now + slack >= before);
}

void must_be_free_again(weir_resource *mr, size_t before)
{
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(mr, &properties));
    must_have_free(properties.device, before,
                   SLACK_BYTES + (properties.managed ? MANAGED_BATCH_BYTES : 0));
}

/* Since the beginning, so that what each test leaves adds up. */
void must_hold_nothing(weir_device *device)
{
    support_watch(0);
    must_have_free(device, free_at_first, SLACK_BYTES_IN_ALL);
}

void support_must_be_neat(bool all_closed)
{
    must_cuda(cudaPeekAtLastError());
    if (all_closed)
        kernels_end();
}

void support_tidy_up(void)
{
    (void)cudaGetLastError();
    kernels_end();
}

weir_resource *open_or_leave_out(weir_device *device, const char *spec)
{
    weir_resource *mr;
    weir_status status = weir_resource_open(device, spec, &mr);
    if (status == WEIR_NOT_SUPPORTED) {
        print_message("left out: %s: %s\n", spec, weir_last_error().message);
        close_emulated(device);
        skip();
    }
    must_ok(status);
    return mr;
}

bool support_may_ask_too_much(weir_resource *mr)
{
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(mr, &properties));
    if (properties.managed)
        print_message("left out: asking for more managed memory than there is\n");
    return !properties.managed;
}

/* ---- contents ---- */

/* Host memory can take a device seconds to touch. */
#define WHOLE_BYTES ((size_t)256 << 20)
#define END_BYTES   ((size_t)1 << 20)

/* One stamp in eight, up to 128 microseconds. */
static weir_status delay(weir_stream stream, uint64_t key)
{
    uint64_t state = key;
    uint64_t draw = support_random(&state);
    if (draw % 8 != 0)
        return WEIR_OK;
    return kernels_delay(stream, (draw >> 8) % 128 * 1000) == cudaSuccess
               ? WEIR_OK : WEIR_DEVICE_ERROR;
}

typedef cudaError_t kernel(cudaStream_t stream, void *ptr, size_t bytes, uint64_t key);

/* On the whole block; on one that is larger than WHOLE_BYTES on both ends. */
static weir_status run_kernel(kernel *run, weir_stream stream, void *ptr, size_t bytes,
                              uint64_t key)
{
    size_t first = bytes <= WHOLE_BYTES ? bytes : END_BYTES;
    cudaError_t error = run(stream, ptr, first, key);
    if (error == cudaSuccess && first != bytes)
        error = run(stream, (char *)ptr + bytes - END_BYTES, END_BYTES, key + 1);
    return error == cudaSuccess ? WEIR_OK : WEIR_DEVICE_ERROR;
}

weir_status try_stamp(weir_device *device, weir_stream stream, void *ptr, size_t bytes,
                      uint64_t key)
{
    (void)device;
    weir_status status = delay(stream, key);
    return status == WEIR_OK ? run_kernel(kernels_write, stream, ptr, bytes, key)
                             : status;
}

weir_status try_check_stamp(weir_device *device, weir_stream stream, void *ptr,
                            size_t bytes, uint64_t key)
{
    (void)device;
    weir_status status = delay(stream, ~key);
    return status == WEIR_OK ? run_kernel(kernels_check, stream, ptr, bytes, key)
                             : status;
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
    kernels_log log;
    if (!is_begun)
        return 0;
    must_cuda(kernels_take_log(&log));
    for (size_t i = 0; i < log.wrong && i < KERNELS_TOLD; i++)
        fprintf(stderr, "  damaged: block %" PRIx64 " of %" PRIu64 " bytes, key %"
                        PRIx64 ", at offset %" PRIu64 "\n", log.first[i].address,
                log.first[i].bytes, log.first[i].key, log.first[i].offset);
    if (log.given_up != 0)
        fprintf(stderr, "  %llu gates gave up: nobody opened them in time\n",
                log.given_up);
    return log.wrong + log.given_up;
}

void support_stamps_end(void)
{
}

/* ---- gates ---- */

static atomic_uint gates_put;

unsigned put_gate(weir_stream stream)
{
    unsigned gate = atomic_fetch_add(&gates_put, 1) % KERNELS_GATES;
    must_cuda(kernels_gate(stream, gate));
    return gate;
}

void open_gate(unsigned gate)
{
    kernels_open_gate(gate);
}

void let_others_run(weir_stream aside)
{
    for (int i = 0; i < 20; i++) {
        must_cuda(kernels_delay(aside, 100000));
        must_cuda(cudaStreamSynchronize(aside));
    }
}

void must_be_waiting(weir_device *device, weir_stream stream, weir_stream aside)
{
    bool done = true;
    let_others_run(aside);
    must_ok(weir_stream_query(device, stream, &done));
    must(!done);
}

/* ---- host threads and streams ---- */

typedef struct part {
    void (*entry)(void *argument);
    void *argument;
} part;

static void *part_run(void *argument)
{
    const part *self = argument;
    self->entry(self->argument);
    /* Otherwise driver 580.159 may never let the thread end: see weir/async.h. No
     * capture of another thread's forbids it. */
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    must_cuda(cudaThreadExchangeStreamCaptureMode(&mode));
    must_cuda(cudaStreamSynchronize(cudaStreamPerThread));
    return NULL;
}

weir_status support_run_threads(weir_device *device, size_t count,
                                void (*entry)(void *argument), void *const arguments[])
{
    enum { MOST = 64 };
    pthread_t threads[MOST];
    part parts[MOST];
    (void)device;
    must(count <= MOST);
    for (size_t i = 0; i < count; i++) {
        parts[i] = (part){ entry, arguments[i] };
        must(pthread_create(&threads[i], NULL, part_run, &parts[i]) == 0);
    }
    for (size_t i = 0; i < count; i++)
        must(pthread_join(threads[i], NULL) == 0);
    return WEIR_OK;
}

/* How often each channel was signalled and not awaited yet. */
#define CHANNELS 4096
static struct { uintptr_t name; uint64_t count; } channels[CHANNELS];
static pthread_mutex_t channels_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t channels_changed = PTHREAD_COND_INITIALIZER;

/* Its place, or a free one. Under the lock. */
static size_t channel_find(uintptr_t name)
{
    size_t free_place = CHANNELS;
    for (size_t i = 0; i < CHANNELS; i++) {
        if (channels[i].count != 0 && channels[i].name == name)
            return i;
        if (channels[i].count == 0 && free_place == CHANNELS)
            free_place = i;
    }
    must(free_place != CHANNELS);
    return free_place;
}

weir_status support_host_signal(weir_device *device, uintptr_t channel)
{
    (void)device;
    pthread_mutex_lock(&channels_lock);
    size_t at = channel_find(channel);
    channels[at].name = channel;
    channels[at].count++;
    pthread_cond_broadcast(&channels_changed);
    pthread_mutex_unlock(&channels_lock);
    return WEIR_OK;
}

weir_status support_host_await(weir_device *device, uintptr_t channel)
{
    (void)device;
    size_t at;
    pthread_mutex_lock(&channels_lock);
    while (at = channel_find(channel), channels[at].count == 0)
        pthread_cond_wait(&channels_changed, &channels_lock);
    channels[at].count--;
    pthread_mutex_unlock(&channels_lock);
    return WEIR_OK;
}

/* As another library would, with the runtime. */
weir_status support_stream_create(weir_device *device, weir_stream_kind kind,
                                  weir_stream *out)
{
    (void)device;
    unsigned flags = kind == WEIR_STREAM_BLOCKING ? cudaStreamDefault
                                                  : cudaStreamNonBlocking;
    return cudaStreamCreateWithFlags(out, flags) == cudaSuccess ? WEIR_OK
                                                                : WEIR_DEVICE_ERROR;
}

weir_status support_stream_destroy(weir_device *device, weir_stream stream)
{
    (void)device;
    return cudaStreamDestroy(stream) == cudaSuccess ? WEIR_OK : WEIR_DEVICE_ERROR;
}
