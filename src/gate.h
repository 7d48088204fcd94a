/* gate.h - a lock between one thread that passes very often, its owner, and flushers
 * that rarely want what it guards.
 *
 *     owner                         flusher, under a lock of the caller's
 *     if (weir__gate_enter(g)) {    weir__gate_close_begin(g);   of each gate
 *         ...                       weir__gate_barrier();        once for all of them
 *         weir__gate_leave(g);      weir__gate_close_wait(g);    of each gate
 *     }                             ...
 *                                   weir__gate_open(g);          of each gate
 *
 * The owner pays two stores and a few loads: no lock, no read-modify-write, no fence.
 * The protocol is Dekker's: each side stores its own word and then loads the other's,
 * and never may both miss the other's store, which a processor holds back behind later
 * loads. Only one side pays for the order, the rare one, by membarrier(2) with
 * MEMBARRIER_CMD_PRIVATE_EXPEDITED: while it runs each thread of the process passes
 * through a full fence somewhere.
 *   1. The fence falls somewhere into the owner's program, behind or before its store
 *      of busy.
 *   2. Behind it: the store is seen by the flusher's load, which comes after the call;
 *      the flusher waits until busy is 0 again.
 *   3. Before it: so is the owner's load of closed, which comes later still, and the
 *      flusher's store came before the call; the owner sees it, and is refused.
 *
 * Where membarrier is not to be had (an old kernel, a sandbox, an emulator) owners
 * fence instead: their store of busy is an exchange, and all four accesses are
 * sequentially consistent, of which never both loads can miss. That is the same for
 * the caller, and costs the owner some ten nanoseconds.
 *
 * What the owner has done inside is seen by the flusher (it leaves by a release that
 * weir__gate_close_wait acquires), and the other way round (weir__gate_open releases,
 * weir__gate_enter acquires). The sanitizer of threads sees all of it.
 *
 * In a stepped run the gate is a lock like any other: a flusher that waits for an owner
 * of the run is woken when it leaves, and a deadlock stops. So inside an owner may take
 * locks and call the device; but it takes none that a flusher holds over
 * weir__gate_close_wait, and waits for nothing that another thread has to do.
 * Nothing here is for a fork's child, which is refused before it comes here. */
#ifndef WEIR_GATE_H
#define WEIR_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "internal.h"

/* A model of the memory puts its own in the place of these; and in gate.c. */
#ifndef WEIR__GATE_MODEL
#define WEIR__GATE_LOAD(word, order)         atomic_load_explicit(word, order)
#define WEIR__GATE_STORE(word, value, order) atomic_store_explicit(word, value, order)
#define WEIR__GATE_EXCHANGE(word, value)     ((void)atomic_exchange(word, value))
/* Keeps the compiler, and it alone, from moving accesses over it. */
#define WEIR__GATE_KEEP_ORDER()              atomic_signal_fence(memory_order_seq_cst)
#endif

/* busy is written by the owner alone, and wants a line that no other thread writes
 * often; closed may be on it, which is written rarely. Both are 0 or 1. */
typedef struct weir__gate {
    _Atomic uint32_t busy;   /* the owner is inside, or about to look whether it may */
    _Atomic uint32_t closed; /* owner: stay out; written by flushers, one at a time */
    uint64_t owner;          /* its number; set by init */
} weir__gate;

/* Owners fence, because membarrier was refused. Set before there is any gate, by
 * weir__gate_prepare at the latest. */
extern bool weir__gate_fences __attribute__((visibility("hidden")));

/* Asks for membarrier, if nobody in the process has. Cannot fail: where it is refused
 * owners fence from then on. */
void weir__gate_prepare(void);

/* An open gate, nobody inside; the calling thread is its owner. Cannot fail. Nothing is
 * to be undone when a gate goes, or when another thread that is to own it calls this
 * again: nobody may be inside then, or at work on the gate, and who comes later is
 * ordered behind it (by the flushers' lock). */
void weir__gate_init(weir__gate *gate);

/* Tells a stepped run that who waits at the gate may go on: the owner has left, or the
 * flusher has opened it or let go of what it guards. Only the address is used, the gate
 * may be gone. */
