/* check_ipc_refused.c - tickets that open nothing, memory that is not shared, what is
 * kept mapped, and what fails on the way: nothing is held, and nothing is lost. */
#include "support_remote.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BYTES ((size_t)65536)
#define KEY   7u
#define PATIENCE_S 60
#define ROOM_MAX 32

static weir_ipc_statistics now(void)
{
    weir_ipc_statistics it = { .struct_size = sizeof it };
    must_ok(weir_ipc_get_statistics(&it));
    return it;
}

/* A buffer of another process's, for this one to open. */
static weir_ticket make_there(remote *other)
{
    weir_ticket ticket;
    remote_make(other, 0, BYTES, KEY);
    must_ok(remote_export(other, 0, WEIR_READ, &ticket));
    return ticket;
}

static weir_status open_here(ipc_stage *it, const weir_ticket *ticket, weir_buffer *out)
{
    return weir_ipc_open(it->at.device, it->at.b, ticket, NULL, out);
}

/* ---- tickets ---- */

static void a_ticket_for_one_time_opens_once(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote first = remote_begin(), second = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY), here;
    weir_export_options options = WEIR_EXPORT_OPTIONS_INIT;
    weir_ticket ticket;
    options.one_time = true;
    must_ok(weir_ipc_export(&column, &options, &ticket));
    must_ok(remote_open(&first, 0, &ticket, WEIR_READ));
    must_answer(WEIR_NOT_FOUND, remote_open(&first, 1, &ticket, WEIR_READ));
    must_answer(WEIR_NOT_FOUND, remote_open(&second, 0, &ticket, WEIR_READ));
    must_answer(WEIR_NOT_FOUND, open_here(&it, &ticket, &here));
    must_equal(remote_errors(&first, 0, KEY), 0);
    must_ok(remote_close(&first, 0));
    must_answer(WEIR_NOT_FOUND, remote_open(&first, 0, &ticket, WEIR_READ));
    weir_buffer_reset(&column);
    remote_end(&first);
    remote_end(&second);
    ipc_end(&it);
}

static void a_revoked_ticket_keeps_who_has_it_open(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote first = remote_begin(), second = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    weir_ticket other = ipc_export(&column, WEIR_READ);
    must_ok(remote_open(&first, 0, &ticket, WEIR_READ));
    must_ok(weir_ipc_revoke(&ticket));
    must_answer(WEIR_NOT_FOUND, remote_open(&first, 1, &ticket, WEIR_READ));
    must_answer(WEIR_NOT_FOUND, remote_open(&second, 0, &ticket, WEIR_READ));
    must_ok(remote_open(&second, 0, &other, WEIR_READ)); /* which is another */
    must_equal(remote_errors(&first, 0, KEY), 0);
    must_equal(remote_errors(&second, 0, KEY), 0);
    must_ok(remote_close(&first, 0));
    must_ok(remote_close(&second, 0));
    weir_buffer_reset(&column);
    remote_end(&first);
    remote_end(&second);
    ipc_end(&it);
}

/* An importer holds the bytes, as a buffer of the exporter's does. */
static void a_ticket_is_good_while_anybody_holds_the_bytes(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote first = remote_begin(), second = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY), here;
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    must_ok(remote_open(&first, 0, &ticket, WEIR_READ));
    weir_buffer_reset(&column);
    must_ok(remote_open(&second, 0, &ticket, WEIR_READ));
    must_ok(remote_close(&first, 0));
    must_equal(remote_errors(&second, 0, KEY), 0);
    must_ok(open_here(&it, &ticket, &here));
    weir_buffer_reset(&here);
    must_ok(remote_close(&second, 0));
    ipc_settle();
    must_answer(WEIR_NOT_FOUND, remote_open(&first, 0, &ticket, WEIR_READ));
    must_equal(now().exports, 0);
    remote_end(&first);
    remote_end(&second);
    ipc_end(&it);
}

static void who_may_only_read_opens_for_reading(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_ticket ticket = make_there(&other);
    weir_open_options options = WEIR_OPEN_OPTIONS_INIT;
    weir_buffer buffer;
    options.access = WEIR_WRITE;
    must_answer(WEIR_NOT_OWNED, weir_ipc_open(it.at.device, it.at.b, &ticket, &options,
                                              &buffer));
    options.access = (weir_access)7;
    must_answer(WEIR_INVALID_ARGUMENT, weir_ipc_open(it.at.device, it.at.b, &ticket,
                                                     &options, &buffer));
    must_ok(open_here(&it, &ticket, &buffer));
    weir_buffer_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_buffer_get_properties(&buffer, &properties));
    must(properties.read_only && properties.owns && properties.is_alone);
    must(properties.kind == WEIR_MEMORY_DEVICE && properties.device == it.at.device);
    weir_ticket again;
    must_answer(WEIR_NOT_SUPPORTED, weir_ipc_export(&buffer, NULL, &again));
    must_answer(WEIR_NOT_OWNED, weir_buffer_resize(&buffer, 2 * BYTES, it.at.b));
    must_ok(weir_ipc_close(&buffer, it.at.b));
    remote_reset(&other, 0);
    remote_end(&other);
    ipc_end(&it);
}

