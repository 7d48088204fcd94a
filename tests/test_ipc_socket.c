/* test_ipc_socket.c - messages on sockets come as they were sent, with their
 * descriptors; and what is not exactly a message of ours, and of who has connected, is
 * refused, and nothing of it stays. Both ends are this process; test_ipc_peers.c has
 * others. */
#include "support_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

/* ---- what comes as it was sent ---- */

static void must_be_same_file(int a, int b)
{
    must(a != b && a >= 0);
    must((fcntl(a, F_GETFD) & FD_CLOEXEC) != 0);
    must_equal(lseek(a, 5, SEEK_SET), 5);
    must_equal(lseek(b, 0, SEEK_CUR), 5);
    must_equal(lseek(a, 0, SEEK_SET), 0);
}

static void requests_come_as_they_were_sent(void **state)
{
    (void)state;
    connection it = connect_both();
    weir__message sent = open_message(&it), came;
    for (int again = 0; again < 2; again++) {
        sent.kind = again ? WEIR__MESSAGE_AGAIN : WEIR__MESSAGE_OPEN;
        sent.access = again ? WEIR_WRITE : WEIR_READ;
        must_ok(weir__socket_send(it.importer, &sent, SOON_MS));
        must_ok(weir__socket_receive(it.exporter, &it.exporters_peer, SOON_MS, &came));
        must(came.kind == sent.kind && came.access == sent.access);
        must(memcmp(&came.ticket, &sent.ticket, sizeof sent.ticket) == 0);
        must(!came.has_memory && !came.has_event);
        must(came.memory.fd == -1 && came.event.fd == -1);
    }
    hang_up(&it);
}

static void descriptors_come_with_their_message(void **state)
{
    (void)state;
    connection it = connect_both();
    int memory = any_fd(), event = any_fd();
    for (int which = 0; which < 4; which++) {
        weir__message came, sent = answer_message((which & 1) != 0 ? memory : -1,
                                                  (which & 2) != 0 ? event : -1);
        must_ok(weir__socket_send(it.exporter, &sent, SOON_MS));
        must_ok(weir__socket_receive(it.importer, &it.importers_peer, SOON_MS, &came));
        must(came.kind == WEIR__MESSAGE_ANSWER && came.status == WEIR_OK);
        must(came.has_memory == ((which & 1) != 0));
        must(came.event_has_fd == ((which & 2) != 0));
        if (came.has_memory) {
            must_equal(came.memory.bytes, 4096);
            must_be_same_file(came.memory.fd, memory);
            end_fd(&came.memory.fd);
        }
        if (came.has_event) {
            must(memcmp(came.event.octets, sent.event.octets,
                        sizeof sent.event.octets) == 0);
            must_be_same_file(came.event.fd, event);
            end_fd(&came.event.fd);
        }
        must(came.memory.fd == -1 && came.event.fd == -1);
    }
    end_fd(&memory);
    end_fd(&event);
    hang_up(&it);
}

/* Octets that say it all, of memory and event; and every status. */
static void what_has_no_descriptor_is_octets(void **state)
{
    (void)state;
    connection it = connect_both();
    weir__message sent = answer_message(-1, -1), came;
    sent.has_memory = sent.has_event = true;
    sent.memory = (weir__shared){ .kind = WEIR_SHARE_LEGACY, .bytes = 77, .fd = -1 };
    memset(sent.memory.octets, 9, sizeof sent.memory.octets);
    must_ok(weir__socket_send(it.exporter, &sent, SOON_MS));
    must_ok(weir__socket_receive(it.importer, &it.importers_peer, SOON_MS, &came));
    must(came.memory.kind == WEIR_SHARE_LEGACY && came.memory.bytes == 77);
    must(memcmp(&came.memory.octets, &sent.memory.octets, 64) == 0);
    must(came.has_event && !came.event_has_fd && came.event.fd == -1);
    must(memcmp(&came.event.octets, &sent.event.octets, 64) == 0);

    for (int status = WEIR_INVALID_ARGUMENT; status <= WEIR_PEER_GONE; status++) {
        sent.status = (weir_status)status;
        must_ok(weir__socket_send(it.exporter, &sent, SOON_MS));
        must_ok(weir__socket_receive(it.importer, &it.importers_peer, SOON_MS, &came));
        must(came.status == sent.status && !came.has_memory && !came.has_event);
    }
    hang_up(&it);
}

/* ---- what is refused ---- */

