/* emulated_range.c - addresses of an emulated device that memory is mapped to piece by
 * piece.
 *
 * A range is an arena at home in its device's (emulated_memory.c), with a memory file
 * as long as it is. Its taken blocks are what is mapped, each a piece that goes back as
 * a whole, and these count as the device's memory; its free ones are addresses only,
 * and what touches them is refused like any bad address. A piece that is mapped begins
 * a life of its bytes in the ledger, and unmapping ends it: so that work which still
 * uses it is found, as after free. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/emulated_map.h"
#include "device/emulated_range.h"
#include "device/emulated_shared.h"

#define GRANULE   WEIR__RANGE_GRANULE
#define BYTES_MAX (SIZE_MAX >> 17) /* 128 TiB: what a process can address */

/* ---- making and ending ---- */

static weir_status range_make(weir__arena *home, size_t bytes, weir__arena **out)
{
    weir__arena *range = weir__host_alloc(sizeof *range);
    weir__block *all = weir__block_make(0, bytes, true);
    if (range == NULL || all == NULL) {
        weir__host_free(range);
        weir__host_free(all);
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a range's record");
    }
    *range = (weir__arena){ .bytes = bytes, .fd = -1, .ordinal = home->ordinal,
                            .keeps_pages = home->keeps_pages, .home = home,
                            .is_range = true };
    bool fits = bytes <= BYTES_MAX;
    if (!fits || !weir__arena_map_new(range, GRANULE)) {
        int why = fits ? errno : ENOMEM;
        weir__host_free(all);
        weir__arena_unmap(range);
        return weir__fail_native(WEIR_OUT_OF_MEMORY, why,
                                 "the system has no %zu bytes of address space for a "
                                 "range", bytes);
    }
    all->ptr = (uintptr_t)range->base;
    weir__blocks_insert(&range->blocks, all);
    *out = range;
    return WEIR_OK;
}

/* ---- pieces: under the memory lock ---- */

/* The block at `ptr`, in a range of the device's, if it is free or not as asked and has
 * all of the bytes; null: none. */
static weir__block *block_at(const weir__emulated *self, weir__arena **range,
                             const void *ptr, size_t bytes, bool is_free)
{
    uintptr_t address = (uintptr_t)ptr;
    *range = weir__arena_of(address, 1);
    if (*range == NULL || !(*range)->is_range || (*range)->home != self->arena)
        return NULL;
    weir__block *block = weir__blocks_at_or_below(&(*range)->blocks, address);
    bool has = block != NULL && block->is_free == is_free &&
               bytes <= block->bytes && address - block->ptr <= block->bytes - bytes;
    return has ? block : NULL;
}

/* Cuts `block` at `bytes` bytes; the rest becomes `rest`. */
static void block_cut(weir__arena *range, weir__block *block, size_t bytes,
                      weir__block *rest)
{
    rest->ptr = block->ptr + bytes;
    rest->bytes = block->bytes - bytes;
    rest->is_free = block->is_free;
    block->bytes = bytes;
    weir__blocks_refresh(&range->blocks, block);
    weir__blocks_insert(&range->blocks, rest);
}

static void block_join(weir__arena *range, weir__block *first, weir__block *second)
{
    weir__blocks_remove(&range->blocks, second);
    first->bytes += second->bytes;
    weir__blocks_refresh(&range->blocks, first);
    weir__host_free(second);
}

/* Uses up of `spares` what it needs. */
static void piece_take(weir__arena *range, weir__block *block, uintptr_t address,
                       size_t bytes, weir__block *spares[2])
{
    if (block->ptr < address) {
        block_cut(range, block, address - block->ptr, spares[0]);
        block = spares[0];
        spares[0] = NULL;
    }
    if (block->bytes > bytes) {
        block_cut(range, block, bytes, spares[1]);
        spares[1] = NULL;
    }
    block->is_free = false;
    weir__blocks_refresh(&range->blocks, block);
    range->home->free_bytes -= bytes;
}

static void piece_give(weir__arena *range, weir__block *block)
{
    size_t from = block->ptr - (uintptr_t)range->base;
    if (!range->keeps_pages)
        (void)fallocate(range->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)from, (off_t)block->bytes);
    range->home->free_bytes += block->bytes;
    block->is_free = true;
    weir__blocks_refresh(&range->blocks, block);
    weir__block *above = weir__blocks_above(&range->blocks, block->ptr);
    if (above != NULL && above->is_free)
        block_join(range, block, above);
    weir__block *below = weir__blocks_at_or_below(&range->blocks, block->ptr - 1);
    if (below != NULL && below->is_free)
        block_join(range, below, block);
}

/* ---- the primitives, under the device's lock ---- */

