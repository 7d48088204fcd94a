/* test_growable_pause.c - growable memory that is paused: what is released and kept,
 * what is waited for, what can be done meanwhile, and what a failure leaves. */
#include <pthread.h>
#include <string.h>

#include "device/device.h"
#include "internal.h"
#include "support.h"
#include "support_work.h"
#include "weir/fallback.h"
#include "weir/growable.h"
#include "weir/leaves.h"
#include "weir/limiting.h"
#include "weir/resource_ops.h"

#define MIB  ((size_t)1 << 20)
#define PAGE WEIR_GROWABLE_PAGE_BYTES

static weir_resource *open_spec(weir_device *device, const char *spec)
{
    weir_resource *mr;
    must_ok(weir_resource_open(device, spec, &mr));
    return mr;
}

static void must_hold(weir_resource *mr, size_t bytes)
{
    must_equal(statistics_of(mr).held_bytes, bytes);
}

static void must_be(weir_resource *mr, bool is_paused, size_t absent_bytes,
                    size_t kept_bytes)
{
    weir_growable_pause now = { .struct_size = sizeof now };
    must_ok(weir_growable_get_pause(mr, &now));
    must_equal(now.is_paused, is_paused);
    must_equal(now.absent_bytes, absent_bytes);
    must_equal(now.kept_bytes, kept_bytes);
}

/* A growable with chunks of four pages, and a place to keep what it has. */
typedef struct scene {
    weir_device *device;
    weir_resource *mr, *host;
    weir_stream stream;
    size_t before; /* bytes of the device that were free */
} scene;

static scene begin(void)
{
    scene it = { .device = open_stepped(0) };
    it.stream = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.before = device_free_bytes(it.device);
    it.mr = open_spec(it.device, "growable(chunk=8MiB, pages_only=true)");
    it.host = open_spec(it.device, "pinned");
    return it;
}

static void end(scene *it)
{
    must_equal(statistics_of(it->mr).out_blocks, 0);
    must_equal(statistics_of(it->host).out_blocks, 0);
    weir_resource_unref(it->mr);
    weir_resource_unref(it->host);
    must_equal(device_free_bytes(it->device), it->before);
    end_stream(it->device, it->stream);
    close_emulated(it->device);
}

/* ---- what comes back ---- */

/* Two runs with a hole between, over the borders of chunks; a third chunk is free. */
static void what_is_kept_comes_back(void **state)
{
    (void)state;
    scene it = begin();
    unsigned char *a = take(it.mr, it.stream, 3 * PAGE);
    unsigned char *hole = take(it.mr, it.stream, PAGE);
    unsigned char *b = take(it.mr, it.stream, 5 * PAGE);
    unsigned char *rest = take(it.mr, it.stream, 7 * PAGE);
    must(b == a + 4 * PAGE && rest == b + 5 * PAGE);
    stamp(it.device, it.stream, a, 3 * PAGE, 1);
    stamp(it.device, it.stream, b, 5 * PAGE, 2);
    give(it.mr, it.stream, hole, PAGE);
    give(it.mr, it.stream, rest, 7 * PAGE);
    must_be(it.mr, false, 0, 0);

    must_ok(weir_growable_pause_sync(it.mr, it.stream, it.host));
    must_be(it.mr, true, 12 * PAGE, 8 * PAGE);
    must_hold(it.mr, 0);
    must_equal(statistics_of(it.mr).out_bytes, 8 * PAGE);
    must_equal(statistics_of(it.mr).free_bytes, 0);
    must_equal(statistics_of(it.host).out_bytes, 8 * PAGE);
    must_equal(device_free_bytes(it.device), it.before);

    /* The memory is another's meanwhile. */
    weir_resource *other = open_spec(it.device, "device");
    void *theirs = take(other, it.stream, 16 * PAGE);
    stamp(it.device, it.stream, theirs, 16 * PAGE, 9);
    give(other, it.stream, theirs, 16 * PAGE);
    weir_resource_unref(other);

    must_ok(weir_growable_resume(it.mr, it.stream));
    must_be(it.mr, false, 0, 0);
    must_hold(it.mr, 12 * PAGE);
    check_stamp(it.device, it.stream, a, 3 * PAGE, 1);
    check_stamp(it.device, it.stream, b, 5 * PAGE, 2);
    must_equal(statistics_of(it.host).out_bytes, 0);

    /* What was free is, and what is new lies where it would have. */
    must_ok(weir_device_sync(it.device));
    unsigned char *again = take(it.mr, it.stream, PAGE);
    must(again == hole);
    stamp(it.device, it.stream, again, PAGE, 3);
    check_stamp(it.device, it.stream, b, 5 * PAGE, 2);
    give(it.mr, it.stream, again, PAGE);
    give(it.mr, it.stream, a, 3 * PAGE);
    give(it.mr, it.stream, b, 5 * PAGE);
    end(&it);
}

