/* model_mempool.c - random programs on pools of the emulated device's own, beside a
 * naive account of them: which bytes are out, behind which free each byte is that is
 * handed out, and whether the pool's policies allow that. Contents are checked by
 * kernels, and the ledger must find nothing, for every program orders its own work. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"
#include "support_mempool.h"

enum { STREAMS = 3, POOLS = 2, BLOCKS = 24, FREES_MAX = 256, STEPS = 200,
       RANGES_MAX = 4 * FREES_MAX };

/* Frees, by their number. */
typedef struct set {
    bool has[FREES_MAX];
} set;

typedef struct block {
    char *ptr;        /* null: none */
    size_t bytes;
    int pool;
    int stream;       /* that it is ordered on */
    uint64_t key;
} block;

/* Bytes that were given back last by free number `number`. */
typedef struct range {
    uintptr_t begin;
    uintptr_t end;
    uint32_t number;
} range;

typedef struct freed {
    int stream;
    bool is_reached;  /* a kernel right in front of the free has run */
} freed;

typedef struct program {
    weir_device *device;
    uint64_t random;
    weir_stream streams[STREAMS];
    weir_event event;
    weir_mempool pools[POOLS];
    weir_async_options options[POOLS];
    size_t used[POOLS];
    block blocks[BLOCKS];
    range ranges[RANGES_MAX];
    uint32_t range_count;
    freed frees[FREES_MAX];
    uint32_t free_count;
    set behind[STREAMS];
    set seen;         /* the host has waited for these */
} program;

/* How often bytes were handed out again for each reason. */
static uint64_t by_stream, by_event, by_chance, by_wait, refused;

static uint32_t draw_below(program *self, uint32_t n)
{
    return (uint32_t)support_random_below(&self->random, n);
}

static void set_join(set *self, const set *other)
{
    for (uint32_t i = 0; i < FREES_MAX; i++)
        self->has[i] |= other->has[i];
}

static size_t rounded(size_t bytes)
{
    return (bytes + 511) / 512 * 512;
}

/* ---- what may be handed out ---- */

/* What is done may have gone back to the device, and have come from there again. */
static void judge(program *self, int pool, int stream, uint32_t number)
{
    const freed *from = &self->frees[number];
    uint32_t reuse = self->options[pool].reuse;
    uint64_t waits = by_wait;
    if (from->stream == stream || self->seen.has[number])
        by_stream++;
    else if ((reuse & EVENTS) != 0 && self->behind[stream].has[number])
        by_event++;
    else if (from->is_reached)
        by_chance++;
    else
        by_wait++;
    bool may_wait = (reuse & INTERNAL) != 0;
    must(by_wait == waits || may_wait);
}

static void add_range(program *self, uintptr_t begin, uintptr_t end, uint32_t number)
{
    if (begin >= end)
        return;
    must(self->range_count < RANGES_MAX);
    self->ranges[self->range_count++] = (range){ begin, end, number };
}

/* The bytes are out again: judges every free that they are behind, and forgets it. */
static void reuse_ranges(program *self, int pool, int stream, uintptr_t begin,
                         uintptr_t end)
{
    for (uint32_t i = 0; i < self->range_count;) {
        range old = self->ranges[i];
        if (old.end <= begin || end <= old.begin) {
            i++;
            continue;
        }
        judge(self, pool, stream, old.number);
        self->ranges[i] = self->ranges[--self->range_count];
        add_range(self, old.begin, begin < old.end ? begin : old.end, old.number);
        add_range(self, end > old.begin ? end : old.begin, old.end, old.number);
        i = 0;
    }
}

static void must_be_apart(const program *self, const char *ptr, size_t bytes)
{
    for (int i = 0; i < BLOCKS; i++) {
        const block *other = &self->blocks[i];
        must(other->ptr == NULL || other->ptr + rounded(other->bytes) <= ptr ||
             ptr + rounded(bytes) <= other->ptr);
    }
}

/* ---- steps ---- */

static void step_malloc(program *self, block *into)
{
    int pool = (int)draw_below(self, POOLS), stream = (int)draw_below(self, STREAMS);
    size_t bytes = 1 + draw_below(self, CHUNK / 4);
    if (draw_below(self, 8) == 0)
        bytes += CHUNK;
    void *ptr = NULL;
    weir_status status = weir__mempool_malloc(self->device, self->pools[pool],
                                              self->streams[stream], bytes, &ptr);
    if (status != WEIR_OK) {
        must(status == WEIR_OUT_OF_MEMORY && self->options[pool].max_bytes != 0);
        refused++;
        return;
    }
    must_be_apart(self, ptr, bytes);
    reuse_ranges(self, pool, stream, (uintptr_t)ptr, (uintptr_t)ptr + rounded(bytes));
    *into = (block){ ptr, bytes, pool, stream, support_random(&self->random) };
    self->used[pool] += rounded(bytes);
    stamp(self->device, self->streams[stream], ptr, bytes, into->key);
}

/* All that is on `from` comes before what `to` gets from now on. */
static void order(program *self, int from, int to)
{
    raw_record(self->device, self->event, self->streams[from]);
    raw_wait_event(self->device, self->streams[to], self->event);
    set_join(&self->behind[to], &self->behind[from]);
}

static void reach(void *argument, void *const views[])
{
    (void)views;
    *(bool *)argument = true;
}

