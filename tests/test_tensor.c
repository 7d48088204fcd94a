/* test_tensor.c - what arrays cover: every small array against a naive walk over its
 * elements, and the edges of what can be counted. */
#include <limits.h>
#include <string.h>

#include "internal.h"
#include "support.h"
#include "tensor.h"

enum { DIMS = 3 };

/* ---- the naive walk ---- */

typedef struct walked {
    int64_t count;
    int64_t first;      /* byte */
    int64_t end;
    bool is_contiguous;
} walked;

/* Row by row from the first index to the last; `strides` are never null. */
static walked walk(const weir__array *array, const int64_t *strides)
{
    walked seen = { .is_contiguous = true };
    int64_t index[DIMS] = { 0 };
    int64_t width = (int64_t)array->dtype.bits * array->dtype.lanes;
    int64_t low = INT64_MAX, high = INT64_MIN; /* bits that are touched */
    for (int32_t i = 0; i < array->ndim; i++) {
        if (array->shape[i] == 0)
            return seen;
    }
    for (bool goes_on = true; goes_on;) {
        int64_t element = 0;
        for (int32_t i = 0; i < array->ndim; i++)
            element += index[i] * strides[i];
        if (element != seen.count)
            seen.is_contiguous = false;
        for (int64_t bit = element * width; bit < (element + 1) * width; bit++) {
            low = bit < low ? bit : low;
            high = bit > high ? bit : high;
        }
        seen.count++;
        goes_on = false;
        for (int32_t i = array->ndim - 1; i >= 0 && !goes_on; i--) {
            index[i] = index[i] + 1 == array->shape[i] ? 0 : index[i] + 1;
            goes_on = index[i] != 0;
        }
    }
    while (low % 8 != 0)
        low--;
    while (high % 8 != 7 && high % 8 != -1)
        high++;
    seen.first = low / 8;
    seen.end = (high + 1) / 8;
    return seen;
}

/* Whether it fits, asked of every place it could have in a few bytes. */
static void must_fit_where_it_does(const weir__span *span, const walked *seen)
{
    for (size_t bytes = 0; bytes < 6; bytes++) {
        for (size_t offset = 0; offset < 8; offset++) {
            bool fits = (int64_t)offset + seen->first >= 0 && offset <= bytes
                && (int64_t)offset + seen->end <= (int64_t)bytes;
            must_answer(fits ? WEIR_OK : WEIR_INVALID_ARGUMENT,
                        weir__span_check(span, offset, bytes));
        }
    }
}

static void must_be_as_walked(const weir__array *array)
{
    weir__span span;
    int64_t written[2 * DIMS] = { 77, 77, 77, 77, 77, 77 };
    must_ok(weir__dtype_check(array->dtype, false));
    must_ok(weir__array_measure(array, &span));
    weir__array_write(array, written);
    for (int32_t i = 0; i < array->ndim; i++)
        must_equal(written[i], array->shape[i]);
    walked seen = walk(array, written + array->ndim);
    int64_t width = (int64_t)array->dtype.bits * array->dtype.lanes;
    must_equal(span.count, seen.count);
    must_equal(span.first, seen.first);
    must_equal(span.end, seen.end);
    must_equal(span.bytes, (seen.count * width + 7) / 8);
    must_equal(weir__array_is_contiguous(array), seen.is_contiguous);
    if (array->ndim < DIMS)
        must_fit_where_it_does(&span, &seen);
    if (array->strides == NULL)
        must(seen.is_contiguous);
    else
        must(memcmp(written + array->ndim, array->strides,
                    (size_t)array->ndim * sizeof *written) == 0);
}

static void small_arrays_cover_what_a_walk_meets(void **state)
{
    (void)state;
    static const weir__dl_dtype dtypes[] = {
        { 2, 32, 1 }, { 0, 8, 1 }, { 0, 4, 1 }, { 16, 6, 1 }, { 17, 4, 2 }, { 1, 1, 3 },
        { 2, 16, 2 },
    };
    static const int64_t extents[] = { 0, 1, 2, 3 };
    static const int64_t steps[] = { -7, -1, 0, 1, 2, 3, 6, 77 };
    int64_t shape[DIMS], strides[DIMS];
    for (size_t which = 0; which < sizeof dtypes / sizeof dtypes[0]; which++) {
        for (size_t number = 0; number < (DIMS + 1) << 15; number++) {
            int32_t ndim = (int32_t)(number >> 15);
            if (ndim < DIMS && (number & 0x7fff) >> (5 * ndim) != 0)
                continue; /* seen already */
            for (int32_t i = 0; i < DIMS; i++) {
                shape[i] = extents[number >> (5 * i) & 3];
                strides[i] = steps[number >> (5 * i + 2) & 7];
                if (shape[i] > 1 && strides[i] == 77) /* for extents where it is free */
                    strides[i] = 4;
            }
            weir__array array = { dtypes[which], ndim, shape, strides };
            must_be_as_walked(&array);
            array.strides = NULL;
            must_be_as_walked(&array);
        }
    }
}

