/* heap_bins.h - into the bins and out of them: all of it for bins of one size, and the
 * short ways for others, for a bin that has one block, or none, or of which the first
 * is wanted. All else that goes through a tree is in heap_bins.c. */
#ifndef WEIR_HEAP_BINS_H
#define WEIR_HEAP_BINS_H

#include "heap_internal.h"

/* So many blocks of one size are looked at for the lowest. */
#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define WEIR__BIN_LOOKS 3u
#else
#define WEIR__BIN_LOOKS 16u
#endif

/* ---- heap_bins.c ---- */

/* Puts a record into the tree at `root`, which has one at least. */
void weir__heap_tree_insert(const weir__heap *heap, uint32_t *root, uint32_t id,
                            weir__heap_free *record);
/* Takes it out of one that has others, too. */
void weir__heap_tree_remove(const weir__heap *heap, uint32_t *root, uint32_t id,
                            weir__heap_free *record);
/* Takes out the record of the best fit for what has a bin with other sizes; or gives 0,
 * and *out is not set. */
uint32_t weir__heap_bins_take_near(weir__heap *heap, weir__heap_owner *owner,
                                   size_t bytes, weir__heap_free **out);

/* ---- rows ---- */

static inline void weir__heap_row_give_back(weir__heap *heap, weir__heap_row *row)
{
    row->next_spare = heap->row_spares;
    heap->row_spares = row;
    heap->row_spare_count++;
}

/* What is spare is all 0. */
static inline weir__heap_row *weir__heap_row_of(weir__heap *heap,
                                                weir__heap_owner *owner,
                                                uint32_t number)
{
    weir__heap_row *row = owner->rows[number];
    if (row != NULL)
        return row;
    row = heap->row_spares;
    WEIR_CHECK(row != NULL, "who puts something into a bin has asked for a row");
    heap->row_spares = row->next_spare;
    heap->row_spare_count--;
    owner->rows[number] = row;
    owner->summary[number / 64] |= UINT64_C(1) << number % 64;
    return row;
}

static inline void weir__heap_bin_is_empty(weir__heap *heap, weir__heap_owner *owner,
                                           weir__heap_row *row, weir__heap_bin bin)
{
    row->bits &= ~(UINT64_C(1) << bin.bit);
    if (row->bits == 0) {
        owner->rows[bin.row] = NULL;
        owner->summary[bin.row / 64] &= ~(UINT64_C(1) << bin.row % 64);
        weir__heap_row_give_back(heap, row);
    }
}

/* The owner's next row behind a number that has anything, which that becomes; null:
 * there is none. */
static inline weir__heap_row *weir__heap_next_row(const weir__heap_owner *owner,
                                                  uint32_t *number)
{
    uint32_t word = *number / 64;
    uint64_t rows = owner->summary[word] & (~UINT64_C(1) << *number % 64);
    if (rows == 0 && word == 0)
        rows = owner->summary[word = 1];
    if (rows == 0)
        return NULL;
    *number = word * 64 + (uint32_t)__builtin_ctzll(rows);
    return owner->rows[*number];
}

/* ---- bins ---- */

/* The least key that a record of an owner's has; and a block's. */
static inline uint64_t weir__heap_key_from(const weir__heap_owner *owner)
{
    return (uint64_t)owner->slot << WEIR__KEY_OWNER_SHIFT;
}

static inline uint64_t weir__heap_key_of(const weir__heap_owner *owner,
                                         const weir__heap_block *block)
{
    return weir__heap_key_from(owner) | weir__heap_grain(block);
}

/* Puts a record, whose key is right, into the bin of `grains`; there is a row. Who
 * puts in or takes out keeps count. */
static inline void weir__heap_bins_insert(weir__heap *heap, weir__heap_owner *owner,
                                          uint32_t id, weir__heap_free *record,
                                          uint32_t grains)
{
    weir__heap_bin bin = weir__heap_bin_of(grains);
    weir__heap_row *row = weir__heap_row_of(heap, owner, bin.row);
    uint32_t *root = &row->roots[bin.bit];
    const uint32_t first = *root;
    record->more = grains;
    if (WEIR_UNLIKELY(!weir__heap_is_exact(grains) && first != 0)) {
        weir__heap_tree_insert(heap, root, id, record);
        return;
    }
    record->below[0] = 0;
    record->below[1] = first;
    if (first != 0)
        weir__heap_free_at(heap, first)->below[0] = id;
    *root = id;
    row->bits |= UINT64_C(1) << bin.bit;
}

