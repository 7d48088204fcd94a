/* check_ipc.c - the checklist's lines on slices for other processes, E55 to E64,
 * between this process and another that does the same. */
#include "support_remote.h"

#include <string.h>

#define BYTES   ((size_t)3 << 20)
#define OFFSET  ((size_t)4096)
#define LENGTH  ((size_t)65536)
#define KEY     7u

typedef struct stage {
    ipc_stage here;
    remote other;
} stage;

static stage begin(void)
{
    return (stage){ ipc_begin(), remote_begin() };
}

static void end(stage *it)
{
    ipc_settle();
    remote_end(&it->other);
    ipc_end(&it->here);
}

static void e55_a_ticket_survives_a_list_in_json(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer column = ipc_make(&it.here, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ), read;
    char text[WEIR_TICKET_JSON_BYTES];
    size_t length;
    must_ok(weir_ticket_to_json(&ticket, text, sizeof text, &length));
    must(text[0] == '[' && text[length - 1] == ']');
    must_ok(weir_ticket_from_json(text, length, &read));
    must(memcmp(&read, &ticket, sizeof ticket) == 0);
    must_ok(remote_open(&it.other, 0, &read, WEIR_READ));
    must_equal(remote_errors(&it.other, 0, KEY), 0);
    must_ok(remote_close(&it.other, 0));
    weir_buffer_reset(&column);
    end(&it);
}

static void e56_a_slice_is_an_offset_and_a_length_in_its_base(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer column = ipc_make(&it.here, BYTES, KEY), slice;
    must_ok(weir_buffer_slice(&column, OFFSET, LENGTH, &slice));
    stamp(it.here.at.device, it.here.at.a, slice.data, slice.size, KEY + 1);
    weir_ticket ticket = ipc_export(&slice, WEIR_READ);
    weir_ticket_info info = { .struct_size = sizeof info };
    must_ok(weir_ticket_get_info(&ticket, &info));
    must(info.base_bytes >= BYTES);
    must_equal(info.offset, OFFSET);
    must_equal(info.bytes, LENGTH);
    must_ok(remote_open(&it.other, 0, &ticket, WEIR_READ));
    must_equal(remote_size(&it.other, 0), LENGTH);
    must_equal(remote_errors(&it.other, 0, KEY + 1), 0);
    must_ok(remote_close(&it.other, 0));
    weir_buffer_reset(&slice);
    weir_buffer_reset(&column);
    end(&it);
}

static void e57_data_and_mask_are_two_tickets(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer data = ipc_make(&it.here, LENGTH, KEY);
    weir_buffer mask = ipc_make(&it.here, LENGTH / 64, KEY + 1);
    weir_ticket tickets[] = { ipc_export(&data, WEIR_READ),
                              ipc_export(&mask, WEIR_READ) };
    must(memcmp(&tickets[0], &tickets[1], sizeof tickets[0]) != 0);
    weir_ticket_info info = { .struct_size = sizeof info };
    must_ok(weir_ticket_get_info(&tickets[1], &info));
    must_equal(info.offset, 0); /* the mask is never sliced */
    must_ok(remote_open(&it.other, 0, &tickets[0], WEIR_READ)); /* it is optional */
    must_equal(remote_errors(&it.other, 0, KEY), 0);
    must_ok(remote_open(&it.other, 1, &tickets[1], WEIR_READ));
    must_equal(remote_errors(&it.other, 1, KEY + 1), 0);
    must_ok(remote_close(&it.other, 0));
    must_equal(remote_errors(&it.other, 1, KEY + 1), 0);
    must_ok(remote_close(&it.other, 1));
    weir_buffer_reset(&mask);
    weir_buffer_reset(&data);
    end(&it);
}

static void e58_closing_is_explicit_and_can_be_repeated(void **state)
{
    (void)state;
    stage it = begin();
    remote_make(&it.other, 0, LENGTH, KEY);
    weir_ticket ticket;
    weir_buffer buffer;
    must_ok(remote_export(&it.other, 0, WEIR_READ, &ticket));
    must_ok(weir_ipc_open(it.here.at.device, it.here.at.b, &ticket, NULL, &buffer));
    check_stamp(it.here.at.device, it.here.at.b, buffer.data, buffer.size, KEY);
    must_ok(weir_ipc_close(&buffer, it.here.at.b));
    must(buffer.data == NULL && buffer.storage == NULL);
    must_ok(weir_ipc_close(&buffer, it.here.at.b));
    must_answer(WEIR_NOT_OWNED, weir_buffer_use(&buffer, it.here.at.b, WEIR_READ));
    must_answer(WEIR_NOT_OWNED, weir_ipc_check(&buffer));

    must_ok(weir_ipc_open(it.here.at.device, it.here.at.b, &ticket, NULL, &buffer));
    weir_buffer_reset(&buffer); /* who forgets to close */
    remote_reset(&it.other, 0);
    end(&it);
}

