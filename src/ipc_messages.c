/* ipc_messages.c - messages on a connected socket; see ipc_socket.h. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"
#include "ipc_socket.h"

/* So many descriptors more than any message has are taken in, and closed, before the
 * kernel is left to drop the rest. */
#define SURPLUS_FDS 6

static weir_status fail_because(int cause, const char *what)
{
    return weir__fail_native(WEIR_FILE_ERROR, cause, "%s: %s", what, strerror(cause));
}

/* ---- waiting ---- */

#define NS_OF_A_MS 1000000

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 * NS_OF_A_MS + now.tv_nsec;
}

static int64_t deadline_after(uint32_t timeout_ms)
{
    return now_ns() + (int64_t)timeout_ms * NS_OF_A_MS;
}

/* Until `events`, or a hang-up. NOT_FOUND: the deadline has passed. */
static weir_status wait_until(int fd, short events, int64_t deadline)
{
    for (;;) {
        int64_t left_ns = deadline - now_ns();
        if (left_ns <= 0)
            return weir__fail(WEIR_NOT_FOUND, "nothing has happened in time");
        int64_t left_ms = (left_ns + NS_OF_A_MS - 1) / NS_OF_A_MS;
        struct pollfd it = { .fd = fd, .events = events };
        int count = poll(&it, 1, left_ms > INT_MAX ? INT_MAX : (int)left_ms);
        if (count > 0)
            return WEIR_OK;
        if (count < 0 && errno != EINTR)
            return fail_because(errno, "a connection cannot be waited for");
    }
}

static bool is_hung_up(int cause)
{
    return cause == EPIPE || cause == ECONNRESET || cause == ENOTCONN ||
           cause == ECONNREFUSED;
}

/* ---- sending ---- */

/* Room for what else than octets goes with a message. */
typedef union control {
    struct cmsghdr align;
    char octets[CMSG_SPACE(sizeof(struct ucred)) +
                CMSG_SPACE((WEIR__MESSAGE_FDS + SURPLUS_FDS) * sizeof(int))];
} control;

static void attach_fds(struct msghdr *to, control *room, const int *fds, uint32_t count)
{
    memset(room, 0, sizeof *room);
    to->msg_control = room->octets;
    to->msg_controllen = CMSG_SPACE(count * sizeof *fds);
    struct cmsghdr *header = CMSG_FIRSTHDR(to);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof *fds);
    memcpy(CMSG_DATA(header), fds, count * sizeof *fds);
}

