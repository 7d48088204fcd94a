/* check_dlpack_asked.c - the checklist's lines about what a consumer asks for: copies,
 * devices, streams, versions. */
#include "support_checklist.h"
#include "support_dlpack.h"

#include <string.h>

#define BYTES ((size_t)4096)

static weir_buffer filled_buffer(checklist_stage *it, weir_resource *mr, uint8_t value)
{
    weir_buffer buffer;
    must_ok(weir_buffer_allocate(mr, it->a, BYTES, 256, &buffer));
    must_ok(weir_fill(it->device, it->a, buffer.data, value, BYTES));
    return buffer;
}

static const weir_dlpack_place host = { WEIR_DLPACK_CPU, 0 };

/* A versioned consumer on stream b, for reading. */
static weir_dlpack_request ask_for(const int64_t *to, weir_copying copy,
                                   const weir_dlpack_place *place)
{
    weir_dlpack_request it = ask(to, WEIR_READ);
    it.copy = copy;
    it.device = place;
    return it;
}

static void c30_nothing_is_copied_where_nothing_must(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    int64_t to = number_of(it.b);
    weir_buffer buffer = filled_buffer(&it, it.mr, 1);
    weir_dlpack_request request = ask_for(&to, WEIR_COPY_IF_NEEDED, NULL);
    weir_dlpack x = must_export(&buffer, NULL), y = must_export(&buffer, &request);
    must(data_of(x) == buffer.data && data_of(y) == buffer.data);
    must_equal(checklist_copies(it.device), 0);
    weir_dlpack_delete(x);
    weir_dlpack_delete(y);
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

static void c31_never_means_never(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    int64_t to = number_of(it.b);
    weir_buffer buffer = filled_buffer(&it, it.mr, 1);
    weir_dlpack_request request = ask_for(&to, WEIR_COPY_NEVER, NULL);
    weir_dlpack x = must_export(&buffer, &request);
    must(data_of(x) == buffer.data);
    request.device = &host;
    must_not_export(WEIR_NOT_SUPPORTED, &buffer, &request);
    must_equal(checklist_copies(it.device), 0);
    weir_dlpack_delete(x);
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

/* On the same device, ordered behind the buffer's writer, and another block. */
static void c32_always_means_a_copy_of_its_own(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    int64_t to = number_of(it.b);
    weir_buffer buffer;
    must_ok(weir_buffer_allocate(it.mr, it.a, BYTES, 256, &buffer));
    uint64_t gate = checklist_hold(it.device, it.a);
    stamp(it.device, it.a, buffer.data, BYTES, 1);
    weir_dlpack_request request = ask_for(&to, WEIR_COPY_ALWAYS, NULL);
    weir_dlpack x = must_export(&buffer, &request);
    must(data_of(x) != buffer.data);
    check_stamp(it.device, it.b, data_of(x), BYTES, 1);
    must_be_held(it.device, it.b);
    checklist_let_go(it.device, gate);
    must_equal(checklist_copies(it.device), 1);
    /* The reader of the buffer is noted: its next writer waits. */
    must_ok(weir_buffer_wait(&buffer, it.a, WEIR_WRITE));
    stamp(it.device, it.a, buffer.data, BYTES, 2);
    check_stamp(it.device, it.b, data_of(x), BYTES, 1);
    stamp(it.device, it.b, data_of(x), BYTES, 3);
    check_stamp(it.device, it.a, buffer.data, BYTES, 2);
    weir_buffer_reset(&buffer);
    weir_dlpack_delete(x);
    must_equal(statistics_of(it.mr).out_bytes, 0);
    checklist_end(&it);
}

/* What lies before the window, behind it, and below its first element. */
static void c32_a_copy_of_a_window_has_its_bytes(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = filled_buffer(&it, it.mr, 1);
    must_ok(weir_fill(it.device, it.a, (char *)buffer.data + 1600, 2, 100));
    must_ok(weir_fill(it.device, it.a, (char *)buffer.data + 1500, 3, 100));
    int64_t shape[] = { 2, 100 }, strides[] = { -100, 1 }, to = number_of(it.b);
    weir_tensor tensor = { { WEIR_DTYPE_INT, 8, 1 }, 2, shape, strides, 1600 };
    weir_dlpack_request request = ask_for(&to, WEIR_COPY_ALWAYS, NULL);
    weir_dlpack x;
    weir_buffer back;
    must_ok(weir_dlpack_export(&buffer, &tensor, &request, &x));
    must_equal(statistics_of(it.mr).out_bytes, BYTES + 200);
    weir_buffer_reset(&buffer);
    must_ok(weir_dlpack_import(it.device, it.b, x, NULL, &back, &tensor));
    must(back.size == 200 && tensor.byte_offset == 100);
    request = ask_for(NULL, WEIR_COPY_IF_NEEDED, &host);
    x = must_export(&back, &request);
    const char *bytes = data_of(x);
    must(is_filled(bytes + 100, 2, 100) && is_filled(bytes, 3, 100));
    weir_buffer_reset(&back);
    weir_dlpack_delete(x);
    checklist_end(&it);
}

static void c32_a_copy_in_memory_of_each_kind(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "pool/device", "system", "pool/pinned", "pool/managed"
    };
    checklist_stage it = checklist_begin();
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        weir_resource *mr;
        must_ok(weir_resource_open(it.device, specs[i], &mr));
        weir_buffer buffer = filled_buffer(&it, mr, (uint8_t)(i + 1));
        weir_dlpack_place place;
        weir_dlpack_request request = ask_for(NULL, WEIR_COPY_ALWAYS, NULL);
        must_ok(weir_dlpack_device(&buffer, &place));
        weir_dlpack x = must_export(&buffer, &request);
        must(data_of(x) != buffer.data && flags_of(x) & WEIR__DL_IS_COPIED);
        must(memcmp(&tensor_of(x)->device, &place, sizeof place) == 0);
        if (i > 0) { /* the host waited */
            must(is_filled(data_of(x), (uint8_t)(i + 1), BYTES));
            memset(data_of(x), 99, BYTES);
            must_ok(weir_buffer_wait_sync(&buffer, WEIR_WRITE));
            must(is_filled(buffer.data, (uint8_t)(i + 1), BYTES));
        }
        weir_buffer_reset(&buffer);
        weir_dlpack_delete(x);
        must_ok(weir_device_drain_sync(it.device));
        must_equal(statistics_of(mr).out_bytes, 0);
        weir_resource_unref(mr);
    }
    checklist_end(&it);
}

