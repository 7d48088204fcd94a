/* check_dlpack.c - the checklist's lines about exports and imports by DLPack: who keeps
 * the bytes, who waits for whom, what a tensor says. What is asked for is in
 * check_dlpack_asked.c, what two sides own in check_dlpack_owners.c. */
#include "support_checklist.h"
#include "support_dlpack.h"

#include <dlfcn.h>
#include <string.h>

#define BYTES ((size_t)4096)

static weir_buffer filled_buffer(checklist_stage *it, weir_stream stream, uint64_t key)
{
    weir_buffer buffer;
    must_ok(weir_buffer_allocate(it->mr, stream, BYTES, 256, &buffer));
    stamp(it->device, stream, buffer.data, BYTES, key);
    return buffer;
}

static size_t out_bytes(const checklist_stage *it)
{
    return (size_t)statistics_of(it->mr).out_bytes;
}

/* ---- A: who keeps the bytes ---- */

static void a1_an_export_is_a_handle_of_its_own(void **state)
{
    (void)state;
    _Static_assert(sizeof(weir_buffer) == 64, "it gained no member");
    checklist_stage it = checklist_begin();
    weir_buffer buffer = filled_buffer(&it, it.a, 1), before = buffer;
    weir_dlpack x = must_export(&buffer, NULL);
    must(memcmp(&before, &buffer, sizeof buffer) == 0);
    weir_dlpack y = must_export(&buffer, NULL);
    must(x.legacy != NULL && y.legacy != NULL && x.legacy != y.legacy);
    must(weir__dl_managed_of(x.legacy)->deleter != NULL);
    weir_dlpack_delete(x);
    weir_dlpack_delete(y);
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

static void a2_an_export_keeps_the_bytes(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    int64_t to = number_of(it.b);
    weir_dlpack_request request = ask(&to, WEIR_READ);
    weir_buffer buffer = filled_buffer(&it, it.a, 2);
    weir_dlpack x = must_export(&buffer, &request);
    weir_buffer_reset(&buffer);
    must_equal(out_bytes(&it), BYTES);
    weir_buffer other = filled_buffer(&it, it.a, 3); /* lies elsewhere */
    check_stamp(it.device, it.b, data_of(x), BYTES, 2);
    weir_dlpack_delete(x);
    must_equal(out_bytes(&it), BYTES);
    weir_buffer_reset(&other);
    must_equal(out_bytes(&it), 0);
    checklist_end(&it);
}

static void a3_the_exported_shape_stays_put(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = filled_buffer(&it, it.a, 1);
    int64_t shape[] = { 2, 3 }, strides[] = { -5, 7 };
    weir_tensor tensor = { { WEIR_DTYPE_FLOAT, 32, 1 }, 2, shape, strides, 400 };
    weir_dlpack x;
    must_ok(weir_dlpack_export(&buffer, &tensor, NULL, &x));
    const weir__dl_tensor *seen = tensor_of(x);
    const int64_t *where = seen->shape;
    memset(shape, 0x55, sizeof shape);
    memset(strides, 0x55, sizeof strides);
    void *first = (char *)buffer.data + 400;
    weir_buffer_reset(&buffer);
    must(seen->shape == where && where[0] == 2 && where[1] == 3);
    must(seen->strides[0] == -5 && seen->strides[1] == 7 && data_of(x) == first);
    weir_dlpack_delete(x);
    checklist_end(&it);
}

static void a4_all_holders_share_one_count(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = filled_buffer(&it, it.a, 1), copy, slice;
    must_ok(weir_buffer_share(&buffer, &copy));
    must_ok(weir_buffer_slice(&buffer, 256, 512, &slice));
    weir_dlpack x = must_export(&slice, NULL), y = must_export(&copy, NULL);
    must(data_of(x) == (char *)buffer.data + 256 && data_of(y) == buffer.data);
    must_equal(tensor_of(x)->shape[0], 512);
    weir_buffer_reset(&buffer);
    weir_dlpack_delete(y);
    weir_buffer_reset(&slice);
    weir_buffer_reset(&copy);
    must_equal(out_bytes(&it), BYTES);
    weir_dlpack_delete(x);
    must_equal(out_bytes(&it), 0);
    checklist_end(&it);
}

static void a5_an_import_deletes_once(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    void *ptr = take(it.mr, it.a, BYTES);
    int32_t type = device_type_of(it.device);
    for (int versioned = 0; versioned < 2; versioned++) {
        foreign_tensor from;
        weir_buffer x, y, z;
        weir_tensor tensor;
        foreign_tensor_init(&from, type, 0, ptr, 2, 128);
        must_ok(weir_dlpack_import(it.device, it.a, versioned ? foreign_versioned(&from)
                                                              : foreign_legacy(&from),
                                   NULL, &x, &tensor));
        must_ok(weir_buffer_share(&x, &y));
        must_ok(weir_buffer_slice(&x, 100, 50, &z));
        weir_buffer_reset(&x);
        weir_buffer_reset(&y);
        must_equal(from.deletions, 0);
        weir_buffer_reset(&z);
        must_ok(weir_device_drain_sync(it.device));
        must_equal(from.deletions, 1);
    }
    give(it.mr, it.a, ptr, BYTES);
    checklist_end(&it);
}

static void a5_an_import_deletes_after_its_uses(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    void *ptr = take(it.mr, it.a, BYTES);
    foreign_tensor from;
    weir_buffer x;
    weir_tensor tensor;
    foreign_tensor_init(&from, device_type_of(it.device), 0, ptr, 2, 128);
    from.device = it.device;
    from.user = it.b;
    must_ok(weir_dlpack_import(it.device, it.a, foreign_versioned(&from), NULL, &x,
                               &tensor));
    must_ok(weir_stream_wait(it.device, it.b, it.a));
    uint64_t gate = checklist_hold(it.device, it.b);
    stamp(it.device, it.b, x.data, x.size, 4);
    must_ok(weir_buffer_use(&x, it.b, WEIR_WRITE));
    weir_buffer_reset(&x);
    must_equal(from.deletions, 0);
    checklist_let_go(it.device, gate);
    must_ok(weir_device_drain_sync(it.device));
    must_equal(from.deletions, 1);
    give(it.mr, it.a, ptr, BYTES);
    checklist_end(&it);
}

static void a8_a_null_deleter_is_tolerated(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    static char bytes[64];
    foreign_tensor from;
    weir_buffer x, y;
    weir_tensor tensor;
    foreign_tensor_init(&from, WEIR_DLPACK_CPU, 0, bytes, 2, 32);
    from.legacy.deleter = NULL;
    from.versioned.deleter = NULL;
    must_ok(weir_dlpack_import(it.device, NULL, foreign_legacy(&from), NULL, &x,
                               &tensor));
    must_ok(weir_dlpack_import(it.device, NULL, foreign_versioned(&from), NULL, &y,
                               &tensor));
    must(x.data == bytes && y.data == bytes);
    weir_buffer_reset(&x);
    weir_buffer_reset(&y);
    weir_dlpack_delete(foreign_legacy(&from));
    weir_dlpack_delete(foreign_versioned(&from));
    must_equal(from.deletions, 0);
    checklist_end(&it);
}

/* ---- A: who waits for whom ---- */

static void a9_export_for_reading_waits_for_writers(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    int64_t to = number_of(it.b);
    weir_dlpack_request request = ask(&to, WEIR_READ);
    weir_buffer buffer;
    must_ok(weir_buffer_allocate(it.mr, it.a, BYTES, 256, &buffer));
    uint64_t gate = checklist_hold(it.device, it.a);
    stamp(it.device, it.a, buffer.data, BYTES, 1);
    weir_dlpack x = must_export(&buffer, &request);
    check_stamp(it.device, it.b, data_of(x), BYTES, 1);
    must_be_held(it.device, it.b);
    checklist_let_go(it.device, gate);
    must_not_be_held(it.device, it.b);
    /* And for those who said so. */
    must_ok(weir_buffer_wait(&buffer, it.c, WEIR_WRITE));
    must_ok(weir_stream_wait(it.device, it.c, it.b));
    gate = checklist_hold(it.device, it.c);
    stamp(it.device, it.c, buffer.data, BYTES, 2);
    must_ok(weir_buffer_use(&buffer, it.c, WEIR_WRITE));
    weir_dlpack y = must_export(&buffer, &request);
    check_stamp(it.device, it.b, data_of(y), BYTES, 2);
    must_be_held(it.device, it.b);
    checklist_let_go(it.device, gate);
    weir_dlpack_delete(x);
    weir_dlpack_delete(y);
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

/* A reader on c holds back who writes on b, and nobody else. */
static void a9_export_for_writing_waits_for_readers_too(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    int64_t to = number_of(it.b);
    weir_dlpack_request reads = ask(&to, WEIR_READ), writes = ask(&to, WEIR_WRITE);
    weir_buffer buffer = filled_buffer(&it, it.a, 1);
    must_ok(weir_buffer_wait(&buffer, it.c, WEIR_READ));
    uint64_t gate = checklist_hold(it.device, it.c);
    check_stamp(it.device, it.c, buffer.data, BYTES, 1);
    must_ok(weir_buffer_use(&buffer, it.c, WEIR_READ));
    weir_dlpack x = must_export(&buffer, &reads);
    check_stamp(it.device, it.b, data_of(x), BYTES, 1);
    must_not_be_held(it.device, it.b);
    weir_dlpack y = must_export(&buffer, &writes);
    stamp(it.device, it.b, data_of(y), BYTES, 2);
    must_be_held(it.device, it.b);
    checklist_let_go(it.device, gate);
    weir_dlpack_delete(x);
    weir_dlpack_delete(y);
    must_ok(weir_buffer_wait(&buffer, it.a, WEIR_READ));
    check_stamp(it.device, it.a, buffer.data, BYTES, 2);
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

/* The consumer is on the buffer's own stream, which is not behind a writer on c. */
static void a9_export_on_the_same_stream_waits_for_others(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    int64_t to = number_of(it.a);
    weir_dlpack_request request = ask(&to, WEIR_READ);
    weir_buffer buffer = filled_buffer(&it, it.a, 1);
    must_ok(weir_buffer_wait(&buffer, it.c, WEIR_WRITE));
    uint64_t gate = checklist_hold(it.device, it.c);
    stamp(it.device, it.c, buffer.data, BYTES, 2);
    must_ok(weir_buffer_use(&buffer, it.c, WEIR_WRITE));
    weir_dlpack x = must_export(&buffer, &request);
    check_stamp(it.device, it.a, data_of(x), BYTES, 2);
    must_be_held(it.device, it.a);
    checklist_let_go(it.device, gate);
    weir_dlpack_delete(x);
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

static void a10_a_wait_after_an_export_is_as_good(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    int64_t none = -1;
    weir_dlpack_request request = ask(&none, WEIR_WRITE);
    weir_buffer buffer;
    must_ok(weir_buffer_allocate(it.mr, it.a, BYTES, 256, &buffer));
    uint64_t gate = checklist_hold(it.device, it.a);
    stamp(it.device, it.a, buffer.data, BYTES, 1);
    weir_dlpack x = must_export(&buffer, &request);
    must_not_be_held(it.device, it.b);
    must_ok(weir_buffer_wait(&buffer, it.b, WEIR_WRITE));
    check_stamp(it.device, it.b, data_of(x), BYTES, 1);
    must_be_held(it.device, it.b);
    checklist_let_go(it.device, gate);
    must_ok(weir_dlpack_done_versioned(x.versioned, it.b));
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

/* ---- A: what a tensor says ---- */

static weir_status import_as(weir_device *device, foreign_tensor *from, bool contiguous,
                             weir_buffer *out, weir_tensor *tensor)
{
    weir_dlpack_import_options options = WEIR_DLPACK_IMPORT_INIT;
    options.contiguous = contiguous;
    from->versioned.dl_tensor.shape = from->shape;
    from->versioned.dl_tensor.strides = from->strides;
    return weir_dlpack_import(device, NULL, foreign_versioned(from), &options, out,
                              tensor);
}

static void a11_strides_are_taken_where_they_stay_in_bounds(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    static uint8_t bytes[100];
    foreign_tensor from;
    weir_buffer x;
    weir_tensor tensor;
    foreign_tensor_init(&from, WEIR_DLPACK_CPU, 0, bytes + 60, 2, 3);
    from.strides[0] = -20; /* bytes 40 to 42 and 60 to 62, from right to left */
    from.strides[1] = 1;
    must_ok(import_as(it.device, &from, false, &x, &tensor));
    must(x.data == bytes + 40 && x.size == 23 && tensor.byte_offset == 20);
    must(tensor.strides[0] == -20 && tensor.strides[1] == 1 && tensor.ndim == 2);
    weir_buffer_reset(&x);
    must_answer(WEIR_NOT_SUPPORTED, import_as(it.device, &from, true, &x, &tensor));
    must(x.storage == NULL && tensor.shape == NULL);

    from.strides[0] = INT64_MAX / 2;
    must_answer(WEIR_INVALID_ARGUMENT, import_as(it.device, &from, false, &x, &tensor));
    from.strides[0] = INT64_MIN;
    must_answer(WEIR_INVALID_ARGUMENT, import_as(it.device, &from, false, &x, &tensor));

    from.shape[0] = 1; /* then its stride means nothing */
    must_ok(import_as(it.device, &from, true, &x, &tensor));
    must(x.data == bytes + 60 && x.size == 3);
    weir_buffer_reset(&x);
    must_ok(weir_device_drain_sync(it.device));
    must_equal(from.deletions, 2);
    checklist_end(&it);
}

static void a11_null_strides_are_rows_where_they_may_be(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    static uint8_t bytes[100];
    foreign_tensor from;
    weir_buffer x;
    weir_tensor tensor;
    foreign_tensor_init(&from, WEIR_DLPACK_CPU, 0, bytes, 5, 7);
    from.legacy.dl_tensor.strides = NULL;
    from.versioned.dl_tensor.strides = NULL;
    must_ok(weir_dlpack_import(it.device, NULL, foreign_legacy(&from), NULL, &x,
                               &tensor));
    must(x.size == 35 && tensor.strides[0] == 7 && tensor.strides[1] == 1);
    weir_buffer_reset(&x);
    for (uint32_t minor = 0; minor < 5; minor++) {
        from.versioned.version.minor = minor;
        weir_status status = weir_dlpack_import(
            it.device, NULL, foreign_versioned(&from), NULL, &x, &tensor);
        must_answer(minor < 2 ? WEIR_OK : WEIR_INVALID_ARGUMENT, status);
        weir_buffer_reset(&x);
    }
    from.versioned.dl_tensor.ndim = 0;
    from.versioned.dl_tensor.shape = NULL;
    must_ok(weir_dlpack_import(it.device, NULL, foreign_versioned(&from), NULL, &x,
                               &tensor));
    must(x.size == 1 && tensor.ndim == 0);
    weir_buffer_reset(&x);
    must_ok(weir_device_drain_sync(it.device));
    must_equal(from.deletions, 4);
    checklist_end(&it);
}

static void a12_an_export_has_strides(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = filled_buffer(&it, it.a, 1);
    int64_t shape[] = { 3, 1, 5 };
    weir_tensor tensor = { { WEIR_DTYPE_INT, 16, 1 }, 3, shape, NULL, 2 };
    weir_dlpack_request versioned = ask(NULL, WEIR_READ);
    for (int i = 0; i < 2; i++) {
        weir_dlpack x;
        must_ok(weir_dlpack_export(&buffer, &tensor, i == 0 ? NULL : &versioned, &x));
        const weir__dl_tensor *seen = tensor_of(x);
        must(seen->strides[0] == 5 && seen->strides[2] == 1 && seen->shape[1] == 1);
        must(data_of(x) == (char *)buffer.data + 2);
        weir_dlpack_delete(x);
    }
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

static void a13_element_types_map_both_ways(void **state)
{
    (void)state;
    static const weir_dtype known[] = {
        { WEIR_DTYPE_INT, 8, 1 }, { WEIR_DTYPE_INT, 64, 1 }, { WEIR_DTYPE_UINT, 16, 1 },
        { WEIR_DTYPE_FLOAT, 16, 1 }, { WEIR_DTYPE_FLOAT, 64, 1 },
        { WEIR_DTYPE_FLOAT, 32, 4 }, { WEIR_DTYPE_BFLOAT, 16, 1 },
        { WEIR_DTYPE_COMPLEX, 128, 1 }, { WEIR_DTYPE_BOOL, 8, 1 }, { 10, 8, 1 },
        { 15, 6, 4 }, { 17, 4, 2 }, { WEIR_DTYPE_INT, 4, 1 },
    };
    static const weir_dtype unknown[] = {
        { 18, 8, 1 }, { 255, 8, 1 }, { WEIR_DTYPE_BOOL, 1, 1 }, { 17, 8, 1 },
        { WEIR_DTYPE_INT, 0, 1 }, { WEIR_DTYPE_INT, 8, 0 },
    };
    checklist_stage it = checklist_begin();
    weir_buffer buffer = filled_buffer(&it, it.a, 1), back;
    int64_t extent = 16;
    weir_tensor tensor = { .ndim = 1, .shape = &extent }, seen;
    weir_dlpack x;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        tensor.dtype = known[i];
        must_ok(weir_dlpack_export(&buffer, &tensor, NULL, &x));
        must_ok(weir_dlpack_import(it.device, it.a, x, NULL, &back, &seen));
        must(memcmp(&seen.dtype, &known[i], sizeof seen.dtype) == 0);
        must_equal(back.size, (16u * known[i].bits * known[i].lanes + 7) / 8);
        must(back.data == buffer.data && seen.shape[0] == 16);
        weir_buffer_reset(&back);
    }
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        foreign_tensor from;
        tensor.dtype = unknown[i];
        must_answer(WEIR_NOT_SUPPORTED,
                    weir_dlpack_export(&buffer, &tensor, NULL, &x));
        foreign_tensor_init(&from, WEIR_DLPACK_CPU, 0, &extent, 2, 2);
        memcpy(&from.legacy.dl_tensor.dtype, &unknown[i], sizeof unknown[i]);
        must_answer(WEIR_NOT_SUPPORTED,
                    weir_dlpack_import(it.device, NULL, foreign_legacy(&from), NULL,
                                       &back, &seen));
    }
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

static void a15_there_is_no_python_here(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = filled_buffer(&it, it.a, 1);
    weir_dlpack_delete(must_export(&buffer, NULL));
    must(dlsym(RTLD_DEFAULT, "PyCapsule_New") == NULL);
    must(dlsym(RTLD_DEFAULT, "Py_IsInitialized") == NULL);
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

/* ---- A18: memory of each kind, there and back ---- */

static void there_and_back(checklist_stage *it, const char *spec, int32_t type)
{
    weir_resource *mr;
    weir_buffer buffer, back;
    weir_tensor tensor, seen;
    weir_dlpack_place place;
    int64_t shape[] = { 16, 64 }, strides[] = { -64, 1 };
    must_ok(weir_resource_open(it->device, spec, &mr));
    must_ok(weir_buffer_allocate(mr, it->a, 1024, 256, &buffer));
    stamp(it->device, it->a, buffer.data, 1024, 5);
    must_ok(weir_dlpack_device(&buffer, &place));
    must(place.type == type && place.id == 0);
    tensor = (weir_tensor){ { WEIR_DTYPE_UINT, 8, 1 }, 2, shape, strides, 15 * 64 };
    weir_dlpack_request request = ask(NULL, WEIR_WRITE);
    weir_dlpack x;
    must_ok(weir_dlpack_export(&buffer, &tensor, &request, &x));
    void *data = buffer.data;
    must(tensor_of(x)->device.device_type == type);
    weir_buffer_reset(&buffer);
    must_ok(weir_dlpack_import(it->device, NULL, x, NULL, &back, &seen));
    must(back.data == data && back.size == 1024 && seen.byte_offset == 15 * 64);
    check_stamp(it->device, NULL, back.data, 1024, 5);
    stamp(it->device, NULL, back.data, 1024, 6);
    weir_buffer_reset(&back);
    must_ok(weir_device_drain_sync(it->device));
    must_equal(statistics_of(mr).out_bytes, 0);
    weir_resource_unref(mr);
}

static void a18_memory_of_the_host_and_of_the_device(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    there_and_back(&it, "pool/device", device_type_of(it.device));
    there_and_back(&it, "system", WEIR_DLPACK_CPU);
    there_and_back(&it, "pool/pinned", WEIR_DLPACK_CUDA_HOST);
    there_and_back(&it, "pool/managed", WEIR_DLPACK_CUDA_MANAGED);
    checklist_end(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a1_an_export_is_a_handle_of_its_own),
        cmocka_unit_test(a2_an_export_keeps_the_bytes),
        cmocka_unit_test(a3_the_exported_shape_stays_put),
        cmocka_unit_test(a4_all_holders_share_one_count),
        cmocka_unit_test(a5_an_import_deletes_once),
        cmocka_unit_test(a5_an_import_deletes_after_its_uses),
        cmocka_unit_test(a8_a_null_deleter_is_tolerated),
        cmocka_unit_test(a9_export_for_reading_waits_for_writers),
        cmocka_unit_test(a9_export_for_writing_waits_for_readers_too),
        cmocka_unit_test(a9_export_on_the_same_stream_waits_for_others),
        cmocka_unit_test(a10_a_wait_after_an_export_is_as_good),
        cmocka_unit_test(a11_strides_are_taken_where_they_stay_in_bounds),
        cmocka_unit_test(a11_null_strides_are_rows_where_they_may_be),
        cmocka_unit_test(a12_an_export_has_strides),
        cmocka_unit_test(a13_element_types_map_both_ways),
        cmocka_unit_test(a15_there_is_no_python_here),
        cmocka_unit_test(a18_memory_of_the_host_and_of_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
