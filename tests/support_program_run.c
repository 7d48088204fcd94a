/* support_program_run.c - does the steps of programs (support_program.h), and looks at
 * all that they do: every byte that is read, every address that is handed out, every
 * count.
 *
 * What a thread reads here of what another has written (an address, a content) it has
 * heard of by a hand-over, as the program orders it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/device.h"
#include "stream_order.h"
#include "support_program_parts.h"

program_sums program_totals;

void program_step_failed(const run *self, int number, const char *words, int line)
{
    const program_step *step = &self->program->steps[number];
    fprintf(stderr,
            "  %s\n  step %d, %s, of program %" PRIu64 " (WEIR_SHOW=1 prints it)\n",
            words, number, program_op_name(step->op), self->program->seed);
    if (getenv("WEIR_SHOW") != NULL)
        program_print(self->program);
    support_fail(words, __FILE__, line);
}

/* ---- contents ---- */

static unsigned char content_byte(const content *self, size_t at)
{
    if (self->kind == CONTENT_VALUE)
        return (unsigned char)self->key;
    uint64_t word = (self->key ^ (at >> 3)) * UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned char)(word >> (at % 8 * 8));
}

static void content_write(const content *self, unsigned char *to)
{
    for (size_t at = 0; at < self->bytes; at++)
        to[at] = content_byte(self, at);
}

static void content_check(const run *self, int number, const content *expected,
                          const unsigned char *from)
{
    size_t at = 0;
    if (expected->kind != CONTENT_UNKNOWN) {
        while (at < expected->bytes && from[at] == content_byte(expected, at))
            at++;
        atomic_fetch_add(&program_totals.checks, 1);
    } else {
        at = expected->bytes;
    }
    if (at < expected->bytes && self->program->options.omit)
        return;
    claim(at == expected->bytes && "the bytes are those that were written last");
}

static void kernel(void *argument, void *const views[])
{
    const work *self = argument;
    if (self->expected.bytes != 0)
        content_check(self->in, self->step, &self->expected, views[0]);
    if (self->written.bytes != 0)
        content_write(&self->written, views[self->last]);
}

/* ---- addresses ---- */

static void lease_begin(run *self, int number, int block, const void *ptr)
{
    uintptr_t begin = (uintptr_t)ptr;
    uintptr_t end = begin + self->program->blocks[block].bytes;
    int capture = self->program->blocks[block].capture;
    pthread_mutex_lock(&self->lock);
    for (size_t i = 0; i < self->lease_count; i++) {
        const lease *other = &self->leases[i];
        bool is_its_own = other->capture >= 0 && other->capture == capture;
        claim((end <= other->begin || other->end <= begin || is_its_own) &&
              "nothing is handed out that another has");
    }
    self->leases[self->lease_count++] = (lease){ begin, end, -1, block };
    pthread_mutex_unlock(&self->lock);
}

/* The block goes back; if a capture that is not released has it, it stays that
 * one's. */
static void lease_end(run *self, int block)
{
    int capture = self->program->blocks[block].capture;
    pthread_mutex_lock(&self->lock);
    for (size_t i = 0; i < self->lease_count; i++) {
        if (self->leases[i].block != block)
            continue;
        if (capture >= 0 && self->captures[capture] != NULL)
            self->leases[i].capture = capture;
        else
            self->leases[i] = self->leases[--self->lease_count];
        break;
    }
    pthread_mutex_unlock(&self->lock);
}

static void leases_release(run *self, int capture)
{
    pthread_mutex_lock(&self->lock);
    self->captures[capture] = NULL;
    for (size_t i = self->lease_count; i-- > 0;) {
        if (self->leases[i].capture == capture)
            self->leases[i] = self->leases[--self->lease_count];
    }
    pthread_mutex_unlock(&self->lock);
}

/* ---- steps ---- */

static void do_allocate(run *self, int number, int block, int stream)
{
    const program_block *wanted = &self->program->blocks[block];
    counts *counted = &self->counts[wanted->resource];
    void *ptr = self;
    weir_status status =
        weir_allocate(self->resources[wanted->resource], self->streams[stream],
                      wanted->bytes, wanted->alignment, &ptr);
    claim(status == WEIR_OK || status == WEIR_OUT_OF_MEMORY ||
          status == WEIR_LIMIT_REACHED);
    claim((ptr == NULL) == (status != WEIR_OK || wanted->bytes == 0));
    claim((uintptr_t)ptr % wanted->alignment == 0);
    self->blocks[block] = ptr;
    self->contents[block] = (content){ .kind = CONTENT_UNKNOWN };
    if (status != WEIR_OK) {
        atomic_fetch_add(&counted->failures, 1);
        atomic_fetch_add(&program_totals.refusals, 1);
    } else if (ptr != NULL) {
        lease_begin(self, number, block, ptr);
        atomic_fetch_add(&counted->out_bytes, wanted->bytes);
        atomic_fetch_add(&counted->out_blocks, 1);
        atomic_fetch_add(&counted->allocations, 1);
        atomic_fetch_add(&program_totals.allocations, 1);
    }
}

