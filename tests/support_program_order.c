/* support_program_order.c - what is behind what in a program, and how it gets there.
 *
 * For each host thread the maker knows which steps it has surely issued or heard of
 * (issued), and which it knows to be done (done); for each step, all steps it is
 * surely behind. What a stream's next step is behind is then what is known to have
 * been put on the stream, and all that these are behind. */
#include "support_program_maker.h"

/* ---- sets of steps ---- */

void bits_join(bits *self, const bits *other)
{
    for (size_t i = 0; i < PROGRAM_STEPS / 64; i++)
        self->words[i] |= other->words[i];
}

/* The first step that is in `self` and not in `other`, or -1. */
int bits_missing(const bits *self, const bits *other)
{
    for (int i = 0; i < PROGRAM_STEPS / 64; i++) {
        uint64_t missing = self->words[i] & ~other->words[i];
        if (missing != 0)
            return i * 64 + __builtin_ctzll(missing);
    }
    return -1;
}

/* ---- draws ---- */

uint64_t below(maker *m, uint64_t n)
{
    return support_random_below(&m->random, n);
}

bool one_in(maker *m, uint64_t n)
{
    return below(m, n) == 0;
}

/* ---- what is behind what ---- */

/* What CUDA calls an operation: a barrier, if it is put on the legacy stream. */
static bool is_operation(const program_step *step)
{
    switch (step->op) {
    case PROGRAM_KERNEL: case PROGRAM_FILL: case PROGRAM_COPY: case PROGRAM_READ_BACK:
    case PROGRAM_RECORD: case PROGRAM_STALL:
        return true;
    default:
        return false;
    }
}

/* Everything that the next step on `stream` is behind, put there by `host`; `rules`
 * adds what the legacy stream's rules promise to an operation: to one on the legacy
 * stream, about blocking streams that have not ended, as those of threads may. */
static bits base_of(const maker *m, int stream, int host, bool rules)
{
    const program *p = m->made;
    const program_stream *on = &p->streams[stream];
    bits base = m->done[host];
    for (int i = 0; i < p->step_count; i++) {
        const program_step *step = &p->steps[i];
        if (step->stream < 0 || !bits_has(&m->issued[host], i))
            continue;
        const program_stream *its = &p->streams[step->stream];
        bool by_rule = rules && is_operation(step) &&
                       ((on->is_blocking && its->sort == PROGRAM_LEGACY) ||
                        (on->sort == PROGRAM_LEGACY && its->is_blocking &&
                         its->is_alive && (its->host < 0 || its->host == host)));
        if (step->stream == stream || by_rule) {
            bits_put(&base, i);
            bits_join(&base, &m->behind[i]);
        }
    }
    return base;
}

program_step step_by(program_op op, int host)
{
    return (program_step){ .op = op, .host = host, .stream = -1, .other = -1,
                           .block = -1, .source = -1, .slot = -1, .resource = -1 };
}

/* Appends `step`, behind `more` (may be null) besides. Returns its number. */
int emit(maker *m, program_step step, const bits *more)
{
    program *p = m->made;
    must(p->step_count < PROGRAM_STEPS);
    int number = p->step_count;
    bits behind = m->done[step.host];
    if (step.stream >= 0)
        behind = base_of(m, step.stream, step.host, is_operation(&step));
    if (more != NULL)
        bits_join(&behind, more);
    p->steps[number] = step;
    p->step_count++;
    m->behind[number] = behind;
    bits_put(&m->issued[step.host], number);
    return number;
}

/* ---- host threads ---- */

static void open_gate(maker *m, int gate)
{
    program_step step = step_by(PROGRAM_OPEN, m->gates[gate].host);
    step.slot = gate;
    m->gates[gate].is_closed = false;
    emit(m, step, NULL);
}

/* Before `host` waits for anything: it has closed what nobody else opens. */
void open_gates(maker *m, int host)
{
    for (int i = 0; i < m->made->gate_count; i++) {
        if (m->gates[i].is_closed && m->gates[i].host == host)
            open_gate(m, i);
    }
}

void hand_over(maker *m, int from, int to)
{
    if (from == to)
        return;
    open_gates(m, to);
    program_step signal = step_by(PROGRAM_SIGNAL, from);
    signal.slot = m->made->channel_count++;
    must(signal.slot < PROGRAM_SLOTS);
    emit(m, signal, NULL);
    bits_join(&m->issued[to], &m->issued[from]);
    bits_join(&m->done[to], &m->done[from]);
    program_step await = step_by(PROGRAM_AWAIT, to);
    await.slot = signal.slot;
    emit(m, await, NULL);
}

/* `host` hears of all `steps`. */
void hear_of(maker *m, int host, const bits *steps)
{
    int missing;
    while ((missing = bits_missing(steps, &m->issued[host])) >= 0)
        hand_over(m, m->made->steps[missing].host, host);
}

/* ---- streams ---- */

bool is_usable(const maker *m, int stream, int host)
{
    const program_stream *self = &m->made->streams[stream];
    return self->is_alive && (self->host < 0 || self->host == host);
}

void meet_stream(maker *m, int host, int stream)
{
    int since = m->made->streams[stream].since;
    if (since >= 0 && !bits_has(&m->issued[host], since))
        hand_over(m, m->made->steps[since].host, host);
}

