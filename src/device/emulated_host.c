/* emulated_host.c - memory of the host's that an emulated device knows: ordinary,
 * managed, pinned, drawn by a pool, or the caller's own and registered.
 *
 * All of it can be touched where it is. What sets the kinds apart is who may take it
 * back, and that no byte is known twice: not by one device, and not by two. So there is
 * one tree for the process, under a lock of its own, which is a leaf. */
#include <sys/mman.h>

#include "device/emulated_places.h"
#include "device/emulated_yard.h"

#define PAGE      ((size_t)4096)
#define PACKED    ((size_t)512) /* how small pinned memory is aligned */
#define BYTES_MAX (SIZE_MAX >> 17) /* 128 TiB: what a process can address */

/* What of a block was told last to be in some place. */
typedef struct part {
    uintptr_t ptr;
    size_t bytes; /* 0: nothing */
} part;

typedef struct host_block {
    weir__block block; /* first: what the tree holds */
    weir__emulated *device;
    weir__host_kind kind;
    part preferred[WEIR__PLACE_HOST + 1]; /* to stay there */
    part moved[WEIR__PLACE_HOST + 1];
} host_block;

static weir__mutex host_lock = WEIR__MUTEX_INIT(WEIR__RANK_MEMORY);
static weir__blocks host_blocks; /* guarded by host_lock */

static const char *const kind_names[] = {
    [WEIR__HOST_ORDINARY] = "host memory",
    [WEIR__HOST_MANAGED] = "managed memory",
    [WEIR__HOST_PINNED] = "pinned memory",
    [WEIR__HOST_REGISTERED] = "registered memory",
    [WEIR__HOST_POOL] = "memory of a pool",
    [WEIR__HOST_POOL_MANAGED] = "managed memory of a pool",
};

/* ---- the tree ---- */

/* Any block that has a byte of these; null: none. Under the lock. */
static host_block *block_over(uintptr_t ptr, size_t bytes)
{
    weir__block *last = weir__blocks_at_or_below(&host_blocks, ptr + bytes - 1);
    return last != NULL && last->ptr + last->bytes > ptr ? (host_block *)last : NULL;
}

/* Makes the bytes known. On failure they are not. */
static weir_status block_add(weir__emulated *device, weir__host_kind kind, void *ptr,
                             size_t bytes)
{
    host_block *block = weir__host_alloc(sizeof *block);
    if (block == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a block's record");
    *block = (host_block){ .block = { .ptr = (uintptr_t)ptr, .bytes = bytes },
                           .device = device, .kind = kind };
    weir__mutex_lock(&host_lock);
    const host_block *known = block_over((uintptr_t)ptr, bytes);
    weir__host_kind known_kind = known == NULL ? kind : known->kind;
    if (known == NULL)
        weir__blocks_insert(&host_blocks, &block->block);
    weir__mutex_unlock(&host_lock);
    if (known == NULL)
        return WEIR_OK;
    weir__host_free(block);
    return weir__fail_native(WEIR_INVALID_ARGUMENT, WEIR__NATIVE_REGISTERED,
                             "%zu bytes at %p overlap with %s that a device knows",
                             bytes, ptr, kind_names[known_kind]);
}

/* The block of that kind which begins at `ptr`; null: none. */
static host_block *block_find(const weir__emulated *device, weir__host_kind kind,
                              const void *ptr)
{
    weir__mutex_lock(&host_lock);
    host_block *block = block_over((uintptr_t)ptr, 1);
    weir__mutex_unlock(&host_lock);
    bool is_it = block != NULL && block->device == device && block->kind == kind &&
                 block->block.ptr == (uintptr_t)ptr;
    return is_it ? block : NULL;
}

static void block_remove(host_block *block)
{
    void *ptr = (void *)block->block.ptr;
    weir__mutex_lock(&host_lock);
    weir__blocks_remove(&host_blocks, &block->block);
    weir__mutex_unlock(&host_lock);
    if (block->kind != WEIR__HOST_REGISTERED)
        weir__yard_give(ptr);
    weir__host_free(block);
}

static host_block *block_of_device(const weir__emulated *device)
{
    weir__mutex_lock(&host_lock);
    weir__block *block = weir__blocks_above(&host_blocks, 0);
    while (block != NULL && ((host_block *)block)->device != device)
        block = weir__blocks_above(&host_blocks, block->ptr);
    weir__mutex_unlock(&host_lock);
    return (host_block *)block;
}

void weir__host_memory_drop(weir__emulated *device)
{
    for (host_block *block; (block = block_of_device(device)) != NULL;)
        block_remove(block);
}

/* A block is as long as the granules that it has. */
static bool is_inside(const host_block *block, uintptr_t ptr, size_t bytes)
{
    const size_t mask = WEIR__YARD_GRANULE - 1;
    const size_t room = (block->block.bytes + mask) & ~mask;
    return ptr >= block->block.ptr && bytes <= room &&
           ptr - block->block.ptr <= room - bytes;
}

weir_status weir__host_judge(uintptr_t ptr, size_t bytes)
{
    if (bytes == 0)
        return WEIR_OK;
    weir__mutex_lock(&host_lock);
    const host_block *block = block_over(ptr, bytes);
    bool is_made = block != NULL && block->kind != WEIR__HOST_REGISTERED;
    bool is_good = is_made && is_inside(block, ptr, bytes);
    weir__host_kind kind = is_made ? block->kind : WEIR__HOST_ORDINARY;
    weir__mutex_unlock(&host_lock);
    if (is_good || (!is_made && !weir__yard_has(ptr, bytes)))
        return WEIR_OK;
    return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_BAD_ADDRESS,
                             "%zu bytes at %p are not inside one allocation%s%s", bytes,
                             (void *)ptr, is_made ? " of " : ": they were given back",
                             is_made ? kind_names[kind] : "");
}

