/* weir_plan.c - draws up who does what in a replay. */
#include "weir_plan.h"

#include <stdlib.h>

/* splitmix64. */
uint64_t plan_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* ---- streams ---- */

static uint32_t phase_stream(const trace *from, size_t stream_count, size_t position)
{
    size_t phases = stream_count * PLAN_PHASES_PER_STREAM;
    return (uint32_t)(position * phases / from->event_count % stream_count);
}

static uint32_t event_stream(const trace *from, const plan_options *options,
                             size_t stream_count, size_t position)
{
    const trace_event *event = &from->events[position];

    if (options->spread == PLAN_TRACE)
        return event->stream;
    if (options->spread == PLAN_THREAD)
        return (uint32_t)(event->thread % stream_count);
    return phase_stream(from, stream_count, position);
}

static void block_draw_streams(plan_block *block, size_t stream_count, uint64_t *state)
{
    uint32_t count = (uint32_t)stream_count;

    block->allocated_on = (uint32_t)(plan_random(state) % count);
    block->used_on = block->allocated_on;
    uint64_t other = plan_random(state);
    if (count > 1 && (other & 1) != 0) {
        uint32_t ahead = 1 + (uint32_t)((other >> 1) % (count - 1));
        block->used_on = (block->allocated_on + ahead) % count;
    }
}

static void block_choose_streams(const trace *from, const plan_options *options,
                                 size_t stream_count, const trace_block *source,
                                 uint64_t *state, plan_block *block)
{
    if (options->spread == PLAN_RANDOM) {
        block_draw_streams(block, stream_count, state);
        return;
    }
    block->allocated_on = event_stream(from, options, stream_count,
                                       source->allocated_at);
    block->used_on = block->is_freed ? event_stream(from, options, stream_count,
                                                    source->freed_at)
                                     : block->allocated_on;
}

/* ---- host threads ---- */

/* By the threads of the trace where these suffice. Else by block, in turn, and every
 * other block is freed by the next thread. */
static void block_choose_lanes(const trace *from, size_t lane_count, size_t index,
                               const trace_block *source, plan_block *block)
{
    size_t allocated_by = index;
    size_t freed_by = index + index / lane_count % 2;

    if (from->thread_count >= lane_count) {
        allocated_by = from->events[source->allocated_at].thread;
        if (block->is_freed)
            freed_by = from->events[source->freed_at].thread;
    }
    block->allocated_by = (uint32_t)(allocated_by % lane_count);
    block->freed_by = block->is_freed ? (uint32_t)(freed_by % lane_count)
                                      : block->allocated_by;
}

static uint32_t event_lane(const plan *self, const trace_event *event)
{
    const plan_block *block = &self->blocks[event->block];
    return event->kind == TRACE_FREE ? block->freed_by : block->allocated_by;
}

static bool event_is_played(const trace_event *event)
{
    return event->kind == TRACE_ALLOCATE || event->kind == TRACE_FREE;
}

/* Deals the events to the lanes, each a run of the one array. */
static void lanes_deal(plan *self, const trace *from)
{
    for (size_t i = 0; i < from->event_count; i++) {
        if (event_is_played(&from->events[i]))
            self->lanes[event_lane(self, &from->events[i])].count++;
    }

    plan_event *next = self->events;
    for (size_t i = 0; i < self->lane_count; i++) {
        self->lanes[i].events = next;
        next += self->lanes[i].count;
        self->lanes[i].count = 0;
    }
    uint32_t position = 0;
    for (size_t i = 0; i < from->event_count; i++) {
        const trace_event *event = &from->events[i];
        if (!event_is_played(event))
            continue;
        plan_lane *lane = &self->lanes[event_lane(self, event)];
        lane->events[lane->count++] = (plan_event){
            .position = position++,
            .block = event->block,
            .is_free = event->kind == TRACE_FREE,
        };
    }
}

/* ---- the whole ---- */

static void blocks_fill(plan *self, const trace *from, const plan_options *options,
                        bool *is_used)
{
    uint64_t state = options->seed;

    for (size_t i = 0; i < from->block_count; i++) {
        const trace_block *source = &from->blocks[i];
        plan_block *block = &self->blocks[i];
        *block = (plan_block){
            .bytes = source->bytes,
            .alignment = source->alignment,
            .id = source->id,
            .line = trace_line_of(source->allocated_at),
            .is_freed = source->freed_at != TRACE_NEVER,
        };
        block_choose_streams(from, options, self->stream_count, source, &state, block);
        block_choose_lanes(from, self->lane_count, i, source, block);

        self->handoffs += plan_hands_off(block);
        self->crossings += plan_crosses(block);
        is_used[block->allocated_on] = true;
        is_used[block->used_on] = true;
    }
    for (size_t i = 0; i < self->stream_count; i++)
        self->streams_used += is_used[i];
}

void plan_clear(plan *self)
{
    free(self->blocks);
    free(self->events);
    free(self->lanes);
    *self = (plan){ 0 };
}

bool plan_make(const trace *from, const plan_options *options, plan *out)
{
    *out = (plan){
        .block_count = from->block_count,
        .event_count = from->event_count - from->failure_count - from->nothing_count,
        .lane_count = options->thread_count,
        .stream_count = options->spread == PLAN_TRACE ? from->stream_count
                                                      : options->stream_count,
        .legacy_stream = options->spread == PLAN_TRACE ? from->legacy_stream
                                                       : TRACE_NO_STREAM,
        .peak_live_bytes = from->peak_live_bytes,
    };
    bool *is_used = calloc(out->stream_count, sizeof *is_used);
    out->blocks = calloc(out->block_count, sizeof *out->blocks);
    out->events = calloc(out->event_count, sizeof *out->events);
    out->lanes = calloc(out->lane_count, sizeof *out->lanes);
    bool made = is_used != NULL && out->blocks != NULL && out->events != NULL
                && out->lanes != NULL;
    if (made) {
        blocks_fill(out, from, options, is_used);
        lanes_deal(out, from);
    } else {
        plan_clear(out);
    }
    free(is_used);
    return made;
}
