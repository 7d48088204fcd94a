/* test_checking.c - what spoils memory is found, and named: overruns, writes to what
 * was given back, wrong frees; and where nothing is wrong, or nothing can be known,
 * nothing is found. Without the ledger (test_checking_calls.c has it):
 * the guards and the quarantine have to find it, as on a real device. */
#include "support.h"

#include <stdio.h>
#include <string.h>

#include "device/device.h"
#include "support_roomy.h"
#include "weir/capture.h"
#include "weir/checking.h"
#include "weir/resource_ops.h"

#define KIB ((size_t)1024)

/* ---- what was told ---- */

static struct told {
    size_t count;
    weir_misuse_kind kind; /* of the last */
    const void *ptr;
    char text[800];
} told;

static void hear(void *context, const weir_misuse *misuse)
{
    (void)context;
    told.count++;
    told.kind = misuse->kind;
    told.ptr = misuse->ptr;
    snprintf(told.text, sizeof told.text, "%s", misuse->message);
}

/* Claims that one was, with these words; and begins anew. */
static void must_be_told(weir_misuse_kind kind, const void *ptr, const char *words)
{
    if (told.count == 1 && strstr(told.text, words) == NULL)
        print_error("not \"%s\": %s\n", words, told.text);
    must_equal(told.count, 1);
    must_equal(told.kind, kind);
    must(told.ptr == ptr);
    must(strstr(told.text, words) != NULL);
    told = (struct told){ .count = 0 };
}

/* ---- a stage ---- */

typedef struct place {
    weir_device *device;
    weir_resource *mr;
    weir_stream a, b;
} place;

static weir_device *open_without_ledger(weir_emulated_scheduler scheduler)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    emulated.scheduler = scheduler;
    emulated.seed = support_seed(1);
    emulated.no_ledger = true;
    emulated.memory_bytes = (size_t)1 << 30;
    options.emulated = &emulated;
    return open_with("emulated:0", &options);
}

static place begin(const char *spec)
{
    place it = { .device = open_without_ledger(WEIR_EMULATED_STEPPED) };
    told = (struct told){ .count = 0 };
    weir_set_misuse_handler(hear, NULL);
    must_ok(weir_resource_open(it.device, spec, &it.mr));
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.b = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    return it;
}

/* What has not been told by now is none of the test's. */
static void end(place *it)
{
    weir_resource_unref(it->mr);
    must_equal(told.count, 0);
    weir_set_misuse_handler(NULL, NULL);
    end_stream(it->device, it->a);
    end_stream(it->device, it->b);
    close_emulated(it->device);
}

static uint64_t check(const place *it)
{
    uint64_t found = 99;
    must_ok(weir_checking_check_sync(it->mr, &found));
    return found;
}

static weir_checking_statistics counts_of(const place *it)
{
    weir_checking_statistics out = { .struct_size = sizeof out };
    must_ok(weir_checking_get_statistics(it->mr, &out));
    return out;
}

static void spoil(void *argument, void *const views[])
{
    (void)argument;
    *(unsigned char *)views[0] ^= 0xff;
}

/* A kernel on `stream` that changes one byte. */
static void write_at(const place *it, weir_stream stream, void *ptr, ptrdiff_t at)
{
    const weir_emulated_range range = { (char *)ptr + at, 1, WEIR_EMULATED_READ_WRITE };
    must_ok(weir_emulated_launch(it->device, stream, spoil, NULL, &range, 1));
}

static uint64_t stall(const place *it, weir_stream stream)
{
    uint64_t gate;
    must_ok(weir_emulated_stall(it->device, stream, &gate));
    return gate;
}

/* ---- overruns ---- */

