/* support_remote.h - another process with a device of its own, which does what a test
 * asks of it: opens tickets, works on what it opened, exports.
 *
 * It opens the device that checklist_open would (see support_checklist.h), and at its
 * end claims what checklist_close does. The test numbers its buffers, from 0. */
#ifndef WEIR_TESTS_SUPPORT_REMOTE_H
#define WEIR_TESTS_SUPPORT_REMOTE_H

#include "support_checklist.h"
#include "support_process.h"
#include "weir/ipc.h"

#define REMOTE_BUFFERS 8

/* For a program's main: makes a folder for the sockets of the program alone, runs what
 * this process was begun for, if that is to be asked, else `tests`. */
int remote_main(int argc, char **argv, int (*tests)(void));

/* Waits until no other process has anything of this one's open. */
void ipc_settle(void);

/* A stage with a resource that can be exported, and buffers of it. */
typedef struct ipc_stage {
    checklist_stage at;
    weir_resource *mr; /* shareable */
} ipc_stage;
ipc_stage ipc_begin(void);
void ipc_end(ipc_stage *stage);
/* A buffer with the pattern of `key`, on stream a. */
weir_buffer ipc_make(ipc_stage *stage, size_t bytes, uint64_t key);
weir_ticket ipc_export(weir_buffer *buffer, weir_access access);

typedef struct remote {
    support_process process;
} remote;

remote remote_begin(void);
/* Without a ledger's claims at its end: for what is wrong on purpose. */
remote remote_begin_careless(void);
/* As another user. */
remote remote_begin_as(uid_t user);
/* Claims that all of its buffers are closed, and all that its device claims. */
void remote_end(remote *it);
void remote_kill(remote *it);
/* Another process opens and closes it: so the one that made it, whose answers that
 * took, has read whatever it was sent before. */
void remote_pass(const weir_ticket *ticket);

/* On stream number 0 or 1 of its own, as what follows is. */
weir_status remote_open(remote *it, int buffer, const weir_ticket *ticket,
                        weir_access access);
weir_status remote_open_on(remote *it, int stream, int buffer,
                           const weir_ticket *ticket, weir_access access);
/* The same as a question, and what was answered to it later. */
void remote_ask_to_open(remote *it, int buffer, const weir_ticket *ticket,
                        weir_access access);
weir_status remote_answered(remote *it);
weir_status remote_close(remote *it, int buffer);
void remote_reset(remote *it, int buffer);
void remote_slice(remote *it, int from, size_t offset, size_t bytes, int buffer);
weir_status remote_check(remote *it, int buffer);

/* Patterns, by kernels on stream 0 (or `stream`). remote_errors waits for its kernel,
 * and says how many errors there were. */
void remote_stamp(remote *it, int buffer, uint64_t key);
void remote_stamp_on(remote *it, int stream, int buffer, uint64_t key);
uint64_t remote_errors(remote *it, int buffer, uint64_t key);
/* The same without waiting, and what errors and findings there are in all. */
void remote_look(remote *it, int buffer, uint64_t key);
uint64_t remote_all_errors(remote *it);
uint64_t remote_findings(remote *it);

/* Its stream 0 is held, or goes on; whether all on it is done. */
void remote_hold(remote *it);
void remote_let_go(remote *it);
bool remote_is_done(remote *it);
void remote_sync(remote *it);
void remote_sync_on(remote *it, int stream);

/* Allocates `bytes` of `shareable` as that buffer, stamped, and exports it. */
void remote_make(remote *it, int buffer, size_t bytes, uint64_t key);
/* The same of a driver's pool, all of which is then shared by remote_export. */
void remote_make_pooled(remote *it, int buffer, size_t bytes, uint64_t key);
weir_status remote_export(remote *it, int buffer, weir_access access,
                          weir_ticket *out);

/* How many bytes it has, and whether a kernel may write them. */
size_t remote_size(remote *it, int buffer);
weir_ipc_statistics remote_statistics(remote *it);
/* Waits until nobody has anything of it open. */
void remote_settle(remote *it);
void remote_trim(remote *it);
/* Shuts the sockets that its imports have, and no more: as no sound process does. */
void remote_hang_up(remote *it);
/* Plans a fault of its device. */
void remote_plan_fault(remote *it, const char *call, uint64_t nth, bool lasting,
                       weir_status status);

#endif
