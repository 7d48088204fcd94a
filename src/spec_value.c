/* spec_value.c - the values of options: sizes, numbers, words and texts.
 *
 * Each is read from one token, which is not empty, and refused by saying what would
 * have been right. A size is counted exactly, and a fraction of a byte is dropped. */
#include <string.h>

#include "spec.h"

/* ---- setting fields ---- */

/* The field is a bool, an enum or a number; all of them take `width` bytes of the
 * number, and a negative one as its complement. */
static void field_store(const weir__spec_option *option, weir__spec_values *out,
                        uint64_t number)
{
    unsigned char *field = out->options + option->offset;
    WEIR_CHECK(option->offset + option->width <= sizeof out->options,
               "an option is outside of its struct");
    uint8_t byte = (uint8_t)number;
    uint32_t word = (uint32_t)number;
    switch (option->width) {
    case sizeof byte: memcpy(field, &byte, sizeof byte); return;
    case sizeof word: memcpy(field, &word, sizeof word); return;
    case sizeof number: memcpy(field, &number, sizeof number); return;
    default: WEIR_CHECK(false, "an option is of a width that nothing has");
    }
}

/* ---- words ---- */

/* The value of the choice that `token` is. */
static bool choice_find(const weir__spec_reader *reader,
                        const weir__spec_option *option, weir__spec_token token,
                        uint64_t *out)
{
    const char *word = option->choices;
    for (size_t i = 0; i < option->value_count; i++) {
        size_t length = strcspn(word, ",");
        if (length == token.length
            && memcmp(reader->text + token.at, word, length) == 0) {
            *out = option->values[i];
            return true;
        }
        word += length;
        word += strspn(word, ", ");
    }
    return false;
}

static weir_status choice_refuse(const weir__spec_reader *reader,
                                 const weir__spec_option *option,
                                 weir__spec_token token)
{
    return weir__spec_refuse(reader, token.at, "%s cannot be \"%s\": there are %.200s",
                             option->name, weir__spec_show(reader, token).text,
                             option->choices);
}

static weir_status word_set(const weir__spec_reader *reader,
                            const weir__spec_option *option, weir__spec_token token,
                            weir__spec_values *out)
{
    uint64_t value;
    if (!choice_find(reader, option, token, &value))
        return choice_refuse(reader, option, token);
    field_store(option, out, value);
    return WEIR_OK;
}

/* Words joined by +. One that is there twice is a slip, and so is one that means none
 * beside others. */
static weir_status words_set(const weir__spec_reader *reader,
                             const weir__spec_option *option, weir__spec_token token,
                             weir__spec_values *out)
{
    uint64_t all = 0, value;
    size_t end = token.at + token.length;
    weir__spec_token word = { .at = token.at };
    for (;;) {
        word.length = 0;
        while (word.at + word.length < end
               && reader->text[word.at + word.length] != '+')
            word.length++;
        if (!choice_find(reader, option, word, &value))
            return choice_refuse(reader, option, word);
        if (value == 0 && word.length != token.length)
            return weir__spec_refuse(reader, word.at, "%s: \"%s\" can only stand alone",
                                     option->name, weir__spec_show(reader, word).text);
        if (value != 0 && (all & value) == value)
            return weir__spec_refuse(reader, word.at, "%s has \"%s\" already",
                                     option->name, weir__spec_show(reader, word).text);
        all |= value;
        if (word.at + word.length == end)
            break;
        word.at += word.length + 1;
    }
    field_store(option, out, all);
    return WEIR_OK;
}

void weir__spec_boolean_set(const weir__spec_option *option, bool value,
                            weir__spec_values *out)
{
    field_store(option, out, value);
}

static weir_status boolean_set(const weir__spec_reader *reader,
                               const weir__spec_option *option, weir__spec_token token,
                               weir__spec_values *out)
{
    static const char *const yes[] = { "true", "yes", "on" };
    static const char *const no[] = { "false", "no", "off" };
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        bool is_yes = weir__spec_token_is(reader, token, yes[i]);
        if (!is_yes && !weir__spec_token_is(reader, token, no[i]))
            continue;
        weir__spec_boolean_set(option, is_yes, out);
        return WEIR_OK;
    }
    return weir__spec_refuse(reader, token.at,
                             "%s is true, yes, on, false, no or off, not \"%s\"",
                             option->name, weir__spec_show(reader, token).text);
}

