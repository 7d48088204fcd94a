/* test_kernels_gpu.c - what the other suites rely on: the kernels write just what they
 * are told to and see each byte that is wrong; a gate holds its stream and no other. */
#include "gpu/support_gpu.h"
#include "weir/weir.h"

#define BYTES ((size_t)64 << 10)
#define GUARD 0xee

typedef struct scene {
    weir_device *device;
    weir_resource *mr;
    weir_stream stream, other;
    unsigned char *ptr;
} scene;

static void scene_open(scene *s)
{
    s->device = open_threads();
    must_ok(weir_device_resource_create(s->device, &s->mr));
    s->stream = make_stream(s->device, WEIR_STREAM_NON_BLOCKING);
    s->other = make_stream(s->device, WEIR_STREAM_NON_BLOCKING);
    s->ptr = take(s->mr, s->stream, BYTES);
}

static void scene_close(scene *s)
{
    give(s->mr, s->stream, s->ptr, BYTES);
    end_stream(s->device, s->stream);
    end_stream(s->device, s->other);
    weir_resource_unref(s->mr);
    close_emulated(s->device);
}

static uint64_t errors_of_check(scene *s, size_t offset, size_t bytes, uint64_t key)
{
    check_stamp(s->device, s->stream, s->ptr + offset, bytes, key);
    must_ok(weir_stream_sync(s->device, s->stream));
    return take_stamp_errors();
}

static void bytes_around_are_left_alone(scene *s, size_t offset, size_t bytes)
{
    static unsigned char copied[BYTES];
    must_ok(weir_copy_sync(s->device, s->stream, copied, s->ptr, BYTES));
    for (size_t i = 0; i < BYTES; i++) {
        if (i < offset || i >= offset + bytes)
            must_equal(copied[i], GUARD);
    }
}

/* Turns over the bits of one byte. */
static void damage(scene *s, size_t at)
{
    unsigned char byte;
    must_ok(weir_copy_sync(s->device, s->stream, &byte, s->ptr + at, 1));
    must_ok(weir_fill(s->device, s->stream, s->ptr + at, (uint8_t)~byte, 1));
}

static void try_window(scene *s, size_t offset, size_t bytes)
{
    must_ok(weir_fill(s->device, s->stream, s->ptr, GUARD, BYTES));
    stamp(s->device, s->stream, s->ptr + offset, bytes, 5);
    must_equal(errors_of_check(s, offset, bytes, 5), 0);
    bytes_around_are_left_alone(s, offset, bytes);
    const size_t places[] = { 0, bytes / 2, bytes - 1 };
    for (size_t i = 0; i < 3; i++) {
        damage(s, offset + places[i]);
        must_equal(errors_of_check(s, offset, bytes, 5), 1);
        damage(s, offset + places[i]);
    }
    must_equal(errors_of_check(s, offset, bytes, 5), 0);
    must(errors_of_check(s, offset, bytes, 6) != 0);
}

static void each_byte_is_written_and_checked(void **state)
{
    (void)state;
    static const size_t windows[][2] = {
        { 0, 1 },    { 0, 7 },    { 0, 8 },    { 0, 9 },    { 256, 4096 },
        { 1, 1 },    { 3, 8 },    { 5, 12345 }, { 8, 2047 }, { 8, 2048 },
        { 8, 2049 }, { 7, 6001 }, { 0, BYTES },
    };
    scene s;
    scene_open(&s);
    print_message("damage on purpose:\n");
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++)
        try_window(&s, windows[i][0], windows[i][1]);
    scene_close(&s);
}

static void a_gate_holds_its_stream_only(void **state)
{
    (void)state;
    scene s;
    scene_open(&s);
    unsigned gates[2] = { put_gate(s.stream), put_gate(s.stream) };
    stamp(s.device, s.stream, s.ptr, BYTES, 1);
    must_be_waiting(s.device, s.stream, s.other);
    open_gate(gates[0]);
    must_be_waiting(s.device, s.stream, s.other);
    open_gate(gates[1]);
    must_equal(errors_of_check(&s, 0, BYTES, 1), 0);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_byte_is_written_and_checked),
        cmocka_unit_test(a_gate_holds_its_stream_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
