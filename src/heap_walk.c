/* heap_walk.c - what walks over all blocks of a heap: the search for runs of several
 * clocks, which only a miss needs, what reports want to know, and verify.
 *
 * weir__heap_verify stops if one record contradicts another. Tests call it after every
 * operation, so that a mistake shows where it is made and not where it hurts. */
#include "heap.h"
#include "internal.h"

static uintptr_t end_of(const weir__heap_block *block)
{
    return block->base + block->bytes;
}

weir__heap_run weir__heap_find_run(const weir__heap *heap, size_t bytes,
                                   size_t alignment, weir__heap_usable usable,
                                   void *context)
{
    weir__heap_run best = { NULL, NULL };
    size_t best_bytes = SIZE_MAX;
    for (weir__chunk *chunk = heap->oldest; chunk != NULL; chunk = chunk->newer) {
        /* [first, block] is the window; its beginning follows as soon as it may. */
        weir__heap_block *first = NULL;
        for (weir__heap_block *block = chunk->first; block; block = block->after) {
            if (!weir__heap_is_idle(block) || !usable(context, block)) {
                first = NULL;
                continue;
            }
            if (first == NULL)
                first = block;
            while (first != NULL && weir__heap_fits(first, block, bytes, alignment)) {
                if (end_of(block) - first->base < best_bytes) {
                    best = (weir__heap_run){ first, block };
                    best_bytes = end_of(block) - first->base;
                }
                first = first == block ? NULL : first->after;
            }
        }
    }
    return best;
}

weir__heap_block *weir__heap_around(const weir__heap *heap, const void *ptr)
{
    uintptr_t at = (uintptr_t)ptr;
    for (weir__chunk *chunk = heap->oldest; chunk != NULL; chunk = chunk->newer) {
        if (at < chunk->base || at - chunk->base >= chunk->bytes)
            continue;
        weir__heap_block *block = chunk->first;
        while (at - block->base >= block->bytes)
            block = block->after;
        return block;
    }
    return NULL;
}

size_t weir__heap_largest_free(const weir__heap *heap)
{
    size_t largest = 0;
    for (weir__chunk *chunk = heap->oldest; chunk != NULL; chunk = chunk->newer) {
        size_t run = 0;
        for (weir__heap_block *block = chunk->first; block; block = block->after) {
            run = weir__heap_is_idle(block) ? run + block->bytes : 0;
            if (run > largest)
                largest = run;
        }
    }
    return largest;
}

size_t weir__heap_bytes_of(const weir__heap *heap, uint64_t clock)
{
    size_t bytes = 0;
    const weir__heap_block *block =
        weir__heap_best(heap, clock, WEIR__HEAP_GRAIN, WEIR__HEAP_GRAIN);
    while (block != NULL && block->mark.clock == clock) {
        bytes += block->bytes;
        block = weir__heap_next_free(heap, block);
    }
    return bytes;
}

/* ---- verify ---- */

/* What the chunks' lists add up to. */
typedef struct heap_sum {
    size_t bytes, out_bytes;
    size_t free_blocks, limbo_blocks, out_blocks;
} heap_sum;

static void marks_verify(const weir__heap_block *block)
{
    WEIR_CHECK(block->more == NULL || block->state == WEIR__HEAP_LIMBO ||
                   block->state == WEIR__HEAP_HELD ||
                   block->state == WEIR__HEAP_RETURNING,
               "what is out or simply free has no further marks");
    WEIR_CHECK(block->more != NULL || block->state != WEIR__HEAP_LIMBO,
               "what is in limbo has further marks");
}

