/* check_ipc_pool.c - blocks of a driver's pool that other processes open: only with all
 * of the pool, freed there in stream order before they are freed here. */
#include "support_remote.h"

#include <string.h>

#include "weir/async.h"

#define BYTES  ((size_t)65536)
#define BESIDE ((size_t)4096)
#define LOOKS  1000 /* for a wait that is missing to show */
#define KEY    7u

#define POOLED "async(handle_types=posix_fd)"

typedef struct stage {
    ipc_stage here;
    remote other;
    weir_resource *mr;
    weir_buffer beside; /* a neighbour of what is shared */
} stage;

static stage begin(void)
{
    stage it = { .here = ipc_begin(), .other = remote_begin() };
    must_ok(weir_resource_open(it.here.at.device, POOLED, &it.mr));
    must_ok(weir_buffer_allocate(it.mr, it.here.at.a, BESIDE, 256, &it.beside));
    stamp(it.here.at.device, it.here.at.a, it.beside.data, BESIDE, KEY + 99);
    return it;
}

static void end(stage *it)
{
    ipc_settle();
    check_stamp(it->here.at.device, it->here.at.a, it->beside.data, BESIDE, KEY + 99);
    weir_buffer_reset(&it->beside);
    must_ok(weir_device_sync(it->here.at.device));
    must_equal(statistics_of(it->mr).out_blocks, 0);
    weir_resource_unref(it->mr);
    remote_end(&it->other);
    ipc_end(&it->here);
}

static weir_buffer make(stage *it)
{
    weir_buffer made;
    must_ok(weir_buffer_allocate(it->mr, it->here.at.a, BYTES, 256, &made));
    stamp(it->here.at.device, it->here.at.a, made.data, made.size, KEY);
    return made;
}

static weir_ticket export_all(weir_buffer *buffer, weir_access access)
{
    weir_export_options options = WEIR_EXPORT_OPTIONS_INIT;
    weir_ticket ticket;
    options.access = access;
    options.share_whole_base = true;
    must_ok(weir_ipc_export(buffer, &options, &ticket));
    return ticket;
}

static size_t importers(void)
{
    weir_ipc_statistics now = { .struct_size = sizeof now };
    must_ok(weir_ipc_get_statistics(&now));
    return now.importers;
}

/* ---- what can be exported ---- */

static void blocks_want_all_of_the_pool_shared(void **state)
{
    (void)state;
    stage it = begin();
    weir_resource_properties about = { .struct_size = sizeof about };
    weir_buffer column = make(&it), slice;
    weir_ticket ticket;
    weir_ticket_info info = { .struct_size = sizeof info };
    weir_export_options options = WEIR_EXPORT_OPTIONS_INIT;
    must_ok(weir_resource_get_properties(it.mr, &about));
    must_equal(about.share_kind, WEIR_SHARE_POOL);
    must_answer(WEIR_NOT_SUPPORTED, weir_ipc_export(&column, NULL, &ticket));
    must(strstr(weir_last_error().message, "share_whole_base") != NULL);
    options.share_whole_base = options.detached = true;
    must_answer(WEIR_NOT_SUPPORTED, weir_ipc_export(&column, &options, &ticket));

    must_ok(weir_buffer_slice(&column, 1000, 2000, &slice));
    stamp(it.here.at.device, it.here.at.a, slice.data, slice.size, KEY + 1);
    ticket = export_all(&slice, WEIR_READ);
    must_ok(weir_ticket_get_info(&ticket, &info));
    must_equal(info.kind, WEIR_SHARE_POOL);
    must_equal(info.base_bytes, BYTES); /* the block's */
    must_equal(info.offset, 1000);
    must_equal(info.bytes, 2000);
    must_ok(remote_open(&it.other, 0, &ticket, WEIR_READ));
    must_equal(remote_size(&it.other, 0), 2000);
    must_equal(remote_errors(&it.other, 0, KEY + 1), 0);
    must_ok(remote_close(&it.other, 0));
    weir_buffer_reset(&slice);
    weir_buffer_reset(&column);
    end(&it);
}

static void must_not_export(const stage *it, weir_resource *mr)
{
    weir_resource_properties about = { .struct_size = sizeof about };
    weir_buffer buffer;
    weir_ticket ticket;
    weir_export_options options = WEIR_EXPORT_OPTIONS_INIT;
    must_ok(weir_resource_get_properties(mr, &about));
    must_equal(about.share_kind, WEIR_SHARE_NONE);
    must_ok(weir_buffer_allocate(mr, it->here.at.a, BYTES, 256, &buffer));
    options.share_whole_base = true;
    must_answer(WEIR_NOT_SUPPORTED, weir_ipc_export(&buffer, &options, &ticket));
    weir_buffer_reset(&buffer);
}

