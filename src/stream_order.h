/* stream_order.h - who may reuse what when: the clocks of one device's streams.
 *
 * Each life of a stream has a clock. A mark is a point on it: everything put on the
 * stream before the mark was taken. Memory freed at mark m of clock s may be handed
 * out on the stream of clock t only if t is s, or m is done, or t is behind m.
 * Whoever hands it out makes one of these true first. A free block carries a mark,
 * never an event.
 *
 * A clock id is never used again; a clock that is dropped (its stream retired, or
 * not seen for long, and everything on it done) leaves nothing behind: an id that is
 * not found is done. */
#ifndef WEIR_STREAM_ORDER_H
#define WEIR_STREAM_ORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"
#include "weir/stream.h"

typedef struct weir__order weir__order;

/* A point in stream order. Clock 0 is "done": behind nothing, for everybody to take. */
typedef struct weir__mark {
    uint64_t clock;
    uint64_t number;
} weir__mark;

#define WEIR__MARK_DONE ((weir__mark){ 0, 0 })
/* The clock of what was set aside, because its event could not be recorded or nobody
 * knows who used it last: not to be reused before a device wait has succeeded that
 * began later, or a point behind all of the device that was taken later is done
 * (weir__order_all_point). */
#define WEIR__CLOCK_ASIDE UINT64_MAX

weir_status weir__order_create(weir_device *device, bool eager, weir__order **out);
void weir__order_destroy(weir__order *order);

/* Whether a mark that comes from outside can be of this order: not one of another
 * device's. */
bool weir__order_has(const weir__order *order, weir__mark mark);

/* The clock of `stream`, as the calling thread means it; for a stream in a declared
 * capture, the capture's. May ask the device (unknown streams), and may fail for want
 * of host memory. To be called without locks. */
weir_status weir__order_clock(weir__order *order, weir_stream stream, uint64_t *out);

/* For a call that needs a clock for longer: keeps one whose stream is not known to Weir
 * from being dropped, until it is let go of. False: it was dropped already. */
bool weir__order_hold(weir__order *order, uint64_t clock);
void weir__order_let_go(weir__order *order, uint64_t clock);

/* What a deallocation on `stream` takes: a mark behind everything put on it so far,
 * with an event where that cannot be recorded later or the device has met a second
 * stream (close). `birth` is the clock that the block was allocated under (0: not
 * kept): if that is of a capture that is not released, the mark is the capture's,
 * which may hand the block out again if it came back on its own stream.
 * Never fails: a mark whose event cannot be recorded stays open (see clocks.h). To be
 * called without locks. */
weir__mark weir__order_free_mark(weir__order *order, weir_stream stream,
                                 uint64_t birth);

/* What a deallocation behind points takes of a block that was born in a capture which
 * is not released: nobody but that capture gets it, and that only where nothing uses
 * the block. Makes no device call. */
weir__mark weir__order_capture_mark(weir__order *order, uint64_t birth, bool is_unused);

/* The same as a free mark without close: a mark of `clock`, which the caller got from
 * weir__order_clock in this call; of none (0), an aside one. Makes no device call. For
 * what needs no event of its own (fresh memory of a stream that can be asked for one
 * later, the result of a merge). */
weir__mark weir__order_mark_here(weir__order *order, uint64_t clock);

/* After mark_here, for memory that then becomes free: records the event that a mark
 * needs where it cannot be recorded later, or the device has met a second stream. On
 * failure the marks stay open (see clocks.h): nobody else gets what they stand for
 * before an event or a device wait. To be called without locks of rank resource and
 * above. */
weir_status weir__order_close(weir__order *order, uint64_t clock);
/* Both at once. */
weir__mark weir__order_mark_closed(weir__order *order, uint64_t clock);

/* Sees to it that an event covers `mark`, where one still can, so that is_done has
 * something to ask; for who keeps a lot and has met one stream only. To be called
 * without locks of rank resource and above. */
void weir__order_cover(weir__order *order, weir__mark mark);

/* Whether the stream of clock `t` may take what is marked, as far as is known: no
 * device call. May be called under a resource's lock. True also tells the ledger's
 * hand-over. */
bool weir__order_may_take(weir__order *order, uint64_t t, weir__mark mark);

/* Of each mark's clock the last number that may_take lets `t` take becomes the mark's;
 * UINT64_MAX: all. Tells nobody: who takes asks may_take, too. */
void weir__order_may_take_to(weir__order *order, uint64_t t, weir__mark *marks,
                             size_t count);

/* The same, but asks the device, at most once, whether `mark` is done. Never asks on
 * behalf of a capture. To be called without locks of rank resource and above. */
bool weir__order_is_done(weir__order *order, uint64_t t, weir__mark mark);

/* Whether t could be made to wait for `mark`, by weir__order_wait: not in a capture,
 * nor for an unreleased one, nor for what is set aside without a point behind it. No
 * device call. */
bool weir__order_can_wait(weir__order *order, uint64_t t, weir__mark mark);