static void overrun_on_either_side_is_told(void **state)
{
    (void)state;
    place it = begin("checking/pool/device");
    char words[120];
    void *ptr = take(it.mr, it.a, 1000);
    write_at(&it, it.a, ptr, 1000); /* one byte too far */
    give(it.mr, it.a, ptr, 1000);
    must_equal(told.count, 0); /* nobody has waited for the look */
    must_equal(check(&it), 1);
    snprintf(words, sizeof words, "the block of 1000 bytes at %p: 1 bytes past its end "
             "were written, the first 0 behind it, with 0x1a", ptr);
    must(strstr(told.text, "allocated on stream ") != NULL);
    must(strstr(told.text, ", given back on stream ") != NULL);
    must_be_told(WEIR_MISUSE_OVERRUN, ptr, words);

    ptr = take(it.mr, it.a, 1000);
    write_at(&it, it.a, ptr, -1);
    write_at(&it, it.a, ptr, -256); /* the farthest of the guard */
    give(it.mr, it.a, ptr, 1000);
    must_equal(check(&it), 1);
    must_be_told(WEIR_MISUSE_OVERRUN, ptr, "2 bytes in front of its start were "
                 "written, the first 256 before it");

    ptr = take(it.mr, it.a, 1000);
    for (ptrdiff_t at = 0; at < 1000; at++)
        write_at(&it, it.a, ptr, at); /* all that is its own */
    write_at(&it, it.a, ptr, 1000 + 255);
    give(it.mr, it.a, ptr, 1000);
    must_equal(check(&it), 1);
    must_be_told(WEIR_MISUSE_OVERRUN, ptr, "the first 255 behind it");
    must_equal(counts_of(&it).overruns, 3);
    must_equal(counts_of(&it).not_checked, 0);
    end(&it);
}

static void overrun_is_told_by_a_later_call(void **state)
{
    (void)state;
    place it = begin("checking(quarantine=none, guard=16B)/pool/device");
    void *ptr = take(it.mr, it.a, 100);
    write_at(&it, it.a, ptr, 115);
    weir_device_calls before = calls_of(it.device);
    give(it.mr, it.a, ptr, 100);
    give(it.mr, it.a, take(it.mr, it.a, 100), 100);
    must_equal(told.count, 0);
    must_ok(weir_stream_sync(it.device, it.a));
    void *other = take(it.mr, it.b, 100);
    must_be_told(WEIR_MISUSE_OVERRUN, ptr, "1 bytes past its end were written, the "
                 "first 15 behind it");
    give(it.mr, it.b, other, 100);
    weir_device_calls after = calls_of(it.device);
    must_equal(after.stream_sync - before.stream_sync, 1); /* the test's own */
    must_equal(after.event_sync, before.event_sync);
    must_equal(after.device_sync, before.device_sync);
    end(&it);
}

static void overrun_of_what_is_out_is_told_once(void **state)
{
    (void)state;
    place it = begin("checking/device");
    void *first = take(it.mr, it.a, 5000), *second = take(it.mr, it.b, 1);
    write_at(&it, it.b, second, -7);
    must_equal(check(&it), 1);
    must(strstr(told.text, ", and is out") != NULL);
    must_be_told(WEIR_MISUSE_OVERRUN, second, "the first 7 before it");
    must_equal(check(&it), 0);
    write_at(&it, it.b, second, 1);
    must_equal(check(&it), 1);
    must_be_told(WEIR_MISUSE_OVERRUN, second, "past its end");
    give(it.mr, it.a, first, 5000);
    give(it.mr, it.b, second, 1);
    must_equal(check(&it), 0);
    end(&it);
}

/* ---- what was given back ---- */

static void write_after_the_free_is_told(void **state)
{
    (void)state;
    place it = begin("checking/pool/device");
    void *ptr = take(it.mr, it.a, 3000 * KIB);
    give(it.mr, it.a, ptr, 3000 * KIB);
    write_at(&it, it.a, ptr, 1000 * KIB);
    must_equal(check(&it), 1);
    must_be_told(WEIR_MISUSE_USE_AFTER_FREE, ptr,
                 "1 of its bytes were written after it was given back, the first at "
                 "1024000, with 0x24");
    must_equal(counts_of(&it).quarantine_blocks, 0);
    must_equal(counts_of(&it).uses_after_free, 1);
    end(&it);
}

