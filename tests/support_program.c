/* support_program.c - makes the programs of support_program.h: what they do, and how
 * often. */
#include "support_program_maker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *program_op_name(program_op op)
{
    static const char *const names[] = {
#define X(name) #name,
        PROGRAM_OPS(X)
#undef X
    };
    return names[op];
}

/* ---- blocks ---- */

/* A block that is out, or -1. `host` hears of it. */
static int pick_block(maker *m, int host)
{
    int count = m->made->block_count;
    if (count == 0)
        return -1;
    int first = (int)below(m, (uint64_t)count);
    for (int i = 0; i < count; i++) {
        int block = (first + i) % count;
        if (m->blocks[block].is_out) {
            hear_of(m, host, &m->blocks[block].accesses);
            return block;
        }
    }
    return -1;
}

static void note_access(maker *m, int block, int number, bool writes)
{
    bits_put(&m->blocks[block].accesses, number);
    if (writes)
        bits_put(&m->blocks[block].writes, number);
}

static int new_block(maker *m, int resource, int stream, int capture)
{
    static const size_t sizes[] = { 1, 256, 700, 1024, 4096, 4096, 20000, 65536 };
    program *p = m->made;
    p->blocks[p->block_count] = (program_block){
        .resource = resource, .stream = stream, .capture = capture,
        .bytes = one_in(m, 40) ? 0 : sizes[below(m, 8)],
        .alignment = (size_t)1 << below(m, 9) };
    return p->block_count++;
}

static void make_allocate(maker *m, int host)
{
    program *p = m->made;
    if (p->block_count == PROGRAM_BLOCKS)
        return;
    program_step step = step_by(PROGRAM_ALLOCATE, host);
    step.stream = pick_stream(m, host);
    step.resource = (int)below(m, (uint64_t)p->resource_count);
    step.block = new_block(m, step.resource, step.stream, -1);
    int number = emit(m, step, NULL);
    m->blocks[step.block].is_out = true;
    note_access(m, step.block, number, true);
}

/* A kernel that reads one block and writes another (or one of both, or the same),
 * a fill, a copy, a copy to the host: all are ordered first. */
static void make_work(maker *m, int host, program_op op)
{
    program_step step = step_by(op, host);
    step.stream = pick_stream(m, host);
    step.block = op == PROGRAM_READ_BACK ? -1 : pick_block(m, host);
    if (op != PROGRAM_FILL)
        step.source = pick_block(m, host);
    if (op == PROGRAM_KERNEL && one_in(m, 3))
        step.source = -1;
    else if (op == PROGRAM_KERNEL && one_in(m, 2))
        step.block = -1;
    if ((step.block < 0 && step.source < 0) ||
        (op == PROGRAM_COPY && step.block == step.source))
        return;
    step.number = op == PROGRAM_FILL ? below(m, 256) : support_random(&m->random);
    if (step.block >= 0)
        order(m, host, step.stream, &m->blocks[step.block].accesses, true);
    if (step.source >= 0)
        order(m, host, step.stream, &m->blocks[step.source].writes, true);
    if (op == PROGRAM_READ_BACK)
        open_gates(m, host);
    int number = emit(m, step, NULL);
    if (step.block >= 0)
        note_access(m, step.block, number, true);
    if (step.source >= 0)
        note_access(m, step.source, number, false);
    if (op == PROGRAM_READ_BACK) {
        bits learned = upto(m, number);
        bits_join(&m->done[host], &learned);
    }
}

static bool rule_between(const program *p, int a, int b)
{
    const program_stream *one = &p->streams[a], *two = &p->streams[b];
    return (one->sort == PROGRAM_LEGACY && two->is_blocking) ||
           (two->sort == PROGRAM_LEGACY && one->is_blocking);
}

/* The one mistake of the program: the block is used on one stream, and at once freed on
 * another. */
static bool omit_here(maker *m, int host, const program_step *step)
{
    program *p = m->made;
    if (!p->options.omit || p->omitted >= 0 || p->blocks[step->block].bytes == 0)
        return false;
    int stream = pick_stream(m, host);
    if (stream == step->stream)
        return false;
    program_step use = step_by(PROGRAM_KERNEL, host);
    use.stream = stream;
    use.source = step->block;
    order(m, host, stream, &m->blocks[step->block].writes, true);
    note_access(m, step->block, emit(m, use, NULL), false);
    p->is_definite = !rule_between(p, stream, step->stream);
    p->omitted = p->step_count;
    return true;
}

