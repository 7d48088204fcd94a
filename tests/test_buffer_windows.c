/* test_buffer_windows.c - two threads on a buffer's streams, in every way in which they
 * can interleave with a bounded number of switches. */
#include "buffer_internal.h"
#include "storage.h"
#include "support_explore.h"
#include "support_roomy.h"
#include "support_scene.h"
#include "weir/weir.h"

#define ALL ((size_t)64 << 10) /* that the pool has */

typedef struct stage {
    weir_device *device;
    weir_resource *pool;
    weir_stream own, unknown, reader, other, writer;
    weir_stream home;            /* of the buffer: own or unknown */
    weir_buffer buffer, second;
    weir_weak_buffer weak;
    weir_dlpack tensor;
    weir_capture *capture;
    uint64_t released, upgraded; /* so many runs in which it was */
} stage;

static stage stage_open(explorer *self)
{
    *self = (explorer){ 0 };
    self->most_switches =
        (uint32_t)support_bound("test_buffer_windows.switches", 2, 3);
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.choose = explore_choose;
    emulated.choose_context = self;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    stage it = { .device = open_with("emulated:0", &options) };
    must_ok(weir_resource_open(it.device, "pool(initial=64KiB, growth=64KiB)/"
                               "limiting(64KiB)/device", &it.pool));
    it.own = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.reader = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.other = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.writer = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must_ok(support_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &it.unknown));
    return it;
}

static void stage_close(stage *it, const explorer *self)
{
    weir_resource_unref(it->pool);
    end_stream(it->device, it->own);
    end_stream(it->device, it->reader);
    end_stream(it->device, it->other);
    end_stream(it->device, it->writer);
    must_ok(support_stream_destroy(it->device, it->unknown));
    close_emulated(it->device);
    print_message("%llu interleavings, all there are with at most %u switches\n",
                  (unsigned long long)self->runs, (unsigned)self->most_switches);
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
    stage_close(&at, &self);
}

/* ---- who is alone, and who comes meanwhile ---- */

/* The buffer's owner writes to what it has got; if it has not, it has the buffer. */
static void releases(void *argument)
{
    stage *it = argument;
    weir_released r = { .struct_size = sizeof r };
    weir_status status = weir_buffer_release(&it->buffer, &r);
    if (status == WEIR_OK) {
        it->released++;
        stamp(it->device, r.stream, r.ptr, r.bytes, 2);
        must_ok(weir_released_free_sync(it->device, &r));
    } else {
        must_answer(WEIR_NOT_OWNED, status);
        must(r.ptr == NULL && it->buffer.storage != NULL);
    }
    weir_buffer_reset(&it->buffer);
}

static bool comes_back_to_life(stage *it, weir_buffer *out)
{
    weir_status status = weir_weak_buffer_upgrade(&it->weak, out);
    if (status == WEIR_NOT_FOUND)
        return false;
    must_ok(status);
    it->upgraded++;
    return true;
}

/* Somebody writes to it for a while on another stream. */
static void uses_it_meanwhile(void *argument)
{
    stage *it = argument;
    weir_buffer mine;
    if (!comes_back_to_life(it, &mine))
        return;
    must_ok(weir_buffer_wait(&mine, it->other, WEIR_WRITE));
    stamp(it->device, it->other, mine.data, mine.size, 3);
    must_ok(weir_buffer_use(&mine, it->other, WEIR_WRITE));
    weir_buffer_reset(&mine);
}

/* The same on a stream of which nobody is told. */
static void is_a_stranger_meanwhile(void *argument)
{
    stage *it = argument;
    weir_buffer mine;
    if (!comes_back_to_life(it, &mine))
        return;
    must_ok(weir_buffer_wait(&mine, it->unknown, WEIR_WRITE));
    stamp(it->device, it->unknown, mine.data, mine.size, 3);
    weir__storage_hold(mine.storage, WEIR__HOLDER_NONE);
    weir_storage *storage = mine.storage;
    weir_buffer_reset(&mine);
    weir__storage_leave_unnamed(storage);
}

/* What is released is ordered behind all who had it, also who came and went between
 * the looks of who releases it. */
