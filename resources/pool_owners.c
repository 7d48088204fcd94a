/* pool_owners.c - which clocks have an owner in a pool's heap.
 *
 * Giving back allocates nothing, and what is given back needs the owner of its clock.
 * So each clock that a free may name without the device being asked who that is, of a
 * known stream or in a declared capture, has its owner from before it begins until the
 * order has dropped it: it is reserved. For other streams an owner is made when they
 * allocate, and a few are spare for frees on those that never did; memory freed where
 * none is left is set aside.
 *
 * Nobody says when a clock is dropped. When there are twice as many reserved owners as
 * the last look left, all are looked through. */
#include <stddef.h>

#include "internal.h"
#include "pool_internal.h"

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define RESERVED_LEAST 2u
#else
#define RESERVED_LEAST 64u
#endif

/* ---- what is reserved ---- */

static void let_go_of_dropped_locked(weir__pool *self) WEIR_REQUIRES(self->lock)
{
    weir__heap *heap = &self->heap;
    for (uint32_t slot = 0; slot < heap->owner_count; slot++) {
        weir__heap_owner *owner = weir__heap_owner_at(heap, slot);
        if (!owner->is_reserved || weir__order_has_clock(self->order, owner->clock))
            continue;
        owner->is_reserved = false;
        owner->pins--;
        self->reserved_count--;
    }
    self->reserved_look_at = self->reserved_count * 2 + RESERVED_LEAST;
}

weir_status weir__pool_clock_begins(weir__order_listener *listener, weir_stream stream,
                                    uint64_t clock)
{
    weir__pool *self = (weir__pool *)(void *)((char *)listener -
                                              offsetof(weir__pool, listener));
    weir__mutex_lock(&self->lock);
    if (self->reserved_count >= self->reserved_look_at)
        let_go_of_dropped_locked(self);
    weir__heap_owner *owner = NULL;
    if (weir__heap_owners_stock(&self->heap)) /* for it, and the spare ones stay */
        owner = weir__heap_owner_get(&self->heap, clock, stream);
    if (owner != NULL) {
        owner->pins++;
        owner->is_reserved = true;
        self->reserved_count++;
    }
    weir__mutex_unlock(&self->lock);
    if (owner == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "pool: no memory for records of streams' clocks");
    return WEIR_OK;
}

/* ---- who is found ---- */

bool weir__pool_meet_owner_locked(weir__request *request)
{
    weir__pool *self = request->pool;
    weir__heap_owner *owner =
        weir__heap_owner_get(&self->heap, request->clock, request->stream);
    if (owner != NULL && owner->kind == 0)
        owner->kind = weir__order_is_captured(self->order,
                                              (weir__mark){ request->clock, 0 })
                          ? WEIR__POOL_CAPTURE
                          : WEIR__POOL_PLAIN;
    request->owner = owner;
    if (owner != NULL && request->home == WEIR__HEAP_HOMES)
        request->home = weir__heap_home_for(owner);
    return owner != NULL;
}

/* Further caches of a stream are of other threads, and records of what is in them have
 * lines of their own, as far as there are homes. */
void weir__pool_add_cache(weir__heap_owner *owner, weir__cache *cache, uint32_t seat)
{
    bool is_first = owner->pins == (owner->is_reserved ? 1u : 0u);
    cache->owner = owner->slot;
    cache->home = (owner->slot + (is_first ? 0 : 11 * seat)) % WEIR__HEAP_HOMES;
    owner->pins++;
}

weir__mark weir__pool_owned_mark(weir__pool *self, weir__mark mark)
{
    if (weir__heap_can_release(&self->heap, mark.clock))
        return mark;
    WEIR_ASSERT(!weir__order_is_captured(self->order, mark),
                "a capture's clocks are reserved");
    if (!weir__order_may_take(self->order, 0, mark))
        return weir__order_mark_here(self->order, 0);
    weir__pool_note_dropped_locked(self);
    return WEIR__MARK_DONE;
}
