/* test_async_captures.c - the leaf async while streams are captured: no call of the
 * driver's pools on a captured stream, the capture's memory is its own until it is
 * released, and captures that Weir was not told of go on unharmed. */
#include "support_leaf.h"

#include <string.h>

#include "weir/async.h"
#include "weir/capture.h"

#define MIB ((size_t)1 << 20)

static weir_capture *begin(scene *s, weir_stream stream)
{
    weir_capture *capture;
    must_ok(weir_capture_begin(s->mr, stream, &capture));
    must_ok(weir_emulated_capture_begin(s->device, stream));
    return capture;
}

/* Claims that nothing was captured but `operations` of the test's own. */
static void end(scene *s, weir_stream stream, weir_capture *capture, size_t operations)
{
    size_t captured;
    must_ok(weir_emulated_capture_end(s->device, stream, &captured));
    must_equal(captured, operations);
    must_ok(weir_capture_end(capture));
}

/* Asks for a block, with which the kept ones are looked at, and gives it back. */
static void touch(scene *s)
{
    give(s->mr, s->b, take(s->mr, s->b, 256), 256);
}

static size_t kept_bytes(scene *s)
{
    return statistics_of(s->mr).kept_bytes;
}

/* ---- declared captures ---- */

static void a_graph_finds_its_memory_at_each_launch(void **state)
{
    (void)state;
    scene s = scene_begin(1, "async(max=3MiB)");
    weir_capture *capture = begin(&s, s.a);
    void *x = take(s.mr, s.a, MIB);
    stamp(s.device, s.a, x, MIB, 1);
    check_stamp(s.device, s.a, x, MIB, 1);
    give(s.mr, s.a, x, MIB);
    void *y = take(s.mr, s.a, MIB); /* its own again, and not the first one */
    must(x != y);
    stamp(s.device, s.a, y, MIB, 2);
    weir_emulated_graph *graph;
    must_ok(weir_emulated_capture_end_graph(s.device, s.a, &graph));
    must_ok(weir_capture_end(capture));

    void *other = take(s.mr, s.b, MIB), *none; /* all that is left */
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(s.mr, s.b, MIB, WEIR_ALIGNMENT, &none));
    for (uint64_t i = 0; i < 3; i++) {
        weir_stream on = i % 2 == 0 ? s.a : s.b;
        must_ok(weir_emulated_graph_launch(s.device, graph, on));
        must_ok(weir_stream_wait(s.device, i % 2 == 0 ? s.b : s.a, on));
        stamp(s.device, s.b, other, MIB, 10 + i);
        check_stamp(s.device, s.b, other, MIB, 10 + i);
    }
    must_ok(weir_emulated_graph_destroy(s.device, graph));
    must_equal(kept_bytes(&s), MIB);
    must_ok(weir_stream_wait(s.device, s.b, s.a));
    must_ok(weir_capture_release(capture, s.b));
    give(s.mr, s.b, y, MIB); /* was out, and is the user's own matter now */
    must_ok(weir_device_sync(s.device));
    x = take(s.mr, s.b, MIB);
    must_equal(kept_bytes(&s), 0);
    give(s.mr, s.b, x, MIB);
    give(s.mr, s.b, other, MIB);
    scene_end(&s);
}

/* However it comes back while the capture is not released. */
static void what_was_born_in_a_capture_is_kept(void **state)
{
    (void)state;
    scene s = scene_begin(2, "async");
    void *out[4];
    weir_capture *capture = begin(&s, s.a);
    for (int i = 0; i < 4; i++)
        out[i] = take(s.mr, s.a, MIB);
    give(s.mr, s.a, out[0], MIB);
    give(s.mr, s.b, out[1], MIB); /* on a stream that is not captured */
    weir_point point;
    must_ok(weir_point_here(s.device, s.b, &point));
    must(weir_deallocate_after(s.mr, out[2], MIB, WEIR_ALIGNMENT, &point, 1));
    end(&s, s.a, capture, 0);
    must(weir_deallocate_after(s.mr, out[3], MIB, WEIR_ALIGNMENT, NULL, 0));
    must_equal(calls_of(s.device).mempool_free, 0);

    touch(&s);
    (void)weir_resource_trim_sync(s.mr, 0);
    must_equal(kept_bytes(&s), 4 * MIB);
    must_equal(statistics_of(s.mr).out_blocks, 0);
    must_ok(weir_capture_release(capture, s.a));
    touch(&s);
    must_equal(kept_bytes(&s), 2 * MIB); /* two with each allocate */
    touch(&s);
    must_equal(kept_bytes(&s), 0);
    scene_end(&s);
}

