/* check_ipc_waits.c - waits between processes that only show where messages meet, or
 * where there is no event to wait for. */
#include "support_remote.h"

#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "ipc_internal.h"
#include "weir/host.h"

#define BYTES ((size_t)65536)
#define KEY    7u
#define ROUNDS 20  /* of a race that is lost nearly always */
#define LOOKS 1000 /* for a wait that is missing to show */
#define PATIENCE_S 60

static uint64_t importers(void)
{
    weir_ipc_statistics now = { .struct_size = sizeof now };
    must_ok(weir_ipc_get_statistics(&now));
    return now.importers;
}

static void wait_for_importers(uint64_t count)
{
    while (importers() != count)
        sched_yield();
}

/* ---- who writes next is behind all before ---- */

/* Two read at once; the one that closes last is done first. */
static void who_writes_is_behind_all_who_have_read(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote slow = remote_begin(), quick = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_WRITE);
    must_ok(remote_open(&slow, 0, &ticket, WEIR_READ));
    must_ok(remote_open(&quick, 0, &ticket, WEIR_READ));
    remote_hold(&slow);
    remote_look(&slow, 0, KEY);
    must_ok(remote_close(&slow, 0));
    wait_for_importers(1);
    must_ok(remote_close(&quick, 0));
    wait_for_importers(0);
    must_ok(remote_open(&quick, 0, &ticket, WEIR_WRITE));
    remote_stamp(&quick, 0, KEY + 1);
    must(!remote_is_done(&quick));
    remote_let_go(&slow);
    remote_sync(&quick);
    must_equal(remote_all_errors(&slow), 0);
    must_ok(remote_close(&quick, 0));
    weir_buffer_reset(&column);
    ipc_settle();
    remote_end(&slow);
    remote_end(&quick);
    ipc_end(&it);
}

/* Whether a connection that has nothing open has something to say. */
static bool is_asked(void)
{
    const weir__connection *c = weir__ipc_all.connections;
    for (; c != NULL; c = c->next) {
        struct pollfd one = { .fd = c->fd, .events = POLLIN };
        if (!c->is_open && poll(&one, 1, 0) == 1)
            return true;
    }
    return false;
}

/* `slow` closes and `quick` asks to open, while the service cannot look. */
static void close_and_open_at_once(remote *slow, remote *quick,
                                   const weir_ticket *ticket)
{
    weir__mutex_lock(&weir__ipc_all.lock);
    weir__ipc_wake(); /* it goes as far as the lock */
    must_ok(remote_close(slow, 0));
    remote_ask_to_open(quick, 0, ticket, WEIR_WRITE);
    while (!is_asked())
        sched_yield();
    weir__mutex_unlock(&weir__ipc_all.lock);
    must_ok(remote_answered(quick));
}

static void who_opens_is_behind_what_was_sent_before(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote slow = remote_begin(), quick = remote_begin(); /* whose turn is first */
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_WRITE);
    must_ok(remote_open(&slow, 0, &ticket, WEIR_WRITE));
    must_ok(remote_close(&slow, 0));
    must_ok(remote_open(&quick, 0, &ticket, WEIR_WRITE));
    must_ok(remote_close(&quick, 0));
    for (unsigned i = 0; i < ROUNDS; i++) {
        wait_for_importers(0);
        must_ok(remote_open(&slow, 0, &ticket, WEIR_WRITE));
        remote_hold(&slow);
        remote_look(&slow, 0, KEY + i);
        remote_stamp(&slow, 0, KEY + i + 1);
        close_and_open_at_once(&slow, &quick, &ticket);
        remote_look(&quick, 0, KEY + i + 1);
        must(!remote_is_done(&quick));
        remote_let_go(&slow);
        remote_sync(&quick);
        must_ok(remote_close(&quick, 0));
    }
    must_equal(remote_all_errors(&slow), 0);
    must_equal(remote_all_errors(&quick), 0);
    weir_buffer_reset(&column);
    ipc_settle();
    remote_end(&slow);
    remote_end(&quick);
    ipc_end(&it);
}

/* ---- who opens on the service's thread ---- */

