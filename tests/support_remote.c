/* support_remote.c - see support_remote.h. */
#include "support_remote.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ipc_internal.h"

#define ALIGNMENT ((size_t)256)
#define PATIENCE_S 60

typedef enum deed {
    DEED_END, DEED_OPEN, DEED_CLOSE, DEED_RESET, DEED_SLICE, DEED_CHECK, DEED_STAMP,
    DEED_LOOK, DEED_ERRORS, DEED_ALL_ERRORS, DEED_FINDINGS, DEED_HOLD, DEED_LET_GO,
    DEED_IS_DONE, DEED_SYNC, DEED_MAKE, DEED_EXPORT, DEED_SIZE, DEED_STATISTICS,
    DEED_TRIM, DEED_FAULT, DEED_HANG_UP
} deed;

typedef struct order {
    deed deed;
    int buffer;
    int other;
    int stream;
    weir_access access;
    weir_status status;
    bool lasting;
    bool is_pooled;
    size_t offset;
    size_t bytes;
    uint64_t key;
    char call[32];
    weir_ticket ticket;
} order;

typedef struct reply {
    weir_status status;
    uint64_t value;
    weir_ticket ticket;
    weir_ipc_statistics statistics;
} reply;

/* ---- the other process ---- */

typedef struct scene {
    weir_device *device;
    weir_stream streams[2];
    weir_buffer buffers[REMOTE_BUFFERS];
    uint64_t gate;
    int channel;
} scene;

static weir_status deed_open(scene *it, const order *ordered)
{
    weir_open_options options = WEIR_OPEN_OPTIONS_INIT;
    options.access = ordered->access;
    options.timeout_ms = 5000;
    return weir_ipc_open(it->device, it->streams[ordered->stream], &ordered->ticket,
                         &options, &it->buffers[ordered->buffer]);
}

static weir_status deed_make(scene *it, const order *ordered)
{
    weir_resource *mr;
    weir_buffer *buffer = &it->buffers[ordered->buffer];
    must_ok(weir_resource_open(it->device,
                               ordered->is_pooled ? "async(handle_types=posix_fd)"
                                                  : "shareable", &mr));
    weir_status status = weir_buffer_allocate(mr, it->streams[0], ordered->bytes,
                                              ALIGNMENT, buffer);
    weir_resource_unref(mr);
    if (status == WEIR_OK)
        stamp(it->device, it->streams[0], buffer->data, buffer->size, ordered->key);
    return status;
}

static weir_status deed_export(scene *it, const order *ordered, weir_ticket *out)
{
    weir_export_options options = WEIR_EXPORT_OPTIONS_INIT;
    weir_resource_properties about = { .struct_size = sizeof about };
    options.access = ordered->access;
    must_ok(weir_resource_get_properties(it->buffers[ordered->buffer].resource,
                                         &about));
    options.share_whole_base = about.share_kind == WEIR_SHARE_POOL;
    return weir_ipc_export(&it->buffers[ordered->buffer], &options, out);
}

/* The service, which polls them, closes them then, under its lock. */
static void shut_sockets(int but)
{
    weir__mutex_lock(&weir__ipc_all.lock);
    for (int fd = 3; fd < 1024; fd++) {
        struct stat about;
        if (fd != but && fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode))
            (void)shutdown(fd, SHUT_RDWR);
    }
    weir__mutex_unlock(&weir__ipc_all.lock);
}

static void look(scene *it, const order *ordered)
{
    const weir_buffer *buffer = &it->buffers[ordered->buffer];
    check_stamp(it->device, it->streams[ordered->stream], buffer->data, buffer->size,
                ordered->key);
}

