/* check_ipc_order.c - who waits for whom between processes, and until when bytes are
 * kept: also where a process is killed. */
#include "support_remote.h"

#define BYTES ((size_t)65536)
#define KEY   7u

/* After a wait for whoever still uses some. */
static size_t held_bytes(weir_resource *mr)
{
    (void)weir_resource_trim_sync(mr, 0);
    return statistics_of(mr).held_bytes;
}

#define LOOKS 1000 /* for a wait that is missing to show */

static void must_stay_held_there(remote *other)
{
    for (int i = 0; i < LOOKS; i++)
        must(!remote_is_done(other));
}

static void an_importer_waits_for_the_exporters_work(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    uint64_t gate = checklist_hold(it.at.device, it.at.a);
    stamp(it.at.device, it.at.a, column.data, column.size, KEY + 1);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    must_ok(remote_open(&other, 0, &ticket, WEIR_READ));
    remote_look(&other, 0, KEY + 1);
    must_stay_held_there(&other);
    checklist_let_go(it.at.device, gate);
    remote_sync(&other);
    must_equal(remote_all_errors(&other), 0);
    must_ok(remote_close(&other, 0));
    weir_buffer_reset(&column);
    ipc_settle();
    remote_end(&other);
    ipc_end(&it);
}

/* Writers that were noted are waited for, too, and nobody else. */
static void it_waits_for_noted_writers_only(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    must_ok(weir_buffer_wait(&column, it.at.c, WEIR_READ));
    uint64_t reader = checklist_hold(it.at.device, it.at.c);
    check_stamp(it.at.device, it.at.c, column.data, column.size, KEY);
    must_ok(weir_buffer_use(&column, it.at.c, WEIR_READ));
    weir_ticket for_readers = ipc_export(&column, WEIR_READ);
    must_ok(remote_open(&other, 0, &for_readers, WEIR_READ));
    must_equal(remote_errors(&other, 0, KEY), 0);

    must_ok(weir_buffer_wait(&column, it.at.b, WEIR_READ));
    uint64_t writer = checklist_hold(it.at.device, it.at.b);
    must_ok(weir_buffer_use(&column, it.at.b, WEIR_WRITE));
    weir_ticket behind_writer = ipc_export(&column, WEIR_READ);
    must_ok(remote_open_on(&other, 0, 1, &behind_writer, WEIR_READ));
    remote_look(&other, 1, KEY);
    must_stay_held_there(&other);
    checklist_let_go(it.at.device, writer);
    remote_sync(&other);
    checklist_let_go(it.at.device, reader);
    must_ok(remote_close(&other, 0));
    must_ok(remote_close(&other, 1));
    weir_buffer_reset(&column);
    ipc_settle();
    remote_end(&other);
    ipc_end(&it);
}

static void work_that_is_not_behind_the_event_is_found(void **state)
{
    (void)state;
    if (support_is_cuda())
        skip(); /* whose ledger sees no other process */
    ipc_stage it = ipc_begin();
    remote other = remote_begin_careless();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_WRITE);
    must_ok(remote_open_on(&other, 0, 0, &ticket, WEIR_WRITE));
    remote_stamp_on(&other, 0, 0, KEY + 1);
    must_equal(remote_findings(&other), 0);
    must_ok(remote_close(&other, 0));
    must_ok(remote_open_on(&other, 0, 0, &ticket, WEIR_WRITE));
    must_equal(remote_findings(&other), 0);
    must_ok(remote_close(&other, 0));
    weir_ticket again = ipc_export(&column, WEIR_WRITE);
    must_ok(remote_open_on(&other, 0, 1, &again, WEIR_WRITE));
    remote_stamp_on(&other, 1, 1, KEY + 1); /* a stream that waited for nobody */
    must(remote_findings(&other) > 0);
    remote_sync_on(&other, 1); /* nor does who unmaps wait for it */
    remote_reset(&other, 1);
    weir_buffer_reset(&column);
    ipc_settle();
    remote_end(&other);
    weir_resource_unref(it.mr);
    end_stream(it.at.device, it.at.a);
    end_stream(it.at.device, it.at.b);
    end_stream(it.at.device, it.at.c);
    weir_resource_unref(it.at.mr);
    close_anyhow(it.at.device);
}

