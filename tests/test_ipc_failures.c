/* test_ipc_failures.c - every call to the system that sockets need fails once: there
 * is a status and a sentence, and nothing stays behind. The calls are refused by a
 * filter of the kernel's, which nobody gets rid of: so each is tried in a process of
 * its own. */
#include "support_socket.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support.h"
#include "support_process.h"

typedef enum step { LISTEN, CONNECT, ACCEPT, SEND, RECEIVE, RECEIVE_NOTHING } step;

/* What is tried, what fails meanwhile and how, and the answer. Some calls have another
 * number on some machines; none: 0. */
typedef struct trial {
    step step;
    int calls[2];
    int cause;
    weir_status answer;
} trial;

#define MKDIR   { SYS_mkdirat, OLD_MKDIR }
#define STAT    { SYS_newfstatat, SYS_fstat }
#define POLL    { SYS_ppoll, OLD_POLL }
#ifdef SYS_mkdir
#define OLD_MKDIR SYS_mkdir
#else
#define OLD_MKDIR -1
#endif
#ifdef SYS_poll
#define OLD_POLL SYS_poll
#else
#define OLD_POLL -1
#endif
#define ONLY(call) { call, -1 }

static const trial trials[] = {
    { LISTEN, ONLY(SYS_openat), EACCES, WEIR_FILE_ERROR },
    { LISTEN, ONLY(SYS_read), EIO, WEIR_FILE_ERROR },
    { LISTEN, MKDIR, EROFS, WEIR_FILE_ERROR },
    { LISTEN, STAT, EIO, WEIR_FILE_ERROR },
    { LISTEN, ONLY(SYS_getdents64), EIO, WEIR_OK }, /* old ones are left, then */
    { LISTEN, ONLY(SYS_socket), EAFNOSUPPORT, WEIR_FILE_ERROR },
    { LISTEN, ONLY(SYS_setsockopt), ENOPROTOOPT, WEIR_FILE_ERROR },
    { LISTEN, ONLY(SYS_bind), EACCES, WEIR_FILE_ERROR },
    { LISTEN, ONLY(SYS_listen), EADDRINUSE, WEIR_FILE_ERROR },

    { CONNECT, ONLY(SYS_openat), EACCES, WEIR_FILE_ERROR },
    { CONNECT, ONLY(SYS_openat), ENOENT, WEIR_PEER_GONE },
    { CONNECT, ONLY(SYS_read), EIO, WEIR_FILE_ERROR },
    { CONNECT, ONLY(SYS_read), ESRCH, WEIR_PEER_GONE },
    { CONNECT, STAT, EIO, WEIR_FILE_ERROR },
    { CONNECT, ONLY(SYS_socket), EMFILE, WEIR_FILE_ERROR },
    { CONNECT, ONLY(SYS_setsockopt), ENOPROTOOPT, WEIR_FILE_ERROR },
    { CONNECT, ONLY(SYS_connect), EACCES, WEIR_FILE_ERROR },
    { CONNECT, ONLY(SYS_connect), ECONNREFUSED, WEIR_PEER_GONE },
    { CONNECT, ONLY(SYS_getsockopt), ENOPROTOOPT, WEIR_FILE_ERROR },
    { CONNECT, ONLY(SYS_pidfd_open), ENOSYS, WEIR_FILE_ERROR },
    { CONNECT, ONLY(SYS_pidfd_open), EPERM, WEIR_FILE_ERROR },
    { CONNECT, ONLY(SYS_pidfd_open), ESRCH, WEIR_PEER_GONE },
    { CONNECT, POLL, ENOMEM, WEIR_FILE_ERROR },

    { ACCEPT, ONLY(SYS_accept4), EPERM, WEIR_FILE_ERROR },
    { ACCEPT, ONLY(SYS_accept4), EMFILE, WEIR_OUT_OF_HOST_MEMORY },
    { ACCEPT, ONLY(SYS_accept4), ENFILE, WEIR_OUT_OF_HOST_MEMORY },
    { ACCEPT, ONLY(SYS_accept4), ENOMEM, WEIR_OUT_OF_HOST_MEMORY },
    { ACCEPT, ONLY(SYS_accept4), ENOBUFS, WEIR_OUT_OF_HOST_MEMORY },
    { ACCEPT, ONLY(SYS_setsockopt), ENOPROTOOPT, WEIR_FILE_ERROR },
    { ACCEPT, ONLY(SYS_getsockopt), ENOPROTOOPT, WEIR_FILE_ERROR },
    { ACCEPT, ONLY(SYS_pidfd_open), EPERM, WEIR_FILE_ERROR },
    { ACCEPT, ONLY(SYS_pidfd_open), ESRCH, WEIR_NOT_FOUND },
    { ACCEPT, POLL, ENOMEM, WEIR_FILE_ERROR },

    { SEND, ONLY(SYS_sendmsg), ETOOMANYREFS, WEIR_FILE_ERROR },
    { SEND, ONLY(SYS_sendmsg), ENOBUFS, WEIR_FILE_ERROR },
    { SEND, ONLY(SYS_sendmsg), EPIPE, WEIR_PEER_GONE },
    { SEND, ONLY(SYS_sendmsg), ECONNRESET, WEIR_PEER_GONE },
    { SEND, ONLY(SYS_sendmsg), EAGAIN, WEIR_PEER_GONE },
    { RECEIVE, ONLY(SYS_recvmsg), ENOMEM, WEIR_FILE_ERROR },
    { RECEIVE, ONLY(SYS_recvmsg), ECONNRESET, WEIR_PEER_GONE },
    { RECEIVE, ONLY(SYS_recvmsg), EAGAIN, WEIR_NOT_FOUND },
    { RECEIVE_NOTHING, POLL, ENOMEM, WEIR_FILE_ERROR },
};

