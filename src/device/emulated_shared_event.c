/* emulated_shared_event.c - events of an emulated device that other processes open.
 *
 * Such an event is one of its process's like all others, and besides a memory file:
 *
 *     head     who records; how often it was; for the last 256 records, which are done
 *     telling  what the last record is behind, for ledgers (ledger_foreign.h)
 *     telling  the same of the record before
 *
 * The recorder writes it: the record counts at once, and as done when the queue is past
 * it. An importer maps the head to read, and what it waits for is one record: the last
 * one when the wait is put. Both sides count records, so that an event that is recorded
 * again meanwhile makes nobody wait for more. Only what is done 256 records behind one
 * that is not counts as done with that. A telling is whole if the record is still the
 * last one after it was read.
 *
 * What is in the file is not believed: its length and its seals are, which keep it in
 * place. If the numbers lie, a wait ends too soon or when the other process does. That
 * one has ended is looked for now and then while somebody waits. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/emulated_shared.h"
#include "ipc_process.h"

#define HANDLE_MAGIC UINT64_C(0x3154564552494557) /* with the file's version, 1 */
#define HEAD_BYTES   ((size_t)4096)
#define SLOT_BYTES   ((size_t)1 << 17) /* of a telling */
#define FILE_BYTES   (HEAD_BYTES + 2 * SLOT_BYTES)
#define RECORDS      256
/* Of so many looks at what is not done one is at the process. */
#define LOOKS        64
/* So often a telling is read that is overwritten meanwhile. */
#define READS        16

/* The file begins with this; all the rest is zero. */
typedef struct event_head {
    uint64_t magic;
    uint64_t start_time;            /* of the process that records, */
    int32_t pid;                    /* and its number; neither ever changes */
    atomic_uint_least64_t recorded; /* how often */
    /* The last record of this remainder that is done, with all before it. */
    atomic_uint_least64_t done[RECORDS];
} event_head;

/* At HEAD_BYTES, in turn. */
typedef struct event_slot {
    uint64_t record;
    weir__ledger_telling telling;
    weir__epoch epochs[];
} event_slot;

#define EPOCHS_MAX ((SLOT_BYTES - sizeof(event_slot)) / sizeof(weir__epoch))

struct weir__shared_state {
    size_t references;
    int fd;
    bool is_foreign;
    size_t mapped_bytes; /* another's: the head alone */
    event_head *head;
    /* Another's: read once. */
    weir__ledger_teller teller;
    uint32_t looks;
    bool is_over; /* its process has ended */
    /* Our own: */
    uint64_t recorded;
    struct {
        uint64_t oldest; /* that is not done, if any is */
        uint64_t ahead;  /* bits: which of the next 64 with this remainder are done */
        uint32_t open;   /* how many are not */
    } records[RECORDS];  /* by remainder */
};

_Static_assert(sizeof(event_head) <= HEAD_BYTES, "the head is a page");

static size_t slot_at(uint64_t record)
{
    return HEAD_BYTES + record % 2 * SLOT_BYTES;
}

/* ---- the state ---- */

void weir__shared_state_ref(weir__shared_state *state)
{
    state->references++;
}

void weir__shared_state_unref(weir__shared_state *state)
{
    if (state == NULL)
        return;
    WEIR_CHECK(state->references > 0, "a shared event is let go of too often");
    if (--state->references > 0)
        return;
    if (state->head != NULL)
        munmap(state->head, state->mapped_bytes);
    if (state->fd >= 0)
        close(state->fd);
    weir__host_free(state);
}

/* With one reference, and nothing mapped; null: no host memory. */
static weir__shared_state *state_make(bool is_foreign)
{
    weir__shared_state *state = weir__host_alloc(sizeof *state);
    if (state == NULL)
        return NULL;
    memset(state, 0, sizeof *state);
    state->references = 1;
    state->fd = -1;
    state->is_foreign = is_foreign;
    return state;
}

static bool head_map(weir__shared_state *state)
{
    int protection = state->is_foreign ? PROT_READ : PROT_READ | PROT_WRITE;
    state->mapped_bytes = state->is_foreign ? HEAD_BYTES : FILE_BYTES;
    void *head = mmap(NULL, state->mapped_bytes, protection, MAP_SHARED, state->fd, 0);
    if (head == MAP_FAILED)
        return false;
    state->head = head;
    return true;
}

