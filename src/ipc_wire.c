/* ipc_wire.c - see ipc_wire.h.
 *
 *       0  "WIPC", version, kind, access, what it has (1 memory, 2 an event, 4 whose
 *          file descriptor goes with it)
 *       8  status (4), the memory's kind (4), its bytes (8), its octets (64)
 *      88  the event's octets (64)
 *     152  ticket (256)
 *     408  nothing
 */
#include "ipc_wire.h"

#include <string.h>

#include "internal.h"
#include "octets.h"
#include "ticket.h"

#define VERSION 1

#define HAS_MEMORY   1u
#define HAS_EVENT    2u
#define HAS_EVENT_FD 4u
#define HAS_ALL      7u

enum {
    AT_MAGIC = 0, AT_VERSION = 4, AT_KIND = 5, AT_ACCESS = 6, AT_HAS = 7,
    AT_STATUS = 8, AT_MEMORY_KIND = 12, AT_MEMORY_BYTES = 16, AT_MEMORY = 24,
    AT_EVENT = AT_MEMORY + WEIR__SHARED_OCTETS,
    AT_TICKET = AT_EVENT + WEIR__SHARED_OCTETS,
    AT_END = AT_TICKET + WEIR_TICKET_BYTES
};

_Static_assert(AT_END <= WEIR__MESSAGE_BYTES, "all of a message has room");

static const uint8_t magic[4] = { 'W', 'I', 'P', 'C' };

void weir__message_clear(weir__message *out)
{
    memset(out, 0, sizeof *out);
    out->memory.fd = -1;
    out->event.fd = -1;
}

/* What a kind of message has, besides its kind. */
static bool asks(weir__message_kind kind)
{
    return kind == WEIR__MESSAGE_OPEN || kind == WEIR__MESSAGE_AGAIN;
}

static bool may_have_memory(const weir__message *it)
{
    return it->kind == WEIR__MESSAGE_ANSWER && it->status == WEIR_OK;
}

static bool may_have_event(const weir__message *it)
{
    return it->kind == WEIR__MESSAGE_CLOSE || may_have_memory(it);
}

/* What opens memory of a kind. */
static bool has_fd(weir_share_kind kind)
{
    return kind == WEIR_SHARE_FD || kind == WEIR_SHARE_POOL;
}

static bool has_octets(weir_share_kind kind)
{
    return kind == WEIR_SHARE_LEGACY || kind == WEIR_SHARE_POOL;
}

/* ---- writing ---- */

static uint32_t has_of(const weir__message *it)
{
    uint32_t has = 0;
    if (it->has_memory && may_have_memory(it))
        has |= HAS_MEMORY;
    if (it->has_event && may_have_event(it))
        has |= it->event_has_fd ? HAS_EVENT | HAS_EVENT_FD : HAS_EVENT;
    return has;
}

uint32_t weir__message_fds(const weir__message *message, int fds[WEIR__MESSAGE_FDS])
{
    uint32_t has = has_of(message), count = 0;
    if ((has & HAS_MEMORY) != 0 && has_fd(message->memory.kind))
        fds[count++] = message->memory.fd;
    if ((has & HAS_EVENT_FD) != 0)
        fds[count++] = message->event.fd;
    return count;
}

static void write_memory(const weir__shared *memory, uint8_t *out)
{
    weir__octets_put(out + AT_MEMORY_KIND, (uint64_t)memory->kind, 4);
    weir__octets_put(out + AT_MEMORY_BYTES, memory->bytes, 8);
    if (has_octets(memory->kind))
        memcpy(out + AT_MEMORY, memory->octets, sizeof memory->octets);
}

void weir__message_write(const weir__message *message,
                         uint8_t out[WEIR__MESSAGE_BYTES])
{
    uint32_t has = has_of(message);
    memset(out, 0, WEIR__MESSAGE_BYTES);
    memcpy(out + AT_MAGIC, magic, sizeof magic);
    out[AT_VERSION] = VERSION;
    out[AT_KIND] = (uint8_t)message->kind;
    out[AT_HAS] = (uint8_t)has;
    if (message->kind == WEIR__MESSAGE_ANSWER)
        weir__octets_put(out + AT_STATUS, (uint64_t)message->status, 4);
    if (asks(message->kind)) {
        out[AT_ACCESS] = (uint8_t)message->access;
        memcpy(out + AT_TICKET, message->ticket.octets, WEIR_TICKET_BYTES);
    }
    if ((has & HAS_MEMORY) != 0)
        write_memory(&message->memory, out);
    if ((has & HAS_EVENT) != 0)
        memcpy(out + AT_EVENT, message->event.octets, WEIR__SHARED_OCTETS);
}

/* ---- reading ---- */

static weir_status refuse(size_t octet, const char *words)
{
    return weir__fail(WEIR_INVALID_ARGUMENT, "no message of ours: octet %zu: %s", octet,
                      words);
}

static weir_status check_zero(const uint8_t *octets, size_t begin, size_t end)
{
    size_t at = weir__octets_not_zero(octets, begin, end);
    return at == end ? WEIR_OK : refuse(at, "not used, and not zero");
}

static bool is_status(uint64_t number)
{
    switch (number) {
#define X(name, its_number, words) case its_number:
        WEIR_STATUS_MAP(X)
#undef X
        return true;
    default:
        return false;
    }
}