int pick_stream(maker *m, int host)
{
    int stream;
    do
        stream = (int)below(m, (uint64_t)m->made->stream_count);
    while (!is_usable(m, stream, host));
    meet_stream(m, host, stream);
    return stream;
}

int new_stream(maker *m, program_stream_sort sort, bool is_blocking, int host)
{
    program *p = m->made;
    if (p->stream_count == PROGRAM_STREAMS)
        return -1;
    p->streams[p->stream_count] = (program_stream){
        .sort = sort, .is_blocking = is_blocking, .is_alive = true, .host = host,
        .since = -1, .end_point = -1 };
    return p->stream_count++;
}

/* ---- ways to order ---- */

int emit_point(maker *m, int host, int stream)
{
    program_step step = step_by(PROGRAM_POINT, host);
    step.stream = stream;
    step.slot = m->made->point_count++;
    must(step.slot < PROGRAM_SLOTS);
    return emit(m, step, NULL);
}

/* All that a wait for the point of step `number` is behind. */
bits upto(const maker *m, int number)
{
    bits all = m->behind[number];
    bits_put(&all, number);
    return all;
}

/* `host` waits for, or asks until it knows, what stands at step `number`: a stream's
 * present end, if `op` is about a stream, or an event or point. */
void emit_sync(maker *m, program_op op, int host, int stream, int number)
{
    program_step step = step_by(op, host);
    bits learned;
    open_gates(m, host);
    if (op == PROGRAM_SYNC || op == PROGRAM_POLL) {
        step.other = stream;
        learned = base_of(m, stream, host, false);
    } else if (op == PROGRAM_SYNC_DEVICE) {
        learned = m->issued[host];
    } else {
        step.slot = m->made->steps[number].slot;
        learned = upto(m, number);
    }
    emit(m, step, NULL);
    bits_join(&m->done[host], &learned);
}

static int emit_record(maker *m, int host, int stream)
{
    program_step step = step_by(PROGRAM_RECORD, host);
    step.stream = stream;
    step.slot = m->made->event_count++;
    must(step.slot < PROGRAM_SLOTS);
    return emit(m, step, NULL);
}

/* What `stream` gets next is behind step `number`: a record or a point. */
static void emit_wait_for(maker *m, program_op op, int host, int stream, int number)
{
    bits more = upto(m, number);
    program_step step = step_by(op, host);
    step.stream = stream;
    step.slot = m->made->steps[number].slot;
    emit(m, step, &more);
}

/* Puts what comes next on `stream` behind the whole of `other`, a stream that ended. */
static void order_behind_ended(maker *m, int host, int stream, int other)
{
    int point = m->made->streams[other].end_point;
    bits heard = { { 0 } };
    bits_put(&heard, point);
    hear_of(m, host, &heard);
    if (one_in(m, 3))
        emit_sync(m, PROGRAM_SYNC_POINT, host, -1, point);
    else
        emit_wait_for(m, PROGRAM_WAIT_POINT, host, stream, point);
}

/* The same for one that lives, on which host `of` can act; what it has put there is to
 * be waited for. */
static void order_behind_living(maker *m, int host, int stream, int other, int of)
{
    static const program_op syncs[] = { PROGRAM_SYNC, PROGRAM_POLL, PROGRAM_SYNC_EVENT,
                                        PROGRAM_POLL_EVENT, PROGRAM_SYNC_POINT,
                                        PROGRAM_POLL_POINT };
    int number;
    switch (below(m, 8)) {
    case 0: case 1: case 2:
        if (of == host) {
            program_step wait = step_by(PROGRAM_WAIT, host);
            bits more = base_of(m, other, host, false);
            wait.stream = stream;
            wait.other = other;
            emit(m, wait, &more);
            return;
        }
        /* fall through */
    case 3: case 4:
        number = emit_point(m, of, other);
        hand_over(m, of, host);
        emit_wait_for(m, PROGRAM_WAIT_POINT, host, stream, number);
        return;
    case 5: case 6:
        number = emit_record(m, of, other);
        hand_over(m, of, host);
        emit_wait_for(m, PROGRAM_WAIT_EVENT, host, stream, number);
        return;
    default: {
        program_op op = syncs[below(m, sizeof syncs / sizeof syncs[0])];
        number = -1;
        if (op == PROGRAM_SYNC_EVENT || op == PROGRAM_POLL_EVENT)
            number = emit_record(m, of, other);
        else if (op == PROGRAM_SYNC_POINT || op == PROGRAM_POLL_POINT)
            number = emit_point(m, of, other);
        emit_sync(m, op, of, other, number);
        hand_over(m, of, host);
    }
    }
}

/* Sees to it that what `host` next puts on `stream` is behind all `steps`. */
void order(maker *m, int host, int stream, const bits *steps, bool rules)
{
    hear_of(m, host, steps);
    for (;;) {
        bits base = base_of(m, stream, host, rules);
        int missing = bits_missing(steps, &base);
        if (missing < 0)
            return;
        int other = m->made->steps[missing].stream;
        int of = m->made->steps[missing].host;
        if (!m->made->streams[other].is_alive) {
            order_behind_ended(m, host, stream, other);
        } else if (is_usable(m, other, host) && !one_in(m, 3)) {
            meet_stream(m, host, other);
            order_behind_living(m, host, stream, other, host);
        } else {
            meet_stream(m, of, other);
            order_behind_living(m, host, stream, other, of);
        }
    }
}
