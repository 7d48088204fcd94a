/* dlpack_request.c - what a consumer asks for, read and checked as a whole: which
 * bytes, in which struct, where, and who waits for whom. Nothing here changes
 * anything. */
#include "buffer_internal.h"
#include "dlpack_internal.h"
#include "internal.h"

/* ---- places ---- */

static weir_dlpack_place place_of(const weir_device *device, weir_memory_kind kind)
{
    switch (kind) {
    case WEIR_MEMORY_MANAGED: return (weir_dlpack_place){ WEIR_DLPACK_CUDA_MANAGED, 0 };
    case WEIR_MEMORY_PINNED: return (weir_dlpack_place){ WEIR_DLPACK_CUDA_HOST, 0 };
    case WEIR_MEMORY_HOST: return (weir_dlpack_place){ WEIR_DLPACK_CPU, 0 };
    case WEIR_MEMORY_DEVICE: break;
    }
    return (weir_dlpack_place){ weir__dlpack_type(device),
                                weir__dlpack_ordinal(device) };
}

static weir_status find_source(const weir_buffer *buffer, weir__source *out)
{
    const weir_storage *storage = buffer->storage;
    if (storage != NULL) {
        *out = (weir__source){ storage->device, storage->kind, storage->read_only };
        return WEIR_OK;
    }
    if (buffer->data != NULL || buffer->resource == NULL)
        return weir__buffer_owns(buffer, "to be exported");
    *out = (weir__source){ weir_resource_device(buffer->resource),
                           weir__memory_kind(buffer->resource), false };
    return WEIR_OK;
}

weir_status weir_dlpack_device(const weir_buffer *buffer, weir_dlpack_place *out)
{
    weir__source from = { NULL, WEIR_MEMORY_DEVICE, false };
    if (out != NULL)
        *out = (weir_dlpack_place){ 0, 0 };
    weir_status status = weir__buffer_enter(buffer, out);
    if (status == WEIR_OK)
        status = find_source(buffer, &from);
    if (status == WEIR_OK)
        *out = place_of(from.device, from.kind);
    return status;
}

/* ---- what is asked for ---- */

static weir_status read_asked(const weir_dlpack_request *from, weir_dlpack_request *out)
{
    if (from == NULL) {
        *out = (weir_dlpack_request)WEIR_DLPACK_REQUEST_INIT;
        return WEIR_OK;
    }
    weir_status status = weir__read_options(from, out, sizeof *out, "a request");
    if (status != WEIR_OK)
        return status;
    if (out->access != WEIR_READ && out->access != WEIR_WRITE)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%d is no access", (int)out->access);
    if ((unsigned)out->copy > WEIR_COPY_NEVER)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%d is no way to copy",
                          (int)out->copy);
    if (out->stream != NULL && (*out->stream == 0 || *out->stream < -1))
        return weir__fail(WEIR_INVALID_ARGUMENT, "%lld is no stream: -1 is none, 1 the "
                          "legacy one, 2 the thread's own, above 2 come handles",
                          (long long)*out->stream);
    return WEIR_OK;
}

static weir_status read_tensor(const weir_buffer *buffer, const weir_tensor *tensor,
                               weir__request *out)
{
    out->array = (weir__array){ weir__dtype_of(tensor->dtype), tensor->ndim,
                                tensor->shape, tensor->strides };
    out->byte_offset = tensor->byte_offset;
    weir_status status = weir__dtype_check(out->array.dtype, false);
    if (status == WEIR_OK)
        status = weir__array_measure(&out->array, &out->span);
    if (status == WEIR_OK)
        status = weir__span_check(&out->span, out->byte_offset, buffer->size);
    return status;
}

/* Which struct, and whether it can say what has to be said. */
static weir_status choose_version(weir__request *it)
{
    const uint32_t *version = it->asked.max_version;
    it->is_versioned = version != NULL && version[0] >= WEIR__DL_MAJOR;
    it->access = it->from.read_only ? WEIR_READ : it->asked.access;
    if (!it->is_versioned && it->access == WEIR_READ)
        return weir__fail(WEIR_NOT_SUPPORTED, "to read only is more than a tensor "
                          "without a version can say");
    return WEIR_OK;
}

/* Where the tensor is to be, and whether the bytes have to be copied for it. */
static weir_status choose_place(weir__request *it)
{
    weir_dlpack_place own = place_of(it->from.device, it->from.kind);
    bool is_device = it->from.kind == WEIR_MEMORY_DEVICE;
    if (is_device && it->asked.device_type != 0)
        own.type = it->asked.device_type;
    it->place = own;
    it->copies = it->asked.copy == WEIR_COPY_ALWAYS;
    if (it->asked.device == NULL)
        return WEIR_OK;
    it->place = *it->asked.device;
    if (it->place.type == own.type && it->place.id == own.id)
        return WEIR_OK;
    if (it->place.type != WEIR_DLPACK_CPU || it->place.id != 0)
        return weir__fail(WEIR_NOT_SUPPORTED, "what is on device (%d, %d) can be had "
                          "there and on the CPU (1, 0), not on (%d, %d)", own.type,
                          own.id, it->place.type, it->place.id);
    if (is_device && it->asked.copy == WEIR_COPY_NEVER)
        return weir__fail(WEIR_NOT_SUPPORTED, "the host cannot reach memory of device "
                          "(%d, %d) without a copy", own.type, own.id);
    it->copies = it->copies || is_device;
    return WEIR_OK;
}

/* Who is to wait. A stream that comes with the host as the place is not looked at. */
static weir_status choose_consumer(weir__request *it)
{
    const int64_t *stream = it->asked.stream;
    bool is_host = it->place.type == WEIR_DLPACK_CPU;
    if (it->from.kind == WEIR_MEMORY_HOST && stream != NULL && *stream != -1)
        return weir__fail(WEIR_INVALID_ARGUMENT, "memory of the host has no streams: "
                          "none or -1 can be asked for, not %lld", (long long)*stream);
    it->stream = NULL;
    if (stream != NULL && *stream == -1)
        it->consumer = WEIR__CONSUMER_UNTOLD;
    else if (is_host || (stream == NULL && it->from.kind != WEIR_MEMORY_DEVICE))
        it->consumer = WEIR__CONSUMER_HOST;
    else
        it->consumer = WEIR__CONSUMER_STREAM;
    if (it->consumer == WEIR__CONSUMER_STREAM && stream != NULL)
        it->stream = (weir_stream)(uintptr_t)*stream; /* 1 and 2 are ours, too */
    return WEIR_OK;
}

weir_status weir__request_read(const weir_buffer *buffer, const weir_tensor *tensor,
                               const weir_dlpack_request *from, weir__request *out)
{
    weir_status status = read_asked(from, &out->asked);
    if (status == WEIR_OK)
        status = find_source(buffer, &out->from);
    if (status == WEIR_OK)
        status = read_tensor(buffer, tensor, out);
    if (status == WEIR_OK)
        status = choose_version(out);
    if (status == WEIR_OK)
        status = choose_place(out);
    if (status == WEIR_OK)
        status = choose_consumer(out);
    return status;
}