/* Born before, freed in the capture: the stream's calls cannot be made there. */
static void what_comes_back_in_a_capture_is_kept(void **state)
{
    (void)state;
    scene s = scene_begin(3, "async");
    void *x = take(s.mr, s.a, MIB);
    stamp(s.device, s.a, x, MIB, 1);
    weir_capture *capture = begin(&s, s.a);
    give(s.mr, s.a, x, MIB);
    must_equal(kept_bytes(&s), MIB);
    end(&s, s.a, capture, 0);
    touch(&s);
    must_equal(kept_bytes(&s), MIB);
    must_ok(weir_capture_release(capture, s.a));
    must(weir_resource_trim_sync(s.mr, 0) >= MIB);
    must_equal(kept_bytes(&s), 0);
    scene_end(&s);
}

/* The release's stream is at work, and the host waits for nothing. */
static void released_memory_is_behind_the_release(void **state)
{
    (void)state;
    scene s = scene_begin(4, "async(max=1MiB, reuse=same_stream+opportunistic)");
    weir_capture *capture = begin(&s, s.a);
    void *x = take(s.mr, s.a, MIB), *none;
    give(s.mr, s.a, x, MIB);
    end(&s, s.a, capture, 0);
    uint64_t gate;
    must_ok(weir_emulated_stall(s.device, s.b, &gate));
    must_ok(weir_capture_release(capture, s.b));
    for (int i = 0; i < 2; i++) {
        must_answer(WEIR_LIMIT_REACHED,
                    weir_allocate(s.mr, s.a, MIB, WEIR_ALIGNMENT, &none));
        must_equal(kept_bytes(&s), 0); /* the driver has it */
    }
    must_ok(weir_emulated_open_gate(s.device, gate));
    x = take(s.mr, s.a, MIB); /* waits, last of all */
    stamp(s.device, s.a, x, MIB, 1);
    give(s.mr, s.a, x, MIB);
    scene_end(&s);
}

/* What the driver hands out may be under work of another stream, behind which it puts
 * the stream that asks. A graph would not be behind that: the host waits. */
static void a_captures_memory_is_waited_for(void **state)
{
    (void)state;
    scene s = scene_begin(9, "async(max=1MiB)");
    void *x = take(s.mr, s.b, MIB);
    uint64_t gate;
    must_ok(weir_emulated_stall(s.device, s.b, &gate));
    stamp(s.device, s.b, x, MIB, 1);
    give(s.mr, s.b, x, MIB);
    weir_capture *capture = begin(&s, s.a);
    /* On a stepped device a wait that nothing ends is told. */
    must_answer(WEIR_DEVICE_ERROR,
                weir_allocate(s.mr, s.a, MIB, WEIR_ALIGNMENT, &x));
    must(strstr(weir_last_error().message, "could not be waited for") != NULL);
    must_ok(weir_emulated_open_gate(s.device, gate));
    x = take(s.mr, s.a, MIB);
    stamp(s.device, s.a, x, MIB, 2);
    weir_emulated_graph *graph;
    must_ok(weir_emulated_capture_end_graph(s.device, s.a, &graph));
    must_ok(weir_capture_end(capture));
    must_ok(weir_emulated_graph_launch(s.device, graph, s.a));
    must_ok(weir_emulated_graph_destroy(s.device, graph));
    must_ok(weir_capture_release(capture, s.a));
    give(s.mr, s.a, x, MIB);
    scene_end(&s);
}

/* Two streams of one capture, forked and joined, both declared. */
static void streams_that_join_are_captured_too(void **state)
{
    (void)state;
    scene s = scene_begin(5, "async");
    weir_event fork, join;
    must_ok(weir_event_create(s.device, &fork));
    must_ok(weir_event_create(s.device, &join));
    weir_capture *first = begin(&s, s.a), *second;
    must_ok(weir_event_record(s.device, s.a, fork));
    must_ok(weir_stream_wait_event(s.device, s.b, fork));
    must_ok(weir_capture_begin(s.mr, s.b, &second));
    void *x = take(s.mr, s.a, MIB), *y = take(s.mr, s.b, MIB);
    stamp(s.device, s.a, x, MIB, 1);
    stamp(s.device, s.b, y, MIB, 2);
    give(s.mr, s.b, y, MIB);
    must_ok(weir_event_record(s.device, s.b, join));
    must_ok(weir_stream_wait_event(s.device, s.a, join));
    give(s.mr, s.a, x, MIB);
    weir_emulated_graph *graph;
    must_ok(weir_emulated_capture_end_graph(s.device, s.a, &graph));
    must_ok(weir_capture_end(first));
    must_ok(weir_capture_end(second));
    for (int i = 0; i < 2; i++)
        must_ok(weir_emulated_graph_launch(s.device, graph, s.a));
    must_ok(weir_emulated_graph_destroy(s.device, graph));
    must_equal(kept_bytes(&s), 2 * MIB);
    must_ok(weir_capture_release(first, s.a));
    must_ok(weir_capture_release(second, s.a));
    must(weir_resource_trim_sync(s.mr, 0) >= 2 * MIB);
    must_ok(weir_event_destroy(s.device, fork));
    must_ok(weir_event_destroy(s.device, join));
    scene_end(&s);
}

