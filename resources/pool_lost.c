/* pool_lost.c - blocks that two threads gave back at the same moment, and what went
 * astray with them.
 *
 * A free by a thread's own cache looks at the block's tag and writes it anew, with its
 * address, and no more. So two threads may both see a block out, and both put it on a
 * stack of theirs. It has one tag and one link: each is what one of the two wrote, not
 * always the same one.
 *
 *     a --> b --> X --> c --> d          X has the tag of the stack above, and the
 *           e --> X                      link of it or of the one below
 *
 * Whoever goes through a list therefore looks at each tag before it takes the block or
 * follows its link. One that is not the list's own is X, or what X leads to; from there
 * on the list is given up. What of it nobody else has, keeps its tag, and is in no list
 * any more: it is lost until the caches and the depot are emptied the next time, with
 * all gates closed. Then all that is marked as in a list is lost, and goes to the heap;
 * set aside, for nobody knows any more on which stream it was freed.
 *
 * What nothing mends: a thread that is held up between its look and its store. If the
 * other has taken the block again meanwhile, it is out and on a stack at once, and is
 * handed out twice; if it has gone on to the heap and the record stands for another
 * block, that gets the address of the old one.
 *
 * So many entries as were given up and are not found then were of blocks that were
 * given back twice. Before that it is taken for one in each list, and as many bytes as
 * the block has: what was asked for is not known any more. */
#include "internal.h"
#include "pool_internal.h"
#include "pool_seats.h"

/* So many deallocations were none; below zero: more were. */
static void take_back_locked(weir__pool *self, int64_t count, int64_t bytes)
    WEIR_REQUIRES(self->lock)
{
    self->counts.deallocations -= (uint64_t)count;
    self->counts.out_blocks += (size_t)count;
    self->counts.out_bytes += (size_t)bytes;
    self->counts_whole_grains = true;
}

void weir__pool_note_lost_locked(weir__pool *self, weir__lost *lost)
{
    if (lost->lists == 0)
        return;
    weir__lost *both[] = { &self->lost, &self->untold };
    for (int i = 0; i < 2; i++) {
        both[i]->lists += lost->lists;
        both[i]->blocks += lost->blocks;
        both[i]->bytes += lost->bytes;
        if (lost->ptr != NULL)
            both[i]->ptr = lost->ptr;
    }
    take_back_locked(self, lost->lists, (int64_t)lost->bytes);
    *lost = (weir__lost){ 0 };
    /* Relaxed: who sees it looks under the lock. */
    atomic_store_explicit(&self->has_untold, true, memory_order_relaxed);
}

bool weir__pool_take_out_locked(weir__pool *self, const weir__magazine *magazine,
                                weir__magazine *out)
{
    *out = weir__depot_take(&self->depot, magazine);
    const weir__heap_block *first = weir__heap_block_of(&self->heap, out->head);
    if (weir__heap_tag(first) == out->holder_tag)
        return true;
    weir__block_list list = weir__magazine_blocks(out);
    weir__pool_settle_locked(self, &list, out->mark);
    return false;
}

static bool is_lost(const weir__heap_block *block)
{
    uint32_t tag = weir__heap_tag(block);
    return (tag & WEIR__TAG_STATE_MASK) == WEIR__HEAP_CACHED &&
           tag != WEIR__HEAP_CACHED; /* which is on its way back */
}

void weir__pool_gather_lost_locked(weir__pool *self)
{
    if (self->lost.lists == 0)
        return;
    weir__heap *heap = &self->heap;
    weir__mark mark = weir__order_mark_here(self->order, 0);
    uint32_t found = 0;
    for (weir__chunk *chunk = heap->oldest; chunk != NULL; chunk = chunk->newer) {
        for (uint32_t id = weir__heap_first(heap, chunk); id != 0;
             id = weir__heap_after(heap, id)) {
            if (!is_lost(weir__heap_block_of(heap, id)))
                continue;
            id = weir__heap_release(heap, id, mark);
            found++;
        }
    }
    int64_t twice = (int64_t)self->lost.blocks - found, lists = self->lost.lists;
    int64_t bytes = (int64_t)self->lost.bytes / lists; /* of each, about */
    take_back_locked(self, twice - lists, (twice - lists) * bytes);
    self->lost = (weir__lost){ 0 };
}

void weir__pool_tell_lost_now(weir__pool *self)
{
    weir__mutex_lock(&self->lock);
    weir__lost it = self->untold;
    self->untold = (weir__lost){ 0 };
    atomic_store_explicit(&self->has_untold, false, memory_order_relaxed);
    weir__mutex_unlock(&self->lock);
    if (it.lists == 0)
        return;
    size_t bytes = it.bytes / it.lists;
    if (it.ptr != NULL)
        weir__misuse(WEIR_MISUSE_DOUBLE_FREE, it.ptr, bytes,
                     "pool: %p, or what came back right after it, was given back "
                     "twice, by two threads at once",
                     it.ptr);
    else
        weir__misuse(WEIR_MISUSE_DOUBLE_FREE, NULL, bytes,
                     "pool: a block of %zu bytes was given back twice, by two threads "
                     "at once; which is not known any more",
                     bytes);
}
