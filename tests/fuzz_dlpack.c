/* fuzz_dlpack.c - arrays with extents, strides and dtypes from the edges of their
 * types. What they cover is held against sums of 128 bits, which cannot overflow.
 *
 * The same arrays are then imported, as tensors of any version, with any flags, on any
 * device, at any address: a buffer must show just what they cover, or nothing has
 * happened to the tensor. Nobody looks at their bytes, which are not there. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "octets.h"
#include "support_corpus.h"
#include "support_dlpack.h"
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

/* With its strides written it is the same array, and without them it is contiguous. */
static void must_be_written_well(const weir__array *array, const weir__span *span)
{
    int64_t written[2 * WEIR__NDIM_MAX];
    weir__span again;
    weir__array same = *array;
    weir__array_write(array, written);
    same.shape = written;
    same.strides = written + array->ndim;
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
    must_be_written_well(array, &span);
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

/* ---- imports ---- */

/* A tensor whose extents and strides end where they should, so that a read behind them
 * is found; and what is asked for. */
typedef struct made {
    foreign_tensor it;
    int64_t *shape, *strides;
    bool is_versioned;
    weir_dlpack_import_options options;
} made;

/* Who makes a tensor up, out of fields that follow each other as octets: these are what
 * is kept. */
typedef struct fields {
    size_t length;
    uint8_t octets[64 + 16 * WEIR__NDIM_MAX];
} fields;

static void put(fields *self, uint64_t number, size_t count)
{
    must(self->length + count <= sizeof self->octets);
    weir__octets_put(self->octets + self->length, number, count);
    self->length += count;
}

/* What lies on no more than so many: extents are there for no other ndim. */
static int32_t extents_of(int32_t ndim)
{
    return ndim < 0 || ndim > WEIR__NDIM_MAX ? 0 : ndim;
}

static void put_place(random_array *self, fields *out)
{
    static const int32_t types[] = { 1, 1, 1, 3, 12, 12, 13, 2, 0, 99, -1 };
    uint64_t data = UINT64_C(1) << (20 + below(self, 44)), offset = below(self, 100);
    int32_t type = types[below(self, sizeof types / sizeof types[0])], id = 0;
    if (below(self, 20) == 0)
        data = support_random(&self->random);
    if (below(self, 20) == 0)
        data = 0;
    if (below(self, 20) == 0)
        offset = support_random(&self->random);
    if (below(self, 20) == 0)
        id = (int32_t)any_number(self);
    put(out, data, 8);
    put(out, offset, 8);
    put(out, (uint32_t)type, 4);
    put(out, (uint32_t)id, 4);
}

static void put_version(random_array *self, fields *out)
{
    uint64_t minor = below(self, 5), major = 1, flags = 0;
    if (below(self, 30) == 0)
        major = (uint32_t)any_number(self);
    if (below(self, 3) == 0)
        flags = below(self, 8);
    if (below(self, 30) == 0)
        flags = support_random(&self->random);
    put(out, below(self, 3) != 0, 1);
    put(out, major, 4);
    put(out, minor, 4);
    put(out, flags, 8);
}

static void put_tensor(random_array *self, fields *out)
{
    const weir__array *array = &self->array;
    int32_t ndim = array->ndim;
    out->length = 0;
    put_place(self, out);
    put_version(self, out);
    put(out, below(self, 8) == 0, 1); /* contiguous */
    put(out, below(self, 8) == 0 ? 1 + below(self, 64) : 0, 1); /* alignment */
    put(out, array->dtype.code, 1);
    put(out, array->dtype.bits, 1);
    put(out, array->dtype.lanes, 2);
    put(out, below(self, 50) != 0, 1);
    put(out, array->strides != NULL, 1);
    if (below(self, 30) == 0) /* with no extents: so it must not look at them */
        ndim = below(self, 2) == 0 ? -1 : WEIR__NDIM_MAX + 1;
    put(out, (uint32_t)ndim, 4);
    for (int32_t i = 0; i < extents_of(ndim); i++) {
        put(out, (uint64_t)self->shape[i], 8);
        put(out, (uint64_t)self->strides[i], 8);
    }
}

/* Whatever `length` says; what is not there is zero. */
typedef struct reader {
    const uint8_t *at, *end;
} reader;

static uint64_t get(reader *self, size_t count)
{
    size_t there = (size_t)(self->end - self->at);
    count = count < there ? count : there;
    uint64_t number = weir__octets_get(self->at, count);
    self->at += count;
    return number;
}

static int64_t *row_of(int32_t count)
{
    int64_t *row = malloc(count > 0 ? (size_t)count * sizeof *row : 1);
    must(row != NULL);
    return row;
}

static void get_version(reader *from, made *out)
{
    out->is_versioned = get(from, 1) != 0;
    out->it.versioned.version.major = (uint32_t)get(from, 4);
    out->it.versioned.version.minor = (uint32_t)get(from, 4);
    out->it.versioned.flags = get(from, 8);
    out->options = (weir_dlpack_import_options)WEIR_DLPACK_IMPORT_INIT;
    out->options.contiguous = get(from, 1) != 0;
    uint64_t alignment = get(from, 1);
    out->options.alignment = alignment == 0 ? 0 : (size_t)1 << (alignment - 1) % 64;
}

static weir_dlpack get_tensor(reader *from, made *out)
{
    weir__dl_tensor tensor;
    foreign_tensor_init(&out->it, 1, 0, NULL, 1, 1);
    tensor.data = (void *)(uintptr_t)get(from, 8);
    tensor.byte_offset = get(from, 8);
    tensor.device.device_type = (int32_t)get(from, 4);
    tensor.device.device_id = (int32_t)get(from, 4);
    get_version(from, out);
    tensor.dtype.code = (uint8_t)get(from, 1);
    tensor.dtype.bits = (uint8_t)get(from, 1);
    tensor.dtype.lanes = (uint16_t)get(from, 2);
    bool has_shape = get(from, 1) != 0, has_strides = get(from, 1) != 0;
    tensor.ndim = (int32_t)get(from, 4);
    int32_t count = extents_of(tensor.ndim);
    out->shape = row_of(count);
    out->strides = row_of(count);
    for (int32_t i = 0; i < count; i++) {
        out->shape[i] = (int64_t)get(from, 8);
        out->strides[i] = (int64_t)get(from, 8);
    }
    tensor.shape = has_shape ? out->shape : NULL;
    tensor.strides = has_strides ? out->strides : NULL;
    out->it.legacy.dl_tensor = out->it.versioned.dl_tensor = tensor;
    return out->is_versioned ? foreign_versioned(&out->it) : foreign_legacy(&out->it);
}

/* Whether the rules allow it, but for what the device and the address have to say. */
static bool may_be_taken(const made *from, const weir__dl_tensor *tensor)
{
    const weir__dl_versioned *it = &from->it.versioned;
    bool is_padded = from->is_versioned && (it->flags & WEIR__DL_SUBBYTE_PADDED) != 0;
    if (from->is_versioned && (it->version.major != 1 || it->flags >= 8))
        return false;
    if (from->is_versioned && it->version.minor >= 2 && tensor->ndim > 0 &&
        tensor->strides == NULL)
        return false;
    if (tensor->ndim < 0 || tensor->ndim > WEIR__NDIM_MAX ||
        (tensor->ndim > 0 && tensor->shape == NULL))
        return false;
    return weir__dtype_check(tensor->dtype, is_padded) == WEIR_OK;
}

/* Claims that it shows what the model says. */
static void must_show(const weir_buffer *buffer, const weir_tensor *seen,
                      const weir__dl_tensor *from)
{
    weir__array array = { from->dtype, from->ndim, from->shape, from->strides };
    model it = model_of(&array);
    must(it.is_possible && seen->ndim == from->ndim);
    for (int32_t i = 0; i < from->ndim; i++)
        must(seen->shape[i] == from->shape[i] &&
             (from->strides == NULL || seen->strides[i] == from->strides[i]));
    if (it.is_empty) {
        must_equal(buffer->size, 0);
        return;
    }
    wide first = (wide)(uintptr_t)from->data + from->byte_offset;
    wide low = first - (-it.lowest + 7) / 8, end = first + (it.highest + 7) / 8;
    must(from->data != NULL && low > 0 && end <= (wide)UINTPTR_MAX);
    must((wide)(uintptr_t)buffer->data == low && (wide)buffer->size == end - low);
    must((wide)seen->byte_offset == first - low);
}

/* Whether nothing speaks against it: then it has to be taken. */
static bool is_sound(const made *from, const weir__dl_tensor *tensor)
{
    if (!may_be_taken(from, tensor))
        return false;
    weir__array array = { tensor->dtype, tensor->ndim, tensor->shape, tensor->strides };
    model it = model_of(&array);
    wide first = (wide)(uintptr_t)tensor->data + tensor->byte_offset;
    weir__dl_device place = tensor->device;
    bool is_here = place.device_type == 1 || place.device_type == 3 ||
                   place.device_type == 13 ||
                   (place.device_type == 12 && place.device_id == 0);
    return is_here && it.is_possible &&
           (it.is_empty ||
            (tensor->data != NULL && first - (-it.lowest + 7) / 8 > 0 &&
             first + (it.highest + 7) / 8 <= (wide)UINTPTR_MAX));
}

static weir_device *importer;

static weir_status try_tensor(const uint8_t *input, size_t length)
{
    made from;
    weir_buffer buffer;
    weir_tensor tensor;
    reader at = { input, input + length };
    weir_dlpack as = get_tensor(&at, &from);
    const weir__dl_tensor *said = tensor_of(as);
    weir_status status =
        weir_dlpack_import(importer, NULL, as, &from.options, &buffer, &tensor);
    if (!from.options.contiguous && from.options.alignment == 0)
        must_equal(status == WEIR_OK, is_sound(&from, said));
    if (status == WEIR_OK) {
        must(may_be_taken(&from, said));
        must_show(&buffer, &tensor, said);
        weir_buffer_reset(&buffer);
        must_ok(weir_device_drain_sync(importer));
    } else {
        must(status == WEIR_INVALID_ARGUMENT || status == WEIR_NOT_SUPPORTED);
        must(buffer.storage == NULL && tensor.shape == NULL);
        must_equal(from.it.deletions, 0);
        weir_dlpack_delete(as);
    }
    must_equal(from.it.deletions, 1);
    free(from.shape);
    free(from.strides);
    return status;
}

static void tensors_are_taken_whole_or_left(void **state)
{
    (void)state;
    static random_array it;
    static fields input;
    uint64_t runs = support_bound("tensors that are imported", 100000, 300000);
    uint64_t taken = 0;
    importer = open_stepped(support_seed(0));
    corpus_begin("dlpack/*.bin", 15, try_tensor);
    for (uint64_t i = 0; i < runs; i++) {
        it.random = support_seed(i);
        make_array(&it);
        put_tensor(&it, &input);
        weir_status status = try_tensor(input.octets, input.length);
        taken += status == WEIR_OK;
        corpus_must_have(status, input.octets, input.length);
    }
    must(taken > runs / 50 && taken < runs / 2);
    close_emulated(importer);
}

int main(int argc, char **argv)
{
    corpus_read_options(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_from_the_edges_are_measured_or_refused),
        cmocka_unit_test(tensors_are_taken_whole_or_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
