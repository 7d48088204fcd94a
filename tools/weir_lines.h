/* weir_lines.h - the lines of a text, plain or gzip, cut into fields and numbers; each
 * refusal tells the line. */
#ifndef WEIR_LINES_H
#define WEIR_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <zlib.h>

#include "weir_trace.h"

/* A line of any form that is read has room. */
#define LINES_BYTES_MAX 384
#define LINES_CHUNK_BYTES 65536

typedef struct lines {
    FILE *file;
    bool has_begun;    /* some of it was read, so that is_packed is known */
    bool is_packed;    /* it begins as gzip does */
    bool is_between;   /* packed: a member has ended, and no other has begun */
    z_stream unpacker; /* its input is what of `read` is not taken yet */
    unsigned char read[LINES_CHUNK_BYTES];
    char chunk[LINES_CHUNK_BYTES];
    size_t chunk_bytes;
    size_t chunk_at;
    char line[LINES_BYTES_MAX + 1]; /* without its end */
    size_t number;                  /* of that line, from 1 */
    trace_error *error;             /* where refusals go */
} lines;

/* All but close and refuse: false, and it was refused. */
bool lines_open(lines *self, const char *path);
void lines_close(lines *self);

/* *more is false at the end of the file. */
bool lines_read(lines *self, bool *more);

/* Cuts the line at its commas, in place, into exactly as many fields as the `header`
 * has, which is `count`. */
bool lines_cut(lines *self, char **fields, size_t count, const char *header);

/* Reads a field of digits, to base 10 or 16, up to UINT64_MAX. */
bool lines_number(lines *self, const char *name, const char *field, unsigned base,
                  uint64_t *out);

/* Both return false. */
__attribute__((format(printf, 2, 3)))
bool lines_refuse(lines *self, const char *format, ...);
bool lines_refuse_for_memory(lines *self);

#endif
