/* weir_check.c - the checked pass: is every byte where it was put, and every reuse
 * ordered?
 *
 * Each block is written by a kernel on the stream that it is allocated on, and read
 * by another on the stream that uses it, before it is freed there. Both kernels
 * declare the whole block to the ledger. What they write is a pattern that no other
 * block has at any place: of a block up to WHOLE_BYTES everything, of a larger one
 * the first and the last page and a page in each SAMPLE_EVERY bytes, so that a trace
 * of many gigabytes fits into a machine that has less.
 *
 * The device is stepped: work happens when the host asks for it. How much may be
 * waiting is drawn anew now and then, from nothing at all to thousands of kernels,
 * so that memory is freed and taken again both after and long before the work that
 * uses it is done. */
#include "weir_check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "weir_say.h"

#define WHOLE_BYTES ((size_t)1 << 20)
#define PAGE_BYTES ((size_t)4096)
#define SAMPLE_EVERY ((size_t)16 << 20)

/* What a kernel found in place of what was written. */
typedef struct damage {
    const plan_block *block;
    size_t offset;
    uint64_t expected;
    uint64_t found;
} damage;

typedef struct check {
    pass pass;
    const char *spec;
    bool verify;
    uint64_t seed;
    struct stamp *stamps;          /* one for each block; the kernels' arguments */
    atomic_size_t kernels_put;
    atomic_size_t kernels_done;
    atomic_size_t events_done;
    atomic_size_t data_errors;
    damage damages[CHECK_FAULTS_TOLD];   /* kernels run one at a time */
} check;

/* ---- the pattern ---- */

typedef struct stamp {
    check *check;
    const plan_block *block;
    uint64_t key;
} stamp;

/* What the eight bytes at `offset`, a multiple of eight, hold. */
static uint64_t pattern_at(uint64_t key, size_t offset)
{
    return key + (offset / 8 + 1) * UINT64_C(0x9E3779B97F4A7C15);
}

static void pattern_write(uint64_t key, unsigned char *memory, size_t from, size_t to)
{
    size_t at = from;
    for (; to - at >= 8; at += 8) {
        uint64_t word = pattern_at(key, at);
        memcpy(memory + at, &word, 8);
    }
    uint64_t word = pattern_at(key, at);
    memcpy(memory + at, &word, to - at);
}

/* Compares up to eight bytes; false and *out filled if they differ. */
static bool word_is(uint64_t key, const unsigned char *memory, size_t at, size_t bytes,
                    damage *out)
{
    uint64_t pattern = pattern_at(key, at);
    uint64_t expected = 0, found = 0;

    memcpy(&expected, &pattern, bytes);
    memcpy(&found, memory + at, bytes);
    if (expected == found)
        return true;
    *out = (damage){ .offset = at, .expected = expected, .found = found };
    return false;
}

static bool pattern_is(uint64_t key, const unsigned char *memory, size_t from,
                       size_t to, damage *out)
{
    size_t at = from;
    for (; to - at >= 8; at += 8) {
        if (!word_is(key, memory, at, 8, out))
            return false;
    }
    return word_is(key, memory, at, to - at, out);
}

bool check_next_part(size_t bytes, size_t *from, size_t *to)
{
    size_t last = (bytes - PAGE_BYTES) & ~(size_t)7;

    if (*to == bytes)
        return false;
    if (bytes <= WHOLE_BYTES) {
        *to = bytes;
        return true;
    }
    *from = *to == 0 ? 0 : *from + SAMPLE_EVERY;
    if (*from + PAGE_BYTES > last)
        *from = last;
    *to = *from == last ? bytes : *from + PAGE_BYTES;
    return true;
}

/* ---- kernels ---- */

static void kernel_end(check *self)
{
    atomic_fetch_add(&self->kernels_done, 1);
}

static void kernel_write(void *argument, void *const views[])
{
    stamp *self = argument;
    size_t from = 0, to = 0;

    while (self->check->verify && check_next_part(self->block->bytes, &from, &to))
        pattern_write(self->key, views[0], from, to);
    kernel_end(self->check);
}

