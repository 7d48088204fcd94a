/* emulated_memory.c - the memory of emulated devices.
 *
 * Where the bytes are: emulated_map.h. Untouched memory costs nothing, and whole pages
 * that are given back go back to the system.
 *
 * Memory that is shared with other processes is an arena of its own with one block: a
 * memory file for each, of this process's (then it counts as memory of the device) or
 * of another's. A pool that is shared is one with many. Such an arena is at home in its
 * device's.
 *
 * All arenas are on one list, so that any address can be told: whose it is, whether
 * it is out, or that it is the host's. One lock for the process guards all of it; it
 * is a leaf, held for a few lines. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/emulated_map.h"
#include "device/emulated_range.h"
#include "device/emulated_shared.h"
#include "device/emulated_yard.h"

#define GRANULE   ((size_t)512)
#define PAGE      ((size_t)4096)
#define BYTES_MAX (SIZE_MAX >> 17) /* 128 TiB: what a process can address */

static weir__mutex memory_lock = WEIR__MUTEX_INIT(WEIR__RANK_MEMORY);
static weir__arena *arenas; /* guarded by memory_lock */

void weir__memory_lock(void)
{
    weir__mutex_lock(&memory_lock);
}

void weir__memory_unlock(void)
{
    weir__mutex_unlock(&memory_lock);
}