static void what_is_dropped_is_unknown(void **state)
{
    (void)state;
    scene it = begin();
    void *a = take(it.mr, it.stream, 2 * PAGE);
    stamp(it.device, it.stream, a, 2 * PAGE, 1);
    must_ok(weir_growable_pause_sync(it.mr, it.stream, NULL));
    must_be(it.mr, true, 4 * PAGE, 0);
    must_equal(calls_of(it.device).copy, 0);
    must_equal(device_free_bytes(it.device), it.before);
    must_ok(weir_growable_resume(it.mr, it.stream));
    must_equal(calls_of(it.device).copy, 0);
    check_stamp(it.device, it.stream, a, 2 * PAGE, 1);
    must_ok(weir_device_sync(it.device));
    must(take_stamp_errors() > 0);
    stamp(it.device, it.stream, a, 2 * PAGE, 2);
    check_stamp(it.device, it.stream, a, 2 * PAGE, 2);
    give(it.mr, it.stream, a, 2 * PAGE);
    end(&it);
}

/* Nothing out, and nothing to map or to copy; a second time, nothing at all. */
static void pausing_twice_is_pausing_once(void **state)
{
    (void)state;
    scene it = begin();
    must_ok(weir_growable_resume(it.mr, it.stream));
    must_ok(weir_growable_pause_sync(it.mr, it.stream, it.host));
    must_be(it.mr, true, 0, 0);
    must_ok(weir_growable_resume(it.mr, it.stream));
    void *a = take(it.mr, it.stream, PAGE);
    /* Itself it has room for, but not while it is being paused. */
    must_answer(WEIR_PAUSED, weir_growable_pause_sync(it.mr, it.stream, it.mr));
    must_be(it.mr, false, 0, 0);
    for (uint64_t key = 1; key <= 3; key++) {
        stamp(it.device, it.stream, a, PAGE, key);
        must_ok(weir_growable_pause_sync(it.mr, it.stream, it.host));
        must_ok(weir_growable_pause_sync(it.mr, it.stream, NULL)); /* still kept */
        must_be(it.mr, true, 4 * PAGE, PAGE);
        must_ok(weir_growable_resume(it.mr, it.stream));
        must_ok(weir_growable_resume(it.mr, it.stream));
        check_stamp(it.device, it.stream, a, PAGE, key);
        must_be(it.mr, false, 0, 0);
    }
    give(it.mr, it.stream, a, PAGE);
    end(&it);
}

/* ---- meanwhile ---- */

/* Of what keeps the contents: it asks for what is free in what is being paused, and
 * would have it otherwise. */
static weir_status keep_elsewhere(void *context, weir_stream stream, size_t bytes,
                                  size_t alignment, void **out)
{
    const scene *it = context;
    void *none = context;
    must_answer(WEIR_PAUSED, weir_allocate(it->mr, stream, PAGE, alignment, &none));
    must(none == NULL);
    must_answer(WEIR_PAUSED, weir_growable_resume(it->mr, stream));
    must_answer(WEIR_PAUSED, weir_growable_pause_sync(it->mr, stream, NULL));
    return weir_allocate(it->host, stream, bytes, alignment, out);
}

