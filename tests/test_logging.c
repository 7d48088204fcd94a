/* test_logging.c - the log has RMM's form, tells what happened in an order that can
 * be replayed, and has its file to itself. */
#include "support_logging.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"
#include "support_roomy.h"

/* ---- what is in a line ---- */

static void logging_writes_a_line_for_each_call(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(1));
    weir_resource *mr = log_over(device, "pool/device", false, 0);
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    void *none;
    void *a = take(mr, NULL, 1000);
    void *b;
    must_ok(weir_allocate(mr, stream, 17, 64, &b));
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(mr, stream, (size_t)1 << 50, 256, &none));
    void *c = take(mr, WEIR_STREAM_PER_THREAD, 5);
    must_ok(weir_device_sync(device));
    give(mr, stream, a, 1000);
    must(weir_free(mr, c));
    must(weir_deallocate_after(mr, b, 17, 64, NULL, 0));

    log_lines log = log_read_lines();
    must_equal(log.count, 7);
    must_be_line(&log.all[0], "allocate", a, 1000, NULL, 256);
    must_be_line(&log.all[1], "allocate", b, 17, stream, 64);
    must_be_line(&log.all[2], "allocate failure", NULL, (size_t)1 << 50, stream, 256);
    must_be_line(&log.all[3], "allocate", c, 5, WEIR_STREAM_PER_THREAD, 256);
    must_be_line(&log.all[4], "free", a, 1000, stream, 256);
    must_be_line(&log.all[5], "free", c, 5, WEIR_STREAM_PER_THREAD, 256);
    must_be_line(&log.all[6], "free", b, 17, WEIR_STREAM_LEGACY, 64);
    for (size_t i = 0; i < log.count; i++) {
        int hour, minute, second, micros, length = 0;
        must_equal(log.all[i].thread, gettid());
        must_equal(log.all[i].sequence, i + 1);
        must(strcmp(log.all[i].device, "emulated:0") == 0);
        must(sscanf(log.all[i].time, "%2d:%2d:%2d.%6d%n", &hour, &minute, &second,
                    &micros, &length) == 4 && length == 15);
        must(hour < 24 && minute < 60 && second < 60);
    }
    free(log.all);
    end_stream(device, stream);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* time() may be some milliseconds behind the clock. */
static time_t seconds_now(void)
{
    struct timespec now;
    must(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return now.tv_sec;
}

/* The day's time as the C library has it, within the two moments around the call. */
static void logging_tells_local_time(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(2));
    must(setenv("TZ", "XYZ-05:30", 1) == 0); /* ahead by that much */
    tzset();
    weir_resource *mr = log_over(device, "device", false, 0);
    char before[24], after[24];
    time_t now = seconds_now();
    must(strftime(before, sizeof before, "%H:%M:%S", localtime(&now)) != 0);
    void *ptr = take(mr, NULL, 1);
    now = seconds_now();
    must(strftime(after, sizeof after, "%H:%M:%S", localtime(&now)) != 0);
    must(unsetenv("TZ") == 0);

    log_lines log = log_read_lines();
    log.all[0].time[8] = '\0';
    must(strcmp(before, after) > 0 /* midnight */
         || (strcmp(before, log.all[0].time) <= 0
             && strcmp(log.all[0].time, after) <= 0));
    free(log.all);
    give(mr, NULL, ptr, 1);
    weir_resource_unref(mr);
    close_emulated(device);
}

