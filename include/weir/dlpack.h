/* weir/dlpack.h - tensors to and from other libraries without a copy, by DLPack 1.3 and
 * what came before it (https://dmlc.github.io/dlpack).
 *
 * Who keeps whom alive: an exported tensor holds its bytes as a buffer does, and
 * nothing else of the exporter's; the buffer, its stream and the arrays of its shape
 * may all be gone before it. An imported tensor is the storage of the buffer that is
 * made of it; its deleter runs once, after the last holder and after all uses that
 * were noted.
 *
 * Who waits for whom: export makes the consumer's stream wait for what the exporter has
 * put on the buffer's stream, and for other writers (for readers too, if the consumer
 * may write). DLPack's deleter says nothing about streams. So the bytes of a tensor
 * that is deleted come back behind what is then on the consumer's stream, where Weir
 * may still name it: the legacy stream, a known one, or one vouched for. All others are
 * forgotten when export returns; what was exported to them waits in limbo, once it is
 * deleted, until memory is wanted, and then for a point behind all work of the device.
 * Who waits for it before that (weir_buffer_wait, another export) waits for such a
 * point, too.
 * weir_dlpack_done names the stream instead.
 *
 * The header needs none of DLPack's and can come before or after it. */
#ifndef WEIR_DLPACK_H
#define WEIR_DLPACK_H

#include <stdint.h>

#include "weir/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct DLManagedTensor;
struct DLManagedTensorVersioned;

/* DLPack's numbers: DLDataTypeCode, and what one element has of it. */
typedef struct weir_dtype {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} weir_dtype;

#define WEIR_DTYPE_INT     0
#define WEIR_DTYPE_UINT    1
#define WEIR_DTYPE_FLOAT   2
#define WEIR_DTYPE_BFLOAT  4
#define WEIR_DTYPE_COMPLEX 5
#define WEIR_DTYPE_BOOL    6

/* DLDeviceType: those that mean something here. */
#define WEIR_DLPACK_CPU          1
#define WEIR_DLPACK_CUDA         2
#define WEIR_DLPACK_CUDA_HOST    3
#define WEIR_DLPACK_EXT_DEV      12 /* memory of an emulated device */
#define WEIR_DLPACK_CUDA_MANAGED 13

#define WEIR_DLPACK_MAX_NDIM 64

/* How the bytes of a buffer are an array. */
typedef struct weir_tensor {
    weir_dtype dtype;
    int32_t ndim;
    const int64_t *shape;   /* `ndim` extents; may be null if that is 0 */
    const int64_t *strides; /* in elements, may be negative; null: row by row */
    size_t byte_offset;     /* of the first element, from the buffer's data */
} weir_tensor;

/* One tensor, of either kind; the other is null. */
typedef struct weir_dlpack {
    struct DLManagedTensor *legacy;
    struct DLManagedTensorVersioned *versioned;
} weir_dlpack;

typedef struct weir_dlpack_place {
    int32_t type; /* DLDeviceType */
    int32_t id;
} weir_dlpack_place;

typedef enum weir_copying {
    WEIR_COPY_IF_NEEDED = 0, /* copy=None */
    WEIR_COPY_ALWAYS = 1,    /* copy=True */
    WEIR_COPY_NEVER = 2      /* copy=False */
} weir_copying;

/* What a consumer asks for: the arguments of Python's __dlpack__, and two more. Start
 * from WEIR_DLPACK_REQUEST_INIT: legacy, no stream, no device, copy if needed, to
 * write. */
typedef struct weir_dlpack_request {
    size_t struct_size;
    const uint32_t *max_version; /* major, minor; null: None, for a legacy one */
    /* Null: None, the legacy default stream; for host memory, the host. -1: no waiting
     * at all; 1: the legacy stream; 2: the calling thread's; above: a handle. 0 is
     * refused, and so is what is below -1. */
    const int64_t *stream;
    const weir_dlpack_place *device; /* null: where the bytes are */
    weir_copying copy;
    weir_access access;
    /* The consumer's stream, a handle that Weir does not know, outlives the tensor. */
    bool stream_outlives_tensor;
    /* Instead of the device's own type, for memory of a device (0: that). For tests. */
    int32_t device_type;
} weir_dlpack_request;

#define WEIR_DLPACK_REQUEST_INIT                                                 \
    { sizeof(weir_dlpack_request), NULL, NULL, NULL, WEIR_COPY_IF_NEEDED,          \
      WEIR_WRITE, false, 0 }

