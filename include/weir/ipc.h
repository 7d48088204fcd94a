/* weir/ipc.h - bytes that other processes use: a ticket names them, and who has one
 * opens it.
 *
 *     exporter                            importer
 *     weir_ipc_export  -- ticket -->      weir_ipc_open
 *       records an event,                  asks at the exporter's socket for memory and
 *       and a thread of Weir's  <------->   event, and its stream waits for that
 *       answers at a socket
 *     the bytes go back behind <--------  weir_ipc_close
 *
 * Order. What the exporter had on the buffer's streams when it exported is before what
 * the importer puts on the stream that it opened with. What the importer has put on its
 * streams when it closes is before whatever the bytes are used for once the exporter
 * has given them back; and, where importers may write, before those who open the ticket
 * later. A close that the exporter has heard of is a use that was noted: there
 * weir_buffer_wait waits for it. Nothing else is ordered: what the exporter writes
 * later others see by another ticket, or when they are told by some other means, of
 * which the ledger knows nothing.
 *
 * Who keeps whom. A ticket keeps nothing: it is good as long as it is not revoked, and
 * anybody holds the bytes: a buffer of the exporter's, or an importer. Each importer is
 * a holder, as a share is: until it has closed, or its process has ended, the bytes are
 * not given back, resized or released, and others may open them though the exporter has
 * no buffer of them any more. An importer never owns the source: closing frees nothing
 * there.
 *
 * Which bytes. Another process can reach, and write, the whole object that the bytes
 * lie in, whatever it was asked to do. So only blocks that are objects of their own can
 * be exported, those of the resource `shareable` (weir/shareable.h), or what lies in
 * such an object with others if the caller says so (share_whole_base). That goes for a
 * driver's pool as well (`async` with handle_types posix_fd): what is sent is a
 * descriptor of the pool, and who has it can map any block of the pool, whichever he
 * was given. Weir opens the one alone, and frees it in stream order when it is closed,
 * before the exporter's driver has it back.
 *
 * Threats. The socket lies in a folder of the user's alone (mode 0700), and each
 * message brings the credentials of who sent it, for which the kernel stands: processes
 * of other users, and of those that this user namespace cannot name (65534), are
 * refused on both sides. A process of the same user is trusted as a debugger is, for it
 * could read this one's memory anyway; but it cannot crash Weir by what it sends, nor
 * make it touch anything but the object that it was given. An exporter that lies is
 * found out: its object must have the size that the ticket says, and be sealed against
 * shrinking. One that writes while others read gives them wrong data, and nothing
 * worse.
 *
 * Processes that end. An importer that is killed counts as done once its process is
 * gone, not before: until then the device may still work for it. When an exporter ends,
 * its tickets are over, and what was opened stays mapped as it is.
 *
 * Forks. A fork's child has no device and none of this: all is refused with FORKED. */
#ifndef WEIR_IPC_H
#define WEIR_IPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/buffer.h"
#include "weir/ticket.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- exporting ---- */

/* Zero asks for the default; start from WEIR_EXPORT_OPTIONS_INIT. */
typedef struct weir_export_options {
    size_t struct_size;
    weir_access access;    /* what importers may do: default WEIR_READ */
    bool share_whole_base; /* others' bytes may lie in the same object: share all */
    bool one_time;         /* the first who opens it is the only one */
    bool detached;         /* see weir_ipc_export */
} weir_export_options;

#define WEIR_EXPORT_OPTIONS_INIT                                                 \
    { sizeof(weir_export_options), (weir_access)0, false, false, false }

/* Makes a ticket for all that `buffer` shows. Its stream waits for the writers that
 * were noted (for readers too, if importers may write), and the event is recorded
 * there: where the device has none for other processes the host waits instead.
 *
 * A detached ticket has the memory's handle in it (kind LEGACY only) and promises
 * nothing: no process answers for it. Its exporter keeps the bytes until all who opened
 * it have closed, and orders the streams by other means; here nothing is counted, and
 * nobody is asked.
 *
 *   NOT_OWNED       the buffer is a view, or empty
 *   NOT_SUPPORTED   the memory cannot be shared (pinned, managed, the host's, an
 *                   import); it is no object of its own, and share_whole_base is not
 *                   set; detached, and not of kind LEGACY; importers may write, and the
 *                   buffer is for reading only
 *   CAPTURING       the buffer's stream is being captured
 *   FILE_ERROR      no folder for the socket ($XDG_RUNTIME_DIR/weir, or /tmp/weir-UID),
 *                   or not ours alone; no socket, thread or file descriptor. One that
 *                   was removed since is made again, and who has tickets finds it
 *   DEVICE_ERROR    the device makes no event for others: it has no file descriptor
 *                   left for that, say */