static void logging_leaves_out_what_asks_nothing_and_misuse(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(3));
    weir_resource *mr = log_over(device, "pool/device", false, 0);
    void *none;
    void *ptr = take(mr, NULL, 100);
    must(take(mr, NULL, 0) == NULL);
    must(weir_deallocate(mr, NULL, NULL, 0, 256));
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(mr, NULL, 8, 3, &none));

    misuse_log misuse;
    misuse_begin(&misuse);
    must(!weir_deallocate(mr, NULL, ptr, 99, 256));
    must_be_misuse(&misuse, WEIR_MISUSE_WRONG_SIZE, ptr);
    must(!weir_deallocate_after(mr, (char *)ptr + 1, 100, 256, NULL, 0));
    must_be_misuse(&misuse, WEIR_MISUSE_FOREIGN_POINTER, (char *)ptr + 1);
    must(!weir_free(mr, (char *)ptr + 1));
    must_be_misuse(&misuse, WEIR_MISUSE_FOREIGN_POINTER, (char *)ptr + 1);
    give(mr, NULL, ptr, 100);
    must(!weir_deallocate(mr, NULL, ptr, 100, 256));
    must_be_misuse(&misuse, WEIR_MISUSE_DOUBLE_FREE, ptr);
    misuse_end();

    log_lines log = log_read_lines();
    must_equal(log.count, 2);
    must_be_line(&log.all[1], "free", ptr, 100, NULL, 256);
    free(log.all);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* ---- in what order ---- */

/* An upstream whose memory is taken again the moment it is back, as another thread
 * might: by an allocation out of its own deallocate. */
typedef struct greedy {
    weir_resource *below;
    weir_resource *log;
    void *again;
    bool takes;
} greedy;

static weir_status greedy_allocate(void *context, weir_stream stream, size_t bytes,
                                   size_t alignment, void **out)
{
    greedy *self = context;
    return weir_allocate(self->below, stream, bytes, alignment, out);
}

static bool greedy_deallocate(void *context, weir_stream stream, void *ptr,
                              size_t bytes, size_t alignment)
{
    greedy *self = context;
    must(weir_deallocate(self->below, stream, ptr, bytes, alignment));
    if (self->takes) {
        self->takes = false;
        self->again = take(self->log, stream, bytes);
        must(self->again == ptr);
    }
    return true;
}

static weir_resource *greedy_upstream(void *context)
{
    greedy *self = context;
    return self->below;
}

static void greedy_destroy(void *context)
{
    (void)context;
}

static const weir_resource_ops greedy_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "greedy",
    .allocate = greedy_allocate,
    .deallocate = greedy_deallocate,
    .destroy = greedy_destroy,
    .upstream = greedy_upstream,
};

static void logging_tells_of_a_free_before_upstream_has_it(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(4));
    greedy self = { .takes = false };
    weir_resource *mr;
    must_ok(weir_resource_open(device, "pool/device", &self.below));
    must_ok(weir_resource_create(&greedy_ops, &self, &mr));
    must_ok(weir_logging_create(mr, log_path, NULL, &self.log));
    weir_resource_unref(mr);
    void *ptr = take(self.log, NULL, 300);
    self.takes = true;
    give(self.log, NULL, ptr, 300);
    self.takes = true;
    must_ok(weir_stream_sync(device, NULL));
    must(weir_deallocate_after(self.log, self.again, 300, 256, NULL, 0));
    give(self.log, NULL, self.again, 300);

    log_lines log = log_read_lines();
    must_equal(log.count, 6);
    for (size_t i = 0; i < log.count; i++)
        assert_string_equal(log.all[i].action, i % 2 == 0 ? "allocate" : "free");
    free(log.all);
    weir_resource_unref(self.log);
    weir_resource_unref(self.below);
    close_emulated(device);
}

typedef struct worker {
    weir_device *device;
    weir_resource *mr;
    uint64_t seed;
    uint64_t rounds;
} worker;

#define WORKERS 4
#define WORKER_BLOCKS 8

static void *worker_run(void *argument)
{
    worker *self = argument;
    weir_stream stream = make_stream(self->device, WEIR_STREAM_NON_BLOCKING);
    void *ptrs[WORKER_BLOCKS] = { NULL };
    size_t sizes[WORKER_BLOCKS] = { 0 };
    for (uint64_t i = 0; i < self->rounds + WORKER_BLOCKS; i++) {
        size_t at = i < self->rounds ? support_random_below(&self->seed, WORKER_BLOCKS)
                                     : i - self->rounds;
        if (ptrs[at] != NULL)
            give(self->mr, stream, ptrs[at], sizes[at]);
        ptrs[at] = NULL;
        sizes[at] = support_random_between(&self->seed, 1, 3) * 256;
        if (i < self->rounds)
            ptrs[at] = take(self->mr, stream, sizes[at]);
    }
    end_stream(self->device, stream);
    return NULL;
}

