/* weir/capture.h - memory for work that is captured into a graph.
 *
 * A graph runs later, perhaps often, and always at the same addresses. So what is
 * handed out on a stream while it is captured stays the capture's own, also after it
 * was freed, until the capture is released: nobody else gets it, and the graph can
 * run.
 *
 *     weir_capture_begin(mr, stream, &capture);
 *     cudaStreamBeginCapture(stream, ...);    ... allocate, launch, deallocate ...
 *     cudaStreamEndCapture(stream, &graph);
 *     weir_capture_end(capture);
 *     ... launch the graph as often as you like ...
 *     weir_capture_release(capture, last_stream);
 *
 * A stream that forks into the graph, by waiting for an event of it, is a stream of its
 * own here: before it allocates, and once it has joined or will, it is declared by a
 * weir_capture_begin too, and has a capture of its own. Blocks may be used on any
 * stream of the graph that is ordered after their allocation, and may go back on any
 * stream ordered after their uses, in the capture or later. What goes back, before the
 * end, on the stream that it was allocated on may be handed out there again in the same
 * capture. What goes back elsewhere, or came from before the capture, waits for the
 * release: Weir does not see which stream of a graph is behind which.
 *
 * A stream that is captured and not declared is noticed wherever Weir would record on
 * it, ask about it or wait for it, or make another stream wait for it: the answer is
 * CAPTURING, and the capture goes on; of a stream that Weir does not know, by whatever
 * allocates on it, and what is given back on it waits for the next weir_device_sync.
 * What needs no such call is not noticed: memory that is free on that stream already is
 * handed out to it as ever, and is not kept for the graph. The legacy stream counts as
 * captured while a blocking stream is; the whole device, while a stream is that was
 * declared, or made by or registered with Weir. */
#ifndef WEIR_CAPTURE_H
#define WEIR_CAPTURE_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_capture weir_capture;

/* Tells Weir that `stream` is, or is about to be, captured. It holds for all
 * resources of mr's device. Until the end nothing is recorded on, asked of or waited
 * for by `stream`. The caller owns *out.
 *
 * Who allocates or gives back on `stream` while another thread calls this, or begins
 * the capture itself, cannot know whose the block is: the capture's, or anybody's as
 * before. The two take turns. While a thread waits for all of the device, as Weir does
 * too where memory is short or a resource ends, this waits for that: nothing that the
 * device waits for may depend on the caller.
 *
 *   INVALID_ARGUMENT   `stream` is the legacy stream, which CUDA does not capture
 *   CAPTURING          it is declared as captured already
 *   OUT_OF_HOST_MEMORY what giving back in it may need, in each pool, is not there */
WEIR_API WEIR_NODISCARD weir_status
weir_capture_begin(weir_resource *mr, weir_stream stream, weir_capture **out);

/* The stream is captured no more. INVALID_ARGUMENT: it ended before. */
WEIR_API WEIR_NODISCARD weir_status weir_capture_end(weir_capture *capture);

/* Lets go of all memory of the capture that is free, as if it were deallocated on
 * `stream` now, and of what is still out once it comes back; destroys `capture`,
 * also on failure, after which that memory waits for the next weir_device_sync. The
 * caller has ordered `stream` behind every launch of the graph; behind what the streams
 * did on which its memory was given back after the end; and, if memory from before the
 * capture was given back in it, behind what the captured stream did before. From then
 * on the graph may not be launched. Ends the capture if that was not done. Null is
 * ignored. */
WEIR_API weir_status weir_capture_release(weir_capture *capture, weir_stream stream);

#ifdef __cplusplus
}
#endif
#endif
