/* model_small.c - every small program there is, in every order in which the device can
 * run it: a pool of two grains, three streams (one of them legacy, one blocking), and a
 * few steps of allocate (one grain or both), use, free, wait and ask.
 *
 * The explorer chooses both the steps and what the stepped device does next. Uses and
 * frees are ordered by weir_stream_wait; the ledger and the bytes tell if the pool has
 * handed out what was not its to give. */
#include <inttypes.h>

#include "device/device.h"
#include "stream_order.h"
#include "support.h"
#include "support_explore.h"
#include "weir/weir.h"

#define GRAIN   ((size_t)256)
#define STREAMS 3
#define BLOCKS  2

typedef struct small_block {
    void *ptr;         /* null: not out */
    size_t bytes;
    int last;          /* the stream that it was last used on */
    uint64_t key;      /* 0: not written yet */
} small_block;

typedef struct small {
    explorer explorer;
    weir_device *device;
    weir_resource *leaf, *pool;
    weir_stream streams[STREAMS];
    small_block blocks[BLOCKS];
    int last;
    uint64_t keys;
    uint64_t refused;
} small;

static int choose(small *m, int n)
{
    return (int)explore_choose(&m->explorer, (uint32_t)n);
}

static void follow(const small *m, int stream, int other)
{
    if (stream != other)
        must_ok(weir_stream_wait(m->device, m->streams[stream], m->streams[other]));
}

static void allocate(small *m, small_block *block)
{
    int stream = choose(m, STREAMS);
    block->bytes = GRAIN * (size_t)(1 + choose(m, 2));
    weir_status status = weir_allocate(m->pool, m->streams[stream], block->bytes, 1,
                                       &block->ptr);
    must(status == WEIR_OK || status == WEIR_OUT_OF_MEMORY ||
         status == WEIR_LIMIT_REACHED);
    m->refused += status != WEIR_OK;
    block->last = m->last = stream;
    block->key = 0;
}

/* Finds what was written last, and writes something else. */
static void use(small *m, small_block *block)
{
    int stream = choose(m, STREAMS);
    follow(m, stream, block->last);
    if (block->key != 0)
        check_stamp(m->device, m->streams[stream], block->ptr, block->bytes,
                    block->key);
    block->key = ++m->keys;
    stamp(m->device, m->streams[stream], block->ptr, block->bytes, block->key);
    block->last = m->last = stream;
}

static void put_back(small *m, small_block *block, int stream)
{
    follow(m, stream, block->last);
    must(weir_deallocate(m->pool, m->streams[stream], block->ptr, block->bytes, 1));
    block->ptr = NULL;
    m->last = stream;
}

/* One of the steps that can be taken: to use or to free a block that is out, to
 * allocate the first that is not, to wait for the stream used last or to ask about
 * it. */
static void take_step(small *m)
{
    small_block *out[BLOCKS], *free_one = NULL;
    int count = 0;
    for (int i = BLOCKS; i-- > 0;) {
        if (m->blocks[i].ptr != NULL)
            out[count++] = &m->blocks[i];
        else
            free_one = &m->blocks[i];
    }
    bool done;
    int kind = choose(m, 2 * count + 2 + (free_one != NULL));
    if (kind < count)
        use(m, out[kind]);
    else if (kind < 2 * count)
        put_back(m, out[kind - count], choose(m, STREAMS));
    else if (kind == 2 * count)
        must_ok(weir_stream_sync(m->device, m->streams[m->last]));
    else if (kind == 2 * count + 1)
        must_ok(weir_stream_query(m->device, m->streams[m->last], &done));
    else
        allocate(m, free_one);
}

/* With everything back and done, both grains are one again. */
static void end_run(small *m)
{
    m->explorer.active = false;
    for (int i = 0; i < BLOCKS; i++) {
        if (m->blocks[i].ptr != NULL)
            put_back(m, &m->blocks[i], m->blocks[i].last);
    }
    void *all = take(m->pool, m->streams[1], 2 * GRAIN);
    stamp(m->device, m->streams[1], all, 2 * GRAIN, 1);
    give(m->pool, m->streams[1], all, 2 * GRAIN);
    weir__order_verify(m->device->order);
    weir_resource_unref(m->pool);
    end_stream(m->device, m->streams[1]);
    end_stream(m->device, m->streams[2]);
    must_ok(weir_device_sync(m->device));
    must_equal(take_stamp_errors(), 0);
    (void)weir_resource_trim_sync(m->leaf, 0);
    must_be_quiet(m->device);
}

static void begin_run(small *m)
{
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.initial_bytes = options.limit_bytes = 2 * GRAIN;
    must_ok(weir_pool_create(m->leaf, &options, &m->pool));
    m->streams[0] = WEIR_STREAM_LEGACY;
    m->streams[1] = make_stream(m->device, WEIR_STREAM_NON_BLOCKING);
    m->streams[2] = make_stream(m->device, WEIR_STREAM_BLOCKING);
    m->last = 0;
    m->keys = 1;
    m->explorer.active = true;
}

static void every_small_program_runs_clean(void **state)
{
    (void)state;
    static small m;
    uint64_t length = support_bound("steps of every small program", 4, 5);
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.memory_bytes = (size_t)1 << 20;
    emulated.choose = explore_choose;
    emulated.choose_context = &m.explorer;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    m = (small){ .device = open_with("emulated:0", &options) };
    must_ok(weir_device_resource_create(m.device, &m.leaf));
    do {
        support_use_seed(m.explorer.runs);
        begin_run(&m);
        allocate(&m, &m.blocks[0]);
        for (uint64_t i = 1; i < length; i++)
            take_step(&m);
        end_run(&m);
    } while (explore_next(&m.explorer));
    weir_resource_unref(m.leaf);
    close_emulated(m.device);
    print_message("%" PRIu64 " runs of every program of %" PRIu64 " steps; %" PRIu64
                  " requests refused\n",
                  m.explorer.runs, length, m.refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_program_runs_clean),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
