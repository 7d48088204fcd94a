/* heap_bins.c - free blocks by size: a bin for each size, or for sizes that are near
 * each other, and bitmaps of which owner has something in which.
 *
 * A bin is a treap of free records: a search tree by (owner, grains, address) that is a
 * heap by priority, where the priority is a hash of the address, kept in `more`. So it
 * is as deep as a random tree whatever the order of the requests, without a random
 * number and without anything to rebalance. */
#include "heap_internal.h"

#include "internal.h"

static inline bool comes_before(const weir__heap_free *record, uint64_t key,
                                uint32_t low)
{
    if (WEIR_LIKELY(record->key == key)) /* in a bin of one size, by one owner */
        return record->low < low;
    return record->key < key;
}

/* Where the search for a key goes on: this side of the record, or behind it. */
static inline uint32_t *step_from(weir__heap_free *record, uint64_t key, uint32_t low)
{
    return &record->below[comes_before(record, key, low)];
}

/* The least that a record of so many grains has. */
static inline uint64_t key_from(uint32_t owner, uint32_t grains)
{
    return (uint64_t)owner << WEIR__KEY_OWNER_SHIFT |
           (uint64_t)grains << WEIR__KEY_GRAINS_SHIFT;
}

static inline uint32_t grains_of(const weir__heap_free *record)
{
    return (uint32_t)(record->key >> WEIR__KEY_GRAINS_SHIFT);
}

static inline weir__heap_bin bin_of(const weir__heap_free *record)
{
    return weir__heap_bin_of(grains_of(record));
}

static inline uint32_t root_in(const weir__heap *heap, weir__heap_bin bin)
{
    return heap->bins[bin.word * 64 + bin.bit];
}

static inline uint32_t *root_of(weir__heap *heap, weir__heap_bin bin)
{
    return &heap->bins[bin.word * 64 + bin.bit];
}

static inline bool is_of(const weir__heap *heap, uint32_t id, uint32_t slot)
{
    return id != 0 && weir__heap_slot_of(weir__heap_free_at(heap, id)) == slot;
}

/* The first record of a bin that does not come before a key, or 0. */
static inline uint32_t bin_from(const weir__heap *heap, weir__heap_bin bin,
                                uint64_t key, uint32_t low)
{
    uint32_t found = 0;
    for (uint32_t at = root_in(heap, bin); at != 0;) {
        const weir__heap_free *record = weir__heap_free_at(heap, at);
        bool is_before = comes_before(record, key, low);
        found = is_before ? found : at;
        at = record->below[is_before];
    }
    return found;
}

/* The same, if it is of that owner. */
static uint32_t own_from(const weir__heap *heap, weir__heap_bin bin, uint32_t owner,
                         uint64_t key, uint32_t low)
{
    uint32_t id = bin_from(heap, bin, key, low);
    return is_of(heap, id, owner) ? id : 0;
}

/* ---- changing ---- */

void weir__heap_bins_insert(weir__heap *heap, const weir__heap_block *block)
{
    uint32_t id = weir__heap_link(block);
    weir__heap_free *record = weir__heap_free_at(heap, id);
    uint64_t grain = (uint64_t)weir__heap_base(block) >> WEIR__HEAP_GRAIN_BITS;
    uint32_t slot = weir__heap_slot_of(record), grains = weir__heap_grains(block);
    uint64_t key = key_from(slot, grains) | grain >> 32;
    uint32_t low = (uint32_t)grain, priority = (uint32_t)weir__heap_hash(grain);
    weir__heap_bin bin = weir__heap_bin_of(grains);
    record->key = key;
    record->low = low;
    record->more = priority;

    uint32_t *link = root_of(heap, bin), rest;
    while ((rest = *link) != 0) {
        weir__heap_free *its = weir__heap_free_at(heap, rest);
        if (its->more < priority)
            break;
        link = step_from(its, key, low);
    }

    /* What stood here is split by the key into what goes left and what goes right. */
    uint32_t *left = &record->below[0], *right = &record->below[1];
    *link = id;
    while (rest != 0) {
        weir__heap_free *its = weir__heap_free_at(heap, rest);
        if (comes_before(its, key, low)) {
            *left = rest;
            left = &its->below[1];
            rest = *left;
        } else {
            *right = rest;
            right = &its->below[0];
            rest = *right;
        }
    }
    *left = *right = 0;
    weir__heap_owner *owner = heap->owners[slot];
    owner->bins[bin.word] |= UINT64_C(1) << bin.bit;
    owner->summary |= UINT32_C(1) << bin.word;
    weir__heap_owner_gains(heap, owner, weir__heap_bytes(block));
}