/* Claims that the importer refuses it, and keeps nothing of it. */
static void must_refuse(connection *it, const raw_message *raw, weir_status wanted)
{
    weir__message came = { .memory.fd = 77, .event.fd = 77 };
    size_t fds = count_fds();
    must(send_raw(it->exporter, raw));
    must_answer(wanted, weir__socket_receive(it->importer, &it->importers_peer, SOON_MS,
                                             &came));
    must_equal(count_fds(), fds);
    must(came.memory.fd == -1 && came.event.fd == -1);
    must(!came.has_memory && !came.has_event);
}

static void other_lengths_are_refused(void **state)
{
    (void)state;
    connection it = connect_both();
    int fds[2] = { any_fd(), any_fd() };
    weir__message answer = answer_message(fds[0], fds[1]);
    static const size_t lengths[] = { 0, 1, 511, 513, 1024 };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        raw_message raw = raw_message_of(&answer);
        raw.length = lengths[i];
        must_refuse(&it, &raw, WEIR_INVALID_ARGUMENT);
        raw.fds = fds;
        raw.fd_count = 2;
        must_refuse(&it, &raw, WEIR_INVALID_ARGUMENT);
    }
    end_fd(&fds[0]);
    end_fd(&fds[1]);
    hang_up(&it);
}

static void missing_or_surplus_descriptors_are_refused(void **state)
{
    (void)state;
    enum { MANY = 253 }; /* more than that the kernel does not send */
    connection it = connect_both();
    int fds[MANY], file = any_fd();
    for (size_t i = 0; i < MANY; i++)
        fds[i] = file;
    weir__message messages[] = { over_message(), answer_message(-1, file),
                                 answer_message(file, -1), answer_message(file, file) };
    static const size_t wanted[] = { 0, 1, 1, 2 };
    static const size_t counts[] = { 0, 1, 2, 3, 4, 7, 8, 9, 10, 16, 100, MANY };
    for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
        for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++) {
            raw_message raw = raw_message_of(&messages[i]);
            raw.fds = fds;
            raw.fd_count = counts[j];
            if (counts[j] != wanted[i])
                must_refuse(&it, &raw, WEIR_INVALID_ARGUMENT);
        }
    }
    end_fd(&file);
    hang_up(&it);
}

static void descriptors_may_come_one_by_one(void **state)
{
    (void)state;
    connection it = connect_both();
    int fds[3] = { any_fd(), any_fd(), any_fd() };
    weir__message answer = answer_message(fds[0], fds[1]), came;
    raw_message raw = raw_message_of(&answer);
    raw.fds = fds;
    raw.fd_count = 2;
    raw.is_spread = true;
    must(send_raw(it.exporter, &raw));
    must_ok(weir__socket_receive(it.importer, &it.importers_peer, SOON_MS, &came));
    must_be_same_file(came.memory.fd, fds[0]);
    must_be_same_file(came.event.fd, fds[1]);
    end_fd(&came.memory.fd);
    end_fd(&came.event.fd);
    raw.fd_count = 3;
    must_refuse(&it, &raw, WEIR_INVALID_ARGUMENT);
    for (size_t i = 0; i < 3; i++)
        end_fd(&fds[i]);
    hang_up(&it);
}

/* With no room in this process for one more descriptor the kernel drops them, and says
 * so: the message is then not what was sent, whatever it needs. */
static void descriptors_without_room_are_refused(void **state)
{
    (void)state;
    connection it = connect_both();
    int fds[2] = { any_fd(), any_fd() };
    struct rlimit old, none;
    must(getrlimit(RLIMIT_NOFILE, &old) == 0);
    for (int room = 0; room < 2; room++) {
        weir__message message = room == 0 ? over_message() : answer_message(3, 3), came;
        raw_message raw = raw_message_of(&message);
        raw.fds = fds;
        raw.fd_count = room == 0 ? 1 : 2;
        must(send_raw(it.exporter, &raw));
        size_t before = count_fds();
        int next = any_fd();
        none = (struct rlimit){ (rlim_t)(next + room), old.rlim_max };
        end_fd(&next);
        must(setrlimit(RLIMIT_NOFILE, &none) == 0);
        weir_status status =
            weir__socket_receive(it.importer, &it.importers_peer, 0, &came);
        must(setrlimit(RLIMIT_NOFILE, &old) == 0);
        must_answer(WEIR_FILE_ERROR, status);
        must(came.memory.fd == -1 && came.event.fd == -1);
        must_equal(count_fds(), before);
    }
    end_fd(&fds[0]);
    end_fd(&fds[1]);
    hang_up(&it);
}

