/* support_graph.h - a stage for the tests of graphs: a device, streams that fork and
 * join, and captures that must go well. */
#ifndef WEIR_TESTS_SUPPORT_GRAPH_H
#define WEIR_TESTS_SUPPORT_GRAPH_H

#include "device/device.h"
#include "support.h"
#include "support_work.h"

/* Four non-blocking streams that the library does not know, and an event of each. s is
 * the origin of captures. */
typedef struct stage {
    weir_device *device;
    weir_stream s, t, u, v;
    weir_event es, et, eu, ev;
} stage;

stage stage_on(weir_device *device);
/* Also closes the device: stage_close_anyhow if it has findings on purpose. */
void stage_close(stage *it);
void stage_close_anyhow(stage *it);

/* Makes `waiter` wait for all that is on `waited` now. */
void stage_after(stage *it, weir_stream waiter, weir_stream waited, weir_event event);
bool stage_is_capturing(stage *it, weir_stream stream);
/* Lets one operation happen; false: none could. */
bool stage_step(stage *it);

/* Captures of s. */
void graph_begin(stage *it);
weir_emulated_graph *graph_end(stage *it);
/* Ending on `stream` fails with this code, and leaves no graph. */
void must_not_end(stage *it, weir_stream stream, int32_t native_code);
void graph_launch(stage *it, weir_emulated_graph *graph, weir_stream stream);
void graph_destroy(stage *it, weir_emulated_graph *graph);

#endif
