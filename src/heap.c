/* heap.c - see heap.h: what changes blocks. */
#include "heap.h"

#include <string.h>

#include "heap_internal.h"
#include "internal.h"

static uintptr_t align_up(uintptr_t address, size_t alignment)
{
    return (address + (alignment - 1)) & ~(uintptr_t)(alignment - 1);
}

static weir__heap_block *block_at(const weir__heap *heap, uint32_t id)
{
    return weir__heap_block_of(heap, id);
}

/* The record behind a block, which may be an END. */
static uint32_t behind(const weir__heap *heap, uint32_t id)
{
    uint32_t after = weir__heap_map_behind(heap, weir__heap_end_of(block_at(heap, id)),
                                           id);
    WEIR_CHECK(after != 0, "behind every block is another, or an end");
    return after;
}

/* ---- marks ---- */

/* A block that was taken becomes HELD, without a free record. */
static inline void untake(weir__heap *heap, weir__heap_block *block)
{
    WEIR_CHECK(weir__heap_state_of(block) == WEIR__HEAP_CACHED,
               "only what is held or came back can be released");
    heap->taken_blocks--;
    heap->taken_bytes -= weir__heap_bytes(block);
    weir__heap_set_link(block, 0);
    weir__heap_set_tag(block, WEIR__HEAP_HELD);
}

static void raise_to(uint64_t *number, uint64_t least)
{
    if (*number < least)
        *number = least;
}

bool weir__heap_add_mark(weir__heap *heap, uint32_t id, weir__mark mark)
{
    weir__heap_block *block = block_at(heap, id);
    if (weir__heap_state_of(block) != WEIR__HEAP_HELD)
        untake(heap, block);
    uint32_t first = weir__heap_link(block);
    if (weir__heap_free_unpromised(heap) < (first != 0 ? 1u : 2u))
        return false;
    weir__heap_owner *owner = weir__heap_owner_take(heap, mark.clock);
    if (owner == NULL)
        return false;
    raise_to(&owner->latest, mark.number);
    if (first == 0) {
        first = weir__heap_free_take(heap);
        weir__heap_set_link(block, first);
    }
    uint32_t *link = &weir__heap_free_at(heap, first)->more;
    for (; *link != 0; link = &weir__heap_free_at(heap, *link)->more) {
        weir__heap_free *record = weir__heap_free_at(heap, *link);
        if (weir__heap_slot_of(record) == owner->slot) {
            raise_to(&record->number, mark.number);
            return true;
        }
    }
    *link = weir__heap_free_take(heap);
    weir__heap_free *record = weir__heap_free_at(heap, *link);
    weir__heap_set_slot(record, owner->slot);
    record->number = mark.number;
    return true;
}

void weir__heap_drop_marks(weir__heap *heap, uint32_t id)
{
    uint32_t first = weir__heap_link(block_at(heap, id));
    if (first == 0)
        return;
    weir__heap_free *record = weir__heap_free_at(heap, first);
    while (record->more != 0) {
        uint32_t more = record->more;
        record->more = weir__heap_free_at(heap, more)->more;
        weir__heap_free_give_back(heap, more);
    }
}

static weir__mark mark_of(const weir__heap *heap, const weir__heap_free *record)
{
    const weir__heap_owner *owner = heap->owners[weir__heap_slot_of(record)];
    return (weir__mark){ owner->clock, record->number };
}

void weir__heap_drop_done(weir__heap *heap, uint32_t id, weir__heap_is_done is_done,
                          void *context)
{
    weir__heap_free *first = weir__heap_free_of(heap, block_at(heap, id));
    for (uint32_t *link = &first->more; *link != 0;) {
        uint32_t more = *link;
        weir__heap_free *record = weir__heap_free_at(heap, more);
        if (!is_done(context, mark_of(heap, record))) {
            link = &record->more;
            continue;
        }
        *link = record->more;
        weir__heap_free_give_back(heap, more);
    }
    if (first->more != 0 && is_done(context, mark_of(heap, first))) {
        uint32_t more = first->more;
        const weir__heap_free *record = weir__heap_free_at(heap, more);
        first->key = record->key;
        first->number = record->number;
        first->more = record->more;
        weir__heap_free_give_back(heap, more);
    }
}

