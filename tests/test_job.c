/* test_job.c - a program as its user would write it, with all it allocates in a log:
 * the words of many files are counted, in a pipeline of threads and streams.
 *
 *   text --copy stream--> words --compute stream--> run --merge stream--> index
 *
 * Each worker takes every n-th file. It copies the text in on one stream and works on
 * another: finds the words, sorts them, packs equal ones into a run. The main thread
 * merges the runs into the index on a stream of its own, in the order of the files, and
 * gives them back there. So most blocks go to another stream, and many to another
 * thread, before they are freed. How much each step allocates, the step before found
 * out on the device.
 *
 *   test_job                     counts the words of Weir's headers, checks the result,
 *                                and that the log is whole and can be replayed
 *   test_job --log LOG FILE ...  keeps the log of another job
 */
#include "support.h"

#include <ctype.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/weir_plan.h"
#include "tools/weir_trace.h"
#include "weir/weir.h"

enum { WORKERS = 3 };

/* ---- words ---- */

/* Words that are not counted, each with its null byte; the last one is empty. */
#define STOP_LONGEST 3u
static const char stop_words[] = "the\0of\0and\0is\0to\0in\0that\0it\0as\0by\0for\0";

static bool is_stopped(const char *stops, const char *word, size_t length)
{
    if (length > STOP_LONGEST)
        return false;
    for (const char *at = stops; *at != '\0'; at += strlen(at) + 1) {
        if (strncmp(at, word, length) == 0 && at[length] == '\0')
            return true;
    }
    return false;
}

/* The next word at or behind *at, two letters long or more; false: there is none. */
static bool next_word(const char *stops, const char *text, size_t bytes, size_t *at,
                      size_t *length)
{
    for (*length = 0;; *at += *length) {
        while (*at < bytes && !isalpha((unsigned char)text[*at]))
            ++*at;
        for (*length = 0; *at + *length < bytes; ++*length) {
            if (!isalpha((unsigned char)text[*at + *length]))
                break;
        }
        if (*length == 0)
            return false;
        if (*length > 1 && !is_stopped(stops, text + *at, *length))
            return true;
    }
}

typedef struct word {
    uint32_t at, length;
} word;

