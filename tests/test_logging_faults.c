/* test_logging_faults.c - the log survives what ends a process, tells the truth
 * whatever fails, and never gets in the way of a call. */
#include "support_logging.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"

/* ---- when writing fails ---- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    must(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes;
    must(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* The file may grow no further than into the middle of a line: the calls succeed, and
 * what it has are whole lines; and then it may grow again. The signal that comes with
 * it would end the program. */
static void logging_counts_the_lines_that_it_loses(void **state)
{
    (void)state;
    for (size_t flush_bytes = 0; flush_bytes <= 600; flush_bytes += 600) {
        weir_device *device = open_stepped(support_seed(9));
        weir_resource *mr = log_over(device, "pool/device", false, flush_bytes);
        limit_files(5000);
        void *ptrs[100];
        for (size_t i = 0; i < 100; i++)
            ptrs[i] = take(mr, NULL, 100);
        weir_status flushed = weir_logging_flush(mr);
        limit_files(RLIM_INFINITY);
        must_equal(flushed, flush_bytes == 0 ? WEIR_OK : WEIR_FILE_ERROR);
        weir_logging_state now = log_state_of(mr);
        log_lines log = log_read_lines();
        must_equal(now.last_errno, EFBIG);
        must_equal(now.lines, 100);
        must_equal(now.lines_waiting, 0);
        must_equal(now.lines_lost, 100 - log.count);
        must(log.count > 50);
        for (size_t i = 0; i < log.count; i++)
            must_equal(log.all[i].sequence, i + 1);
        free(log.all);

        for (size_t i = 0; i < 100; i++)
            give(mr, NULL, ptrs[i], 100);
        must_ok(weir_logging_flush(mr));
        log_must_keep_to_pages();
        must_equal(log_state_of(mr).lines_lost, now.lines_lost);
        log = log_read_lines();
        must_equal(log.count + now.lines_lost, 200);
        must_equal(log.all[log.count - 100].sequence, 101);
        free(log.all);
        weir_resource_unref(mr);
        close_emulated(device);
    }
}

static void logging_outlives_the_reader_of_a_pipe(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(10));
    weir_resource *leaf, *mr;
    int ends[2];
    char name[40], text[200];
    must_ok(weir_device_resource_create(device, &leaf));
    must(pipe(ends) == 0);
    (void)snprintf(name, sizeof name, "/dev/fd/%d", ends[1]);
    must_ok(weir_logging_create(leaf, name, NULL, &mr));
    must(close(ends[1]) == 0);
    errno = EXDEV; /* the program's, whether a line is written or lost */
    void *ptr = take(mr, NULL, 10);
    must_equal(errno, EXDEV);
    ssize_t got = read(ends[0], text, sizeof text - 1);
    must(got > 0);
    text[got] = '\0';
    must(strncmp(text, LOG_HEADER, strlen(LOG_HEADER)) == 0);
    log_line first;
    must(*log_line_parse(text + strlen(LOG_HEADER), &first) == '\0');
    must_be_line(&first, "allocate", ptr, 10, NULL, 256);

    must(close(ends[0]) == 0);
    errno = EXDEV;
    give(mr, NULL, ptr, 10);
    must_equal(errno, EXDEV);
    must_equal(log_state_of(mr).lines_lost, 1);
    must_equal(log_state_of(mr).last_errno, EPIPE);
    weir_resource_unref(mr);
    weir_resource_unref(leaf);
    close_emulated(device);
}

/* ---- when the process ends ---- */

/* In a process of its own: allocates for ever, and tells of each allocation that has
 * returned by a byte. */
static int child_main(const char *log, const char *flush_text)
{
    weir_logging_options options = WEIR_LOGGING_OPTIONS_INIT;
    options.flush_bytes = strtoul(flush_text, NULL, 10);
    weir_device *device;
    weir_resource *below, *mr;
    void *ptr;
    if (weir_device_open("emulated:0", NULL, &device) != WEIR_OK
        || weir_resource_open(device, "pool/device", &below) != WEIR_OK
        || weir_logging_create(below, log, &options, &mr) != WEIR_OK)
        return 1;
    while (weir_allocate(mr, NULL, 300, 256, &ptr) == WEIR_OK) {
        if (write(1, "", 1) != 1)
            return 1;
    }
    return 1;
}

