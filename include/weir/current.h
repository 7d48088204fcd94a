/* weir/current.h - a device's current resource, and a thread's current stream on it:
 * for code that allocates without being told where from, or works without being told
 * on which stream. Weir itself looks at them only where it is said. */
#ifndef WEIR_CURRENT_H
#define WEIR_CURRENT_H

#include "weir/device.h"
#include "weir/resource.h"
#include "weir/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The device's current resource, counted: the caller's to unref. Where none was set it
 * is the device's own, a pool over its memory ("pool/device"), made when first asked
 * for. If that cannot be made, the answer is why (OUT_OF_HOST_MEMORY), *out is null,
 * and the next who asks tries again.
 *
 * The device's own resource ends with the device, and does not keep it open: when no
 * other reference to the device is left, the device lets go of it. Who holds it then
 * keeps it, and by it the device, as with any resource; and it stays the one that is
 * answered until it ends. */
WEIR_API WEIR_NODISCARD weir_status
weir_current_resource(weir_device *device, weir_resource **out);

/* Makes `mr`, a resource of `device`, its current one, counted; null: the device's own
 * again, as does that one itself. What was set before goes to *old (which may be null),
 * with the reference that was held, the caller's to unref; null if nothing was.
 * INVALID_ARGUMENT: `mr` is another device's; nothing has changed, and *old is null.
 *
 * What is set keeps the device open: set null before the last unref of the device. */
WEIR_API weir_status
weir_set_current_resource(weir_device *device, weir_resource *mr, weir_resource **old);

/* The calling thread's current stream on `device`; where none was set, the legacy
 * default stream (null). Takes no lock, and never fails: for a null device and in a
 * fork's child the answer is null. */
WEIR_API weir_stream weir_current_stream(weir_device *device);

/* Makes `stream` that, and gives the one before to *old (which may be null). The
 * caller sets another before `stream` ends. Forgotten when the thread ends, or the
 * device is closed: who opens it again begins with the legacy default stream.
 *
 * OUT_OF_HOST_MEMORY: there is no room to remember it, or the thread is at its end, in
 * the destructors of thread-specific data. Nothing has changed, and *old is null; to
 * set null never fails so. */
WEIR_API weir_status
weir_set_current_stream(weir_device *device, weir_stream stream, weir_stream *old);

#ifdef __cplusplus
}
#endif
#endif
