/* weir/stream.h - streams, the order in which a device does its work; events and
 * points on them; copies and fills.
 *
 * A stream is the device's own handle. Weir knows three kinds of them:
 *   known    made by weir_stream_create or introduced by weir_stream_register; their
 *            owner retires them before they end. Cheap.
 *   default  null and legacy, and each thread's per-thread stream.
 *   unknown  all others. Safe, but the driver is asked on every call.
 *
 * None of the calls makes the host wait, but those that end in _sync. Any thread may
 * call any of them. Where a call puts work on a stream, asks about one or waits for
 * one, it can also answer
 *   DEVICE_ERROR   the device refused; weir_last_error() holds its own code
 *   DEVICE_LOST    the device failed for good
 *   CAPTURING      the stream is being captured and the call would end that */
#ifndef WEIR_STREAM_H
#define WEIR_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_device weir_device;

/* CUDA's cudaStream_t and CUstream are this very type, so theirs pass without a cast.
 * On the emulated device it points to an emulated stream.
 *
 * Null is always the device's legacy default stream, also when the caller was
 * compiled for per-thread default streams, where CUDA gives null another
 * meaning. WEIR_STREAM_DEFAULT is what null means to CUDA in this unit. */
typedef struct CUstream_st *weir_stream;

#define WEIR_STREAM_LEGACY     ((weir_stream)0x1)
#define WEIR_STREAM_PER_THREAD ((weir_stream)0x2)

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define WEIR_STREAM_DEFAULT WEIR_STREAM_PER_THREAD
#else
#define WEIR_STREAM_DEFAULT ((weir_stream)0)
#endif

/* Likewise cudaEvent_t and CUevent. */
typedef struct CUevent_st *weir_event;

/* ---- streams ---- */

/* Whether a stream and the legacy default stream wait for each other's work, as CUDA
 * has it (cudaStreamNonBlocking). */
typedef enum weir_stream_kind {
    WEIR_STREAM_NON_BLOCKING = 0,
    WEIR_STREAM_BLOCKING = 1
} weir_stream_kind;

/* Makes a stream, known to Weir from the start. The caller owns it. A stream that is
 * known can be freed on in each pool of the device without host memory, so that each
 * asks for what that needs here: OUT_OF_HOST_MEMORY, and there is no stream. */
WEIR_API WEIR_NODISCARD weir_status
weir_stream_create(weir_device *device, weir_stream_kind kind, weir_stream *out);

/* Retires `stream` and destroys it; work put on it before still runs to its end.
 * Only for streams of weir_stream_create: NOT_FOUND, it is not known; INVALID_ARGUMENT,
 * it was registered, or is a default stream. CAPTURING: it is being captured. After any
 * of these it is as it was. DEVICE_ERROR and OUT_OF_HOST_MEMORY as for
 * weir_stream_retire, or DEVICE_ERROR because the driver refused to destroy it; the
 * stream is retired all the same. */
WEIR_API weir_status weir_stream_destroy(weir_device *device, weir_stream stream);

/* Introduces a stream made elsewhere. Its owner promises weir_stream_retire before
 * destroying it; in return its events can be recorded late or never. Default
 * streams are known already: INVALID_ARGUMENT, as for one known already. CAPTURING: it
 * is being captured, which goes on. OUT_OF_HOST_MEMORY as for weir_stream_create. */
WEIR_API WEIR_NODISCARD weir_status
weir_stream_register(weir_device *device, weir_stream stream);

/* Ends what weir_stream_register or weir_stream_create began: records what is still
 * open on `stream`, which must still live, and forgets the handle. Memory
 * freed on it stays ordered behind its work. NOT_FOUND: it was not known. CAPTURING: it
 * is being captured, and stays known. If the
 * device refuses the record (DEVICE_ERROR), or there is no host memory for it
 * (OUT_OF_HOST_MEMORY), the stream is forgotten all the same, and what was freed on it
 * waits for the next weir_device_sync. */
WEIR_API weir_status weir_stream_retire(weir_device *device, weir_stream stream);

/* What is put on `stream` from now on waits for everything put on `other` so far. */
WEIR_API WEIR_NODISCARD weir_status
weir_stream_wait(weir_device *device, weir_stream stream, weir_stream other);

