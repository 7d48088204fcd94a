/* support_sweep.h - for the fault sweeps: chains of resources, a scene to act in while
 * a planned fault strikes, and what has to hold after each step and at the end.
 *
 * A scene is one emulated device, stepped, with three known streams, one that Weir does
 * not know, and (but for the scenarios that make it) a resource. What a scenario does
 * under the fault goes through the try_ calls: each claims that the answer is a success
 * or the failure that was planned, and that a failure has changed nothing. */
#ifndef WEIR_TESTS_SUPPORT_SWEEP_H
#define WEIR_TESTS_SUPPORT_SWEEP_H

#include "support.h"
#include "weir/weir.h"

#define CHUNK ((size_t)128 << 10) /* what pools draw at once; they hold four at most */
#define SMALL (CHUNK / 16)

/* ---- the resources ---- */

typedef struct sweep_chain {
    const char *name;
    const char *spec; /* for weir_resource_open; null: it has none */
    bool pool;        /* a pool reuses what comes back */
    bool by_legacy;   /* the legacy stream waits for points in its place, which asks for
                         host memory; where that fails the host waits, and where that
                         fails too the block stays out */
    weir_status (*make)(weir_device *device, weir_resource **out);
    bool of_driver;   /* of a pool of the driver's: making it calls the device, giving
                         back takes host memory of the emulated one, and its end waits
                         for nothing */
} sweep_chain;

enum { SWEEP_CHAINS = 11 };
extern const sweep_chain sweep_chains[SWEEP_CHAINS];

/* What the library, but not the emulated device, asks for host memory between the two:
 * claims that it is nothing. */
void sweep_watch_library(weir_device *device);
void sweep_library_must_not_have_asked(weir_device *device);
void sweep_watch_no_more(weir_device *device);

/* ---- the faults ---- */

typedef enum sweep_kind {
    SWEEP_HOST,   /* a host allocation fails; the device keeps no ledger then, for a
                     ledger without memory says so as a finding */
    SWEEP_DEVICE, /* a device call fails, with DEVICE_ERROR */
    SWEEP_LOST    /* a device call finds the device lost */
} sweep_kind;

typedef struct sweep_fault {
    sweep_kind kind;
    uint64_t nth;  /* the first call to fail */
    bool lasting;
} sweep_fault;

/* ---- the scene ---- */

typedef struct sweep_block {
    void *ptr;
    size_t bytes;
    weir_stream stream; /* stamped there; it has not ended */
    uint64_t key;       /* of the stamp; 0: none */
    bool left_out;      /* it was given back, see by_legacy */
} sweep_block;

enum { SWEEP_STREAMS = 3, SWEEP_BLOCKS = 8, SWEEP_GATES = 4 };

typedef struct sweep_scene {
    const sweep_chain *chain;
    sweep_fault fault;
    weir_device *device;
    weir_stream streams[SWEEP_STREAMS]; /* known; the last one blocks */
    weir_stream unknown;
    weir_stream spare;                  /* a scenario's own, or null */
    weir_resource *mr;                  /* null: not made yet, or ended */
    sweep_block blocks[SWEEP_BLOCKS];   /* out; null where none is */
    uint64_t gates[SWEEP_GATES];        /* closed ones */
    size_t gate_count;
    uint64_t keys;
    weir_point points[SWEEP_STREAMS];
    weir_capture *capture;
    bool leaks;                         /* and has said so */
    int times_told;                     /* that the device refused a free */
    size_t host_live;                   /* before the device was opened */
} sweep_scene;

/* A scenario: what is there before, and what the fault strikes. */
typedef struct sweep_scenario {
    const char *name;
    void (*prepare)(sweep_scene *it); /* null: nothing */
    void (*act)(sweep_scene *it);
    bool makes;                       /* the scene has no resource at first */
    bool (*suits)(const sweep_chain *chain); /* null: every one */
} sweep_scenario;

/* Runs `scenario` under `fault` from the opening of the device to its closing, with
 * all claims. Returns how many calls of the fault's kind it made; under the fault
 * that struck, not all that it would have made without. */
uint64_t sweep_run(const sweep_scenario *scenario, const sweep_chain *chain,
                   sweep_fault fault);

/* A teardown: prints what a failed test was at. */
int sweep_tell_where(void **state);

/* Opens and closes a device with the first host allocation failing, then the second,
 * until it opens: once, or with all that follow. Returns how many there are. */
uint64_t sweep_open_device(bool lasting);

/* A scenario, and how many calls it makes on each chain, in the order of
 * sweep_chains; zero where it does not suit. */
typedef struct sweep_entry {
    sweep_scenario scenario;
    uint64_t host[SWEEP_CHAINS];   /* host allocations, the emulated device's too */
    uint64_t device[SWEEP_CHAINS]; /* device calls */
} sweep_entry;

/* Runs `scenario` on `chain` at every point, and tells how many there are. */
void sweep_both(const sweep_scenario *scenario, const sweep_chain *chain,
                uint64_t *host, uint64_t *device);

/* Runs all of `all` at every point: a host allocation, or a device call, that fails
 * once or with all that follow, or with which the device is lost. Claims that there are
 * as many as are written down. */
void sweep_all(const sweep_entry *all, size_t count);
extern uint64_t sweep_points; /* so far */

/* ---- before the fault: all must succeed ---- */

/* Allocates as block number `index` and stamps it. */
void sweep_take(sweep_scene *it, int index, weir_stream stream, size_t bytes);
/* Checks the stamp on `stream` and gives the block back there. */
void sweep_give(sweep_scene *it, int index, weir_stream stream);
void sweep_stall(sweep_scene *it, weir_stream stream);
void sweep_open_gates(sweep_scene *it);
/* Puts `stream` behind `other` with an event of the device's, of which Weir learns
 * nothing. */
void sweep_order(sweep_scene *it, weir_stream stream, weir_stream other);

/* ---- under the fault ---- */

/* Claims that `status` is one that may be answered now; true: it is OK. */
bool sweep_went_well(const sweep_scene *it, weir_status status);
/* As block number `index`, not stamped yet. True: it is there. */
bool attempt(sweep_scene *it, int index, weir_stream stream, size_t bytes);
/* The same for an allocation that gives free memory back on the way: a failure may
 * leave less held than before. */
void attempt_or_shrink(sweep_scene *it, int index, weir_stream stream, size_t bytes);
/* Each claims that it succeeds, and that the library allocates no host memory. */
void must_give(sweep_scene *it, int index, weir_stream stream);
void must_give_after(sweep_scene *it, int index, size_t count);
void must_free(sweep_scene *it, int index);
/* For what may fail and has no out parameter: claims that a failure changes no number
 * of the resource's. */
#define try_call(it, call)                                                       \
    (sweep_before(it), sweep_after((it), (call)))
void sweep_before(sweep_scene *it);
bool sweep_after(sweep_scene *it, weir_status status);
/* The last unref; and what is to be said after the resource has ended otherwise: the
 * memory is back, or the fault lasts and the library has said that it leaks. */
void sweep_end_resource(sweep_scene *it);
void sweep_has_ended(sweep_scene *it);

#endif