/* ---- arenas ---- */

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
    arena->home = arena;
    if (!weir__arena_map_new(arena, PAGE)) {
        int why = errno;
        size_t asked = arena->bytes;
        weir__arena_unmap(arena);
        return weir__fail_native(WEIR_DEVICE_ERROR, why,
                                 "the system has no %zu bytes of address space for an "
                                 "emulated device; set memory_bytes lower", asked);
    }
    weir__block *all = weir__block_make((uintptr_t)arena->base, arena->bytes, true);
    if (all == NULL) {
        weir__arena_unmap(arena);
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

/* Under the memory lock, as those that follow. */
static void arena_remove(weir__arena *arena)
{
    weir__arena **link = &arenas;
    while (*link != arena)
        link = &(*link)->next;
    *link = arena->next;
    weir__blocks_clear(&arena->blocks);
    weir__arena_unmap(arena);
}

/* The first object that is at home in `home`; null: none. */
static weir__arena *object_of(const weir__arena *home)
{
    weir__arena *arena = arenas;
    while (arena != NULL && (arena == home || arena->home != home))
        arena = arena->next;
    return arena;
}

static void arena_unref(weir__arena *arena)
{
    WEIR_CHECK(arena->references > 0, "an arena is let go of too often");
    if (--arena->references > 0)
        return;
    for (weir__arena *object; (object = object_of(arena)) != NULL;)
        arena_remove(object);
    arena_remove(arena);
}

void weir__arena_close(weir__arena *home)
{
    weir__mutex_lock(&memory_lock);
    for (weir__arena *arena = arenas; arena != NULL; arena = arena->next) {
        if (arena->home == home)
            weir__blocks_clear(&arena->blocks);
    }
    arena_unref(home);
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
    size_t free_bytes = arena->free_bytes;
    weir__block *block = NULL;
    if (rounded <= free_bytes) /* objects have the rest */
        block = weir__blocks_first_fit(&arena->blocks, rounded);
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

/* ---- objects ---- */

/* Takes `bytes` of the device's memory for an object, which need not lie in one piece;
 * false: it has not so many. *free_bytes: how many it had. */
static bool home_take(weir__arena *home, size_t bytes, size_t *free_bytes)
{
    weir__mutex_lock(&memory_lock);
    *free_bytes = home->free_bytes;
    bool has = bytes <= home->free_bytes;
    if (has)
        home->free_bytes -= bytes;
    weir__mutex_unlock(&memory_lock);
    return has;
}

static void home_give(weir__arena *home, size_t bytes)
{
    weir__mutex_lock(&memory_lock);
    home->free_bytes += bytes;
    weir__mutex_unlock(&memory_lock);
}

/* Maps the file `fd`, which stays the caller's on failure; the block is at `place`. */
static weir_status object_make(weir__arena *home, weir_share_kind kind,
                               const weir__pool_place *place, int fd, weir__arena **out)
{
    size_t bytes = (size_t)place->file_bytes;
    weir__arena *object = weir__host_alloc(sizeof *object);
    weir__block *block = weir__block_make(0, (size_t)place->bytes, false);
    if (object == NULL || block == NULL) {
        weir__host_free(object);
        weir__host_free(block);
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for an object's record");
    }
    *object = (weir__arena){ .bytes = bytes, .fd = fd, .ordinal = home->ordinal,
                             .home = home, .kind = kind,
                             .offset = (size_t)place->offset };
    if (!weir__arena_map(object, WEIR__OBJECT_GRANULE)) {
        int why = errno;
        object->fd = -1;
        weir__arena_unmap(object);
        weir__host_free(block);
        return weir__fail_native(WEIR_DEVICE_ERROR, why,
                                 "the system does not map an object of %zu bytes",
                                 bytes);
    }
    block->ptr = (uintptr_t)object->base + object->offset;
    weir__blocks_insert(&object->blocks, block);
    *out = object;
    return WEIR_OK;
}

void weir__arena_enlist(weir__arena *object)
{
    weir__mutex_lock(&memory_lock);
    object->next = arenas;
    arenas = object;
    weir__mutex_unlock(&memory_lock);
}

/* A memory file that keeps its length whoever has it; below 0: errno says why. */
static int file_make(size_t bytes)
{
    int fd = memfd_create("weir-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)bytes) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static weir_status object_make_new(weir__arena *home, weir_share_kind kind,
                                   size_t bytes, weir__arena **out)
{
    int fd = file_make(bytes);
    if (fd < 0)
        return weir__fail_native(WEIR_DEVICE_ERROR, errno,
                                 "the system has no memory file of %zu bytes", bytes);
    const weir__pool_place all = { .file_bytes = bytes, .bytes = bytes };
    weir_status status = object_make(home, kind, &all, fd, out);
    if (status != WEIR_OK)
        close(fd);
    return status;
}

weir_status weir__object_make(weir__arena *home, weir_share_kind kind, size_t bytes,
                              weir__arena **out)
{
    size_t rounded = bytes, free_bytes;
    if (bytes <= home->bytes) /* else it fails as it is */
        rounded = (bytes + WEIR__OBJECT_GRANULE - 1) / WEIR__OBJECT_GRANULE *
                  WEIR__OBJECT_GRANULE;
    if (!home_take(home, rounded, &free_bytes))
        return fail_full(home, rounded, free_bytes);
    weir_status status = object_make_new(home, kind, rounded, out);
    if (status != WEIR_OK)
        home_give(home, rounded);
    else
        weir__arena_enlist(*out);
    return status;
}

weir_status weir__object_make_pool(weir__arena *home, size_t bytes, weir__arena **out)
{
    size_t most = bytes < home->bytes ? bytes : home->bytes;
    most = (most + WEIR__OBJECT_GRANULE - 1) / WEIR__OBJECT_GRANULE *
           WEIR__OBJECT_GRANULE;
    weir_status status = object_make_new(home, WEIR_SHARE_POOL, most, out);
    if (status != WEIR_OK)
        return status;
    weir__arena *pool = *out;
    weir__block *all = weir__blocks_at_or_below(&pool->blocks, (uintptr_t)pool->base);
    all->is_free = true;
    weir__blocks_refresh(&pool->blocks, all);
    pool->free_bytes = most;
    pool->keeps_pages = home->keeps_pages;
    weir__arena_enlist(pool);
    return WEIR_OK;
}

weir_status weir__object_malloc(weir__arena *pool, size_t bytes, void **out)
{
    size_t free_bytes;
    if (!home_take(pool->home, bytes, &free_bytes))
        return fail_full(pool->home, bytes, free_bytes);
    weir_status status = weir__arena_malloc(pool, bytes, true, out);
    if (status != WEIR_OK)
        home_give(pool->home, bytes);
    return status;
}

void weir__object_free(weir__arena *pool, void *ptr)
{
    size_t bytes;
    if (weir__arena_free(pool, ptr, &bytes) != WEIR_OK)
        WEIR_CHECK(false, "a pool returns what it does not have");
    home_give(pool->home, bytes);
}

weir_status weir__object_import(weir__arena *home, weir_share_kind kind,
                                const weir__pool_place *place, int fd,
                                weir__arena **out)
{
    weir_status status = object_make(home, kind, place, fd, out);
    if (status != WEIR_OK)
        return status;
    (*out)->is_imported = true;
    weir__arena_enlist(*out);
    return WEIR_OK;
}

void weir__object_end(weir__arena *object)
{
    weir__mutex_lock(&memory_lock);
    if (!object->is_imported && !object->is_range && object->kind != WEIR_SHARE_POOL)
        object->home->free_bytes += object->bytes;
    arena_remove(object);
    weir__mutex_unlock(&memory_lock);
}

/* ---- what an address is ---- */

weir__arena *weir__arena_of(uintptr_t ptr, size_t bytes)
{
    for (weir__arena *arena = arenas; arena != NULL; arena = arena->next) {
        uintptr_t base = (uintptr_t)arena->base;
        if (ptr < base + arena->bytes && ptr + bytes > base)
            return arena;
    }
    return NULL;
}

/* The block that is out and has all of the bytes, or null. */
static weir__block *find_out(weir__arena *arena, uintptr_t ptr, size_t bytes)
{
    weir__block *block = weir__blocks_at_or_below(&arena->blocks, ptr);
    const weir__block *last = block;
    while (arena->is_range && last != NULL && !last->is_free && /* side by side */
           last->ptr + last->bytes - ptr < bytes)
        last = weir__blocks_above(&arena->blocks, last->ptr);
    bool has = last != NULL && !last->is_free && ptr - block->ptr <= block->bytes &&
               bytes <= last->ptr + last->bytes - ptr;
    return has ? block : NULL;
}

weir__arena *weir__object_find(const weir__arena *home, const void *ptr, size_t bytes)
{
    uintptr_t address = (uintptr_t)ptr;
    if (address + bytes < address)
        return NULL;
    weir__mutex_lock(&memory_lock);
    weir__arena *arena = weir__arena_of(address, bytes);
    bool has = arena != NULL && arena != home && arena->home == home &&
               !arena->is_range && find_out(arena, address, bytes) != NULL;
    weir__mutex_unlock(&memory_lock);
    return has ? arena : NULL;
}

static bool may_reach(const weir__emulated *device, const weir__arena *arena)
{
    if (arena->home == device->arena)
        return true;
    for (const weir__peer *peer = device->peers; peer != NULL; peer = peer->next) {
        if (peer->arena == arena->home)
            return true;
    }
    return false;
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
    weir__arena *arena = weir__arena_of(address, bytes);
    bool reachable = arena == NULL || may_reach(device, arena);
    const weir__block *block = arena != NULL ? find_out(arena, address, bytes) : NULL;
    bool out_now = arena == NULL || block != NULL;
    bool pooled = block != NULL && arena->home != device->arena && block->is_pooled;
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
    if (pooled)
        return fail_pooled(device, ptr);
    return arena == NULL ? weir__host_judge(address, bytes) : WEIR_OK;
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