WEIR_API WEIR_NODISCARD weir_status
weir_ipc_export(weir_buffer *buffer, const weir_export_options *options,
                weir_ticket *out);

/* Nobody opens it any more; who has it open keeps it until he closes. NOT_FOUND: no
 * ticket of this process's, or it is over already. */
WEIR_API WEIR_NODISCARD weir_status weir_ipc_revoke(const weir_ticket *ticket);

/* ---- importing ---- */

typedef struct weir_open_options {
    size_t struct_size;
    weir_access access;    /* what will be done: default WEIR_READ */
    uint32_t timeout_ms;   /* how long the exporter may take, while other threads ask
                              about the same ticket, too: default 10 000 */
} weir_open_options;

#define WEIR_OPEN_OPTIONS_INIT { sizeof(weir_open_options), (weir_access)0, 0 }

/* Opens a ticket: a buffer that shows exactly its bytes, whose own stream is `stream`,
 * which waits for the exporter's event. It cannot grow, nor be exported, and is for
 * reading only unless WEIR_WRITE was asked for and granted; of kind DEVICE. A ticket of
 * this process's own is opened as a share of its buffer, of which none of that holds:
 * it may be used as that may. Opened again while a buffer here holds it, or one did
 * until lately, it is not mapped again; but the exporter is always asked. What nobody
 * holds, and nothing has ended (it was released, or waits in limbo), is not waited for.
 *
 *   NOT_FOUND          the exporter knows of no such ticket: forged, revoked, used up,
 *                      or its bytes were given back
 *   PEER_GONE          the exporter has ended, or did not answer in time
 *   NOT_OWNED          writing was asked for, and is not granted
 *   INVALID_ARGUMENT   it is another device's; or what the exporter sent is not what
 *                      the ticket says
 *   FILE_ERROR         the exporter is another user's, or its socket's folder is not
 *                      ours alone; no file descriptor to ask it with, or for what it
 *                      sends; no thread
 *   DEVICE_ERROR       the device, here or there, cannot share what the ticket names:
 *                      it has no file descriptor left for that, say
 *   CAPTURING          `stream` is being captured
 *   NOT_SUPPORTED      the device opens no memory of that kind */
WEIR_API WEIR_NODISCARD weir_status
weir_ipc_open(weir_device *device, weir_stream stream, const weir_ticket *ticket,
              const weir_open_options *options, weir_buffer *out);

/* Ends a buffer behind what is on `stream` so far, which is noted as a use, and behind
 * all others that were: an event for that goes to the exporter, once no other buffer
 * here holds the import. The buffer is empty afterwards; closing it again does nothing.
 * weir_buffer_reset does the same without `stream`. Where it is the last one and
 * another thread just opens the same ticket, it waits until that has its answer, or has
 * given up. That the exporter is gone is no error: there is nobody to tell. NOT_OWNED:
 * a view. On failure it is still open. */
WEIR_API WEIR_NODISCARD weir_status
weir_ipc_close(weir_buffer *buffer, weir_stream stream);

/* PEER_GONE: whoever exported what `buffer` imports has ended; the bytes stay as they
 * are, and reachable. NOT_OWNED: a view, or empty. */
WEIR_API WEIR_NODISCARD weir_status weir_ipc_check(const weir_buffer *buffer);

/* ---- what is open ---- */

/* Opening memory is slow (1.3 ms on a CUDA device), so what was closed stays mapped for
 * a while: until its exporter says that the ticket is over, or ends, or so long at most
 * without use. Not so a block of a driver's pool: it goes once it is free. */
#define WEIR_IPC_IDLE_MS 5000

typedef struct weir_ipc_statistics {
    size_t struct_size;
    size_t exports;          /* tickets that can be opened */
    size_t importers;        /* that hold bytes of ours: opened, not closed */
    size_t imports;          /* open here */
    size_t cached;           /* mapped here, closed */
    size_t cached_bytes;
    uint64_t maps;           /* how often memory was mapped here, ever */
    uint64_t refused;        /* messages that were refused, ever */
} weir_ipc_statistics;

/* Fills *out, whose struct_size the caller has set. */
WEIR_API WEIR_NODISCARD weir_status weir_ipc_get_statistics(weir_ipc_statistics *out);

/* Unmaps what is cached; the host waits for work that still uses it. DEVICE_ERROR: that
 * wait failed, and the rest is still cached. */
WEIR_API WEIR_NODISCARD weir_status weir_ipc_trim_sync(void);

#ifdef __cplusplus
}
#endif
#endif
