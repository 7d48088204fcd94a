/* emulated_capture.c - graph capture: what is put on a capturing stream does not run,
 * but becomes part of a graph; and what a real driver would refuse in the meantime is
 * refused here and spoils the capture.
 *
 *     origin   ---- record e ---- kernel ------- wait f ----   the capture's end
 *                       \                         /
 *     other          wait e ---- copy ---- record f            joined, and back
 *
 * A capture begins on one stream, its origin. Another joins it by waiting for an event
 * that was recorded in it, and must be behind the origin again, all of it, when the
 * origin ends the capture. Then all of them are ordinary streams again.
 *
 * As with a real driver: nobody may ask about or wait for a capturing stream (not even
 * for its number, only whether it is captured), an event that it recorded, or the whole
 * device; no operation may go on the legacy stream while a blocking one captures; no
 * wait may lead into a capture from outside, and none from one capture into another.
 * Allocating is fine, as in relaxed mode. */
#include <string.h>

#include "device/emulated.h"

static weir_status fail_spoilt(void)
{
    return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURE_SPOILT,
                             "the capture of this stream has been spoilt before");
}

static void spoil(weir__queue *queue)
{
    if (queue->branch != NULL)
        queue->branch->graph->is_spoilt = true;
}

/* The capture that `event` was recorded in, if it still goes on. */
static weir__graph *capture_of(const weir__event *event)
{
    weir__graph *capture = event->node != NULL ? event->device->captures : NULL;
    while (capture != NULL && capture->number != event->capture)
        capture = capture->next;
    return capture;
}

/* ---- what is put on a stream ---- */

static bool has_blocking(const weir__graph *capture)
{
    const weir__branch *branch = &capture->origin;
    while (branch != NULL && (branch->queue == NULL || !branch->queue->is_blocking))
        branch = branch->next;
    return branch != NULL;
}

/* An operation on the legacy stream would be a barrier to streams that capture: the
 * first of their captures from `capture` on, or null. */
static weir__graph *next_barred(weir__graph *capture)
{
    while (capture != NULL && !has_blocking(capture))
        capture = capture->next;
    return capture;
}

static bool legacy_spoils(weir__emulated *device)
{
    weir__graph *capture = next_barred(device->captures);
    bool any = capture != NULL;
    for (; capture != NULL; capture = next_barred(capture->next))
        capture->is_spoilt = true;
    return any;
}

bool weir__capture_has(const weir__queue *queue)
{
    return queue->branch != NULL ||
           (queue->is_legacy && next_barred(queue->device->captures) != NULL);
}

static weir_status forbid_legacy(weir__emulated *device)
{
    if (!legacy_spoils(device))
        return WEIR_OK;
    return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURE_IMPLICIT,
                             "the legacy stream is used while a blocking stream is "
                             "captured; that capture is spoilt");
}

weir_status weir__capture_admit(weir__queue *queue, weir__branch **taken)
{
    *taken = queue->branch;
    if (queue->branch != NULL && queue->branch->graph->is_spoilt)
        return fail_spoilt();
    return queue->is_legacy ? forbid_legacy(queue->device) : WEIR_OK;
}

weir_status weir__capture_add(weir__branch *branch, const weir__work *work,
                              const char *what, const weir__ledger_access *accesses,
                              size_t count, weir__node **out)
{
    weir__graph *graph = branch->graph;
    weir__node *node = weir__host_alloc(sizeof *node +
                                        count * (sizeof *accesses + sizeof(void *)));
    if (node == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a graph's operation");
    *node = (weir__node){ .branch = branch, .work = *work,
                          .position = ++branch->count, .what = what, .count = count };
    if (count > 0)
        memcpy(node->accesses, accesses, count * sizeof *accesses);
    node->work.views = (void **)(node->accesses + count);
    if (work->kind == WEIR__WORK_GATE) /* who would open it for each launch? */
        node->work.kind = WEIR__WORK_MARKER;
    if (graph->last != NULL)
        graph->last->next = node;
    else
        graph->first = node;
    graph->last = node;
    if (out != NULL)
        *out = node;
    return WEIR_OK;
}

/* ---- waits ---- */

static weir_status add_wait(weir__branch *branch, const weir__event *event)
{
    static const weir__work marker = { .kind = WEIR__WORK_MARKER };
    weir__node *node;
    weir_status status = weir__capture_add(branch, &marker, NULL, NULL, 0, &node);
    if (status == WEIR_OK)
        node->after = event->node;
    return status;
}

/* The stream of `queue` joins `capture` by its wait for `event`. */
static weir_status capture_join(weir__graph *capture, weir__queue *queue,
                                const weir__event *event)
{
    weir__branch *branch = weir__host_alloc(sizeof *branch);
    if (branch == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a captured stream");
    *branch = (weir__branch){ .graph = capture, .queue = queue };
    weir_status status = add_wait(branch, event);
    if (status != WEIR_OK) {
        weir__host_free(branch);
        return status;
    }
    branch->next = capture->origin.next;
    capture->origin.next = branch;
    queue->branch = branch;
    return WEIR_OK;
}

static weir_status fail_wait(weir__queue *queue, weir__graph *capture)
{
    bool merges = capture != NULL && queue->branch != NULL;
    spoil(queue);
    if (capture != NULL)
        capture->is_spoilt = true;
    if (merges)
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURE_MERGE,
                                 "a wait leads from one capture into another; both are "
                                 "spoilt");
    return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURE_ISOLATION,
                             "a wait leads into or out of a capture; it is spoilt");
}

