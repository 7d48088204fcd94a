/* support_socket.h - what tests of tickets' sockets share: a folder of their own for
 * them, both ends of a connection in one process, and messages that no library of ours
 * would send. */
#ifndef WEIR_TESTS_SUPPORT_SOCKET_H
#define WEIR_TESTS_SUPPORT_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

#include "ipc_socket.h"

/* Long after what is waited for has come; and long enough for what never comes. */
#define SOON_MS  20000u
#define NEVER_MS 20u

/* cmocka's, for a whole group: makes a folder that XDG_RUNTIME_DIR names from now on,
 * in children too; and claims that nothing is left in it. */
int socket_folder_make(void **state);
int socket_folder_remove(void **state);
/* The folder itself, and the one in it that the sockets lie in. */
const char *socket_folder(void);
const char *socket_folder_inside(void);

/* How many descriptors this process has; needs none, nor a file. */
size_t count_fds(void);
/* Closes it, which must be open, and forgets it. */
void end_fd(int *fd);
/* One to be sent: of any file, of the caller's. */
int any_fd(void);

/* A ticket of this process's, whose socket has that path; and of another's. */
weir__ticket ticket_of_self(const char *path);
weir__ticket ticket_of(int32_t pid, const char *path);

/* Both ends of a connection, each a process that is this one. */
typedef struct connection {
    char path[WEIR__SOCKET_PATH_BYTES];
    int listener, exporter, importer;
    weir__peer_process exporters_peer, importers_peer;
    size_t fds; /* before there was any of this */
} connection;

connection connect_both(void);
/* Closes what is still open, and claims that as many descriptors are left as before. */
void hang_up(connection *it);

/* Messages that are right. */
weir__message open_message(const connection *it);
weir__message over_message(void);
weir__message close_message(void);
weir__message answer_message(int memory_fd, int event_fd); /* -1: none */

/* What can be wrong with one. */
typedef struct raw_message {
    weir__message message;
    size_t length;           /* of its octets; more than it has are zero */
    const int *fds;
    size_t fd_count;
    bool is_spread;          /* each descriptor in a control message of its own */
    bool is_forged;          /* with these credentials, else the system's */
    pid_t pid;
    uid_t uid;
} raw_message;

/* One that is sent as it should be, but without descriptors. */
raw_message raw_message_of(const weir__message *message);
/* False: the system refuses to send it. */
bool send_raw(int fd, const raw_message *raw);

/* Any octets, and descriptors with them. */
bool send_octets(int fd, const uint8_t *octets, size_t length, const int *fds,
                 size_t fd_count);

#endif
