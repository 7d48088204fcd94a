/* test_ipc_peers.c - sockets between processes that are really others: of this user,
 * who talk, fall silent or are killed; and of other users, who are refused on both
 * sides. */
#include "support_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "support.h"
#include "support_process.h"

#define STRANGER 1234u /* a user that is not this one */

typedef struct place {
    char path[WEIR__SOCKET_PATH_BYTES];
} place;

/* ---- the other processes ---- */

static place listen_and_tell(int channel, int *listener)
{
    place at;
    must_ok(weir__socket_listen(at.path, listener));
    channel_send(channel, &at, sizeof at, -1);
    return at;
}

/* Waits for somebody, and lets them in. */
static int let_in(int listener, weir__peer_process *peer)
{
    int fd;
    struct pollfd ready = { .fd = listener, .events = POLLIN };
    must(poll(&ready, 1, (int)SOON_MS) == 1);
    must_ok(weir__socket_accept(listener, peer, &fd));
    return fd;
}

/* Answers each request with memory, until it is hung up on. */
static void exporter(int channel)
{
    int listener;
    weir__peer_process peer;
    weir__message came;
    place at = listen_and_tell(channel, &listener);
    int fd = let_in(listener, &peer), memory = any_fd();
    must(write(memory, "bytes", 5) == 5);
    weir_status status;
    while ((status = weir__socket_receive(fd, &peer, SOON_MS, &came)) == WEIR_OK) {
        if (came.kind == WEIR__MESSAGE_CLOSE) {
            must(came.event_has_fd && lseek(came.event.fd, 0, SEEK_CUR) == 3);
            end_fd(&came.event.fd);
            channel_say(channel, "closed");
            continue;
        }
        must(came.kind == WEIR__MESSAGE_OPEN);
        weir__message answer = answer_message(memory, -1);
        must_ok(weir__socket_send(fd, &answer, SOON_MS));
    }
    must_equal(status, WEIR_PEER_GONE);
    weir__socket_unlisten(at.path, listener);
}

/* Lets anybody connect, and never looks. */
static void deaf_exporter(int channel)
{
    int listener;
    place at = listen_and_tell(channel, &listener);
    channel_hear(channel, "enough");
    weir__socket_unlisten(at.path, listener);
}

/* Listens where this user does, but as another. */
static void disguised_exporter(int channel)
{
    int listener;
    uid_t user;
    must(channel_receive(channel, &user, sizeof user) == -1);
    place at;
    must_ok(weir__socket_listen(at.path, &listener));
    must(seteuid(user) == 0);
    must(listen(listener, 8) == 0); /* whose name a listener has is seen here */
    must(seteuid(0) == 0);
    channel_send(channel, &at, sizeof at, -1);
    channel_hear(channel, "enough");
    weir__socket_unlisten(at.path, listener);
}