static bool has_filters(void)
{
    return prctl(PR_GET_SECCOMP) >= 0;
}

/* From now on these calls answer `cause`, in this thread for good. */
static void refuse_calls(const trial *it)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)it->calls[0], 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)it->calls[1], 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)it->cause),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof steps / sizeof steps[0], steps };
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* ---- in a process of its own ---- */

static weir_status try_listen(const trial *it)
{
    char path[WEIR__SOCKET_PATH_BYTES] = "?";
    int fd = 77;
    size_t fds = count_fds();
    refuse_calls(it);
    weir_status status = weir__socket_listen(path, &fd);
    if (status == WEIR_OK)
        weir__socket_unlisten(path, fd);
    else
        must(fd == -1 && path[0] == '\0');
    must_equal(count_fds(), fds);
    return status;
}

static weir_status try_connect(const trial *it)
{
    char path[WEIR__SOCKET_PATH_BYTES];
    weir__peer_process peer = { 77, 77 };
    int fd = 77, listener;
    must_ok(weir__socket_listen(path, &listener));
    weir__ticket ticket = ticket_of_self(path);
    size_t fds = count_fds();
    refuse_calls(it);
    weir_status status = weir__socket_connect(&ticket, &peer, &fd);
    must(fd == -1 && peer.pid == 0 && peer.pidfd == -1);
    must_equal(count_fds(), fds);
    weir__socket_unlisten(path, listener);
    return status;
}

static weir_status try_accept(const trial *it)
{
    char path[WEIR__SOCKET_PATH_BYTES];
    weir__peer_process peer, own;
    int fd = 77, listener, importer;
    must_ok(weir__socket_listen(path, &listener));
    weir__ticket ticket = ticket_of_self(path);
    must_ok(weir__socket_connect(&ticket, &own, &importer));
    size_t fds = count_fds();
    refuse_calls(it);
    weir_status status = weir__socket_accept(listener, &peer, &fd);
    must(fd == -1 && peer.pid == 0 && peer.pidfd == -1);
    must_equal(count_fds(), fds);
    weir__socket_unlisten(path, listener);
    return status;
}

static weir_status try_message(const trial *it)
{
    connection both = connect_both();
    weir__message message = over_message(), came;
    weir_status status;
    if (it->step == RECEIVE)
        must_ok(weir__socket_send(both.exporter, &message, 0));
    refuse_calls(it);
    size_t fds = count_fds();
    if (it->step == SEND)
        status = weir__socket_send(both.exporter, &message, NEVER_MS);
    else
        status = weir__socket_receive(both.importer, &both.importers_peer, NEVER_MS,
                                      &came);
    must_equal(count_fds(), fds);
    hang_up(&both);
    return status;
}

static void tries(int channel)
{
    static weir_status (*const steps[])(const trial *) = {
        try_listen, try_connect, try_accept, try_message, try_message, try_message
    };
    size_t which;
    must(channel_receive(channel, &which, sizeof which) == -1);
    const trial *it = &trials[which];
    /* The first failure of a thread makes room for its sentence. */
    must_answer(WEIR_NOT_FOUND, weir__process_find(999999999, &(uint64_t){ 0 }));
    weir_status status = steps[it->step](it);
    if (status != it->answer)
        fprintf(stderr, "  trial %zu, errno %d\n", which, it->cause);
    must_equal(status, it->answer);
    if (status != WEIR_OK) {
        must_equal(weir_last_error().status, status);
        must(weir_last_error().message[0] != '\0');
    }
    if (status == WEIR_FILE_ERROR || status == WEIR_OUT_OF_HOST_MEMORY)
        must_equal(weir_last_error().native_code, it->cause);
    _exit(0); /* what a sanitizer looks at in the end may be refused */
}

