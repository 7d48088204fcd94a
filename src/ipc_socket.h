/* ipc_socket.h - how messages travel: Unix sockets of the kind that keeps messages
 * apart. Who sent one is told by the kernel, with each message, and who is not of this
 * process's own user is refused. All descriptors are closed on exec, and no call here
 * waits longer than it was told to.
 *
 * Whatever comes that is not exactly as it must be is refused, and the descriptors that
 * came with it are closed. After a refusal the caller hangs up. */
#ifndef WEIR_IPC_SOCKET_H
#define WEIR_IPC_SOCKET_H

#include <stdint.h>

#include "ipc_process.h"
#include "ipc_wire.h"
#include "ticket.h"

/* Who is at the other end; `pidfd` is readable once that process has ended. */
typedef struct weir__peer_process {
    int32_t pid;
    int pidfd;
} weir__peer_process;

/* Closes what it holds; once is enough. */
void weir__peer_close(weir__peer_process *peer);

/* A listener, never waited for, at this process's own place in $XDG_RUNTIME_DIR/weir,
 * if that variable names a folder of this user's (absolute, and short enough for a
 * socket), or else in /tmp/weir-UID. One at a time. The folder is made, with mode 0700,
 * and the sockets of processes that have ended are removed there. FILE_ERROR: it is a
 * symbolic link, another user's, or has another mode; or there is no socket. */
weir_status weir__socket_listen(char path[WEIR__SOCKET_PATH_BYTES], int *out);
void weir__socket_unlisten(const char *path, int fd);
/* Whether there is still a socket at `path`: who cleans up may have taken it away, with
 * the folder. */
bool weir__socket_is_there(const char *path);

/* The next who waits at a listener. NOT_FOUND: nobody, just now. FILE_ERROR: it is
 * refused (another user, or one without a number here; it cannot be watched) and hung
 * up on. OUT_OF_HOST_MEMORY: no memory or descriptors to let it in, and it still waits:
 * to be asked again, but not at once. */
weir_status weir__socket_accept(int listener, weir__peer_process *peer, int *out);

/* To the process that answers for `ticket`, which is not detached. PEER_GONE: it has
 * ended, or another is there now, or so many wait there that it cannot be asked.
 * INVALID_ARGUMENT: the ticket's path is no such process's. FILE_ERROR: the folder or
 * the process is another user's; no descriptors. */
weir_status weir__socket_connect(const weir__ticket *ticket, weir__peer_process *peer,
                                 int *out);

/* Waits while there is no room, for `timeout_ms` at most. The message's descriptors
 * stay the caller's. PEER_GONE: hung up, or no room within that time. FILE_ERROR: one
 * of them is none, or too many are on their way. */
weir_status weir__socket_send(int fd, const weir__message *message,
                              uint32_t timeout_ms);

/* Waits for `timeout_ms` at most, or not at all. On success the descriptors in *out are
 * the caller's; else it has none. NOT_FOUND: nothing within that time. PEER_GONE: hung
 * up, and what was sent before has been read. INVALID_ARGUMENT: no message of ours, or
 * not with its descriptors. FILE_ERROR: `peer` has not sent it, or not as this user; or
 * its descriptors found no room here. */
weir_status weir__socket_receive(int fd, const weir__peer_process *peer,
                                 uint32_t timeout_ms, weir__message *out);

#endif
