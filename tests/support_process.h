/* support_process.h - other processes for tests: the test program once more, running
 * one function, and a channel between the two.
 *
 *     int main(int argc, char **argv)
 *     {
 *         static const support_child children[] = { { "importer", importer } };
 *         support_children(argc, argv, children, 1);
 *         ... cmocka_run_group_tests
 *
 * Such a process is really another, begun by exec: it shares nothing with the test but
 * the channel, the environment and standard output. Claims in it print as they do
 * in a test, and end it; the test then fails where it waits for it, or hears from it.
 * It dies with the process that began it. */
#ifndef WEIR_TESTS_SUPPORT_PROCESS_H
#define WEIR_TESTS_SUPPORT_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* ---- in the program's main ---- */

typedef struct support_child {
    const char *name;
    void (*run)(int channel);
} support_child;

/* In a process that process_start began: runs its function, and does not return. In a
 * test program as it was called does nothing. */
void support_children(int argc, char **argv, const support_child *children,
                      size_t count);

/* ---- in a test ---- */

typedef struct support_process {
    pid_t pid;
    int channel;
} support_process;

support_process process_start(const char *name);
/* As another user, which only root can do (support_is_root). */
support_process process_start_as(const char *name, uid_t user);
bool support_is_root(void);
/* Waits until it has ended, and claims that it did so of itself, without a failure. */
void process_end(support_process *process);
/* Kills it (SIGKILL). Until process_reap has heard of its end it stays in the system's
 * list, as one that has ended. */
void process_kill(support_process *process);
void process_reap(support_process *process);

/* ---- both: messages, each as it was sent ---- */

/* With a file descriptor, which stays the caller's; -1: none. */
void channel_send(int channel, const void *data, size_t bytes, int fd);
/* Claims that a message of that many bytes comes. Returns its descriptor, which is the
 * caller's; -1: none came with it. */
int channel_receive(int channel, void *data, size_t bytes);
/* Waits until the other says something (false), or has ended. */
bool channel_is_ended(int channel);
/* Words that both know, to wait for each other. */
void channel_say(int channel, const char *word);
void channel_hear(int channel, const char *word);

#endif