static const support_child children[] = { { "tries", tries } };

static void every_call_fails_in_turn(void **state)
{
    (void)state;
    if (!has_filters())
        skip();
    size_t count = sizeof trials / sizeof trials[0];
    for (size_t i = 0; i < count; i++) {
        support_process other = process_start("tries");
        channel_send(other.channel, &i, sizeof i, -1);
        process_end(&other);
    }
}

/* ---- descriptors ---- */

/* This process may have `count` more descriptors; below 0: as many as before. */
static void leave_room_for(int count)
{
    static struct rlimit usual;
    if (usual.rlim_max == 0)
        must(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    struct rlimit limit = usual;
    int next[8]; /* which need not follow each other */
    for (int i = 0; i <= count; i++)
        next[i] = any_fd();
    if (count >= 0)
        limit.rlim_cur = (rlim_t)next[count];
    for (int i = 0; i <= count; i++)
        end_fd(&next[i]);
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void listening_needs_two_descriptors(void **state)
{
    (void)state;
    size_t fds = count_fds();
    for (int room = 0; room <= 2; room++) {
        char path[WEIR__SOCKET_PATH_BYTES] = "?";
        int fd = 77;
        leave_room_for(room);
        weir_status status = weir__socket_listen(path, &fd);
        leave_room_for(-1);
        must_equal(status, room < 2 ? WEIR_FILE_ERROR : WEIR_OK);
        if (status == WEIR_OK)
            weir__socket_unlisten(path, fd);
        else
            must(fd == -1 && path[0] == '\0');
        must_equal(count_fds(), fds);
    }
}

static void connecting_needs_four_descriptors(void **state)
{
    (void)state;
    char path[WEIR__SOCKET_PATH_BYTES];
    int listener;
    must_ok(weir__socket_listen(path, &listener));
    weir__ticket ticket = ticket_of_self(path);
    size_t fds = count_fds();
    for (int room = 0; room <= 4; room++) {
        int fd = 77;
        weir__peer_process peer = { 77, 77 };
        leave_room_for(room);
        weir_status status = weir__socket_connect(&ticket, &peer, &fd);
        leave_room_for(-1);
        must_equal(status, room < 4 ? WEIR_FILE_ERROR : WEIR_OK);
        if (status == WEIR_OK)
            end_fd(&fd);
        must(fd == -1);
        weir__peer_close(&peer);
        must_equal(count_fds(), fds);
    }
    weir__socket_unlisten(path, listener);
}

/* Where there is not even one, who waits goes on waiting. */
static void accepting_needs_two_descriptors(void **state)
{
    (void)state;
    size_t fds = count_fds();
    char path[WEIR__SOCKET_PATH_BYTES];
    int listener;
    weir__message came;
    must_ok(weir__socket_listen(path, &listener));
    weir__ticket ticket = ticket_of_self(path);
    static const weir_status wanted[] = { WEIR_OUT_OF_HOST_MEMORY, WEIR_FILE_ERROR,
                                          WEIR_OK };
    for (int room = 0; room <= 2; room++) {
        int fd = 77, importer;
        weir__peer_process peer = { 77, 77 }, own;
        must_ok(weir__socket_connect(&ticket, &own, &importer));
        leave_room_for(room);
        weir_status status = weir__socket_accept(listener, &peer, &fd);
        leave_room_for(-1);
        must_equal(status, wanted[room]);
        weir_status after = weir__socket_receive(importer, &own, 0, &came);
        must_equal(after, room == 1 ? WEIR_PEER_GONE : WEIR_NOT_FOUND);
        if (room == 0)
            must_ok(weir__socket_accept(listener, &peer, &fd));
        if (room == 1)
            must(fd == -1 && peer.pidfd == -1);
        else
            end_fd(&fd);
        weir__peer_close(&peer);
        weir__peer_close(&own);
        end_fd(&importer);
    }
    weir__socket_unlisten(path, listener);
    must_equal(count_fds(), fds);
}

int main(int argc, char **argv)
{
    support_children(argc, argv, children, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails_in_turn),
        cmocka_unit_test(listening_needs_two_descriptors),
        cmocka_unit_test(connecting_needs_four_descriptors),
        cmocka_unit_test(accepting_needs_two_descriptors),
    };
    return cmocka_run_group_tests(tests, socket_folder_make, socket_folder_remove);
}
