/* heap_map.c - from an address to what begins there: the side of heap_records.h that
 * writes.
 *
 * Who looks without the lock sees each entry either as it was or as it is, and judges
 * by the record that it finds. So entries may be moved as it suits: a look meanwhile
 * misses at worst. What a look may stand on (segments, tables, arrays) stays what it is
 * until the heap is closed; segments and tables that nobody needs are used again. */
#include "heap_internal.h"

#include <string.h>

#include "internal.h"

static uint32_t entry_load(const _Atomic uint32_t *entry)
{
    return atomic_load_explicit(entry, memory_order_relaxed);
}

/* Release: who follows an id finds the record as it was set up before. */
static void entry_store(_Atomic uint32_t *entry, uint32_t id)
{
    atomic_store_explicit(entry, id, memory_order_release);
}

static uint64_t number_of(uintptr_t address)
{
    return (uint64_t)address >> WEIR__SEGMENT_BITS;
}

static uint64_t segment_number(const weir__heap_segment *segment)
{
    return atomic_load_explicit(&segment->number, memory_order_relaxed);
}

/* ---- the index ---- */

static weir__heap_index *index_of(const weir__heap *heap)
{
    return atomic_load_explicit(&heap->view.index, memory_order_relaxed);
}

static weir__heap_segment *slot_load(const weir__heap_index *index, uint32_t slot)
{
    return atomic_load_explicit(&index->slots[slot], memory_order_relaxed);
}

static uint32_t home_of(const weir__heap_index *index, uint64_t number)
{
    return (uint32_t)((number * WEIR__SEGMENT_HASH) >> index->shift);
}

/* Where a segment is, or would be. */
static uint32_t slot_of(const weir__heap_index *index, uint64_t number)
{
    uint32_t slot = home_of(index, number);
    const weir__heap_segment *segment;
    while ((segment = slot_load(index, slot)) != NULL &&
           segment_number(segment) != number)
        slot = (slot + 1) & index->mask;
    return slot;
}

static inline weir__heap_segment *segment_find(const weir__heap *heap, uint64_t number)
{
    const weir__heap_index *index = index_of(heap);
    return index != NULL ? slot_load(index, slot_of(index, number)) : NULL;
}

static void index_put(weir__heap_index *index, weir__heap_segment *segment)
{
    atomic_store_explicit(&index->slots[slot_of(index, segment_number(segment))],
                          segment, memory_order_release);
}

/* Those behind the hole move up, unless they are at home behind it. For a moment one
 * stands there twice. */
static void index_remove(weir__heap_index *index, const weir__heap_segment *segment)
{
    uint32_t hole = slot_of(index, segment_number(segment));
    weir__heap_segment *next;
    for (uint32_t slot = (hole + 1) & index->mask;
         (next = slot_load(index, slot)) != NULL; slot = (slot + 1) & index->mask) {
        uint32_t home = home_of(index, segment_number(next));
        if (((slot - home) & index->mask) < ((slot - hole) & index->mask))
            continue;
        atomic_store_explicit(&index->slots[hole], next, memory_order_release);
        hole = slot;
    }
    atomic_store_explicit(&index->slots[hole], NULL, memory_order_release);
}

/* Room for `count` segments, with half of the slots left free. */
static bool index_reserve(weir__heap *heap, size_t count)
{
    weir__heap_index *old = index_of(heap);
    uint32_t log2 = old != NULL ? 64 - old->shift : 2;
    if (old != NULL && count * 2 <= (size_t)old->mask + 1)
        return true;
    while (((size_t)1 << log2) < count * 2)
        log2++;
    size_t slots = (size_t)1 << log2;
    weir__heap_index *index =
        weir__heap_array_make(heap, sizeof *index + slots * sizeof index->slots[0]);
    if (index == NULL)
        return false;
    index->shift = 64 - log2;
    index->mask = (uint32_t)(slots - 1);
    for (uint32_t slot = 0; old != NULL && slot <= old->mask; slot++) {
        if (slot_load(old, slot) != NULL)
            index_put(index, slot_load(old, slot));
    }
    atomic_store_explicit(&heap->view.index, index, memory_order_release);
    return true;
}

/* ---- segments ---- */

struct weir__heap_segments {
    weir__heap_segments *next;
    weir__heap_segment segments[];
};

