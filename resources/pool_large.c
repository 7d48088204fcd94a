/* pool_large.c - blocks that are in no stack, for what is large has to coalesce: under
 * one lock straight out of the heap, and straight back. */
#include "pool_hit.h"

#include "internal.h"
#include "resource_parts.h"

weir_status weir__pool_allocate_large(weir__pool *self, weir_stream stream,
                                      size_t bytes, size_t alignment, void **out,
                                      weir__cache *cache)
{
    weir__seat *seat = weir__own_thread.seat;
    weir__errand after = weir__errand_begin(seat);
    weir__heap_taken taken = { NULL, 0, 0 };
    void *ptr = NULL;
    const size_t size = (bytes + (WEIR__HEAP_GRAIN - 1)) & ~(WEIR__HEAP_GRAIN - 1);
    cache->dry++;

    weir__mutex_lock(&self->lock);
    if (WEIR_LIKELY(weir__heap_promise(&self->heap))) {
        weir__cache_settle_spilt_locked(self, cache);
        taken = weir__cache_take_fit_locked(self, cache, size, bytes, alignment);
        weir__heap_forget_promise(&self->heap);
    }
    if (WEIR_LIKELY(taken.block != NULL))
        ptr = (void *)weir__heap_base(taken.block);
    after.lay_by = self->wants_spare_seat;
    weir__mutex_unlock(&self->lock);
    weir__cache_close_sometimes(self, cache);

    const bool done = ptr != NULL;
    if (WEIR_LIKELY(done)) {
        taken.tag = ~taken.tag;
        weir__recent_set(seat, ptr, taken, alignment, 0);
        weir__tally_out(&seat->tally, bytes);
        if (WEIR_UNLIKELY(self->listens))
            weir__pool_learn_dropped(self);
    }
    weir__errand_run(self, seat, &after);
    weir__pool_tell_lost(self);
    *out = ptr;
    return WEIR_LIKELY(done) ? WEIR_OK
                             : weir__pool_allocate_slowly(self, stream, bytes,
                                                          alignment, out);
}

/* Where it was when it went out, else by its address. */
static inline weir__found find_out(const weir__pool *self, weir__seat *seat,
                                   const void *ptr, size_t bytes, size_t alignment)
{
    const weir__recent *recent = weir__recent_of(seat, ptr);
    if (WEIR_LIKELY(recent->ptr == ptr &&
                    weir__heap_is_still(recent->block, ptr, ~recent->tag)))
        return (weir__found){ recent->block, recent->id, ~recent->tag };
    if (!is_power_of_two(alignment))
        return (weir__found){ 0 };
    return weir__pool_look_up_out(self, ptr, bytes, alignment);
}

/* Whether a block is out as it was found, and as so much was asked for. Another thread
 * may have given it back since it was looked at. */
static inline bool is_out_locked(const weir__found *it, const void *ptr, size_t bytes,
                                 size_t alignment)
{
    return (it->tag & WEIR__TAG_STATE_MASK) == WEIR__HEAP_OUT &&
           weir__heap_is_still(it->block, ptr, it->tag) &&
           weir__heap_asked_bytes(it->block, it->tag) == bytes &&
           weir__heap_asked_alignment(it->tag) == alignment;
}

bool weir__pool_deallocate_large(weir__pool *self, void *ptr, size_t bytes,
                                 size_t alignment, weir__cache *cache)
{
    weir__seat *seat = weir__own_thread.seat;
    const weir__found it = find_out(self, seat, ptr, bytes, alignment);
    bool is_out = false;
    if (WEIR_LIKELY(it.block != NULL)) {
        weir__mutex_lock(&self->lock);
        is_out = is_out_locked(&it, ptr, bytes, alignment);
        if (WEIR_LIKELY(is_out)) {
            uint64_t number = weir__cache_mark_locked(self, cache, 1);
            weir__heap_set_tag(it.block, WEIR__HEAP_CACHED);
            (void)weir__heap_release_to(&self->heap, it.id, it.block,
                                        weir__heap_owner_at(&self->heap, cache->owner),
                                        number);
            self->releases++;
        }
        weir__mutex_unlock(&self->lock);
    }
    if (WEIR_LIKELY(is_out)) {
        cache->dry = 0;
        weir__tally_back(&seat->tally, bytes);
        weir__cache_close_sometimes(self, cache);
    }
    weir__gate_leave(&seat->gate);
    return is_out;
}
