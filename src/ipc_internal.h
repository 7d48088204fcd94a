/* ipc_internal.h - what the files of IPC share.
 *
 *     export <--- connection ... socket ... import ---> storage (of a buffer)
 *
 * An export is what a ticket of this process's stands for. Each connection is one
 * import of another process, and lives as long as that has the memory mapped: open, or
 * closed and cached. So who is at the other end, and whether that still lives, is the
 * kernel's to say. One thread, the service, answers connections and watches over
 * imports; it has them all in its hands but for an import that is asking.
 *
 * One lock guards all of it. It is held over calls to the system that do not wait, but
 * never while a storage is let go of or the device is asked to map, unmap or export. */
#ifndef WEIR_IPC_INTERNAL_H
#define WEIR_IPC_INTERNAL_H

#include "device/device.h"
#include "internal.h"
#include "ipc_socket.h"
#include "ipc_wire.h"
#include "storage.h"
#include "sync.h"
#include "ticket.h"
#include "weir/ipc.h"

#define WEIR__IPC_NO_SLOT SIZE_MAX

/* ---- exports ---- */

typedef struct weir__export {
    struct weir__export *next;
    weir_ticket ticket;
    weir_device *device;    /* counted, until it has ended */
    weir_storage *storage;  /* its record is kept, likewise */
    void *base;             /* of the object */
    void *data;             /* of the bytes themselves */
    size_t size;
    bool has_event;
    weir_event event;
    weir__shared_event handle;
    weir_access access;
    bool one_time;
    bool was_opened;
    bool is_over;           /* off the list: nobody opens it any more */
    uint32_t importers;     /* that have entered, and not left */
    uint32_t references;    /* the list's, and one of each connection */
} weir__export;

typedef struct weir__connection {
    struct weir__connection *next;
    int fd;                 /* -1: hung up, and the process has not ended yet */
    weir__peer_process peer;
    weir__export *export;   /* counted; null: it has not asked for one */
    weir_access access;
    bool is_open;
    bool is_told;           /* that the ticket is over */
    int64_t since;          /* ms */
    size_t slot;            /* in the round's polls: its socket, then its process */
} weir__connection;

/* ---- imports ---- */

typedef enum weir__import_state {
    WEIR__IMPORT_ASKING,    /* a thread reads its socket, and nobody else does */
    WEIR__IMPORT_OPEN,
    WEIR__IMPORT_CLOSED     /* it may be opened again */
} weir__import_state;

typedef struct weir__import {
    struct weir__import *next;
    weir_ticket ticket;
    weir_device *device;    /* not counted: open imports have a storage, and for the
                               others there is weir__ipc_device_ends */
    weir_access access;
    weir_share_kind kind;
    weir__import_state state;
    bool is_gone;           /* its exporter is, or does not answer as it should */
    bool is_over;           /* its ticket is */
    uint32_t late_answers;  /* that have to come, and nobody waits for: to a close, or
                               to who asked and has given up */
    int fd;
    weir__peer_process peer;
    void *base;             /* null: not mapped */
    size_t base_bytes;
    bool is_freed;          /* of kind POOL, in stream order */
    weir_event event;       /* the exporter's, or null */
    weir_event back;        /* ours, recorded by the close; or null */
    weir__shared_event back_handle;
    bool is_used;           /* up to `back`, which is not known to be done */
    weir_storage *storage;  /* its record is kept; null: not open */
    int64_t idle_since;     /* ms */
    size_t slot;
} weir__import;

/* ---- all of it ---- */

typedef struct weir__ipc {
    weir__mutex lock;
    weir__cond changed;         /* an import asks no more; the service lets go */
    bool is_running;            /* the service */
    uint64_t service;           /* its thread's number */
    int wake;                   /* an eventfd, while it is */
    int listener;               /* -1: none */
    char path[108];
    weir__export *exports;
    weir__export *owed;         /* ended, but for an event; their devices not counted */
    weir__connection *connections; /* the service's; the lock for changes */
    weir__import *imports;
    struct weir__courier *couriers;
    size_t unmapping;           /* what is off its list and being ended */
    uint64_t drains_wanted;     /* by threads of the program's: how many */
    uint64_t drains_done;
    uint64_t maps;
    uint64_t refused;
} weir__ipc;

extern weir__ipc weir__ipc_all;

/* With the lock: sees to it that the service runs, and (where `listens`) that there is
 * a socket. */
weir_status weir__ipc_start(bool listens) WEIR_REQUIRES(weir__ipc_all.lock);
/* The service looks at what has changed. With the lock. */
void weir__ipc_wake(void) WEIR_REQUIRES(weir__ipc_all.lock);
/* Where there is nothing left for it, waits until the service has ended. */
void weir__ipc_settle(void);
int64_t weir__ipc_now(void); /* ms, of a clock that only goes on */
/* Whether work of the device's may go on only while somebody asks for it. */
bool weir__ipc_must_push(const weir_device *device);
#ifdef WEIR_TESTING
extern atomic_int weir__ipc_silent_ms; /* for so long who connects need not ask */
#endif
/* Closes the descriptors that came with it. */
void weir__message_close(const weir__message *message);
bool weir__peer_has_ended(const weir__peer_process *peer);

/* ---- ipc_export.c ---- */

/* The export of that ticket, counted; null: none of ours, or over. */
weir__export *weir__export_find(const weir_ticket *ticket);
void weir__export_unref(weir__export *export);
/* Takes a hold of its storage for one who opens it, who leaves the storage some time,
 * and says here when he does not need the export's event any more. NOT_FOUND: it is
 * over; NOT_OWNED: it is for reading only. Records no failure. */
weir_status weir__export_enter(weir__export *export, weir_access access,
                               weir__holder holder);
void weir__export_exit(weir__export *export);

/* Whether others wait for an event that a stepped device has not come to: somebody has
 * to ask for it until it has, or the device closes. */
bool weir__export_is_owed(const weir__export *export);
/* Moves stepped devices on for those who wait for what has ended here; or ends all of
 * that for `device`, if that is not null. */
void weir__export_push(const weir_device *device, bool *is_left);

/* ---- ipc_connection.c: the service's ---- */

/* Whether something has come, or the other end has hung up. */
bool weir__connection_read(weir__connection *self);
/* The process at the other end has ended. */
void weir__connection_ended(weir__connection *self);
/* Its ticket is over: it is told. */
void weir__connection_tell(weir__connection *self);
/* Closes what is left of it. */
void weir__connection_free(weir__connection *self);

/* ---- ipc_service.c ---- */

/* Before one more opens what several may write: whoever has closed it before, and said
 * so, is heard; of a null export, of all. The service's; `but` is being read
 * already. */
void weir__connections_drain(const weir__export *export, const weir__connection *but);
/* The same for any thread of the program's, which waits until the service has done so;
 * or for the service itself, where a deleter opens a ticket. */
void weir__service_drain(const weir__export *export);

/* ---- ipc_import.c ---- */

/* Whether it is another process's, opened here. */
bool weir__storage_is_import(const weir_storage *storage);

/* Something has come for an import that nobody asks with. With the lock. */
void weir__import_read(weir__import *self) WEIR_REQUIRES(weir__ipc_all.lock);
/* Whether it can go, and is not used any more; or when it could. With the lock. */
bool weir__import_is_idle(weir__import *self, int64_t now, int64_t *next)
    WEIR_REQUIRES(weir__ipc_all.lock);
/* Off the list already, and not used: unmaps it, and frees all. */
void weir__import_free(weir__import *self);

#endif
