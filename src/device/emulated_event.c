/* emulated_event.c - events: names for positions on queues.
 *
 * Recording moves an event; who was made to wait for it keeps the position that it had
 * then. An event that is destroyed is used again for the next one, as streams are.
 * Events that other processes have too: emulated_shared_event.c. */
#include "device/emulated_shared.h"

#define EVENT_MAGIC     UINT64_C(0x574549524556454e)
#define EVENTS_PER_SLAB 64

typedef struct event_slab {
    weir__slab slab;
    weir__event events[EVENTS_PER_SLAB];
} event_slab;

/* ---- handles ---- */

static weir_status fail_event(weir_event event, const char *why)
{
    return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_BAD_HANDLE,
                             "%p is no event of this device: %s", (void *)event, why);
}

weir_status weir__event_find(weir__emulated *device, weir_event event,
                             weir__event **out)
{
    if (!weir__emulated_may_keep(event))
        return fail_event(event, "it never was one");
    weir__event *found = (weir__event *)(void *)event;
    if (found->magic != EVENT_MAGIC)
        return fail_event(event, "it never was one");
    if (found->device != device)
        return fail_event(event, "it belongs to another device");
    if (!found->is_live)
        return fail_event(event, "it was destroyed");
    *out = found;
    return WEIR_OK;
}

