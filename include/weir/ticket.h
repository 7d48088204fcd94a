/* weir/ticket.h - tickets: what one process gives another so that it can open some of
 * its memory. Plain octets, the same on every machine: to be sent or stored by any way,
 * and compared by memcmp. They hold no address and no secret but 128 random bits.
 *
 * All calls that take a ticket answer INVALID_ARGUMENT if it is none, or of another
 * version; the sentence says at which octet. */
#ifndef WEIR_TICKET_H
#define WEIR_TICKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/buffer.h"
#include "weir/resource.h"
#include "weir/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_TICKET_BYTES 256
typedef struct weir_ticket {
    uint8_t octets[WEIR_TICKET_BYTES];
} weir_ticket;

/* What a ticket says; nobody has checked whether it is true. */
typedef struct weir_ticket_info {
    size_t struct_size;
    weir_share_kind kind;
    bool is_detached;        /* no process answers for it: it has the memory's handle */
    weir_access access;      /* what importers may do */
    uint8_t device_uuid[16];
    uint64_t base_bytes;     /* of the whole object (kind POOL: of the block), */
    uint64_t offset;         /* and where in it the bytes begin, */
    uint64_t bytes;          /* so many */
    int32_t exporter;        /* its process; 0: detached */
} weir_ticket_info;

/* Fills *out, whose struct_size the caller has set. */
WEIR_API WEIR_NODISCARD weir_status
weir_ticket_get_info(const weir_ticket *ticket, weir_ticket_info *out);

/* As a list in JSON, "[87,69,...]": writes at most `room` octets, with the null at the
 * end, and to *length how long the text is without that; `text` may be null if `room`
 * is 0. INVALID_ARGUMENT: `room` is too small, and nothing but *length was written.
 * WEIR_TICKET_JSON_BYTES are always enough. */
#define WEIR_TICKET_JSON_BYTES 1026
WEIR_API WEIR_NODISCARD weir_status
weir_ticket_to_json(const weir_ticket *ticket, char *text, size_t room, size_t *length);

/* Reads such a list of `length` octets of text, and white space around its parts.
 * INVALID_ARGUMENT: it is none of 256 numbers from 0 to 255, or no ticket; the sentence
 * says at which octet. */
WEIR_API WEIR_NODISCARD weir_status
weir_ticket_from_json(const char *text, size_t length, weir_ticket *out);

#ifdef __cplusplus
}
#endif
#endif
