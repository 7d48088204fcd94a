/* support_pool.c - see support_pool.h. */
#include "support_pool.h"

weir_resource *open_pool(weir_resource *upstream, size_t initial_bytes,
                         size_t limit_bytes, size_t growth_bytes)
{
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.initial_bytes = initial_bytes;
    options.limit_bytes = limit_bytes;
    options.growth_bytes = growth_bytes;
    options.cache_bytes = WEIR_POOL_NO_CACHE; /* the heap, and it alone */
    weir_resource *pool;
    must_ok(weir_pool_create(upstream, &options, &pool));
    weir_resource_unref(upstream);
    return pool;
}

weir_resource *open_leaf(weir_device *device)
{
    weir_resource *leaf;
    must_ok(weir_device_resource_create(device, &leaf));
    return leaf;
}

static pool_scene scene_on(weir_device *device)
{
    pool_scene it = { .device = device };
    for (int i = 0; i < STREAMS; i++)
        it.streams[i] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    return it;
}

pool_scene open_scene_without_pool(weir_emulated_scheduler scheduler,
                                   size_t memory_bytes)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.memory_bytes = memory_bytes;
    emulated.scheduler = scheduler;
    emulated.seed = support_seed_in_use();
    emulated.no_ledger = scheduler == WEIR_EMULATED_NO_WORK;
    weir_device_options device = WEIR_DEVICE_OPTIONS_INIT;
    device.emulated = &emulated;
    return scene_on(open_with("emulated:0", &device));
}

pool_scene open_scene(uint64_t seed, size_t initial_bytes, size_t limit_bytes,
                      size_t growth_bytes)
{
    pool_scene it = scene_on(open_stepped(seed));
    it.pool = open_pool(open_leaf(it.device), initial_bytes, limit_bytes, growth_bytes);
    return it;
}

void close_scene(pool_scene *it)
{
    weir_resource_unref(it->pool);
    for (int i = 0; i < STREAMS; i++)
        end_stream(it->device, it->streams[i]);
    close_emulated(it->device);
}

void *take_on(pool_scene *it, int stream, size_t bytes)
{
    void *ptr = take(it->pool, it->streams[stream], bytes);
    stamp(it->device, it->streams[stream], ptr, bytes, (uintptr_t)ptr);
    return ptr;
}

void give_on(pool_scene *it, int stream, void *ptr, size_t bytes)
{
    check_stamp(it->device, it->streams[stream], ptr, bytes, (uintptr_t)ptr);
    give(it->pool, it->streams[stream], ptr, bytes);
}

uint64_t stall(pool_scene *it, int stream)
{
    uint64_t gate;
    must_ok(weir_emulated_stall(it->device, it->streams[stream], &gate));
    return gate;
}

void open_gate(pool_scene *it, uint64_t gate)
{
    must_ok(weir_emulated_open_gate(it->device, gate));
}

uint64_t waits(pool_scene *it)
{
    return calls_of(it->device).stream_wait_event;
}

void *try_take(pool_scene *it, int stream, size_t bytes, weir_status wanted)
{
    void *ptr;
    must_answer(wanted, weir_allocate(it->pool, it->streams[stream], bytes,
                                      WEIR_ALIGNMENT, &ptr));
    return ptr;
}