typedef struct opening {
    ipc_stage *on;
    weir_buffer lent;    /* what the deleter is for */
    weir_ticket over;    /* of that */
    weir_ticket ticket;
    atomic_bool is_done;
} opening;

static void open_another(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    opening *self = context;
    weir_buffer buffer;
    weir_open_options options = WEIR_OPEN_OPTIONS_INIT;
    (void)ptr;
    (void)bytes;
    must_ok(weir_buffer_use(&self->lent, stream, WEIR_WRITE));
    weir_buffer_reset(&self->lent);
    must_answer(WEIR_NOT_FOUND, weir_ipc_open(self->on->at.device, self->on->at.b,
                                              &self->over, NULL, &buffer));
    options.access = WEIR_WRITE;
    must_ok(weir_ipc_open(self->on->at.device, self->on->at.b, &self->ticket, &options,
                          &buffer));
    check_stamp(self->on->at.device, self->on->at.b, buffer.data, buffer.size, KEY + 1);
    weir_buffer_reset(&buffer);
    atomic_store(&self->is_done, true);
}

/* `reader` opens it, and is the last that holds it. */
static void lend(opening *then, remote *reader)
{
    weir_buffer lent;
    const checklist_stage *at = &then->on->at;
    weir_foreign foreign = WEIR_FOREIGN_INIT;
    weir_export_options options = WEIR_EXPORT_OPTIONS_INIT;
    foreign.ptr = then->lent.data;
    foreign.bytes = BYTES;
    foreign.deleter = open_another;
    foreign.context = then;
    options.share_whole_base = true;
    must_ok(weir_buffer_adopt(at->device, at->a, &foreign, &lent));
    must_ok(weir_ipc_export(&lent, &options, &then->over));
    must_ok(remote_open(reader, 0, &then->over, WEIR_READ));
    weir_buffer_reset(&lent);
}

/* That thread ends foreign bytes if an importer is the last who holds them; and it is
 * the one that hears who has closed before an own ticket is opened. It looks first at
 * who has come last: the reader. */
static void a_deleter_opens_a_ticket_on_the_services_thread(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote writer = remote_begin(), reader = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    opening then = { .on = &it, .lent = ipc_make(&it, BYTES, KEY),
                     .ticket = ipc_export(&column, WEIR_WRITE) };
    must_ok(remote_open(&writer, 0, &then.ticket, WEIR_WRITE));
    lend(&then, &reader);
    remote_hold(&writer);
    remote_stamp(&writer, 0, KEY + 1);
    weir__mutex_lock(&weir__ipc_all.lock);
    weir__ipc_wake(); /* the service goes as far as the lock */
    must_ok(remote_close(&writer, 0));
    must_ok(remote_close(&reader, 0));
    weir__mutex_unlock(&weir__ipc_all.lock);
    for (time_t end = time(NULL) + PATIENCE_S; time(NULL) <= end && !then.is_done;)
        sched_yield();
    must(then.is_done);
    must_stay_undone(it.at.device, it.at.b);
    remote_let_go(&writer);
    must_ok(weir_stream_sync(it.at.device, it.at.b));
    weir_buffer_reset(&column);
    ipc_settle();
    remote_end(&writer);
    remote_end(&reader);
    ipc_end(&it);
}

/* ---- who closes on another stream ---- */

static void bytes_go_back_behind_the_stream_that_closes(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    weir_released released = { .struct_size = sizeof released };
    must_ok(remote_open_on(&other, 1, 0, &ticket, WEIR_READ));
    remote_sync_on(&other, 1);
    remote_hold(&other);
    remote_look(&other, 0, KEY);
    must_ok(remote_close(&other, 0)); /* on stream 0, as what was before */
    ipc_settle();
    must_ok(weir_buffer_release(&column, &released));
    must_stay_undone(it.at.device, released.stream);
    remote_let_go(&other);
    remote_sync(&other);
    must_equal(remote_all_errors(&other), 0);
    must_ok(weir_released_free_sync(it.at.device, &released));
    weir_buffer_reset(&column);
    remote_end(&other);
    ipc_end(&it);
}

