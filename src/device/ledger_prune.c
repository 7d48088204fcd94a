/* ledger_prune.c - forgets what can never matter again, and looks whether the rest is
 * sound.
 *
 * An access that every host thread is behind can conflict with nothing any more: all
 * that is still to come is put on its stream by a thread, and begins with what the
 * thread is behind. (So a thread that the ledger has not met before has to begin
 * with what all others are behind.) An epoch of a stream that has ended and that no
 * access in the history is of can be asked about by nobody: the stream is dropped
 * from all clocks. Neither changes what is found. (Streams of other processes:
 * ledger_foreign.h.)
 *
 * Pruning walks over everything. It is due when the weight (pieces, accesses, ended
 * streams) has doubled since the last time, and something besides; so each thing
 * that is added pays for a few that are looked at. */
#include "internal.h"
#include "ledger_parts.h"

#ifdef WEIR_TESTING /* small, so that tests prune often */
#define PRUNE_AT_LEAST 16
#else
#define PRUNE_AT_LEAST 1024
#endif

static bool is_above_floor(void *context, const weir__access *access)
{
    const weir__vector *floor = context;
    return !weir__vector_covers(floor, access->epoch);
}

bool weir__ledger_find_floor(weir__ledger *self)
{
    const weir__table *threads = &self->threads;
    const weir__vector *start = &self->floor;
    if (threads->count > 0)
        start = &((const weir__ledger_holder *)threads->items[0])->clock;
    if (!weir__vector_copy(&self->scratch, start))
        return false;
    for (size_t i = 1; i < threads->count; i++) {
        const weir__ledger_holder *thread =
            (const weir__ledger_holder *)threads->items[i];
        weir__vector_meet(&self->scratch, &thread->clock);
    }
    return true;
}

/* Drops accesses, names the streams of those that stay, and heals what has become the
 * same. Bytes that were given back and have no access left need not know when. */
static void prune_history(weir__ledger *self)
{
    weir__history *history = &self->history;
    weir__ledger_stream *stream = NULL;
    for (weir__piece *piece = history->first[0]; piece != NULL;
         piece = piece->next[0]) {
        weir__piece_filter(history, piece, is_above_floor, &self->scratch);
        if (piece->count == 0 && piece->lease.state != WEIR__LEASE_OUT)
            piece->lease.since = (weir__epoch){ 0, 0 };
        for (uint32_t i = 0; i < piece->count; i++) {
            uint64_t id = piece->accesses[i].epoch.stream;
            if (stream == NULL || stream->name.number != id)
                stream = weir__table_find(&self->streams, (weir__name){ 0, id });
            WEIR_CHECK(stream != NULL, "an access of a stream that was dropped");
            stream->is_named = true;
        }
    }
    weir__history_heal(history, 0, UINTPTR_MAX);
}

static void drop_streams(weir__ledger *self)
{
    size_t kept = 0;
    for (size_t i = 0; i < self->streams.count; i++) {
        weir__ledger_stream *stream = (weir__ledger_stream *)self->streams.items[i];
        bool is_kept = stream->is_foreign && !stream->is_forgotten;
        if (stream->device != NULL || stream->is_named || is_kept) {
            stream->is_named = false;
            self->streams.items[kept++] = &stream->name;
            continue;
        }
        WEIR_ASSERT(stream->clock.room == 0, "an ended stream has a clock");
        weir__host_free(stream);
        self->ended--;
    }
    self->streams.count = kept;
}

static bool is_known_stream(void *context, uint64_t id)
{
    const weir__ledger *self = context;
    return weir__table_find(&self->streams, (weir__name){ 0, id }) != NULL;
}

/* Thins one clock and returns how long it is then. */
static size_t thin(weir__ledger *self, weir__vector *clock)
{
    weir__vector_thin(clock, is_known_stream, self);
    return clock->count;
}

static size_t thin_holders(weir__ledger *self, const weir__table *table)
{
    size_t epochs = 0;
    for (size_t i = 0; i < table->count; i++)
        epochs += thin(self, &((weir__ledger_holder *)table->items[i])->clock);
    return epochs;
}

/* Drops from all clocks the streams that are no more, and returns how many epochs
 * stay. */
static size_t thin_all(weir__ledger *self)
{
    size_t epochs = thin(self, &self->floor) + thin(self, &self->told);
    epochs += thin_holders(self, &self->threads);
    epochs += thin_holders(self, &self->keys);
    for (size_t i = 0; i < self->streams.count; i++)
        epochs += thin(self, &((weir__ledger_stream *)self->streams.items[i])->clock);
    for (size_t i = 0; i < self->devices.count; i++)
        epochs += thin(self, &((weir__ledger_device *)self->devices.items[i])->ended);
    for (weir__ledger_position *position = self->positions; position != NULL;
         position = position->next)
        epochs += thin(self, &position->clock);
    return epochs;
}

