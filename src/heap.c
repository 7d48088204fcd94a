/* heap.c - see heap.h: what changes blocks. */
#include "heap.h"

#include <string.h>

#include "heap_bins.h"
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

static inline weir__heap_tie *tie_at(const weir__heap *heap, uint32_t id)
{
    return weir__heap_tie_at(heap, id);
}

/* ---- holding and releasing ---- */

void weir__heap_hold(weir__heap *heap, uint32_t id)
{
    weir__heap_block *block = block_at(heap, id);
    WEIR_CHECK(weir__heap_is_idle(block), "only what is free can be held");
    if (weir__heap_state_of(block) == WEIR__HEAP_FREE) {
        uint32_t id_of_free = weir__heap_link(block);
        weir__heap_free *record = weir__heap_free_at(heap, id_of_free);
        weir__heap_owner *owner = heap->owners[weir__heap_slot_of(record)];
        weir__heap_bins_remove(heap, owner, id_of_free, record);
        weir__heap_owner_loses(heap, owner, weir__heap_grains(block));
        record->more = 0;
    } else {
        weir__heap_limbo_remove(heap, id);
    }
    weir__heap_set_tag(block, WEIR__HEAP_HELD);
}

static inline void join(weir__heap *heap, weir__heap_tie *tie, uint32_t id,
                        uint32_t after)
{
    weir__heap_set_behind(tie, after);
    tie_at(heap, after)->before = id;
}

/* A block takes over the bytes of the one behind it, which is in no bin and has no free
 * record any more. */
static WEIR_INLINE void absorb(weir__heap *heap, uint32_t id, weir__heap_block *block,
                               uint32_t next, weir__heap_block *its)
{
    const weir__heap_tie *tie = tie_at(heap, next);
    join(heap, tie_at(heap, id), id, weir__heap_behind(tie));
    if (weir__heap_is_mapped(tie))
        weir__heap_map_remove(heap, next, its);
    weir__heap_set_grains(block, weir__heap_grains(block) + weir__heap_grains(its));
    weir__heap_record_give_back(heap, next, its);
}

/* There is no record for it now, or no row. */
static WEIR_COLD uint32_t set_returned(weir__heap *heap, uint32_t id,
                                       weir__heap_owner *owner, uint32_t record,
                                       uint64_t number)
{
    weir__heap_block *block = block_at(heap, id);
    if (record != 0)
        weir__heap_free_give_back(heap, record);
    weir__heap_raise_to(&owner->latest, number);
    weir__heap_set_link(block, heap->returned);
    weir__heap_set_tag(block, WEIR__HEAP_RETURNED | owner->slot << WEIR__HOLDER_SHIFT);
    heap->returned = id;
    heap->returned_blocks++;
    return id;
}

/* Held behind several marks: LIMBO. */
static void set_limbo(weir__heap *heap, uint32_t id, weir__heap_owner *owner,
                      weir__heap_free *record, uint64_t number)
{
    weir__heap_raise_to(&owner->latest, number);
    weir__heap_set_slot(record, owner->slot);
    record->number = number;
    weir__heap_set_tag(block_at(heap, id), WEIR__HEAP_LIMBO);
    weir__heap_limbo_insert(heap, id);
}

/* A FREE neighbour's record, out of its bin; its number counts. */
static inline uint32_t take_along(weir__heap *heap, weir__heap_owner *owner,
                                  const weir__heap_block *block, uint64_t *number,
                                  weir__heap_free **out)
{
    uint32_t id = weir__heap_link(block);
    weir__heap_free *record = weir__heap_free_at(heap, id);
    weir__heap_raise_to(number, record->number);
    weir__heap_bins_remove(heap, owner, id, record);
    *out = record;
    return id;
}

/* A block that is neither taken nor free becomes FREE behind mark `number` of an owner,
 * with all that is FREE under that beside it, or RETURNED. `record` is its own, without
 * more marks, or 0. */
