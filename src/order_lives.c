/* order_lives.c - how the clocks of a device begin and end: streams that are
 * introduced and retired, captures, and the dropping of clocks on which all is done.
 *
 * A clock that may be dropped (its stream was retired, or is one that is asked for
 * on every call anyway, or it is a released capture's) stands in a queue. Whenever a
 * clock is added, the device is asked about two from its front; so they do not pile
 * up. */
#include <string.h>

#include "internal.h"
#include "order_internal.h"
#include "stream_order.h"

/* ---- the ends of clocks ---- */

/* Takes the clock that has waited longest out of the queue, asks whether all of it
 * is done, and drops it or puts it back. */
static void drop_one(weir__order *order)
{
    weir__mutex_lock(&order->lock);
    weir__clock *clock = NULL;
    if (order->ending_count > TRANSIENT_KEEP)
        clock = weir__clock_next_ending(order);
    weir__mark last = WEIR__MARK_DONE;
    if (clock != NULL) {
        clock->pins++;
        last = (weir__mark){ clock->id, clock->counter };
    }
    weir__mutex_unlock(&order->lock);
    if (clock == NULL)
        return;

    bool done = weir__order_is_done(order, 0, last);

    weir__mutex_lock(&order->lock);
    clock->pins--;
    bool unchanged = clock->counter == last.number && clock->pins == 0 &&
                     clock->capture == 0 && !clock->retiring;
    if (done && unchanged) {
        if (clock->kind == WEIR__CLOCK_CAPTURE)
            weir__note_done_dropped(order); /* its marks were another clock's */
        weir__note_forget(order->device, clock->id, true);
        weir__clock_drop(order, clock);
    } else {
        weir__clock_end_later(order, clock);
    }
    weir__mutex_unlock(&order->lock);
}

static void drop_some(weir__order *order)
{
    for (int i = 0; i < 2; i++)
        drop_one(order);
}

/* Before a clock is added. */
weir_status weir__order_stock(weir__order *order)
{
    drop_some(order);
    return weir__clocks_stock(order);
}

bool weir__order_hold(weir__order *order, uint64_t id)
{
    weir__mutex_lock(&order->lock);
    weir__clock *clock = weir__clock_find(order, id);
    if (clock != NULL && clock_is_transient(clock))
        clock->pins++;
    weir__mutex_unlock(&order->lock);
    return clock != NULL;
}

void weir__order_let_go(weir__order *order, uint64_t id)
{
    weir__mutex_lock(&order->lock);
    weir__clock *clock = weir__clock_find(order, id);
    if (clock != NULL && clock_is_transient(clock)) {
        clock->pins--;
        weir__cond_broadcast(&order->changed);
    }
    weir__mutex_unlock(&order->lock);
}

/* ---- streams ---- */

/* Begins the clock that `like` describes, once the listeners agree. *out is 0 where no
 * spare clock is left for it. */
static weir_status clock_begin(weir__order *order, const weir__clock *like,
                               uint64_t *out) WEIR_REQUIRES(order->listening)
{
    weir__mutex_lock(&order->lock);
    uint64_t id = weir__clock_name(order);
    bool is_known = like->kind == WEIR__CLOCK_KNOWN &&
                    weir__find_stream(order, like->stream) != NULL;
    weir__mutex_unlock(&order->lock);
    if (is_known)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the stream is known already");
    weir_status status = weir__order_tell_begin(order, like->stream, id);
    if (status != WEIR_OK)
        return status;

    weir__mutex_lock(&order->lock);
    weir__clock *clock = weir__clock_add(order, id, like->kind, like->key, like->stream,
                                         like->blocking);
    if (clock != NULL)
        clock->created = like->created;
    *out = clock != NULL ? id : 0;
    weir__mutex_unlock(&order->lock);
    return WEIR_OK;
}

