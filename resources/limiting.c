/* limiting.c - passes everything to an upstream resource, but refuses to let more
 * than a set number of bytes be out at once.
 *
 * The count is of bytes asked for, not of what upstream spends on them. Bytes are
 * counted before upstream is asked and uncounted after it has them back, so the limit
 * holds at every moment; the price is that a request can be refused for bytes that a
 * neighbour, about to fail, has only just counted. */
#include "weir/limiting.h"

#include <stdatomic.h>

#include "internal.h"
#include "weir/resource_ops.h"

typedef struct limiting {
    weir_resource *upstream;  /* counted by the resource */
    size_t limit_bytes;       /* set at creation */
    atomic_size_t out_bytes;  /* never above limit_bytes */
} limiting;

/* Counts `bytes` as out; else changes nothing, and *out_bytes is what was in its
 * way. */
static bool count_out(limiting *self, size_t bytes, size_t *out_bytes)
{
    *out_bytes = atomic_load(&self->out_bytes);
    do {
        WEIR_CHECK(*out_bytes <= self->limit_bytes, "the limit was passed");
        if (bytes > self->limit_bytes - *out_bytes)
            return false;
    } while (!atomic_compare_exchange_weak(&self->out_bytes, out_bytes,
                                           *out_bytes + bytes));
    return true;
}

static void count_back(limiting *self, size_t bytes)
{
    size_t out_bytes = atomic_fetch_sub(&self->out_bytes, bytes);
    WEIR_CHECK(bytes <= out_bytes, "more came back than went out");
}

static weir_status refuse(const limiting *self, size_t bytes, size_t out_bytes)
{
    weir_out_of_memory report = {
        .struct_size = sizeof report,
        .requested_bytes = bytes,
        .limit_bytes = self->limit_bytes,
        .held_bytes = out_bytes,
        .in_use_bytes = out_bytes,
        .largest_free_bytes = self->limit_bytes - out_bytes,
        .resource = "limiting",
    };
    return weir__fail_memory(WEIR_LIMIT_REACHED, &report);
}

static weir_status limiting_allocate(void *context, weir_stream stream,
                                     size_t bytes, size_t alignment, void **out)
{
    limiting *self = context;
    size_t out_bytes;
    if (!count_out(self, bytes, &out_bytes))
        return refuse(self, bytes, out_bytes);

    weir_status status = weir_allocate(self->upstream, stream, bytes, alignment, out);
    if (status != WEIR_OK)
        count_back(self, bytes);
    return status;
}

static bool limiting_deallocate(void *context, weir_stream stream,
                                void *ptr, size_t bytes, size_t alignment)
{
    limiting *self = context;
    if (!weir_deallocate(self->upstream, stream, ptr, bytes, alignment))
        return false;
    count_back(self, bytes);
    return true;
}

static bool limiting_deallocate_after(void *context, void *ptr, size_t bytes,
                                      size_t alignment, const weir_point *points,
                                      size_t count)
{
    limiting *self = context;
    if (!weir_deallocate_after(self->upstream, ptr, bytes, alignment, points, count))
        return false;
    count_back(self, bytes);
    return true;
}

static weir_resource *limiting_upstream(void *context)
{
    limiting *self = context;
    return self->upstream;
}

static void limiting_destroy(void *context)
{
    limiting *self = context;
    WEIR_CHECK(atomic_load(&self->out_bytes) == 0, "memory is still out");
    weir__host_free(self);
}

static const weir_resource_ops limiting_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "limiting",
    .allocate = limiting_allocate,
    .deallocate = limiting_deallocate,
    .destroy = limiting_destroy,
    .upstream = limiting_upstream,
    .deallocate_after = limiting_deallocate_after,
};

weir_status weir_limiting_create(weir_resource *upstream, size_t limit_bytes,
                                 weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    if (upstream == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the upstream is null");

    limiting *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "no memory for the resource limiting");
    self->upstream = upstream;
    self->limit_bytes = limit_bytes;
    atomic_init(&self->out_bytes, 0);

    weir_status status = weir_resource_create(&limiting_ops, self, out);
    if (status != WEIR_OK)
        limiting_destroy(self);
    return status;
}
