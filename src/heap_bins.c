/* heap_bins.c - free blocks by size: a bin for each size, or for sizes that are near
 * each other, and bitmaps of which owner has something in which.
 *
 * A bin is a treap: a search tree by (owner, grains, address) that is a heap by
 * priority, where the priority is a hash of the address, kept in `more`. So it is as
 * deep as a random tree whatever the order of the requests, without a random number
 * and without anything to rebalance. */
#include "heap_internal.h"

#include "internal.h"

/* The key of a node but for the address, which only counts where this is equal. */
static inline uint64_t upper_of(const weir__heap_block *block,
                                const weir__heap_free *record)
{
    return (uint64_t)record->owner << 32 | weir__heap_grains(block);
}

static inline uint64_t grain_of(const weir__heap_block *block)
{
    return (uint64_t)weir__heap_base(block) >> WEIR__HEAP_GRAIN_BITS;
}

static inline bool comes_before(const weir__heap_block *block,
                                const weir__heap_free *record, uint64_t upper,
                                uint64_t grain)
{
    uint64_t theirs = upper_of(block, record);
    return theirs != upper ? theirs < upper : grain_of(block) < grain;
}

static uint32_t *root_of(weir__heap *heap, weir__heap_bin bin)
{
    return &heap->bins[bin.word * 64 + bin.bit];
}

/* The first node of a bin that does not come before a key, or 0. */
static inline uint32_t bin_from(const weir__heap *heap, weir__heap_bin bin,
                                uint64_t upper, uint64_t grain)
{
    uint32_t found = 0;
    for (uint32_t at = heap->bins[bin.word * 64 + bin.bit]; at != 0;) {
        const weir__heap_block *block = weir__heap_block_of(heap, at);
        const weir__heap_free *record = weir__heap_free_of(heap, block);
        if (comes_before(block, record, upper, grain)) {
            at = record->right;
        } else {
            found = at;
            at = record->left;
        }
    }
    return found;
}

/* The same, if it is of that owner. */
static uint32_t own_from(const weir__heap *heap, weir__heap_bin bin, uint32_t owner,
                         uint32_t grains, uint64_t grain)
{
    uint32_t id = bin_from(heap, bin, (uint64_t)owner << 32 | grains, grain);
    if (id == 0 ||
        weir__heap_free_of(heap, weir__heap_block_of(heap, id))->owner != owner)
        return 0;
    return id;
}

/* ---- changing ---- */

void weir__heap_bins_insert(weir__heap *heap, uint32_t id)
{
    const weir__heap_block *block = weir__heap_block_of(heap, id);
    weir__heap_free *record = weir__heap_free_of(heap, block);
    uint64_t upper = upper_of(block, record), grain = grain_of(block);
    uint32_t priority = (uint32_t)weir__heap_hash(grain);
    record->more = priority;
    weir__heap_bin bin = weir__heap_bin_of((uint32_t)upper);
    weir__heap_owner *owner = heap->owners[record->owner];

    uint32_t *link = root_of(heap, bin);
    while (*link != 0) {
        const weir__heap_block *at = weir__heap_block_of(heap, *link);
        weir__heap_free *its = weir__heap_free_of(heap, at);
        if (its->more < priority)
            break;
        link = comes_before(at, its, upper, grain) ? &its->right : &its->left;
    }

    /* What stood here is split by the key into what goes left and what goes right. */
    uint32_t rest = *link;
    uint32_t *left = &record->left, *right = &record->right;
    *link = id;
    while (rest != 0) {
        const weir__heap_block *at = weir__heap_block_of(heap, rest);
        weir__heap_free *its = weir__heap_free_of(heap, at);
        if (comes_before(at, its, upper, grain)) {
            *left = rest;
            left = &its->right;
            rest = its->right;
        } else {
            *right = rest;
            right = &its->left;
            rest = its->left;
        }
    }
    *left = *right = 0;
    owner->bins[bin.word] |= UINT64_C(1) << bin.bit;
    owner->summary |= UINT32_C(1) << bin.word;
    weir__heap_owner_gains(heap, owner, weir__heap_bytes(block));
}

/* Two subtrees, all of the first before all of the second, become one. */
static void zip(const weir__heap *heap, uint32_t *link, uint32_t left, uint32_t right)
{
    while (left != 0 && right != 0) {
        weir__heap_free *a = weir__heap_free_of(heap, weir__heap_block_of(heap, left));
        weir__heap_free *b = weir__heap_free_of(heap, weir__heap_block_of(heap, right));
        if (a->more >= b->more) {
            *link = left;
            link = &a->right;
            left = *link;
        } else {
            *link = right;
            link = &b->left;
            right = *link;
        }
    }
    *link = left != 0 ? left : right;
}