static void releasing_is_behind_who_came_meanwhile(void **state)
{
    (void)state;
    void (*const rivals[])(void *) = { uses_it_meanwhile, is_a_stranger_meanwhile };
    for (size_t i = 0; i < sizeof rivals / sizeof rivals[0]; i++) {
        static explorer self;
        stage at = stage_open(&self);
        do {
            must_ok(weir_buffer_allocate(at.pool, at.own, 1024, WEIR_ALIGNMENT,
                                         &at.buffer));
            must_ok(weir_buffer_weaken(&at.buffer, &at.weak));
            stamp(at.device, at.own, at.buffer.data, 1024, 1);
            reads_on(&at, at.reader); /* something to wait for, and so windows */
            self.active = true;
            run_both(at.device, releases, rivals[i], &at);
            self.active = false;
            weir_weak_buffer_reset(&at.weak);
            must_ok(weir_device_drain_sync(at.device));
            must_be_quiet(at.device);
            must_ok(weir_device_sync(at.device)); /* each run begins with nothing */
        } while (explore_next(&self));
        must(at.upgraded > 0 && at.released > 0 && at.released < self.runs);
        stage_close(&at, &self);
    }
}

static void reads_when_all_is_done(stage *it, const weir_buffer *buffer)
{
    weir_stream stream;
    must_ok(weir__buffer_gather_uses(buffer, WEIR_READ, &stream));
    check_stamp(it->device, stream, buffer->data, buffer->size, 3);
}

static void gathers(void *argument)
{
    stage *it = argument;
    reads_when_all_is_done(it, &it->buffer);
}

static void gathers_as_well(void *argument)
{
    stage *it = argument;
    reads_when_all_is_done(it, &it->second);
}

/* Two holders wait for what a stranger wrote: neither takes it for done because the
 * other is about to wait. */
static void each_holder_waits_for_strangers(void **state)
{
    (void)state;
    static explorer self;
    stage at = stage_open(&self);
    do {
        must_ok(weir_buffer_allocate(at.pool, at.own, 1024, WEIR_ALIGNMENT,
                                     &at.buffer));
        must_ok(weir_buffer_share(&at.buffer, &at.second));
        must_ok(weir_buffer_set_stream(&at.second, at.other));
        must_ok(weir_buffer_wait(&at.buffer, at.unknown, WEIR_WRITE));
        stamp(at.device, at.unknown, at.buffer.data, 1024, 3);
        weir__storage_hold(at.buffer.storage, WEIR__HOLDER_NONE);
        weir__storage_leave_unnamed(at.buffer.storage);
        self.active = true;
        run_both(at.device, gathers, gathers_as_well, &at);
        self.active = false;
        weir_buffer_reset(&at.buffer);
        weir_buffer_reset(&at.second);
        must_ok(weir_device_drain_sync(at.device));
        must_be_quiet(at.device);
        must_ok(weir_device_sync(at.device)); /* each run begins with nothing */
    } while (explore_next(&self));
    stage_close(&at, &self);
}

/* ---- who leaves a stream, and who comes to it meanwhile ---- */

/* Somebody reads it on the stream that the buffer had when it was weakened: nothing is
 * noted, where there is a holder on that stream to count for it. */
static void reads_at_home(void *argument)
{
    stage *it = argument;
    weir_buffer mine;
    if (!comes_back_to_life(it, &mine))
        return;
    must_ok(weir_buffer_wait(&mine, it->home, WEIR_READ));
    check_stamp(it->device, it->home, mine.data, mine.size, 1);
    weir_buffer_reset(&mine);
}

static void changes_its_stream(void *argument)
{
    stage *it = argument;
    must_ok(weir_buffer_set_stream(&it->buffer, it->other));
}

static void hands_itself_over(void *argument)
{
    stage *it = argument;
    weir_status status = weir_buffer_resize(&it->buffer, 512, it->other);
    if (status != WEIR_OK)
        must_answer(WEIR_NOT_OWNED, status);
}

static void moves_away(void *argument)
{
    stage *it = argument;
    weir_status status = weir_buffer_resize(&it->buffer, 8192, it->other);
    if (status != WEIR_OK)
        must_answer(WEIR_NOT_OWNED, status);
}

