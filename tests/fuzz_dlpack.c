/* fuzz_dlpack.c - arrays with extents, strides and dtypes from the edges of their
 * types. What they cover is held against sums of 128 bits, which cannot overflow. */
#include <string.h>

#include "internal.h"
#include "support.h"
#include "tensor.h"

__extension__ typedef __int128 wide;

/* More than any answer, and small enough to be added and multiplied a few times. */
#define FAR ((wide)1 << 90)

typedef struct random_array {
    uint64_t random;
    weir__array array;
    int64_t shape[WEIR__NDIM_MAX];
    int64_t strides[WEIR__NDIM_MAX];
} random_array;

static uint64_t below(random_array *self, uint64_t n)
{
    return support_random_below(&self->random, n);
}

/* Small ones, powers of two and their neighbours, and anything. */
static int64_t any_number(random_array *self)
{
    uint64_t number = below(self, 7);
    switch (below(self, 8)) {
    case 0: number = support_random(&self->random); break;
    case 1: case 2:
        number = (UINT64_C(1) << below(self, 64)) + below(self, 3) - 1;
        break;
    default: break;
    }
    return (int64_t)(below(self, 4) == 0 ? -number : number);
}

static weir__dl_dtype any_dtype(random_array *self)
{
    static const uint8_t bits[] = { 8, 8, 16, 32, 64, 1, 4, 6, 255, 12, 0 };
    weir__dl_dtype dtype = {
        (uint8_t)below(self, 20), bits[below(self, sizeof bits)], 1
    };
    if (below(self, 4) == 0)
        dtype.lanes = (uint16_t)any_number(self);
    return dtype;
}

static void make_array(random_array *self)
{
    int32_t ndim = (int32_t)below(self, below(self, 8) == 0 ? WEIR__NDIM_MAX + 1 : 5);
    for (int32_t i = 0; i < ndim; i++) {
        self->shape[i] = any_number(self);
        if (self->shape[i] < 0 && below(self, 16) != 0)
            self->shape[i] = -(self->shape[i] + 1);
        if (self->shape[i] == 0 && below(self, 4) != 0)
            self->shape[i] = 1;
        self->strides[i] = any_number(self);
    }
    self->array = (weir__array){
        any_dtype(self), ndim, self->shape, below(self, 3) == 0 ? NULL : self->strides
    };
}

/* ---- the model ---- */

typedef struct model {
    bool is_possible;
    bool is_empty;
    wide lowest, highest, count; /* bits, bits, elements */
} model;

static wide clamp(wide number)
{
    return number > FAR ? FAR : number < -FAR ? -FAR : number;
}

static model model_of(const weir__array *array)
{
    wide bits = (wide)array->dtype.bits * array->dtype.lanes;
    model it = { .is_possible = true, .count = 1 };
    for (int32_t i = 0; i < array->ndim; i++) {
        it.is_possible = it.is_possible && array->shape[i] >= 0;
        it.is_empty = it.is_empty || array->shape[i] == 0;
    }
    if (!it.is_possible || it.is_empty)
        return it;
    for (int32_t i = 0; i < array->ndim; i++) {
        it.count *= array->shape[i];
        it.count = it.count > INT64_MAX ? (wide)1 << 63 : it.count;
        wide reach = (wide)(array->shape[i] - 1)
            * (array->strides == NULL ? 0 : array->strides[i]);
        wide *end = reach < 0 ? &it.lowest : &it.highest;
        *end = clamp(*end + reach);
    }
    if (array->strides == NULL)
        it.highest = it.count - 1;
    it.lowest *= bits;
    it.highest = (it.highest + 1) * bits;
    it.is_possible = it.count <= INT64_MAX && it.lowest >= -INT64_MAX + 7
        && it.highest <= INT64_MAX - 7 && it.count * bits <= INT64_MAX - 7;
    return it;
}

/* ---- claims ---- */

/* At each end of the room that it needs, and one byte less. */
static void must_fit_exactly(const weir__span *span)
{
    size_t before = (size_t)-span->first, behind = (size_t)span->end;
    must_ok(weir__span_check(span, before, before + behind));
    if (before > 0)
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir__span_check(span, before - 1, before + behind));
    if (before + behind > 0)
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir__span_check(span, before, before + behind - 1));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir__span_check(span, before + 1, before + behind));
}

/* With its strides filled it is the same array, and without them it is contiguous. */
static void must_be_filled_well(const weir__array *array, const weir__span *span)
{
    int64_t filled[WEIR__NDIM_MAX];
    weir__span again;
    weir__array same = *array;
    weir__array_fill_strides(array, filled);
    same.strides = filled;
    must_ok(weir__array_measure(&same, &again));
    must(memcmp(&again, span, sizeof again) == 0);
    must_equal(weir__array_is_contiguous(&same), weir__array_is_contiguous(array));
    if (array->strides == NULL)
        must(weir__array_is_contiguous(array));
    else if (weir__array_is_contiguous(array))
        must(span->first == 0 && span->end == span->bytes);
}

/* True: it was measured. */
static bool must_be_measured_well(const weir__array *array)
{
    weir__span span;
    model it = model_of(array);
    if (weir__dtype_check(array->dtype, false) != WEIR_OK)
        return false;
    must_answer(it.is_possible ? WEIR_OK : WEIR_INVALID_ARGUMENT,
                weir__array_measure(array, &span));
    if (!it.is_possible)
        return false;
    if (it.is_empty) {
        must(span.first == 0 && span.end == 0 && span.count == 0 && span.bytes == 0);
    } else {
        wide bits = (wide)array->dtype.bits * array->dtype.lanes;
        must(span.count == it.count && span.bytes == (it.count * bits + 7) / 8);
        must(span.first == -((-it.lowest + 7) / 8) && span.end == (it.highest + 7) / 8);
    }
    must_fit_exactly(&span);
    must_be_filled_well(array, &span);
    return true;
}

static void arrays_from_the_edges_are_measured_or_refused(void **state)
{
    (void)state;
    static random_array it;
    uint64_t runs = support_bound("arrays from the edges", 100000, 3000000);
    uint64_t measured = 0;
    for (uint64_t i = 0; i < runs; i++) {
        it.random = support_seed(i);
        make_array(&it);
        measured += must_be_measured_well(&it.array);
    }
    must(measured > runs / 20 && measured < runs / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_from_the_edges_are_measured_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