static void write_is_told_when_the_block_leaves(void **state)
{
    (void)state;
    place it = begin("checking(quarantine=64KiB, guard=64B, look=2KiB)/pool/device");
    static const struct { size_t bytes; ptrdiff_t at; bool seen; } cases[] = {
        { 1900, 0, true }, { 1900, 1899, true }, { 1900, 950, true },
        { 40000, 900, true }, { 40000, 39100, true }, { 40000, 20000, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        void *ptr = take(it.mr, it.a, cases[i].bytes);
        give(it.mr, it.a, ptr, cases[i].bytes);
        write_at(&it, it.a, ptr, cases[i].at);
        must_equal(told.count, 0);
        for (int n = 0; n < 20; n++) { /* pushes it out, and has it judged */
            give(it.mr, it.a, take(it.mr, it.a, 30000), 30000);
            must_ok(weir_device_sync(it.device));
            must(counts_of(&it).quarantine_bytes <= 2 * 64 * KIB);
        }
        if (cases[i].seen)
            must_be_told(WEIR_MISUSE_USE_AFTER_FREE, ptr, "1 of its bytes");
    }
    end(&it);
}

/* The free is on a stream that is not behind the work. */
static void late_write_behind_another_stream_is_told(void **state)
{
    (void)state;
    place it = begin("checking/pool/device");
    void *ptr = take(it.mr, it.a, 1000);
    must_ok(weir_stream_wait(it.device, it.b, it.a));
    uint64_t gate = stall(&it, it.a);
    write_at(&it, it.a, ptr, 500);
    give(it.mr, it.b, ptr, 1000);
    must_ok(weir_stream_sync(it.device, it.b));
    must_ok(weir_emulated_open_gate(it.device, gate));
    must_equal(check(&it), 1);
    must_be_told(WEIR_MISUSE_USE_AFTER_FREE, ptr, "the first at 500");
    end(&it);
}

static void blocks_that_come_back_behind_points_are_checked(void **state)
{
    (void)state;
    place it = begin("checking/pool/device");
    weir_point points[2];
    void *ptr[3];
    for (int i = 0; i < 3; i++)
        ptr[i] = take(it.mr, it.a, 1000);
    must_ok(weir_stream_wait(it.device, it.b, it.a));
    uint64_t gate = stall(&it, it.b);
    write_at(&it, it.b, ptr[0], 1000);
    must_ok(weir_point_here(it.device, it.a, &points[0]));
    must_ok(weir_point_here(it.device, it.b, &points[1]));
    must(weir_deallocate_after(it.mr, ptr[0], 1000, WEIR_ALIGNMENT, points, 2));
    must_ok(weir_stream_sync(it.device, it.a));
    must(weir_deallocate_after(it.mr, ptr[1], 1000, WEIR_ALIGNMENT, points, 1));
    must_ok(weir_emulated_open_gate(it.device, gate));
    must_equal(check(&it), 1);
    must(strstr(told.text, "given back behind points") != NULL);
    must_be_told(WEIR_MISUSE_OVERRUN, ptr[0], "1 bytes past its end");

    must(weir_deallocate_after(it.mr, ptr[2], 1000, WEIR_ALIGNMENT, NULL, 0));
    must_ok(weir_device_sync(it.device)); /* it is filled by now */
    write_at(&it, it.a, ptr[2], 0);
    must_equal(check(&it), 1);
    must_be_told(WEIR_MISUSE_USE_AFTER_FREE, ptr[2], "the first at 0");
    must_equal(counts_of(&it).not_checked, 0);
    end(&it);
}

/* ---- wrong frees ---- */

static void wrong_frees_are_told(void **state)
{
    (void)state;
    place it = begin("checking/pool/device");
    void *ptr = take(it.mr, it.a, 1000);
    must(!weir_deallocate(it.mr, it.a, ptr, 1001, WEIR_ALIGNMENT));
    must_be_told(WEIR_MISUSE_WRONG_SIZE, ptr, "allocated with 1000, 256");
    must(!weir_deallocate(it.mr, it.a, ptr, 1000, 128));
    must_be_told(WEIR_MISUSE_WRONG_SIZE, ptr, "alignment 128");
    must(!weir_deallocate(it.mr, it.a, (char *)ptr + 256, 1000, WEIR_ALIGNMENT));
    must_be_told(WEIR_MISUSE_FOREIGN_POINTER, (char *)ptr + 256, "no block");
    must_equal(statistics_of(it.mr).out_blocks, 1);
    give(it.mr, it.a, ptr, 1000);
    must(!weir_deallocate(it.mr, it.a, ptr, 1000, WEIR_ALIGNMENT));
    must_be_told(WEIR_MISUSE_DOUBLE_FREE, ptr, "given back already, by ");
    must_equal(statistics_of(it.mr).out_blocks, 0);
    must_equal(statistics_of(it.mr).deallocations, 1);
    must_equal(counts_of(&it).wrong_frees, 4);
    must_equal(check(&it), 0);
    end(&it);
}

static void strict_tells_of_streams_that_do_not_wait(void **state)
{
    (void)state;
    for (int strict = 0; strict < 2; strict++) {
        place it = begin(strict ? "checking(strict)/pool/device"
                                : "checking/pool/device");
        void *ptr = take(it.mr, it.a, 1000);
        uint64_t gate = stall(&it, it.a);
        weir_stream other = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
        must_ok(weir_stream_wait(it.device, it.b, it.a));
        void *waited = take(it.mr, it.a, 1000), *also = take(it.mr, it.a, 1000);
        give(it.mr, it.b, ptr, 1000); /* which waits for it */
        must_equal(told.count, 0);
        give(it.mr, it.b, also, 1000); /* and not for this */
        if (strict)
            must_be_told(WEIR_MISUSE_WRONG_STREAM, also, "knows of no wait for stream");
        must_equal(told.count, 0);
        must_equal(counts_of(&it).wrong_streams, strict);
        must_ok(weir_emulated_open_gate(it.device, gate));
        must_ok(weir_stream_sync(it.device, it.a));
        give(it.mr, other, waited, 1000); /* the host has waited */
        told.count = 0;
        (void)check(&it); /* `also` was looked at before it was there: that may show */
        told.count = 0;
        end_stream(it.device, other);
        end(&it);
    }
}

/* ---- extension ---- */

static void guards_move_with_the_end(void **state)
{
    (void)state;
    place it = begin("pool/device");
    weir_resource *pool = it.mr;
    roomy self;
    weir_resource *extending = roomy_open(&self, pool, 64 * KIB);
    weir_checking_options options = WEIR_CHECKING_OPTIONS_INIT;
    options.fills = true;
    options.first_byte = 3;
    must_ok(weir_checking_create(extending, &options, &it.mr));
    void *ptr = take(it.mr, it.a, 1000);
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_resource_extend(it.mr, it.a, ptr, 1000, WEIR_ALIGNMENT, 64 * KIB));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_resource_extend(it.mr, it.a, ptr, 999, WEIR_ALIGNMENT, 2000));
    must_answer(WEIR_OUT_OF_MEMORY, weir_resource_extend(it.mr, it.a, ptr, 1000,
                                                         WEIR_ALIGNMENT, SIZE_MAX));
    must_equal(check(&it), 0); /* the guard is where it was */
    must_ok(weir_resource_extend(it.mr, it.a, ptr, 1000, WEIR_ALIGNMENT, 2000));
    must_equal(statistics_of(it.mr).out_bytes, 2000);
    unsigned char last[2];
    must_ok(weir_copy_sync(it.device, it.a, last, (char *)ptr + 999, 2));
    must(last[0] == 3 && last[1] == 3); /* no guard is left within */
    write_at(&it, it.a, ptr, 1000);
    write_at(&it, it.a, ptr, 1999);
    must_equal(check(&it), 0);
    write_at(&it, it.a, ptr, 2000);
    must_ok(weir_resource_extend(it.mr, it.a, ptr, 2000, WEIR_ALIGNMENT, 3000));
    must_equal(check(&it), 1); /* of the guard that is not there any more */
    must_be_told(WEIR_MISUSE_OVERRUN, ptr, "the block of 2000 bytes");
    give(it.mr, it.a, ptr, 3000);
    must_equal(check(&it), 0);
    weir_resource_unref(it.mr);
    weir_resource_unref(extending);
    it.mr = pool;
    end(&it);
}

