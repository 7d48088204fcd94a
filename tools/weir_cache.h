/* weir_cache.h - columns on a device that other processes read: the least recently used
 * are dropped when there are more than fit.
 *
 * Whoever has opened a column keeps its bytes, also after it was dropped here; a ticket
 * that nobody has opened by then is refused. So more memory than the capacity can be
 * taken for a while: by what readers keep, and by a column that is being added. */
#ifndef WEIR_CACHE_H
#define WEIR_CACHE_H

#include "weir_column.h"

typedef struct cache cache;

typedef struct cache_counts {
    size_t columns;
    size_t bytes; /* that they take, in whole objects */
    uint64_t added, read, dropped;
} cache_counts;

/* Opens the device, and there `spec`, whose blocks must be such as can be shared. Null:
 * why not. */
cache *cache_open(const char *device, const char *spec, size_t capacity_bytes,
                  refusal *why);
/* Takes null, too. Readers keep what they have. */
void cache_close(cache *self);

/* Opens what the tickets of `wanted` name, which are another process's, and copies it;
 * a column of that name gives way. On failure nothing has changed. */
bool cache_add(cache *self, const column *wanted, refusal *why);

/* The column of that name, which counts as a use of it. It stays until the next call
 * that changes anything. Null: there is none. */
const column *cache_read(cache *self, const char *name);

/* Calls `visit` with each, the last used first. */
void cache_visit(const cache *self, void (*visit)(void *context, const column *one),
                 void *context);

cache_counts cache_count(const cache *self);

#endif
