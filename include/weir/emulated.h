/* weir/emulated.h - the emulated device: a GPU in software, with a ledger that
 * proves stream order.
 *
 * Memory is real, but at its device address the host cannot touch it: it faults, as
 * on a GPU. Streams run in order and asynchronously. The ledger sees every operation
 * and finds each access that is not ordered after the accesses it must follow,
 * whether or not the bytes happened to collide in this run.
 *
 * What it cannot see: what the host touches by itself, unless it is told
 * (weir_emulated_host_access); accesses to memory that no device has made or registered
 * (malloc's, a stack's), which are never judged; a graph that is launched behind the
 * release of its capture (weir/capture.h), once others have the memory; and what
 * threads tell each other, unless by weir_emulated_host_signal and _await, or in
 * weir_emulated_run_threads. A thread that it meets for the first time counts as behind
 * all that every other thread is behind that it has met, and who joins a thread as
 * behind nothing of that.
 *
 * All calls here answer NOT_SUPPORTED for a device that is not emulated. */
#ifndef WEIR_EMULATED_H
#define WEIR_EMULATED_H

#include "weir/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How work gets done. */
typedef enum weir_emulated_scheduler {
    /* One worker thread per stream: real concurrency. */
    WEIR_EMULATED_THREADS = 0,
    /* No workers: work advances only while a host thread waits or asks, and each time a
     * choice drawn from the seed picks the stream. The same seed gives the same run;
     * with several host threads, if they run under weir_emulated_run_threads. A wait
     * that nothing can end (a closed gate) is answered with DEVICE_ERROR. Once 1024
     * operations are pending, putting another first lets one happen. */
    WEIR_EMULATED_STEPPED = 1,
    /* No work: calls are counted and cost nothing; kernels, copies and fills do
     * nothing; an event is pending until a host wait has passed it. For timing. */
    WEIR_EMULATED_NO_WORK = 2
} weir_emulated_scheduler;

/* Decides among `n` possibilities (n >= 2): returns 0 to n - 1. In place of the
 * seed, for tests that try every order. Called with the device locked: must not
 * call Weir. */
typedef uint32_t (*weir_emulated_chooser)(void *context, uint32_t n);

/* What the ledger found: two accesses to the same bytes, at least one of them a write,
 * with nothing that orders the second after the first; or the use of memory that
 * is not out. Without a ledger, too: a block that goes back to its pool while whoever
 * opened it (WEIR_SHARE_POOL) has not freed it. */
typedef struct weir_emulated_finding {
    size_t struct_size;
    const char *first;       /* "kernel writes", "deallocate", ...; static */
    const char *second;
    uint64_t first_stream;   /* stream ids; 0: the host */
    uint64_t second_stream;
    uintptr_t ptr;           /* the bytes in question */
    size_t bytes;
    const char *message;     /* one sentence that says it all; the device's */
} weir_emulated_finding;

/* Is told of each finding as it is made, with the device locked: must not call Weir. */
typedef void (*weir_emulated_listener)(void *context,
                                       const weir_emulated_finding *finding);

/* What a kind of device call would take on a device of another make. */
typedef struct weir_emulated_cost {
    double ns;         /* each call */
    double ns_per_mib; /* and of each MiB that it is about */
} weir_emulated_cost;

/* What each kind of device call would take; zero: nothing. Of calls that get, give
 * back, register, move, copy or fill memory all bytes count. Pools of the device's own
 * are the exception: mempool_malloc counts the bytes that the pool draws from the
 * device for it, and mempool_trim those that a pool gives back to it, at whatever
 * call. */
typedef struct weir_emulated_costs {
    size_t struct_size;
#define WEIR_DEVICE_CALL_COST(name) weir_emulated_cost name;
    WEIR_DEVICE_CALL_MAP(WEIR_DEVICE_CALL_COST)
#undef WEIR_DEVICE_CALL_COST
} weir_emulated_costs;

/* Zero asks for the default; start from WEIR_EMULATED_OPTIONS_INIT. */
typedef struct weir_emulated_options {
    size_t struct_size;
    size_t memory_bytes;  /* default 32 GiB; costs only what is touched */
    weir_emulated_scheduler scheduler;
    uint64_t seed;        /* of the stepped scheduler, and of faults by chance */
    weir_emulated_chooser choose;  /* in place of the seed; null: the seed */
    void *choose_context;
    bool no_ledger;       /* keep no ledger: nothing is found, everything is faster */
    weir_emulated_listener on_finding; /* may be null */
    void *finding_context;
    const weir_emulated_costs *costs; /* copied; null: nothing costs anything */
} weir_emulated_options;

