/* test_dlpack_import.c - imports: what is refused and left to its owner, what a
 * buffer shows of an odd array, what is read only, and tensors of Weir's own that
 * come back. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "support_buffer.h"
#include "support_dlpack.h"

static weir_status try_import(weir_device *device, weir_dlpack from,
                              const weir_dlpack_import_options *options)
{
    weir_buffer out;
    weir_tensor tensor;
    memset(&out, 0x55, sizeof out);
    memset(&tensor, 0x55, sizeof tensor);
    weir_status status = weir_dlpack_import(device, NULL, from, options, &out, &tensor);
    if (status == WEIR_OK) {
        weir_buffer_reset(&out);
        must_ok(weir_device_drain_sync(device));
    } else {
        must_be_empty(&out);
        must(out.resource == NULL && tensor.shape == NULL && tensor.ndim == 0);
    }
    return status;
}

/* Both kinds are refused, and neither deleter is called. */
static void must_refuse(weir_device *device, weir_status status, foreign_tensor *from)
{
    from->legacy.dl_tensor = from->versioned.dl_tensor;
    must_answer(status, try_import(device, foreign_versioned(from), NULL));
    must_answer(status, try_import(device, foreign_legacy(from), NULL));
    must_equal(from->deletions, 0);
}

static foreign_tensor bytes_on(int32_t type, int32_t id, foreign_tensor *self)
{
    static uint8_t bytes[64];
    foreign_tensor_init(self, type, id, bytes + 16, 2, 8);
    return *self;
}

static void what_contradicts_itself_is_refused(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    foreign_tensor from;
    int64_t shape[65];
    weir__dl_tensor *tensor = &from.versioned.dl_tensor;
    bytes_on(WEIR_DLPACK_CPU, 0, &from);
    from.shape[0] = -1;
    must_refuse(it.device, WEIR_INVALID_ARGUMENT, &from);
    bytes_on(WEIR_DLPACK_CPU, 0, &from);
    tensor->ndim = -1;
    must_refuse(it.device, WEIR_INVALID_ARGUMENT, &from);
    for (size_t i = 0; i < 65; i++)
        shape[i] = 1;
    tensor->ndim = 65;
    tensor->shape = tensor->strides = shape;
    must_refuse(it.device, WEIR_INVALID_ARGUMENT, &from);
    bytes_on(WEIR_DLPACK_CPU, 0, &from);
    tensor->shape = NULL;
    must_refuse(it.device, WEIR_INVALID_ARGUMENT, &from);
    bytes_on(WEIR_DLPACK_CPU, 0, &from);
    tensor->data = NULL;
    tensor->byte_offset = 16; /* which makes it no better */
    must_refuse(it.device, WEIR_INVALID_ARGUMENT, &from);
    bytes_on(WEIR_DLPACK_CPU, 0, &from);
    tensor->byte_offset = UINT64_MAX - 15; /* beyond the last address */
    must_refuse(it.device, WEIR_INVALID_ARGUMENT, &from);
    bytes_on(WEIR_DLPACK_CPU, 0, &from);
    from.strides[0] = -(int64_t)(uintptr_t)tensor->data - 1; /* before the first */
    must_refuse(it.device, WEIR_INVALID_ARGUMENT, &from);
    buffer_scene_close(&it);
}

static void what_lies_elsewhere_is_refused(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    foreign_tensor from;
    int32_t own = device_type_of(it.device);
    int32_t other = own == WEIR_DLPACK_CUDA ? WEIR_DLPACK_EXT_DEV : WEIR_DLPACK_CUDA;
    const int32_t refused[][2] = {
        { own, 1 }, { own, -1 }, { other, 0 }, { 0, 0 }, { 4, 0 }, { 7, 0 }, { 8, 0 },
        { 10, 0 }, { 11, 0 }, { -1, 0 }, { INT32_MAX, 0 },
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        bytes_on(refused[i][0], refused[i][1], &from);
        must_refuse(it.device, WEIR_NOT_SUPPORTED, &from);
    }
    weir_dlpack_import_options options = WEIR_DLPACK_IMPORT_INIT;
    options.device_type = 10;
    bytes_on(10, 0, &from);
    must_ok(try_import(it.device, foreign_versioned(&from), &options));
    must_equal(from.deletions, 1);
    bytes_on(10, 1, &from);
    must_answer(WEIR_NOT_SUPPORTED,
                try_import(it.device, foreign_versioned(&from), &options));
    buffer_scene_close(&it);
}

/* Of another major version there is nothing but a version, a context and a deleter,
 * though the rest may look like that of ours. */
