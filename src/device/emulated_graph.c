/* emulated_graph.c - launching what was captured.
 *
 *     stream    ... put before ---.                          ,--- launch --- ...
 *     origin's shadow              `-- record -- kernel -- wait
 *     another's shadow                     `-- wait -- record
 *
 * A graph is the list of what its streams were given, in that order. A launch makes a
 * shadow for each of them, a stream of its own, and puts the list on these. The
 * origin's shadow begins behind what the launching stream holds, and behind the last
 * launch of the same graph; the launching stream then waits for its end, which is
 * behind everything. What was put stands by itself: the graph can go at once.
 *
 * The ledger is told in the same way. So it judges each launch as it would judge the
 * same work put on streams, and finds an edge that is missing inside a graph, or
 * between a graph and what is around it. */
#include "device/emulated.h"

void weir__graph_free(weir__graph *graph)
{
    weir__graph_memory_leave(graph);
    while (graph->first != NULL) {
        weir__node *node = graph->first;
        graph->first = node->next;
        weir__host_free(node);
    }
    while (graph->origin.next != NULL) {
        weir__branch *branch = graph->origin.next;
        graph->origin.next = branch->next;
        weir__host_free(branch);
    }
    weir__queue_unref(graph->launched.queue);
    if (graph->learned != NULL)
        weir__ledger_unref(graph->device->ledger, graph->learned);
    weir__host_free(graph);
}

weir_status weir__graph_find(weir__emulated *device, weir__graph *graph)
{
    const weir__graph *each = device->graphs;
    while (each != NULL && each != graph)
        each = each->next;
    if (each == NULL)
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_BAD_HANDLE,
                                 "%p is no graph of this device", (void *)graph);
    return WEIR_OK;
}

void weir__graph_destroy(weir__graph *graph)
{
    weir__graph **link = &graph->device->graphs;
    while (*link != graph)
        link = &(*link)->next;
    *link = graph->next;
    weir__graph_free(graph);
}

void weir__graphs_free(weir__emulated *device)
{
    while (device->graphs != NULL)
        weir__graph_destroy(device->graphs);
}

/* ---- shadows ---- */

static weir_status shadows_make(weir__graph *graph)
{
    weir_status status = WEIR_OK;
    for (weir__branch *branch = &graph->origin; branch != NULL && status == WEIR_OK;
         branch = branch->next)
        status = weir__queue_make(graph->device, false, false, &branch->shadow);
    return status;
}

/* Lets go of the shadows there are; what they hold gets done, or is dropped. */
static void shadows_end(weir__graph *graph, bool runs)
{
    for (weir__branch *branch = &graph->origin; branch; branch = branch->next) {
        weir__queue *shadow = branch->shadow;
        branch->shadow = NULL;
        if (shadow == NULL)
            continue;
        if (!runs && shadow->first != NULL)
            weir__queue_discard(shadow);
        weir__queue_detach(shadow);
    }
}

/* ---- putting: until all of it is, nothing runs, for the lock is kept ---- */

static weir_status views_find(weir__emulated *device, const weir__node *node)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < node->count && status == WEIR_OK; i++) {
        const weir__ledger_access *access = &node->accesses[i];
        node->work.views[i] = NULL;
        if (access->bytes > 0)
            status = weir__memory_view(device, (void *)access->ptr, access->bytes,
                                       &node->work.views[i]);
    }
    return status;
}

static weir_status node_put(weir__emulated *device, const weir__node *node)
{
    weir__queue *shadow = node->branch->shadow;
    weir__position after = { .queue = NULL };
    if (node->after != NULL) {
        const weir__branch *other = node->after->branch;
        after.queue = other->shadow;
        after.position = other->shadow_base + node->after->position;
    }
    weir_status status = views_find(device, node);
    if (status == WEIR_OK)
        status = weir__queue_put_by_rules(shadow, shadow, &node->work, node->count,
                                          after.queue != NULL ? &after : NULL, NULL);
    return status;
}

