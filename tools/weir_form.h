/* weir_form.h - the forms in which a trace is written: what each line means by itself.
 *
 * Which it is the first line tells. What a line means in the light of those before is
 * the reader's business, but for the numbers by which a log counts its lines. */
#ifndef WEIR_FORM_H
#define WEIR_FORM_H

#include "weir_lines.h"

typedef enum form_stream {
    FORM_NAMED,   /* by trace_line.stream */
    FORM_LEGACY,
    FORM_OWN      /* the thread's own default stream */
} form_stream;

/* One line as it stands. */
typedef struct trace_line {
    uint64_t time, thread, stream, id, bytes, alignment;
    form_stream stream_kind;
    trace_kind kind;
    bool begins_run;   /* before it, another run of the program wrote to the file */
} trace_line;

typedef enum form_kind {
    FORM_TRACE,        /* t_ns,thread,stream,op,id,size */
    FORM_RMM,          /* the log of RMM */
    FORM_WEIR          /* the same with three more columns, of Weir's logging */
} form_kind;

typedef struct form {
    form_kind kind;
    uint64_t sequence;  /* of the line before; 0: there is none */
    char device[32];    /* likewise */
} form;

/* Learns from the first line what the others are like. */
bool form_begin(form *self, lines *from);
/* Reads the line that `from` has. */
bool form_read(form *self, lines *from, trace_line *out);

#endif
