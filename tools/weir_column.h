/* weir_column.h - columns, as `weir share` and `weir fetch` tell each other of them.
 *
 * A column is a name, what its items are, how many there are, and one ticket or two:
 * for the items, and for the mask of those that are there, if there is one. In a line:
 *
 *     price float64 1000 [87,69,...] [87,69,...]
 *     price float64 1000 [87,69,...] -
 *
 * A mask has a bit for each item, lowest first, set where the item is there; it begins
 * with a byte of its own for the first eight, whatever part of the column is read. */
#ifndef WEIR_COLUMN_H
#define WEIR_COLUMN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/status.h"
#include "weir/ticket.h"

/* Why something is not done, for whoever asked. */
typedef struct refusal {
    char text[400];
} refusal;

/* Both answer false. */
bool refuse(refusal *why, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* What Weir knows of a call that failed: "WHAT: ...". */
bool refuse_status(refusal *why, const char *what, weir_status status);

typedef struct column_dtype {
    const char *name;
    size_t bytes; /* of an item */
} column_dtype;

/* Null: there is none of that name. */
const column_dtype *column_dtype_find(const char *name);
/* All their names, separated by ", ". */
const char *column_dtype_names(void);

#define COLUMN_NAME_MAX 64
#define COLUMN_TEXT_MAX 2400 /* of a line, without its end */

typedef struct column {
    char name[COLUMN_NAME_MAX + 1];
    const column_dtype *dtype;
    uint64_t length; /* items; their bytes fit in a size_t */
    bool has_mask;
    weir_ticket data, mask;
} column;

/* Letters, digits and _ . - only, so that it is one word. */
bool column_name_set(column *self, const char *name, refusal *why);
bool column_length_set(column *self, uint64_t length, refusal *why);

size_t column_data_bytes(const column *self);
size_t column_mask_bytes(const column *self);

/* Writes COLUMN_TEXT_MAX characters at most, and the null. */
bool column_write(const column *self, char *text, refusal *why);
/* Reads what column_write writes, and takes it to pieces. Nothing is believed: the
 * tickets are of so many bytes as the length says, or it is refused. */
bool column_read(char *text, column *out, refusal *why);

#endif
