/* heap_marks.c - the marks that a block waits for, and the list of those that wait for
 * several: limbo. */
#include "heap_internal.h"

#include "internal.h"

static inline weir__heap_block *block_at(const weir__heap *heap, uint32_t id)
{
    return weir__heap_block_of(heap, id);
}

bool weir__heap_add_mark(weir__heap *heap, uint32_t id, weir__mark mark)
{
    weir__heap_block *block = block_at(heap, id);
    if (weir__heap_state_of(block) != WEIR__HEAP_HELD) {
        weir__heap_untake(heap, block);
        weir__heap_set_link(block, 0);
        weir__heap_set_tag(block, WEIR__HEAP_HELD);
    }
    uint32_t first = weir__heap_link(block);
    if (weir__heap_free_unpromised(heap) < (first != 0 ? 1u : 2u))
        return false;
    weir__heap_owner *owner = weir__heap_owner_take(heap, mark.clock);
    if (owner == NULL)
        return false;
    weir__heap_raise_to(&owner->latest, mark.number);
    if (first == 0) {
        first = weir__heap_free_take(heap, owner);
        weir__heap_set_link(block, first);
    }
    uint32_t *link = &weir__heap_free_at(heap, first)->more;
    for (; *link != 0; link = &weir__heap_free_at(heap, *link)->more) {
        weir__heap_free *record = weir__heap_free_at(heap, *link);
        if (weir__heap_slot_of(record) == owner->slot) {
            weir__heap_raise_to(&record->number, mark.number);
            return true;
        }
    }
    *link = weir__heap_free_take(heap, owner);
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
        const weir__heap_owner *owner =
            heap->owners[weir__heap_tag(block) >> WEIR__HOLDER_SHIFT];
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

void weir__heap_limbo_insert(weir__heap *heap, uint32_t id)
{
    weir__heap_free *record = weir__heap_free_of(heap, block_at(heap, id));
    record->beside[0] = 0;
    record->beside[1] = heap->limbo;
    if (record->beside[1] != 0)
        weir__heap_free_of(heap, block_at(heap, record->beside[1]))->beside[0] = id;
    heap->limbo = id;
    heap->limbo_blocks++;
}

void weir__heap_limbo_remove(weir__heap *heap, uint32_t id)
{
    const weir__heap_free *record = weir__heap_free_of(heap, block_at(heap, id));
    uint32_t before = record->beside[0], after = record->beside[1];
    if (before != 0)
        weir__heap_free_of(heap, block_at(heap, before))->beside[1] = after;
    else
        heap->limbo = after;
    if (after != 0)
        weir__heap_free_of(heap, block_at(heap, after))->beside[0] = before;
    heap->limbo_blocks--;
}

uint32_t weir__heap_next_limbo(const weir__heap *heap, uint32_t id)
{
    return id == 0 ? heap->limbo
                   : weir__heap_free_of(heap, block_at(heap, id))->beside[1];
}
