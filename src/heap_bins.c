/* heap_bins.c - free blocks by owner and size: a bin for each size, or for sizes that
 * are near each other, and bitmaps of which bins have something.
 *
 * An owner has rows of bins for the sizes of which it has had anything: what leaves its
 * last bin and comes back has its row there. But with nothing in any it has none; and
 * before more are made than twice those that have anything, the others are taken back,
 * so that many streams that have little left do not keep many. A bin is a list. Of its
 * first few, that became free last, the best fit is taken: that is nearly as good as
 * the best of all, and found at once. Where none of these has room, since they are
 * smaller or lie badly, the next bin that has anything is looked at; and only where
 * that leads to nothing, all of each. So a request is refused for no less, and a long
 * list is gone through only where the alternative is to look beyond the owner. */
#include "heap_bins.h"

#include <string.h>

#include "internal.h"

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define ROWS_LOOK_LEAST 8u
#else
#define ROWS_LOOK_LEAST 256u
#endif

/* ---- rows ---- */

_Static_assert(sizeof(weir__heap_row) % WEIR__LINE == 0, "a row is whole lines");

/* In front of some that were made at once, and begin with a line. */
struct weir__heap_rows {
    weir__heap_rows *next;
};

static size_t made_bytes(void)
{
    return sizeof(weir__heap_rows) + WEIR__LINE +
           WEIR__ROWS_MADE * sizeof(weir__heap_row);
}

static weir__heap_row *rows_in(weir__heap_rows *made)
{
    return (weir__heap_row *)weir__line_from(made + 1);
}

/* It is all 0. */
static void row_spare(weir__heap *heap, weir__heap_row *row)
{
    row->next_spare = heap->row_spares;
    heap->row_spares = row;
    heap->row_spare_count++;
}

void weir__heap_rows_give_back(weir__heap *heap, weir__heap_owner *owner)
{
    for (uint64_t empty = owner->has_rows & ~owner->summary; empty != 0;
         empty &= empty - 1) {
        const uint32_t number = (uint32_t)__builtin_ctzll(empty);
        row_spare(heap, owner->rows[number]);
        owner->rows[number] = NULL;
    }
    owner->has_rows = owner->summary;
}

/* Of all that have something; who has nothing has no rows. */
static void take_back_empty(weir__heap *heap)
{
    weir__heap_owner *owner;
    for (uint32_t slot = 0; (owner = weir__heap_next_owner(heap, &slot)) != NULL;
         slot++)
        weir__heap_rows_give_back(heap, owner);
    const uint32_t used = heap->row_count - heap->row_spare_count;
    heap->rows_look_at = used > ROWS_LOOK_LEAST / 2 ? used * 2 : ROWS_LOOK_LEAST;
}

bool weir__heap_rows_stock(weir__heap *heap, size_t wanted)
{
    if (heap->row_spare_count < wanted && heap->row_count >= heap->rows_look_at)
        take_back_empty(heap);
    while (heap->row_spare_count < wanted) {
        weir__heap_rows *made = weir__host_alloc(made_bytes());
        if (made == NULL)
            return false;
        memset(made, 0, made_bytes());
        made->next = heap->rows;
        heap->rows = made;
        for (uint32_t i = WEIR__ROWS_MADE; i-- > 0;)
            row_spare(heap, &rows_in(made)[i]);
        heap->row_count += WEIR__ROWS_MADE;
    }
    return true;
}

weir__heap_row *weir__heap_row_take(weir__heap *heap, weir__heap_owner *owner,
                                    uint32_t number)
{
    weir__heap_row *row = heap->row_spares;
    WEIR_CHECK(row != NULL, "who puts something into a bin has asked for a row");
    heap->row_spares = row->next_spare;
    heap->row_spare_count--;
    owner->rows[number] = row;
    owner->has_rows |= UINT64_C(1) << number;
    return row;
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
    return heap->row_count / WEIR__ROWS_MADE * made_bytes();
}

/* ---- looking ---- */

weir__heap_fit weir__heap_bins_search(const weir__heap *heap,
                                      const weir__heap_owner *owner, size_t bytes,
                                      size_t alignment)
{
    return weir__heap_bins_fit(heap, owner, bytes, alignment, UINT32_MAX);
}

uint32_t weir__heap_best(const weir__heap *heap, const weir__heap_owner *owner,
                         size_t bytes, size_t alignment)
{
    weir__heap_fit fit = weir__heap_bins_best(heap, owner, bytes, alignment);
    return fit.id != 0 ? fit.record->block : 0;
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
    for (uint32_t id = owner->rows[bin.row]->firsts[bin.bit]; id != 0;) {
        const weir__heap_free *record = weir__heap_free_at(heap, id);
        record_verify(heap, owner, bin, id);
        WEIR_CHECK(record->beside[0] == before, "a bin is a list");
        ++*blocks;
        *bytes += (size_t)record->more << WEIR__HEAP_GRAIN_BITS;
        before = id;
        id = record->beside[1];
    }
}

static uint32_t bins_filled(const weir__heap_row *row)
{
    uint32_t count = 0;
    for (uint32_t bit = 0; bit < 64; bit++)
        count += row->firsts[bit] != 0;
    return count;
}

/* Adds to *rows how many it has. */
static void owner_verify(const weir__heap *heap, const weir__heap_owner *owner,
                         size_t *rows)
{
    size_t blocks = 0, bytes = 0;
    for (uint32_t number = 0; number < WEIR__BIN_ROWS; number++) {
        const weir__heap_row *row = owner->rows[number];
        WEIR_CHECK((owner->summary >> number & 1) == (row != NULL && row->bits != 0),
                   "an owner knows which of its rows have something");
        WEIR_CHECK((owner->has_rows >> number & 1) == (row != NULL),
                   "an owner knows which rows it has");
        if (row == NULL)
            continue;
        ++*rows;
        uint32_t filled = 0;
        for (uint64_t bits = row->bits; bits != 0; bits &= bits - 1, filled++) {
            weir__heap_bin bin = { number, (uint32_t)__builtin_ctzll(bits) };
            WEIR_CHECK(row->firsts[bin.bit] != 0, "a row knows of none that is empty");
            list_verify(heap, owner, bin, &blocks, &bytes);
        }
        WEIR_CHECK(filled == bins_filled(row), "a row knows of all that are not");
    }
    WEIR_CHECK(blocks == owner->free_blocks && bytes == owner->free_bytes,
               "an owner counts what it has");
    WEIR_CHECK(blocks > 0 || owner->has_rows == 0, "an owner of nothing has no rows");
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
