/* emulated_public.c - weir/emulated.h: checks what the caller gave, and passes on.
 *
 * Launching is a device call like any other: counted, and subject to faults. What
 * stands for the world around Weir (streams made elsewhere, captures, gates, steps) is
 * neither. */
#include "device/emulated.h"

/* The emulated device behind `device`, for a public call that begins. */
static weir_status emulated_of(weir_device *device, weir__emulated **out)
{
    *out = NULL;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (device == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the device is null");
    if (device->ops->emulated != NULL)
        *out = device->ops->emulated(device->self);
    if (*out == NULL)
        return weir__fail(WEIR_NOT_SUPPORTED, "%s is not emulated", device->name);
    return WEIR_OK;
}

static weir_status fail_null(const char *what)
{
    return weir__fail(WEIR_INVALID_ARGUMENT, "%s is null", what);
}

/* ---- work ---- */

static weir_status ranges_check(const weir_emulated_range *ranges, size_t count)
{
    if (ranges == NULL && count > 0)
        return fail_null("ranges");
    for (size_t i = 0; i < count; i++) {
        unsigned access = ranges[i].access;
        if (access < WEIR_EMULATED_READ || access > WEIR_EMULATED_READ_WRITE)
            return weir__fail(WEIR_INVALID_ARGUMENT, "range %zu: %u is no access", i,
                              access);
    }
    return WEIR_OK;
}

weir_status weir_emulated_launch(weir_device *device, weir_stream stream,
                                 weir_emulated_kernel kernel, void *argument,
                                 const weir_emulated_range *ranges, size_t count)
{
    weir__emulated *self;
    weir_status status = emulated_of(device, &self);
    if (status == WEIR_OK && kernel == NULL)
        status = fail_null("the kernel");
    if (status == WEIR_OK)
        status = ranges_check(ranges, count);
    if (status != WEIR_OK)
        return status;
    return weir__launch(device, stream, kernel, argument, ranges, count);
}

weir_status weir_emulated_stall(weir_device *device, weir_stream stream, uint64_t *gate)
{
    if (gate == NULL)
        return fail_null("gate");
    *gate = 0;
    weir__emulated *self;
    weir_status status = emulated_of(device, &self);
    if (status != WEIR_OK)
        return status;
    status = weir__emulated_begin_unplanned(self);
    if (status == WEIR_OK)
        status = weir__emulated_gate_put(self, weir__stream_of(stream), gate);
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir_emulated_open_gate(weir_device *device, uint64_t gate)
{
    weir__emulated *self;
    weir_status status = emulated_of(device, &self);
    if (status != WEIR_OK)
        return status;
    weir__mutex_lock(&self->lock);
    status = weir__emulated_gate_open(self, gate);
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir_emulated_step(weir_device *device, bool *out)
{
    if (out == NULL)
        return fail_null("out");
    *out = false;
    weir__emulated *self;
    weir_status status = emulated_of(device, &self);
    if (status != WEIR_OK)
        return status;
    if (self->options.scheduler != WEIR_EMULATED_STEPPED)
        return weir__fail(WEIR_NOT_SUPPORTED, "%s is not stepped", device->name);
    status = weir__emulated_begin_unplanned(self);
    if (status == WEIR_OK)
        *out = weir__schedule_step(self);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* ---- streams as others make them ---- */

weir_status weir_emulated_stream_create(weir_device *device, weir_stream_kind kind,
                                        weir_stream *out)
{
    if (out == NULL)
        return fail_null("out");
    *out = NULL;
    weir__emulated *self;
    weir_status status = emulated_of(device, &self);
    if (status != WEIR_OK)
        return status;
    if (kind != WEIR_STREAM_BLOCKING && kind != WEIR_STREAM_NON_BLOCKING)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%d is no kind of stream", (int)kind);
    status = weir__emulated_begin_unplanned(self);
    if (status == WEIR_OK)
        status = weir__stream_make(self, kind == WEIR_STREAM_BLOCKING, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir_emulated_stream_destroy(weir_device *device, weir_stream stream)
{
    weir__emulated *self;
    weir_status status = emulated_of(device, &self);
    if (status != WEIR_OK)
        return status;
    status = weir__emulated_begin_unplanned(self);
    if (status == WEIR_OK)
        status = weir__stream_end(self, weir__stream_of(stream));
    weir__mutex_unlock(&self->lock);
    return status;
}

/* The head of what asks something of a stream's captures: takes the device's lock
 * where *self is not null afterwards. */
static weir_status begin_on(weir_device *device, weir_stream stream,
                            weir__emulated **self, weir__queue **queue)
{
    weir_status status = emulated_of(device, self);
    if (status != WEIR_OK)
        return status;
    status = weir__emulated_begin_unplanned(*self);
    if (status == WEIR_OK)
        status = weir__stream_find(*self, weir__stream_of(stream), queue);
    return status;
}

static void end_of(weir__emulated *self)
{
    if (self != NULL)
        weir__mutex_unlock(&self->lock);
}

weir_status weir_emulated_capture_begin(weir_device *device, weir_stream stream)
{
    weir__emulated *self;
    weir__queue *queue;
    weir_status status = begin_on(device, stream, &self, &queue);
    if (status == WEIR_OK)
        status = weir__capture_begin(queue);
    end_of(self);
    return status;
}

weir_status weir_emulated_capture_end(weir_device *device, weir_stream stream,
                                      size_t *captured)
{
    size_t count = 0;
    weir__emulated *self;
    weir__queue *queue;
    weir_status status = begin_on(device, stream, &self, &queue);
    if (status == WEIR_OK)
        status = weir__capture_end(queue, NULL, &count);
    end_of(self);
    if (captured != NULL)
        *captured = count;
    return status;
}

weir_status weir_emulated_capture_end_graph(weir_device *device, weir_stream stream,
                                            weir_emulated_graph **out)
{
    size_t count;
    weir__emulated *self;
    weir__queue *queue;
    if (out == NULL)
        return fail_null("out");
    *out = NULL;
    weir_status status = begin_on(device, stream, &self, &queue);
    if (status == WEIR_OK)
        status = weir__capture_end(queue, out, &count);
    end_of(self);
    return status;
}

weir_status weir_emulated_graph_launch(weir_device *device, weir_emulated_graph *graph,
                                       weir_stream stream)
{
    weir__emulated *self;
    weir__queue *queue;
    weir_status status = begin_on(device, stream, &self, &queue);
    if (status == WEIR_OK)
        status = weir__graph_find(self, graph);
    if (status == WEIR_OK)
        status = weir__graph_launch(graph, queue);
    end_of(self);
    return status;
}

weir_status weir_emulated_graph_destroy(weir_device *device, weir_emulated_graph *graph)
{
    weir__emulated *self;
    weir_status status = emulated_of(device, &self);
    if (status != WEIR_OK || graph == NULL)
        return status;
    weir__emulated_meet_thread();
    weir__mutex_lock(&self->lock);
    status = weir__graph_find(self, graph);
    if (status == WEIR_OK)
        weir__graph_destroy(graph);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* ---- the ledger ---- */

size_t weir_emulated_findings(weir_device *device)
{
    weir__emulated *self;
    if (emulated_of(device, &self) != WEIR_OK)
        return 0;
    weir__mutex_lock(&self->findings.lock);
    size_t count = self->findings.count;
    weir__mutex_unlock(&self->findings.lock);
    return count;
}

weir_status weir_emulated_get_finding(weir_device *device, size_t index,
                                      weir_emulated_finding *out)
{
    static const weir_emulated_finding none;
    weir__emulated *self;
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = emulated_of(device, &self);
    if (status != WEIR_OK)
        return status;
    weir__mutex_lock(&self->findings.lock);
    size_t kept = self->findings.kept;
    weir__mutex_unlock(&self->findings.lock);

    weir_emulated_finding found = none;
    if (index < kept) /* and then it never changes again */
        found = self->findings.first[index].finding;
    status = weir__fill_out(out, &found, sizeof found);
    if (status == WEIR_OK && index >= kept)
        status = weir__fail(WEIR_NOT_FOUND, "there is no finding %zu: %zu are kept",
                            index, kept);
    return status;
}

weir_status weir_emulated_host_signal(weir_device *device, uintptr_t channel)
{
    weir__emulated *self;
    weir_status status = emulated_of(device, &self);
    return status == WEIR_OK ? weir__host_signal(self, channel) : status;
}

weir_status weir_emulated_host_await(weir_device *device, uintptr_t channel)
{
    weir__emulated *self;
    weir_status status = emulated_of(device, &self);
    return status == WEIR_OK ? weir__host_await(self, channel) : status;
}

/* Whether it is where it seems to be, for the host too. */
static weir_status check_touchable(weir__emulated *device,
                                   const weir_emulated_range *range)
{
    void *view = range->ptr;
    weir_status status = WEIR_OK;
    if (range->bytes > 0)
        status = weir__memory_view(device, range->ptr, range->bytes, &view);
    if (status == WEIR_OK && view != range->ptr)
        status = weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_BAD_ADDRESS,
                                   "the host cannot touch memory of a device: %zu "
                                   "bytes at %p", range->bytes, range->ptr);
    return status;
}

weir_status weir_emulated_host_access(weir_device *device,
                                      const weir_emulated_range *ranges, size_t count)
{
    weir__emulated *self;
    weir_status status = emulated_of(device, &self);
    if (status == WEIR_OK)
        status = ranges_check(ranges, count);
    for (size_t i = 0; i < count && status == WEIR_OK; i++)
        status = check_touchable(self, &ranges[i]);
    if (status != WEIR_OK || self->ledger == NULL)
        return status;
    weir__emulated_meet_thread();
    weir__mutex_lock(&self->lock);
    for (size_t i = 0; i < count; i++)
        weir__ledger_host_access(self->ledger, &self->owner, weir__this_thread(),
                                 (uintptr_t)ranges[i].ptr, ranges[i].bytes,
                                 (ranges[i].access & WEIR_EMULATED_WRITE) != 0);
    weir__mutex_unlock(&self->lock);
    return WEIR_OK;
}

weir_status weir_emulated_run_threads(weir_device *device, size_t count,
                                      void (*entry)(void *argument),
                                      void *const arguments[])
{
    weir__emulated *self;
    weir_status status = emulated_of(device, &self);
    if (status != WEIR_OK)
        return status;
    if (entry == NULL)
        return fail_null("entry");
    return weir__host_run(self, count, entry, arguments);
}

/* ---- faults ---- */

weir_status weir_emulated_set_fault(weir_device *device,
                                    const weir_emulated_fault *fault)
{
    weir__emulated *self;
    weir_status status = emulated_of(device, &self);
    if (status != WEIR_OK)
        return status;
    weir__mutex_lock(&self->lock);
    status = weir__fault_plan(self, fault);
    weir__mutex_unlock(&self->lock);
    return status;
}

uint64_t weir_emulated_fault_calls(weir_device *device)
{
    weir__emulated *self;
    if (emulated_of(device, &self) != WEIR_OK)
        return 0;
    weir__mutex_lock(&self->lock);
    uint64_t calls = self->fault_calls;
    weir__mutex_unlock(&self->lock);
    return calls;
}

double weir_emulated_modelled_ns(weir_device *device)
{
    weir__emulated *self;
    if (emulated_of(device, &self) != WEIR_OK)
        return 0;
    weir__mutex_lock(&self->lock);
    double ns = self->modelled_ns;
    weir__mutex_unlock(&self->lock);
    return ns;
}
