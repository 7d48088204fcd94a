/* order_known.c - what is known of marks: no device call, under the lock. */
#include "internal.h"
#include "order_internal.h"
#include "stream_order.h"

bool weir__order_has(const weir__order *order, weir__mark mark)
{
    return mark.clock == 0 || mark.clock == WEIR__CLOCK_ASIDE ||
           mark.clock >> CLOCK_ID_BITS == order->legacy->id >> CLOCK_ID_BITS;
}

weir__clock *weir__mark_resolve(weir__order *order, weir__mark *mark)
{
    weir__clock *clock = weir__clock_find(order, mark->clock);
    if (clock != NULL && clock->released) {
        *mark = clock->released_at;
        clock = weir__clock_find(order, mark->clock);
    }
    return clock;
}

bool weir__may_take(weir__order *order, weir__clock *t, weir__mark mark)
{
    if (mark.clock == 0) {
        weir__note_learn(order->device, 0);
        return true;
    }
    if (t != NULL && mark.clock == t->id)
        return true;
    weir__clock *s = weir__mark_resolve(order, &mark);
    if (s == NULL) {
        weir__note_learn(order->device, 0);
        return true;
    }
    if (clock_is_captured(s))
        return false;
    if (t != NULL && t->id == s->id)
        return true;
    if (mark.number <= s->done) {
        weir__note_learn(order->device, s->id);
        return true;
    }
    if (t == NULL || clock_is_captured(t))
        return false;
    return weir__behind_of(t->behind, s->id) >= mark.number;
}

/* See may_take_to in the header. Of a capture that is not released nothing is done, and
 * nobody is behind it. */
static uint64_t may_take_to(weir__order *order, const weir__clock *t, weir__mark mark)
{
    if (mark.clock == 0 || (t != NULL && t->id == mark.clock))
        return UINT64_MAX;
    const uint64_t asked = mark.clock;
    const weir__clock *s = weir__mark_resolve(order, &mark);
    if (s == NULL || (t != NULL && t->id == s->id))
        return UINT64_MAX;
    uint64_t most = s->done;
    if (t != NULL && !clock_is_captured(t)) {
        const uint64_t behind = weir__behind_of(t->behind, s->id);
        most = most > behind ? most : behind;
    }
    if (asked != s->id) /* of a capture that was released: all or nothing */
        most = mark.number <= most ? UINT64_MAX : 0;
    return most;
}

bool weir__order_may_take(weir__order *order, uint64_t t, weir__mark mark)
{
    weir__mutex_lock(&order->lock);
    weir__clock *taker = weir__clock_find(order, t);
    bool may = weir__may_take(order, taker, mark);
    WEIR_ASSERT(may == (mark.number <= may_take_to(order, taker, mark)),
                "what may be taken is known by the number as well");
    weir__mutex_unlock(&order->lock);
    return may;
}

void weir__order_may_take_to(weir__order *order, uint64_t t, weir__mark *marks,
                             size_t count)
{
    weir__mutex_lock(&order->lock);
    const weir__clock *taker = weir__clock_find(order, t);
    for (size_t i = 0; i < count; i++)
        marks[i].number = may_take_to(order, taker, marks[i]);
    weir__mutex_unlock(&order->lock);
}

bool weir__order_is_captured(weir__order *order, weir__mark mark)
{
    weir__mutex_lock(&order->lock);
    bool captured = clock_is_captured(weir__clock_find(order, mark.clock));
    weir__mutex_unlock(&order->lock);
    return captured;
}

bool weir__clock_can_cover(weir__order *order, weir__clock *s, uint64_t number)
{
    if (weir__cover_for(s, number) != NULL || s->retiring)
        return true;
    if (s->kind == WEIR__CLOCK_PER_THREAD) /* its thread can; others behind all */
        return weir__has_record_all(order->device);
    return !s->retired && !clock_is_transient(s) && s->kind != WEIR__CLOCK_ALL;
}

bool weir__order_can_wait(weir__order *order, uint64_t t, weir__mark mark)
{
    weir__mutex_lock(&order->lock);
    weir__clock *taker = weir__clock_find(order, t);
    bool can = weir__may_take(order, taker, mark);
    if (!can && taker != NULL && !clock_is_captured(taker)) {
        weir__clock *s = weir__mark_resolve(order, &mark);
        can = s != NULL && !clock_is_captured(s) &&
              weir__clock_can_cover(order, s, mark.number);
    }
    weir__mutex_unlock(&order->lock);
    return can;
}
