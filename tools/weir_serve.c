/* weir_serve.c - see weir_serve.h. */
#include "weir_serve.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "weir_talk.h"

#define GUESTS_MAX 200 /* as share_help says */
/* How long nobody new is let in after the process has run out of descriptors. */
#define PAUSE_MS 100

typedef struct guest {
    int fd;
    bool is_gone;         /* cannot be answered any more, or need not be */
    bool is_skipping;     /* to the end of a line that is too long */
    size_t used;          /* of line */
    char line[TALK_LINE_MAX];
    char *answer;         /* what has not gone yet: */
    size_t answer_at, answer_end, answer_room;
} guest;

typedef struct server {
    cache *columns;
    int listener, stop_fd;
    bool is_full;         /* of descriptors */
    size_t count;
    guest *guests[GUESTS_MAX];
} server;

/* ---- answers ---- */

static bool answer_make_room(guest *self, size_t more)
{
    size_t wanted = self->answer_end + more;
    if (wanted <= self->answer_room)
        return true;
    char *grown = realloc(self->answer, 2 * wanted);
    if (grown == NULL) {
        self->is_gone = true;
        return false;
    }
    self->answer = grown;
    self->answer_room = 2 * wanted;
    return true;
}

/* A line; what would end it early becomes a space. */
static void answer(guest *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void answer(guest *self, const char *format, ...)
{
    va_list args;

    if (!answer_make_room(self, TALK_LINE_MAX))
        return;
    char *line = self->answer + self->answer_end;
    va_start(args, format);
    int length = vsnprintf(line, TALK_LINE_MAX - 1, format, args);
    va_end(args);
    if (length < 0 || length > TALK_LINE_MAX - 2)
        length = TALK_LINE_MAX - 2;
    for (int i = 0; i < length; i++) {
        if (line[i] == '\n' || line[i] == '\0')
            line[i] = ' ';
    }
    line[length] = '\n';
    self->answer_end += (size_t)length + 1;
}

static void answer_send(guest *self)
{
    while (self->answer_at < self->answer_end) {
        ssize_t sent = send(self->fd, self->answer + self->answer_at,
                            self->answer_end - self->answer_at,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            self->is_gone = errno != EAGAIN && errno != EWOULDBLOCK;
            return;
        }
        self->answer_at += (size_t)sent;
    }
    self->answer_at = self->answer_end = 0;
}

/* ---- lines ---- */

static void tell_column(void *context, const column *one)
{
    answer(context, "has %s %s %" PRIu64 " %zu %s", one->name, one->dtype->name,
           one->length, column_data_bytes(one), one->has_mask ? "masked" : "whole");
}

static void line_get(server *self, guest *who, const char *name)
{
    char text[COLUMN_TEXT_MAX];
    refusal why;
    const column *found = cache_read(self->columns, name);
    if (found == NULL)
        answer(who, "no there is no column `%.80s`", name);
    else if (column_write(found, text, &why))
        answer(who, "column %s", text);
    else
        answer(who, "no %s", why.text);
}

static void line_add(server *self, guest *who, char *text)
{
    column wanted;
    refusal why;
    if (column_read(text, &wanted, &why) && cache_add(self->columns, &wanted, &why))
        answer(who, "ok");
    else
        answer(who, "no %s", why.text);
}

static void line_answer(server *self, guest *who, char *line, size_t length)
{
    char *rest = memchr(line, ' ', length);
    bool has_null = memchr(line, '\0', length) != NULL;
    line[length] = '\0';
    if (rest != NULL)
        *rest++ = '\0';
    if (has_null)
        answer(who, "no there is a zero byte in the line");
    else if (strcmp(line, "list") == 0 && rest == NULL) {
        cache_visit(self->columns, tell_column, who);
        answer(who, "end");
    } else if (strcmp(line, "get") == 0 && rest != NULL)
        line_get(self, who, rest);
    else if (strcmp(line, "add") == 0 && rest != NULL)
        line_add(self, who, rest);
    else
        answer(who, "no `%.80s` means nothing; there are list, get NAME, add COLUMN",
               line);
}

/* Answers what has come whole, up to an answer that does not go at once. */
static void lines_answer(server *self, guest *who)
{
    while (!who->is_gone && who->answer_end == 0) {
        char *end = memchr(who->line, '\n', who->used);
        if (end == NULL && who->used == sizeof who->line) {
            if (!who->is_skipping)
                answer(who, "no a line has %d bytes at most", TALK_LINE_MAX);
            who->is_skipping = true;
            who->used = 0;
        }
        if (end == NULL)
            break;
        size_t length = (size_t)(end - who->line);
        if (!who->is_skipping)
            line_answer(self, who, who->line, length);
        who->is_skipping = false;
        who->used -= length + 1;
        memmove(who->line, end + 1, who->used);
        answer_send(who);
    }
    answer_send(who);
}

/* Has no answer pending: who says nothing any more has heard all. */
static void guest_hear(server *self, guest *who)
{
    ssize_t got = recv(who->fd, who->line + who->used, sizeof who->line - who->used,
                       MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK))
        return;
    who->is_gone = got <= 0;
    if (got > 0) {
        who->used += (size_t)got;
        lines_answer(self, who);
    }
}

