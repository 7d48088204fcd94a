/* heap_records.c - the records of a heap: slabs of them, those that are spare, and the
 * promise that there are enough.
 *
 * Block records and free records never change places: who reads without the lock may
 * follow a stale id, and must find a block record there. For the same reason arrays
 * that the view names are kept when a longer one takes their place.
 *
 * A slab begins at a line, and each group of records in it has a home from when the
 * first of them is taken. Homes are there for speed alone: where one has no record to
 * spare, another's will do. */
#include "heap_internal.h"

#include <string.h>

#include "internal.h"

#define LINE              64u
#define GROUP             (1u << WEIR__HOME_BITS)
#define SLAB_RECORDS      (1u << WEIR__SLAB_BITS)
/* Records with their ties, and a byte for each group that says where it is at home. */
#define SLAB_BYTES                                                         \
    (SLAB_RECORDS * (sizeof(weir__heap_block) + sizeof(weir__heap_tie)) +  \
     (SLAB_RECORDS >> WEIR__HOME_BITS))
#define FREE_SLAB_RECORDS (1u << WEIR__FREE_SLAB_BITS)
#define FREE_GROUP        8u /* four lines, or with one at either end five */

_Static_assert(sizeof(weir__heap_block) == 16 && sizeof(weir__heap_tie) == 8,
               "a block costs 24 bytes, and a tie is found from its record");
_Static_assert(sizeof(weir__heap_free) == 32, "and 32 more while it is free");
_Static_assert(GROUP * sizeof(weir__heap_tie) % LINE == 0, "groups are whole lines");
_Static_assert(SLAB_RECORDS % GROUP == 0 && FREE_SLAB_RECORDS % FREE_GROUP == 0,
               "and slabs whole groups");
_Static_assert(WEIR__HEAP_HOMES <= UINT8_MAX, "a home is a byte");

/* ---- arrays of the view ---- */

struct weir__heap_array {
    weir__heap_array *next;
    size_t bytes;
};

void *weir__heap_array_make(weir__heap *heap, size_t bytes)
{
    weir__heap_array *array = weir__host_alloc(sizeof *array + bytes);
    if (array == NULL)
        return NULL;
    array->next = heap->arrays;
    array->bytes = bytes;
    heap->arrays = array;
    memset(array + 1, 0, bytes);
    return array + 1;
}

/* In front of a slab: where it was allocated. */
struct weir__heap_slab {
    weir__heap_slab *next;
};

static void arrays_close(weir__heap *heap)
{
    while (heap->arrays != NULL) {
        weir__heap_array *array = heap->arrays;
        heap->arrays = array->next;
        weir__host_free(array);
    }
}

/* ---- homes ---- */

