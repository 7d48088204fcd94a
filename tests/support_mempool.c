/* support_mempool.c - short words for the pools of a device's own. */
#include "support_mempool.h"

static weir_mempool make_with(weir_device *device, const weir_async_options *options)
{
    weir_mempool pool;
    must_ok(weir__mempool_create(device, options, &pool));
    return pool;
}

weir_mempool make_pool(weir_device *device, uint32_t reuse, size_t threshold)
{
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    options.reuse = reuse;
    options.release_threshold_bytes = threshold;
    return make_with(device, &options);
}

weir_mempool make_pool_of(weir_device *device, weir_async_memory memory)
{
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    options.reuse = SAME;
    options.memory = memory;
    options.release_threshold_bytes = EVERYTHING;
    return make_with(device, &options);
}

weir_mempool make_pool_to_share(weir_device *device)
{
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    options.reuse = SAME;
    options.release_threshold_bytes = EVERYTHING;
    options.handle_types = WEIR_ASYNC_HANDLE_POSIX_FD;
    return make_with(device, &options);
}

void end_pool(weir_device *device, weir_mempool pool)
{
    must_ok(weir__mempool_destroy(device, pool));
}

void *draw(weir_device *device, weir_mempool pool, weir_stream stream, size_t bytes)
{
    void *ptr;
    must_ok(weir__mempool_malloc(device, pool, stream, bytes, &ptr));
    return ptr;
}

void back(weir_device *device, weir_stream stream, void *ptr)
{
    must_ok(weir__mempool_free(device, stream, ptr));
}

weir__mempool_state state_of(weir_device *device, weir_mempool pool)
{
    weir__mempool_state state;
    must_ok(weir__mempool_get_state(device, pool, &state));
    return state;
}

void must_hold(weir_device *device, weir_mempool pool, size_t reserved, size_t used)
{
    must_equal(state_of(device, pool).reserved_bytes, reserved);
    must_equal(state_of(device, pool).used_bytes, used);
}

void step_all(weir_device *device)
{
    bool stepped = true;
    while (stepped)
        must_ok(weir_emulated_step(device, &stepped));
}
