/* spec.c - builds a chain of resources from text: "limiting(40GiB)/pool/device".
 *
 * The text is read twice: once from its front to its end, so that a slip anywhere is
 * told before anything is made; then part by part from its last one, the leaf, so that
 * each stands on what is made already. That keeps alive what it stands on, and so only
 * the outermost is handed out. Reading needs no host memory. */
#include "spec.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_ENDS " \t,()\"=/"
#define TEXT_ENDS " \t,()\"=" /* a file name has slashes */

/* ---- refusing ---- */

static char printable(char c)
{
    return c >= ' ' && c <= '~' ? c : '?';
}

weir__spec_words weir__spec_show(const weir__spec_reader *reader,
                                 weir__spec_token token)
{
    weir__spec_words out;
    size_t room = sizeof out.text - sizeof "...";
    size_t length = token.length < room ? token.length : room;
    for (size_t i = 0; i < length; i++)
        out.text[i] = printable(reader->text[token.at + i]);
    memcpy(out.text + length, "...", sizeof "...");
    if (length == token.length)
        out.text[length] = '\0';
    return out;
}

/* What a sentence shows of the whole text: all of it, or what is around `at`. */
typedef struct excerpt {
    char text[80];
} excerpt;

static excerpt excerpt_around(const weir__spec_reader *reader, size_t at)
{
    excerpt out;
    const size_t room = 64;
    size_t begin = 0, end = reader->length;
    if (end > room) {
        begin = at > room / 2 ? at - room / 2 : 0;
        begin = begin > end - room ? end - room : begin;
        end = begin + room;
    }
    size_t used = 0;
    for (int i = 0; i < 3 && begin > 0; i++)
        out.text[used++] = '.';
    for (size_t i = begin; i < end; i++)
        out.text[used++] = printable(reader->text[i]);
    for (int i = 0; i < 3 && end < reader->length; i++)
        out.text[used++] = '.';
    out.text[used] = '\0';
    return out;
}

weir_status weir__spec_refuse(const weir__spec_reader *reader, size_t at,
                              const char *format, ...)
{
    WEIR_CHECK(at <= reader->length, "a place is outside of the text");
    char sentence[300];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return weir__fail(WEIR_INVALID_ARGUMENT, "%s: character %zu: %s",
                      reader->length == 0 ? "\"\"" : excerpt_around(reader, at).text,
                      at + 1, sentence);
}

/* ---- tokens ---- */

bool weir__spec_token_is(const weir__spec_reader *reader, weir__spec_token token,
                         const char *word)
{
    return !token.quoted && strlen(word) == token.length
           && memcmp(reader->text + token.at, word, token.length) == 0;
}

static void skip_blanks(weir__spec_reader *reader)
{
    reader->at += strspn(reader->text + reader->at, " \t");
}

/* Takes `c`, and blanks around it, if it comes next. */
static bool take(weir__spec_reader *reader, char c)
{
    skip_blanks(reader);
    if (reader->text[reader->at] != c)
        return false;
    reader->at++;
    skip_blanks(reader);
    return true;
}

/* The run of characters up to one of `ends`; empty where one of these comes next. */
static weir__spec_token read_run(weir__spec_reader *reader, const char *ends)
{
    skip_blanks(reader);
    weir__spec_token token = { .at = reader->at,
                               .length = strcspn(reader->text + reader->at, ends) };
    reader->at += token.length;
    return token;
}

/* From the opening quote, which comes next, to the closing one. */
static weir_status read_quoted(weir__spec_reader *reader, weir__spec_token *out)
{
    size_t opening = reader->at, end = opening + 1;
    while (reader->text[end] != '"') {
        end += reader->text[end] == '\\'; /* what follows is no end */
        if (reader->text[end] == '\0')
            return weir__spec_refuse(reader, opening, "this quote is never closed");
        end++;
    }
    *out = (weir__spec_token){ .at = opening + 1, .length = end - opening - 1,
                               .quoted = true };
    reader->at = end + 1;
    return WEIR_OK;
}

/* `what`: a value of `option`, or the name of one. It is not empty, unless quoted. */
static weir_status read_token(weir__spec_reader *reader, const char *what,
                              const weir__spec_option *option, weir__spec_token *out)
{
    bool is_text = option != NULL && (option->type == WEIR__SPEC_TEXT ||
                                      option->type == WEIR__SPEC_CHAIN);
    skip_blanks(reader);
    if (reader->text[reader->at] == '"')
        return read_quoted(reader, out);
    *out = read_run(reader, is_text ? TEXT_ENDS : WORD_ENDS);
    if (out->length == 0)
        return weir__spec_refuse(reader, out->at, "here %s is missing", what);
    return WEIR_OK;
}

/* ---- options ---- */

