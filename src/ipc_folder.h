/* ipc_folder.h - where the sockets lie that importers connect to: in one folder of the
 * user's own, which nobody else can enter, a file for each process, PID-STARTTIME. */
#ifndef WEIR_IPC_FOLDER_H
#define WEIR_IPC_FOLDER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "ticket.h"
#include "weir/status.h"

/* As long as the name of a socket can be, with the null. */
#define WEIR__SOCKET_NAME_BYTES 32

/* The name of such a process's socket. */
void weir__folder_name(int32_t pid, uint64_t start_time,
                       char out[WEIR__SOCKET_NAME_BYTES]);

/* Finds the folder, makes it if there is none, and opens it. `path` is then that of
 * this process's own socket, which is not made. FILE_ERROR: it cannot be, or is not
 * such a folder as weir__folder_open wants. */
weir_status weir__folder_make(char path[WEIR__SOCKET_PATH_BYTES], int *out);

/* Opens the folder of a socket, which must be no symbolic link but a real one, of this
 * user's, and with mode 0700: else FILE_ERROR. NOT_FOUND: there is none. */
weir_status weir__folder_open(const char *path, int *out);

/* The address of what is called `name` in an open folder, whatever has happened to the
 * folder's own name. */
struct sockaddr_un weir__folder_address(int folder, const char *name);

/* Removes the sockets of processes that have ended, and an old one of this process's
 * own. What fails here is left for the next time. */
void weir__folder_clean(int folder);

#endif
