/* sweep_buffers.c - all that can be done with a buffer, while each host allocation and
 * each device call on the way fails in turn: once, with all that follow, or with the
 * device lost.
 *
 * A call that fails leaves its buffer byte for byte as it was, its out parameter empty,
 * and no more memory out than before. Whatever failed, afterwards all buffers show what
 * was written, can be ended, and everything is back once: the ledger watches the reuse.
 *
 * How many calls each makes is written down beside it. To be changed with the reason
 * known. */
#include <string.h>

#include "device/device.h"
#include "support_sweep_buffers.h"

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

static void prepare_alone(buffers_scene *it)
{
    must_ok(weir_buffer_allocate(it->pool, it->a, BYTES, WEIR_ALIGNMENT, &it->x));
    stamp(it->device, it->a, it->x.data, BYTES, KEY);
}

static void prepare_read(buffers_scene *it)
{
    prepare_alone(it);
    note(it, it->b, WEIR_READ);
}

static void prepare_full(buffers_scene *it)
{
    prepare_read(it);
    note(it, it->unknown, WEIR_WRITE);
}

static void prepare_known(buffers_scene *it)
{
    prepare_read(it);
    must_ok(weir_buffer_weaken(&it->x, &it->weak));
}

static void prepare_room(buffers_scene *it)
{
    prepare_alone(it);
    must_ok(weir_buffer_reserve(&it->x, 4 * BYTES, it->a));
    note(it, it->b, WEIR_READ);
}

static void prepare_room_known(buffers_scene *it)
{
    prepare_room(it);
    must_ok(weir_buffer_weaken(&it->x, &it->weak));
}

static void prepare_shared(buffers_scene *it)
{
    prepare_read(it);
    must_ok(weir_buffer_share(&it->x, &it->y));
    must_ok(weir_buffer_set_stream(&it->y, it->b));
}

static void prepare_shared_full(buffers_scene *it)
{
    prepare_full(it);
    must_ok(weir_buffer_share(&it->x, &it->y));
    must_ok(weir_buffer_set_stream(&it->y, it->c));
}

static void prepare_unknown(buffers_scene *it)
{
    must_ok(weir_buffer_allocate(it->pool, it->unknown, BYTES, WEIR_ALIGNMENT, &it->x));
    stamp(it->device, it->unknown, it->x.data, BYTES, KEY);
    note(it, it->b, WEIR_READ);
}

static void end_foreign(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    buffers_scene *it = context;
    it->ends++;
    must(!it->ends_behind_all || it->is_read || weir__device_is_lost(it->device));
    give(it->pool, stream, ptr, bytes);
}

static void set_read(void *argument, void *const views[])
{
    (void)views;
    ((buffers_scene *)argument)->is_read = true;
}

static weir_foreign foreign_of(buffers_scene *it)
{
    weir_foreign foreign = WEIR_FOREIGN_INIT;
    foreign.ptr = it->block;
    foreign.bytes = BYTES;
    foreign.deleter = end_foreign;
    foreign.context = it;
    return foreign;
}

static void prepare_block(buffers_scene *it)
{
    it->block = take(it->pool, it->a, BYTES);
}

static void adopt(buffers_scene *it, bool ignores_stream)
{
    prepare_block(it);
    weir_foreign foreign = foreign_of(it);
    foreign.ignores_stream = ignores_stream;
    must_ok(weir_buffer_adopt(it->device, it->a, &foreign, &it->x));
    it->adoptions++;
    it->block = NULL;
    stamp(it->device, it->a, it->x.data, BYTES, KEY);
    note(it, it->b, WEIR_READ);
    it->ends_behind_all = ignores_stream;
    must_ok(weir_emulated_launch(it->device, it->b, set_read, it, NULL, 0));
    must_ok(weir_buffer_use(&it->x, it->b, WEIR_READ));
}

static void prepare_foreign(buffers_scene *it)
{
    adopt(it, false);
}

static void prepare_deferred(buffers_scene *it)
{
    adopt(it, true);
}

