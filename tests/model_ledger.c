/* model_ledger.c - random programs on the ledger and on a naive one side by side: both
 * find something in a call, or neither does. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "device/ledger.h"
#include "internal.h"
#include "support.h"
#include "support_naive_ledger.h"

enum { SLOTS = 5 };

/* A position that the program holds, and what it says. */
typedef struct slot {
    weir__ledger_position *position;
    set knows;
} slot;

/* One program: both ledgers, and the choices of its seed. */
typedef struct program {
    weir__ledger *ledger;
    weir__ledger_owner owners[DEVICES];
    uint64_t random;
    uint32_t order_percent;  /* of steps that order rather than touch */
    slot slots[SLOTS];
    struct pool_free {       /* the last one */
        uint64_t time;
        uint32_t step;
        int stream;
    } freed;
    uint32_t found_count;    /* in the step in progress */
    naive naive;
} program;

/* Of those that touch. */
static uint64_t quiet_steps, racy_steps, lease_steps;
/* In which a stream was behind a free. */
static uint64_t behind_steps;

static uint32_t draw(program *self, uint32_t n)
{
    return (uint32_t)support_random_below(&self->random, n);
}

/* For a call that follows: it is met by both ledgers. */
static naive_thread *draw_thread(program *self)
{
    naive_thread *thread;
    do
        thread = &self->naive.threads[draw(self, self->naive.thread_count)];
    while (!thread->lives);
    naive_meet(&self->naive, thread);
    return thread;
}

static int draw_stream(program *self)
{
    uint32_t index;
    do
        index = draw(self, self->naive.stream_count);
    while (!self->naive.streams[index].lives);
    return (int)index;
}

/* ---- what the ledger says ---- */

static void found(void *device, const weir_emulated_finding *finding)
{
    program *self = *(program **)device;
    self->found_count++;
    must(finding->bytes > 0);
    uint64_t second = self->naive.act_stream == HOST ?
                      0 : self->naive.streams[self->naive.act_stream].id;
    must_equal(finding->second_stream, second);
    if (strstr(finding->message, "gave them back") != NULL)
        must(naive_has_state(&self->naive, finding, BACK));
    else if (strstr(finding->message, "that are out since") != NULL)
        must(naive_has_state(&self->naive, finding, OUT) && finding->first_stream != 0);
    else
        must(naive_is_true_race(&self->naive, finding));
}

/* What the naive ledger wants is known before the call, and compared after it. */
static void compare(program *self, uint32_t accesses_before)
{
    bool wanted = self->naive.wanted.race || self->naive.wanted.lease;
    if (wanted != (self->found_count > 0)) {
        fprintf(stderr, "  step %" PRIu32 ": %s\n", self->naive.step,
                wanted ? "missed" : "found without a reason");
        must_equal(wanted, self->found_count > 0);
    }
    quiet_steps += !wanted && self->naive.access_count > accesses_before;
    racy_steps += self->naive.wanted.race;
    lease_steps += self->naive.wanted.lease;
    weir__ledger_verify(self->ledger);
}

/* ---- steps that touch ---- */

static void draw_range(program *self, uint32_t *begin, uint32_t *end)
{
    *begin = draw(self, BYTES);
    *end = *begin + 1 + draw(self, draw(self, 2) == 0 ? 4 : BYTES - *begin);
    if (*end > BYTES)
        *end = BYTES;
}

static void step_operation(program *self)
{
    static const char *const words[][3] = {
        { "kernel", "kernel reads", "kernel writes" },
        { "copy", "copy reads", "copy writes" },
    };
    naive_thread *thread = draw_thread(self);
    int stream = draw_stream(self);
    naive_advance(&self->naive, stream, thread, true);

    weir__ledger_access accesses[3];
    uint32_t count = draw(self, 3) + 1;
    const char *const *name = words[draw(self, 2)];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t begin, end;
        int device = (int)draw(self, DEVICES);
        draw_range(self, &begin, &end);
        if (self->naive.block_count > 0 && draw(self, 4) != 0) {
            uint32_t index = draw(self, self->naive.block_count);
            const block *known = &self->naive.blocks[index];
            device = known->device;
            begin = known->begin;
            end = known->end - draw(self, 2) * (known->end - begin > 1);
        }
        accesses[i] = (weir__ledger_access){
            naive_memory[device] + begin, end - begin,
            draw(self, 2) == 0 ? WEIR_EMULATED_READ : WEIR_EMULATED_READ_WRITE };
        bool writes = accesses[i].access != WEIR_EMULATED_READ;
        naive_judge(&self->naive, device, begin, end, writes);
        for (uint32_t at = begin; at < end; at++)
            self->naive.wanted.lease |= self->naive.bytes[device][at].state == BACK;
        naive_keep(&self->naive, device, begin, end, name[writes ? 2 : 1], writes);
    }
    weir__ledger_operation(self->ledger, thread->number, self->naive.streams[stream].id,
                           name[0], accesses, count);
}

