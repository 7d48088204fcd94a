/* dlpack_import.c - tensors of other libraries become buffers. Nothing that a tensor
 * says is believed before it was checked, and of another major version nothing is read
 * but what DLPack promises to keep in its place.
 *
 * The tensor is the foreign memory of a storage, whose deleter takes no notice of
 * streams: so it runs when all is done. A tensor of Weir's own is the exception. */
#include <string.h>

#include "buffer_internal.h"
#include "dlpack_internal.h"
#include "internal.h"
#include "pending.h"

#define KNOWN_FLAGS                                                              \
    (WEIR__DL_READ_ONLY | WEIR__DL_IS_COPIED | WEIR__DL_SUBBYTE_PADDED)

/* ---- deleters ---- */

static void delete_legacy(struct DLManagedTensor *tensor)
{
    weir__dl_managed *it = weir__dl_managed_of(tensor);
    if (it->deleter != NULL)
        it->deleter(tensor);
}

static void delete_versioned(struct DLManagedTensorVersioned *tensor)
{
    weir__dl_versioned *it = weir__dl_versioned_of(tensor);
    if (it->deleter != NULL)
        it->deleter(tensor);
}

void weir_dlpack_delete(weir_dlpack tensor)
{
    if (tensor.legacy != NULL)
        delete_legacy(tensor.legacy);
    if (tensor.versioned != NULL)
        delete_versioned(tensor.versioned);
}

static void end_legacy(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    (void)ptr;
    (void)bytes;
    (void)stream;
    delete_legacy(context);
}

static void end_versioned(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    (void)ptr;
    (void)bytes;
    (void)stream;
    delete_versioned(context);
}

static void end_own(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    (void)ptr;
    (void)bytes;
    weir__export_end(context, stream);
}

/* ---- what is taken in ---- */

typedef struct import {
    const weir__dl_tensor *tensor;
    weir__array array;
    weir__span span;
    weir_foreign foreign;   /* what the storage is made of */
    weir__export *own;      /* if Weir made it on the same device */
} import;

static weir_status read_versioned(const weir__dl_versioned *from, import *out)
{
    if (from->version.major != WEIR__DL_MAJOR)
        return weir__fail(WEIR_NOT_SUPPORTED, "the tensor's version is %u.%u; only "
                          "%u.x can be read", (unsigned)from->version.major,
                          (unsigned)from->version.minor, WEIR__DL_MAJOR);
    if ((from->flags & ~KNOWN_FLAGS) != 0)
        return weir__fail(WEIR_NOT_SUPPORTED, "the tensor has flags 0x%llx, and nobody "
                          "knows them all", (unsigned long long)from->flags);
    out->tensor = &from->dl_tensor;
    out->foreign.read_only = (from->flags & WEIR__DL_READ_ONLY) != 0;
    if (from->version.minor >= WEIR__DL_MINOR_STRIDES && out->tensor->ndim > 0 &&
        out->tensor->strides == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "version 1.%u does without strides in "
                          "no array of %d dimensions", (unsigned)from->version.minor,
                          out->tensor->ndim);
    return weir__dtype_check(out->tensor->dtype,
                             (from->flags & WEIR__DL_SUBBYTE_PADDED) != 0);
}

static weir_status read_either(weir_dlpack from, import *out)
{
    if ((from.legacy == NULL) == (from.versioned == NULL))
        return weir__fail(WEIR_INVALID_ARGUMENT, "it takes one tensor, of one kind");
    if (from.versioned != NULL) {
        weir__dl_versioned *it = weir__dl_versioned_of(from.versioned);
        out->own = weir__export_of_versioned(from.versioned);
        out->foreign.deleter = it->deleter != NULL ? end_versioned : NULL;
        out->foreign.context = from.versioned;
        return read_versioned(it, out);
    }
    weir__dl_managed *it = weir__dl_managed_of(from.legacy);
    out->own = weir__export_of(from.legacy);
    out->foreign.deleter = it->deleter != NULL ? end_legacy : NULL;
    out->foreign.context = from.legacy;
    out->tensor = &it->dl_tensor;
    return weir__dtype_check(out->tensor->dtype, false);
}

/* What kind of memory it is, as `device` sees it. */
static weir_status read_place(weir_device *device, int32_t also, import *it)
{
    weir__dl_device place = it->tensor->device;
    switch (place.device_type) {
    case WEIR_DLPACK_CPU: it->foreign.kind = WEIR_MEMORY_HOST; return WEIR_OK;
    case WEIR_DLPACK_CUDA_HOST: it->foreign.kind = WEIR_MEMORY_PINNED; return WEIR_OK;
    case WEIR_DLPACK_CUDA_MANAGED:
        it->foreign.kind = WEIR_MEMORY_MANAGED;
        return WEIR_OK;
    default: break;
    }
    int32_t own = weir__dlpack_type(device), ordinal = weir__dlpack_ordinal(device);
    it->foreign.kind = WEIR_MEMORY_DEVICE;
    if ((place.device_type == own || (also != 0 && place.device_type == also)) &&
        place.device_id == ordinal)
        return WEIR_OK;
    return weir__fail(WEIR_NOT_SUPPORTED, "the tensor is on device (%d, %d), not on "
                      "(%d, %d) or the host", place.device_type, place.device_id, own,
                      ordinal);
}

