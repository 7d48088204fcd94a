/* logging.c - passes everything to an upstream resource, and writes a line for each
 * call to a file: RMM's columns, and three more.
 *
 * A line is made under the lock that also puts it into the file, so that Time and
 * Sequence go up from line to line. Lines are gathered in a buffer and leave it whole
 * with one write, to a file opened for appending. That alone does not keep a line in
 * one piece: a write that SIGKILL meets is cut short where a page of the file begins
 * (generic_perform_write in Linux looks for the signal between pages; of processes that
 * did nothing but write lines, one in a hundred left half of one). So no line lies
 * across a page: the last one on it is filled up, with zeros in front of its Sequence.
 * What the disk took only a part of is cut back to the last whole line.
 *
 * What always holds between two calls: less than flush_bytes wait, and every line up to
 * `lines` is in the file, waits, or was counted as lost. */
#include "weir/logging.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"
#include "resource_internal.h"
#include "sync.h"

#define HEADER \
    "Thread,Time,Action,Pointer,Size,Stream,Device,Alignment,Sequence\n"
#define HEADER_BYTES (sizeof HEADER - 1)

/* What a line takes at most, before it is filled up: 10 + 15 + 16 + 18 + 20 + 18 + 23
 * + 20 + 20 for the columns, and 9 for what ends them. */
#define LINE_BYTES_MAX ((size_t)176)
#define PIECES_MAX 3                      /* that a block is cut into */
#define LINES_AT_ONCE (1 + PIECES_MAX)
#define PAGE_BYTES ((size_t)4096) /* or a multiple */
#define FLUSH_BYTES_MAX ((size_t)1 << 20)

typedef struct logging {
    weir_resource *upstream;  /* counted by the resource */
    const char *device;       /* its name, which lives with it */
    bool can_find;            /* upstream can */
    bool can_extend, can_cut; /* likewise */
    int file;                 /* -1: not open */
    bool is_regular;          /* a file with an end that can be cut off */
    time_t zone_seconds;      /* that local time is ahead by */
    bool append;
    size_t flush_bytes;

    weir__mutex lock;         /* a leaf; guards all below, and the order of lines */
    uint64_t lines;
    uint64_t lines_waiting;
    uint64_t lines_lost;
    int last_errno;
    uint64_t end_bytes;       /* of the file, if all that waits were in it */
    size_t waiting_bytes;
    char waiting[];           /* room for flush_bytes, and LINES_AT_ONCE more, of which
                                 one is filled up */
} logging;

/* ---- into the file ---- */

/* Writes what the file takes at once, and lets no signal about it out: those of a file
 * that is too long, and of a pipe that nobody reads. */
static ssize_t write_quietly(int file, const char *bytes, size_t count)
{
    sigset_t quiet, before;
    (void)sigemptyset(&quiet);
    (void)sigaddset(&quiet, SIGXFSZ);
    (void)sigaddset(&quiet, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &quiet, &before);

    ssize_t written;
    do {
        written = write(file, bytes, count);
    } while (written < 0 && errno == EINTR);

    int cause = written > 0 ? 0 : written == 0 ? EIO : errno;
    const struct timespec at_once = { 0, 0 };
    if (cause == EFBIG || cause == EPIPE)
        (void)sigtimedwait(&quiet, NULL, &at_once);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = cause;
    return written;
}

/* The file has taken `done` bytes of those that wait, and no more: counts the lines
 * that are lost, and takes out of the file again what it has of the first. */
static void lose_lines_locked(logging *self, size_t done) WEIR_REQUIRES(&self->lock)
{
    size_t whole = done;
    while (whole > 0 && self->waiting[whole - 1] != '\n')
        whole--;
    for (size_t at = whole; at < self->waiting_bytes; at++)
        self->lines_lost += self->waiting[at] == '\n';
    self->end_bytes -= self->waiting_bytes - whole;
    if (whole == done || !self->is_regular)
        return;
    off_t end = lseek(self->file, 0, SEEK_CUR);
    if (end >= 0 && ftruncate(self->file, end - (off_t)(done - whole)) != 0)
        self->last_errno = errno; /* what reads the log will find the half line */
}