/* Two subtrees, all of the first before all of the second, become one. */
static inline void zip(const weir__heap *heap, uint32_t *link, uint32_t left,
                       uint32_t right)
{
    while (left != 0 && right != 0) {
        weir__heap_free *a = weir__heap_free_at(heap, left);
        weir__heap_free *b = weir__heap_free_at(heap, right);
        if (a->more >= b->more) {
            *link = left;
            link = &a->below[1];
            left = *link;
        } else {
            *link = right;
            link = &b->below[0];
            right = *link;
        }
    }
    *link = left != 0 ? left : right;
}

/* Whether a bin has no record of an owner's, after one was removed that had
 * `above` above it and those below it. */
static bool has_none(const weir__heap *heap, weir__heap_bin bin, uint32_t slot,
                     uint32_t above, const uint32_t below[2])
{
    if ((above | below[0] | below[1]) == 0)
        return true;
    if (is_of(heap, above, slot) || is_of(heap, below[0], slot) ||
        is_of(heap, below[1], slot))
        return false;
    return own_from(heap, bin, slot, key_from(slot, 0), 0) == 0;
}

void weir__heap_bins_remove(weir__heap *heap, const weir__heap_block *block)
{
    uint32_t id = weir__heap_link(block), above = 0;
    weir__heap_free *record = weir__heap_free_at(heap, id);
    uint64_t key = record->key;
    uint32_t low = record->low, slot = weir__heap_slot_of(record);
    weir__heap_bin bin = bin_of(record);

    weir__heap_owner *owner = heap->owners[slot];
    uint32_t *link = root_of(heap, bin);
    for (uint32_t at; (at = *link) != id; above = at) {
        WEIR_CHECK(at != 0, "a free block is in its bin");
        link = step_from(weir__heap_free_at(heap, at), key, low);
    }
    zip(heap, link, record->below[0], record->below[1]);
    record->more = 0;
    weir__heap_set_slot(record, slot);

    if (has_none(heap, bin, slot, above, record->below)) {
        owner->bins[bin.word] &= ~(UINT64_C(1) << bin.bit);
        if (owner->bins[bin.word] == 0)
            owner->summary &= ~(UINT32_C(1) << bin.word);
    }
    weir__heap_owner_loses(heap, owner, weir__heap_bytes(block));
}

/* ---- looking ---- */

/* The owner's next bin after `bin` that has anything; false: there is none. */
static bool next_bin(const weir__heap_owner *owner, weir__heap_bin *bin)
{
    uint64_t bits = owner->bins[bin->word] & (~UINT64_C(1) << bin->bit);
    if (bits == 0) {
        uint32_t words = owner->summary & (~UINT32_C(1) << bin->word);
        if (words == 0)
            return false;
        bin->word = (uint32_t)__builtin_ctz(words);
        bits = owner->bins[bin->word];
    }
    bin->bit = (uint32_t)__builtin_ctzll(bits);
    return true;
}

/* The owner's first record from a key on, which has so many grains, or in a bin of
 * more. */
static uint32_t first_from(const weir__heap *heap, const weir__heap_owner *owner,
                           uint32_t grains, uint64_t key, uint32_t low)
{
    weir__heap_bin bin = weir__heap_bin_of(grains);
    if (owner->bins[bin.word] >> bin.bit & 1) {
        uint32_t id = bin_from(heap, bin, key, low);
        if (is_of(heap, id, owner->slot))
            return id;
    }
    return next_bin(owner, &bin) ? bin_from(heap, bin, key_from(owner->slot, 0), 0) : 0;
}

/* Where the record right behind another would be. */
static uint32_t first_after(const weir__heap *heap, const weir__heap_owner *owner,
                            const weir__heap_free *record)
{
    uint32_t low = record->low + 1;
    return first_from(heap, owner, grains_of(record), record->key + (low == 0), low);
}

static bool fits(const weir__heap_free *record, size_t bytes, size_t alignment)
{
    uint64_t high = record->key & ((1u << WEIR__KEY_GRAINS_SHIFT) - 1);
    uint64_t base = (high << 32 | record->low) << WEIR__HEAP_GRAIN_BITS;
    size_t gap = (size_t)(0 - base) & (alignment - 1);
    size_t room = (size_t)grains_of(record) << WEIR__HEAP_GRAIN_BITS;
    return room >= bytes && room - bytes >= gap;
}

