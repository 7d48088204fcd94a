/* heap_internal.h - what the parts of the heap share: heap.c changes blocks,
 * heap_records.c has the records, heap_owners.c the clocks, heap_map.c finds blocks by
 * address, heap_bins.c by size, heap_walk.c by walking, heap_verify.c doubts it all. */
#ifndef WEIR_HEAP_INTERNAL_H
#define WEIR_HEAP_INTERNAL_H

#include "heap.h"
#include "internal.h"

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define WEIR__FREE_SLAB_BITS 3u
#define WEIR__OWNERS_SPARE   2u
#define WEIR__SWEEP_LEAST    2u
#define WEIR__TABLES_MADE    2u
#define WEIR__RESERVE_LEAST  2u
#define WEIR__ROOM_LEAST     2u
#else
#define WEIR__FREE_SLAB_BITS 7u
#define WEIR__OWNERS_SPARE   16u
#define WEIR__SWEEP_LEAST    16u
#define WEIR__TABLES_MADE    64u
#define WEIR__RESERVE_LEAST  16u
#define WEIR__ROOM_LEAST     16u
#endif
#define WEIR__RESERVE_SHARE 32u

/* A page is given a table when so many blocks begin in it, and loses it again. */
#define WEIR__TABLE_FROM 8u
#define WEIR__CHAIN_FROM 3u

/* ---- heap.c ---- */

/* What is RETURNED becomes FREE: there are records for all of it. */
void weir__heap_settle(weir__heap *heap);

/* ---- heap_records.c ---- */

static inline weir__heap_free *weir__heap_free_at(const weir__heap *heap, uint32_t id)
{
    return &heap->free_slabs[id >> WEIR__FREE_SLAB_BITS]
                            [id & ((1u << WEIR__FREE_SLAB_BITS) - 1)];
}

static inline uint32_t weir__heap_link(const weir__heap_block *block)
{
    return atomic_load_explicit(&block->link, memory_order_relaxed);
}

static inline void weir__heap_set_link(weir__heap_block *block, uint32_t link)
{
    atomic_store_explicit(&block->link, link, memory_order_relaxed);
}

/* The free record of a block that has one. */
static inline weir__heap_free *weir__heap_free_of(const weir__heap *heap,
                                                  const weir__heap_block *block)
{
    return weir__heap_free_at(heap, weir__heap_link(block));
}

#define WEIR__KEY_OWNER_SHIFT  40u
#define WEIR__KEY_GRAINS_SHIFT 8u

/* Whose a free record is, and that without a place in a bin. */
static inline uint32_t weir__heap_slot_of(const weir__heap_free *record)
{
    return (uint32_t)(record->key >> WEIR__KEY_OWNER_SHIFT);
}

static inline void weir__heap_set_slot(weir__heap_free *record, uint32_t slot)
{
    record->key = (uint64_t)slot << WEIR__KEY_OWNER_SHIFT;
}

static inline void weir__heap_set_grains(weir__heap_block *block, size_t bytes)
{
    atomic_store_explicit(&block->grains, (uint32_t)(bytes >> WEIR__HEAP_GRAIN_BITS),
                          memory_order_relaxed);
}

static inline uintptr_t weir__heap_end_of(const weir__heap_block *block)
{
    return weir__heap_base(block) + weir__heap_bytes(block);
}

