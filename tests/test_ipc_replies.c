/* test_ipc_replies.c - what an exporter sends that is not as it should be opens
 * nothing, and the importer lets go of what the exporter may believe that it has. */
#include "support_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support.h"
#include "support_process.h"
#include "weir/ipc.h"
#include "weir/shareable.h"

#define BYTES WEIR_SHAREABLE_OBJECT_BYTES /* of the object */
#define SIZE  4096u                       /* of what is shared, as in ticket_of */

typedef enum reply {
    ANOTHER_MESSAGE, NOISE, NOISE_AND_NO_MORE, NO_MEMORY, MORE_THAN_TOLD, ANOTHER_KIND,
    SHORT_MEMORY, OPEN_TO_CUTS, NO_MEMORY_FILE, SURPLUS_DESCRIPTOR, NO_EVENT, RIGHT
} reply;

/* ---- the exporter ---- */

static int memory_of(size_t bytes, unsigned seals)
{
    int fd = memfd_create("weir-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    must(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    must(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

/* What is wrong with the memory, or with what is told of it. */
static weir__message answer_of(reply what, int memory, int other)
{
    weir__message answer = answer_message(what == NO_MEMORY ? -1 : memory,
                                          what == NO_EVENT ? other : -1);
    answer.memory.bytes = what == MORE_THAN_TOLD ? 2 * BYTES : BYTES;
    if (what == ANOTHER_KIND) {
        answer.memory.kind = WEIR_SHARE_LEGACY;
        answer.memory.fd = -1;
        memset(answer.memory.octets, 7, sizeof answer.memory.octets);
    }
    return answer;
}

static int memory_for(reply what)
{
    return what == SHORT_MEMORY   ? memory_of(BYTES / 2, F_SEAL_SHRINK)
           : what == OPEN_TO_CUTS ? memory_of(BYTES, 0)
           : what == NO_MEMORY_FILE
               ? open("/dev/null", O_RDWR | O_CLOEXEC)
               : memory_of(what == MORE_THAN_TOLD ? 2 * BYTES : BYTES, F_SEAL_SHRINK);
}

static void send_noise(int fd)
{
    static const uint8_t noise[WEIR__MESSAGE_BYTES] = { 250, 3, 9 };
    must(send_octets(fd, noise, sizeof noise, NULL, 0));
}

static void send_reply(int fd, reply what)
{
    int memory = memory_for(what), other = any_fd();
    const int both[] = { memory, other };
    weir__message answer = answer_of(what, memory, other);
    raw_message surplus = raw_message_of(&answer);
    surplus.fds = both;
    surplus.fd_count = 2;
    if (what == NOISE || what == NOISE_AND_NO_MORE) {
        send_noise(fd);
    } else if (what == SURPLUS_DESCRIPTOR) {
        must(send_raw(fd, &surplus));
    } else {
        if (what == ANOTHER_MESSAGE)
            answer = close_message();
        must_ok(weir__socket_send(fd, &answer, SOON_MS));
    }
    end_fd(&memory);
    end_fd(&other);
}

/* Says whether it is told that it is closed. */
static void hear_and_tell(int channel, int fd, const weir__peer_process *peer)
{
    weir__message came;
    weir_status status = weir__socket_receive(fd, peer, SOON_MS, &came);
    must(status == WEIR_PEER_GONE || came.kind == WEIR__MESSAGE_CLOSE);
    channel_say(channel, status == WEIR_PEER_GONE ? "gone"
                         : came.has_event         ? "closed after use"
                                                  : "closed");
    if (came.event_has_fd)
        end_fd(&came.event.fd);
}

static void hear(int fd, const weir__peer_process *peer, weir__message_kind wanted)
{
    weir__message came;
    must_ok(weir__socket_receive(fd, peer, SOON_MS, &came));
    must_equal(came.kind, wanted);
}

/* One that is open, but is no more after it was closed. */
static void serve_again(int channel, int fd, const weir__peer_process *peer)
{
    weir__message answer = answer_message(-1, -1);
    must_ok(weir__socket_send(fd, &answer, SOON_MS));
    hear(fd, peer, WEIR__MESSAGE_AGAIN);
    send_noise(fd);
    hear_and_tell(channel, fd, peer);
}

static void serve_one(int channel, int listener, reply what)
{
    weir__peer_process peer;
    struct pollfd ready = { .fd = listener, .events = POLLIN };
    int fd;
    must(poll(&ready, 1, (int)SOON_MS) == 1);
    must_ok(weir__socket_accept(listener, &peer, &fd));
    hear(fd, &peer, WEIR__MESSAGE_OPEN);
    if (what == NOISE_AND_NO_MORE)
        must(shutdown(fd, SHUT_RD) == 0); /* so it cannot be told of the close */
    send_reply(fd, what);
    if (what != NOISE_AND_NO_MORE)
        hear_and_tell(channel, fd, &peer);
    if (what == RIGHT)
        serve_again(channel, fd, &peer);
    end_fd(&fd);
    weir__peer_close(&peer);
    if (what == NOISE_AND_NO_MORE)
        channel_say(channel, "closed");
}

static void exporter(int channel)
{
    char path[WEIR__SOCKET_PATH_BYTES];
    int listener;
    must_ok(weir__socket_listen(path, &listener));
    channel_send(channel, path, sizeof path, -1);
    for (reply what = ANOTHER_MESSAGE; what <= RIGHT; what++)
        serve_one(channel, listener, what);
    weir__socket_unlisten(path, listener);
}

static const support_child children[] = { { "exporter", exporter } };

/* ---- the importer ---- */

static weir_ticket ticket_for(weir_device *device, const support_process *other)
{
    char path[WEIR__SOCKET_PATH_BYTES];
    weir_device_properties properties = { .struct_size = sizeof properties };
    weir_ticket out;
    must(channel_receive(other->channel, path, sizeof path) == -1);
    must_ok(weir_device_get_properties(device, &properties));
    weir__ticket it = ticket_of(other->pid, path);
    it.base_bytes = BYTES;
    memcpy(it.device_uuid, properties.uuid, sizeof it.device_uuid);
    weir__ticket_write(&it, &out);
    return out;
}

/* And says so, whatever else is in vain afterwards. */
static void open_in_vain(weir_device *device, weir_stream stream,
                         const weir_ticket *ticket, const support_process *other)
{
    weir_buffer bytes;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_ipc_open(device, stream, ticket, NULL, &bytes));
    must_equal(weir_last_error().status, WEIR_INVALID_ARGUMENT);
    must(bytes.storage == NULL);
    channel_hear(other->channel, "closed");
}

static void what_is_not_as_told_opens_nothing(void **state)
{
    (void)state;
    size_t fds = count_fds();
    weir_device *device = open_emulated(WEIR_EMULATED_STEPPED, 1);
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    support_process other = process_start("exporter");
    weir_ticket ticket = ticket_for(device, &other);
    weir_buffer bytes;
    for (reply what = ANOTHER_MESSAGE; what < RIGHT; what++)
        open_in_vain(device, stream, &ticket, &other);
    must_ok(weir_ipc_open(device, stream, &ticket, NULL, &bytes));
    must_equal(bytes.size, SIZE);
    must_ok(weir_ipc_close(&bytes, stream));
    channel_hear(other.channel, "closed after use");
    open_in_vain(device, stream, &ticket, &other);
    process_end(&other);
    must_ok(weir_ipc_trim_sync());
    end_stream(device, stream);
    close_emulated(device);
    must_equal(count_fds(), fds);
}

int main(int argc, char **argv)
{
    support_children(argc, argv, children, sizeof children / sizeof *children);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_as_told_opens_nothing),
    };
    return cmocka_run_group_tests(tests, socket_folder_make, socket_folder_remove);
}