static void give_elsewhere(void *context, weir_stream stream, void *ptr, size_t bytes,
                           size_t alignment)
{
    const scene *it = context;
    must(weir_deallocate(it->host, stream, ptr, bytes, alignment));
}

static void what_is_being_paused_gives_nothing_out(void **state)
{
    (void)state;
    scene it = begin();
    const weir_callbacks calls = { .struct_size = sizeof calls,
                                   .allocate = keep_elsewhere,
                                   .deallocate = give_elsewhere };
    weir_resource *keeper;
    must_ok(weir_callback_create(it.device, &calls, &it, &keeper));
    unsigned char *a = take(it.mr, it.stream, PAGE);
    stamp(it.device, it.stream, a, PAGE, 1);
    must_ok(weir_growable_pause_sync(it.mr, it.stream, keeper));
    must_be(it.mr, true, 4 * PAGE, PAGE);
    must_ok(weir_growable_resume(it.mr, it.stream));
    check_stamp(it.device, it.stream, a, PAGE, 1);
    give(it.mr, it.stream, a, PAGE);
    weir_resource_unref(keeper);
    end(&it);
}

static void what_is_paused_gives_nothing_out(void **state)
{
    (void)state;
    scene it = begin();
    void *none = it.device;
    unsigned char *a = take(it.mr, it.stream, PAGE), *b = take(it.mr, it.stream, PAGE);
    unsigned char *d = take(it.mr, it.stream, PAGE);
    unsigned char *c = take(it.mr, it.stream, 4 * PAGE);
    stamp(it.device, it.stream, a, PAGE, 1);
    stamp(it.device, it.stream, b, PAGE, 2);
    stamp(it.device, it.stream, d, PAGE, 4);
    must_ok(weir_growable_pause_sync(it.mr, it.stream, it.host));
    uint64_t maps = calls_of(it.device).range_map;
    must_answer(WEIR_PAUSED, weir_allocate(it.mr, it.stream, PAGE, 256, &none));
    must(none == NULL);
    must_answer(WEIR_PAUSED, weir_resource_extend(it.mr, it.stream, b, PAGE,
                                                  WEIR_ALIGNMENT, 2 * PAGE));
    must_equal(weir_resource_trim_sync(it.mr, 0), 0);
    must_equal(calls_of(it.device).range_map, maps);
    must_equal(statistics_of(it.mr).failures, 1);

    /* What is given back is neither mapped nor copied again: c has most of a chunk. */
    give(it.mr, it.stream, b, PAGE);
    give(it.mr, it.stream, c, 4 * PAGE);
    must_equal(statistics_of(it.mr).out_bytes, 2 * PAGE);
    must_ok(weir_device_sync(it.device));
    must_answer(WEIR_PAUSED, weir_allocate(it.mr, it.stream, PAGE, 256, &none));
    uint64_t copies = calls_of(it.device).copy;
    must_ok(weir_growable_resume(it.mr, it.stream));
    must_equal(calls_of(it.device).copy, copies + 2);
    must_hold(it.mr, 4 * PAGE);
    check_stamp(it.device, it.stream, a, PAGE, 1);
    check_stamp(it.device, it.stream, d, PAGE, 4);
    void *again = take(it.mr, it.stream, PAGE);
    void *more = take(it.mr, it.stream, 5 * PAGE);
    must(again == b && more == d + PAGE);
    stamp(it.device, it.stream, again, PAGE, 3);
    stamp(it.device, it.stream, more, 5 * PAGE, 5);
    check_stamp(it.device, it.stream, a, PAGE, 1);
    check_stamp(it.device, it.stream, d, PAGE, 4);
    give(it.mr, it.stream, again, PAGE);
    give(it.mr, it.stream, more, 5 * PAGE);
    give(it.mr, it.stream, a, PAGE);
    give(it.mr, it.stream, d, PAGE);
    end(&it);
}