static int compare(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t both = a_length < b_length ? a_length : b_length;
    int order = memcmp(a, b, both);
    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

/* A run is one entry for each word, in their order: its header, and its letters. */
typedef struct entry {
    uint32_t count, length;
} entry;

static entry entry_at(const char *run, size_t at)
{
    entry out;
    memcpy(&out, run + at, sizeof out);
    return out;
}

static size_t entry_put(char *run, size_t at, entry what, const char *letters)
{
    memcpy(run + at, &what, sizeof what);
    memcpy(run + at + sizeof what, letters, what.length);
    return at + sizeof what + what.length;
}

/* ---- kernels ---- */

/* One file on its way. What a kernel finds out goes to `found`, on the device. */
typedef struct item {
    const char *path;
    char *host_text;
    size_t text_bytes, word_count, run_bytes;
    void *run;          /* the worker's, until it has signalled this item */
    weir_stream stream; /* on which that was made */
} item;

/* views: text, stop words, found */
static void kernel_count(void *argument, void *const views[])
{
    const item *it = argument;
    uint64_t count = 0;
    size_t length;
    for (size_t at = 0; next_word(views[1], views[0], it->text_bytes, &at, &length);
         at += length)
        count++;
    memcpy(views[2], &count, sizeof count);
}

/* views: text, stop words, words */
static void kernel_split(void *argument, void *const views[])
{
    const item *it = argument;
    word *words = views[2];
    size_t length;
    for (size_t at = 0; next_word(views[1], views[0], it->text_bytes, &at, &length);
         at += length)
        *words++ = (word){ (uint32_t)at, (uint32_t)length };
}

static void merge_halves(const char *text, const word *from, word *to, size_t half,
                         size_t count)
{
    size_t a = 0, b = half;
    for (size_t i = 0; i < count; i++) {
        bool first = b == count
                     || (a < half && compare(text + from[a].at, from[a].length,
                                             text + from[b].at, from[b].length) <= 0);
        to[i] = first ? from[a++] : from[b++];
    }
}

static void sort_words(const char *text, word *words, word *scratch, size_t count)
{
    if (count < 2)
        return;
    sort_words(text, words, scratch, count / 2);
    sort_words(text, words + count / 2, scratch, count - count / 2);
    merge_halves(text, words, scratch, count / 2, count);
    memcpy(words, scratch, count * sizeof *words);
}

/* Packs the sorted words, or with a null run only finds how many bytes that takes. */
static size_t pack_words(const char *text, const word *words, size_t count, char *run)
{
    size_t bytes = 0;
    for (size_t i = 0, next; i < count; i = next) {
        const char *letters = text + words[i].at;
        for (next = i + 1; next < count; next++) {
            if (compare(letters, words[i].length, text + words[next].at,
                        words[next].length) != 0)
                break;
        }
        entry made = { (uint32_t)(next - i), words[i].length };
        if (run != NULL)
            (void)entry_put(run, bytes, made, letters);
        bytes += sizeof made + made.length;
    }
    return bytes;
}

/* views: text, words, scratch, found */
static void kernel_sort(void *argument, void *const views[])
{
    const item *it = argument;
    sort_words(views[0], views[1], views[2], it->word_count);
    uint64_t bytes = pack_words(views[0], views[1], it->word_count, NULL);
    memcpy(views[3], &bytes, sizeof bytes);
}

/* views: text, words, run */
static void kernel_pack(void *argument, void *const views[])
{
    const item *it = argument;
    (void)pack_words(views[0], views[1], it->word_count, views[2]);
}

typedef struct merge {
    size_t a_bytes, b_bytes;
} merge;

/* views: two runs, the merged one, found */
static void kernel_merge(void *argument, void *const views[])
{
    const merge *it = argument;
    const char *a = views[0], *b = views[1];
    size_t at_a = 0, at_b = 0;
    uint64_t bytes = 0;
    while (at_a < it->a_bytes || at_b < it->b_bytes) {
        entry x = { 0, 0 }, y = { 0, 0 };
        const char *from_x = NULL, *from_y = NULL; /* an empty run has no view */
        if (at_a < it->a_bytes) {
            x = entry_at(a, at_a);
            from_x = a + at_a + sizeof x;
        }
        if (at_b < it->b_bytes) {
            y = entry_at(b, at_b);
            from_y = b + at_b + sizeof y;
        }
        int order = x.count == 0   ? 1
                    : y.count == 0 ? -1
                                   : compare(from_x, x.length, from_y, y.length);
        entry made = order <= 0 ? x : y;
        if (order == 0)
            made.count += y.count;
        bytes = entry_put(views[2], bytes, made, order <= 0 ? from_x : from_y);
        at_a += order <= 0 ? sizeof x + x.length : 0;
        at_b += order >= 0 ? sizeof y + y.length : 0;
    }
    memcpy(views[3], &bytes, sizeof bytes);
}

/* ---- the pipeline ---- */

typedef struct job {
    weir_device *device;
    weir_resource *mr;
    item *items;
    size_t count;
    void *stops;        /* on the device; put there on the legacy stream */
    char *index;        /* the result, on the host */
    size_t index_bytes;
} job;

typedef struct worker {
    job *job;
    size_t number;
    weir_stream copy, compute;
} worker;

#define READ(ptr, bytes) { (ptr), (bytes), WEIR_EMULATED_READ }
#define WRITE(ptr, bytes) { (ptr), (bytes), WEIR_EMULATED_WRITE }
#define CHANGE(ptr, bytes) { (ptr), (bytes), WEIR_EMULATED_READ_WRITE }
#define LAUNCH(job, stream, kernel, argument, ...)                               \
    must_ok(weir_emulated_launch(                                                \
        (job)->device, (stream), (kernel), (argument),                           \
        (weir_emulated_range[]){ __VA_ARGS__ },                                  \
        sizeof((weir_emulated_range[]){ __VA_ARGS__ }) / sizeof(weir_emulated_range)))

/* What a kernel has written to `found`, once it has run. */
static size_t found_read(job *self, weir_stream stream, void *found)
{
    uint64_t number;
    must_ok(weir_copy_sync(self->device, stream, &number, found, sizeof number));
    return (size_t)number;
}

static void item_read(item *self)
{
    FILE *file = fopen(self->path, "rb");
    must(file != NULL && fseek(file, 0, SEEK_END) == 0);
    self->text_bytes = (size_t)ftell(file);
    must(fseek(file, 0, SEEK_SET) == 0);
    self->host_text = malloc(self->text_bytes + 1);
    must(self->host_text != NULL);
    must(fread(self->host_text, 1, self->text_bytes, file) == self->text_bytes);
    (void)fclose(file);
}

/* From the text on the host to a run on the device. */
static void item_run(worker *self, item *it)
{
    job *all = self->job;
    void *text = take(all->mr, self->copy, it->text_bytes);
    must_ok(weir_copy(all->device, self->copy, text, it->host_text, it->text_bytes));
    must_ok(weir_stream_wait(all->device, self->compute, self->copy));

    void *found = take(all->mr, self->compute, sizeof(uint64_t));
    LAUNCH(all, self->compute, kernel_count, it, READ(text, it->text_bytes),
           READ(all->stops, sizeof stop_words), WRITE(found, sizeof(uint64_t)));
    it->word_count = found_read(all, self->compute, found);

    size_t bytes = it->word_count * sizeof(word);
    void *words = take(all->mr, self->compute, bytes);
    LAUNCH(all, self->compute, kernel_split, it, READ(text, it->text_bytes),
           READ(all->stops, sizeof stop_words), WRITE(words, bytes));
    void *scratch = take(all->mr, self->compute, bytes);
    LAUNCH(all, self->compute, kernel_sort, it, READ(text, it->text_bytes),
           CHANGE(words, bytes), WRITE(scratch, bytes), WRITE(found, sizeof(uint64_t)));
    give(all->mr, self->compute, scratch, bytes);
    it->run_bytes = found_read(all, self->compute, found);
    give(all->mr, self->compute, found, sizeof(uint64_t));

    it->run = take(all->mr, self->compute, it->run_bytes);
    it->stream = self->compute;
    LAUNCH(all, self->compute, kernel_pack, it, READ(text, it->text_bytes),
           READ(words, bytes), WRITE(it->run, it->run_bytes));
    give(all->mr, self->compute, words, bytes);
    give(all->mr, self->compute, text, it->text_bytes);
}

static void *worker_run(void *argument)
{
    worker *self = argument;
    for (size_t i = self->number; i < self->job->count; i += WORKERS) {
        item *it = &self->job->items[i];
        item_run(self, it);
        must_ok(weir_emulated_host_signal(self->job->device, (uintptr_t)it));
    }
    return NULL;
}

/* Merges all runs into the index, each as soon as it is there. */
static void runs_merge(job *self, weir_stream stream)
{
    void *index = NULL;
    size_t index_bytes = 0;
    void *found = take(self->mr, stream, sizeof(uint64_t));
    for (size_t i = 0; i < self->count; i++) {
        item *it = &self->items[i];
        must_ok(weir_emulated_host_await(self->device, (uintptr_t)it));
        must_ok(weir_stream_wait(self->device, stream, it->stream));
        merge sizes = { index_bytes, it->run_bytes };
        size_t bytes = index_bytes + it->run_bytes;
        void *merged = take(self->mr, stream, bytes);
        LAUNCH(self, stream, kernel_merge, &sizes, READ(index, index_bytes),
               READ(it->run, it->run_bytes), WRITE(merged, bytes),
               WRITE(found, sizeof(uint64_t)));
        size_t merged_bytes = found_read(self, stream, found);
        if (index != NULL)
            give(self->mr, stream, index, index_bytes);
        give(self->mr, stream, it->run, it->run_bytes);

        /* The merged run kept room for words that are in both. */
        index = take(self->mr, stream, merged_bytes);
        must_ok(weir_copy(self->device, stream, index, merged, merged_bytes));
        give(self->mr, stream, merged, bytes);
        index_bytes = merged_bytes;
    }
    self->index = malloc(index_bytes);
    self->index_bytes = index_bytes;
    must(self->index != NULL);
    must_ok(weir_copy_sync(self->device, stream, self->index, index, index_bytes));
    give(self->mr, stream, index, index_bytes);
    give(self->mr, stream, found, sizeof(uint64_t));
}

static void job_run(job *self)
{
    pthread_t threads[WORKERS];
    worker workers[WORKERS];
    weir_stream stream = make_stream(self->device, WEIR_STREAM_NON_BLOCKING);
    self->stops = take(self->mr, NULL, sizeof stop_words);
    must_ok(weir_copy_sync(self->device, NULL, self->stops, stop_words,
                           sizeof stop_words));
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = (worker){ self, i,
                               make_stream(self->device, WEIR_STREAM_NON_BLOCKING),
                               make_stream(self->device, WEIR_STREAM_NON_BLOCKING) };
        must_ok(weir_stream_wait(self->device, workers[i].compute, NULL));
        must(pthread_create(&threads[i], NULL, worker_run, &workers[i]) == 0);
    }
    runs_merge(self, stream);
    for (size_t i = 0; i < WORKERS; i++) {
        must(pthread_join(threads[i], NULL) == 0);
        must_ok(weir_stream_wait(self->device, NULL, workers[i].compute));
        end_stream(self->device, workers[i].copy);
        end_stream(self->device, workers[i].compute);
    }
    give(self->mr, NULL, self->stops, sizeof stop_words);
    end_stream(self->device, stream);
}