/* Where the resource extends blocks. */
static void grows_where_it_is(void *argument)
{
    moves_away(argument);
}

static void ends_before_the_second(void *argument)
{
    stage *it = argument;
    weir_buffer_reset(&it->buffer);
}

/* A holder counts for others on its stream only with a mark that it takes later. */
static void leaving_a_stream_is_behind_who_came_to_it(void **state)
{
    (void)state;
    void (*const leave[])(void *) = { changes_its_stream, hands_itself_over, moves_away,
                                      grows_where_it_is, ends_before_the_second };
    for (size_t i = 0; i < 2 * sizeof leave / sizeof leave[0]; i++) {
        void (*leaves)(void *) = leave[i / 2];
        static explorer self;
        stage at = stage_open(&self);
        roomy extending;
        weir_resource *in_place = roomy_open(&extending, at.pool, 8192);
        weir_resource *mr = leaves == grows_where_it_is ? in_place : at.pool;
        at.home = i % 2 == 0 ? at.own : at.unknown;
        do {
            must_ok(weir_buffer_allocate(mr, at.home, 1024, WEIR_ALIGNMENT,
                                         &at.buffer));
            must_ok(weir_buffer_weaken(&at.buffer, &at.weak));
            stamp(at.device, at.home, at.buffer.data, 1024, 1);
            if (leaves == ends_before_the_second) {
                must_ok(weir_buffer_share(&at.buffer, &at.second));
                must_ok(weir_buffer_set_stream(&at.second, at.other));
            }
            self.active = true;
            run_both(at.device, leaves, reads_at_home, &at);
            self.active = false;
            weir_weak_buffer_reset(&at.weak);
            weir_buffer_reset(&at.buffer);
            weir_buffer_reset(&at.second);
            void *all = take(at.pool, at.other, ALL);
            stamp(at.device, at.other, all, ALL, 2);
            give(at.pool, at.other, all, ALL);
            must_be_quiet(at.device);
            must_ok(weir_device_sync(at.device)); /* each run begins with nothing */
        } while (explore_next(&self));
        must(at.upgraded > 0);
        must((extending.extensions > 0) == (mr == in_place));
        weir_resource_unref(in_place);
        stage_close(&at, &self);
    }
}

/* Who leaves and is alone need not be for long. */
static void a_weak_holder_has_the_bytes_or_none(void **state)
{
    (void)state;
    static explorer self;
    stage at = stage_open(&self);
    do {
        must_ok(weir_buffer_allocate(at.pool, at.own, 1024, WEIR_ALIGNMENT,
                                     &at.buffer));
        must_ok(weir_buffer_weaken(&at.buffer, &at.weak));
        stamp(at.device, at.own, at.buffer.data, 1024, 1);
        self.active = true;
        run_both(at.device, ends_before_the_second, uses_it_meanwhile, &at);
        self.active = false;
        weir_weak_buffer_reset(&at.weak);
        must_be_quiet(at.device);
        must_equal(statistics_of(at.pool).out_bytes, 0);
        must_ok(weir_device_sync(at.device)); /* each run begins with nothing */
    } while (explore_next(&self));
    must(at.upgraded > 0 && at.upgraded < self.runs);
    stage_close(&at, &self);
}

/* The same of whom nothing is left but work that nobody can name. */
static void goes_without_a_name(void *argument)
{
    stage *it = argument;
    weir_buffer mine;
    if (!comes_back_to_life(it, &mine))
        return;
    weir_weak_buffer_reset(&it->weak);
    weir_storage *storage = mine.storage;
    weir__storage_hold(storage, WEIR__HOLDER_NONE);
    weir_buffer_reset(&mine);
    weir__storage_leave_unnamed(storage);
}

/* Who moves has looked for others, and then is alone again: but the record may not be
 * used for other bytes. The buffer is as it was, and ends as any does. */
