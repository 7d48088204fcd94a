/* sweep_streams.c - streams, points, events and captures while each host allocation and
 * each device call on the way fails in turn; see sweep_faults.c, which does the same
 * with resources. */
#include "support_sweep.h"

#include <string.h>

#include "device/device.h"
#include "internal.h"
#include "stream_order.h"

enum { A, B, BLOCKING };

/* For what has to do with streams and not with what lies below a pool. */
static bool is_plain(const sweep_chain *chain)
{
    return strcmp(chain->name, "device") == 0 ||
           strcmp(chain->name, "pool/device") == 0;
}

static void prepare_two(sweep_scene *it)
{
    sweep_take(it, 0, it->streams[A], SMALL);
    sweep_take(it, 1, it->streams[A], SMALL);
}

/* Work on three streams, which begins when it is waited for. */
static void prepare_busy(sweep_scene *it)
{
    weir_stream streams[] = { it->streams[A], it->streams[B], it->unknown };
    for (int i = 0; i < 3; i++) {
        sweep_take(it, i, streams[i], SMALL);
        sweep_stall(it, streams[i]);
        sweep_give(it, i, streams[i]);
    }
    sweep_open_gates(it);
}

/* ---- streams ---- */

static size_t clocks(const sweep_scene *it)
{
    return weir__order_measure(it->device->order).clocks;
}

/* The device had made it where only the library's clock was missing: then it has
 * destroyed it. */
static void create_and_destroy_stream(sweep_scene *it)
{
    weir_stream stream = it->streams[A];
    size_t clocks_before = clocks(it);
    uint64_t destroyed = calls_of(it->device).stream_destroy;
    if (!try_call(it, weir_stream_create(it->device, WEIR_STREAM_BLOCKING, &stream))) {
        bool was_made = strstr(weir_last_error().message, "clocks") != NULL;
        must_equal(calls_of(it->device).stream_destroy, destroyed + was_made);
        must_equal(clocks(it), clocks_before);
        must(stream == NULL);
        return;
    }
    must(stream != NULL);
    (void)try_call(it, weir_stream_destroy(it->device, stream));
    must_answer(WEIR_NOT_FOUND, weir_stream_destroy(it->device, stream));
}

/* The library has no clock to spare, for there was no memory when it needed one. Not
 * where there is a ledger, which would be without memory too. */
static void prepare_no_stock(sweep_scene *it)
{
    if (it->fault.kind != SWEEP_HOST)
        return;
    /* The first is the device's, for the stream itself, the second a pool's. */
    weir__host_fail_at(it->chain->pool ? 3 : 2, true);
    weir_stream stream = make_stream(it->device, WEIR_STREAM_BLOCKING);
    weir__host_fail_at(0, false);
    end_stream(it->device, stream);
}

static void prepare_own_stream(sweep_scene *it)
{
    it->spare = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    sweep_take(it, 0, it->spare, SMALL);
    sweep_take(it, 1, it->spare, CHUNK);
    sweep_stall(it, it->spare);
    sweep_give(it, 0, it->spare);
    sweep_give(it, 1, it->spare);
    must_ok(weir_point_here(it->device, it->spare, &it->points[0]));
}

static void destroy_stream(sweep_scene *it)
{
    (void)try_call(it, weir_stream_destroy(it->device, it->spare));
    must_answer(WEIR_NOT_FOUND, weir_stream_destroy(it->device, it->spare));
}

static void register_and_retire(sweep_scene *it)
{
    size_t clocks_before = clocks(it);
    if (!try_call(it, weir_stream_register(it->device, it->unknown)))
        must_equal(clocks(it), clocks_before);
    else
        (void)try_call(it, weir_stream_retire(it->device, it->unknown));
    must_answer(WEIR_NOT_FOUND, weir_stream_retire(it->device, it->unknown));
}

static void prepare_retire(sweep_scene *it)
{
    must_ok(weir_stream_register(it->device, it->unknown));
    sweep_take(it, 0, it->unknown, SMALL);
    sweep_take(it, 1, it->unknown, CHUNK);
    sweep_stall(it, it->unknown);
    sweep_give(it, 0, it->unknown);
    sweep_give(it, 1, it->unknown);
    must_ok(weir_point_here(it->device, it->unknown, &it->points[0]));
}