static pid_t child_begin(const char *flush_text, int *reports)
{
    static char self[] = "/proc/self/exe";
    char text[24], log[sizeof log_path], name[] = "child";
    char *const arguments[] = { self, name, log, text, NULL };
    int ends[2];
    (void)snprintf(text, sizeof text, "%s", flush_text);
    memcpy(log, log_path, sizeof log_path);
    must(pipe(ends) == 0);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        (void)dup2(ends[1], 1);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)execv(self, arguments);
        _exit(127);
    }
    must(close(ends[1]) == 0);
    *reports = ends[0];
    return child;
}

static void logging_survives_a_process_that_is_killed(void **state)
{
    (void)state;
    static const char *const flushes[] = { "0", "5000" };
    uint64_t kills = support_bound("processes killed while they log", 6, 100);
    for (uint64_t i = 0; i < kills; i++) {
        int reports;
        char bytes[4096];
        size_t count = 0, wanted = 200 + 37 * i;
        pid_t child = child_begin(flushes[i % 2], &reports);
        while (count < wanted) {
            ssize_t got = read(reports, bytes, sizeof bytes);
            must(got > 0);
            count += (size_t)got;
        }
        must(kill(child, SIGKILL) == 0);
        for (ssize_t got; (got = read(reports, bytes, sizeof bytes)) > 0;)
            count += (size_t)got;
        must(waitpid(child, NULL, 0) == child && close(reports) == 0);

        log_lines log = log_read_lines();
        for (size_t at = 0; at < log.count; at++)
            must_equal(log.all[at].sequence, at + 1);
        must(log.count + (i % 2 == 0 ? 0 : 5000 / 60) >= count);
        log_must_keep_to_pages();
        free(log.all);
    }
}

static void logging_writes_nothing_in_the_child_of_a_fork(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(11));
    weir_resource *mr = log_over(device, "pool/device", false, 1000);
    void *ptr = take(mr, NULL, 100), *other;
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        bool refused = weir_allocate(mr, NULL, 1, 1, &other) == WEIR_FORKED
                       && weir_logging_flush(mr) == WEIR_FORKED;
        (void)weir_deallocate(mr, NULL, ptr, 100, 256);
        weir_resource_unref(mr);
        _exit(refused ? 0 : 1);
    }
    int how;
    must(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0);
    log_lines log = log_read_lines();
    must_equal(log.count, 0);
    give(mr, NULL, ptr, 100);
    weir_resource_unref(mr);
    log = log_read_lines();
    must_equal(log.count, 2);
    free(log.all);
    close_emulated(device);
}

/* ---- when anything fails ---- */

/* What the log has to say, as the calls went. */
typedef struct told {
    weir_resource *mr;
    struct {
        const char *action;
        void *ptr;
        size_t bytes;
        weir_stream stream;
    } calls[32];
    size_t count;
} told;

static void tell(told *self, const char *action, void *ptr, size_t bytes,
                 weir_stream stream)
{
    self->calls[self->count].action = action;
    self->calls[self->count].ptr = ptr;
    self->calls[self->count].bytes = bytes;
    self->calls[self->count++].stream = stream;
}

static void *told_take(told *self, weir_stream stream, size_t bytes)
{
    void *ptr;
    weir_status status = weir_allocate(self->mr, stream, bytes, 256, &ptr);
    must((status == WEIR_OK) == (ptr != NULL));
    /* The chain is not asked once it is known that its device is lost. */
    if (status != WEIR_DEVICE_LOST || log_state_of(self->mr).lines > self->count)
        tell(self, ptr != NULL ? "allocate" : "allocate failure", ptr, bytes, stream);
    return ptr;
}

static void told_give(told *self, weir_stream stream, void *ptr, size_t bytes)
{
    if (ptr == NULL)
        return;
    tell(self, "free", ptr, bytes, stream);
    give(self->mr, stream, ptr, bytes);
}

static void told_program(told *self, weir_device *device, const weir_stream *streams)
{
    void *a = told_take(self, streams[0], 1000);
    void *b = told_take(self, streams[1], 70000);
    told_give(self, streams[0], a, 1000);
    a = told_take(self, streams[1], 1000);
    if (weir_stream_wait(device, streams[0], streams[1]) != WEIR_OK)
        must(weir_device_sync(device) != WEIR_INVALID_ARGUMENT);
    told_give(self, streams[0], b, 70000);
    b = told_take(self, streams[1], (size_t)9 << 20);
    void *c = told_take(self, NULL, (size_t)1 << 45);
    told_give(self, streams[1], a, 1000);
    told_give(self, streams[1], b, (size_t)9 << 20);
    told_give(self, NULL, c, (size_t)1 << 45);
}

/* Runs the program with the nth call of the kind failing, and returns how many calls
 * there were. Kinds: of the host, of the device, of the device and it is lost. */
