/* ledger_foreign.c - see ledger_foreign.h. The streams of other processes are in the
 * table of streams beside those of this one, ended as far as anybody here can use them;
 * whose they are is part of their names. */
#include "ledger_foreign.h"

#include <stdlib.h>
#include <sys/random.h>

#include "internal.h"
#include "ipc_process.h"
#include "ledger_parts.h"

#define ID_MAX UINT64_C(0xffffffff)
#define PROCESS_OF(name) ((name) >> 32 & 0x7fffffff)

/* ---- names ---- */

/* What this process drew. */
static uint64_t own_process(weir__ledger *self)
{
    while (self->process == 0) {
        uint32_t drawn = 1; /* where the system gives no chance: wrong only for two */
        (void)!getrandom(&drawn, sizeof drawn, GRND_NONBLOCK);
        self->process = drawn & 0x7fffffff;
    }
    return self->process;
}

/* Of one of this process's own streams. */
static uint64_t own_name(weir__ledger *self, uint64_t id)
{
    return WEIR__LEDGER_FOREIGN | own_process(self) << 32 | id;
}

/* The stream that is called `name`; null: none is known. */
static weir__ledger_stream *stream_called(weir__ledger *self, uint64_t name)
{
    if (PROCESS_OF(name) == own_process(self))
        name &= ID_MAX;
    weir__ledger_stream *stream = weir__table_find(&self->streams,
                                                   (weir__name){ 0, name });
    return stream;
}

/* ---- telling ---- */

static bool telling_write(weir__ledger *self, const weir__vector *clock, uint64_t id,
                          weir__epoch *epochs, size_t room, weir__ledger_telling *out)
{
    size_t count = 0;
    for (size_t i = 0; i < self->streams.count; i++) {
        const weir__ledger_stream *stream =
            (const weir__ledger_stream *)self->streams.items[i];
        uint64_t time = weir__vector_time(clock, stream->name.number);
        if (!stream->is_foreign ? stream->name.number > ID_MAX : time == 0)
            continue;
        uint64_t id_here = stream->name.number;
        if (count < room)
            epochs[count] = (weir__epoch){
                stream->is_foreign ? id_here : own_name(self, id_here), time
            };
        count++;
    }
    *out = (weir__ledger_telling){ .process = own_process(self),
                                   .number = ++self->tellings,
                                   .stream = own_name(self, id),
                                   .count = count };
    return weir__vector_join(&self->told, clock);
}

/* ---- hearing ---- */

static weir__ledger_process *process_of(weir__ledger *self, uint64_t number,
                                        const weir__ledger_teller *teller)
{
    weir__ledger_process *process = self->processes;
    while (process != NULL && process->number != number)
        process = process->next;
    if (process != NULL)
        return process;
    process = weir__host_alloc(sizeof *process);
    if (process == NULL)
        return NULL;
    *process = (weir__ledger_process){ .next = self->processes, .number = number,
                                       .teller = *teller };
    self->processes = process;
    return process;
}

static weir__ledger_stream *foreign_stream(weir__ledger *self, uint64_t name)
{
    weir__ledger_stream *stream = stream_called(self, name);
    if (stream != NULL)
        return stream;
    stream = weir__host_alloc(sizeof *stream);
    if (stream == NULL)
        return NULL;
    *stream = (weir__ledger_stream){ .name = { 0, name }, .is_foreign = true };
    if (!weir__table_add(&self->streams, &stream->name)) {
        weir__host_free(stream);
        return NULL;
    }
    self->ended++;
    return stream;
}

/* Makes the epoch one of this ledger's; time 0: it says nothing here. False: no host
 * memory. */
static bool translate(weir__ledger *self, weir__epoch *epoch)
{
    bool is_own = PROCESS_OF(epoch->stream) == own_process(self);
    weir__ledger_stream *stream = NULL;
    if ((epoch->stream & WEIR__LEDGER_FOREIGN) != 0)
        stream = is_own ? stream_called(self, epoch->stream)
                        : foreign_stream(self, epoch->stream);
    if (stream == NULL) {
        epoch->time = 0;
        return is_own || (epoch->stream & WEIR__LEDGER_FOREIGN) == 0;
    }
    epoch->stream = stream->name.number;
    stream->is_listed = true;
    if (!is_own && stream->time < epoch->time)
        stream->time = epoch->time;
    if (stream->time < epoch->time)
        epoch->time = stream->time;
    return true;
}

static int epoch_order(const void *a, const void *b)
{
    const weir__epoch *one = a, *other = b;
    if (one->stream != other->stream)
        return one->stream < other->stream ? -1 : 1;
    return one->time < other->time ? -1 : one->time > other->time;
}

/* Sorted, each stream once with its last time, and no zeros: returns how many stay. */
static size_t epochs_clean(weir__epoch *epochs, size_t count)
{
    size_t kept = 0;
    if (count > 0)
        qsort(epochs, count, sizeof *epochs, epoch_order);
    for (size_t i = 0; i < count; i++) {
        bool is_last = i + 1 == count || epochs[i + 1].stream != epochs[i].stream;
        if (is_last && epochs[i].time > 0)
            epochs[kept++] = epochs[i];
    }
    return kept;
}

