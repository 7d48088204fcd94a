/* cudart_graph.c - of the runtime: graphs that captures were made into, and their
 * launches. An instance shares its graph, which goes with the last of them. */
#include <pthread.h>
#include <stdlib.h>

#include "fakes/fakes_internal.h"

/* A cudaGraph_t, or a cudaGraphExec_t, points to one. */
typedef struct handle {
    bool is_instance;
    fakes_context *context;
    weir__graph *graph;
    struct handle *next;
} handle;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static handle *handles; /* guarded by lock */

static handle *handle_make(fakes_context *context, weir__graph *graph, bool is_instance)
{
    handle *made = malloc(sizeof *made);
    if (made == NULL)
        return NULL;
    *made = (handle){ is_instance, context, graph, NULL };
    pthread_mutex_lock(&lock);
    made->next = handles;
    handles = made;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&fakes_count.graphs, 1);
    return made;
}

/* Copies what `which` is; false: it is none of the kind. Removing it, *is_last says
 * whether its graph is nobody else's. */
static bool handle_find(const void *which, bool is_instance, bool remove, handle *out,
                        bool *is_last)
{
    pthread_mutex_lock(&lock);
    handle **link = &handles;
    while (*link != NULL && (*link != which || (*link)->is_instance != is_instance))
        link = &(*link)->next;
    handle *found = *link;
    bool any = found != NULL;
    if (any)
        *out = *found;
    if (any && remove) {
        *link = found->next;
        free(found);
        *is_last = true;
        for (const handle *each = handles; each != NULL; each = each->next)
            *is_last = *is_last && each->graph != out->graph;
    }
    pthread_mutex_unlock(&lock);
    return any;
}

void fakes_forget_graphs(const fakes_context *context)
{
    pthread_mutex_lock(&lock);
    for (handle **link = &handles; *link != NULL;) {
        handle *gone = *link;
        if (gone->context == context) {
            *link = gone->next;
            free(gone);
        } else {
            link = &gone->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

static void graph_end(weir__graph *graph)
{
    weir__emulated *device = graph->device;
    weir__mutex_lock(&device->lock);
    weir__graph_destroy(graph);
    weir__mutex_unlock(&device->lock);
}

int fakes_graph_make(fakes_context *context, weir__graph *graph, cudaGraph_t *out)
{
    handle *made = handle_make(context, graph, false);
    if (made == NULL) {
        graph_end(graph);
        return cudaErrorMemoryAllocation;
    }
    *out = (cudaGraph_t)(void *)made;
    return cudaSuccess;
}

static int handle_end(const void *which, bool is_instance)
{
    handle it;
    bool is_last = false;
    if (!handle_find(which, is_instance, true, &it, &is_last))
        return cudaErrorInvalidValue;
    if (is_last)
        graph_end(it.graph);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaGraphDestroy, &context);
    if (error == cudaSuccess)
        error = handle_end(graph, false);
    return fakes_end(fakes_gave_back(&fakes_count.graphs, error));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaGraphExecDestroy, &context);
    if (error == cudaSuccess)
        error = handle_end(instance, true);
    return fakes_end(fakes_gave_back(&fakes_count.graphs, error));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long flags)
{
    fakes_context *context;
    handle it;
    int error = fakes_begin_in(FAKES_cudaGraphInstantiate, &context);
    if (error == cudaSuccess &&
        (out == NULL || flags != 0 || !handle_find(graph, false, false, &it, NULL)))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        *out = (cudaGraphExec_t)(void *)handle_make(it.context, it.graph, true);
        error = *out != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
    }
    return fakes_end(error);
}

static int launch(fakes_context *context, const handle *it, cudaStream_t stream)
{
    weir__queue *queue;
    weir_status status = weir__emulated_begin_unplanned(context->device);
    if (status == WEIR_OK && context != it->context)
        status = weir__fail(WEIR_INVALID_ARGUMENT, "a graph of another device");
    if (status == WEIR_OK)
        status = weir__stream_find(context->device, fakes_stream(stream), &queue);
    if (status == WEIR_OK)
        status = weir__graph_launch(it->graph, queue);
    weir__mutex_unlock(&context->device->lock);
    return fakes_error_of(context, status);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream)
{
    fakes_context *context;
    handle it;
    int error = fakes_begin_in(FAKES_cudaGraphLaunch, &context);
    if (error == cudaSuccess && !handle_find(instance, true, false, &it, NULL))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = launch(context, &it, stream);
    return fakes_end(error);
}
