/* async_create.c - how the leaf `async` begins and ends: its options, and whose pool it
 * draws from. A pool of its own is the driver's to end: it lives on until what was
 * given back to it is done. */
#include <string.h>

#include "async_internal.h"
#include "internal.h"
#include "resource_internal.h"

/* How often we try to give up what the driver does not take. */
#define GIVING_ROUNDS 3

#define REUSE_ALL                                                                \
    (WEIR_ASYNC_REUSE_SAME_STREAM | WEIR_ASYNC_REUSE_EVENTS |                    \
     WEIR_ASYNC_REUSE_OPPORTUNISTIC | WEIR_ASYNC_REUSE_INTERNAL)
#define HANDLES_ALL (WEIR_ASYNC_HANDLE_POSIX_FD | WEIR_ASYNC_HANDLE_FABRIC)

/* ---- options ---- */

static weir_status refuse(const char *sentence)
{
    return weir__fail(WEIR_INVALID_ARGUMENT, "async: %s", sentence);
}

static weir_status check_choice(const weir_async_options *options)
{
    if (options->pool < WEIR_ASYNC_OWN || options->pool > WEIR_ASYNC_FOREIGN)
        return refuse("`pool` is none of weir_async_pool");
    if (options->memory < WEIR_ASYNC_DEVICE || options->memory > WEIR_ASYNC_PINNED)
        return refuse("`memory` is none of weir_async_memory");
    if (options->pool == WEIR_ASYNC_FOREIGN && options->foreign == NULL)
        return refuse("the foreign pool is null");
    if (options->pool != WEIR_ASYNC_FOREIGN && options->foreign != NULL)
        return refuse("a foreign pool is given, and `pool` does not ask for it");
    if (!options->on_numa_node && options->numa_node != 0)
        return refuse("numa_node is set, and on_numa_node is not");
    return WEIR_OK;
}

static weir_status check_shared(const weir_async_options *options)
{
    if (options->primed_bytes != 0 || options->release_threshold_bytes != 0 ||
        options->max_bytes != 0 || options->handle_types != 0 || options->reuse != 0 ||
        options->on_numa_node)
        return refuse("sizes, handle types, reuse and node are for a pool of its own; "
                      "another stays as it is");
    return WEIR_OK;
}

static weir_status check_own(const weir_async_options *options)
{
    if ((options->handle_types & ~HANDLES_ALL) != 0)
        return refuse("handle_types has a bit that means nothing");
    if ((options->reuse & ~REUSE_ALL) != 0)
        return refuse("reuse has a bit that means nothing");
    if (options->on_numa_node && options->memory != WEIR_ASYNC_PINNED)
        return refuse("only pinned memory lies on a node of the host's");
    size_t primed = options->primed_bytes, threshold = options->release_threshold_bytes;
    if (threshold != 0 && primed > threshold)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "async: it is to be primed with %zu bytes, and to keep only "
                          "%zu",
                          primed, threshold);
    if (options->max_bytes != 0 && primed > options->max_bytes)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "async: it is to be primed with %zu bytes, and to hold %zu "
                          "at most",
                          primed, options->max_bytes);
    return WEIR_OK;
}

/* Writes complete options, as mempool_create wants them. */
static weir_status options_read(const weir_async_options *from, weir_async_options *out)
{
    weir_status status =
        weir__read_options(from, out, sizeof *out, "the options of async");
    if (status == WEIR_OK)
        status = check_choice(out);
    if (status == WEIR_OK)
        status = out->pool == WEIR_ASYNC_OWN ? check_own(out) : check_shared(out);
    if (status != WEIR_OK)
        return status;
    out->struct_size = sizeof *out;
    if (out->release_threshold_bytes == 0)
        out->release_threshold_bytes = SIZE_MAX;
    if (out->reuse == 0)
        out->reuse = REUSE_ALL;
    return WEIR_OK;
}

/* ---- the pool ---- */