/* `number` is the step that gives it back: the ledger counts that as a write, so who
 * releases the capture is behind it. */
static void note_free(maker *m, int block, int number)
{
    m->blocks[block].is_out = false;
    int capture = m->made->blocks[block].capture;
    if (capture < 0 || !m->captures[capture].is_open)
        return;
    bits_join(&m->captures[capture].frees, &m->blocks[block].accesses);
    bits_put(&m->captures[capture].backs, number);
    if (m->made->steps[number].stream >= 0)
        bits_put(&m->captures[capture].frees, number);
}

/* A point behind each stream on which the block was used; false: there are too many. */
static bool take_points(maker *m, int host, program_step *step)
{
    const bits accesses = m->blocks[step->block].accesses;
    bits base = m->done[host];
    int missing;
    while ((missing = bits_missing(&accesses, &base)) >= 0) {
        if (step->count == PROGRAM_POINTS)
            return false;
        const program_step *access = &m->made->steps[missing];
        const program_stream *stream = &m->made->streams[access->stream];
        int of = is_usable(m, access->stream, host) ? host : access->host;
        meet_stream(m, of, access->stream);
        int number = stream->end_point;
        if (stream->is_alive) {
            number = emit_point(m, of, access->stream);
            hand_over(m, of, host);
        } else {
            bits heard = { { 0 } };
            bits_put(&heard, number);
            hear_of(m, host, &heard);
        }
        bits more = upto(m, number);
        bits_join(&base, &more);
        bits_join(&base, &m->done[host]);
        step->points[step->count++] = m->made->steps[number].slot;
    }
    return true;
}

static void make_free(maker *m, int host, int block, program_op op)
{
    program_step step = step_by(op, host);
    step.block = block;
    step.resource = m->made->blocks[block].resource;
    int born = m->made->blocks[block].stream;
    int capture = m->made->blocks[block].capture;
    hear_of(m, host, &m->blocks[block].looks);
    if (capture >= 0) /* released, or not: but no race between the two */
        hear_of(m, host, &m->captures[capture].release);
    if (op == PROGRAM_FREE_AFTER && take_points(m, host, &step)) {
        note_free(m, block, emit(m, step, NULL));
        return;
    }
    if (op == PROGRAM_FREE_BY_ADDRESS && is_usable(m, born, host)) {
        step.stream = born;
    } else {
        step.op = PROGRAM_FREE;
        step.stream = pick_stream(m, host);
    }
    if (step.op == PROGRAM_FREE && omit_here(m, host, &step)) {
        emit(m, step, NULL);
        m->blocks[block].is_out = false;
        return;
    }
    order(m, host, step.stream, &m->blocks[block].accesses, false);
    note_free(m, block, emit(m, step, NULL));
}

/* ---- streams that come and go ---- */

static void make_stream_step(maker *m, int host, program_op op)
{
    program_stream_sort sort = op == PROGRAM_MAKE_STREAM ? PROGRAM_KNOWN
                                                         : PROGRAM_FOREIGN;
    int stream = new_stream(m, sort, one_in(m, 2), -1);
    if (stream < 0)
        return;
    program_step step = step_by(op, host);
    step.other = stream;
    m->made->streams[stream].since = emit(m, step, NULL);
}

/* How many streams there are for all hosts. */
static int shared_streams(const program *p)
{
    int count = 0;
    for (int i = 0; i < p->stream_count; i++)
        count += p->streams[i].is_alive && p->streams[i].host < 0;
    return count;
}