static int compare_by_pointer(const void *a, const void *b)
{
    const log_line *x = a, *y = b;
    int order = strcmp(x->pointer, y->pointer);
    return order != 0 ? order : x->sequence < y->sequence ? -1 : 1;
}

/* Claims that the numbers go up by one, and the time not down; and that of each address
 * allocation and free follow each other by turns, with the same size. */
static void must_be_replayable(log_lines *log)
{
    for (size_t i = 0; i < log->count; i++) {
        must_equal(log->all[i].sequence, i + 1);
        /* It goes down once at midnight. */
        must(i == 0 || log->all[i].time[0] < log->all[i - 1].time[0]
             || strcmp(log->all[i - 1].time, log->all[i].time) <= 0);
    }
    qsort(log->all, log->count, sizeof *log->all, compare_by_pointer);
    for (size_t i = 0; i < log->count; i++) {
        const log_line *it = &log->all[i];
        bool follows = i > 0 && strcmp(it[-1].pointer, it->pointer) == 0;
        if (strcmp(it->action, "free") == 0)
            must(follows && strcmp(it[-1].action, "allocate") == 0
                 && it[-1].bytes == it->bytes);
        else
            must(!follows || strcmp(it[-1].action, "free") == 0);
    }
}

static void logging_keeps_the_order_of_many_threads(void **state)
{
    (void)state;
    uint64_t rounds = support_bound("rounds of logging threads", 2000, 40000);
    for (size_t flush_bytes = 0; flush_bytes <= 10000; flush_bytes += 10000) {
        weir_device *device = open_threads();
        weir_resource *mr = log_over(device, "pool/device", false, flush_bytes);
        pthread_t threads[WORKERS];
        worker workers[WORKERS];
        for (size_t i = 0; i < WORKERS; i++) {
            workers[i] = (worker){ device, mr, i, rounds };
            must(pthread_create(&threads[i], NULL, worker_run, &workers[i]) == 0);
        }
        for (size_t i = 0; i < WORKERS; i++)
            must(pthread_join(threads[i], NULL) == 0);
        weir_logging_state now = log_state_of(mr);
        must_equal(now.lines_lost, 0);
        weir_resource_unref(mr);
        log_lines log = log_read_lines();
        must_equal(log.count, now.lines);
        must_be_replayable(&log);
        log_must_keep_to_pages();
        free(log.all);
        close_emulated(device);
    }
}

/* ---- blocks that grow ---- */

/* Lines enough that some fall on the end of a page. */
static void logging_writes_a_block_that_grows_as_two_lines(void **state)
{
    (void)state;
    enum { ROUNDS = 100 };
    weir_device *device = open_stepped(support_seed(9));
    weir_logging_options options = WEIR_LOGGING_OPTIONS_INIT;
    for (; options.flush_bytes <= 1000; options.flush_bytes += 500) {
        roomy below;
        weir_resource *pool, *upstream, *mr;
        must_ok(weir_resource_open(device, "pool/device", &pool));
        upstream = roomy_open(&below, pool, 4096);
        must_ok(weir_logging_create(upstream, log_path, &options, &mr));
        weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
        void *ptr[ROUNDS];
        for (size_t i = 0; i < ROUNDS; i++) {
            ptr[i] = take(mr, NULL, 1000);
            must_ok(weir_stream_wait(device, stream, NULL));
            must_ok(weir_resource_extend(mr, stream, ptr[i], 1000, 256, 3000));
            must_answer(WEIR_OUT_OF_MEMORY,
                        weir_resource_extend(mr, NULL, ptr[i], 3000, 256, 5000));
            must_ok(weir_stream_wait(device, NULL, stream));
            give(mr, NULL, ptr[i], 3000);
        }
        must_equal(below.extensions, ROUNDS);
        must_equal(below.refusals, ROUNDS);
        end_stream(device, stream);
        weir_resource_unref(mr);
        weir_resource_unref(upstream);
        weir_resource_unref(pool);

        log_lines log = log_read_lines();
        must_equal(log.count, 4 * ROUNDS);
        for (size_t i = 0; i < ROUNDS; i++) {
            const log_line *it = &log.all[4 * i];
            must_be_line(&it[0], "allocate", ptr[i], 1000, NULL, 256);
            must_be_line(&it[1], "free", ptr[i], 1000, stream, 256);
            must_be_line(&it[2], "allocate", ptr[i], 3000, stream, 256);
            must_be_line(&it[3], "free", ptr[i], 3000, NULL, 256);
        }
        log_must_keep_to_pages();
        free(log.all);
    }
    close_emulated(device);
}

