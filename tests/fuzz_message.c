/* fuzz_message.c - messages that somebody has meddled with, and the wrong numbers of
 * descriptors: each is read for what it says, all of it, or refused; the same over a
 * real socket, with real descriptors, of which none is lost. An input is the number of
 * descriptors, and then octets. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support.h"
#include "support_corpus.h"
#include "support_socket.h"
#include "ticket.h"

#define FDS_MAX    8
#define OCTETS_MAX (2 * WEIR__MESSAGE_BYTES)

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

static bool is_request(const uint8_t *o)
{
    weir_ticket ticket;
    weir__ticket said;
    memcpy(&ticket, o + 152, sizeof ticket);
    return (o[6] == WEIR_READ || o[6] == WEIR_WRITE) && are_zero(o, 7, 152) &&
           weir__ticket_read(&ticket, &said) == WEIR_OK && !said.is_detached;
}

static bool is_message(const uint8_t *o, size_t length, size_t fd_count)
{
    if (length != 512 || memcmp(o, "WIPC\1", 5) != 0 || !are_zero(o, 408, 512))
        return false;
    if (o[5] == WEIR__MESSAGE_OPEN || o[5] == WEIR__MESSAGE_AGAIN)
        return is_request(o) && fd_count == 0;
    bool has_memory = (o[7] & 1) != 0, has_event = (o[7] & 2) != 0;
    uint64_t status = number_at(o, 8, 4), kind = number_at(o, 12, 4);
    bool event_has_fd = (o[7] & 4) != 0, memory_has_fd = has_memory && kind != 2;
    if (o[6] != 0 || o[7] > 7 || (event_has_fd && !has_event) || status > 14 ||
        !are_zero(o, 152, 408) || (!has_event && !are_zero(o, 88, 152)) ||
        (has_memory ? kind < 1 || kind > 3 || number_at(o, 16, 8) == 0
                    : !are_zero(o, 12, 88)) ||
        (has_memory && kind == 1 && !are_zero(o, 24, 88)) ||
        fd_count != (size_t)memory_has_fd + event_has_fd)
        return false;
    switch (o[5]) {
    case WEIR__MESSAGE_CLOSE: return status == 0 && !has_memory;
    case WEIR__MESSAGE_ANSWER: return status == 0 || (!has_memory && !has_event);
    default: return o[5] == WEIR__MESSAGE_OVER && are_zero(o, 6, 152);
    }
}

/* ---- the claims ---- */

static void must_be_cleared(const weir__message *it)
{
    weir__message nothing;
    weir__message_clear(&nothing);
    must(memcmp(it, &nothing, sizeof nothing) == 0);
}

/* Claims that it says what the octets do, and has these descriptors, in this order. */
static void must_say_what_it_says(const weir__message *it, const uint8_t *octets)
{
    uint8_t again[WEIR__MESSAGE_BYTES];
    weir__message_write(it, again);
    must(memcmp(again, octets, sizeof again) == 0);
    must_equal(it->kind, octets[5]);
    must_equal(it->access, octets[6]);
    must_equal(it->status, number_at(octets, 8, 4));
    must_equal(it->memory.bytes, number_at(octets, 16, 8));
    must((it->memory.fd >= 0) ==
         (it->has_memory && it->memory.kind != WEIR_SHARE_LEGACY));
    must((it->event.fd >= 0) == it->event_has_fd);
}

static weir_status try_message(const uint8_t *input, size_t length)
{
    static const int fds[FDS_MAX] = { 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007 };
    uint32_t fd_count = length > 0 ? input[0] % (FDS_MAX + 1) : 0;
    const uint8_t *octets = length > 0 ? input + 1 : input;
    size_t count = length > 0 ? length - 1 : 0;
    weir__message read;
    memset(&read, 0xff, sizeof read);
    bool is_right = is_message(octets, count, fd_count);
    weir_status status = weir__message_read(octets, count, fds, fd_count, &read);
    must_equal(status, is_right ? WEIR_OK : WEIR_INVALID_ARGUMENT);
    if (status != WEIR_OK) {
        must_be_cleared(&read);
        return status;
    }
    int taken[WEIR__MESSAGE_FDS];
    must_say_what_it_says(&read, octets);
    must_equal(weir__message_fds(&read, taken), fd_count);
    must(memcmp(taken, fds, fd_count * sizeof *fds) == 0);
    return status;
}

/* ---- the inputs ---- */

typedef struct input {
    uint64_t random;
    size_t length; /* 1 and the octets */
    uint8_t octets[1 + OCTETS_MAX];
} input;

static uint64_t below(input *self, uint64_t n)
{
    return support_random_below(&self->random, n);
}

static void fill(input *self, unsigned char *octets, size_t count)
{
    for (size_t i = 0; i < count; i++)
        octets[i] = (unsigned char)below(self, 256);
}

static weir_ticket any_ticket(input *self)
{
    weir__ticket it = { .kind = WEIR_SHARE_FD, .access = WEIR_READ, .bytes = 1,
                        .base_bytes = 1 + below(self, 1000), .pid = 1,
                        .start_time = 1, .socket = "/x" };
    weir_ticket ticket;
    if (below(self, 8) == 0)
        it = (weir__ticket){ .kind = WEIR_SHARE_LEGACY, .access = WEIR_READ,
                             .is_detached = true, .bytes = 1, .base_bytes = 1 };
    weir__ticket_write(&it, &ticket);
    if (below(self, 8) == 0)
        ticket.octets[below(self, sizeof ticket.octets)] ^= 1;
    return ticket;
}

