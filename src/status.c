/* status.c - what the library says when something went wrong: the last error of each
 * thread, the out-of-memory report, the misuse handler, and broken promises.
 *
 * The record of a thread's last error is made at its first failure. Where there is no
 * memory even for that, the status is kept and the sentence is the status's own. */
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "sync.h"

const char *weir_status_string(weir_status status)
{
    switch (status) {
#define X(name, number, words) \
    case WEIR_##name: return words;
        WEIR_STATUS_MAP(X)
#undef X
    }
    return "a status this version does not know";
}

/* ---- the last error ---- */

static pthread_key_t record_key;
static bool record_key_made;

/* A plain free: the record may die when test counters do not look any more. */
static void record_end(void *record)
{
    weir__thread_self()->error = NULL;
    free(record);
}

static void record_key_create(void)
{
    record_key_made = weir__key_make(&record_key, record_end);
}

/* This thread's record, or null if there is no memory for one. */
static weir__error_record *record_of_thread(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    weir__thread *thread = weir__thread_self();
    if (thread->error != NULL)
        return thread->error;

    (void)pthread_once(&once, record_key_create);
    if (!record_key_made)
        return NULL;
    /* Not weir__host_alloc: telling a failure must not use up the one a test
     * planned. */
    weir__error_record *record = calloc(1, sizeof *record);
    if (record == NULL)
        return NULL;
    if (pthread_setspecific(record_key, record) != 0) {
        free(record);
        return NULL;
    }
    thread->error = record;
    return record;
}

weir_error weir_last_error(void)
{
    const weir__thread *thread = weir__thread_self();
    if (thread->error != NULL)
        return (weir_error){ .status = thread->error->status,
                             .native_code = thread->error->native_code,
                             .message = thread->error->message };
    weir_status bare = (weir_status)thread->bare_status;
    return (weir_error){ .status = bare,
                         .message = bare == WEIR_OK ? "" : weir_status_string(bare) };
}

void weir__failed(weir_status status, int32_t native_code, const char *format, ...)
{
    weir__error_record *record = record_of_thread();
    if (record == NULL) {
        weir__thread_self()->bare_status = (int16_t)status;
        return;
    }
    va_list args;
    va_start(args, format);
    record->number++;
    record->status = status;
    record->native_code = native_code;
    record->is_reported = false;
    vsnprintf(record->message, sizeof record->message, format, args);
    va_end(args);
}

weir_status weir__fail_memory(weir_status status, const weir_out_of_memory *report)
{
    char limit[48] = "no limit";
    if (report->limit_bytes != SIZE_MAX)
        snprintf(limit, sizeof limit, "limit %zu", report->limit_bytes);
    weir__failed(
        status, 0,
        "%s has no %zu bytes: %zu held (%s), %zu in use, largest free block %zu",
        report->resource, report->requested_bytes, report->held_bytes, limit,
        report->in_use_bytes, report->largest_free_bytes);
    weir__report_memory(report);
    if (weir__thread_self()->error != NULL)
        weir__thread_self()->error->is_reported = true;
    return status;
}

void weir__report_memory(const weir_out_of_memory *report)
{
    weir__error_record *record = record_of_thread();
    if (record == NULL)
        return;
    record->report = *report;
    record->report.struct_size = sizeof record->report;
}

void weir__report_as_own(weir_status status, size_t bytes, size_t more_bytes,
                         const char *resource)
{
    const weir__error_record *record = weir__thread_self()->error;
    if ((status != WEIR_OUT_OF_MEMORY && status != WEIR_LIMIT_REACHED) ||
        record == NULL || !record->is_reported)
        return;
    weir_out_of_memory report = record->report;
    report.requested_bytes = bytes;
    report.largest_free_bytes -= more_bytes < report.largest_free_bytes
                                     ? more_bytes
                                     : report.largest_free_bytes;
    report.resource = resource;
    (void)weir__fail_memory(status, &report);
}

weir_status weir_last_out_of_memory(weir_out_of_memory *out)
{
    const weir__error_record *record = weir__thread_self()->error;
    if (record == NULL || record->report.struct_size == 0) {
        const weir_out_of_memory none = { .struct_size = sizeof none };
        weir_status status = weir__fill_out(out, &none, sizeof none);
        if (status != WEIR_OK)
            return status;
        return weir__fail(WEIR_NOT_FOUND, "nothing ran out of memory on this thread");
    }
    return weir__fill_out(out, &record->report, sizeof record->report);
}

void weir__error_keep(weir__error_record *out)
{
    const weir__thread *thread = weir__thread_self();
    if (thread->error != NULL)
        *out = *thread->error;
    else
        *out = (weir__error_record){ .status = (weir_status)thread->bare_status };
}

void weir__error_put_back(const weir__error_record *kept)
{
    weir__error_record *record = record_of_thread();
    if (record == NULL)
        weir__thread_self()->bare_status = (int16_t)kept->status;
    else if (kept->message[0] != '\0')
        *record = *kept;
    else
        weir__failed(kept->status, 0, "%s", weir_status_string(kept->status));
}

/* ---- misuse ---- */

static weir__mutex misuse_lock = WEIR__MUTEX_INIT(WEIR__RANK_REGISTRY); /* of both: */
static weir_misuse_handler misuse_handler;
static void *misuse_context;

void weir_set_misuse_handler(weir_misuse_handler handler, void *context)
{
    weir__mutex_lock(&misuse_lock);
    misuse_handler = handler;
    misuse_context = context;
    weir__mutex_unlock(&misuse_lock);
}

void weir__misuse(weir_misuse_kind kind, const void *ptr, size_t bytes,
                  const char *format, ...)
{
    char message[700];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);

    weir__mutex_lock(&misuse_lock);
    weir_misuse_handler handler = misuse_handler;
    void *context = misuse_context;
    weir__mutex_unlock(&misuse_lock);

    const weir_misuse misuse = { kind, message, ptr, bytes };
    if (handler != NULL) {
        handler(context, &misuse);
        return;
    }
    fprintf(stderr, "weir: misuse: %s\n", message);
    abort();
}

_Noreturn void weir__check_failed(const char *condition, const char *words,
                                  const char *file, int line)
{
    fprintf(stderr, "%s:%d: %s (%s)\n", file, line, words, condition);
    abort();
}
