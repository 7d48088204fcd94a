/* emulated_malloc.c - the primitives on an emulated device's ordinary memory, which
 * emulated_memory.c has. */
#include "device/emulated.h"

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
