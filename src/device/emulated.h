/* emulated.h - what the files of the emulated device share.
 *
 *     handle (weir_stream) --> queue --> work --> work      a queue runs in order
 *     event (weir_event)   --> queue, position              done: the queue is past it
 *     work depends on          (queue, position), ...       waits, the legacy rules
 *
 * One lock per device guards everything of it but its memory records (memory lock)
 * and findings (their own). A handle is only a way to a queue: it can be destroyed,
 * and used for another stream, while the queue still has work. Queues are counted:
 * by their handle, by events and work that refer to them, by their worker, and while
 * they are active, which is: while work is left.
 */
#ifndef WEIR_DEVICE_EMULATED_H
#define WEIR_DEVICE_EMULATED_H

#include <stdatomic.h>

#include "device/device.h"
#include "device/ledger.h"
#include "internal.h"
#include "sync.h"

typedef struct weir__emulated weir__emulated;

/* The numbers that a driver gives for the same failures. */
enum {
    WEIR__NATIVE_INVALID_VALUE = 1,
    WEIR__NATIVE_OUT_OF_MEMORY = 2,
    WEIR__NATIVE_BAD_HANDLE = 400,
    WEIR__NATIVE_BAD_STATE = 401,
    WEIR__NATIVE_BAD_ADDRESS = 700,
    WEIR__NATIVE_DEADLOCK = 702,
    WEIR__NATIVE_REGISTERED = 712,
    WEIR__NATIVE_NOT_REGISTERED = 713,
    WEIR__NATIVE_LOST = 719,
    WEIR__NATIVE_NOT_SUPPORTED = 801,
    WEIR__NATIVE_CAPTURE_UNSUPPORTED = 900,
    WEIR__NATIVE_CAPTURE_SPOILT = 901,
    WEIR__NATIVE_CAPTURE_MERGE = 902,
    WEIR__NATIVE_CAPTURE_UNMATCHED = 903,
    WEIR__NATIVE_CAPTURE_UNJOINED = 904,
    WEIR__NATIVE_CAPTURE_ISOLATION = 905,
    WEIR__NATIVE_CAPTURE_IMPLICIT = 906,
    WEIR__NATIVE_CAPTURED_EVENT = 907,
    WEIR__NATIVE_PLANNED = 999
};

/* ---- memory: emulated_blocks.c, emulated_memory.c ---- */

/* Adjoining blocks in address order, in a search tree that is balanced by chance: each
 * knows the largest free block below it. */
typedef struct weir__block {
    uintptr_t ptr;
    size_t bytes;
    bool is_free;
    bool is_pooled; /* by one of the device's own pools: no peer reaches it */
    uint64_t priority;
    size_t largest_free; /* in this subtree; 0: none */
    struct weir__block *left;
    struct weir__block *right;
} weir__block;

typedef struct weir__blocks {
    weir__block *root;
    uint64_t random;
} weir__blocks;

weir__block *weir__block_make(uintptr_t ptr, size_t bytes, bool is_free);
void weir__blocks_insert(weir__blocks *self, weir__block *block);
void weir__blocks_remove(weir__blocks *self, weir__block *block);
/* To be called after bytes or is_free of `block` has changed. */
void weir__blocks_refresh(weir__blocks *self, weir__block *block);
/* The last block that begins at `ptr` or before, and the first that begins behind. */
weir__block *weir__blocks_at_or_below(weir__blocks *self, uintptr_t ptr);
weir__block *weir__blocks_above(weir__blocks *self, uintptr_t ptr);
/* The lowest free block with room for `bytes`. */
weir__block *weir__blocks_first_fit(weir__blocks *self, size_t bytes);
/* The same of those that begin above `ptr`. */
weir__block *weir__blocks_fit_above(weir__blocks *self, uintptr_t ptr, size_t bytes);
void weir__blocks_clear(weir__blocks *self);

/* A device's memory: addresses that the host cannot touch, and the same bytes where it
 * can. Counted: by its device, and by the devices that may reach it as a peer. */