/* Trim would wait for the device, which would spoil the capture. */
static void trim_spoils_no_capture(void **state)
{
    (void)state;
    scene s = scene_begin(6, "async");
    void *x = take(s.mr, s.b, MIB), *y = take(s.mr, s.b, MIB);
    give(s.mr, s.b, x, MIB);
    must_ok(weir_stream_sync(s.device, s.b));
    weir_capture *capture = begin(&s, s.a);
    must_equal(weir_resource_trim_sync(s.mr, 0), MIB); /* what is done */
    give(s.mr, s.b, y, MIB);
    (void)weir_resource_trim_sync(s.mr, 0);
    must_equal(calls_of(s.device).device_sync, 0);
    end(&s, s.a, capture, 0);
    must_ok(weir_capture_release(capture, s.a));
    scene_end(&s);
}

static void a_resource_that_ends_says_what_a_capture_has(void **state)
{
    (void)state;
    scene s = scene_begin(7, "async(default)");
    weir_resource *mr = s.mr, *other;
    must_ok(weir_resource_open(s.device, "async", &other));
    s.mr = other; /* whose capture it is does not matter */
    weir_capture *capture = begin(&s, s.a);
    void *x = take(mr, s.a, MIB);
    give(mr, s.a, x, MIB);
    end(&s, s.a, capture, 0);
    weir_resource_unref(mr);
    must_equal(weir_last_error().status, WEIR_DEVICE_ERROR);
    must(strstr(weir_last_error().message, "leaks 1048576 bytes in 1 blocks") != NULL);
    must_ok(weir_capture_release(capture, s.a));
    weir_resource_unref(s.mr);
    end_stream(s.device, s.a);
    end_stream(s.device, s.b);
    must_be_quiet(s.device);
    close_anyhow(s.device);
}

/* ---- captures that Weir was not told of ---- */

static void undeclared_captures_are_refused_and_go_on(void **state)
{
    (void)state;
    scene s = scene_begin(8, "async");
    weir_stream unknown;
    must_ok(weir_emulated_stream_create(s.device, WEIR_STREAM_NON_BLOCKING, &unknown));
    const weir_stream streams[] = { s.a, unknown, WEIR_STREAM_PER_THREAD };
    for (size_t i = 0; i < 3; i++) {
        void *x = take(s.mr, streams[i], MIB), *none = &s;
        stamp(s.device, streams[i], x, MIB, i);
        size_t captured;
        must_ok(weir_emulated_capture_begin(s.device, streams[i]));
        must_answer(WEIR_CAPTURING, weir_allocate(s.mr, streams[i], MIB,
                                                  WEIR_ALIGNMENT, &none));
        must(none == NULL);
        give(s.mr, streams[i], x, MIB);
        must_equal(kept_bytes(&s), MIB);
        touch(&s); /* other streams are served, and look at it */
        must_equal(kept_bytes(&s), MIB);
        must_ok(weir_emulated_capture_end(s.device, streams[i], &captured));
        must_equal(captured, 0);
        must_ok(weir_device_sync(s.device));
        touch(&s);
        must_equal(kept_bytes(&s), 0);
    }
    must_ok(weir_emulated_stream_destroy(s.device, unknown));
    must_equal(statistics_of(s.mr).failures, 3);
    scene_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_finds_its_memory_at_each_launch),
        cmocka_unit_test(what_was_born_in_a_capture_is_kept),
        cmocka_unit_test(what_comes_back_in_a_capture_is_kept),
        cmocka_unit_test(released_memory_is_behind_the_release),
        cmocka_unit_test(a_captures_memory_is_waited_for),
        cmocka_unit_test(streams_that_join_are_captured_too),
        cmocka_unit_test(trim_spoils_no_capture),
        cmocka_unit_test(a_resource_that_ends_says_what_a_capture_has),
        cmocka_unit_test(undeclared_captures_are_refused_and_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
