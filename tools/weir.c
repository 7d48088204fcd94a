/* weir.c - the command: `weir info`, `weir replay`, `weir share`, `weir fetch`, `weir
 * help`. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "weir/version.h"
#include "weir_fetch.h"
#include "weir_info.h"
#include "weir_replay.h"
#include "weir_say.h"
#include "weir_share.h"

static void help(void)
{
    fputs(
"usage: weir COMMAND [option ...]\n"
"\n"
"  weir info            the devices here, what each can do, and which build this is\n"
"  weir replay TRACE    replays an allocation trace, checks it, tells what it cost\n"
"  weir share           serves columns on a device, which others read in place\n"
"  weir fetch NAME      reads such a column, or adds one\n"
"  weir help [COMMAND]  this, or more about one of them\n"
"  weir --version       the version of the library\n", stdout);
}

/* False, and it is told: more words stand there than `count`, the command's own among
 * them. */
static bool are_all(int argc, char **argv, int count)
{
    if (argc > count)
        say("what is `%s`? try `weir help`", argv[count]);
    return argc <= count;
}

static int help_main(int argc, char **argv)
{
    if (!are_all(argc, argv, 2))
        return SAY_REFUSED;
    if (argc < 2 || strcmp(argv[1], "help") == 0)
        help();
    else if (strcmp(argv[1], "replay") == 0)
        replay_help();
    else if (strcmp(argv[1], "info") == 0)
        info_help();
    else if (strcmp(argv[1], "share") == 0)
        share_help();
    else if (strcmp(argv[1], "fetch") == 0)
        fetch_help();
    else {
        say("there is no command `%s`; try `weir help`", argv[1]);
        return SAY_REFUSED;
    }
    return SAY_GOOD;
}

static bool is_one_of(const char *word, const char *one, const char *other)
{
    return strcmp(word, one) == 0 || strcmp(word, other) == 0;
}

static int run(int argc, char **argv)
{
    static char name[] = "weir"; /* what getopt begins its sentences with */

    if (argc < 2) {
        say("there is no command; try `weir help`");
        return SAY_REFUSED;
    }
    const char *command = argv[1];
    argv[1] = name;
    if (strcmp(command, "replay") == 0)
        return replay_main(argc - 1, argv + 1);
    if (strcmp(command, "info") == 0)
        return info_main(argc - 1, argv + 1);
    if (strcmp(command, "share") == 0)
        return share_main(argc - 1, argv + 1);
    if (strcmp(command, "fetch") == 0)
        return fetch_main(argc - 1, argv + 1);
    if (is_one_of(command, "help", "--help") || strcmp(command, "-h") == 0)
        return help_main(argc - 1, argv + 1);
    if (is_one_of(command, "version", "--version")) {
        if (!are_all(argc - 1, argv + 1, 1))
            return SAY_REFUSED;
        printf("weir %s\n", weir_version_string());
        return SAY_GOOD;
    }
    say("there is no command `%s`; try `weir help`", command);
    return SAY_REFUSED;
}

/* Of the first three descriptors those that came closed would be the next file's, or
 * socket's, or device memory's, and what is printed would go there. Held like this they
 * cannot be written, which is told like a full disk. */
static bool streams_hold(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    if (!streams_hold())
        return SAY_REFUSED; /* and nowhere to say why */
    int code = run(argc, argv);
    if (code == SAY_GOOD && (fflush(stdout) != 0 || ferror(stdout))) {
        say("stdout cannot be written");
        return SAY_WRONG;
    }
    return code;
}
