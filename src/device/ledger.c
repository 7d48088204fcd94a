/* ledger.c - the ledger from outside: who learns what from whom, call by call.
 *
 * Each function locks, changes the clocks, has ledger_check.c judge what is touched,
 * and prunes now and then. A stream counts one up in each call that puts something
 * on it or lets it learn something: what it knew at an epoch never changes
 * afterwards.
 *
 * Cost of a call: the length of the clocks involved (streams that anybody still has
 * to know about), the pieces that a range covers times their open accesses, and on
 * the legacy stream the clocks of all blocking streams. */
#include "ledger.h"

#include "internal.h"
#include "ledger_parts.h"

/* ---- there is one for the process ---- */

/* Guards the_ledger and its opens. */
static weir__mutex open_lock = WEIR__MUTEX_INIT(WEIR__RANK_LEDGER);
static weir__ledger *the_ledger;

static weir__ledger *ledger_create(void)
{
    weir__ledger *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return NULL;
    *self = (weir__ledger){ .opens = 0 };
    weir__mutex_init(&self->lock, WEIR__RANK_LEDGER);
    weir__history_init(&self->history);
    return self;
}

weir__ledger *weir__ledger_open(void)
{
    weir__mutex_lock(&open_lock);
    if (the_ledger == NULL)
        the_ledger = ledger_create();
    if (the_ledger != NULL)
        the_ledger->opens++;
    weir__ledger *self = the_ledger;
    weir__mutex_unlock(&open_lock);
    return self;
}

void weir__ledger_close(weir__ledger *self)
{
    weir__mutex_lock(&open_lock);
    WEIR_CHECK(self == the_ledger && self->opens > 0, "closed too often");
    bool is_last = --self->opens == 0;
    if (is_last)
        the_ledger = NULL;
    weir__mutex_unlock(&open_lock);
    if (!is_last)
        return;
    weir__ledger_empty(self);
    weir__mutex_destroy(&self->lock);
    weir__host_free(self);
}

/* ---- in and out ---- */

bool weir__ledger_in(weir__ledger *self)
{
    weir__mutex_lock(&self->lock);
    if (!self->is_deaf)
        return true;
    weir__mutex_unlock(&self->lock);
    return false;
}

void weir__ledger_out(weir__ledger *self, bool recorded)
{
    WEIR_ASSERT(weir__mutex_is_mine(&self->lock), "out without being in");
    if (!recorded) {
        self->is_deaf = true;
        for (size_t i = 0; i < self->devices.count; i++) {
            const weir__ledger_device *device =
                (const weir__ledger_device *)self->devices.items[i];
            weir__ledger_tell_deaf(&device->owner);
        }
    }
    weir__ledger_prune_if_due(self);
    weir__mutex_unlock(&self->lock);
}

/* The same for a call that thread `number` makes: returns the thread, which the ledger
 * meets now if it is new. Null: deaf, and not locked. */
static weir__ledger_holder *come_in_as(weir__ledger *self, uint64_t number)
{
    if (!weir__ledger_in(self))
        return NULL;
    weir__ledger_holder *host = weir__ledger_thread_of(self, number);
    if (host == NULL)
        weir__ledger_out(self, false);
    return host;
}

/* ---- streams ---- */

void weir__ledger_stream_begin(weir__ledger *self, const weir__ledger_owner *owner,
                               uint64_t id, bool is_legacy, bool is_blocking)
{
    WEIR_CHECK(id != 0, "stream id 0 is the host");
    if (!weir__ledger_in(self)) {
        /* A device that opens only now would not hear of it otherwise. */
        if (is_legacy)
            weir__ledger_tell_deaf(owner);
        return;
    }
    weir__ledger_out(self, weir__ledger_add_stream(self, owner, id, is_legacy,
                                                   is_blocking));
}

void weir__ledger_stream_is_graphs(weir__ledger *self, uint64_t id)
{
    if (!weir__ledger_in(self))
        return;
    weir__ledger_stream_of(self, id)->is_graphs = true;
    weir__ledger_out(self, true);
}

void weir__ledger_stream_end(weir__ledger *self, uint64_t id)
{
    if (!weir__ledger_in(self))
        return;
    weir__ledger_stream *stream = weir__ledger_stream_of(self, id);
    weir__ledger_out(self, weir__ledger_end_stream(self, stream));
}

/* The stream learns what the thread is behind and, in an operation, what the legacy
 * stream's rules give it, and counts one up. */
