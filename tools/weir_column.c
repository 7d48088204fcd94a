/* weir_column.c - see weir_column.h. */
#include "weir_column.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool refuse(refusal *why, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    return false;
}

bool refuse_status(refusal *why, const char *what, weir_status status)
{
    weir_error error = weir_last_error();
    return refuse(why, "%s: %s", what,
                  error.status == status ? error.message : weir_status_string(status));
}

/* ---- dtypes ---- */

#define COLUMN_DTYPE_MAP(X)                                                      \
    X(bool, 1) X(int8, 1) X(uint8, 1) X(int16, 2) X(uint16, 2) X(float16, 2)    \
    X(bfloat16, 2) X(int32, 4) X(uint32, 4) X(float32, 4) X(int64, 8)           \
    X(uint64, 8) X(float64, 8) X(complex64, 8) X(complex128, 16)

static const column_dtype dtypes[] = {
#define X(name, bytes) { #name, bytes },
    COLUMN_DTYPE_MAP(X)
#undef X
};

const column_dtype *column_dtype_find(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    }
    return NULL;
}

const char *column_dtype_names(void)
{
#define X(name, bytes) ", " #name
    static const char names[] = COLUMN_DTYPE_MAP(X);
#undef X
    return names + 2;
}

/* ---- columns ---- */

bool column_name_set(column *self, const char *name, refusal *why)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789_.-";
    size_t length = strlen(name);
    if (length == 0 || length > COLUMN_NAME_MAX || strspn(name, good) != length)
        return refuse(why, "a column's name has 1 to %d letters, digits, _ . or -, "
                           "not as `%.80s`", COLUMN_NAME_MAX, name);
    memcpy(self->name, name, length + 1);
    return true;
}

bool column_length_set(column *self, uint64_t length, refusal *why)
{
    if (length == 0)
        return refuse(why, "a column of no items has nothing to share");
    if (length > SIZE_MAX / 2 / self->dtype->bytes)
        return refuse(why, "%" PRIu64 " items of %zu bytes are more than memory has",
                      length, self->dtype->bytes);
    self->length = length;
    return true;
}

size_t column_data_bytes(const column *self)
{
    return (size_t)self->length * self->dtype->bytes;
}

size_t column_mask_bytes(const column *self)
{
    return self->has_mask ? (size_t)((self->length + 7) / 8) : 0;
}

/* ---- lines ---- */

bool column_write(const column *self, char *text, refusal *why)
{
    size_t length = (size_t)snprintf(text, COLUMN_TEXT_MAX, "%s %s %" PRIu64 " ",
                                     self->name, self->dtype->name, self->length);
    size_t more = 0;
    weir_status status = weir_ticket_to_json(&self->data, text + length,
                                             COLUMN_TEXT_MAX - length, &more);
    length += more;
    if (status == WEIR_OK && !self->has_mask) {
        memcpy(text + length, " -", 3);
    } else if (status == WEIR_OK) {
        text[length++] = ' ';
        status = weir_ticket_to_json(&self->mask, text + length,
                                     COLUMN_TEXT_MAX - length, &more);
    }
    return status == WEIR_OK || refuse_status(why, "a ticket", status);
}

static bool length_read(const char *word, column *out, refusal *why)
{
    char *end;

    errno = 0;
    unsigned long long length = strtoull(word, &end, 10);
    if (*word < '0' || *word > '9' || *end != '\0' || errno != 0)
        return refuse(why, "`%.80s` is no number of items", word);
    return column_length_set(out, length, why);
}

static bool ticket_read(const char *what, const char *word, size_t bytes,
                        weir_ticket *out, refusal *why)
{
    weir_ticket_info info = { .struct_size = sizeof info };
    weir_status status = weir_ticket_from_json(word, strlen(word), out);
    if (status == WEIR_OK)
        status = weir_ticket_get_info(out, &info);
    if (status != WEIR_OK)
        return refuse_status(why, what, status);
    if (info.bytes != bytes)
        return refuse(why, "the ticket for %s is of %" PRIu64 " bytes, and %zu are "
                           "needed", what, info.bytes, bytes);
    return true;
}

#define WORDS 5

/* Takes a line to pieces. Between two words stands one space. */
static bool words_read(char *text, char *words[WORDS], refusal *why)
{
    for (size_t i = 0; i < WORDS; i++) {
        words[i] = text;
        text = strchr(text, ' ');
        if ((text == NULL) != (i == WORDS - 1))
            return refuse(why, "a column is told as NAME DTYPE LENGTH DATA MASK, in "
                               "%d words, not in %s", WORDS,
                          text == NULL ? "fewer" : "more");
        if (text != NULL)
            *text++ = '\0';
    }
    return true;
}

bool column_read(char *text, column *out, refusal *why)
{
    char *words[WORDS];

    memset(out, 0, sizeof *out);
    if (!words_read(text, words, why) || !column_name_set(out, words[0], why))
        return false;
    out->dtype = column_dtype_find(words[1]);
    if (out->dtype == NULL)
        return refuse(why, "there is no dtype `%.80s`; there are %s", words[1],
                      column_dtype_names());
    if (!length_read(words[2], out, why) ||
        !ticket_read("the items", words[3], column_data_bytes(out), &out->data, why))
        return false;
    out->has_mask = strcmp(words[4], "-") != 0;
    return !out->has_mask || ticket_read("the mask", words[4], column_mask_bytes(out),
                                         &out->mask, why);
}
