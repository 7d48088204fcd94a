/* weir/spec.h - what weir_resource_open understands: the resources that text can name,
 * and their options, for programs that print them or offer a choice; and how others are
 * added.
 *
 * All strings that are told belong to the library and live as long as it. */
#ifndef WEIR_SPEC_H
#define WEIR_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The longest text that weir_resource_open reads, and the most parts in it. */
#define WEIR_SPEC_LENGTH_MAX 4096
#define WEIR_SPEC_PARTS_MAX 32

/* The grammar of the text, in lines for people. */
WEIR_API const char *weir_spec_grammar(void);

/* A resource that a part of the text names. */
typedef struct weir_spec_kind {
    size_t struct_size;
    const char *name;      /* "pool" */
    const char *purpose;   /* what it is for, in a few words */
    const char *only_from; /* the function that makes it, if text cannot; else null */
    bool is_leaf;          /* it draws from no other, and stands last */
    size_t option_count;
} weir_spec_kind;

/* Fills *out, whose struct_size the caller has set, with resource number `kind`, from
 * 0. NOT_FOUND: there are not so many. */
WEIR_API WEIR_NODISCARD weir_status
weir_spec_kind_get(size_t kind, weir_spec_kind *out);

/* An option of a resource. */
typedef struct weir_spec_option {
    size_t struct_size;
    const char *name;         /* "growth" */
    const char *type;         /* "size", "integer", "boolean", "word", "words",
                                 "text" or "chain" */
    const char *default_text; /* a value as it would be written; null: must be given */
    const char *doc;          /* what it does, in a few words */
    const char *choices;      /* its words, separated by ", "; null: it has none */
} weir_spec_option;

/* Fills *out likewise with option number `option` of resource number `kind`, both from
 * 0. The first option is the one whose name may be left out. NOT_FOUND: there are not
 * so many. */
WEIR_API WEIR_NODISCARD weir_status
weir_spec_option_get(size_t kind, size_t option, weir_spec_option *out);

/* ---- resources of others ---- */

/* The type of an option of an added resource, and of the field that it sets. */
typedef enum weir_spec_type {
    WEIR_SPEC_SIZE = 0,    /* bytes, with a unit: a size_t */
    WEIR_SPEC_INTEGER = 1, /* an int64_t */
    WEIR_SPEC_BOOLEAN = 2, /* a bool */
    WEIR_SPEC_TEXT = 3,    /* a const char *, which lives as long as `make` runs */
    WEIR_SPEC_CHAIN = 4    /* the same, and weir_resource_open can read it */
} weir_spec_type;

typedef struct weir_spec_field {
    const char *name;
    const char *doc;
    weir_spec_type type;
    size_t offset;            /* of the field, in the options */
    const char *default_text; /* a value that sets what is in force without it; null: it
                                 must be given */
    int64_t least;            /* of a size or an integer */
} weir_spec_field;

/* The most that can be added to a process. */
#define WEIR_SPEC_ADDED_MAX 16

/* A resource that weir_resource_open can make from now on: of a library, or a program,
 * that brings one of its own (weir/resource_ops.h). */
typedef struct weir_spec_addition {
    size_t struct_size;
    const char *name;         /* small letters, digits and _ */
    const char *purpose;
    bool is_leaf;
    const void *blank;        /* the options before any is set; null: there are none */
    size_t blank_bytes;       /* 256 at most */
    const weir_spec_field *fields;
    size_t field_count;       /* 16 at most */
    /* Makes it of the options. A leaf is given a null `upstream`; what draws from it
     * keeps it alive. What it answers goes to the caller of weir_resource_open; success
     * with nothing made is DEVICE_ERROR there. */
    weir_status (*make)(weir_device *device, weir_resource *upstream,
                        const void *options, weir_resource **out);
} weir_spec_addition;

/* Adds it, for as long as the process lives, and so long all that `addition` points to
 * must stay, but not itself. At any time, by any thread: a library does so as it is
 * loaded.
 *
 *   INVALID_ARGUMENT     something is missing, contradicts itself or has no meaning, or
 *                        there is a resource of that name
 *   NOT_SUPPORTED        it sets what only a newer Weir knows
 *   OUT_OF_HOST_MEMORY   WEIR_SPEC_ADDED_MAX have been added */
WEIR_API WEIR_NODISCARD weir_status
weir_spec_add(const weir_spec_addition *addition);

#ifdef __cplusplus
}
#endif
#endif