static WEIR_INLINE uint32_t make_free(weir__heap *heap, uint32_t id,
                                      weir__heap_block *block, weir__heap_owner *owner,
                                      uint32_t record, uint64_t number)
{
    const uint32_t tag = weir__heap_free_tag(owner->slot);
    const weir__heap_tie *tie = tie_at(heap, id);
    const uint32_t before = tie->before, next = weir__heap_behind(tie);
    weir__heap_block *front = block_at(heap, before), *behind = block_at(heap, next);
    const bool has_front = weir__heap_tag(front) == tag; /* record 0 is spare */
    const bool has_next = weir__heap_tag(behind) == tag;
    const uint32_t own = weir__heap_grains(block);
    uint32_t grains = own;
    grains += has_front ? weir__heap_grains(front) : 0;
    grains += has_next ? weir__heap_grains(behind) : 0;
    bool has_record = has_front || has_next || record != 0 ||
                      weir__heap_free_unpromised(heap) > 0;
    if (WEIR_UNLIKELY(!has_record || !weir__heap_has_row(heap, owner, grains)))
        return set_returned(heap, id, owner, record, number);

    weir__heap_free *its = NULL;
    weir__heap_raise_to(&owner->latest, number);
    owner->free_bytes += (size_t)own << WEIR__HEAP_GRAIN_BITS;
    if (has_next) {
        if (record != 0)
            weir__heap_free_give_back(heap, record);
        record = take_along(heap, owner, behind, &number, &its);
        absorb(heap, id, block, next, behind);
        if (has_front)
            weir__heap_owner_counts(heap, owner, -1);
    } else if (!has_front) {
        weir__heap_owner_counts(heap, owner, 1);
        if (record == 0)
            record = weir__heap_free_take(heap, owner);
        its = weir__heap_free_at(heap, record);
    }
    if (has_front) { /* whose record needs no more than its size */
        if (record != 0)
            weir__heap_free_give_back(heap, record);
        record = take_along(heap, owner, front, &number, &its);
        absorb(heap, before, front, id, block);
        its->number = number;
        weir__heap_bins_insert(heap, owner, record, its, grains);
        return before;
    }
    weir__heap_set_link(block, record);
    weir__heap_set_tag(block, tag);
    its->block = id;
    its->key = weir__heap_key_of(owner, block);
    its->number = number;
    weir__heap_bins_insert(heap, owner, record, its, grains);
    return id;
}

uint32_t weir__heap_release_to(weir__heap *heap, uint32_t id, weir__heap_block *block,
                               weir__heap_owner *owner, uint64_t number)
{
    weir__heap_untake(heap, block);
    return make_free(heap, id, block, owner, 0, number);
}

static uint32_t release_held(weir__heap *heap, uint32_t id, weir__heap_block *block,
                             weir__heap_owner *owner, uint64_t number)
{
    WEIR_CHECK(weir__heap_state_of(block) == WEIR__HEAP_HELD,
               "only what is held or came back can be released");
    uint32_t record = weir__heap_link(block);
    if (record != 0 && weir__heap_free_at(heap, record)->more != 0) {
        set_limbo(heap, id, owner, weir__heap_free_at(heap, record), number);
        return id;
    }
    return make_free(heap, id, block, owner, record, number);
}

uint32_t weir__heap_release(weir__heap *heap, uint32_t id, weir__mark mark)
{
    weir__heap_block *block = block_at(heap, id);
    weir__heap_owner *owner = weir__heap_owner_take(heap, mark.clock);
    WEIR_CHECK(owner != NULL, "who releases has asked whether that can be");
    return weir__heap_state_of(block) == WEIR__HEAP_CACHED
               ? weir__heap_release_to(heap, id, block, owner, mark.number)
               : release_held(heap, id, block, owner, mark.number);
}

/* What a request leaves: it gives up records that it is promised for this. */
static void release_promised(weir__heap *heap, uint32_t id, weir__mark mark)
{
    const uint32_t promised = heap->promised;
    heap->promised = 0;
    (void)weir__heap_release(heap, id, mark);
    heap->promised = promised;
}

void weir__heap_settle_some(weir__heap *heap)
{
    while (heap->returned != 0 && weir__heap_free_unpromised(heap) > 0 &&
           heap->row_spare_count > heap->promised * WEIR__HEAP_PROMISE_FREE) {
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
        next = weir__heap_behind(tie_at(heap, run.first));
        WEIR_CHECK(weir__heap_state_at(heap, next) == WEIR__HEAP_HELD,
                   "who hands out holds all");
        drop_record(heap, next);
        absorb(heap, run.first, block_at(heap, run.first), next, block_at(heap, next));
    }
}

