/* spec.h - what the parts of the reader of specs share: the table of resources, and
 * how a place in the text is read and refused.
 *
 * To make a resource known to text takes one row in spec_kinds.c: its options, each
 * with the field of an options struct that it sets, and a function that makes the
 * resource from that struct. */
#ifndef WEIR_SPEC_INTERNAL_H
#define WEIR_SPEC_INTERNAL_H

#include "internal.h"
#include "weir/resource.h"
#include "weir/spec.h"

/* ---- the table ---- */

typedef enum weir__spec_type {
    WEIR__SPEC_SIZE,    /* bytes, with a unit, from `least` on: a size_t */
    WEIR__SPEC_INTEGER, /* from `least` to `most`: an int32_t or int64_t */
    WEIR__SPEC_BOOLEAN, /* a bool */
    WEIR__SPEC_WORD,    /* one of the choices: an enum or a number */
    WEIR__SPEC_WORDS,   /* choices joined by +, their values or-ed: a number */
    WEIR__SPEC_TEXT,    /* a const char *, which lives as long as the make function */
    WEIR__SPEC_CHAIN    /* the same, and weir_resource_open can read it */
} weir__spec_type;

typedef struct weir__spec_option {
    const char *name;
    weir__spec_type type;
    size_t offset, width;     /* of the field, see WEIR__SPEC_FIELD */
    const char *default_text; /* a value that sets what is in force without it; null: it
                                 must be given */
    const char *doc;
    /* Words, and for each its value. A size and an integer may have some too, for what
     * no number says: see WEIR__SPEC_CHOICES. */
    const char *choices;
    const uint64_t *values;
    size_t value_count;
    int64_t least, most;      /* of a number; a size has no `most` */
} weir__spec_option;

/* The field that an option sets: `type` is the options struct. */
#define WEIR__SPEC_FIELD(type, member)                                           \
    .offset = offsetof(type, member), .width = sizeof(((type *)0)->member)

/* WEIR__SPEC_CHOICES("none, device", 0, 1): the words, separated by ", ", and as many
 * values. */
#define WEIR__SPEC_CHOICES(words, ...)                                           \
    .choices = (words), .values = (const uint64_t[]){ __VA_ARGS__ },             \
    .value_count = sizeof((const uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t)

typedef struct weir__spec_kind {
    const char *name;
    const char *purpose;
    const char *only_from;    /* text cannot make it; this function does */
    bool is_leaf;
    const void *blank;        /* the options struct before any is set, or null */
    size_t blank_bytes;
    const weir__spec_option *options;
    size_t option_count;
    /* A leaf is given a null `upstream`. */
    weir_status (*make)(weir_device *device, weir_resource *upstream,
                        const void *options, weir_resource **out);
} weir__spec_kind;

#define WEIR__SPEC_OPTIONS_MAX 32   /* of a resource */
#define WEIR__SPEC_BLANK_BYTES 256  /* of an options struct */

typedef struct weir__spec_table {
    const weir__spec_kind *kinds;
    size_t count;
} weir__spec_table;

/* What the library knows. */
extern const weir__spec_table weir__spec_table_own;

/* Number `i` of a table, of the library's own also what was added (spec_added.c); null:
 * there are not so many. */
const weir__spec_kind *weir__spec_kind_at(const weir__spec_table *table, size_t i);

/* Reads all of `spec`, and makes nothing: INVALID_ARGUMENT as weir_resource_open. It
 * calls itself for a chain within, each level of which needs twice the backslashes of
 * the one before: they are few. */
weir_status weir__spec_check(const weir__spec_table *table, const char *spec);

/* weir_resource_open with any table. */
weir_status weir__spec_open(const weir__spec_table *table, weir_device *device,
                            const char *spec, weir_resource **out);

/* ---- the text ---- */

typedef struct weir__spec_reader {
    const weir__spec_table *table;
    const char *text; /* ends in a zero */
    size_t length;    /* WEIR_SPEC_LENGTH_MAX at most */
    size_t at;
} weir__spec_reader;

/* A run of characters; of a quoted one what is between the quotes. */
typedef struct weir__spec_token {
    size_t at, length;
    bool quoted;
} weir__spec_token;

/* Answers INVALID_ARGUMENT with the place `at`, which may be the end, in front of the
 * sentence. */
weir_status weir__spec_refuse(const weir__spec_reader *reader, size_t at,
                              const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What a sentence shows of a token: printable, and cut if it is long. */
typedef struct weir__spec_words {
    char text[48];
} weir__spec_words;
weir__spec_words weir__spec_show(const weir__spec_reader *reader,
                                 weir__spec_token token);

bool weir__spec_token_is(const weir__spec_reader *reader, weir__spec_token token,
                         const char *word);

/* ---- values ---- */

/* What the options of a part are read into. */
typedef struct weir__spec_values {
    _Alignas(max_align_t) unsigned char options[WEIR__SPEC_BLANK_BYTES];
    size_t text_used;
    char text[WEIR_SPEC_LENGTH_MAX + 1]; /* a text is never longer than its source */
} weir__spec_values;

/* Reads `token` as a value of `option`, and sets its field; or refuses it, and then the
 * values are of no use. */
weir_status weir__spec_value_set(const weir__spec_reader *reader,
                                 const weir__spec_option *option,
                                 weir__spec_token token, weir__spec_values *out);

void weir__spec_boolean_set(const weir__spec_option *option, bool value,
                            weir__spec_values *out);

/* The name of the type. */
const char *weir__spec_type_name(weir__spec_type type);

#endif