/* Root may put other names under a message. */
static void forged_names_are_refused(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    connection it = connect_both();
    weir__message over = over_message(), came;
    raw_message raw = raw_message_of(&over);
    raw.is_forged = true;
    raw.pid = getpid();
    must(send_raw(it.exporter, &raw)); /* which are no other */
    must_ok(weir__socket_receive(it.importer, &it.importers_peer, 0, &came));
    raw.uid = 1234;
    must_refuse(&it, &raw, WEIR_FILE_ERROR);
    raw.uid = WEIR__UID_NOBODY;
    must_refuse(&it, &raw, WEIR_FILE_ERROR);
    raw.uid = 0;
    raw.pid = getppid();
    must_refuse(&it, &raw, WEIR_FILE_ERROR);

    int fd = any_fd();
    raw.fds = &fd;
    raw.fd_count = 1;
    must_refuse(&it, &raw, WEIR_FILE_ERROR);
    end_fd(&fd);
    hang_up(&it);
}

/* A process that the one at the other end has forked has the same connection. */
static void messages_of_a_fork_are_refused(void **state)
{
    (void)state;
    connection it = connect_both();
    weir__message over = over_message(), came;
    raw_message raw = raw_message_of(&over);
    pid_t child = fork();
    if (child == 0)
        _exit(send_raw(it.exporter, &raw) ? 0 : 1);
    int status = -1;
    must(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    must_answer(WEIR_FILE_ERROR, weir__socket_receive(it.importer, &it.importers_peer,
                                                      SOON_MS, &came));
    hang_up(&it);
}

static void messages_that_nobody_signed_are_refused(void **state)
{
    (void)state;
    size_t before = count_fds();
    int ends[2], fd = any_fd();
    weir__message answer = answer_message(fd, -1), came;
    weir__peer_process self = { getpid(), -1 };
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    must_ok(weir__socket_send(ends[0], &answer, SOON_MS));
    must_answer(WEIR_FILE_ERROR, weir__socket_receive(ends[1], &self, SOON_MS, &came));
    end_fd(&ends[0]);
    end_fd(&ends[1]);
    end_fd(&fd);
    must_equal(count_fds(), before);
}

/* ---- waiting ---- */

static void nothing_is_waited_for_only_so_long(void **state)
{
    (void)state;
    connection it = connect_both();
    weir__message came;
    must_answer(WEIR_NOT_FOUND, weir__socket_receive(it.importer, &it.importers_peer, 0,
                                                     &came));
    must_answer(WEIR_NOT_FOUND, weir__socket_receive(it.importer, &it.importers_peer,
                                                     NEVER_MS, &came));
    must(came.memory.fd == -1 && came.event.fd == -1);
    weir__peer_process nobody = { 77, 77 };
    int none = 77;
    must_answer(WEIR_NOT_FOUND, weir__socket_accept(it.listener, &nobody, &none));
    must(none == -1 && nobody.pidfd == -1);
    hang_up(&it);
}

static volatile sig_atomic_t signals;

static void count_signal(int signal)
{
    (void)signal;
    signals++;
}

static void signals_do_not_end_a_wait(void **state)
{
    (void)state;
    connection it = connect_both();
    weir__message came;
    struct sigaction old, action = { .sa_handler = count_signal };
    struct itimerval often = { { 0, 2000 }, { 0, 2000 } };
    struct itimerval never = { { 0, 0 }, { 0, 0 } };
    must(sigaction(SIGALRM, &action, &old) == 0);
    must(setitimer(ITIMER_REAL, &often, NULL) == 0);
    weir_status status = WEIR_NOT_FOUND;
    for (signals = 0; signals < 3 && status == WEIR_NOT_FOUND;)
        status = weir__socket_receive(it.importer, &it.importers_peer, NEVER_MS, &came);
    must(setitimer(ITIMER_REAL, &never, NULL) == 0);
    must(sigaction(SIGALRM, &old, NULL) == 0);
    must_answer(WEIR_NOT_FOUND, status);
    hang_up(&it);
}

/* Who does not read is not waited for either; what was sent before comes in order. */
static void a_full_socket_is_waited_for_only_so_long(void **state)
{
    (void)state;
    connection it = connect_both();
    weir__message message = answer_message(-1, -1), came;
    size_t sent = 0, read = 0;
    weir_status status;
    do {
        message.status = sent % 2 == 0 ? WEIR_OK : WEIR_NOT_FOUND;
        status = weir__socket_send(it.exporter, &message, NEVER_MS);
        sent += status == WEIR_OK;
    } while (status == WEIR_OK);
    must_answer(WEIR_PEER_GONE, status);
    must(sent > 1);
    while (weir__socket_receive(it.importer, &it.importers_peer, 0, &came) == WEIR_OK)
        must(came.status == (read++ % 2 == 0 ? WEIR_OK : WEIR_NOT_FOUND));
    must_equal(read, sent);
    must_ok(weir__socket_send(it.exporter, &message, 0));
    hang_up(&it);
}

/* ---- hanging up ---- */

static void who_hangs_up_is_gone(void **state)
{
    (void)state;
    connection it = connect_both();
    weir__message message = over_message(), came;
    must_ok(weir__socket_send(it.exporter, &message, 0));
    end_fd(&it.exporter);
    must_ok(weir__socket_receive(it.importer, &it.importers_peer, 0, &came));
    must(came.kind == WEIR__MESSAGE_OVER);
    must_answer(WEIR_PEER_GONE, weir__socket_receive(it.importer, &it.importers_peer,
                                                     SOON_MS, &came));
    message = close_message();
    must_answer(WEIR_PEER_GONE, weir__socket_send(it.importer, &message, SOON_MS));
    hang_up(&it);
}

/* Its last words count though it has not heard ours. */
static void who_hangs_up_unread_is_still_heard(void **state)
{
    (void)state;
    connection it = connect_both();
    weir__message over = over_message(), last = close_message(), came;
    must_ok(weir__socket_send(it.exporter, &over, 0));
    must_ok(weir__socket_send(it.importer, &last, 0));
    end_fd(&it.importer);
    must_ok(weir__socket_receive(it.exporter, &it.exporters_peer, 0, &came));
    must(came.kind == WEIR__MESSAGE_CLOSE);
    must_answer(WEIR_PEER_GONE, weir__socket_receive(it.exporter, &it.exporters_peer, 0,
                                                     &came));
    hang_up(&it);
}

static void what_is_no_socket_is_an_error(void **state)
{
    (void)state;
    int file = any_fd(), none = -1;
    weir__peer_process peer = { getpid(), -1 };
    weir__message over = over_message(), came, answer = answer_message(1000000, -1);
    must_answer(WEIR_FILE_ERROR, weir__socket_send(file, &over, 0));
    must_answer(WEIR_FILE_ERROR, weir__socket_receive(file, &peer, 0, &came));
    must_answer(WEIR_FILE_ERROR, weir__socket_send(none, &over, 0));
    must_answer(WEIR_FILE_ERROR, weir__socket_accept(file, &peer, &none));
    must_equal(weir_last_error().native_code, ENOTSOCK);
    end_fd(&file);

    connection it = connect_both();
    must_answer(WEIR_FILE_ERROR, weir__socket_send(it.exporter, &answer, 0));
    must_answer(WEIR_NOT_FOUND, weir__socket_receive(it.importer, &it.importers_peer, 0,
                                                     &came));
    hang_up(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_come_as_they_were_sent),
        cmocka_unit_test(descriptors_come_with_their_message),
        cmocka_unit_test(what_has_no_descriptor_is_octets),
        cmocka_unit_test(other_lengths_are_refused),
        cmocka_unit_test(missing_or_surplus_descriptors_are_refused),
        cmocka_unit_test(descriptors_may_come_one_by_one),
        cmocka_unit_test(descriptors_without_room_are_refused),
        cmocka_unit_test(forged_names_are_refused),
        cmocka_unit_test(messages_of_a_fork_are_refused),
        cmocka_unit_test(messages_that_nobody_signed_are_refused),
        cmocka_unit_test(nothing_is_waited_for_only_so_long),
        cmocka_unit_test(signals_do_not_end_a_wait),
        cmocka_unit_test(a_full_socket_is_waited_for_only_so_long),
        cmocka_unit_test(who_hangs_up_is_gone),
        cmocka_unit_test(who_hangs_up_unread_is_still_heard),
        cmocka_unit_test(what_is_no_socket_is_an_error),
    };
    return cmocka_run_group_tests(tests, socket_folder_make, socket_folder_remove);
}
