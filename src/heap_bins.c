/* heap_bins.c - free blocks by owner and size: a bin for each size, or for sizes that
 * are near each other, and bitmaps of which bins have something.
 *
 * An owner has rows of bins for the sizes of which it has anything; the others are
 * spare. A bin of one size is a list: of its first few, that became free last, the
 * lowest is taken. That is nearly as good as the lowest of all, and found at once.
 * Others are treaps of free records: a search tree by (grains, address) that is a heap
 * by priority, where the priority is a hash of the record's id. So it is as deep as a
 * random tree whatever the order of the requests, without a random number and without
 * anything to rebalance. */
#include "heap_bins.h"

#include <string.h>

#include "internal.h"

static inline bool comes_before(const weir__heap_free *record, uint32_t grains,
                                uint64_t key)
{
    return record->more != grains ? record->more < grains : record->key < key;
}

static inline uint32_t priority_of(uint32_t id)
{
    id *= UINT32_C(0x9e3779b1);
    return (id ^ id >> 16) * UINT32_C(0x85ebca6b);
}

/* Where the search goes on: this side of the record, or behind it. */
static inline uint32_t *step_from(weir__heap_free *record, uint32_t grains,
                                  uint64_t key)
{
    return &record->below[comes_before(record, grains, key)];
}

static inline bool has_bin(const weir__heap_owner *owner, weir__heap_bin bin)
{
    const weir__heap_row *row = owner->rows[bin.row];
    return row != NULL && (row->bits >> bin.bit & 1) != 0;
}

/* The first record of a tree that does not come before a key, or 0. */
static uint32_t tree_from(const weir__heap *heap, uint32_t root, uint32_t grains,
                          uint64_t key)
{
    uint32_t found = 0;
    for (uint32_t at = root; at != 0;) {
        const weir__heap_free *record = weir__heap_free_at(heap, at);
        bool is_before = comes_before(record, grains, key);
        found = is_before ? found : at;
        at = record->below[is_before];
    }
    return found;
}

/* ---- rows ---- */

struct weir__heap_rows {
    weir__heap_rows *next;
    weir__heap_row rows[WEIR__ROWS_MADE];
};

bool weir__heap_rows_stock(weir__heap *heap, size_t wanted)
{
    while (heap->row_spare_count < wanted) {
        weir__heap_rows *made = weir__host_alloc(sizeof *made);
        if (made == NULL)
            return false;
        memset(made, 0, sizeof *made);
        made->next = heap->rows;
        heap->rows = made;
        for (uint32_t i = WEIR__ROWS_MADE; i-- > 0;)
            weir__heap_row_give_back(heap, &made->rows[i]);
        heap->row_count += WEIR__ROWS_MADE;
    }
    return true;
}

void weir__heap_rows_close(weir__heap *heap)
{
    while (heap->rows != NULL) {
        weir__heap_rows *rows = heap->rows;
        heap->rows = rows->next;
        weir__host_free(rows);
    }
}

size_t weir__heap_rows_bytes(const weir__heap *heap)
{
    return heap->row_count / WEIR__ROWS_MADE * sizeof(weir__heap_rows);
}

/* ---- changing ---- */

/* Puts a record where its priority wants it; what stood there is split by the key into
 * what goes left and what goes right. */