typedef struct part {
    const weir__spec_kind *kind;
    weir__spec_token name;
    uint32_t given;             /* bit i: option number i */
    weir__spec_values values;
} part;

/* "a, b, c", cut where it is too long. */
typedef struct name_list {
    char text[200];
    size_t used;
} name_list;

static void name_list_add(name_list *self, const char *name)
{
    int wanted = snprintf(self->text + self->used, sizeof self->text - self->used,
                          "%s%s", self->used == 0 ? "" : ", ", name);
    self->used += (size_t)wanted;
    if (self->used >= sizeof self->text)
        self->used = sizeof self->text - 1;
}

static const weir__spec_option *option_find(const weir__spec_reader *reader,
                                            const weir__spec_kind *kind,
                                            weir__spec_token name)
{
    for (size_t i = 0; i < kind->option_count; i++) {
        if (weir__spec_token_is(reader, name, kind->options[i].name))
            return &kind->options[i];
    }
    return NULL;
}

static weir_status option_refuse(const weir__spec_reader *reader,
                                 const weir__spec_kind *kind, weir__spec_token name)
{
    if (kind->option_count == 0)
        return weir__spec_refuse(reader, name.at, "%s has no options", kind->name);
    name_list names = { .used = 0 };
    for (size_t i = 0; i < kind->option_count; i++)
        name_list_add(&names, kind->options[i].name);
    return weir__spec_refuse(reader, name.at, "%s has no option \"%s\"; it has %s",
                             kind->name, weir__spec_show(reader, name).text,
                             names.text);
}

/* Notes that `option` is given, at `at`; refuses it the second time. */
static weir_status option_claim(const weir__spec_reader *reader, part *out,
                                const weir__spec_option *option, size_t at)
{
    uint32_t bit = UINT32_C(1) << (option - out->kind->options);
    if ((out->given & bit) != 0)
        return weir__spec_refuse(reader, at, "%s has \"%s\" already", out->kind->name,
                                 option->name);
    out->given |= bit;
    return WEIR_OK;
}

/* What stands without a `name =`: the name of a boolean, or a value of `first`, which
 * is null where none can be. */
static weir_status bare_read(const weir__spec_reader *reader, weir__spec_token token,
                             const weir__spec_option *first, part *out)
{
    const weir__spec_kind *kind = out->kind;
    const weir__spec_option *option = option_find(reader, kind, token);
    bool is_boolean = option != NULL && option->type == WEIR__SPEC_BOOLEAN;
    if (option == NULL && first == NULL)
        return option_refuse(reader, kind, token);
    if (option != NULL && !is_boolean)
        return weir__spec_refuse(reader, token.at, "%s wants a value: \"%s=...\"",
                                 option->name, option->name);
    if (option == NULL)
        option = first;

    weir_status status = option_claim(reader, out, option, token.at);
    if (status == WEIR_OK && is_boolean)
        weir__spec_boolean_set(option, true, &out->values);
    else if (status == WEIR_OK)
        status = weir__spec_value_set(reader, option, token, &out->values);
    return status;
}

static weir_status option_read(weir__spec_reader *reader,
                               const weir__spec_option *first, part *out)
{
    const weir__spec_kind *kind = out->kind;
    weir__spec_token token, value;
    weir_status status = read_token(reader, "an option", first, &token);
    if (status != WEIR_OK)
        return status;
    if (token.quoted || !take(reader, '='))
        return bare_read(reader, token, first, out);

    const weir__spec_option *option = option_find(reader, kind, token);
    if (option == NULL)
        return option_refuse(reader, kind, token);
    status = option_claim(reader, out, option, token.at);
    if (status == WEIR_OK)
        status = read_token(reader, "a value", option, &value);
    if (status == WEIR_OK)
        status = weir__spec_value_set(reader, option, value, &out->values);
    return status;
}

/* All up to the closing parenthesis; the opening one is read already. */
static weir_status options_read(weir__spec_reader *reader, size_t opening, part *out)
{
    const weir__spec_kind *kind = out->kind;
    const weir__spec_option *first = kind->option_count > 0 ? &kind->options[0] : NULL;
    if (take(reader, ')'))
        return WEIR_OK;
    do {
        weir_status status = option_read(reader, first, out);
        if (status != WEIR_OK)
            return status;
        first = NULL;
    } while (take(reader, ','));
    if (take(reader, ')'))
        return WEIR_OK;
    if (reader->at == reader->length)
        return weir__spec_refuse(reader, reader->at, "the \"(\" at character %zu is "
                                 "never closed", opening + 1);
    return weir__spec_refuse(reader, reader->at, "here a \",\" or a \")\" is missing");
}

/* ---- parts ---- */