/* Registers, retires or ends a stream of the right sort, if there is one. */
static void make_stream_change(maker *m, int host, program_op op)
{
    program *p = m->made;
    program_stream_sort sort = op == PROGRAM_RETIRE ? PROGRAM_REGISTERED
                             : op == PROGRAM_END_STREAM ? PROGRAM_KNOWN
                             : PROGRAM_FOREIGN;
    int stream = pick_stream(m, host);
    for (int tries = 0; tries < 4 && p->streams[stream].sort != sort; tries++)
        stream = pick_stream(m, host);
    program_stream *self = &p->streams[stream];
    if (self->sort != sort || self->host >= 0)
        return;
    bits uses = { { 0 } };
    for (int i = 0; i < p->step_count; i++) {
        const program_step *step = &p->steps[i];
        bool relies = self->is_blocking && step->stream >= 0 &&
                      p->streams[step->stream].sort == PROGRAM_LEGACY;
        if (step->stream == stream || step->other == stream || relies)
            bits_put(&uses, i);
    }
    hear_of(m, host, &uses);
    bool ends = op == PROGRAM_END_STREAM || op == PROGRAM_END_FOREIGN;
    if (ends && shared_streams(p) <= 2)
        return;
    if (ends)
        self->end_point = emit_point(m, host, stream);
    program_step step = step_by(op, host);
    step.other = stream;
    self->since = emit(m, step, NULL);
    self->is_alive = !ends;
    if (!ends)
        self->sort = op == PROGRAM_REGISTER ? PROGRAM_REGISTERED : PROGRAM_FOREIGN;
}

/* ---- captures ---- */

/* A capture of a stream that only this host uses: some blocks are allocated in it, and
 * some of them freed. Those that are out are blocks like all others afterwards. */
static void make_capture(maker *m, int host)
{
    program *p = m->made;
    if (p->capture_count == PROGRAM_CAPTURES || p->block_count + 4 > PROGRAM_BLOCKS)
        return;
    bool is_known = one_in(m, 2);
    int stream = new_stream(m, is_known ? PROGRAM_KNOWN : PROGRAM_FOREIGN, false, host);
    if (stream < 0)
        return;
    program_step make = step_by(is_known ? PROGRAM_MAKE_STREAM : PROGRAM_MAKE_FOREIGN,
                                host);
    make.other = stream;
    p->streams[stream].since = emit(m, make, NULL);

    program_step step = step_by(PROGRAM_CAPTURE, host);
    step.stream = stream;
    step.slot = p->capture_count++;
    step.resource = (int)below(m, (uint64_t)p->resource_count);
    step.block = p->block_count;
    step.count = 1 + (int)below(m, 4);
    step.number = below(m, 16);
    for (int i = 0; i < step.count; i++)
        new_block(m, step.resource, stream, step.slot);
    int number = emit(m, step, NULL);
    for (int i = 0; i < step.count; i++) {
        m->blocks[step.block + i].is_out = (step.number >> i & 1) == 0;
        note_access(m, step.block + i, number, true);
    }
    m->captures[step.slot].is_open = true;
    bits_put(&m->captures[step.slot].frees, number);
}

static void make_release(maker *m, int host)
{
    for (int i = 0; i < m->made->capture_count; i++) {
        if (!m->captures[i].is_open)
            continue;
        program_step step = step_by(PROGRAM_RELEASE, host);
        step.stream = pick_stream(m, host);
        step.slot = i;
        hear_of(m, host, &m->captures[i].backs);
        order(m, host, step.stream, &m->captures[i].frees, false);
        bits_put(&m->captures[i].release, emit(m, step, NULL));
        m->captures[i].is_open = false;
        return;
    }
}

/* ---- gates, and what changes nothing ---- */

static void make_stall(maker *m, int host)
{
    program *p = m->made;
    if (!p->options.gates || p->gate_count == PROGRAM_SLOTS)
        return;
    program_step step = step_by(PROGRAM_STALL, host);
    step.stream = pick_stream(m, host);
    step.slot = p->gate_count++;
    m->gates[step.slot].is_closed = true;
    m->gates[step.slot].host = host;
    emit(m, step, NULL);
}

static void make_look(maker *m, int host, program_op op)
{
    program_step step = step_by(op, host);
    if (op == PROGRAM_QUERY) {
        step.other = pick_stream(m, host);
    } else if (op == PROGRAM_FIND) {
        step.block = pick_block(m, host);
        if (step.block < 0)
            return;
    } else {
        open_gates(m, host);
        step.resource = (int)below(m, (uint64_t)m->made->resource_count);
        step.number = below(m, 3) * 8192;
    }
    int number = emit(m, step, NULL);
    if (op == PROGRAM_FIND)
        bits_put(&m->blocks[step.block].looks, number);
}