static bool has_fresh(const weir__heap *heap)
{
    return heap->fresh != heap->slab_count << WEIR__SLAB_BITS;
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
    *weir__heap_home_at(weir__heap_block_of(heap, first), first) = (uint8_t)home;
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

/* ---- block records ---- */

static bool slabs_grow(weir__heap *heap)
{
    weir__heap_block *_Atomic *old =
        atomic_load_explicit(&heap->view.slabs, memory_order_relaxed);
    uint32_t room = heap->slab_room ? heap->slab_room * 2 : WEIR__ROOM_LEAST;
    weir__heap_block *_Atomic *slabs =
        weir__heap_array_make(heap, room * sizeof *slabs);
    if (slabs == NULL)
        return false;
    for (uint32_t i = 0; i < heap->slab_count; i++)
        atomic_store_explicit(&slabs[i],
                              atomic_load_explicit(&old[i], memory_order_relaxed),
                              memory_order_relaxed);
    atomic_store_explicit(&heap->view.slabs, slabs, memory_order_release);
    heap->slab_room = room;
    return true;
}

static bool slab_make(weir__heap *heap)
{
    const bool has_ids = heap->slab_count < 1u << (WEIR__ID_BITS - WEIR__SLAB_BITS);
    if (!has_ids || (heap->slab_count == heap->slab_room && !slabs_grow(heap)))
        return false;
    weir__heap_slab *memory = weir__host_alloc(sizeof *memory + LINE + SLAB_BYTES);
    if (memory == NULL)
        return false;
    memory->next = heap->slab_memory;
    heap->slab_memory = memory;
    uintptr_t base = ((uintptr_t)(memory + 1) + LINE - 1) & ~(uintptr_t)(LINE - 1);
    weir__heap_block *slab = (weir__heap_block *)base;
    memset(slab, 0, SLAB_BYTES);
    weir__heap_block *_Atomic *slabs =
        atomic_load_explicit(&heap->view.slabs, memory_order_relaxed);
    atomic_store_explicit(&slabs[heap->slab_count], slab, memory_order_release);
    heap->spare_count += heap->slab_count == 0 ? SLAB_RECORDS - 1 : SLAB_RECORDS;
    heap->slab_count++;
    return true;
}

/* Whether no more is spare than a group for each home but one: then one may have none,
 * and it is time for a slab, if there is the host memory. */
static inline bool wants_fresh(const weir__heap *heap)
{
    return heap->spare_count + GROUP < heap->homes_used * GROUP && !has_fresh(heap);
}

/* ---- free records ---- */

static bool free_slabs_grow(weir__heap *heap)
{
    uint32_t room = heap->free_slab_room ? heap->free_slab_room * 2 : WEIR__ROOM_LEAST;
    weir__heap_free **slabs = weir__host_alloc(room * sizeof(weir__heap_free *));
    if (slabs == NULL)
        return false;
    if (heap->free_slab_count > 0)
        memcpy(slabs, heap->free_slabs, heap->free_slab_count * sizeof *slabs);
    weir__host_free(heap->free_slabs);
    heap->free_slabs = slabs;
    heap->free_slab_room = room;
    return true;
}

static bool free_slab_make(weir__heap *heap)
{
    if (heap->free_slab_count == heap->free_slab_room && !free_slabs_grow(heap))
        return false;
    weir__heap_free *slab = weir__host_alloc(FREE_SLAB_RECORDS * sizeof *slab);
    if (slab == NULL)
        return false;
    memset(slab, 0, FREE_SLAB_RECORDS * sizeof *slab);
    heap->free_slabs[heap->free_slab_count] = slab;
    heap->free_spare_count += FREE_SLAB_RECORDS - (heap->free_slab_count == 0);
    heap->free_slab_count++;
    return true;
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
    if (heap->free_fresh != heap->free_slab_count << WEIR__FREE_SLAB_BITS)
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

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* How many free records there should be once one more request is promised its own, of
 * which so many are for what is RETURNED. */
static inline size_t free_records_wanted(const weir__heap *heap, size_t returned)
{
    size_t reserve =
        larger(heap->taken_blocks / WEIR__RESERVE_SHARE, WEIR__RESERVE_LEAST);
    return ((size_t)heap->promised + 1) * WEIR__HEAP_PROMISE_FREE + reserve + returned;
}

/* The same of rows. An owner has each no more than once: the reserve is enough for all
 * that goes to one. */
static inline size_t rows_wanted(const weir__heap *heap, size_t returned)
{
    size_t reserve =
        larger(smaller(heap->taken_blocks, WEIR__BIN_ROWS), WEIR__RESERVE_LEAST);
    if (returned != 0)
        returned = smaller(returned, (size_t)WEIR__BIN_ROWS * heap->owner_count);
    return ((size_t)heap->promised + 1) * WEIR__HEAP_PROMISE_FREE + reserve + returned;
}

/* Whether there is nothing to do for one more request. */
static inline bool is_stocked(const weir__heap *heap)
{
    return heap->returned == 0 && heap->segments_full == NULL &&
           heap->owner_spare_count >= WEIR__OWNERS_SPARE &&
           heap->spare_count >= (heap->promised + 1) * WEIR__HEAP_PROMISE &&
           !wants_fresh(heap) &&
           heap->free_spare_count >= free_records_wanted(heap, 0) &&
           heap->row_spare_count >= rows_wanted(heap, 0);
}

/* Promises after it has seen to all of that. */
static WEIR_COLD bool stock_and_promise(weir__heap *heap)
{
    while (heap->spare_count < (heap->promised + 1) * WEIR__HEAP_PROMISE) {
        if (!slab_make(heap))
            return false;
    }
    if (wants_fresh(heap))
        (void)slab_make(heap);
    const size_t returned = heap->returned_blocks;
    while (heap->free_spare_count < free_records_wanted(heap, returned)) {
        if (!free_slab_make(heap))
            return false;
    }
    if (!weir__heap_rows_stock(heap, rows_wanted(heap, returned)))
        return false;
    if (heap->owner_spare_count < WEIR__OWNERS_SPARE && !weir__heap_owners_stock(heap))
        return false;
    weir__heap_map_stock(heap);
    heap->promised++;
    weir__heap_settle(heap);
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
    return weir__heap_owners_init(heap);
}

void weir__heap_close(weir__heap *heap)
{
    weir__heap_map_close(heap);
    weir__heap_rows_close(heap);
    weir__heap_owners_close(heap);
    while (heap->slab_memory != NULL) {
        weir__heap_slab *memory = heap->slab_memory;
        heap->slab_memory = memory->next;
        weir__host_free(memory);
    }
    for (uint32_t i = 0; i < heap->free_slab_count; i++)
        weir__host_free(heap->free_slabs[i]);
    weir__host_free(heap->free_slabs);
    arrays_close(heap);
    memset(heap, 0, sizeof *heap);
}

size_t weir__heap_host_bytes(const weir__heap *heap)
{
    size_t bytes = weir__heap_owner_bytes(heap) + weir__heap_map_bytes(heap) +
                   weir__heap_rows_bytes(heap);
    for (const weir__heap_array *array = heap->arrays; array; array = array->next)
        bytes += sizeof *array + array->bytes;
    bytes += heap->slab_count * (sizeof(weir__heap_slab) + LINE + SLAB_BYTES);
    bytes += ((size_t)heap->free_slab_count * sizeof(weir__heap_free))
             << WEIR__FREE_SLAB_BITS;
    bytes += heap->free_slab_room * sizeof(weir__heap_free *);
    return bytes;
}
