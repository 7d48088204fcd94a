/* support_process.c - see support_process.h. */
#include "support_process.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define CHANNEL 3 /* its number in a process that was begun */
/* A test that hangs is ended by then, so that it tells where. */
#define PATIENCE_MS 60000

extern char **environ;

/* ---- the other process ---- */

/* Becomes `user` for good, and this program anew: so that the system takes it for one
 * that this user has begun. */
static _Noreturn void become(const char *user, char *name)
{
    uid_t uid = (uid_t)strtoul(user, NULL, 10);
    char program[] = "weir-child", flag[] = "--child";
    char *const arguments[] = { program, flag, name, NULL };
    if (setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 &&
        setresuid(uid, uid, uid) == 0)
        execv("/proc/self/exe", arguments);
    fprintf(stderr, "  no process as user %u: %s\n", (unsigned)uid, strerror(errno));
    exit(1);
}

void support_children(int argc, char **argv, const support_child *children,
                      size_t count)
{
    if (argc < 3 || strcmp(argv[1], "--child") != 0)
        return;
    if (argc > 3)
        become(argv[3], argv[2]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(children[i].name, argv[2]) != 0)
            continue;
        children[i].run(CHANNEL);
        exit(0);
    }
    fprintf(stderr, "  there is no child called %s\n", argv[2]);
    exit(1);
}

/* ---- beginning and ending ---- */

static support_process start(char *const arguments[])
{
    char program[4096];
    int ends[2];
    posix_spawn_file_actions_t actions;
    support_process process = { .pid = 0 };

    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    must(length > 0);
    program[length] = '\0';
    fflush(NULL);
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    must(posix_spawn_file_actions_init(&actions) == 0);
    must(posix_spawn_file_actions_adddup2(&actions, ends[1], CHANNEL) == 0);
    must(posix_spawn(&process.pid, program, &actions, NULL, arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    process.channel = ends[0];
    return process;
}

support_process process_start(const char *name)
{
    char program[] = "weir-child", flag[] = "--child", child[64];
    snprintf(child, sizeof child, "%s", name);
    char *const arguments[] = { program, flag, child, NULL };
    return start(arguments);
}

support_process process_start_as(const char *name, uid_t user)
{
    char program[] = "weir-child", flag[] = "--child", child[64], number[16];
    snprintf(child, sizeof child, "%s", name);
    snprintf(number, sizeof number, "%u", (unsigned)user);
    char *const arguments[] = { program, flag, child, number, NULL };
    return start(arguments);
}

bool support_is_root(void)
{
    return geteuid() == 0;
}

static int wait_for(support_process *process)
{
    int status = -1;
    while (waitpid(process->pid, &status, 0) < 0)
        must(errno == EINTR);
    close(process->channel);
    *process = (support_process){ .channel = -1 };
    return status;
}

bool channel_is_ended(int channel)
{
    char none;
    struct pollfd ready = { .fd = channel, .events = POLLIN };
    must(poll(&ready, 1, PATIENCE_MS) == 1);
    return recv(channel, &none, sizeof none, MSG_DONTWAIT | MSG_PEEK) <= 0;
}

void process_end(support_process *process)
{
    must(channel_is_ended(process->channel));
    int status = wait_for(process);
    must(WIFEXITED(status));
    must_equal(WEXITSTATUS(status), 0);
}

void process_kill(support_process *process)
{
    must(kill(process->pid, SIGKILL) == 0);
}

void process_reap(support_process *process)
{
    int status = wait_for(process);
    must(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* ---- messages ---- */

/* Room for one descriptor beside a message, aligned as the system wants it. */
typedef union beside {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
} beside;

void channel_send(int channel, const void *data, size_t bytes, int fd)
{
    beside more;
    struct iovec part = { .iov_base = (void *)(uintptr_t)data, .iov_len = bytes };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    if (fd >= 0) {
        memset(&more, 0, sizeof more);
        message.msg_control = &more;
        message.msg_controllen = sizeof more.room;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof fd),
                                  .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
    }
    must(sendmsg(channel, &message, MSG_NOSIGNAL) == (ssize_t)bytes);
}

int channel_receive(int channel, void *data, size_t bytes)
{
    beside more;
    int fd = -1;
    struct iovec part = { .iov_base = data, .iov_len = bytes };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &more,
                              .msg_controllen = sizeof more.room };
    struct pollfd ready = { .fd = channel, .events = POLLIN };
    must(poll(&ready, 1, PATIENCE_MS) == 1);
    ssize_t length = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
    must_equal(length, bytes); /* 0: the other process has ended */
    must((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head != NULL && head->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(head), sizeof fd);
    return fd;
}

#define WORD_MAX 32

void channel_say(int channel, const char *word)
{
    char message[WORD_MAX] = { 0 };
    snprintf(message, sizeof message, "%s", word);
    channel_send(channel, message, sizeof message, -1);
}

void channel_hear(int channel, const char *word)
{
    char message[WORD_MAX];
    must(channel_receive(channel, message, sizeof message) == -1);
    message[WORD_MAX - 1] = '\0';
    if (strcmp(message, word) != 0)
        fprintf(stderr, "  heard \"%s\", not \"%s\"\n", message, word);
    must(strcmp(message, word) == 0);
}