static void make_step(maker *m, int host, program_op op)
{
    int block;
    switch (op) {
    case PROGRAM_ALLOCATE: make_allocate(m, host); break;
    case PROGRAM_FREE: case PROGRAM_FREE_BY_ADDRESS: case PROGRAM_FREE_AFTER:
        block = pick_block(m, host);
        if (block >= 0)
            make_free(m, host, block, op);
        break;
    case PROGRAM_KERNEL: case PROGRAM_FILL: case PROGRAM_COPY: case PROGRAM_READ_BACK:
        make_work(m, host, op);
        break;
    case PROGRAM_SYNC: case PROGRAM_POLL:
        emit_sync(m, op, host, pick_stream(m, host), -1);
        break;
    case PROGRAM_SYNC_DEVICE: emit_sync(m, op, host, -1, -1); break;
    case PROGRAM_MAKE_STREAM: case PROGRAM_MAKE_FOREIGN:
        make_stream_step(m, host, op);
        break;
    case PROGRAM_REGISTER: case PROGRAM_RETIRE: case PROGRAM_END_STREAM:
    case PROGRAM_END_FOREIGN:
        make_stream_change(m, host, op);
        break;
    case PROGRAM_CAPTURE: make_capture(m, host); break;
    case PROGRAM_RELEASE: make_release(m, host); break;
    case PROGRAM_STALL: make_stall(m, host); break;
    case PROGRAM_OPEN: open_gates(m, host); break;
    case PROGRAM_QUERY: case PROGRAM_FIND: case PROGRAM_TRIM:
        make_look(m, host, op);
        break;
    default: break; /* only as part of others */
    }
}

/* ---- the whole ---- */

/* Memory for a capture is waited for by the host: it must not come from under a gate,
 * by a wait that the driver puts in. */
#define ASYNC      "async(reuse=same_stream+events+opportunistic)"
#define POOL_ASYNC "pool/" ASYNC

static const char *const specs[] = {
    "pool/device", "pool/limiting/device", "pool/pool/device", "statistics/pool/device",
    "device", "system", "pool/system", "statistics/limiting/pool/device",
    "managed", "pool/pinned", ASYNC, POOL_ASYNC,
    "fixed_size/device", "binning/device", "binning/pool/device",
};
enum { SPECS = sizeof specs / sizeof specs[0] };

/* Some kinds of steps never, some often. */
static void draw_weights(maker *m)
{
    static const uint64_t usual[PROGRAM_OP_COUNT] = {
        [PROGRAM_ALLOCATE] = 30, [PROGRAM_FREE] = 20, [PROGRAM_FREE_BY_ADDRESS] = 4,
        [PROGRAM_FREE_AFTER] = 6, [PROGRAM_KERNEL] = 24, [PROGRAM_FILL] = 4,
        [PROGRAM_COPY] = 5, [PROGRAM_READ_BACK] = 3, [PROGRAM_SYNC] = 2,
        [PROGRAM_SYNC_DEVICE] = 1, [PROGRAM_POLL] = 2, [PROGRAM_QUERY] = 3,
        [PROGRAM_STALL] = 3, [PROGRAM_OPEN] = 2, [PROGRAM_MAKE_STREAM] = 2,
        [PROGRAM_MAKE_FOREIGN] = 2, [PROGRAM_REGISTER] = 2, [PROGRAM_RETIRE] = 2,
        [PROGRAM_END_STREAM] = 2, [PROGRAM_END_FOREIGN] = 2, [PROGRAM_TRIM] = 2,
        [PROGRAM_FIND] = 2, [PROGRAM_CAPTURE] = 2, [PROGRAM_RELEASE] = 2,
    };
    for (int op = 0; op < PROGRAM_OP_COUNT; op++) {
        static const uint64_t factors[] = { 0, 1, 2, 2, 2, 8 };
        bool must_be = op == PROGRAM_ALLOCATE || op == PROGRAM_KERNEL ||
                       op == PROGRAM_FREE;
        m->weights[op] = usual[op] * factors[below(m, 5) + must_be];
    }
    /* While one thread captures a stream no other may wait for the whole device; and
     * a thread that trims may wait for a gate, with what its opener needs to get on. */
    if (m->made->options.hosts > 1 && one_in(m, 2))
        m->weights[PROGRAM_CAPTURE] = m->weights[PROGRAM_STALL] = 0;
    else if (m->made->options.hosts > 1)
        m->weights[PROGRAM_SYNC_DEVICE] = m->weights[PROGRAM_TRIM] = 0;
}

