/* ledger_actors.c - who takes part: devices, streams, host threads, keys, and the
 * positions that they pass on; how each comes and goes. */
#include "internal.h"
#include "ledger_parts.h"

static void stream_free(weir__ledger_stream *stream)
{
    weir__vector_free(&stream->clock);
    weir__host_free(stream);
}

static void device_free(weir__ledger_device *device)
{
    weir__vector_free(&device->ended);
    weir__host_free(device);
}

void weir__ledger_holder_free(weir__ledger_holder *holder)
{
    weir__vector_free(&holder->clock);
    weir__host_free(holder);
}

void weir__ledger_position_free(weir__ledger *self, weir__ledger_position *position)
{
    if (position->before == NULL)
        self->positions = position->next;
    else
        position->before->next = position->next;
    if (position->next != NULL)
        position->next->before = position->before;
    weir__vector_free(&position->clock);
    weir__host_free(position);
}

/* ---- streams, threads, keys, devices ---- */

weir__ledger_stream *weir__ledger_stream_of(const weir__ledger *self, uint64_t id)
{
    weir__ledger_stream *stream = weir__table_find(&self->streams,
                                                   (weir__name){ 0, id });
    WEIR_CHECK(stream != NULL && stream->device != NULL, "a stream that is no more");
    return stream;
}

/* A fresh clock under `name`, entered into `table`; null: no host memory. */
static weir__ledger_holder *holder_create(weir__table *table, weir__name name)
{
    weir__ledger_holder *holder = weir__host_alloc(sizeof *holder);
    if (holder == NULL)
        return NULL;
    *holder = (weir__ledger_holder){ .name = name };
    if (!weir__table_add(table, &holder->name)) {
        weir__host_free(holder);
        return NULL;
    }
    return holder;
}

/* One that is new begins with what all others are behind: one of them must have started
 * it, and what all are behind may be pruned already. */
weir__ledger_holder *weir__ledger_thread_of(weir__ledger *self, uint64_t number)
{
    weir__name name = { 0, number };
    weir__ledger_holder *thread = weir__table_find(&self->threads, name);
    if (thread != NULL)
        return thread;
    if (!weir__ledger_find_floor(self))
        return NULL;
    thread = holder_create(&self->threads, name);
    if (thread == NULL || !weir__vector_copy(&thread->clock, &self->scratch))
        return NULL;
    return thread;
}

weir__ledger_holder *weir__ledger_key_of(weir__ledger *self, const void *device,
                                         uint64_t key)
{
    weir__name name = weir__ledger_name(device, key);
    weir__ledger_holder *holder = weir__table_find(&self->keys, name);
    return holder != NULL ? holder : holder_create(&self->keys, name);
}

weir__ledger_device *weir__ledger_device_of(weir__ledger *self,
                                            const weir__ledger_owner *owner)
{
    weir__name name = weir__ledger_name(owner->device, 0);
    weir__ledger_device *device = weir__table_find(&self->devices, name);
    if (device != NULL)
        return device;
    device = weir__host_alloc(sizeof *device);
    if (device == NULL)
        return NULL;
    *device = (weir__ledger_device){ .name = name, .owner = *owner };
    if (!weir__table_add(&self->devices, &device->name)) {
        weir__host_free(device);
        return NULL;
    }
    return device;
}

/* ---- positions ---- */

weir__ledger_position *weir__ledger_position_create(weir__ledger *self)
{
    weir__ledger_position *position = weir__host_alloc(sizeof *position);
    if (position == NULL)
        return NULL;
    *position = (weir__ledger_position){ .references = 1, .next = self->positions };
    if (self->positions != NULL)
        self->positions->before = position;
    self->positions = position;
    return position;
}

weir__ledger_position *weir__ledger_position_of(weir__ledger *self,
                                                const weir__vector *clock)
{
    weir__ledger_position *position = weir__ledger_position_create(self);
    if (position != NULL && !weir__vector_copy(&position->clock, clock)) {
        weir__ledger_position_free(self, position);
        return NULL;
    }
    return position;
}

/* ---- streams ---- */

/* ---- coming and going ---- */

