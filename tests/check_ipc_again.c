/* check_ipc_again.c - tickets that are opened again while what was opened before is not
 * quite over: it is kept by nobody and not ended, or another thread opens it just then,
 * or an answer comes too late; and tickets that are made again and again. */
#include "support_remote.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc_internal.h"
#include "support_dlpack.h"
#include "support_shared.h"

#define BYTES ((size_t)65536)
#define KEY   7u
#define LOOKS 1000 /* for what is ended too early to show */

static weir_ipc_statistics now(void)
{
    weir_ipc_statistics it = { .struct_size = sizeof it };
    must_ok(weir_ipc_get_statistics(&it));
    return it;
}

typedef struct stage {
    ipc_stage here;
    remote other;
    weir_ticket ticket; /* of its buffer 0 */
} stage;

static stage begin(void)
{
    stage it = { .here = ipc_begin(), .other = remote_begin() };
    remote_make(&it.other, 0, BYTES, KEY);
    must_ok(remote_export(&it.other, 0, WEIR_READ, &it.ticket));
    return it;
}

static void end(stage *it)
{
    remote_settle(&it->other);
    remote_reset(&it->other, 0);
    remote_end(&it->other);
    ipc_end(&it->here);
}

static weir_status open_here(stage *it, weir_buffer *out)
{
    return weir_ipc_open(it->here.at.device, it->here.at.b, &it->ticket, NULL, out);
}

/* ---- what nobody holds, and nothing has ended ---- */

/* The import that is left is not waited for: it is mapped once more. */
static void must_open_anew(stage *it)
{
    weir_buffer again;
    uint64_t maps = now().maps;
    must_ok(open_here(it, &again));
    must_equal(now().maps, maps + 1);
    check_stamp(it->here.at.device, it->here.at.b, again.data, again.size, KEY);
    must_ok(weir_ipc_close(&again, it->here.at.b));
}

static void what_was_released_is_opened_again(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer first;
    weir_released released = { .struct_size = sizeof released };
    must_ok(open_here(&it, &first));
    must_ok(weir_buffer_release(&first, &released));
    must_open_anew(&it);
    must_ok(weir_released_free_sync(it.here.at.device, &released));
    end(&it);
}

/* A consumer without a stream has left work behind that nobody can name. */
static void what_is_in_limbo_is_opened_again(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer first;
    const int64_t none = -1;
    weir_dlpack_request request = ask(&none, WEIR_READ);
    must_ok(open_here(&it, &first));
    weir_dlpack tensor = must_export(&first, &request);
    weir_dlpack_delete(tensor);
    uint64_t gate = checklist_hold(it.here.at.device, it.here.at.a);
    must_ok(weir_ipc_close(&first, it.here.at.b));
    must_open_anew(&it);
    checklist_let_go(it.here.at.device, gate);
    must_ok(weir_device_drain_sync(it.here.at.device));
    end(&it);
}

typedef struct opener {
    stage *on;
    weir_stream stream;
    weir_status status;
    weir_buffer buffer;
} opener;

static void *opens(void *argument)
{
    opener *self = argument;
    self->status = weir_ipc_open(self->on->here.at.device, self->stream,
                                 &self->on->ticket, NULL, &self->buffer);
    return NULL;
}

static pthread_t opener_begin(opener *self)
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, opens, self) == 0);
    return thread;
}

/* Nobody can ask the stream of a thread that has ended. */
static void what_was_opened_on_a_threads_stream_is_opened_again(void **state)
{
    (void)state;
    stage it = begin();
    opener first = { .on = &it, .stream = WEIR_STREAM_PER_THREAD };
    must(pthread_join(opener_begin(&first), NULL) == 0);
    must_ok(first.status);
    must_ok(weir_ipc_close(&first.buffer, it.here.at.b));
    must_open_anew(&it);
    must_ok(weir_device_drain_sync(it.here.at.device));
    end(&it);
}

/* ---- what is answered late ---- */

static void stop(const stage *it)
{
    int how;
    must(kill(it->other.process.pid, SIGSTOP) == 0);
    must(waitpid(it->other.process.pid, &how, WUNTRACED) > 0 && WIFSTOPPED(how));
}

static void go_on(const stage *it)
{
    must(kill(it->other.process.pid, SIGCONT) == 0);
}

static weir_status open_hastily(stage *it, weir_buffer *out)
{
    weir_open_options hasty = WEIR_OPEN_OPTIONS_INIT;
    hasty.timeout_ms = 20;
    return weir_ipc_open(it->here.at.device, it->here.at.c, &it->ticket, &hasty, out);
}

/* Whether there is nothing that has come for an import, and was not read. */
static bool is_all_read(void)
{
    bool is_all = true;
    weir__mutex_lock(&weir__ipc_all.lock);
    for (weir__import *i = weir__ipc_all.imports; i != NULL; i = i->next) {
        struct pollfd one = { .fd = i->fd, .events = POLLIN };
        is_all = is_all && poll(&one, 1, 0) == 0;
    }
    weir__mutex_unlock(&weir__ipc_all.lock);
    return is_all;
}

