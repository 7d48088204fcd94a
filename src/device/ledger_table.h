/* ledger_table.h - things with a name, sorted by it: streams, threads, keys, owners,
 * memories. Names mostly come in rising order, so that a sorted array is added to at
 * its end. The table owns the array, never the things. */
#ifndef WEIR_DEVICE_LEDGER_TABLE_H
#define WEIR_DEVICE_LEDGER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Compared first by `realm` (0 where there is only one), then by `number`. */
typedef struct weir__name {
    uint64_t realm;
    uint64_t number;
} weir__name;

/* Whatever is in a table begins with its name. */
typedef struct weir__table {
    weir__name **items;
    size_t count;
    size_t room;
} weir__table;

/* Null: there is none. */
void *weir__table_find(const weir__table *self, weir__name name);
/* The item of that name, or else the last before it, or null. */
void *weir__table_find_at_or_before(const weir__table *self, weir__name name);

/* False: no host memory. There must be no other of the same name. */
bool weir__table_add(weir__table *self, weir__name *item);
void weir__table_remove(weir__table *self, weir__name *item);

void weir__table_free(weir__table *self);
void weir__table_verify(const weir__table *self);

/* A larger copy of `old`, of which `used` bytes count, in its place; or null, and
 * `old` is as it was. */
void *weir__ledger_grow(void *old, size_t used, size_t bytes);

#endif