/* Another thread could extend a block just then, of whose stream the look at
 * everything has not waited for what comes behind. */
typedef struct extension {
    const place *it;
    void *ptr;
    uint64_t gate;
} extension;

static void hear_and_extend(void *context, const weir_misuse *misuse)
{
    extension *next = context;
    hear(NULL, misuse);
    if (told.count > 1)
        return;
    next->gate = stall(next->it, next->it->a);
    must_ok(weir_resource_extend(next->it->mr, next->it->a, next->ptr, KIB * KIB,
                                 2 * KIB * KIB, 6 * KIB * KIB));
}

static void block_that_grows_meanwhile_has_no_guard_yet(void **state)
{
    (void)state;
    place it = begin("checking/growable(pages_only)");
    void *first = take(it.mr, it.b, 1000);
    extension next = { .it = &it };
    must_ok(weir_allocate(it.mr, it.a, KIB * KIB, 2 * KIB * KIB, &next.ptr));
    write_at(&it, it.b, first, 1000);
    must_ok(weir_device_sync(it.device));
    weir_set_misuse_handler(hear_and_extend, &next);
    must_equal(check(&it), 1);
    must_be_told(WEIR_MISUSE_OVERRUN, first, "1 bytes past its end");
    weir_set_misuse_handler(hear, NULL);
    must_ok(weir_emulated_open_gate(it.device, next.gate));
    must_equal(check(&it), 0);
    write_at(&it, it.a, next.ptr, 6 * 1024 * 1024);
    must_equal(check(&it), 1); /* the next look has it */
    must_be_told(WEIR_MISUSE_OVERRUN, next.ptr, "1 bytes past its end");
    give(it.mr, it.b, first, 1000);
    must(weir_deallocate(it.mr, it.a, next.ptr, 6 * KIB * KIB, 2 * KIB * KIB));
    end(&it);
}

