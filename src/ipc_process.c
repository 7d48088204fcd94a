/* ipc_process.c - see ipc_process.h. */
#include "ipc_process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

bool weir__uid_is_ours(uid_t uid)
{
    return uid == geteuid() && uid != WEIR__UID_NOBODY;
}

/* ---- when it began ---- */

/* Reads what there is, up to `room` octets; below 0: errno says why not. */
static ssize_t read_some(const char *path, char *text, size_t room)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t count;
    do {
        count = read(file, text, room);
    } while (count < 0 && errno == EINTR);
    int cause = errno;
    (void)close(file);
    errno = cause;
    return count;
}

/* Field 22 of the line that `text` begins with; 0: it says that the process has ended,
 * or nothing. Its name, field 2, stands in brackets and may have any in it. Where the
 * first thread alone has ended, field 20 counts the others. */
static uint64_t start_time_in(const char *text)
{
    unsigned long long threads = 0;
    const char *at = strrchr(text, ')');
    if (at == NULL || at[1] != ' ')
        return 0;
    bool has_ended = strchr("ZXx", at[2]) != NULL;
    for (int field = 2; field < 22; field++) {
        at = strchr(at + 1, ' ');
        if (at == NULL)
            return 0;
        if (field + 1 == 20)
            threads = strtoull(at + 1, NULL, 10);
    }
    return has_ended && threads <= 1 ? 0 : strtoull(at + 1, NULL, 10);
}

weir_status weir__process_find(int32_t pid, uint64_t *out)
{
    char path[32], text[512];
    *out = 0;
    snprintf(path, sizeof path, "/proc/%" PRId32 "/stat", pid);
    ssize_t length = read_some(path, text, sizeof text - 1);
    if (length < 0 && errno != ENOENT && errno != ESRCH)
        return weir__fail_native(WEIR_FILE_ERROR, errno, "%s cannot be read: %s", path,
                                 strerror(errno));
    text[length < 0 ? 0 : length] = '\0';
    *out = start_time_in(text);
    return *out != 0 ? WEIR_OK
                     : weir__fail(WEIR_NOT_FOUND, "there is no process %" PRId32, pid);
}

uint64_t weir__process_start_time(int32_t pid)
{
    uint64_t start_time;
    return weir__process_find(pid, &start_time) == WEIR_OK ? start_time : 0;
}

/* ---- until it ends ---- */

weir_status weir__process_watch(int32_t pid, int *out)
{
    *out = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (*out >= 0)
        return WEIR_OK;
    int cause = errno;
    *out = -1;
    if (cause == ESRCH)
        return weir__fail(WEIR_PEER_GONE, "process %" PRId32 " has ended", pid);
    return weir__fail_native(WEIR_FILE_ERROR, cause,
                             "the end of process %" PRId32 " cannot be watched "
                             "(pidfd_open): %s", pid, strerror(cause));
}
