/* weir_share.c - see weir_share.h. */
#include "weir_share.h"

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weir_cache.h"
#include "weir_say.h"
#include "weir_serve.h"
#include "weir_talk.h"
#include "weir_value.h"

void share_help(void)
{
    fputs(
"usage: weir share --socket PATH --capacity BYTES [option ...]\n"
"\n"
"Serves a cache of columns, in memory of a device, to other processes of this user:\n"
"`weir fetch` reads them where they are, and adds to them. Runs until it is told to\n"
"end (SIGINT, SIGTERM); readers keep what they have open. Up to 200 talk to it at a\n"
"time; who comes then waits until one has gone.\n"
"\n"
"A column takes whole objects of 2MiB, so that who opens one reaches no other. When\n"
"they take more than the capacity, those go that were not asked for the longest: who\n"
"has one open keeps it, nobody opens it any more.\n"
"\n"
"  --socket PATH      the Unix socket to listen at; it is made, for this user alone\n"
"  --capacity BYTES   of the cache, as 512MiB\n"
"  --device NAME      emulated:N or cuda:N; default emulated:0\n"
"  --resource SPEC    where columns lie; default shareable\n"
"\n"
"At the socket each line is a question, and is answered in turn:\n"
"  list               for each column, the last used first, a line\n"
"                     `has NAME DTYPE LENGTH BYTES MASKED`, then `end`\n"
"  get NAME           `column NAME DTYPE LENGTH DATA MASK`: tickets to open, as lists\n"
"                     in JSON; the mask is - if there is none\n"
"  add NAME DTYPE LENGTH DATA MASK\n"
"                     `ok`, once the server copies what these tickets are for\n"
"Or `no`, and why. Lines have 4096 bytes at most.\n"
"\n"
"Exit status: 0 it served, and was told to end; 1 it broke off; 2 it did not begin.\n",
    stdout);
}

typedef struct share_options {
    const char *socket;
    const char *device;
    const char *resource;
    size_t capacity_bytes;
} share_options;

/* From here on the signals that end the command are read; all threads leave them. */
static int stop_open(refusal *why)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    int fd = -1;
    if (sigprocmask(SIG_BLOCK, &signals, NULL) == 0)
        fd = signalfd(-1, &signals, SFD_CLOEXEC);
    if (fd < 0)
        refuse(why, "signals cannot be waited for");
    return fd;
}

/* Who took the socket away and serves at that path since keeps its own. Called while
 * the listener is open: until then no other file gets the number of its own. */
static void socket_remove(const char *path, const struct stat *made)
{
    struct stat there;
    if (lstat(path, &there) == 0 && there.st_dev == made->st_dev &&
        there.st_ino == made->st_ino)
        (void)unlink(path);
}

/* Tells on stdout once the socket can be connected to. */
static bool serve(const share_options *options, cache *columns, int listener,
                  int stop_fd)
{
    refusal why;
    struct stat made;
    bool is_known = lstat(options->socket, &made) == 0;
    printf("serving %s on %s: %s of columns at most\n", options->socket,
           options->device, say_bytes(options->capacity_bytes).text);
    fflush(stdout);
    bool good = serve_run(columns, listener, stop_fd, &why);
    if (!good)
        say("%s", why.text);
    if (is_known)
        socket_remove(options->socket, &made);
    close(listener);
    cache_counts counts = cache_count(columns);
    printf("ended: %" PRIu64 " columns were added, %" PRIu64 " dropped, %" PRIu64
           " read\n", counts.added, counts.dropped, counts.read);
    return good;
}

static int run(const share_options *options)
{
    refusal why;
    int status = SAY_REFUSED, listener = -1;
    int stop_fd = stop_open(&why);
    cache *columns = NULL;
    if (stop_fd >= 0)
        columns = cache_open(options->device, options->resource,
                             options->capacity_bytes, &why);
    if (columns != NULL)
        listener = talk_listen(options->socket, &why);
    if (listener >= 0)
        status = serve(options, columns, listener, stop_fd) ? SAY_GOOD : SAY_WRONG;
    else
        say("%s", why.text);
    cache_close(columns);
    if (stop_fd >= 0)
        close(stop_fd);
    return status;
}

int share_main(int argc, char **argv)
{
    static const struct option arguments[] = {
        { "socket", required_argument, NULL, 's' },
        { "capacity", required_argument, NULL, 'c' },
        { "device", required_argument, NULL, 'd' },
        { "resource", required_argument, NULL, 'r' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 }
    };
    share_options options = { .device = "emulated:0", .resource = "shareable" };
    bool good = true;
    int code;

    optind = 1;
    while (good && (code = getopt_long(argc, argv, "h", arguments, NULL)) != -1) {
        if (code == 's')
            options.socket = optarg;
        else if (code == 'c')
            good = value_bytes("capacity", optarg, &options.capacity_bytes);
        else if (code == 'd')
            options.device = optarg;
        else if (code == 'r')
            options.resource = optarg;
        else if (code == 'h') {
            share_help();
            return SAY_GOOD;
        } else {
            say("try `weir share --help`");
            good = false;
        }
    }
    if (good && optind != argc) {
        say("what is `%s`? try `weir share --help`", argv[optind]);
        good = false;
    } else if (good && (options.socket == NULL || options.capacity_bytes == 0)) {
        say("--socket and --capacity are needed; try `weir share --help`");
        good = false;
    }
    return good ? run(&options) : SAY_REFUSED;
}
