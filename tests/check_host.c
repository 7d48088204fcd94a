/* check_host.c - the checklist's lines on the host's own arrays, B20 to B24: they are
 * adopted where they are, live as long as anybody needs them, and are shared. */
#include "support_checklist.h"

#include <stdlib.h>
#include <string.h>

#include "support_pattern.h"
#include "weir/host.h"

#define PAGE  ((size_t)4096)
#define BYTES ((size_t)2 * PAGE)

/* An array that its source and a buffer may hold: who lets go last frees it. */
typedef struct shared_array {
    unsigned char *bytes;
    unsigned holders;
    unsigned deleted; /* how often a buffer has let go */
} shared_array;

static void array_begin(shared_array *it)
{
    *it = (shared_array){ .bytes = aligned_alloc(PAGE, BYTES), .holders = 1 };
    must(it->bytes != NULL);
}

static void array_let_go(shared_array *it)
{
    must(it->holders > 0);
    if (--it->holders > 0)
        return;
    memset(it->bytes, 0xee, BYTES);
    free(it->bytes);
}

static void array_delete(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    shared_array *it = context;
    (void)stream;
    must(ptr == it->bytes);
    must_equal(bytes, BYTES);
    it->deleted++;
    array_let_go(it);
}

static const int64_t rows[] = { 2, PAGE / 8 };

/* Of two rows of eight-byte items; another holder, once it is adopted. */
static weir_host_array describe(shared_array *it, bool pinned)
{
    weir_host_array array = WEIR_HOST_ARRAY_INIT;
    array.data = it->bytes;
    array.item_bytes = 8;
    array.ndim = 2;
    array.shape = rows;
    array.pinned = pinned;
    array.deleter = array_delete;
    array.context = it;
    return array;
}

static weir_buffer adopt(checklist_stage *it, weir_stream stream, shared_array *source,
                         bool pinned)
{
    weir_buffer buffer;
    const weir_host_array array = describe(source, pinned);
    must_ok(weir_buffer_adopt_host(it->device, stream, &array, &buffer));
    source->holders++;
    return buffer;
}

static void let_go(checklist_stage *it, weir_buffer *buffer)
{
    weir_buffer_reset(buffer);
    must_ok(weir_device_drain_sync(it->device));
}

static void b20_what_has_gaps_or_other_orders_is_refused(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    static const int64_t strides[][2] = {
        { 8, 16 }, { PAGE + 8, 8 }, { PAGE, -8 }, { PAGE, 0 }, { 0, 8 }
    };
    shared_array source;
    array_begin(&source);
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        weir_host_array array = describe(&source, false);
        weir_buffer buffer;
        array.strides = strides[i];
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir_buffer_adopt_host(it.device, it.a, &array, &buffer));
        must(strstr(weir_last_error().message, "C-contiguous") != NULL);
        must(buffer.data == NULL && buffer.storage == NULL);
    }
    must_equal(source.deleted, 0);
    array_let_go(&source);
    checklist_end(&it);
}

static void b21_the_address_is_the_same(void **state)
{
    (void)state;
    for (int pinned = 0; pinned < 2; pinned++) {
        checklist_stage it = checklist_begin();
        shared_array source;
        array_begin(&source);
        uint64_t copies = checklist_copies(it.device);
        weir_buffer buffer = adopt(&it, it.a, &source, pinned != 0);
        must(buffer.data == source.bytes);
        must_equal(buffer.size, BYTES);
        must_equal(checklist_copies(it.device), copies);
        let_go(&it, &buffer);
        array_let_go(&source);
        checklist_end(&it);
    }
}

/* Also while work that was noted is still to read them. */
static void b22_the_array_lives_for_whoever_needs_it(void **state)
{
    (void)state;
    for (int pinned = 0; pinned < 2; pinned++) {
        checklist_stage it = checklist_begin();
        shared_array first, second;
        array_begin(&first);
        weir_buffer buffer = adopt(&it, it.a, &first, pinned != 0);
        pattern_write(first.bytes, BYTES, 22);
        let_go(&it, &buffer); /* the source is left */
        must_equal(first.deleted, 1);
        must_equal(pattern_compare(first.bytes, BYTES, 22), BYTES);
        array_let_go(&first);

        array_begin(&second);
        pattern_write(second.bytes, BYTES, 23);
        buffer = adopt(&it, it.a, &second, pinned != 0);
        array_let_go(&second); /* the buffer is left, and then work alone */
        uint64_t gate = checklist_hold(it.device, it.b);
        check_stamp(it.device, it.b, buffer.data, BYTES, 23);
        must_ok(weir_buffer_use(&buffer, it.b, WEIR_READ));
        weir_buffer_reset(&buffer);
        must_equal(second.deleted, 0);
        checklist_let_go(it.device, gate);
        must_ok(weir_device_drain_sync(it.device));
        must_equal(second.deleted, 1);
        must_equal(second.holders, 0);
        checklist_end(&it);
    }
}

static void b23_both_sides_see_what_is_written(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    shared_array source;
    array_begin(&source);
    weir_buffer buffer = adopt(&it, it.a, &source, false);
    pattern_write(source.bytes, BYTES, 1); /* before work that reads it is put there */
    check_stamp(it.device, it.a, buffer.data, BYTES, 1);
    stamp(it.device, it.a, buffer.data, BYTES, 2);
    must_ok(weir_buffer_wait_sync(&buffer, WEIR_WRITE));
    must_equal(pattern_compare(source.bytes, BYTES, 2), BYTES);
    let_go(&it, &buffer);
    array_let_go(&source);
    checklist_end(&it);
}

/* The pages are not registered any more, and the deleter comes once, later. */
static void b24_an_adoption_that_fails_leaves_the_array(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    shared_array source;
    weir_buffer buffer;
    array_begin(&source);
    weir_host_array array = describe(&source, true);
    plan_fault(it.device, "host_register", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR,
                weir_buffer_adopt_host(it.device, it.a, &array, &buffer));
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    array.data = source.bytes + 8; /* inside of a page */
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_adopt_host(it.device, it.a, &array, &buffer));
    must(buffer.data == NULL && buffer.storage == NULL);
    must_equal(source.deleted, 0);
    must_equal(calls_of(it.device).host_unregister, 0);

    buffer = adopt(&it, it.a, &source, true);
    let_go(&it, &buffer);
    must_equal(source.deleted, 1);
    must_equal(calls_of(it.device).host_unregister, 1);
    array_let_go(&source);
    checklist_end(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b20_what_has_gaps_or_other_orders_is_refused),
        cmocka_unit_test(b21_the_address_is_the_same),
        cmocka_unit_test(b22_the_array_lives_for_whoever_needs_it),
        cmocka_unit_test(b23_both_sides_see_what_is_written),
        cmocka_unit_test(b24_an_adoption_that_fails_leaves_the_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