static weir_status clock_add(weir__order *order, const weir__clock *like, uint64_t *out)
{
    weir_status status = WEIR_OK;
    *out = 0;
    while (status == WEIR_OK && *out == 0) { /* others may take the spare clock */
        status = weir__order_stock(order);
        if (status != WEIR_OK)
            return status;
        weir__mutex_lock(&order->listening);
        status = clock_begin(order, like, out);
        weir__mutex_unlock(&order->listening);
    }
    return status;
}

weir_status weir__order_add_stream(weir__order *order, weir_stream stream,
                                   bool blocking, bool created)
{
    const weir__clock like = { .kind = WEIR__CLOCK_KNOWN,
                               .key = (uint64_t)(uintptr_t)stream,
                               .stream = stream,
                               .blocking = blocking,
                               .created = created };
    uint64_t id;
    weir_status status = clock_add(order, &like, &id);
    if (status == WEIR_OK)
        (void)weir__clocks_stock(order); /* the next call may be a free, which cannot */
    return status;
}

static weir_status may_retire(const weir__clock *clock, bool created_only)
{
    if (clock == NULL || clock->kind != WEIR__CLOCK_KNOWN)
        return weir__fail(WEIR_NOT_FOUND, "the stream is not known: it was never "
                                          "registered, or is retired");
    if (created_only && !clock->created)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the stream was not made by "
                                                 "weir_stream_create");
    if (clock->capture != 0)
        return weir__fail(WEIR_CAPTURING, "the stream is being captured");
    return WEIR_OK;
}

/* Other threads have used up the records of events that there were. The lock is let go
 * of; false: there is no memory for more. */
static bool restock(weir__order *order) WEIR_REQUIRES(order->lock)
{
    weir__mutex_unlock(&order->lock);
    weir_status status = weir__clocks_stock(order);
    weir__mutex_lock(&order->lock);
    return status == WEIR_OK;
}

weir_status weir__order_retire(weir__order *order, weir_stream stream,
                               bool created_only)
{
    weir__mutex_lock(&order->lock);
    weir__clock *clock = weir__find_stream(order, stream);
    while (clock != NULL && !clock_may_change(clock)) {
        weir__cond_wait(&order->changed, &order->lock);
        clock = weir__find_stream(order, stream);
    }
    weir_status status = may_retire(clock, created_only);
    if (status == WEIR_OK)
        weir__clock_change_begin(order, clock);
    weir__mutex_unlock(&order->lock);
    if (status != WEIR_OK)
        return status;

    if (weir__refuse_capturing(order, stream) == WEIR_CAPTURING)
        status = WEIR_CAPTURING;
    else
        weir__order_tell(order, stream, clock->id);

    weir__mutex_lock(&order->lock);
    weir__clock_change_end(order, clock);
    if (status != WEIR_OK) {
        weir__mutex_unlock(&order->lock);
        return status;
    }
    weir__clock_retire(order, clock);
    if (clock->has_lives) /* what was put there since the last mark counts, too */
        (void)clock_tick(clock);
    clock->retiring = true;
    while (clock->pins > 0)
        weir__cond_wait(&order->changed, &order->lock);
    while (order->spare_count == 0 && restock(order))
        continue;
    status = weir__record_locked(order, clock);
    clock->retiring = false;
    weir__cond_broadcast(&order->changed);
    weir__clock_end_later(order, clock);
    weir__mutex_unlock(&order->lock);
    return status;
}

weir_status weir__order_point(weir__order *order, weir_stream stream, weir__mark *out)
{
    uint64_t id;
    *out = WEIR__MARK_DONE;
    weir_status status = WEIR_OK;
    weir__mark mark = { WEIR__CLOCK_ASIDE, 0 };
    while (mark.clock == WEIR__CLOCK_ASIDE) { /* another thread dropped the clock */
        status = weir__order_clock(order, stream, &id);
        if (status != WEIR_OK)
            return status;
        if (weir__order_is_captured(order, (weir__mark){ id, 0 }))
            return weir__fail(WEIR_CAPTURING, "the stream is being captured");
        mark = weir__order_mark_here(order, id);
    }
    weir__mutex_lock(&order->lock);
    weir__clock *clock = weir__clock_find(order, id);
    if (clock != NULL && clock_is_transient(clock))
        status = weir__record_locked(order, clock);
    weir__mutex_unlock(&order->lock);
    if (status == WEIR_OK)
        *out = mark;
    return status;
}

