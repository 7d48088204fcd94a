/* test_ticket.c - tickets: what is written is read again, in octets and in JSON, and
 * what is not exactly a ticket is refused. */
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ticket.h"

static weir__ticket attached_ticket(void)
{
    weir__ticket it = {
        .kind = WEIR_SHARE_FD, .access = WEIR_WRITE, .base_bytes = 2u << 20,
        .offset = 4096, .bytes = 1000, .pid = 4711, .start_time = 123456789,
        .socket = "/run/user/1000/weir/4711-123456789"
    };
    memset(it.device_uuid, 0xab, sizeof it.device_uuid);
    memset(it.export_id, 0xcd, sizeof it.export_id);
    return it;
}

static weir__ticket detached_ticket(void)
{
    weir__ticket it = {
        .kind = WEIR_SHARE_LEGACY, .is_detached = true, .access = WEIR_READ,
        .base_bytes = 2u << 20, .bytes = 2u << 20
    };
    memset(it.handle, 0xef, sizeof it.handle);
    return it;
}

static weir_ticket written(const weir__ticket *from)
{
    weir_ticket ticket;
    weir__ticket_write(from, &ticket);
    return ticket;
}

static void must_be_same(const weir__ticket *a, const weir__ticket *b)
{
    must(a->kind == b->kind && a->is_detached == b->is_detached);
    must(a->access == b->access);
    must(memcmp(a->device_uuid, b->device_uuid, sizeof a->device_uuid) == 0);
    must_equal(a->base_bytes, b->base_bytes);
    must_equal(a->offset, b->offset);
    must_equal(a->bytes, b->bytes);
    must_equal(a->pid, b->pid);
    must_equal(a->start_time, b->start_time);
    must(memcmp(a->export_id, b->export_id, sizeof a->export_id) == 0);
    must(memcmp(a->socket, b->socket, sizeof a->socket) == 0);
    must(memcmp(a->handle, b->handle, sizeof a->handle) == 0);
}

/* Claims that it is refused, for its octet number `octet`, and that nothing is read. */
static void must_refuse_at(const weir_ticket *ticket, size_t octet)
{
    static const weir__ticket nothing;
    char words[64];
    weir__ticket read = attached_ticket();
    must_answer(WEIR_INVALID_ARGUMENT, weir__ticket_read(ticket, &read));
    snprintf(words, sizeof words, "octet %zu: ", octet);
    must(strstr(weir_last_error().message, words) != NULL);
    must_be_same(&read, &nothing);

    weir_ticket_info info = { .struct_size = sizeof info, .bytes = 1 };
    must_answer(WEIR_INVALID_ARGUMENT, weir_ticket_get_info(ticket, &info));
    must_equal(info.bytes, 0);
    size_t length = 1;
    char text[WEIR_TICKET_JSON_BYTES];
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_ticket_to_json(ticket, text, sizeof text, &length));
    must_equal(length, 0);
}

/* ---- octets ---- */

static void what_is_written_is_read(void **state)
{
    (void)state;
    weir__ticket kinds[] = { attached_ticket(), attached_ticket(), detached_ticket() };
    kinds[1].kind = WEIR_SHARE_LEGACY;
    memset(kinds[1].socket + 1, 'x', sizeof kinds[1].socket - 2);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        weir_ticket ticket = written(&kinds[i]), again;
        weir__ticket read;
        must_ok(weir__ticket_read(&ticket, &read));
        must_be_same(&read, &kinds[i]);
        again = written(&read);
        must(memcmp(&ticket, &again, sizeof ticket) == 0);
    }
}

/* Programs of other versions and machines read these. */
static void octets_stand_where_they_stood(void **state)
{
    (void)state;
    weir__ticket it = attached_ticket();
    weir_ticket ticket = written(&it);
    static const uint8_t beginning[] = { 'W', 'E', 'I', 'R', 1, 1, 2, 0, 0xab };
    static const uint8_t bytes[] = { 0, 0, 32, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0,
                                     0xe8, 3, 0, 0, 0, 0, 0, 0, 0x15, 0xcd, 0x5b, 7, 0,
                                     0, 0, 0, 0x67, 0x12, 0, 0, 0, 0, 0, 0, 0xcd };
    must(memcmp(ticket.octets, beginning, sizeof beginning) == 0);
    must(memcmp(ticket.octets + 24, bytes, sizeof bytes) == 0);
    must(memcmp(ticket.octets + 80, it.socket, sizeof it.socket) == 0);
    must_equal(ticket.octets[188], 0);
    it = detached_ticket();
    ticket = written(&it);
    must(memcmp(ticket.octets + 80, it.handle, sizeof it.handle) == 0);
}

