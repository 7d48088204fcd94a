/* sweep_host.c - copies between buffers and the host, and buffers of the host's own
 * arrays, while each host allocation and each device call on the way fails in turn:
 * once, with all that follow, or with the device lost. As sweep_buffers.c.
 *
 * A copy that fails has copied nothing, its point is none, and nothing is noted; an
 * array that is not adopted is the caller's, and its deleter was not called. */
#include <string.h>

#include "support_sweep_buffers.h"

#define PAGE ((size_t)4096)
#define NOTHING 0xEE

static _Alignas(4096) unsigned char array[2 * PAGE];
static unsigned char written[BYTES]; /* what x shows */
static unsigned char host[BYTES];

/* ---- before the fault ---- */

static void note(buffers_scene *it, weir_stream stream, weir_access access)
{
    must_ok(weir_buffer_wait(&it->x, stream, access));
    if (access == WEIR_READ)
        check_stamp(it->device, stream, it->x.data, BYTES, KEY);
    else
        stamp(it->device, stream, it->x.data, BYTES, KEY);
    must_ok(weir_buffer_use(&it->x, stream, access));
}

static void prepare_on(buffers_scene *it, weir_stream stream)
{
    must_ok(weir_buffer_allocate(it->pool, stream, BYTES, WEIR_ALIGNMENT, &it->x));
    stamp(it->device, stream, it->x.data, BYTES, KEY);
    must_ok(weir_buffer_to_host_sync(&it->x, stream, 0, BYTES, written));
    note(it, stream, WEIR_WRITE);
    memset(host, NOTHING, BYTES);
}

static void prepare_alone(buffers_scene *it)
{
    prepare_on(it, it->a);
}

static void prepare_unknown(buffers_scene *it)
{
    prepare_on(it, it->unknown);
    note(it, it->b, WEIR_READ);
}

static void prepare_full(buffers_scene *it)
{
    prepare_on(it, it->a);
    note(it, it->b, WEIR_READ);
    note(it, it->unknown, WEIR_WRITE);
}

/* So that a second one meets pages that are registered: as this library knows, or as
 * somebody else did. */
static void end_array(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    buffers_scene *it = context;
    (void)stream;
    must(ptr == array && bytes == sizeof array);
    it->ends++;
}

static weir_status adopt(buffers_scene *it, bool pinned, weir_buffer *out)
{
    const int64_t shape[] = { sizeof array };
    weir_host_array from = WEIR_HOST_ARRAY_INIT;
    from.data = array;
    from.item_bytes = 1;
    from.ndim = 1;
    from.shape = shape;
    from.pinned = pinned;
    from.deleter = end_array;
    from.context = it;
    weir_status status = weir_buffer_adopt_host(it->device, it->a, &from, out);
    it->adoptions += status == WEIR_OK;
    return status;
}

static void prepare_pinned(buffers_scene *it)
{
    must_ok(adopt(it, true, &it->made));
}

static void prepare_pinned_and_used(buffers_scene *it)
{
    prepare_pinned(it);
    must_ok(weir_buffer_use(&it->made, it->b, WEIR_READ));
    must_ok(weir_buffer_use(&it->made, it->unknown, WEIR_WRITE));
}

static void prepare_two_pinned(buffers_scene *it)
{
    weir_buffer first;
    must_ok(adopt(it, true, &first));
    must_ok(weir_buffer_share(&first, &it->made));
    weir_buffer_reset(&first);
    must_ok(adopt(it, true, &first));
    weir_buffer_reset(&first); /* they are registered for the other still */
}

/* ---- under the fault ---- */

/* The host waits as well; where it cannot, the copy may still be under way. */
static void finish(buffers_scene *it, weir_point point)
{
    buffers_before(it, &it->x);
    if (buffers_after(it, &it->x, weir_point_sync(it->device, point)) &&
        it->fault.kind != SWEEP_LOST)
        must(memcmp(host, written, BYTES) == 0);
}

static bool is_untouched(void)
{
    for (size_t i = 0; i < BYTES; i++) {
        if (host[i] != NOTHING)
            return false;
    }
    return true;
}

static void to_host_on(buffers_scene *it, weir_stream stream)
{
    weir_point point = { 1, 1 };
    if (try_on(it, &it->x,
               weir_buffer_to_host(&it->x, stream, 0, BYTES, host, &point))) {
        finish(it, point);
        return;
    }
    must(point.clock == 0 && point.mark == 0);
    must(is_untouched());
}

static void to_host(buffers_scene *it)
{
    to_host_on(it, it->a);
}

static void to_host_on_other(buffers_scene *it)
{
    to_host_on(it, it->c);
}

