/* spec_added.c - resources that other libraries make known to text.
 *
 * They are never taken away. So who reads the table needs no lock: what he has counted
 * stays as it is. */
#include <string.h>

#include "spec.h"
#include "sync.h"

#define ADDED_OPTIONS_MAX 16

typedef struct added {
    weir__spec_kind kind;
    weir__spec_option options[ADDED_OPTIONS_MAX];
} added;

static added all[WEIR_SPEC_ADDED_MAX];
static atomic_size_t all_count; /* grows under the lock */
static weir__mutex all_lock = WEIR__MUTEX_INIT(WEIR__RANK_REGISTRY);

const weir__spec_kind *weir__spec_kind_at(const weir__spec_table *table, size_t i)
{
    if (i < table->count)
        return &table->kinds[i];
    if (table != &weir__spec_table_own ||
        i - table->count >= atomic_load_explicit(&all_count, memory_order_acquire))
        return NULL;
    return &all[i - table->count].kind;
}

/* ---- what is wrong ---- */

static bool is_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
    return name != NULL && name[0] != '\0' && name[strspn(name, letters)] == '\0';
}

static const struct {
    weir__spec_type type;
    size_t width;
} types[] = {
    [WEIR_SPEC_SIZE] = { WEIR__SPEC_SIZE, sizeof(size_t) },
    [WEIR_SPEC_INTEGER] = { WEIR__SPEC_INTEGER, sizeof(int64_t) },
    [WEIR_SPEC_BOOLEAN] = { WEIR__SPEC_BOOLEAN, sizeof(bool) },
    [WEIR_SPEC_TEXT] = { WEIR__SPEC_TEXT, sizeof(const char *) },
    [WEIR_SPEC_CHAIN] = { WEIR__SPEC_CHAIN, sizeof(const char *) },
};

/* What a spec that names no such option leaves to it. */
static weir_status check_default(const weir__spec_option *option)
{
    weir__spec_values values = { .text_used = 0 };
    if (option->default_text == NULL)
        return WEIR_OK;
    weir__spec_reader reader = { .table = &weir__spec_table_own,
                                 .text = option->default_text,
                                 .length = strlen(option->default_text) };
    if (reader.length > WEIR_SPEC_LENGTH_MAX)
        return weir__spec_refuse(&reader, WEIR_SPEC_LENGTH_MAX,
                                 "%d characters are the most", WEIR_SPEC_LENGTH_MAX);
    return weir__spec_value_set(&reader, option,
                                (weir__spec_token){ .length = reader.length }, &values);
}

static weir_status read_field(const weir_spec_addition *from,
                              const weir_spec_field *field, weir__spec_option *out)
{
    const size_t known = sizeof types / sizeof types[0];
    if (!is_name(field->name) || field->doc == NULL || (size_t)field->type >= known)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s has an option without a name, a "
                          "doc, or a type that there is", from->name);
    const size_t width = types[field->type].width;
    if (field->offset > from->blank_bytes || width > from->blank_bytes - field->offset)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s: the option %s lies outside of "
                          "the %zu bytes of its options", from->name, field->name,
                          from->blank_bytes);
    if (field->type == WEIR_SPEC_SIZE && field->least < 0)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s: the size %s cannot be %lld at "
                          "least", from->name, field->name, (long long)field->least);
    *out = (weir__spec_option){ .name = field->name, .type = types[field->type].type,
                                .offset = field->offset, .width = width,
                                .default_text = field->default_text,
                                .doc = field->doc, .least = field->least,
                                .most = INT64_MAX };
    return check_default(out);
}

static weir_status read_shape(const weir_spec_addition *from, weir_spec_addition *it)
{
    if (from == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the resource to add is null");
    if (from->struct_size < sizeof *from)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the resource to add has no "
                          "struct_size");
    weir_status status = weir__read_options(from, it, sizeof *it,
                                            "the words of a resource to add");
    if (status != WEIR_OK)
        return status;
    if (!is_name(it->name) || it->purpose == NULL || it->make == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the resource to add lacks a name of "
                          "small letters, digits and _, a purpose, or what makes it");
    if (it->blank_bytes > WEIR__SPEC_BLANK_BYTES ||
        it->field_count > ADDED_OPTIONS_MAX ||
        (it->blank == NULL) != (it->blank_bytes == 0) ||
        (it->fields == NULL) != (it->field_count == 0))
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s: its options have %zu bytes, its "
                          "fields are %zu; %d and %d are the most, and none where "
                          "there are none", it->name, it->blank_bytes, it->field_count,
                          WEIR__SPEC_BLANK_BYTES, ADDED_OPTIONS_MAX);
    return WEIR_OK;
}

/* ---- adding ---- */

static weir_status read_into(const weir_spec_addition *from, added *out)
{
    for (size_t i = 0; i < from->field_count; i++) {
        weir_status status = read_field(from, &from->fields[i], &out->options[i]);
        if (status != WEIR_OK)
            return status;
        for (size_t j = 0; j < i; j++) {
            if (strcmp(from->fields[i].name, from->fields[j].name) == 0)
                return weir__fail(WEIR_INVALID_ARGUMENT, "%s has two options called %s",
                                  from->name, from->fields[i].name);
        }
    }
    out->kind = (weir__spec_kind){ .name = from->name, .purpose = from->purpose,
                                   .is_leaf = from->is_leaf, .blank = from->blank,
                                   .blank_bytes = from->blank_bytes,
                                   .options = out->options,
                                   .option_count = from->field_count,
                                   .make = from->make };
    return WEIR_OK;
}

static weir_status add_locked(const weir_spec_addition *from)
    WEIR_REQUIRES(&all_lock)
{
    const size_t count = atomic_load(&all_count);
    const weir__spec_kind *kind;
    for (size_t i = 0; (kind = weir__spec_kind_at(&weir__spec_table_own, i)); i++) {
        if (strcmp(kind->name, from->name) == 0)
            return weir__fail(WEIR_INVALID_ARGUMENT, "there is a resource called %s",
                              from->name);
    }
    if (count == WEIR_SPEC_ADDED_MAX)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "%d resources have been added, and "
                          "there is no room for more", WEIR_SPEC_ADDED_MAX);
    weir_status status = read_into(from, &all[count]);
    if (status == WEIR_OK)
        atomic_store_explicit(&all_count, count + 1, memory_order_release);
    return status;
}

weir_status weir_spec_add(const weir_spec_addition *addition)
{
    weir_spec_addition it;
    weir_status status = weir__enter();
    if (status == WEIR_OK)
        status = read_shape(addition, &it);
    if (status != WEIR_OK)
        return status;
    weir__mutex_lock(&all_lock);
    status = add_locked(&it);
    weir__mutex_unlock(&all_lock);
    return status;
}
