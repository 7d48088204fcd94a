/* ticket.c - see ticket.h.
 *
 *       0  "WEIR", version, kind, access, whether it is detached
 *       8  device's uuid
 *      24  base bytes, offset, bytes: 8 octets each
 *      48  start time (8), process (4), nothing (4)
 *      64  export's id
 *      80  the socket's path, up to 188; or, if it is detached, the handle, up to 144
 *     188  nothing
 */
#include "ticket.h"

#include <string.h>

#include "internal.h"
#include "octets.h"

#define VERSION 1

enum {
    AT_MAGIC = 0, AT_VERSION = 4, AT_KIND = 5, AT_ACCESS = 6, AT_DETACHED = 7,
    AT_UUID = 8, AT_BASE = 24, AT_OFFSET = 32, AT_BYTES = 40, AT_START_TIME = 48,
    AT_PID = 56, AT_NOTHING = 60, AT_ID = 64, AT_SOCKET = 80, AT_HANDLE = 80,
    AFTER_HANDLE = AT_HANDLE + WEIR__SHARED_OCTETS,
    AFTER_SOCKET = AT_SOCKET + WEIR__SOCKET_PATH_BYTES
};

_Static_assert(sizeof(weir_ticket) == WEIR_TICKET_BYTES, "a ticket is its octets");
_Static_assert(AFTER_SOCKET <= WEIR_TICKET_BYTES, "a socket's path has room");

static const uint8_t magic[4] = { 'W', 'E', 'I', 'R' };

static weir_status refuse(size_t octet, const char *words)
{
    return weir__fail(WEIR_INVALID_ARGUMENT, "no ticket: octet %zu: %s", octet, words);
}

static weir_status check_zero(const uint8_t *octets, size_t begin, size_t end)
{
    size_t at = weir__octets_not_zero(octets, begin, end);
    return at == end ? WEIR_OK : refuse(at, "not used, and not zero");
}

static weir_status check_beginning(const uint8_t *octets)
{
    for (size_t i = 0; i < sizeof magic; i++)
        if (octets[AT_MAGIC + i] != magic[i])
            return refuse(AT_MAGIC + i, "tickets begin with other ones");
    if (octets[AT_VERSION] != VERSION)
        return refuse(AT_VERSION, "a version that this library does not read");
    if (octets[AT_KIND] < WEIR_SHARE_FD || octets[AT_KIND] > WEIR_SHARE_POOL)
        return refuse(AT_KIND, "no kind of memory that can be shared");
    if (octets[AT_ACCESS] != WEIR_READ && octets[AT_ACCESS] != WEIR_WRITE)
        return refuse(AT_ACCESS, "neither reading nor writing");
    if (octets[AT_DETACHED] > 1)
        return refuse(AT_DETACHED, "neither detached nor not");
    if (octets[AT_DETACHED] == 1 && octets[AT_KIND] != WEIR_SHARE_LEGACY)
        return refuse(AT_DETACHED, "detached, and of a kind that octets do not open");
    return WEIR_OK;
}

static weir_status check_bytes(const weir__ticket *it)
{
    if (it->base_bytes == 0 || it->base_bytes > SIZE_MAX)
        return refuse(AT_BASE, "no object has so many bytes");
    if (it->bytes == 0 || it->bytes > it->base_bytes)
        return refuse(AT_BYTES, "no bytes, or more than the whole object has");
    if (it->offset > it->base_bytes - it->bytes)
        return refuse(AT_OFFSET, "the bytes end behind the object's end");
    return WEIR_OK;
}

/* Reads what says who answers for it, and checks that. */
static weir_status read_exporter(const uint8_t *octets, weir__ticket *out)
{
    uint64_t pid = weir__octets_get(octets + AT_PID, 4);
    out->start_time = weir__octets_get(octets + AT_START_TIME, 8);
    memcpy(out->export_id, octets + AT_ID, sizeof out->export_id);
    memcpy(out->socket, octets + AT_SOCKET, sizeof out->socket);
    if (pid == 0 || pid > INT32_MAX)
        return refuse(AT_PID, "no process has that number");
    if (out->start_time == 0)
        return refuse(AT_START_TIME, "no process has begun then");
    out->pid = (int32_t)pid;

    if (out->socket[0] != '/')
        return refuse(AT_SOCKET, "the socket's path is not absolute");
    size_t length = strnlen(out->socket, sizeof out->socket);
    if (length == sizeof out->socket)
        return refuse(AFTER_SOCKET - 1, "the socket's path has no end");
    return check_zero(octets, AT_SOCKET + length, AFTER_SOCKET);
}

