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

/* A row for an owner that has not had that one yet. One is spare. */
WEIR_COLD weir__heap_row *weir__heap_row_take(weir__heap *heap, weir__heap_owner *owner,
                                              uint32_t number);

static inline weir__heap_row *weir__heap_row_of(weir__heap *heap,
                                                weir__heap_owner *owner,
                                                uint32_t number)
{
    weir__heap_row *row = owner->rows[number];
    return WEIR_LIKELY(row != NULL) ? row : weir__heap_row_take(heap, owner, number);
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
    owner->summary |= UINT64_C(1) << bin.row;
}

/* Takes a record out of its bin. */
static inline void weir__heap_list_remove(const weir__heap *heap,
                                          weir__heap_owner *owner,
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
    if (after != 0)
        return;
    row->bits &= ~(UINT64_C(1) << bin.bit);
    owner->summary &= ~((uint64_t)(row->bits == 0) << bin.row);
}

/* A FREE block's record. It stays as it is. */
static inline void weir__heap_bins_remove(const weir__heap *heap,
                                          weir__heap_owner *owner, uint32_t id,
                                          const weir__heap_free *record)
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
        const uint64_t beyond = owner->summary & (~UINT64_C(1) << bin->row);
        if (beyond == 0)
            return NULL;
        bin->row = (uint32_t)__builtin_ctzll(beyond);
        row = owner->rows[bin->row];
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
static inline weir__heap_fit weir__heap_bins_take(const weir__heap *heap,
                                                  weir__heap_owner *owner, size_t bytes)
{
    weir__heap_fit fit = weir__heap_bins_best(heap, owner, bytes, WEIR__HEAP_GRAIN);
    if (WEIR_LIKELY(fit.id != 0))
        weir__heap_list_remove(heap, owner, fit.row, fit.bin, fit.record);
    return fit;
}

#endif
