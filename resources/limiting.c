/* limiting.c - passes everything to an upstream resource, but refuses to let more
 * than a set number of bytes be out at once.
 *
 * The count is of bytes asked for, not of what upstream spends on them. Bytes are
 * counted before upstream is asked and uncounted after it has them back, so the limit
 * holds at every moment; the price is that a request can be refused for bytes that a
 * neighbour, about to fail, has only just counted. */
#include "weir/limiting.h"

#include <stdatomic.h>

#include "hook.h"
#include "internal.h"
#include "weir/resource_ops.h"

typedef struct limiting {
    weir_resource *upstream;  /* counted by the resource */
    size_t limit_bytes;       /* set at creation */
    weir_limiting_options options;
    weir__hook hook;          /* around options.on_soft_limit */
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

/* Tells the program, if what is out went past the soft limit by these `bytes`. The
 * thread's last error stays as it is. */
static void tell_if_passed(limiting *self, weir_stream stream, size_t bytes,
                           size_t out_before)
{
    const weir_limiting_options *options = &self->options;
    weir__hook_visit visit;
    weir__error_record error;
    if (options->on_soft_limit == NULL || out_before > options->soft_limit_bytes ||
        out_before + bytes <= options->soft_limit_bytes ||
        !weir__hook_enter(&self->hook, &visit))
        return;
    weir__error_keep(&error);
    options->on_soft_limit(options->context, stream, out_before + bytes);
    weir__error_put_back(&error);
    weir__hook_leave(&self->hook, &visit);
}

static weir_status limiting_allocate(void *context, weir_stream stream,
                                     size_t bytes, size_t alignment, void **out)
{
    limiting *self = context;
    size_t out_bytes;
    if (!count_out(self, bytes, &out_bytes))
        return refuse(self, bytes, out_bytes);

    tell_if_passed(self, stream, bytes, out_bytes);
    weir_status status = weir_allocate(self->upstream, stream, bytes, alignment, out);
    if (status != WEIR_OK)
        count_back(self, bytes);
    return status;
}

static weir_status limiting_extend(void *context, weir_stream stream, void *ptr,
                                   size_t bytes, size_t alignment, size_t new_bytes)
{
    limiting *self = context;
    size_t more = new_bytes - bytes, out_bytes;
    if (!count_out(self, more, &out_bytes))
        return refuse(self, more, out_bytes);

    tell_if_passed(self, stream, more, out_bytes);
    weir_status status = weir_resource_extend(self->upstream, stream, ptr, bytes,
                                              alignment, new_bytes);
    if (status != WEIR_OK)
        count_back(self, more);
    return status;
}

static weir_status limiting_cut(void *context, void *ptr, size_t bytes,
                                size_t alignment, size_t wanted_bytes, size_t *from,
                                size_t *to)
{
    limiting *self = context;
    return weir_resource_cut(self->upstream, ptr, bytes, alignment, wanted_bytes, from,
                             to);
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
    weir__hook_finish(&self->hook);
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
    .extend = limiting_extend,
    .cut = limiting_cut,
};

static weir_status options_read(const weir_limiting_options *from, size_t limit_bytes,
                                weir_limiting_options *out)
{
    weir_status status =
        weir__read_options(from, out, sizeof *out, "the options of limiting");
    if (status == WEIR_OK && out->soft_limit_bytes > limit_bytes)
        status = weir__fail(WEIR_INVALID_ARGUMENT,
                            "a soft limit of %zu bytes is above the limit of %zu",
                            out->soft_limit_bytes, limit_bytes);
    return status;
}

weir_status weir_limiting_create_with(weir_resource *upstream, size_t limit_bytes,
                                      const weir_limiting_options *options,
                                      weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_limiting_options in_force;
    weir_resource_properties up = { .struct_size = sizeof up };
    weir_status status = weir__enter();
    if (status == WEIR_OK && upstream == NULL)
        status = weir__fail(WEIR_INVALID_ARGUMENT, "the upstream is null");
    if (status == WEIR_OK)
        status = options_read(options, limit_bytes, &in_force);
    if (status == WEIR_OK)
        status = weir_resource_get_properties(upstream, &up);
    if (status != WEIR_OK)
        return status;

    limiting *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "no memory for the resource limiting");
    self->upstream = upstream;
    self->limit_bytes = limit_bytes;
    self->options = in_force;
    weir__hook_init(&self->hook);
    atomic_init(&self->out_bytes, 0);

    weir_resource_ops ops = limiting_ops;
    if (!up.can_extend)
        ops.extend = NULL;
    if (up.cut_bytes == 0)
        ops.cut = NULL;
    status = weir_resource_create(&ops, self, out);
    if (status != WEIR_OK)
        limiting_destroy(self);
    return status;
}

weir_status weir_limiting_create(weir_resource *upstream, size_t limit_bytes,
                                 weir_resource **out)
{
    return weir_limiting_create_with(upstream, limit_bytes, NULL, out);
}