/* Makes the stream of clock `t` (which the caller passes too) wait for `mark`: at
 * once true where may_take is; else it waits on the oldest event that covers the
 * mark, and one is recorded where there is none. CAPTURING, DEVICE_ERROR...: nothing
 * has changed. Never blocks the host. To be called without locks of rank resource
 * and above. With t 0 `stream` is one that has no clock, and does not block: it waits,
 * and nobody remembers. */
weir_status weir__order_wait(weir__order *order, uint64_t t, weir_stream stream,
                             weir__mark mark);

/* Waits on the host until `mark` is done: DEVICE_ERROR, DEVICE_LOST, or CAPTURING
 * for what an unreleased capture holds, or where the wait would spoil one. To be called
 * without locks of rank resource and above. */
weir_status weir__order_sync(weir__order *order, weir__mark mark);

/* The clock of the declared capture that `stream` is in, or 0; makes no device call. */
uint64_t weir__order_captured_by(weir__order *order, weir_stream stream);
static inline bool weir__order_stream_is_captured(weir__order *order,
                                                  weir_stream stream)
{
    return weir__order_captured_by(order, stream) != 0;
}

/* Whether `mark` is in an unreleased capture. */
bool weir__order_is_captured(weir__order *order, weir__mark mark);

/* ---- what stream.c and capture.c offer to the public ---- */

/* Waits on the host until all work of the device is done: then everything marked before
 * is, also what was set aside. */
weir_status weir__order_device_sync(weir__order *order);
/* The same for who lets go of memory for good if it cannot wait now: also while a
 * capture is declared, as long as none has begun. */
weir_status weir__order_last_sync(weir__order *order);
weir_status weir__order_stream_sync(weir__order *order, weir_stream stream);
/* A mark behind all that was put on any stream of the device so far, by whomever, with
 * an event of its own: what was set aside before is done once that is, and can be asked
 * about and waited for like anything else. Never blocks the host; no host memory is
 * asked for. To be called without locks of rank resource and above.
 *
 *   CAPTURING            a stream is being captured, which that would spoil
 *   NOT_SUPPORTED        the device has no such events; weir__order_device_sync does as
 *                        much, and waits
 *   OUT_OF_HOST_MEMORY   there is no spare record that frees may not come to need: who
 *                        may ask for memory calls weir__order_stock first */
weir_status weir__order_all_point(weir__order *order, weir__mark *out);
/* Whether the host may wait for `stream`, or ask about it: CAPTURING, if it is in a
 * capture, declared or not. */
weir_status weir__order_may_sync(weir__order *order, weir_stream stream);
/* Before the device does something with `stream` that a capture does not bear:
 * CAPTURING, and the capture goes on, declared or not. */
weir_status weir__refuse_capturing(weir__order *order, weir_stream stream);
/* Makes sure of host memory for what a deallocation may need. */
weir_status weir__order_stock(weir__order *order);

/* See weir_stream_register, weir_stream_retire, weir_point_here. */
weir_status weir__order_add_stream(weir__order *order, weir_stream stream,
                                   bool blocking, bool created);
weir_status weir__order_retire(weir__order *order, weir_stream stream,
                               bool created_only);
weir_status weir__order_point(weir__order *order, weir_stream stream, weir__mark *out);

/* A capture's clock: begins with the stream's capture, is the clock of the stream
 * until the end (false: it had ended), and after its release its marks mean `at`. */
weir_status weir__order_capture_begin(weir__order *order, weir_stream stream,
                                      uint64_t *out);
bool weir__order_capture_end(weir__order *order, uint64_t id);
void weir__order_capture_release(weir__order *order, uint64_t id, weir__mark at);

/* Whether no more than one stream was ever met that has not been retired: no event is
 * needed as long as that is so. Makes no device call; may be called under a resource's
 * lock. */
bool weir__order_has_one_stream(weir__order *order);

/* ---- for who keeps memory per stream ---- */

/* clock_begins (may be null): a clock begins, of a known stream or in a declared
 * capture, or is there already when somebody begins to listen. From then until it is
 * dropped a free may name it, which allocates nothing: so here is the place to. The
 * answer of one that refuses is that of the call which makes the stream known, begins
 * the capture or listens; then the clock never comes to be, and others were told in
 * vain (see weir__order_has_clock).
 *
 * stream_changes: hears, before it happens, that a known stream is retired or that a
 * declared capture begins on a stream, and that one has ended; `clock` is the stream's
 * own (0: it is not known, for nobody may ask, and nothing was freed under it). It may
 * take and close marks of that clock, and empties what it keeps for it:
 * afterwards neither the clock's number nor its counter is to be relied on. A change
 * may still be refused after that.
 *
 * Called by the thread that makes the change, without locks of rank miss and above, but
 * one listener at a time: it must not listen or unlisten, begin or end captures, make
 * streams known, retire them, or wait for a thread that does. */