weir_status weir__capture_wait(weir__queue *queue, weir__event *event, bool *taken)
{
    weir__graph *capture = capture_of(event);
    weir__branch *branch = queue->branch;
    *taken = capture != NULL;
    if (event->capture == 0 && branch == NULL)
        return weir__capture_admit(queue, &branch);
    if (capture == NULL || queue->is_legacy ||
        (branch != NULL && branch->graph != capture))
        return fail_wait(queue, capture);
    if (capture->is_spoilt)
        return fail_spoilt();
    return branch != NULL ? add_wait(branch, event)
                          : capture_join(capture, queue, event);
}

/* ---- what the host may not ask ---- */

/* The legacy stream stands for the blocking ones too. */
weir_status weir__capture_forbid(weir__emulated *device, weir__queue *queue)
{
    if (queue != NULL && queue->is_legacy)
        return forbid_legacy(device);
    if (queue != NULL ? queue->branch == NULL : device->captures == NULL)
        return WEIR_OK;
    if (queue != NULL)
        spoil(queue);
    for (weir__graph *each = device->captures; queue == NULL && each != NULL;
         each = each->next)
        each->is_spoilt = true;
    return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURE_UNSUPPORTED,
                             "the host asks about or waits for a stream that is "
                             "captured; the capture is spoilt");
}

weir_status weir__capture_forbid_event(weir__emulated *device, weir__event *event)
{
    (void)device;
    if (event->capture == 0)
        return WEIR_OK;
    weir__graph *capture = capture_of(event);
    if (capture != NULL)
        capture->is_spoilt = true;
    return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURED_EVENT,
                             "the event was last recorded in a capture, and says "
                             "nothing about work that runs");
}

/* ---- beginning and end ---- */

weir_status weir__capture_begin(weir__queue *queue)
{
    weir__emulated *device = queue->device;
    if (queue->is_legacy)
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURE_UNSUPPORTED,
                                 "the legacy stream cannot be captured");
    if (queue->branch != NULL)
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_BAD_STATE,
                                 "the stream is being captured already");
    weir__graph *graph = weir__host_alloc(sizeof *graph);
    if (graph == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a graph");
    *graph = (weir__graph){ .device = device, .number = ++device->capture_count,
                            .origin = { .graph = graph, .queue = queue } };
    graph->next = device->captures;
    device->captures = graph;
    queue->branch = &graph->origin;
    return WEIR_OK;
}

/* All its streams are ordinary ones again. */
static void capture_stop(weir__graph *capture)
{
    weir__graph **link = &capture->device->captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    for (weir__branch *branch = &capture->origin; branch; branch = branch->next) {
        if (branch->queue != NULL)
            branch->queue->branch = NULL;
        branch->queue = NULL;
    }
}

/* Whether the origin's end is behind every operation: it is, if each of the others ends
 * in what somebody waits for. For a wait is captured after what it waits for, so going
 * from each end to a wait for it, and on to the end of the stream that waits, comes to
 * the origin. */
static bool all_have_joined(weir__graph *graph)
{
    for (const weir__node *node = graph->first; node != NULL; node = node->next) {
        const weir__node *after = node->after;
        if (after != NULL && after->position > after->branch->awaited)
            after->branch->awaited = after->position;
    }
    const weir__branch *branch = graph->origin.next;
    while (branch != NULL && branch->awaited == branch->count)
        branch = branch->next;
    return branch == NULL;
}

static size_t node_count(const weir__graph *graph)
{
    size_t count = 0;
    for (const weir__branch *branch = &graph->origin; branch; branch = branch->next)
        count += branch->count;
    return count;
}

static weir_status judge(weir__graph *graph)
{
    if (graph->is_spoilt)
        return fail_spoilt();
    if (!all_have_joined(graph))
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURE_UNJOINED,
                                 "a stream joined the capture, and the stream that "
                                 "ends it has not waited for all that was put on it");
    return WEIR_OK;
}

weir_status weir__capture_end(weir__queue *queue, weir__graph **out, size_t *captured)
{
    weir__branch *branch = queue->branch;
    *captured = 0;
    if (out != NULL)
        *out = NULL;
    if (branch == NULL)
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_BAD_STATE,
                                 "the stream is not being captured");
    weir__graph *graph = branch->graph;
    if (branch != &graph->origin)
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_CAPTURE_UNMATCHED,
                                 "the capture did not begin on this stream");
    capture_stop(graph);
    weir_status status = judge(graph);
    if (status == WEIR_OK)
        *captured = node_count(graph);
    if (status != WEIR_OK || out == NULL) {
        weir__graph_free(graph);
        return status;
    }
    graph->next = graph->device->graphs;
    graph->device->graphs = graph;
    *out = graph;
    return WEIR_OK;
}

void weir__capture_drop(weir__queue *queue)
{
    weir__branch *branch = queue->branch;
    if (branch == NULL)
        return;
    if (branch == &branch->graph->origin) {
        capture_stop(branch->graph);
        weir__graph_free(branch->graph);
        return;
    }
    spoil(queue);
    branch->queue = NULL;
    queue->branch = NULL;
}