static void do_free(run *self, int number, int block, int stream)
{
    const program_block *given = &self->program->blocks[block];
    const program_step *step = &self->program->steps[number];
    weir_resource *mr = self->resources[given->resource];
    counts *counted = &self->counts[given->resource];
    void *ptr = self->blocks[block];
    weir_point points[PROGRAM_POINTS];
    for (int i = 0; step->op == PROGRAM_FREE_AFTER && i < step->count; i++)
        points[i] = self->points[step->points[i]];
    if (ptr != NULL) {
        lease_end(self, block);
        atomic_fetch_sub(&counted->out_bytes, given->bytes);
        atomic_fetch_sub(&counted->out_blocks, 1);
        atomic_fetch_add(&counted->deallocations, 1);
    }
    if (step->op == PROGRAM_FREE_AFTER)
        claim(weir_deallocate_after(mr, ptr, given->bytes, given->alignment, points,
                                    (size_t)step->count));
    else if (step->op == PROGRAM_FREE_BY_ADDRESS)
        claim(weir_free(mr, ptr));
    else
        claim(weir_deallocate(mr, self->streams[stream], ptr, given->bytes,
                              given->alignment));
    self->blocks[block] = NULL;
}

static content content_of(const run *self, int block)
{
    content is = self->contents[block];
    if (is.kind == CONTENT_UNKNOWN)
        is.bytes = self->program->blocks[block].bytes;
    return is;
}

/* What would touch a block that was refused touches nothing, but is put on its stream
 * all the same: the program may rely on it as a barrier. */
static void do_nothing(run *self, int number)
{
    const program_step *step = &self->program->steps[number];
    self->works[number] = (work){ .in = self, .step = number };
    claim_ok(weir_emulated_launch(self->device, self->streams[step->stream], kernel,
                                  &self->works[number], NULL, 0));
}

static void do_kernel(run *self, int number)
{
    const program_step *step = &self->program->steps[number];
    work *job = &self->works[number];
    weir_emulated_range ranges[2];
    size_t count = 0;
    *job = (work){ .in = self, .step = number };
    bool reads = step->source >= 0 && self->blocks[step->source] != NULL;
    bool writes = step->block >= 0 && self->blocks[step->block] != NULL;
    if (reads) {
        job->expected = content_of(self, step->source);
        ranges[count++] = (weir_emulated_range){
            self->blocks[step->source], self->program->blocks[step->source].bytes,
            WEIR_EMULATED_READ };
    }
    if (writes) {
        job->last = count;
        job->written = (content){ CONTENT_PATTERN, step->number,
                                  self->program->blocks[step->block].bytes };
        ranges[count++] = (weir_emulated_range){ self->blocks[step->block],
                                                 job->written.bytes,
                                                 WEIR_EMULATED_WRITE };
        self->contents[step->block] = job->written;
    }
    if (count == 0)
        do_nothing(self, number);
    else
        claim_ok(weir_emulated_launch(self->device, self->streams[step->stream], kernel,
                                      job, ranges, count));
}

static void do_fill(run *self, int number)
{
    const program_step *step = &self->program->steps[number];
    size_t bytes = self->program->blocks[step->block].bytes;
    if (self->blocks[step->block] == NULL) {
        do_nothing(self, number);
        return;
    }
    claim_ok(weir_fill(self->device, self->streams[step->stream],
                       self->blocks[step->block], (uint8_t)step->number, bytes));
    self->contents[step->block] = (content){ CONTENT_VALUE, (uint8_t)step->number,
                                             bytes };
}

static void do_copy(run *self, int number)
{
    const program_step *step = &self->program->steps[number];
    const void *from = self->blocks[step->source];
    void *to = self->blocks[step->block];
    size_t bytes = self->program->blocks[step->source].bytes;
    size_t room = self->program->blocks[step->block].bytes;
    if (from == NULL || to == NULL) {
        do_nothing(self, number);
        return;
    }
    bytes = bytes < room ? bytes : room;
    claim_ok(weir_copy(self->device, self->streams[step->stream], to, from, bytes));
    content copied = content_of(self, step->source);
    if (copied.bytes > bytes)
        copied.bytes = bytes;
    self->contents[step->block] = copied;
}