/* Who allocates or gives back has his errno as it was. */
static void write_waiting_locked(logging *self) WEIR_REQUIRES(&self->lock)
{
    WEIR_ASSERT(weir__mutex_is_mine(&self->lock), "the log is written without lock");
    const int errno_before = errno;
    size_t done = 0;
    while (done < self->waiting_bytes) {
        ssize_t written = write_quietly(self->file, self->waiting + done,
                                        self->waiting_bytes - done);
        if (written <= 0) {
            self->last_errno = errno;
            lose_lines_locked(self, done);
            break;
        }
        done += (size_t)written;
    }
    self->waiting_bytes = 0;
    self->lines_waiting = 0;
    errno = errno_before;
}

/* ---- lines ---- */

typedef enum action { ALLOCATE, ALLOCATE_FAILURE, FREE } action;

static const char *const action_words[] = { "allocate", "allocate failure", "free" };

/* Each writes at `to`, and returns where the next one goes on. */

static char *put_text(char *to, const char *text)
{
    while (*text != '\0')
        *to++ = *text++;
    return to;
}

/* With as many digits as it takes, and no fewer than `least`. */
static char *put_number(char *to, uint64_t number, unsigned base, size_t least)
{
    char digits[20];
    size_t count = 0;
    for (; number != 0; number /= base)
        digits[count++] = "0123456789abcdef"[number % base];
    for (size_t i = count; i < least; i++)
        *to++ = '0';
    while (count > 0)
        *to++ = digits[--count];
    return to;
}

static char *put_address(char *to, const void *ptr, const char *null)
{
    if (ptr == NULL)
        return put_text(to, null);
    return put_number(put_text(to, "0x"), (uintptr_t)ptr, 16, 1);
}

static char *put_time(char *to, time_t zone_seconds)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    uint64_t second = (uint64_t)(now.tv_sec + zone_seconds) % (24 * 60 * 60);
    to = put_number(to, second / 3600, 10, 2);
    to = put_number(put_text(to, ":"), second / 60 % 60, 10, 2);
    to = put_number(put_text(to, ":"), second % 60, 10, 2);
    return put_number(put_text(to, "."), (uint64_t)now.tv_nsec / 1000, 10, 6);
}

/* By how much a line that takes `bytes` by itself is filled up: to the end of the page,
 * if another one might not fit there. */
static size_t bytes_to_fill(const logging *self, size_t bytes)
{
    size_t rest = PAGE_BYTES - (size_t)((self->end_bytes + bytes) % PAGE_BYTES);
    return self->is_regular && rest < LINE_BYTES_MAX ? rest : 0;
}

/* Puts the next line behind those that wait. */
static void line_add_locked(logging *self, pid_t thread, action what,
                            weir_stream stream, const void *ptr, size_t bytes,
                            size_t alignment) WEIR_REQUIRES(&self->lock)
{
    char *from = self->waiting + self->waiting_bytes;
    char *to = put_number(from, (uint64_t)thread, 10, 1);
    to = put_time(put_text(to, ","), self->zone_seconds);
    to = put_text(put_text(to, ","), action_words[what]);
    to = put_address(put_text(to, ","), ptr, "(nil)");
    to = put_number(put_text(to, ","), bytes, 10, 1);
    to = put_address(put_text(to, ","), stream, "0");
    to = put_text(put_text(to, ","), self->device);
    to = put_number(put_text(to, ","), alignment, 10, 1);
    char *sequence = put_text(to, ",");
    to = put_number(sequence, ++self->lines, 10, 1);
    size_t length = (size_t)(to - from) + 1;
    WEIR_CHECK(length <= LINE_BYTES_MAX, "a line is too long");
    size_t fill = bytes_to_fill(self, length);
    to = put_number(sequence, self->lines, 10, (size_t)(to - sequence) + fill);
    (void)put_text(to, "\n");
    self->waiting_bytes += length + fill;
    self->end_bytes += length + fill;
    self->lines_waiting++;
}

static void log_line(logging *self, action what, weir_stream stream, const void *ptr,
                     size_t bytes, size_t alignment)
{
    pid_t thread = gettid();
    weir__mutex_lock(&self->lock);
    line_add_locked(self, thread, what, stream, ptr, bytes, alignment);
    /* After a failure the program may not live long. */
    if (self->waiting_bytes >= self->flush_bytes || what == ALLOCATE_FAILURE)
        write_waiting_locked(self);
    weir__mutex_unlock(&self->lock);
}