/* ---- captures ---- */

/* No driver call tells about a stream of which only the handle is known, but those in
 * captures are few. */
static uint64_t unknown_capture(weir__order *order, weir_stream stream)
{
    for (uint32_t i = 0; order->captures > 0 && i < CLOCK_BUCKETS; i++) {
        for (const weir__clock *c = order->by_id[i]; c != NULL; c = c->next_by_id) {
            if (c->kind == WEIR__CLOCK_UNKNOWN && c->stream == stream &&
                c->capture != 0)
                return c->capture;
        }
    }
    return 0;
}

uint64_t weir__order_unknown_capture(weir__order *order, weir_stream stream)
{
    weir__mutex_lock(&order->lock);
    uint64_t capture = unknown_capture(order, stream);
    weir__mutex_unlock(&order->lock);
    return capture;
}

uint64_t weir__order_captured_by(weir__order *order, weir_stream stream)
{
    stream = weir__stream_of(stream);
    weir__mutex_lock(&order->lock);
    uint64_t capture = 0;
    const weir__clock *clock = order->captures > 0 ? weir__find_stream(order, stream)
                                                   : NULL;
    if (clock != NULL)
        capture = clock->capture;
    else if (order->captures > 0 && stream != WEIR_STREAM_PER_THREAD)
        capture = unknown_capture(order, stream);
    weir__mutex_unlock(&order->lock);
    return capture;
}

static weir_status capture_add(weir__order *order, weir_stream stream, uint64_t *out)
{
    const weir__clock like = { .kind = WEIR__CLOCK_CAPTURE, .stream = stream };
    return clock_add(order, &like, out);
}

static void capture_drop(weir__order *order, uint64_t id)
{
    weir__mutex_lock(&order->lock);
    weir__clock_drop(order, weir__clock_find(order, id));
    weir__mutex_unlock(&order->lock);
}

/* With a handle, what no stream is called. */
#define NAMELESS ((uint64_t)1 << 63)

/* The one that listeners may take marks of; 0: nobody knows the stream's. */
static uint64_t own_clock(const weir__clock *clock)
{
    bool is_nameless = clock->kind == WEIR__CLOCK_UNKNOWN &&
                       (clock->key & NAMELESS) != 0;
    return is_nameless ? 0 : clock->id;
}

/* Tells the listeners, and makes the stream of clock `id` the capture's. CAPTURING: it
 * is another's already. NOT_FOUND: another thread has dropped the clock. */
static weir_status capture_attach(weir__order *order, weir_stream stream, uint64_t id,
                                  uint64_t capture_id, uint64_t adopted_id)
{
    weir__mutex_lock(&order->lock);
    weir__clock *clock = weir__clock_find(order, id);
    while (clock != NULL && !clock_may_change(clock)) {
        weir__cond_wait(&order->changed, &order->lock);
        clock = weir__clock_find(order, id);
    }
    bool is_free = clock != NULL && clock->kind != WEIR__CLOCK_CAPTURE &&
                   clock->capture == 0;
    if (is_free)
        weir__clock_change_begin(order, clock);
    weir__mutex_unlock(&order->lock);
    if (clock == NULL)
        return WEIR_NOT_FOUND;
    if (!is_free)
        return weir__fail(WEIR_CAPTURING, "the stream is being captured already");

    weir__order_tell(order, stream, own_clock(clock)); /* it stays while it changes */

    weir__mutex_lock(&order->lock);
    order->captures++; /* from now on nobody records behind all, which would spoil it */
    while (order->recording_all > 0)
        weir__cond_wait(&order->changed, &order->lock);
    weir__clock *capture = weir__clock_find(order, capture_id);
    capture->adopted = adopted_id;
    capture->capture = id;
    clock->capture = capture_id;
    weir__clock_change_end(order, clock);
    weir__mutex_unlock(&order->lock);
    return WEIR_OK;
}