typedef struct weir__arena {
    unsigned char *base; /* device addresses begin here */
    unsigned char *view; /* where work reaches the same bytes */
    size_t bytes;
    int fd;
    int32_t ordinal;
    bool keeps_pages;    /* what is given back stays: as where nothing is touched */
    struct weir__arena *home; /* an object's: of its device, and it ends no later; or
                                 this arena itself */
    weir_share_kind kind;     /* of an object; POOL: all that one pool may have */
    bool is_imported;         /* it is another process's, */
    size_t offset;            /* of whose pool this is all that was opened */
    bool is_freed;            /* and that was freed in stream order */
    bool is_range;            /* see emulated_range.c */
    size_t references;   /* this and all below: guarded by the memory lock */
    size_t free_bytes;
    weir__blocks blocks;
    struct weir__arena *next;
} weir__arena;

/* An arena that a device may reach besides its own. */
typedef struct weir__peer {
    weir__arena *arena; /* counted */
    struct weir__peer *next;
} weir__peer;

weir_status weir__arena_open(int32_t ordinal, size_t bytes, weir__arena **out);
/* The device closes: nothing in it can be reached any more. */
void weir__arena_close(weir__arena *arena);
weir_status weir__arena_malloc(weir__arena *arena, size_t bytes, bool is_pooled,
                               void **out);
/* *bytes: how many it had. */
weir_status weir__arena_free(weir__arena *arena, void *ptr, size_t *bytes);
size_t weir__arena_free_bytes(weir__arena *arena);
/* Where work of `device` finds `bytes` bytes at `ptr`: device memory, a peer's, or any
 * of the host's. */
weir_status weir__memory_view(weir__emulated *device, const void *ptr, size_t bytes,
                              void **out);
weir_status weir__memory_enable_peer(weir__emulated *device, weir__arena *peer);
void weir__memory_drop_peers(weir__emulated *device);

weir_status weir__emulated_malloc(void *device, size_t bytes, void **out);
weir_status weir__emulated_free(void *device, void *ptr);
weir_status weir__emulated_memory_info(void *device, size_t *free_bytes,
                                       size_t *total_bytes);
weir_status weir__emulated_enable_peer(void *device, void *peer);

/* ---- memory of the host's: emulated_host.c ---- */

typedef enum weir__host_kind {
    WEIR__HOST_ORDINARY,
    WEIR__HOST_MANAGED,
    WEIR__HOST_PINNED,
    WEIR__HOST_REGISTERED, /* the caller's */
    WEIR__HOST_POOL,       /* drawn by a pool, */
    WEIR__HOST_POOL_MANAGED /* of managed memory */
} weir__host_kind;

/* These two leave the ledger out. */
weir_status weir__host_memory_make(weir__emulated *device, weir__host_kind kind,
                                   size_t bytes, size_t alignment, void **out);
void weir__host_memory_end(weir__emulated *device, weir__host_kind kind, void *ptr);
/* The device closes: all that is left. */
void weir__host_memory_drop(weir__emulated *device);
weir_status weir__managed_free_locked(weir__emulated *device, void *ptr);

weir_status weir__emulated_host_malloc(void *device, size_t bytes, size_t alignment,
                                       void **out);
weir_status weir__emulated_host_free(void *device, void *ptr);
weir_status weir__emulated_managed_malloc(void *device, size_t bytes,
                                          const weir_managed_options *options,
                                          void **out);
weir_status weir__emulated_pinned_malloc(void *device, size_t bytes, uint32_t flags,
                                         void **out);
weir_status weir__emulated_pinned_free(void *device, void *ptr);
weir_status weir__emulated_host_register(void *device, void *ptr, size_t bytes,
                                         uint32_t flags);
weir_status weir__emulated_host_unregister(void *device, void *ptr);
weir_status weir__emulated_prefer(void *device, void *ptr, size_t bytes,
                                  weir__place place);

