/* weir_carry.h - carries columns between files of the host's and a device that other
 * processes share. */
#ifndef WEIR_CARRY_H
#define WEIR_CARRY_H

#include <stdio.h>

#include "weir/buffer.h"
#include "weir_column.h"

/* The device, and what has been put there for others. */
typedef struct carry {
    weir_device *device;
    weir_stream stream;
    void *room;             /* on the host, for what is on its way */
    weir_buffer data, mask;
} carry;

bool carry_open(const char *device, carry *out, refusal *why);
/* What others have opened by then they keep. */
void carry_close(carry *self);

/* Part of a column, in items, and what is found there. */
typedef struct carry_part {
    uint64_t from, to;
    uint64_t nulls;         /* items that the mask says are not there */
    uint64_t bytes;         /* of items */
    uint32_t crc32;         /* of these */
} carry_part;

/* Opens the tickets of `it`, reads items `from` to `to` of it, which lie inside, and
 * writes their bytes to `file` unless that is null. *is_over: the tickets are not good
 * any more, or not yet; nothing was read. */
bool carry_read(carry *self, const column *it, carry_part *part, FILE *file,
                bool *is_over, refusal *why);

/* Puts what the files hold (`mask_path` null: it has no mask) on the device, in memory
 * of `resource`, for others to read as long as it stays open. Fills length and tickets
 * of `it`, whose name and dtype are set. Once for each carry. */
bool carry_bring(carry *self, const char *resource, const char *data_path,
                 const char *mask_path, column *it, refusal *why);

#endif