static void step_free(program *self, block *from)
{
    if (self->free_count == FREES_MAX)
        return;
    if (draw_below(self, 3) == 0) {
        int other = (int)draw_below(self, STREAMS);
        if (other != from->stream)
            order(self, from->stream, other);
        from->stream = other;
    }
    weir_stream stream = self->streams[from->stream];
    uint32_t number = self->free_count++;
    self->frees[number].stream = from->stream;
    check_stamp(self->device, stream, from->ptr, from->bytes, from->key);
    must_ok(weir_emulated_launch(self->device, stream, reach,
                                 &self->frees[number].is_reached, NULL, 0));
    back(self->device, stream, from->ptr);
    self->behind[from->stream].has[number] = true;
    add_range(self, (uintptr_t)from->ptr, (uintptr_t)from->ptr + rounded(from->bytes),
              number);
    self->used[from->pool] -= rounded(from->bytes);
    from->ptr = NULL;
}

static void step_order(program *self)
{
    int from = (int)draw_below(self, STREAMS), to = (int)draw_below(self, STREAMS);
    if (from != to)
        order(self, from, to);
}

/* Down to the threshold, if nothing is in the way. */
static void must_be_released(program *self)
{
    for (int i = 0; i < POOLS; i++) {
        if (self->used[i] == 0)
            must(state_of(self->device, self->pools[i]).reserved_bytes <=
                 self->options[i].release_threshold_bytes);
    }
}

static void step_wait(program *self)
{
    int stream = (int)draw_below(self, STREAMS + 1);
    if (stream < STREAMS) {
        raw_sync_stream(self->device, self->streams[stream]);
        set_join(&self->seen, &self->behind[stream]);
        return;
    }
    must_ok(weir__device_sync(self->device));
    for (int i = 0; i < STREAMS; i++)
        set_join(&self->seen, &self->behind[i]);
    must_be_released(self);
}

static void step_trim(program *self)
{
    size_t keep = draw_below(self, 4) * CHUNK;
    weir_mempool pool = self->pools[draw_below(self, POOLS)];
    must_ok(weir__mempool_trim(self->device, pool, keep));
}

static void take_step(program *self)
{
    uint32_t kind = draw_below(self, 20);
    bool stepped;
    if (kind < 12) {
        block *at = &self->blocks[draw_below(self, BLOCKS)];
        if (at->ptr == NULL)
            step_malloc(self, at);
        else
            step_free(self, at);
    } else if (kind < 15) {
        step_order(self);
    } else if (kind < 18) {
        for (uint32_t i = draw_below(self, 8); i > 0; i--)
            must_ok(weir_emulated_step(self->device, &stepped));
    } else if (kind < 19) {
        step_trim(self);
    } else if (draw_below(self, 4) == 0) {
        step_wait(self);
    }
    for (int i = 0; i < POOLS; i++) {
        weir__mempool_state state = state_of(self->device, self->pools[i]);
        must_equal(state.used_bytes, self->used[i]);
        must(state.reserved_bytes >= state.used_bytes);
        must(self->options[i].max_bytes == 0 ||
             state.reserved_bytes <= self->options[i].max_bytes);
    }
}

/* ---- programs ---- */

static void begin_program(program *self, uint64_t seed)
{
    memset(self, 0, sizeof *self);
    self->random = seed;
    self->device = open_stepped(seed);
    self->event = raw_event(self->device);
    for (int i = 0; i < STREAMS; i++)
        self->streams[i] = raw_stream(self->device, WEIR_STREAM_NON_BLOCKING);
    for (int i = 0; i < POOLS; i++) {
        weir_async_options *options = &self->options[i];
        *options = (weir_async_options)WEIR_ASYNC_OPTIONS_INIT;
        options->reuse = SAME | (draw_below(self, 8) << 1);
        options->release_threshold_bytes = draw_below(self, 5) * CHUNK;
        if (draw_below(self, 3) == 0)
            options->max_bytes = (2 + draw_below(self, 4)) * CHUNK;
        must_ok(weir__mempool_create(self->device, options, &self->pools[i]));
    }
}

static void end_program(program *self)
{
    bool early = draw_below(self, 2) == 0; /* with memory out */
    for (int i = 0; early && i < POOLS; i++)
        end_pool(self->device, self->pools[i]);
    for (int i = 0; i < BLOCKS; i++) {
        block *at = &self->blocks[i];
        if (at->ptr == NULL)
            continue;
        check_stamp(self->device, self->streams[at->stream], at->ptr, at->bytes,
                    at->key);
        back(self->device, self->streams[at->stream], at->ptr);
    }
    for (int i = 0; !early && i < POOLS; i++)
        end_pool(self->device, self->pools[i]);
    raw_event_end(self->device, self->event);
    for (int i = 0; i < STREAMS; i++)
        raw_stream_end(self->device, self->streams[i]);
    close_emulated(self->device);
}

static void pools_keep_to_their_policies(void **state)
{
    (void)state;
    static program one;
    uint64_t programs = support_bound("model_mempool.programs", 300, 10000);
    for (uint64_t i = 0; i < programs; i++) {
        begin_program(&one, support_seed(i));
        for (int step = 0; step < STEPS; step++)
            take_step(&one);
        end_program(&one);
    }
    print_message("handed out again: %" PRIu64 " on the same stream, %" PRIu64 " by an "
                  "event, %" PRIu64 " by chance, %" PRIu64 " by a wait; %" PRIu64
                  " refused\n", by_stream, by_event, by_chance, by_wait, refused);
    must(by_stream > programs && by_event > programs && by_chance > programs / 2 &&
         by_wait > programs && refused > programs / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_keep_to_their_policies),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