static weir_status read_beginning(const uint8_t *octets, weir__message *out)
{
    for (size_t i = 0; i < sizeof magic; i++)
        if (octets[AT_MAGIC + i] != magic[i])
            return refuse(AT_MAGIC + i, "messages begin with other ones");
    if (octets[AT_VERSION] != VERSION)
        return refuse(AT_VERSION, "a version that this library does not read");
    if (octets[AT_KIND] < WEIR__MESSAGE_OPEN || octets[AT_KIND] > WEIR__MESSAGE_OVER)
        return refuse(AT_KIND, "no kind of message");
    out->kind = (weir__message_kind)octets[AT_KIND];

    uint64_t status = weir__octets_get(octets + AT_STATUS, 4);
    if (!is_status(status) || (status != 0 && out->kind != WEIR__MESSAGE_ANSWER))
        return refuse(AT_STATUS, "no status, or one that answers nothing");
    out->status = (weir_status)status;
    return check_zero(octets, AT_END, WEIR__MESSAGE_BYTES);
}

/* Of OPEN and AGAIN. */
static weir_status read_request(const uint8_t *octets, weir__message *out)
{
    if (!asks(out->kind)) {
        if (octets[AT_ACCESS] != 0)
            return refuse(AT_ACCESS, "not used, and not zero");
        return check_zero(octets, AT_TICKET, AT_END);
    }
    if (octets[AT_ACCESS] != WEIR_READ && octets[AT_ACCESS] != WEIR_WRITE)
        return refuse(AT_ACCESS, "neither reading nor writing");
    out->access = (weir_access)octets[AT_ACCESS];
    memcpy(out->ticket.octets, octets + AT_TICKET, WEIR_TICKET_BYTES);
    weir__ticket said;
    weir_status status = weir__ticket_read(&out->ticket, &said);
    if (status != WEIR_OK)
        return status;
    return said.is_detached ? refuse(AT_TICKET, "nobody answers for a detached ticket")
                            : WEIR_OK;
}

static weir_status read_memory(const uint8_t *octets, weir__message *out)
{
    if (!out->has_memory)
        return check_zero(octets, AT_MEMORY_KIND, AT_EVENT);
    if (!may_have_memory(out))
        return refuse(AT_HAS, "memory that nobody has asked for");
    uint64_t kind = weir__octets_get(octets + AT_MEMORY_KIND, 4);
    uint64_t bytes = weir__octets_get(octets + AT_MEMORY_BYTES, 8);
    if (kind < WEIR_SHARE_FD || kind > WEIR_SHARE_POOL)
        return refuse(AT_MEMORY_KIND, "no kind of memory that can be shared");
    if (bytes == 0 || bytes > SIZE_MAX)
        return refuse(AT_MEMORY_BYTES, "no object has so many bytes");
    out->memory.kind = (weir_share_kind)kind;
    out->memory.bytes = (size_t)bytes;
    memcpy(out->memory.octets, octets + AT_MEMORY, sizeof out->memory.octets);
    return has_octets(out->memory.kind) ? WEIR_OK
                                        : check_zero(octets, AT_MEMORY, AT_EVENT);
}

static weir_status read_event(const uint8_t *octets, weir__message *out)
{
    if (!out->has_event)
        return check_zero(octets, AT_EVENT, AT_TICKET);
    if (!may_have_event(out))
        return refuse(AT_HAS, "an event where there is none");
    memcpy(out->event.octets, octets + AT_EVENT, sizeof out->event.octets);
    return WEIR_OK;
}

/* All but the descriptors. */
static weir_status read_octets(const uint8_t *octets, weir__message *out)
{
    weir_status status = read_beginning(octets, out);
    if (status != WEIR_OK)
        return status;
    uint32_t has = octets[AT_HAS];
    if (has > HAS_ALL || (has & (HAS_EVENT | HAS_EVENT_FD)) == HAS_EVENT_FD)
        return refuse(AT_HAS, "has what no message has");
    out->has_memory = (has & HAS_MEMORY) != 0;
    out->has_event = (has & HAS_EVENT) != 0;
    out->event_has_fd = (has & HAS_EVENT_FD) != 0;
    status = read_request(octets, out);
    if (status == WEIR_OK)
        status = read_memory(octets, out);
    return status != WEIR_OK ? status : read_event(octets, out);
}

/* Puts the descriptors where they belong. */
static weir_status take_fds(const int *fds, uint32_t fd_count, weir__message *out)
{
    bool memory_has_fd = out->has_memory && has_fd(out->memory.kind);
    uint32_t wanted = (uint32_t)memory_has_fd + (uint32_t)out->event_has_fd;
    if (fd_count != wanted)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "a message that comes with %u file descriptors came with %u",
                          wanted, fd_count);
    if (memory_has_fd)
        out->memory.fd = *fds++;
    if (out->event_has_fd)
        out->event.fd = *fds;
    return WEIR_OK;
}

weir_status weir__message_read(const uint8_t *octets, size_t length, const int *fds,
                               uint32_t fd_count, weir__message *out)
{
    weir__message_clear(out);
    if (length != WEIR__MESSAGE_BYTES)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "a message of %zu octets; ours have %d", length,
                          WEIR__MESSAGE_BYTES);
    weir_status status = read_octets(octets, out);
    if (status == WEIR_OK)
        status = take_fds(fds, fd_count, out);
    if (status != WEIR_OK)
        weir__message_clear(out);
    return status;
}
