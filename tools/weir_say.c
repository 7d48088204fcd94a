/* weir_say.c - how the command speaks: errors, progress, sizes, JSON.
 *
 * Results go to stdout, everything else to stderr. */
#include "weir_say.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

void say(const char *format, ...)
{
    va_list args;
    char sentence[1024];

    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    say_progress("%s", "");
    fflush(stdout);
    fprintf(stderr, "weir: %s\n", sentence); /* one call: threads do not mix lines */
}

void say_failure(const char *what, weir_status status)
{
    weir_error error = weir_last_error();
    if (error.status == status)
        say("%s: %s", what, error.message);
    else
        say("%s: %s", what, weir_status_string(status));
}

void say_progress(const char *format, ...)
{
    va_list args;
    char line[100];

    if (!isatty(STDERR_FILENO))
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
}

say_text say_bytes(size_t bytes)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
    size_t unit = 0;
    double amount = (double)bytes;
    say_text out;

    while (amount >= 1024 && unit < sizeof units / sizeof *units - 1) {
        amount /= 1024;
        unit++;
    }
    snprintf(out.text, sizeof out.text, unit == 0 ? "%.0f %s" : "%.3f %s",
             amount, units[unit]);
    return out;
}

/* ---- JSON ---- */

static void json_string(FILE *file, const char *text)
{
    putc('"', file);
    for (const unsigned char *at = (const unsigned char *)text; *at != 0; at++) {
        if (*at == '"' || *at == '\\')
            fprintf(file, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7F)
            fprintf(file, "\\u%04x", *at);
        else
            putc(*at, file);
    }
    putc('"', file);
}

/* What comes before a value: comma, new line, key. */
static void json_begin(say_json *self, const char *key)
{
    if (self->has_items)
        putc(',', self->file);
    if (self->depth > 0)
        fprintf(self->file, "\n%*s", (int)(2 * self->depth), "");
    self->has_items = true;
    if (key != NULL) {
        json_string(self->file, key);
        fputs(": ", self->file);
    }
}

void say_json_open(say_json *self, const char *key, char bracket)
{
    json_begin(self, key);
    putc(bracket, self->file);
    self->depth++;
    self->has_items = false;
}

void say_json_close(say_json *self, char bracket)
{
    self->depth--;
    if (self->has_items)
        fprintf(self->file, "\n%*s", (int)(2 * self->depth), "");
    putc(bracket, self->file);
    self->has_items = true;
    if (self->depth == 0)
        putc('\n', self->file);
}

void say_json_text(say_json *self, const char *key, const char *text)
{
    json_begin(self, key);
    json_string(self->file, text);
}

void say_json_number(say_json *self, const char *key, uint64_t number)
{
    json_begin(self, key);
    fprintf(self->file, "%" PRIu64, number);
}

void say_json_real(say_json *self, const char *key, double number, int digits)
{
    json_begin(self, key);
    if (isfinite(number))
        fprintf(self->file, "%.*f", digits, number);
    else
        fputs("null", self->file);
}

void say_json_bool(say_json *self, const char *key, bool value)
{
    json_begin(self, key);
    fputs(value ? "true" : "false", self->file);
}

void say_json_null(say_json *self, const char *key)
{
    json_begin(self, key);
    fputs("null", self->file);
}
