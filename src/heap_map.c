/* heap_map.c - from an address to what begins there: the side of heap_records.h that
 * writes.
 *
 * Who looks without the lock judges by the record that he finds. So entries may be
 * moved as it suits: a look meanwhile misses at worst. Segments, on which a look may
 * stand, stay what they are until the heap is closed; those that nobody needs are used
 * again.
 *
 * A segment that is three quarters full wants a larger one in its place, which the next
 * promise sees to. Where there is no host memory for that, or many requests that were
 * promised before come first, it fills up, and then blocks are missing from it until
 * there is: to find these, under the lock, chunks are walked. */
#include "heap_internal.h"

#include <string.h>

#include "internal.h"

static uint64_t number_of(uintptr_t address)
{
    return (uint64_t)address >> WEIR__SEGMENT_BITS;
}

/* ---- entries ---- */

/* Of a segment, as the view names it. */
typedef struct entries {
    _Atomic uint32_t *first;
    uint32_t shift, mask;
} entries;

static inline weir__heap_segment *segment_of(uintptr_t word)
{
    return (weir__heap_segment *)(word & ~(uintptr_t)(WEIR__SEGMENT_LINE - 1));
}

static inline entries entries_of(uintptr_t word)
{
    const uint32_t shift = word % WEIR__SEGMENT_LINE;
    return (entries){ segment_of(word)->entries, shift, UINT32_MAX >> shift };
}

static inline uint32_t entry_load(const entries *all, uint32_t at)
{
    return atomic_load_explicit(&all->first[at], memory_order_relaxed);
}

/* Release: who follows an id finds the record as it was set up before. */
static inline void entry_store(const entries *all, uint32_t at, uint32_t entry)
{
    atomic_store_explicit(&all->first[at], entry, memory_order_release);
}

static inline uint32_t home_of(const entries *all, uintptr_t base)
{
    return weir__heap_hash_of(base) >> all->shift;
}

/* Where the entry of a block is; or the first that is free behind its home, or, where
 * none is, its home. */
static inline uint32_t entry_of(const entries *all, uint32_t id, uintptr_t base)
{
    const uint32_t home = home_of(all, base);
    uint32_t at = home, entry;
    while ((entry = entry_load(all, at)) != 0 && weir__heap_entry_id(entry) != id) {
        at = (at + 1) & all->mask;
        if (at == home)
            break;
    }
    return at;
}

static inline bool is_entry_of(const entries *all, uint32_t at, uint32_t id)
{
    return weir__heap_entry_id(entry_load(all, at)) == id;
}

static inline void entry_set(const entries *all, uint32_t at, uint32_t id,
                             uintptr_t base)
{
    const uint32_t print = weir__heap_print_of(weir__heap_hash_of(base));
    entry_store(all, at, print << WEIR__ID_BITS | id);
}

static uintptr_t base_of(const weir__heap *heap, uint32_t id)
{
    return weir__heap_base(weir__heap_block_of(heap, id));
}

/* What stands behind an entry that goes moves up, unless it is at home behind that.
 * For a moment one stands there twice. */
static inline void entry_remove(const weir__heap *heap, const entries *all,
                                uint32_t gone)
{
    const uint32_t mask = all->mask;
    uint32_t hole = gone, entry;
    for (uint32_t at = (gone + 1) & mask;
         at != gone && (entry = entry_load(all, at)) != 0; at = (at + 1) & mask) {
        uint32_t home = home_of(all, base_of(heap, weir__heap_entry_id(entry)));
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        entry_store(all, hole, entry);
        hole = at;
    }
    entry_store(all, hole, 0);
}

/* ---- where segments are ---- */

/* Addresses for all the words that there can be. */
#define NUMBERS    ((size_t)1 << (WEIR__HEAP_ADDRESS_BITS - WEIR__SEGMENT_BITS))
#define WORD_BYTES sizeof(uintptr_t)

static inline uintptr_t word_at(const weir__heap *heap, uint64_t number)
{
    return atomic_load_explicit(&heap->view.segments[number], memory_order_relaxed);
}

/* Release: who follows it finds the segment as it was set up. */
static inline void word_set(weir__heap *heap, uint64_t number, uintptr_t word)
{
    atomic_store_explicit(&heap->view.segments[number], word, memory_order_release);
}