static void prepare_pending(buffers_scene *it)
{
    adopt(it, true);
    weir_buffer_reset(&it->x);
}

static void prepare_retired(buffers_scene *it)
{
    must_ok(weir_buffer_allocate(it->pool, it->c, BYTES, WEIR_ALIGNMENT, &it->x));
    stamp(it->device, it->c, it->x.data, BYTES, KEY);
    note(it, it->b, WEIR_READ);
    end_stream(it->device, it->c);
    it->c = make_stream(it->device, WEIR_STREAM_BLOCKING);
}

/* ---- under the fault ---- */

static void allocate(buffers_scene *it)
{
    (void)try_on(it, &it->made, weir_buffer_allocate(it->pool, it->b, BYTES,
                                                     WEIR_ALIGNMENT, &it->made));
}

static void allocate_on_unknown(buffers_scene *it)
{
    (void)try_on(it, &it->made, weir_buffer_allocate(it->pool, it->unknown, BYTES,
                                                     WEIR_ALIGNMENT, &it->made));
}

static void adopt_foreign(buffers_scene *it)
{
    weir_foreign foreign = foreign_of(it);
    if (try_on(it, &it->made,
               weir_buffer_adopt(it->device, it->a, &foreign, &it->made))) {
        it->adoptions++;
        it->block = NULL;
    }
}

static void adopt_block(buffers_scene *it)
{
    if (try_on(it, &it->made,
               weir_buffer_adopt_block(it->pool, it->a, it->block, BYTES,
                                       WEIR_ALIGNMENT, &it->made)))
        it->block = NULL;
}

static void view(buffers_scene *it)
{
    weir_buffer of_x;
    must_ok(weir_buffer_view(it->x.data, BYTES, it->a, &of_x));
    if (try_on(it, &of_x, weir_buffer_own(&of_x, it->pool, it->a))) {
        it->made = of_x;
        it->is_written = true;
    }
}

static void share(buffers_scene *it)
{
    must(try_on(it, &it->made, weir_buffer_share(&it->x, &it->made)));
    it->is_written = true;
}

static void slice(buffers_scene *it)
{
    must(try_on(it, &it->made, weir_buffer_slice(&it->x, 0, BYTES / 2, &it->made)));
    it->is_written = true;
}

static void weaken(buffers_scene *it)
{
    must(try_on(it, &it->x, weir_buffer_weaken(&it->x, &it->weak)));
}

static void upgrade(buffers_scene *it)
{
    must(try_on(it, &it->made, weir_weak_buffer_upgrade(&it->weak, &it->made)));
    it->is_written = true;
}

static void resize_on(buffers_scene *it, size_t bytes, weir_stream stream)
{
    if (try_on(it, &it->x, weir_buffer_resize(&it->x, bytes, stream)))
        must(it->x.size == bytes && it->x.stream == stream);
}

static void resize(buffers_scene *it)
{
    resize_on(it, 3 * BYTES, it->a);
}

static void resize_on_other(buffers_scene *it)
{
    resize_on(it, 3 * BYTES, it->c);
}

static void resize_on_unknown(buffers_scene *it)
{
    resize_on(it, 3 * BYTES, it->unknown);
}

static void reserve(buffers_scene *it)
{
    if (try_on(it, &it->x, weir_buffer_reserve(&it->x, 3 * BYTES, it->b)))
        must(it->x.size == BYTES && it->x.capacity >= 3 * BYTES);
}

static void shrink(buffers_scene *it)
{
    if (try_on(it, &it->x, weir_buffer_shrink(&it->x, it->b)))
        must_equal(it->x.capacity, BYTES);
}

static void copy_on(buffers_scene *it, weir_stream stream)
{
    buffers_before(it, &it->made);
    weir_buffer x = it->x;
    weir_status status = weir_buffer_copy(&it->x, it->pool, stream, &it->made);
    must(memcmp(&x, &it->x, sizeof x) == 0);
    it->is_written = buffers_after(it, &it->made, status);
}