/* To who reads the log, a block that grew or was cut was freed and is allocated again
 * where it is, piece by piece, of which `ends` tells the ends: no line of another call
 * comes in between. */
static void log_change(logging *self, weir_stream stream, void *ptr, size_t bytes,
                       size_t alignment, const size_t ends[PIECES_MAX])
{
    pid_t thread = gettid();
    weir__mutex_lock(&self->lock);
    line_add_locked(self, thread, FREE, stream, ptr, bytes, alignment);
    for (size_t i = 0, begin = 0; i < PIECES_MAX; begin = ends[i++]) {
        if (ends[i] > begin)
            line_add_locked(self, thread, ALLOCATE, stream, (char *)ptr + begin,
                            ends[i] - begin, alignment);
    }
    if (self->waiting_bytes >= self->flush_bytes)
        write_waiting_locked(self);
    weir__mutex_unlock(&self->lock);
}

/* ---- the resource ---- */

static weir_status logging_allocate(void *context, weir_stream stream, size_t bytes,
                                    size_t alignment, void **out)
{
    logging *self = context;
    weir_status status = weir_allocate(self->upstream, stream, bytes, alignment, out);
    if (status == WEIR_OK)
        log_line(self, ALLOCATE, stream, *out, bytes, alignment);
    else
        log_line(self, ALLOCATE_FAILURE, stream, NULL, bytes, alignment);
    return status;
}

static weir_status logging_extend(void *context, weir_stream stream, void *ptr,
                                  size_t bytes, size_t alignment, size_t new_bytes)
{
    logging *self = context;
    weir_status status = weir_resource_extend(self->upstream, stream, ptr, bytes,
                                              alignment, new_bytes);
    if (status == WEIR_OK)
        log_change(self, stream, ptr, bytes, alignment,
                   (const size_t[PIECES_MAX]){ new_bytes });
    return status;
}

static weir_status logging_cut(void *context, void *ptr, size_t bytes, size_t alignment,
                               size_t wanted_bytes, size_t *from, size_t *to)
{
    logging *self = context;
    weir_status status = weir_resource_cut(self->upstream, ptr, bytes, alignment,
                                           wanted_bytes, from, to);
    if (status == WEIR_OK && *from < *to && *to - *from < bytes)
        log_change(self, WEIR_STREAM_LEGACY, ptr, bytes, alignment,
                   (const size_t[PIECES_MAX]){ *from, *to, bytes });
    return status;
}

/* Once upstream has a block, another thread may be given it, and log that. So the line
 * comes first, and what upstream would refuse has to be known here. */
static void log_free(logging *self, weir_stream stream, void *ptr, size_t bytes,
                     size_t alignment)
{
    weir_block block = { .struct_size = sizeof block };
    if (self->can_find
        && (weir_resource_find(self->upstream, ptr, &block) != WEIR_OK
            || block.bytes != bytes || block.alignment != alignment))
        return;
    log_line(self, FREE, stream, ptr, bytes, alignment);
}

static bool logging_deallocate(void *context, weir_stream stream, void *ptr,
                               size_t bytes, size_t alignment)
{
    logging *self = context;
    log_free(self, stream, ptr, bytes, alignment);
    return weir_deallocate(self->upstream, stream, ptr, bytes, alignment);
}

static bool logging_deallocate_after(void *context, void *ptr, size_t bytes,
                                     size_t alignment, const weir_point *points,
                                     size_t count)
{
    logging *self = context;
    log_free(self, WEIR_STREAM_LEGACY, ptr, bytes, alignment);
    return weir_deallocate_after(self->upstream, ptr, bytes, alignment, points, count);
}

static weir_resource *logging_upstream(void *context)
{
    logging *self = context;
    return self->upstream;
}

static void logging_destroy(void *context)
{
    logging *self = context;
    if (self->file >= 0) {
        weir__mutex_lock(&self->lock);
        write_waiting_locked(self);
        weir__mutex_unlock(&self->lock);
        (void)close(self->file);
    }
    weir__mutex_destroy(&self->lock);
    weir__host_free(self);
}