/* ---- numbers ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Takes digits from text[*at] on; false if they are more than `most`. */
static bool digits_take(const char *text, size_t *at, uint64_t most, uint64_t *out)
{
    uint64_t number = 0;
    for (; is_digit(text[*at]); ++*at) {
        uint64_t digit = (uint64_t)(text[*at] - '0');
        if (number > (most - digit) / 10)
            return false;
        number = 10 * number + digit;
    }
    *out = number;
    return true;
}

static weir_status integer_set(const weir__spec_reader *reader,
                               const weir__spec_option *option, weir__spec_token token,
                               weir__spec_values *out)
{
    size_t at = token.at, end = token.at + token.length;
    bool is_negative = reader->text[at] == '-';
    at += is_negative;
    uint64_t amount = 0;
    bool fits = at < end && digits_take(reader->text, &at, INT64_MAX, &amount);
    int64_t number = is_negative ? -(int64_t)amount : (int64_t)amount;
    if (!fits || at != end || number < option->least || number > option->most)
        return weir__spec_refuse(reader, token.at,
                                 "%s is a number from %lld to %lld%s%.100s, not \"%s\"",
                                 option->name, (long long)option->least,
                                 (long long)option->most,
                                 option->choices == NULL ? "" : ", or ",
                                 option->choices == NULL ? "" : option->choices,
                                 weir__spec_show(reader, token).text);
    field_store(option, out, (uint64_t)number);
    return WEIR_OK;
}

/* ---- sizes ---- */

typedef struct unit {
    const char *name;
    uint64_t bytes;
} unit;

static const unit units[] = {
    { "B", 1 },
    { "KiB", UINT64_C(1) << 10 }, { "MiB", UINT64_C(1) << 20 },
    { "GiB", UINT64_C(1) << 30 }, { "TiB", UINT64_C(1) << 40 },
    { "KB", UINT64_C(1000) }, { "MB", UINT64_C(1000000) },
    { "GB", UINT64_C(1000000000) }, { "TB", UINT64_C(1000000000000) },
};

/* The unit that `token` names; an empty one is bytes. */
static const unit *unit_find(const weir__spec_reader *reader, weir__spec_token token)
{
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (token.length == 0 || weir__spec_token_is(reader, token, units[i].name))
            return &units[i];
    }
    return NULL;
}

/* How many bytes the digits in text[begin, end), behind a point, are of `bytes`. From
 * the last one on: what is dropped at each step has no say in the whole bytes. */
static uint64_t fraction_of(const char *text, size_t begin, size_t end, uint64_t bytes)
{
    uint64_t sum = 0;
    while (end > begin)
        sum = ((uint64_t)(text[--end] - '0') * bytes + sum) / 10;
    return sum;
}

static weir_status size_refuse(const weir__spec_reader *reader,
                               const weir__spec_option *option, weir__spec_token token)
{
    return weir__spec_refuse(reader, token.at,
                             "%s is a size as 512MiB or 1.5GiB%s%.100s, not \"%s\"",
                             option->name, option->choices == NULL ? "" : ", or ",
                             option->choices == NULL ? "" : option->choices,
                             weir__spec_show(reader, token).text);
}