/* Does the whole job over a log at `path`; the result is to be freed. */
static void job_do(job *self, const char *path, char *const *files, size_t count)
{
    char spec[200];
    (void)snprintf(spec, sizeof spec, "logging(%s)/pool/device", path);
    *self = (job){ .count = count, .items = calloc(count, sizeof(item)) };
    must(self->items != NULL);
    for (size_t i = 0; i < count; i++) {
        self->items[i].path = files[i];
        item_read(&self->items[i]);
    }
    self->device = open_threads();
    must_ok(weir_resource_open(self->device, spec, &self->mr));
    job_run(self);
    weir_resource_unref(self->mr);
    close_emulated(self->device);
}

static void job_clear(job *self)
{
    for (size_t i = 0; i < self->count; i++)
        free(self->items[i].host_text);
    free(self->items);
    free(self->index);
}

/* ---- what has to come out ---- */

/* All words, in the order of the files; to be freed. */
typedef struct found_word {
    const char *letters;
    size_t length;
} found_word;

static found_word *find_words(const job *self, size_t words)
{
    found_word *all = malloc(words * sizeof *all), *next = all;
    must(all != NULL);
    for (size_t i = 0; i < self->count; i++) {
        const item *it = &self->items[i];
        size_t length;
        for (size_t at = 0;
             next_word(stop_words, it->host_text, it->text_bytes, &at, &length);
             at += length) {
            must(next < all + words);
            *next++ = (found_word){ it->host_text + at, length };
        }
    }
    must_equal(next - all, words);
    return all;
}