/* What a ticket without an exporter shows stays mapped while it is used. */
static void detached_bytes_stay_while_they_are_used(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_resource *legacy;
    weir_buffer column;
    weir_ticket ticket;
    weir_export_options options = WEIR_EXPORT_OPTIONS_INIT;
    options.detached = true;
    must_ok(weir_resource_open(it.at.device, "shareable(kind=legacy)", &legacy));
    must_ok(weir_buffer_allocate(legacy, it.at.a, BYTES, 256, &column));
    stamp(it.at.device, it.at.a, column.data, column.size, KEY);
    must_ok(weir_stream_sync(it.at.device, it.at.a));
    must_ok(weir_ipc_export(&column, &options, &ticket));
    must_ok(remote_open(&other, 0, &ticket, WEIR_READ));
    remote_hold(&other);
    remote_look(&other, 0, KEY);
    must_ok(remote_close(&other, 0));
    remote_let_go(&other);
    remote_sync(&other);
    must_equal(remote_all_errors(&other), 0);
    remote_end(&other);
    weir_buffer_reset(&column);
    weir_resource_unref(legacy);
    ipc_end(&it);
}

/* Nor are they more than was asked for, nor anybody's to write. */
static void detached_bytes_are_for_reading(void **state)
{
    (void)state;
    static const unsigned char one = 1;
    if (support_is_cuda())
        skip(); /* which opens no handle of its own process */
    ipc_stage it = ipc_begin();
    weir_resource *legacy;
    weir_buffer column, opened;
    weir_ticket ticket;
    weir_export_options options = WEIR_EXPORT_OPTIONS_INIT;
    weir_open_options to_write = WEIR_OPEN_OPTIONS_INIT;
    options.detached = true;
    options.access = to_write.access = WEIR_WRITE;
    must_ok(weir_resource_open(it.at.device, "shareable(kind=legacy)", &legacy));
    must_ok(weir_buffer_allocate(legacy, it.at.a, BYTES, 256, &column));
    must_ok(weir_ipc_export(&column, &options, &ticket));
    for (int writes = 0; writes < 2; writes++) {
        weir_buffer_properties about = { .struct_size = sizeof about };
        must_ok(weir_ipc_open(it.at.device, it.at.b, &ticket,
                              writes ? &to_write : NULL, &opened));
        must_ok(weir_buffer_get_properties(&opened, &about));
        must(about.read_only == !writes);
        if (!writes)
            must_answer(WEIR_NOT_SUPPORTED,
                        weir_buffer_from_host_sync(&opened, it.at.b, 0, 1, &one));
        must_ok(weir_ipc_close(&opened, it.at.b));
        must_ok(weir_device_drain_sync(it.at.device));
    }
    weir_buffer_reset(&column);
    weir_resource_unref(legacy);
    ipc_end(&it);
}

/* ---- captured streams ---- */

/* What is told to another process does not run in a graph: a captured stream is left
 * as it is. */
static void captured_streams_are_refused(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_ticket ticket, there;
    weir_buffer opened, column = ipc_make(&it, BYTES, KEY);
    size_t captured;
    remote_make(&other, 0, BYTES, KEY);
    must_ok(remote_export(&other, 0, WEIR_READ, &there));
    weir_ticket here = ipc_export(&column, WEIR_READ);

    must_ok(weir_emulated_capture_begin(it.at.device, it.at.a));
    must_answer(WEIR_CAPTURING, weir_ipc_export(&column, NULL, &ticket));
    must_answer(WEIR_CAPTURING,
                weir_ipc_open(it.at.device, it.at.a, &here, NULL, &opened));
    must_answer(WEIR_CAPTURING,
                weir_ipc_open(it.at.device, it.at.a, &there, NULL, &opened));
    must(opened.data == NULL && opened.storage == NULL);
    must_equal(remote_statistics(&other).importers, 0);
    must_ok(weir_emulated_capture_end(it.at.device, it.at.a, &captured));
    must_equal(captured, 0);
    weir_buffer_reset(&column);
    remote_settle(&other);
    remote_reset(&other, 0);
    remote_end(&other);
    ipc_end(&it);
}