static void block_verify(const weir__heap *heap, const weir__heap_block *block,
                         heap_sum *sum)
{
    const weir__heap_block *before = block->before;

    WEIR_CHECK(block->bytes > 0 && block->bytes % WEIR__HEAP_GRAIN == 0 &&
                   block->base % WEIR__HEAP_GRAIN == 0,
               "a block is made of whole grains");
    WEIR_CHECK(before == NULL ? block->base == block->chunk->base
                              : before->base + before->bytes == block->base,
               "blocks leave no gap");
    WEIR_CHECK(block->after == NULL || block->after->before == block,
               "neighbours know each other");
    WEIR_CHECK(before == NULL || before->state != WEIR__HEAP_FREE ||
                   block->state != WEIR__HEAP_FREE ||
                   before->mark.clock != block->mark.clock,
               "free neighbours of one clock are merged");
    marks_verify(block);

    sum->bytes += block->bytes;
    sum->free_blocks += block->state == WEIR__HEAP_FREE;
    sum->limbo_blocks += block->state == WEIR__HEAP_LIMBO;
    if (block->state == WEIR__HEAP_OUT || block->state == WEIR__HEAP_RETURNING) {
        WEIR_CHECK(weir__heap_find(heap, (const void *)block->base) == block,
                   "what is out is found by its address");
        sum->out_blocks++;
        sum->out_bytes += block->bytes;
    }
}

static void chunk_verify(const weir__heap *heap, const weir__chunk *chunk,
                         heap_sum *sum)
{
    size_t before = sum->bytes, busy = 0;
    const weir__heap_block *last = NULL;
    for (const weir__heap_block *block = chunk->first; block; block = block->after) {
        WEIR_CHECK(block->chunk == chunk, "a block knows its chunk");
        block_verify(heap, block, sum);
        busy += block->state != WEIR__HEAP_FREE && block->state != WEIR__HEAP_LIMBO;
        last = block;
    }
    WEIR_CHECK(last == chunk->last && busy == chunk->busy, "a chunk counts its blocks");
    WEIR_CHECK(sum->bytes - before == chunk->bytes, "blocks fill their chunk");
    WEIR_CHECK(chunk->newer ? chunk->newer->older == chunk : heap->newest == chunk,
               "chunks know each other");
}

static void tree_verify(const weir__heap *heap)
{
    size_t count = 0;
    const weir__heap_block *block = NULL;
    while ((block = weir__heap_next_free(heap, block)) != NULL) {
        WEIR_CHECK(block->state == WEIR__HEAP_FREE, "only what is free is in the tree");
        WEIR_CHECK(!block->left || block->left->priority <= block->priority,
                   "the tree is a heap by priority");
        WEIR_CHECK(!block->right || block->right->priority <= block->priority,
                   "the tree is a heap by priority");
        count++;
    }
    WEIR_CHECK(count == heap->free_blocks, "the tree has all that is free, once");
}

static void table_verify(const weir__heap *heap)
{
    size_t count = 0;
    for (size_t i = 0; i < heap->bucket_count; i++) {
        for (const weir__heap_block *b = heap->buckets[i]; b != NULL; b = b->next)
            count++;
    }
    WEIR_CHECK(count == heap->out_blocks, "the table has all that is out, once");
}

static void lists_verify(const weir__heap *heap)
{
    size_t spares = 0, limbo = 0;
    for (const weir__heap_block *b = heap->spares; b != NULL; b = b->next, spares++)
        WEIR_CHECK(b->state == WEIR__HEAP_SPARE, "a spare record stands for nothing");
    for (const weir__heap_block *b = heap->limbo; b != NULL; b = b->right, limbo++)
        WEIR_CHECK(b->state == WEIR__HEAP_LIMBO, "only what waits is in limbo");
    WEIR_CHECK(spares == heap->spare_count, "spare records are counted");
    WEIR_CHECK(limbo == heap->limbo_blocks, "what is in limbo is counted");
}

void weir__heap_verify(const weir__heap *heap)
{
    heap_sum sum = { 0 };
    for (const weir__chunk *chunk = heap->oldest; chunk != NULL; chunk = chunk->newer)
        chunk_verify(heap, chunk, &sum);
    WEIR_CHECK(sum.bytes == heap->bytes && sum.out_bytes == heap->out_bytes,
               "bytes are counted");
    WEIR_CHECK(sum.free_blocks == heap->free_blocks &&
                   sum.limbo_blocks == heap->limbo_blocks &&
                   sum.out_blocks == heap->out_blocks,
               "blocks are counted");
    tree_verify(heap);
    table_verify(heap);
    lists_verify(heap);
}