static program_op draw_op(maker *m)
{
    uint64_t sum = 0;
    for (int op = 0; op < PROGRAM_OP_COUNT; op++)
        sum += m->weights[op];
    uint64_t drawn = below(m, sum);
    int op = 0;
    while (drawn >= m->weights[op])
        drawn -= m->weights[op++];
    return (program_op)op;
}

static void draw_scene(maker *m)
{
    program *p = m->made;
    p->eager = one_in(m, 4);
    p->resource_count = 1 + (int)below(m, PROGRAM_RESOURCES);
    for (int i = 0; i < p->resource_count; i++)
        p->specs[i] = specs[p->options.omit ? 0 : below(m, SPECS)];
    if (!p->options.omit && !one_in(m, 3))
        p->pool_bytes = (uint64_t)4096 << below(m, 6);
    if (!one_in(m, 4))
        new_stream(m, PROGRAM_LEGACY, false, -1);
    for (int host = 0; host < p->options.hosts; host++) {
        if (one_in(m, 3))
            new_stream(m, PROGRAM_OWN, true, host);
    }
    uint64_t more = 2 + below(m, 4);
    for (uint64_t i = 0; i < more; i++)
        new_stream(m, one_in(m, 3) ? PROGRAM_FOREIGN : PROGRAM_KNOWN, one_in(m, 3), -1);
    for (int i = 0; i < p->stream_count; i++)
        p->streams[i].is_first = true;
}

/* Everything comes back, and nothing is held up. */
static void make_end(maker *m)
{
    for (int block = 0; block < m->made->block_count; block++) {
        if (!m->blocks[block].is_out)
            continue;
        int host = (int)below(m, (uint64_t)m->made->options.hosts);
        hear_of(m, host, &m->blocks[block].accesses);
        make_free(m, host, block, PROGRAM_FREE);
    }
    for (int i = 0; i < m->made->capture_count; i++)
        make_release(m, (int)below(m, (uint64_t)m->made->options.hosts));
    for (int host = 0; host < m->made->options.hosts; host++)
        open_gates(m, host);
}

/* How many steps the end may need at most. */
static int reserve(const maker *m)
{
    int out = 0;
    for (int block = 0; block < m->made->block_count; block++)
        out += m->blocks[block].is_out;
    return 60 + out * 8;
}

void program_make(program *self, uint64_t seed, const program_options *options)
{
    static maker m;
    m = (maker){ .made = self, .random = seed * 2 + 1 };
    *self = (program){ .seed = seed, .options = *options, .omitted = -1 };
    draw_scene(&m);
    draw_weights(&m);
    size_t turns = options->steps / 2 + below(&m, options->steps);
    while (turns-- > 0 && self->step_count + reserve(&m) < PROGRAM_STEPS &&
           self->channel_count < PROGRAM_SLOTS / 2 &&
           self->point_count < PROGRAM_SLOTS / 2 &&
           self->event_count < PROGRAM_SLOTS / 2)
        make_step(&m, (int)below(&m, (uint64_t)options->hosts), draw_op(&m));
    make_end(&m);
    self->is_definite = self->is_definite && options->hosts == 1;
}

void program_print(const program *self)
{
    fprintf(stderr, "  program %" PRIu64 ": %d hosts, pool_bytes %" PRIu64 "%s\n",
            self->seed, self->options.hosts, self->pool_bytes,
            self->eager ? ", eager" : "");
    for (int i = 0; i < self->resource_count; i++)
        fprintf(stderr, "  resource %d: %s\n", i, self->specs[i]);
    for (int i = 0; i < self->stream_count; i++)
        fprintf(stderr, "  stream %d: sort %d%s, host %d\n", i, self->streams[i].sort,
                self->streams[i].is_blocking ? ", blocking" : "",
                self->streams[i].host);
    for (int i = 0; i < self->step_count; i++) {
        const program_step *step = &self->steps[i];
        fprintf(stderr,
                "  %3d host %d %-15s stream %d other %d block %d source %d slot %d "
                "resource %d count %d%s\n",
                i, step->host, program_op_name(step->op), step->stream, step->other,
                step->block, step->source, step->slot, step->resource, step->count,
                i == self->omitted ? "  <-- not ordered" : "");
    }
}
