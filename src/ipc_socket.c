/* ipc_socket.c - see ipc_socket.h. */
#include "ipc_socket.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"
#include "ipc_folder.h"

static weir_status fail_because(int cause, const char *what)
{
    return weir__fail_native(WEIR_FILE_ERROR, cause, "%s: %s", what, strerror(cause));
}

/* ---- the other end ---- */

void weir__peer_close(weir__peer_process *peer)
{
    if (peer->pidfd >= 0)
        (void)close(peer->pidfd);
    *peer = (weir__peer_process){ .pidfd = -1 };
}

static weir_status check_user(const char *what, uid_t uid)
{
    if (weir__uid_is_ours(uid))
        return WEIR_OK;
    if (uid == WEIR__UID_NOBODY)
        return weir__fail(WEIR_FILE_ERROR, "%s of user %u, who can be anybody", what,
                          uid);
    return weir__fail(WEIR_FILE_ERROR, "%s of user %u, and this is user %u", what, uid,
                      geteuid());
}

/* Who was there when the two were connected. Where that process has ended, its number
 * can be another's by now; but then the connection has ended too. */
static weir_status find_peer(int fd, weir__peer_process *out)
{
    struct ucred who;
    socklen_t length = sizeof who;
    *out = (weir__peer_process){ .pidfd = -1 };
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0)
        return fail_because(errno, "a connection does not tell whose it is");
    weir_status status = check_user("a process", who.uid);
    if (status != WEIR_OK)
        return status;
    if (who.pid <= 0)
        return weir__fail(WEIR_FILE_ERROR,
                          "a process that has no number here: it is in another "
                          "namespace of processes");
    status = weir__process_watch(who.pid, &out->pidfd);
    if (status != WEIR_OK)
        return status;
    out->pid = who.pid;

    struct pollfd end = { .fd = fd };
    if (poll(&end, 1, 0) < 0)
        status = fail_because(errno, "a connection cannot be waited for");
    else if ((end.revents & POLLHUP) != 0)
        status = weir__fail(WEIR_PEER_GONE, "process %" PRId32 " has hung up", who.pid);
    if (status != WEIR_OK)
        weir__peer_close(out);
    return status;
}

/* Both ends ask for each sender's name, before there is anything to read. */
static weir_status ask_for_names(int fd)
{
    const int yes = 1;
    return setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) == 0
               ? WEIR_OK
               : fail_because(errno, "a socket does not tell who sends");
}

static weir_status open_socket(int *out)
{
    *out = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*out < 0)
        return fail_because(errno, "no socket");
    weir_status status = ask_for_names(*out);
    if (status != WEIR_OK) {
        (void)close(*out);
        *out = -1;
    }
    return status;
}

/* ---- listening ---- */

static weir_status listen_at(int folder, const char *name, int fd)
{
    struct sockaddr_un address = weir__folder_address(folder, name);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0)
        return fail_because(errno, "the socket finds no place in its folder");
    if (listen(fd, SOMAXCONN) == 0)
        return WEIR_OK;
    weir_status status = fail_because(errno, "nobody can connect to the socket");
    (void)unlink(address.sun_path);
    return status;
}

weir_status weir__socket_listen(char path[WEIR__SOCKET_PATH_BYTES], int *out)
{
    int folder, fd;
    *out = -1;
    weir_status status = weir__folder_make(path, &folder);
    if (status != WEIR_OK)
        return status;
    weir__folder_clean(folder);
    status = open_socket(&fd);
    if (status == WEIR_OK) {
        status = listen_at(folder, strrchr(path, '/') + 1, fd);
        if (status == WEIR_OK)
            *out = fd;
        else
            (void)close(fd);
    }
    (void)close(folder);
    if (status != WEIR_OK)
        path[0] = '\0';
    return status;
}

void weir__socket_unlisten(const char *path, int fd)
{
    (void)unlink(path);
    (void)close(fd);
}

bool weir__socket_is_there(const char *path)
{
    struct stat it;
    return lstat(path, &it) == 0 && S_ISSOCK(it.st_mode);
}

