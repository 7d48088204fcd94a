/* hits.c - see hits.h. */
#include "hits.h"

#include <stdio.h>
#include <stdlib.h>

void hits_stop(const char *words)
{
    weir_error error = weir_last_error();
    fprintf(stderr, "hits: %s; Weir last said: %s\n", words, error.message);
    abort();
}

static void must_do(weir_status status, const char *words)
{
    if (status != WEIR_OK)
        hits_stop(words);
}

hits_scene hits_open_with(const weir_pool_options *pool_options)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.memory_bytes = (size_t)1 << 30;
    emulated.scheduler = WEIR_EMULATED_NO_WORK;
    emulated.no_ledger = true;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    hits_scene it;
    must_do(weir_device_open("emulated:0", &options, &it.device), "no device");
    for (int i = 0; i < HITS_STREAMS; i++)
        must_do(weir_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &it.streams[i]),
                "no stream");
    weir_resource *leaf;
    must_do(weir_device_resource_create(it.device, &leaf), "no leaf");
    must_do(weir_pool_create(leaf, pool_options, &it.pool), "no pool");
    weir_resource_unref(leaf);
    return it;
}

hits_scene hits_open(void)
{
    return hits_open_with(NULL);
}

void hits_close(hits_scene *it)
{
    weir_resource_unref(it->pool);
    for (int i = 0; i < HITS_STREAMS; i++)
        must_do(weir_stream_destroy(it->device, it->streams[i]), "a stream stays");
    weir_device_unref(it->device);
}

void *hits_take(const hits_scene *it, size_t stream, size_t bytes)
{
    void *ptr;
    must_do(weir_allocate(it->pool, it->streams[stream], bytes, WEIR_ALIGNMENT, &ptr),
            "no memory");
    return ptr;
}

void hits_give(const hits_scene *it, size_t stream, void *ptr, size_t bytes)
{
    if (!weir_deallocate(it->pool, it->streams[stream], ptr, bytes, WEIR_ALIGNMENT))
        hits_stop("a block was not taken back");
}

static void run_once(const hits_scene *it, size_t stream, size_t bytes, size_t depth)
{
    void *blocks[HITS_DEPTH_MAX];
    for (size_t i = 0; i < depth; i++)
        blocks[i] = hits_take(it, stream, bytes);
    for (size_t i = depth; i-- > 0;)
        hits_give(it, stream, blocks[i], bytes);
}

void hits_run(const hits_scene *it, size_t streams, size_t bytes, size_t depth,
              size_t rounds)
{
    for (size_t round = 0; round < rounds; round++) {
        for (size_t stream = 0; stream < streams; stream++)
            run_once(it, stream, bytes, depth);
    }
}

void hits_run_on(const hits_scene *it, size_t stream, size_t bytes, size_t depth,
                 size_t rounds)
{
    for (size_t round = 0; round < rounds; round++)
        run_once(it, stream, bytes, depth);
}