static weir_status events_grow(weir__emulated *device)
{
    event_slab *slab = weir__emulated_keep(device, sizeof *slab);
    if (slab == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for events");
    for (size_t i = EVENTS_PER_SLAB; i-- > 0;) {
        slab->events[i] = (weir__event){ .magic = EVENT_MAGIC, .device = device,
                                         .next_free = device->free_events };
        device->free_events = &slab->events[i];
    }
    return WEIR_OK;
}

weir_status weir__event_make(weir__emulated *device, weir_event *out)
{
    if (device->free_events == NULL) {
        weir_status status = events_grow(device);
        if (status != WEIR_OK)
            return status;
    }
    weir__event *event = device->free_events;
    device->free_events = event->next_free;
    event->is_live = true;
    *out = (weir_event)(void *)event;
    return WEIR_OK;
}

/* As if it had never been recorded. */
static void event_clear(weir__event *event)
{
    weir__queue_unref(event->at.queue);
    event->at = (weir__position){ .queue = NULL };
    if (event->learned != NULL)
        weir__ledger_unref(event->device->ledger, event->learned);
    event->learned = NULL;
    event->capture = 0;
    event->node = NULL;
}

static void event_free(weir__emulated *device, weir__event *event)
{
    event_clear(event);
    weir__shared_state_unref(event->shared);
    event->shared = NULL;
    event->is_live = false;
    event->next_free = device->free_events;
    device->free_events = event;
}

void weir__events_free(weir__emulated *device)
{
    for (weir__slab *slab = device->slabs; slab != NULL; slab = slab->next) {
        event_slab *events = (event_slab *)(void *)slab;
        if (events->events[0].magic != EVENT_MAGIC)
            continue;
        for (size_t i = 0; i < EVENTS_PER_SLAB; i++) {
            event_clear(&events->events[i]);
            weir__shared_state_unref(events->events[i].shared);
        }
    }
}

weir_status weir__emulated_event_create(void *device, weir_event *out)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_event_create);
    if (status == WEIR_OK)
        status = weir__event_make(self, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

static weir_status begin_on(weir__emulated *self, weir__call call, weir_event event,
                            weir__event **out)
{
    *out = NULL;
    weir_status status = weir__emulated_begin(self, call);
    return status == WEIR_OK ? weir__event_find(self, event, out) : status;
}

weir_status weir__emulated_event_destroy(void *device, weir_event event)
{
    weir__emulated *self = device;
    weir__event *found;
    weir_status status = begin_on(self, WEIR__CALL_event_destroy, event, &found);
    if (status == WEIR_OK)
        event_free(self, found);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* ---- recording ---- */

static weir_status record_locked(weir__emulated *self, weir__event *event,
                                 weir__queue *queue)
{
    static const weir__work marker = { .kind = WEIR__WORK_MARKER };
    weir__branch *branch;
    weir__node *node = NULL;
    weir__work *put = NULL;
    weir_status status = WEIR_OK;
    if (event->shared != NULL)
        status = weir__shared_event_admit(event, queue);
    if (status == WEIR_OK)
        status = weir__capture_admit(queue, &branch);
    if (status == WEIR_OK && branch != NULL)
        status = weir__capture_add(branch, &marker, NULL, NULL, 0, &node);
    else if (status == WEIR_OK)
        status = weir__queue_put(queue, &marker, 0, NULL, &put);
    if (status != WEIR_OK)
        return status;

    event_clear(event);
    event->at = weir__queue_position(weir__queue_ref(queue));
    event->node = node;
    event->capture = branch != NULL ? branch->graph->number : 0;
    uint64_t thread = weir__this_thread();
    if (self->ledger != NULL && branch == NULL)
        event->learned = queue->is_behind_all
                             ? weir__ledger_record_all(self->ledger, thread, self)
                             : weir__ledger_record(self->ledger, thread, queue->id);
    if (event->shared != NULL)
        weir__shared_event_recorded(event, put);
    return WEIR_OK;
}

weir_status weir__emulated_event_record(void *device, weir_event event,
                                        weir_stream stream)
{
    weir__emulated *self = device;
    weir__event *found;
    weir__queue *queue;
    weir_status status = begin_on(self, WEIR__CALL_event_record, event, &found);
    if (status == WEIR_OK)
        status = weir__stream_find(self, stream, &queue);
    if (status == WEIR_OK)
        status = record_locked(self, found, queue);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* The queue is no stream: nobody names it, waits for it, or captures it. Its work gives
 * the event a position like any other, with all that there is in front of it. */
static weir_status everything_find(weir__emulated *self, weir__queue **out)
{
    weir_status status = WEIR_OK;
    if (self->everything == NULL)
        status = weir__queue_make(self, false, false, &self->everything);
    if (status != WEIR_OK)
        return status;
    self->everything->is_behind_all = true;
    *out = self->everything;
    return WEIR_OK;
}

static weir_status record_all_locked(weir__emulated *self, weir__event *event)
{
    weir__queue *queue;
    if (event->shared != NULL)
        return weir__fail_native(WEIR_NOT_SUPPORTED, WEIR__NATIVE_NOT_SUPPORTED,
                                 "an event for other processes is recorded on one "
                                 "stream, not behind all");
    weir_status status = weir__capture_forbid(self, NULL);
    if (status == WEIR_OK)
        status = everything_find(self, &queue);
    if (status == WEIR_OK)
        status = record_locked(self, event, queue);
    return status;
}

weir_status weir__emulated_event_record_all(void *device, weir_event event)
{
    weir__emulated *self = device;
    weir__event *found;
    weir_status status = begin_on(self, WEIR__CALL_event_record_all, event, &found);
    if (status == WEIR_OK)
        status = record_all_locked(self, found);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* ---- waiting and asking ---- */

static weir_status stream_wait_locked(weir__emulated *self, weir__queue *queue,
                                      weir__event *event)
{
    static const weir__work marker = { .kind = WEIR__WORK_MARKER };
    if (weir__event_is_foreign(event))
        return weir__shared_event_stream_wait(event, queue);
    if (event->at.queue == NULL)
        return WEIR_OK;
    bool taken;
    weir_status status = weir__capture_wait(queue, event, &taken);
    if (status != WEIR_OK || taken)
        return status;
    status = weir__queue_put(queue, &marker, 0, &event->at, NULL);
    if (status == WEIR_OK && self->ledger != NULL)
        weir__ledger_stream_wait(self->ledger, weir__this_thread(), queue->id,
                                 event->learned);
    return status;
}

weir_status weir__emulated_stream_wait_event(void *device, weir_stream stream,
                                             weir_event event)
{
    weir__emulated *self = device;
    weir__event *found;
    weir__queue *queue;
    weir_status status = begin_on(self, WEIR__CALL_stream_wait_event, event, &found);
    if (status == WEIR_OK)
        status = weir__stream_find(self, stream, &queue);
    if (status == WEIR_OK)
        status = stream_wait_locked(self, queue, found);
    weir__mutex_unlock(&self->lock);
    return status;
}

static weir_status query_locked(weir__emulated *self, weir__event *event, bool *done)
{
    if (weir__event_is_foreign(event))
        return weir__shared_event_query(event, done);
    weir_status status = weir__capture_forbid_event(self, event);
    if (status != WEIR_OK)
        return status;
    *done = event->at.queue == NULL || weir__schedule_query(self, event->at);
    if (*done && event->learned != NULL)
        weir__ledger_host_wait(self->ledger, weir__this_thread(), event->learned);
    return WEIR_OK;
}

weir_status weir__emulated_event_query(void *device, weir_event event, bool *done)
{
    weir__emulated *self = device;
    weir__event *found;
    weir_status status = begin_on(self, WEIR__CALL_event_query, event, &found);
    if (status == WEIR_OK)
        status = query_locked(self, found, done);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* The event may be recorded again, or destroyed, while the host waits: what counts is
 * where it was. */
static weir_status sync_locked(weir__emulated *self, weir__event *event)
{
    if (weir__event_is_foreign(event))
        return weir__shared_event_sync(event);
    weir_status status = weir__capture_forbid_event(self, event);
    if (status != WEIR_OK || event->at.queue == NULL)
        return status;
    weir__position at = event->at;
    weir__ledger_position *learned = event->learned;
    weir__queue_ref(at.queue);
    if (learned != NULL)
        weir__ledger_ref(self->ledger, learned);
    status = weir__schedule_wait(self, at);
    if (status == WEIR_OK)
        weir__mempools_learn(self, at);
    weir__queue_unref(at.queue);
    if (learned != NULL && status == WEIR_OK)
        weir__ledger_host_wait(self->ledger, weir__this_thread(), learned);
    if (learned != NULL)
        weir__ledger_unref(self->ledger, learned);
    return status;
}

weir_status weir__emulated_event_sync(void *device, weir_event event)
{
    weir__emulated *self = device;
    weir__event *found;
    weir_status status = begin_on(self, WEIR__CALL_event_sync, event, &found);
    if (status == WEIR_OK)
        status = sync_locked(self, found);
    weir__mutex_unlock(&self->lock);
    return status;
}