static weir_status kind_find(const weir__spec_reader *reader, weir__spec_token name,
                             const weir__spec_kind **out)
{
    name_list names = { .used = 0 };
    for (size_t i = 0; (*out = weir__spec_kind_at(reader->table, i)) != NULL; i++) {
        if (weir__spec_token_is(reader, name, (*out)->name)) {
            if ((*out)->only_from == NULL)
                return WEIR_OK;
            return weir__spec_refuse(reader, name.at, "%s cannot be made from text: "
                                     "use %s", (*out)->name, (*out)->only_from);
        }
        if ((*out)->only_from == NULL)
            name_list_add(&names, (*out)->name);
    }
    return weir__spec_refuse(reader, name.at, "no resource is called \"%s\"; there are "
                             "%s", weir__spec_show(reader, name).text, names.text);
}

static weir_status required_check(const weir__spec_reader *reader, const part *it)
{
    for (size_t i = 0; i < it->kind->option_count; i++) {
        const weir__spec_option *option = &it->kind->options[i];
        if (option->default_text == NULL && (it->given >> i & 1) == 0)
            return weir__spec_refuse(reader, it->name.at, "%s needs %s %s: "
                                     "\"%s(%s=...)\"", it->kind->name,
                                     strchr("aeiou", option->name[0]) ? "an" : "a",
                                     option->name, it->kind->name, option->name);
    }
    return WEIR_OK;
}

/* Reads one part, up to the "/" behind it or the end of the text. */
static weir_status part_read(weir__spec_reader *reader, part *out)
{
    out->given = 0;
    out->values.text_used = 0;
    out->name = read_run(reader, WORD_ENDS);
    if (out->name.length == 0)
        return weir__spec_refuse(reader, reader->at,
                                 "here the name of a resource is missing");
    weir_status status = kind_find(reader, out->name, &out->kind);
    if (status != WEIR_OK)
        return status;

    WEIR_CHECK(out->kind->blank_bytes <= sizeof out->values.options,
               "the options of a resource are too long");
    if (out->kind->blank != NULL)
        memcpy(out->values.options, out->kind->blank, out->kind->blank_bytes);
    skip_blanks(reader);
    size_t opening = reader->at;
    if (take(reader, '('))
        status = options_read(reader, opening, out);
    if (status != WEIR_OK)
        return status;
    skip_blanks(reader);
    if (reader->at < reader->length && reader->text[reader->at] != '/')
        return weir__spec_refuse(reader, reader->at, "here a \"/\" is missing");
    return required_check(reader, out);
}

/* Where each part begins. */
typedef struct chain {
    size_t starts[WEIR_SPEC_PARTS_MAX];
    size_t count;
} chain;

/* Reads the whole text, and makes nothing. */
static weir_status chain_read(weir__spec_reader *reader, part *scratch, chain *out)
{
    out->count = 0;
    for (;;) {
        if (out->count == WEIR_SPEC_PARTS_MAX)
            return weir__spec_refuse(reader, reader->at, "%d resources are the most",
                                     WEIR_SPEC_PARTS_MAX);
        out->starts[out->count++] = reader->at;
        weir_status status = part_read(reader, scratch);
        if (status != WEIR_OK)
            return status;
        bool is_last = !take(reader, '/');
        const char *name = scratch->kind->name;
        if (scratch->kind->is_leaf && !is_last)
            return weir__spec_refuse(reader, scratch->name.at, "%s draws from no other "
                                     "resource: it can only be the last one", name);
        if (!scratch->kind->is_leaf && is_last)
            return weir__spec_refuse(reader, scratch->name.at, "%s draws from another "
                                     "resource, which must follow: \"%s/device\"",
                                     name, name);
        if (is_last)
            return WEIR_OK;
    }
}

/* What others have added may refuse without a word, or answer success with nothing. */
static weir_status make_one(weir_device *device, weir_resource *below, const part *it,
                            weir_resource **out)
{
    const uint64_t said = weir__error_number();
    *out = NULL;
    weir_status status = it->kind->make(device, below, it->values.options, out);
    if (status == WEIR_OK && *out == NULL)
        return weir__fail(WEIR_DEVICE_ERROR, "what makes %s answered success, and made "
                          "nothing", it->kind->name);
    if (status != WEIR_OK && weir__error_number() == said)
        return weir__fail(status, "%s is not made: %s", it->kind->name,
                          weir_status_string(status));
    return status;
}

/* Makes the parts, the last one first. What one of them says against its options gets
 * the place, too. */
static weir_status chain_make(weir_device *device, weir__spec_reader *reader,
                              part *scratch, const chain *from, weir_resource **out)
{
    weir_resource *below = NULL;
    for (size_t i = from->count; i-- > 0;) {
        weir_resource *made = NULL;
        reader->at = from->starts[i];
        weir_status status = part_read(reader, scratch);
        if (status == WEIR_OK) {
            status = make_one(device, below, scratch, &made);
            if (status == WEIR_INVALID_ARGUMENT)
                status = weir__spec_refuse(reader, scratch->name.at, "%s",
                                           weir_last_error().message);
        }
        weir_resource_unref(below);
        if (status != WEIR_OK)
            return status;
        below = made;
    }
    *out = below;
    return WEIR_OK;
}