static reply do_work(scene *it, const order *ordered)
{
    reply answer = { .status = WEIR_OK };
    weir_buffer *buffer = &it->buffers[ordered->buffer];
    weir_stream stream = it->streams[ordered->stream];
    bool is_done;
    switch (ordered->deed) {
    case DEED_STAMP:
        stamp(it->device, stream, buffer->data, buffer->size, ordered->key);
        break;
    case DEED_LOOK: look(it, ordered); break;
    case DEED_ERRORS:
        look(it, ordered);
        must_ok(weir_stream_sync(it->device, stream));
        answer.value = take_stamp_errors();
        break;
    case DEED_ALL_ERRORS: answer.value = take_stamp_errors(); break;
    case DEED_FINDINGS: answer.value = weir_emulated_findings(it->device); break;
    case DEED_HOLD: it->gate = checklist_hold(it->device, stream); break;
    case DEED_LET_GO: checklist_let_go(it->device, it->gate); break;
    case DEED_IS_DONE:
        must_ok(weir_stream_query(it->device, stream, &is_done));
        answer.value = is_done;
        break;
    default: must_ok(weir_stream_sync(it->device, stream)); break;
    }
    return answer;
}

static reply do_order(scene *it, const order *ordered)
{
    reply answer = { .status = WEIR_OK };
    weir_buffer *buffer = &it->buffers[ordered->buffer];
    weir_stream stream = it->streams[ordered->stream];
    switch (ordered->deed) {
    case DEED_END: break;
    case DEED_OPEN: answer.status = deed_open(it, ordered); break;
    case DEED_CLOSE: answer.status = weir_ipc_close(buffer, stream); break;
    case DEED_RESET: weir_buffer_reset(buffer); break;
    case DEED_SLICE:
        answer.status = weir_buffer_slice(buffer, ordered->offset, ordered->bytes,
                                          &it->buffers[ordered->other]);
        break;
    case DEED_CHECK: answer.status = weir_ipc_check(buffer); break;
    case DEED_MAKE: answer.status = deed_make(it, ordered); break;
    case DEED_EXPORT: answer.status = deed_export(it, ordered, &answer.ticket); break;
    case DEED_SIZE: answer.value = buffer->size; break;
    case DEED_HANG_UP: shut_sockets(it->channel); break;
    case DEED_TRIM: answer.status = weir_ipc_trim_sync(); break;
    case DEED_FAULT:
        plan_fault(it->device, ordered->call[0] != '\0' ? ordered->call : NULL,
                   ordered->key, ordered->lasting, ordered->status);
        break;
    case DEED_STATISTICS:
        answer.statistics.struct_size = sizeof answer.statistics;
        answer.status = weir_ipc_get_statistics(&answer.statistics);
        break;
    default: return do_work(it, ordered);
    }
    return answer;
}

void ipc_settle(void)
{
    weir_ipc_statistics now = { .struct_size = sizeof now };
    for (time_t end = time(NULL) + PATIENCE_S; time(NULL) <= end; sched_yield()) {
        must_ok(weir_ipc_get_statistics(&now));
        if (now.importers == 0)
            return;
    }
    must_equal(now.importers, 0);
}

static void serve(int channel, bool is_careless)
{
    scene it = { .device = checklist_open(), .channel = channel };
    it.streams[0] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.streams[1] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    order ordered;
    do {
        must_equal(channel_receive(channel, &ordered, sizeof ordered), -1);
        if (ordered.deed == DEED_END)
            break;
        reply answer = do_order(&it, &ordered);
        if (answer.status != WEIR_OK)
            fprintf(stderr, "# the other process: %s\n", weir_last_error().message);
        channel_send(channel, &answer, sizeof answer, -1);
    } while (true);
    for (int i = 0; i < REMOTE_BUFFERS; i++)
        must(it.buffers[i].storage == NULL);
    ipc_settle();
    must_ok(weir_device_drain_sync(it.device));
    end_stream(it.device, it.streams[0]);
    end_stream(it.device, it.streams[1]);
    if (is_careless)
        close_anyhow(it.device);
    else
        checklist_close(it.device);
    const reply done = { .status = WEIR_OK };
    channel_send(channel, &done, sizeof done, -1);
}

static void serve_carefully(int channel)
{
    serve(channel, false);
}

static void serve_carelessly(int channel)
{
    serve(channel, true);
}

