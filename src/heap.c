/* heap.c - see heap.h.
 *
 * The tree is a treap: a search tree by key that is a heap by priority, where the
 * priority is a hash of the address. So it is as deep as a random tree whatever the
 * order of the requests, without a random number and without anything to rebalance.
 */
#include "heap.h"

#include <string.h>

#include "internal.h"

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define SLAB_BLOCKS  8u
#define BUCKETS_LEAST 4u
#else
#define SLAB_BLOCKS  126u
#define BUCKETS_LEAST 256u
#endif

/* Records are made by the slab, and go only when the heap does. */
struct weir__heap_slab {
    weir__heap_slab *next;
    weir__heap_block blocks[SLAB_BLOCKS];
};

static uint64_t hash_of(uintptr_t base)
{
    uint64_t x = base / WEIR__HEAP_GRAIN * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

static uintptr_t end_of(const weir__heap_block *block)
{
    return block->base + block->bytes;
}

static uintptr_t align_up(uintptr_t address, size_t alignment)
{
    return (address + (alignment - 1)) & ~(uintptr_t)(alignment - 1);
}

/* ---- the tree ---- */

typedef struct key {
    uint64_t clock;
    size_t bytes;
    uintptr_t base;
} key;

static key key_of(const weir__heap_block *block)
{
    return (key){ block->mark.clock, block->bytes, block->base };
}

static bool comes_before(const weir__heap_block *block, key k)
{
    if (block->mark.clock != k.clock)
        return block->mark.clock < k.clock;
    if (block->bytes != k.bytes)
        return block->bytes < k.bytes;
    return block->base < k.base;
}

/* The first block that does not come before `k`. */
static weir__heap_block *tree_from(const weir__heap *heap, key k)
{
    weir__heap_block *found = NULL;
    for (weir__heap_block *at = heap->root; at != NULL;) {
        if (comes_before(at, k)) {
            at = at->right;
        } else {
            found = at;
            at = at->left;
        }
    }
    return found;
}

static void tree_insert(weir__heap *heap, weir__heap_block *block)
{
    key k = key_of(block);
    block->priority = (uint32_t)hash_of(block->base);

    weir__heap_block **link = &heap->root;
    while (*link != NULL && (*link)->priority >= block->priority)
        link = comes_before(*link, k) ? &(*link)->right : &(*link)->left;

    /* What stood here is split by the key into what goes left and what goes right. */
    weir__heap_block *at = *link;
    weir__heap_block **left = &block->left, **right = &block->right;
    *link = block;
    while (at != NULL) {
        if (comes_before(at, k)) {
            *left = at;
            left = &at->right;
            at = at->right;
        } else {
            *right = at;
            right = &at->left;
            at = at->left;
        }
    }
    *left = *right = NULL;
    heap->free_blocks++;
}

static void tree_remove(weir__heap *heap, weir__heap_block *block)
{
    key k = key_of(block);
    weir__heap_block **link = &heap->root;
    while (*link != block) {
        WEIR_CHECK(*link != NULL, "a free block is in the tree");
        link = comes_before(*link, k) ? &(*link)->right : &(*link)->left;
    }

    /* Its two subtrees are zipped into one in its place. */
    weir__heap_block *left = block->left, *right = block->right;
    while (left != NULL && right != NULL) {
        if (left->priority >= right->priority) {
            *link = left;
            link = &left->right;
            left = left->right;
        } else {
            *link = right;
            link = &right->left;
            right = right->left;
        }
    }
    *link = left != NULL ? left : right;
    heap->free_blocks--;
}

/* ---- the table of what is out ---- */

static weir__heap_block **bucket_of(const weir__heap *heap, uintptr_t base)
{
    return &heap->buckets[(hash_of(base) >> 32) & (heap->bucket_count - 1)];
}

static void table_insert(weir__heap *heap, weir__heap_block *block)
{
    weir__heap_block **bucket = bucket_of(heap, block->base);
    block->next = *bucket;
    *bucket = block;
}

static void table_remove(weir__heap *heap, weir__heap_block *block)
{
    weir__heap_block **link = bucket_of(heap, block->base);
    while (*link != block) {
        WEIR_CHECK(*link != NULL, "a block that is out is in the table");
        link = &(*link)->next;
    }
    *link = block->next;
}

/* Keeps the table at no more than one block for each bucket. */
static bool table_reserve(weir__heap *heap)
{
    if (heap->out_blocks < heap->bucket_count)
        return true;

    size_t count = heap->bucket_count ? heap->bucket_count * 2 : BUCKETS_LEAST;
    weir__heap_block **buckets = weir__host_alloc(count * sizeof(weir__heap_block *));
    if (buckets == NULL)
        return false;
    memset(buckets, 0, count * sizeof(weir__heap_block *));

    weir__heap_block **old = heap->buckets;
    size_t old_count = heap->bucket_count;
    heap->buckets = buckets;
    heap->bucket_count = count;
    for (size_t i = 0; i < old_count; i++) {
        while (old[i] != NULL) {
            weir__heap_block *block = old[i];
            old[i] = block->next;
            table_insert(heap, block);
        }
    }
    weir__host_free(old);
    return true;
}

/* ---- records ---- */

static void record_give_back(weir__heap *heap, weir__heap_block *block)
{
    block->state = WEIR__HEAP_SPARE;
    block->next = heap->spares;
    heap->spares = block;
    heap->spare_count++;
}

static weir__heap_block *record_take(weir__heap *heap)
{
    weir__heap_block *block = heap->spares;
    WEIR_CHECK(block != NULL, "records were promised");
    heap->spares = block->next;
    heap->spare_count--;
    memset(block, 0, sizeof *block);
    return block;
}

bool weir__heap_promise(weir__heap *heap)
{
    if (!table_reserve(heap))
        return false;
    while (heap->spare_count < heap->promised + WEIR__HEAP_PROMISE) {
        weir__heap_slab *slab = weir__host_alloc(sizeof *slab);
        if (slab == NULL)
            return false;
        slab->next = heap->slabs;
        heap->slabs = slab;
        for (size_t i = SLAB_BLOCKS; i-- > 0;)
            record_give_back(heap, &slab->blocks[i]);
    }
    heap->promised += WEIR__HEAP_PROMISE;
    return true;
}

void weir__heap_forget_promise(weir__heap *heap)
{
    WEIR_CHECK(heap->promised >= WEIR__HEAP_PROMISE, "what was promised is forgotten");
    heap->promised -= WEIR__HEAP_PROMISE;
}

void weir__heap_init(weir__heap *heap)
{
    *heap = (weir__heap){ .root = NULL };
}

void weir__heap_close(weir__heap *heap)
{
    while (heap->slabs != NULL) {
        weir__heap_slab *slab = heap->slabs;
        heap->slabs = slab->next;
        weir__host_free(slab);
    }
    weir__host_free(heap->buckets);
    weir__heap_init(heap);
}

/* ---- blocks ---- */

static void set_state(weir__heap_block *block, weir__heap_state state)
{
    bool was_idle = weir__heap_is_idle(block);
    block->state = state;
    if (was_idle && !weir__heap_is_idle(block))
        block->chunk->busy++;
    else if (!was_idle && weir__heap_is_idle(block))
        block->chunk->busy--;
}

/* A new HELD block of `bytes` bytes at `base`, after `before` in `chunk` (null: at its
 * beginning). */
static weir__heap_block *block_link(weir__heap *heap, weir__chunk *chunk,
                                    weir__heap_block *before, uintptr_t base,
                                    size_t bytes)
{
    weir__heap_block *block = record_take(heap);
    block->base = base;
    block->bytes = bytes;
    block->state = WEIR__HEAP_HELD;
    block->chunk = chunk;
    block->before = before;
    block->after = before != NULL ? before->after : chunk->first;
    *(block->before != NULL ? &block->before->after : &chunk->first) = block;
    *(block->after != NULL ? &block->after->before : &chunk->last) = block;
    chunk->busy++;
    return block;
}

/* Takes a busy block out of its chunk's list. */
static void block_unlink(weir__heap *heap, weir__heap_block *block)
{
    weir__heap_drop_marks(heap, block);
    *(block->before != NULL ? &block->before->after : &block->chunk->first) =
        block->after;
    *(block->after != NULL ? &block->after->before : &block->chunk->last) =
        block->before;
    block->chunk->busy--;
    record_give_back(heap, block);
}

/* Makes a busy block take over the busy one after it. */
static void block_absorb_next(weir__heap *heap, weir__heap_block *block)
{
    WEIR_ASSERT(end_of(block) == block->after->base, "neighbours touch");
    block->bytes += block->after->bytes;
    block_unlink(heap, block->after);
}

bool weir__heap_add_mark(weir__heap *heap, weir__heap_block *block, weir__mark mark)
{
    if (heap->spare_count <= heap->promised)
        return false;
    weir__heap_block *record = record_take(heap);
    record->mark = mark;
    record->more = block->more;
    block->more = record;
    return true;
}

void weir__heap_drop_marks(weir__heap *heap, weir__heap_block *block)
{
    while (block->more != NULL) {
        weir__heap_block *record = block->more;
        block->more = record->more;
        record_give_back(heap, record);
    }
}

void weir__heap_drop_done(weir__heap *heap, weir__heap_block *block,
                          weir__heap_is_done is_done, void *context)
{
    weir__heap_block **link = &block->more;
    while (*link != NULL) {
        weir__heap_block *record = *link;
        if (!is_done(context, record->mark)) {
            link = &record->more;
            continue;
        }
        *link = record->more;
        record_give_back(heap, record);
    }
    if (block->more != NULL && is_done(context, block->mark)) {
        weir__heap_block *record = block->more;
        block->mark = record->mark;
        block->more = record->more;
        record_give_back(heap, record);
    }
}

static void limbo_insert(weir__heap *heap, weir__heap_block *block)
{
    block->left = NULL;
    block->right = heap->limbo;
    if (block->right != NULL)
        block->right->left = block;
    heap->limbo = block;
    heap->limbo_blocks++;
}

static void limbo_remove(weir__heap *heap, weir__heap_block *block)
{
    *(block->left != NULL ? &block->left->right : &heap->limbo) = block->right;
    if (block->right != NULL)
        block->right->left = block->left;
    heap->limbo_blocks--;
}

void weir__heap_hold(weir__heap *heap, weir__heap_block *block)
{
    WEIR_CHECK(weir__heap_is_idle(block), "only what is free can be held");
    if (block->state == WEIR__HEAP_FREE)
        tree_remove(heap, block);
    else
        limbo_remove(heap, block);
    set_state(block, WEIR__HEAP_HELD);
}

static bool is_free_of(const weir__heap_block *block, uint64_t clock)
{
    return block != NULL && block->state == WEIR__HEAP_FREE &&
           block->mark.clock == clock;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

weir__heap_block *weir__heap_release(weir__heap *heap, weir__heap_block *block,
                                     weir__mark mark)
{
    if (block->state == WEIR__HEAP_RETURNING) {
        table_remove(heap, block);
        heap->out_bytes -= block->bytes;
        heap->out_blocks--;
        set_state(block, WEIR__HEAP_HELD);
    }
    WEIR_CHECK(block->state == WEIR__HEAP_HELD, "only what is held can be released");

    block->mark = mark;
    if (block->more != NULL) {
        limbo_insert(heap, block);
        set_state(block, WEIR__HEAP_LIMBO);
        return block;
    }
    if (is_free_of(block->before, mark.clock)) {
        weir__heap_block *before = block->before;
        weir__heap_hold(heap, before);
        before->mark.number = later(before->mark.number, mark.number);
        block_absorb_next(heap, before);
        block = before;
    }
    if (is_free_of(block->after, mark.clock)) {
        weir__heap_hold(heap, block->after);
        block->mark.number = later(block->mark.number, block->after->mark.number);
        block_absorb_next(heap, block);
    }
    tree_insert(heap, block);
    set_state(block, WEIR__HEAP_FREE);
    return block;
}

weir__heap_block *weir__heap_hand_out(weir__heap *heap, weir__heap_run run,
                                      size_t bytes, size_t alignment, weir__mark front,
                                      weir__mark rest)
{
    weir__heap_block *block = run.first;
    WEIR_CHECK(block->state == WEIR__HEAP_HELD, "who hands out holds");
    WEIR_CHECK(weir__heap_fits(run.first, run.last, bytes, alignment),
               "what is handed out has room");
    uintptr_t end = end_of(run.last);
    while (end_of(block) != end) {
        WEIR_CHECK(block->after->state == WEIR__HEAP_HELD, "who hands out holds all");
        block_absorb_next(heap, block);
    }
    weir__heap_drop_marks(heap, block);

    weir__heap_block *in_front = NULL, *behind = NULL;
    uintptr_t base = align_up(block->base, alignment);
    if (base != block->base) {
        in_front = block_link(heap, block->chunk, block->before, block->base,
                              base - block->base);
        block->bytes -= in_front->bytes;
        block->base = base;
    }
    if (block->bytes != bytes) {
        behind = block_link(heap, block->chunk, block, base + bytes,
                            block->bytes - bytes);
        block->bytes = bytes;
    }
    block->state = WEIR__HEAP_OUT;
    table_insert(heap, block);
    heap->out_bytes += bytes;
    heap->out_blocks++;

    if (in_front != NULL)
        weir__heap_release(heap, in_front, front);
    if (behind != NULL)
        weir__heap_release(heap, behind, rest);
    return block;
}

void weir__heap_begin_return(weir__heap *heap, weir__heap_block *block)
{
    (void)heap;
    WEIR_CHECK(block->state == WEIR__HEAP_OUT, "only what is out comes back");
    block->state = WEIR__HEAP_RETURNING;
}

void weir__heap_cancel_return(weir__heap *heap, weir__heap_block *block)
{
    (void)heap;
    WEIR_CHECK(block->state == WEIR__HEAP_RETURNING, "it was on its way back");
    block->state = WEIR__HEAP_OUT;
}

/* ---- chunks ---- */

weir__heap_block *weir__heap_add_chunk(weir__heap *heap, weir__chunk *chunk,
                                       uintptr_t base, size_t bytes)
{
    WEIR_CHECK(base % WEIR__HEAP_GRAIN == 0 && bytes % WEIR__HEAP_GRAIN == 0,
               "a chunk is made of whole grains");
    chunk->base = base;
    chunk->bytes = bytes;
    chunk->first = chunk->last = NULL;
    chunk->busy = 0;
    chunk->older = heap->newest;
    chunk->newer = NULL;
    *(chunk->older != NULL ? &chunk->older->newer : &heap->oldest) = chunk;
    heap->newest = chunk;
    heap->bytes += bytes;
    return block_link(heap, chunk, NULL, base, bytes);
}

weir__heap_block *weir__heap_extend_chunk(weir__heap *heap, weir__chunk *chunk,
                                          size_t bytes)
{
    WEIR_CHECK(bytes % WEIR__HEAP_GRAIN == 0, "a chunk is made of whole grains");
    weir__heap_block *block =
        block_link(heap, chunk, chunk->last, chunk->base + chunk->bytes, bytes);
    chunk->bytes += bytes;
    heap->bytes += bytes;
    return block;
}

void weir__heap_remove_chunk(weir__heap *heap, weir__chunk *chunk)
{
    while (chunk->first != NULL) {
        WEIR_CHECK(chunk->first->state == WEIR__HEAP_HELD, "who removes holds all");
        block_unlink(heap, chunk->first);
    }
    *(chunk->older != NULL ? &chunk->older->newer : &heap->oldest) = chunk->newer;
    *(chunk->newer != NULL ? &chunk->newer->older : &heap->newest) = chunk->older;
    heap->bytes -= chunk->bytes;
}

/* ---- looking ---- */

bool weir__heap_fits(const weir__heap_block *first, const weir__heap_block *last,
                     size_t bytes, size_t alignment)
{
    uintptr_t base = align_up(first->base, alignment), end = end_of(last);
    return base >= first->base && base < end && end - base >= bytes;
}

weir__heap_block *weir__heap_best(const weir__heap *heap, uint64_t clock, size_t bytes,
                                  size_t alignment)
{
    weir__heap_block *block = tree_from(heap, (key){ clock, bytes, 0 });
    while (block != NULL && block->mark.clock == clock) {
        if (weir__heap_fits(block, block, bytes, alignment))
            return block;
        block = weir__heap_next_free(heap, block);
    }
    return NULL;
}

weir__heap_block *weir__heap_next_free(const weir__heap *heap,
                                       const weir__heap_block *block)
{
    key k = { 0, 0, 0 };
    if (block != NULL) {
        k = key_of(block);
        k.base++;
    }
    return tree_from(heap, k);
}

bool weir__heap_next_clock(const weir__heap *heap, uint64_t *clock)
{
    const weir__heap_block *block = tree_from(heap, (key){ *clock, 0, 0 });
    if (block != NULL)
        *clock = block->mark.clock;
    return block != NULL;
}

weir__heap_block *weir__heap_find(const weir__heap *heap, const void *ptr)
{
    uintptr_t base = (uintptr_t)ptr;
    if (heap->bucket_count == 0)
        return NULL;
    weir__heap_block *block = *bucket_of(heap, base);
    while (block != NULL && block->base != base)
        block = block->next;
    return block;
}