bool weir__shared_state_is_done(weir__shared_state *state, uint64_t record)
{
    /* Acquire: with what the recorder's work has written. */
    if (state->is_over ||
        atomic_load_explicit(&state->head->done[record % RECORDS],
                             memory_order_acquire) >= record)
        return true;
    if (++state->looks % LOOKS == 0) {
        uint64_t start_time;
        weir_status status = weir__process_find(state->teller.pid, &start_time);
        state->is_over = status == WEIR_NOT_FOUND ||
                         (status == WEIR_OK && start_time != state->teller.start_time);
    }
    return state->is_over;
}

/* Who waits for a record looks for that or a later one with its remainder: so none is
 * told before those in front of it are done. Nor any later than that, for what comes
 * may wait for who waits here. What is done very far ahead is told when all are. */
void weir__shared_state_tell(weir__shared_state *state, uint64_t record)
{
    size_t at = record % RECORDS;
    WEIR_CHECK(state->records[at].open > 0, "a record is done that was not made");
    uint64_t *ahead = &state->records[at].ahead, told = record;
    const uint64_t before = (record - state->records[at].oldest) / RECORDS;
    if (--state->records[at].open == 0) {
        told = state->recorded - (state->recorded - record) % RECORDS;
    } else if (before != 0) {
        *ahead |= before <= 64 ? UINT64_C(1) << (before - 1) : 0;
        return;
    } else {
        for (; *ahead & 1; *ahead >>= 1)
            told += RECORDS;
        *ahead >>= 1;
        state->records[at].oldest = told + RECORDS;
    }
    atomic_store_explicit(&state->head->done[at], told, memory_order_release);
}

static void record_opens(weir__shared_state *state, uint64_t record)
{
    size_t at = record % RECORDS;
    if (state->records[at].open++ != 0)
        return;
    state->records[at].oldest = record;
    state->records[at].ahead = 0;
}

/* ---- recording ---- */

bool weir__event_is_foreign(const weir__event *event)
{
    return event->shared != NULL && event->shared->is_foreign;
}

static weir_status refuse_captured(const weir__queue *queue)
{
    if (!weir__capture_has(queue))
        return WEIR_OK;
    return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURE_UNSUPPORTED,
                             "an event that processes share cannot be captured; the "
                             "capture goes on");
}

weir_status weir__shared_event_admit(const weir__event *event, const weir__queue *queue)
{
    if (event->shared->is_foreign)
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_BAD_HANDLE,
                                 "only the process that has made an event records it");
    return refuse_captured(queue);
}

/* Before anybody hears of the record. */
static void telling_write(const weir__event *event, uint64_t record)
{
    event_slot *slot = (void *)((unsigned char *)event->shared->head + slot_at(record));
    const weir__emulated *device = event->device;
    weir__ledger_telling telling = { .process = 0 };
    slot->record = record;
    if (device->ledger != NULL)
        weir__ledger_tell_others(device->ledger, event->learned, event->at.queue->id,
                                 slot->epochs, EPOCHS_MAX, &telling);
    slot->telling = telling;
}

void weir__shared_event_recorded(weir__event *event, weir__work *put)
{
    weir__shared_state *state = event->shared;
    uint64_t record = ++state->recorded;
    telling_write(event, record);
    record_opens(state, record);
    atomic_store_explicit(&state->head->recorded, record, memory_order_release);
    if (put == NULL) {
        weir__shared_state_tell(state, record);
        return;
    }
    weir__shared_state_ref(state);
    put->tells = state;
    put->record = record;
}

/* ---- hearing ---- */

/* What goes with a record of another process's. */
typedef struct heard {
    uint64_t record;                /* the last one; 0: none yet */
    uint64_t stream;                /* that recorded */
    weir__ledger_position *learned; /* counted; null: nothing */
} heard;