static void do_read_back(run *self, int number)
{
    const program_step *step = &self->program->steps[number];
    content expected = content_of(self, step->source);
    size_t bytes = self->program->blocks[step->source].bytes;
    weir_stream stream = self->streams[step->stream];
    unsigned char *seen = malloc(bytes + 1);
    claim(seen != NULL);
    if (self->blocks[step->source] == NULL) {
        do_nothing(self, number);
        claim_ok(weir_stream_sync(self->device, stream));
    } else {
        claim_ok(weir_copy_sync(self->device, stream, seen, self->blocks[step->source],
                                bytes));
        content_check(self, number, &expected, seen);
    }
    free(seen);
}

/* Blocks in a capture: those that go back at once stay the capture's. */
static void do_capture(run *self, int number)
{
    const program_step *step = &self->program->steps[number];
    weir_stream stream = self->streams[step->stream];
    weir_capture *capture = NULL;
    claim_ok(weir_capture_begin(self->resources[step->resource], stream, &capture));
    claim_ok(weir_emulated_capture_begin(self->device, stream));
    self->captures[step->slot] = capture;
    size_t launched = 0, captured = 0;
    for (int i = 0; i < step->count; i++) {
        int block = step->block + i;
        do_allocate(self, number, block, step->stream);
        if (self->blocks[block] == NULL)
            continue;
        weir_emulated_range range = { self->blocks[block],
                                      self->program->blocks[block].bytes,
                                      WEIR_EMULATED_WRITE };
        claim_ok(weir_emulated_launch(self->device, stream, kernel, NULL, &range, 1));
        launched++;
        if (step->number >> i & 1)
            do_free(self, number, block, step->stream);
    }
    claim_ok(weir_emulated_capture_end(self->device, stream, &captured));
    claim(captured == launched);
    claim_ok(weir_capture_end(capture));
}

static void do_poll(run *self, int number)
{
    const program_step *step = &self->program->steps[number];
    bool done = false;
    for (int tries = 0; tries < 12 && !done; tries++) {
        if (step->op == PROGRAM_POLL)
            claim_ok(weir_stream_query(self->device, self->streams[step->other],
                                       &done));
        else if (step->op == PROGRAM_POLL_EVENT)
            claim_ok(weir_event_query(self->device, self->events[step->slot], &done));
        else
            claim_ok(weir_point_query(self->device, self->points[step->slot], &done));
    }
    if (done)
        return;
    if (step->op == PROGRAM_POLL)
        claim_ok(weir_stream_sync(self->device, self->streams[step->other]));
    else if (step->op == PROGRAM_POLL_EVENT)
        claim_ok(weir_event_sync(self->device, self->events[step->slot]));
    else
        claim_ok(weir_point_sync(self->device, self->points[step->slot]));
}

static void do_find(run *self, int number)
{
    const program_step *step = &self->program->steps[number];
    const program_block *known = &self->program->blocks[step->block];
    weir_resource *mr = self->resources[known->resource];
    weir_resource_properties properties = { .struct_size = sizeof properties };
    weir_block block = { .struct_size = sizeof block };
    claim_ok(weir_resource_get_properties(mr, &properties));
    if (self->blocks[step->block] == NULL || !properties.can_find)
        return;
    claim_ok(weir_resource_find(mr, self->blocks[step->block], &block));
    claim(block.ptr == self->blocks[step->block] && block.bytes == known->bytes &&
          block.alignment == known->alignment &&
          weir__stream_of(block.stream) ==
              weir__stream_of(self->streams[known->stream]));
}

/* Steps that are about memory. */
static void do_memory(run *self, int number)
{
    const program_step *step = &self->program->steps[number];
    switch (step->op) {
    case PROGRAM_ALLOCATE: do_allocate(self, number, step->block, step->stream); break;
    case PROGRAM_FREE: case PROGRAM_FREE_BY_ADDRESS: case PROGRAM_FREE_AFTER:
        do_free(self, number, step->block, step->stream);
        break;
    case PROGRAM_KERNEL: do_kernel(self, number); break;
    case PROGRAM_FILL: do_fill(self, number); break;
    case PROGRAM_COPY: do_copy(self, number); break;
    case PROGRAM_READ_BACK: do_read_back(self, number); break;
    case PROGRAM_FIND: do_find(self, number); break;
    case PROGRAM_TRIM:
        (void)weir_resource_trim_sync(self->resources[step->resource], step->number);
        break;
    case PROGRAM_CAPTURE: do_capture(self, number); break;
    case PROGRAM_RELEASE:
        /* From here on others may be handed what was the capture's own. */
        {
            weir_capture *capture = self->captures[step->slot];
            leases_release(self, step->slot);
            claim_ok(weir_capture_release(capture, self->streams[step->stream]));
        }
        break;
    default: claim(false && "a step about memory");
    }
}