/* Whatever octet is another: it is no ticket any more, or none that anybody knows. */
static void a_forged_ticket_opens_nothing(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_ticket ticket = make_there(&other);
    uint64_t maps = now().maps;
    for (size_t i = 0; i < WEIR_TICKET_BYTES; i++) {
        weir_ticket forged = ticket;
        weir_buffer buffer;
        forged.octets[i] ^= 1;
        weir_status status = open_here(&it, &forged, &buffer);
        must(status == WEIR_INVALID_ARGUMENT || status == WEIR_NOT_FOUND ||
             status == WEIR_PEER_GONE || status == WEIR_FILE_ERROR ||
             status == WEIR_NOT_SUPPORTED);
        must(buffer.storage == NULL);
    }
    must_equal(now().maps, maps);
    must_equal(now().imports + now().cached, 0);
    remote_reset(&other, 0);
    remote_end(&other);
    ipc_end(&it);
}

static void another_devices_ticket_is_refused(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_ticket ticket = make_there(&other);
    weir_device *second = checklist_open_other();
    weir_buffer buffer;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_ipc_open(second, NULL, &ticket, NULL, &buffer));
    checklist_close(second);
    remote_reset(&other, 0);
    remote_end(&other);
    ipc_end(&it);
}

static void another_users_process_is_refused(void **state)
{
    (void)state;
    if (!support_is_root())
        skip();
    ipc_stage it = ipc_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    remote other = remote_begin_as(12345);
    must_answer(WEIR_FILE_ERROR, remote_open(&other, 0, &ticket, WEIR_READ));
    must_equal(now().importers, 0);
    remote_end(&other);
    weir_buffer_reset(&column);
    ipc_end(&it);
}

/* ---- which memory ---- */

static void pool_blocks_want_to_be_asked_for(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_resource *pool;
    weir_buffer first, second;
    weir_ticket ticket;
    weir_export_options options = WEIR_EXPORT_OPTIONS_INIT;
    must_ok(weir_resource_open(it.at.device, "pool/shareable", &pool));
    must_ok(weir_buffer_allocate(pool, it.at.a, BYTES, 256, &first));
    must_ok(weir_buffer_allocate(pool, it.at.a, BYTES, 256, &second));
    stamp(it.at.device, it.at.a, second.data, second.size, KEY);
    must_answer(WEIR_NOT_SUPPORTED, weir_ipc_export(&second, &options, &ticket));
    options.share_whole_base = true;
    must_ok(weir_ipc_export(&second, &options, &ticket));
    weir_ticket_info info = { .struct_size = sizeof info };
    must_ok(weir_ticket_get_info(&ticket, &info));
    must(info.base_bytes >= 2 * BYTES);
    must_ok(remote_open(&other, 0, &ticket, WEIR_READ));
    must_equal(remote_errors(&other, 0, KEY), 0);
    must_ok(remote_close(&other, 0));
    ipc_settle();
    weir_buffer_reset(&first);
    weir_buffer_reset(&second);
    weir_resource_unref(pool);
    remote_end(&other);
    ipc_end(&it);
}

static void a_detached_ticket_carries_its_handle(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_resource *legacy;
    weir_buffer column, plain = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket;
    weir_export_options options = WEIR_EXPORT_OPTIONS_INIT;
    options.detached = true;
    must_answer(WEIR_NOT_SUPPORTED, weir_ipc_export(&plain, &options, &ticket));
    must_ok(weir_resource_open(it.at.device, "shareable(kind=legacy)", &legacy));
    must_ok(weir_buffer_allocate(legacy, it.at.a, BYTES, 256, &column));
    stamp(it.at.device, it.at.a, column.data, column.size, KEY);
    must_ok(weir_stream_sync(it.at.device, it.at.a)); /* nobody else waits */
    must_ok(weir_ipc_export(&column, &options, &ticket));
    must_equal(now().exports, 0);
    must_answer(WEIR_NOT_FOUND, weir_ipc_revoke(&ticket));
    must_ok(remote_open(&other, 0, &ticket, WEIR_READ));
    must_equal(remote_size(&other, 0), BYTES);
    must_equal(remote_errors(&other, 0, KEY), 0);
    must_ok(remote_check(&other, 0));
    must_ok(remote_close(&other, 0));
    must_equal(remote_statistics(&other).cached, 0);
    weir_buffer_reset(&column);
    weir_buffer_reset(&plain);
    weir_resource_unref(legacy);
    remote_end(&other);
    ipc_end(&it);
}