int remote_main(int argc, char **argv, int (*tests)(void))
{
    static const support_child children[] = { { "remote", serve_carefully },
                                              { "careless", serve_carelessly } };
    support_children(argc, argv, children, 2);
    char folder[] = "/tmp/weir-test-XXXXXX", inner[64];
    must(mkdtemp(folder) != NULL);
    must(setenv("XDG_RUNTIME_DIR", folder, 1) == 0);
    int failed = tests();
    snprintf(inner, sizeof inner, "%s/weir", folder);
    if (failed == 0) { /* nothing may be left there */
        must(rmdir(inner) == 0);
        must(rmdir(folder) == 0);
    }
    return failed;
}

/* ---- the test ---- */

ipc_stage ipc_begin(void)
{
    ipc_stage stage = { .at = checklist_begin() };
    must_ok(weir_resource_open(stage.at.device, "shareable", &stage.mr));
    return stage;
}

void ipc_end(ipc_stage *stage)
{
    ipc_settle();
    weir_resource_unref(stage->mr);
    checklist_end(&stage->at);
}

weir_buffer ipc_make(ipc_stage *stage, size_t bytes, uint64_t key)
{
    weir_buffer buffer;
    must_ok(weir_buffer_allocate(stage->mr, stage->at.a, bytes, ALIGNMENT, &buffer));
    stamp(stage->at.device, stage->at.a, buffer.data, buffer.size, key);
    return buffer;
}

weir_ticket ipc_export(weir_buffer *buffer, weir_access access)
{
    weir_export_options options = WEIR_EXPORT_OPTIONS_INIT;
    weir_ticket ticket;
    options.access = access;
    must_ok(weir_ipc_export(buffer, &options, &ticket));
    return ticket;
}

remote remote_begin(void)
{
    return (remote){ process_start("remote") };
}

remote remote_begin_careless(void)
{
    return (remote){ process_start("careless") };
}

remote remote_begin_as(uid_t user)
{
    return (remote){ process_start_as("remote", user) };
}

static void tell(remote *it, const order *ordered)
{
    channel_send(it->process.channel, ordered, sizeof *ordered, -1);
}

static reply hear(remote *it)
{
    reply answer;
    must_equal(channel_receive(it->process.channel, &answer, sizeof answer), -1);
    return answer;
}

static reply ask(remote *it, const order *ordered)
{
    tell(it, ordered);
    return hear(it);
}

void remote_end(remote *it)
{
    const order ordered = { .deed = DEED_END };
    must_ok(ask(it, &ordered).status);
    process_end(&it->process);
}

void remote_pass(const weir_ticket *ticket)
{
    remote it = remote_begin();
    must_ok(remote_open(&it, 0, ticket, WEIR_READ));
    must_ok(remote_close(&it, 0));
    remote_end(&it);
}

void remote_kill(remote *it)
{
    process_kill(&it->process);
    process_reap(&it->process);
}

weir_status remote_open_on(remote *it, int stream, int buffer,
                           const weir_ticket *ticket, weir_access access)
{
    const order ordered = { .deed = DEED_OPEN, .buffer = buffer, .stream = stream,
                            .access = access, .ticket = *ticket };
    return ask(it, &ordered).status;
}

weir_status remote_open(remote *it, int buffer, const weir_ticket *ticket,
                        weir_access access)
{
    return remote_open_on(it, 0, buffer, ticket, access);
}

void remote_ask_to_open(remote *it, int buffer, const weir_ticket *ticket,
                        weir_access access)
{
    const order ordered = { .deed = DEED_OPEN, .buffer = buffer, .access = access,
                            .ticket = *ticket };
    tell(it, &ordered);
}

weir_status remote_answered(remote *it)
{
    return hear(it).status;
}

weir_status remote_close(remote *it, int buffer)
{
    const order ordered = { .deed = DEED_CLOSE, .buffer = buffer };
    return ask(it, &ordered).status;
}

void remote_reset(remote *it, int buffer)
{
    const order ordered = { .deed = DEED_RESET, .buffer = buffer };
    must_ok(ask(it, &ordered).status);
}

