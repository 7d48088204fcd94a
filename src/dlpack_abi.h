/* dlpack_abi.h - DLPack 1.3 as it lies in memory, in declarations of our own, so that
 * no header of DLPack's is needed and none can get in the way. The layouts have never
 * changed since version 0.1 (the versioned struct came with 1.0); the names of the
 * fields are DLPack's. Source of all of it: https://dmlc.github.io/dlpack.
 *
 * DLPack's own types with a tag are only ever pointed to: see weir__dl_managed_of. */
#ifndef WEIR_DLPACK_ABI_H
#define WEIR_DLPACK_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/* What we emit, and the newest that we read. */
#define WEIR__DL_MAJOR 1u
#define WEIR__DL_MINOR 3u
/* From this minor on an array with dimensions has strides. */
#define WEIR__DL_MINOR_STRIDES 2u

/* Bits of `flags`. */
#define WEIR__DL_READ_ONLY      (UINT64_C(1) << 0)
#define WEIR__DL_IS_COPIED      (UINT64_C(1) << 1)
#define WEIR__DL_SUBBYTE_PADDED (UINT64_C(1) << 2)

/* Codes of dtypes beside those of weir/dlpack.h. */
#define WEIR__DL_OPAQUE        3
#define WEIR__DL_BOOL          6
#define WEIR__DL_FLOAT8_FIRST  7  /* e3m4 */
#define WEIR__DL_FLOAT8_LAST   14 /* e8m0fnu */
#define WEIR__DL_FLOAT6_FIRST  15 /* e2m3fn */
#define WEIR__DL_FLOAT6_LAST   16 /* e3m2fn */
#define WEIR__DL_FLOAT4        17 /* e2m1fn */

struct DLManagedTensor;
struct DLManagedTensorVersioned;

typedef struct weir__dl_version {
    uint32_t major;
    uint32_t minor;
} weir__dl_version;

typedef struct weir__dl_device {
    int32_t device_type;
    int32_t device_id;
} weir__dl_device;

typedef struct weir__dl_dtype {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} weir__dl_dtype;

typedef struct weir__dl_tensor {
    void *data;
    weir__dl_device device;
    int32_t ndim;
    weir__dl_dtype dtype;
    int64_t *shape;
    int64_t *strides;      /* in elements */
    uint64_t byte_offset;  /* of the first element, from `data` */
} weir__dl_tensor;

/* DLManagedTensor. */
typedef struct weir__dl_managed {
    weir__dl_tensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} weir__dl_managed;

/* DLManagedTensorVersioned: of another major version, only what comes before `flags`
 * is sure to be there. */
typedef struct weir__dl_versioned {
    weir__dl_version version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    weir__dl_tensor dl_tensor;
} weir__dl_versioned;

static inline weir__dl_managed *weir__dl_managed_of(struct DLManagedTensor *tensor)
{
    return (weir__dl_managed *)(void *)tensor;
}

static inline weir__dl_versioned *
weir__dl_versioned_of(struct DLManagedTensorVersioned *tensor)
{
    return (weir__dl_versioned *)(void *)tensor;
}

#define WEIR__DL_LIES_AT(type, field, offset)                                    \
    static_assert(offsetof(type, field) == (offset), #type "." #field)

static_assert(sizeof(void *) == 8, "the table is that of 64-bit machines");
static_assert(sizeof(weir__dl_version) == 8 && _Alignof(weir__dl_version) == 4, "");
static_assert(sizeof(weir__dl_device) == 8 && _Alignof(weir__dl_device) == 4, "");
static_assert(sizeof(weir__dl_dtype) == 4 && _Alignof(weir__dl_dtype) == 2, "");
static_assert(sizeof(weir__dl_tensor) == 48 && _Alignof(weir__dl_tensor) == 8, "");
WEIR__DL_LIES_AT(weir__dl_tensor, data, 0);
WEIR__DL_LIES_AT(weir__dl_tensor, device, 8);
WEIR__DL_LIES_AT(weir__dl_tensor, ndim, 16);
WEIR__DL_LIES_AT(weir__dl_tensor, dtype, 20);
WEIR__DL_LIES_AT(weir__dl_tensor, shape, 24);
WEIR__DL_LIES_AT(weir__dl_tensor, strides, 32);
WEIR__DL_LIES_AT(weir__dl_tensor, byte_offset, 40);
static_assert(sizeof(weir__dl_managed) == 64, "");
WEIR__DL_LIES_AT(weir__dl_managed, dl_tensor, 0);
WEIR__DL_LIES_AT(weir__dl_managed, manager_ctx, 48);
WEIR__DL_LIES_AT(weir__dl_managed, deleter, 56);
static_assert(sizeof(weir__dl_versioned) == 80, "");
WEIR__DL_LIES_AT(weir__dl_versioned, version, 0);
WEIR__DL_LIES_AT(weir__dl_versioned, manager_ctx, 8);
WEIR__DL_LIES_AT(weir__dl_versioned, deleter, 16);
WEIR__DL_LIES_AT(weir__dl_versioned, flags, 24);
WEIR__DL_LIES_AT(weir__dl_versioned, dl_tensor, 32);

#endif