/* Where its bytes are: from the lowest to the highest. */
static weir_status read_extent(import *it)
{
    const weir__dl_tensor *tensor = it->tensor;
    uintptr_t first, lowest, end;
    it->array = (weir__array){ tensor->dtype, tensor->ndim, tensor->shape,
                               tensor->strides };
    weir_status status = weir__array_measure(&it->array, &it->span);
    if (status != WEIR_OK)
        return status;
    if (it->span.count == 0) {
        it->foreign.ptr = tensor->data;
        return WEIR_OK;
    }
    if (tensor->data == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%lld elements at null",
                          (long long)it->span.count);
    if (__builtin_add_overflow((uintptr_t)tensor->data, tensor->byte_offset, &first) ||
        __builtin_sub_overflow(first, (uintptr_t)-it->span.first, &lowest) ||
        __builtin_add_overflow(first, (uintptr_t)it->span.end, &end) || lowest == 0)
        return weir__fail(WEIR_INVALID_ARGUMENT, "an array at %p + %llu leaves the "
                          "address space", tensor->data,
                          (unsigned long long)tensor->byte_offset);
    it->foreign.ptr = (void *)lowest;
    it->foreign.bytes = end - lowest;
    return WEIR_OK;
}

static weir_status check_wishes(const import *it,
                                const weir_dlpack_import_options *options)
{
    size_t alignment = options->alignment;
    uintptr_t first = (uintptr_t)it->foreign.ptr - (uintptr_t)it->span.first;
    if ((alignment & (alignment - 1)) != 0)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%zu is no power of two", alignment);
    if (options->contiguous && !weir__array_is_contiguous(&it->array))
        return weir__fail(WEIR_NOT_SUPPORTED, "the array does not lie row by row "
                          "without gaps");
    if (alignment != 0 && it->span.count != 0 && first % alignment != 0)
        return weir__fail(WEIR_NOT_SUPPORTED, "the first element is at %p, and not "
                          "aligned to %zu", (void *)first, alignment);
    return WEIR_OK;
}

static weir_status read_import(weir_device *device, weir_dlpack from,
                               const weir_dlpack_import_options *options, import *out)
{
    out->own = NULL;
    out->foreign = (weir_foreign)WEIR_FOREIGN_INIT;
    out->foreign.ignores_stream = true;
    weir_status status = read_either(from, out);
    if (status == WEIR_OK)
        status = read_place(device, options->device_type, out);
    if (status == WEIR_OK)
        status = read_extent(out);
    if (status == WEIR_OK)
        status = check_wishes(out, options);
    return status;
}

/* ---- the buffer ---- */

/* Weir's own deleter can be told a stream of the same device. */
static void use_own_deleter(weir_device *device, import *it)
{
    if (it->own != NULL && it->own->storage != NULL &&
        it->own->storage->device == device) {
        it->foreign.deleter = end_own;
        it->foreign.context = it->own;
        it->foreign.ignores_stream = false;
    } else {
        it->own = NULL;
    }
}

/* The life of `stream`: often the one that an export of Weir's knows already. */
static weir_status find_holder(weir_device *device, weir_stream stream,
                               const import *it, weir__holder *out)
{
    if (it->own != NULL) {
        *out = it->own->holder;
        if (weir__holder_is_on(device->order, out, stream))
            return WEIR_OK;
    }
    return weir__holder_make(device, stream, out);
}

static void tell_tensor(const import *it, weir_storage *storage, weir_tensor *out)
{
    int64_t *dimensions = weir__storage_extra(storage);
    weir__array_write(&it->array, dimensions);
    *out = (weir_tensor){
        .dtype = { it->array.dtype.code, it->array.dtype.bits, it->array.dtype.lanes },
        .ndim = it->array.ndim,
        .shape = dimensions,
        .strides = dimensions + it->array.ndim,
        .byte_offset = (size_t)-it->span.first,
    };
}

static weir_status check_arguments(const weir_device *device, weir_buffer *out,
                                   weir_tensor *tensor)
{
    if (out != NULL)
        *out = (weir_buffer){ .data = NULL };
    if (tensor != NULL)
        *tensor = (weir_tensor){ .ndim = 0 };
    weir_status status = weir__enter();
    if (status == WEIR_OK && (device == NULL || out == NULL || tensor == NULL))
        status = weir__fail(WEIR_INVALID_ARGUMENT, "%s is null",
                            device == NULL ? "the device"
                            : out == NULL  ? "out"
                                           : "the tensor to fill");
    return status;
}

weir_status weir_dlpack_import(weir_device *device, weir_stream stream,
                               weir_dlpack from,
                               const weir_dlpack_import_options *options,
                               weir_buffer *out, weir_tensor *tensor)
{
    weir_dlpack_import_options wishes;
    import it;
    weir__holder holder;
    weir_storage *storage;
    weir_status status = check_arguments(device, out, tensor);
    if (status == WEIR_OK)
        status = weir__read_options(options, &wishes, sizeof wishes, "import options");
    if (status == WEIR_OK)
        status = read_import(device, from, &wishes, &it);
    if (status != WEIR_OK)
        return status;
    weir__pending_look(device);
    use_own_deleter(device, &it);
    status = find_holder(device, stream, &it, &holder);
    if (status == WEIR_OK)
        status = weir__storage_of_foreign(
            device, &it.foreign, holder, 2 * (size_t)it.array.ndim * sizeof(int64_t),
            &storage);
    if (status != WEIR_OK)
        return status;
    if (it.own == NULL)
        weir__storage_keep_device(storage); /* else what the tensor shows does */
    tell_tensor(&it, storage, tensor);
    *out = weir__buffer_of(storage, NULL, holder);
    return WEIR_OK;
}
