/* ledger.h - who may touch which bytes when: vector clocks over streams and host
 * threads, and the history of every byte range.
 *
 * Beside the emulated devices, one for the process; it has a lock of its own, and
 * calls nobody but the findings' listeners. Streams and host threads are actors.
 * Each has a clock: what it is behind. An operation counts when it is put on its
 * stream, with the clock that the stream then has, joined with the clock of the host
 * thread that puts it there: that is all that the program's order promises, whatever
 * the device then does first.
 *
 * Edges: program order of a stream and of a thread; thread -> what it puts on a
 * stream; event record -> stream wait, host wait, successful query; stream and
 * device waits; the legacy stream's rules; what Weir hands over inside (done,
 * learn); what a program declares (signal, await). A position of an event is what
 * counts, never the event: waits made before it is recorded again keep theirs.
 *
 * Legacy: an *operation* on it is behind everything put on every blocking stream
 * before, and the next operation of a blocking stream is behind it. An allocation or
 * deallocation, of a resource or of a device's pool, is no operation: a block handed
 * out on the legacy stream may be behind blocking streams (its use will be an
 * operation), but a deallocation there is behind nothing but the legacy stream's own.
 * What an earlier access was not really ordered before stays in the history. A
 * blocking stream that has ended is no part of a barrier any more; a device wait still
 * covers it.
 *
 * A host thread is met in its first call here. Nothing tells who started it, so it
 * begins with what all threads are behind that have been met and have not ended; the
 * first after the last one with what that one was behind. What two threads tell each
 * other otherwise, and nobody declares, is not seen.
 *
 * Other processes have ledgers of their own. What passes between them, and what is
 * forgotten on the way: ledger_foreign.h.
 *
 * What it keeps: for each byte the accesses that no later one stands for, in pieces as
 * long as they say the same; a clock for each stream, thread, key and position.
 * Forgotten is what all living threads are behind, and each ended stream that no
 * access kept is of. So with hosts that wait, or streams that wait for each other,
 * ended streams leave nothing for long, also while some thread sleeps; what nobody
 * ever waits for stays (one entry for each stream, kind of access and piece), for it
 * may be raced with for ever. A call costs the clocks involved, the pieces it touches
 * and their accesses; pruning adds a constant factor.
 */
#ifndef WEIR_DEVICE_LEDGER_H
#define WEIR_DEVICE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/emulated.h"

typedef struct weir__ledger weir__ledger;
/* Where an event was recorded: counted, for it outlives the event in those who wait. */
typedef struct weir__ledger_position weir__ledger_position;

/* Shared by all emulated devices that keep one: the first open makes it, the last close
 * frees it. Null: no host memory. */
weir__ledger *weir__ledger_open(void);
void weir__ledger_close(weir__ledger *ledger);

/* `owner` is told of findings whose second access is on one of its streams (or by
 * the host on its memory). Called with the ledger's lock: must not call back. */
typedef struct weir__ledger_owner {
    void (*found)(void *device, const weir_emulated_finding *finding);
    void *device;
} weir__ledger_owner;

/* What cannot be recorded for want of host memory makes the ledger deaf from then
 * on: it says so with one finding, rather than stay quiet. Nothing below can fail. */

/* A stream begins or ends. `id` is never reused. The legacy stream is made with
 * is_legacy: one per owner; barriers reach the blocking streams of the same owner. */
void weir__ledger_stream_begin(weir__ledger *ledger, const weir__ledger_owner *owner,
                               uint64_t id, bool is_legacy, bool is_blocking);
/* It runs what a graph holds, and so may use what a capture keeps. */
void weir__ledger_stream_is_graphs(weir__ledger *ledger, uint64_t id);
void weir__ledger_stream_end(weir__ledger *ledger, uint64_t id);

/* Memory of the device (or host memory that it can reach) begins or ends at the calling
 * thread. Ending must come after everything that touched it. */
void weir__ledger_memory_begin(weir__ledger *ledger, const weir__ledger_owner *owner,
                               uint64_t thread, uintptr_t ptr, size_t bytes);
void weir__ledger_memory_end(weir__ledger *ledger, uint64_t thread, uintptr_t ptr);
/* The same for memory of another process's that was open here: what others do with it
 * may go on. */
void weir__ledger_memory_close(weir__ledger *ledger, uint64_t thread, uintptr_t ptr);

/* A pool of the device's own draws memory, returns it, and in between hands out parts
 * of it on stream `id` and takes them back there. Whatever the pool makes wait for
 * what, so that bytes can be handed out again, is ordered for these bytes alone: they
 * begin anew with an access "pool malloc" on that stream, and nobody has learnt
 * anything. A "pool free" is judged as a write, and what comes after it is a use after
 * free. It returns the stream's time, for weir__ledger_is_behind to ask about; 0 (which
 * nobody is ever behind): the ledger is deaf. */
void weir__ledger_pool_draw(weir__ledger *ledger, const weir__ledger_owner *owner,
                            uint64_t thread, uintptr_t ptr, size_t bytes);
void weir__ledger_pool_return(weir__ledger *ledger, uintptr_t ptr);
void weir__ledger_pool_malloc(weir__ledger *ledger, uint64_t thread, uint64_t id,
                              uintptr_t ptr, size_t bytes);
uint64_t weir__ledger_pool_free(weir__ledger *ledger, uint64_t thread, uint64_t id,
                                uintptr_t ptr, size_t bytes);
/* Whether what stream `id` has had put on it was behind time `time` of stream `other`,
 * which may have ended. */
bool weir__ledger_is_behind(weir__ledger *ledger, uint64_t id, uint64_t other,
                            uint64_t time);

/* Memory of a graph, drawn and freed in the same way, is handed out by each launch, and
 * nobody makes that safe: what was done with it before is judged. */