/* Leaves a block its first grains; returns a new one with the rest, and the tag and the
 * link that it is to have, at the same home. */
static WEIR_INLINE uint32_t split(weir__heap *heap, uint32_t id,
                                  weir__heap_block *block, uint32_t home,
                                  uint32_t grains, uint32_t tag, uint32_t link)
{
    weir__heap_tie *tie = tie_at(heap, id);
    const uint32_t after = weir__heap_behind(tie);
    weir__heap_block *its;
    uint32_t rest = weir__heap_record_take(
        heap, home,
        (weir__heap_setup){ .grain = weir__heap_grain(block) + grains,
                            .grains = weir__heap_grains(block) - grains,
                            .tag = tag, .link = link, .tie = { id, after } },
        &its);
    tie_at(heap, after)->before = rest;
    weir__heap_set_behind(tie, rest);
    weir__heap_set_grains(block, grains);
    return rest;
}

/* What is handed out has to be found by its address. */
static inline void put_on_map(weir__heap *heap, uint32_t id, weir__heap_block *block)
{
    if (!weir__heap_is_mapped(tie_at(heap, id)))
        weir__heap_map_insert(heap, id, block);
}

static inline void count_out(weir__heap *heap, size_t bytes)
{
    heap->taken_bytes += bytes;
    heap->taken_blocks++;
}

/* Its record is in lines of another's: it is moved, before anybody is to have it. */
static WEIR_COLD uint32_t bring_home(weir__heap *heap, uint32_t id, uint32_t home)
{
    weir__heap_set_tag(block_at(heap, id), WEIR__HEAP_OUT);
    return weir__heap_move_far(heap, id, home);
}

weir__heap_taken weir__heap_take_best(weir__heap *heap, weir__heap_owner *owner,
                                      size_t bytes, uint32_t home, uint32_t tag,
                                      uint32_t link)
{
    const uint32_t grains = (uint32_t)grains_of(bytes);
    const weir__heap_fit fit = weir__heap_bins_take(heap, owner, bytes);
    if (WEIR_UNLIKELY(fit.id == 0))
        return (weir__heap_taken){ NULL, 0 };
    weir__heap_free *its = fit.record;
    uint32_t id = its->block, left = its->more - grains;
    weir__heap_block *block = block_at(heap, id);
    const uint32_t at_home = weir__heap_home_of(heap, id);
    if (left == 0) {
        weir__heap_free_give_back(heap, fit.id);
        weir__heap_owner_loses(heap, owner, grains);
    } else {
        its->block = split(heap, id, block, at_home, grains,
                           weir__heap_free_tag(owner->slot), fit.id);
        its->key += grains;
        weir__heap_bins_insert(heap, owner, fit.id, its, left);
        owner->free_bytes -= bytes;
    }
    count_out(heap, bytes);
    if (WEIR_UNLIKELY(home != at_home && home != WEIR__HEAP_HOMES)) {
        id = bring_home(heap, id, home);
        block = block_at(heap, id);
    }
    put_on_map(heap, id, block);
    weir__heap_set_link(block, link);
    weir__heap_set_tag(block, tag);
    return (weir__heap_taken){ block, id };
}

uint32_t weir__heap_hand_out(weir__heap *heap, weir__heap_run run, size_t bytes,
                             size_t alignment, weir__mark front, weir__mark rest)
{
    uint32_t id = run.first, in_front = 0, left = 0;
    const uint32_t grains = (uint32_t)grains_of(bytes);
    const uint32_t home = weir__heap_home_of(heap, id);
    weir__heap_block *block = block_at(heap, id);
    WEIR_CHECK(weir__heap_state_of(block) == WEIR__HEAP_HELD &&
                   bytes % WEIR__HEAP_GRAIN == 0,
               "who hands out holds, and whole grains");
    gather(heap, run);
    uintptr_t begin = weir__heap_base(block), end = weir__heap_end_of(block);
    uintptr_t base = align_up(begin, alignment);
    WEIR_CHECK(base >= begin && base < end && end - base >= bytes,
               "what is handed out has room");
    if (weir__heap_link(block) != 0 && weir__heap_free_of(heap, block)->more != 0)
        weir__heap_drop_marks(heap, id);

    if (base != begin) {
        in_front = id;
        id = split(heap, id, block, home, (uint32_t)grains_of(base - begin),
                   WEIR__HEAP_HELD, 0);
        block = block_at(heap, id);
    }
    if (end - base != bytes) {
        left = split(heap, id, block, home, grains, WEIR__HEAP_HELD,
                     weir__heap_link(block));
        weir__heap_set_link(block, 0);
    } else {
        drop_record(heap, id);
    }
    put_on_map(heap, id, block);
    weir__heap_set_tag(block, WEIR__HEAP_OUT);
    count_out(heap, bytes);
    if (in_front != 0)
        release_promised(heap, in_front, front);
    if (left != 0)
        release_promised(heap, left, rest);
    return id;
}