/* Takes a record out of the list of a bin of one size. */
static inline void weir__heap_list_remove(weir__heap *heap, weir__heap_owner *owner,
                                          weir__heap_row *row, weir__heap_bin bin,
                                          const weir__heap_free *record)
{
    const uint32_t before = record->below[0], after = record->below[1];
    if (after != 0)
        weir__heap_free_at(heap, after)->below[0] = before;
    if (before != 0) {
        weir__heap_free_at(heap, before)->below[1] = after;
        return;
    }
    row->roots[bin.bit] = after;
    if (after == 0)
        weir__heap_bin_is_empty(heap, owner, row, bin);
}

/* A FREE block's record. It stays as it is. */
static inline void weir__heap_bins_remove(weir__heap *heap, weir__heap_owner *owner,
                                          uint32_t id, weir__heap_free *record)
{
    weir__heap_bin bin = weir__heap_bin_of(record->more);
    weir__heap_row *row = owner->rows[bin.row];
    uint32_t *root = &row->roots[bin.bit];
    if (WEIR_UNLIKELY(!weir__heap_is_exact(record->more) &&
                      (*root != id || (record->below[0] | record->below[1]) != 0))) {
        weir__heap_tree_remove(heap, root, id, record);
        return;
    }
    WEIR_CHECK(record->below[0] != 0 || *root == id, "a free block is in its bin");
    weir__heap_list_remove(heap, owner, row, bin, record);
}

/* The lowest of the first in a list, which has one at least. */
static inline uint32_t weir__heap_list_lowest(const weir__heap *heap, uint32_t id,
                                              weir__heap_free **out)
{
    weir__heap_free *record = weir__heap_free_at(heap, id);
    uint32_t at = record->below[1];
    for (uint32_t left = WEIR__BIN_LOOKS; at != 0 && --left > 0;) {
        weir__heap_free *its = weir__heap_free_at(heap, at);
        if (its->key < record->key) {
            id = at;
            record = its;
        }
        at = its->below[1];
    }
    *out = record;
    return id;
}

/* Takes out the best record of a bin that has any, where alignment does not matter. */
static inline uint32_t weir__heap_bins_take_first(weir__heap *heap,
                                                  weir__heap_owner *owner,
                                                  weir__heap_row *row,
                                                  weir__heap_bin bin,
                                                  weir__heap_free **out)
{
    uint32_t *root = &row->roots[bin.bit], *link = root;
    if (WEIR_LIKELY(bin.row < WEIR__EXACT_ROWS)) {
        uint32_t id = weir__heap_list_lowest(heap, *root, out);
        weir__heap_list_remove(heap, owner, row, bin, *out);
        return id;
    }
    weir__heap_free *record = weir__heap_free_at(heap, *link);
    while (record->below[0] != 0) {
        link = &record->below[0];
        record = weir__heap_free_at(heap, *link);
    }
    uint32_t id = *link;
    *link = record->below[1];
    if (*root == 0)
        weir__heap_bin_is_empty(heap, owner, row, bin);
    *out = record;
    return id;
}

/* Takes out the record of the best fit, where alignment does not matter; or gives 0,
 * and *out is not set. */
static inline uint32_t weir__heap_bins_take(weir__heap *heap, weir__heap_owner *owner,
                                            size_t bytes, weir__heap_free **out)
{
    const size_t exact = (size_t)1 << (WEIR__EXACT_BITS + WEIR__HEAP_GRAIN_BITS);
    if (bytes > exact)
        return weir__heap_bins_take_near(heap, owner, bytes, out);
    weir__heap_bin bin = weir__heap_bin_of((uint32_t)(bytes >> WEIR__HEAP_GRAIN_BITS));
    weir__heap_row *row = owner->rows[bin.row];
    uint64_t bits = row != NULL ? row->bits & (~UINT64_C(0) << bin.bit) : 0;
    if (bits == 0) {
        row = weir__heap_next_row(owner, &bin.row);
        if (row == NULL)
            return 0;
        bits = row->bits;
    }
    bin.bit = (uint32_t)__builtin_ctzll(bits);
    return weir__heap_bins_take_first(heap, owner, row, bin, out);
}

#endif
