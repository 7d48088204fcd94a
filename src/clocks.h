/* clocks.h - the records behind stream_order.c: clocks, the events that cover their
 * marks, and what each stream is known to be behind. Everything here is under the
 * order's lock and makes no device call.
 *
 *     clock of s    marks  1 ... 4 ... 7 ..... 9      counter = 9
 *                              |       |
 *                    covers   e1(4)   e2(7)           oldest first, strictly increasing
 *                    done = 2, marks 8 and 9 are open
 *
 * A cover is an event that was recorded after all marks up to its number were taken;
 * with it goes a snapshot of what s itself was behind when it was recorded. A mark
 * without a cover is open: on a stream that can still be recorded on that costs an
 * event at the tail when somebody asks; on another thread's own stream an event behind
 * all of the device; elsewhere it is not to be had before a device wait.
 *
 * Giving back may not allocate, so there are at least as many spare covers as
 * clocks, whatever is recorded: a clock that would take more than its share drops a
 * cover of its own, but never the newest (what it covered is then waited for with
 * the next one: later than needed, never too early). Calls that may fail stock up.
 */
#ifndef WEIR_CLOCKS_H
#define WEIR_CLOCKS_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"
#include "stream_order.h"
#include "sync.h"

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define COVERS_MAX     3
#define SPARE_COVERS   1
#define SPARE_CLOCKS   1
#define TRANSIENT_KEEP 2
#else
#define COVERS_MAX     16
#define SPARE_COVERS   8
#define SPARE_CLOCKS   16
#define TRANSIENT_KEEP 64
#endif
#define CLOCK_BUCKETS 1024u
#define CLOCK_ID_BITS 40u /* of an id; what is above them names the order */

/* What a stream is behind: sorted by clock, immutable, counted. Null is "nothing". */
typedef struct weir__behind {
    uint32_t references;
    uint32_t count;
    weir__mark marks[];
} weir__behind;

typedef struct weir__cover {
    struct weir__cover *next;
    weir_event event;        /* null until the first record */
    uint64_t number;         /* covers all marks up to here */
    weir__behind *behind;    /* as it was before the record */
    uint32_t references;     /* the clock's list, and each reader outside the lock */
} weir__cover;

typedef enum weir__clock_kind {
    WEIR__CLOCK_LEGACY,
    WEIR__CLOCK_KNOWN,      /* key: the handle */
    WEIR__CLOCK_PER_THREAD, /* key: the thread's number */
    WEIR__CLOCK_UNKNOWN,    /* key: the stream's id */
    WEIR__CLOCK_CAPTURE,    /* found by id only */
    WEIR__CLOCK_ALL         /* the whole device; found by id only */
} weir__clock_kind;

typedef struct weir__clock {
    uint64_t id;
    weir__clock_kind kind;
    uint64_t key;
    weir_stream stream;
    bool blocking;           /* waits for the legacy stream, and it for this */
    bool created;            /* by weir_stream_create */
    bool retired;            /* its stream must not be touched any more */
    bool retiring;           /* ... and the last event is being recorded */
    bool changing;           /* the listeners are being told of what comes */
    bool has_lives;          /* of which the last mark may be asked for when it ended */
    bool is_recorded;        /* an event was recorded on it, so the driver has met it */
    _Atomic uint64_t counter; /* the last mark taken; also read without the lock */
    uint64_t done;           /* all marks up to here are done */
    weir__cover *covers;     /* recorded, not known done; oldest first */
    uint32_t cover_count;
    weir__behind *behind;
    uint32_t pins;           /* threads that are recording on the stream */
    uint32_t holds;          /* ... that name it in a call: it does not change */
    uint64_t capture;        /* the clock of its declared capture; of a capture, that of
                                the stream; or 0 */
    /* Capture only: the clock of what came into it from outside, which must not even be
     * its own (work from before the capture may use it); of that clock 0. */
    uint64_t adopted;
    bool released;
    weir__mark released_at;  /* what its marks then stand for */
    struct weir__clock *next_by_id;
    struct weir__clock *next_by_key;
    struct weir__clock *next_ending; /* in the queue of those that may be dropped */
    bool ending;             /* is in that queue */
} weir__clock;

struct weir__order {
    _Atomic uint64_t changes; /* of clocks that listeners are told of, from 1; first,
                                 for weir__order_lives */
    weir_device *device;
    bool eager;
    weir__mutex listening;   /* guards the listeners; held while they are called, and
                                while a clock is added that they hear of */
    weir__order_listener *listeners;
    weir__mutex lock;        /* guards everything below and every clock */
    weir__cond changed;      /* a record has ended, or the change of a clock */
    uint64_t last_id;        /* of this order, as its upper bits tell */
    uint32_t live;           /* clocks of streams that may still be used; legacy counts
                                once it was */
    uint32_t blocking;       /* of these, blocking streams */
    bool legacy_met;
    uint32_t clock_count;
    uint32_t captures;       /* declared, and not ended */
    uint32_t recording_all;  /* threads that record behind all of the device, or wait
                                for it: no capture begins meanwhile */
    weir__clock *by_id[CLOCK_BUCKETS];
    weir__clock *by_key[CLOCK_BUCKETS];
    weir__clock *legacy;
    weir__clock *ending_first, *ending_last; /* retired, transient, captures: a queue */
    uint32_t ending_count;
    weir__clock *spare_clocks;  /* for frees on streams that nobody has seen */
    uint32_t spare_clock_count;
    weir__cover *spare_covers;
    uint32_t spare_count;
    uint32_t cover_total;       /* spare, recorded, and in readers' hands */
    /* What is set aside: a mark on it is behind all that the device has been given by
     * then. A wait for the device, or an event behind all of it, ticks in its
     * beginning; so marks are one ahead of the counter. In no table, not counted. */
    weir__clock aside;
};