/* Makes a tensor of `tensor`, which lies inside of the buffer's size, for the consumer
 * that asks for `request` (null: all its defaults). Strides are always filled, the
 * offset goes into `data`, and an array without elements has null there. Emits version
 * 1.3, or a legacy one where the consumer's major version is 0 or not told.
 *
 * On the device the consumer's stream waits; for host memory (CPU, pinned and
 * managed without a stream) the host does. A copy to the host (`device` is CPU, and the
 * bytes cannot be touched there) is complete on return, and a stream given with it is
 * never looked at. A copy on the device lies in memory of the buffer's resource, or of
 * the current one (weir/current.h) if it has none. All from the lowest byte to the
 * highest is copied, gaps too: the strides stay.
 *
 * Of what is read only, the export is, too, whatever was asked for. An array without
 * elements needs no bytes: nobody waits, and nothing is held.
 *
 *   NOT_OWNED         a view, or empty without a resource
 *   NOT_SUPPORTED     cannot be exported so: another device, a copy that was forbidden
 *                     or is impossible, read only to a legacy consumer (which has no
 *                     flag for it)
 *   INVALID_ARGUMENT  a stream that is none; a shape that leaves the buffer
 *   CAPTURING         a wait would be needed on or for a stream that is captured
 * and what a wait, an allocation or a copy answers. On failure *out is empty. */
WEIR_API WEIR_NODISCARD weir_status
weir_dlpack_export(weir_buffer *buffer, const weir_tensor *tensor,
                   const weir_dlpack_request *request, weir_dlpack *out);

/* What __dlpack_device__ answers: where the bytes are, or would be. NOT_OWNED: a view,
 * or empty without a resource. */
WEIR_API WEIR_NODISCARD weir_status
weir_dlpack_device(const weir_buffer *buffer, weir_dlpack_place *out);

/* What an importer asks for. Start from WEIR_DLPACK_IMPORT_INIT: any strides. */
typedef struct weir_dlpack_import_options {
    size_t struct_size;
    bool contiguous;      /* row by row without gaps; else NOT_SUPPORTED */
    size_t alignment;     /* of the first element, a power of two; 0: any */
    int32_t device_type;  /* taken for this device's own, besides that; 0: none */
} weir_dlpack_import_options;

#define WEIR_DLPACK_IMPORT_INIT { sizeof(weir_dlpack_import_options), false, 0, 0 }

/* Makes a buffer and `tensor` of what another library exported, on `device`: memory of
 * that, or of the host. `stream` is the one that the exporter was asked to make ready
 * (null for host memory): the buffer's own. The buffer shows from the lowest byte of
 * the array to the highest; shape and strides (always filled) live as long as its
 * storage. On success the tensor is the buffer's; on failure it is still the
 * caller's, who deletes it. A deleter that is null is not called.
 *
 *   NOT_SUPPORTED     another major version (nothing else of it was read), flags that
 *                     are not known, another device, a dtype or a packing that nobody
 *                     can size, not contiguous or not aligned where that was asked for
 *   INVALID_ARGUMENT  it contradicts itself: a negative extent, ndim above
 *                     WEIR_DLPACK_MAX_NDIM, null data with elements, null shape, null
 *                     strides where its version forbids that, sizes that overflow */
WEIR_API WEIR_NODISCARD weir_status
weir_dlpack_import(weir_device *device, weir_stream stream, weir_dlpack from,
                   const weir_dlpack_import_options *options,
                   weir_buffer *out, weir_tensor *tensor);

/* Deletes a tensor that nobody imported: calls its deleter if it has one, and looks at
 * nothing else. */
WEIR_API void weir_dlpack_delete(weir_dlpack tensor);

/* Deletes a tensor of weir_dlpack_export, as its deleter would, but for a consumer that
 * says where its work is: the bytes come back behind what is on `stream` so far, which
 * must live. INVALID_ARGUMENT: it is not Weir's; CAPTURING: `stream` is in a declared
 * capture. On failure nothing has happened. */
WEIR_API WEIR_NODISCARD weir_status
weir_dlpack_done(struct DLManagedTensor *tensor, weir_stream stream);
WEIR_API WEIR_NODISCARD weir_status
weir_dlpack_done_versioned(struct DLManagedTensorVersioned *tensor, weir_stream stream);

/* ---- the exchange table's functions that need no Python (DLPack 1.3) ----
 *
 * With the signatures of managed_tensor_allocator and current_work_stream, but for
 * the names of types that older headers do not have. 0: success, -1: not. */

/* Allocates from the current resource of the prototype's device, on this thread's
 * current stream there (weir/current.h); for the CPU, memory of the host. Of
 * `prototype`, a DLTensor, dtype, ndim, shape and device count. The tensor comes back
 * as one does that was exported to that stream: behind it, if it is known to Weir.
 *
 * On failure *out is null, and `set_error`, which may be null, is told why: by the name
 * of one of Python's exceptions. The device must be open, and its current resource's
 * memory the device's own. */
WEIR_API int
weir_dlpack_allocate(void *prototype, struct DLManagedTensorVersioned **out,
                     void *error_context,
                     void (*set_error)(void *error_context, const char *kind,
                                       const char *message));

/* This thread's current stream on the device; null for the host. Fails for a device
 * that is not open. */
WEIR_API int
weir_dlpack_current_work_stream(int32_t device_type, int32_t device_id,
                                void **out_stream);

#ifdef __cplusplus
}
#endif
#endif
