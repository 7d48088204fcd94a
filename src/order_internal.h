/* order_internal.h - what stream_order.c (the protocol), order_known.c (what is known
 * without it), order_lives.c (how streams and captures begin and end), order_listen.c
 * (who hears of that) and order_waits.c (waits for all of a stream or device) share. */
#ifndef WEIR_ORDER_INTERNAL_H
#define WEIR_ORDER_INTERNAL_H

#include "clocks.h"

/* Records an event behind all marks of `clock`, which is locked in and out, and whose
 * stream lives. Lets go of the lock meanwhile. Nothing to do if all is covered. */
weir_status weir__record_locked(weir__order *order, weir__clock *clock);

/* Records the event of `cover`, which is the caller's, behind all of the device: as
 * weir__order_all_point. Without the lock. */
weir_status weir__record_all(weir__order *order, weir__cover *cover);

/* The device has done all of `clock` up to `number`, as this thread has learnt from
 * `event`, or from a wait (null). Under the lock. */
void weir__publish_done(weir__order *order, uint64_t clock, uint64_t number,
                        weir_event event);

/* Who reads the mark of a clock that was dropped learns what this thread knows. */
static inline void weir__note_done_dropped(const weir__order *order)
{
    weir__note_done(order->device, 0, NULL);
}

static inline bool clock_is_captured(const weir__clock *clock)
{
    return clock != NULL && clock->kind == WEIR__CLOCK_CAPTURE && !clock->released;
}

/* ---- order_known.c, under the lock ---- */

/* The clock of `mark`, null if it was dropped; follows a released capture to the stream
 * that it was released on. */
weir__clock *weir__mark_resolve(weir__order *order, weir__mark *mark);
/* See weir__order_may_take. `t` may be null: nobody. */
bool weir__may_take(weir__order *order, weir__clock *t, weir__mark mark);
/* Whether an event that covers `number` exists or can still be recorded. */
bool weir__clock_can_cover(weir__order *order, weir__clock *clock, uint64_t number);

/* ---- the others ---- */

/* The clock of a stream that needs no question to the device, or null. Under the
 * lock. */
weir__clock *weir__find_stream(weir__order *order, weir_stream stream);

/* The clock of the declared capture that an unknown stream is in by its handle; 0:
 * none. */
uint64_t weir__order_unknown_capture(weir__order *order, weir_stream stream);

/* Asks all listeners whether clock `clock` may begin, until one refuses. */
weir_status weir__order_tell_begin(weir__order *order, weir_stream stream,
                                   uint64_t clock) WEIR_REQUIRES(order->listening);
/* Tells all listeners of a change. Without locks of rank listeners and above. */
void weir__order_tell(weir__order *order, weir_stream stream, uint64_t clock);

/* A clock that is not changing does so from now on, and is not dropped until the end;
 * under the lock, which may be given back in between. */
void weir__clock_change_begin(weir__order *order, weir__clock *clock)
    WEIR_REQUIRES(order->lock);
void weir__clock_change_end(weir__order *order, weir__clock *clock)
    WEIR_REQUIRES(order->lock);

#endif
