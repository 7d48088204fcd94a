/* weir/spec.h - what weir_resource_open understands: the resources that text can name,
 * and their options, for programs that print them or offer a choice.
 *
 * All strings here belong to the library and live as long as it. */
#ifndef WEIR_SPEC_H
#define WEIR_SPEC_H

#include <stdbool.h>
#include <stddef.h>

#include "weir/status.h"

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

#ifdef __cplusplus
}
#endif
#endif
