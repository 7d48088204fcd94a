/* primitives.c - see primitives.h. */
#include "fakes/primitives.h"

#include <stdio.h>
#include <unistd.h>

#include "device/module.h"

static void prepare_ptr(scene *it)
{
    must_ok(weir__malloc(it->device, BYTES, &it->ptr));
}

static void free_ptr(scene *it)
{
    must_ok(weir__stream_sync(it->device, it->stream));
    if (it->ptr != NULL)
        must_ok(weir__free(it->device, it->ptr));
    it->ptr = NULL;
}

static weir_status act_malloc(scene *it)
{
    return weir__malloc(it->device, BYTES, &it->ptr);
}

static weir_status act_free(scene *it)
{
    weir_status status = weir__free(it->device, it->ptr);
    if (status == WEIR_OK)
        it->ptr = NULL;
    return status;
}

static weir_status act_managed_malloc(scene *it)
{
    const weir_managed_options options = { sizeof options, WEIR_MANAGED_HOST, true };
    weir_status status = weir__managed_malloc(it->device, BYTES, &options, &it->ptr);
    if (status != WEIR_OK)
        it->ptr = NULL;
    return status;
}

static void prepare_managed(scene *it)
{
    must_ok(act_managed_malloc(it));
}

static weir_status act_pinned_malloc(scene *it)
{
    return weir__pinned_malloc(it->device, BYTES, WEIR__PINNED_PORTABLE, &it->host);
}

static void prepare_pinned(scene *it)
{
    must_ok(act_pinned_malloc(it));
}

static weir_status act_pinned_free(scene *it)
{
    weir_status status = weir__pinned_free(it->device, it->host);
    if (status == WEIR_OK)
        it->host = NULL;
    return status;
}

static void free_pinned(scene *it)
{
    if (it->host != NULL)
        must_ok(act_pinned_free(it));
}

static unsigned char pages[2 * 4096] __attribute__((aligned(4096)));

static weir_status act_host_register(scene *it)
{
    return weir__host_register(it->device, pages, sizeof pages, WEIR__PINNED_MAPPED);
}

static void prepare_registered(scene *it)
{
    must_ok(act_host_register(it));
}

static weir_status act_host_unregister(scene *it)
{
    return weir__host_unregister(it->device, pages);
}

static void unregister_if_done(scene *it)
{
    if (it->is_done)
        must_ok(act_host_unregister(it));
}

static void unregister_if_not_done(scene *it)
{
    if (!it->is_done)
        must_ok(act_host_unregister(it));
}

static weir_status act_memory_info(scene *it)
{
    size_t free_bytes, total_bytes;
    return weir__memory_info(it->device, &free_bytes, &total_bytes);
}

static weir_status act_stream_create(scene *it)
{
    return weir__stream_create(it->device, true, &it->made_stream);
}

static void prepare_stream(scene *it)
{
    must_ok(act_stream_create(it));
}

static weir_status act_stream_destroy(scene *it)
{
    weir_status status = weir__stream_destroy(it->device, it->made_stream);
    if (status == WEIR_OK)
        it->made_stream = NULL;
    return status;
}

static void end_made_stream(scene *it)
{
    if (it->made_stream != NULL)
        must_ok(act_stream_destroy(it));
}

static weir_status act_stream_get_id(scene *it)
{
    uint64_t id;
    return weir__stream_get_id(it->device, it->stream, &id);
}

static weir_status act_stream_get_flags(scene *it)
{
    bool blocking;
    return weir__stream_get_flags(it->device, it->stream, &blocking);
}

static weir_status act_stream_is_capturing(scene *it)
{
    bool capturing;
    return weir__stream_is_capturing(it->device, it->stream, &capturing);
}

static weir_status act_stream_sync(scene *it)
{
    return weir__stream_sync(it->device, it->stream);
}

static void put_work(scene *it)
{
    must_ok(weir__fill(it->device, it->stream, it->ptr, 7, BYTES));
}

static void prepare_work(scene *it)
{
    prepare_ptr(it);
    put_work(it);
}

static weir_status act_stream_query(scene *it)
{
    bool done;
    return weir__stream_query(it->device, it->stream, &done);
}

static weir_status act_event_create(scene *it)
{
    return weir__event_create(it->device, &it->event);
}

static weir_status act_event_record(scene *it)
{
    return weir__event_record(it->device, it->event, it->stream);
}

static void prepare_event(scene *it)
{
    must_ok(act_event_create(it));
    prepare_work(it);
    must_ok(act_event_record(it));
}

static weir_status act_event_destroy(scene *it)
{
    weir_status status = weir__event_destroy(it->device, it->event);
    if (status == WEIR_OK)
        it->event = NULL;
    return status;
}

static void end_event(scene *it)
{
    if (it->event != NULL)
        must_ok(act_event_destroy(it));
    free_ptr(it);
}