#define WEIR_EMULATED_OPTIONS_INIT                                               \
    { sizeof(weir_emulated_options), 0, WEIR_EMULATED_THREADS, 0, NULL, NULL,    \
      false, NULL, NULL, NULL }

/* ---- work ---- */

typedef enum weir_emulated_access {
    WEIR_EMULATED_READ = 1,
    WEIR_EMULATED_WRITE = 2,
    WEIR_EMULATED_READ_WRITE = 3
} weir_emulated_access;

/* Bytes that a kernel touches. */
typedef struct weir_emulated_range {
    void *ptr;                    /* a device address, or host memory */
    size_t bytes;
    weir_emulated_access access;
} weir_emulated_range;

/* A "kernel": runs when the stream comes to it. views[i] is where the host can touch
 * ranges[i], for as long as the kernel runs; null for a range of no bytes. Must not
 * call Weir. */
typedef void (*weir_emulated_kernel)(void *argument, void *const views[]);

/* Puts `kernel` on `stream`, with all the byte ranges it touches. `ranges` is copied,
 * `argument` must last until it has run.
 *
 *   DEVICE_ERROR   a range is no memory that this device can reach */
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_launch(weir_device *device, weir_stream stream,
                     weir_emulated_kernel kernel, void *argument,
                     const weir_emulated_range *ranges, size_t count);

/* Puts a closed gate on `stream`: what comes after waits until it is opened. It stands
 * for work that takes as long as a test wants. */
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_stall(weir_device *device, weir_stream stream, uint64_t *gate);

/* Opens it; one that is open stays so. NOT_FOUND: there was never such a gate. */
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_open_gate(weir_device *device, uint64_t gate);

/* Lets one operation of a stream of the scheduler's choice happen, and writes whether
 * there was one that could. NOT_SUPPORTED: the device is not stepped. */
WEIR_API WEIR_NODISCARD weir_status weir_emulated_step(weir_device *device, bool *out);

/* ---- streams as others make them ---- */

/* Makes a stream behind Weir's back, as another library would with the driver: it is
 * unknown to Weir. Its handle is reused soon after it is destroyed. */
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_stream_create(weir_device *device, weir_stream_kind kind,
                            weir_stream *out);
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_stream_destroy(weir_device *device, weir_stream stream);

/* ---- graphs ---- */

/* Begins and ends a graph capture of `stream` as another library would. What is put on
 * it in between does not run: it becomes part of a graph. Another stream that waits for
 * an event recorded in the capture joins it, and must be joined back: `stream`, where
 * the capture ends, has to be behind everything that was put on the others. *captured
 * (may be null) gets how many operations the capture held. The graph is forgotten.
 *
 *   DEVICE_ERROR   of begin: `stream` is captured already, or the legacy stream;
 *                  nothing has begun. Of end: something in between has spoilt the
 *                  capture, or a stream that joined was not joined back: it has ended
 *                  and left nothing; or `stream` is not the one it began on, and it
 *                  goes on; or `stream` is not being captured */
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_capture_begin(weir_device *device, weir_stream stream);
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_capture_end(weir_device *device, weir_stream stream, size_t *captured);

/* What a capture was made into. The caller owns it, until weir_emulated_graph_destroy;
 * one that is still there when the device closes goes with it. */
typedef struct weir_emulated_graph weir_emulated_graph;

/* The same as weir_emulated_capture_end, but keeps what was captured. */
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_capture_end_graph(weir_device *device, weir_stream stream,
                                weir_emulated_graph **out);

/* Puts what `graph` holds on `stream`, as one operation: behind everything put there
 * before, and in front of what comes later. Inside, only what the capture ordered is
 * ordered. May be called often: one launch runs behind the other, also on different
 * streams. Kernels get their arguments again, which must last until the last launch has
 * run. A gate in a graph holds nothing. To the ledger each captured stream is, in each
 * launch, a stream with an id of its own.
 *
 *   DEVICE_ERROR    memory that the graph uses is not out, or it is no graph of this
 *                   device: nothing was put
 *   INVALID_ARGUMENT   memory that the graph allocates from a pool of the device's is
 *                      out since its last launch
 *   NOT_SUPPORTED   `stream` is being captured itself; its capture goes on */
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_graph_launch(weir_device *device, weir_emulated_graph *graph,
                           weir_stream stream);

