/* pool_cache.h - what a pool keeps for each thread, so that memory freed on a stream is
 * handed out there again without a lock.
 *
 *     thread ---> seat (one per pool) ---> cache (one per stream) ---> bins of one size
 *                 behind a gate                                        and a spill list
 *
 * A seat is a thread's place in a pool. What is behind its gate (src/gate.h) is the
 * thread's while it is inside, and a flusher's while the gate is closed. A cache has
 * blocks that were freed on its stream, whose use needs no mark there: they are still
 * behind nothing but their own stream. The moment blocks leave for the depot or the
 * heap they get one.
 *
 * A bin is a stack of blocks of one exact size, linked through their records: what is
 * on top, and below it at most one full magazine more. Sizes up to SMALL_BINS grains
 * have a bin each; larger ones one for each class of sizes, sixteen to a doubling, and
 * the last size that was asked for in vain has it. While the pool has room, blocks of
 * up to CLASSED_GRAINS are as large as their class goes: then one serves all requests
 * of it; and where a cache is nearly full and has none of a size, one of the next few
 * does, if it is not much larger. What no bin takes is spilt: it goes back to the heap
 * with the next miss, or when there is much of it. So is what is larger than
 * CACHED_GRAINS, for that has to coalesce; until then the list serves requests of
 * exactly its size. What there is no room for goes back at once.
 *
 * Room is made by bins that have more than their share: where requests are of all
 * sizes, a bin of blocks twice as large shall have less of them, by the root of two, so
 * that of as many bytes most requests hit. What nobody asks for any more may have its
 * share for ever: so after many blocks have found no room, all is emptied. And so it is
 * whenever it is full, where blocks only come back for long.
 *
 * Who keeps whom alive: a seat is of its pool and of its thread, and goes when both
 * have let go of it: the thread by `is_left` (it ended), the pool by `is_dead`. Caches
 * belong to the seat. */
#ifndef WEIR_POOL_CACHE_H
#define WEIR_POOL_CACHE_H

#include "gate.h"
#include "heap_records.h"
#include "weir/resource.h"

struct weir__pool;

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define WEIR__MAGAZINE       2u
#define WEIR__CLASS_BITS     0u
#define WEIR__CLASSED_GRAINS 8u
#define WEIR__LARGE_GRAINS   6u
#define WEIR__CACHED_BITS    3u
#define WEIR__SPILL_MOST     3u
#define WEIR__ROOM_LOOKS     3u
#define WEIR__NEXT_SHARE     1u
#define WEIR__PASSED_MOST    6u
#define WEIR__CLOSE_EVERY    2u
#define WEIR__DEPOT_MOST     4u
#define WEIR__POUR_AFTER     2u
#define WEIR__DEPOT_BUCKETS  2u
#else
#define WEIR__MAGAZINE       32u
#define WEIR__CLASS_BITS     4u
#define WEIR__CLASSED_GRAINS 4096u  /* 1 MiB */
#define WEIR__LARGE_GRAINS   4096u
#define WEIR__CACHED_BITS    13u    /* 2 MiB */
#define WEIR__SPILL_MOST     16u
#define WEIR__ROOM_LOOKS     16u
#define WEIR__NEXT_SHARE     8u      /* so large a part of a request may be too much */
#define WEIR__PASSED_MOST    1024u
#define WEIR__CLOSE_EVERY    64u
#define WEIR__DEPOT_MOST     1024u
#define WEIR__POUR_AFTER     256u    /* blocks, and nothing taken */
#define WEIR__DEPOT_BUCKETS  128u
#endif
#define WEIR__ROOM_SHARE     24u     /* of a cache that is full becomes room at once */
#define WEIR__NEARLY_SHARE   4u      /* less is left of one that is nearly full */
#define WEIR__NEXT_BINS      3u      /* so many larger sizes may serve a request then */
#define WEIR__MUCH_SHARE     16u     /* see has_much */
#define WEIR__RECENT         2048u
/* Multiplied by that, 32 addresses of one distance differ in the bits that are taken,
 * for all distances of a power of two from 256 bytes to 1 MiB times 1 to 15. */
#define WEIR__RECENT_HASH    UINT64_C(0x6f9c18fb)
#define WEIR__RECENT_SHIFT   31
/* Each doubling has as many classes as all sizes have that stand for themselves. */
#define WEIR__SMALL_BINS     (2u << WEIR__CLASS_BITS)
#define WEIR__CACHED_GRAINS  (1u << WEIR__CACHED_BITS)
#define WEIR__BINS \
    ((WEIR__CACHED_BITS - WEIR__CLASS_BITS + 1) << WEIR__CLASS_BITS)
