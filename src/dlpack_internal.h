/* dlpack_internal.h - the tensors that Weir exports: what one of them is, for those who
 * make it (dlpack_export.c), and for those who get one of them back. */
#ifndef WEIR_DLPACK_INTERNAL_H
#define WEIR_DLPACK_INTERNAL_H

#include "dlpack_abi.h"
#include "storage.h"
#include "tensor.h"
#include "weir/dlpack.h"

/* ---- what is asked for ---- */

/* Whose bytes a buffer shows, or of what an empty one would get some. */
typedef struct weir__source {
    weir_device *device;
    weir_memory_kind kind;
    bool read_only;
} weir__source;

/* Whom the tensor is made ready for. */
typedef enum weir__consumer {
    WEIR__CONSUMER_HOST,      /* which waits */
    WEIR__CONSUMER_STREAM,    /* which is made to wait */
    WEIR__CONSUMER_UNTOLD     /* it sees to that itself */
} weir__consumer;

typedef struct weir__request {
    weir_dlpack_request asked;
    weir__source from;
    weir__array array;
    weir__span span;
    size_t byte_offset;
    weir_dlpack_place place;  /* where the tensor is to be */
    bool is_versioned;
    bool copies;
    weir_access access;
    weir__consumer consumer;
    weir_stream stream;
} weir__request;

/* Fills *out for a buffer that has, or would get, bytes: the answers of
 * weir_dlpack_export that need no look at streams. */
weir_status weir__request_read(const weir_buffer *buffer, const weir_tensor *tensor,
                               const weir_dlpack_request *from, weir__request *out);

/* ---- what is made ---- */

/* An exported tensor is one record: what the consumer sees, what holds the bytes, and
 * shape and strides behind it. It lives until its deleter is called. */
typedef struct weir__export {
    union {
        weir__dl_managed legacy;
        weir__dl_versioned versioned;
    } tensor;
    weir_storage *storage;   /* null: no bytes */
    weir__holder holder;     /* what it holds them as */
    weir_access access;      /* the consumer's */
    bool is_unnamed;         /* the consumer's work is on a stream that has no name */
    int64_t dimensions[];    /* extents, strides */
} weir__export;

/* A record for `array`, with `extra` bytes behind its dimensions. */
weir_status weir__export_create(const weir__array *array, size_t extra,
                                weir__export **out);
/* The last step: the tensor that the consumer gets, with its first element there. */
void weir__export_fill(weir__export *self, const weir__request *it, void *first,
                       weir_dlpack *out);

/* The record of a tensor that is Weir's; else null. */
weir__export *weir__export_of(struct DLManagedTensor *tensor);
weir__export *weir__export_of_versioned(struct DLManagedTensorVersioned *tensor);

/* Ends one whose work is on `stream` so far: as weir_dlpack_done, but cannot fail. If
 * the stream cannot be asked about, its bytes wait in limbo. */
void weir__export_end(weir__export *self, weir_stream stream);

/* What DLPack asks for; and the next place for it. */
#define WEIR__DLPACK_ALIGNMENT ((size_t)256)
static inline void *weir__dlpack_align(void *ptr)
{
    uintptr_t up = (uintptr_t)ptr + WEIR__DLPACK_ALIGNMENT - 1;
    return (void *)(up & ~(uintptr_t)(WEIR__DLPACK_ALIGNMENT - 1));
}

static inline weir__dl_dtype weir__dtype_of(weir_dtype dtype)
{
    return (weir__dl_dtype){ dtype.code, dtype.bits, dtype.lanes };
}

/* The DLDeviceType of the memory of `device` that only it can touch; and its number. */
static inline int32_t weir__dlpack_type(const weir_device *device)
{
    return weir__device_is_cuda(device) ? WEIR_DLPACK_CUDA : WEIR_DLPACK_EXT_DEV;
}

static inline int32_t weir__dlpack_ordinal(const weir_device *device)
{
    return (int32_t)(device->slot % WEIR__DEVICE_ORDINALS);
}

#endif