/* Puts `count` octets of `number` at `at` into a ticket that was right, and claims that
 * it is refused there, or somewhere else that is named. */
static void must_refuse_number(const weir_ticket *right, size_t at, size_t count,
                               uint64_t number, size_t refused_at)
{
    weir_ticket ticket = *right;
    for (size_t i = 0; i < count; i++)
        ticket.octets[at + i] = (uint8_t)(number >> (8 * i));
    must_refuse_at(&ticket, refused_at);
}

static void every_field_has_bounds(void **state)
{
    (void)state;
    weir__ticket it = attached_ticket();
    weir_ticket right = written(&it);
    for (size_t i = 0; i < 4; i++)
        must_refuse_number(&right, i, 1, 'w', i);
    must_refuse_number(&right, 4, 1, 0, 4);
    must_refuse_number(&right, 4, 1, 2, 4);
    must_refuse_number(&right, 5, 1, WEIR_SHARE_NONE, 5);
    must_refuse_number(&right, 5, 1, WEIR_SHARE_POOL + 1, 5);
    must_refuse_number(&right, 6, 1, 0, 6);
    must_refuse_number(&right, 6, 1, 3, 6);
    must_refuse_number(&right, 7, 1, 2, 7);
    must_refuse_number(&right, 7, 1, 1, 7); /* detached, of kind FD */
    must_refuse_number(&right, 24, 8, 0, 24);
    must_refuse_number(&right, 24, 8, 4096 + 999, 32);
    must_refuse_number(&right, 24, 8, 999, 40);
    must_refuse_number(&right, 32, 8, (2u << 20) - 999, 32);
    must_refuse_number(&right, 32, 8, UINT64_MAX, 32);
    must_refuse_number(&right, 40, 8, 0, 40);
    must_refuse_number(&right, 40, 8, (2u << 20) - 4095, 32);
    must_refuse_number(&right, 40, 8, UINT64_MAX, 40);
    must_refuse_number(&right, 48, 8, 0, 48);
    must_refuse_number(&right, 56, 4, 0, 56);
    must_refuse_number(&right, 56, 4, UINT64_C(1) << 31, 56);
    must_refuse_number(&right, 56, 4, UINT32_MAX, 56);
    must_refuse_number(&right, 60, 4, 1, 60);
    must_refuse_number(&right, 80, 1, 'r', 80);
    must_refuse_number(&right, 80, 1, 0, 80);
    must_refuse_number(&right, 188, 1, 1, 188);
    must_refuse_number(&right, 255, 1, 1, 255);

    /* The last that are right. */
    it.offset = it.base_bytes - it.bytes;
    it.pid = INT32_MAX;
    (void)written(&it);
    it.base_bytes = it.bytes = UINT64_MAX;
    it.offset = 0;
    it.start_time = UINT64_MAX;
    (void)written(&it);
}

static void a_path_ends_and_nothing_follows(void **state)
{
    (void)state;
    weir__ticket it = attached_ticket();
    weir_ticket right = written(&it);
    size_t end = 80 + strlen(it.socket);
    must_refuse_number(&right, end + 1, 1, 'x', end + 1);
    must_refuse_number(&right, 187, 1, 'x', 187);
    weir_ticket ticket = right;
    memset(ticket.octets + 81, 'x', 107);
    must_refuse_at(&ticket, 187);
}

static void detached_ones_name_no_process(void **state)
{
    (void)state;
    weir__ticket it = detached_ticket();
    weir_ticket right = written(&it);
    must_refuse_number(&right, 48, 8, 1, 48);
    must_refuse_number(&right, 56, 4, 1, 56);
    must_refuse_number(&right, 64, 1, 1, 64);
    must_refuse_number(&right, 79, 1, 1, 79);
    must_refuse_number(&right, 144, 1, 1, 144);
    must_refuse_number(&right, 187, 1, 1, 187);
    must_refuse_number(&right, 5, 1, WEIR_SHARE_FD, 7);
}

/* Whatever single octet is changed, there is another ticket, written as this one, or
 * none. */