void weir__heap_bins_remove(weir__heap *heap, uint32_t id)
{
    const weir__heap_block *block = weir__heap_block_of(heap, id);
    weir__heap_free *record = weir__heap_free_of(heap, block);
    uint64_t upper = upper_of(block, record), grain = grain_of(block);
    weir__heap_bin bin = weir__heap_bin_of((uint32_t)upper);
    weir__heap_owner *owner = heap->owners[record->owner];

    uint32_t *link = root_of(heap, bin);
    bool is_last = true;
    while (*link != id) {
        WEIR_CHECK(*link != 0, "a free block is in its bin");
        const weir__heap_block *at = weir__heap_block_of(heap, *link);
        weir__heap_free *its = weir__heap_free_of(heap, at);
        is_last = is_last && its->owner != record->owner;
        link = comes_before(at, its, upper, grain) ? &its->right : &its->left;
    }
    uint32_t left = record->left, right = record->right;
    zip(heap, link, left, right);
    record->more = 0;

    /* All others of the owner are below one that was on the way, or below this one. */
    is_last = is_last && ((left | right) == 0 ||
                          own_from(heap, bin, record->owner, 0, 0) == 0);
    if (is_last) {
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

/* The owner's first block of at least `grains` grains; of so many, from `from` on. */
static uint32_t first_from(const weir__heap *heap, const weir__heap_owner *owner,
                           uint32_t grains, uint64_t from)
{
    weir__heap_bin bin = weir__heap_bin_of(grains);
    uint32_t id = 0;
    if (owner->bins[bin.word] >> bin.bit & 1)
        id = own_from(heap, bin, owner->slot, grains, from);
    if (id == 0 && next_bin(owner, &bin))
        id = own_from(heap, bin, owner->slot, 0, 0);
    return id;
}

uint32_t weir__heap_best(const weir__heap *heap, const weir__heap_owner *owner,
                         size_t bytes, size_t alignment)
{
    if (bytes > WEIR__CHUNK_MOST)
        return 0;
    uint32_t grains = (uint32_t)(bytes >> WEIR__HEAP_GRAIN_BITS);
    uint32_t id = first_from(heap, owner, grains, 0);
    while (id != 0 && alignment > WEIR__HEAP_GRAIN &&
           !weir__heap_fits(heap, id, id, bytes, alignment)) {
        const weir__heap_block *block = weir__heap_block_of(heap, id);
        id = first_from(heap, owner, weir__heap_grains(block), grain_of(block) + 1);
    }
    return id;
}

/* ---- verify ---- */

/* Goes through a bin, which is in order and not deeper than a hash of addresses makes
 * it, and adds up each owner's. */
static size_t bin_verify(const weir__heap *heap, weir__heap_bin bin)
{
    size_t count = 0;
    uint64_t upper = 0, grain = 0;
    uint32_t id;
    while ((id = bin_from(heap, bin, upper, grain)) != 0) {
        const weir__heap_block *block = weir__heap_block_of(heap, id);
        const weir__heap_free *record = weir__heap_free_of(heap, block);
        weir__heap_bin right = weir__heap_bin_of(weir__heap_grains(block));
        const weir__heap_owner *owner = heap->owners[record->owner];
        WEIR_CHECK(weir__heap_state_of(block) == WEIR__HEAP_FREE,
                   "only what is free is in the bins");
        WEIR_CHECK(right.word == bin.word && right.bit == bin.bit,
                   "a block is in the bin of its size");
        WEIR_CHECK(!owner->is_spare && (owner->bins[bin.word] >> bin.bit & 1),
                   "an owner knows in which bins it has something");
        const uint32_t below[] = { record->left, record->right };
        for (size_t i = 0; i < 2; i++) {
            uint32_t at = below[i] ? below[i] : id;
            const weir__heap_block *child = weir__heap_block_of(heap, at);
            WEIR_CHECK(weir__heap_free_of(heap, child)->more <= record->more,
                       "a bin is a heap by priority");
        }
        upper = upper_of(block, record);
        grain = grain_of(block) + 1;
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
            uint32_t id = own_from(heap, bin, owner->slot, 0, 0);
            WEIR_CHECK(id != 0, "an owner knows in which bins it has nothing");
            while (id != 0) {
                const weir__heap_block *block = weir__heap_block_of(heap, id);
                WEIR_CHECK(weir__heap_free_of(heap, block)->number <= owner->latest,
                           "an owner knows its latest mark");
                blocks++;
                bytes += weir__heap_bytes(block);
                id = own_from(heap, bin, owner->slot, weir__heap_grains(block),
                              grain_of(block) + 1);
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