/* Also who asks for what the retired stream has freed. */
static void retire(sweep_scene *it)
{
    (void)try_call(it, weir_stream_retire(it->device, it->unknown));
    must_answer(WEIR_NOT_FOUND, weir_stream_retire(it->device, it->unknown));
    attempt(it, 1, it->streams[A], CHUNK);
}

static void wait_for_streams(sweep_scene *it)
{
    weir_device *device = it->device;
    (void)try_call(it, weir_stream_wait(device, it->streams[B], it->streams[A]));
    (void)try_call(it, weir_stream_wait(device, it->unknown, it->streams[A]));
    (void)try_call(it, weir_stream_wait(device, it->streams[B], it->unknown));
    (void)try_call(it, weir_stream_wait(device, NULL, it->streams[B]));
    (void)try_call(it, weir_stream_wait(device, it->streams[BLOCKING], NULL));
}

static void sync_all(sweep_scene *it)
{
    bool done = true;
    if (!try_call(it, weir_stream_query(it->device, it->streams[A], &done)))
        must(!done);
    (void)try_call(it, weir_stream_sync(it->device, it->streams[A]));
    (void)try_call(it, weir_stream_sync(it->device, it->unknown));
    (void)try_call(it, weir_device_sync(it->device));
}

static void use_point(sweep_scene *it, weir_stream stream)
{
    weir_point point = { 1, 1 };
    if (!try_call(it, weir_point_here(it->device, stream, &point))) {
        must(point.clock == 0 && point.mark == 0);
        return;
    }
    bool done = true;
    (void)try_call(it, weir_stream_wait_point(it->device, it->streams[B], point));
    if (!try_call(it, weir_point_query(it->device, point, &done)))
        must(!done);
    (void)try_call(it, weir_point_sync(it->device, point));
}

static void use_points(sweep_scene *it)
{
    use_point(it, it->streams[A]);
    use_point(it, it->unknown);
    use_point(it, WEIR_STREAM_PER_THREAD);
    use_point(it, NULL);
}

static void use_event(sweep_scene *it)
{
    weir_device *device = it->device;
    weir_event event = (weir_event)it;
    if (!try_call(it, weir_event_create(device, &event))) {
        must(event == NULL);
        return;
    }
    bool done = true;
    (void)try_call(it, weir_event_record(device, it->streams[A], event));
    (void)try_call(it, weir_stream_wait_event(device, it->streams[B], event));
    if (!try_call(it, weir_event_query(device, event, &done)))
        must(!done);
    (void)try_call(it, weir_event_sync(device, event));
    (void)try_call(it, weir_event_destroy(device, event));
}

static void prepare_work(sweep_scene *it)
{
    prepare_two(it);
    it->blocks[0].key = it->blocks[1].key = 0; /* to be overwritten */
}

static void work(sweep_scene *it)
{
    const sweep_block *blocks = it->blocks;
    (void)try_call(it, weir_fill(it->device, it->streams[A], blocks[0].ptr, 7,
                                 blocks[0].bytes));
    (void)try_call(it, weir_copy(it->device, it->streams[A], blocks[1].ptr,
                                 blocks[0].ptr, blocks[0].bytes));
    (void)try_call(it, weir_copy_sync(it->device, it->streams[A], blocks[0].ptr,
                                      blocks[1].ptr, blocks[0].bytes));
}

static void ask_memory(sweep_scene *it)
{
    size_t free_bytes = 1, total_bytes = 1;
    if (!try_call(it, weir_device_memory(it->device, &free_bytes, &total_bytes)))
        must(free_bytes == 0 && total_bytes == 0);
}

/* ---- captures ---- */

static void prepare_capture(sweep_scene *it)
{
    prepare_two(it);
    sweep_give(it, 0, it->streams[A]);
    sweep_order(it, it->unknown, it->streams[A]); /* for the release */
}

/* The same where another stream has memory that came back to it. */
static void prepare_capture_beside(sweep_scene *it)
{
    prepare_capture(it);
    sweep_take(it, 0, it->streams[B], SMALL);
    sweep_give(it, 0, it->streams[B]);
}