static int connect_anyhow(int channel)
{
    place at;
    must(channel_receive(channel, &at, sizeof at) == -1);
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    memcpy(address.sun_path, at.path, sizeof at.path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    must(fd >= 0);
    must(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

/* Connects, and claims to be hung up on. */
static void foreign_importer(int channel)
{
    char octet;
    int fd = connect_anyhow(channel);
    channel_say(channel, "connected");
    must(recv(fd, &octet, 1, 0) == 0);
}

/* Connects, and waits for its end. */
static void lasting_importer(int channel)
{
    int fd = connect_anyhow(channel);
    channel_say(channel, "connected");
    (void)channel_is_ended(channel);
    end_fd(&fd);
}

/* As the user who can be anybody it trusts not even itself. */
static void nobody(int channel)
{
    char path[WEIR__SOCKET_PATH_BYTES] = "?";
    int listener, ends[2];
    const int yes = 1;
    must_answer(WEIR_FILE_ERROR, weir__socket_listen(path, &listener));
    must(listener == -1 && path[0] == '\0');
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    must(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) == 0);
    weir__peer_process self = { getpid(), -1 };
    weir__message over = over_message(), came;
    must_ok(weir__socket_send(ends[0], &over, 0));
    must_answer(WEIR_FILE_ERROR, weir__socket_receive(ends[1], &self, 0, &came));
    channel_say(channel, "refused");
}

static const support_child children[] = {
    { "exporter", exporter },
    { "deaf exporter", deaf_exporter },
    { "disguised exporter", disguised_exporter },
    { "foreign importer", foreign_importer },
    { "lasting importer", lasting_importer },
    { "nobody", nobody },
};

/* ---- of this user ---- */

/* Begins an exporter and hears where it is. */
static weir__ticket begin_exporter(const char *name, support_process *process)
{
    place at;
    *process = process_start(name);
    must(channel_receive(process->channel, &at, sizeof at) == -1);
    return ticket_of(process->pid, at.path);
}

static weir__message request_of(const weir__ticket *ticket)
{
    weir__message message = over_message();
    message.kind = WEIR__MESSAGE_OPEN;
    message.access = WEIR_READ;
    weir__ticket_write(ticket, &message.ticket);
    return message;
}

static bool has_ended(const weir__peer_process *peer, int timeout_ms)
{
    struct pollfd end = { .fd = peer->pidfd, .events = POLLIN };
    int count = poll(&end, 1, timeout_ms);
    must(count >= 0);
    return count == 1;
}

static void two_processes_talk(void **state)
{
    (void)state;
    size_t fds = count_fds();
    support_process other;
    weir__peer_process peer;
    weir__message message, came;
    int fd, event = any_fd();
    char bytes[8] = "";
    weir__ticket ticket = begin_exporter("exporter", &other);
    must_ok(weir__socket_connect(&ticket, &peer, &fd));
    must_equal(peer.pid, other.pid);
    must((fcntl(peer.pidfd, F_GETFD) & FD_CLOEXEC) != 0);
    must(!has_ended(&peer, 0));
    message = request_of(&ticket);
    must_ok(weir__socket_send(fd, &message, SOON_MS));
    must_ok(weir__socket_receive(fd, &peer, SOON_MS, &came));
    must(came.kind == WEIR__MESSAGE_ANSWER && came.has_memory);
    must(pread(came.memory.fd, bytes, sizeof bytes, 0) == 5);
    must(memcmp(bytes, "bytes", 5) == 0);
    end_fd(&came.memory.fd);

    message = close_message();
    message.has_event = message.event_has_fd = true;
    message.event.fd = event;
    must(lseek(event, 3, SEEK_SET) == 3);
    must_ok(weir__socket_send(fd, &message, SOON_MS));
    channel_hear(other.channel, "closed");
    end_fd(&event);
    end_fd(&fd);
    process_end(&other);
    must(has_ended(&peer, 0));
    weir__peer_close(&peer);
    must_answer(WEIR_PEER_GONE, weir__socket_connect(&ticket, &peer, &fd));
    must_equal(count_fds(), fds);
}

/* Killed, and not even looked after: it is gone all the same, and its socket is no
 * hindrance. */
static void a_killed_exporter_is_gone(void **state)
{
    (void)state;
    size_t fds = count_fds();
    support_process other;
    weir__peer_process peer, none;
    weir__message came, request;
    char path[WEIR__SOCKET_PATH_BYTES];
    int fd, again;
    weir__ticket ticket = begin_exporter("exporter", &other);
    must_ok(weir__socket_connect(&ticket, &peer, &fd));
    process_kill(&other);
    must(has_ended(&peer, (int)SOON_MS));
    must_answer(WEIR_PEER_GONE, weir__socket_receive(fd, &peer, SOON_MS, &came));
    request = request_of(&ticket);
    must_answer(WEIR_PEER_GONE, weir__socket_send(fd, &request, SOON_MS));
    must_answer(WEIR_PEER_GONE, weir__socket_connect(&ticket, &none, &again));
    must_equal(weir__process_start_time(other.pid), 0);
    must(access(ticket.socket, F_OK) == 0);
    must_ok(weir__socket_listen(path, &again));
    must(access(ticket.socket, F_OK) != 0);
    weir__socket_unlisten(path, again);
    process_reap(&other);
    end_fd(&fd);
    weir__peer_close(&peer);
    must_equal(count_fds(), fds);
}

static void who_never_answers_is_not_waited_for(void **state)
{
    (void)state;
    size_t fds = count_fds();
    support_process other;
    weir__peer_process peer;
    weir__message came;
    int fd;
    weir__ticket ticket = begin_exporter("deaf exporter", &other);
    must_ok(weir__socket_connect(&ticket, &peer, &fd));
    weir__message request = request_of(&ticket);
    must_ok(weir__socket_send(fd, &request, SOON_MS));
    must_answer(WEIR_NOT_FOUND, weir__socket_receive(fd, &peer, NEVER_MS, &came));
    must(!has_ended(&peer, 0));
    channel_say(other.channel, "enough");
    process_end(&other);
    must_answer(WEIR_PEER_GONE, weir__socket_receive(fd, &peer, SOON_MS, &came));
    end_fd(&fd);
    weir__peer_close(&peer);
    must_equal(count_fds(), fds);
}

/* ---- who comes and goes ---- */

static place listen_here(int *listener)
{
    place at;
    must_ok(weir__socket_listen(at.path, listener));
    return at;
}

/* Whoever has hung up before it was let in was never there, ended or not: the next
 * is. */
static void who_goes_before_it_is_let_in_is_passed_over(void **state)
{
    (void)state;
    size_t fds = count_fds();
    int listener, fd;
    place at = listen_here(&listener);
    weir__peer_process peer;
    support_process gone = process_start("lasting importer");
    channel_send(gone.channel, &at, sizeof at, -1);
    channel_hear(gone.channel, "connected");
    process_kill(&gone);
    process_reap(&gone);
    must_answer(WEIR_NOT_FOUND, weir__socket_accept(listener, &peer, &fd));
    weir__ticket ticket = ticket_of_self(at.path);
    must_ok(weir__socket_connect(&ticket, &peer, &fd)); /* this one lives */
    weir__peer_close(&peer);
    end_fd(&fd);
    must_answer(WEIR_NOT_FOUND, weir__socket_accept(listener, &peer, &fd));

    gone = process_start("lasting importer");
    channel_send(gone.channel, &at, sizeof at, -1);
    channel_hear(gone.channel, "connected");
    process_kill(&gone);
    support_process stays = process_start("lasting importer");
    channel_send(stays.channel, &at, sizeof at, -1);
    channel_hear(stays.channel, "connected");
    process_reap(&gone);
    must_ok(weir__socket_accept(listener, &peer, &fd));
    must_equal(peer.pid, stays.pid);
    must(!has_ended(&peer, 0));
    process_kill(&stays);
    must(has_ended(&peer, (int)SOON_MS));
    process_reap(&stays);
    end_fd(&fd);
    weir__peer_close(&peer);
    weir__socket_unlisten(at.path, listener);
    must_equal(count_fds(), fds);
}

/* ---- of other users ---- */

static void exporters_of_others_are_refused(void **state)
{
    (void)state;
    if (!support_is_root())
        skip();
    static const uid_t users[] = { 0, STRANGER, WEIR__UID_NOBODY };
    for (size_t i = 0; i < sizeof users / sizeof users[0]; i++) {
        size_t fds = count_fds();
        place at;
        int fd = 77;
        weir__peer_process peer = { 77, 77 };
        support_process other = process_start("disguised exporter");
        channel_send(other.channel, &users[i], sizeof users[i], -1);
        must(channel_receive(other.channel, &at, sizeof at) == -1);
        weir__ticket ticket = ticket_of(other.pid, at.path);
        weir_status status = weir__socket_connect(&ticket, &peer, &fd);
        must_equal(status, users[i] == 0 ? WEIR_OK : WEIR_FILE_ERROR);
        if (status == WEIR_OK)
            end_fd(&fd);
        else
            must(fd == -1 && peer.pidfd == -1);
        weir__peer_close(&peer);
        channel_say(other.channel, "enough");
        process_end(&other);
        must_equal(count_fds(), fds);
    }
}

/* The folder, and the socket, as if all could enter; else nobody would get so far. */
static void open_the_doors(const char *path, bool wide)
{
    must(chmod(socket_folder(), wide ? 0755 : 0700) == 0);
    must(chmod(socket_folder_inside(), wide ? 0755 : 0700) == 0);
    must(chmod(path, 0777) == 0);
}

static void importers_of_others_are_refused(void **state)
{
    (void)state;
    if (!support_is_root())
        skip();
    static const uid_t users[] = { STRANGER, WEIR__UID_NOBODY };
    for (size_t i = 0; i < sizeof users / sizeof users[0]; i++) {
        size_t fds = count_fds();
        int listener, fd = 77;
        weir__peer_process peer = { 77, 77 };
        place at = listen_here(&listener);
        open_the_doors(at.path, true);
        support_process other = process_start_as("foreign importer", users[i]);
        channel_send(other.channel, &at, sizeof at, -1);
        channel_hear(other.channel, "connected");
        must_answer(WEIR_FILE_ERROR, weir__socket_accept(listener, &peer, &fd));
        must(fd == -1 && peer.pidfd == -1);
        process_end(&other);
        must_answer(WEIR_NOT_FOUND, weir__socket_accept(listener, &peer, &fd));
        open_the_doors(at.path, false);
        weir__socket_unlisten(at.path, listener);
        must_equal(count_fds(), fds);
    }
}

static void who_can_be_anybody_shares_with_nobody(void **state)
{
    (void)state;
    if (!support_is_root())
        skip();
    support_process other = process_start_as("nobody", WEIR__UID_NOBODY);
    channel_hear(other.channel, "refused");
    process_end(&other);
}

int main(int argc, char **argv)
{
    support_children(argc, argv, children, sizeof children / sizeof children[0]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_processes_talk),
        cmocka_unit_test(a_killed_exporter_is_gone),
        cmocka_unit_test(who_never_answers_is_not_waited_for),
        cmocka_unit_test(who_goes_before_it_is_let_in_is_passed_over),
        cmocka_unit_test(exporters_of_others_are_refused),
        cmocka_unit_test(importers_of_others_are_refused),
        cmocka_unit_test(who_can_be_anybody_shares_with_nobody),
    };
    return cmocka_run_group_tests(tests, socket_folder_make, socket_folder_remove);
}
