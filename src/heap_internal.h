/* heap_internal.h - what the parts of the heap share: heap.c changes blocks,
 * heap_records.c has the records, heap_owners.c the clocks, heap_marks.c what a block
 * waits for, heap_map.c finds blocks by address, heap_bins.[ch] by size, heap_walk.c by
 * walking, heap_verify.c doubts it all. */
#ifndef WEIR_HEAP_INTERNAL_H
#define WEIR_HEAP_INTERNAL_H

#include "heap.h"
#include "internal.h"

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define WEIR__OWNERS_SPARE   2u
#define WEIR__SWEEP_LEAST    2u
#define WEIR__RESERVE_LEAST  2u
#define WEIR__ROWS_MADE      2u
#else
#define WEIR__OWNERS_SPARE   16u
#define WEIR__SWEEP_LEAST    16u
#define WEIR__RESERVE_LEAST  16u
#define WEIR__ROWS_MADE      8u
#endif
#define WEIR__RESERVE_SHARE 32u

/* ---- heap.c ---- */

/* What is RETURNED becomes FREE, as long as there are records and rows that nobody is
 * promised. */
void weir__heap_settle_some(weir__heap *heap);

/* ---- heap_records.c ---- */

static inline weir__heap_free *weir__heap_free_at(const weir__heap *heap, uint32_t id)
{
    return &heap->frees[id];
}

static inline uint32_t weir__heap_link(const weir__heap_block *block)
{
    return atomic_load_explicit(&block->link, memory_order_relaxed);
}

static inline void weir__heap_set_link(weir__heap_block *block, uint32_t link)
{
    atomic_store_explicit(&block->link, link, memory_order_relaxed);
}

/* Of a tie's `after`: the block is in the map, or missing there. */
#define WEIR__AFTER_MAPPED (UINT32_C(1) << 31)
_Static_assert(WEIR__ID_BITS < 31, "an id leaves room for it");

static inline bool weir__heap_is_mapped(const weir__heap_tie *tie)
{
    return (tie->after & WEIR__AFTER_MAPPED) != 0;
}

static inline uint32_t weir__heap_behind(const weir__heap_tie *tie)
{
    return tie->after & ~WEIR__AFTER_MAPPED;
}

static inline void weir__heap_set_behind(weir__heap_tie *tie, uint32_t id)
{
    tie->after = id | (tie->after & WEIR__AFTER_MAPPED);
}

static inline weir__heap_tie *weir__heap_tie_at(const weir__heap *heap, uint32_t id)
{
    return &heap->ties[id];
}

/* The free record of a block that has one. */
static inline weir__heap_free *weir__heap_free_of(const weir__heap *heap,
                                                  const weir__heap_block *block)
{
    return weir__heap_free_at(heap, weir__heap_link(block));
}

#define WEIR__KEY_OWNER_SHIFT 40u

/* Whose a free record is, and that without a place in a bin. */
static inline uint32_t weir__heap_slot_of(const weir__heap_free *record)
{
    return (uint32_t)(record->key >> WEIR__KEY_OWNER_SHIFT);
}

static inline void weir__heap_set_slot(weir__heap_free *record, uint32_t slot)
{
    record->key = (uint64_t)slot << WEIR__KEY_OWNER_SHIFT;
}

static inline void weir__heap_set_grains(weir__heap_block *block, uint32_t grains)
{
    atomic_store_explicit(&block->grains, grains, memory_order_relaxed);
}

static inline uintptr_t weir__heap_end_of(const weir__heap_block *block)
{
    return weir__heap_base(block) + weir__heap_bytes(block);
}