static weir_status get_pool(weir__async *self, const weir_async_options *options)
{
    weir_status status = WEIR_OK;
    if (options->pool == WEIR_ASYNC_FOREIGN) {
        self->pool = options->foreign;
    } else if (options->pool == WEIR_ASYNC_DEFAULT) {
        status = weir__mempool_default(self->device, options->memory, &self->pool);
    } else {
        status = weir__mempool_create(self->device, options, &self->pool);
        self->owns_pool = status == WEIR_OK;
        self->max_bytes = options->max_bytes;
        self->is_shared = (options->handle_types & WEIR_ASYNC_HANDLE_POSIX_FD) != 0 &&
                          options->memory == WEIR_ASYNC_DEVICE;
    }
    return status;
}

/* The pool could not end with the memory still out. */
static weir_status give_up(weir__async *self, void *ptr)
{
    weir_status status = WEIR_DEVICE_ERROR, first = WEIR_OK;
    for (int round = 0; round < GIVING_ROUNDS && status != WEIR_OK; round++) {
        status = weir__mempool_free(self->device, self->back, ptr);
        if (round == 0)
            first = status;
    }
    return first;
}

/* Draws as much as the pool is to have at first, and gives it back to it. The wait is
 * for nobody's work but this, and lets every stream have it. */
static weir_status prime(weir__async *self, size_t bytes)
{
    void *ptr;
    weir_status status = weir__mempool_malloc(self->device, self->pool, self->back,
                                              bytes, &ptr);
    if (status == WEIR_OUT_OF_MEMORY) {
        weir_out_of_memory report = { .requested_bytes = bytes,
                                      .limit_bytes = SIZE_MAX,
                                      .resource = "async" };
        return weir__fail_memory(status, &report);
    }
    if (status == WEIR_OK)
        status = give_up(self, ptr);
    if (status == WEIR_OK)
        status = weir__stream_sync(self->device, self->back);
    return status;
}

void weir__async_free(weir__async *self)
{
    weir_device *device = self->device;
    if (self->back != NULL)
        (void)weir__stream_destroy(device, self->back);
    weir_status status = self->owns_pool ? WEIR_DEVICE_ERROR : WEIR_OK;
    for (int round = 0; round < GIVING_ROUNDS && status != WEIR_OK; round++)
        status = weir__mempool_destroy(device, self->pool);
    if (status != WEIR_OK)
        (void)weir__fail(status, "async ends and leaks its pool: %s",
                         weir__device_is_lost(device) ? "the device is lost"
                                                      : "the device did not take it");
    weir__block_table_finish(&self->table);
    weir__cond_destroy(&self->landed);
    weir__mutex_destroy(&self->lock);
    weir__host_free(self);
}

/* ---- creation ---- */

/* All that can fail. What is made by then, weir__async_free ends. */
static weir_status begin(weir__async *self, const weir_async_options *options,
                         weir_resource **out)
{
    weir_status status = weir__stream_create(self->device, false, &self->back);
    if (status == WEIR_OK)
        status = get_pool(self, options);
    if (status == WEIR_OK && options->primed_bytes != 0)
        status = prime(self, options->primed_bytes);
    if (status == WEIR_OK)
        status = weir_resource_create(&weir__async_ops, self, out);
    return status;
}

weir_status weir_async_create(weir_device *device, const weir_async_options *options,
                              weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (device == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the device is null");
    weir_async_options complete;
    status = options_read(options, &complete);
    if (status != WEIR_OK)
        return status;

    weir__async *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for the resource async");
    memset(self, 0, sizeof *self);
    self->device = device;
    self->memory = complete.memory;
    status = weir__block_table_init(&self->table);
    if (status != WEIR_OK) {
        weir__host_free(self);
        return status;
    }
    weir__mutex_init(&self->lock, WEIR__RANK_RESOURCE);
    weir__cond_init(&self->landed);
    status = begin(self, &complete, out);
    if (status != WEIR_OK)
        weir__async_free(self);
    return status;
}

weir_status weir_async_get_pool(weir_resource *mr, weir_mempool *out)
{
    if (out != NULL)
        *out = NULL;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (mr == NULL || out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is null", mr ? "out" : "mr");
    const weir__async *self = weir__resource_self(mr, &weir__async_ops);
    if (self == NULL)
        return refuse("the resource is no async, and has no driver's pool");
    *out = self->pool;
    return WEIR_OK;
}
