/* ticket_json.c - tickets as lists in JSON: nothing but 256 whole numbers, as JSON
 * spells them, and its own white space between them. */
#include <string.h>

#include "internal.h"
#include "ticket.h"

/* Brackets, commas, three digits for each octet, and the null. */
_Static_assert(WEIR_TICKET_JSON_BYTES ==
                   2 + (WEIR_TICKET_BYTES - 1) + 3 * WEIR_TICKET_BYTES + 1,
               "every list has room");

/* ---- writing ---- */

static char *write_number(char *at, uint8_t number)
{
    if (number >= 100)
        *at++ = (char)('0' + number / 100);
    if (number >= 10)
        *at++ = (char)('0' + number / 10 % 10);
    *at++ = (char)('0' + number % 10);
    return at;
}

/* Returns its length, without the null. */
static size_t write_list(const weir_ticket *ticket, char *text)
{
    char *at = text;
    for (size_t i = 0; i < WEIR_TICKET_BYTES; i++) {
        *at++ = i == 0 ? '[' : ',';
        at = write_number(at, ticket->octets[i]);
    }
    *at++ = ']';
    *at = '\0';
    return (size_t)(at - text);
}

weir_status weir_ticket_to_json(const weir_ticket *ticket, char *text, size_t room,
                                size_t *length)
{
    if (length == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "nowhere to write the text's length");
    *length = 0;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (ticket == NULL || (text == NULL && room > 0))
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is null",
                          ticket == NULL ? "the ticket" : "the room for its text");
    weir__ticket said;
    status = weir__ticket_read(ticket, &said);
    if (status != WEIR_OK)
        return status;

    char list[WEIR_TICKET_JSON_BYTES];
    *length = write_list(ticket, list);
    if (room <= *length)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "a ticket's text needs %zu octets, and has room for %zu",
                          *length + 1, room);
    memcpy(text, list, *length + 1);
    return WEIR_OK;
}

/* ---- reading ---- */

typedef struct reader {
    const char *at, *end;
    size_t octet; /* the one that comes next */
} reader;

static weir_status refuse(const reader *self, const char *words)
{
    return weir__fail(WEIR_INVALID_ARGUMENT, "no ticket in JSON: octet %zu: %s",
                      self->octet, words);
}

static void skip_space(reader *self)
{
    while (self->at < self->end && (*self->at == ' ' || *self->at == '\t' ||
                                    *self->at == '\n' || *self->at == '\r'))
        self->at++;
}

/* Whether `mark` comes next, but for white space; then it is passed. */
static bool take(reader *self, char mark)
{
    skip_space(self);
    if (self->at == self->end || *self->at != mark)
        return false;
    self->at++;
    return true;
}

static bool is_at_digit(const reader *self)
{
    return self->at < self->end && *self->at >= '0' && *self->at <= '9';
}

static weir_status take_number(reader *self, uint8_t *out)
{
    skip_space(self);
    if (!is_at_digit(self))
        return refuse(self, "not a whole number");
    bool begins_with_zero = *self->at == '0';
    unsigned number = 0, digits = 0;
    for (; is_at_digit(self); digits++) {
        number = number * 10 + (unsigned)(*self->at++ - '0');
        if (number > UINT8_MAX)
            return refuse(self, "a number above 255");
    }
    if (begins_with_zero && digits > 1)
        return refuse(self, "a zero in front of a number");
    *out = (uint8_t)number;
    return WEIR_OK;
}

static weir_status take_list(reader *self, weir_ticket *out)
{
    if (!take(self, '['))
        return refuse(self, "the list does not begin");
    for (; self->octet < WEIR_TICKET_BYTES; self->octet++) {
        if (self->octet > 0 && !take(self, ','))
            return refuse(self, "no comma in front of it");
        weir_status status = take_number(self, &out->octets[self->octet]);
        if (status != WEIR_OK)
            return status;
    }
    if (!take(self, ']'))
        return refuse(self, "the list does not end before it");
    skip_space(self);
    return self->at == self->end ? WEIR_OK : refuse(self, "more behind the list");
}

weir_status weir_ticket_from_json(const char *text, size_t length, weir_ticket *out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "nowhere to write the ticket");
    memset(out, 0, sizeof *out);
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (text == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "no ticket in JSON: the text is null");

    weir_ticket read;
    weir__ticket said;
    reader self = { .at = text, .end = text + length };
    status = take_list(&self, &read);
    if (status == WEIR_OK)
        status = weir__ticket_read(&read, &said);
    if (status == WEIR_OK)
        *out = read;
    return status;
}