/* A number that is spread evenly, whatever the addresses or clocks are. */
static inline uint64_t weir__heap_hash(uint64_t x)
{
    x *= WEIR__GOLDEN_RATIO;
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

/* A block that was taken is so no more. It has no free record, and its link is idle. */
static inline void weir__heap_untake(weir__heap *heap, const weir__heap_block *block)
{
    WEIR_CHECK(weir__heap_state_of(block) == WEIR__HEAP_CACHED,
               "only what is held or came back can be released");
    heap->taken_blocks--;
    heap->taken_bytes -= weir__heap_bytes(block);
}

static inline void weir__heap_raise_to(uint64_t *number, uint64_t least)
{
    if (*number < least)
        *number = least;
}

/* Puts a block with several marks into the list, whose state the caller sets; and takes
 * it out. */
void weir__heap_limbo_insert(weir__heap *heap, uint32_t id);
void weir__heap_limbo_remove(weir__heap *heap, uint32_t id);

/* Whether there is one at `home` that nobody is promised. */
bool weir__heap_home_has_spare(const weir__heap *heap, uint32_t home);

/* A home that has a record to spare: `home` if it can be. */
WEIR_COLD uint32_t weir__heap_home_near(weir__heap *heap, uint32_t home);

/* What a record is set up with. */
typedef struct weir__heap_setup {
    uint64_t grain;
    uint32_t grains;
    uint32_t tag;
    uint32_t link;
    weir__heap_tie tie;
} weir__heap_setup;

/* Block records: who takes one was promised it. It is at `home` if there is one. */
static inline uint32_t weir__heap_record_take(weir__heap *heap, uint32_t home,
                                              weir__heap_setup as,
                                              weir__heap_block **out)
{
    if (WEIR_UNLIKELY(heap->spares[home].blocks == 0))
        home = weir__heap_home_near(heap, home);
    uint32_t id = heap->spares[home].blocks;
    weir__heap_block *block = weir__heap_block_of(heap, id);
    heap->spares[home].blocks = weir__heap_link(block);
    heap->spare_count--;

    atomic_store_explicit(&block->grains, as.grains, memory_order_relaxed);
    weir__heap_set_link(block, as.link);
    *weir__heap_tie_at(heap, id) = as.tie;
    weir__heap_set_head(block, as.grain << WEIR__TAG_BITS | as.tag);
    *out = block;
    return id;
}

static inline void weir__heap_record_give_back(weir__heap *heap, uint32_t id,
                                               weir__heap_block *block)
{
    uint32_t home = weir__heap_home_of(heap, id);
    weir__heap_set_tag(block, WEIR__HEAP_SPARE); /* and where it was */
    weir__heap_set_link(block, heap->spares[home].blocks);
    heap->spares[home].blocks = id;
    heap->spare_count++;
}

/* A home that has a free record to spare: `home` if it can be. One is spare. */
WEIR_COLD uint32_t weir__heap_free_near(weir__heap *heap, uint32_t home);

/* Free records, all 0; 0 if there is none. They are at home where their owner's block
 * records are, too; a spare one where the last owner's are. */
static inline uint32_t weir__heap_free_take(weir__heap *heap,
                                            const weir__heap_owner *owner)
{
    uint32_t home = weir__heap_home_for(owner);
    if (WEIR_UNLIKELY(heap->free_spare_count == 0))
        return 0;
    if (WEIR_UNLIKELY(heap->spares[home].frees == 0))
        home = weir__heap_free_near(heap, home);
    uint32_t id = heap->spares[home].frees;
    weir__heap_free *record = weir__heap_free_at(heap, id);
    heap->spares[home].frees = record->beside[0];
    record->beside[0] = 0;
    heap->free_spare_count--;
    return id;
}

static inline void weir__heap_free_give_back(weir__heap *heap, uint32_t id)
{
    weir__heap_free *record = weir__heap_free_at(heap, id);
    uint32_t *spares =
        &heap->spares[weir__heap_slot_of(record) % WEIR__HEAP_HOMES].frees;
    *record = (weir__heap_free){ .beside = { *spares } };
    *spares = id;
    heap->free_spare_count++;
}

/* How many are not promised to requests under way. */
static inline uint32_t weir__heap_free_unpromised(const weir__heap *heap)
{
    uint32_t promised = heap->promised * WEIR__HEAP_PROMISE_FREE;
    return heap->free_spare_count > promised ? heap->free_spare_count - promised : 0;
}

/* ---- heap_owners.c ---- */

bool weir__heap_owners_init(weir__heap *heap);
void weir__heap_owners_close(weir__heap *heap);
/* As weir__heap_owner_meet; or null. */
static inline weir__heap_owner *weir__heap_owner_take(weir__heap *heap, uint64_t clock)
{
    return heap->recent->clock == clock ? heap->recent
                                        : weir__heap_owner_meet(heap, clock);
}
size_t weir__heap_owner_bytes(const weir__heap *heap);
/* The rows of bins (heap_bins.c) of an owner that have nothing become spare. */
WEIR_COLD void weir__heap_rows_give_back(weir__heap *heap, weir__heap_owner *owner);
/* Keeps count of what an owner has in the bins: `more` blocks, 1 or -1. */
static inline void weir__heap_owner_counts(weir__heap *heap, weir__heap_owner *owner,
                                           int more)
{
    bool had = owner->free_blocks != 0;
    owner->free_blocks += (size_t)more;
    heap->free_blocks += (uint32_t)more;
    bool has = owner->free_blocks != 0;
    if (WEIR_UNLIKELY(had != has)) {
        heap->owning[owner->slot / 64] ^= UINT64_C(1) << owner->slot % 64;
        heap->owning_count += has ? 1 : SIZE_MAX;
        if (!has)
            weir__heap_rows_give_back(heap, owner);
    }
}

static inline void weir__heap_owner_loses(weir__heap *heap, weir__heap_owner *owner,
                                          uint32_t grains)
{
    weir__heap_owner_counts(heap, owner, -1);
    owner->free_bytes -= (size_t)grains << WEIR__HEAP_GRAIN_BITS;
}

/* ---- heap_map.c ---- */

/* False: no host memory, and there is nothing to close. */
bool weir__heap_map_init(weir__heap *heap);
void weir__heap_map_close(weir__heap *heap);
/* How many segments are made for so many bytes: the most that there can be, wherever
 * they begin, so that what is asked of the host does not depend on addresses. */
size_t weir__heap_map_segments(size_t bytes);
size_t weir__heap_map_bytes(const weir__heap *heap);
/* Where the segment after that of `address` begins. */
static inline uintptr_t weir__heap_map_next(uintptr_t address)
{
    return (address | (((uintptr_t)1 << WEIR__SEGMENT_BITS) - 1)) + 1;
}

/* Makes room where it is wanted, if there is host memory. */
void weir__heap_map_stock(weir__heap *heap);

/* Puts a block into the map, that is not there, or takes it out; and another record
 * stands for one, from then on. */
void weir__heap_map_insert(weir__heap *heap, uint32_t id, weir__heap_block *block);
void weir__heap_map_remove(weir__heap *heap, uint32_t id,
                           const weir__heap_block *block);
void weir__heap_map_replace(weir__heap *heap, uint32_t id, uint32_t with);

/* The block that begins at `base` and is in the map, or 0. */
uint32_t weir__heap_map_find(const weir__heap *heap, uintptr_t base);
/* The first block of a chunk. */
uint32_t weir__heap_map_first(const weir__heap *heap, const weir__chunk *chunk);
/* Puts segments for addresses from `base` to `end` into the map, or counts one more
 * chunk in those that are there. Reserved before. */
void weir__heap_map_add(weir__heap *heap, uintptr_t base, uintptr_t end);
void weir__heap_map_drop(weir__heap *heap, uintptr_t base, uintptr_t end);

/* ---- heap_bins.c ---- */

/* Which bin has blocks of so many grains. */
typedef struct weir__heap_bin {
    uint32_t row, bit;
} weir__heap_bin;

/* Whether that has blocks of no other size. */
static inline bool weir__heap_is_exact(uint32_t grains)
{
    return grains <= 1u << WEIR__EXACT_BITS;
}

static inline weir__heap_bin weir__heap_bin_of(uint32_t grains)
{
    if (weir__heap_is_exact(grains))
        return (weir__heap_bin){ (grains - 1) >> 6, (grains - 1) & 63u };
    uint32_t log2 = 31u - (uint32_t)__builtin_clz(grains);
    return (weir__heap_bin){ WEIR__EXACT_ROWS + log2 - WEIR__EXACT_BITS,
                             grains >> (log2 - 6) & 63u };
}

/* Whether a block of so many grains can be put into an owner's bins, with a row that
 * nobody is promised if it takes a further one. */
static inline bool weir__heap_has_row(const weir__heap *heap,
                                      const weir__heap_owner *owner, uint32_t grains)
{
    return heap->row_spare_count > heap->promised * WEIR__HEAP_PROMISE_FREE ||
           owner->rows[weir__heap_bin_of(grains).row] != NULL;
}

/* Sees to it that so many rows are spare. False: no host memory. */
bool weir__heap_rows_stock(weir__heap *heap, size_t wanted);
void weir__heap_rows_close(weir__heap *heap);
size_t weir__heap_rows_bytes(const weir__heap *heap);

/* ---- heap_verify.c ---- */

/* Stops unless the map agrees with itself, and has so many blocks. */
void weir__heap_map_verify(const weir__heap *heap, size_t count);
/* Stops unless the bins agree with the owners. */
void weir__heap_bins_verify(const weir__heap *heap);

#endif
