/* ipc_process.h - which processes memory is shared with: those of this one's own user.
 *
 * A process is named by its number and when it began, for numbers are used again; and
 * once somebody is connected it is held by a descriptor that is readable when it has
 * ended. */
#ifndef WEIR_IPC_PROCESS_H
#define WEIR_IPC_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "weir/status.h"

/* The number by which this user namespace calls all users that it has no number for. */
#define WEIR__UID_NOBODY 65534u

/* Whether `uid` is this process's own, and says who that is. */
bool weir__uid_is_ours(uid_t uid);

/* When process `pid` began, in ticks since the machine did; never 0. NOT_FOUND: there
 * is no such process, or it has ended and nobody has looked after it yet. FILE_ERROR:
 * the system does not tell. */
weir_status weir__process_find(int32_t pid, uint64_t *out);
/* The same; 0 is both of these. */
uint64_t weir__process_start_time(int32_t pid);

/* A descriptor for `pid`, closed on exec, that is readable once that process has ended.
 * PEER_GONE: it has ended. FILE_ERROR: there are no such descriptors here. */
weir_status weir__process_watch(int32_t pid, int *out);

#endif