/* A block that is cut is two or three: also where they all come at once, and the lines
 * wait. */
static void logging_tells_of_pieces(void **state)
{
    (void)state;
    const size_t page = WEIR_GROWABLE_PAGE_BYTES;
    weir_device *device = open_stepped(support_seed(11));
    for (size_t flush_bytes = 0; flush_bytes < 2000; flush_bytes += 177) {
        weir_resource *mr = log_over(device, "growable(chunk=2MiB, pages_only=true)",
                                     false, flush_bytes);
        weir_resource_properties properties = { .struct_size = sizeof properties };
        must_ok(weir_resource_get_properties(mr, &properties));
        must_equal(properties.cut_bytes, page);
        char *ptr = take(mr, NULL, page);
        for (size_t i = 1; i < 4; i++)
            must_ok(weir_resource_extend(mr, NULL, ptr, i * page, WEIR_ALIGNMENT,
                                         (i + 1) * page));
        size_t from = page, to = 2 * page;
        must_ok(weir_resource_cut(mr, ptr, 4 * page, WEIR_ALIGNMENT, page, &from, &to));
        must(from == page && to == 2 * page);
        from = page, to = 2 * page;
        must_ok(weir_resource_cut(mr, ptr + 2 * page, 2 * page, WEIR_ALIGNMENT, page,
                                  &from, &to));
        must(from == page && to == 2 * page);
        from = 0, to = page; /* all of a block is no cut */
        must_ok(weir_resource_cut(mr, ptr, page, WEIR_ALIGNMENT, page, &from, &to));
        for (size_t i = 0; i < 4; i++)
            give(mr, NULL, ptr + i * page, page);
        weir_resource_unref(mr);

        log_lines log = log_read_lines();
        must_equal(log.count, 1 + 3 * 2 + 4 + 3 + 4);
        const log_line *it = &log.all[7];
        weir_stream legacy = WEIR_STREAM_LEGACY;
        must_be_line(&it[0], "free", ptr, 4 * page, legacy, 256);
        must_be_line(&it[1], "allocate", ptr, page, legacy, 256);
        must_be_line(&it[2], "allocate", ptr + page, page, legacy, 256);
        must_be_line(&it[3], "allocate", ptr + 2 * page, 2 * page, legacy, 256);
        must_be_line(&it[4], "free", ptr + 2 * page, 2 * page, legacy, 256);
        must_be_line(&it[5], "allocate", ptr + 2 * page, page, legacy, 256);
        must_be_line(&it[6], "allocate", ptr + 3 * page, page, legacy, 256);
        must_be_replayable(&log);
        log_must_keep_to_pages();
        free(log.all);
    }
    close_emulated(device);
}

static void logging_lets_a_pool_grow_in_place(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(10));
    weir_resource *mr = log_over(device, "growable", false, 0), *pool;
    must_ok(weir_pool_create(mr, NULL, &pool));
    weir_resource_unref(mr);
    void *ptr[3];
    for (size_t i = 0; i < 3; i++)
        ptr[i] = take(pool, NULL, (size_t)64 << 20);
    for (size_t i = 0; i < 3; i++)
        give(pool, NULL, ptr[i], (size_t)64 << 20);
    weir_resource_unref(pool);

    log_lines log = log_read_lines();
    must(log.count >= 4);
    for (size_t i = 1; i + 1 < log.count; i++)
        assert_string_equal(log.all[i].pointer, log.all[0].pointer);
    must_be_replayable(&log);
    must(log.all[log.count - 1].bytes >= (size_t)192 << 20);
    free(log.all);

    mr = log_over(device, "pool/device", false, 0); /* which cannot */
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(mr, &properties));
    must(!properties.can_extend && properties.can_find && properties.can_trim);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* ---- when lines are written ---- */

