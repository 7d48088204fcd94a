/* order_listen.c - those who keep memory per stream, outside of any lock of the
 * order's: how they hear of a clock before it begins and of a stream's end before it
 * comes, and what they may rest on until then.
 *
 * Clocks that they hear of are added under the lock `listening`: whoever begins to
 * listen hears of each once, be it there or on its way.
 *
 * A clock is `changing` from before the listeners are told until the change has
 * happened, or was refused. As long as it is, nobody finds it steady: what a listener
 * has emptied is not filled anew by a thread that asked too early. Another change of
 * the same clock waits. */
#include "internal.h"
#include "order_internal.h"
#include "stream_order.h"

static weir_status tell_begin(weir__order_listener *listener, weir_stream stream,
                              uint64_t clock)
{
    if (listener->clock_begins == NULL)
        return WEIR_OK;
    return listener->clock_begins(listener, stream, clock);
}

weir_status weir__order_tell_begin(weir__order *order, weir_stream stream,
                                   uint64_t clock)
{
    weir_status status = WEIR_OK;
    weir__order_listener *it = order->listeners;
    for (; status == WEIR_OK && it != NULL; it = it->next)
        status = tell_begin(it, stream, clock);
    return status;
}

typedef struct met {
    uint64_t clock;
    weir_stream stream;
} met;

/* Copies the clocks that listeners hear of; their number. */
static size_t copy_clocks(weir__order *order, met *out, size_t room)
{
    size_t count = 0;
    weir__mutex_lock(&order->lock);
    for (uint32_t i = 0; i < CLOCK_BUCKETS; i++) {
        for (const weir__clock *c = order->by_id[i]; c != NULL; c = c->next_by_id) {
            if (clock_is_transient(c))
                continue;
            if (count < room)
                out[count] = (met){ c->id, c->stream };
            count++;
        }
    }
    weir__mutex_unlock(&order->lock);
    return count;
}

/* Tells a listener of all clocks that there are. They cannot become more meanwhile. */
static weir_status tell_all(weir__order *order, weir__order_listener *listener)
    WEIR_REQUIRES(order->listening)
{
    size_t room = copy_clocks(order, NULL, 0); /* the legacy stream's at least */
    met *all = weir__host_alloc(room * sizeof *all);
    if (all == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for %zu clocks", room);
    size_t count = copy_clocks(order, all, room);
    weir_status status = WEIR_OK;
    for (size_t i = 0; status == WEIR_OK && i < count; i++)
        status = tell_begin(listener, all[i].stream, all[i].clock);
    weir__host_free(all);
    return status;
}

weir_status weir__order_listen(weir__order *order, weir__order_listener *listener)
{
    weir__mutex_lock(&order->listening);
    weir_status status =
        listener->clock_begins != NULL ? tell_all(order, listener) : WEIR_OK;
    if (status == WEIR_OK) {
        listener->next = order->listeners;
        order->listeners = listener;
    }
    weir__mutex_unlock(&order->listening);
    return status;
}

bool weir__order_has_clock(weir__order *order, uint64_t clock)
{
    weir__mutex_lock(&order->lock);
    bool has = weir__clock_find(order, clock) != NULL;
    weir__mutex_unlock(&order->lock);
    return has;
}

void weir__order_unlisten(weir__order *order, weir__order_listener *listener)
{
    weir__mutex_lock(&order->listening);
    weir__order_listener **link = &order->listeners;
    while (*link != NULL && *link != listener)
        link = &(*link)->next;
    WEIR_CHECK(*link != NULL, "it never listened, or does no more");
    *link = listener->next;
    weir__mutex_unlock(&order->listening);
}

void weir__order_tell(weir__order *order, weir_stream stream, uint64_t clock)
{
    weir__mutex_lock(&order->listening); /* for unlisten to wait */
    for (weir__order_listener *it = order->listeners; it != NULL; it = it->next)
        it->stream_changes(it, stream, clock);
    weir__mutex_unlock(&order->listening);
}

void weir__clock_change_begin(weir__order *order, weir__clock *clock)
{
    WEIR_ASSERT(weir__mutex_is_mine(&order->lock), "clocks change under the lock");
    WEIR_CHECK(!clock->changing, "one change at a time");
    atomic_fetch_add(&order->changes, 1);
    clock->changing = true;
    clock->pins++;
}

void weir__clock_change_end(weir__order *order, weir__clock *clock)
{
    WEIR_ASSERT(weir__mutex_is_mine(&order->lock), "clocks change under the lock");
    clock->changing = false;
    clock->pins--;
    weir__cond_broadcast(&order->changed);
}

bool weir__order_steady(weir__order *order, weir_stream stream, uint64_t *clock,
                        const _Atomic uint64_t **counter)
{
    *clock = 0;
    *counter = NULL;
    if (order->eager)
        return false;
    weir__mutex_lock(&order->lock);
    const weir__clock *found = weir__find_stream(order, weir__stream_of(stream));
    bool is_steady = found != NULL && !clock_is_transient(found) && !found->changing &&
                     found->capture == 0;
    if (is_steady) {
        *clock = found->id;
        *counter = &found->counter;
    }
    weir__mutex_unlock(&order->lock);
    return is_steady;
}

bool weir__order_hold_own(weir__order *order, uint64_t *clock,
                          const _Atomic uint64_t **counter)
{
    if (order->eager)
        return false;
    weir__mutex_lock(&order->lock);
    weir__clock *own = weir__find_stream(order, WEIR_STREAM_PER_THREAD);
    const bool holds = own != NULL && own->is_recorded && !own->changing &&
                       own->capture == 0;
    if (holds) {
        own->pins++;
        *clock = own->id;
        *counter = &own->counter;
    }
    weir__mutex_unlock(&order->lock);
    return holds;
}

bool weir__order_has_own(weir__order *order)
{
    uint64_t clock;
    const _Atomic uint64_t *counter;
    if (!weir__has_record_all(order->device) ||
        !weir__order_hold_own(order, &clock, &counter))
        return false;
    weir__order_let_go(order, clock);
    return true;
}

bool weir__order_has_one_stream(weir__order *order)
{
    weir__mutex_lock(&order->lock);
    bool has_one = order->live <= 1;
    weir__mutex_unlock(&order->lock);
    return has_one;
}