static void e59_a_ticket_left_after_its_bytes_is_found_out(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer column = ipc_make(&it.here, LENGTH, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    weir_buffer_reset(&column);
    must_answer(WEIR_NOT_FOUND, remote_open(&it.other, 0, &ticket, WEIR_READ));
    must_answer(WEIR_NOT_FOUND, weir_ipc_revoke(&ticket));

    column = ipc_make(&it.here, LENGTH, KEY);
    ticket = ipc_export(&column, WEIR_READ);
    must_ok(weir_ipc_revoke(&ticket));
    must_answer(WEIR_NOT_FOUND, weir_ipc_revoke(&ticket));
    must_answer(WEIR_NOT_FOUND, remote_open(&it.other, 0, &ticket, WEIR_READ));
    weir_buffer_reset(&column);
    end(&it);
}

static void e60_both_directions_use_one_format(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer mine = ipc_make(&it.here, LENGTH, KEY), theirs;
    weir_ticket here = ipc_export(&mine, WEIR_READ), there;
    remote_make(&it.other, 0, LENGTH, KEY + 1);
    must_ok(remote_export(&it.other, 0, WEIR_READ, &there));
    must(memcmp(&here, &there, 8) == 0); /* what every ticket begins with */
    must_ok(remote_open(&it.other, 1, &here, WEIR_READ));
    must_equal(remote_errors(&it.other, 1, KEY), 0);
    must_ok(weir_ipc_open(it.here.at.device, it.here.at.b, &there, NULL, &theirs));
    check_stamp(it.here.at.device, it.here.at.b, theirs.data, theirs.size, KEY + 1);
    must_ok(weir_ipc_close(&theirs, it.here.at.b));
    must_ok(remote_close(&it.other, 1));
    remote_reset(&it.other, 0);
    weir_buffer_reset(&mine);
    end(&it);
}

static void e61_a_write_in_one_process_is_visible_in_the_other(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer column = ipc_make(&it.here, LENGTH, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_WRITE);
    must_ok(remote_open(&it.other, 0, &ticket, WEIR_WRITE));
    must_equal(remote_errors(&it.other, 0, KEY), 0);
    remote_stamp(&it.other, 0, KEY + 1);
    must_ok(remote_close(&it.other, 0));

    weir_buffer again; /* whose stream is behind all who have closed */
    must_ok(weir_ipc_open(it.here.at.device, it.here.at.c, &ticket, NULL, &again));
    check_stamp(it.here.at.device, it.here.at.c, again.data, again.size, KEY + 1);
    weir_buffer_reset(&again);
    weir_buffer_reset(&column);
    end(&it);
}

static void e62_closing_an_import_frees_nothing_at_its_source(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer column = ipc_make(&it.here, LENGTH, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    must_ok(remote_open(&it.other, 0, &ticket, WEIR_READ));
    must_ok(remote_close(&it.other, 0));
    remote_trim(&it.other);
    must_equal(statistics_of(it.here.mr).out_blocks, 1);
    check_stamp(it.here.at.device, it.here.at.a, column.data, column.size, KEY);
    weir_buffer_reset(&column);
    end(&it);
}

static void e63_the_length_is_that_of_the_bytes(void **state)
{
    (void)state;
    stage it = begin();
    const size_t items = 1000, item_bytes = sizeof(double);
    weir_buffer column = ipc_make(&it.here, items * item_bytes, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    must_ok(remote_open(&it.other, 0, &ticket, WEIR_READ));
    must_equal(remote_size(&it.other, 0) / item_bytes, items);
    must_ok(remote_close(&it.other, 0));
    weir_buffer_reset(&column);
    end(&it);
}

static void refuses(const stage *it, const char *spec)
{
    weir_resource *mr;
    weir_buffer buffer;
    weir_ticket ticket;
    weir_export_options options = WEIR_EXPORT_OPTIONS_INIT;
    must_ok(weir_resource_open(it->here.at.device, spec, &mr));
    must_ok(weir_buffer_allocate(mr, it->here.at.a, LENGTH, 256, &buffer));
    must_answer(WEIR_NOT_SUPPORTED, weir_ipc_export(&buffer, &options, &ticket));
    options.share_whole_base = true;
    must_answer(WEIR_NOT_SUPPORTED, weir_ipc_export(&buffer, &options, &ticket));
    weir_buffer_reset(&buffer);
    weir_resource_unref(mr);
}

static void e64_pinned_and_managed_memory_are_refused(void **state)
{
    (void)state;
    stage it = begin();
    refuses(&it, "pinned");
    refuses(&it, "managed");
    refuses(&it, "pool/pinned");
    end(&it);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e55_a_ticket_survives_a_list_in_json),
        cmocka_unit_test(e56_a_slice_is_an_offset_and_a_length_in_its_base),
        cmocka_unit_test(e57_data_and_mask_are_two_tickets),
        cmocka_unit_test(e58_closing_is_explicit_and_can_be_repeated),
        cmocka_unit_test(e59_a_ticket_left_after_its_bytes_is_found_out),
        cmocka_unit_test(e60_both_directions_use_one_format),
        cmocka_unit_test(e61_a_write_in_one_process_is_visible_in_the_other),
        cmocka_unit_test(e62_closing_an_import_frees_nothing_at_its_source),
        cmocka_unit_test(e63_the_length_is_that_of_the_bytes),
        cmocka_unit_test(e64_pinned_and_managed_memory_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    return remote_main(argc, argv, run);
}
