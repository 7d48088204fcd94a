/* tensor.c - see tensor.h. Each step that could overflow is a builtin that tells. */
#include "tensor.h"

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

weir_status weir__dtype_check_any(weir__dl_dtype dtype, bool is_padded)
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
    return WEIR_OK;
}

/* Multiplies the extents, and finds whether the array has strides that are not those of
 * elements row by row without gaps. False: an extent is negative, or the product out of
 * this world, which means nothing if another is 0. */
static bool count_elements(const weir__array *array, int64_t *out, bool *is_strided)
{
    const int64_t *strides = array->strides;
    int64_t count = 1;
    *is_strided = false;
    for (int32_t i = array->ndim - 1; i >= 0; i--) {
        int64_t extent = array->shape[i];
        if (strides != NULL && strides[i] != count && extent != 1)
            *is_strided = true;
        if (extent < 0 || !multiply(count, extent, &count))
            return false;
    }
    *out = count;
    return true;
}

/* The lowest and the highest element, counted from the first; there are some. */
static bool find_reach(const weir__array *array, int64_t *lowest, int64_t *highest)
{
    int64_t reach;
    *lowest = *highest = 0;
    for (int32_t i = 0; i < array->ndim; i++) {
        if (!multiply(array->shape[i] - 1, array->strides[i], &reach)
            || !(reach < 0 ? add(*lowest, reach, lowest)
                           : add(*highest, reach, highest)))
            return false;
    }
    return true;
}

static int64_t whole_bytes(int64_t bits)
{
    return (int64_t)((uint64_t)bits / 8);
}

/* From elements to bytes, outwards. */
static bool find_span(const weir__array *array, int64_t bits, weir__span *out)
{
    int64_t low, high, end;
    if (!find_reach(array, &low, &high) || !multiply(low, bits, &low)
        || !multiply(high, bits, &high) || !add(high, bits, &high)
        || !add(high, 7, &end) || low < -INT64_MAX + 7)
        return false;
    out->first = -whole_bytes(-low + 7);
    out->end = whole_bytes(end);
    return true;
}

static bool is_empty(const weir__array *array)
{
    for (int32_t i = 0; i < array->ndim; i++) {
        if (array->shape[i] == 0)
            return true;
    }
    return false;
}

/* The answer to an array of which not all could be found. */
static WEIR_COLD weir_status answer_unmeasured(const weir__array *array,
                                               weir__span *out)
{
    *out = (weir__span){ 0 };
    for (int32_t i = 0; i < array->ndim; i++) {
        if (array->shape[i] < 0)
            return weir__fail(WEIR_INVALID_ARGUMENT, "extent %d is %lld", i,
                              (long long)array->shape[i]);
    }
    if (is_empty(array))
        return WEIR_OK;
    return weir__fail(WEIR_INVALID_ARGUMENT, "%d extents come to more elements of %lld "
                      "bits, or with these strides farther, than any address space",
                      array->ndim, (long long)element_bits(array->dtype));
}

weir_status weir__array_measure(const weir__array *array, weir__span *out)
{
    int64_t count, all, bits = element_bits(array->dtype);
    bool is_strided;
    *out = (weir__span){ 0 };
    weir_status status = check_dimensions(array);
    if (status != WEIR_OK)
        return status;
    if (!count_elements(array, &count, &is_strided) || !multiply(count, bits, &all)
        || !add(all, 7, &all))
        return answer_unmeasured(array, out);
    *out = (weir__span){ 0, whole_bytes(all), count, whole_bytes(all) };
    if (is_strided && count != 0 && !find_span(array, bits, out))
        return answer_unmeasured(array, out);
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

void weir__array_write(const weir__array *array, int64_t *out)
{
    int64_t step = 1, *strides = out + array->ndim;
    for (int32_t i = array->ndim - 1; i >= 0; i--) {
        int64_t extent = array->shape[i];
        out[i] = extent;
        strides[i] = array->strides != NULL ? array->strides[i] : step;
        /* An array without elements may have extents as large as it likes. */
        if (extent > 1 && !multiply(step, extent, &step))
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