/* That of the segment that an address of the heap is in. */
static inline uintptr_t word_of(const weir__heap *heap, uintptr_t address)
{
    uintptr_t word = word_at(heap, number_of(address));
    WEIR_ASSERT(word != 0, "what is in the heap has a segment");
    return word;
}

/* Sees to it that the words of segments `first` to `last` are memory. The host is asked
 * for all of them, whatever was there: so that what it is asked does not depend on
 * addresses. */
static bool words_make(weir__heap *heap, uint64_t first, uint64_t last)
{
    return weir__host_commit(&heap->view.segments[first], 0,
                             (size_t)(last - first + 1) * WORD_BYTES);
}

/* ---- segments ---- */

/* In front of some of a size that were made at once. */
struct weir__heap_segments {
    weir__heap_segments *next;
    size_t bytes;
    size_t count;
    uint32_t bits;
};

static uintptr_t word_for(const weir__heap_segment *segment)
{
    return (uintptr_t)segment + (32 - segment->bits);
}

static size_t segment_bytes(uint32_t bits)
{
    const size_t bytes = sizeof(weir__heap_segment) + (sizeof(uint32_t) << bits);
    return (bytes + WEIR__SEGMENT_LINE - 1) & ~(size_t)(WEIR__SEGMENT_LINE - 1);
}

static weir__heap_segment *segment_in(const weir__heap_segments *made, size_t which)
{
    return (weir__heap_segment *)(weir__line_from(made + 1) +
                                  which * segment_bytes(made->bits));
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
    made->count = count;
    made->bits = bits;
    heap->segments = made;
    for (size_t i = count; i-- > 0;) {
        weir__heap_segment *segment = segment_in(made, i);
        segment->bits = bits;
        segment_spare(heap, segment);
    }
    heap->segment_count += count;
    if (bits == WEIR__ENTRY_BITS)
        heap->segment_room += count;
    return true;
}

/* One with so many entries, all free, or null. Who has read an old word may look
 * there. */
static weir__heap_segment *segment_take(weir__heap *heap, uint32_t bits)
{
    if (heap->segment_spares[bits] == NULL && !segments_make(heap, 1, bits))
        return NULL;
    weir__heap_segment *segment = heap->segment_spares[bits];
    heap->segment_spares[bits] = segment->next;
    heap->segment_spare_count--;
    segment->count = segment->missing = segment->chunks = 0;
    const entries all = entries_of(word_for(segment));
    for (uint32_t at = 0; at <= all.mask; at++)
        entry_store(&all, at, 0);
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
    bool there = words_make(heap, number_of(base), number_of(base + bytes - 1));
    if (there && heap->segment_room < wanted)
        there = segments_make(heap, wanted - heap->segment_room, WEIR__ENTRY_BITS);
    if (!there)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "pool: no memory for records");
    return WEIR_OK;
}

void weir__heap_map_add(weir__heap *heap, uintptr_t base, uintptr_t end)
{
    for (uint64_t n = number_of(base); n <= number_of(end - 1); n++) {
        if (word_at(heap, n) == 0) {
            WEIR_CHECK(heap->segment_spares[WEIR__ENTRY_BITS] != NULL,
                       "room in the map was reserved");
            weir__heap_segment *segment = segment_take(heap, WEIR__ENTRY_BITS);
            segment->number = n;
            word_set(heap, n, word_for(segment));
        }
        segment_of(word_at(heap, n))->chunks++;
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
        weir__heap_segment *segment = segment_of(word_at(heap, n));
        if (--segment->chunks > 0)
            continue;
        WEIR_CHECK(segment->count == 0 && segment->missing == 0,
                   "what is dropped from the map has no blocks");
        if (segment->wants_room)
            forget_wish(heap, segment);
        segment->wants_room = false;
        word_set(heap, n, 0);
        segment_spare(heap, segment);
    }
}

/* ---- room ---- */

/* Of entries; the mask is one less than there are. */
static inline uint32_t most_of(uint32_t mask)
{
    return mask + 1 - (mask + 1) / 4;
}

static void note_missing(weir__heap *heap, weir__heap_segment *segment, uint32_t more)
{
    segment->missing += more;
    heap->missing += more;
}

/* Into a segment that nobody reads yet, with room. Returns how many it has more. */
static uint32_t refill(const entries *all, uint32_t id, uintptr_t base)
{
    const uint32_t at = entry_of(all, id, base);
    if (entry_load(all, at) != 0)
        return 0;
    entry_set(all, at, id, base);
    return 1;
}

