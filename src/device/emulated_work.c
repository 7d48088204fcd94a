/* emulated_work.c - what streams do: copies, fills, prefetches, kernels, and gates.
 *
 * Addresses are judged when work is put on a stream, where a program can still see its
 * mistake: each range must be inside one allocation that is out, of this device or of a
 * peer, or be host memory. Work then runs on the second mapping, where the host can
 * touch the bytes. */
#include <string.h>

#include "device/emulated_places.h"

/* This many ranges need no host memory of their own. */
#define RANGES_INLINE 8

/* The ranges of one operation: where they are, and what the ledger shall hear. */
typedef struct ranges {
    size_t count;
    void **views;
    weir__ledger_access *accesses;
    void *kept; /* host memory of both, if they are many */
    void *few_views[RANGES_INLINE];
    weir__ledger_access few_accesses[RANGES_INLINE];
} ranges;

void weir__work_run(const weir__work *work)
{
    switch (work->kind) {
    case WEIR__WORK_MARKER:
    case WEIR__WORK_GATE: break;
    case WEIR__WORK_KERNEL: work->kernel(work->argument, work->views); break;
    case WEIR__WORK_COPY: memmove(work->views[0], work->views[1], work->bytes); break;
    case WEIR__WORK_FILL: memset(work->views[0], work->value, work->bytes); break;
    }
}

/* ---- ranges ---- */

static weir_status ranges_room(ranges *self, size_t count)
{
    self->count = count;
    self->kept = NULL;
    self->views = self->few_views;
    self->accesses = self->few_accesses;
    if (count <= RANGES_INLINE)
        return WEIR_OK;
    size_t each = sizeof(void *) + sizeof(weir__ledger_access);
    if (count > SIZE_MAX / each)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%zu ranges are too many", count);
    self->kept = weir__host_alloc(count * each);
    if (self->kept == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for %zu ranges", count);
    self->accesses = self->kept;
    self->views = (void **)(self->accesses + count);
    return WEIR_OK;
}

static void ranges_free(ranges *self)
{
    weir__host_free(self->kept);
}

/* A range of no bytes has no view, and may be anywhere. */
static weir_status ranges_view(weir__emulated *device, ranges *self,
                               const weir_emulated_range *from)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < self->count && status == WEIR_OK; i++) {
        self->accesses[i] = (weir__ledger_access){ (uintptr_t)from[i].ptr,
                                                   from[i].bytes, from[i].access };
        self->views[i] = NULL;
        if (from[i].bytes > 0)
            status = weir__memory_view(device, from[i].ptr, from[i].bytes,
                                       &self->views[i]);
    }
    return status;
}

/* ---- putting ---- */

/* Puts `work` on `queue`, or gives it to a capture, and tells the ledger. */
static weir_status put_on(weir__queue *queue, weir__work *work, const char *what,
                          ranges *over, weir__work **out)
{
    weir__emulated *device = queue->device;
    weir__branch *branch;
    weir_status status = weir__capture_admit(queue, &branch);
    if (status != WEIR_OK)
        return status;
    if (branch != NULL)
        return weir__capture_add(branch, work, what, over->accesses, over->count, NULL);
    work->views = over->views;
    status = weir__queue_put(queue, work, over->count, NULL, out);
    if (status == WEIR_OK && device->ledger != NULL)
        weir__ledger_operation(device->ledger, weir__this_thread(), queue->id, what,
                               over->accesses, over->count);
    return status;
}

static weir_status put_over(weir__emulated *device, weir_stream stream,
                            weir__work *work, const char *what,
                            const weir_emulated_range *from, size_t count)
{
    weir__queue *queue;
    ranges over;
    weir_status status = weir__stream_find(device, stream, &queue);
    if (status == WEIR_OK)
        status = ranges_room(&over, count);
    if (status != WEIR_OK)
        return status;
    status = ranges_view(device, &over, from);
    if (status == WEIR_OK)
        status = put_on(queue, work, what, &over, NULL);
    ranges_free(&over);
    return status;
}