uint32_t weir__heap_move_far(weir__heap *heap, uint32_t id, uint32_t home)
{
    if (!weir__heap_home_has_spare(heap, home))
        return id;
    weir__heap_block *block = block_at(heap, id);
    const weir__heap_tie tie = *tie_at(heap, id);
    weir__heap_block *its;
    uint32_t moved = weir__heap_record_take(
        heap, home,
        (weir__heap_setup){ .grain = weir__heap_grain(block),
                            .grains = weir__heap_grains(block),
                            .tag = weir__heap_state_of(block), .tie = tie },
        &its);
    tie_at(heap, weir__heap_behind(&tie))->before = moved;
    if (tie.before != 0)
        weir__heap_set_behind(tie_at(heap, tie.before), moved);
    if (weir__heap_is_mapped(&tie))
        weir__heap_map_replace(heap, id, moved);
    weir__heap_record_give_back(heap, id, block);
    return moved;
}

uint32_t weir__heap_cut(weir__heap *heap, uint32_t id, size_t bytes)
{
    weir__heap_block *block = block_at(heap, id);
    WEIR_CHECK(weir__heap_state_of(block) == WEIR__HEAP_HELD &&
                   bytes % WEIR__HEAP_GRAIN == 0 && bytes < weir__heap_bytes(block),
               "what is held is cut");
    uint32_t its = weir__heap_link(block), first = 0, *link = &first;
    for (; its != 0; its = weir__heap_free_at(heap, its)->more) {
        const weir__heap_free *from = weir__heap_free_at(heap, its);
        *link = weir__heap_free_take(heap, heap->owners[weir__heap_slot_of(from)]);
        WEIR_CHECK(*link != 0, "who cuts was promised records");
        weir__heap_free *record = weir__heap_free_at(heap, *link);
        weir__heap_set_slot(record, weir__heap_slot_of(from));
        record->number = from->number;
        link = &record->more;
    }
    return split(heap, id, block, weir__heap_home_of(heap, id),
                 (uint32_t)grains_of(bytes), WEIR__HEAP_HELD, first);
}

/* ---- chunks ---- */

static void chunk_wants(weir__heap *heap, weir__chunk *chunk, size_t bytes)
{
    size_t segments = weir__heap_map_segments(bytes);
    chunk->segments += segments;
    heap->segments_wanted += segments;
}

/* A record without neighbours. */
static uint32_t lone_record(weir__heap *heap, uintptr_t base, size_t bytes,
                            weir__heap_state state)
{
    weir__heap_block *block;
    weir__heap_setup as = { .grain = grains_of(base),
                            .grains = (uint32_t)grains_of(bytes),
                            .tag = state };
    return weir__heap_record_take(heap, WEIR__OWNER_DONE, as, &block);
}

/* The last block of a chunk, whose record is new, and an END behind it. */
static void chunk_end(weir__heap *heap, weir__chunk *chunk, uint32_t last)
{
    chunk->end = lone_record(heap, 0, 0, WEIR__HEAP_END);
    join(heap, tie_at(heap, last), last, chunk->end);
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
    uint32_t id = lone_record(heap, base, bytes, WEIR__HEAP_HELD);
    chunk_end(heap, chunk, id);
    weir__heap_map_insert(heap, id, block_at(heap, id));
    return id;
}

