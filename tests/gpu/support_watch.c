/* support_watch.c - a device that does not come back: after a while all threads tell
 * where they stand, and the program ends. */
#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "gpu/support_gpu.h"

#define FRAMES 40
#define PATIENCE_S 1

static sem_t has_told;

/* What is called here is not made for signals; the program ends in any case. */
static void tell_own(int signal)
{
    void *frames[FRAMES];
    (void)signal;
    fprintf(stderr, "  thread %ld:\n", (long)syscall(SYS_gettid));
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
    (void)sem_post(&has_told);
}

static void tell_all(int signal)
{
    const long own = (long)syscall(SYS_gettid);
    DIR *threads = opendir("/proc/self/task");
    fprintf(stderr, "  the device does not come back, and threads are here:\n");
    tell_own(signal);
    (void)sem_wait(&has_told);
    for (struct dirent *each; threads != NULL && (each = readdir(threads)) != NULL;) {
        long thread = strtol(each->d_name, NULL, 10);
        if (thread <= 0 || thread == own)
            continue;
        struct timespec patience; /* for each: some may hear nothing */
        (void)clock_gettime(CLOCK_REALTIME, &patience);
        patience.tv_sec += PATIENCE_S;
        (void)syscall(SYS_tgkill, (long)getpid(), thread, SIGUSR1);
        while (sem_timedwait(&has_told, &patience) != 0 && errno == EINTR)
            continue; /* one after the other */
    }
    _exit(3);
}

void support_watch(unsigned seconds)
{
    static bool is_begun;
    struct sigaction now;
    (void)sigaction(SIGALRM, NULL, &now);
    if (now.sa_handler != SIG_DFL && now.sa_handler != tell_all)
        return; /* a test has an alarm of its own */
    if (!is_begun) {
        void *none[1];
        (void)backtrace(none, 1); /* loads what it needs */
        (void)sem_init(&has_told, 0, 0);
        struct sigaction one = { .sa_handler = tell_own, .sa_flags = SA_RESTART };
        struct sigaction all = { .sa_handler = tell_all, .sa_flags = SA_RESTART };
        (void)sigaction(SIGUSR1, &one, NULL);
        (void)sigaction(SIGALRM, &all, NULL);
        is_begun = true;
    }
    (void)alarm(seconds);
}