void weir__ledger_graph_malloc(weir__ledger *ledger, uint64_t thread, uint64_t id,
                               uintptr_t ptr, size_t bytes);

/* An operation that host thread `thread` puts on stream `id`. `what` is static:
 * "kernel", "copy", "fill". Ranges of memory that was never begun are ignored;
 * ranges that are not out (given back by note_deallocate) are findings: use after
 * free. */
typedef struct weir__ledger_access {
    uintptr_t ptr;
    size_t bytes;
    weir_emulated_access access;
} weir__ledger_access;
void weir__ledger_operation(weir__ledger *ledger, uint64_t thread, uint64_t id,
                            const char *what, const weir__ledger_access *accesses,
                            size_t count);

/* The host thread touches bytes itself, and is on no stream. */
void weir__ledger_host_access(weir__ledger *ledger, const weir__ledger_owner *owner,
                              uint64_t thread, uintptr_t ptr, size_t bytes,
                              bool writes);

/* The host may touch that block as soon as it has been handed out. */
void weir__ledger_at_once(weir__ledger *ledger, uintptr_t ptr, size_t bytes);

/* Events. record returns the position (one reference), which the event keeps until
 * it is recorded again or destroyed. */
weir__ledger_position *weir__ledger_record(weir__ledger *ledger, uint64_t thread,
                                           uint64_t id);
void weir__ledger_ref(weir__ledger *ledger, weir__ledger_position *position);
void weir__ledger_unref(weir__ledger *ledger, weir__ledger_position *position);
void weir__ledger_stream_wait(weir__ledger *ledger, uint64_t thread, uint64_t id,
                              weir__ledger_position *position);
/* The thread has waited for, or asked with success about, a position, a stream as it
 * was when weir__ledger_record was called on it, or the whole device (all streams of
 * `owner`, as they are now). */
void weir__ledger_host_wait(weir__ledger *ledger, uint64_t thread,
                            weir__ledger_position *position);
/* All streams of `device`: a position that covers them as they are now, to be taken
 * before a device wait begins, and waited for with weir__ledger_host_wait after it. */
weir__ledger_position *weir__ledger_record_all(weir__ledger *ledger, uint64_t thread,
                                               void *device);
/* The same for one stream without counting as an operation on it (a stream wait or
 * query is none): */
weir__ledger_position *weir__ledger_look(weir__ledger *ledger, uint64_t id);

/* Blocks of resources: see note_allocate and the next in device.h. Id 0: back
 * behind points. WEIR__LEDGER_CAPTURE and its number: for a capture, so everything
 * before must be known done to the thread; or back to one. What was handed out for a
 * capture goes back to it whatever the id is: a graph may use the bytes until the
 * capture is released, and need not be behind that deallocation. A deallocation of what
 * is not a block that is out changes nothing (the resource will say so itself); one of
 * no bytes, only that the stream learns what the thread is behind. */
#define WEIR__LEDGER_CAPTURE (UINT64_C(1) << 62)
/* Only what is added counts as handed out now; all goes back as one block. */
void weir__ledger_extend(weir__ledger *ledger, uint64_t thread, uint64_t id,
                         uintptr_t ptr, size_t bytes, size_t new_bytes);
static inline void weir__ledger_allocate(weir__ledger *ledger, uint64_t thread,
                                         uint64_t id, uintptr_t ptr, size_t bytes)
{
    weir__ledger_extend(ledger, thread, id, ptr, 0, bytes);
}
/* What is before `from`, from there to `to`, and behind goes back by itself. */
void weir__ledger_cut(weir__ledger *ledger, uintptr_t ptr, size_t bytes, size_t from,
                      size_t to);
void weir__ledger_deallocate(weir__ledger *ledger, uint64_t thread, uint64_t id,
                             uintptr_t ptr, size_t bytes);

/* No graph uses the memory of that capture any more. */
void weir__ledger_release(weir__ledger *ledger, uint64_t capture);

/* See note_guard and note_inspect in device.h. */
void weir__ledger_guard(weir__ledger *ledger, uint64_t thread, uintptr_t ptr,
                        size_t bytes, uintptr_t block, size_t block_bytes);
void weir__ledger_inspect(weir__ledger *ledger, uint64_t thread, bool begins);

/* Hand-overs inside Weir, by device and key, as in device.h. */
void weir__ledger_done(weir__ledger *ledger, uint64_t thread, void *device,
                       uint64_t key, weir__ledger_position *position);
void weir__ledger_learn(weir__ledger *ledger, uint64_t thread, void *device,
                        uint64_t key);
void weir__ledger_forget(weir__ledger *ledger, void *device, uint64_t key,
                         bool is_kept);
/* A device closes: its streams, memory and keys are gone. */
void weir__ledger_device_end(weir__ledger *ledger, void *device);

/* Hand-overs between host threads: give returns a token with one reference, to be taken
 * once or more and unref'ed. */
weir__ledger_position *weir__ledger_host_give(weir__ledger *ledger, uint64_t thread);
void weir__ledger_host_take(weir__ledger *ledger, uint64_t thread,
                            weir__ledger_position *position);
/* The thread has ended: nothing will be done by it any more. */
void weir__ledger_thread_end(weir__ledger *ledger, uint64_t thread);

/* For tests: how much it holds, and whether it is sound (stops if not). */
typedef struct weir__ledger_size {
    size_t actors;     /* streams and threads with a clock */
    size_t entries;    /* of all clocks and positions */
    size_t ranges;     /* of the history */
    size_t accesses;   /* in all ranges */
} weir__ledger_size;
weir__ledger_size weir__ledger_measure(weir__ledger *ledger);
void weir__ledger_verify(weir__ledger *ledger);

#endif