static void step_allocate(program *self)
{
    int stream = draw_stream(self);
    int device = (int)draw(self, DEVICES);
    uint32_t begin = draw(self, BYTES / 8) * 8;
    uint32_t end = begin + 8 * (1 + draw(self, 3)) - draw(self, 2) * 3;
    if (end > BYTES)
        end = BYTES;
    bool is_out = false;
    for (uint32_t at = begin; at < end; at++)
        is_out |= self->naive.bytes[device][at].state == OUT;
    if (is_out && draw(self, 8) != 0)
        return;

    naive_thread *thread = draw_thread(self);
    naive_advance(&self->naive, stream, thread, false);
    naive_judge(&self->naive, device, begin, end, true);
    self->naive.wanted.lease = is_out;
    weir__ledger_allocate(self->ledger, thread->number, self->naive.streams[stream].id,
                          naive_memory[device] + begin, end - begin);
    naive_keep(&self->naive, device, begin, end, "allocate", true);
    self->naive.blocks[self->naive.block_count] = (block){ device, begin, end };
    for (uint32_t at = begin; at < end; at++) {
        self->naive.bytes[device][at].state = OUT;
        self->naive.bytes[device][at].block = self->naive.block_count;
    }
    self->naive.block_count++;
}

static void step_deallocate(program *self)
{
    if (self->naive.block_count == 0)
        return;
    naive_thread *thread = draw_thread(self);
    int stream = draw(self, 6) == 0 ? HOST : draw_stream(self);
    block asked = self->naive.blocks[draw(self, self->naive.block_count)];
    if (draw(self, 10) == 0 && asked.end < BYTES)
        asked.end++;

    bool is_of[BYTES] = { false };
    bool is_block = naive_find_block(&self->naive, &asked, is_of);
    if (is_block && stream != HOST) {
        naive_advance(&self->naive, stream, thread, false);
        for (uint32_t at = asked.begin; at < asked.end; at++) {
            if (is_of[at])
                naive_judge(&self->naive, asked.device, at, at + 1, true);
        }
    }
    weir__ledger_deallocate(self->ledger, thread->number,
                            stream == HOST ? 0 : self->naive.streams[stream].id,
                            naive_memory[asked.device] + asked.begin,
                            asked.end - asked.begin);
    uint32_t run = asked.begin; /* of bytes that are the block's */
    for (uint32_t at = asked.begin; is_block && at <= asked.end; at++) {
        if (at < asked.end && is_of[at]) {
            self->naive.bytes[asked.device][at].state = BACK;
            continue;
        }
        if (stream != HOST)
            naive_keep(&self->naive, asked.device, run, at, "deallocate", true);
        run = at + 1;
    }
}

/* Frees a memory, and begins it anew. */
static void step_memory(program *self)
{
    if (draw(self, 4) != 0)
        return;
    naive_thread *thread = draw_thread(self);
    int device = (int)draw(self, DEVICES);
    self->naive.act_stream = HOST;
    self->naive.act_knows = thread->knows;
    naive_judge(&self->naive, device, 0, BYTES, true);
    weir__ledger_memory_end(self->ledger, thread->number, naive_memory[device]);
    weir__ledger_memory_begin(self->ledger, &self->owners[device], thread->number,
                              naive_memory[device], BYTES);
    for (uint32_t i = 0; i < self->naive.access_count; i++) {
        naive_access *access = &self->naive.accesses[i];
        access->is_forgotten |= access->device == device;
    }
    memset(self->naive.bytes[device], 0, sizeof self->naive.bytes[device]);
}