/* What begins in a segment and is mapped, but is not in there, from all of its
 * chunks. */
static WEIR_COLD uint32_t refill_missing(const weir__heap *heap, const entries *all,
                                         uint64_t number)
{
    uint32_t count = 0;
    for (const weir__chunk *chunk = heap->oldest; chunk; chunk = chunk->newer) {
        if (number_of(chunk->base) > number ||
            number_of(chunk->base + chunk->bytes - 1) < number)
            continue;
        const weir__heap_tie *tie;
        for (uint32_t id = weir__heap_last(heap, chunk); id != 0; id = tie->before) {
            tie = weir__heap_tie_at(heap, id);
            uintptr_t base = base_of(heap, id);
            if (weir__heap_is_mapped(tie) && number_of(base) == number)
                count += refill(all, id, base);
        }
    }
    return count;
}

/* One in the place of a segment that wants no room with all its blocks. False: no host
 * memory. */
static bool segment_grow(weir__heap *heap, weir__heap_segment *segment)
{
    const uint64_t number = segment->number;
    const entries all = entries_of(word_for(segment));
    uint32_t blocks = segment->count + segment->missing, count = 0;
    uint32_t bits = segment->bits;
    while (most_of((1u << bits) - 1) <= blocks)
        bits++;
    weir__heap_segment *larger = segment_take(heap, bits);
    if (larger == NULL)
        return false;
    larger->number = number;
    larger->chunks = segment->chunks;
    const entries wide = entries_of(word_for(larger));
    for (uint32_t at = 0; at <= all.mask; at++) {
        uint32_t id = weir__heap_entry_id(entry_load(&all, at));
        if (id != 0)
            count += refill(&wide, id, base_of(heap, id));
    }
    if (segment->missing != 0)
        count += refill_missing(heap, &wide, number);
    WEIR_CHECK(count == blocks, "no block was lost");
    heap->missing -= segment->missing;
    word_set(heap, number, word_for(larger));
    larger->count = count;
    segment->chunks = 0;
    segment_spare(heap, segment);
    return true;
}

void weir__heap_map_stock(weir__heap *heap)
{
    for (weir__heap_segment *segment; (segment = heap->segments_full) != NULL;) {
        weir__heap_segment *next = segment->next;
        const bool is_full = segment->count >= most_of((1u << segment->bits) - 1);
        if ((is_full || segment->missing != 0) && !segment_grow(heap, segment))
            return;
        segment->wants_room = false;
        heap->segments_full = next;
    }
}

/* ---- changing ---- */

/* One with so many entries in use wants room. False: it is full. */
static WEIR_COLD bool want_room(weir__heap *heap, weir__heap_segment *segment)
{
    if (!segment->wants_room) {
        segment->wants_room = true;
        segment->next = heap->segments_full;
        heap->segments_full = segment;
    }
    if (segment->count < 1u << segment->bits)
        return true;
    note_missing(heap, segment, 1);
    return false;
}

void weir__heap_map_insert(weir__heap *heap, uint32_t id, weir__heap_block *block)
{
    const uintptr_t base = weir__heap_base(block);
    weir__heap_tie_at(heap, id)->after |= WEIR__AFTER_MAPPED;
    const uintptr_t word = word_of(heap, base);
    const entries all = entries_of(word);
    weir__heap_segment *segment = segment_of(word);
    if (WEIR_UNLIKELY(segment->count >= most_of(all.mask)) && !want_room(heap, segment))
        return;
    entry_set(&all, entry_of(&all, 0, base), id, base);
    segment->count++;
}

void weir__heap_map_remove(weir__heap *heap, uint32_t id,
                           const weir__heap_block *block)
{
    const uintptr_t base = weir__heap_base(block);
    const uintptr_t word = word_of(heap, base);
    const entries all = entries_of(word);
    const uint32_t at = entry_of(&all, id, base);
    if (WEIR_LIKELY(is_entry_of(&all, at, id))) {
        entry_remove(heap, &all, at);
        segment_of(word)->count--;
    } else {
        note_missing(heap, segment_of(word), UINT32_MAX);
    }
}

