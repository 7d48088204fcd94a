/* heap_records.c - the records of a heap: arrays of them, those that are spare, and the
 * promise that there are enough.
 *
 * Block records never change places: who reads without the lock may follow a stale id,
 * and must find one there. So that an id is an index all the same, a heap reserves the
 * addresses for all that there can ever be, and makes memory of them as it needs it.
 * Where a process may have few addresses there is room for less.
 *
 * Each group of records in a row has a home from when the first of them is taken. Homes
 * are there for speed alone: where one has no record to spare, another's will do. */
#include "heap_internal.h"

#include <string.h>

#include "internal.h"

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define RECORDS_LEAST 16u
#define FREES_LEAST   8u
#define ROOM_LEAST    256u
#else
#define RECORDS_LEAST 512u
#define FREES_LEAST   128u
#define ROOM_LEAST    65536u
#endif
/* As many are made at once, or such a part of those that there are. */
#define MADE_SHARE    16u

#define GROUP         (1u << WEIR__HOME_BITS)
#define FREE_GROUP    8u /* four lines */

_Static_assert(sizeof(weir__heap_block) == 16 && sizeof(weir__heap_tie) == 8,
               "a block costs 24 bytes");
_Static_assert(sizeof(weir__heap_free) == 32, "and 32 more while it is free");
_Static_assert(GROUP * sizeof(weir__heap_tie) % WEIR__LINE == 0,
               "groups are whole lines");
_Static_assert(RECORDS_LEAST % GROUP == 0 && FREES_LEAST % FREE_GROUP == 0 &&
                   ROOM_LEAST % GROUP == 0,
               "and whole groups are made");
_Static_assert(WEIR__HEAP_HOMES <= UINT8_MAX, "a home is a byte");

/* ---- records ---- */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Of a group there may be: its records, as many free ones, the ties, and its home. */
#define GROUP_BYTES                                                            \
    (GROUP * (sizeof(weir__heap_block) + sizeof(weir__heap_free) +             \
              sizeof(weir__heap_tie)) + sizeof(uint8_t))

static bool room_reserve(weir__heap *heap)
{
    size_t groups = ((size_t)1 << WEIR__ID_BITS) / GROUP;
    heap->view.records =
        weir__host_reserve(GROUP_BYTES, &groups, ROOM_LEAST / GROUP, false);
    if (heap->view.records == NULL)
        return false;
    heap->room = (uint32_t)(groups * GROUP);
    heap->frees = (weir__heap_free *)(heap->view.records + heap->room);
    heap->ties = (weir__heap_tie *)(heap->frees + heap->room);
    heap->homes = (uint8_t *)(heap->ties + heap->room);
    return true;
}

static void room_release(weir__heap *heap)
{
    weir__host_release(heap->view.records, heap->room / GROUP * GROUP_BYTES);
}

/* How many there are once more are made; as many as before: there is no room. */
static uint32_t made_next(const weir__heap *heap, uint32_t made, uint32_t at_least,
                          uint32_t group)
{
    size_t more = larger(at_least, made / MADE_SHARE) & ~(size_t)(group - 1);
    return made + (uint32_t)smaller(more, heap->room - made);
}

static bool records_make(weir__heap *heap)
{
    const uint32_t had = heap->made, made = made_next(heap, had, RECORDS_LEAST, GROUP);
    if (made == had ||
        !weir__host_commit(heap->view.records, had * sizeof(weir__heap_block),
                           made * sizeof(weir__heap_block)) ||
        !weir__host_commit(heap->ties, had * sizeof(weir__heap_tie),
                           made * sizeof(weir__heap_tie)) ||
        !weir__host_commit(heap->homes, had >> WEIR__HOME_BITS,
                           made >> WEIR__HOME_BITS))
        return false;
    heap->made = made;
    heap->spare_count += made - had - (had == 0); /* 0 names none */
    return true;
}

static bool frees_make(weir__heap *heap)
{
    const uint32_t had = heap->free_made;
    const uint32_t made = made_next(heap, had, FREES_LEAST, FREE_GROUP);
    if (made == had ||
        !weir__host_commit(heap->frees, had * sizeof(weir__heap_free),
                           made * sizeof(weir__heap_free)))
        return false;
    heap->free_made = made;
    heap->free_spare_count += made - had - (had == 0);
    return true;
}

/* ---- homes ---- */

static bool has_fresh(const weir__heap *heap)
{
    return heap->fresh != heap->made;
}

bool weir__heap_home_has_spare(const weir__heap *heap, uint32_t home)
{
    return heap->spare_count > heap->promised * WEIR__HEAP_PROMISE &&
           (heap->spares[home].blocks != 0 || has_fresh(heap));
}

static void push_spare(weir__heap *heap, uint32_t home, uint32_t id)
{
    weir__heap_set_link(weir__heap_block_of(heap, id), heap->spares[home].blocks);
    heap->spares[home].blocks = id;
}

static void make_home(weir__heap *heap, uint32_t home)
{
    uint32_t first = heap->fresh;
    heap->fresh += GROUP;
    heap->homes_used += !heap->spares[home].is_used;
    heap->spares[home].is_used = true;
    heap->homes[first >> WEIR__HOME_BITS] = (uint8_t)home;
    for (uint32_t i = GROUP; i-- > 0;) {
        if (first + i != 0) /* which names none */
            push_spare(heap, home, first + i);
    }
}

uint32_t weir__heap_home_near(weir__heap *heap, uint32_t home)
{
    if (heap->spares[home].blocks == 0 && has_fresh(heap))
        make_home(heap, home);
    for (uint32_t i = 0; i < WEIR__HEAP_HOMES; i++) {
        uint32_t near = (home + i) % WEIR__HEAP_HOMES;
        if (heap->spares[near].blocks != 0)
            return near;
    }
    WEIR_CHECK(false, "records were promised");
    return home;
}