/* Steps that order. False: it is none. */
static bool do_order(run *self, int number)
{
    const program_step *step = &self->program->steps[number];
    weir_device *device = self->device;
    weir_stream stream = step->stream >= 0 ? self->streams[step->stream] : NULL;
    weir_stream other = step->other >= 0 ? self->streams[step->other] : NULL;
    uintptr_t channel = (uintptr_t)step->slot + 1;
    bool done;
    switch (step->op) {
    case PROGRAM_WAIT: claim_ok(weir_stream_wait(device, stream, other)); break;
    case PROGRAM_RECORD:
        claim_ok(weir_event_create(device, &self->events[step->slot]));
        claim_ok(weir_event_record(device, stream, self->events[step->slot]));
        break;
    case PROGRAM_WAIT_EVENT:
        claim_ok(weir_stream_wait_event(device, stream, self->events[step->slot]));
        break;
    case PROGRAM_POINT:
        claim_ok(weir_point_here(device, stream, &self->points[step->slot]));
        break;
    case PROGRAM_WAIT_POINT:
        claim_ok(weir_stream_wait_point(device, stream, self->points[step->slot]));
        break;
    case PROGRAM_SYNC: claim_ok(weir_stream_sync(device, other)); break;
    case PROGRAM_SYNC_EVENT:
        claim_ok(weir_event_sync(device, self->events[step->slot]));
        break;
    case PROGRAM_SYNC_POINT:
        claim_ok(weir_point_sync(device, self->points[step->slot]));
        break;
    case PROGRAM_SYNC_DEVICE: claim_ok(weir_device_sync(device)); break;
    case PROGRAM_POLL: case PROGRAM_POLL_EVENT: case PROGRAM_POLL_POINT:
        do_poll(self, number);
        break;
    case PROGRAM_QUERY: claim_ok(weir_stream_query(device, other, &done)); break;
    case PROGRAM_SIGNAL: claim_ok(weir_emulated_host_signal(device, channel)); break;
    case PROGRAM_AWAIT: claim_ok(weir_emulated_host_await(device, channel)); break;
    case PROGRAM_STALL:
        claim_ok(weir_emulated_stall(device, stream, &self->gates[step->slot]));
        break;
    case PROGRAM_OPEN:
        claim_ok(weir_emulated_open_gate(device, self->gates[step->slot]));
        break;
    default: return false;
    }
    return true;
}

void program_begin_stream(run *self, int stream)
{
    const program_stream *wanted = &self->program->streams[stream];
    weir_stream_kind kind = wanted->is_blocking ? WEIR_STREAM_BLOCKING
                                                : WEIR_STREAM_NON_BLOCKING;
    if (wanted->sort == PROGRAM_KNOWN)
        must_ok(weir_stream_create(self->device, kind, &self->streams[stream]));
    else
        must_ok(weir_emulated_stream_create(self->device, kind,
                                            &self->streams[stream]));
}

static void do_stream(run *self, int number)
{
    const program_step *step = &self->program->steps[number];
    weir_stream other = self->streams[step->other];
    switch (step->op) {
    case PROGRAM_MAKE_STREAM: case PROGRAM_MAKE_FOREIGN:
        program_begin_stream(self, step->other);
        break;
    case PROGRAM_REGISTER: claim_ok(weir_stream_register(self->device, other)); break;
    case PROGRAM_RETIRE: claim_ok(weir_stream_retire(self->device, other)); break;
    case PROGRAM_END_STREAM: claim_ok(weir_stream_destroy(self->device, other)); break;
    case PROGRAM_END_FOREIGN:
        claim_ok(weir_emulated_stream_destroy(self->device, other));
        break;
    default: claim(false && "a step about streams");
    }
}

void program_check_counts(run *self, int number)
{
    for (int i = 0; i < self->program->resource_count; i++) {
        weir_resource_statistics seen = statistics_of(self->resources[i]);
        counts *counted = &self->counts[i];
        claim(seen.out_bytes == atomic_load(&counted->out_bytes));
        claim(seen.out_blocks == atomic_load(&counted->out_blocks));
        claim(seen.allocations == atomic_load(&counted->allocations));
        claim(seen.deallocations == atomic_load(&counted->deallocations));
        claim(seen.failures == atomic_load(&counted->failures));
        claim(seen.peak_out_bytes >= seen.out_bytes);
        claim(seen.out_bytes + seen.free_bytes <= seen.held_bytes);
        claim(seen.set_aside_bytes == 0 || self->may_set_aside);
        claim(seen.leaked_bytes == 0);
    }
    weir__order_verify(self->device->order);
}

void program_do_step(run *self, int number)
{
    program_op op = self->program->steps[number].op;
    atomic_store(&self->current, number);
    atomic_fetch_add(&program_totals.op_counts[op], 1);
    if (!do_order(self, number)) {
        if (op >= PROGRAM_MAKE_STREAM && op <= PROGRAM_END_FOREIGN)
            do_stream(self, number);
        else
            do_memory(self, number);
    }
    if (self->program->options.hosts == 1)
        program_check_counts(self, number);
}
