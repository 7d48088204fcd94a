/* heap_map.c - from an address to what begins there: the side of heap_records.h that
 * writes.
 *
 * Who looks without the lock judges by the record that he finds. So entries may be
 * moved as it suits: a look meanwhile misses at worst. What a look may stand on
 * (segments, the index) stays what it is until the heap is closed; segments that nobody
 * needs are used again.
 *
 * A segment that is three quarters full wants a larger one in its place, which the next
 * promise sees to. Where there is no host memory for that it fills up, and then blocks
 * are missing from it: to find these, under the lock, chunks are walked. */
#include "heap_internal.h"

#include <string.h>

#include "internal.h"

#define ID_MASK ((1u << WEIR__ID_BITS) - 1)

static uint64_t number_of(uintptr_t address)
{
    return (uint64_t)address >> WEIR__SEGMENT_BITS;
}

/* ---- entries ---- */

static uint32_t entry_load(const weir__heap_segment *segment, uint32_t at)
{
    return atomic_load_explicit(&segment->entries[at], memory_order_relaxed);
}

/* Release: who follows an id finds the record as it was set up before. */
static void entry_store(weir__heap_segment *segment, uint32_t at, uint32_t entry)
{
    atomic_store_explicit(&segment->entries[at], entry, memory_order_release);
}

static uint32_t mask_of(const weir__heap_segment *segment)
{
    return (1u << segment->bits) - 1;
}

static uint32_t home_of(const weir__heap_segment *segment, uintptr_t base)
{
    return weir__heap_hash_of(base) >> (32 - segment->bits);
}

/* Where the entry of a block is; or the first that is free behind its home, or, where
 * none is, its home. */
static uint32_t entry_of(const weir__heap_segment *segment, uint32_t id, uintptr_t base)
{
    const uint32_t home = home_of(segment, base), mask = mask_of(segment);
    uint32_t at = home, entry;
    while ((entry = entry_load(segment, at)) != 0 && (entry & ID_MASK) != id) {
        at = (at + 1) & mask;
        if (at == home)
            break;
    }
    return at;
}

static bool is_entry_of(const weir__heap_segment *segment, uint32_t at, uint32_t id)
{
    return (entry_load(segment, at) & ID_MASK) == id;
}

static void entry_set(weir__heap_segment *segment, uint32_t at, uint32_t id,
                      uintptr_t base)
{
    const uint32_t print = weir__heap_print_of(weir__heap_hash_of(base));
    entry_store(segment, at, print << WEIR__ID_BITS | id);
}

static uintptr_t base_of(const weir__heap *heap, uint32_t id)
{
    return weir__heap_base(weir__heap_block_of(heap, id));
}

/* What stands behind an entry that goes moves up, unless it is at home behind that.
 * For a moment one stands there twice. */
static void entry_remove(const weir__heap *heap, weir__heap_segment *segment,
                         uint32_t gone)
{
    const uint32_t mask = mask_of(segment);
    uint32_t hole = gone, entry;
    for (uint32_t at = (gone + 1) & mask;
         at != gone && (entry = entry_load(segment, at)) != 0; at = (at + 1) & mask) {
        uint32_t home = home_of(segment, base_of(heap, entry & ID_MASK));
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        entry_store(segment, hole, entry);
        hole = at;
    }
    entry_store(segment, hole, 0);
}

/* ---- the index ---- */

static weir__heap_index *index_of(const weir__heap *heap)
{
    return atomic_load_explicit(&heap->view.index, memory_order_relaxed);
}

static weir__heap_segment *segment_in(const weir__heap_index *index, uint32_t slot)
{
    uintptr_t place =
        atomic_load_explicit(&index->places[slot].segment, memory_order_relaxed);
    return (weir__heap_segment *)(place & ~(uintptr_t)(WEIR__SEGMENT_LINE - 1));
}

/* Release, and after the number: who follows it finds the segment as it was set up. */
static void place_set(weir__heap_index *index, uint32_t slot,
                      const weir__heap_segment *segment)
{
    weir__heap_place *place = &index->places[slot];
    atomic_store_explicit(&place->number, segment->number, memory_order_relaxed);
    atomic_store_explicit(&place->segment, (uintptr_t)segment + (32 - segment->bits),
                          memory_order_release);
}

static uint32_t first_slot(const weir__heap_index *index, uint64_t number)
{
    return (uint32_t)((number * WEIR__SEGMENT_HASH) >> index->shift);
}