void remote_slice(remote *it, int from, size_t offset, size_t bytes, int buffer)
{
    const order ordered = { .deed = DEED_SLICE, .buffer = from, .other = buffer,
                            .offset = offset, .bytes = bytes };
    must_ok(ask(it, &ordered).status);
}

weir_status remote_check(remote *it, int buffer)
{
    const order ordered = { .deed = DEED_CHECK, .buffer = buffer };
    return ask(it, &ordered).status;
}

static reply ask_work(remote *it, deed what, int stream, int buffer, uint64_t key)
{
    const order ordered = { .deed = what, .stream = stream, .buffer = buffer,
                            .key = key };
    return ask(it, &ordered);
}

void remote_stamp_on(remote *it, int stream, int buffer, uint64_t key)
{
    (void)ask_work(it, DEED_STAMP, stream, buffer, key);
}

void remote_stamp(remote *it, int buffer, uint64_t key)
{
    remote_stamp_on(it, 0, buffer, key);
}

uint64_t remote_errors(remote *it, int buffer, uint64_t key)
{
    return ask_work(it, DEED_ERRORS, 0, buffer, key).value;
}

void remote_look(remote *it, int buffer, uint64_t key)
{
    (void)ask_work(it, DEED_LOOK, 0, buffer, key);
}

uint64_t remote_all_errors(remote *it)
{
    return ask_work(it, DEED_ALL_ERRORS, 0, 0, 0).value;
}

uint64_t remote_findings(remote *it)
{
    return ask_work(it, DEED_FINDINGS, 0, 0, 0).value;
}

void remote_hold(remote *it)
{
    (void)ask_work(it, DEED_HOLD, 0, 0, 0);
}

void remote_let_go(remote *it)
{
    (void)ask_work(it, DEED_LET_GO, 0, 0, 0);
}

bool remote_is_done(remote *it)
{
    return ask_work(it, DEED_IS_DONE, 0, 0, 0).value != 0;
}

void remote_sync_on(remote *it, int stream)
{
    (void)ask_work(it, DEED_SYNC, stream, 0, 0);
}

void remote_sync(remote *it)
{
    remote_sync_on(it, 0);
}

void remote_make(remote *it, int buffer, size_t bytes, uint64_t key)
{
    const order ordered = { .deed = DEED_MAKE, .buffer = buffer, .bytes = bytes,
                            .key = key };
    must_ok(ask(it, &ordered).status);
}

void remote_make_pooled(remote *it, int buffer, size_t bytes, uint64_t key)
{
    const order ordered = { .deed = DEED_MAKE, .buffer = buffer, .bytes = bytes,
                            .key = key, .is_pooled = true };
    must_ok(ask(it, &ordered).status);
}

weir_status remote_export(remote *it, int buffer, weir_access access, weir_ticket *out)
{
    const order ordered = { .deed = DEED_EXPORT, .buffer = buffer, .access = access };
    reply answer = ask(it, &ordered);
    *out = answer.ticket;
    return answer.status;
}

size_t remote_size(remote *it, int buffer)
{
    return ask_work(it, DEED_SIZE, 0, buffer, 0).value;
}

weir_ipc_statistics remote_statistics(remote *it)
{
    return ask_work(it, DEED_STATISTICS, 0, 0, 0).statistics;
}

void remote_settle(remote *it)
{
    for (time_t end = time(NULL) + PATIENCE_S; time(NULL) <= end; sched_yield()) {
        if (remote_statistics(it).importers == 0)
            return;
    }
    must_equal(remote_statistics(it).importers, 0);
}

void remote_trim(remote *it)
{
    must_ok(ask_work(it, DEED_TRIM, 0, 0, 0).status);
}

void remote_plan_fault(remote *it, const char *call, uint64_t nth, bool lasting,
                       weir_status status)
{
    order ordered = { .deed = DEED_FAULT, .key = nth, .lasting = lasting,
                      .status = status };
    snprintf(ordered.call, sizeof ordered.call, "%s", call == NULL ? "" : call);
    must_ok(ask(it, &ordered).status);
}

void remote_hang_up(remote *it)
{
    (void)ask_work(it, DEED_HANG_UP, 0, 0, 0);
}