weir_status weir__emulated_copy(void *device, weir_stream stream, void *dst,
                                const void *src, size_t bytes)
{
    weir__emulated *self = device;
    weir__work work = { .kind = WEIR__WORK_COPY, .bytes = bytes };
    const weir_emulated_range both[] = {
        { dst, bytes, WEIR_EMULATED_WRITE },
        { (void *)(uintptr_t)src, bytes, WEIR_EMULATED_READ },
    };
    weir_status status = weir__emulated_begin(self, WEIR__CALL_copy);
    if (status == WEIR_OK)
        status = put_over(self, stream, &work, "copy", both, 2);
    if (status == WEIR_OK)
        weir__cost_bytes(self, WEIR__CALL_copy, bytes);
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir__emulated_fill(void *device, weir_stream stream, void *ptr,
                                uint8_t value, size_t bytes)
{
    weir__emulated *self = device;
    weir__work work = { .kind = WEIR__WORK_FILL, .bytes = bytes, .value = value };
    const weir_emulated_range to = { ptr, bytes, WEIR_EMULATED_WRITE };
    weir_status status = weir__emulated_begin(self, WEIR__CALL_fill);
    if (status == WEIR_OK)
        status = put_over(self, stream, &work, "fill", &to, 1);
    if (status == WEIR_OK)
        weir__cost_bytes(self, WEIR__CALL_fill, bytes);
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir__emulated_launch(void *device, weir_stream stream,
                                  weir_emulated_kernel kernel, void *argument,
                                  const weir_emulated_range *from, size_t count)
{
    weir__emulated *self = device;
    weir__work work = { .kind = WEIR__WORK_KERNEL, .kernel = kernel,
                        .argument = argument };
    weir_status status = weir__emulated_begin(self, WEIR__CALL_launch);
    if (status == WEIR_OK)
        status = put_over(self, stream, &work, "kernel", from, count);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* Moves nothing, for there is one place here: its own place in the stream is all there
 * is of it. It touches no contents, and the ledger hears of no access. */
static weir_status put_prefetch(weir__emulated *device, weir_stream stream,
                                const void *ptr, size_t bytes)
{
    weir__queue *queue;
    weir__work work = { .kind = WEIR__WORK_MARKER };
    weir_status status = weir__stream_find(device, stream, &queue);
    if (status == WEIR_OK)
        status = weir__host_judge_movable(device, ptr, bytes);
    if (status == WEIR_OK)
        status = weir__capture_forbid(device, queue);
    return status == WEIR_OK ? put_over(device, stream, &work, "prefetch", NULL, 0)
                             : status;
}

weir_status weir__emulated_prefetch(void *device, weir_stream stream, void *ptr,
                                    size_t bytes, weir__place place)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_prefetch);
    if (status == WEIR_OK)
        status = put_prefetch(self, stream, ptr, bytes);
    if (status == WEIR_OK) {
        weir__host_note_moved(ptr, bytes, place);
        weir__cost_bytes(self, WEIR__CALL_prefetch, bytes);
    }
    weir__mutex_unlock(&self->lock);
    return status;
}

/* ---- gates ---- */

weir_status weir__emulated_gate_put(weir__emulated *device, weir_stream stream,
                                    uint64_t *gate)
{
    ranges none = { .count = 0 };
    weir__queue *queue;
    weir__work *put = NULL;
    weir__work work = { .kind = WEIR__WORK_GATE, .gate = device->gates + 1 };
    weir_status status = weir__stream_find(device, stream, &queue);
    if (status == WEIR_OK)
        status = put_on(queue, &work, "stall", &none, &put);
    if (status != WEIR_OK)
        return status;
    *gate = ++device->gates;
    if (put != NULL) {
        put->next_gate = device->closed_gates;
        device->closed_gates = put;
    }
    return WEIR_OK;
}

weir_status weir__emulated_gate_open(weir__emulated *device, uint64_t gate)
{
    if (gate == 0 || gate > device->gates)
        return weir__fail(WEIR_NOT_FOUND, "there is no gate %llu",
                          (unsigned long long)gate);
    weir__work **link = &device->closed_gates;
    while (*link != NULL && (*link)->gate != gate)
        link = &(*link)->next_gate;
    if (*link == NULL)
        return WEIR_OK; /* open already, captured, or on a device that does no work */
    weir__work *work = *link;
    *link = work->next_gate;
    work->gate_is_open = true;
    weir__schedule_changed(device);
    return WEIR_OK;
}