static void to_host_on_unknown(buffers_scene *it)
{
    to_host_on(it, it->unknown);
}

static void to_host_sync(buffers_scene *it)
{
    if (try_on(it, &it->x,
               weir_buffer_to_host_sync(&it->x, it->c, 0, BYTES, host)) &&
        it->fault.kind != SWEEP_LOST)
        must(memcmp(host, written, BYTES) == 0);
}

/* What is copied is what is there, so that x shows it whatever fails. */
static void from_host_on(buffers_scene *it, weir_stream stream)
{
    weir_point point = { 1, 1 };
    memcpy(host, written, BYTES);
    if (try_on(it, &it->x,
               weir_buffer_from_host(&it->x, stream, 0, BYTES, host, &point))) {
        it->is_noted_surely = stream == it->unknown;
        finish(it, point);
        return;
    }
    must(point.clock == 0 && point.mark == 0);
}

static void from_host(buffers_scene *it)
{
    from_host_on(it, it->a);
}

static void from_host_on_other(buffers_scene *it)
{
    from_host_on(it, it->c);
}

static void from_host_on_unknown(buffers_scene *it)
{
    from_host_on(it, it->unknown);
}

static void from_host_sync(buffers_scene *it)
{
    memcpy(host, written, BYTES);
    (void)try_on(it, &it->x, weir_buffer_from_host_sync(&it->x, it->c, 0, BYTES, host));
}

static void adopt_plain(buffers_scene *it)
{
    uint32_t ends = it->ends;
    buffers_before(it, &it->made);
    if (buffers_after(it, &it->made, adopt(it, false, &it->made)))
        must(properties_of(&it->made).kind == WEIR_MEMORY_HOST);
    must_equal(it->ends, ends);
}

static void adopt_pinned(buffers_scene *it)
{
    uint32_t ends = it->ends;
    buffers_before(it, &it->made);
    if (buffers_after(it, &it->made, adopt(it, true, &it->made)))
        must(properties_of(&it->made).kind == WEIR_MEMORY_PINNED);
    must_equal(it->ends, ends);
}

/* What another buffer has registered. */
static void adopt_again(buffers_scene *it)
{
    uint32_t ends = it->ends;
    buffers_before(it, &it->y);
    (void)buffers_after(it, &it->y, adopt(it, true, &it->y));
    must_equal(it->ends, ends);
    weir_buffer_reset(&it->y); /* its pages stay */
}

static void reset_array(buffers_scene *it)
{
    sweep_watch_library(it->device);
    weir_buffer_reset(&it->made);
    sweep_library_must_not_have_asked(it->device);
}

#define SWEEP_THESE(all) buffers_sweep_all((all), sizeof(all) / sizeof(all)[0])

static void copies_survive_every_fault(void **state)
{
    (void)state;
    static const sweep_of_buffer all[] = {
        { "to the host", prepare_alone, to_host, 3, 6 },
        { "to the host on another", prepare_full, to_host_on_other, 8, 12 },
        { "to the host on unknown", prepare_alone, to_host_on_unknown, 8, 18 },
        { "to the host from unknown", prepare_unknown, to_host_on_other, 7, 14 },
        { "to the host, waiting", prepare_full, to_host_sync, 7, 11 },
        { "from the host", prepare_alone, from_host, 3, 6 },
        { "from the host on another", prepare_full, from_host_on_other, 8, 12 },
        { "from the host on unknown", prepare_alone, from_host_on_unknown, 8, 18 },
        { "from the host to unknown", prepare_unknown, from_host_on_other, 10, 19 },
        { "from the host, waiting", prepare_full, from_host_sync, 7, 11 },
    };
    SWEEP_THESE(all);
}

static void arrays_survive_every_fault(void **state)
{
    (void)state;
    static const sweep_of_buffer all[] = {
        { "adopt", NULL, adopt_plain, 1, 0 },
        { "adopt pinned", NULL, adopt_pinned, 4, 1 },
        { "adopt what is pinned", prepare_pinned, adopt_again, 4, 4 },
        { "reset pinned", prepare_pinned, reset_array, 2, 4 },
        { "reset pinned and used", prepare_pinned_and_used, reset_array, 2, 7 },
        { "reset the last of two", prepare_two_pinned, reset_array, 1, 4 },
    };
    SWEEP_THESE(all);
}

#define A_SWEEP(test) cmocka_unit_test_teardown(test, buffers_sweep_tell_where)

int main(void)
{
    const struct CMUnitTest tests[] = {
        A_SWEEP(copies_survive_every_fault),
        A_SWEEP(arrays_survive_every_fault),
    };
    return cmocka_run_group_tests(tests, NULL, buffers_sweep_print_points);
}