/* ---- guests ---- */

static void guest_end(guest *self)
{
    if (self == NULL)
        return;
    if (self->fd >= 0)
        close(self->fd);
    free(self->answer);
    free(self);
}

/* Lets somebody in; a stranger, and one for whom there is no memory, goes at once. */
static void guest_come(server *self)
{
    int fd = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) {
        self->is_full = errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
                        errno == ENOBUFS;
        return;
    }
    guest *who = talk_is_strange(fd) ? NULL : calloc(1, sizeof *who);
    if (who == NULL) {
        close(fd);
        return;
    }
    who->fd = fd;
    self->guests[self->count++] = who;
}

static void guests_leave(server *self)
{
    size_t left = 0;
    for (size_t i = 0; i < self->count; i++) {
        guest *who = self->guests[i];
        if (who->is_gone) {
            guest_end(who);
            self->is_full = false;
        } else {
            self->guests[left++] = who;
        }
    }
    self->count = left;
}

/* What poll found about a guest. */
static void guest_meet(server *self, guest *who, short found)
{
    if (who->answer_end != 0 && (found & (POLLOUT | POLLERR | POLLHUP)) != 0) {
        answer_send(who);
        if (who->answer_end == 0)
            lines_answer(self, who);
    } else if ((found & (POLLIN | POLLERR | POLLHUP)) != 0) {
        guest_hear(self, who);
    }
}

bool serve_run(cache *columns, int listener, int stop_fd, refusal *why)
{
    server self = { .columns = columns, .listener = listener, .stop_fd = stop_fd };
    struct pollfd asked[GUESTS_MAX + 2];
    bool good = true;

    for (;;) {
        bool may_come = self.count < GUESTS_MAX && !self.is_full;
        size_t count = self.count;
        asked[0] = (struct pollfd){ .fd = stop_fd, .events = POLLIN };
        asked[1] = (struct pollfd){ .fd = may_come ? listener : -1, .events = POLLIN };
        for (size_t i = 0; i < count; i++) {
            bool listens = self.guests[i]->answer_end == 0;
            asked[i + 2] = (struct pollfd){ .fd = self.guests[i]->fd,
                                            .events = listens ? POLLIN : POLLOUT };
        }
        if (poll(asked, count + 2, self.is_full ? PAUSE_MS : -1) < 0) {
            if (errno == EINTR)
                continue;
            good = refuse(why, "poll: %s", strerror(errno));
            break;
        }
        if (asked[0].revents != 0)
            break;
        self.is_full = false;
        for (size_t i = 0; i < count; i++)
            guest_meet(&self, self.guests[i], asked[i + 2].revents);
        if (asked[1].revents != 0)
            guest_come(&self);
        guests_leave(&self);
    }
    for (size_t i = 0; i < self.count; i++)
        guest_end(self.guests[i]);
    return good;
}
