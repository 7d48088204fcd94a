/* arena_map.c - see arena_parts.h. */
#include "arena_parts.h"
#include "internal.h"

/* A superblock is smaller than a leaf's stretch of addresses. */
#define LEAVES_MOST 2u

void weir__arena_map_init(weir__arena_map *self)
{
    for (size_t i = 0; i < (size_t)1 << WEIR__ROOT_BITS; i++)
        atomic_init(&self->leaves[i], NULL);
    weir__mutex_init(&self->lock, WEIR__RANK_RESOURCE);
    self->spares = NULL;
    self->spare_count = 0;
    self->promised = 0;
}

void weir__arena_map_close(weir__arena_map *self)
{
    for (size_t i = 0; i < (size_t)1 << WEIR__ROOT_BITS; i++)
        weir__host_free(atomic_load_explicit(&self->leaves[i], memory_order_relaxed));
    for (weir__arena_leaf *leaf = self->spares, *next; leaf != NULL; leaf = next) {
        next = leaf->next;
        weir__host_free(leaf);
    }
    weir__mutex_destroy(&self->lock);
}

static bool promise_locked(weir__arena_map *self) WEIR_REQUIRES(self->lock)
{
    if (self->spare_count < LEAVES_MOST * (self->promised + 1))
        return false;
    self->promised++;
    return true;
}

bool weir__arena_map_promise(weir__arena_map *self)
{
    weir__mutex_lock(&self->lock);
    bool promised = promise_locked(self);
    weir__mutex_unlock(&self->lock);
    while (!promised) {
        weir__arena_leaf *leaf = weir__host_alloc(sizeof *leaf);
        if (leaf == NULL)
            return false;
        weir__mutex_lock(&self->lock);
        leaf->next = self->spares;
        self->spares = leaf;
        self->spare_count++;
        promised = promise_locked(self);
        weir__mutex_unlock(&self->lock);
    }
    return true;
}

void weir__arena_map_forget_promise(weir__arena_map *self)
{
    weir__mutex_lock(&self->lock);
    self->promised--;
    weir__mutex_unlock(&self->lock);
}

/* A spare one takes its place where there is none. */
static void grow_locked(weir__arena_map *self, uint64_t root) WEIR_REQUIRES(self->lock)
{
    if (atomic_load_explicit(&self->leaves[root], memory_order_relaxed) != NULL)
        return;
    weir__arena_leaf *leaf = self->spares;
    WEIR_CHECK(leaf != NULL, "leaves were promised");
    self->spares = leaf->next;
    self->spare_count--;
    for (size_t i = 0; i < (size_t)1 << WEIR__LEAF_BITS; i++)
        atomic_init(&leaf->arena[i], 0);
    atomic_store_explicit(&self->leaves[root], leaf, memory_order_release);
}

/* The regions that a superblock has. */
typedef struct stretch {
    uint64_t first, last;
} stretch;

static stretch stretch_of(const void *ptr, size_t bytes)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    return (stretch){ address >> WEIR__REGION_BITS,
                      (address + (bytes - 1)) >> WEIR__REGION_BITS };
}

/* Relaxed: blocks are handed out after this, and were handed back before. */
static void set_all(weir__arena_map *self, stretch it, uint8_t arena)
{
    for (uint64_t region = it.first; region <= it.last; region++) {
        weir__arena_leaf *leaf = atomic_load_explicit(
            &self->leaves[region >> WEIR__LEAF_BITS], memory_order_acquire);
        uint64_t at = region & (((uint64_t)1 << WEIR__LEAF_BITS) - 1);
        atomic_store_explicit(&leaf->arena[at], arena, memory_order_relaxed);
    }
}

void weir__arena_map_put(weir__arena_map *self, const void *ptr, size_t bytes,
                         uint8_t arena)
{
    stretch it = stretch_of(ptr, bytes);
    WEIR_CHECK(((uintptr_t)ptr | bytes) % WEIR__REGION == 0,
               "superblocks are whole regions");
    WEIR_CHECK(it.last >> (WEIR__ROOT_BITS + WEIR__LEAF_BITS) == 0,
               "pools refuse addresses of 2^48 and above");
    weir__mutex_lock(&self->lock);
    for (uint64_t root = it.first >> WEIR__LEAF_BITS;
         root <= it.last >> WEIR__LEAF_BITS; root++)
        grow_locked(self, root);
    self->promised--;
    weir__mutex_unlock(&self->lock);
    set_all(self, it, arena);
}

void weir__arena_map_drop(weir__arena_map *self, const void *ptr, size_t bytes)
{
    set_all(self, stretch_of(ptr, bytes), 0);
}
