/* fuzz_ticket.c - tickets that somebody has meddled with, octet by octet: each is read
 * for what it says, all of it, or refused. What a ticket is stands here once more, by
 * other means. */
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "support_corpus.h"
#include "ticket.h"

__extension__ typedef unsigned __int128 wide;

/* ---- the model ---- */

static uint64_t number_at(const uint8_t *octets, size_t at, size_t count)
{
    uint64_t number = 0;
    while (count-- > 0)
        number = number * 256 + octets[at + count];
    return number;
}

static bool are_zero(const uint8_t *octets, size_t from, size_t to)
{
    bool all = true;
    for (size_t i = from; i < to; i++)
        all = all && octets[i] == 0;
    return all;
}

static bool is_ticket(const uint8_t *o)
{
    bool detached = o[7] == 1;
    uint64_t base = number_at(o, 24, 8), offset = number_at(o, 32, 8);
    uint64_t bytes = number_at(o, 40, 8), pid = number_at(o, 56, 4);
    if (memcmp(o, "WEIR\1", 5) != 0 || o[5] < 1 || o[5] > 3 ||
        (o[6] != 1 && o[6] != 2) || o[7] > 1 || (detached && o[5] != 2))
        return false;
    if (bytes == 0 || (wide)offset + bytes > base || !are_zero(o, 188, 256))
        return false;
    if (detached)
        return are_zero(o, 48, 80) && are_zero(o, 144, 256);
    const uint8_t *end = memchr(o + 80, 0, 108);
    return pid >= 1 && pid < UINT64_C(1) << 31 && number_at(o, 48, 8) != 0 &&
           are_zero(o, 60, 64) && o[80] == '/' && end != NULL &&
           are_zero(o, (size_t)(end - o), 256);
}

/* ---- the claims ---- */

static void must_say_what_it_says(const weir_ticket *ticket, const weir__ticket *read)
{
    const uint8_t *o = ticket->octets;
    weir_ticket again;
    weir_ticket_info info = { .struct_size = sizeof info };
    weir__ticket_write(read, &again);
    must(memcmp(&again, ticket, sizeof again) == 0);
    must_ok(weir_ticket_get_info(ticket, &info));
    must_equal(info.kind, o[5]);
    must_equal(info.access, o[6]);
    must_equal(info.is_detached, o[7]);
    must(memcmp(info.device_uuid, o + 8, 16) == 0);
    must_equal(info.base_bytes, number_at(o, 24, 8));
    must_equal(info.offset, number_at(o, 32, 8));
    must_equal(info.bytes, number_at(o, 40, 8));
    must_equal((uint64_t)info.exporter, number_at(o, 56, 4));
    must_equal(read->start_time, number_at(o, 48, 8));
    must_equal(strlen(read->socket), o[7] == 1 ? 0 : strlen((const char *)o + 80));
}

static void must_pass_through_json(const weir_ticket *ticket)
{
    char text[WEIR_TICKET_JSON_BYTES];
    size_t length;
    weir_ticket again;
    must_ok(weir_ticket_to_json(ticket, text, sizeof text, &length));
    must_ok(weir_ticket_from_json(text, length, &again));
    must(memcmp(&again, ticket, sizeof again) == 0);
}

static weir_status try_ticket(const uint8_t *input, size_t length)
{
    static const weir__ticket nothing;
    weir_ticket ticket = { { 0 } };
    weir__ticket read;
    memset(&read, 0xff, sizeof read);
    memcpy(ticket.octets, input, length < sizeof ticket ? length : sizeof ticket);
    weir_status status = weir__ticket_read(&ticket, &read);
    must_equal(status, is_ticket(ticket.octets) ? WEIR_OK : WEIR_INVALID_ARGUMENT);
    if (status == WEIR_OK) {
        must_say_what_it_says(&ticket, &read);
        must_pass_through_json(&ticket);
    } else {
        must(memcmp(&read, &nothing, sizeof read) == 0);
    }
    return status;
}

/* ---- the inputs ---- */

static uint64_t any_number(uint64_t *random)
{
    uint64_t power = UINT64_C(1) << support_random_below(random, 64);
    switch (support_random_below(random, 4)) {
    case 0: return support_random(random);
    case 1: return power + support_random_below(random, 3) - 1;
    case 2: return support_random_below(random, 4);
    default: return UINT64_MAX - support_random_below(random, 3);
    }
}

static weir_ticket any_ticket(uint64_t *random)
{
    weir__ticket it = { .kind = (weir_share_kind)support_random_between(random, 1, 3),
                        .access = (weir_access)support_random_between(random, 1, 2) };
    weir_ticket ticket;
    it.is_detached = it.kind == WEIR_SHARE_LEGACY && support_random_below(random, 2);
    it.bytes = any_number(random);
    it.bytes += it.bytes == 0;
    it.offset = support_random_below(random, 3) == 0 ? 0 : any_number(random);
    it.offset = it.offset > UINT64_MAX - it.bytes ? UINT64_MAX - it.bytes : it.offset;
    it.base_bytes = it.offset + it.bytes;
    for (size_t i = 0; i < sizeof it.device_uuid; i++)
        it.device_uuid[i] = it.export_id[i] = (uint8_t)support_random(random);
    it.pid = (int32_t)support_random_between(random, 1, INT32_MAX);
    it.start_time = any_number(random);
    it.start_time += it.start_time == 0;
    size_t length = support_random_between(random, 1, sizeof it.socket - 1);
    memset(it.socket, 'x', length);
    it.socket[0] = '/';
    memset(it.handle, (uint8_t)support_random(random), sizeof it.handle);
    weir__ticket_write(&it, &ticket);
    return ticket;
}

static void damage(weir_ticket *ticket, uint64_t *random)
{
    static const uint8_t numbers[] = { 24, 32, 40, 48, 56, 60 };
    uint8_t *octets = ticket->octets;
    size_t at = support_random_below(random, 256);
    size_t length = support_random_below(random, 256 - at) + 1;
    uint64_t number = any_number(random);
    switch (support_random_below(random, 6)) {
    case 0: octets[at] = (uint8_t)number; return;
    case 1: octets[at] ^= (uint8_t)(1u << (number % 8)); return;
    case 2: octets[support_random_below(random, 8)] = (uint8_t)(number % 4); return;
    case 3:
        at = numbers[support_random_below(random, sizeof numbers)];
        for (size_t i = 0; i < (at < 56 ? 8 : 4); i++)
            octets[at + i] = (uint8_t)(number >> (8 * i));
        return;
    case 4: memset(octets + at, 0, length); return;
    default: memset(octets + at, (int)(number % 256), length % 16); return;
    }
}

static void tickets_are_read_whole_or_refused(void **state)
{
    (void)state;
    uint64_t runs = support_bound("tickets that are damaged", 100000, 2000000);
    uint64_t read = 0;
    corpus_begin("ticket/*.bin", 15, try_ticket);
    for (uint64_t i = 0; i < runs; i++) {
        uint64_t random = support_seed(i);
        weir_ticket ticket = any_ticket(&random);
        for (uint64_t count = support_random_below(&random, 4); count > 0; count--)
            damage(&ticket, &random);
        weir_status status = try_ticket(ticket.octets, sizeof ticket.octets);
        read += status == WEIR_OK;
        corpus_must_have(status, ticket.octets, sizeof ticket.octets);
    }
    must(read > runs / 5 && read < runs - runs / 5);
}

int main(int argc, char **argv)
{
    corpus_read_options(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tickets_are_read_whole_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