/* Where a segment is, or would be. */
static uint32_t slot_of(const weir__heap_index *index, uint64_t number)
{
    uint32_t slot = first_slot(index, number);
    const weir__heap_segment *segment;
    while ((segment = segment_in(index, slot)) != NULL && segment->number != number)
        slot = (slot + 1) & index->mask;
    return slot;
}

static weir__heap_segment *segment_find(const weir__heap *heap, uint64_t number)
{
    const weir__heap_index *index = index_of(heap);
    return index != NULL ? segment_in(index, slot_of(index, number)) : NULL;
}

static weir__heap_segment *segment_at(const weir__heap *heap, uintptr_t address)
{
    weir__heap_segment *segment = segment_find(heap, number_of(address));
    WEIR_CHECK(segment != NULL, "what is in the heap has a segment");
    return segment;
}

/* Puts it where it is to be found, in the place of one of that number if there is. */
static void index_put(weir__heap_index *index, const weir__heap_segment *segment)
{
    place_set(index, slot_of(index, segment->number), segment);
}

/* As entry_remove. */
static void index_remove(weir__heap_index *index, const weir__heap_segment *segment)
{
    uint32_t hole = slot_of(index, segment->number);
    const weir__heap_segment *next;
    for (uint32_t slot = (hole + 1) & index->mask;
         (next = segment_in(index, slot)) != NULL; slot = (slot + 1) & index->mask) {
        uint32_t home = first_slot(index, next->number);
        if (((slot - home) & index->mask) < ((slot - hole) & index->mask))
            continue;
        place_set(index, hole, next);
        hole = slot;
    }
    atomic_store_explicit(&index->places[hole].segment, 0, memory_order_release);
}

/* Room for `count` segments, with half of the places left free. */
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
        weir__heap_array_make(heap, sizeof *index + slots * sizeof index->places[0]);
    if (index == NULL)
        return false;
    index->shift = 64 - log2;
    index->mask = (uint32_t)(slots - 1);
    for (uint32_t slot = 0; old != NULL && slot <= old->mask; slot++) {
        if (segment_in(old, slot) != NULL)
            index_put(index, segment_in(old, slot));
    }
    atomic_store_explicit(&heap->view.index, index, memory_order_release);
    return true;
}

/* ---- segments ---- */

/* In front of some that were made at once. */
struct weir__heap_segments {
    weir__heap_segments *next;
    size_t bytes;
};

static size_t segment_bytes(uint32_t bits)
{
    const size_t bytes = sizeof(weir__heap_segment) + (sizeof(uint32_t) << bits);
    return (bytes + WEIR__SEGMENT_LINE - 1) & ~(size_t)(WEIR__SEGMENT_LINE - 1);
}

static void segment_spare(weir__heap *heap, weir__heap_segment *segment)
{
    segment->next = heap->segment_spares[segment->bits];
    heap->segment_spares[segment->bits] = segment;
    heap->segment_spare_count++;
}

/* Makes `count` more with so many entries, all at once. */
static bool segments_make(weir__heap *heap, size_t count, uint32_t bits)
{
    size_t bytes = sizeof(weir__heap_segments) + WEIR__SEGMENT_LINE +
                   count * segment_bytes(bits);
    weir__heap_segments *made = weir__host_alloc(bytes);
    if (made == NULL)
        return false;
    memset(made, 0, bytes);
    made->next = heap->segments;
    made->bytes = bytes;
    heap->segments = made;
    uintptr_t first = ((uintptr_t)(made + 1) + WEIR__SEGMENT_LINE - 1) &
                      ~(uintptr_t)(WEIR__SEGMENT_LINE - 1);
    for (size_t i = count; i-- > 0;) {
        weir__heap_segment *segment =
            (weir__heap_segment *)(first + i * segment_bytes(bits));
        segment->bits = bits;
        segment_spare(heap, segment);
    }
    heap->segment_count += count;
    if (bits == WEIR__ENTRY_BITS)
        heap->segment_room += count;
    return true;
}

/* One with so many entries, all free, or null. Who has an old view may look there. */
static weir__heap_segment *segment_take(weir__heap *heap, uint32_t bits)
{
    if (heap->segment_spares[bits] == NULL && !segments_make(heap, 1, bits))
        return NULL;
    weir__heap_segment *segment = heap->segment_spares[bits];
    heap->segment_spares[bits] = segment->next;
    heap->segment_spare_count--;
    segment->count = segment->missing = segment->chunks = 0;
    for (uint32_t at = 0; at < 1u << bits; at++)
        entry_store(segment, at, 0);
    return segment;
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
    if (there && heap->segment_room < wanted)
        there = segments_make(heap, wanted - heap->segment_room, WEIR__ENTRY_BITS);
    if (!there)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "pool: no memory for records");
    return WEIR_OK;
}

