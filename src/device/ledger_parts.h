/* ledger_parts.h - what the ledger is made of, for its own files only.
 *
 * All functions here run under the ledger's lock; those that answer bool answer false
 * where host memory was missing, and the ledger is then made deaf by whoever called
 * from outside. */
#ifndef WEIR_DEVICE_LEDGER_PARTS_H
#define WEIR_DEVICE_LEDGER_PARTS_H

#include "ledger.h"
#include "ledger_clock.h"
#include "ledger_foreign.h"
#include "ledger_history.h"
#include "ledger_table.h"
#include "sync.h"

/* A device that keeps the ledger; from its first stream or memory to its end. */
typedef struct weir__ledger_device {
    weir__name name;                    /* the owner's device */
    weir__ledger_owner owner;
    struct weir__ledger_stream *legacy; /* or null */
    weir__vector ended;                 /* all that its ended streams were behind */
} weir__ledger_device;

/* Kept after its end for as long as the history names it. */
typedef struct weir__ledger_stream {
    weir__name name;                    /* its id */
    weir__ledger_device *device;        /* null once it has ended */
    bool is_legacy;
    bool is_blocking;
    bool is_named;                      /* by the history; while pruning only */
    bool is_graphs;                     /* may use what a capture keeps */
    bool is_foreign;                    /* another process's: always as if ended */
    bool is_forgotten;                  /* and by that, too */
    bool is_listed;                     /* while a telling is being heard only */
    uint64_t time;                      /* its last epoch; foreign: the last heard of */
    weir__vector clock;                 /* its own epoch included */
} weir__ledger_stream;

/* A host thread, or a key of Weir's hand-overs. Neither has epochs of its own: the
 * host makes no access that the history would keep. */
typedef struct weir__ledger_holder {
    weir__name name;                    /* the thread's number; device and key */
    bool may_touch_all;                 /* of a thread: see weir__ledger_inspect */
    weir__vector clock;
} weir__ledger_holder;

/* Another process, from its first telling to its end. */
typedef struct weir__ledger_process {
    struct weir__ledger_process *next;
    uint64_t number;                    /* that it drew */
    uint64_t heard;                     /* the last of its tellings */
    weir__ledger_teller teller;
} weir__ledger_process;

typedef struct weir__ledger_memory {
    weir__name name;                    /* where it begins */
    uintptr_t end;
    weir__ledger_device *device;
} weir__ledger_memory;

struct weir__ledger_position {
    uint64_t references;
    struct weir__ledger_position *next; /* all positions, so that they can be thinned */
    struct weir__ledger_position *before;
    weir__vector clock;                 /* immutable in what it says */
};

typedef enum weir__found_kind {
    WEIR__FOUND_RACE,
    WEIR__FOUND_USE_AFTER_FREE,
    WEIR__FOUND_OWNED_TWICE,
    WEIR__FOUND_GUARD
} weir__found_kind;

/* A finding of the call in progress, before it is told. */
typedef struct weir__found {
    weir__found_kind kind;
    weir__access first;
    bool second_writes;
    uintptr_t begin;
    uintptr_t end;
    uintptr_t block;  /* that guard bytes are beside; else 0 */
    size_t block_bytes;
} weir__found;

struct weir__ledger {
    weir__mutex lock;            /* guards all but `opens` */
    size_t opens;                /* guarded by the lock of weir__ledger_open */
    bool is_deaf;
    weir__table streams;
    weir__table threads;
    weir__table keys;
    weir__table devices;
    weir__table memories;
    weir__history history;
    weir__ledger_position *positions;
    weir__vector floor;          /* without threads: what the last one knew */
    weir__vector scratch;        /* of the pruning */
    weir__found *found;          /* of the call in progress */
    size_t found_count;
    size_t found_room;
    size_t ended;                /* streams that have ended and are kept */
    uint64_t process;            /* what this one drew; 0: not yet */
    uint64_t tellings;           /* so many it has told */
    weir__vector told;           /* in all of these */
    weir__ledger_process *processes;
    size_t prune_at;             /* the weight at which to prune next */
};

/* ---- ledger.c: in and out ---- */

/* Locks; false (and not locked): the ledger is deaf. */
bool weir__ledger_in(weir__ledger *self);
/* Unlocks; all that was to be recorded has been, or the ledger is deaf from now on. */
void weir__ledger_out(weir__ledger *self, bool recorded);

/* ---- ledger_actors.c: who takes part ---- */

/* Names of devices (number 0), and of keys of a device. */
static inline weir__name weir__ledger_name(const void *device, uint64_t number)
{
    return (weir__name){ .realm = (uintptr_t)device, .number = number };
}