static void of_another_version_only_the_deleter_is_touched(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    const uint32_t majors[] = { 0, 2, UINT32_MAX };
    size_t bytes = offsetof(weir__dl_versioned, flags);
    foreign_tensor from;
    for (size_t i = 0; i < 3; i++) {
        weir__dl_versioned *head = malloc(bytes);
        must(head != NULL);
        bytes_on(WEIR_DLPACK_CPU, 0, &from);
        from.versioned.version.major = majors[i];
        must_answer(WEIR_NOT_SUPPORTED,
                    try_import(it.device, foreign_versioned(&from), NULL));
        memcpy((void *)head, &from.versioned, bytes);
        weir_dlpack tensor = { NULL, (struct DLManagedTensorVersioned *)(void *)head };
        must_answer(WEIR_NOT_SUPPORTED, try_import(it.device, tensor, NULL));
        must_equal(from.deletions, 0);
        weir_dlpack_delete(tensor);
        must_equal(from.deletions, 1);
        free(head);
    }
    buffer_scene_close(&it);
}

static void flags_are_known_or_refused(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    foreign_tensor from;
    for (unsigned bit = 0; bit < 64; bit++) {
        bytes_on(WEIR_DLPACK_CPU, 0, &from);
        from.versioned.flags = UINT64_C(1) << bit;
        must_answer(bit < 3 ? WEIR_OK : WEIR_NOT_SUPPORTED,
                    try_import(it.device, foreign_versioned(&from), NULL));
    }
    bytes_on(WEIR_DLPACK_CPU, 0, &from);
    from.versioned.dl_tensor.dtype = (weir__dl_dtype){ 17, 4, 1 };
    must_ok(try_import(it.device, foreign_versioned(&from), NULL));
    from.versioned.flags = WEIR__DL_SUBBYTE_PADDED;
    must_answer(WEIR_NOT_SUPPORTED,
                try_import(it.device, foreign_versioned(&from), NULL));
    buffer_scene_close(&it);
}

static void wishes_are_kept_or_refused(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    static _Alignas(64) uint8_t bytes[256];
    foreign_tensor from;
    weir_dlpack_import_options options = WEIR_DLPACK_IMPORT_INIT;
    foreign_tensor_init(&from, WEIR_DLPACK_CPU, 0, bytes, 2, 8);
    from.versioned.dl_tensor.byte_offset = 96; /* a multiple of 32, and no more */
    const size_t alignments[] = { 0, 1, 32, 64, 4096 };
    for (size_t i = 0; i < 5; i++) {
        options.alignment = alignments[i];
        must_answer(i < 3 ? WEIR_OK : WEIR_NOT_SUPPORTED,
                    try_import(it.device, foreign_versioned(&from), &options));
    }
    options.alignment = 48;
    must_answer(WEIR_INVALID_ARGUMENT,
                try_import(it.device, foreign_versioned(&from), &options));
    options.alignment = 4096;
    from.shape[0] = 0; /* no elements to be aligned */
    must_ok(try_import(it.device, foreign_versioned(&from), &options));
    options.struct_size = sizeof options.struct_size - 1;
    must_answer(WEIR_INVALID_ARGUMENT,
                try_import(it.device, foreign_versioned(&from), &options));
    buffer_scene_close(&it);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    foreign_tensor from;
    weir_buffer out;
    weir_tensor tensor;
    bytes_on(WEIR_DLPACK_CPU, 0, &from);
    weir_dlpack none = { NULL, NULL }, both = foreign_legacy(&from);
    both.versioned = foreign_versioned(&from).versioned;
    const weir_status wrong = WEIR_INVALID_ARGUMENT;
    must_answer(wrong, try_import(it.device, none, NULL));
    must_answer(wrong, try_import(it.device, both, NULL));
    must_answer(wrong, try_import(NULL, foreign_legacy(&from), NULL));
    must_answer(wrong, weir_dlpack_import(it.device, NULL, foreign_legacy(&from), NULL,
                                          NULL, &tensor));
    must_answer(wrong, weir_dlpack_import(it.device, NULL, foreign_legacy(&from), NULL,
                                          &out, NULL));
    must_be_empty(&out);
    must_equal(from.deletions, 0);
    buffer_scene_close(&it);
}

/* With null data or without; their deleter runs all the same, once. */
static void arrays_without_elements_are_taken(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    foreign_tensor from;
    static char somewhere;
    for (int i = 0; i < 2; i++) {
        weir_buffer out;
        weir_tensor tensor;
        foreign_tensor_init(&from, WEIR_DLPACK_CPU, 0, i == 0 ? NULL : &somewhere, 0,
                            INT64_MAX);
        from.versioned.dl_tensor.strides = from.strides;
        must_ok(weir_dlpack_import(it.device, it.a, foreign_versioned(&from), NULL,
                                   &out, &tensor));
        must(out.size == 0 && out.storage != NULL && tensor.shape[1] == INT64_MAX);
        weir_dlpack_request request = ask(NULL, WEIR_READ);
        weir_dlpack again = must_export(&out, &request);
        must(data_of(again) == NULL);
        weir_buffer_reset(&out);
        must_ok(weir_device_drain_sync(it.device));
        must_equal(from.deletions, 1);
        weir_dlpack_delete(again);
    }
    buffer_scene_close(&it);
}