/* Reads the epochs of `slot` and makes them the ledger's. */
static void epochs_hear(const weir__event *event, const event_slot *slot, heard *out)
{
    const weir__shared_state *state = event->shared;
    const weir__ledger_telling *telling = &slot->telling;
    size_t bytes = telling->count * sizeof(weir__epoch);
    off_t from = (off_t)(slot_at(slot->record) + sizeof *slot);
    weir__epoch *epochs = NULL;
    if (telling->count <= EPOCHS_MAX)
        epochs = weir__host_alloc(bytes + sizeof *epochs);
    bool is_read = epochs == NULL || pread(state->fd, epochs, bytes, from) ==
                                         (ssize_t)bytes;
    uint64_t record = atomic_load_explicit(&state->head->recorded,
                                           memory_order_acquire);
    if (is_read && record == slot->record) {
        out->record = record;
        out->stream = telling->stream;
        out->learned = weir__ledger_hear(event->device->ledger, &state->teller, telling,
                                         epochs);
    }
    weir__host_free(epochs);
}

/* The last record with what it has told. One that changes all the time is taken as it
 * is, and nothing is learnt. */
static heard record_hear(const weir__event *event)
{
    const weir__shared_state *state = event->shared;
    heard out = { .record = 0 };
    for (int i = 0; i < READS && out.record == 0; i++) {
        event_slot slot;
        uint64_t record = atomic_load_explicit(&state->head->recorded,
                                               memory_order_acquire);
        if (record == 0 || event->device->ledger == NULL)
            return (heard){ .record = record };
        ssize_t length = pread(state->fd, &slot, sizeof slot, (off_t)slot_at(record));
        if (length != sizeof slot || slot.record != record)
            continue;
        epochs_hear(event, &slot, &out);
    }
    if (out.record == 0)
        out.record = atomic_load_explicit(&state->head->recorded, memory_order_acquire);
    return out;
}

static void heard_free(const weir__event *event, const heard *self)
{
    if (self->learned != NULL)
        weir__ledger_unref(event->device->ledger, self->learned);
}

void weir__shared_event_note(const weir__event *event, void *ptr, size_t bytes,
                             bool writes)
{
    if (!weir__event_is_foreign(event))
        return;
    heard last = record_hear(event);
    weir__ledger_foreign(event->device->ledger, last.stream, last.learned,
                         (uintptr_t)ptr, bytes, writes);
    heard_free(event, &last);
}

/* ---- waiting and asking ---- */

static weir__position position_of(const weir__event *event, const heard *last)
{
    return (weir__position){ .foreign = event->shared, .position = last->record };
}

weir_status weir__shared_event_stream_wait(const weir__event *event,
                                           weir__queue *queue)
{
    static const weir__work marker = { .kind = WEIR__WORK_MARKER };
    weir_status status = refuse_captured(queue);
    if (status != WEIR_OK)
        return status;
    heard last = record_hear(event);
    weir__position at = position_of(event, &last);
    if (last.record > 0)
        status = weir__queue_put(queue, &marker, 0, &at, NULL);
    if (status == WEIR_OK && last.learned != NULL)
        weir__ledger_stream_wait(event->device->ledger, weir__this_thread(), queue->id,
                                 last.learned);
    heard_free(event, &last);
    return status;
}

static void host_learn(const weir__event *event, const heard *last)
{
    if (last->learned != NULL)
        weir__ledger_host_wait(event->device->ledger, weir__this_thread(),
                               last->learned);
}

weir_status weir__shared_event_query(const weir__event *event, bool *done)
{
    heard last = record_hear(event);
    *done = last.record == 0 ||
            weir__schedule_query(event->device, position_of(event, &last));
    if (*done)
        host_learn(event, &last);
    heard_free(event, &last);
    return WEIR_OK;
}

weir_status weir__shared_event_sync(const weir__event *event)
{
    weir_status status = WEIR_OK;
    const weir__event was = *event; /* it may be destroyed meanwhile */
    heard last = record_hear(event);
    weir__position at = position_of(event, &last);
    weir__shared_state_ref(at.foreign);
    if (last.record > 0)
        status = weir__schedule_wait(was.device, at);
    if (status == WEIR_OK)
        host_learn(&was, &last);
    heard_free(&was, &last);
    weir__shared_state_unref(at.foreign);
    return status;
}

/* ---- creating ---- */