static void bytes_go_back_behind_the_importers_work(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_WRITE);
    must_ok(remote_open(&other, 0, &ticket, WEIR_WRITE));
    weir_released released = { .struct_size = sizeof released };
    must_answer(WEIR_NOT_OWNED, weir_buffer_release(&column, &released));
    must_answer(WEIR_NOT_OWNED, weir_buffer_resize(&column, 2 * BYTES, it.at.a));
    remote_hold(&other);
    remote_stamp(&other, 0, KEY + 1);
    must_ok(remote_close(&other, 0));
    ipc_settle();
    must_ok(weir_buffer_release(&column, &released));
    check_stamp(it.at.device, released.stream, released.data, released.size, KEY + 1);
    must_stay_undone(it.at.device, released.stream);
    remote_let_go(&other);
    remote_sync(&other);
    must_ok(weir_stream_sync(it.at.device, released.stream));
    must_ok(weir_released_free_sync(it.at.device, &released));
    weir_buffer_reset(&column);
    must_equal(held_bytes(it.mr), 0);
    remote_end(&other);
    ipc_end(&it);
}

/* What is reset while it is open goes back once it is closed, behind that. */
static void bytes_that_are_reset_before_go_back_then(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    must_ok(remote_open(&other, 0, &ticket, WEIR_READ));
    weir_buffer_reset(&column);
    must_equal(statistics_of(it.mr).out_blocks, 1);
    must_equal(remote_errors(&other, 0, KEY), 0);
    must_ok(remote_close(&other, 0));
    ipc_settle();
    must_equal(statistics_of(it.mr).out_blocks, 0);
    must_equal(held_bytes(it.mr), 0);
    remote_end(&other);
    ipc_end(&it);
}

static void who_opens_to_write_is_behind_all_who_have_closed(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote others[3];
    for (unsigned i = 0; i < 3; i++)
        others[i] = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_WRITE);
    for (unsigned i = 0; i < 3; i++) {
        must_ok(remote_open(&others[i], 0, &ticket, WEIR_WRITE));
        if (i == 0)
            remote_hold(&others[0]);
        remote_look(&others[i], 0, KEY + i);
        remote_stamp(&others[i], 0, KEY + i + 1);
        must_ok(remote_close(&others[i], 0)); /* whose message comes before the next */
    }
    must_stay_held_there(&others[2]);
    remote_let_go(&others[0]);
    for (unsigned i = 0; i < 3; i++) {
        remote_sync(&others[i]);
        must_equal(remote_all_errors(&others[i]), 0);
    }
    weir_buffer here;
    must_ok(weir_ipc_open(it.at.device, it.at.c, &ticket, NULL, &here));
    check_stamp(it.at.device, it.at.c, here.data, here.size, KEY + 3);
    weir_buffer_reset(&here);
    weir_buffer_reset(&column);
    for (unsigned i = 0; i < 3; i++)
        remote_end(&others[i]);
    ipc_end(&it);
}

static void four_processes_read_at_once(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote others[3];
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    for (unsigned i = 0; i < 3; i++) {
        others[i] = remote_begin();
        must_ok(remote_open(&others[i], 0, &ticket, WEIR_READ));
    }
    check_stamp(it.at.device, it.at.a, column.data, column.size, KEY);
    weir_ipc_statistics now = { .struct_size = sizeof now };
    must_ok(weir_ipc_get_statistics(&now));
    must_equal(now.importers, 3);
    must_equal(now.exports, 1);
    for (unsigned i = 0; i < 3; i++)
        must_equal(remote_errors(&others[i], 0, KEY), 0);
    weir_buffer_reset(&column); /* they hold it */
    for (unsigned i = 0; i < 3; i++) {
        must_equal(remote_errors(&others[i], 0, KEY), 0);
        must_ok(remote_close(&others[i], 0));
    }
    ipc_settle();
    must_equal(statistics_of(it.mr).out_blocks, 0);
    for (unsigned i = 0; i < 3; i++)
        remote_end(&others[i]);
    ipc_end(&it);
}