/* In news of `process`, what it does not list is forgotten. Marks end with this. */
static void mark_forgotten(weir__ledger *self, uint64_t process, bool is_news)
{
    for (size_t i = 0; i < self->streams.count; i++) {
        weir__ledger_stream *stream = (weir__ledger_stream *)self->streams.items[i];
        if (is_news && stream->is_foreign && !stream->is_listed &&
            PROCESS_OF(stream->name.number) == process)
            stream->is_forgotten = true;
        stream->is_listed = false;
    }
}

static bool join_forgotten(const weir__ledger *self, weir__vector *clock)
{
    bool joined = true;
    for (size_t i = 0; joined && i < self->streams.count; i++) {
        const weir__ledger_stream *stream =
            (const weir__ledger_stream *)self->streams.items[i];
        if (stream->is_forgotten && stream->time > 0)
            joined = weir__vector_raise(clock, (weir__epoch){ stream->name.number,
                                                              stream->time });
    }
    return joined;
}

static bool telling_read(weir__ledger *self, const weir__ledger_teller *teller,
                         const weir__ledger_telling *telling, weir__epoch *epochs,
                         weir__vector *clock)
{
    if (telling->process == 0)
        return weir__vector_copy(clock, &self->told);
    weir__ledger_process *process = process_of(self, telling->process, teller);
    bool heard = process != NULL;
    for (size_t i = 0; heard && i < telling->count; i++)
        heard = translate(self, &epochs[i]);
    bool is_news = heard && process->number != own_process(self) &&
                   telling->number > process->heard;
    if (is_news)
        process->heard = telling->number;
    mark_forgotten(self, telling->process, is_news);
    if (!heard)
        return false;
    size_t count = epochs_clean(epochs, telling->count);
    const weir__vector told = { .epochs = epochs, .count = count, .room = count };
    return weir__vector_copy(clock, &told) && join_forgotten(self, clock);
}

/* ---- accesses ---- */

static bool access_note(weir__ledger *self, uint64_t name, const weir__vector *clock,
                        uintptr_t ptr, size_t bytes, bool writes)
{
    const weir__ledger_memory *memory =
        weir__table_find_at_or_before(&self->memories, (weir__name){ 0, ptr });
    const weir__ledger_stream *stream = stream_called(self, name);
    if (memory == NULL || stream == NULL)
        return true;
    uint64_t id = stream->name.number, time = weir__vector_time(clock, id);
    if (time == 0)
        return true;
    weir__act act = { .device = memory->device, .stream = stream, .clock = clock,
                      .is_operation = true, .what = "another process",
                      .epoch = { id, time } };
    bool recorded = weir__ledger_use(self, &act, ptr, weir__end_of(ptr, bytes), writes);
    weir__ledger_tell(self, &act);
    return recorded;
}

/* ---- pruning ---- */

static bool has_ended(const weir__ledger_process *process)
{
    uint64_t start_time;
    weir_status status = weir__process_find(process->teller.pid, &start_time);
    return status == WEIR_NOT_FOUND ||
           (status == WEIR_OK && start_time != process->teller.start_time);
}

void weir__ledger_forget_ended(weir__ledger *self)
{
    weir__ledger_process **link = &self->processes;
    while (*link != NULL) {
        weir__ledger_process *process = *link;
        if (!has_ended(process)) {
            link = &process->next;
            continue;
        }
        mark_forgotten(self, process->number, true);
        *link = process->next;
        weir__host_free(process);
    }
}

/* ---- from outside ---- */

void weir__ledger_tell_others(weir__ledger *self,
                              const weir__ledger_position *position, uint64_t id,
                              weir__epoch *epochs, size_t room,
                              weir__ledger_telling *out)
{
    *out = (weir__ledger_telling){ .process = 0 };
    if (position == NULL || !weir__ledger_in(self))
        return;
    weir__ledger_out(self, telling_write(self, &position->clock, id, epochs, room,
                                         out));
}

weir__ledger_position *weir__ledger_hear(weir__ledger *self,
                                         const weir__ledger_teller *teller,
                                         const weir__ledger_telling *telling,
                                         weir__epoch *epochs)
{
    if (!weir__ledger_in(self))
        return NULL;
    weir__ledger_position *position = NULL;
    if (epochs != NULL)
        position = weir__ledger_position_create(self);
    if (position != NULL &&
        !telling_read(self, teller, telling, epochs, &position->clock)) {
        weir__ledger_position_free(self, position);
        position = NULL;
    }
    weir__ledger_out(self, position != NULL);
    return position;
}

void weir__ledger_foreign(weir__ledger *self, uint64_t stream,
                          const weir__ledger_position *position, uintptr_t ptr,
                          size_t bytes, bool writes)
{
    if (bytes > 0 && position != NULL && weir__ledger_in(self))
        weir__ledger_out(self, access_note(self, stream, &position->clock, ptr, bytes,
                                           writes));
}