/* ---- queues and work: emulated_queue.c ---- */

typedef struct weir__queue {
    weir__emulated *device;
    uint64_t id;          /* never used twice in the process */
    size_t references;
    bool is_legacy;
    bool is_blocking;
    bool is_behind_all;   /* what is put on it is behind all that is on others */
    bool is_detached;     /* its handle is gone: ends when empty */

    uint64_t put;         /* how many operations were put on it */
    uint64_t done;        /* how many of them are done */
    uint64_t last_issue;  /* the device's number for the last of them */
    struct weir__work *first;
    struct weir__work *last;
    bool is_active;       /* on the device's list, while work is left */
    struct weir__queue *previous;
    struct weir__queue *next;

    bool has_worker;      /* scheduler threads */
    bool is_running;      /* the worker runs the first work, without the lock */
    weir__cond wake;

    struct weir__branch *branch; /* of the capture that it is in; null: none */
} weir__queue;

/* Everything put on a queue up to `position`. The device numbers all operations in the
 * order of their issue; `issue` is the number of the last one meant. Or what another
 * process had put when it recorded an event for the `position`th time. */
typedef struct weir__position {
    weir__queue *queue; /* counted where it is kept; null: all queues */
    uint64_t position;
    uint64_t issue;
    struct weir__shared_state *foreign; /* its event; counted likewise; or null */
} weir__position;

typedef enum weir__work_kind {
    WEIR__WORK_MARKER, /* a record or a wait: only its dependencies count */
    WEIR__WORK_GATE,
    WEIR__WORK_KERNEL,
    WEIR__WORK_COPY,
    WEIR__WORK_FILL
} weir__work_kind;

typedef struct weir__work {
    struct weir__work *next;
    uint64_t issue;
    weir__work_kind kind;
    bool gate_is_open;
    uint8_t value;                /* fill */
    uint64_t gate;                /* its number */
    struct weir__work *next_gate; /* on the device's list of closed ones */
    weir_emulated_kernel kernel;
    void *argument;
    size_t bytes;                 /* copy, fill */
    void **views;                 /* kernel: its ranges; copy: to, from; fill: to */
    weir__position *dependencies; /* counted; all null: done, and another's */
    size_t dependency_count;
    struct weir__shared_state *tells; /* a record's event; counted; or null */
    uint64_t record;                  /* the how many-th of it */
} weir__work;

weir_status weir__queue_make(weir__emulated *device, bool is_legacy, bool is_blocking,
                             weir__queue **out);
weir__queue *weir__queue_ref(weir__queue *queue);
void weir__queue_unref(weir__queue *queue);
/* The handle lets go of it: what is on it still gets done. */
void weir__queue_detach(weir__queue *queue);
/* Puts a copy of `work` on `queue`, with its `view_count` views, behind what it must
 * be: `after` (may be null) and the rules of the legacy stream. The copy, for who
 * wants to know it (null in NO_WORK), is written to *out if `out` is not null. */
weir_status weir__queue_put(weir__queue *queue, const weir__work *work,
                            size_t view_count, const weir__position *after,
                            weir__work **out);
/* The same, behind what work put on `rules` would be by the rules of the legacy stream,
 * and however much is pending: nothing runs before the caller gives the lock back. */
weir_status weir__queue_put_by_rules(weir__queue *queue, const weir__queue *rules,
                                     const weir__work *work, size_t view_count,
                                     const weir__position *after, weir__work **out);
/* The first work of `queue` is done. */
void weir__queue_finish(weir__queue *queue);
/* Nothing left on it will run: the device is lost, or it should not have been put. */
void weir__queue_discard(weir__queue *queue);
weir__position weir__queue_position(weir__queue *queue);

/* ---- who runs what when: emulated_schedule.c ---- */