static bool stream_advance(weir__ledger *self, weir__ledger_stream *stream,
                           const weir__ledger_holder *host, bool is_operation)
{
    if (!weir__vector_join(&stream->clock, &host->clock))
        return false;

    const weir__ledger_stream *legacy = stream->device->legacy;
    if (is_operation && stream->is_blocking && legacy != NULL &&
        !weir__vector_join(&stream->clock, &legacy->clock))
        return false;
    for (size_t i = 0; is_operation && stream->is_legacy && i < self->streams.count;
         i++) {
        const weir__ledger_stream *other =
            (const weir__ledger_stream *)self->streams.items[i];
        if (other->device == stream->device && other->is_blocking &&
            !weir__vector_join(&stream->clock, &other->clock))
            return false;
    }
    stream->time++;
    return weir__vector_raise(&stream->clock, (weir__epoch){ stream->name.number,
                                                             stream->time });
}

static weir__act act_of(const weir__ledger_stream *stream, bool is_operation,
                        const char *what)
{
    return (weir__act){ .device = stream->device, .stream = stream,
                        .clock = &stream->clock, .is_operation = is_operation,
                        .what = what,
                        .epoch = { stream->name.number, stream->time } };
}

static bool operation(weir__ledger *self, const weir__ledger_holder *host,
                      uint64_t id, const char *what,
                      const weir__ledger_access *accesses, size_t count)
{
    weir__ledger_stream *stream = weir__ledger_stream_of(self, id);
    if (!stream_advance(self, stream, host, true))
        return false;

    weir__act act = act_of(stream, true, what);
    act.may_touch_all = host->may_touch_all;
    bool recorded = true;
    for (size_t i = 0; recorded && i < count; i++) {
        uintptr_t end = weir__end_of(accesses[i].ptr, accesses[i].bytes);
        bool writes = (accesses[i].access & WEIR_EMULATED_WRITE) != 0;
        if (accesses[i].bytes > 0)
            recorded = weir__ledger_use(self, &act, accesses[i].ptr, end, writes);
    }
    weir__ledger_tell(self, &act);
    return recorded;
}

void weir__ledger_operation(weir__ledger *self, uint64_t thread, uint64_t id,
                            const char *what, const weir__ledger_access *accesses,
                            size_t count)
{
    const weir__ledger_holder *host = come_in_as(self, thread);
    if (host != NULL)
        weir__ledger_out(self, operation(self, host, id, what, accesses, count));
}

/* ---- events and waits ---- */

weir__ledger_position *weir__ledger_record(weir__ledger *self, uint64_t thread,
                                           uint64_t id)
{
    const weir__ledger_holder *host = come_in_as(self, thread);
    if (host == NULL)
        return NULL;
    weir__ledger_position *position = NULL;
    weir__ledger_stream *stream = weir__ledger_stream_of(self, id);
    if (stream_advance(self, stream, host, true))
        position = weir__ledger_position_of(self, &stream->clock);
    weir__ledger_out(self, position != NULL);
    return position;
}

weir__ledger_position *weir__ledger_look(weir__ledger *self, uint64_t id)
{
    if (!weir__ledger_in(self))
        return NULL;
    const weir__ledger_stream *stream = weir__ledger_stream_of(self, id);
    weir__ledger_position *position = weir__ledger_position_of(self, &stream->clock);
    weir__ledger_out(self, position != NULL);
    return position;
}

weir__ledger_position *weir__ledger_record_all(weir__ledger *self, uint64_t thread,
                                               void *device)
{
    if (come_in_as(self, thread) == NULL)
        return NULL;
    weir__ledger_position *position = weir__ledger_position_create(self);
    const weir__ledger_device *known =
        weir__table_find(&self->devices, weir__ledger_name(device, 0));
    if (position != NULL && known != NULL &&
        !weir__ledger_join_all(self, known, &position->clock)) {
        weir__ledger_position_free(self, position);
        position = NULL;
    }
    weir__ledger_out(self, position != NULL);
    return position;
}

void weir__ledger_ref(weir__ledger *self, weir__ledger_position *position)
{
    if (position == NULL)
        return;
    weir__mutex_lock(&self->lock);
    position->references++;
    weir__mutex_unlock(&self->lock);
}

void weir__ledger_unref(weir__ledger *self, weir__ledger_position *position)
{
    if (position == NULL)
        return;
    weir__mutex_lock(&self->lock);
    WEIR_CHECK(position->references > 0, "a position unreferenced too often");
    if (--position->references == 0)
        weir__ledger_position_free(self, position);
    weir__mutex_unlock(&self->lock);
}

