/* tensor.h - what an array covers: the arithmetic of dtypes, extents and strides.
 * Pure: nothing here looks at the bytes, or knows whose they are.
 *
 * Elements that are no whole bytes are packed, the first in the lowest bits, rows and
 * all. Offsets are counted in bits, and what does not fit there (2^60 bytes) is
 * refused: no address space is as large. */
#ifndef WEIR_TENSOR_H
#define WEIR_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dlpack_abi.h"
#include "weir/status.h"

#define WEIR__NDIM_MAX 64

typedef struct weir__array {
    weir__dl_dtype dtype;
    int32_t ndim;
    const int64_t *shape;   /* `ndim` extents; may be null if that is 0 */
    const int64_t *strides; /* in elements; null: row by row */
} weir__array;

/* Where an array's bytes lie, counted from its first element's. */
typedef struct weir__span {
    int64_t first;   /* of the lowest byte: 0, or less with negative strides */
    int64_t end;     /* behind the highest; without elements both are 0 */
    int64_t count;   /* elements */
    int64_t bytes;   /* that many have, packed without gaps */
} weir__span;

/* Whether the size of an element is known: NOT_SUPPORTED if its code is not one of
 * DLPack 1.3, its bits are not what the code asks for, or it `is_padded`, which is by
 * no rule. */
weir_status weir__dtype_check_any(weir__dl_dtype dtype, bool is_padded);
static inline weir_status weir__dtype_check(weir__dl_dtype dtype, bool is_padded)
{
    /* The codes before bool can have any bits. */
    if (dtype.code < WEIR__DL_BOOL && dtype.bits != 0 && dtype.lanes != 0 && !is_padded)
        return WEIR_OK;
    return weir__dtype_check_any(dtype, is_padded);
}

/* Measures an array whose dtype was checked. INVALID_ARGUMENT: too many dimensions, no
 * shape, a negative extent, or more than there can be. */
weir_status weir__array_measure(const weir__array *array, weir__span *out);

/* Whether the elements follow each other row by row without gaps. The strides of
 * extents 1 mean nothing, and nor do any if there are no elements. The array was
 * measured. */
bool weir__array_is_contiguous(const weir__array *array);

/* Writes the array's extents, and behind them its strides, or where it has none those
 * that it means. The array was measured. */
void weir__array_write(const weir__array *array, int64_t *out);

/* INVALID_ARGUMENT unless all of the span lies in `bytes` bytes when its first element
 * is at `offset`. */
weir_status weir__span_check(const weir__span *span, size_t offset, size_t bytes);

#endif