static void c33_a_copy_says_so_and_a_view_does_not(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    int64_t to = number_of(it.b);
    weir_buffer buffer = filled_buffer(&it, it.mr, 1);
    weir_dlpack_request request = ask_for(&to, WEIR_COPY_IF_NEEDED, NULL);
    weir_dlpack x = must_export(&buffer, &request);
    must_equal(flags_of(x), WEIR__DL_READ_ONLY);
    weir_dlpack_delete(x);
    request.access = WEIR_WRITE;
    x = must_export(&buffer, &request);
    must_equal(flags_of(x), 0);
    weir_dlpack_delete(x);
    request.copy = WEIR_COPY_ALWAYS;
    x = must_export(&buffer, &request);
    must_equal(flags_of(x), WEIR__DL_IS_COPIED);
    weir_dlpack_delete(x);
    request.copy = WEIR_COPY_IF_NEEDED;
    request.device = &host;
    x = must_export(&buffer, &request);
    must_equal(flags_of(x), WEIR__DL_IS_COPIED);
    weir_dlpack_delete(x);
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

static void c34_the_same_device_copies_nothing(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    int64_t to = number_of(it.b);
    weir_buffer buffer = filled_buffer(&it, it.mr, 1);
    weir_dlpack_place place;
    must_ok(weir_dlpack_device(&buffer, &place));
    weir_dlpack_request request = ask_for(&to, WEIR_COPY_IF_NEEDED, &place);
    weir_dlpack x = must_export(&buffer, &request);
    must(data_of(x) == buffer.data);
    must_equal(checklist_copies(it.device), 0);
    weir_dlpack_delete(x);
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

/* A window from the lowest byte to the highest; the host finds it in the same order. */
static void c35_the_host_gets_a_copy_that_is_complete(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = filled_buffer(&it, it.mr, 1);
    must_ok(weir_fill(it.device, it.a, (char *)buffer.data + 600, 2, 100));
    must_ok(weir_fill(it.device, it.a, (char *)buffer.data + 500, 3, 100));
    int64_t shape[] = { 2, 100 }, strides[] = { -100, 1 };
    weir_tensor tensor = { { WEIR_DTYPE_INT, 8, 1 }, 2, shape, strides, 600 };
    weir_dlpack_request request = ask_for(NULL, WEIR_COPY_IF_NEEDED, &host);
    weir_dlpack x;
    must_ok(weir_dlpack_export(&buffer, &tensor, &request, &x));
    const weir__dl_tensor *seen = tensor_of(x);
    must(seen->device.device_type == WEIR_DLPACK_CPU && seen->device.device_id == 0);
    must(seen->strides[0] == -100 && seen->shape[1] == 100);
    const char *first = data_of(x);
    must(is_filled(first, 2, 100) && is_filled(first - 100, 3, 100));
    must_equal(checklist_copies(it.device), 1);
    weir_buffer_reset(&buffer);
    must_equal(statistics_of(it.mr).out_bytes, 0);
    must(is_filled(first, 2, 100));
    weir_dlpack_delete(x);
    checklist_end(&it);
}

static void c35_what_the_host_can_reach_is_only_waited_for(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_resource *mr;
    must_ok(weir_resource_open(it.device, "pool/pinned", &mr));
    weir_buffer buffer = filled_buffer(&it, mr, 9);
    for (int never = 0; never < 2; never++) {
        weir_dlpack_request request = ask_for(
            NULL, never ? WEIR_COPY_NEVER : WEIR_COPY_IF_NEEDED, &host);
        must_ok(weir_fill(it.device, it.a, buffer.data, (uint8_t)never, BYTES));
        weir_dlpack x = must_export(&buffer, &request);
        must(data_of(x) == buffer.data && is_filled(data_of(x), (uint8_t)never, BYTES));
        must_equal(tensor_of(x)->device.device_type, WEIR_DLPACK_CPU);
        must_equal(flags_of(x), WEIR__DL_READ_ONLY);
        weir_dlpack_delete(x);
    }
    must_equal(checklist_copies(it.device), 0);
    weir_buffer_reset(&buffer);
    weir_resource_unref(mr);
    checklist_end(&it);
}

static void c36_what_the_host_cannot_reach_it_cannot_have(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = filled_buffer(&it, it.mr, 1);
    weir_dlpack_request request = ask_for(NULL, WEIR_COPY_NEVER, &host);
    must_not_export(WEIR_NOT_SUPPORTED, &buffer, &request);
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

static void c37_the_host_has_no_streams(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_resource *mr;
    must_ok(weir_resource_open(it.device, "system", &mr));
    weir_buffer buffer = filled_buffer(&it, mr, 1);
    int64_t refused[] = { 1, 2, number_of(it.b) }, none = -1;
    for (size_t i = 0; i < 3; i++) {
        weir_dlpack_request request = ask_for(&refused[i], WEIR_COPY_IF_NEEDED, NULL);
        must_not_export(WEIR_INVALID_ARGUMENT, &buffer, &request);
        request.device = &host;
        must_not_export(WEIR_INVALID_ARGUMENT, &buffer, &request);
    }
    for (size_t i = 0; i < 2; i++) {
        weir_dlpack_request request =
            ask_for(i == 0 ? NULL : &none, WEIR_COPY_IF_NEEDED, NULL);
        weir_dlpack x = must_export(&buffer, &request);
        if (i == 0)
            must(is_filled(data_of(x), 1, BYTES));
        weir_dlpack_delete(x);
    }
    weir_buffer_reset(&buffer);
    must_ok(weir_device_drain_sync(it.device));
    weir_resource_unref(mr);
    checklist_end(&it);
}

static void c37_a_stream_for_the_host_is_never_looked_at(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = filled_buffer(&it, it.mr, 6);
    int64_t nonsense = 0x7ffffff1;
    weir_dlpack_request request = ask_for(&nonsense, WEIR_COPY_IF_NEEDED, &host);
    weir_dlpack x = must_export(&buffer, &request);
    must(is_filled(data_of(x), 6, BYTES));
    weir_dlpack_delete(x);
    weir_buffer_reset(&buffer);
    weir_resource *mr; /* nor where nothing is copied */
    must_ok(weir_resource_open(it.device, "pool/managed", &mr));
    buffer = filled_buffer(&it, mr, 5);
    x = must_export(&buffer, &request);
    must(data_of(x) == buffer.data && is_filled(buffer.data, 5, BYTES));
    weir_dlpack_delete(x);
    weir_buffer_reset(&buffer);
    weir_resource_unref(mr);
    checklist_end(&it);
}

static void c38_no_other_number_is_a_stream(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = filled_buffer(&it, it.mr, 1);
    const int64_t refused[] = { 0, -2, -7, INT64_MIN };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        weir_dlpack_request request = ask_for(&refused[i], WEIR_COPY_IF_NEEDED, NULL);
        must_not_export(WEIR_INVALID_ARGUMENT, &buffer, &request);
        request.device = &host;
        must_not_export(WEIR_INVALID_ARGUMENT, &buffer, &request);
    }
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

static void c39_other_devices_are_refused(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = filled_buffer(&it, it.mr, 1);
    const weir_dlpack_place refused[] = {
        { device_type_of(it.device), 1 }, { 8, 0 }, { 10, 0 }, { 0, 0 },
        { WEIR_DLPACK_CUDA_HOST, 0 }, { WEIR_DLPACK_CUDA_MANAGED, 0 },
        { WEIR_DLPACK_CPU, 1 }, { -1, -1 },
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        for (int copy = 0; copy < 3; copy++) {
            weir_dlpack_request request =
                ask_for(NULL, (weir_copying)copy, &refused[i]);
            must_not_export(WEIR_NOT_SUPPORTED, &buffer, &request);
        }
    }
    must_equal(checklist_copies(it.device), 0);
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

/* Pinned memory that came from elsewhere: nothing makes more of that. */
static void c40_who_cannot_copy_refuses(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    static char bytes[256];
    foreign_tensor from;
    weir_buffer buffer;
    weir_tensor tensor;
    foreign_tensor_init(&from, WEIR_DLPACK_CUDA_HOST, 0, bytes, 2, 128);
    must_ok(weir_dlpack_import(it.device, it.a, foreign_versioned(&from), NULL, &buffer,
                               &tensor));
    weir_dlpack_request request = ask_for(NULL, WEIR_COPY_ALWAYS, NULL);
    must_not_export(WEIR_NOT_SUPPORTED, &buffer, &request);
    request.copy = WEIR_COPY_IF_NEEDED;
    weir_dlpack x = must_export(&buffer, &request);
    must(data_of(x) == bytes);
    weir_dlpack_delete(x);
    weir_buffer_reset(&buffer);
    must_ok(weir_device_drain_sync(it.device));
    must_equal(from.deletions, 1);
    checklist_end(&it);
}

static weir_pending pending_of_device(weir_device *device)
{
    weir_pending it = { .struct_size = sizeof it };
    must_ok(weir_device_get_pending(device, &it));
    return it;
}

/* Known to Weir or not: the consumer's stream may end as soon as it has the tensor. */
static void c43_the_stream_may_end_right_after(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        checklist_stage it = checklist_begin();
        weir_stream stream;
        weir_buffer buffer = filled_buffer(&it, it.mr, 1);
        must_ok(support_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &stream));
        if (known)
            must_ok(weir_stream_register(it.device, stream));
        int64_t to = number_of(stream);
        weir_dlpack_request request = ask_for(&to, WEIR_COPY_IF_NEEDED, NULL);
        weir_dlpack x = must_export(&buffer, &request);
        weir_buffer_reset(&buffer);
        if (known)
            must_ok(weir_stream_retire(it.device, stream));
        must_ok(support_stream_destroy(it.device, stream));
        weir_device_calls before = calls_of(it.device);
        weir_dlpack_delete(x);
        weir_device_calls after = calls_of(it.device);
        if (!known)
            must(memcmp(&before, &after, sizeof before) == 0);
        must_equal(pending_of_device(it.device).limbo_count, !known);
        must_ok(weir_device_drain_sync(it.device));
        must_equal(statistics_of(it.mr).out_bytes, 0);
        checklist_end(&it);
    }
}

static void c44_version_and_flags_are_told(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = filled_buffer(&it, it.mr, 1);
    const uint32_t versions[][2] = {
        { 0, 8 }, { 1, 0 }, { 1, 3 }, { 1, 9 }, { 2, 0 }, { UINT32_MAX, 0 }
    };
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        weir_dlpack_request request = ask(NULL, WEIR_WRITE);
        request.max_version = versions[i];
        weir_dlpack x = must_export(&buffer, &request);
        must((x.legacy != NULL) == (i == 0));
        if (i > 0) {
            const weir__dl_versioned *seen = weir__dl_versioned_of(x.versioned);
            must(seen->version.major == 1 && seen->version.minor == 3);
            must_equal(seen->flags, 0);
        }
        weir_dlpack_delete(x);
        request.access = WEIR_READ; /* which an old one cannot say */
        if (i == 0)
            must_not_export(WEIR_NOT_SUPPORTED, &buffer, &request);
    }
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c30_nothing_is_copied_where_nothing_must),
        cmocka_unit_test(c31_never_means_never),
        cmocka_unit_test(c32_always_means_a_copy_of_its_own),
        cmocka_unit_test(c32_a_copy_of_a_window_has_its_bytes),
        cmocka_unit_test(c32_a_copy_in_memory_of_each_kind),
        cmocka_unit_test(c33_a_copy_says_so_and_a_view_does_not),
        cmocka_unit_test(c34_the_same_device_copies_nothing),
        cmocka_unit_test(c35_the_host_gets_a_copy_that_is_complete),
        cmocka_unit_test(c35_what_the_host_can_reach_is_only_waited_for),
        cmocka_unit_test(c36_what_the_host_cannot_reach_it_cannot_have),
        cmocka_unit_test(c37_the_host_has_no_streams),
        cmocka_unit_test(c37_a_stream_for_the_host_is_never_looked_at),
        cmocka_unit_test(c38_no_other_number_is_a_stream),
        cmocka_unit_test(c39_other_devices_are_refused),
        cmocka_unit_test(c40_who_cannot_copy_refuses),
        cmocka_unit_test(c43_the_stream_may_end_right_after),
        cmocka_unit_test(c44_version_and_flags_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
