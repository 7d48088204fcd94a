/* weir_serve.h - answers those who come to the socket of `weir share`, many at a time.
 *
 * Each guest's lines are answered in turn, and none is read before the answer to the
 * one before has gone: who does not listen fills only its own socket. A line that is
 * too long, or means nothing, is answered with a sentence, and the next is read. What
 * lacks its end when a guest goes is forgotten. */
#ifndef WEIR_SERVE_H
#define WEIR_SERVE_H

#include "weir_cache.h"

/* Until `stop_fd` can be read. `listener` is from talk_listen. */
bool serve_run(cache *columns, int listener, int stop_fd, refusal *why);

#endif
