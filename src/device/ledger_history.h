/* ledger_history.h - what happened to each byte that could still matter.
 *
 *     memory    |------------------------------------------------|
 *     pieces    | raw      | out, block A | back    | out, B      |
 *     accesses    (none)     s5 w, s7 r     s5 w      s9 w
 *
 * All memory that has begun is cut into pieces: runs of bytes with one lease (who has
 * been handed them) and one set of accesses. Pieces lie in a skip list by address;
 * those of one memory leave no gap, and neighbours that say the same are one piece.
 *
 * The accesses of a piece are those that no later one stands for: writes that no
 * later write was ordered after, and reads that no later read or write was ordered
 * after. So a stream has at most one of each kind, and they are kept sorted by
 * stream, reads first. */
#ifndef WEIR_DEVICE_LEDGER_HISTORY_H
#define WEIR_DEVICE_LEDGER_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ledger_clock.h"

typedef struct weir__access {
    weir__epoch epoch;
    const char *what;   /* static: "kernel", "allocate" */
    bool writes;
} weir__access;

typedef enum weir__lease_state {
    WEIR__LEASE_RAW = 0, /* nobody ever told */
    WEIR__LEASE_OUT,     /* handed out as part of a block */
    WEIR__LEASE_BACK,    /* and given back */
    WEIR__LEASE_KEPT,    /* and given back to a capture, whose graph may use it */
    WEIR__LEASE_GUARD    /* beside a block, and nobody's */
} weir__lease_state;

typedef struct weir__lease {
    weir__lease_state state;
    uintptr_t ptr;      /* out, guard: the block */
    size_t bytes;
    weir__epoch since;  /* of the allocation or deallocation; stream 0: not known */
    bool is_open;       /* out: the host need not be behind the allocation */
    uint64_t capture;   /* out: that it was handed out for; kept: that keeps it; or 0 */
} weir__lease;

typedef struct weir__piece {
    uintptr_t begin;
    uintptr_t end;
    uintptr_t memory;   /* where the memory begins that it is part of */
    weir__lease lease;
    weir__access *accesses;
    uint32_t count;
    uint32_t room;
    uint32_t height;
    struct weir__piece *next[]; /* by height; [0] is the neighbour or one further on */
} weir__piece;

#define WEIR__HISTORY_HEIGHT 16

typedef struct weir__history {
    weir__piece *first[WEIR__HISTORY_HEIGHT];
    size_t pieces;
    size_t accesses;    /* in all pieces */
    uint64_t draw;      /* for heights */
} weir__history;

void weir__history_init(weir__history *self);
void weir__history_free(weir__history *self);

/* Memory begins, clean; none of it may be there yet. False: no host memory. */
bool weir__history_begin(weir__history *self, uintptr_t begin, uintptr_t end);
void weir__history_end(weir__history *self, uintptr_t begin, uintptr_t end);

/* The first piece with a byte at or after `begin`; null: none. */
weir__piece *weir__history_first(const weir__history *self, uintptr_t begin);

/* Makes `begin` and `end` bounds of pieces, where there are any. False: no host memory;
 * the history is sound and says the same. */
bool weir__history_cut(weir__history *self, uintptr_t begin, uintptr_t end);

/* Makes one of neighbours that say the same, from the piece before `begin` to the
 * piece after `end`. */
void weir__history_heal(weir__history *self, uintptr_t begin, uintptr_t end);

/* Keeps the accesses of `piece` that `is_kept` wants. */
void weir__piece_filter(weir__history *self, weir__piece *piece,
                        bool (*is_kept)(void *context, const weir__access *access),
                        void *context);

/* False: no host memory. The piece has none of this stream and kind. */
bool weir__piece_add(weir__history *self, weir__piece *piece, weir__access access);

void weir__history_verify(const weir__history *self);

#endif