weir_status weir__socket_send(int fd, const weir__message *message, uint32_t timeout_ms)
{
    uint8_t octets[WEIR__MESSAGE_BYTES];
    int fds[WEIR__MESSAGE_FDS];
    control room;
    weir__message_write(message, octets);
    struct iovec piece = { octets, sizeof octets };
    struct msghdr all = { .msg_iov = &piece, .msg_iovlen = 1 };
    uint32_t count = weir__message_fds(message, fds);
    if (count > 0)
        attach_fds(&all, &room, fds, count);

    int64_t deadline = deadline_after(timeout_ms);
    while (sendmsg(fd, &all, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        int cause = errno;
        if (is_hung_up(cause))
            return weir__fail(WEIR_PEER_GONE, "the other process has hung up");
        if (cause != EAGAIN && cause != EINTR)
            return fail_because(cause, "a message cannot be sent");
        weir_status status = cause == EINTR ? WEIR_OK
                                            : wait_until(fd, POLLOUT, deadline);
        if (status == WEIR_NOT_FOUND)
            return weir__fail(WEIR_PEER_GONE, "the other process has read nothing for "
                              "%" PRIu32 " ms", timeout_ms);
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}

/* ---- receiving ---- */

/* What came, but for the octets. */
typedef struct arrival {
    bool is_signed;
    struct ucred sender;
    uint32_t fd_count;
    int fds[sizeof(control) / sizeof(int)];
} arrival;

/* All descriptors that the kernel has put into this process are found, however they are
 * spread. */
static void unpack(struct msghdr *from, arrival *out)
{
    *out = (arrival){ .fd_count = 0 };
    for (struct cmsghdr *header = CMSG_FIRSTHDR(from); header != NULL;
         header = CMSG_NXTHDR(from, header)) {
        size_t bytes = header->cmsg_len - CMSG_LEN(0);
        if (header->cmsg_level != SOL_SOCKET)
            continue;
        if (header->cmsg_type == SCM_RIGHTS) {
            memcpy(out->fds + out->fd_count, CMSG_DATA(header), bytes);
            out->fd_count += (uint32_t)(bytes / sizeof(int));
        } else if (header->cmsg_type == SCM_CREDENTIALS &&
                   bytes == sizeof out->sender) {
            memcpy(&out->sender, CMSG_DATA(header), bytes);
            out->is_signed = true;
        }
    }
}

static void close_all(const arrival *from)
{
    for (uint32_t i = 0; i < from->fd_count; i++)
        (void)close(from->fds[i]);
}

static weir_status check_sender(const arrival *from, const weir__peer_process *peer)
{
    if (!from->is_signed)
        return weir__fail(WEIR_FILE_ERROR, "a message that nobody has signed");
    if (!weir__uid_is_ours(from->sender.uid))
        return weir__fail(WEIR_FILE_ERROR,
                          "a message of user %u, and this is user %u",
                          from->sender.uid, geteuid());
    if (from->sender.pid != peer->pid)
        return weir__fail(WEIR_FILE_ERROR, "a message of process %" PRId32 ", where "
                          "process %" PRId32 " has connected",
                          (int32_t)from->sender.pid, peer->pid);
    return WEIR_OK;
}

/* What was cut off is more than any message has; or this process may have no more
 * descriptors, and lacks some that the message should have. */
static weir_status check_cut(const arrival *from, int flags)
{
    if ((flags & MSG_TRUNC) != 0)
        return weir__fail(WEIR_INVALID_ARGUMENT, "a message of more than %d octets",
                          WEIR__MESSAGE_BYTES);
    if ((flags & MSG_CTRUNC) != 0 && from->fd_count <= WEIR__MESSAGE_FDS)
        return weir__fail(WEIR_FILE_ERROR, "of a message's file descriptors only %"
                          PRIu32 " found room in this process", from->fd_count);
    return WEIR_OK;
}

static weir_status read_arrival(const uint8_t *octets, size_t length, int flags,
                                const arrival *from, const weir__peer_process *peer,
                                weir__message *out)
{
    weir_status status = check_sender(from, peer);
    if (status == WEIR_OK)
        status = check_cut(from, flags);
    if (status == WEIR_OK)
        status = weir__message_read(octets, length, from->fds, from->fd_count, out);
    if (status != WEIR_OK)
        close_all(from);
    return status;
}

/* The octets of the next message and what came with it. */
static weir_status take_message(int fd, uint32_t timeout_ms, struct msghdr *all,
                                size_t *length)
{
    const struct msghdr empty = *all;
    int64_t deadline = deadline_after(timeout_ms);
    bool was_reset = false;
    for (;;) {
        *all = empty;
        ssize_t count = recvmsg(fd, all, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        int cause = errno;
        *length = count < 0 ? 0 : (size_t)count;
        if (count > 0 || (count == 0 && all->msg_controllen > 0))
            return WEIR_OK;
        /* Who hangs up without having read all resets the connection; what it has sent
         * can still be read. */
        bool is_new_reset = count < 0 && cause == ECONNRESET && !was_reset;
        was_reset |= is_new_reset;
        if (count == 0 || (is_hung_up(cause) && !is_new_reset))
            return weir__fail(WEIR_PEER_GONE, "the other process has hung up");
        if (is_new_reset || cause == EINTR)
            continue;
        if (cause != EAGAIN)
            return fail_because(cause, "a message cannot be received");
        weir_status status = wait_until(fd, POLLIN, deadline);
        if (status != WEIR_OK)
            return status;
    }
}

weir_status weir__socket_receive(int fd, const weir__peer_process *peer,
                                 uint32_t timeout_ms, weir__message *out)
{
    uint8_t octets[WEIR__MESSAGE_BYTES];
    control room;
    arrival came;
    size_t length;
    struct iovec piece = { octets, sizeof octets };
    struct msghdr all = { .msg_iov = &piece, .msg_iovlen = 1,
                          .msg_control = room.octets,
                          .msg_controllen = sizeof room.octets };
    weir__message_clear(out);
    weir_status status = take_message(fd, timeout_ms, &all, &length);
    if (status != WEIR_OK)
        return status;
    unpack(&all, &came);
    return read_arrival(octets, length, all.msg_flags, &came, peer, out);
}
