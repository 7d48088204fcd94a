/* support_program_maker.h - what the two halves of the maker of programs share:
 * support_program_order.c knows what is behind what and how to change that,
 * support_program.c what programs do. */
#ifndef WEIR_TESTS_SUPPORT_PROGRAM_MAKER_H
#define WEIR_TESTS_SUPPORT_PROGRAM_MAKER_H

#include "support_program.h"

/* A set of steps. */
typedef struct bits {
    uint64_t words[PROGRAM_STEPS / 64];
} bits;

typedef struct maker {
    program *made;
    uint64_t random;
    uint64_t weights[PROGRAM_OP_COUNT];
    bits behind[PROGRAM_STEPS];
    bits issued[PROGRAM_HOSTS];
    bits done[PROGRAM_HOSTS];
    struct {
        bool is_out;
        bits writes, accesses;
        bits looks;      /* of hosts, at its record: must be over when it goes */
    } blocks[PROGRAM_BLOCKS];
    struct { bool is_closed; int host; } gates[PROGRAM_SLOTS];
    struct { bool is_open; bits frees, backs, release; } captures[PROGRAM_CAPTURES];
} maker;

static inline bool bits_has(const bits *self, int step)
{
    return self->words[step / 64] >> (step % 64) & 1;
}

static inline void bits_put(bits *self, int step)
{
    self->words[step / 64] |= UINT64_C(1) << (step % 64);
}

void bits_join(bits *self, const bits *other);
/* The first step that is in `self` and not in `other`, or -1. */
int bits_missing(const bits *self, const bits *other);

/* Draws. */
uint64_t below(maker *m, uint64_t n);
bool one_in(maker *m, uint64_t n);

/* A step of nothing in particular; and its place in the program, behind `more` (may be
 * null) besides what its stream and host make it be behind. Returns its number. */
program_step step_by(program_op op, int host);
int emit(maker *m, program_step step, const bits *more);
/* All that who waits for step `number` is behind. */
bits upto(const maker *m, int number);

/* Before `host` waits for anything: it has closed gates that nobody else opens. */
void open_gates(maker *m, int host);
/* Host `to` gets a signal from `from`, and knows what that knew; or hears of all of
 * `steps` in this way. */
void hand_over(maker *m, int from, int to);
void hear_of(maker *m, int host, const bits *steps);

bool is_usable(const maker *m, int stream, int host);
/* `host` hears of how `stream` came to be what it is. */
void meet_stream(maker *m, int host, int stream);
/* A stream that `host` may use. */
int pick_stream(maker *m, int host);
/* -1: there are enough. */
int new_stream(maker *m, program_stream_sort sort, bool is_blocking, int host);

int emit_point(maker *m, int host, int stream);
/* `host` waits for, or asks until it knows, the present end of `stream`, or the event
 * or point of step `number`. */
void emit_sync(maker *m, program_op op, int host, int stream, int number);
/* Sees to it that what `host` next puts on `stream` is behind all `steps`; `rules`:
 * it is an operation, to which the legacy stream's rules apply. */
void order(maker *m, int host, int stream, const bits *steps, bool rules);

#endif