static size_t count_word(const found_word *all, size_t words, const char *letters,
                         size_t length)
{
    size_t count = 0;
    for (const found_word *it = all; it < all + words; it++)
        count += it->length == length && memcmp(it->letters, letters, length) == 0;
    return count;
}

/* Each entry comes behind the one before and has its count; and no word is missing. */
static void must_be_the_index(const job *self)
{
    size_t all = 0, words = 0, last = SIZE_MAX;
    for (size_t i = 0; i < self->count; i++)
        words += self->items[i].word_count;
    found_word *found = find_words(self, words);
    for (size_t at = 0; at < self->index_bytes;) {
        entry it = entry_at(self->index, at);
        const char *letters = self->index + at + sizeof it;
        must(last == SIZE_MAX
             || compare(self->index + last + sizeof it,
                        entry_at(self->index, last).length, letters, it.length) < 0);
        must_equal(it.count, count_word(found, words, letters, it.length));
        all += it.count;
        last = at;
        at += sizeof it + it.length;
    }
    free(found);
    must(all > 1000);
    must_equal(all, words);
}

static void must_be_replayable(const char *path, size_t files)
{
    trace log;
    trace_error error;
    plan work;
    const plan_options options = { .spread = PLAN_TRACE, .thread_count = WORKERS + 1 };
    if (!trace_read(path, &log, &error))
        fail_msg("line %zu: %s", error.line, error.message);
    must_equal(log.block_count, 7 * files + 2);
    must_equal(log.event_count, 2 * log.block_count);
    must_equal(log.thread_count, WORKERS + 1);
    must_equal(log.stream_count, 2 * WORKERS + 2);
    must_equal(log.events[0].stream, log.legacy_stream);
    must(plan_make(&log, &options, &work));
    must_equal(work.handoffs, 2 * files);  /* the texts, and the runs */
    must_equal(work.crossings, files);     /* the runs */
    plan_clear(&work);
    trace_clear(&log);
}

static void job_is_done_and_its_log_can_be_replayed(void **state)
{
    (void)state;
    char path[] = "/tmp/weir_job_XXXXXX";
    glob_t found;
    job it;
    must(close(mkstemp(path)) == 0);
    must(glob(WEIR_TOP "/include/weir/*.h", 0, NULL, &found) == 0);
    must(found.gl_pathc >= 2 * WORKERS);
    job_do(&it, path, found.gl_pathv, found.gl_pathc);
    must_be_the_index(&it);
    must_be_replayable(path, found.gl_pathc);
    job_clear(&it);
    globfree(&found);
    must(unlink(path) == 0);
}

int main(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "--log") == 0) {
        job it;
        job_do(&it, argv[2], argv + 3, (size_t)argc - 3);
        job_clear(&it);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(job_is_done_and_its_log_can_be_replayed),
    };
    return cmocka_run_group_tests_name("job", tests, NULL, NULL);
}