void weir__heap_tree_insert(const weir__heap *heap, uint32_t *link, uint32_t id,
                            weir__heap_free *record)
{
    uint32_t grains = record->more, priority = priority_of(id), rest;
    uint64_t key = record->key;
    while ((rest = *link) != 0 && priority_of(rest) >= priority)
        link = step_from(weir__heap_free_at(heap, rest), grains, key);

    uint32_t *left = &record->below[0], *right = &record->below[1];
    *link = id;
    while (rest != 0) {
        weir__heap_free *its = weir__heap_free_at(heap, rest);
        if (comes_before(its, grains, key)) {
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
}

/* Two subtrees, all of the first before all of the second, become one. */
static inline void zip(const weir__heap *heap, uint32_t *link, uint32_t left,
                       uint32_t right)
{
    while (left != 0 && right != 0) {
        if (priority_of(left) >= priority_of(right)) {
            *link = left;
            link = &weir__heap_free_at(heap, left)->below[1];
            left = *link;
        } else {
            *link = right;
            link = &weir__heap_free_at(heap, right)->below[0];
            right = *link;
        }
    }
    *link = left != 0 ? left : right;
}

/* A link that leads to a record leads to what is below it then. */
static inline void unhook(const weir__heap *heap, uint32_t *link,
                          const weir__heap_free *record)
{
    if (record->below[0] != 0 && record->below[1] != 0)
        zip(heap, link, record->below[0], record->below[1]);
    else
        *link = record->below[0] | record->below[1];
}

void weir__heap_tree_remove(const weir__heap *heap, uint32_t *link, uint32_t id,
                            weir__heap_free *record)
{
    for (uint32_t at; (at = *link) != id;) {
        WEIR_CHECK(at != 0, "a free block is in its bin");
        link = step_from(weir__heap_free_at(heap, at), record->more, record->key);
    }
    unhook(heap, link, record);
}

/* ---- looking ---- */

/* The owner's next bin after *bin that has anything; false: there is none. */
static inline bool next_bin(const weir__heap_owner *owner, weir__heap_bin *bin)
{
    const weir__heap_row *row = owner->rows[bin->row];
    uint64_t bits = row != NULL ? row->bits & (~UINT64_C(1) << bin->bit) : 0;
    if (bits == 0) {
        row = weir__heap_next_row(owner, &bin->row);
        if (row == NULL)
            return false;
        bits = row->bits;
    }
    bin->bit = (uint32_t)__builtin_ctzll(bits);
    return true;
}

static inline uint32_t *root_of(const weir__heap_owner *owner, weir__heap_bin bin)
{
    return &owner->rows[bin.row]->roots[bin.bit];
}

/* The link to the first record of a tree that has so many grains or more; or null. */
static inline uint32_t *link_from(const weir__heap *heap, uint32_t *link,
                                  uint32_t grains)
{
    uint32_t *found = NULL;
    for (uint32_t at; (at = *link) != 0;) {
        weir__heap_free *record = weir__heap_free_at(heap, at);
        bool is_less = record->more < grains;
        found = is_less ? found : link;
        link = &record->below[is_less];
    }
    return found;
}

/* Takes out the record that a link in a bin leads to. */
static inline uint32_t take_at(weir__heap *heap, weir__heap_owner *owner,
                               weir__heap_bin bin, uint32_t *link,
                               weir__heap_free **out)
{
    uint32_t id = *link;
    *out = weir__heap_free_at(heap, id);
    unhook(heap, link, *out);
    if (*root_of(owner, bin) == 0)
        weir__heap_bin_is_empty(heap, owner, owner->rows[bin.row], bin);
    return id;
}

uint32_t weir__heap_bins_take_near(weir__heap *heap, weir__heap_owner *owner,
                                   size_t bytes, weir__heap_free **out)
{
    if (bytes > WEIR__CHUNK_MOST)
        return 0;
    const uint32_t grains = (uint32_t)(bytes >> WEIR__HEAP_GRAIN_BITS);
    weir__heap_bin bin = weir__heap_bin_of(grains);
    if (has_bin(owner, bin)) {
        uint32_t *link = link_from(heap, root_of(owner, bin), grains);
        if (link != NULL)
            return take_at(heap, owner, bin, link, out);
    }
    return next_bin(owner, &bin)
               ? weir__heap_bins_take_first(heap, owner, owner->rows[bin.row], bin, out)
               : 0;
}

static bool fits(const weir__heap_free *record, size_t bytes, size_t alignment)
{
    const uint64_t grain = record->key & ((UINT64_C(1) << WEIR__KEY_OWNER_SHIFT) - 1);
    size_t gap = (size_t)(0 - (grain << WEIR__HEAP_GRAIN_BITS)) & (alignment - 1);
    size_t room = (size_t)record->more << WEIR__HEAP_GRAIN_BITS;
    return room >= bytes && room - bytes >= gap;
}

/* The best fit in a bin of one size: the lowest of the first that have room. */
static uint32_t list_best(const weir__heap *heap, uint32_t at, size_t bytes,
                          size_t alignment)
{
    const weir__heap_free *best = NULL;
    for (uint32_t left = WEIR__BIN_LOOKS; at != 0 && left > 0;) {
        const weir__heap_free *record = weir__heap_free_at(heap, at);
        at = record->below[1];
        if (!fits(record, bytes, alignment))
            continue;
        if (best == NULL || record->key < best->key)
            best = record;
        left--;
    }
    return best != NULL ? best->block : 0;
}

/* The same in one of several, none of which has a key before that. */
static uint32_t tree_best(const weir__heap *heap, uint32_t root, uint64_t key,
                          size_t bytes, size_t alignment)
{
    uint32_t grains = (uint32_t)(bytes >> WEIR__HEAP_GRAIN_BITS), id;
    while ((id = tree_from(heap, root, grains, key)) != 0) {
        const weir__heap_free *record = weir__heap_free_at(heap, id);
        if (fits(record, bytes, alignment))
            return record->block;
        grains = record->more;
        key = record->key + 1;
    }
    return 0;
}

uint32_t weir__heap_best(const weir__heap *heap, const weir__heap_owner *owner,
                         size_t bytes, size_t alignment)
{
    if (bytes > WEIR__CHUNK_MOST)
        return 0;
    weir__heap_bin bin = weir__heap_bin_of((uint32_t)(bytes >> WEIR__HEAP_GRAIN_BITS));
    uint32_t block = 0;
    for (bool has = has_bin(owner, bin) || next_bin(owner, &bin); has && block == 0;
         has = next_bin(owner, &bin)) {
        uint32_t root = *root_of(owner, bin);
        block = bin.row < WEIR__EXACT_ROWS
                    ? list_best(heap, root, bytes, alignment)
                    : tree_best(heap, root, weir__heap_key_from(owner), bytes,
                                alignment);
    }
    return block;
}

/* ---- verify ---- */

/* A record that is in a bin. */
static void record_verify(const weir__heap *heap, const weir__heap_owner *owner,
                          weir__heap_bin bin, uint32_t id)
{
    const weir__heap_free *record = weir__heap_free_at(heap, id);
    const weir__heap_block *block = weir__heap_block_of(heap, record->block);
    weir__heap_bin right = weir__heap_bin_of(record->more);
    WEIR_CHECK(weir__heap_tag(block) == weir__heap_free_tag(owner->slot) &&
                   weir__heap_link(block) == id &&
                   weir__heap_grains(block) == record->more &&
                   record->key == weir__heap_key_of(owner, block),
               "only what is free is in the bins, under its owner and size");
    WEIR_CHECK(right.row == bin.row && right.bit == bin.bit,
               "a block is in the bin of its size");
    WEIR_CHECK(record->number <= owner->latest, "an owner knows its latest mark");
}

static void list_verify(const weir__heap *heap, const weir__heap_owner *owner,
                        weir__heap_bin bin, size_t *blocks, size_t *bytes)
{
    uint32_t before = 0;
    for (uint32_t id = *root_of(owner, bin); id != 0;) {
        const weir__heap_free *record = weir__heap_free_at(heap, id);
        record_verify(heap, owner, bin, id);
        WEIR_CHECK(record->below[0] == before, "a bin of one size is a list");
        ++*blocks;
        *bytes += (size_t)record->more << WEIR__HEAP_GRAIN_BITS;
        before = id;
        id = record->below[1];
    }
}

/* In order, and no deeper than chance makes it. */
static void tree_verify(const weir__heap *heap, const weir__heap_owner *owner,
                        weir__heap_bin bin, size_t *blocks, size_t *bytes)
{
    uint32_t root = *root_of(owner, bin), grains = 0;
    uint64_t key = 0;
    for (uint32_t id; (id = tree_from(heap, root, grains, key)) != 0;) {
        const weir__heap_free *record = weir__heap_free_at(heap, id);
        record_verify(heap, owner, bin, id);
        for (size_t i = 0; i < 2; i++) {
            uint32_t at = record->below[i] ? record->below[i] : id;
            WEIR_CHECK(priority_of(at) <= priority_of(id),
                       "a bin is a heap by priority");
        }
        grains = record->more;
        key = record->key + 1;
        ++*blocks;
        *bytes += (size_t)grains << WEIR__HEAP_GRAIN_BITS;
    }
}

/* Adds to *rows how many it has. */
static void owner_verify(const weir__heap *heap, const weir__heap_owner *owner,
                         size_t *rows)
{
    size_t blocks = 0, bytes = 0;
    for (uint32_t number = 0; number < WEIR__BIN_ROWS; number++) {
        const weir__heap_row *row = owner->rows[number];
        WEIR_CHECK((owner->summary[number / 64] >> number % 64 & 1) == (row != NULL),
                   "an owner knows what rows it has");
        if (row == NULL)
            continue;
        WEIR_CHECK(row->bits != 0, "an owner has no row of nothing");
        ++*rows;
        for (uint32_t bit = 0; bit < 64; bit++) {
            WEIR_CHECK((row->bits >> bit & 1) == (row->roots[bit] != 0),
                       "a row knows which of its bins have something");
            weir__heap_bin bin = { number, bit };
            if (number < WEIR__EXACT_ROWS)
                list_verify(heap, owner, bin, &blocks, &bytes);
            else
                tree_verify(heap, owner, bin, &blocks, &bytes);
        }
    }
    WEIR_CHECK(blocks == owner->free_blocks && bytes == owner->free_bytes,
               "an owner counts what it has");
    WEIR_CHECK((heap->owning[owner->slot / 64] >> owner->slot % 64 & 1) == (blocks > 0),
               "who has free blocks is marked");
}

void weir__heap_bins_verify(const weir__heap *heap)
{
    size_t count = 0, owning = 0, rows = 0, spares = 0;
    for (uint32_t slot = 0; slot < heap->owner_count; slot++) {
        const weir__heap_owner *owner = heap->owners[slot];
        WEIR_CHECK(!owner->is_spare || owner->free_blocks == 0,
                   "a spare owner has nothing");
        owner_verify(heap, owner, &rows);
        count += owner->free_blocks;
        owning += owner->free_blocks > 0;
    }
    for (const weir__heap_row *row = heap->row_spares; row; row = row->next_spare)
        spares++;
    WEIR_CHECK(count == heap->free_blocks, "the bins have all that is free, once");
    WEIR_CHECK(owning == heap->owning_count, "owners of something are counted");
    WEIR_CHECK(spares == heap->row_spare_count && rows + spares == heap->row_count,
               "no row is lost");
}