static weir_status act_stream_wait_event(scene *it)
{
    return weir__stream_wait_event(it->device, it->stream, it->event);
}

static weir_status act_event_query(scene *it)
{
    bool done;
    return weir__event_query(it->device, it->event, &done);
}

static weir_status act_event_sync(scene *it)
{
    return weir__event_sync(it->device, it->event);
}

static weir_status act_device_sync(scene *it)
{
    return weir__device_sync(it->device);
}

#if CUDA_VERSION >= 12050
static weir_status act_event_record_all(scene *it)
{
    return weir__event_record_all(it->device, it->event);
}
#endif

static weir_status act_copy(scene *it)
{
    return weir__copy(it->device, it->stream, it->ptr, pages, sizeof pages);
}

static weir_status act_fill(scene *it)
{
    return weir__fill(it->device, it->stream, it->ptr, 3, BYTES);
}

static void do_nothing(void *argument, void *const views[])
{
    (void)argument;
    (void)views;
}

static weir_status act_launch(scene *it)
{
    return weir__launch(it->device, it->stream, do_nothing, NULL, NULL, 0);
}

static void wait_for_stream(scene *it)
{
    must_ok(act_stream_sync(it));
}

static weir_status act_enable_peer(scene *it)
{
    return weir__enable_peer(it->device, it->peer);
}

static weir_async_options pool_options(weir_async_memory memory)
{
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    options.memory = memory;
    options.release_threshold_bytes = SIZE_MAX;
    options.reuse = WEIR_ASYNC_REUSE_SAME_STREAM | WEIR_ASYNC_REUSE_EVENTS;
    return options;
}

static weir_status act_mempool_create(scene *it)
{
    weir_async_options options = pool_options(WEIR_ASYNC_DEVICE);
    weir_status status = weir__mempool_create(it->device, &options, &it->pool);
    if (status != WEIR_OK)
        it->pool = NULL;
    return status;
}

static void prepare_mempool(scene *it)
{
    must_ok(act_mempool_create(it));
}

static weir_status act_mempool_destroy(scene *it)
{
    weir_status status = weir__mempool_destroy(it->device, it->pool);
    if (status == WEIR_OK)
        it->pool = NULL;
    return status;
}

static weir_status act_mempool_free(scene *it)
{
    weir_status status = weir__mempool_free(it->device, it->stream, it->ptr);
    if (status == WEIR_OK)
        it->ptr = NULL;
    return status;
}

static void end_mempool(scene *it)
{
    if (it->ptr != NULL)
        must_ok(act_mempool_free(it));
    must_ok(act_stream_sync(it)); /* else the pool would stay for a while */
    if (it->pool != NULL)
        must_ok(act_mempool_destroy(it));
}

static weir_status act_mempool_default(scene *it)
{
    weir_mempool pool;
    return weir__mempool_default(it->device, WEIR_ASYNC_DEVICE, &pool);
}

static weir_status act_mempool_malloc(scene *it)
{
    return weir__mempool_malloc(it->device, it->pool, it->stream, BYTES, &it->ptr);
}

static void prepare_mempool_ptr(scene *it)
{
    prepare_mempool(it);
    must_ok(act_mempool_malloc(it));
}

static weir_status act_mempool_trim(scene *it)
{
    return weir__mempool_trim(it->device, it->pool, 0);
}

static weir_status act_mempool_get_state(scene *it)
{
    weir__mempool_state state;
    return weir__mempool_get_state(it->device, it->pool, &state);
}

/* ---- memory for other processes, which this one opens, too ---- */

static weir_status act_malloc_fd(scene *it)
{
    return weir__shared_malloc(it->device, WEIR_SHARE_FD, BYTES, &it->ptr);
}

static weir_status act_malloc_legacy(scene *it)
{
    return weir__shared_malloc(it->device, WEIR_SHARE_LEGACY, BYTES, &it->ptr);
}

static weir_status act_shared_free(scene *it)
{
    weir_status status = weir__shared_free(it->device, it->ptr);
    if (status == WEIR_OK)
        it->ptr = NULL;
    return status;
}

static weir_status act_shared_find(scene *it)
{
    void *base;
    weir__shared found;
    return weir__shared_find(it->device, it->ptr, BYTES, &base, &found);
}

static weir_status act_shared_export(scene *it)
{
    return weir__shared_export(it->device, it->ptr, &it->shared);
}

static weir_status act_shared_open(scene *it)
{
    return weir__shared_open(it->device, &it->shared, &it->opened);
}

static weir_status act_shared_close(scene *it)
{
    weir_status status = weir__shared_close(it->device, it->opened);
    if (status == WEIR_OK)
        it->opened = NULL;
    return status;
}