static weir_status read_handle(const uint8_t *octets, weir__ticket *out)
{
    memcpy(out->handle, octets + AT_HANDLE, sizeof out->handle);
    weir_status status = check_zero(octets, AT_START_TIME, AT_HANDLE);
    return status != WEIR_OK ? status : check_zero(octets, AFTER_HANDLE, AFTER_SOCKET);
}

static weir_status read_all(const uint8_t *octets, weir__ticket *out)
{
    weir_status status = check_beginning(octets);
    if (status != WEIR_OK)
        return status;
    out->kind = (weir_share_kind)octets[AT_KIND];
    out->access = (weir_access)octets[AT_ACCESS];
    out->is_detached = octets[AT_DETACHED] == 1;
    memcpy(out->device_uuid, octets + AT_UUID, sizeof out->device_uuid);
    out->base_bytes = weir__octets_get(octets + AT_BASE, 8);
    out->offset = weir__octets_get(octets + AT_OFFSET, 8);
    out->bytes = weir__octets_get(octets + AT_BYTES, 8);
    status = check_bytes(out);
    if (status == WEIR_OK)
        status = check_zero(octets, AT_NOTHING, AT_ID);
    if (status == WEIR_OK)
        status = check_zero(octets, AFTER_SOCKET, WEIR_TICKET_BYTES);
    if (status != WEIR_OK)
        return status;
    return out->is_detached ? read_handle(octets, out) : read_exporter(octets, out);
}

weir_status weir__ticket_read(const weir_ticket *from, weir__ticket *out)
{
    memset(out, 0, sizeof *out);
    weir_status status = read_all(from->octets, out);
    if (status != WEIR_OK)
        memset(out, 0, sizeof *out);
    return status;
}

void weir__ticket_write(const weir__ticket *from, weir_ticket *out)
{
    uint8_t *octets = out->octets;
    memset(octets, 0, sizeof out->octets);
    memcpy(octets + AT_MAGIC, magic, sizeof magic);
    octets[AT_VERSION] = VERSION;
    octets[AT_KIND] = (uint8_t)from->kind;
    octets[AT_ACCESS] = (uint8_t)from->access;
    octets[AT_DETACHED] = from->is_detached;
    memcpy(octets + AT_UUID, from->device_uuid, sizeof from->device_uuid);
    weir__octets_put(octets + AT_BASE, from->base_bytes, 8);
    weir__octets_put(octets + AT_OFFSET, from->offset, 8);
    weir__octets_put(octets + AT_BYTES, from->bytes, 8);
    if (from->is_detached) {
        memcpy(octets + AT_HANDLE, from->handle, sizeof from->handle);
    } else {
        weir__octets_put(octets + AT_START_TIME, from->start_time, 8);
        weir__octets_put(octets + AT_PID, (uint64_t)from->pid, 4);
        memcpy(octets + AT_ID, from->export_id, sizeof from->export_id);
        memcpy(octets + AT_SOCKET, from->socket,
               strnlen(from->socket, sizeof from->socket));
    }
    weir__ticket again;
    WEIR_ASSERT(weir__ticket_read(out, &again) == WEIR_OK, "a ticket can be read");
    (void)again;
}

weir_status weir_ticket_get_info(const weir_ticket *ticket, weir_ticket_info *out)
{
    const weir_ticket_info none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (ticket == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "no ticket: it is null");

    weir__ticket it;
    status = weir__ticket_read(ticket, &it);
    if (status != WEIR_OK)
        return status;
    weir_ticket_info info = {
        .struct_size = sizeof info, .kind = it.kind, .is_detached = it.is_detached,
        .access = it.access, .base_bytes = it.base_bytes, .offset = it.offset,
        .bytes = it.bytes, .exporter = it.pid
    };
    memcpy(info.device_uuid, it.device_uuid, sizeof info.device_uuid);
    return weir__fill_out(out, &info, sizeof info);
}
