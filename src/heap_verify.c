/* heap_verify.c - stops if one record of a heap contradicts another. Tests call it
 * after every operation, so that a mistake shows where it is made and not where it
 * hurts. */
#include "heap_internal.h"
#include "internal.h"

/* What the chunks' blocks add up to. */
typedef struct heap_sum {
    size_t bytes, taken_bytes;
    size_t free_blocks, limbo_blocks, taken_blocks, returned_blocks;
    size_t blocks, mapped, ends, free_records;
} heap_sum;

static void marks_verify(const weir__heap *heap, const weir__heap_block *block,
                         heap_sum *sum)
{
    weir__heap_state state = weir__heap_state_of(block);
    bool may_have = state == WEIR__HEAP_FREE || state == WEIR__HEAP_LIMBO ||
                    state == WEIR__HEAP_HELD;
    size_t marks = 0;
    for (uint32_t at = may_have ? weir__heap_link(block) : 0; at != 0; marks++) {
        const weir__heap_free *record = weir__heap_free_at(heap, at);
        const weir__heap_owner *owner = heap->owners[weir__heap_slot_of(record)];
        WEIR_CHECK(!owner->is_spare && record->number <= owner->latest,
                   "a mark is of an owner, who knows the latest");
        at = state != WEIR__HEAP_FREE ? record->more : 0;
    }
    WEIR_CHECK(state != WEIR__HEAP_FREE || marks == 1, "what is free has one mark");
    WEIR_CHECK(state != WEIR__HEAP_LIMBO || marks > 1, "what is in limbo has several");
    sum->free_records += marks;
}

static void block_verify(const weir__heap *heap, uint32_t id, heap_sum *sum)
{
    const weir__heap_block *block = weir__heap_block_of(heap, id);
    const weir__heap_tie *tie = weir__heap_tie_at(heap, id);
    uint32_t before = tie->before;
    uintptr_t base = weir__heap_base(block);
    size_t bytes = weir__heap_bytes(block);
    weir__heap_state state = weir__heap_state_of(block);

    WEIR_CHECK(bytes > 0, "a block is made of whole grains");
    WEIR_CHECK(state != WEIR__HEAP_SPARE && state != WEIR__HEAP_END,
               "a block is a block");
    WEIR_CHECK(before == 0 ||
                   (weir__heap_end_of(weir__heap_block_of(heap, before)) == base &&
                    weir__heap_behind(weir__heap_tie_at(heap, before)) == id),
               "blocks leave no gap, and know each other");
    WEIR_CHECK(before == 0 || state != WEIR__HEAP_FREE ||
                   weir__heap_state_at(heap, before) != WEIR__HEAP_FREE ||
                   weir__heap_mark(heap, before).clock !=
                       weir__heap_mark(heap, id).clock,
               "free neighbours of one clock are merged");
    WEIR_CHECK(weir__heap_is_mapped(tie) ||
                   (state != WEIR__HEAP_OUT && state != WEIR__HEAP_CACHED && before),
               "what was handed out is in the map, and what a chunk begins with");
    WEIR_CHECK(!weir__heap_is_mapped(tie) ||
                   weir__heap_find(heap, (const void *)base) == id,
               "what is in the map is found by its address");
    marks_verify(heap, block, sum);

    sum->blocks++;
    sum->mapped += weir__heap_is_mapped(tie);
    sum->bytes += bytes;
    sum->free_blocks += state == WEIR__HEAP_FREE;
    sum->limbo_blocks += state == WEIR__HEAP_LIMBO;
    sum->returned_blocks += state == WEIR__HEAP_RETURNED;
    if (state == WEIR__HEAP_OUT || state == WEIR__HEAP_CACHED) {
        sum->taken_blocks++;
        sum->taken_bytes += bytes;
    }
}

static void chunk_verify(const weir__heap *heap, const weir__chunk *chunk,
                         heap_sum *sum)
{
    size_t before = sum->bytes;
    uint32_t last = 0;
    for (uint32_t id = weir__heap_first(heap, chunk); id != 0;
         id = weir__heap_after(heap, id)) {
        block_verify(heap, id, sum);
        last = id;
    }
    const weir__heap_block *end = weir__heap_block_of(heap, chunk->end);
    WEIR_CHECK(weir__heap_state_of(end) == WEIR__HEAP_END &&
                   weir__heap_before(heap, chunk->end) == last &&
                   weir__heap_base(end) == 0 && weir__heap_grains(end) == 0,
               "a chunk has an end");
    WEIR_CHECK(sum->bytes - before == chunk->bytes, "blocks fill their chunk");
    WEIR_CHECK(chunk->newer ? chunk->newer->older == chunk : heap->newest == chunk,
               "chunks know each other");
    sum->ends++;
}