void weir__heap_map_add(weir__heap *heap, uintptr_t base, uintptr_t end)
{
    for (uint64_t n = number_of(base); n <= number_of(end - 1); n++) {
        weir__heap_segment *segment = segment_find(heap, n);
        if (segment == NULL) {
            WEIR_CHECK(heap->segment_spares[WEIR__ENTRY_BITS] != NULL,
                       "room in the map was reserved");
            segment = segment_take(heap, WEIR__ENTRY_BITS);
            segment->number = n;
            index_put(index_of(heap), segment);
        }
        segment->chunks++;
    }
}

/* Nobody waits for room there any more. */
static void forget_wish(weir__heap *heap, const weir__heap_segment *segment)
{
    weir__heap_segment **link = &heap->segments_full;
    while (*link != NULL && *link != segment)
        link = &(*link)->next;
    if (*link != NULL)
        *link = segment->next;
}

void weir__heap_map_drop(weir__heap *heap, uintptr_t base, uintptr_t end)
{
    for (uint64_t n = number_of(base); n <= number_of(end - 1); n++) {
        weir__heap_segment *segment =
            segment_at(heap, (uintptr_t)n << WEIR__SEGMENT_BITS);
        if (--segment->chunks > 0)
            continue;
        WEIR_CHECK(segment->count == 0 && segment->missing == 0,
                   "what is dropped from the map has no blocks");
        if (segment->wants_room)
            forget_wish(heap, segment);
        segment->wants_room = false;
        index_remove(index_of(heap), segment);
        segment_spare(heap, segment);
    }
}

/* ---- room ---- */

static uint32_t most_of(uint32_t bits)
{
    return (1u << bits) - (1u << bits) / 4;
}

static void note_missing(weir__heap *heap, weir__heap_segment *segment, uint32_t more)
{
    segment->missing += more;
    heap->missing += more;
}

/* Into one that nobody reads yet, with room. */
static void refill(weir__heap_segment *segment, uint32_t id, uintptr_t base)
{
    const uint32_t at = entry_of(segment, id, base);
    if (entry_load(segment, at) == 0) {
        entry_set(segment, at, id, base);
        segment->count++;
    }
}

/* What begins in a segment and is not in there, from all of its chunks. */
static WEIR_COLD void refill_missing(const weir__heap *heap,
                                     weir__heap_segment *segment)
{
    for (const weir__chunk *chunk = heap->oldest; chunk; chunk = chunk->newer) {
        if (number_of(chunk->base) > segment->number ||
            number_of(chunk->base + chunk->bytes - 1) < segment->number)
            continue;
        uint32_t id = weir__heap_last(heap, chunk);
        for (; id != 0; id = weir__heap_block_of(heap, id)->before) {
            uintptr_t base = base_of(heap, id);
            if (number_of(base) == segment->number)
                refill(segment, id, base);
        }
    }
}

/* A larger one in the place of one. False: no host memory. */
static bool segment_grow(weir__heap *heap, weir__heap_segment *segment)
{
    uint32_t bits = segment->bits, blocks = segment->count + segment->missing;
    while (most_of(bits) < blocks)
        bits++;
    weir__heap_segment *larger = segment_take(heap, bits);
    if (larger == NULL)
        return false;
    larger->number = segment->number;
    larger->chunks = segment->chunks;
    for (uint32_t at = 0; at <= mask_of(segment); at++) {
        uint32_t id = entry_load(segment, at) & ID_MASK;
        if (id != 0)
            refill(larger, id, base_of(heap, id));
    }
    if (segment->missing != 0)
        refill_missing(heap, larger);
    WEIR_CHECK(larger->count == blocks, "no block was lost");
    heap->missing -= segment->missing;
    index_put(index_of(heap), larger);
    segment_spare(heap, segment);
    return true;
}

void weir__heap_map_stock(weir__heap *heap)
{
    for (weir__heap_segment *segment; (segment = heap->segments_full) != NULL;) {
        weir__heap_segment *next = segment->next;
        if (segment->count + segment->missing > most_of(segment->bits) &&
            !segment_grow(heap, segment))
            return;
        segment->wants_room = false;
        heap->segments_full = next;
    }
}