/* What is still open when its exporter answers late is closed as ever. */
static void a_late_answer_leaves_what_is_open(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer first, second;
    must_ok(open_here(&it, &first));
    stop(&it);
    must_answer(WEIR_PEER_GONE, open_hastily(&it, &second));
    must_answer(WEIR_PEER_GONE, open_hastily(&it, &second));
    go_on(&it);
    must_open_anew(&it); /* who is asked for that has answered what was before */
    while (!is_all_read())
        sched_yield();
    check_stamp(it.here.at.device, it.here.at.b, first.data, first.size, KEY);
    must_ok(weir_ipc_close(&first, it.here.at.b));
    must_ok(weir_device_sync(it.here.at.device));
    end(&it);
}

/* An exporter that has been told of a close, and of an event with that, is waited for
 * though it answers others late: so long that event lives. */
static void a_late_answer_comes_behind_that_to_a_close(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer first;
    must_ok(open_here(&it, &first));
    must_ok(weir_device_sync(it.here.at.device)); /* what waits for the other's work */
    stop(&it);
    must_ok(weir_ipc_close(&first, it.here.at.b));
    must_ok(weir_device_sync(it.here.at.device));
    must_answer(WEIR_PEER_GONE, open_hastily(&it, &first));
    for (int i = 0; i < LOOKS; i++) {
        must_equal(now().cached, 1);
        sched_yield();
    }
    go_on(&it);
    must_open_anew(&it);
    end(&it);
}

static void *trims(void *argument)
{
    weir_status *status = argument;
    *status = weir_ipc_trim_sync();
    return NULL;
}

static bool is_unmapping(void)
{
    weir__mutex_lock(&weir__ipc_all.lock);
    bool is_any = weir__ipc_all.unmapping > 0;
    weir__mutex_unlock(&weir__ipc_all.lock);
    return is_any;
}

/* So does a trim: who has an event of it only by name opens it some time later. */
static void a_trim_waits_for_who_was_told_of_an_event(void **state)
{
    (void)state;
    stage it = begin();
    weir_buffer first;
    pthread_t thread;
    weir_status status;
    must_ok(open_here(&it, &first));
    must_ok(weir_device_sync(it.here.at.device)); /* what waits for the other's work */
    stop(&it);
    must_ok(weir_ipc_close(&first, it.here.at.b));
    must_ok(weir_device_sync(it.here.at.device));
    must(pthread_create(&thread, NULL, trims, &status) == 0);
    while (now().cached > 0)
        sched_yield();
    for (int i = 0; i < LOOKS && is_unmapping(); i++)
        sched_yield();
    go_on(&it);
    must(pthread_join(thread, NULL) == 0);
    must_ok(status);
    end(&it);
}

/* ---- what is made again and again ---- */

/* The event that goes with a ticket has a descriptor, as its bytes have: both go with
 * the last who needs them. */
static void tickets_that_are_over_leave_no_descriptors(void **state)
{
    (void)state;
    enum { TIMES = 16 };
    ipc_stage it = ipc_begin();
    unsigned before = 0;
    for (int i = 0; i < TIMES; i++) {
        weir_buffer column = ipc_make(&it, BYTES, KEY);
        weir_ticket revoked = ipc_export(&column, WEIR_READ);
        (void)ipc_export(&column, WEIR_READ); /* ends with its bytes */
        must_ok(weir_ipc_revoke(&revoked));
        weir_buffer_reset(&column);
        must_equal(now().exports, 0);
        must_ok(weir_device_sync(it.at.device));
        (void)weir_resource_trim_sync(it.mr, 0);
        if (i == 0) /* by now there is what stays: a socket, and who serves it */
            before = open_descriptors();
    }
    must(open_descriptors() < before + TIMES); /* those of tests before come and go */
    ipc_end(&it);
}

