/* support.c - see support.h. */
#include "support.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fibers.h"
#include "internal.h"

/* ---- bounds and seeds ---- */

static atomic_uint_least64_t seed_in_use;

uint64_t support_bound(const char *what, uint64_t quick, uint64_t full)
{
    const char *wish = getenv("WEIR_BOUND");
    uint64_t bound = wish != NULL && strcmp(wish, "full") == 0 ? full : quick;
    printf("bound: %s = %" PRIu64 "\n", what, bound);
    fflush(stdout);
    return bound;
}

void support_use_seed(uint64_t seed)
{
    atomic_store(&seed_in_use, seed);
}

uint64_t support_seed(uint64_t index)
{
    const char *wish = getenv("WEIR_SEED");
    uint64_t seed = wish != NULL ? strtoull(wish, NULL, 0) + index : index;
    support_use_seed(seed);
    return seed;
}

uint64_t support_seed_in_use(void)
{
    return atomic_load(&seed_in_use);
}

uint64_t support_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t support_random_below(uint64_t *state, uint64_t n)
{
    return support_random(state) % n;
}

uint64_t support_random_between(uint64_t *state, uint64_t least, uint64_t most)
{
    return least + support_random_below(state, most - least + 1);
}

/* ---- claims ---- */

/* cmocka leaves a failed test by a long jump, which only its own thread can take: the
 * first of the process, on the stack that this began with. */
static bool is_tests_own_thread(void)
{
    return gettid() == getpid() && !weir__fiber_runs();
}

static size_t devices_open;
static unsigned devices_abandoned;

static _Noreturn void leave(const char *file, int line)
{
    fflush(stdout);
    if (!is_tests_own_thread()) {
        fprintf(stderr, "  (not on the test's own thread: stopping)\n");
        abort();
    }
    /* What this test has left open, planned and replaced must not fail the next. */
    if (devices_open != 0)
        devices_abandoned++;
    devices_open = 0;
    weir__host_fail_at(0, false);
    weir_set_misuse_handler(NULL, NULL);
    _fail(file, line);
    abort(); /* not reached */
}

static void print_place(const char *file, int line)
{
    weir_error error = weir_last_error();
    fprintf(stderr, "  %s:%d: seed %" PRIu64 " (WEIR_SEED repeats it)\n", file, line,
            support_seed_in_use());
    if (error.status != WEIR_OK)
        fprintf(stderr, "  weir said last: %s: %s\n",
                weir_status_string(error.status), error.message);
}

void support_fail(const char *words, const char *file, int line)
{
    fprintf(stderr, "  does not hold: %s\n", words);
    print_place(file, line);
    leave(file, line);
}

void support_must_answer(weir_status wanted, weir_status got, const char *call,
                         const char *file, int line)
{
    if (wanted == got)
        return;
    fprintf(stderr, "  %s\n  answered \"%s\", not \"%s\"\n", call,
            weir_status_string(got), weir_status_string(wanted));
    print_place(file, line);
    leave(file, line);
}

void support_must_equal(uint64_t a, uint64_t b, const char *a_words,
                        const char *b_words, const char *file, int line)
{
    if (a == b)
        return;
    fprintf(stderr, "  %s is %" PRIu64 ", %s is %" PRIu64 "\n", a_words, a, b_words, b);
    print_place(file, line);
    leave(file, line);
}

/* ---- devices ---- */

static size_t host_live_before;

weir_device *open_with(const char *name, const weir_device_options *options)
{
    if (devices_open == 0) {
        /* A failure first: its record stays with the thread, and is no leak. */
        weir_device *none;
        must_answer(WEIR_INVALID_ARGUMENT, weir_device_open("no device", NULL, &none));
        host_live_before = weir__host_live();
        (void)take_stamp_errors();
    }
    weir_device *device;
    must_ok(support_open(name, options, &device));
    devices_open++;
    return device;
}

weir_device *open_emulated(weir_emulated_scheduler scheduler, uint64_t seed)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.memory_bytes = (size_t)4 << 30;
    emulated.scheduler = scheduler;
    emulated.seed = seed;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    support_use_seed(seed);
    char name[16];
    snprintf(name, sizeof name, "emulated:%u", devices_abandoned % 16);
    return open_with(name, &options);
}

weir_device *open_stepped(uint64_t seed)
{
    return open_emulated(WEIR_EMULATED_STEPPED, seed);
}

weir_device *open_threads(void)
{
    return open_emulated(WEIR_EMULATED_THREADS, support_seed_in_use());
}

size_t device_free_bytes(weir_device *device)
{
    size_t free_bytes, total_bytes;
    must_ok(weir_device_memory(device, &free_bytes, &total_bytes));
    return free_bytes;
}

