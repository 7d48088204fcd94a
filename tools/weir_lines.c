/* weir_lines.c - see weir_lines.h. The file is never in memory as a whole. */
#include "weir_lines.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool lines_refuse(lines *self, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(self->error->message, sizeof self->error->message, format, args);
    va_end(args);
    self->error->line = self->number;
    return false;
}

bool lines_refuse_for_memory(lines *self)
{
    self->number = 0;
    return lines_refuse(self, "no host memory for a trace of this length");
}

/* ---- the file ---- */

bool lines_open(lines *self, const char *path)
{
    self->file = fopen(path, "rbe");
    if (self->file == NULL)
        return lines_refuse(self, "cannot be opened: %s", strerror(errno));
    return true;
}

void lines_close(lines *self)
{
    if (self->is_packed)
        (void)inflateEnd(&self->unpacker);
    if (self->file != NULL)
        (void)fclose(self->file);
    self->is_packed = false;
    self->file = NULL;
}

static bool refuse_for_zlib(lines *self, int code)
{
    const char *words = self->unpacker.msg;
    if (code == Z_MEM_ERROR)
        return lines_refuse_for_memory(self);
    return lines_refuse(self, "the gzip file is broken: %s",
                        words != NULL ? words : zError(code));
}

/* Where all that was read is taken, reads more; nothing at the end of the file. */
static bool read_fill(lines *self)
{
    if (self->unpacker.avail_in > 0)
        return true;
    size_t bytes = fread(self->read, 1, sizeof self->read, self->file);
    if (bytes == 0 && ferror(self->file)) {
        self->number = 0;
        return lines_refuse(self, "cannot be read: %s", strerror(errno));
    }
    self->unpacker.next_in = self->read;
    self->unpacker.avail_in = (unsigned)bytes;
    return true;
}

static bool begin(lines *self)
{
    if (!read_fill(self))
        return false;
    self->has_begun = true;
    if (self->unpacker.avail_in < 2 || self->read[0] != 0x1f || self->read[1] != 0x8b)
        return true;
    int code = inflateInit2(&self->unpacker, MAX_WBITS + 16);
    if (code != Z_OK)
        return refuse_for_zlib(self, code);
    self->is_packed = true;
    return true;
}

/* Zeros behind a member are to fill the file up. */
static void skip_padding(z_stream *unpacker)
{
    while (unpacker->avail_in > 0 && *unpacker->next_in == 0) {
        unpacker->next_in++;
        unpacker->avail_in--;
    }
}

/* Each member of the file follows right behind the one before, and nothing but zeros
 * the last one: what is no member there may be a damaged one. */
static bool chunk_unpack(lines *self)
{
    z_stream *unpacker = &self->unpacker;

    unpacker->next_out = (unsigned char *)self->chunk;
    unpacker->avail_out = LINES_CHUNK_BYTES;
    while (unpacker->avail_out > 0) {
        if (!read_fill(self))
            return false;
        if (self->is_between)
            skip_padding(unpacker);
        if (unpacker->avail_in == 0 && feof(self->file))
            break;
        if (unpacker->avail_in == 0)
            continue;
        int code = self->is_between ? inflateReset(unpacker) : Z_OK;
        if (code == Z_OK)
            code = inflate(unpacker, Z_NO_FLUSH);
        self->is_between = code == Z_STREAM_END;
        if (code == Z_OK || code == Z_STREAM_END)
            continue;
        if (unpacker->avail_out == LINES_CHUNK_BYTES)
            return refuse_for_zlib(self, code);
        break; /* what is good comes first; then it is the same again */
    }
    self->chunk_bytes = LINES_CHUNK_BYTES - unpacker->avail_out;
    if (self->chunk_bytes == 0 && !self->is_between)
        return lines_refuse(self, "the gzip file is cut short");
    return true;
}

/* Reads the next chunk; an empty one at the end of the file. */
static bool chunk_fill(lines *self)
{
    self->chunk_bytes = self->chunk_at = 0;
    if (!self->has_begun && !begin(self))
        return false;
    if (self->is_packed)
        return chunk_unpack(self);
    if (!read_fill(self))
        return false;
    memcpy(self->chunk, self->read, self->unpacker.avail_in);
    self->chunk_bytes = self->unpacker.avail_in;
    self->unpacker.avail_in = 0;
    return true;
}

/* At the end of the file a line that has begun and not ended is a fault: half a number
 * is a number too. */
bool lines_read(lines *self, bool *more)
{
    size_t bytes = 0;

    self->number++;
    for (;;) {
        if (self->chunk_at == self->chunk_bytes && !chunk_fill(self))
            return false;
        if (self->chunk_bytes == 0)
            break;
        char c = self->chunk[self->chunk_at++];
        if (c == '\n') {
            if (bytes > 0 && self->line[bytes - 1] == '\r')
                bytes--;
            self->line[bytes] = '\0';
            if (strlen(self->line) != bytes)
                return lines_refuse(self, "there is a null byte in the line");
            *more = true;
            return true;
        }
        if (bytes == LINES_BYTES_MAX)
            return lines_refuse(self, "the line has more than %d bytes",
                                LINES_BYTES_MAX);
        self->line[bytes++] = c;
    }
    *more = false;
    if (bytes > 0)
        return lines_refuse(self, "the last line has no end: the file is cut short");
    return true;
}

/* ---- fields ---- */

bool lines_cut(lines *self, char **fields, size_t count, const char *header)
{
    size_t found = 1;

    fields[0] = self->line;
    for (char *at = self->line; *at != '\0'; at++) {
        if (*at != ',')
            continue;
        if (found < count)
            fields[found] = at + 1;
        found++;
        *at = '\0';
    }
    if (found != count)
        return lines_refuse(self, "%zu field%s; there are %zu: %s", found,
                            found == 1 ? "" : "s", count, header);
    return true;
}

/* Above every base: no digit. */
static unsigned digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    if (c >= 'a' && c <= 'f')
        return (unsigned)(c - 'a') + 10;
    if (c >= 'A' && c <= 'F')
        return (unsigned)(c - 'A') + 10;
    return 99;
}

bool lines_number(lines *self, const char *name, const char *field, unsigned base,
                  uint64_t *out)
{
    uint64_t number = 0;

    for (const char *at = field; *at != '\0'; at++) {
        unsigned digit = digit_of(*at);
        if (digit >= base)
            return lines_refuse(self, "%s is `%.24s`, which is no number", name, field);
        if (number > (UINT64_MAX - digit) / base)
            return lines_refuse(self, "%s is `%.40s`, which is too large", name, field);
        number = number * base + digit;
    }
    if (field[0] == '\0')
        return lines_refuse(self, "%s is empty", name);
    *out = number;
    return true;
}
