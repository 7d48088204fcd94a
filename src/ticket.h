/* ticket.h - what stands in a ticket's 256 octets.
 *
 * There is one way to write each ticket: numbers have the lowest octet first, what is
 * not used is zero, and who reads one checks all of that. So two tickets that say the
 * same are the same octets. What they say is checked for sense alone: whether there is
 * such a process, or such memory, is found out elsewhere. */
#ifndef WEIR_TICKET_INTERNAL_H
#define WEIR_TICKET_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"
#include "weir/ticket.h"

/* As long as a socket's path can be, with the null at its end. */
#define WEIR__SOCKET_PATH_BYTES 108

typedef struct weir__ticket {
    weir_share_kind kind;        /* FD, LEGACY or POOL */
    bool is_detached;            /* only of kind LEGACY */
    weir_access access;
    uint8_t device_uuid[16];
    uint64_t base_bytes;
    uint64_t offset;             /* offset + bytes is at most base_bytes */
    uint64_t bytes;              /* not 0 */

    /* Who answers for it; all zero in a detached one. */
    int32_t pid;                 /* above 0 */
    uint64_t start_time;         /* of that process, as weir__process_start_time's */
    uint8_t export_id[16];
    char socket[WEIR__SOCKET_PATH_BYTES]; /* absolute, ends with a null */

    /* Of a detached one; else zero. */
    unsigned char handle[WEIR__SHARED_OCTETS];
} weir__ticket;

/* INVALID_ARGUMENT: it is none; the sentence says at which octet. */
weir_status weir__ticket_read(const weir_ticket *from, weir__ticket *out);

/* `from` keeps to what stands above. */
void weir__ticket_write(const weir__ticket *from, weir_ticket *out);

#endif