/* What was launched runs to its end, and what is out of its memory stays out until it
 * is freed. Null is ignored; DEVICE_ERROR: it is no graph of this device. */
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_graph_destroy(weir_device *device, weir_emulated_graph *graph);

/* ---- the ledger ---- */

/* How many findings there were since the device was opened; the first 64 are kept. */
WEIR_API size_t weir_emulated_findings(weir_device *device);

/* Fills *out, whose struct_size the caller has set, with finding number `index`,
 * from 0. NOT_FOUND: there is none, or it was not kept. */
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_get_finding(weir_device *device, size_t index,
                          weir_emulated_finding *out);

/* Declares that one host thread hands over to another: who awaits `channel` (any
 * address, or number) gets one signal, and what the signalling thread knew. Signals
 * are counted; await waits on the host until there is one. */
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_host_signal(weir_device *device, uintptr_t channel);
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_host_await(weir_device *device, uintptr_t channel);

/* Says that the calling thread touches bytes itself, now: it reads a result, or fills
 * what a copy has read. That is how the ledger sees it, for the host needs no call for
 * that: it judges the access by what this thread has waited for, asked with success, or
 * been told. The allocation of a block counts, but where its resource says that blocks
 * are usable at once (weir/resource.h). It is not kept: what this thread puts on
 * streams later is behind it, and whether another thread is, nobody looks.
 *
 *   DEVICE_ERROR       a range is no memory that the host can touch (of the device,
 *                      given back, or not inside one allocation): none was judged
 *   INVALID_ARGUMENT   `ranges` is null and `count` is not 0, or an access is none */
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_host_access(weir_device *device, const weir_emulated_range *ranges,
                          size_t count);

/* Runs `count` host threads until all have returned; thread i calls
 * entry(arguments[i]). On a stepped device they are real threads that pass a baton:
 * one runs at a time, and at public calls, device calls and lock operations it may
 * change. Who goes on is picked by the chooser, at each of them; or by the seed, which
 * lets a thread go on for longer or for shorter: it looks for another at one such place
 * in 1, 4, 16 or 64 (seed % 4). The calling thread waits; all it did happens before
 * what they do, and all they do before it goes on. On other devices they simply run
 * side by side. */
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_run_threads(weir_device *device, size_t count,
                          void (*entry)(void *argument), void *const arguments[]);

/* ---- faults ---- */

/* Kinds of device calls that shall fail; bit i is the i-th of WEIR_DEVICE_CALL_MAP. */
#define WEIR_EMULATED_ALL_CALLS UINT64_MAX

typedef struct weir_emulated_fault {
    size_t struct_size;
    uint64_t kinds;      /* which kinds count and fail; 0: all */
    uint64_t nth;        /* the first to fail: 1 is the next; 0: by chance only */
    bool lasting;        /* all from then on fail; else one */
    double probability;  /* of each to fail, drawn from the seed; 0: none */
    weir_status status;  /* what they answer: default DEVICE_ERROR. DEVICE_LOST: the
                            device is lost for good, whatever `lasting` says */
} weir_emulated_fault;

/* Plans `fault` in place of the one before; null: no more faults. Ordinal bits of kinds
 * come from weir_emulated_call_bit("event_record"), 0 for an unknown name. */
WEIR_API WEIR_NODISCARD weir_status
weir_emulated_set_fault(weir_device *device, const weir_emulated_fault *fault);
WEIR_API uint64_t weir_emulated_call_bit(const char *name);

/* How many calls there were that the planned fault counted. */
WEIR_API uint64_t weir_emulated_fault_calls(weir_device *device);

/* ---- costs ---- */

/* What all device calls so far would have taken by the costs that the device was opened
 * with, in ns, one after the other whichever threads made them. Calls that were refused
 * count, without their bytes. No time passes for it: with the host's own time of a run
 * it predicts what the run takes elsewhere. 0 without costs. */
WEIR_API double weir_emulated_modelled_ns(weir_device *device);

#ifdef __cplusplus
}
#endif
#endif
