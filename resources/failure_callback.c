/* failure_callback.c - calls a function of the user's where upstream has no room, and
 * asks upstream again if that says so.
 *
 * What upstream said last is what the caller hears: the hook is a program of its own
 * and may fail at other things meanwhile. */
#include "weir/failure_callback.h"

#include "hook.h"
#include "internal.h"
#include "resource_internal.h"

#define MAX_RETRIES 100

typedef struct failure_callback {
    weir_resource *upstream; /* counted by the resource */
    weir_failure_hook call;
    void *context;           /* the user's */
    weir_failure_callback_options options;
    weir__hook hook;
} failure_callback;

static bool is_no_room(weir_status status)
{
    return status == WEIR_OUT_OF_MEMORY || status == WEIR_LIMIT_REACHED;
}

/* Whether to try again. The thread's last error stays as it is. */
static bool ask_for_help(failure_callback *self, weir_stream stream, size_t bytes,
                         size_t refusals)
{
    weir__hook_visit visit;
    weir__error_record refusal;
    if (!weir__hook_enter(&self->hook, &visit))
        return false;
    weir__error_keep(&refusal);
    bool again = self->call(self->context, stream, bytes, refusals);
    weir__error_put_back(&refusal);
    weir__hook_leave(&self->hook, &visit);
    return again;
}

static weir_status failure_callback_allocate(void *context, weir_stream stream,
                                             size_t bytes, size_t alignment,
                                             void **out)
{
    failure_callback *self = context;
    size_t refusals = 0;
    for (;;) {
        weir_status status =
            weir_allocate(self->upstream, stream, bytes, alignment, out);
        if (!is_no_room(status) || refusals == self->options.max_retries ||
            !ask_for_help(self, stream, bytes, ++refusals))
            return status;
    }
}

static bool failure_callback_deallocate(void *context, weir_stream stream, void *ptr,
                                        size_t bytes, size_t alignment)
{
    failure_callback *self = context;
    return weir_deallocate(self->upstream, stream, ptr, bytes, alignment);
}

static bool failure_callback_deallocate_after(void *context, void *ptr, size_t bytes,
                                              size_t alignment,
                                              const weir_point *points, size_t count)
{
    failure_callback *self = context;
    return weir_deallocate_after(self->upstream, ptr, bytes, alignment, points, count);
}

static weir_status failure_callback_extend(void *context, weir_stream stream, void *ptr,
                                           size_t bytes, size_t alignment,
                                           size_t new_bytes)
{
    failure_callback *self = context;
    return weir_resource_extend(self->upstream, stream, ptr, bytes, alignment,
                                new_bytes);
}

static weir_resource *failure_callback_upstream(void *context)
{
    failure_callback *self = context;
    return self->upstream;
}

static void failure_callback_destroy(void *context)
{
    failure_callback *self = context;
    weir__hook_finish(&self->hook);
    weir__host_free(self);
}

static const weir_resource_ops failure_callback_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "failure_callback",
    .allocate = failure_callback_allocate,
    .deallocate = failure_callback_deallocate,
    .destroy = failure_callback_destroy,
    .upstream = failure_callback_upstream,
    .deallocate_after = failure_callback_deallocate_after,
    .extend = failure_callback_extend,
};

static weir_status options_read(const weir_failure_callback_options *from,
                                weir_failure_callback_options *out)
{
    weir_status status = weir__read_options(from, out, sizeof *out,
                                            "the options of failure_callback");
    if (status != WEIR_OK)
        return status;
    out->struct_size = sizeof *out;
    if (out->max_retries == 0)
        out->max_retries = MAX_RETRIES;
    return WEIR_OK;
}

weir_status weir_failure_callback_create(weir_resource *upstream,
                                         weir_failure_hook hook, void *context,
                                         const weir_failure_callback_options *options,
                                         weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_failure_callback_options in_force;
    weir_resource_properties up = { .struct_size = sizeof up };
    weir_status status = weir__enter();
    if (status == WEIR_OK && (upstream == NULL || hook == NULL))
        status = weir__fail(WEIR_INVALID_ARGUMENT, "the %s is null",
                            upstream == NULL ? "upstream" : "hook");
    if (status == WEIR_OK)
        status = options_read(options, &in_force);
    if (status == WEIR_OK)
        status = weir_resource_get_properties(upstream, &up);
    if (status != WEIR_OK)
        return status;

    failure_callback *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "no memory for the resource failure_callback");
    self->upstream = upstream;
    self->call = hook;
    self->context = context;
    self->options = in_force;
    weir__hook_init(&self->hook);

    weir_resource_ops ops = failure_callback_ops;
    if (!up.can_extend)
        ops.extend = NULL;
    status = weir_resource_create(&ops, self, out);
    if (status != WEIR_OK)
        failure_callback_destroy(self);
    return status;
}

weir_status weir_failure_callback_get_options(weir_resource *mr,
                                              weir_failure_callback_options *out)
{
    const weir_failure_callback_options none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__enter();
    if (status != WEIR_OK)
        return status;
    const failure_callback *self = weir__resource_self(mr, &failure_callback_ops);
    if (self == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is no failure_callback resource",
                          mr == NULL ? "null" : "this");
    return weir__fill_out(out, &self->options, sizeof self->options);
}