/* A number that is spread evenly, whatever the addresses or clocks are. */
static inline uint64_t weir__heap_hash(uint64_t x)
{
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

/* Where the record of a block is, and where those of an owner's blocks should be. */
static inline uint8_t *weir__heap_home_at(const weir__heap *heap, uint32_t id)
{
    const uint32_t records = 1u << WEIR__SLAB_BITS;
    weir__heap_block *slab = weir__heap_block_of(heap, id & ~(records - 1));
    return &((uint8_t *)(slab + records))[(id & (records - 1)) >> WEIR__HOME_BITS];
}

static inline uint32_t weir__heap_home_of(const weir__heap *heap, uint32_t id)
{
    return *weir__heap_home_at(heap, id);
}

static inline uint32_t weir__heap_home_for(const weir__heap_owner *owner)
{
    return owner->slot % WEIR__HEAP_HOMES;
}
/* Whether there is one at `home` that nobody is promised. */
bool weir__heap_home_has_spare(const weir__heap *heap, uint32_t home);

/* Block records: one is taken only by who was promised it, and set up in a given state
 * without neighbours; at `home` if there is one. */
uint32_t weir__heap_record_take(weir__heap *heap, uint32_t home, uintptr_t base,
                                size_t bytes, weir__heap_state state);
void weir__heap_record_give_back(weir__heap *heap, uint32_t id);

/* Free records; 0 if there is none. */
uint32_t weir__heap_free_take(weir__heap *heap);
void weir__heap_free_give_back(weir__heap *heap, uint32_t id);
/* How many are not promised to requests under way. */
uint32_t weir__heap_free_unpromised(const weir__heap *heap);

/* Zeroed memory that stays until the heap is closed, for an array of the view; null: no
 * host memory. */
void *weir__heap_array_make(weir__heap *heap, size_t bytes);

/* ---- heap_owners.c ---- */

bool weir__heap_owners_init(weir__heap *heap);
void weir__heap_owners_close(weir__heap *heap);
/* The owner of a clock; makes one of a spare if need be. Null: there is none. */
weir__heap_owner *weir__heap_owner_meet(weir__heap *heap, uint64_t clock);
static inline weir__heap_owner *weir__heap_owner_take(weir__heap *heap, uint64_t clock)
{
    return heap->recent->clock == clock ? heap->recent
                                        : weir__heap_owner_meet(heap, clock);
}
size_t weir__heap_owner_bytes(const weir__heap *heap);
/* Keeps count of what an owner has in the bins. */
static inline void weir__heap_owner_gains(weir__heap *heap, weir__heap_owner *owner,
                                          size_t bytes)
{
    if (owner->free_blocks++ == 0) {
        heap->owning[owner->slot / 64] |= UINT64_C(1) << owner->slot % 64;
        heap->owning_count++;
    }
    owner->free_bytes += bytes;
    heap->free_blocks++;
}

static inline void weir__heap_owner_loses(weir__heap *heap, weir__heap_owner *owner,
                                          size_t bytes)
{
    if (--owner->free_blocks == 0) {
        heap->owning[owner->slot / 64] &= ~(UINT64_C(1) << owner->slot % 64);
        heap->owning_count--;
    }
    owner->free_bytes -= bytes;
    heap->free_blocks--;
}

/* ---- heap_map.c ---- */

void weir__heap_map_close(weir__heap *heap);
/* How many segments are made for so many bytes: the most that there can be, wherever
 * they begin, so that what is asked of the host does not depend on addresses. */
size_t weir__heap_map_segments(size_t bytes);
size_t weir__heap_map_bytes(const weir__heap *heap);
/* Makes a table if one is wanted, and one can be had. */
void weir__heap_map_stock(weir__heap *heap);
void weir__heap_map_insert(weir__heap *heap, uint32_t id);
void weir__heap_map_remove(weir__heap *heap, uint32_t id);

/* The entry of the page of what is in the heap. */
static inline _Atomic uint32_t *weir__heap_page(const weir__heap *heap,
                                                uintptr_t address)
{
    weir__heap_index *index =
        atomic_load_explicit(&heap->view.index, memory_order_relaxed);
    uint64_t number = (uint64_t)address >> WEIR__SEGMENT_BITS;
    uint32_t slot = (uint32_t)((number * WEIR__SEGMENT_HASH) >> index->shift);
    weir__heap_segment *segment;
    for (;; slot = (slot + 1) & index->mask) {
        segment = atomic_load_explicit(&index->slots[slot], memory_order_relaxed);
        WEIR_ASSERT(segment != NULL, "what is in the heap has a segment");
        if (atomic_load_explicit(&segment->number, memory_order_relaxed) == number)
            break;
    }
    return &segment->pages[(address >> WEIR__PAGE_BITS) & (WEIR__SEGMENT_PAGES - 1)];
}

/* Where the chain of an address begins: in the page's entry or in its table's. */
static inline _Atomic uint32_t *weir__heap_chain(const weir__heap *heap,
                                                 _Atomic uint32_t *page,
                                                 uintptr_t address)
{
    uint32_t id = atomic_load_explicit(page, memory_order_relaxed);
    if ((id & WEIR__PAGE_IS_TABLE) == 0)
        return page;
    weir__heap_table *_Atomic *tables =
        atomic_load_explicit(&heap->view.tables, memory_order_relaxed);
    weir__heap_table *table = atomic_load_explicit(&tables[id & ~WEIR__PAGE_IS_TABLE],
                                                   memory_order_relaxed);
    return &table->ids[(address >> WEIR__HEAP_GRAIN_BITS) & 15u];
}

/* The first id of that chain, or 0. */
static inline uint32_t weir__heap_chain_at(const weir__heap *heap, uintptr_t address)
{
    _Atomic uint32_t *page = weir__heap_page(heap, address);
    return atomic_load_explicit(weir__heap_chain(heap, page, address),
                                memory_order_relaxed);
}

/* The record that begins at `base` with `before`, which is not 0, in front of it; 0:
 * there is none. Only one record has a given block before it. */
static inline uint32_t weir__heap_map_behind(const weir__heap *heap, uintptr_t base,
                                             uint32_t before)
{
    uint32_t id = weir__heap_chain_at(heap, base);
    while (id != 0) {
        const weir__heap_block *block = weir__heap_block_of(heap, id);
        if (block->before == before)
            break;
        id = atomic_load_explicit(&block->chain, memory_order_relaxed);
    }
    return id;
}

/* The block that begins at `base` with none in front of it, or 0. */
uint32_t weir__heap_map_first(const weir__heap *heap, uintptr_t base);
/* The FREE block whose free record is `record`, which is in a bin. */
uint32_t weir__heap_map_free(const weir__heap *heap, uint32_t record);
/* Puts segments for addresses from `base` to `end` into the index, or counts one more
 * chunk in those that are there. Reserved before. */
void weir__heap_map_add(weir__heap *heap, uintptr_t base, uintptr_t end);
void weir__heap_map_drop(weir__heap *heap, uintptr_t base, uintptr_t end);

/* ---- heap_bins.c ---- */

/* Which bin has blocks of so many grains. */
typedef struct weir__heap_bin {
    uint32_t word, bit;
} weir__heap_bin;

static inline weir__heap_bin weir__heap_bin_of(uint32_t grains)
{
    uint32_t log2 = 31u - (uint32_t)__builtin_clz(grains | 64u);
    uint32_t root = ((log2 - 6) << 6) + (grains >> (log2 - 6));
    return (weir__heap_bin){ root >> 6, root & 63u };
}

/* What is FREE, or becomes so now: its record has an owner and a number. */
void weir__heap_bins_insert(weir__heap *heap, const weir__heap_block *block);
void weir__heap_bins_remove(weir__heap *heap, const weir__heap_block *block);

/* ---- heap_verify.c ---- */

/* Stops unless the map agrees with itself, and has so many blocks and ends. */
void weir__heap_map_verify(const weir__heap *heap, size_t count);
/* Stops unless the bins agree with the owners. */
void weir__heap_bins_verify(const weir__heap *heap);

#endif