static_assert(offsetof(struct weir__order, changes) == 0, "it comes first");

/* True for streams that cannot be recorded on later, or by another thread: an event
 * comes with each free, but for what a thread keeps of its own stream. */
static inline bool clock_is_transient(const weir__clock *clock)
{
    return clock->kind == WEIR__CLOCK_PER_THREAD || clock->kind == WEIR__CLOCK_UNKNOWN;
}

/* Whether its stream may end now, or be captured. Under the lock; `changed` tells. Who
 * holds one himself waits for no holds: he would be in his own way. */
static inline bool clock_may_change(const weir__clock *clock)
{
    return !clock->changing &&
           (clock->holds == 0 || weir__own_thread.lives_held != 0);
}

/* Takes a mark; under the lock. */
static inline uint64_t clock_tick(weir__clock *clock)
{
    /* Relaxed: who needs more than the number reads it under the lock. */
    uint64_t number = atomic_load_explicit(&clock->counter, memory_order_relaxed) + 1;
    atomic_store_explicit(&clock->counter, number, memory_order_relaxed);
    return number;
}

/* The number up to which everything freed so far is marked, a wait for which begins
 * now: also what was freed without the order (weir__order_steady); but not what a
 * thread keeps of its own stream, which gets its mark when it is given up. Under the
 * lock. */
static inline uint64_t clock_all_freed(weir__clock *clock)
{
    if (clock_is_transient(clock) || clock->retired ||
        clock->kind == WEIR__CLOCK_CAPTURE)
        return clock->counter;
    return clock_tick(clock);
}

/* Somebody asks for mark `number`: if it was used without the order, as the one that
 * comes next, it is taken now. Under the lock. */
static inline void clock_reach(weir__clock *clock, uint64_t number)
{
    if (clock->counter < number && !clock->retired)
        (void)clock_tick(clock);
}

/* ---- clocks ---- */

/* Makes sure of a spare clock and enough spare covers. To be called without the lock.
 * OUT_OF_HOST_MEMORY: there are fewer. */
weir_status weir__clocks_stock(weir__order *order);
/* Whether that has nothing to do. */
static inline bool weir__clocks_are_stocked(const weir__order *order)
{
    return order->spare_clock_count >= SPARE_CLOCKS &&
           order->spare_count >= order->clock_count + SPARE_COVERS;
}
weir__clock *weir__clock_find(weir__order *order, uint64_t id)
    WEIR_REQUIRES(order->lock);
weir__clock *weir__clock_find_key(weir__order *order, weir__clock_kind kind,
                                  uint64_t key) WEIR_REQUIRES(order->lock);
/* An id that no clock ever had. */
static inline uint64_t weir__clock_name(weir__order *order)
{
    return ++order->last_id;
}
/* The spare clock becomes that with the id `id`, in the tables; null if there is no
 * spare one. */
weir__clock *weir__clock_add(weir__order *order, uint64_t id, weir__clock_kind kind,
                             uint64_t key, weir_stream stream, bool blocking)
    WEIR_REQUIRES(order->lock);
/* Forgets the handle: nobody finds it by key any more, and it may be dropped. */
void weir__clock_retire(weir__order *order, weir__clock *clock)
    WEIR_REQUIRES(order->lock);
/* To the end of the queue of those that may be dropped, and from its beginning. */
void weir__clock_end_later(weir__order *order, weir__clock *clock)
    WEIR_REQUIRES(order->lock);
weir__clock *weir__clock_next_ending(weir__order *order) WEIR_REQUIRES(order->lock);
/* Removes a clock, all of whose marks are done, from everywhere; frees it. Its id is
 * done from now on. */
void weir__clock_drop(weir__order *order, weir__clock *clock)
    WEIR_REQUIRES(order->lock);

/* ---- covers ---- */

/* One of the spares to record with, or null. It is the caller's alone. */
weir__cover *weir__cover_take(weir__order *order) WEIR_REQUIRES(order->lock);
/* Puts a recorded one in `clock`'s list, unless a later or equal one is there. Takes
 * over the caller's reference either way. */
void weir__cover_publish(weir__order *order, weir__clock *clock, weir__cover *cover)
    WEIR_REQUIRES(order->lock);
/* The oldest that covers mark `number`, or null. */
weir__cover *weir__cover_for(weir__clock *clock, uint64_t number);
weir__cover *weir__cover_ref(weir__cover *cover);
/* The last reference puts it among the spares, of which there are never more than were
 * once needed at the same time. */
void weir__cover_unref(weir__order *order, weir__cover *cover)
    WEIR_REQUIRES(order->lock);
/* All marks of `clock` up to `number` are done: drops covers that say no more. */
void weir__clock_done(weir__order *order, weir__clock *clock, uint64_t number)
    WEIR_REQUIRES(order->lock);

/* ---- what is behind what ---- */

/* The number up to which `behind` is behind `clock`. */
uint64_t weir__behind_of(const weir__behind *behind, uint64_t clock);
weir__behind *weir__behind_ref(weir__behind *behind);
void weir__behind_unref(weir__behind *behind);
/* Room for as many marks, or null. */
weir__behind *weir__behind_alloc(size_t count);
/* Fills `room` (for `capacity` marks) with what both are behind and `one` besides, less
 * what is done anyway. False if there is not enough room. */
bool weir__behind_join(weir__order *order, weir__behind *room, size_t capacity,
                       const weir__behind *a, const weir__behind *b, weir__mark one)
    WEIR_REQUIRES(order->lock);

/* ---- all of them ---- */

/* Frees the host memory of everything. Events are destroyed by then. */
void weir__clocks_free(weir__order *order);
void weir__clocks_verify(weir__order *order) WEIR_REQUIRES(order->lock);

#endif