/* Of a foreign one the driver is asked. */
static void pools_without_handles_are_refused(void **state)
{
    (void)state;
    static const char *const specs[] = { "async", "async(pool=default)",
                                         "pool/async", "async(memory=managed)" };
    stage it = begin();
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    weir_resource *mr, *foreign;
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        must_ok(weir_resource_open(it.here.at.device, specs[i], &mr));
        must_not_export(&it, mr);
        weir_resource_unref(mr);
    }
    must_ok(weir_async_create(it.here.at.device, NULL, &mr));
    options.pool = WEIR_ASYNC_FOREIGN;
    must_ok(weir_async_get_pool(mr, &options.foreign));
    must_ok(weir_async_create(it.here.at.device, &options, &foreign));
    must_not_export(&it, foreign);
    weir_resource_unref(foreign);
    weir_resource_unref(mr);
    end(&it);
}

static void foreign_pools_and_pools_above_are_shared_if_they_can_be(void **state)
{
    (void)state;
    stage it = begin();
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    weir_resource *mrs[2];
    options.pool = WEIR_ASYNC_FOREIGN;
    must_ok(weir_async_get_pool(it.mr, &options.foreign));
    must_ok(weir_async_create(it.here.at.device, &options, &mrs[0]));
    must_ok(weir_resource_open(it.here.at.device, "pool/" POOLED, &mrs[1]));
    for (int i = 0; i < 2; i++) {
        weir_buffer column;
        must_ok(weir_buffer_allocate(mrs[i], it.here.at.a, BYTES, 256, &column));
        stamp(it.here.at.device, it.here.at.a, column.data, column.size, KEY);
        weir_ticket ticket = export_all(&column, WEIR_READ);
        must_ok(remote_open(&it.other, i, &ticket, WEIR_READ));
        must_equal(remote_errors(&it.other, i, KEY), 0);
        must_ok(remote_close(&it.other, i));
        ipc_settle();
        weir_buffer_reset(&column);
        weir_resource_unref(mrs[i]);
    }
    end(&it);
}

/* ---- opening and closing ---- */

/* Each time it is mapped anew: what was closed has been freed. */
static void writes_are_seen_by_who_opens_next(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer column = make(&it), here;
    weir_ticket ticket = export_all(&column, WEIR_WRITE);
    for (uint64_t i = 0; i < 3; i++) {
        must_ok(remote_open(&it.other, 0, &ticket, WEIR_WRITE));
        must_equal(remote_statistics(&it.other).maps, i + 1);
        must_equal(remote_errors(&it.other, 0, KEY + i), 0);
        remote_stamp(&it.other, 0, KEY + i + 1);
        must_ok(remote_close(&it.other, 0));
    }
    must_ok(weir_ipc_open(it.here.at.device, it.here.at.c, &ticket, NULL, &here));
    check_stamp(it.here.at.device, it.here.at.c, here.data, here.size, KEY + 3);
    weir_buffer_reset(&here); /* a share of what is this process's own */
    weir_buffer_reset(&column);
    end(&it);
}

/* What is open is shared; its block is freed with the last buffer. */
static void one_import_serves_several_buffers(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer column = make(&it);
    weir_ticket ticket = export_all(&column, WEIR_READ);
    must_ok(remote_open(&it.other, 0, &ticket, WEIR_READ));
    must_ok(remote_open_on(&it.other, 1, 1, &ticket, WEIR_READ));
    must_equal(remote_statistics(&it.other).maps, 1);
    must_ok(remote_close(&it.other, 0));
    must_equal(remote_errors(&it.other, 1, KEY), 0);
    must_equal(importers(), 1);
    must_ok(remote_close(&it.other, 1));
    ipc_settle();
    weir_buffer_reset(&column);
    end(&it);
}

static void this_process_opens_what_another_made(void **state)
{
    (void)state;
    stage it = begin();
    weir_ticket ticket;
    weir_buffer column;
    remote_make_pooled(&it.other, 0, BYTES, KEY);
    must_ok(remote_export(&it.other, 0, WEIR_WRITE, &ticket));
    weir_open_options options = WEIR_OPEN_OPTIONS_INIT;
    options.access = WEIR_WRITE;
    must_ok(weir_ipc_open(it.here.at.device, it.here.at.b, &ticket, &options, &column));
    check_stamp(it.here.at.device, it.here.at.b, column.data, column.size, KEY);
    stamp(it.here.at.device, it.here.at.b, column.data, column.size, KEY + 1);
    weir_export_options again = WEIR_EXPORT_OPTIONS_INIT;
    weir_ticket none;
    again.share_whole_base = true;
    must_answer(WEIR_NOT_SUPPORTED, weir_ipc_export(&column, &again, &none));
    must_ok(weir_ipc_close(&column, it.here.at.b));
    must_ok(weir_device_sync(it.here.at.device));
    remote_settle(&it.other);
    must_ok(remote_open(&it.other, 1, &ticket, WEIR_READ)); /* behind who has closed */
    must_equal(remote_errors(&it.other, 1, KEY + 1), 0);
    must_ok(remote_close(&it.other, 1));
    remote_reset(&it.other, 0);
    end(&it);
}

