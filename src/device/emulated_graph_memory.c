/* emulated_graph_memory.c - what a capture allocates: operations of the graph, and
 * memory that has its address for as long as the graph lives.
 *
 *     capture        launch            free            launch         the graph goes
 *     drawn, not out   | out             | back           | out ...     returned, once
 *                      v                 v                v             back and done
 *
 * The free is an operation of the graph itself, or comes behind the launch on any
 * stream. No pool has this memory, and nobody else is handed it before it is returned.
 * A graph is not launched while what it allocated last is still out. */
#include "device/emulated_mempool.h"

/* ---- in a capture ---- */

static weir_status node_add(weir__branch *branch, weir__graph_memory *memory,
                            bool frees)
{
    static const weir__work marker = { .kind = WEIR__WORK_MARKER };
    const weir__ledger_access all = { (uintptr_t)memory->ptr, memory->bytes,
                                      WEIR_EMULATED_WRITE };
    weir__node *node;
    weir_status status = weir__capture_add(branch, &marker,
                                           frees ? "graph free" : "graph malloc", &all,
                                           1, &node);
    if (status == WEIR_OK) {
        node->memory = memory;
        node->frees = frees;
    }
    return status;
}

weir_status weir__graph_memory_malloc(weir__branch *branch, weir_async_memory memory,
                                      size_t bytes, void **out)
{
    weir__emulated *device = branch->graph->device;
    void *ptr;
    weir__graph_memory *made = weir__host_alloc(sizeof *made);
    if (made == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a graph's memory");
    weir_status status = weir__pool_memory_draw(device, NULL, memory, bytes, &ptr);
    if (status != WEIR_OK) {
        weir__host_free(made);
        return status;
    }
    *made = (weir__graph_memory){ .device = device, .graph = branch->graph,
                                  .memory = memory, .ptr = ptr, .bytes = bytes,
                                  .next = device->graph_memories };
    status = node_add(branch, made, false);
    if (status != WEIR_OK) {
        weir__pool_memory_return(device, NULL, memory, ptr, bytes);
        weir__host_free(made);
        return status;
    }
    device->graph_memories = made;
    *out = ptr;
    return WEIR_OK;
}

weir_status weir__graph_memory_free_inside(weir__branch *branch, const void *ptr)
{
    weir__graph_memory *memory = branch->graph->device->graph_memories;
    while (memory != NULL && (memory->graph != branch->graph || memory->ptr != ptr))
        memory = memory->next;
    if (memory == NULL || memory->is_freed_inside)
        return weir__fail_native(WEIR_INVALID_ARGUMENT, WEIR__NATIVE_INVALID_VALUE,
                                 "%p is no memory that this capture has allocated and "
                                 "not freed", ptr);
    weir_status status = node_add(branch, memory, true);
    if (status == WEIR_OK)
        memory->is_freed_inside = true;
    return status;
}

/* ---- launches ---- */

weir_status weir__graph_memory_admit(const weir__graph *graph)
{
    const weir__graph_memory *memory = graph->device->graph_memories;
    while (memory != NULL && (memory->graph != graph || !memory->is_out))
        memory = memory->next;
    if (memory != NULL)
        return weir__fail_native(WEIR_INVALID_ARGUMENT, WEIR__NATIVE_INVALID_VALUE,
                                 "%p, which the graph allocates, is out since its last "
                                 "launch", memory->ptr);
    return WEIR_OK;
}

static void memory_move(weir__graph_memory *memory, weir__position at)
{
    weir__queue_ref(at.queue);
    weir__queue_unref(memory->at.queue);
    memory->at = at;
}

void weir__graph_memory_launched(weir__graph *graph)
{
    for (weir__graph_memory *memory = graph->device->graph_memories; memory != NULL;
         memory = memory->next) {
        if (memory->graph != graph)
            continue;
        memory->is_out = !memory->is_freed_inside;
        memory_move(memory, graph->launched);
    }
}

void weir__graph_memory_tell(const weir__node *node, uint64_t id)
{
    const weir__graph_memory *memory = node->memory;
    weir__ledger *ledger = memory->device->ledger;
    uintptr_t ptr = (uintptr_t)memory->ptr;
    if (node->frees)
        (void)weir__ledger_pool_free(ledger, weir__this_thread(), id, ptr,
                                     memory->bytes);
    else
        weir__ledger_graph_malloc(ledger, weir__this_thread(), id, ptr, memory->bytes);
}

/* ---- behind launches ---- */

weir__graph_memory *weir__graph_memory_find_out(weir__emulated *device, const void *ptr)
{
    weir__graph_memory *memory = device->graph_memories;
    while (memory != NULL && (memory->ptr != ptr || !memory->is_out))
        memory = memory->next;
    return memory;
}

void weir__graph_memory_give(weir__graph_memory *memory, weir__queue *queue)
{
    weir__emulated *device = memory->device;
    memory->is_out = false;
    memory_move(memory, weir__queue_position(queue));
    if (device->ledger != NULL)
        (void)weir__ledger_pool_free(device->ledger, weir__this_thread(), queue->id,
                                     (uintptr_t)memory->ptr, memory->bytes);
}

static bool is_over(const weir__graph_memory *memory)
{
    return memory->graph == NULL && !memory->is_out &&
           (memory->at.queue == NULL ||
            weir__position_is_done(memory->device, memory->at));
}

void weir__graph_memories_reap(weir__emulated *device, bool all)
{
    weir__graph_memory **link = &device->graph_memories;
    while (*link != NULL) {
        weir__graph_memory *memory = *link;
        if (!all && !is_over(memory)) {
            link = &memory->next;
            continue;
        }
        *link = memory->next;
        weir__pool_memory_return(device, NULL, memory->memory, memory->ptr,
                                 memory->bytes);
        weir__queue_unref(memory->at.queue);
        weir__host_free(memory);
    }
}

void weir__graph_memory_leave(const weir__graph *graph)
{
    weir__emulated *device = graph->device;
    for (weir__graph_memory *memory = device->graph_memories; memory != NULL;
         memory = memory->next) {
        if (memory->graph == graph)
            memory->graph = NULL;
    }
    weir__graph_memories_reap(device, false);
}