void must_be_quiet(weir_device *device)
{
    weir_emulated_finding finding = { .struct_size = sizeof finding };
    size_t count = weir_emulated_findings(device);
    for (size_t i = 0; i < count && i < 8; i++) {
        if (weir_emulated_get_finding(device, i, &finding) == WEIR_OK)
            fprintf(stderr, "  the ledger found: %s\n", finding.message);
    }
    must_equal(count, 0);
}

static void device_gone(void)
{
    if (--devices_open == 0 && devices_abandoned == 0)
        support_stamps_end();
}

void close_emulated(weir_device *device)
{
    must_ok(weir_device_sync(device));
    must_be_quiet(device);
    must_equal(take_stamp_errors(), 0);
    must_hold_nothing(device);
    bool is_last = devices_open == 1 && devices_abandoned == 0;
    weir_device_unref(device);
    support_must_be_neat(is_last);
    device_gone();
    weir_thread_flush(); /* what it had of pools that are gone */
    if (is_last) /* they share one ledger */
        must_equal(weir__host_live(), host_live_before);
}

void close_anyhow(weir_device *device)
{
    weir_device_unref(device);
    device_gone();
    if (devices_open == 0)
        support_tidy_up();
}

weir_stream make_stream(weir_device *device, weir_stream_kind kind)
{
    weir_stream stream;
    must_ok(weir_stream_create(device, kind, &stream));
    return stream;
}

void end_stream(weir_device *device, weir_stream stream)
{
    must_ok(weir_stream_destroy(device, stream));
}

void *take(weir_resource *mr, weir_stream stream, size_t bytes)
{
    void *ptr;
    must_ok(weir_allocate(mr, stream, bytes, WEIR_ALIGNMENT, &ptr));
    must((ptr == NULL) == (bytes == 0));
    return ptr;
}

void give(weir_resource *mr, weir_stream stream, void *ptr, size_t bytes)
{
    must(weir_deallocate(mr, stream, ptr, bytes, WEIR_ALIGNMENT));
}

weir_resource_statistics statistics_of(weir_resource *mr)
{
    weir_resource_statistics statistics = { .struct_size = sizeof statistics };
    must_ok(weir_resource_get_statistics(mr, &statistics));
    return statistics;
}

weir_device_calls calls_of(weir_device *device)
{
    weir_device_calls calls = { .struct_size = sizeof calls };
    must_ok(weir_device_get_calls(device, &calls));
    return calls;
}

uint64_t calls_in_all(weir_device *device)
{
    const weir_device_calls calls = calls_of(device);
    uint64_t all = 0;
#define X(name) all += calls.name;
    WEIR_DEVICE_CALL_MAP(X)
#undef X
    return all;
}

void plan_fault(weir_device *device, const char *kind, uint64_t nth, bool lasting,
                weir_status status)
{
    weir_emulated_fault fault = {
        .struct_size = sizeof fault,
        .kinds = kind == NULL ? 0 : weir_emulated_call_bit(kind),
        .nth = nth,
        .lasting = lasting,
        .status = status,
    };
    must(kind == NULL || fault.kinds != 0);
    must_ok(weir_emulated_set_fault(device, nth == 0 ? NULL : &fault));
}

/* ---- misuse ---- */

static pthread_mutex_t misuse_lock = PTHREAD_MUTEX_INITIALIZER;

static void log_misuse(void *context, const weir_misuse *misuse)
{
    misuse_log *log = context;
    pthread_mutex_lock(&misuse_lock);
    log->count++;
    log->kind = misuse->kind;
    log->ptr = misuse->ptr;
    log->bytes = misuse->bytes;
    snprintf(log->message, sizeof log->message, "%s", misuse->message);
    pthread_mutex_unlock(&misuse_lock);
}

void misuse_begin(misuse_log *log)
{
    memset(log, 0, sizeof *log);
    weir_set_misuse_handler(log_misuse, log);
}

void misuse_end(void)
{
    weir_set_misuse_handler(NULL, NULL);
}

void must_be_misuse(misuse_log *log, weir_misuse_kind kind, const void *ptr)
{
    must_equal(log->count, 1);
    must_equal(log->kind, kind);
    must(log->ptr == ptr);
    must(log->message[0] != '\0');
    memset(log, 0, sizeof *log);
}

/* ---- addresses ---- */

size_t support_limit_addresses(size_t more, struct rlimit *before)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    must(file != NULL && fscanf(file, "%zu", &pages) == 1);
    fclose(file);
    must(getrlimit(RLIMIT_AS, before) == 0);
    struct rlimit now = *before;
    now.rlim_cur = pages * (size_t)sysconf(_SC_PAGESIZE) + more;
    must(setrlimit(RLIMIT_AS, &now) == 0);
    return now.rlim_cur;
}