static weir_status spec_read(weir__spec_reader *reader, part *scratch, chain *out)
{
    if (reader->length > WEIR_SPEC_LENGTH_MAX)
        return weir__spec_refuse(reader, WEIR_SPEC_LENGTH_MAX,
                                 "%d characters are the most", WEIR_SPEC_LENGTH_MAX);
    return chain_read(reader, scratch, out);
}

weir_status weir__spec_check(const weir__spec_table *table, const char *spec)
{
    weir__spec_reader reader = { .table = table, .text = spec,
                                 .length = strlen(spec) };
    part scratch;
    chain parts;
    return spec_read(&reader, &scratch, &parts);
}

weir_status weir__spec_open(const weir__spec_table *table, weir_device *device,
                            const char *spec, weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (device == NULL || spec == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the %s is null",
                          device == NULL ? "device" : "text that names resources");

    weir__spec_reader reader = { .table = table, .text = spec,
                                 .length = strlen(spec) };
    part scratch;
    chain parts;
    status = spec_read(&reader, &scratch, &parts);
    if (status != WEIR_OK)
        return status;
    return chain_make(device, &reader, &scratch, &parts, out);
}

/* Whoever reads the sentence may not know that the text came from there. */
static weir_status name_environment(weir_status status)
{
    char sentence[400];
    const weir_error said = weir_last_error();
    snprintf(sentence, sizeof sentence, "%s", said.message);
    return weir__fail_native(status, said.native_code, "WEIR_RESOURCE: %s", sentence);
}

weir_status weir_resource_open(weir_device *device, const char *spec,
                               weir_resource **out)
{
    const char *wish = spec == NULL ? secure_getenv("WEIR_RESOURCE") : NULL;
    const bool is_wished = wish != NULL && wish[0] != '\0';
    if (spec == NULL)
        spec = is_wished ? wish : "pool/device";
    weir_status status = weir__spec_open(&weir__spec_table_own, device, spec, out);
    if (status != WEIR_OK && is_wished && device != NULL && out != NULL)
        return name_environment(status);
    return status;
}

/* ---- what there is ---- */

const char *weir_spec_grammar(void)
{
    return
"resource = part { \"/\" part }                  outermost first, the last a leaf\n"
"part     = name [ \"(\" [ option { \",\" option } ] \")\" ]\n"
"option   = name \"=\" value\n"
"         | value                              of the first option, standing first\n"
"         | name                               of a boolean one: true\n"
"\n"
"size     = 512MiB, 1.5GiB, 100MB, 4096       B, KiB MiB GiB TiB, KB MB GB TB of 1000\n"
"integer  = 7, -1\n"
"boolean  = true, yes, on, false, no, off\n"
"word     = one of the words listed; some sizes and integers have words, too\n"
"words    = words joined by \"+\"\n"
"text     = trace.csv, \"a, \\\"b\\\".csv\"         quotes for blanks and , ( ) = \"\n"
"chain    = a resource as a text: pool/device, \"pool(limit=1GiB)/device\"\n";
}

weir_status weir_spec_kind_get(size_t kind, weir_spec_kind *out)
{
    const weir_spec_kind none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__enter();
    if (status != WEIR_OK)
        return status;
    const weir__spec_kind *it = weir__spec_kind_at(&weir__spec_table_own, kind);
    if (it == NULL)
        return weir__fail(WEIR_NOT_FOUND, "no resource has the number %zu", kind);
    const weir_spec_kind found = { .struct_size = sizeof found, .name = it->name,
                                   .purpose = it->purpose, .only_from = it->only_from,
                                   .is_leaf = it->is_leaf,
                                   .option_count = it->option_count };
    return weir__fill_out(out, &found, sizeof found);
}

weir_status weir_spec_option_get(size_t kind, size_t option, weir_spec_option *out)
{
    const weir_spec_option none = { .struct_size = sizeof none };
    weir_spec_kind of = { .struct_size = sizeof of };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir_spec_kind_get(kind, &of);
    if (status != WEIR_OK)
        return status;
    if (option >= of.option_count)
        return weir__fail(WEIR_NOT_FOUND, "%s has %zu options, and none has the number "
                          "%zu", of.name, of.option_count, option);
    const weir__spec_option *it =
        &weir__spec_kind_at(&weir__spec_table_own, kind)->options[option];
    const weir_spec_option found = { .struct_size = sizeof found, .name = it->name,
                                     .type = weir__spec_type_name(it->type),
                                     .default_text = it->default_text, .doc = it->doc,
                                     .choices = it->choices };
    return weir__fill_out(out, &found, sizeof found);
}
