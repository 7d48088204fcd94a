/* support_socket.c - see support_socket.h. */
#include "support_socket.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support.h"

/* ---- the folder ---- */

static char folder[] = "/tmp/weir_socket_XXXXXX";
static char inside[sizeof folder + 8];

int socket_folder_make(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL || setenv("XDG_RUNTIME_DIR", folder, 1) != 0)
        return -1;
    snprintf(inside, sizeof inside, "%s/weir", folder);
    return mkdir(inside, 0700);
}

int socket_folder_remove(void **state)
{
    (void)state;
    return rmdir(inside) != 0 || rmdir(folder) != 0;
}

const char *socket_folder(void)
{
    return folder;
}

const char *socket_folder_inside(void)
{
    return inside;
}

/* ---- descriptors ---- */

/* More than any test has. */
#define FDS_MAX 1024

size_t count_fds(void)
{
    size_t count = 0;
    for (int fd = 0; fd < FDS_MAX; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

void end_fd(int *fd)
{
    must(close(*fd) == 0);
    *fd = -1;
}

int any_fd(void)
{
    int fd = memfd_create("weir-test", MFD_CLOEXEC);
    must(fd >= 0);
    return fd;
}

/* ---- connections ---- */

weir__ticket ticket_of(int32_t pid, const char *path)
{
    weir__ticket it = {
        .kind = WEIR_SHARE_FD, .access = WEIR_READ, .base_bytes = 4096, .bytes = 4096,
        .pid = pid, .start_time = weir__process_start_time(pid)
    };
    must(it.start_time != 0);
    snprintf(it.socket, sizeof it.socket, "%s", path);
    return it;
}

weir__ticket ticket_of_self(const char *path)
{
    return ticket_of(getpid(), path);
}

connection connect_both(void)
{
    connection it = { .fds = count_fds() };
    must_ok(weir__socket_listen(it.path, &it.listener));
    weir__ticket ticket = ticket_of_self(it.path);
    must_ok(weir__socket_connect(&ticket, &it.importers_peer, &it.importer));
    must_ok(weir__socket_accept(it.listener, &it.exporters_peer, &it.exporter));
    must_equal(it.importers_peer.pid, getpid());
    must_equal(it.exporters_peer.pid, getpid());
    return it;
}

void hang_up(connection *it)
{
    if (it->importer >= 0)
        end_fd(&it->importer);
    if (it->exporter >= 0)
        end_fd(&it->exporter);
    weir__peer_close(&it->importers_peer);
    weir__peer_close(&it->exporters_peer);
    weir__socket_unlisten(it->path, it->listener);
    must(access(it->path, F_OK) != 0);
    must_equal(count_fds(), it->fds);
}

/* ---- messages ---- */

static weir__message message_of(weir__message_kind kind)
{
    weir__message message;
    weir__message_clear(&message);
    message.kind = kind;
    return message;
}

weir__message open_message(const connection *it)
{
    weir__ticket ticket = ticket_of_self(it->path);
    weir__message message = message_of(WEIR__MESSAGE_OPEN);
    message.access = WEIR_READ;
    weir__ticket_write(&ticket, &message.ticket);
    return message;
}

weir__message over_message(void)
{
    return message_of(WEIR__MESSAGE_OVER);
}

weir__message close_message(void)
{
    return message_of(WEIR__MESSAGE_CLOSE);
}

weir__message answer_message(int memory_fd, int event_fd)
{
    weir__message message = message_of(WEIR__MESSAGE_ANSWER);
    message.has_memory = memory_fd >= 0;
    message.memory.kind = WEIR_SHARE_FD;
    message.memory.bytes = 4096;
    message.memory.fd = memory_fd;
    message.has_event = message.event_has_fd = event_fd >= 0;
    message.event.fd = event_fd;
    memset(message.event.octets, 7, sizeof message.event.octets);
    return message;
}

raw_message raw_message_of(const weir__message *message)
{
    return (raw_message){ .message = *message, .length = WEIR__MESSAGE_BYTES };
}

/* Appends one control message, and returns how long all are. */
static size_t add_control(char *room, size_t at, int type, const void *data,
                          size_t bytes)
{
    struct cmsghdr header = { .cmsg_len = CMSG_LEN(bytes), .cmsg_level = SOL_SOCKET,
                              .cmsg_type = type };
    memcpy(room + at, &header, sizeof header);
    memcpy(room + at + CMSG_LEN(0), data, bytes);
    return at + CMSG_SPACE(bytes);
}

/* Octets, and what goes with them. */
static bool send_all(int fd, const uint8_t *octets, size_t length, char *room,
                     size_t room_length)
{
    struct iovec piece = { (void *)(uintptr_t)octets, length };
    struct msghdr all = { .msg_iov = &piece, .msg_iovlen = 1 };
    if (room_length > 0) {
        all.msg_control = room;
        all.msg_controllen = room_length;
    }
    return sendmsg(fd, &all, MSG_NOSIGNAL) == (ssize_t)length;
}

/* More than the system takes. */
static _Alignas(struct cmsghdr) char control[8192];

bool send_octets(int fd, const uint8_t *octets, size_t length, const int *fds,
                 size_t fd_count)
{
    memset(control, 0, sizeof control);
    size_t end = fd_count == 0 ? 0 : add_control(control, 0, SCM_RIGHTS, fds,
                                                 fd_count * sizeof *fds);
    return send_all(fd, octets, length, control, end);
}

bool send_raw(int fd, const raw_message *raw)
{
    static uint8_t octets[4 * WEIR__MESSAGE_BYTES];
    memset(octets, 0, sizeof octets);
    memset(control, 0, sizeof control);
    weir__message_write(&raw->message, octets);
    size_t end = 0;
    if (raw->is_forged) {
        struct ucred who = { .pid = raw->pid, .uid = raw->uid, .gid = getegid() };
        end = add_control(control, end, SCM_CREDENTIALS, &who, sizeof who);
    }
    size_t step = raw->is_spread ? 1 : raw->fd_count;
    for (size_t i = 0; i < raw->fd_count; i += step)
        end = add_control(control, end, SCM_RIGHTS, raw->fds + i,
                          step * sizeof *raw->fds);
    must(raw->length <= sizeof octets && end <= sizeof control);
    return send_all(fd, octets, raw->length, control, end);
}