/* ---- who asks for nothing ---- */

/* He has not the patience of those who wait for an answer, and they have more. */
static void who_asks_for_nothing_is_sent_away(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    const int usual = atomic_exchange(&weir__ipc_silent_ms, 20);
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    weir__ticket says;
    weir__peer_process peer;
    weir__message message;
    int fd;
    must_ok(weir__ticket_read(&ticket, &says));
    must_ok(weir__socket_connect(&says, &peer, &fd));
    must_answer(WEIR_PEER_GONE, weir__socket_receive(fd, &peer, 2000, &message));
    must(close(fd) == 0);
    weir__peer_close(&peer);
    atomic_store(&weir__ipc_silent_ms, usual);
    weir_buffer_reset(&column);
    ipc_end(&it);
}

/* ---- without an event ---- */

/* The exporter's host waits. */
static void an_export_without_an_event_is_behind_its_stream(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_export_options options = WEIR_EXPORT_OPTIONS_INIT;
    weir_ticket ticket;
    plan_fault(it.at.device, "shared_event_create", 1, true, WEIR_NOT_SUPPORTED);
    if (checklist_is_stepped()) {
        uint64_t gate = checklist_hold(it.at.device, it.at.a);
        must_answer(WEIR_DEVICE_ERROR, weir_ipc_export(&column, &options, &ticket));
        checklist_let_go(it.at.device, gate);
    }
    must_ok(weir_ipc_export(&column, &options, &ticket));
    must_not_be_held(it.at.device, it.at.a);
    plan_fault(it.at.device, NULL, 0, false, WEIR_OK);
    weir_buffer_reset(&column);
    ipc_end(&it);
}

/* Who closes waits; if it cannot, its process's end is what is waited for. */
static void a_close_without_an_event_is_behind_its_stream(void **state)
{
    (void)state;
    if (!checklist_is_stepped())
        return; /* the wait would not end */
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    must_ok(remote_open(&other, 0, &ticket, WEIR_READ));
    remote_hold(&other);
    remote_look(&other, 0, KEY);
    remote_plan_fault(&other, "event_record", 1, true, WEIR_DEVICE_ERROR);
    remote_reset(&other, 0);
    remote_pass(&ticket);
    must_equal(importers(), 1);
    remote_kill(&other);
    ipc_settle();
    weir_buffer_reset(&column);
    ipc_end(&it);
}

/* Where no stream of the exporter's can wait for an importer's event, its host does. */
static void a_close_is_not_done_before_its_event(void **state)
{
    (void)state;
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket ticket = ipc_export(&column, WEIR_READ);
    must_ok(remote_open(&other, 0, &ticket, WEIR_READ));
    remote_hold(&other);
    remote_look(&other, 0, KEY);
    plan_fault(it.at.device, "stream_wait_event", 1, false, WEIR_DEVICE_ERROR);
    must_ok(remote_close(&other, 0));
    for (int i = 0; i < LOOKS; i++) {
        must(!remote_is_done(&other));
        must_equal(importers(), 1);
    }
    remote_let_go(&other);
    remote_sync(&other);
    ipc_settle();
    weir_buffer_reset(&column);
    remote_end(&other);
    ipc_end(&it);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_writes_is_behind_all_who_have_read),
        cmocka_unit_test(who_opens_is_behind_what_was_sent_before),
        cmocka_unit_test(a_deleter_opens_a_ticket_on_the_services_thread),
        cmocka_unit_test(bytes_go_back_behind_the_stream_that_closes),
        cmocka_unit_test(detached_bytes_stay_while_they_are_used),
        cmocka_unit_test(detached_bytes_are_for_reading),
        cmocka_unit_test(captured_streams_are_refused),
        cmocka_unit_test(who_asks_for_nothing_is_sent_away),
        cmocka_unit_test(an_export_without_an_event_is_behind_its_stream),
        cmocka_unit_test(a_close_without_an_event_is_behind_its_stream),
        cmocka_unit_test(a_close_is_not_done_before_its_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    return remote_main(argc, argv, run);
}