static void nothing_but_whole_buffers_is_exported(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY), view, none;
    weir_ticket ticket, zero = { { 0 } };
    weir_export_options options = WEIR_EXPORT_OPTIONS_INIT;
    must_ok(weir_buffer_view(column.data, BYTES, it.at.a, &view));
    must_answer(WEIR_NOT_OWNED, weir_ipc_export(&view, NULL, &ticket));
    must_answer(WEIR_NOT_OWNED, weir_ipc_close(&view, it.at.a));
    must_ok(weir_buffer_init(it.mr, it.at.a, &none));
    must_answer(WEIR_NOT_OWNED, weir_ipc_export(&none, NULL, &ticket));
    weir_buffer_reset(&none);
    must_ok(weir_buffer_slice(&column, 0, 0, &none));
    must_answer(WEIR_INVALID_ARGUMENT, weir_ipc_export(&none, NULL, &ticket));
    weir_buffer_reset(&none);
    options.access = (weir_access)3;
    must_answer(WEIR_INVALID_ARGUMENT, weir_ipc_export(&column, &options, &ticket));
    must_answer(WEIR_INVALID_ARGUMENT, weir_ipc_export(&column, NULL, NULL));
    must_answer(WEIR_INVALID_ARGUMENT, weir_ipc_export(NULL, NULL, &ticket));
    must(memcmp(&ticket, &zero, sizeof zero) == 0);
    must_answer(WEIR_INVALID_ARGUMENT, open_here(&it, &zero, &none));
    must_answer(WEIR_INVALID_ARGUMENT, weir_ipc_revoke(NULL));
    must_answer(WEIR_INVALID_ARGUMENT, weir_ipc_revoke(&zero));
    weir_buffer_reset(&column);
    ipc_end(&it);
}

/* ---- what is kept ---- */

static void what_was_closed_is_not_mapped_again(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_ticket ticket = make_there(&other);
    uint64_t maps = now().maps;
    weir_buffer first, second, slice;
    must_ok(open_here(&it, &ticket, &first));
    must_ok(open_here(&it, &ticket, &second)); /* shares it */
    must(first.data == second.data);
    must_ok(weir_buffer_slice(&first, 16, 16, &slice));
    must_equal(now().imports, 1);
    must_equal(remote_statistics(&other).importers, 1);
    must_ok(weir_ipc_close(&first, it.at.b));
    must_ok(weir_ipc_close(&second, it.at.c));
    must_equal(remote_statistics(&other).importers, 1); /* the slice holds it */
    weir_buffer_reset(&slice);
    must_equal(now().imports, 0);
    for (int i = 0; i < 3; i++) {
        must_ok(open_here(&it, &ticket, &first));
        check_stamp(it.at.device, it.at.b, first.data, first.size, KEY);
        must_equal(remote_statistics(&other).importers, 1);
        must_ok(weir_ipc_close(&first, it.at.b));
    }
    must_equal(now().maps, maps + 1);
    must(now().cached_bytes >= BYTES);
    must_ok(weir_ipc_trim_sync());
    must_equal(now().cached, 0);
    must_ok(open_here(&it, &ticket, &first));
    must_equal(now().maps, maps + 2);
    must_ok(weir_ipc_close(&first, it.at.b));
    remote_reset(&other, 0);
    remote_end(&other);
    ipc_end(&it);
}

/* Claims that nothing is cached any more, soon. */
static void must_forget(void)
{
    for (time_t end = time(NULL) + PATIENCE_S; time(NULL) <= end && now().cached > 0;)
        sched_yield();
    must_equal(now().cached, 0);
}

static void what_is_over_is_unmapped(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_ticket ticket = make_there(&other);
    weir_buffer buffer;
    must_ok(open_here(&it, &ticket, &buffer));
    must_ok(weir_ipc_close(&buffer, it.at.b));
    remote_reset(&other, 0); /* its bytes are given back */
    must_forget();
    ticket = make_there(&other);
    must_ok(open_here(&it, &ticket, &buffer));
    must_ok(weir_ipc_close(&buffer, it.at.b));
    remote_kill(&other);
    must_forget();
    ipc_end(&it);
}

