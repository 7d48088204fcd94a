/* pool_own.c - caches of a thread's own stream, the per-thread default stream: one
 * handle, another stream on each thread.
 *
 * Hits are what they are on any stream: the seat is the thread's. But nobody else can
 * record an event there. So what goes from such a cache to the heap or the depot gets
 * its event at once, on the thread, and not when somebody asks for it. And who empties
 * another thread's cache uses that it is a blocking stream: an event on the legacy
 * stream is behind all that it was given. For that it must not have ended: the thread
 * empties the cache itself when it ends, before the driver can do anything about its
 * end, and keeps none from then on. */
#include "pool_seats.h"

#include "internal.h"
#include "pool_internal.h"

/* Of a thread: whether its end is watched, or has begun. */
enum { OWN_UNWATCHED, OWN_WATCHED, OWN_IS_OVER };

/* The thread's own stream is still there. */
static void empty_own(weir__seat *seat)
{
    while (!weir__gate_enter(&seat->gate)) {
        /* Acquire: the pool has finished with it. */
        if (atomic_load_explicit(&seat->is_dead, memory_order_acquire))
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
    thread->own_stream = OWN_IS_OVER;
    if (weir__is_forked() || thread->caches == NULL)
        return;
    for (weir__seat *seat = thread->caches->mine; seat != NULL; seat = seat->next_mine)
        empty_own(seat);
}

static bool is_watched(void)
{
    weir__thread *thread = weir__thread_self();
    if (thread->own_stream == OWN_UNWATCHED && weir__thread_watch_first(own_ends))
        thread->own_stream = OWN_WATCHED;
    return thread->own_stream == OWN_WATCHED;
}

bool weir__pool_clock_for_cache(weir__pool *self, weir_stream stream, uint64_t *clock,
                                const _Atomic uint64_t **counter)
{
    if (stream != WEIR_STREAM_PER_THREAD)
        return weir__order_steady(self->order, stream, clock, counter);
    return is_watched() && weir__order_hold_own(self->order, clock, counter);
}

weir__mark weir__cache_closed_mark(weir__pool *self, const weir__cache *cache)
{
    return cache->own_of == 0 || cache->own_of == weir__thread_self()->number
               ? weir__order_mark_closed(self->order, cache->clock)
               : weir__order_mark_legacy(self->order);
}