typedef struct weir__order_listener {
    struct weir__order_listener *next;
    weir_status (*clock_begins)(struct weir__order_listener *self, weir_stream stream,
                                uint64_t clock);
    void (*stream_changes)(struct weir__order_listener *self, weir_stream stream,
                           uint64_t clock);
} weir__order_listener;

/* Until it is unlistened, `listener` belongs to the order. When unlisten returns, no
 * call is under way in it. Both without locks of rank listeners and above. A failure,
 * OUT_OF_HOST_MEMORY or the listener's own: it does not listen. */
weir_status weir__order_listen(weir__order *order, weir__order_listener *listener);
void weir__order_unlisten(weir__order *order, weir__order_listener *listener);

/* Whether the clock has not been dropped. Makes no device call; may be called under a
 * resource's lock. */
bool weir__order_has_clock(weir__order *order, uint64_t clock);

/* Whether `stream` is one whose clock stays the same until a listener is told: a known
 * one or the legacy stream, not in a declared capture, not about to be, not being
 * retired, and the device not eager. (A per-thread stream's may be dropped untold: see
 * weir__order_hold_own.) Gives its clock, and where that clock's
 * counter can be read without a lock, also until then. May be called under a resource's
 * lock; makes no device call. A change may begin right after the answer: who keeps
 * something for the clock asks under the lock under which its listener empties that.
 *
 * How memory is freed without the order: let n be the counter, read (relaxed) at the
 * free. Then mark n + 1 is a mark for that memory, provided that whoever lets others
 * than the clock's own stream have it takes a mark afterwards (weir__order_mark_here),
 * and closes as usual. For an event that covers n + 1, or a wait of the host, begins
 * after the counter was raised above n. Work on the stream before the free is put there
 * by calls that the driver puts in one order with that event: were one of them behind
 * the event, the driver's own lock would have shown the raised counter to its thread,
 * and so to whoever freed. Hence all of them are before the event. It is the reader's
 * mistake to use a stream while another thread retires it: what it frees then may count
 * as done when the retirement's event is, and no more than that breaks. */
bool weir__order_steady(weir__order *order, weir_stream stream, uint64_t *clock,
                        const _Atomic uint64_t **counter);

/* The same of the calling thread's own stream (WEIR_STREAM_PER_THREAD), once the thread
 * has recorded an event on it: its clock stays until weir__order_let_go. Nobody else
 * can record there; so that others need not wait for all of the device, who lets them
 * have what was freed closes it at once, on that thread. */
bool weir__order_hold_own(weir__order *order, uint64_t *clock,
                          const _Atomic uint64_t **counter);
/* Whether that could be now. */
bool weir__order_has_own(weir__order *order);

/* ---- for who holds memory for long ---- */

/* The life of a stream in which somebody began to hold memory on it: the handle may
 * mean another stream by the time that he lets go. */
typedef struct weir__life {
    uint64_t clock;   /* the stream's own, also while it is captured; 0: none */
    uint64_t changes; /* of the order, when that was so; of a thread's own stream, whose
                         it is. 0: the stream is unknown, and lives as long as it is
                         named */
} weir__life;

/* As weir__order_clock. */
weir_status weir__order_life(weir__order *order, weir_stream stream, weir__life *out);

/* Whether `stream` is in that life still, and in no capture; a thread's own, whether it
 * is the calling thread's. Without a lock where no stream has changed since. */
bool weir__order_lives_still(weir__order *order, weir_stream stream, weir__life life);
static inline bool weir__order_lives(weir__order *order, weir_stream stream,
                                     weir__life life)
{
    /* An order begins with the number of its changes. */
    const _Atomic uint64_t *changes = (const void *)order;
    return life.changes == 0 || life.changes == atomic_load(changes) ||
           weir__order_lives_still(order, stream, life);
}

/* The same, and it stays so until weir__order_let_go_life: who ends the stream, or
 * begins to capture it, waits for that, unless he holds one himself. So in between a
 * call may name the stream that was found by its life; it should wait for no other
 * thread, and leave users' code alone. To be called without locks. */
bool weir__order_hold_life(weir__order *order, weir_stream stream, weir__life life);
void weir__order_let_go_life(weir__order *order, weir__life life);

/* A mark behind all that was put on `stream` in that life: the last one, if that has
 * ended. Makes a device call for an unknown stream only, and for a thread's own; of
 * another thread's own it is an aside one. Never fails, as weir__order_free_mark. To be
 * called without locks. */
weir__mark weir__order_life_mark(weir__order *order, weir_stream stream,
                                 weir__life life);

/* The same for who may fail, as weir__order_point. */
weir_status weir__order_life_point(weir__order *order, weir_stream stream,
                                   weir__life life, weir__mark *out);

/* The clock of the legacy stream. */
uint64_t weir__order_legacy(weir__order *order);

/* For tests. */
typedef struct weir__order_size {
    size_t clocks;  /* alive, default and captures included */
    size_t events;  /* made and not destroyed */
    size_t covers;  /* recorded and still held */
} weir__order_size;
weir__order_size weir__order_measure(weir__order *order);
void weir__order_verify(weir__order *order);

#endif