/* Where one of two keeps the copies, it is that one that must not be paused. */
static void one_of_two_keeps_the_contents(void **state)
{
    (void)state;
    for (int is_other = 0; is_other < 2; is_other++) {
        scene it = begin();
        weir_resource *keeper = open_spec(it.device, "pool/growable(chunk=16MiB)");
        weir_resource *full = open_spec(it.device, "limiting(0)/pinned"), *both;
        must_ok(weir_fallback_create(is_other ? full : it.host, keeper, &both));
        void *b = take(keeper, it.stream, 256);
        give(keeper, it.stream, take(keeper, it.stream, 8 * MIB), 8 * MIB);
        must_ok(weir_growable_pause_sync(keeper, it.stream, NULL));
        must_answer(WEIR_PAUSED, weir_growable_pause_sync(it.mr, it.stream, keeper));
        void *a = take(it.mr, it.stream, PAGE);
        stamp(it.device, it.stream, a, PAGE, 1);
        must_answer(is_other ? WEIR_PAUSED : WEIR_OK,
                    weir_growable_pause_sync(it.mr, it.stream, both));
        must_be(it.mr, !is_other, is_other ? 0 : 4 * PAGE, is_other ? 0 : PAGE);
        must_ok(weir_growable_resume(keeper, it.stream));
        must_ok(weir_growable_pause_sync(it.mr, it.stream, both));
        must_ok(weir_growable_pause_sync(keeper, it.stream, it.host));
        must_answer(is_other ? WEIR_PAUSED : WEIR_OK,
                    weir_growable_resume(it.mr, it.stream));
        must_ok(weir_growable_resume(keeper, it.stream));
        must_ok(weir_growable_resume(it.mr, it.stream));
        check_stamp(it.device, it.stream, a, PAGE, 1);
        give(it.mr, it.stream, a, PAGE);
        give(keeper, it.stream, b, 256);
        weir_resource_unref(both);
        weir_resource_unref(full);
        weir_resource_unref(keeper);
        end(&it);
    }
}

static void what_is_paused_can_end(void **state)
{
    (void)state;
    scene it = begin();
    weir_stream other = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    void *a = take(it.mr, it.stream, 3 * PAGE), *b = take(it.mr, it.stream, PAGE);
    must_ok(weir_growable_pause_sync(it.mr, it.stream, it.host));
    give(it.mr, it.stream, a, 3 * PAGE);
    weir_resource_ref(it.mr);
    weir_resource_unref(it.mr);
    uint64_t gate = raw_stall(it.device, other);
    give(it.mr, other, b, PAGE); /* kept: its stream is at work with something else */
    raw_open_gate(it.device, gate);
    end_stream(it.device, other);
    must_equal(statistics_of(it.host).out_blocks, 1);
    weir_resource_unref(it.mr);
    must_equal(statistics_of(it.host).out_blocks, 0);
    it.mr = open_spec(it.device, "growable(chunk=8MiB, pages_only=true)");
    end(&it);
}

/* Its end waits for what came back, not for the device: that a stream captures does
 * not matter. */
static void what_is_paused_ends_beside_a_capture(void **state)
{
    (void)state;
    scene it = begin();
    weir_stream other = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    weir_stream third = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    unsigned char *a = take(it.mr, it.stream, PAGE), *host = take(it.host, other, 64);
    must_ok(weir_growable_pause_sync(it.mr, it.stream, NULL));
    stamp(it.device, other, host, 64, 1); /* still to run when a comes back */
    give(it.mr, other, a, PAGE);
    must_ok(weir_emulated_capture_begin(it.device, third));
    weir_resource_unref(it.mr);
    must(strstr(weir_last_error().message, "leaks") == NULL);
    must_ok(weir_emulated_capture_end(it.device, third, NULL));
    give(it.host, other, host, 64);
    end_stream(it.device, other);
    end_stream(it.device, third);
    it.mr = open_spec(it.device, "growable(chunk=8MiB, pages_only=true)");
    end(&it);
}