static void what_nobody_opens_again_is_unmapped_some_time(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_ticket ticket = make_there(&other);
    weir_buffer buffer;
    must_ok(open_here(&it, &ticket, &buffer));
    must_ok(weir_ipc_close(&buffer, it.at.b));
    must_forget();
    remote_reset(&other, 0);
    remote_end(&other);
    ipc_end(&it);
}

/* ---- what fails ---- */

/* This process may have `count` more descriptors than it has. */
static void leave_room_for(rlim_t count, const struct rlimit *usual)
{
    struct rlimit limit = *usual;
    int next[ROOM_MAX + 1]; /* which need not follow each other */
    for (rlim_t i = 0; i <= count; i++)
        must((next[i] = dup(STDIN_FILENO)) >= 0);
    limit.rlim_cur = (rlim_t)next[count];
    for (rlim_t i = 0; i <= count; i++)
        must(close(next[i]) == 0);
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* Those of the connection are this process's, those of what is shared the device's. */
static void an_import_needs_descriptors(void **state)
{
    (void)state;
    if (support_is_cuda())
        return; /* what a driver answers is its own */
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_ticket ticket = make_there(&other);
    weir_buffer buffer;
    struct rlimit usual;
    must(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    weir_status status = WEIR_FILE_ERROR;
    for (rlim_t room = 0; status != WEIR_OK; room++) {
        must(room <= ROOM_MAX);
        leave_room_for(room, &usual);
        status = open_here(&it, &ticket, &buffer);
        must(setrlimit(RLIMIT_NOFILE, &usual) == 0);
        must(status == WEIR_FILE_ERROR || (room > 0 && status == WEIR_DEVICE_ERROR) ||
             (room > 0 && status == WEIR_OK));
    }
    must_ok(weir_ipc_close(&buffer, it.at.b));
    remote_reset(&other, 0);
    remote_end(&other);
    ipc_end(&it);
}

/* The exporter does not take it for open where the importer failed. */
static void an_import_that_fails_is_not_held(void **state)
{
    (void)state;
    static const char *const calls[] = { "shared_open", "shared_event_open",
                                         "shared_event_create", "stream_wait_event" };
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        remote_plan_fault(&other, calls[i], 1, false, WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR, remote_open(&other, 0, &ticket, WEIR_READ));
        remote_plan_fault(&other, NULL, 0, false, WEIR_OK);
        ipc_settle();
        must_ok(weir_buffer_resize(&column, BYTES / 2, it.at.a));
        must_ok(weir_buffer_resize(&column, BYTES, it.at.a));
    }
    must_ok(remote_open(&other, 0, &ticket, WEIR_READ));
    must_equal(remote_errors(&other, 0, KEY), 0);
    must_ok(remote_close(&other, 0));
    weir_buffer_reset(&column);
    remote_end(&other);
    ipc_end(&it);
}

static void open_in_vain(ipc_stage *it, remote *other, const weir_ticket *ticket)
{
    weir_open_options hasty = WEIR_OPEN_OPTIONS_INIT;
    weir_buffer column;
    hasty.timeout_ms = 20;
    int how;
    must(kill(other->process.pid, SIGSTOP) == 0);
    must(waitpid(other->process.pid, &how, WUNTRACED) > 0 && WIFSTOPPED(how));
    must_answer(WEIR_PEER_GONE,
                weir_ipc_open(it->at.device, it->at.a, ticket, &hasty, &column));
    must(strstr(weir_last_error().message, "did not answer in 20 ms") != NULL);
    must_ok(weir_ipc_trim_sync());
    must(kill(other->process.pid, SIGCONT) == 0);
    must_ok(open_here(it, ticket, &column)); /* it has come to this, and so to that */
    must_ok(weir_ipc_close(&column, it->at.b));
    must_ok(weir_device_sync(it->at.device)); /* whose work waits for the other's */
    remote_settle(other);
}

/* Nor where the exporter answers too late: the first time, and again. */
static void an_answer_that_comes_too_late_holds_nothing(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_ticket ticket = make_there(&other);
    open_in_vain(&it, &other, &ticket);
    open_in_vain(&it, &other, &ticket);
    remote_reset(&other, 0);
    remote_end(&other);
    ipc_end(&it);
}

static void an_export_that_fails_leaves_nothing(void **state)
{
    (void)state;
    static const char *const calls[] = { "shared_event_create", "event_record",
                                         "shared_find" };
    const size_t count = support_is_cuda() ? 2 : 3; /* which knows what it has mapped */
    ipc_stage it = ipc_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket;
    for (size_t i = 0; i < count; i++) {
        plan_fault(it.at.device, calls[i], 1, false, WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR, weir_ipc_export(&column, NULL, &ticket));
        plan_fault(it.at.device, NULL, 0, false, WEIR_OK);
        must_equal(now().exports, 0);
    }
    weir_buffer_reset(&column);
    ipc_end(&it);
}

/* What the exporter cannot send is not open either. */
static void an_exporter_that_fails_says_so(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    plan_fault(it.at.device, "shared_export", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, remote_open(&other, 0, &ticket, WEIR_READ));
    plan_fault(it.at.device, NULL, 0, false, WEIR_OK);
    must_equal(now().importers, 0);
    must_ok(remote_open(&other, 0, &ticket, WEIR_READ));
    must_ok(remote_close(&other, 0));
    weir_buffer_reset(&column);
    remote_end(&other);
    ipc_end(&it);
}

/* Where the importer's event cannot be recorded its host waits. */
static void a_close_without_an_event_waits_on_the_host(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_WRITE);
    must_ok(remote_open(&other, 0, &ticket, WEIR_WRITE));
    remote_stamp(&other, 0, KEY + 1);
    remote_plan_fault(&other, "event_record", 1, true, WEIR_DEVICE_ERROR);
    remote_reset(&other, 0);
    must(remote_is_done(&other));
    remote_plan_fault(&other, NULL, 0, false, WEIR_OK);
    ipc_settle();
    must_ok(weir_device_sync(it.at.device));
    weir_buffer_reset(&column);
    remote_end(&other);
    ipc_end(&it);
}

