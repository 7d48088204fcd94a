/* weir_costs.c - reads a file of costs. */
#include "weir_costs.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir_say.h"

#define LINE_MAX_BYTES 400
#define WORDS_MAX 3

static const struct {
    const char *name;
    size_t offset;
} kinds[] = {
#define X(name) { #name, offsetof(weir_emulated_costs, name) },
    WEIR_DEVICE_CALL_MAP(X)
#undef X
};

#define KINDS (sizeof kinds / sizeof *kinds)

/* Where the file is, for its errors. */
typedef struct place {
    const char *path;
    size_t line;
} place;

/* Cuts `line` up at blanks, up to a `#`; returns how many words there are, of which
 * the first WORDS_MAX are written. */
static size_t words_cut(char *line, char *words[WORDS_MAX])
{
    size_t count = 0;
    char *rest = line;

    line[strcspn(line, "#\r\n")] = '\0';
    for (;;) {
        rest += strspn(rest, " \t");
        if (*rest == '\0')
            return count;
        if (count < WORDS_MAX)
            words[count] = rest;
        count++;
        rest += strcspn(rest, " \t");
        if (*rest != '\0')
            *rest++ = '\0';
    }
}

static bool ns_read(const place *at, const char *text, double *out)
{
    char *end;

    errno = 0;
    double ns = strtod(text, &end);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || !isfinite(ns)) {
        say("%s:%zu: `%s` is no number of ns", at->path, at->line, text);
        return false;
    }
    *out = ns;
    return true;
}

/* The index of a kind, or KINDS. */
static size_t kind_find(const char *name)
{
    size_t kind = 0;
    while (kind < KINDS && strcmp(kinds[kind].name, name) != 0)
        kind++;
    return kind;
}

static bool line_read(const place *at, char *line, bool known[KINDS],
                      weir_emulated_costs *out)
{
    char *words[WORDS_MAX];
    weir_emulated_cost cost = { 0 };
    size_t count = words_cut(line, words);

    if (count == 0)
        return true;
    size_t kind = kind_find(words[0]);
    if (kind == KINDS) {
        say("%s:%zu: no device call is a `%s`", at->path, at->line, words[0]);
        return false;
    }
    if (count == 1 || count > WORDS_MAX) {
        say("%s:%zu: after the call come its ns, and perhaps its ns for each MiB",
            at->path, at->line);
        return false;
    }
    if (known[kind]) {
        say("%s:%zu: %s has its cost already", at->path, at->line, words[0]);
        return false;
    }
    known[kind] = true;
    if (!ns_read(at, words[1], &cost.ns)
        || (count > 2 && !ns_read(at, words[2], &cost.ns_per_mib)))
        return false;
    memcpy((char *)out + kinds[kind].offset, &cost, sizeof cost);
    return true;
}

static bool file_read(FILE *file, place *at, weir_emulated_costs *out)
{
    char line[LINE_MAX_BYTES];
    bool known[KINDS] = { false };

    while (fgets(line, sizeof line, file) != NULL) {
        at->line++;
        if (strchr(line, '\n') == NULL && !feof(file)) {
            say("%s:%zu: the line is longer than %d bytes", at->path, at->line,
                LINE_MAX_BYTES - 2);
            return false;
        }
        if (!line_read(at, line, known, out))
            return false;
    }
    if (ferror(file)) {
        say("%s: %s", at->path, strerror(errno));
        return false;
    }
    for (size_t kind = 0; kind < KINDS; kind++) {
        if (known[kind])
            return true;
    }
    say("%s: there is no cost in it", at->path);
    return false;
}

bool costs_read(const char *path, weir_emulated_costs *out)
{
    place at = { path, 0 };

    *out = (weir_emulated_costs){ .struct_size = sizeof *out };
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        say("%s: %s", path, strerror(errno));
        return false;
    }
    bool good = file_read(file, &at, out);
    fclose(file);
    return good;
}
