/* check_dlpack_owners.c - the checklist's lines about bytes that an exporter and an
 * importer own together, and about the exchange table's functions. */
#include "support_checklist.h"
#include "support_dlpack.h"

#include "internal.h"

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

static void a14_calls_answer_a_status_and_the_table_0_or_minus_1(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    int64_t extent = 16, negative = -1;
    weir__dl_tensor prototype = {
        .device = { device_type_of(it.device), 0 },
        .ndim = 1,
        .dtype = { WEIR_DTYPE_FLOAT, 32, 1 },
        .shape = &extent,
    };
    struct DLManagedTensorVersioned *tensor;
    must_ok(weir_set_current_resource(it.device, it.mr, NULL));
    must_equal(weir_dlpack_allocate(&prototype, &tensor, NULL, NULL), 0);
    weir_dlpack_delete((weir_dlpack){ NULL, tensor });
    must_ok(weir_set_current_resource(it.device, NULL, NULL));
    prototype.shape = &negative;
    must(weir_dlpack_allocate(&prototype, &tensor, NULL, NULL) == -1 && tensor == NULL);
    void *stream = &extent;
    must_equal(weir_dlpack_current_work_stream(WEIR_DLPACK_CPU, 0, &stream), 0);
    must(stream == NULL);
    must(weir_dlpack_current_work_stream(77, 0, &stream) == -1);
    weir_buffer buffer = filled_buffer(&it, it.a, 1);
    weir_dlpack_request request = ask(&negative, WEIR_READ);
    request.copy = (weir_copying)9;
    must_not_export(WEIR_INVALID_ARGUMENT, &buffer, &request);
    must(WEIR_INVALID_ARGUMENT > 0 && WEIR_OK == 0);
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

/* ---- B: memory that two own ---- */

static void b22_whoever_goes_first_the_bytes_live(void **state)
{
    (void)state;
    for (int source_first = 0; source_first < 2; source_first++) {
        checklist_stage it = checklist_begin();
        int64_t to = number_of(it.b);
        weir_dlpack_request request = ask(&to, WEIR_WRITE);
        weir_buffer source = filled_buffer(&it, it.a, 1), import;
        weir_tensor tensor;
        must_ok(weir_dlpack_import(it.device, it.b, must_export(&source, &request),
                                   NULL, &import, &tensor));
        weir_buffer_reset(source_first ? &source : &import);
        must_equal(out_bytes(&it), BYTES);
        weir_buffer *left = source_first ? &import : &source;
        check_stamp(it.device, left->stream, left->data, BYTES, 1);
        weir_buffer_reset(left);
        must_ok(weir_device_drain_sync(it.device));
        must_equal(out_bytes(&it), 0);
        checklist_end(&it);
    }
}

static void b23_a_write_on_either_side_is_seen(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    int64_t to = number_of(it.b);
    weir_dlpack_request request = ask(&to, WEIR_WRITE);
    weir_buffer source = filled_buffer(&it, it.a, 1), import;
    weir_tensor tensor;
    must_ok(weir_dlpack_import(it.device, it.b, must_export(&source, &request), NULL,
                               &import, &tensor));
    must(import.data == source.data);
    check_stamp(it.device, it.b, import.data, BYTES, 1);
    stamp(it.device, it.b, import.data, BYTES, 2);
    must_ok(weir_stream_wait(it.device, it.a, it.b));
    check_stamp(it.device, it.a, source.data, BYTES, 2);
    stamp(it.device, it.a, source.data, BYTES, 3);
    must_ok(weir_stream_wait(it.device, it.b, it.a));
    check_stamp(it.device, it.b, import.data, BYTES, 3);
    weir_buffer_reset(&source);
    weir_buffer_reset(&import);
    checklist_end(&it);
}

/* Refused, or without host memory: the tensor is still its producer's. */
static void b24_an_import_that_fails_leaves_the_tensor(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    static uint8_t bytes[64];
    foreign_tensor from;
    weir_buffer x;
    weir_tensor tensor;
    for (int versioned = 0; versioned < 2; versioned++) {
        uint64_t nth = 0;
        weir_status status;
        do {
            foreign_tensor_init(&from, WEIR_DLPACK_CPU, 0, bytes, 2, 32);
            weir_dlpack as =
                versioned ? foreign_versioned(&from) : foreign_legacy(&from);
            weir__host_fail_at(++nth, false);
            status = weir_dlpack_import(it.device, it.b, as, NULL, &x, &tensor);
            weir__host_fail_at(0, false);
            must_equal(from.deletions, 0);
            if (status != WEIR_OK) {
                must_answer(WEIR_OUT_OF_HOST_MEMORY, status);
                must(x.storage == NULL && x.data == NULL);
                weir_dlpack_delete(as);
            } else {
                weir_buffer_reset(&x);
            }
            must_ok(weir_device_drain_sync(it.device));
            must_equal(from.deletions, 1);
        } while (status != WEIR_OK);
        must(nth > 1);
    }
    checklist_end(&it);
}

static void b28_two_views_see_a_write_and_free_once(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    int64_t to = number_of(it.b);
    weir_dlpack_request request = ask(&to, WEIR_WRITE);
    weir_buffer buffer = filled_buffer(&it, it.a, 1);
    weir_dlpack x = must_export(&buffer, &request), y = must_export(&buffer, &request);
    weir_buffer_reset(&buffer);
    stamp(it.device, it.b, data_of(x), BYTES, 2);
    check_stamp(it.device, it.b, data_of(y), BYTES, 2);
    weir_dlpack_delete(x);
    must_equal(out_bytes(&it), BYTES);
    check_stamp(it.device, it.b, data_of(y), BYTES, 2);
    weir_dlpack_delete(y);
    must_equal(out_bytes(&it), 0);
    checklist_end(&it);
}

static void b29_the_host_reads_what_it_waited_for(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_resource *mr;
    int64_t none = -1;
    weir_dlpack_request request = ask(&none, WEIR_READ);
    weir_buffer buffer;
    must_ok(weir_resource_open(it.device, "pool/pinned", &mr));
    must_ok(weir_buffer_allocate(mr, it.a, BYTES, 256, &buffer));
    must_ok(weir_fill(it.device, it.a, buffer.data, 7, BYTES));
    weir_dlpack x = must_export(&buffer, &request);
    must_ok(weir_buffer_wait_sync(&buffer, WEIR_READ));
    must(is_filled(data_of(x), 7, BYTES));
    must_ok(weir_fill(it.device, it.a, buffer.data, 8, BYTES));
    request.stream = NULL; /* then the export waits */
    weir_dlpack y = must_export(&buffer, &request);
    must(is_filled(data_of(y), 8, BYTES));
    weir_dlpack_delete(x);
    weir_dlpack_delete(y);
    weir_buffer_reset(&buffer);
    must_ok(weir_device_drain_sync(it.device));
    weir_resource_unref(mr);
    checklist_end(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a14_calls_answer_a_status_and_the_table_0_or_minus_1),
        cmocka_unit_test(b22_whoever_goes_first_the_bytes_live),
        cmocka_unit_test(b23_a_write_on_either_side_is_seen),
        cmocka_unit_test(b24_an_import_that_fails_leaves_the_tensor),
        cmocka_unit_test(b28_two_views_see_a_write_and_free_once),
        cmocka_unit_test(b29_the_host_reads_what_it_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