static weir_status fail_address(const weir__emulated *self, const void *ptr,
                                size_t bytes, const char *what)
{
    return weir__fail_native(WEIR_INVALID_ARGUMENT, WEIR__NATIVE_INVALID_VALUE,
                             "%zu bytes at %p are no %s of emulated device %d", bytes,
                             ptr, what, (int)self->ordinal);
}

static bool is_whole(uintptr_t value)
{
    return value % GRANULE == 0;
}

static weir_status reserve_locked(weir__emulated *self, size_t bytes, void **out)
{
    weir__arena *range;
    if (!is_whole(bytes))
        return fail_address(self, NULL, bytes, "whole granules");
    weir_status status = range_make(self->arena, bytes, &range);
    if (status != WEIR_OK)
        return status;
    weir__arena_enlist(range);
    *out = range->base;
    return WEIR_OK;
}

weir_status weir__emulated_range_reserve(void *device, size_t bytes, void **out)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_range_reserve);
    if (status == WEIR_OK)
        status = reserve_locked(self, bytes, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

static weir_status release_locked(weir__emulated *self, void *base, size_t bytes)
{
    weir__arena *range;
    weir__memory_lock();
    const weir__block *all = block_at(self, &range, base, bytes, true);
    bool is_it = all != NULL && range->base == base && range->bytes == bytes;
    weir__memory_unlock();
    if (!is_it)
        return fail_address(self, base, bytes, "range without anything mapped");
    weir__object_end(range);
    return WEIR_OK;
}

weir_status weir__emulated_range_release(void *device, void *base, size_t bytes)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_range_release);
    if (status == WEIR_OK)
        status = release_locked(self, base, bytes);
    weir__mutex_unlock(&self->lock);
    return status;
}

static weir_status map_with(weir__emulated *self, void *ptr, size_t bytes,
                            weir__block *spares[2])
{
    weir__arena *range;
    weir__memory_lock();
    weir__block *block = block_at(self, &range, ptr, bytes, true);
    size_t free_bytes = self->arena->free_bytes;
    if (block != NULL && bytes <= free_bytes)
        piece_take(range, block, (uintptr_t)ptr, bytes, spares);
    weir__memory_unlock();
    if (block == NULL)
        return fail_address(self, ptr, bytes, "unmapped addresses");
    if (bytes > free_bytes)
        return weir__fail_native(WEIR_OUT_OF_MEMORY, WEIR__NATIVE_OUT_OF_MEMORY,
                                 "emulated device %d has no %zu bytes to map: %zu are "
                                 "free", (int)self->ordinal, bytes, free_bytes);
    weir__cost_bytes(self, WEIR__CALL_range_map, bytes);
    if (self->ledger != NULL)
        weir__ledger_memory_begin(self->ledger, &self->owner, weir__this_thread(),
                                  (uintptr_t)ptr, bytes);
    return WEIR_OK;
}

static weir_status map_locked(weir__emulated *self, void *ptr, size_t bytes)
{
    if (!is_whole((uintptr_t)ptr) || !is_whole(bytes))
        return fail_address(self, ptr, bytes, "whole granules");
    weir__block *spares[2] = { weir__block_make(0, 0, true),
                               weir__block_make(0, 0, true) };
    weir_status status =
        spares[0] != NULL && spares[1] != NULL
            ? map_with(self, ptr, bytes, spares)
            : weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a mapping's record");
    weir__host_free(spares[0]);
    weir__host_free(spares[1]);
    return status;
}

weir_status weir__emulated_range_map(void *device, void *ptr, size_t bytes)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_range_map);
    if (status == WEIR_OK)
        status = map_locked(self, ptr, bytes);
    weir__mutex_unlock(&self->lock);
    return status;
}

static weir_status unmap_locked(weir__emulated *self, void *ptr, size_t bytes)
{
    weir__arena *range;
    weir__memory_lock();
    weir__block *block = block_at(self, &range, ptr, bytes, false);
    bool is_it = block != NULL && block->ptr == (uintptr_t)ptr && block->bytes == bytes;
    if (is_it)
        piece_give(range, block);
    weir__memory_unlock();
    if (!is_it)
        return fail_address(self, ptr, bytes, "piece that was mapped to a range");
    weir__cost_bytes(self, WEIR__CALL_range_unmap, bytes);
    if (self->ledger != NULL)
        weir__ledger_memory_end(self->ledger, weir__this_thread(), (uintptr_t)ptr);
    return WEIR_OK;
}

weir_status weir__emulated_range_unmap(void *device, void *ptr, size_t bytes)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_range_unmap);
    if (status == WEIR_OK)
        status = unmap_locked(self, ptr, bytes);
    weir__mutex_unlock(&self->lock);
    return status;
}