static const weir_resource_ops logging_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "logging",
    .allocate = logging_allocate,
    .deallocate = logging_deallocate,
    .destroy = logging_destroy,
    .upstream = logging_upstream,
    .deallocate_after = logging_deallocate_after,
    .extend = logging_extend,
    .cut = logging_cut,
};

/* ---- the file ---- */

static weir_status refuse_file(const char *path, const char *what, int cause)
{
    return weir__fail_native(WEIR_FILE_ERROR, cause, "the log %s cannot be %s: %s",
                             path, what, strerror(cause));
}

/* A log can be gone on with if it begins as one and its last line has its end. */
static weir_status file_check(const logging *self, const char *path, off_t bytes)
{
    char text[HEADER_BYTES];
    char last;
    ssize_t got = pread(self->file, text, HEADER_BYTES, 0);
    if (got < 0 || pread(self->file, &last, 1, bytes - 1) < 0)
        return refuse_file(path, "read", errno);
    if ((size_t)got != HEADER_BYTES || memcmp(text, HEADER, HEADER_BYTES) != 0)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "%s is no log to append to: it does not begin with %.*s",
                          path, (int)HEADER_BYTES - 1, HEADER);
    if (last != '\n')
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "%s is no log to append to: its last line has no end", path);
    return WEIR_OK;
}

/* Opens the file and makes sure that nobody else writes to it, and changes nothing
 * there. A file system without locks is taken at its word. */