uint32_t weir__emulated_choose(void *device, uint32_t n); /* a weir__chooser */
/* Before work is put: a bound to how much a stepped device lets lie. */
void weir__schedule_make_room(weir__emulated *device);
/* A worker for `queue` where the scheduler wants one. */
weir_status weir__schedule_worker(weir__queue *queue);
/* `queue` has new work. */
void weir__schedule_put(weir__queue *queue);
/* Something was done, or a gate was opened. */
void weir__schedule_changed(weir__emulated *device);
bool weir__schedule_step(weir__emulated *device);
bool weir__position_is_done(weir__emulated *device, weir__position position);
/* A host thread asks, which may move a stepped device on. */
bool weir__schedule_query(weir__emulated *device, weir__position position);
/* A host thread waits; the lock is given back meanwhile. The caller keeps the queue. */
weir_status weir__schedule_wait(weir__emulated *device, weir__position position);
/* Runs what is left, with all gates open, and ends the workers. Other processes are
 * waited for. */
void weir__schedule_drain(weir__emulated *device);

/* ---- streams: emulated_stream.c ---- */

/* What a handle points to. Kept until the device closes, for a stale handle to be
 * recognised; used again for the next stream. */
typedef struct weir__handle {
    uint64_t magic;
    weir__emulated *device;
    weir__queue *queue; /* counted; null: no stream now */
    struct weir__handle *next_free;
} weir__handle;

/* The per-thread stream of one host thread. */
typedef struct weir__own_stream {
    uint64_t thread;
    weir__queue *queue; /* counted */
    struct weir__own_stream *next;
} weir__own_stream;

weir_status weir__stream_find(weir__emulated *device, weir_stream stream,
                              weir__queue **out);
weir_status weir__stream_make(weir__emulated *device, bool blocking, weir_stream *out);
weir_status weir__stream_end(weir__emulated *device, weir_stream stream);
/* Host thread number `thread` has ended: so does its per-thread stream. */
void weir__stream_end_own(weir__emulated *device, uint64_t thread);
void weir__streams_detach(weir__emulated *device);

weir_status weir__emulated_stream_create(void *device, bool blocking, weir_stream *out);
weir_status weir__emulated_stream_destroy(void *device, weir_stream stream);
weir_status weir__emulated_stream_get_id(void *device, weir_stream stream,
                                         uint64_t *out);
weir_status weir__emulated_stream_get_flags(void *device, weir_stream stream,
                                            bool *blocking);
weir_status weir__emulated_stream_is_capturing(void *device, weir_stream stream,
                                               bool *out);
weir_status weir__emulated_stream_sync(void *device, weir_stream stream);
weir_status weir__emulated_stream_query(void *device, weir_stream stream, bool *done);
weir_status weir__emulated_device_sync(void *device);

/* ---- events: emulated_event.c ---- */

typedef struct weir__event {
    uint64_t magic;
    weir__emulated *device;
    bool is_live;
    uint64_t capture;               /* recorded in capture number ...; 0: in none */
    struct weir__node *node;        /* as this, while that capture goes on */
    weir__position at;              /* queue null: never recorded */
    weir__ledger_position *learned; /* counted; null: never, or no ledger */
    struct weir__shared_state *shared; /* with other processes: counted; or null */
    struct weir__event *next_free;
} weir__event;

/* Live, and never recorded. */
weir_status weir__event_make(weir__emulated *device, weir_event *out);
weir_status weir__event_find(weir__emulated *device, weir_event event,
                             weir__event **out);
void weir__events_free(weir__emulated *device);
weir_status weir__emulated_event_create(void *device, weir_event *out);
weir_status weir__emulated_event_destroy(void *device, weir_event event);
weir_status weir__emulated_event_record(void *device, weir_event event,
                                        weir_stream stream);
weir_status weir__emulated_event_record_all(void *device, weir_event event);
weir_status weir__emulated_event_query(void *device, weir_event event, bool *done);
weir_status weir__emulated_event_sync(void *device, weir_event event);
weir_status weir__emulated_stream_wait_event(void *device, weir_stream stream,
                                             weir_event event);