/* ---- edges ---- */

static const weir__dl_dtype byte = { 1, 8, 1 };

static weir_status measure(weir__dl_dtype dtype, int32_t ndim, const int64_t *shape,
                           const int64_t *strides, weir__span *out)
{
    weir__array array = { dtype, ndim, shape, strides };
    memset(out, 0x55, sizeof *out);
    weir_status status = weir__array_measure(&array, out);
    if (status != WEIR_OK)
        must(out->first == 0 && out->end == 0 && out->count == 0 && out->bytes == 0);
    return status;
}

static void sizes_end_where_bits_do(void **state)
{
    (void)state;
    const int64_t most = INT64_MAX / 8; /* bytes whose bits can be counted */
    weir__span span;
    must_ok(measure(byte, 1, (int64_t[]){ most }, NULL, &span));
    must_equal(span.end, most);
    must_equal(span.bytes, most);
    must_answer(WEIR_INVALID_ARGUMENT,
                measure(byte, 1, (int64_t[]){ most + 1 }, NULL, &span));
    must_answer(WEIR_INVALID_ARGUMENT,
                measure(byte, 1, (int64_t[]){ INT64_MAX }, NULL, &span));
    must_ok(measure(byte, 1, (int64_t[]){ 2 }, (int64_t[]){ most - 1 }, &span));
    must_equal(span.end, most);
    must_equal(span.bytes, 2);
    must_answer(WEIR_INVALID_ARGUMENT,
                measure(byte, 1, (int64_t[]){ 2 }, (int64_t[]){ most }, &span));
    must_ok(measure(byte, 1, (int64_t[]){ 2 }, (int64_t[]){ -most + 1 }, &span));
    must_equal(span.first, -most + 1);
    must_equal(span.end, 1);
    for (int64_t stride = INT64_MIN; stride < INT64_MIN + 4; stride++)
        must_answer(WEIR_INVALID_ARGUMENT,
                    measure(byte, 1, (int64_t[]){ 2 }, &stride, &span));
    for (int64_t over = -8; over <= 0; over++) { /* bits, one by one */
        weir__dl_dtype bit = { 1, 1, 1 };
        int64_t stride = -INT64_MAX - over - 1;
        must_answer(stride < -INT64_MAX + 7 ? WEIR_INVALID_ARGUMENT : WEIR_OK,
                    measure(bit, 1, (int64_t[]){ 2 }, &stride, &span));
    }
}

static void a_span_is_held_against_all_sizes(void **state)
{
    (void)state;
    weir__span all;
    must_ok(measure(byte, 1, (int64_t[]){ INT64_MAX / 8 }, NULL, &all));
    must_ok(weir__span_check(&all, 0, SIZE_MAX));
    must_ok(weir__span_check(&all, SIZE_MAX - (size_t)(INT64_MAX / 8), SIZE_MAX));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir__span_check(&all, SIZE_MAX - (size_t)(INT64_MAX / 8) + 1,
                                 SIZE_MAX));
    must_answer(WEIR_INVALID_ARGUMENT, weir__span_check(&all, 0, INT64_MAX / 8 - 1));
    must_answer(WEIR_INVALID_ARGUMENT, weir__span_check(&all, SIZE_MAX, SIZE_MAX));
    must_answer(WEIR_INVALID_ARGUMENT, weir__span_check(&all, SIZE_MAX, 0));
    weir__span none = { 0 };
    must_ok(weir__span_check(&none, SIZE_MAX, SIZE_MAX));
    must_answer(WEIR_INVALID_ARGUMENT, weir__span_check(&none, 1, 0));
}

static void counts_that_overflow_are_refused(void **state)
{
    (void)state;
    int64_t big = INT64_C(1) << 32;
    weir__span span;
    must_answer(WEIR_INVALID_ARGUMENT,
                measure(byte, 2, (int64_t[]){ big, big }, NULL, &span));
    /* Even where all of them are one element. */
    must_answer(WEIR_INVALID_ARGUMENT,
                measure(byte, 2, (int64_t[]){ big, big }, (int64_t[]){ 0, 0 }, &span));
    must_answer(WEIR_INVALID_ARGUMENT, /* can be counted, but not copied */
                measure(byte, 2, (int64_t[]){ big, big / 4 }, (int64_t[]){ 0, 0 },
                        &span));
    /* Sums of strides, each of which is possible. */
    int64_t far = INT64_MAX / 16;
    must_answer(WEIR_INVALID_ARGUMENT,
                measure(byte, 3, (int64_t[]){ 2, 2, 2 }, (int64_t[]){ far, far, far },
                        &span));
    must_ok(measure(byte, 2, (int64_t[]){ 2, 2 }, (int64_t[]){ far, -far }, &span));
    must(span.first == -far && span.end == far + 1 && span.count == 4);
    weir__dl_dtype wide = { 1, 255, 65535 };
    must_ok(measure(wide, 1, (int64_t[]){ 8 }, NULL, &span));
    must_equal(span.bytes, 255 * 65535);
    must_answer(WEIR_INVALID_ARGUMENT,
                measure(wide, 1, (int64_t[]){ INT64_MAX / (255 * 65535) + 1 }, NULL,
                        &span));
}