/* ---- changing ---- */

void weir__heap_map_insert(weir__heap *heap, uint32_t id,
                           const weir__heap_block *block)
{
    const uintptr_t base = weir__heap_base(block);
    weir__heap_segment *segment = segment_at(heap, base);
    if (WEIR_UNLIKELY(segment->count >= most_of(segment->bits))) {
        if (!segment->wants_room) {
            segment->wants_room = true;
            segment->next = heap->segments_full;
            heap->segments_full = segment;
        }
        if (segment->count > mask_of(segment)) {
            note_missing(heap, segment, 1);
            return;
        }
    }
    entry_set(segment, entry_of(segment, 0, base), id, base);
    segment->count++;
}

void weir__heap_map_remove(weir__heap *heap, uint32_t id,
                           const weir__heap_block *block)
{
    const uintptr_t base = weir__heap_base(block);
    weir__heap_segment *segment = segment_at(heap, base);
    const uint32_t at = entry_of(segment, id, base);
    if (WEIR_LIKELY(is_entry_of(segment, at, id))) {
        entry_remove(heap, segment, at);
        segment->count--;
    } else {
        note_missing(heap, segment, UINT32_MAX);
    }
}

void weir__heap_map_replace(weir__heap *heap, uint32_t id, uint32_t with)
{
    const uintptr_t base = base_of(heap, id);
    weir__heap_segment *segment = segment_at(heap, base);
    const uint32_t at = entry_of(segment, id, base);
    if (WEIR_LIKELY(is_entry_of(segment, at, id)))
        entry_set(segment, at, with, base);
}

uint32_t weir__heap_map_find(const weir__heap *heap, uintptr_t base)
{
    weir__heap_probe probe = weir__heap_probe_begin(&heap->view, base);
    uint32_t id;
    while ((id = weir__heap_probe_next(&probe)) != 0 && base_of(heap, id) != base)
        continue;
    return id;
}

uint32_t weir__heap_map_first(const weir__heap *heap, const weir__chunk *chunk)
{
    uint32_t id = weir__heap_map_find(heap, chunk->base);
    if (id != 0)
        return id;
    id = weir__heap_last(heap, chunk);
    for (uint32_t before; (before = weir__heap_block_of(heap, id)->before) != 0;)
        id = before;
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
}

size_t weir__heap_map_bytes(const weir__heap *heap)
{
    size_t bytes = 0;
    for (const weir__heap_segments *made = heap->segments; made; made = made->next)
        bytes += made->bytes;
    return bytes;
}

/* ---- verify ---- */

static void segment_verify(const weir__heap *heap, const weir__heap_segment *segment)
{
    uint32_t count = 0;
    for (uint32_t at = 0; at <= mask_of(segment); at++) {
        uint32_t id = entry_load(segment, at) & ID_MASK;
        if (id == 0)
            continue;
        WEIR_CHECK(number_of(base_of(heap, id)) == segment->number &&
                       weir__heap_map_find(heap, base_of(heap, id)) == id,
                   "a segment has what begins in it");
        count++;
    }
    WEIR_CHECK(count == segment->count, "a segment counts what it has");
    WEIR_CHECK(count <= most_of(segment->bits) || segment->wants_room,
               "a segment that is nearly full wants room");
}

void weir__heap_map_verify(const weir__heap *heap, size_t count)
{
    const weir__heap_index *index = index_of(heap);
    size_t found = 0, missing = 0, segments = 0, spares = 0;
    for (uint32_t slot = 0; index != NULL && slot <= index->mask; slot++) {
        const weir__heap_segment *segment = segment_in(index, slot);
        if (segment == NULL)
            continue;
        WEIR_CHECK(segment->chunks > 0 &&
                       segment_find(heap, segment->number) == segment,
                   "a segment is found by its number while a chunk needs it");
        segment_verify(heap, segment);
        found += segment->count;
        missing += segment->missing;
        segments++;
    }
    WEIR_CHECK(missing == heap->missing && found + missing == count,
               "the map has every block, once, or knows how many are missing");
    for (uint32_t bits = 0; bits < WEIR__SEGMENT_SIZES; bits++) {
        const weir__heap_segment *spare = heap->segment_spares[bits];
        for (; spare != NULL; spare = spare->next)
            spares++;
    }
    WEIR_CHECK(spares == heap->segment_spare_count &&
                   segments + spares == heap->segment_count,
               "no segment is lost");
}
