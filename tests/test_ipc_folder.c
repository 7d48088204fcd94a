/* test_ipc_folder.c - where sockets lie: in a folder that is the user's alone, and
 * nowhere else; and which of them are old. */
#include "support_socket.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc_folder.h"
#include "support.h"

#define STRANGER 1234u /* a user that is not this one */

static bool exists(const char *path)
{
    struct stat it;
    return lstat(path, &it) == 0;
}

/* The path of `name` in the folder. */
static const char *in_folder(const char *name)
{
    static char path[WEIR__SOCKET_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", socket_folder_inside(), name);
    return path;
}

static void name_of_self(char name[WEIR__SOCKET_NAME_BYTES])
{
    weir__folder_name(getpid(), weir__process_start_time(getpid()), name);
}

/* A socket at a name, which is not closed on its own. */
static int socket_at(const char *name, int kind, bool listens)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    snprintf(address.sun_path, sizeof address.sun_path, "%s", in_folder(name));
    int fd = socket(AF_UNIX, kind | SOCK_CLOEXEC, 0);
    must(fd >= 0);
    must(bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    must(!listens || listen(fd, 8) == 0);
    return fd;
}

static weir_status try_listen(void)
{
    char path[WEIR__SOCKET_PATH_BYTES] = "?";
    int fd = 77;
    size_t fds = count_fds();
    weir_status status = weir__socket_listen(path, &fd);
    if (status == WEIR_OK) {
        weir__socket_unlisten(path, fd);
        must(!exists(path));
    } else {
        must(fd == -1 && path[0] == '\0');
    }
    must_equal(count_fds(), fds);
    return status;
}

static weir_status try_connect(const weir__ticket *ticket)
{
    weir__peer_process peer = { 77, 77 };
    int fd = 77;
    size_t fds = count_fds();
    weir_status status = weir__socket_connect(ticket, &peer, &fd);
    if (status == WEIR_OK) {
        must_equal(peer.pid, ticket->pid);
        end_fd(&fd);
        weir__peer_close(&peer);
    }
    must(fd == -1 && peer.pidfd == -1 && peer.pid == 0);
    must_equal(count_fds(), fds);
    return status;
}

/* ---- the folder ---- */

static void a_socket_lies_in_the_folder(void **state)
{
    (void)state;
    char name[WEIR__SOCKET_NAME_BYTES], path[WEIR__SOCKET_PATH_BYTES];
    int fd;
    name_of_self(name);
    must(rmdir(socket_folder_inside()) == 0);
    mode_t mask = umask(0);
    must_ok(weir__socket_listen(path, &fd));
    umask(mask);
    must(strcmp(path, in_folder(name)) == 0);
    struct stat it;
    must(lstat(path, &it) == 0 && S_ISSOCK(it.st_mode));
    must(lstat(socket_folder_inside(), &it) == 0 && S_ISDIR(it.st_mode));
    must_equal(it.st_mode & 07777, 0700);
    must((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    must((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);

    /* A second one leaves the first as it is. */
    must_answer(WEIR_FILE_ERROR, try_listen());
    weir__ticket ticket = ticket_of_self(path);
    must_ok(try_connect(&ticket));
    weir__socket_unlisten(path, fd);
    must(!exists(path));
    must_ok(try_listen());
}

/* Claims that in the folder as it is now nobody listens, nor connects to a socket. */
static void must_be_refused(const char *path)
{
    must_answer(WEIR_FILE_ERROR, try_listen());
    weir__ticket ticket = ticket_of_self(path);
    must_answer(WEIR_FILE_ERROR, try_connect(&ticket));
}

static void other_modes_are_refused(void **state)
{
    (void)state;
    static const mode_t modes[] = { 0701, 0710, 0750, 0755, 0770, 0777, 0600, 0500,
                                    01700, 02700, 04700 };
    char path[WEIR__SOCKET_PATH_BYTES];
    int fd;
    must_ok(weir__socket_listen(path, &fd));
    weir__ticket ticket = ticket_of_self(path);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        must(chmod(socket_folder_inside(), modes[i]) == 0);
        must_be_refused(path);
    }
    must(chmod(socket_folder_inside(), 0700) == 0);
    must_ok(try_connect(&ticket));
    weir__socket_unlisten(path, fd);
}

static void anothers_folder_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    char path[WEIR__SOCKET_PATH_BYTES];
    int fd;
    must_ok(weir__socket_listen(path, &fd));
    static const uid_t others[] = { STRANGER, WEIR__UID_NOBODY };
    for (size_t i = 0; i < 2; i++) {
        must(chown(socket_folder_inside(), others[i], (gid_t)-1) == 0);
        must_be_refused(path);
    }
    must(chown(socket_folder_inside(), 0, (gid_t)-1) == 0);
    weir__socket_unlisten(path, fd);
}

/* Not even to a folder that would do; however its name is spelt. */
static void symbolic_links_are_refused(void **state)
{
    (void)state;
    char path[WEIR__SOCKET_PATH_BYTES], other[64], name[WEIR__SOCKET_NAME_BYTES];
    int fd;
    snprintf(other, sizeof other, "%s/other", socket_folder());
    must_ok(weir__socket_listen(path, &fd));
    must(rename(socket_folder_inside(), other) == 0);
    must(symlink(other, socket_folder_inside()) == 0);
    must_be_refused(path);
    weir__ticket ticket = ticket_of_self(path);
    name_of_self(name);
    for (const char *between = "///"; *between != '\0'; between++) {
        snprintf(ticket.socket, sizeof ticket.socket, "%s/%s%s", socket_folder_inside(),
                 between, name);
        must_answer(WEIR_FILE_ERROR, try_connect(&ticket));
    }
    must(unlink(socket_folder_inside()) == 0);
    must(rename(other, socket_folder_inside()) == 0);
    must_ok(try_connect(&ticket));
    weir__socket_unlisten(path, fd);
}

static void a_file_is_no_folder(void **state)
{
    (void)state;
    char path[WEIR__SOCKET_PATH_BYTES];
    snprintf(path, sizeof path, "%s", in_folder("1-1"));
    must(rmdir(socket_folder_inside()) == 0);
    int file = open(socket_folder_inside(), O_CREAT | O_WRONLY | O_CLOEXEC, 0700);
    must(file >= 0 && close(file) == 0);
    must_answer(WEIR_FILE_ERROR, try_listen());
    weir__ticket ticket = ticket_of_self(path);
    char name[WEIR__SOCKET_NAME_BYTES];
    name_of_self(name);
    snprintf(ticket.socket, sizeof ticket.socket, "%s", in_folder(name));
    must_answer(WEIR_FILE_ERROR, try_connect(&ticket));
    must(unlink(socket_folder_inside()) == 0);
    must(mkdir(socket_folder_inside(), 0700) == 0);
}

/* ---- where it is ---- */

/* Claims that with this in the environment (null: nothing) the socket lies in
 * `wanted`. */
static void must_lie_in(const char *runtime, const char *wanted)
{
    char path[WEIR__SOCKET_PATH_BYTES];
    int fd;
    must((runtime == NULL ? unsetenv("XDG_RUNTIME_DIR")
                          : setenv("XDG_RUNTIME_DIR", runtime, 1)) == 0);
    must_ok(weir__socket_listen(path, &fd));
    must(setenv("XDG_RUNTIME_DIR", socket_folder(), 1) == 0);
    must(strncmp(path, wanted, strlen(wanted)) == 0 && path[strlen(wanted)] == '/');
    must(strchr(path + strlen(wanted) + 1, '/') == NULL);
    weir__ticket ticket = ticket_of_self(path);
    must_ok(try_connect(&ticket));
    weir__socket_unlisten(path, fd);
}

static void the_environment_says_where(void **state)
{
    (void)state;
    char usual[64], other[64], wanted[72];
    snprintf(usual, sizeof usual, "/tmp/weir-%u", geteuid());
    snprintf(other, sizeof other, "%s/other", socket_folder());
    snprintf(wanted, sizeof wanted, "%s/weir", other);
    must_lie_in(NULL, usual);
    must_lie_in("", usual);
    must_lie_in("tmp", usual);
    must_lie_in(".", usual); /* which is there, and ours */
    must_lie_in(other, usual); /* which is not there */
    int file = open(other, O_CREAT | O_WRONLY | O_CLOEXEC, 0700);
    must(file >= 0 && close(file) == 0);
    must_lie_in(other, usual); /* nor is that a folder */
    must(unlink(other) == 0 && mkdir(other, 0755) == 0);
    must_lie_in(other, wanted);
    must(rmdir(wanted) == 0);
    if (geteuid() == 0) {
        must(chown(other, STRANGER, (gid_t)-1) == 0);
        must_lie_in(other, usual);
    }
    must(rmdir(other) == 0);
}

/* The longest that leaves room for a name, and one more. */
static void too_long_paths_are_not_used(void **state)
{
    (void)state;
    enum { LONGEST = WEIR__SOCKET_PATH_BYTES - WEIR__SOCKET_NAME_BYTES - 1 - 5 };
    char usual[64], other[LONGEST + 2], wanted[LONGEST + 8];
    snprintf(usual, sizeof usual, "/tmp/weir-%u", geteuid());
    for (size_t length = LONGEST; length <= LONGEST + 1; length++) {
        size_t begin = (size_t)snprintf(other, sizeof other, "%s/", socket_folder());
        memset(other + begin, 'x', length - begin);
        other[length] = '\0';
        snprintf(wanted, sizeof wanted, "%s/weir", other);
        must(mkdir(other, 0700) == 0);
        must_lie_in(other, length == LONGEST ? wanted : usual);
        must((rmdir(wanted) == 0) == (length == LONGEST));
        must(rmdir(other) == 0);
    }
}

/* ---- old sockets ---- */

/* What this process leaves where it was before, in another program. */
static void ones_own_old_socket_is_replaced(void **state)
{
    (void)state;
    char name[WEIR__SOCKET_NAME_BYTES];
    name_of_self(name);
    int old = socket_at(name, SOCK_SEQPACKET, true);
    must_answer(WEIR_FILE_ERROR, try_listen()); /* not that old */
    end_fd(&old);
    must(exists(in_folder(name)));
    must_ok(try_listen());
}

static void sockets_of_the_ended_are_removed(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    siginfo_t ended;
    must(child > 0 && waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT) == 0);
    char names[3][WEIR__SOCKET_NAME_BYTES];
    weir__folder_name(999999999, 1, names[0]);
    weir__folder_name(getppid(), weir__process_start_time(getppid()) + 1, names[1]);
    weir__folder_name(child, 5, names[2]); /* which nobody has looked after */
    for (size_t i = 0; i < 3; i++) {
        int fd = socket_at(names[i], SOCK_SEQPACKET, true);
        end_fd(&fd);
    }
    must_ok(try_listen());
    for (size_t i = 0; i < 3; i++)
        must(!exists(in_folder(names[i])));
    must(waitpid(child, NULL, 0) == child);
}

static void what_is_not_old_is_left(void **state)
{
    (void)state;
    char alive[WEIR__SOCKET_NAME_BYTES];
    weir__folder_name(getppid(), weir__process_start_time(getppid()), alive);
    int idle = socket_at(alive, SOCK_SEQPACKET, false); /* will listen soon */
    int foreign = socket_at("999999999-1", SOCK_SEQPACKET, true); /* a container's */
    static const char *const others[] = { "1", "1-", "-1", "a-1", "1-a", "01-1", "1-01",
                                          "-1-1", "0-1", "+1-1", "1-1 ", "1-1-1",
                                          " 999999999-1" };
    enum { OTHERS = sizeof others / sizeof others[0] };
    for (size_t i = 0; i < OTHERS; i++) {
        int fd = socket_at(others[i], SOCK_SEQPACKET, false);
        end_fd(&fd);
    }
    int file = open(in_folder("999999999-2"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    must(file >= 0 && close(file) == 0);
    must(symlink("1", in_folder("999999999-3")) == 0);

    must_ok(try_listen());
    must(exists(in_folder(alive)) && exists(in_folder("999999999-1")));
    must(unlink(in_folder(alive)) == 0 && unlink(in_folder("999999999-1")) == 0);
    for (size_t i = 0; i < OTHERS; i++)
        must(unlink(in_folder(others[i])) == 0);
    must(unlink(in_folder("999999999-2")) == 0);
    must(unlink(in_folder("999999999-3")) == 0);
    end_fd(&idle);
    end_fd(&foreign);
}

/* ---- who is not there ---- */

static void nobody_is_there(void **state)
{
    (void)state;
    char name[WEIR__SOCKET_NAME_BYTES];
    name_of_self(name);
    weir__ticket ticket = ticket_of_self(in_folder(name));
    must_answer(WEIR_PEER_GONE, try_connect(&ticket)); /* no socket */
    int fd = socket_at(name, SOCK_SEQPACKET, false);
    must_answer(WEIR_PEER_GONE, try_connect(&ticket)); /* it does not listen */
    must(listen(fd, 8) == 0);
    must_ok(try_connect(&ticket));
    end_fd(&fd);
    must_answer(WEIR_PEER_GONE, try_connect(&ticket)); /* it has ended */
    must(unlink(in_folder(name)) == 0);
    snprintf(ticket.socket, sizeof ticket.socket, "%s/none/%s", socket_folder(), name);
    must_answer(WEIR_PEER_GONE, try_connect(&ticket)); /* no folder */
    snprintf(ticket.socket, sizeof ticket.socket, "/%s", name);
    must_answer(WEIR_FILE_ERROR, try_connect(&ticket)); /* not that folder */

    fd = socket_at(name, SOCK_STREAM, true);
    snprintf(ticket.socket, sizeof ticket.socket, "%s", in_folder(name));
    must_answer(WEIR_FILE_ERROR, try_connect(&ticket)); /* a socket of another kind */
    end_fd(&fd);
    must(unlink(in_folder(name)) == 0);
}

/* A process that is there, but not the ticket's. */
static void another_process_is_there(void **state)
{
    (void)state;
    char name[WEIR__SOCKET_NAME_BYTES];
    weir__ticket ticket = ticket_of_self("");
    ticket.start_time++;
    weir__folder_name(ticket.pid, ticket.start_time, name);
    int fd = socket_at(name, SOCK_SEQPACKET, true);
    snprintf(ticket.socket, sizeof ticket.socket, "%s", in_folder(name));
    must_answer(WEIR_PEER_GONE, try_connect(&ticket));
    end_fd(&fd);
    must(unlink(in_folder(name)) == 0);

    ticket = ticket_of(getppid(), "");
    weir__folder_name(ticket.pid, ticket.start_time, name);
    fd = socket_at(name, SOCK_SEQPACKET, true);
    snprintf(ticket.socket, sizeof ticket.socket, "%s", in_folder(name));
    must_answer(WEIR_PEER_GONE, try_connect(&ticket));
    snprintf(ticket.socket, sizeof ticket.socket, "%s", in_folder("1-1"));
    must_answer(WEIR_INVALID_ARGUMENT, try_connect(&ticket));
    end_fd(&fd);
    must(unlink(in_folder(name)) == 0);
}

static void a_crowd_is_not_waited_for(void **state)
{
    (void)state;
    char path[WEIR__SOCKET_PATH_BYTES];
    int fd, waiting;
    weir__peer_process peer;
    must_ok(weir__socket_listen(path, &fd));
    must(listen(fd, 0) == 0); /* room for one */
    weir__ticket ticket = ticket_of_self(path);
    must_ok(weir__socket_connect(&ticket, &peer, &waiting));
    must_answer(WEIR_PEER_GONE, try_connect(&ticket));
    end_fd(&waiting);
    weir__peer_close(&peer);
    weir__socket_unlisten(path, fd);
}

/* ---- processes ---- */

static void a_process_is_told_by_its_beginning(void **state)
{
    (void)state;
    uint64_t own = weir__process_start_time(getpid()), found = 1;
    must(own > 0);
    must(own >= weir__process_start_time(getppid()));
    must_ok(weir__process_find(getpid(), &found));
    must_equal(found, own);
    static const char *const names[] = { ") Z 1 2 3", "a b", ")", "((", "" };
    char before[16];
    must(prctl(PR_GET_NAME, before) == 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        must(prctl(PR_SET_NAME, names[i]) == 0);
        must_equal(weir__process_start_time(getpid()), own);
    }
    must(prctl(PR_SET_NAME, before) == 0);

    must_answer(WEIR_NOT_FOUND, weir__process_find(999999999, &found));
    must_equal(found, 0);
    must_equal(weir__process_start_time(999999999), 0);
    must_equal(weir__process_start_time(-1), 0);
}

/* It has no beginning any more before its parent has looked after it. */
static void the_ended_are_gone_at_once(void **state)
{
    (void)state;
    int end = 77;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    siginfo_t ended;
    must(child > 0 && waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT) == 0);
    must_equal(weir__process_start_time(child), 0);
    must(waitpid(child, NULL, 0) == child);
    must_equal(weir__process_start_time(child), 0);
    must_answer(WEIR_PEER_GONE, weir__process_watch(child, &end));
    must_equal(end, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_socket_lies_in_the_folder),
        cmocka_unit_test(other_modes_are_refused),
        cmocka_unit_test(anothers_folder_is_refused),
        cmocka_unit_test(symbolic_links_are_refused),
        cmocka_unit_test(a_file_is_no_folder),
        cmocka_unit_test(the_environment_says_where),
        cmocka_unit_test(too_long_paths_are_not_used),
        cmocka_unit_test(ones_own_old_socket_is_replaced),
        cmocka_unit_test(sockets_of_the_ended_are_removed),
        cmocka_unit_test(what_is_not_old_is_left),
        cmocka_unit_test(nobody_is_there),
        cmocka_unit_test(another_process_is_there),
        cmocka_unit_test(a_crowd_is_not_waited_for),
        cmocka_unit_test(a_process_is_told_by_its_beginning),
        cmocka_unit_test(the_ended_are_gone_at_once),
    };
    return cmocka_run_group_tests(tests, socket_folder_make, socket_folder_remove);
}
