/* heap.c - see heap.h: what changes blocks. */
#include "heap.h"

#include <string.h>

#include "heap_internal.h"
#include "internal.h"

static uintptr_t align_up(uintptr_t address, size_t alignment)
{
    return (address + (alignment - 1)) & ~(uintptr_t)(alignment - 1);
}

static uint64_t grains_of(uint64_t bytes)
{
    return bytes >> WEIR__HEAP_GRAIN_BITS;
}

static inline weir__heap_block *block_at(const weir__heap *heap, uint32_t id)
{
    return weir__heap_block_of(heap, id);
}

/* ---- holding and releasing ---- */

void weir__heap_hold(weir__heap *heap, uint32_t id)
{
    weir__heap_block *block = block_at(heap, id);
    WEIR_CHECK(weir__heap_is_idle(block), "only what is free can be held");
    if (weir__heap_state_of(block) == WEIR__HEAP_FREE) {
        uint32_t record = weir__heap_link(block);
        weir__heap_owner *owner =
            heap->owners[weir__heap_slot_of(weir__heap_free_at(heap, record))];
        weir__heap_bins_remove(heap, owner, record);
        weir__heap_owner_loses(heap, owner, weir__heap_grains(block));
        weir__heap_free_at(heap, record)->more = 0;
    } else {
        weir__heap_limbo_remove(heap, id);
    }
    weir__heap_set_tag(block, WEIR__HEAP_HELD);
}

static inline void join(weir__heap_block *block, uint32_t id, weir__heap_block *after,
                        uint32_t after_id)
{
    weir__heap_set_behind(block, after_id);
    after->before = id;
}

/* A block takes over the bytes of the one behind it, which is in no bin and has no free
 * record any more. */
static inline void absorb(weir__heap *heap, uint32_t id, weir__heap_block *block,
                          uint32_t next, const weir__heap_block *its)
{
    uint32_t after = weir__heap_behind(its);
    join(block, id, block_at(heap, after), after);
    weir__heap_map_put(heap, its, next, block, false);
    weir__heap_set_grains(block, weir__heap_grains(block) + weir__heap_grains(its));
    weir__heap_record_give_back(heap, next);
}

/* Neighbours of a block that are FREE under an owner, or 0; and the grains of all
 * together. */
typedef struct surroundings {
    uint32_t before, next;
    weir__heap_block *front, *behind;
    uint32_t grains;
} surroundings;

static inline surroundings look_around(const weir__heap *heap,
                                       const weir__heap_block *block,
                                       const weir__heap_owner *owner)
{
    const uint32_t tag = weir__heap_free_tag(owner->slot);
    surroundings its = { .before = block->before,
                         .next = weir__heap_behind(block),
                         .grains = weir__heap_grains(block) };
    its.behind = block_at(heap, its.next);
    if (weir__heap_low_tag(its.behind) == tag)
        its.grains += weir__heap_grains(its.behind);
    else
        its.next = 0;
    its.front = block_at(heap, its.before); /* record 0 is spare */
    if (weir__heap_low_tag(its.front) == tag)
        its.grains += weir__heap_grains(its.front);
    else
        its.before = 0;
    return its;
}

/* What a block has by way of its record, and what its neighbours add. */
typedef struct merging {
    weir__heap_owner *owner;
    uint32_t record; /* or 0 */
    uint64_t number;
} merging;

static inline void merge_record(weir__heap *heap, merging *all,
                                const weir__heap_block *block)
{
    uint32_t record = weir__heap_link(block);
    weir__heap_raise_to(&all->number, weir__heap_free_at(heap, record)->number);
    weir__heap_bins_remove(heap, all->owner, record);
    weir__heap_owner_loses(heap, all->owner, weir__heap_grains(block));
    if (all->record != 0)
        weir__heap_free_give_back(heap, record);
    else
        all->record = record;
}

/* There is no record for it now, or no row. */
static void set_returned(weir__heap *heap, uint32_t id, const weir__heap_owner *owner)
{
    weir__heap_block *block = block_at(heap, id);
    weir__heap_set_link(block, heap->returned);
    weir__heap_set_tag(block, WEIR__HEAP_RETURNED | owner->slot << WEIR__HOLDER_SHIFT);
    heap->returned = id;
    heap->returned_blocks++;
}

/* Held behind several marks: LIMBO. */
static void set_limbo(weir__heap *heap, uint32_t id, const merging *all)
{
    weir__heap_free *record = weir__heap_free_at(heap, all->record);
    weir__heap_raise_to(&all->owner->latest, all->number);
    weir__heap_set_slot(record, all->owner->slot);
    record->number = all->number;
    weir__heap_set_tag(block_at(heap, id), WEIR__HEAP_LIMBO);
    weir__heap_limbo_insert(heap, id);
}