/* ---- what cannot be waited for ---- */

static void check_that_cannot_wait_looks_at_nothing(void **state)
{
    (void)state;
    place it = begin("checking/pool/device");
    uint64_t found = 99;
    void *ptr = take(it.mr, it.a, 1000);
    write_at(&it, it.a, ptr, 1000);
    const uint64_t looks = counts_of(&it).looks;
    plan_fault(it.device, "device_sync", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir_checking_check_sync(it.mr, &found));
    must_equal(found + told.count, 0);
    must_equal(counts_of(&it).looks, looks);
    must_equal(check(&it), 1);
    must_be_told(WEIR_MISUSE_OVERRUN, ptr, "1 bytes past its end");
    give(it.mr, it.a, ptr, 1000);
    end(&it);
}

/* A copy that cannot be waited for may still write: where the looks are is not freed
 * under it. */
static void what_is_under_way_at_the_end_keeps_its_memory(void **state)
{
    (void)state;
    const int count = support_is_cuda() ? 1 : 2; /* the stand-in misses what stays */
    for (int fails = 0; fails < count; fails++) {
        place it = begin("checking/pool/device");
        const uint64_t freed = calls_of(it.device).pinned_free;
        void *ptr = take(it.mr, it.a, 1000);
        uint64_t gate = stall(&it, it.a);
        give(it.mr, it.a, ptr, 1000);
        must_ok(weir_emulated_open_gate(it.device, gate));
        if (fails)
            plan_fault(it.device, "event_sync", 1, true, WEIR_DEVICE_ERROR);
        weir_resource_unref(it.mr);
        plan_fault(it.device, NULL, 0, false, WEIR_OK);
        must_equal(calls_of(it.device).pinned_free, freed + !fails);
        it.mr = NULL;
        end(&it);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overrun_on_either_side_is_told),
        cmocka_unit_test(overrun_is_told_by_a_later_call),
        cmocka_unit_test(overrun_of_what_is_out_is_told_once),
        cmocka_unit_test(write_after_the_free_is_told),
        cmocka_unit_test(write_is_told_when_the_block_leaves),
        cmocka_unit_test(late_write_behind_another_stream_is_told),
        cmocka_unit_test(blocks_that_come_back_behind_points_are_checked),
        cmocka_unit_test(wrong_frees_are_told),
        cmocka_unit_test(strict_tells_of_streams_that_do_not_wait),
        cmocka_unit_test(guards_move_with_the_end),
        cmocka_unit_test(block_that_grows_meanwhile_has_no_guard_yet),
        cmocka_unit_test(check_that_cannot_wait_looks_at_nothing),
        cmocka_unit_test(what_is_under_way_at_the_end_keeps_its_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
