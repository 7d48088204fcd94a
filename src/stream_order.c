/* stream_order.c - the protocol between host threads over the clocks of clocks.h.
 *
 * Device calls are made without the lock; what makes that sound is the order of steps:
 *   record   sample the counter (and what the stream is behind), then record the event,
 *            then publish that it covers the marks up to the sample
 *   wait     hold a published event, so that nobody records it anew, then let the
 *            stream wait, and only then publish that the stream is behind
 *   retire   refuse new records, let those under way end, then record what is open
 * Sampling after the record would claim marks that the event does not cover; publishing
 * before it would let another wait for where the event was earlier; publishing "t is
 * behind" before the wait would let a second thread use t too early.
 *
 * The legacy stream and blocking streams wait for no event of each other's: the next
 * operation of either is behind the other's work. But handing memory over is no
 * operation; a stream that took a block by that rule alone, and gave it away again or
 * was waited for with nothing put on it in between, was behind nothing. So an event on
 * the stream that takes becomes the operation that the rule speaks of.
 */
#include "stream_order.h"

#include "clocks.h"
#include "internal.h"
#include "order_internal.h"

/* `clock` may be null. */
static weir__mark mark_here_locked(const weir__order *order, weir__clock *clock)
{
    if (clock != NULL && !clock->released && clock->kind != WEIR__CLOCK_ALL)
        return (weir__mark){ clock->id, clock_tick(clock) };
    return (weir__mark){ WEIR__CLOCK_ASIDE, order->aside.counter + 1 };
}

weir__mark weir__order_mark_here(weir__order *order, uint64_t id)
{
    weir__mutex_lock(&order->lock);
    weir__mark mark = mark_here_locked(order, weir__clock_find(order, id));
    weir__mutex_unlock(&order->lock);
    return mark;
}

/* ---- recording ---- */

static weir_status refuse_undeclared(void)
{
    return weir__fail(WEIR_CAPTURING, "a stream is being captured that Weir was not "
                                      "told of (weir_capture_begin)");
}

weir_status weir__refuse_capturing(weir__order *order, weir_stream stream)
{
    bool capturing = false;
    weir_status status = weir__stream_is_capturing(order->device, stream, &capturing);
    return status == WEIR_OK && capturing ? refuse_undeclared() : status;
}

static weir_status record_event(weir__order *order, weir__cover *cover,
                                weir_stream stream)
{
    weir_status status = WEIR_OK;
    if (cover->event == NULL)
        status = weir__event_create(order->device, &cover->event);
    if (status == WEIR_OK)
        status = weir__refuse_capturing(order, stream);
    if (status == WEIR_OK)
        status = weir__event_record(order->device, cover->event, stream);
    return status;
}

/* On a thread's own stream only that thread can, and not once it ends, for the driver
 * may have ended the stream: the handle is another stream then, as it is elsewhere. For
 * others an event behind all of the device stands for it. */
static bool can_record_here(const weir__clock *clock)
{
    const weir__thread *thread = weir__thread_self();
    return clock->kind != WEIR__CLOCK_PER_THREAD ||
           (clock->key == thread->number && !thread->own_is_over);
}

