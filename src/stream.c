/* stream.c - the public calls on streams, points, events, copies and fills: each checks
 * what it is given, and goes to the device or to stream order. */
#include "weir/stream.h"

#include "device/device.h"
#include "internal.h"
#include "stream_order.h"

static weir_status check(weir_device *device, const void *needed, const char *what)
{
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (device == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the device is null");
    if (needed == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is null", what);
    return WEIR_OK;
}

/* ---- streams ---- */

weir_status weir_stream_create(weir_device *device, weir_stream_kind kind,
                               weir_stream *out)
{
    if (out != NULL)
        *out = NULL;
    weir_status status = check(device, out, "out");
    if (status != WEIR_OK)
        return status;
    if (kind != WEIR_STREAM_NON_BLOCKING && kind != WEIR_STREAM_BLOCKING)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%d is no kind of stream", (int)kind);

    weir_stream stream = NULL;
    bool blocking = kind == WEIR_STREAM_BLOCKING;
    status = weir__stream_create(device, blocking, &stream);
    if (status != WEIR_OK)
        return status;
    status = weir__order_add_stream(device->order, stream, blocking, true);
    if (status != WEIR_OK) {
        (void)weir__stream_destroy(device, stream);
        return status;
    }
    *out = stream;
    return WEIR_OK;
}

static weir_status check_own_stream(weir_device *device, weir_stream stream)
{
    weir_status status = check(device, device, "");
    if (status != WEIR_OK)
        return status;
    if (weir__stream_of(stream) == WEIR_STREAM_LEGACY ||
        stream == WEIR_STREAM_PER_THREAD)
        return weir__fail(WEIR_INVALID_ARGUMENT, "a default stream is nobody's own");
    return WEIR_OK;
}

weir_status weir_stream_destroy(weir_device *device, weir_stream stream)
{
    weir_status status = check_own_stream(device, stream);
    if (status != WEIR_OK)
        return status;
    status = weir__order_retire(device->order, stream, true);
    if (status == WEIR_NOT_FOUND || status == WEIR_INVALID_ARGUMENT ||
        status == WEIR_CAPTURING)
        return status;
    weir_status destroyed = weir__stream_destroy(device, stream);
    return status != WEIR_OK ? status : destroyed;
}

weir_status weir_stream_register(weir_device *device, weir_stream stream)
{
    bool blocking = false;
    weir_status status = check_own_stream(device, stream);
    if (status == WEIR_OK)
        status = weir__refuse_capturing(device->order, stream);
    if (status == WEIR_OK)
        status = weir__stream_get_flags(device, stream, &blocking);
    if (status == WEIR_OK)
        status = weir__order_add_stream(device->order, stream, blocking, false);
    return status;
}

weir_status weir_stream_retire(weir_device *device, weir_stream stream)
{
    weir_status status = check_own_stream(device, stream);
    if (status != WEIR_OK)
        return status;
    return weir__order_retire(device->order, stream, false);
}

weir_status weir_stream_wait(weir_device *device, weir_stream stream, weir_stream other)
{
    weir_status status = check(device, device, "");
    if (status != WEIR_OK)
        return status;
    weir_point point;
    status = weir_point_here(device, other, &point);
    if (status != WEIR_OK)
        return status;
    return weir_stream_wait_point(device, stream, point);
}

weir_status weir_stream_sync(weir_device *device, weir_stream stream)
{
    weir_status status = check(device, device, "");
    if (status != WEIR_OK)
        return status;
    return weir__order_stream_sync(device->order, stream);
}

weir_status weir_stream_query(weir_device *device, weir_stream stream, bool *out)
{
    if (out != NULL)
        *out = false;
    weir_status status = check(device, out, "out");
    if (status != WEIR_OK)
        return status;
    status = weir__order_may_sync(device->order, stream);
    return status == WEIR_OK ? weir__stream_query(device, stream, out) : status;
}

/* ---- points ---- */

static weir__mark mark_of(weir_point point)
{
    return (weir__mark){ point.clock, point.mark };
}

static weir_status check_point(weir_device *device, const void *needed,
                               const char *what, weir_point point)
{
    weir_status status = check(device, needed, what);
    if (status == WEIR_OK && !weir__order_has(device->order, mark_of(point)))
        status = weir__fail(WEIR_INVALID_ARGUMENT,
                            "the point is none of %s, as it is open now",
                            device->name);
    return status;
}

weir_status weir_point_here(weir_device *device, weir_stream stream, weir_point *out)
{
    if (out != NULL)
        *out = (weir_point){ 0, 0 };
    weir_status status = check(device, out, "out");
    if (status != WEIR_OK)
        return status;
    weir__mark mark;
    status = weir__order_point(device->order, stream, &mark);
    if (status == WEIR_OK)
        *out = (weir_point){ mark.clock, mark.number };
    return status;
}

weir_status weir_stream_wait_point(weir_device *device, weir_stream stream,
                                   weir_point point)
{
    uint64_t clock = 0;
    weir_status status = check_point(device, device, "", point);
    if (status == WEIR_OK)
        status = weir__order_clock(device->order, stream, &clock);
    if (status == WEIR_OK)
        status = weir__order_wait(device->order, clock, stream, mark_of(point));
    return status;
}

weir_status weir_point_query(weir_device *device, weir_point point, bool *out)
{
    if (out != NULL)
        *out = false;
    weir_status status = check_point(device, out, "out", point);
    if (status != WEIR_OK)
        return status;
    if (weir__device_is_lost(device))
        return weir__fail(WEIR_DEVICE_LOST, "%s is lost", device->name);
    weir__order_cover(device->order, mark_of(point)); /* else there is nothing to ask */
    *out = weir__order_is_done(device->order, 0, mark_of(point));
    return WEIR_OK;
}

weir_status weir_point_sync(weir_device *device, weir_point point)
{
    weir_status status = check_point(device, device, "", point);
    if (status != WEIR_OK)
        return status;
    return weir__order_sync(device->order, mark_of(point));
}

/* ---- events ---- */

weir_status weir_event_create(weir_device *device, weir_event *out)
{
    if (out != NULL)
        *out = NULL;
    weir_status status = check(device, out, "out");
    if (status != WEIR_OK)
        return status;
    return weir__event_create(device, out);
}

weir_status weir_event_destroy(weir_device *device, weir_event event)
{
    weir_status status = check(device, device, "");
    if (status != WEIR_OK || event == NULL)
        return status;
    return weir__event_destroy(device, event);
}

weir_status weir_event_record(weir_device *device, weir_stream stream, weir_event event)
{
    weir_status status = check(device, event, "the event");
    if (status != WEIR_OK)
        return status;
    return weir__event_record(device, event, stream);
}

weir_status weir_stream_wait_event(weir_device *device, weir_stream stream,
                                   weir_event event)
{
    weir_status status = check(device, event, "the event");
    if (status != WEIR_OK)
        return status;
    return weir__stream_wait_event(device, stream, event);
}

weir_status weir_event_query(weir_device *device, weir_event event, bool *out)
{
    if (out != NULL)
        *out = false;
    weir_status status = check(device, out, "out");
    if (status == WEIR_OK)
        status = check(device, event, "the event");
    if (status != WEIR_OK)
        return status;
    return weir__event_query(device, event, out);
}

weir_status weir_event_sync(weir_device *device, weir_event event)
{
    weir_status status = check(device, event, "the event");
    if (status != WEIR_OK)
        return status;
    return weir__event_sync(device, event);
}

/* ---- copies and fills ---- */

weir_status weir_copy(weir_device *device, weir_stream stream,
                      void *dst, const void *src, size_t bytes)
{
    weir_status status = check(device, device, "");
    if (status != WEIR_OK || bytes == 0)
        return status;
    if (dst == NULL || src == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is null", dst ? "src" : "dst");
    if ((uintptr_t)dst - (uintptr_t)src < bytes ||
        (uintptr_t)src - (uintptr_t)dst < bytes)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%zu bytes at %p overlap with those "
                          "at %p that they are to be copied to", bytes, src, dst);
    return weir__copy(device, stream, dst, src, bytes);
}

weir_status weir_copy_sync(weir_device *device, weir_stream stream,
                           void *dst, const void *src, size_t bytes)
{
    weir_status status = check(device, device, "");
    if (status == WEIR_OK) /* or the copy would be part of a graph */
        status = weir__order_may_sync(device->order, stream);
    if (status == WEIR_OK)
        status = weir_copy(device, stream, dst, src, bytes);
    if (status != WEIR_OK)
        return status;
    return weir_stream_sync(device, stream);
}

weir_status weir_fill(weir_device *device, weir_stream stream,
                      void *ptr, uint8_t value, size_t bytes)
{
    weir_status status = check(device, device, "");
    if (status != WEIR_OK || bytes == 0)
        return status;
    if (ptr == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "ptr is null");
    return weir__fill(device, stream, ptr, value, bytes);
}
