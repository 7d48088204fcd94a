/* weir_talk.h - the socket of `weir share`: a Unix stream, and lines on it.
 *
 *     asked                 answered
 *     list                  `has NAME DTYPE LENGTH BYTES MASKED` for each column, the
 *                           last used first, MASKED being masked or whole; then `end`
 *     get NAME              `column COLUMN`, see weir_column.h
 *     add COLUMN            `ok`, once the server has a copy of its own under way
 *
 * Or `no SENTENCE`, and nothing was done. A line ends with a line feed; one without is
 * none. Each is answered in turn. */
#ifndef WEIR_TALK_H
#define WEIR_TALK_H

#include <stdbool.h>
#include <stddef.h>

#include "weir_column.h"

/* The longest line, with its end. */
#define TALK_LINE_MAX 4096

/* A socket that listens at `path`, for this user alone; -1: why not. One that is there
 * and that nobody serves any more is replaced. */
int talk_listen(const char *path, refusal *why);

/* The process at the other end is another user's, or cannot be asked about. */
bool talk_is_strange(int fd);

/* One end of a conversation, which waits for the other. */
typedef struct talk {
    int fd;
    size_t used;                /* of line: what has come */
    size_t told;                /* of that: what talk_receive gave out last */
    char line[TALK_LINE_MAX];
} talk;

/* Connects to who listens at `path`. */
bool talk_open(const char *path, talk *out, refusal *why);
void talk_close(talk *self);

/* Sends a line, `format` without its end. */
bool talk_send(talk *self, refusal *why, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Waits for a line: its first word, and what follows (null, or a text). They last until
 * the next call. If the answer is `no`, that is why. */
bool talk_receive(talk *self, const char **verb, char **rest, refusal *why);

#endif
