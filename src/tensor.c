/* tensor.c - see tensor.h. Each step that could overflow is a builtin that tells. */
#include "tensor.h"

#include <string.h>

#include "internal.h"

static bool multiply(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static bool add(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* ---- dtypes ---- */

/* The bits that a code stands for; 0: any. */
static uint8_t bits_of_code(uint8_t code)
{
    if (code == WEIR__DL_BOOL)
        return 8;
    if (code >= WEIR__DL_FLOAT8_FIRST && code <= WEIR__DL_FLOAT8_LAST)
        return 8;
    if (code >= WEIR__DL_FLOAT6_FIRST && code <= WEIR__DL_FLOAT6_LAST)
        return 6;
    return code == WEIR__DL_FLOAT4 ? 4 : 0;
}

weir_status weir__dtype_check(weir__dl_dtype dtype, bool is_padded)
{
    if (dtype.code > WEIR__DL_FLOAT4)
        return weir__fail(WEIR_NOT_SUPPORTED, "dtype code %d is unknown; %d is the "
                          "highest", dtype.code, WEIR__DL_FLOAT4);
    if (dtype.bits == 0 || dtype.lanes == 0)
        return weir__fail(WEIR_NOT_SUPPORTED, "a dtype of %d bits and %d lanes has no "
                          "size", dtype.bits, dtype.lanes);
    uint8_t bits = bits_of_code(dtype.code);
    if (bits != 0 && dtype.bits != bits)
        return weir__fail(WEIR_NOT_SUPPORTED, "dtype code %d has %d bits, not %d",
                          dtype.code, bits, dtype.bits);
    if (is_padded && dtype.bits % 8 != 0)
        return weir__fail(WEIR_NOT_SUPPORTED, "elements of %d bits are padded, and to "
                          "what is not said", dtype.bits);
    return WEIR_OK;
}

static int64_t element_bits(weir__dl_dtype dtype)
{
    return (int64_t)dtype.bits * dtype.lanes;
}

/* ---- extents ---- */

static weir_status check_dimensions(const weir__array *array)
{
    if (array->ndim < 0 || array->ndim > WEIR__NDIM_MAX)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%d dimensions; %d are the most",
                          array->ndim, WEIR__NDIM_MAX);
    if (array->ndim > 0 && array->shape == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%d dimensions without a shape",
                          array->ndim);
    for (int32_t i = 0; i < array->ndim; i++) {
        if (array->shape[i] < 0)
            return weir__fail(WEIR_INVALID_ARGUMENT, "extent %d is %lld", i,
                              (long long)array->shape[i]);
    }
    return WEIR_OK;
}

static bool is_empty(const weir__array *array)
{
    for (int32_t i = 0; i < array->ndim; i++) {
        if (array->shape[i] == 0)
            return true;
    }
    return false;
}

static bool count_elements(const weir__array *array, int64_t *out)
{
    *out = 1;
    for (int32_t i = 0; i < array->ndim; i++) {
        if (!multiply(*out, array->shape[i], out))
            return false;
    }
    return true;
}

/* ---- strides ---- */

/* The lowest and the highest element, counted from the first: false if one of them is
 * out of this world. */
static bool find_ends(const weir__array *array, int64_t count, int64_t *lowest,
                      int64_t *highest)
{
    *lowest = 0;
    *highest = array->strides == NULL ? count - 1 : 0;
    for (int32_t i = 0; array->strides != NULL && i < array->ndim; i++) {
        int64_t reach;
        if (array->shape[i] == 1)
            continue;
        if (!multiply(array->shape[i] - 1, array->strides[i], &reach))
            return false;
        int64_t *end = reach < 0 ? lowest : highest;
        if (!add(*end, reach, end))
            return false;
    }
    return true;
}

/* From elements to bytes, outwards. */
static bool find_bytes(int64_t bits, int64_t lowest, int64_t highest, weir__span *out)
{
    int64_t low, high, end, all;
    if (!multiply(lowest, bits, &low) || !multiply(highest, bits, &high)
        || !add(high, bits, &high) || !add(high, 7, &end) || low < -INT64_MAX + 7)
        return false;
    if (!multiply(out->count, bits, &all) || !add(all, 7, &all))
        return false;
    out->first = -((-low + 7) / 8);
    out->end = end / 8;
    out->bytes = all / 8;
    return true;
}

weir_status weir__array_measure(const weir__array *array, weir__span *out)
{
    int64_t lowest, highest;
    *out = (weir__span){ 0 };
    weir_status status = check_dimensions(array);
    if (status != WEIR_OK || is_empty(array))
        return status;
    weir__span span = { 0 };
    if (!count_elements(array, &span.count))
        return weir__fail(WEIR_INVALID_ARGUMENT, "%d extents come to more elements "
                          "than can be counted", array->ndim);
    if (!find_ends(array, span.count, &lowest, &highest)
        || !find_bytes(element_bits(array->dtype), lowest, highest, &span))
        return weir__fail(WEIR_INVALID_ARGUMENT, "%lld elements of %lld bits with "
                          "these strides fit no address space", (long long)span.count,
                          (long long)element_bits(array->dtype));
    *out = span;
    return WEIR_OK;
}

bool weir__array_is_contiguous(const weir__array *array)
{
    if (array->strides == NULL || is_empty(array))
        return true;
    int64_t wanted = 1;
    for (int32_t i = array->ndim - 1; i >= 0; i--) {
        if (array->shape[i] == 1)
            continue;
        if (array->strides[i] != wanted)
            return false;
        wanted *= array->shape[i]; /* no more than its count */
    }
    return true;
}

void weir__array_fill_strides(const weir__array *array, int64_t *strides)
{
    if (array->strides != NULL && array->ndim > 0) {
        memcpy(strides, array->strides, (size_t)array->ndim * sizeof strides[0]);
        return;
    }
    int64_t step = 1;
    for (int32_t i = array->ndim - 1; i >= 0; i--) {
        strides[i] = step;
        /* An array without elements may have extents as large as it likes. */
        if (array->shape[i] > 1 && !multiply(step, array->shape[i], &step))
            step = 0;
    }
}

weir_status weir__span_check(const weir__span *span, size_t offset, size_t bytes)
{
    /* `first` is at least -INT64_MAX / 8. */
    if ((size_t)-span->first > offset || offset > bytes
        || (size_t)span->end > bytes - offset)
        return weir__fail(WEIR_INVALID_ARGUMENT, "an array from byte %lld to %lld of "
                          "its first element, which is at %zu, leaves %zu bytes",
                          (long long)span->first, (long long)span->end, offset, bytes);
    return WEIR_OK;
}
