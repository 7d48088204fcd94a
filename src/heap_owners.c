/* heap_owners.c - whose the free memory of a heap is.
 *
 * An owner is made for a clock that is seen, and its slot used again for another once
 * nothing names it: no free record, no RETURNED block, no block that is OUT, no pin.
 * Nobody keeps count of that. When there are many more owners than the last look left,
 * all records are gone through, and what is not named becomes spare. */
#include "heap_internal.h"

#include <string.h>

#include "internal.h"

static uint32_t *by_clock(const weir__heap *heap, uint64_t clock)
{
    uint32_t at = (uint32_t)weir__heap_hash(clock) & heap->by_clock_mask;
    while (heap->by_clock[at] != 0 &&
           heap->owners[heap->by_clock[at]]->clock != clock)
        at = (at + 1) & heap->by_clock_mask;
    return &heap->by_clock[at];
}

weir__heap_owner *weir__heap_owner_find(const weir__heap *heap, uint64_t clock)
{
    if (clock == 0)
        return heap->owners[WEIR__OWNER_DONE];
    uint32_t slot = *by_clock(heap, clock);
    return slot != 0 ? heap->owners[slot] : NULL;
}

/* What stood behind the hole moves up, unless it is at home behind it. */
static void by_clock_remove(weir__heap *heap, uint64_t clock)
{
    uint32_t mask = heap->by_clock_mask;
    uint32_t hole = (uint32_t)(by_clock(heap, clock) - heap->by_clock);
    for (uint32_t at = (hole + 1) & mask; heap->by_clock[at] != 0;
         at = (at + 1) & mask) {
        uint32_t home =
            (uint32_t)weir__heap_hash(heap->owners[heap->by_clock[at]]->clock) & mask;
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        heap->by_clock[hole] = heap->by_clock[at];
        hole = at;
    }
    heap->by_clock[hole] = 0;
}

/* ---- room ---- */

/* Makes room for as many slots as can be named, twice that in the table by clock. */
static bool owners_grow(weir__heap *heap)
{
    uint32_t room = heap->owner_room ? heap->owner_room * 2 : 64;
    if (room > WEIR__HOLDER_MAX)
        return false;
    weir__heap_owner **owners = weir__host_alloc(room * sizeof(weir__heap_owner *));
    uint32_t *table = weir__host_alloc(room * 2 * sizeof *table);
    uint64_t *owning = weir__host_alloc(room / 64 * sizeof *owning);
    if (owners == NULL || table == NULL || owning == NULL) {
        weir__host_free(owners);
        weir__host_free(table);
        weir__host_free(owning);
        return false;
    }
    memset(table, 0, room * 2 * sizeof *table);
    memset(owning, 0, room / 64 * sizeof *owning);
    if (heap->owner_count > 0) {
        memcpy(owners, heap->owners, heap->owner_count * sizeof(weir__heap_owner *));
        memcpy(owning, heap->owning, heap->owner_room / 64 * sizeof *owning);
    }
    weir__host_free(heap->owners);
    weir__host_free(heap->by_clock);
    weir__host_free(heap->owning);
    heap->owners = owners;
    heap->by_clock = table;
    heap->by_clock_mask = room * 2 - 1;
    heap->owning = owning;
    heap->owner_room = room;
    for (uint32_t slot = WEIR__OWNER_ASIDE; slot < heap->owner_count; slot++) {
        if (!owners[slot]->is_spare)
            *by_clock(heap, owners[slot]->clock) = slot;
    }
    return true;
}

static void make_spare(weir__heap *heap, weir__heap_owner *owner)
{
    owner->is_spare = true;
    owner->next_spare = heap->owner_spares;
    heap->owner_spares = owner->slot;
    heap->owner_spare_count++;
}

static bool owner_make(weir__heap *heap)
{
    if (heap->owner_count == heap->owner_room && !owners_grow(heap))
        return false;
    weir__heap_owner *owner = weir__host_alloc(sizeof *owner);
    if (owner == NULL)
        return false;
    memset(owner, 0, sizeof *owner);
    owner->slot = heap->owner_count;
    heap->owners[heap->owner_count++] = owner;
    make_spare(heap, owner);
    return true;
}

/* ---- those that nothing names ---- */

/* A thread may be putting the block on its stack, or taking it from there, just now:
 * then `link` is of another moment than the tag and may be anything. The owner that
 * such a thread's blocks have is pinned. */
static void name_linked(const weir__heap *heap, const weir__heap_block *block)
{
    uint32_t slot = weir__heap_link(block);
    if (slot < heap->owner_count)
        heap->owners[slot]->is_named = true;
}

static void name_records(const weir__heap *heap, uint32_t record)
{
    for (const weir__heap_free *at; record != 0; record = at->more) {
        at = weir__heap_free_at(heap, record);
        heap->owners[weir__heap_slot_of(at)]->is_named = true;
    }
}

static void name_owners(const weir__heap *heap, const weir__heap_block *block)
{
    uint32_t tag = weir__heap_tag(block);
    uint32_t holder = tag >> WEIR__HOLDER_SHIFT;
    switch (tag & WEIR__TAG_STATE_MASK) {
    case WEIR__HEAP_LIMBO:
    case WEIR__HEAP_HELD:
        name_records(heap, weir__heap_link(block));
        return;
    case WEIR__HEAP_OUT:
        name_linked(heap, block);
        return;
    case WEIR__HEAP_CACHED:
        if (holder == 0) /* nobody's: it is on its way back */
            name_linked(heap, block);
        return;
    case WEIR__HEAP_FREE:
    case WEIR__HEAP_RETURNED:
        heap->owners[holder]->is_named = true;
        return;
    default:
        return;
    }
}