/* Who an unknown stream is cannot be asked once it is captured: until the end it is
 * known by its handle. Nothing is freed under that clock, so it may serve the handle
 * again. */
static weir_status meet_nameless(weir__order *order, weir_stream stream, uint64_t *out)
{
    const uint64_t key = NAMELESS | (uint64_t)(uintptr_t)stream;
    *out = 0;
    while (*out == 0) { /* as long as other threads take the spare clock in between */
        weir_status status = weir__order_stock(order);
        if (status != WEIR_OK)
            return status;
        weir__mutex_lock(&order->lock);
        weir__clock *clock = weir__clock_find_key(order, WEIR__CLOCK_UNKNOWN, key);
        if (clock == NULL) {
            clock = weir__clock_add(order, weir__clock_name(order), WEIR__CLOCK_UNKNOWN,
                                    key, stream, false);
            if (clock != NULL)
                weir__clock_end_later(order, clock);
        }
        *out = clock != NULL ? clock->id : 0;
        weir__mutex_unlock(&order->lock);
    }
    return WEIR_OK;
}

/* The clock of a stream that is declared as captured now. */
static weir_status clock_to_capture(weir__order *order, weir_stream stream,
                                    uint64_t *out)
{
    weir_status status = weir__order_clock(order, stream, out);
    weir_stream handle = weir__stream_of(stream);
    if (status != WEIR_CAPTURING || handle == WEIR_STREAM_PER_THREAD ||
        weir__order_unknown_capture(order, handle) != 0)
        return status;
    return meet_nameless(order, handle, out);
}

weir_status weir__order_capture_begin(weir__order *order, weir_stream stream,
                                      uint64_t *out)
{
    *out = 0;
    if (weir__stream_of(stream) == WEIR_STREAM_LEGACY)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the legacy stream is never captured");
    uint64_t capture_id, adopted_id;
    weir_status status = capture_add(order, stream, &capture_id);
    if (status != WEIR_OK)
        return status;
    status = capture_add(order, stream, &adopted_id);
    if (status != WEIR_OK) {
        capture_drop(order, capture_id);
        return status;
    }
    do { /* last, and again, for stocking may drop the clock of an idle stream */
        uint64_t id;
        status = clock_to_capture(order, stream, &id);
        if (status == WEIR_OK)
            status = capture_attach(order, weir__stream_of(stream), id, capture_id,
                                    adopted_id);
    } while (status == WEIR_NOT_FOUND);
    if (status == WEIR_OK) {
        *out = capture_id;
        return WEIR_OK;
    }
    capture_drop(order, capture_id);
    capture_drop(order, adopted_id);
    return status;
}

bool weir__order_capture_end(weir__order *order, uint64_t id)
{
    weir__mutex_lock(&order->lock);
    weir__clock *capture = weir__clock_find(order, id);
    weir__clock *clock = weir__clock_find(order, capture->capture);
    uint64_t own = clock != NULL ? own_clock(clock) : 0;
    weir_stream stream = capture->stream;
    if (clock != NULL) {
        clock->capture = 0;
        order->captures--;
    }
    capture->capture = 0;
    weir__mutex_unlock(&order->lock);
    if (clock != NULL)
        weir__order_tell(order, weir__stream_of(stream), own);
    return clock != NULL;
}

weir__mark weir__order_capture_mark(weir__order *order, uint64_t birth, bool is_unused)
{
    weir__mutex_lock(&order->lock);
    const weir__clock *capture = weir__clock_find(order, birth);
    uint64_t id = is_unused || capture == NULL ? birth : capture->adopted;
    weir__mutex_unlock(&order->lock);
    return weir__order_mark_here(order, id);
}

