/* weir/host.h - handing bytes to the host, and back: copies between a buffer and the
 * host's memory, and buffers of memory that the host has already.
 *
 * A copy is work on a stream, which waits for whoever wrote the bytes (or reads them,
 * where it writes), and is noted on the buffer: so the bytes go back behind it. The
 * caller gets a point: until that is done (weir_point_sync, weir_point_query) it leaves
 * the host's memory alone, and keeps it. A call that ends in _sync waits itself.
 *
 * The host's memory may be pageable or pinned. To and from pinned memory the host goes
 * on while the device copies; with pageable memory CUDA may keep the calling thread
 * until the copy is done (its "API synchronization behavior"). The order is the same.
 * CUDA also wants all of the range to be pinned, or nothing of it. */
#ifndef WEIR_HOST_H
#define WEIR_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- copies ----
 *
 * Of `bytes` bytes of the buffer from `offset` on, which lie inside of its size:
 * INVALID_ARGUMENT if not. Of none nothing is done, and the point has passed already.
 * NOT_OWNED: a view, of which Weir knows no device; weir_copy copies from and to that.
 * CAPTURING: `stream` is being captured, in whatever way; a graph's own copies are
 * weir_copy's. Also DEVICE_ERROR and DEVICE_LOST. After a failure nothing was copied,
 * and nothing is noted. */

/* Copies to `host` on `stream`, which waits for all writers. A read is noted. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_to_host(weir_buffer *buffer, weir_stream stream, size_t offset,
                    size_t bytes, void *host, weir_point *out);

/* Copies from `host` on `stream`, which waits for all writers and readers. A write is
 * noted. NOT_SUPPORTED: the bytes are for reading only. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_from_host(weir_buffer *buffer, weir_stream stream, size_t offset,
                      size_t bytes, const void *host, weir_point *out);

/* The same, and the host waits until `stream` is done with it. If that wait fails the
 * copy is noted, and may still be under way. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_to_host_sync(weir_buffer *buffer, weir_stream stream, size_t offset,
                         size_t bytes, void *host);
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_from_host_sync(weir_buffer *buffer, weir_stream stream, size_t offset,
                           size_t bytes, const void *host);

/* ---- arrays ---- */

/* An array of the host's, as NumPy and Python's buffer protocol describe one. Start
 * from WEIR_HOST_ARRAY_INIT; with no dimensions it is a single item. */
typedef struct weir_host_array {
    size_t struct_size;
    void *data;             /* the first item */
    size_t item_bytes;
    int32_t ndim;           /* up to 64 */
    const int64_t *shape;   /* `ndim` extents; only read by the call */
    const int64_t *strides; /* in bytes; null: row by row, without gaps */
    bool read_only;         /* nobody may write to it through the buffer */
    bool pinned;            /* see to it that it is: see below */
    weir_deleter deleter;   /* null: nobody needs to know */
    void *context;
} weir_host_array;

#define WEIR_HOST_ARRAY_INIT                                                     \
    { sizeof(weir_host_array), NULL, 0, 0, NULL, NULL, false, false, NULL, NULL }

/* Takes over an array as a buffer, without a copy: of kind HOST, or PINNED if it is to
 * be. Work on `stream` may use it at once. The buffer cannot grow. The deleter is one
 * that ignores streams: it is called once no work uses the bytes any more (see
 * weir_foreign), with the array's `data` and bytes.
 *
 * Pinned memory is registered with the device, in whole pages: the array begins with
 * one, and what its last page holds besides is registered as well. Pages that are
 * registered already, all of them, are accepted. Those of another buffer of this
 * function's stay registered until the last such buffer ends; others whoever registered
 * them keeps so as long as the buffer lives. What was registered here is unregistered
 * once, before the deleter is called, also if the buffer was released by then.
 *
 *   INVALID_ARGUMENT   the items do not follow each other row by row without gaps
 *                      (C-contiguous; the strides of extents 1 mean nothing), or there
 *                      are none, or more than memory has; pinned: the array does not
 *                      begin with a page, or only some of its pages are registered
 *                      (of those that others have registered the ends tell)
 *   NOT_SUPPORTED      pinned: the device does not register memory
 *
 * and what else the device answers that registers. On failure nothing is registered,
 * the deleter was not called, and the memory is still the caller's. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_adopt_host(weir_device *device, weir_stream stream,
                       const weir_host_array *array, weir_buffer *out);

#ifdef __cplusplus
}
#endif
#endif
