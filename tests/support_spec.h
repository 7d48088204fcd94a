/* support_spec.h - for tests of the reader of specs: a table with what the library has
 * and two resources more, which have options of every type and record what they get. */
#ifndef WEIR_TESTS_SUPPORT_SPEC_H
#define WEIR_TESTS_SUPPORT_SPEC_H

#include "spec.h"
#include "support.h"

typedef enum probe_mode { PROBE_SLOW = 0, PROBE_FAST = 7 } probe_mode;

typedef struct probe_values {
    const char *file;
    bool append;
    bool quiet;
    int32_t node;
    int64_t far;
    probe_mode mode;
    uint32_t flags;
    uint64_t wide_flags;
    size_t size;
} probe_values;

bool probe_is_same(const probe_values *a, const probe_values *b);

/* A leaf with all of them, the file first; and `wrap` above another resource, with
 * size, which must be given, file and mode. */
extern const weir__spec_table probe_table;
extern const probe_values probe_blank;

/* One of the two that was made; the file's text is kept beside it. */
typedef struct probe_record {
    bool is_leaf;
    probe_values values;
    char file[WEIR_SPEC_LENGTH_MAX + 1];
} probe_record;

/* What was made since probe_forget, the leaf first. */
extern probe_record probe_records[WEIR_SPEC_PARTS_MAX];
extern size_t probe_count;
void probe_forget(void);

weir_status probe_open(weir_device *device, const char *spec, weir_resource **out);

/* The character that the last refusal names, from 1, or 0. */
size_t refused_character(void);

#endif
