/* heap_bins.c - free blocks by size: a bin for each size, or for sizes that are near
 * each other, and bitmaps of which owner has something in which.
 *
 * A bin is a treap: a search tree by (owner, grains, address) that is a heap by
 * priority, where the priority is a hash of the address. So it is as deep as a random
 * tree whatever the order of the requests, without a random number and without anything
 * to rebalance. */
#include "heap_internal.h"

#include "internal.h"

/* One node, with its key. */
typedef struct node {
    uint32_t id;
    weir__heap_free *record;
    uint64_t upper; /* owner, grains */
    uint64_t base;
} node;

static node node_at(const weir__heap *heap, uint32_t id)
{
    const weir__heap_block *block = weir__heap_block_of(heap, id);
    weir__heap_free *record = weir__heap_free_of(heap, block);
    return (node){ id, record,
                   (uint64_t)record->owner << 32 | weir__heap_grains(block),
                   (uint64_t)weir__heap_base(block) };
}

static bool comes_before(const node *a, uint64_t upper, uint64_t base)
{
    return a->upper != upper ? a->upper < upper : a->base < base;
}

static uint64_t priority_of(const node *a)
{
    return weir__heap_hash(a->base >> WEIR__HEAP_GRAIN_BITS);
}

static uint32_t *root_of(weir__heap *heap, weir__heap_bin bin)
{
    return &heap->bins[bin.word * 64 + bin.bit];
}

/* The first node of a bin that does not come before a key, or 0. */
static uint32_t bin_from(const weir__heap *heap, weir__heap_bin bin, uint64_t upper,
                         uint64_t base)
{
    uint32_t found = 0;
    for (uint32_t at = heap->bins[bin.word * 64 + bin.bit]; at != 0;) {
        node n = node_at(heap, at);
        if (comes_before(&n, upper, base)) {
            at = n.record->right;
        } else {
            found = at;
            at = n.record->left;
        }
    }
    return found;
}

/* The same, if it is of that owner. */
static uint32_t own_from(const weir__heap *heap, weir__heap_bin bin, uint32_t owner,
                         uint32_t grains, uint64_t base)
{
    uint32_t id = bin_from(heap, bin, (uint64_t)owner << 32 | grains, base);
    if (id == 0 ||
        weir__heap_free_of(heap, weir__heap_block_of(heap, id))->owner != owner)
        return 0;
    return id;
}

/* ---- changing ---- */

void weir__heap_bins_insert(weir__heap *heap, uint32_t id)
{
    node n = node_at(heap, id);
    uint64_t priority = priority_of(&n);
    weir__heap_bin bin = weir__heap_bin_of((uint32_t)n.upper);
    weir__heap_owner *owner = heap->owners[n.record->owner];
    uint32_t *link = root_of(heap, bin);
    while (*link != 0) {
        node at = node_at(heap, *link);
        if (priority_of(&at) < priority)
            break;
        link = comes_before(&at, n.upper, n.base) ? &at.record->right
                                                   : &at.record->left;
    }

    /* What stood here is split by the key into what goes left and what goes right. */
    uint32_t rest = *link;
    uint32_t *left = &n.record->left, *right = &n.record->right;
    *link = id;
    while (rest != 0) {
        node at = node_at(heap, rest);
        if (comes_before(&at, n.upper, n.base)) {
            *left = rest;
            left = &at.record->right;
            rest = at.record->right;
        } else {
            *right = rest;
            right = &at.record->left;
            rest = at.record->left;
        }
    }
    *left = *right = 0;
    owner->bins[bin.word] |= UINT64_C(1) << bin.bit;
    owner->summary |= UINT32_C(1) << bin.word;
    weir__heap_owner_gains(heap, owner, (size_t)(uint32_t)n.upper
                                            << WEIR__HEAP_GRAIN_BITS);
}

