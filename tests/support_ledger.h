/* support_ledger.h - a scene for the tests of the ledger: two devices with their
 * streams, one memory each, and two host threads that it has met.
 *
 * Most tests are a scenario with one edge in question, which runs twice: with the edge,
 * where nothing must be found, and without it, where exactly one finding is right. */
#ifndef WEIR_TESTS_SUPPORT_LEDGER_H
#define WEIR_TESTS_SUPPORT_LEDGER_H

#include "device/ledger.h"

#define BASE  ((uintptr_t)0x100000)
#define SIZE  ((size_t)0x100000)
#define PEER  ((uintptr_t)0x900000) /* memory of the other device */
#define BLOCK ((size_t)4096)

/* Streams of the device, and of the other. */
enum { LEGACY = 1, A = 11, B, C, D, BLOCKING = 21, BLOCKING_2, THEIR_LEGACY = 31,
       THEIRS, THEIR_BLOCKING };
/* Keys. */
enum { KEY = 5 };

typedef struct log_of_device {
    size_t count;
    weir_emulated_finding last;
    char message[512];
} log_of_device;

extern weir__ledger *ledger;
extern log_of_device ours, others; /* what the two devices were told */
extern uint64_t host;              /* the thread that acts; 1 at first */
extern const weir__ledger_owner our_owner, other_owner;

/* What an owner is told with: writes to the log that is the owner's device. */
void found(void *device, const weir_emulated_finding *finding);

void set_scene(void);
void clear_scene(void);
void must_have_found(size_t count, bool with);

/* Runs `scenario` with its edge and without. */
void check_edge(void (*scenario)(bool with));
/* The same for what must always be quiet. */
void check_quiet(void (*scenario)(void));

/* Operations, and blocks, by `host`; where no bytes are given: on the first BLOCK. */
void touch(uint64_t stream, uintptr_t ptr, size_t bytes, weir_emulated_access access);
void write_on(uint64_t stream);
void read_on(uint64_t stream);
void allocate_on(uint64_t stream);
void deallocate_on(uint64_t stream);

weir__ledger_position *record(uint64_t stream);
/* These two take over the reference. */
void stream_waits(uint64_t stream, weir__ledger_position *position);
void host_waits(weir__ledger_position *position);
/* A record on `other`, and a wait for it. */
void wait_for(uint64_t stream, uint64_t other);

#endif