static void logging_lets_lines_wait_up_to_a_number_of_bytes(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(5));
    weir_resource *mr = log_over(device, "pool/device", false, 1000);
    bool waited = false, written = false;
    void *ptrs[40];
    for (size_t i = 0; i < 40; i++) {
        ptrs[i] = take(mr, NULL, 100);
        char *text = log_read_file();
        log_lines log = log_read_lines();
        weir_logging_state now = log_state_of(mr);
        must_equal(now.lines, i + 1);
        must_equal(now.lines - now.lines_waiting, log.count);
        /* A line has 60 bytes at least. */
        must(now.lines_waiting <= 1000 / 60);
        waited = waited || now.lines_waiting > 5;
        written = written || (log.count > 0 && now.lines_waiting == 0);
        free(text);
        free(log.all);
    }
    must(waited && written);

    /* What has failed is not kept waiting, nor what came before it. */
    void *none;
    must(log_state_of(mr).lines_waiting != 0);
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(mr, NULL, (size_t)1 << 50, 256, &none));
    must_equal(log_state_of(mr).lines_waiting, 0);
    give(mr, NULL, ptrs[0], 100);
    must_equal(log_state_of(mr).lines_waiting, 1);
    must_ok(weir_logging_flush(mr));
    must_equal(log_state_of(mr).lines_waiting, 0);
    log_lines log = log_read_lines();
    must_equal(log.count, 42);
    free(log.all);

    for (size_t i = 1; i < 40; i++)
        give(mr, NULL, ptrs[i], 100);
    weir_resource_unref(mr);
    log = log_read_lines();
    must_equal(log.count, 81);
    must_equal(log.all[80].sequence, 81);
    free(log.all);
    close_emulated(device);
}

/* ---- which file ---- */

static void logging_appends_to_a_log_and_to_nothing_else(void **state)
{
    (void)state;
    static const char *const others[] = {
        "Thread,Time,Action,Pointer,Size,Stream\n", "short\n", LOG_HEADER "1,00:00",
        "Thread,Time,Action,Pointer,Size,Stream,Device,Alignment,Sequence,More\n",
    };
    weir_logging_options options = WEIR_LOGGING_OPTIONS_INIT;
    options.append = true;
    weir_device *device = open_stepped(support_seed(6));
    weir_resource *leaf, *mr;
    must_ok(weir_device_resource_create(device, &leaf));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        log_write_file(others[i]);
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir_logging_create(leaf, log_path, &options, &mr));
        must(mr == NULL);
        must(strstr(weir_last_error().message, log_path) != NULL);
        char *text = log_read_file();
        assert_string_equal(text, others[i]);
        free(text);
    }

    /* One that is made, one that is empty, one that is gone on with. */
    must(unlink(log_path) == 0);
    for (size_t run = 0; run < 3; run++) {
        if (run == 1)
            log_write_file("");
        must_ok(weir_logging_create(leaf, log_path, &options, &mr));
        give(mr, NULL, take(mr, NULL, 10), 10);
        weir_resource_unref(mr);
        log_lines log = log_read_lines();
        must_equal(log.count, run == 2 ? 4 : 2);
        for (size_t i = 0; i < log.count; i++)
            must_equal(log.all[i].sequence, i % 2 + 1);
        free(log.all);
    }

    options.append = false; /* begins anew, whatever there is */
    must_ok(weir_logging_create(leaf, log_path, &options, &mr));
    weir_resource_unref(mr);
    char *text = log_read_file();
    assert_string_equal(text, LOG_HEADER);
    free(text);
    weir_resource_unref(leaf);
    close_emulated(device);
}