/* Two subtrees, all of the first before all of the second, become one. */
static void zip(const weir__heap *heap, uint32_t *link, uint32_t left, uint32_t right)
{
    while (left != 0 && right != 0) {
        node a = node_at(heap, left), b = node_at(heap, right);
        if (priority_of(&a) >= priority_of(&b)) {
            *link = left;
            link = &a.record->right;
            left = a.record->right;
        } else {
            *link = right;
            link = &b.record->left;
            right = b.record->left;
        }
    }
    *link = left != 0 ? left : right;
}

void weir__heap_bins_remove(weir__heap *heap, uint32_t id)
{
    node n = node_at(heap, id);
    weir__heap_bin bin = weir__heap_bin_of((uint32_t)n.upper);
    weir__heap_owner *owner = heap->owners[n.record->owner];
    uint32_t *link = root_of(heap, bin);
    bool is_last = true;
    while (*link != id) {
        WEIR_CHECK(*link != 0, "a free block is in its bin");
        node at = node_at(heap, *link);
        is_last = is_last && at.record->owner != n.record->owner;
        link = comes_before(&at, n.upper, n.base) ? &at.record->right
                                                   : &at.record->left;
    }
    uint32_t left = n.record->left, right = n.record->right;
    zip(heap, link, left, right);

    /* All others of the owner are below one that was on the way, or below this one. */
    is_last = is_last && ((left | right) == 0 ||
                          own_from(heap, bin, n.record->owner, 0, 0) == 0);
    if (is_last) {
        owner->bins[bin.word] &= ~(UINT64_C(1) << bin.bit);
        if (owner->bins[bin.word] == 0)
            owner->summary &= ~(UINT32_C(1) << bin.word);
    }
    weir__heap_owner_loses(heap, owner, (size_t)(uint32_t)n.upper
                                            << WEIR__HEAP_GRAIN_BITS);
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

/* The owner's first block of at least `grains` grains; of so many, from `base` on. */
static uint32_t first_from(const weir__heap *heap, const weir__heap_owner *owner,
                           uint32_t grains, uint64_t base)
{
    weir__heap_bin bin = weir__heap_bin_of(grains);
    uint32_t id = 0;
    if (owner->bins[bin.word] >> bin.bit & 1)
        id = own_from(heap, bin, owner->slot, grains, base);
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
        node n = node_at(heap, id);
        id = first_from(heap, owner, (uint32_t)n.upper, n.base + 1);
    }
    return id;
}

/* ---- verify ---- */

/* Goes through a bin, which is in order and not deeper than a hash of addresses makes
 * it, and adds up each owner's. */
static size_t bin_verify(const weir__heap *heap, weir__heap_bin bin)
{
    size_t count = 0;
    uint64_t upper = 0, base = 0;
    uint32_t id;
    while ((id = bin_from(heap, bin, upper, base)) != 0) {
        node n = node_at(heap, id);
        weir__heap_bin right = weir__heap_bin_of((uint32_t)n.upper);
        const weir__heap_owner *owner = heap->owners[n.record->owner];
        WEIR_CHECK(weir__heap_state_at(heap, id) == WEIR__HEAP_FREE,
                   "only what is free is in the bins");
        WEIR_CHECK(right.word == bin.word && right.bit == bin.bit,
                   "a block is in the bin of its size");
        WEIR_CHECK(!owner->is_spare && (owner->bins[bin.word] >> bin.bit & 1),
                   "an owner knows in which bins it has something");
        const uint32_t below[] = { n.record->left, n.record->right };
        for (size_t i = 0; i < 2; i++) {
            node child = below[i] ? node_at(heap, below[i]) : n;
            WEIR_CHECK(priority_of(&child) <= priority_of(&n),
                       "a bin is a heap by priority");
        }
        upper = n.upper;
        base = n.base + 1;
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
                node n = node_at(heap, id);
                WEIR_CHECK(n.record->number <= owner->latest,
                           "an owner knows its latest mark");
                blocks++;
                bytes += (size_t)(uint32_t)n.upper << WEIR__HEAP_GRAIN_BITS;
                id = own_from(heap, bin, owner->slot, (uint32_t)n.upper, n.base + 1);
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
