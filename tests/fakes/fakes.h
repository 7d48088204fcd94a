/* fakes.h - the stand-in for the CUDA runtime and driver: what a test sets and asks.
 *
 * Behind each ordinal is one emulated device, which lives as long as somebody retains
 * the primary context, and nobody resets it; what is in flight ends with it. All
 * functions that CUDA's headers declare and the stand-in does not provide stop the
 * program with their name.
 *
 * In a test program the emulated device is the program's own, and tests/support.c sets
 * what it is. The shared object has a copy of it, hidden, and takes its settings from
 * the environment: WEIR_STAND_IN=threads (the default), no-work or stepped:SEED, and
 * WEIR_STAND_IN_DEVICES, how many there are (2). */
#ifndef WEIR_TESTS_FAKES_H
#define WEIR_TESTS_FAKES_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/emulated.h"

struct weir__emulated;

#define FAKES_DEVICES 16

/* ---- what there is ---- */

/* The machine that programs see; all zero is one with everything, and 16 devices. */
typedef struct fakes_machine {
    int devices;          /* 0: FAKES_DEVICES; less than 0: none */
    int runtime_version;  /* 0: that of the headers */
    int driver_version;   /* 0: the runtime's own; less than 0: no driver */
    const char *missing;  /* an entry point that the driver has not; null: none */
    bool no_peers;        /* no device reaches another */
    bool no_pools;        /* of memory */
    bool no_managed;
    bool no_pageable;     /* no device reaches ordinary host memory, */
    bool no_registered;   /* or has registered memory at the host's address */
    bool no_host_pools;   /* pools are of the devices' own memory only, */
    bool no_handles;      /* and none can be shared */
    bool no_mapping;      /* no memory is mapped by the program, */
    bool no_descriptors;  /* or has file descriptors that stand for it, */
    bool no_rdma;         /* or is reached by other devices on the bus */
    bool no_ipc;          /* no handles of memory or events for other processes */
    bool packs_blocks;    /* cudaMalloc's blocks lie beside each other, whatever size */
    bool opens_own;       /* handles of memory can be opened where they were made */
    bool imports_elsewhere; /* what is imported is of the next device */
    bool closes_pools;    /* who imports a pool may not reach it yet */
    size_t granule;       /* in which mapped memory is best made; 0: 2 MiB */
} fakes_machine;

/* Null: everything. */
void fakes_set_machine(const fakes_machine *machine);
/* How the device of `ordinal` is emulated, from its next opening on; null: as it is
 * by default. */
void fakes_set_device(int ordinal, const weir_emulated_options *options);
/* The device behind `ordinal`; null: nobody retains its context. */
struct weir__emulated *fakes_emulated(int ordinal);

/* ---- faults ---- */

/* From the nth next call of the function `name` (null: of any that can fail) on, one
 * answers `error`, a cudaError_t, having done nothing; or all do. An error that spoils
 * a context is answered by every later call in that. 0 for nth: no faults any more.
 * Popping a context and putting a capture mode back fail only by name. */
void fakes_fail(const char *name, uint64_t nth, bool lasting, int error);
/* How many calls there were that the planned fault counted; and the name of the first
 * that it struck, or null. */
uint64_t fakes_fault_calls(void);
const char *fakes_fault_struck(void);

/* ---- what happened ---- */

/* How often the function was called since the last fakes_forget. It is provided. */
uint64_t fakes_calls(const char *name);
void fakes_forget(void);

/* What is out, and what should never have been. */
typedef struct fakes_state {
    /* the calling thread's */
    int pushed;             /* contexts on its stack */
    int last_error;         /* what cudaGetLastError would answer */
    bool is_relaxed;        /* its capture mode is not the default */
    /* of all devices */
    int retained;           /* how often primary contexts are */
    int64_t device_blocks;  /* memory that is out: what cudaFree frees, */
    int64_t pool_blocks;    /* what cudaFreeAsync frees, */
    int64_t pinned_blocks;  /* what cudaFreeHost frees, */
    int64_t registered_blocks; /* and the caller's own */
    int64_t streams;
    int64_t events;
    int64_t pools;
    int64_t graphs;         /* with their instances */
    int64_t objects;        /* handles of cuMemCreate's and imported ones, */
    int64_t mappings;       /* where they are mapped, */
    int64_t addresses;      /* and ranges that are reserved */
    int64_t opened;         /* of cudaIpcOpenMemHandle, not closed */
    uint64_t refused;       /* of all these, what was not taken back when it was due */
    /* since the last fakes_forget */
    uint64_t timed_events;  /* events made with timing */
    uint64_t event_flags;   /* or'ed, of all that were made */
    uint64_t stream_flags;
    uint64_t set_devices;   /* calls of cudaSetDevice */
    uint64_t implicit;      /* contexts that a runtime call without one has made */
    uint64_t spoilt;        /* captures that an unsafe call has spoilt */
    uint64_t rdma_objects;  /* made for other devices on the bus as well */
} fakes_state;

fakes_state fakes_look(void);
/* As if the process ended here, for the test programs: the module keeps no context any
 * more of a device that is closed, and no fault is planned. */
void fakes_end_process(void);
/* Claims nothing: all that is out is forgotten, and the thread has no context and no
 * last error. For after a test that leaves things behind on purpose, or has failed. */
void fakes_reset(void);

#endif