/* ---- steps of a pool of the device's own ---- */

/* Hands out bytes that a pool has made safe for the stream, or (a graph) has not. */
static void pool_begin(program *self, bool is_graph)
{
    uint32_t begin, end;
    int stream = draw_stream(self), device = (int)draw(self, DEVICES);
    uint64_t id = self->naive.streams[stream].id;
    naive_thread *thread = draw_thread(self);
    draw_range(self, &begin, &end);
    uintptr_t ptr = naive_memory[device] + begin;
    naive_advance(&self->naive, stream, thread, false);
    if (is_graph) {
        naive_judge(&self->naive, device, begin, end, true);
        weir__ledger_graph_malloc(self->ledger, thread->number, id, ptr,
                                  end - begin);
    } else {
        weir__ledger_pool_malloc(self->ledger, thread->number, id, ptr, end - begin);
    }
    naive_pool(&self->naive, device, begin, end, RAW, is_graph);
    naive_keep(&self->naive, device, begin, end,
               is_graph ? "graph malloc" : "pool malloc", true);
}

static void step_pool_malloc(program *self)
{
    pool_begin(self, false);
}

static void step_graph_malloc(program *self)
{
    pool_begin(self, true);
}

static void step_pool_free(program *self)
{
    uint32_t begin, end;
    int stream = draw_stream(self), device = (int)draw(self, DEVICES);
    naive_thread *thread = draw_thread(self);
    draw_range(self, &begin, &end);
    naive_advance(&self->naive, stream, thread, false);
    naive_judge(&self->naive, device, begin, end, true);
    uint64_t time = weir__ledger_pool_free(self->ledger, thread->number,
                                           self->naive.streams[stream].id,
                                           naive_memory[device] + begin, end - begin);
    must(time > 0);
    naive_pool(&self->naive, device, begin, end, BACK, true);
    naive_keep(&self->naive, device, begin, end, "pool free", true);
    self->freed = (struct pool_free){ time, self->naive.step, stream };
}

/* Of a stream that has ended the ledger may have forgotten what others know. */
static void step_is_behind(program *self)
{
    if (self->freed.time == 0)
        return;
    int stream = draw_stream(self);
    const naive_stream *other = &self->naive.streams[self->freed.stream];
    bool wanted = naive_is_behind(&self->naive, stream, self->freed.step);
    bool got = weir__ledger_is_behind(self->ledger, self->naive.streams[stream].id,
                                      other->id, self->freed.time);
    must(other->lives ? got == wanted : !got || wanted);
    behind_steps += got;
}

/* Returns a memory, and draws it anew. */
static void step_pool_memory(program *self)
{
    if (draw(self, 4) != 0)
        return;
    naive_thread *thread = draw_thread(self);
    int device = (int)draw(self, DEVICES);
    weir__ledger_pool_return(self->ledger, naive_memory[device]);
    weir__ledger_pool_draw(self->ledger, &self->owners[device], thread->number,
                           naive_memory[device], BYTES);
    naive_pool(&self->naive, device, 0, BYTES, BACK, false);
}

/* ---- steps that order ---- */

static slot *draw_slot(program *self)
{
    return &self->slots[draw(self, SLOTS)];
}

static void fill_slot(program *self, slot *into, weir__ledger_position *position,
                      set knows)
{
    must(position != NULL);
    weir__ledger_unref(self->ledger, into->position);
    *into = (slot){ position, knows };
}

static void step_record(program *self)
{
    int stream = draw_stream(self);
    const naive_stream *on = &self->naive.streams[stream];
    if (draw(self, 4) == 0) {
        fill_slot(self, draw_slot(self), weir__ledger_look(self->ledger, on->id),
                  on->knows);
        return;
    }
    naive_thread *thread = draw_thread(self);
    naive_advance(&self->naive, stream, thread, true);
    fill_slot(self, draw_slot(self),
              weir__ledger_record(self->ledger, thread->number, on->id), on->knows);
}

static void step_stream_wait(program *self)
{
    naive_thread *thread = draw_thread(self);
    int stream = draw_stream(self);
    const slot *from = draw_slot(self);
    naive_advance(&self->naive, stream, thread, true);
    set_join(&self->naive.streams[stream].knows, &from->knows);
    weir__ledger_stream_wait(self->ledger, thread->number,
                             self->naive.streams[stream].id, from->position);
}