static void prepare_fd(scene *it)
{
    it->shared.fd = -1;
    must_ok(act_malloc_fd(it));
}

/* As no driver lets a process do. */
static void prepare_legacy(scene *it)
{
    static const fakes_machine opens_own = { .opens_own = true };
    fakes_set_machine(&opens_own);
    it->shared.fd = -1;
    must_ok(act_malloc_legacy(it));
}

static void prepare_fd_export(scene *it)
{
    prepare_fd(it);
    must_ok(act_shared_export(it));
}

static void prepare_legacy_export(scene *it)
{
    prepare_legacy(it);
    must_ok(act_shared_export(it));
}

static void prepare_fd_open(scene *it)
{
    prepare_fd_export(it);
    must_ok(act_shared_open(it));
}

static void prepare_legacy_open(scene *it)
{
    prepare_legacy_export(it);
    must_ok(act_shared_open(it));
}

static void end_shared(scene *it)
{
    if (it->opened != NULL)
        must_ok(act_shared_close(it));
    if (it->ptr != NULL)
        must_ok(act_shared_free(it));
    if (it->shared.fd > 0)
        must_equal(close(it->shared.fd), 0);
    it->shared.fd = -1;
    fakes_set_machine(NULL);
}

static void prepare_pooled(scene *it)
{
    weir_async_options options = pool_options(WEIR_ASYNC_DEVICE);
    options.handle_types = WEIR_ASYNC_HANDLE_POSIX_FD;
    it->shared.fd = -1;
    must_ok(weir__mempool_create(it->device, &options, &it->pool));
    must_ok(act_mempool_malloc(it));
}

static void prepare_pooled_export(scene *it)
{
    prepare_pooled(it);
    must_ok(act_shared_export(it));
}

/* It can be closed. */
static void prepare_pooled_open(scene *it)
{
    prepare_pooled_export(it);
    must_ok(act_shared_open(it));
    must_ok(weir__mempool_free(it->device, it->stream, it->opened));
    must_ok(act_stream_sync(it));
}

static void close_pooled(scene *it)
{
    if (it->opened != NULL)
        must_ok(act_shared_close(it));
    if (it->shared.fd > 0)
        must_equal(close(it->shared.fd), 0);
    it->shared.fd = -1;
    end_mempool(it);
}

static void end_pooled(scene *it)
{
    if (it->opened != NULL)
        must_ok(weir__mempool_free(it->device, it->stream, it->opened));
    must_ok(act_stream_sync(it));
    close_pooled(it);
}

static weir_status act_shared_event_create(scene *it)
{
    return weir__shared_event_create(it->device, &it->event, &it->shared_event);
}

static weir_status act_shared_event_open(scene *it)
{
    return weir__shared_event_open(it->device, &it->shared_event, &it->opened_event);
}

static void prepare_shared_event(scene *it)
{
    static const fakes_machine opens_own = { .opens_own = true };
    fakes_set_machine(&opens_own);
    must_ok(act_shared_event_create(it));
}

static void end_shared_event(scene *it)
{
    if (it->opened_event != NULL)
        must_ok(weir__event_destroy(it->device, it->opened_event));
    if (it->event != NULL)
        must_ok(weir__event_destroy(it->device, it->event));
    it->opened_event = it->event = NULL;
    fakes_set_machine(NULL);
}

#define NO_MEMORY WEIR_OUT_OF_MEMORY
#define AN_ERROR  WEIR_DEVICE_ERROR