bool weir__heap_next_mark(const weir__heap *heap, uint32_t id, uint32_t *cursor,
                          weir__mark *out)
{
    const weir__heap_block *block = block_at(heap, id);
    if (*cursor == UINT32_MAX)
        return false;
    if (weir__heap_state_of(block) == WEIR__HEAP_RETURNED) {
        uint32_t low = weir__heap_tag(block) & WEIR__TAG_LOW_MASK;
        const weir__heap_owner *owner = heap->owners[low >> WEIR__HOLDER_SHIFT];
        *out = (weir__mark){ owner->clock, owner->latest };
        *cursor = UINT32_MAX;
        return true;
    }
    uint32_t at = *cursor != 0 ? *cursor : weir__heap_link(block);
    if (at == 0)
        return false;
    const weir__heap_free *record = weir__heap_free_at(heap, at);
    *out = mark_of(heap, record);
    bool has_more = weir__heap_state_of(block) != WEIR__HEAP_FREE && record->more != 0;
    *cursor = has_more ? record->more : UINT32_MAX;
    return true;
}

weir__mark weir__heap_mark(const weir__heap *heap, uint32_t id)
{
    const weir__heap_block *block = block_at(heap, id);
    if (weir__heap_state_of(block) == WEIR__HEAP_FREE)
        return mark_of(heap, weir__heap_free_of(heap, block));
    weir__mark mark = WEIR__MARK_DONE;
    uint32_t cursor = 0;
    (void)weir__heap_next_mark(heap, id, &cursor, &mark);
    return mark;
}

bool weir__heap_has_more(const weir__heap *heap, uint32_t id)
{
    const weir__heap_block *block = block_at(heap, id);
    weir__heap_state state = weir__heap_state_of(block);
    return (state == WEIR__HEAP_LIMBO || state == WEIR__HEAP_HELD) &&
           weir__heap_link(block) != 0 && weir__heap_free_of(heap, block)->more != 0;
}

/* ---- limbo ---- */

static void limbo_insert(weir__heap *heap, uint32_t id)
{
    weir__heap_free *record = weir__heap_free_of(heap, block_at(heap, id));
    record->below[0] = 0;
    record->below[1] = heap->limbo;
    if (record->below[1] != 0)
        weir__heap_free_of(heap, block_at(heap, record->below[1]))->below[0] = id;
    heap->limbo = id;
    heap->limbo_blocks++;
}

static void limbo_remove(weir__heap *heap, uint32_t id)
{
    const weir__heap_free *record = weir__heap_free_of(heap, block_at(heap, id));
    uint32_t before = record->below[0], after = record->below[1];
    if (before != 0)
        weir__heap_free_of(heap, block_at(heap, before))->below[1] = after;
    else
        heap->limbo = after;
    if (after != 0)
        weir__heap_free_of(heap, block_at(heap, after))->below[0] = before;
    heap->limbo_blocks--;
}

uint32_t weir__heap_next_limbo(const weir__heap *heap, uint32_t id)
{
    return id == 0 ? heap->limbo
                   : weir__heap_free_of(heap, block_at(heap, id))->below[1];
}

/* ---- holding and releasing ---- */

void weir__heap_hold(weir__heap *heap, uint32_t id)
{
    weir__heap_block *block = block_at(heap, id);
    WEIR_CHECK(weir__heap_is_idle(block), "only what is free can be held");
    if (weir__heap_state_of(block) == WEIR__HEAP_FREE)
        weir__heap_bins_remove(heap, block);
    else
        limbo_remove(heap, id);
    weir__heap_set_tag(block, WEIR__HEAP_HELD);
}

/* The free record of a block that is FREE under `owner`; null: it is not. */
static inline weir__heap_free *free_under(const weir__heap *heap,
                                          const weir__heap_block *block,
                                          const weir__heap_owner *owner)
{
    if (weir__heap_state_of(block) != WEIR__HEAP_FREE)
        return NULL;
    weir__heap_free *record = weir__heap_free_of(heap, block);
    return weir__heap_slot_of(record) == owner->slot ? record : NULL;
}

/* A held block takes over the bytes of the one behind it, which is in no bin and has
 * no free record any more; `after` is behind that. */
static void absorb(weir__heap *heap, uint32_t id, uint32_t next, uint32_t after)
{
    weir__heap_block *block = block_at(heap, id);
    size_t bytes = weir__heap_bytes(block) + weir__heap_bytes(block_at(heap, next));
    weir__heap_map_remove(heap, next);
    block_at(heap, after)->before = id;
    weir__heap_set_grains(block, bytes);
    weir__heap_record_give_back(heap, next);
}

