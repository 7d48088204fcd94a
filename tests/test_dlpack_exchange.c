/* test_dlpack_exchange.c - the exchange table's functions that need no Python: what the
 * allocator makes, of what, and on which stream; and how both refuse. */
#include <stdio.h>
#include <string.h>

#include "internal.h"
#include "support_buffer.h"
#include "support_dlpack.h"

typedef struct told {
    int count;
    char kind[32];
    char message[200];
} told;

static void set_error(void *context, const char *kind, const char *message)
{
    told *self = context;
    self->count++;
    snprintf(self->kind, sizeof self->kind, "%s", kind);
    snprintf(self->message, sizeof self->message, "%s", message);
}

static weir__dl_tensor prototype_of(int32_t type, int32_t id, int64_t *extent)
{
    return (weir__dl_tensor){
        .data = extent, /* which means nothing here */
        .device = { type, id },
        .ndim = 1,
        .dtype = { WEIR_DTYPE_FLOAT, 32, 1 },
        .shape = extent,
        .byte_offset = 77,
    };
}

static weir_dlpack must_allocate(weir__dl_tensor *prototype)
{
    weir_dlpack out = { NULL, NULL };
    told nothing = { .count = 0 };
    must_equal(weir_dlpack_allocate(prototype, &out.versioned, &nothing, set_error), 0);
    must(nothing.count == 0 && out.versioned != NULL);
    must_equal(flags_of(out), 0);
    return out;
}

static void must_not_allocate(weir__dl_tensor *prototype, const char *kind)
{
    struct DLManagedTensorVersioned *out = (void *)prototype;
    told why = { .count = 0 };
    must(weir_dlpack_allocate(prototype, &out, &why, set_error) == -1);
    must(out == NULL && why.count == 1 && why.message[0] != '\0');
    assert_string_equal(why.kind, kind);
    must(weir_dlpack_allocate(prototype, &out, NULL, NULL) == -1 && out == NULL);
}

static void memory_of_the_device_is_the_current_resources(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    int64_t extent = 1000;
    weir__dl_tensor prototype = prototype_of(device_type_of(it.device), 0, &extent);
    must_ok(weir_set_current_resource(it.device, it.pool, NULL));
    must_ok(weir_set_current_stream(it.device, it.a, NULL));
    weir_dlpack x = must_allocate(&prototype);
    const weir__dl_tensor *seen = tensor_of(x);
    must_equal(statistics_of(it.pool).out_bytes, 4000);
    must(memcmp(&seen->device, &prototype.device, sizeof seen->device) == 0);
    must(seen->ndim == 1 && seen->shape[0] == 1000 && seen->strides[0] == 1);
    must_equal((uintptr_t)data_of(x) % 256, 0);
    stamp(it.device, it.a, data_of(x), 4000, 1); /* there, it may be used at once */
    weir_dlpack_delete(x);
    must_equal(statistics_of(it.pool).out_bytes, 0);
    must_equal(pending_of(it.device).limbo_count, 0);
    extent = 0;
    x = must_allocate(&prototype);
    must(data_of(x) == NULL && tensor_of(x)->shape[0] == 0);
    weir_dlpack_delete(x);
    must_ok(weir_set_current_stream(it.device, NULL, NULL));
    must_ok(weir_set_current_resource(it.device, NULL, NULL));
    buffer_scene_close(&it);
}

/* Also where no device is open. */
static void memory_of_the_host_needs_no_device(void **state)
{
    (void)state;
    size_t live = weir__host_live();
    int64_t extent = 1000;
    weir__dl_tensor prototype = prototype_of(WEIR_DLPACK_CPU, 0, &extent);
    weir_dlpack x = must_allocate(&prototype);
    must_equal((uintptr_t)data_of(x) % 256, 0);
    memset(data_of(x), 3, 4000);
    must(tensor_of(x)->shape[0] == 1000 && is_filled(data_of(x), 3, 4000));
    weir_dlpack_delete(x);
    prototype.ndim = 0;
    prototype.shape = NULL;
    x = must_allocate(&prototype);
    memset(data_of(x), 3, 4);
    weir_dlpack_delete(x);
    must_equal(weir__host_live(), live);
}

