/* weir_say.h - how the command speaks: errors, progress, sizes, JSON. */
#ifndef WEIR_SAY_H
#define WEIR_SAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "weir/status.h"

/* What the command returns to the shell. */
enum {
    SAY_GOOD = 0,    /* nothing was found wrong */
    SAY_WRONG = 1,   /* something was */
    SAY_REFUSED = 2  /* nothing was run: wrong usage, a broken trace, no such device */
};

/* Prints `weir: ` and the sentence on a line of stderr. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for a call that failed: `weir: WHAT: what Weir knows of it`. */
void say_failure(const char *what, weir_status status);

/* One line on stderr that shows how far it is, and is overwritten; only on a terminal.
 * An empty one wipes it out. */
void say_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "2.359 GiB", as wide as it is. */
typedef struct say_text {
    char text[32];
} say_text;
say_text say_bytes(size_t bytes);

/* Writes one JSON value to a file, indented, part by part. Keys are null inside an
 * array; texts are taken to be UTF-8. */
typedef struct say_json {
    FILE *file;
    unsigned depth;
    bool has_items; /* in the object or array that is open */
} say_json;
void say_json_open(say_json *self, const char *key, char bracket);
void say_json_close(say_json *self, char bracket);
void say_json_text(say_json *self, const char *key, const char *text);
void say_json_number(say_json *self, const char *key, uint64_t number);
void say_json_real(say_json *self, const char *key, double number, int digits);
void say_json_bool(say_json *self, const char *key, bool value);
void say_json_null(say_json *self, const char *key);

#endif