/* What a held block has by way of its record, and what its neighbours add. */
typedef struct merging {
    weir__heap_owner *owner;
    uint32_t record; /* or 0 */
    uint64_t number;
} merging;

static void merge_record(weir__heap *heap, merging *all,
                         const weir__heap_block *block, const weir__heap_free *its)
{
    weir__heap_bins_remove(heap, block);
    raise_to(&all->number, its->number);
    if (all->record != 0)
        weir__heap_free_give_back(heap, weir__heap_link(block));
    else
        all->record = weir__heap_link(block);
}

/* Merges a held block with its neighbours that are FREE under the owner; `next` is
 * behind it. Returns what it is part of then. */
static inline uint32_t merge(weir__heap *heap, uint32_t id, uint32_t next,
                             merging *all)
{
    const weir__heap_block *block = block_at(heap, next);
    const weir__heap_free *its;
    if ((its = free_under(heap, block, all->owner)) != NULL) {
        uint32_t after = behind(heap, next);
        merge_record(heap, all, block, its);
        absorb(heap, id, next, after);
        next = after;
    }
    uint32_t before = block_at(heap, id)->before;
    if (before == 0)
        return id;
    block = block_at(heap, before);
    if ((its = free_under(heap, block, all->owner)) == NULL)
        return id;
    merge_record(heap, all, block, its);
    absorb(heap, before, id, next);
    return before;
}

/* There is no record for it now. */
static void set_returned(weir__heap *heap, uint32_t id, const weir__heap_owner *owner)
{
    weir__heap_block *block = block_at(heap, id);
    weir__heap_set_link(block, heap->returned);
    weir__heap_set_tag(block, WEIR__HEAP_RETURNED | owner->slot << WEIR__HOLDER_SHIFT);
    heap->returned = id;
    heap->returned_blocks++;
}

/* `next` is behind it. `is_promised`: a record that is promised may be used. */
static uint32_t release(weir__heap *heap, uint32_t id, uint32_t next, weir__mark mark,
                        bool is_promised)
{
    weir__heap_block *block = block_at(heap, id);
    if (weir__heap_state_of(block) != WEIR__HEAP_HELD)
        untake(heap, block);
    merging all = { weir__heap_owner_take(heap, mark.clock), weir__heap_link(block),
                    mark.number };
    weir__heap_owner *owner = all.owner;
    WEIR_CHECK(owner != NULL, "who releases has asked whether that can be");
    bool has_more =
        all.record != 0 && weir__heap_free_at(heap, all.record)->more != 0;
    if (!has_more) {
        id = merge(heap, id, next, &all);
        block = block_at(heap, id);
    }
    raise_to(&owner->latest, all.number);
    if (all.record == 0 && (is_promised || weir__heap_free_unpromised(heap) > 0))
        all.record = weir__heap_free_take(heap);
    if (all.record == 0) {
        set_returned(heap, id, owner);
        return id;
    }
    weir__heap_free *record = weir__heap_free_at(heap, all.record);
    weir__heap_set_slot(record, owner->slot);
    record->number = all.number;
    weir__heap_set_link(block, all.record);
    weir__heap_set_tag(block, has_more ? WEIR__HEAP_LIMBO : WEIR__HEAP_FREE);
    if (has_more)
        limbo_insert(heap, id);
    else
        weir__heap_bins_insert(heap, block);
    return id;
}

uint32_t weir__heap_release(weir__heap *heap, uint32_t id, weir__mark mark)
{
    return release(heap, id, behind(heap, id), mark, false);
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
    for (uint32_t next = 0; next != run.last;) {
        next = behind(heap, run.first);
        WEIR_CHECK(weir__heap_state_at(heap, next) == WEIR__HEAP_HELD,
                   "who hands out holds all");
        drop_record(heap, next);
        absorb(heap, run.first, next, behind(heap, next));
    }
}

/* Leaves a held block its first `bytes` bytes; returns a new one, HELD, with the rest,
 * and `after` behind it. */
static uint32_t split(weir__heap *heap, uint32_t id, size_t bytes, uint32_t after)
{
    weir__heap_block *block = block_at(heap, id);
    uint32_t rest = weir__heap_record_take(
        heap, weir__heap_home_of(heap, id), weir__heap_base(block) + bytes,
        weir__heap_bytes(block) - bytes, WEIR__HEAP_HELD);
    block_at(heap, rest)->before = id;
    block_at(heap, after)->before = rest;
    weir__heap_set_grains(block, bytes);
    weir__heap_map_insert(heap, rest);
    return rest;
}