/* ---- beginning and ending ---- */

weir_status weir__host_memory_make(weir__emulated *device, weir__host_kind kind,
                                   size_t bytes, size_t alignment, void **out)
{
    void *ptr = NULL;
    if (bytes > BYTES_MAX || alignment > BYTES_MAX)
        return weir__fail_native(WEIR_OUT_OF_MEMORY, WEIR__NATIVE_OUT_OF_MEMORY,
                                 "the host has no %zu bytes", bytes);
    weir_status status = weir__yard_take(bytes, alignment, &ptr);
    if (status != WEIR_OK)
        return status;
    status = block_add(device, kind, ptr, bytes);
    if (status != WEIR_OK)
        weir__yard_give(ptr);
    else
        *out = ptr;
    return status;
}

void weir__host_memory_end(weir__emulated *device, weir__host_kind kind, void *ptr)
{
    host_block *block = block_find(device, kind, ptr);
    WEIR_CHECK(block != NULL, "host memory ends that never was");
    block_remove(block);
}

/* `call` is about `kind`: for what it costs. */
static weir_status make_locked(weir__emulated *self, weir__host_kind kind,
                               weir__call call, size_t bytes, size_t alignment,
                               void **out)
{
    weir_status status = weir__host_memory_make(self, kind, bytes, alignment, out);
    if (status == WEIR_OK)
        weir__cost_bytes(self, call, bytes);
    if (status == WEIR_OK && self->ledger != NULL)
        weir__ledger_memory_begin(self->ledger, &self->owner, weir__this_thread(),
                                  (uintptr_t)*out, bytes);
    return status;
}

/* What comes next at these addresses may belong to another device: the ledger must have
 * heard of the end by then. */
static weir_status end_locked(weir__emulated *self, weir__host_kind kind,
                              weir__call call, void *ptr, int32_t native)
{
    host_block *block = block_find(self, kind, ptr);
    if (block == NULL)
        return weir__fail_native(WEIR_INVALID_ARGUMENT, native,
                                 "%p is no %s of emulated device %d", ptr,
                                 kind_names[kind], (int)self->ordinal);
    if (self->ledger != NULL)
        weir__ledger_memory_end(self->ledger, weir__this_thread(), (uintptr_t)ptr);
    weir__cost_bytes(self, call, block->block.bytes);
    block_remove(block);
    return WEIR_OK;
}

weir_status weir__managed_free_locked(weir__emulated *device, void *ptr)
{
    return end_locked(device, WEIR__HOST_MANAGED, WEIR__CALL_free, ptr,
                      WEIR__NATIVE_INVALID_VALUE);
}

/* ---- primitives ---- */

weir_status weir__emulated_host_malloc(void *device, size_t bytes, size_t alignment,
                                       void **out)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_host_malloc);
    if (status == WEIR_OK)
        status = make_locked(self, WEIR__HOST_ORDINARY, WEIR__CALL_host_malloc, bytes,
                             alignment, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir__emulated_host_free(void *device, void *ptr)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_host_free);
    if (status == WEIR_OK)
        status = end_locked(self, WEIR__HOST_ORDINARY, WEIR__CALL_host_free, ptr,
                            WEIR__NATIVE_INVALID_VALUE);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* Advice changes where a page lies, and nothing that a program could see here. */
weir_status weir__emulated_managed_malloc(void *device, size_t bytes,
                                          const weir_managed_options *options,
                                          void **out)
{
    weir__emulated *self = device;
    (void)options;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_managed_malloc);
    if (status == WEIR_OK)
        status = make_locked(self, WEIR__HOST_MANAGED, WEIR__CALL_managed_malloc, bytes,
                             PAGE, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* All memory of the host's is at the same address for every device, and in reach. */
weir_status weir__emulated_pinned_malloc(void *device, size_t bytes, uint32_t flags,
                                         void **out)
{
    weir__emulated *self = device;
    (void)flags;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_pinned_malloc);
    if (status == WEIR_OK)
        status = make_locked(self, WEIR__HOST_PINNED, WEIR__CALL_pinned_malloc, bytes,
                             bytes < WEIR__PINNED_WHOLE ? PACKED : PAGE, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir__emulated_pinned_free(void *device, void *ptr)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_pinned_free);
    if (status == WEIR_OK)
        status = end_locked(self, WEIR__HOST_PINNED, WEIR__CALL_pinned_free, ptr,
                            WEIR__NATIVE_INVALID_VALUE);
    weir__mutex_unlock(&self->lock);
    return status;
}