static void in_a_forks_child_all_is_refused(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_ticket ticket = make_there(&other), own;
    weir_buffer import, column = ipc_make(&it, BYTES, KEY);
    own = ipc_export(&column, WEIR_READ);
    must_ok(open_here(&it, &ticket, &import));
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        weir_buffer buffer;
        weir_ipc_statistics statistics = { sizeof statistics, .maps = 1 };
        bool refused = weir_ipc_export(&column, NULL, &own) == WEIR_FORKED &&
                       open_here(&it, &ticket, &buffer) == WEIR_FORKED &&
                       weir_ipc_close(&import, it.at.b) == WEIR_FORKED &&
                       weir_ipc_revoke(&own) == WEIR_FORKED &&
                       weir_ipc_trim_sync() == WEIR_FORKED &&
                       weir_ipc_check(&import) == WEIR_FORKED &&
                       weir_ipc_get_statistics(&statistics) == WEIR_FORKED;
        weir_buffer_reset(&import);
        pid_t grandchild = fork(); /* and a child may have children */
        if (grandchild == 0)
            _exit(0);
        refused = refused && waitpid(grandchild, NULL, 0) == grandchild;
        _exit(refused && statistics.maps == 0 ? 0 : 1);
    }
    int status;
    must(waitpid(child, &status, 0) == child);
    must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    must_equal(remote_statistics(&other).importers, 1);
    check_stamp(it.at.device, it.at.b, import.data, import.size, KEY);
    must_ok(weir_ipc_close(&import, it.at.b));
    must_ok(remote_open(&other, 1, &own, WEIR_READ));
    must_ok(remote_close(&other, 1));
    weir_buffer_reset(&column);
    remote_reset(&other, 0);
    remote_end(&other);
    ipc_end(&it);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ticket_for_one_time_opens_once),
        cmocka_unit_test(a_revoked_ticket_keeps_who_has_it_open),
        cmocka_unit_test(a_ticket_is_good_while_anybody_holds_the_bytes),
        cmocka_unit_test(who_may_only_read_opens_for_reading),
        cmocka_unit_test(a_forged_ticket_opens_nothing),
        cmocka_unit_test(another_devices_ticket_is_refused),
        cmocka_unit_test(another_users_process_is_refused),
        cmocka_unit_test(pool_blocks_want_to_be_asked_for),
        cmocka_unit_test(a_detached_ticket_carries_its_handle),
        cmocka_unit_test(nothing_but_whole_buffers_is_exported),
        cmocka_unit_test(what_was_closed_is_not_mapped_again),
        cmocka_unit_test(what_is_over_is_unmapped),
        cmocka_unit_test(what_nobody_opens_again_is_unmapped_some_time),
        cmocka_unit_test(an_import_needs_descriptors),
        cmocka_unit_test(an_import_that_fails_is_not_held),
        cmocka_unit_test(an_answer_that_comes_too_late_holds_nothing),
        cmocka_unit_test(an_export_that_fails_leaves_nothing),
        cmocka_unit_test(an_exporter_that_fails_says_so),
        cmocka_unit_test(a_close_without_an_event_waits_on_the_host),
        cmocka_unit_test(in_a_forks_child_all_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    return remote_main(argc, argv, run);
}
