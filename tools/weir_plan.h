/* weir_plan.h - who does what in a replay: each block's streams and host threads.
 *
 * Drawn up once from the trace, the spread and the seed, so that every pass and every
 * resource gets the same work. A block is written on the stream that it is allocated
 * on, read on the stream that uses it, and freed there; where these are two, the
 * second is made to wait for the first right after the writing: a handoff.
 *
 * What failed in the trace, and what was about zero bytes, is not played.
 *
 * What holds: a lane's events are in the order of the trace, each event is in
 * one lane, and an allocation stands before its free in the trace. So the lane whose
 * next event is the earliest can always go on. */
#ifndef WEIR_PLAN_H
#define WEIR_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir_trace.h"

typedef enum plan_spread {
    PLAN_TRACE,   /* the streams that the trace names */
    PLAN_RANDOM,  /* any; half of the blocks are used on another one */
    PLAN_THREAD,  /* one for each thread of the trace, in turn */
    PLAN_PHASE    /* one for each part of the trace, in turn */
} plan_spread;

/* With PLAN_PHASE the trace is cut into this many parts per stream, of one length. */
#define PLAN_PHASES_PER_STREAM 4

typedef struct plan_block {
    size_t bytes;
    size_t alignment;
    uint64_t id;
    size_t line;            /* of the allocation, in the trace */
    uint32_t allocated_on;  /* index of the stream */
    uint32_t used_on;       /* and freed on */
    uint32_t allocated_by;  /* index of the lane */
    uint32_t freed_by;
    bool is_freed;          /* by the trace; else when all is over */
} plan_block;

typedef struct plan_event {
    uint32_t position;      /* among the events of all lanes */
    uint32_t block;
    bool is_free;
} plan_event;

/* What one host thread does. */
typedef struct plan_lane {
    plan_event *events;     /* part of plan.events */
    size_t count;
} plan_lane;

typedef struct plan {
    plan_block *blocks;
    size_t block_count;
    plan_event *events;
    size_t event_count;
    plan_lane *lanes;
    size_t lane_count;
    size_t stream_count;
    uint32_t legacy_stream; /* the one that is the legacy one, or TRACE_NO_STREAM */
    size_t streams_used;
    size_t handoffs;        /* from stream to stream */
    size_t crossings;       /* blocks freed by another host thread */
    size_t peak_live_bytes; /* in the order of the trace */
} plan;

typedef struct plan_options {
    plan_spread spread;
    size_t stream_count;    /* with PLAN_TRACE: not looked at */
    size_t thread_count;
    uint64_t seed;
} plan_options;

/* False: no host memory; *out is empty. */
bool plan_make(const trace *from, const plan_options *options, plan *out);

/* Frees what plan_make made, and empties it. */
void plan_clear(plan *self);

/* A number that depends on *state alone, and the next state. */
uint64_t plan_random(uint64_t *state);

static inline bool plan_hands_off(const plan_block *block)
{
    return block->used_on != block->allocated_on;
}

static inline bool plan_crosses(const plan_block *block)
{
    return block->freed_by != block->allocated_by;
}

#endif
