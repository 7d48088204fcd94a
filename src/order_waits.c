/* order_waits.c - waits of the host for all of a stream or of the device; and, without
 * a wait, the point behind all of the device.
 *
 * What such a wait or point covers is sampled before it begins. That what is set aside
 * needs one which begins later is the same rule: its clock ticks at the beginning of
 * each, and a mark on it names the next tick. */
#include "internal.h"
#include "order_internal.h"
#include "stream_order.h"

/* ---- one stream ---- */

weir_status weir__order_may_sync(weir__order *order, weir_stream stream)
{
    if (weir__order_stream_is_captured(order, stream))
        return weir__fail(WEIR_CAPTURING, "the stream is being captured");
    return weir__refuse_capturing(order, weir__stream_of(stream));
}

weir_status weir__order_stream_sync(weir__order *order, weir_stream stream)
{
    stream = weir__stream_of(stream);
    weir__mutex_lock(&order->lock);
    weir__clock *clock = weir__find_stream(order, stream);
    weir__mark before = { 0, 0 };
    if (clock != NULL)
        before = (weir__mark){ clock->id, clock_all_freed(clock) };
    weir__mutex_unlock(&order->lock);

    weir_status status = weir__order_may_sync(order, stream);
    if (status == WEIR_OK)
        status = weir__stream_sync(order->device, stream);
    if (status != WEIR_OK)
        return status;

    weir__mutex_lock(&order->lock);
    weir__publish_done(order, before.clock, before.number, NULL);
    weir__mutex_unlock(&order->lock);
    return WEIR_OK;
}

/* ---- the whole device ---- */

/* Everything marked so far, by clock: `capacity` of them at most. */
static size_t sample_all(weir__order *order, weir__mark *marks, size_t capacity)
{
    size_t count = 0;
    for (uint32_t i = 0; i < CLOCK_BUCKETS; i++) {
        for (weir__clock *c = order->by_id[i]; c != NULL; c = c->next_by_id) {
            if (c->kind != WEIR__CLOCK_CAPTURE && count < capacity)
                marks[count++] = (weir__mark){ c->id, clock_all_freed(c) };
        }
    }
    return count;
}

/* Whether the stream of `clock` is there, and this thread can name it. */
static bool can_name(const weir__clock *clock)
{
    if (clock->retired || clock->kind == WEIR__CLOCK_CAPTURE)
        return false;
    if (clock->kind == WEIR__CLOCK_PER_THREAD)
        return clock->key == weir__thread_self()->number;
    return clock->kind != WEIR__CLOCK_UNKNOWN || clock->capture != 0;
}

/* Lets go of `clock` (null: none yet) and pins the next one that can be named, for its
 * stream to stay; null: there is none. `bucket` is where it stands. */
static weir__clock *pin_next(weir__order *order, weir__clock *clock, uint32_t *bucket)
{
    weir__mutex_lock(&order->lock);
    weir__clock *next = clock != NULL ? clock->next_by_id : order->by_id[0];
    if (clock != NULL) {
        clock->pins--;
        weir__cond_broadcast(&order->changed);
    }
    for (;;) {
        while (next != NULL && !can_name(next))
            next = next->next_by_id;
        if (next != NULL || ++*bucket == CLOCK_BUCKETS)
            break;
        next = order->by_id[*bucket];
    }
    if (next != NULL)
        next->pins++;
    weir__mutex_unlock(&order->lock);
    return next;
}

/* A wait for the whole device would spoil the capture of any stream. Those that can be
 * named are asked about; a failure to answer forbids nothing. */
static weir_status refuse_captures(weir__order *order)
{
    uint32_t bucket = 0;
    weir_status status = WEIR_OK;
    weir__clock *clock = pin_next(order, NULL, &bucket);
    while (clock != NULL) {
        if (status != WEIR_CAPTURING)
            status = weir__refuse_capturing(order, clock->stream);
        clock = pin_next(order, clock, &bucket);
    }
    return status == WEIR_CAPTURING ? status : WEIR_OK;
}