static void an_extent_of_zero_forgives_the_others(void **state)
{
    (void)state;
    int64_t shape[] = { INT64_MAX, 0, INT64_MAX, INT64_MAX };
    int64_t strides[] = { INT64_MIN, INT64_MIN, INT64_MAX, 5 }, written[8];
    weir__span span;
    must_ok(measure(byte, 4, shape, NULL, &span));
    must_ok(measure(byte, 4, shape, strides, &span));
    must(span.first == 0 && span.end == 0 && span.count == 0 && span.bytes == 0);
    weir__array array = { byte, 4, shape, NULL };
    const int64_t *meant = written + 4;
    weir__array_write(&array, written);
    must(meant[3] == 1 && meant[2] == INT64_MAX && meant[1] == 0 && meant[0] == 0);
    array.strides = strides;
    must(weir__array_is_contiguous(&array));
    array.shape = (int64_t[]){ 3, 0, 5, 7 };
    array.strides = NULL;
    weir__array_write(&array, written);
    must(meant[3] == 1 && meant[2] == 7 && meant[1] == 35 && meant[0] == 35);
}

static void dimensions_are_checked(void **state)
{
    (void)state;
    int64_t shape[WEIR__NDIM_MAX + 1];
    weir__span span;
    for (size_t i = 0; i < WEIR__NDIM_MAX + 1; i++)
        shape[i] = 1;
    must_ok(measure(byte, WEIR__NDIM_MAX, shape, NULL, &span));
    must_equal(span.count, 1);
    must_answer(WEIR_INVALID_ARGUMENT,
                measure(byte, WEIR__NDIM_MAX + 1, shape, NULL, &span));
    must_answer(WEIR_INVALID_ARGUMENT, measure(byte, INT_MAX, shape, NULL, &span));
    must_answer(WEIR_INVALID_ARGUMENT, measure(byte, -1, shape, NULL, &span));
    must_answer(WEIR_INVALID_ARGUMENT, measure(byte, INT_MIN, shape, NULL, &span));
    must_answer(WEIR_INVALID_ARGUMENT, measure(byte, 1, NULL, NULL, &span));
    must_ok(measure(byte, 0, NULL, NULL, &span));
    must(span.first == 0 && span.end == 1 && span.count == 1 && span.bytes == 1);
    /* Also where there are no elements. */
    must_answer(WEIR_INVALID_ARGUMENT,
                measure(byte, 2, (int64_t[]){ 0, -1 }, NULL, &span));
    must_answer(WEIR_INVALID_ARGUMENT,
                measure(byte, 1, (int64_t[]){ INT64_MIN }, NULL, &span));
}

/* ---- dtypes ---- */

static void dtypes_have_the_bits_of_their_code(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 256; code++) {
        for (unsigned bits = 0; bits < 256; bits++) {
            bool is_sized = bits > 0 && code <= 17;
            if (code == 6 || (code >= 7 && code <= 14))
                is_sized = bits == 8;
            if (code == 15 || code == 16)
                is_sized = bits == 6;
            if (code == 17)
                is_sized = bits == 4;
            weir__dl_dtype dtype = { (uint8_t)code, (uint8_t)bits, 1 };
            must_answer(is_sized ? WEIR_OK : WEIR_NOT_SUPPORTED,
                        weir__dtype_check(dtype, false));
            is_sized = is_sized && bits % 8 == 0;
            must_answer(is_sized ? WEIR_OK : WEIR_NOT_SUPPORTED,
                        weir__dtype_check(dtype, true));
            dtype.lanes = 0;
            must_answer(WEIR_NOT_SUPPORTED, weir__dtype_check(dtype, false));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_arrays_cover_what_a_walk_meets),
        cmocka_unit_test(sizes_end_where_bits_do),
        cmocka_unit_test(a_span_is_held_against_all_sizes),
        cmocka_unit_test(counts_that_overflow_are_refused),
        cmocka_unit_test(an_extent_of_zero_forgives_the_others),
        cmocka_unit_test(dimensions_are_checked),
        cmocka_unit_test(dtypes_have_the_bits_of_their_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