/* All records are in use or spare. */
static void records_verify(const weir__heap *heap, const heap_sum *sum)
{
    size_t spares = 0, free_spares = 0;
    for (uint32_t home = 0; home < WEIR__HEAP_HOMES; home++) {
        for (uint32_t id = heap->spares[home].blocks; id != 0; spares++) {
            const weir__heap_block *block = weir__heap_block_of(heap, id);
            WEIR_CHECK(weir__heap_state_of(block) == WEIR__HEAP_SPARE,
                       "a spare record stands for nothing");
            WEIR_CHECK(id < heap->fresh && weir__heap_home_of(heap, id) == home,
                       "a spare record is at home");
            id = weir__heap_link(block);
        }
        for (uint32_t id = heap->spares[home].frees; id != 0; free_spares++)
            id = weir__heap_free_at(heap, id)->beside[0];
    }
    for (uint32_t id = 1; id < heap->free_made; id++) {
        uint32_t block = weir__heap_free_at(heap, id)->block;
        WEIR_CHECK(block == 0 || weir__heap_state_at(heap, block) != WEIR__HEAP_FREE ||
                       weir__heap_link(weir__heap_block_of(heap, block)) == id,
                   "a free block is named by its own record alone");
    }
    const size_t made = heap->made, free_made = heap->free_made;
    spares += made - heap->fresh - (made > 0 && heap->fresh == 0);
    free_spares += free_made - heap->free_fresh - (free_made > 0 && !heap->free_fresh);
    WEIR_CHECK(spares == heap->spare_count && free_spares == heap->free_spare_count,
               "spare records are counted");
    WEIR_CHECK(spares + sum->blocks + sum->ends + (made > 0) == made,
               "no record is lost");
    WEIR_CHECK(free_spares + sum->free_records + (free_made > 0) == free_made,
               "no free record is lost");
}

static void lists_verify(const weir__heap *heap)
{
    size_t limbo = 0, returned = 0, owners = 0;
    uint32_t before = 0;
    for (uint32_t id = heap->limbo; id != 0; limbo++) {
        const weir__heap_block *block = weir__heap_block_of(heap, id);
        WEIR_CHECK(weir__heap_state_of(block) == WEIR__HEAP_LIMBO &&
                       weir__heap_free_of(heap, block)->beside[0] == before,
                   "only what waits is in limbo");
        before = id;
        id = weir__heap_next_limbo(heap, id);
    }
    for (uint32_t id = heap->returned; id != 0; returned++) {
        WEIR_CHECK(weir__heap_state_at(heap, id) == WEIR__HEAP_RETURNED,
                   "only what was returned is in its list");
        id = weir__heap_link(weir__heap_block_of(heap, id));
    }
    WEIR_CHECK(limbo == heap->limbo_blocks, "what is in limbo is counted");
    WEIR_CHECK(returned == heap->returned_blocks, "what was returned is counted");
    for (uint32_t slot = heap->owner_spares; owners < heap->owner_spare_count; owners++)
        slot = heap->owners[slot]->next_spare;
    for (uint32_t slot = 0; slot < heap->owner_count; slot++) {
        const weir__heap_owner *owner = heap->owners[slot];
        owners -= owner->is_spare;
        WEIR_CHECK(owner->is_spare ||
                       weir__heap_owner_find(heap, owner->clock) == owner,
                   "an owner is found by its clock");
    }
    WEIR_CHECK(owners == 0, "spare owners are counted");
}

void weir__heap_verify(const weir__heap *heap)
{
    heap_sum sum = { 0 };
    for (const weir__chunk *chunk = heap->oldest; chunk != NULL; chunk = chunk->newer)
        chunk_verify(heap, chunk, &sum);
    WEIR_CHECK(sum.bytes == heap->bytes && sum.taken_bytes == heap->taken_bytes,
               "bytes are counted");
    WEIR_CHECK(sum.free_blocks == heap->free_blocks &&
                   sum.limbo_blocks == heap->limbo_blocks &&
                   sum.taken_blocks == heap->taken_blocks &&
                   sum.returned_blocks == heap->returned_blocks,
               "blocks are counted");
    records_verify(heap, &sum);
    lists_verify(heap);
    weir__heap_bins_verify(heap);
    weir__heap_map_verify(heap, sum.mapped);
}