static void all_end(weir__order *order)
{
    weir__mutex_lock(&order->lock);
    order->recording_all--;
    weir__cond_broadcast(&order->changed);
    weir__mutex_unlock(&order->lock);
}

/* What concerns all of the device would spoil every capture: while one is declared it
 * is put off, or where that cannot be, while one has begun; and who declares one waits
 * until all_end. CAPTURING: it may not be, and nothing is to be ended. */
static weir_status all_begin(weir__order *order, bool can_be_put_off)
{
    weir__mutex_lock(&order->lock);
    const bool any = can_be_put_off && order->captures > 0;
    order->recording_all += !any;
    weir__mutex_unlock(&order->lock);
    if (any)
        return weir__fail(WEIR_CAPTURING, "a stream is being captured, which a wait or "
                                          "an event behind all would spoil");
    weir_status status = refuse_captures(order);
    if (status != WEIR_OK)
        all_end(order);
    return status;
}

static weir_status sync_all(weir__order *order, bool can_be_put_off)
{
    weir__mutex_lock(&order->lock);
    size_t capacity = order->clock_count;
    weir__mutex_unlock(&order->lock);
    /* Without memory some clocks learn nothing of the wait. The wait itself goes on:
     * giving memory up for good may depend on it. */
    weir__mark few[16];
    weir__mark *marks = weir__host_alloc(capacity * sizeof *marks);
    if (marks == NULL)
        capacity = sizeof few / sizeof few[0];

    weir__mutex_lock(&order->lock);
    uint64_t wait = clock_tick(&order->aside);
    size_t count = sample_all(order, marks != NULL ? marks : few, capacity);
    weir__mutex_unlock(&order->lock);

    weir_status status = all_begin(order, can_be_put_off);
    if (status == WEIR_OK) {
        status = weir__device_sync(order->device);
        all_end(order);
    }

    weir__mutex_lock(&order->lock);
    if (status == WEIR_OK) {
        weir__note_done_dropped(order);
        weir__publish_done(order, WEIR__CLOCK_ASIDE, wait, NULL);
        for (size_t i = 0; i < count; i++) {
            const weir__mark *mark = marks != NULL ? &marks[i] : &few[i];
            weir__publish_done(order, mark->clock, mark->number, NULL);
        }
    }
    weir__mutex_unlock(&order->lock);
    weir__host_free(marks);
    return status;
}

weir_status weir__order_device_sync(weir__order *order)
{
    return sync_all(order, true);
}

weir_status weir__order_last_sync(weir__order *order)
{
    return sync_all(order, false);
}

/* ---- the point behind all of it ---- */

/* What frees may need is left to them: a point can be had later. */
static weir__cover *point_cover(weir__order *order, uint64_t *number)
{
    weir__cover *cover = NULL;
    weir__mutex_lock(&order->lock);
    if (order->spare_count > order->clock_count)
        cover = weir__cover_take(order);
    if (cover != NULL)
        *number = cover->number = clock_tick(&order->aside);
    weir__mutex_unlock(&order->lock);
    return cover;
}

weir_status weir__record_all(weir__order *order, weir__cover *cover)
{
    weir_status status = all_begin(order, true);
    if (status != WEIR_OK)
        return status;
    if (cover->event == NULL)
        status = weir__event_create(order->device, &cover->event);
    if (status == WEIR_OK)
        status = weir__event_record_all(order->device, cover->event);
    all_end(order);
    return status;
}

weir_status weir__order_all_point(weir__order *order, weir__mark *out)
{
    uint64_t number = 0;
    *out = WEIR__MARK_DONE;
    weir__cover *cover = point_cover(order, &number);
    if (cover == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for an event's record");
    weir_status status = weir__record_all(order, cover);

    weir__mutex_lock(&order->lock);
    if (status == WEIR_OK)
        weir__cover_publish(order, &order->aside, cover);
    else
        weir__cover_unref(order, cover);
    weir__mutex_unlock(&order->lock);
    if (status == WEIR_OK)
        *out = (weir__mark){ WEIR__CLOCK_ASIDE, number };
    return status;
}