static void sweep(weir__heap *heap)
{
    for (uint32_t slot = 0; slot < heap->owner_count; slot++)
        heap->owners[slot]->is_named = slot <= WEIR__OWNER_ASIDE ||
                                       heap->owners[slot]->pins > 0;
    for (uint32_t id = 1; id < heap->made; id++)
        name_owners(heap, weir__heap_block_of(heap, id));

    uint32_t named = 0;
    for (uint32_t slot = heap->owner_count; slot-- > 0;) {
        weir__heap_owner *owner = heap->owners[slot];
        named += owner->is_named;
        if (owner->is_named || owner->is_spare)
            continue;
        WEIR_CHECK(owner->free_blocks == 0, "an owner of nothing has nothing");
        by_clock_remove(heap, owner->clock);
        make_spare(heap, owner);
    }
    heap->recent = heap->owners[WEIR__OWNER_DONE];
    size_t more = heap->taken_blocks / 8 + named;
    if (more < WEIR__SWEEP_LEAST)
        more = WEIR__SWEEP_LEAST;
    heap->sweep_at = more < WEIR__HOLDER_MAX ? named + (uint32_t)more : UINT32_MAX;
}

/* One more than a promise wants: it is for whom it is made. */
bool weir__heap_owners_stock(weir__heap *heap)
{
    if (heap->owner_spare_count > WEIR__OWNERS_SPARE)
        return true;
    if (heap->owner_count >= heap->sweep_at)
        sweep(heap);
    while (heap->owner_spare_count <= WEIR__OWNERS_SPARE) {
        if (!owner_make(heap))
            return false;
    }
    return true;
}

weir__heap_owner *weir__heap_owner_meet(weir__heap *heap, uint64_t clock)
{
    weir__heap_owner *owner = weir__heap_owner_find(heap, clock);
    if (owner == NULL && heap->owner_spare_count == 0)
        return NULL;
    if (owner == NULL) {
        owner = heap->owners[heap->owner_spares];
        heap->owner_spares = owner->next_spare;
        heap->owner_spare_count--;
        *owner = (weir__heap_owner){ .clock = clock, .slot = owner->slot };
        *by_clock(heap, clock) = owner->slot;
    }
    heap->recent = owner;
    return owner;
}

weir__heap_owner *weir__heap_owner_get(weir__heap *heap, uint64_t clock,
                                       weir_stream stream)
{
    weir__heap_owner *owner = weir__heap_owner_take(heap, clock);
    if (owner == NULL) {
        if (!weir__heap_owners_stock(heap))
            return NULL;
        owner = weir__heap_owner_take(heap, clock);
    }
    owner->stream = stream;
    return owner;
}

bool weir__heap_can_release(const weir__heap *heap, uint64_t clock)
{
    return heap->owner_spare_count > 0 || weir__heap_owner_find(heap, clock) != NULL;
}

/* ---- who has something ---- */

weir__heap_owner *weir__heap_next_owner(const weir__heap *heap, uint32_t *slot)
{
    uint32_t word = *slot / 64, words = heap->owner_room / 64;
    if (word >= words)
        return NULL;
    uint64_t bits = heap->owning[word] & (~UINT64_C(0) << *slot % 64);
    while (bits == 0) {
        if (++word == words)
            return NULL;
        bits = heap->owning[word];
    }
    *slot = word * 64 + (uint32_t)__builtin_ctzll(bits);
    return heap->owners[*slot];
}

void weir__heap_owner_move_all(weir__heap *heap, weir__heap_owner *from,
                               weir__mark mark)
{
    while (from->free_blocks > 0) {
        uint32_t block =
            weir__heap_best(heap, from, WEIR__HEAP_GRAIN, WEIR__HEAP_GRAIN);
        weir__heap_hold(heap, block);
        weir__heap_release(heap, block, mark);
    }
}

/* ---- beginning and end ---- */

bool weir__heap_owners_init(weir__heap *heap)
{
    heap->sweep_at = WEIR__SWEEP_LEAST;
    if (!owner_make(heap) || !owner_make(heap)) {
        weir__heap_owners_close(heap);
        return false;
    }
    heap->owner_spares = heap->owner_spare_count = 0;
    heap->recent = heap->owners[WEIR__OWNER_DONE];
    *heap->owners[WEIR__OWNER_DONE] = (weir__heap_owner){ .slot = WEIR__OWNER_DONE };
    *heap->owners[WEIR__OWNER_ASIDE] =
        (weir__heap_owner){ .clock = WEIR__CLOCK_ASIDE, .slot = WEIR__OWNER_ASIDE };
    *by_clock(heap, WEIR__CLOCK_ASIDE) = WEIR__OWNER_ASIDE;
    return true;
}

void weir__heap_owners_close(weir__heap *heap)
{
    for (uint32_t slot = 0; slot < heap->owner_count; slot++)
        weir__host_free(heap->owners[slot]);
    weir__host_free(heap->owners);
    weir__host_free(heap->by_clock);
    weir__host_free(heap->owning);
}

size_t weir__heap_owner_bytes(const weir__heap *heap)
{
    return heap->owner_count * sizeof(weir__heap_owner) +
           heap->owner_room * (sizeof(weir__heap_owner *) + 2 * sizeof(uint32_t)) +
           heap->owner_room / 64 * sizeof(uint64_t);
}
