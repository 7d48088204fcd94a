/* support_scene.c - see support_scene.h. */
#include "support_scene.h"

#include <string.h>

#include "device/device.h"
#include "stream_order.h"

scene scene_open(bool eager)
{
    scene it = { .device = NULL };
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.seed = support_seed(0);
    emulated.memory_bytes = MEMORY;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.eager = eager;
    options.emulated = &emulated;
    it.device = open_with("emulated:0", &options);

    weir_resource *leaf;
    must_ok(weir_device_resource_create(it.device, &leaf));
    weir_pool_options pool = WEIR_POOL_OPTIONS_INIT;
    pool.initial_bytes = pool.limit_bytes = SIZE;
    pool.cache_bytes = WEIR_POOL_NO_CACHE; /* the order, and the heap */
    must_ok(weir_pool_create(leaf, &pool, &it.pool));
    weir_resource_unref(leaf);
    return it;
}

void scene_make_streams(scene *it)
{
    it->a = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    it->b = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    it->c = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    it->d = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
}

void scene_close(scene *it)
{
    weir__order_verify(it->device->order);
    weir_resource_unref(it->pool);
    weir_stream streams[] = { it->a, it->b, it->c, it->d };
    for (size_t i = 0; i < 4; i++) {
        if (streams[i] != NULL)
            end_stream(it->device, streams[i]);
    }
    close_emulated(it->device);
}

void must_finish(scene *it, weir_stream stream)
{
    must_ok(weir_stream_sync(it->device, stream));
}

void must_not_finish(scene *it, weir_stream stream)
{
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it->device, stream));
}

static void either(void *argument)
{
    void **pair = argument;
    void (*entry)(void *);
    memcpy(&entry, &pair[0], sizeof entry);
    entry(pair[1]);
}

void run_both(weir_device *device, void (*first)(void *), void (*second)(void *),
              void *argument)
{
    void *pairs[2][2] = { { NULL, argument }, { NULL, argument } };
    memcpy(&pairs[0][0], &first, sizeof first);
    memcpy(&pairs[1][0], &second, sizeof second);
    void *arguments[2] = { pairs[0], pairs[1] };
    must_ok(weir_emulated_run_threads(device, 2, either, arguments));
}