static void copy(buffers_scene *it)
{
    copy_on(it, it->c);
}

static void copy_on_unknown(buffers_scene *it)
{
    copy_on(it, it->unknown);
}

static void own(buffers_scene *it)
{
    if (try_on(it, &it->x, weir_buffer_own(&it->x, it->pool, it->c)))
        must(it->x.resource == it->pool);
}

static void release(buffers_scene *it)
{
    weir_released r = { .struct_size = sizeof r };
    if (!try_on(it, &it->x, weir_buffer_release(&it->x, &r))) {
        must(r.ptr == NULL && r.deleter == NULL && r.resource == NULL);
        return;
    }
    void *ptr = r.ptr;
    weir_status status = weir_released_free_sync(it->device, &r);
    if (status != WEIR_OK) {
        must(r.ptr == ptr && r.deleter != NULL);
        r.ignores_stream = it->ends_behind_all = false; /* it is freed behind that */
        must_ok(weir_released_free_sync(it->device, &r));
    }
    must(r.ptr == NULL);
}

static void set_stream(buffers_scene *it)
{
    if (try_on(it, &it->x, weir_buffer_set_stream(&it->x, it->c)))
        must(it->x.stream == it->c);
}

static void use(buffers_scene *it)
{
    weir_buffer seen = it->x;
    buffers_before(it, &it->x);
    (void)buffers_after(it, &it->x, weir_buffer_use(&it->x, it->a, WEIR_READ));
    (void)buffers_after(it, &it->x, weir_buffer_use(&it->x, it->c, WEIR_READ));
    (void)buffers_after(it, &it->x, weir_buffer_use(&it->x, it->unknown, WEIR_WRITE));
    (void)buffers_after(it, &it->x, weir_buffer_use(&it->x, NULL, WEIR_READ));
    must(memcmp(&it->x, &seen, sizeof seen) == 0);
}

static void wait(buffers_scene *it)
{
    weir_buffer seen = it->x;
    buffers_before(it, &it->x);
    (void)buffers_after(it, &it->x, weir_buffer_wait(&it->x, it->c, WEIR_READ));
    (void)buffers_after(it, &it->x, weir_buffer_wait(&it->x, it->a, WEIR_WRITE));
    (void)buffers_after(it, &it->x, weir_buffer_wait(&it->x, it->unknown, WEIR_WRITE));
    must(memcmp(&it->x, &seen, sizeof seen) == 0);
}

static void wait_sync(buffers_scene *it)
{
    (void)try_on(it, &it->x, weir_buffer_wait_sync(&it->x, WEIR_WRITE));
}

static void reset(buffers_scene *it)
{
    weir_buffer_reset(&it->x);
    weir_buffer_reset(&it->y);
}

/* The same, where nothing may be asked for either. */
static void reset_alone(buffers_scene *it)
{
    sweep_watch_library(it->device);
    weir_buffer_reset(&it->x);
    sweep_library_must_not_have_asked(it->device);
}

static void reset_other(buffers_scene *it)
{
    weir_buffer_reset(&it->y);
}

static void drain(buffers_scene *it)
{
    weir_status status = weir_device_drain_sync(it->device);
    if (status == WEIR_DEVICE_LOST) /* nothing runs there, so it is done */
        must_equal(it->ends, it->adoptions);
    else
        (void)try_on(it, &it->x, status);
}

static void look(buffers_scene *it)
{
    (void)try_on(it, &it->made, weir_buffer_init(it->pool, it->b, &it->made));
}

#define SWEEP_THESE(all) buffers_sweep_all((all), sizeof(all) / sizeof(all)[0])