static void capture_and_release_on(sweep_scene *it, weir_stream last)
{
    weir_stream stream = it->streams[A];
    weir_capture *made = (weir_capture *)it;
    size_t clocks_before = clocks(it);
    if (!try_call(it, weir_capture_begin(it->mr, stream, &made))) {
        must_equal(clocks(it), clocks_before);
        must(made == NULL);
        return;
    }
    it->capture = made;
    bool first = attempt(it, 2, stream, SMALL);
    bool second = attempt(it, 3, stream, CHUNK);
    if (first)
        must_give(it, 2, stream);
    must_give(it, 1, stream);
    must_ok(weir_capture_end(made));
    (void)try_call(it, weir_capture_release(made, last));
    it->capture = NULL;
    if (second)
        must_give(it, 3, stream);
    for (int i = 4; i < 7; i++) { /* nobody else's work is still on what B gets now */
        if (it->chain->of_driver) /* which gives up what was kept, on the way */
            attempt_or_shrink(it, i, it->streams[B], SMALL);
        else
            attempt(it, i, it->streams[B], SMALL);
    }
}

static void capture(sweep_scene *it)
{
    capture_and_release_on(it, it->streams[A]);
}

static void capture_to_unknown(sweep_scene *it)
{
    capture_and_release_on(it, it->unknown);
}

/* ---- the sweeps ---- */

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

static void streams_survive_every_fault(void **state)
{
    (void)state;
    static const sweep_entry all[] = {
        { { "create", NULL, create_and_destroy_stream, false, is_plain },
          { 3, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0 },
          { 3, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0 } },
        { { "create without stock", prepare_no_stock, create_and_destroy_stream, false,
            is_plain },
          { 5, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0 },
          { 3, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0 } },
        { { "destroy", prepare_own_stream, destroy_stream, false, is_plain },
          { 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0 },
          { 5, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0 } },
        { { "register", NULL, register_and_retire, false, is_plain },
          { 2, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0 },
          { 3, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0 } },
        { { "retire", prepare_retire, retire, false, is_plain },
          { 5, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0 },
          { 5, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0 } },
        { { "wait", prepare_busy, wait_for_streams, false, is_plain },
          { 19, 0, 0, 19, 0, 0, 0, 0 },
          { 27, 0, 0, 27, 0, 0, 0, 0 } },
        { { "sync", prepare_busy, sync_all, false, is_plain },
          { 1, 0, 0, 1, 0, 0, 0, 0 },
          { 11, 0, 0, 11, 0, 0, 0, 0 } },
        { { "points", prepare_busy, use_points, false, is_plain },
          { 16, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0 },
          { 27, 0, 0, 26, 0, 0, 0, 0, 0, 0, 0 } },
        { { "events", prepare_busy, use_event, false, is_plain },
          { 2, 0, 0, 2, 0, 0, 0, 0 },
          { 6, 0, 0, 6, 0, 0, 0, 0 } },
        { { "work", prepare_work, work, false, is_plain },
          { 3, 0, 0, 3, 0, 0, 0, 0 },
          { 6, 0, 0, 6, 0, 0, 0, 0 } },
        { { "memory", NULL, ask_memory, false, is_plain },
          { 0, 0, 0, 0, 0, 0, 0, 0 },
          { 1, 0, 0, 1, 0, 0, 0, 0 } },
    };
    sweep_all(all, COUNT_OF(all));
}

static void captures_survive_every_fault(void **state)
{
    (void)state;
    static const sweep_entry all[] = {
        { { "capture", prepare_capture, capture, false, NULL },
          { 21, 31, 27, 29, 31, 29, 29, 48, 27, 43, 29 },
          { 11, 11, 11, 21, 21, 21, 21, 26, 41, 28, 21 } },
        { { "capture beside another", prepare_capture_beside, capture, false, NULL },
          { 20, 30, 26, 30, 32, 30, 30, 46, 27, 41, 30 },
          { 11, 11, 11, 24, 24, 24, 24, 26, 41, 28, 24 } },
        { { "capture to unknown", prepare_capture, capture_to_unknown, false, NULL },
          { 23, 33, 29, 31, 33, 31, 31, 50, 29, 45, 31 },
          { 14, 14, 14, 25, 25, 25, 25, 30, 44, 32, 25 } },
    };
    sweep_all(all, COUNT_OF(all));
}

static int print_points(void **state)
{
    (void)state;
    print_message("bound: sweep_streams.points = %llu\n",
                  (unsigned long long)sweep_points);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(streams_survive_every_fault, sweep_tell_where),
        cmocka_unit_test_teardown(captures_survive_every_fault, sweep_tell_where),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, print_points);
}