/* Whether there is no group for a home that has none yet, or no more is spare than one
 * for each but one: then that may have none. It is time to make more, if there is room
 * and the host memory. */
static inline bool wants_fresh(const weir__heap *heap)
{
    return !has_fresh(heap) && heap->made != heap->room &&
           (heap->homes_used < WEIR__HEAP_HOMES ||
            heap->spare_count + GROUP < heap->homes_used * GROUP);
}

static void make_free_home(weir__heap *heap, uint32_t home)
{
    uint32_t first = heap->free_fresh, *spares = &heap->spares[home].frees;
    heap->free_fresh += FREE_GROUP;
    for (uint32_t i = FREE_GROUP; i-- > 0;) {
        if (first + i == 0) /* which names none */
            continue;
        weir__heap_free_at(heap, first + i)->beside[0] = *spares;
        *spares = first + i;
    }
}

uint32_t weir__heap_free_near(weir__heap *heap, uint32_t home)
{
    if (heap->free_fresh != heap->free_made)
        make_free_home(heap, home);
    for (uint32_t i = 0; i < WEIR__HEAP_HOMES; i++) {
        uint32_t near = (home + i) % WEIR__HEAP_HOMES;
        if (heap->spares[near].frees != 0)
            return near;
    }
    WEIR_CHECK(false, "who takes a free record knows that one is spare");
    return home;
}

/* ---- the promise ---- */

/* What one more request is promised, besides what others are. */
static inline size_t promised_frees(const weir__heap *heap)
{
    return ((size_t)heap->promised + 1) * WEIR__HEAP_PROMISE_FREE;
}

/* How many free records there should be then, with those for what is released. */
static inline size_t frees_wanted(const weir__heap *heap)
{
    return promised_frees(heap) +
           larger(heap->taken_blocks / WEIR__RESERVE_SHARE, WEIR__RESERVE_LEAST);
}

/* The same of rows. An owner has each no more than once: the reserve is enough for all
 * that goes to one. */
static inline size_t rows_wanted(const weir__heap *heap)
{
    return promised_frees(heap) +
           larger(smaller(heap->taken_blocks, WEIR__BIN_ROWS), WEIR__RESERVE_LEAST);
}

/* Whether there is nothing to do for one more request. */
static inline bool is_stocked(const weir__heap *heap)
{
    return heap->returned == 0 && heap->segments_full == NULL &&
           heap->owner_spare_count >= WEIR__OWNERS_SPARE &&
           heap->spare_count >= (heap->promised + 1) * WEIR__HEAP_PROMISE &&
           !wants_fresh(heap) && heap->free_spare_count >= frees_wanted(heap) &&
           heap->row_spare_count >= rows_wanted(heap);
}

/* Before all else: it needs no block records, of which there may be no more, and
 * merging gives some back. */
bool weir__heap_settle(weir__heap *heap)
{
    weir__heap_settle_some(heap);
    while (heap->returned != 0) {
        if (weir__heap_free_unpromised(heap) == 0 && !frees_make(heap))
            return false;
        if (!weir__heap_rows_stock(heap, rows_wanted(heap)))
            return false;
        weir__heap_settle_some(heap);
    }
    return true;
}

/* Where there can be no more of them, what is promised has to be enough. */
static bool frees_stock(weir__heap *heap)
{
    while (heap->free_spare_count < frees_wanted(heap)) {
        if (heap->free_made == heap->room)
            return heap->free_spare_count >= promised_frees(heap);
        if (!frees_make(heap))
            return false;
    }
    return true;
}

/* Promises after it has seen to all of that. */
static WEIR_COLD bool stock_and_promise(weir__heap *heap)
{
    if (!weir__heap_settle(heap))
        return false;
    while (heap->spare_count < (heap->promised + 1) * WEIR__HEAP_PROMISE) {
        if (!records_make(heap))
            return false;
    }
    if (wants_fresh(heap))
        (void)records_make(heap);
    if (!frees_stock(heap) || !weir__heap_rows_stock(heap, rows_wanted(heap)))
        return false;
    if (heap->owner_spare_count < WEIR__OWNERS_SPARE && !weir__heap_owners_stock(heap))
        return false;
    weir__heap_map_stock(heap);
    heap->promised++;
    return true;
}

bool weir__heap_promise(weir__heap *heap)
{
    if (WEIR_LIKELY(is_stocked(heap))) {
        heap->promised++;
        return true;
    }
    return stock_and_promise(heap);
}

/* ---- beginning and end ---- */

bool weir__heap_init(weir__heap *heap)
{
    memset(heap, 0, sizeof *heap);
    if (!weir__heap_map_init(heap))
        return false;
    if (room_reserve(heap)) {
        /* Some there always are: who follows a stale id finds a record. */
        if (records_make(heap) && weir__heap_owners_init(heap))
            return true;
        room_release(heap);
    }
    weir__heap_map_close(heap);
    return false;
}

void weir__heap_close(weir__heap *heap)
{
    weir__heap_map_close(heap);
    weir__heap_rows_close(heap);
    weir__heap_owners_close(heap);
    room_release(heap);
    memset(heap, 0, sizeof *heap);
}

size_t weir__heap_host_bytes(const weir__heap *heap)
{
    size_t bytes = weir__heap_owner_bytes(heap) + weir__heap_map_bytes(heap) +
                   weir__heap_rows_bytes(heap);
    bytes += heap->made * (sizeof(weir__heap_block) + sizeof(weir__heap_tie)) +
             (heap->made >> WEIR__HOME_BITS);
    bytes += heap->free_made * sizeof(weir__heap_free);
    return bytes;
}
