/* capture.c - memory for work that is captured into a graph.
 *
 * A capture is a clock of its own, on which nothing is ever done: what is freed
 * under it can be handed out to nobody else. When it is released its marks take on
 * the meaning of one on the stream that it is released on. Nothing in the resources
 * knows of captures but this: a block remembers the clock that it was allocated
 * under. */
#include "weir/capture.h"

#include "device/device.h"
#include "internal.h"
#include "stream_order.h"

struct weir_capture {
    weir_resource *resource; /* counted; keeps the device */
    uint64_t clock;
};

static weir__order *order_of(const weir_capture *capture)
{
    return weir_resource_device(capture->resource)->order;
}

weir_status weir_capture_begin(weir_resource *mr, weir_stream stream,
                               weir_capture **out)
{
    if (out != NULL)
        *out = NULL;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (mr == NULL || out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is null", mr ? "out" : "mr");

    weir_capture *capture = weir__host_alloc(sizeof *capture);
    if (capture == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a capture");
    weir__order *order = weir_resource_device(mr)->order;
    status = weir__order_capture_begin(order, stream, &capture->clock);
    if (status != WEIR_OK) {
        weir__host_free(capture);
        return status;
    }
    capture->resource = weir_resource_ref(mr);
    *out = capture;
    return WEIR_OK;
}

weir_status weir_capture_end(weir_capture *capture)
{
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (capture == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the capture is null");
    if (!weir__order_capture_end(order_of(capture), capture->clock))
        return weir__fail(WEIR_INVALID_ARGUMENT, "the capture has ended before");
    return WEIR_OK;
}

weir_status weir_capture_release(weir_capture *capture, weir_stream stream)
{
    if (capture == NULL || weir__is_forked())
        return WEIR_OK;
    weir__order *order = order_of(capture);
    (void)weir__order_capture_end(order, capture->clock);

    weir__mark at;
    weir_status status = weir__order_point(order, stream, &at);
    if (status == WEIR_OK)
        status = weir__order_close(order, at.clock);
    else
        at = weir__order_mark_here(order, 0); /* an aside one */
    weir__note_release(weir_resource_device(capture->resource), capture->clock);
    weir__order_capture_release(order, capture->clock, at);
    weir_resource_unref(capture->resource);
    weir__host_free(capture);
    return status;
}