static void kernel_read(void *argument, void *const views[])
{
    stamp *self = argument;
    size_t from = 0, to = 0;
    damage what;

    while (self->check->verify && check_next_part(self->block->bytes, &from, &to)) {
        if (pattern_is(self->key, views[0], from, to, &what))
            continue;
        size_t index = atomic_fetch_add(&self->check->data_errors, 1);
        what.block = self->block;
        if (index < CHECK_FAULTS_TOLD)
            self->check->damages[index] = what;
        break;
    }
    kernel_end(self->check);
}

static bool launch(check *self, uint32_t block, void *ptr, bool writes)
{
    const plan_block *it = &self->pass.work->blocks[block];
    weir_emulated_range range = {
        .ptr = ptr,
        .bytes = it->bytes,
        .access = writes ? WEIR_EMULATED_WRITE : WEIR_EMULATED_READ,
    };
    uint32_t stream = writes ? it->allocated_on : it->used_on;
    weir_status status = weir_emulated_launch(
        self->pass.device, self->pass.streams[stream],
        writes ? kernel_write : kernel_read, &self->stamps[block], &range, 1);
    if (status != WEIR_OK) {
        pass_break(&self->pass, "weir_emulated_launch", status);
        return false;
    }
    atomic_fetch_add(&self->kernels_put, 1);
    return true;
}

/* ---- events ---- */

/* One host thread's part. */
typedef struct check_lane {
    check *check;
    const plan_lane *plan;
    uint64_t random;
    size_t backlog; /* as many kernels may wait */
} check_lane;

static void check_allocate(check *self, uint32_t block)
{
    void *ptr;

    if (atomic_load(&self->pass.broke)) {
        atomic_store(&self->pass.slots[block], PASS_REFUSED);
        return;
    }
    if (!pass_allocate(&self->pass, block, &ptr))
        return;
    (void)launch(self, block, ptr, true);
    (void)pass_hand_off(&self->pass, block);
    atomic_store(&self->pass.slots[block], (uintptr_t)ptr);
}

static void check_free(check *self, uint32_t block)
{
    uintptr_t ptr = atomic_load(&self->pass.slots[block]);

    if (ptr == PASS_REFUSED)
        return;
    if (!atomic_load(&self->pass.broke))
        (void)launch(self, block, (void *)ptr, false);
    pass_deallocate(&self->pass, block, (void *)ptr);
}

/* Between two host threads, in both directions: the signal for a block is given by its
 * allocation, whatever came of it, and awaited by its free. */
static void lane_event(check *self, const plan_event *event)
{
    bool crosses = plan_crosses(&self->pass.work->blocks[event->block]);
    uintptr_t channel = (uintptr_t)&self->pass.slots[event->block];
    weir_status status = WEIR_OK;

    if (event->is_free) {
        if (crosses)
            status = weir_emulated_host_await(self->pass.device, channel);
        check_free(self, event->block);
    } else {
        check_allocate(self, event->block);
        if (crosses)
            status = weir_emulated_host_signal(self->pass.device, channel);
    }
    if (status != WEIR_OK)
        pass_break(&self->pass, "handing over to another thread", status);
}

/* Lets work happen until no more waits than the lane's backlog allows. */
static void lane_step(check_lane *self)
{
    check *whole = self->check;
    uint64_t draw = plan_random(&self->random);
    bool stepped = true;

    if (draw % 64 == 0) {
        uint64_t bits = (draw >> 8) % 13;
        self->backlog = (size_t)(draw >> 16) & (((size_t)1 << bits) - 1);
    }
    while (stepped && atomic_load(&whole->kernels_put)
                          > atomic_load(&whole->kernels_done) + self->backlog) {
        weir_status status = weir_emulated_step(whole->pass.device, &stepped);
        if (status != WEIR_OK) {
            pass_break(&whole->pass, "weir_emulated_step", status);
            return;
        }
    }
}

static void lane_show(check_lane *self)
{
    size_t all = self->check->pass.work->event_count;
    size_t done = 1 + atomic_fetch_add(&self->check->events_done, 1);
    if (done * 100 / all != (done - 1) * 100 / all)
        say_progress("checked pass: %zu %%", done * 100 / all);
}