/* Puts what the first of its operations comes behind. */
static weir_status begin_put(weir__graph *graph, weir__queue *queue)
{
    static const weir__work marker = { .kind = WEIR__WORK_MARKER };
    weir__queue *shadow = graph->origin.shadow;
    const weir__position here = weir__queue_position(queue);
    weir_status status = weir__queue_put_by_rules(shadow, queue, &marker, 0, &here,
                                                  NULL);
    if (status == WEIR_OK && graph->launched.queue != NULL)
        status = weir__queue_put_by_rules(shadow, shadow, &marker, 0, &graph->launched,
                                          NULL);
    for (weir__branch *branch = &graph->origin; branch; branch = branch->next)
        branch->shadow_base = branch->shadow->put;
    return status;
}

static weir_status graph_put(weir__graph *graph, weir__queue *queue)
{
    static const weir__work marker = { .kind = WEIR__WORK_MARKER };
    weir_status status = shadows_make(graph);
    if (status == WEIR_OK)
        status = begin_put(graph, queue);
    for (const weir__node *node = graph->first; node != NULL && status == WEIR_OK;
         node = node->next)
        status = node_put(graph->device, node);
    if (status != WEIR_OK)
        return status;
    const weir__position end = weir__queue_position(graph->origin.shadow);
    return weir__queue_put_by_rules(queue, queue, &marker, 0, &end, NULL);
}

/* ---- telling the ledger ---- */

static void node_tell(weir__ledger *ledger, weir__node *node)
{
    uint64_t thread = weir__this_thread(), id = node->branch->shadow->id;
    if (node->memory != NULL)
        weir__graph_memory_tell(node, id);
    else if (node->what != NULL)
        weir__ledger_operation(ledger, thread, id, node->what, node->accesses,
                               node->count);
    else if (node->after != NULL)
        weir__ledger_stream_wait(ledger, thread, id, node->after->learned);
    else
        node->learned = weir__ledger_record(ledger, thread, id);
}

static void graph_tell(weir__graph *graph, const weir__queue *queue)
{
    weir__ledger *ledger = graph->device->ledger;
    uint64_t thread = weir__this_thread(), origin = graph->origin.shadow->id;
    for (const weir__branch *branch = &graph->origin; branch; branch = branch->next)
        weir__ledger_stream_is_graphs(ledger, branch->shadow->id);
    weir__ledger_position *begin = weir__ledger_record(ledger, thread, queue->id);
    weir__ledger_stream_wait(ledger, thread, origin, begin);
    weir__ledger_unref(ledger, begin);
    if (graph->learned != NULL)
        weir__ledger_stream_wait(ledger, thread, origin, graph->learned);
    weir__ledger_unref(ledger, graph->learned);

    for (weir__node *node = graph->first; node != NULL; node = node->next)
        node_tell(ledger, node);
    graph->learned = weir__ledger_record(ledger, thread, origin);
    weir__ledger_stream_wait(ledger, thread, queue->id, graph->learned);

    for (weir__node *node = graph->first; node != NULL; node = node->next) {
        weir__ledger_unref(ledger, node->learned);
        node->learned = NULL;
    }
}

/* ---- launching ---- */

weir_status weir__graph_launch(weir__graph *graph, weir__queue *queue)
{
    weir__emulated *device = graph->device;
    weir__branch *branch;
    weir_status status = weir__capture_admit(queue, &branch);
    if (status != WEIR_OK)
        return status;
    if (branch != NULL)
        return weir__fail(WEIR_NOT_SUPPORTED, "a graph cannot be launched into a "
                                              "stream that is being captured");
    status = weir__graph_memory_admit(graph);
    if (status != WEIR_OK)
        return status;
    for (const weir__node *node = graph->first; node != NULL; node = node->next)
        weir__schedule_make_room(device);

    status = graph_put(graph, queue);
    if (status == WEIR_OK) {
        weir__queue_unref(graph->launched.queue);
        graph->launched = weir__queue_position(graph->origin.shadow);
        weir__queue_ref(graph->launched.queue);
        weir__graph_memory_launched(graph);
        if (device->ledger != NULL)
            graph_tell(graph, queue);
    }
    shadows_end(graph, status == WEIR_OK);
    return status;
}