bool weir__ledger_add_stream(weir__ledger *self, const weir__ledger_owner *owner,
                             uint64_t id, bool is_legacy, bool is_blocking)
{
    weir__ledger_device *device = weir__ledger_device_of(self, owner);
    weir__ledger_stream *stream = weir__host_alloc(sizeof *stream);
    if (device == NULL || stream == NULL) {
        weir__host_free(stream);
        return false;
    }
    *stream = (weir__ledger_stream){ .name = { 0, id }, .device = device,
                                     .is_legacy = is_legacy,
                                     .is_blocking = is_blocking && !is_legacy };
    if (!weir__table_add(&self->streams, &stream->name)) {
        weir__host_free(stream);
        return false;
    }
    if (is_legacy) {
        WEIR_CHECK(device->legacy == NULL, "a second legacy stream");
        device->legacy = stream;
    }
    return true;
}

/* The history may still name it; nobody else can. */
static void stream_stop(weir__ledger *self, weir__ledger_stream *stream)
{
    if (stream->device->legacy == stream)
        stream->device->legacy = NULL;
    stream->device = NULL;
    weir__vector_free(&stream->clock);
    self->ended++;
}

bool weir__ledger_end_stream(weir__ledger *self, weir__ledger_stream *stream)
{
    if (!weir__vector_join(&stream->device->ended, &stream->clock))
        return false;
    stream_stop(self, stream);
    return true;
}

bool weir__ledger_join_all(weir__ledger *self, const weir__ledger_device *device,
                           weir__vector *clock)
{
    bool joined = weir__vector_join(clock, &device->ended);
    for (size_t i = 0; joined && i < self->streams.count; i++) {
        const weir__ledger_stream *stream =
            (const weir__ledger_stream *)self->streams.items[i];
        if (stream->device == device)
            joined = weir__vector_join(clock, &stream->clock);
    }
    return joined;
}

static void streams_stop(weir__ledger *self, const weir__ledger_device *device)
{
    for (size_t i = 0; i < self->streams.count; i++) {
        weir__ledger_stream *stream = (weir__ledger_stream *)self->streams.items[i];
        if (stream->device == device)
            stream_stop(self, stream);
    }
}

static void memories_end(weir__ledger *self, const weir__ledger_device *device)
{
    for (size_t i = self->memories.count; i-- > 0; ) {
        weir__ledger_memory *memory = (weir__ledger_memory *)self->memories.items[i];
        if (memory->device != device)
            continue;
        weir__history_end(&self->history, memory->name.number, memory->end);
        weir__table_remove(&self->memories, &memory->name);
        weir__host_free(memory);
    }
}

static void keys_end(weir__ledger *self, const void *device)
{
    for (size_t i = self->keys.count; i-- > 0; ) {
        weir__ledger_holder *holder = (weir__ledger_holder *)self->keys.items[i];
        if (holder->name.realm != (uintptr_t)device)
            continue;
        weir__table_remove(&self->keys, &holder->name);
        weir__ledger_holder_free(holder);
    }
}

void weir__ledger_end_device(weir__ledger *self, void *device)
{
    keys_end(self, device);
    weir__ledger_device *known = weir__table_find(&self->devices,
                                                  weir__ledger_name(device, 0));
    if (known == NULL)
        return;
    memories_end(self, known);
    streams_stop(self, known);
    weir__table_remove(&self->devices, &known->name);
    device_free(known);
}

void weir__ledger_empty(weir__ledger *self)
{
    WEIR_ASSERT(self->positions == NULL, "somebody still holds a position");
    while (self->positions != NULL)
        weir__ledger_position_free(self, self->positions);
    for (size_t i = 0; i < self->streams.count; i++)
        stream_free((weir__ledger_stream *)self->streams.items[i]);
    for (size_t i = 0; i < self->threads.count; i++)
        weir__ledger_holder_free((weir__ledger_holder *)self->threads.items[i]);
    for (size_t i = 0; i < self->keys.count; i++)
        weir__ledger_holder_free((weir__ledger_holder *)self->keys.items[i]);
    for (size_t i = 0; i < self->devices.count; i++)
        device_free((weir__ledger_device *)self->devices.items[i]);
    for (size_t i = 0; i < self->memories.count; i++)
        weir__host_free(self->memories.items[i]);
    while (self->processes != NULL) {
        weir__ledger_process *process = self->processes;
        self->processes = process->next;
        weir__host_free(process);
    }
    weir__table_free(&self->streams);
    weir__table_free(&self->threads);
    weir__table_free(&self->keys);
    weir__table_free(&self->devices);
    weir__table_free(&self->memories);
    weir__history_free(&self->history);
    weir__vector_free(&self->floor);
    weir__vector_free(&self->told);
    weir__vector_free(&self->scratch);
    weir__host_free(self->found);
}
