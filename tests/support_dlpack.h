/* support_dlpack.h - the other side of DLPack: a consumer that looks at what Weir
 * exports, and a producer that counts how often it gets its tensors back. */
#ifndef WEIR_TESTS_SUPPORT_DLPACK_H
#define WEIR_TESTS_SUPPORT_DLPACK_H

#include "dlpack_abi.h"
#include "support.h"
#include "weir/weir.h"

/* ---- asking ---- */

/* The number that stands for a stream's handle. */
int64_t number_of(weir_stream stream);

/* What a consumer of version 1 asks for that has its work on `*stream`. */
weir_dlpack_request ask(const int64_t *stream, weir_access access);

/* All of the buffer as bytes, in one row; *extent lives as long as the tensor. */
weir_tensor bytes_of(const weir_buffer *buffer, int64_t *extent);

/* The export of all bytes, which must succeed; that must not. */
weir_dlpack must_export(weir_buffer *buffer, const weir_dlpack_request *request);
void must_not_export(weir_status status, weir_buffer *buffer,
                     const weir_dlpack_request *request);

/* ---- looking ---- */

const weir__dl_tensor *tensor_of(weir_dlpack it);
void *data_of(weir_dlpack it);
uint64_t flags_of(weir_dlpack it); /* of a versioned one */

/* ---- the producer ---- */

typedef struct foreign_tensor {
    weir__dl_managed legacy;
    weir__dl_versioned versioned;
    int64_t shape[2], strides[2];
    uint32_t deletions;
    weir_device *device;      /* with a finding if its memory is still used then */
    weir_stream user;
} foreign_tensor;

/* Two rows of bytes at `data`, of both kinds. */
void foreign_tensor_init(foreign_tensor *self, int32_t device_type, int32_t device_id,
                         void *data, int64_t rows, int64_t columns);
weir_dlpack foreign_legacy(foreign_tensor *self);
weir_dlpack foreign_versioned(foreign_tensor *self);

/* The device type that the memory of this run's devices has. */
int32_t device_type_of(weir_device *device);

/* Whether the host finds `value` in all of these bytes. */
bool is_filled(const void *ptr, uint8_t value, size_t bytes);

#endif
