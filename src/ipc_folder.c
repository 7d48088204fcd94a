/* ipc_folder.c - see ipc_folder.h.
 *
 * A socket is old if its process has ended, as far as can be seen from here, and nobody
 * takes a connection there any more: another container may share the folder, and have
 * processes of its own with the same numbers. */
#include "ipc_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"
#include "ipc_process.h"

#define MODE 0700

/* So long is its path at most, so that all names in it are paths of sockets. */
#define FOLDER_MAX (WEIR__SOCKET_PATH_BYTES - WEIR__SOCKET_NAME_BYTES - 1)

void weir__folder_name(int32_t pid, uint64_t start_time,
                       char out[WEIR__SOCKET_NAME_BYTES])
{
    snprintf(out, WEIR__SOCKET_NAME_BYTES, "%" PRId32 "-%" PRIu64, pid, start_time);
}

/* ---- opening ---- */

static weir_status check(int folder, const char *path)
{
    struct stat it;
    if (fstat(folder, &it) != 0)
        return weir__fail_native(WEIR_FILE_ERROR, errno, "%s cannot be looked at: %s",
                                 path, strerror(errno));
    if (!weir__uid_is_ours(it.st_uid))
        return weir__fail(WEIR_FILE_ERROR, "%s belongs to user %u, and this is user %u",
                          path, it.st_uid, geteuid());
    if ((it.st_mode & 07777) != MODE)
        return weir__fail(WEIR_FILE_ERROR, "%s has mode %04o, and must have %04o", path,
                          it.st_mode & 07777, (unsigned)MODE);
    return WEIR_OK;
}

weir_status weir__folder_open(const char *path, int *out)
{
    *out = -1;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0 && errno == ENOENT)
        return weir__fail(WEIR_NOT_FOUND, "there is no folder %s", path);
    if (folder < 0)
        return weir__fail_native(WEIR_FILE_ERROR, errno,
                                 "%s cannot be opened as a folder: %s", path,
                                 strerror(errno));
    weir_status status = check(folder, path);
    if (status != WEIR_OK) {
        (void)close(folder);
        return status;
    }
    *out = folder;
    return WEIR_OK;
}

/* ---- finding and making ---- */

/* Writes the path of the user's folder, which leaves room for any name in it. */
static void find_path(char path[WEIR__SOCKET_PATH_BYTES])
{
    static const char in_runtime[] = "/weir";
    const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
    struct stat it;
    if (runtime != NULL && runtime[0] == '/' &&
        strlen(runtime) + strlen(in_runtime) <= FOLDER_MAX &&
        stat(runtime, &it) == 0 && S_ISDIR(it.st_mode) && weir__uid_is_ours(it.st_uid))
        snprintf(path, WEIR__SOCKET_PATH_BYTES, "%s%s", runtime, in_runtime);
    else
        snprintf(path, WEIR__SOCKET_PATH_BYTES, "/tmp/weir-%u", geteuid());
}

weir_status weir__folder_make(char path[WEIR__SOCKET_PATH_BYTES], int *out)
{
    uint64_t start_time;
    char name[WEIR__SOCKET_NAME_BYTES], folder[WEIR__SOCKET_PATH_BYTES];
    *out = -1;
    path[0] = '\0';
    if (!weir__uid_is_ours(geteuid()))
        return weir__fail(WEIR_FILE_ERROR, "this is user %u, whose processes cannot be "
                          "told from others'", geteuid());
    weir_status status = weir__process_find(getpid(), &start_time);
    if (status == WEIR_NOT_FOUND)
        return weir__fail(WEIR_FILE_ERROR, "/proc does not tell of this process");
    if (status != WEIR_OK)
        return status;
    weir__folder_name(getpid(), start_time, name);
    find_path(folder);
    if (mkdir(folder, MODE) != 0 && errno != EEXIST)
        return weir__fail_native(WEIR_FILE_ERROR, errno, "%s cannot be made: %s",
                                 folder, strerror(errno));
    status = weir__folder_open(folder, out);
    if (status == WEIR_NOT_FOUND)
        return weir__fail(WEIR_FILE_ERROR, "%s has been removed again", folder);
    if (status == WEIR_OK)
        snprintf(path, WEIR__SOCKET_PATH_BYTES, "%.*s/%s", FOLDER_MAX, folder, name);
    return status;
}

struct sockaddr_un weir__folder_address(int folder, const char *name)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", folder,
             name);
    return address;
}

/* ---- cleaning ---- */

/* Whether `name` is that of a process's socket. */
static bool read_name(const char *name, int32_t *pid, uint64_t *start_time)
{
    char again[WEIR__SOCKET_NAME_BYTES];
    if (sscanf(name, "%" SCNd32 "-%" SCNu64, pid, start_time) != 2)
        return false;
    weir__folder_name(*pid, *start_time, again);
    return *pid > 0 && strcmp(name, again) == 0;
}

static bool has_ended(int32_t pid, uint64_t start_time)
{
    uint64_t now;
    weir_status status = weir__process_find(pid, &now);
    return pid == getpid() || status == WEIR_NOT_FOUND ||
           (status == WEIR_OK && now != start_time);
}

/* Whether there is a socket where nobody takes a connection. */
static bool is_deserted(int folder, const char *name)
{
    struct stat it;
    if (fstatat(folder, name, &it, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISSOCK(it.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    struct sockaddr_un address = weir__folder_address(folder, name);
    bool is_refused = connect(fd, (struct sockaddr *)&address, sizeof address) != 0 &&
                      errno == ECONNREFUSED;
    (void)close(fd);
    return is_refused;
}

void weir__folder_clean(int folder)
{
    int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = again < 0 ? NULL : fdopendir(again);
    if (names == NULL) {
        if (again >= 0)
            (void)close(again);
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(names)) != NULL) {
        int32_t pid;
        uint64_t start_time;
        if (read_name(entry->d_name, &pid, &start_time) && has_ended(pid, start_time) &&
            is_deserted(folder, entry->d_name))
            (void)unlinkat(folder, entry->d_name, 0);
    }
    (void)closedir(names);
}