/* `is_promised`: records that are promised may be used. */
static uint32_t release(weir__heap *heap, uint32_t id, weir__mark mark,
                        bool is_promised)
{
    weir__heap_block *block = block_at(heap, id);
    if (weir__heap_state_of(block) != WEIR__HEAP_HELD)
        weir__heap_untake(heap, block);
    merging all = { weir__heap_owner_take(heap, mark.clock), weir__heap_link(block),
                    mark.number };
    WEIR_CHECK(all.owner != NULL, "who releases has asked whether that can be");
    if (all.record != 0 && weir__heap_free_at(heap, all.record)->more != 0) {
        set_limbo(heap, id, &all);
        return id;
    }
    surroundings its = look_around(heap, block, all.owner);
    bool has_record = (all.record | its.next | its.before) != 0 || is_promised ||
                      weir__heap_free_unpromised(heap) > 0;
    if (!has_record || !weir__heap_has_row(heap, all.owner, its.grains, is_promised)) {
        weir__heap_raise_to(&all.owner->latest, all.number);
        if (all.record != 0)
            weir__heap_free_give_back(heap, all.record);
        set_returned(heap, id, all.owner);
        return id;
    }

    if (its.next != 0) {
        merge_record(heap, &all, its.behind);
        absorb(heap, id, block, its.next, its.behind);
    }
    if (its.before != 0) {
        merge_record(heap, &all, its.front);
        absorb(heap, its.before, its.front, id, block);
        id = its.before;
        block = its.front;
    }
    if (all.record == 0)
        all.record = weir__heap_free_take(heap);
    weir__heap_raise_to(&all.owner->latest, all.number);
    weir__heap_free_at(heap, all.record)->number = all.number;
    weir__heap_bins_insert(heap, all.owner, id, block, all.record);
    weir__heap_owner_gains(heap, all.owner, its.grains);
    return id;
}

uint32_t weir__heap_release(weir__heap *heap, uint32_t id, weir__mark mark)
{
    return release(heap, id, mark, false);
}

void weir__heap_settle(weir__heap *heap)
{
    while (heap->returned != 0) {
        uint32_t id = heap->returned;
        weir__heap_block *block = block_at(heap, id);
        weir__mark mark = weir__heap_mark(heap, id);
        heap->returned = weir__heap_link(block);
        heap->returned_blocks--;
        weir__heap_set_link(block, 0);
        weir__heap_set_tag(block, WEIR__HEAP_HELD);
        (void)weir__heap_release(heap, id, mark);
    }
}

/* ---- handing out ---- */

/* Takes the marks and the free record of a held block away. */
static void drop_record(weir__heap *heap, uint32_t id)
{
    weir__heap_block *block = block_at(heap, id);
    uint32_t record = weir__heap_link(block);
    if (record == 0)
        return;
    if (weir__heap_free_at(heap, record)->more != 0)
        weir__heap_drop_marks(heap, id);
    weir__heap_free_give_back(heap, record);
    weir__heap_set_link(block, 0);
}

/* The blocks of a run, all HELD, become the first of them. */
static void gather(weir__heap *heap, weir__heap_run run)
{
    for (uint32_t next = run.first; next != run.last;) {
        next = weir__heap_behind(block_at(heap, run.first));
        WEIR_CHECK(weir__heap_state_at(heap, next) == WEIR__HEAP_HELD,
                   "who hands out holds all");
        drop_record(heap, next);
        absorb(heap, run.first, block_at(heap, run.first), next, block_at(heap, next));
    }
}

/* Leaves a block its first grains; returns a new one, HELD, with the rest. */
static inline uint32_t split(weir__heap *heap, uint32_t id, weir__heap_block *block,
                             uint32_t grains)
{
    uint32_t after = weir__heap_behind(block);
    uint32_t rest = weir__heap_record_take(
        heap, weir__heap_home_of(heap, id), weir__heap_grain(block) + grains,
        weir__heap_grains(block) - grains, WEIR__HEAP_HELD);
    weir__heap_block *its = block_at(heap, rest);
    join(its, rest, block_at(heap, after), after);
    join(block, id, its, rest);
    weir__heap_set_grains(block, grains);
    weir__heap_map_put(heap, its, rest, block, true);
    return rest;
}