uint32_t weir__heap_best(const weir__heap *heap, const weir__heap_owner *owner,
                         size_t bytes, size_t alignment)
{
    if (bytes > WEIR__CHUNK_MOST)
        return 0;
    uint32_t grains = (uint32_t)(bytes >> WEIR__HEAP_GRAIN_BITS);
    uint32_t id = first_from(heap, owner, grains, key_from(owner->slot, grains), 0);
    while (id != 0 && alignment > WEIR__HEAP_GRAIN) {
        const weir__heap_free *record = weir__heap_free_at(heap, id);
        if (fits(record, bytes, alignment))
            break;
        id = first_after(heap, owner, record);
    }
    return id != 0 ? weir__heap_map_free(heap, id) : 0;
}

/* ---- verify ---- */

/* Goes through a bin, which is in order and not deeper than a hash of addresses makes
 * it, and adds up each owner's. */
static size_t bin_verify(const weir__heap *heap, weir__heap_bin bin)
{
    size_t count = 0;
    uint64_t key = 0;
    uint32_t id, low = 0;
    while ((id = bin_from(heap, bin, key, low)) != 0) {
        const weir__heap_free *record = weir__heap_free_at(heap, id);
        const weir__heap_block *block =
            weir__heap_block_of(heap, weir__heap_map_free(heap, id));
        weir__heap_bin right = bin_of(record);
        const weir__heap_owner *owner = heap->owners[weir__heap_slot_of(record)];
        WEIR_CHECK(weir__heap_state_of(block) == WEIR__HEAP_FREE &&
                       weir__heap_link(block) == id &&
                       weir__heap_grains(block) == grains_of(record),
                   "only what is free is in the bins, under its size");
        WEIR_CHECK(right.word == bin.word && right.bit == bin.bit,
                   "a block is in the bin of its size");
        WEIR_CHECK(!owner->is_spare && (owner->bins[bin.word] >> bin.bit & 1),
                   "an owner knows in which bins it has something");
        for (size_t i = 0; i < 2; i++) {
            uint32_t at = record->below[i] ? record->below[i] : id;
            WEIR_CHECK(weir__heap_free_at(heap, at)->more <= record->more,
                       "a bin is a heap by priority");
        }
        low = record->low + 1;
        key = record->key + (low == 0);
        count++;
    }
    return count;
}

static void owner_verify(const weir__heap *heap, const weir__heap_owner *owner)
{
    size_t blocks = 0, bytes = 0;
    uint32_t summary = 0;
    for (uint32_t word = 0; word < WEIR__BIN_WORDS; word++) {
        for (uint64_t bits = owner->bins[word]; bits != 0; bits &= bits - 1) {
            weir__heap_bin bin = { word, (uint32_t)__builtin_ctzll(bits) };
            uint64_t key = key_from(owner->slot, 0);
            uint32_t low = 0, id = own_from(heap, bin, owner->slot, key, low);
            WEIR_CHECK(id != 0, "an owner knows in which bins it has nothing");
            while (id != 0) {
                const weir__heap_free *record = weir__heap_free_at(heap, id);
                WEIR_CHECK(record->number <= owner->latest,
                           "an owner knows its latest mark");
                blocks++;
                bytes += (size_t)grains_of(record) << WEIR__HEAP_GRAIN_BITS;
                low = record->low + 1;
                key = record->key + (low == 0);
                id = own_from(heap, bin, owner->slot, key, low);
            }
        }
        summary |= (uint32_t)(owner->bins[word] != 0) << word;
    }
    WEIR_CHECK(blocks == owner->free_blocks && bytes == owner->free_bytes &&
                   summary == owner->summary,
               "an owner counts what it has");
    WEIR_CHECK((heap->owning[owner->slot / 64] >> owner->slot % 64 & 1) == (blocks > 0),
               "who has free blocks is marked");
}

void weir__heap_bins_verify(const weir__heap *heap)
{
    size_t count = 0, owning = 0;
    for (uint32_t word = 0; word < WEIR__BIN_WORDS; word++) {
        for (uint32_t bit = 0; bit < 64; bit++) {
            if (heap->bins[word * 64 + bit] != 0)
                count += bin_verify(heap, (weir__heap_bin){ word, bit });
        }
    }
    WEIR_CHECK(count == heap->free_blocks, "the bins have all that is free, once");
    for (uint32_t slot = 0; slot < heap->owner_count; slot++) {
        const weir__heap_owner *owner = heap->owners[slot];
        WEIR_CHECK(!owner->is_spare || owner->free_blocks == 0,
                   "a spare owner has nothing");
        if (!owner->is_spare)
            owner_verify(heap, owner);
        owning += owner->free_blocks > 0;
    }
    WEIR_CHECK(owning == heap->owning_count, "owners of something are counted");
}