void weir__order_capture_release(weir__order *order, uint64_t id, weir__mark at)
{
    (void)weir__order_capture_end(order, id);
    weir__mutex_lock(&order->lock);
    weir__clock *capture = weir__clock_find(order, id);
    weir__clock *both[2] = { capture, weir__clock_find(order, capture->adopted) };
    for (int i = 0; i < 2; i++) {
        both[i]->released_at = at;
        both[i]->released = true;
        weir__clock_end_later(order, both[i]);
    }
    weir__mutex_unlock(&order->lock);
}

/* ---- the whole ---- */

/* So many devices are told apart, one after the other; ids stay below 2^62. */
#define ORDERS_MAX ((UINT64_C(1) << 22) - 1)

/* No point of another device's, or of one that was closed, names a clock of this. */
static uint64_t first_name(void)
{
    static _Atomic uint64_t orders;
    const uint64_t before = atomic_fetch_add_explicit(&orders, 1, memory_order_relaxed);
    return (before % ORDERS_MAX + 1) << CLOCK_ID_BITS;
}

weir_status weir__order_create(weir_device *device, bool eager, weir__order **out)
{
    *out = NULL;
    weir__order *order = weir__host_alloc(sizeof *order);
    if (order == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a device's clocks");
    memset(order, 0, sizeof *order);
    order->device = device;
    order->eager = eager;
    order->last_id = first_name();
    atomic_init(&order->changes, 1);
    order->aside = (weir__clock){ .id = WEIR__CLOCK_ASIDE, .kind = WEIR__CLOCK_ALL };
    weir__mutex_init(&order->listening, WEIR__RANK_LISTENERS);
    weir__mutex_init(&order->lock, WEIR__RANK_ORDER);
    weir__cond_init(&order->changed);

    weir_status status = weir__clocks_stock(order);
    if (status != WEIR_OK) {
        weir__order_destroy(order);
        return status;
    }
    weir__mutex_lock(&order->lock);
    order->legacy = weir__clock_add(order, weir__clock_name(order), WEIR__CLOCK_LEGACY,
                                    0, WEIR_STREAM_LEGACY, false);
    weir__mutex_unlock(&order->lock);
    *out = order;
    return WEIR_OK;
}

static void events_destroy(weir__order *order, const weir__cover *cover)
{
    for (; cover != NULL; cover = cover->next) {
        if (cover->event != NULL)
            (void)weir__event_destroy(order->device, cover->event);
    }
}

void weir__order_destroy(weir__order *order)
{
    for (uint32_t i = 0; i < CLOCK_BUCKETS; i++) {
        for (const weir__clock *c = order->by_id[i]; c != NULL; c = c->next_by_id)
            events_destroy(order, c->covers);
    }
    events_destroy(order, order->aside.covers);
    events_destroy(order, order->spare_covers);
    weir__clocks_free(order);
    weir__cond_destroy(&order->changed);
    weir__mutex_destroy(&order->lock);
    weir__mutex_destroy(&order->listening);
    weir__host_free(order);
}

weir__order_size weir__order_measure(weir__order *order)
{
    weir__mutex_lock(&order->lock);
    weir__order_size size = { .clocks = order->clock_count,
                              .covers = order->cover_total };
    for (const weir__cover *c = order->spare_covers; c != NULL; c = c->next)
        size.events += c->event != NULL;
    size.events += order->aside.cover_count;
    for (uint32_t i = 0; i < CLOCK_BUCKETS; i++) {
        for (const weir__clock *c = order->by_id[i]; c != NULL; c = c->next_by_id)
            size.events += c->cover_count;
    }
    weir__mutex_unlock(&order->lock);
    return size;
}

void weir__order_verify(weir__order *order)
{
    weir__mutex_lock(&order->lock);
    weir__clocks_verify(order);
    weir__mutex_unlock(&order->lock);
}