void weir__ledger_stream_wait(weir__ledger *self, uint64_t thread, uint64_t id,
                              weir__ledger_position *position)
{
    const weir__ledger_holder *host = come_in_as(self, thread);
    if (host == NULL)
        return;
    weir__ledger_stream *stream = weir__ledger_stream_of(self, id);
    weir__ledger_out(self, stream_advance(self, stream, host, true) &&
                               (position == NULL ||
                                weir__vector_join(&stream->clock, &position->clock)));
}

void weir__ledger_host_wait(weir__ledger *self, uint64_t thread,
                            weir__ledger_position *position)
{
    weir__ledger_holder *host = come_in_as(self, thread);
    if (host != NULL)
        weir__ledger_out(self, position == NULL ||
                                   weir__vector_join(&host->clock, &position->clock));
}

/* ---- host threads ---- */

weir__ledger_position *weir__ledger_host_give(weir__ledger *self, uint64_t thread)
{
    const weir__ledger_holder *host = come_in_as(self, thread);
    if (host == NULL)
        return NULL;
    weir__ledger_position *position = weir__ledger_position_of(self, &host->clock);
    weir__ledger_out(self, position != NULL);
    return position;
}

void weir__ledger_host_take(weir__ledger *self, uint64_t thread,
                            weir__ledger_position *position)
{
    weir__ledger_host_wait(self, thread, position);
}

void weir__ledger_thread_end(weir__ledger *self, uint64_t number)
{
    if (!weir__ledger_in(self))
        return;
    weir__ledger_holder *thread = weir__table_find(&self->threads,
                                                   (weir__name){ 0, number });
    if (thread != NULL) {
        weir__table_remove(&self->threads, &thread->name);
        if (self->threads.count == 0) {
            weir__vector_free(&self->floor);
            self->floor = thread->clock;
            thread->clock = (weir__vector){ 0 };
        }
        weir__ledger_holder_free(thread);
    }
    weir__ledger_out(self, true);
}

void weir__ledger_done(weir__ledger *self, uint64_t thread, void *device, uint64_t key,
                       weir__ledger_position *position)
{
    const weir__ledger_holder *host = come_in_as(self, thread);
    if (host == NULL)
        return;
    const weir__vector *done = position != NULL ? &position->clock : &host->clock;
    bool is_news = done->count > 0;
    weir__ledger_holder *to = is_news ? weir__ledger_key_of(self, device, key) : NULL;
    weir__ledger_out(self, !is_news ||
                               (to != NULL && weir__vector_join(&to->clock, done)));
}

void weir__ledger_learn(weir__ledger *self, uint64_t thread, void *device, uint64_t key)
{
    weir__ledger_holder *host = come_in_as(self, thread);
    if (host == NULL)
        return;
    const weir__ledger_holder *holder =
        weir__table_find(&self->keys, weir__ledger_name(device, key));
    weir__ledger_out(self, holder == NULL ||
                               weir__vector_join(&host->clock, &holder->clock));
}

static bool forget(weir__ledger *self, const void *device, uint64_t key, bool is_kept)
{
    weir__ledger_holder *holder = weir__table_find(&self->keys,
                                                   weir__ledger_name(device, key));
    if (key == 0 || holder == NULL)
        return true;
    weir__ledger_holder *rest = is_kept ? weir__ledger_key_of(self, device, 0) : NULL;
    if (is_kept && (rest == NULL || !weir__vector_join(&rest->clock, &holder->clock)))
        return false;
    weir__table_remove(&self->keys, &holder->name);
    weir__ledger_holder_free(holder);
    return true;
}

void weir__ledger_forget(weir__ledger *self, void *device, uint64_t key, bool is_kept)
{
    if (weir__ledger_in(self))
        weir__ledger_out(self, forget(self, device, key, is_kept));
}

/* ---- memory and blocks ---- */

static bool memory_begin(weir__ledger *self, const weir__ledger_owner *owner,
                         uintptr_t ptr, size_t bytes)
{
    weir__ledger_device *device = weir__ledger_device_of(self, owner);
    weir__ledger_memory *memory = weir__host_alloc(sizeof *memory);
    if (device == NULL || memory == NULL) {
        weir__host_free(memory);
        return false;
    }
    *memory = (weir__ledger_memory){ .name = { 0, ptr }, .device = device,
                                     .end = weir__end_of(ptr, bytes) };
    if (!weir__table_add(&self->memories, &memory->name)) {
        weir__host_free(memory);
        return false;
    }
    return weir__history_begin(&self->history, ptr, memory->end);
}

