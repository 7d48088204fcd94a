/* support_graph.c - see support_graph.h. */
#include "support_graph.h"

#define STREAMS 4

stage stage_on(weir_device *device)
{
    stage it = { .device = device };
    weir_stream *streams[STREAMS] = { &it.s, &it.t, &it.u, &it.v };
    weir_event *events[STREAMS] = { &it.es, &it.et, &it.eu, &it.ev };
    for (int i = 0; i < STREAMS; i++) {
        *streams[i] = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
        *events[i] = raw_event(device);
    }
    return it;
}

static void stage_leave(stage *it)
{
    weir_stream streams[STREAMS] = { it->s, it->t, it->u, it->v };
    weir_event events[STREAMS] = { it->es, it->et, it->eu, it->ev };
    for (int i = 0; i < STREAMS; i++) {
        raw_event_end(it->device, events[i]);
        raw_stream_end(it->device, streams[i]);
    }
}

void stage_close(stage *it)
{
    stage_leave(it);
    close_emulated(it->device);
}

void stage_close_anyhow(stage *it)
{
    stage_leave(it);
    close_anyhow(it->device);
}

void graph_begin(stage *it)
{
    must_ok(weir_emulated_capture_begin(it->device, it->s));
}

weir_emulated_graph *graph_end(stage *it)
{
    weir_emulated_graph *graph;
    must_ok(weir_emulated_capture_end_graph(it->device, it->s, &graph));
    must(graph != NULL);
    return graph;
}

void must_not_end(stage *it, weir_stream stream, int32_t native_code)
{
    weir_emulated_graph *graph = (weir_emulated_graph *)it;
    must_answer(WEIR_DEVICE_ERROR,
                weir_emulated_capture_end_graph(it->device, stream, &graph));
    must_equal(weir_last_error().native_code, native_code);
    must(graph == NULL);
}

void stage_after(stage *it, weir_stream waiter, weir_stream waited, weir_event event)
{
    raw_record(it->device, event, waited);
    raw_wait_event(it->device, waiter, event);
}

void graph_launch(stage *it, weir_emulated_graph *graph, weir_stream stream)
{
    must_ok(weir_emulated_graph_launch(it->device, graph, stream));
}

void graph_destroy(stage *it, weir_emulated_graph *graph)
{
    must_ok(weir_emulated_graph_destroy(it->device, graph));
}

bool stage_is_capturing(stage *it, weir_stream stream)
{
    bool capturing;
    must_ok(weir__stream_is_capturing(it->device, stream, &capturing));
    return capturing;
}

bool stage_step(stage *it)
{
    bool any;
    must_ok(weir_emulated_step(it->device, &any));
    return any;
}