static weir_status size_set(const weir__spec_reader *reader,
                            const weir__spec_option *option, weir__spec_token token,
                            weir__spec_values *out)
{
    const char *text = reader->text;
    size_t at = token.at, end = token.at + token.length;
    uint64_t whole = 0;
    if (!is_digit(text[at]))
        return size_refuse(reader, option, token);
    bool fits = digits_take(text, &at, SIZE_MAX, &whole);
    while (is_digit(text[at]))
        at++;

    size_t fraction = at, fraction_end = at;
    if (text[at] == '.') {
        fraction = ++at;
        while (is_digit(text[at]))
            at++;
        fraction_end = at;
        if (fraction_end == fraction)
            return size_refuse(reader, option, token);
    }

    weir__spec_token rest = { .at = at, .length = end - at };
    const unit *in = unit_find(reader, rest);
    if (in == NULL)
        return weir__spec_refuse(reader, rest.at,
                                 "there is no unit \"%s\": sizes are in B, KiB, MiB, "
                                 "GiB, TiB, or KB, MB, GB, TB of 1000",
                                 weir__spec_show(reader, rest).text);
    uint64_t more = fraction_of(text, fraction, fraction_end, in->bytes);
    if (!fits || whole > (SIZE_MAX - more) / in->bytes)
        return weir__spec_refuse(reader, token.at, "%s cannot be \"%s\": no size is "
                                 "above %zu bytes", option->name,
                                 weir__spec_show(reader, token).text, SIZE_MAX);
    uint64_t bytes = whole * in->bytes + more;
    if (bytes == 0 && strspn(text + token.at, "0.") < at - token.at)
        return weir__spec_refuse(reader, token.at, "%s cannot be \"%s\": that is less "
                                 "than a byte", option->name,
                                 weir__spec_show(reader, token).text);
    if (bytes < (uint64_t)option->least)
        return weir__spec_refuse(reader, token.at, "%s cannot be \"%s\": its least is "
                                 "%lldB%s%.100s", option->name,
                                 weir__spec_show(reader, token).text,
                                 (long long)option->least,
                                 option->choices == NULL ? "" : ", or ",
                                 option->choices == NULL ? "" : option->choices);
    field_store(option, out, bytes);
    return WEIR_OK;
}

/* ---- texts ---- */

/* In quotes a backslash makes the next character count as itself. */
static weir_status text_set(const weir__spec_reader *reader,
                            const weir__spec_option *option, weir__spec_token token,
                            weir__spec_values *out)
{
    WEIR_CHECK(option->width == sizeof(char *), "a text is no pointer");
    WEIR_CHECK(out->text_used + token.length < sizeof out->text,
               "texts are longer than their source");
    const char *start = out->text + out->text_used;
    size_t end = token.at + token.length;
    for (size_t at = token.at; at < end; at++) {
        at += token.quoted && reader->text[at] == '\\';
        out->text[out->text_used++] = reader->text[at];
    }
    out->text[out->text_used++] = '\0';
    memcpy(out->options + option->offset, &start, sizeof start);
    return WEIR_OK;
}

/* A chain is read here, so that a slip in it is told before anything is made. */
static weir_status chain_set(const weir__spec_reader *reader,
                             const weir__spec_option *option, weir__spec_token token,
                             weir__spec_values *out)
{
    weir_status status = text_set(reader, option, token, out);
    if (status != WEIR_OK)
        return status;
    const char *text;
    memcpy(&text, out->options + option->offset, sizeof text);
    status = weir__spec_check(reader->table, text);
    if (status != WEIR_OK)
        status = weir__spec_refuse(reader, token.at, "%s is no resource: %s",
                                   option->name, weir_last_error().message);
    return status;
}

/* ---- any ---- */

const char *weir__spec_type_name(weir__spec_type type)
{
    switch (type) {
    case WEIR__SPEC_SIZE: return "size";
    case WEIR__SPEC_INTEGER: return "integer";
    case WEIR__SPEC_BOOLEAN: return "boolean";
    case WEIR__SPEC_WORD: return "word";
    case WEIR__SPEC_WORDS: return "words";
    case WEIR__SPEC_TEXT: return "text";
    case WEIR__SPEC_CHAIN: return "chain";
    }
    return "";
}

weir_status weir__spec_value_set(const weir__spec_reader *reader,
                                 const weir__spec_option *option,
                                 weir__spec_token token, weir__spec_values *out)
{
    uint64_t value;
    if (option->type == WEIR__SPEC_TEXT)
        return text_set(reader, option, token, out);
    if (option->type == WEIR__SPEC_CHAIN)
        return chain_set(reader, option, token, out);
    if (token.quoted)
        return weir__spec_refuse(reader, token.at - 1,
                                 "%s is no text: leave the quotes out", option->name);
    switch (option->type) {
    case WEIR__SPEC_BOOLEAN: return boolean_set(reader, option, token, out);
    case WEIR__SPEC_WORD: return word_set(reader, option, token, out);
    case WEIR__SPEC_WORDS: return words_set(reader, option, token, out);
    default: break;
    }
    if (choice_find(reader, option, token, &value)) {
        field_store(option, out, value);
        return WEIR_OK;
    }
    if (option->type == WEIR__SPEC_INTEGER)
        return integer_set(reader, option, token, out);
    return size_set(reader, option, token, out);
}