static inline void take_out(weir__heap *heap, weir__heap_block *block, uint32_t grains)
{
    weir__heap_set_tag(block, WEIR__HEAP_OUT);
    heap->taken_bytes += (size_t)grains << WEIR__HEAP_GRAIN_BITS;
    heap->taken_blocks++;
}

uint32_t weir__heap_take_best(weir__heap *heap, weir__heap_owner *owner, size_t bytes)
{
    if (bytes > WEIR__CHUNK_MOST)
        return 0;
    uint32_t grains = (uint32_t)grains_of(bytes);
    uint32_t record = weir__heap_bins_take(heap, owner, grains);
    if (record == 0)
        return 0;
    const weir__heap_free *its = weir__heap_free_at(heap, record);
    uint32_t id = its->block;
    weir__heap_block *block = block_at(heap, id);
    weir__heap_set_link(block, 0);
    if (its->more == grains) {
        weir__heap_free_give_back(heap, record);
        weir__heap_owner_loses(heap, owner, grains);
    } else {
        uint32_t rest = split(heap, id, block, grains);
        weir__heap_bins_insert(heap, owner, rest, block_at(heap, rest), record);
        owner->free_bytes -= (size_t)grains << WEIR__HEAP_GRAIN_BITS;
    }
    take_out(heap, block, grains);
    return id;
}

uint32_t weir__heap_hand_out(weir__heap *heap, weir__heap_run run, size_t bytes,
                             size_t alignment, weir__mark front, weir__mark rest)
{
    uint32_t id = run.first, in_front = 0, left = 0;
    const uint32_t grains = (uint32_t)grains_of(bytes);
    weir__heap_block *block = block_at(heap, id);
    WEIR_CHECK(weir__heap_state_of(block) == WEIR__HEAP_HELD, "who hands out holds");
    gather(heap, run);
    uintptr_t begin = weir__heap_base(block), end = weir__heap_end_of(block);
    uintptr_t base = align_up(begin, alignment);
    WEIR_CHECK(base >= begin && base < end && end - base >= bytes,
               "what is handed out has room");
    if (weir__heap_link(block) != 0 && weir__heap_free_of(heap, block)->more != 0)
        weir__heap_drop_marks(heap, id);

    if (base != begin) {
        in_front = id;
        id = split(heap, id, block, (uint32_t)grains_of(base - begin));
        block = block_at(heap, id);
    }
    if (end - base != bytes) {
        left = split(heap, id, block, grains);
        weir__heap_set_link(block_at(heap, left), weir__heap_link(block));
        weir__heap_set_link(block, 0);
    } else {
        drop_record(heap, id);
    }
    take_out(heap, block, grains);
    if (in_front != 0)
        (void)release(heap, in_front, front, true);
    if (left != 0)
        (void)release(heap, left, rest, true);
    return id;
}

uint32_t weir__heap_move_far(weir__heap *heap, uint32_t id, uint32_t home)
{
    if (!weir__heap_home_has_spare(heap, home))
        return id;
    weir__heap_block *block = block_at(heap, id);
    uint32_t after = weir__heap_behind(block), before = block->before;
    uint32_t moved =
        weir__heap_record_take(heap, home, weir__heap_grain(block),
                               weir__heap_grains(block), weir__heap_state_of(block));
    join(block_at(heap, moved), moved, block_at(heap, after), after);
    if (before != 0)
        join(block_at(heap, before), before, block_at(heap, moved), moved);
    weir__heap_map_replace(heap, id, moved);
    weir__heap_record_give_back(heap, id);
    return moved;
}

/* ---- chunks ---- */

static void chunk_wants(weir__heap *heap, weir__chunk *chunk, size_t bytes)
{
    size_t segments = weir__heap_map_segments(bytes);
    chunk->segments += segments;
    heap->segments_wanted += segments;
}

/* The last block of a chunk, whose record is new, and an END behind it. */
static void chunk_end(weir__heap *heap, weir__chunk *chunk, uint32_t last)
{
    chunk->end = weir__heap_record_take(heap, WEIR__OWNER_DONE,
                                        grains_of(chunk->base + chunk->bytes), 0,
                                        WEIR__HEAP_END);
    join(block_at(heap, last), last, block_at(heap, chunk->end), chunk->end);
}

