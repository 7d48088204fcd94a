/* weir_talk.c - see weir_talk.h. */
#include "weir_talk.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* How long the other side may take for an answer. */
#define PATIENCE_SECONDS 30

static bool address_of(const char *path, struct sockaddr_un *out, refusal *why)
{
    size_t length = strlen(path);

    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    if (length == 0 || length >= sizeof out->sun_path)
        return refuse(why, "the path of a socket has 1 to %zu bytes, not %zu",
                      sizeof out->sun_path - 1, length);
    memcpy(out->sun_path, path, length);
    return true;
}

/* `more` flags of its type. */
static int socket_make(int more, refusal *why)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | more, 0);
    if (fd < 0)
        refuse(why, "there is no socket: %s", strerror(errno));
    return fd;
}

/* ---- who listens ---- */

/* False: somebody serves at `path`, or it is no socket. Who serves and has no room for
 * one more to wait is not waited for. */
static bool make_way(const struct sockaddr_un *address, refusal *why)
{
    const char *path = address->sun_path;
    struct stat there;

    if (lstat(path, &there) != 0)
        return true; /* whatever is wrong, bind says it */
    if (!S_ISSOCK(there.st_mode))
        return refuse(why, "%s is there, and is no socket", path);
    int fd = socket_make(SOCK_NONBLOCK, why);
    if (fd < 0)
        return false;
    int code = connect(fd, (const struct sockaddr *)address, sizeof *address);
    bool is_left = code != 0 && errno == ECONNREFUSED;
    close(fd);
    if (!is_left)
        return refuse(why, "somebody serves at %s already", path);
    return unlink(path) == 0 ||
           refuse(why, "%s, where nobody serves, does not go: %s", path,
                  strerror(errno));
}

int talk_listen(const char *path, refusal *why)
{
    struct sockaddr_un address;
    if (!address_of(path, &address, why) || !make_way(&address, why))
        return -1;
    int fd = socket_make(0, why);
    if (fd < 0)
        return -1;
    mode_t mask = umask(0177);
    int code = bind(fd, (const struct sockaddr *)&address, sizeof address);
    if (code == 0)
        code = listen(fd, SOMAXCONN);
    int error = errno;
    umask(mask);
    if (code == 0)
        return fd;
    refuse(why, "%s: %s", path, strerror(error));
    close(fd);
    return -1;
}

bool talk_is_strange(int fd)
{
    struct ucred who;
    socklen_t length = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0 ||
           who.uid != geteuid();
}

/* ---- who asks ---- */

/* Also for the connection itself: where all places of those who wait are taken, that
 * waits for one. */
static bool patience_set(int fd)
{
    const struct timeval patience = { .tv_sec = PATIENCE_SECONDS };
    return setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0;
}

static void refuse_unconnected(const char *path, int error, refusal *why)
{
    if (error == EAGAIN)
        refuse(why, "too many wait at %s, and nobody was let in for %d s", path,
               PATIENCE_SECONDS);
    else
        refuse(why, "nobody serves at %s: %s", path, strerror(error));
}

bool talk_open(const char *path, talk *out, refusal *why)
{
    struct sockaddr_un address;

    out->used = out->told = 0;
    if (!address_of(path, &address, why))
        return false;
    out->fd = socket_make(0, why);
    if (out->fd < 0)
        return false;
    if (!patience_set(out->fd))
        refuse(why, "%s: %s", path, strerror(errno));
    else if (connect(out->fd, (const struct sockaddr *)&address, sizeof address) != 0)
        refuse_unconnected(path, errno, why);
    else if (talk_is_strange(out->fd))
        refuse(why, "it is another user who serves at %s", path);
    else
        return true;
    talk_close(out);
    return false;
}

void talk_close(talk *self)
{
    if (self->fd >= 0)
        close(self->fd);
    self->fd = -1;
}

bool talk_send(talk *self, refusal *why, const char *format, ...)
{
    char line[TALK_LINE_MAX];
    va_list args;

    va_start(args, format);
    int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof line)
        return refuse(why, "a line of %d bytes is too long", length);
    line[length++] = '\n';
    for (size_t at = 0; at < (size_t)length;) {
        ssize_t sent = send(self->fd, line + at, (size_t)length - at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return refuse(why, "the server does not listen: %s", strerror(errno));
        at += (size_t)sent;
    }
    return true;
}

/* Reads until there is a whole line: its end, or null. */
static char *line_await(talk *self, refusal *why)
{
    for (;;) {
        char *end = memchr(self->line, '\n', self->used);
        if (end != NULL)
            return end;
        size_t room = sizeof self->line - self->used;
        if (room == 0) {
            refuse(why, "the server's line is longer than %d bytes", TALK_LINE_MAX);
            return NULL;
        }
        ssize_t got = recv(self->fd, self->line + self->used, room, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            refuse(why, "the server does not answer: %s",
                   got == 0 ? "it has hung up" : strerror(errno));
            return NULL;
        }
        self->used += (size_t)got;
    }
}

bool talk_receive(talk *self, const char **verb, char **rest, refusal *why)
{
    self->used -= self->told;
    memmove(self->line, self->line + self->told, self->used);
    self->told = 0;
    char *end = line_await(self, why);
    if (end == NULL)
        return false;
    *end = '\0';
    self->told = (size_t)(end - self->line) + 1;
    *verb = self->line;
    *rest = strchr(self->line, ' ');
    if (*rest != NULL)
        *(*rest)++ = '\0';
    if (strcmp(*verb, "no") == 0)
        return refuse(why, "%s", *rest == NULL ? "it says no" : *rest);
    return true;
}