/* Neither a pause nor a resume runs in a graph: the capture is left intact. */
static void a_captured_stream_is_left_intact(void **state)
{
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        scene it = begin();
        size_t captured;
        weir_resource *keep_in = kept ? it.host : NULL;
        void *a = take(it.mr, it.stream, PAGE), *none = take(it.host, it.stream, PAGE);
        stamp(it.device, it.stream, a, PAGE, 1);
        give(it.host, it.stream, none, PAGE); /* there is room to keep what is out */
        must_ok(weir_emulated_capture_begin(it.device, it.stream));
        must_answer(WEIR_CAPTURING,
                    weir_growable_pause_sync(it.mr, it.stream, keep_in));
        must_be(it.mr, false, 0, 0);
        must_ok(weir_emulated_capture_end(it.device, it.stream, &captured));
        must_equal(captured, 0);

        must_ok(weir_growable_pause_sync(it.mr, it.stream, keep_in));
        must_ok(weir_emulated_capture_begin(it.device, it.stream));
        must_answer(WEIR_CAPTURING, weir_growable_resume(it.mr, it.stream));
        must_be(it.mr, true, 4 * PAGE, kept ? PAGE : 0);
        must_ok(weir_emulated_capture_end(it.device, it.stream, &captured));
        must_equal(captured, 0);
        must_ok(weir_growable_resume(it.mr, it.stream));
        if (kept)
            check_stamp(it.device, it.stream, a, PAGE, 1);
        give(it.mr, it.stream, a, PAGE);
        end(&it);
    }
}

/* ---- what is waited for ---- */

static void a_pause_waits_for_what_uses_the_memory(void **state)
{
    (void)state;
    scene it = begin();
    weir_stream given = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    weir_stream stuck = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    unsigned char *a = take(it.mr, it.stream, PAGE), *b = take(it.mr, given, PAGE);
    uint64_t gate = raw_stall(it.device, stuck);
    stamp(it.device, it.stream, a, PAGE, 1);
    stamp(it.device, given, b, PAGE, 2); /* beside a, and not on its stream */
    give(it.mr, given, b, PAGE);
    must_ok(weir_growable_pause_sync(it.mr, it.stream, it.host));
    must_equal(device_free_bytes(it.device), it.before);
    must_ok(weir_growable_resume(it.mr, it.stream));
    check_stamp(it.device, it.stream, a, PAGE, 1);
    raw_open_gate(it.device, gate);
    give(it.mr, it.stream, a, PAGE);
    end_stream(it.device, given);
    end_stream(it.device, stuck);
    end(&it);
}

/* Who uses it on a stream that the pause knows nothing of is found. */
static void work_beside_a_pause_is_found(void **state)
{
    (void)state;
    if (support_is_gpu() || support_is_cuda())
        skip();
    for (int kept = 0; kept < 2; kept++) {
        scene it = begin();
        weir_stream beside = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        void *a = take(it.mr, it.stream, PAGE);
        stamp(it.device, beside, a, PAGE, 1);
        must_ok(weir_growable_pause_sync(it.mr, it.stream, kept ? it.host : NULL));
        must(weir_emulated_findings(it.device) > 0);
        must_ok(weir_device_sync(it.device));
        must_ok(weir_growable_resume(it.mr, it.stream));
        give(it.mr, it.stream, a, PAGE);
        end_stream(it.device, beside);
        weir_resource_unref(it.mr);
        weir_resource_unref(it.host);
        end_stream(it.device, it.stream);
        close_anyhow(it.device);
    }
}

