/* order_listen.c - those who keep memory per stream, outside of any lock of the
 * order's: how they hear of a stream's end before it comes, and what they may rest on
 * until then.
 *
 * A clock is `changing` from before the listeners are told until the change has
 * happened, or was refused. As long as it is, nobody finds it steady: what a listener
 * has emptied is not filled anew by a thread that asked too early. Another change of
 * the same clock waits. */
#include "internal.h"
#include "order_internal.h"
#include "stream_order.h"

void weir__order_listen(weir__order *order, weir__order_listener *listener)
{
    weir__mutex_lock(&order->listening);
    listener->next = order->listeners;
    order->listeners = listener;
    weir__mutex_unlock(&order->listening);
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

bool weir__order_has_one_stream(weir__order *order)
{
    weir__mutex_lock(&order->lock);
    bool has_one = order->live <= 1;
    weir__mutex_unlock(&order->lock);
    return has_one;
}