static void logging_has_its_file_to_itself(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(7));
    weir_resource *mr = log_over(device, "device", false, 0), *other = mr;
    weir_logging_options options = { .struct_size = sizeof options };
    must_ok(weir_logging_get_options(mr, &options));
    must(!options.append && options.flush_bytes == 0);
    void *ptr = take(mr, NULL, 10);
    must_answer(WEIR_FILE_ERROR, weir_logging_create(mr, log_path, NULL, &other));
    must_equal(weir_last_error().native_code, EWOULDBLOCK);
    must(other == NULL);
    give(mr, NULL, ptr, 10);
    log_lines log = log_read_lines(); /* nothing was cut off */
    must_equal(log.count, 2);
    free(log.all);
    weir_resource_unref(mr);
    mr = log_over(device, "device", true, 99);
    must_ok(weir_logging_get_options(mr, &options));
    must(options.append && options.flush_bytes == 99);
    weir_resource_unref(mr);
    close_emulated(device);
}

static void logging_says_why_a_file_cannot_be_written(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(8));
    weir_resource *leaf, *mr;
    must_ok(weir_device_resource_create(device, &leaf));
    size_t live = weir__host_live();
    must_answer(WEIR_FILE_ERROR,
                weir_logging_create(leaf, "/nowhere/at/all.csv", NULL, &mr));
    must_equal(weir_last_error().native_code, ENOENT);
    must(strstr(weir_last_error().message, "/nowhere/at/all.csv") != NULL);
    must_answer(WEIR_FILE_ERROR, weir_logging_create(leaf, log_folder, NULL, &mr));
    must_equal(weir_last_error().native_code, EISDIR);
    must_answer(WEIR_FILE_ERROR, weir_logging_create(leaf, "/dev/full", NULL, &mr));
    must_equal(weir_last_error().native_code, ENOSPC);
    must(mr == NULL);

    weir_logging_options options = WEIR_LOGGING_OPTIONS_INIT;
    must_answer(WEIR_INVALID_ARGUMENT, weir_logging_create(leaf, "", NULL, &mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_logging_create(leaf, NULL, NULL, &mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_logging_create(NULL, log_path, NULL, &mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_logging_create(leaf, log_path, NULL, NULL));
    options.flush_bytes = ((size_t)1 << 20) + 1;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_logging_create(leaf, log_path, &options, &mr));
    options.struct_size = 3;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_logging_create(leaf, log_path, &options, &mr));

    weir_logging_state now = { .struct_size = sizeof now };
    must_answer(WEIR_INVALID_ARGUMENT, weir_logging_flush(leaf));
    must_answer(WEIR_INVALID_ARGUMENT, weir_logging_flush(NULL));
    must_answer(WEIR_INVALID_ARGUMENT, weir_logging_get_options(leaf, &options));
    must_answer(WEIR_INVALID_ARGUMENT, weir_logging_get_state(leaf, &now));
    must_answer(WEIR_INVALID_ARGUMENT, weir_logging_get_state(leaf, NULL));
    must_equal(weir__host_live(), live);
    weir_resource_unref(leaf);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logging_writes_a_line_for_each_call),
        cmocka_unit_test(logging_tells_local_time),
        cmocka_unit_test(logging_leaves_out_what_asks_nothing_and_misuse),
        cmocka_unit_test(logging_tells_of_a_free_before_upstream_has_it),
        cmocka_unit_test(logging_keeps_the_order_of_many_threads),
        cmocka_unit_test(logging_writes_a_block_that_grows_as_two_lines),
        cmocka_unit_test(logging_tells_of_pieces),
        cmocka_unit_test(logging_lets_a_pool_grow_in_place),
        cmocka_unit_test(logging_lets_lines_wait_up_to_a_number_of_bytes),
        cmocka_unit_test(logging_appends_to_a_log_and_to_nothing_else),
        cmocka_unit_test(logging_has_its_file_to_itself),
        cmocka_unit_test(logging_says_why_a_file_cannot_be_written),
    };
    return cmocka_run_group_tests_name("logging", tests, log_folder_make,
                                       log_folder_remove);
}