static void moving_gives_up_for_who_came_and_went(void **state)
{
    (void)state;
    static explorer self;
    stage at = stage_open(&self);
    self.most_switches = 3; /* there, back and there again */
    do {
        must_ok(weir_buffer_allocate(at.pool, at.own, 1024, WEIR_ALIGNMENT,
                                     &at.buffer));
        must_ok(weir_buffer_weaken(&at.buffer, &at.weak));
        self.active = true;
        run_both(at.device, moves_away, goes_without_a_name, &at);
        self.active = false;
        weir_weak_buffer_reset(&at.weak);
        must(at.buffer.storage != NULL && weir__storage_is_alone(at.buffer.storage));
        weir_buffer_reset(&at.buffer);
        must_ok(weir_device_drain_sync(at.device));
        must_equal(statistics_of(at.pool).out_bytes, 0);
        must_be_quiet(at.device);
        must_ok(weir_device_sync(at.device)); /* each run begins with nothing */
    } while (explore_next(&self));
    must(at.upgraded > 0);
    stage_close(&at, &self);
}

/* ---- a stream that ends meanwhile ---- */

static void resets(void *argument)
{
    stage *it = argument;
    weir_buffer_reset(&it->buffer);
}

/* The next one may get its handle. */
static void ends_its_stream(void *argument)
{
    stage *it = argument;
    end_stream(it->device, it->home);
    it->home = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
}

static void a_reset_is_on_its_own_stream_or_behind_it(void **state)
{
    (void)state;
    static explorer self;
    stage at = stage_open(&self);
    uint64_t reused = 0;
    do {
        at.home = make_stream(at.device, WEIR_STREAM_NON_BLOCKING);
        const weir_stream first = at.home;
        must_ok(weir_buffer_allocate(at.pool, first, ALL, WEIR_ALIGNMENT, &at.buffer));
        stamp(at.device, first, at.buffer.data, ALL, 1);
        self.active = true;
        run_both(at.device, resets, ends_its_stream, &at);
        self.active = false;
        reused += at.home == first;
        must_equal(statistics_of(at.pool).set_aside_bytes, 0);
        must_ok(weir_buffer_allocate(at.pool, at.home, ALL, WEIR_ALIGNMENT,
                                     &at.buffer));
        stamp(at.device, at.home, at.buffer.data, ALL, 2);
        must_be_quiet(at.device);
        weir_buffer_reset(&at.buffer);
        must_ok(weir_device_sync(at.device)); /* each run begins with nothing */
        end_stream(at.device, at.home);
    } while (explore_next(&self));
    must(reused > 0);
    stage_close(&at, &self);
}

static void resets_its_share(void *argument)
{
    stage *it = argument;
    weir_buffer_reset(&it->second);
}

static void moves_its_share(void *argument)
{
    stage *it = argument;
    must_ok(weir_buffer_set_stream(&it->second, it->writer));
}

/* There is no room for what the share's stream has done, so that has to wait for
 * another use, which is lost if another stream of its name does. Where it cannot, the
 * bytes are used again once all is done, and who waits for them waits for all. */
static uint64_t shares_run(void (*leaves)(void *argument), bool is_waited_for)
{
    static explorer self;
    stage at = stage_open(&self);
    uint64_t unnamed = 0;
    do {
        at.home = make_stream(at.device, WEIR_STREAM_NON_BLOCKING);
        must_ok(weir_buffer_allocate(at.pool, at.own, ALL, WEIR_ALIGNMENT, &at.buffer));
        stamp(at.device, at.own, at.buffer.data, ALL, 1);
        must_ok(weir_buffer_share(&at.buffer, &at.second));
        must_ok(weir_buffer_set_stream(&at.second, at.home));
        must_ok(weir_buffer_wait(&at.second, at.home, WEIR_READ));
        check_stamp(at.device, at.home, at.second.data, ALL, 1);
        reads_on(&at, at.reader);
        reads_on(&at, at.other);
        self.active = true;
        run_both(at.device, leaves, ends_its_stream, &at);
        self.active = false;
        unnamed += at.buffer.storage->unnamed_all != 0;
        weir_buffer_reset(&at.second);
        if (is_waited_for) {
            must_ok(weir_buffer_wait(&at.buffer, at.writer, WEIR_WRITE));
            stamp(at.device, at.writer, at.buffer.data, ALL, 3);
            must_ok(weir_buffer_use(&at.buffer, at.writer, WEIR_WRITE));
        }
        weir_buffer_reset(&at.buffer);
        must_ok(weir_buffer_allocate(at.pool, at.writer, ALL, WEIR_ALIGNMENT,
                                     &at.buffer));
        stamp(at.device, at.writer, at.buffer.data, ALL, 2);
        weir_buffer_reset(&at.buffer);
        must_ok(weir_device_drain_sync(at.device));
        must_be_quiet(at.device);
        must_ok(weir_device_sync(at.device)); /* each run begins with nothing */
        end_stream(at.device, at.home);
    } while (explore_next(&self));
    must(unnamed < self.runs);
    stage_close(&at, &self);
    return unnamed;
}