static size_t weight_of(const weir__ledger *self)
{
    return self->history.pieces + self->history.accesses + self->ended;
}

void weir__ledger_prune_if_due(weir__ledger *self)
{
    if (self->is_deaf || weight_of(self) < self->prune_at)
        return;

    size_t epochs = 0;
    if (weir__ledger_find_floor(self)) { /* else: later */
        prune_history(self);
        weir__ledger_forget_ended(self);
        drop_streams(self);
        epochs = thin_all(self);
    }
    self->prune_at = 2 * weight_of(self) + epochs / 8 + PRUNE_AT_LEAST;
}

/* ---- how much there is, and whether it is sound ---- */

/* Sound, behind nothing that has not happened, and closed as far as can be seen: who is
 * behind the last epoch of a stream is behind all of that stream. */
static size_t vector_audit(const weir__ledger *self, const weir__vector *clock)
{
    weir__vector_verify(clock);
    for (size_t i = 0; i < clock->count; i++) {
        const weir__epoch *epoch = &clock->epochs[i];
        const weir__ledger_stream *stream =
            weir__table_find(&self->streams, (weir__name){ 0, epoch->stream });
        WEIR_CHECK(stream != NULL, "a clock knows a stream that is no more");
        WEIR_CHECK(epoch->time <= stream->time, "a clock is ahead of a stream");
        WEIR_CHECK(epoch->time != stream->time ||
                   weir__vector_is_behind(clock, &stream->clock),
                   "a clock knows an epoch but not what came before it");
    }
    return clock->count;
}

static size_t audit_holders(const weir__ledger *self, const weir__table *table)
{
    weir__table_verify(table);
    size_t epochs = 0;
    for (size_t i = 0; i < table->count; i++)
        epochs += vector_audit(self,
                               &((const weir__ledger_holder *)table->items[i])->clock);
    return epochs;
}

static size_t audit_streams(const weir__ledger *self)
{
    weir__table_verify(&self->streams);
    size_t epochs = 0, ended = 0;
    for (size_t i = 0; i < self->streams.count; i++) {
        const weir__ledger_stream *stream =
            (const weir__ledger_stream *)self->streams.items[i];
        ended += stream->device == NULL;
        epochs += vector_audit(self, &stream->clock);
        WEIR_CHECK(stream->device == NULL ||
                   weir__vector_time(&stream->clock, stream->name.number) ==
                   stream->time, "a stream is not behind itself");
    }
    WEIR_CHECK(ended == self->ended, "ended streams are miscounted");
    return epochs;
}

static size_t audit_clocks(const weir__ledger *self)
{
    size_t epochs = audit_streams(self);
    epochs += audit_holders(self, &self->threads);
    epochs += audit_holders(self, &self->keys);
    epochs += vector_audit(self, &self->floor);
    epochs += vector_audit(self, &self->told);
    weir__table_verify(&self->devices);
    for (size_t i = 0; i < self->devices.count; i++)
        epochs += vector_audit(self,
                               &((weir__ledger_device *)self->devices.items[i])->ended);
    for (const weir__ledger_position *position = self->positions; position != NULL;
         position = position->next) {
        WEIR_CHECK(position->references > 0, "a position that nobody holds");
        epochs += vector_audit(self, &position->clock);
    }
    return epochs;
}

static void audit_history(const weir__ledger *self)
{
    weir__history_verify(&self->history);
    weir__table_verify(&self->memories);
    for (const weir__piece *piece = self->history.first[0]; piece != NULL;
         piece = piece->next[0]) {
        const weir__ledger_memory *memory =
            weir__table_find(&self->memories, (weir__name){ 0, piece->memory });
        WEIR_CHECK(memory != NULL && piece->end <= memory->end,
                   "a piece of no memory");
        for (uint32_t i = 0; i < piece->count; i++) {
            weir__epoch epoch = piece->accesses[i].epoch;
            const weir__ledger_stream *stream =
                weir__table_find(&self->streams, (weir__name){ 0, epoch.stream });
            WEIR_CHECK(stream != NULL && epoch.time <= stream->time,
                       "an access that no stream has made");
        }
    }
}

void weir__ledger_verify(weir__ledger *self)
{
    weir__mutex_lock(&self->lock);
    if (!self->is_deaf) {
        audit_history(self);
        (void)audit_clocks(self);
    }
    weir__mutex_unlock(&self->lock);
}

weir__ledger_size weir__ledger_measure(weir__ledger *self)
{
    weir__mutex_lock(&self->lock);
    weir__ledger_size size = {
        .actors = self->streams.count + self->threads.count,
        .entries = self->is_deaf ? 0 : audit_clocks(self),
        .ranges = self->history.pieces,
        .accesses = self->history.accesses,
    };
    weir__mutex_unlock(&self->lock);
    return size;
}