/* ---- graphs and their captures: emulated_capture.c, emulated_graph.c ---- */

/* An operation of a graph. */
typedef struct weir__node {
    struct weir__node *next;        /* in the order of their capture */
    struct weir__branch *branch;
    uint64_t position;              /* the how many-th of its branch, from 1 */
    weir__work work;                /* kind, and what the kind needs */
    const char *what;               /* to the ledger; null: a record or a wait */
    struct weir__node *after;       /* a wait's: the record that it waits for */
    struct weir__graph_memory *memory; /* that it allocates, or frees; or null */
    bool frees;
    weir__ledger_position *learned; /* a record's, while a launch is being put */
    size_t count;                   /* of accesses, and of work.views */
    weir__ledger_access accesses[];
} weir__node;

/* What one stream put into a graph. */
typedef struct weir__branch {
    struct weir_emulated_graph *graph;
    struct weir__branch *next;
    weir__queue *queue;      /* being captured; null: not any more */
    uint64_t count;          /* of nodes */
    uint64_t awaited;        /* the last of them that a wait waits for, from 1 */
    weir__queue *shadow;     /* while a launch is being put: counted */
    uint64_t shadow_base;    /* what is on it in front of the first node */
} weir__branch;

/* A graph, and while it is being made its capture. */
typedef struct weir_emulated_graph {
    weir__emulated *device;
    struct weir_emulated_graph *next; /* on the device's list of either */
    uint64_t number;                  /* of its capture, from 1 */
    bool is_spoilt;
    weir__node *first;
    weir__node *last;
    weir__branch origin;              /* the first of its branches */
    weir__position launched;          /* where the last launch ends: counted; or null */
    weir__ledger_position *learned;   /* by who is behind that: counted; or null */
} weir__graph;

/* Begins a capture of the stream of `queue`. */
weir_status weir__capture_begin(weir__queue *queue);
/* Ends it, also where it fails (but not if another stream was the capture's first). The
 * graph is the device's, until weir__graph_destroy; with a null `out` it is forgotten.
 * *captured is how many operations the capture held, or 0. */
weir_status weir__capture_end(weir__queue *queue, weir__graph **out, size_t *captured);
/* Whether work put on `queue` would go into a capture, or spoil one: of the legacy
 * stream it is so while a blocking stream captures. */
bool weir__capture_has(const weir__queue *queue);
/* Before something is put on `queue`: *taken is the branch that has to have it instead,
 * or null. */
weir_status weir__capture_admit(weir__queue *queue, weir__branch **taken);
/* Adds an operation over `count` accesses to a branch that admitted it. */
weir_status weir__capture_add(weir__branch *branch, const weir__work *work,
                              const char *what, const weir__ledger_access *accesses,
                              size_t count, weir__node **out);
/* Before the host asks about or waits for `queue`, or (null) for the whole device. */
weir_status weir__capture_forbid(weir__emulated *device, weir__queue *queue);
/* Before anybody asks about or waits for an event that a capture recorded. */
weir_status weir__capture_forbid_event(weir__emulated *device, weir__event *event);
/* Before the stream of `queue` waits for `event`: *taken says that this is part of a
 * capture, which `queue` may have joined by it. */
weir_status weir__capture_wait(weir__queue *queue, weir__event *event, bool *taken);
/* The stream of `queue` ends. */
void weir__capture_drop(weir__queue *queue);

void weir__graph_free(weir__graph *graph);
/* Refuses what is no graph of the device. */
weir_status weir__graph_find(weir__emulated *device, weir__graph *graph);
/* Puts all of `graph` behind what is on `queue`, and `queue` behind it. */
weir_status weir__graph_launch(weir__graph *graph, weir__queue *queue);
/* What was launched runs to its end. */
void weir__graph_destroy(weir__graph *graph);
/* Those that nobody destroyed; their launches have ended. */
void weir__graphs_free(weir__emulated *device);

/* ---- memory of graphs: emulated_graph_memory.c ---- */