/* The stream of that id, which has begun and not ended. */
weir__ledger_stream *weir__ledger_stream_of(const weir__ledger *self, uint64_t id);
/* These make what is not there yet; null: no host memory. */
weir__ledger_holder *weir__ledger_thread_of(weir__ledger *self, uint64_t number);
weir__ledger_holder *weir__ledger_key_of(weir__ledger *self, const void *device,
                                         uint64_t key);
weir__ledger_device *weir__ledger_device_of(weir__ledger *self,
                                            const weir__ledger_owner *owner);
void weir__ledger_holder_free(weir__ledger_holder *holder);

/* A position behind nothing yet, or behind what `clock` is, with one reference;
 * null: no host memory. */
weir__ledger_position *weir__ledger_position_create(weir__ledger *self);
weir__ledger_position *weir__ledger_position_of(weir__ledger *self,
                                                const weir__vector *clock);
void weir__ledger_position_free(weir__ledger *self, weir__ledger_position *position);

bool weir__ledger_add_stream(weir__ledger *self, const weir__ledger_owner *owner,
                             uint64_t id, bool is_legacy, bool is_blocking);
/* What was put on it may still run: device waits go on waiting for that. */
bool weir__ledger_end_stream(weir__ledger *self, weir__ledger_stream *stream);
/* Joins what all streams of `device` are behind, ended ones too, into `clock`. */
bool weir__ledger_join_all(weir__ledger *self, const weir__ledger_device *device,
                           weir__vector *clock);
void weir__ledger_end_device(weir__ledger *self, void *device);
/* Frees all that it holds. */
void weir__ledger_empty(weir__ledger *self);

/* ---- ledger_check.c: judging an access, and telling what was found ---- */

/* What touches memory now. */
typedef struct weir__act {
    const weir__ledger_device *device;  /* who is told */
    const weir__ledger_stream *stream;  /* null: the host */
    const weir__vector *clock;          /* what it really is behind */
    bool is_operation;
    bool is_here_alone;                 /* and nothing to other processes */
    bool may_touch_all;                 /* whoever has it */
    const char *what;
    weir__epoch epoch;
    uint64_t capture;                   /* that takes memory; or 0 */
} weir__act;

bool weir__ledger_use(weir__ledger *self, const weir__act *act, uintptr_t begin,
                      uintptr_t end, bool writes);
/* The host does, and enters nothing. */
bool weir__ledger_look_at(weir__ledger *self, const weir__act *act, uintptr_t begin,
                          uintptr_t end, bool writes);
/* What the block has besides the `had` bytes of before. */
bool weir__ledger_hand_out(weir__ledger *self, const weir__act *act, uintptr_t ptr,
                           size_t had, size_t bytes);
/* Without an act (null): behind points, or to a capture. */
bool weir__ledger_take_back(weir__ledger *self, const weir__act *act, uintptr_t ptr,
                            size_t bytes, uint64_t capture);
bool weir__ledger_end_capture(weir__ledger *self, uint64_t capture);
/* The bytes are beside `block`; or (no `block_bytes`) of no block any more. */
bool weir__ledger_set_guard(weir__ledger *self, uintptr_t begin, uintptr_t end,
                            uintptr_t block, size_t block_bytes);
/* The host need not be behind the allocation of that block. */
bool weir__ledger_open_block(weir__ledger *self, uintptr_t ptr, size_t bytes);
bool weir__ledger_has_block(const weir__ledger *self, uintptr_t ptr, size_t bytes);
/* The bytes are a pool's, and nobody's; begin with the act, and (anew) as if nothing
 * had been before; or go back to the pool with it. */
bool weir__ledger_pool_hold(weir__ledger *self, uintptr_t begin, uintptr_t end);
bool weir__ledger_pool_begin(weir__ledger *self, const weir__act *act, uintptr_t begin,
                             uintptr_t end, bool anew);
bool weir__ledger_pool_take_back(weir__ledger *self, const weir__act *act,
                                 uintptr_t begin, uintptr_t end);
/* The memory ends at the host. */
bool weir__ledger_end_memory(weir__ledger *self, const weir__act *act, uintptr_t begin,
                             uintptr_t end);

/* Tells the owner of act's device all that was found since the last time. */
void weir__ledger_tell(weir__ledger *self, const weir__act *act);
void weir__ledger_tell_deaf(const weir__ledger_owner *owner);

/* One past the last of `bytes` bytes at `ptr`, at most the end of all addresses. */
static inline uintptr_t weir__end_of(uintptr_t ptr, size_t bytes)
{
    return bytes > UINTPTR_MAX - ptr ? UINTPTR_MAX : ptr + bytes;
}

/* ---- ledger_foreign.c ---- */

/* The streams of processes that have ended are forgotten. */
void weir__ledger_forget_ended(weir__ledger *self);

/* ---- ledger_prune.c ---- */

/* What all threads are behind, in `scratch`. */
bool weir__ledger_find_floor(weir__ledger *self);
void weir__ledger_prune_if_due(weir__ledger *self);

#endif
