/* weir_form.c - see weir_form.h.
 *
 * A log's addresses are its names for blocks, and its times say only when in the day:
 * the order is that of the lines. RMM logs requests for nothing too, and failures. */
#include "weir_form.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LOG_HEADER "Thread,Time,Action,Pointer,Size,Stream"

static const struct {
    const char *header;
    size_t field_count;
} forms[] = {
    [FORM_TRACE] = { "t_ns,thread,stream,op,id,size", 6 },
    [FORM_RMM] = { LOG_HEADER, 6 },
    [FORM_WEIR] = { LOG_HEADER ",Device,Alignment,Sequence", 9 },
};
#define FORMS (sizeof forms / sizeof *forms)

/* What memory is aligned to where nothing else is said. */
#define ALIGNMENT_DEFAULT 256

bool form_begin(form *self, lines *from)
{
    *self = (form){ .kind = FORM_TRACE };
    for (size_t i = 0; i < FORMS; i++) {
        if (strcmp(from->line, forms[i].header) == 0) {
            self->kind = (form_kind)i;
            return true;
        }
    }
    return lines_refuse(from, "the first line is not `%s`, nor that of a log: `%s...`",
                        forms[FORM_TRACE].header, LOG_HEADER);
}

/* ---- traces ---- */

enum { TIME, THREAD, STREAM, OP, ID, SIZE };

static bool trace_line_read(lines *from, char *const *fields, trace_line *out)
{
    if (!lines_number(from, "t_ns", fields[TIME], 10, &out->time)
        || !lines_number(from, "thread", fields[THREAD], 10, &out->thread)
        || !lines_number(from, "stream", fields[STREAM], 10, &out->stream)
        || !lines_number(from, "id", fields[ID], 10, &out->id)
        || !lines_number(from, "size", fields[SIZE], 10, &out->bytes))
        return false;
    if (strcmp(fields[OP], "A") != 0 && strcmp(fields[OP], "F") != 0)
        return lines_refuse(from, "op is `%.24s`; it is A or F", fields[OP]);
    out->kind = fields[OP][0] == 'F' ? TRACE_FREE : TRACE_ALLOCATE;
    if (out->bytes == 0)
        return lines_refuse(from, "size is 0");
    return true;
}

/* ---- logs ---- */

enum { LOG_THREAD, LOG_TIME, LOG_ACTION, LOG_POINTER, LOG_SIZE, LOG_STREAM,
       LOG_DEVICE, LOG_ALIGNMENT, LOG_SEQUENCE };

/* Hours, minutes, seconds and millionths; older logs have a third colon. */
static bool time_is_good(const char *text)
{
    static const char like[] = "29:59:69.999999";
    size_t length = strlen(text);

    if (length != sizeof like - 1)
        return false;
    for (size_t i = 0; i < length; i++) {
        bool is_digit = text[i] >= '0' && text[i] <= like[i];
        bool is_point = text[i] == ':' && (like[i] == ':' || like[i] == '.');
        if (!(like[i] >= '0' && like[i] <= '9' ? is_digit
                                               : is_point || text[i] == like[i]))
            return false;
    }
    return true;
}

static bool address_read(lines *from, const char *name, const char *field,
                         uint64_t *out)
{
    if (strcmp(field, "(nil)") == 0) {
        *out = 0;
        return true;
    }
    bool prefixed = field[0] == '0' && (field[1] == 'x' || field[1] == 'X');
    return lines_number(from, name, field + (prefixed ? 2 : 0), 16, out);
}

static bool action_read(lines *from, const char *field, trace_kind *out)
{
    if (strcmp(field, "allocate") == 0)
        *out = TRACE_ALLOCATE;
    else if (strcmp(field, "free") == 0)
        *out = TRACE_FREE;
    else if (strcmp(field, "allocate failure") == 0)
        *out = TRACE_FAILURE;
    else
        return lines_refuse(from, "Action is `%.24s`; it is allocate, allocate failure "
                            "or free", field);
    return true;
}

static void stream_tell(trace_line *line)
{
    if (line->stream <= 1)
        line->stream_kind = FORM_LEGACY;
    else if (line->stream == 2)
        line->stream_kind = FORM_OWN;
}

static bool log_line_read(lines *from, char *const *fields, trace_line *out)
{
    if (!lines_number(from, "Thread", fields[LOG_THREAD], 10, &out->thread)
        || !action_read(from, fields[LOG_ACTION], &out->kind)
        || !address_read(from, "Pointer", fields[LOG_POINTER], &out->id)
        || !lines_number(from, "Size", fields[LOG_SIZE], 10, &out->bytes)
        || !address_read(from, "Stream", fields[LOG_STREAM], &out->stream))
        return false;
    if (!time_is_good(fields[LOG_TIME]))
        return lines_refuse(from, "Time is `%.24s`; it is as 23:59:59.999999",
                            fields[LOG_TIME]);
    stream_tell(out);
    if (out->kind != TRACE_FAILURE && out->bytes == 0)
        out->kind = TRACE_NOTHING;
    else if (out->kind != TRACE_FAILURE && out->id == 0)
        return lines_refuse(from, "Pointer is null, of %" PRIu64 " bytes", out->bytes);
    return true;
}

/* Each run of a program counts its lines from 1; a gap is what could not be written. */
static bool sequence_read(form *self, lines *from, const char *field, trace_line *out)
{
    uint64_t sequence;
    if (!lines_number(from, "Sequence", field, 10, &sequence))
        return false;
    if (sequence != 1 && sequence != self->sequence + 1)
        return lines_refuse(from, "Sequence is %" PRIu64 " after %" PRIu64
                            ": lines of the log are missing, or in disorder", sequence,
                            self->sequence);
    out->begins_run = sequence == 1 && self->sequence != 0;
    self->sequence = sequence;
    return true;
}

static bool columns_of_weir_read(form *self, lines *from, char *const *fields,
                                 trace_line *out)
{
    const char *device = fields[LOG_DEVICE];
    if (!lines_number(from, "Alignment", fields[LOG_ALIGNMENT], 10, &out->alignment)
        || !sequence_read(self, from, fields[LOG_SEQUENCE], out))
        return false;
    if (out->alignment == 0 || (out->alignment & (out->alignment - 1)) != 0)
        return lines_refuse(from, "Alignment is %" PRIu64 ", which is no power of two",
                            out->alignment);
    if (*device == '\0' || strlen(device) >= sizeof self->device)
        return lines_refuse(from, "Device is `%.40s`", device);
    if (self->sequence != 1 && strcmp(device, self->device) != 0)
        return lines_refuse(from, "Device is `%s` after `%s`: a log is of one device",
                            device, self->device);
    (void)snprintf(self->device, sizeof self->device, "%s", device);
    return true;
}

bool form_read(form *self, lines *from, trace_line *out)
{
    char *fields[9];

    *out = (trace_line){ .alignment = ALIGNMENT_DEFAULT };
    if (!lines_cut(from, fields, forms[self->kind].field_count,
                   forms[self->kind].header))
        return false;
    if (self->kind == FORM_TRACE ? !trace_line_read(from, fields, out)
                                 : !log_line_read(from, fields, out))
        return false;
    if (self->kind == FORM_WEIR && !columns_of_weir_read(self, from, fields, out))
        return false;
    /* What was refused may have asked for any size. */
    if (out->bytes > PTRDIFF_MAX && out->kind != TRACE_FAILURE)
        return lines_refuse(from, "%s is %" PRIu64 ", which is too large",
                            self->kind == FORM_TRACE ? "size" : "Size", out->bytes);
    return true;
}
