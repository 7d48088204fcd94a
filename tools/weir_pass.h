/* weir_pass.h - one run of a plan over one resource: device, streams, blocks.
 *
 * A device is opened anew for each pass, with the options that the pass wants, so that
 * no pass finds anything of the one before. */
#ifndef WEIR_PASS_H
#define WEIR_PASS_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/device.h"
#include "weir/emulated.h"
#include "weir/resource.h"
#include "weir_plan.h"

/* Where a pass runs, and over what. */
typedef struct pass_place {
    const char *device;
    bool is_emulated;       /* else the next four are not looked at */
    const weir_emulated_costs *costs; /* may be null */
    weir_emulated_scheduler scheduler;
    size_t memory_bytes;
    uint64_t seed;
    const char *spec;
    size_t chunk_bytes;     /* if not zero the spec's first element is a pool, and gets
                               one chunk of this size and no more */
    bool skip_wait;         /* leave out the waits of handoffs */
} pass_place;

/* A block's address, from its allocation to its free. */
#define PASS_NOT_YET ((uintptr_t)0)
#define PASS_REFUSED ((uintptr_t)1) /* the resource had no memory for it */

typedef struct pass {
    const plan *work;
    bool skip_wait;
    weir_device *device;
    weir_stream *streams;
    size_t stream_count;         /* made so far */
    weir_resource *mr;
    atomic_uintptr_t *slots;     /* for each block */
    atomic_size_t out_of_memory;
    atomic_bool broke;           /* something failed that was not for want of memory */
} pass;

/* Opens all of it. False: said why, and closed again. */
bool pass_open(pass *self, const plan *work, const pass_place *place);

/* Frees what is still out, waits for the device and closes all. */
void pass_close(pass *self);

/* Allocates a block on its stream. False: there is none; its slot says PASS_REFUSED
 * already, and the pass has counted or said why. */
static inline bool pass_allocate(pass *self, uint32_t block, void **out);

/* Makes the stream that uses the block wait for the one that wrote it. */
static inline bool pass_hand_off(pass *self, uint32_t block);

/* Says that a call failed, the first time, and marks the pass as broken. */
void pass_break(pass *self, const char *what, weir_status status);
/* What follows an allocation that failed. */
void pass_refuse_block(pass *self, uint32_t block, weir_status status);

/* ---- several lanes ----
 *
 * Each is a thread, and a free waits for its own allocation. None runs further than
 * PASS_AHEAD events ahead of the slowest: otherwise one that gets a processor first
 * would allocate all of its part before the others begin to free theirs.
 *
 * Every event's position is told before anything is waited for. So the slowest lane is
 * known to the others as such, and never waits for its pace; and what it frees was
 * allocated by an event before. */

#define PASS_AHEAD 512

/* How far a lane has come in the trace; a line of the cache each. */
typedef struct pass_pace {
    _Alignas(64) atomic_size_t position;
} pass_pace;

/* Waits until the slowest lane is near enough to `position`; once in a few events. */
static inline void pass_keep_pace(const pass *self, pass_pace *paces, size_t position);
/* The block's address, or PASS_REFUSED, once its allocation has been made. */
static inline uintptr_t pass_wait_slot(pass *self, uint32_t block);

/* ---- timed passes ---- */

typedef struct pass_timing {
    double ns_per_event;
    size_t peak_live_bytes;
    size_t peak_held_bytes;
    bool held_is_known;
    size_t kept_bytes;           /* of what is held in the end: back, and not freed */
    weir_device_calls calls;     /* of the events alone */
    double device_ns_per_event;  /* that these would have cost */
    size_t out_of_memory;
} pass_timing;

/* Runs the plan as fast as it goes, and writes what that took. False: something broke,
 * and was said. */
bool pass_time(const plan *work, const pass_place *place, pass_timing *out);

/* Whether the plan, which has one lane, runs to its end without an allocation that
 * fails. False in *broke's case too. */
bool pass_serves(const plan *work, const pass_place *place, bool *broke);

/* ---- */

static inline bool pass_allocate(pass *self, uint32_t block, void **out)
{
    const plan_block *it = &self->work->blocks[block];
    weir_status status = weir_allocate(self->mr, self->streams[it->allocated_on],
                                       it->bytes, it->alignment, out);
    if (status == WEIR_OK)
        return true;
    pass_refuse_block(self, block, status);
    return false;
}

static inline bool pass_hand_off(pass *self, uint32_t block)
{
    const plan_block *it = &self->work->blocks[block];
    if (!plan_hands_off(it) || self->skip_wait)
        return true;
    weir_status status = weir_stream_wait(self->device, self->streams[it->used_on],
                                          self->streams[it->allocated_on]);
    if (status != WEIR_OK)
        pass_break(self, "weir_stream_wait", status);
    return status == WEIR_OK;
}

static inline void pass_spin(unsigned *turns)
{
    if (++*turns % 64 == 0)
        (void)sched_yield();
}

static inline void pass_keep_pace(const pass *self, pass_pace *paces, size_t position)
{
    unsigned turns = 0;

    for (size_t i = 0; i < self->work->lane_count; i++) {
        while (atomic_load_explicit(&paces[i].position, memory_order_relaxed)
               + PASS_AHEAD < position)
            pass_spin(&turns);
    }
}

/* The acquire belongs to the release of who stores the slot. */
static inline uintptr_t pass_wait_slot(pass *self, uint32_t block)
{
    unsigned turns = 0;
    uintptr_t ptr;

    while ((ptr = atomic_load_explicit(&self->slots[block], memory_order_acquire))
           == PASS_NOT_YET)
        pass_spin(&turns);
    return ptr;
}

/* Frees a block that is out, and forgets its address. */
static inline void pass_deallocate(pass *self, uint32_t block, void *ptr)
{
    const plan_block *it = &self->work->blocks[block];
    atomic_store_explicit(&self->slots[block], PASS_NOT_YET, memory_order_relaxed);
    (void)weir_deallocate(self->mr, self->streams[it->used_on], ptr, it->bytes,
                          it->alignment);
}

#endif