static void what_is_read_only_stays_so(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    foreign_tensor from;
    weir_buffer out;
    weir_tensor tensor;
    bytes_on(WEIR_DLPACK_CPU, 0, &from);
    from.versioned.flags = WEIR__DL_READ_ONLY;
    must_ok(weir_dlpack_import(it.device, NULL, foreign_versioned(&from), NULL, &out,
                               &tensor));
    must(properties_of(&out).read_only);
    weir_dlpack_request request = ask(NULL, WEIR_WRITE);
    weir_dlpack x = must_export(&out, &request);
    must_equal(flags_of(x), WEIR__DL_READ_ONLY);
    must_not_export(WEIR_NOT_SUPPORTED, &out, NULL); /* an old one cannot say so */
    weir_dlpack_delete(x);
    weir_buffer_reset(&out);
    must_ok(weir_device_drain_sync(it.device));
    must_equal(from.deletions, 1);
    buffer_scene_close(&it);
}

/* Memory of the host, exported by one device and imported by another, whose streams
 * mean nothing to the first. */
static void another_device_may_import_what_is_the_hosts(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_device *other = open_with("emulated:1", &options);
    weir_stream stream = make_stream(other, WEIR_STREAM_NON_BLOCKING);
    weir_resource *mr;
    weir_buffer buffer, import;
    weir_tensor tensor;
    must_ok(weir_resource_open(it.device, "system", &mr));
    must_ok(weir_buffer_allocate(mr, it.a, KIB, 64, &buffer));
    weir_dlpack x = must_export(&buffer, NULL);
    must_ok(weir_dlpack_import(other, stream, x, NULL, &import, &tensor));
    must(properties_of(&import).device == other);
    weir_buffer_reset(&buffer);
    must_ok(weir_fill(other, stream, import.data, 1, KIB));
    weir_buffer_reset(&import);
    must_ok(weir_device_drain_sync(other));
    must_equal(statistics_of(mr).out_bytes, 0);
    weir_resource_unref(mr);
    end_stream(other, stream);
    close_emulated(other);
    buffer_scene_close(&it);
}

/* One of other options cannot be opened beside it. */
static bool is_open(const char *name)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.memory_bytes = 64 * MIB;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    weir_device *device;
    weir_status status = weir_device_open(name, &options, &device);
    if (status != WEIR_OK)
        must_answer(WEIR_INVALID_ARGUMENT, status);
    weir_device_unref(device);
    return status != WEIR_OK;
}

/* Nothing else does: not who made the tensor, nor its resource if that was Weir. */
static void an_import_keeps_its_device(void **state)
{
    (void)state;
    for (int is_own = 0; is_own < 2; is_own++) {
        weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
        weir_device *device = open_with("emulated:1", &options);
        foreign_tensor from;
        weir_resource *pool;
        weir_buffer buffer, import;
        weir_tensor tensor;
        bytes_on(WEIR_DLPACK_CPU, 0, &from);
        weir_dlpack x = foreign_versioned(&from);
        must_ok(weir_resource_open(device, "pool/device", &pool));
        must_ok(weir_buffer_allocate(pool, NULL, KIB, 256, &buffer));
        if (is_own)
            x = must_export(&buffer, NULL);
        must_ok(weir_dlpack_import(device, NULL, x, NULL, &import, &tensor));
        weir_buffer_reset(&buffer);
        weir_resource_unref(pool);
        weir_device_unref(device);
        must(is_open("emulated:1"));
        must_equal(from.deletions, 0);
        weir_buffer_reset(&import);
        device = open_with("emulated:1", &options); /* where the end may be put off */
        must_ok(weir_device_drain_sync(device));
        weir_device_unref(device);
        must(!is_open("emulated:1"));
        must_equal(from.deletions, !is_own);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_contradicts_itself_is_refused),
        cmocka_unit_test(what_lies_elsewhere_is_refused),
        cmocka_unit_test(of_another_version_only_the_deleter_is_touched),
        cmocka_unit_test(flags_are_known_or_refused),
        cmocka_unit_test(wishes_are_kept_or_refused),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(arrays_without_elements_are_taken),
        cmocka_unit_test(what_is_read_only_stays_so),
        cmocka_unit_test(another_device_may_import_what_is_the_hosts),
        cmocka_unit_test(an_import_keeps_its_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