static uint64_t told_run(int kind, uint64_t nth, bool lasting)
{
    static const weir_status statuses[] = { WEIR_OK, WEIR_DEVICE_ERROR,
                                            WEIR_DEVICE_LOST };
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.no_ledger = kind == 0; /* without memory it says so as a finding */
    options.emulated = &emulated;
    weir_device *device = open_with("emulated:0", &options);
    const weir_stream streams[] = { make_stream(device, WEIR_STREAM_NON_BLOCKING),
                                    make_stream(device, WEIR_STREAM_BLOCKING) };
    told self = { .mr = log_over(device, "pool/device", false, 0) };
    weir_device_calls before = calls_of(device);
    if (kind == 0)
        weir__host_fail_at(nth, lasting);
    else
        plan_fault(device, NULL, nth, lasting, statuses[kind]);
    told_program(&self, device, streams);
    uint64_t calls = weir__host_calls();
    weir__host_fail_at(0, false);
    plan_fault(device, NULL, 0, false, WEIR_OK);
    if (kind != 0) {
        weir_device_calls after = calls_of(device);
        calls = 0;
#define X(name) calls += after.name - before.name;
        WEIR_DEVICE_CALL_MAP(X)
#undef X
    }
    weir_resource_unref(self.mr);

    log_lines log = log_read_lines();
    must_equal(log.count, self.count);
    for (size_t i = 0; i < log.count; i++)
        must_be_line(&log.all[i], self.calls[i].action, self.calls[i].ptr,
                     self.calls[i].bytes, self.calls[i].stream, 256);
    free(log.all);
    (void)weir_stream_destroy(device, streams[0]);
    (void)weir_stream_destroy(device, streams[1]);
    close_anyhow(device);
    return calls;
}

static void logging_tells_what_happened_whatever_fails(void **state)
{
    (void)state;
    uint64_t points = 0;
    for (int kind = 0; kind < 3; kind++) {
        uint64_t calls = told_run(kind, 0, false);
        for (uint64_t nth = 1; nth <= calls; nth++) {
            (void)told_run(kind, nth, false);
            (void)told_run(kind, nth, true);
            points += 2;
        }
    }
    must(points > 50);
}

static void logging_create_survives_every_host_failure(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(12));
    weir_resource *leaf, *mr = NULL;
    must_ok(weir_device_resource_create(device, &leaf));
    uint64_t nth = 0;
    while (mr == NULL) {
        size_t live = weir__host_live();
        log_write_file("kept");
        weir__host_fail_at(++nth, true);
        weir_status status = weir_logging_create(leaf, log_path, NULL, &mr);
        weir__host_fail_at(0, false);
        must(status == (mr != NULL ? WEIR_OK : WEIR_OUT_OF_HOST_MEMORY));
        char *text = log_read_file();
        assert_string_equal(text, mr != NULL ? LOG_HEADER : "kept");
        free(text);
        must(mr != NULL || weir__host_live() == live);
    }
    must_equal(nth, 3);
    weir_resource_unref(mr);
    weir_resource_unref(leaf);
    close_emulated(device);
}

/* Giving back asks for as much host memory as without the log: the device's own. */
static void logging_gives_back_without_host_memory(void **state)
{
    (void)state;
    uint64_t calls[2];
    for (size_t i = 0; i < 2; i++) {
        weir_device *device = open_stepped(support_seed(13));
        weir_resource *mr;
        if (i == 0)
            must_ok(weir_resource_open(device, "pool/device", &mr));
        else
            mr = log_over(device, "pool/device", false, 0);
        void *a = take(mr, NULL, 100), *b = take(mr, NULL, 100);
        uint64_t before = weir__host_calls();
        give(mr, NULL, a, 100);
        must(weir_deallocate_after(mr, b, 100, 256, NULL, 0));
        calls[i] = weir__host_calls() - before;
        weir_resource_unref(mr);
        close_emulated(device);
    }
    must_equal(calls[0], calls[1]);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "child") == 0)
        return child_main(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logging_counts_the_lines_that_it_loses),
        cmocka_unit_test(logging_outlives_the_reader_of_a_pipe),
        cmocka_unit_test(logging_survives_a_process_that_is_killed),
        cmocka_unit_test(logging_writes_nothing_in_the_child_of_a_fork),
        cmocka_unit_test(logging_tells_what_happened_whatever_fails),
        cmocka_unit_test(logging_create_survives_every_host_failure),
        cmocka_unit_test(logging_gives_back_without_host_memory),
    };
    return cmocka_run_group_tests_name("logging_faults", tests, log_folder_make,
                                       log_folder_remove);
}