/* Refuses a launch while memory of the last one is out. */
weir_status weir__graph_memory_admit(const weir__graph *graph);
/* The graph was launched, and ends at graph->launched. */
void weir__graph_memory_launched(weir__graph *graph);
/* Tells the ledger of an operation with memory, on stream `id`. */
void weir__graph_memory_tell(const weir__node *node, uint64_t id);
/* The graph goes: its memory too, when nobody uses it any more. */
void weir__graph_memory_leave(const weir__graph *graph);

/* ---- pools: emulated_mempool.c ---- */

/* A host wait has shown this done (queue null: all queues up to its issue). */
void weir__mempools_learn(weir__emulated *device, weir__position waited);
/* The device closes. */
void weir__mempools_free(weir__emulated *device);

weir_status weir__emulated_mempool_create(void *device,
                                          const weir_async_options *options,
                                          weir_mempool *out);
weir_status weir__emulated_mempool_default(void *device, weir_async_memory memory,
                                           weir_mempool *out);
weir_status weir__emulated_mempool_destroy(void *device, weir_mempool pool);
weir_status weir__emulated_mempool_malloc(void *device, weir_mempool pool,
                                          weir_stream stream, size_t bytes, void **out);
weir_status weir__emulated_mempool_free(void *device, weir_stream stream, void *ptr);
weir_status weir__emulated_mempool_trim(void *device, weir_mempool pool,
                                        size_t keep_bytes);
weir_status weir__emulated_mempool_get_state(void *device, weir_mempool pool,
                                             weir__mempool_state *out);

/* ---- copies, fills, prefetches, kernels, gates: emulated_work.c ---- */

weir_status weir__emulated_copy(void *device, weir_stream stream, void *dst,
                                const void *src, size_t bytes);
weir_status weir__emulated_fill(void *device, weir_stream stream, void *ptr,
                                uint8_t value, size_t bytes);
weir_status weir__emulated_launch(void *device, weir_stream stream,
                                  weir_emulated_kernel kernel, void *argument,
                                  const weir_emulated_range *ranges, size_t count);
weir_status weir__emulated_prefetch(void *device, weir_stream stream, void *ptr,
                                    size_t bytes, weir__place place);
weir_status weir__emulated_gate_put(weir__emulated *device, weir_stream stream,
                                    uint64_t *gate);
weir_status weir__emulated_gate_open(weir__emulated *device, uint64_t gate);
/* Runs it; not of its queue any more, or the queue's first. */
void weir__work_run(const weir__work *work);

/* ---- faults: emulated_fault.c ---- */

/* The head of every primitive: takes the device's lock, whatever it answers, and fails
 * if the device is lost, or a fault is planned for this call. */
weir_status weir__emulated_begin(weir__emulated *device, weir__call call);
weir_status weir__emulated_begin_unplanned(weir__emulated *device); /* no primitive's */
weir_status weir__emulated_refuse_lost(weir__emulated *device);
void weir__emulated_lose(weir__emulated *device); /* under the lock; no wait */
weir_status weir__fault_plan(weir__emulated *device, const weir_emulated_fault *fault);

/* ---- what calls would cost: emulated_costs.c ---- */

/* Once, before any call. */
void weir__costs_set(weir__emulated *device, const weir_emulated_costs *costs);
/* Under the device's lock: a call begins; it is about `bytes` bytes. */
void weir__cost_call(weir__emulated *device, weir__call call);
void weir__cost_bytes(weir__emulated *device, weir__call call, size_t bytes);

/* ---- host threads: emulated_thread.c ---- */

/* A signal that nobody has awaited yet. */
typedef struct weir__signal {
    uintptr_t channel;
    weir__ledger_position *given; /* counted; null without a ledger */
    struct weir__signal *next;
} weir__signal;

