/* ipc_wire.h - what exporter and importer say to each other: messages of one size, and
 * the file descriptors that go with them.
 *
 * There is one way to write each message: numbers have the lowest octet first, what its
 * kind does not use is zero, and who reads one checks all of that. Nothing in one is
 * believed beyond that here. */
#ifndef WEIR_IPC_WIRE_H
#define WEIR_IPC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"
#include "weir/ticket.h"

#define WEIR__MESSAGE_BYTES 512
#define WEIR__MESSAGE_FDS   2

typedef enum weir__message_kind {
    WEIR__MESSAGE_OPEN = 1, /* importer: ticket, access */
    WEIR__MESSAGE_AGAIN,    /* importer, on the same connection, after CLOSE: the same;
                               no memory comes back */
    WEIR__MESSAGE_CLOSE,    /* importer: an event, or none */
    WEIR__MESSAGE_ANSWER,   /* exporter, to OPEN and AGAIN: status; only if that is OK
                               memory (to OPEN) and an event, or none */
    WEIR__MESSAGE_OVER      /* exporter: the ticket is over */
} weir__message_kind;

typedef struct weir__message {
    weir__message_kind kind;
    weir_status status;
    weir_access access;
    weir_ticket ticket;       /* one that can be read, and is not detached */
    bool has_memory;
    weir__shared memory;      /* its fd is -1 where there is none */
    bool has_event;
    bool event_has_fd;
    weir__shared_event event; /* likewise */
} weir__message;

/* One of no kind, that has nothing. */
void weir__message_clear(weir__message *out);

/* Which descriptors go with it: that of the memory first, if it is of kind FD, then the
 * event's, if event_has_fd. Returns how many. */
uint32_t weir__message_fds(const weir__message *message, int fds[WEIR__MESSAGE_FDS]);

/* Writes what its kind has; the rest of `message` is ignored. */
void weir__message_write(const weir__message *message,
                         uint8_t out[WEIR__MESSAGE_BYTES]);

/* INVALID_ARGUMENT: not exactly such a message, or not with so many descriptors. They
 * stay the caller's then, and *out has none; else they are in *out. */
weir_status weir__message_read(const uint8_t *octets, size_t length, const int *fds,
                               uint32_t fd_count, weir__message *out);

#endif