static void step_host_wait(program *self)
{
    naive_thread *thread = draw_thread(self);
    const slot *from = draw_slot(self);
    set_join(&thread->knows, &from->knows);
    weir__ledger_host_wait(self->ledger, thread->number, from->position);
}

static void step_device_wait(program *self)
{
    naive_thread *thread = draw_thread(self);
    int device = (int)draw(self, DEVICES);
    weir__ledger_position *position =
        weir__ledger_record_all(self->ledger, thread->number,
                                self->owners[device].device);
    set all = self->naive.ended[device];
    for (uint32_t i = 0; i < self->naive.stream_count; i++) {
        if (self->naive.streams[i].lives && self->naive.streams[i].device == device)
            set_join(&all, &self->naive.streams[i].knows);
    }
    if (draw(self, 2) == 0) {
        weir__ledger_host_wait(self->ledger, thread->number, position);
        set_join(&thread->knows, &all);
    }
    fill_slot(self, draw_slot(self), position, all);
}

static void step_signal(program *self)
{
    naive_thread *thread = draw_thread(self);
    weir__ledger_position *token = weir__ledger_host_give(self->ledger, thread->number);
    fill_slot(self, draw_slot(self), token, thread->knows);
}

static void step_done(program *self)
{
    naive_thread *thread = draw_thread(self);
    uint32_t device = draw(self, DEVICES), key = draw(self, KEYS);
    const slot *from = draw_slot(self);
    set_join(&self->naive.keys[device][key],
             from->position != NULL ? &from->knows : &thread->knows);
    weir__ledger_done(self->ledger, thread->number, self->owners[device].device, key,
                      from->position);
}

static void step_learn(program *self)
{
    naive_thread *thread = draw_thread(self);
    uint32_t device = draw(self, DEVICES), key = draw(self, KEYS);
    set_join(&thread->knows, &self->naive.keys[device][key]);
    weir__ledger_learn(self->ledger, thread->number, self->owners[device].device, key);
}

static void step_forget(program *self)
{
    uint32_t device = draw(self, DEVICES), key = draw(self, KEYS);
    bool is_kept = draw(self, 3) != 0;
    weir__ledger_forget(self->ledger, self->owners[device].device, key, is_kept);
    if (key == 0)
        return;
    if (is_kept)
        set_join(&self->naive.keys[device][0], &self->naive.keys[device][key]);
    self->naive.keys[device][key] = (set){ { 0 } };
}

/* ---- steps of lives ---- */

static void begin_stream(program *self, int device, bool is_legacy, bool is_blocking)
{
    naive_stream *stream = &self->naive.streams[self->naive.stream_count++];
    *stream = (naive_stream){ .id = 100 + self->naive.stream_count, .device = device,
                              .is_legacy = is_legacy, .lives = true,
                              .is_blocking = is_blocking && !is_legacy };
    weir__ledger_stream_begin(self->ledger, &self->owners[device], stream->id,
                              is_legacy, is_blocking);
}

static void step_streams(program *self)
{
    if (self->naive.stream_count == STREAMS_MAX)
        return;
    naive_stream *old = &self->naive.streams[draw_stream(self)];
    if (old->is_legacy)
        return;
    weir__ledger_stream_end(self->ledger, old->id);
    old->lives = false;
    set_join(&self->naive.ended[old->device], &old->knows);
    begin_stream(self, old->device, false, draw(self, 2) == 0);
}

static void step_threads(program *self)
{
    if (self->naive.thread_count == THREADS_MAX || draw(self, 3) != 0)
        return;
    naive_thread *old = draw_thread(self);
    weir__ledger_thread_end(self->ledger, old->number);
    old->lives = false;
    bool any = false;
    for (uint32_t i = 0; i < self->naive.thread_count; i++)
        any |= self->naive.threads[i].lives && self->naive.threads[i].is_met;
    if (!any)
        self->naive.floor = old->knows;
    self->naive.threads[self->naive.thread_count] =
        (naive_thread){ .number = self->naive.thread_count + 1, .lives = true };
    self->naive.thread_count++;
}