weir_status weir__record_locked(weir__order *order, weir__clock *clock)
{
    if (weir__cover_for(clock, clock->counter) != NULL || clock->done >= clock->counter)
        return WEIR_OK;
    weir__cover *cover = weir__cover_take(order);
    if (cover == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for an event's record");

    weir_stream stream = clock->stream;
    const bool is_here = can_record_here(clock);
    cover->number = clock->counter;
    cover->behind = weir__behind_ref(clock->behind);
    clock->pins++;
    weir__mutex_unlock(&order->lock);

    weir_status status = is_here ? record_event(order, cover, stream)
                                 : weir__record_all(order, cover);

    weir__mutex_lock(&order->lock);
    clock->pins--;
    clock->is_recorded = clock->is_recorded || (is_here && status == WEIR_OK);
    weir__cond_broadcast(&order->changed);
    if (status != WEIR_OK) {
        weir__cover_unref(order, cover);
        return status;
    }
    weir__cover_publish(order, clock, cover);
    return WEIR_OK;
}

/* Whether marks of `clock` get their event at once. On the legacy stream that would
 * be a barrier for all blocking streams, at every free: where there are any, it gets
 * one only when a non-blocking stream asks. */
static bool closes_at_once(const weir__order *order, const weir__clock *clock)
{
    if (clock == NULL || clock->kind == WEIR__CLOCK_CAPTURE ||
        clock->kind == WEIR__CLOCK_ALL || clock->retired || clock->capture != 0 ||
        !can_record_here(clock))
        return false;
    if (clock->kind == WEIR__CLOCK_LEGACY && order->blocking > 0)
        return false;
    return clock_is_transient(clock) || order->eager || order->live > 1;
}

weir_status weir__order_close(weir__order *order, uint64_t id)
{
    weir__mutex_lock(&order->lock);
    weir__clock *clock = weir__clock_find(order, id);
    bool needed = closes_at_once(order, clock);
    weir_status status = needed ? weir__record_locked(order, clock) : WEIR_OK;
    weir__mutex_unlock(&order->lock);
    return status;
}

weir__mark weir__order_mark_closed(weir__order *order, uint64_t id)
{
    weir__mutex_lock(&order->lock);
    weir__clock *clock = weir__clock_find(order, id);
    weir__mark mark = mark_here_locked(order, clock);
    if (closes_at_once(order, clock))
        (void)weir__record_locked(order, clock);
    weir__mutex_unlock(&order->lock);
    return mark;
}

void weir__order_cover(weir__order *order, weir__mark mark)
{
    weir__mutex_lock(&order->lock);
    weir__clock *clock = weir__mark_resolve(order, &mark);
    if (clock != NULL && clock->kind != WEIR__CLOCK_CAPTURE &&
        clock->kind != WEIR__CLOCK_ALL && clock->capture == 0 && !clock->retired &&
        !clock_is_transient(clock) && mark.number > clock->done &&
        weir__cover_for(clock, mark.number) == NULL) {
        clock_reach(clock, mark.number);
        (void)weir__record_locked(order, clock); /* or it stays open */
    }
    weir__mutex_unlock(&order->lock);
}

/* ---- streams to clocks ---- */

static weir__clock_kind kind_of(weir_stream stream, uint64_t *key)
{
    if (stream == WEIR_STREAM_LEGACY)
        return WEIR__CLOCK_LEGACY;
    if (stream == WEIR_STREAM_PER_THREAD) {
        *key = weir__thread_self()->number;
        return WEIR__CLOCK_PER_THREAD;
    }
    *key = (uint64_t)(uintptr_t)stream;
    return WEIR__CLOCK_KNOWN;
}

weir__clock *weir__find_stream(weir__order *order, weir_stream stream)
{
    uint64_t key = 0;
    weir__clock_kind kind = kind_of(stream, &key);
    if (kind != WEIR__CLOCK_LEGACY)
        return weir__clock_find_key(order, kind, key);
    if (!order->legacy_met) {
        order->legacy_met = true;
        order->live++;
    }
    return order->legacy;
}

/* The clock's own id, or that of the capture which it is in. */
static uint64_t id_in_capture(const weir__clock *clock)
{
    return clock->capture != 0 ? clock->capture : clock->id;
}

/* Asks the device whose handle it is. That would spoil a capture of the stream, so the
 * device is asked for one first: *capture is the clock of a declared one, or 0. */
static weir_status ask_name(weir__order *order, weir_stream stream, uint64_t *name,
                            uint64_t *capture)
{
    bool is_captured = false;
    *capture = 0;
    weir_status status = weir__stream_is_capturing(order->device, stream, &is_captured);
    if (status == WEIR_OK && !is_captured)
        return weir__stream_get_id(order->device, stream, name);
    if (status != WEIR_OK)
        return status;
    *capture = weir__order_unknown_capture(order, stream);
    return *capture != 0 ? WEIR_OK : refuse_undeclared();
}

/* Asks the device about an unknown stream, or meets a per-thread one for the first
 * time. *out is 0 where no spare clock is left for it. */
static weir_status meet_stream(weir__order *order, weir_stream stream, uint64_t *out)
{
    uint64_t key = 0;
    weir__clock_kind kind = kind_of(stream, &key);
    bool blocking = true;
    if (kind == WEIR__CLOCK_KNOWN) {
        kind = WEIR__CLOCK_UNKNOWN;
        weir_status status = ask_name(order, stream, &key, out);
        if (status != WEIR_OK || *out != 0)
            return status;
        weir__mutex_lock(&order->lock);
        const weir__clock *met = weir__clock_find_key(order, kind, key);
        *out = met != NULL ? id_in_capture(met) : 0;
        weir__mutex_unlock(&order->lock);
        if (met != NULL)
            return WEIR_OK;
        status = weir__stream_get_flags(order->device, stream, &blocking);
        if (status != WEIR_OK)
            return status;
    }

    weir__mutex_lock(&order->lock);
    weir__clock *clock = weir__clock_find_key(order, kind, key);
    if (clock == NULL) {
        clock = weir__clock_add(order, weir__clock_name(order), kind, key, stream,
                                blocking);
        if (clock != NULL)
            weir__clock_end_later(order, clock);
    }
    *out = clock != NULL ? id_in_capture(clock) : 0;
    weir__mutex_unlock(&order->lock);
    return WEIR_OK;
}

static uint64_t id_of_met(weir__order *order, weir_stream stream, bool *is_stocked)
{
    weir__mutex_lock(&order->lock);
    const weir__clock *clock = weir__find_stream(order, stream);
    uint64_t id = clock != NULL ? id_in_capture(clock) : 0;
    *is_stocked = weir__clocks_are_stocked(order);
    weir__mutex_unlock(&order->lock);
    return id;
}

/* As weir__order_clock, without allocating; *out is 0 where that would be needed. */
static weir_status clock_of(weir__order *order, weir_stream stream, uint64_t *out)
{
    bool is_stocked;
    stream = weir__stream_of(stream);
    *out = id_of_met(order, stream, &is_stocked);
    return *out != 0 ? WEIR_OK : meet_stream(order, stream, out);
}

weir_status weir__order_clock(weir__order *order, weir_stream stream, uint64_t *out)
{
    bool is_stocked;
    stream = weir__stream_of(stream);
    *out = id_of_met(order, stream, &is_stocked);
    if (is_stocked && *out != 0)
        return WEIR_OK;
    weir_status status = *out != 0 ? weir__clocks_stock(order)
                                   : weir__order_stock(order);
    if (status != WEIR_OK)
        *out = 0;
    if (status != WEIR_OK || *out != 0)
        return status;
    while (*out == 0) { /* as long as other threads take the spare clock in between */
        status = meet_stream(order, stream, out);
        /* For the next call, which may be a free on a stream that nobody has seen. */
        weir_status stocked = weir__clocks_stock(order);
        if (status != WEIR_OK || (*out == 0 && stocked != WEIR_OK))
            return status != WEIR_OK ? status : stocked;
    }
    return WEIR_OK;
}

/* The clock for memory that comes back: that of the stream, unless it comes into a
 * capture, or was born in one. Then it is the capture's again if it was born on the
 * stream that it comes back on. What comes from elsewhere is adopted; so is what comes
 * back elsewhere, for nothing says that the capture's stream is behind that. 0 if there
 * is none. */
static uint64_t clock_to_free_on(weir__order *order, weir_stream stream, uint64_t birth)
{
    uint64_t id = 0;
    (void)clock_of(order, stream, &id);
    weir__mutex_lock(&order->lock);
    const weir__clock *born = weir__clock_find(order, birth);
    const weir__clock *clock = weir__clock_find(order, id);
    const weir__clock *capture = clock_is_captured(born) ? born : clock;
    if (clock_is_captured(capture) && id != birth)
        id = capture->adopted;
    weir__mutex_unlock(&order->lock);
    return id;
}

weir__mark weir__order_free_mark(weir__order *order, weir_stream stream, uint64_t birth)
{
    uint64_t id;
    weir__mark mark;
    do { /* again, if another thread has dropped the clock of an idle stream */
        id = clock_to_free_on(order, stream, birth);
        mark = weir__order_mark_closed(order, id);
    } while (mark.clock == WEIR__CLOCK_ASIDE && id != 0);
    return mark;
}

/* ---- questions and waits ---- */

void weir__publish_done(weir__order *order, uint64_t id, uint64_t number,
                        weir_event event)
{
    weir__clock *clock = weir__clock_find(order, id);
    if (clock == NULL || number <= clock->done)
        return;
    weir__note_done(order->device, id, event);
    weir__clock_done(order, clock, number);
}

bool weir__order_is_done(weir__order *order, uint64_t t, weir__mark mark)
{
    weir__mutex_lock(&order->lock);
    weir__clock *taker = weir__clock_find(order, t);
    bool done = weir__may_take(order, taker, mark);
    weir__clock *s = weir__mark_resolve(order, &mark);
    weir__cover *cover = NULL;
    if (!done && s != NULL && !clock_is_captured(s) && !clock_is_captured(taker))
        cover = weir__cover_for(s, mark.number);
    if (cover != NULL)
        weir__cover_ref(cover);
    weir__mutex_unlock(&order->lock);
    if (cover == NULL)
        return done;

    /* An error is no answer: whoever needs the memory will meet it again. */
    if (weir__event_query(order->device, cover->event, &done) != WEIR_OK)
        done = false;

    weir__mutex_lock(&order->lock);
    if (done)
        weir__publish_done(order, mark.clock, cover->number, cover->event);
    weir__cover_unref(order, cover);
    weir__mutex_unlock(&order->lock);
    return done;
}

/* A cover of mark `number` of `s`, held for the caller: the oldest, or else a new
 * one at the tail. Null with WEIR_OK if the mark became done meanwhile. The lock is
 * held, and is let go of on the way. */
static weir_status cover_hold(weir__order *order, weir__mark mark, weir__cover **out)
{
    *out = NULL;
    for (;;) {
        weir__clock *s = weir__clock_find(order, mark.clock);
        if (s == NULL || mark.number <= s->done) {
            weir__note_learn(order->device, s == NULL ? 0 : s->id);
            return WEIR_OK;
        }
        clock_reach(s, mark.number);
        weir__cover *cover = weir__cover_for(s, mark.number);
        if (cover != NULL) {
            *out = weir__cover_ref(cover);
            return WEIR_OK;
        }
        if (s->retiring) {
            weir__cond_wait(&order->changed, &order->lock);
            continue;
        }
        if (!weir__clock_can_cover(order, s, mark.number))
            return weir__fail(WEIR_DEVICE_ERROR, "the event of a stream's last work "
                              "could not be recorded: it needs weir_device_sync");
        if (s->capture != 0)
            return weir__fail(WEIR_CAPTURING, "the memory's last stream is being "
                                              "captured");
        weir_status status = weir__record_locked(order, s);
        if (status != WEIR_OK)
            return status;
    }
}

/* `t` now waits for `cover` of clock `s`, and so for all that s was behind then. `room`
 * (may be null) becomes what t is behind; what does not fit is forgotten, which only
 * costs a later wait. */
static void learn_behind(weir__order *order, uint64_t t, uint64_t s,
                         const weir__cover *cover, weir__behind *room, size_t capacity)
{
    weir__clock *taker = weir__clock_find(order, t);
    const weir__mark one = { s, cover->number };
    bool fits = room != NULL && taker != NULL &&
                weir__behind_join(order, room, capacity, taker->behind, cover->behind,
                                  one);
    if (!fits) {
        weir__behind_unref(room);
        return;
    }
    weir__behind_unref(taker->behind);
    taker->behind = room;
}

static size_t behind_count(const weir__behind *behind)
{
    return behind != NULL ? behind->count : 0;
}

/* Room for what the stream of clock t is behind once it has waited for something
 * that is behind `other`; or null: then that is forgotten. Without the lock. */
static weir__behind *behind_room(weir__order *order, uint64_t t,
                                 const weir__behind *other, size_t *capacity)
{
    *capacity = 0;
    if (t == 0)
        return NULL; /* nobody is to remember it */
    weir__mutex_lock(&order->lock);
    const weir__clock *taker = weir__clock_find(order, t);
    *capacity = behind_count(other) + 1;
    *capacity += taker != NULL ? behind_count(taker->behind) + 4 : 0;
    weir__mutex_unlock(&order->lock);
    return weir__behind_alloc(*capacity);
}

/* Lets `stream`, whose clock is t, wait for `cover`, which the caller holds. Without
 * the lock. */
static weir_status wait_for_cover(weir__order *order, uint64_t t, weir_stream stream,
                                  uint64_t s, weir__cover *cover)
{
    size_t capacity;
    weir__behind *room = behind_room(order, t, cover->behind, &capacity);
    weir_status status = weir__refuse_capturing(order, stream);
    if (status == WEIR_OK)
        status = weir__stream_wait_event(order->device, stream, cover->event);

    weir__mutex_lock(&order->lock);
    if (status == WEIR_OK)
        learn_behind(order, t, s, cover, room, capacity);
    else
        weir__behind_unref(room);
    weir__cover_unref(order, cover);
    weir__mutex_unlock(&order->lock);
    return status;
}

/* The stream of clock t gets an operation, which by the legacy stream's rule is
 * behind the work of s: an event of its own. Both are pinned, so that the streams are
 * there until then, and let go of here. `knows` (counted) is what s is behind,
 * `number` its last mark. Without the lock. */
static weir_status wait_by_rule(weir__order *order, uint64_t t, uint64_t s,
                                uint64_t number, weir__behind *knows)
{
    size_t capacity;
    weir__behind *room = behind_room(order, t, knows, &capacity);

    weir__mutex_lock(&order->lock);
    weir__clock *taker = weir__clock_find(order, t);
    (void)clock_tick(taker); /* a mark that no event covers yet */
    weir_status status = weir__record_locked(order, taker);
    const weir__cover all = { .number = number, .behind = knows };
    if (status == WEIR_OK)
        learn_behind(order, t, s, &all, room, capacity);
    else
        weir__behind_unref(room);
    weir__behind_unref(knows);
    taker->pins--;
    weir__clock_find(order, s)->pins--;
    weir__cond_broadcast(&order->changed);
    weir__mutex_unlock(&order->lock);
    return status;
}

/* Why the stream of clock `t` cannot be made to wait for `mark` of `s`, if so. */
static weir_status refuse_wait(const weir__clock *t, weir__clock *s, weir__mark mark)
{
    if (clock_is_captured(t) || clock_is_captured(s))
        return weir__fail(WEIR_CAPTURING, "%s is being captured",
                          clock_is_captured(s) ? "the memory's last stream"
                                               : "the stream");
    if (mark.clock == WEIR__CLOCK_ASIDE && weir__cover_for(s, mark.number) == NULL)
        return weir__fail(WEIR_DEVICE_ERROR,
                          "memory was set aside, for no event could be recorded: it "
                          "needs weir_device_sync");
    return WEIR_OK;
}

/* Whether the next operation of `t` is behind the work of `s` by CUDA's rule for the
 * legacy stream. It speaks of streams that there are: not of one that can have ended
 * without a word. */
static bool rule_applies(const weir__clock *t, const weir__clock *s)
{
    if (s->kind == WEIR__CLOCK_LEGACY)
        return t->blocking && can_record_here(t); /* that is the operation */
    return t->kind == WEIR__CLOCK_LEGACY && s->blocking && !s->retired &&
           !clock_is_transient(s);
}

weir_status weir__order_wait(weir__order *order, uint64_t t, weir_stream stream,
                             weir__mark mark)
{
    weir__mutex_lock(&order->lock);
    weir__clock *taker = weir__clock_find(order, t);
    weir__cover *cover = NULL;
    bool ready = weir__may_take(order, taker, mark);
    weir__clock *s = weir__mark_resolve(order, &mark);
    weir_status status = ready ? WEIR_OK : refuse_wait(taker, s, mark);
    if (ready || status != WEIR_OK) {
        weir__mutex_unlock(&order->lock);
        return status;
    }
    if (taker != NULL && s != NULL && rule_applies(taker, s)) {
        s->pins++;
        taker->pins++;
        clock_reach(s, mark.number);
        uint64_t number = s->counter;
        weir__behind *knows = weir__behind_ref(s->behind);
        weir__mutex_unlock(&order->lock);
        return wait_by_rule(order, t, mark.clock, number, knows);
    }
    status = cover_hold(order, mark, &cover);
    weir__mutex_unlock(&order->lock);
    return cover != NULL ? wait_for_cover(order, t, stream, mark.clock, cover) : status;
}

weir_status weir__order_sync(weir__order *order, weir__mark mark)
{
    weir__cover *cover = NULL;
    weir__mutex_lock(&order->lock);
    bool done = weir__may_take(order, NULL, mark);
    weir__clock *s = weir__mark_resolve(order, &mark);
    bool captured = clock_is_captured(s);
    bool coverable = !done && !captured && s != NULL &&
                     weir__clock_can_cover(order, s, mark.number);
    weir_status status = coverable ? cover_hold(order, mark, &cover) : WEIR_OK;
    weir__mutex_unlock(&order->lock);

    if (captured)
        return weir__fail(WEIR_CAPTURING, "memory belongs to a capture that is not "
                                          "released");
    if ((!done && !coverable) || (status != WEIR_OK && status != WEIR_DEVICE_LOST))
        return weir__order_device_sync(order); /* which spoils no capture either */
    if (cover == NULL)
        return status;

    status = weir__event_sync(order->device, cover->event);
    weir__mutex_lock(&order->lock);
    if (status == WEIR_OK)
        weir__publish_done(order, mark.clock, cover->number, cover->event);
    weir__cover_unref(order, cover);
    weir__mutex_unlock(&order->lock);
    return status;
}