/* Work that comes while it is paused finds nothing there. */
static void work_on_paused_memory_is_refused(void **state)
{
    (void)state;
    scene it = begin();
    void *a = take(it.mr, it.stream, PAGE);
    stamp(it.device, it.stream, a, PAGE, 1);
    must_ok(weir_growable_pause_sync(it.mr, it.stream, it.host));
    must_answer(WEIR_DEVICE_ERROR, weir__fill(it.device, it.stream, a, 0, PAGE));
    must_ok(weir_growable_resume(it.mr, it.stream));
    check_stamp(it.device, it.stream, a, PAGE, 1);
    give(it.mr, it.stream, a, PAGE);
    end(&it);
}

/* What follows a resume on another stream is ordered behind it, or is found. */
static void a_resume_writes_on_its_stream(void **state)
{
    (void)state;
    scene it = begin();
    weir_stream later = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    void *a = take(it.mr, it.stream, 4 * PAGE);
    stamp(it.device, it.stream, a, 4 * PAGE, 1);
    must_ok(weir_growable_pause_sync(it.mr, it.stream, it.host));
    must_ok(weir_growable_resume(it.mr, later)); /* another than the pause's */
    check_stamp(it.device, later, a, 4 * PAGE, 1);
    must_ok(weir_stream_wait(it.device, it.stream, later));
    check_stamp(it.device, it.stream, a, 4 * PAGE, 1);
    give(it.mr, it.stream, a, 4 * PAGE);
    end_stream(it.device, later);
    end(&it);
}

/* A pool above hands out what it has while it is paused. Where the resume fails, what
 * it has mapped goes again, not beside who has got some of it in front of it: also of
 * a chunk that the device had not unmapped. */
static void who_comes_meanwhile_is_waited_for(void **state)
{
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        scene it = begin();
        weir_stream other = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        weir_resource *pool = open_spec(it.device, "pool/growable(chunk=2MiB)");
        void *first = take(pool, it.stream, PAGE / 2);
        void *second = take(pool, it.stream, PAGE);
        stamp(it.device, it.stream, first, PAGE / 2, 1);
        stamp(it.device, it.stream, second, PAGE, 2);
        (void)weir_resource_trim_sync(pool, 0);
        plan_fault(it.device, "range_unmap", 2, false, WEIR_DEVICE_ERROR);
        must_ok(weir_growable_pause_sync(pool, it.stream, kept ? it.host : NULL));
        must(statistics_of(pool).held_bytes >= PAGE); /* which it did not unmap */
        void *late = take(pool, other, PAGE / 4);
        must_ok(weir_stream_wait(it.device, it.stream, other));
        plan_fault(it.device, kept ? "copy" : "range_map", 1, false,
                   WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR, weir_growable_resume(pool, it.stream));
        plan_fault(it.device, NULL, 0, false, WEIR_OK);
        must_ok(weir_growable_resume(pool, it.stream));
        if (kept) {
            check_stamp(it.device, it.stream, first, PAGE / 2, 1);
            check_stamp(it.device, it.stream, second, PAGE, 2);
        }
        must_ok(weir_stream_wait(it.device, other, it.stream));
        give(pool, other, late, PAGE / 4);
        give(pool, it.stream, first, PAGE / 2);
        give(pool, it.stream, second, PAGE);
        weir_resource_unref(pool);
        end_stream(it.device, other);
        end(&it);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_kept_comes_back),
        cmocka_unit_test(what_is_dropped_is_unknown),
        cmocka_unit_test(pausing_twice_is_pausing_once),
        cmocka_unit_test(what_is_being_paused_gives_nothing_out),
        cmocka_unit_test(what_is_paused_gives_nothing_out),
        cmocka_unit_test(one_of_two_keeps_the_contents),
        cmocka_unit_test(what_is_paused_can_end),
        cmocka_unit_test(what_is_paused_ends_beside_a_capture),
        cmocka_unit_test(a_captured_stream_is_left_intact),
        cmocka_unit_test(a_pause_waits_for_what_uses_the_memory),
        cmocka_unit_test(work_beside_a_pause_is_found),
        cmocka_unit_test(work_on_paused_memory_is_refused),
        cmocka_unit_test(a_resume_writes_on_its_stream),
        cmocka_unit_test(who_comes_meanwhile_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