void weir__ledger_memory_begin(weir__ledger *self, const weir__ledger_owner *owner,
                               uint64_t thread, uintptr_t ptr, size_t bytes)
{
    /* No edge: whoever puts work on it got the address from this thread. */
    if (bytes > 0 && come_in_as(self, thread) != NULL)
        weir__ledger_out(self, memory_begin(self, owner, ptr, bytes));
}

static bool memory_end(weir__ledger *self, const weir__ledger_holder *host,
                       uintptr_t ptr, const char *what, bool is_here_alone)
{
    weir__ledger_memory *memory = weir__table_find(&self->memories,
                                                   (weir__name){ 0, ptr });
    WEIR_CHECK(memory != NULL, "memory ends that never began");

    weir__act act = { .device = memory->device, .clock = &host->clock, .what = what,
                      .is_here_alone = is_here_alone };
    bool told = weir__ledger_end_memory(self, &act, ptr, memory->end);
    weir__ledger_tell(self, &act);
    weir__table_remove(&self->memories, &memory->name);
    weir__host_free(memory);
    return told;
}

void weir__ledger_memory_end(weir__ledger *self, uint64_t thread, uintptr_t ptr)
{
    const weir__ledger_holder *host = come_in_as(self, thread);
    if (host != NULL)
        weir__ledger_out(self, memory_end(self, host, ptr, "free", false));
}

void weir__ledger_memory_close(weir__ledger *self, uint64_t thread, uintptr_t ptr)
{
    const weir__ledger_holder *host = come_in_as(self, thread);
    if (host != NULL)
        weir__ledger_out(self, memory_end(self, host, ptr, "close", true));
}

static bool pool_draw(weir__ledger *self, const weir__ledger_owner *owner,
                      uintptr_t ptr, size_t bytes)
{
    return memory_begin(self, owner, ptr, bytes) &&
           weir__ledger_pool_hold(self, ptr, weir__end_of(ptr, bytes));
}

void weir__ledger_pool_draw(weir__ledger *self, const weir__ledger_owner *owner,
                            uint64_t thread, uintptr_t ptr, size_t bytes)
{
    if (come_in_as(self, thread) != NULL)
        weir__ledger_out(self, pool_draw(self, owner, ptr, bytes));
}

void weir__ledger_pool_return(weir__ledger *self, uintptr_t ptr)
{
    if (!weir__ledger_in(self))
        return;
    weir__ledger_memory *memory = weir__table_find(&self->memories,
                                                   (weir__name){ 0, ptr });
    if (memory != NULL) {
        weir__history_end(&self->history, ptr, memory->end);
        weir__table_remove(&self->memories, &memory->name);
        weir__host_free(memory);
    }
    weir__ledger_out(self, true);
}

static bool pool_begin(weir__ledger *self, const weir__ledger_holder *host, uint64_t id,
                       uintptr_t ptr, size_t bytes, bool is_graph)
{
    weir__ledger_stream *stream = weir__ledger_stream_of(self, id);
    if (!stream_advance(self, stream, host, false))
        return false;
    weir__act act = act_of(stream, false, is_graph ? "graph malloc" : "pool malloc");
    bool recorded = weir__ledger_pool_begin(self, &act, ptr, weir__end_of(ptr, bytes),
                                            !is_graph);
    weir__ledger_tell(self, &act);
    return recorded;
}

void weir__ledger_pool_malloc(weir__ledger *self, uint64_t thread, uint64_t id,
                              uintptr_t ptr, size_t bytes)
{
    const weir__ledger_holder *host = come_in_as(self, thread);
    if (host != NULL)
        weir__ledger_out(self, pool_begin(self, host, id, ptr, bytes, false));
}

void weir__ledger_graph_malloc(weir__ledger *self, uint64_t thread, uint64_t id,
                               uintptr_t ptr, size_t bytes)
{
    const weir__ledger_holder *host = come_in_as(self, thread);
    if (host != NULL)
        weir__ledger_out(self, pool_begin(self, host, id, ptr, bytes, true));
}

uint64_t weir__ledger_pool_free(weir__ledger *self, uint64_t thread, uint64_t id,
                                uintptr_t ptr, size_t bytes)
{
    const weir__ledger_holder *host = come_in_as(self, thread);
    if (host == NULL)
        return 0;
    weir__ledger_stream *stream = weir__ledger_stream_of(self, id);
    bool recorded = stream_advance(self, stream, host, false);
    uint64_t time = stream->time;
    if (recorded) {
        weir__act act = act_of(stream, false, "pool free");
        recorded = weir__ledger_pool_take_back(self, &act, ptr,
                                               weir__end_of(ptr, bytes));
        weir__ledger_tell(self, &act);
    }
    weir__ledger_out(self, recorded);
    return recorded ? time : 0;
}