uint32_t weir__heap_add_chunk(weir__heap *heap, weir__chunk *chunk, uintptr_t base,
                              size_t bytes)
{
    WEIR_CHECK(base % WEIR__HEAP_GRAIN == 0 && bytes % WEIR__HEAP_GRAIN == 0,
               "a chunk is made of whole grains");
    WEIR_CHECK(bytes > 0 && bytes <= WEIR__CHUNK_MOST, "a block's grains are counted");
    chunk->base = base;
    chunk->bytes = bytes;
    chunk->older = heap->newest;
    chunk->newer = NULL;
    *(chunk->older != NULL ? &chunk->older->newer : &heap->oldest) = chunk;
    heap->newest = chunk;
    heap->bytes += bytes;
    chunk->segments = 0;
    chunk_wants(heap, chunk, bytes);
    weir__heap_map_add(heap, base, base + bytes);
    uint32_t id = weir__heap_record_take(heap, WEIR__OWNER_DONE, grains_of(base),
                                         (uint32_t)grains_of(bytes), WEIR__HEAP_HELD);
    chunk_end(heap, chunk, id);
    weir__heap_map_insert(heap, id);
    return id;
}

uint32_t weir__heap_extend_chunk(weir__heap *heap, weir__chunk *chunk, size_t bytes)
{
    const uintptr_t segment = (uintptr_t)1 << WEIR__SEGMENT_BITS;
    WEIR_CHECK(bytes > 0 && bytes % WEIR__HEAP_GRAIN == 0,
               "a chunk is made of whole grains");
    WEIR_CHECK(bytes <= WEIR__CHUNK_MOST - chunk->bytes,
               "a block's grains are counted");
    uintptr_t end = chunk->base + chunk->bytes;
    uintptr_t next_segment = (end | (segment - 1)) + 1;
    chunk_wants(heap, chunk, bytes);
    if (end + bytes >= next_segment)
        weir__heap_map_add(heap, next_segment, end + bytes);

    const weir__heap_block *old = block_at(heap, chunk->end);
    uint32_t last = old->before, others = weir__heap_behind(old);
    weir__heap_record_give_back(heap, chunk->end);
    uint32_t id = weir__heap_record_take(heap, WEIR__OWNER_DONE, grains_of(end),
                                         (uint32_t)grains_of(bytes), WEIR__HEAP_HELD);
    join(block_at(heap, last), last, block_at(heap, id), id);
    chunk->bytes += bytes;
    heap->bytes += bytes;
    chunk_end(heap, chunk, id);
    weir__heap_set_behind(block_at(heap, chunk->end), others);
    weir__heap_map_insert(heap, id);
    return id;
}

void weir__heap_remove_chunk(weir__heap *heap, weir__chunk *chunk)
{
    uint32_t first = weir__heap_first(heap, chunk);
    gather(heap, (weir__heap_run){ first, weir__heap_last(heap, chunk) });
    WEIR_CHECK(weir__heap_state_at(heap, first) == WEIR__HEAP_HELD,
               "who removes holds all");
    drop_record(heap, first);
    weir__heap_map_remove(heap, first);
    weir__heap_record_give_back(heap, first);
    weir__heap_record_give_back(heap, chunk->end);
    weir__heap_map_drop(heap, chunk->base, chunk->base + chunk->bytes);
    heap->segments_wanted -= chunk->segments;
    *(chunk->older != NULL ? &chunk->older->newer : &heap->oldest) = chunk->newer;
    *(chunk->newer != NULL ? &chunk->newer->older : &heap->newest) = chunk->older;
    heap->bytes -= chunk->bytes;
}

uint32_t weir__heap_first(const weir__heap *heap, const weir__chunk *chunk)
{
    return weir__heap_map_first(heap, chunk->base);
}

uint32_t weir__heap_last(const weir__heap *heap, const weir__chunk *chunk)
{
    return block_at(heap, chunk->end)->before;
}

uint32_t weir__heap_before(const weir__heap *heap, uint32_t id)
{
    return block_at(heap, id)->before;
}

uint32_t weir__heap_after(const weir__heap *heap, uint32_t id)
{
    uint32_t after = weir__heap_behind(block_at(heap, id));
    return weir__heap_state_at(heap, after) != WEIR__HEAP_END ? after : 0;
}

/* ---- looking ---- */

bool weir__heap_fits(const weir__heap *heap, uint32_t first, uint32_t last,
                     size_t bytes, size_t alignment)
{
    uintptr_t begin = weir__heap_base(block_at(heap, first));
    uintptr_t end = weir__heap_end_of(block_at(heap, last));
    uintptr_t base = align_up(begin, alignment);
    return base >= begin && base < end && end - base >= bytes;
}

uint32_t weir__heap_find(const weir__heap *heap, const void *ptr)
{
    uint32_t id = 0;
    return weir__heap_lookup(&heap->view, ptr, &id) != NULL ? id : 0;
}