static void every_changed_octet_is_seen(void **state)
{
    (void)state;
    weir__ticket kinds[] = { attached_ticket(), detached_ticket() };
    size_t refused = 0, read = 0;
    for (size_t kind = 0; kind < 2; kind++) {
        for (size_t i = 0; i < WEIR_TICKET_BYTES * 255; i++) {
            weir_ticket ticket = written(&kinds[kind]), again;
            weir__ticket changed;
            ticket.octets[i / 255] ^= (uint8_t)(i % 255 + 1);
            weir_status status = weir__ticket_read(&ticket, &changed);
            must(status == WEIR_OK || status == WEIR_INVALID_ARGUMENT);
            refused += status != WEIR_OK;
            read += status == WEIR_OK;
            if (status != WEIR_OK)
                continue;
            again = written(&changed);
            must(memcmp(&ticket, &again, sizeof ticket) == 0);
        }
    }
    must(refused > 50000 && read > 10000);
}

static void info_tells_what_it_says(void **state)
{
    (void)state;
    weir__ticket it = attached_ticket();
    weir_ticket ticket = written(&it);
    weir_ticket_info info = { .struct_size = sizeof info };
    must_ok(weir_ticket_get_info(&ticket, &info));
    must(info.kind == WEIR_SHARE_FD && !info.is_detached && info.access == WEIR_WRITE);
    must(memcmp(info.device_uuid, it.device_uuid, sizeof info.device_uuid) == 0);
    must(info.base_bytes == 2u << 20 && info.offset == 4096 && info.bytes == 1000);
    must_equal(info.exporter, 4711);
    must_equal(info.struct_size, sizeof info);
    it = detached_ticket();
    ticket = written(&it);
    must_ok(weir_ticket_get_info(&ticket, &info));
    must(info.is_detached && info.exporter == 0 && info.kind == WEIR_SHARE_LEGACY);

    must_answer(WEIR_INVALID_ARGUMENT, weir_ticket_get_info(NULL, &info));
    must_answer(WEIR_INVALID_ARGUMENT, weir_ticket_get_info(&ticket, NULL));
    info.struct_size = 4;
    must_answer(WEIR_INVALID_ARGUMENT, weir_ticket_get_info(&ticket, &info));
}

/* ---- JSON ---- */

static void must_read_back(const char *text, const weir_ticket *wanted)
{
    weir_ticket ticket;
    must_ok(weir_ticket_from_json(text, strlen(text), &ticket));
    must(memcmp(&ticket, wanted, sizeof ticket) == 0);
}

static void a_list_in_json_keeps_it(void **state)
{
    (void)state;
    weir__ticket kinds[] = { attached_ticket(), detached_ticket() };
    for (size_t i = 0; i < 2; i++) {
        char text[WEIR_TICKET_JSON_BYTES];
        size_t length;
        weir_ticket ticket = written(&kinds[i]);
        must_ok(weir_ticket_to_json(&ticket, text, sizeof text, &length));
        must_equal(length, strlen(text));
        must(strncmp(text, "[87,69,73,82,1,", 15) == 0 && text[length - 1] == ']');
        must_read_back(text, &ticket);
    }
}

/* As it is, and with white space wherever that may stand. */
static void white_space_may_stand_between(void **state)
{
    (void)state;
    weir__ticket it = attached_ticket();
    weir_ticket ticket = written(&it);
    char text[WEIR_TICKET_JSON_BYTES], spaced[4 * WEIR_TICKET_JSON_BYTES];
    size_t length, end = 0;
    must_ok(weir_ticket_to_json(&ticket, text, sizeof text, &length));
    spaced[end++] = '\n';
    for (size_t i = 0; i < length; i++) {
        bool is_mark = strchr("[],", text[i]) != NULL;
        if (is_mark)
            spaced[end++] = "\t\r "[i % 3];
        spaced[end++] = text[i];
        if (is_mark)
            spaced[end++] = ' ';
    }
    spaced[end] = '\0';
    must_read_back(spaced, &ticket);
}

static void text_needs_its_room(void **state)
{
    (void)state;
    weir__ticket it = attached_ticket();
    weir_ticket ticket = written(&it);
    char text[WEIR_TICKET_JSON_BYTES];
    size_t length = 0, again = 0;
    must_answer(WEIR_INVALID_ARGUMENT, weir_ticket_to_json(&ticket, NULL, 0, &length));
    must(length > 512 && length < WEIR_TICKET_JSON_BYTES);
    memset(text, '?', sizeof text);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_ticket_to_json(&ticket, text, length, &again));
    must_equal(again, length);
    for (size_t i = 0; i < sizeof text; i++)
        must(text[i] == '?');
    must_ok(weir_ticket_to_json(&ticket, text, length + 1, &again));
    must(again == length && text[length] == '\0' && text[length + 1] == '?');

    must_answer(WEIR_INVALID_ARGUMENT,
                weir_ticket_to_json(&ticket, NULL, 1, &length));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_ticket_to_json(NULL, text, sizeof text, &length));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_ticket_to_json(&ticket, text, sizeof text, NULL));
}