void weir__heap_map_replace(weir__heap *heap, uint32_t id, uint32_t with)
{
    const uintptr_t base = base_of(heap, id);
    const entries all = entries_of(word_of(heap, base));
    const uint32_t at = entry_of(&all, id, base);
    if (WEIR_LIKELY(is_entry_of(&all, at, id)))
        entry_set(&all, at, with, base);
}

uint32_t weir__heap_map_find(const weir__heap *heap, uintptr_t base)
{
    weir__heap_probe probe = weir__heap_probe_begin(&heap->view, base);
    for (uint32_t entry; (entry = weir__heap_probe_step(&probe)) != 0;) {
        if (weir__heap_probe_fits(&probe, entry) &&
            base_of(heap, weir__heap_entry_id(entry)) == base)
            return weir__heap_entry_id(entry);
    }
    return 0;
}

uint32_t weir__heap_map_first(const weir__heap *heap, const weir__chunk *chunk)
{
    uint32_t id = weir__heap_map_find(heap, chunk->base);
    if (id != 0)
        return id;
    id = weir__heap_last(heap, chunk);
    for (uint32_t before; (before = weir__heap_before(heap, id)) != 0;)
        id = before;
    return id;
}

/* ---- the end, and what it all costs ---- */

bool weir__heap_map_init(weir__heap *heap)
{
    size_t numbers = NUMBERS;
    uintptr_t *words = weir__host_reserve(WORD_BYTES, &numbers, NUMBERS, true);
    if (words == NULL)
        return false;
    heap->view.segments = (_Atomic uintptr_t *)words;
    heap->view.numbers = numbers;
    return true;
}

void weir__heap_map_close(weir__heap *heap)
{
    weir__host_release(heap->view.segments, heap->view.numbers * WORD_BYTES);
    while (heap->segments != NULL) {
        weir__heap_segments *segments = heap->segments;
        heap->segments = segments->next;
        weir__host_free(segments);
    }
}

size_t weir__heap_map_bytes(const weir__heap *heap)
{
    size_t bytes = (heap->segment_count - heap->segment_spare_count) * WORD_BYTES;
    for (const weir__heap_segments *made = heap->segments; made; made = made->next)
        bytes += made->bytes;
    return bytes;
}

/* ---- verify ---- */

static void segment_verify(const weir__heap *heap, const weir__heap_segment *segment)
{
    const entries all = entries_of(word_for(segment));
    uint32_t count = 0;
    WEIR_CHECK(word_at(heap, segment->number) == word_for(segment),
               "a segment is found by its number");
    for (uint32_t at = 0; at <= all.mask; at++) {
        uint32_t id = weir__heap_entry_id(entry_load(&all, at));
        if (id == 0)
            continue;
        WEIR_CHECK(number_of(base_of(heap, id)) == segment->number &&
                       weir__heap_map_find(heap, base_of(heap, id)) == id,
                   "what a segment has begins in it, and is found");
        count++;
    }
    WEIR_CHECK(count == segment->count,
               "what a segment has is counted");
    WEIR_CHECK((count <= most_of(all.mask) && segment->missing == 0) ||
                   segment->wants_room,
               "a segment that is nearly full, or was too full, wants room");
}

void weir__heap_map_verify(const weir__heap *heap, size_t count)
{
    size_t found = 0, missing = 0, segments = 0, spares = 0, wishes = 0;
    for (const weir__heap_segments *made = heap->segments; made; made = made->next) {
        for (size_t i = 0; i < made->count; i++) {
            const weir__heap_segment *segment = segment_in(made, i);
            if (segment->chunks == 0) /* it is spare */
                continue;
            segment_verify(heap, segment);
            found += segment->count;
            missing += segment->missing;
            segments++;
            wishes += segment->wants_room;
        }
    }
    for (const weir__heap_segment *it = heap->segments_full; it; it = it->next) {
        WEIR_CHECK(it->wants_room, "who is in the list wants room");
        wishes--;
    }
    WEIR_CHECK(wishes == 0, "who wants room is in the list");
    WEIR_CHECK(missing == heap->missing && found + missing == count,
               "the map has what is in it once, or knows how many are missing");
    for (uint32_t bits = 0; bits < WEIR__SEGMENT_SIZES; bits++) {
        const weir__heap_segment *spare = heap->segment_spares[bits];
        for (; spare != NULL; spare = spare->next)
            spares++;
    }
    WEIR_CHECK(spares == heap->segment_spare_count &&
                   segments + spares == heap->segment_count,
               "no segment is lost");
}