/* Makes `count` more, all at once. */
static bool segments_make(weir__heap *heap, size_t count)
{
    size_t bytes = sizeof(weir__heap_segments) + count * sizeof(weir__heap_segment);
    weir__heap_segments *made = weir__host_alloc(bytes);
    if (made == NULL)
        return false;
    memset(made, 0, bytes);
    made->next = heap->segments;
    heap->segments = made;
    for (size_t i = count; i-- > 0;) {
        made->segments[i].next_spare = heap->segment_spares;
        heap->segment_spares = &made->segments[i];
    }
    heap->segment_count += count;
    heap->segment_spare_count += count;
    return true;
}

size_t weir__heap_map_segments(size_t bytes)
{
    return (bytes >> WEIR__SEGMENT_BITS) + 2;
}

weir_status weir__heap_reserve(weir__heap *heap, uintptr_t base, size_t bytes)
{
    const uint64_t top = UINT64_C(1) << WEIR__HEAP_ADDRESS_BITS;
    if ((uint64_t)base >= top || bytes >= top - (uint64_t)base)
        return weir__fail(WEIR_NOT_SUPPORTED,
                          "pool: upstream has handed out %zu bytes at %p; addresses "
                          "from 2^48 on are not supported",
                          bytes, (void *)base);
    size_t wanted = heap->segments_wanted + weir__heap_map_segments(bytes);
    bool there = index_reserve(heap, wanted);
    if (there && heap->segment_count < wanted)
        there = segments_make(heap, wanted - heap->segment_count);
    if (!there)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "pool: no memory for records");
    return WEIR_OK;
}

void weir__heap_map_add(weir__heap *heap, uintptr_t base, uintptr_t end)
{
    for (uint64_t n = number_of(base); n <= number_of(end); n++) {
        weir__heap_segment *segment = segment_find(heap, n);
        if (segment == NULL) {
            segment = heap->segment_spares;
            WEIR_CHECK(segment != NULL, "room in the map was reserved");
            heap->segment_spares = segment->next_spare;
            heap->segment_spare_count--;
            atomic_store_explicit(&segment->number, n, memory_order_relaxed);
            index_put(index_of(heap), segment);
        }
        segment->chunks++;
    }
}

void weir__heap_map_drop(weir__heap *heap, uintptr_t base, uintptr_t end)
{
    for (uint64_t n = number_of(base); n <= number_of(end); n++) {
        weir__heap_segment *segment = segment_find(heap, n);
        if (--segment->chunks > 0)
            continue;
        index_remove(index_of(heap), segment);
        segment->next_spare = heap->segment_spares;
        heap->segment_spares = segment;
        heap->segment_spare_count++;
    }
}

/* ---- tables ---- */

struct weir__heap_tables {
    weir__heap_tables *next;
    /* At a line's beginning somewhere in here, for one each. */
    char room[(WEIR__TABLES_MADE + 1) * sizeof(weir__heap_table)];
};

static weir__heap_table *table_at(const weir__heap *heap, uint32_t number)
{
    weir__heap_table *_Atomic *tables =
        atomic_load_explicit(&heap->view.tables, memory_order_relaxed);
    return atomic_load_explicit(&tables[number], memory_order_relaxed);
}

static uint32_t grain_of(uintptr_t address)
{
    return (uint32_t)(address >> WEIR__HEAP_GRAIN_BITS) & (WEIR__PAGE_GRAINS - 1);
}

/* Room for the names of `room` tables, in the view and in the stack of spare ones. */
static bool tables_grow(weir__heap *heap, uint32_t room)
{
    weir__heap_table *_Atomic *old =
        atomic_load_explicit(&heap->view.tables, memory_order_relaxed);
    uint32_t *spares = weir__host_alloc(room * sizeof *spares);
    weir__heap_table *_Atomic *tables =
        spares != NULL ? weir__heap_array_make(heap, room * sizeof *tables) : NULL;
    if (tables == NULL) {
        weir__host_free(spares);
        return false;
    }
    for (uint32_t i = 0; i < heap->table_count; i++)
        atomic_store_explicit(&tables[i], table_at(heap, i), memory_order_relaxed);
    if (old != NULL)
        memcpy(spares, heap->table_spares, heap->table_spare_count * sizeof *spares);
    weir__host_free(heap->table_spares);
    atomic_store_explicit(&heap->view.tables, tables, memory_order_release);
    heap->table_spares = spares;
    heap->table_room = room;
    return true;
}

