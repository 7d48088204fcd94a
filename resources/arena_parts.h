/* arena_parts.h - what the parts of the resource arena share: which arena an address
 * belongs to (arena_map.c), which one a stream draws from (arena_streams.c), where
 * superblocks come from (arena_superblocks.c). */
#ifndef WEIR_ARENA_PARTS_H
#define WEIR_ARENA_PARTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stream_order.h"
#include "sync.h"
#include "weir/arena.h"
#include "weir/resource_ops.h"

/* ---- addresses ---- */

/* Superblocks are whole regions. */
#define WEIR__REGION_BITS 16u
#define WEIR__REGION      ((size_t)1 << WEIR__REGION_BITS)
#define WEIR__MAP_BITS    48u /* of an address */
#define WEIR__LEAF_BITS   18u /* 16 GiB */
#define WEIR__ROOT_BITS   (WEIR__MAP_BITS - WEIR__REGION_BITS - WEIR__LEAF_BITS)

/* For each region the number of the arena whose superblock is there, from 1; 0: none.
 * */
typedef struct weir__arena_leaf {
    struct weir__arena_leaf *next; /* of the spare ones */
    _Atomic uint8_t arena[(size_t)1 << WEIR__LEAF_BITS];
} weir__arena_leaf;

/* Leaves are read without the lock, and stay until the end. */
typedef struct weir__arena_map {
    weir__arena_leaf *_Atomic leaves[(size_t)1 << WEIR__ROOT_BITS];
    /* Guards what follows, and makes new leaves one at a time. Rank resource. */
    weir__mutex lock;
    weir__arena_leaf *spares; /* not cleared: most are never touched */
    uint32_t spare_count;
    uint32_t promised;        /* superblocks that are being drawn */
} weir__arena_map;

void weir__arena_map_init(weir__arena_map *map);
void weir__arena_map_close(weir__arena_map *map);

/* Makes sure of the records of one superblock, wherever it will be; then one of the
 * next two. False: no host memory. */
bool weir__arena_map_promise(weir__arena_map *map);
void weir__arena_map_forget_promise(weir__arena_map *map);
/* The regions from `ptr` on become that arena's. */
void weir__arena_map_put(weir__arena_map *map, const void *ptr, size_t bytes,
                         uint8_t arena);
/* They are nobody's any more. */
void weir__arena_map_drop(weir__arena_map *map, const void *ptr, size_t bytes);

/* The number of the arena that an address belongs to, from 1; 0: none. Whoever was
 * handed a block there, and so comes behind what was stored, gets the right one. */
static inline uint32_t weir__arena_map_find(weir__arena_map *map, const void *ptr)
{
    uint64_t region = (uint64_t)(uintptr_t)ptr >> WEIR__REGION_BITS;
    uint64_t root = region >> WEIR__LEAF_BITS;
    if (root >> WEIR__ROOT_BITS != 0)
        return 0;
    weir__arena_leaf *leaf =
        atomic_load_explicit(&map->leaves[root], memory_order_acquire);
    if (leaf == NULL)
        return 0;
    uint64_t at = region & (((uint64_t)1 << WEIR__LEAF_BITS) - 1);
    return atomic_load_explicit(&leaf->arena[at], memory_order_relaxed);
}

/* ---- streams ---- */

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define WEIR__STREAM_SLOTS 8u
#else
#define WEIR__STREAM_SLOTS 1024u
#endif
#define WEIR__STREAM_SLOTS_USED (WEIR__STREAM_SLOTS / 4 * 3) /* at most */

typedef struct weir__stream_slot {
    _Atomic uintptr_t stream; /* 0: none */
    _Atomic uint32_t arena;   /* from 0 */
} weir__stream_slot;

/* Which arena each known stream draws from. That is a matter of who meets whom and no
 * more: any arena serves any stream. So whoever looks without the lock may get it wrong
 * while slots are moved. Open addressing; what has no slot draws from its thread's. */
typedef struct weir__arena_streams {
    weir__order *order;
    uint32_t arena_count;
    /* Guards what follows: changes are under it. Rank resource. */
    weir__mutex lock;
    uint32_t used;
    uint32_t *bound;          /* how many streams each arena has */
    weir__stream_slot slots[WEIR__STREAM_SLOTS];
} weir__arena_streams;

/* False: no host memory, and there is nothing to close. */
bool weir__arena_streams_init(weir__arena_streams *streams, weir__order *order,
                              uint32_t arena_count);
void weir__arena_streams_close(weir__arena_streams *streams);

/* The arena, from 0, that `stream` draws from, as the calling thread means it. */
uint32_t weir__arena_streams_find(weir__arena_streams *streams, weir_stream stream);
/* `stream` draws from none any more. True: *arena was its alone. */
bool weir__arena_streams_drop(weir__arena_streams *streams, weir_stream stream,
                              uint32_t *arena);

/* Stops if something contradicts itself. */
void weir__arena_streams_verify(weir__arena_streams *streams);

/* ---- all of it ---- */

struct weir__arenas;

typedef struct weir__arena {
    struct weir__arenas *all;
    uint8_t number;                   /* from 1 */
    weir_resource *pool;
} weir__arena;

typedef struct weir__arenas {
    weir_resource *mr;                /* around this; set once it is made */
    weir_resource *upstream;          /* kept alive by that */
    weir_resource *global;
    weir__order *order;
    /* Set at creation: */
    weir_arena_options options;       /* in force */
    size_t small_bytes;               /* the largest request that is not large */

    /* Of blocks that are the global pool's own. */
    atomic_uint_least64_t allocations, deallocations;
    atomic_size_t out_bytes;
    atomic_uint_least64_t holders;    /* the source, and who gives one of those back */
    atomic_uint_least64_t failures;
    atomic_size_t held_bytes;         /* from upstream */
    atomic_size_t grown_bytes;        /* since arenas last gave back */
    atomic_bool wants_back;           /* that was a stretch */
    weir__order_listener listener;
    weir__arena_streams streams;
    weir__arena_map map;
    weir__arena arenas[];
} weir__arenas;

/* One holder less. The last of them ends `self`, and its mr. */
void weir__arenas_leave(weir__arenas *self);

/* `self` is the weir__arenas, which the source holds. */
extern const weir_resource_ops weir__arena_source_ops;
/* `self` is the weir__arena. */
extern const weir_resource_ops weir__arena_superblock_ops;

#endif
