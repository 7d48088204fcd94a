/* emulated_capture.c - graph capture, as far as memory cares: what is put on a
 * capturing stream is counted and not run, and what a real driver would refuse in
 * the meantime is refused here and spoils the capture.
 *
 * As with a real driver: nobody may ask about or wait for a capturing stream, an
 * event that it recorded, or the whole device; no operation may go on the legacy
 * stream while a blocking one captures; and a capturing stream may not wait for work
 * from outside of its capture. A second stream that waits for a captured event would
 * join the capture on a real device; here that is refused. Allocating is fine, as in
 * relaxed mode. */
#include "device/emulated.h"

static void spoil(weir__queue *queue)
{
    queue->is_spoilt = true;
}

static weir_status fail_spoilt(void)
{
    return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURE_SPOILT,
                             "the capture of this stream has been spoilt before");
}

/* An operation on the legacy stream would be a barrier to streams that capture. */
static bool legacy_spoils(weir__emulated *device)
{
    bool any = false;
    for (weir__queue *queue = device->capturing; queue; queue = queue->next_capturing) {
        if (queue->is_blocking) {
            spoil(queue);
            any = true;
        }
    }
    return any;
}

weir_status weir__capture_admit(weir__queue *queue, bool *taken)
{
    *taken = queue->is_capturing;
    if (queue->is_capturing && queue->is_spoilt)
        return fail_spoilt();
    if (queue->is_capturing)
        queue->captured++;
    if (queue->is_legacy && legacy_spoils(queue->device))
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURE_IMPLICIT,
                                 "the legacy stream is used while a blocking stream is "
                                 "captured; that capture is spoilt");
    return WEIR_OK;
}

weir_status weir__capture_forbid(weir__emulated *device, weir__queue *queue)
{
    if (queue != NULL ? !queue->is_capturing : device->capturing == NULL)
        return WEIR_OK;
    weir__queue *each = queue != NULL ? queue : device->capturing;
    for (; each != NULL; each = queue != NULL ? NULL : each->next_capturing)
        spoil(each);
    return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURE_UNSUPPORTED,
                             "the host asks about or waits for a stream that is "
                             "captured; the capture is spoilt");
}

static void spoil_recorder(const weir__event *event)
{
    weir__queue *queue = event->at.queue;
    if (queue->is_capturing && queue->capture == event->capture)
        spoil(queue);
}

weir_status weir__capture_forbid_event(weir__emulated *device, weir__event *event)
{
    (void)device;
    if (!event->is_captured)
        return WEIR_OK;
    spoil_recorder(event);
    return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURED_EVENT,
                             "the event was last recorded in a capture, and says "
                             "nothing about work that runs");
}

weir_status weir__capture_admit_wait(weir__queue *queue, weir__event *event,
                                     bool *taken)
{
    bool same = event->is_captured && queue->is_capturing &&
                event->at.queue == queue && event->capture == queue->capture;
    if (same || (!event->is_captured && !queue->is_capturing))
        return weir__capture_admit(queue, taken);
    if (event->is_captured)
        spoil_recorder(event);
    if (queue->is_capturing)
        spoil(queue);
    return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURE_ISOLATION,
                             "a wait leads into or out of a capture; it is spoilt");
}

weir_status weir__capture_begin(weir__queue *queue)
{
    weir__emulated *device = queue->device;
    if (queue->is_legacy)
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURE_UNSUPPORTED,
                                 "the legacy stream cannot be captured");
    if (queue->is_capturing)
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_BAD_STATE,
                                 "the stream is being captured already");
    queue->is_capturing = true;
    queue->is_spoilt = false;
    queue->captured = 0;
    queue->capture = ++device->captures;
    queue->next_capturing = device->capturing;
    device->capturing = queue;
    return WEIR_OK;
}

static void capture_leave(weir__queue *queue)
{
    weir__queue **link = &queue->device->capturing;
    while (*link != queue)
        link = &(*link)->next_capturing;
    *link = queue->next_capturing;
    queue->is_capturing = false;
}

weir_status weir__capture_end(weir__queue *queue, size_t *captured)
{
    if (!queue->is_capturing)
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_BAD_STATE,
                                 "the stream is not being captured");
    capture_leave(queue);
    if (queue->is_spoilt)
        return fail_spoilt();
    *captured = queue->captured;
    return WEIR_OK;
}

void weir__capture_drop(weir__queue *queue)
{
    if (queue->is_capturing)
        capture_leave(queue);
}