void weir__heap_map_stock(weir__heap *heap)
{
    uint32_t needed = heap->table_count + WEIR__TABLES_MADE;
    if (needed > heap->table_room && !tables_grow(heap, needed + heap->table_room))
        return;
    weir__heap_tables *made = weir__host_alloc(sizeof *made);
    if (made == NULL)
        return;
    memset(made, 0, sizeof *made);
    made->next = heap->tables;
    heap->tables = made;
    size_t past = (uintptr_t)made->room % sizeof(weir__heap_table);
    void *first = made->room + (past != 0 ? sizeof(weir__heap_table) - past : 0);
    weir__heap_table *_Atomic *tables =
        atomic_load_explicit(&heap->view.tables, memory_order_relaxed);
    for (uint32_t i = 0; i < WEIR__TABLES_MADE; i++) {
        uint32_t number = heap->table_count++;
        atomic_store_explicit(&tables[number], (weir__heap_table *)first + i,
                              memory_order_release);
        heap->table_spares[heap->table_spare_count++] = number;
    }
    heap->wants_table = false;
}

static bool is_end(const weir__heap_block *block)
{
    return weir__heap_state_of(block) == WEIR__HEAP_END;
}

static bool is_same_page(uintptr_t a, uintptr_t b)
{
    return (a ^ b) >> WEIR__PAGE_BITS == 0;
}

/* The END that stands behind a block, in its page; or null. Only while it does, what
 * the END names is kept right. */
static weir__heap_block *end_behind(const weir__heap *heap,
                                    const weir__heap_block *block)
{
    weir__heap_block *after = weir__heap_block_of(heap, weir__heap_behind(block));
    return is_end(after) && is_same_page(weir__heap_base(block), weir__heap_base(after))
               ? after
               : NULL;
}

/* The next block that begins in the page that a block begins in, maybe another chunk's;
 * or 0. */
static uint32_t next_in_page(const weir__heap *heap, const weir__heap_block *block)
{
    const weir__heap_block *end = end_behind(heap, block);
    uint32_t id = weir__heap_behind(end != NULL ? end : block);
    if (id == 0)
        return 0;
    uintptr_t base = weir__heap_base(block);
    uintptr_t next = weir__heap_base(weir__heap_block_of(heap, id));
    WEIR_ASSERT(!is_same_page(base, next) || base < next, "no page goes round");
    return is_same_page(base, next) ? id : 0;
}

static void page_to_table(weir__heap *heap, _Atomic uint32_t *entry)
{
    uint32_t number = heap->table_spares[--heap->table_spare_count];
    weir__heap_table *table = table_at(heap, number);
    for (uint32_t id = entry_load(entry); id != 0;) {
        const weir__heap_block *block = weir__heap_block_of(heap, id);
        entry_store(&table->ids[grain_of(weir__heap_base(block))], id);
        id = next_in_page(heap, block);
    }
    entry_store(entry, number | WEIR__PAGE_IS_TABLE);
}

/* What stands behind an END of one chunk is not kept in a page that has a table. */
static void table_to_page(weir__heap *heap, _Atomic uint32_t *entry)
{
    uint32_t number = entry_load(entry) & ~WEIR__PAGE_IS_TABLE, id, next = 0;
    weir__heap_table *table = table_at(heap, number);
    for (uint32_t grain = WEIR__PAGE_GRAINS; grain-- > 0;) {
        if ((id = entry_load(&table->ids[grain])) == 0)
            continue;
        weir__heap_block *end = end_behind(heap, weir__heap_block_of(heap, id));
        if (end != NULL)
            weir__heap_set_behind(end, next);
        next = id;
    }
    entry_store(entry, next);
    for (uint32_t grain = 0; grain < WEIR__PAGE_GRAINS; grain++)
        entry_store(&table->ids[grain], 0);
    heap->table_spares[heap->table_spare_count++] = number;
}

static uint32_t grains_in_use(const weir__heap_table *table)
{
    uint32_t count = 0;
    for (uint32_t grain = 0; grain < WEIR__PAGE_GRAINS; grain++)
        count += entry_load(&table->ids[grain]) != 0;
    return count;
}

/* ---- pages ---- */

/* Null: the page has none. */
static weir__heap_table *table_of(const weir__heap *heap, uint32_t value)
{
    return (value & WEIR__PAGE_IS_TABLE) != 0
               ? table_at(heap, value & ~WEIR__PAGE_IS_TABLE)
               : NULL;
}