static void beginning_survives_every_fault(void **state)
{
    (void)state;
    static const sweep_of_buffer all[] = {
        { "allocate", NULL, allocate, 14, 1 },
        { "allocate on unknown", NULL, allocate_on_unknown, 17, 8 },
        { "adopt", prepare_block, adopt_foreign, 1, 0 },
        { "adopt a block", prepare_block, adopt_block, 1, 0 },
        { "own a view", prepare_alone, view, 5, 1 },
        { "share", prepare_alone, share, 0, 0 },
        { "slice", prepare_alone, slice, 0, 0 },
        { "weaken", prepare_alone, weaken, 0, 0 },
        { "upgrade", prepare_known, upgrade, 0, 0 },
        { "look", prepare_pending, look, 1, 1 },
    };
    SWEEP_THESE(all);
}

static void changing_survives_every_fault(void **state)
{
    (void)state;
    static const sweep_of_buffer all[] = {
        { "resize", prepare_alone, resize, 4, 1 },
        { "resize on another", prepare_full, resize_on_other, 11, 8 },
        { "resize on unknown", prepare_read, resize_on_unknown, 12, 18 },
        { "resize from unknown", prepare_unknown, resize_on_other, 5, 8 },
        { "resize what is known", prepare_known, resize_on_other, 9, 6 },
        { "resize of a retired one", prepare_retired, resize, 7, 3 },
        { "resize in place", prepare_room, resize, 0, 0 },
        { "resize in place on another", prepare_room, resize_on_other, 3, 5 },
        { "resize in place what is known", prepare_room_known, resize_on_other, 3, 5 },
        { "reserve", prepare_full, reserve, 11, 8 },
        { "shrink", prepare_room, shrink, 5, 6 },
        { "copy", prepare_full, copy, 13, 8 },
        { "copy on unknown", prepare_read, copy_on_unknown, 14, 18 },
        { "copy foreign", prepare_foreign, copy, 10, 6 },
        { "own of two", prepare_shared, own, 13, 11 },
        { "own foreign", prepare_deferred, own, 13, 16 },
        { "release", prepare_full, release, 5, 4 },
        { "release foreign", prepare_foreign, release, 3, 5 },
        { "release deferred", prepare_deferred, release, 3, 7 },
        { "release of a retired one", prepare_retired, release, 5, 7 },
    };
    SWEEP_THESE(all);
}

static void order_survives_every_fault(void **state)
{
    (void)state;
    static const sweep_of_buffer all[] = {
        { "set stream", prepare_full, set_stream, 3, 2 },
        { "set stream from unknown", prepare_unknown, set_stream, 1, 5 },
        { "use", prepare_read, use, 16, 24 },
        { "wait", prepare_full, wait, 14, 18 },
        { "wait on the host", prepare_full, wait_sync, 1, 5 },
        { "drain", prepare_pending, drain, 1, 5 },
    };
    SWEEP_THESE(all);
}

static void ending_survives_every_fault(void **state)
{
    (void)state;
    static const sweep_of_buffer all[] = {
        { "reset", prepare_alone, reset_alone, 0, 0 },
        { "reset what is read", prepare_read, reset_alone, 0, 0 },
        { "reset what many use", prepare_full, reset_alone, 0, 0 },
        { "reset what is known", prepare_known, reset_alone, 0, 0 },
        { "reset unknown", prepare_unknown, reset_alone, 1, 5 },
        { "reset of a retired one", prepare_retired, reset_alone, 0, 0 },
        { "reset one of two", prepare_shared, reset_other, 0, 0 },
        { "reset both", prepare_shared, reset, 0, 0 },
        { "reset both of many", prepare_shared_full, reset, 0, 0 },
        { "reset foreign", prepare_foreign, reset, 3, 5 },
        { "reset deferred", prepare_deferred, reset_alone, 2, 7 },
    };
    SWEEP_THESE(all);
}

#define A_SWEEP(test) cmocka_unit_test_teardown(test, buffers_sweep_tell_where)

int main(void)
{
    const struct CMUnitTest tests[] = {
        A_SWEEP(beginning_survives_every_fault),
        A_SWEEP(changing_survives_every_fault),
        A_SWEEP(order_survives_every_fault),
        A_SWEEP(ending_survives_every_fault),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, buffers_sweep_print_points);
}
