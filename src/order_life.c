/* order_life.c - for who holds memory on a stream for long, and lets go of it when the
 * stream may have ended, or its handle be another's. */
#include "device/device.h"
#include "internal.h"
#include "order_internal.h"
#include "stream_order.h"

/* What no number of changes ever is: to be looked up each time. */
#define UNSURE UINT64_MAX
/* Nor is it this, with a thread's number. */
#define OF_THREAD ((uint64_t)1 << 63)

static bool is_of_thread(weir__life life)
{
    return life.changes != UNSURE && (life.changes & OF_THREAD) != 0;
}

static bool is_of_this_thread(weir__life life)
{
    return life.changes == (OF_THREAD | weir__thread_self()->number);
}

/* A clock that is `changing` has been counted as changed before it is different. */
static uint64_t changes_seen(weir__order *order, const weir__clock *clock)
{
    if (clock_is_transient(clock))
        return 0;
    if (clock->changing || clock->capture != 0)
        return UNSURE;
    return atomic_load(&order->changes);
}

/* That of a stream that needs no question to the device; else nothing is written. */
static void find_life(weir__order *order, weir_stream stream, weir__life *out,
                      bool *is_stocked)
{
    weir__mutex_lock(&order->lock);
    weir__clock *clock = weir__find_stream(order, stream);
    if (clock != NULL) {
        *out = (weir__life){ clock->id, changes_seen(order, clock) };
        clock->has_lives = true;
    }
    *is_stocked = weir__clocks_are_stocked(order);
    weir__mutex_unlock(&order->lock);
}

weir_status weir__order_life(weir__order *order, weir_stream stream, weir__life *out)
{
    bool is_stocked;
    *out = (weir__life){ 0, 0 };
    stream = weir__stream_of(stream);
    find_life(order, stream, out, &is_stocked);
    if (!is_stocked || out->clock == 0) {
        weir__life made = { 0, 0 };
        weir_status status = weir__order_clock(order, stream, &made.clock);
        *out = made;
        if (status != WEIR_OK)
            return status;
        find_life(order, stream, out, &is_stocked);
    }
    if (stream == WEIR_STREAM_PER_THREAD)
        out->changes = OF_THREAD | weir__thread_self()->number;
    return WEIR_OK;
}

/* Since it began some stream has changed. */
bool weir__order_lives_still(weir__order *order, weir_stream stream, weir__life life)
{
    if (is_of_thread(life))
        return is_of_this_thread(life);
    weir__mutex_lock(&order->lock);
    const weir__clock *clock = weir__find_stream(order, weir__stream_of(stream));
    bool lives = clock != NULL && clock->id == life.clock && clock->capture == 0;
    weir__mutex_unlock(&order->lock);
    return lives;
}

/* Whether another thread can end it. */
static bool can_end(weir__life life)
{
    return life.changes != 0 && !is_of_thread(life);
}

bool weir__order_hold_life(weir__order *order, weir_stream stream, weir__life life)
{
    if (!can_end(life))
        return life.changes == 0 || is_of_this_thread(life);
    weir__mutex_lock(&order->lock);
    weir__clock *clock = weir__find_stream(order, weir__stream_of(stream));
    bool lives = clock != NULL && clock->id == life.clock && clock->capture == 0 &&
                 !clock->changing;
    if (lives)
        clock->holds++;
    weir__mutex_unlock(&order->lock);
    weir__own_thread.lives_held += lives;
    return lives;
}

void weir__order_let_go_life(weir__order *order, weir__life life)
{
    if (!can_end(life))
        return;
    weir__own_thread.lives_held--;
    weir__mutex_lock(&order->lock);
    weir__clock *clock = weir__clock_find(order, life.clock);
    if (clock != NULL) /* else this thread has ended it itself */
        clock->holds--;
    weir__cond_broadcast(&order->changed);
    weir__mutex_unlock(&order->lock);
}

weir__mark weir__order_life_mark(weir__order *order, weir_stream stream,
                                 weir__life life)
{
    if (is_of_thread(life) && !is_of_this_thread(life))
        return weir__order_mark_here(order, 0); /* nobody else can record on it */
    if (life.changes == 0 || is_of_thread(life))
        return weir__order_free_mark(order, stream, 0);
    weir__mark mark = WEIR__MARK_DONE;
    weir__mutex_lock(&order->lock);
    weir__clock *clock = weir__clock_find(order, life.clock);
    uint64_t adopted = 0; /* while it is captured, of what came there from outside */
    if (clock != NULL && clock->retired)
        mark = (weir__mark){ clock->id, clock->counter };
    else if (clock != NULL && clock->capture != 0)
        adopted = weir__clock_find(order, clock->capture)->adopted;
    else if (clock != NULL)
        mark = (weir__mark){ clock->id, clock_tick(clock) };
    weir__mutex_unlock(&order->lock);
    return adopted != 0 ? weir__order_mark_closed(order, adopted) : mark;
}

weir_status weir__order_life_point(weir__order *order, weir_stream stream,
                                   weir__life life, weir__mark *out)
{
    if (life.changes == 0 || is_of_this_thread(life))
        return weir__order_point(order, stream, out);
    *out = weir__order_life_mark(order, stream, life);
    return WEIR_OK;
}

uint64_t weir__order_legacy(weir__order *order)
{
    weir__mutex_lock(&order->lock);
    uint64_t id = weir__find_stream(order, WEIR_STREAM_LEGACY)->id;
    weir__mutex_unlock(&order->lock);
    return id;
}