uint32_t weir__heap_hand_out(weir__heap *heap, weir__heap_run run, size_t bytes,
                             size_t alignment, weir__mark front, weir__mark rest)
{
    uint32_t id = run.first, in_front = 0, left = 0;
    weir__heap_block *block = block_at(heap, id);
    WEIR_CHECK(weir__heap_state_of(block) == WEIR__HEAP_HELD, "who hands out holds");
    if (run.last != id)
        gather(heap, run);
    uintptr_t begin = weir__heap_base(block), end = weir__heap_end_of(block);
    uintptr_t base = align_up(begin, alignment);
    WEIR_CHECK(base >= begin && base < end && end - base >= bytes,
               "what is handed out has room");
    if (weir__heap_link(block) != 0 && weir__heap_free_of(heap, block)->more != 0)
        weir__heap_drop_marks(heap, id);

    uint32_t after = base != begin || end - base != bytes ? behind(heap, id) : 0;
    if (base != begin) {
        in_front = id;
        id = split(heap, id, base - begin, after);
        block = block_at(heap, id);
    }
    if (end - base != bytes) {
        left = split(heap, id, bytes, after);
        weir__heap_set_link(block_at(heap, left), weir__heap_link(block));
        weir__heap_set_link(block, 0);
    } else {
        drop_record(heap, id);
    }
    weir__heap_set_tag(block, WEIR__HEAP_OUT);
    heap->taken_bytes += bytes;
    heap->taken_blocks++;

    if (in_front != 0)
        (void)release(heap, in_front, id, front, true);
    if (left != 0)
        (void)release(heap, left, after, rest, true);
    return id;
}

uint32_t weir__heap_move_home(weir__heap *heap, uint32_t id,
                              const weir__heap_owner *owner)
{
    uint32_t home = weir__heap_home_for(owner);
    if (weir__heap_home_of(heap, id) == home || !weir__heap_home_has_spare(heap, home))
        return id;
    weir__heap_block *block = block_at(heap, id);
    uint32_t after = behind(heap, id);
    uint32_t moved =
        weir__heap_record_take(heap, home, weir__heap_base(block),
                               weir__heap_bytes(block), weir__heap_state_of(block));
    block_at(heap, moved)->before = block->before;
    block_at(heap, after)->before = moved;
    weir__heap_map_remove(heap, id);
    weir__heap_map_insert(heap, moved);
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

static void chunk_end(weir__heap *heap, weir__chunk *chunk, uint32_t last)
{
    chunk->end = weir__heap_record_take(heap, WEIR__OWNER_DONE,
                                        chunk->base + chunk->bytes, 0, WEIR__HEAP_END);
    block_at(heap, chunk->end)->before = last;
    weir__heap_map_insert(heap, chunk->end);
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
    uint32_t id =
        weir__heap_record_take(heap, WEIR__OWNER_DONE, base, bytes, WEIR__HEAP_HELD);
    weir__heap_map_insert(heap, id);
    chunk_end(heap, chunk, id);
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

    uint32_t last = block_at(heap, chunk->end)->before;
    weir__heap_map_remove(heap, chunk->end);
    weir__heap_record_give_back(heap, chunk->end);
    uint32_t id =
        weir__heap_record_take(heap, WEIR__OWNER_DONE, end, bytes, WEIR__HEAP_HELD);
    block_at(heap, id)->before = last;
    weir__heap_map_insert(heap, id);
    chunk->bytes += bytes;
    heap->bytes += bytes;
    chunk_end(heap, chunk, id);
    return id;
}

void weir__heap_remove_chunk(weir__heap *heap, weir__chunk *chunk)
{
    for (uint32_t id = weir__heap_first(heap, chunk), next; id != 0; id = next) {
        WEIR_CHECK(weir__heap_state_at(heap, id) == WEIR__HEAP_HELD,
                   "who removes holds all");
        next = weir__heap_after(heap, id);
        drop_record(heap, id);
        weir__heap_map_remove(heap, id);
        weir__heap_record_give_back(heap, id);
    }
    weir__heap_map_remove(heap, chunk->end);
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
    uint32_t after = behind(heap, id);
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