static weir_status accept_one(int listener, int *out)
{
    do {
        *out = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    } while (*out < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (*out >= 0)
        return WEIR_OK;
    switch (errno) {
    case EAGAIN:
        return weir__fail(WEIR_NOT_FOUND, "nobody waits to be connected");
    case EMFILE: case ENFILE: case ENOMEM: case ENOBUFS:
        return weir__fail_native(WEIR_OUT_OF_HOST_MEMORY, errno,
                                 "a process cannot be connected yet: %s",
                                 strerror(errno));
    default:
        return fail_because(errno, "nobody can be connected");
    }
}

weir_status weir__socket_accept(int listener, weir__peer_process *peer, int *out)
{
    *out = -1;
    for (;;) {
        int fd;
        *peer = (weir__peer_process){ .pidfd = -1 };
        weir_status status = accept_one(listener, &fd);
        if (status != WEIR_OK)
            return status;
        status = ask_for_names(fd);
        if (status == WEIR_OK)
            status = find_peer(fd, peer);
        if (status == WEIR_OK) {
            *out = fd;
            return WEIR_OK;
        }
        (void)close(fd);
        if (status != WEIR_PEER_GONE) /* who has gone meanwhile was never there */
            return status;
    }
}

/* ---- connecting ---- */

/* Opens the folder that the ticket's socket lies in, and finds its name there. */
static weir_status open_folder_of(const weir__ticket *ticket, const char **name,
                                  int *out)
{
    char folder[WEIR__SOCKET_PATH_BYTES], wanted[WEIR__SOCKET_NAME_BYTES];
    *out = -1;
    *name = strrchr(ticket->socket, '/') + 1;
    weir__folder_name(ticket->pid, ticket->start_time, wanted);
    if (strcmp(*name, wanted) != 0)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is not the socket of process %"
                          PRId32, ticket->socket, ticket->pid);
    snprintf(folder, sizeof folder, "%.*s", (int)(*name - ticket->socket),
             ticket->socket);
    for (size_t end = strlen(folder); end > 1 && folder[end - 1] == '/'; end--)
        folder[end - 1] = '\0'; /* with one at its end a symbolic link is followed */
    weir_status status = weir__folder_open(folder, out);
    if (status == WEIR_NOT_FOUND)
        return weir__fail(WEIR_PEER_GONE, "no process answers in %s: no such folder",
                          folder);
    return status;
}

static weir_status connect_to(int folder, const char *name, int fd)
{
    struct sockaddr_un address = weir__folder_address(folder, name);
    int result;
    do {
        result = connect(fd, (struct sockaddr *)&address, sizeof address);
    } while (result != 0 && errno == EINTR);
    if (result == 0)
        return WEIR_OK;
    if (errno == ENOENT || errno == ECONNREFUSED)
        return weir__fail(WEIR_PEER_GONE, "no process answers at %s", name);
    if (errno == EAGAIN)
        return weir__fail(WEIR_PEER_GONE, "too many wait at %s already", name);
    return fail_because(errno, "the exporter's socket cannot be connected");
}

/* That the one at the other end is the ticket's. It began before it was watched, so
 * that a later one with the same number would have another time. */
static weir_status check_exporter(const weir__ticket *ticket, int32_t pid)
{
    uint64_t start_time;
    if (pid != ticket->pid)
        return weir__fail(WEIR_PEER_GONE, "process %" PRId32 " answers for a ticket "
                          "of process %" PRId32, pid, ticket->pid);
    weir_status status = weir__process_find(pid, &start_time);
    if (status == WEIR_NOT_FOUND)
        return weir__fail(WEIR_PEER_GONE, "process %" PRId32 " has ended", pid);
    if (status == WEIR_OK && start_time != ticket->start_time)
        return weir__fail(WEIR_PEER_GONE, "process %" PRId32 " is another by now, and "
                          "knows nothing of the ticket", pid);
    return status;
}

weir_status weir__socket_connect(const weir__ticket *ticket, weir__peer_process *peer,
                                 int *out)
{
    const char *name;
    int folder, fd;
    WEIR_CHECK(!ticket->is_detached, "a process answers for the ticket");
    *out = -1;
    *peer = (weir__peer_process){ .pidfd = -1 };
    weir_status status = open_folder_of(ticket, &name, &folder);
    if (status != WEIR_OK)
        return status;
    status = open_socket(&fd);
    if (status == WEIR_OK) {
        status = connect_to(folder, name, fd);
        if (status == WEIR_OK)
            status = find_peer(fd, peer);
        if (status == WEIR_OK)
            status = check_exporter(ticket, peer->pid);
        if (status == WEIR_OK)
            *out = fd;
        else
            (void)close(fd);
    }
    if (status != WEIR_OK)
        weir__peer_close(peer);
    (void)close(folder);
    return status;
}
