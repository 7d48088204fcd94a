/* pool_depot.h - full magazines that a pool's caches hand to each other: blocks of one
 * exact size, linked through their records, all free behind one mark.
 *
 * A thousand at most, found by size, oldest first. What does not fit any more goes to
 * the heap, the oldest first; and all that is there when a stream looks around for what
 * it does not have. Guarded by the pool's lock. */
#ifndef WEIR_POOL_DEPOT_H
#define WEIR_POOL_DEPOT_H

#include "pool_cache.h"
#include "stream_order.h"

typedef struct weir__magazine {
    uint32_t head;           /* of WEIR__MAGAZINE blocks; 0: there is none here */
    uint32_t holder_tag;     /* of the blocks: that of the cache they were freed in */
    uint32_t grains;         /* of each */
    uint16_t next, before;   /* in its bucket, or among the unused (next); from 1 */
    uint16_t newer, older;
    weir__mark mark;
} weir__magazine;

typedef struct weir__depot {
    weir__magazine magazines[WEIR__DEPOT_MOST + 1]; /* from 1: an index of 0 is none */
    uint16_t first[WEIR__DEPOT_BUCKETS], last[WEIR__DEPOT_BUCKETS]; /* by size */
    uint16_t unused;
    uint16_t oldest, newest;
    uint32_t count;
    size_t bytes;
} weir__depot;

static inline size_t weir__magazine_bytes(const weir__magazine *magazine)
{
    return weir__grains_size(magazine->grains) * WEIR__MAGAZINE;
}

static inline weir__block_list weir__magazine_blocks(const weir__magazine *magazine)
{
    return (weir__block_list){ .head = magazine->head,
                               .count = WEIR__MAGAZINE,
                               .holder_tag = magazine->holder_tag };
}

void weir__depot_init(weir__depot *depot);

static inline bool weir__depot_is_full(const weir__depot *depot)
{
    return depot->unused == 0;
}

/* Takes over the blocks. It must not be full. */
void weir__depot_put(weir__depot *depot, weir__magazine magazine);

/* The magazine of `grains` that was put in first, after `after` (null: of all); null:
 * none. */
const weir__magazine *weir__depot_next(const weir__depot *depot, uint32_t grains,
                                       const weir__magazine *after);
/* The one that was put in first, or null. */
const weir__magazine *weir__depot_oldest(const weir__depot *depot);
/* Takes it out. */
weir__magazine weir__depot_take(weir__depot *depot, const weir__magazine *magazine);

/* Stops if a depot contradicts itself or, unless `view` is null, the records. */
void weir__depot_verify(const weir__depot *depot, const weir__heap_view *view);

#endif