uint32_t weir__heap_extend_chunk(weir__heap *heap, weir__chunk *chunk, size_t bytes)
{
    WEIR_CHECK(bytes > 0 && bytes % WEIR__HEAP_GRAIN == 0,
               "a chunk is made of whole grains");
    WEIR_CHECK(bytes <= WEIR__CHUNK_MOST - chunk->bytes,
               "a block's grains are counted");
    uintptr_t end = chunk->base + chunk->bytes;
    chunk_wants(heap, chunk, bytes);
    const uintptr_t next = weir__heap_map_next(end - 1);
    if (end + bytes > next)
        weir__heap_map_add(heap, next, end + bytes);

    uint32_t last = weir__heap_last(heap, chunk);
    weir__heap_record_give_back(heap, chunk->end, block_at(heap, chunk->end));
    uint32_t id = lone_record(heap, end, bytes, WEIR__HEAP_HELD);
    join(heap, tie_at(heap, last), last, id);
    chunk->bytes += bytes;
    heap->bytes += bytes;
    chunk_end(heap, chunk, id);
    return id;
}

void weir__heap_split_chunk(weir__heap *heap, weir__chunk *chunk, weir__chunk *rest,
                            uint32_t id)
{
    weir__heap_block *block = block_at(heap, id);
    uintptr_t base = weir__heap_base(block);
    weir__heap_tie *tie = tie_at(heap, id);
    uint32_t last = tie->before;
    WEIR_CHECK(last != 0, "what is left of a chunk has a block");
    *rest = (weir__chunk){ .base = base, .end = chunk->end, .older = chunk,
                           .bytes = chunk->base + chunk->bytes - base,
                           .newer = chunk->newer };
    *(rest->newer != NULL ? &rest->newer->older : &heap->newest) = rest;
    chunk->newer = rest;
    chunk->bytes -= rest->bytes;
    tie->before = 0;
    chunk_end(heap, chunk, last);
    if (weir__heap_map_next(base - 1) > base) /* a segment has some of both */
        weir__heap_map_add(heap, base, base + 1);
    put_on_map(heap, id, block);
    heap->segments_wanted -= chunk->segments;
    chunk->segments = 0;
    chunk_wants(heap, chunk, chunk->bytes);
    chunk_wants(heap, rest, rest->bytes);
}

void weir__heap_remove_chunk(weir__heap *heap, weir__chunk *chunk)
{
    uint32_t first = weir__heap_first(heap, chunk);
    gather(heap, (weir__heap_run){ first, weir__heap_last(heap, chunk) });
    WEIR_CHECK(weir__heap_state_at(heap, first) == WEIR__HEAP_HELD,
               "who removes holds all");
    drop_record(heap, first);
    weir__heap_map_remove(heap, first, block_at(heap, first));
    weir__heap_record_give_back(heap, first, block_at(heap, first));
    weir__heap_record_give_back(heap, chunk->end, block_at(heap, chunk->end));
    weir__heap_map_drop(heap, chunk->base, chunk->base + chunk->bytes);
    heap->segments_wanted -= chunk->segments;
    *(chunk->older != NULL ? &chunk->older->newer : &heap->oldest) = chunk->newer;
    *(chunk->newer != NULL ? &chunk->newer->older : &heap->newest) = chunk->older;
    heap->bytes -= chunk->bytes;
}

uint32_t weir__heap_first(const weir__heap *heap, const weir__chunk *chunk)
{
    return weir__heap_map_first(heap, chunk);
}

uint32_t weir__heap_last(const weir__heap *heap, const weir__chunk *chunk)
{
    return tie_at(heap, chunk->end)->before;
}

uint32_t weir__heap_before(const weir__heap *heap, uint32_t id)
{
    return tie_at(heap, id)->before;
}

uint32_t weir__heap_after(const weir__heap *heap, uint32_t id)
{
    uint32_t after = weir__heap_behind(tie_at(heap, id));
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
    uint32_t id = weir__heap_map_find(heap, (uintptr_t)ptr);
    if (WEIR_UNLIKELY(id == 0 && heap->missing != 0)) {
        id = weir__heap_around(heap, ptr);
        if (id != 0 && weir__heap_base(block_at(heap, id)) != (uintptr_t)ptr)
            id = 0;
    }
    return id;
}