/* The most that a block of a class has to spare, one less than a power of two. */
#define WEIR__SPARE_MOST     ((WEIR__CLASSED_GRAINS >> (WEIR__CLASS_BITS + 1)) - 1)
_Static_assert(WEIR__SPARE_MOST <= WEIR__SPARE_GRAINS, "a tag has room for it");

typedef struct weir__bin {
    weir__heap_block *top;   /* if there is any; and its id, or 0, and its address */
    uint32_t top_id;
    uint32_t grains;         /* of each block; 0: the bin is nobody's */
    void *ptr;               /* apart from `top`, so that no compiler stores the two as
                                one, which are soon read one by one */
    uint32_t count;          /* from the top down */
    uint32_t full;           /* the top of a full magazine besides, or 0 */
} weir__bin;

/* Of a block that was handed out here, on whatever stream: a guess where its record is,
 * which tells whether it is that block's; and which bin has its size. */
typedef struct weir__recent {
    uint32_t id;
    uint32_t bin;            /* how far from the first, in bytes */
} weir__recent;

/* Linked records, all with one tag. */
typedef struct weir__block_list {
    uint32_t head;
    uint32_t count;
    uint32_t holder_tag;
    size_t bytes;
} weir__block_list;

/* What lists were given up of, for a block in them was not theirs: two threads gave one
 * back at the same moment, and from there links lead astray. See pool_lost.c. */
typedef struct weir__lost {
    uint32_t lists;
    uint32_t blocks;         /* entries of these, those that were met included */
    size_t bytes;            /* of those that were met, one of each list */
    const void *ptr;         /* the last of these */
} weir__lost;

/* What hits need of it, in one line; and no bin lies in two. */
typedef struct weir__cache {
    _Alignas(WEIR__LINE) weir_stream stream;
    weir_stream alias;       /* another name of the stream, which users have for it;
                                or the same */
    uint32_t holder_tag;     /* of its blocks: CACHED, and the seat's number */
    uint32_t owner;          /* the slot of its stream's clock in the heap */
    size_t bytes;            /* in bins and on the spill list */
    uint64_t allocations, deallocations; /* through it */
    uint32_t home;           /* where records of its blocks should be */
    uint32_t unclosed;       /* blocks given to the heap since the last event */
    size_t most_bytes;       /* that it may keep */
    uint64_t clock;
    const _Atomic uint64_t *counter; /* the clock's */
    bool is_quiet;           /* nobody was likely to want what was given to the heap */
    uint32_t dry;            /* misses since anything was given back */
    uint64_t dry_from;       /* `deallocations` was this */
    uint32_t looked;         /* the bin that was looked at last for room */
    uint32_t passed;         /* blocks that found no room since all was emptied */
    uint32_t pours;          /* blocks that wanted room one after the other, since */
    uint64_t pours_from;     /* `allocations` was this */
    weir__block_list spill;
    weir__lost lost;         /* until the pool knows */
    uint64_t own_of;         /* whose own stream it is, a thread's number; or 0: see
                                pool_own.c */
    _Alignas(WEIR__LINE) weir__bin bins[WEIR__BINS];
} weir__cache;

/* A request is none of its hits. */
static inline void weir__cache_missed(weir__cache *cache)
{
    const bool is_dry = cache->dry_from == cache->deallocations;
    cache->dry_from = cache->deallocations;
    cache->dry = cache->dry * is_dry + 1; /* one is as likely: this branches nowhere */
}

/* No stream's, and empty. */
extern weir__cache weir__no_cache;

/* What a thread has done with a pool since that was last folded in. Written by who is
 * behind the gate. */
typedef struct weir__tally {
    int64_t peak_bytes;      /* the most that was out */
    int64_t below_peak;      /* so much less is, which may come to less than nothing,
                                where others allocated */
    uint64_t allocations;    /* besides those that its caches count; less what these */
    uint64_t deallocations;  /* had counted then */
} weir__tally;

/* What hits need of it, in one line, but for `recent`. */
typedef struct weir__seat {
    _Alignas(WEIR__LINE) weir__gate gate;
    const struct weir__pool *quick; /* the same as `pool`, if quick calls may be quick;
                                       null: in a run, where threads take turns at each
                                       call, and no ledger that is told of it */
    weir__cache *out_of;     /* of `caches`: one that is allocated from; or
                                weir__no_cache */
    weir__cache *back_to;    /* and one that is freed to: often another */
    weir__tally tally;
    struct weir__pool *pool;
    weir__cache **caches;    /* open addressing by stream, a power of two, or null */
    uint32_t mask;
    uint32_t cache_count;
    uint32_t number;         /* the holder of its blocks */
    weir_stream wanted;      /* memory was freed on it, and it has no cache; or null */
    /* The rest is not behind the gate. */
    struct weir__seat *next;         /* of the pool: under its lock `seats` */
    struct weir__seat *next_mine;    /* of the thread: the thread's own */
    atomic_bool is_dead;     /* the pool has let go of it; the gate stays closed */
    bool is_left;            /* the thread has; set behind the gate */
    bool gives_back;         /* begun by a free: the thread allocates elsewhere */
    _Alignas(WEIR__LINE) weir__recent recent[WEIR__RECENT]; /* behind the gate */
} weir__seat;

