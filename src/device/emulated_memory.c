/* emulated_memory.c - the memory of emulated devices.
 *
 * The bytes of one device live in a memory file that is mapped once, where work
 * reaches them. Device addresses come from a reserved range of the same length that
 * nobody can touch. Neither is inherited by a fork. Untouched memory costs nothing,
 * and whole pages that are given back go back to the system.
 *
 * All arenas are on one list, so that any address can be told: whose it is, whether
 * it is out, or that it is the host's. One lock for the process guards all of it; it
 * is a leaf, held for a few lines. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/emulated.h"

#define GRANULE   ((size_t)512)
#define PAGE      ((size_t)4096)
#define BYTES_MAX (SIZE_MAX >> 17) /* 128 TiB: what a process can address */

static weir__mutex memory_lock = WEIR__MUTEX_INIT(WEIR__RANK_MEMORY);
static weir__arena *arenas; /* guarded by memory_lock */

/* ---- arenas ---- */

/* False: errno says why. What was mapped is undone by arena_unmap. */
static bool arena_map(weir__arena *arena)
{
    arena->fd = memfd_create("weir-emulated", MFD_CLOEXEC);
    if (arena->fd < 0 || ftruncate(arena->fd, (off_t)arena->bytes) != 0)
        return false;
    void *base = mmap(NULL, arena->bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return false;
    arena->base = base;
    void *view = mmap(NULL, arena->bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, arena->fd, 0);
    if (view == MAP_FAILED)
        return false;
    arena->view = view;
    return madvise(base, arena->bytes, MADV_DONTFORK) == 0 &&
           madvise(view, arena->bytes, MADV_DONTFORK) == 0;
}

static void arena_unmap(weir__arena *arena)
{
    if (arena->view != NULL)
        munmap(arena->view, arena->bytes);
    if (arena->base != NULL)
        munmap(arena->base, arena->bytes);
    if (arena->fd >= 0)
        close(arena->fd);
    weir__host_free(arena);
}

weir_status weir__arena_open(int32_t ordinal, size_t bytes, weir__arena **out)
{
    if (bytes > BYTES_MAX)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "%zu bytes are more than a process can address", bytes);
    weir__arena *arena = weir__host_alloc(sizeof *arena);
    if (arena == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a device");
    *arena = (weir__arena){ .bytes = (bytes + PAGE - 1) / PAGE * PAGE, .fd = -1,
                            .ordinal = ordinal, .references = 1 };
    if (!arena_map(arena)) {
        int why = errno;
        size_t asked = arena->bytes;
        arena_unmap(arena);
        return weir__fail_native(WEIR_DEVICE_ERROR, why,
                                 "the system has no %zu bytes of address space for an "
                                 "emulated device; set memory_bytes lower", asked);
    }
    weir__block *all = weir__block_make((uintptr_t)arena->base, arena->bytes, true);
    if (all == NULL) {
        arena_unmap(arena);
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a device's records");
    }
    weir__blocks_insert(&arena->blocks, all);
    arena->free_bytes = arena->bytes;

    weir__mutex_lock(&memory_lock);
    arena->next = arenas;
    arenas = arena;
    weir__mutex_unlock(&memory_lock);
    *out = arena;
    return WEIR_OK;
}

/* Under the memory lock. */
static void arena_unref(weir__arena *arena)
{
    WEIR_CHECK(arena->references > 0, "an arena is let go of too often");
    if (--arena->references > 0)
        return;
    weir__arena **link = &arenas;
    while (*link != arena)
        link = &(*link)->next;
    *link = arena->next;
    weir__blocks_clear(&arena->blocks);
    arena_unmap(arena);
}

void weir__arena_close(weir__arena *arena)
{
    weir__mutex_lock(&memory_lock);
    weir__blocks_clear(&arena->blocks);
    arena_unref(arena);
    weir__mutex_unlock(&memory_lock);
}

/* ---- blocks ---- */

/* Makes `block`, which is free and has room, `bytes` long and taken; what is left over
 * becomes `rest`. */
static void block_take(weir__arena *arena, weir__block *block, size_t bytes,
                       weir__block *rest)
{
    rest->ptr = block->ptr + bytes;
    rest->bytes = block->bytes - bytes;
    block->bytes = bytes;
    block->is_free = false;
    weir__blocks_refresh(&arena->blocks, block);
    if (rest->bytes > 0)
        weir__blocks_insert(&arena->blocks, rest);
    else
        weir__host_free(rest);
    arena->free_bytes -= bytes;
}

static weir_status fail_full(weir__arena *arena, size_t bytes, size_t free_bytes)
{
    return weir__fail_native(WEIR_OUT_OF_MEMORY, WEIR__NATIVE_OUT_OF_MEMORY,
                             "emulated device %d has no %zu bytes in one piece: %zu of "
                             "%zu are free",
                             (int)arena->ordinal, bytes, free_bytes, arena->bytes);
}

weir_status weir__arena_malloc(weir__arena *arena, size_t bytes, bool is_pooled,
                               void **out)
{
    if (bytes > arena->bytes)
        return fail_full(arena, bytes, weir__arena_free_bytes(arena));
    size_t rounded = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    weir__block *rest = weir__block_make(0, 0, true);
    if (rest == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a block's record");

    weir__mutex_lock(&memory_lock);
    weir__block *block = weir__blocks_first_fit(&arena->blocks, rounded);
    size_t free_bytes = arena->free_bytes;
    if (block != NULL) {
        block_take(arena, block, rounded, rest);
        block->is_pooled = is_pooled;
    }
    weir__mutex_unlock(&memory_lock);

    if (block == NULL) {
        weir__host_free(rest);
        return fail_full(arena, bytes, free_bytes);
    }
    *out = arena->base + (block->ptr - (uintptr_t)arena->base);
    return WEIR_OK;
}

/* Gives the pages back that hold nothing now but `freed`, or what is free beside it
 * in `whole`. */
static void pages_give_back(weir__arena *arena, weir__block freed,
                            const weir__block *whole)
{
    uintptr_t base = (uintptr_t)arena->base;
    size_t from = (freed.ptr - base) / PAGE * PAGE;
    if (from < whole->ptr - base)
        from += PAGE;
    size_t to = (freed.ptr + freed.bytes - base + PAGE - 1) / PAGE * PAGE;
    if (to > whole->ptr + whole->bytes - base)
        to -= PAGE;
    if (!arena->keeps_pages && from < to)
        (void)fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)from, (off_t)(to - from));
}