const primitive primitives[PRIMITIVES] = {
    { "malloc", NO_MEMORY, NULL, act_malloc, free_ptr },
    { "free", NO_MEMORY, prepare_ptr, act_free, free_ptr },
    { "managed_malloc", NO_MEMORY, NULL, act_managed_malloc, free_ptr },
    { "prefetch", NO_MEMORY, prepare_managed, act_prefetch, free_ptr },
    { "prefer", NO_MEMORY, prepare_managed, act_prefer, free_ptr },
    { "pinned_malloc", NO_MEMORY, NULL, act_pinned_malloc, free_pinned },
    { "pinned_free", NO_MEMORY, prepare_pinned, act_pinned_free, free_pinned },
    { "host_register", NO_MEMORY, NULL, act_host_register, unregister_if_done },
    { "host_unregister", NO_MEMORY, prepare_registered, act_host_unregister,
      unregister_if_not_done },
    { "memory_info", AN_ERROR, NULL, act_memory_info, NULL },
    { "stream_create", AN_ERROR, NULL, act_stream_create, end_made_stream },
    { "stream_destroy", AN_ERROR, prepare_stream, act_stream_destroy, end_made_stream },
    { "stream_get_id", AN_ERROR, NULL, act_stream_get_id, NULL },
    { "stream_get_flags", AN_ERROR, NULL, act_stream_get_flags, NULL },
    { "stream_is_capturing", AN_ERROR, NULL, act_stream_is_capturing, NULL },
    { "stream_sync", AN_ERROR, prepare_work, act_stream_sync, free_ptr },
    { "stream_query", AN_ERROR, prepare_work, act_stream_query, free_ptr },
    { "stream_wait_event", AN_ERROR, prepare_event, act_stream_wait_event, end_event },
    { "event_create", AN_ERROR, NULL, act_event_create, end_event },
    { "event_destroy", AN_ERROR, prepare_event, act_event_destroy, end_event },
    { "event_record", AN_ERROR, prepare_event, act_event_record, end_event },
    { "event_query", AN_ERROR, prepare_event, act_event_query, end_event },
    { "event_sync", AN_ERROR, prepare_event, act_event_sync, end_event },
    { "copy", AN_ERROR, prepare_ptr, act_copy, free_ptr },
    { "fill", AN_ERROR, prepare_ptr, act_fill, free_ptr },
    { "launch", AN_ERROR, NULL, act_launch, wait_for_stream },
    { "enable_peer", AN_ERROR, NULL, act_enable_peer, NULL },
    { "mempool_create", NO_MEMORY, NULL, act_mempool_create, end_mempool },
    { "mempool_default", NO_MEMORY, NULL, act_mempool_default, NULL },
    { "mempool_destroy", NO_MEMORY, prepare_mempool, act_mempool_destroy, end_mempool },
    { "mempool_malloc", NO_MEMORY, prepare_mempool, act_mempool_malloc, end_mempool },
    { "mempool_free", NO_MEMORY, prepare_mempool_ptr, act_mempool_free, end_mempool },
    { "mempool_trim", NO_MEMORY, prepare_mempool, act_mempool_trim, end_mempool },
    { "mempool_get_state", NO_MEMORY, prepare_mempool, act_mempool_get_state,
      end_mempool },
    { "shared_malloc", NO_MEMORY, NULL, act_malloc_fd, end_shared },
    { "shared_malloc of the legacy kind", NO_MEMORY, NULL, act_malloc_legacy,
      end_shared },
    { "shared_free", NO_MEMORY, prepare_fd, act_shared_free, end_shared },
    { "shared_find", NO_MEMORY, prepare_legacy, act_shared_find, end_shared },
    { "shared_export", NO_MEMORY, prepare_fd, act_shared_export, end_shared },
    { "shared_export of the legacy kind", NO_MEMORY, prepare_legacy, act_shared_export,
      end_shared },
    { "shared_open", NO_MEMORY, prepare_fd_export, act_shared_open, end_shared },
    { "shared_open of the legacy kind", NO_MEMORY, prepare_legacy_export,
      act_shared_open, end_shared },
    { "shared_close", NO_MEMORY, prepare_fd_open, act_shared_close, end_shared },
    { "shared_close of the legacy kind", NO_MEMORY, prepare_legacy_open,
      act_shared_close, end_shared },
    { "shared_find of a pool", NO_MEMORY, prepare_pooled, act_shared_find,
      close_pooled },
    { "shared_export of a pool", NO_MEMORY, prepare_pooled, act_shared_export,
      close_pooled },
    { "shared_open of a pool", NO_MEMORY, prepare_pooled_export, act_shared_open,
      end_pooled },
    { "shared_close of a pool", NO_MEMORY, prepare_pooled_open, act_shared_close,
      close_pooled },
    { "shared_event_create", AN_ERROR, NULL, act_shared_event_create,
      end_shared_event },
    { "shared_event_open", NO_MEMORY, prepare_shared_event, act_shared_event_open,
      end_shared_event },
    { "range_reserve", NO_MEMORY, NULL, act_range_reserve, end_range },
    { "range_release", NO_MEMORY, prepare_range, act_range_release, end_range },
    { "range_map", NO_MEMORY, prepare_range, act_range_map, end_range },
    { "range_unmap", NO_MEMORY, prepare_piece, act_range_unmap, end_range },
#if CUDA_VERSION >= 12050
    { "event_record_all", AN_ERROR, prepare_event, act_event_record_all, end_event },
#endif
    { "device_sync", AN_ERROR, prepare_work, act_device_sync, free_ptr },
};

/* ---- devices ---- */

weir_device *cuda_open(int ordinal)
{
    char name[16];
    weir_emulated_options options = WEIR_EMULATED_OPTIONS_INIT;
    options.memory_bytes = (size_t)256 << 20;
    options.scheduler = WEIR_EMULATED_STEPPED;
    options.no_ledger = true; /* nobody would tell it of hand-overs */
    fakes_set_device(ordinal, &options);
    weir__module_linked = weir__cuda_module();
    snprintf(name, sizeof name, "cuda:%d", ordinal);
    return open_with(name, NULL);
}