static void lane_run(void *argument)
{
    check_lane *self = argument;

    for (size_t i = 0; i < self->plan->count; i++) {
        lane_event(self->check, &self->plan->events[i]);
        lane_step(self);
        lane_show(self);
    }
}

static void lanes_run(check *self, check_lane *lanes, void **arguments)
{
    size_t count = self->pass.work->lane_count;

    for (size_t i = 0; i < count; i++) {
        lanes[i] = (check_lane){ .check = self, .plan = &self->pass.work->lanes[i],
                                 .random = self->seed + ((uint64_t)i << 32) };
        arguments[i] = &lanes[i];
    }
    if (count == 1) {
        lane_run(&lanes[0]);
        return;
    }
    weir_status status = weir_emulated_run_threads(self->pass.device, count, lane_run,
                                                   arguments);
    if (status != WEIR_OK)
        pass_break(&self->pass, "weir_emulated_run_threads", status);
}

/* ---- the whole ---- */

static void findings_tell(check *self, size_t count)
{
    weir_emulated_finding finding = { .struct_size = sizeof finding };

    for (size_t i = 0; i < count && i < CHECK_FAULTS_TOLD; i++) {
        if (weir_emulated_get_finding(self->pass.device, i, &finding) == WEIR_OK)
            say("%s: ledger: %s", self->spec, finding.message);
    }
    if (count > CHECK_FAULTS_TOLD)
        say("%s: ledger: and %zu more", self->spec, count - CHECK_FAULTS_TOLD);
}

static void damages_tell(check *self, size_t count)
{
    for (size_t i = 0; i < count && i < CHECK_FAULTS_TOLD; i++) {
        const damage *it = &self->damages[i];
        say("%s: data: the block of line %zu (id %" PRIu64 ", %zu bytes) holds %016"
            PRIx64 " at byte %zu, where %016" PRIx64 " was written", self->spec,
            it->block->line, it->block->id, it->block->bytes, it->found, it->offset,
            it->expected);
    }
    if (count > CHECK_FAULTS_TOLD)
        say("%s: data: and %zu more", self->spec, count - CHECK_FAULTS_TOLD);
}

/* What is live at the end is read and freed too; then all work is waited for. */
static void check_finish(check *self, check_result *out)
{
    for (size_t i = 0; i < self->pass.work->block_count; i++) {
        if (atomic_load(&self->pass.slots[i]) != PASS_NOT_YET)
            check_free(self, (uint32_t)i);
    }
    weir_status status = weir_device_sync(self->pass.device);
    if (status != WEIR_OK)
        pass_break(&self->pass, "weir_device_sync", status);
    out->ledger_findings = weir_emulated_findings(self->pass.device);
    out->data_errors = atomic_load(&self->data_errors);
    out->out_of_memory = atomic_load(&self->pass.out_of_memory);
    say_progress("%s", "");
    findings_tell(self, out->ledger_findings);
    damages_tell(self, out->data_errors);
}

static void stamps_fill(check *self, const plan *work)
{
    uint64_t state = ~self->seed;
    for (size_t i = 0; i < work->block_count; i++)
        self->stamps[i] = (stamp){ .check = self, .block = &work->blocks[i],
                                   .key = plan_random(&state) };
}

bool check_run(const plan *work, const pass_place *place, bool verify,
               check_result *out)
{
    check self = { .spec = place->spec, .verify = verify, .seed = place->seed };
    bool good = false;

    if (!place->is_emulated)
        return check_run_by_copies(work, place, out);
    *out = (check_result){ .has_ledger = true };
    self.stamps = calloc(work->block_count, sizeof *self.stamps);
    check_lane *lanes = calloc(work->lane_count, sizeof *lanes);
    void **arguments = calloc(work->lane_count, sizeof *arguments);
    if (self.stamps == NULL || lanes == NULL || arguments == NULL) {
        say("no host memory to check %zu blocks", work->block_count);
    } else if (pass_open(&self.pass, work, place)) {
        stamps_fill(&self, work);
        lanes_run(&self, lanes, arguments);
        check_finish(&self, out);
        pass_close(&self.pass);
        good = !atomic_load(&self.pass.broke);
    }
    free(self.stamps);
    free(lanes);
    free(arguments);
    return good;
}