static void a_killed_importer_is_done_once_it_is_gone(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_WRITE);
    must_ok(remote_open(&other, 0, &ticket, WEIR_WRITE));
    remote_hold(&other);
    remote_stamp(&other, 0, KEY + 1);
    remote_kill(&other);
    ipc_settle();
    check_stamp(it.at.device, it.at.a, column.data, column.size, KEY);
    weir_buffer_reset(&column);
    must_ok(weir_device_sync(it.at.device));
    must_equal(held_bytes(it.mr), 0);
    ipc_end(&it);
}

/* Killed after it has closed: its event counts as done. */
static void so_is_one_that_had_closed(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    must_ok(remote_open(&other, 0, &ticket, WEIR_READ));
    remote_hold(&other);
    remote_look(&other, 0, KEY);
    must_ok(remote_close(&other, 0));
    ipc_settle();
    weir_buffer_reset(&column);
    must(statistics_of(it.mr).held_bytes > 0);
    remote_kill(&other);
    must_ok(weir_device_sync(it.at.device));
    must_equal(held_bytes(it.mr), 0);
    ipc_end(&it);
}

/* Nobody says that it has closed; it may go on using what it has. */
static void one_that_hangs_up_holds_until_it_is_gone(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    weir_released released = { .struct_size = sizeof released };
    must_ok(remote_open(&other, 0, &ticket, WEIR_READ));
    remote_hang_up(&other);
    remote_pass(&ticket);
    for (int i = 0; i < LOOKS; i++) {
        must_equal(remote_errors(&other, 0, KEY), 0);
        must_answer(WEIR_NOT_OWNED, weir_buffer_release(&column, &released));
    }
    remote_kill(&other);
    ipc_settle();
    must_ok(weir_buffer_release(&column, &released));
    must_ok(weir_released_free_sync(it.at.device, &released));
    weir_buffer_reset(&column);
    ipc_end(&it);
}

static void what_a_dead_exporter_shared_stays_as_it_is(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_ticket ticket;
    weir_buffer column;
    remote_make(&other, 0, BYTES, KEY);
    must_ok(remote_export(&other, 0, WEIR_READ, &ticket));
    must_ok(weir_ipc_open(it.at.device, it.at.b, &ticket, NULL, &column));
    must_ok(weir_ipc_check(&column));
    must_ok(weir_stream_sync(it.at.device, it.at.b));
    remote_kill(&other);
    must_answer(WEIR_PEER_GONE, weir_ipc_check(&column));
    check_stamp(it.at.device, it.at.b, column.data, column.size, KEY);
    weir_buffer again;
    must_answer(WEIR_PEER_GONE,
                weir_ipc_open(it.at.device, it.at.b, &ticket, NULL, &again));
    must(again.storage == NULL);
    must_ok(weir_ipc_close(&column, it.at.b));
    must_answer(WEIR_PEER_GONE,
                weir_ipc_open(it.at.device, it.at.b, &ticket, NULL, &again));
    ipc_end(&it);
}