static inline uint32_t weir__stream_hash(weir_stream stream)
{
    return (uint32_t)(((uint64_t)(uintptr_t)stream * WEIR__GOLDEN_RATIO) >> 40);
}

/* The seat's cache for `stream`, or null. Behind the gate. */
static inline weir__cache *weir__cache_find(const weir__seat *seat, weir_stream stream)
{
    if (seat->caches == NULL)
        return NULL;
    uint32_t at = weir__stream_hash(stream) & seat->mask;
    weir__cache *cache;
    while ((cache = seat->caches[at]) != NULL && cache->stream != stream)
        at = (at + 1) & seat->mask;
    return cache;
}

/* The same where the table has it at its first place; else null. */
static inline weir__cache *weir__cache_probe(const weir__seat *seat, weir_stream stream)
{
    if (seat->caches == NULL)
        return NULL;
    weir__cache *cache = seat->caches[weir__stream_hash(stream) & seat->mask];
    return cache != NULL && cache->stream == stream ? cache : NULL;
}

/* The sizes of a class are alike but for so many bits of what is one less. */
static inline uint32_t weir__class_shift(uint32_t below)
{
    return 31u - (uint32_t)__builtin_clz(below | (WEIR__SMALL_BINS - 1)) -
           WEIR__CLASS_BITS;
}

/* The largest of the class of `grains` grains, if a block may have so many to spare:
 * WEIR__SPARE_MOST, or none. */
static inline uint32_t weir__class_up(uint32_t grains, uint32_t spare)
{
    const uint32_t below = grains - 1;
    if (grains > WEIR__CLASSED_GRAINS)
        spare = 0;
    return (below | (((1u << weir__class_shift(below)) - 1) & spare)) + 1;
}

/* Which bin is for blocks of one grain more than `below`, where there is one. */
static inline size_t weir__cache_index_above(uint32_t below)
{
    const uint32_t shift = weir__class_shift(below);
    return ((size_t)shift << WEIR__CLASS_BITS) + (below >> shift);
}
_Static_assert(WEIR__CLASSED_GRAINS <= WEIR__CACHED_GRAINS, "all of a class have one");

/* Which bin alone may have blocks of `grains` grains, at least 1. What none may have
 * shares the last. */
static inline size_t weir__cache_bin_index(uint32_t grains)
{
    const uint32_t below = grains - 1;
    const uint32_t most = WEIR__CACHED_GRAINS - 1;
    return weir__cache_index_above(below < most ? below : most);
}

static inline weir__bin *weir__cache_bin(weir__cache *cache, uint32_t grains)
{
    return &cache->bins[weir__cache_bin_index(grains)];
}

/* The tag of blocks in the lists of `holder`. */
static inline uint32_t weir__holder_tag(uint32_t holder)
{
    return WEIR__HEAP_CACHED | holder << 3;
}

static inline weir__recent *weir__recent_of(weir__seat *seat, const void *ptr)
{
    const uint64_t product = (uint64_t)(uintptr_t)ptr * WEIR__RECENT_HASH;
    return &seat->recent[product >> WEIR__RECENT_SHIFT & (WEIR__RECENT - 1)];
}

/* How far a bin is from the first, in bytes; and the bin. */
static inline size_t weir__bin_offset(const weir__cache *cache, const weir__bin *bin)
{
    return (size_t)((const char *)bin - (const char *)cache->bins);
}

/* Of the last bin, which what no bin may have shares. */
static inline size_t weir__cache_last_offset(void)
{
    return (WEIR__BINS - 1) * sizeof(weir__bin);
}

static inline weir__bin *weir__bin_at(weir__cache *cache, size_t offset)
{
    return (weir__bin *)((char *)cache->bins + offset);
}

/* A block is handed out at `ptr`. */
static inline void weir__recent_set(weir__seat *seat, const void *ptr, uint32_t id,
                                    size_t bin)
{
    *weir__recent_of(seat, ptr) = (weir__recent){ id, (uint32_t)bin };
}

static inline uint32_t weir__link_of(const weir__heap_block *block)
{
    return atomic_load_explicit(&block->link, memory_order_relaxed);
}

/* Release: who sees the link of a list sees the tag CACHED that was set before. */
static inline void weir__link_set(weir__heap_block *block, uint32_t link)
{
    atomic_store_explicit(&block->link, link, memory_order_release);
}

