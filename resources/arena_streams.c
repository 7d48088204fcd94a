/* arena_streams.c - see arena_parts.h. */
#include "heap_records.h"
#include "arena_parts.h"
#include "internal.h"

#define MASK (WEIR__STREAM_SLOTS - 1u)

static uint32_t home_of(uintptr_t stream)
{
    return (uint32_t)((uint64_t)stream * WEIR__GOLDEN_RATIO >> 40);
}

bool weir__arena_streams_init(weir__arena_streams *self, weir__order *order,
                              uint32_t arena_count)
{
    self->bound = weir__host_alloc(arena_count * sizeof *self->bound);
    if (self->bound == NULL)
        return false;
    for (uint32_t i = 0; i < arena_count; i++)
        self->bound[i] = 0;
    for (uint32_t i = 0; i < WEIR__STREAM_SLOTS; i++) {
        atomic_init(&self->slots[i].stream, 0);
        atomic_init(&self->slots[i].arena, 0);
    }
    self->order = order;
    self->arena_count = arena_count;
    self->used = 0;
    weir__mutex_init(&self->lock, WEIR__RANK_RESOURCE);
    return true;
}

void weir__arena_streams_close(weir__arena_streams *self)
{
    weir__mutex_destroy(&self->lock);
    weir__host_free(self->bound);
}

/* The slot of a stream, or the free one where it would be. A quarter is free, but who
 * has no lock may find none while slots are moved: null. */
static weir__stream_slot *slot_for(weir__arena_streams *self, uintptr_t stream)
{
    uint32_t at = home_of(stream);
    for (uint32_t i = 0; i < WEIR__STREAM_SLOTS; i++, at++) {
        weir__stream_slot *slot = &self->slots[at & MASK];
        uintptr_t there = atomic_load_explicit(&slot->stream, memory_order_relaxed);
        if (there == stream || there == 0)
            return slot;
    }
    return NULL;
}

static bool is_of(const weir__stream_slot *slot, uintptr_t stream)
{
    return atomic_load_explicit(&slot->stream, memory_order_relaxed) == stream;
}

static uint32_t arena_at(const weir__stream_slot *slot)
{
    return atomic_load_explicit(&slot->arena, memory_order_relaxed);
}

/* The arena first: whoever sees the stream without the lock should see it, too. */
static void slot_set(weir__stream_slot *slot, uintptr_t stream, uint32_t arena)
{
    atomic_store_explicit(&slot->arena, arena, memory_order_relaxed);
    atomic_store_explicit(&slot->stream, stream, memory_order_relaxed);
}

static uint32_t emptiest_locked(const weir__arena_streams *self)
    WEIR_REQUIRES(self->lock)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < self->arena_count; i++)
        if (self->bound[i] < self->bound[best])
            best = i;
    return best;
}

static uint32_t own_threads(const weir__arena_streams *self)
{
    return (uint32_t)(weir__thread_self()->number % self->arena_count);
}

/* A stream without a slot gets one, if it is known and there is one. Asked under the
 * lock, so that the order tells us of its end afterwards. */
static WEIR_COLD uint32_t bind(weir__arena_streams *self, weir_stream stream)
{
    uintptr_t handle = (uintptr_t)stream;
    uint64_t clock;
    const _Atomic uint64_t *counter;
    uint32_t arena = own_threads(self);
    weir__mutex_lock(&self->lock);
    weir__stream_slot *slot = slot_for(self, handle);
    WEIR_CHECK(slot != NULL, "a quarter of the slots is free");
    if (is_of(slot, handle)) {
        arena = arena_at(slot);
    } else if (self->used < WEIR__STREAM_SLOTS_USED &&
               weir__order_steady(self->order, stream, &clock, &counter)) {
        arena = emptiest_locked(self);
        self->bound[arena]++;
        self->used++;
        slot_set(slot, handle, arena);
    }
    weir__mutex_unlock(&self->lock);
    return arena;
}

uint32_t weir__arena_streams_find(weir__arena_streams *self, weir_stream stream)
{
    stream = weir__stream_of(stream);
    if (stream == WEIR_STREAM_PER_THREAD)
        return own_threads(self);
    const weir__stream_slot *slot = slot_for(self, (uintptr_t)stream);
    return WEIR_LIKELY(slot != NULL && is_of(slot, (uintptr_t)stream))
               ? arena_at(slot)
               : bind(self, stream);
}

/* Frees a slot, and moves those behind it that would not be found any more. */
static void slot_clear_locked(weir__arena_streams *self, weir__stream_slot *slot)
    WEIR_REQUIRES(self->lock)
{
    uint32_t gap = (uint32_t)(slot - self->slots);
    for (uint32_t at = gap + 1;; at++) {
        weir__stream_slot *next = &self->slots[at & MASK];
        uintptr_t stream = atomic_load_explicit(&next->stream, memory_order_relaxed);
        if (stream == 0)
            break;
        if (((at - home_of(stream)) & MASK) < ((at - gap) & MASK))
            continue; /* the gap is in front of where its search begins */
        slot_set(&self->slots[gap & MASK], stream, arena_at(next));
        gap = at;
    }
    slot_set(&self->slots[gap & MASK], 0, 0);
    self->used--;
}

bool weir__arena_streams_drop(weir__arena_streams *self, weir_stream stream,
                              uint32_t *arena)
{
    uintptr_t handle = (uintptr_t)weir__stream_of(stream);
    bool was_last = false;
    weir__mutex_lock(&self->lock);
    weir__stream_slot *slot = slot_for(self, handle);
    WEIR_CHECK(slot != NULL, "a quarter of the slots is free");
    if (is_of(slot, handle)) {
        *arena = arena_at(slot);
        was_last = --self->bound[*arena] == 0;
        slot_clear_locked(self, slot);
    }
    weir__mutex_unlock(&self->lock);
    return was_last;
}

void weir__arena_streams_verify(weir__arena_streams *self)
{
    weir__mutex_lock(&self->lock);
    uint32_t used = 0, bound = 0;
    for (uint32_t i = 0; i < WEIR__STREAM_SLOTS; i++) {
        weir__stream_slot *slot = &self->slots[i];
        uintptr_t stream = atomic_load_explicit(&slot->stream, memory_order_relaxed);
        if (stream == 0)
            continue;
        used++;
        WEIR_CHECK(slot_for(self, stream) == slot, "a stream is found");
        WEIR_CHECK(arena_at(slot) < self->arena_count, "there is such an arena");
    }
    for (uint32_t i = 0; i < self->arena_count; i++)
        bound += self->bound[i];
    WEIR_CHECK(used == self->used && bound == used, "streams are counted");
    weir__mutex_unlock(&self->lock);
}