static void what_cannot_be_is_refused_in_pythons_words(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    int64_t extent = 16;
    int32_t type = device_type_of(it.device);
    weir_resource *pinned;
    weir__dl_tensor prototype = prototype_of(type, 1, &extent);
    must_not_allocate(&prototype, "RuntimeError"); /* not open */
    prototype = prototype_of(8, 0, &extent);
    must_not_allocate(&prototype, "BufferError");
    prototype = prototype_of(type, 0, &extent);
    prototype.dtype.bits = 0;
    must_not_allocate(&prototype, "BufferError");
    prototype.dtype.bits = 32;
    extent = -1;
    must_not_allocate(&prototype, "ValueError");
    must_not_allocate(NULL, "ValueError");
    must(weir_dlpack_allocate(&prototype, NULL, NULL, NULL) == -1);
    extent = INT64_C(1) << 40;
    must_not_allocate(&prototype, "MemoryError");
    extent = 16;
    must_ok(weir_resource_open(it.device, "pinned", &pinned));
    must_ok(weir_set_current_resource(it.device, pinned, NULL));
    must_not_allocate(&prototype, "BufferError");
    must_ok(weir_set_current_resource(it.device, NULL, NULL));
    must_equal(statistics_of(pinned).out_bytes, 0);
    weir_resource_unref(pinned);
    buffer_scene_close(&it);
}

static void without_host_memory_nothing_is_left(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    int64_t extent = 16;
    const int32_t types[] = { WEIR_DLPACK_CPU, device_type_of(it.device) };
    must_ok(weir_set_current_resource(it.device, it.pool, NULL));
    for (size_t i = 0; i < 2; i++) {
        weir__dl_tensor prototype = prototype_of(types[i], 0, &extent);
        int failures = 0;
        weir_dlpack_delete(must_allocate(&prototype)); /* for the pool to be warm */
        for (uint64_t nth = 1; nth <= 2; nth++) {
            weir_dlpack out = { NULL, NULL };
            weir__host_fail_at(nth, false);
            int answer = weir_dlpack_allocate(&prototype, &out.versioned, NULL, NULL);
            weir__host_fail_at(0, false);
            must((answer == 0) == (out.versioned != NULL));
            failures += answer != 0;
            weir_dlpack_delete(out);
            must_ok(weir_device_drain_sync(it.device));
            must_equal(statistics_of(it.pool).out_bytes, 0);
        }
        must_equal(failures, i + 1); /* its record, and the storage's */
    }
    must_ok(weir_set_current_resource(it.device, NULL, NULL));
    buffer_scene_close(&it);
}

static void the_current_stream_is_told(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    int32_t type = device_type_of(it.device);
    void *stream = &it;
    must_equal(weir_dlpack_current_work_stream(type, 0, &stream), 0);
    must(stream == NULL);
    must_ok(weir_set_current_stream(it.device, it.b, NULL));
    must_equal(weir_dlpack_current_work_stream(type, 0, &stream), 0);
    must(stream == it.b);
    must_equal(weir_dlpack_current_work_stream(WEIR_DLPACK_CPU, 0, &stream), 0);
    must(stream == NULL);
    stream = &it;
    must(weir_dlpack_current_work_stream(type, 1, &stream) == -1 && stream == NULL);
    must(weir_dlpack_current_work_stream(99, 0, &stream) == -1);
    must(weir_dlpack_current_work_stream(type, 0, NULL) == -1);
    must_ok(weir_set_current_stream(it.device, NULL, NULL));
    buffer_scene_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_the_device_is_the_current_resources),
        cmocka_unit_test(memory_of_the_host_needs_no_device),
        cmocka_unit_test(what_cannot_be_is_refused_in_pythons_words),
        cmocka_unit_test(without_host_memory_nothing_is_left),
        cmocka_unit_test(the_current_stream_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