bool weir__ledger_is_behind(weir__ledger *self, uint64_t id, uint64_t other,
                            uint64_t time)
{
    if (time == 0 || !weir__ledger_in(self))
        return false;
    bool is_behind = weir__vector_time(&weir__ledger_stream_of(self, id)->clock,
                                       other) >= time;
    weir__ledger_out(self, true);
    return is_behind;
}

/* For a capture, on whose stream nothing runs yet: behind what the thread knows. */
static bool extend_for_capture(weir__ledger *self, const weir__ledger_holder *host,
                               uint64_t id, uintptr_t ptr, size_t had, size_t bytes)
{
    const weir__ledger_memory *memory =
        weir__table_find_at_or_before(&self->memories, (weir__name){ 0, ptr });
    if (memory == NULL)
        return true;
    weir__act act = { .device = memory->device, .clock = &host->clock,
                      .what = "allocate", .capture = id };
    bool recorded = weir__ledger_hand_out(self, &act, ptr, had, bytes);
    weir__ledger_tell(self, &act);
    return recorded;
}

static bool extend(weir__ledger *self, const weir__ledger_holder *host, uint64_t id,
                   uintptr_t ptr, size_t had, size_t bytes)
{
    if ((id & WEIR__LEDGER_CAPTURE) != 0)
        return extend_for_capture(self, host, id, ptr, had, bytes);

    weir__ledger_stream *stream = weir__ledger_stream_of(self, id);
    if (!stream_advance(self, stream, host, false))
        return false;
    weir__act act = act_of(stream, false, "allocate");
    bool recorded = weir__ledger_hand_out(self, &act, ptr, had, bytes);
    weir__ledger_tell(self, &act);
    return recorded;
}

void weir__ledger_extend(weir__ledger *self, uint64_t thread, uint64_t id,
                         uintptr_t ptr, size_t bytes, size_t new_bytes)
{
    const weir__ledger_holder *host =
        new_bytes > bytes ? come_in_as(self, thread) : NULL;
    if (host != NULL)
        weir__ledger_out(self, extend(self, host, id, ptr, bytes, new_bytes));
}

static bool deallocate(weir__ledger *self, const weir__ledger_holder *host,
                       uint64_t id, uintptr_t ptr, size_t bytes)
{
    bool is_on_stream = id != 0 && (id & WEIR__LEDGER_CAPTURE) == 0;
    if (bytes > 0 ? !weir__ledger_has_block(self, ptr, bytes) : !is_on_stream)
        return true;
    if (!is_on_stream)
        return weir__ledger_take_back(self, NULL, ptr, bytes, id);

    weir__ledger_stream *stream = weir__ledger_stream_of(self, id);
    if (bytes == 0)
        return weir__vector_join(&stream->clock, &host->clock);
    if (!stream_advance(self, stream, host, false))
        return false;
    weir__act act = act_of(stream, false, "deallocate");
    bool recorded = weir__ledger_take_back(self, &act, ptr, bytes, 0);
    weir__ledger_tell(self, &act);
    return recorded;
}

void weir__ledger_deallocate(weir__ledger *self, uint64_t thread, uint64_t id,
                             uintptr_t ptr, size_t bytes)
{
    const weir__ledger_holder *host = come_in_as(self, thread);
    if (host != NULL)
        weir__ledger_out(self, deallocate(self, host, id, ptr, bytes));
}

void weir__ledger_release(weir__ledger *self, uint64_t capture)
{
    if (weir__ledger_in(self))
        weir__ledger_out(self, weir__ledger_end_capture(self, capture));
}

void weir__ledger_guard(weir__ledger *self, uint64_t thread, uintptr_t ptr,
                        size_t bytes, uintptr_t block, size_t block_bytes)
{
    if (bytes > 0 && come_in_as(self, thread) != NULL)
        weir__ledger_out(self, weir__ledger_set_guard(self, ptr,
                                                      weir__end_of(ptr, bytes), block,
                                                      block_bytes));
}

void weir__ledger_inspect(weir__ledger *self, uint64_t thread, bool begins)
{
    weir__ledger_holder *host = come_in_as(self, thread);
    if (host == NULL)
        return;
    host->may_touch_all = begins;
    weir__ledger_out(self, true);
}

void weir__ledger_device_end(weir__ledger *self, void *device)
{
    weir__mutex_lock(&self->lock);
    weir__ledger_end_device(self, device);
    weir__ledger_out(self, true);
}