/* Two neighbours, both free, become the first of them. */
static void block_merge(weir__arena *arena, weir__block *first, weir__block *second)
{
    weir__blocks_remove(&arena->blocks, second);
    first->bytes += second->bytes;
    weir__blocks_refresh(&arena->blocks, first);
    weir__host_free(second);
}

static void block_give_back(weir__arena *arena, weir__block *block)
{
    weir__block freed = *block;
    arena->free_bytes += block->bytes;
    block->is_free = true;
    weir__blocks_refresh(&arena->blocks, block);

    weir__block *above = weir__blocks_above(&arena->blocks, block->ptr);
    if (above != NULL && above->is_free)
        block_merge(arena, block, above);
    weir__block *below = weir__blocks_at_or_below(&arena->blocks, block->ptr - 1);
    if (below != NULL && below->is_free) {
        block_merge(arena, below, block);
        block = below;
    }
    pages_give_back(arena, freed, block);
}

weir_status weir__arena_free(weir__arena *arena, void *ptr, size_t *bytes)
{
    weir__mutex_lock(&memory_lock);
    weir__block *block = weir__blocks_at_or_below(&arena->blocks, (uintptr_t)ptr);
    bool found = block != NULL && block->ptr == (uintptr_t)ptr && !block->is_free;
    *bytes = found ? block->bytes : 0;
    if (found)
        block_give_back(arena, block);
    weir__mutex_unlock(&memory_lock);
    if (!found)
        return weir__fail_native(WEIR_INVALID_ARGUMENT, 1,
                                 "%p is no allocation of emulated device %d", ptr,
                                 (int)arena->ordinal);
    return WEIR_OK;
}

size_t weir__arena_free_bytes(weir__arena *arena)
{
    weir__mutex_lock(&memory_lock);
    size_t free_bytes = arena->free_bytes;
    weir__mutex_unlock(&memory_lock);
    return free_bytes;
}

/* ---- what an address is ---- */

/* The arena that has any of the bytes; null: they are the host's. */
static weir__arena *arena_of(uintptr_t ptr, size_t bytes)
{
    for (weir__arena *arena = arenas; arena != NULL; arena = arena->next) {
        uintptr_t base = (uintptr_t)arena->base;
        if (ptr < base + arena->bytes && ptr + bytes > base)
            return arena;
    }
    return NULL;
}

static bool may_reach(const weir__emulated *device, const weir__arena *arena)
{
    if (arena == device->arena)
        return true;
    for (const weir__peer *peer = device->peers; peer != NULL; peer = peer->next) {
        if (peer->arena == arena)
            return true;
    }
    return false;
}

/* The block that is out and has all of the bytes, or null. */
static weir__block *find_out(weir__arena *arena, uintptr_t ptr, size_t bytes)
{
    weir__block *block = weir__blocks_at_or_below(&arena->blocks, ptr);
    bool has = block != NULL && !block->is_free && ptr - block->ptr <= block->bytes &&
               bytes <= block->bytes - (ptr - block->ptr);
    return has ? block : NULL;
}