/* The event that goes back is one for all who have used what is mapped. */
static void who_closes_speaks_for_those_before(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_ticket ticket;
    weir_buffer first, second;
    remote_make(&other, 0, BYTES, KEY);
    must_ok(remote_export(&other, 0, WEIR_READ, &ticket));
    must_ok(weir_ipc_open(it.at.device, it.at.b, &ticket, NULL, &first));
    uint64_t gate = checklist_hold(it.at.device, it.at.b);
    check_stamp(it.at.device, it.at.b, first.data, first.size, KEY);
    must_ok(weir_ipc_close(&first, it.at.b));
    must_ok(weir_ipc_open(it.at.device, it.at.c, &ticket, NULL, &second));
    check_stamp(it.at.device, it.at.c, second.data, second.size, KEY);
    must_not_be_held(it.at.device, it.at.c);
    must_ok(weir_ipc_close(&second, it.at.c));
    must_stay_undone(it.at.device, it.at.c);
    checklist_let_go(it.at.device, gate);
    must_ok(weir_ipc_trim_sync());
    remote_reset(&other, 0);
    remote_end(&other);
    ipc_end(&it);
}

/* What is still open here is behind what was written before the close. */
static void who_closes_has_written(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_ticket ticket;
    weir_buffer first, second;
    weir_open_options options = WEIR_OPEN_OPTIONS_INIT;
    options.access = WEIR_WRITE;
    remote_make(&other, 0, BYTES, KEY);
    must_ok(remote_export(&other, 0, WEIR_WRITE, &ticket));
    must_ok(weir_ipc_open(it.at.device, it.at.a, &ticket, &options, &first));
    must_ok(weir_ipc_open(it.at.device, it.at.a, &ticket, &options, &second));
    must_ok(weir_buffer_wait(&first, it.at.b, WEIR_WRITE));
    uint64_t gate = checklist_hold(it.at.device, it.at.b);
    stamp(it.at.device, it.at.b, first.data, first.size, KEY + 1);
    must_ok(weir_ipc_close(&first, it.at.b));
    must_ok(weir_buffer_wait(&second, it.at.c, WEIR_READ));
    check_stamp(it.at.device, it.at.c, second.data, second.size, KEY + 1);
    must_be_held(it.at.device, it.at.c);
    checklist_let_go(it.at.device, gate);
    must_not_be_held(it.at.device, it.at.c);
    must_ok(weir_ipc_close(&second, it.at.c));
    must_ok(weir_ipc_trim_sync());
    remote_reset(&other, 0);
    remote_end(&other);
    ipc_end(&it);
}

static void an_own_ticket_opens_as_a_share(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY), share;
    uint64_t gate = checklist_hold(it.at.device, it.at.a);
    stamp(it.at.device, it.at.a, column.data, column.size, KEY + 1);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    must_ok(weir_ipc_open(it.at.device, it.at.b, &ticket, NULL, &share));
    must(share.data == column.data && share.storage == column.storage);
    check_stamp(it.at.device, it.at.b, share.data, share.size, KEY + 1);
    must_be_held(it.at.device, it.at.b);
    checklist_let_go(it.at.device, gate);
    must_not_be_held(it.at.device, it.at.b);
    weir_buffer_reset(&column);
    must_ok(weir_ipc_close(&share, it.at.b));
    must_answer(WEIR_NOT_FOUND,
                weir_ipc_open(it.at.device, it.at.b, &ticket, NULL, &share));
    ipc_end(&it);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_importer_waits_for_the_exporters_work),
        cmocka_unit_test(it_waits_for_noted_writers_only),
        cmocka_unit_test(work_that_is_not_behind_the_event_is_found),
        cmocka_unit_test(bytes_go_back_behind_the_importers_work),
        cmocka_unit_test(bytes_that_are_reset_before_go_back_then),
        cmocka_unit_test(who_opens_to_write_is_behind_all_who_have_closed),
        cmocka_unit_test(four_processes_read_at_once),
        cmocka_unit_test(a_killed_importer_is_done_once_it_is_gone),
        cmocka_unit_test(so_is_one_that_had_closed),
        cmocka_unit_test(one_that_hangs_up_holds_until_it_is_gone),
        cmocka_unit_test(what_a_dead_exporter_shared_stays_as_it_is),
        cmocka_unit_test(who_closes_speaks_for_those_before),
        cmocka_unit_test(who_closes_has_written),
        cmocka_unit_test(an_own_ticket_opens_as_a_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    return remote_main(argc, argv, run);
}