/* ---- programs ---- */

typedef struct choice {
    uint32_t weight;
    void (*step)(program *self);
} choice;

static void draw_step(program *self, const choice *choices, size_t count)
{
    uint32_t all = 0;
    for (size_t i = 0; i < count; i++)
        all += choices[i].weight;
    uint32_t at = draw(self, all);
    while (at >= choices->weight) {
        at -= choices->weight;
        choices++;
    }
    choices->step(self);
}

static void take_step(program *self)
{
    static const choice touches[] = {
        { 8, step_operation }, { 6, step_allocate }, { 6, step_deallocate },
        { 1, step_memory }, { 2, step_pool_malloc }, { 1, step_graph_malloc },
        { 2, step_pool_free }, { 2, step_is_behind }, { 1, step_pool_memory },
    };
    static const choice orders[] = {
        { 16, step_record }, { 16, step_stream_wait }, { 12, step_host_wait },
        { 3, step_device_wait }, { 4, step_signal }, { 3, step_done },
        { 3, step_learn }, { 1, step_forget }, { 3, step_streams }, { 2, step_threads },
    };
    uint32_t accesses_before = self->naive.access_count;
    self->naive.wanted = (verdict){ false, false };
    self->found_count = 0;
    self->naive.act_stream = HOST;
    if (draw(self, 100) < self->order_percent)
        draw_step(self, orders, sizeof orders / sizeof orders[0]);
    else
        draw_step(self, touches, sizeof touches / sizeof touches[0]);
    compare(self, accesses_before);
}

static void begin_program(program *self, uint64_t seed)
{
    memset(self, 0, sizeof *self);
    self->random = seed;
    self->order_percent = 60 + 5 * draw(self, 8);
    self->ledger = weir__ledger_open();
    must(self->ledger != NULL);

    /* Two places that hold the program's address stand for the devices. */
    static program *in_progress[DEVICES];
    for (int device = 0; device < DEVICES; device++) {
        in_progress[device] = self;
        self->owners[device] = (weir__ledger_owner){ found, &in_progress[device] };
        begin_stream(self, device, true, true);
        weir__ledger_memory_begin(self->ledger, &self->owners[device], 1,
                                  naive_memory[device], BYTES);
    }
    uint32_t streams = 1 + draw(self, 4);
    for (uint32_t i = 0; i < streams; i++)
        begin_stream(self, draw(self, 4) == 0 ? 1 : 0, false, draw(self, 2) == 0);
    self->naive.thread_count = 1 + draw(self, 3);
    for (uint32_t i = 0; i < self->naive.thread_count; i++)
        self->naive.threads[i] = (naive_thread){ .number = i + 1, .lives = true };
    self->naive.threads[0].is_met = true; /* its memory has begun */
}

static void end_program(program *self)
{
    for (size_t i = 0; i < SLOTS; i++)
        weir__ledger_unref(self->ledger, self->slots[i].position);
    weir__ledger_device_end(self->ledger, self->owners[0].device);
    weir__ledger_verify(self->ledger);
    weir__ledger_device_end(self->ledger, self->owners[1].device);
    weir__ledger_close(self->ledger);
}

static void ledger_finds_what_a_naive_one_finds(void **state)
{
    (void)state;
    static program one;
    size_t live = weir__host_live();
    uint64_t programs = support_bound("programs on the ledger and a naive one",
                                      4000, 40000);
    for (uint64_t i = 0; i < programs; i++) {
        begin_program(&one, support_seed(i));
        uint32_t steps = 20 + draw(&one, STEPS_MAX - 20);
        for (one.naive.step = 0; one.naive.step < steps; one.naive.step++)
            take_step(&one);
        end_program(&one);
        must_equal(weir__host_live(), live);
    }
    /* Neither answer is rare, or this would show little. */
    print_message("steps that touch: %" PRIu64 " quiet, %" PRIu64 " racy, %" PRIu64
                  " against a lease\n", quiet_steps, racy_steps, lease_steps);
    uint64_t all = quiet_steps + racy_steps + lease_steps;
    must(behind_steps > programs / 4);
    must(quiet_steps > all / 10 && racy_steps > all / 10 && lease_steps > all / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ledger_finds_what_a_naive_one_finds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