/* Makes `id` the top of an empty stack. */
static inline void weir__bin_load(weir__bin *bin, const weir__heap_view *view,
                                  uint32_t id, uint32_t count)
{
    bin->top_id = id;
    bin->count = count;
    bin->top = weir__heap_at(view, id);
    bin->ptr = (void *)weir__heap_base(bin->top);
}

/* Whether there is a block on top, and sees to it if there is any. */
static inline bool weir__bin_is_ready(weir__bin *bin, const weir__heap_view *view)
{
    if (bin->count == 0 && bin->full != 0) {
        weir__bin_load(bin, view, bin->full, WEIR__MAGAZINE);
        bin->full = 0;
    }
    return bin->count != 0;
}

/* Takes the block on top, on `below`, off the stack. */
static inline void weir__bin_drop(weir__bin *bin, const weir__heap_view *view,
                                  uint32_t below)
{
    if (WEIR_LIKELY(--bin->count != 0))
        weir__bin_load(bin, view, below, bin->count);
    else
        bin->top_id = 0;
}

/* The block on top, off the stack; it keeps its tag. */
static inline weir__heap_block *weir__bin_pop(weir__bin *bin,
                                              const weir__heap_view *view)
{
    weir__heap_block *block = bin->top;
    weir__bin_drop(bin, view, weir__link_of(block));
    return block;
}

/* False: it is full, and so is its second magazine. */
static inline bool weir__bin_push(weir__bin *bin, weir__heap_block *block, uint32_t id,
                                  void *ptr, uint32_t tag)
{
    if (bin->count == WEIR__MAGAZINE) {
        if (bin->full != 0)
            return false;
        bin->full = bin->top_id;
        bin->top_id = bin->count = 0;
    }
    weir__heap_set_head(block, weir__heap_head(ptr, tag));
    weir__link_set(block, bin->top_id);
    bin->top = block;
    bin->ptr = ptr;
    bin->top_id = id;
    bin->count++;
    return true;
}

/* A list of blocks of `grains` grains was given up, at `met`, with so many entries.
 * That record may be anything by now. */
static inline void weir__lost_add(weir__lost *lost, const weir__heap_block *met,
                                  uint32_t grains, uint32_t blocks)
{
    lost->lists++;
    lost->blocks += blocks;
    lost->bytes += weir__grains_size(grains);
    if (weir__heap_grains(met) != 0) /* else a link that ended was followed */
        lost->ptr = (const void *)weir__heap_base(met);
}

/* ---- pool_cache.c: behind the gate ---- */

/* Puts all that is in a bin on the spill list. */
void weir__cache_empty_bin(weir__cache *cache, const weir__heap_view *view,
                           weir__bin *bin);

/* Makes room for a block of `grains` grains in a cache that has too much: of some bins,
 * of no smaller blocks, who has more than his share loses one to the spill list; and of
 * more bins, as long as that helps, until there is a good deal of room: so that one
 * lock is enough for many. */
void weir__cache_make_room(weir__cache *cache, const weir__heap_view *view,
                           uint32_t grains);

/* A bin for `grains` grains, emptied of other sizes: for what was asked for in vain. */
static inline weir__bin *weir__cache_claim(weir__cache *cache,
                                           const weir__heap_view *view, uint32_t grains)
{
    weir__bin *bin = weir__cache_bin(cache, grains);
    if (bin->grains != grains) {
        if ((bin->count | bin->full) != 0)
            weir__cache_empty_bin(cache, view, bin);
        bin->grains = grains;
    }
    return bin;
}

static inline void weir__list_push(weir__block_list *list, weir__heap_block *block,
                                   uint32_t id)
{
    weir__link_set(block, list->head);
    list->head = id;
    list->count++;
    list->bytes += weir__heap_bytes(block);
}

/* Puts a block that no bin takes on the spill list. */
static inline void weir__cache_spill(weir__cache *cache, weir__heap_block *block,
                                     uint32_t id)
{
    weir__heap_set_tag(block, cache->holder_tag);
    weir__list_push(&cache->spill, block, id);
}

/* The last block of `grains` grains that was spilt, off the list and OUT of the cache's
 * stream, with the tag `tag`; or none. */
weir__heap_taken weir__cache_unspill(weir__cache *cache,
                                     const weir__heap_view *view, uint32_t grains,
                                     uint32_t tag);

/* Puts all that is in the bins on the spill list as well. */
void weir__cache_spill_all(weir__cache *cache, const weir__heap_view *view);

/* Gives up the stack of a bin on top of which is somebody else's block. */
void weir__cache_give_up(weir__cache *cache, weir__bin *bin);

/* How many blocks it has. */
uint32_t weir__cache_blocks(const weir__cache *cache);

/* Stops if a cache contradicts itself or the heap's records. */
void weir__cache_verify(const weir__cache *cache, const weir__heap_view *view);

#endif