static void a_share_speaks_for_its_own_stream(void **state)
{
    (void)state;
    must(shares_run(resets_its_share, false) > 0);
    must(shares_run(resets_its_share, true) > 0);
    /* Another stream waits instead. */
    must_equal(shares_run(moves_its_share, false), 0);
}

static void deletes_its_tensor(void *argument)
{
    stage *it = argument;
    weir_dlpack_delete(it->tensor);
}

/* What is then on the stream is left to the tensor to note. */
static void waits_and_writes(void *argument)
{
    stage *it = argument;
    must_ok(weir_capture_end(it->capture));
    must_ok(weir_buffer_wait(&it->buffer, it->own, WEIR_WRITE));
    stamp(it->device, it->own, it->buffer.data, ALL, 2);
    weir_buffer_reset(&it->buffer);
}

static void syncs_and_writes(void *argument)
{
    stage *it = argument;
    must_ok(weir_capture_end(it->capture));
    must_ok(weir_device_sync(it->device));
    stamp(it->device, it->own, it->buffer.data, ALL, 2);
    weir_buffer_reset(&it->buffer);
}

static void export_to_own(stage *it)
{
    weir_dlpack_request request = WEIR_DLPACK_REQUEST_INIT;
    int64_t number = (int64_t)(uintptr_t)it->own, extent = 1024;
    request.stream = &number;
    weir_tensor tensor = { { WEIR_DTYPE_UINT, 8, 1 }, 1, &extent, NULL, 0 };
    must_ok(weir_dlpack_export(&it->buffer, &tensor, &request, &it->tensor));
}

/* A tensor that is deleted while its stream is captured has nothing of its own there:
 * if it is the last holder, it cannot tell what others have left to it. */
static void the_last_to_leave_need_not_know(void **state)
{
    (void)state;
    void (*const others[])(void *) = { waits_and_writes, syncs_and_writes };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        static explorer self;
        stage at = stage_open(&self);
        do {
            must_ok(weir_buffer_allocate(at.pool, at.own, ALL, WEIR_ALIGNMENT,
                                         &at.buffer));
            export_to_own(&at);
            stamp(at.device, at.own, at.buffer.data, ALL, 1);
            must_ok(weir_capture_begin(at.pool, at.own, &at.capture));
            self.active = true;
            run_both(at.device, deletes_its_tensor, others[i], &at);
            self.active = false;
            weir_status status = weir_buffer_allocate(at.pool, at.writer, ALL,
                                                      WEIR_ALIGNMENT, &at.buffer);
            if (status == WEIR_OK)
                stamp(at.device, at.writer, at.buffer.data, ALL, 3);
            weir_buffer_reset(&at.buffer);
            must_be_quiet(at.device);
            must_ok(weir_device_sync(at.device)); /* each run begins with nothing */
            must_ok(weir_capture_release(at.capture, at.own));
            must_ok(weir_device_drain_sync(at.device));
        } while (explore_next(&self));
        stage_close(&at, &self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mark_speaks_for_what_was_passed_before),
        cmocka_unit_test(releasing_is_behind_who_came_meanwhile),
        cmocka_unit_test(each_holder_waits_for_strangers),
        cmocka_unit_test(leaving_a_stream_is_behind_who_came_to_it),
        cmocka_unit_test(a_weak_holder_has_the_bytes_or_none),
        cmocka_unit_test(moving_gives_up_for_who_came_and_went),
        cmocka_unit_test(a_reset_is_on_its_own_stream_or_behind_it),
        cmocka_unit_test(a_share_speaks_for_its_own_stream),
        cmocka_unit_test(the_last_to_leave_need_not_know),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
