/* support_heap.h - a heap of one chunk, for tests of the heap alone. Addresses are made
 * up; nobody touches them. */
#ifndef WEIR_TESTS_SUPPORT_HEAP_H
#define WEIR_TESTS_SUPPORT_HEAP_H

#include "heap_internal.h"
#include "support.h"

#define GRAIN WEIR__HEAP_GRAIN
#define BASE  ((uintptr_t)1 << 40)

/* Takes a block from an owner's best fit. */
static inline uint32_t take_best(weir__heap *heap, const weir__heap_owner *owner,
                                 size_t bytes, size_t alignment)
{
    uint32_t best = weir__heap_best(heap, owner, bytes, alignment);
    must(best != 0);
    weir__mark mark = weir__heap_mark(heap, best);
    weir__heap_hold(heap, best);
    return weir__heap_hand_out(heap, (weir__heap_run){ best, best }, bytes, alignment,
                               mark, mark);
}

static inline uintptr_t base_of(const weir__heap *heap, uint32_t id)
{
    return weir__heap_base(weir__heap_block_of(heap, id));
}

static inline void come_back(weir__heap *heap, uint32_t id)
{
    weir__heap_set_tag(weir__heap_block_of(heap, id), WEIR__HEAP_CACHED);
}

/* A heap with one chunk that is free, done. */
static inline void open_heap_at(weir__heap *heap, weir__chunk *chunk, uintptr_t base,
                                size_t bytes)
{
    must(weir__heap_init(heap) && weir__heap_promise(heap));
    must_ok(weir__heap_reserve(heap, base, bytes));
    uint32_t all = weir__heap_add_chunk(heap, chunk, base, bytes);
    weir__heap_release(heap, all, WEIR__MARK_DONE);
    weir__heap_forget_promise(heap);
}

static inline void open_heap(weir__heap *heap, weir__chunk *chunk, size_t bytes)
{
    open_heap_at(heap, chunk, BASE, bytes);
}

#endif