/* The file, with its head, and the handle to it. False: errno says why. */
static bool file_make(weir__shared_state *state, weir__shared_event *handle)
{
    static const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    static const uint64_t magic = HANDLE_MAGIC;
    int32_t pid = (int32_t)getpid();
    state->fd = memfd_create("weir-event", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (state->fd < 0 || ftruncate(state->fd, (off_t)FILE_BYTES) != 0 ||
        fcntl(state->fd, F_ADD_SEALS, seals) != 0 || !head_map(state))
        return false;
    state->head->magic = HANDLE_MAGIC;
    state->head->pid = pid;
    state->head->start_time = weir__process_start_time(pid);
    *handle = (weir__shared_event){ .fd = fcntl(state->fd, F_DUPFD_CLOEXEC, 0) };
    memcpy(handle->octets, &magic, sizeof magic);
    return handle->fd >= 0;
}

static weir_status create_locked(weir__emulated *self, weir_event *out,
                                 weir__shared_event *handle)
{
    weir_event event;
    weir__event *made;
    weir__shared_event file;
    weir__shared_state *state = state_make(false);
    if (state == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for an event's state");
    if (!file_make(state, &file)) {
        int why = errno;
        weir__shared_state_unref(state);
        return weir__fail_native(WEIR_DEVICE_ERROR, why,
                                 "the system has no memory file for an event");
    }
    weir_status status = weir__event_make(self, &event);
    if (status == WEIR_OK)
        status = weir__event_find(self, event, &made);
    if (status != WEIR_OK) {
        close(file.fd);
        weir__shared_state_unref(state);
        return status;
    }
    made->shared = state;
    *out = event;
    *handle = file;
    return WEIR_OK;
}

weir_status weir__emulated_shared_event_create(void *device, weir_event *out,
                                               weir__shared_event *handle)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_shared_event_create);
    if (status == WEIR_OK)
        status = create_locked(self, out, handle);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* ---- opening ---- */

static weir_status fail_open(int why, const char *words)
{
    return weir__fail_native(WEIR_INVALID_ARGUMENT,
                             why != 0 ? why : WEIR__NATIVE_INVALID_VALUE,
                             "this is no event that another process shares: %s", words);
}

/* The state's descriptor is a file that keeps its length, and can be mapped. */
static weir_status file_check(int fd)
{
    struct stat about;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstat(fd, &about) != 0)
        return fail_open(errno, "it is no memory file");
    if ((seals & F_SEAL_SHRINK) == 0)
        return fail_open(0, "it could be made shorter");
    if (about.st_size != (off_t)FILE_BYTES)
        return fail_open(0, "it has another length");
    return WEIR_OK;
}

static weir_status state_open(weir__shared_state *state,
                              const weir__shared_event *handle)
{
    uint64_t magic;
    memcpy(&magic, handle->octets, sizeof magic);
    if (magic != HANDLE_MAGIC)
        return fail_open(0, "the octets are not of its kind");
    state->fd = fcntl(handle->fd, F_DUPFD_CLOEXEC, 0);
    if (state->fd < 0 && errno == EBADF)
        return fail_open(EBADF, "there is no such file descriptor");
    if (state->fd < 0)
        return weir__fail_native(WEIR_DEVICE_ERROR, errno,
                                 "the process has no file descriptor left");
    weir_status status = file_check(state->fd);
    if (status != WEIR_OK)
        return status;
    if (!head_map(state))
        return fail_open(errno, "it cannot be read");
    state->teller = (weir__ledger_teller){ state->head->pid, state->head->start_time };
    if (state->head->magic != HANDLE_MAGIC || state->teller.pid <= 0 ||
        state->teller.start_time == 0)
        return fail_open(0, "it says nothing that an event would say");
    return WEIR_OK;
}

static weir_status open_locked(weir__emulated *self, const weir__shared_event *handle,
                               weir_event *out)
{
    weir_event event;
    weir__event *made;
    weir__shared_state *state = state_make(true);
    if (state == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for an event's state");
    weir_status status = state_open(state, handle);
    if (status == WEIR_OK)
        status = weir__event_make(self, &event);
    if (status == WEIR_OK)
        status = weir__event_find(self, event, &made);
    if (status != WEIR_OK) {
        weir__shared_state_unref(state);
        return status;
    }
    made->shared = state;
    *out = event;
    return WEIR_OK;
}

weir_status weir__emulated_shared_event_open(void *device,
                                             const weir__shared_event *handle,
                                             weir_event *out)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_shared_event_open);
    if (status == WEIR_OK)
        status = open_locked(self, handle, out);
    weir__mutex_unlock(&self->lock);
    return status;
}
