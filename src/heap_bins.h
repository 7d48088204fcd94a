/* heap_bins.h - into the bins and out of them: see heap_bins.c. */
#ifndef WEIR_HEAP_BINS_H
#define WEIR_HEAP_BINS_H

#include "heap_internal.h"

/* So many blocks of a bin are looked at. */
#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define WEIR__BIN_LOOKS 3u
#else
#define WEIR__BIN_LOOKS 16u
#endif

/* ---- rows ---- */

/* Rows to spare, where there are none at `home`. One is spare. */
WEIR_COLD weir__heap_row **weir__heap_rows_near(weir__heap *heap, uint32_t home);

static inline void weir__heap_row_give_back(weir__heap *heap,
                                            const weir__heap_owner *owner,
                                            weir__heap_row *row)
{
    weir__heap_row **spares = &heap->spares[weir__heap_home_for(owner)].rows;
    row->next_spare = *spares;
    *spares = row;
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
    const uint32_t home = weir__heap_home_for(owner);
    weir__heap_row **spares = &heap->spares[home].rows;
    if (WEIR_UNLIKELY(*spares == NULL))
        spares = weir__heap_rows_near(heap, home);
    row = *spares;
    *spares = row->next_spare;
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
        weir__heap_row_give_back(heap, owner, row);
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

/* The key of the record of an owner's block. */
static inline uint64_t weir__heap_key_of(const weir__heap_owner *owner,
                                         const weir__heap_block *block)
{
    return (uint64_t)owner->slot << WEIR__KEY_OWNER_SHIFT | weir__heap_grain(block);
}

/* Puts a record, whose key is right, into the bin of `grains`; there is a row. Who
 * puts in or takes out keeps count. */
static inline void weir__heap_bins_insert(weir__heap *heap, weir__heap_owner *owner,
                                          uint32_t id, weir__heap_free *record,
                                          uint32_t grains)
{
    weir__heap_bin bin = weir__heap_bin_of(grains);
    weir__heap_row *row = weir__heap_row_of(heap, owner, bin.row);
    const uint32_t first = row->firsts[bin.bit];
    record->more = grains;
    record->beside[0] = 0;
    record->beside[1] = first;
    if (first != 0)
        weir__heap_free_at(heap, first)->beside[0] = id;
    row->firsts[bin.bit] = id;
    row->bits |= UINT64_C(1) << bin.bit;
}

/* Takes a record out of its bin. */
static inline void weir__heap_list_remove(weir__heap *heap, weir__heap_owner *owner,
                                          weir__heap_row *row, weir__heap_bin bin,
                                          const weir__heap_free *record)
{
    const uint32_t before = record->beside[0], after = record->beside[1];
    if (after != 0)
        weir__heap_free_at(heap, after)->beside[0] = before;
    if (before != 0) {
        weir__heap_free_at(heap, before)->beside[1] = after;
        return;
    }
    row->firsts[bin.bit] = after;
    if (after == 0)
        weir__heap_bin_is_empty(heap, owner, row, bin);
}

/* A FREE block's record. It stays as it is. */
static inline void weir__heap_bins_remove(weir__heap *heap, weir__heap_owner *owner,
                                          uint32_t id, const weir__heap_free *record)
{
    weir__heap_bin bin = weir__heap_bin_of(record->more);
    weir__heap_row *row = owner->rows[bin.row];
    WEIR_CHECK(record->beside[0] != 0 || row->firsts[bin.bit] == id,
               "a free block is in its bin");
    weir__heap_list_remove(heap, owner, row, bin, record);
}

/* ---- the best fit ---- */

/* The owner's first bin that has anything, of those that a mask has from *bin on, which
 * that becomes; null: there is none. */
static inline weir__heap_row *weir__heap_bin_from(const weir__heap_owner *owner,
                                                  weir__heap_bin *bin, uint64_t mask)
{
    weir__heap_row *row = owner->rows[bin->row];
    uint64_t bits = row != NULL ? row->bits & mask << bin->bit : 0;
    if (bits == 0) {
        row = weir__heap_next_row(owner, &bin->row);
        if (row == NULL)
            return NULL;
        bits = row->bits;
    }
    bin->bit = (uint32_t)__builtin_ctzll(bits);
    return row;
}

static inline bool weir__heap_has_room(const weir__heap_free *record, size_t bytes,
                                       size_t alignment)
{
    const uint64_t grain = record->key & ((UINT64_C(1) << WEIR__KEY_OWNER_SHIFT) - 1);
    size_t gap = (size_t)(0 - (grain << WEIR__HEAP_GRAIN_BITS)) & (alignment - 1);
    size_t room = weir__grains_size(record->more);
    return room >= bytes && room - bytes >= gap;
}

/* Whether a record is a better fit than another, where both have room. */
static inline bool weir__heap_is_better(const weir__heap_free *record,
                                        const weir__heap_free *than)
{
    return record->more != than->more ? record->more < than->more
                                      : record->key < than->key;
}

/* A record in a bin; 0: there is none. */
typedef struct weir__heap_fit {
    uint32_t id;
    weir__heap_free *record;
    weir__heap_row *row;
    weir__heap_bin bin;
    bool is_cut;             /* not all of a bin without room was looked at */
} weir__heap_fit;

/* The best fit of an owner's, where so many blocks of a bin are looked at. */
static inline weir__heap_fit weir__heap_bins_fit(const weir__heap *heap,
                                                 const weir__heap_owner *owner,
                                                 size_t bytes, size_t alignment,
                                                 uint32_t looks)
{
    weir__heap_fit fit = { 0 };
    fit.bin = weir__heap_bin_of((uint32_t)(bytes >> WEIR__HEAP_GRAIN_BITS));
    fit.row = weir__heap_bin_from(owner, &fit.bin, ~UINT64_C(0));
    while (fit.row != NULL) {
        uint32_t at = fit.row->firsts[fit.bin.bit];
        for (uint32_t left = looks; at != 0 && left > 0; left--) {
            weir__heap_free *record = weir__heap_free_at(heap, at);
            if (weir__heap_has_room(record, bytes, alignment) &&
                (fit.id == 0 || weir__heap_is_better(record, fit.record))) {
                fit.id = at;
                fit.record = record;
            }
            at = record->beside[1];
        }
        if (WEIR_LIKELY(fit.id != 0))
            return fit;
        fit.is_cut = fit.is_cut || at != 0;
        fit.row = weir__heap_bin_from(owner, &fit.bin, ~UINT64_C(1));
    }
    return fit;
}

/* The same where the few that are looked at have no room: all are. */
WEIR_COLD weir__heap_fit weir__heap_bins_search(const weir__heap *heap,
                                                const weir__heap_owner *owner,
                                                size_t bytes, size_t alignment);

/* See weir__heap_best. */
static inline weir__heap_fit weir__heap_bins_best(const weir__heap *heap,
                                                  const weir__heap_owner *owner,
                                                  size_t bytes, size_t alignment)
{
    if (WEIR_UNLIKELY(bytes > WEIR__CHUNK_MOST))
        return (weir__heap_fit){ 0 };
    weir__heap_fit fit =
        weir__heap_bins_fit(heap, owner, bytes, alignment, WEIR__BIN_LOOKS);
    return WEIR_LIKELY(fit.id != 0 || !fit.is_cut)
               ? fit
               : weir__heap_bins_search(heap, owner, bytes, alignment);
}

/* Takes out the best fit, where alignment does not matter. */
static inline weir__heap_fit weir__heap_bins_take(weir__heap *heap,
                                                  weir__heap_owner *owner, size_t bytes)
{
    weir__heap_fit fit = weir__heap_bins_best(heap, owner, bytes, WEIR__HEAP_GRAIN);
    if (WEIR_LIKELY(fit.id != 0))
        weir__heap_list_remove(heap, owner, fit.row, fit.bin, fit.record);
    return fit;
}

#endif
