/* support_dlpack.c - see support_dlpack.h. */
#include "support_dlpack.h"

#include <string.h>

/* ---- asking ---- */

int64_t number_of(weir_stream stream)
{
    return (int64_t)(uintptr_t)stream;
}

weir_dlpack_request ask(const int64_t *stream, weir_access access)
{
    static const uint32_t version[] = { 1, 0 };
    weir_dlpack_request it = WEIR_DLPACK_REQUEST_INIT;
    it.max_version = version;
    it.stream = stream;
    it.access = access;
    return it;
}

weir_tensor bytes_of(const weir_buffer *buffer, int64_t *extent)
{
    *extent = (int64_t)buffer->size;
    return (weir_tensor){ { WEIR_DTYPE_UINT, 8, 1 }, 1, extent, NULL, 0 };
}

weir_dlpack must_export(weir_buffer *buffer, const weir_dlpack_request *request)
{
    int64_t extent;
    weir_dlpack out;
    weir_tensor tensor = bytes_of(buffer, &extent);
    must_ok(weir_dlpack_export(buffer, &tensor, request, &out));
    must((out.legacy == NULL) != (out.versioned == NULL));
    return out;
}

void must_not_export(weir_status status, weir_buffer *buffer,
                     const weir_dlpack_request *request)
{
    int64_t extent;
    weir_dlpack out;
    memset(&out, 0x55, sizeof out);
    weir_tensor tensor = bytes_of(buffer, &extent);
    must_answer(status, weir_dlpack_export(buffer, &tensor, request, &out));
    must(out.legacy == NULL && out.versioned == NULL);
}

/* ---- looking ---- */

const weir__dl_tensor *tensor_of(weir_dlpack it)
{
    return it.legacy != NULL ? &weir__dl_managed_of(it.legacy)->dl_tensor
                             : &weir__dl_versioned_of(it.versioned)->dl_tensor;
}

void *data_of(weir_dlpack it)
{
    must_equal(tensor_of(it)->byte_offset, 0);
    return tensor_of(it)->data;
}

uint64_t flags_of(weir_dlpack it)
{
    must(it.versioned != NULL);
    return weir__dl_versioned_of(it.versioned)->flags;
}

/* ---- the producer ---- */

static void count_deletion(foreign_tensor *self)
{
    self->deletions++;
    if (self->device == NULL)
        return;
    bool is_done;
    must_ok(weir_stream_query(self->device, self->user, &is_done));
    must(is_done);
}

static void delete_legacy(struct DLManagedTensor *tensor)
{
    count_deletion(weir__dl_managed_of(tensor)->manager_ctx);
}

static void delete_versioned(struct DLManagedTensorVersioned *tensor)
{
    count_deletion(weir__dl_versioned_of(tensor)->manager_ctx);
}

void foreign_tensor_init(foreign_tensor *self, int32_t device_type, int32_t device_id,
                         void *data, int64_t rows, int64_t columns)
{
    *self = (foreign_tensor){ .shape = { rows, columns }, .strides = { columns, 1 } };
    weir__dl_tensor tensor = {
        .data = data,
        .device = { device_type, device_id },
        .ndim = 2,
        .dtype = { WEIR_DTYPE_UINT, 8, 1 },
        .shape = self->shape,
        .strides = self->strides,
    };
    self->legacy = (weir__dl_managed){ tensor, self, delete_legacy };
    self->versioned =
        (weir__dl_versioned){ { 1, 3 }, self, delete_versioned, 0, tensor };
}

weir_dlpack foreign_legacy(foreign_tensor *self)
{
    return (weir_dlpack){ (struct DLManagedTensor *)(void *)&self->legacy, NULL };
}

weir_dlpack foreign_versioned(foreign_tensor *self)
{
    return (weir_dlpack){
        NULL, (struct DLManagedTensorVersioned *)(void *)&self->versioned
    };
}

int32_t device_type_of(weir_device *device)
{
    weir_device_properties it = { .struct_size = sizeof it };
    must_ok(weir_device_get_properties(device, &it));
    return strncmp(it.name, "cuda", 4) == 0 ? WEIR_DLPACK_CUDA : WEIR_DLPACK_EXT_DEV;
}

bool is_filled(const void *ptr, uint8_t value, size_t bytes)
{
    const uint8_t *at = ptr;
    for (size_t i = 0; i < bytes; i++) {
        if (at[i] != value)
            return false;
    }
    return true;
}