/* Whether the one in front, in the same chunk, begins in the same page. */
static bool has_front_in_page(const weir__heap *heap, const weir__heap_block *block)
{
    return block->before != 0 &&
           is_same_page(weir__heap_base(block),
                        weir__heap_base(weir__heap_block_of(heap, block->before)));
}

/* How many blocks of one chunk begin in a page, up to one and from the next on. */
static uint32_t crowd_around(const weir__heap *heap, const weir__heap_block *block)
{
    uint32_t count = 1;
    for (const weir__heap_block *at = block; has_front_in_page(heap, at); count++)
        at = weir__heap_block_of(heap, at->before);
    for (uint32_t id = next_in_page(heap, block); id != 0; count++)
        id = next_in_page(heap, weir__heap_block_of(heap, id));
    return count;
}

/* The last block in a page that begins in front of `base`, or 0; it is another chunk's.
 * *behind is what follows, or 0. */
static uint32_t other_in_front(const weir__heap *heap, uint32_t first, uintptr_t base,
                               uint32_t *behind)
{
    uint32_t in_front = 0;
    for (*behind = first; *behind != 0;) {
        const weir__heap_block *block = weir__heap_block_of(heap, *behind);
        if (weir__heap_base(block) >= base)
            break;
        in_front = *behind;
        *behind = next_in_page(heap, block);
    }
    return in_front;
}

/* What follows the last block of a chunk in its page, or is the first there. */
static void link_page(const weir__heap *heap, _Atomic uint32_t *entry,
                      uint32_t in_front, uint32_t id)
{
    if (in_front == 0) {
        entry_store(entry, id);
        return;
    }
    weir__heap_block *end = end_behind(heap, weir__heap_block_of(heap, in_front));
    WEIR_ASSERT(end != NULL, "only at its end does a chunk share a page");
    weir__heap_set_behind(end, id);
}

/* The first block of its chunk in a page. What other chunks have there follows its
 * chunk's end, or has it follow theirs. */
static void insert_first(weir__heap *heap, _Atomic uint32_t *entry, uint32_t id)
{
    weir__heap_block *block = weir__heap_block_of(heap, id);
    uint32_t in_front = 0, behind = entry_load(entry);
    if (block->before == 0)
        in_front = other_in_front(heap, behind, weir__heap_base(block), &behind);
    weir__heap_block *end = end_behind(heap, block);
    if (end != NULL)
        weir__heap_set_behind(end, behind);
    link_page(heap, entry, in_front, id);
}

void weir__heap_map_insert(weir__heap *heap, uint32_t id)
{
    const weir__heap_block *block = weir__heap_block_of(heap, id);
    uintptr_t base = weir__heap_base(block);
    _Atomic uint32_t *entry = weir__heap_page(heap, base);
    weir__heap_table *table = table_of(heap, entry_load(entry));
    if (WEIR_UNLIKELY(table != NULL)) {
        entry_store(&table->ids[grain_of(base)], id);
    } else if (!has_front_in_page(heap, block)) {
        insert_first(heap, entry, id);
    } else if (crowd_around(heap, block) >= WEIR__TABLE_FROM) {
        if (heap->table_spare_count > 0)
            page_to_table(heap, entry);
        else
            heap->wants_table = true;
    }
}

/* Puts another record, or none (0), in the place of one. */
static void replace(weir__heap *heap, uint32_t id, uint32_t with)
{
    const weir__heap_block *block = weir__heap_block_of(heap, id);
    uintptr_t base = weir__heap_base(block);
    _Atomic uint32_t *entry = weir__heap_page(heap, base);
    weir__heap_table *table = table_of(heap, entry_load(entry));
    if (WEIR_UNLIKELY(table != NULL)) {
        entry_store(&table->ids[grain_of(base)], with);
        if (with == 0 && grains_in_use(table) <= WEIR__CHAIN_FROM)
            table_to_page(heap, entry);
        return;
    }
    if (has_front_in_page(heap, block))
        return;
    uint32_t in_front = 0, first = entry_load(entry);
    if (WEIR_UNLIKELY(first != id))
        in_front = other_in_front(heap, first, base, &first);
    link_page(heap, entry, in_front, with != 0 ? with : next_in_page(heap, block));
}

void weir__heap_map_remove(weir__heap *heap, uint32_t id)
{
    replace(heap, id, 0);
}