/* The calling thread uses emulated devices: they hear of its end. */
void weir__emulated_meet_thread(void);
void weir__emulated_list(weir__emulated *device);
void weir__emulated_unlist(weir__emulated *device);
weir_status weir__host_signal(weir__emulated *device, uintptr_t channel);
weir_status weir__host_await(weir__emulated *device, uintptr_t channel);
void weir__host_forget(weir__emulated *device);
weir_status weir__host_run(weir__emulated *device, size_t count,
                           void (*entry)(void *argument), void *const arguments[]);

/* ---- findings: emulated_finding.c ---- */

enum { WEIR__FINDINGS_KEPT = 64, WEIR__FINDING_WORDS = 400 };

typedef struct weir__findings {
    weir__mutex lock;
    size_t count;
    size_t kept;
    struct weir__finding {
        weir_emulated_finding finding;
        char message[WEIR__FINDING_WORDS];
    } *first; /* room for WEIR__FINDINGS_KEPT; null without a ledger */
} weir__findings;

weir_status weir__findings_make(weir__emulated *device);
void weir__findings_free(weir__emulated *device);
/* What the ledger calls. */
void weir__findings_add(void *device, const weir_emulated_finding *finding);

/* ---- the device: emulated.c ---- */

/* Begins each piece of memory that is kept until the device closes. */
typedef struct weir__slab {
    struct weir__slab *next;
} weir__slab;

struct weir__emulated {
    weir__mutex lock; /* rank device; guards all below, but where it says otherwise */
    weir__cond changed; /* work is done, a worker has ended, a signal was given */
    int32_t ordinal;
    weir_emulated_options options; /* constant */
    char description[64];          /* constant */
    weir__emulated *next_listed;   /* guarded by the list's lock */

    weir__arena *arena;            /* constant; the rest has the memory lock */
    weir__peer *peers;             /* guarded by the memory lock */

    struct weir__mempool *mempools;
    struct weir__graph_memory *graph_memories;
    weir__blocks spans_out;        /* what these have handed out */

    weir__queue *legacy;
    weir__queue *everything;       /* no stream: for events behind all of them; null
                                      before the first */
    weir__queue *active;           /* first of a list: with work left */
    weir__queue *active_last;
    weir__own_stream *own_streams;
    weir__handle *free_handles;
    weir__event *free_events;
    weir__slab *slabs;             /* of handles and events */

    uint64_t issue;                /* how many operations were put on all queues */
    uint64_t waited_issue;         /* NO_WORK: the device wait has passed this one */
    uint64_t pending;              /* work on all queues */
    uint64_t gates;                /* how many numbers were given */
    size_t awaited;                /* waits for other processes, in all work */
    weir__work *closed_gates;
    bool gates_are_open;           /* closing: none holds any more */

    size_t workers;                /* alive */
    size_t running;                /* of these, in work, without the lock */
    struct weir__worker *ended;    /* to be joined */

    weir__graph *captures;         /* being made */
    weir__graph *graphs;
    uint64_t capture_count;

    atomic_uint_least64_t random;  /* state of the schedule's seed */
    uint64_t fault_random;
    weir_emulated_fault fault;     /* kinds 0: none */
    uint64_t fault_calls;
    bool fault_is_on;              /* a lasting one has begun */
    bool is_lost;

    weir_emulated_cost costs[WEIR__CALL_COUNT]; /* constant */
    double modelled_ns;            /* that the calls so far would have taken */

    weir__signal *signals;         /* oldest first */
    weir__signal **signals_end;

    weir__ledger *ledger;          /* constant; null: none */
    weir__ledger_owner owner;      /* constant */
    weir__findings findings;       /* has its own lock */
};

extern const weir__device_ops weir__emulated_ops;

/* The number of the calling host thread. */
static inline uint64_t weir__this_thread(void)
{
    return weir__thread_self()->number;
}

/* Room for another `bytes`, kept until the device closes; null: no host memory. */
void *weir__emulated_keep(weir__emulated *device, size_t bytes);
/* Whether an address may lie in any of that: what is far from it is not read. */
bool weir__emulated_may_keep(const void *handle);

#endif
