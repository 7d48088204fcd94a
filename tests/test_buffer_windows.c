/* test_buffer_windows.c - two threads on a buffer's streams, in every way in which they
 * can interleave with a bounded number of switches. */
#include "support_explore.h"
#include "support_scene.h"
#include "weir/weir.h"

typedef struct stage {
    weir_device *device;
    weir_resource *pool;
    weir_stream own, unknown, reader, other, writer;
    weir_buffer buffer;
} stage;

static stage stage_open(explorer *self)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.choose = explore_choose;
    emulated.choose_context = self;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    stage it = { .device = open_with("emulated:0", &options) };
    must_ok(weir_resource_open(it.device, "pool/device", &it.pool));
    it.own = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.reader = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.other = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.writer = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must_ok(support_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &it.unknown));
    return it;
}

static void stage_close(stage *it)
{
    weir_resource_unref(it->pool);
    end_stream(it->device, it->own);
    end_stream(it->device, it->reader);
    end_stream(it->device, it->other);
    end_stream(it->device, it->writer);
    must_ok(support_stream_destroy(it->device, it->unknown));
    close_emulated(it->device);
}

static void reads_on(stage *it, weir_stream stream)
{
    must_ok(weir_buffer_wait(&it->buffer, stream, WEIR_READ));
    check_stamp(it->device, stream, it->buffer.data, it->buffer.size, 1);
    must_ok(weir_buffer_use(&it->buffer, stream, WEIR_READ));
}

static void notes_a_use(void *argument)
{
    stage *it = argument;
    must_ok(weir_buffer_use(&it->buffer, it->unknown, WEIR_READ));
}

static void puts_a_wait_there(void *argument)
{
    stage *it = argument;
    must_ok(weir_stream_wait(it->device, it->unknown, it->reader));
}

/* There is no room for the use of a third stream: its mark speaks for another's only if
 * its event is behind that, not if the stream is by the time somebody looks. */
static void a_mark_speaks_for_what_was_passed_before(void **state)
{
    (void)state;
    static explorer self;
    self = (explorer){ 0 };
    self.most_switches =
        (uint32_t)support_bound("test_buffer_windows.switches", 2, 3);
    stage at = stage_open(&self);
    do {
        must_ok(weir_buffer_allocate(at.pool, at.own, 1024, WEIR_ALIGNMENT,
                                     &at.buffer));
        stamp(at.device, at.own, at.buffer.data, 1024, 1);
        reads_on(&at, at.reader);
        reads_on(&at, at.other);
        self.active = true;
        run_both(at.device, notes_a_use, puts_a_wait_there, &at);
        self.active = false;
        must_ok(weir_buffer_wait(&at.buffer, at.writer, WEIR_WRITE));
        stamp(at.device, at.writer, at.buffer.data, 1024, 2);
        must_be_quiet(at.device);
        must_ok(weir_buffer_use(&at.buffer, at.writer, WEIR_WRITE));
        weir_buffer_reset(&at.buffer);
        must_ok(weir_device_sync(at.device)); /* each run begins with nothing */
    } while (explore_next(&self));
    stage_close(&at);
    print_message("%llu interleavings, all there are with at most %u switches\n",
                  (unsigned long long)self.runs, (unsigned)self.most_switches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mark_speaks_for_what_was_passed_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