/* ---- order ---- */

/* The driver may hand it out at once, but makes those wait who get it. */
static void a_block_is_freed_behind_its_importers(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer column = make(&it);
    weir_ticket ticket = export_all(&column, WEIR_READ);
    must_ok(remote_open(&it.other, 0, &ticket, WEIR_READ));
    remote_hold(&it.other);
    remote_look(&it.other, 0, KEY);
    must_ok(remote_close(&it.other, 0)); /* which waits for nothing */
    must(!remote_is_done(&it.other));
    ipc_settle();
    weir_buffer_reset(&column);
    for (int i = 0; i < 8; i++) {
        weir_buffer next = make(&it);
        stamp(it.here.at.device, it.here.at.a, next.data, next.size, KEY + 1);
        weir_buffer_reset(&next);
    }
    remote_let_go(&it.other);
    remote_sync(&it.other);
    must_equal(remote_all_errors(&it.other), 0);
    end(&it);
}

static void a_killed_importer_is_done_once_it_is_gone(void **state)
{
    (void)state;
    stage it = begin();
    remote other = remote_begin();
    weir_buffer column = make(&it);
    weir_ticket ticket = export_all(&column, WEIR_WRITE);
    must_ok(remote_open(&other, 0, &ticket, WEIR_WRITE));
    remote_hold(&other);
    remote_stamp(&other, 0, KEY + 1);
    remote_kill(&other);
    ipc_settle();
    check_stamp(it.here.at.device, it.here.at.a, column.data, column.size, KEY);
    weir_buffer_reset(&column);
    end(&it);
}

/* ---- what fails where it is open ---- */

static void a_free_that_fails_is_tried_again(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer column = make(&it);
    weir_ticket ticket = export_all(&column, WEIR_READ);
    must_ok(remote_open(&it.other, 0, &ticket, WEIR_READ));
    remote_plan_fault(&it.other, "mempool_free", 1, false, WEIR_DEVICE_ERROR);
    must_ok(remote_close(&it.other, 0)); /* whose host waits, then */
    remote_plan_fault(&it.other, NULL, 0, false, WEIR_OK);
    ipc_settle();
    weir_buffer_reset(&column);
    end(&it);
}

/* The exporter's driver may not have it back before: until that process has ended. */
static void what_is_not_freed_is_kept_from_its_exporter(void **state)
{
    (void)state;
    stage it = begin();
    remote other = remote_begin_careless();
    weir_buffer column = make(&it);
    weir_ticket ticket = export_all(&column, WEIR_READ);
    must_ok(remote_open(&other, 0, &ticket, WEIR_READ));
    remote_plan_fault(&other, "mempool_free", 1, true, WEIR_DEVICE_ERROR);
    must_ok(remote_close(&other, 0));
    weir_buffer_reset(&column);
    for (int i = 0; i < LOOKS; i++)
        must_equal(importers(), 1);
    must_equal(statistics_of(it.mr).out_blocks, 2);
    remote_kill(&other);
    end(&it);
}

static void an_opening_that_fails_frees_what_it_had(void **state)
{
    (void)state;
    static const char *const calls[] = { "shared_open", "shared_event_open",
                                         "shared_event_create", "stream_wait_event" };
    stage it = begin();
    weir_buffer column = make(&it);
    weir_ticket ticket = export_all(&column, WEIR_READ);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        remote_plan_fault(&it.other, calls[i], 1, false, WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR, remote_open(&it.other, 0, &ticket, WEIR_READ));
        remote_plan_fault(&it.other, NULL, 0, false, WEIR_OK);
        ipc_settle();
        must_ok(remote_open(&it.other, 0, &ticket, WEIR_READ));
        must_equal(remote_errors(&it.other, 0, KEY), 0);
        must_ok(remote_close(&it.other, 0));
        ipc_settle();
    }
    weir_buffer_reset(&column);
    end(&it);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_want_all_of_the_pool_shared),
        cmocka_unit_test(pools_without_handles_are_refused),
        cmocka_unit_test(foreign_pools_and_pools_above_are_shared_if_they_can_be),
        cmocka_unit_test(writes_are_seen_by_who_opens_next),
        cmocka_unit_test(one_import_serves_several_buffers),
        cmocka_unit_test(this_process_opens_what_another_made),
        cmocka_unit_test(a_block_is_freed_behind_its_importers),
        cmocka_unit_test(a_killed_importer_is_done_once_it_is_gone),
        cmocka_unit_test(a_free_that_fails_is_tried_again),
        cmocka_unit_test(what_is_not_freed_is_kept_from_its_exporter),
        cmocka_unit_test(an_opening_that_fails_frees_what_it_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    return remote_main(argc, argv, run);
}