void weir__gate_tell(const weir__gate *gate);

/* For test builds. */
bool weir__gate_is_mine(const weir__gate *gate);

/* Owner only, and not while inside. True: inside until weir__gate_leave, what the gate
 * guards is the owner's. False: a flusher has closed the gate, and the owner is not
 * inside; who wants to know when it is open waits for the lock that flushers hold.
 * `fences` is what weir__gate_fences is, for who has looked before. */
static inline bool weir__gate_enter_as(weir__gate *gate, bool fences)
{
    WEIR_ASSERT(weir__gate_is_mine(gate), "a thread enters by a gate of another's");
    if (WEIR_UNLIKELY(fences)) {
        WEIR__GATE_EXCHANGE(&gate->busy, 1);
        if (WEIR__GATE_LOAD(&gate->closed, memory_order_seq_cst) == 0)
            return true;
    } else {
        /* Relaxed: it is ordered before the load by the flusher's membarrier. */
        WEIR__GATE_STORE(&gate->busy, 1, memory_order_relaxed);
        WEIR__GATE_KEEP_ORDER();
        /* Acquire: what the last flusher did comes before what is done inside. */
        if (WEIR_LIKELY(WEIR__GATE_LOAD(&gate->closed, memory_order_acquire) == 0))
            return true;
    }
    /* Release, as in weir__gate_leave: earlier visits are over for who reads this. */
    WEIR__GATE_STORE(&gate->busy, 0, memory_order_release);
    return false;
}

static inline bool weir__gate_enter(weir__gate *gate)
{
    return weir__gate_enter_as(gate, weir__gate_fences);
}

/* Owner only, inside. Once it is out a flusher may end the gate: so it looks whether
 * there is one before. In a stepped run nobody else has the turn between the two; and
 * elsewhere a flusher that is missed looks by itself (so relaxed will do). */
static inline void weir__gate_leave(weir__gate *gate)
{
    bool closed = WEIR__GATE_LOAD(&gate->closed, memory_order_relaxed) != 0;
    /* Release: what was done inside comes before what a flusher does. */
    WEIR__GATE_STORE(&gate->busy, 0, memory_order_release);
    if (closed)
        weir__gate_tell(gate);
}

/* The same where since it entered it did nothing by which a stepped run changes threads
 * (no lock, no call of the device): then nobody of the run waits there to be told. */
static inline void weir__gate_leave_alone(weir__gate *gate)
{
    WEIR__GATE_STORE(&gate->busy, 0, memory_order_release);
}

/* Owner only, that was just refused: lets others go on for a while; in a stepped run
 * until a flusher tells. Then it looks again. */
void weir__gate_await(const weir__gate *gate);

/* Flushers of one gate take turns: the caller has a lock for that, from here to
 * weir__gate_open. A flusher may be the gate's owner, if it is not inside. None of
 * these can fail. A later membarrier that is refused though the first was not is no
 * failure to go on from: the process stops with a sentence. */

/* The owner is to be refused; it may be inside, and may yet come in until after
 * weir__gate_barrier. The gate was open. */
void weir__gate_close_begin(weir__gate *gate);

/* From now on the owners of all gates that this thread has begun to close are refused.
 * One call serves any number of them: it is what costs, some microseconds. */
void weir__gate_barrier(void);

/* The same for who closes no gate; leaves errno as it is. False: it is refused, and
 * nothing was done. */
bool weir__gate_fence_all(void);

/* Returns when the owner is not inside: then what the gate guards is the flusher's
 * until weir__gate_open. Waits as long as the owner stays inside, by looking again and
 * again, in a stepped run by passing its turn on. */
void weir__gate_close_wait(weir__gate *gate);

/* The owner may enter again. Also after weir__gate_close_begin alone. */
void weir__gate_open(weir__gate *gate);

/* Whether a flusher has it, by the order of the caller's own doing: exact for a flusher
 * under its lock, and a guess for the owner. */
bool weir__gate_is_closed(const weir__gate *gate);

#ifdef WEIR_TESTING
/* Owners fence, whatever membarrier answers; false: as it answers. While there is no
 * gate in use, and no pool. */
void weir__gate_force_fences(bool force);
#endif

#endif