static weir_status file_open(logging *self, const char *path, bool *goes_on)
{
    int mode = self->append ? O_RDWR : O_WRONLY;
    self->file = open(path, mode | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
    if (self->file < 0)
        return refuse_file(path, "opened", errno);
    struct stat about;
    if (fstat(self->file, &about) != 0)
        return refuse_file(path, "opened", errno);
    self->is_regular = S_ISREG(about.st_mode);
    if (!self->is_regular)
        return WEIR_OK;
    if (flock(self->file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return weir__fail_native(WEIR_FILE_ERROR, EWOULDBLOCK,
                                 "the log %s is being written to by another resource",
                                 path);
    *goes_on = self->append && about.st_size > 0;
    self->end_bytes = *goes_on ? (uint64_t)about.st_size : 0;
    return *goes_on ? file_check(self, path, about.st_size) : WEIR_OK;
}

static weir_status file_begin(logging *self, const char *path)
{
    if (self->is_regular && ftruncate(self->file, 0) != 0)
        return refuse_file(path, "written", errno);
    memcpy(self->waiting, HEADER, HEADER_BYTES);
    self->waiting_bytes = HEADER_BYTES;
    self->end_bytes = HEADER_BYTES;
    weir__mutex_lock(&self->lock);
    write_waiting_locked(self);
    weir__mutex_unlock(&self->lock);
    return self->last_errno == 0 ? WEIR_OK
                                 : refuse_file(path, "written", self->last_errno);
}

/* ---- creation ---- */

static time_t zone_seconds_now(void)
{
    struct tm local;
    time_t now = time(NULL);
    return localtime_r(&now, &local) == NULL ? 0 : local.tm_gmtoff;
}

static weir_status logging_make(weir_resource *upstream,
                                const weir_logging_options *options, logging **out)
{
    weir_device_properties device = { .struct_size = sizeof device };
    weir_resource_properties properties = { .struct_size = sizeof properties };
    weir_status status = weir_resource_get_properties(upstream, &properties);
    if (status == WEIR_OK)
        status = weir_device_get_properties(properties.device, &device);
    if (status != WEIR_OK)
        return status;

    size_t bytes = sizeof(logging) + options->flush_bytes +
                   (LINES_AT_ONCE + 1) * LINE_BYTES_MAX;
    logging *self = weir__host_alloc(bytes);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "no memory for the resource logging");
    *self = (logging){
        .upstream = upstream,
        .device = device.name,
        .can_find = properties.can_find,
        .can_extend = properties.can_extend,
        .can_cut = properties.cut_bytes != 0,
        .file = -1,
        .zone_seconds = zone_seconds_now(),
        .append = options->append,
        .flush_bytes = options->flush_bytes,
    };
    weir__mutex_init(&self->lock, WEIR__RANK_LEAF);
    *out = self;
    return WEIR_OK;
}

static weir_status check_arguments(const weir_resource *upstream, const char *file,
                                   const weir_logging_options *options)
{
    if (upstream == NULL || file == NULL || *file == '\0')
        return weir__fail(WEIR_INVALID_ARGUMENT, "the %s is %s",
                          upstream == NULL ? "upstream" : "name of the log",
                          upstream == NULL || file == NULL ? "null" : "empty");
    if (options->flush_bytes > FLUSH_BYTES_MAX)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "%zu bytes of a log cannot wait: %zu is the most",
                          options->flush_bytes, FLUSH_BYTES_MAX);
    return WEIR_OK;
}

weir_status weir_logging_create(weir_resource *upstream, const char *file,
                                const weir_logging_options *options,
                                weir_resource **out)
{
    weir_logging_options wanted;
    logging *self = NULL;
    bool goes_on = false;
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_status status = weir__enter();
    if (status == WEIR_OK)
        status = weir__read_options(options, &wanted, sizeof wanted,
                                    "the options of logging");
    if (status == WEIR_OK)
        status = check_arguments(upstream, file, &wanted);
    if (status == WEIR_OK)
        status = logging_make(upstream, &wanted, &self);
    if (status != WEIR_OK)
        return status;

    weir_resource_ops ops = logging_ops;
    if (!self->can_extend)
        ops.extend = NULL;
    if (!self->can_cut)
        ops.cut = NULL;
    status = file_open(self, file, &goes_on);
    if (status == WEIR_OK)
        status = weir_resource_create(&ops, self, out);
    if (status != WEIR_OK) {
        logging_destroy(self);
        return status;
    }
    status = goes_on ? WEIR_OK : file_begin(self, file);
    if (status != WEIR_OK) {
        weir_resource_unref(*out);
        *out = NULL;
    }
    return status;
}

/* ---- questions ---- */

/* Null: it was said why. */
static logging *logging_of(weir_resource *mr, weir_status *status)
{
    *status = weir__enter();
    if (*status != WEIR_OK)
        return NULL;
    logging *self = weir__resource_self(mr, &logging_ops);
    if (self == NULL)
        *status = weir__fail(WEIR_INVALID_ARGUMENT, "%s is no logging resource",
                             mr == NULL ? "null" : "this");
    return self;
}

weir_status weir_logging_get_options(weir_resource *mr, weir_logging_options *out)
{
    weir_logging_options found = WEIR_LOGGING_OPTIONS_INIT;
    weir_status status = weir__fill_out(out, &found, sizeof found);
    const logging *self = status == WEIR_OK ? logging_of(mr, &status) : NULL;
    if (self == NULL)
        return status;
    found.append = self->append;
    found.flush_bytes = self->flush_bytes;
    return weir__fill_out(out, &found, sizeof found);
}

weir_status weir_logging_flush(weir_resource *mr)
{
    weir_status status;
    logging *self = logging_of(mr, &status);
    if (self == NULL)
        return status;
    weir__mutex_lock(&self->lock);
    uint64_t lost = self->lines_lost;
    write_waiting_locked(self);
    lost = self->lines_lost - lost;
    int cause = self->last_errno;
    weir__mutex_unlock(&self->lock);
    if (lost == 0)
        return WEIR_OK;
    return weir__fail_native(WEIR_FILE_ERROR, cause,
                             "%" PRIu64 " lines of the log are lost: %s", lost,
                             strerror(cause));
}

weir_status weir_logging_get_state(weir_resource *mr, weir_logging_state *out)
{
    weir_logging_state now = { .struct_size = sizeof now };
    weir_status status = weir__fill_out(out, &now, sizeof now);
    logging *self = status == WEIR_OK ? logging_of(mr, &status) : NULL;
    if (self == NULL)
        return status;
    weir__mutex_lock(&self->lock);
    now.lines = self->lines;
    now.lines_waiting = self->lines_waiting;
    now.lines_lost = self->lines_lost;
    now.last_errno = self->last_errno;
    weir__mutex_unlock(&self->lock);
    return weir__fill_out(out, &now, sizeof now);
}