/* The list of a right ticket, with one number spelt as `number`. */
static void make_list(char *text, size_t room, size_t octet, const char *number)
{
    weir__ticket it = attached_ticket();
    weir_ticket ticket = written(&it);
    size_t end = 0;
    for (size_t i = 0; i < WEIR_TICKET_BYTES; i++) {
        char own[8];
        snprintf(own, sizeof own, "%u", ticket.octets[i]);
        end += (size_t)snprintf(text + end, room - end, "%s%s", i == 0 ? "[" : ",",
                                i == octet ? number : own);
    }
    snprintf(text + end, room - end, "]");
}

static void must_refuse_text(const char *text, size_t length, const char *where)
{
    static const weir_ticket nothing;
    weir_ticket ticket;
    memset(&ticket, 1, sizeof ticket);
    /* Exactly so long: what is read behind its end is seen by a sanitizer. */
    char *copy = malloc(length + (length == 0));
    must(copy != NULL);
    memcpy(copy, text, length);
    must_answer(WEIR_INVALID_ARGUMENT, weir_ticket_from_json(copy, length, &ticket));
    free(copy);
    must(strstr(weir_last_error().message, where) != NULL);
    must(memcmp(&ticket, &nothing, sizeof ticket) == 0);
}

static void only_whole_numbers_are_octets(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "256", "999", "1000", "99999999999999999999999", "00", "01", "007", "+1", "-1",
        "-0", "1.0", "1e0", "1E1", "0x1", "", " ", "\"1\"", "null", "true", "[1]",
        "1 1", "\f1", "1\v", "\xc2\xa0", "1/*1*/", "1,", ",1", ".5"
    };
    char text[2 * WEIR_TICKET_JSON_BYTES];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        make_list(text, sizeof text, 70, wrong[i]);
        must_refuse_text(text, strlen(text), "octet 7");
    }
    make_list(text, sizeof text, 70, "205");
    weir_ticket ticket;
    must_ok(weir_ticket_from_json(text, strlen(text), &ticket));
    make_list(text, sizeof text, 5, "7"); /* a right list of a wrong ticket */
    must_refuse_text(text, strlen(text), "octet 5: ");
}

static void lists_are_whole(void **state)
{
    (void)state;
    char text[2 * WEIR_TICKET_JSON_BYTES];
    make_list(text, sizeof text, 0, "87");
    size_t length = strlen(text);
    for (size_t end = 0; end < length; end++)
        must_refuse_text(text, end, "octet");
    must_refuse_text("", 0, "octet 0: ");
    must_refuse_text(text + 1, length - 1, "octet 0: ");
    must_refuse_text(text, length + 1, "octet 256: "); /* with its null */
    memcpy(text + length, "]", 2);
    must_refuse_text(text, length + 1, "octet 256: ");
    memcpy(text + length - 1, ",0]", 4);
    must_refuse_text(text, length + 2, "octet 256: ");
    memcpy(text + length - 1, ",]", 3);
    must_refuse_text(text, length + 1, "octet 256: ");
    must_refuse_text("{\"a\":1}", 7, "octet 0: ");

    weir_ticket ticket;
    must_answer(WEIR_INVALID_ARGUMENT, weir_ticket_from_json(NULL, 0, &ticket));
    must_answer(WEIR_INVALID_ARGUMENT, weir_ticket_from_json(text, 1, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(octets_stand_where_they_stood),
        cmocka_unit_test(every_field_has_bounds),
        cmocka_unit_test(a_path_ends_and_nothing_follows),
        cmocka_unit_test(detached_ones_name_no_process),
        cmocka_unit_test(every_changed_octet_is_seen),
        cmocka_unit_test(info_tells_what_it_says),
        cmocka_unit_test(a_list_in_json_keeps_it),
        cmocka_unit_test(white_space_may_stand_between),
        cmocka_unit_test(text_needs_its_room),
        cmocka_unit_test(only_whole_numbers_are_octets),
        cmocka_unit_test(lists_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
