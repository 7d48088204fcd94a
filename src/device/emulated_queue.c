/* emulated_queue.c - queues of work, and what makes work wait for other queues.
 *
 * A queue gets its work done in order; a position on it is a number. Work depends on
 * positions of other queues: what a stream was made to wait for, and what the legacy
 * stream's rules say. All of it is under the device's lock.
 *
 * Without work (NO_WORK) a queue only counts: `done` is then how far a host wait has
 * come, no work is kept, and nothing is active. */
#include <string.h>

#include "device/emulated_shared.h"

static atomic_uint_least64_t ids; /* of streams, in the whole process */

weir_status weir__queue_make(weir__emulated *device, bool is_legacy, bool is_blocking,
                             weir__queue **out)
{
    weir__queue *queue = weir__host_alloc(sizeof *queue);
    if (queue == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a stream");
    memset(queue, 0, sizeof *queue);
    queue->device = device;
    queue->id = atomic_fetch_add(&ids, 1) + 1;
    queue->references = 1;
    queue->is_legacy = is_legacy;
    queue->is_blocking = is_blocking;
    weir__cond_init(&queue->wake);
    if (device->ledger != NULL)
        weir__ledger_stream_begin(device->ledger, &device->owner, queue->id, is_legacy,
                                  is_blocking);
    *out = queue;
    return WEIR_OK;
}

weir__queue *weir__queue_ref(weir__queue *queue)
{
    queue->references++;
    return queue;
}

void weir__queue_unref(weir__queue *queue)
{
    if (queue == NULL)
        return;
    WEIR_CHECK(queue->references > 0, "a queue is let go of too often");
    if (--queue->references > 0)
        return;
    WEIR_CHECK(queue->first == NULL && !queue->is_active, "a queue dies with work");
    weir__cond_destroy(&queue->wake);
    weir__host_free(queue);
}

void weir__queue_detach(weir__queue *queue)
{
    weir__emulated *device = queue->device;
    queue->is_detached = true;
    weir__capture_drop(queue);
    if (device->ledger != NULL)
        weir__ledger_stream_end(device->ledger, queue->id);
    weir__cond_broadcast(&queue->wake);
    weir__queue_unref(queue);
}

weir__position weir__queue_position(weir__queue *queue)
{
    return (weir__position){ .queue = queue, .position = queue->put,
                             .issue = queue->last_issue };
}

/* ---- the list of active queues ---- */

static void queue_activate(weir__queue *queue)
{
    weir__emulated *device = queue->device;
    WEIR_ASSERT(!queue->is_active, "a queue is listed twice");
    queue->is_active = true;
    queue->previous = device->active_last;
    queue->next = NULL;
    if (device->active_last != NULL)
        device->active_last->next = queue;
    else
        device->active = queue;
    device->active_last = queue;
    weir__queue_ref(queue);
}

static void queue_rest(weir__queue *queue)
{
    weir__emulated *device = queue->device;
    WEIR_ASSERT(queue->is_active, "a queue rests that had no work");
    queue->is_active = false;
    if (queue->previous != NULL)
        queue->previous->next = queue->next;
    else
        device->active = queue->next;
    if (queue->next != NULL)
        queue->next->previous = queue->previous;
    else
        device->active_last = queue->previous;
    weir__queue_unref(queue);
}

/* ---- dependencies ---- */

/* Counts `queue` as one to wait for; keeps the position, where there is room. */
static void dependency_add(weir__queue *queue, weir__position *room, size_t *count)
{
    if (room != NULL)
        room[*count] = weir__queue_position(queue);
    ++*count;
}

/* Whether work put by the rules of `queue` is behind all that `other` has. The legacy
 * stream waits for the blocking ones. */
static bool waits_for(const weir__queue *queue, const weir__queue *other)
{
    return other != queue &&
           (queue->is_behind_all || (queue->is_legacy && other->is_blocking));
}

/* Counts what work put by the rules of `queue` now must wait for; keeps it, where there
 * is room. Of streams that wait for the legacy one all are blocking. Whether another
 * process is done is not asked here, for it may change from one look to the next. */
static size_t dependencies_find(const weir__queue *queue, const weir__position *after,
                                weir__position *room)
{
    const weir__emulated *device = queue->device;
    size_t count = 0;
    if (after != NULL &&
        (after->foreign != NULL || after->queue->done < after->position)) {
        if (room != NULL)
            room[count] = *after;
        count++;
    }
    if (queue->is_blocking && !queue->is_legacy && device->legacy->is_active)
        dependency_add(device->legacy, room, &count);
    bool has_rule = queue->is_legacy || queue->is_behind_all;
    weir__queue *other = has_rule ? device->active : NULL;
    for (; other != NULL; other = other->next) {
        if (waits_for(queue, other))
            dependency_add(other, room, &count);
    }
    return count;
}

static void dependency_ref(weir__emulated *device, const weir__position *on)
{
    if (on->foreign != NULL) {
        weir__shared_state_ref(on->foreign);
        device->awaited++;
    } else {
        weir__queue_ref(on->queue);
    }
}

static void dependency_drop(weir__emulated *device, weir__position *on)
{
    if (on->foreign != NULL) {
        weir__shared_state_unref(on->foreign);
        device->awaited--;
    }
    weir__queue_unref(on->queue);
    *on = (weir__position){ .queue = NULL };
}

bool weir__work_look(weir__emulated *device, weir__work *work)
{
    bool is_held = false;
    for (size_t i = 0; i < work->dependency_count; i++) {
        weir__position *on = &work->dependencies[i];
        if (on->foreign == NULL)
            continue;
        if (weir__shared_state_is_done(on->foreign, on->position))
            dependency_drop(device, on);
        else
            is_held = true;
    }
    return is_held;
}

/* It is done, or nothing will ever be done by it. */
static void work_free(weir__emulated *device, weir__work *work)
{
    for (size_t i = 0; i < work->dependency_count; i++)
        dependency_drop(device, &work->dependencies[i]);
    if (work->tells != NULL) {
        weir__shared_state_tell(work->tells, work->record);
        weir__shared_state_unref(work->tells);
    }
    weir__host_free(work);
}

/* A copy of `from` in one piece with its dependencies and views; null: no memory. */
static weir__work *work_make(const weir__queue *rules, const weir__work *from,
                             size_t view_count, const weir__position *after)
{
    size_t count = dependencies_find(rules, after, NULL);
    size_t bytes = sizeof *from + count * sizeof(weir__position) +
                   view_count * sizeof(void *);
    weir__work *work = weir__host_alloc(bytes);
    if (work == NULL)
        return NULL;
    *work = *from;
    work->next = work->next_gate = NULL;
    work->dependencies = (weir__position *)(work + 1);
    work->dependency_count = dependencies_find(rules, after, work->dependencies);
    for (size_t i = 0; i < count; i++)
        dependency_ref(rules->device, &work->dependencies[i]);
    work->views = (void **)(work->dependencies + count);
    if (view_count > 0)
        memcpy(work->views, from->views, view_count * sizeof(void *));
    return work;
}

/* ---- putting and finishing ---- */

static void queue_count(weir__queue *queue)
{
    queue->put++;
    queue->last_issue = ++queue->device->issue;
}

weir_status weir__queue_put_by_rules(weir__queue *queue, const weir__queue *rules,
                                     const weir__work *work, size_t view_count,
                                     const weir__position *after, weir__work **out)
{
    weir__emulated *device = queue->device;
    if (out != NULL)
        *out = NULL;
    if (device->options.scheduler == WEIR_EMULATED_NO_WORK) {
        queue_count(queue);
        return WEIR_OK;
    }
    weir__work *copy = work_make(rules, work, view_count, after);
    if (copy == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for work on a stream");
    weir_status status = weir__schedule_worker(queue);
    if (status != WEIR_OK) {
        work_free(device, copy);
        return status;
    }
    queue_count(queue);
    copy->issue = queue->last_issue;
    if (queue->first == NULL) {
        queue->first = copy;
        queue_activate(queue);
    } else {
        queue->last->next = copy;
    }
    queue->last = copy;
    device->pending++;
    if (out != NULL)
        *out = copy;
    weir__schedule_put(queue);
    return WEIR_OK;
}

weir_status weir__queue_put(weir__queue *queue, const weir__work *work,
                            size_t view_count, const weir__position *after,
                            weir__work **out)
{
    weir__schedule_make_room(queue->device);
    return weir__queue_put_by_rules(queue, queue, work, view_count, after, out);
}

static void queue_pop(weir__queue *queue)
{
    weir__work *work = queue->first;
    queue->first = work->next;
    if (queue->first == NULL)
        queue->last = NULL;
    queue->device->pending--;
    work_free(queue->device, work);
}

void weir__queue_finish(weir__queue *queue)
{
    weir__emulated *device = queue->device;
    WEIR_CHECK(queue->first != NULL && queue->done < queue->put,
               "more work is done than was put");
    queue_pop(queue);
    queue->done = queue->first == NULL ? queue->put : queue->done + 1;
    if (queue->first == NULL)
        queue_rest(queue);
    weir__schedule_changed(device);
}

void weir__queue_discard(weir__queue *queue)
{
    weir__work *running = queue->is_running ? queue->first : NULL;
    weir__work *work = running == NULL ? queue->first : running->next;
    while (work != NULL) {
        weir__work *next = work->next;
        queue->device->pending--;
        work_free(queue->device, work);
        work = next;
    }
    queue->first = queue->last = running;
    if (running != NULL) {
        running->next = NULL;
        return;
    }
    queue->done = queue->put;
    weir__cond_broadcast(&queue->wake); /* a worker without a handle ends now */
    queue_rest(queue);
}