static weir_status fail_pooled(const weir__emulated *device, const void *ptr)
{
    return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_BAD_ADDRESS,
                             "%p is of another device's pool, which device %d cannot "
                             "reach: enabling a peer does not do for that", ptr,
                             (int)device->ordinal);
}

weir_status weir__memory_view(weir__emulated *device, const void *ptr, size_t bytes,
                              void **out)
{
    uintptr_t address = (uintptr_t)ptr;
    if (ptr == NULL || address + bytes < address)
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_BAD_ADDRESS,
                                 "%zu bytes at %p are no memory", bytes, ptr);

    weir__mutex_lock(&memory_lock);
    weir__arena *arena = arena_of(address, bytes);
    bool reachable = arena == NULL || may_reach(device, arena);
    const weir__block *block = arena != NULL ? find_out(arena, address, bytes) : NULL;
    bool out_now = arena == NULL || block != NULL;
    bool pooled = block != NULL && arena != device->arena && block->is_pooled;
    int ordinal = arena == NULL ? 0 : (int)arena->ordinal;
    *out = (void *)address;
    if (arena != NULL && out_now) /* else it may begin in front of the arena */
        *out = arena->view + (address - (uintptr_t)arena->base);
    weir__mutex_unlock(&memory_lock);

    if (!reachable)
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_BAD_ADDRESS,
                                 "%p is memory of emulated device %d, which device %d "
                                 "cannot reach before weir_device_enable_peer",
                                 ptr, ordinal, (int)device->ordinal);
    if (!out_now)
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_BAD_ADDRESS,
                                 "%zu bytes at %p are not inside one allocation of "
                                 "emulated device %d", bytes, ptr, ordinal);
    return pooled ? fail_pooled(device, ptr) : WEIR_OK;
}

weir_status weir__memory_enable_peer(weir__emulated *device, weir__arena *arena)
{
    weir__peer *peer = weir__host_alloc(sizeof *peer);
    if (peer == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a peer's record");
    weir__mutex_lock(&memory_lock);
    if (may_reach(device, arena)) {
        weir__host_free(peer);
    } else {
        *peer = (weir__peer){ .arena = arena, .next = device->peers };
        arena->references++;
        device->peers = peer;
    }
    weir__mutex_unlock(&memory_lock);
    return WEIR_OK;
}

void weir__memory_drop_peers(weir__emulated *device)
{
    weir__mutex_lock(&memory_lock);
    while (device->peers != NULL) {
        weir__peer *peer = device->peers;
        device->peers = peer->next;
        arena_unref(peer->arena);
        weir__host_free(peer);
    }
    weir__mutex_unlock(&memory_lock);
}

/* ---- primitives ---- */

weir_status weir__emulated_malloc(void *device, size_t bytes, void **out)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_malloc);
    if (status == WEIR_OK)
        status = weir__arena_malloc(self->arena, bytes, false, out);
    if (status == WEIR_OK)
        weir__cost_bytes(self, WEIR__CALL_malloc, bytes);
    if (status == WEIR_OK && self->ledger != NULL)
        weir__ledger_memory_begin(self->ledger, &self->owner, weir__this_thread(),
                                  (uintptr_t)*out, bytes);
    weir__mutex_unlock(&self->lock);
    return status;
}

static weir_status free_locked(weir__emulated *self, void *ptr)
{
    if ((uintptr_t)ptr - (uintptr_t)self->arena->base >= self->arena->bytes)
        return weir__managed_free_locked(self, ptr);
    size_t bytes;
    weir_status status = weir__arena_free(self->arena, ptr, &bytes);
    weir__cost_bytes(self, WEIR__CALL_free, bytes);
    if (status == WEIR_OK && self->ledger != NULL)
        weir__ledger_memory_end(self->ledger, weir__this_thread(), (uintptr_t)ptr);
    return status;
}

weir_status weir__emulated_free(void *device, void *ptr)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_free);
    if (status == WEIR_OK)
        status = free_locked(self, ptr);
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir__emulated_memory_info(void *device, size_t *free_bytes,
                                       size_t *total_bytes)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_memory_info);
    if (status == WEIR_OK) {
        *free_bytes = weir__arena_free_bytes(self->arena);
        *total_bytes = self->arena->bytes;
    }
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir__emulated_enable_peer(void *device, void *peer)
{
    weir__emulated *self = device;
    const weir__emulated *other = peer;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_enable_peer);
    if (status == WEIR_OK)
        status = weir__memory_enable_peer(self, other->arena);
    weir__mutex_unlock(&self->lock);
    return status;
}