void weir__heap_map_replace(weir__heap *heap, uint32_t id, uint32_t with)
{
    replace(heap, id, with);
}

uint32_t weir__heap_map_first(const weir__heap *heap, uintptr_t base)
{
    uint32_t id = entry_load(weir__heap_page(heap, base));
    const weir__heap_table *table = table_of(heap, id);
    if (table != NULL)
        id = entry_load(&table->ids[grain_of(base)]);
    while (id != 0) {
        const weir__heap_block *block = weir__heap_block_of(heap, id);
        if (weir__heap_base(block) == base)
            break;
        id = next_in_page(heap, block);
    }
    return id;
}

/* ---- the end, and what it all costs ---- */

void weir__heap_map_close(weir__heap *heap)
{
    while (heap->segments != NULL) {
        weir__heap_segments *segments = heap->segments;
        heap->segments = segments->next;
        weir__host_free(segments);
    }
    while (heap->tables != NULL) {
        weir__heap_tables *tables = heap->tables;
        heap->tables = tables->next;
        weir__host_free(tables);
    }
    weir__host_free(heap->table_spares);
}

size_t weir__heap_map_bytes(const weir__heap *heap)
{
    size_t made = heap->table_count / WEIR__TABLES_MADE;
    return heap->segment_count * sizeof(weir__heap_segment) +
           made * sizeof(weir__heap_tables) + heap->table_room * sizeof(uint32_t);
}

/* ---- verify ---- */

/* How many blocks a page has; all begin in it, in order. */
static size_t page_verify(const weir__heap *heap, uint32_t first, uint64_t page)
{
    size_t count = 0;
    uintptr_t past = 0;
    for (uint32_t id = first; id != 0; count++) {
        const weir__heap_block *block = weir__heap_block_of(heap, id);
        uintptr_t base = weir__heap_base(block);
        WEIR_CHECK((uint64_t)base >> WEIR__PAGE_BITS == page && base >= past &&
                       !is_end(block),
                   "a page has what begins in it");
        past = base + 1;
        id = next_in_page(heap, block);
    }
    return count;
}

static size_t table_verify(const weir__heap *heap, const weir__heap_table *table,
                           uint64_t page)
{
    size_t count = 0;
    for (uint32_t grain = 0; grain < WEIR__PAGE_GRAINS; grain++) {
        uint32_t id = entry_load(&table->ids[grain]);
        if (id == 0)
            continue;
        const weir__heap_block *block = weir__heap_block_of(heap, id);
        WEIR_CHECK((uint64_t)weir__heap_base(block) >> WEIR__HEAP_GRAIN_BITS ==
                           page * WEIR__PAGE_GRAINS + grain &&
                       !is_end(block),
                   "a table has what begins in its page");
        count++;
    }
    WEIR_CHECK(count > WEIR__CHAIN_FROM, "few need no table");
    return count;
}

static size_t segment_verify(const weir__heap *heap, const weir__heap_segment *segment,
                             size_t *tables)
{
    size_t count = 0;
    for (uint32_t i = 0; i < WEIR__SEGMENT_PAGES; i++) {
        uint32_t entry = entry_load(&segment->pages[i]);
        uint64_t page = segment_number(segment) * WEIR__SEGMENT_PAGES + i;
        const weir__heap_table *table = table_of(heap, entry);
        count += table != NULL ? table_verify(heap, table, page)
                               : page_verify(heap, entry, page);
        *tables += table != NULL;
    }
    return count;
}

void weir__heap_map_verify(const weir__heap *heap, size_t count)
{
    const weir__heap_index *index = index_of(heap);
    size_t found = 0, segments = 0, tables = 0;
    for (uint32_t slot = 0; index != NULL && slot <= index->mask; slot++) {
        const weir__heap_segment *segment = slot_load(index, slot);
        if (segment == NULL)
            continue;
        WEIR_CHECK(segment->chunks > 0 &&
                       segment_find(heap, segment_number(segment)) == segment,
                   "a segment is found by its number while a chunk needs it");
        found += segment_verify(heap, segment, &tables);
        segments++;
    }
    WEIR_CHECK(found == count, "the map has every block, once");
    WEIR_CHECK(segments + heap->segment_spare_count == heap->segment_count,
               "no segment is lost");
    WEIR_CHECK(tables + heap->table_spare_count == heap->table_count,
               "no table is lost");
}