/* Descriptors may be had, but not with the listener's number any more. */
static void must_not_export_below(weir_buffer *column, const int spare[8])
{
    struct rlimit most, before;
    weir_ticket none;
    must(getrlimit(RLIMIT_NOFILE, &before) == 0);
    most = before;
    most.rlim_cur = (rlim_t)weir__ipc_all.listener;
    for (int i = 0; i < 8; i++)
        (void)close(spare[i]);
    must(setrlimit(RLIMIT_NOFILE, &most) == 0);
    must_answer(WEIR_FILE_ERROR, weir_ipc_export(column, NULL, &none));
    must(strstr(weir_last_error().message, "take the place") != NULL);
    must(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

/* The socket was taken away, as what cleans up temporary folders does: the next export
 * puts another there, which answers for the tickets before, too; or says why not. */
static void a_socket_that_was_removed_is_made_again(void **state)
{
    (void)state;
    int spare[8];
    for (int i = 0; i < 8; i++)
        spare[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_buffer column = ipc_make(&it, BYTES, KEY);
    weir_ticket first = ipc_export(&column, WEIR_READ), second;
    unsigned before = open_descriptors();
    second = ipc_export(&column, WEIR_READ);
    const unsigned each = open_descriptors() - before;
    char path[sizeof weir__ipc_all.path], *name = strrchr(weir__ipc_all.path, '/');
    snprintf(path, sizeof path, "%.*s", (int)(name - weir__ipc_all.path),
             weir__ipc_all.path);
    must(unlink(weir__ipc_all.path) == 0);
    must_answer(WEIR_NOT_FOUND, remote_open(&other, 0, &first, WEIR_READ));

    must(chmod(path, 0755) == 0);
    must_answer(WEIR_FILE_ERROR, weir_ipc_export(&column, NULL, &second));
    must_equal(now().exports, 2);
    must(chmod(path, 0700) == 0);
    must_not_export_below(&column, spare);
    must_equal(now().exports, 2);
    before = open_descriptors();
    second = ipc_export(&column, WEIR_READ);
    must_equal(open_descriptors(), before + each);
    must_ok(remote_open(&other, 0, &second, WEIR_READ));
    must_ok(remote_open(&other, 1, &first, WEIR_READ));
    must_equal(remote_errors(&other, 1, KEY), 0);
    must_ok(remote_close(&other, 0));
    must_ok(remote_close(&other, 1));
    weir_buffer_reset(&column);
    remote_end(&other);
    ipc_end(&it);
}

/* Work that cannot be waited for may still use what is mapped. */
static void a_trim_that_fails_leaves_the_rest_cached(void **state)
{
    (void)state;
    stage it = begin();
    weir_ticket second;
    weir_buffer opened;
    remote_make(&it.other, 1, BYTES, KEY);
    must_ok(remote_export(&it.other, 1, WEIR_READ, &second));
    uint64_t gate = checklist_hold(it.here.at.device, it.here.at.b);
    must_open_anew(&it);
    must_ok(weir_ipc_open(it.here.at.device, it.here.at.b, &second, NULL, &opened));
    check_stamp(it.here.at.device, it.here.at.b, opened.data, opened.size, KEY);
    must_ok(weir_ipc_close(&opened, it.here.at.b));
    plan_fault(it.here.at.device, "event_sync", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir_ipc_trim_sync());
    plan_fault(it.here.at.device, NULL, 0, false, WEIR_OK);
    must_equal(now().cached, 2);
    checklist_let_go(it.here.at.device, gate);
    must_ok(weir_ipc_trim_sync());
    must_equal(now().cached, 0);
    remote_settle(&it.other);
    remote_reset(&it.other, 1);
    end(&it);
}

/* ---- what another thread asks about ---- */

/* Whether a thread waits for an answer. */
static bool is_asking(void)
{
    bool is_any = false;
    weir__mutex_lock(&weir__ipc_all.lock);
    for (weir__import *i = weir__ipc_all.imports; i != NULL; i = i->next)
        is_any = is_any || i->state == WEIR__IMPORT_ASKING;
    weir__mutex_unlock(&weir__ipc_all.lock);
    return is_any;
}

/* Each waits for as long as it said. */
static void who_is_hasty_does_not_wait_for_who_is_patient(void **state)
{
    (void)state;
    stage it = begin();
    opener patient = { .on = &it, .stream = it.here.at.b };
    weir_buffer first, second;
    must_ok(open_here(&it, &first));
    stop(&it);
    pthread_t thread = opener_begin(&patient);
    while (!is_asking())
        sched_yield();
    must_answer(WEIR_PEER_GONE, open_hastily(&it, &second));
    must(is_asking());
    go_on(&it);
    must(pthread_join(thread, NULL) == 0);
    must_ok(patient.status);
    must_ok(weir_ipc_close(&patient.buffer, it.here.at.b));
    must_ok(weir_ipc_close(&first, it.here.at.b));
    end(&it);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_released_is_opened_again),
        cmocka_unit_test(what_is_in_limbo_is_opened_again),
        cmocka_unit_test(what_was_opened_on_a_threads_stream_is_opened_again),
        cmocka_unit_test(a_late_answer_leaves_what_is_open),
        cmocka_unit_test(a_late_answer_comes_behind_that_to_a_close),
        cmocka_unit_test(a_trim_waits_for_who_was_told_of_an_event),
        cmocka_unit_test(tickets_that_are_over_leave_no_descriptors),
        cmocka_unit_test(a_socket_that_was_removed_is_made_again),
        cmocka_unit_test(a_trim_that_fails_leaves_the_rest_cached),
        cmocka_unit_test(who_is_hasty_does_not_wait_for_who_is_patient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    return remote_main(argc, argv, run);
}
