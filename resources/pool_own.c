/* pool_own.c - caches of a thread's own stream, the per-thread default stream: one
 * handle, another stream on each thread.
 *
 * Hits are what they are on any stream: the seat is the thread's. But nobody else can
 * record an event there. So what goes from such a cache to the heap or the depot gets
 * its event at once, on the thread, and not when somebody asks for it. What others take
 * out of it while the thread sleeps is the stream's own as before, and has no event:
 * the thread records one when it comes by, and whoever wants it earlier waits for an
 * event behind all of the device. Where a driver has none of these (before CUDA 12.5),
 * there are no such caches.
 *
 * With the thread its stream ends, and when the driver sees to that nobody is told. So
 * the thread empties the caches itself, before the driver hears of its end, and keeps
 * none from then on: what it registers with the system after the driver has met the
 * stream is called before what the driver has registered. */
#include "pool_seats.h"

#include "internal.h"
#include "pool_internal.h"

/* The thread's own stream is still there. */
static void empty_own(weir__seat *seat)
{
    while (!weir__gate_enter(&seat->gate)) {
        if (weir__seat_is_dead(seat))
            return;
        weir__gate_await(&seat->gate);
    }
    const weir__cache *cache = weir__cache_find(seat, WEIR_STREAM_PER_THREAD);
    if (cache != NULL)
        weir__seat_forget(seat->pool, seat, cache->stream, cache->clock);
    weir__gate_leave(&seat->gate);
}

static void own_ends(void *nothing)
{
    weir__thread *thread = weir__thread_self();
    (void)nothing;
    weir__seat *seat = thread->caches != NULL ? thread->caches->mine : NULL;
    for (; seat != NULL && !weir__is_forked(); seat = seat->next_mine)
        empty_own(seat);
    thread->own_is_over = true;
}

bool weir__pool_watch_own(const weir__pool *self)
{
    weir__thread *thread = weir__thread_self();
    const uint32_t bit = UINT32_C(1) << self->device->slot;
    if (thread->own_is_over || !weir__order_has_own(self->order))
        return false;
    if ((thread->own_watched & bit) == 0 && weir__thread_watch_first(own_ends))
        thread->own_watched |= bit;
    return (thread->own_watched & bit) != 0;
}
