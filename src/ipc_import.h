/* ipc_import.h - between ipc_open.c, which asks exporters, and ipc_import.c. */
#ifndef WEIR_IPC_IMPORT_H
#define WEIR_IPC_IMPORT_H

#include "ipc_internal.h"

/* One that is held or cached of the same ticket for the same access, else `made`, which
 * is put on the list: the caller's to ask with, until one of the next two. While others
 * ask it waits, for no longer than until `deadline` (see weir__ipc_now): PEER_GONE. On
 * failure *out means nothing, and `made` is on no list. */
weir_status weir__import_take(weir__import *made, int64_t deadline, weir__import **out);
/* `storage`: of its buffers, or null if it has none. */
void weir__import_put(weir__import *self, weir__import_state state,
                      weir_storage *storage);
/* Nobody else is to open it: NOT_FOUND, its ticket is over; else what its exporter does
 * is not to be relied on. */
void weir__import_mark(weir__import *self, weir_status why);
/* Before the exporter is told that nothing is done with what was mapped. False: he may
 * not be told. */
bool weir__import_free_unused(weir__import *self);
/* It came to nothing, and nobody has it open. */
void weir__import_drop(weir__import *self);
/* With the lock. */
void weir__import_unlist(weir__import *self) WEIR_REQUIRES(weir__ipc_all.lock);

/* What ends the storage of an import, whose context is the import. */
weir_deleter weir__import_deleter(void);
/* Null: it is no import, or a detached one. */
weir__import *weir__import_of(const weir_storage *storage);

/* ---- ipc_open.c ---- */

/* An import that nobody answers for. */
bool weir__storage_is_detached(const weir_storage *storage);

#endif