/* Waits on the host until everything put on `stream` so far is done. CAPTURING: it is
 * being captured, or declared so (see weir/capture.h), and nothing was waited for. */
WEIR_API WEIR_NODISCARD weir_status
weir_stream_sync(weir_device *device, weir_stream stream);

/* Writes whether everything put on `stream` so far is done. */
WEIR_API WEIR_NODISCARD weir_status
weir_stream_query(weir_device *device, weir_stream stream, bool *out);

/* ---- points ---- */

/* A point on a stream: behind everything put on it before weir_point_here. A plain
 * value, to be copied and forgotten at will; it needs no destroying, and stays
 * good when its stream ends, but not when its device is closed. One of zeros is done.
 * The fields are Weir's own.
 *
 * A point is its own device's, as long as that is open: calls with another's answer
 * INVALID_ARGUMENT, and nothing waits. */
typedef struct weir_point {
    uint64_t clock;
    uint64_t mark;
} weir_point;

/* The point at which `stream` now is. Makes no device call for a known stream;
 * for others it records an event. */
WEIR_API WEIR_NODISCARD weir_status
weir_point_here(weir_device *device, weir_stream stream, weir_point *out);

/* What is put on `stream` from now on waits for `point`: not at all where it is known
 * to be done or waited for already. */
WEIR_API WEIR_NODISCARD weir_status
weir_stream_wait_point(weir_device *device, weir_stream stream, weir_point point);

/* Writes whether all before `point` is done. Asks the device at most once; the first
 * question about a known stream may record an event there. That the device fails, or
 * that a capture is in the way, is no answer: false. weir_point_sync tells it. */
WEIR_API WEIR_NODISCARD weir_status
weir_point_query(weir_device *device, weir_point point, bool *out);

/* Waits on the host until all before `point` is done. */
WEIR_API WEIR_NODISCARD weir_status
weir_point_sync(weir_device *device, weir_point point);

/* ---- events: the device's own, for code that needs its handle ---- */

WEIR_API WEIR_NODISCARD weir_status
weir_event_create(weir_device *device, weir_event *out);

/* Work that was made to wait for `event` still does. Null is ignored. */
WEIR_API weir_status weir_event_destroy(weir_device *device, weir_event event);

/* Moves `event` to behind everything put on `stream` so far. Who waits for it
 * already keeps waiting for where it was. */
WEIR_API WEIR_NODISCARD weir_status
weir_event_record(weir_device *device, weir_stream stream, weir_event event);

/* What is put on `stream` from now on waits for where `event` is now; not at all
 * if it was never recorded. Of another device's event the emulated device answers
 * DEVICE_ERROR. */
WEIR_API WEIR_NODISCARD weir_status
weir_stream_wait_event(weir_device *device, weir_stream stream, weir_event event);

/* Writes whether the work before `event` is done; true if it was never recorded. */
WEIR_API WEIR_NODISCARD weir_status
weir_event_query(weir_device *device, weir_event event, bool *out);

WEIR_API WEIR_NODISCARD weir_status
weir_event_sync(weir_device *device, weir_event event);

/* ---- copies and fills: of no bytes they look at nothing else, and answer OK ---- */

/* Copies `bytes` bytes from `src` to `dst`, on `stream`. Each may be memory of the
 * device, of a peer that the device can reach, or of the host; host memory must
 * stay as it is until the copy is done. INVALID_ARGUMENT: they overlap (as
 * cudaMemcpyAsync forbids), or one is null. */
WEIR_API WEIR_NODISCARD weir_status
weir_copy(weir_device *device, weir_stream stream,
          void *dst, const void *src, size_t bytes);

/* The same, and waits on the host until it is done. */
WEIR_API WEIR_NODISCARD weir_status
weir_copy_sync(weir_device *device, weir_stream stream,
               void *dst, const void *src, size_t bytes);

/* Sets `bytes` bytes at `ptr` to `value`, on `stream`. */
WEIR_API WEIR_NODISCARD weir_status
weir_fill(weir_device *device, weir_stream stream,
          void *ptr, uint8_t value, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