/* Nearly always one that is right. */
static void put_message(input *self)
{
    weir__message it;
    int fds[WEIR__MESSAGE_FDS];
    weir__message_clear(&it);
    it.kind = (weir__message_kind)(1 + below(self, 5));
    it.access = (weir_access)(1 + below(self, 2));
    it.ticket = any_ticket(self);
    it.status = below(self, 2) == 0 ? WEIR_OK : (weir_status)below(self, 14);
    it.has_memory = below(self, 2) == 0;
    it.memory.kind = (weir_share_kind)(1 + below(self, 3));
    it.memory.bytes = 1 + (size_t)below(self, 1u << 30);
    fill(self, it.memory.octets, sizeof it.memory.octets);
    it.has_event = below(self, 2) == 0;
    it.event_has_fd = it.has_event && below(self, 2) == 0;
    fill(self, it.event.octets, sizeof it.event.octets);
    memset(self->octets, 0, sizeof self->octets);
    weir__message_write(&it, self->octets + 1);
    self->octets[0] = (uint8_t)weir__message_fds(&it, fds);
    self->length = 1 + WEIR__MESSAGE_BYTES;
}

static void damage(input *self)
{
    static const uint8_t fields[] = { 5, 6, 7, 8, 9, 11, 12, 13, 16, 24, 87, 88, 151 };
    uint8_t *octets = self->octets + 1;
    size_t at = below(self, below(self, 2) == 0 ? 24 : WEIR__MESSAGE_BYTES);
    switch (below(self, 7)) {
    case 0: octets[at] = (uint8_t)below(self, 256); return;
    case 1: octets[at] ^= (uint8_t)(1u << below(self, 8)); return;
    case 2: octets[at] = (uint8_t)below(self, 8); return;
    case 3:
        octets[fields[below(self, sizeof fields)]] = (uint8_t)below(self, 16);
        return;
    case 4: memset(octets + at, 0, below(self, WEIR__MESSAGE_BYTES - at)); return;
    case 5: self->octets[0] = (uint8_t)below(self, FDS_MAX + 1); return;
    default:
        if (below(self, 4) == 0)
            self->length = 1 + below(self, OCTETS_MAX + 1);
    }
}

static void make(input *self, uint64_t seed)
{
    self->random = seed;
    put_message(self);
    for (uint64_t count = below(self, 3); count > 0; count--)
        damage(self);
}

static void messages_are_read_whole_or_refused(void **state)
{
    (void)state;
    static input it;
    uint64_t runs = support_bound("messages that are damaged", 100000, 2000000);
    uint64_t read = 0;
    corpus_begin("message/*.bin", 15, try_message);
    for (uint64_t i = 0; i < runs; i++) {
        make(&it, support_seed(i));
        uint8_t *copy = malloc(it.length); /* which ends where it does */
        must(copy != NULL);
        memcpy(copy, it.octets, it.length);
        weir_status status = try_message(copy, it.length);
        free(copy);
        read += status == WEIR_OK;
        corpus_must_have(status, it.octets, it.length);
    }
    must(read > runs / 5 && read < runs - runs / 5);
}

/* ---- over a socket ---- */

static int ends[2], files[FDS_MAX], next_fd;

/* The lowest that is free. */
static int free_fd(void)
{
    int fd = any_fd(), number = fd;
    end_fd(&fd);
    return number;
}

static void open_socket(void)
{
    const int yes = 1;
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    must(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) == 0);
    for (size_t i = 0; i < FDS_MAX; i++)
        files[i] = any_fd();
    next_fd = free_fd();
}

static void close_socket(void)
{
    end_fd(&ends[0]);
    end_fd(&ends[1]);
    for (size_t i = 0; i < FDS_MAX; i++)
        end_fd(&files[i]);
}

static void end_received(int fd)
{
    must(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    end_fd(&fd);
}

static weir_status try_over_socket(const uint8_t *octets, size_t length)
{
    weir__message came;
    weir__peer_process self = { getpid(), -1 };
    uint32_t fd_count = length > 0 ? octets[0] % (FDS_MAX + 1) : 0;
    size_t count = length > 0 ? length - 1 : 0;
    must(send_octets(ends[0], octets + (length > 0), count, files, fd_count));
    weir_status status = weir__socket_receive(ends[1], &self, 0, &came);
    bool is_right = count > 0 && is_message(octets + 1, count, fd_count);
    must_equal(status, is_right ? WEIR_OK : WEIR_INVALID_ARGUMENT);
    if (status != WEIR_OK)
        must_be_cleared(&came);
    if (came.memory.fd >= 0)
        end_received(came.memory.fd);
    if (came.event.fd >= 0)
        end_received(came.event.fd);
    must_equal(free_fd(), next_fd);
    return status;
}

static void no_descriptor_is_lost(void **state)
{
    (void)state;
    static input it;
    uint64_t runs = support_bound("messages over a socket", 20000, 200000);
    uint64_t read = 0;
    size_t fds = count_fds();
    open_socket();
    corpus_begin("message/*.bin", 15, try_over_socket);
    for (uint64_t i = 0; i < runs; i++) {
        make(&it, support_seed(i));
        read += try_over_socket(it.octets, it.length) == WEIR_OK;
    }
    must(read > runs / 5 && read < runs - runs / 5);
    close_socket();
    must_equal(count_fds(), fds);
}

int main(int argc, char **argv)
{
    corpus_read_options(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_read_whole_or_refused),
        cmocka_unit_test(no_descriptor_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