static weir_status register_locked(weir__emulated *self, void *ptr, size_t bytes)
{
    if ((uintptr_t)ptr % PAGE != 0 || bytes % PAGE != 0 ||
        bytes > UINTPTR_MAX - (uintptr_t)ptr)
        return weir__fail_native(WEIR_INVALID_ARGUMENT, WEIR__NATIVE_INVALID_VALUE,
                                 "%zu bytes at %p are no whole pages", bytes, ptr);
    if (msync(ptr, bytes, MS_ASYNC) != 0) /* which does nothing but tell that */
        return weir__fail_native(WEIR_INVALID_ARGUMENT, WEIR__NATIVE_INVALID_VALUE,
                                 "not all of %zu bytes at %p is memory", bytes, ptr);
    weir_status status = block_add(self, WEIR__HOST_REGISTERED, ptr, bytes);
    if (status == WEIR_OK)
        weir__cost_bytes(self, WEIR__CALL_host_register, bytes);
    if (status == WEIR_OK && self->ledger != NULL)
        weir__ledger_memory_begin(self->ledger, &self->owner, weir__this_thread(),
                                  (uintptr_t)ptr, bytes);
    return status;
}

weir_status weir__emulated_host_register(void *device, void *ptr, size_t bytes,
                                         uint32_t flags)
{
    weir__emulated *self = device;
    (void)flags;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_host_register);
    if (status == WEIR_OK)
        status = register_locked(self, ptr, bytes);
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir__emulated_host_unregister(void *device, void *ptr)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_host_unregister);
    if (status == WEIR_OK)
        status = end_locked(self, WEIR__HOST_REGISTERED, WEIR__CALL_host_unregister,
                            ptr, WEIR__NATIVE_NOT_REGISTERED);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* ---- memory that moves ---- */

/* Under the lock. What no device has made is ordinary memory of the program's. */
static bool is_movable(const host_block *block, const weir__emulated *device)
{
    return block == NULL ||
           (block->device == device && (block->kind == WEIR__HOST_ORDINARY ||
                                        block->kind == WEIR__HOST_MANAGED ||
                                        block->kind == WEIR__HOST_POOL_MANAGED));
}

weir_status weir__host_judge_movable(weir__emulated *device, const void *ptr,
                                     size_t bytes)
{
    void *view;
    weir_status status = weir__memory_view(device, ptr, bytes, &view);
    if (status != WEIR_OK)
        return status;
    weir__mutex_lock(&host_lock);
    bool moves = view == ptr && is_movable(block_over((uintptr_t)ptr, bytes), device);
    weir__mutex_unlock(&host_lock);
    if (moves)
        return WEIR_OK;
    return weir__fail_native(WEIR_INVALID_ARGUMENT, WEIR__NATIVE_INVALID_VALUE,
                             "%zu bytes at %p are neither managed nor ordinary memory",
                             bytes, ptr);
}

/* Those of the block that has these bytes; null: there is none. Under the lock. */
static part *parts_of(const void *ptr, size_t bytes, bool moved)
{
    host_block *block = block_over((uintptr_t)ptr, bytes);
    if (block == NULL)
        return NULL;
    return moved ? block->moved : block->preferred;
}

static void note_place(const void *ptr, size_t bytes, bool moved, weir__place place)
{
    weir__mutex_lock(&host_lock);
    part *parts = parts_of(ptr, bytes, moved);
    for (int i = WEIR__PLACE_DEVICE; parts != NULL && i <= WEIR__PLACE_HOST; i++) {
        bool is_here = parts[i].ptr == (uintptr_t)ptr && parts[i].bytes == bytes;
        if (i == (int)place || is_here || place == WEIR__PLACE_ANY)
            parts[i] = (part){ (uintptr_t)ptr, i == (int)place ? bytes : 0 };
    }
    weir__mutex_unlock(&host_lock);
}

static weir__place place_of(const void *ptr, bool moved)
{
    int place = WEIR__PLACE_HOST;
    weir__mutex_lock(&host_lock);
    const part *parts = parts_of(ptr, 1, moved);
    while (place != WEIR__PLACE_ANY &&
           (parts == NULL || (uintptr_t)ptr - parts[place].ptr >= parts[place].bytes))
        place--;
    weir__mutex_unlock(&host_lock);
    return (weir__place)place;
}

weir__place weir__host_preferred(const void *ptr)
{
    return place_of(ptr, false);
}

weir__place weir__host_moved(const void *ptr)
{
    return place_of(ptr, true);
}

void weir__host_note_moved(const void *ptr, size_t bytes, weir__place place)
{
    note_place(ptr, bytes, true, place);
}

weir_status weir__emulated_prefer(void *device, void *ptr, size_t bytes,
                                  weir__place place)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_prefer);
    if (status == WEIR_OK)
        status = weir__host_judge_movable(self, ptr, bytes);
    if (status == WEIR_OK) {
        note_place(ptr, bytes, false, place);
        weir__cost_bytes(self, WEIR__CALL_prefer, bytes);
    }
    weir__mutex_unlock(&self->lock);
    return status;
}
